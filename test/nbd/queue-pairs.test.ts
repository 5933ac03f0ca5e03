/** Server and client over queue pairs: both modes, both engines, and what their rules refuse. */
import { expect, it, describe } from 'vitest';
import { openRnic, type Rnic } from '../../src/index.ts';
import { ACCESS, createWorkCompletion, type QueuePair } from '../../src/verbs/index.ts';
import {
  connect,
  createServer,
  memoryDevice,
  overlayDevice,
  type BlockDevice,
  type NbdServer,
} from '../../src/nbd/index.ts';
import { encodeSetup, type QpSetup } from '../../src/nbd/qp-wire.ts';
import { encodeRequest, viewOf } from '../../src/nbd/wire.ts';
import { pattern } from './support.ts';

const MIB = 1 << 20;
const engines = { thread: openRnic({ engine: 'thread' }), worker: openRnic({ engine: 'worker' }) };

async function serve(
  rnic: Rnic,
  exports: Record<string, BlockDevice>,
): Promise<{ server: NbdServer; port: number }> {
  const server = createServer({ exports, requestTimeout: 500 });
  const { port } = await server.listenRdma({ host: '127.0.0.1', rnic });
  return { server, port };
}

const cases = (['message', 'direct'] as const).flatMap((mode) =>
  (['thread', 'worker'] as const).flatMap((engine) =>
    (['memory', 'overlay'] as const).map((kind) => ({ mode, engine, kind })),
  ),
);

describe.each(cases)('$mode mode, engine $engine, $kind device', ({ mode, engine, kind }) => {
  it('moves data of all lengths, with 32 requests under way', async () => {
    const rnic = engines[engine];
    const base = memoryDevice({ size: 4 * MIB, shared: true });
    const { server, port } = await serve(rnic, { disk: kind === 'memory' ? base : overlayDevice(base) });
    const disk = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, mode, rnic, depth: 32 });
    const data = pattern(4 * MIB);
    const lengths = [1, 511, 4096, 70_000, 262_144, 1_000_000];
    const parts: [number, number][] = [];
    for (let at = 0, i = 0; at < data.length; i++) {
      const length = Math.min(lengths[i % lengths.length]!, data.length - at);
      parts.push([at, length]);
      at += length;
    }
    await Promise.all(parts.map(([at, length]) => disk.write(data.subarray(at, at + length), BigInt(at))));
    const back = new Uint8Array(data.length);
    await Promise.all(parts.map(([at, length]) => disk.read(back.subarray(at, at + length), BigInt(at))));
    expect(Buffer.compare(back, data)).toBe(0);
    await disk.zero!(100n, 200, { fast: false, noHole: false });
    await disk.flush!();
    const some = new Uint8Array(400);
    await disk.read(some, 0n);
    expect(Buffer.compare(some.subarray(0, 100), data.subarray(0, 100))).toBe(0);
    expect(some.subarray(100, 300).every((byte) => byte === 0)).toBe(true);
    await disk.close();
    expect(await disk.closed).toBeUndefined();
    expect(server.stats()).toMatchObject({ errors: 0, connections: 1 });
    await server.close();
  });

  it('errors have numbers, and an aborted read leaves its memory alone', async () => {
    const rnic = engines[engine];
    const base = memoryDevice({ size: MIB, shared: true });
    const slow: BlockDevice = {
      size: 1000n,
      blocks: base.blocks,
      readOnly: true,
      read: (into, offset) =>
        new Promise((resolve) => setTimeout(() => resolve(void into.fill(5)), offset === 0n ? 200 : 0)),
      write: async () => undefined,
    };
    const { server, port } = await serve(rnic, { slow, base });
    const disk = await connect({ uri: `rdma://127.0.0.1:${port}/slow`, mode, rnic });
    await expect(disk.write(new Uint8Array(5), 0n)).rejects.toMatchObject({
      code: 'ERR_NBD',
      errno: 'EPERM',
    });
    const abort = new AbortController();
    const into = new Uint8Array(100);
    const read = disk.read(into, 0n, abort.signal);
    setTimeout(() => abort.abort(), 20);
    await expect(read).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    await new Promise((resolve) => setTimeout(resolve, 250));
    const next = new Uint8Array(100);
    await disk.read(next, 10n);
    expect([next[0], into[0]]).toEqual([5, 0]);
    await disk.close();
    await server.close();
  });
});

