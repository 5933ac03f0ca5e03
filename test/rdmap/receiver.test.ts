/**
 * The receiver by itself: which response answers which request, what the first message may be, whose STags a
 * message may invalidate. RFC 5040 5, 7.2; RFC 6581 9.2; RFC 7306.
 */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { FINE, TERM } from '../../src/base/terminate-codes.ts';
import { codeOf } from '../../src/base/verdict.ts';
import { OrderedReceiver } from '../../src/ddp/receiver.ts';
import { ACCESS, StagTable, type StagEntry } from '../../src/ddp/stag-table.ts';
import { messagesReceived, noMessages } from '../../src/rdmap/counters.ts';
import { Requests } from '../../src/rdmap/reads.ts';
import { Receiver } from '../../src/rdmap/receiver.ts';
import { ReceiveQueue, SendQueue, WORK, type SendWqe } from '../../src/queues/work.ts';
import { untaggedUlpdu } from '../support/naive/encoder.ts';
import { OP, pattern, readRequest, readResponse, send, write } from './scripted.ts';

const ALL = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC;

class Bench {
  readonly stags = new StagTable(seededRandom(3), 100);
  readonly sq = new SendQueue(8);
  readonly rq = new ReceiveQueue(8);
  readonly requests = new Requests(2, null);
  readonly rights = { read: true, write: true };
  readonly done: unknown[] = [];
  answered = 0;
  readonly receiver: Receiver;
  readonly #ddp: OrderedReceiver;

  constructor() {
    const owner = {
      receiveTaken: () => undefined,
      sendCompleted: () => undefined,
      receiveCompleted: ({
        status,
        byteLength,
        invalidated,
      }: (typeof this.rq)['take'] extends () => infer W ? NonNullable<W> : never) =>
        void this.done.push([status, byteLength, invalidated]),
    };
    const { stags, sq, rq, requests, rights } = this;
    this.receiver = new Receiver({
      version: 1,
      endpoint: {
        stags,
        pdHandle: 1,
        number: 5,
        sq,
        rq,
        rqShared: false,
        rights,
        extensions: true,
        owner,
        maxOrd: 4,
        sinkRight: ACCESS.LOCAL_WRITE,
      },
      requests,
      requester: { requestAnswered: () => void this.answered++ },
      messages: noMessages(),
    });
    this.#ddp = new OrderedReceiver(this.receiver, 1, 1);
  }

  region(octets: number): StagEntry {
    const entry = this.stags.allocate('region', 1);
    entry.bytes = new Uint8Array(octets);
    entry.access = ALL;
    return entry;
  }

  /** A request of ours that is outstanding. */
  asked(kind: 'read' | 'atomic', octets: number, entry = this.region(octets)): SendWqe {
    const wqe = this.sq.peekFree()!;
    wqe.kind = kind === 'read' ? WORK.READ : WORK.ATOMIC;
    if (octets > 0) wqe.sges.add(entry, entry.bytes, 0, octets);
    wqe.msn = 1;
    this.sq.push();
    this.requests.pushOutstanding(wqe);
    return wqe;
  }

  posted(octets: number): void {
    const wqe = this.rq.peekFree()!;
    const entry = this.region(octets);
    wqe.sges.add(entry, entry.bytes, 0, octets);
    this.rq.push();
  }

  take(ulpdu: Uint8Array): number {
    return this.#ddp.handleUlpdu(ulpdu, 0, ulpdu.length);
  }
}

