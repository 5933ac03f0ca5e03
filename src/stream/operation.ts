/**
 * Full operation of one stream: the parts of the data path in both directions, made together when start-up
 * has settled how they work, each from its initial state (RDMAP-096); and what their errors call for.
 */
import { FINE, TERM } from '../base/terminate-codes.ts';
import { codeOf, isDelivered, isSilent, VERDICT } from '../base/verdict.ts';
import { PlacingReceiver } from '../ddp/placing-receiver.ts';
import { OrderedReceiver } from '../ddp/receiver.ts';
import {
  FIRST_MSN,
  getU32,
  QN,
  UNTAGGED_HEADER_OCTETS,
  UNTAGGED_MSN_OFFSET,
  UNTAGGED_QN_OFFSET,
} from '../ddp/wire.ts';
import type { LowerLayer, LowerLayerUser } from '../llp/lower-layer.ts';
import type { Negotiated } from '../llp/startup.ts';
import { noMessages } from '../rdmap/counters.ts';
import type { InputClock } from '../rdmap/read-bound.ts';
import { Requests } from '../rdmap/reads.ts';
import { Receiver, type Requester } from '../rdmap/receiver.ts';
import { Sender } from '../rdmap/sender.ts';
import type { StreamConfig } from './types.ts';
import { terminateForSegment, type TerminateInfo } from '../rdmap/terminate.ts';
import { OPCODE, RDMAP_CONTROL } from '../rdmap/wire.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';

/** The stream, as its operation knows it. */
export interface OperationOwner extends Requester, InputClock {
  /** A transmission is done, and the work that it carried. */
  transmissionDone(): void;
}

export class StreamOperation implements LowerLayerUser {
  readonly #stream: OperationOwner;
  readonly ddp: OrderedReceiver;
  readonly receiver: Receiver;
  readonly sender: Sender;

  constructor(
    config: StreamConfig,
    negotiated: Negotiated,
    endpoint: StreamEndpoint,
    llp: LowerLayer,
    stream: OperationOwner,
  ) {
    this.#stream = stream;
    const { policy, firstMsn = FIRST_MSN, placedReads = false } = config;
    const version = negotiated.ddpVersion;
    const parts = {
      llp,
      version,
      ord: Math.min(negotiated.ord, endpoint.maxOrd),
      interleave: policy.interleave,
      endpoint,
      requests: new Requests(negotiated.ird, negotiated.autoOrd ? stream : null),
      requester: stream,
      messages: noMessages(),
      firstMsn,
      placedReads,
    };
    this.sender = new Sender(parts);
    this.receiver = new Receiver(parts);
    this.ddp = llp.inOrder
      ? new OrderedReceiver(this.receiver, version, firstMsn)
      : new PlacingReceiver(this.receiver, version, firstMsn);
    if (!llp.responderWaits || negotiated.role === 'initiator') {
      this.sender.mayTransmit = true;
      this.sender.rtr = negotiated.rtr;
    } else {
      this.receiver.expectedRtr = negotiated.rtr;
    }
  }

  /**
   * One valid ULPDU, through DDP and RDMAP. The result goes back through the lower layer to the stream,
   * which judges it: the first verdict other than FINE ends reception.
   */
  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    this.sender.mayTransmit = true; // MPA-028, MPA-029: any valid FPDU opens the responder's direction
    return this.#judge(this.ddp.handleUlpdu(bytes, start, length));
  }

  mulpduFell(sizes: Pick<LowerLayer, 'mulpdu' | 'payloadLimit'>): void {
    this.sender.measure(sizes);
  }

  /** The segment of a lower layer that gives some before their turn: see `LowerLayerUser`. */
  placeEarly(bytes: Uint8Array, start: number, length: number): number {
    return (this.ddp as PlacingReceiver).placeEarly(bytes, start, length);
  }

  handlePlaced(header: Uint8Array, payload: number, delivered: boolean): number {
    return this.#judge((this.ddp as PlacingReceiver).handlePlaced(header, payload, delivered));
  }

  #judge(verdict: number): number {
    if (verdict !== FINE) return verdict | VERDICT.SEGMENT;
    return this.receiver.terminate === null ? FINE : VERDICT.STOP;
  }

  /** The lower layer has done its part for the oldest transmission. */
  transmissionDone(): void {
    this.sender.transmissionDone();
    this.#stream.transmissionDone();
  }

  /** The Terminate for an error on the segment handled last; null if the stream ends without an answer. */
  terminateFor(verdict: number): TerminateInfo | null {
    const { segment } = this.ddp;
    // RDMAP-081: a segment that calls itself a Terminate and is malformed is never answered.
    const isTerminate = (segment.ulpControl & RDMAP_CONTROL.OPCODE) === OPCODE.TERMINATE;
    if (isSilent(verdict) || (isTerminate && codeOf(verdict) !== TERM.RDMAP_VERSION)) return null;
    this.receiver.failOpenReceive(codeOf(verdict));
    return terminateForSegment(codeOf(verdict), segment, isDelivered(verdict));
  }

  /** VERBS-112: the Read or Atomic that a Terminate of the peer names completes with its reason. */
  blame(terminate: TerminateInfo): void {
    const header = terminate.ddpHeader;
    if (header === undefined || header.length < UNTAGGED_HEADER_OCTETS) return;
    if (getU32(header, UNTAGGED_QN_OFFSET) !== QN.READ_REQUEST) return;
    const wqe = this.sender.requestWithMsn(getU32(header, UNTAGGED_MSN_OFFSET));
    if (wqe !== null)
      wqe.status =
        terminate.layer === 0 && terminate.type === 1 ? 'remote-access-error' : 'remote-operation-error';
  }
}
