/**
 * Reading into the program's own memory, as `onread` of `node:net` does it: no memory for each piece, and no
 * copy more than for a piece.
 */
import { types } from 'node:util';
import type { OwnedMemory } from './byte-channel.ts';
import { lengthNow } from '../base/copy.ts';
import { checkFunction, checkObject, IwarpError, show } from '../base/errors.ts';

/**
 * Where received bytes go, in place of the readable side of the stream. The same as `onread` of
 * `net.connect`.
 */
export interface OnReadOptions {
  /**
   * The memory, at least one byte; or a function that is called for it before each piece. It need not be
   * shared memory, even with the engine in a worker.
   */
  readonly buffer: Uint8Array | (() => Uint8Array);
  /**
   * Called for each piece: the first `octets` bytes of `buffer`. The next piece overwrites them, unless
   * `buffer` is a function that gives other memory. If it returns `false`, nothing more is read until
   * `resume()`.
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
  if (types.isUint8Array(place) && lengthNow(place) > 0) return place;
  throw new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `${name} must be a Uint8Array of one byte at least, got ${show(place)}`,
  );
}

/** The memory for the next piece; ERR_INVALID_ARGUMENT if the program's function gives none. */
export function placeOf({ buffer }: OnReadOptions): Uint8Array {
  return checkPlace('what options.onread.buffer returns', typeof buffer === 'function' ? buffer() : buffer);
}

/** Places that are posted before they are needed, where the program gives other memory each time. */
const POSTED = 2;

/** Places of `onread` that are posted: the protocol moves bytes straight into them. */
export class PostedPlaces {
  readonly #owned: OwnedMemory;
  readonly #next: () => Uint8Array | null;
  readonly #most: number;
  /** Posted, and filled but not taken. */
  readonly #out: Uint8Array[] = [];
  readonly #filled: { readonly place: Uint8Array; readonly octets: number }[] = [];

  /** `next` gives the memory for the next piece, or null. */
  constructor(owned: OwnedMemory, onread: OnReadOptions, next: () => Uint8Array | null) {
    this.#owned = owned;
    this.#next = next;
    this.#most = typeof onread.buffer === 'function' ? POSTED : 1;
  }

  /** Post as many places as may be. */
  post(): void {
    while (this.#out.length < this.#most) {
      const place = this.#next();
      // A program that goes on in one buffer is asked again when the piece before is known.
      if (place === null || this.#out.some((other) => overlap(other, place))) return;
      this.#out.push(place);
      this.#owned.post(place, (octets) => {
        if (octets > 0) this.#filled.push({ place, octets });
        else this.#forget(place);
      });
    }
  }

  /** The next place that has been filled: the program's again. */
  take(): { readonly place: Uint8Array; readonly octets: number } | undefined {
    const filled = this.#filled.shift();
    if (filled !== undefined) this.#forget(filled.place);
    return filled;
  }

  #forget(place: Uint8Array): void {
    this.#out.splice(this.#out.indexOf(place), 1);
  }
}

function overlap(a: Uint8Array, b: Uint8Array): boolean {
  if (a.buffer !== b.buffer) return false;
  return a.byteOffset < b.byteOffset + b.length && b.byteOffset < a.byteOffset + a.length;
}
