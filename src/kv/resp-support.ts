/** What the commands of the RESP edge share: their context, errors, numbers, patterns, expiry. */
import { latin1, parseInteger, type Fields, type Keyspace, decodeFields, encodeFields } from './keyspace.ts';
import { KIND } from './layout.ts';
import { ReplyError, type Arguments, type ReplyWriter } from './resp.ts';
import type { Item } from './table.ts';

const WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value';
export const NOT_INTEGER = 'ERR value is not an integer or out of range';
export const NOT_FLOAT = 'ERR value is not a valid float';
export const SYNTAX = 'ERR syntax error';

/** Facts of the server that some commands report. */
export interface ServerFacts {
  readonly started: number;
  readonly port: () => number;
  readonly clients: () => number;
  commands: number;
}

/** One client, as commands see it. */
export interface ClientState {
  readonly id: number;
  name: string;
  closing: boolean;
}

export interface CommandContext {
  readonly keys: Keyspace;
  readonly reply: ReplyWriter;
  readonly facts: ServerFacts;
  readonly client: ClientState;
  /** The command's name in lower case. */
  name: string;
}

/** A command: least number of arguments with its name, most (0: no limit), and what it does. */
export interface Command {
  readonly least: number;
  readonly most: number;
  readonly run: (context: CommandContext, args: Arguments) => void;
}

export function command(least: number, most: number, run: Command['run']): Command {
  return { least, most, run };
}

export function arity(name: string): ReplyError {
  return new ReplyError(`ERR wrong number of arguments for '${name}' command`);
}

export function integer(argument: Uint8Array, error: string = NOT_INTEGER): bigint {
  const value = parseInteger(argument);
  if (value === null) throw new ReplyError(error);
  return value;
}

/** An integer as a number; those beyond what a number holds are out of range for every use here. */
export function int(argument: Uint8Array, error: string = NOT_INTEGER): number {
  const value = Number(integer(argument, error));
  if (!Number.isSafeInteger(value)) throw new ReplyError(error);
  return value;
}

export function word(argument: Uint8Array): string {
  return latin1(argument).toUpperCase();
}

/** The string of a key; null if there is none. Throws WRONGTYPE. */
export function stringOf(item: Item | null): Uint8Array | null {
  if (item === null) return null;
  if (item.kind !== KIND.STRING) throw new ReplyError(WRONG_TYPE);
  return item.value;
}

/** The hash of a key; empty if there is none. Throws WRONGTYPE. */
export function hashOf(keys: Keyspace, key: Uint8Array): { fields: Fields; item: Item | null } {
  const item = keys.get(key);
  if (item !== null && item.kind !== KIND.HASH) throw new ReplyError(WRONG_TYPE);
  return { fields: item === null ? new Map() : decodeFields(item.value), item };
}

/** Store a hash as it is now; an empty one is no key. */
export function putHash(keys: Keyspace, key: Uint8Array, fields: Fields, item: Item | null): void {
  if (fields.size === 0) keys.delete(key);
  else keys.put(key, encodeFields(fields), KIND.HASH, item?.expiry ?? 0);
}

/**
 * A glob pattern of Redis as a regular expression over Latin-1 text. It is built from the pattern's bytes,
 * and a run of stars is one star, so that matching takes bounded time.
 */
export function glob(pattern: Uint8Array): (key: Uint8Array) => boolean {
  const text = latin1(pattern);
  const parts: string[] = [];
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === '*') {
      if (parts.at(-1) !== STAR) parts.push(STAR);
    } else if (c === '?') parts.push('[^]');
    else if (c === '[') {
      const end = text.indexOf(']', i + 1);
      const inside = text.slice(i + 1, end < 0 ? text.length : end);
      i = end < 0 ? text.length : end;
      parts.push(classOf(inside));
    } else if (c === '\\' && i + 1 < text.length) parts.push(quote(text[++i]!));
    else parts.push(quote(c));
  }
  const pieces = split(parts);
  return (key) => matchPieces(latin1(key), pieces);
}

const STAR = '*';

