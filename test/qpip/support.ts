/** A queue pair over plain TCP opposite a socket of Node, and helpers to post and poll. */
import { connect as connectNet, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import type { CmConnection } from '../../src/cm/connection.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import type { Framing } from '../../src/qpip/framing.ts';
import {
  ACCESS,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairOptions,
  type WorkCompletion,
} from '../../src/verbs/index.ts';

const SIZE = 1 << 20;

/** One queue pair with memory: receives lie in `inbox`, Sends in `outbox`. */
export class QpEnd {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly inbox: MemoryRegion;
  readonly outbox: MemoryRegion;
  readonly events: CmEvent[] = [];
  connection: CmConnection | null = null;
  readonly #waiting: (() => void)[] = [];

  constructor(rnic: Rnic, options: Partial<QueuePairOptions> = {}) {
    this.rnic = rnic;
    this.pd = rnic.device.allocatePd();
    this.cq = rnic.device.createCq(4096);
    this.qp = this.pd.createQp({
      sendCq: this.cq,
      recvCq: this.cq,
      maxSendWr: 1024,
      maxRecvWr: 1024,
      ...options,
    });
    this.inbox = this.pd.registerMemory(rnic.device.allocateMemory(SIZE), ACCESS.LOCAL_WRITE);
    this.outbox = this.pd.registerMemory(rnic.device.allocateMemory(SIZE), 0);
  }

  static open(engine: EngineKind, options: Partial<QueuePairOptions> = {}): QpEnd {
    return new QpEnd(openRnic({ wire: 'qpip', engine }), options);
  }

  watch(connection: CmConnection): this {
    this.connection = connection;
    connection.setHandler((event) => {
      this.events.push(event);
      for (const wake of this.#waiting.splice(0)) wake();
    });
    return this;
  }

  /** The first event of a type, when it has come. */
  async event<T extends CmEvent['type']>(type: T): Promise<Extract<CmEvent, { type: T }>> {
    for (;;) {
      const event = this.events.find((one): one is Extract<CmEvent, { type: T }> => one.type === type);
      if (event !== undefined) return event;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  connect(port: number, framing: Framing = 'none', host: string = '127.0.0.1'): this {
    return this.watch(this.rnic.cm.connect(this.qp, { host, port, framing }));
  }

  receive(offset: number, length: number, wrId: number = offset): void {
    this.qp.postRecv({ wrId, sges: [{ mr: this.inbox, offset, length }] });
  }

  send(data: string | Uint8Array, wrId: number = 0): void {
    this.qp.postSend({ wrId, opcode: 'send', inline: Buffer.from(data as string) });
  }

  /** The next completion. */
  async completion(): Promise<WorkCompletion> {
    for await (const wc of this.cq) return wc;
    throw new Error('the completion queue has ended');
  }

  /** The next `count` completions of receives, with what they brought. */
  async received(count: number): Promise<string[]> {
    const texts: string[] = [];
    while (texts.length < count) {
      const wc = await this.completion();
      if (wc.opcode !== 'receive') continue;
      texts.push(wc.status === 'success' ? this.text(Number(wc.wrId), wc.byteLength) : wc.status);
    }
    return texts;
  }

  text(offset: number, length: number): string {
    return Buffer.from(this.inbox.bytes.subarray(offset, offset + length)).toString('latin1');
  }

  close(): void {
    this.qp.destroy();
    this.cq.destroy();
    this.inbox.deregister();
    this.outbox.deregister();
    this.pd.deallocate();
    this.rnic.device.close();
  }
}

/** A server of Node and the sockets that have come to it. */
export class PlainServer {
  readonly server: Server;
  readonly sockets: Socket[] = [];
  readonly #waiting: ((socket: Socket) => void)[] = [];

  constructor() {
    this.server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined);
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.sockets.push(socket);
      else waiting(socket);
    });
  }

  async listen(host = '127.0.0.1'): Promise<number> {
    this.server.listen(0, host);
    await once(this.server, 'listening');
    return (this.server.address() as AddressInfo).port;
  }

  next(): Promise<Socket> {
    const socket = this.sockets.shift();
    if (socket !== undefined) return Promise.resolve(socket);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  close(): void {
    this.server.close();
  }
}

/** A connected socket of Node. */
export async function dial(port: number, host = '127.0.0.1'): Promise<Socket> {
  const socket = connectNet({ port, host, allowHalfOpen: true, noDelay: true });
  await once(socket, 'connect');
  return socket;
}

/** The first `octets` octets that come on a socket. */
export async function read(socket: Socket, octets: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let have = 0;
  while (have < octets) {
    const part = socket.read(Math.min(socket.readableLength, octets - have) || undefined) as Buffer | null;
    if (part === null) {
      if (socket.readableEnded) throw new Error(`the socket ended after ${have} octets`);
      await once(socket, 'readable');
      continue;
    }
    parts.push(part);
    have += part.length;
  }
  return Buffer.concat(parts);
}

/** Waits until a condition holds; fails the test after five seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const end = performance.now() + 5_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error('the condition did not come true');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
