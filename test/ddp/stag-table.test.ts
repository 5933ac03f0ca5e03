/**
 * The table of STags by itself: what `check` compares, and how an engine's copy of the table follows the
 * device's. RFC 5041 7.1, 8.1; verbs draft 7.
 */
import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { seededRandom } from '../../src/base/random.ts';
import {
  ACCESS,
  FAULT,
  isAccess,
  memoryOf,
  memoryState,
  StagEntry,
  StagTable,
  stateOf,
  type StagState,
} from '../../src/ddp/stag-table.ts';

const PD = 7;
const bytes = Uint8Array.from({ length: 16 }, (_, i) => i);

function table(limit = 100, seed = 5): StagTable {
  return new StagTable(seededRandom(seed), limit);
}

function region(stags: StagTable, pd = PD): StagEntry {
  const entry = stags.allocate('region', pd);
  entry.bytes = bytes;
  entry.access = ACCESS.REMOTE_WRITE | ACCESS.LOCAL_WRITE | ACCESS.MW_BIND;
  return entry;
}

/** A window over the whole region, as a bind makes it. */
function bound(stags: StagTable, over: StagEntry, binder: { boundWindows: number }): StagEntry {
  const window = stags.allocate('window', over.pd);
  window.region = over;
  window.binder = binder;
  window.qp = 3;
  window.bytes = over.bytes;
  window.access = ACCESS.REMOTE_WRITE;
  over.windows++;
  binder.boundWindows++;
  return window;
}

const check = (stags: StagTable, stag: number, to: number, length: number): number =>
  stags.check(stag, 0, to, length, ACCESS.REMOTE_WRITE, PD, 1);

describe('access rights', () => {
  it('are whole numbers from 0 to 31, and nothing else', () => {
    const rights = Array.from({ length: 32 }, (_, i) => i);
    expect(rights.filter((value) => !isAccess(value))).toEqual([]);
    const others: unknown[] = [
      -1,
      32,
      0.5,
      Number.NaN,
      Infinity,
      '3',
      '0',
      3n,
      null,
      undefined,
      {},
      [1],
      true,
    ];
    expect(others.filter((value) => isAccess(value))).toEqual([]);
  });
});

describe('a new entry', () => {
  it('is valid, counts from 0, is of one stream, and nothing is bound to it', () => {
    expect(new StagEntry(0x100, 'region', PD)).toMatchObject({
      valid: true,
      zeroBased: true,
      shared: false,
      windows: 0,
      qp: 0,
      access: 0,
      region: null,
      binder: null,
    });
  });

  it('has the key that was asked for, and an index that no other entry has (VERBS-138/139)', () => {
    // Index 0 is skipped, then one in use, then one that has just been freed.
    const drawn = [0, 5, 5, 5, 9, 9, 5, 12];
    const stags = new StagTable(() => drawn.shift()!, 10);
    const first = stags.allocate('region', PD, 0xab);
    expect(first.stag).toBe(0x5ab);
    const second = stags.allocate('region', PD, 0);
    expect(second.stag).toBe(0x900);
    stags.free(second);
    expect(stags.allocate('window', PD, 1)).toMatchObject({ stag: 0xc01, kind: 'window', pd: PD });
    expect(drawn).toEqual([]);
  });

  it('is refused at the limit of the table, until one is freed', () => {
    const stags = table(2);
    const first = region(stags);
    region(stags);
    expect(() => region(stags)).toThrow(
      new IwarpError('ERR_LIMIT', 'the device has its limit of 2 STags in use'),
    );
    stags.free(first);
    expect(region(stags).valid).toBe(true);
  });
});

describe('an STag that is freed', () => {
  it('is not found, though it was the last one found (VERBS-151, SEC-007)', () => {
    const stags = table();
    const [one, other] = [region(stags), region(stags)];
    expect(stags.find(one.stag)).toBe(one);
    stags.free(one);
    expect(stags.find(one.stag)).toBeNull();
    expect(stags.holds(one)).toBe(false);
    expect(stags.withIndex(one.stag)).toBeUndefined();
    expect(one.bytes.length).toBe(0);
    expect(stags.find(other.stag)).toBe(other);
  });

  it('of another entry leaves the last one found where it is', () => {
    const stags = table();
    const [one, other] = [region(stags), region(stags)];
    expect(stags.find(one.stag)).toBe(one);
    stags.free(other);
    expect(stags.find(one.stag)).toBe(one);
    expect(stags.find(other.stag)).toBeNull();
  });
});

