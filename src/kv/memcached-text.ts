/** The text protocol of memcached: lines in, replies out. */
import { Buffer } from 'node:buffer';
import { MAX_KEY } from './layout.ts';
import { MEMCACHED_VERSION, type MemcachedStore, type Mode, type Outcome } from './memcached-store.ts';
import { RequestBytes } from './request-bytes.ts';

/** Longest line: a `get` of many keys. */
const MAX_LINE = 64 * 1024;
const FORMAT = 'CLIENT_ERROR bad command line format\r\n';

const REPLIES: Readonly<Record<Outcome, string>> = {
  ok: 'STORED\r\n',
  'not-found': 'NOT_FOUND\r\n',
  exists: 'EXISTS\r\n',
  'not-stored': 'NOT_STORED\r\n',
  'too-large': 'SERVER_ERROR object too large for cache\r\n',
  'no-memory': 'SERVER_ERROR out of memory storing object\r\n',
  'not-a-number': 'CLIENT_ERROR cannot increment or decrement non-numeric value\r\n',
};

const MODES: ReadonlySet<string> = new Set(['set', 'add', 'replace', 'append', 'prepend', 'cas']);

/** A storage command whose data block is still to come. */
interface Pending {
  readonly mode: Mode;
  readonly key: Buffer;
  readonly flags: number;
  readonly seconds: number;
  readonly length: number;
  readonly version: number;
  readonly isQuiet: boolean;
}

/** One client's text. */
export class TextSession {
  ends = false;
  readonly #store: MemcachedStore;
  readonly #bytes = new RequestBytes();
  #pending: Pending | null = null;
  /** Bytes of a data block that is thrown away, with the end of its line. */
  #skip = 0;

  constructor(store: MemcachedStore) {
    this.#store = store;
  }

  /** Bytes of memory that a request which is not whole takes. */
  get held(): number {
    return this.#bytes.held;
  }

  push(bytes: Buffer): void {
    this.#bytes.push(bytes);
  }

