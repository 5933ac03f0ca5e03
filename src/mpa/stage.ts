/**
 * What one write is made of: FPDUs in memory of the stack's own and, where copying can be spared, views of the user's memory between them.
 */
export class Stage {
  /** The stage's own memory. */
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** Own octets filled. */
  end = 0;
  /** After {@link seal}: the write, `chunks[0..count)`. */
  readonly chunks: Uint8Array[] = [];
  count = 0;
  /** Octets that stand in lent memory. */
  #lent = 0;
  /** Own octets that are in `chunks` already. */
  #cut = 0;
  /** The view of the last write that was in one piece: writes of one length, as steady traffic makes them, share it. */
  #whole: Uint8Array;

  constructor(memory: Uint8Array) {
    this.bytes = this.#whole = memory;
    this.view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  }

  /** Octets of the write. */
  get octets(): number {
    return this.end + this.#lent;
  }

  /** Put `bytes[from..from + octets)` after what is there, without a copy. The memory must not change until the port has taken it. */
  lend(bytes: Uint8Array, from: number, octets: number): void {
    this.seal();
    this.chunks[this.count++] = bytes.subarray(from, from + octets);
    this.#lent += octets;
  }

  /** Make the own octets after the last chunk a chunk. */
  seal(): void {
    if (this.end === this.#cut) return;
    this.chunks[this.count++] = this.#cut === 0 ? this.#beginning() : this.bytes.subarray(this.#cut, this.end);
    this.#cut = this.end;
  }

  #beginning(): Uint8Array {
    if (this.#whole.length !== this.end) this.#whole = this.bytes.subarray(0, this.end);
    return this.#whole;
  }

  /** Empty it for its next use. A free stage keeps nobody's memory alive. */
  clear(): void {
    // Not by its length, which would throw away what holds the list, and the next write would make it anew.
    for (let i = 0; i < this.count; i++) this.chunks[i] = this.bytes;
    this.count = 0;
    this.end = this.#lent = this.#cut = 0;
  }
}

/** A stage over `memory`. */
export function createStage(memory: Uint8Array): Stage {
  return new Stage(memory);
}
