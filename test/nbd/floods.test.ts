/** Options, names and replies without an end, and devices that do not answer: all of them are bounded. */
import { createServer as createNetServer, type AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import {
  connect,
  copyDevice,
  createServer,
  listExports,
  memoryDevice,
  type BlockDevice,
  type ExportSource,
  type NbdServer,
} from '../../src/nbd/index.ts';
import {
  encodeClientFlags,
  encodeGo,
  encodeGreeting,
  encodeInfoExport,
  encodeMetaQueries,
  encodeOption,
  encodeOptionReply,
  encodeServerName,
  viewOf,
} from '../../src/nbd/wire.ts';
import { memoryServer, Raw } from './support.ts';

const MIB = 1 << 20;
const never = <T>(): Promise<T> => new Promise<T>(() => undefined);

/** A device of 512 bytes without contents. */
const blank = (closed: () => void): BlockDevice => ({
  size: 512n,
  blocks: { minimum: 1, preferred: 1, maximum: 512 },
  read: async () => undefined,
  write: async () => undefined,
  flush: async () => undefined,
  close: async () => closed(),
});

async function serving(
  exports: Record<string, ExportSource>,
  requestTimeout = 30_000,
): Promise<{ server: NbdServer; uri: string; rdma: string }> {
  const server = createServer({ exports, requestTimeout });
  const { port } = (await server.listen({ port: 0, host: '127.0.0.1' })) as AddressInfo;
  const at = await server.listenRdma({ host: '127.0.0.1', rnic: openRnic({ engine: 'thread' }) });
  return { server, uri: `nbd://127.0.0.1:${port}/disk`, rdma: `rdma://127.0.0.1:${at.port}/disk` };
}

it('a flood of LIST from a client that never reads ends at the 64th option, in bounded memory', async () => {
  const names = Array.from({ length: 1000 }, (_, i) => String(i).padStart(255, 'n'));
  const disk = memoryDevice({ size: MIB });
  const { server, uri } = await serving(Object.fromEntries(names.map((name) => [name, disk])));
  const raw = new Raw(uri);
  raw.socket.pause();
  const before = process.memoryUsage().rss;
  const options = Array<Buffer>(10_000).fill(encodeOption(3));
  raw.socket.write(Buffer.concat([encodeClientFlags(3), ...options]));
  await expect.poll(() => server.stats().failedHandshakes).toBe(1);
  await expect.poll(() => server.connections).toBe(0);
  // 64 lists of 279 bytes for each name.
  expect(process.memoryUsage().rss - before).toBeLessThan(100 * MIB);
  raw.socket.destroy();
  await server.close();
});

it('63 options with names and queries by the thousand are answered, and then one is served', async () => {
  let [opened, closed] = [0, 0];
  const disk = async (): Promise<BlockDevice> => {
    opened++;
    return blank(() => void closed++);
  };
  const { server, uri } = await serving({ disk });
  const raw = new Raw(uri);
  const flood = [
    encodeOption(8),
    ...Array.from({ length: 15 }, (_, i) => [
      encodeOption(7, encodeGo(String(i).repeat(200), [])),
      encodeOption(7, encodeGo('n'.repeat(4000), [])),
      encodeOption(6, encodeGo('disk', Array<number>(2000).fill(3))),
      encodeOption(9, encodeMetaQueries('disk', Array<string>(800).fill('q'))),
    ]).flat(),
    encodeOption(6, encodeGo('disk', [])),
    encodeOption(6, encodeGo('disk', [])),
  ];
  raw.socket.write(Buffer.concat([encodeClientFlags(3), ...flood]));
  await raw.take(18);
  let errors = 0;
  for (let options = 0; options < flood.length; ) {
    const view = viewOf(await raw.take(20));
    await raw.take(view.getUint32(16));
    const reply = view.getUint32(12);
    if (reply === 1 || reply >= 0x8000_0000) options++;
    if (reply >= 0x8000_0000) errors++;
  }
  expect(errors).toBe(30);
  raw.socket.write(encodeOption(7, encodeGo('disk', [])));
  await raw.take(20 + 12 + 20);
  expect(await raw.ask(3, 0n, 0)).toBe(0);
  expect([opened, closed]).toEqual([33, 32]);
  raw.send(2, 0n, 0);
  await raw.closed;
  await expect.poll(() => closed).toBe(33);
  await server.close();
});

it('a handshake of which one option comes every few milliseconds ends at the 65th', async () => {
  const { server, uri } = await memoryServer(MIB);
  const raw = new Raw(uri);
  raw.socket.write(encodeClientFlags(3));
  const timer = setInterval(() => raw.socket.write(encodeOption(77)), 2);
  await raw.closed;
  clearInterval(timer);
  expect(server.stats().failedHandshakes).toBe(1);
  await server.close();
});

/** A server that says the same to everyone. */
async function sayingServer(bytes: Uint8Array): Promise<{ uri: string; close: () => void }> {
  const server = createNetServer((socket) => {
    socket.on('error', () => undefined).resume();
    socket.write(bytes);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { uri: `nbd://127.0.0.1:${port}/disk`, close: () => void server.close() };
}

it.each([
  [
    'names',
    (count: number) => [...Array<Buffer>(count).fill(encodeOptionReply(3, 2, encodeServerName('n')))],
  ],
  ['a name of 5000 bytes', () => [encodeOptionReply(3, 2, encodeServerName('n'.repeat(5000)))]],
])('a server that lists %s without an end is given up', async (_what, replies) => {
  const fake = await sayingServer(Buffer.concat([encodeGreeting(3), ...replies(10_001)]));
  await expect(listExports(fake.uri)).rejects.toMatchObject({ code: 'ERR_PROTOCOL' });
  fake.close();
});

it('a server that describes an export without an end is given up', async () => {
  const info = encodeOptionReply(7, 3, encodeInfoExport(1000n, 1));
  const bytes = [encodeGreeting(3), encodeOptionReply(8, 0x8000_0001), ...Array<Buffer>(10_001).fill(info)];
  const fake = await sayingServer(Buffer.concat(bytes));
  await expect(connect({ uri: fake.uri })).rejects.toMatchObject({ code: 'ERR_PROTOCOL' });
  fake.close();
});

it('connections that were made before one is refused are given back', async () => {
  const { server, uri } = await memoryServer(MIB, { maxConnections: 2 });
  await expect(connect({ uri, connections: 4 })).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
  await expect.poll(() => server.connections).toBe(0);
  await server.close();
});

it('an export whose device does not open in time is absent, and a later device is closed', async () => {
  let arrive!: (device: BlockDevice) => void;
  let closed = 0;
  const disk = (): Promise<BlockDevice> => new Promise((resolve) => (arrive = resolve));
  const { server, uri, rdma } = await serving({ disk, other: memoryDevice({ size: MIB }) }, 50);
  for (const target of [uri, rdma]) {
    await expect(connect({ uri: target })).rejects.toMatchObject({ code: 'ERR_REJECTED' });
    arrive(blank(() => void closed++));
  }
  await expect.poll(() => closed).toBe(2);
  await server.close();
});

it('clients that leave, and a server that closes, while a device opens give it back', async () => {
  const arrivals: (() => void)[] = [];
  let closed = 0;
  const disk = (): Promise<BlockDevice> =>
    new Promise((resolve) => arrivals.push(() => resolve(blank(() => void closed++))));
  const { server, uri, rdma } = await serving({ disk });
  for (const target of [uri, rdma]) {
    const late = connect({ uri: target, handshakeTimeout: 50 });
    await expect(late).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    arrivals.pop()!();
    await expect.poll(() => closed, { message: target }).toBe(1);
    closed = 0;
  }
  const both = [uri, rdma].map((target) => connect({ uri: target }).catch((error: unknown) => error));
  await expect.poll(() => arrivals.length).toBe(2);
  const closing = server.close();
  for (const arrive of arrivals) arrive();
  await closing;
  const typed = { code: expect.stringMatching(/^ERR_/) as string };
  for (const error of await Promise.all(both)) expect(error).toMatchObject(typed);
  await expect.poll(() => closed).toBe(2);
});

it('a device that never says which parts it has, and never closes, holds nobody up', async () => {
  const base = memoryDevice({ size: MIB });
  const disk = async (): Promise<BlockDevice> => ({
    size: base.size,
    blocks: base.blocks,
    read: (into) => base.read(into, 0n, AbortSignal.timeout(1000)),
    write: async () => undefined,
    extents: async function* () {
      await never();
      yield { length: 1, hole: false, zero: false };
    },
    close: never,
  });
  const { server, uri } = await serving({ disk }, 50);
  const remote = await connect({ uri });
  const ask = async (): Promise<void> => {
    for await (const { length } of remote.extents!(0n, MIB)) expect(length).toBeGreaterThan(0);
  };
  await expect(ask()).rejects.toMatchObject({ code: 'ERR_NBD', errno: 'EIO' });
  await remote.read(new Uint8Array(100), 0n);
  await remote.close();
  await expect.poll(() => server.connections).toBe(0);
  await server.close();
});

it('a copy that fails leaves nothing at work behind it', async () => {
  let under = 0;
  const source: BlockDevice = {
    size: BigInt(MIB),
    blocks: { minimum: 1, preferred: 4096, maximum: MIB },
    read: async (_into, offset) => {
      under++;
      await new Promise((resolve) => setTimeout(resolve, offset === 0n ? 5 : 30));
      under--;
      if (offset === 0n) throw new Error('the first piece is bad');
    },
    write: async () => undefined,
  };
  const target = memoryDevice({ size: MIB });
  const copy = copyDevice(source, target, { request: 65_536, depth: 4 });
  await expect(copy).rejects.toThrow('the first piece is bad');
  expect(under).toBe(0);
});
