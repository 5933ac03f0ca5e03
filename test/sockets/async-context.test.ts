/**
 * The AsyncLocalStorage store in which each event and each callback of a byte stream runs: one script over
 * `node:net` and over this package with both engines.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import net from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openRnic, type EngineKind, type Rnic } from '../../src/index.ts';
import * as sockets from '../../src/sockets/index.ts';

const store = new AsyncLocalStorage<string>();

/** The part of both libraries that the script needs. */
type Library = Pick<typeof net, 'createServer' | 'connect'>;

const LONG = Buffer.alloc(8 << 20);

// prettier-ignore
const RIGHT: Readonly<Record<string, string>> = {
  'server: listening': 'listen',
  'server: callback of listen': 'listen',
  'server: connection': 'listen',
  'server: getConnections': 'counting',
  'server: close': 'closing',
  'server: callback of close': 'closing',
  'accepted: data': 'listen',
  'accepted: end': 'listen',
  'accepted: close': 'listen',
  'accepted: callback of a write': 'answering',
  'accepted: timer in data': 'listen',
  'accepted: promise in data': 'listen',
  'client: lookup': 'connect',
  'client: connect': 'connect',
  'client: ready': 'connect',
  'client: listener of connect': 'connect',
  'client: data': 'connect',
  'client: end': 'connect',
  'client: close': 'connect',
  'client: callback of a short write': 'short write',
  'client: callback of a long write': 'long write',
  'client: drain': 'long write',
  'client: finish': 'ending',
  'client: callback of end': 'ending',
  'client: timeout': 'timeout',
  'destroyed: close': 'connect',
  'refused: error': 'connect',
  'refused: close': 'connect',
};

/** Each name with the stores that were seen there. */
class Seen {
  readonly #stores = new Map<string, Set<string>>();

  note(name: string): void {
    const stores = this.#stores.get(name) ?? new Set<string>();
    this.#stores.set(name, stores.add(store.getStore() ?? 'none'));
  }

  at(name: string): () => void {
    return () => this.note(name);
  }

