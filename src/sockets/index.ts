/**
 * `iwarp/sockets`: byte streams over RDMA in the shape of `node:net`. On the wire they speak the protocol of librdmacm's rsockets. Stream code
 * runs over them unchanged: `pipeline`, `http`, everything that takes a Duplex.
 *
 * @module iwarp/sockets
 */
export { connect, type ConnectOptions } from './connect.ts';
export { RdmaSocket, type ReadyState, type SocketEvents } from './socket.ts';
export { createServer, RdmaServer, type DropArgument, type ListenOptions, type ServerEvents, type ServerOptions } from './server.ts';
export type { OnReadOptions } from './onread.ts';
export type { ChannelOptions, RdmaSocketOptions } from './options.ts';
export type { BindOptions } from '../cm/target.ts';
