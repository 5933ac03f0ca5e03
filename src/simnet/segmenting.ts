/**
 * Delivers what arrives in other pieces than the network did. No outcome may depend on where a stream is cut;
 * tests check that with this.
 *
 * Read first: `port.ts`, `middleware.ts`.
 */

import type { Scheduler } from '../base/clock.ts';
import { copyOf } from '../base/copy.ts';
import { checkInteger, checkObject, checkOneOf } from '../base/errors.ts';
import { seededRandom } from '../base/random.ts';
import type { RandomU32 } from '../base/random.ts';
import { HoldingPort } from '../transport/middleware.ts';
import type { PortMiddleware } from '../transport/middleware.ts';
import type { Port } from '../transport/port.ts';

/**
 * Where the stream is cut.
 *
 * - `asIs`: where the network cut it.
 * - `every`: at each multiple of `octets`, counted from the start of the stream; 1 delivers byte by byte.
 * - `random`: pieces of 1 to `max` bytes (default 2000), drawn from `seed`; each connection of one
 *   middleware draws its own.
 * - `coalesce`: everything that arrives in one turn of the scheduler, as one piece.
 *
 * The network's own cuts remain, except with `coalesce`.
 */
export type Segmentation =
  | { readonly kind: 'asIs' }
  | { readonly kind: 'every'; readonly octets: number }
  | { readonly kind: 'random'; readonly seed: number; readonly max?: number }
  | { readonly kind: 'coalesce' };

const KINDS: readonly Segmentation['kind'][] = ['asIs', 'every', 'random', 'coalesce'];

/**
 * Middleware that re-segments the inbound stream. `coalesce` needs the scheduler. So do the others if a
 * handler pauses in the middle of a chunk: then the rest follows in a separate call after `resume`.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const transport = wrapTransport(network, segmenting(time, { kind: 'random', seed: 7 }));
 */
export function segmenting(scheduler: Scheduler, segmentation: Segmentation): PortMiddleware {
  checkObject('segmentation', segmentation);
  checkOneOf('segmentation.kind', segmentation.kind, KINDS);
  if (segmentation.kind === 'coalesce') return (port) => new CoalescingPort(port, scheduler);
  if (segmentation.kind === 'random') {
    const max = checkInteger('segmentation.max', segmentation.max ?? 2000, 1, 0x7fff_ffff);
    const seed = checkInteger(
      'segmentation.seed',
      segmentation.seed,
      Number.MIN_SAFE_INTEGER,
      Number.MAX_SAFE_INTEGER,
    );
    let connections = 0;
    return (port) => new CuttingPort(port, scheduler, randomPieces(seededRandom(seed + connections++), max));
  }
  if (segmentation.kind === 'asIs')
    return (port) => new CuttingPort(port, scheduler, () => Number.POSITIVE_INFINITY);
  const octets = checkInteger('segmentation.octets', segmentation.octets, 1, 0x7fff_ffff);
  return (port) => new CuttingPort(port, scheduler, () => octets);
}

function randomPieces(random: RandomU32, max: number): () => number {
  return () => 1 + (random() % max);
}

class CuttingPort extends HoldingPort {
  readonly #nextPiece: () => number;
  /** Bytes until the next cut. */
  #left: number;

  constructor(inner: Port, scheduler: Scheduler, nextPiece: () => number) {
    super(inner, scheduler);
    this.#nextPiece = nextPiece;
    this.#left = nextPiece();
  }

  protected override deliver(bytes: Uint8Array, start: number, end: number): number {
    const stop = Math.min(end, start + this.#left);
    this.#left -= stop - start;
    if (this.#left === 0) this.#left = this.#nextPiece();
    this.handler?.onData(bytes, start, stop);
    return stop;
  }
}

class CoalescingPort extends HoldingPort {
  #parts: Uint8Array[] = [];
  #scheduled = false;

  protected override deliver(bytes: Uint8Array, start: number, end: number): number {
    this.handler?.onData(bytes, start, end);
    return end;
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    this.#parts.push(copyOf(bytes, start, end));
    this.#schedule();
  }

  override onEnd(): void {
    this.#flush();
    super.onEnd();
  }

  override onClose(error?: Error): void {
    if (error === undefined) this.#flush();
    super.onClose(error);
  }

  override reset(): void {
    this.#parts.length = 0;
    super.reset();
  }

  override resume(): void {
    super.resume();
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled || this.#parts.length === 0) return;
    this.#scheduled = true;
    this.scheduler.defer(() => {
      this.#scheduled = false;
      // While the handler pauses, parts wait here, so that they still become one piece.
      if (!this.paused) this.#flush();
    });
  }

  #flush(): void {
    const parts = this.#parts;
    if (parts.length === 0) return;
    this.#parts = [];
    const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    super.onData(all, 0, all.length);
  }
}
