/**
 * Makes a connection go wrong at a chosen octet: a flipped bit, a cut-off stream, silence, a delay, a reset.
 *
 * Read first: `port.ts`, `middleware.ts`. TCP neither duplicates nor reorders bytes, so there is no such
 * fault.
 */

import type { Scheduler } from '../base/clock.ts';
import { copyOf } from '../base/copy.ts';
import {
  IwarpError,
  checkInteger,
  checkObject,
  checkOneOf,
  checkOptions,
  show,
  type Names,
} from '../base/errors.ts';
import { seededRandom } from '../base/random.ts';
import { HoldingPort } from '../transport/middleware.ts';
import type { PortMiddleware } from '../transport/middleware.ts';
import type { Port, WriteDone } from '../transport/port.ts';

/** Direction as seen from the port with the fault: what it receives, what it sends. */
export type FaultDirection = 'in' | 'out';

/** Kinds of fault. */
export type FaultKind = 'flip' | 'truncate' | 'stall' | 'delay' | 'reset';

const DIRECTIONS: readonly FaultDirection[] = ['in', 'out'];

const KINDS: readonly FaultKind[] = ['flip', 'truncate', 'stall', 'delay', 'reset'];

/**
 * A fault that strikes when byte `at` of the direction's stream (counted from 0) is about to pass.
 *
 * - `flip`: inverts `bit` (0 is the lowest) of that byte.
 * - `truncate`: that byte and all that follow do not pass; the receiver sees a FIN in their place, and the
 *   sender's writes seem to succeed.
 * - `stall`: that byte and all that follow do not pass, nor does the FIN. Inbound, the network's buffers
 *   fill up; outbound, the writes' `done` is not called until the connection is closed.
 * - `delay`: that byte and all that follow pass `milliseconds` later; after that the stream flows again.
 * - `reset`: the connection is reset from this side, after the bytes before it have been passed on.
 */
export type Fault =
  | { readonly kind: 'flip'; readonly direction: FaultDirection; readonly at: number; readonly bit: number }
  | {
      readonly kind: 'delay';
      readonly direction: FaultDirection;
      readonly at: number;
      readonly milliseconds: number;
    }
  | {
      readonly kind: 'truncate' | 'stall' | 'reset';
      readonly direction: FaultDirection;
      readonly at: number;
    };

/** The faults that {@link randomFaults} may draw. */
export interface FaultRange {
  /** Faults strike at bytes below this one. */
  readonly octets: number;
  /** Number of faults. Default 1. */
  readonly count?: number | undefined;
  /** Default: all. */
  readonly kinds?: readonly FaultKind[] | undefined;
  /** Default: both. */
  readonly directions?: readonly FaultDirection[] | undefined;
  /** The longest delay. Default 1000. */
  readonly milliseconds?: number | undefined;
}

const RANGE: Names<FaultRange> = {
  octets: true,
  count: true,
  kinds: true,
  directions: true,
  milliseconds: true,
};

/**
 * Faults drawn from `seed`; the same seed gives the same faults.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const faults = randomFaults(7, { octets: 10_000, count: 3, kinds: ['flip', 'delay'] });
 */
