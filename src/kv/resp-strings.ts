/** Commands of the RESP edge on strings. */
import { Buffer } from 'node:buffer';
import { fitsInteger, latin1, parseInteger } from './keyspace.ts';
import { KIND } from './layout.ts';
import { ReplyError, type Arguments } from './resp.ts';
import {
  addDecimals,
  arity,
  command,
  decimal,
  int,
  integer,
  moment,
  NOT_FLOAT,
  NOT_INTEGER,
  stringOf,
  SYNTAX,
  word,
  type Command,
  type CommandContext,
} from './resp-support.ts';

const TOO_LONG = 'ERR string exceeds maximum allowed size (proto-max-bulk-len)';
const EMPTY = new Uint8Array(0);

/** Expiry options of SET and GETEX; each may be given once. */
const EXPIRY: Readonly<Record<string, readonly ['s' | 'ms', boolean]>> = {
  EX: ['s', true],
  PX: ['ms', true],
  EXAT: ['s', false],
  PXAT: ['ms', false],
};

interface SetOptions {
  expiry: number | 'keep' | 'none';
  condition: 'NX' | 'XX' | null;
  get: boolean;
}

function setOptions(context: CommandContext, args: Arguments): SetOptions {
  const options: SetOptions = { expiry: 'none', condition: null, get: false };
  let [unit, at] = ['', 0];
  for (let i = 3; i < args.length; i++) {
    const name = word(args[i]!);
    if ((name === 'NX' || name === 'XX') && (options.condition ?? name) === name) options.condition = name;
    else if (name === 'GET') options.get = true;
    else if (name === 'KEEPTTL' && unit === '') [unit, options.expiry] = [name, 'keep'];
    else if (Object.hasOwn(EXPIRY, name) && unit === '' && i + 1 < args.length) [unit, at] = [name, ++i];
    else throw new ReplyError(SYNTAX);
  }
  if (Object.hasOwn(EXPIRY, unit)) options.expiry = positive(context, args[at]!, ...EXPIRY[unit]!);
  return options;
}

/** A moment from a time that must be above 0. */
function positive(
  context: CommandContext,
  argument: Uint8Array,
  unit: 's' | 'ms',
  relative: boolean,
): number {
  if (integer(argument) <= 0n) throw new ReplyError(`ERR invalid expire time in '${context.name}' command`);
  return moment(context, argument, unit, relative);
}

function set(context: CommandContext, args: Arguments): void {
  const { keys, reply } = context;
  const [, key, value] = args as [Buffer, Buffer, Buffer];
  const { expiry, condition, get } = setOptions(context, args);
  const before = keys.peek(key);
  const old = get ? stringOf(before) : null;
  const isAllowed = condition === null || (condition === 'NX') === (before === null);
  if (isAllowed) {
    const time = expiry === 'keep' ? (before?.expiry ?? 0) : expiry === 'none' ? 0 : expiry;
    keys.put(key, value, KIND.STRING, time);
  }
  if (get) reply.bulkOrNil(old);
  else if (isAllowed) reply.ok();
  else reply.nil();
}

function setWithTime(unit: 's' | 'ms') {
  return (context: CommandContext, args: Arguments): void => {
    const expiry = positive(context, args[2]!, unit, true);
    context.keys.put(args[1]!, args[3]!, KIND.STRING, expiry);
    context.reply.ok();
  };
}

function getEx(context: CommandContext, args: Arguments): void {
  const { keys, reply } = context;
  const key = args[1]!;
  let expiry: number | null = null;
  if (args.length === 3 && word(args[2]!) === 'PERSIST') expiry = 0;
  else if (args.length === 4 && Object.hasOwn(EXPIRY, word(args[2]!)))
    expiry = positive(context, args[3]!, ...EXPIRY[word(args[2]!)]!);
  else if (args.length > 2) throw new ReplyError(SYNTAX);
  const item = keys.get(key);
  const value = stringOf(item);
  reply.bulkOrNil(value);
  if (item === null || expiry === null) return;
  if (expiry !== 0 && expiry <= keys.now()) keys.delete(key);
  else if (expiry !== item.expiry) keys.put(key, item.value, KIND.STRING, expiry, item.flags);
}

