/**
 * Scatter/gather lists, local work and the rings of both queues by themselves. Verbs draft 7.9, 8.1, 8.2.
 */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { ACCESS, StagTable, type StagEntry } from '../../src/ddp/stag-table.ts';
import { gather, octetsBefore, piecesAt, pieceWith } from '../../src/queues/gather.ts';
import {
  executeLocal,
  repeatLocal,
  type LocalBind,
  type LocalRegister,
} from '../../src/queues/local-work.ts';
import { ReceiveQueue, SendQueue, SgeList } from '../../src/queues/work.ts';

const stags = new StagTable(seededRandom(1), 1000);

function region(octets: number, access: number = ACCESS.LOCAL_WRITE | ACCESS.MW_BIND): StagEntry {
  const entry = stags.allocate('region', 1);
  entry.bytes = Uint8Array.from({ length: octets }, (_, i) => i);
  entry.access = access;
  entry.zeroBased = false;
  return entry;
}

describe('a gather list', () => {
  const lengths = [3, 0, 5, 4];
  const list = (inline: boolean): { sges: SgeList; octets: number[] } => {
    const sges = new SgeList();
    const octets: number[] = [];
    for (const [i, length] of lengths.entries()) {
      const entry = region(40);
      const offset = 2 + 7 * i;
      sges.add(inline ? null : entry, entry.bytes, offset, length);
      octets.push(...entry.bytes.subarray(offset, offset + length));
    }
    return { sges, octets };
  };

  it('gives its octets from any position, of regions and of inline data alike', () => {
    for (const inline of [false, true]) {
      const { sges, octets } = list(inline);
      for (let from = 0; from < octets.length; from++) {
        for (let length = 0; from + length <= octets.length; length++) {
          const bytes = new Uint8Array(20).fill(0xee);
          gather(sges, from, { bytes, view: new DataView(bytes.buffer) }, 3, length);
          const expected = new Uint8Array(20).fill(0xee);
          expected.set(octets.slice(from, from + length), 3);
          expect(bytes).toEqual(expected);
        }
      }
    }
  });

  it('names the element that holds a piece whole, and the octets in front of it', () => {
    const { sges } = list(false);
    const owner = lengths.flatMap((length, i) => Array.from({ length }, () => i));
    for (let from = 0; from < owner.length; from++) {
      for (let length = 1; from + length <= owner.length; length++) {
        const whole = owner[from] === owner[from + length - 1];
        expect(pieceWith(sges, from, length), `${length} at ${from}`).toBe(whole ? owner[from] : -1);
        const pieces = new Set(owner.slice(from, from + length)).size;
        expect(piecesAt(sges, from, length), `${length} at ${from}`).toBe(pieces);
      }
    }
    expect([0, 1, 2, 3].map((i) => octetsBefore(sges, i))).toEqual([0, 3, 3, 8]);
  });

  it('is usable while every element is what it was posted as (VERBS-049, VERBS-169)', () => {
    const changes: ((entry: StagEntry) => void)[] = [
      (entry) => stags.invalidate(entry),
      (entry) => stags.rekey(entry),
      (entry) => void (entry.bytes = entry.bytes.slice()),
      (entry) => void (entry.access = 0),
      (entry) => void structuredClone(null, { transfer: [entry.bytes.buffer as ArrayBuffer] }),
    ];
    for (const change of changes) {
      const sges = new SgeList();
      const [one, other] = [region(8), region(8)];
      sges.add(one, one.bytes, 0, 8);
      sges.add(other, other.bytes, 4, 4);
      expect(sges.usable(ACCESS.LOCAL_WRITE)).toBe(true);
      change(other);
      expect(sges.usable(ACCESS.LOCAL_WRITE)).toBe(false);
    }
  });
});

