/** RESP, the protocol of Redis: requests as arrays or lines, replies in version 2 or 3. */

import { Buffer } from 'node:buffer';
import { BUFFER_OCTETS } from './edge-memory.ts';
import { RequestBytes } from './request-bytes.ts';

/** An error reply; the text is that of a stock server. */
export class ReplyError extends Error {}

/** Arguments of one request. */
export type Arguments = readonly Buffer[];

/** What the bytes so far lead to. */
type Parsed =
  /** A request; empty lines and empty arrays are none. */
  | { readonly kind: 'request'; readonly args: Arguments }
  /** More bytes are needed. */
  | { readonly kind: 'more' }
  /** The client does not keep to the protocol: this error, then the end. */
  | { readonly kind: 'violation'; readonly message: string };

const MORE: Parsed = { kind: 'more' };
/** Longest line: an inline request, or the count of an array or of a bulk. */
const MAX_LINE = 64 * 1024;
/** Arguments of one request. */
const MAX_ARGUMENTS = 1024 * 1024;

/** Takes a client's bytes apart. */
export class RequestParser {
  readonly #maxBulk: number;
  /** Bytes of all arguments of a request. */
  readonly #maxRequest: number;
  readonly #bytes = new RequestBytes();
  /** Arguments still to come of the array that has begun, or -1. */
  #missing = -1;
  /** Length of the argument that has begun, or -1. */
  #bulk = -1;
  #taken = 0;
  #args: Buffer[] = [];

  constructor(maxBulk: number) {
    this.#maxBulk = maxBulk;
    this.#maxRequest = 8 * maxBulk;
  }

  /** Bytes of memory that a request which is not whole takes. */
  get held(): number {
    return this.#bytes.held + this.#taken + this.#args.length * BUFFER_OCTETS;
  }

  push(bytes: Buffer): void {
    this.#bytes.push(bytes);
  }

  /** The next request. After a violation nothing more may be asked. */
  next(): Parsed {
    for (;;) {
      if (this.#missing < 0) {
        const begun = this.#begin();
        if (begun !== null) return begun;
        if (this.#missing < 0) continue;
      }
      const argument = this.#missing > 0 ? this.#argument() : null;
      if (argument !== null) return argument;
      if (this.#missing > 0) continue;
      const args = this.#args;
      this.#args = [];
      this.#missing = -1;
      this.#taken = 0;
      if (args.length > 0) return { kind: 'request', args };
    }
  }

  /** A line without its end, or null: there is none yet, or it is too long. */
  #line(): Buffer | null {
    const end = this.#bytes.indexOf(10);
    if (end < 0) return null;
    const line = this.#bytes.take(end + 1);
    return line.subarray(0, end > 0 && line[end - 1] === 13 ? end - 1 : end);
  }

  #begin(): Parsed | null {
    const waiting = this.#bytes.length;
    if (waiting === 0) return MORE;
    const isArray = this.#bytes.at(0) === 42; // *
    const line = this.#line();
    if (line === null) {
      if (waiting <= MAX_LINE) return MORE;
      return violation(isArray ? 'too big mbulk count string' : 'too big inline request');
    }
    if (!isArray) {
      const args = splitLine(line);
      if (args === null) return violation('unbalanced quotes in request');
      this.#args = args;
      this.#missing = 0;
      return null;
    }
    const count = number(line.subarray(1));
    if (count === null || count > MAX_ARGUMENTS) return violation('invalid multibulk length');
    this.#missing = Math.max(0, count);
    return null;
  }

