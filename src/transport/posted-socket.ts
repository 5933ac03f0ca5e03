/**
 * Accepted sockets that go to another thread. Newer Nodes transfer a connected TCP socket by `postMessage` as
 * long as nothing has been read from it or written to it; older ones cannot, and Bun and Deno have no such
 * thing.
 */
import { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';

/** The method by which Node moves an object to another thread; the object's class has it or has not. */
const TRANSFER = 'messaging_transfer_symbol';

/** Whether `postMessage` transfers sockets here. */
export function postsSockets(): boolean {
  return Object.getOwnPropertySymbols(Socket.prototype).some(({ description }) => description === TRANSFER);
}

/** Post a socket, which is gone here afterwards. One that cannot be moved is destroyed; then false. */
export function postSocket(port: MessagePort, socket: Socket): boolean {
  try {
    port.postMessage({ socket }, [socket as unknown as MessagePort]);
    return true;
  } catch {
    socket.on('error', ignore);
    socket.destroy();
    return false;
  }
}

/** The socket in a message of {@link postSocket}, paused as it was; null if the message has none. */
export function postedSocket(message: unknown): Socket | null {
  const socket = (message as { readonly socket?: unknown } | null)?.socket;
  if (!(socket instanceof Socket)) return null;
  socket.pause();
  return socket;
}

function ignore(): void {
  // The connection is given up.
}
