/** Configuration, events and counters of an RDMA stream. */
import type { Negotiated, Role, StartupFailure, StartupRejection, StartupRequest } from '../llp/startup.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import type { MessageCounters } from '../rdmap/message-counters.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';

export type { MessageCounters };

/** How a stream ended. */
export type CloseCause =
  | 'graceful'
  | 'terminated'
  | 'reset'
  | 'lost'
  | 'timeout'
  | 'bad-close'
  | 'rejected'
  | 'startup-failed';

/** Rare happenings, as objects; completions go straight to their queue. */
export type StreamEvent =
  /** Responder: a good Request is here; `accept` or `reject` it. */
  | { readonly type: 'request'; readonly request: StartupRequest }
  /** Initiator with `confirm`: a good accepting Reply is here; `confirm` or `close` (MPA-035). */
  | { readonly type: 'response'; readonly negotiated: Negotiated; readonly privateData: Uint8Array }
  | { readonly type: 'established'; readonly negotiated: Negotiated; readonly privateData: Uint8Array }
  | ({ readonly type: 'rejected' } & StartupRejection)
  | { readonly type: 'startup-failed'; readonly reason: StartupFailure }
  /** A Terminate was sent (`origin` local) or received (remote). */
  | { readonly type: 'terminate'; readonly terminate: TerminateInfo }
  /** A graceful close has begun. */
  | { readonly type: 'closing'; readonly by: 'local' | 'peer' }
  /** The end: every work request has been completed or flushed; nothing follows. */
  | { readonly type: 'closed'; readonly cause: CloseCause; readonly error: Error | undefined };

/** The part of a connection's policy that holds whatever its lower layer is. */
type StreamPolicy = Pick<
  ConnectionPolicy,
  'closeTimeout' | 'closeLimit' | 'responder' | 'responderDelay' | 'silentPeerNudge' | 'interleave'
>;

export interface StreamConfig {
  readonly role: Role;
  readonly policy: StreamPolicy;
  /** Initiator: hold an accepting Reply for the user's word. */
  readonly confirm?: boolean;
  /**
   * MSN of the first message of each queue in either direction, but that of Terminates. RFC 5041 says 1
   * (DDP-014); both sides of a test may agree on one that is near the wrap (DDP-015).
   */
  readonly firstMsn?: number;
  /** Reads are answered and complete in whatever order, by aliases of their sinks. Default: in order. */
  readonly placedReads?: boolean;
}

/** The driver's next action on the port besides writing. */
export type PortAction = 'none' | 'end' | 'reset' | 'pause' | 'resume';

/** Counters since the stream began. */
export interface StreamCounters {
  /** FPDUs received with a good CRC. */
  fpdusIn: number;
  /** FPDUs handed to TCP. */
  fpdusOut: number;
  /** Payload octets of messages received, without headers, markers and CRC. */
  payloadIn: number;
  /** Payload octets of messages sent. */
  payloadOut: number;
  /** Octets received from TCP, start-up frames included. */
  octetsIn: number;
  /** Octets sent to TCP, start-up frames included. */
  octetsOut: number;
  /** Messages received. */
  readonly messagesIn: MessageCounters;
  /** Messages sent. */
  readonly messagesOut: MessageCounters;
  /** FPDUs with a wrong CRC; the first ends the stream (Terminate 2/0/02). */
  crcErrors: number;
  /** Markers that do not point at the start of their FPDU; the first ends the stream (Terminate 2/0/03). */
  markerErrors: number;
  /** Zero-length RDMA Writes sent to a peer that stayed silent ({@link ConnectionPolicy.silentPeerNudge}). */
  nudges: number;
}
