/**
 * Reads and atomics in both directions: the inbound request queue (IRD entries, RFC 5040 6.1) and the
 * outstanding requests (ORD). Both are bounded by what start-up settled, so a flood of requests costs a fixed
 * number of small entries.
 */
import { Pool } from '../base/pool.ts';
import { addHi, addLo } from '../base/u64.ts';
import { getU32, UNTAGGED_HEADER_OCTETS, type Segment } from '../ddp/wire.ts';
import { ReadBound, type InputClock } from './read-bound.ts';
import type { SendWqe } from '../queues/work.ts';
import { READ_REQUEST, READ_REQUEST_OCTETS } from './wire.ts';

/** One inbound request waiting for its answer. */
export class InboundRequest {
  kind: 'read' | 'atomic' = 'read';
  /** The one after it in the queue. */
  next: InboundRequest | null = null;
  /** Headers as they came, for a Terminate (RDMAP-074). */
  readonly headers: Uint8Array = new Uint8Array(UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS);
  segmentLength = 0;
  sinkStag = 0;
  sinkHi = 0;
  sinkLo = 0;
  sourceStag = 0;
  sourceHi = 0;
  sourceLo = 0;
  size = 0;
  /** Bytes of the response already in segments. */
  sent = 0;
  /** Atomic: what to answer. */
  requestId = 0;
  originalHi = 0;
  originalLo = 0;

  fillRead(segment: Readonly<Segment>): void {
    const { bytes, start, payload } = segment;
    this.kind = 'read';
    this.headers.set(bytes.subarray(start, start + this.headers.length));
    this.segmentLength = segment.length;
    this.sinkStag = getU32(bytes, payload + READ_REQUEST.SINK_STAG);
    this.sinkHi = getU32(bytes, payload + READ_REQUEST.SINK_TO);
    this.sinkLo = getU32(bytes, payload + READ_REQUEST.SINK_TO + 4);
    this.size = getU32(bytes, payload + READ_REQUEST.SIZE);
    this.sourceStag = getU32(bytes, payload + READ_REQUEST.SOURCE_STAG);
    this.sourceHi = getU32(bytes, payload + READ_REQUEST.SOURCE_TO);
    this.sourceLo = getU32(bytes, payload + READ_REQUEST.SOURCE_TO + 4);
    this.sent = 0;
  }

  /** The Read Request header moved on by the bytes already answered (RDMAP-086). */
  advancedHeader(): Uint8Array {
    const header = this.headers.slice(UNTAGGED_HEADER_OCTETS);
    const view = new DataView(header.buffer);
    view.setUint32(READ_REQUEST.SINK_TO, addHi(this.sinkHi, this.sinkLo, this.sent));
    view.setUint32(READ_REQUEST.SINK_TO + 4, addLo(this.sinkLo, this.sent));
    view.setUint32(READ_REQUEST.SIZE, this.size - this.sent);
    view.setUint32(READ_REQUEST.SOURCE_TO, addHi(this.sourceHi, this.sourceLo, this.sent));
    view.setUint32(READ_REQUEST.SOURCE_TO + 4, addLo(this.sourceLo, this.sent));
    return header;
  }

  ddpHeader(): Uint8Array {
    return this.headers.slice(0, UNTAGGED_HEADER_OCTETS);
  }
}

/** Requests of ours that may always be outstanding, whatever they ask for, if the ORD lets them. */
const FREE_REQUESTS = 16;

/**
 * Entries that no connection needs at present; all connections of a thread take from here. More than this
 * many Reads in waiting at a time are rare.
 */
const requests = new Pool({ keep: 1024, make: () => new InboundRequest() });

/**
 * Requests in both directions. Inbound ones wait in arrival order, at most IRD of them; of ours those are
 * kept that are outstanding, in order, where null stands for the Read RTR, which is no work request.
 * One object for both, and without any it holds no memory for them: an idle connection has this.
 */
