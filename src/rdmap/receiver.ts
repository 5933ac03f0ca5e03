/**
 * RDMAP on the receiving side: what DDP asks of the layer above, per opcode. RFC 5040 4.1 (opcodes), 5 (operations), 7.2 (checks);
 * RFC 7306 for Immediate Data and Atomics; order of checks in protocol-notes 1.1.
 */
import { copyBytes, copyOctets, NO_BYTES } from '../base/copy.ts';
import { FINE, TERM } from '../base/terminate-codes.ts';
import { addHi, addLo, hi32, lo32, toBigInt } from '../base/u64.ts';
import { WIDE_ZERO } from '../base/wide.ts';
import type { DdpUlp } from '../ddp/receiver.ts';
import { ACCESS, FAULT, REMOTE_ACCESS } from '../ddp/stag-table.ts';
import { getU32, MAX_MESSAGE, QN, type Segment } from '../ddp/wire.ts';
import type { RtrKind } from '../mpa/policy.ts';
import { executeAtomic, isAligned, storeOriginal } from './atomics.ts';
import { countReceived } from './counters.ts';
import { READ_FAULT_CODES, TAGGED_FAULT_CODES } from './faults.ts';
import { scatter } from './gather.ts';
import type { Requests } from './reads.ts';
import type { StreamEndpoint } from './stream-types.ts';
import { parseTerminate, type TerminateInfo } from './terminate.ts';
import {
  ATOMIC_OPCODE,
  ATOMIC_OPCODE_MASK,
  ATOMIC_REQUEST,
  ATOMIC_REQUEST_OCTETS,
  ATOMIC_RESPONSE,
  ATOMIC_RESPONSE_OCTETS,
  IMMEDIATE_OCTETS,
  MAX_TERMINATE_OCTETS,
  OPCODE,
  OPCODE_TABLE,
  RDMAP_CONTROL,
  RDMAP_VERSION_SHIFT,
  READ_REQUEST_OCTETS,
  TERMINATE_FIXED_OCTETS,
} from './wire.ts';
import { WORK, type ReceiveQueue, type ReceiveWqe, type SendWqe, type WorkOwner } from './work.ts';

/** Added to a code: the error is on a delivered message, so a Read Request's own header belongs into the Terminate (RDMAP-074). */
export const DELIVERED = 0x2_0000;
/** Added to a code: the Terminate takes the place of the faulty response, after those still owed (VERBS-069). */
export const IN_TURN = 0x4_0000;
/** A malformed Terminate: end the stream without an answer (RDMAP-081). */
export const SILENT = 0x8_0000;

/** Octets of the messages that have exactly one size, by opcode. */
const FIXED_OCTETS: Readonly<Record<number, number>> = {
  [OPCODE.READ_REQUEST]: READ_REQUEST_OCTETS,
  [OPCODE.IMMEDIATE]: IMMEDIATE_OCTETS,
  [OPCODE.IMMEDIATE_SE]: IMMEDIATE_OCTETS,
  [OPCODE.ATOMIC_REQUEST]: ATOMIC_REQUEST_OCTETS,
  [OPCODE.ATOMIC_RESPONSE]: ATOMIC_RESPONSE_OCTETS,
};


/** What a peer may do to this queue pair beyond what regions grant (VERBS-142). */
export interface InboundRights {
  readonly write: boolean;
  readonly read: boolean;
}

/** Told when a response has completed a Read or Atomic of ours. */
export interface Requester {
  requestAnswered(): void;
}

interface ReceiverConfig {
  readonly version: 0 | 1;
  readonly endpoint: StreamEndpoint;
  readonly requests: Requests;
  readonly requester: Requester;
  /** Counts of messages, see `counters.ts`. */
  readonly messages: number[];
}

export class Receiver implements DdpUlp {
  readonly #endpoint: StreamEndpoint;
  readonly #requests: Requests;
  readonly #requester: Requester;
  readonly #version: number;
  /** The receive that the open message on queue 0 fills. */
  #receive: ReceiveWqe | null = null;
  /** Octets of a Terminate of the peer, made for the first one. */
  #terminate: Uint8Array = NO_BYTES;
  /** The RTR that the peer's first FPDU should be (ENH-039). What comes later is none, also if that was something else. */
  expectedRtr: RtrKind | null = null;
  /**
   * The RTR that the message of the moment is. A Send as RTR is consumed below the ULP (ENH-041, ENH-048); a Read Request as RTR reads nothing,
   * so a queue pair closed to the peer's Reads takes it too.
   */
  #rtr: RtrKind | null = null;
  /** Set when a Terminate has been delivered. */
  terminate: TerminateInfo | null = null;
  /** FIN, reset or a fault closed reception: receives then end as flushed. */
  segments = 0;
  payloadOctets: number = WIDE_ZERO;
  /** Messages of the stream: counted with their last segment. */
  readonly messages: number[];

