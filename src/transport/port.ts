/**
 * What the stack sees of a byte-stream connection. Everything that touches Node's sockets, or pretends to be one, implements these
 * interfaces; segmenting, fault and tap are middleware over any port.
 *
 * Borrowing rules. Octets given to `onData` are borrowed for the duration of the call and never kept. Octets given to `write` belong
 * to the port until its `done` has been called; `done` calls come in the order of the writes, once each, also when the port dies
 * (then with `false`).
 */

/** A transport address. */
export interface PortAddress {
  /** IP address as text, without a zone or brackets. */
  readonly address: string;
  /** TCP port. */
  readonly port: number;
  /** Which kind of address it is. */
  readonly family: 'IPv4' | 'IPv6';
}

/** Called once per write: true when the octets have been handed to the network, false when they never will be. */
export type WriteDone = (ok: boolean) => void;

/** What a port tells its user. Every method may be called only after `attach`, and never from inside a call of the user into the port. */
export interface PortHandler {
  /** `bytes[start..end)` arrived; borrowed. */
  onData(bytes: Uint8Array, start: number, end: number): void;
  /**
   * Optional: where the next read had best land, asked once after each `onData`; undefined for the port's own memory. A port that reads into
   * memory of its choice may use it, and then gives that very array to `onData`. It stays the port's until the next `onData` or `onClose`.
   */
  readTarget?(): Uint8Array | undefined;
  /** The peer finished its direction (FIN). Nothing follows but `onClose`. */
  onEnd(): void;
  /** The port is gone: no other call follows. `error` is set when it was reset, failed or timed out; absent after both directions ended in order. */
  onClose(error?: Error): void;
}

/** One established byte-stream connection. */
export interface Port {
  /** Our end. */
  readonly localAddress: PortAddress;
  /** The peer's end. */
  readonly remoteAddress: PortAddress;
  /** MTU of the local interface, octets, where it is known. */
  readonly mtu?: number | undefined;
  /** Start delivery. Data that arrived earlier is delivered after this call has returned. Called exactly once. */
  attach(handler: PortHandler): void;
  /**
   * Send `chunks[0..count)` in order, as one write where the system allows. The array itself is read during the call only; its octets until `done`,
   * or, if the answer is true, not any more: they have been copied, and `done` only says what has become of them.
   */
  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean;
  /** Finish our direction (FIN) after everything written. Data may still arrive. */
  end(): void;
  /** Drop the connection at once (RST where possible). `onClose` follows. */
  reset(): void;
  /** Stop and restart delivery; data waits in the system's buffers meanwhile. */
  pause(): void;
  /** Deliver again. */
  resume(): void;
  /** Optional: whether the connection keeps the process alive, as it does until this is called. */
  setRef?(on: boolean): void;
}

/** Where to connect to. */
export interface ConnectTarget {
  /** Host name or address. */
  readonly host: string;
  /** TCP port to connect to. */
  readonly port: number;
  /** IP address to bind to before connecting; the system picks one by default. */
  readonly localAddress?: string;
  /** Port to bind to before connecting; 0, the default, lets the system pick. */
  readonly localPort?: number;
  /** Look the host name up for this family only: 4 for IPv4, 6 for IPv6. */
  readonly family?: 4 | 6;
}

/** Cancels a connection attempt; its callback is then never called. */
export type CancelConnect = () => void;

/** Where to listen. */
export interface ListenTarget {
  /** Address to bind to; every address by default. */
  readonly host?: string;
  /** TCP port; 0 picks a free one. */
  readonly port?: number;
  /** Connections that the system may hold before they are taken. */
  readonly backlog?: number;
  /** IPv6 only, instead of also accepting mapped IPv4. */
  readonly ipv6Only?: boolean;
  /** Share the port with other listeners that say the same; a transport that cannot answers ERR_NOT_SUPPORTED. */
  readonly reusePort?: boolean;
}

/** A bound listener. */
export interface PortListener {
  /** Where it listens, the picked port filled in. */
  readonly address: PortAddress;
  /** Stop accepting; `done` follows when the address is free. Accepted ports live on. */
  close(done?: () => void): void;
  /** Optional: whether the listener keeps the process alive, as it does until this is called. */
  setRef?(on: boolean): void;
}

/** Told once, later, with the listener or an error. */
export type ListenReady = (listener: PortListener | undefined, error?: Error) => void;

/** Makes connections and listeners. What throws counts as one that failed. */
export interface Transport {
  /** Exactly one of (port) and (undefined, error) reaches `done`, later, never inside this call. */
  connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect;
  /**
   * `ready` is called once, with the listener or an error; `accept` for each connection after that, and `failed` where one could not be
   * accepted (no descriptor left, say), which ends nothing.
   */
  listen(
    target: ListenTarget,
    accept: (port: Port) => void,
    ready: ListenReady,
    failed?: (error: Error) => void,
  ): void;
}
