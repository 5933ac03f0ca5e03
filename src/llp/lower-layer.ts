/**
 * The lower layer protocol (LLP) as DDP and RDMAP use it: RFC 5041 3 and 6.1. MPA over a byte stream
 * (`mpa/lower-layer.ts`) is one implementation. A stream is given one when it is made and knows nothing else
 * of the network: no frames, no buffers, no callbacks.
 *
 * **Life.** `start`; then bytes of the network go into `handleStartup` until it has a verdict; `establish`
 * and `deliverTo` once the result is settled; then `receive`, which gives each ULPDU to the
 * {@link LowerLayerUser}.
 * `keepEarly` takes what arrives between verdict and `establish`. `dispose` ends it.
 *
 * **Sending.** `acquire` lends a {@link TransmitBuffer}; the sender fills it with ULPDUs through
 * {@link UlpduWriter}; `handOut` turns it into one {@link Transmission}. Two may be under way at a time, and
 * they become done in the order in which they were handed out. When one is done is the layer's to say, by
 * `transmissionDone`: with MPA as soon as the byte stream has taken its last byte, with a layer that
 * retransmits when the peer has acknowledged its last datagram.
 *
 * **Receiving.** Whole ULPDUs go to the user in the order in which the peer sent them, each once. A layer
 * without `inOrder` gets some of them before their turn. It offers these to `placeEarly`, and in their turn
 * the rest of them to `handlePlaced`.
 */
import type { Octets } from '../base/copy.ts';
import type { DepthRequest, Negotiated, StartupVerdict } from './startup.ts';

/**
 * One write for the network: `chunks[0..count)`. They belong to the port until `handleTaken` or
 * `handleTransmitted` has been called for it.
 */
export interface Transmission {
  readonly chunks: readonly Uint8Array[];
  readonly count: number;
}

/** Memory of the program that a zero-copy payload stands in. It stays as it is while it is pinned. */
export interface LentMemory {
  pin(): void;
  unpin(): void;
}

/** Memory that ULPDUs are assembled in. Only its layer looks inside. */
export interface TransmitBuffer {
  /** Bytes of the write so far, those of zero-copy payloads included; 0 while there is no ULPDU. */
  readonly octets: number;
  /** Pin the memory of a zero-copy payload until the port no longer reads it. */
  pin(memory: LentMemory): void;
}

/**
 * Writes ULPDUs into transmit buffers. For each one `begin` says where it goes: the caller puts header and
 * payload at `target`, from `at` on, and calls `finish`. Or it puts the header alone there and calls
 * `finishZeroCopy` with the payload's own memory.
 */
export interface UlpduWriter {
  /** Where the ULPDU goes between `begin` and `finish`. */
  readonly target: Octets;
  readonly at: number;
  /** A payload may stay where it is: nothing has to be computed over it or put into it. */
  readonly zeroCopy: boolean;
  /** True if the buffer has room for one more ULPDU of this length. */
  fits(buffer: TransmitBuffer, ulpduLength: number): boolean;
  /** True if the buffer has room for a ULPDU whose payload is not copied; its first one always fits. */
  fitsZeroCopy(buffer: TransmitBuffer, headerOctets: number, payloadOctets: number): boolean;
  begin(buffer: TransmitBuffer, ulpduLength: number): void;
  finish(buffer: TransmitBuffer, ulpduLength: number): void;
  /**
   * Finish with the payload `bytes[from..from + payloadOctets)`, which must not change until the write is
   * done.
   */
  finishZeroCopy(
    buffer: TransmitBuffer,
    headerOctets: number,
    bytes: Uint8Array,
    from: number,
    payloadOctets: number,
  ): void;
  /** The same with a payload that lies in several pieces, in this order. */
  finishGathered(buffer: TransmitBuffer, headerOctets: number, pieces: readonly Uint8Array[]): void;
}

/** Results of {@link DirectPlacement.open} that are no number of bytes. */
export const PLACE = {
  /** They have to go as segments, whose receiver checks them. */
  SEGMENTS: 0,
  /** Not yet: the stream will be woken, or a transmission is to be handed out first. */
  LATER: -1,
} as const;

/** Memory of the peer that this thread may write to itself, where both are threads of one process. */
export interface DirectPlacement {
  /** Where the bytes go between `open` and `close`. */
  readonly target: Octets;
  readonly at: number;
  /**
   * Ask for the place of `octets` of a Write at a tagged offset of one of the peer's STags. Returns how many
   * of them may be put there before `close` is called, or one of {@link PLACE}. `first`: no segment waits to
   * be handed out.
   */
  open(stag: number, toHi: number, toLo: number, octets: number, first: boolean): number;
  close(): void;
}

/** Results of {@link LowerLayerUser.placeEarly}: the bytes to keep, with a flag. */
export const EARLY = {
  /** Neither placed nor to be kept: it has to come again. */
  REFUSED: 0,
  /** Mask of the number of bytes. */
  OCTETS: 0xff_ffff,
  /** The segment has taken effect before its turn: in its turn it only counts. */
  DELIVERED: 0x100_0000,
} as const;

