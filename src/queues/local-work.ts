/**
 * Work requests on our own memory, as data: local invalidate, fast registration, bind. Verbs draft 7.3.2.5,
 * 7.8, 7.10.2. They are done when their turn in the send queue comes, in the thread that works the queue off,
 * on the STag table that the streams there are checked against.
 */
import { lengthNow } from '../base/copy.ts';
import type { StagEntry, StagTable, WindowBinder } from '../ddp/stag-table.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import type { WcStatus } from './completion.ts';

/** Make an STag unusable; `stag` is the entry's own, or will be by then. */
export interface LocalInvalidate {
  readonly type: 'invalidate';
  readonly entry: StagEntry;
  readonly stag: number;
  /** The queue pair that asks. */
  readonly qp: number;
}

/** Give a region in state Invalid memory and a key. */
export interface LocalRegister {
  readonly type: 'register';
  readonly entry: StagEntry;
  readonly key: number;
  readonly bytes: Uint8Array;
  readonly access: number;
  readonly baseHi: number;
  readonly baseLo: number;
  readonly zeroBased: boolean;
}

/** Tie a window in state Invalid to part of a region, and to the queue pair. */
export interface LocalBind {
  readonly type: 'bind';
  readonly entry: StagEntry;
  readonly region: StagEntry;
  readonly regionStag: number;
  readonly key: number;
  readonly offset: number;
  readonly length: number;
  readonly access: number;
  readonly baseHi: number;
  readonly baseLo: number;
  readonly qp: number;
  readonly binder: WindowBinder;
}

/** One such request. */
export type LocalOperation = LocalInvalidate | LocalRegister | LocalBind;

/** Do it. Everything that may have changed since the request was posted is judged here (VERBS-169). */
export function executeLocal(stags: StagTable, operation: LocalOperation): WcStatus {
  switch (operation.type) {
    case 'invalidate':
      return invalidate(stags, operation);
    case 'register':
      return register(stags, operation);
    case 'bind':
      return bind(stags, operation);
  }
}

/**
 * Repeat an operation that another thread has done on its copy of the table some time ago.
 * Changes by a call here stay meanwhile as that call has left them: the other thread hears of the call
 * later.
 */
export function repeatLocal(stags: StagTable, operation: LocalRegister | LocalBind): void {
  const { entry } = operation;
  if (entry.valid) return;
  if (operation.type === 'register') give(stags, operation);
  // If its region has ended meanwhile, so has the window; but the key has been used.
  else if (bind(stags, operation) !== 'success') stags.rekey(entry, operation.key);
}

function invalidate(stags: StagTable, { entry, stag, qp }: LocalInvalidate): WcStatus {
  const foreign = entry.kind === 'window' && entry.valid && entry.qp !== qp; // VERBS-166
  if (!stags.holds(entry) || entry.stag !== stag || entry.shared || entry.windows > 0 || foreign)
    return 'local-invalidate-error';
  stags.invalidate(entry);
  return 'success';
}

function register(stags: StagTable, o: LocalRegister): WcStatus {
  const { entry } = o;
  if (!stags.holds(entry) || entry.valid || entry.shared) return 'fast-register-error';
  give(stags, o);
  return 'success';
}

function give(stags: StagTable, o: LocalRegister): void {
  stags.rekey(o.entry, o.key);
  fill(o.entry, o.bytes, o);
  o.entry.zeroBased = o.zeroBased;
}

function bind(stags: StagTable, o: LocalBind): WcStatus {
  const { entry, region, offset, length } = o;
  if (!stags.holds(entry) || entry.valid || !canBind(region, o)) return 'mw-bind-error';
  stags.rekey(entry, o.key);
  // VERBS-163
  entry.region = region;
  entry.binder = o.binder;
  entry.qp = o.qp;
  region.windows++;
  o.binder.boundWindows++;
  fill(entry, region.bytes.subarray(offset, offset + length), o);
  return 'success';
}

function canBind(region: StagEntry, { regionStag, access, offset, length }: LocalBind): boolean {
  if (
    !region.valid ||
    region.stag !== regionStag ||
    region.zeroBased ||
    offset + length > lengthNow(region.bytes)
  )
    return false;
  if ((region.access & ACCESS.MW_BIND) === 0) return false;
  return (
    (access & (ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) === 0 ||
    (region.access & ACCESS.LOCAL_WRITE) !== 0
  );
}

function fill(entry: StagEntry, bytes: Uint8Array, o: LocalRegister | LocalBind): void {
  entry.bytes = bytes;
  entry.access = o.access;
  entry.baseHi = o.baseHi;
  entry.baseLo = o.baseLo;
  entry.valid = true;
}
