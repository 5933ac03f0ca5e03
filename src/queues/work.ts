/**
 * Work requests inside the stack: send queue entries, receive entries, and the queues they stand in. Entries
 * are made once, with their queue, and used again; verbs fills them, the stream works them off, the
 * completion queue refers to them until they are polled.
 *
 * Read the verbs draft 8.1, 8.2 first.
 */
import { NO_BYTES, reaches } from '../base/copy.ts';
import { Ring } from '../base/ring.ts';
import type { StagEntry } from '../ddp/stag-table.ts';
import type { WcOpcode, WcStatus } from './completion.ts';
import type { PortAddress } from '../transport/port.ts';
import type { LocalOperation } from './local-work.ts';

export type { WcOpcode, WcStatus } from './completion.ts';

/** Inline memory is at least this long: the next request may have a few octets more. */
const LEAST_INLINE = 64;

/** How the sender treats an entry. */
export const WORK = { SEND: 0, WRITE: 1, READ: 2, ATOMIC: 3, LOCAL: 4 } as const;

/** One element of a scatter/gather list. */
class SgeElement {
  entry: StagEntry | null = null;
  bytes: Uint8Array = NO_BYTES;
  offset = 0;
  length = 0;
  /**
   * The STag as a signed number: one above 2^31 would be a separate number object, which is one more cache
   * line.
   */
  #lkey = 0;

  /**
   * The STag that the element was posted with: the entry's of then, or the one that work further ahead in the
   * queue will give it.
   */
  get lkey(): number {
    return this.#lkey >>> 0;
  }

  set(entry: StagEntry | null, bytes: Uint8Array, offset: number, length: number, lkey: number): void {
    this.entry = entry;
    this.bytes = bytes;
    this.offset = offset;
    this.length = length;
    this.#lkey = lkey | 0;
  }

  /** Regions must not be kept alive by a free entry. */
  forget(): void {
    this.entry = null;
    this.bytes = NO_BYTES;
  }

  /**
   * True if there is nothing to use, or the STag is still valid, the one posted with, and over the same
   * memory, which has not been transferred away. Without an entry, only the last counts.
   */
  holds(right: number): boolean {
    const { entry, length } = this;
    if (length === 0) return true; // VERBS-085: zero length is not looked at
    if (!reaches(this.bytes, this.offset + length)) return false;
    return (
      entry === null ||
      (entry.valid &&
        (entry.stag | 0) === this.#lkey &&
        (entry.access & right) === right &&
        entry.bytes === this.bytes)
    );
  }
}

/**
 * The scatter/gather list of a queue entry, reused. A queue walks through all its entries in turn, so each
 * cache line of an entry is missed once a message: nearly every list has one element, so the first one is the
 * list itself, as the list is the entry (`rate` of bench/micro/datapath.ts).
 */
export class SgeList extends SgeElement {
  count = 0;
  total = 0;
  /** The elements after the first, as many as were ever needed. */
  #more: SgeElement[] | null = null;

  /** Element 0, if there is one. */
  get first(): SgeElement {
    return this;
  }

  /** Element `i`, below `count`. */
  at(i: number): SgeElement {
    return i === 0 ? this : this.#more![i - 1]!;
  }

  clear(): void {
    this.forget();
    if (this.count > 1) this.#forgetMore();
    this.count = 0;
    this.total = 0;
  }

  #forgetMore(): void {
    for (let i = 1; i < this.count; i++) this.at(i).forget();
  }

  /**
   * `lkey` is the STag that the element was posted with: the entry's present STag, or the one that work
   * further ahead in the queue will give it.
   */
  add(
    entry: StagEntry | null,
    bytes: Uint8Array,
    offset: number,
    length: number,
    lkey: number = entry === null ? 0 : entry.stag,
  ): void {
    const element = this.count === 0 ? this : this.#another();
    element.set(entry, bytes, offset, length, lkey);
    this.count++;
    this.total += length;
  }

  /** The element after those in use, which are one at least. */
  #another(): SgeElement {
    return ((this.#more ??= [])[this.count - 1] ??= new SgeElement());
  }

  /** True if every element may still be used. */
  usable(right: number): boolean {
    return this.count === 1 ? this.holds(right) : this.#allHold(right);
  }

  #allHold(right: number): boolean {
    for (let i = 0; i < this.count; i++) if (!this.at(i).holds(right)) return false;
    return true;
  }
}

/**
 * Memory that a queued entry will invalidate, register or bind; notified when the entry is through, done or
 * not.
 */
