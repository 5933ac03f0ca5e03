/** Replies over queue pairs that no server should send, and requests that no client should, in both modes. */
import { connect as connectNet, createServer as createNetServer, type AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { openRnic, type Rnic } from '../../src/index.ts';
import {
  connect,
  createServer,
  memoryDevice,
  NbdError,
  overlayDevice,
  type BlockDevice,
  type RemoteDevice,
} from '../../src/nbd/index.ts';
import { decodeDirectRequest, encodeGrant, encodeSetup, type QpMode } from '../../src/nbd/qp-wire.ts';
import { decodeRequest, encodeRequest, encodeSimpleReply, viewOf } from '../../src/nbd/wire.ts';
import { ACCESS, createWorkCompletion, type SendWorkRequest } from '../../src/verbs/index.ts';

const MIB = 1 << 20;
const engines = { thread: openRnic({ engine: 'thread' }), worker: openRnic({ engine: 'worker' }) };
/** The far end is always in this thread. */
const far = openRnic({ engine: 'thread' });
const MODES = ['message', 'direct'] as const;
/** An error of ours, with a code. */
const TYPED = { code: expect.stringMatching(/^ERR_/) as string };

interface Asked {
  readonly cookieHi: number;
  readonly cookieLo: number;
  readonly length: number;
  readonly stag: number;
  readonly to: bigint;
}

/** A server of one connection that answers each request with whatever a test wants. */
class WilfulServer {
  readonly #pd = far.device.allocatePd();
  readonly #cq = far.device.createCq(256);
  readonly #qp = this.#pd.createQp({
    sendCq: this.#cq,
    recvCq: this.#cq,
    maxSendWr: 64,
    maxRecvWr: 64,
    maxInline: 1024,
  });
  readonly #inbox = this.#pd.registerMemory(new Uint8Array(8192), ACCESS.LOCAL_WRITE);
  readonly #memory = this.#pd.registerMemory(new Uint8Array(8192).fill(0x11), ACCESS.LOCAL_WRITE);
  readonly #answer: (asked: Asked, server: WilfulServer) => void;
  readonly #mode: QpMode;

  constructor(mode: QpMode, answer: (asked: Asked, server: WilfulServer) => void) {
    this.#mode = mode;
    this.#answer = answer;
  }

  /** The URI of the only connection. */
  async listen(grant?: Uint8Array): Promise<string> {
    for (let wrId = 0; wrId < 64; wrId++) this.#qp.postRecv({ wrId, sges: [{ mr: this.#inbox }] });
    const listener = await far.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      request.setHandler(() => undefined);
      const blocks = { minimum: 1, preferred: 4096, maximum: MIB };
      const privateData = grant ?? encodeGrant({ size: BigInt(8 * MIB), flags: 1, blocks });
      request.accept(this.#qp, { privateData });
      listener.close();
    });
    this.#cq.setHandler(() => this.#poll());
    this.#cq.requestNotify();
    return `rdma://127.0.0.1:${listener.address.port}/disk`;
  }

  #poll(): void {
    const out = [createWorkCompletion()];
    while (this.#cq.poll(out, 1) > 0) {
      const { opcode, status, byteLength } = out[0]!;
      if (opcode !== 'receive' || status !== 'success') continue;
      const bytes = this.#inbox.bytes.slice(0, byteLength);
      if (this.#mode === 'direct') {
        const { request, memory } = decodeDirectRequest(bytes)!;
        this.#answer({ ...request, ...memory }, this);
      } else {
        this.#answer({ ...decodeRequest(viewOf(bytes))!, stag: 0, to: 0n }, this);
      }
    }
    this.#cq.requestNotify();
    if (this.#cq.length > 0) this.#poll();
  }

  post(request: SendWorkRequest): void {
    this.#qp.postSend(request);
  }

  send(inline: Uint8Array, invalidate?: number): void {
    this.post({ opcode: 'send', inline, signaled: false, ...(invalidate !== undefined && { invalidate }) });
  }

  move(opcode: 'rdma-write' | 'rdma-read', { stag, to }: Asked, length: number): void {
    this.post({ opcode, sges: [{ mr: this.#memory, length }], rkey: stag, remoteAddr: to });
  }
}

function reply({ cookieHi, cookieLo }: Pick<Asked, 'cookieHi' | 'cookieLo'>, data = 0, error = 0): Buffer {
  const bytes = Buffer.alloc(16 + data, 0x22);
  encodeSimpleReply(viewOf(bytes), 0, error, cookieHi, cookieLo);
  return bytes;
}

/** How the data of a successful READ of `length` bytes comes in a mode, in the reply itself. */
const dataOf = (mode: QpMode, length: number): number => (mode === 'message' ? length : 0);

/** Replies to a READ; each of them ends the connection. */
const WRONG: Record<string, (asked: Asked, mode: QpMode) => Buffer[]> = {
  'another cookie': (asked, mode) => [
    reply({ ...asked, cookieLo: asked.cookieLo + 1 }, dataOf(mode, asked.length)),
  ],
  'a cookie beyond the depth': (asked, mode) => [
    reply({ ...asked, cookieLo: 0xffff_ffff }, dataOf(mode, asked.length)),
  ],
  'the cookie of an earlier use': (asked, mode) => [
    reply({ ...asked, cookieHi: asked.cookieHi - 1 }, dataOf(mode, asked.length)),
  ],
  'bad magic': (asked, mode) => {
    const bytes = reply(asked, dataOf(mode, asked.length));
    bytes.writeUInt32BE(7);
    return [bytes];
  },
  'no bytes at all': () => [Buffer.alloc(0)],
  'a byte too few': (asked, mode) => [reply(asked, dataOf(mode, asked.length)).subarray(0, -1)],
  'a byte too many': (asked, mode) => [reply(asked, dataOf(mode, asked.length) + 1)],
  'an error with data behind it': (asked) => [reply(asked, 1, 5)],
};

const cases = MODES.flatMap((mode) => (['thread', 'worker'] as const).map((engine) => ({ mode, engine })));

/** Memory of a caller within memory that no reply may touch. */
function guarded(rnic: Rnic, length: number): { into: Uint8Array; isUntouched: () => boolean } {
  const all = rnic.device.allocateMemory(length + 512).fill(0xa5);
  return {
    into: all.subarray(256, 256 + length),
    isUntouched: () =>
      [all.subarray(0, 256), all.subarray(256 + length)].every((part) => part.every((byte) => byte === 0xa5)),
  };
}

async function endsTyped(disk: RemoteDevice, read: Promise<void>): Promise<void> {
  await expect(read).rejects.toMatchObject(TYPED);
  expect(await disk.closed).toMatchObject(TYPED);
  await expect(disk.read(new Uint8Array(1), 0n)).rejects.toMatchObject(TYPED);
  await disk.close();
}

describe.each(cases)('a client in $mode mode, engine $engine, meets a server that', ({ mode, engine }) => {
  const rnic = engines[engine];

  it.each(Object.entries(WRONG))('answers a READ with %s', async (_what, answer) => {
    const before = rnic.device.query().inUse;
    const wilful = new WilfulServer(mode, (asked, self) => {
      for (const bytes of answer(asked, mode)) self.send(bytes);
    });
    const disk = await connect({ uri: await wilful.listen(), mode, rnic });
    const { into, isUntouched } = guarded(rnic, 500);
    await endsTyped(disk, disk.read(into, 0n));
    expect(isUntouched() && into.every((byte) => byte === 0xa5)).toBe(true);
    // Registrations and queues have been given back.
    await expect.poll(() => rnic.device.query().inUse).toEqual(before);
  });

  it('answers a WRITE with data', async () => {
    const wilful = new WilfulServer(mode, (asked, self) => self.send(reply(asked, 8)));
    const disk = await connect({ uri: await wilful.listen(), mode, rnic });
    await endsTyped(disk, disk.write(new Uint8Array(100), 0n));
  });

  it('answers twice', async () => {
    const wilful = new WilfulServer(mode, (asked, self) => {
      for (let i = 0; i < 2; i++) self.send(reply(asked, dataOf(mode, asked.length)));
    });
    const disk = await connect({ uri: await wilful.listen(), mode, rnic });
    await disk.read(new Uint8Array(100), 0n).catch((error: unknown) => expect(error).toMatchObject(TYPED));
    expect(await disk.closed).toMatchObject(TYPED);
    await disk.close();
  });

  it('answers more often than it is asked, and than the depth', async () => {
    const wilful = new WilfulServer(mode, (_asked, self) => {
      for (let i = 0; i < 40; i++) self.send(reply({ cookieHi: 1, cookieLo: 0 }));
    });
    const disk = await connect({ uri: await wilful.listen(), mode, rnic, depth: 2 });
    await disk.read(new Uint8Array(1), 0n).catch((error: unknown) => expect(error).toMatchObject(TYPED));
    expect(await disk.closed).toMatchObject(TYPED);
    await disk.close();
  });
});

describe.each(['thread', 'worker'] as const)(
  'a client in direct mode, engine %s, meets a server that',
  (engine) => {
    const rnic = engines[engine];

    it('writes a byte more than was asked for', async () => {
      const wilful = new WilfulServer('direct', (asked, self) => {
        self.move('rdma-write', asked, asked.length + 1);
        self.send(reply(asked));
      });
      const disk = await connect({ uri: await wilful.listen(), rnic });
      const { into, isUntouched } = guarded(rnic, 500);
      await endsTyped(disk, disk.read(into, 0n));
      expect(isUntouched()).toBe(true);
    });

    it('reads the memory of a READ, or writes that of a WRITE', async () => {
      for (const opcode of ['rdma-read', 'rdma-write'] as const) {
        const wilful = new WilfulServer('direct', (asked, self) => {
          self.move(opcode, asked, asked.length);
          self.send(reply(asked));
        });
        const disk = await connect({ uri: await wilful.listen(), rnic });
        const { into, isUntouched } = guarded(rnic, 500);
        const work = opcode === 'rdma-read' ? disk.read(into, 0n) : disk.write(into, 0n);
        // The reply to a READ may overtake the answer to the peer's Read, which is refused either way.
        await work.catch((error: unknown) => expect(error).toMatchObject(TYPED));
        expect(await disk.closed).toMatchObject(TYPED);
        expect(isUntouched() && into.every((byte) => byte === 0xa5)).toBe(true);
        await disk.close();
      }
    });

    it('invalidates the memory of a request with its reply, which it may', async () => {
      const wilful = new WilfulServer('direct', (asked, self) => {
        self.move('rdma-write', asked, asked.length);
        self.send(reply(asked), asked.stag);
      });
      const disk = await connect({ uri: await wilful.listen(), rnic, depth: 4 });
      const signal = new AbortController().signal;
      // With a signal the data goes through a copy, which is kept for the next request.
      for (let i = 0; i < 12; i++) {
        const { into, isUntouched } = guarded(rnic, 500);
        await disk.read(into, 0n, ...(i % 3 === 0 ? [signal] : []));
        expect(isUntouched() && into.every((byte) => byte === 0x11)).toBe(true);
      }
      await disk.close();
    });

    it.each([
      ['nothing', Buffer.alloc(0)],
      ['21 bytes', Buffer.alloc(21)],
      [
        'a size of 2^63',
        encodeGrant({ size: 1n << 63n, flags: 1, blocks: { minimum: 1, preferred: 1, maximum: 1 } }),
      ],
      [
        'a maximum of 0',
        encodeGrant({ size: 1n, flags: 1, blocks: { minimum: 1, preferred: 1, maximum: 0 } }),
      ],
    ])('grants %s', async (_what, grant) => {
      const wilful = new WilfulServer('direct', () => undefined);
      await expect(connect({ uri: await wilful.listen(grant), rnic })).rejects.toMatchObject({
        code: 'ERR_PROTOCOL',
      });
    });
  },
);

// ---------------------------------------------------------------------------------------------------- server

/** A client of messages that a test makes itself. */
async function rawClient(
  port: number,
  mode: QpMode,
  depth: number,
): Promise<{
  post: (message: Uint8Array) => void;
  drained: () => Promise<void>;
  ended: Promise<void>;
  abort: () => void;
}> {
  const pd = far.device.allocatePd();
  const cq = far.device.createCq(4096);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 64, maxRecvWr: 1024 });
  const mr = pd.registerMemory(new Uint8Array(262_160), ACCESS.LOCAL_WRITE);
  for (let i = 0; i < 1024; i++) qp.postRecv({ sges: [{ mr }] });
  const privateData = encodeSetup({ version: 1, mode, depth, name: 'disk' });
  const connection = far.cm.connect(qp, { host: '127.0.0.1', port, privateData });
  const out = Array.from({ length: 64 }, createWorkCompletion);
  cq.setHandler(() => {
    while (cq.poll(out, 64) > 0);
    cq.requestNotify();
  });
  cq.requestNotify();
  let end!: () => void;
  const ended = new Promise<void>((resolve) => (end = resolve));
  await new Promise<void>((resolve) =>
    connection.setHandler(({ type }) => {
      if (type === 'established') resolve();
      if (type === 'disconnected') end();
    }),
  );
  return {
    post: (inline) => void qp.postSend({ opcode: 'send', inline }),
    drained: () => qp.drainSend(),
    ended,
    abort: () => connection.abort(),
  };
}

function directRequest(command: number, cookieLo: number, length: number, behind = 16): Uint8Array {
  const bytes = new Uint8Array(28 + behind);
  encodeRequest(viewOf(bytes), 0, { flags: 0, command, cookieHi: 0, cookieLo, offset: 0n, length });
  return bytes;
}

const reserved = directRequest(3, 1, 0);
viewOf(reserved).setUint32(32, 1);
const VIOLATIONS: Record<string, Uint8Array> = {
  'a request without memory': directRequest(0, 1, 8, 0),
  'a request of 43 bytes': directRequest(0, 1, 8, 15),
  'a request of 45 bytes': directRequest(0, 1, 8, 17),
  'a reserved word that is not 0': reserved,
  'bad magic': new Uint8Array(44),
  'no bytes at all': new Uint8Array(0),
};
it.each(Object.entries(VIOLATIONS))(
  '%s in direct mode ends the connection, and the server goes on',
  async (_what, message) => {
    const server = createServer({ exports: { disk: memoryDevice({ size: MIB }) } });
    const { port } = await server.listenRdma({ host: '127.0.0.1', rnic: far });
    const raw = await rawClient(port, 'direct', 4);
    raw.post(message);
    await raw.ended;
    const again = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, rnic: far });
    await again.read(new Uint8Array(8), 0n);
    await again.close();
    await server.close();
  },
);