  get table(): Record<string, string> {
    const rows = [...this.#stores].map(([name, stores]) => [name, [...stores].join(' and ')] as const);
    return Object.fromEntries(rows.sort());
  }
}

const within = <T>(name: string, task: () => T): T => store.run(name, task);
const event = (emitter: NodeJS.EventEmitter, name: string): Promise<unknown> =>
  new Promise((resolve) => void emitter.once(name, resolve));

function serve(library: Library, seen: Seen): net.Server {
  const server = library.createServer({}, (socket) => {
    seen.note('server: connection');
    socket.on('error', () => undefined);
    socket.once('data', () => {
      seen.note('accepted: data');
      setTimeout(seen.at('accepted: timer in data'), 1);
      void Promise.resolve().then(seen.at('accepted: promise in data'));
      within('answering', () => socket.write('hello', seen.at('accepted: callback of a write')));
    });
    socket.on('data', seen.at('accepted: data'));
    socket.on('end', seen.at('accepted: end'));
    socket.on('close', seen.at('accepted: close'));
  });
  server.on('listening', seen.at('server: listening'));
  return server;
}

async function exchange(library: Library, seen: Seen, port: number): Promise<void> {
  const socket = within('connect', () => {
    const lookup: net.LookupFunction = (_host, _options, done) =>
      void setImmediate(() => done(null, [{ address: '127.0.0.1', family: 4 }]));
    return library.connect({ port, host: 'a.name', lookup }, seen.at('client: listener of connect'));
  });
  for (const name of ['lookup', 'connect', 'ready', 'data', 'end', 'close', 'drain', 'finish', 'timeout'])
    socket.on(name, seen.at(`client: ${name}`));
  const closed = event(socket, 'close');
  await event(socket, 'connect');
  const answered = event(socket, 'data');
  await within('short write', () => {
    const written = seen.at('client: callback of a short write');
    return new Promise<void>((resolve) => void socket.write('x', () => resolve(written())));
  });
  await answered;
  await within('long write', () => {
    const written = seen.at('client: callback of a long write');
    return new Promise<void>((resolve) => void socket.write(LONG, () => resolve(written())));
  });
  const idle = event(socket, 'timeout');
  within('timeout', () => socket.setTimeout(5));
  await idle;
  socket.setTimeout(0);
  within('ending', () => socket.end(seen.at('client: callback of end')));
  await closed;
}

async function script(library: Library): Promise<Record<string, string>> {
  const seen = new Seen();
  const server = serve(library, seen);
  const listening = event(server, 'listening');
  within('listen', () => server.listen(0, '127.0.0.1', seen.at('server: callback of listen')));
  await listening;
  const { port } = server.address() as net.AddressInfo;
  await exchange(library, seen, port);

  const destroyed = within('connect', () => library.connect(port, '127.0.0.1'));
  destroyed.on('close', seen.at('destroyed: close'));
  await event(destroyed, 'connect');
  const gone = event(destroyed, 'close');
  within('destroying', () => destroyed.destroy());
  await gone;

  await within('counting', () => {
    const counted = seen.at('server: getConnections');
    return new Promise<void>((resolve) => void server.getConnections(() => resolve(counted())));
  });
  const counts = async (): Promise<number> =>
    new Promise((resolve) => void server.getConnections((_error, count) => resolve(count)));
  while ((await counts()) > 0) await new Promise(setImmediate);
  server.on('close', seen.at('server: close'));
  const closed = event(server, 'close');
  within('closing', () => server.close(seen.at('server: callback of close')));
  await closed;

  const refused = within('connect', () => library.connect(port, '127.0.0.1'));
  refused.on('error', seen.at('refused: error')).on('close', seen.at('refused: close'));
  await event(refused, 'close');
  return seen.table;
}

const sorted = Object.fromEntries(Object.entries(RIGHT).sort());

/** Node makes an accepted connection outside of every context, so that node:net has no store there. */
const OUTSIDE = ['data', 'end', 'close', 'timer in data', 'promise in data'].map(
  (name) => `accepted: ${name}`,
);

it('node:net is as the table says, but for accepted connections, which have no store', async () => {
  const outside = Object.fromEntries(OUTSIDE.map((name) => [name, 'none']));
  expect(await script(net)).toEqual({ ...sorted, ...outside });
});

describe.each<EngineKind>(['thread', 'worker'])('with the engine %s', (engine) => {
  let rnic: Rnic;
  let library: Library;
  beforeAll(async () => {
    rnic = openRnic({ engine });
    library = {
      createServer: (options: object, listener: (socket: sockets.RdmaSocket) => void) =>
        sockets.createServer({ ...options, rnic }, listener),
      connect: (where: number | object, second: string | (() => void)) =>
        typeof where === 'number'
          ? sockets.connect({ port: where, host: second as string, rnic })
          : sockets.connect({ ...(where as sockets.ConnectOptions), rnic }, second as () => void),
    } as unknown as Library;
    // The code that uses the device first, in whose store an engine's messages arrive.
    const server = library.createServer();
    await within('first', async () => {
      await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
      const socket = library.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
      await event(socket, 'connect');
      const closed = event(socket, 'close');
      socket.destroy();
      await closed;
      await new Promise((resolve) => void server.close(resolve));
    });
  });
  afterAll(() => rnic.device.close());

  it('byte streams are as the table says', async () => {
    expect(await script(library)).toEqual(sorted);
  });

  it('the callback of a write that waits behind others runs in its own context', async () => {
    const server = library.createServer({}, (socket) => void socket.resume());
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    const socket = library.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
    await event(socket, 'connect');
    const jobs = ['one', 'two', 'three', 'four'];
    const write = (job: string, length: number): Promise<string | undefined> =>
      within(
        job,
        () =>
          new Promise((resolve) => void socket.write(Buffer.alloc(length), () => resolve(store.getStore()))),
      );
    expect(await Promise.all(jobs.map((job) => write(job, 4 << 20)))).toEqual(jobs);
    socket.cork();
    const corked = jobs.map((job) => write(job, 10));
    within('uncorking', () => socket.uncork());
    expect(await Promise.all(corked)).toEqual(jobs);
    const left = write('left', 64 << 20);
    within('destroying', () => socket.destroy());
    expect(await left).toBe('left');
    await new Promise((resolve) => void server.close(resolve));
  });
});
