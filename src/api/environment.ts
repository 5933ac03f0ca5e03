/**
 * The one place where the promise layer meets the machine: the process's device, its TCP transport and its clock, made on first use.
 */
import type { Scheduler } from '../base/clock.ts';
import { ConnectionManager } from '../cm/manager.ts';
import type { Transport } from '../transport/port.ts';
import { realScheduler } from '../transport/scheduler.ts';
import { TcpTransport } from '../transport/tcp.ts';
import { Device, type DeviceOptions } from '../verbs/device.ts';

/** A device with its way to the network. */
export interface Rnic {
  readonly device: Device;
  readonly cm: ConnectionManager;
  readonly scheduler: Scheduler;
}

/** Options of {@link openRnic}. */
export interface RnicOptions extends DeviceOptions {
  /** Default: TCP. `iwarp/testing` has an in-memory one. */
  readonly transport?: Transport;
  readonly scheduler?: Scheduler;
}

/** A device of its own, with separate limits and STags. */
export function openRnic(options: RnicOptions = {}): Rnic {
  const { transport, scheduler = realScheduler, ...deviceOptions } = options;
  const device = new Device({ defer: (task) => scheduler.defer(task), ...deviceOptions });
  // Reads land in memory of the CRC engine, where they are checked without a copy.
  const tcp = transport ?? new TcpTransport({ allocate: (octets) => device.resources.crc.allocate(octets) });
  return { device, cm: new ConnectionManager(device, tcp, scheduler), scheduler };
}

let shared: Rnic | undefined;

/** The process's own. */
export function defaultRnic(): Rnic {
  shared ??= openRnic();
  return shared;
}
