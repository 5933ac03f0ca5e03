/**
 * Connections over shared memory under virtual time: the ports, rings and placement of `src/shm`, of which
 * only bells, turns and the clock are replaced. Both ends live in this thread, and every run is the same run.
 */
import {
  recordMemory,
  ringPair,
  ShmPort,
  type ShmChannel,
  type ShmEnds,
  type ShmSharing,
} from '../../src/shm/port.ts';
import { PolledPorts } from '../../src/shm/polling.ts';
import type { VirtualTime } from '../../src/simnet/virtual-time.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  Transport,
  WriteDone,
} from '../../src/transport/port.ts';

export interface ShmNetworkOptions {
  /** Milliseconds that a message to the other thread takes. Default 1. */
  readonly latency?: number;
  /** How long each end polls its rings, in microseconds. Default 0: it always sleeps, and is rung. */
  readonly busyPoll?: number;
  /** Called with all octets that go into the rings, by the end that writes them. */
  readonly seen?: (role: 'active' | 'passive', bytes: Uint8Array) => void;
}

/** Milliseconds that a turn of a polling event loop takes. */
const TURN_MS = 0.002;

/** One end of a MessageChannel. */
class Channel implements ShmChannel {
  readonly #time: VirtualTime;
  readonly #latency: number;
  peer!: Channel;
  #open = true;
  #heard: (message: unknown) => void = () => undefined;
  #closed: () => void = () => undefined;

  constructor(time: VirtualTime, latency: number) {
    this.#time = time;
    this.#latency = latency;
  }

  postMessage(message: unknown): void {
    if (!this.#open) return;
    const copy: unknown = structuredClone(message);
    this.#later(() => {
      if (this.peer.#open) this.peer.#heard(copy);
    });
  }

  on(event: 'message' | 'close', handler: ((message: unknown) => void) & (() => void)): void {
    if (event === 'message') this.#heard = handler;
    else this.#closed = handler;
  }

  ref(): void {}

  unref(): void {}

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#time.defer(() => this.#closed());
    this.#later(() => {
      if (!this.peer.#open) return;
      this.peer.#open = false;
      this.peer.#closed();
    });
  }

  #later(task: () => void): void {
    this.#time.at(this.#time.now() + this.#latency, task);
  }
}

/** A port whose writes are seen; placement stays as it is, which a port around it would prevent. */
class SeenPort extends ShmPort {
  readonly #seen: (bytes: Uint8Array) => void;

  constructor(ends: ShmEnds, sharing: ShmSharing, seen: (bytes: Uint8Array) => void) {
    super(ends, sharing);
    this.#seen = seen;
  }

  override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    for (const chunk of chunks.slice(0, count)) this.#seen(chunk);
    return super.write(chunks, count, done);
  }
}

/** The transport of both ends. Hosts are only labels, as over the wire itself. */
export class ShmNetwork implements Transport {
  readonly #time: VirtualTime;
  readonly #latency: number;
  readonly #seen: (role: 'active' | 'passive', bytes: Uint8Array) => void;
  readonly #active: ShmSharing;
  readonly #passive: ShmSharing;
  readonly #listeners = new Map<number, (port: Port) => void>();

  constructor(
    time: VirtualTime,
    { latency = 1, busyPoll = 0, seen = (): void => undefined }: ShmNetworkOptions = {},
  ) {
    this.#time = time;
    this.#latency = latency;
    this.#seen = seen;
    const soon = (task: () => void): void => void time.at(time.now() + TURN_MS, task);
    const sharing = (): ShmSharing => ({
      poll: new BusyPoll(busyPoll, { now: () => time.now(), soon }),
      memory: recordMemory(),
      turns: { turn: soon, tick: (task) => time.defer(task) },
      polled: new PolledPorts(),
      hearsay: { thread: () => 0, hasEnded: () => false, nextMessage: () => undefined },
    });
    this.#active = sharing();
    this.#passive = sharing();
  }

  /** Both ends are in this thread: a poll of one drives both. */
  look(): void {
    this.#active.polled.look();
    this.#passive.polled.look();
  }

  connect(
    { host, port, localAddress = '10.0.0.1' }: ConnectTarget,
    done: (port: Port | undefined, error?: Error) => void,
  ): CancelConnect {
    let wanted = true;
    this.#time.at(this.#time.now() + this.#latency, () => {
      if (!wanted) return;
      const accept = this.#listeners.get(port);
      if (accept === undefined) {
        done(undefined, Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }));
        return;
      }
      const [local, remote] = [address(localAddress, 49_152), address(host, port)];
      const [a, b] = [new Channel(this.#time, this.#latency), new Channel(this.#time, this.#latency)];
      a.peer = b;
      b.peer = a;
      const [one, other] = ringPair();
      const ends = { incoming: one, outgoing: other, channel: a, local, remote };
      const others = { incoming: other, outgoing: one, channel: b, local: remote, remote: local };
      done(new SeenPort(ends, this.#active, (bytes) => this.#seen('active', bytes)));
      accept(new SeenPort(others, this.#passive, (bytes) => this.#seen('passive', bytes)));
    });
    return () => {
      wanted = false;
    };
  }

  listen({ host = '::', port = 0 }: ListenTarget, accept: (port: Port) => void, ready: ListenReady): void {
    this.#listeners.set(port, accept);
    const close = (done?: () => void): void => {
      this.#listeners.delete(port);
      if (done !== undefined) this.#time.defer(done);
    };
    this.#time.defer(() => ready({ address: address(host, port), close }));
  }
}

function address(host: string, port: number): PortAddress {
  return { address: host, port, family: host.includes(':') ? 'IPv6' : 'IPv4' };
}
