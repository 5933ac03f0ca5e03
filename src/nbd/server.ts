/** An NBD server over TCP, Unix sockets and any other byte stream. */
import { createServer as createNetServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import type { Rnic } from '../api/environment.ts';
import { acceptDuplex } from '../qpip/duplex.ts';
import { ExportTable, type ExportSource } from './exports.ts';
import { listenRdma, type RdmaListenOptions, type RdmaNbdListener } from './qp-server.ts';
import { ServerConnection } from './server-connection.ts';
import { noStats, type NbdStats } from './stats.ts';

/** Options of {@link createServer}. */
export interface NbdServerOptions {
  /** Devices by name, or functions that open them. The empty name also means the only export. */
  readonly exports: Readonly<Record<string, ExportSource>>;
  /** Milliseconds that a client has for each frame of the handshake. Default 10000. */
  readonly handshakeTimeout?: number | undefined;
  /**
   * Milliseconds after which a device that has not answered counts as failed (EIO), or one that does not open
   * as absent. Default 30000.
   */
  readonly requestTimeout?: number | undefined;
  /** Connections at a time; further ones are closed at once. Default 256. */
  readonly maxConnections?: number | undefined;
}

/** Where to listen: a TCP port, or the path of a Unix socket. */
export type NbdListenOptions =
  | { readonly port: number; readonly host?: string | undefined }
  | { readonly path: string };

const NAMES: Names<NbdServerOptions> = {
  exports: true,
  handshakeTimeout: true,
  requestTimeout: true,
  maxConnections: true,
};
const MOST_MS = 0x7fff_ffff;

/**
 * Make a server. It serves after {@link NbdServer.listen}, {@link NbdServer.listenRdma} or
 * {@link NbdServer.serve}.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const server = createServer({ exports: { disk: memoryDevice({ size: 1 << 26 }) } });
 * await server.listen({ port: 10809 });
 */
export function createServer(options: NbdServerOptions): NbdServer {
  return new NbdServer(options);
}

/** A server of block devices. */
export class NbdServer {
  readonly #exports: ExportTable;
  readonly #limits: { readonly handshakeTimeout: number; readonly requestTimeout: number };
  readonly #maxConnections: number;
  readonly #stats: NbdStats = noStats();
  readonly #listeners = new Set<Server>();
  readonly #rdma = new Set<RdmaNbdListener>();
  readonly #connections = new Set<ServerConnection>();
  #closed = false;

  /** @internal Use {@link createServer}. */
  constructor(options: NbdServerOptions) {
    checkOptions('options', options, NAMES);
    const { handshakeTimeout = 10_000, requestTimeout = 30_000, maxConnections = 256 } = options;
    this.#limits = {
      handshakeTimeout: checkInteger('options.handshakeTimeout', handshakeTimeout, 1, MOST_MS),
      requestTimeout: checkInteger('options.requestTimeout', requestTimeout, 1, MOST_MS),
    };
    this.#exports = new ExportTable(options.exports, requestTimeout);
    this.#maxConnections = checkInteger('options.maxConnections', maxConnections, 1, 1_000_000);
  }

  /** Counters over all connections. */
  stats(): Readonly<NbdStats> {
    return { ...this.#stats };
  }

  /** Connections over byte streams that are open. */
  get connections(): number {
    return this.#connections.size;
  }

  /**
   * Listen on a TCP port or a Unix socket; returns the address. Several listeners may serve one server.
   *
   * Rejects with ERR_CONNECT if the address cannot be bound.
   *
   * @throws ERR_DESTROYED after `close()`
   */
  async listen(options: NbdListenOptions): Promise<AddressInfo | string> {
    this.#checkOpen();
    const listener = createNetServer({ noDelay: true }, (socket: Socket) => {
      // Connections that nobody serves keep nothing.
      if (this.#connections.size >= this.#maxConnections) socket.destroy();
      else void this.serve(socket);
    });
    await new Promise<void>((resolve, reject) => {
      listener.once('error', (cause) =>
        reject(new IwarpError('ERR_CONNECT', `cannot listen: ${cause.message}`, { cause })),
      );
      listener.listen(options, resolve);
    });
    this.#listeners.add(listener);
    return listener.address()!;
  }

  /**
   * Listen for queue pairs; both modes are served. With a device of the wire `qpip` they are plain TCP
   * connections, and their clients are stock NBD clients. Needs memory of the devices over a
   * SharedArrayBuffer with worker engines, or copies.
   *
   * Rejects with ERR_CONNECT if the address cannot be bound.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED after `close()`
   */
  async listenRdma(options: RdmaListenOptions): Promise<{ readonly host: string; readonly port: number }> {
    this.#checkOpen();
    if (options.rnic?.device.wire === 'qpip') return await this.#listenPlain(options, options.rnic);
    const listener = await listenRdma(options, {
      exports: this.#exports,
      stats: this.#stats,
      requestTimeout: this.#limits.requestTimeout,
      maxConnections: this.#maxConnections,
    });
    this.#rdma.add(listener);
    return listener.address;
  }

  /** Over plain TCP queue pairs speak what stock clients speak. */
  async #listenPlain(
    { host, port = 0 }: RdmaListenOptions,
    rnic: Rnic,
  ): Promise<{ readonly host: string; readonly port: number }> {
    const listener = await rnic.cm.listen({ port, ...(host !== undefined && { host }) }, (request) => {
      if (this.#connections.size < this.#maxConnections) void this.serve(acceptDuplex(rnic, request));
      else request.reject();
    });
    const { address } = listener;
    const bound = {
      address: { host: address.address, port: address.port },
      close: () => new Promise<void>((resolve) => listener.close(resolve)),
    };
    this.#rdma.add(bound);
    return bound.address;
  }

  /**
   * Serve one client on a byte stream that is open: a socket, an `RdmaSocket`, any Duplex. Resolves when the
   * connection has ended.
   */
  async serve(stream: Duplex): Promise<void> {
    this.#checkOpen();
    const connection = new ServerConnection(stream, this.#exports, this.#stats, this.#limits);
    this.#connections.add(connection);
    try {
      await connection.run();
    } finally {
      this.#connections.delete(connection);
    }
  }

  /** Stop listening and end all connections. Devices stay open. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const connection of this.#connections) connection.destroy();
    const closed = [...this.#listeners].map(
      (listener) => new Promise<void>((resolve) => void listener.close(() => resolve())),
    );
    this.#listeners.clear();
    await Promise.all([...closed, ...[...this.#rdma].map((listener) => listener.close())]);
    this.#rdma.clear();
  }

  #checkOpen(): void {
    if (this.#closed) throw new IwarpError('ERR_DESTROYED', 'the server has been closed');
  }
}
