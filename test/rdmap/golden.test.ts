/**
 * The golden vectors of conformance/vectors: our sender must produce these octets, our receiver must take
 * them.
 */
import { describe, expect, it } from 'vitest';
import { hexToOctets, loadVectors, octetsToHex, type StreamVector } from '../../conformance/vectors/index.ts';
import type { SendWorkRequest } from '../../src/verbs/index.ts';
import { encodeAtomicRequest, untaggedUlpdu } from '../support/naive/encoder.ts';
import { OP, pattern, readRequest, scripted, send, write, type Script } from './scripted.ts';

const vectors = new Map<string, StreamVector>(loadVectors('fpdu').map((vector) => [vector.name, vector]));
const text = (s: string): Uint8Array => Uint8Array.from(s, (c) => c.charCodeAt(0));
const post = (script: Script, ...requests: SendWorkRequest[]): unknown => script.side.qp.postSend(requests);
const filler: SendWorkRequest = { opcode: 'send' };

/**
 * For each vector: the side that connects, and the action that makes our side send its octets as the last
 * FPDU.
 */
const SENT: Readonly<Record<string, (script: Script) => void>> = {
  'send.hello': (s) => post(s, { opcode: 'send', inline: text('Hello') }),
  'send.zero-length': (s) => post(s, filler),
  'send-se.abcd': (s) => post(s, filler, { opcode: 'send', inline: text('ABCD'), solicited: true }),
  'send-invalidate.ok': (s) =>
    post(s, filler, filler, { opcode: 'send', inline: text('OK'), invalidate: 0x1234_5678 }),
  'send-se-invalidate.ok': (s) =>
    post(s, filler, filler, { opcode: 'send', inline: text('OK'), invalidate: 0x1234_5678, solicited: true }),
  'write.eight-octets': (s) =>
    post(s, {
      opcode: 'rdma-write',
      inline: Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7),
      rkey: 0x1122_3344,
      remoteAddr: 0x1000,
    }),
  'write.zero-length-rtr': (s) => post(s, { opcode: 'rdma-write', rkey: 1, remoteAddr: 0 }),
  'read-request.4096': (s) => {
    const { mr } = s.region(4096, undefined, 0x10000n);
    mr.entry.stag = 0xaabb_cc00; // the sender looks at the entry only
    post(s, { opcode: 'rdma-read', sges: [{ mr }], rkey: 0x1122_3344, remoteAddr: 0x2000 });
  },
  'read-request.zero-length-rtr': (s) => post(s, { opcode: 'rdma-read', rkey: 1, remoteAddr: 0 }),
  'read-response.four-octets': (s) => {
    const { mr } = s.region(4);
    mr.bytes.set([0xde, 0xad, 0xbe, 0xef]);
    s.send(readRequest(1, { size: 4, sourceStag: mr.rkey }));
  },
  'read-response.zero-length': (s) =>
    s.send(readRequest(1, { sinkStag: 0, sinkTo: 0n, size: 0, sourceStag: 1 })),
  'terminate.mpa-crc': (s) => s.send({ ulpdu: write(0, 0n), crcFlip: 1 }),
  'terminate.local-catastrophic': (s) => s.side.qp.modify({ state: 'terminate' }),
  'terminate.invalid-stag-of-write': (s) => s.send(write(0x1122_3344, 0x1000n, pattern(8))),
  'terminate.no-buffer-for-send': (s) => s.send(send(1, text('Hello'))),
  'terminate.invalid-stag-of-read': (s) =>
    s.send(readRequest(1, { size: 4096, sourceStag: 0x1122_3344, sourceTo: 0x2000n })),
  'immediate.plain': (s) => post(s, { opcode: 'immediate', immediate: 0x0011_2233_4455_6677n }),
  'immediate.solicited-event': (s) =>
    post(s, filler, { opcode: 'immediate', immediate: 0x0011_2233_4455_6677n, solicited: true }),
  'atomic-request.fetch-add': (s) => {
    const { mr } = s.region(8);
    post(s, { opcode: 'atomic-fetch-add', sges: [{ mr }], rkey: 0x1122_3344, remoteAddr: 0x2000, add: 5 });
  },
  'atomic-request.compare-swap': (s) => {
    const { mr } = s.region(8);
    const remote = { rkey: 0x1122_3344, remoteAddr: 0x2000 };
    post(
      s,
      { opcode: 'rdma-read', ...remote },
      { opcode: 'atomic-cmp-swap', sges: [{ mr }], ...remote, compare: 5, swap: 7 },
    );
  },
  'atomic-response': (s) => {
    const { mr } = s.region(8);
    new BigUint64Array(mr.bytes.buffer as ArrayBuffer, mr.bytes.byteOffset, 1)[0] = 0x2an;
    s.send(
      untaggedUlpdu(
        { opcode: OP.atomicRequest, qn: 1, msn: 1 },
        encodeAtomicRequest({
          reserved: 0,
          aopcode: 0,
          requestId: 1,
          remoteStag: mr.rkey,
          remoteTo: 0n,
          addOrSwap: 0n,
          addOrSwapMask: 0n,
          compare: 0n,
          compareMask: 0n,
        }),
      ),
    );
  },
  'send.hello-crc-off': (s) => post(s, { opcode: 'send', inline: text('Hello') }),
};

