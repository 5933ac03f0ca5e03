/** The promise layer: connections, messages, memory, credits, endings. */
import { describe, expect, it, vi } from 'vitest';
import { withHello } from '../../src/api/endpoint.ts';
import {
  ACCESS,
  connect,
  createServer,
  IwarpError,
  OperationError,
  RejectedError,
  RemoteBuffer,
  TerminateError,
  type Connection,
} from '../../src/index.ts';
import { pair, pairOf, pattern, rnicOf, WORLDS } from './support.ts';

const code = (expected: string): object => expect.objectContaining({ code: expected });

describe.each(WORLDS)('over %s', (world) => {
  it('messages arrive whole and in order, with their other fields', async () => {
    const { client, server } = await pair(world);
    await client.send('hello');
    await client.send(pattern(3000), { solicited: true });
    await client.send(new Uint8Array(0));
    const first = (await server.receive())!;
    expect(Buffer.from(first.data).toString()).toBe('hello');
    first.release();
    const second = (await server.receive())!;
    expect(second.data).toEqual(Buffer.from(pattern(3000)));
    expect(second.solicited).toBe(true);
    expect((await server.receive())!.data.length).toBe(0);
  });

  it('each side knows both ends, and a close in order waits for no time-out', async () => {
    const patient = { policy: { closeTimeout: 3_600_000 } };
    const { client, server } = await pair(world, patient, patient);
    expect(server.remoteAddress).toEqual(client.localAddress);
    // Over UDP a server answers from a new port.
    const { localAddress } = server;
    if (world === 'trp') expect(client.remoteAddress.port).not.toBe(localAddress.port);
    expect({ ...client.remoteAddress, ...(world === 'trp' && { port: localAddress.port }) }).toEqual(
      localAddress,
    );
    expect(client.remoteAddress.port).toBeGreaterThan(0);
    await client.close();
    expect([(await client.closed).cause, (await server.closed).cause]).toEqual(['graceful', 'graceful']);
  });

  it('Write and Read move a megabyte without a word from the other program', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(1 << 20);
    const remote = server.share(region);
    await client.write(pattern(1 << 20), remote);
    const back = new Uint8Array(1 << 20);
    await client.read(remote, back);
    expect(Buffer.compare(back, pattern(1 << 20))).toBe(0);
    expect(Buffer.compare(region.bytes, back)).toBe(0);
  });

  it('a slow reader slows the sender down and loses nothing, both ways at once', async () => {
    const COUNT = 500;
    const { client, server } = await pair(
      world,
      { receives: 4, maxMessage: 64 },
      { receives: 4, maxMessage: 64 },
    );
    expect([client.flowControlled, server.flowControlled]).toEqual([true, true]);
    const pump = async (from: Connection): Promise<void> => {
      for (let i = 0; i < COUNT; i++) await from.send(Uint32Array.of(i));
    };
    const take = async (at: Connection): Promise<number[]> => {
      const seen: number[] = [];
      for (let i = 0; i < COUNT; i++) {
        const message = (await at.receive())!;
        seen.push(new DataView(message.data.buffer, message.data.byteOffset, 4).getUint32(0, true));
        if (i % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
        message.release();
      }
      return seen;
    };
    const [, , there, here] = await Promise.all([pump(client), pump(server), take(server), take(client)]);
    const all = Array.from({ length: COUNT }, (_, i) => i);
    expect(there).toEqual(all);
    expect(here).toEqual(all);
  });

  it('two sides that send without reading wait for credit, and go on when the other reads', async () => {
    const { client, server } = await pair(world, { receives: 2 }, { receives: 2 });
    const sends = Array.from({ length: 10 }, (_, i) => client.send(`message ${i}`));
    let settled = 0;
    for (const send of sends) void send.then(() => settled++);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(settled).toBe(2);
    for (let i = 0; i < 10; i++) {
      const message = (await server.receive())!;
      expect(Buffer.from(message.data).toString()).toBe(`message ${i}`);
      message.release();
    }
    await Promise.all(sends);
  });

  it('closing in order ends the iteration, settles closed on both sides, and frees everything', async () => {
    const { client, server } = await pair(world);
    const seen: string[] = [];
    const reading = (async () => {
      for await (const message of server) {
        seen.push(Buffer.from(message.data).toString());
        message.release();
      }
    })();
    await client.send('last words');
    expect(await client.close()).toEqual({ cause: 'graceful', error: undefined, terminate: undefined });
    await reading;
    expect(seen).toEqual(['last words']);
    expect((await server.closed).cause).toBe('graceful');
    expect([client.state, server.state]).toEqual(['closed', 'closed']);
    const { objects } = client.pd.device;
    expect([objects.qp.size, objects.cq.size]).toEqual([0, 0]);
    expect([...objects.mr].filter(({ pd }) => pd === client.pd || pd === server.pd)).toEqual([]);
    await expect(client.send('too late')).rejects.toEqual(code('ERR_CONNECTION_CLOSED'));
    expect(await server.receive()).toBeNull();
  });

  it('a Write to memory not offered ends the connection; both sides see the decoded Terminate', async () => {
    const { client, server } = await pair(world);
    const waiting = server.receive();
    waiting.catch(() => undefined);
    await client.write(pattern(16), new RemoteBuffer(0x1234_5600, 0, 16)).catch(() => undefined);
    const info = await client.closed;
    expect(info.error).toBeInstanceOf(TerminateError);
    expect((info.error as TerminateError).terminate).toMatchObject({
      origin: 'remote',
      layer: 1,
      type: 1,
      code: 0,
      segmentLength: 30,
    });
    await expect(waiting).rejects.toBeInstanceOf(TerminateError);
    expect((await server.closed).terminate).toMatchObject({ origin: 'local', layer: 1, type: 1, code: 0 });
  });

  it('a refused Read rejects with status and decoded Terminate; later work with the Terminate', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(64, 'read');
    const remote = server.share(region);
    const forged = new RemoteBuffer(region.rkey, region.addr, 100);
    const [refused, after] = [client.read(forged), client.read(remote)].map((read) =>
      read.catch((error: unknown) => error),
    );
    const error = (await refused) as OperationError;
    expect(error).toBeInstanceOf(OperationError);
    expect(error).toMatchObject({
      code: 'ERR_WORK_COMPLETION',
      status: 'remote-access-error',
      terminate: { origin: 'remote', layer: 0, type: 1, code: 1 },
    });
    expect(error.cause).toBeInstanceOf(TerminateError);
    expect(await after).toMatchObject({ code: 'ERR_TERMINATED', terminate: error.terminate });
    await expect(client.write(pattern(4), remote)).rejects.toBeInstanceOf(TerminateError);
    expect((await client.closed).terminate).toEqual(error.terminate);
    await expect(client.drain()).resolves.toBeUndefined();
    expect(client.pending).toBe(0);
  });

  it('Sends and Writes that are out when the Terminate comes reject with it', async () => {
    const { client, server } = await pair(world, { sends: 2 });
    const region = server.allocate(1 << 16, 'write');
    const outcomes = [
      client.fetchAdd(server.share(region), 1n), // no right to: refused
      ...Array.from({ length: 40 }, () => client.write(pattern(1 << 16), server.share(region))),
      client.send('never started'),
    ].map((operation) =>
      operation.then(
        () => 'done',
        (error: IwarpError) => error,
      ),
    );
    const [refused, ...others] = await Promise.all(outcomes);
    expect(refused).toMatchObject({ code: 'ERR_WORK_COMPLETION', cause: { code: 'ERR_TERMINATED' } });
    expect(others.at(-1)).toMatchObject({ code: 'ERR_TERMINATED', terminate: { origin: 'remote' } });
    for (const other of others) if (other !== 'done') expect(other).toBeInstanceOf(TerminateError);
  });

  it('destroy rejects pending calls and resets the peer', async () => {
    const { client, server } = await pair(world);
    const pending = client.receive();
    client.destroy();
    await expect(pending).rejects.toEqual(code('ERR_CONNECTION_RESET'));
    expect((await server.closed).cause).toBe('reset');
    expect((await client.closed).error?.code).toBe('ERR_CONNECTION_RESET');
  });

  it('atomics answer with the value before, also on shared memory', async () => {
    const { client, server } = await pair(world);
    const words = new BigUint64Array(new SharedArrayBuffer(16));
    const remote = server.share(server.register(words));
    expect(await client.fetchAdd(remote.slice(8, 8), 5n)).toBe(0n);
    expect(await client.fetchAdd(remote.slice(8, 8), 2n)).toBe(5n);
    expect(await client.compareSwap(remote.slice(8, 8), 7n, 40n)).toBe(7n);
    expect(await client.compareSwap(remote.slice(8, 8), 7n, 50n)).toBe(40n);
    expect([...words]).toEqual([0n, 40n]);
  });

  it('a Write followed by Immediate Data finds the octets in place', async () => {
    const { client, server } = await pair(world);
    const region = server.allocate(5000);
    await client.writeImmediate(pattern(5000), server.share(region), 42n);
    const message = (await server.receive())!;
    expect(message.immediate).toBe(42n);
    expect(region.bytes).toEqual(pattern(5000));
  });
});

