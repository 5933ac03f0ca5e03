/** Options of SDP streams, checked before anything is made. */
import { checkInteger, checkObject, checkOneOf } from '../base/errors.ts';
import { checkPlacement, type HelloPlacement } from './placement.ts';

/** How large writes move: through private buffers, by the peer's Reads, into posted places, or either. */
export type SdpStreamMode = 'buffered' | 'source' | 'sink' | 'auto';
const MODES: readonly SdpStreamMode[] = ['buffered', 'source', 'sink', 'auto'];

/**
 * Private buffers of a connection, when it is busy. An idle one has four of at most 16 KiB. As many bytes as
 * they have, 64 KiB to 1 MiB, are read ahead of the program where the peer advertises its memory.
 */
export interface PrivateBufferOptions {
  /** Number, 4 to 1024. Default 16. */
  readonly count?: number | undefined;
  /** Bytes of each, headers included, 128 to 1 MiB. Default 65,552: 64 KiB and the header. */
  readonly size?: number | undefined;
}

/** Options of streams with `protocol: 'sdp'`. */
export interface SdpOptions {
  /**
   * How large writes move. `buffered` (default) copies them through private buffers; `source` advertises
   * them, and the peer Reads them; `sink` advertises places that `receiveInto` has posted, and the peer
   * Writes there; `auto` does both.
   */
  readonly mode?: SdpStreamMode | undefined;
  /** Bytes from which a write is advertised, 2 to 2^30. Default 65,536. */
  readonly zeroCopyFrom?: number | undefined;
  /** Advertisements that may be outstanding in each direction, 1 to 64. Default 16; with 1 it is ZSDP. */
  readonly maxAdverts?: number | undefined;
  /** See {@link PrivateBufferOptions}. */
  readonly privateBuffers?: PrivateBufferOptions | undefined;
  /**
   * Where the two ends agree: in the private data of the MPA frames (`private-data`, default), or in front of
   * these frames (`streaming`), the same at both ends. A listener with `streaming` takes both.
   */
  readonly placement?: HelloPlacement | undefined;
}

/** Options with their defaults. */
export interface SdpSettings {
  readonly mode: SdpStreamMode;
  readonly zeroCopyFrom: number;
  readonly maxAdverts: number;
  readonly privateBuffers: { readonly count: number; readonly size: number };
  /** Bytes that are read from the peer ahead of the program. */
  readonly readAhead: number;
}

/** A Read of less costs more than the bytes that it brings (protocol-notes 5.2). */
const LEAST_AHEAD = 1 << 16;
const MOST_AHEAD = 1 << 20;

/** Throws ERR_INVALID_ARGUMENT unless all is as {@link SdpOptions} says. */
export function sdpSettings(options: SdpOptions): SdpSettings {
  const { mode = 'buffered', zeroCopyFrom = 65_536, maxAdverts = 16, privateBuffers = {} } = options;
  checkPlacement('options.placement', options.placement);
  checkObject('options.privateBuffers', privateBuffers);
  const { count = 16, size = 65_552 } = privateBuffers;
  const buffers = {
    count: checkInteger('options.privateBuffers.count', count, 4, 1024),
    size: checkInteger('options.privateBuffers.size', size, 128, 1 << 20),
  };
  return {
    mode: checkOneOf('options.mode', mode, MODES),
    zeroCopyFrom: checkInteger('options.zeroCopyFrom', zeroCopyFrom, 2, 2 ** 30),
    maxAdverts: checkInteger('options.maxAdverts', maxAdverts, 1, 64),
    privateBuffers: buffers,
    readAhead: Math.min(Math.max(buffers.count * buffers.size, LEAST_AHEAD), MOST_AHEAD),
  };
}