function addTo(sign: bigint, by: (args: Arguments) => bigint) {
  return (context: CommandContext, args: Arguments): void => {
    const { keys, reply } = context;
    const key = args[1]!;
    const amount = by(args) * sign;
    const inPlace = keys.addToCounter(key, amount);
    if (inPlace !== null) return void reply.integer(inPlace);
    const item = keys.get(key);
    const old = stringOf(item);
    const value = old === null ? 0n : parseInteger(old);
    if (value === null) throw new ReplyError(NOT_INTEGER);
    const sum = value + amount;
    if (!fitsInteger(sum)) throw new ReplyError('ERR increment or decrement would overflow');
    keys.put(key, Buffer.from(sum.toString()), KIND.STRING, item?.expiry ?? 0, item?.flags ?? 0);
    reply.integer(sum);
  };
}

/** What DECRBY takes: its negative has to be an integer too. */
function decrement(args: Arguments): bigint {
  const by = integer(args[2]!);
  if (!fitsInteger(-by)) throw new ReplyError('ERR decrement would overflow');
  return by;
}

function addFloat({ keys, reply }: CommandContext, args: Arguments): void {
  const key = args[1]!;
  const item = keys.get(key);
  const old = stringOf(item);
  const before = old === null ? { digits: 0n, scale: 0 } : decimal(old);
  const by = decimal(args[2]!);
  if (before === null || by === null) throw new ReplyError(NOT_FLOAT);
  const sum = addDecimals(before, by);
  keys.put(key, Buffer.from(sum), KIND.STRING, item?.expiry ?? 0);
  reply.bulk(sum);
}

function append({ keys, reply }: CommandContext, args: Arguments): void {
  const item = keys.get(args[1]!);
  const old = stringOf(item) ?? EMPTY;
  const value = Buffer.concat([old, args[2]!]);
  if (value.length > keys.table.longestValue) throw new ReplyError(TOO_LONG);
  keys.put(args[1]!, value, KIND.STRING, item?.expiry ?? 0);
  reply.integer(value.length);
}

function getRange({ keys, reply }: CommandContext, args: Arguments): void {
  const [first, last] = [int(args[2]!), int(args[3]!)];
  const value = stringOf(keys.get(args[1]!)) ?? EMPTY;
  const { length } = value;
  if (first < 0 && last < 0 && first > last) return void reply.bulk(EMPTY);
  const from = first < 0 ? Math.max(0, length + first) : first;
  const to = Math.min(length - 1, last < 0 ? Math.max(0, length + last) : last);
  reply.bulk(from > to || length === 0 ? EMPTY : value.subarray(from, to + 1));
}

function setRange({ keys, reply }: CommandContext, args: Arguments): void {
  const offset = int(args[2]!);
  const part = args[3]!;
  if (offset < 0) throw new ReplyError('ERR offset is out of range');
  const item = keys.get(args[1]!);
  const old = stringOf(item) ?? EMPTY;
  if (part.length === 0) return void reply.integer(old.length);
  const length = Math.max(old.length, offset + part.length);
  if (length > keys.table.longestValue) throw new ReplyError(TOO_LONG);
  const value = Buffer.alloc(length);
  value.set(old);
  value.set(part, offset);
  keys.put(args[1]!, value, KIND.STRING, item?.expiry ?? 0);
  reply.integer(length);
}

function mget({ keys, reply }: CommandContext, args: Arguments): void {
  reply.array(args.length - 1);
  for (const key of args.slice(1)) {
    const item = keys.get(key);
    reply.bulkOrNil(item?.kind === KIND.STRING ? item.value : null);
  }
}

