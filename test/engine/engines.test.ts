// Options, several engines on one device, and what keeps a process alive.
import { execFile } from 'node:child_process';
import { describe, expect, it, vi } from 'vitest';
import { connect, createServer, openRnic, type Connection, type Rnic } from '../../src/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { ACCESS } from '../../src/verbs/index.ts';
import { ROOT } from '../examples/support.ts';
import { End, enginesOf, join, openWorkers, stop, until } from './support.ts';
import { plain } from '../support/plain.ts';

describe('options', () => {
  it.each<[string, () => unknown]>([
    ['an unknown engine', () => openRnic({ engine: 'gpu' as never })],
    [
      "a transport of one's own in a worker",
      () => openRnic({ engine: 'worker', transport: new MemoryTransport(realScheduler) }),
    ],
    ["a clock of one's own in a worker", () => openRnic({ engine: 'worker', scheduler: realScheduler })],
    ['several engines in this thread', () => openRnic({ engine: 'thread', engines: 2 })],
    ['no engines', () => openRnic({ engine: 'worker', engines: 0 })],
    ['too many engines', () => openRnic({ engine: 'worker', engines: 65 })],
    [
      'a server with another engine than its rnic',
      () => createServer({ rnic: openRnic({ engine: 'thread' }), engine: 'worker' }),
    ],
    ['a server with an unknown engine', () => createServer({ engine: 'gpu' as never })],
  ])('%s is ERR_INVALID_ARGUMENT', (_name, call) => {
    expect(call).toThrow(expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }));
  });

  it('a worker is not started for wrong device options', () => {
    expect(() => openRnic({ engine: 'worker', limits: { maxQp: -1 } })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
    );
  });

  it('a closed device has stopped its threads', async () => {
    const rnic = openWorkers({ engines: 2 });
    const exits = enginesOf(rnic).map(({ host }) => host.gone);
    rnic.device.close();
    await Promise.all(exits);
    expect(rnic.device.state).toBe('closed');
  });
});

describe('messages that can wait by default', () => {
  it.each([
    ['in this thread', 'thread', {}, 128],
    ['in this thread, as many as 2 MiB hold', 'thread', { maxMessage: 20_000 }, 104],
    ['in this thread, 64 of any size', 'thread', { maxMessage: 1 << 20 }, 64],
    ['in a worker, where a credit passes from thread to thread', 'worker', {}, 256],
    ['in a worker, as many as 4 MiB hold', 'worker', { maxMessage: 32_768 }, 128],
    ['in a worker, 64 of any size', 'worker', { maxMessage: 1 << 20 }, 64],
    ['in a worker, no more than were asked for', 'worker', { receives: 3 }, 3],
    ['on a device with short queues, what those take', 'worker', { depth: 20 }, 16],
  ] as const)(
    '%s',
    async (_name, engine, options: { maxMessage?: number; receives?: number; depth?: number }, expected) => {
      const { depth, ...rest } = options;
      const rnic = openRnic({ engine, ...(depth === undefined ? {} : { limits: { maxQpWr: depth } }) });
      const server = await createServer({ rnic: openRnic({ engine: 'thread' }) }).listen({
        host: '127.0.0.1',
        port: 0,
      });
      const connection = await connect({
        rnic,
        host: '127.0.0.1',
        port: server.address().port,
        sends: 4,
        ...rest,
      });
      // four are kept for grants and farewell
      expect(connection.queuePair.query().maxRecvWr).toBe(expected + 4);
      await connection.close();
      await server.close();
      rnic.device.close();
    },
  );
});

