// The Terminate codes that the verbs draft names for faults of the peer, from a scripted peer. Verbs draft
// 8.3.2, 8.3.3.
import { describe, expect, it } from 'vitest';
import {
  encodeAtomicRequest,
  encodeReadRequest,
  taggedUlpdu,
  untaggedUlpdu,
} from '../support/naive/encoder.ts';
import {
  PEER_ENHANCED,
  rawInitiatorUp,
  type RawBench,
  type RawOptions,
  type RawPeer,
} from '../support/raw-peer.ts';
import { LOCAL_WRITE, pattern, REMOTE_READ, REMOTE_WRITE, terminateOf } from './support.ts';

const OP = {
  write: 0,
  readRequest: 1,
  readResponse: 2,
  send: 3,
  immediate: 8,
  atomicRequest: 10,
  atomicResponse: 11,
} as const;

/** The Terminate that these ULPDUs provoke; the connection must be gone afterwards. */
async function provoke(ulpdus: (bench: RawBench) => Uint8Array[], options: RawOptions = {}): Promise<string> {
  const { bench, peer }: { bench: RawBench; peer: RawPeer } = await rawInitiatorUp(options);
  peer.sendFpdus([taggedUlpdu({ opcode: OP.write, stag: 0, to: 0n }), ...ulpdus(bench)]);
  bench.run();
  expect(peer.problems()).toEqual([]);
  expect(bench.side.qp.state).toBe('error');
  const [first, ...more] = peer.terminates();
  expect(more).toEqual([]);
  return first ?? 'none';
}

const MAX = 2n ** 64n - 1n;
const read = (stag: number, to: bigint, size = 8, msn = 1): Uint8Array =>
  untaggedUlpdu(
    { opcode: OP.readRequest, qn: 1, msn },
    encodeReadRequest({ sinkStag: 1, sinkTo: 0n, size, sourceStag: stag, sourceTo: to }),
  );
const atomic = (stag: number, msn = 1): Uint8Array =>
  untaggedUlpdu(
    { opcode: OP.atomicRequest, qn: 1, msn },
    encodeAtomicRequest({
      reserved: 0,
      aopcode: 0,
      requestId: msn,
      remoteStag: stag,
      remoteTo: 0n,
      addOrSwap: 1n,
      addOrSwapMask: 0n,
      compare: 0n,
      compareMask: 0n,
    }),
  );
const send = (msn: number, octets = 0): Uint8Array =>
  untaggedUlpdu({ opcode: OP.send, qn: 0, msn }, pattern(octets));
const write = (stag: number, to: bigint, octets = 8): Uint8Array =>
  taggedUlpdu({ opcode: OP.write, stag, to }, pattern(octets));

