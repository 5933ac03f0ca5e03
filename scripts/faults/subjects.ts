/** The programs that the fault matrix compares: one server and one client each, which do the same. */
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { WebSocket, WebSocketServer } from 'ws';
import {
  createClient,
  createServer,
  IwarpError,
  type Connection,
  type EngineKind,
  type RemoteBuffer,
} from '../../src/index.ts';

/** Programs, by the name that the table shows. */
export const SUBJECTS = ['iwarp, thread', 'iwarp, worker', 'ws', 'ws with pings'] as const;
export type Subject = (typeof SUBJECTS)[number];

export const engineOf = (subject: Subject): EngineKind | null =>
  subject === 'iwarp, thread' ? 'thread' : subject === 'iwarp, worker' ? 'worker' : null;

/** Milliseconds that each call may take. */
export const LIMIT = 1500;
/** Silence before a peer is asked for a sign of life, and how long that may take. */
const HEARTBEAT = { interval: 150, timeout: 350 };
const CONNECT_LIMIT = 400;
const CLOSE_LIMIT = 1500;
const BACKOFF = { first: 20, most: 200 };
const BOARD_OCTETS = 4096;
const STREAM_OCTETS = 50_000;
const ignore = (): void => undefined;

/** Answers a request with its reply. */
type Work = (data: Uint8Array) => Uint8Array;

/** Start the server of `subject`; resolves with its port. */
export async function serve(subject: Subject, host: string, port: number, work: Work): Promise<number> {
  const engine = engineOf(subject);
  if (engine === null) return await serveWs(host, port, work);
  const server = await createServer({ engine, heartbeat: HEARTBEAT, onError: ignore }, (connection) => {
    connection.publish('board', connection.allocate(BOARD_OCTETS, 'read-write'));
    void connection.serve((request) => work(request.data)).catch(ignore);
    void echo(connection).catch(ignore);
  }).listen({ host, port });
  return server.address().port;
}

async function echo(connection: Connection): Promise<void> {
  for await (const stream of connection.streams()) stream.pipe(stream);
}

async function serveWs(host: string, port: number, work: Work): Promise<number> {
  const server = new WebSocketServer({ host, port, perMessageDeflate: false });
  server.on('connection', (socket) => {
    socket.on('error', ignore);
    socket.on('message', (data: Buffer) => socket.send(work(data)));
  });
  await once(server, 'listening');
  return (server.address() as { port: number }).port;
}

/** A client under test. */
export interface App {
  /** Settles within {@link LIMIT}. With `repeat` the request may be done twice. */
  call(body: Buffer, repeat: boolean): Promise<Uint8Array>;
  /** Other operations that the program has, each of which settles within {@link LIMIT}. */
  readonly others: Readonly<Record<string, () => Promise<unknown>>>;
  close(): Promise<void>;
}

/** Start the client of `subject`, which connects, and connects again, by itself. */
export function clientOf(subject: Subject, host: string, port: number): App {
  const engine = engineOf(subject);
  return engine === null ? new WsApp(host, port, subject === 'ws with pings') : iwarpApp(engine, host, port);
}

function iwarpApp(engine: EngineKind, host: string, port: number): App {
  const boards = new WeakMap<Connection, RemoteBuffer>();
  const client = createClient({
    host,
    port,
    engine,
    heartbeat: HEARTBEAT,
    connectTimeout: CONNECT_LIMIT,
    reconnect: BACKOFF,
    onConnect: async (connection) => {
      boards.set(connection, await connection.lookup('board', { timeout: CONNECT_LIMIT }));
    },
  });
  /** One limit for the wait for a connection and for the operation, as `client.request` has it. */
  const bounded = async <T>(
    work: (connection: Connection, signal: AbortSignal) => Promise<T>,
  ): Promise<T> => {
    const signal = AbortSignal.timeout(LIMIT);
    return await client.use((connection) => work(connection, signal), { signal, repeat: true });
  };
  return {
    call: (body, repeat) => client.request(body, { timeout: LIMIT, repeat }),
    others: {
      read: () =>
        bounded((connection, signal) => connection.read(boards.get(connection)!, undefined, { signal })),
      write: () =>
        bounded((connection, signal) =>
          connection.write(new Uint8Array(BOARD_OCTETS), boards.get(connection)!, { signal }),
        ),
      lookup: () => bounded((connection, signal) => connection.lookup('board', { signal })),
      stream: () => bounded(throughStream),
    },
    close: () => client.close({ timeout: CLOSE_LIMIT }),
  };
}

