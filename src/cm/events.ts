/** Events of the connection manager, named after those of librdmacm. */
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { CloseCause } from '../stream/types.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';

/** The parameters in the peer's start-up frame. */
export interface ConnectionParameters {
  /** The peer's private data, in its own memory. */
  readonly privateData: Uint8Array;
  /**
   * Reads and atomics that the peer wants to have outstanding here, as in rdma_get_cm_event(3): it matches
   * the peer's initiator depth. Undefined if its frame does not say (ENH-023). At most the device's limit, so
   * that it can be handed to `accept` as `responderResources`.
   */
  readonly responderResources: number | undefined;
  /**
   * Reads and atomics that may be outstanding at the peer: it matches the peer's responder resources. It can
   * be handed to `accept` as `initiatorDepth`.
   */
  readonly initiatorDepth: number | undefined;
  /** MPA revision of the frame (MPA-016). */
  readonly revision: number;
}

/** An event of a connection. */
export type CmEvent =
  /** Active side with `confirm`: the peer accepted. Call `establish()` or `disconnect()`. */
  | { readonly type: 'connect-response'; readonly parameters: ConnectionParameters }
  /** Start-up is complete: the queue pair is in RTS. */
  | {
      readonly type: 'established';
      readonly negotiated: Negotiated;
      readonly parameters: ConnectionParameters;
    }
  /**
   * The peer answered with R=1 (MPA-033); or, with `error`, TCP was refused, or reset or closed before the
   * connection was established, as rdma_cm reports it. Then `parameters` are empty, and `reason` says how
   * far it came: to `connect`, or into a start-up that ended so.
   */
  | {
      readonly type: 'rejected';
      readonly parameters: ConnectionParameters;
      readonly markersAsked: boolean;
      readonly reason: StartupFailure | 'connect' | undefined;
      readonly status: string | undefined;
      readonly error: Error | undefined;
    }
  /** The TCP connection timed out (reason `connect`), or the peer's answer to our Request did (`timeout`). */
  | {
      readonly type: 'unreachable';
      readonly reason: StartupFailure | 'connect';
      readonly status: string;
      readonly error: Error;
    }
  /** The peer's or the local address cannot be used (rdma_resolve_addr, rdma_bind_addr). */
  | { readonly type: 'address-error'; readonly status: string; readonly error: Error }
  /**
   * There was a TCP connection, but start-up failed in another way; or, with the reason `connect`, TCP did.
   * `status` is the system's code, or the one that stands for the reason: EPROTO. On the passive side each
   * failed start-up is reported so, as ETIMEDOUT, ECONNRESET or EPROTO: no peer has rejected it.
   */
  | {
      readonly type: 'connect-error';
      readonly reason: StartupFailure | 'connect';
      readonly status: string | undefined;
      readonly error: Error;
    }
  /** A Terminate was sent or received; `disconnected` follows. */
  | { readonly type: 'terminate'; readonly terminate: TerminateInfo }
  /** A close has begun, by this side or the peer. Outstanding work will complete or be flushed. */
  | { readonly type: 'closing'; readonly by: 'local' | 'peer' }
  /**
   * The connection has ended, and all work has completed or been flushed. Always the last event, also of a
   * connection that could not be made.
   */
  | {
      readonly type: 'disconnected';
      readonly cause: CloseCause;
      readonly error: Error | undefined;
      readonly terminate: TerminateInfo | undefined;
    };
