/** Reading into the program's own memory, as `onread` of `node:net` does it: no memory for each piece, and no copy more than for a piece. */
import { checkFunction, checkObject, IwarpError, show } from '../base/errors.ts';

/** Where incoming octets go, instead of into the readable side of the stream. The same as `onread` of `net.connect`. */
export interface OnReadOptions {
  /** The memory, one octet at least; or a function that is asked for it before each piece. With the engine in a worker it need not be shared. */
  readonly buffer: Uint8Array | (() => Uint8Array);
  /**
   * Called for each piece: `octets` of `buffer` from its start on. They are overwritten by the next piece, unless `buffer` is a function that
   * gives other memory. With `false` nothing more comes until `resume()`.
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
  if (place instanceof Uint8Array && place.length > 0) return place;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a Uint8Array of one octet at least, got ${show(place)}`);
}

/** The memory for the next piece; ERR_INVALID_ARGUMENT if the program's function gives none. */
export function placeOf({ buffer }: OnReadOptions): Uint8Array {
  return checkPlace('what options.onread.buffer returns', typeof buffer === 'function' ? buffer() : buffer);
}
