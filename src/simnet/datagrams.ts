/**
 * A datagram network in memory that loses, repeats, delays and reorders, drawn from a seed under a clock of
 * the test's. The same seed gives the same run.
 */
import type { Scheduler } from '../base/clock.ts';
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { seededRandom, type RandomU32 } from '../base/random.ts';
import {
  MAX_DATAGRAM,
  type DatagramBinding,
  type DatagramDone,
  type DatagramHandler,
  type DatagramNetwork,
  type DatagramPort,
  type DatagramTarget,
} from '../transport/datagram.ts';
import { isIP } from '../transport/ip-address.ts';
import type { PortAddress } from '../transport/port.ts';

/** Options of a {@link MemoryDatagrams}. Shares are from 0 to 1. */
export interface MemoryDatagramOptions {
  /** Where the draws begin. Default 1. */
  readonly seed?: number | undefined;
  /** Share of datagrams that are lost. Default 0. */
  readonly loss?: number | undefined;
  /** Share of datagrams that arrive twice. Default 0. */
  readonly repetition?: number | undefined;
  /** Share of datagrams that are overtaken: they come up to `disorder` later. Default 0. */
  readonly reordering?: number | undefined;
  /** Milliseconds that an overtaken datagram is late at most. Default 10. */
  readonly disorder?: number | undefined;
  /** Milliseconds that each datagram takes. Default 0. */
  readonly latency?: number | undefined;
  /** Bytes a millisecond that each sending port has. Default: no limit. */
  readonly bandwidth?: number | undefined;
  /** Bytes that may wait for that; more are lost. Default: no limit. */
  readonly queue?: number | undefined;
  /** Longest datagram, bytes; a longer one is not sent. Default 65507. */
  readonly maxDatagram?: number | undefined;
}

const OPTIONS: Names<MemoryDatagramOptions> = {
  seed: true,
  loss: true,
  repetition: true,
  reordering: true,
  disorder: true,
  latency: true,
  bandwidth: true,
  queue: true,
  maxDatagram: true,
};

/** Counters of a {@link MemoryDatagrams}. */
export interface MemoryDatagramCounters {
  /** Datagrams that were given to the network. */
  sent: number;
  /** Datagrams that it has handed out, repetitions included. */
  delivered: number;
  /** Datagrams that it has dropped. */
  lost: number;
  /** Datagrams that it has handed out twice. */
  repeated: number;
  /** Datagrams that it has held back behind later ones. */
  reordered: number;
  /** Nothing was bound where they went. */
  unreachable: number;
}

const FIRST_EPHEMERAL = 49_152;

/**
 * {@link DatagramNetwork} in memory. One object is one network.
 *
 * @example
 * const time = new VirtualTime();
 * const network = new MemoryDatagrams(time, { seed: 7, loss: 0.01, reordering: 0.05, latency: 1 });
 * const rnic = openRnic({ wire: 'qpip', datagrams: network, transport, scheduler: time });
 */