describe('memory of a device', () => {
  it.each(['thread', 'worker'] as const)(
    'is not bounded by the largest message: the receives of a connection are in one region: %s',
    async (engine) => {
      const OCTETS = 4096;
      const rnic = openRnic({ engine, limits: { maxMessage: OCTETS } });
      const server = await createServer({ rnic: openRnic({ engine: 'thread' }) }).listen({
        host: '127.0.0.1',
        port: 0,
      });
      const client = await connect({
        rnic,
        host: '127.0.0.1',
        port: server.address().port,
        maxMessage: OCTETS,
      });
      const there = (await server.accept())!;
      await there.send(new Uint8Array(OCTETS).fill(7));
      expect((await client.receive())!.data).toEqual(Buffer.alloc(OCTETS, 7));
      await client.close();
      await server.close();
      rnic.device.close();
    },
  );

  it('stands in for a view that threads cannot share, no longer than it, if not kept', async () => {
    const OCTETS = (4 << 20) + 1;
    const rnic = openWorkers();
    const server = await createServer({ rnic: openRnic({ engine: 'thread' }) }).listen({
      host: '127.0.0.1',
      port: 0,
    });
    const client = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
    const there = (await server.accept())!;
    const target = there.allocate(OCTETS);
    const made = vi.spyOn(rnic.device, 'allocateMemory');
    const octets = new Uint8Array(OCTETS).fill(7);
    await client.write(octets, there.share(target));
    expect(Buffer.compare(await client.read(there.share(target)), octets)).toBe(0);
    expect(made.mock.calls).toEqual([[OCTETS], [OCTETS]]);
    await client.close();
    await server.close();
    rnic.device.close();
  });
});

describe('several engines', () => {
  async function connections(
    rnic: Rnic,
    count: number,
  ): Promise<{ here: Connection[]; there: Connection[]; close: () => Promise<void> }> {
    const peer = openRnic({ engine: 'thread' });
    const pd = rnic.device.allocatePd();
    const there: Connection[] = [];
    const server = await createServer({ rnic: peer }, (connection) => void there.push(connection)).listen({
      host: '127.0.0.1',
      port: 0,
    });
    const here: Connection[] = [];
    for (let i = 0; i < count; i++)
      here.push(await connect({ rnic, pd, host: '127.0.0.1', port: server.address().port }));
    return {
      here,
      there,
      close: async () => {
        await Promise.all(here.map((connection) => connection.close()));
        await server.close();
      },
    };
  }

  it('connections are spread; a ticket is good on all of them; atomics count across them', async () => {
    const rnic = openWorkers({ engines: 2 });
    const { here, there, close } = await connections(rnic, 4);
    expect(enginesOf(rnic).map(({ load }) => load)).toEqual([2, 2]);
    const words = here[0]!.allocate(8, 'all', { shared: true });
    const remote = here[0]!.share(words);
    const ROUNDS = 50;
    await Promise.all(
      there.flatMap((connection) => Array.from({ length: ROUNDS }, () => connection.fetchAdd(remote, 1n))),
    );
    expect(new BigUint64Array(words.bytes.buffer)[0]).toBe(BigInt(4 * ROUNDS));
    words.deregister();
    const refused = await Promise.allSettled(there.map((connection) => connection.read(remote)));
    expect(refused.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected', 'rejected']);
    await close();
    await stop(rnic);
  });

  it('an STag that one peer invalidates is gone in the other engine once reported (SEC-010)', async () => {
    const near = openWorkers();
    const far = openWorkers({ engines: 2 });
    const pd = far.device.allocatePd();
    const servers = [new End(far, {}, pd), new End(far, {}, pd)];
    const clients = [new End(near), new End(near)];
    // Both engines of the far side: it connects, so that it can choose.
    for (const i of [0, 1]) await join(servers[i]!, clients[i]!);
    expect(enginesOf(far).map(({ load }) => load)).toEqual([1, 1]);
    const mr = pd.registerMemory(far.device.allocateMemory(64), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ);
    const sink = clients.map((client) =>
      client.pd.registerMemory(near.device.allocateMemory(64), ACCESS.LOCAL_WRITE),
    );
    const read = (i: number): unknown =>
      clients[i]!.qp.postSend({
        opcode: 'rdma-read',
        sges: [{ mr: sink[i]! }],
        rkey: mr.rkey,
        remoteAddr: 0n,
      });
    for (const i of [0, 1]) {
      read(i);
      expect(await clients[i]!.statuses(1)).toEqual(['rdma-read success']);
    }
    servers[0]!.qp.postRecv({});
    clients[0]!.qp.postSend({ opcode: 'send', invalidate: mr.rkey });
    expect((await servers[0]!.completed(1))[0]).toMatchObject({ invalidatedStag: mr.rkey });
    expect(mr.valid).toBe(false);
    read(1);
    expect(await clients[1]!.statuses(1)).toEqual(['rdma-read remote-access-error']);
    await stop(near, far);
  });

  it('the queue pairs of one shared receive queue are on one engine (VERBS-129)', async () => {
    const near = openWorkers();
    const far = openWorkers({ engines: 2 });
    const pd = far.device.allocatePd();
    const srq = pd.createSrq({ maxWr: 16 });
    srq.postRecv([{ wrId: 1 }, { wrId: 2 }]);
    const servers = [new End(far, { srq }, pd), new End(far, { srq }, pd)];
    const clients = [new End(near), new End(near)];
    for (const i of [0, 1]) await join(servers[i]!, clients[i]!);
    expect(enginesOf(far).map(({ load }) => load)).toEqual([2, 0]);
    for (const { qp } of clients) qp.postSend({ opcode: 'send' });
    const taken = [...(await servers[0]!.completed(1)), ...(await servers[1]!.completed(1))];
    expect(taken.map(({ wrId }) => wrId as number).toSorted()).toEqual([1, 2]);
    await stop(near, far);
  });

  it('an accept onto one of another engine throws; the request stays open (VERBS-129)', async () => {
    const near = openWorkers();
    const far = openWorkers({ engines: 2 });
    const pd = far.device.allocatePd();
    const srq = pd.createSrq({ maxWr: 16 });
    // the engine with the fewest connections, where listeners come next, is now the other one
    await join(new End(far, { srq }, pd), new End(near));
    const [client, server] = [new End(near), new End(far, { srq }, pd)];
    let code: unknown;
    const listener = await far.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      try {
        request.accept(server.qp);
      } catch (error) {
        ({ code } = error as { code: string });
        request.reject(Uint8Array.of(7));
      }
    });
    client.watch(near.cm.connect(client.qp, { host: '127.0.0.1', port: listener.address.port }));
    await until(() => client.connection!.finished);
    expect([code, client.event('rejected')?.parameters.privateData[0], listener.pending]).toEqual([
      'ERR_NOT_SUPPORTED',
      7,
      0,
    ]);
    listener.close();
    await join(server, new End(near)); // the queue pair is free
    await stop(near, far);
  });
});

