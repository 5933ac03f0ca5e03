/** Commands of the RESP edge on keys of any kind. */
import { latin1, decodeFields, parseInteger } from './keyspace.ts';
import { KIND } from './layout.ts';
import { ReplyError, type Arguments } from './resp.ts';
import {
  command,
  glob,
  int,
  moment,
  SYNTAX,
  word,
  type Command,
  type CommandContext,
} from './resp-support.ts';
import type { Item } from './table.ts';

const kindName = (item: Item | null): string =>
  item === null ? 'none' : item.kind === KIND.HASH ? 'hash' : 'string';

function del({ keys, reply }: CommandContext, args: Arguments): void {
  let gone = 0;
  for (const key of args.slice(1)) if (keys.delete(key)) gone++;
  reply.integer(gone);
}

function exists({ keys, reply }: CommandContext, args: Arguments): void {
  reply.integer(args.slice(1).filter((key) => keys.get(key) !== null).length);
}

type Condition = 'NX' | 'XX' | 'GT' | 'LT';

function conditions(args: Arguments): ReadonlySet<Condition> {
  const set = new Set<Condition>();
  for (const argument of args.slice(3)) {
    const name = word(argument);
    if (!['NX', 'XX', 'GT', 'LT'].includes(name))
      throw new ReplyError(`ERR Unsupported option ${latin1(argument)}`);
    set.add(name as Condition);
  }
  if (set.has('NX') && set.size > 1)
    throw new ReplyError('ERR NX and XX, GT or LT options at the same time are not compatible');
  if (set.has('GT') && set.has('LT'))
    throw new ReplyError('ERR GT and LT options at the same time are not compatible');
  return set;
}

function isMet(wanted: ReadonlySet<Condition>, old: number, expiry: number): boolean {
  if (wanted.has('NX') && old !== 0) return false;
  if (wanted.has('XX') && old === 0) return false;
  // No expiry counts as one that never comes.
  if (wanted.has('GT') && (old === 0 || expiry <= old)) return false;
  return !wanted.has('LT') || old === 0 || expiry < old;
}

function expire(unit: 's' | 'ms', relative: boolean) {
  return (context: CommandContext, args: Arguments): void => {
    const { keys, reply } = context;
    const wanted = conditions(args);
    const expiry = moment(context, args[2]!, unit, relative);
    const item = keys.peek(args[1]!);
    if (item === null || !isMet(wanted, item.expiry, expiry)) return void reply.integer(0);
    if (expiry <= keys.now()) keys.delete(args[1]!);
    else keys.put(args[1]!, item.value, item.kind, expiry, item.flags);
    reply.integer(1);
  };
}

function timeLeft(show: (expiry: number, now: number) => number) {
  return ({ keys, reply }: CommandContext, args: Arguments): void => {
    const item = keys.peek(args[1]!);
    reply.integer(item === null ? -2 : item.expiry === 0 ? -1 : show(item.expiry, keys.now()));
  };
}

function persist({ keys, reply }: CommandContext, args: Arguments): void {
  const item = keys.peek(args[1]!);
  const had = item !== null && item.expiry !== 0;
  if (had) keys.put(args[1]!, item.value, item.kind, 0, item.flags);
  reply.integer(had ? 1 : 0);
}

function rename(onlyNew: boolean) {
  return ({ keys, reply }: CommandContext, args: Arguments): void => {
    const [, from, to] = args as [Buffer, Buffer, Buffer];
    const item = keys.peek(from);
    if (item === null) throw new ReplyError('ERR no such key');
    const isTaken = onlyNew && keys.peek(to) !== null;
    if (!isTaken && !from.equals(to)) {
      keys.put(to, item.value, item.kind, item.expiry, item.flags);
      keys.delete(from);
    }
    if (onlyNew) reply.integer(isTaken ? 0 : 1);
    else reply.ok();
  };
}

function copy({ keys, reply }: CommandContext, args: Arguments): void {
  const [, from, to] = args as [Buffer, Buffer, Buffer];
  let replaces = false;
  for (let i = 3; i < args.length; i++) {
    const option = word(args[i]!);
    if (option === 'REPLACE') replaces = true;
    else if (option === 'DB' && i + 1 < args.length) {
      if (int(args[++i]!) !== 0) throw new ReplyError('ERR DB index is out of range');
    } else throw new ReplyError(SYNTAX);
  }
  if (from.equals(to)) throw new ReplyError('ERR source and destination objects are the same');
  const item = keys.peek(from);
  const copies = item !== null && (replaces || keys.peek(to) === null);
  if (copies) keys.put(to, item.value, item.kind, item.expiry, item.flags);
  reply.integer(copies ? 1 : 0);
}

