// Programs as users of libibverbs and librdmacm write them, each run with both engines: the outputs are
// equal.
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import type { CmConnection, CmEvent, ConnParam } from '../../src/cm/index.ts';
import { openRnic, type Rnic } from '../../src/index.ts';
import {
  ACCESS,
  bindWindow,
  createWorkCompletion,
  swapRequest,
  type AsyncEvent,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairOptions,
  type SharedReceiveQueue,
} from '../../src/verbs/index.ts';
import { stop, until } from '../engine/support.ts';

type Kind = 'thread' | 'worker';
const RIGHTS = 31;

/** What a program of this kind sets up at each end, and a log of what it prints. */
class End {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly events: CmEvent[] = [];
  readonly asyncEvents: AsyncEvent[] = [];
  readonly seen: string[] = [];
  srq: SharedReceiveQueue | undefined;
  qp!: QueuePair;
  id: CmConnection | null = null;

  constructor(kind: Kind, opened: Rnic[]) {
    this.rnic = openRnic({ engine: kind });
    opened.push(this.rnic);
    this.rnic.device.setAsyncEventHandler((event) => this.asyncEvents.push(event));
    this.pd = this.rnic.device.allocatePd();
    this.cq = this.rnic.device.createCq(64);
  }

  createQp(options: Partial<QueuePairOptions> = {}): void {
    this.qp = this.pd.createQp({ sendCq: this.cq, recvCq: this.cq, srq: this.srq, ...options });
  }

  register(octets: number, fill = 0, access = RIGHTS): MemoryRegion {
    const mr = this.pd.registerMemory(this.rnic.device.allocateMemory(octets), access, { iova: 0 });
    mr.bytes.fill(fill);
    return mr;
  }

  watch(id: CmConnection): void {
    this.id = id;
    id.setHandler((event) => this.events.push(event));
  }

  /** The next `count` completions, as text. */
  async completed(count: number): Promise<string[]> {
    const wcs = [createWorkCompletion()];
    await until(() => {
      while (this.cq.poll(wcs) > 0) {
        const { wrId, opcode, status, byteLength } = wcs[0]!;
        this.seen.push(`${wrId} ${opcode} ${status}${status === 'success' ? ` ${byteLength}` : ''}`);
      }
      return this.seen.length >= count;
    });
    return this.seen.splice(0, count);
  }

  async over(): Promise<string[]> {
    await until(() => this.events.some(({ type }) => type === 'disconnected'));
    return this.events.map(({ type }) => type);
  }
}

type Program = (client: End, server: End) => Promise<unknown>;

/** rdma_listen, rdma_connect, rdma_accept; the port is that of the listener. */
async function join(client: End, server: End, param: ConnParam = {}, answer: ConnParam = {}): Promise<void> {
  if (client.qp === undefined) client.createQp();
  if (server.qp === undefined) server.createQp();
  const listener = await server.rnic.cm.listen({ host: '127.0.0.1' }, (request) => {
    server.watch(request);
    request.accept(server.qp, answer);
  });
  client.watch(
    client.rnic.cm.connect(client.qp, { host: '127.0.0.1', port: listener.address.port, ...param }),
  );
  await until(() =>
    [client, server].every(({ events }) => events.some(({ type }) => type === 'established')),
  );
  await new Promise<void>((resolve) => listener.close(resolve));
}

/** What a connect says whose peer is `peer` in place of one that speaks MPA. */
async function failedConnect(client: End, peer: (socket: Socket) => void): Promise<unknown> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    peer(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  client.createQp();
  client.qp.postRecv({ wrId: 7 });
  client.watch(client.rnic.cm.connect(client.qp, { host: '127.0.0.1', port, policy: { replyTimeout: 300 } }));
  const types = await client.over();
  server.close();
  const [first] = client.events;
  if (first === undefined || !('reason' in first)) throw new Error('no failure');
  const { reason, status, error } = first;
  return [types, reason, status, error?.message, client.qp.state, client.cq.length];
}

