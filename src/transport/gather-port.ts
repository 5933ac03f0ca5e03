/**
 * A TCP connection whose writes of several pieces reach the system in one of three ways, as the paper on
 * extended sockets compares them. Each way is one call of the system; they differ in the copy, and in the
 * work of the stream above the socket.
 */
import { nextTick } from 'node:process';
import type { Socket } from 'node:net';
import type { PortAddress, WriteDone } from './port.ts';
import { TcpPort } from './tcp-port.ts';

/**
 * How a message in pieces is gathered where neither CRC nor markers need a copy: `copy` puts the pieces into
 * the transmit buffer, which is one write; `lend` gives them as they lie to one writev; `cork` writes each to
 * the corked socket, whose uncorking is one writev.
 */
export type Gather = 'copy' | 'lend' | 'cork';
export const GATHER_NAMES: readonly Gather[] = ['copy', 'lend', 'cork'];

/** One element of what a stream hands to its `_writev`. */
interface Piece {
  readonly chunk: Uint8Array;
  readonly encoding: 'buffer';
}
type Reading = ConstructorParameters<typeof TcpPort>[0];
type Pieces = Piece[] & { allBuffers?: boolean };
type WriteMany = (pieces: Pieces, done: (error?: Error | null) => void) => void;

/** See above. */
export class GatherPort extends TcpPort {
  readonly #gather: Gather;
  readonly #reading: Reading;
  #below: Socket | null = null;
  /** Writes of the stream that have not been confirmed: a direct one must not overtake them. */
  #queued = 0;

  constructor(reading: Reading, gather: Gather) {
    super(reading);
    this.#reading = reading;
    this.#gather = gather;
  }

  get copies(): boolean {
    return this.#gather === 'copy';
  }

  override open(socket: Socket, known: PortAddress | null): boolean {
    this.#below = socket;
    return super.open(socket, known);
  }

  override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    const socket = this.#below;
    if (this.#gather !== 'lend' || count <= 1 || this.#queued > 0 || socket === null || !socket.writable) {
      this.#queued++;
      return super.write(chunks, count, (ok) => {
        this.#queued--;
        done(ok);
      });
    }
    return this.#writeDirectly(socket, chunks.slice(0, count), done);
  }

  /** Past the queue of the stream, which is empty. The system takes it at once, or libuv keeps it. */
  #writeDirectly(socket: Socket, chunks: readonly Uint8Array[], done: WriteDone): boolean {
    const pieces: Pieces = chunks.map((chunk) => ({ chunk, encoding: 'buffer' }));
    pieces.allBuffers = true;
    let octets = 0;
    for (const { length } of chunks) octets += length;
    let inside = true;
    let taken = false;
    this.#queued++;
    // After a destroy Node reports success for writes that were cancelled.
    const settle = (ok: boolean): void => {
      this.#queued--;
      done(ok && !socket.destroyed);
    };
    (socket as Socket & { _writev: WriteMany })._writev(pieces, (error) => {
      const ok = error === null || error === undefined;
      taken = ok && inside;
      if (inside) nextTick(settle, ok);
      else settle(ok);
      if (!ok && !socket.destroyed) socket.destroy(error);
    });
    inside = false;
    this.#reading.poll.sent(octets);
    return taken;
  }
}
