/**
 * Work requests on our own memory: local invalidate, fast registration, bind, and the invalidating half of a
 * Read. Verbs draft 7.3.2.5, 7.8, 7.10.2, 8.1.2.3.
 *
 * A fault that cannot change between posting and execution throws at once. A state that can change (that of
 * an STag, by the peer or earlier work) is judged when the request's turn comes; then it completes in error
 * and the stream ends with a Terminate 0/0/00 (VERBS-169).
 */
import { lengthNow } from '../base/copy.ts';
import { checkInteger, IwarpError, show } from '../base/errors.ts';
import { checkU64, hi32, lo32 } from '../base/u64.ts';
import { ACCESS, isAccess, REMOTE_ACCESS } from '../ddp/stag-table.ts';
import { executeLocal, type LocalOperation } from '../queues/local-work.ts';
import { WORK, type SendWqe } from '../queues/work.ts';
import { checkAccess, checkKey, checkMemory, MemoryRegion } from './memory.ts';
import type { BindRequest, FastRegisterRequest, LocalInvalidateRequest, PostContext } from './post.ts';
import { ProjectedMemory } from './projected-memory.ts';
import { MemoryWindow } from './window.ts';

/** Local invalidate (VERBS-153, VERBS-166). */
export function fillInvalidate(
  name: string,
  request: LocalInvalidateRequest,
  wqe: SendWqe,
  context: PostContext,
): void {
  const { target } = request;
  if (target instanceof MemoryRegion) {
    checkInvalidatable(`${name}.target`, target, context);
  } else if (target instanceof MemoryWindow) {
    checkWindow(`${name}.target`, target, context);
  } else {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.target must be a MemoryRegion or MemoryWindow, got ${show(target)}`,
    );
  }
  wqe.kind = WORK.LOCAL;
  queueInvalidation(target, wqe, context);
}

/** The sink of a Read is invalidated after the response (VERBS-102). */
export function invalidateSink(
  name: string,
  mr: MemoryRegion | undefined,
  wqe: SendWqe,
  context: PostContext,
): void {
  if (mr === undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.localInvalidate needs an element in ${name}.sges`);
  checkInvalidatable(`${name}.sges[0].mr`, mr, context);
  queueInvalidation(mr, wqe, context);
}

function checkInvalidatable(name: string, mr: MemoryRegion, context: PostContext): void {
  checkRegion(name, mr, context);
  if (mr.entry.shared)
    throw new IwarpError('ERR_INVALID_STATE', `${name} is a shared region, which stays valid`); // VERBS-150
}

/** Queue the invalidation of `target`, which its projection shows from now on. */
function queueInvalidation(target: MemoryRegion | MemoryWindow, wqe: SendWqe, context: PostContext): void {
  const { entry } = target;
  const stag = target.rkey;
  const projected = ProjectedMemory.queue(target);
  projected.valid = false;
  setOperation(wqe, projected, context, { type: 'invalidate', entry, stag, qp: context.number });
}

function setOperation(
  wqe: SendWqe,
  memory: ProjectedMemory,
  context: PostContext,
  operation: LocalOperation,
): void {
  const { stags } = context.pd.device;
  wqe.local = { run: () => executeLocal(stags, operation), operation, memory };
}

/** Fast registration (VERBS-148). */
export function fillFastRegister(
  name: string,
  request: FastRegisterRequest,
  wqe: SendWqe,
  context: PostContext,
): void {
  const { mr } = request;
  if (!(mr instanceof MemoryRegion))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.mr must be a MemoryRegion, got ${show(mr)}`);
  checkRegion(`${name}.mr`, mr, context);
  if (!context.limits.allowFastRegister)
    throw new IwarpError('ERR_NOT_SUPPORTED', `${name}: the queue pair does not allow fast registration`);
  if (mr.entry.shared)
    throw new IwarpError('ERR_INVALID_STATE', `${name}.mr is a shared region, which stays as it is`);
  const bytes = checkMemory(`${name}.memory`, request.memory);
  if (lengthNow(bytes) > mr.maxLength) {
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name}.memory has ${bytes.length} bytes, above the region's limit of ${mr.maxLength}: ` +
        'allocate a larger fast region',
    );
  }
  const access = checkAccess(`${name}.access`, request.access);
  if (!mr.remote && (access & REMOTE_ACCESS) !== 0)
    throw new IwarpError('ERR_ACCESS', `${name}.mr can never get remote rights`); // VERBS-147
  const iova = checkU64(`${name}.iova`, request.iova ?? 0);
  const key = request.key === undefined ? nextKey(mr.rkey) : checkKey(`${name}.key`, request.key);
  context.pd.device.checkMemory(`${name}.memory`, bytes);
  const { entry } = mr;
  const projected = ProjectedMemory.queue(mr);
  projected.stag = withKey(projected.stag, key);
  projected.valid = true;
  projected.bytes = bytes;
  projected.access = access;
  projected.baseHi = hi32(iova);
  projected.baseLo = lo32(iova);
  wqe.kind = WORK.LOCAL;
  setOperation(wqe, projected, context, {
    type: 'register',
    entry,
    key,
    bytes,
    access,
    baseHi: projected.baseHi,
    baseLo: projected.baseLo,
    zeroBased: request.iova === undefined,
  });
}

