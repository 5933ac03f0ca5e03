/**
 * `iwarp/cm`: the connection manager, modelled on librdmacm. Calls return at once; {@link CmEvent}s report what happens.
 *
 * @module iwarp/cm
 */
export { ConnectionManager, ActiveConnection, PassiveConnection, CmListener, type ConnectOptions, type ListenFailure, type ListenOptions } from './manager.ts';
export type { BindOptions, TargetOptions } from './target.ts';
export { CmConnection, type ConnParam } from './connection.ts';
export type { CmObserver, DeviceCounters } from './census.ts';
export type { CmEvent, ConnectionParameters } from './events.ts';
export { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy, type CrcPolicy, type Negotiated, type RtrKind } from '../mpa/policy.ts';
export type { CloseCause } from '../rdmap/stream-types.ts';
export type { StartupFailure } from '../mpa/startup.ts';