describe('local work', () => {
  const register = (entry: StagEntry, bytes: Uint8Array): LocalRegister => ({
    type: 'register',
    entry,
    key: 0x77,
    bytes,
    access: ACCESS.REMOTE_READ,
    baseHi: 3,
    baseLo: 4,
    zeroBased: false,
  });
  const bind = (entry: StagEntry, over: StagEntry, fields: Partial<LocalBind> = {}): LocalBind => ({
    type: 'bind',
    entry,
    region: over,
    regionStag: over.stag,
    key: 0x66,
    offset: 2,
    length: 6,
    access: ACCESS.REMOTE_READ,
    baseHi: 1,
    baseLo: 2,
    qp: 9,
    binder: { boundWindows: 0 },
    ...fields,
  });
  const window = (): StagEntry => {
    const entry = stags.allocate('window', 1);
    entry.valid = false;
    return entry;
  };

  it('binds a window to a part of a region that allows it, and to nothing else (VERBS-163)', () => {
    const outcome = (
      over: StagEntry,
      fields: Partial<LocalBind> = {},
      prepare = (): void => undefined,
    ): unknown => {
      const entry = window();
      const operation = bind(entry, over, fields);
      prepare();
      const status = executeLocal(stags, operation);
      expect(entry.valid).toBe(status === 'success');
      if (status !== 'success') return status;
      expect([over.windows, operation.binder.boundWindows]).toEqual([1, 1]);
      const { stag, qp, access, baseHi, baseLo } = entry;
      expect([stag & 0xff, qp, access, baseHi, baseLo]).toEqual([0x66, 9, operation.access, 1, 2]);
      return [...entry.bytes];
    };
    const rights = ACCESS.MW_BIND | ACCESS.LOCAL_WRITE;
    expect(outcome(region(8, rights))).toEqual([2, 3, 4, 5, 6, 7]);
    expect(outcome(region(8, rights), { access: ACCESS.REMOTE_WRITE })).toEqual([2, 3, 4, 5, 6, 7]);
    expect(outcome(region(8, ACCESS.MW_BIND))).toEqual([2, 3, 4, 5, 6, 7]);
    for (const access of [ACCESS.REMOTE_WRITE, ACCESS.REMOTE_ATOMIC])
      expect(outcome(region(8, ACCESS.MW_BIND), { access })).toBe('mw-bind-error');
    expect(outcome(region(8, ACCESS.LOCAL_WRITE))).toBe('mw-bind-error');
    expect(outcome(region(8, rights), { length: 7 })).toBe('mw-bind-error');
    expect(outcome(region(8, rights), { offset: 8, length: 1 })).toBe('mw-bind-error');
    for (const spoil of [
      (over: StagEntry) => stags.rekey(over),
      (over: StagEntry) => stags.invalidate(over),
      (over: StagEntry) => void (over.zeroBased = true),
    ]) {
      const over = region(8, rights);
      expect(outcome(over, {}, () => spoil(over))).toBe('mw-bind-error');
    }
  });

  it('is judged by what holds when its turn comes (VERBS-154, VERBS-166, VERBS-169)', () => {
    const invalidate = (entry: StagEntry, change: (entry: StagEntry) => unknown): unknown => {
      const operation = { type: 'invalidate', entry, stag: entry.stag, qp: 9 } as const;
      change(entry);
      return executeLocal(stags, operation);
    };
    expect(invalidate(region(8), () => 0)).toBe('success');
    expect(invalidate(region(8), (entry) => stags.invalidate(entry))).toBe('success');
    expect(invalidate(region(8), (entry) => stags.rekey(entry))).toBe('local-invalidate-error');
    expect(invalidate(region(8), (entry) => stags.free(entry))).toBe('local-invalidate-error');
    expect(invalidate(region(8), (entry) => (entry.shared = true))).toBe('local-invalidate-error');
    expect(invalidate(region(8), (entry) => (entry.windows = 1))).toBe('local-invalidate-error');
    const tied = (qp: number): StagEntry => {
      const entry = window();
      [entry.valid, entry.qp] = [true, qp];
      return entry;
    };
    expect(invalidate(tied(9), () => 0)).toBe('success');
    expect(invalidate(tied(8), () => 0)).toBe('local-invalidate-error');
    const bytes = new Uint8Array(4);
    expect(executeLocal(stags, register(region(8), bytes))).toBe('fast-register-error');
  });

  it('that another thread has done is repeated, unless the entry is in use again here', () => {
    const bytes = new Uint8Array(4);
    const fresh = region(8);
    stags.invalidate(fresh);
    repeatLocal(stags, register(fresh, bytes));
    expect(fresh).toMatchObject({ valid: true, baseHi: 3, baseLo: 4, access: ACCESS.REMOTE_READ });
    expect([fresh.stag & 0xff, fresh.bytes, fresh.zeroBased]).toEqual([0x77, bytes, false]);
    const used = region(8);
    const { stag } = used;
    repeatLocal(stags, register(used, bytes));
    expect([used.stag, used.bytes.length]).toEqual([stag, 8]);
    const over = region(8);
    const tied = window();
    repeatLocal(stags, bind(tied, over));
    expect([tied.valid, tied.region, tied.stag & 0xff, over.windows]).toEqual([true, over, 0x66, 1]);
    // Its region has ended meanwhile, and with it the window; the key has been used all the same.
    const gone = region(8);
    const late = window();
    const operation = bind(late, gone);
    stags.invalidate(gone);
    repeatLocal(stags, operation);
    expect([late.valid, late.region, late.stag & 0xff]).toEqual([false, null, 0x66]);
  });
});

