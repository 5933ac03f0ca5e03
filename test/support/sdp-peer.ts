/** An SDP peer made of our verbs and the naive codec, which sends any message, in either role. */
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import type { CmConnection } from '../../src/cm/index.ts';
import { ACCESS } from '../../src/ddp/stag-table.ts';
import type { CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair } from '../../src/verbs/index.ts';
import { decodeNaive, encodeNaive } from './naive/sdp.ts';

export type Message = ReturnType<typeof decodeNaive>;

/** Announces copy-on-write behind a Hello or HelloAck. */
export const AZ01: Buffer = Buffer.from('415a303100000001', 'hex');

export const HELLO: Message = {
  mid: 0n,
  bufs: 60n,
  major: 2n,
  minor: 2n,
  ipVersion: 4n,
  capabilities: 2n,
  maxAdverts: 16n,
  extendedAdverts: 16n,
  desiredSize: 1024n,
  localSize: 1024n,
};
export const HELLO_ACK: Message = {
  mid: 1n,
  bufs: 60n,
  major: 2n,
  minor: 2n,
  ipVersion: 4n,
  maxAdverts: 16n,
  localSize: 1024n,
};

/** Keeps the messages that arrive; `close` when it is done. */
export class ScriptedPeer {
  readonly seen: { readonly message: Message; readonly bytes: Buffer }[] = [];
  ended: Promise<{ readonly terminate: unknown }>;
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly memory: MemoryRegion;
  readonly #inbox: MemoryRegion;
  /** What the two sides have agreed on as RTR. */
  rtr: string | null = null;
  #mseq = 0n;
  readonly #completed = new Map<number, (status: unknown) => void>();
  #nextId = 2000;
  #ack = 0n;
  #woken: (() => void)[] = [];
  readonly #wc = [{} as never];
  /** Steps of the cleaning up, last first. */
  readonly #cleanup: (() => unknown)[] = [];

