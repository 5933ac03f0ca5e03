/**
 * Work requests as the caller writes them, and their way into queue entries: verbs draft 8.1, 9.3. Every
 * mistake throws here, at once, before anything has changed (VERBS-122).
 */
import { lengthNow } from '../base/copy.ts';
import { brand } from '../base/brand.ts';
import { checkBoolean, checkBytes, checkInteger, IwarpError, show, type Names } from '../base/errors.ts';
import { FieldNames } from '../base/field-names.ts';
import { checkU64, halve, hi32, isU32, isU64, lo32, lower, upper } from '../base/u64.ts';
import { ACCESS, type WindowBinder } from '../ddp/stag-table.ts';
import { MAX_MESSAGE } from '../ddp/wire.ts';
import { OPCODE } from '../rdmap/wire.ts';
import { IMMEDIATE, WORK, type ReceiveQueue, type SendWqe, type SgeList } from '../queues/work.ts';
import { addSge, type MemoryRegion, type Sge } from './memory.ts';
import type { ProtectionDomain } from './pd.ts';
import { fillBind, fillFastRegister, fillInvalidate, invalidateSink } from './post-memory.ts';
import type { MemoryWindow } from './window.ts';

/** Fields of every request for a send queue. */
export interface SendCommon {
  /** The caller's number for the request, returned in the completion; any u64. Default 0. */
  readonly wrId?: bigint | number | undefined;
  /**
   * Report success with a completion too. Default: as the queue pair says. Failures always give one
   * (VERBS-106).
   */
  readonly signaled?: boolean | undefined;
  /**
   * Start only after all earlier Reads and Atomics have completed (VERBS-098). A request that concerns only
   * local memory waits for all earlier requests (VERBS-099), and sends nothing (VERBS-104).
   */
  readonly fence?: boolean | undefined;
}

/**
 * A Send. With `solicited` and `invalidate` it is a Send with Solicited Event, a Send with Invalidate, or
 * both.
 */
export interface SendRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'send';
  /**
   * Local memory whose bytes are the payload, in order. Default: an empty message. Not together with
   * `inline`.
   */
  readonly sges?: readonly Sge[] | undefined;
  /** Bytes that are copied when the request is posted, in place of `sges`. */
  readonly inline?: ArrayBufferView | undefined;
  /** Ask for a solicited event at the peer (RFC 5040 5.3). */
  readonly solicited?: boolean | undefined;
  /** STag of the peer to invalidate on delivery. */
  readonly invalidate?: number | undefined;
}

/**
 * An RDMA Write to `remoteAddr` (a tagged offset) of the peer's region `rkey`. With `immediate`, eight bytes
 * of Immediate Data follow as the next message: it is one request with one completion, and a receive shows
 * the peer that the Write is in place (RFC 7306 6).
 */
export interface WriteRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'rdma-write';
  /**
   * Local memory whose bytes are the payload, in order. Default: an empty Write. Not together with `inline`.
   */
  readonly sges?: readonly Sge[] | undefined;
  /** Bytes that are copied when the request is posted, in place of `sges`. */
  readonly inline?: ArrayBufferView | undefined;
  /** STag of the peer's memory, u32, as the peer has advertised it. */
  readonly rkey: number;
  /** Tagged offset of the first byte there, u64: the advertised address plus an offset. */
  readonly remoteAddr: bigint | number;
  /** Eight bytes of Immediate Data to follow, a u64, sent big-endian. */
  readonly immediate?: bigint | number | undefined;
  /** The Immediate Data asks for a solicited event at the peer. */
  readonly solicited?: boolean | undefined;
}

/** An RDMA Read of `sges[0].length` bytes from the peer into one local element. */
export interface ReadRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'rdma-read';
  /** At most one element (VERBS-083). Default: a Read of zero bytes. */
  readonly sges?: readonly Sge[] | undefined;
  /** STag of the peer's memory, u32, as the peer has advertised it. */
  readonly rkey: number;
  /** Tagged offset of the first byte there, u64: the advertised address plus an offset. */
  readonly remoteAddr: bigint | number;
  /** Invalidate the STag of the sink after the response and before the completion (VERBS-102). */
  readonly localInvalidate?: boolean | undefined;
}

/** Eight bytes of Immediate Data (RFC 7306 6). */
export interface ImmediateRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'immediate';
  /** The eight bytes as a u64, sent big-endian. */
  readonly immediate: bigint | number;
  /** Ask for a solicited event at the peer. */
  readonly solicited?: boolean | undefined;
}

