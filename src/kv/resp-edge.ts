/** The RESP edge: a server that clients of Redis use, with strings, hashes, expiry and transactions. */
import { Buffer } from 'node:buffer';
import { createServer, type Server, type Socket } from 'node:net';
import { IwarpError } from '../base/errors.ts';
import { BUFFER_OCTETS, type EdgeMemory } from './edge-memory.ts';
import { latin1, type Keyspace } from './keyspace.ts';
import { MAX_KEY } from './layout.ts';
import { ReplyError, RequestParser, ReplyWriter, type Arguments } from './resp.ts';
import { HASH_COMMANDS } from './resp-hashes.ts';
import { KEY_COMMANDS } from './resp-keys.ts';
import { COMMAND_COUNT, SERVER_COMMANDS } from './resp-server-commands.ts';
import { STRING_COMMANDS } from './resp-strings.ts';
import { arity, type ClientState, type Command, type ServerFacts } from './resp-support.ts';

const COMMANDS: ReadonlyMap<string, Command> = new Map(
  Object.entries({ ...STRING_COMMANDS, ...HASH_COMMANDS, ...KEY_COMMANDS, ...SERVER_COMMANDS }),
);
/** Commands that a transaction does not hold back. */
const AT_ONCE: ReadonlySet<string> = new Set(['MULTI', 'EXEC', 'DISCARD', 'WATCH', 'RESET', 'QUIT']);
COMMAND_COUNT.value = COMMANDS.size + AT_ONCE.size;

/** Replies that may wait for a client that does not read; then its requests wait too. */
const MOST_UNREAD = 1 << 20;
/** Commands of one transaction, and bytes of their arguments. */
const MOST_QUEUED = 100_000;
/** Keys that one client may watch at a time. */
const MOST_WATCHED = 10_000;

/** The text of an error that a change met. */
function refusal(error: unknown): string {
  if (error instanceof ReplyError) return error.message;
  if (!(error instanceof IwarpError)) throw error;
  if (error.code === 'ERR_LIMIT') return "OOM command not allowed when used memory > 'maxmemory'.";
  return `ERR ${error.message}`;
}

/** One client's commands. */
export class RespSession {
  readonly reply: ReplyWriter = new ReplyWriter();
  readonly client: ClientState;
  readonly #keys: Keyspace;
  readonly #facts: ServerFacts;
  /** Commands held back since MULTI; null outside of a transaction. */
  #queued: Arguments[] | null = null;
  #queuedOctets = 0;
  #isBroken = false;
  /** Versions of watched keys; 0 for one that was not there. */
  readonly #watched = new Map<string, number>();

  constructor(keys: Keyspace, facts: ServerFacts, client: ClientState) {
    this.#keys = keys;
    this.#facts = facts;
    this.client = client;
  }

  /** Bytes of memory that a transaction takes. */
  get held(): number {
    return this.#queuedOctets;
  }

  /** Carry a request out, or hold it back in a transaction; the reply is in `reply`. */
  execute(args: Arguments): void {
    this.#facts.commands++;
    this.reply.limit = this.reply.octets + this.#keys.table.geometry.octets;
    const name = latin1(args[0]!).toUpperCase();
    try {
      if (AT_ONCE.has(name) && name !== 'QUIT') this.#transaction(name, args);
      else if (this.#queued === null || name === 'QUIT') this.#run(name, args);
      else this.#hold(name, args);
    } catch (error) {
      this.reply.error(refusal(error));
    }
  }

  #lookUp(name: string, args: Arguments): Command {
    const found = COMMANDS.get(name) ?? (name === 'UNWATCH' ? UNWATCH : undefined);
    if (found === undefined) {
      const shown = args.slice(1).map((argument) => `'${latin1(argument.subarray(0, 128))}' `);
      let text = '';
      for (const one of shown) if (text.length < 128) text += one;
      throw new ReplyError(
        `ERR unknown command '${latin1(args[0]!.subarray(0, 128))}', with args beginning with: ${text}`,
      );
    }
    const { least, most } = found;
    if (args.length < least || (most > 0 && args.length > most)) throw arity(name.toLowerCase());
    return found;
  }

