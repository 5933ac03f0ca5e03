/**
 * Work requests as the caller writes them, and their way into queue entries: verbs draft 8.1, 9.3. Every mistake throws here, at once,
 * before anything has changed (VERBS-122).
 */
import { checkBoolean, checkBytes, checkInteger, IwarpError, show } from '../base/errors.ts';
import { checkU64, hi32, lo32 } from '../base/u64.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import { MAX_MESSAGE } from '../ddp/wire.ts';
import { OPCODE } from '../rdmap/wire.ts';
import { WORK, type ReceiveQueue, type SendWqe } from '../rdmap/work.ts';
import { checkSge, type ProtectionDomain, type Sge } from './memory.ts';

interface SendCommon {
  /** The caller's own number, given back in the completion; any u64. */
  readonly wrId?: bigint | number;
  /** Give a completion on success too; default from the queue pair. Failures always give one (VERBS-106). */
  readonly signaled?: boolean;
  /** Start only after all earlier Reads and Atomics have completed (VERBS-098). */
  readonly fence?: boolean;
}

/** A Send, with Solicited Event or Invalidate as asked. */
export interface SendRequest extends SendCommon {
  readonly opcode: 'send';
  readonly sges?: readonly Sge[];
  /** Octets copied when posted, instead of a list. */
  readonly inline?: ArrayBufferView;
  readonly solicited?: boolean;
  /** STag of the peer to invalidate on delivery. */
  readonly invalidate?: number;
}

/** An RDMA Write to `remoteAddr` (tagged offset, octets) of the peer's region `rkey`. */
export interface WriteRequest extends SendCommon {
  readonly opcode: 'rdma-write';
  readonly sges?: readonly Sge[];
  readonly inline?: ArrayBufferView;
  readonly rkey: number;
  readonly remoteAddr: bigint | number;
}

/** An RDMA Read of `sges[0].length` octets from the peer into one local element. */
export interface ReadRequest extends SendCommon {
  readonly opcode: 'rdma-read';
  /** At most one element (VERBS-083); none reads zero octets. */
  readonly sges?: readonly Sge[];
  readonly rkey: number;
  readonly remoteAddr: bigint | number;
}

/** Eight octets of Immediate Data (RFC 7306 6), as a big-endian number. */
export interface ImmediateRequest extends SendCommon {
  readonly opcode: 'immediate';
  readonly immediate: bigint | number;
  readonly solicited?: boolean;
}

/** FetchAdd (RFC 7306 5.1.1): the original value goes, in this machine's byte order, to the 8 octets of `sges[0]`. */
export interface FetchAddRequest extends SendCommon {
  readonly opcode: 'atomic-fetch-add';
  readonly sges: readonly Sge[];
  readonly rkey: number;
  readonly remoteAddr: bigint | number;
  readonly add: bigint | number;
  /** Bits that end a field: no carry leaves them. Default 0, one 64-bit field. */
  readonly addMask?: bigint;
}

/** CmpSwap (RFC 7306 5.1.2). */
export interface CmpSwapRequest extends SendCommon {
  readonly opcode: 'atomic-cmp-swap';
  readonly sges: readonly Sge[];
  readonly rkey: number;
  readonly remoteAddr: bigint | number;
  readonly compare: bigint | number;
  readonly swap: bigint | number;
  readonly compareMask?: bigint;
  readonly swapMask?: bigint;
}

/** What {@link QueuePair.postSend} takes. */
export type SendWorkRequest =
  | SendRequest
  | WriteRequest
  | ReadRequest
  | ImmediateRequest
  | FetchAddRequest
  | CmpSwapRequest;

/** What {@link QueuePair.postRecv} takes. */
export interface ReceiveWorkRequest {
  readonly wrId?: bigint | number;
  /** Where the message goes; none for zero octets. */
  readonly sges?: readonly Sge[];
}