export function randomFaults(seed: number, range: FaultRange): Fault[] {
  checkInteger('seed', seed, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  checkOptions('range', range, RANGE);
  const { count = 1, kinds = KINDS, directions = DIRECTIONS, milliseconds = 1000 } = range;
  const octets = checkInteger('range.octets', range.octets, 1, 0xffff_ffff);
  checkInteger('range.count', count, 0, 0xffff_ffff);
  checkInteger('range.milliseconds', milliseconds, 0, 0x7fff_fffe);
  checkChoice('range.kinds', kinds, KINDS);
  checkChoice('range.directions', directions, DIRECTIONS);
  const random = seededRandom(seed);
  const pick = <T>(from: readonly T[]): T => from[random() % from.length]!;
  const faults: Fault[] = [];
  for (let i = count; i > 0; i--) {
    const kind = pick(kinds);
    const direction = pick(directions);
    const at = random() % octets;
    if (kind === 'flip') faults.push({ kind, direction, at, bit: random() % 8 });
    else if (kind === 'delay')
      faults.push({ kind, direction, at, milliseconds: random() % (1 + milliseconds) });
    else faults.push({ kind, direction, at });
  }
  return faults;
}

function checkChoice<T extends string>(name: string, chosen: readonly T[], all: readonly T[]): void {
  if (!Array.isArray(chosen) || chosen.length === 0)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must be an array that is not empty, got ${show(chosen)}`,
    );
  for (const [i, one] of chosen.entries()) checkOneOf(`${name}[${i}]`, one, all);
}

/**
 * Middleware that applies `faults` to every connection.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const transport = wrapTransport(network, faulty(time, [{ kind: 'flip', direction: 'in', at: 100, bit: 0
 * }]));
 */
export function faulty(scheduler: Scheduler, faults: readonly Fault[]): PortMiddleware {
  if (!Array.isArray(faults))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `faults must be an array, got ${show(faults)}`);
  for (const [i, fault] of faults.entries()) checkFault(`faults[${i}]`, fault as Fault);
  return (port) => new FaultPort(port, scheduler, faults);
}

function checkFault(name: string, fault: Fault): void {
  checkObject(name, fault);
  checkOneOf(`${name}.kind`, fault.kind, KINDS);
  checkOneOf(`${name}.direction`, fault.direction, DIRECTIONS);
  checkInteger(`${name}.at`, fault.at, 0, Number.MAX_SAFE_INTEGER);
  if (fault.kind === 'flip') checkInteger(`${name}.bit`, fault.bit, 0, 7);
  if (fault.kind === 'delay') checkInteger(`${name}.milliseconds`, fault.milliseconds, 0, 0x7fff_ffff);
}

/** One direction's faults in the order in which they strike, and how far the stream has come. */
class Script {
  position = 0;
  readonly #faults: Fault[];

  constructor(faults: readonly Fault[], direction: FaultDirection) {
    // Flips of a byte come before what keeps it from passing; otherwise the order given decides.
    this.#faults = faults
      .filter((fault) => fault.direction === direction)
      .toSorted((a, b) => a.at - b.at || Number(b.kind === 'flip') - Number(a.kind === 'flip'));
  }

  /** How many of the next `octets` bytes pass before a fault other than a flip strikes. */
  passable(octets: number): number {
    const next = this.#faults.find((fault) => fault.kind !== 'flip');
    return next === undefined ? octets : Math.min(octets, next.at - this.position);
  }

  /** The fault that strikes `ahead` bytes from here; it is then used up. */
  strike(ahead: number): Fault | undefined {
    const index = this.#faults.findIndex(
      (fault) => fault.kind !== 'flip' && fault.at === this.position + ahead,
    );
    return index < 0 ? undefined : this.#faults.splice(index, 1)[0];
  }

  /**
   * Moves on by `bytes[start..end)`; answers with the bytes as they come out: a copy where bits are flipped,
   * else undefined.
   */
  pass(bytes: Uint8Array, start: number, end: number): Uint8Array | undefined {
    const stop = this.position + (end - start);
    let copy: Uint8Array | undefined;
    for (;;) {
      const index = this.#faults.findIndex((fault) => fault.kind === 'flip' && fault.at < stop);
      const fault = index < 0 ? undefined : this.#faults.splice(index, 1)[0];
      if (fault?.kind !== 'flip') break;
      copy ??= copyOf(bytes, start, end);
      const at = fault.at - this.position;
      copy[at] = (copy[at] ?? 0) ^ (1 << fault.bit);
    }
    this.position = stop;
    return copy;
  }
}

/** A write on its way, or the end after the writes. */
interface Outgoing {
  chunks: Uint8Array[];
  readonly receipt: Receipt | 'end';
  /** Its first bytes have been given to the port inside and still belong to it. */
  frontLent: boolean;
  /** The rest was cut off: the write is done when the port inside is done with the front. */
  cutOff: boolean;
}

/** A write's callback and, once it is known, what to call it with. */
interface Receipt {
  readonly done: WriteDone;
  ok: boolean | undefined;
}

class FaultPort extends HoldingPort {
  readonly #inbound: Script;
  readonly #outbound: Script;
  #in: 'flowing' | 'delayed' | 'stalled' | 'ended' = 'flowing';
  #out: 'flowing' | 'delayed' | 'stalled' | 'ended' = 'flowing';
  /** How the user, or a fault, has finished our direction. */
  #finished: 'no' | 'end' | 'reset' = 'no';
  readonly #outgoing: Outgoing[] = [];
  /** Every write whose `done` has not been called, in order. */
  readonly #receipts: Receipt[] = [];

  constructor(inner: Port, scheduler: Scheduler, faults: readonly Fault[]) {
    super(inner, scheduler);
    this.#inbound = new Script(faults, 'in');
    this.#outbound = new Script(faults, 'out');
  }

  protected override blocked(): boolean {
    return this.#in === 'delayed' || this.#in === 'stalled';
  }

  /** The port inside may be through with both directions while ours, cut off, still waits for its user. */
  protected override closeBlocked(): boolean {
    return this.#out === 'ended' && this.#finished === 'no';
  }

  protected override deliver(bytes: Uint8Array, start: number, end: number): number {
    const stop = start + this.#inbound.passable(end - start);
    if (stop > start) {
      const changed = this.#inbound.pass(bytes, start, stop);
      if (changed === undefined) this.handler?.onData(bytes, start, stop);
      else this.handler?.onData(changed, 0, changed.length);
      return stop;
    }
    const fault = this.#inbound.strike(0);
    if (fault === undefined) return end;
    return this.#strikeInbound(fault) ? stop : end;
  }

  /** False if what remains is to be dropped. */
  #strikeInbound(fault: Fault): boolean {
    switch (fault.kind) {
      case 'delay':
        this.#in = 'delayed';
        this.scheduler.at(this.scheduler.now() + fault.milliseconds, () => {
          this.#in = 'flowing';
          this.drain();
        });
        return true;
      case 'stall':
        this.#in = 'stalled';
        this.inner.pause();
        return true;
      case 'truncate':
        this.#in = 'ended';
        this.endEarly();
        this.#closeWhenCutOff();
        return false;
      default:
        this.reset();
        return false;
    }
  }

  override resume(): void {
    super.resume();
    if (this.#in === 'stalled') this.inner.pause();
  }

  override reset(): void {
    // The close that follows must get through.
    this.#finished = 'reset';
    if (this.#in === 'stalled' || this.#in === 'delayed') this.#in = 'flowing';
    super.reset();
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    if (this.#in !== 'ended') super.onData(bytes, start, end);
  }

  override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#finished === 'end' && !this.closed)
      throw new IwarpError('ERR_INVALID_STATE', 'write after end');
    const receipt: Receipt = { done, ok: undefined };
    this.#receipts.push(receipt);
    if (this.closed) this.#settleLater(receipt, false);
    // After a reset it is answered from `onClose`.
    if (this.closed || this.#finished === 'reset') return false;
    this.#outgoing.push({ chunks: chunks.slice(0, count), receipt, frontLent: false, cutOff: false });
    this.#pump();
    return false;
  }

  override end(): void {
    if (this.#finished !== 'no') return;
    this.#finished = 'end';
    this.#outgoing.push({ chunks: [], receipt: 'end', frontLent: false, cutOff: false });
    this.#pump();
    this.scheduler.defer(() => {
      this.drain();
      this.#closeWhenCutOff();
    });
  }

  override onClose(error?: Error): void {
    this.#outgoing.length = 0;
    for (const receipt of this.#receipts) receipt.ok ??= false;
    this.#callBack();
    super.onClose(error);
  }

  #pump(): void {
    for (;;) {
      const next = this.#outgoing[0];
      if (next === undefined || this.#out === 'delayed' || this.#out === 'stalled') return;
      if (next.receipt === 'end') {
        this.#outgoing.shift();
        if (this.#out === 'flowing') this.inner.end();
      } else if (this.#out === 'ended') {
        this.#outgoing.shift();
        if (next.frontLent) next.cutOff = true;
        else this.#settleLater(next.receipt, true);
      } else this.#send(next, next.receipt);
    }
  }

  /** Passes on what may pass of a write, and lets the fault after that strike. */
  #send(write: Outgoing, receipt: Receipt): void {
    const octets = write.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const passable = this.#outbound.passable(octets);
    if (passable === octets) {
      this.#outgoing.shift();
      const changed = this.#changed(write.chunks);
      this.inner.write(changed, changed.length, (ok) => this.#settle(receipt, ok));
      return;
    }
    const [front, rest] = split(write.chunks, passable);
    write.chunks = rest;
    const fault = this.#outbound.strike(passable);
    if (passable === 0) {
      this.#strikeOutbound(fault);
      return;
    }
    const changed = this.#changed(front);
    // A reset waits until the bytes before it are with the network, or it would overtake them.
    const resets = fault?.kind === 'reset';
    write.frontLent = true;
    this.inner.write(changed, changed.length, (ok) => {
      write.frontLent = false;
      if (write.cutOff) this.#settle(receipt, ok);
      if (resets && ok) this.reset();
    });
    if (resets) this.#out = 'stalled';
    else this.#strikeOutbound(fault);
  }

  #changed(chunks: readonly Uint8Array[]): Uint8Array[] {
    return chunks.map((chunk) => this.#outbound.pass(chunk, 0, chunk.length) ?? chunk);
  }

  #strikeOutbound(fault: Fault | undefined): void {
    switch (fault?.kind) {
      case 'delay':
        this.#out = 'delayed';
        this.scheduler.at(this.scheduler.now() + fault.milliseconds, () => {
          if (this.#out !== 'delayed') return;
          this.#out = 'flowing';
          this.#pump();
        });
        return;
      case 'truncate':
        this.#out = 'ended';
        this.inner.end();
        return;
      case 'reset':
        this.#out = 'stalled';
        this.reset();
        return;
      default:
        this.#out = 'stalled';
    }
  }

  #settle(receipt: Receipt, ok: boolean): void {
    receipt.ok ??= ok;
    this.#callBack();
    this.#closeWhenCutOff();
  }

  #settleLater(receipt: Receipt, ok: boolean): void {
    this.scheduler.defer(() => this.#settle(receipt, ok));
  }

  /** Calls back whatever is known at the front of the line. */
  #callBack(): void {
    for (;;) {
      const first = this.#receipts[0];
      if (first?.ok === undefined) return;
      this.#receipts.shift();
      first.done(first.ok);
    }
  }

  /**
   * With a FIN made up here after the user's own, the user's connection is over, whatever the true peer does.
   */
  #closeWhenCutOff(): void {
    if (this.#in !== 'ended' || this.#finished !== 'end' || this.#receipts.length > 0) return;
    this.inner.resume();
    this.scheduler.defer(() => this.closeEarly());
  }
}

/** The first `octets` bytes of a chunk list, and the rest of it. */
function split(chunks: readonly Uint8Array[], octets: number): [front: Uint8Array[], rest: Uint8Array[]] {
  const front: Uint8Array[] = [];
  const rest: Uint8Array[] = [];
  let left = octets;
  for (const chunk of chunks) {
    const taken = Math.min(left, chunk.length);
    if (taken > 0) front.push(chunk.subarray(0, taken));
    if (taken < chunk.length) rest.push(chunk.subarray(taken));
    left -= taken;
  }
  return [front, rest];
}
