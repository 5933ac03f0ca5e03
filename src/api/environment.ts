/**
 * The one place where the promise layer meets the machine: the process's device, its TCP transport and its clock, made on first use.
 */
import type { Scheduler } from '../base/clock.ts';
import { checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { ConnectionManager } from '../cm/manager.ts';
import { controlFromEnvironment } from '../observe/control-socket.ts';
import { observe } from '../observe/devices.ts';
import { tappable } from '../observe/taps.ts';
import type { Transport } from '../transport/port.ts';
import { realScheduler } from '../transport/scheduler.ts';
import { environmentCrc32c } from '../crc32c/engine.ts';
import { readMemory } from '../crc32c/memory.ts';
import { WorkerProgress, type EngineOptions, type EngineSettings } from '../engine/progress.ts';
import { resolveBusyPoll } from '../transport/busy-poll.ts';
import { resolveReceive, TcpTransport } from '../transport/tcp.ts';
import { Device, type DeviceOptions } from '../verbs/device.ts';

/**
 * A device with its transport and clock. `cm.counters()` has the counters over all its connections, `device.query()` its limits and what is in
 * use.
 */
export interface Rnic {
  /** The device: protection domains, queues, limits. */
  readonly device: Device;
  /** The connection manager that carries the device's connections. */
  readonly cm: ConnectionManager;
  /** The clock for time limits. */
  readonly scheduler: Scheduler;
}

/** Options of {@link openRnic}. */
export interface RnicOptions extends DeviceOptions {
  /** The network. Default: TCP. `iwarp/testing` has an in-memory one. */
  readonly transport?: Transport | undefined;
  /** Clock and timers. Default: the real ones. Tests can give virtual time. */
  readonly scheduler?: Scheduler | undefined;
  /**
   * Where the streams run: `thread` is the calling thread, `worker` means worker threads. With `worker` the peer can read and write the memory of
   * a process whose main thread is busy. Then memory to register has to be over a SharedArrayBuffer ({@link Device.newMemory}), the network
   * is TCP and the clock is the real one. Default: the environment variable IWARP_ENGINE, else `thread`; always `thread` with your own transport
   * or scheduler.
   */
  readonly engine?: EngineKind | undefined;
  /** Number of worker threads; connections are spread over them. Default 1. */
  readonly engines?: number | undefined;
  /**
   * Microseconds for which the event loop, in this thread and in the engines' threads, does not sleep after something has come from the network
   * or the other thread: then nobody has to be woken for the next message. Octets that came and went lengthen it, by a microsecond a KB and up
   * to six times as long, for the peer needs time for them. This costs processor time. Polling rests while it does not pay, so that little is
   * wasted. 0: never. Default: the environment variable IWARP_BUSY_POLL, else 50; 0 with one processor.
   */
  readonly busyPoll?: number | undefined;
}

/** Where the streams of a device run. */
export type EngineKind = 'thread' | 'worker';
const ENGINE_KINDS: readonly EngineKind[] = ['thread', 'worker'];
/** More than any machine has cores to give; a typing error should not start thousands. */
const MAX_ENGINES = 64;

const known = new WeakSet<object>();

/** @internal Throws ERR_INVALID_ARGUMENT unless it comes from {@link openRnic}; returns it. */
export function checkRnic(name: string, value: unknown): Rnic {
  if (typeof value === 'object' && value !== null && known.has(value)) return value as Rnic;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must come from openRnic, got ${show(value)}`);
}

/**
 * Open a separate device, with its own limits and STags.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const network = new MemoryTransport(realScheduler); // of iwarp/testing
 * const rnic = openRnic({ transport: network, limits: { maxQp: 16 } });
 * const connection = await connect({ rnic, host: '127.0.0.1', port: 4711 });
 */
export function openRnic(options: RnicOptions = {}): Rnic {
  checkObject('options', options);
  const { transport, scheduler = realScheduler, engine: _engine, engines = 1, busyPoll, ...deviceOptions } = options;
  const engine = chooseEngine(options);
  checkInteger('options.engines', engines, 1, MAX_ENGINES);
  if (engine === 'thread' && options.engines !== undefined) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engines is for engine: worker');
  }
  if (transport !== undefined && busyPoll !== undefined) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.busyPoll is for the TCP transport of the device, and there is a transport of your own');
  }
  if (transport !== undefined) checkMethods('options.transport', transport, ['connect', 'listen']);
  checkMethods('options.scheduler', scheduler, ['now', 'at', 'defer']);
  const { defer = (task: () => void): void => scheduler.defer(task) } = deviceOptions;
  const device = new Device({ ...deviceOptions, defer });
  return announced({ device, cm: engine === 'worker' ? overEngines(device, options, engines) : inThread(device, transport, scheduler, busyPoll), scheduler });
}

function announced(rnic: Rnic): Rnic {
  known.add(rnic);
  observe(rnic);
  controlFromEnvironment();
  return rnic;
}

/** @internal What a tool hangs on a device in a worker thread. */
interface WorkerHooks {
  /** A file for all that crosses its connections. */
  readonly capture: string | undefined;
  /** Told when octets have come. */
  readonly arrived: () => void;
}

/** @internal A device in one worker thread, with what the command line tools need. */
export function openHookedWorker({ capture, arrived }: WorkerHooks): Rnic {
  const device = new Device({ defer: (task) => realScheduler.defer(task) });
  const progress = new WorkerProgress(device, 1, { ...engineOptions(device, {}), capture, arrivals: true });
  progress.onArrival = arrived;
  return announced({ device, cm: new ConnectionManager(device, progress), scheduler: realScheduler });
}

/** @internal Nothing new will be opened on the device: its threads end with what is open on them. */
export function retire({ device }: Rnic): void {
  if (device.mirror !== null) (device.mirror as WorkerProgress).retire();
}

/** @internal What a device works with. */
export interface RnicSettings extends EngineSettings {
  readonly engine: EngineKind;
}

/** @internal As the streams' own thread tells it: null until the first worker is up, and over a transport of one's own. */
export function settingsOf({ device }: Rnic): RnicSettings | null {
  if (device.mirror !== null) {
    const { settings } = (device.mirror as WorkerProgress).engines[0]!;
    return settings === null ? null : { engine: 'worker', ...settings };
  }
  const tcp = transports.get(device);
  return tcp === undefined ? null : { engine: 'thread', crc32c: device.resources.crc.name, receive: tcp.receive, busyPoll: tcp.poll.microseconds };
}

/** The TCP transport of devices in this thread. */
const transports = new WeakMap<Device, TcpTransport>();

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

/** @internal What IWARP_ENGINE says. @throws ERR_INVALID_ARGUMENT */
export function defaultEngine(): EngineKind {
  return checkEngine('IWARP_ENGINE', process.env['IWARP_ENGINE'] || 'thread');
}

function inThread(device: Device, transport: Transport | undefined, scheduler: Scheduler, busyPoll?: number): ConnectionManager {
  if (transport !== undefined) return new ConnectionManager(device, tappable(transport, scheduler), scheduler);
  // Reads land in memory of the CRC engine, where they are checked without a copy.
  const tcp = new TcpTransport({ allocate: (octets) => readMemory(device.resources.crc, octets), ...(busyPoll !== undefined && { busyPoll }) });
  transports.set(device, tcp);
  return new ConnectionManager(device, tappable(tcp, scheduler), scheduler);
}

function overEngines(device: Device, options: RnicOptions, engines: number): ConnectionManager {
  return new ConnectionManager(device, new WorkerProgress(device, engines, engineOptions(device, options)));
}

/** What the environment says is read and checked here, where a wrong word can be thrown at who has written it. */
function engineOptions(device: Device, { crc32c, busyPoll }: RnicOptions): EngineOptions {
  return { crc32c: crc32c ?? environmentCrc32c(), receive: resolveReceive(), busyPoll: resolveBusyPoll(busyPoll), stagLimit: device.limits.maxMr };
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