/** Limits that a request is checked against. */
export interface PostLimits {
  readonly maxSge: number;
  readonly maxInline: number;
  readonly signalAll: boolean;
}

const scratch = { offset: 0, length: 0 };
const ALL_ONES = (1n << 64n) - 1n;

/** Check a send-side request and write it into `wqe`. */
export function fillSend(name: string, request: SendWorkRequest, wqe: SendWqe, pd: ProtectionDomain, limits: PostLimits): void {
  if (typeof request !== 'object' || request === null) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a work request, got ${show(request)}`);
  }
  wqe.wrId = request.wrId === undefined ? 0 : checkU64(`${name}.wrId`, request.wrId);
  wqe.signaled = request.signaled === undefined ? limits.signalAll : checkBoolean(`${name}.signaled`, request.signaled);
  wqe.fence = request.fence === undefined ? false : checkBoolean(`${name}.fence`, request.fence);
  wqe.opcode = request.opcode;
  switch (request.opcode) {
    case 'send':
      fillPlainSend(name, request, wqe, pd, limits);
      break;
    case 'rdma-write':
      wqe.kind = WORK.WRITE;
      wqe.wireOpcode = OPCODE.RDMA_WRITE;
      fillRemote(name, request, wqe);
      fillPayload(name, request, wqe, pd, limits);
      break;
    case 'rdma-read':
      wqe.kind = WORK.READ;
      fillRemote(name, request, wqe);
      fillSges(name, request.sges ?? [], wqe, pd, 1, ACCESS.LOCAL_WRITE);
      break;
    case 'immediate':
      wqe.kind = WORK.SEND;
      wqe.wireOpcode = flag(name, 'solicited', request.solicited) ? OPCODE.IMMEDIATE_SE : OPCODE.IMMEDIATE;
      wqe.dataHi = hi32(checkU64(`${name}.immediate`, request.immediate));
      wqe.dataLo = lo32(request.immediate);
      break;
    case 'atomic-fetch-add':
    case 'atomic-cmp-swap':
      fillAtomic(name, request, wqe, pd);
      break;
    default:
      throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.opcode is not a send-side opcode: ${show((request as { opcode: unknown }).opcode)}`);
  }
}

function flag(name: string, field: string, value: boolean | undefined): boolean {
  return value === undefined ? false : checkBoolean(`${name}.${field}`, value);
}

function fillPlainSend(name: string, request: SendRequest, wqe: SendWqe, pd: ProtectionDomain, limits: PostLimits): void {
  const solicited = flag(name, 'solicited', request.solicited);
  wqe.kind = WORK.SEND;
  if (request.invalidate === undefined) {
    wqe.wireOpcode = solicited ? OPCODE.SEND_SE : OPCODE.SEND;
  } else {
    wqe.wireOpcode = solicited ? OPCODE.SEND_SE_INVALIDATE : OPCODE.SEND_INVALIDATE;
    wqe.stag = checkInteger(`${name}.invalidate`, request.invalidate, 0, 0xffff_ffff);
  }
  fillPayload(name, request, wqe, pd, limits);
}

function fillRemote(name: string, request: { rkey: number; remoteAddr: bigint | number }, wqe: SendWqe): void {
  wqe.stag = checkInteger(`${name}.rkey`, request.rkey, 0, 0xffff_ffff);
  const to = checkU64(`${name}.remoteAddr`, request.remoteAddr);
  wqe.toHi = hi32(to);
  wqe.toLo = lo32(to);
}

