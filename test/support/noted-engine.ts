/**
 * An engine that drives nothing: it keeps the requests of a connection manager and notes the calls on its
 * links, and a test plays the streams. So the manager is tested by the interface of `engine/engine.ts` alone,
 * in states that a real engine passes in an instant.
 */
import { seededRandom } from '../../src/base/random.ts';
import type { WireName } from '../../src/base/wires.ts';
import {
  ConnectionManager,
  type ActiveConnection,
  type CmConnection,
  type CmEvent,
  type CmListener,
  type ConnectOptions,
  type ListenFailure,
  type ListenOptions,
  type PassiveConnection,
} from '../../src/cm/index.ts';
import type {
  ConnectRequest,
  Engine,
  LinkHandler,
  ListenHandler,
  ListenRequest,
  StreamLink,
} from '../../src/engine/engine.ts';
import type { Negotiated } from '../../src/llp/startup.ts';
import { noCounters } from '../../src/rdmap/counters.ts';
import type { StreamCounters, StreamEvent } from '../../src/stream/types.ts';
import type { TlsInfo } from '../../src/transport/tls-options.ts';
import type { ListenReady, Port, PortAddress, PortListener } from '../../src/transport/port.ts';
import type { ConnectionPolicy } from '../../src/cm/index.ts';
import { Device, type DeviceLimits, type QueuePair } from '../../src/verbs/index.ts';

const address = (host: string, port: number): PortAddress => ({ address: host, port, family: 'IPv4' });

/** What start-up has settled, as plain as it can be. */
export const NEGOTIATED: Negotiated = {
  role: 'initiator',
  revision: 1,
  enhanced: false,
  crc: true,
  sendMarkers: false,
  receiveMarkers: false,
  ird: 4,
  ord: 4,
  autoOrd: false,
  peerIrd: undefined,
  peerOrd: undefined,
  rtr: null,
  ddpVersion: 1,
};

/** What a stream can say, for short. */
export const said = {
  request: (more: object = {}): StreamEvent => ({
    type: 'request',
    request: {
      revision: 1,
      privateData: new Uint8Array(0),
      peerIrd: undefined,
      peerOrd: undefined,
      ...more,
    },
  }),
  response: (more: object = {}): StreamEvent => ({
    type: 'response',
    negotiated: { ...NEGOTIATED, ...more },
    privateData: new Uint8Array(0),
  }),
  established: (more: object = {}): StreamEvent => ({
    type: 'established',
    negotiated: { ...NEGOTIATED, ...more },
    privateData: new Uint8Array(0),
  }),
  failed: { type: 'startup-failed', reason: 'timeout' } as StreamEvent,
  closing: { type: 'closing', by: 'peer' } as StreamEvent,
  closed: (cause: Extract<StreamEvent, { type: 'closed' }>['cause']): StreamEvent => ({
    type: 'closed',
    cause,
    error: undefined,
  }),
};

/** A link that notes the calls on it, with their arguments. */
class NotedLink implements StreamLink {
  opened = false;
  localAddress: PortAddress | undefined = undefined;
  remoteAddress: PortAddress | undefined = undefined;
  mtu: number | undefined = undefined;
  tls: TlsInfo | undefined = undefined;
  deciding = false;
  offloaded = false;
  ord = 0;
  /** What `cancel` and `setKeepAlive` answer. */
  answer = true;
  /** What `checkEndpoint` throws. */
  refusal: Error | null = null;
  readonly calls: unknown[][] = [];
  handler!: LinkHandler;

  /** The calls since the last look. */
  look(): unknown[][] {
    return this.calls.splice(0);
  }

  /** The TCP connection is there. */
  open(): this {
    this.opened = true;
    this.localAddress = address('10.0.0.1', 1);
    this.remoteAddress = address('10.0.0.2', 2);
    return this;
  }

  setOrd(ord: number): void {
    this.calls.push(['setOrd', ord]);
  }

  cancel(): boolean {
    this.calls.push(['cancel']);
    return this.answer;
  }

  checkEndpoint(): void {
    if (this.refusal !== null) throw this.refusal;
  }

  accept(endpoint: object, privateData: Uint8Array, wishes: object): void {
    this.calls.push(['accept', endpoint, [...privateData], wishes]);
  }

  reject(privateData: Uint8Array): void {
    this.calls.push(['reject', [...privateData]]);
  }

  confirm(...code: number[]): void {
    this.calls.push(['confirm', ...code]);
  }

  close(): void {
    this.calls.push(['close']);
  }

  terminate(code: number): void {
    this.calls.push(['terminate', code]);
  }

  abort(): void {
    this.calls.push(['abort']);
  }

  displace(): void {
    this.calls.push(['displace']);
  }

  kick(requests: number): void {
    this.calls.push(['kick', requests]);
  }

  setRef(on: boolean): void {
    this.calls.push(['setRef', on]);
  }

  setKeepAlive(on: boolean, delay: number): boolean {
    this.calls.push(['setKeepAlive', on, delay]);
    return this.answer;
  }

