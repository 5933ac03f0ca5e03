/** Byte streams on a connection: Node's Duplex at each end, with a window for each direction. */
import { Duplex } from 'node:stream';
import { inThisContext, withCallbackHere } from '../base/async-context.ts';
import { IwarpError } from '../base/errors.ts';
import type { Arrivals } from './arrivals.ts';
import type { BatchWriter } from './batch-writer.ts';
import type { Carrier } from './carrier.ts';
import { Slots } from './slots.ts';
import { FRAME, MAX_STREAMS, OF_RECEIVER, STREAM_WINDOW, type Frame } from './wire.ts';

const TEXT = new TextEncoder();
const WORDS = new TextDecoder();
const MAX_NAME = 255;
const ignore = (): void => undefined;

/** A stream's way to the wire. */
interface Line {
  /** Its slot. */
  id: number;
  readonly writer: BatchWriter;
  /** Run `task` when the present turn is over. */
  readonly defer: (task: () => void) => void;
  /** Nothing follows in either direction. */
  over(): void;
}

/**
 * A byte stream on a connection: a Duplex with back-pressure. Each direction ends by itself; `destroy` breaks
 * off both, and the peer's stream then fails with ERR_ABORTED.
 */
export class ByteStream extends Duplex {
  /** The name that the side gave which opened it. */
  readonly name: string;
  readonly #line: Line;
  readonly #flags: number;
  /** Bytes that the peer still takes. */
  #window = STREAM_WINDOW;
  #pending: { data: Uint8Array; done: (error?: Error | null) => void } | null = null;
  #received = 0;
  #granted = STREAM_WINDOW;
  #heardEnd = false;
  #saidEnd = false;
  #closed = false;

  /** @internal `flags` is {@link OF_RECEIVER} where the peer has opened it. */
  constructor(line: Line, flags: number, name: string) {
    super({ readableHighWaterMark: STREAM_WINDOW, writableHighWaterMark: STREAM_WINDOW });
    this.#line = line;
    this.#flags = flags;
    // The peer and the connection end streams that no program has taken: that must not end the process.
    this.on('error', ignore);
    this.name = name;
  }

  /** The stream as a pair of Web Streams. */
  toWeb(): ReturnType<typeof Duplex.toWeb> {
    return Duplex.toWeb(this);
  }

