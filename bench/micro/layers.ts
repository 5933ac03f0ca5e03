/**
 * The rates of the promise layer and of byte streams: two processes, one client that keeps some calls
 * under way, each awaited by one loop, or writes to a stream until it says stop; beside them `ws`
 * with a call-back for each message and a socket of `node:net`. With the directory of another build, both
 * builds run in turn.
 *
 * Run compiled, with plain node: `node dist/bench/micro/layers.js [rounds] [cases] [other]`; `cases` is a
 * regular expression over their names.
 */
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connect as netConnect, createServer as createNetServer, type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocket, WebSocketServer } from 'ws';
import { connect, createServer, RemoteBuffer, type Connection } from '../../src/index.ts';
import { connect as streamConnect, createServer as createStreamServer } from '../../src/sockets/index.ts';
import { median, ratios } from '../stats.ts';
import { Child } from './child.ts';

const WINDOW_MS = 150;
const WARM_MS = 400;
const BUILD = fileURLToPath(new URL('../..', import.meta.url));
const REGION_OCTETS = 1 << 16;
/** Writes of one call of a stream's loop: a promise for each would be most of a small one. */
const BURST = 16;

/** One operation, and how many are under way. */
interface Case {
  readonly name: string;
  readonly depth: number;
  /** Operations of one call. */
  readonly burst: number;
  /** Makes the operation that one loop repeats, once it is set up. */
  readonly make: (ends: Ends) => () => Promise<unknown>;
}

interface Ends {
  readonly ports: Ports;
  readonly connection: Connection;
  readonly remote: RemoteBuffer;
  readonly socket: WebSocket;
  readonly stream: Duplex;
  readonly net: Duplex;
}

/** Where the servers of a process listen. */
interface Ports {
  readonly verbs: number;
  readonly ws: number;
  readonly stream: number;
  readonly net: number;
}

const HOST = '127.0.0.1';
const view = (octets: number): Uint8Array => new Uint8Array(octets).fill(7);

// oxlint-disable-next-line max-lines-per-function -- a table of cases
function cases(): Case[] {
  const made: Case[] = [];
  for (const depth of [64, 1]) {
    for (const octets of [64, 4096]) {
      const add = (name: string, make: Case['make']): void =>
        void made.push({ name: `${name} ${octets}, ${depth} under way`, depth, burst: 1, make });
      add('ws send', ({ socket }) => {
        const data = view(octets);
        return () => new Promise((resolve) => socket.send(data, resolve));
      });
      add('send', ({ connection }) => {
        const data = view(octets);
        return () => connection.send(data);
      });
      add('send of a region', ({ connection }) => {
        const mr = connection.allocate(octets, 'none');
        return () => connection.send(mr);
      });
      add('write', ({ connection, remote }) => {
        const data = view(octets);
        const there = remote.slice(0, octets);
        return () => connection.write(data, there);
      });
      add('read', ({ connection, remote }) => {
        const there = remote.slice(0, octets);
        const into = view(octets);
        return () => connection.read(there, into);
      });
    }
  }
  for (const octets of [64, 4096, 65_536, 1 << 20]) {
    for (const kind of ['stream', 'net'] as const) {
      made.push({
        name: `${kind} write ${octets}`,
        depth: 1,
        burst: BURST,
        make: (ends) => writes(ends[kind], view(octets)),
      });
    }
  }
  const connects = (name: string, make: (ports: Ports) => () => Promise<unknown>): void => {
    made.push({ name: `${name} connects and closes`, depth: 1, burst: 1, make: ({ ports }) => make(ports) });
  };
  connects('ws', ({ ws }) => async () => {
    const socket = new WebSocket(`ws://${HOST}:${ws}`, { perMessageDeflate: false });
    await once(socket, 'open');
    socket.close();
    await once(socket, 'close');
  });
  connects(
    'connection',
    ({ verbs }) =>
      async () =>
        await (await connect({ host: HOST, port: verbs })).close(),
  );
  connects(
    'stream',
    ({ stream }) =>
      async () =>
        await used(streamConnect({ host: HOST, port: stream })),
  );
  connects(
    'net',
    ({ net }) =>
      async () =>
        await used(netConnect({ host: HOST, port: net })),
  );
  return made;
}

async function used(stream: Duplex): Promise<void> {
  await once(stream, 'connect');
  stream.resume().end();
  await once(stream, 'close');
}

/** Some writes, and the wait for room after them if there has to be one. */
function writes(stream: Duplex, data: Uint8Array): () => Promise<unknown> {
  return async () => {
    for (let i = 0; i < BURST; i++) if (!stream.write(data)) await once(stream, 'drain');
  };
}

