/**
 * The rare things that pass between an application's thread and an engine, as objects that a message port can
 * copy.
 */
import type { WireName } from '../../base/wires.ts';
import { ERROR_CODES, IwarpError, type IwarpErrorCode } from '../../base/errors.ts';
import type { Crc32cEngineName } from '../../crc32c/engine.ts';
import { memoryState, type MemoryState, type StagState } from '../../ddp/stag-table.ts';
import type { DepthRequest } from '../../mpa/negotiate.ts';
import type { ConnectionPolicy } from '../../mpa/policy.ts';
import { noCounters } from '../../rdmap/counters.ts';
import type { LocalBind, LocalInvalidate, LocalOperation, LocalRegister } from '../../queues/local-work.ts';
import type { StreamCounters, StreamEvent } from '../../stream/types.ts';
import type { ListenLimits, ListenRefusal } from '../listener-limits.ts';
import type { ConnectTarget, ListenTarget, PortAddress } from '../../transport/port.ts';
import type { TlsInfo } from '../../transport/tls-options.ts';
import type { TrpOptions } from '../../trp/profile.ts';
import type { MessagePort } from 'node:worker_threads';

/** Options fixed by the thread that starts the engine. */
export interface EngineOptions {
  readonly crc32c: Crc32cEngineName | 'auto';
  readonly receive: 'onread' | 'data';
  /** Microseconds that either thread stays awake after an arrival. */
  readonly busyPoll: number;
  readonly stagLimit: number;
  /** The protocol that the streams speak. */
  readonly wire: WireName;
  /** Options of the wire `trp`. */
  readonly trp: TrpOptions;
  /** A file that records all traffic of the engine's connections, in pcap format; one engine only. */
  readonly capture?: string | undefined;
  /** Report arriving bytes, for programs that watch their memory. */
  readonly arrivals?: boolean | undefined;
}

/** An engine among those of its device. */
export interface EnginePlace {
  /** Its number; the first is 0. */
  readonly number: number;
  /** Connections of each engine, those included that are on their way to it from another one. */
  readonly loads: Int32Array;
}

/** The data that a worker is started with. */
export interface EngineStart extends EngineOptions, EnginePlace {
  readonly submissions: Int32Array;
  readonly completions: Int32Array;
  /** See {@link REPLY}. */
  readonly replies: Int32Array;
  /** Where the answer to a question for counters goes. */
  readonly counters: Float64Array;
  /** Rings: a message says that there is something to read, or room to write. */
  readonly doorbell: MessagePort;
  /**
   * Commands and events. No listener is set on this port; messages are taken when their place in the ring
   * comes.
   */
  readonly objects: MessagePort;
}

/** The settings that an engine reports. */
export interface EngineSettings {
  readonly crc32c: Crc32cEngineName;
  readonly receive: 'onread' | 'data';
  /** Microseconds. */
  readonly busyPoll: number;
}

/**
 * Words of {@link EngineStart.replies}: number of the last fence passed; the engine is up; it has ended; how
 * often an STag was dropped whose memory a write still read.
 */
export const REPLY = { FENCE: 0, READY: 1, ENDED: 2, LENT: 3 } as const;
export const REPLY_COUNT = 4;

/** The last message of an engine, after all records in the ring. */
export interface LastWords {
  readonly type: 'ended';
  /** Null if it was not an exception. */
  readonly error: ErrorState | null;
}

/** A queue pair as a stream sees it. */
export interface EndpointState {
  readonly pd: number;
  readonly qp: number;
  readonly sendDepth: number;
  readonly receiveDepth: number;
  /** Number of the shared receive queue; 0 for none. */
  readonly srq: number;
  readonly rights: { readonly read: boolean; readonly write: boolean };
  readonly extensions: boolean;
  readonly maxOrd: number;
  readonly sinkRight: number;
}

/** An operation on our own memory, with STags in the place of entries. */
export type OperationState =
  | (Omit<LocalInvalidate, 'entry'> & { readonly index: number })
  | (Omit<LocalRegister, 'entry' | 'bytes'> & {
      readonly index: number;
      readonly memory: MemoryState;
    })
  | (Omit<LocalBind, 'entry' | 'region' | 'binder'> & { readonly index: number });

