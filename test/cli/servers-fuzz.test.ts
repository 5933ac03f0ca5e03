/**
 * Servers of the tools under malformed input: requests to the live page, clients of the control socket, byte
 * streams to the proxy and to servers of rping and rcopy. Each goes on, and serves an honest client after it.
 */
// cspell:ignore onnection
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { proxy } from '../../cli/proxy.ts';
import { run as rcopy } from '../../cli/rcopy.ts';
import { run as rping } from '../../cli/rping.ts';
import { seededRandom } from '../../src/base/random.ts';
import { askAll, serveControl } from '../../src/observe/control-socket.ts';
import { conversation } from '../inspect/support.ts';
import { Side } from './pair.ts';

const folder = mkdtempSync(join(tmpdir(), 'fuzz-'));
afterAll(() => rmSync(folder, { recursive: true }));

type Where = { readonly port: number; readonly host: string } | { readonly path: string };

/** Send the parts, then leave by a FIN or a RST; whatever comes back is dropped. */
async function throwAt(where: Where, parts: readonly Uint8Array[], leave: 'end' | 'reset'): Promise<void> {
  const socket = connect(where as { port: number });
  socket.on('error', () => undefined).resume();
  socket.setTimeout(2000, () => socket.destroy());
  socket.once('connect', () => {
    for (const part of parts) socket.write(part);
    setImmediate(() => {
      if (leave === 'end') socket.end();
      else if ('path' in where) socket.destroy();
      else socket.resetAndDestroy();
    });
  });
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
}

const random = seededRandom(42);
const bytes = (most: number): Uint8Array =>
  Uint8Array.from({ length: random() % most }, () => random() & 0xff);
const leave = (): 'end' | 'reset' => (random() % 3 === 0 ? 'reset' : 'end');

/** The pieces of an honest conversation, some damaged, repeated, cut or exchanged. */
function damagedStream(): Uint8Array[] {
  const { request, fromInitiator } = conversation();
  const whole = Buffer.concat([request, fromInitiator]);
  const parts: Uint8Array[] = [];
  for (let at = 0; at < whole.length; ) {
    const length = 1 + (random() % 400);
    const part = Uint8Array.from(whole.subarray(at, at + length));
    if (random() % 6 === 0) part[random() % part.length]! ^= 1 << (random() % 8);
    if (random() % 12 !== 0) parts.push(part);
    if (random() % 12 === 0) parts.push(part);
    at += length;
  }
  return parts.slice(0, 1 + (random() % parts.length));
}

it('the live page: broken, cut, pipelined and endless requests', async () => {
  const side = new Side((args, io) => proxy(args, io!), ['0', '1', '--page', '0']);
  await side.port;
  const port = Number(/http:\/\/127\.0\.0\.1:(\d+)\//.exec(side.err)![1]);
  const honest = `GET / HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`;
  const pieces = [
    honest,
    honest.replace('GET /', 'GET /events?after=-1e99'),
    honest.replace('\r\n\r\n', '\r\nLast-Event-ID: \u0000\u00ff\r\n\r\n'),
    honest.replace('Host:', 'Host:evil\r\nHost:'),
    'GET / HTTP/9.9\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n',
    'GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n',
    'CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: localhost\r\n\r\n',
    `GET / HTTP/1.1\r\nX: ${'x'.repeat(70_000)}\r\n\r\n`,
    `GET /${'%00'.repeat(5000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`,
    '\r\n\r\n',
    '\u0000',
  ];
  for (let i = 0; i < 150; i++) {
    const parts = Array.from({ length: 1 + (random() % 3) }, () => {
      const text = Buffer.from(pieces[random() % pieces.length]!, 'latin1');
      if (random() % 3 === 0) text[random() % text.length]! ^= 1 << (random() % 8);
      return text.subarray(0, random() % 4 === 0 ? random() % text.length : text.length);
    });
    await throwAt({ port, host: '127.0.0.1' }, random() % 8 === 0 ? [bytes(600)] : parts, leave());
  }
  const answer = await fetch(`http://127.0.0.1:${port}/`);
  expect(answer.status).toBe(200);
  expect(await answer.text()).toContain('<div id="ladder"'.replace('div', 'section'));
  side.kill();
  expect(await side.status).toBe(0);
}, 60_000);

it('the control socket: clients that talk, and leave in the middle of an answer', async () => {
  const control = await serveControl();
  for (let i = 0; i < 100; i++) await throwAt({ path: control.path }, [bytes(2000), bytes(2000)], leave());
  const all = await askAll();
  expect(all.map(({ pid }) => pid)).toContain(process.pid);
  await control.close();
}, 60_000);

it('the proxy: streams that are no iWARP, or damaged, with every style and faults', async () => {
  for (const flags of [[], ['-V'], ['--json'], ['-x', '--fault', 'any', '--fault', 'any', '--seed', '5']]) {
    const target = createServer((socket) => {
      socket.on('error', () => undefined).resume();
      const { reply, fromResponder } = conversation();
      for (const part of random() % 2 === 0 ? [bytes(2000)] : [reply, fromResponder]) socket.write(part);
      socket.setTimeout(100, () => socket.destroy());
    });
    await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve));
    const { port: to } = target.address() as AddressInfo;
    const side = new Side((args, io) => proxy(args, io!), ['0', String(to), '--timeout', '1', ...flags]);
    const port = await side.port;
    for (let i = 0; i < 40; i++) {
      const parts = random() % 2 === 0 ? [bytes(3000)] : damagedStream();
      await throwAt({ port, host: '127.0.0.1' }, parts, leave());
    }
    side.kill();
    expect([0, 1]).toContain(await side.status);
    expect(side.out).toMatch(/onnection/);
    target.close();
  }
}, 90_000);

it('rping -s -P: damaged streams, and then an honest client', async () => {
  const side = new Side(rping, ['-s', '-P', '-p', '0', '-a', '127.0.0.1', '--timeout', '5']);
  const port = await side.port;
  for (let i = 0; i < 80; i++)
    await throwAt({ port, host: '127.0.0.1' }, random() % 2 === 0 ? [bytes(800)] : damagedStream(), leave());
  const client = new Side(rping, ['-c', '-a', '127.0.0.1', '-p', String(port), '-C', '3', '-V']);
  expect(await client.status, client.err).toBe(0);
  side.kill();
  await side.status;
}, 60_000);

it('rcopy: damaged streams, and then an honest client', async () => {
  const side = new Side(rcopy, ['-p', '0', '--dir', folder, '--timeout', '5']);
  const port = await side.port;
  for (let i = 0; i < 60; i++)
    await throwAt({ port, host: '127.0.0.1' }, random() % 2 === 0 ? [bytes(800)] : damagedStream(), leave());
  writeFileSync(join(folder, 'from'), 'data');
  const client = new Side(rcopy, [join(folder, 'from'), '127.0.0.1:to', '-p', String(port)]);
  expect(await client.status, client.err).toBe(0);
  side.kill();
  await side.status;
}, 60_000);
