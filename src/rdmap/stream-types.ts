/** What goes into an RDMA stream and what comes out: configuration, endpoint, events, counters. */
import type { StagTable } from '../ddp/stag-table.ts';
import type { SlabPool } from '../mpa/deframer.ts';
import type { ConnectionPolicy, Negotiated } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import type { StartupFrame } from '../mpa/wire.ts';
import type { Crc32cEngine } from '../crc32c/engine.ts';
import type { InboundRights } from './receiver.ts';
import type { StagePool } from './stages.ts';
import type { TerminateInfo } from './terminate.ts';
import type { ReceiveQueue, SendQueue, WorkOwner } from './work.ts';

/** What a stream needs of the machine it runs on. */
export interface StreamResources {
  readonly crc: Crc32cEngine;
  readonly slabs: SlabPool;
  readonly stages: StagePool;
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
  /** Reads and atomics that the queue pair may have outstanding, whatever start-up allows (VERBS-018, VERBS-024). */
  readonly maxOrd: number;
  /** Right that the sink of a Read must grant (VERBS-087). */
  readonly sinkRight: number;
}

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
  | { readonly type: 'request'; readonly request: StartupFrame }
  /** Initiator with `confirm`: a good accepting Reply is here; `confirm` or `close` (MPA-035). */
  | { readonly type: 'response'; readonly negotiated: Negotiated; readonly privateData: Uint8Array }
  | { readonly type: 'established'; readonly negotiated: Negotiated; readonly privateData: Uint8Array }
  | {
      readonly type: 'rejected';
      readonly revision: number;
      readonly privateData: Uint8Array;
      readonly peerIrd: number | undefined;
      readonly peerOrd: number | undefined;
      /** The peer refused while we had asked for markers: Linux siw does so. */
      readonly markersAsked: boolean;
    }
  | { readonly type: 'startup-failed'; readonly reason: StartupFailure }
  /** A Terminate was sent (`origin` local) or received (remote). */
  | { readonly type: 'terminate'; readonly terminate: TerminateInfo }
  /** A graceful close has begun. */
  | { readonly type: 'closing'; readonly by: 'local' | 'peer' }
  /** The end: every work request has been completed or flushed; nothing follows. */
  | { readonly type: 'closed'; readonly cause: CloseCause; readonly error: Error | undefined };

export interface StreamConfig {
  readonly role: 'initiator' | 'responder';
  readonly policy: ConnectionPolicy;
  /** TCP segment payload to fit FPDUs into, already resolved from the policy and the path. */
  readonly emss: number;
  readonly resources: StreamResources;
  /** Initiator: hold an accepting Reply for the user's word. */
  readonly confirm?: boolean;
}

/** One write for the port: `chunks[0..count)`. They belong to the port until `handleTaken` or `handleTransmitted` has been called for it. */
export interface Transmission {
  readonly chunks: readonly Uint8Array[];
  readonly count: number;
}

/** What the driver has to do with the port besides writing. */
export type PortAction = 'none' | 'end' | 'reset';

/** Messages of one direction, by kind. A message counts with its last segment, an atomic with its request. */
export interface MessageCounters {
  /** Sends of all four kinds. */
  sends: number;
  /** RDMA Writes. */
  writes: number;
  /** RDMA Read Requests. */
  reads: number;
  /** RDMA Read Responses. */
  readResponses: number;
  /** Immediate Data messages, with and without Solicited Event. */
  immediates: number;
  /** Atomic Requests. */
  atomics: number;
  /** Terminates; at most one. */
  terminates: number;
}

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
