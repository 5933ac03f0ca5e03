/**
 * Parts that both sides of the promise layer share: options, and the queues and buffers of one connection.
 */
import { checkBoolean, checkBytes, checkInteger, IwarpError, show, type Names } from '../base/errors.ts';
import type { WireName } from '../base/wires.ts';
import { PRESET_NAMES, PRESETS, type PresetName } from '../mpa/presets.ts';
import { checkKeepAlive, type KeepAliveOptions } from '../cm/connection.ts';
import {
  DEFAULT_POLICY,
  MAX_CLOSE_LIMIT,
  resolvePolicy,
  UNANSWERED_RTR_FIRST,
  type ConnectionPolicy,
} from '../mpa/policy.ts';
import { LEAST_BATCH } from '../rpc/wire.ts';
import { functionsIn, type TlsOptions } from '../transport/tls-options.ts';
import type { CompletionQueue } from '../verbs/cq.ts';
import { ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { RESERVED_RECEIVES } from './credits.ts';
import {
  checkEngine,
  checkRnic,
  defaultRnic,
  engineOf,
  stacksWanted,
  type EngineKind,
  type Rnic,
} from './environment.ts';
import { checkHeartbeat, checkTimeLimit, type Heartbeat, type HeartbeatOptions } from './liveness.ts';
import { encodeHello, HELLO_OCTETS, type Hello } from './hello.ts';
import { registrarFor, type TransientRegistrar } from './transient-registrar.ts';
import { firstWindow, ReceiveBuffers } from './receive-buffers.ts';

/** Options that both sides of the promise layer share. */
export interface EndpointOptions extends KeepAliveOptions {
  /**
   * Number of receive buffers: as many messages can be unread or unreleased. Default 128, but not more than 2
   * MiB of buffers unless 64 need more. With `engine: 'worker'` 256 and 4 MiB: a credit has to pass from
   * thread to thread there. A peer that is an endpoint of this package gets four of them, or 64 KiB, and the
   * others when it sends more or fast; a connection on which messages are few gives them back. A peer without
   * credits gets more as its messages take them. With `engine: 'worker'` a client has all from the start, and
   * a peer without credits that connects gets all after its first message, and can send 64 until then; with
   * this option all are there from the start.
   */
  readonly receiveDepth?: number | undefined;
  /**
   * Largest message that can be received, in bytes. Default 16 KiB. There are `receiveDepth` buffers of this
   * size.
   */
  readonly maxMessageSize?: number | undefined;
  /** Operations that can be posted at a time; further ones wait in line. Default 256. */
  readonly sendDepth?: number | undefined;
  /** @deprecated The former name of `receiveDepth`, for one release. */
  readonly receives?: number | undefined;
  /** @deprecated The former name of `maxMessageSize`, for one release. */
  readonly maxMessage?: number | undefined;
  /** @deprecated The former name of `sendDepth`, for one release. */
  readonly sends?: number | undefined;
  /**
   * Announce credits in the private data, and use them if the peer does so too. Default true. Switch it off
   * for peers that interpret private data.
   */
  readonly credits?: boolean | undefined;
  /**
   * Accept Immediate Data and atomics (RFC 7306) from the peer. Default true. Without them there are no
   * credits, because credits are granted by Immediate Data.
   */
  readonly extensions?: boolean | undefined;
  /**
   * Whether a foreign peer supports Immediate Data and atomics: nothing on the wire shows it. With `false`
   * those calls reject with ERR_NOT_SUPPORTED before anything is sent. Default: `false` with the presets of
   * peers that lack them, else unknown. Endpoints of this package announce it.
   */
  readonly peerExtensions?: boolean | undefined;
  /**
   * Protection domain of the connection. Default: a new one. Connections that share regions share a domain.
   */
  readonly pd?: ProtectionDomain | undefined;
  /** Device, transport and clock. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
  /**
   * Without `rnic`: which of the process's own devices to use, the one that runs in this thread or the one in
   * a worker thread.
   */
  readonly engine?: EngineKind | undefined;
  /** Start from the policy for this kind of peer; `policy` then changes single fields. */
  readonly preset?: PresetName | undefined;
  /**
   * Settings that this connection asks for and grants in start-up and on the wire, as differences from the
   * preset or from {@link DEFAULT_POLICY}.
   */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** Reads and atomics that the peer may have outstanding here (IRD). Default: as in the policy. */
  readonly ird?: number | undefined;
  /**
   * Reads and atomics that we may have outstanding at the peer (ORD). Default: as in the policy, the number
   * that the peer serves, up to 128, with a bound on the bytes that they ask for. A number has no such
   * bound: give one for many large Reads over a long way.
   */
  readonly ord?: number | undefined;
  /**
   * Milliseconds that an orderly close may take in all, from `close()` or the peer's farewell to the end.
   * After that the connection is dropped, and `closed` reports `timeout`. Default 60,000.
   */
  readonly closeLimit?: number | undefined;
  /**
   * Record the stack of each call, so that the `stack` of an error shows the line that started the operation.
   * That costs about five microseconds a call (a 64-byte Send takes two without). Default: true if the
   * environment variable IWARP_STACKS is 1, else false.
   */
  readonly callerStacks?: boolean | undefined;
  /**
   * Ask for signs of life: `interval` and `timeout` in milliseconds, and the method for peers of other
   * makers. A peer that is silent for longer than both together is taken for dead, and the connection ends
   * with ERR_TIMEOUT. Default: none.
   */
  readonly heartbeat?: HeartbeatOptions | undefined;
  /**
   * Milliseconds that each operation may take for which its call names no `timeout`. Default: no limit. Calls
   * that wait for the peer's program (`receive`, `messages`) have none.
   */
  readonly operationTimeout?: number | undefined;
  /**
   * Milliseconds without an operation or a message after which the connection is closed in order; heartbeats
   * do not count. Default: none.
   */
  readonly idleTimeout?: number | undefined;
  /**
   * Requests of the peer that are taken at a time, until each is answered; the peer keeps others in its line.
   * Default 256, at most 65,535; 0 for none.
   */
  readonly maxRequests?: number | undefined;
  /**
   * Largest message, request or reply in bytes that the peer may announce because it is larger than
   * `maxMessageSize`. Memory is allocated for it when it is read. Default 64 MiB; 0 for none, at most
   * 2^32 - 1.
   */
  readonly maxLargeMessage?: number | undefined;
  /**
   * Bytes of such messages that may be here at a time, until the program releases them; the next is read when
   * there is room, or when it is the only one. Default: `maxLargeMessage`.
   */
  readonly largeMessageMemory?: number | undefined;
  /**
   * Milliseconds that the reading of a large message may make no progress: then the peer has announced what
   * it does not deliver, and the connection ends with ERR_TIMEOUT. Default 30,000.
   */
  readonly largeMessageTimeout?: number | undefined;
}

/** @internal */
export const ENDPOINT_NAMES: Names<EndpointOptions> = {
  receiveDepth: true,
  maxMessageSize: true,
  sendDepth: true,
  receives: true,
  maxMessage: true,
  sends: true,
  credits: true,
  extensions: true,
  peerExtensions: true,
  pd: true,
  rnic: true,
  engine: true,
  preset: true,
  policy: true,
  ird: true,
  ord: true,
  closeLimit: true,
  callerStacks: true,
  keepAlive: true,
  keepAliveInitialDelay: true,
  heartbeat: true,
  operationTimeout: true,
  idleTimeout: true,
  maxRequests: true,
  maxLargeMessage: true,
  largeMessageMemory: true,
  largeMessageTimeout: true,
};

/**
 * Receives by default, and bytes of their buffers. Half of them make a grant, so a sender that never waits
 * needs twice the number that it sends in a turn; in a worker a credit takes six hand-overs there and back,
 * between threads that sleep, and twice as many messages pass meanwhile.
 */
const DEFAULT_RECEIVES: Readonly<Record<EngineKind, { readonly receives: number; readonly octets: number }>> =
  {
    thread: { receives: 128, octets: 2 << 20 },
    worker: { receives: 256, octets: 4 << 20 },
  };
/** With large messages too. */
const LEAST_RECEIVES = 64;
const DEFAULT_MAX_MESSAGE_SIZE = 16_384;
const DEFAULT_SENDS = 256;
const DEFAULT_REQUESTS = 256;
const DEFAULT_LARGE = 64 << 20;
const DEFAULT_LARGE_TIMEOUT = 30_000;
const DEFAULT_CLOSE_LIMIT = 60_000;
/**
 * Entries of the send queue beyond `sendDepth`: one for a grant of credits, so that two sides that only send
 * cannot starve each other, and one for a heartbeat.
 */
const RESERVED_SENDS = 2;
/** Bytes of all receive buffers of one connection: as many as a typed array can hold everywhere. */
const MAX_BUFFER_OCTETS = 0xffff_ffff;

/** @internal Options after checking, with every default filled in. */
export interface Endpoint {
  readonly receiveDepth: number;
  /** Receives that a worker gets at once for a peer that keeps to no credits. */
  readonly firstReceives: number;
  readonly maxMessageSize: number;
  readonly sendDepth: number;
  readonly credits: boolean;
  readonly extensions: boolean;
  readonly peerExtensions: boolean | undefined;
  readonly pd: ProtectionDomain | null;
  readonly rnic: Rnic;
  readonly policy: ConnectionPolicy;
  readonly ird: number | undefined;
  readonly ord: number | undefined;
  readonly closeLimit: number;
  readonly callerStacks: boolean;
  readonly keepAlive: KeepAliveOptions;
  readonly heartbeat: Heartbeat | null;
  readonly operationTimeout: number | undefined;
  readonly idleTimeout: number | undefined;
  readonly maxRequests: number;
  readonly maxLargeMessage: number;
  readonly largeMessageMemory: number;
  readonly largeMessageTimeout: number;
}

/**
 * @internal Throws ERR_NOT_SUPPORTED for TLS options that cannot pass to the thread of a worker engine.
 */
export function checkTlsEngine(tls: TlsOptions | undefined, { rnic }: Endpoint): void {
  if (tls === undefined || engineOf(rnic) === 'thread') return;
  const [name] = functionsIn(tls);
  if (name === undefined) return;
  throw new IwarpError(
    'ERR_NOT_SUPPORTED',
    `options.tls.${name} is a function, which cannot pass to the thread of a worker engine: ` +
      "use engine: 'thread'",
  );
}

/** @internal Check everything before anything is made. */
export function checkEndpoint(options: EndpointOptions): Endpoint {
  const { pd, extensions = true, callerStacks = stacksWanted() } = options;
  // Only undefined means the default: null is a caller's mistake.
  const engine = options.engine === undefined ? undefined : checkEngine('options.engine', options.engine);
  const rnic = options.rnic === undefined ? defaultRnic(engine) : checkRnic('options.rnic', options.rnic);
  if (options.rnic !== undefined && engine !== undefined && engine !== engineOf(rnic)) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.engine is ${engine}, but options.rnic works in ${engineOf(rnic)}`,
    );
  }
  const closeLimit = checkInteger(
    'options.closeLimit',
    options.closeLimit ?? DEFAULT_CLOSE_LIMIT,
    1,
    MAX_CLOSE_LIMIT,
  );
  const { limits, wire } = rnic.device;
  const maxMessageSize = depthOf(options, 'maxMessageSize', DEFAULT_MAX_MESSAGE_SIZE, 0, limits.maxMessage);
  const receiveDepth = depthOf(
    options,
    'receiveDepth',
    defaultReceives(rnic, maxMessageSize),
    1,
    limits.maxQpWr - RESERVED_RECEIVES,
  );
  if ((receiveDepth + RESERVED_RECEIVES) * maxMessageSize > MAX_BUFFER_OCTETS) {
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `options: ${receiveDepth} receives of ${maxMessageSize} bytes are more than ${MAX_BUFFER_OCTETS} ` +
        'together; lower receiveDepth or maxMessageSize',
    );
  }
  if (pd !== undefined && !(pd instanceof ProtectionDomain)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.pd must be a ProtectionDomain, got ${show(pd)}`);
  }
  if (pd !== undefined && pd.device !== rnic.device)
    throw new IwarpError('ERR_WRONG_PD', 'options.pd belongs to another device than options.rnic');
  if (pd?.deallocated === true) throw new IwarpError('ERR_DESTROYED', 'options.pd has been deallocated');
  const depth = (name: 'ird' | 'ord', max: number): number | undefined =>
    options[name] === undefined ? undefined : checkInteger(`options.${name}`, options[name], 0, max);
  return {
    receiveDepth,
    firstReceives: firstReceives(options, receiveDepth),
    maxMessageSize,
    sendDepth: depthOf(options, 'sendDepth', DEFAULT_SENDS, 1, limits.maxQpWr - RESERVED_SENDS),
    credits: checkCredits(options, wire),
    extensions: checkBoolean('options.extensions', extensions),
    peerExtensions: wire !== 'qpip' ? checkPeerExtensions(options) : false,
    pd: pd ?? null,
    rnic,
    policy: resolvePolicy(options.policy, { ...presetPolicy(options.preset), closeLimit }, 'options.policy'),
    ird: depth('ird', limits.maxQpRdAtom),
    ord: depth('ord', limits.maxQpInitRdAtom),
    closeLimit,
    callerStacks: checkBoolean('options.callerStacks', callerStacks),
    keepAlive: keepAliveOf(options),
    ...livenessOf(options),
  };
}

