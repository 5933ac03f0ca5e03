/**
 * The receiving half of a stream over plain TCP: octets of the network into posted receives.
 *
 * A posted receive of one element is the memory that the system reads into, so that nothing is copied here.
 * The memory for a read is chosen when the one before it ends. So it takes a second receive, posted before
 * the first one is filled; else octets come in memory of the port's, and are copied.
 */
import { copyBytes, copyOf, putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { ACCESS, type MemoryLease, type StagEntry } from '../ddp/stag-table.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import type { ReceiveWqe, SgeList } from '../queues/work.ts';
import type { StreamHost } from '../stream/driven.ts';
import { PREFIX_OCTETS, type Framing } from './framing.ts';

/**
 * A message of known length is read straight into its receive if so much of it is left: below that the copy
 * costs less than a separate read (bench/papers/qpip.ts).
 */
const DIRECT_OCTETS = 16_384;
/** Up to here octets are copied one by one. */
const SHORT = 32;

/** The bytes that have come and have no receive yet. */
interface Held {
  readonly bytes: Uint8Array;
  at: number;
}

export class ReceiveHalf implements MemoryLease {
  readonly #endpoint: StreamEndpoint;
  readonly #framing: Framing;
  readonly #host: StreamHost;
  /** At most what one read has brought: delivery pauses while there is something here. */
  readonly #held: Held[] = [];
  /** Memory of a receive that the port reads into next, and its region. */
  #target: Uint8Array | null = null;
  #lent: StagEntry | null = null;
  /** A message of known length, its receive and how much of it is here. */
  #open: ReceiveWqe | null = null;
  #expected = 0;
  #filled = 0;
  /** The length in front of a message, and how many of its octets are here. */
  #prefix = 0;
  #prefixOctets = 0;
  /** The first fault, which ends the stream. */
  fault: IwarpError | null = null;
  messages = 0;
  payloadOctets = 0;

  constructor(endpoint: StreamEndpoint, framing: Framing, host: StreamHost) {
    this.#endpoint = endpoint;
    this.#framing = framing;
    this.#host = host;
  }

  /** Octets wait here for a receive. */
  get holds(): boolean {
    return this.#held.length > 0;
  }

  /** What arrives now would find no receive. */
  get starved(): boolean {
    return this.holds || (this.#open === null && this.#endpoint.rq.posted === 0);
  }

  /** The peer's direction would end within a message here. */
  get withinMessage(): boolean {
    return this.#prefixOctets > 0 || this.#open !== null;
  }

  // ------------------------------------------------------------------------------------------------- arrival

  handleBytes(bytes: Uint8Array, start: number, end: number): void {
    if (this.fault !== null) return;
    if (bytes === this.#target) {
      // The lease stays: the next target is mostly in the same region.
      this.#target = null;
      this.#placed(end - start);
      return;
    }
    const at = this.holds ? start : this.#consume(bytes, start, end);
    if (at < end && this.fault === null) this.#held.push({ bytes: copyOf(bytes, at, end), at: 0 });
  }

  /** Receives have been posted. */
  consumeHeld(): void {
    while (this.#held.length > 0 && this.fault === null) {
      const first = this.#held[0]!;
      first.at = this.#consume(first.bytes, first.at, first.bytes.length);
      if (first.at < first.bytes.length) return;
      this.#held.shift();
    }
  }

  /** The port has read `octets` into the target. */
  #placed(octets: number): void {
    if (this.#framing === 'length') {
      this.#filled += octets;
      this.payloadOctets += octets;
      if (this.#filled === this.#expected) this.#completeOpen();
      return;
    }
    const wqe = this.#take()!;
    this.payloadOctets += octets;
    this.#complete(wqe, octets);
  }

  /** Returns the index after the last octet that has found a receive. */
  #consume(bytes: Uint8Array, start: number, end: number): number {
    return this.#framing === 'length'
      ? this.#consumeMessages(bytes, start, end)
      : this.#consumeOctets(bytes, start, end);
  }

  #consumeOctets(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    while (at < end) {
      const wqe = this.#take();
      if (wqe === null) break;
      const octets = Math.min(wqe.total, end - at);
      if (!this.#place(wqe, 0, bytes, at, octets)) break;
      at += octets;
      this.#complete(wqe, octets);
    }
    return at;
  }

  #consumeMessages(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    while (at < end || (this.#open === null && this.#prefixOctets === PREFIX_OCTETS)) {
      if (this.#open === null) {
        if (this.#endpoint.rq.posted === 0) break;
        for (; at < end && this.#prefixOctets < PREFIX_OCTETS; this.#prefixOctets++)
          this.#prefix = ((this.#prefix << 8) | bytes[at++]!) >>> 0;
        if (this.#prefixOctets < PREFIX_OCTETS || !this.#begin(this.#prefix)) break;
        if (this.#expected > 0) continue;
      }
      const octets = Math.min(this.#expected - this.#filled, end - at);
      if (!this.#place(this.#open!, this.#filled, bytes, at, octets)) break;
      at += octets;
      this.#filled += octets;
      if (this.#filled < this.#expected) break;
      this.#completeOpen();
    }
    return at;
  }

  /** A message of this length takes a receive; false if there is none, or it is too short. */
  #begin(length: number): boolean {
    const wqe = this.#take();
    if (wqe === null) return false;
    if (length > wqe.total) {
      wqe.status = 'local-length-error';
      const { total } = wqe;
      this.#endpoint.owner.receiveCompleted(wqe);
      this.fault = new IwarpError(
        'ERR_TOO_LARGE',
        `the peer announced a message of ${length} bytes, the receive for it has ${total}`,
      );
      return false;
    }
    this.#open = wqe;
    this.#expected = length;
    this.#filled = 0;
    return true;
  }

  #completeOpen(): void {
    const wqe = this.#open!;
    this.#open = null;
    this.#prefix = this.#prefixOctets = 0;
    this.#complete(wqe, this.#expected);
  }

  #take(): ReceiveWqe | null {
    const { rq, owner } = this.#endpoint;
    const wqe = rq.take();
    if (wqe === null) return null;
    wqe.taken = true;
    owner.receiveTaken();
    return wqe;
  }

  #complete(wqe: ReceiveWqe, octets: number): void {
    wqe.byteLength = octets;
    this.messages++;
    this.#endpoint.owner.receiveCompleted(wqe);
  }

  /** Copy octets into a receive; false, and the stream ends, if its memory may no longer be used. */
  #place(wqe: ReceiveWqe, position: number, bytes: Uint8Array, from: number, octets: number): boolean {
    if (!wqe.usable(ACCESS.LOCAL_WRITE)) {
      wqe.status = 'local-protection-error';
      if (this.#open === wqe) this.#open = null;
      this.#endpoint.owner.receiveCompleted(wqe);
      this.fault = new IwarpError('ERR_INVALID_REGION', 'the memory of a receive can no longer be used');
      return false;
    }
    scatter(wqe, position, bytes, from, octets);
    this.payloadOctets += octets;
    return true;
  }

  // ------------------------------------------------------------------------------------------------- targets

  /** Where the system had best put the next octets. Asked for after each arrival. */
  readTarget(): Uint8Array | undefined {
    this.#target = this.#nextTarget();
    if (this.#target === null) this.#takeBack();
    return this.#target ?? undefined;
  }

  #nextTarget(): Uint8Array | null {
    if (this.holds || this.fault !== null) return null;
    const wqe =
      this.#framing === 'length' ? this.#open : this.#endpoint.rqShared ? null : this.#endpoint.rq.first;
    if (wqe === null || wqe.count !== 1 || !wqe.usable(ACCESS.LOCAL_WRITE)) return null;
    const from = this.#framing === 'length' ? this.#filled : 0;
    const octets = this.#framing === 'length' ? this.#expected - from : wqe.total;
    if (octets < (this.#framing === 'length' ? DIRECT_OCTETS : 1)) return null;
    const { bytes, offset, entry } = wqe.first;
    if (entry === null) return null;
    if (entry !== this.#lent) {
      this.#takeBack();
      (entry.leases ??= new Set()).add(this);
      this.#lent = entry;
    }
    return viewOf(bytes, offset + from, octets);
  }

  /** The region that the port reads into has ended. */
  revoke(): void {
    this.#target = this.#lent = null;
    this.#host.retarget();
  }

  #takeBack(): void {
    this.#lent?.leases?.delete(this);
    this.#target = this.#lent = null;
  }

  // ------------------------------------------------------------------------------------------------- the end

  /** No octet follows: end the open receive and all posted ones, except those of a shared queue. */
  flush(): void {
    this.#takeBack();
    this.#held.length = 0;
    const { rq, rqShared, owner } = this.#endpoint;
    const open = this.#open;
    this.#open = null;
    if (open !== null) {
      open.status = 'flushed';
      owner.receiveCompleted(open);
    }
    if (rqShared) return;
    for (let wqe = rq.take(); wqe !== null; wqe = rq.take()) {
      wqe.status = 'flushed';
      owner.receiveCompleted(wqe);
    }
  }
}

/** `bytes[from..from + octets)`; the array itself if that is all of it. */
export function viewOf(bytes: Uint8Array, from: number, octets: number): Uint8Array {
  return from === 0 && octets === bytes.length ? bytes : bytes.subarray(from, from + octets);
}

/** Copy `bytes[from..from + octets)` into the list from `position` on; it has room for them. */
function scatter(list: SgeList, position: number, bytes: Uint8Array, from: number, octets: number): void {
  let skip = position;
  let at = from;
  let left = octets;
  for (let i = 0; left > 0; i++) {
    const element = list.at(i);
    if (skip >= element.length) {
      skip -= element.length;
      continue;
    }
    const take = Math.min(element.length - skip, left);
    if (take <= SHORT) copyBytes(bytes, at, element.bytes, element.offset + skip, take);
    else putBytes(bytes.subarray(at, at + take), element.bytes, element.offset + skip);
    at += take;
    left -= take;
    skip = 0;
  }
}
