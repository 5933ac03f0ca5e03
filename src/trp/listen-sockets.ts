/**
 * The sockets of one listener. One that listens at every address has a socket for each: an answer has to come
 * from the address that the client has asked, and a socket that is bound to all of them sends from the one
 * that routing prefers. Addresses come and go, so the list is compared with the machine's from time to time.
 */
import type { CancelTimer, Scheduler } from '../base/clock.ts';
import { IwarpError } from '../base/errors.ts';
import type { DatagramNetwork, DatagramPort, DatagramTarget } from '../transport/datagram.ts';
import { ipOctets, isIP } from '../transport/ip-address.ts';
import type { PortAddress } from '../transport/port.ts';

/** How often the machine's addresses are looked at, ms. */
const LOOK_AGAIN_MS = 5_000;
/** A port that one address has free may be taken at another: this many are tried. */
const PORTS_TO_TRY = 16;

const noop = (): void => undefined;

/** True for the address that stands for all of them. */
export function isAny(host: string): boolean {
  return ipOctets(host)?.every((octet) => octet === 0) === true;
}

/** Takes the datagrams of all sockets. */
export interface RequestTaker {
  /** `bytes[start..end)` has come to the address `own`; borrowed. */
  onDatagram(bytes: Uint8Array, start: number, end: number, from: PortAddress, own: PortAddress): void;
}

/** Where to listen. */
interface ListenAt {
  readonly host: string;
  readonly port: number;
  readonly ipv6Only: boolean;
}

type Bound = (socket: DatagramPort | undefined, error?: Error) => void;

export class ListenSockets {
  readonly #network: DatagramNetwork;
  readonly #time: Scheduler;
  readonly #at: ListenAt;
  /** The machine's addresses; null to have one socket, whatever the address. */
  readonly #addresses: (() => readonly string[]) | null;
  /** By the address that each is bound to. */
  readonly #sockets = new Map<string, DatagramPort>();
  #taker: RequestTaker | null = null;
  #port: number;
  #state: 'open' | 'closed' = 'open';
  #ref = true;
  #cancel: CancelTimer = noop;

  constructor(
    network: DatagramNetwork,
    time: Scheduler,
    at: ListenAt,
    addresses: (() => readonly string[]) | null,
  ) {
    this.#network = network;
    this.#time = time;
    this.#at = at;
    this.#addresses = isAny(at.host) ? addresses : null;
    this.#port = at.port;
  }

  /** Bind; `ready` is called once, later, with the address that was asked for and its port. */
  open(taker: RequestTaker, ready: (address: PortAddress | undefined, error?: Error) => void): void {
    this.#taker = taker;
    const { host } = this.#at;
    const found = this.#wanted();
    this.#openAll(found.length === 0 ? [host] : found, PORTS_TO_TRY, (error) => {
      if (error !== null) {
        ready(undefined, error);
        return;
      }
      if (found.length > 0) this.#watch();
      ready({ address: host, port: this.#port, family: isIP(host) === 6 ? 'IPv6' : 'IPv4' });
    });
  }

  /** The machine's addresses that the listener is for. */
  #wanted(): string[] {
    if (this.#addresses === null) return [];
    const { host, ipv6Only } = this.#at;
    const [six, four] = [isIP(host) === 6, isIP(host) === 4 || !ipv6Only];
    return [...new Set(this.#addresses())].filter((one) => (isIP(one) === 6 ? six : four));
  }

  /** One after the other, for the first may pick the port. */
  #openAll(addresses: readonly string[], tries: number, done: (error: Error | null) => void): void {
    const [address, ...others] = addresses;
    if (address === undefined) {
      done(this.#sockets.size > 0 ? null : new IwarpError('ERR_CONNECT', 'no address can be listened at'));
      return;
    }
    this.#bind(address, (socket, error) => {
      if (socket !== undefined) {
        this.#port = socket.address.port;
        this.#openAll(others, tries, done);
      } else if (isGone(error)) {
        this.#openAll(others, tries, done);
      } else if (this.#at.port === 0 && this.#sockets.size > 0 && tries > 1) {
        const again = [...this.#sockets.keys(), ...addresses];
        this.#closeAll();
        this.#port = 0;
        this.#openAll(again, tries - 1, done);
      } else {
        this.#closeAll();
        done(error ?? new IwarpError('ERR_CONNECT', `cannot listen at ${address}`));
      }
    });
  }

  #bind(address: string, bound: Bound): void {
    const ipv6Only = this.#at.ipv6Only || this.#addresses !== null;
    let own: PortAddress | null = null;
    const handler = {
      onDatagram: (bytes: Uint8Array, start: number, end: number, from: PortAddress): void =>
        this.#taker!.onDatagram(bytes, start, end, from, own!),
      onClose: (): void => void this.#sockets.delete(address),
    };
    this.#network.bind({ host: address, port: this.#port, ipv6Only }, handler, (socket, error) => {
      if (socket !== undefined && this.#state === 'closed') {
        socket.close();
        return;
      }
      if (socket !== undefined) {
        own = { ...socket.address, address };
        this.#sockets.set(address, socket);
        socket.setRef(this.#ref);
      }
      bound(socket, error);
    });
  }

  #watch(): void {
    this.#cancel = this.#time.at(this.#time.now() + LOOK_AGAIN_MS, () => {
      this.#lookAgain();
      this.#watch();
    });
  }

  /** Listen at addresses that are new, and no longer at those that are gone. */
  #lookAgain(): void {
    const wanted = this.#wanted();
    if (wanted.length === 0) return; // they cannot be had at the moment
    for (const [address, socket] of this.#sockets) {
      if (wanted.includes(address)) continue;
      this.#sockets.delete(address);
      socket.close();
    }
    // One that cannot be bound now, say because it is being checked for duplicates, is tried next time.
    for (const address of wanted) if (!this.#sockets.has(address)) this.#bind(address, noop);
  }

  /** Send a datagram from the address that `own` names; a lost one is asked for again. */
  send(datagram: Uint8Array, own: PortAddress, to: DatagramTarget): void {
    this.#sockets.get(own.address)?.send([datagram], 1, to, noop);
  }

  setRef(on: boolean): void {
    this.#ref = on;
    for (const socket of this.#sockets.values()) socket.setRef(on);
  }

  /** Look at the machine's addresses no longer. */
  stay(): void {
    this.#cancel();
  }

  close(): void {
    this.#state = 'closed';
    this.#cancel();
    this.#closeAll();
  }

  #closeAll(): void {
    for (const socket of this.#sockets.values()) socket.close();
    this.#sockets.clear();
  }
}

/** The machine has the address no longer, or not yet. */
function isGone(error: Error | undefined): boolean {
  const cause = error?.cause as { readonly code?: unknown } | undefined;
  return cause?.code === 'EADDRNOTAVAIL';
}
