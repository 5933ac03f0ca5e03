/** Requests that libibverbs has a call for and the send queue has a request for. */
import type { BindRequest, CmpSwapRequest } from './post.ts';
import type { QueuePair } from './qp.ts';
import type { MemoryWindow } from './window.ts';

/** Arguments of {@link bindWindow}: those of a bind, without the window. */
export type BindArguments = Omit<BindRequest, 'opcode' | 'mw'>;

/**
 * Bind a window through a queue pair (ibv_bind_mw). Returns the STag that the window has as soon as the
 * request has been posted.
 *
 * @example
 * const mw = pd.allocateMw();
 * const rkey = bindWindow(qp, mw, { mr, offset: 64, length: 64, access: ACCESS.REMOTE_WRITE });
 */
export function bindWindow(qp: QueuePair, mw: MemoryWindow, bind: BindArguments): number {
  qp.postSend({ ...bind, opcode: 'bind-mw', mw });
  return mw.rkey;
}

/** Arguments of {@link swapRequest}: an atomic without its comparison. */
export type SwapArguments = Omit<CmpSwapRequest, 'opcode' | 'compare' | 'compareMask'>;

/**
 * An atomic swap: a CmpSwap that compares no bit and so always writes (RFC 7306 5.1.2).
 *
 * @example
 * qp.postSend(swapRequest({ sges: [{ mr, length: 8 }], rkey, remoteAddr: 0, swap: 1n }));
 */
export function swapRequest(swap: SwapArguments): CmpSwapRequest {
  return { ...swap, opcode: 'atomic-cmp-swap', compare: 0n, compareMask: 0n };
}