describe('the index of a freed STag', () => {
  const REST = 4096;

  /** `free` takes an index and gives it back; `isDrawn` says whether it may be taken again. */
  function resting(): { free: (index: number) => void; isDrawn: (index: number) => boolean } {
    const drawn: number[] = [];
    const stags = new StagTable(() => drawn.shift()!, 10);
    const SPARE = 0xff_ffff;
    const allocate = (...indices: number[]): StagEntry => {
      drawn.push(...indices);
      const entry = stags.allocate('region', PD, 0);
      drawn.length = 0;
      return entry;
    };
    const free = (index: number): void => {
      const entry = allocate(index);
      if (entry.stag >>> 8 !== index) throw new Error(`index ${index} is not free`);
      stags.free(entry);
    };
    // The entry stays in the table: a freed one would rest.
    const isDrawn = (index: number): boolean => allocate(index, SPARE).stag >>> 8 === index;
    return { free, isDrawn };
  }

  it.each([0, 1, 4095, 4096, 4097, 3 * 4096 - 1])(
    'rests until 4096 others have been freed, behind %i before (SEC-010)',
    (before) => {
      for (const others of [0, 1, REST - 1, REST]) {
        const { free, isDrawn } = resting();
        for (let i = 1; i <= before; i++) free(i);
        const index = 0x80_0000;
        free(index);
        for (let i = 1; i <= others; i++) free(index + i);
        expect([others, isDrawn(index)]).toEqual([others, others >= REST]);
      }
    },
  );

  it('rests anew each time it is freed', () => {
    const { free, isDrawn } = resting();
    let next = 1;
    for (let round = 0; round < 3; round++) {
      free(0x80_0000);
      for (let i = 0; i < REST; i++) free(next++);
    }
    free(0x80_0000);
    for (let i = 1; i < REST; i++) free(next++);
    expect(isDrawn(0x80_0000)).toBe(false);
  });
});

describe('an STag whose key changes', () => {
  it('is found by the new key alone, though the old one was found last (VERBS-138, VERBS-168)', () => {
    const stags = table();
    const entry = region(stags);
    const old = entry.stag;
    expect(stags.find(old)).toBe(entry);
    stags.rekey(entry);
    expect(entry.stag).toBe(((old & 0xffff_ff00) | ((old + 1) & 0xff)) >>> 0);
    expect([stags.find(old), stags.find(entry.stag)]).toEqual([null, entry]);
    stags.rekey(entry, 0x1ff);
    expect(entry.stag & 0xff).toBe(0xff);
    stags.rekey(entry);
    expect([entry.stag & 0xff, entry.stag >>> 8]).toEqual([0, old >>> 8]);
  });

  it('leaves the last one found alone if that is another', () => {
    const stags = table();
    const [one, other] = [region(stags), region(stags)];
    expect(stags.find(one.stag)).toBe(one);
    const old = other.stag;
    stags.rekey(other);
    expect([stags.find(one.stag), stags.find(old), stags.find(other.stag)]).toEqual([one, null, other]);
  });

  it('takes any key but the present one, by what is drawn (SEC-009)', () => {
    for (const present of [0, 1, 0xfe, 0xff]) {
      const keys = new Set<number>();
      for (let drawn = 0; drawn < 0xff; drawn++) {
        const draws = [77, drawn];
        const stags = new StagTable(() => draws.shift()!, 10);
        const entry = stags.allocate('region', PD, present);
        stags.refresh(entry);
        expect(entry.stag >>> 8).toBe(77);
        expect(entry.stag & 0xff).toBe((present + 1 + drawn) & 0xff);
        keys.add(entry.stag & 0xff);
      }
      expect([keys.size, keys.has(present)]).toEqual([255, false]);
    }
  });
});

