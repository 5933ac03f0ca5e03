// The table against a model: every key, through evictions, expiry, sizes; and what a reader finds in memory.
import { describe, expect, it } from 'vitest';
import { geometryOf, KIND, MAX_KEY } from '../../src/kv/layout.ts';
import { Table } from '../../src/kv/table.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const string = (value: Uint8Array, expiry = 0): Parameters<Table['set']>[1] => ({
  value,
  kind: KIND.STRING,
  flags: 0,
  expiry,
});

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe('the table', () => {
  it('keeps what a Map keeps, while there is room', () => {
    const table = new Table(8 * 2 ** 20, { seed: 1, evicts: false, now: () => 1 });
    const model = new Map<string, Uint8Array>();
    const next = random(7);
    for (let i = 0; i < 20_000; i++) {
      const key = `key ${Math.floor(next() * 3000)}`;
      if (next() < 0.3) expect(table.delete(bytes(key))).toBe(model.delete(key));
      else {
        const value = new Uint8Array(Math.floor(next() ** 4 * 2000)).fill(i);
        table.set(bytes(key), string(value));
        model.set(key, value);
      }
    }
    expect(table.counters.keys).toBe(model.size);
    for (const [key, value] of model)
      expect(Buffer.compare(table.get(bytes(key))!.value, value), key).toBe(0);
    expect(table.counters.evicted).toBe(0);
    const seen = new Set<string>();
    for (let bucket = 0; bucket < table.geometry.buckets; bucket++)
      for (const key of table.keysOf(bucket)) seen.add(new TextDecoder().decode(key));
    expect([...seen].toSorted()).toEqual([...model.keys()].toSorted());
    table.clear();
    expect(table.counters.keys).toBe(0);
  });

  it('evicts what was not used lately, stays within its memory, and never returns a wrong value', () => {
    const table = new Table(2 ** 20, { seed: 2, evicts: true, now: () => 1 });
    const model = new Map<string, number>();
    const next = random(3);
    const gone: string[] = [];
    table.onGone = (key) => gone.push(new TextDecoder().decode(key));
    for (let i = 0; i < 30_000; i++) {
      const key = `k${Math.floor(next() * 20_000)}`;
      const length = Math.floor(next() ** 6 * 20_000);
      table.set(bytes(key), string(new Uint8Array(length).fill(i & 255)));
      model.set(key, i & 255);
      table.get(bytes('k1'));
    }
    expect(table.counters.evicted).toBeGreaterThan(1000);
    expect(gone.length).toBe(table.counters.evicted);
    let found = 0;
    for (const [key, fill] of model) {
      const item = table.get(bytes(key));
      if (item === null) continue;
      found++;
      expect(item.value.every((octet) => octet === fill)).toBe(true);
    }
    expect(found).toBe(table.counters.keys);
    expect(found).toBeGreaterThan(100);
  });

  it('refuses keys of 0 and 251 octets and values above a page; a full table says so', () => {
    const table = new Table(2 ** 20, { seed: 3, evicts: false, now: () => 1 });
    for (const key of [new Uint8Array(0), new Uint8Array(MAX_KEY + 1)])
      expect(() => table.set(key, string(bytes('v')))).toThrow(
        expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
      );
    expect(() => table.set(bytes('k'), string(new Uint8Array(table.longestValue + 1)))).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
    );
    table.set(bytes('k'), string(new Uint8Array(table.longestValue)));
    const fill = (): void => {
      for (let i = 0; i < 100; i++) table.set(bytes(`big ${i}`), string(new Uint8Array(table.longestValue)));
    };
    expect(fill).toThrow(expect.objectContaining({ code: 'ERR_LIMIT' }));
    expect(table.get(bytes('k'))!.value.length).toBe(table.longestValue);
    table.delete(bytes('k'));
    table.set(bytes('again'), string(new Uint8Array(table.longestValue)));
  });

  it('lets keys go when their time is over', () => {
    let now = 1000;
    const table = new Table(2 ** 20, { seed: 4, evicts: true, now: () => now });
    table.set(bytes('a'), string(bytes('1'), 1500));
    table.set(bytes('b'), string(bytes('2')));
    now = 1499;
    expect(table.get(bytes('a'))?.expiry).toBe(1500);
    now = 1500;
    expect(table.get(bytes('a'))).toBeNull();
    expect(table.get(bytes('b'))).not.toBeNull();
    expect(table.counters).toMatchObject({ keys: 1, expired: 1 });
  });

  it('gives each change a version of its own, and keeps flags and kind', () => {
    const table = new Table(2 ** 20, { seed: 5, evicts: true, now: () => 1 });
    const stored = { value: bytes('x'), kind: KIND.HASH, flags: 0xdead_beef, expiry: 0 };
    const first = table.set(bytes('a'), stored);
    expect(table.get(bytes('a'))).toMatchObject({ kind: KIND.HASH, flags: 0xdead_beef, version: first });
    expect(table.set(bytes('a'), stored)).toBeGreaterThan(first);
  });

  it('has buckets and pages that fill it', () => {
    for (const octets of [2 ** 20, 3_000_000, 2 ** 26, 0xffff_ff00]) {
      const { buckets, page, pages } = geometryOf(octets, 1);
      const used = buckets * 256 + page * pages;
      expect(used).toBeLessThanOrEqual(octets);
      expect(octets - used).toBeLessThan(page);
      expect(pages).toBeGreaterThanOrEqual(14);
    }
  });
});