  /** One argument: null when it has been taken. */
  #argument(): Parsed | null {
    if (this.#bulk < 0) {
      const waiting = this.#bytes.length;
      if (waiting === 0) return MORE;
      const first = this.#bytes.at(0)!;
      const line = this.#line();
      if (line === null) return waiting > MAX_LINE ? violation('too big bulk count string') : MORE;
      if (first !== 36) return violation(`expected '$', got '${String.fromCharCode(first)}'`);
      const length = number(line.subarray(1));
      if (length === null || length < 0 || length > this.#maxBulk) return violation('invalid bulk length');
      this.#taken += length + 16;
      if (this.#taken > this.#maxRequest) return violation('invalid bulk length');
      this.#bulk = length;
    }
    if (this.#bytes.length < this.#bulk + 2) return MORE;
    this.#args.push(Buffer.from(this.#bytes.take(this.#bulk + 2).subarray(0, this.#bulk)));
    this.#bulk = -1;
    this.#missing--;
    return null;
  }
}

function violation(message: string): Parsed {
  return { kind: 'violation', message: `ERR Protocol error: ${message}` };
}

/** A decimal integer that a double holds, or null. */
function number(digits: Buffer): number | null {
  const text = digits.toString('latin1');
  return /^-?\d{1,15}$/.test(text) ? Number(text) : null;
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', b: '\b', a: '\u0007' };

/** The words of an inline request, with quotation marks as redis-cli has them; null if they do not match. */
function splitLine(line: Buffer): Buffer[] | null {
  const text = line.toString('latin1');
  const words: Buffer[] = [];
  const token = /\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+))(?=\s|$)/y;
  while (token.lastIndex < text.length) {
    if (/^\s*$/.test(text.slice(token.lastIndex))) break;
    const match = token.exec(text);
    if (match === null) return null;
    const [, double, single, plain] = match;
    const word = double?.replace(/\\(?:x([0-9a-fA-F]{2})|(.))/g, (_all, hex: string, one: string) =>
      hex === undefined ? (ESCAPES[one] ?? one) : String.fromCharCode(Number.parseInt(hex, 16)),
    );
    words.push(Buffer.from(word ?? single?.replaceAll("\\'", "'") ?? plain!, 'latin1'));
  }
  return words;
}

/** Builds replies, in the version that the client has chosen. */
export class ReplyWriter {
  version: 2 | 3 = 2;
  #parts: (Buffer | string)[] = [];
  octets = 0;
  /** Where values no longer fit: one request may name a large one any number of times. */
  limit: number = Infinity;

  /** A place to go back to. */
  get mark(): { readonly parts: number; readonly octets: number } {
    return { parts: this.#parts.length, octets: this.octets };
  }

  /** Take back all that was added behind that place. */
  rewind({ parts, octets }: { readonly parts: number; readonly octets: number }): void {
    this.#parts.length = parts;
    this.octets = octets;
  }

  #add(part: Buffer | string): this {
    this.#parts.push(part);
    this.octets += part.length;
    return this;
  }

  simple(text: string): this {
    return this.#add(`+${text}\r\n`);
  }

  ok(): this {
    return this.#add('+OK\r\n');
  }

  /** An error; its first word is its code. */
  error(text: string): this {
    return this.#add(`-${text.replaceAll(/[\r\n]/g, ' ')}\r\n`);
  }

  integer(value: number | bigint): this {
    return this.#add(`:${value}\r\n`);
  }

  bulk(value: Uint8Array | string): this {
    if (typeof value === 'string') return this.bulk(Buffer.from(value));
    if (this.octets + value.length > this.limit) throw new ReplyError('ERR the reply is too large');
    this.#add(`$${value.length}\r\n`);
    this.#add(Buffer.from(value.buffer, value.byteOffset, value.length));
    return this.#add('\r\n');
  }

  nil(): this {
    return this.#add(this.version === 3 ? '_\r\n' : '$-1\r\n');
  }

  /** The absence of an array, as EXEC has it. */
  nilArray(): this {
    return this.#add(this.version === 3 ? '_\r\n' : '*-1\r\n');
  }

  bulkOrNil(value: Uint8Array | string | null): this {
    return value === null ? this.nil() : this.bulk(value);
  }

  array(count: number): this {
    return this.#add(`*${count}\r\n`);
  }

  /** A map of `count` pairs; in version 2 an array of twice as many. */
  map(count: number): this {
    return this.#add(this.version === 3 ? `%${count}\r\n` : `*${2 * count}\r\n`);
  }

  /** All replies so far as one buffer. */
  take(): Buffer {
    const all = Buffer.concat(
      this.#parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : part)),
    );
    this.#parts = [];
    this.octets = 0;
    return all;
  }
}
