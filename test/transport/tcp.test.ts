/**
 * What the TCP transport adds to the contract: shared read memory, adoption of accepted sockets, the real
 * clock.
 */

import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { Server, Socket, connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { acceptHandles, adopt, socketOver } from '../../src/transport/adopt.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import { surviving } from '../support/survivor.ts';
import { World, pattern } from './harness.ts';
import type { End } from './harness.ts';
import { plain } from '../support/plain.ts';

function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, resolve };
}

describe('TcpTransport', () => {
  let world: World | undefined;

  afterEach(() => world?.dispose());

  it('lets 1000 connections read into one buffer of 64 KiB without mixing their octets up', async () => {
    const allocated: Uint8Array[] = [];
    const transport = new TcpTransport({
      receive: 'onread',
      allocate: (octets) => {
        // Somewhere inside larger memory, as an arena would give it.
        const bytes = new Uint8Array(new ArrayBuffer(octets + 64), 64, octets);
        allocated.push(bytes);
        return bytes;
      },
    });
    const here = (world = new World('TCP', transport, realScheduler));
    const accepted = new Map<number, End>();
    const foreign: ArrayBufferLike[] = [];
    const track = (end: End): void => {
      const { onData } = end;
      end.onData = (bytes, start, stop) => {
        if (bytes.buffer !== allocated[0]?.buffer) foreign.push(bytes.buffer);
        onData.call(end, bytes, start, stop);
      };
    };
    const listener = await here.listen({ host: '127.0.0.1', backlog: 1024 }, (port) => {
      const end = here.end(port);
      track(end);
      accepted.set(port.remoteAddress.port, end.attach());
      here.notify();
    });
    const random = seededRandom(1000);
    const ends: End[] = [];
    for (let i = 0; i < 1000; i++) {
      transport.connect({ host: '127.0.0.1', port: listener.address.port }, (port, error) => {
        if (port === undefined) throw error ?? new Error('no port');
        const end = here.end(port);
        track(end);
        ends.push(end.attach());
        here.notify();
      });
    }
    await here.until(() => ends.length === 1000 && accepted.size === 1000, '1000 connections');
    const sent = ends.map((end) => {
      const bytes = pattern(1 + (random() % 3000), random);
      end.write(bytes.subarray(0, 100), bytes.subarray(100));
      return bytes;
    });
    const peers = ends.map((end) => accepted.get(end.port.localAddress.port));
    for (const peer of peers) peer?.write(Uint8Array.of(peer.port.remoteAddress.port & 0xff));
    await here.until(
      () => peers.every((peer, i) => peer?.count === sent[i]?.length) && ends.every((end) => end.count === 1),
      'all octets',
    );
    expect(allocated.map((bytes) => bytes.length)).toEqual([65_536]);
    expect(foreign).toEqual([]);
    ends.forEach((end, i) => {
      expect(Buffer.from(peers[i]?.received ?? []).equals(sent[i] ?? Buffer.of(0)), `connection ${i}`).toBe(
        true,
      );
      expect(end.received).toEqual([end.port.localAddress.port & 0xff]);
    });
  });

  it('allocates nothing when it receives by data events', async () => {
    let asked = 0;
    const transport = new TcpTransport({
      receive: 'data',
      allocate: (octets) => {
        asked++;
        return new Uint8Array(octets);
      },
    });
    world = new World('TCP', transport, realScheduler);
    const { active, passive } = await world.pair();
    active.attach();
    passive.attach();
    active.write(Uint8Array.of(1));
    await world.until(() => passive.count === 1, 'an octet');
    expect(asked).toBe(0);
  });

  it('takes the receive mode from the option, else from the environment, and refuses others', () => {
    const before = process.env['IWARP_RECEIVE'];
    try {
      process.env['IWARP_RECEIVE'] = 'data';
      expect(new TcpTransport().receive).toBe('data');
      expect(new TcpTransport({ receive: 'onread' }).receive).toBe('onread');
      process.env['IWARP_RECEIVE'] = 'fast';
      expect(() => new TcpTransport()).toThrow('IWARP_RECEIVE must be one of auto, onread, data');
      delete process.env['IWARP_RECEIVE'];
      expect(new TcpTransport().receive).toBe(process.platform === 'win32' ? 'data' : 'onread');
    } finally {
      if (before !== undefined) process.env['IWARP_RECEIVE'] = before;
      else delete process.env['IWARP_RECEIVE'];
    }
  });

  it.each(['active', 'passive'] as const)(
    'finds its octets after a throw in the tick of a read, %s end',
    async (side) => {
      const here = (world = new World('TCP', new TcpTransport({ receive: 'onread' }), realScheduler));
      const pair = await here.pair();
      const end = pair[side];
      const peer = pair[side === 'active' ? 'passive' : 'active'].attach();
      // Each read has separate memory, and octets must come in the one that was named last.
      const memories: Uint8Array[] = [];
      const strange: number[] = [];
      const got: number[] = [];
      end.call(() =>
        end.port.attach({
          readTarget: () => memories[memories.push(new Uint8Array(1000)) - 1],
          onData: (bytes, start, stop) => {
            if (bytes.buffer !== memories.at(-1)?.buffer) strange.push(got.length);
            got.push(...bytes.subarray(start, stop));
            here.notify();
            // Twice behind each other, and now and then not at all.
            if (got.length % 3 === 0) return;
            process.nextTick(() => {
              throw new Error('mine');
            });
            void Promise.resolve().then(() =>
              process.nextTick(() => {
                throw new Error('mine too');
              }),
            );
          },
          onEnd: () => undefined,
          onClose: () => undefined,
        }),
      );
      const thrown = await surviving(async () => {
        for (let n = 1; n <= 50; n++) {
          peer.write(Uint8Array.of(n));
          await here.until(() => got.length === n, `octet ${n}`);
          await new Promise((resolve) => setImmediate(resolve));
        }
      });
      // The first read goes where it was said before there was a handler.
      expect(got.slice(1)).toEqual(Array.from({ length: 49 }, (_, n) => n + 2));
      expect(strange).toEqual([0]);
      expect(thrown.length).toBeGreaterThan(60);
    },
  );

  it('distinguishes a reset after unread data from an orderly end', async () => {
    const here = (world = new World('TCP', new TcpTransport(), realScheduler));
    const { active, passive } = await here.pair();
    active.attach();
    active.write(Uint8Array.of(1, 2, 3));
    await here.until(() => active.dones.length === 1, 'a done');
    active.call(() => active.port.reset());
    await here.until(() => active.closed, 'the close');
    passive.attach();
    await here.until(() => passive.closed, 'the close at the other end');
    expect(passive.log).toEqual(['close with error']);
    expect(passive.closeError?.code).toBe('ERR_CONNECTION_RESET');
  });
});

