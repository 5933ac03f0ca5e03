/**
 * Unix sockets of `node:net` as ports: the same byte streams as TCP's, under a path in place of an address.
 *
 * Three things differ. The end that has connected has no address. Nothing can be reset: a peer reads the end
 * of the stream where TCP would send a reset. And the system limits the path; up to Node 22 a longer one is
 * cut off in silence, and another file bound than the one that was named.
 */
import { Buffer } from 'node:buffer';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import type { PortAddress } from './port.ts';
import { TcpPort } from './tcp-port.ts';

/** Bytes of a path in the system's address of a socket, without the zero behind it. */
const MOST_OCTETS = process.platform === 'linux' ? 107 : process.platform === 'win32' ? 32_767 : 103;

/** The end that has connected. */
const NAMELESS: PortAddress = { address: '', port: 0, family: 'Unix' };

/** The address of a Unix socket. */
export function unixAddress(path: string): PortAddress {
  return { address: path, port: 0, family: 'Unix' };
}

/** The error that the system has for a path too long for it; null if this one is not. */
export function pathError(syscall: 'connect' | 'listen', path: string): Error | null {
  const octets = Buffer.byteLength(path);
  if (octets <= MOST_OCTETS) return null;
  const why = `${syscall} EINVAL ${path}: a path of ${octets} bytes, and the system takes ${MOST_OCTETS}`;
  const about = { code: 'EINVAL', errno: -constants.errno.EINVAL, syscall, address: path };
  return Object.assign(new Error(why), about);
}

/** One connection over a Unix socket. */
export class UnixPort extends TcpPort {
  #remote: PortAddress = NAMELESS;

  /** The side that connects, to this path. */
  to(path: string): this {
    this.#remote = unixAddress(path);
    return this;
  }

  /** `known` is our end of an accepted socket. */
  override open(socket: Socket, known: PortAddress | null): boolean {
    if (socket.destroyed) return false;
    this.begin(socket, known ?? NAMELESS);
    return true;
  }

  override get remoteAddress(): PortAddress {
    return this.#remote;
  }

  override get mtu(): undefined {
    return undefined;
  }

  protected override drop(socket: Socket): void {
    socket.destroy();
  }
}