describe('a Read Response', () => {
  it('for no octets has none (RDMAP-048)', () => {
    for (const rtr of [false, true]) {
      const bench = new Bench();
      if (rtr) bench.requests.pushOutstanding(null);
      else bench.asked('read', 0);
      expect(bench.take(readResponse(1, 0n, pattern(1)))).toBe(TERM.DDP_BOUNDS);
      expect(bench.sq.head === 0 || bench.sq.slot(0).status === 'bad-response').toBe(true);
    }
  });

  it('ends the Read that was the RTR message, which is no work of the program (ENH-044)', () => {
    const bench = new Bench();
    bench.requests.pushOutstanding(null);
    bench.asked('read', 8);
    expect(bench.take(readResponse(0, 0n))).toBe(FINE);
    expect([bench.requests.outstanding, bench.answered]).toEqual([1, 1]);
    expect(bench.requests.withMsn(1)).toBe(bench.sq.slot(0));
  });

  it('carries the tagged offset of the request in both halves (RDMAP-049)', () => {
    for (const [to, verdict] of [
      [0x1_ffff_fffcn, FINE],
      [0xffff_fffcn, TERM.DDP_BOUNDS],
      [0x2_ffff_fffcn, TERM.DDP_BOUNDS],
      [0x1_ffff_fffdn, TERM.DDP_BOUNDS],
    ] as const) {
      const bench = new Bench();
      const entry = bench.region(12);
      [entry.baseHi, entry.baseLo] = [1, 0xffff_fffc];
      const wqe = bench.asked('read', 12, entry);
      const response = (at: bigint, octets: number, last: boolean): Uint8Array =>
        readResponse(entry.stag, at, pattern(octets), { last });
      expect(bench.take(response(to, 4, false)), `${to}`).toBe(verdict);
      if (verdict !== FINE) continue;
      expect(bench.take(response(0x2_0000_0000n, 8, true))).toBe(FINE);
      expect([wqe.responded, wqe.status, bench.answered]).toEqual([true, 'success', 1]);
      expect([...entry.bytes]).toEqual([...pattern(4), ...pattern(8)]);
    }
  });

  it('with local invalidate ends well if that does, and else ends the stream (VERBS-102)', () => {
    for (const [status, verdict] of [
      ['success', FINE],
      ['local-invalidate-error', TERM.LOCAL_CATASTROPHIC],
    ] as const) {
      const bench = new Bench();
      const wqe = bench.asked('read', 4);
      let ran = 0;
      const run = (): typeof status => {
        ran++;
        return status;
      };
      wqe.local = { run, operation: { type: 'invalidate' } as never, memory: null };
      expect(bench.take(readResponse(wqe.sges.first.lkey, 0n, pattern(4)))).toBe(verdict);
      expect([ran, wqe.status, wqe.responded]).toEqual([1, status, true]);
      expect(bench.answered).toBe(status === 'success' ? 1 : 0);
    }
  });
});

describe('an Atomic Response', () => {
  const response = (id: number): Uint8Array => {
    const body = new Uint8Array(12);
    new DataView(body.buffer).setUint32(0, id);
    body.set([1, 2, 3, 4, 5, 6, 7, 8], 4);
    return untaggedUlpdu({ opcode: OP.atomicResponse, qn: 3, msn: 1 }, body);
  };

  it('is stored where the request says, if that may still be written (EXT-049, VERBS-049)', () => {
    const bench = new Bench();
    const wqe = bench.asked('atomic', 8);
    expect(bench.take(response(1))).toBe(FINE);
    expect(new DataView(wqe.sges.first.bytes.buffer).getBigUint64(0, true)).toBe(0x0102_0304_0506_0708n);
    for (const lose of [
      (entry: StagEntry) => void (entry.valid = false),
      (entry: StagEntry) => void (entry.access = 0),
    ]) {
      const other = new Bench();
      const late = other.asked('atomic', 8);
      lose(late.sges.first.entry!);
      expect(other.take(response(1))).toBe(TERM.LOCAL_CATASTROPHIC);
      expect([late.status, other.answered, late.sges.first.bytes.every((octet) => octet === 0)]).toEqual([
        ...['local-protection-error', 0, true],
      ]);
    }
  });

  it('with the identifier of another request is an error (EXT-049)', () => {
    const bench = new Bench();
    const wqe = bench.asked('atomic', 8);
    expect(bench.take(response(2))).toBe(TERM.DDP_MSN_RANGE);
    expect(wqe.status).toBe('bad-response');
  });
});