/**
 * FetchAdd (RFC 7306 5.1.1). The original value is stored in the 8 bytes of `sges[0]`, in this machine's
 * byte order.
 */
export interface FetchAddRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'atomic-fetch-add';
  /** One element of 8 bytes, which gets the original value. */
  readonly sges: readonly Sge[];
  /** STag of the peer's memory, u32, as the peer has advertised it. */
  readonly rkey: number;
  /**
   * Tagged offset of the 64-bit word there, u64. The word must be aligned to 8 bytes in the peer's memory.
   */
  readonly remoteAddr: bigint | number;
  /** The addend, u64; the sum is modulo 2^64. */
  readonly add: bigint | number;
  /** Each bit set is the top bit of a field: no carry leaves it. Default 0: one 64-bit field. */
  readonly addMask?: bigint | undefined;
}

/**
 * CmpSwap (RFC 7306 5.1.2). The original value is stored in the 8 bytes of `sges[0]`, in this machine's byte
 * order.
 */
export interface CmpSwapRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'atomic-cmp-swap';
  /** One element of 8 bytes, which gets the original value. */
  readonly sges: readonly Sge[];
  /** STag of the peer's memory, u32, as the peer has advertised it. */
  readonly rkey: number;
  /**
   * Tagged offset of the 64-bit word there, u64. The word must be aligned to 8 bytes in the peer's memory.
   */
  readonly remoteAddr: bigint | number;
  /** The value that the word must equal in the bits of `compareMask`, u64. */
  readonly compare: bigint | number;
  /** The value to write in that case, in the bits of `swapMask`, u64. */
  readonly swap: bigint | number;
  /** Bits that are compared. Default: all. */
  readonly compareMask?: bigint | undefined;
  /** Bits that are written. Default: all. */
  readonly swapMask?: bigint | undefined;
}

/** Invalidate a local STag: it cannot be used until the next registration or bind (VERBS-153). */
export interface LocalInvalidateRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'local-invalidate';
  /** The region or window whose STag is invalidated. */
  readonly target: MemoryRegion | MemoryWindow;
}

/** Fast registration: give a region in state Invalid new memory (VERBS-148). */
export interface FastRegisterRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'reg-mr';
  /** A region from `allocateFastRegion`, or another region that is Invalid and not shared. */
  readonly mr: MemoryRegion;
  /** Its new memory, no larger than the region was made for. */
  readonly memory: ArrayBufferView;
  /** A union of `ACCESS`. */
  readonly access: number;
  /** Tagged offset of the first byte. Without it the region is zero-based. */
  readonly iova?: bigint | number | undefined;
  /** Key of the new STag, 0 to 255. Default: the next one. */
  readonly key?: number | undefined;
}

/** Bind a window in state Invalid to `length` bytes from `offset` of a region (VERBS-161). */
export interface BindRequest extends SendCommon {
  /** Kind of the request. */
  readonly opcode: 'bind-mw';
  /** The window, in state Invalid. */
  readonly mw: MemoryWindow;
  /** The region. It must have been registered with `iova` and with MW_BIND. */
  readonly mr: MemoryRegion;
  /** First byte, relative to the start of the region. Default 0. */
  readonly offset?: number | undefined;
  /** Length in bytes. Default: to the end of the region. */
  readonly length?: number | undefined;
  /**
   * A union of REMOTE_READ, REMOTE_WRITE and REMOTE_ATOMIC. The last two need LOCAL_WRITE of the region
   * (VERBS-162).
   */
  readonly access: number;
  /** Tagged offset of the window's first byte. Default: as in the region. 0 makes the window zero-based. */
  readonly iova?: bigint | number | undefined;
  /** Key of the new STag, 0 to 255. Default: the next one. */
  readonly key?: number | undefined;
}

/** A request for {@link QueuePair.postSend}. */
export type SendWorkRequest =
  | SendRequest
  | WriteRequest
  | ReadRequest
  | ImmediateRequest
  | FetchAddRequest
  | CmpSwapRequest
  | LocalInvalidateRequest
  | FastRegisterRequest
  | BindRequest;

/** A request for {@link QueuePair.postRecv}. */
export interface ReceiveWorkRequest {
  /** The caller's number for the request, returned in the completion; any u64. Default 0. */
  readonly wrId?: bigint | number | undefined;
  /** Memory for the message. Default: none, for messages of zero bytes. */
  readonly sges?: readonly Sge[] | undefined;
}