type SessionOptions = 'maxRequests' | 'maxLargeMessage' | 'largeMessageMemory' | 'largeMessageTimeout';

function sessionOf(options: EndpointOptions): Pick<Endpoint, SessionOptions> {
  const { maxRequests = DEFAULT_REQUESTS, maxLargeMessage = DEFAULT_LARGE } = options;
  const { largeMessageMemory = maxLargeMessage } = options;
  return {
    maxRequests: checkInteger('options.maxRequests', maxRequests, 0, 0xffff),
    maxLargeMessage: checkInteger('options.maxLargeMessage', maxLargeMessage, 0, 0xffff_ffff),
    largeMessageMemory: checkInteger(
      'options.largeMessageMemory',
      largeMessageMemory,
      0,
      Number.MAX_SAFE_INTEGER,
    ),
    largeMessageTimeout:
      checkTimeLimit('options.largeMessageTimeout', options.largeMessageTimeout) ?? DEFAULT_LARGE_TIMEOUT,
  };
}

function livenessOf(
  options: EndpointOptions,
): Pick<Endpoint, 'heartbeat' | 'operationTimeout' | 'idleTimeout' | SessionOptions> {
  const limit = (name: 'operationTimeout' | 'idleTimeout'): number | undefined =>
    checkTimeLimit(`options.${name}`, options[name]);
  return {
    heartbeat: checkHeartbeat(options.heartbeat),
    operationTimeout: limit('operationTimeout'),
    idleTimeout: limit('idleTimeout'),
    ...sessionOf(options),
  };
}