async function serve(): Promise<void> {
  const server = await createServer({}, async (connection) => {
    const memory = connection.allocate(REGION_OCTETS, 'read-write');
    await connection.send(connection.share(memory).toBytes());
    for await (const message of connection) message.release();
  }).listen({ host: HOST });
  const ws = new WebSocketServer({ host: HOST, port: 0, perMessageDeflate: false });
  ws.on('connection', (socket) => socket.on('message', () => undefined));
  const swallow = (stream: Duplex): void => void stream.on('error', () => undefined).resume();
  const stream = createStreamServer(swallow).listen(0, HOST);
  const net = createNetServer(swallow).listen(0, HOST);
  await Promise.all([ws, stream, net].map((each) => once(each, 'listening')));
  const ports: Ports = {
    verbs: server.address().port,
    ws: (ws.address() as AddressInfo).port,
    stream: (stream.address() as { port: number }).port,
    net: (net.address() as AddressInfo).port,
  };
  process.send!(ports);
}

/**
 * Thousands of operations a second over `ms`. No timer ends it: sockets that take all at once keep timers
 * from their turn.
 */
async function run({ depth, burst }: Case, once: () => Promise<unknown>, ms: number): Promise<number> {
  let count = 0;
  const began = performance.now();
  const loop = async (): Promise<void> => {
    for (; performance.now() - began < ms; count += burst) await once();
  };
  await Promise.all(Array.from({ length: depth }, loop));
  return count / (performance.now() - began);
}

async function client(ports: Ports, pattern: RegExp): Promise<void> {
  const connection = await connect({ host: HOST, port: ports.verbs });
  const ticket = await connection.receive();
  const remote = RemoteBuffer.fromBytes(ticket!.data.slice());
  ticket!.release();
  const socket = new WebSocket(`ws://${HOST}:${ports.ws}`, { perMessageDeflate: false });
  const stream = streamConnect({ host: HOST, port: ports.stream });
  const net = netConnect({ host: HOST, port: ports.net, noDelay: true });
  await Promise.all([once(socket, 'open'), once(stream, 'connect'), once(net, 'connect')]);
  for (const each of [stream, net]) each.on('error', () => undefined).resume();
  const ready = cases()
    .filter(({ name }) => pattern.test(name))
    .map((c) => ({ c, once: c.make({ ports, connection, remote, socket, stream, net }) }));
  for (const { c, once } of ready) await run(c, once, WARM_MS);
  process.on('message', (index: number) => {
    const { c, once } = ready[index]!;
    void (async () => {
      await run(c, once, WINDOW_MS / 3);
      process.send!(await run(c, once, WINDOW_MS));
    })();
  });
  process.send!('ready');
}

/** Thousands a second, to three digits. */
function rate(rates: readonly number[]): string {
  return String(Number(median(rates).toPrecision(3))).padStart(8);
}

async function main(rounds: number, pattern: string, other: string | undefined): Promise<void> {
  const builds = other === undefined ? [BUILD] : [BUILD, other];
  const children: Child<number>[] = [];
  const clients: Child<number>[] = [];
  for (const build of builds) {
    const file = join(build, 'bench/micro/layers.js');
    const server = new Child<number>(file, ['serve']);
    const peer = new Child<number>(file, ['client', JSON.stringify(await server.answer<Ports>()), pattern]);
    children.push(server, peer);
    await peer.answer();
    clients.push(peer);
  }
  const names = cases().filter(({ name }) => new RegExp(pattern).test(name));
  const rates = names.map(() => clients.map((): number[] => []));
  for (let round = 0; round < rounds; round++) {
    for (const index of names.keys()) {
      // The second build finds the machine awake.
      const turns = [...clients.entries()];
      for (const [which, peer] of round % 2 === 0 ? turns : turns.toReversed()) {
        peer.tell(index);
        rates[index]![which]!.push(await peer.answer<number>());
      }
    }
  }
  console.log(
    'thousands a second, median of ' +
      `${rounds}${other === undefined ? '' : '; the other build; this one over it inside a round'}`,
  );
  for (const [index, { name }] of names.entries()) {
    const [own, theirs] = rates[index]!;
    const more =
      theirs === undefined ? '' : `${rate(theirs)}${median(ratios(own!, theirs)).toFixed(2).padStart(8)}`;
    console.log(`${name.padEnd(36)}${rate(own!)}${more}`);
  }
  for (const child of children) child.end();
}

const [role = '9', ...rest] = process.argv.slice(2);
process.once('disconnect', () => process.exit());
if (role === 'serve') await serve();
else if (role === 'client') await client(JSON.parse(rest[0]!) as Ports, new RegExp(rest[1]!));
else await main(Number(role), rest[0] ?? '', rest[1]);