/** The operation as data. */
export function operationState(operation: LocalOperation): OperationState {
  const index = operation.entry.stag;
  if (operation.type === 'bind') {
    const { entry: _entry, region: _region, binder: _binder, ...rest } = operation;
    return { ...rest, index };
  }
  const { entry: _entry, ...rest } = operation;
  if (rest.type === 'invalidate') return { ...rest, index };
  const { bytes, ...plain } = rest;
  return { ...plain, index, memory: memoryState(bytes) };
}

/** Towards the engine. `link` names a connection: odd where the engine has made it. */
export type Command =
  | { readonly type: 'entry'; readonly entry: StagState }
  | { readonly type: 'share' | 'invalidate' | 'drop'; readonly stag: number }
  /**
   * A work request (`records.ts`): one with an operation on our own memory, or one that the ring does not
   * take.
   */
  | { readonly type: 'record'; readonly words: Int32Array; readonly operation: OperationState | null }
  | { readonly type: 'endpoint'; readonly link: number; readonly endpoint: EndpointState }
  | { readonly type: 'shared-queue'; readonly srq: number; readonly depth: number }
  | { readonly type: 'resize'; readonly link: number; readonly send: number; readonly receive: number }
  | { readonly type: 'resize-shared'; readonly srq: number; readonly depth: number }
  | { readonly type: 'fail-shared' | 'drop-shared'; readonly srq: number }
  | {
      readonly type: 'connect';
      readonly link: number;
      readonly target: ConnectTarget;
      readonly policy: ConnectionPolicy;
      readonly confirm: boolean;
      readonly privateData: Uint8Array;
      readonly wishes: DepthRequest;
      /** The byte stream to use, in place of a new TCP connection. */
      readonly relay?: RelayState | undefined;
    }
  /** A byte stream that has come to a listener of the application's thread. */
  | {
      readonly type: 'take';
      readonly link: number;
      readonly policy: ConnectionPolicy;
      readonly relay: RelayState;
    }
  | {
      readonly type: 'accept';
      readonly link: number;
      readonly privateData: Uint8Array;
      readonly wishes: DepthRequest;
    }
  | { readonly type: 'reject'; readonly link: number; readonly privateData: Uint8Array }
  | { readonly type: 'confirm'; readonly link: number; readonly code: number | undefined }
  | { readonly type: 'terminate'; readonly link: number; readonly code: number }
  | { readonly type: 'set-ord'; readonly link: number; readonly ord: number }
  | {
      readonly type: 'set-keep-alive';
      readonly link: number;
      readonly on: boolean;
      readonly delay: number;
    }
  | { readonly type: 'cancel' | 'close' | 'abort'; readonly link: number }
  | {
      readonly type: 'listen';
      readonly listener: number;
      readonly target: ListenTarget;
      readonly policy: ConnectionPolicy;
      readonly limits: ListenLimits;
      /** The other engines that take connections of this listener. */
      readonly hands?: readonly Hand[] | undefined;
      /** Where connections come from that another engine accepts, in place of an address to bind. */
      readonly takes?: Taking | undefined;
    }
  | { readonly type: 'unlisten'; readonly listener: number };

/** A way to another engine, for sockets that have been accepted. */
export interface Hand {
  /** Number of that engine. */
  readonly engine: number;
  readonly port: MessagePort;
}

/** The other end of a {@link Hand}, and where its listener has bound. */
export interface Taking {
  readonly address: PortAddress;
  readonly port: MessagePort;
}

/** What of a command moves to the other thread, and is not copied. */
export function transferOf(command: Command): MessagePort[] {
  if (command.type === 'listen')
    return [...(command.hands ?? []), ...(command.takes === undefined ? [] : [command.takes])].map(
      ({ port }) => port,
    );
  return 'relay' in command && command.relay !== undefined ? [command.relay.channel] : [];
}

/** A stream event without Error objects. */
type StreamEventState =
  | Exclude<StreamEvent, { type: 'closed' }>
  | {
      readonly type: 'closed';
      readonly cause: Extract<StreamEvent, { type: 'closed' }>['cause'];
      readonly error: ErrorState | undefined;
    };

/** The TCP connection of a link. */
export interface LinkPath {
  readonly local: PortAddress;
  readonly remote: PortAddress;
  /** MTU of the local interface, if it is known. */
  readonly mtu: number | undefined;
  /** Results of the TLS handshake; on a server they come later, with the `request` event. */
  readonly tls?: TlsInfo | undefined;
}

/** A byte stream of the application's thread (`relay.ts`). */
export interface RelayState extends LinkPath {
  readonly channel: MessagePort;
}