/** Credits are announced in private data and granted by Immediate Data: only iWARP has both. */
function checkCredits({ credits }: EndpointOptions, wire: WireName): boolean {
  if (credits === undefined) return wire !== 'qpip';
  if (checkBoolean('options.credits', credits) && wire === 'qpip')
    throw new IwarpError('ERR_NOT_SUPPORTED', `options.credits: the wire ${wire} has no room for credits`);
  return credits;
}

function keepAliveOf(options: EndpointOptions): KeepAliveOptions {
  checkKeepAlive(options);
  const { keepAlive, keepAliveInitialDelay } = options;
  return { keepAlive, keepAliveInitialDelay };
}

/** The names of one release ago. */
const FORMER = { receiveDepth: 'receives', sendDepth: 'sends', maxMessageSize: 'maxMessage' } as const;

/** An option under its present or its former name, or the default. */
function depthOf(
  options: EndpointOptions,
  name: keyof typeof FORMER,
  byDefault: number,
  min: number,
  max: number,
): number {
  const former = FORMER[name];
  const present = options[name];
  if (options[former] === undefined)
    return checkInteger(`options.${name}`, present === undefined ? byDefault : present, min, max);
  if (present === undefined) return checkInteger(`options.${former}`, options[former], min, max);
  throw new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `options.${former} is the former name of options.${name}: give only ${name}`,
  );
}

