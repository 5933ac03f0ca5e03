/**
 * Clients of other servers for `iwarp kv bench`: ioredis and memjs where they are installed, else the least
 * ones possible; and a server that does nothing, which shows what a round trip costs without any store.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { IwarpError } from '../../src/base/errors.ts';

/** One client of one server. */
export interface Getter {
  get(key: string): Promise<Uint8Array | null>;
  set(key: string, value: Uint8Array): Promise<unknown>;
  close(): void | Promise<void>;
}

/** Answers each piece that comes with as many octets as the first four of it say. */
const ECHO = `
const { createServer } = require('node:net');
const answers = new Map();
const server = createServer((socket) => {
  socket.setNoDelay(true);
  socket.on('error', () => undefined);
  socket.on('data', (bytes) => {
    const length = bytes.readUInt32BE(0);
    if (!answers.has(length)) answers.set(length, Buffer.alloc(length, 97));
    socket.write(answers.get(length));
  });
}).listen(0, '127.0.0.1', () => console.log(server.address().port));
`;

/** Milliseconds that the program of a busy server computes at a time. */
export const BUSY_MS = 20;

/** The same in a worker thread of a process whose program computes, as that of a store with `--busy`. */
const BUSY_ECHO = `
new (require('node:worker_threads').Worker)(${JSON.stringify(ECHO)}, { eval: true });
setInterval(() => {
  for (const end = performance.now() + ${BUSY_MS}; performance.now() < end; );
}, ${BUSY_MS + 1});
`;

