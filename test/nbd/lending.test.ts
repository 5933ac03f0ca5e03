/**
 * Memory of callers that is registered for one request only: when a request is over, the peer cannot reach
 * it, nor what its registration is used for next; and a Send from it never carries other bytes.
 */
import { describe, expect, it } from 'vitest';
import { openRnic, type Rnic } from '../../src/index.ts';
import { connect } from '../../src/nbd/index.ts';
import { QpPort, type QpPortOwner } from '../../src/nbd/qp-port.ts';
import { decodeDirectRequest, encodeGrant, type RemoteMemory } from '../../src/nbd/qp-wire.ts';
import { encodeSimpleReply, viewOf, type RequestHeader } from '../../src/nbd/wire.ts';
import { ACCESS, createWorkCompletion, type Sge } from '../../src/verbs/index.ts';

const MIB = 1 << 20;
const engines = { thread: openRnic({ engine: 'thread' }), worker: openRnic({ engine: 'worker' }) };
/** The server in these tests is always in this thread. */
const serving = openRnic({ engine: 'thread' });

interface Asked {
  readonly request: RequestHeader;
  readonly memory: RemoteMemory;
}

/** A server that decides for itself when it moves data, and says when a message or a Read has come. */
class WilfulServer {
  readonly asked: Asked[] = [];
  readonly messages: Uint8Array[] = [];
  readonly reads: boolean[] = [];
  readonly sink = new Uint8Array(MIB);
  ended = false;
  readonly #pd = serving.device.allocatePd();
  readonly #cq = serving.device.createCq(512);
  readonly #qp = this.#pd.createQp({ sendCq: this.#cq, recvCq: this.#cq, maxSendWr: 64, maxRecvWr: 128 });
  readonly #mr = this.#pd.registerMemory(this.sink, ACCESS.LOCAL_WRITE);
  readonly #inbox = this.#pd.registerMemory(new Uint8Array(MIB), ACCESS.LOCAL_WRITE);

  /** Listens; the result is the port. */
  async listen(): Promise<number> {
    for (let wrId = 0; wrId < 128; wrId++) this.#qp.postRecv({ wrId, sges: [{ mr: this.#inbox }] });
    const listener = await serving.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      request.setHandler(({ type }) => {
        if (type === 'disconnected') this.ended = true;
      });
      const blocks = { minimum: 1, preferred: 4096, maximum: MIB };
      request.accept(this.#qp, { privateData: encodeGrant({ size: BigInt(8 * MIB), flags: 1, blocks }) });
      listener.close();
    });
    this.#cq.setHandler(() => this.#poll());
    this.#cq.requestNotify();
    return listener.address.port;
  }

  #poll(): void {
    const out = [createWorkCompletion()];
    while (this.#cq.poll(out, 1) > 0) {
      const { opcode, status, byteLength } = out[0]!;
      if (opcode === 'rdma-read') this.reads.push(status === 'success');
      if (opcode !== 'receive' || status !== 'success') continue;
      const bytes = this.#inbox.bytes.slice(0, byteLength);
      const asked = decodeDirectRequest(bytes);
      if (asked === null) this.messages.push(bytes);
      else this.asked.push(asked);
    }
    this.#cq.requestNotify();
    if (this.#cq.length > 0) this.#poll();
  }

  async request(index: number): Promise<Asked> {
    await expect.poll(() => this.asked.length, { interval: 2 }).toBeGreaterThan(index);
    return this.asked[index]!;
  }

  fill(byte: number): void {
    this.sink.fill(byte);
  }

  write({ stag, to }: RemoteMemory, length: number): void {
    this.#qp.postSend({ opcode: 'rdma-write', sges: [this.#sge(length)], rkey: stag, remoteAddr: to });
  }

  read({ stag, to }: RemoteMemory, length: number): void {
    this.#qp.postSend({ opcode: 'rdma-read', sges: [this.#sge(length)], rkey: stag, remoteAddr: to });
  }

  reply({ request: { cookieHi, cookieLo } }: Asked): void {
    const inline = new Uint8Array(16);
    encodeSimpleReply(viewOf(inline), 0, 0, cookieHi, cookieLo);
    this.#qp.postSend({ opcode: 'send', inline });
  }

  #sge(length: number): Sge {
    return { mr: this.#mr, length };
  }
}