describe('invalidation', () => {
  it('of a window gives it back to its domain and counts it down at region and binder (VERBS-166)', () => {
    const stags = table();
    const over = region(stags);
    const binder = { boundWindows: 0 };
    const [first, second] = [bound(stags, over, binder), bound(stags, over, binder)];
    stags.invalidate(first);
    expect(first).toMatchObject({ valid: false, region: null, binder: null, qp: 0 });
    expect(first.bytes.length).toBe(0);
    expect([over.windows, binder.boundWindows, over.valid, second.valid]).toEqual([1, 1, true, true]);
  });

  it('of a region ends the windows on it, and no other window', () => {
    const stags = table();
    const [over, elsewhere] = [region(stags), region(stags)];
    const binder = { boundWindows: 0 };
    const mine = [bound(stags, over, binder), bound(stags, over, binder)];
    const other = bound(stags, elsewhere, binder);
    stags.invalidate(over);
    expect(mine.map(({ valid, region: on }) => [valid, on])).toEqual([
      [false, null],
      [false, null],
    ]);
    expect([over.windows, binder.boundWindows]).toEqual([0, 1]);
    expect([other.valid, other.region, elsewhere.windows]).toEqual([true, elsewhere, 1]);
  });
});

describe('the check of an access', () => {
  it('compares STag, validity, domain, stream, right, wrap and bounds, in this order (DDP-045..050)', () => {
    const stags = table();
    const entry = region(stags);
    entry.baseHi = 0xffff_ffff;
    entry.baseLo = 0xffff_fff0;
    const at = (lo: number, length: number, hi = 0xffff_ffff, right: number = ACCESS.REMOTE_WRITE): number =>
      stags.check(entry.stag, hi, lo, length, right, PD, 1);
    expect([at(0xffff_fff0, 16), stags.entry, stags.offset]).toEqual([FAULT.NONE, entry, 0]);
    expect([at(0xffff_ffff, 1), stags.offset]).toEqual([FAULT.NONE, 15]);
    expect(at(0xffff_ffef, 1)).toBe(FAULT.BOUNDS);
    expect(at(0xffff_fff0, 17)).toBe(FAULT.WRAP);
    expect(at(0, 1, 0)).toBe(FAULT.BOUNDS);
    expect(at(0, 1, 0, ACCESS.REMOTE_READ)).toBe(FAULT.ACCESS);
    expect(at(0xffff_fff0, 16, undefined, ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE)).toBe(FAULT.ACCESS);
    entry.qp = 2;
    expect(at(0, 1, 0, ACCESS.REMOTE_READ)).toBe(FAULT.NOT_ASSOCIATED);
    entry.qp = 1;
    expect(at(0xffff_fff0, 16)).toBe(FAULT.NONE);
    expect(stags.check(entry.stag, 0, 0, 1, ACCESS.REMOTE_READ, PD + 1, 1)).toBe(FAULT.NOT_ASSOCIATED);
    entry.valid = false;
    expect(stags.check(entry.stag, 0, 0, 1, ACCESS.REMOTE_READ, PD + 1, 1)).toBe(FAULT.INVALID_STAG);
    expect(check(stags, (entry.stag ^ 0x100) >>> 0, 0, 1)).toBe(FAULT.INVALID_STAG);
  });

  it('takes ranges inside the memory to its last octet, and none beyond it (DDP-048/049)', () => {
    const stags = table();
    const { stag } = region(stags);
    expect([check(stags, stag, 0, 16), check(stags, stag, 15, 1)]).toEqual([FAULT.NONE, FAULT.NONE]);
    expect([check(stags, stag, 0, 17), check(stags, stag, 16, 1)]).toEqual([FAULT.BOUNDS, FAULT.BOUNDS]);
  });
});

describe('memory as data', () => {
  it('is the view, nothing where there are no octets, and parts beyond 4 GiB', () => {
    expect(memoryState(bytes)).toBe(bytes);
    expect(memoryState(bytes.subarray(4, 4))).toBeNull();
    const { buffer } = bytes;
    // Views as far into a buffer as none can be made in a test: only their numbers matter.
    const view = (byteOffset: number, length: number): Uint8Array =>
      ({ buffer, byteOffset, length }) as unknown as Uint8Array;
    const last = view(0xffff_fff0, 15);
    expect(memoryState(last)).toBe(last);
    expect(memoryState(view(0xffff_fff0, 16))).toEqual({ buffer, from: 0xffff_fff0, octets: 16 });
    expect(memoryState(view(0x1_0000_0000, 1))).toEqual({ buffer, from: 0x1_0000_0000, octets: 1 });
  });

  it('becomes the same octets again', () => {
    expect(memoryOf(bytes)).toBe(bytes);
    expect(memoryOf(null).length).toBe(0);
    const again = memoryOf({ buffer: bytes.buffer, from: 3, octets: 4 });
    expect([...again]).toEqual([3, 4, 5, 6]);
    expect(again.buffer).toBe(bytes.buffer);
  });
});

