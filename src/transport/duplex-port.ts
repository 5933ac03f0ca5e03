/**
 * A port over an established Duplex: a socket that has spoken another protocol before, a TLS socket, or any
 * other byte stream of Node.
 *
 * Read first: `port.ts` (the contract). Received bytes are borrowed from the chunks of 'data' events. A
 * Duplex may emit those while it is being written to, which a port must not do: such chunks wait for the next
 * tick.
 */
import { setImmediate } from 'node:timers';
import { nextTick } from 'node:process';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { NO_BYTES } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { interfaceMtu } from './interface-mtu.ts';
import type { Port, PortAddress, PortHandler, WriteDone } from './port.ts';
import type { TlsInfo } from './tls-options.ts';
import { codeOf } from './tcp-port.ts';

/** Of a Duplex that has no address: a pipe, or a stream through another protocol. */
const NOWHERE: PortAddress = { address: '0.0.0.0', port: 0, family: 'IPv4' };

/** The two ends of a socket, as far as it has any. */
export function endsOf(duplex: Duplex): { readonly local: PortAddress; readonly remote: PortAddress } {
  const { localAddress, localPort, remoteAddress, remotePort } = duplex as Partial<Socket>;
  return { local: addressOf(localAddress, localPort), remote: addressOf(remoteAddress, remotePort) };
}

function addressOf(address: string | undefined, port: number | undefined): PortAddress {
  if (typeof address !== 'string' || typeof port !== 'number') return NOWHERE;
  return { address, port, family: address.includes(':') ? 'IPv6' : 'IPv4' };
}

/** A port over a Duplex. It begins to read when it has both a handler and a Duplex. */
export class DuplexPort implements Port {
  readonly localAddress: PortAddress;
  readonly remoteAddress: PortAddress;
  /** Results of the TLS handshake; undefined before it, and without TLS. */
  tls: TlsInfo | undefined;
  /** Null while a handshake is under way. */
  #duplex: Duplex | null = null;
  /** The TCP socket below, if it is known: that one can be reset. */
  readonly #socket: Socket | null;
  #handler: PortHandler | null = null;
  #state: 'open' | 'ended' | 'resetting' | 'closed' = 'open';
  #paused = false;
  #peerEnded = false;
  #error: Error | undefined;
  readonly #dones: WriteDone[] = [];
  /** Calls of the user that are on the stack. */
  #inside = 0;
  /** Chunks that came during such a call, and null for the end of the stream. */
  readonly #held: (Uint8Array | null)[] = [];

  /** The socket is what carries the bytes in the end; null for a Duplex that is no socket. */
  constructor(socket: Socket | null, ends: ReturnType<typeof endsOf>) {
    this.#socket = socket;
    this.localAddress = ends.local;
    this.remoteAddress = ends.remote;
  }

  get mtu(): number | undefined {
    return this.#socket === null ? undefined : interfaceMtu(this.localAddress.address);
  }

