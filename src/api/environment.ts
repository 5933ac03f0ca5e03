/**
 * The one place where the promise layer meets the machine: the process's device, its TCP transport and its clock, made on first use.
 */
import type { Scheduler } from '../base/clock.ts';
import { checkInteger, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { ConnectionManager } from '../cm/manager.ts';
import { controlFromEnvironment } from '../observe/control-socket.ts';
import { observe } from '../observe/devices.ts';
import { tappable } from '../observe/taps.ts';
import type { Transport } from '../transport/port.ts';
import { realScheduler } from '../transport/scheduler.ts';
import { WorkerProgress } from '../engine/progress.ts';
import { TcpTransport } from '../transport/tcp.ts';
import { Device, type DeviceOptions } from '../verbs/device.ts';

/**
 * A device with its way to the network. `cm.counters()` counts over all its connections, `device.query()` tells its limits and what is in
 * use.
 */
export interface Rnic {
  /** The device: protection domains, queues, limits. */
  readonly device: Device;
  /** The connection manager that carries the device's connections. */
  readonly cm: ConnectionManager;
  /** The clock of its time limits. */
  readonly scheduler: Scheduler;
}

/** Options of {@link openRnic}. */
export interface RnicOptions extends DeviceOptions {
  /** Default: TCP. `iwarp/testing` has an in-memory one. */
  readonly transport?: Transport;
  /** Clock and timers; the real ones by default, virtual time for tests. */
  readonly scheduler?: Scheduler;
  /**
   * Where the streams run: `thread`, the one that calls, or `worker`, in worker threads. There the peer can read and write the memory of a
   * process whose main thread is busy. Memory to register then has to be over a SharedArrayBuffer ({@link Device.newMemory}), the network
   * is TCP and the clock the real one. Default: the environment variable IWARP_ENGINE, else `thread`; always `thread` with a transport or
   * a scheduler of one's own.
   */
  readonly engine?: EngineKind;
  /** Worker threads; connections are spread over them. Default 1. */
  readonly engines?: number;
}

/** Where the streams of a device run. */
export type EngineKind = 'thread' | 'worker';
const ENGINE_KINDS: readonly EngineKind[] = ['thread', 'worker'];
/** More than any machine has cores to give; a typing error should not start thousands. */
const MAX_ENGINES = 64;

const known = new WeakSet<object>();

/** @internal True for what {@link openRnic} has made. */
export function isRnic(value: unknown): value is Rnic {
  return typeof value === 'object' && value !== null && known.has(value);
}

/**
 * A device of its own, with separate limits and STags.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const network = new MemoryTransport(realScheduler); // of iwarp/testing
 * const rnic = openRnic({ transport: network, limits: { maxQp: 16 } });
 * const connection = await connect({ rnic, host: '127.0.0.1', port: 4711 });
 */
export function openRnic(options: RnicOptions = {}): Rnic {
  if (typeof options !== 'object' || options === null) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options must be an object, got ${show(options)}`);
  }
  const { transport, scheduler = realScheduler, engine: _engine, engines = 1, ...deviceOptions } = options;
  const engine = chooseEngine(options);
  checkInteger('options.engines', engines, 1, MAX_ENGINES);
  if (engine === 'thread' && options.engines !== undefined) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engines is for engine: worker');
  }
  if (transport !== undefined) checkMethods('options.transport', transport, ['connect', 'listen']);
  checkMethods('options.scheduler', scheduler, ['now', 'at', 'defer']);
  const device = new Device({ defer: (task) => scheduler.defer(task), ...deviceOptions });
  const rnic: Rnic = { device, cm: engine === 'worker' ? overEngines(device, options, engines) : inThread(device, transport, scheduler), scheduler };
  known.add(rnic);
  observe(rnic);
  controlFromEnvironment();
  return rnic;
}

/** @internal Throws ERR_INVALID_ARGUMENT unless it names a kind of engine. */
export function checkEngine(name: string, value: unknown): EngineKind {
  return checkOneOf(name, value as EngineKind, ENGINE_KINDS);
}

/** @internal Where the streams of this device run. */
export function engineOf(rnic: Rnic): EngineKind {
  return rnic.device.mirror === null ? 'thread' : 'worker';
}

function chooseEngine({ engine, transport, scheduler }: RnicOptions): EngineKind {
  const own = transport !== undefined || scheduler !== undefined;
  if (engine === undefined) return own ? 'thread' : defaultEngine();
  checkEngine('options.engine', engine);
  if (engine === 'worker' && own) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engine: workers have a transport and a clock of their own');
  }
  return engine;
}

function defaultEngine(): EngineKind {
  return checkEngine('IWARP_ENGINE', process.env['IWARP_ENGINE'] ?? 'thread');
}

function inThread(device: Device, transport: Transport | undefined, scheduler: Scheduler): ConnectionManager {
  // Reads land in memory of the CRC engine, where they are checked without a copy.
  const tcp = transport ?? new TcpTransport({ allocate: (octets) => device.resources.crc.allocate(octets) });
  return new ConnectionManager(device, tappable(tcp, scheduler), scheduler);
}

function overEngines(device: Device, { crc32c = 'auto' }: RnicOptions, engines: number): ConnectionManager {
  return new ConnectionManager(device, new WorkerProgress(device, engines, { crc32c, stagLimit: device.limits.maxMr }));
}

function checkMethods(name: string, value: unknown, methods: readonly string[]): void {
  for (const method of methods) {
    if (typeof (value as Record<string, unknown> | null)?.[method] === 'function') continue;
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must have the methods ${methods.join(', ')}, got ${show(value)}`);
  }
}

const own = new Map<EngineKind, Rnic>();

/** The process's own, one for each kind of engine. One whose engine has failed is replaced. */
export function defaultRnic(engine?: EngineKind): Rnic {
  const kind = engine === undefined ? defaultEngine() : checkEngine('engine', engine);
  let rnic = own.get(kind);
  if (rnic === undefined || rnic.device.state !== 'open') {
    rnic = openRnic({ engine: kind });
    own.set(kind, rnic);
  }
  return rnic;
}
