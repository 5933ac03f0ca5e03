// One TCP connection as the probe uses it: octets in, octets out, how it ended, and a record of everything
// for captures. Reading never blocks the peer unless a case asks for it (`pause`).

import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { performance } from 'node:perf_hooks';

/** How the peer ended its direction. */
export type End = 'fin' | 'rst';

/** One thing that happened on the wire, for captures. */
export interface CaptureEntry {
  /** Milliseconds since the case began. */
  readonly at: number;
  readonly connection: number;
  readonly from: 'probe' | 'peer';
  readonly kind: 'open' | 'data' | 'fin' | 'rst';
  readonly bytes: Uint8Array;
}

export type Capture = CaptureEntry[];

const NOTHING = new Uint8Array(0);

export class Channel {
  readonly #socket: Socket;
  readonly #capture: Capture;
  readonly #index: number;
  readonly #inbox: Uint8Array[] = [];
  #wake: (() => void) | null = null;
  #end: End | null = null;
  #finished = false;

  /** @param index number of the connection within its case */
  constructor(socket: Socket, capture: Capture, index: number, opener: 'probe' | 'peer') {
    this.#socket = socket;
    this.#capture = capture;
    this.#index = index;
    socket.setNoDelay(true);
    this.#record(opener, 'open', NOTHING);
    socket.on('data', (chunk) => {
      const bytes = Uint8Array.from(chunk);
      this.#record('peer', 'data', bytes);
      this.#inbox.push(bytes);
      this.#notify();
    });
    socket.on('end', () => this.#endOfStream());
    // EPIPE and ECONNRESET alike: the peer has closed with or without taking what we sent.
    socket.on('error', () => this.#ended('rst'));
    socket.on('close', () => {
      if (!this.#finished && this.#end === null) this.#ended('rst');
    });
  }

  /** How the peer ended, once everything before it has been taken. */
  get end(): End | null {
    return this.#inbox.length > 0 ? null : this.#end;
  }

  /** Neither side has ended. */
  get open(): boolean {
    return this.#end === null && !this.#finished;
  }

  write(bytes: Uint8Array): void {
    if (bytes.length === 0 || this.#finished) return;
    this.#record('probe', 'data', bytes);
    this.#socket.write(bytes);
  }

  /** FIN after everything written. */
  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#record('probe', 'fin', NOTHING);
    this.#socket.end();
  }

  /** RST at once. */
  reset(): void {
    this.#finished = true;
    this.#record('probe', 'rst', NOTHING);
    this.#socket.resetAndDestroy();
  }

  /** Let go of the socket, whatever its state. */
  destroy(): void {
    this.#finished = true;
    this.#socket.destroy();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Octets that have arrived, or null. */
  take(): Uint8Array | null {
    return this.#inbox.shift() ?? null;
  }

  /** Wait until there are octets or the peer has ended; false after `ms`. */
  async wait(ms: number): Promise<boolean> {
    if (this.#inbox.length > 0 || this.#end !== null) return true;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#wake = null;
        resolve(false);
      }, ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = null;
        resolve(true);
      };
    });
  }

  /**
   * FIN, or a reset that found octets which had not been read: libuv delivers those and then an end of stream
   * like that of a FIN. A write of no octets distinguishes the two, since the system answers it with the
   * error that it has kept. Where none can be made, after our own FIN or after octets that the peer does not
   * take, an end is believed.
   */
  #endOfStream(): void {
    if (this.#finished || this.#socket.writableLength > 0) {
      this.#ended('fin');
      return;
    }
    this.#socket.write(NOTHING, (error) => this.#ended(error && !this.#finished ? 'rst' : 'fin'));
  }

  #ended(how: End): void {
    if (this.#end === null) {
      this.#end = how;
      this.#record('peer', how, NOTHING);
    }
    this.#notify();
  }

  #notify(): void {
    this.#wake?.();
  }

  #record(from: 'probe' | 'peer', kind: CaptureEntry['kind'], bytes: Uint8Array): void {
    this.#capture.push({ at: performance.now(), connection: this.#index, from, kind, bytes: bytes.slice() });
  }
}

/** Connect; null when nobody answers within `ms`. */
export function openChannel(host: string, port: number, ms: number): Promise<Socket | null> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, allowHalfOpen: true, noDelay: true });
    const timer = setTimeout(() => {
      socket.destroy();
      resolve(null);
    }, ms);
    const fail = (): void => {
      clearTimeout(timer);
      resolve(null);
    };
    socket.once('error', fail);
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.off('error', fail);
      resolve(socket);
    });
  });
}

/** Waits for peers to connect, one connection at a time. */
export class Listener {
  readonly #server: Server;
  readonly #waiting: Socket[] = [];
  #wake: (() => void) | null = null;

  private constructor(server: Server) {
    this.#server = server;
    server.on('connection', (socket) => {
      // Until a case takes it the socket only has to survive.
      socket.on('error', () => undefined);
      this.#waiting.push(socket);
      this.#wake?.();
    });
  }

  static open(host: string, port: number): Promise<Listener> {
    return new Promise((resolve, reject) => {
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
      server.once('error', reject);
      server.listen(port, host, () => {
        server.off('error', reject);
        resolve(new Listener(server));
      });
    });
  }

  get address(): { host: string; port: number } {
    const address = this.#server.address() as AddressInfo;
    return { host: address.address, port: address.port };
  }

  /** Drop connections that came while nobody wanted one. */
  clear(): void {
    for (const socket of this.#waiting.splice(0)) socket.destroy();
  }

  /** The next live connection, or null after `ms`. */
  async accept(ms: number): Promise<Socket | null> {
    const deadline = performance.now() + ms;
    for (;;) {
      const socket = this.#waiting.shift();
      if (socket !== undefined) {
        if (socket.destroyed) continue;
        socket.removeAllListeners('error');
        return socket;
      }
      const left = deadline - performance.now();
      if (left <= 0 || !this.#server.listening) return null;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = null;
    }
  }

  close(): void {
    this.clear();
    this.#server.close();
    this.#wake?.();
  }
}