it.each([
  ['an export that is not there', { name: 'x' }, 2],
  ['another version', { version: 2 }, 95],
  ['a depth of 0', { depth: 0 }, 22],
  ['a depth above 1024', { depth: 1025 }, 22],
])('a set-up with %s is refused with its error number', async (_what, change, error) => {
  const rnic = engines.thread;
  const { server, port } = await serve(rnic, {
    disk: memoryDevice({ size: 10 }),
    other: memoryDevice({ size: 1 }),
  });
  const raw = await rawClient(rnic, port, { version: 1, mode: 'message', depth: 4, name: 'disk', ...change });
  expect(raw.event).toMatchObject({ type: 'rejected' });
  expect(viewOf(raw.privateData).getUint32(0)).toBe(error);
  await server.close();
});

/** A client that sends whatever a test wants. */
async function rawClient(
  rnic: Rnic,
  port: number,
  setup: QpSetup,
): Promise<{
  qp: QueuePair;
  event: { type: string };
  privateData: Uint8Array;
  ended: Promise<{ type: string; cause?: string }>;
  replies: () => Uint8Array[];
}> {
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(256);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 64, maxRecvWr: 64 });
  const mr = pd.registerMemory(rnic.device.allocateMemory(64 * 64), ACCESS.LOCAL_WRITE);
  for (let i = 0; i < 64; i++) qp.postRecv({ wrId: i, sges: [{ mr, offset: i * 64, length: 64 }] });
  const connection = rnic.cm.connect(qp, { host: '127.0.0.1', port, privateData: encodeSetup(setup) });
  let end!: (event: { type: string }) => void;
  const ended = new Promise<{ type: string; cause?: string }>((resolve) => (end = resolve));
  const event = await new Promise<{ type: string; parameters?: { privateData: Uint8Array } }>((resolve) =>
    connection.setHandler((happened) => {
      resolve(happened);
      if (happened.type === 'disconnected') end(happened);
    }),
  );
  const replies = (): Uint8Array[] => {
    const out = Array.from({ length: 64 }, createWorkCompletion);
    const n = cq.poll(out);
    return out
      .slice(0, n)
      .filter(({ opcode, status, wrId }) => opcode === 'receive' && status === 'success' && Number(wrId) < 64)
      .map(({ wrId, byteLength }) => mr.bytes.slice(Number(wrId) * 64, Number(wrId) * 64 + byteLength));
  };
  return { qp, event, privateData: event.parameters?.privateData ?? new Uint8Array(0), ended, replies };
}

function request(command: number, cookie: number, offset: bigint, length: number, behind = 0): Uint8Array {
  const bytes = new Uint8Array(28 + behind);
  encodeRequest(viewOf(bytes), 0, { flags: 0, command, cookieHi: 0, cookieLo: cookie, offset, length });
  return bytes;
}

/** A device whose reads never end, so that requests stay under way. */
const stuck: BlockDevice = {
  size: 1n << 40n,
  blocks: { minimum: 1, preferred: 4096, maximum: 1 << 20 },
  read: () => new Promise(() => undefined),
  write: async () => undefined,
};

const VIOLATIONS: Record<string, Uint8Array[]> = {
  'bad magic': [new Uint8Array(28)],
  'a message that is shorter than a request': [request(0, 1, 0n, 8).subarray(0, 27)],
  'bytes behind a READ': [request(0, 1, 0n, 8, 1)],
  'a WRITE whose data is missing': [request(1, 1, 0n, 8)],
  'more requests than the depth': [1, 2, 3, 4, 5].map((cookie) => request(0, cookie, 0n, 8)),
  'a cookie that is under way': [request(0, 1, 0n, 8), request(0, 1, 8n, 8)],
  'a request after DISC': [request(0, 1, 0n, 8), request(2, 2, 0n, 0), request(0, 3, 0n, 8)],
};
it.each(Object.entries(VIOLATIONS))(
  '%s ends the connection, and the server goes on',
  async (_what, messages) => {
    const rnic = engines.thread;
    const { server, port } = await serve(rnic, { disk: stuck });
    const raw = await rawClient(rnic, port, { version: 1, mode: 'message', depth: 4, name: 'disk' });
    expect(raw.event.type).toBe('established');
    raw.qp.postSend(messages.map((inline, i) => ({ opcode: 'send', inline, wrId: 100 + i })));
    expect(await raw.ended).toMatchObject({ type: 'disconnected' });
    const again = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, mode: 'message', rnic });
    await again.write(new Uint8Array(8), 0n);
    await again.close();
    await server.close();
  },
);