describe('the first message, where an RTR message is expected (ENH-039)', () => {
  it('a Send is taken for the RTR only if it is whole, empty and expected (ENH-041)', () => {
    const completes = (expected: 'send' | 'write' | 'read', ...ulpdus: Uint8Array[]): number => {
      const bench = new Bench();
      bench.posted(8);
      bench.posted(8);
      bench.receiver.expectedRtr = expected;
      for (const ulpdu of ulpdus) expect(bench.take(ulpdu)).toBe(FINE);
      return bench.done.length;
    };
    expect(completes('send', send(1))).toBe(0);
    expect(completes('send', send(1), send(2))).toBe(1);
    expect(completes('send', send(1, pattern(1)))).toBe(1);
    expect(completes('send', send(1, undefined, { last: false }), send(1))).toBe(1);
    expect(completes('write', send(1))).toBe(1);
    expect(completes('read', send(1))).toBe(1);
    expect(completes('send', write(0, 0n), send(1))).toBe(1);
    expect(completes('send', readRequest(1, { sourceStag: 0, size: 0 }), send(1))).toBe(1);
  });

  it('a Read Request is taken for it though the peer may not read, if it comes first and is expected', () => {
    const verdict = (expected: 'send' | 'write' | 'read', ...ulpdus: Uint8Array[]): number => {
      const bench = new Bench();
      bench.posted(8);
      bench.rights.read = false;
      bench.receiver.expectedRtr = expected;
      return ulpdus.map((ulpdu) => bench.take(ulpdu)).at(-1)!;
    };
    const request = (msn = 1, size = 0): Uint8Array => readRequest(msn, { sourceStag: 0, size });
    expect(verdict('read', request())).toBe(FINE);
    expect(verdict('read', request(1, 1))).toBe(TERM.DDP_INVALID_QN);
    expect(verdict('read', request(), request(2))).toBe(TERM.DDP_INVALID_QN);
    expect(verdict('read', send(1), request())).toBe(TERM.DDP_INVALID_QN);
    expect(verdict('send', request())).toBe(TERM.DDP_INVALID_QN);
    expect(verdict('write', request())).toBe(TERM.DDP_INVALID_QN);
  });
});

describe('a Send with Invalidate', () => {
  const invalidate = (bench: Bench, stag: number): unknown => {
    bench.posted(8);
    const code = bench.take(send(1, undefined, { opcode: OP.sendInv, invalidateStag: stag }));
    return code === FINE ? 'done' : codeOf(code);
  };

  it('takes an STag of its own stream or of all streams of the domain (RDMAP-066..068)', () => {
    const outcome = (change: (entry: StagEntry, bench: Bench) => unknown): unknown => {
      const bench = new Bench();
      const entry = bench.region(8);
      change(entry, bench);
      const result = invalidate(bench, entry.stag);
      expect(entry.valid).toBe(result !== 'done');
      if (result === 'done') expect(bench.done).toEqual([['success', 0, entry.stag]]);
      return result;
    };
    expect(outcome(() => 0)).toBe('done');
    expect(outcome((entry) => (entry.qp = 5))).toBe('done');
    expect(outcome((entry) => (entry.qp = 6))).toBe(TERM.RDMAP_CANNOT_INVALIDATE);
    expect(outcome((entry) => (entry.shared = true))).toBe(TERM.RDMAP_CANNOT_INVALIDATE);
    expect(outcome((entry) => (entry.windows = 1))).toBe(TERM.RDMAP_CANNOT_INVALIDATE);
    expect(outcome((entry) => (entry.access = ACCESS.LOCAL_WRITE))).toBe(TERM.RDMAP_ACCESS);
    for (const right of [ACCESS.REMOTE_READ, ACCESS.REMOTE_WRITE, ACCESS.REMOTE_ATOMIC])
      expect(outcome((entry) => (entry.access = right))).toBe('done');
    const rights = (read: boolean, write: boolean): unknown =>
      outcome((_, bench) => Object.assign(bench.rights, { read, write }));
    expect([rights(true, false), rights(false, true)]).toEqual(['done', 'done']);
    expect(rights(false, false)).toBe(TERM.RDMAP_ACCESS);
  });
});

describe('counts of what came', () => {
  it('are of octets for memory or program, and of segments', () => {
    const bench = new Bench();
    bench.posted(16);
    const entry = bench.region(16);
    const counted = (): number[] => [bench.receiver.segments, bench.receiver.payloadOctets];
    bench.take(write(entry.stag, 0n, pattern(16)));
    expect(counted()).toEqual([1, 16]);
    bench.take(send(1, pattern(3), { last: false }));
    // A message is counted with its last segment.
    expect(messagesReceived(bench.receiver.messages)).toMatchObject({ writes: 1, sends: 0 });
    bench.take(send(1, pattern(4), { mo: 3 }));
    expect(counted()).toEqual([3, 23]);
    expect(messagesReceived(bench.receiver.messages)).toMatchObject({ writes: 1, sends: 1 });
    bench.take(readRequest(1, { sourceStag: entry.stag, size: 4 }));
    expect(counted()).toEqual([4, 23]);
    bench.asked('read', 4, entry);
    bench.take(readResponse(entry.stag, 0n, pattern(4)));
    expect(counted()).toEqual([5, 27]);
  });
});
