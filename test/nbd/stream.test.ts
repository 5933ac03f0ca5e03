/** Server and client over byte streams: TCP, Unix sockets, pipes, and RDMA sockets. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtemp, rm } from 'node:fs/promises';
import {
  connect as connectNet,
  createServer as createNetServer,
  type AddressInfo,
  type Socket,
} from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import {
  connect,
  connectStream,
  copyDevice,
  createServer,
  listExports,
  memoryDevice,
  NBD_DIAGNOSTICS_CHANNELS,
  NbdError,
  overlayDevice,
  type BlockDevice,
  type NbdDiagnostics,
} from '../../src/nbd/index.ts';
import { connect as connectRdma, createServer as createRdmaServer } from '../../src/sockets/index.ts';
import { duplexPair, memoryServer, pattern } from './support.ts';

const MIB = 1 << 20;

it('TCP: writes, reads, zeros, trims, flushes and counts', async () => {
  const { server, uri, memory } = await memoryServer(8 * MIB);
  const disk = await connect({ uri, connections: 3 });
  expect(disk.size).toBe(BigInt(8 * MIB));
  const data = pattern(3 * MIB);
  await disk.write(data, 1000n, { fua: true });
  expect(Buffer.compare(memory.subarray(1000, 1000 + data.length), data)).toBe(0);
  const back = new Uint8Array(data.length);
  await disk.read(back, 1000n);
  expect(Buffer.compare(back, data)).toBe(0);
  await disk.zero!(1000n, 500, { fast: true, noHole: true });
  await disk.trim!(2000n, 500);
  await disk.flush!();
  expect(memory.subarray(1000, 1500).every((byte) => byte === 0)).toBe(true);
  expect(disk.stats()).toMatchObject({ reads: 1, writes: 1, zeroes: 1, trims: 1, flushes: 1, errors: 0 });
  await disk.close();
  expect(server.stats()).toMatchObject({ connections: 3, readBytes: data.length, writtenBytes: data.length });
  await expect(disk.read(back, 0n)).rejects.toMatchObject({ code: 'ERR_DESTROYED' });
  await server.close();
});

it('a Unix socket serves several exports, lists them, and refuses one that is not there', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'iwarp-nbd-'));
  const path = join(folder, 's');
  const server = createServer({
    exports: {
      a: memoryDevice({ size: 10 }),
      b: memoryDevice({ size: 20, readOnly: true }),
      late: async () => memoryDevice({ size: 30 }),
    },
  });
  await server.listen({ path });
  const uri = (name: string): string => `nbd+unix:///${name}?socket=${path}`;
  expect(await listExports(uri(''))).toEqual(['a', 'b', 'late']);
  const b = await connect({ uri: uri('b') });
  expect(b.readOnly).toBe(true);
  await expect(b.write(new Uint8Array(1), 0n)).rejects.toMatchObject({ code: 'ERR_NBD', errno: 'EPERM' });
  await b.close();
  const late = await connect({ uri: uri('late') });
  expect(late.size).toBe(30n);
  await late.close();
  await expect(connect({ uri: uri('c') })).rejects.toMatchObject({
    code: 'ERR_REJECTED',
    message: expect.stringContaining('there is no export "c"'),
  });
  await server.close();
  await rm(folder, { recursive: true });
});

it.each([1, 7, 4096])('pipes that cut everything into pieces of %d bytes change nothing', async (chunk) => {
  const disk = memoryDevice({ size: 10_000 });
  const server = createServer({ exports: { disk } });
  const [ours, theirs] = duplexPair(chunk);
  const served = server.serve(theirs);
  const remote = await connectStream(ours, { name: 'disk' });
  const data = pattern(5000);
  await Promise.all([remote.write(data.subarray(0, 2500), 0n), remote.write(data.subarray(2500), 2500n)]);
  const back = new Uint8Array(5000);
  await remote.read(back, 0n);
  expect(Buffer.compare(back, data)).toBe(0);
  await remote.close();
  await served;
});

it('RDMA sockets carry the NBD stream too', async () => {
  const nbd = createServer({ exports: { disk: memoryDevice({ size: MIB }) } });
  const rdma = createRdmaServer((socket) => void nbd.serve(socket));
  await new Promise<void>((resolve) => rdma.listen(0, '127.0.0.1', resolve));
  const { port } = rdma.address() as AddressInfo;
  const socket = connectRdma({ host: '127.0.0.1', port });
  await new Promise((resolve) => socket.once('connect', resolve));
  const remote = await connectStream(socket);
  const data = pattern(300_000);
  await remote.write(data, 5n);
  const back = new Uint8Array(data.length);
  await remote.read(back, 5n);
  expect(Buffer.compare(back, data)).toBe(0);
  await remote.close();
  await new Promise((resolve) => rdma.close(resolve));
});

it('block status joins neighbours and copying skips zeros', async () => {
  const overlay = overlayDevice(memoryDevice({ memory: pattern(512 * 1024) }));
  await overlay.zero!(65_536n, 196_608, { fast: false, noHole: false });
  const server = createServer({ exports: { overlay } });
  const [ours, theirs] = duplexPair();
  void server.serve(theirs);
  const remote = await connectStream(ours, { name: 'overlay' });
  const extents = [];
  for await (const extent of remote.extents!(0n, 512 * 1024)) extents.push([extent.length, extent.zero]);
  expect(extents).toEqual([
    [65_536, false],
    [196_608, true],
    [262_144, false],
  ]);
  const target = memoryDevice({ size: 512 * 1024 });
  target.memory.fill(9);
  await copyDevice(remote, target);
  const expected = pattern(512 * 1024);
  expected.fill(0, 65_536, 262_144);
  expect(Buffer.compare(target.memory, expected)).toBe(0);
  expect(remote.stats().readBytes).toBe(512 * 1024 - 196_608);
  await remote.close();
});

const BROKEN: Record<string, { readonly read: BlockDevice['read']; readonly errno: string }> = {
  throws: {
    read: () => {
      throw new Error('no');
    },
    errno: 'EIO',
  },
  rejects: { read: () => Promise.reject(new Error('no')), errno: 'EIO' },
  'rejects with a number': { read: () => Promise.reject(new NbdError('ENOSPC', 'full')), errno: 'ENOSPC' },
  'rejects as the system does': {
    read: () => Promise.reject(Object.assign(new Error('no'), { code: 'EACCES' })),
    errno: 'EPERM',
  },
  'never answers': { read: () => new Promise(() => undefined), errno: 'EIO' },
};
it.each(Object.entries(BROKEN))('a device that %s gives an error number', async (_name, { read, errno }) => {
  const bad: BlockDevice = { ...memoryDevice({ size: 100 }), size: 100n, read, write: read as never };
  const device: BlockDevice = { size: 100n, blocks: bad.blocks, read, write: bad.write };
  const server = createServer({ exports: { device }, requestTimeout: 50 });
  const [ours, theirs] = duplexPair();
  void server.serve(theirs);
  const remote = await connectStream(ours);
  await expect(remote.read(new Uint8Array(10), 0n)).rejects.toMatchObject({ code: 'ERR_NBD', errno });
  await remote.close();
});

it('an aborted read leaves the memory of its caller alone, and the connection goes on', async () => {
  let answer: (() => void) | undefined;
  const base = memoryDevice({ size: 100 });
  const slow: BlockDevice = {
    size: 100n,
    blocks: base.blocks,
    read: (into, offset) =>
      new Promise((resolve) => {
        answer = () => {
          into.fill(7);
          resolve();
        };
        if (offset > 0n) answer();
      }),
    write: async () => undefined,
  };
  const server = createServer({ exports: { slow } });
  const [ours, theirs] = duplexPair();
  void server.serve(theirs);
  const remote = await connectStream(ours);
  const abort = new AbortController();
  const into = new Uint8Array(50);
  const read = remote.read(into, 0n, abort.signal);
  await expect.poll(() => answer !== undefined).toBe(true);
  abort.abort();
  await expect(read).rejects.toMatchObject({ code: 'ERR_ABORTED', name: 'AbortError' });
  answer!();
  const next = new Uint8Array(50);
  await remote.read(next, 50n);
  expect(next[0]).toBe(7);
  expect(into[0]).toBe(0);
  await remote.close();
});

it.each(['repeat', 'fail'] as const)(
  'a lost connection is made again; requests under way: %s',
  async (requests) => {
    const { server, uri, memory } = await memoryServer(MIB);
    memory.set(pattern(MIB));
    const { port } = new URL(uri.replace('nbd:', 'http:'));
    let current: Socket | undefined;
    let holds = true;
    // A proxy that swallows what the server sends, until it is let go.
    const proxy = createNetServer((socket) => {
      current = socket;
      const onward = connectPlain(Number(port));
      socket.on('error', () => undefined).pipe(onward);
      let seen = 0;
      onward.on('data', (data: Buffer) => {
        seen += data.length;
        if (!holds || seen < 4096) socket.write(data);
      });
      socket.once('close', () => onward.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const { port: front } = proxy.address() as AddressInfo;
    const disk = await connect({
      uri: `nbd://127.0.0.1:${front}/disk`,
      reconnect: { delay: 20, attempts: 50, requests },
    });
    const into = new Uint8Array(100_000);
    const read = disk.read(into, 5n).then(
      () => 'done',
      (error: { code: string }) => error.code,
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
    holds = false;
    current!.destroy();
    expect(await read).toBe(requests === 'repeat' ? 'done' : 'ERR_CONNECTION_RESET');
    await disk.read(into, 5n);
    expect(Buffer.compare(into, memory.subarray(5, 100_005))).toBe(0);
    expect(disk.stats()).toMatchObject({ reconnects: 1, repeats: requests === 'repeat' ? 1 : 0 });
    await disk.close();
    proxy.close();
    await server.close();
  },
);

function connectPlain(port: number): Socket {
  return connectNet({ port, host: '127.0.0.1' }).on('error', () => undefined);
}

it('without reconnection a lost server fails the device', async () => {
  const { server, uri } = await memoryServer(1000);
  const disk = await connect({ uri });
  await server.close();
  expect(await disk.closed).toMatchObject({ code: 'ERR_CONNECTION_RESET' });
  await expect(disk.read(new Uint8Array(1), 0n)).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
  await disk.close();
});

it('diagnostics channels report connections and requests of both ends', async () => {
  const seen: string[] = [];
  const listener = (message: unknown, name: string | symbol): void => {
    const { role, command, error } = message as NbdDiagnostics;
    seen.push([String(name), role, command, error].filter((part) => part !== undefined).join(' '));
  };
  for (const name of NBD_DIAGNOSTICS_CHANNELS) subscribe(name, listener);
  const { server, uri } = await memoryServer(1000);
  const disk = await connect({ uri });
  await disk.write(new Uint8Array(10), 0n);
  await disk.close();
  await expect.poll(() => seen.length).toBe(6);
  await server.close();
  for (const name of NBD_DIAGNOSTICS_CHANNELS) unsubscribe(name, listener);
  expect(seen.sort()).toEqual([
    'iwarp:nbd:close client',
    'iwarp:nbd:close server',
    'iwarp:nbd:open client',
    'iwarp:nbd:open server',
    'iwarp:nbd:request client WRITE 0',
    'iwarp:nbd:request server WRITE 0',
  ]);
});
