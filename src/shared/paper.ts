/**
 * The six calls of the paper "Software RDMA over commodity Ethernet" by their own names. Where C hands
 * results through pointers, these return them; `-EAGAIN` is -1 and `-EINVAL` is a thrown RangeError.
 */
import { defaultRnic } from '../api/environment.ts';
import { connect, type SharedTarget } from './connect.ts';
import { listen, type SharedListener } from './listen.ts';
import type { SharedEvent } from './operations.ts';
import type { SharedSocket } from './socket.ts';

/** What `rdma_accept` and `rdma_connect` give back. */
export interface RdmaSharedConnection {
  /** For the calls below. */
  readonly socket: SharedSocket;
  /** The peer's address. */
  readonly remote: { readonly address: string; readonly port: number };
  /** This side's region. */
  readonly mr_base: Uint8Array;
  /** Its length in bytes. */
  readonly mr_len: number;
}

/** Open the process's device, so that the first connection does not wait for it. */
export function rdma_init(): void {
  defaultRnic();
}

/** As {@link listen}. */
export function rdma_listen(address: SharedTarget, backlog?: number): Promise<SharedListener> {
  return listen(address, backlog);
}

/** As `accept` of the listener. */
export async function rdma_accept(listener: SharedListener): Promise<RdmaSharedConnection> {
  return outcome((await listener.accept()).socket);
}

/** As {@link connect}, with a region of 16 MiB. */
export async function rdma_connect(remote: SharedTarget): Promise<RdmaSharedConnection> {
  return outcome((await connect(remote)).socket);
}

/** As {@link SharedSocket.read}. */
export function rdma_read(socket: SharedSocket, len: number, loffset: number, roffset: number): number {
  return socket.read(len, loffset, roffset);
}

/** As {@link SharedSocket.write}. */
export function rdma_write(socket: SharedSocket, len: number, loffset: number, roffset: number): number {
  return socket.write(len, loffset, roffset);
}

/** As {@link SharedSocket.poll}. */
export function rdma_completion_poll(socket: SharedSocket, events: SharedEvent[], num?: number): number {
  return socket.poll(events, num);
}

function outcome(socket: SharedSocket): RdmaSharedConnection {
  const { address, port } = socket.remoteAddress ?? { address: '', port: 0 };
  return { socket, remote: { address, port }, mr_base: socket.region, mr_len: socket.length };
}