/** The queue pair that a request is checked against, and that counts the windows bound there. */
export interface PostContext extends WindowBinder {
  readonly pd: ProtectionDomain;
  readonly number: number;
  readonly limits: PostLimits;
  /** False if the peer is known to lack RFC 7306. */
  readonly peerExtensions: boolean | undefined;
}

/** The limits that a queue pair was made with. */
export interface PostLimits {
  readonly maxSge: number;
  readonly maxRecvSge: number;
  readonly maxInline: number;
  readonly signalAll: boolean;
  /** The wire carries nothing but Sends (`qpip`). */
  readonly sendsOnly: boolean;
  /** Windows may be bound, regions registered, through this queue pair (VERBS-148, VERBS-161). */
  readonly allowBind: boolean;
  readonly allowFastRegister: boolean;
}

/**
 * The error that `postSend` and `postRecv` throw: an {@link IwarpError} that also says how many requests of
 * the list were posted before the wrong one (VERBS-090). Those stay posted; the wrong one and all that follow
 * are not.
 *
 * @example
 * try { qp.postSend(list); } catch (error) {
 *   if (error instanceof PostError && error.code === 'ERR_QUEUE_FULL') retryLater(list.slice(error.posted));
 *   else throw error;
 * }
 */
export class PostError extends IwarpError {
  static {
    brand(this, 'PostError');
  }

  /** Number of requests that were posted, which is the index of the wrong one. */
  readonly posted: number;

  /** The fault of one request of a list; `posted` requests before it were taken. */
  constructor(cause: IwarpError, posted: number) {
    super(cause.code, cause.message, { cause });
    this.name = 'PostError';
    this.posted = posted;
  }
}

/**
 * Post a list in order until the first mistake, which throws a {@link PostError} after `before`. Returns how
 * many. Names are put together only for a mistake: a string built for each request cost a fifth of the
 * message rate (`rate` of bench/micro/datapath.ts).
 */
export function postList<S, T>(
  self: S,
  name: string,
  list: readonly T[],
  post: (this: S, name: string, request: T) => void,
  before: (this: S) => void,
): number {
  for (let i = 0; i < list.length; i++) {
    try {
      post.call(self, name, list[i]!);
    } catch (error) {
      before.call(self);
      if (!(error instanceof IwarpError)) throw error;
      throw new PostError(name === 'request' ? error : withIndex(error, name, i), i);
    }
  }
  return list.length;
}

/** Error texts begin with the name of the argument; that of a list gets the index of the request. */
function withIndex(error: IwarpError, name: string, index: number): IwarpError {
  const { message } = error;
  if (message.startsWith(name)) error.message = `${name}[${index}]${message.slice(name.length)}`;
  return error;
}

/**
 * @internal Bytes that a program gave before its request could be posted, for `inline`; with `copied` false
 *   they are not copied but stay where they are, unregistered, and are the stack's until completion: in
 *   memory that only this thread has. A class, so that other requests pay nothing for it.
 */
export class GivenMemory implements ArrayBufferView {
  readonly copied: boolean;
  readonly #bytes: Uint8Array;
  readonly #octets: number;

  constructor(bytes: Uint8Array, copied: boolean) {
    this.#bytes = bytes;
    this.#octets = lengthNow(bytes);
    this.copied = copied;
  }

  get buffer(): ArrayBufferLike {
    return this.#bytes.buffer;
  }

  get byteOffset(): number {
    return this.#bytes.byteOffset;
  }

  get byteLength(): number {
    return this.#octets;
  }

