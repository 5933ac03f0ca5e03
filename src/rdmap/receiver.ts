/**
 * RDMAP on the receiving side: opcodes, buffers for untagged messages, delivery. RFC 5040 4.1 (opcodes), 5
 * (operations), 7.2 (checks); RFC 7306 for Immediate Data and Atomics; order of checks in protocol-notes 1.1.
 * Placement is DDP's.
 */
import { FINE, TERM } from '../base/terminate-codes.ts';
import { VERDICT } from '../base/verdict.ts';
import { copyOctets, lengthNow } from '../base/copy.ts';
import { addHi, addLo, hi32, lo32, toBigInt } from '../base/u64.ts';
import { DOUBLE_ZERO } from '../base/double-zero.ts';
import type { TaggedSink } from '../ddp/placement.ts';
import type { EarlyUlp } from '../ddp/placing-receiver.ts';
import type { UntaggedBuffer } from '../ddp/placement.ts';
import { ACCESS, FAULT, REMOTE_ACCESS, type StagEntry } from '../ddp/stag-table.ts';
import { getU32, PLACED, QN, type Segment } from '../ddp/wire.ts';
import type { RtrKind } from '../llp/startup.ts';
import { executeAtomic, isAligned, storeOriginal } from './atomics.ts';
import { countReceived } from './counters.ts';
import { READ_FAULT_CODES } from './faults.ts';
import { MATCH, PlacedReads } from './placed-reads.ts';
import type { Requests } from './reads.ts';
import { parseTerminate, type TerminateInfo } from './terminate.ts';
import {
  ATOMIC_OPCODE,
  ATOMIC_OPCODE_MASK,
  ATOMIC_REQUEST,
  ATOMIC_RESPONSE,
  DELIVERY,
  MAX_TERMINATE_OCTETS,
  OPCODE,
  OPCODE_TABLE,
  READ_REQUEST_OCTETS,
  type OpcodeRow,
  RDMAP_CONTROL,
  RDMAP_VERSION_SHIFT,
} from './wire.ts';
import { flushReceives, WORK, type ReceiveWqe, type SendWqe } from '../queues/work.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';

/** Notified when a response has completed a Read or Atomic of ours. */
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
  /** Reads have aliases for their sinks, and take effect in whatever order. */
  readonly placedReads?: boolean;
}

/** See `sink`. */
const SINK: TaggedSink = { entry: null, offset: 0 };

export class Receiver implements EarlyUlp {
  readonly #endpoint: StreamEndpoint;
  readonly #requests: Requests;
  readonly #requester: Requester;
  readonly #version: number;
  /** Null if responses come in the order of the Reads, which is so but on one wire. */
  readonly #placed: PlacedReads | null;
  /** The receive that the open message on queue 0 fills. */
  #receive: ReceiveWqe | null = null;
  /** Receives that are done and wait for `memory`, or behind one that does; null while there are none. */
  #held: { readonly wqe: ReceiveWqe; readonly memory: StagEntry | null }[] | null = null;
  kind: OpcodeRow = OPCODE_TABLE[OPCODE.SEND]!;
  /**
   * The RTR that the peer's first FPDU should be (ENH-039). A later message is none, even if the first
   * was something else.
   */
  expectedRtr: RtrKind | null = null;
  /**
   * The RTR that the message of the moment is. A Send as RTR is consumed below the ULP (ENH-041, ENH-048); a
   * Read Request as RTR reads nothing, so a queue pair closed to the peer's Reads takes it too.
   */
  #rtr: RtrKind | null = null;
  /** Set when a Terminate has been delivered. */
  terminate: TerminateInfo | null = null;
  /** FIN, reset or a fault closed reception: receives then end as flushed. */
  segments = 0;
  payloadOctets: number = DOUBLE_ZERO;
  /** Messages of the stream: counted with their last segment. */
  readonly messages: number[];

  constructor(config: ReceiverConfig) {
    this.#endpoint = config.endpoint;
    this.#requests = config.requests;
    this.#requester = config.requester;
    this.messages = config.messages;
    this.#version = config.version << RDMAP_VERSION_SHIFT;
    this.#placed = config.placedReads === true ? new PlacedReads(config.requests) : null;
  }

