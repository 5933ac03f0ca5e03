// An engine that dies: at start, idle, with work under way, by a throw, by silence. Everything ends with an
// error, nothing hangs.
import { describe, expect, it, vi } from 'vitest';
import { NO_BYTES } from '../../src/base/copy.ts';
import type { Engine, LinkHandler, ListenHandler, ListenRequest } from '../../src/engine/engine.ts';
import { InlineEngine } from '../../src/engine/inline/inline-engine.ts';
import type { WorkerEngine } from '../../src/engine/proxy/worker-engine.ts';
import {
  connect,
  createServer,
  openRnic,
  type CloseInfo,
  type Connection,
  type Rnic,
  type ServerFailure,
} from '../../src/index.ts';
import { DEFAULT_POLICY } from '../../src/mpa/policy.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import { ACCESS } from '../../src/verbs/index.ts';
import { End, enginesOf, join, openWorkers, stop, until } from './support.ts';

const FAILED = expect.objectContaining({ code: 'ERR_ENGINE_FAILED' });

/** Ways to die, each done to the first engine of a device. */
const DEATHS: readonly (readonly [string, (rnic: Rnic) => unknown])[] = [
  ['is stopped', (rnic) => enginesOf(rnic)[0]!.host.worker.terminate()],
  [
    'throws',
    (rnic) => {
      const { outbox } = enginesOf(rnic)[0]!.host;
      outbox.put(99, 0); // no record is of this type
      outbox.publish();
    },
  ],
];

interface Pair {
  readonly rnic: Rnic;
  readonly peer: Rnic;
  readonly client: Connection;
  readonly server: Connection;
}

/** The client on an engine, its peer in this thread. */
async function pair(engines = 1): Promise<Pair> {
  const rnic = openWorkers({ engines });
  const peer = openRnic({ engine: 'thread' });
  const server = await createServer({ rnic: peer }).listen({ host: '127.0.0.1', port: 0 });
  const accepted = server[Symbol.asyncIterator]().next();
  const client = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
  const passive = (await accepted).value as Connection;
  void passive.closed.then(() => server.close());
  return { rnic, peer, client, server: passive };
}

it('an engine that throws says what, with a code, as the cause', async () => {
  const { rnic, client } = await pair();
  DEATHS.find(([how]) => how === 'throws')![1](rnic);
  expect((await client.closed).error?.cause).toMatchObject({
    code: 'ERR_INTERNAL',
    message: 'no record is of type 99',
  });
});