  /** The bytes. ERR_INVALID_REGION if the memory has become shorter. */
  check(name: string): Uint8Array {
    if (lengthNow(this.#bytes) === this.#octets) return this.#bytes;
    throw new IwarpError(
      'ERR_INVALID_REGION',
      `${name}: the memory has been transferred away or resized since it was given`,
    );
  }
}

const NO_SGES: readonly Sge[] = [];
const ALL_ONES = (1n << 64n) - 1n;

const COMMON: Names<SendCommon> & { readonly opcode: true } = {
  opcode: true,
  wrId: true,
  signaled: true,
  fence: true,
};
const REMOTE = { sges: true, rkey: true, remoteAddr: true } as const;

/** The fields of each send-side request. */
const SEND_FIELDS: {
  readonly [O in SendWorkRequest['opcode']]: FieldNames<Extract<SendWorkRequest, { opcode: O }>>;
} = {
  send: new FieldNames({ ...COMMON, sges: true, inline: true, solicited: true, invalidate: true }),
  'rdma-write': new FieldNames({ ...COMMON, ...REMOTE, inline: true, immediate: true, solicited: true }),
  'rdma-read': new FieldNames({ ...COMMON, ...REMOTE, localInvalidate: true }),
  immediate: new FieldNames({ ...COMMON, immediate: true, solicited: true }),
  'atomic-fetch-add': new FieldNames({ ...COMMON, ...REMOTE, add: true, addMask: true }),
  'atomic-cmp-swap': new FieldNames({
    ...COMMON,
    ...REMOTE,
    compare: true,
    swap: true,
    compareMask: true,
    swapMask: true,
  }),
  'local-invalidate': new FieldNames({ ...COMMON, target: true }),
  'reg-mr': new FieldNames({ ...COMMON, mr: true, memory: true, access: true, iova: true, key: true }),
  'bind-mw': new FieldNames({
    ...COMMON,
    mw: true,
    mr: true,
    offset: true,
    length: true,
    access: true,
    iova: true,
    key: true,
  }),
};
/** An opcode is refused with its own reason (VERBS-078). */
const RECEIVE_FIELDS = new FieldNames<ReceiveWorkRequest & { readonly opcode: unknown }>({
  wrId: true,
  sges: true,
  opcode: true,
});

function checkFields(name: string, request: SendWorkRequest, known: FieldNames<never>): void {
  const field = known.unknownIn(request);
  if (field !== null) throw unknownField(name, field, known.text);
}

function unknownField(name: string, field: string, known: string): IwarpError {
  return new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `${name}.${field} is not a field of this request, which has ${known}`,
  );
}

/** Check a send-side request and write it into `wqe`. */
export function fillSend(name: string, request: SendWorkRequest, wqe: SendWqe, context: PostContext): void {
  if (typeof request !== 'object' || request === null) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a work request, got ${show(request)}`);
  }
  if (context.limits.sendsOnly) checkSendsOnly(name, request);
  const { wrId, signaled, fence } = request;
  wqe.wrId = wrId === undefined ? 0 : isU64(wrId) ? wrId : checkU64(`${name}.wrId`, wrId);
  wqe.signaled = signaled === undefined ? context.limits.signalAll : flag(name, 'signaled', signaled);
  wqe.fence = flag(name, 'fence', fence);
  wqe.opcode = request.opcode;
  switch (request.opcode) {
    case 'send':
      checkFields(name, request, SEND_FIELDS.send);
      fillPlainSend(name, request, wqe, context);
      break;
    case 'rdma-write':
      checkFields(name, request, SEND_FIELDS['rdma-write']);
      fillWrite(name, request, wqe, context);
      break;
    case 'rdma-read':
      checkFields(name, request, SEND_FIELDS['rdma-read']);
      fillRead(name, request, wqe, context);
      break;
    case 'immediate':
      checkFields(name, request, SEND_FIELDS.immediate);
      checkPeer(name, request.opcode, context);
      wqe.kind = WORK.SEND;
      wqe.wireOpcode = flag(name, 'solicited', request.solicited) ? OPCODE.IMMEDIATE_SE : OPCODE.IMMEDIATE;
      fillImmediate(name, request.immediate, wqe, IMMEDIATE.NOW);
      break;
    case 'atomic-fetch-add':
    case 'atomic-cmp-swap':
      checkFields(name, request, SEND_FIELDS[request.opcode]);
      checkPeer(name, request.opcode, context);
      fillAtomic(name, request, wqe, context);
      break;
    case 'local-invalidate':
      checkFields(name, request, SEND_FIELDS['local-invalidate']);
      fillInvalidate(name, request, wqe, context);
      break;
    case 'reg-mr':
      checkFields(name, request, SEND_FIELDS['reg-mr']);
      fillFastRegister(name, request, wqe, context);
      break;
    case 'bind-mw':
      checkFields(name, request, SEND_FIELDS['bind-mw']);
      fillBind(name, request, wqe, context);
      break;
    default: // VERBS-078
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `${name}.opcode is not a send-side opcode: ${show((request as { opcode: unknown }).opcode)}`,
      );
  }
}

/** RFC 7306 1.1: the two programs agree on the extensions; facts known about the peer are used at once. */
function checkPeer(name: string, opcode: string, context: PostContext): void {
  if (context.peerExtensions === false) {
    throw new IwarpError('ERR_NOT_SUPPORTED', `${name}: the peer does not support ${opcode} (RFC 7306)`);
  }
}

/** Plain TCP and UDP carry payload, and no header that says its kind. */
function checkSendsOnly(name: string, request: SendWorkRequest): void {
  const { opcode } = request;
  const isLocal = opcode === 'local-invalidate' || opcode === 'reg-mr';
  const plain = opcode !== 'send' || (request.solicited !== true && request.invalidate === undefined);
  if (isLocal || (opcode === 'send' && plain) || !Object.hasOwn(SEND_FIELDS, opcode)) return;
  const what = opcode === 'send' ? 'Send with Solicited Event or Invalidate' : opcode;
  throw new IwarpError(
    'ERR_NOT_SUPPORTED',
    `${name}: the wire qpip carries Sends only, and no ${what}; use wire: 'iwarp' for it`,
  );
}

function fillImmediate(name: string, value: bigint | number, wqe: SendWqe, when: number): void {
  checkU64(`${name}.immediate`, value);
  wqe.immediate = when;
  wqe.operands.dataHi = hi32(value);
  wqe.operands.dataLo = lo32(value);
}

function fillWrite(name: string, request: WriteRequest, wqe: SendWqe, context: PostContext): void {
  wqe.kind = WORK.WRITE;
  wqe.wireOpcode = OPCODE.RDMA_WRITE;
  fillRemote(name, request, wqe);
  wqe.solicited = flag(name, 'solicited', request.solicited);
  if (request.immediate !== undefined) {
    checkPeer(name, 'immediate', context);
    fillImmediate(name, request.immediate, wqe, IMMEDIATE.AFTER);
  } else if (wqe.solicited) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.solicited: an RDMA Write causes no event unless it has immediate data`,
    );
  }
  fillPayload(name, request, wqe, context);
}