/** Bind (VERBS-161, VERBS-162). */
// oxlint-disable-next-line max-lines-per-function -- its checks are the rules of one clause, in order
export function fillBind(name: string, request: BindRequest, wqe: SendWqe, context: PostContext): void {
  const { mw, mr } = request;
  if (!(mw instanceof MemoryWindow))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.mw must be a MemoryWindow, got ${show(mw)}`);
  if (!(mr instanceof MemoryRegion))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.mr must be a MemoryRegion, got ${show(mr)}`);
  checkWindow(`${name}.mw`, mw, context);
  checkRegion(`${name}.mr`, mr, context);
  if (!context.limits.allowBind)
    throw new IwarpError('ERR_NOT_SUPPORTED', `${name}: the queue pair does not allow binding`);
  const { access } = request;
  if (!isAccess(access) || (access & ~REMOTE_ACCESS) !== 0) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.access must be a union of REMOTE_READ, REMOTE_WRITE and REMOTE_ATOMIC, got ${show(access)}`,
    );
  }
  const { offset = 0 } = request;
  checkInteger(`${name}.offset`, offset, 0, Number.MAX_SAFE_INTEGER);
  const { length = mr.length - offset } = request;
  if (offset > mr.length)
    throw new IwarpError(
      'ERR_OUT_OF_RANGE',
      `${name}.offset ${offset} is beyond the region's ${mr.length} bytes`,
    );
  checkInteger(`${name}.length`, length, 0, 0xffff_ffff);
  if (offset + length > mr.length) {
    throw new IwarpError(
      'ERR_OUT_OF_RANGE',
      `${name}: ${length} bytes from ${offset} pass the region's ${mr.length} bytes`,
    );
  }
  checkBindRights(name, mr.access, access);
  if (mr.projected === null && mr.zeroBased) {
    throw new IwarpError(
      'ERR_INVALID_STATE',
      `${name}.mr is zero-based; a window needs a region registered with iova`,
    );
  }
  const iova = checkU64(`${name}.iova`, request.iova ?? mr.addr + BigInt(offset));
  const key = request.key === undefined ? nextKey(mw.rkey) : checkKey(`${name}.key`, request.key);
  const regionStag = mr.rkey;
  const projected = ProjectedMemory.queue(mw);
  projected.stag = withKey(projected.stag, key);
  projected.baseHi = hi32(iova);
  projected.baseLo = lo32(iova);
  wqe.kind = WORK.LOCAL;
  setOperation(wqe, projected, context, {
    type: 'bind',
    entry: mw.entry,
    region: mr.entry,
    regionStag,
    key,
    offset,
    length,
    access,
    baseHi: projected.baseHi,
    baseLo: projected.baseLo,
    qp: context.number,
    binder: context,
  });
}

function checkBindRights(name: string, regionAccess: number, access: number): void {
  if ((regionAccess & ACCESS.MW_BIND) === 0)
    throw new IwarpError('ERR_ACCESS', `${name}.mr does not grant MW_BIND`);
  if (
    (access & (ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) !== 0 &&
    (regionAccess & ACCESS.LOCAL_WRITE) === 0
  ) {
    throw new IwarpError(
      'ERR_ACCESS',
      `${name}.access: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE of the region`,
    ); // VERBS-162
  }
}

function checkRegion(name: string, mr: MemoryRegion, context: PostContext): void {
  mr.checkAlive(name);
  if (mr.pd !== context.pd)
    throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another protection domain`);
}

function checkWindow(name: string, mw: MemoryWindow, context: PostContext): void {
  mw.checkAlive(name);
  if (mw.pd !== context.pd)
    throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another protection domain`);
}

function nextKey(stag: number): number {
  return (stag + 1) & 0xff;
}

function withKey(stag: number, key: number): number {
  return ((stag & 0xffff_ff00) | key) >>> 0;
}