function fillPayload(name: string, request: SendRequest | WriteRequest, wqe: SendWqe, pd: ProtectionDomain, limits: PostLimits): void {
  if (request.inline === undefined) {
    fillSges(name, request.sges ?? [], wqe, pd, limits.maxSge, 0);
    return;
  }
  if (request.sges !== undefined) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} has both inline and sges`);
  const bytes = checkBytes(`${name}.inline`, request.inline);
  if (bytes.length > limits.maxInline) {
    throw new IwarpError('ERR_TOO_LARGE', `${name}.inline has ${bytes.length} octets, above the limit of ${limits.maxInline}`);
  }
  wqe.inline ??= new Uint8Array(limits.maxInline);
  wqe.inline.set(bytes);
  wqe.sges.add(null, wqe.inline, 0, bytes.length);
}

function fillSges(name: string, sges: readonly Sge[], wqe: SendWqe, pd: ProtectionDomain, max: number, right: number): void {
  if (!Array.isArray(sges)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.sges must be an array, got ${show(sges)}`);
  if (sges.length > max) throw new IwarpError('ERR_TOO_LARGE', `${name}.sges has ${sges.length} elements, above the limit of ${max}`);
  for (let i = 0; i < sges.length; i++) {
    const mr = checkSge(`${name}.sges[${i}]`, sges[i], pd, right, scratch);
    wqe.sges.add(mr.entry, mr.bytes, scratch.offset, scratch.length);
  }
  // VERBS-084, DDP-022
  if (wqe.sges.total > MAX_MESSAGE) throw new IwarpError('ERR_TOO_LARGE', `${name}.sges have ${wqe.sges.total} octets, above 2^32 - 1`);
}

function fillAtomic(name: string, request: FetchAddRequest | CmpSwapRequest, wqe: SendWqe, pd: ProtectionDomain): void {
  const ATOMIC_OCTETS = 8;
  wqe.kind = WORK.ATOMIC;
  fillRemote(name, request, wqe);
  fillSges(name, request.sges, wqe, pd, 1, ACCESS.LOCAL_WRITE);
  if (wqe.length !== ATOMIC_OCTETS) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.sges must have exactly ${ATOMIC_OCTETS} octets, got ${wqe.length}`);
  }
  const put = (value: bigint | number): [number, number] => [hi32(value), lo32(value)];
  if (request.opcode === 'atomic-fetch-add') {
    [wqe.dataHi, wqe.dataLo] = put(checkU64(`${name}.add`, request.add));
    [wqe.maskHi, wqe.maskLo] = put(checkU64(`${name}.addMask`, request.addMask ?? 0n));
    return;
  }
  [wqe.dataHi, wqe.dataLo] = put(checkU64(`${name}.swap`, request.swap));
  [wqe.maskHi, wqe.maskLo] = put(checkU64(`${name}.swapMask`, request.swapMask ?? ALL_ONES));
  [wqe.compareHi, wqe.compareLo] = put(checkU64(`${name}.compare`, request.compare));
  [wqe.compareMaskHi, wqe.compareMaskLo] = put(checkU64(`${name}.compareMask`, request.compareMask ?? ALL_ONES));
}

/** Check a receive request and post it into `queue`. */
export function fillReceive(name: string, request: ReceiveWorkRequest, queue: ReceiveQueue, pd: ProtectionDomain, maxSge: number): void {
  if (typeof request !== 'object' || request === null) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a receive request, got ${show(request)}`);
  }
  const wqe = queue.peekFree();
  if (wqe === null) throw new IwarpError('ERR_QUEUE_FULL', `${name}: the receive queue has its ${queue.depth} entries in use`); // VERBS-091
  wqe.wrId = request.wrId === undefined ? 0 : checkU64(`${name}.wrId`, request.wrId);
  const sges = request.sges ?? [];
  if (!Array.isArray(sges)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.sges must be an array, got ${show(sges)}`);
  if (sges.length > maxSge) throw new IwarpError('ERR_TOO_LARGE', `${name}.sges has ${sges.length} elements, above the limit of ${maxSge}`);
  for (let i = 0; i < sges.length; i++) {
    const mr = checkSge(`${name}.sges[${i}]`, sges[i], pd, ACCESS.LOCAL_WRITE, scratch);
    wqe.sges.add(mr.entry, mr.bytes, scratch.offset, scratch.length);
  }
  queue.push();
}
