/**
 * A `net.Socket` whose bytes travel through another stream. The program keeps the object that it made or was
 * given, so that `instanceof`, its listeners and its references stay right; the methods of this one object
 * are what changes.
 */
import { nextTick } from 'node:process';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { RdmaSocket } from '../sockets/index.ts';

type Callback = (error?: Error | null) => void;

/** The methods of a stream that stand in for those of `net.Socket`. */
interface Inner extends Duplex {
  _read(size: number): void;
}

const OWN = [
  'once',
  '_read',
  '_write',
  '_writev',
  '_final',
  '_destroy',
  'setNoDelay',
  'setKeepAlive',
  'ref',
  'unref',
];
const READ = [
  ...['remoteAddress', 'remotePort', 'remoteFamily', 'localAddress', 'localPort', 'localFamily'],
  ...['bytesRead', 'bytesWritten'],
];

/** Undo {@link standOn}, before anything has been written or read: the object is a plain socket again. */
export function standAlone(socket: Socket): void {
  for (const name of [...OWN, ...READ, 'address', 'resetAndDestroy', 'pending'])
    Reflect.deleteProperty(socket, name);
}

/** Give this one object another method than its class has. */
export function override(socket: Socket, name: string, value: unknown): void {
  Object.defineProperty(socket, name, { value, configurable: true, writable: true });
}

/**
 * A `tls.TLSSocket` over a `net.Socket` without a handle waits for its 'connect', which has been or never
 * comes: such a listener is called at once.
 */
function answerConnect(socket: Socket): void {
  override(socket, 'once', (event: string, listener: () => void) => {
    if (event === 'connect') nextTick(() => listener.call(socket));
    else Object.getPrototypeOf(socket).once.call(socket, event, listener);
    return socket;
  });
}

/** Let `socket`, which has no connection itself, read and write through `inner`. */
export function standOn(socket: Socket, inner: RdmaSocket): void {
  const through = inner as unknown as Inner;
  const define = (name: string, value: unknown): void => override(socket, name, value);
  define('_read', () => through.resume());
  define('_write', (chunk: Uint8Array, encoding: BufferEncoding, done: Callback) => {
    through.write(chunk, encoding, done);
  });
  define('_writev', (chunks: readonly { chunk: Uint8Array }[], done: Callback) => {
    through.cork();
    chunks.forEach(({ chunk }, i) => through.write(chunk, i === chunks.length - 1 ? done : undefined));
    through.uncork();
  });
  define('_final', (done: Callback) => void through.end(() => done()));
  define('_destroy', (error: Error | null, done: Callback) => {
    through.destroy();
    release(socket, error, done);
  });
  define('resetAndDestroy', () => {
    through.destroy();
    return socket.destroy();
  });
  define('setNoDelay', () => socket);
  define('setKeepAlive', (on?: boolean, delay?: number) => {
    inner.setKeepAlive(on, delay);
    return socket;
  });
  define('ref', () => {
    inner.ref();
    return socket;
  });
  define('unref', () => {
    inner.unref();
    return socket;
  });
  define('address', () => inner.address());
  answerConnect(socket);
  Object.defineProperty(socket, 'pending', { get: () => false, configurable: true });
  for (const name of READ)
    Object.defineProperty(socket, name, { get: () => inner[name as keyof RdmaSocket], configurable: true });
  through.on('data', (chunk: Uint8Array) => {
    activity(socket);
    if (!socket.push(chunk)) through.pause();
  });
  through.on('end', () => {
    socket.push(null);
    // As in net.Socket: an end that nobody waits for has to be seen.
    if (socket.readableLength === 0) socket.read(0);
  });
  through.on('error', (error: Error) => socket.destroy(error));
  through.on('close', () => {
    if (!socket.destroyed && !socket.readableEnded && socket.readableLength === 0) socket.push(null);
  });
  through.pause();
}

/** All that a `net.Socket` without a connection does at its end: timers, its server's count, 'close'. */
export function release(socket: Socket, error: Error | null, done: Callback): void {
  const { _destroy } = Object.getPrototypeOf(socket) as Duplex;
  _destroy.call(socket, error, done as (error?: Error | null) => void);
}

/** `setTimeout` of net.Socket counts from here. */
function activity(socket: Socket): void {
  const { _unrefTimer: touch } = socket as unknown as { _unrefTimer?: () => void };
  touch?.call(socket);
}
