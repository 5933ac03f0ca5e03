/**
 * RDMAP-051 with an automatic ORD: how much Reads may ask for together, by the time that the first answers
 * take.
 */
import { describe, expect, it } from 'vitest';
import { taggedUlpdu } from '../support/naive/encoder.ts';
import { rawResponderUp, type RawOptions } from '../support/raw-peer.ts';

const KIB = 1024;
const SEGMENT = 60_000;

/**
 * Reads of `size` octets, one after another, to a peer that serves 64 and answers each after some
 * milliseconds; then a hundred at a time. How many of those go out?
 */
function outstandingBehind(
  delays: readonly number[],
  { size = 64 * KIB, ...options }: RawOptions & { size?: number } = {},
): number {
  const { bench, peer } = rawResponderUp(
    { network: { latency: 0 }, policy: { silentPeerNudge: 0, peerToPeer: false }, ...options },
    {
      enhanced: { a: false, b: false, c: false, d: false, ird: 64, ord: 4 },
    },
  );
  const mr = bench.side.register(size);
  const read = { opcode: 'rdma-read', sges: [{ mr }], rkey: 7, remoteAddr: 0 } as const;
  delays.forEach((delay, wrId) => {
    bench.side.qp.postSend({ ...read, wrId });
    bench.settle(delay);
    expect(peer.segments().length).toBe(wrId + 1);
    const answer: Uint8Array[] = [];
    for (let to = 0; to < size; to += SEGMENT) {
      const octets = Math.min(SEGMENT, size - to);
      answer.push(
        taggedUlpdu(
          { opcode: 2, stag: mr.rkey, to: BigInt(to), last: to + octets === size },
          new Uint8Array(octets),
        ),
      );
    }
    peer.sendFpdus(answer);
    bench.settle(0);
    expect(bench.side.sent()).toMatchObject([{ wrId, status: 'success' }]);
  });
  for (let wrId = 0; wrId < 100; wrId++) bench.side.qp.postSend({ ...read, wrId });
  bench.settle(0);
  return peer.segments().length - delays.length;
}

const times = (n: number, ms: number): number[] => Array.from({ length: n }, () => ms);

describe('an automatic ORD goes beyond 16 Reads of 64 KiB (RDMAP-051)', () => {
  it.each<readonly [string, readonly number[], number]>([
    ['never before an answer', [], 16],
    ['never behind quick answers', times(20, 1), 16],
    ['not behind seven late ones', times(7, 10), 16],
    ['behind eight late ones', times(8, 10), 64],
    ['behind eight that are a little late', times(8, 2.1), 64],
    ['not behind eight that are just not late', times(8, 2.06), 16],
    ['never behind a quick one among the first eight', [...times(7, 10), 1, ...times(20, 10)], 16],
    ['whatever comes behind those eight', [...times(8, 10), ...times(20, 1)], 64],
  ])('%s', (_, delays, expected) => {
    expect(outstandingBehind(delays)).toBe(expected);
  });

  it.each([
    [3, 16],
    [3.1, 64],
  ])('an answer of a MiB has a millisecond more to come in: %s ms', (ms, expected) => {
    expect(outstandingBehind(times(8, ms), { size: 1 << 20 })).toBe(expected);
  });

  it('at once if the program has named the number', () => {
    expect(outstandingBehind([], { param: { initiatorDepth: 64 } })).toBe(64);
    expect(outstandingBehind(times(8, 10), { param: { initiatorDepth: 20 } })).toBe(20);
  });
});

it('of Reads that are under way together one at a time is timed (RDMAP-051)', () => {
  const latency = 4;
  const { bench, peer } = rawResponderUp(
    { network: { latency }, policy: { silentPeerNudge: 0, peerToPeer: false } },
    {
      enhanced: { a: false, b: false, c: false, d: false, ird: 64, ord: 4 },
    },
  );
  const mr = bench.side.register(50_000);
  const post = (): void =>
    void bench.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 7, remoteAddr: 0 });
  const answer = (reads: number): void => {
    const one = taggedUlpdu({ opcode: 2, stag: mr.rkey, to: 0n }, new Uint8Array(50_000));
    peer.sendFpdus(Array.from({ length: reads }, () => one));
    bench.settle(20 * latency); // the network carries little at a time
  };
  for (let n = 0; n < 200; n++) post();
  // Sixteen at a time ask for 800,000 octets: late is what takes longer than 2.8 ms, and there and back are
  // 8.
  const seen: number[] = [];
  for (let n = 0; n < 9; n++) {
    bench.settle();
    seen.push(peer.segments().length - 16 * n);
    answer(16);
  }
  expect(seen).toEqual([...Array.from({ length: 8 }, () => 16), 64]);
});