describe('our sender', () => {
  it('there is a recipe for every vector (DDP-020, RDMAP-013)', () => {
    expect(Object.keys(SENT).toSorted()).toEqual([...vectors.keys()].toSorted());
  });

  for (const [name, make] of Object.entries(SENT)) {
    it(`${name} goes out octet by octet as the vector has it (DDP-001/006, RDMAP-001/082)`, async () => {
      const { crc, hex } = vectors.get(name)!;
      const script = await scripted({ crc });
      make(script);
      script.settle();
      const octets = crc ? hex : hex.slice(0, -8); // with CRC off the field may hold anything
      const sent = octetsToHex(script.peer.behind());
      expect(sent.slice(sent.length - hex.length, sent.length - hex.length + octets.length)).toBe(octets);
    });
  }
});

/** Send the vector's FPDU as it is. The MSNs in front of it are used up first. */
async function receive(
  name: string,
  prepare: (script: Script) => void = () => undefined,
  role: 'initiator' | 'responder' = 'initiator',
): Promise<Script> {
  const { crc, hex } = vectors.get(name)!;
  const script = await scripted({ crc, role });
  prepare(script);
  script.settle();
  script.peer.sendRaw(hexToOctets(hex));
  return script.settle();
}

describe('our receiver', () => {
  for (const [name, msn, payload, solicited] of [
    ['send.hello', 1, 'Hello', false],
    ['send.zero-length', 1, '', false],
    ['send-se.abcd', 2, 'ABCD', true],
    ['send.hello-crc-off', 1, 'Hello', false],
  ] as const) {
    it(`takes ${name} (DDP-010, DDP-035, RDMAP-062)`, async () => {
      let inbox: Uint8Array | undefined;
      const script = await receive(name, (s) => {
        inbox = s.receives(msn, 16).mr.bytes;
        for (let i = 1; i < msn; i++) s.send(send(i));
      });
      expect(script.received().at(-1)).toMatchObject({
        status: 'success',
        byteLength: payload.length,
        solicited,
      });
      expect(inbox!.slice(16 * (msn - 1), 16 * (msn - 1) + payload.length)).toEqual(text(payload));
    });
  }

  for (const [name, solicited] of [
    ['send-invalidate.ok', false],
    ['send-se-invalidate.ok', true],
  ] as const) {
    it(`takes ${name} and invalidates what it names (RDMAP-012, RDMAP-066, RDMAP-067)`, async () => {
      let seen = 0;
      const script = await receive(name, (s) => {
        s.receives(3, 16);
        s.send(send(1), send(2));
        const { entry } = s.region(8).mr;
        const { stags } = s.side.qp;
        const find = stags.find.bind(stags);
        // this STag cannot be had from the generator
        stags.find = (stag) => (stag === 0x1234_5678 ? (seen++, entry) : find(stag));
      });
      expect(script.received().at(-1)).toMatchObject({
        status: 'success',
        byteLength: 2,
        solicited,
        invalidatedStag: 0x1234_5678,
      });
      expect(seen).toBeGreaterThan(0);
      expect(script.guarded.at(-1)!.mr.valid).toBe(false);
    });
  }

  it('takes the RTR messages of Linux siw (RDMAP-021, RDMAP-033)', async () => {
    // protocol-notes 3.5
    expect((await receive('write.zero-length-rtr')).side.qp.state).toBe('rts');
    const read = await receive('read-request.zero-length-rtr');
    expect(octetsToHex(read.peer.behind())).toBe(vectors.get('read-response.zero-length')!.hex);
  });

  it('answers read-request.4096 of an unknown STag with its Terminate vector (RDMAP-035)', async () => {
    const script = await receive('read-request.4096');
    expect(octetsToHex(script.peer.behind())).toBe(vectors.get('terminate.invalid-stag-of-read')!.hex);
  });

  it('answers write.eight-octets to an unknown STag with the vector of its Terminate (DDP-045)', async () => {
    const script = await receive('write.eight-octets');
    expect(octetsToHex(script.peer.behind())).toBe(vectors.get('terminate.invalid-stag-of-write')!.hex);
  });

  it('takes read-response.four-octets for a Read to that sink (RDMAP-046)', async () => {
    const script = await receive(
      'read-response.four-octets',
      (s) => {
        const { mr } = s.region(4, undefined, 0x10000n);
        mr.entry.stag = 0xaabb_cc00;
        post(s, { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
      },
      'responder',
    );
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'success' }]);
    expect(octetsToHex(script.guarded[0]!.mr.bytes)).toBe('deadbeef');
  });

  it('takes immediate.plain and atomic-response (EXT-012, EXT-022)', async () => {
    const immediate = await receive('immediate.plain', (s) => s.receives(1, 8));
    expect(immediate.received()).toMatchObject([{ status: 'success', immediate: 0x0011_2233_4455_6677n }]);
    const atomic = await receive(
      'atomic-response',
      (s) => {
        const { mr } = s.region(8);
        post(s, { wrId: 1, opcode: 'atomic-fetch-add', sges: [{ mr }], rkey: 1, remoteAddr: 0, add: 1 });
      },
      'responder',
    );
    expect(atomic.side.sent()).toMatchObject([{ wrId: 1, status: 'success' }]);
  });

  for (const [name, layer, type, code] of [
    ['terminate.mpa-crc', 2, 0, 2],
    ['terminate.local-catastrophic', 0, 0, 0],
    ['terminate.invalid-stag-of-write', 1, 1, 0],
    ['terminate.no-buffer-for-send', 1, 2, 2],
    ['terminate.invalid-stag-of-read', 0, 1, 0],
  ] as const) {
    it(`takes ${name} (RDMAP-079)`, async () => {
      const script = await receive(name);
      expect(script.side.event('terminate')?.terminate).toMatchObject({
        origin: 'remote',
        layer,
        type,
        code,
      });
      expect(script.segments()).toEqual([]);
    });
  }
});
