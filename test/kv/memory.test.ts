// A store takes no more memory than its owner asked for: floods against a store in a separate process, whose
// resident memory the system itself reports. Needs `npm run build`.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect } from '../../src/kv/index.ts';
import { depth, FULL } from '../support/depth.ts';
import { endTogether, tcpPath } from '../support/tcp-path.ts';

const BIN = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
const MIB = 2 ** 20;
/** Bytes of the table. The longest value is a sixteenth of it. */
const ASKED = 16 * MIB;
/**
 * What clients may hold together is as much again and 16 MiB, and is copied once on its way; one turn of the
 * event loop reads 64 KiB of each of up to a thousand connections; the rest is for garbage that has not been
 * collected yet. The floods ask for 0.4 to 2 GiB.
 */
const MOST = 4 * ASKED + 256 * MIB;
const VALUE = 400_000;

let child: ChildProcess;
/** Resident when nothing had been asked for yet. */
let before = 0;
const ports: Record<string, number> = {};
const sockets = new Set<Socket>();

beforeAll(async () => {
  const at = '127.0.0.1:0';
  const args = ['kv', 'serve', '--memory', '16M', '--rdma', at, '--resp', at, '--memcached', at];
  child = spawn(process.execPath, [BIN, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: child.stdout! })) {
    const [, edge, port] = /^(\w+) at .*:(\d+)$/.exec(line) ?? [];
    if (edge !== undefined) ports[edge] = Number(port);
    if (Object.keys(ports).length === 3) break;
  }
  // Whatever is compiled and allocated once is there before anything is measured.
  const kv = await connect({ port: ports['rdma']! });
  for (let i = 0; i < 2000; i++) await kv.set(`key ${i}`, 'x'.repeat(4000));
  await kv.set('large', new Uint8Array(VALUE));
  await kv.close();
  await answer('resp', 'PING\r\n'.repeat(5000), '+PONG\r\n'.repeat(5000));
  before = resident('VmRSS');
}, 60_000);
afterAll(async () => {
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
});

function open(edge: 'resp' | 'memcached'): Promise<Socket> {
  const socket = connectTcp(ports[edge]!, '127.0.0.1');
  sockets.add(socket);
  socket.on('error', () => undefined);
  return new Promise((resolve) => socket.once('connect', () => resolve(socket)));
}

/** Send a request, and wait until the answer has come as a whole. */
async function answer(edge: 'resp' | 'memcached', request: string, expected: string): Promise<void> {
  const socket = await open(edge);
  let text = '';
  socket.write(request);
  for await (const bytes of socket) {
    text += (bytes as Buffer).toString('latin1');
    if (text.length >= expected.length) break;
  }
  expect(text).toBe(expected);
  socket.destroy();
}

/** Bytes that the store's process has resident now, and had at most since the last call of `restart`. */
function resident(which: 'VmRSS' | 'VmHWM'): number {
  const text = readFileSync(`/proc/${child.pid}/status`, 'latin1');
  return 1024 * Number(new RegExp(`^${which}:\\s+(\\d+) kB`, 'm').exec(text)![1]);
}

type Flood = () => Promise<readonly Socket[]>;

const many: (count: number, edge: 'resp' | 'memcached', request: string, readers: boolean) => Flood =
  (count, edge, request, readers) => async () => {
    const flood = await Promise.all(Array.from({ length: count }, () => open(edge)));
    for (const socket of flood) {
      if (readers) socket.resume();
      else socket.pause();
      socket.write(request);
    }
    return flood;
  };

const one =
  (edge: 'resp' | 'memcached', request: string): Flood =>
  async () => {
    const socket = await open(edge);
    socket.resume();
    socket.write(request);
    return [socket];
  };

const array = (words: readonly string[]): string =>
  `*${words.length}\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`;
const half = 'v'.repeat(400_000);

it.each<[string, Flood]>([
  ['one MGET of a key named 3,000 times', one('resp', array(['MGET', ...Array<string>(3000).fill('large')]))],
  ['a transaction of 3,000 GETs', one('resp', `MULTI\r\n${'GET large\r\n'.repeat(3000)}EXEC\r\n`)],
  ['one get of memcached with 3,000 keys', one('memcached', `get${' large'.repeat(3000)}\r\n`)],
  ['250 clients that never read', many(250, 'resp', 'GET large\r\n'.repeat(20), false)],
  ['250 clients of memcached that never read', many(250, 'memcached', 'get large\r\n'.repeat(20), false)],
  [
    '100 requests that are never whole',
    many(
      100,
      'resp',
      array(['MSET', ...Array.from({ length: 9 }, (_, i) => [`k${i}`, half]).flat(), 'k']).replace(
        /^\*\d+/,
        '*99',
      ),
      true,
    ),
  ],
  [
    '1,200 values of memcached that are never whole',
    many(1200, 'memcached', `set k 0 0 ${VALUE}\r\n${'v'.repeat(VALUE - 100)}`, true),
  ],
  [
    '60 transactions that never end',
    many(60, 'resp', `MULTI\r\n${array(['SET', 'k', half]).repeat(30)}`, true),
  ],
])(
  '%s',
  async (_name, flood) => {
    let most = before;
    const watch = setInterval(() => (most = Math.max(most, resident('VmRSS'))), 5);
    const sent = await flood();
    await new Promise((resolve) => setTimeout(resolve, depth(500, 1500)));
    clearInterval(watch);
    expect(child.exitCode).toBeNull();
    // Others are served meanwhile.
    await answer('resp', 'SET other served\r\nGET other\r\n', '+OK\r\n$6\r\nserved\r\n');
    for (const socket of sent) socket.destroy();
    expect(most - before).toBeLessThan(MOST);
  },
  60_000,
);

it('clients that do not let their values be read hold no other client up for long', async () => {
  // The request goes through, and what answers the owner's Read does not.
  const held: Socket[] = [];
  const port = await tcpPath(ports['rdma']!, (client, store) => {
    held.push(client);
    let left = 4000;
    store.pipe(client);
    client.on('data', (bytes: Buffer) => {
      store.write(bytes.subarray(0, left));
      left = Math.max(0, left - bytes.length);
    });
    client.on('end', () => store.end());
    endTogether(client, store);
  });
  const silent = await Promise.all(Array.from({ length: 60 }, () => connect({ port })));
  const stored = silent.map((kv, i) => kv.set(`silent ${i}`, new Uint8Array(VALUE)).catch(() => 'failed'));
  const kv = await connect({ port: ports['rdma']! });
  await kv.set('another', new Uint8Array(VALUE).fill(1));
  expect((await kv.get('another'))!.at(-1)).toBe(1);
  await kv.close();
  // The store gives them up after ten seconds, for which the judge waits.
  if (!FULL) for (const client of held) client.destroy();
  expect(new Set(await Promise.all(stored))).toEqual(new Set(['failed']));
}, 60_000);