const fail = (error: unknown) => (): Promise<void> => Promise.reject(error as Error);
const BACKENDS: Record<string, { readonly act: () => Promise<void>; readonly errno: string }> = {
  throws: {
    act: () => {
      throw new Error('no');
    },
    errno: 'EIO',
  },
  'rejects with a number': { act: fail(new NbdError('ENOSPC', 'full')), errno: 'ENOSPC' },
  'rejects as the system does': {
    act: fail(Object.assign(new Error('no'), { code: 'EACCES' })),
    errno: 'EPERM',
  },
  'never answers': { act: () => new Promise<void>(() => undefined), errno: 'EIO' },
};
describe.each(cases)('in $mode mode, engine $engine, a device that', ({ mode, engine }) => {
  it.each(Object.entries(BACKENDS))(
    '%s gives an error number for each command',
    async (_what, { act, errno }) => {
      const rnic = engines[engine];
      const disk: BlockDevice = {
        size: BigInt(MIB),
        blocks: { minimum: 1, preferred: 4096, maximum: MIB },
        read: act,
        write: act,
        flush: act,
        trim: act,
        zero: act,
      };
      const server = createServer({ exports: { disk }, requestTimeout: 50 });
      const { port } = await server.listenRdma({ host: '127.0.0.1', rnic });
      const remote = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, mode, rnic });
      const calls = [
        remote.read(new Uint8Array(5000), 0n),
        remote.write(new Uint8Array(5000), 0n),
        remote.write(new Uint8Array(10), 0n, { fua: true }),
        remote.flush!(),
        remote.trim!(0n, 10),
        remote.zero!(0n, 10, { fast: false, noHole: false }),
      ];
      for (const result of await Promise.allSettled(calls))
        expect(result).toMatchObject({ status: 'rejected', reason: { code: 'ERR_NBD', errno } });
      expect(server.stats().errors).toBe(6);
      await remote.close();
      await server.close();
    },
  );
});