/** Memory that the device reaches without a copy. */
function memoryOf(rnic: Rnic, length: number, byte: number): Uint8Array {
  const bytes = rnic.device.allocateMemory(length);
  bytes.fill(byte);
  return bytes;
}

const only = (bytes: Uint8Array, ...allowed: readonly number[]): boolean =>
  bytes.every((byte) => allowed.includes(byte));

/** An error of ours, with a code. */
const TYPED = { code: expect.stringMatching(/^ERR_/) as string };

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  const rnic = engines[engine];

  it('a Write after the reply reaches neither the memory nor its successor', async () => {
    const server = new WilfulServer();
    const disk = await connect({ uri: `rdma://127.0.0.1:${await server.listen()}/x`, mode: 'direct', rnic });
    const [first, second] = [memoryOf(rnic, 5000, 0), memoryOf(rnic, 5000, 0x33)];
    const read = disk.read(first, 0n);
    const earlier = await server.request(0);
    server.fill(0x11);
    server.write(earlier.memory, 5000);
    server.reply(earlier);
    await read;
    expect(only(first, 0x11)).toBe(true);
    const next = disk.read(second, 0n);
    const failed = expect(next).rejects.toMatchObject(TYPED);
    const later = await server.request(1);
    expect(later.memory.stag).not.toBe(earlier.memory.stag);
    server.fill(0x22);
    server.write(earlier.memory, 5000);
    await failed;
    expect(only(first, 0x11) && only(second, 0x33)).toBe(true);
    await expect.poll(() => server.ended).toBe(true);
    await disk.close();
  });

  it('a Read under way at the reply brings the bytes of its own request or none', async () => {
    const server = new WilfulServer();
    const disk = await connect({ uri: `rdma://127.0.0.1:${await server.listen()}/x`, mode: 'direct', rnic });
    const [first, second] = [memoryOf(rnic, MIB, 0x22), memoryOf(rnic, MIB, 0x33)];
    const write = disk.write(first, 0n);
    const earlier = await server.request(0);
    for (let i = 0; i < 8; i++) server.read(earlier.memory, MIB);
    server.reply(earlier);
    // Whether the reply or the end of the connection comes first is up to the two.
    await write.catch((error: unknown) => expect(error).toMatchObject(TYPED));
    const next = disk.write(second, 0n).catch(() => undefined);
    await expect.poll(() => server.reads.length, { timeout: 5000 }).toBe(8);
    expect(only(server.sink, 0, 0x22)).toBe(true);
    await disk.close();
    await next;
  });

  it.each(['freed', 'replaced'] as const)('a Send whose memory is %s carries no other bytes', async (how) => {
    const server = new WilfulServer();
    const portNumber = await server.listen();
    let end!: () => void;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const owner: QpPortOwner = { received: () => undefined, ended: () => end() };
    const port = new QpPort(rnic, { receives: 1, sends: 64 }, owner, ACCESS.LOCAL_WRITE);
    const connection = rnic.cm.connect(port.qp, { host: '127.0.0.1', port: portNumber });
    await new Promise<void>((resolve) =>
      port.attach(connection, ({ type }) => type === 'established' && resolve()),
    );
    // So much in front of it that its turn comes later.
    const filler = port.register(memoryOf(rnic, MIB, 0x44), 0)!;
    for (let i = 0; i < 24; i++) port.send([{ mr: filler }], () => undefined);
    const lent = port.lend(memoryOf(rnic, 1000, 0x22), 0)!;
    const outcome = new Promise<boolean>((resolve) => port.send([{ mr: lent, length: 1000 }], resolve));
    port.takeBack(lent);
    if (how === 'replaced') port.lend(memoryOf(rnic, 1000, 0x33), 0);
    const succeeded = await outcome;
    const short = server.messages.filter(({ length }) => length === 1000);
    if (!succeeded) expect(short).toEqual([]);
    expect(short.every((bytes) => only(bytes, 0x22))).toBe(true);
    port.disconnect();
    if (!succeeded) await ended;
    else port.abort(new Error('the test is over'));
  });
});
