/**
 * A socket whose connection has moved to the stack: its methods, its end and its events are those of the RDMA
 * connection.
 */
import { Socket } from 'node:net';
import { IwarpError } from '../../base/errors.ts';
import type { PortAddress } from '../../transport/port.ts';
import { extensionOf } from './extension.ts';

const NOTHING = (): void => undefined;

type Callback = (error?: Error | null) => void;

/** The properties of a connection that its socket forgets with it: our end, and the plain bytes. */
interface PlainPast {
  readonly local: PortAddress;
  readonly bytesRead: number;
  readonly bytesWritten: number;
}

/**
 * From now on this one object stands for the RDMA connection: its stream carries nothing, and its end is that
 * of the connection.
 */
export function standOnRdma(socket: Socket, { local, bytesRead, bytesWritten }: PlainPast): void {
  const extension = extensionOf(socket);
  const define = (name: string, value: unknown): void =>
    void Object.defineProperty(socket, name, { value, configurable: true, writable: true });
  const connection = (): { ref(): void; unref(): void } | null => extension.side!.connection;
  const refuse = (): never => {
    throw new IwarpError(
      'ERR_INVALID_STATE',
      'the socket speaks RDMA: use postSend or put, bytes cannot be written to it as a stream',
    );
  };
  socket.setTimeout(0);
  define('write', refuse);
  define('_write', (_chunk: unknown, _encoding: unknown, done: Callback) => {
    done(new IwarpError('ERR_INVALID_STATE', 'the socket speaks RDMA: its stream carries no bytes'));
  });
  define('_read', NOTHING);
  define('_final', (done: Callback) => close(socket, done));
  define('_destroy', (error: Error | null, done: Callback) => {
    drop(socket);
    Socket.prototype._destroy.call(socket, error, done);
  });
  define('resetAndDestroy', () => socket.destroy());
  define('setNoDelay', () => socket);
  define('setKeepAlive', (on: boolean = false, delay: number = 0) => {
    extension.side!.connection?.setKeepAlive(Boolean(on), delay);
    return socket;
  });
  define('ref', () => (connection()?.ref(), socket));
  define('unref', () => (connection()?.unref(), socket));
  define('address', () => local);
  const show = (name: string, value: unknown): void =>
    void Object.defineProperty(socket, name, { get: () => value, configurable: true });
  show('pending', false);
  // A socket without a connection still has the peer's address, and not its own.
  show('localAddress', local.address);
  show('localPort', local.port);
  show('localFamily', local.family);
  show('bytesRead', bytesRead);
  show('bytesWritten', bytesWritten);
}

/** `end()`: posted work first, then both directions. */
function close(socket: Socket, done: Callback): void {
  const extension = extensionOf(socket);
  const { life, side } = extension;
  if (life!.state === 'closed') {
    done();
    return;
  }
  life!.step('end');
  extension.onGone = done;
  side!.connection!.disconnect();
}

/** `destroy()`: at once; posts under way are flushed. */
function drop(socket: Socket): void {
  const { life, side, switched } = extensionOf(socket);
  if (life!.state === 'closed') return;
  life!.step('end');
  side!.connection?.abort();
  if (switched !== null)
    switched(new IwarpError('ERR_CONNECTION_CLOSED', 'the socket was destroyed during the switch to RDMA'));
}

/** The RDMA connection is gone. */
export function ended(socket: Socket, error: IwarpError | undefined): void {
  const extension = extensionOf(socket);
  const { switched, onGone } = extension;
  extension.life!.step('gone');
  if (switched !== null) {
    switched(error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the peer has ended the connection'));
    return;
  }
  if (socket.destroyed) return;
  if (error !== undefined) {
    socket.destroy(error);
    return;
  }
  extension.onGone = null;
  socket.push(null);
  onGone?.();
  // RDMA has no half-open connections, and nobody has to read for the end to be seen.
  socket.end();
  socket.resume();
}
