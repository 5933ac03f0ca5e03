/**
 * What the transport tests share: recording handlers, waiting without sleeping, and the worlds that the
 * contract is tried in.
 */

import type { Scheduler } from '../../src/base/clock.ts';
import type { RandomU32 } from '../../src/base/random.ts';
import { MemoryTransport, VirtualTime } from '../../src/simnet/memory.ts';
import type { MemoryTransportOptions } from '../../src/simnet/memory.ts';
import { faulty } from '../../src/simnet/fault.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import type { PortMiddleware } from '../../src/transport/middleware.ts';
import type {
  ConnectTarget,
  ListenTarget,
  Port,
  PortHandler,
  PortListener,
  Transport,
} from '../../src/transport/port.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { segmenting } from '../../src/simnet/segmenting.ts';
import { tap } from '../../src/transport/tap.ts';
import { ShmTransport } from '../../src/shm/transport.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';

/** How long a condition may take on the real clock. */
const PATIENCE = 20_000;

/** Octets that differ at every small shift. */
export function pattern(octets: number, random: RandomU32): Uint8Array {
  const bytes = new Uint8Array(octets);
  for (let i = 0; i < octets; i++) bytes[i] = random();
  return bytes;
}

/**
 * One port and all events of it. Calls go through here, so that a callback from inside a call is caught.
 */
export class End implements PortHandler {
  readonly port: Port;
  readonly world: World;
  /** How much has been received. */
  count = 0;
  #received = new Uint8Array(1024);
  /** How it was cut. */
  readonly pieces: number[] = [];
  /** 'data' is not logged. */
  readonly log: string[] = [];
  readonly dones: string[] = [];
  closeError: (Error & { code?: string }) | undefined;
  /** Called in `onData`, after recording. */
  hook: (() => void) | undefined;
  #inCall = false;
  #writes = 0;

  constructor(port: Port, world: World) {
    this.port = port;
    this.world = world;
  }

  onData(bytes: Uint8Array, start: number, end: number): void {
    this.#event();
    const count = this.count + end - start;
    if (count > this.#received.length) {
      const larger = new Uint8Array(2 * count);
      larger.set(this.bytes);
      this.#received = larger;
    }
    this.#received.set(bytes.subarray(start, end), this.count);
    this.count = count;
    this.pieces.push(end - start);
    if (this.log.length > 0) this.log.push('late data');
    this.hook?.();
    this.world.notify();
  }

  onEnd(): void {
    this.#event();
    this.log.push('end');
    this.world.notify();
  }

  onClose(error?: Error): void {
    this.#event();
    this.closeError = error as Error & { code?: string };
    this.log.push(error === undefined ? 'close' : 'close with error');
    this.world.notify();
  }

  attach(): this {
    this.call(() => this.port.attach(this));
    return this;
  }

  /** Writes; `dones` gets `index:ok`. What the port says it has taken is written over at once. */
  write(...chunks: Uint8Array[]): boolean {
    const index = this.#writes++;
    const given = chunks.map((chunk) => chunk.slice());
    // Octets written before the close are answered before it.
    const late = this.closed;
    const taken = this.call(() =>
      this.port.write(given, given.length, (ok) => {
        this.#event(late);
        this.dones.push(`${index}:${ok}`);
        this.world.notify();
      }),
    );
    if (taken) for (const chunk of given) chunk.fill(0xee);
    return taken;
  }

  call<T>(task: () => T): T {
    this.#inCall = true;
    try {
      return task();
    } finally {
      this.#inCall = false;
    }
  }

  get closed(): boolean {
    return this.log.some((entry) => entry.startsWith('close'));
  }

  /** Everything received, until more is. */
  get bytes(): Uint8Array {
    return this.#received.subarray(0, this.count);
  }

  /** The same as numbers, for a few. */
  get received(): number[] {
    return [...this.bytes];
  }

  #event(late = false): void {
    if (this.#inCall) this.log.push('called back from inside a call');
    if (this.closed && !late) this.log.push('called after close');
  }
}

/** A transport, and the way to wait in its time. */
export class World {
  readonly name: string;
  readonly transport: Transport;
  readonly time: Scheduler;
  readonly #waiting = new Set<() => void>();
  readonly #open: PortListener[] = [];
  readonly #ends: End[] = [];

  constructor(name: string, transport: Transport, time: Scheduler) {
    this.name = name;
    this.transport = transport;
    this.time = time;
  }

