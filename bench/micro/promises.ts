/**
 * What the promise layer makes of small operations: two processes, one client that keeps some calls under way, each awaited by a loop of its own;
 * beside it `ws` with a call-back for each message. With the directory of another build, both builds run in turn.
 *
 * Run compiled, with plain node: `node dist/bench/micro/promises.js [rounds] [cases] [other]`; `cases` is a regular expression over their names.
 */
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { AddressInfo } from 'node:net';
import { WebSocket, WebSocketServer } from 'ws';
import { connect, createServer, RemoteBuffer, type Connection } from '../../src/index.ts';
import { median, ratios } from '../stats.ts';
import { Child } from './child.ts';

const WINDOW_MS = 150;
const WARM_MS = 400;
const BUILD = fileURLToPath(new URL('../..', import.meta.url));
const REGION_OCTETS = 1 << 16;

/** One operation, and how many are under way. */
interface Case {
  readonly name: string;
  readonly depth: number;
  /** What one loop does again and again, once it is set up. */
  readonly make: (ends: Ends) => () => Promise<unknown>;
}

interface Ends {
  readonly connection: Connection;
  readonly remote: RemoteBuffer;
  readonly socket: WebSocket;
}

const view = (octets: number): Uint8Array => new Uint8Array(octets).fill(7);

function cases(): Case[] {
  const made: Case[] = [];
  for (const depth of [64, 1]) {
    for (const octets of [64, 4096]) {
      const add = (name: string, make: Case['make']): void => void made.push({ name: `${name} ${octets}, ${depth} under way`, depth, make });
      add('ws send', ({ socket }) => {
        const data = view(octets);
        return () => new Promise((resolve) => socket.send(data, resolve));
      });
      add('send', ({ connection }) => {
        const data = view(octets);
        return () => connection.send(data);
      });
      add('send of a region', ({ connection }) => {
        const mr = connection.register(view(octets), 'none');
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
  return made;
}

async function serve(): Promise<void> {
  const server = await createServer({}, async (connection) => {
    const memory = connection.allocate(REGION_OCTETS, 'read-write');
    await connection.send(connection.share(memory).toBytes());
    for await (const message of connection) message.release();
  }).listen({ host: '127.0.0.1' });
  const ws = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false });
  ws.on('connection', (socket) => socket.on('message', () => undefined));
  await once(ws, 'listening');
  process.send!({ port: server.address.port, wsPort: (ws.address() as AddressInfo).port });
}

/** Thousands of operations a second over `ms`. No timer ends it: sockets that take all at once keep timers from their turn. */
async function run({ depth }: Case, once: () => Promise<unknown>, ms: number): Promise<number> {
  let count = 0;
  const began = performance.now();
  const loop = async (): Promise<void> => {
    for (; performance.now() - began < ms; count++) await once();
  };
  await Promise.all(Array.from({ length: depth }, loop));
  return count / (performance.now() - began);
}

async function client(port: number, wsPort: number, pattern: RegExp): Promise<void> {
  const connection = await connect({ host: '127.0.0.1', port });
  const ticket = await connection.receive();
  const remote = RemoteBuffer.fromBytes(ticket!.data.slice());
  ticket!.release();
  const socket = new WebSocket(`ws://127.0.0.1:${wsPort}`, { perMessageDeflate: false });
  await once(socket, 'open');
  const ready = cases().filter(({ name }) => pattern.test(name)).map((c) => ({ c, once: c.make({ connection, remote, socket }) }));
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

async function main(rounds: number, pattern: string, other: string | undefined): Promise<void> {
  const builds = other === undefined ? [BUILD] : [BUILD, other];
  const children: Child<number>[] = [];
  const clients: Child<number>[] = [];
  for (const build of builds) {
    const file = join(build, 'bench/micro/promises.js');
    const server = new Child<number>(file, ['serve']);
    const { port, wsPort } = await server.answer<{ port: number; wsPort: number }>();
    const peer = new Child<number>(file, ['client', String(port), String(wsPort), pattern]);
    children.push(server, peer);
    await peer.answer();
    clients.push(peer);
  }
  const names = cases().filter(({ name }) => new RegExp(pattern).test(name));
  const rates = names.map(() => clients.map((): number[] => []));
  for (let round = 0; round < rounds; round++) {
    for (const index of names.keys()) {
      for (const [which, peer] of clients.entries()) {
        peer.tell(index);
        rates[index]![which]!.push(await peer.answer<number>());
      }
    }
  }
  console.log(`thousands a second, median of ${rounds}${other === undefined ? '' : '; the other build; this one over it inside a round'}`);
  for (const [index, { name }] of names.entries()) {
    const [own, theirs] = rates[index]!;
    const more = theirs === undefined ? '' : `${median(theirs).toFixed(0).padStart(8)}${median(ratios(own!, theirs)).toFixed(2).padStart(8)}`;
    console.log(`${name.padEnd(36)}${median(own!).toFixed(0).padStart(8)}${more}`);
  }
  for (const child of children) child.end();
}

const [role = '9', ...rest] = process.argv.slice(2);
if (role === 'serve') await serve();
else if (role === 'client') await client(Number(rest[0]), Number(rest[1]), new RegExp(rest[2]!));
else await main(Number(role), rest[0] ?? '', rest[1]);