describe('Terminate codes', () => {
  it('a segment shorter than its header: 1/0/00 (VERBS-171)', async () => {
    expect(await provoke(() => [write(1, 0n, 0).slice(0, 13)])).toBe('1/0/00');
    expect(await provoke(() => [send(1).slice(0, 17)])).toBe('1/0/00');
  });

  it('versions and opcode (VERBS-172)', async () => {
    expect(await provoke(() => [untaggedUlpdu({ opcode: OP.send, qn: 0, msn: 1, dv: 2 })])).toBe('1/2/06');
    expect(await provoke(() => [taggedUlpdu({ opcode: OP.write, stag: 1, to: 0n, dv: 3 })])).toBe('1/1/04');
    expect(await provoke(() => [untaggedUlpdu({ opcode: OP.send, qn: 0, msn: 1, rv: 2 })])).toBe('0/2/05');
    expect(await provoke(() => [untaggedUlpdu({ opcode: 13, qn: 0, msn: 1 })])).toBe('0/2/06');
  });

  it('queue number, Reads not enabled, missing L (VERBS-173, VERBS-075)', async () => {
    expect(await provoke(() => [untaggedUlpdu({ opcode: OP.send, qn: 9, msn: 1 })])).toBe('1/2/01');
    const options = { side: { qp: { inboundRead: false } } };
    expect(await provoke(({ side }) => [read(side.register(8).rkey, 0n)], options)).toBe('1/2/01');
    const open = encodeReadRequest({ sinkStag: 1, sinkTo: 0n, size: 8, sourceStag: 1, sourceTo: 0n });
    expect(
      await provoke(() => [untaggedUlpdu({ opcode: OP.readRequest, qn: 1, msn: 1, last: false }, open)]),
    ).toBe('0/2/07');
  });

  it('an expected RTR lets in one Read, of no octets, and no Atomic (VERBS-075/142, SEC-016)', async () => {
    const rows: readonly (readonly [string, (rkey: number) => Uint8Array[]])[] = [
      ['an Atomic', (rkey) => [atomic(rkey)]],
      ['a Read of eight octets', (rkey) => [read(rkey, 0n)]],
      ['an Atomic after a Write', (rkey) => [write(0, 0n, 0), atomic(rkey)]],
      ['an Atomic after the RTR', (rkey) => [read(0, 0n, 0), atomic(rkey, 2)]],
      ['a second Read', () => [read(0, 0n, 0), read(0, 0n, 0, 2)]],
    ];
    for (const [name, ulpdus] of rows) {
      const { bench, peer } = await rawInitiatorUp(
        { side: { qp: { inboundRead: false } } },
        { enhanced: { ...PEER_ENHANCED, c: false } },
      );
      expect(peer.startup().frame.enhanced, name).toMatchObject({ a: true, d: true });
      const mr = bench.side.register(8);
      peer.sendFpdus(ulpdus(mr.rkey));
      bench.settle();
      expect(peer.terminates(), name).toEqual(['1/2/01']);
      expect(
        peer.segments().filter(({ opcode }) => opcode === OP.atomicResponse),
        name,
      ).toEqual([]);
      expect(mr.bytes, name).toEqual(new Uint8Array(8));
    }
  });

  it('tagged faults: STag, bounds, rights, domain, wrap (VERBS-174)', async () => {
    expect(await provoke(() => [write(0x77, 0n)])).toBe('1/1/00');
    expect(await provoke(({ side }) => [write(side.register(8).rkey, 1n)])).toBe('1/1/01');
    expect(await provoke(({ side }) => [write(side.register(8, LOCAL_WRITE | REMOTE_READ).rkey, 0n)])).toBe(
      '1/1/02',
    );
    const foreign = ({ side }: RawBench): number =>
      side.device.allocatePd().registerMemory(new Uint8Array(8), LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)
        .rkey;
    expect(await provoke((bench) => [write(foreign(bench), 0n)])).toBe('1/1/02');
    expect(await provoke(({ side }) => [write(side.register(8, undefined, MAX - 7n).rkey, MAX - 3n)])).toBe(
      '1/1/03',
    );
  });

  it("a gap or a repetition in the receive queue's MSN; no receive posted (VERBS-175)", async () => {
    expect(
      await provoke(({ side }) => {
        side.qp.postRecv([{}, {}]);
        return [send(1), send(3)];
      }),
    ).toBe('1/2/03');
    expect(
      await provoke(({ side }) => {
        side.qp.postRecv([{}, {}]);
        return [send(1), send(1)];
      }),
    ).toBe('1/2/03');
    expect(await provoke(() => [send(1)])).toBe('1/2/02');
  });

  it('the read queue: STag, bounds, rights, domain, wrap, MSN (VERBS-176)', async () => {
    expect(await provoke(() => [read(0x77, 0n)])).toBe('0/1/00');
    expect(await provoke(({ side }) => [read(side.register(8).rkey, 1n)])).toBe('0/1/01');
    expect(await provoke(({ side }) => [read(side.register(8, LOCAL_WRITE | REMOTE_WRITE).rkey, 0n)])).toBe(
      '0/1/02',
    );
    expect(
      await provoke(({ side }) => [
        read(side.device.allocatePd().registerMemory(new Uint8Array(8), REMOTE_READ).rkey, 0n),
      ]),
    ).toBe('0/1/03');
    expect(await provoke(({ side }) => [read(side.register(8, undefined, MAX - 7n).rkey, MAX - 3n)])).toBe(
      '0/1/04',
    );
    expect(await provoke(({ side }) => [read(side.register(8).rkey, 0n, 8, 2)])).toBe('1/2/03');
  });

  it('one Read more than IRD ends that stream and no other (VERBS-074, SEC-013/014/026)', async () => {
    const { bench, peer } = await rawInitiatorUp({ param: { responderResources: 2 } });
    const { side } = bench;
    peer.sendFpdus([taggedUlpdu({ opcode: OP.write, stag: 0, to: 0n })]);
    bench.settle();
    const first = side.qp;
    const second = bench.dial();
    second.request({ revision: 1 });
    bench.settle();
    const source = side.register(200_000);
    expect(first.query().ird).toBe(2);
    // The peer stops reading, so that nothing can be answered completely, and asks for three.
    peer.pause();
    peer.sendFpdus([1, 2, 3, 4, 5, 6].map((msn) => read(source.rkey, 0n, 200_000, msn)));
    bench.settle();
    peer.resume();
    bench.settle(200);
    expect(terminateOf(first)).toBe('1/2/03');
    const other = [...side.device.objects.qp].at(-1)!;
    second.sendFpdus([read(source.rkey, 0n, 8)]);
    bench.settle();
    expect(other.state).toBe('rts');
    expect(second.segments().map((segment) => segment.opcode)).toEqual([OP.readResponse]);
  });

  it('without RFC 7306 its opcodes are unexpected (EXT-001, EXT-005)', async () => {
    for (const [opcode, qn, octets] of [
      [8, 0, 8],
      [9, 0, 8],
      [10, 1, 52],
      [11, 3, 12],
    ] as const) {
      const ulpdu = untaggedUlpdu({ opcode, qn, msn: 1 }, new Uint8Array(octets));
      expect(
        await provoke(
          ({ side }) => {
            side.qp.postRecv({});
            return [ulpdu];
          },
          { side: { qp: { extensions: false } } },
        ),
        `opcode ${opcode}`,
      ).toBe('0/2/06');
    }
  });

  it('a guess at an STag costs the connection, so there is no second guess on it (SEC-034)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const mr = bench.side.register(8);
    peer.sendFpdus([write((mr.rkey + 1) >>> 0, 0n), write(mr.rkey, 0n)]);
    bench.run();
    expect([peer.terminates(), bench.side.qp.state, mr.bytes[0]]).toEqual([['1/1/00'], 'error', 0]);
  });

  it('a flood of zero-length messages costs its own stream only, and is counted (SEC-032)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const second = bench.dial();
    second.request({ revision: 1 });
    bench.settle();
    const flooded = bench.side.qp;
    const other = [...bench.side.device.objects.qp].at(-1)!;
    other.postRecv({ wrId: 1 });
    for (let i = 0; i < 20; i++)
      peer.sendFpdus(Array.from({ length: 50 }, () => taggedUlpdu({ opcode: OP.write, stag: 0, to: 0n })));
    second.sendFpdus([send(1)]);
    bench.settle();
    expect(bench.side.received()).toMatchObject([{ wrId: 1, status: 'success' }]);
    expect([flooded.counters()!.fpdusIn, flooded.counters()!.payloadIn]).toEqual([1000, 0]);
    flooded.modify({ state: 'error' });
    bench.settle();
    expect([peer.ending, other.state]).toEqual(['reset', 'rts']);
  });
});
