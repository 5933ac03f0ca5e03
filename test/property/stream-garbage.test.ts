/**
 * Segments with random header fields, most of them unlawful, in FPDUs whose CRC is right: nothing throws,
 * nothing outside a region changes, every receive ends once, the answers are lawful and a Terminate, if
 * any, is its last word (RFC 5040 7, RFC 5041 7).
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ACCESS } from '../../src/verbs/index.ts';
import { encodeHeader } from '../support/naive/encoder.ts';
import { OP, pattern, scripted, type Script } from '../rdmap/scripted.ts';

/** Values of a field: mostly lawful ones, so that random segments get past the first check. */
const rarely = <T>(usual: T, others: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ arbitrary: fc.constant(usual), weight: 12 }, { arbitrary: others, weight: 1 });

const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const size = fc.oneof(
  { arbitrary: fc.constantFrom(0, 4, 8, 12, 28, 52), weight: 3 },
  { arbitrary: fc.integer({ min: 0, max: 300 }), weight: 1 },
);

const segment = fc.record({
  opcode: fc.oneof(
    { arbitrary: fc.constantFrom(0, 1, 3, 3, 3, 4, 5, 6, 8, 9, 10), weight: 15 },
    { arbitrary: fc.integer({ min: 0, max: 15 }), weight: 1 },
  ),
  wrongT: rarely(false, fc.constant(true)),
  last: rarely(true, fc.constant(false)),
  dv: rarely(1, fc.integer({ min: 0, max: 3 })),
  rv: rarely(1, fc.integer({ min: 0, max: 3 })),
  reserved: fc.integer({ min: 0, max: 15 }),
  /** Which of our STags, or none of them. */
  stag: fc.oneof({ arbitrary: fc.integer({ min: 0, max: 2 }), weight: 8 }, { arbitrary: u32, weight: 1 }),
  to: fc.oneof(
    { arbitrary: fc.bigInt(0n, 70n), weight: 8 },
    { arbitrary: fc.bigInt(0n, 0xffff_ffff_ffff_ffffn), weight: 1 },
  ),
  skew: rarely(0, fc.integer({ min: -2, max: 2 })),
  mo: rarely(0, u32),
  wrongQn: rarely(-1, fc.integer({ min: 0, max: 5 })),
  size,
  body: fc.uint8Array({ minLength: 300, maxLength: 300 }),
  readSize: rarely(16, u32),
});
type Segment = typeof segment extends fc.Arbitrary<infer T> ? T : never;

const QUEUE: Readonly<Record<number, number>> = { 1: 1, 7: 2, 10: 1, 11: 3 };

class Sequence {
  readonly msn = new Map<number, number>();

  encode(script: Script, s: Segment): Uint8Array {
    const stag = script.guarded[s.stag]?.mr.rkey ?? s.stag;
    const tagged = (s.opcode === OP.write || s.opcode === OP.readResponse) !== s.wrongT;
    const common = {
      last: s.last,
      dv: s.dv,
      rv: s.rv,
      ddpReserved: s.reserved,
      rdmapReserved: s.reserved & 3,
      opcode: s.opcode,
    };
    const body = s.body.slice(
      0,
      s.opcode === OP.readRequest
        ? 28
        : s.opcode === OP.atomicRequest
          ? 52
          : s.opcode === OP.imm || s.opcode === OP.immSe
            ? 8
            : s.size,
    );
    if (tagged) return Uint8Array.from([...encodeHeader({ ...common, tagged, stag, to: s.to }), ...body]);
    const qn = s.wrongQn >= 0 ? s.wrongQn : (QUEUE[s.opcode] ?? 0);
    const next = this.msn.get(qn) ?? 1;
    const msn = (next + s.skew) >>> 0;
    if (s.last) this.msn.set(qn, next + 1);
    const view = new DataView(body.buffer);
    if (s.opcode === OP.readRequest) {
      view.setUint32(12, s.readSize);
      view.setUint32(16, stag);
      view.setBigUint64(20, s.to);
    } else if (s.opcode === OP.atomicRequest) {
      view.setUint32(0, view.getUint32(0) & 0xffff_fff2);
      view.setUint32(8, stag);
      view.setBigUint64(12, s.to & ~7n);
    }
    return Uint8Array.from([
      ...encodeHeader({ ...common, tagged, qn, msn, mo: s.mo, invalidateStag: stag }),
      ...body,
    ]);
  }
}

describe('unlawful segments at random', () => {
  it('never throw, never write outside, always end in order (DDP-052/054/065, RDMAP-075/077)', async () => {
    let processed = 0;
    let terminated = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(segment, { minLength: 1, maxLength: 25 }),
        fc.boolean(),
        async (segments, burst) => {
          const script = await scripted();
          script.region(96);
          script.region(64, ACCESS.REMOTE_READ);
          script.region(64, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
          const readOnly = script.guarded[1]!;
          script.receives(6, 120);
          const sequence = new Sequence();
          const ulpdus = segments.map((s) => sequence.encode(script, s));
          if (burst) script.send(...ulpdus);
          else for (const ulpdu of ulpdus) script.send(ulpdu).settle(5);
          script.side.qp.postSend({ wrId: 1, opcode: 'send', inline: pattern(5) });
          script.settle().end().finish();
          script.guardsIntact();
          expect(readOnly.memory).toEqual(readOnly.before);
          expect(script.time.pending).toBe(0);
          const sent = script.segments();
          const at = sent.findIndex((s) => s.opcode === OP.terminate);
          if (at >= 0) {
            expect(at).toBe(sent.length - 1);
            terminated++;
          }
          expect(['idle', 'error']).toContain(script.side.qp.state);
          expect(script.received().map((wc) => wc.wrId)).toEqual([1000, 1001, 1002, 1003, 1004, 1005]);
          expect(script.side.sent().map((wc) => wc.wrId)).toEqual([1]);
          processed += sent.length;
        },
      ),
      { numRuns: 500 },
    );
    expect(terminated).toBeGreaterThan(200);
    expect(processed).toBeGreaterThan(terminated); // some got past the checks and were answered
  });
});