/** Passes on what a client sends, and nothing of what a server answers after a stop. */
async function oneWay(target: number): Promise<{ port: number; stop: () => void; close: () => void }> {
  const stops: (() => void)[] = [];
  const relay = createNetServer((near) => {
    const to = connectNet(target, '127.0.0.1');
    for (const socket of [near, to]) socket.on('error', () => undefined);
    near.pipe(to);
    to.pipe(near);
    near.once('close', () => to.destroy());
    to.once('close', () => near.destroy());
    stops.push(() => void to.unpipe(near).pause());
  });
  await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve));
  return {
    port: (relay.address() as AddressInfo).port,
    stop: () => stops.forEach((stop) => stop()),
    close: () => void relay.close(),
  };
}

it.each(['memory', 'overlay'] as const)(
  'a client that never reads costs bounded memory over queue pairs, %s device',
  async (kind) => {
    const base = memoryDevice({ size: MIB });
    const disk = kind === 'memory' ? base : overlayDevice(base);
    const server = createServer({ exports: { disk } });
    const { port } = await server.listenRdma({ host: '127.0.0.1', rnic: far });
    const relay = await oneWay(port);
    const raw = await rawClient(relay.port, 'message', 16);
    relay.stop();
    const before = process.memoryUsage().rss;
    let state: 'sending' | 'ended' = 'sending';
    void raw.ended.then(() => (state = 'ended'));
    for (let cookie = 1; cookie < 4000 && state === 'sending'; cookie++) {
      raw.post(directRequest(0, cookie, 262_144, 0));
      // A pause for each 16, so that the server has the time to answer them.
      if (cookie % 16 === 0) await Promise.race([raw.drained(), raw.ended]);
      if (cookie % 16 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * MIB);
    const other = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, rnic: far });
    await other.read(new Uint8Array(1000), 0n);
    await other.close();
    raw.abort();
    await raw.ended;
    relay.close();
    await server.close();
  },
);
