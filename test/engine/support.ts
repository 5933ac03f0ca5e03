/** Queue pairs over engines in worker threads, through verbs and the connection manager. */
import { afterAll } from 'vitest';
import type { CmConnection, CmEvent, ConnParam } from '../../src/cm/index.ts';
import type { WorkerEngine } from '../../src/engine/proxy/worker-engine.ts';
import { openRnic, type Rnic, type RnicOptions } from '../../src/index.ts';
import type { Port, PortListener } from '../../src/transport/port.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import {
  ACCESS,
  createWorkCompletion,
  type AsyncEvent,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairOptions,
  type WorkCompletion,
} from '../../src/verbs/index.ts';
import { RawPeer } from '../support/raw-peer.ts';

/** A device in worker threads. */
export function openWorkers(options: RnicOptions = {}): Rnic {
  return openRnic({ engine: 'worker', ...options });
}

/** Its engines. */
export function enginesOf(rnic: Rnic): WorkerEngine['engines'] {
  return (rnic.device.mirror as WorkerEngine).engines;
}

/** Ends the threads, whatever is open on them. */
export async function stop(...rnics: readonly Rnic[]): Promise<void> {
  await Promise.all(rnics.flatMap((rnic) => enginesOf(rnic).map(({ host }) => host.worker.terminate())));
}

/** Two devices in worker threads for the tests of a file, and what these make on them. */
interface TwoWorkers {
  readonly near: Rnic;
  readonly far: Rnic;
  /** An end on each, connected. */
  readonly pair: (options?: Partial<QueuePairOptions>) => Promise<{ client: End; server: End }>;
}

/** They end with the last test. */
export function twoWorkers(): TwoWorkers {
  const near = openWorkers({ name: 'near' });
  const far = openWorkers({ name: 'far' });
  afterAll(() => stop(near, far));
  const pair = async (options: Partial<QueuePairOptions> = {}): Promise<{ client: End; server: End }> => {
    const client = new End(near, options);
    const server = new End(far, options);
    await join(client, server);
    return { client, server };
  };
  return { near, far, pair };
}

/** Every right that a region can have. */
export const EVERYTHING: number =
  ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC | ACCESS.MW_BIND;

/** A region of an end, over memory of its device. */
export function memory(
  end: End,
  octets: number,
  access: number = EVERYTHING,
  iova?: number | bigint,
): MemoryRegion {
  return end.pd.registerMemory(
    end.rnic.device.allocateMemory(octets),
    access,
    iova === undefined ? {} : { iova },
  );
}

/** Waits until `condition` holds; the test's own time limit ends a wait for ever. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** One end: a queue pair with all that belongs to it. */
export class End {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly events: CmEvent[] = [];
  readonly asyncEvents: AsyncEvent[] = [];
  readonly completions: WorkCompletion[] = [];
  connection: CmConnection | null = null;

  constructor(
    rnic: Rnic,
    options: Partial<QueuePairOptions> = {},
    pd: ProtectionDomain = rnic.device.allocatePd(),
  ) {
    this.rnic = rnic;
    this.pd = pd;
    this.cq = rnic.device.createCq(32_768);
    this.qp = this.pd.createQp({ sendCq: this.cq, recvCq: this.cq, ...options });
    rnic.device.setAsyncEventHandler((event) => this.asyncEvents.push(event));
  }

  watch(connection: CmConnection): void {
    this.connection = connection;
    connection.setHandler((event) => this.events.push(event));
  }

  event<T extends CmEvent['type']>(type: T): Extract<CmEvent, { type: T }> | undefined {
    return this.events.find((event) => event.type === type) as Extract<CmEvent, { type: T }> | undefined;
  }

  /** The completions so far, once there are `count`. */
  async completed(count: number): Promise<WorkCompletion[]> {
    await until(() => {
      for (let n = 1; n > 0; ) {
        const wc = [createWorkCompletion()];
        n = this.cq.poll(wc);
        if (n > 0) this.completions.push(wc[0]!);
      }
      return this.completions.length >= count;
    });
    return this.completions.splice(0, count);
  }

  /** Statuses of the next `count` completions. */
  async statuses(count: number): Promise<string[]> {
    return (await this.completed(count)).map(({ opcode, status }) => `${opcode} ${status}`);
  }
}

/** Connect two ends over loopback. */
export async function join(client: End, server: End, options: ConnParam = {}): Promise<void> {
  const listener = await server.rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
    server.watch(request);
    request.accept(server.qp);
  });
  client.watch(
    client.rnic.cm.connect(client.qp, { host: '127.0.0.1', port: listener.address.port, ...options }),
  );
  await until(() => client.event('established') !== undefined && server.event('established') !== undefined);
  listener.close();
}

/** A peer made of octets, over TCP, that connects to a listener, from this address. */
export function dial(port: number, localAddress = '127.0.0.1'): Promise<RawPeer> {
  return new Promise((resolve, reject) => {
    new TcpTransport().connect({ host: '127.0.0.1', port, localAddress }, (made, error) => {
      if (made === undefined) reject(error ?? new Error('no connection'));
      else resolve(new RawPeer(realScheduler, made));
    });
  });
}

/** The same to be connected to: `call` makes the connection to its port, which stops listening then. */
export function answer(call: (port: number) => void): Promise<RawPeer> {
  return new Promise((resolve, reject) => {
    let listener: PortListener | undefined;
    const accept = (port: Port): void => {
      listener!.close();
      resolve(new RawPeer(realScheduler, port));
    };
    new TcpTransport().listen(
      { host: '127.0.0.1', port: 0 },
      accept,
      (made, error) => {
        if (made === undefined) return void reject(error ?? new Error('no listener'));
        listener = made;
        call(made.address.port);
      },
      reject,
    );
  });
}
