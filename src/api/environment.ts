/**
 * The one place where the promise layer meets the machine: the process's device, its TCP transport and its clock, made on first use.
 */
import type { Scheduler } from '../base/clock.ts';
import { IwarpError, show } from '../base/errors.ts';
import { ConnectionManager } from '../cm/manager.ts';
import { controlFromEnvironment } from '../observe/control-socket.ts';
import { observe } from '../observe/devices.ts';
import { tappable } from '../observe/taps.ts';
import type { Transport } from '../transport/port.ts';
import { realScheduler } from '../transport/scheduler.ts';
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
}

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
  const { transport, scheduler = realScheduler, ...deviceOptions } = options;
  checkMethods('options.transport', transport ?? { connect: noop, listen: noop }, ['connect', 'listen']);
  checkMethods('options.scheduler', scheduler, ['now', 'at', 'defer']);
  const device = new Device({ defer: (task) => scheduler.defer(task), ...deviceOptions });
  // Reads land in memory of the CRC engine, where they are checked without a copy.
  const tcp = transport ?? new TcpTransport({ allocate: (octets) => device.resources.crc.allocate(octets) });
  const rnic: Rnic = { device, cm: new ConnectionManager(device, tappable(tcp, scheduler), scheduler), scheduler };
  known.add(rnic);
  observe(rnic);
  controlFromEnvironment();
  return rnic;
}

const noop = (): void => undefined;

function checkMethods(name: string, value: unknown, methods: readonly string[]): void {
  for (const method of methods) {
    if (typeof (value as Record<string, unknown> | null)?.[method] === 'function') continue;
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must have the methods ${methods.join(', ')}, got ${show(value)}`);
  }
}

let shared: Rnic | undefined;

/** The process's own. */
export function defaultRnic(): Rnic {
  shared ??= openRnic();
  return shared;
}