describe('the send queue', () => {
  it('keeps its entries in order when its depth changes, and refuses one that does not hold them', () => {
    const sq = new SendQueue(4);
    expect([sq.resize(2), sq.depth, sq.room]).toEqual([true, 2, 2]);
    expect(sq.resize(5)).toBe(true);
    const post = (wrId: number): void => {
      sq.peekFree()!.wrId = wrId;
      sq.push();
    };
    // Beyond the places of every ring below, where counter and place differ.
    for (let i = 0; i < 77; i++) {
      post(i);
      sq.next++;
      sq.complete(true);
    }
    const base = 77;
    for (let i = 0; i < 5; i++) post(i);
    expect([sq.peekFree(), sq.room, sq.outstanding]).toEqual([null, 0, 5]);
    sq.complete(true);
    sq.complete(true);
    for (let i = 5; i < 7; i++) post(i);
    expect([sq.resize(4), sq.depth, sq.room]).toEqual([false, 5, 0]);
    for (const depth of [5, 64, 5, 17]) {
      expect([sq.resize(depth), sq.depth, sq.room]).toEqual([true, depth, depth - 5]);
      expect([2, 3, 4, 5, 6].map((at) => sq.slot(base + at).wrId)).toEqual([2, 3, 4, 5, 6]);
    }
    for (let i = 7; i < 19; i++) post(i);
    expect(sq.peekFree()).toBeNull();
    for (let i = 2; i < 19; i++) {
      expect(sq.slot(sq.tail).wrId).toBe(i);
      sq.complete(true);
    }
    expect(sq.room).toBe(17);
  });

  it('makes an entry blank before each use, and keeps its inline memory (VERBS-085)', () => {
    const sq = new SendQueue(1);
    const wqe = sq.peekFree()!;
    const blank = {
      status: 'success',
      signaled: true,
      fence: false,
      immediate: 0,
      solicited: false,
      responded: false,
      polled: false,
      local: null,
      msn: 0,
      received: 0,
      stag: 0,
      count: 0,
      total: 0,
    };
    expect(wqe).toMatchObject(blank);
    const memory = wqe.inlineMemory(10);
    expect(memory.length).toBe(64);
    expect([wqe.inlineMemory(64), wqe.inlineMemory(1)]).toEqual([memory, memory]);
    expect(wqe.inlineMemory(64)).toBe(memory);
    const more = wqe.inlineMemory(65);
    expect([more.length, wqe.inlineMemory(65) === more]).toEqual([65, true]);
    const used = { status: 'flushed', signaled: false, fence: true, immediate: 2, solicited: true, stag: 9 };
    Object.assign(wqe, used, { responded: true, polled: true, msn: 4, received: 5, toHi: 1, toLo: 2 });
    wqe.sges.add(null, memory, 0, 8);
    expect(sq.peekFree()).toBe(wqe);
    expect(wqe).toMatchObject({ ...blank, toHi: 0, toLo: 0 });
  });
});

