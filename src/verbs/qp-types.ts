/** Types of a queue pair: its options, changes and attributes; and the interface of its connection. */
import type { Negotiated } from '../mpa/policy.ts';
import type { StreamCounters } from '../stream/types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { CompletionQueue } from './cq.ts';
import type { QpState } from './qp-states.ts';
import type { SharedReceiveQueue } from './srq.ts';

/** Options of {@link ProtectionDomain.createQp}. */
export interface QueuePairOptions {
  /** Completion queue for requests; a queue of the same device. */
  readonly sendCq: CompletionQueue;
  /** Completion queue for receives; may be the same one. */
  readonly recvCq: CompletionQueue;
  /** Entries of the send queue. Default 128. */
  readonly maxSendWr?: number | undefined;
  /**
   * Entries of the receive queue. Default 128; 0 for a queue pair that never receives. Ignored with `srq`
   * (VERBS-127).
   */
  readonly maxRecvWr?: number | undefined;
  /** Scatter/gather elements of a Send or Write. Default 4. */
  readonly maxSendSge?: number | undefined;
  /** Scatter/gather elements of a receive. Default 4. Ignored with `srq`. */
  readonly maxRecvSge?: number | undefined;
  /** Largest inline data, bytes. Default 256. */
  readonly maxInline?: number | undefined;
  /** Take receives from this shared receive queue. */
  readonly srq?: SharedReceiveQueue | undefined;
  /** Whether requests without `signaled` report success with a completion. Default true. */
  readonly signalAll?: boolean | undefined;
  /**
   * Whether the peer may write (VERBS-142). Default true: regions grant access, queue pairs can only forbid
   * it.
   */
  readonly inboundWrite?: boolean | undefined;
  /** Whether the peer may read. Default true. */
  readonly inboundRead?: boolean | undefined;
  /** Accept RFC 7306 opcodes. Default true. */
  readonly extensions?: boolean | undefined;
  /**
   * Reads and atomics that the peer may have outstanding here (IRD); start-up may negotiate less. Default:
   * the device's limit (VERBS-018).
   */
  readonly ird?: number | undefined;
  /**
   * Reads and atomics that we may have outstanding at the peer (ORD); start-up may negotiate less. Default:
   * the device's limit.
   */
  readonly ord?: number | undefined;
  /** Whether memory windows may be bound through this queue pair. Default true. */
  readonly allowBind?: boolean | undefined;
  /** Whether regions may be registered through this queue pair. Default true. */
  readonly allowFastRegister?: boolean | undefined;
  /**
   * Right that the sink of a Read needs. The verbs draft wants `remote-write`, because a Read Response is
   * placed like a Write (VERBS-087). With the default, `local-write`, the sink need not be open to the peer's
   * Writes.
   */
  readonly readSink?: 'local-write' | 'remote-write' | undefined;
  /**
   * Raise one `rq-limit` event when more receives than this are taken by messages and not polled. Default 0:
   * never (VERBS-134).
   */
  readonly rqLimit?: number | undefined;
  /** Anything the program wants to find at the queue pair again (qp_context). */
  readonly context?: unknown;
}

/** Changes by {@link QueuePair.modify}. */
export interface QpChange {
  /** New state. `rts` is only accepted in RTS: connecting or accepting leads there. */
  readonly state?: QpState | undefined;
  /** New outbound read depth; it can only be lowered (VERBS-024). */
  readonly ord?: number | undefined;
  /** New depth of the send queue, not below the entries in use (VERBS-025). */
  readonly maxSendWr?: number | undefined;
  /** New depth of the receive queue, not below the entries in use; not with a shared receive queue. */
  readonly maxRecvWr?: number | undefined;
  /** Arm the receive limit again (VERBS-134). */
  readonly rqLimit?: number | undefined;
}

/** The functions that a queue pair calls on the connection that carries it. */
export interface QpController {
  /** Requests were posted, `requests` Reads and atomics among them. */
  kick(requests: number): void;
  close(): void;
  terminate(code: number): void;
  abort(): void;
  readonly ord: number;
  setOrd(ord: number): void;
  counters(): StreamCounters;
}

/** Result of {@link QueuePair.query}. */
export interface QpAttributes {
  /** Number of the queue pair on its device. */
  readonly number: number;
  /** State (verbs draft 6.2). */
  readonly state: QpState;
  /** Entries of the send queue. */
  readonly maxSendWr: number;
  /** Entries of the receive queue. */
  readonly maxRecvWr: number;
  /** Scatter/gather elements of a Send or Write. */
  readonly maxSendSge: number;
  /** Scatter/gather elements of a receive. */
  readonly maxRecvSge: number;
  /** Largest inline data, bytes. */
  readonly maxInline: number;
  /** Reads and atomics that the peer may have outstanding here (IRD). */
  readonly ird: number;
  /** Reads and atomics that we may have outstanding at the peer (ORD). */
  readonly ord: number;
  /** Requests posted and not completed. */
  readonly sendOutstanding: number;
  /** Receives posted and not taken by a message; with a shared receive queue, those of the shared queue. */
  readonly recvPosted: number;
  /** Receives that messages of this queue pair have taken since it was made (SEC-027). */
  readonly recvTaken: number;
  /** Receives of `recvTaken` whose completion has not been polled yet. */
  readonly recvInProgress: number;
  /** The armed receive limit; 0 if it has fired or none is set. */
  readonly rqLimit: number;
  /** Whether requests without `signaled` report success with a completion. */
  readonly signalAll: boolean;
  /** Whether the peer may write. */
  readonly inboundWrite: boolean;
  /** Whether the peer may read. */
  readonly inboundRead: boolean;
  /** Whether RFC 7306 opcodes are accepted. */
  readonly extensions: boolean;
  /** Whether the peer supports RFC 7306, as set by {@link QueuePair.setPeerExtensions}. */
  readonly peerExtensions: boolean | undefined;
  /** Number of memory windows bound through it. */
  readonly boundWindows: number;
  /** The Terminate sent or received, in states Terminate and Error (VERBS-029). */
  readonly terminate: TerminateInfo | undefined;
  /** Results of start-up; undefined without a connection. */
  readonly negotiated: Negotiated | undefined;
}
