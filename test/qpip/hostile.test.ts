/** Peers that mean no good, or cut their octets as badly as they can. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { seededRandom } from '../../src/base/random.ts';
import { segmenting } from '../../src/simnet/segmenting.ts';
import { MemoryTransport, VirtualTime } from '../../src/simnet/memory.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import type { Port } from '../../src/transport/port.ts';
import { ACCESS, type WorkCompletion } from '../../src/verbs/index.ts';
import { PlainServer, QpEnd, until } from './support.ts';

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  let end: QpEnd;
  let server: PlainServer;
  beforeEach(() => {
    end = QpEnd.open(engine);
    server = new PlainServer();
  });
  afterEach(() => {
    end.close();
    server.close();
  });

  it.each([
    ['one octet more than its receive', 101],
    ['4 GiB - 1', 0xffff_ffff],
    ['2 GiB', 0x8000_0000],
  ])('a message announced with %s ends the connection, and takes no memory', async (_what, length) => {
    end.receive(0, 100);
    end.receive(100, 100);
    end.connect(await server.listen(), 'length');
    const socket = await server.next();
    const prefix = Buffer.alloc(4);
    prefix.writeUInt32BE(length);
    socket.write(Buffer.concat([prefix, Buffer.alloc(1000, 7)]));
    expect(await end.received(2)).toEqual(['local-length-error', 'flushed']);
    expect(await end.event('disconnected')).toMatchObject({
      cause: 'reset',
      error: { code: 'ERR_TOO_LARGE' },
    });
    expect(end.inbox.bytes.every((octet) => octet === 0)).toBe(true);
    expect(end.qp.state).toBe('error');
  });

  it('an end within a message is a lost connection', async () => {
    end.receive(0, 100);
    end.connect(await server.listen(), 'length');
    const socket = await server.next();
    socket.end(Buffer.from('\0\0\0\x05abc', 'latin1'));
    expect(await end.received(1)).toEqual(['flushed']);
    expect(await end.event('disconnected')).toMatchObject({ cause: 'lost' });
  });

  it('a reset flushes what is posted', async () => {
    end.receive(0, 100);
    end.connect(await server.listen());
    const socket = await server.next();
    await end.event('established');
    socket.resetAndDestroy();
    expect(await end.received(1)).toEqual(['flushed']);
    expect(await end.event('disconnected')).toMatchObject({ cause: 'reset' });
  });

  it('connections that are never answered stay within the limit of the listener', async () => {
    let requests = 0;
    const listener = await end.rnic.cm.listen(
      { host: '127.0.0.1', port: 0, maxPending: 4 },
      () => requests++,
    );
    const sockets = [];
    for (let i = 0; i < 12; i++) {
      const socket = connect(listener.address.port, '127.0.0.1').on('error', () => undefined);
      socket.write(Buffer.alloc(100_000));
      sockets.push(socket);
    }
    await until(() => listener.refused === 8);
    expect(requests).toBe(4);
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
});

describe('octets in pieces of one', () => {
  it('come to the same messages', () => {
    const time = new VirtualTime();
    const network = new MemoryTransport(time);
    const transport = wrapTransport(network, segmenting(time, { kind: 'every', octets: 1 }));
    const rnic = openRnic({ wire: 'qpip', transport, scheduler: time });
    const pd = rnic.device.allocatePd();
    const cq = rnic.device.createCq(64);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const mr = pd.registerMemory(new Uint8Array(4096), ACCESS.LOCAL_WRITE);
    for (let i = 0; i < 4; i++) qp.postRecv({ wrId: i, sges: [{ mr, offset: i * 1000, length: 1000 }] });
    let peer: Port | null = null;
    network.listen(
      { host: '10.0.0.2', port: 7 },
      (port) => (peer = port),
      () => undefined,
    );
    rnic.cm.connect(qp, { host: '10.0.0.2', port: 7, framing: 'length' });
    time.run();
    const text = Buffer.from('\0\0\0\x03abc\0\0\0\0\0\0\x02\x58' + 'z'.repeat(600), 'latin1');
    peer!.attach({ onData: () => undefined, onEnd: () => undefined, onClose: () => undefined });
    peer!.write([text], 1, () => undefined);
    time.run();
    const out: WorkCompletion[] = [];
    cq.poll(out, 10);
    expect(out.map(({ status, byteLength }) => [status, byteLength])).toEqual([
      ['success', 3],
      ['success', 0],
      ['success', 600],
    ]);
    expect(Buffer.from(mr.bytes.subarray(2000, 2600)).toString()).toBe('z'.repeat(600));
  });
});

describe('datagrams', () => {
  it('a flood of all lengths costs no memory and harms no receive', async () => {
    const { device } = openRnic({ wire: 'qpip' });
    const pd = device.allocatePd();
    const cq = device.createCq(64);
    const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq });
    const mr = pd.registerMemory(device.allocateMemory(512), ACCESS.LOCAL_WRITE);
    const { port } = await dqp.bind({ host: '127.0.0.1' });
    for (let i = 0; i < 4; i++) dqp.postRecv({ wrId: i, sges: [{ mr, offset: i * 128, length: 64 }] });
    const socket = createSocket('udp4');
    const random = seededRandom(11);
    for (let round = 0; round < 20; round++) {
      for (let i = 0; i < 100; i++) socket.send(Buffer.alloc(random() % 3000, 0xee), port, '127.0.0.1');
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await until(() => dqp.counters().dropped > 100);
    expect(cq.length).toBe(4);
    // Between the receives lie octets that are nobody's.
    for (let i = 0; i < 4; i++)
      expect(mr.bytes.subarray(i * 128 + 64, i * 128 + 128).every((octet) => octet === 0)).toBe(true);
    expect(dqp.state).toBe('bound');
    socket.close();
    dqp.destroy();
  });

  it('an answer to a sender that does not exist fails alone', async () => {
    const { device } = openRnic({ wire: 'qpip' });
    const pd = device.allocatePd();
    const cq = device.createCq(64);
    const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq });
    await dqp.bind({ host: '127.0.0.1' });
    const gone = createSocket('udp4');
    gone.bind(0, '127.0.0.1');
    await once(gone, 'listening');
    const { port } = gone.address();
    gone.close();
    // The system refuses the address of a network from a socket bound to loopback, or drops the datagram.
    for (const address of ['127.0.0.1', '255.255.255.255', '192.0.2.1'])
      dqp.postSend({ inline: Buffer.from('x'), to: { address, port } });
    await until(() => cq.length === 3);
    const out: WorkCompletion[] = [];
    cq.poll(out, 3);
    for (const { status } of out) expect(['success', 'local-qp-operation-error']).toContain(status);
    expect(dqp.state).toBe('bound');
    dqp.destroy();
  });
});

/** A peer that sends random octets in random pieces to a queue pair with random receives; a run by seed. */
function fuzz(seed: number, framing: 'none' | 'length' | 'segment'): void {
  const random = seededRandom(seed);
  const time = new VirtualTime();
  const network = new MemoryTransport(time);
  const rnic = openRnic({ wire: 'qpip', transport: network, scheduler: time });
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(512);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: 128 });
  const memory = new Uint8Array(65_536).fill(0xa5);
  const mr = pd.registerMemory(memory.subarray(0, 32_768), ACCESS.LOCAL_WRITE);
  let peer: Port | null = null;
  network.listen(
    { host: '10.0.0.2', port: 7 },
    (port) => (peer = port),
    () => undefined,
  );
  const events: string[] = [];
  const connection = rnic.cm.connect(qp, { host: '10.0.0.2', port: 7, framing });
  connection.setHandler((event) => events.push(event.type));
  time.run();
  const port = peer! as Port;
  port.attach({ onData: () => undefined, onEnd: () => undefined, onClose: () => undefined });
  let posted = 0;
  let completed = 0;
  const out: WorkCompletion[] = [];
  let open = true;
  for (let i = random() % 24; i > 0; i--) {
    switch (random() % 6) {
      case 0:
      case 1: {
        const offset = random() % 30_000;
        const length = random() % 2_000;
        try {
          qp.postRecv({
            wrId: posted,
            sges:
              random() % 3 === 0
                ? [
                    { mr, offset, length },
                    { mr, length: 9 },
                  ]
                : [{ mr, offset, length }],
          });
          posted++;
        } catch {
          // The queue is full, or the connection has gone.
        }
        break;
      }
      case 2:
      case 3:
        if (open) {
          const bytes = Uint8Array.from({ length: random() % 3_000 }, () => random());
          if (random() % 2 === 0) bytes.set([0, 0, random() % 9, random()].slice(0, bytes.length));
          port.write([bytes], 1, () => undefined);
        }
        break;
      case 4:
        qp.postSend({ opcode: 'send', inline: Buffer.alloc(random() % 64), signaled: false });
        break;
      default:
        if (random() % 4 !== 0) break;
        if (random() % 2 === 0 && open) {
          open = false;
          port.end();
        } else {
          connection.disconnect();
        }
    }
    if (random() % 2 === 0) time.advance(1);
    const n = cq.poll(out, 512);
    for (let k = 0; k < n; k++) if (out[k]!.opcode === 'receive') completed++;
  }
  connection.abort();
  time.advance(1);
  const n = cq.poll(out, 512);
  for (let k = 0; k < n; k++)
    if (out[k]!.opcode === 'receive' || out[k]!.status !== 'success')
      completed += out[k]!.opcode === 'receive' ? 1 : 0;
  if (qp.state !== 'error' && qp.state !== 'idle') throw new Error(`seed ${seed}: state ${qp.state}`);
  if (qp.state === 'error' && completed !== posted)
    throw new Error(`seed ${seed}: ${completed} of ${posted} receives`);
  if (!memory.subarray(32_768).every((octet) => octet === 0xa5))
    throw new Error(`seed ${seed}: outside a region`);
  if (events.at(-1) !== 'disconnected') throw new Error(`seed ${seed}: ${events.join()}`);
}

