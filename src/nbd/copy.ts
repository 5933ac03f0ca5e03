/** Copying one device to another, with several requests under way. */
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { NEVER, type BlockDevice, type Extent } from './device.ts';

/** Options of {@link copyDevice}. */
export interface CopyOptions {
  /** Bytes of each read and write. Default 262144. */
  readonly request?: number | undefined;
  /** Reads and writes under way. Default 16. */
  readonly depth?: number | undefined;
  /** Called after each piece with the bytes that are done. */
  readonly progress?: ((done: bigint) => void) | undefined;
}

const NAMES: Names<CopyOptions> = { request: true, depth: true, progress: true };

/**
 * Copy all of `from` to the start of `to`, then flush. Parts that are known to be zero are zeroed where `to`
 * can do that.
 *
 * @throws ERR_INVALID_ARGUMENT; rejects with ERR_OUT_OF_RANGE if `to` is too small, and with what a device
 *   rejects with
 *
 * @example
 * await copyDevice(await fileDevice('disk.img', { readOnly: true }), remote);
 */
export async function copyDevice(
  from: BlockDevice,
  to: BlockDevice,
  options: CopyOptions = {},
): Promise<void> {
  checkOptions('options', options, NAMES);
  const { request = 262_144, depth = 16, progress } = options;
  checkInteger('options.request', request, 512, 32 * 1024 * 1024);
  checkInteger('options.depth', depth, 1, 1024);
  if (to.size < from.size)
    throw new IwarpError('ERR_OUT_OF_RANGE', `the target has ${to.size} bytes, the source ${from.size}`);
  const pieces = piecesOf(from, request);
  let done = 0n;
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    const buffer = new Uint8Array(request);
    while (failures.length === 0) {
      const { value: piece, done: isLast } = await pieces.next();
      if (isLast === true) return;
      await copyPiece(from, to, piece, buffer.subarray(0, piece.length));
      done += BigInt(piece.length);
      progress?.(done);
    }
  };
  // The first failure ends the others after their piece: nothing is at work on a device that the caller
  // closes next.
  const failed = (error: unknown): void => void failures.push(error);
  await Promise.all(Array.from({ length: depth }, () => worker().catch(failed)));
  if (failures.length > 0) throw failures[0];
  await to.flush?.();
}

interface Piece {
  readonly offset: bigint;
  readonly length: number;
  readonly zero: boolean;
}

async function copyPiece(
  from: BlockDevice,
  to: BlockDevice,
  piece: Piece,
  buffer: Uint8Array,
): Promise<void> {
  const { offset, length, zero } = piece;
  if (zero && to.zero !== undefined) return await to.zero(offset, length, { fast: false, noHole: false });
  if (zero) buffer.fill(0);
  else await from.read(buffer, offset, NEVER);
  await to.write(buffer, offset, { fua: false }, NEVER);
}

/** The source in pieces, in order. One generator serves all workers: its calls queue. */
async function* piecesOf(from: BlockDevice, request: number): AsyncGenerator<Piece, void> {
  const SPAN = 1 << 30;
  for (let start = 0n; start < from.size; ) {
    const span = Number(from.size - start < BigInt(SPAN) ? from.size - start : BigInt(SPAN));
    let left = span;
    let at = start;
    for await (const { length, zero } of extentsIn(from, start, span)) {
      const inside = Math.min(length, left);
      for (let done = 0; done < inside; done += request)
        yield { offset: at + BigInt(done), length: Math.min(request, inside - done), zero };
      at += BigInt(inside);
      left -= inside;
      if (left === 0) break;
    }
    if (at === start) throw new IwarpError('ERR_PROTOCOL', 'the source reports no extents');
    start = at;
  }
}

async function* extentsIn(from: BlockDevice, offset: bigint, length: number): AsyncGenerator<Extent> {
  if (from.extents === undefined) yield { length, hole: false, zero: false };
  else yield* from.extents(offset, length);
}
