/**
 * Extended sockets: plain TCP that is switched to RDMA on the same connection, at both ends or opposite a
 * plain RDMA peer, with progress in this thread and in a worker.
 */
import { once } from 'node:events';
import net from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import {
  connect as connectRdma,
  createServer as createRdmaServer,
  RemoteBuffer,
  type Connection,
} from '../../src/index.ts';
import {
  connectExtended,
  createExtendedServer,
  ExtendedSocket,
  type ExtendedCompletion,
  type ExtendedServerOptions,
  type RdmaModeOptions,
} from '../../src/sockets/index.ts';

const servers: net.Server[] = [];
const sockets: net.Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) server.close();
});

function keep<T extends net.Socket>(socket: T): T {
  socket.on('error', () => undefined);
  sockets.push(socket);
  return socket;
}

async function listening(server: net.Server): Promise<number> {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as net.AddressInfo).port;
}

/** Two ends of a plain connection: the one that connected, and the accepted one. */
async function plainPair(
  rdma: RdmaModeOptions = {},
  options: ExtendedServerOptions = {},
): Promise<[ExtendedSocket, ExtendedSocket]> {
  const server = createExtendedServer({ rdma, ...options });
  const accepted = once(server, 'connection');
  const here = keep(connectExtended({ port: await listening(server), host: '127.0.0.1', rdma }));
  const [[there]] = (await Promise.all([accepted, once(here, 'connect')])) as unknown as [[ExtendedSocket]];
  return [here, keep(there)];
}

async function rdmaPair(rdma: RdmaModeOptions = {}): Promise<[ExtendedSocket, ExtendedSocket]> {
  const pair = await plainPair(rdma);
  await Promise.all(pair.map((socket) => socket.setOption('DDPMODE', true)));
  return pair;
}

/** The close of a socket, with or without an error. */
const gone = (socket: net.Socket): Promise<void> =>
  new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
const failed = (socket: net.Socket): Promise<unknown> =>
  new Promise((resolve) => void socket.once('error', resolve));

describe('an extended socket before its switch', () => {
  it('is a net.Socket: bytes, half close and properties', async () => {
    const [here, there] = await plainPair({}, { allowHalfOpen: true });
    expect([here instanceof net.Socket, there instanceof ExtendedSocket]).toEqual([true, true]);
    expect([here.mode, there.mode, here.getOption('DDPMODE')]).toEqual(['plain', 'plain', false]);
    there.on('data', (data) => there.write(data));
    there.on('end', () => there.end('bye'));
    const pieces: Buffer[] = [];
    here.on('data', (data) => pieces.push(data));
    here.end(Buffer.alloc(300_000, 'x'));
    await Promise.all([gone(here), gone(there)]);
    expect(Buffer.concat(pieces).toString()).toBe(`${'x'.repeat(300_000)}bye`);
    expect([here.bytesRead, here.bytesWritten, here.mode]).toEqual([300_003, 300_000, 'closed']);
  });

  it('wraps no call of net.Socket', () => {
    const own = Object.getOwnPropertyNames(ExtendedSocket.prototype);
    for (const name of ['write', 'read', 'push', '_write', '_writev', '_read', 'end', 'on', 'emit', 'pause'])
      expect(own).not.toContain(name);
  });
});

