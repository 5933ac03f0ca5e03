/** Connections of the promise layer over the in-memory network and over real sockets. */
import { onTestFinished } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  type Connection,
  type MemoryRegion,
  type PeerAccess,
  type Rnic,
  type ServerOptions,
} from '../../src/index.ts';
import type { ConnectOptions } from '../../src/api/connect.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';

/** Where the two ends live. The in-memory network runs on the real clock here, because promises do. */
export type World = 'memory' | 'tcp, onread' | 'tcp, data' | 'worker' | 'shm' | 'trp';

/** With IWARP_ENGINE=worker everything runs in worker threads, whatever world a test asks for. */
const ALL_IN_WORKERS = process.env['IWARP_ENGINE'] === 'worker';
export const WORLDS: readonly World[] = ALL_IN_WORKERS
  ? ['worker']
  : ['memory', 'tcp, onread', 'tcp, data', 'worker', 'shm', 'trp'];
/** Worlds in this thread, whatever the environment says: for what shows only there. */
export const THREAD_WORLDS = ['memory', 'tcp, onread', 'tcp, data', 'shm', 'trp'] as const;

/** One for all tests of a file: a thread takes its time to start. */
let workers: Rnic | undefined;

export function rnicOf(world: World): Rnic {
  if (ALL_IN_WORKERS) return openRnic();
  if (world === 'worker') return (workers ??= openRnic({ engine: 'worker' }));
  return threadRnicOf(world);
}

/** In this thread, whatever the environment says. */
export function threadRnicOf(world: (typeof THREAD_WORLDS)[number]): Rnic {
  if (world === 'memory') return openRnic({ transport: new MemoryTransport(realScheduler) });
  if (world === 'shm') return openRnic({ wire: 'shm' });
  if (world === 'trp') return openRnic({ wire: 'trp', engine: 'thread' });
  return openRnic({ transport: new TcpTransport({ receive: world === 'tcp, data' ? 'data' : 'onread' }) });
}

export interface Ends {
  /** The device of both, unless the options name others. */
  readonly rnic: Rnic;
  readonly client: Connection;
  readonly server: Connection;
  readonly close: () => Promise<void>;
}

/** A connected pair; the server's end is waited for. */
export async function pairOf(
  world: World,
  client: Partial<ConnectOptions> = {},
  server: ServerOptions = {},
): Promise<Ends> {
  const rnic = rnicOf(world);
  const listening = await createServer({ rnic, ...server }).listen({ host: '127.0.0.1', port: 0 });
  const accepted = listening[Symbol.asyncIterator]().next();
  const active = await connect({ rnic, host: '127.0.0.1', port: listening.address().port, ...client });
  const passive = (await accepted).value as Connection;
  return {
    rnic,
    client: active,
    server: passive,
    close: async () => {
      await active.close();
      await listening.close();
    },
  };
}

/** A connected pair that is closed when the test that asks for it has finished. */
export async function pair(...args: Parameters<typeof pairOf>): Promise<Ends> {
  const ends = await pairOf(...args);
  onTestFinished(() => ends.close());
  return ends;
}

/** Octets with a pattern that shows misplacement. */
export function pattern(length: number, seed = 1): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 31 + seed * 17 + (i >>> 8)) & 0xff);
}

/** Registered memory with these octets in it, of the kind that the connection's device takes. */
export function registered(connection: Connection, bytes: Uint8Array, access?: PeerAccess): MemoryRegion {
  const region = connection.allocate(bytes.length, access);
  region.bytes.set(bytes);
  return region;
}
