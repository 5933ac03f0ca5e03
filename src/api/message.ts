/** A received message, on loan from the connection's receive buffers. */

/**
 * A message. `data` is a view of a receive buffer that is posted again by `release()`: copy what is to be kept, or release late. A message
 * that is never released keeps its buffer from use, and so slows the sender down: that is the back-pressure.
 *
 * @example
 * for await (const message of connection) {
 *   handle(message.data);
 *   message.release();
 * }
 */
export class Message {
  /** The octets; empty for Immediate Data. Not to be used after `release()`. */
  readonly data: Uint8Array;
  /** The peer asked for a solicited event. */
  readonly solicited: boolean;
  /** The STag of ours that the peer's Send with Invalidate took away. */
  readonly invalidatedStag: number | undefined;
  /** The eight octets of Immediate Data as a big-endian number. */
  readonly immediate: bigint | undefined;
  #release: (() => void) | null;

  /** @internal */
  constructor(
    data: Uint8Array, solicited: boolean, invalidatedStag: number | undefined, immediate: bigint | undefined, release: () => void,
  ) {
    this.data = data;
    this.solicited = solicited;
    this.invalidatedStag = invalidatedStag;
    this.immediate = immediate;
    this.#release = release;
  }

  /** Give the buffer back. Calling it again does nothing. */
  release(): void {
    const release = this.#release;
    this.#release = null;
    release?.();
  }

  /** The same as `release()`, for `using`. */
  [Symbol.dispose](): void {
    this.release();
  }
}