/** Keys that one call of SCAN looks at unless COUNT says otherwise. */
const SCAN_COUNT = 10;

function scan({ keys, reply }: CommandContext, args: Arguments): void {
  const cursor = latin1(args[1]!);
  if (!/^\d{1,20}$/.test(cursor)) throw new ReplyError('ERR invalid cursor');
  let [count, type] = [SCAN_COUNT, ''];
  let matches = (_key: Uint8Array): boolean => true;
  for (let i = 2; i < args.length; i += 2) {
    const option = word(args[i]!);
    const value = args[i + 1];
    if (value === undefined) throw new ReplyError(SYNTAX);
    if (option === 'MATCH') matches = glob(value);
    else if (option === 'COUNT') count = int(value);
    else if (option === 'TYPE') type = latin1(value).toLowerCase();
    else throw new ReplyError(SYNTAX);
  }
  if (count < 1) throw new ReplyError(SYNTAX);
  const { buckets } = keys.table.geometry;
  const found: Uint8Array[] = [];
  let bucket = Math.min(Number(cursor), buckets);
  for (let looked = 0, empty = 0; bucket < buckets && looked < count && empty < 100 * count; bucket++) {
    const here = keys.table.keysOf(bucket);
    looked += here.length;
    empty++;
    for (const key of here)
      if (matches(key) && (type === '' || kindName(keys.peek(key)) === type)) found.push(key);
  }
  reply
    .array(2)
    .bulk(String(bucket >= buckets ? 0 : bucket))
    .array(found.length);
  for (const key of found) reply.bulk(key);
}

function everyKey({ keys }: CommandContext): Uint8Array[] {
  const all: Uint8Array[] = [];
  for (let bucket = 0; bucket < keys.table.geometry.buckets; bucket++) all.push(...keys.table.keysOf(bucket));
  return all;
}

function encoding(item: Item): string {
  if (item.kind === KIND.HASH) {
    const fields = [...decodeFields(item.value)];
    const isSmall =
      fields.length <= 128 && fields.every(([name, value]) => name.length <= 64 && value.length <= 64);
    return isSmall ? 'listpack' : 'hashtable';
  }
  if (parseInteger(item.value) !== null) return 'int';
  return item.value.length <= 44 ? 'embstr' : 'raw';
}

function object({ keys, reply }: CommandContext, args: Arguments): void {
  const what = word(args[1]!);
  const key = args[2];
  if (!['ENCODING', 'REFCOUNT', 'IDLETIME'].includes(what) || args.length !== 3)
    throw new ReplyError(
      `ERR unknown subcommand or wrong number of arguments for '${latin1(args[1]!)}'. Try OBJECT HELP.`,
    );
  const item = keys.peek(key!);
  if (item === null) return void reply.nil();
  if (what === 'ENCODING') reply.bulk(encoding(item));
  else reply.integer(what === 'REFCOUNT' ? 1 : 0);
}

export const KEY_COMMANDS: Readonly<Record<string, Command>> = {
  DEL: command(2, 0, del),
  UNLINK: command(2, 0, del),
  EXISTS: command(2, 0, exists),
  TOUCH: command(2, 0, exists),
  TYPE: command(2, 2, ({ keys, reply }, args) => void reply.simple(kindName(keys.peek(args[1]!)))),
  EXPIRE: command(3, 0, expire('s', true)),
  PEXPIRE: command(3, 0, expire('ms', true)),
  EXPIREAT: command(3, 0, expire('s', false)),
  PEXPIREAT: command(3, 0, expire('ms', false)),
  TTL: command(
    2,
    2,
    timeLeft((expiry, now) => Math.floor((expiry - now + 500) / 1000)),
  ),
  PTTL: command(
    2,
    2,
    timeLeft((expiry, now) => Math.floor(expiry - now)),
  ),
  EXPIRETIME: command(
    2,
    2,
    timeLeft((expiry) => Math.floor((expiry + 500) / 1000)),
  ),
  PEXPIRETIME: command(
    2,
    2,
    timeLeft((expiry) => expiry),
  ),
  PERSIST: command(2, 2, persist),
  RENAME: command(3, 3, rename(false)),
  RENAMENX: command(3, 3, rename(true)),
  COPY: command(3, 0, copy),
  RANDOMKEY: command(1, 1, (context) => {
    const all = everyKey(context);
    context.reply.bulkOrNil(all[Math.floor(Math.random() * all.length)] ?? null);
  }),
  KEYS: command(2, 2, (context, args) => {
    const found = everyKey(context).filter(glob(args[1]!));
    context.reply.array(found.length);
    for (const key of found) context.reply.bulk(key);
  }),
  SCAN: command(2, 0, scan),
  OBJECT: command(2, 0, object),
};
