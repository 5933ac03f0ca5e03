/** Events of the connection manager, named after those of librdmacm. */
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { CloseCause } from '../rdmap/stream-types.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';

/** What the peer's start-up frame says. */
export interface ConnectionParameters {
  /** The peer's private data, in memory of its own. */
  readonly privateData: Uint8Array;
  /** Reads that the peer will serve at a time (ENH-023); undefined if its frame does not say. */
  readonly responderResources: number | undefined;
  /** Reads that the peer wants to have outstanding here; undefined if its frame does not say. */
  readonly initiatorDepth: number | undefined;
  /** MPA revision of the frame (MPA-016). */
  readonly revision: number;
}

/** An event of a connection. */
export type CmEvent =
  /** Active side with `confirm`: the peer accepted. Call `establish()` or `disconnect()`. */
  | { readonly type: 'connect-response'; readonly parameters: ConnectionParameters }
  /** Start-up is complete: the queue pair is in RTS. */
  | { readonly type: 'established'; readonly negotiated: Negotiated; readonly parameters: ConnectionParameters }
  /** The peer answered with R=1 (MPA-033). */
  | { readonly type: 'rejected'; readonly parameters: ConnectionParameters; readonly markersAsked: boolean }
  /** No TCP connection could be made. */
  | { readonly type: 'unreachable'; readonly error: Error }
  /** There was a TCP connection, but start-up failed. */
  | { readonly type: 'connect-error'; readonly reason: StartupFailure }
  /** A Terminate was sent or received; `disconnected` follows. */
  | { readonly type: 'terminate'; readonly terminate: TerminateInfo }
  /** A close has begun, by this side or the peer. Outstanding work will complete or be flushed. */
  | { readonly type: 'closing'; readonly by: 'local' | 'peer' }
  /** The connection has ended, and all work has completed or been flushed. Always the last event. */
  | { readonly type: 'disconnected'; readonly cause: CloseCause; readonly error: Error | undefined; readonly terminate: TerminateInfo | undefined };