  counters(): StreamCounters {
    return { ...noCounters(), fpdusIn: 7 };
  }
}

class NotedEngine implements Engine {
  readonly links: NotedLink[] = [];
  readonly connects: ConnectRequest[] = [];
  readonly listens: { request: ListenRequest; handler: ListenHandler; ready: ListenReady }[] = [];
  /** Runs while a link is being made, before the connection has it. */
  duringConnect: (handler: LinkHandler) => void = () => undefined;
  /** Byte streams that are handed over are taken. */
  takes = true;

  connect(request: ConnectRequest, handler: LinkHandler): StreamLink {
    this.connects.push(request);
    this.duringConnect(handler);
    const link = new NotedLink();
    link.handler = handler;
    this.links.push(link);
    return link;
  }

  listen(request: ListenRequest, handler: ListenHandler, ready: ListenReady): void {
    this.listens.push({ request, handler, ready });
  }

  take(port: Port, _policy: ConnectionPolicy, handler: ListenHandler): void {
    if (!this.takes) return;
    const link = new NotedLink().open();
    link.remoteAddress = port.remoteAddress;
    this.come(link, handler);
  }

  /** A TCP connection has come to a listener. */
  come(link: NotedLink, handler: ListenHandler): PassiveConnection {
    link.handler = handler.incoming(link);
    this.links.push(link);
    return link.handler as PassiveConnection;
  }
}

/** A connection manager over such an engine. What it defers waits for `run`. */
export class NotedManager {
  readonly engine: NotedEngine = new NotedEngine();
  readonly device: Device;
  readonly cm: ConnectionManager;
  readonly deferred: (() => void)[] = [];

  constructor(options: { wire?: WireName; limits?: Partial<DeviceLimits> } = {}) {
    this.device = new Device({
      random: seededRandom(3),
      defer: (task) => void this.deferred.push(task),
      ...options,
    });
    this.cm = new ConnectionManager(this.device, this.engine);
  }

  /** Run the deferred tasks, and those that they defer. */
  run(): void {
    for (let task = this.deferred.shift(); task !== undefined; task = this.deferred.shift()) task();
  }

  qp(depths: { ird?: number; ord?: number } = {}): QueuePair {
    const cq = this.device.createCq(16);
    return this.device.allocatePd().createQp({ sendCq: cq, recvCq: cq, ...depths });
  }

  /** A connection to a peer, before its TCP connection is there, and its events. */
  connect(
    options: Partial<ConnectOptions> = {},
    qp: QueuePair = this.qp(),
  ): { connection: ActiveConnection; link: NotedLink; qp: QueuePair; events: CmEvent[] } {
    const connection = this.cm.connect(qp, { host: '10.0.0.2', port: 2, ...options });
    return { connection, link: this.engine.links.at(-1)!, qp, events: watched(connection) };
  }

  /** The same with its TCP connection. */
  opened(options: Partial<ConnectOptions> = {}, qp?: QueuePair): ReturnType<NotedManager['connect']> {
    const made = this.connect(options, qp);
    made.link.open();
    made.link.handler.opened();
    return made;
  }

  /** The same in full operation. */
  established(options: Partial<ConnectOptions> = {}, qp?: QueuePair): ReturnType<NotedManager['connect']> {
    const made = this.opened(options, qp);
    made.link.handler.event(said.established());
    this.run();
    made.events.length = 0;
    made.link.look();
    return made;
  }

  async listen(options: ListenOptions = {}): Promise<Listening> {
    const requests: PassiveConnection[] = [];
    const failures: ListenFailure[] = [];
    const onFailure = (failure: ListenFailure): void => void failures.push(failure);
    const listening = this.cm.listen({ onFailure, ...options }, (connection) => {
      requests.push(connection);
    });
    const { handler, ready } = this.engine.listens.at(-1)!;
    const calls: unknown[][] = [];
    const port: PortListener = {
      address: address('10.0.0.1', 4711),
      close: (done) => calls.push(['close', done]),
      setRef: (on) => calls.push(['setRef', on]),
    };
    ready(port);
    const listener = await listening;
    return { listener, handler, requests, failures, calls, come: (from) => this.#come(handler, from) };
  }

  #come(handler: ListenHandler, from = '10.0.0.9'): { connection: PassiveConnection; link: NotedLink } {
    const link = new NotedLink().open();
    link.remoteAddress = address(from, 9);
    return { connection: this.engine.come(link, handler), link };
  }
}

interface Listening {
  readonly listener: CmListener;
  readonly handler: ListenHandler;
  readonly requests: PassiveConnection[];
  readonly failures: ListenFailure[];
  /** Calls on the listener of the transport. */
  readonly calls: unknown[][];
  readonly come: (from?: string) => { connection: PassiveConnection; link: NotedLink };
}

/** The events of a connection since this call. */
export function watched(connection: CmConnection): CmEvent[] {
  const events: CmEvent[] = [];
  connection.setHandler((event) => void events.push(event));
  return events;
}