/** Bytes to the peer and back over a stream. */
async function throughStream(connection: Connection, signal: AbortSignal): Promise<void> {
  const stream = connection.stream('echo');
  const giveUp = (): void => void stream.destroy(new IwarpError('ERR_ABORTED', 'the stream took too long'));
  signal.addEventListener('abort', giveUp, { once: true });
  try {
    stream.end(Buffer.alloc(STREAM_OCTETS, 7));
    let got = 0;
    for await (const chunk of stream) got += (chunk as Uint8Array).length;
    if (got !== STREAM_OCTETS) throw new Error(`${got} of ${STREAM_OCTETS} bytes came back`);
  } finally {
    signal.removeEventListener('abort', giveUp);
  }
}

/** A request that waits for its reply. */
interface Waiting {
  readonly body: Buffer;
  readonly repeat: boolean;
  readonly timer: ReturnType<typeof setTimeout>;
  readonly resolve: (reply: Uint8Array) => void;
  readonly reject: (error: Error) => void;
}

/**
 * The same over ws, with what its users write by hand: replies found by the id at their front, a time limit
 * for each call, a new connection after 'close', and where `pings` is set the recipe of its README for dead
 * peers.
 */
class WsApp implements App {
  readonly others: App['others'] = {};
  readonly #url: string;
  readonly #pings: boolean;
  readonly #waiting = new Map<string, Waiting>();
  #socket: WebSocket | null = null;
  #closed = false;
  #wait: number = BACKOFF.first;

  constructor(host: string, port: number, pings: boolean) {
    this.#url = `ws://${host}:${port}`;
    this.#pings = pings;
    this.#connect();
  }

  #connect(): void {
    const socket = new WebSocket(this.#url, { perMessageDeflate: false, handshakeTimeout: CONNECT_LIMIT });
    socket.on('error', ignore); // 'close' follows
    socket.on('open', () => {
      this.#socket = socket;
      this.#wait = BACKOFF.first;
      if (this.#pings) watch(socket);
      for (const { body } of this.#waiting.values()) socket.send(body);
    });
    socket.on('message', (data: Buffer) => this.#answered(data));
    socket.on('close', () => {
      if (this.#socket === socket) this.#lost();
      this.#socket = null;
      if (this.#closed) return;
      setTimeout(() => this.#closed || this.#connect(), this.#wait * (0.5 + Math.random()));
      this.#wait = Math.min(2 * this.#wait, BACKOFF.most);
    });
  }

  #lost(): void {
    for (const [id, { repeat, timer, reject }] of this.#waiting) {
      if (repeat) continue;
      this.#waiting.delete(id);
      clearTimeout(timer);
      reject(new Error('the connection was lost'));
    }
  }

  #answered(data: Buffer): void {
    const id = idOf(data);
    const one = this.#waiting.get(id);
    if (one === undefined) return; // it came too late
    this.#waiting.delete(id);
    clearTimeout(one.timer);
    one.resolve(data);
  }

  call(body: Buffer, repeat: boolean): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const id = idOf(body);
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Error('the call took too long'));
      }, LIMIT);
      this.#waiting.set(id, { body, repeat, timer, resolve, reject });
      if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(body);
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    const socket = this.#socket;
    if (socket === null || socket.readyState === WebSocket.CLOSED) return;
    socket.close();
    await Promise.race([once(socket, 'close'), pause(CLOSE_LIMIT, undefined, { ref: false })]);
    socket.terminate();
  }
}

/** Asks for a sign of life after each interval, and drops a socket that gives none. */
function watch(socket: WebSocket): void {
  const { interval, timeout } = HEARTBEAT;
  let heard = performance.now();
  const alive = (): void => void (heard = performance.now());
  socket.on('pong', alive).on('message', alive);
  const timer = setInterval(() => {
    if (performance.now() - heard > interval + timeout) socket.terminate();
    else socket.ping();
  }, interval);
  socket.on('close', () => clearInterval(timer));
}

/** Bytes at the front of a request: its id and whether it may be repeated. */
export const HEAD_OCTETS = 32;

export const idOf = (data: Uint8Array): string =>
  Buffer.from(data.buffer, data.byteOffset, HEAD_OCTETS).toString('latin1').trimEnd();
