/**
 * The interface between a socket and the protocol below it: an ordered stream of bytes in each direction,
 * with two ends. src/rsocket implements it over a queue pair; test/sockets/memory-channel.ts over nothing but
 * memory. The socket knows no queue pair, message or window, and an implementation knows no node:stream.
 *
 * Order of the calls. An implementation calls its {@link ChannelHandler} from its own events, never from
 * inside a call of the socket. The first is `onOpen`, unless the connection fails; the last is `onClosed`.
 */
import type { AsyncContext } from '../base/async-context.ts';
import type { IwarpError } from '../base/errors.ts';
import type { PortAddress } from '../transport/port.ts';
import type { TlsInfo } from '../transport/tls-options.ts';
import type { Pieces } from './pieces.ts';

/** Sizes of a stream. */
export interface ChannelOptions {
  /**
   * Receive buffer, 4096 to 2^30 bytes, offered to the peer in halves. Default 1 MiB, and 4 MiB with the
   * engine in a worker, of which an rsocket connection has 128 KiB until its peer has sent 64 KiB. A size
   * that is given is there from the start.
   */
  readonly receiveBuffer?: number | undefined;
  /** Send buffer, 4096 to 2^30 bytes; rsocket makes it for the first bytes. Default 1 MiB. */
  readonly sendBuffer?: number | undefined;
  /** Data messages that the peer may have outstanding, 16 to 32767. Default 384. */
  readonly credits?: number | undefined;
  /**
   * Buffers that the peer may have mapped here at a time, 0 to 32512; above 128 in steps of 256. Default 0.
   */
  readonly iomapSize?: number | undefined;
}

/**
 * The calls that a channel makes. Each may come from inside a completion, never from inside a call of the
 * socket. Any of them may throw, when the program's listeners do: the channel goes on in a later turn.
 */
export interface ChannelHandler {
  /** The connection is established. */
  onOpen(): void;
  /** Bytes have arrived. */
  onReadable(): void;
  /** There may be room for more bytes, or `refused` has become true. */
  onWritable(): void;
  /** The peer sends no more; bytes that have arrived can still be read. */
  onEnd(): void;
  /** The connection is gone, with an error unless it was closed in order. */
  onClosed(error: IwarpError | undefined): void;
}

/** States of a channel. */
export type ChannelState = 'opening' | 'open' | 'closing' | 'closed';

/** One connection below a socket. */
export interface ByteChannel {
  /** Where the connection is in its life. */
  readonly state: ChannelState;
  /** The peer sends no more, and all bytes that it sent have been read. */
  readonly drained: boolean;
  /** The peer takes no more bytes. */
  readonly refused: boolean;
  /** Bytes have arrived that have not been read. */
  readonly readable: boolean;
  /** Our address, once the connection is established. */
  readonly localAddress: PortAddress | undefined;
  /** The peer's address, once the connection is established. */
  readonly remoteAddress: PortAddress | undefined;
  /** Where the calls of the handler come from, once the connection is being made. */
  readonly asyncContext?: AsyncContext | undefined;
  /** Results of the TLS handshake below, where there was one. */
  readonly tls?: TlsInfo | undefined;
  /** Bytes that have arrived, as a copy of at most `max` bytes; null if there are none. */
  read(max: number): Buffer | null;
  /** Copy bytes that have arrived to the start of `place`; returns their number. */
  readInto(place: Uint8Array): number;
  /** Send as many bytes as there is room for now; returns their number. */
  write(pieces: Pieces): number;
  /**
   * End our direction (`shutdown`) or both (`disconnect`) after all bytes that were written. `done` follows
   * when the end has been handed to the network.
   */
  finish(how: 'shutdown' | 'disconnect', done: () => void): void;
  /**
   * Make the transport below probe an idle connection after `delay` ms (0: its own default), or stop it.
   * False if the transport cannot; then the socket calls {@link ByteChannel.keepAlive} itself.
   */
  probe(enable: boolean, delay: number): boolean;
  /** Send something that the peer's program does not notice, so that its transport answers. */
  keepAlive(): void;
  /** Set whether the connection keeps the process alive. It does until this is called. */
  setRef(on: boolean): void;
  /** End both directions in order, after all bytes that were written. `onClosed` follows. */
  close(): void;
  /** Drop the connection; `onClosed` follows, with `error`. */
  abort(error?: IwarpError): void;
  /** Direct access to memory that the other side has mapped, where the protocol has it. */
  readonly mapped?: MappedMemory;
  /** Memory that moves from and to where it lies, where the protocol has it, once the connection is there. */
  readonly owned?: OwnedMemory | undefined;
}

/** A write that stays where it lies until the peer has it. */
export interface OwnedWrite {
  /** The memory, or a copy that has taken its place. */
  readonly bytes: Uint8Array;
  /** Bytes that have been sent, or that the peer has read. */
  readonly sent: number;
  /** Where it is on its way. */
  readonly state: 'queued' | 'advertised' | 'copying' | 'written' | 'done';
}

/** Memory of the program that is sent from where it lies, or received into. */
export interface OwnedMemory {
  /** Bytes from which a plain write stays where it lies. */
  readonly threshold: number;
  /** Enough writes are under way: the next waits until one is done. */
  readonly crowded: boolean;
  /** Places that are posted save a copy. */
  readonly takesPlaces: boolean;
  /** Send `bytes` behind everything before; `done` follows when the memory is the program's again. */
  give(bytes: Uint8Array, done: (moved: boolean) => void): OwnedWrite;
  /**
   * Put a copy in the place of memory that was given, unless the peer reads it. `done(true)` follows when
   * that has been done, `done(false)` when the peer has all.
   */
  copy(write: OwnedWrite, done: (copied: boolean) => void): void;
  /**
   * The same without the event loop, at most `ms` milliseconds; without `copy` it waits until the peer has
   * all. ERR_NOT_SUPPORTED where the device works in this thread.
   */
  touchSync(write: OwnedWrite, copy: boolean, ms: number): boolean;
  /**
   * Post a place for the next bytes; `done` gets their number, 0 at the end of the stream. The function that
   * is returned withdraws it.
   */
  post(place: Uint8Array, done: (octets: number) => void): () => void;
}

/** Memory of one side that the other writes into directly (riomap and riowrite of librdmacm). */
export interface MappedMemory {
  /** Let the peer write into `memory`, which it addresses from `offset`. ERR_LIMIT when its map is full. */
  map(memory: Uint8Array, offset: bigint): void;
  /** End a mapping. ERR_INVALID_REGION if `memory` is not mapped. */
  unmap(memory: Uint8Array): void;
  /**
   * Write into the peer's memory at `offset`; returns the number of bytes taken, 0 if there is no room now.
   * ERR_OUT_OF_RANGE if no mapping holds `offset`.
   */
  writeMapped(data: Uint8Array, offset: bigint): number;
}
