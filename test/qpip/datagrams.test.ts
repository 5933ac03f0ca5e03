/** Datagram queue pairs over UDP and over a network in memory. */
// cspell:ignore ttered
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { MemoryDatagrams, type MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import { MemoryTransport, VirtualTime } from '../../src/simnet/memory.ts';
import type { DatagramNetwork } from '../../src/transport/datagram.ts';
import {
  ACCESS,
  type CompletionQueue,
  type DatagramQpOptions,
  type DatagramQueuePair,
  type MemoryRegion,
  type WorkCompletion,
} from '../../src/verbs/index.ts';

interface DatagramEnd {
  readonly cq: CompletionQueue;
  readonly dqp: DatagramQueuePair;
  readonly mr: MemoryRegion;
}

function makeEnd(
  options: Partial<DatagramQpOptions> = {},
  datagrams?: DatagramNetwork,
  time?: VirtualTime,
): DatagramEnd {
  const rnic = openRnic({
    wire: 'qpip',
    ...(datagrams !== undefined && { datagrams, transport: new MemoryTransport(time!), scheduler: time! }),
  });
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(4096);
  const mr = pd.registerMemory(rnic.device.allocateMemory(1 << 20), ACCESS.LOCAL_WRITE);
  return {
    cq,
    mr,
    dqp: pd.createDatagramQp({ sendCq: cq, recvCq: cq, maxRecvWr: 512, maxSendWr: 512, ...options }),
  };
}

async function next(cq: CompletionQueue): Promise<WorkCompletion> {
  for await (const wc of cq) return wc;
  throw new Error('the completion queue has ended');
}

describe.each(['127.0.0.1', '::1'])('a datagram queue pair on %s', (host) => {
  const type = host.includes(':') ? 'udp6' : 'udp4';

  it('takes datagrams of a plain socket, tells where they came from, and answers', async () => {
    const { cq, dqp, mr } = makeEnd();
    const { port } = await dqp.bind({ host });
    const socket = createSocket(type);
    socket.bind(0, host);
    await once(socket, 'listening');
    dqp.postRecv([
      { wrId: 1, sges: [{ mr, length: 100 }] },
      {
        wrId: 2,
        sges: [
          { mr, offset: 100, length: 3 },
          { mr, offset: 200, length: 100 },
        ],
      },
    ]);
    socket.send('over UDP', port, host);
    const wc = await next(cq);
    expect(wc).toMatchObject({ wrId: 1, status: 'success', opcode: 'receive', byteLength: 8 });
    expect(wc.from).toEqual({
      address: host,
      port: socket.address().port,
      family: type === 'udp4' ? 'IPv4' : 'IPv6',
    });
    expect(Buffer.from(mr.bytes.subarray(0, 8)).toString()).toBe('over UDP');
    dqp.postSend({
      wrId: 9,
      sges: [
        { mr, length: 4 },
        { mr, offset: 5, length: 3 },
      ],
      to: wc.from!,
    });
    const [answer] = (await once(socket, 'message')) as [Buffer];
    expect(String(answer)).toBe('overUDP');
    expect(await next(cq)).toMatchObject({ wrId: 9, status: 'success', opcode: 'send', from: undefined });
    socket.send('scattered', port, host);
    expect((await next(cq)).byteLength).toBe(9);
    expect(Buffer.from(mr.bytes.subarray(100, 103)).toString()).toBe('sca');
    expect(Buffer.from(mr.bytes.subarray(200, 206)).toString()).toBe('ttered');
    socket.close();
    dqp.destroy();
  });
});

describe('a datagram queue pair', () => {
  it('drops and counts what finds no receive, and reports what is too long', async () => {
    const a = makeEnd();
    const b = makeEnd();
    const to = await a.dqp.bind({ host: '127.0.0.1' });
    await b.dqp.bind({ host: '127.0.0.1' });
    for (let i = 0; i < 3; i++) b.dqp.postSend({ inline: Buffer.from('lost'), to });
    for (let i = 0; i < 3; i++) await next(b.cq);
    await expect.poll(() => a.dqp.counters().dropped).toBe(3);
    a.dqp.postRecv({ wrId: 4, sges: [{ mr: a.mr, length: 4 }] });
    b.dqp.postSend({ inline: Buffer.from('longer'), to });
    expect(await next(a.cq)).toMatchObject({ wrId: 4, status: 'local-length-error' });
    expect(Buffer.from(a.mr.bytes.subarray(0, 6)).toString()).toBe('long\0\0');
    expect(a.dqp.counters()).toMatchObject({ dropped: 3, tooLong: 1, received: 0 });
    expect(b.dqp.counters()).toMatchObject({ sent: 4, bytesOut: 18 });
    a.dqp.destroy();
    b.dqp.destroy();
  });

  it('refuses wrong calls at once', async () => {
    const { dqp, mr } = makeEnd();
    const to = { address: '127.0.0.1', port: 9 };
    const sges = [{ mr, length: 1 }];
    const code = (name: string): unknown => expect.objectContaining({ code: name });
    expect(() => dqp.postSend({ sges, to })).toThrow(code('ERR_INVALID_STATE'));
    await dqp.bind({ host: '127.0.0.1' });
    expect(() => dqp.bind()).toThrow(code('ERR_INVALID_STATE'));
    expect(() => dqp.postSend({ sges, to: { address: 'localhost', port: 9 } })).toThrow(
      code('ERR_INVALID_ARGUMENT'),
    );
    expect(() => dqp.postSend({ sges, to: { address: '::1', port: 9 } })).toThrow(
      code('ERR_INVALID_ARGUMENT'),
    );
    expect(() => dqp.postSend({ sges, to: { address: '127.0.0.1', port: 0 } })).toThrow(
      code('ERR_INVALID_ARGUMENT'),
    );
    expect(() => dqp.postSend({ sges: [{ mr, length: 65_508 }], to })).toThrow(code('ERR_TOO_LARGE'));
    const other = makeEnd();
    await expect(other.dqp.bind({ host: '127.0.0.1', port: dqp.address!.port })).rejects.toThrow(
      code('ERR_CONNECT'),
    );
    expect(other.dqp.state).toBe('unbound');
    const plain = openRnic({ engine: 'thread' }).device;
    const cq = plain.createCq(1);
    expect(() => plain.allocatePd().createDatagramQp({ sendCq: cq, recvCq: cq })).toThrow(
      code('ERR_NOT_SUPPORTED'),
    );
    dqp.destroy();
    expect(() => dqp.postSend({ sges, to })).toThrow(code('ERR_DESTROYED'));
    other.dqp.destroy();
  });

  it('fails alone when its completion queue is full', async () => {
    const rnic = openRnic({ wire: 'qpip' });
    const pd = rnic.device.allocatePd();
    const cq = rnic.device.createCq(1);
    const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq });
    const to = await dqp.bind({ host: '127.0.0.1' });
    const events: string[] = [];
    rnic.device.setAsyncEventHandler((event) => events.push(event.type));
    dqp.postRecv([{ wrId: 1 }, { wrId: 2 }]);
    for (let i = 0; i < 3; i++) dqp.postSend({ to, signaled: false });
    await expect.poll(() => dqp.state).toBe('failed');
    await expect.poll(() => events).toEqual(['datagram-cq-overflow']);
    dqp.destroy();
  });
});

