/**
 * A queue of messages by RDMA Writes: the reader's memory has places of equal size, the writer writes into
 * the next one, and the reader finds it there by looking. No code of either side's connection runs for a
 * message.
 *
 * A place, little-endian: length u32, number u32 (1 for the first message, then counting on, 0 never), CRC32c
 * u32 over both and the message, 4 bytes of zeros, the message. The first 64 bytes of the ring are its
 * header: bytes 0 to 8 hold how many messages the reader has taken, u64, which the writer Reads when the
 * ring looks full.
 */
import { setImmediate, setTimeout } from 'node:timers';
import { Buffer } from 'node:buffer';
import type { Connection } from '../api/connection.ts';
import { RemoteBuffer, REMOTE_BUFFER_OCTETS } from '../api/remote-buffer.ts';
import { checkBytes, checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { defaultCrc32cEngine } from '../crc32c/engine.ts';
import type { MemoryRegion } from '../verbs/index.ts';

const HEADER = 64;
const PLACE_HEADER = 16;
const TICKET_OCTETS = REMOTE_BUFFER_OCTETS + 8;
/** Milliseconds between looks at a ring that has been quiet. */
const SLOWEST_LOOK = 5;

/** Options of {@link RingReader}. */
export interface RingOptions {
  /** Messages that may wait in the ring, 2 to 65536. Default 256. */
  readonly places?: number | undefined;
  /** Longest message in bytes. Default 1024. */
  readonly size?: number | undefined;
}

const OPTIONS: Names<RingOptions> = { places: true, size: true };

/**
 * The reading end of a ring. Give `ticket` to the one writer.
 *
 * @example
 * const ring = new RingReader(connection, { size: 256 });
 * await connection.send(ring.ticket);
 * for await (const message of ring) console.log(message);
 */
export class RingReader {
  /** What the writer needs: send it in a message. */
  readonly ticket: Uint8Array;
  readonly #connection: Connection;
  readonly #mr: MemoryRegion;
  readonly #view: DataView;
  readonly #places: number;
  readonly #size: number;
  readonly #stride: number;
  #taken = 0;
  #closed = false;

  /**
   * A ring whose memory this side allocates on the connection.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT
   */
  constructor(connection: Connection, options: RingOptions = {}) {
    checkOptions('options', options, OPTIONS);
    this.#places = checkInteger('options.places', options.places ?? 256, 2, 65_536);
    this.#size = checkInteger('options.size', options.size ?? 1024, 1, 1 << 20);
    this.#stride = PLACE_HEADER + 8 * Math.ceil(this.#size / 8);
    this.#connection = connection;
    this.#mr = connection.allocate(HEADER + this.#places * this.#stride, 'read-write');
    const { bytes } = this.#mr;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const ticket = new Uint8Array(TICKET_OCTETS);
    ticket.set(connection.share(this.#mr).toBytes());
    const sizes = new DataView(ticket.buffer, REMOTE_BUFFER_OCTETS);
    sizes.setUint32(0, this.#places);
    sizes.setUint32(4, this.#size);
    this.ticket = ticket;
  }

  /** The next message if it is there, in memory that nothing else uses; else null. Never waits. */
  poll(): Uint8Array | null {
    if (this.#closed) throw new IwarpError('ERR_DESTROYED', 'the ring has been closed');
    const at = HEADER + (this.#taken % this.#places) * this.#stride;
    const length = this.#view.getUint32(at, true);
    const number = (this.#taken + 1) >>> 0;
    if (this.#view.getUint32(at + 4, true) !== number || length > this.#size) return null;
    // A copy first: the writer may be at it still, and then the sum does not fit.
    const place = this.#mr.bytes.slice(at, at + PLACE_HEADER + length);
    if (sumOf(place) !== new DataView(place.buffer).getUint32(8, true)) return null;
    this.#taken++;
    this.#view.setBigUint64(0, BigInt(this.#taken), true);
    return place.subarray(PLACE_HEADER);
  }

  /** Messages one by one, until the connection ends or the ring is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (let pause = 0; !this.#closed; ) {
      const message = this.poll();
      if (message !== null) {
        pause = 0;
        yield message;
        continue;
      }
      // Messages written before the end are there: the state is looked at before the last poll.
      if (this.#connection.state === 'closed') {
        const last = this.#closed ? null : this.poll();
        if (last === null) return;
        yield last;
        continue;
      }
      await new Promise<void>((resolve) => {
        if (pause < 1) setImmediate(resolve);
        else setTimeout(resolve, pause);
      });
      pause = Math.min(SLOWEST_LOOK, pause + 0.05);
    }
  }

  /** Give the memory back; the writer's next Write ends the connection. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (!this.#mr.deregistered) this.#mr.deregister();
  }
}

/**
 * The writing end of a ring.
 *
 * @example
 * const ticket = (await connection.receive())!.data;
 * const ring = new RingWriter(connection, ticket);
 * await ring.write('hello');
 */
export class RingWriter {
  readonly #connection: Connection;
  readonly #remote: RemoteBuffer;
  readonly #places: number;
  readonly #size: number;
  readonly #stride: number;
  #written = 0;
  /** Messages that the reader had taken when it was last asked. */
  #taken = 0;
  #last: Promise<void> = Promise.resolve();

  /**
   * The writing side of a ring, from the ticket that its reader has sent.
   *
   * @throws ERR_INVALID_ARGUMENT for a ticket whose sizes do not fit
   */
  constructor(connection: Connection, ticket: Uint8Array) {
    const bytes = checkBytes('ticket', ticket);
    if (bytes.length !== TICKET_OCTETS)
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `ticket must have ${TICKET_OCTETS} bytes, got ${bytes.length}`,
      );
    const sizes = new DataView(bytes.buffer, bytes.byteOffset + REMOTE_BUFFER_OCTETS);
    this.#remote = RemoteBuffer.fromBytes(bytes.subarray(0, REMOTE_BUFFER_OCTETS));
    [this.#places, this.#size] = [sizes.getUint32(0), sizes.getUint32(4)];
    this.#stride = PLACE_HEADER + 8 * Math.ceil(this.#size / 8);
    if (this.#places < 2 || this.#size < 1 || HEADER + this.#places * this.#stride > this.#remote.length)
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'ticket: its sizes do not fit its memory');
    this.#connection = connection;
  }

  /** Longest message in bytes. */
  get size(): number {
    return this.#size;
  }

  /**
   * Write a message. Resolves when it has been handed to the network; waits while the ring is full. Messages
   * arrive in the order of the calls.
   *
   * Rejects with the connection's error.
   *
   * @throws ERR_TOO_LARGE
   */
  write(message: string | Uint8Array): Promise<void> {
    const bytes = typeof message === 'string' ? Buffer.from(message) : checkBytes('message', message);
    if (bytes.length > this.#size)
      throw new IwarpError(
        'ERR_TOO_LARGE',
        `message has ${bytes.length} bytes, and places of the ring ${this.#size}`,
      );
    const place = new Uint8Array(PLACE_HEADER + bytes.length);
    place.set(bytes, PLACE_HEADER);
    const next = this.#last.then(() => this.#write(place));
    this.#last = next.catch(() => undefined);
    return next;
  }

  async #write(place: Uint8Array): Promise<void> {
    for (let pause = 0; this.#written - this.#taken >= this.#places; pause = Math.min(20, pause + 1)) {
      if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
      const taken = await this.#connection.read(this.#remote.slice(0, 8));
      this.#taken = Number(new DataView(taken.buffer, taken.byteOffset).getBigUint64(0, true));
    }
    const view = new DataView(place.buffer);
    view.setUint32(0, place.length - PLACE_HEADER, true);
    view.setUint32(4, (this.#written + 1) >>> 0, true);
    view.setUint32(8, sumOf(place), true);
    const at = HEADER + (this.#written % this.#places) * this.#stride;
    this.#written++;
    await this.#connection.write(place, this.#remote.slice(at, place.length));
  }
}

/** CRC32c over length, number and message. */
function sumOf(place: Uint8Array): number {
  const crc = defaultCrc32cEngine();
  return crc.update(crc.update(0, place, 0, 8), place, PLACE_HEADER, place.length);
}