describe.each(DEATHS)('an engine that %s', (_how, die) => {
  it('idle: the connection ends, the device is failed, and nothing can be made on it', async () => {
    const { rnic, client, server } = await pair();
    const events: string[] = [];
    rnic.device.setAsyncEventHandler(({ type }) => events.push(type));
    const reading = client.receive();
    die(rnic);
    await expect(reading).rejects.toEqual(FAILED);
    expect(await client.closed).toMatchObject({ cause: 'lost', error: { code: 'ERR_ENGINE_FAILED' } });
    // in order or not: the system closes the socket of a thread that has gone as it finds it
    await server.closed;
    expect(rnic.device.state).toBe('failed');
    expect(events[0]).toBe('device-fatal');
    expect(() => rnic.device.createCq(1)).toThrow(expect.objectContaining({ code: 'ERR_DESTROYED' }));
    await expect(client.send('x')).rejects.toEqual(FAILED);
    expect(rnic.device.query().inUse).toMatchObject({ qp: 0, cq: 0, mr: 0 });
  });

  it('with work of every kind under way: each operation rejects, drain settles', async () => {
    const { rnic, client, server } = await pair();
    const region = server.register(new Uint8Array(1 << 16));
    const remote = server.share(region);
    const big = client.allocate(1 << 16);
    const operations = Array.from({ length: 300 }, (_, i) =>
      i % 3 === 0
        ? client.write(big, remote)
        : i % 3 === 1
          ? client.read(remote, big)
          : client.fetchAdd(remote, 1n),
    );
    const outcomes = Promise.allSettled(operations);
    die(rnic);
    await client.drain();
    const failures = (await outcomes).filter(({ status }) => status === 'rejected');
    expect(failures.length).toBeGreaterThan(0);
    for (const failure of failures) expect((failure as PromiseRejectedResult).reason).toEqual(FAILED);
    expect((await client.closed).error).toEqual(FAILED);
    await server.closed;
  });

  it('completions: every request posted is flushed once, and memory can be taken back', async () => {
    const rnic = openWorkers();
    const peer = openWorkers();
    const client = new End(rnic);
    const server = new End(peer);
    await join(client, server);
    const mr = client.pd.registerMemory(client.rnic.device.allocateMemory(64), ACCESS.LOCAL_WRITE);
    client.qp.postRecv(Array.from({ length: 10 }, (_, wrId) => ({ wrId })));
    die(rnic);
    await until(() => rnic.device.state === 'failed');
    expect(await client.statuses(10)).toEqual(Array.from({ length: 10 }, () => 'receive flushed'));
    await until(() => client.event('disconnected') !== undefined);
    expect(client.event('disconnected')).toMatchObject({
      cause: 'lost',
      error: { code: 'ERR_ENGINE_FAILED' },
    });
    expect(client.asyncEvents.map(({ type }) => type)).toContain('device-fatal');
    expect(client.qp.state).toBe('error');
    client.qp.postSend({ opcode: 'send' });
    expect(await client.statuses(1)).toEqual(['send flushed']);
    mr.deregister();
    client.qp.destroy();
    client.cq.destroy();
    client.pd.deallocate();
    rnic.device.close();
    await stop(peer);
  });

  it('while connecting and while binding: both reject', async () => {
    const rnic = openWorkers();
    const peer = openRnic({ engine: 'thread' });
    const server = await createServer({ rnic: peer, onRequest: () => new Promise(() => undefined) }).listen({
      host: '127.0.0.1',
      port: 0,
    });
    const connecting = connect({ rnic, host: '127.0.0.1', port: server.address().port });
    const binding = createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
    const outcomes = Promise.all(
      [connecting, binding].map((made) =>
        made.then(
          () => 'made',
          (error: { code: string }) => error.code,
        ),
      ),
    );
    die(rnic);
    const [connected] = await outcomes;
    expect(connected).toBe('ERR_ENGINE_FAILED');
    await expect(createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 })).rejects.toEqual(FAILED);
    await server.close();
  });

  it('under a server: the address is free again and close settles', async () => {
    const rnic = openWorkers();
    const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
    const { port } = server.address();
    die(rnic);
    await until(() => rnic.device.state === 'failed');
    await server.close();
    const next = await createServer({ rnic: openRnic({ engine: 'thread' }) }).listen({
      host: '127.0.0.1',
      port,
    });
    await next.close();
  });

  it('under a server: onFailure runs once, and a pending accept rejects', async () => {
    const rnic = openWorkers();
    const told: unknown[] = [];
    const onFailure = ({ kind, error }: ServerFailure): void => void told.push([kind, error]);
    const ends: Promise<CloseInfo>[] = [];
    const server = await createServer(
      { rnic, onFailure, onError: (error) => told.push(error) },
      async (connection) => {
        ends.push(connection.closed);
        for await (const message of connection) message.release();
      },
    ).listen({ host: '127.0.0.1', port: 0 });
    const iterated = await createServer({ rnic, onFailure }).listen({ host: '127.0.0.1', port: 0 });
    const client = await connect({
      rnic: openRnic({ engine: 'thread' }),
      host: '127.0.0.1',
      port: server.address().port,
    });
    await until(() => ends.length === 1);
    const waiting = iterated.accept().catch((error: unknown) => error);
    die(rnic);
    expect(await waiting).toEqual(FAILED);
    await expect(iterated.accept()).rejects.toEqual(FAILED);
    expect((await ends[0]!).error).toEqual(FAILED);
    await client.closed;
    expect(told).toEqual([
      ['accept', FAILED],
      ['accept', FAILED],
    ]);
    await Promise.all([server.close(), iterated.close()]);
    expect(await iterated.accept()).toBeNull();
  });

  it('one of two engines: the device is lost as a whole', async () => {
    const { rnic, client, server } = await pair(2);
    const [, second] = enginesOf(rnic);
    const other = await connect({ rnic, host: '127.0.0.1', port: await portOf() });
    expect(second!.load).toBe(1);
    die(rnic);
    expect((await client.closed).error).toEqual(FAILED);
    expect((await other.closed).error).toEqual(FAILED);
    await server.closed;
  });
});