  notify(): void {
    for (const check of this.#waiting) check();
  }

  /** Resolves when the condition holds; it is looked at after every event. */
  async until(condition: () => boolean, what: string): Promise<void> {
    if (this.time instanceof VirtualTime) {
      for (let steps = 0; !condition(); steps++) {
        if (steps > 1_000_000 || !this.time.step()) throw new Error(`${this.name}: never ${what}`);
      }
      return;
    }
    if (condition()) return;
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(check);
        reject(new Error(`${this.name}: waited too long for ${what}`));
      }, PATIENCE);
      const check = (): void => {
        if (!condition()) return;
        clearTimeout(timer);
        this.#waiting.delete(check);
        resolve();
      };
      this.#waiting.add(check);
    });
  }

  async listen(target: ListenTarget, accept: (port: Port) => void): Promise<PortListener> {
    let result: { listener: PortListener | undefined; error: Error | undefined } | undefined;
    this.transport.listen(target, accept, (listener, error) => {
      result = { listener, error };
      this.notify();
    });
    await this.until(() => result !== undefined, 'a listener');
    if (result?.listener === undefined) throw result?.error ?? new Error('no listener');
    this.#open.push(result.listener);
    return result.listener;
  }

  async close(listener: PortListener): Promise<void> {
    let closed = false;
    listener.close(() => {
      closed = true;
      this.notify();
    });
    await this.until(() => closed, 'a closed listener');
  }

  /** A connection: both ends, not attached. */
  async pair(
    host = '127.0.0.1',
    more: Partial<ConnectTarget> = {},
  ): Promise<{ active: End; passive: End; listener: PortListener }> {
    let passive: Port | undefined;
    let outcome: { port: Port | undefined; error: Error | undefined } | undefined;
    const listener = await this.listen({ host }, (port) => {
      passive = port;
      this.notify();
    });
    this.transport.connect({ host, port: listener.address.port, ...more }, (port, error) => {
      outcome = { port, error };
      this.notify();
    });
    await this.until(
      () => outcome !== undefined && (passive !== undefined || outcome.port === undefined),
      'a connection',
    );
    if (outcome?.port === undefined || passive === undefined) throw outcome?.error ?? new Error('no port');
    return { active: this.end(outcome.port), passive: this.end(passive), listener };
  }

  end(port: Port): End {
    const end = new End(port, this);
    this.#ends.push(end);
    return end;
  }

  /** Lets everything happen that is going to: several round trips on a separate connection. */
  async settle(): Promise<void> {
    if (this.time instanceof VirtualTime) {
      this.time.run();
      return;
    }
    const { active, passive } = await this.pair();
    active.attach();
    passive.attach();
    for (let i = 1; i <= 5; i++) {
      active.write(Uint8Array.of(i));
      await this.until(() => passive.count === i, 'a ping');
      passive.write(Uint8Array.of(i));
      await this.until(() => active.count === i, 'a pong');
    }
    active.port.reset();
    passive.port.reset();
  }

  async dispose(): Promise<void> {
    for (const listener of this.#open) listener.close();
    for (const end of this.#ends) {
      if (!end.closed) end.port.reset();
    }
    if (this.time instanceof VirtualTime) this.time.run();
    await Promise.resolve();
  }
}

/** A network on virtual time. */
export function memoryWorld(
  name = 'memory',
  options: MemoryTransportOptions = {},
  layers: readonly Layer[] = [],
): World & { time: VirtualTime } {
  const time = new VirtualTime();
  const network = new MemoryTransport(time, { latency: 1, buffer: 65_536, verifyWrites: true, ...options });
  return new World(name, wrapTransport(network, ...layers.map((layer) => layer(time))), time) as World & {
    time: VirtualTime;
  };
}

type Layer = (time: Scheduler) => PortMiddleware;

const neutral: Readonly<Record<string, Layer>> = {
  'segmenting as is': (time) => segmenting(time, { kind: 'asIs' }),
  'segmenting every 7': (time) => segmenting(time, { kind: 'every', octets: 7 }),
  'segmenting at random': (time) => segmenting(time, { kind: 'random', seed: 41 }),
  'segmenting coalesced': (time) => segmenting(time, { kind: 'coalesce' }),
  'no faults': (time) => faulty(time, []),
  tap: (time) =>
    tap(time, () => ({
      open: () => undefined,
      data: () => undefined,
      end: () => undefined,
      close: () => undefined,
    })),
};

/** Every world in which the contract of `port.ts` has to hold. */
export function worlds(): { name: string; make: () => World }[] {
  const tcp = (
    name: string,
    receive: 'onread' | 'data',
    layers: readonly Layer[] = [],
  ): { name: string; make: () => World } => ({
    name,
    make: () =>
      new World(
        name,
        wrapTransport(new TcpTransport({ receive }), ...layers.map((layer) => layer(realScheduler))),
        realScheduler,
      ),
  });
  const memory = (name: string, layers: readonly Layer[] = []): { name: string; make: () => World } => ({
    name,
    make: () => memoryWorld(name, {}, layers),
  });
  const all = Object.values(neutral);
  return [
    tcp('TCP with onread', 'onread'),
    tcp("TCP with 'data'", 'data'),
    memory('memory'),
    {
      name: 'memory on the real clock',
      make: () =>
        new World(
          'memory on the real clock',
          new MemoryTransport(realScheduler, { buffer: 65_536 }),
          realScheduler,
        ),
    },
    {
      name: 'shared memory',
      make: () => new World('shared memory', new ShmTransport(new BusyPoll(50)), realScheduler),
    },
    {
      name: 'shared memory, never polling',
      make: () => new World('shared memory', new ShmTransport(new BusyPoll(0)), realScheduler),
    },
    ...Object.entries(neutral).map(([name, layer]) => memory(`memory, ${name}`, [layer])),
    tcp('TCP, all layers', 'onread', all),
    memory('memory, all layers', all),
  ];
}
