/** A queue pair as the protocol below it sees it: its queues, its STags and the rights of the peer. */
import type { StagTable } from '../ddp/stag-table.ts';
import type { ReceiveQueue, SendQueue, WorkOwner } from './work.ts';

/** Rights of a peer at this queue pair; those that regions grant are needed as well (VERBS-142). */
export interface InboundRights {
  readonly write: boolean;
  readonly read: boolean;
}

/** The queue pair, as the stream sees it. */
export interface StreamEndpoint {
  readonly stags: StagTable;
  /** Of its protection domain. */
  readonly pdHandle: number;
  /** Of the queue pair on its device. */
  readonly number: number;
  readonly sq: SendQueue;
  readonly rq: ReceiveQueue;
  /** The receive queue is shared: its unused entries outlive the stream. */
  readonly rqShared: boolean;
  readonly rights: InboundRights;
  /** RFC 7306 opcodes are accepted. */
  readonly extensions: boolean;
  readonly owner: WorkOwner;
  /**
   * Reads and atomics that the queue pair may have outstanding, whatever start-up allows (VERBS-018,
   * VERBS-024).
   */
  readonly maxOrd: number;
  /** Right that the sink of a Read must grant (VERBS-087). */
  readonly sinkRight: number;
}