export class Requests {
  readonly #ird: number;
  /** Null if the program has named the ORD: then that number alone bounds our requests. */
  readonly #clock: InputClock | null;
  #first: InboundRequest | null = null;
  #last: InboundRequest | null = null;
  /** Filled, or to be filled, but not yet in the queue. */
  #blank: InboundRequest | null = null;
  #inbound = 0;
  /** Made for the first request: many a connection only serves its peer. */
  #outstanding: (SendWqe | null)[] | null = null;
  /** What those of ours ask for together. */
  #octetsAsked = 0;
  /** Made with the first request, where there is a clock. */
  #bound: ReadBound | null = null;

  constructor(ird: number, clock: InputClock | null) {
    this.#ird = ird;
    this.#clock = clock;
  }

  // ------------------------------------------------------------------------------------------------- inbound

  /** Inbound requests in waiting. */
  get inbound(): number {
    return this.#inbound;
  }

  /** As many inbound requests as the IRD allows. */
  get full(): boolean {
    return this.#inbound >= this.#ird;
  }

  /** The entry that `pushInbound` will add. */
  get blank(): InboundRequest {
    return (this.#blank ??= requests.acquire());
  }

  pushInbound(): void {
    const request = this.#blank!;
    this.#blank = null;
    if (this.#last === null) this.#first = request;
    else this.#last.next = request;
    this.#last = request;
    this.#inbound++;
  }

  /** Bytes of responses that are still to be put into segments. */
  inboundOctets(): number {
    let octets = 0;
    for (let request = this.#first; request !== null; request = request.next)
      octets += request.size - request.sent;
    return octets;
  }

  /** The oldest inbound request; there has to be one. */
  get firstInbound(): InboundRequest {
    return this.#first!;
  }

  shiftInbound(): void {
    const request = this.#first!;
    this.#first = request.next;
    if (this.#first === null) this.#last = null;
    this.#inbound--;
    request.next = null;
    requests.release(request);
  }

  // --------------------------------------------------------------------------------------------- outstanding

  /** Requests of ours that have not been answered. */
  get outstanding(): number {
    return this.#outstanding === null ? 0 : this.#outstanding.length;
  }

  /**
   * One more that asks for `octets` may go out. With an automatic ORD those beyond the first FREE_REQUESTS
   * wait while all ask for too much together.
   */
  mayAsk(octets: number, ord: number): boolean {
    const { outstanding } = this;
    if (outstanding >= ord) return false; // RDMAP-051
    return (
      outstanding < FREE_REQUESTS || this.#bound === null || this.#octetsAsked + octets <= this.#bound.octets
    );
  }

  pushOutstanding(wqe: SendWqe | null): void {
    (this.#outstanding ??= []).push(wqe);
    if (wqe === null) return;
    this.#octetsAsked += wqe.total;
    if (this.#clock !== null) (this.#bound ??= new ReadBound(this.#clock)).requested(wqe, this.#octetsAsked);
  }

  /** The oldest of ours; undefined if there is none. */
  get firstOutstanding(): SendWqe | null | undefined {
    return this.#outstanding === null ? undefined : this.#outstanding[0];
  }

  shiftOutstanding(): void {
    // At most ORD entries: shifting a short array costs less than a ring's bookkeeping
    // (`bulk/4096/Read, CRC` of bench/micro/datapath.ts).
    const wqe = this.#outstanding!.shift();
    if (!wqe) return;
    this.#octetsAsked -= wqe.total;
    this.#bound?.answered(wqe);
  }

  /** This one has been answered, though others may be in front. */
  removeOutstanding(wqe: SendWqe): void {
    const all = this.#outstanding!;
    all.splice(all.indexOf(wqe), 1);
    this.#octetsAsked -= wqe.total;
    this.#bound?.answered(wqe);
  }

  /** The first of ours for which `found` holds; null if there is none. */
  findOutstanding(found: (wqe: SendWqe) => boolean): SendWqe | null {
    return this.#outstanding?.find((wqe) => wqe !== null && found(wqe)) ?? null;
  }

  /** The request sent with this MSN, if it is outstanding. */
  withMsn(msn: number): SendWqe | null {
    return this.#outstanding?.find((wqe) => wqe !== null && wqe.msn === msn) ?? null;
  }

  clearOutstanding(): void {
    this.#outstanding = null;
    this.#octetsAsked = 0;
  }
}