function fillRead(name: string, request: ReadRequest, wqe: SendWqe, context: PostContext): void {
  wqe.kind = WORK.READ;
  fillRemote(name, request, wqe);
  fillSges(name, request.sges ?? NO_SGES, wqe, context.pd, 1, ACCESS.LOCAL_WRITE);
  if (flag(name, 'localInvalidate', request.localInvalidate))
    invalidateSink(name, request.sges?.[0]?.mr, wqe, context);
}

function flag(name: string, field: string, value: boolean | undefined): boolean {
  return value === undefined ? false : givenFlag(name, field, value);
}

/** Apart, so that `flag` is short: mostly there is none. */
function givenFlag(name: string, field: string, value: boolean): boolean {
  return typeof value === 'boolean' ? value : checkBoolean(`${name}.${field}`, value);
}

function fillPlainSend(name: string, request: SendRequest, wqe: SendWqe, context: PostContext): void {
  const solicited = flag(name, 'solicited', request.solicited);
  wqe.kind = WORK.SEND;
  if (request.invalidate === undefined) {
    wqe.wireOpcode = solicited ? OPCODE.SEND_SE : OPCODE.SEND;
  } else {
    wqe.wireOpcode = solicited ? OPCODE.SEND_SE_INVALIDATE : OPCODE.SEND_INVALIDATE;
    wqe.stag = checkInteger(`${name}.invalidate`, request.invalidate, 0, 0xffff_ffff);
  }
  fillPayload(name, request, wqe, context);
}

function fillRemote(
  name: string,
  request: { rkey: number; remoteAddr: bigint | number },
  wqe: SendWqe,
): void {
  const { rkey, remoteAddr } = request;
  wqe.stag = isU32(rkey) ? rkey : checkInteger(`${name}.rkey`, rkey, 0, 0xffff_ffff);
  if (!halve(remoteAddr)) checkU64(`${name}.remoteAddr`, remoteAddr);
  wqe.toHi = upper();
  wqe.toLo = lower();
}

function fillPayload(
  name: string,
  request: SendRequest | WriteRequest,
  wqe: SendWqe,
  context: PostContext,
): void {
  if (request.inline === undefined)
    fillSges(name, request.sges ?? NO_SGES, wqe, context.pd, context.limits.maxSge, 0);
  else fillInline(name, request, request.inline, wqe, context);
}

