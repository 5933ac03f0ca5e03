/**
 * RDMAP and DDP on the sending side: takes work off the send queue and the inbound request queue and fills
 * transmit buffers with FPDUs. RFC 5040 5 (operations), 5.5 (order), 5041 5.2 and 5.3 (segmentation, order),
 * 5040 7.1 (Terminate last).
 *
 * Fairness rule. At message boundaries, responses and the send queue take turns, one message each. A Read
 * Response longer than RESPONSE_QUANTUM lets one untagged message in after each quantum (tagged messages are
 * never mixed, DDP-036); with `interleave` off a message always goes out whole. So a flood of inbound Reads
 * delays a Send by at most one quantum, or one response.
 */
import { FINE, TERM } from '../base/terminate-codes.ts';
import { QN, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { LowerLayer, TransmitBuffer } from '../llp/lower-layer.ts';
import type { RtrKind } from '../llp/startup.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import { IMMEDIATE, isRequest, WORK, type SendWqe, type WcStatus } from '../queues/work.ts';
import { MessageWriter, type MessageConfig } from './message-writer.ts';
import type { InboundRequest, Requests } from './reads.ts';
import { responseFits, sourceFault, writeAtomicResponse, writeResponse } from './response-segments.ts';
import { SendCompletions, type SendPosition } from './send-completions.ts';
import { plainTerminate, putTerminate, terminateOctets, type TerminateInfo } from './terminate.ts';
import { MAX_CONTROL_ULPDU, OPCODE, READ_REQUEST_OCTETS } from './wire.ts';
import {
  messageOctets,
  requestFits,
  SEGMENT,
  turnImmediate,
  writeRequest,
  writeSegment,
} from './work-segments.ts';

/**
 * Bytes of one response before a waiting untagged message may go in between: about as many as one read of
 * the peer takes.
 */
const RESPONSE_QUANTUM = 65_536;

/**
 * Bytes of work that the end of a connection may take one close time-out for: 13 KB/s at the default of 5 s,
 * less than any link of today.
 */
const CLOSE_QUANTUM = 65_536;

/** Bytes that one transmission may have at most, as an estimate for `closeShares`. */
const TRANSMISSION_OCTETS = 262_144;

/** The part of the queue pair that the sender uses. */
type SenderEndpoint = Pick<StreamEndpoint, 'stags' | 'pdHandle' | 'number' | 'sq' | 'owner'>;

interface SenderConfig extends MessageConfig {
  readonly ord: number;
  readonly interleave: boolean;
  readonly endpoint: SenderEndpoint;
  readonly requests: Requests;
}

/** When a Terminate goes: at the next segment boundary, or after the responses already owed (VERBS-069). */
export type TerminateTurn = 'next' | 'after-responses';

export class Sender implements SendPosition {
  readonly endpoint: SenderEndpoint;
  readonly #out: MessageWriter;
  readonly #completions: SendCompletions;
  readonly #interleave: boolean;
  readonly #requests: Requests;
  ord: number;
  /** False while a responder must stay silent (MPA-028). */
  mayTransmit = false;
  /** The RTR message still to be sent; nothing else goes first (ENH-039). */
  rtr: RtrKind | null = null;
  /** Zero-length RDMA Writes to send when nothing else is at hand. */
  #nudges = 0;
  #terminate: TerminateInfo | null = null;
  #terminateWhen: TerminateTurn | 'sent' = 'next';
  #sending: SendWqe | null = null;
  #responding: InboundRequest | null = null;
  #quantum = 0;
  #responseServedLast = false;
  /** First queue position that a local close leaves unsent; null before a close. */
  #lastPost: number | null = null;
  /** Payload bytes of the message being sent that are in segments already. */
  #sent = 0;
  /** A fault met while making a message: the stream says so with this Terminate (RDMAP-072). */
  fault: TerminateInfo | null = null;
  /** FPDUs produced, for counters. */
  fpdus = 0;
  /** The last step has placed bytes directly, and made no FPDU. */
  #placed = false;

  constructor(config: SenderConfig) {
    this.endpoint = config.endpoint;
    this.#out = new MessageWriter(config);
    this.#completions = new SendCompletions(this);
    this.#interleave = config.interleave;
    this.#requests = config.requests;
    this.ord = config.ord;
  }

  /** Take the sizes of segments from the lower layer. */
  measure(sizes: Pick<LowerLayer, 'mulpdu' | 'payloadLimit'>): void {
    this.#out.measure(sizes);
  }

  get terminateSent(): boolean {
    return this.#terminateWhen === 'sent';
  }

  get placedReads(): boolean {
    return this.#out.placedReads;
  }

  /** Bytes of messages for the peer's memory or its ULP. */
  get payloadOctets(): number {
    return this.#out.payloadOctets;
  }

  /**
   * Work that a graceful close has to wait for, or that a peer's FIN cuts off: unsent, unanswered or being
   * answered.
   */
  get unfinished(): boolean {
    const unsent = this.rtr !== null || this.#sending !== null || this.endpoint.sq.next < this.#workEnd();
    return unsent || this.#requests.inbound > 0 || this.#requests.outstanding > 0;
  }

  /** A response to a request of ours is due. */
  get awaitsResponse(): boolean {
    return this.#requests.outstanding > 0;
  }

  /**
   * How many close time-outs the end of the stream may take at the most, with this still to be done: one, and
   * one more for each request of either side that waits for its answer and for each CLOSE_QUANTUM of bytes.
   * Asked once, when the end begins: later requests of the peer have no part in it.
   */
  closeShares(left: 'all-work' | 'responses' | 'nothing'): number {
    const { sq } = this.endpoint;
    let requests = 0;
    let octets = this.#completions.transmissions * TRANSMISSION_OCTETS;
    if (left !== 'nothing') {
      requests = this.#requests.inbound;
      octets += this.#requests.inboundOctets();
      if (left === 'responses') octets += this.#sending?.total ?? 0;
    }
    const end = left === 'all-work' ? this.#workEnd() : sq.tail;
    for (let at = sq.tail; at < end; at++) {
      const wqe = sq.slot(at);
      if (isRequest(wqe)) requests++;
      octets += wqe.total;
    }
    return 1 + requests + Math.ceil(octets / CLOSE_QUANTUM);
  }

  /**
   * Nothing to send and nothing to do. False where something waits, also if it may not go yet: `fill` knows.
   */
  get idle(): boolean {
    return (
      this.#sending === null &&
      this.#responding === null &&
      this.rtr === null &&
      this.#terminate === null &&
      this.fault === null &&
      this.#nudges === 0 &&
      this.#requests.inbound === 0 &&
      this.endpoint.sq.next >= this.#workEnd()
    );
  }

  /**
   * A local close has begun: requests posted after this call are not sent but flushed at the end
   * (DDP-059, VERBS-058).
   */
  refuseLaterPosts(): void {
    this.#lastPost = this.endpoint.sq.head;
  }

  /**
   * The queue position after the last entry that may be sent. No getter: V8 asks its runtime for a private
   * one at each use, compiled or not.
   */
  #workEnd(): number {
    const { head } = this.endpoint.sq;
    return this.#lastPost === null ? head : Math.min(head, this.#lastPost);
  }

  /**
   * Put the Terminate at the head of everything, at the next segment boundary; or after the responses already
   * owed (VERBS-069).
   */
  requestTerminate(info: TerminateInfo, when: TerminateTurn): void {
    if (this.#terminate !== null) return; // the first error wins (RDMAP-075)
    this.#terminate = info;
    this.#terminateWhen = when;
  }

  nudge(): void {
    this.#nudges++;
  }

  /** Fill `buffer` with as many FPDUs as fit and are ready. */
  fill(buffer: TransmitBuffer): void {
    if (!this.mayTransmit) {
      // A silent responder can still work on its own memory: that sends nothing (VERBS-104).
      if (this.#terminate === null) this.#nextWork();
      return;
    }
    for (;;) {
      while (this.fault === null && this.#terminateWhen !== 'sent' && this.#step(buffer)) {
        if (this.#placed) this.#placedDirectly();
        else this.fpdus++;
      }
      if (this.fault === null || this.#terminate === null) return;
      // RDMAP-075: a Terminate is on its way already. A response that can no longer be made only ends the
      // wait for responses.
      this.fault = null;
      if (this.#terminateWhen === 'after-responses') this.#terminateWhen = 'next';
    }
  }

  /** A Write that is all in the peer's memory is done as soon as the work in front of it. */
  #placedDirectly(): void {
    this.#placed = false;
    if (this.#sending === null && this.#completions.allHandedOut) this.#completions.doneBetweenWrites();
  }

  /** One FPDU, or part of a Write placed directly; or false: no room or nothing ready. */
  #step(buffer: TransmitBuffer): boolean {
    if (this.#terminate !== null) return this.#stepTerminating(buffer);
    if (this.rtr !== null) return this.#sendRtr(buffer);
    if (this.#sending !== null) return this.#sendSegment(buffer, this.#sending);
    if (this.#responding !== null) {
      if (this.#interleave && this.#quantum >= RESPONSE_QUANTUM) {
        const untagged = this.#nextWork();
        if (this.fault !== null) return false;
        if (untagged !== null && untagged.kind !== WORK.WRITE) return this.#startWork(buffer, untagged);
      }
      return this.#respond(buffer, this.#responding);
    }
    const responses = this.#requests.inbound > 0;
    const work = this.#nextWork();
    if (responses && (work === null || !this.#responseServedLast)) return this.#startResponse(buffer);
    if (work !== null) return this.#startWork(buffer, work);
    if (this.#nudges > 0) return this.#sendNudge(buffer);
    return false;
  }

  #stepTerminating(buffer: TransmitBuffer): boolean {
    if (this.#terminateWhen === 'after-responses' && this.#requests.inbound > 0) {
      // ENH-039: also where the peer has not waited for it
      if (this.rtr !== null) return this.#sendRtr(buffer);
      // DDP-036: a Write that has begun is finished before the responses, whose segments may not stand
      // between its own.
      if (this.#sending?.kind === WORK.WRITE) return this.#sendSegment(buffer, this.#sending);
      if (this.#responding !== null) return this.#respond(buffer, this.#responding);
      return this.#startResponse(buffer);
    }
    return this.#sendTerminate(buffer);
  }

  // ------------------------------------------------------------------------------------------- choosing work

  /**
   * The entry that may be started now, or null. Local operations in front of it send nothing (VERBS-104) and
   * take effect before anything after them (VERBS-100): they are done here.
   */
  #nextWork(): SendWqe | null {
    const { sq } = this.endpoint;
    const requests = this.#requests;
    const end = this.#workEnd();
    while (this.fault === null && sq.next < end) {
      const wqe = sq.slot(sq.next);
      if (wqe.kind !== WORK.LOCAL) {
        // VERBS-098: a fenced entry, and all after it, waits for the reads in front.
        if (wqe.fence && requests.outstanding > 0) return null;
        if (!isRequest(wqe)) return wqe;
        return this.ord === 0 || requests.mayAsk(wqe.total, this.ord) ? wqe : null; // VERBS-072
      }
      // VERBS-099: a fenced one waits for all the work in front; local work just done in front has completed
      // and is not in its way.
      if (wqe.fence && (requests.outstanding > 0 || !this.#doneInFront())) return null;
      sq.next++;
      const status = wqe.local!.run();
      if (status !== 'success') this.#failLocally(wqe, status);
      else if (this.#completions.allHandedOut) this.#completions.doneBetweenWrites();
    }
    return null;
  }

  /** All work in front of `next` is done: it has completed, or it is local and waits only for a pin to go. */
  #doneInFront(): boolean {
    const { sq } = this.endpoint;
    for (let at = sq.tail; at < sq.next; at++) if (sq.slot(at).kind !== WORK.LOCAL) return false;
    return true;
  }

  /**
   * VERBS-049, RDMAP-072: the entry completes with its status, the stream with a Terminate without headers.
   */
  #failLocally(wqe: SendWqe, status: WcStatus): void {
    wqe.status = status;
    this.fault = plainTerminate(TERM.LOCAL_CATASTROPHIC);
  }

  // ---------------------------------------------------------------------------------------------- send queue

  #startWork(buffer: TransmitBuffer, wqe: SendWqe): boolean {
    return isRequest(wqe) ? this.#startRequest(buffer, wqe) : this.#sendSegment(buffer, wqe);
  }

  #startRequest(buffer: TransmitBuffer, wqe: SendWqe): boolean {
    if (!requestFits(this.#out, buffer, wqe)) return false;
    this.endpoint.sq.next++;
    if (this.ord === 0) {
      this.#failLocally(wqe, 'zero-read-resources'); // VERBS-073
      return false;
    }
    if (!writeRequest(this.#out, buffer, wqe)) return this.#protectionFault(wqe);
    this.#workServed();
    this.#requests.pushOutstanding(wqe);
    return true;
  }

  #protectionFault(wqe: SendWqe): false {
    this.#sending = null;
    this.#failLocally(wqe, 'local-protection-error');
    return false;
  }

  /** One segment of a Send, Immediate or Write; nothing but a Terminate comes between those of a message. */
  #sendSegment(buffer: TransmitBuffer, wqe: SendWqe): boolean {
    const begun = this.#sending !== null;
    const sent = begun ? this.#sent : 0;
    const payload = writeSegment(this.#out, buffer, wqe, sent, begun);
    if (payload === SEGMENT.NO_ROOM) return false;
    this.#placed = wqe.kind === WORK.WRITE && payload > 0 && this.#out.placed === sent + payload;
    if (!begun) this.endpoint.sq.next++;
    if (payload === SEGMENT.UNUSABLE) return this.#protectionFault(wqe);
    if (sent + payload < messageOctets(wqe)) {
      this.#sending = wqe;
      this.#sent = sent + payload;
    } else if (wqe.immediate === IMMEDIATE.AFTER) {
      turnImmediate(this.#out, wqe);
      this.#sending = wqe;
      this.#sent = 0;
    } else {
      this.#sending = null;
      this.#workServed();
    }
    return true;
  }

  /** A message of the send queue has gone out whole: responses are next. */
  #workServed(): void {
    this.#responseServedLast = false;
    this.#quantum = 0;
  }

  // ----------------------------------------------------------------------------------------------- responses

  #startResponse(buffer: TransmitBuffer): boolean {
    const request = this.#requests.firstInbound;
    if (request.kind === 'atomic') return this.#sendAtomicResponse(buffer, request);
    this.#quantum = 0;
    return this.#respond(buffer, request);
  }

  /** One segment of a Read Response. */
  #respond(buffer: TransmitBuffer, request: InboundRequest): boolean {
    if (!responseFits(this.#out, buffer, request)) return false;
    const fault = sourceFault(this.#out, this.endpoint, request);
    if (fault !== null) {
      this.fault = fault;
      return false;
    }
    this.#quantum += writeResponse(this.#out, buffer, request, this.endpoint.stags);
    if (request.sent < request.size) this.#responding = request;
    else this.#finishResponse();
    return true;
  }

  #finishResponse(): void {
    this.#responding = null;
    this.#responseServedLast = true;
    this.#requests.shiftInbound();
  }

  #sendAtomicResponse(buffer: TransmitBuffer, request: InboundRequest): boolean {
    if (!writeAtomicResponse(this.#out, buffer, request)) return false;
    this.#finishResponse();
    return true;
  }

  // ----------------------------------------------------------------------------------- RTR, nudge, Terminate

  /** The ready-to-receive message, first of all FPDUs (ENH-038, ENH-039), each of zero length. */
  #sendRtr(buffer: TransmitBuffer): boolean {
    if (!this.#out.writer.fits(buffer, MAX_CONTROL_ULPDU)) return false;
    const { writer } = this.#out;
    if (this.rtr === 'write') {
      this.#out.putEmptyWrite(buffer);
    } else if (this.rtr === 'read') {
      const at = this.#out.beginMessage(buffer, OPCODE.READ_REQUEST, QN.READ_REQUEST, READ_REQUEST_OCTETS);
      writer.target.bytes.fill(0, at, at + READ_REQUEST_OCTETS);
      writer.finish(buffer, UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS);
      this.#requests.pushOutstanding(null); // ENH-044
    } else {
      this.#out.beginMessage(buffer, OPCODE.SEND, QN.SEND, 0);
      writer.finish(buffer, UNTAGGED_HEADER_OCTETS);
    }
    this.rtr = null;
    return true;
  }

  #sendNudge(buffer: TransmitBuffer): boolean {
    if (!this.#out.writer.fits(buffer, TAGGED_HEADER_OCTETS)) return false;
    this.#nudges--;
    this.#out.putEmptyWrite(buffer);
    return true;
  }

  /** RDMAP-076, RDMAP-077: one per stream, MSN 1, and nothing after it. */
  #sendTerminate(buffer: TransmitBuffer): boolean {
    const info = this.#terminate!;
    const octets = UNTAGGED_HEADER_OCTETS + terminateOctets(info);
    if (!this.#out.writer.fits(buffer, octets)) return false;
    const { writer } = this.#out;
    const at = this.#out.beginMessage(
      buffer,
      OPCODE.TERMINATE,
      QN.TERMINATE,
      octets - UNTAGGED_HEADER_OCTETS,
    );
    putTerminate(writer.target.bytes, at, info);
    writer.finish(buffer, octets);
    this.#terminateWhen = 'sent';
    return true;
  }

  // ---------------------------------------------------------------------------------------------- completion

  /** The FPDUs of the last `fill` go to the port. */
  handedOut(): void {
    this.#completions.handedOut();
  }

  /** The oldest transmission is done. */
  transmissionDone(): void {
    this.#completions.transmissionDone();
  }

  /** The queue position after the last entry that is all in segments. */
  segmented(): number {
    const { next } = this.endpoint.sq;
    return this.#sending === null ? next : next - 1;
  }

  /** Complete, in posting order (RDMAP-094), entries that the port has taken and that have been answered. */
  sweep(): void {
    this.#completions.sweep();
  }

  /**
   * End everything still in the queue: the faulty entry with its status, the others as flushed (VERBS-056,
   * VERBS-057).
   */
  flush(): void {
    this.#sending = null;
    this.#requests.clearOutstanding();
    this.#completions.flush();
  }

  /** The Read or Atomic Request sent with this MSN, if it is unanswered. */
  requestWithMsn(msn: number): SendWqe | null {
    return this.#requests.withMsn(msn);
  }

  /** FINE, or why the send queue may not simply be closed now. */
  closeVerdict(): number {
    return this.unfinished ? TERM.RDMAP_STREAM_CATASTROPHIC : FINE;
  }
}