  #run(name: string, args: Arguments): void {
    const found = this.#lookUp(name, args);
    if (found === UNWATCH) this.#watched.clear();
    const { reply, client } = this;
    const { mark } = reply;
    try {
      found.run({ keys: this.#keys, facts: this.#facts, reply, client, name: name.toLowerCase() }, args);
    } catch (error) {
      reply.rewind(mark);
      throw error;
    }
  }

  #hold(name: string, args: Arguments): void {
    try {
      this.#lookUp(name, args);
      for (const argument of args) this.#queuedOctets += argument.length + BUFFER_OCTETS;
      const most = this.#keys.table.geometry.octets;
      if (this.#queued!.length >= MOST_QUEUED || this.#queuedOctets > most)
        throw new ReplyError('ERR the transaction is too large');
    } catch (error) {
      this.#isBroken = true;
      throw error;
    }
    this.#queued!.push(args);
    this.reply.simple('QUEUED');
  }

  #transaction(name: string, args: Arguments): void {
    const lower = name.toLowerCase();
    if (name === 'WATCH' ? args.length < 2 : args.length > 1) {
      if (this.#queued !== null) this.#isBroken = true;
      throw arity(lower);
    }
    if (name === 'MULTI') {
      if (this.#queued !== null) throw new ReplyError('ERR MULTI calls can not be nested');
      this.#queued = [];
      this.reply.ok();
    } else if (name === 'WATCH') {
      if (this.#queued !== null) throw new ReplyError('ERR WATCH inside MULTI is not allowed');
      // A longer key is in no store, so nothing can change it.
      const keys = args.slice(1).filter(({ length }) => length <= MAX_KEY);
      if (this.#watched.size + keys.length > MOST_WATCHED) throw new ReplyError('ERR too many watched keys');
      for (const key of keys) this.#watched.set(latin1(key), this.#versionOf(key));
      this.reply.ok();
    } else if (name === 'DISCARD') {
      if (this.#queued === null) throw new ReplyError('ERR DISCARD without MULTI');
      this.#endTransaction();
      this.reply.ok();
    } else if (name === 'EXEC') this.#exec();
    else {
      this.#endTransaction();
      this.reply.version = 2;
      this.client.name = '';
      this.reply.simple('RESET');
    }
  }

  #exec(): void {
    const queued = this.#queued;
    if (queued === null) throw new ReplyError('ERR EXEC without MULTI');
    const isBroken = this.#isBroken;
    const isStale = [...this.#watched].some(
      ([key, version]) => this.#versionOf(Buffer.from(key, 'latin1')) !== version,
    );
    this.#endTransaction();
    if (isBroken) throw new ReplyError('EXECABORT Transaction discarded because of previous errors.');
    if (isStale) return void this.reply.nilArray();
    this.reply.array(queued.length);
    for (const args of queued) {
      try {
        this.#run(latin1(args[0]!).toUpperCase(), args);
      } catch (error) {
        this.reply.error(refusal(error));
      }
    }
  }

  #endTransaction(): void {
    this.#queued = null;
    this.#queuedOctets = 0;
    this.#isBroken = false;
    this.#watched.clear();
  }

  #versionOf(key: Uint8Array): number {
    return this.#keys.peek(key)?.version ?? 0;
  }
}

const UNWATCH: Command = { least: 1, most: 1, run: ({ reply }) => void reply.ok() };

/** Serves one socket. */
function serve(socket: Socket, session: RespSession, maxBulk: number, memory: EdgeMemory): void {
  const parser = new RequestParser(maxBulk);
  socket.setNoDelay(true);
  socket.on('error', () => undefined); // 'close' follows
  const advance = (): void => {
    const { reply, client } = session;
    while (!client.closing) {
      if (socket.writableLength + reply.octets > MOST_UNREAD) {
        socket.pause();
        break;
      }
      const parsed = parser.next();
      if (parsed.kind === 'more') break;
      if (parsed.kind === 'violation') {
        reply.error(parsed.message);
        client.closing = true;
      } else session.execute(parsed.args);
    }
    if (reply.octets > 0) socket.write(reply.take());
    if (client.closing) socket.end();
    memory.holds(socket, parser.held + session.held + socket.writableLength);
  };
  socket.on('drain', () => {
    socket.resume();
    advance();
  });
  socket.on('data', (bytes: Buffer) => {
    if (session.client.closing) return;
    parser.push(bytes);
    if (!socket.isPaused()) advance();
  });
}

/** A server of the edge, not listening yet. */
export function createRespServer(keys: Keyspace, memory: EdgeMemory): Server {
  let nextId = 1;
  const server = createServer((socket) => {
    const client: ClientState = { id: nextId++, name: '', closing: false };
    serve(socket, new RespSession(keys, facts, client), keys.table.longestValue + 1024, memory);
  });
  memory.watch(server);
  const facts: ServerFacts = {
    started: keys.now(),
    port: () => (server.address() as { port: number } | null)?.port ?? 0,
    clients: () => memory.connections,
    commands: 0,
  };
  return server;
}