  /** Replies to the next command; null if more bytes are needed. */
  next(): (Buffer | string)[] | null {
    if (this.#skip > 0) {
      this.#skip -= this.#bytes.take(this.#skip).length;
      return this.#skip > 0 ? null : [];
    }
    if (this.#pending !== null) return this.#data(this.#pending);
    const end = this.#bytes.indexOf(10);
    if (end < 0) {
      if (this.#bytes.length <= MAX_LINE) return null;
      this.ends = true;
      return ['CLIENT_ERROR line too long\r\n'];
    }
    const line = this.#bytes
      .take(end + 1)
      .toString('latin1', 0, end)
      .replace(/\r$/, '');
    const words = line.split(' ').filter((word) => word !== '');
    return this.#command(words[0] ?? '', words);
  }

  #data(pending: Pending): (Buffer | string)[] | null {
    const { length, key, mode, flags, seconds, version, isQuiet } = pending;
    if (this.#bytes.length < length + 2) return null;
    const block = this.#bytes.take(length + 2);
    this.#pending = null;
    if (block[length] !== 13 || block[length + 1] !== 10) return ['CLIENT_ERROR bad data chunk\r\n'];
    const expiry = this.#store.expiryOf(seconds);
    const copy = Buffer.from(block.subarray(0, length));
    const { outcome } = this.#store.store(key, { mode, value: copy, flags, expiry, version });
    if (isQuiet) return [];
    const refused =
      mode === 'cas'
        ? outcome
        : outcome === 'ok' || outcome === 'too-large' || outcome === 'no-memory'
          ? outcome
          : 'not-stored';
    return [REPLIES[refused]];
  }

  #command(name: string, words: readonly string[]): (Buffer | string)[] {
    const isQuiet = words.at(-1) === 'noreply';
    const args = isQuiet ? words.slice(1, -1) : words.slice(1);
    const answer = (text: string): string[] => (isQuiet ? [] : [text]);
    if (MODES.has(name)) return this.#begin(name as Mode, args, isQuiet);
    switch (name) {
      case 'get':
      case 'gets':
        return this.#get(args, name === 'gets', null);
      case 'gat':
      case 'gats':
        return this.#get(args.slice(1), name === 'gats', args[0] ?? '');
      case 'delete':
        return this.#delete(args, answer);
      case 'incr':
      case 'decr':
        return this.#count(args, name === 'decr', answer);
      case 'touch': {
        const [key, seconds] = [keyOf(args[0]), number(args[1])];
        if (key === null || seconds === null || args.length !== 2) return [FORMAT];
        const item = this.#store.touch(key, this.#store.expiryOf(seconds));
        return answer(item === null ? 'NOT_FOUND\r\n' : 'TOUCHED\r\n');
      }
      case 'flush_all': {
        const seconds = args.length === 0 ? 0 : number(args[0]);
        if (seconds === null) return ['CLIENT_ERROR invalid exptime argument\r\n'];
        this.#store.flush(seconds);
        return answer('OK\r\n');
      }
      case 'stats':
        if (words.length > 1) return ['ERROR\r\n'];
        return [...this.#store.statistics().map(([key, value]) => `STAT ${key} ${value}\r\n`), 'END\r\n'];
      case 'version':
        return [`VERSION ${MEMCACHED_VERSION}\r\n`];
      case 'verbosity':
        if (words.length === 1 || args.length > 1) return ['ERROR\r\n'];
        return args.length === 1 && number(args[0]) === null ? [FORMAT] : answer('OK\r\n');
      case 'quit':
        this.ends = true;
        return [];
      default:
        return ['ERROR\r\n'];
    }
  }

  #begin(mode: Mode, args: readonly string[], isQuiet: boolean): string[] {
    const [name, flags, seconds, octets, version] = args;
    if (args.length !== (mode === 'cas' ? 5 : 4)) return ['ERROR\r\n'];
    const key = keyOf(name);
    const [bits, time, length] = [number(flags), number(seconds), number(octets)];
    const cas = mode === 'cas' ? number(version) : 0;
    if (
      key === null ||
      bits === null ||
      bits < 0 ||
      bits > 0xffff_ffff ||
      time === null ||
      cas === null ||
      length === null ||
      length < 0
    )
      return [FORMAT];
    if (length > this.#store.keys.table.longestValue) {
      this.#skip = length + 2;
      // A value that cannot be stored is gone as well: the client must not find the old one.
      if (mode === 'set') this.#store.delete(key);
      return isQuiet ? [] : [REPLIES['too-large']];
    }
    this.#pending = { mode, key, flags: bits, seconds: time, length, version: cas, isQuiet };
    return [];
  }

  #get(names: readonly string[], withVersion: boolean, seconds: string | null): (Buffer | string)[] {
    if (names.length === 0 && seconds === null) return ['ERROR\r\n'];
    if (seconds === '') return ['ERROR\r\n'];
    const time = seconds === null ? null : number(seconds);
    if (seconds !== null && time === null) return ['CLIENT_ERROR invalid exptime argument\r\n'];
    const out: (Buffer | string)[] = [];
    let room = this.#store.keys.table.geometry.octets;
    for (const name of names) {
      const key = keyOf(name);
      if (key === null) return [FORMAT];
      const item = time === null ? this.#store.get(key) : this.#store.touch(key, this.#store.expiryOf(time));
      if (item === null) continue;
      room -= item.value.length;
      // A line may name a large value thousands of times.
      if (room < 0) return ['SERVER_ERROR out of memory writing get response\r\n'];
      const version = withVersion ? ` ${item.version}` : '';
      out.push(
        `VALUE ${name} ${item.flags} ${item.value.length}${version}\r\n`,
        Buffer.from(item.value),
        '\r\n',
      );
    }
    return [...out, 'END\r\n'];
  }

  #delete(args: readonly string[], answer: (text: string) => string[]): string[] {
    const key = keyOf(args[0]);
    if (args.length === 0) return ['ERROR\r\n'];
    if (key === null) return [FORMAT];
    if (args.length > 2 || (args.length === 2 && args[1] !== '0'))
      return ['CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n'];
    return answer(this.#store.delete(key) === 'ok' ? 'DELETED\r\n' : 'NOT_FOUND\r\n');
  }

  #count(args: readonly string[], down: boolean, answer: (text: string) => string[]): string[] {
    if (args.length !== 2) return ['ERROR\r\n'];
    const key = keyOf(args[0]);
    if (key === null) return [FORMAT];
    if (!/^\d{1,20}$/.test(args[1]!) || BigInt(args[1]!) >= 1n << 64n)
      return ['CLIENT_ERROR invalid numeric delta argument\r\n'];
    const { outcome, value } = this.#store.count(key, BigInt(args[1]!), down);
    return answer(outcome === 'ok' ? `${value}\r\n` : REPLIES[outcome]);
  }
}

function keyOf(name: string | undefined): Buffer | null {
  return name === undefined || name.length > MAX_KEY ? null : Buffer.from(name, 'latin1');
}

function number(text: string | undefined): number | null {
  return text !== undefined && /^-?\d{1,15}$/.test(text) ? Number(text) : null;
}