/** A server in this thread that takes one connection. */
async function portOf(): Promise<number> {
  const server = await createServer(
    { rnic: openRnic({ engine: 'thread' }) },
    (connection) => void connection.closed.then(() => server.close()),
  ).listen({ host: '127.0.0.1', port: 0 });
  return server.address().port;
}

describe('an engine that has thrown, unheard of so far because the program is busy', () => {
  it.each([
    ['deregister', (client: Connection, region: { deregister(): void }) => region.deregister()],
    ['counters', (client: Connection) => client.counters()],
  ])('%s, which waits for it, ends at once and names the reason', async (_name, call) => {
    const rnic = openWorkers();
    const client = await connect({ rnic, host: '127.0.0.1', port: await portOf() });
    const region = client.allocate(64);
    const { outbox } = enginesOf(rnic)[0]!.host;
    outbox.put(99, 0);
    outbox.publish();
    const start = performance.now();
    call(client, region);
    // no waiting for an answer, which takes five seconds
    expect(performance.now() - start).toBeLessThan(3_000);
    expect(rnic.device.state).toBe('failed');
    expect((await client.closed).error).toMatchObject({
      code: 'ERR_ENGINE_FAILED',
      message: 'the engine has failed: no record is of type 99',
      cause: { message: 'no record is of type 99' },
    });
  });
});

describe('an engine that is found dead when another one reports an operation on memory', () => {
  it('ends the device; each request of that connection completes once', async () => {
    const rnic = openWorkers({ engines: 2 });
    const client = new End(rnic);
    const server = new End(openRnic({ engine: 'thread' }));
    await join(client, server);
    const [working, dying] = enginesOf(rnic);
    expect([working!.load, dying!.load]).toEqual([1, 0]);
    const mr = client.pd.registerMemory(rnic.device.allocateMemory(64), ACCESS.LOCAL_WRITE);
    server.qp.postRecv([{}, {}]);
    dying!.host.outbox.put(99, 0);
    dying!.host.outbox.publish();
    client.qp.postSend([
      { wrId: 1, opcode: 'local-invalidate', target: mr },
      { wrId: 2, opcode: 'send' },
      { wrId: 3, opcode: 'send' },
    ]);
    // The program is busy until the one has done all that, and the other has ended.
    while (client.connection!.counters().messagesOut.sends < 2);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);
    while (!working!.host.look());
    expect(rnic.device.state).toBe('failed');
    expect((await client.completed(3)).map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'flushed'],
      [2, 'flushed'],
      [3, 'flushed'],
    ]);
    expect([client.cq.length, client.qp.query().sendOutstanding]).toEqual([0, 0]);
    mr.deregister();
  });
});

describe('an engine that says nothing', () => {
  it('counts as failed when a call has waited for it long enough', async () => {
    const rnic = openWorkers();
    const client = await connect({ rnic, host: '127.0.0.1', port: await portOf() });
    const region = client.allocate(64);
    // Its end is reported by the event loop, which gets no turn.
    void enginesOf(rnic)[0]!.host.worker.terminate();
    const start = performance.now();
    region.deregister();
    expect(performance.now() - start).toBeLessThan(20_000);
    expect(rnic.device.state).toBe('failed');
    expect((await client.closed).error).toMatchObject({
      code: 'ERR_ENGINE_FAILED',
      message: expect.stringContaining('not answered') as string,
    });
  });

  it('does not count as failed for a time in which the whole process was stopped', async () => {
    const rnic = openWorkers();
    const client = await connect({ rnic, host: '127.0.0.1', port: await portOf() });
    const { host } = enginesOf(rnic)[0]!;
    // It is stopped right after it has asked: the engine has not heard yet, and the clock is a minute further
    // at each look.
    vi.spyOn(host.outbox, 'publish').mockImplementationOnce(() => undefined);
    let now = performance.now();
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += 60_000));
    host.fence();
    clock.mockRestore();
    expect(rnic.device.state).toBe('open');
    expect(client.state).toBe('open');
    await stop(rnic);
  });
});

