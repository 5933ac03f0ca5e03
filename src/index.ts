/**
 * `iwarp`: RDMA for Node programs. Connect, register memory, send, receive, read, write.
 *
 * Verbs are in `iwarp/verbs`, the connection manager in `iwarp/cm`, codecs in `iwarp/wire`, and the in-memory
 * network for tests in
 * `iwarp/testing`.
 *
 * @module iwarp
 */
export { connect, type ConnectMore, type ConnectOptions } from './api/connect.ts';
export type { BindOptions, TargetOptions } from './cm/target.ts';
export {
  createServer,
  Server,
  type ConnectionHandler,
  type ServerListenOptions,
  type ServerOptions,
  type ServerPlace,
  type ServerRequest,
} from './api/server.ts';
export { upgrade, type UpgradeOptions } from './api/upgrade.ts';
export type { TlsInfo, TlsMaterial, TlsOptions } from './transport/tls-options.ts';
export { Connection } from './api/connection.ts';
export type {
  CompareSwapOptions,
  FetchAddOptions,
  SendImmediateOptions,
  SendOptions,
} from './api/connection-options.ts';
export type { AllocateOptions, LocalMemory, PeerAccess } from './api/local-memory.ts';
export type { OperationOptions } from './api/operations.ts';
export type { EndpointOptions } from './api/endpoint.ts';
export {
  DIAGNOSTICS_CHANNELS,
  traceTransitions,
  type ConnectionDiagnostics,
  type DeviceDiagnostics,
} from './observe/diagnostics.ts';
export { captureTo, traceFrames, type Capture, type TracedFrame } from './observe/frames.ts';
export type { WireName } from './base/wires.ts';
export type { TrpOptions, TrpProfileName, TrpReadsName, TrpReceiverName } from './trp/profile.ts';
export type { Transition } from './base/fsm.ts';
export type { RandomU32 } from './base/random.ts';
export type { Crc32cEngineName } from './crc32c/engine.ts';
export type { DeviceCounters } from './cm/connection-stats.ts';
export type { Latency, LatencyKind } from './api/latency.ts';
export {
  createClient,
  Client,
  type ClientOptions,
  type ClientStatus,
  type UseOptions,
} from './client/client.ts';
export type { ReconnectOptions } from './client/backoff.ts';
export type { HeartbeatOptions } from './api/liveness.ts';
export { Loan, type LendOptions, type LoanEnd } from './api/loan.ts';
export {
  RemoteView,
  type FieldKind,
  type NumberArray,
  type NumberArrayClass,
  type RemoteViewOptions,
  type StructLayout,
  type StructValues,
} from './api/remote-view.ts';
export { Request } from './rpc/requests.ts';
export type { RequestHandler } from './rpc/session.ts';
export { ByteStream } from './rpc/streams.ts';
export { Message } from './api/message.ts';
export { RemoteBuffer, REMOTE_BUFFER_OCTETS } from './api/remote-buffer.ts';
export { CONTROL_VARIABLE, serveControl, type ControlServer } from './observe/control-socket.ts';
export { openRnic, defaultRnic, type EngineKind, type Rnic, type RnicOptions } from './api/environment.ts';
export {
  OperationError,
  RejectedError,
  TerminateError,
  type CloseInfo,
  type ErrorContext,
  type ServerFailure,
} from './api/errors.ts';
export { ERROR_CODES, IwarpError, type IwarpErrorCode } from './base/errors.ts';
export { ACCESS } from './ddp/stag-table.ts';
export { MemoryRegion, type RegisterOptions, type Sge } from './verbs/memory.ts';
export { MemoryWindow } from './verbs/window.ts';
export { ProtectionDomain } from './verbs/pd.ts';
export {
  DEFAULT_POLICY,
  type ConnectionPolicy,
  type CrcPolicy,
  type Negotiated,
  type RtrKind,
} from './mpa/policy.ts';
export { PRESETS, type PresetName } from './mpa/presets.ts';
export type { TerminateInfo } from './rdmap/terminate.ts';
export type { CloseCause, MessageCounters, StreamCounters } from './stream/types.ts';
export type { PortAddress, ThreadPort } from './transport/port.ts';
