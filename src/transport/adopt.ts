/**
 * Gives an accepted socket a caller-owned read buffer.
 *
 * `net.connect` documents the `onread` option; `net.createServer` has no counterpart up to the newest Node
 * looked at. Two ways round: to build another socket over the operating system's handle of a new
 * connection before the server makes one ({@link acceptHandles}); or, where that cannot be had, to take the
 * handle out of the socket that the server has made ({@link adopt}). They need three things Node does not
 * document: the property `_handle` of sockets and servers, the call-back `onconnection` of a server's handle,
 * and the constructor option
 * `handle`. They appear in this file only, and every step is checked at run time: when a check fails the
 * connection goes the next way, in the end on with 'data' events. {@link readInto} goes through the same
 * door.
 *
 * Worth it: 'data' events allocate for each read and reach half to nine tenths of the throughput of a reused
 * buffer; they also cost three times the resident memory per connection that has seen traffic (`bulk` and
 * `idle` of `iwarp bench`, TCP with 'data'). A socket made
 * only to be taken apart is some 4 KiB of garbage a connection.
 */

import { Socket } from 'node:net';
import type { OnReadOpts, Server, SocketConstructorOpts } from 'node:net';

/** The methods expected behind `_handle` of a socket; the `onread` option ends in `useUserBuffer`. */
export interface StreamHandle {
  useUserBuffer(buffer: Uint8Array): void;
  readStart(): number;
  readStop(): number;
}

/**
 * The method expected behind `_handle` of a listening server, which calls it for each connection, or each
 * that could not be accepted.
 */
interface ListeningHandle {
  onconnection: (this: ListeningHandle, error: number, handle: unknown) => void;
}

/** The undocumented doors, typed. */
type OpenedSocket = Socket & { _handle: StreamHandle | null };
type OpenedServer = Server & { _handle?: Partial<ListeningHandle> | null };
type HandleOptions = SocketConstructorOpts & {
  handle: StreamHandle;
  pauseOnCreate: boolean;
  onread?: OnReadOpts;
};

/** The result of adopting an accepted socket. */
interface Adopted {
  /** The socket to use from now on, paused; half-open connections stay allowed. */
  readonly socket: Socket;
  /** Whether it reads into the caller's buffer. If not, its bytes come as 'data' events. */
  readonly userBuffer: boolean;
}

/**
 * Offers each connection of `server`, which is listening, to `take` before a socket is made for it, where
 * this Node allows it. What `take` does not take, by returning false, becomes a 'connection' event; so does
 * everything where this Node does not. The server does not count a taken connection.
 */
export function acceptHandles(server: Server, take: (handle: StreamHandle) => boolean): void {
  const listening = (server as OpenedServer)._handle;
  const made = listening?.onconnection;
  if (typeof made !== 'function') return;
  (listening as ListeningHandle).onconnection = function (error, handle) {
    if (error || !isStreamHandle(handle) || !take(handle)) made.call(this, error, handle);
  };
}

/**
 * A socket over `handle` that reads into `onread`'s buffer, if that is given, paused, half-open connections
 * allowed; null, and `handle` as it was, if this Node makes none.
 */
export function socketOver(handle: StreamHandle, onread: OnReadOpts | null): Socket | null {
  const how = { handle, allowHalfOpen: true, pauseOnCreate: true };
  const options: HandleOptions = onread === null ? how : { ...how, onread };
  const socket = new Socket(options);
  if ((socket as OpenedSocket)._handle === handle) return socket;
  // The option `handle` was ignored: the new socket is an unconnected one.
  socket.destroy();
  return null;
}

/**
 * Moves the connection of `accepted` to a socket which reads into `onread`'s buffer, where this Node allows
 * it. `accepted` must come from a server with `pauseOnConnect`, so that nothing has been read from it yet;
 * after a move it is an empty shell that the server no longer counts. `asked` is whether the buffer has
 * been asked for; without it that is taken for granted. After a failed check `socket` is one that works with
 * 'data' events, usually `accepted` itself.
 */
export function adopt(accepted: Socket, onread: OnReadOpts, asked: () => boolean = () => true): Adopted {
  const handle = (accepted as OpenedSocket)._handle;
  if (!isStreamHandle(handle)) return { socket: accepted, userBuffer: false };
  (accepted as OpenedSocket)._handle = null;
  const socket = socketOver(handle, onread);
  if (socket === null) {
    (accepted as OpenedSocket)._handle = handle;
    return { socket: accepted, userBuffer: false };
  }
  accepted.destroy();
  // A Node that ignores `onread` beside `handle` never asked for the buffer; the socket itself is good.
  return { socket, userBuffer: asked() };
}

/**
 * Moves the connection of `socket`, which may have been read and written, to a new socket: one that reads
 * into `onread`'s buffer, or without it by 'data' events. `socket` has no connection afterwards. Null, and
 * `socket` as it was, if this Node makes none.
 */
export function moveConnection(socket: Socket, onread: OnReadOpts | null): Socket | null {
  const handle = (socket as OpenedSocket)._handle;
  if (!isStreamHandle(handle)) return null;
  handle.readStop();
  (socket as OpenedSocket)._handle = null;
  const moved = socketOver(handle, onread);
  if (moved === null) {
    (socket as OpenedSocket)._handle = handle;
    handle.readStart();
  }
  return moved;
}

/**
 * Have the next read of `socket`, which reads into caller-owned memory, go to `memory`: after a throw in the
 * tick of a read Node takes that memory to be the new one and the system has kept the one before. Does
 * nothing, and returns false, where this Node has no such door. Each call costs some memory until the socket
 * closes.
 */
export function readInto(socket: Socket, memory: Uint8Array): boolean {
  const handle = (socket as OpenedSocket)._handle;
  if (!isStreamHandle(handle)) return false;
  handle.useUserBuffer(memory);
  return true;
}

function isStreamHandle(value: unknown): value is StreamHandle {
  if (typeof value !== 'object' || value === null) return false;
  const handle = value as Partial<StreamHandle>;
  return (
    typeof handle.useUserBuffer === 'function' &&
    typeof handle.readStart === 'function' &&
    typeof handle.readStop === 'function'
  );
}