  constructor(config: ReceiverConfig) {
    this.#endpoint = config.endpoint;
    this.#requests = config.requests;
    this.#requester = config.requester;
    this.messages = config.messages;
    this.#version = config.version << RDMAP_VERSION_SHIFT;
  }

  // ------------------------------------------------------------------------------------------------------- control

  checkControl(segment: Segment): number {
    if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return TERM.RDMAP_VERSION; // RDMAP-004
    const opcode = segment.ulpControl & RDMAP_CONTROL.OPCODE;
    const row = OPCODE_TABLE[opcode];
    // RDMAP-005, EXT-001: without RFC 7306 its opcodes are as unknown as the unassigned ones.
    if (row === undefined || (row.extension && !this.#endpoint.extensions)) return TERM.RDMAP_UNEXPECTED_OPCODE;
    if (row.tagged !== segment.tagged) return TERM.RDMAP_UNEXPECTED_OPCODE; // RDMAP-007
    this.segments++;
    if (row.qn <= QN.SEND) this.payloadOctets += segment.payloadLength; // tagged, or for the ULP; not requests and Terminates
    if (segment.last) countReceived(this.messages, opcode);
    if (this.expectedRtr !== null) this.#takeFirst(opcode, segment);
    return FINE;
  }

  /** The first segment of the stream. */
  #takeFirst(opcode: number, segment: Segment): void {
    const kind = this.expectedRtr;
    this.expectedRtr = null;
    if (kind === 'read' && opcode === OPCODE.READ_REQUEST) this.#rtr = kind;
    if (kind === 'send' && opcode === OPCODE.SEND && segment.last && segment.payloadLength === 0) this.#rtr = kind;
  }

  queueOf(segment: Segment): number {
    return OPCODE_TABLE[segment.ulpControl & RDMAP_CONTROL.OPCODE]!.qn;
  }

  // -------------------------------------------------------------------------------------------------------- tagged

  handleTagged(segment: Segment): number {
    if ((segment.ulpControl & RDMAP_CONTROL.OPCODE) === OPCODE.READ_RESPONSE) return this.#handleReadResponse(segment);
    if (segment.payloadLength === 0) return FINE; // DDP-026: STag and TO of a zero-length Write are not looked at
    const { stags, pdHandle, number, rights } = this.#endpoint;
    const length = segment.payloadLength;
    const fault = stags.check(segment.stag, segment.toHi, segment.toLo, length, ACCESS.REMOTE_WRITE, pdHandle, number);
    if (fault !== FAULT.NONE) return TAGGED_FAULT_CODES[fault]!;
    if (!rights.write) return TERM.DDP_NOT_ASSOCIATED; // VERBS-142
    copyOctets(segment, segment.payload, stags.entry!, stags.offset, length);
    return FINE;
  }

  /** Must continue exactly the oldest request of ours (RDMAP-047, RDMAP-048, RDMAP-049). */
  #handleReadResponse(segment: Segment): number {
    const wqe = this.#requests.firstOutstanding;
    if (wqe === undefined || (wqe !== null && wqe.kind !== WORK.READ)) return TERM.RDMAP_UNEXPECTED_OPCODE;
    const length = segment.payloadLength;
    if (wqe === null || wqe.total === 0) {
      if (length !== 0) return this.#badResponse(wqe, TERM.DDP_BOUNDS);
      return segment.last ? this.#finishRequest(wqe) : FINE;
    }
    const sink = wqe.sges.first;
    const entry = sink.entry!;
    // The response names our STag: the one that the request named, and still valid.
    if (segment.stag !== sink.lkey) return this.#badResponse(wqe, TERM.DDP_INVALID_STAG);
    if (!wqe.sges.usable(this.#endpoint.sinkRight)) {
      wqe.status = 'local-protection-error';
      return wqe.sges.usable(0) ? TERM.DDP_NOT_ASSOCIATED : TERM.DDP_INVALID_STAG;
    }
    const offset = sink.offset + wqe.received;
    const inPlace = segment.toHi === addHi(entry.baseHi, entry.baseLo, offset) && segment.toLo === addLo(entry.baseLo, offset);
    if (!inPlace || wqe.received + length > wqe.total) return this.#badResponse(wqe, TERM.DDP_BOUNDS);
    if (segment.last && wqe.received + length < wqe.total) return this.#badResponse(wqe, TERM.DDP_BOUNDS);
    copyOctets(segment, segment.payload, entry, offset, length);
    wqe.received += length;
    return segment.last ? this.#finishRequest(wqe) : FINE;
  }

  /** The request that the response should have answered takes the blame on our side (VERBS-049). */
  #badResponse(wqe: SendWqe | null, code: number): number {
    if (wqe !== null) wqe.status = 'bad-response';
    return code;
  }

