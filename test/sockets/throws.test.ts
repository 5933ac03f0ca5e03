/**
 * A program that throws out of its listeners, and goes on all the same: so does each of its sockets, to its
 * end. What node:net does is asked of it too.
 */
import { once } from 'node:events';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, createServer } from '../../src/sockets/index.ts';
import { overThreads } from './over-threads.ts';
import { surviving } from '../support/survivor.ts';

interface Sockets {
  connect(options: { port: number; host: string }): Duplex;
  createServer(options: object, onConnection: (socket: Duplex) => void): net.Server;
}

const RDMA = { connect, createServer } as unknown as Sockets;
const WORLDS: readonly (readonly [string, Sockets])[] = [
  ['node:net', net as unknown as Sockets],
  ['RDMA', RDMA],
  ['RDMA between threads', overThreads as unknown as Sockets],
];

const servers: net.Server[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => new Promise((resolve) => server.close(resolve))));
});

async function listen(
  world: Sockets,
  onConnection: (socket: Duplex) => void,
  options: object = {},
): Promise<number> {
  const server = world.createServer(options, onConnection).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return (server.address() as net.AddressInfo).port;
}

function mine(): never {
  throw new Error('mine');
}

describe.each(WORLDS)('listeners that throw: %s', (_name, world) => {
  it('data, every time: all octets come, and the end behind them', async () => {
    const port = await listen(world, (socket) => {
      for (let n = 0; n < 300; n++) socket.write(Buffer.alloc(7000, n));
      socket.end();
    });
    let octets = 0;
    let wrong = 0;
    let ended = false;
    const thrown = await surviving(async () => {
      const socket = world.connect({ port, host: '127.0.0.1' });
      const closed = once(socket, 'close');
      socket.on('data', (data: Buffer) => {
        for (let i = 0; i < data.length; i += 500)
          if (data[i] !== (Math.floor((octets + i) / 7000) & 0xff)) wrong++;
        octets += data.length;
        mine();
      });
      socket.on('end', () => (ended = true));
      await closed;
    });
    expect([octets, wrong, ended]).toEqual([2_100_000, 0, true]);
    expect(new Set(thrown)).toEqual(new Set(['mine']));
    expect(thrown.length).toBeGreaterThan(1);
  });

  it("data right in front of one direction's end: the end is seen, the other goes on", async () => {
    const port = await listen(
      world,
      (socket) => {
        socket.end('last words');
        socket.on('data', (data: Buffer) => data.toString() === 'answer' && socket.destroy());
      },
      { allowHalfOpen: true },
    );
    const heard: string[] = [];
    const thrown = await surviving(async () => {
      const socket = world.connect({ port, host: '127.0.0.1', allowHalfOpen: true } as {
        port: number;
        host: string;
      });
      const closed = once(socket, 'close');
      socket.on('data', (data: Buffer) => {
        heard.push(data.toString());
        mine();
      });
      socket.on('end', () => {
        heard.push('end');
        socket.end('answer');
      });
      await closed;
    });
    expect([heard, thrown]).toEqual([['last words', 'end'], ['mine']]);
  });
});

describe('listeners that throw, where node:net loses earlier writes', () => {
  it('connect: earlier writes leave, and the answer comes', async () => {
    const port = await listen(RDMA, (socket) => socket.pipe(socket));
    let got = '';
    const thrown = await surviving(async () => {
      const socket = RDMA.connect({ port, host: '127.0.0.1' });
      const closed = once(socket, 'close');
      socket.on('connect', mine);
      socket.on('data', (data: Buffer) => (got += data.toString()));
      socket.write('early ');
      socket.end('words');
      await closed;
    });
    expect([got, thrown]).toEqual(['early words', ['mine']]);
  });
});
