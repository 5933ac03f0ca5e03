/**
 * What clients of the Redis and memcached edges hold of the owner's memory, together: requests that are not
 * whole yet, transactions that have not ended, replies that nobody has read. Above the limit the connection
 * that holds most is dropped, so that no number of clients makes a store larger than its owner asked for.
 */
import type { Server, Socket } from 'node:net';

/** Held beside as much as the table has: a small store has clients too. */
const SPARE = 16 * 2 ** 20;
/** Connections of one edge at a time: each costs some kilobytes, whatever it holds. */
export const MOST_CONNECTIONS = 10_000;
/** Bytes that a separate Buffer takes beside its length. */
export const BUFFER_OCTETS = 128;

export class EdgeMemory {
  readonly #most: number;
  readonly #held = new Map<Socket, number>();
  #total = 0;

  /** Beside a table of this number of bytes. */
  constructor(octets: number) {
    this.#most = octets + SPARE;
  }

  /** The connections of both edges. */
  get sockets(): Iterable<Socket> {
    return this.#held.keys();
  }

  get connections(): number {
    return this.#held.size;
  }

  /** Count the connections of a server. */
  watch(server: Server): void {
    server.maxConnections = MOST_CONNECTIONS;
    server.on('connection', (socket) => {
      this.#held.set(socket, 0);
      socket.once('close', () => {
        this.#note(socket, 0);
        this.#held.delete(socket);
      });
    });
  }

  /** A connection holds this many bytes now. */
  holds(socket: Socket, octets: number): void {
    if (socket.destroyed) return;
    this.#note(socket, octets);
    while (this.#total > this.#most) this.#dropLargest();
  }

  #note(socket: Socket, octets: number): void {
    this.#total += octets - this.#held.get(socket)!;
    this.#held.set(socket, octets);
  }

  #dropLargest(): void {
    let [largest, most]: [Socket | null, number] = [null, 0];
    for (const [socket, octets] of this.#held) if (octets > most) [largest, most] = [socket, octets];
    this.#note(largest!, 0);
    largest!.destroy();
  }
}

/** Bytes that may be in use at a time; those that find no room wait in line. */
export class Room {
  #left: number;
  readonly #line: { readonly octets: number; readonly enter: () => void }[] = [];

  constructor(octets: number) {
    this.#left = octets;
  }

  /** Resolves when there is room, which then is taken. */
  take(octets: number): Promise<void> {
    return new Promise((enter) => {
      this.#line.push({ octets, enter });
      this.#admit();
    });
  }

  give(octets: number): void {
    this.#left += octets;
    this.#admit();
  }

  #admit(): void {
    for (let [first] = this.#line; first !== undefined && first.octets <= this.#left; [first] = this.#line) {
      this.#left -= first.octets;
      this.#line.shift();
      first.enter();
    }
  }
}