describe('credits and foreign peers', () => {
  it.each([
    [{ credits: false }, {}],
    [{}, { credits: false }],
  ])('one side without them turns them off on both: %j %j', async (client, server) => {
    const ends = await pair('memory', client, server);
    expect([ends.client.flowControlled, ends.server.flowControlled]).toEqual([false, false]);
    await ends.client.send('plain');
    expect(Buffer.from((await ends.server.receive())!.data).toString()).toBe('plain');
  });

  it('our announcement is kept out of the private data that programs see', async () => {
    const seen: Uint8Array[] = [];
    const { client, server } = await pair(
      'memory',
      { privateData: Buffer.from('from the client') },
      {
        onRequest: ({ privateData }) => {
          seen.push(privateData);
          return Buffer.from('from the server');
        },
      },
    );
    expect(Buffer.from(seen[0]!).toString()).toBe('from the client');
    expect(Buffer.from(server.privateData).toString()).toBe('from the client');
    expect(Buffer.from(client.privateData).toString()).toBe('from the server');
  });

  it('a message above what the peer takes is refused here, and the connection lives', async () => {
    const { client, server } = await pair('memory', {}, { maxMessage: 100 });
    await expect(client.send(new Uint8Array(101))).rejects.toEqual(code('ERR_TOO_LARGE'));
    await client.send(new Uint8Array(100));
    expect((await server.receive())!.data.length).toBe(100);
  });
});

