/** Queue pairs for the rows of the papers: Sends there and back, windows of Sends, Writes. */
import type { EngineKind } from '../../src/api/environment.ts';
import type { CmConnection } from '../../src/cm/connection.ts';
import type { ConnectionPolicy } from '../../src/mpa/policy.ts';
import { ACCESS, type MemoryRegion, type QueuePair, type WorkCompletion } from '../../src/verbs/index.ts';
import { rnicOf } from './stream-ends.ts';

const HOST = '127.0.0.1';
/** Sends that the window test has under way. */
export const WINDOW = 64;
const MEMORY = 1 << 20;
const RIGHTS = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE;

/** How both ends work. */
export interface PairSpec {
  readonly size: number;
  readonly engine?: EngineKind;
  readonly crc?: boolean;
  readonly markers?: boolean;
  /** Writes go into this number of places in turn, as a stream into those its reader posts. Default 1. */
  readonly places?: number;
  /** TCP payload that an FPDU has to fit; the stack's choice without it. */
  readonly fpdu?: number;
}

/** A Send back for each Send; or a short one for each window; or one for the Send behind Writes. */
export type PairRole = 'send-echo' | 'window' | 'writes';

const policy = ({ crc = false, markers = false, fpdu }: PairSpec): Partial<ConnectionPolicy> => ({
  crc: crc ? 'preferred' : 'off',
  markers,
  ...(fpdu !== undefined && { emss: fpdu }),
});

/** A queue pair with memory. Receives are posted again as they are used. */
class End {
  readonly qp: QueuePair;
  readonly mr: MemoryRegion;
  readonly #receiveOctets: number;
  readonly #close: () => void;

  constructor(spec: PairSpec, each: (wc: WorkCompletion) => void, receives = 2 * WINDOW + 2) {
    const { device } = rnicOf(spec.engine);
    const pd = device.allocatePd();
    const cq = device.createCq(1024);
    this.qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: receives, maxSendWr: 256 });
    this.mr = pd.registerMemory(device.allocateMemory(MEMORY * (spec.places ?? 1)), RIGHTS);
    this.#receiveOctets = Math.max(spec.size, 64);
    for (let i = 0; i < receives; i++) this.#receive();
    const out: WorkCompletion[] = [];
    cq.setHandler(() => {
      do {
        for (let n = cq.poll(out, 64); n > 0; n = cq.poll(out, 64))
          for (let i = 0; i < n; i++) {
            if (out[i]!.status !== 'success') return;
            if (out[i]!.opcode === 'receive') this.#receive();
            each(out[i]!);
          }
        cq.requestNotify();
      } while (cq.length > 0);
    });
    cq.requestNotify();
    this.#close = () => {
      this.qp.destroy();
      cq.destroy();
      this.mr.deregister();
      pd.deallocate();
    };
  }

  #receive(): void {
    this.qp.postRecv({ sges: [{ mr: this.mr, length: this.#receiveOctets }] });
  }

  send(length: number, signaled = false): void {
    this.qp.postSend({ opcode: 'send', sges: [{ mr: this.mr, length }], signaled });
  }

  close(): void {
    this.#close();
  }
}

/** Listens; returns the port. */
export async function servePairs(role: PairRole, spec: PairSpec): Promise<number> {
  const listener = await rnicOf(spec.engine).cm.listen(
    { host: HOST, port: 0, policy: policy(spec) },
    (request) => {
      let count = 0;
      const end = new End(spec, ({ opcode }) => {
        if (opcode !== 'receive') return;
        if (role === 'send-echo') end.send(spec.size);
        else if (role === 'writes' || ++count % WINDOW === 0) end.send(1);
      });
      const place = Buffer.alloc(12);
      place.writeUInt32BE(end.mr.rkey, 0);
      place.writeBigUInt64BE(end.mr.addr, 4);
      request.setHandler(({ type }) => type === 'disconnected' && end.close());
      request.accept(end.qp, { privateData: place });
    },
  );
  return listener.address.port;
}

/** The client's end. */
export class PairClient {
  readonly spec: PairSpec;
  readonly #end: End;
  #connection: CmConnection | null = null;
  #place: { rkey: number; addr: bigint } = { rkey: 0, addr: 0n };
  #each: (wc: WorkCompletion) => void = () => undefined;

  private constructor(spec: PairSpec) {
    this.spec = spec;
    this.#end = new End(spec, (wc) => this.#each(wc));
  }

  static async connect(spec: PairSpec, port: number): Promise<PairClient> {
    const client = new PairClient(spec);
    const { cm } = rnicOf(spec.engine);
    const connection = cm.connect(client.#end.qp, { host: HOST, port, policy: policy(spec) });
    client.#connection = connection;
    await new Promise<void>((resolve, reject) =>
      connection.setHandler((event) => {
        if (event.type === 'established') {
          const data = Buffer.from(event.parameters.privateData);
          client.#place = { rkey: data.readUInt32BE(0), addr: data.readBigUInt64BE(4) };
          resolve();
        } else if (event.type !== 'disconnected') reject(new Error(event.type));
      }),
    );
    return client;
  }

  /** Calls `ask` again for each receive until time is over; returns microseconds a time. */
  async #trips(ms: number, ask: () => void): Promise<number> {
    const began = performance.now();
    let trips = 0;
    await new Promise<void>((resolve) => {
      this.#each = ({ opcode }) => {
        if (opcode !== 'receive') return;
        trips++;
        if (performance.now() - began < ms) ask();
        else resolve();
      };
      ask();
    });
    return ((performance.now() - began) * 1000) / trips;
  }

  pingPong(ms: number): Promise<number> {
    return this.#trips(ms, () => this.#end.send(this.spec.size));
  }

  /** MB/s of windows of Sends, the next one when the answer has come. */
  async window(ms: number): Promise<number> {
    const us = await this.#trips(ms, () => {
      for (let i = 0; i < WINDOW; i++) this.#end.send(this.spec.size);
    });
    return (WINDOW * this.spec.size) / us;
  }

  /** Milliseconds of `count` Writes, 16 under way, until the peer has answered the Send behind them. */
  async writes(count: number): Promise<number> {
    const { qp, mr } = this.#end;
    const { rkey, addr } = this.#place;
    const { size, places = 1 } = this.spec;
    const sges = [{ mr, length: size }];
    let posted = 0;
    const began = performance.now();
    await new Promise<void>((resolve) => {
      const post = (): void => {
        const remoteAddr = addr + BigInt((posted % places) * size);
        if (posted < count) qp.postSend({ opcode: 'rdma-write', sges, rkey, remoteAddr });
        else if (posted === count) this.#end.send(1);
        posted++;
      };
      this.#each = ({ opcode }) => (opcode === 'receive' ? resolve() : post());
      for (let i = 0; i < 16; i++) post();
    });
    return performance.now() - began;
  }

  close(): void {
    this.#connection?.disconnect();
    this.#connection = null;
  }
}