/** Never more than the device's queues take. */
function defaultReceives(rnic: Rnic, maxMessageSize: number): number {
  const { receives, octets } = DEFAULT_RECEIVES[engineOf(rnic)];
  const wanted = Math.min(receives, Math.floor(octets / Math.max(maxMessageSize, 1)));
  return Math.min(Math.max(wanted, LEAST_RECEIVES), rnic.device.limits.maxQpWr - RESERVED_RECEIVES);
}

/** A depth that the program has named is there at once. */
function firstReceives({ receiveDepth, receives }: EndpointOptions, depth: number): number {
  return receiveDepth === undefined && receives === undefined ? Math.min(depth, LEAST_RECEIVES) : depth;
}

/** No driver behind these presets has RFC 7306 on iWARP. */
const WITHOUT_EXTENSIONS: ReadonlySet<PresetName> = new Set(['siw', 'softiwarp', 'chelsio', 'intel']);

function checkPeerExtensions({ peerExtensions, preset }: EndpointOptions): boolean | undefined {
  if (peerExtensions !== undefined) return checkBoolean('options.peerExtensions', peerExtensions);
  return preset !== undefined && WITHOUT_EXTENSIONS.has(preset) ? false : undefined;
}

const PROMISE_POLICY: ConnectionPolicy = { ...DEFAULT_POLICY, rtrAccepted: UNANSWERED_RTR_FIRST };

