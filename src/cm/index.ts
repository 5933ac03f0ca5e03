/**
 * `iwarp/cm`: the connection manager, modelled on librdmacm. Calls return at once; {@link CmEvent}s report
 * all that follows.
 *
 * @module iwarp/cm
 */
export { ConnectionManager } from './manager.ts';
export { ActiveConnection, type ConnectOptions } from './active-connection.ts';
export { CmListener, PassiveConnection, type ListenFailure, type ListenOptions } from './listener.ts';
export { InlineEngine, type EngineDevice, type InlineEngineOptions } from '../engine/inline/inline-engine.ts';
export type { Engine } from '../engine/engine.ts';
export type { BindOptions, TargetOptions } from './target.ts';
export type { ThreadPort } from '../transport/port.ts';
export { CmConnection, type ConnParam, type KeepAliveOptions, type PortAttributes } from './connection.ts';
export type { CmObserver, DeviceCounters } from './connection-stats.ts';
export type { CmEvent, ConnectionParameters } from './events.ts';
export {
  DEFAULT_POLICY,
  resolvePolicy,
  type ConnectionPolicy,
  type CrcPolicy,
  type Negotiated,
  type RtrKind,
} from '../mpa/policy.ts';
export type { CloseCause } from '../stream/types.ts';
export type { StartupFailure } from '../mpa/startup.ts';