describe("the process's own device", () => {
  it('is replaced when its engine has failed', async () => {
    const { defaultRnic } = await import('../../src/api/environment.ts');
    const first = defaultRnic('worker');
    expect(defaultRnic('worker')).toBe(first);
    await stop(first);
    await until(() => first.device.state === 'failed');
    const second = defaultRnic('worker');
    expect(second).not.toBe(first);
    await stop(second);
  });
});

describe.each(['thread', 'worker'] as const)('a transport that throws, in a %s', (engine) => {
  // The connection manager has checked what it passes on: here it is asked for something wrong all the same.
  const target = { host: '127.0.0.1', port: 1, localAddress: 'no address' };

  it('is one that cannot connect or listen: nothing else ends', async () => {
    const rnic = openRnic({ engine });
    const { device } = rnic;
    const progress: Engine =
      engine === 'worker'
        ? (device.mirror as WorkerEngine)
        : new InlineEngine(new TcpTransport(), realScheduler, device);
    const port = await portOf();
    const client = await connect({ rnic, host: '127.0.0.1', port });
    const { qp } = new End(rnic);
    const request = {
      target,
      policy: DEFAULT_POLICY,
      confirm: false,
      endpoint: qp,
      privateData: NO_BYTES,
      wishes: { ird: 1, ord: 1 },
    };
    const outcomes: unknown[] = [];
    const handler: LinkHandler = {
      opened: () => outcomes.push('opened'),
      failed: (error) => outcomes.push(error),
      event: (event) => outcomes.push(event),
    };
    progress.connect(request, handler);
    expect(outcomes).toEqual([]); // later, as every failure
    await until(() => outcomes.length === 1);
    expect(outcomes).toEqual([
      expect.objectContaining({ message: 'Invalid IP address: no address', code: 'ERR_INVALID_IP_ADDRESS' }),
    ]);
    const cancelled = progress.connect(request, handler).cancel();
    // A worker may have failed it before it hears that nobody wants it: that is reported.
    if (engine === 'thread') expect(cancelled).toBe(true);
    const all = cancelled ? 1 : 2;
    const listened = new Promise((resolve) => {
      const { policy } = request;
      progress.listen(
        { target: { port: 65_536 }, policy, limits: {} as ListenRequest['limits'] },
        {} as ListenHandler,
        (listener, error) => resolve(listener ?? error),
      );
    });
    expect(await listened).toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    await client.send('still there');
    await until(() => outcomes.length >= all);
    expect(outcomes.length).toBe(all); // one that was cancelled has said nothing
    await client.close();
    if (engine === 'worker') await stop(rnic);
  });
});

it("a transport of the program's own that throws is one that cannot connect or listen", async () => {
  const no = (): never => {
    throw new Error('not today');
  };
  const rnic = openRnic({ transport: { connect: no, listen: no } });
  const failed = { code: 'ERR_CONNECT', cause: { message: 'not today' } };
  await expect(connect({ rnic, host: '127.0.0.1', port: 1 })).rejects.toMatchObject(failed);
  await expect(createServer({ rnic }).listen({ port: 1 })).rejects.toMatchObject(failed);
  expect([rnic.cm.connections.size, rnic.device.query().inUse.qp]).toEqual([0, 0]);
});

describe('an engine that is out of memory', () => {
  it('takes its connections with it, and nothing else', async () => {
    const rnic = openWorkers();
    const port = await portOf();
    const client = await connect({ rnic, host: '127.0.0.1', port });
    const { worker } = enginesOf(rnic)[0]!.host;
    worker.emit(
      'error',
      Object.assign(new Error('Worker terminated due to reaching memory limit'), {
        code: 'ERR_WORKER_OUT_OF_MEMORY',
      }),
    );
    expect((await client.closed).error).toMatchObject({
      code: 'ERR_ENGINE_FAILED',
      cause: { code: 'ERR_WORKER_OUT_OF_MEMORY' },
    });
  });
});
