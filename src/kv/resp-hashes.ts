/** Commands of the RESP edge on hashes. */
import { Buffer } from 'node:buffer';
import { fitsInteger, latin1, parseInteger, type Fields } from './keyspace.ts';
import { ReplyError, type Arguments } from './resp.ts';
import {
  addDecimals,
  arity,
  command,
  decimal,
  glob,
  hashOf,
  int,
  integer,
  NOT_FLOAT,
  putHash,
  SYNTAX,
  word,
  type Command,
  type CommandContext,
} from './resp-support.ts';

const octets = (field: string): Buffer => Buffer.from(field, 'latin1');

function hset(says: 'count' | 'ok') {
  return (context: CommandContext, args: Arguments): void => {
    const { keys, reply, name } = context;
    if (args.length % 2 === 1) throw arity(name);
    const { fields, item } = hashOf(keys, args[1]!);
    const before = fields.size;
    for (let i = 2; i < args.length; i += 2) fields.set(latin1(args[i]!), args[i + 1]!);
    putHash(keys, args[1]!, fields, item);
    if (says === 'count') reply.integer(fields.size - before);
    else reply.ok();
  };
}

function hdel({ keys, reply }: CommandContext, args: Arguments): void {
  const { fields, item } = hashOf(keys, args[1]!);
  let gone = 0;
  for (const field of args.slice(2)) if (fields.delete(latin1(field))) gone++;
  if (gone > 0) putHash(keys, args[1]!, fields, item);
  reply.integer(gone);
}

function hincrby({ keys, reply }: CommandContext, args: Arguments): void {
  const by = integer(args[3]!);
  const { fields, item } = hashOf(keys, args[1]!);
  const field = latin1(args[2]!);
  const old = fields.get(field);
  const value = old === undefined ? 0n : parseInteger(old);
  if (value === null) throw new ReplyError('ERR hash value is not an integer');
  if (!fitsInteger(value + by)) throw new ReplyError('ERR increment or decrement would overflow');
  fields.set(field, Buffer.from((value + by).toString()));
  putHash(keys, args[1]!, fields, item);
  reply.integer(value + by);
}

function hincrbyfloat({ keys, reply }: CommandContext, args: Arguments): void {
  const by = decimal(args[3]!);
  if (by === null) throw new ReplyError(NOT_FLOAT);
  const { fields, item } = hashOf(keys, args[1]!);
  const field = latin1(args[2]!);
  const old = fields.get(field);
  const before = old === undefined ? { digits: 0n, scale: 0 } : decimal(old);
  if (before === null) throw new ReplyError('ERR hash value is not a float');
  const sum = addDecimals(before, by);
  fields.set(field, Buffer.from(sum));
  putHash(keys, args[1]!, fields, item);
  reply.bulk(sum);
}

function hscan({ keys, reply }: CommandContext, args: Arguments): void {
  if (!/^\d{1,20}$/.test(latin1(args[2]!))) throw new ReplyError('ERR invalid cursor');
  let matches = (_field: Uint8Array): boolean => true;
  for (let i = 3; i < args.length; i += 2) {
    const option = word(args[i]!);
    const value = args[i + 1];
    if (value === undefined) throw new ReplyError(SYNTAX);
    if (option === 'MATCH') matches = glob(value);
    else if (option !== 'COUNT' || int(value) < 1) throw new ReplyError(SYNTAX);
  }
  const { fields } = hashOf(keys, args[1]!);
  const found = [...fields].filter(([field]) => matches(octets(field)));
  reply
    .array(2)
    .bulk('0')
    .array(2 * found.length);
  for (const [field, value] of found) reply.bulk(octets(field)).bulk(value);
}

function hrandfield({ keys, reply }: CommandContext, args: Arguments): void {
  const all = [...hashOf(keys, args[1]!).fields];
  if (args.length === 2) {
    const one = all[Math.floor(Math.random() * all.length)];
    reply.bulkOrNil(one === undefined ? null : octets(one[0]));
    return;
  }
  const withValues = args.length === 4;
  if (withValues && word(args[3]!) !== 'WITHVALUES') throw new ReplyError(SYNTAX);
  const count = int(args[2]!);
  if (Math.abs(count) > 1_000_000) throw new ReplyError('ERR value is out of range');
  const picked =
    count >= 0
      ? all.toSorted(() => Math.random() - 0.5).slice(0, count)
      : Array.from(
          { length: all.length === 0 ? 0 : -count },
          () => all[Math.floor(Math.random() * all.length)]!,
        );
  if (withValues && reply.version === 3) {
    reply.array(picked.length);
    for (const [field, value] of picked) reply.array(2).bulk(octets(field)).bulk(value);
    return;
  }
  reply.array(withValues ? 2 * picked.length : picked.length);
  for (const [field, value] of picked) {
    reply.bulk(octets(field));
    if (withValues) reply.bulk(value);
  }
}

function list(show: (fields: Fields, context: CommandContext) => void) {
  return (context: CommandContext, args: Arguments): void =>
    show(hashOf(context.keys, args[1]!).fields, context);
}

export const HASH_COMMANDS: Readonly<Record<string, Command>> = {
  HSET: command(4, 0, hset('count')),
  HMSET: command(4, 0, hset('ok')),
  HSETNX: command(4, 4, ({ keys, reply }, args) => {
    const { fields, item } = hashOf(keys, args[1]!);
    const isNew = !fields.has(latin1(args[2]!));
    if (isNew) {
      fields.set(latin1(args[2]!), args[3]!);
      putHash(keys, args[1]!, fields, item);
    }
    reply.integer(isNew ? 1 : 0);
  }),
  HGET: command(3, 3, ({ keys, reply }, args) => {
    reply.bulkOrNil(hashOf(keys, args[1]!).fields.get(latin1(args[2]!)) ?? null);
  }),
  HMGET: command(3, 0, ({ keys, reply }, args) => {
    const { fields } = hashOf(keys, args[1]!);
    reply.array(args.length - 2);
    for (const field of args.slice(2)) reply.bulkOrNil(fields.get(latin1(field)) ?? null);
  }),
  HGETALL: command(
    2,
    2,
    list((fields, { reply }) => {
      reply.map(fields.size);
      for (const [field, value] of fields) reply.bulk(octets(field)).bulk(value);
    }),
  ),
  HKEYS: command(
    2,
    2,
    list((fields, { reply }) => {
      reply.array(fields.size);
      for (const field of fields.keys()) reply.bulk(octets(field));
    }),
  ),
  HVALS: command(
    2,
    2,
    list((fields, { reply }) => {
      reply.array(fields.size);
      for (const value of fields.values()) reply.bulk(value);
    }),
  ),
  HLEN: command(
    2,
    2,
    list((fields, { reply }) => void reply.integer(fields.size)),
  ),
  HEXISTS: command(3, 3, ({ keys, reply }, args) => {
    reply.integer(hashOf(keys, args[1]!).fields.has(latin1(args[2]!)) ? 1 : 0);
  }),
  HSTRLEN: command(3, 3, ({ keys, reply }, args) => {
    reply.integer(hashOf(keys, args[1]!).fields.get(latin1(args[2]!))?.length ?? 0);
  }),
  HDEL: command(3, 0, hdel),
  HINCRBY: command(4, 4, hincrby),
  HINCRBYFLOAT: command(4, 4, hincrbyfloat),
  HSCAN: command(3, 0, hscan),
  HRANDFIELD: command(2, 4, hrandfield),
};
