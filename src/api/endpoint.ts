/** What both sides of the promise layer have in common: options, and the queues and buffers of one connection. */
import { checkBoolean, checkBytes, checkInteger, IwarpError, show, type Names } from '../base/errors.ts';
import { PRESET_NAMES, PRESETS, type PresetName } from '../mpa/presets.ts';
import { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import type { CompletionQueue } from '../verbs/cq.ts';
import { ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { RESERVED_RECEIVES } from './credits.ts';
import { checkEngine, checkRnic, defaultRnic, engineOf, type EngineKind, type Rnic } from './environment.ts';
import { encodeHello, HELLO_OCTETS, type Hello } from './hello.ts';
import { lenderFor, type Lender } from './lenders.ts';
import { ReceiveBuffers } from './receive-buffers.ts';

/** Options that both sides of the promise layer share. */
export interface EndpointOptions {
  /**
   * Number of receive buffers: as many messages can be unread or unreleased. Default 128, but not more than 2 MiB of buffers unless 64 need more. With
   * `engine: 'worker'` 256 and 4 MiB: a credit has to pass from thread to thread there.
   */
  readonly receives?: number | undefined;
  /** Largest message that can be received, octets. Default 16 KiB. `receives` buffers of this size are allocated. */
  readonly maxMessage?: number | undefined;
  /** Operations that can be posted at a time; further ones wait in line. Default 256. */
  readonly sends?: number | undefined;
  /** Announce credits in the private data, and use them if the peer does so too. Default true. Switch it off for peers that interpret private data. */
  readonly credits?: boolean | undefined;
  /** Accept Immediate Data and atomics (RFC 7306) from the peer. Default true. Without them there are no credits, because credits are granted by Immediate Data. */
  readonly extensions?: boolean | undefined;
  /**
   * Whether a foreign peer supports Immediate Data and atomics: nothing on the wire tells. With `false` those calls reject with ERR_NOT_SUPPORTED
   * before anything is sent. Default: `false` with the presets of peers that lack them, else unknown. Endpoints of this package announce it.
   */
  readonly peerExtensions?: boolean | undefined;
  /** Protection domain of the connection. Default: a new one. Connections that share regions share a domain. */
  readonly pd?: ProtectionDomain | undefined;
  /** Device, transport and clock. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
  /** Without `rnic`: which of the process's own devices to use, the one that runs in this thread or the one in a worker thread. */
  readonly engine?: EngineKind | undefined;
  /** Start from the policy for this kind of peer; `policy` then changes single fields. */
  readonly preset?: PresetName | undefined;
  /** What this connection asks for and grants in start-up and on the wire: differences from the preset or from {@link DEFAULT_POLICY}. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** Reads and atomics that the peer may have outstanding here (IRD). Default: as in the policy. */
  readonly ird?: number | undefined;
  /**
   * Reads and atomics that we may have outstanding at the peer (ORD). Default: as in the policy, what the peer serves up to 128, with a bound on the octets
   * that they ask for. A number has no such bound: give one for many large Reads over a long way.
   */
  readonly ord?: number | undefined;
}

/** @internal */
export const ENDPOINT_NAMES: Names<EndpointOptions> = {
  receives: true, maxMessage: true, sends: true, credits: true, extensions: true, peerExtensions: true, pd: true, rnic: true, engine: true,
  preset: true, policy: true, ird: true, ord: true,
};

/**
 * Receives by default, and octets of their buffers. Half of them make a grant, so a sender that never waits needs two lots of what it sends in a turn; in a worker a credit
 * takes six hand-overs there and back, between threads that sleep, and twice as many messages pass meanwhile.
 */
const DEFAULT_RECEIVES: Readonly<Record<EngineKind, { readonly receives: number; readonly octets: number }>> = {
  thread: { receives: 128, octets: 2 << 20 },
  worker: { receives: 256, octets: 4 << 20 },
};
/** With large messages too. */
const LEAST_RECEIVES = 64;
const DEFAULT_MAX_MESSAGE = 16_384;
const DEFAULT_SENDS = 256;
/** Entries of the send queue beyond `sends`: one for a grant of credits, so that two sides that only send cannot starve each other. */
const RESERVED_SENDS = 1;
/** Receive buffers of one connection together: what a typed array can hold everywhere. */
const MAX_BUFFER_OCTETS = 0xffff_ffff;

/** @internal Options after checking, with every default filled in. */
export interface Endpoint {
  readonly receives: number;
  readonly maxMessage: number;
  readonly sends: number;
  readonly credits: boolean;
  readonly extensions: boolean;
  readonly peerExtensions: boolean | undefined;
  readonly pd: ProtectionDomain | null;
  readonly rnic: Rnic;
  readonly policy: ConnectionPolicy;
  readonly ird: number | undefined;
  readonly ord: number | undefined;
}

/** @internal Check everything before anything is made. */
export function checkEndpoint(options: EndpointOptions): Endpoint {
  const { pd, credits = true, extensions = true, sends = DEFAULT_SENDS } = options;
  // Only undefined means the default: null is somebody's mistake.
  const engine = options.engine === undefined ? undefined : checkEngine('options.engine', options.engine);
  const rnic = options.rnic === undefined ? defaultRnic(engine) : checkRnic('options.rnic', options.rnic);
  if (options.rnic !== undefined && engine !== undefined && engine !== engineOf(rnic)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.engine is ${engine}, but options.rnic works in ${engineOf(rnic)}`);
  }
  const { limits } = rnic.device;
  const maxMessage = checkInteger('options.maxMessage', options.maxMessage === undefined ? DEFAULT_MAX_MESSAGE : options.maxMessage, 0, limits.maxMessage);
  const receives = checkInteger(
    'options.receives', options.receives === undefined ? defaultReceives(rnic, maxMessage) : options.receives, 1, limits.maxQpWr - RESERVED_RECEIVES,
  );
  if ((receives + RESERVED_RECEIVES) * maxMessage > MAX_BUFFER_OCTETS) {
    throw new IwarpError('ERR_TOO_LARGE', `options: ${receives} receives of ${maxMessage} octets are more than ${MAX_BUFFER_OCTETS} together`);
  }
  if (pd !== undefined && !(pd instanceof ProtectionDomain)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.pd must be a ProtectionDomain, got ${show(pd)}`);
  }
  if (pd !== undefined && pd.device !== rnic.device) throw new IwarpError('ERR_WRONG_PD', 'options.pd belongs to another device than options.rnic');
  if (pd?.deallocated === true) throw new IwarpError('ERR_DESTROYED', 'options.pd has been deallocated');
  const depth = (name: 'ird' | 'ord', max: number): number | undefined =>
    options[name] === undefined ? undefined : checkInteger(`options.${name}`, options[name], 0, max);
  return {
    receives,
    maxMessage,
    sends: checkInteger('options.sends', sends, 1, limits.maxQpWr - RESERVED_SENDS),
    credits: checkBoolean('options.credits', credits),
    extensions: checkBoolean('options.extensions', extensions),
    peerExtensions: checkPeerExtensions(options),
    pd: pd ?? null,
    rnic,
    policy: resolvePolicy(options.policy, presetPolicy(options.preset), 'options.policy'),
    ird: depth('ird', limits.maxQpRdAtom),
    ord: depth('ord', limits.maxQpInitRdAtom),
  };
}

/** Never more than the device's queues take. */
function defaultReceives(rnic: Rnic, maxMessage: number): number {
  const { receives, octets } = DEFAULT_RECEIVES[engineOf(rnic)];
  const wanted = Math.min(receives, Math.floor(octets / Math.max(maxMessage, 1)));
  return Math.min(Math.max(wanted, LEAST_RECEIVES), rnic.device.limits.maxQpWr - RESERVED_RECEIVES);
}

/** No driver behind these presets has RFC 7306 on iWARP. */
const WITHOUT_EXTENSIONS: ReadonlySet<PresetName> = new Set(['siw', 'softiwarp', 'chelsio', 'intel']);

function checkPeerExtensions({ peerExtensions, preset }: EndpointOptions): boolean | undefined {
  if (peerExtensions !== undefined) return checkBoolean('options.peerExtensions', peerExtensions);
  return preset !== undefined && WITHOUT_EXTENSIONS.has(preset) ? false : undefined;
}

function presetPolicy(preset: PresetName | undefined): ConnectionPolicy {
  if (preset === undefined) return DEFAULT_POLICY;
  if (!PRESET_NAMES.includes(preset)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.preset must be one of ${PRESET_NAMES.join(', ')}, got ${show(preset)}`);
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
  /** Payloads of up to so many octets are copied into the queue entry when they are posted: that costs less than a registration. */
  readonly inline: number;
  /** Makes memory that nobody has registered usable for one operation. */
  readonly lender: Lender;
}

/** @internal Queue pair, completion queue and posted receives for one connection. Nothing stays behind if a limit is in the way. */
export function createResources(endpoint: Endpoint): Resources {
  const { receives, maxMessage, sends, extensions, rnic } = endpoint;
  const { device } = rnic;
  const total = receives + RESERVED_RECEIVES;
  const undo: (() => void)[] = [];
  try {
    const pd = endpoint.pd ?? device.allocatePd();
    if (endpoint.pd === null) undo.unshift(() => pd.deallocate());
    // As large as both queues together: it cannot overflow.
    const cq = device.createCq(total + sends + RESERVED_SENDS);
    undo.unshift(() => cq.destroy());
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: total, maxSendWr: sends + RESERVED_SENDS, maxRecvSge: 1, maxSendSge: 1, extensions });
    undo.unshift(() => qp.destroy());
    const buffers = new ReceiveBuffers(pd, total, maxMessage);
    undo.unshift(() => buffers.end());
    const { maxInline: inline } = qp.query();
    const resources = { endpoint, pd, cq, qp, buffers, inline, lender: lenderFor(pd) };
    for (let i = 0; i < total; i++) buffers.post(qp, i);
    return resources;
  } catch (error) {
    for (const step of undo) step();
    throw error;
  }
}

/**
 * @internal Give everything back, once the connection is gone or has not come about, the regions that were registered through it too. A domain in which the
 * user still has something stays until that is gone. The memory of the receive buffers is for the next connection, but what a message still shows.
 */
export function destroyResources({ qp, cq, buffers, lender, pd, endpoint }: Resources, regions: Iterable<MemoryRegion> = []): void {
  // Windows bound through the queue pair were for this connection's peer: nobody can use them any more, and they go with it.
  if (qp.boundWindows > 0) for (const window of [...pd.device.objects.mw]) if (window.entry.binder === qp) window.deallocate();
  qp.destroy();
  cq.destroy();
  lender.close();
  buffers.end();
  for (const region of regions) region.release();
  if (endpoint.pd === null) pd.abandon();
}

/** @internal What we announce. */
export function helloOf(endpoint: Endpoint): Hello {
  return { credits: endpoint.receives, maxMessage: endpoint.maxMessage, extensions: endpoint.extensions };
}

/** @internal The user's private data, with our announcement in front of it where there are credits. */
export function withHello(name: string, data: ArrayBufferView | undefined, hello: Hello | null, room: number): Uint8Array {
  const bytes = data === undefined ? new Uint8Array(0) : checkBytes(name, data);
  const max = room - (hello === null ? 0 : HELLO_OCTETS);
  if (bytes.length > max) throw new IwarpError('ERR_TOO_LARGE', `${name} has ${bytes.length} octets, above the limit of ${max}`);
  return hello === null ? new Uint8Array(bytes) : encodeHello(hello, bytes); // a copy: `slice` of a Buffer is a view
}