describe("an engine's copy of the table", () => {
  /** A copy that draws nothing. */
  const copy = (): StagTable =>
    new StagTable(() => {
      throw new Error('a copy draws no STag');
    }, 100);

  it('has every field of the entry, and an access through it is judged alike', () => {
    const stags = table();
    const entry = region(stags);
    entry.qp = 4;
    entry.shared = true;
    entry.zeroBased = false;
    entry.baseHi = 9;
    entry.baseLo = 0x8000_0000;
    const state = stateOf(entry);
    expect(state).toEqual({
      stag: entry.stag,
      kind: 'region',
      pd: PD,
      qp: 4,
      valid: true,
      access: entry.access,
      baseHi: 9,
      baseLo: 0x8000_0000,
      zeroBased: false,
      shared: true,
      once: false,
      memory: bytes,
      region: 0,
    });
    const replica = copy();
    replica.restore(state);
    const twin = replica.find(entry.stag)!;
    expect(stateOf(twin)).toEqual(state);
    expect(replica.check(entry.stag, 9, 0x8000_0000, 16, ACCESS.REMOTE_WRITE, PD, 4)).toBe(FAULT.NONE);
    replica.restore({ ...state, valid: false, memory: null, shared: false, zeroBased: true, qp: 0 });
    expect(twin).toMatchObject({ valid: false, shared: false, zeroBased: true, qp: 0 });
    expect(twin.bytes.length).toBe(0);
  });

  it('keeps the entry for another key of the same kind and domain: queued work refers to it', () => {
    const stags = table();
    const state = stateOf(region(stags));
    const replica = copy();
    replica.restore(state);
    const twin = replica.find(state.stag)!;
    const next = { ...state, stag: ((state.stag & 0xffff_ff00) | ((state.stag + 1) & 0xff)) >>> 0 };
    replica.restore(next);
    expect([replica.find(state.stag), replica.find(next.stag)]).toEqual([null, twin]);
  });

  it('has a new entry where the index is of another kind or domain now: queued work keeps the old', () => {
    for (const change of [{ pd: PD + 1 }, { kind: 'window' }] satisfies Partial<StagState>[]) {
      const stags = table();
      const state = stateOf(region(stags));
      const replica = copy();
      replica.restore(state);
      const before = replica.find(state.stag)!;
      replica.restore({ ...state, ...change });
      const after = replica.find(state.stag)!;
      expect(after).not.toBe(before);
      expect(after).toMatchObject(change);
      expect([replica.holds(before), replica.holds(after)]).toEqual([false, true]);
      expect(stateOf(before)).toEqual(state);
    }
  });

  it('counts a bound window at its region, and ends it with that', () => {
    const stags = table();
    const over = region(stags);
    const window = bound(stags, over, { boundWindows: 0 });
    expect(stateOf(window).region).toBe(over.stag);
    const replica = copy();
    replica.restore(stateOf(over));
    replica.restore(stateOf(window));
    const [twin, on] = [replica.find(window.stag)!, replica.find(over.stag)!];
    expect(twin.region).toBe(on);
    expect([on.windows, twin.binder]).toEqual([1, { boundWindows: 1 }]);
    replica.restore(stateOf(window));
    expect(on.windows).toBe(1);
    replica.invalidate(on);
    expect([twin.valid, twin.region, on.windows]).toEqual([false, null, 0]);
  });

  it('has a window without a region where the region has gone already', () => {
    const stags = table();
    const over = region(stags);
    const window = bound(stags, over, { boundWindows: 0 });
    const replica = copy();
    replica.restore(stateOf(window));
    expect(replica.find(window.stag)).toMatchObject({ region: null, binder: null, valid: true });
  });
});
