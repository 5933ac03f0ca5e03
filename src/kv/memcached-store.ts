/** What both protocols of memcached do with a key; results in the words of neither. */
import { Buffer } from 'node:buffer';
import { clearTimeout, setTimeout } from 'node:timers';
import { MAX_TIME_LIMIT } from '../base/abort.ts';
import { IwarpError } from '../base/errors.ts';
import type { Keyspace } from './keyspace.ts';
import { KIND, MAX_KEY } from './layout.ts';
import type { Item } from './table.ts';

/** How an operation ended. */
export type Outcome =
  | 'ok'
  | 'not-found'
  | 'exists'
  | 'not-stored'
  | 'too-large'
  | 'no-memory'
  | 'not-a-number';

/** When a value may be stored. */
export type Mode = 'set' | 'add' | 'replace' | 'append' | 'prepend' | 'cas';

/** A value to store. */
interface Storing {
  readonly mode: Mode;
  readonly value: Uint8Array;
  readonly flags: number;
  /** Milliseconds since 1970, or 0. */
  readonly expiry: number;
  /** The version that the key must still have, with `cas`; 0: any. */
  readonly version: number;
}

/** Times above 30 days are moments, others are seconds from now; negative ones are over at once. */
const MOST_RELATIVE = 60 * 60 * 24 * 30;

export class MemcachedStore {
  readonly keys: Keyspace;
  /** Values stored before this moment are gone, once it has come. */
  #flushTimer: NodeJS.Timeout | undefined;

  constructor(keys: Keyspace) {
    this.keys = keys;
  }

  expiryOf(seconds: number): number {
    if (seconds === 0) return 0;
    const now = this.keys.now();
    if (seconds < 0) return 1;
    return seconds > MOST_RELATIVE ? seconds * 1000 : now + seconds * 1000;
  }

  /** A string; hashes are not for clients of memcached, and so are not there. */
  get(key: Uint8Array): Item | null {
    const item = this.keys.get(key);
    return item?.kind === KIND.STRING ? item : null;
  }

  store(
    key: Uint8Array,
    { mode, value, flags, expiry, version }: Storing,
  ): { outcome: Outcome; version: number } {
    const failed = (outcome: Outcome): { outcome: Outcome; version: number } => ({ outcome, version: 0 });
    const before = this.keys.peek(key);
    if (before === null && (mode === 'cas' || (version !== 0 && mode !== 'add'))) return failed('not-found');
    if (before === null ? mode !== 'set' && mode !== 'add' : mode === 'add')
      return failed(mode === 'add' ? 'exists' : mode === 'replace' ? 'not-found' : 'not-stored');
    if (before !== null && version !== 0 && before.version !== version) return failed('exists');
    if (key.length > MAX_KEY) return failed('too-large');
    const joined =
      mode === 'append' ? [before!.value, value] : [value, ...(mode === 'prepend' ? [before!.value] : [])];
    const keeps = mode === 'append' || mode === 'prepend';
    try {
      const now = this.keys.put(
        key,
        joined.length === 1 ? value : Buffer.concat(joined),
        KIND.STRING,
        keeps ? before!.expiry : expiry,
        keeps ? before!.flags : flags,
      );
      return { outcome: 'ok', version: now };
    } catch (error) {
      return failed(outcomeOf(error));
    }
  }

  delete(key: Uint8Array, version = 0): Outcome {
    const before = this.keys.peek(key);
    if (before === null) return 'not-found';
    if (version !== 0 && before.version !== version) return 'exists';
    this.keys.delete(key);
    return 'ok';
  }

  /** Add to, or take from, an unsigned 64-bit decimal; the sum wraps, the difference ends at 0. */
  count(key: Uint8Array, by: bigint, down: boolean): { outcome: Outcome; value: bigint; version: number } {
    const item = this.get(key);
    if (item === null) return { outcome: 'not-found', value: 0n, version: 0 };
    const text = Buffer.from(item.value).toString('latin1').trimEnd();
    const old = /^\d{1,20}$/.test(text) ? BigInt(text) : null;
    if (old === null || old >= 1n << 64n) return { outcome: 'not-a-number', value: 0n, version: 0 };
    const value = down ? (by > old ? 0n : old - by) : BigInt.asUintN(64, old + by);
    // A shorter number leaves the length as it was.
    const digits = Buffer.from(value.toString().padEnd(item.value.length, ' '));
    try {
      const version = this.keys.put(key, digits, KIND.STRING, item.expiry, item.flags);
      return { outcome: 'ok', value, version };
    } catch (error) {
      return { outcome: outcomeOf(error), value: 0n, version: 0 };
    }
  }

  touch(key: Uint8Array, expiry: number): Item | null {
    const item = this.get(key);
    if (item !== null) this.keys.put(key, item.value, item.kind, expiry, item.flags);
    return item;
  }

  flush(seconds: number): void {
    clearTimeout(this.#flushTimer);
    if (seconds <= 0) return this.keys.clear();
    this.#flushAt(this.expiryOf(seconds));
  }

  /** A timer takes less time than a client may name: the moment is reached in several steps then. */
  #flushAt(moment: number): void {
    const left = moment - this.keys.now();
    if (left <= 0) return this.keys.clear();
    this.#flushTimer = setTimeout(() => this.#flushAt(moment), Math.min(left, MAX_TIME_LIMIT)).unref();
  }

  statistics(): [string, string][] {
    const { keys, evicted, hits, misses } = this.keys.table.counters;
    return [
      ['pid', String(process.pid)],
      ['time', String(Math.floor(this.keys.now() / 1000))],
      ['version', MEMCACHED_VERSION],
      ['pointer_size', '64'],
      ['curr_items', String(keys)],
      ['evictions', String(evicted)],
      ['get_hits', String(hits)],
      ['get_misses', String(misses)],
      ['limit_maxbytes', String(this.keys.table.geometry.octets)],
    ];
  }

  close(): void {
    clearTimeout(this.#flushTimer);
  }
}

/** The version whose answers the edge gives. */
export const MEMCACHED_VERSION = '1.6.18';

/** @internal An error of the table as an outcome; others are faults of ours. */
export function outcomeOf(error: unknown): Outcome {
  if (error instanceof IwarpError && error.code === 'ERR_TOO_LARGE') return 'too-large';
  if (error instanceof IwarpError && error.code === 'ERR_LIMIT') return 'no-memory';
  throw error;
}