describe('adopt', () => {
  const buffer = new Uint8Array(1000);

  it('moves the connection to a socket with our buffer, and leaves an empty shell', async () => {
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const [accepted] = (await once(server, 'connection')) as [Socket];
    const read = new Promise<number[]>((resolve) => {
      let asked = false;
      const { socket, userBuffer } = adopt(
        accepted,
        {
          buffer: () => {
            asked = true;
            return buffer;
          },
          callback: (octets, bytes) => {
            resolve([...bytes.subarray(0, octets)]);
            return bytes === buffer;
          },
        },
        () => asked,
      );
      expect(userBuffer).toBe(true);
      expect(socket).not.toBe(accepted);
      expect(accepted.destroyed).toBe(true);
      socket.on('error', () => undefined);
      socket.resume();
    });
    client.write(Uint8Array.of(5, 6));
    expect(await read).toEqual([5, 6]);
    client.resetAndDestroy();
    server.close();
    await once(server, 'close');
  });

  it('leaves a socket alone whose insides it does not know', () => {
    const socket = new Socket();
    expect(adopt(socket, { buffer, callback: () => true }, () => true)).toEqual({
      socket,
      userBuffer: false,
    });
    const strange = new Socket() as Socket & { _handle: unknown };
    strange._handle = { readStart: () => 0 };
    expect(adopt(strange, { buffer, callback: () => true }, () => true).socket).toBe(strange);
    expect(strange.destroyed).toBe(false);
  });
});