export interface PostedMemory {
  settled(): void;
}

/** Immediate Data of a send queue entry: none, owed after the payload, or being sent now. */
export const IMMEDIATE = { NONE: 0, AFTER: 1, NOW: 2 } as const;

/** Receives taken and finished entries: the queue pair. */
export interface WorkOwner {
  /** A message has taken a receive. */
  receiveTaken(): void;
  /**
   * Optional: the send that was `places` behind the oldest one has been moved in front of it, and completes
   * next.
   */
  sendAdvanced?(places: number): void;
  sendCompleted(wqe: SendWqe): void;
  receiveCompleted(wqe: ReceiveWqe): void;
}

/** Operands of an Atomic, or Immediate Data in `dataHi/dataLo`. Halves of 64-bit numbers, u32. */
class Operands {
  dataHi = 0;
  dataLo = 0;
  maskHi = 0;
  maskLo = 0;
  compareHi = 0;
  compareLo = 0;
  compareMaskHi = 0;
  compareMaskLo = 0;
}

/**
 * What an entry does to our own memory: all there is to it for WORK.LOCAL, and after the response of a Read
 * with local invalidate.
 */
export interface LocalWork {
  /** Does it and returns the status. */
  readonly run: () => WcStatus;
  /** The local work as data, for a queue that is worked off elsewhere. */
  readonly operation: LocalOperation;
  /** Null where the queue is worked off elsewhere, in there. */
  readonly memory: PostedMemory | null;
}

/**
 * One send queue entry. As small as can be, for a queue walks through all of them: fields that few requests
 * need are in a separate object, those of the message that is being sent in the sender, and numbers stand as
 * signed 32 bits, since V8 makes an object of a greater one (`rate` of bench/micro/datapath.ts).
 */
export class SendWqe extends SgeList {
  /** The queue that gets the entry back when its completion has been polled. */
  readonly queue: SendQueue;
  kind: number = WORK.SEND;
  /** RDMAP opcode that goes on the wire. */
  wireOpcode = 0;
  status: WcStatus = 'success';
  signaled = true;
  fence = false;
  immediate: number = IMMEDIATE.NONE;
  /** The Immediate Data after a Write asks for a solicited event. */
  solicited = false;
  #stag = 0;
  #toHi = 0;
  #toLo = 0;
  /** Read and Atomic: the response is whole. */
  responded = false;
  /** The completion has been polled, or there will be none. */
  polled = false;
  wrId: bigint | number = 0;
  opcode: WcOpcode = 'send';
  local: LocalWork | null = null;
  /** MSN of the message, once it has begun. */
  msn = 0;
  /** Read: octets of the response placed. */
  received = 0;
  /** For inline octets, made on first use. */
  #inline: Uint8Array = NO_BYTES;
  #operands: Operands | null = null;

  constructor(queue: SendQueue) {
    super();
    this.queue = queue;
  }

  /** This entry's scatter/gather list. */
  get sges(): SgeList {
    return this;
  }

  /** Remote STag (Write, Read source, Atomic target) or the STag to invalidate (Send). */
  get stag(): number {
    return this.#stag >>> 0;
  }

  set stag(value: number) {
    this.#stag = value | 0;
  }

  /** The halves of the tagged offset there. */
  get toHi(): number {
    return this.#toHi >>> 0;
  }

  set toHi(value: number) {
    this.#toHi = value | 0;
  }

  get toLo(): number {
    return this.#toLo >>> 0;
  }

  set toLo(value: number) {
    this.#toLo = value | 0;
  }