function presetPolicy(preset: PresetName | undefined): ConnectionPolicy {
  if (preset === undefined) return PROMISE_POLICY;
  if (!PRESET_NAMES.includes(preset)) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.preset must be one of ${PRESET_NAMES.join(', ')}, got ${show(preset)}`,
    );
  }
  return resolvePolicy(PRESETS[preset]);
}

/** @internal Queues and buffers of one connection, made before it is connected. */
export interface Resources {
  readonly endpoint: Endpoint;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly buffers: ReceiveBuffers;
  /** Messages that a peer with credits may send at first, as our Hello says. */
  readonly firstCredits: number;
  /**
   * Payloads of at most this number of bytes are copied into the queue entry when they are posted: that
   * costs less than a registration.
   */
  readonly inline: number;
  /** Makes unregistered memory usable for one operation. */
  readonly registrar: TransientRegistrar;
}

/**
 * @internal Receives that a connection begins with: all of them; the first of them, for a peer that keeps to
 *   credits; or the first of them, and others when messages have taken those. A worker takes receives while
 *   this thread knows nothing of it, so there `as-taken` means as many as a peer may use before this thread
 *   has seen its first message, and then all.
 */
export type FirstReceives = 'all' | 'by-credits' | 'as-taken';

/**
 * @internal Queue pair, completion queue and posted receives for one connection. Nothing stays behind if a
 *   limit is in the way.
 */
export function createResources(endpoint: Endpoint, receives: FirstReceives = 'all'): Resources {
  const { receiveDepth, maxMessageSize, sendDepth, extensions, rnic } = endpoint;
  const { device } = rnic;
  const total = receiveDepth + RESERVED_RECEIVES;
  const undo: (() => void)[] = [];
  try {
    const pd = endpoint.pd ?? device.allocatePd();
    if (endpoint.pd === null) undo.unshift(() => pd.deallocate());
    // As large as both queues together: it cannot overflow.
    const cq = device.createCq(total + sendDepth + RESERVED_SENDS);
    undo.unshift(() => cq.destroy());
    const qp = pd.createQp({
      sendCq: cq,
      recvCq: cq,
      maxRecvWr: total,
      maxSendWr: sendDepth + RESERVED_SENDS,
      maxRecvSge: 1,
      maxSendSge: 1,
      extensions,
    });
    qp.carries = 'messages';
    undo.unshift(() => qp.destroy());
    const buffers = new ReceiveBuffers(pd, total, maxMessageSize);
    undo.unshift(() => buffers.end());
    const { maxInline: inline } = qp.query();
    const firstCredits = receives === 'all' ? receiveDepth : buffers.first - RESERVED_RECEIVES;
    const registrar = registrarFor(pd);
    const resources = { endpoint, pd, cq, qp, buffers, firstCredits, inline, registrar };
    buffers.grow(qp);
    if (receives === 'as-taken') growAsTaken(resources);
    else if (receives === 'all') while (buffers.grow(qp) > 0);
    return resources;
  } catch (error) {
    for (const step of undo) step();
    throw error;
  }
}

/** Further receives come when messages have taken the present ones. */
function growAsTaken({ endpoint, qp, buffers }: Resources): void {
  if (engineOf(endpoint.rnic) === 'thread') {
    qp.onReceiveTaken = (left) => void (left === 0 && buffers.tryGrow(qp));
    return;
  }
  while (buffers.count < endpoint.firstReceives && buffers.grow(qp) > 0);
  qp.onReceiveTaken = () => {
    qp.onReceiveTaken = null;
    while (buffers.tryGrow(qp) > 0);
  };
}

/**
 * @internal Give all resources back once the connection is gone or has not come about, with the regions
 *   registered through it. A domain in which the user still has objects stays until those are gone. The
 *   memory of the receive buffers goes to the next connection, except the part that an unreleased message
 *   still shows.
 */
export function destroyResources(
  { qp, cq, buffers, registrar, pd, endpoint }: Resources,
  regions: Iterable<MemoryRegion> = [],
): void {
  // Windows bound through the queue pair were for this connection's peer: no peer can use them now, so they
  // are deallocated with it.
  if (qp.boundWindows > 0)
    for (const window of [...pd.device.objects.mw]) if (window.entry.binder === qp) window.deallocate();
  qp.destroy();
  cq.destroy();
  registrar.close();
  buffers.end();
  for (const region of regions) region.release();
  if (endpoint.pd === null) pd.abandon();
}

/** @internal What we announce; with `growing` the credits of the first receives. */
export function helloOf(endpoint: Endpoint, growing: boolean = false): Hello {
  const { receiveDepth, maxMessageSize, extensions, maxRequests: requests } = endpoint;
  const credits = growing ? firstWindow(receiveDepth, maxMessageSize) : receiveDepth;
  return { credits, maxMessageSize, extensions, frames: maxMessageSize >= LEAST_BATCH, requests };
}

/** @internal Both sides use credits. `peer` is what the peer has announced. */
export function usesCredits(endpoint: Endpoint, peer: Hello | null): boolean {
  return peer !== null && peer.extensions && endpoint.extensions;
}

/** @internal The user's private data, with our announcement in front of it where there are credits. */
export function withHello(
  name: string,
  data: ArrayBufferView | undefined,
  hello: Hello | null,
  room: number,
): Uint8Array {
  const bytes = data === undefined ? new Uint8Array(0) : checkBytes(name, data);
  const max = room - (hello === null ? 0 : HELLO_OCTETS);
  if (bytes.length > max)
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name} has ${bytes.length} bytes, above the limit of ${max}: send the rest in a message`,
    );
  // a copy: `slice` of a Buffer is a view
  return hello === null ? new Uint8Array(bytes) : encodeHello(hello, bytes);
}