describe('acceptHandles', () => {
  /** A listening server, and a client that sends `Uint8Array.of(5, 6)` and ends. */
  async function served(prepare: (server: Server) => void): Promise<Server> {
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    prepare(server);
    connect((server.address() as AddressInfo).port, '127.0.0.1')
      .on('error', () => undefined)
      .end(Uint8Array.of(5, 6));
    return server;
  }

  async function close(server: Server, socket: Socket): Promise<void> {
    socket.destroy();
    server.close();
    await once(server, 'close');
  }

  it('has one socket made for a connection, with our buffer, and none by the server', async () => {
    const buffer = new Uint8Array(1000);
    let events = 0;
    const { promise, resolve } = deferred<{ socket: Socket; octets: number[] }>();
    const server = await served((listening) => {
      listening.on('connection', () => events++);
      acceptHandles(listening, (handle) => {
        const socket = socketOver(handle, {
          buffer,
          callback: (octets, bytes) => {
            resolve({ socket: socket!, octets: [...bytes.subarray(0, octets)] });
            return true;
          },
        });
        expect(socket?.isPaused()).toBe(true);
        socket?.resume();
        return socket !== null;
      });
    });
    const { socket, octets } = await promise;
    expect(octets).toEqual([5, 6]);
    expect([...buffer.subarray(0, 2)]).toEqual([5, 6]);
    expect(events).toBe(0);
    await close(server, socket);
  });

  it('leaves connections that it does not take to the server', async () => {
    let offered = 0;
    const server = await served((listening) => acceptHandles(listening, () => offered++ < 0));
    const [socket] = (await once(server, 'connection')) as [Socket];
    const [chunk] = (await once(socket.resume(), 'data')) as [Uint8Array];
    expect(offered).toBe(1);
    expect([...chunk]).toEqual([5, 6]);
    await close(server, socket);
  });

  it('offers no handle that it does not know, and no error', async () => {
    type Insides = { _handle: { onconnection(error: number, handle: unknown): void } };
    const server = await served((listening) => acceptHandles(listening, () => expect.unreachable('taken')));
    const { _handle: handle } = server as unknown as Insides;
    const failed = once(server, 'error') as Promise<[NodeJS.ErrnoException]>;
    handle.onconnection(-24, undefined); // EMFILE
    expect((await failed)[0].syscall).toBe('accept');
    const strange = Object.create(null) as Record<string, () => number>;
    for (const name of ['readStop', 'readStart', 'getpeername', 'close']) strange[name] = () => 0;
    const made = once(server, 'connection') as Promise<[Socket]>;
    handle.onconnection(0, strange);
    expect((await made)[0]).toBeInstanceOf(Socket);
    server.close();
  });

  it('does nothing to a server whose insides it does not know', () => {
    const server = createServer();
    acceptHandles(server, () => true);
    const strange = createServer() as Server & { _handle: unknown };
    strange._handle = { onconnection: null };
    acceptHandles(strange, () => true);
    expect(strange._handle).toEqual({ onconnection: null });
  });

  it('leaves a transport that has to do without it with its read buffer all the same', async () => {
    const { listen } = Server.prototype;
    const spy = vi.spyOn(Server.prototype, 'listen').mockImplementation(function (
      this: Server,
      ...args: unknown[]
    ): Server {
      // The transport looks between these two.
      const insides = this as unknown as { _handle: { onconnection: unknown } };
      let hidden: unknown;
      this.prependOnceListener(
        'listening',
        () => ((hidden = insides._handle.onconnection), (insides._handle.onconnection = undefined)),
      );
      this.once('listening', () => (insides._handle.onconnection = hidden));
      return Reflect.apply(listen, this, args) as Server;
    });
    const buffers: Uint8Array[] = [];
    const transport = new TcpTransport({
      receive: 'onread',
      allocate: (octets) => (buffers.push(new Uint8Array(octets)), buffers.at(-1)!),
    });
    const here = new World('TCP', transport, realScheduler);
    const { promise, resolve } = deferred<[Uint8Array, number]>();
    const listener = await here.listen({ host: '127.0.0.1' }, (port) => {
      port.attach({
        onData: (bytes, start, end) => resolve([bytes, end - start]),
        onEnd: () => port.end(),
        onClose: () => undefined,
      });
    });
    spy.mockRestore();
    const client = connect(listener.address.port, '127.0.0.1').on('error', () => undefined);
    client.end(Uint8Array.of(5, 6));
    const [bytes, octets] = await promise;
    expect(bytes).toBe(buffers[0]);
    expect(octets).toBe(2);
    await once(client, 'close');
    await here.dispose();
  });
});

