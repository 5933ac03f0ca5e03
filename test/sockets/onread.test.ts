/**
 * Reading into the program's own memory: every behaviour is asked of a socket of `node:net` too, which is the
 * model.
 */
// cspell:ignore onetwo
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, createServer, type OnReadOptions, type RdmaSocket } from '../../src/sockets/index.ts';
import { overThreads } from './over-threads.ts';
import { surviving } from '../support/survivor.ts';

type AnyServer = ReturnType<typeof createServer> | net.Server;
const servers: AnyServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    if ('closeAllConnections' in server) await server[Symbol.asyncDispose]();
    else server.close();
  }
});

interface World {
  readonly serve: (onConnection: (socket: Duplex) => void) => AnyServer;
  readonly open: (port: number, onread: OnReadOptions) => Duplex;
}
const WORLDS: Readonly<Record<string, World>> = {
  'node:net': {
    serve: (onConnection) => net.createServer(onConnection),
    open: (port, onread) => net.connect({ host: '127.0.0.1', port, onread: onread as net.OnReadOpts }),
  },
  'iwarp/sockets': {
    serve: (onConnection) => createServer(onConnection),
    open: (port, onread) => connect({ host: '127.0.0.1', port, onread }),
  },
  'iwarp/sockets between threads': {
    serve: (onConnection) => overThreads.createServer(onConnection),
    open: (port, onread) => overThreads.connect({ host: '127.0.0.1', port, onread }),
  },
  ...Object.fromEntries(
    (['buffered', 'sink', 'auto'] as const).map((mode) => [
      `iwarp/sockets over SDP in mode ${mode}`,
      {
        serve: (onConnection: (socket: Duplex) => void) =>
          createServer({ protocol: 'sdp', mode, maxAdverts: 4 }, onConnection),
        open: (port: number, onread: OnReadOptions) =>
          connect({ protocol: 'sdp', mode, host: '127.0.0.1', port, onread }),
      },
    ]),
  ),
};

