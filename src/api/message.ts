/** A received message, on loan from the connection's receive buffers. */
import { lengthNow } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { displayAs } from './display.ts';
import { zeroedBuffer } from './local-memory.ts';

const TEXT = new TextDecoder();

/** @internal The end of a sentence about received bytes whose memory is gone. */
export const TRANSFERRED =
  'have been transferred, with those of other messages: enqueue or transfer a copy (message.buffer())';

/**
 * A message. `data` is a view of a receive buffer, and `release()` posts that buffer again. Copy the bytes
 * that you want to keep. While messages are not released their buffers cannot be used, and in the end the
 * sender has to wait: that is the back-pressure.
 *
 * @example
 * for await (const message of connection) {
 *   handle(message.data);
 *   message.release();
 * }
 */
export class Message {
  static {
    displayAs(Message, (message) => {
      const { data, immediate, solicited } = message;
      const shown = message.#release === null ? 'released' : data;
      return {
        ...(immediate === undefined ? { data: shown } : { immediate }),
        ...(solicited ? { solicited } : {}),
      };
    });
  }

  /**
   * The bytes, as a Buffer in Node; empty for Immediate Data. Do not use them after `release()`: others take
   * their place, of this connection or of a later one. They cannot be transferred to another thread; give
   * `message.buffer()` to a byte stream of the Web.
   */
  readonly data: Uint8Array;
  /** The peer asked for a solicited event. */
  readonly solicited: boolean;
  /** Our STag that the peer's Send with Invalidate has invalidated. */
  readonly invalidatedStag: number | undefined;
  /** The eight bytes of Immediate Data as a big-endian number. */
  readonly immediate: bigint | undefined;
  #release: ((place: number) => void) | null;
  readonly #place: number;
  readonly #octets: number;

  /**
   * @internal `release` is called with `place`: one function does for all messages of a connection. `octets`
   * have come, of which `data` has fewer if its memory was transferred.
   */
  constructor(
    data: Uint8Array,
    octets: number,
    solicited: boolean,
    invalidatedStag: number | undefined,
    immediate: bigint | undefined,
    release: (place: number) => void,
    place: number,
  ) {
    this.data = data;
    this.#octets = octets;
    this.solicited = solicited;
    this.invalidatedStag = invalidatedStag;
    this.immediate = immediate;
    this.#release = release;
    this.#place = place;
  }

  /**
   * The message as UTF-8 text. It does not release the message.
   *
   * @throws ERR_INVALID_STATE after `release()`, ERR_INVALID_REGION if its memory has been transferred
   *
   * @example
   * const line = message.text();
   * message.release();
   */
  text(): string {
    return TEXT.decode(this.#held());
  }

  /**
   * The message parsed as JSON. It does not release the message. The peer wrote it: check its form.
   *
   * @throws ERR_INVALID_STATE after `release()`, SyntaxError for a message that is no JSON
   */
  json(): unknown {
    return JSON.parse(this.text());
  }

  /**
   * A copy that outlives the message: a Buffer in Node. It does not release the message.
   *
   * @throws ERR_INVALID_STATE after `release()`
   */
  buffer(): Uint8Array {
    const held = this.#held();
    const copy = zeroedBuffer(held.length);
    copy.set(held);
    return copy;
  }

  /** @internal Its memory has been transferred, with this message or another one. */
  get isLost(): boolean {
    return lengthNow(this.data) !== this.#octets;
  }

  #held(): Uint8Array {
    if (this.isLost) throw new IwarpError('ERR_INVALID_REGION', `the message's bytes ${TRANSFERRED}`);
    if (this.#release !== null) return this.data;
    throw new IwarpError('ERR_INVALID_STATE', 'the message has been released: read it before release()');
  }

  /** Give the buffer back. Calling it again does nothing. */
  release(): void {
    const release = this.#release;
    this.#release = null;
    release?.(this.#place);
  }

  /** The same as `release()`, for `using`. */
  [Symbol.dispose](): void {
    this.release();
  }
}