const PROGRAMS: Readonly<Record<string, Program>> = {
  rc_pingpong: async (a, b) => {
    const [ma, mb] = [a.register(4096, 1), b.register(4096, 2)];
    await join(a, b);
    const log: string[] = [];
    for (let i = 0; i < 20; i++) {
      a.qp.postRecv({ wrId: 1, sges: [{ mr: ma }] });
      b.qp.postRecv({ wrId: 1, sges: [{ mr: mb }] });
      a.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr: ma }] });
      log.push(...(await b.completed(1)));
      b.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr: mb }] });
      log.push(...(await a.completed(2)).sort(), ...(await b.completed(1)));
    }
    return log;
  },
  srq_pingpong: async (a, b) => {
    b.srq = b.pd.createSrq({ maxWr: 8, limit: 2 });
    const mr = b.register(512);
    for (let i = 0; i < 4; i++) b.srq.postRecv({ wrId: i, sges: [{ mr, offset: i * 64, length: 64 }] });
    await join(a, b);
    for (let i = 0; i < 3; i++) a.qp.postSend({ wrId: i, opcode: 'send', inline: new Uint8Array(i + 1) });
    const log = [await a.completed(3), await b.completed(3), b.srq.query().posted];
    a.id!.disconnect();
    return [...log, await b.over(), b.asyncEvents.map(({ type }) => type).sort()];
  },
  'cm client and server': async (a, b) => {
    const text = (value: string): Uint8Array => new TextEncoder().encode(value);
    await join(
      a,
      b,
      { privateData: text('hello'), responderResources: 2, initiatorDepth: 3 },
      {
        privateData: text('welcome'),
      },
    );
    const seen = [a, b].map(({ events, qp }) => {
      const [established] = events;
      if (established?.type !== 'established') throw new Error('not established');
      const { privateData, responderResources, initiatorDepth } = established.parameters;
      return [
        new TextDecoder().decode(privateData),
        responderResources,
        initiatorDepth,
        established.negotiated.ord === qp.query().ord,
        qp.state,
      ];
    });
    b.id!.disconnect();
    return [seen, await a.over(), await b.over(), a.qp.state, b.qp.state];
  },
  'a rejection': async (a, b) => {
    a.createQp();
    const listener = await b.rnic.cm.listen({ host: '127.0.0.1' }, (request) =>
      request.reject(new Uint8Array([1, 2, 3])),
    );
    a.watch(a.rnic.cm.connect(a.qp, { host: '127.0.0.1', port: listener.address.port }));
    const types = await a.over();
    const rejected = a.events.find((event) => event.type === 'rejected');
    await new Promise<void>((resolve) => listener.close(resolve));
    return [types, rejected?.parameters.privateData, rejected?.status, rejected?.error, a.qp.state];
  },
  'a connect to a port where nothing listens': async (a) => {
    a.createQp();
    a.watch(a.rnic.cm.connect(a.qp, { host: '127.0.0.1', port: 1 }));
    const types = await a.over();
    const [first] = a.events;
    return [types, first !== undefined && 'status' in first ? first.status : 'none', a.qp.state];
  },
  'a connect that is reset before the Reply': (a) =>
    failedConnect(a, (socket) => socket.once('data', () => socket.resetAndDestroy())),
  'a connect whose peer closes before the Reply': (a) =>
    failedConnect(a, (socket) => socket.once('data', () => socket.end())),
  'a connect that is never answered': (a) => failedConnect(a, (socket) => socket.resume()),
  'a connect to what is no MPA': (a) =>
    failedConnect(a, (socket) => socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))),
  'a bad local address': async (a) => {
    a.createQp();
    a.watch(a.rnic.cm.connect(a.qp, { host: '127.0.0.1', port: 1, localAddress: '192.0.2.1' }));
    return [await a.over(), a.qp.state];
  },
  'a full listener': async (a, b) => {
    const failures: string[] = [];
    const listener = await b.rnic.cm.listen(
      { host: '127.0.0.1', maxPending: 1, onFailure: ({ reason }) => failures.push(reason) },
      (request) => b.watch(request), // it never answers
    );
    const { port } = listener.address;
    a.createQp();
    a.watch(a.rnic.cm.connect(a.qp, { host: '127.0.0.1', port }));
    await until(() => b.id !== null);
    const second = new End('thread', []);
    second.createQp();
    second.watch(second.rnic.cm.connect(second.qp, { host: '127.0.0.1', port }));
    await second.over();
    await until(() => failures.length > 0);
    // The reset comes while TCP connects or just after it has: both are reported alike.
    const said = second.events.flatMap((event) => ('status' in event ? [event.type, event.status] : []));
    const log = [said, failures, listener.refused, listener.pending];
    a.id!.abort();
    await a.over();
    await new Promise<void>((resolve) => listener.close(resolve));
    return log;
  },
  'async events of a wrong key': async (a, b) => {
    const mr = a.register(8);
    await join(a, b);
    a.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 0x1234_5600, remoteAddr: 0 });
    const log = [await a.completed(1), await a.over(), await b.over()];
    return [
      ...log,
      a.qp.state,
      b.qp.state,
      a.asyncEvents.map(({ type }) => type),
      b.asyncEvents.map(({ type }) => type),
      a.qp.query().terminate?.code,
    ];
  },
  'cq events out of a channel': async (a, b) => {
    const channel = b.rnic.device.createCompletionChannel();
    const recvCq = b.rnic.device.createCq(8, { channel, context: 'receives' });
    b.createQp({ recvCq });
    for (let i = 0; i < 2; i++) b.qp.postRecv({ wrId: i });
    await join(a, b);
    const log: unknown[] = [];
    const wcs = [createWorkCompletion()];
    for (const solicited of [false, true]) {
      recvCq.requestNotify(solicited ? 'solicited' : 'next');
      a.qp.postSend({ opcode: 'send', solicited });
      const cq = await channel.nextEvent();
      log.push(cq.context, cq.poll(wcs), wcs[0]!.solicited);
    }
    return [...log, await a.completed(2)];
  },
  windows: async (a, b) => {
    const [mr, source] = [b.register(64), a.register(8, 9)];
    const mw = b.pd.allocateMw();
    await join(a, b);
    const rkey = bindWindow(b.qp, mw, {
      wrId: 1,
      mr,
      offset: 8,
      length: 8,
      access: ACCESS.REMOTE_WRITE,
      iova: 0,
    });
    const log: unknown[] = [await b.completed(1)];
    a.qp.postSend({ wrId: 2, opcode: 'rdma-write', sges: [{ mr: source }], rkey, remoteAddr: 0 });
    b.qp.postRecv({ wrId: 3 });
    a.qp.postSend({ wrId: 4, opcode: 'send', invalidate: rkey });
    log.push(await a.completed(2), await b.completed(1), Array.from(mr.bytes.subarray(6, 18)));
    a.qp.postSend({ wrId: 5, opcode: 'rdma-write', sges: [{ mr: source }], rkey, remoteAddr: 0 });
    return [...log, await a.over(), b.asyncEvents.map(({ type }) => type)];
  },
  atomics: async (a, b) => {
    const [mr, sink] = [b.register(8), a.register(8)];
    await join(a, b);
    const remote = { sges: [{ mr: sink }], rkey: mr.rkey, remoteAddr: 0 };
    const log: unknown[] = [];
    for (const request of [
      { wrId: 1, opcode: 'atomic-fetch-add', add: 5n, ...remote },
      { wrId: 2, opcode: 'atomic-cmp-swap', compare: 5n, swap: 7n, ...remote },
      { wrId: 3, opcode: 'atomic-cmp-swap', compare: 5n, swap: 8n, ...remote },
      swapRequest({ wrId: 4, swap: 9n, ...remote }),
    ] as const) {
      a.qp.postSend(request);
      log.push(await a.completed(1), Array.from(sink.bytes), Array.from(mr.bytes));
    }
    return log;
  },
  'a close with Reads outstanding and receives posted again': async (a, b) => {
    const [sink, source, small] = [a.register(1 << 22), b.register(1 << 22), a.register(64)];
    await join(a, b);
    a.qp.postRecv({ wrId: 10, sges: [{ mr: small }] });
    for (let i = 0; i < 4; i++)
      a.qp.postSend({ wrId: i, opcode: 'rdma-read', sges: [{ mr: sink }], rkey: source.rkey, remoteAddr: 0 });
    a.id!.disconnect();
    a.qp.postRecv({ wrId: 11, sges: [{ mr: small }] });
    for (let i = 0; i < 2; i++) b.qp.postSend({ wrId: i, opcode: 'send', inline: new Uint8Array(8) });
    return [(await a.completed(6)).sort(), await a.over(), await b.over(), a.qp.state];
  },
  'posts after both sides have closed': async (a, b) => {
    await join(a, b);
    a.id!.disconnect();
    b.id!.disconnect();
    const log: unknown[] = [await a.over(), await b.over(), a.qp.state, b.qp.state];
    await until(() => a.qp.state === 'idle');
    a.qp.postSend({ wrId: 1, opcode: 'send' }); // in Idle it waits for a connection (VERBS-031)
    a.qp.modify({ state: 'error' });
    return [...log, await a.completed(1), a.qp.state];
  },
};

describe.each(Object.entries(PROGRAMS))('the program %s', (_name, program) => {
  const opened: Rnic[] = [];
  afterAll(() => stop(...opened.filter(({ device }) => device.mirror.offloaded)));

  it('gives the same with both engines', async () => {
    const outputs: unknown[] = [];
    for (const kind of ['thread', 'worker'] as const)
      outputs.push(await program(new End(kind, opened), new End(kind, opened)));
    expect(outputs[1]).toEqual(outputs[0]);
    expect(outputs[0]).toMatchSnapshot();
  }, 60_000);
});