describe('a datagram network in memory', () => {
  const run = async (
    options: MemoryDatagramOptions,
  ): Promise<{ order: string; counters: unknown; at: number }> => {
    const time = new VirtualTime();
    const network = new MemoryDatagrams(time, options);
    const a = makeEnd({}, network, time);
    const b = makeEnd({}, network, time);
    const bound = a.dqp.bind({ host: '10.0.0.1', port: 7 });
    const bound2 = b.dqp.bind({ host: '10.0.0.2' });
    time.run();
    const to = await bound;
    await bound2;
    for (let i = 0; i < 400; i++) a.dqp.postRecv({ wrId: i, sges: [{ mr: a.mr, offset: i, length: 1 }] });
    for (let i = 0; i < 200; i++) b.dqp.postSend({ inline: Buffer.of(i), to, signaled: false });
    time.run();
    return {
      order: Buffer.from(a.mr.bytes.subarray(0, a.dqp.counters().received)).toString('hex'),
      counters: network.counters(),
      at: time.now(),
    };
  };

  it('delivers everything in order by default, after its latency', async () => {
    const { order, at } = await run({ latency: 3 });
    expect(order).toBe(Buffer.from(Array.from({ length: 200 }, (_, i) => i)).toString('hex'));
    expect(at).toBe(3);
  });

  it('loses, repeats and reorders as its seed says, the same each time', async () => {
    const options = { seed: 5, loss: 0.1, repetition: 0.1, reordering: 0.2, disorder: 5, latency: 1 };
    const first = await run(options);
    expect(await run(options)).toEqual(first);
    expect(await run({ ...options, seed: 6 })).not.toEqual(first);
    const { lost, repeated, reordered, delivered } = first.counters as Record<string, number>;
    expect(lost).toBeGreaterThan(5);
    expect(repeated).toBeGreaterThan(5);
    expect(reordered).toBeGreaterThan(10);
    expect(delivered).toBe(200 - lost! + repeated!);
    expect(await run({ loss: 1 })).toMatchObject({ order: '', counters: { lost: 200 } });
  });
});