  /** Sets the stream to read and write from now on. */
  open(duplex: Duplex, tls?: TlsInfo): void {
    this.#duplex = duplex;
    this.tls = tls;
    duplex.on('data', (chunk: Uint8Array) => this.#arrived(chunk));
    duplex.on('end', () => this.#arrived(null));
    duplex.on('error', (error: Error) => {
      this.#error ??= error;
      // TLS reports a peer that renegotiates too often, and goes on. It does so out of OpenSSL, which crashes
      // in Node 24 if the socket is gone when it goes on.
      if (!duplex.destroyed) setImmediate(() => this.reset());
    });
    duplex.on('close', () => this.closed());
    if (this.#handler === null || this.#paused) duplex.pause();
    else duplex.resume();
  }

  attach(handler: PortHandler): void {
    if (this.#handler !== null) throw new IwarpError('ERR_INVALID_STATE', 'the port has a handler already');
    this.#handler = handler;
    if (this.#state === 'closed') nextTick(() => handler.onClose(this.#closeError()));
    else if (!this.#paused) this.#start();
  }

  #start(): void {
    if (this.#held.length > 0) nextTick(() => this.#deliverHeld());
    this.#duplex?.resume();
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#state === 'ended') throw new IwarpError('ERR_INVALID_STATE', 'write after end');
    const duplex = this.#duplex;
    if (this.#state === 'closed' || duplex === null) {
      nextTick(done, false);
      return false;
    }
    this.#dones.push(done);
    // A destroyed stream answers all that is left from its 'close' event, in order.
    if (duplex.destroyed || this.#state === 'resetting') return false;
    this.#inside++;
    const last = chunks[count - 1] ?? NO_BYTES;
    if (count > 1) {
      duplex.cork();
      for (let i = 0; i < count - 1; i++) duplex.write(chunks[i] ?? NO_BYTES);
      duplex.write(last, this.#written);
      duplex.uncork();
    } else {
      duplex.write(last, this.#written);
    }
    this.#inside--;
    return false;
  }

  readonly #written = (error?: Error | null): void => {
    if (error || this.#duplex!.destroyed) return; // answered when it closes
    // A stream that takes a write within the call has taken it, and says so there.
    if (this.#inside > 0) nextTick(() => this.#dones.shift()?.(true));
    else this.#dones.shift()?.(true);
  };

  end(): void {
    if (this.#state !== 'open') return;
    this.#state = 'ended';
    this.#inside++;
    this.#duplex?.end();
    this.#inside--;
  }

  reset(): void {
    if (this.#state === 'resetting' || this.#state === 'closed') return;
    this.#state = 'resetting';
    this.#error ??= new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side');
    const socket = this.#socket;
    const shuttingDown =
      socket !== null && socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
    // A TLS socket cannot be reset, only one that it stands on.
    const canReset = socket !== null && (this.tls === undefined || socket !== this.#duplex);
    if (canReset && !shuttingDown && !socket.destroyed) socket.resetAndDestroy();
    else socket?.destroy();
    this.#duplex?.destroy();
    if (this.#duplex === null || this.#duplex.closed) nextTick(() => this.closed());
  }

  pause(): void {
    this.#paused = true;
    this.#duplex?.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (this.#handler !== null) this.#start();
  }

  setRef(on: boolean): void {
    if (on) this.#socket?.ref();
    else this.#socket?.unref();
  }

  setKeepAlive(on: boolean, delay: number): boolean {
    this.#socket?.setKeepAlive(on, delay);
    return this.#socket !== null;
  }

  #arrived(chunk: Uint8Array | null): void {
    if (this.#inside > 0 || this.#held.length > 0 || this.#paused || this.#handler === null) {
      if (this.#held.push(chunk) === 1 && !this.#paused) nextTick(() => this.#deliverHeld());
      return;
    }
    this.#deliver(chunk);
  }

  #deliverHeld(): void {
    while (this.#held.length > 0 && !this.#paused && this.#handler !== null) {
      const chunk = this.#held[0]!;
      this.#held.shift();
      this.#deliver(chunk);
    }
  }

  #deliver(chunk: Uint8Array | null): void {
    if (this.#state !== 'open' && this.#state !== 'ended') return;
    if (chunk !== null) {
      this.#handler!.onData(chunk, 0, chunk.length);
      return;
    }
    this.#peerEnded = true;
    this.#handler!.onEnd();
  }

  /** A handshake below has failed: this is why. */
  failed(error: Error): void {
    this.#error ??= error;
  }

  /** The stream, or the socket of a handshake that has failed, is closed. */
  closed(): void {
    if (this.#state === 'closed') return;
    if (this.#held.length > 0 && this.#state !== 'resetting' && this.#handler !== null && !this.#paused)
      this.#deliverHeld();
    const orderly = this.#state === 'ended' && this.#peerEnded;
    if (!orderly) this.#error ??= new IwarpError('ERR_CONNECTION_CLOSED', 'the connection was closed');
    this.#state = 'closed';
    for (const done of this.#dones.splice(0)) done(false);
    this.#handler?.onClose(this.#closeError());
  }

  #closeError(): Error | undefined {
    const error = this.#error;
    if (error === undefined || error instanceof IwarpError) return error;
    return new IwarpError('ERR_CONNECTION_RESET', `the connection was lost (${codeOf(error)})`, {
      cause: error,
    });
  }
}
