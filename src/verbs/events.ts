/** Asynchronous events: those that no completion reports (verbs draft 8.3.3, figure 37). */
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { CompletionQueue } from './cq.ts';
import type { DatagramQueuePair } from './datagram-qp.ts';
import type { Device } from './device.ts';
import type { QueuePair } from './qp.ts';
import type { SharedReceiveQueue } from './srq.ts';

/** An event with the resource it concerns. */
export type AsyncEvent =
  /** The peer's Terminate ended the stream. */
  | { readonly type: 'terminate-received'; readonly qp: QueuePair; readonly terminate: TerminateInfo }
  /** An error found here ended the stream; the Terminate says which. */
  | { readonly type: 'terminate-sent'; readonly qp: QueuePair; readonly terminate: TerminateInfo }
  /** A close is under way; `by` says whose. */
  | { readonly type: 'llp-closing'; readonly qp: QueuePair; readonly by: 'local' | 'peer' }
  /** The close is complete and the queue pair idle again. */
  | { readonly type: 'llp-close-complete'; readonly qp: QueuePair }
  /** Data arrived after our FIN, or work was cut off. */
  | { readonly type: 'bad-close'; readonly qp: QueuePair }
  /** The connection was lost, or a close took too long or ended in a reset. */
  | { readonly type: 'llp-connection-lost'; readonly qp: QueuePair; readonly error: Error | undefined }
  /** The connection was reset, by the peer or here, without a close. */
  | { readonly type: 'llp-connection-reset'; readonly qp: QueuePair; readonly error: Error | undefined }
  /** The completion queue was full, so a completion was lost (VERBS-010). */
  | { readonly type: 'cq-overflow'; readonly cq: CompletionQueue; readonly qp: QueuePair }
  /** The completion queue was full, so a completion of a datagram queue pair was lost. */
  | { readonly type: 'datagram-cq-overflow'; readonly cq: CompletionQueue; readonly qp: DatagramQueuePair }
  /** Fewer entries than the armed limit are left (VERBS-133). */
  | { readonly type: 'srq-limit'; readonly srq: SharedReceiveQueue }
  /** The shared receive queue has failed (VERBS-137). */
  | { readonly type: 'srq-catastrophic'; readonly srq: SharedReceiveQueue }
  /**
   * A queue pair with a shared receive queue has ended: it takes no further receive, and the completions of
   * those that it has taken are in its completion queue (IBV_EVENT_QP_LAST_WQE_REACHED).
   */
  | { readonly type: 'last-wqe-reached'; readonly qp: QueuePair }
  /** More receives than the armed limit are taken by messages and not polled (VERBS-134). */
  | { readonly type: 'rq-limit'; readonly qp: QueuePair }
  /** The device has failed, and every stream has been ended (VERBS-177). */
  | { readonly type: 'device-fatal'; readonly device: Device };
