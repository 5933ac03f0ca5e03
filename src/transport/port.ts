/**
 * A byte-stream connection as the stack sees it. Everything that touches Node's sockets, or stands in for
 * one, implements these interfaces; segmenting, fault and tap are middleware over any port.
 *
 * Borrowing rules. Bytes given to `onData` are borrowed for the duration of the call and must not be kept.
 * Bytes given to `write` belong to the port until their `done` has been called. `done` calls come in the
 * order of the writes, once each, also when the connection ends early (then with `false`).
 */
import type { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';
import type { TlsInfo, TlsOptions } from './tls-options.ts';

/** A transport address. */
export interface PortAddress {
  /**
   * IP address as text, without a zone or brackets. Of a Unix socket its path, and empty at the end that has
   * connected, which has none.
   */
  readonly address: string;
  /** TCP port; 0 of a Unix socket. */
  readonly port: number;
  /** Address family. */
  readonly family: 'IPv4' | 'IPv6' | 'Unix';
}

/**
 * Called once per write: true when the bytes have been handed to the network, false when they never will be.
 */
export type WriteDone = (ok: boolean) => void;

/**
 * How a port calls its user. It calls only after `attach`, and never from inside a call of the user into the
 * port.
 */
export interface PortHandler {
  /** `bytes[start..end)` has arrived; borrowed. */
  onData(bytes: Uint8Array, start: number, end: number): void;
  /**
   * Optional: memory for the next read, asked for once after each `onData`; undefined for the port's own
   * memory. A port that can choose where it reads to may use it, and then passes that very array to `onData`.
   * The memory belongs to the port until the next `onData` or `onClose`.
   */
  readTarget?(): Uint8Array | undefined;
  /** The peer has ended its direction (FIN). Only `onClose` follows. */
  onEnd(): void;
  /**
   * The connection has ended; no other call follows. `error` is set if it was reset, failed or timed out, and
   * absent if both directions ended in order.
   */
  onClose(error?: Error): void;
}

/** One established byte-stream connection. */
export interface Port {
  /** Our end. */
  readonly localAddress: PortAddress;
  /** The peer's end. */
  readonly remoteAddress: PortAddress;
  /** MTU of the local interface in bytes, if known. */
  readonly mtu?: number | undefined;
  /** Results of the TLS handshake with the peer, once it is done; undefined without TLS. */
  readonly tls?: TlsInfo | undefined;
  /** Optional: payloads are to be copied into the write, not lent to it in pieces. Default false. */
  readonly copies?: boolean | undefined;
  /**
   * Start delivery. Bytes that arrived earlier are delivered after this call has returned. Called exactly
   * once.
   */
  attach(handler: PortHandler): void;
  /**
   * Send `chunks[0..count)` in order, as one write if the system allows. The array itself is read during the
   * call only. Its bytes belong to the port until `done`; if the result is true, they have been copied and
   * are free at once, and `done` only reports the outcome. A port of datagrams, of which each chunk is one,
   * then does not call it: nothing is known of the outcome.
   */
  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean;
  /** End our direction (FIN) after everything that was written. Bytes may still arrive. */
  end(): void;
  /** Drop the connection at once (RST where possible). `onClose` follows. */
  reset(): void;
  /** Stop delivery; bytes wait in the system's buffers meanwhile. */
  pause(): void;
  /** Restart delivery. */
  resume(): void;
  /**
   * Optional: ask the handler for its read target again. From the return of this call on nothing is read into
   * the memory that it named before.
   */
  retarget?(): void;
  /** Optional: set whether the connection holds the process. It does until this is called. */
  setRef?(on: boolean): void;
  /**
   * Optional: probe the peer's system after `delay` ms without bytes (0: as the system is set), or stop that.
   * A connection whose peer does not answer the probes ends with an error. False if this port cannot.
   */
  setKeepAlive?(on: boolean, delay: number): boolean;
}

/** A MessagePort of `node:worker_threads`, over which a thread reaches another. */
export type ThreadPort = MessagePort;

/** Where to connect to. */
export interface ConnectTarget {
  /** Host name or address. */
  readonly host: string;
  /** TCP port to connect to. */
  readonly port: number;
  /** IP address to bind to before connecting. Default: the system picks one. */
  readonly localAddress?: string;
  /** Port to bind to before connecting. Default 0: the system picks one. */
  readonly localPort?: number;
  /** Look up the host name for this family only: 4 for IPv4, 6 for IPv6. */
  readonly family?: 4 | 6;
  /** Path of a Unix socket to connect to in place of a host, which is the path too then, and a port. */
  readonly path?: string;
  /** The way to the other thread, in place of a name; the path only describes it then. */
  readonly messagePort?: ThreadPort;
  /** Speak TLS on the connection, before anything else. */
  readonly tls?: TlsOptions;
  /** An established byte stream to use in place of a new connection. */
  readonly over?: Port;
}

/** Cancels a connection attempt; its callback is then never called. */
export type CancelConnect = () => void;

/** Where to listen. */
export interface ListenTarget {
  /** Address to bind to. Default: every address. */
  readonly host?: string;
  /** TCP port; 0 picks a free one. */
  readonly port?: number;
  /** Connections that the system may queue before they are accepted. */
  readonly backlog?: number;
  /** Accept IPv6 only, and no mapped IPv4. */
  readonly ipv6Only?: boolean;
  /**
   * Share the port with other listeners that also set this. A transport that cannot do so answers
   * ERR_NOT_SUPPORTED.
   */
  readonly reusePort?: boolean;
  /** Path of a Unix socket to listen on, in place of an address. */
  readonly path?: string;
  /** Take the connections that come over this, in place of a name; the path only describes it then. */
  readonly messagePort?: ThreadPort;
  /** Every user of the machine may read from the Unix socket. */
  readonly readableAll?: boolean;
  /** Every user of the machine may write to the Unix socket. */
  readonly writableAll?: boolean;
  /**
   * @internal Asked before each TCP connection becomes a port: where its socket goes instead, or null. Only
   *   of a transport over `node:net`.
   */
  readonly elsewhere?: (() => ((socket: Socket) => void) | null) | undefined;
  /** Speak TLS on each connection, before anything else. */
  readonly tls?: TlsOptions;
}

/** A bound listener. */
export interface PortListener {
  /** Where it listens, with the port that was picked. */
  readonly address: PortAddress;
  /** Stop accepting; `done` is called when the address is free. Accepted ports go on. */
  close(done?: () => void): void;
  /** Optional: set whether the listener holds the process. It does until this is called. */
  setRef?(on: boolean): void;
}

/** Called once, asynchronously, with the listener or an error. */
export type ListenReady = (listener: PortListener | undefined, error?: Error) => void;

/** Makes connections and listeners. If a method throws, that counts as a failure. */
export interface Transport {
  /** Whether it speaks TLS where a target asks for that. Default false: such a target is refused. */
  readonly tls?: boolean | undefined;
  /** Whether a target may be the path of a Unix socket. Default false: such a target is refused. */
  readonly paths?: boolean | undefined;
  /**
   * Optional: read for its ports, up to a limit, in a call of a program that polls. Where it is missing, only
   * turns of the event loop do so.
   */
  look?(): void;
  /** `done` is called once, asynchronously, with (port) or with (undefined, error). */
  connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect;
  /**
   * `ready` is called once, with the listener or an error. Then `accept` is called for each connection, and
   * `failed` if one could not be accepted (for lack of descriptors, for example); the listener goes on.
   */
  listen(
    target: ListenTarget,
    accept: (port: Port) => void,
    ready: ListenReady,
    failed?: (error: Error) => void,
  ): void;
}
