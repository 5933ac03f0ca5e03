/**
 * The one place where the promise layer meets the machine: the process's device, its TCP transport and its
 * clock, made on first use.
 */
import type { Socket } from 'node:net';
import { markAsUntransferable } from 'node:worker_threads';
import { environmentVariable } from '../base/environment.ts';
import type { Scheduler } from '../base/clock.ts';
import { WIRES, type WireName } from '../base/wires.ts';
import { checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { ConnectionManager } from '../cm/manager.ts';
import { controlFromEnvironment } from '../observe/control-socket.ts';
import { observe } from '../observe/devices.ts';
import { tappable } from '../observe/taps.ts';
import type { DatagramNetwork } from '../transport/datagram.ts';
import type { Gather } from '../transport/gather-port.ts';
import type { Port, Transport } from '../transport/port.ts';
import { UdpNetwork } from '../transport/udp.ts';
import { realScheduler } from '../transport/scheduler.ts';
import { environmentCrc32c } from '../crc32c/engine.ts';
import { readMemory } from '../crc32c/memory.ts';
import type { Engine } from '../engine/engine.ts';
import { InlineEngine } from '../engine/inline/inline-engine.ts';
import { WorkerEngine, type EngineOptions, type EngineSettings } from '../engine/proxy/worker-engine.ts';
import { streamMaker } from '../engine/wires.ts';
import { BusyPoll, resolveBusyPoll } from '../transport/busy-poll.ts';
import { systemHost } from '../transport/host.ts';
import { resolveReceive, TcpTransport } from '../transport/tcp.ts';
import { ShmTransport } from '../shm/transport.ts';
import { checkTrpOptions, PROFILES, type TrpOptions } from '../trp/profile.ts';
import { TrpTransport } from '../trp/transport.ts';
import { Device, type DeviceOptions } from '../verbs/device.ts';

/**
 * A device with its transport and clock. `cm.counters()` has the counters over all its connections,
 * `device.query()` its limits and the number of objects in use.
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
  /**
   * With the wire `qpip` the network of datagram queue pairs, with `trp` that of all connections. Default:
   * UDP.
   */
  readonly datagrams?: DatagramNetwork | undefined;
  /** Clock and timers. Default: the real ones. Tests can give virtual time. */
  readonly scheduler?: Scheduler | undefined;
  /**
   * Where the streams run: `thread` is the calling thread, `worker` means worker threads. With `worker` the
   * peer can read and write the memory of a process whose main thread is busy. Then memory to register has to
   * be over a SharedArrayBuffer ({@link Device.allocateMemory}), the network is TCP and the clock is the real
   * one. Default: the environment variable IWARP_ENGINE, else `thread`; always `thread` with your own
   * transport or scheduler.
   */
  readonly engine?: EngineKind | undefined;
  /**
   * The wire protocol. `iwarp` is MPA, DDP and RDMAP over TCP. `qpip` is plain TCP and UDP with nothing
   * added, for Sends and Receives, to any socket. `trp` is iWARP over UDP. `shm` is memory that threads of
   * this process share: host and port, or a path that is no file, name a listener in any of them. Default
   * `iwarp`.
   */
  readonly wire?: WireName | undefined;
  /** With the wire `trp`: how it works. */
  readonly trp?: TrpOptions | undefined;
  /** Number of worker threads; connections are spread over them. Default 1. */
  readonly engines?: number | undefined;
  /**
   * Microseconds for which the event loop, in this thread and in the engines' threads, does not sleep after
   * something has come from the network or the other thread: then no thread has to be woken for the next
   * message. Bytes that came and went lengthen it, by a microsecond a KB and up to six times as long, for
   * the peer needs time for them. This costs processor time. Polling rests while it does not pay, so that
   * little is wasted. 0: never. Default: the environment variable IWARP_BUSY_POLL, else 50; 0 with one
   * processor.
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
  const {
    transport,
    datagrams,
    scheduler = realScheduler,
    engine: _engine,
    wire = 'iwarp',
    trp,
    engines = 1,
    busyPoll,
    ...deviceOptions
  } = options;
  checkOneOf('options.wire', wire, WIRES);
  const row = WIRE_TABLE[wire];
  const engine = chooseEngine(wire, options);
  checkTrpOptions('options.trp', trp, wire === 'trp');
  checkInteger('options.engines', engines, 1, MAX_ENGINES);
  if (engine === 'thread' && options.engines !== undefined) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engines is for engine: worker');
  }
  if (transport !== undefined && busyPoll !== undefined) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      'options.busyPoll is for the TCP transport of the device, which options.transport replaces',
    );
  }
  if (transport !== undefined) checkMethods('options.transport', transport, ['connect', 'listen']);
  if (transport !== undefined && row.inProcess)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.transport: the wire ${wire} has its own transport`);
  if (datagrams !== undefined) checkMethods('options.datagrams', datagrams, ['bind']);
  checkMethods('options.scheduler', scheduler, ['now', 'at', 'defer']);
  const { defer = (task: () => void): void => scheduler.defer(task) } = deviceOptions;
  const device = new Device({ ...deviceOptions, wire, defer });
  row.equip?.(device, options);
  const driver = row.engine(device, engine, { ...options, scheduler, engines });
  return announced({ device, cm: new ConnectionManager(device, driver), scheduler });
}

function announced(rnic: Rnic): Rnic {
  known.add(rnic);
  observe(rnic);
  controlFromEnvironment();
  return rnic;
}

/** @internal The hooks that a tool attaches to a device in a worker thread. */
interface WorkerHooks {
  readonly wire: WireName;
  /** A file that records all traffic of its connections. */
  readonly capture: string | undefined;
  /** Called when bytes have come. */
  readonly arrived: () => void;
}

/** @internal A device in one worker thread, with the hooks that the command line tools need. */
export function openHookedWorker({ wire, capture, arrived }: WorkerHooks): Rnic {
  const device = new Device({ wire, defer: (task) => realScheduler.defer(task) });
  const options = { ...engineOptions(device, {}), capture, arrivals: true };
  const engine = new WorkerEngine(device, 1, options);
  engine.onArrival = arrived;
  return announced({ device, cm: new ConnectionManager(device, engine), scheduler: realScheduler });
}

/**
 * @internal Nothing new will be opened on the device: its threads end when the objects open on them have
 * ended.
 */
export function retire({ device }: Rnic): void {
  if (device.mirror.offloaded) (device.mirror as WorkerEngine).retire();
}

/** @internal The settings that a device works with. */
export interface RnicSettings extends EngineSettings {
  readonly engine: EngineKind;
}

/**
 * @internal The settings as the streams' thread reports them: null until the first worker is up, and over a
 *   transport that the program supplies.
 */
export function settingsOf({ device }: Rnic): RnicSettings | null {
  if (device.mirror.offloaded) {
    const { settings } = (device.mirror as WorkerEngine).engines[0]!;
    return settings === null ? null : { engine: 'worker', ...settings };
  }
  const tcp = transports.get(device);
  return tcp === undefined
    ? null
    : {
        engine: 'thread',
        crc32c: device.resources.crc.name,
        receive: tcp.receive,
        busyPoll: tcp.poll.microseconds,
      };
}

/** The TCP transport of devices in this thread. */
const transports = new WeakMap<Device, TcpTransport>();

/** The networks of devices in this thread. */
const networks = new WeakMap<Device, Transport>();

/** @internal Byte streams for a device, before RDMA begins on them. */
export function networkOf({ device }: Rnic): Transport {
  return networks.get(device) ?? (plainTransport ??= new TcpTransport({ busyPoll: 0 }));
}

/** Ports for engines in other threads, which only hand bytes on. */
let plainTransport: TcpTransport | null = null;

/**
 * @internal The connection of `socket` as a port for a device: over its TCP transport, if that is in this
 *   thread. `socket` has no connection afterwards; null, and `socket` as it was, where this Node cannot.
 */
export function movedPort({ device }: Rnic, socket: Socket, gather: Gather): Port | null {
  const tcp = transports.get(device) ?? (plainTransport ??= new TcpTransport({ busyPoll: 0 }));
  return tcp.moved(socket, gather);
}

/** @internal Throws ERR_INVALID_ARGUMENT unless it names a kind of engine. */
export function checkEngine(name: string, value: unknown): EngineKind {
  return checkOneOf(name, value as EngineKind, ENGINE_KINDS);
}

/** @internal Where the streams of this device run. */
export function engineOf(rnic: Rnic): EngineKind {
  return !rnic.device.mirror.offloaded ? 'thread' : 'worker';
}

function chooseEngine(wire: WireName, { engine, transport, scheduler, datagrams }: RnicOptions): EngineKind {
  const { inProcess, overDatagrams } = WIRE_TABLE[wire];
  if (inProcess) {
    if (engine === 'worker')
      throw new IwarpError(
        'ERR_NOT_SUPPORTED',
        `options.engine: the wire ${wire} connects threads; open a device in each`,
      );
    return 'thread';
  }
  const own =
    transport !== undefined || scheduler !== undefined || (overDatagrams && datagrams !== undefined);
  if (engine === undefined) return own ? 'thread' : defaultEngine();
  checkEngine('options.engine', engine);
  if (engine === 'worker' && own) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      'options.engine: workers have their own transport and clock',
    );
  }
  return engine;
}

