/**
 * Two devices joined by the in-memory network under virtual time: the bench on which the protocol tests stand. Nothing in it sleeps; every
 * run with the same options is the same run.
 */
import { seededRandom } from '../../src/base/random.ts';
import { ConnectionManager, type CmConnection, type CmEvent, type ConnectionPolicy, type PassiveConnection } from '../../src/cm/index.ts';
import type { ConnParam } from '../../src/cm/connection.ts';
import type { CmListener, ConnectOptions } from '../../src/cm/manager.ts';
import type { Crc32cEngineName } from '../../src/crc32c/engine.ts';
import { MemoryTransport, VirtualTime, type MemoryTransportOptions } from '../../src/transport/memory.ts';
import { wrapTransport, type PortMiddleware } from '../../src/transport/middleware.ts';
import { tap, type TapSink } from '../../src/transport/tap.ts';
import type { Transport } from '../../src/transport/port.ts';
import {
  ACCESS, Device, type AsyncEvent, type CompletionQueue, type DeviceLimits, type MemoryRegion, type ProtectionDomain, type QueuePair,
  type QueuePairOptions, type WorkCompletion,
} from '../../src/verbs/index.ts';

const ALL_ACCESS: number = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC | ACCESS.MW_BIND;

/** One side: a device with everything on it, and a record of what happened. */
export class Side {
  readonly name: string;
  readonly device: Device;
  readonly pd: ProtectionDomain;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly cm: ConnectionManager;
  qp: QueuePair;
  connection: CmConnection | null = null;
  readonly events: CmEvent[] = [];
  readonly asyncEvents: AsyncEvent[] = [];

  constructor(name: string, seed: number, time: VirtualTime, transport: Transport, options: SideOptions) {
    this.name = name;
    this.device = new Device({
      name,
      random: seededRandom(seed),
      defer: (task) => time.defer(task),
      ...(options.crc32c === undefined ? {} : { crc32c: options.crc32c }),
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    });
    this.device.setAsyncEventHandler((event) => this.asyncEvents.push(event));
    this.pd = this.device.allocatePd();
    this.sendCq = this.device.createCq(options.cqSize ?? 4096);
    this.recvCq = this.device.createCq(options.cqSize ?? 4096);
    this.qp = this.createQp(options.qp);
    this.cm = new ConnectionManager(this.device, transport, time);
  }

  createQp(options: Partial<QueuePairOptions> = {}): QueuePair {
    return this.pd.createQp({ sendCq: this.sendCq, recvCq: this.recvCq, maxSendWr: 256, maxRecvWr: 256, ...options });
  }

  register(memory: ArrayBufferView | number, access: number = ALL_ACCESS, iova: bigint | number = 0): MemoryRegion {
    return this.pd.registerMemory(typeof memory === 'number' ? new Uint8Array(memory) : memory, access, { iova });
  }

  /** Every send completion since the last call. */
  sent(): WorkCompletion[] {
    return drain(this.sendCq);
  }

  /** Every receive completion since the last call. */
  received(): WorkCompletion[] {
    return drain(this.recvCq);
  }

  watch(connection: CmConnection): void {
    this.connection = connection;
    connection.setHandler((event) => this.events.push(event));
  }

  /** The last event of a type. */
  event<T extends CmEvent['type']>(type: T): Extract<CmEvent, { type: T }> | undefined {
    return this.events.findLast((event): event is Extract<CmEvent, { type: T }> => event.type === type);
  }
}

function drain(cq: CompletionQueue): WorkCompletion[] {
  const all: WorkCompletion[] = [];
  while (cq.length > 0) {
    const out: WorkCompletion[] = [];
    all.push(...out.slice(0, cq.poll(out, cq.length)));
  }
  return all;
}

export interface SideOptions {
  readonly policy?: Partial<ConnectionPolicy>;
  readonly param?: ConnParam;
  readonly qp?: Partial<QueuePairOptions>;
  readonly cqSize?: number;
  readonly crc32c?: Crc32cEngineName;
  readonly limits?: Partial<DeviceLimits>;
}

export interface PairOptions {
  readonly seed?: number;
  readonly network?: MemoryTransportOptions;
  readonly client?: SideOptions;
  readonly server?: SideOptions;
  readonly middleware?: (time: VirtualTime) => readonly PortMiddleware[];
  /** What the server does with a request; accepting onto its queue pair is the default. */
  readonly onRequest?: (connection: PassiveConnection, pair: Pair) => void;
  readonly connect?: Partial<ConnectOptions>;
}

/** What each side put on the wire. */
interface Wire {
  readonly fromClient: Uint8Array;
  readonly fromServer: Uint8Array;
}

export class Pair {
  readonly time: VirtualTime = new VirtualTime();
  readonly client: Side;
  readonly server: Side;
  readonly #options: PairOptions;
  readonly #out: Uint8Array[] = [];
  readonly #in: Uint8Array[] = [];
  listener: CmListener | null = null;

  constructor(options: PairOptions = {}) {
    this.#options = options;
    const network = new MemoryTransport(this.time, { latency: 1, ...options.network });
    const seed = options.seed ?? 1;
    const recorder = tap(this.time, (info) => this.#record(info.role));
    // Only the client's end is tapped: it sees both directions.
    const transport = wrapTransport(network, ...(options.middleware?.(this.time) ?? []), recorder);
    this.client = new Side('client', seed * 2 + 1, this.time, transport, options.client ?? {});
    this.server = new Side('server', seed * 2 + 2, this.time, transport, options.server ?? {});
  }

  #record(role: 'active' | 'passive'): TapSink {
    const data: TapSink['data'] = (direction, bytes, start, end) => {
      if (role === 'active') (direction === 'out' ? this.#out : this.#in).push(bytes.slice(start, end));
    };
    return { open: () => undefined, data, end: () => undefined, close: () => undefined };
  }

  /** Listen, connect, and run until quiet. */
  async connect(): Promise<this> {
    await this.listen();
    this.connectClient();
    this.time.run();
    return this;
  }

  async listen(): Promise<void> {
    const { server } = this;
    const listening = server.cm.listen(
      { host: '10.0.0.2', port: 4711, ...(this.#options.server?.policy === undefined ? {} : { policy: this.#options.server.policy }) },
      (connection) => {
        server.watch(connection);
        if (this.#options.onRequest !== undefined) this.#options.onRequest(connection, this);
        else connection.accept(server.qp, this.#options.server?.param ?? {});
      },
    );
    this.time.run();
    this.listener = await listening;
  }

  connectClient(): void {
    const { client } = this;
    client.watch(
      client.cm.connect(client.qp, {
        host: '10.0.0.2', port: 4711, localAddress: '10.0.0.1',
        ...(this.#options.client?.policy === undefined ? {} : { policy: this.#options.client.policy }),
        ...this.#options.client?.param,
        ...this.#options.connect,
      }),
    );
  }

  /** Run until nothing is left to happen, time-outs included. */
  run(): this {
    this.time.run();
    return this;
  }

  /** Run for this many milliseconds of virtual time. */
  advance(ms: number): this {
    this.time.advance(ms);
    return this;
  }

  /** Everything that crossed the wire so far. */
  wire(): Wire {
    return { fromClient: Buffer.concat(this.#out), fromServer: Buffer.concat(this.#in) };
  }
}

/** A connected pair. */
export function connectedPair(options: PairOptions = {}): Promise<Pair> {
  return new Pair(options).connect();
}
