/**
 * `iwarp/sockets`: byte streams over RDMA in the shape of `node:net`. On the wire they speak the protocol of
 * librdmacm's rsockets. Stream code runs over them unchanged: `pipeline`, `http`, everything that takes a
 * Duplex.
 *
 * @module iwarp/sockets
 */
import { connect, RdmaSocket } from './socket.ts';
import { createServer, RdmaServer } from './server.ts';

export type { ConnectOptions, LookupAddress, LookupFunction, PathOptions } from './connect.ts';
export type { SocketError } from './system-error.ts';
export {
  connect,
  connect as createConnection,
  RdmaSocket,
  RdmaSocket as Socket,
  type ReadyState,
  type SocketEvents,
} from './socket.ts';
export {
  createServer,
  RdmaServer,
  RdmaServer as Server,
  type DropArgument,
  type ListenOptions,
  type ServerEvents,
  type ServerOptions,
} from './server.ts';
export { connectSecure, createSecureServer, type SecureServerOptions } from './secure.ts';
export type { OnReadOptions } from './onread.ts';
export type { ChannelOptions } from './byte-channel.ts';
export { Lease, type LeaseState, type LendOptions, type TouchMode } from './owned.ts';
export type { PrivateBufferOptions, SdpOptions, SdpStreamMode } from '../sdp/options.ts';
export type { HelloPlacement } from '../sdp/placement.ts';
export type { TlsInfo, TlsMaterial, TlsOptions } from '../transport/tls-options.ts';
export type { RdmaSocketOptions, StreamProtocolName } from './options.ts';
export type { BindOptions } from '../cm/target.ts';
export type { ThreadPort } from '../transport/port.ts';
export { ExtendedSocket, type ExtendedSocketOptions } from './extended/socket.ts';
export {
  connectExtended,
  createExtendedServer,
  ExtendedServer,
  type ExtendedServerOptions,
} from './extended/server.ts';
export type { RdmaModeOptions, StartRdmaOptions } from './extended/options.ts';
export type { ExtendedCompletion, ExtendedOperation } from './extended/completions.ts';
export type { ExtendedState } from './extended/states.ts';
export type { Gather } from '../transport/gather-port.ts';

/** The names of `node:net`, for code that imports its default export. */
const sockets: {
  /** See {@link connect}. */
  readonly connect: typeof connect;
  /** The same as `connect`. */
  readonly createConnection: typeof connect;
  /** See {@link createServer}. */
  readonly createServer: typeof createServer;
  /** See {@link RdmaSocket}. */
  readonly Socket: typeof RdmaSocket;
  /** See {@link RdmaServer}. */
  readonly Server: typeof RdmaServer;
} = { connect, createConnection: connect, createServer, Socket: RdmaSocket, Server: RdmaServer };
export default sockets;