/** A process of the server that does nothing, and its port; with `isBusy` its program computes. */
export async function startEcho(isBusy: boolean): Promise<{ child: ChildProcess; port: number }> {
  const child = spawn(process.execPath, ['-e', isBusy ? BUSY_ECHO : ECHO], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return { child, port: Number(line.toString()) };
}

/** Asks for octets as many as the value that was set last has. */
export async function echoClient(port: number): Promise<Getter> {
  const socket = await open('127.0.0.1', port);
  socket.setNoDelay(true);
  socket.on('error', () => undefined);
  const request = Buffer.alloc(64);
  let [left, resolve] = [0, (): void => undefined];
  socket.on('data', (bytes: Buffer) => {
    left -= bytes.length;
    if (left === 0) resolve();
  });
  const ask = async (length: number): Promise<Uint8Array> => {
    left = length;
    request.writeUInt32BE(length, 0);
    socket.write(request);
    await new Promise<void>((done) => (resolve = done));
    return request;
  };
  return {
    get: () => ask(echoLength),
    set: (_key, value) => Promise.resolve((echoLength = value.length)),
    close: () => void socket.destroy(),
  };
}
let echoLength = 64;

/** A package that is installed where the benchmark runs, or null. */
function installed<T>(name: string): T | null {
  try {
    return createRequire(join(process.cwd(), 'bench.js'))(name) as T;
  } catch {
    return null;
  }
}

interface Ioredis {
  getBuffer(key: string): Promise<Buffer | null>;
  set(key: string, value: Buffer): Promise<unknown>;
  disconnect(): void;
}

type IoredisModule = new (options: object) => Ioredis;

/** ioredis where it is installed, else the least client. */
export function redisClient(host: string, port: number): { name: string; open: () => Promise<Getter> } {
  const module = installed<IoredisModule & { default?: IoredisModule }>('ioredis');
  if (module === null) return { name: `redis ${port}`, open: () => LineClient.redis(host, port) };
  const Client = module.default ?? module;
  const open = (): Promise<Getter> => {
    const client = new Client({ host, port, retryStrategy: null, maxRetriesPerRequest: 0 });
    return Promise.resolve({
      get: (key) => client.getBuffer(key),
      set: (key, value) => client.set(key, Buffer.from(value)),
      close: () => client.disconnect(),
    });
  };
  return { name: `ioredis ${port}`, open };
}

interface Memjs {
  readonly Client: {
    create(servers: string): {
      get(key: string): Promise<{ value: Buffer | null }>;
      set(key: string, value: Buffer, options: object): Promise<unknown>;
      close(): void;
    };
  };
}

/** memjs where it is installed, else the least client. */
export function memcachedClient(host: string, port: number): { name: string; open: () => Promise<Getter> } {
  const module = installed<Memjs>('memjs');
  if (module === null) return { name: `memcached ${port}`, open: () => LineClient.memcached(host, port) };
  const open = (): Promise<Getter> => {
    const client = module.Client.create(`${host}:${port}`);
    return Promise.resolve({
      get: async (key) => (await client.get(key)).value,
      set: (key, value) => client.set(key, Buffer.from(value), {}),
      close: () => client.close(),
    });
  };
  return { name: `memjs ${port}`, open };
}

/** The process behind a port of this machine, as the server itself says. */
export async function pidOf(kind: 'redis' | 'memcached', host: string, port: number): Promise<number | null> {
  const socket = await open(host, port);
  try {
    socket.write(kind === 'redis' ? 'INFO server\r\n' : 'stats\r\n');
    const end = kind === 'redis' ? /process_id:(\d+)\r/ : /STAT pid (\d+)\r/;
    let text = '';
    for await (const bytes of socket) {
      text += (bytes as Buffer).toString('latin1');
      const pid = end.exec(text)?.[1];
      if (pid !== undefined) return isLocal(host) ? Number(pid) : null;
      if (text.length > 65_536) break;
    }
    return null;
  } finally {
    socket.destroy();
  }
}

const isLocal = (host: string): boolean => host === 'localhost' || host === '::1' || host.startsWith('127.');

/** The least client of Redis or memcached: one request at a time, the text of the protocol. */
class LineClient implements Getter {
  readonly #socket: Socket;
  readonly #getText: (key: string) => string;
  readonly #setText: (key: string, value: Uint8Array) => string;
  #buffer: Buffer = Buffer.alloc(0);
  #waiting: (() => void) | null = null;
  /** Ends with the last request that has been made. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    socket: Socket,
    getText: (key: string) => string,
    setText: (key: string, value: Uint8Array) => string,
  ) {
    this.#socket = socket;
    this.#getText = getText;
    this.#setText = setText;
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      this.#buffer = this.#buffer.length === 0 ? bytes : Buffer.concat([this.#buffer, bytes]);
      this.#waiting?.();
    });
  }

  static async redis(host: string, port: number): Promise<LineClient> {
    return new LineClient(
      await open(host, port),
      (key) => `*2\r\n$3\r\nGET\r\n$${key.length}\r\n${key}\r\n`,
      (key, value) =>
        `*3\r\n$3\r\nSET\r\n$${key.length}\r\n${key}\r\n` +
        `$${value.length}\r\n${Buffer.from(value).toString('latin1')}\r\n`,
    );
  }

  static async memcached(host: string, port: number): Promise<LineClient> {
    return new LineClient(
      await open(host, port),
      (key) => `get ${key}\r\n`,
      (key, value) => `set ${key} 0 0 ${value.length}\r\n${Buffer.from(value).toString('latin1')}\r\n`,
    );
  }

  get(key: string): Promise<Uint8Array | null> {
    const answer = this.#last.then(() => this.#ask(key));
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  async #ask(key: string): Promise<Uint8Array | null> {
    this.#socket.write(this.#getText(key), 'latin1');
    const head = await this.#line();
    const length = /^(?:\$|VALUE \S+ \d+ )(\d+)$/.exec(head)?.[1];
    if (length === undefined) return null;
    const value = await this.#octets(Number(length) + 2);
    if (head.startsWith('VALUE')) await this.#line(); // END
    return value.subarray(0, -2);
  }

  async set(key: string, value: Uint8Array): Promise<void> {
    this.#socket.write(this.#setText(key, value), 'latin1');
    await this.#line();
  }

  close(): void {
    this.#socket.destroy();
  }

  async #line(): Promise<string> {
    for (;;) {
      const end = this.#buffer.indexOf('\r\n');
      if (end >= 0) {
        const line = this.#buffer.toString('latin1', 0, end);
        this.#buffer = this.#buffer.subarray(end + 2);
        return line;
      }
      await this.#more();
    }
  }

  async #octets(count: number): Promise<Buffer> {
    while (this.#buffer.length < count) await this.#more();
    const octets = this.#buffer.subarray(0, count);
    this.#buffer = this.#buffer.subarray(count);
    return octets;
  }

  #more(): Promise<void> {
    return new Promise((resolve) => (this.#waiting = resolve));
  }
}

function open(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp({ host, port });
    socket.once('error', (cause) =>
      reject(new IwarpError('ERR_CONNECT', `cannot connect: ${cause.message}`, { cause })),
    );
    socket.once('connect', () => resolve(socket));
  });
}