  #finishRequest(wqe: SendWqe | null): number {
    this.#requests.shiftOutstanding();
    if (wqe !== null) {
      wqe.responded = true;
      if (wqe.local !== null) {
        // Read with local invalidate: after the placement, before the completion (VERBS-102).
        const status = wqe.local.run();
        if (status !== 'success') {
          wqe.status = status;
          return TERM.LOCAL_CATASTROPHIC;
        }
      }
    }
    this.#requester.requestAnswered();
    return FINE;
  }

  // ------------------------------------------------------------------------------------------------------ untagged

  openMessage(segment: Segment): number {
    if (segment.qn === QN.SEND) return this.#openSend();
    if (segment.qn === QN.READ_REQUEST) {
      // VERBS-075, VERBS-142: an Atomic reads too.
      if (!this.#endpoint.rights.read && this.#rtr !== 'read') return TERM.DDP_INVALID_QN;
      return this.#requests.full ? TERM.DDP_MSN_RANGE : FINE; // RDMAP-052, VERBS-074
    }
    if (segment.qn === QN.ATOMIC_RESPONSE) {
      const wqe = this.#requests.firstOutstanding;
      return wqe?.kind === WORK.ATOMIC ? FINE : TERM.DDP_NO_BUFFER; // EXT-049
    }
    return FINE; // RDMAP-080: there is always room for a Terminate
  }

  #openSend(): number {
    if (this.#rtr === 'send') return FINE;
    if (this.#endpoint.rq.failed) return TERM.RDMAP_STREAM_CATASTROPHIC; // VERBS-137
    const wqe = this.#endpoint.rq.take();
    if (wqe === null) return TERM.DDP_NO_BUFFER; // DDP-040, RDMAP-059
    wqe.taken = true;
    this.#receive = wqe;
    this.#endpoint.owner.receiveTaken();
    return FINE;
  }

  capacity(qn: number): number {
    // Immediate Data brings its own eight octets and does not touch the buffer; other queues have fixed-size messages.
    if (qn === QN.TERMINATE) return MAX_MESSAGE; // octets after what a Terminate announces are dropped (protocol-notes 2.3)
    if (qn !== QN.SEND) return ATOMIC_REQUEST_OCTETS;
    return this.#receive === null ? 0 : Math.max(this.#receive.sges.total, this.#immediate ? IMMEDIATE_OCTETS : 0);
  }

  #immediate = false;

  checkUntagged(segment: Segment): number {
    const opcode = segment.ulpControl & RDMAP_CONTROL.OPCODE;
    this.#immediate = opcode === OPCODE.IMMEDIATE || opcode === OPCODE.IMMEDIATE_SE;
    const { payloadLength, last, mo } = segment;
    if (opcode === OPCODE.TERMINATE) return last && payloadLength >= TERMINATE_FIXED_OCTETS ? FINE : SILENT;
    const fixed = FIXED_OCTETS[opcode];
    // RDMAP-015, EXT-010. An MO other than 0 here continues a Send with something that is none.
    if (fixed !== undefined && (!last || payloadLength !== fixed || mo !== 0)) return TERM.RDMAP_STREAM_CATASTROPHIC;
    return FINE;
  }

  placeUntagged(segment: Segment): number {
    if (segment.qn === QN.SEND && !this.#immediate && this.#receive !== null) {
      const wqe = this.#receive;
      if (!wqe.sges.usable(ACCESS.LOCAL_WRITE)) {
        wqe.status = 'local-protection-error'; // VERBS-049, VERBS-169
        return TERM.LOCAL_CATASTROPHIC;
      }
      scatter(wqe.sges, segment, segment.payload, segment.mo, segment.payloadLength);
    } else if (segment.qn === QN.TERMINATE) {
      const take = Math.min(segment.payloadLength, MAX_TERMINATE_OCTETS);
      if (this.#terminate === NO_BYTES) this.#terminate = new Uint8Array(MAX_TERMINATE_OCTETS);
      copyBytes(segment.bytes, segment.payload, this.#terminate, 0, take);
    }
    return FINE;
  }

  deliverUntagged(segment: Segment, length: number): number {
    switch (segment.qn) {
      case QN.SEND:
        return this.#deliverSend(segment, length);
      case QN.READ_REQUEST:
        return (segment.ulpControl & RDMAP_CONTROL.OPCODE) === OPCODE.READ_REQUEST
          ? this.#deliverReadRequest(segment)
          : this.#deliverAtomicRequest(segment);
      case QN.ATOMIC_RESPONSE:
        return this.#deliverAtomicResponse(segment);
      default:
        this.terminate = parseTerminate(this.#terminate, 0, Math.min(length, MAX_TERMINATE_OCTETS)); // RDMAP-079
        return this.terminate === null ? SILENT : FINE;
    }
  }

  #deliverSend(segment: Segment, length: number): number {
    if (this.#rtr === 'send') {
      this.#rtr = null;
      return FINE;
    }
    const wqe = this.#receive!;
    const opcode = segment.ulpControl & RDMAP_CONTROL.OPCODE;
    wqe.byteLength = length;
    wqe.solicited =
      opcode === OPCODE.SEND_SE || opcode === OPCODE.SEND_SE_INVALIDATE || opcode === OPCODE.IMMEDIATE_SE;
    if (this.#immediate) {
      wqe.opcode = 'receive-immediate';
      wqe.hasImmediate = true;
      wqe.immediateHi = getU32(segment.bytes, segment.payload);
      wqe.immediateLo = getU32(segment.bytes, segment.payload + 4);
    } else if (opcode === OPCODE.SEND_INVALIDATE || opcode === OPCODE.SEND_SE_INVALIDATE) {
      const code = this.#invalidateFor(wqe, segment.ulpWord);
      if (code !== FINE) return code | DELIVERED;
    }
    this.#receive = null;
    this.#endpoint.owner.receiveCompleted(wqe);
    return FINE;
  }

  /**
   * RDMAP-066..068. RFC 5040 7.2 (4) wants the STag valid, the verbs draft 7.8 lets one that has been invalidated be invalidated again (VERBS-154).
   * Read together: valid is an STag that this device has given out and not taken back, index and key alike. Such a one is taken whether or not
   * it can be used at present, for two messages may name the same STag and nothing is lost by the second. One that is unknown is 0/1/00, and a
   * known one of another stream or protection domain 0/1/09 (RFC 5040 5.3, protocol-notes 1.3).
   */
  #invalidateFor(wqe: ReceiveWqe, stag: number): number {
    const { stags, pdHandle, number, rights } = this.#endpoint;
    const entry = stags.find(stag);
    let code: number = FINE;
    if (entry === null) code = TERM.RDMAP_INVALID_STAG;
    else if (entry.pd !== pdHandle || (entry.qp !== 0 && entry.qp !== number)) code = TERM.RDMAP_CANNOT_INVALIDATE;
    else if ((entry.access & REMOTE_ACCESS) === 0 || !(rights.read || rights.write)) code = TERM.RDMAP_ACCESS; // VERBS-155
    else if (entry.shared || entry.windows > 0) code = TERM.RDMAP_CANNOT_INVALIDATE; // SEC-008
    if (code !== FINE) {
      wqe.status = 'remote-invalidate-error';
      return code;
    }
    stags.invalidate(entry!); // VERBS-154: once more does no harm
    wqe.invalidated = stag;
    return FINE;
  }

  #deliverReadRequest(segment: Segment): number {
    const { stags, pdHandle, number } = this.#endpoint;
    const requests = this.#requests;
    const request = requests.blank;
    request.fillRead(segment);
    this.#rtr = null;
    if (request.size > 0 && !this.#endpoint.rights.read) return TERM.DDP_INVALID_QN;
    // RDMAP-032, SEC-017: nothing of the source is looked at for zero octets.
    if (request.size > 0) {
      const fault = stags.check(request.sourceStag, request.sourceHi, request.sourceLo, request.size, ACCESS.REMOTE_READ, pdHandle, number);
      if (fault !== FAULT.NONE) return READ_FAULT_CODES[fault]! | DELIVERED | IN_TURN;
    }
    requests.pushInbound();
    return FINE;
  }

  #deliverAtomicRequest(segment: Segment): number {
    const { stags, pdHandle, number } = this.#endpoint;
    const requests = this.#requests;
    const { bytes, payload } = segment;
    const u32 = (field: number): number => getU32(bytes, payload + field);
    const atomic = u32(ATOMIC_REQUEST.OPCODE) & ATOMIC_OPCODE_MASK;
    if (atomic !== ATOMIC_OPCODE.FETCH_ADD && atomic !== ATOMIC_OPCODE.CMP_SWAP) {
      return TERM.RDMAP_UNEXPECTED_OPCODE | DELIVERED; // EXT-034
    }
    const toHi = u32(ATOMIC_REQUEST.TO);
    const toLo = u32(ATOMIC_REQUEST.TO + 4);
    const fault = stags.check(u32(ATOMIC_REQUEST.STAG), toHi, toLo, 8, ACCESS.REMOTE_ATOMIC, pdHandle, number);
    if (fault !== FAULT.NONE) return READ_FAULT_CODES[fault]! | DELIVERED | IN_TURN; // EXT-035
    if (!this.#endpoint.rights.write) return TERM.RDMAP_ACCESS | DELIVERED | IN_TURN; // VERBS-142: it would write
    const target = stags.entry!.bytes;
    const { offset } = stags;
    if (!isAligned(target, offset)) return TERM.RDMAP_STREAM_CATASTROPHIC | DELIVERED | IN_TURN; // EXT-033
    const u64 = (field: number): bigint => toBigInt(u32(field), u32(field + 4));
    const original = executeAtomic(target, offset, {
      add: atomic === ATOMIC_OPCODE.FETCH_ADD,
      data: u64(ATOMIC_REQUEST.DATA),
      mask: u64(ATOMIC_REQUEST.MASK),
      compare: u64(ATOMIC_REQUEST.COMPARE),
      compareMask: u64(ATOMIC_REQUEST.COMPARE_MASK),
    });
    const request = requests.blank;
    request.kind = 'atomic';
    request.size = request.sent = 0;
    request.requestId = u32(ATOMIC_REQUEST.ID);
    request.originalHi = hi32(original);
    request.originalLo = lo32(original);
    requests.pushInbound();
    return FINE;
  }

  #deliverAtomicResponse(segment: Segment): number {
    const { bytes, payload } = segment;
    const wqe = this.#requests.firstOutstanding!;
    if (getU32(bytes, payload + ATOMIC_RESPONSE.ID) !== wqe.msn) return this.#badResponse(wqe, TERM.DDP_MSN_RANGE); // EXT-049
    if (!wqe.sges.usable(ACCESS.LOCAL_WRITE)) {
      wqe.status = 'local-protection-error';
      return TERM.LOCAL_CATASTROPHIC;
    }
    const hi = getU32(bytes, payload + ATOMIC_RESPONSE.ORIGINAL);
    const lo = getU32(bytes, payload + ATOMIC_RESPONSE.ORIGINAL + 4);
    storeOriginal(wqe.sges.first.bytes, wqe.sges.first.offset, hi, lo);
    return this.#finishRequest(wqe);
  }

  // --------------------------------------------------------------------------------------------------------- ending

  /** The receive that a failed message was filling ends with this status, unless it has one of its own. */
  failOpenReceive(code: number): void {
    const wqe = this.#receive;
    if (wqe === null) return;
    if (wqe.status === 'success' && code === TERM.DDP_TOO_LONG) wqe.status = 'local-length-error';
  }

  /** End the open receive, then everything posted; a shared queue keeps its entries (VERBS-132). */
  flush(shared: boolean): void {
    const { rq, owner } = this.#endpoint;
    const open = this.#receive;
    this.#receive = null;
    if (open !== null) {
      if (open.status === 'success') open.status = 'flushed';
      owner.receiveCompleted(open);
    }
    if (!shared) flushReceives(rq, owner);
  }
}

/** End every posted receive as flushed. */
export function flushReceives(rq: ReceiveQueue, owner: WorkOwner): void {
  for (let wqe = rq.take(); wqe !== null; wqe = rq.take()) {
    wqe.status = 'flushed';
    owner.receiveCompleted(wqe);
  }
}