describe('addresses of an accepted port', () => {
  it.each(['127.0.0.1', '0.0.0.0', '::', '::1'])(
    'are its own, and stay known after its end, with a listener on %s',
    async (host) => {
      const here = new World('TCP', new TcpTransport(), realScheduler);
      const { promise, resolve } = deferred<void>();
      let told: unknown;
      const listener = await here.listen({ host }, (port) => {
        port.attach({
          onData: () => undefined,
          onEnd: () => port.end(),
          onClose: () => {
            told = [port.localAddress, port.remoteAddress];
            resolve();
          },
        });
      });
      const client = connect(listener.address.port, host === '::1' ? '::1' : '127.0.0.1');
      await once(client, 'connect');
      const { localAddress, localPort } = client;
      client.end();
      await promise;
      const [ours, theirs] = told as [
        { address: string; port: number; family: string },
        { address: string; port: number; family: string },
      ];
      const plain = (address: string): string => address.replace('::ffff:', '');
      expect([plain(ours.address), ours.port]).toEqual([
        host === '::1' ? '::1' : '127.0.0.1',
        listener.address.port,
      ]);
      expect([plain(theirs.address), theirs.port]).toEqual([localAddress, localPort]);
      expect(ours.family).toBe(host.includes(':') ? 'IPv6' : 'IPv4');
      await here.dispose();
    },
  );
});

describe('realScheduler', () => {
  it('runs tasks at or after their time, in order, and not when cancelled', async () => {
    const log: string[] = [];
    const due = realScheduler.now() + 3;
    const cancel = realScheduler.at(due, () => log.push('cancelled'));
    cancel();
    cancel();
    const at = await new Promise<number>((resolve) => {
      realScheduler.at(due - 100, () => log.push('past'));
      realScheduler.at(due, () => resolve(realScheduler.now()));
      // Unreferenced timers need company to be waited for.
      setTimeout(() => undefined, 1000).unref();
      log.push('scheduled');
    });
    expect(at).toBeGreaterThanOrEqual(due);
    expect(log).toEqual(['scheduled', 'past']);
  });

  it('defers after the call stack and the promise continuations of the turn, in order', async () => {
    const log: number[] = [];
    await Promise.resolve();
    realScheduler.defer(() => log.push(1));
    realScheduler.defer(() => log.push(2));
    void Promise.resolve().then(() => log.push(0));
    expect(log).toEqual([]);
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(log).toEqual([0, 1, 2]);
  });

  it('does not keep a process alive', async () => {
    const module = plain('src/transport/scheduler.ts');
    const program =
      `import { realScheduler } from ${JSON.stringify(module)}; realScheduler.at(realScheduler.now() + ` +
      "3e9, () => {}); console.log('done');";
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
      timeout: 30_000,
    });
    expect(stdout).toBe('done\n');
  });
});
