import type { LentMemory, TransmitBuffer as LlpTransmitBuffer, Transmission } from '../llp/lower-layer.ts';

/** Stands in the list of a buffer in the place of memory that is no longer pinned. */
const NOTHING: LentMemory = { pin: () => undefined, unpin: () => undefined };

/**
 * The FPDUs of one write: memory of the stack and, between its pieces, views of the program's memory where
 * copying can be spared.
 */
export class TransmitBuffer implements LlpTransmitBuffer, Transmission {
  /** The buffer's own memory. */
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** Own bytes filled. */
  end = 0;
  /** After {@link seal}: the write, `chunks[0..count)`. */
  readonly chunks: Uint8Array[] = [];
  count = 0;
  /** Memory of the program that this write has pinned: `#pinned[0..#pins)`. */
  readonly #pinned: LentMemory[] = [];
  #pins = 0;
  /** Bytes of payloads that stand in the program's memory. */
  #foreign = 0;
  /** Own bytes that are in `chunks` already. */
  #cut = 0;
  /**
   * The view of the last write that was in one piece: writes of one length, as steady traffic makes them,
   * share it.
   */
  #whole: Uint8Array;

  constructor(memory: Uint8Array) {
    this.bytes = this.#whole = memory;
    this.view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  }

  /** Bytes of the write. */
  get octets(): number {
    return this.end + this.#foreign;
  }

  /**
   * Put `bytes[from..from + bytes)` after the present contents, without a copy. The memory must not change
   * until the port has taken it.
   */
  addView(bytes: Uint8Array, from: number, octets: number): void {
    this.seal();
    this.chunks[this.count++] = bytes.subarray(from, from + octets);
    this.#foreign += octets;
  }

  /** Pin memory for the time of the write; segments in a row mostly come from the same memory. */
  pin(memory: LentMemory): void {
    if (this.#pins > 0 && this.#pinned[this.#pins - 1] === memory) return;
    memory.pin();
    this.#pinned[this.#pins++] = memory;
  }

  /** Make the own bytes after the last chunk a chunk. */
  seal(): void {
    if (this.end === this.#cut) return;
    this.chunks[this.count++] =
      this.#cut === 0 ? this.#beginning() : this.bytes.subarray(this.#cut, this.end);
    this.#cut = this.end;
  }

  #beginning(): Uint8Array {
    if (this.#whole.length !== this.end) this.#whole = this.bytes.subarray(0, this.end);
    return this.#whole;
  }

  /** Empty it for its next use. A free buffer pins no memory of the program and keeps none alive. */
  clear(): void {
    const pins = this.#pins;
    this.#pins = 0;
    // Not by its length, which would throw away what holds the list, and the next write would make it anew.
    for (let i = 0; i < this.count; i++) this.chunks[i] = this.bytes;
    this.count = 0;
    this.end = this.#foreign = this.#cut = 0;
    // Last of all, and from the list: the end of a pin may complete work.
    for (let i = 0; i < pins; i++) {
      const memory = this.#pinned[i]!;
      this.#pinned[i] = NOTHING;
      memory.unpin();
    }
  }
}

/** A transmit buffer over `memory`. */
export function createTransmitBuffer(memory: Uint8Array): TransmitBuffer {
  return new TransmitBuffer(memory);
}
