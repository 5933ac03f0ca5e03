/**
 * Events of connections and devices on `node:diagnostics_channel`, named `iwarp:<object>:<event>`. Without a
 * subscriber an event costs one comparison, and a connection has less than a dozen events in its life.
 */
import { channel, type Channel } from 'node:diagnostics_channel';
import { trace, type Transition } from '../base/fsm.ts';
import { checkFunction } from '../base/errors.ts';
import { observed } from '../base/observed.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { AsyncEvent } from '../verbs/events.ts';
import type { Device } from '../verbs/device.ts';
import { guarded } from './taps.ts';

/** Message on the channels `iwarp:connection:*`; the last part of the name is `event.type`. */
export interface ConnectionDiagnostics {
  /** The connection, as in `iwarp/cm`. */
  readonly connection: CmConnection;
  /** What happened to it. */
  readonly event: CmEvent;
}

/** Message on the channels `iwarp:device:*`; the last part of the name is `event.type`. */
export interface DeviceDiagnostics {
  /** The device. */
  readonly device: Device;
  /** The asynchronous event, with the resource it concerns. */
  readonly event: AsyncEvent;
}

/** Tables instead of lists, so that an event without a channel does not compile. */
const CONNECTION_EVENTS: readonly string[] = Object.keys({
  'connect-response': true,
  established: true,
  rejected: true,
  unreachable: true,
  'address-error': true,
  'connect-error': true,
  terminate: true,
  closing: true,
  disconnected: true,
} satisfies Record<CmEvent['type'], true>);
const DEVICE_EVENTS: readonly string[] = Object.keys({
  'terminate-received': true,
  'terminate-sent': true,
  'llp-closing': true,
  'llp-close-complete': true,
  'bad-close': true,
  'llp-connection-lost': true,
  'llp-connection-reset': true,
  'cq-overflow': true,
  'datagram-cq-overflow': true,
  'srq-limit': true,
  'srq-catastrophic': true,
  'rq-limit': true,
  'last-wqe-reached': true,
  'device-fatal': true,
} satisfies Record<AsyncEvent['type'], true>);

const named = (object: string, events: readonly string[]): ReadonlyMap<string, Channel> =>
  new Map(events.map((event) => [event, channel(`iwarp:${object}:${event}`)]));
const connectionChannels = named('connection', CONNECTION_EVENTS);
const deviceChannels = named('device', DEVICE_EVENTS);

/** Names of all channels. */
export const DIAGNOSTICS_CHANNELS: readonly string[] = [
  ...CONNECTION_EVENTS.map((event) => `iwarp:connection:${event}`),
  ...DEVICE_EVENTS.map((event) => `iwarp:device:${event}`),
];

/** @internal */
export function publishConnection(connection: CmConnection, event: CmEvent): void {
  const target = connectionChannels.get(event.type);
  if (target?.hasSubscribers === true)
    observed(() => target.publish({ connection, event } satisfies ConnectionDiagnostics));
}

/** @internal */
export function publishDevice(device: Device, event: AsyncEvent): void {
  const target = deviceChannels.get(event.type);
  if (target?.hasSubscribers === true)
    observed(() => target.publish({ device, event } satisfies DeviceDiagnostics));
}

const listeners = new Set<(transition: Transition) => void>();

/**
 * Call `listener` for every step of every state machine of the process: start-up, stream, queue pair. Call
 * the returned function to stop. The listener runs in the middle of protocol work and must not call into the
 * stack. What it throws is an uncaught exception.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const stop = traceTransitions(({ table, from, input, to }) => console.log(`${table}: ${from} -- ${input} ->
 * ${to}`));
 */
export function traceTransitions(listener: (transition: Transition) => void): () => void {
  checkFunction('listener', listener);
  // Each call makes its own listener: the same function given twice is called twice and stopped once.
  const own = (transition: Transition): void => guarded(() => listener(transition));
  listeners.add(own);
  trace.transition = (transition) => {
    for (const each of listeners) each(transition);
  };
  return () => {
    listeners.delete(own);
    if (listeners.size === 0) trace.transition = null;
  };
}
