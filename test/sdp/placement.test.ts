/** Hello and HelloAck in front of the MPA frames: both ends, both engines, and peers that do it wrong. */
import { once } from 'node:events';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { setupIn } from '../../src/sdp/placement.ts';
import { encodeHello, encodeHelloAck, MID, type Hello } from '../../src/sdp/wire.ts';
import { connect, createServer, type RdmaServer, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { tcpPath } from '../support/tcp-path.ts';

const HELLO: Hello = {
  version: 0x22,
  family: 4,
  invalidates: false,
  maxAdverts: 4,
  desiredSize: 4096,
  localSize: 4096,
  port: 0,
  source: new Uint8Array(16),
  destination: new Uint8Array(16),
  bufs: 4,
  copyOnWrite: false,
};
const STREAMING: RdmaSocketOptions = { protocol: 'sdp', placement: 'streaming' };

const servers: RdmaServer[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    if (server.listening) server.close();
  }
});

/** The close of a socket, with or without an error. */
const closed = (socket: Duplex): Promise<void> =>
  new Promise((resolve) => void socket.once('close', () => resolve()));

async function echo(options: RdmaSocketOptions): Promise<{ server: RdmaServer; port: number }> {
  const server = createServer({ allowHalfOpen: true, ...options }, (socket) => {
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as net.AddressInfo).port };
}

async function echoed(port: number, options: RdmaSocketOptions, octets = 300_000): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1', ...options });
  const sent = Buffer.from(Uint8Array.from({ length: octets }, (_, i) => i % 253));
  socket.end(sent);
  const pieces: Buffer[] = [];
  for await (const piece of socket) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).equals(sent);
}

describe.each(['thread', 'worker'] as const)('streaming placement, engine %s', (engine) => {
  it('carries a stream both ways; the listener takes private data too', async () => {
    const { server, port } = await echo({ ...STREAMING, rnic: openRnic({ engine }) });
    expect(await echoed(port, { ...STREAMING, rnic: openRnic({ engine }) })).toBe(true);
    expect(await echoed(port, { ...STREAMING, mode: 'source', zeroCopyFrom: 4096 })).toBe(true);
    expect(await echoed(port, { protocol: 'sdp' })).toBe(true);
    await expect.poll(() => server.connections.size).toBe(0);
  }, 60_000);
});

