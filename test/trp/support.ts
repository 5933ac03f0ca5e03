/** Two devices over UDP in memory, under virtual time; and a network whose datagrams a test may take out. */
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import type { CmConnection } from '../../src/cm/connection.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import type { PassiveConnection } from '../../src/cm/listener.ts';
import { MemoryDatagrams, type MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import type {
  DatagramBinding,
  DatagramHandler,
  DatagramNetwork,
  DatagramPort,
  DatagramTarget,
} from '../../src/transport/datagram.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import type { TrpCounters, TrpStream } from '../../src/trp/stream.ts';
import { TRP_OPCODE } from '../../src/trp/wire.ts';
import {
  ACCESS,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairOptions,
  type WorkCompletion,
} from '../../src/verbs/index.ts';

const ALL_RIGHTS: number =
  ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_ATOMIC;

/** A datagram on its way. */
interface Passing {
  readonly bytes: Uint8Array;
  readonly opcode: number;
  /** How many of this opcode and sending port have passed before. */
  readonly nth: number;
  readonly fromPort: number;
  readonly to: DatagramTarget;
}

/** A network that asks before each datagram whether it may pass. */
class WatchedNetwork implements DatagramNetwork {
  readonly #inner: DatagramNetwork;
  readonly passed: Passing[] = [];
  /** False: the datagram is lost. */
  mayPass: (datagram: Passing) => boolean = () => true;
  readonly #counts = new Map<string, number>();

  constructor(inner: DatagramNetwork) {
    this.#inner = inner;
  }

  bind(
    binding: DatagramBinding,
    handler: DatagramHandler,
    ready: (port: DatagramPort | undefined, error?: Error) => void,
  ): void {
    this.#inner.bind(binding, handler, (port, error) => {
      ready(port === undefined ? undefined : this.#watched(port), error);
    });
  }

  #watched(port: DatagramPort): DatagramPort {
    return {
      address: port.address,
      close: () => port.close(),
      setRef: (on) => port.setRef(on),
      send: (chunks, count, to, done) => {
        const bytes = new Uint8Array(Buffer.concat(chunks.slice(0, count)));
        const opcode = (bytes[8]! << 8) | bytes[9]!;
        const key = `${opcode} ${port.address.port}`;
        const nth = this.#counts.get(key) ?? 0;
        this.#counts.set(key, nth + 1);
        const datagram = { bytes, opcode, nth, fromPort: port.address.port, to };
        this.passed.push(datagram);
        if (this.mayPass(datagram)) port.send(chunks, count, to, done);
        else done(null);
      },
    };
  }

  count(opcode: number): number {
    return this.passed.filter((one) => one.opcode === opcode).length;
  }
}

const SIZE = 1 << 18;

/** One side. */
export class End {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly memory: MemoryRegion;
  readonly events: CmEvent[] = [];
  readonly completions: WorkCompletion[] = [];
  connection: CmConnection | null = null;

  constructor(rnic: Rnic, options: Partial<QueuePairOptions> = {}) {
    this.rnic = rnic;
    this.pd = rnic.device.allocatePd();
    this.cq = rnic.device.createCq(8192);
    this.qp = this.pd.createQp({
      sendCq: this.cq,
      recvCq: this.cq,
      maxSendWr: 1024,
      maxRecvWr: 1024,
      ...options,
    });
    this.memory = this.pd.registerMemory(rnic.device.allocateMemory(SIZE), ALL_RIGHTS);
  }

  watch(connection: CmConnection): void {
    this.connection = connection;
    connection.setHandler((event) => this.events.push(event));
  }

  /** All completions so far. */
  poll(): WorkCompletion[] {
    for (;;) {
      const some: WorkCompletion[] = [];
      if (this.cq.poll(some, 256) === 0) return this.completions;
      this.completions.push(...some);
    }
  }

  /** `type` of each event. */
  get eventTypes(): string[] {
    return this.events.map(({ type }) => type);
  }

  /** The stream below, for its counters. */
  get trp(): TrpCounters {
    return streamOf(this.connection!).trp;
  }
}

/** The stream of a connection in this thread. */
function streamOf(connection: CmConnection): TrpStream {
  const { link } = connection as unknown as { link: { stream: TrpStream } };
  return link.stream;
}

/** Options of a world. */
interface WorldOptions {
  readonly network?: MemoryDatagramOptions;
  readonly client?: TrpOptions;
  readonly server?: TrpOptions;
  readonly qp?: Partial<QueuePairOptions>;
  readonly host?: string;
}

/** Two ends and the network between them. */
export class World {
  readonly time: VirtualTime = new VirtualTime();
  readonly memory: MemoryDatagrams;
  readonly network: WatchedNetwork;
  readonly client: End;
  readonly server: End;
  readonly host: string;
  readonly requests: PassiveConnection[] = [];
  port = 0;

  constructor({ network, client = {}, server = {}, qp = {}, host = '127.0.0.1' }: WorldOptions = {}) {
    this.memory = new MemoryDatagrams(this.time, network);
    this.network = new WatchedNetwork(this.memory);
    const open = (trp: TrpOptions): Rnic =>
      openRnic({ wire: 'trp', trp, datagrams: this.network, scheduler: this.time });
    this.client = new End(open(client), qp);
    this.server = new End(open(server), qp);
    this.host = host;
  }

  /** Listen; `answer` decides about each request, by default it is accepted with the server's queue pair. */
  listen(answer: (request: PassiveConnection) => void = (request) => request.accept(this.server.qp)): this {
    void this.server.rnic.cm
      .listen({ port: 7000, host: this.host }, (request) => {
        this.requests.push(request);
        this.server.watch(request);
        answer(request);
      })
      .then((listener) => (this.port = listener.address.port));
    this.time.advance(0);
    return this;
  }

  /** Connect and run until that has its result. */
  connect(privateData?: Uint8Array): this {
    this.client.watch(
      this.client.rnic.cm.connect(this.client.qp, {
        host: this.host,
        port: 7000,
        ...(privateData !== undefined && { privateData }),
      }),
    );
    return this.run(
      20_000,
      () => this.client.events.length > 0 && this.server.eventTypes.includes('established'),
    );
  }

  /** A connected world. */
  static connected(options: WorldOptions = {}): World {
    const world = new World(options).listen().connect();
    if (!world.client.eventTypes.includes('established'))
      throw new Error(`not connected: ${world.client.eventTypes.join()}`);
    return world;
  }

  /** Let time go on until `done`, or for `ms` at most. */
  run(ms = 60_000, done: () => boolean = () => false): this {
    const end = this.time.now() + ms;
    while (!done() && (this.time.next ?? Infinity) <= end) this.time.step();
    this.client.poll();
    this.server.poll();
    return this;
  }
}

export const DATA: number = TRP_OPCODE.DATA;
export const REQUEST: number = TRP_OPCODE.REQUEST;
export const ACCEPT: number = TRP_OPCODE.ACCEPT;
export const REJECT: number = TRP_OPCODE.REJECT;
export const FIN: number = TRP_OPCODE.FIN;
