/** `iwarp/sockets`: byte streams over RDMA in the shape of `node:net`, on the wire those of librdmacm's rsockets. */
export { connect, RdmaSocket, type ConnectOptions, type RdmaSocketOptions, type ReadyState } from './socket.ts';
export { createServer, RdmaServer, type ListenOptions, type ServerOptions } from './server.ts';
export type { ChannelOptions } from './channel.ts';