describe('not getting a connection', () => {
  it('private data is taken as it is at the call, from a Buffer too', () => {
    const given = Buffer.from('hello');
    const kept = withHello('privateData', given, null, 100);
    given.fill('X');
    expect(Buffer.from(kept).toString()).toBe('hello');
  });

  it('a RejectedError whose private data are not octets throws at once', () => {
    for (const wrong of [undefined, 'text']) {
      expect(() => new RejectedError('full', wrong as never)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
    }
  });

  it("a rejection carries the peer's words", async () => {
    const rnic = rnicOf('memory');
    const server = await createServer({
      rnic,
      onRequest: () => {
        throw new RejectedError('full', Buffer.from('come back later'));
      },
    }).listen({ port: 0 });
    const refused = connect({ rnic, host: '127.0.0.1', port: server.address().port });
    await expect(refused).rejects.toBeInstanceOf(RejectedError);
    const error = (await refused.catch((reason: unknown) => reason)) as RejectedError;
    expect(Buffer.from(error.privateData).toString()).toBe('come back later');
    await server.close();
    // Queues and buffers go when TCP has ended, a moment after the rejection.
    await vi.waitFor(() => expect(rnic.device.query().inUse).toMatchObject({ qp: 0, cq: 0, mr: 0 }));
  });

  it.each(['memory', 'tcp, onread'] as const)('nobody listening is ERR_CONNECT (%s)', async (world) => {
    const rnic = rnicOf(world);
    const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
    const { port } = server.address();
    await server.close();
    await expect(connect({ rnic, host: '127.0.0.1', port })).rejects.toEqual(code('ERR_CONNECT'));
    expect(rnic.device.query().inUse).toMatchObject({ qp: 0, cq: 0, mr: 0 });
  });

  it.each(['tcp, onread', 'worker'] as const)(
    "one message says what the system said, and the cause is the system's error (%s)",
    async (world) => {
      const rnic = rnicOf(world);
      const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
      const { port } = server.address();
      const system = { errno: expect.any(Number) as number, address: '127.0.0.1', port };
      await expect(createServer({ rnic }).listen({ host: '127.0.0.1', port })).rejects.toMatchObject({
        code: 'ERR_CONNECT',
        message: `cannot listen on 127.0.0.1:${port} (EADDRINUSE)`,
        cause: { ...system, code: 'EADDRINUSE', syscall: 'listen' },
      });
      await server.close();
      await expect(connect({ rnic, host: '127.0.0.1', port })).rejects.toMatchObject({
        code: 'ERR_CONNECT',
        message: `cannot connect to 127.0.0.1:${port} (ECONNREFUSED)`,
        cause: { ...system, code: 'ECONNREFUSED', syscall: 'connect' },
      });
    },
  );

  it('a peer that accepts TCP and says nothing is ERR_TIMEOUT', async () => {
    const rnic = rnicOf('memory');
    const server = await createServer({ rnic, onRequest: () => new Promise(() => undefined) }).listen({
      port: 0,
    });
    const made = connect({
      rnic,
      host: '127.0.0.1',
      port: server.address().port,
      policy: { replyTimeout: 50 },
    });
    await expect(made).rejects.toEqual(code('ERR_TIMEOUT'));
  });
});

describe('AbortSignal', () => {
  it('stops a connect, before and during', async () => {
    const rnic = rnicOf('memory');
    const server = await createServer({ rnic, onRequest: () => new Promise(() => undefined) }).listen({
      port: 0,
    });
    const target = { rnic, host: '127.0.0.1', port: server.address().port };
    const why = new Error('why');
    const aborted = await connect({ ...target, signal: AbortSignal.abort(why) }).catch(
      (error: unknown) => error,
    );
    expect(aborted).toBeInstanceOf(IwarpError);
    // the name is what other code asks for, as of Node's own
    expect(aborted).toMatchObject({ code: 'ERR_ABORTED', name: 'AbortError', cause: why });
    const stop = new AbortController();
    const made = connect({ ...target, signal: stop.signal });
    setTimeout(() => stop.abort(new Error('enough')), 10);
    await expect(made).rejects.toMatchObject({ code: 'ERR_ABORTED', cause: { message: 'enough' } });
    // Queues and buffers go when TCP has ended, a moment after the rejection.
    await vi.waitFor(() => expect(rnic.device.query().inUse).toMatchObject({ qp: 0, mr: 0 }));
  });

  it('withdraws a receive, and a send that waits for credit; the connection stays whole', async () => {
    const { client, server } = await pair('memory', {}, { receives: 1 });
    const stop = new AbortController();
    const received = client.receive({ signal: stop.signal });
    await client.send('uses the credit');
    const waiting = client.send('never sent', { signal: stop.signal });
    stop.abort();
    await expect(received).rejects.toEqual(code('ERR_ABORTED'));
    await expect(waiting).rejects.toEqual(code('ERR_ABORTED'));
    (await server.receive())!.release();
    await client.send('goes through');
    const message = (await server.receive())!;
    expect(Buffer.from(message.data).toString()).toBe('goes through');
    message.release();
  });
});

describe('ends and leftovers', () => {
  it('drain settles when everything started has ended', async () => {
    const { client, server } = await pair('memory');
    const remote = server.share(server.allocate(1 << 16));
    let done = 0;
    for (let i = 0; i < 20; i++) void client.write(pattern(1000), remote.slice(0, 1000)).then(() => done++);
    await client.drain();
    expect(done).toBe(20);
  });

  it('async disposal closes in order', async () => {
    const rnic = rnicOf('memory');
    const server = await createServer({ rnic }, () => undefined).listen({ port: 0 });
    let kept: Connection;
    {
      await using connection = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
      kept = connection;
    }
    expect((await kept.closed).cause).toBe('graceful');
    await server[Symbol.asyncDispose]();
  });

  it('holding a connection that breaks causes no unhandled rejection', async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown): void => void unhandled.push(reason);
    process.on('unhandledRejection', note);
    const { client, server } = await pair('memory');
    server.destroy();
    await client.closed;
    await new Promise((resolve) => setTimeout(resolve, 20));
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
  });

  it.each(['closed', 'destroyed', 'terminated'])(
    'windows bound through the queue pair end with the connection when it is %s',
    async (how) => {
      const { client, server } = await pair('memory');
      const region = server.allocate(256, ACCESS.LOCAL_WRITE | ACCESS.MW_BIND | ACCESS.REMOTE_READ, {
        iova: 0x1000n,
      });
      const [window, unbound] = [server.pd.allocateMw(), server.pd.allocateMw()];
      server.queuePair.postSend({
        opcode: 'bind-mw',
        mw: window,
        mr: region,
        offset: 16,
        length: 32,
        access: ACCESS.REMOTE_READ,
      });
      await server.queuePair.drainSend();
      region.bytes.fill(9, 16, 48);
      expect(await client.read(server.share(window))).toEqual(Buffer.alloc(32, 9));
      if (how === 'closed') await client.close();
      else if (how === 'destroyed') server.destroy();
      else await client.read(new RemoteBuffer(0x1234_5678, 0n, 8)).catch(() => undefined);
      await Promise.all([client.closed, server.closed]);
      expect([window.deallocated, unbound.deallocated]).toEqual([true, false]);
      expect(server.pd.device.query().inUse).toMatchObject({ qp: 0, cq: 0, mw: 1 });
    },
  );

  it('objects made in the domain of a connection outlive it, and hold the domain', async () => {
    const { rnic, client, server, close } = await pairOf('memory');
    const region = server.pd.registerMemory(rnic.device.allocateMemory(64), ACCESS.LOCAL_WRITE);
    const window = server.pd.allocateMw();
    await close();
    await Promise.all([client.closed, server.closed]);
    expect(rnic.device.query().inUse).toMatchObject({ pd: 1, mr: 1, mw: 1 });
    region.bytes.fill(1);
    region.deregister();
    expect(server.pd.deallocated).toBe(false);
    window.deallocate();
    expect(server.pd.deallocated).toBe(true);
    expect(rnic.device.query().inUse).toEqual({ pd: 0, cq: 0, qp: 0, datagramQp: 0, srq: 0, mw: 0, mr: 0 });
    rnic.device.close();
  });

  it('connections of one domain share its regions', async () => {
    const rnic = rnicOf('memory');
    const pd = rnic.device.allocatePd();
    const server = await createServer({ rnic }).listen({ port: 0 });
    const region = pd.registerMemory(rnic.device.allocateMemory(64), 1);
    const target = { rnic, pd, host: '127.0.0.1', port: server.address().port };
    const two = await Promise.all([connect(target), connect(target)]);
    for (const connection of two) await connection.send(region);
    await Promise.all(two.map((connection) => connection.close()));
    await server.close();
    region.deregister();
    pd.deallocate();
    expect(rnic.device.query().inUse).toEqual({ pd: 0, cq: 0, qp: 0, datagramQp: 0, srq: 0, mw: 0, mr: 0 });
  });

  it('IPv6', async () => {
    const rnic = rnicOf('tcp, onread');
    const server = await createServer({ rnic }, (connection) => void connection.send('six')).listen({
      host: '::1',
      port: 0,
    });
    const connection = await connect({ rnic, host: '::1', port: server.address().port });
    expect(connection.remoteAddress.family).toBe('IPv6');
    expect(Buffer.from((await connection.receive())!.data).toString()).toBe('six');
    await connection.close();
    await server.close();
  });
});

