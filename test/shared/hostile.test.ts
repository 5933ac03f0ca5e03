// Peers of a shared region that do what it does not grant: raw queue pairs and plain sockets, both engines.
import { connect as connectTcp } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import { connect, listen, type SharedListener } from '../../src/shared/index.ts';
import { decodeTicket, encodeTicket, type Ticket } from '../../src/shared/ticket.ts';
import { ACCESS, type MemoryRegion, type QueuePair } from '../../src/verbs/index.ts';

const devices: Rnic[] = [];
afterAll(() => {
  for (const { device } of devices) device.close();
});

/** A queue pair with 64 octets of memory, connected to the listener; and how its connection ended. */
async function raw(
  { device, cm }: Rnic,
  port: number,
): Promise<{
  qp: QueuePair;
  mr: MemoryRegion;
  remote: Ticket;
  ended: Promise<string | undefined>;
  free(): void;
}> {
  const pd = device.allocatePd();
  const cq = device.createCq(1024);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 1000, maxRecvWr: 0, ird: 16, ord: 16 });
  const rights = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ;
  const mr = pd.registerMemory(device.allocateMemory(65_536), rights);
  const privateData = encodeTicket({ to: BigInt(mr.addr), stag: mr.rkey, length: 64 });
  let end!: (description: string | undefined) => void;
  const ended = new Promise<string | undefined>((resolve) => (end = resolve));
  const remote = await new Promise<Ticket>((resolve) => {
    cm.connect(qp, { host: '127.0.0.1', port, privateData }).setHandler((event) => {
      if (event.type === 'established') resolve(decodeTicket(event.parameters.privateData)!);
      if (event.type === 'disconnected') end(event.terminate?.description);
    });
  });
  const free = (): void => {
    qp.destroy();
    cq.destroy();
    mr.deregister();
    pd.deallocate();
  };
  return { qp, mr, remote, ended, free };
}

/** The listener serves a peer that behaves. */
async function serves(rnic: Rnic, listener: SharedListener, at = 32): Promise<void> {
  const { socket, region } = await connect({ port: listener.address.port }, { rnic, octets: 64 });
  region.set([1, 2, 3]);
  await socket.settled(socket.write(3, 0, at));
  await socket.settled(socket.read(3, 8, at));
  expect([...region.subarray(8, 11)]).toEqual([1, 2, 3]);
  await socket.close();
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  const rnic = openRnic({ engine });
  devices.push(rnic);

  it.each<[string, 'rdma-write' | 'rdma-read', number, number, number, RegExp]>([
    ['a Write of one octet behind the end', 'rdma-write', 64, 1, 0, /^1\/1\/01/],
    ['a Write across the end', 'rdma-write', 60, 8, 0, /^1\/1\/01/],
    ['a Write of 64 KiB into 64 octets', 'rdma-write', 0, 65_536, 0, /^1\/1\/01/],
    ['a Write in front of the start', 'rdma-write', -8, 8, 0, /^1\/1\/0[13]/],
    ['a Write to another STag', 'rdma-write', 0, 8, 1, /^1\/1\/00/],
    ['a Read behind the end', 'rdma-read', 64, 8, 0, /^0\/1\/01/],
    ['a Read with another STag', 'rdma-read', 0, 8, 1, /^0\/1\/00/],
  ])(
    '%s ends that connection, writes nothing, and the listener serves others',
    async (_name, opcode, at, length, bit, code) => {
      const memory = new Uint8Array(new SharedArrayBuffer(64)).fill(7);
      const listener = await listen({ host: '127.0.0.1', rnic, memory });
      const accepted = listener.accept();
      const { qp, mr, remote, ended, free } = await raw(rnic, listener.address.port);
      const { socket } = await accepted;
      mr.bytes.fill(9);
      qp.postSend({
        opcode,
        sges: [{ mr, offset: 0, length }],
        rkey: (remote.stag ^ bit) >>> 0,
        remoteAddr: BigInt.asUintN(64, remote.to + BigInt(at)),
      });
      expect(await ended).toMatch(code);
      expect(await socket.closed).toMatchObject({ code: expect.stringMatching(/^ERR_/) });
      // No octet of a message that is refused as a whole, or of its last segment, has been placed.
      if (opcode === 'rdma-write' && length < 65_536)
        expect([...memory]).toEqual(new Array<number>(64).fill(7));
      expect(() => socket.write(1, 0, 0)).toThrow(
        expect.objectContaining({ code: expect.stringMatching(/^ERR_/) }),
      );
      free();
      await serves(rnic, listener);
      await listener.close();
    },
  );

  it('a flood of Reads and Writes is carried out, and others are served meanwhile', async () => {
    const memory = new Uint8Array(new SharedArrayBuffer(131_072));
    const listener = await listen({ host: '127.0.0.1', rnic, memory });
    const { qp, mr, remote, ended, free } = await raw(rnic, listener.address.port);
    const before = process.memoryUsage();
    for (let i = 0; i < 900; i++)
      qp.postSend({
        opcode: i % 2 === 0 ? 'rdma-write' : 'rdma-read',
        sges: [{ mr, offset: 0, length: 65_536 }],
        rkey: remote.stag,
        remoteAddr: remote.to,
      });
    await serves(rnic, listener, 100_000);
    const after = process.memoryUsage();
    expect(after.arrayBuffers + after.heapUsed - before.arrayBuffers - before.heapUsed).toBeLessThan(
      64 * 2 ** 20,
    );
    const connection = await listener.accept();
    connection.socket.destroy();
    await ended;
    free();
    await listener.close();
  });

  it('a flood of connections: what waits is bounded by the backlog, the rest is refused', async () => {
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 64 }, 3);
    const { port } = listener.address;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 40 }, () => connect({ port }, { rnic, octets: 64 })),
    );
    const connected = outcomes.filter(({ status }) => status === 'fulfilled');
    expect(connected.length).toBeGreaterThanOrEqual(1);
    expect(connected.length).toBeLessThanOrEqual(3);
    for (const outcome of outcomes)
      if (outcome.status === 'rejected')
        expect(outcome.reason).toMatchObject({ code: expect.stringMatching(/^ERR_(REJECTED|CONNECT)/) });
    for (const outcome of outcomes) if (outcome.status === 'fulfilled') await outcome.value.socket.close();
    // Connections that have ended while they waited are not handed out.
    const next = listener.accept();
    await serves(rnic, listener);
    await (await next).socket.closed;
    await listener.close();
  });

  it('octets that are no start-up, and silence, cost the listener nothing', async () => {
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 64 });
    const { port } = listener.address;
    const silent = Array.from({ length: 20 }, () =>
      connectTcp(port, '127.0.0.1').on('error', () => undefined),
    );
    for (let i = 0; i < 50; i++) {
      const socket = connectTcp(port, '127.0.0.1');
      socket.on('error', () => undefined).resume();
      const octets = Buffer.alloc(20 + i, i);
      if (i % 2 === 0) octets.write('MPA ID Req Frame');
      socket.end(octets);
      await new Promise((resolve) => socket.once('close', resolve));
    }
    await serves(rnic, listener);
    for (const socket of silent) socket.destroy();
    await listener.close();
  });
});
