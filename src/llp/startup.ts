/**
 * Requests and results of the start-up of any lower layer, whatever frames it exchanges: read depths, the
 * model of the connection, the reason of a failure. RFC 5044 7.1 and RFC 6581 9 for MPA.
 */

// The union is written out for the API reference, as in queues/completion.ts.
/** The three kinds of ready-to-receive message (RFC 6581 9.2), each of zero length. */
export const RTR_KINDS: readonly RtrKind[] = ['write', 'read', 'send'];
/** A kind of RTR message (RFC 6581 8). */
export type RtrKind = 'write' | 'read' | 'send';

/** Which side speaks first: the initiator sends the start-up request. */
export type Role = 'initiator' | 'responder';

/**
 * Read depths that the program and the queue pair ask for. An undefined one is left to the policy and to the
 * peer.
 */
export interface DepthRequest {
  readonly ird?: number | undefined;
  readonly ord?: number | undefined;
  /**
   * Limits of the queue pair (VERBS-018): neither the policy nor the peer raises a depth above them.
   */
  readonly maxIrd?: number | undefined;
  readonly maxOrd?: number | undefined;
}

/**
 * The result of start-up. It does not change while the connection lives, except ORD, which a program may
 * lower.
 */
export interface Negotiated {
  /** Our side of the start-up; the initiator speaks first. */
  readonly role: 'initiator' | 'responder';
  /** MPA revision in force: that of the responder's Reply. */
  readonly revision: number;
  /** Both frames had the enhanced format (RFC 6581). */
  readonly enhanced: boolean;
  /** CRC is generated and checked in both directions (MPA-054). */
  readonly crc: boolean;
  /** We put markers into our FPDUs, because the peer asked for them. */
  readonly sendMarkers: boolean;
  /** The peer puts markers into its FPDUs, because we asked for them. */
  readonly receiveMarkers: boolean;
  /** Reads and atomics of the peer that we serve at a time (IRD). */
  readonly ird: number;
  /** Reads and atomics that we may have outstanding at the peer (ORD). */
  readonly ord: number;
  /** The ORD is `auto` in the policy, with its bound on bytes for a peer that is near. */
  readonly autoOrd: boolean;
  /** The peer's inbound read depth, as in its frame (ENH-023); undefined without the enhanced format. */
  readonly peerIrd: number | undefined;
  /** The peer's outbound read depth, as in its frame. */
  readonly peerOrd: number | undefined;
  /** The RTR message that lets the responder send; null in the client-server model. */
  readonly rtr: RtrKind | null;
  /** DDP and RDMAP version on this connection (MPA-092): 0 only in the RDMA Consortium mode. */
  readonly ddpVersion: 0 | 1;
}

/**
 * Why start-up failed. Reasons that lie in a frame are MPA error 4 (RFC 5044 8), which closes TCP at once
 * without a Terminate (MPA-111, MPA-112). `tls-record`: a bad key that begins as
 * TLS does. `displaced`: the listener was full, and this was the oldest connection that had not sent its
 * whole request (SEC-033).
 */
export const STARTUP_FAILURES: readonly StartupFailure[] = [
  'bad-key',
  'tls-record',
  'private-data-too-long',
  'unusable-revision',
  'enhanced-data-missing',
  'truncated',
  'reset',
  'timeout',
  'markers-refused',
  'extra-octets',
  'displaced',
];
/** Why a start-up failed. */
export type StartupFailure =
  | 'bad-key'
  | 'tls-record'
  | 'private-data-too-long'
  | 'unusable-revision'
  | 'enhanced-data-missing'
  | 'truncated'
  | 'reset'
  | 'timeout'
  | 'markers-refused'
  | 'extra-octets'
  | 'displaced';

/** A good request of a peer: the program accepts or rejects it. */
export interface StartupRequest {
  readonly revision: number;
  readonly privateData: Uint8Array;
  /** The peer's inbound read depth; undefined if the request does not name one. */
  readonly peerIrd: number | undefined;
  /** The peer's outbound read depth. */
  readonly peerOrd: number | undefined;
}

/** A rejecting reply of a peer. */
export interface StartupRejection {
  readonly revision: number;
  readonly privateData: Uint8Array;
  readonly peerIrd: number | undefined;
  readonly peerOrd: number | undefined;
  /** The peer refused while we had asked for markers: Linux siw does so. */
  readonly markersAsked: boolean;
}

/** The result of the peer's start-up frame. */
export type StartupVerdict =
  | { readonly kind: 'request'; readonly request: StartupRequest }
  /**
   * With a `terminate` other than FINE this connection ends with that code, sent in its first segment
   * (ENH-022, ENH-040).
   */
  | {
      readonly kind: 'accepted';
      readonly negotiated: Negotiated;
      readonly privateData: Uint8Array;
      readonly terminate: number;
    }
  | { readonly kind: 'rejected'; readonly rejection: StartupRejection }
  | { readonly kind: 'failed'; readonly reason: StartupFailure };