/** Apart, so that V8 has room to compile the way of other payloads into its caller. */
function fillInline(
  name: string,
  request: SendRequest | WriteRequest,
  inline: ArrayBufferView,
  wqe: SendWqe,
  context: PostContext,
): void {
  if (request.sges !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} has both inline and sges`);
  let bytes: Uint8Array;
  if (inline instanceof GivenMemory) {
    bytes = inline.check(name);
    if (!inline.copied) {
      wqe.sges.add(null, bytes, 0, bytes.length);
      return;
    }
  } else {
    bytes = inline instanceof Uint8Array ? inline : checkBytes(`${name}.inline`, inline);
  }
  if (bytes.length > context.limits.maxInline) {
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name}.inline has ${bytes.length} bytes, above the limit of ${context.limits.maxInline}: ` +
        'give sges, or raise maxInline',
    );
  }
  const memory = wqe.inlineMemory(context.limits.maxInline);
  memory.set(bytes);
  wqe.sges.add(null, memory, 0, bytes.length);
}

function fillSges(
  name: string,
  sges: readonly Sge[],
  wqe: SendWqe,
  pd: ProtectionDomain,
  max: number,
  right: number,
): void {
  fillList(name, sges, wqe.sges, pd, max, right);
  // VERBS-084, DDP-022
  if (wqe.sges.total > MAX_MESSAGE)
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name}.sges have ${wqe.sges.total} bytes, above 2^32 - 1: post several requests`,
    );
}

function fillList(
  name: string,
  sges: readonly Sge[],
  list: SgeList,
  pd: ProtectionDomain,
  max: number,
  right: number,
): void {
  if (!Array.isArray(sges))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.sges must be an array, got ${show(sges)}`);
  if (sges.length > max)
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name}.sges has ${sges.length} elements, above the limit of ${max}: raise maxSendSge or maxRecvSge`,
    );
  for (let i = 0; i < sges.length; i++) addSge(name, i, sges[i], pd, right, list);
}

function fillAtomic(
  name: string,
  request: FetchAddRequest | CmpSwapRequest,
  wqe: SendWqe,
  context: PostContext,
): void {
  const ATOMIC_OCTETS = 8;
  wqe.kind = WORK.ATOMIC;
  fillRemote(name, request, wqe);
  fillSges(name, request.sges, wqe, context.pd, 1, ACCESS.LOCAL_WRITE);
  if (wqe.total !== ATOMIC_OCTETS) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.sges must have exactly ${ATOMIC_OCTETS} bytes, got ${wqe.total}`,
    );
  }
  const { operands } = wqe;
  const put = (value: bigint | number): [number, number] => [hi32(value), lo32(value)];
  if (request.opcode === 'atomic-fetch-add') {
    [operands.dataHi, operands.dataLo] = put(checkU64(`${name}.add`, request.add));
    [operands.maskHi, operands.maskLo] = put(checkU64(`${name}.addMask`, request.addMask ?? 0n));
    return;
  }
  [operands.dataHi, operands.dataLo] = put(checkU64(`${name}.swap`, request.swap));
  [operands.maskHi, operands.maskLo] = put(checkU64(`${name}.swapMask`, request.swapMask ?? ALL_ONES));
  [operands.compareHi, operands.compareLo] = put(checkU64(`${name}.compare`, request.compare));
  [operands.compareMaskHi, operands.compareMaskLo] = put(
    checkU64(`${name}.compareMask`, request.compareMask ?? ALL_ONES),
  );
}

/** Check a receive request and post it into `queue`. */
export function fillReceive(
  name: string,
  request: ReceiveWorkRequest,
  queue: ReceiveQueue,
  pd: ProtectionDomain,
  maxSge: number,
): void {
  if (typeof request !== 'object' || request === null) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a receive request, got ${show(request)}`);
  }
  const { opcode } = request as { readonly opcode?: unknown };
  const field = RECEIVE_FIELDS.unknownIn(request);
  if (field !== null) throw unknownField(name, field, 'wrId, sges');
  if (opcode !== undefined)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.opcode: ${show(opcode)} cannot be posted to a receive queue`,
    ); // VERBS-078
  const wqe = queue.peekFree();
  if (wqe === null)
    throw new IwarpError(
      'ERR_QUEUE_FULL',
      `${name}: the receive queue has its ${queue.depth} entries in use`,
    ); // VERBS-091
  const { wrId, sges = NO_SGES } = request;
  wqe.wrId = wrId === undefined ? 0 : isU64(wrId) ? wrId : checkU64(`${name}.wrId`, wrId);
  fillList(name, sges, wqe.sges, pd, maxSge, ACCESS.LOCAL_WRITE);
  queue.push();
}