describe('a program that replaces the timers', () => {
  it('still hears of its engine: of its listener, and of more than is taken in one turn', async () => {
    const DEPTH = 6000;
    const [near, far] = [openWorkers(), openWorkers()];
    vi.useFakeTimers({ toFake: ['setImmediate'] });
    try {
      const [client, server] = [
        new End(near, { maxSendWr: DEPTH, signalAll: false }),
        new End(far, { maxRecvWr: DEPTH }),
      ];
      await join(client, server);
      server.qp.postRecv(Array.from({ length: DEPTH }, (_, wrId) => ({ wrId })));
      client.qp.postSend(Array.from({ length: DEPTH }, () => ({ opcode: 'send' as const })));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
      expect(await server.completed(DEPTH)).toHaveLength(DEPTH);
    } finally {
      vi.useRealTimers();
    }
    await stop(near, far);
  });
});

describe('what keeps a process alive', () => {
  /** Run a program; its exit code, or null if it was still there at the end of the time. */
  function run(program: string, timeout: number): Promise<{ status: number | null; stdout: string }> {
    const code =
      'const { connect, createServer, openRnic } = await ' +
      `import(${JSON.stringify(plain('src/index.ts'))});\n${program}`;
    return new Promise((resolve) => {
      const child = execFile(
        process.execPath,
        ['--input-type=module', '-e', code],
        { cwd: ROOT, timeout, killSignal: 'SIGKILL' },
        (_, stdout, stderr) => {
          resolve({ status: child.exitCode, stdout: stdout + stderr });
        },
      );
    });
  }

  it('an idle device does not; a program that has closed everything ends by itself', async () => {
    expect(
      await run(
        `
      const rnic = openRnic({ engine: 'worker' });
      const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
      const connection = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
      await connection.close();
      await server.close();
      console.log('closed');
    `,
        30_000,
      ),
    ).toEqual({ status: 0, stdout: 'closed\n' });
    expect(await run("openRnic({ engine: 'worker' }); console.log('idle');", 30_000)).toEqual({
      status: 0,
      stdout: 'idle\n',
    });
  });

  it('a listener does', async () => {
    expect(
      await run(
        `
      process.stdin.resume = () => process.stdin;
      const server = await createServer({ engine: 'worker' }).listen({ host: '127.0.0.1', port: 0 });
      setTimeout(() => { console.log('still there'); process.exit(7); }, 300).unref();
    `,
        30_000,
      ),
    ).toEqual({ status: 7, stdout: 'still there\n' });
  });
});
