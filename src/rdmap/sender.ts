/**
 * RDMAP and DDP on the sending side: takes work off the send queue and the inbound request queue and fills stages with FPDUs.
 * RFC 5040 5 (operations), 5.5 (order), 5041 5.2 and 5.3 (segmentation, order), 5040 7.1 (Terminate last).
 *
 * Fairness rule. At message boundaries, responses and the send queue take turns, one message each. A Read Response longer than
 * RESPONSE_QUANTUM lets one untagged message in after each quantum (tagged messages are never mixed, DDP-036); with `interleave` off a
 * message always goes out whole. So a flood of inbound Reads delays a Send by at most one quantum, or one response.
 */
import { copyOctets } from '../base/copy.ts';
import { FINE, TERM } from '../base/terminate-codes.ts';
import { addHi, addLo } from '../base/u64.ts';
import { WIDE_ZERO } from '../base/wide.ts';
import { ACCESS, FAULT } from '../ddp/stag-table.ts';
import { QN, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { Framer } from '../mpa/framer.ts';
import type { RtrKind } from '../mpa/policy.ts';
import type { Stage } from '../mpa/stage.ts';
import { putAtomicRequest, putAtomicResponse, putReadRequest } from './bodies.ts';
import { READ_FAULT_CODES } from './faults.ts';
import { gather, octetsBefore, pieceWith } from './gather.ts';
import { MessageWriter } from './message-writer.ts';
import type { InboundRequest, Requests } from './reads.ts';
import { LEND_FROM, LENT_WRITE_OCTETS } from './stages.ts';
import type { StreamEndpoint } from './stream-types.ts';
import { plainTerminate, putTerminate, terminateForRead, terminateOctets, type TerminateInfo } from './terminate.ts';
import { ATOMIC_REQUEST_OCTETS, ATOMIC_RESPONSE_OCTETS, IMMEDIATE_OCTETS, MAX_CONTROL_ULPDU, OPCODE, READ_REQUEST_OCTETS } from './wire.ts';
import { IMMEDIATE, isRequest, WORK, type SendWqe, type WcStatus } from './work.ts';

/** Octets of one response before a waiting untagged message may go in between: about what one read of the peer takes. */
const RESPONSE_QUANTUM = 65_536;

/** Octets of work that the end of a connection may take one close time-out for: 13 KB/s at the default of 5 s, less than any link of today. */
const CLOSE_QUANTUM = 65_536;

/** What the sender needs of the queue pair. */
type SenderEndpoint = Pick<StreamEndpoint, 'stags' | 'pdHandle' | 'number' | 'sq' | 'owner'>;

interface SenderConfig {
  readonly framer: Framer;
  readonly mulpdu: number;
  readonly version: 0 | 1;
  readonly ord: number;
  readonly interleave: boolean;
  readonly endpoint: SenderEndpoint;
  readonly requests: Requests;
  /** Counts of messages, see `counters.ts`. */
  readonly messages: number[];
}

export class Sender extends MessageWriter {
  readonly #endpoint: SenderEndpoint;
  readonly #mulpdu: number;
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
  #terminateAfterResponses = false;
  #terminateSent = false;
  #sending: SendWqe | null = null;
  #responding: InboundRequest | null = null;
  #quantum = 0;
  #responseServedLast = false;
  /** Queue position after which nothing is sent any more; null while there is no such. */
  #lastPost: number | null = null;
  /** Payload octets of the message being sent that are in segments already. */
  #sent = 0;
  /** Writes that the port has and has not confirmed, two at most; and the stream position after the last of them. */
  #handedOut = 0;
  #handedPosition: number = WIDE_ZERO;
  /** Queue positions after the last entry that is done with the last write that was confirmed, and with each of those two. */
  #confirmed = 0;
  #firstEnd = 0;
  #secondEnd = 0;
  /** A fault met while making a message: the stream says so with this Terminate (RDMAP-072). */
  fault: TerminateInfo | null = null;
  /** FPDUs produced, for counters. */
  fpdus = 0;

  constructor(config: SenderConfig) {
    super(config.framer, config.version, config.messages);
    this.#endpoint = config.endpoint;
    this.#mulpdu = config.mulpdu;
    this.#interleave = config.interleave;
    this.#requests = config.requests;
    this.ord = config.ord;
  }

  get terminateSent(): boolean {
    return this.#terminateSent;
  }

  /** Work that a graceful close has to wait for, or that a peer's FIN cuts off: unsent, unanswered or being answered. */
  get unfinished(): boolean {
    const unsent = this.rtr !== null || this.#sending !== null || this.#endpoint.sq.next < this.#workEnd();
    return unsent || this.#requests.inbound > 0 || this.#requests.outstanding > 0;
  }

  /** A response to a request of ours is due. */
  get awaitsResponse(): boolean {
    return this.#requests.outstanding > 0;
  }

  /**
   * How many close time-outs the end of the stream may take at the most, with this still to be done: one, and one more for each request of
   * either side that waits for its answer and for each CLOSE_QUANTUM of octets. Asked once, when the end begins: what the peer wants after
   * that has no part in it.
   */
  closeShares(left: 'all-work' | 'responses' | 'nothing'): number {
    const { sq } = this.#endpoint;
    let requests = 0;
    let octets = this.#handedOut * LENT_WRITE_OCTETS;
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

  /** Nothing to send and nothing to do. False where something waits, also if it may not go yet: `fill` knows. */
  get idle(): boolean {
    return (
      this.#sending === null && this.#responding === null && this.rtr === null && this.#terminate === null && this.fault === null &&
      this.#nudges === 0 && this.#requests.inbound === 0 && this.#endpoint.sq.next >= this.#workEnd()
    );
  }

  /** A local close has begun: what is posted from now on is not sent any more, but flushed at the end (DDP-059, VERBS-058). */
  refuseLaterPosts(): void {
    this.#lastPost = this.#endpoint.sq.head;
  }

  /** The queue position after the last entry that may be sent. No getter: V8 asks its runtime for a private one at each use, compiled or not. */
  #workEnd(): number {
    const { head } = this.#endpoint.sq;
    return this.#lastPost === null ? head : Math.min(head, this.#lastPost);
  }

  /** Put the Terminate at the head of everything, at the next segment boundary; or after the responses already owed (VERBS-069). */
  requestTerminate(info: TerminateInfo, afterResponses: boolean): void {
    if (this.#terminate !== null) return; // the first error wins (RDMAP-075)
    this.#terminate = info;
    this.#terminateAfterResponses = afterResponses;
  }

  nudge(): void {
    this.#nudges++;
  }

  /** Fill `stage` with as many FPDUs as fit and are ready. */
  fill(stage: Stage): void {
    if (!this.mayTransmit) {
      // A silent responder can still work on its own memory: that sends nothing (VERBS-104).
      if (this.#terminate === null) this.#nextWork();
      return;
    }
    for (;;) {
      while (this.fault === null && !this.#terminateSent && this.#step(stage)) this.fpdus++;
      if (this.fault === null || this.#terminate === null) return;
      // RDMAP-075: a Terminate is on its way already. A response that cannot be made any more only ends the wait for responses.
      this.fault = null;
      this.#terminateAfterResponses = false;
    }
  }

  /** One FPDU, or false: no room or nothing ready. */
  #step(stage: Stage): boolean {
    if (this.#terminate !== null) return this.#stepTerminating(stage);
    if (this.rtr !== null) return this.#sendRtr(stage);
    if (this.#sending !== null) return this.#sendSegment(stage, this.#sending);
    if (this.#responding !== null) {
      if (this.#interleave && this.#quantum >= RESPONSE_QUANTUM) {
        const untagged = this.#nextWork();
        if (this.fault !== null) return false;
        if (untagged !== null && untagged.kind !== WORK.WRITE) return this.#startWork(stage, untagged);
      }
      return this.#respond(stage, this.#responding);
    }
    const responses = this.#requests.inbound > 0;
    const work = this.#nextWork();
    if (responses && (work === null || !this.#responseServedLast)) return this.#startResponse(stage);
    if (work !== null) return this.#startWork(stage, work);
    if (this.#nudges > 0) return this.#sendNudge(stage);
    return false;
  }

  #stepTerminating(stage: Stage): boolean {
    if (this.#terminateAfterResponses && this.#requests.inbound > 0) {
      if (this.rtr !== null) return this.#sendRtr(stage); // ENH-039: also where the peer has not waited for it
      // DDP-036: a Write that has begun is finished before the responses, whose segments may not stand between its own.
      if (this.#sending?.kind === WORK.WRITE) return this.#sendSegment(stage, this.#sending);
      if (this.#responding !== null) return this.#respond(stage, this.#responding);
      return this.#startResponse(stage);
    }
    return this.#sendTerminate(stage);
  }

  // ------------------------------------------------------------------------------------------------- choosing work

  /**
   * The entry that may be started now, or null. Local operations in front of it send nothing (VERBS-104) and take effect before anything after them
   * (VERBS-100): they are done here.
   */
  #nextWork(): SendWqe | null {
    const { sq } = this.#endpoint;
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
      // VERBS-099: a fenced one waits for all the work in front; local work just done in front has completed and is not in its way.
      if (wqe.fence && (requests.outstanding > 0 || sq.next !== sq.tail)) return null;
      sq.next++;
      const status = wqe.local!.run();
      if (status !== 'success') this.#failLocally(wqe, status);
      else if (this.framer.position === this.#handedPosition) this.#doneBetweenWrites();
    }
    return null;
  }

  /** VERBS-049, RDMAP-072: the entry completes with its status, the stream with a Terminate without headers. */
  #failLocally(wqe: SendWqe, status: WcStatus): void {
    wqe.status = status;
    this.fault = plainTerminate(TERM.LOCAL_CATASTROPHIC);
  }

  // ----------------------------------------------------------------------------------------------------- send queue

  #startWork(stage: Stage, wqe: SendWqe): boolean {
    return isRequest(wqe) ? this.#startRequest(stage, wqe) : this.#sendSegment(stage, wqe);
  }

  /** A Read or an Atomic: a message of one segment. */
  #startRequest(stage: Stage, wqe: SendWqe): boolean {
    const read = wqe.kind === WORK.READ;
    const body = read ? READ_REQUEST_OCTETS : ATOMIC_REQUEST_OCTETS;
    if (!this.fits(stage, UNTAGGED_HEADER_OCTETS + body)) return false;
    this.#endpoint.sq.next++;
    if (this.ord === 0) {
      this.#failLocally(wqe, 'zero-read-resources'); // VERBS-073
      return false;
    }
    if (!wqe.sges.usable(ACCESS.LOCAL_WRITE)) return this.#protectionFault(wqe);
    this.#responseServedLast = false;
    this.#quantum = 0;
    wqe.msn = this.nextMsn(QN.READ_REQUEST);
    const at = this.beginMessage(stage, read ? OPCODE.READ_REQUEST : OPCODE.ATOMIC_REQUEST, QN.READ_REQUEST, wqe.msn, body);
    const framer = this.framer;
    if (read) putReadRequest(framer.view, at, wqe);
    else putAtomicRequest(framer.view, at, wqe);
    framer.finish(stage, UNTAGGED_HEADER_OCTETS + body);
    this.#requests.pushOutstanding(wqe);
    return true;
  }

  /** The first segment of a message fits: it goes out, and nothing else but a Terminate comes between its segments. */
  #startMessage(wqe: SendWqe): void {
    this.#endpoint.sq.next++;
    if (wqe.kind === WORK.SEND) wqe.msn = this.nextMsn(QN.SEND);
    this.#sending = wqe;
    this.#sent = 0;
  }

  #protectionFault(wqe: SendWqe): false {
    this.#sending = null;
    this.#failLocally(wqe, 'local-protection-error');
    return false;
  }

  /** One segment of a Send, Immediate or Write (DDP-017, DDP-018, MPA-082: as large as possible). */
  #sendSegment(stage: Stage, wqe: SendWqe): boolean {
    const tagged = wqe.kind === WORK.WRITE;
    const header = tagged ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
    const immediate = wqe.immediate === IMMEDIATE.NOW;
    const total = immediate ? IMMEDIATE_OCTETS : wqe.total;
    const sent = this.#sending === null ? 0 : this.#sent;
    const left = total - sent;
    const payload = Math.min(left, this.#mulpdu - header);
    const piece = payload >= LEND_FROM && !immediate && this.framer.lends ? pieceWith(wqe.sges, sent, payload) : -1;
    if (!(piece >= 0 ? this.fitsLent(stage, header, payload) : this.fits(stage, header + payload))) return false;
    if (this.#sending === null) this.#startMessage(wqe);
    if (!immediate && !wqe.sges.usable(0)) return this.#protectionFault(wqe); // VERBS-063: the Terminate takes the place of this segment
    const framer = this.framer;
    const last = payload === left;
    let at: number;
    if (tagged) {
      const toHi = addHi(wqe.toHi, wqe.toLo, sent);
      at = this.beginTagged(stage, this.control | wqe.wireOpcode, last, wqe.stag, toHi, addLo(wqe.toLo, sent), payload);
    } else {
      at = this.beginUntagged(stage, this.control | wqe.wireOpcode, last, wqe.stag, QN.SEND, wqe.msn, sent, payload);
    }
    if (piece >= 0) {
      framer.openLent(stage, header, header + payload);
      const element = wqe.sges.at(piece);
      stage.lend(element.bytes, element.offset + sent - octetsBefore(wqe.sges, piece), payload);
      framer.closeLent(stage, header + payload);
    } else {
      if (immediate) {
        framer.view.setUint32(at, wqe.operands.dataHi);
        framer.view.setUint32(at + 4, wqe.operands.dataLo);
      } else {
        gather(wqe.sges, sent, framer, at, payload);
      }
      framer.finish(stage, header + payload);
    }
    this.#sent = sent + payload;
    this.payloadOctets += payload;
    if (last) {
      this.count(wqe.wireOpcode);
      if (wqe.immediate === IMMEDIATE.AFTER) {
        this.#turnImmediate(wqe);
        return true;
      }
      this.#sending = null;
      this.#responseServedLast = false;
      this.#quantum = 0;
    }
    return true;
  }

  /** The Write is all in segments; its Immediate Data follows as the next message (EXT-015). */
  #turnImmediate(wqe: SendWqe): void {
    wqe.immediate = IMMEDIATE.NOW;
    wqe.kind = WORK.SEND;
    wqe.wireOpcode = wqe.solicited ? OPCODE.IMMEDIATE_SE : OPCODE.IMMEDIATE;
    wqe.stag = 0; // EXT-003
    wqe.msn = this.nextMsn(QN.SEND);
    this.#sent = 0;
  }

  // ------------------------------------------------------------------------------------------------------ responses

  #startResponse(stage: Stage): boolean {
    const request = this.#requests.firstInbound;
    if (request.kind === 'atomic') return this.#sendAtomicResponse(stage, request);
    this.#quantum = 0;
    return this.#respond(stage, request);
  }

  /** One segment of a Read Response (RDMAP-030, RDMAP-031). */
  #respond(stage: Stage, request: InboundRequest): boolean {
    const { stags, pdHandle, number } = this.#endpoint;
    const framer = this.framer;
    const left = request.size - request.sent;
    const payload = Math.min(left, this.#mulpdu - TAGGED_HEADER_OCTETS);
    if (!this.fits(stage, TAGGED_HEADER_OCTETS + payload)) return false;
    if (payload > 0) {
      // Checked again for every segment: the region may have gone since (SEC-007, RDMAP-086).
      const toHi = addHi(request.sourceHi, request.sourceLo, request.sent);
      const toLo = addLo(request.sourceLo, request.sent);
      const fault = stags.check(request.sourceStag, toHi, toLo, payload, ACCESS.REMOTE_READ, pdHandle, number);
      if (fault !== FAULT.NONE) {
        this.fault = terminateForRead(
          READ_FAULT_CODES[fault]!, request.segmentLength, request.ddpHeader(), request.advancedHeader(),
        );
        return false;
      }
    }
    const last = payload === left;
    const sinkHi = addHi(request.sinkHi, request.sinkLo, request.sent);
    const sinkLo = addLo(request.sinkLo, request.sent);
    const at = this.beginTagged(stage, this.control | OPCODE.READ_RESPONSE, last, request.sinkStag, sinkHi, sinkLo, payload);
    if (payload > 0) copyOctets(stags.entry!, stags.offset, framer, at, payload);
    framer.finish(stage, TAGGED_HEADER_OCTETS + payload);
    request.sent += payload;
    this.payloadOctets += payload;
    this.#quantum += payload;
    if (last) {
      this.count(OPCODE.READ_RESPONSE);
      this.#finishResponse();
    } else {
      this.#responding = request;
    }
    return true;
  }

  #finishResponse(): void {
    this.#responding = null;
    this.#responseServedLast = true;
    this.#requests.shiftInbound();
  }

  #sendAtomicResponse(stage: Stage, request: InboundRequest): boolean {
    if (!this.fits(stage, UNTAGGED_HEADER_OCTETS + ATOMIC_RESPONSE_OCTETS)) return false;
    const at = this.beginMessage(stage, OPCODE.ATOMIC_RESPONSE, QN.ATOMIC_RESPONSE, this.nextMsn(QN.ATOMIC_RESPONSE), ATOMIC_RESPONSE_OCTETS);
    const framer = this.framer;
    putAtomicResponse(framer.view, at, request);
    framer.finish(stage, UNTAGGED_HEADER_OCTETS + ATOMIC_RESPONSE_OCTETS);
    this.#finishResponse();
    return true;
  }

  // --------------------------------------------------------------------------------------------- RTR, nudge, Terminate

  /** The ready-to-receive message, first of all FPDUs (ENH-038, ENH-039), each of zero length. */
  #sendRtr(stage: Stage): boolean {
    if (!this.fits(stage, MAX_CONTROL_ULPDU)) return false;
    const framer = this.framer;
    if (this.rtr === 'write') {
      this.putEmptyWrite(stage);
    } else if (this.rtr === 'read') {
      const at = this.beginMessage(stage, OPCODE.READ_REQUEST, QN.READ_REQUEST, this.nextMsn(QN.READ_REQUEST), READ_REQUEST_OCTETS);
      framer.bytes.fill(0, at, at + READ_REQUEST_OCTETS);
      framer.finish(stage, UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS);
      this.#requests.pushOutstanding(null); // ENH-044
    } else {
      this.beginMessage(stage, OPCODE.SEND, QN.SEND, this.nextMsn(QN.SEND), 0);
      framer.finish(stage, UNTAGGED_HEADER_OCTETS);
    }
    this.rtr = null;
    return true;
  }

  #sendNudge(stage: Stage): boolean {
    if (!this.fits(stage, TAGGED_HEADER_OCTETS)) return false;
    this.#nudges--;
    this.putEmptyWrite(stage);
    return true;
  }

  /** RDMAP-076, RDMAP-077: one per stream, MSN 1, and nothing after it. */
  #sendTerminate(stage: Stage): boolean {
    const info = this.#terminate!;
    const octets = UNTAGGED_HEADER_OCTETS + terminateOctets(info);
    if (!this.fits(stage, octets)) return false;
    const at = this.beginMessage(stage, OPCODE.TERMINATE, QN.TERMINATE, this.nextMsn(QN.TERMINATE), octets - UNTAGGED_HEADER_OCTETS);
    putTerminate(this.framer.bytes, at, info);
    this.framer.finish(stage, octets);
    this.#terminateSent = true;
    return true;
  }

  // ----------------------------------------------------------------------------------------------------- completion

  /** What `fill` has made so far goes to the port. */
  handOut(): void {
    this.#handedOut++;
    this.#handedPosition = this.framer.position;
    this.#endWith(this.#segmented());
  }

  /** The port has taken the oldest write that it had. */
  transmitted(): void {
    this.#handedOut--;
    this.#confirmed = this.#firstEnd;
    this.#firstEnd = this.#secondEnd;
    this.sweep();
  }

  /** The last write handed out ends so much of the queue. */
  #endWith(end: number): void {
    if (this.#handedOut === 1) this.#firstEnd = end;
    else this.#secondEnd = end;
  }

  /** Local work stands after a write that has been handed out and in front of all that will be: it waits for nothing else. */
  #doneBetweenWrites(): void {
    if (this.#handedOut === 0) this.sweep();
    else this.#endWith(this.#endpoint.sq.next);
  }

  /** The queue position after the last entry that is all in segments. */
  #segmented(): number {
    const { next } = this.#endpoint.sq;
    return this.#sending === null ? next : next - 1;
  }

  /** Complete, in posting order (RDMAP-094), what the port has taken and what has been answered. */
  sweep(): void {
    const { sq, owner } = this.#endpoint;
    // With nothing on the way to the port only local work can stand after the last write: that is done.
    const nothingOut = this.#handedOut === 0 && this.framer.position === this.#handedPosition;
    const end = nothingOut ? this.#segmented() : this.#confirmed;
    while (sq.tail < end) {
      const wqe = sq.slot(sq.tail);
      if (wqe.status !== 'success') return; // the faulty one ends the stream; `flush` reports it
      if (isRequest(wqe) && !wqe.responded) return;
      owner.sendCompleted(wqe);
    }
  }

  /** End everything still in the queue: the faulty entry with its status, the others as flushed (VERBS-056, VERBS-057). */
  flush(): void {
    const { sq, owner } = this.#endpoint;
    this.#sending = null;
    this.#requests.clearOutstanding();
    while (sq.tail !== sq.head) {
      const wqe = sq.slot(sq.tail);
      if (wqe.status === 'success') wqe.status = 'flushed';
      if (sq.next === sq.tail) sq.next++;
      owner.sendCompleted(wqe);
    }
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
