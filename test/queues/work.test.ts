/**
 * Entries of work queues: what one keeps while it is free, and the numbers it carries. Verbs draft 8.1, 8.2.
 */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { StagTable } from '../../src/ddp/stag-table.ts';
import { ReceiveQueue, SendQueue, type SgeList } from '../../src/queues/work.ts';

const stags = new StagTable(seededRandom(1), 100);
const bytes = new Uint8Array(64);

function fill(list: SgeList): void {
  for (let i = 0; i < 3; i++) {
    const entry = stags.allocate('region', 1);
    entry.bytes = bytes;
    list.add(entry, bytes, 8 * i, 8);
  }
}

const kept = (list: SgeList): unknown[] =>
  [0, 1, 2].flatMap((i) => (list.at(i).entry === null && list.at(i).bytes.length === 0 ? [] : [i]));

describe('a free entry', () => {
  it('keeps no region alive, whether its completion has been polled or there was none', () => {
    const sq = new SendQueue(4);
    const [silent, told] = [0, 1].map(() => {
      const wqe = sq.peekFree()!;
      fill(wqe.sges);
      sq.push();
      sq.next++;
      return wqe;
    }) as [ReturnType<SendQueue['slot']>, ReturnType<SendQueue['slot']>];
    sq.complete(true);
    sq.complete(false);
    expect([kept(silent), kept(told)]).toEqual([[], [0, 1, 2]]);
    expect(sq.room).toBe(3);
    sq.release(told);
    expect(kept(told)).toEqual([]);
    expect(sq.room).toBe(4);
    const rq = new ReceiveQueue(4);
    const receive = rq.peekFree()!;
    fill(receive.sges);
    rq.push();
    rq.release(rq.take()!);
    expect(kept(receive)).toEqual([]);
  });
});

describe('an entry', () => {
  it('carries STags and both halves of a tagged offset as unsigned numbers of 32 bits', () => {
    const wqe = new SendQueue(1).peekFree()!;
    for (const value of [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]) {
      wqe.stag = wqe.toHi = wqe.toLo = value;
      wqe.clear();
      wqe.sges.add(null, bytes, 0, 8, value);
      expect([wqe.stag, wqe.toHi, wqe.toLo, wqe.sges.first.lkey]).toEqual([value, value, value, value]);
    }
  });

  it('is blank when it is used again', () => {
    const sq = new SendQueue(1);
    const fresh = { ...sq.peekFree()! };
    const wqe = sq.peekFree()!;
    fill(wqe.sges);
    wqe.stag = wqe.toHi = wqe.toLo = 7;
    Object.assign(wqe, {
      signaled: false,
      fence: true,
      immediate: 1,
      solicited: true,
      responded: true,
      msn: 3,
      received: 4,
      status: 'flushed',
    });
    wqe.local = {
      run: () => 'success',
      operation: { type: 'invalidate', entry: stags.allocate('region', 1), stag: 1, qp: 1 },
      memory: null,
    };
    sq.push();
    sq.next++;
    sq.complete(true);
    const again = sq.peekFree()!;
    expect(again).toBe(wqe);
    expect({ ...again, offset: 0, length: 0 }).toEqual({ ...fresh, offset: 0, length: 0 });
    expect([again.stag, again.toHi, again.toLo, again.sges.count, again.sges.total]).toEqual([0, 0, 0, 0, 0]);
  });
});