  /** The entry's memory for at least this number of inline octets, the same one again and again. */
  inlineMemory(octets: number): Uint8Array {
    if (this.#inline.length < octets) this.#inline = new Uint8Array(Math.max(octets, LEAST_INLINE));
    return this.#inline;
  }

  /** Made when first asked for. */
  get operands(): Operands {
    return (this.#operands ??= new Operands());
  }

  /** Make the entry blank for its next use. */
  reset(): void {
    this.clear();
    this.status = 'success';
    this.signaled = true;
    this.fence = false;
    this.immediate = IMMEDIATE.NONE;
    this.solicited = false;
    this.#stag = this.#toHi = this.#toLo = 0;
    this.responded = this.polled = false;
    this.local = null;
    this.msn = this.received = 0;
  }
}

/** A Read or an Atomic: requests that are answered, that ORD bounds and that a fence waits for. */
export function isRequest({ kind }: SendWqe): boolean {
  return kind === WORK.READ || kind === WORK.ATOMIC;
}

/**
 * The send queue: a ring with four free-running counters. head: next to post; next: next to send; tail:
 * oldest not completed; freed: oldest slot that may not be posted into yet, because its completion has not
 * been polled (VERBS-092).
 *
 * An entry is some 250 octets, so there are only as many as have ever been in use at once; the slots are made
 * for the first one.
 */
export class SendQueue {
  #depth: number;
  /** Both made for the first post. */
  #slots: Ring<SendWqe> | null = null;
  #free: SendWqe[] | null = null;
  head = 0;
  next = 0;
  tail = 0;
  #freed = 0;

  constructor(depth: number) {
    this.#depth = depth;
  }

  get depth(): number {
    return this.#depth;
  }

  /** Requests posted and not completed. */
  get outstanding(): number {
    return this.head - this.tail;
  }

  /** Requests that may still be posted. */
  get room(): number {
    return this.#depth - (this.head - this.#freed);
  }

  /** The entry of a counter between the oldest that is not freed and `head`. */
  slot(counter: number): SendWqe {
    return this.#slots!.at(counter);
  }

  /** A blank entry to fill, or null when the queue is full. `push` makes it count. */
  peekFree(): SendWqe | null {
    if (this.room <= 0) return null;
    this.#slots ??= new Ring(this.#depth);
    const free = (this.#free ??= []);
    if (free.length === 0) free.push(new SendWqe(this));
    const wqe = free[free.length - 1]!;
    wqe.reset();
    return wqe;
  }

  push(): void {
    this.#slots!.put(this.head, this.#free!.pop()!);
    this.head++;
  }

  /** The entry at `tail` has completed; `silent` if no completion will be polled for it. */
  complete(silent: boolean): void {
    if (silent) this.slot(this.tail).polled = true;
    this.tail++;
    this.#advanceFreed();
  }

  /**
   * Move the entry at a counter to `tail`, so that it completes next; those in front of it move back by one.
   */
  advance(counter: number): void {
    const slots = this.#slots!;
    const moved = slots.at(counter);
    for (let at = counter; at > this.tail; at--) slots.put(at, slots.at(at - 1));
    slots.put(this.tail, moved);
  }

  /** The completion of this entry has been polled: it and every unsignaled one in front are free again. */
  release(wqe: SendWqe): void {
    wqe.polled = true;
    this.#advanceFreed();
  }

  /** Change the depth; false, and nothing changes, if the entries in use do not fit (VERBS-025). */
  resize(depth: number): boolean {
    if (this.head - this.#freed > depth) return false;
    if (this.#slots !== null) {
      this.#slots.resize(depth, this.#freed, this.head);
      const free = this.#free!;
      free.length = Math.min(free.length, depth - (this.head - this.#freed));
    }
    this.#depth = depth;
    return true;
  }

  #advanceFreed(): void {
    while (this.#freed < this.tail) {
      const wqe = this.#slots!.at(this.#freed);
      if (!wqe.polled) return;
      wqe.clear();
      this.#free!.push(this.#slots!.take(this.#freed));
      this.#freed++;
    }
  }
}

/** One receive entry. */
export class ReceiveWqe extends SgeList {
  readonly queue: ReceiveQueue;
  wrId: bigint | number = 0;
  opcode: WcOpcode = 'receive';
  status: WcStatus = 'success';
  byteLength = 0;
  solicited = false;
  /** STag that a Send with Invalidate took away; 0 for none (0 is never an STag). */
  invalidated = 0;
  hasImmediate = false;
  /** A message has taken the entry. */
  taken = false;
  immediateHi = 0;
  immediateLo = 0;
  /** Sender of a datagram. */
  from: PortAddress | undefined = undefined;

  constructor(queue: ReceiveQueue) {
    super();
    this.queue = queue;
  }

  /** This entry's scatter/gather list. */
  get sges(): SgeList {
    return this;
  }

  reset(): void {
    this.clear();
    this.opcode = 'receive';
    this.status = 'success';
    this.byteLength = 0;
    this.solicited = false;
    this.invalidated = 0;
    this.hasImmediate = false;
    this.taken = false;
    this.from = undefined;
  }
}

/** Hands the entries of a shared queue on to where it is worked off. */
export interface QueueForwarder {
  /** Called after each list of posts. */
  posted(): void;
  /** The queue has been destroyed. */
  destroyed(): void;
}

/**
 * Where a stream gets receive entries: its own queue, or one shared by many. Entries are made when they are
 * first needed.
 */
export class ReceiveQueue {
  #depth: number;
  /** Both made for the first post. */
  #free: ReceiveWqe[] | null = null;
  #posted: Ring<ReceiveWqe> | null = null;
  /** Entries in use, posted or not yet polled. */
  #used = 0;
  #head = 0;
  #tail = 0;
  /** Next entry to hand on, where the queue is worked off elsewhere. */
  #handed = 0;
  /** Where a shared queue is worked off elsewhere: what hands its entries on. */
  forwarder: QueueForwarder | null = null;
  /** The queue has failed: a stream that wants an entry is terminated (VERBS-137). */
  failed = false;
  /** Streams that wait for an entry; null while there are none. */
  #waiting: Set<() => void> | null = null;

  constructor(depth: number) {
    this.#depth = depth;
  }

  get depth(): number {
    return this.#depth;
  }

  /** Entries posted and not yet taken by a message. */
  get posted(): number {
    return this.#head - this.#tail;
  }

  /** A blank entry to fill, or null when the queue is full. `push` makes it count. */
  peekFree(): ReceiveWqe | null {
    if (this.#used >= this.#depth) return null;
    this.#posted ??= new Ring(this.#depth);
    const free = (this.#free ??= []);
    if (free.length === 0) free.push(new ReceiveWqe(this));
    const wqe = free[free.length - 1]!;
    wqe.reset();
    return wqe;
  }

  push(): void {
    this.#posted!.put(this.#head, this.#free!.pop()!);
    this.#head++;
    this.#used++;
    if (this.#waiting !== null) this.#wakeAll();
  }

  /** Call `wake` once, when the next entry has been posted. It must not take the entry within the call. */
  whenPosted(wake: () => void): void {
    (this.#waiting ??= new Set()).add(wake);
  }

  /** Take back what {@link whenPosted} was given. */
  stopWaiting(wake: () => void): void {
    this.#waiting?.delete(wake);
  }

  #wakeAll(): void {
    const all = this.#waiting!;
    this.#waiting = null;
    for (const wake of all) wake();
  }

  /** The oldest posted entry, which stays posted; null if there is none. */
  get first(): ReceiveWqe | null {
    return this.#tail === this.#head ? null : this.#posted!.at(this.#tail);
  }

  /** The posted entry that `ahead` others are in front of, which stays posted; null if there is none. */
  peekAhead(ahead: number): ReceiveWqe | null {
    return ahead >= this.posted ? null : this.#posted!.at(this.#tail + ahead);
  }

  /** The next posted entry that has not been handed on; it stays posted. Null if there is none. */
  forwardNext(): ReceiveWqe | null {
    if (this.#handed === this.#head) return null;
    return this.#posted!.at(this.#handed++);
  }

  /**
   * The entry handed on last has not been taken in there, or (all) no entry handed on counts now.
   */
  unforward(all: boolean): void {
    this.#handed = all ? this.#tail : this.#handed - 1;
  }

  /** The oldest posted entry, for the next message; null if there is none. */
  take(): ReceiveWqe | null {
    if (this.#tail === this.#head) return null;
    const wqe = this.#posted!.take(this.#tail++);
    if (this.#handed < this.#tail) this.#handed = this.#tail;
    return wqe;
  }

  /** Change the depth; false, and nothing changes, if the entries in use do not fit (VERBS-025). */
  resize(depth: number): boolean {
    if (this.#used > depth) return false;
    if (this.#posted !== null) {
      this.#posted.resize(depth, this.#tail, this.#head);
      const free = this.#free!;
      free.length = Math.min(free.length, depth - this.#used);
    }
    this.#depth = depth;
    return true;
  }

  /** The completion of this entry has been polled. */
  release(wqe: ReceiveWqe): void {
    wqe.clear();
    this.#free!.push(wqe);
    this.#used--;
  }
}

/**
 * End everything in a send queue: the faulty entry with its status, the others as flushed (VERBS-056,
 * VERBS-057).
 */
export function flushSends(sq: SendQueue, owner: WorkOwner): void {
  while (sq.tail !== sq.head) {
    const wqe = sq.slot(sq.tail);
    if (wqe.status === 'success') wqe.status = 'flushed';
    if (sq.next === sq.tail) sq.next++;
    owner.sendCompleted(wqe);
  }
}

/** End every posted receive as flushed. */
export function flushReceives(rq: ReceiveQueue, owner: WorkOwner): void {
  for (let wqe = rq.take(); wqe !== null; wqe = rq.take()) {
    wqe.status = 'flushed';
    owner.receiveCompleted(wqe);
  }
}
