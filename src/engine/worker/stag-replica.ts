/**
 * An engine's copy of the device's STag table. Commands bring what calls in the application's thread have
 * changed. What streams change here (a peer invalidates, the queues invalidate, register and bind) the
 * application learns of with the completion, repeats on its own table, and passes to the other engines.
 */
import { isShared } from '../../base/copy.ts';
import { IwarpError } from '../../base/errors.ts';
import { countShared } from '../../base/shared-memory.ts';
import { memoryOf, StagEntry, StagTable, type StagState, type WindowBinder } from '../../ddp/stag-table.ts';
import { executeLocal, type LocalOperation } from '../../queues/local-work.ts';
import type { LocalWork, PostedMemory, SgeList } from '../../queues/work.ts';
import type { OperationState } from '../channel/messages.ts';
import type { Elements } from '../channel/records.ts';

const NEVER = (): never => {
  throw new IwarpError('ERR_INTERNAL', 'an engine allocates no STags');
};

/**
 * Memory that a queued fast registration will give to an STag: requests posted after it name it already. It
 * ends with that request, done or not.
 */
class PromisedMemory implements PostedMemory {
  readonly stag: number;
  readonly bytes: Uint8Array;
  readonly #all: Map<number, PromisedMemory>;

  constructor(stag: number, bytes: Uint8Array, all: Map<number, PromisedMemory>) {
    this.stag = stag;
    this.bytes = bytes;
    this.#all = all;
    all.set(stag, this);
  }

  settled(): void {
    if (this.#all.get(this.stag) === this) this.#all.delete(this.stag);
  }
}

/** See above. */
export class StagReplica implements Elements {
  readonly table: StagTable;
  readonly #promised = new Map<number, PromisedMemory>();
  readonly #used: (stag: number) => void;
  /** The entry for elements whose region has gone. */
  readonly #gone = new StagEntry(0, 'region', 0);

  /** `used` hears of each STag for one use that has ended here. */
  constructor(limit: number, used: (stag: number) => void) {
    this.#used = used;
    this.table = new StagTable(NEVER, limit);
    this.#gone.valid = false;
  }

  // ------------------------------------------------------------------------------------------------ commands

  put(state: StagState): void {
    this.table.restore(state);
    if (state.once) this.table.withIndex(state.stag)!.ended = () => this.#used(state.stag);
  }

  share(stag: number): void {
    const entry = this.table.withIndex(stag);
    if (entry !== undefined) entry.shared = true;
  }

  invalidate(stag: number): void {
    const entry = this.table.find(stag);
    if (entry === null) return;
    entry.ended = null;
    this.table.invalidate(entry);
  }

  /** Bytes of the entry's memory. */
  bytesOf(stag: number): number {
    return this.table.withIndex(stag)?.bytes.length ?? 0;
  }

  /** Take the entry out. Returns it if a write under way still reads its memory, else null. */
  drop(stag: number): StagEntry | null {
    const entry = this.table.withIndex(stag);
    if (entry === undefined) return null;
    entry.ended = null;
    if (isShared(entry.bytes)) countShared(entry.bytes.length);
    this.table.free(entry);
    return entry.pins > 0 ? entry : null;
  }

  // ------------------------------------------------------------------------------------------------ requests

  add(sges: SgeList, stag: number, offset: number, length: number): void {
    const entry = this.table.withIndex(stag) ?? this.#gone;
    const promised = this.#promised.size === 0 ? undefined : this.#promised.get(stag);
    sges.add(entry, promised === undefined ? entry.bytes : promised.bytes, offset, length, stag);
  }

  /** An operation on entries of this table; `settled` of its memory is for when the request is through. */
  work(state: OperationState, binder: WindowBinder): LocalWork {
    const { table } = this;
    const entry = table.withIndex(state.index) ?? this.#gone;
    if (state.type === 'register') {
      const bytes = memoryOf(state.memory);
      const memory = new PromisedMemory(
        ((state.index & 0xffff_ff00) | state.key) >>> 0,
        bytes,
        this.#promised,
      );
      return this.#work({ ...state, entry, bytes }, memory);
    }
    if (state.type === 'bind')
      return this.#work(
        { ...state, entry, region: table.withIndex(state.regionStag) ?? this.#gone, binder },
        null,
      );
    return this.#work({ ...state, entry }, null);
  }

  #work(operation: LocalOperation, memory: PostedMemory | null): LocalWork {
    return { run: () => executeLocal(this.table, operation), operation, memory };
  }
}