it.each([
  ['length 0', request(0, 9, 0n, 0), 22],
  ['a READ beyond the end', request(0, 9, (1n << 40n) - 4n, 8), 22],
  ['an offset of 2^63', request(0, 9, 1n << 63n, 8), 22],
  ['an offset and length over 2^64', request(0, 9, (1n << 64n) - 1n, 8), 22],
  ['a READ above the maximum', request(0, 9, 0n, 0xffff_ffff), 22],
  ['a WRITE beyond the end', request(1, 9, 1n << 40n, 8, 8), 28],
  ['an unknown command', request(77, 9, 0n, 8), 22],
  ['BLOCK_STATUS', request(7, 9, 0n, 8), 22],
])('%s is answered with its error number, and the connection goes on', async (_what, message, error) => {
  const rnic = engines.thread;
  const { server, port } = await serve(rnic, { disk: stuck });
  const raw = await rawClient(rnic, port, { version: 1, mode: 'message', depth: 4, name: 'disk' });
  raw.qp.postSend([{ opcode: 'send', inline: message, wrId: 100 }]);
  let replies: Uint8Array[] = [];
  await expect.poll(() => (replies = [...replies, ...raw.replies()]).length).toBe(1);
  expect([viewOf(replies[0]!).getUint32(4), viewOf(replies[0]!).getUint32(12)]).toEqual([error, 9]);
  raw.qp.postSend({ opcode: 'send', inline: request(2, 10, 0n, 0), wrId: 101 });
  expect(await raw.ended).toMatchObject({ type: 'disconnected', cause: 'graceful' });
  await server.close();
});

it('wrong memory in a direct request costs the client its own connection only', async () => {
  const rnic = engines.thread;
  const disk = memoryDevice({ size: MIB });
  const { server, port } = await serve(rnic, { disk });
  const raw = await rawClient(rnic, port, { version: 1, mode: 'direct', depth: 4, name: 'disk' });
  const message = new Uint8Array(44);
  message.set(request(0, 1, 0n, 4096));
  viewOf(message).setUint32(28, 0xdead_be00);
  raw.qp.postSend({ opcode: 'send', inline: message, wrId: 100 });
  expect(await raw.ended).toMatchObject({ type: 'disconnected' });
  const good = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, rnic });
  await good.read(new Uint8Array(4096), 0n);
  await good.close();
  await server.close();
});

it('a lost server is met by reconnection in direct mode', async () => {
  const rnic = engines.thread;
  const disk = memoryDevice({ size: MIB });
  const { server, port } = await serve(rnic, { disk });
  const remote = await connect({
    uri: `rdma://127.0.0.1:${port}/disk`,
    rnic,
    reconnect: { delay: 50, attempts: 100 },
  });
  await server.close();
  const write = remote.write(pattern(1000), 0n);
  const again = createServer({ exports: { disk } });
  await again.listenRdma({ host: '127.0.0.1', port, rnic });
  await write;
  expect(Buffer.compare(disk.memory.subarray(0, 1000), pattern(1000))).toBe(0);
  expect(remote.stats().reconnects).toBe(1);
  await remote.close();
  await again.close();
});

it('no server is ERR_CONNECT, and everything is given back afterwards', async () => {
  const rnic = engines.thread;
  await expect(connect({ uri: 'rdma://127.0.0.1:9/x', rnic })).rejects.toMatchObject({ code: 'ERR_CONNECT' });
});

it.each(['message', 'direct'] as const)(
  'a device that answers after the end harms nobody, %s',
  async (mode) => {
    const rnic = engines.thread;
    let answer!: () => void;
    let slow!: BlockDevice;
    const asked = new Promise<void>((resolve) => {
      const late = new Promise<void>((done) => (answer = done));
      slow = { ...stuck, read: () => (resolve(), late) };
    });
    const { server, port } = await serve(rnic, { slow, disk: memoryDevice({ size: MIB }) });
    const raw = await rawClient(rnic, port, { version: 1, mode, depth: 4, name: 'slow' });
    const message = request(0, 1, 0n, 4096, mode === 'direct' ? 16 : 0);
    raw.qp.postSend({ opcode: 'send', inline: message });
    await asked;
    raw.qp.destroy();
    await expect.poll(() => server.connections).toBe(0);
    answer();
    const good = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, mode, rnic });
    await good.read(new Uint8Array(4096), 0n);
    await good.close();
    await server.close();
  },
);
