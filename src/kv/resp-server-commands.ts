/** Commands of the RESP edge about the connection and the server. */
import { latin1 } from './keyspace.ts';
import { ReplyError, type Arguments } from './resp.ts';
import { command, int, SYNTAX, word, type Command, type CommandContext } from './resp-support.ts';

/** The version whose answers the edge gives. */
const REDIS_VERSION = '7.0.15';

function hello(context: CommandContext, args: Arguments): void {
  const { reply, client } = context;
  if (args.length > 1) {
    const version = int(args[1]!, 'ERR Protocol version is not an integer or out of range');
    if (version !== 2 && version !== 3) throw new ReplyError('NOPROTO unsupported protocol version');
    let name: string | null = null;
    for (let i = 2; i < args.length; i++) {
      if (word(args[i]!) !== 'SETNAME' || i + 1 >= args.length)
        throw new ReplyError(`ERR Syntax error in HELLO option '${latin1(args[i]!)}'`);
      name = latin1(args[++i]!);
    }
    reply.version = version;
    if (name !== null) client.name = name;
  }
  reply.map(7);
  reply.bulk('server').bulk('redis').bulk('version').bulk(REDIS_VERSION);
  reply.bulk('proto').integer(reply.version).bulk('id').integer(client.id);
  reply.bulk('mode').bulk('standalone').bulk('role').bulk('master').bulk('modules').array(0);
}

function clientCommand({ reply, client }: CommandContext, args: Arguments): void {
  const what = word(args[1]!);
  if (what === 'ID' && args.length === 2) reply.integer(client.id);
  else if (what === 'GETNAME' && args.length === 2) reply.bulkOrNil(client.name === '' ? null : client.name);
  else if (what === 'SETNAME' && args.length === 3) {
    const name = latin1(args[2]!);
    if (/[^!-~]/.test(name))
      throw new ReplyError('ERR Client names cannot contain spaces, newlines or special characters.');
    client.name = name;
    reply.ok();
  } else throw unknownSubcommand('CLIENT', args);
}

function unknownSubcommand(name: string, args: Arguments): ReplyError {
  return new ReplyError(`ERR unknown subcommand '${latin1(args[1]!)}'. Try ${name} HELP.`);
}

function config({ reply, keys }: CommandContext, args: Arguments): void {
  const what = word(args[1]!);
  if (what === 'RESETSTAT') return void reply.ok();
  if (what !== 'GET' || args.length < 3) throw unknownSubcommand('CONFIG', args);
  const values: Readonly<Record<string, string>> = {
    appendonly: 'no',
    databases: '1',
    maxmemory: String(keys.table.geometry.octets),
    'maxmemory-policy': 'allkeys-lru',
    save: '',
  };
  const wanted = args.slice(2).map((argument) => latin1(argument).toLowerCase());
  const found = Object.entries(values).filter(([name]) => wanted.includes(name) || wanted.includes('*'));
  reply.map(found.length);
  for (const [name, value] of found) reply.bulk(name).bulk(value);
}

function info({ reply, keys, facts }: CommandContext): void {
  const { keys: count, evicted, expired, hits, misses } = keys.table.counters;
  const lines = [
    '# Server',
    `redis_version:${REDIS_VERSION}`,
    'redis_mode:standalone',
    `process_id:${process.pid}`,
    `tcp_port:${facts.port()}`,
    `uptime_in_seconds:${Math.floor((keys.now() - facts.started) / 1000)}`,
    '',
    '# Clients',
    `connected_clients:${facts.clients()}`,
    '',
    '# Memory',
    `maxmemory:${keys.table.geometry.octets}`,
    '',
    '# Stats',
    `total_commands_processed:${facts.commands}`,
    `keyspace_hits:${hits}`,
    `keyspace_misses:${misses}`,
    `evicted_keys:${evicted}`,
    `expired_keys:${expired}`,
    '',
    '# Replication',
    'role:master',
    '',
    '# Keyspace',
    ...(count === 0 ? [] : [`db0:keys=${count},expires=0,avg_ttl=0`]),
    '',
  ];
  reply.bulk(lines.join('\r\n'));
}

function flush({ keys, reply }: CommandContext, args: Arguments): void {
  if (args.length > 2 || (args.length === 2 && !['SYNC', 'ASYNC'].includes(word(args[1]!))))
    throw new ReplyError(SYNTAX);
  keys.clear();
  reply.ok();
}

export const SERVER_COMMANDS: Readonly<Record<string, Command>> = {
  PING: command(1, 2, ({ reply }, args) => {
    if (args.length === 2) reply.bulk(args[1]!);
    else reply.simple('PONG');
  }),
  ECHO: command(2, 2, ({ reply }, args) => void reply.bulk(args[1]!)),
  QUIT: command(1, 0, ({ reply, client }) => {
    client.closing = true;
    reply.ok();
  }),
  SELECT: command(2, 2, ({ reply }, args) => {
    const index = int(args[1]!);
    if (index !== 0) throw new ReplyError('ERR DB index is out of range');
    reply.ok();
  }),
  AUTH: command(2, 3, (_context, args) => {
    if (args.length === 3)
      throw new ReplyError('WRONGPASS invalid username-password pair or user is disabled.');
    throw new ReplyError(
      'ERR AUTH <password> called without any password configured for the default user. Are you sure ' +
        'your configuration is correct?',
    );
  }),
  HELLO: command(1, 0, hello),
  CLIENT: command(2, 0, clientCommand),
  CONFIG: command(2, 0, config),
  COMMAND: command(1, 0, ({ reply }, args) => {
    const what = args.length < 2 ? '' : word(args[1]!);
    if (what === 'COUNT') reply.integer(COMMAND_COUNT.value);
    else if (what === 'DOCS') reply.map(0);
    else if (what === '') reply.array(0);
    else throw unknownSubcommand('COMMAND', args);
  }),
  DBSIZE: command(1, 1, ({ keys, reply }) => void reply.integer(keys.table.counters.keys)),
  FLUSHDB: command(1, 0, flush),
  FLUSHALL: command(1, 0, flush),
  INFO: command(1, 0, info),
  TIME: command(1, 1, ({ keys, reply }) => {
    const now = keys.now();
    reply.array(2).bulk(String(Math.floor(now / 1000)));
    reply.bulk(String(Math.floor((now % 1000) * 1000)));
  }),
};

/** Number of commands, filled in by the table of all. */
export const COMMAND_COUNT = { value: 0 };