  #write(type: number, payload?: Uint8Array, number?: number): void {
    this.#line.writer.write(type, this.#line.id, payload, number, this.#flags);
  }

  /** Write, as with any Duplex. The callback runs in the asynchronous context of this call. */
  override write(chunk: unknown, callback?: (error: Error | null | undefined) => void): boolean;
  /** Write text in an encoding. */
  override write(
    chunk: unknown,
    encoding: BufferEncoding,
    callback?: (error: Error | null | undefined) => void,
  ): boolean;
  override write(...args: unknown[]): boolean {
    const waits = this.writableLength > 0 || this.writableCorked > 0;
    return super.write(...((waits ? withCallbackHere(args) : args) as Parameters<Duplex['write']>));
  }

  /** @internal */
  override _write(chunk: Uint8Array, _: string, done: (error?: Error | null) => void): void {
    const pending = { data: chunk, done };
    this.#pending = pending;
    this.#pump();
    if (this.#pending === pending) pending.done = inThisContext(done);
  }

  #pump(): void {
    const pending = this.#pending;
    if (pending === null || this.#closed) return;
    while (pending.data.length > 0) {
      const length = Math.min(pending.data.length, this.#window, this.#line.writer.largest);
      if (length === 0) return;
      this.#write(FRAME.DATA, pending.data.subarray(0, length));
      this.#window -= length;
      pending.data = pending.data.subarray(length);
    }
    this.#pending = null;
    pending.done();
  }

  /** @internal */
  override _read(): void {
    // Node calls this before it takes the bytes out of the buffer.
    this.#line.defer(this.#grant);
  }

  readonly #grant = (): void => {
    // Node asks once and then waits for bytes: so the peer always has some window after this.
    if (this.#granted - this.#received >= STREAM_WINDOW / 2 || this.#closed || this.#heardEnd) return;
    const back = this.#received - this.readableLength + STREAM_WINDOW - this.#granted;
    if (back === 0) return;
    this.#granted += back;
    this.#write(FRAME.WINDOW, undefined, back);
  };

  /** @internal */
  override _final(done: (error?: Error | null) => void): void {
    this.#saidEnd = true;
    this.#write(FRAME.END);
    this.#leave();
    done();
  }

  /** @internal */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#closed && !(this.#heardEnd && this.#saidEnd)) {
      this.#write(FRAME.RESET);
      this.#closed = true; // the slot is free when the peer has answered
    }
    this.#pending = null;
    done(error);
  }

  #leave(): void {
    if (!this.#saidEnd || !this.#heardEnd || this.#closed) return;
    this.#closed = true;
    this.#line.over();
  }

  /** @internal False if the frame breaks the rules. */
  receive({ type, number, payload }: Frame): boolean {
    switch (type) {
      case FRAME.DATA:
        this.#received += payload.length;
        if (this.#received > this.#granted || this.#heardEnd) return false;
        if (!this.destroyed) this.push(payload);
        return true;
      case FRAME.WINDOW:
        this.#window += number;
        if (this.#window > STREAM_WINDOW) return false;
        this.#pump();
        return true;
      case FRAME.END:
        if (this.#heardEnd) return false;
        this.#heardEnd = true;
        if (!this.destroyed) this.push(null);
        if (this.#closed && this.#saidEnd)
          this.#line.over(); // the peer has seen both ends, and no reset
        else this.#leave();
        return true;
      default:
        if (!this.#closed) {
          this.#write(FRAME.RESET);
          this.#closed = true;
          this.destroy(new IwarpError('ERR_ABORTED', `the peer has broken off the stream ${this.name}`));
        }
        this.#line.over();
        return true;
    }
  }

  /** @internal The connection has ended. */
  lose(error: IwarpError): void {
    this.#closed = true;
    this.destroy(error);
  }
}

/** The streams of one connection. */
export class Streams {
  readonly #carrier: Carrier;
  readonly #writer: BatchWriter;
  readonly #arrivals: Arrivals<ByteStream>;
  readonly #own = new Slots<ByteStream>(MAX_STREAMS);
  readonly #peers = new Slots<ByteStream>(MAX_STREAMS);

  constructor(carrier: Carrier, writer: BatchWriter, arrivals: Arrivals<ByteStream>) {
    this.#carrier = carrier;
    this.#writer = writer;
    this.#arrivals = arrivals;
  }

  readonly #defer = (task: () => void): void => this.#carrier.defer(task);

  get size(): number {
    return this.#own.size + this.#peers.size;
  }

  open(name: string): ByteStream {
    const bytes = TEXT.encode(name);
    if (bytes.length > MAX_NAME)
      throw new IwarpError('ERR_TOO_LARGE', `name has ${bytes.length} bytes, above the limit of ${MAX_NAME}`);
    if (this.#own.full)
      throw new IwarpError('ERR_LIMIT', `${MAX_STREAMS} streams of this side are open: end one first`);
    const line: Line = {
      id: -1,
      writer: this.#writer,
      defer: this.#defer,
      over: (): void => void this.#own.remove(line.id),
    };
    const stream = new ByteStream(line, 0, name);
    line.id = this.#own.add(stream);
    this.#writer.write(FRAME.OPEN, line.id, bytes);
    return stream;
  }

  /** OPEN, DATA, WINDOW, END or RESET. False if it breaks the rules. */
  receive(frame: Frame): boolean {
    const { type, id, flags, payload } = frame;
    if (type === FRAME.OPEN) {
      if (payload.length > MAX_NAME) return false;
      const over = (): void => void this.#peers.take(id);
      const line: Line = { id, writer: this.#writer, defer: this.#defer, over };
      const stream = new ByteStream(line, OF_RECEIVER, WORDS.decode(payload));
      if (!this.#peers.put(id, stream)) return false;
      this.#arrivals.add(stream);
      return true;
    }
    const stream = flags === OF_RECEIVER ? this.#own.get(id) : this.#peers.get(id);
    // A reset and a window may cross the peer's last frame.
    if (stream === undefined) return type === FRAME.RESET || type === FRAME.WINDOW;
    return stream.receive(frame);
  }

  end(): void {
    for (const stream of [...this.#own.clear(), ...this.#peers.clear()])
      stream.lose(this.#carrier.ended('stream'));
  }
}