function quote(c: string): string {
  return c.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

function classOf(inside: string): string {
  const negated = inside.startsWith('^');
  const body = (negated ? inside.slice(1) : inside).replace(/[\\\]^[]/g, '\\$&');
  if (body === '') return negated ? '[^]' : '(?!)';
  return (
    `[${negated ? '^' : ''}` +
    `${body.replace(/(.)-(.)/g, (_all, a: string, b: string) => (a <= b ? `${a}-${b}` : `${b}-${a}`))}]`
  );
}

/** Between stars: regular expressions of fixed length, matched leftmost. */
interface Piece {
  readonly match: RegExp;
  readonly length: number;
}

function split(parts: readonly string[]): readonly (Piece | null)[] {
  const pieces: (Piece | null)[] = [];
  let run: string[] = [];
  const flush = (): void => {
    if (run.length > 0) pieces.push({ match: new RegExp(run.join(''), 'g'), length: run.length });
    run = [];
  };
  for (const part of parts) {
    if (part === STAR) {
      flush();
      pieces.push(null);
    } else run.push(part);
  }
  flush();
  return pieces;
}

/** Every piece has a fixed length, so the first match of each is enough: no backtracking. */
function matchPieces(text: string, pieces: readonly (Piece | null)[]): boolean {
  let at = 0;
  let anywhere = false;
  for (const [i, piece] of pieces.entries()) {
    if (piece === null) {
      anywhere = true;
      continue;
    }
    if (anywhere && i === pieces.length - 1) at = Math.max(at, text.length - piece.length);
    piece.match.lastIndex = at;
    const found = piece.match.exec(text);
    if (found === null || (!anywhere && found.index !== at)) return false;
    if (anywhere && i === pieces.length - 1 && found.index + piece.length !== text.length) return false;
    at = found.index + piece.length;
    anywhere = false;
  }
  return anywhere || at === text.length;
}

// -------------------------------------------------------------------------------------------------- decimals

/** A decimal number as digits and a power of ten; null if it is none. */
export function decimal(argument: Uint8Array): { digits: bigint; scale: number } | null {
  const match = /^([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d{1,3}))?$/i.exec(latin1(argument));
  if (match === null) return null;
  const [, sign, whole = '', fraction = '', exponent = '0'] = match;
  if (whole + fraction === '' || whole.length + fraction.length > 400) return null;
  const digits = BigInt((sign === '-' ? '-' : '') + (whole + fraction));
  const scale = fraction.length - Number(exponent);
  return scale >= 0 ? { digits, scale } : { digits: digits * 10n ** BigInt(-scale), scale: 0 };
}

/** The sum of two decimals with at most 17 digits behind the point, and without zeros at the end. */
export function addDecimals(
  a: { digits: bigint; scale: number },
  b: { digits: bigint; scale: number },
): string {
  const scale = Math.max(a.scale, b.scale);
  let sum = a.digits * 10n ** BigInt(scale - a.scale) + b.digits * 10n ** BigInt(scale - b.scale);
  const most = Math.min(scale, 17);
  if (scale > most) {
    const unit = 10n ** BigInt(scale - most);
    const half = unit / 2n;
    sum = (sum + (sum < 0n ? -half : half)) / unit;
  }
  const text = (sum < 0n ? -sum : sum).toString().padStart(most + 1, '0');
  const whole = text.slice(0, text.length - most);
  const fraction = text.slice(text.length - most).replace(/0+$/, '');
  const out = fraction === '' ? whole : `${whole}.${fraction}`;
  return sum < 0n && out !== '0' ? `-${out}` : out;
}

// ---------------------------------------------------------------------------------------------------- expiry

const MOST_MS = 2n ** 63n - 1n;

/** The moment that an option or command names, in milliseconds since 1970. */
export function moment(
  context: CommandContext,
  argument: Uint8Array,
  unit: 's' | 'ms',
  relative: boolean,
): number {
  const { name, keys } = context;
  const invalid = `ERR invalid expire time in '${name}' command`;
  let ms = integer(argument);
  if (unit === 's') {
    if (ms > MOST_MS / 1000n || ms < -(MOST_MS / 1000n)) throw new ReplyError(invalid);
    ms *= 1000n;
  }
  if (relative) ms += BigInt(Math.floor(keys.now()));
  if (ms > MOST_MS) throw new ReplyError(invalid);
  return Number(ms);
}
