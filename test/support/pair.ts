/**
 * Two devices joined by the in-memory network under virtual time: the bench on which the protocol tests
 * stand. Nothing in it sleeps; every run with the same options is the same run.
 */
import { seededRandom } from '../../src/base/random.ts';
import {
  ConnectionManager,
  InlineEngine,
  type CmConnection,
  type CmEvent,
  type ConnectionPolicy,
  type PassiveConnection,
} from '../../src/cm/index.ts';
import type { InlineEngineOptions } from '../../src/engine/inline/inline-engine.ts';
import type { ConnParam } from '../../src/cm/connection.ts';
import type { CmListener, ConnectOptions } from '../../src/cm/index.ts';
import type { Crc32cEngineName } from '../../src/crc32c/engine.ts';
import { streamMaker } from '../../src/engine/wires.ts';
import { MemoryDatagrams, type MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import { MemoryTransport, VirtualTime, type MemoryTransportOptions } from '../../src/simnet/memory.ts';
import { wrapTransport, type PortMiddleware } from '../../src/transport/middleware.ts';
import { tap, type TapSink } from '../../src/transport/tap.ts';
import type { Transport } from '../../src/transport/port.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { TrpTransport } from '../../src/trp/transport.ts';
import { ShmNetwork, type ShmNetworkOptions } from './shm-network.ts';
import {
  ACCESS,
  Device,
  type AsyncEvent,
  type CompletionQueue,
  type DeviceLimits,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairOptions,
  type WorkCompletion,
} from '../../src/verbs/index.ts';

const ALL_ACCESS: number =
  ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC | ACCESS.MW_BIND;

/** What carries the octets: the network in memory with iWARP on it, datagrams, or rings of shared memory. */
type PairWire = 'iwarp' | 'trp' | 'shm';

/** The wire of pairs that name none; a test file that runs other files over another wire changes it. */
let usual: PairWire = 'iwarp';

/** From now on pairs of this test file are connected over this wire unless they name another. */
export function setPairWire(wire: PairWire): void {
  usual = wire;
}

/** The wire of pairs that name none. */
export function pairWire(): PairWire {
  return usual;
}

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

  constructor(
    name: string,
    seed: number,
    time: VirtualTime,
    transport: Transport,
    options: SideOptions,
    wire: PairWire = 'iwarp',
    trp: TrpOptions = {},
  ) {
    this.name = name;
    this.device = new Device({
      name,
      wire,
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
    const make = wire === 'iwarp' ? {} : { make: streamMaker(wire, trp, this.device.resources)! };
    this.cm = new ConnectionManager(
      this.device,
      new InlineEngine(transport, time, this.device, { ...make, ...options.engine }),
    );
  }

  createQp(options: Partial<QueuePairOptions> = {}): QueuePair {
    return this.pd.createQp({
      sendCq: this.sendCq,
      recvCq: this.recvCq,
      maxSendWr: 256,
      maxRecvWr: 256,
      ...options,
    });
  }

  register(
    memory: ArrayBufferView | number,
    access: number = ALL_ACCESS,
    iova: bigint | number = 0,
  ): MemoryRegion {
    const bytes = typeof memory === 'number' ? this.device.allocateMemory(memory) : memory;
    return this.pd.registerMemory(bytes, access, { iova });
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
  readonly engine?: InlineEngineOptions;
}

export interface PairOptions {
  readonly seed?: number;
  /** Default: the one that `setPairWire` has set, iWARP without. */
  readonly wire?: PairWire;
  /** The network of iWARP. */
  readonly network?: MemoryTransportOptions;
  /** The network of iWARP over UDP, and how both ends work. */
  readonly datagrams?: MemoryDatagramOptions;
  readonly trp?: TrpOptions;
  /** The network of shared memory. */
  readonly shm?: ShmNetworkOptions;
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
    const { wire = usual, seed = 1, client = {}, server = {}, trp = {} } = options;
    const transport = this.#transport(wire);
    this.client = new Side('client', seed * 2 + 1, this.time, transport, client, wire, trp);
    this.server = new Side('server', seed * 2 + 2, this.time, transport, server, wire, trp);
  }

  #transport(wire: PairWire): Transport {
    if (wire === 'iwarp') return this.#network();
    if (wire === 'shm') return this.#threads();
    return new TrpTransport(new MemoryDatagrams(this.time, this.#options.datagrams), this.time);
  }

  #network(): Transport {
    const { network, middleware } = this.#options;
    const memory = new MemoryTransport(this.time, { latency: 1, ...network });
    const recorder = tap(this.time, (info) => this.#record(info.role));
    // Only the client's end is tapped: it sees both directions.
    return wrapTransport(memory, ...(middleware?.(this.time) ?? []), recorder);
  }

  #threads(): Transport {
    return new ShmNetwork(this.time, {
      ...this.#options.shm,
      seen: (role, bytes) => (role === 'active' ? this.#out : this.#in).push(bytes.slice()),
    });
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
      {
        host: '10.0.0.2',
        port: 4711,
        ...(this.#options.server?.policy === undefined ? {} : { policy: this.#options.server.policy }),
      },
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
        host: '10.0.0.2',
        port: 4711,
        localAddress: '10.0.0.1',
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

  /** Everything that crossed the wire of iWARP so far, or went into the rings. */
  wire(): Wire {
    return { fromClient: Buffer.concat(this.#out), fromServer: Buffer.concat(this.#in) };
  }
}

/** A connected pair. */
export function connectedPair(options: PairOptions = {}): Promise<Pair> {
  return new Pair(options).connect();
}