describe.each(['thread', 'worker'] as const)('extended sockets, progress %s', (progress) => {
  it('switch the same connection and move data in all ways', async () => {
    const [here, there] = await plainPair({ progress });
    const { localPort, remotePort } = here;
    const memory = there.allocate(1 << 20);
    const words = [there.allocate(4), there.allocate(1000)];
    there.postRecv(words, 7);
    there.write(there.register(memory, 'read-write').toBytes());
    const [bytes] = (await once(here, 'data')) as [Buffer];
    const remote = RemoteBuffer.fromBytes(bytes);
    await Promise.all([
      here.setOption('DDPMODE', true, { privateData: Buffer.from('from here') }),
      there.startRdma({ privateData: Buffer.from('from there') }),
    ]);
    expect([here.mode, there.mode, here.getOption('DDPMODE')]).toEqual(['rdma', 'rdma', true]);
    expect([Buffer.from(here.privateData).toString(), Buffer.from(there.privateData).toString()]).toEqual([
      'from there',
      'from here',
    ]);
    expect([here.localPort, here.remotePort]).toEqual([localPort, remotePort]);
    expect([here.bytesRead, there.bytesWritten]).toEqual([16, 16]);

    const pattern = Uint8Array.from({ length: 1 << 20 }, (_, i) => i % 251);
    await here.put(
      [pattern.subarray(0, 10), pattern.subarray(10, 700_000), pattern.subarray(700_000)],
      remote,
    );
    const back = new Uint8Array(1 << 20);
    await here.get(remote, back);
    expect([Buffer.compare(back, pattern), Buffer.compare(memory, pattern)]).toEqual([0, 0]);

    here.postSend([Buffer.from('one'), Buffer.alloc(0), Buffer.from(' message')], 1);
    expect(await here.completion(1)).toEqual({ id: 1, operation: 'send', length: 11, status: 'success' });
    expect(await there.completion(7)).toEqual({ id: 7, operation: 'receive', length: 11, status: 'success' });
    expect(Buffer.concat(words).subarray(0, 11).toString()).toBe('one message');

    there.postSend(Buffer.alloc(9, 'y'), 2);
    const place = Buffer.alloc(20, 'z');
    here.postRecv([place.subarray(0, 5), place.subarray(5)], 3);
    here.postGet(remote, new Uint8Array(3), 4);
    here.postPut(Buffer.from('abc'), remote.slice(5), 5);
    await here.completion(5);
    await here.completion(3);
    expect(place.toString()).toBe(`${'y'.repeat(9)}${'z'.repeat(11)}`);
    const out: ExtendedCompletion[] = [];
    expect(here.poll(out, 8)).toBe(1);
    expect(out).toEqual([{ id: 4, operation: 'get', length: 3, status: 'success' }]);
    expect([here.poll(out), here.pendingPosts]).toEqual([0, 0]);

    here.end();
    await Promise.all([gone(here), gone(there)]);
    expect([here.mode, there.mode, here.errored, there.errored]).toEqual(['closed', 'closed', null, null]);
  }, 60_000);

  it('take bytes that were read too far, and those that came before the responder has switched', async () => {
    const [here, there] = await plainPair({ progress });
    there.postRecv(there.allocate(16), 1);
    const started = here.startRdma();
    // The Request is on its way to a program that has not called yet.
    const [head] = (await once(there, 'data')) as [Buffer];
    await Promise.all([started, there.startRdma({ head })]);
    here.postSend(Buffer.from('x'), 1);
    expect((await there.completion(1)).length).toBe(1);

    const [a, b] = await plainPair({ progress });
    const late = a.startRdma();
    await new Promise((resolve) => setTimeout(resolve, 30));
    await Promise.all([late, b.startRdma()]);
    expect([a.mode, b.mode]).toEqual(['rdma', 'rdma']);
  });

  it('let bytes that were written before the switch arrive as bytes', async () => {
    const [here, there] = await plainPair({ progress });
    const pieces: Buffer[] = [];
    let count = 0;
    const all = new Promise<void>((resolve) => {
      const take = (data: Buffer): void => {
        pieces.push(data);
        count += data.length;
        if (count < 5_000_000) return;
        there.off('data', take);
        resolve();
      };
      there.on('data', take);
    });
    here.write(Buffer.alloc(5_000_000, 'p'));
    const started = here.startRdma();
    await all;
    await Promise.all([started, there.startRdma({ head: Buffer.concat(pieces).subarray(5_000_000) })]);
    expect([count >= 5_000_000, here.mode]).toEqual([true, 'rdma']);
  });

  it('speak with a plain RDMA peer at the other end, in either role', async () => {
    const inbox: string[] = [];
    const serve = async (connection: Connection): Promise<void> => {
      const message = (await connection.receive())!;
      inbox.push(message.text());
      await connection.send(Buffer.from('from a plain server'));
      await connection.closed;
    };
    const server = await createRdmaServer({ credits: false }, serve).listen(0, '127.0.0.1');
    const here = keep(
      connectExtended({ port: server.address().port, host: '127.0.0.1', rdma: { progress } }),
    );
    await once(here, 'connect');
    const place = here.allocate(64);
    here.postRecv(place, 1);
    await here.setOption('DDPMODE', true);
    here.postSend(Buffer.from('from an extended socket'), 2);
    const { length } = await here.completion(1);
    expect(Buffer.from(place.subarray(0, length)).toString()).toBe('from a plain server');
    expect(inbox).toEqual(['from an extended socket']);
    here.end();
    await gone(here);
    await server.close();

    const extended = createExtendedServer({ rdma: { progress } }, (socket) => {
      keep(socket).postRecv(socket.allocate(64), 1);
      void socket.startRdma().then(async () => {
        await socket.completion(1);
        socket.postSend(Buffer.from('an extended server'), 2);
      });
    });
    const connection = await connectRdma(await listening(extended), '127.0.0.1', { credits: false });
    await connection.send('hello');
    expect((await connection.receive())!.text()).toBe('an extended server');
    await connection.close();
  });

  it('end with the peer: in order, destroyed, and by a fault of the peer', async () => {
    const [a, b] = await rdmaPair({ progress });
    const end = once(b, 'end');
    a.end();
    await Promise.all([gone(a), gone(b), end]);
    expect(() => b.postSend(Buffer.alloc(1), 1)).toThrow(/has ended/);

    const [c, d] = await rdmaPair({ progress });
    d.postRecv(d.allocate(8), 1);
    c.destroy();
    await Promise.all([gone(c), gone(d)]);
    expect([await d.completion(1), d.mode]).toMatchObject([{ id: 1, status: 'flushed' }, 'closed']);

    // No receive is posted: the message ends the connection, at both ends, with the Terminate for it.
    const [e, f] = await rdmaPair({ progress });
    const faults = Promise.all([failed(e), failed(f)]);
    e.postSend(Buffer.from('x'), 1);
    expect(await faults).toMatchObject([{ code: 'ERR_TERMINATED' }, { code: 'ERR_TERMINATED' }]);

    // A write of memory that the peer may only read, and a read of memory that it may only write.
    const [g, h] = await rdmaPair({ progress });
    const error = failed(g);
    await g.put(Buffer.alloc(8), h.register(h.allocate(64), 'read'));
    expect(await error).toMatchObject({ code: 'ERR_TERMINATED' });
    const [i, j] = await rdmaPair({ progress });
    await expect(i.get(j.register(j.allocate(64), 'write'), Buffer.alloc(8))).rejects.toMatchObject({
      code: 'ERR_WORK_COMPLETION',
      cause: { code: 'ERR_TERMINATED' },
    });
    await Promise.all([gone(h), gone(j)]);
  }, 60_000);

  it('end a registration on request: the peer has no access any longer', async () => {
    const [here, there] = await rdmaPair({ progress });
    const ticket = there.register(there.allocate(64), 'write');
    await here.put(Buffer.alloc(64, 1), ticket);
    there.deregister(ticket);
    expect(() => there.deregister(ticket)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_REGION' }));
    const error = failed(here);
    await here.put(Buffer.alloc(64, 2), ticket);
    expect(await error).toMatchObject({ code: 'ERR_TERMINATED' });
  });

  it('bound what a program never polls', async () => {
    const [here, there] = await rdmaPair({ progress, depth: 4 });
    for (let i = 0; i < 4; i++) there.postRecv(there.allocate(8), i);
    expect(() => there.postRecv(there.allocate(8), 9)).toThrow(
      expect.objectContaining({ code: 'ERR_QUEUE_FULL' }),
    );
    for (let i = 0; i < 4; i++) here.postSend(Buffer.alloc(8), i);
    expect(() => here.postSend(Buffer.alloc(8), 4)).toThrow(
      expect.objectContaining({ code: 'ERR_QUEUE_FULL' }),
    );
    await expect.poll(() => here.pendingPosts).toBe(0);
    expect(() => here.postSend(Buffer.alloc(8), 4)).toThrow(
      expect.objectContaining({ code: 'ERR_QUEUE_FULL' }),
    );
    const out: ExtendedCompletion[] = [];
    expect([here.poll(out, 3), out.map(({ id }) => id)]).toEqual([3, [0, 1, 2]]);
    await expect.poll(() => there.poll([], 9)).toBe(4);
    there.postRecv(there.allocate(8), 5);
    here.postSend(Buffer.alloc(8), 5);
    expect((await there.completion(5)).length).toBe(8);
  });
});

describe.each(['thread', 'worker'] as const)('gathering, progress %s', (progress) => {
  it.each(['copy', 'lend', 'cork'] as const)(
    '%s delivers the same bytes, without CRC and with it',
    async (gather) => {
      for (const crc of ['off', 'required'] as const) {
        const [here, there] = await rdmaPair({ progress, gather, policy: { crc } });
        const memory = there.allocate(3_000_000);
        const remote = there.register(memory, 'write');
        for (const sizes of [
          [1, 2, 3],
          [64, 9000, 70_000],
          [200_000, 10, 300_000, 1_000_000],
          [100_000, 100_000],
        ]) {
          const views = sizes.map((size, i) => new Uint8Array(size).fill(i + 1));
          const place = there.allocate(sizes.reduce((sum, size) => sum + size, 0));
          there.postRecv(place, 1);
          here.postSend(views, 1);
          await Promise.all([here.put(views, remote), there.completion(1), here.completion(1)]);
          await here.get(remote, new Uint8Array(0));
          here.postSend(Buffer.alloc(0), 2);
          there.postRecv([], 2);
          await there.completion(2);
          const expected = Buffer.concat(views);
          expect(Buffer.compare(place, expected), `${gather} ${crc} send of ${sizes}`).toBe(0);
          expect(Buffer.compare(memory.subarray(0, expected.length), expected)).toBe(0);
        }
        here.destroy();
      }
    },
  );
});

describe.each(['thread', 'worker'] as const)('bad input, progress %s', (progress) => {
  it('of calls before the switch', async () => {
    const [here] = await plainPair({ progress });
    const ticket = new RemoteBuffer(1, 0, 64);
    await expect(here.put(Buffer.alloc(1), ticket)).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
    await expect(here.get(ticket, Buffer.alloc(1))).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
    expect(() => here.postSend(Buffer.alloc(1), 1)).toThrow(/plain TCP/);
    expect(here.poll([], 5)).toBe(0);
    await expect(here.completion(1)).rejects.toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    here.destroy();
    expect(() => here.postRecv(Buffer.alloc(1), 1)).toThrow(
      expect.objectContaining({ code: 'ERR_CONNECTION_CLOSED' }),
    );
  });

  it('of arguments', async () => {
    const [here, there] = await rdmaPair({ progress });
    const ticket = there.register(there.allocate(8), 'read-write');
    const codes = {
      ERR_INVALID_ARGUMENT: [
        () => here.postSend('text' as never, 1),
        () => here.postSend(['text'] as never, 1),
        () => here.postSend(Buffer.alloc(1), -1),
        () => here.postRecv(Buffer.alloc(1), 1.5),
        () => here.poll([], -1),
        () => here.postPut(Buffer.alloc(1), {} as never, 1),
        () => here.register('text' as never, 'read'),
        () => here.register(here.allocate(1), 'delete' as never),
        () => here.getOption('NODELAY' as never),
        () => new ExtendedSocket({ rdma: { colour: 1 } as never }),
        () => new ExtendedSocket({ rdma: { depth: 0 } }),
        () => new ExtendedSocket({ rdma: { gather: 'throw' as never } }),
        () => ExtendedSocket.extend({} as never, 'initiator'),
        () => createExtendedServer({}, 1 as never),
      ],
      ERR_OUT_OF_RANGE: [
        () => here.postPut(Buffer.alloc(9), ticket, 1),
        () => here.postGet(ticket, Buffer.alloc(9), 1),
      ],
      ERR_TOO_LARGE: [() => here.postSend(new Array<Buffer>(17).fill(Buffer.alloc(1)), 1)],
      ERR_INVALID_STATE: [() => here.write('text')],
    } as const;
    for (const [code, calls] of Object.entries(codes))
      for (const call of calls)
        expect(call, `${code} ${String(call)}`).toThrow(expect.objectContaining({ code }));
    // None of it has harmed the connection.
    await here.put(Buffer.alloc(8), ticket);
  });

  it('of the switch', async () => {
    const refused = async (socket: ExtendedSocket, why: RegExp, ...rest: unknown[]): Promise<void> => {
      const call = socket.setOption as (...given: unknown[]) => Promise<void>;
      await expect(call.apply(socket, rest.length > 0 ? rest : ['DDPMODE', true])).rejects.toThrow(why);
    };
    const [here, there] = await plainPair({ progress }, { allowHalfOpen: true });
    await refused(here, /name must be 'DDPMODE'/, 'NODELAY', true);
    await refused(here, /not off again/, 'DDPMODE', false);
    await refused(here, /options.role must be one of/, 'DDPMODE', true, { role: 'server' });
    await refused(here, /options.head/, 'DDPMODE', true, { head: 'text' });
    await refused(here, /colour/, 'DDPMODE', true, { colour: 1 });
    await refused(here, /give one of them/, 'DDPMODE', true, { progress, rnic: {} });
    here.postRecv(new Uint8Array(1), 1);
    await refused(here, /options.depth comes too late/, 'DDPMODE', true, { depth: 3 });
    await refused(keep(new ExtendedSocket()), /not connected/);
    here.setEncoding('utf8');
    await refused(here, /setEncoding/);
    here.end();
    await once(there.resume(), 'end');
    await refused(there, /the peer has ended/);
    await refused(here, /this direction has been ended/);
    there.destroy();
    await refused(there, /is destroyed/);

    const [a, b] = await plainPair({ progress });
    const first = a.startRdma();
    await refused(a, /under way/);
    await Promise.all([first, b.startRdma()]);
    await refused(a, /has been already/);
  });

  it('a peer that speaks something else, leaves, or says nothing', async () => {
    const wrong = await plainPair({ progress });
    wrong[0].write('GET / HTTP/1.1\r\n\r\n');
    await expect(wrong[1].startRdma()).rejects.toMatchObject({ code: 'ERR_STARTUP' });
    expect(wrong[1].destroyed).toBe(true);
    const left = await plainPair({ progress });
    left[0].end();
    await expect(left[1].startRdma()).rejects.toMatchObject({
      code: expect.stringMatching(/^ERR_/) as string,
    });
    const mute = await plainPair({ progress });
    await expect(mute[1].startRdma({ timeout: 50 })).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    const other = await plainPair({ progress });
    await expect(other[0].startRdma({ signal: AbortSignal.timeout(50) })).rejects.toMatchObject({
      code: 'ERR_ABORTED',
    });
    const both = await plainPair({ progress });
    const outcomes = await Promise.allSettled([
      both[0].startRdma({ timeout: 2000 }),
      both[1].startRdma({ role: 'initiator', timeout: 2000 }),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });

  it('a peer that never reads what was written before: the socket is still plain', async () => {
    const [here, there] = await plainPair({ progress });
    there.pause();
    here.write(Buffer.alloc(64 << 20));
    await expect(here.startRdma({ timeout: 100 })).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    expect(here.mode).toBe('plain');
    let count = 0;
    there.on('data', ({ length }) => (count += length)).resume();
    here.resume();
    await expect.poll(() => count, { timeout: 50_000 }).toBe(64 << 20);
    there.write('still bytes');
    expect(String((await once(here, 'data'))[0])).toBe('still bytes');
  });

  it('a socket that is destroyed during the switch', async () => {
    const [here] = await plainPair({ progress });
    const started = here.startRdma();
    await new Promise((resolve) => setTimeout(resolve, 20));
    here.destroy();
    await expect(started).rejects.toMatchObject({ code: expect.stringMatching(/^ERR_/) as string });
    await gone(here);
  });
});