/** From the engine. */
export type EngineEvent =
  | { readonly type: 'up'; readonly settings: EngineSettings }
  /** The memory of an STag that has been dropped is no longer read. */
  | { readonly type: 'returned'; readonly stag: number }
  /** An STag for one use has been used. */
  | { readonly type: 'used'; readonly stag: number }
  | ({ readonly type: 'opened'; readonly link: number } & LinkPath)
  | { readonly type: 'failed'; readonly link: number; readonly error: ErrorState }
  | {
      readonly type: 'stream';
      readonly link: number;
      readonly event: StreamEventState;
      readonly ord: number;
      readonly deciding: boolean;
      /** With a `request` event. */
      readonly tls?: TlsInfo | undefined;
      /** With the last event. */
      readonly counters: StreamCounters | undefined;
    }
  | ({ readonly type: 'incoming'; readonly listener: number; readonly link: number } & LinkPath)
  | { readonly type: 'listening'; readonly listener: number; readonly address: PortAddress }
  | { readonly type: 'listen-failed'; readonly listener: number; readonly error: ErrorState }
  | {
      readonly type: 'turned-away';
      readonly listener: number;
      readonly reason: ListenRefusal;
      readonly remote: PortAddress | undefined;
    }
  | { readonly type: 'accept-failed'; readonly listener: number; readonly error: ErrorState }
  | { readonly type: 'unlistened'; readonly listener: number };

/** Fields of the system's errors beside their code. */
const SYSTEM = ['errno', 'syscall', 'hostname', 'address', 'port'] as const;

/** An error as a message port can carry it: structured copies of errors lose their class and their code. */
export interface ErrorState {
  readonly code: string | undefined;
  readonly message: string;
  readonly system: Readonly<Record<string, unknown>>;
  /** Of an AggregateError: one for each address that was tried. */
  readonly errors: readonly ErrorState[] | undefined;
  readonly cause: ErrorState | undefined;
}

/** Errors inside of errors. */
const DEPTH_AT_MOST = 4;

/** Take an error apart. */
export function packError(error: Error, depth = 0): ErrorState {
  const { code, cause, errors } = error as NodeJS.ErrnoException & Partial<AggregateError>;
  const inner = (value: unknown): ErrorState[] =>
    value instanceof Error && depth < DEPTH_AT_MOST ? [packError(value, depth + 1)] : [];
  return {
    code: typeof code === 'string' ? code : undefined,
    message: error.message,
    system: Object.fromEntries(
      SYSTEM.flatMap((name) => {
        const value: unknown = (error as NodeJS.ErrnoException & Record<string, unknown>)[name];
        return typeof value === 'string' || typeof value === 'number' ? [[name, value]] : [];
      }),
    ),
    errors: Array.isArray(errors) ? errors.flatMap(inner) : undefined,
    cause: inner(cause)[0],
  };
}

/** Put it together again. */
export function unpackError({ code, message, system, errors, cause }: ErrorState): Error {
  const options = cause === undefined ? undefined : { cause: unpackError(cause) };
  if (code !== undefined && code in ERROR_CODES)
    return new IwarpError(code as IwarpErrorCode, message, options);
  const error =
    errors === undefined
      ? new Error(message, options)
      : new AggregateError(errors.map(unpackError), message, options);
  return Object.assign(error, code === undefined ? {} : { code }, system);
}

const ZERO = noCounters();
const PLAIN = Object.entries(ZERO).flatMap(([name, value]) =>
  typeof value === 'number' ? [name as 'octetsIn'] : [],
);
const KINDS = Object.keys(ZERO.messagesIn) as (keyof StreamCounters['messagesIn'])[];

/** Numbers in a {@link StreamCounters}. */
export const COUNTER_COUNT: number = PLAIN.length + 2 * KINDS.length;

/** Counters into shared memory. */
export function putCounters(target: Float64Array, counters: StreamCounters): void {
  let i = 0;
  for (const name of PLAIN) target[i++] = counters[name];
  for (const kind of KINDS) target[i++] = counters.messagesIn[kind];
  for (const kind of KINDS) target[i++] = counters.messagesOut[kind];
}

/** And out again. */
export function takeCounters(source: Float64Array): StreamCounters {
  const counters = noCounters();
  let i = 0;
  for (const name of PLAIN) counters[name] = source[i++]!;
  for (const kind of KINDS) counters.messagesIn[kind] = source[i++]!;
  for (const kind of KINDS) counters.messagesOut[kind] = source[i++]!;
  return counters;
}
