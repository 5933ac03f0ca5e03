/**
 * A copy-on-write overlay: reads come from a base device until something is written, and the base never
 * changes. Written data lies in memory, in clusters.
 */
import { putBytes } from '../../base/copy.ts';
import { checkInteger, checkOptions, orNoMemory, type Names } from '../../base/errors.ts';
import { checkDevice, checkRange, NEVER, type BlockDevice, type Extent } from '../device.ts';
import { DEFAULT_MAXIMUM } from '../wire.ts';

/** Options of {@link overlayDevice}. */
export interface OverlayOptions {
  /** Bytes that are copied together, a power of two from 4096 to 2^24. Default 65536. */
  readonly cluster?: number | undefined;
}

const NAMES: Names<OverlayOptions> = { cluster: true };

/** A cluster of zeros needs no memory. */
type Cluster = Uint8Array | 'zero';

/**
 * A writable device over a base that stays as it is. `close()` leaves the base open.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const scratch = overlayDevice(await fileDevice('golden.img', { readOnly: true }));
 */
export function overlayDevice(base: BlockDevice, options: OverlayOptions = {}): BlockDevice {
  checkDevice('base', base);
  checkOptions('options', options, NAMES);
  const cluster = checkInteger('options.cluster', options.cluster ?? 65_536, 4096, 1 << 24);
  checkInteger('options.cluster (a power of two)', cluster & (cluster - 1), 0, 0);
  return new OverlayDevice(base, cluster);
}

class OverlayDevice implements BlockDevice {
  readonly size: bigint;
  readonly blocks = { minimum: 1, preferred: 4096, maximum: DEFAULT_MAXIMUM } as const;
  readonly #base: BlockDevice;
  readonly #cluster: number;
  readonly #clusters = new Map<number, Cluster>();
  /** Clusters that are being copied from the base: writers of one cluster wait for one copy. */
  readonly #copying = new Map<number, Promise<Uint8Array>>();

  constructor(base: BlockDevice, cluster: number) {
    this.#base = base;
    this.#cluster = cluster;
    this.size = base.size;
  }

  async read(into: Uint8Array, offset: bigint, signal: AbortSignal): Promise<void> {
    checkRange(this, offset, into.length);
    for (const { index, within, at, length } of this.#parts(offset, into.length)) {
      const part = into.subarray(at, at + length);
      const cluster = this.#clusters.get(index);
      if (cluster === 'zero') part.fill(0);
      else if (cluster !== undefined) putBytes(cluster.subarray(within, within + length), part, 0);
      else await this.#readBase(part, offset + BigInt(at), signal);
    }
  }

  async write(from: Uint8Array, offset: bigint): Promise<void> {
    checkRange(this, offset, from.length);
    for (const { index, within, at, length } of this.#parts(offset, from.length)) {
      const cluster = await this.#own(index, length === this.#lengthOf(index));
      putBytes(from.subarray(at, at + length), cluster, within);
    }
  }

  async flush(): Promise<void> {
    // Memory is as stable as it gets.
  }

  trim(offset: bigint, length: number): Promise<void> {
    return this.zero(offset, length);
  }

  async zero(offset: bigint, length: number): Promise<void> {
    checkRange(this, offset, length);
    for (const { index, within, length: part } of this.#parts(offset, length)) {
      const whole = part === this.#lengthOf(index) && !this.#copying.has(index);
      if (whole) this.#clusters.set(index, 'zero');
      else (await this.#own(index, false)).fill(0, within, within + part);
    }
  }

  async *extents(offset: bigint, length: number): AsyncGenerator<Extent> {
    for (const part of this.#parts(offset, length)) {
      const zero = this.#clusters.get(part.index) === 'zero';
      if (zero || this.#clusters.has(part.index) || this.#base.extents === undefined) {
        yield { length: part.length, hole: zero, zero };
        continue;
      }
      let left = part.length;
      for await (const extent of this.#base.extents(offset + BigInt(part.at), part.length)) {
        const inside = Math.min(left, extent.length);
        if (inside > 0) yield { ...extent, length: inside };
        left -= inside;
      }
      if (left > 0) yield { length: left, hole: false, zero: false };
    }
  }

  /** The last cluster may be shorter. */
  #lengthOf(index: number): number {
    return Math.min(this.#cluster, Number(this.size) - index * this.#cluster);
  }

  *#parts(
    offset: bigint,
    length: number,
  ): Generator<{
    readonly index: number;
    readonly within: number;
    readonly at: number;
    readonly length: number;
  }> {
    const start = Number(offset);
    for (let at = 0; at < length; ) {
      const index = Math.floor((start + at) / this.#cluster);
      const within = start + at - index * this.#cluster;
      const part = Math.min(this.#cluster - within, length - at);
      yield { index, within, at, length: part };
      at += part;
    }
  }

  /** A cluster of the overlay, with the base's contents unless all of it is about to be written. */
  async #own(index: number, all: boolean): Promise<Uint8Array> {
    const have = this.#clusters.get(index);
    if (have !== undefined && have !== 'zero') return have;
    const copying = this.#copying.get(index);
    if (copying !== undefined) return await copying;
    const length = this.#lengthOf(index);
    const cluster = orNoMemory(length, () => new Uint8Array(length));
    if (all || have === 'zero') {
      this.#clusters.set(index, cluster);
      return cluster;
    }
    const copy = this.#readBase(cluster, BigInt(index) * BigInt(this.#cluster), NEVER).then(() => {
      this.#clusters.set(index, cluster);
      return cluster;
    });
    this.#copying.set(index, copy);
    try {
      return await copy;
    } finally {
      this.#copying.delete(index);
    }
  }

  /** The base may ask for whole blocks and for shorter reads. */
  async #readBase(into: Uint8Array, offset: bigint, signal: AbortSignal): Promise<void> {
    const { minimum, maximum } = this.#base.blocks;
    const most = maximum - (maximum % minimum);
    const before = Number(offset % BigInt(minimum));
    const aligned = before === 0 && into.length % minimum === 0;
    const whole = aligned ? into : new Uint8Array(Math.ceil((before + into.length) / minimum) * minimum);
    for (let at = 0; at < whole.length; at += most) {
      const part = whole.subarray(at, Math.min(whole.length, at + most));
      await this.#base.read(part, offset - BigInt(before) + BigInt(at), signal);
    }
    if (!aligned) into.set(whole.subarray(before, before + into.length));
  }
}
