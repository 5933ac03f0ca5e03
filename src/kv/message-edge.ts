/** The edges of both profiles for RDMA clients, as far as they are alike: memory, a server, and messages. */
import { Buffer } from 'node:buffer';
import type { Rnic } from '../api/environment.ts';
import type { Connection } from '../api/connection.ts';
import { createServer, type Server, type ServerOptions } from '../api/server.ts';
import type { MemoryRegion, ProtectionDomain } from '../verbs/index.ts';
import { MOST_CONNECTIONS } from './edge-memory.ts';

export abstract class MessageEdge {
  readonly server: Server;
  readonly connections: Set<Connection> = new Set();
  readonly #pd: ProtectionDomain;
  readonly #regions: MemoryRegion[] = [];

  constructor(rnic: Rnic, options: Omit<ServerOptions, 'rnic' | 'pd' | 'onError'>) {
    this.#pd = rnic.device.allocatePd();
    this.server = createServer(
      {
        rnic,
        pd: this.#pd,
        maxConnections: MOST_CONNECTIONS,
        onError: (_error, connection) => connection?.destroy(),
        ...options,
      },
      (connection) => this.#serve(connection),
    );
  }

  /** Memory that clients reach until the edge is closed. */
  protected register(memory: Uint8Array, rights: number): MemoryRegion {
    const region = this.#pd.registerMemory(memory, rights, { shared: true });
    this.#regions.push(region);
    return region;
  }

  /** Carry out a message and send what answers it. An error ends the connection. */
  protected abstract answer(connection: Connection, frame: Buffer): Promise<unknown>;

  /** Stop, drop the clients, and give the registrations back. */
  async close(): Promise<void> {
    const ended = [...this.connections].map(({ closed }) => closed);
    for (const connection of this.connections) connection.destroy();
    await this.server.close();
    await Promise.all(ended);
    for (const region of this.#regions) region.deregister();
    this.#pd.deallocate();
  }

  async #serve(connection: Connection): Promise<void> {
    this.connections.add(connection);
    try {
      for await (const message of connection.messages()) {
        const frame = Buffer.from(message.data);
        message.release();
        await this.answer(connection, frame);
      }
    } finally {
      this.connections.delete(connection);
      connection.destroy();
    }
  }
}
