/** What clients and servers of NBD must survive, by bytes that a test writes itself. */
import { createServer as createNetServer, type AddressInfo, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { connect, createServer, memoryDevice } from '../../src/nbd/index.ts';
import {
  encodeClientFlags,
  encodeGo,
  encodeGreeting,
  encodeInfoExport,
  encodeOption,
  encodeOptionReply,
  encodeRequest,
  encodeSimpleReply,
  viewOf,
} from '../../src/nbd/wire.ts';
import { memoryServer, Raw } from './support.ts';

const MIB = 1 << 20;

it.each([
  ['READ of length 0', 0, 0n, 0, 0, 0, 22],
  ['READ beyond the end', 0, BigInt(MIB) - 1n, 2, 0, 0, 22],
  ['READ at 2^63', 0, 1n << 63n, 1, 0, 0, 22],
  ['READ over 2^64', 0, (1n << 64n) - 1n, 2, 0, 0, 22],
  ['READ above the maximum', 0, 0n, 0xffff_ffff, 0, 0, 22],
  ['READ with an unknown flag', 0, 0n, 1, 0x80, 0, 22],
  ['READ with DF and no structured replies', 0, 0n, 1, 4, 0, 22],
  ['WRITE beyond the end', 1, BigInt(MIB) - 1n, 2, 0, 2, 28],
  ['WRITE with an unknown flag', 1, 0n, 3, 0x40, 3, 22],
  ['WRITE above the maximum', 1, 0n, 33_554_433, 0, 33_554_433, 22],
  ['FLUSH with a range', 3, 5n, 0, 0, 0, 22],
  ['TRIM beyond the end', 4, BigInt(MIB), 1, 0, 0, 22],
  ['WRITE_ZEROES beyond the end', 6, BigInt(MIB), 1, 0, 0, 28],
  ['BLOCK_STATUS without a context', 7, 0n, 1, 0, 0, 22],
  ['an unknown command', 99, 0n, 1, 0, 0, 22],
])(
  '%s has its error number, and the next request is served',
  async (_n, command, offset, length, flags, data, error) => {
    const { server, uri } = await memoryServer(MIB);
    const raw = await new Raw(uri).handshake();
    expect(await raw.ask(command, offset, length, flags, data)).toBe(error);
    expect(await raw.ask(3, 0n, 0)).toBe(0);
    raw.send(2, 0n, 0);
    await raw.closed;
    await server.close();
  },
);

it('WRITE, TRIM and WRITE_ZEROES to a read-only export are EPERM', async () => {
  const server = createServer({ exports: { disk: memoryDevice({ size: MIB, readOnly: true }) } });
  const { port } = (await server.listen({ port: 0, host: '127.0.0.1' })) as AddressInfo;
  const raw = await new Raw(`nbd://127.0.0.1:${port}`).handshake();
  for (const [command, data] of [
    [1, 4],
    [4, 0],
    [6, 0],
  ] as const)
    expect(await raw.ask(command, 0n, 4, 0, data)).toBe(1);
  await server.close();
});

const CLOSING: Record<string, Uint8Array> = {
  'unknown client flags': encodeClientFlags(4),
  'a bad option magic': Buffer.concat([encodeClientFlags(3), Buffer.alloc(16)]),
  'EXPORT_NAME of an export that is not there': Buffer.concat([
    encodeClientFlags(3),
    encodeOption(1, Buffer.from('none')),
  ]),
  'an option of 4 GiB': Buffer.concat([encodeClientFlags(3), encodeOption(77).fill(0xff, 12)]),
  'a flood of options': Buffer.concat([encodeClientFlags(3), ...Array<Buffer>(100).fill(encodeOption(77))]),
  ABORT: Buffer.concat([encodeClientFlags(3), encodeOption(2)]),
  nothing: new Uint8Array(0),
  'half an option': Buffer.concat([encodeClientFlags(3), encodeOption(3).subarray(0, 9)]),
};
it.each(Object.entries(CLOSING))('a handshake with %s is closed', async (_what, bytes) => {
  const { server, uri } = await memoryServer(MIB, { handshakeTimeout: 200 });
  const raw = new Raw(uri);
  raw.socket.write(bytes);
  await raw.closed;
  expect(server.stats()).toMatchObject({ failedHandshakes: 1, connections: 0 });
  expect(server.connections).toBe(0);
  await server.close();
});

it.each([
  ['longer than 4096 bytes', 77, Buffer.alloc(5000), 0x8000_0009],
  ['unknown', 77, Buffer.alloc(0), 0x8000_0001],
  ['STARTTLS', 5, Buffer.alloc(0), 0x8000_0001],
  ['LIST with data', 3, Buffer.alloc(1), 0x8000_0003],
  ['GO with a malformed name', 7, Buffer.alloc(5), 0x8000_0003],
  ['GO with a name of 256 bytes', 7, encodeGo('a'.repeat(256), []), 0x8000_0009],
  ['GO for an export that is not there', 7, encodeGo('none', []), 0x8000_0006],
  ['SET_META_CONTEXT before structured replies', 10, Buffer.alloc(8), 0x8000_0003],
])('an option that is %s is refused, and the handshake goes on', async (_what, option, data, reply) => {
  const { server, uri } = await memoryServer(MIB);
  const raw = new Raw(uri);
  raw.socket.write(Buffer.concat([encodeClientFlags(3), encodeOption(option, data)]));
  const view = viewOf((await raw.take(18 + 20)).subarray(18));
  expect([view.getUint32(8), view.getUint32(12)]).toEqual([option, reply]);
  await raw.take(view.getUint32(16));
  raw.socket.write(encodeOption(7, encodeGo('disk', [])));
  await raw.take(52);
  await server.close();
});

it('a client that never reads costs bounded memory, and others are served', async () => {
  const { server, uri } = await memoryServer(32 * MIB);
  const raw = await new Raw(uri).handshake();
  raw.socket.pause();
  const before = process.memoryUsage().rss;
  const batch = Buffer.alloc(28 * 1000);
  for (let i = 0; i < 1000; i++)
    encodeRequest(viewOf(batch), 28 * i, {
      flags: 0,
      command: 0,
      cookieHi: 0,
      cookieLo: i,
      offset: 0n,
      length: 32 * MIB,
    });
  for (let i = 0; i < 200; i++) raw.socket.write(batch);
  await new Promise((resolve) => setTimeout(resolve, 500));
  const other = await connect({ uri });
  await other.read(new Uint8Array(1000), 0n);
  await other.close();
  expect(process.memoryUsage().rss - before).toBeLessThan(300 * MIB);
  expect(server.stats().requests).toBeLessThan(20);
  raw.socket.destroy();
  await server.close();
});

it('bad magic in the transmission phase is closed at once', async () => {
  const { server, uri } = await memoryServer(MIB);
  const raw = await new Raw(uri).handshake();
  raw.socket.write(Buffer.alloc(28));
  await raw.closed;
  await server.close();
});

it('connections beyond the maximum are closed', async () => {
  const { server, uri } = await memoryServer(MIB, { maxConnections: 1 });
  const first = await connect({ uri });
  await expect(connect({ uri })).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
  await first.close();
  await server.close();
});

/** A server of bytes: the handshake is right, then it says what a test wants. */
async function fakeServer(
  greeting: Uint8Array,
  answer: (socket: Socket) => void = () => undefined,
): Promise<{ uri: string; close: () => void }> {
  const server = createNetServer((socket) => {
    socket.on('error', () => undefined);
    socket.write(greeting);
    let seen = 0;
    socket.on('data', (data: Buffer) => {
      const had = seen;
      seen += data.length;
      if (had < HANDSHAKE && seen >= HANDSHAKE) answer(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { uri: `nbd://127.0.0.1:${port}/disk`, close: () => void server.close() };
}

const AGREED = Buffer.concat([
  encodeGreeting(3),
  encodeOptionReply(8, 0x8000_0001),
  encodeOptionReply(7, 3, encodeInfoExport(1000n, 1)),
  encodeOptionReply(7, 1),
]);
/** What our client sends up to its first request: flags, STRUCTURED_REPLY, GO, and a READ. */
const HANDSHAKE = 4 + 16 + 16 + 4 + 4 + 2 + 2 + 28;

function reply(hi: number, lo: number, data = 0, magic = 0x67446698): Buffer {
  const bytes = Buffer.alloc(16 + data);
  encodeSimpleReply(viewOf(bytes), 0, 0, hi, lo);
  bytes.writeUInt32BE(magic);
  return bytes;
}

it.each([
  ['an unknown cookie', reply(1, 3), 'ERR_PROTOCOL'],
  ['a cookie of an earlier use', reply(0, 0), 'ERR_PROTOCOL'],
  ['bad magic', reply(1, 0, 0, 7), 'ERR_PROTOCOL'],
  [
    'a structured reply that was not agreed on',
    Buffer.concat([reply(1, 0, 0, 0x668e33ef), Buffer.alloc(4)]),
    'ERR_PROTOCOL',
  ],
  ['half of the data', reply(1, 0, 5), 'ERR_CONNECTION_RESET'],
])('a reply with %s ends the client with a typed error', async (_what, bytes, code) => {
  const fake = await fakeServer(AGREED, (socket) => socket.end(bytes));
  const disk = await connect({ uri: fake.uri });
  await expect(disk.read(new Uint8Array(10), 0n)).rejects.toMatchObject({ code });
  expect(await disk.closed).toMatchObject({ code });
  await disk.close();
  fake.close();
});

it.each([
  ['no greeting', Buffer.alloc(0), 'ERR_TIMEOUT'],
  [
    'an oldstyle greeting',
    Buffer.concat([Buffer.from('NBDMAGIC'), Buffer.from('00420281861253', 'hex'), Buffer.alloc(200)]),
    'ERR_PROTOCOL',
  ],
  [
    'a reply of 4 GiB',
    Buffer.concat([encodeGreeting(3), encodeOptionReply(8, 1).fill(0xff, 16)]),
    'ERR_PROTOCOL',
  ],
  ['a reply to another option', Buffer.concat([encodeGreeting(3), encodeOptionReply(3, 1)]), 'ERR_PROTOCOL'],
  [
    'ACK of GO without a size',
    Buffer.concat([encodeGreeting(3), encodeOptionReply(8, 0x8000_0001), encodeOptionReply(7, 1)]),
    'ERR_PROTOCOL',
  ],
  [
    'a size of 2^63',
    Buffer.concat([
      encodeGreeting(3),
      encodeOptionReply(8, 0x8000_0001),
      encodeOptionReply(7, 3, encodeInfoExport(1n << 63n, 1)),
      encodeOptionReply(7, 1),
    ]),
    'ERR_PROTOCOL',
  ],
])('a server with %s is given up with a typed error', async (_what, bytes, code) => {
  const fake = await fakeServer(bytes);
  await expect(connect({ uri: fake.uri, handshakeTimeout: 200 })).rejects.toMatchObject({ code });
  fake.close();
});

it('a server that knows EXPORT_NAME only is used', async () => {
  const size = Buffer.alloc(134);
  size.writeBigUInt64BE(1000n);
  size.writeUInt16BE(1, 8);
  const fake = await fakeServer(Buffer.concat([encodeGreeting(0), size]));
  const disk = await connect({ uri: fake.uri });
  expect(disk.size).toBe(1000n);
  fake.close();
});
