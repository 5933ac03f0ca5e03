/**
 * A network in memory that behaves like TCP where it matters: ordered bytes, FIN after the data, RST that
 * overtakes the data, back-pressure.
 *
 * Read first: `port.ts` (the contract), `virtual-time.ts` (the clock that tests run it on). The ports are in
 * `memory-port.ts`.
 *
 * The network forgives less than a real one: delivered bytes are overwritten when the handler returns, and on
 * request it checks that the memory of a write stays the same until its `done`.
 */

import type { Scheduler } from '../base/clock.ts';
import { IwarpError, checkInteger, checkOptions, type Names } from '../base/errors.ts';
import { isIP } from '../transport/ip-address.ts';
import { Link, MemoryPort } from './memory-port.ts';
import type { LinkOptions } from './memory-port.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  Transport,
} from '../transport/port.ts';

export { POISON } from './memory-port.ts';
export type { LinkOptions } from './memory-port.ts';
export { VirtualTime } from './virtual-time.ts';

/** Options of a {@link MemoryTransport}. */
export interface MemoryTransportOptions extends LinkOptions {
  /**
   * Host names besides `localhost`, and their addresses. Addresses need no declaration: every address exists.
   */
  readonly names?: Readonly<Record<string, string>> | undefined;
}

const OPTIONS: Names<MemoryTransportOptions> = {
  latency: true,
  bandwidth: true,
  buffer: true,
  readOctets: true,
  verifyWrites: true,
  names: true,
};

/** Where the ports that the system hands out begin. */
const FIRST_EPHEMERAL = 49_152;

interface Listening {
  readonly address: PortAddress;
  readonly ipv6Only: boolean;
  readonly accept: (port: Port) => void;
}

/**
 * {@link Transport} in memory. One object is one network: its listeners can be reached only through it.
 *
 * @example
 * const time = new VirtualTime();
 * const network = new MemoryTransport(time, { latency: 1 });
 * network.listen({ host: '10.0.0.2', port: 4711 }, (port) => port.attach(server), () => undefined);
 * network.connect({ host: '10.0.0.2', port: 4711 }, (port) => port?.attach(client));
 * time.run();
 */
export class MemoryTransport implements Transport {
  readonly #time: Scheduler;
  readonly #link: Link;
  readonly #names: ReadonlyMap<string, string>;
  /** By `address port`. */
  readonly #listeners = new Map<string, Listening>();
  /** Local ends of active connections that name their port, by `address port > address port`. */
  readonly #tuples = new Set<string>();
  #ephemeral = FIRST_EPHEMERAL;

  /** A network without hosts, whose delays pass in `time`. */
  constructor(time: Scheduler, options: MemoryTransportOptions = {}) {
    checkOptions('options', options, OPTIONS);
    this.#time = time;
    this.#link = new Link(time, options);
    this.#names = new Map(Object.entries({ localhost: '127.0.0.1', ...options.names }));
  }

  connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
    checkInteger('port', target.port, 1, 65_535);
    let state: 'pending' | 'settled' = 'pending';
    let active: MemoryPort | undefined;
    const latency = this.#link.latency;
    const fail = (code: string, delay: number): void => {
      this.#time.at(this.#time.now() + delay, () => {
        if (state === 'settled') return;
        state = 'settled';
        done(undefined, systemError(`cannot connect to ${target.host}:${target.port}`, code));
      });
    };
    const remote = this.#resolve(target.host, target.port, target.family);
    const local = remote && this.#source(target, remote);
    if (remote === undefined) fail('ENOTFOUND', 0);
    else if (local === undefined) fail('EADDRINUSE', 0);
    else {
      this.#time.at(this.#time.now() + latency, () => {
        const listening = this.#find(remote);
        if (state === 'settled') this.#tuples.delete(tuple(local, remote));
        else if (listening === undefined) {
          this.#tuples.delete(tuple(local, remote));
          fail('ECONNREFUSED', latency);
        } else {
          const ends = this.#pair(local, remote);
          active = ends.active;
          this.#time.at(this.#time.now() + latency, () => {
            if (state === 'settled') return;
            state = 'settled';
            done(ends.active);
          });
          listening.accept(ends.passive);
        }
      });
    }
    return () => {
      if (state === 'settled') return;
      state = 'settled';
      active?.reset();
    };
  }

  listen(target: ListenTarget, accept: (port: Port) => void, ready: ListenReady): void {
    const asked = checkInteger('port', target.port ?? 0, 0, 65_535);
    const host = target.host ?? '::';
    const address = this.#resolve(host, asked === 0 ? this.#freePort() : asked);
    const refuse = (error: IwarpError): void => this.#time.defer(() => ready(undefined, error));
    const cannot = (code: string): IwarpError => systemError(`cannot listen on ${host}:${asked}`, code);
    if (target.reusePort === true)
      return refuse(
        new IwarpError('ERR_NOT_SUPPORTED', 'reusePort: listeners in memory do not share a port'),
      );
    if (address === undefined) return refuse(cannot('ENOTFOUND'));
    const name = key(address);
    if (this.#listeners.has(name)) return refuse(cannot('EADDRINUSE'));
    this.#listeners.set(name, { address, accept, ipv6Only: target.ipv6Only ?? false });
    const close = (done?: () => void): void => {
      this.#listeners.delete(name);
      if (done !== undefined) this.#time.defer(done);
    };
    this.#time.defer(() => ready({ address, close }));
  }

  #pair(local: PortAddress, remote: PortAddress): { active: MemoryPort; passive: MemoryPort } {
    const active = new MemoryPort(this.#link, local, remote, () => this.#tuples.delete(tuple(local, remote)));
    const passive = new MemoryPort(this.#link, remote, local);
    active.pairWith(passive);
    return { active, passive };
  }

  #resolve(host: string, port: number, family?: 4 | 6): PortAddress | undefined {
    const address = this.#names.get(host) ?? host;
    const version = isIP(address);
    if (version === 0 || (family !== undefined && family !== version)) return undefined;
    return { address, port, family: version === 6 ? 'IPv6' : 'IPv4' };
  }

  /** Our end of a new connection, or undefined if a port asked for is taken towards that peer. */
  #source(target: ConnectTarget, remote: PortAddress): PortAddress | undefined {
    const address = target.localAddress ?? defaultSource(remote);
    const chosen = checkInteger('localPort', target.localPort ?? 0, 0, 65_535);
    const family = isIP(address) === 6 ? 'IPv6' : 'IPv4';
    const local: PortAddress = { address, port: chosen === 0 ? this.#freePort() : chosen, family };
    const name = tuple(local, remote);
    if (this.#tuples.has(name)) return undefined;
    this.#tuples.add(name);
    return local;
  }

  #freePort(): number {
    const port = this.#ephemeral++;
    if (this.#ephemeral > 65_535) this.#ephemeral = FIRST_EPHEMERAL;
    return port;
  }

  #find(remote: PortAddress): Listening | undefined {
    const exact = this.#listeners.get(key(remote));
    if (exact !== undefined) return exact;
    const any6 = this.#listeners.get(`:: ${remote.port}`);
    if (remote.family === 'IPv6') return any6;
    return this.#listeners.get(`0.0.0.0 ${remote.port}`) ?? (any6?.ipv6Only === false ? any6 : undefined);
  }
}

function key(address: PortAddress): string {
  return `${address.address} ${address.port}`;
}

function tuple(local: PortAddress, remote: PortAddress): string {
  return `${key(local)} > ${key(remote)}`;
}

/** The address that a host would choose to reach `remote`. */
function defaultSource(remote: PortAddress): string {
  if (remote.family === 'IPv6') return remote.address === '::1' ? '::1' : 'fd00::1';
  return remote.address.startsWith('127.') ? '127.0.0.1' : '10.0.0.1';
}

/** As the TCP transport reports what the system said. */
function systemError(what: string, code: string): IwarpError {
  const cause = Object.assign(new Error(`${what}: ${code}`), { code });
  return new IwarpError('ERR_CONNECT', `${what} (${code})`, { cause });
}
