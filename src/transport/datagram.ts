/**
 * Datagrams as the stack sees them: `udp.ts` has them from the system, `simnet/datagrams.ts` from memory.
 *
 * Borrowing rules as in `port.ts`: bytes given to `onDatagram` are borrowed for the call, bytes given to
 * `send` belong to the port until their `done`.
 */
import type { PortAddress } from './port.ts';

/** Where a datagram goes. */
export interface DatagramTarget {
  /** IP address. */
  readonly address: string;
  /** UDP port. */
  readonly port: number;
}

/** Where to receive datagrams. */
export interface DatagramBinding {
  /** IP address to bind to. Default: every address. */
  readonly host?: string;
  /** UDP port; 0 picks a free one. */
  readonly port?: number;
  /** Receive IPv6 only, and no mapped IPv4. */
  readonly ipv6Only?: boolean;
  /** Bytes that may wait for the program, where the system gives as much. Default: the system's. */
  readonly receiveBuffer?: number;
}

/** How a datagram port calls its user. */
export interface DatagramHandler {
  /** `bytes[start..end)` is one datagram; borrowed. */
  onDatagram(bytes: Uint8Array, start: number, end: number, from: PortAddress): void;
  /** The port has failed and is closed. */
  onClose(error: Error): void;
}

/** Called once for each datagram, in their order: the system has taken it, or why it has not. */
export type DatagramDone = (error: Error | null) => void;

/** A bound datagram port. */
export interface DatagramPort {
  /** Where it is bound, with the port that was picked. */
  readonly address: PortAddress;
  /** Send `chunks[0..count)` as one datagram. The array itself is read during the call only. */
  send(chunks: readonly Uint8Array[], count: number, to: DatagramTarget, done: DatagramDone): void;
  /**
   * Optional: send `bytes` as one datagram, without a report. True if the system has copied it; false: it may
   * be read until the port is closed, or has been dropped.
   */
  sendNow?(bytes: Uint8Array, to: DatagramTarget): boolean;
  /**
   * Optional: from now on all datagrams go to `to`, and those of others are not received. A system takes
   * datagrams faster that way.
   */
  connect?(to: DatagramTarget): void;
  /** Nothing is called after this, not even the `done` of a datagram under way. */
  close(): void;
  /** Set whether the port keeps the process alive. It does until this is called. */
  setRef(on: boolean): void;
}

/** Makes datagram ports. */
export interface DatagramNetwork {
  /** `ready` is called once, later, with the port or an error. Datagrams arrive after that. */
  bind(
    binding: DatagramBinding,
    handler: DatagramHandler,
    ready: (port: DatagramPort | undefined, error?: Error) => void,
  ): void;
}

/** Facts of the machine that a network in memory does without. */
export interface DatagramHost {
  /** Finds an address of a host name; called back later, once. */
  resolve(host: string, family: 0 | 4 | 6, done: (error: Error | null, address: string) => void): void;
  /** Finds the way to a peer; called back later, once, with null if there is none. */
  route(peer: DatagramTarget, done: (route: DatagramRoute | null) => void): void;
  /** MTU of the interface with this address. */
  mtu(address: string): number | undefined;
  /** Addresses of this machine's interfaces at the moment, with a zone where one is needed to bind. */
  addresses(): readonly string[];
}

/** The way to a peer. */
export interface DatagramRoute {
  /** Address that this machine sends from. */
  readonly local: string;
  /** The peer's address as the sources of its datagrams are written: `::1` where `0::1` was asked for. */
  readonly peer: string;
}

/** Bytes that one UDP datagram can carry over IPv4; over IPv6 twenty more fit. */
export const MAX_DATAGRAM = 65_507;