export class MemoryDatagrams implements DatagramNetwork {
  readonly #time: Scheduler;
  readonly #random: RandomU32;
  readonly #options: Required<{ readonly [K in keyof MemoryDatagramOptions]: number }>;
  readonly #counters: MemoryDatagramCounters = {
    sent: 0,
    delivered: 0,
    lost: 0,
    repeated: 0,
    reordered: 0,
    unreachable: 0,
  };
  /** By `address port`. */
  readonly #ports = new Map<string, MemoryDatagramPort>();
  #ephemeral = FIRST_EPHEMERAL;
  /** When the link of each sending port has sent what it was given. */
  readonly #linkFree = new Map<number, number>();

  /** A network without sockets, whose delays pass in `time`. */
  constructor(time: Scheduler, options: MemoryDatagramOptions = {}) {
    checkOptions('options', options, OPTIONS);
    const { seed = 1, maxDatagram = MAX_DATAGRAM } = options;
    const { loss = 0, repetition = 0, reordering = 0, disorder = 10, latency = 0 } = options;
    const { bandwidth = Infinity, queue = Infinity } = options;
    checkInteger('options.seed', seed, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
    checkInteger('options.maxDatagram', maxDatagram, 1, MAX_DATAGRAM);
    for (const [name, share] of Object.entries({ loss, repetition, reordering })) checkNumber(name, share, 1);
    for (const [name, span] of Object.entries({ disorder, latency, bandwidth, queue }))
      checkNumber(name, span, Infinity);
    this.#time = time;
    this.#random = seededRandom(seed);
    this.#options = {
      seed,
      loss,
      repetition,
      reordering,
      disorder,
      latency,
      bandwidth,
      queue,
      maxDatagram,
    };
  }

  /** Counts since the network was made. */
  counters(): MemoryDatagramCounters {
    return { ...this.#counters };
  }

  bind(
    binding: DatagramBinding,
    handler: DatagramHandler,
    ready: (port: DatagramPort | undefined, error?: Error) => void,
  ): void {
    const { host = '::', port: asked = 0, ipv6Only = false } = binding;
    const version = isIP(host);
    const port = asked === 0 ? this.#freePort() : asked;
    const name = `${host} ${port}`;
    const code = version === 0 ? 'EINVAL' : this.#ports.has(name) ? 'EADDRINUSE' : null;
    if (code !== null) {
      const error = new IwarpError('ERR_CONNECT', `cannot bind to ${host}:${port} (${code})`);
      this.#time.defer(() => ready(undefined, error));
      return;
    }
    const address: PortAddress = { address: host, port, family: version === 6 ? 'IPv6' : 'IPv4' };
    const made = new MemoryDatagramPort(this, address, ipv6Only, handler);
    this.#ports.set(name, made);
    this.#time.defer(() => ready(made));
  }

  /** @internal */
  release({ address, port }: PortAddress): void {
    this.#ports.delete(`${address} ${port}`);
  }

  /** @internal One datagram enters the network. */
  carry(bytes: Uint8Array, from: PortAddress, to: DatagramTarget, done: (error: Error | null) => void): void {
    const { maxDatagram, loss, repetition } = this.#options;
    if (bytes.length > maxDatagram) {
      const error = Object.assign(new Error('the datagram is too long: EMSGSIZE'), { code: 'EMSGSIZE' });
      this.#time.defer(() => done(error));
      return;
    }
    this.#counters.sent++;
    this.#time.defer(() => done(null));
    const source = sourceOf(from, to);
    const sent = this.#throughLink(bytes.length, from.port);
    if (sent === null || this.#happens(loss)) {
      this.#counters.lost++;
      return;
    }
    this.#deliverLater(bytes, source, to, sent);
    if (!this.#happens(repetition)) return;
    this.#counters.repeated++;
    this.#deliverLater(bytes, source, to, sent);
  }

  /** When the link has sent it; null if it has no room to wait in. */
  #throughLink(octets: number, port: number): number | null {
    const now = this.#time.now();
    const { bandwidth, queue } = this.#options;
    if (bandwidth === Infinity) return now;
    const free = Math.max(now, this.#linkFree.get(port) ?? 0);
    if ((free - now) * bandwidth > queue) return null;
    const sent = free + octets / bandwidth;
    this.#linkFree.set(port, sent);
    return sent;
  }

  #deliverLater(bytes: Uint8Array, from: PortAddress, to: DatagramTarget, sent: number): void {
    const { latency, reordering, disorder } = this.#options;
    let late = 0;
    if (this.#happens(reordering)) {
      this.#counters.reordered++;
      late = this.#fraction() * disorder;
    }
    this.#time.at(sent + latency + late, () => {
      const port = this.#find(to);
      if (port === undefined) this.#counters.unreachable++;
      else {
        this.#counters.delivered++;
        // A copy each time: the receiver's view of it ends with the call.
        port.handler.onDatagram(new Uint8Array(bytes), 0, bytes.length, from);
      }
    });
  }

  #find({ address, port }: DatagramTarget): MemoryDatagramPort | undefined {
    const exact = this.#ports.get(`${address} ${port}`);
    if (exact !== undefined) return exact;
    const any6 = this.#ports.get(`:: ${port}`);
    if (isIP(address) === 6) return any6;
    return this.#ports.get(`0.0.0.0 ${port}`) ?? (any6?.ipv6Only === false ? any6 : undefined);
  }

  #happens(share: number): boolean {
    return share > 0 && this.#fraction() < share;
  }

  #fraction(): number {
    return this.#random() / 0x1_0000_0000;
  }

  #freePort(): number {
    const port = this.#ephemeral++;
    if (this.#ephemeral > 65_535) this.#ephemeral = FIRST_EPHEMERAL;
    return port;
  }
}

class MemoryDatagramPort implements DatagramPort {
  readonly address: PortAddress;
  readonly ipv6Only: boolean;
  readonly handler: DatagramHandler;
  readonly #network: MemoryDatagrams;
  #state: 'open' | 'closed' = 'open';

  constructor(network: MemoryDatagrams, address: PortAddress, ipv6Only: boolean, handler: DatagramHandler) {
    this.#network = network;
    this.address = address;
    this.ipv6Only = ipv6Only;
    this.handler = handler;
  }

  send(chunks: readonly Uint8Array[], count: number, to: DatagramTarget, done: DatagramDone): void {
    if (this.#state === 'closed') return;
    let octets = 0;
    for (let i = 0; i < count; i++) octets += chunks[i]!.length;
    const bytes = new Uint8Array(octets);
    let at = 0;
    for (let i = 0; i < count; i++) {
      bytes.set(chunks[i]!, at);
      at += chunks[i]!.length;
    }
    this.#network.carry(bytes, this.address, to, (error) => {
      if (this.#state === 'open') done(error);
    });
  }

  close(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#network.release(this.address);
  }

  setRef(): void {
    // Memory keeps no process alive.
  }
}

/** The address that a host sends from to reach `to`, where it is bound to all its addresses. */
function sourceOf(from: PortAddress, to: DatagramTarget): PortAddress {
  if (from.address !== '::' && from.address !== '0.0.0.0') return from;
  const six = isIP(to.address) === 6;
  return { address: six ? '::1' : '127.0.0.1', port: from.port, family: six ? 'IPv6' : 'IPv4' };
}

function checkNumber(name: string, value: unknown, max: number): void {
  if (typeof value === 'number' && value >= 0 && value <= max) return;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `options.${name} must be a number from 0 to ${max}`);
}
