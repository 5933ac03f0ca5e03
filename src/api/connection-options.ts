/** Options of the operations of a connection, and checks of their arguments. */
import { IwarpError, show, type Names } from '../base/errors.ts';
import { MemoryRegion } from '../verbs/memory.ts';
import { MAX_NAME } from '../rpc/published.ts';
import type { OperationOptions } from './operations.ts';

/** Options of {@link Connection.send}. */
export interface SendOptions extends OperationOptions {
  /** Send with Solicited Event: notifies a peer that waits for solicited events only. */
  readonly solicited?: boolean | undefined;
  /** STag of the peer to invalidate when the message is delivered (Send with Invalidate). */
  readonly invalidate?: number | undefined;
}

/** Options of {@link Connection.sendImmediate}. */
export type SendImmediateOptions = Omit<SendOptions, 'invalidate'>;

/** Options of {@link Connection.fetchAdd}. */
export interface FetchAddOptions extends OperationOptions {
  /** Each bit set is the top bit of a field: no carry leaves it. Default 0: one 64-bit field. */
  readonly addMask?: bigint | undefined;
}

/** Options of {@link Connection.compareSwap}. */
export interface CompareSwapOptions extends OperationOptions {
  /** Bits that are compared. Default: all. */
  readonly compareMask?: bigint | undefined;
  /** Bits that are written. Default: all. */
  readonly swapMask?: bigint | undefined;
}

const WAIT: Names<OperationOptions> = { signal: true, timeout: true };
/** @internal */
export const SEND: Names<SendOptions> = { ...WAIT, solicited: true, invalidate: true };
/** @internal */
export const SEND_IMMEDIATE: Names<SendImmediateOptions> = { ...WAIT, solicited: true };
/** @internal */
export const FETCH_ADD: Names<FetchAddOptions> = { ...WAIT, addMask: true };
/** @internal */
export const COMPARE_SWAP: Names<CompareSwapOptions> = { ...WAIT, compareMask: true, swapMask: true };

const TEXT = new TextEncoder();

/** @internal @throws ERR_INVALID_ARGUMENT */
export function checkRegion(name: string, value: unknown): void {
  if (value instanceof MemoryRegion) return;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a MemoryRegion, got ${show(value)}`);
}

/** @internal @throws ERR_INVALID_ARGUMENT */
export function checkString(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a string, got ${show(value)}`);
}

/** @internal The bytes of a name. @throws ERR_INVALID_ARGUMENT */
export function checkName(name: unknown): Uint8Array {
  const bytes = TEXT.encode(checkString('name', name));
  if (bytes.length > 0 && bytes.length <= MAX_NAME) return bytes;
  throw new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `name must have 1 to ${MAX_NAME} bytes in UTF-8, got ${bytes.length}`,
  );
}
