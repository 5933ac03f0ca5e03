/** The owner of a key-value store: the table, and the edges through which clients come. */
import { clearInterval, setInterval } from 'node:timers';
import { Buffer } from 'node:buffer';
import type { Server as NetServer, AddressInfo } from 'node:net';
import { openRnic, type EngineKind, type Rnic } from '../api/environment.ts';
import {
  checkInteger,
  checkOneOf,
  checkOptions,
  checkBoolean,
  IwarpError,
  type Names,
} from '../base/errors.ts';
import { randomSeed } from './random-seed.ts';
import { Counters } from './counters.ts';
import { EdgeMemory } from './edge-memory.ts';
import { Keyspace } from './keyspace.ts';
import { MAX_OCTETS, MIN_OCTETS } from './layout.ts';
import { createMemcachedServer } from './memcached-edge.ts';
import { MemcachedStore } from './memcached-store.ts';
import { openLog, type ChangeLog } from './persistence.ts';
import { RdmaEdge } from './rdma-edge.ts';
import { createRespServer } from './resp-edge.ts';
import { Table } from './table.ts';
import { UrdmaEdge } from './urdma-edge.ts';
import { URDMA_PAGE, UrdmaValues } from './urdma-values.ts';

/** What a store speaks with its RDMA clients: our own protocol, or that of the paper's program urdma. */
export const STORE_PROFILES = ['iwarp', 'urdma'] as const;
/** One of `STORE_PROFILES`. */
export type StoreProfile = (typeof STORE_PROFILES)[number];

/** Options of {@link createStore}. */
export interface StoreOptions {
  /**
   * Bytes of the table, 1 MiB to 4 GiB. Default 64 MiB. With the profile `urdma` half of it, and at least 1
   * MiB, is for the values that clients reach in place.
   */
  readonly octets?: number | undefined;
  /** Whether a full table lets keys go that were not used lately; else it refuses new ones. Default true. */
  readonly evict?: boolean | undefined;
  /** Counters that clients may add to by atomic operations, 8 bytes each. Default 65536. */
  readonly counters?: number | undefined;
  /** Where the streams run. Default `worker`: clients read while the owner's program computes. */
  readonly engine?: EngineKind | undefined;
  /** Device that carries the connections, in place of one of the store's own. */
  readonly rnic?: Rnic | undefined;
  /** Keep all changes in a file in this folder, and read it when the store is made. Default: no. */
  readonly persist?: string | undefined;
  /**
   * With `persist`: wait for the disk before each answer, so that not even a power failure loses one. Default
   * false.
   */
  readonly fsync?: boolean | undefined;
  /**
   * `iwarp` for clients of {@link connect}, whose reads are proven whole; `urdma` for clients of the paper's
   * key-value store and {@link connectUrdma}, which read **and write** values in place without any proof.
   * Default `iwarp`.
   */
  readonly profile?: StoreProfile | undefined;
}

/** Where a store listens: an edge that is not named is not opened. Port 0 is one that the system picks. */
export interface StoreListenOptions {
  /** Address to bind to. Default `127.0.0.1`: any peer that can connect can read and change everything. */
  readonly host?: string | undefined;
  /** Port for RDMA clients. */
  readonly rdma?: number | undefined;
  /** Port for clients of Redis. */
  readonly resp?: number | undefined;
  /** Port for clients of memcached. */
  readonly memcached?: number | undefined;
}

/** The ports that {@link KvStore.listen} has bound. */
export interface StorePorts {
  /** The port for RDMA clients. */
  readonly rdma: number | undefined;
  /** The port for clients of Redis. */
  readonly resp: number | undefined;
  /** The port for clients of memcached. */
  readonly memcached: number | undefined;
}

/** Numbers of {@link KvStore.stats}. */
export interface StoreStats {
  /** Keys that are there. */
  readonly keys: number;
  /** Keys that went to make room. */
  readonly evicted: number;
  /** Keys whose time was over. */
  readonly expired: number;
  /** Reads through this thread that found a key; RDMA clients' own reads are not seen. */
  readonly hits: number;
  /** Reads through this thread that found none. */
  readonly misses: number;
  /** RDMA clients. */
  readonly rdmaClients: number;
  /** Clients of the other edges. */
  readonly clients: number;
}

const OPTIONS: Names<StoreOptions> = {
  octets: true,
  evict: true,
  counters: true,
  engine: true,
  rnic: true,
  persist: true,
  fsync: true,
  profile: true,
};
const LISTEN: Names<StoreListenOptions> = { host: true, rdma: true, resp: true, memcached: true };

/** How often keys whose time is over are looked for, and how many buckets at a time. */
const SWEEP_MS = 100;
const SWEEP_BUCKETS = 64;

/** A key-value store; made by {@link createStore}. */
export class KvStore {
  readonly #table: Table;
  readonly #keys: Keyspace;
  readonly #counters: Counters;
  readonly #memcached: MemcachedStore;
  readonly #rnic: Rnic;
  readonly #ownsRnic: boolean;
  readonly #log: ChangeLog | null;
  readonly #sweeper: NodeJS.Timeout;
  readonly #servers: NetServer[] = [];
  readonly #clients: EdgeMemory;
  readonly #rdma: (RdmaEdge | UrdmaEdge)[] = [];
  /** Values that clients reach in place, with the profile urdma. */
  readonly #values: UrdmaValues | null;
  #isClosed = false;

