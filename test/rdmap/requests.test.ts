/**
 * Requests of both sides: their queue, their bodies, atomics, and how far the peer is taken to be.
 */
import { describe, expect, it, vi } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { StagTable } from '../../src/ddp/stag-table.ts';
import { executeAtomic } from '../../src/rdmap/atomics.ts';
import { putReadRequest } from '../../src/rdmap/bodies.ts';
import { ReadBound } from '../../src/rdmap/read-bound.ts';
import { Requests } from '../../src/rdmap/reads.ts';
import { SendQueue, type SendWqe } from '../../src/queues/work.ts';

const wqe = (): SendWqe => new SendQueue(1).peekFree()!;

describe('requests of the peer', () => {
  it('are answered in the order in which they came, whatever is answered meanwhile', () => {
    const requests = new Requests(3, null);
    const push = (size: number): void => {
      requests.blank.size = size;
      requests.pushInbound();
    };
    const shift = (): number => {
      const { size } = requests.firstInbound;
      requests.shiftInbound();
      return size;
    };
    push(1);
    push(2);
    expect([shift(), requests.inbound, requests.full]).toEqual([1, 1, false]);
    push(3);
    push(4);
    expect([requests.inbound, requests.full]).toEqual([3, true]);
    expect([shift(), shift(), shift(), requests.inbound]).toEqual([2, 3, 4, 0]);
    push(5);
    expect([shift(), requests.inbound]).toEqual([5, 0]);
  });
});

describe('the header of a request that is answered in part', () => {
  it('asks for the rest of it, at both places (RDMAP-086)', () => {
    const { blank } = new Requests(1, null);
    blank.headers.set(Array.from({ length: 46 }, (_, i) => i));
    [blank.sinkHi, blank.sinkLo, blank.sourceHi, blank.sourceLo] = [1, 0xffff_fff0, 5, 0xffff_ffff];
    [blank.size, blank.sent] = [100, 16];
    const header = blank.advancedHeader();
    const view = new DataView(header.buffer, header.byteOffset, header.length);
    expect(header.length).toBe(28);
    const words = [4, 8, 12, 20, 24].map((at) => view.getUint32(at));
    expect(words).toEqual([2, 0, 84, 6, 15]);
    expect([...header.subarray(0, 4), ...header.subarray(16, 20)]).toEqual([18, 19, 20, 21, 34, 35, 36, 37]);
    expect([...blank.ddpHeader()]).toEqual(Array.from({ length: 18 }, (_, i) => i));
  });
});

describe('a request of ours', () => {
  it('is found by its MSN behind the Read that was the RTR message', () => {
    const requests = new Requests(1, null);
    const [one, two] = [wqe(), wqe()];
    [one.msn, two.msn] = [5, 6];
    for (const each of [null, one, two]) requests.pushOutstanding(each);
    expect([requests.withMsn(6), requests.withMsn(5), requests.withMsn(0)]).toEqual([two, one, null]);
  });

  it('names both halves of the tagged offsets of sink and source (RDMAP-029)', () => {
    const stags = new StagTable(seededRandom(1), 10);
    const entry = stags.allocate('region', 1);
    entry.bytes = new Uint8Array(64);
    [entry.baseHi, entry.baseLo] = [0x1122_3344, 0xffff_fff8];
    const read = wqe();
    read.sges.add(entry, entry.bytes, 16, 40);
    [read.stag, read.toHi, read.toLo] = [0x99aa_bbcc, 0x0102_0304, 0x0506_0708];
    const view = new DataView(new ArrayBuffer(32));
    putReadRequest(view, 2, read);
    const words = Array.from({ length: 7 }, (_, i) => view.getUint32(2 + 4 * i));
    expect(words).toEqual([entry.stag, 0x1122_3345, 8, 40, 0x99aa_bbcc, 0x0102_0304, 0x0506_0708]);
    const none = wqe();
    putReadRequest(view, 2, none);
    expect(Array.from({ length: 7 }, (_, i) => view.getUint32(2 + 4 * i))).toEqual([0, 0, 0, 0, 0, 0, 0]);
  });
});

describe('an atomic operation', () => {
  const add = { add: true, data: 5n, mask: 0n, compare: 0n, compareMask: 0n };
  for (const shared of [false, true]) {
    const title = shared ? 'shared memory is atomic towards other threads' : 'other memory is plain';
    it(`on ${title} (EXT-036)`, () => {
      const exchange = vi.spyOn(Atomics, 'compareExchange');
      const buffer = shared ? new SharedArrayBuffer(64) : new ArrayBuffer(64);
      const bytes = new Uint8Array(buffer, 16, 40);
      const words = new BigUint64Array(buffer);
      words.set([1n, 2n, 3n, 40n, 5n, 6n, 7n, 8n]);
      expect(executeAtomic(bytes, 8, add)).toBe(40n);
      expect([...words]).toEqual([1n, 2n, 3n, 45n, 5n, 6n, 7n, 8n]);
      expect(exchange.mock.calls.length).toBe(shared ? 1 : 0);
      exchange.mockRestore();
    });
  }

  it('on shared memory begins again where another thread was quicker (EXT-036)', () => {
    const words = new BigUint64Array(new SharedArrayBuffer(8));
    words[0] = 10n;
    const original = Atomics.compareExchange.bind(Atomics);
    let calls = 0;
    const exchange = vi.spyOn(Atomics, 'compareExchange').mockImplementation(((...args: never[]) => {
      // What another thread does between the load and the exchange.
      if (calls++ === 0) words[0] = 100n;
      return (original as (...of: never[]) => unknown)(...args);
    }) as never);
    expect(executeAtomic(new Uint8Array(words.buffer), 0, add)).toBe(100n);
    exchange.mockRestore();
    expect([words[0], calls]).toEqual([105n, 2]);
  });
});

describe('how far the peer is (RDMAP-051)', () => {
  const NEAR = 524_288;
  const LATE_MS = 2;

  /** Answers that take as long as each says, one after another. */
  function after(times: readonly number[], asked = 0): number {
    const clock = { now: 0 };
    const bound = new ReadBound(clock);
    for (const ms of times) {
      const request = wqe();
      bound.requested(request, asked);
      clock.now += ms;
      bound.answered(request);
    }
    return bound.octets;
  }

  const late = (n: number, ms = LATE_MS): number[] => Array.from({ length: n }, () => ms);

  it('is far after eight late answers, and near for good after one that is not', () => {
    expect([after([]), after(late(7)), after(late(8)), after(late(20))]).toEqual([
      NEAR,
      NEAR,
      Infinity,
      Infinity,
    ]);
    expect(after([...late(7), 1.9, ...late(20)])).toBe(NEAR);
    expect(after([1.9, ...late(20)])).toBe(NEAR);
    expect(after([...late(8), 0, 0])).toBe(Infinity);
  });

  it('allows a millisecond more for each megabyte that was asked for', () => {
    expect([after(late(8, 2.9), 1_000_000), after(late(8, 3), 1_000_000)]).toEqual([NEAR, Infinity]);
  });

  it('is told by one request at a time', () => {
    const clock = { now: 0 };
    const bound = new ReadBound(clock);
    for (let i = 0; i < 8; i++) {
      const [timed, other] = [wqe(), wqe()];
      bound.requested(timed, 0);
      clock.now += 1.5;
      bound.requested(other, 0);
      clock.now += 0.1;
      // In time, but not the one that is timed.
      bound.answered(other);
      expect(bound.octets).toBe(NEAR);
      clock.now += 1;
      bound.answered(timed);
    }
    expect(bound.octets).toBe(Infinity);
  });
});