/** The layer above. */
export interface LowerLayerUser {
  /**
   * One valid ULPDU; the bytes are borrowed for the call. Returns FINE, or a code with which `receive` stops
   * at once.
   */
  handleUlpdu(bytes: Uint8Array, start: number, length: number): number;
  /**
   * A ULPDU that has come before its turn, borrowed. If its payload has been placed, returns the bytes of
   * its header; if it takes effect only in its turn, all its bytes; see {@link EARLY}. Called only by a
   * layer without `inOrder`.
   */
  placeEarly?(bytes: Uint8Array, start: number, length: number): number;
  /**
   * The turn of a ULPDU that was placed: its header, the bytes of its payload, and whether it has taken
   * effect already. Returns as `handleUlpdu`.
   */
  handlePlaced?(header: Uint8Array, payload: number, delivered: boolean): number;
  /** The oldest transmission that carries ULPDUs is done: its work may complete. */
  transmissionDone(): void;
  /** `mulpdu` has become less, for all ULPDUs from here. */
  mulpduFell?(sizes: Pick<LowerLayer, 'mulpdu' | 'payloadLimit'>): void;
}

/** One connection of a lower layer, without sockets and clock. Network input never throws. */
export interface LowerLayer {
  /** True if no ULPDU comes before its turn. */
  readonly inOrder: boolean;
  /** The responder sends nothing before it has received a ULPDU (MPA-028). */
  readonly responderWaits: boolean;
  /** Bytes of the longest ULPDU (MULPDU). Known after `establish`, as is the writer. */
  readonly mulpdu: number;
  /** Most bytes of payload in one segment, where that and not the ULPDU is limited. */
  readonly payloadLimit?: number | undefined;
  readonly writer: UlpduWriter;
  /** Writes go straight to the peer's memory where this allows it. */
  readonly direct?: DirectPlacement | undefined;
  /** Bytes handed out since the beginning, start-up included. */
  readonly octetsOut: number;

  // ------------------------------------------------------------------------------------------------ start-up

  /** Begin. Returns how long the peer's frame may take, in milliseconds. */
  start(privateData: Uint8Array, depths: DepthRequest): number;
  /** Take bytes up to the end of the peer's frame; returns the index after the last one taken. */
  handleStartup(bytes: Uint8Array, start: number, end: number): number;
  /** The result of the peer's frame, once it is complete or wrong. */
  readonly verdict: StartupVerdict | null;
  /** Private data of the peer's frame, after a verdict and until `establish`. */
  readonly peerPrivateData: Uint8Array;
  /** Responder: answer a request. Null if the policy makes a rejection of it (ENH-019). */
  accept(privateData: Uint8Array, depths: DepthRequest): Negotiated | null;
  /** Responder: refuse a request. */
  reject(privateData: Uint8Array): void;
  /** Keep bytes that arrive while the program decides; false if there are too many. */
  keepEarly(bytes: Uint8Array, start: number, end: number): boolean;
  /** The peer's frame has not come in time. */
  expire(): void;
  /** The connection has gone under start-up. */
  lose(): void;
  /** Start-up is over without a connection. A frame that is still to be sent goes out. */
  abandon(): void;
  /** A frame waits to be sent. */
  readonly frameWaits: boolean;

  // --------------------------------------------------------------------------------------------- established

  /** Full operation begins, with this result of the start-up. */
  establish(negotiated: Negotiated): void;
  /** The receiver of ULPDUs, which needed the writer to be made. Called once, after `establish`. */
  deliverTo(user: LowerLayerUser): void;
  /** Give the bytes that were kept to the user. Returns as `receive`. */
  receiveEarly(): number;
  /** Bytes of the network. Returns FINE, the layer's own Terminate code, or the user's code. */
  receive(bytes: Uint8Array, start: number, end: number): number;
  /** False if the bytes received end within a ULPDU: an end of the connection now has cut it off. */
  readonly betweenUlpdus: boolean;
  /** Where the next bytes had best be put before they are received; null if any memory will do. */
  readTarget(): Uint8Array | null;

  // -------------------------------------------------------------------------------------------- transmission

  /** The start-up frame to be sent, once; null for none. */
  pollFrame(): Transmission | null;
  /** Two transmissions are under way: no further one before the oldest is done. */
  readonly busy: boolean;
  /** An empty transmit buffer. It goes back with `handOut` or `release`. */
  acquire(): TransmitBuffer;
  release(buffer: TransmitBuffer): void;
  handOut(buffer: TransmitBuffer): Transmission;
  /** The port has copied the transmission handed out last: its memory is free. */
  handleTaken(): void;
  /** The port has done with the oldest transmission; `ok` false: it never will send it. */
  handleTransmitted(ok: boolean): void;
  /** The port is gone: give all memory back. Nothing may be called afterwards but the counters. */
  dispose(): void;
}
