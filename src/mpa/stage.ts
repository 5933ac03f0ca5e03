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

  constructor(memory: Uint8Array) {
    this.bytes = memory;
    this.view = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  }

  /** Octets of the write. */
  get octets(): number {
    return this.end + this.#lent;
  }

  /** Put `bytes[from..from + octets)` behind what is there, without a copy. The memory must not change until the port has taken it. */
  lend(bytes: Uint8Array, from: number, octets: number): void {
    this.seal();
    this.chunks[this.count++] = bytes.subarray(from, from + octets);
    this.#lent += octets;
  }

  /** Make the own octets behind the last chunk a chunk. */
  seal(): void {
    if (this.end === this.#cut) return;
    this.chunks[this.count++] = this.bytes.subarray(this.#cut, this.end);
    this.#cut = this.end;
  }

  /** Empty it for its next use. A free stage keeps nobody's memory alive. */
  clear(): void {
    this.chunks.length = this.count = 0;
    this.end = this.#lent = this.#cut = 0;
  }
}

/** A stage over `memory`. */
export function createStage(memory: Uint8Array): Stage {
  return new Stage(memory);
}
