/** Events of the connection manager, named after librdmacm's. */
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { CloseCause } from '../rdmap/stream-types.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';

/** What the peer offered in its start-up frame. */
export interface ConnectionParameters {
  /** The peer's private data; its own memory. */
  readonly privateData: Uint8Array;
  /** The peer's inbound and outbound read depths (ENH-023); undefined where its frame did not say. */
  readonly responderResources: number | undefined;
  /** Reads that the peer wants to have outstanding here; undefined where its frame did not say. */
  readonly initiatorDepth: number | undefined;
  /** MPA revision of the frame (MPA-016). */
  readonly revision: number;
}

/** What happens to a connection. */
export type CmEvent =
  /** Active side with `confirm`: the peer accepted; `establish()` or `disconnect()`. */
  | { readonly type: 'connect-response'; readonly parameters: ConnectionParameters }
  /** Start-up is through: the queue pair is in RTS. */
  | { readonly type: 'established'; readonly negotiated: Negotiated; readonly parameters: ConnectionParameters }
  /** The peer answered with R=1 (MPA-033). */
  | { readonly type: 'rejected'; readonly parameters: ConnectionParameters; readonly markersAsked: boolean }
  /** No TCP connection could be made. */
  | { readonly type: 'unreachable'; readonly error: Error }
  /** TCP was there, but start-up failed. */
  | { readonly type: 'connect-error'; readonly reason: StartupFailure }
  /** A Terminate was sent or received; `disconnected` follows. */
  | { readonly type: 'terminate'; readonly terminate: TerminateInfo }
  /** A close has begun, by whom it says; work still out will complete or be flushed. */
  | { readonly type: 'closing'; readonly by: 'local' | 'peer' }
  /** The end of an established connection; everything has been completed or flushed. Always the last event. */
  | { readonly type: 'disconnected'; readonly cause: CloseCause; readonly error: Error | undefined; readonly terminate: TerminateInfo | undefined };
