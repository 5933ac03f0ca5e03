/** Reading into the program's own memory, as `onread` of `node:net` does it: no memory for each piece, and no copy more than for a piece. */
import { types } from 'node:util';
import { checkFunction, checkObject, IwarpError, show } from '../base/errors.ts';

/** Where received octets go, in place of the readable side of the stream. The same as `onread` of `net.connect`. */
export interface OnReadOptions {
  /** The memory, at least one octet; or a function that is called for it before each piece. It need not be shared memory, even with the engine in a worker. */
  readonly buffer: Uint8Array | (() => Uint8Array);
  /**
   * Called for each piece: the first `octets` octets of `buffer`. The next piece overwrites them, unless `buffer` is a function that
   * gives other memory. If it returns `false`, nothing more is read until `resume()`.
   */
  readonly callback: (octets: number, buffer: Uint8Array) => boolean | void;
}

/** Throws ERR_INVALID_ARGUMENT unless it is as {@link OnReadOptions} says. */
export function checkOnRead(name: string, onread: OnReadOptions): OnReadOptions {
  checkObject(name, onread);
  checkFunction(`${name}.callback`, onread.callback);
  if (typeof onread.buffer !== 'function') checkPlace(`${name}.buffer`, onread.buffer);
  return onread;
}

function checkPlace(name: string, place: unknown): Uint8Array {
  if (types.isUint8Array(place) && place.length > 0) return place;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a Uint8Array of one octet at least, got ${show(place)}`);
}

/** The memory for the next piece; ERR_INVALID_ARGUMENT if the program's function gives none. */
export function placeOf({ buffer }: OnReadOptions): Uint8Array {
  return checkPlace('what options.onread.buffer returns', typeof buffer === 'function' ? buffer() : buffer);
}