function mset(onlyNew: boolean) {
  return (context: CommandContext, args: Arguments): void => {
    const { keys, reply, name } = context;
    if (args.length % 2 === 0) throw arity(name);
    const taken = onlyNew && args.some((key, i) => i % 2 === 1 && keys.peek(key) !== null);
    for (let i = 1; i < args.length && !taken; i += 2) keys.put(args[i]!, args[i + 1]!, KIND.STRING);
    if (onlyNew) reply.integer(taken ? 0 : 1);
    else reply.ok();
  };
}

const BIT_OFFSET = 'ERR bit offset is not an integer or out of range';

function bitOffset(argument: Uint8Array): number {
  const at = int(argument, BIT_OFFSET);
  if (at < 0 || at >= 2 ** 32) throw new ReplyError(BIT_OFFSET);
  return at;
}

function setBit({ keys, reply }: CommandContext, args: Arguments): void {
  const at = bitOffset(args[2]!);
  const bit = latin1(args[3]!);
  if (bit !== '0' && bit !== '1') throw new ReplyError('ERR bit is not an integer or out of range');
  const item = keys.get(args[1]!);
  const old = stringOf(item) ?? EMPTY;
  const length = Math.max(old.length, (at >>> 3) + 1);
  if (length > keys.table.longestValue) throw new ReplyError(TOO_LONG);
  const value = Buffer.alloc(length);
  value.set(old);
  const mask = 0x80 >> (at & 7);
  const was = (value[at >>> 3]! & mask) !== 0;
  if (bit === '1') value[at >>> 3]! |= mask;
  else value[at >>> 3]! &= ~mask;
  keys.put(args[1]!, value, KIND.STRING, item?.expiry ?? 0);
  reply.integer(was ? 1 : 0);
}

function getBit({ keys, reply }: CommandContext, args: Arguments): void {
  const at = bitOffset(args[2]!);
  const octet = (stringOf(keys.get(args[1]!)) ?? EMPTY)[at >>> 3] ?? 0;
  reply.integer((octet >> (7 - (at & 7))) & 1);
}

export const STRING_COMMANDS: Readonly<Record<string, Command>> = {
  GET: command(2, 2, ({ keys, reply }, args) => void reply.bulkOrNil(stringOf(keys.get(args[1]!)))),
  SET: command(3, 0, set),
  SETNX: command(3, 3, ({ keys, reply }, args) => {
    const isNew = keys.peek(args[1]!) === null;
    if (isNew) keys.put(args[1]!, args[2]!, KIND.STRING);
    reply.integer(isNew ? 1 : 0);
  }),
  SETEX: command(4, 4, setWithTime('s')),
  PSETEX: command(4, 4, setWithTime('ms')),
  GETSET: command(3, 3, ({ keys, reply }, args) => {
    const old = stringOf(keys.get(args[1]!));
    keys.put(args[1]!, args[2]!, KIND.STRING);
    reply.bulkOrNil(old);
  }),
  GETDEL: command(2, 2, ({ keys, reply }, args) => {
    reply.bulkOrNil(stringOf(keys.get(args[1]!)));
    keys.delete(args[1]!);
  }),
  GETEX: command(2, 0, getEx),
  APPEND: command(3, 3, append),
  STRLEN: command(2, 2, ({ keys, reply }, args) => {
    reply.integer((stringOf(keys.get(args[1]!)) ?? EMPTY).length);
  }),
  GETRANGE: command(4, 4, getRange),
  SUBSTR: command(4, 4, getRange),
  SETRANGE: command(4, 4, setRange),
  MGET: command(2, 0, mget),
  MSET: command(3, 0, mset(false)),
  MSETNX: command(3, 0, mset(true)),
  INCR: command(
    2,
    2,
    addTo(1n, () => 1n),
  ),
  DECR: command(
    2,
    2,
    addTo(-1n, () => 1n),
  ),
  INCRBY: command(
    3,
    3,
    addTo(1n, (args) => integer(args[2]!)),
  ),
  DECRBY: command(3, 3, addTo(-1n, decrement)),
  INCRBYFLOAT: command(3, 3, addFloat),
  SETBIT: command(4, 4, setBit),
  GETBIT: command(3, 3, getBit),
};