/** @internal The program cannot transfer the buffer of this view to another thread. */
export function forbidTransfer({ buffer }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer) markAsUntransferable(buffer);
}

let warnedOfMessages = false;

/** @internal Warn once for a process: a peer has waited for long for room that unreleased messages take. */
export function warnOfMessages(held: number, seconds: number, peer: string): void {
  if (warnedOfMessages) return;
  warnedOfMessages = true;
  process.emitWarning(
    `all ${held} receive buffers of the connection to ${peer} have held messages for ${seconds} s, ` +
      'and the peer waits: receive them and call message.release(), copy what is kept (message.buffer()), ' +
      'or raise receiveDepth',
    { type: 'IwarpWarning', code: 'IWARP_UNRELEASED' },
  );
}

/** @internal What IWARP_ENGINE says. @throws ERR_INVALID_ARGUMENT */
export function defaultEngine(): EngineKind {
  return checkEngine('IWARP_ENGINE', environmentVariable('IWARP_ENGINE') || 'thread');
}

/** @internal True if IWARP_STACKS asks for the caller's line in errors of operations. */
export function stacksWanted(): boolean {
  return environmentVariable('IWARP_STACKS') === '1';
}

/** All that opening a device has to know of its wire. */
interface WireRow {
  /** Its network is the memory of this process: there is no other, and each thread has its own device. */
  readonly inProcess: boolean;
  /** Its connections go over `datagrams`, where the program gives them. */
  readonly overDatagrams: boolean;
  /** Gives the device what this wire has and others have not. */
  readonly equip?: (device: Device, options: RnicOptions) => void;
  /** Makes the engine that drives its streams over its transport. */
  readonly engine: (device: Device, kind: EngineKind, options: EngineChoice) => Engine;
}