describe('streaming placement', () => {
  it('puts Hello, HelloAck and an MPA Request without private data on the wire, in this order', async () => {
    const { port } = await echo(STREAMING);
    const seen: { out: Buffer[]; in: Buffer[] } = { out: [], in: [] };
    const through = await tcpPath(port, (near, far) => {
      near.on('data', (data) => (seen.out.push(data), far.write(data))).on('end', () => far.end());
      far.on('data', (data) => (seen.in.push(data), near.write(data))).on('end', () => near.end());
    });
    expect(await echoed(through, STREAMING, 1000)).toBe(true);
    const [out, back] = [Buffer.concat(seen.out), Buffer.concat(seen.in)];
    expect([out[0], out.readUInt32BE(4), back[0], back.readUInt32BE(4)]).toEqual([0, 68, 1, 24]);
    expect([out.toString('latin1', 68, 84), back.toString('latin1', 24, 40)]).toEqual([
      'MPA ID Req Frame',
      'MPA ID Rep Frame',
    ]);
    // Four octets of enhanced data (RFC 6581), and nothing of the program.
    expect([out.readUInt16BE(68 + 18), back.readUInt16BE(24 + 18)]).toEqual([4, 4]);
  });

  it('refuses a Hello that cannot be used, without HelloAck, and goes on', async () => {
    const { server, port } = await echo(STREAMING);
    const bad: [string, Uint8Array][] = [
      ['another protocol', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
      ['HelloAck', encodeHelloAck({ ...HELLO })],
      ['a length of 63', Buffer.from(encodeHello(HELLO)).fill(63, 7, 8)],
      ['a length of 2^32 - 1', Buffer.from(encodeHello(HELLO)).fill(255, 4, 8)],
      ['no buffers', encodeHello({ ...HELLO, bufs: 0 })],
      ['version 3', encodeHello({ ...HELLO, version: 0x30 })],
      ['buffers of 8 bytes', encodeHello({ ...HELLO, localSize: 8 })],
      ['no advertisements', encodeHello({ ...HELLO, maxAdverts: 0 })],
    ];
    for (const [name, bytes] of bad) {
      const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
      let got = 0;
      socket.on('data', ({ length }) => (got += length));
      socket.write(bytes);
      await closed(socket);
      expect(got, name).toBe(0);
    }
    expect(server.connections.size).toBe(0);
    expect(await echoed(port, STREAMING, 1000)).toBe(true);
  });

  it('takes a Hello that comes byte by byte, with the MPA Request behind it in one piece', async () => {
    const { server, port } = await echo(STREAMING);
    const socket = net.connect({ port, host: '127.0.0.1', noDelay: true }).on('error', () => undefined);
    for (const byte of encodeHello(HELLO)) {
      socket.write(Uint8Array.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    const [ack] = (await once(socket, 'data')) as [Buffer];
    expect([ack.length, ack[0]]).toEqual([24, 1]);
    // Private data in the frame behind Hello: rejected, and its socket is gone.
    const request = Buffer.concat([
      Buffer.from('MPA ID Req Frame'),
      Buffer.from([0x40, 1, 0, 4, 1, 2, 3, 4]),
    ]);
    socket.write(request);
    const [reply] = (await once(socket, 'data')) as [Buffer];
    expect([reply.toString('latin1', 0, 16), reply[16]! & 0x20]).toEqual(['MPA ID Rep Frame', 0x20]);
    await closed(socket);
    await expect.poll(() => server.connections.size).toBe(0);
  });

  it('counts greeted connections: one too many gets no HelloAck; one that leaves is forgotten', async () => {
    const { server, port } = await echo(STREAMING);
    server.maxConnections = 1;
    const first = net.connect(port, '127.0.0.1').on('error', () => undefined);
    first.write(encodeHello(HELLO));
    await once(first, 'data');
    const dropped = once(server, 'drop');
    const second = net.connect(port, '127.0.0.1').on('error', () => undefined);
    second.write(encodeHello(HELLO));
    await Promise.all([dropped, closed(second)]);
    first.destroy();
    await expect.poll(() => server.connections.size).toBe(0);
    expect(await echoed(port, STREAMING, 10)).toBe(true);
  });

  it.each<[string, (socket: net.Socket) => void]>([
    ['ends at once', (socket) => socket.end()],
    ['resets', (socket) => socket.resetAndDestroy()],
    ['answers with another message', (socket) => socket.write(encodeHello(HELLO))],
    ['answers with an MPA Reply', (socket) => socket.write('MPA ID Rep Frame\x40\x01\0\0')],
    ['answers another version', (socket) => socket.write(encodeHelloAck({ ...HELLO, version: 0x11 }))],
  ])('a server that %s gives an error', async (_name, answer) => {
    const server = net.createServer((socket) => {
      socket.on('error', () => undefined).once('data', () => answer(socket));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const socket = connect({
      port: (server.address() as net.AddressInfo).port,
      host: '127.0.0.1',
      ...STREAMING,
    });
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toMatch(/^(EPROTO|ECONNRESET)$/);
    server.close();
  });

  it('reports a port without a listener as the system does, and can be destroyed on the way', async () => {
    const refused = connect({ port: 1, host: '127.0.0.1', ...STREAMING });
    expect(await once(refused, 'error')).toMatchObject([{ code: 'ECONNREFUSED' }]);
    const mute = net.createServer((socket) => void socket.on('error', () => undefined).resume());
    mute.listen(0, '127.0.0.1');
    await once(mute, 'listening');
    const socket = connect({
      port: (mute.address() as net.AddressInfo).port,
      host: '127.0.0.1',
      ...STREAMING,
    });
    const [there] = (await once(mute, 'connection')) as [net.Socket];
    socket.destroy();
    await Promise.all([closed(socket), closed(there)]);
    mute.close();
  });
});

describe('the first message', () => {
  it('is framed by its length alone', () => {
    const hello = encodeHello(HELLO);
    for (let i = 0; i < hello.length; i++) expect(setupIn(hello.subarray(0, i), MID.HELLO)).toBeNull();
    const whole = setupIn(Buffer.concat([hello, Buffer.from('MPA')]), MID.HELLO);
    expect(whole).toMatchObject({ type: 'message', bytes: { length: 68 } });
    expect(setupIn(Buffer.from('M'), MID.HELLO)).toEqual({ type: 'mpa' });
    expect(setupIn(Buffer.from('M'), MID.HELLO_ACK)).toMatchObject({ type: 'fault' });
    for (const length of [0, 23, 513, 0xffff_ffff]) {
      const ack = Buffer.from(encodeHelloAck(HELLO));
      ack.writeUInt32BE(length, 4);
      expect(setupIn(ack, MID.HELLO_ACK)).toMatchObject({ type: 'fault' });
    }
  });
});
