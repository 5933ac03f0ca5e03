/**
 * Properties of one stream: no outcome depends on how the octets arrive in pieces; gather and scatter lists
 * of any shape move the octets that a naive concatenation says (RFC 5044 6, RFC 5041 5, verbs draft 8.1.2).
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { octetsToHex } from '../../conformance/vectors/index.ts';
import { captured, plainPair } from '../rdmap/capture.ts';
import { OP, pattern, readRequest, scripted, send, write } from '../rdmap/scripted.ts';

interface Result {
  readonly out: string;
  readonly memory: string;
  readonly completions: string;
  readonly events: string;
}

/** One script, its octets delivered in pieces that end at `cuts`. */
async function deliver(cuts: readonly number[], fault: boolean, markers: boolean): Promise<Result> {
  const script = await scripted({ markers });
  const inbox = script.receives(4, 900);
  const { mr } = script.region(2000);
  // A Terminate goes out as early as it can (RDMAP-073), so how many responses precede it is a matter of
  // time: no Reads with a fault.
  const reads = fault
    ? []
    : [readRequest(1, { size: 2000, sourceStag: mr.rkey }), readRequest(2, { size: 0, sourceStag: 0 })];
  const octets = script.peer.encode([
    send(1, pattern(700), { last: false }),
    write(mr.rkey, 5n, pattern(1500)),
    send(1, pattern(200), { mo: 700 }),
    ...reads,
    send(2, undefined),
    send(3, pattern(8), { opcode: OP.immSe }),
    ...(fault ? [write(mr.rkey, 1999n, pattern(2))] : []),
    send(4, pattern(33)),
  ]);
  let at = 0;
  for (const cut of [...cuts.map((c) => c % octets.length).toSorted((a, b) => a - b), octets.length]) {
    if (cut > at) script.peer.sendRaw(octets.slice(at, cut));
    script.settle(3);
    at = Math.max(at, cut);
  }
  script.settle();
  return {
    out: octetsToHex(script.peer.behind()),
    memory: octetsToHex(inbox.memory) + octetsToHex(mr.bytes),
    completions: JSON.stringify(script.received(), (_, value: unknown) =>
      typeof value === 'bigint' ? `${value}n` : value,
    ),
    events: script.side.events.map((event) => event.type).join(' '),
  };
}

describe('cuts of the inbound stream', () => {
  for (const [fault, markers] of [
    [false, false],
    [true, false],
    [false, true],
    [true, true],
  ] as const) {
    it(`change no effect (fault ${fault}, markers ${markers}) (DDP-033/034, RDMAP-075)`, async () => {
      const whole = await deliver([], fault, markers);
      expect(whole.completions).toContain('"byteLength":900');
      await fc.assert(
        fc.asyncProperty(fc.array(fc.nat(10_000), { maxLength: 40 }), async (cuts) => {
          expect(await deliver(cuts, fault, markers)).toEqual(whole);
        }),
        { numRuns: 40 },
      );
    });
  }

  it('octet by octet it is the same (DDP-034)', async () => {
    const every = Array.from({ length: 3200 }, (_, i) => i);
    expect(await deliver(every, true, true)).toEqual(await deliver([], true, true));
  });
});

describe('gather and scatter', () => {
  const list = fc.array(fc.integer({ min: 0, max: 900 }), { minLength: 0, maxLength: 6 });

  it('any lists, any MULPDU, markers or not: the sink holds the whole (DDP-023/024, RDMAP-023)', async () => {
    await fc.assert(
      fc.asyncProperty(
        list,
        list,
        fc.integer({ min: 64, max: 3000 }),
        fc.boolean(),
        fc.boolean(),
        async (from, into, emss, markers, tagged) => {
          const pair = await plainPair({
            emss,
            markers,
            client: { qp: { maxSendSge: 6 } },
            server: { qp: { maxRecvSge: 6 } },
          });
          const { client, server } = pair;
          const memory = pattern(8000);
          const source = client.register(memory);
          let offset = 3;
          const sges = from.map((length) => {
            const sge = { mr: source, offset, length };
            offset += length + 2;
            return sge;
          });
          const message = Uint8Array.from(
            sges.flatMap((sge) => [...memory.slice(sge.offset, sge.offset + sge.length)]),
          );
          const room = into.reduce((sum, length) => sum + length, 0);
          const sink = new Uint8Array(8000).fill(0xee);
          const target = server.register(sink);
          if (tagged) {
            client.qp.postSend({ opcode: 'rdma-write', sges, rkey: target.rkey, remoteAddr: 7 });
            pair.run();
            const expected = new Uint8Array(8000).fill(0xee);
            expected.set(message, 7);
            expect(sink).toEqual(expected);
            return;
          }
          const scatter: { mr: typeof target; offset: number; length: number }[] = [];
          offset = 5;
          for (const length of into) {
            scatter.push({ mr: target, offset, length });
            offset += length + 3;
          }
          server.qp.postRecv({ wrId: 1, sges: scatter });
          client.qp.postSend({ opcode: 'send', sges });
          pair.run();
          const [wc] = server.received();
          if (message.length > room) {
            expect(wc).toMatchObject({ status: 'local-length-error' });
            // Of a message too long whole segments that fit may have been placed, and nothing outside the
            // list.
            const inside = new Set(
              scatter.flatMap((sge) => Array.from({ length: sge.length }, (_, i) => sge.offset + i)),
            );
            sink.forEach((octet, i) => inside.has(i) || expect(octet).toBe(0xee));
            return;
          }
          expect(wc).toMatchObject({ status: 'success', byteLength: message.length });
          const expected = new Uint8Array(8000).fill(0xee);
          let taken = 0;
          for (const sge of scatter) {
            const part = message.slice(taken, taken + sge.length);
            expected.set(part, sge.offset);
            taken += part.length;
          }
          expect(sink).toEqual(expected);
          expect(captured(pair, { markers }).client.messages[0]!.payload).toEqual(message);
        },
      ),
      { numRuns: 120 },
    );
  });
});
