/**
 * Gives an accepted socket a caller-owned read buffer.
 *
 * `net.connect` documents the `onread` option; `net.createServer` has no counterpart up to the newest Node looked at. The way round is
 * to take the operating system's handle out of the accepted socket and to build a socket of our own over it. That needs two things
 * Node does not document, the property `_handle` and the constructor option `handle`. They appear in this file only, and every
 * step is checked at run time: when a check fails the connection goes on with 'data' events.
 *
 * Worth it: 'data' events allocate for each read and reach about half the throughput of a reused buffer; they also cost three times
 * the resident memory per connection that has seen traffic.
 */

import { Socket } from 'node:net';
import type { OnReadOpts, SocketConstructorOpts } from 'node:net';

/** What we expect behind `_handle`; `useUserBuffer` is what the `onread` option ends in. */
interface StreamHandle {
  useUserBuffer(buffer: Uint8Array): void;
  readStart(): number;
  readStop(): number;
}

/** The two undocumented doors, typed. */
type OpenedSocket = Socket & { _handle: StreamHandle | null };
type HandleOptions = SocketConstructorOpts & { handle: StreamHandle; pauseOnCreate: boolean; onread: OnReadOpts };

/** What became of an accepted socket. */
export interface Adopted {
  /** The socket to use from now on, paused; half-open connections stay allowed. */
  readonly socket: Socket;
  /** Whether it reads into the caller's buffer. If not, its octets come as 'data' events. */
  readonly userBuffer: boolean;
}

/**
 * Moves the connection of `accepted` to a socket which reads into `onread`'s buffer, where this Node allows it. `accepted` must come
 * from a server with `pauseOnConnect`, so that nothing has been read from it yet; after a move it is an empty shell that the server
 * no longer counts. `asked` tells whether the buffer has been asked for; without it that is taken for granted. After a failed check `socket` is one that works with 'data' events, usually `accepted` itself.
 */
export function adopt(accepted: Socket, onread: OnReadOpts, asked: () => boolean = () => true): Adopted {
  const handle = (accepted as OpenedSocket)._handle;
  if (!isStreamHandle(handle)) return { socket: accepted, userBuffer: false };
  const options: HandleOptions = { handle, onread, allowHalfOpen: true, pauseOnCreate: true };
  (accepted as OpenedSocket)._handle = null;
  const socket = new Socket(options);
  if ((socket as OpenedSocket)._handle !== handle) {
    // The option `handle` was ignored: what we made is an unconnected socket.
    (accepted as OpenedSocket)._handle = handle;
    socket.destroy();
    return { socket: accepted, userBuffer: false };
  }
  accepted.destroy();
  // A Node that ignores `onread` beside `handle` never asked for the buffer; the socket itself is good.
  return { socket, userBuffer: asked() };
}

function isStreamHandle(value: unknown): value is StreamHandle {
  if (typeof value !== 'object' || value === null) return false;
  const handle = value as Partial<StreamHandle>;
  return (
    typeof handle.useUserBuffer === 'function' && typeof handle.readStart === 'function' && typeof handle.readStop === 'function'
  );
}