async function listen(world: World, onConnection: (socket: Duplex) => void): Promise<number> {
  const server = world.serve((socket) => {
    socket.on('error', () => undefined);
    onConnection(socket);
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as net.AddressInfo).port;
}

const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
/** Unlike `once`, whatever error comes first. */
const closed = (socket: Duplex): Promise<void> =>
  new Promise((resolve) => void socket.once('close', resolve));
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(Object.entries(WORLDS))('onread of %s', (_name, world) => {
  it.each([1, 100, 65_536])(
    'pieces of up to %i octets come into one buffer, in order, and no other way',
    async (size) => {
      const data = randomBytes(size === 1 ? 2000 : 1_500_001);
      const port = await listen(world, (socket) => socket.end(data));
      const buffer = new Uint8Array(size);
      const pieces: Buffer[] = [];
      const socket = world.open(port, {
        buffer,
        callback: (octets, where) => {
          expect(where).toBe(buffer);
          expect(octets).toBeLessThanOrEqual(size);
          pieces.push(Buffer.from(where.subarray(0, octets)));
          return true;
        },
      });
      const streamed: unknown[] = [];
      socket.on('data', (chunk) => streamed.push(chunk));
      await once(socket, 'end');
      expect(digest(Buffer.concat(pieces))).toBe(digest(data));
      expect(streamed).toEqual([]);
      expect((socket as net.Socket).bytesRead).toBe(data.length);
      await once(socket, 'close');
    },
  );

  it('a function is asked for the memory before each piece', async () => {
    const data = randomBytes(300_000);
    const port = await listen(world, (socket) => socket.end(data));
    const all = new Uint8Array(data.length + 1000);
    let at = 0;
    const socket = world.open(port, {
      buffer: () => all.subarray(at, at + 1000),
      callback: (octets) => {
        at += octets;
        return true;
      },
    });
    await once(socket, 'end');
    expect(at).toBe(data.length);
    expect(digest(all.subarray(0, at))).toBe(digest(data));
  });

  it('false pauses; nothing comes until resume, nor the end', async () => {
    const port = await listen(world, (socket) => socket.end(Buffer.alloc(1000, 5)));
    let pieces = 0;
    let octets = 0;
    let ended = false;
    const socket = world.open(port, {
      buffer: new Uint8Array(100),
      callback: (count) => {
        pieces++;
        octets += count;
        return false;
      },
    });
    socket.on('end', () => (ended = true));
    while (pieces === 0) await pause(1);
    for (let expected = 1; expected <= 10; expected++) {
      await pause(10);
      expect([pieces, octets, ended]).toEqual([expected, expected * 100, false]);
      socket.resume();
      expect(pieces).toBe(expected);
      while (expected < 10 && pieces === expected) await pause(1);
    }
    while (!ended) await pause(1);
  });

  it('pause stops the octets, resume lets them go on; a paused reader holds the writer back', async () => {
    let written = 0;
    let full = false;
    const port = await listen(world, (socket) => {
      const write = (): void => {
        while (written < 400 && socket.write(Buffer.alloc(65_536, 1))) written++;
        full = written < 400;
      };
      socket.on('drain', write);
      write();
    });
    let octets = 0;
    const socket = world.open(port, {
      buffer: new Uint8Array(65_536),
      callback: (count) => void (octets += count),
    });
    socket.pause();
    await once(socket, 'connect');
    await pause(100);
    expect(octets).toBe(0);
    expect(full).toBe(true);
    socket.resume();
    while (octets < 65_536 * 400) await pause(5);
    socket.destroy();
  });

  it('an answer may be written, and the socket destroyed, from inside the call', async () => {
    const heard: string[] = [];
    const port = await listen(world, (socket) => {
      socket.on('data', (chunk: Uint8Array) => heard.push(Buffer.from(chunk).toString()));
      socket.write('hello');
    });
    let calls = 0;
    const socket: Duplex = world.open(port, {
      buffer: new Uint8Array(2),
      callback: (octets, buffer) => {
        calls++;
        if (calls === 1) socket.write(Buffer.from(buffer.slice(0, octets)));
        else socket.end(() => socket.destroy());
        return calls === 1;
      },
    });
    await once(socket, 'close');
    expect(calls).toBe(2);
    while (heard.length === 0) await pause(1);
    expect(heard.join('')).toBe('he');
  });

  it("what the callback throws is the program's own affair, and the octets go on", async () => {
    let got = '';
    const thrown = await surviving(async () => {
      const port = await listen(world, (socket) => {
        socket.write('one');
        setTimeout(() => socket.end('two'), 50);
      });
      const socket = world.open(port, {
        buffer: new Uint8Array(10),
        callback: (octets, buffer) => {
          got += Buffer.from(buffer.subarray(0, octets)).toString();
          if (got === 'one') throw new Error('mine');
        },
      });
      await once(socket, 'end');
    });
    expect([got, thrown]).toEqual(['onetwo', ['mine']]);
  });
});

describe('onread of iwarp/sockets alone', () => {
  it('a server says for each connection where its octets go', async () => {
    const got = new Map<RdmaSocket, Buffer>();
    const order: string[] = [];
    const server = createServer(
      {
        onread: (socket) => {
          order.push('asked');
          return {
            buffer: new Uint8Array(1000),
            callback: (octets, buffer) =>
              void got.set(
                socket,
                Buffer.concat([got.get(socket) ?? Buffer.alloc(0), buffer.subarray(0, octets)]),
              ),
          };
        },
      },
      () => order.push('connection'),
    ).listen(0, '127.0.0.1');
    servers.push(server);
    await once(server, 'listening');
    const sent = [randomBytes(50_000), randomBytes(3000)];
    for (const data of sent) {
      const socket = connect({ host: '127.0.0.1', port: (server.address() as { port: number }).port });
      socket.resume().end(data);
      await once(socket, 'close');
    }
    expect(order).toEqual(['asked', 'connection', 'asked', 'connection']);
    expect([...got.values()].map(digest)).toEqual(sent.map(digest));
  });

  it.each([
    ['nothing', undefined],
    ['no octets', new Uint8Array(0)],
    ['something else', 'text'],
  ])('a function that gives %s ends the socket with an error', async (_what, given) => {
    const port = await listen(WORLDS['iwarp/sockets']!, (socket) => socket.write('x'));
    const socket = connect({
      host: '127.0.0.1',
      port,
      onread: { buffer: (() => given) as never, callback: () => true },
    });
    const errors: unknown[] = [];
    socket.on('error', (error) => errors.push(error));
    await closed(socket);
    expect(errors).toEqual([
      expect.objectContaining({
        code: 'ERR_INVALID_ARGUMENT',
        message: expect.stringContaining('options.onread.buffer'),
      }),
    ]);
  });

  it("a server's function that gives another type ends that connection alone, with an error", async () => {
    let wrong = true;
    const errors: unknown[] = [];
    const server = createServer(
      {
        onread: (socket) => {
          socket.on('error', (error) => errors.push(error));
          return (wrong ? {} : { buffer: new Uint8Array(10), callback: () => true }) as OnReadOptions;
        },
      },
      (socket) => socket.end('fine'),
    ).listen(0, '127.0.0.1');
    servers.push(server);
    await once(server, 'listening');
    const first = connect({ host: '127.0.0.1', port: (server.address() as { port: number }).port });
    first.on('error', () => undefined).resume();
    await closed(first);
    expect(errors).toEqual([expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' })]);
    wrong = false;
    const second = connect({ host: '127.0.0.1', port: (server.address() as { port: number }).port });
    const [chunk] = await once(second, 'data');
    expect(String(chunk)).toBe('fine');
    second.destroy();
  });
});
