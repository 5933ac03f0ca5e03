/** The devices of this process, for tools that look at them. */
import type { ConnectionManager } from '../cm/manager.ts';
import type { Device } from '../verbs/device.ts';
import { publishConnection, publishDevice } from './diagnostics.ts';

/** A device with the manager of its connections. */
export interface ObservedDevice {
  readonly device: Device;
  readonly cm: ConnectionManager;
}

/** The references are weak, so that a device that is no longer used can go. */
let known: WeakRef<ObservedDevice>[] = [];

/** From now on the device is seen: its events on the diagnostics channels, its state in snapshots. */
export function observe(one: ObservedDevice): void {
  one.cm.census.observer = publishConnection;
  one.device.observer = publishDevice;
  known = known.filter((ref) => ref.deref() !== undefined);
  known.push(new WeakRef(one));
}

/** Every device that is in use. */
export function observedDevices(): ObservedDevice[] {
  return known.flatMap((ref) => ref.deref() ?? []);
}
