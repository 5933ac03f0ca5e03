/** A received message, on loan from the connection's receive buffers. */

/**
 * A message. `data` is a view of a receive buffer, and `release()` posts that buffer again. Copy what you want to keep. While messages are not
 * released their buffers cannot be used, and in the end the sender has to wait: that is the back-pressure.
 *
 * @example
 * for await (const message of connection) {
 *   handle(message.data);
 *   message.release();
 * }
 */
export class Message {
  /** The octets; empty for Immediate Data. Do not use them after `release()`: others take their place, of this connection or of a later one. */
  readonly data: Uint8Array;
  /** The peer asked for a solicited event. */
  readonly solicited: boolean;
  /** Our STag that the peer's Send with Invalidate has invalidated. */
  readonly invalidatedStag: number | undefined;
  /** The eight octets of Immediate Data as a big-endian number. */
  readonly immediate: bigint | undefined;
  #release: ((place: number) => void) | null;
  readonly #place: number;

  /** @internal `release` is called with `place`: one function does for all messages of a connection. */
  constructor(
    data: Uint8Array, solicited: boolean, invalidatedStag: number | undefined, immediate: bigint | undefined, release: (place: number) => void, place: number,
  ) {
    this.data = data;
    this.solicited = solicited;
    this.invalidatedStag = invalidatedStag;
    this.immediate = immediate;
    this.#release = release;
    this.#place = place;
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
