/**
 * The fixed parts of a queue pair: its options, its queues, and the view of them that a stream has
 * (`StreamEndpoint`). It is the base of {@link QueuePair} and no object beside it, for each idle connection
 * has one.
 */
import type { StagTable } from '../ddp/stag-table.ts';
import { ReceiveQueue, SendQueue, type ReceiveWqe, type SendWqe, type WorkOwner } from '../queues/work.ts';
import type { CompletionQueue } from './cq.ts';
import type { ProtectionDomain } from './pd.ts';
import type { PostLimits } from './post.ts';
import type { CheckedQpOptions } from './qp-options.ts';
import type { SharedReceiveQueue } from './srq.ts';
import type { InboundRights } from '../queues/endpoint.ts';

/** The parts of a {@link QueuePair} that do not change: its domain, number and queues. */
export abstract class QpEndpoint {
  // A StreamEndpoint and a WorkOwner to the stream.
  /** The protection domain; its regions and windows can be used here. */
  readonly pd: ProtectionDomain;
  /** Number of the queue pair on its device, as completions tell it. */
  readonly number: number;
  /** @internal */
  readonly sq: SendQueue;
  /** @internal */
  readonly rq: ReceiveQueue;
  /** @internal The same object for all queue pairs in a row that were made alike. */
  protected readonly options: CheckedQpOptions;
  /** @internal */
  abstract readonly maxOrd: number;

  /** @internal */
  constructor(pd: ProtectionDomain, options: CheckedQpOptions, number: number) {
    this.pd = pd;
    this.options = options;
    this.number = number;
    this.sq = new SendQueue(options.sendDepth);
    this.rq = options.srq === null ? new ReceiveQueue(options.recvDepth) : options.srq.queue;
  }

  /** Where requests complete. */
  get sendCq(): CompletionQueue {
    return this.options.sendCq;
  }

  /** Where receives complete. */
  get recvCq(): CompletionQueue {
    return this.options.recvCq;
  }

  /** The shared receive queue, if it has one. */
  get srq(): SharedReceiveQueue | null {
    return this.options.srq;
  }

  /** @internal What posts are checked against. */
  get limits(): PostLimits {
    return this.options;
  }

  /** @internal */
  get stags(): StagTable {
    return this.pd.device.stags;
  }

  /** @internal */
  get pdHandle(): number {
    return this.pd.handle;
  }

  /** @internal */
  get rqShared(): boolean {
    return this.options.srq !== null;
  }

  /** @internal */
  get rights(): InboundRights {
    return this.options.rights;
  }

  /** @internal */
  get extensions(): boolean {
    return this.options.extensions;
  }

  /** @internal */
  get sinkRight(): number {
    return this.options.sinkRight;
  }

  /** @internal */
  get owner(): WorkOwner {
    return this;
  }

  /** @internal */
  abstract sendCompleted(wqe: SendWqe): void;
  /** @internal */
  abstract receiveTaken(): void;
  /** @internal */
  abstract receiveCompleted(wqe: ReceiveWqe): void;
}