describe('the receive queue', () => {
  const post = (rq: ReceiveQueue, wrId: number): void => {
    rq.peekFree()!.wrId = wrId;
    rq.push();
  };

  it('keeps its entries in order when its depth changes, and counts those that are not polled', () => {
    const rq = new ReceiveQueue(4);
    expect([rq.resize(3), rq.take(), rq.first]).toEqual([true, null, null]);
    for (let i = 0; i < 77; i++) {
      post(rq, i);
      rq.release(rq.take()!);
    }
    for (let i = 0; i < 3; i++) post(rq, i);
    expect([rq.peekFree(), rq.posted, rq.first!.wrId]).toEqual([null, 3, 0]);
    const taken = rq.take()!;
    expect([taken.wrId, rq.posted, rq.peekFree()]).toEqual([0, 2, null]);
    expect([rq.resize(2), rq.depth]).toEqual([false, 3]);
    expect([rq.resize(3), rq.resize(33), rq.depth]).toEqual([true, true, 33]);
    rq.release(taken);
    for (let i = 3; i < 34; i++) post(rq, i);
    expect(rq.peekFree()).toBeNull();
    for (let i = 1; i < 34; i++) expect(rq.take()!.wrId).toBe(i);
    expect(rq.take()).toBeNull();
  });

  it('makes an entry blank before each use', () => {
    const rq = new ReceiveQueue(1);
    const wqe = rq.peekFree()!;
    const blank = {
      opcode: 'receive',
      status: 'success',
      byteLength: 0,
      solicited: false,
      invalidated: 0,
      hasImmediate: false,
      taken: false,
      from: undefined,
      count: 0,
    };
    expect(wqe).toMatchObject(blank);
    Object.assign(wqe, { opcode: 'receive-immediate', status: 'flushed', byteLength: 4, solicited: true });
    Object.assign(wqe, { invalidated: 7, hasImmediate: true, taken: true, from: { address: 'x', port: 1 } });
    wqe.sges.add(null, new Uint8Array(4), 0, 4);
    expect(rq.peekFree()).toBe(wqe);
    expect(wqe).toMatchObject(blank);
  });

  it('hands each entry on once, in order, and again what was not taken there', () => {
    const rq = new ReceiveQueue(8);
    expect(rq.forwardNext()).toBeNull();
    for (let i = 0; i < 4; i++) post(rq, i);
    const next = (): unknown => rq.forwardNext()?.wrId ?? null;
    expect([next(), next()]).toEqual([0, 1]);
    rq.unforward(false);
    expect([next(), next()]).toEqual([1, 2]);
    expect(rq.take()!.wrId).toBe(0);
    expect(next()).toBe(3);
    rq.unforward(true);
    expect(next()).toBe(1);
    expect([rq.take()!.wrId, rq.take()!.wrId]).toEqual([1, 2]);
    // An entry that has been taken here is not handed on after that.
    expect([next(), next(), rq.posted]).toEqual([3, null, 1]);
  });

  it('wakes each stream that waits once, with the next entry', () => {
    const rq = new ReceiveQueue(8);
    const woken: string[] = [];
    const [one, two, three] = ['one', 'two', 'three'].map((name) => () => void woken.push(name)) as [
      () => void,
      () => void,
      () => void,
    ];
    rq.stopWaiting(one);
    for (const wake of [one, two, one, three]) rq.whenPosted(wake);
    rq.stopWaiting(two);
    post(rq, 0);
    expect(woken).toEqual(['one', 'three']);
    post(rq, 1);
    expect(woken.length).toBe(2);
  });
});