  // ------------------------------------------------------------------------------------------------- control

  get scope(): StreamEndpoint {
    return this.#endpoint;
  }

  /** The place of the response that has been classified; all streams of a thread share it. */
  get sink(): TaggedSink {
    return SINK;
  }

  get buffer(): ReceiveWqe | null {
    return this.#receive;
  }

  preview(segment: Segment): OpcodeRow | null {
    if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return null;
    const row = OPCODE_TABLE[segment.ulpControl & RDMAP_CONTROL.OPCODE];
    if (row === undefined || (row.extension && !this.#endpoint.extensions)) return null;
    return row.tagged === segment.tagged ? row : null;
  }

  receiveAhead(ahead: number): UntaggedBuffer | null {
    return this.#endpoint.rqShared ? null : this.#endpoint.rq.peekAhead(ahead);
  }

  /** The Read in whose sink the response says it goes; in its turn it has to be the oldest. */
  earlySink(segment: Segment): boolean {
    if (this.#placed !== null) return false;
    const wqe = this.#requests.findOutstanding(
      ({ kind, sges }) => kind === WORK.READ && sges.count > 0 && sges.first.lkey === segment.stag,
    );
    if (wqe === null || !wqe.sges.usable(this.#endpoint.sinkRight)) return segment.payloadLength === 0;
    const { entry, bytes } = wqe.sges.first;
    const { baseHi, baseLo } = entry!;
    // A Read of 2^32 octets or more is none, so the lower half of the difference is the difference.
    const offset = segment.toLo - baseLo + (segment.toLo < baseLo ? 0x1_0000_0000 : 0);
    if (segment.toHi !== addHi(baseHi, baseLo, offset) || segment.toLo !== addLo(baseLo, offset))
      return false;
    if (!this.#wanted(segment.stag, offset, segment.payloadLength) || offset > lengthNow(bytes)) return false;
    SINK.entry = entry;
    SINK.offset = offset;
    return true;
  }

  /** Some Read has asked for all these bytes of its sink's region. */
  #wanted(stag: number, offset: number, length: number): boolean {
    return (
      this.#requests.findOutstanding(({ kind, sges: { count, first }, total }) => {
        if (kind !== WORK.READ || count === 0 || first.lkey !== stag) return false;
        return offset >= first.offset && offset + length <= first.offset + total;
      }) !== null
    );
  }

  /** With aliases Reads are answered, and their responses count, before their turn. */
  deliverEarly(segment: Segment): boolean {
    if (this.#placed === null) return false;
    const opcode = segment.ulpControl & RDMAP_CONTROL.OPCODE;
    if (opcode === OPCODE.READ_RESPONSE) return this.#takeResponse(segment) === FINE;
    if (opcode !== OPCODE.READ_REQUEST || segment.payloadLength !== READ_REQUEST_OCTETS) return false;
    if (segment.qn !== QN.READ_REQUEST || !segment.last || segment.mo !== 0) return false;
    if (!this.#endpoint.rights.read || this.#requests.full) return false;
    return this.#deliverReadRequest(segment) === FINE;
  }

  /** A response that names its Read. */
  #takeResponse(segment: Segment): number {
    const placed = this.#placed!;
    const match = placed.match(segment, this.#endpoint.sinkRight);
    if (match === MATCH.NONE)
      return this.#badResponse(placed.wqe, placed.wqe === null ? TERM.DDP_INVALID_STAG : TERM.DDP_BOUNDS);
    const wqe = placed.wqe!;
    if (segment.payloadLength > 0) {
      const { entry } = wqe.sges.first;
      copyOctets(segment, segment.payload, entry!, placed.offset, segment.payloadLength);
    }
    if (match === MATCH.PART) return FINE;
    placed.forget(wqe);
    this.#requests.removeOutstanding(wqe);
    return this.#answered(wqe);
  }

  classify(segment: Segment): number {
    // RDMAP-004
    if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return TERM.RDMAP_VERSION;
    const opcode = segment.ulpControl & RDMAP_CONTROL.OPCODE;
    const row = OPCODE_TABLE[opcode];
    // RDMAP-005, EXT-001: without RFC 7306 its opcodes are as unknown as the unassigned ones.
    if (row === undefined || (row.extension && !this.#endpoint.extensions))
      return TERM.RDMAP_UNEXPECTED_OPCODE;
    if (row.tagged !== segment.tagged) return TERM.RDMAP_UNEXPECTED_OPCODE; // RDMAP-007
    this.segments++;
    // tagged, or for the ULP; not requests and Terminates
    if (row.qn <= QN.SEND) this.payloadOctets += segment.payloadLength;
    if (segment.last) countReceived(this.messages, opcode);
    if (this.expectedRtr !== null) this.#takeFirst(opcode, segment);
    this.kind = row;
    return row.solicited && segment.placed !== PLACED.DELIVERED ? this.#matchResponse(segment) : FINE;
  }

  /** The first segment of the stream. */
  #takeFirst(opcode: number, segment: Segment): void {
    const kind = this.expectedRtr;
    this.expectedRtr = null;
    if (kind === 'read' && opcode === OPCODE.READ_REQUEST) this.#rtr = kind;
    if (kind === 'send' && opcode === OPCODE.SEND && segment.last && segment.payloadLength === 0)
      this.#rtr = kind;
  }

  // ----------------------------------------------------------------------------------------------- responses

  /**
   * A Read Response must continue exactly the oldest request of ours (RDMAP-047, RDMAP-048, RDMAP-049). Says
   * where its payload goes.
   */
  #matchResponse(segment: Segment): number {
    if (this.#placed !== null) {
      const verdict = this.#takeResponse(segment);
      segment.placed = PLACED.DELIVERED;
      return verdict;
    }
    const wqe = this.#requests.firstOutstanding;
    if (wqe === undefined || (wqe !== null && wqe.kind !== WORK.READ)) return TERM.RDMAP_UNEXPECTED_OPCODE;
    const length = segment.payloadLength;
    if (wqe === null || wqe.total === 0) {
      return length === 0 ? FINE : this.#badResponse(wqe, TERM.DDP_BOUNDS);
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
    const inPlace =
      segment.toHi === addHi(entry.baseHi, entry.baseLo, offset) &&
      segment.toLo === addLo(entry.baseLo, offset);
    if (!inPlace || wqe.received + length > wqe.total) return this.#badResponse(wqe, TERM.DDP_BOUNDS);
    if (segment.last && wqe.received + length < wqe.total) return this.#badResponse(wqe, TERM.DDP_BOUNDS);
    SINK.entry = entry;
    SINK.offset = offset;
    wqe.received += length;
    return FINE;
  }

  /** The request that the response should have answered takes the blame on our side (VERBS-049). */
  #badResponse(wqe: SendWqe | null, code: number): number {
    if (wqe !== null) wqe.status = 'bad-response';
    return code;
  }

  #finishRequest(wqe: SendWqe | null): number {
    this.#requests.shiftOutstanding();
    return this.#answered(wqe);
  }

  #answered(wqe: SendWqe | null): number {
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

  // ------------------------------------------------------------------------------------------------ untagged

  openMessage(segment: Segment): number {
    if (segment.qn === QN.SEND) return this.#openSend();
    if (segment.qn === QN.READ_REQUEST) {
      // VERBS-075, VERBS-142: an Atomic reads too.
      if (!this.#endpoint.rights.read && this.#rtr !== 'read') return TERM.DDP_INVALID_QN;
      return this.#requests.full ? TERM.DDP_MSN_RANGE : FINE; // RDMAP-052, VERBS-074
    }
    if (segment.qn === QN.ATOMIC_RESPONSE) {
      // With aliases Reads in front may still be unanswered; the response names its request.
      const wqe =
        this.#placed === null
          ? this.#requests.firstOutstanding
          : this.#requests.findOutstanding(({ kind }) => kind === WORK.ATOMIC);
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

  bufferUnusable(): number {
    this.#receive!.status = 'local-protection-error';
    return TERM.LOCAL_CATASTROPHIC;
  }

  deliver(segment: Segment, length: number): number {
    switch (this.kind.delivery) {
      case DELIVERY.RECEIVE:
      case DELIVERY.IMMEDIATE:
        return this.#deliverSend(segment, length);
      case DELIVERY.READ_RESPONSE:
        return this.#finishRequest(this.#requests.firstOutstanding!);
      case DELIVERY.READ_REQUEST:
        return this.#deliverReadRequest(segment);
      case DELIVERY.ATOMIC_REQUEST:
        return this.#deliverAtomicRequest(segment);
      case DELIVERY.ATOMIC_RESPONSE:
        return this.#deliverAtomicResponse(segment);
      case DELIVERY.TERMINATE:
        return this.#deliverTerminate(segment, length);
      default:
        return FINE;
    }
  }

  /** RDMAP-079 */
  #deliverTerminate({ bytes, payload }: Segment, length: number): number {
    this.terminate = parseTerminate(bytes, payload, Math.min(length, MAX_TERMINATE_OCTETS));
    return this.terminate === null ? VERDICT.SILENT : FINE;
  }

  #deliverSend(segment: Segment, length: number): number {
    if (this.#rtr === 'send') {
      this.#rtr = null;
      return FINE;
    }
    const wqe = this.#receive!;
    const { kind } = this;
    wqe.byteLength = length;
    wqe.solicited = kind.event;
    if (kind.delivery === DELIVERY.IMMEDIATE) {
      wqe.opcode = 'receive-immediate';
      wqe.hasImmediate = true;
      wqe.immediateHi = getU32(segment.bytes, segment.payload);
      wqe.immediateLo = getU32(segment.bytes, segment.payload + 4);
    } else if (kind.invalidates) {
      const code = this.#invalidateFor(wqe, segment.ulpWord);
      if (code !== FINE) return code | VERDICT.DELIVERED;
    }
    this.#receive = null;
    if (this.#held === null && wqe.invalidated === 0) this.#endpoint.owner.receiveCompleted(wqe);
    else this.#completeLater(wqe);
    return FINE;
  }

  /**
   * Complete a receive whose STag a write may still read in place, or one after it: not before that write is
   * over. The program may change the memory from the completion on, and that is not for the peer (SEC-007).
   */
  #completeLater(wqe: ReceiveWqe): void {
    const memory = wqe.invalidated === 0 ? null : this.#endpoint.stags.find(wqe.invalidated);
    (this.#held ??= []).push({ wqe, memory });
    if (memory !== null && memory.pins > 0) memory.whenUnpinned(() => this.#completeHeld());
    this.#completeHeld();
  }

  #completeHeld(): void {
    const held = this.#held;
    if (held === null) return;
    while (held.length > 0) {
      const { wqe, memory } = held[0]!;
      if (memory !== null && memory.pins > 0) return;
      held.shift();
      this.#endpoint.owner.receiveCompleted(wqe);
    }
    this.#held = null;
  }

  /**
   * RDMAP-066..068. RFC 5040 7.2 (4) wants the STag valid, the verbs draft 7.8 lets one that has been
   * invalidated be invalidated again (VERBS-154). Read together: valid is an STag that this device has given
   * out and not taken back, index and key alike. Such a one is taken whether or not it can be used at
   * present, for two messages may name the same STag and nothing is lost by the second. One that is unknown
   * is 0/1/00, and a known one of another stream or protection domain 0/1/09 (RFC 5040 5.3,
   * protocol-notes 1.3).
   */
  #invalidateFor(wqe: ReceiveWqe, stag: number): number {
    const { stags, pdHandle, number, rights } = this.#endpoint;
    const entry = stags.find(stag);
    let code: number = FINE;
    if (entry === null) code = TERM.RDMAP_INVALID_STAG;
    else if (entry.pd !== pdHandle || (entry.qp !== 0 && entry.qp !== number))
      code = TERM.RDMAP_CANNOT_INVALIDATE;
    else if ((entry.access & REMOTE_ACCESS) === 0 || !(rights.read || rights.write))
      code = TERM.RDMAP_ACCESS; // VERBS-155
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
      const fault = stags.check(
        request.sourceStag,
        request.sourceHi,
        request.sourceLo,
        request.size,
        ACCESS.REMOTE_READ,
        pdHandle,
        number,
      );
      if (fault !== FAULT.NONE) return READ_FAULT_CODES[fault]! | VERDICT.DELIVERED | VERDICT.IN_TURN;
      if (!stags.mayRequest()) return TERM.RDMAP_INVALID_STAG | VERDICT.DELIVERED | VERDICT.IN_TURN;
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
      return TERM.RDMAP_UNEXPECTED_OPCODE | VERDICT.DELIVERED; // EXT-034
    }
    const toHi = u32(ATOMIC_REQUEST.TO);
    const toLo = u32(ATOMIC_REQUEST.TO + 4);
    const fault = stags.check(
      u32(ATOMIC_REQUEST.STAG),
      toHi,
      toLo,
      8,
      ACCESS.REMOTE_ATOMIC,
      pdHandle,
      number,
    );
    // EXT-035
    if (fault !== FAULT.NONE) return READ_FAULT_CODES[fault]! | VERDICT.DELIVERED | VERDICT.IN_TURN;
    // VERBS-142: it would write
    if (!this.#endpoint.rights.write) return TERM.RDMAP_ACCESS | VERDICT.DELIVERED | VERDICT.IN_TURN;
    const target = stags.entry!.bytes;
    const { offset } = stags;
    if (!isAligned(target, offset))
      return TERM.RDMAP_STREAM_CATASTROPHIC | VERDICT.DELIVERED | VERDICT.IN_TURN; // EXT-033
    if (!stags.mayRequest()) return TERM.RDMAP_INVALID_STAG | VERDICT.DELIVERED | VERDICT.IN_TURN;
    const u64 = (field: number): bigint => toBigInt(u32(field), u32(field + 4));
    const original = executeAtomic(target, offset, {
      add: atomic === ATOMIC_OPCODE.FETCH_ADD,
      data: u64(ATOMIC_REQUEST.DATA),
      mask: u64(ATOMIC_REQUEST.MASK),
      compare: u64(ATOMIC_REQUEST.COMPARE),
      compareMask: u64(ATOMIC_REQUEST.COMPARE_MASK),
    });
    stags.answered();
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
    const wqe =
      this.#placed === null
        ? this.#requests.firstOutstanding!
        : this.#requests.findOutstanding(({ kind }) => kind === WORK.ATOMIC)!;
    if (getU32(bytes, payload + ATOMIC_RESPONSE.ID) !== wqe.msn)
      return this.#badResponse(wqe, TERM.DDP_MSN_RANGE); // EXT-049
    if (!wqe.sges.usable(ACCESS.LOCAL_WRITE)) {
      wqe.status = 'local-protection-error';
      return TERM.LOCAL_CATASTROPHIC;
    }
    const hi = getU32(bytes, payload + ATOMIC_RESPONSE.ORIGINAL);
    const lo = getU32(bytes, payload + ATOMIC_RESPONSE.ORIGINAL + 4);
    storeOriginal(wqe.sges.first.bytes, wqe.sges.first.offset, hi, lo);
    if (this.#placed === null) return this.#finishRequest(wqe);
    this.#requests.removeOutstanding(wqe);
    return this.#answered(wqe);
  }

  // -------------------------------------------------------------------------------------------------- ending

  /** The receive that a failed message was filling ends with this status, unless it already has one. */
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
    // Pins of this stream are gone by now, and for those of others nothing waits after the end.
    const held = this.#held ?? [];
    this.#held = null;
    for (const { wqe } of held) owner.receiveCompleted(wqe);
    if (open !== null) {
      if (open.status === 'success') open.status = 'flushed';
      owner.receiveCompleted(open);
    }
    if (!shared) flushReceives(rq, owner);
  }
}