describe('RemoteBuffer', () => {
  it('survives octets and JSON, and slices within its bounds', () => {
    const ticket = new RemoteBuffer(0xdead_beef, 0x1122_3344_5566_7788n, 4096);
    expect(Buffer.from(ticket.toBytes()).toString('hex')).toBe('1122334455667788deadbeef00001000');
    expect(RemoteBuffer.fromBytes(ticket.toBytes())).toEqual(ticket);
    expect(RemoteBuffer.fromJSON(JSON.parse(JSON.stringify(ticket)))).toEqual(ticket);
    expect(ticket.slice(96).toJSON()).toEqual({
      rkey: 0xdead_beef,
      address: (0x1122_3344_5566_7788n + 96n).toString(),
      length: 4000,
    });
    expect(() => ticket.slice(4000, 97)).toThrow(code('ERR_OUT_OF_RANGE'));
  });
});

describe('misuse throws or rejects at once, with a code', () => {
  const cases: readonly (readonly [string, (c: Connection, remote: RemoteBuffer) => unknown, string])[] = [
    ['send(number)', (c) => c.send(7 as never), 'ERR_INVALID_ARGUMENT'],
    ['send(null)', (c) => c.send(null as never), 'ERR_INVALID_ARGUMENT'],
    ['send with a wrong solicited', (c) => c.send('x', { solicited: 1 as never }), 'ERR_INVALID_ARGUMENT'],
    ['send with a wrong invalidate', (c) => c.send('x', { invalidate: -1 }), 'ERR_INVALID_ARGUMENT'],
    ['write(no memory)', (c, remote) => c.write(undefined as never, remote), 'ERR_INVALID_ARGUMENT'],
    ['write(no remote)', (c) => c.write(new Uint8Array(1), {} as never), 'ERR_INVALID_ARGUMENT'],
    ['write(too much)', (c, remote) => c.write(new Uint8Array(65), remote), 'ERR_OUT_OF_RANGE'],
    ['read(no remote)', (c) => c.read(undefined as never, new Uint8Array(1)), 'ERR_INVALID_ARGUMENT'],
    ['read(too much)', (c, remote) => c.read(remote, new Uint8Array(65)), 'ERR_OUT_OF_RANGE'],
    ['read into a read-only region', (c, remote) => c.read(remote, c.allocate(8, 0)), 'ERR_ACCESS'],
    ['sendImmediate(string)', (c) => c.sendImmediate('x' as never), 'ERR_INVALID_ARGUMENT'],
    ['sendImmediate(reserved)', (c) => c.sendImmediate(0x6957_6372_0000_0001n), 'ERR_INVALID_ARGUMENT'],
    ['fetchAdd(no remote)', (c) => c.fetchAdd(null as never, 1n), 'ERR_INVALID_ARGUMENT'],
    ['fetchAdd(negative)', (c, remote) => c.fetchAdd(remote, -1n), 'ERR_INVALID_ARGUMENT'],
    [
      'compareSwap(no swap)',
      (c, remote) => c.compareSwap(remote, 1n, undefined as never),
      'ERR_INVALID_ARGUMENT',
    ],
    ['register(no memory)', (c) => c.register([] as never), 'ERR_INVALID_ARGUMENT'],
    ['register(wrong access)', (c) => c.allocate(1, 1 << 20), 'ERR_INVALID_ARGUMENT'],
  ];
  it.each(cases)('%s', async (_name, call, expected) => {
    const { client } = await pair('memory');
    const error = await (async () => call(client, new RemoteBuffer(1, 0, 64)))().catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(IwarpError);
    expect((error as IwarpError).code).toBe(expected);
    expect(client.state).toBe('open');
  });

  const openings: readonly (readonly [string, () => unknown])[] = [
    ['connect()', () => connect(undefined as never)],
    ['connect without a port', () => connect({} as never)],
    ['connect to port 0', () => connect({ port: 0 })],
    ['connect with a wrong policy', () => connect({ port: 1, policy: { crc: 'maybe' as never } })],
    ['connect with an unknown policy', () => connect({ port: 1, policy: { colour: 1 } as never })],
    ['connect with wrong receives', () => connect({ port: 1, receives: 0 })],
    ['connect with a wrong maxMessage', () => connect({ port: 1, maxMessage: -1 })],
    ['connect with wrong private data', () => connect({ port: 1, privateData: 'x' as never })],
    ['connect with a wrong depth', () => connect({ port: 1, ird: 99_999 })],
    ['createServer(number)', () => createServer(7 as never)],
    ['createServer with a wrong function', () => createServer({}, 7 as never)],
    ['listen on a wrong port', () => createServer().listen({ port: 70_000 })],
  ];
  it.each(openings)('%s', async (_name, call) => {
    const error = await (async () => call())().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(IwarpError);
    expect((error as IwarpError).code).toBe('ERR_INVALID_ARGUMENT');
  });

  it('private data that does not fit is ERR_TOO_LARGE', async () => {
    const rnic = rnicOf('memory');
    await expect(connect({ rnic, port: 1, privateData: new Uint8Array(493) })).rejects.toEqual(
      code('ERR_TOO_LARGE'),
    );
    await expect(
      connect({ rnic, port: 1, credits: false, privateData: new Uint8Array(509) }),
    ).rejects.toEqual(code('ERR_TOO_LARGE'));
    expect(rnic.device.query().inUse).toMatchObject({ qp: 0, cq: 0, mr: 0 });
  });
});
