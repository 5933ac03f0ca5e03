/** What a queue pair is made from, asked for and answers: options, changes, attributes; and what it asks of its connection. */
import type { Negotiated } from '../mpa/policy.ts';
import type { StreamCounters } from '../rdmap/stream-types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { CompletionQueue } from './cq.ts';
import type { QpState } from './qp-states.ts';
import type { SharedReceiveQueue } from './srq.ts';

/** Options of {@link ProtectionDomain.createQp}. */
export interface QueuePairOptions {
  /** Where requests complete; a queue of the same device. */
  readonly sendCq: CompletionQueue;
  /** Where receives complete; may be the same one. */
  readonly recvCq: CompletionQueue;
  /** Entries of each queue; with `srq` the receive queue is the shared one (VERBS-127). */
  readonly maxSendWr?: number | undefined;
  /** Entries of the receive queue. Default 128. */
  readonly maxRecvWr?: number | undefined;
  /** Elements of a Send or Write. Default 4. */
  readonly maxSendSge?: number | undefined;
  /** Elements of a receive. Default 4. */
  readonly maxRecvSge?: number | undefined;
  /** Largest inline data, octets. */
  readonly maxInline?: number | undefined;
  /** Take receives from this shared queue instead of an own one. */
  readonly srq?: SharedReceiveQueue | undefined;
  /** Whether a request without `signaled` gives a completion on success. Default true. */
  readonly signalAll?: boolean | undefined;
  /** Let the peer write, read (VERBS-142). Both default to true: regions grant, queue pairs may forbid. */
  readonly inboundWrite?: boolean | undefined;
  /** Let the peer read. Default true. */
  readonly inboundRead?: boolean | undefined;
  /** Accept RFC 7306 opcodes. Default true. */
  readonly extensions?: boolean | undefined;
  /** Reads and atomics of the peer (IRD) and of ours (ORD) at a time; start-up may settle on less. Default: the device's limits (VERBS-018). */
  readonly ird?: number | undefined;
  /** Reads and atomics of ours at a time. Default: the device's limit. */
  readonly ord?: number | undefined;
  /** Let memory windows be bound, regions be registered, through this queue pair. Both default to true. */
  readonly allowBind?: boolean | undefined;
  /** Let regions be registered through this queue pair. Default true. */
  readonly allowFastRegister?: boolean | undefined;
  /**
   * Right that the sink of a Read needs. The verbs draft asks for `remote-write`, since a Read Response is placed like a Write (VERBS-087);
   * the default `local-write` does not make a user open the sink to the peer's Writes.
   */
  readonly readSink?: 'local-write' | 'remote-write' | undefined;
  /** Raise one `rq-limit` event when more messages than this have taken a receive and not been polled; 0 for none (VERBS-134). */
  readonly rqLimit?: number | undefined;
}

/** What {@link QueuePair.modify} changes. */
export interface QpChange {
  /** `rts` is only for a queue pair that is in it: connecting or accepting brings it there. */
  readonly state?: QpState | undefined;
  /** May be lowered (VERBS-024). */
  readonly ord?: number | undefined;
  /** Depths; not below the entries in use (VERBS-025). The receive queue's only without a shared one. */
  readonly maxSendWr?: number | undefined;
  /** Depth of the receive queue. */
  readonly maxRecvWr?: number | undefined;
  /** Arms the receive limit again (VERBS-134). */
  readonly rqLimit?: number | undefined;
}

/** What a queue pair asks of the connection that carries it. */
export interface QpController {
  kick(): void;
  close(): void;
  terminate(code: number): void;
  abort(): void;
  readonly ord: number;
  setOrd(ord: number): void;
  /** Another thread works the queues off: only it may flush them as long as the connection lives. */
  readonly elsewhere: boolean;
  counters(): StreamCounters;
}

/** The answer of {@link QueuePair.query}. */
export interface QpAttributes {
  /** Number of the queue pair on its device. */
  readonly number: number;
  /** State (verbs draft 6.2). */
  readonly state: QpState;
  /** Entries of the send queue. */
  readonly maxSendWr: number;
  /** Entries of the receive queue. */
  readonly maxRecvWr: number;
  /** Elements of a Send or Write. */
  readonly maxSendSge: number;
  /** Elements of a receive. */
  readonly maxRecvSge: number;
  /** Largest inline data, octets. */
  readonly maxInline: number;
  /** Reads and atomics of the peer at a time. */
  readonly ird: number;
  /** Reads and atomics of ours at a time. */
  readonly ord: number;
  /** Requests posted and not completed. */
  readonly sendOutstanding: number;
  /** Receives posted and not taken; with a shared receive queue, those of all its queue pairs. */
  readonly recvPosted: number;
  /** Receives that messages of this queue pair have taken, ever and not yet polled (SEC-027). */
  readonly recvTaken: number;
  /** Of these, the receives that have not been polled yet. */
  readonly recvInProgress: number;
  /** The armed receive limit; 0 when it has fired or none is set. */
  readonly rqLimit: number;
  /** Requests without `signaled` give a completion on success. */
  readonly signalAll: boolean;
  /** The peer may write. */
  readonly inboundWrite: boolean;
  /** The peer may read. */
  readonly inboundRead: boolean;
  /** RFC 7306 opcodes are accepted. */
  readonly extensions: boolean;
  /** Whether the peer has RFC 7306, as far as {@link QueuePair.setPeerExtensions} was told. */
  readonly peerExtensions: boolean | undefined;
  /** Memory windows bound through it. */
  readonly boundWindows: number;
  /** The Terminate sent or received, in states Terminate and Error (VERBS-029). */
  readonly terminate: TerminateInfo | undefined;
  /** What start-up settled; undefined without a connection. */
  readonly negotiated: Negotiated | undefined;
}