  /** @internal Use {@link createStore}. */
  constructor(options: StoreOptions) {
    const {
      octets = 64 * 2 ** 20,
      evict = true,
      counters = 65_536,
      engine = 'worker',
      rnic,
      persist,
      profile = 'iwarp',
    } = options;
    checkOneOf('options.profile', profile, STORE_PROFILES);
    const isUrdma = profile === 'urdma';
    checkInteger('options.octets', octets, isUrdma ? 2 * MIN_OCTETS : MIN_OCTETS, MAX_OCTETS);
    const inPlace = isUrdma ? URDMA_PAGE * Math.floor(octets / 2 / URDMA_PAGE) : 0;
    const own = octets - inPlace;
    checkBoolean('options.evict', evict);
    checkInteger('options.counters', counters, 1, 2 ** 24);
    const now = (): number => Date.now();
    this.#table = new Table(own - (own % 64), { seed: randomSeed(), evicts: evict, now });
    this.#counters = new Counters(counters);
    this.#clients = new EdgeMemory(octets);
    this.#keys = new Keyspace(this.#table, this.#counters, now);
    this.#memcached = new MemcachedStore(this.#keys);
    this.#values = isUrdma ? new UrdmaValues(inPlace, this.#keys) : null;
    this.#log = persist === undefined ? null : openLog(persist, this.#keys, options.fsync === true);
    this.#ownsRnic = rnic === undefined;
    this.#rnic = rnic ?? openRnic({ engine });
    let bucket = 0;
    this.#sweeper = setInterval(() => {
      for (let i = 0; i < SWEEP_BUCKETS; i++, bucket++)
        this.#table.sweep(bucket % this.#table.geometry.buckets);
    }, SWEEP_MS).unref();
  }

  /**
   * Open the edges that have a port. Rejects with ERR_CONNECT if one cannot be bound.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED after close
   */
  async listen(options: StoreListenOptions): Promise<StorePorts> {
    checkOptions('options', options, LISTEN);
    const { host = '127.0.0.1', rdma, resp, memcached } = options;
    for (const [name, port] of Object.entries({ rdma, resp, memcached }))
      if (port !== undefined) checkInteger(`options.${name}`, port, 0, 65_535);
    if (this.#isClosed) throw new IwarpError('ERR_DESTROYED', 'the store has been closed');
    return {
      resp:
        resp === undefined
          ? undefined
          : await this.#bind(createRespServer(this.#keys, this.#clients), resp, host),
      memcached:
        memcached === undefined
          ? undefined
          : await this.#bind(createMemcachedServer(this.#memcached, this.#clients), memcached, host),
      rdma: rdma === undefined ? undefined : await this.#bindRdma(rdma, host),
    };
  }

  /** Numbers of the table and its clients. */
  stats(): StoreStats {
    const rdmaClients = this.#rdma.reduce((sum, { connections }) => sum + connections.size, 0);
    return { ...this.#table.counters, rdmaClients, clients: this.#clients.connections };
  }

  /** The value of a key, in separate memory; null if there is none. Counters are in decimal. */
  get(key: string | Uint8Array): Uint8Array | null {
    return this.#memcached.get(keyBytes(key))?.value ?? null;
  }

  /**
   * Store a value; `ttl` is in milliseconds, 0 for ever.
   *
   * @throws ERR_TOO_LARGE, ERR_LIMIT if the table is full and does not evict
   */
  set(key: string | Uint8Array, value: string | Uint8Array, options: { readonly ttl?: number } = {}): void {
    const { ttl = 0 } = options;
    checkInteger('options.ttl', ttl, 0, Number.MAX_SAFE_INTEGER);
    const expiry = ttl === 0 ? 0 : this.#keys.now() + ttl;
    this.#keys.put(keyBytes(key), keyBytes(value), 0, expiry);
  }

  /** Remove a key; true if it was there. */
  delete(key: string | Uint8Array): boolean {
    return this.#keys.delete(keyBytes(key));
  }

  /** Stop listening, drop all clients, and write the contents to be kept. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#sweeper);
    this.#memcached.close();
    for (const socket of this.#clients.sockets) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
    for (const edge of this.#rdma) await edge.close();
    if (this.#ownsRnic) this.#rnic.device.close();
    this.#log?.close();
  }

  async #bind(server: NetServer, port: number, host: string): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause) =>
        reject(new IwarpError('ERR_CONNECT', `cannot listen: ${cause.message}`, { cause })),
      );
      server.listen(port, host, resolve);
    });
    this.#servers.push(server);
    return (server.address() as AddressInfo).port;
  }

  async #bindRdma(port: number, host: string): Promise<number> {
    const edge =
      this.#values === null
        ? new RdmaEdge(this.#rnic, this.#memcached, this.#counters, () => this.stats())
        : new UrdmaEdge(this.#rnic, this.#memcached, this.#values);
    try {
      await edge.server.listen({ port, host });
    } catch (error) {
      await edge.close();
      throw error;
    }
    this.#rdma.push(edge);
    return edge.server.address()!.port;
  }
}

function keyBytes(value: string | Uint8Array): Uint8Array {
  return typeof value === 'string' ? Buffer.from(value) : value;
}

/**
 * Make a key-value store. Its table is one registered region: RDMA clients read it without any code of the
 * owner; everything else goes through messages and the two edges.
 *
 * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT if the process has no memory for it, ERR_ACCESS for a `persist`
 *   folder that cannot be used
 *
 * @example
 * const store = createStore({ octets: 256 * 2 ** 20 });
 * await store.listen({ rdma: 7480, resp: 6380, memcached: 11311 });
 */
export function createStore(options: StoreOptions = {}): KvStore {
  checkOptions('options', options, OPTIONS);
  return new KvStore(options);
}