  constructor(rnic: Rnic = openRnic({ engine: 'thread' })) {
    this.rnic = rnic;
    this.pd = rnic.device.allocatePd();
    this.cq = rnic.device.createCq(512);
    this.qp = this.pd.createQp({ sendCq: this.cq, recvCq: this.cq, maxSendWr: 256, maxRecvWr: 128 });
    this.memory = this.pd.registerMemory(
      new Uint8Array(1 << 20).map((_, at) => at),
      ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC,
    );
    this.#inbox = this.pd.registerMemory(new Uint8Array(64 * 1024), ACCESS.LOCAL_WRITE);
    this.ended = new Promise((resolve) => (this.#resolveEnded = resolve));
    for (let slot = 0; slot < 64; slot++) this.#receive(slot);
    this.cq.setHandler(() => this.#poll());
    this.cq.requestNotify();
  }
  #resolveEnded!: (how: { readonly terminate: unknown }) => void;

  #receive(slot: number): void {
    this.qp.postRecv({ wrId: slot, sges: [{ mr: this.#inbox, offset: slot * 1024, length: 1024 }] });
  }

  #poll(): void {
    do {
      while (this.cq.poll(this.#wc, 1) > 0) {
        const { wrId, opcode, status, byteLength } = this.#wc[0]! as Record<string, never>;
        if (opcode !== 'receive') this.#completed.get(Number(wrId))?.(status);
        if (status !== 'success' || opcode !== 'receive') continue;
        const slot = Number(wrId);
        const bytes = Buffer.from(this.#inbox.bytes.slice(slot * 1024, slot * 1024 + Number(byteLength)));
        const message = decodeNaive(bytes);
        this.#ack = message['mseq']!;
        this.seen.push({ message, bytes });
        if (this.qp.state === 'rts') this.#receive(slot);
        for (const wake of this.#woken.splice(0)) wake();
      }
      this.cq.requestNotify();
    } while (this.cq.length > 0);
  }

  /** Connect to a socket of ours. `behind` follows the Hello. */
  async connect(port: number, hello: Message = HELLO, behind: Uint8Array = Buffer.alloc(0)): Promise<void> {
    const connection = this.rnic.cm.connect(this.qp, {
      host: '127.0.0.1',
      port,
      privateData: Buffer.concat([encodeNaive(hello), behind]),
      responderResources: 16,
      initiatorDepth: 16,
    });
    await this.#established(connection);
  }

  /** Listen for one socket of ours; returns the port, and what follows when it is there. */
  async listen(
    behind: Uint8Array = Buffer.alloc(0),
    ack: Message = HELLO_ACK,
  ): Promise<{ port: number; connected: Promise<void> }> {
    let taken!: (connected: Promise<void>) => void;
    const connected = new Promise<void>((resolve) => (taken = resolve));
    const listener = await this.rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      taken(this.#established(request));
      const privateData = Buffer.concat([encodeNaive(ack), behind]);
      request.accept(this.qp, { privateData, responderResources: 16, initiatorDepth: 16 });
    });
    this.#cleanup.push(() => listener.close());
    return { port: listener.address.port, connected };
  }

  #established(connection: CmConnection): Promise<void> {
    this.#cleanup.push(() => connection.abort());
    return new Promise<void>((resolve, reject) =>
      connection.setHandler((event) => {
        if (event.type === 'established') {
          this.rtr = event.negotiated.rtr;
          resolve();
        } else if (event.type === 'rejected') reject(new Error('rejected'));
        else if (event.type === 'disconnected') this.#resolveEnded(event);
      }),
    );
  }

  async close(): Promise<void> {
    for (const each of this.#cleanup.splice(0).reverse()) await each();
  }

  /** A Write of the first bytes of our memory to the start of what the socket advertises. */
  write({ stag, to }: Message, octets: number): void {
    const sges = [{ mr: this.memory, offset: 0, length: octets }];
    this.qp.postSend({ opcode: 'rdma-write', wrId: 1000, sges, rkey: Number(stag), remoteAddr: to! });
  }

  /** A Read of the peer's memory to an offset of ours. */
  async read({ stag, to }: Message, octets: number, offset = 0): Promise<Buffer> {
    const wrId = this.#nextId++;
    const sges = [{ mr: this.memory, offset, length: octets }];
    const done = new Promise((resolve) => this.#completed.set(wrId, resolve));
    this.qp.postSend({ opcode: 'rdma-read', wrId, sges, rkey: Number(stag), remoteAddr: to! });
    if ((await done) !== 'success') throw new Error('the Read has failed');
    return Buffer.from(this.memory.bytes.slice(offset, offset + octets));
  }

  /** A compare-and-swap of a lock word; returns the old value. */
  async swap({ stag, to }: Message, slot: number, compare: bigint, swap: bigint): Promise<bigint> {
    const wrId = this.#nextId++;
    const word = new BigUint64Array(1);
    const mr = this.pd.registerMemory(word, ACCESS.LOCAL_WRITE);
    const done = new Promise((resolve) => this.#completed.set(wrId, resolve));
    const remote = { rkey: Number(stag), remoteAddr: to! + BigInt(8 * slot) };
    this.qp.postSend({ opcode: 'atomic-cmp-swap', wrId, sges: [{ mr }], ...remote, compare, swap });
    if ((await done) !== 'success') throw new Error('the compare-and-swap has failed');
    return word[0]!;
  }

  /** Number of our socket's last message. */
  get acked(): bigint {
    return this.#ack;
  }

  /** Number of the peer's last message. */
  get sent(): bigint {
    return this.#mseq;
  }

  /** Payload of the Data that has come, behind `from` messages. */
  dataBehind(from = 0): Buffer {
    const data = this.seen.slice(from).filter(({ message }) => message['mid'] === 0xffn);
    return Buffer.concat(data.map(({ bytes }) => bytes.subarray(16)));
  }

  /** Send a message; numbers that are not given are right. */
  send(message: Message, payload: Uint8Array = Buffer.alloc(0), invalidate?: bigint): void {
    this.#mseq++;
    const bytes = encodeNaive({ bufs: 60n, mseq: this.#mseq, mseqAck: this.#ack, ...message }, payload);
    this.raw(bytes, invalidate);
  }

  raw(bytes: Uint8Array, invalidate?: bigint): void {
    if (this.qp.state !== 'rts') return;
    const mr = this.pd.registerMemory(new Uint8Array(bytes), 0);
    const stag = invalidate === undefined ? undefined : Number(invalidate);
    this.qp.postSend({ opcode: 'send', wrId: 1000, sges: [{ mr }], invalidate: stag });
  }

  /** The first message of this kind, or the first behind `from` others. */
  async wait(mid: number, from = 0): Promise<Message> {
    for (;;) {
      for (; from < this.seen.length; from++)
        if (this.seen[from]!.message['mid'] === BigInt(mid)) return this.seen[from]!.message;
      await new Promise<void>((resolve) => this.#woken.push(resolve));
    }
  }
}