it.each(['none', 'length', 'segment'] as const)(
  'fuzz, framing %s: no throw, no lost completion',
  (framing) => {
    const runs = Number(process.env['FUZZ_RUNS'] ?? 400);
    for (let seed = 1; seed <= runs; seed++) fuzz(seed, framing);
  },
);

/** The same opposite a socket of Node, in the other thread: what only shows there is that nothing hangs. */
async function fuzzWorker(end: QpEnd, server: PlainServer, port: number, seed: number): Promise<void> {
  const random = seededRandom(seed);
  const framing = (['none', 'length', 'segment'] as const)[seed % 3]!;
  const half = end.inbox.length / 2;
  end.inbox.bytes.fill(0xa5);
  const posted = random() % 16;
  for (let i = 0; i < posted; i++) end.receive(random() % (half - 2000), random() % 2000, i);
  end.connect(port, framing);
  const socket = await server.next();
  for (let i = random() % 8; i > 0; i--) {
    const bytes = Buffer.from(Uint8Array.from({ length: random() % 3000 }, () => random()));
    if (random() % 2 === 0) bytes.set([0, 0, random() % 9, random()].slice(0, bytes.length));
    socket.write(bytes);
    if (random() % 3 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const way = random() % 3;
  if (way === 0) socket.resetAndDestroy();
  else if (way === 1) socket.end();
  await new Promise((resolve) => setTimeout(resolve, random() % 4));
  // Without a receive the queue pair does not read, and so does not see the end.
  end.connection!.abort();
  await end.event('disconnected');
  socket.destroy();
  end.qp.destroy();
  const receives: WorkCompletion[] = [];
  for (let n = 1; n > 0; ) n = end.cq.poll(receives, 64);
  expect(end.inbox.bytes.subarray(half).every((octet) => octet === 0xa5)).toBe(true);
}

it('fuzz, engine worker: every connection ends, and no octet lies outside of a receive', async () => {
  const server = new PlainServer();
  const port = await server.listen();
  const rnic = openRnic({ wire: 'qpip', engine: 'worker' });
  for (let seed = 1; seed <= 60; seed++) {
    const end = new QpEnd(rnic);
    await fuzzWorker(end, server, port, seed);
    end.cq.destroy();
    end.inbox.deregister();
    end.outbox.deregister();
    end.pd.deallocate();
  }
  server.close();
}, 60_000);
