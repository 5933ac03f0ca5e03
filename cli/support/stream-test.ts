/**
 * Parts that rstream and riostream share: sizes, counts, names, the line of figures, the pattern that is
 * verified.
 */
import type { Tool } from './tool.ts';

/** One test: `count` transfers of `size` octets each way, `iterations` times. */
export interface StreamTest {
  readonly name: string;
  readonly size: number;
  readonly count: number;
  readonly iterations: number;
}

/** A size as the stock tools write it: 64, 64k, 1.5k, 1m. */
export function sizeText(size: number): string {
  const [base, unit] =
    size >= 2 ** 30
      ? [2 ** 30, 'g']
      : size >= 2 ** 20
        ? [2 ** 20, 'm']
        : size >= 2 ** 10
          ? [2 ** 10, 'k']
          : [1, ''];
  const whole = Math.floor(size / base);
  const tenth = whole < 10 ? Math.floor(((size % base) * 10) / base) : 0;
  return `${whole}${tenth > 0 ? `.${tenth}` : ''}${unit}`;
}

export function countText(count: number): string {
  if (count >= 1e9) return `${Math.floor(count / 1e9)}b`;
  if (count >= 1e6) return `${Math.floor(count / 1e6)}m`;
  return count >= 1000 ? `${Math.floor(count / 1000)}k` : String(count);
}

/** Transfers of this size that make a test of reasonable length. */
function transfersOf(size: number): number {
  if (size >= 1 << 20) return 100;
  if (size >= 1 << 16) return 1000;
  return size >= 1 << 10 ? 10_000 : 100_000;
}

/** Sizes of the default run, and of that over all sizes. */
export function testSizes(all: boolean): number[] {
  const sizes: number[] = [];
  for (let power = 6; power <= 22; power++) {
    sizes.push(2 ** power);
    if (power > 6) sizes.push(1.5 * 2 ** power);
  }
  return all ? sizes : [64, 4096, 65_536, 1_048_576];
}

export function latencyTest(size: number): StreamTest {
  return { name: `${sizeText(size)}_lat`, size, count: 1, iterations: transfersOf(size) };
}

export function bandwidthTest(size: number): StreamTest {
  return { name: `${sizeText(size)}_bw`, size, count: transfersOf(size), iterations: 1 };
}

/** The line above the figures. */
export function sayColumns(tool: Tool): void {
  const left = ['name', 'bytes', 'xfers', 'iters', 'total']
    .map((word, i) => word.padEnd(i === 0 ? 10 : 8))
    .join('');
  tool.say(`${left}${'time'.padStart(8)} ${'Gb/sec'.padStart(10)}${'usec/xfer'.padStart(13)}`);
}

export function sayFigures(tool: Tool, test: StreamTest, milliseconds: number): void {
  const { name, size, count, iterations } = test;
  const octets = iterations * count * size * 2;
  const columns = [sizeText(size), countText(count), countText(iterations), sizeText(octets)];
  const left = name.padEnd(10) + columns.map((text) => text.padEnd(8)).join('');
  const usec = milliseconds * 1000;
  const figures = [
    `${(usec / 1e6).toFixed(2).padStart(8)}s`,
    ((octets * 8) / (1000 * usec)).toFixed(2).padStart(10),
    (usec / iterations / (count * 2)).toFixed(2).padStart(11),
  ];
  tool.say(left + figures.join(''));
}

/** Octets that count up and go on where they stopped, over all transfers of a run. */
export class Pattern {
  #next = 0;

  put(bytes: Uint8Array): void {
    for (let i = 0; i < bytes.length; i++) bytes[i] = this.#next++ & 0xff;
  }

  /** The number of the first octet that is wrong, counted over the run; -1 if none is. */
  check(bytes: Uint8Array): number {
    for (const byte of bytes) {
      if (byte !== (this.#next & 0xff)) return this.#next;
      this.#next++;
    }
    return -1;
  }
}