/**
 * The one place where a wire is chosen. A further wire is a name in {@link WIRES} and a row here, and one in
 * `engine/wires.ts` if it shares the transport of iWARP. What a wire cannot carry is refused where a program
 * asks for it, by `Device.wire`: verbs and the connection manager lie below this file and do not know the
 * table. `options.trp` bears the name of its wire, so it is compared with that.
 */
const WIRE_TABLE: Readonly<Record<WireName, WireRow>> = {
  iwarp: { inProcess: false, overDatagrams: false, engine: overTcp },
  qpip: {
    inProcess: false,
    overDatagrams: false,
    equip(device, { datagrams }) {
      device.datagrams = datagrams ?? new UdpNetwork();
    },
    engine: overTcp,
  },
  shm: {
    inProcess: true,
    overDatagrams: false,
    engine: (device, _kind, options) => overMemory(device, options),
  },
  trp: {
    inProcess: false,
    overDatagrams: true,
    equip(device, { trp }) {
      device.privateDataRoom = PROFILES[trp?.profile ?? 'fixed'].maxPrivateData;
    },
    engine: (device, kind, options) =>
      kind === 'worker' || options.transport !== undefined
        ? overTcp(device, kind, options)
        : overUdp(device, options),
  },
};

function overTcp(device: Device, kind: EngineKind, options: EngineChoice): Engine {
  return kind === 'worker'
    ? new WorkerEngine(device, options.engines, engineOptions(device, options))
    : inThread(device, options);
}

