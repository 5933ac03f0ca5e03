/**
 * `iwarp/shared`: a region of memory at each end of a connection, which both sides read and write with six
 * calls, after the paper "Software RDMA over commodity Ethernet". Below it is plain iWARP: the tickets of the
 * regions cross in private data, so any verbs program can be the peer.
 *
 * @module iwarp/shared
 */
export { connect, type SharedConnection, type SharedTarget } from './connect.ts';
export { listen, SharedListener, type SharedListenOptions } from './listen.ts';
export type { SharedEvent } from './operations.ts';
export type { RegionOptions } from './options.ts';
export {
  rdma_accept,
  rdma_completion_poll,
  rdma_connect,
  rdma_init,
  rdma_listen,
  rdma_read,
  rdma_write,
  type RdmaSharedConnection,
} from './paper.ts';
export { SharedRangeError, SharedSocket } from './socket.ts';
export type { SharedState } from './states.ts';