/** The options of a device with the defaults that engines need. */
type EngineChoice = RnicOptions & { readonly scheduler: Scheduler; readonly engines: number };

/** In this thread, over a network of datagrams. */
function overUdp(device: Device, { datagrams, scheduler, busyPoll, trp = {} }: EngineChoice): Engine {
  const network = datagrams ?? new UdpNetwork(new BusyPoll(resolveBusyPoll(busyPoll)));
  const transport = new TrpTransport(network, scheduler, datagrams === undefined ? systemHost : null);
  return new InlineEngine(transport, scheduler, device, { make: streamMaker('trp', trp, device.resources) });
}

/** In this thread, to other threads of the process. */
function overMemory(device: Device, { scheduler, busyPoll }: EngineChoice): Engine {
  const network = tappable(new ShmTransport(new BusyPoll(resolveBusyPoll(busyPoll))), scheduler);
  networks.set(device, network);
  return new InlineEngine(network, scheduler, device, { make: streamMaker('shm', {}, device.resources) });
}

function inThread(device: Device, { transport, scheduler, busyPoll, trp = {} }: EngineChoice): Engine {
  const make = streamMaker(device.wire, trp, device.resources);
  if (transport !== undefined) {
    const network = tappable(transport, scheduler);
    networks.set(device, network);
    return new InlineEngine(network, scheduler, device, { make });
  }
  // Reads land in memory of the CRC engine, where they are checked without a copy.
  const tcp = new TcpTransport({
    allocate: (octets) => readMemory(device.resources.crc, octets),
    ...(busyPoll !== undefined && { busyPoll }),
  });
  const network = tappable(tcp, scheduler);
  transports.set(device, tcp);
  networks.set(device, network);
  return new InlineEngine(network, scheduler, device, { make });
}

/**
 * The environment variables are read and checked here, where a wrong word throws in the call that opens the
 * device.
 */
function engineOptions(device: Device, { crc32c, busyPoll, trp = {} }: RnicOptions): EngineOptions {
  return {
    crc32c: crc32c ?? environmentCrc32c(),
    receive: resolveReceive(),
    busyPoll: resolveBusyPoll(busyPoll),
    stagLimit: device.limits.maxMr,
    wire: device.wire,
    trp,
  };
}

function checkMethods(name: string, value: unknown, methods: readonly string[]): void {
  for (const method of methods) {
    if (typeof (value as Record<string, unknown> | null)?.[method] === 'function') continue;
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must have the methods ${methods.join(', ')}, got ${show(value)}`,
    );
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

let rightsWarning: 'not yet' | 'given' = 'not yet';

/**
 * @internal Warn, once in a process, that a peer gets every right to a region because the program names none.
 * A warning, and no error: programs that leave the rights out are right as long as their peers are trusted,
 * and the rights take effect only with a ticket that the program gives out.
 */
export function warnOfAllRights(): void {
  if (rightsWarning === 'given') return;
  rightsWarning = 'given';
  process.emitWarning(
    'register and allocate without rights let a peer that has a ticket read and write the region: ' +
      "name the rights, 'none', 'read', 'write', 'read-write' or 'all'",
    { code: 'IWARP_ALL_RIGHTS' },
  );
}
