/**
 * The policy of one connection: its requests and grants during start-up, and how it works afterwards.
 * Read RFC 5044 7.1 and RFC 6581 4.4, 9 first. The reason of each default is what real peers need
 * (protocol-notes 3).
 */
import { checkBoolean, checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { RTR_KINDS, type RtrKind } from '../llp/startup.ts';
import { DEPTH_NOT_NEGOTIATED, ENHANCED_OCTETS, LEGACY_DEPTHS_OCTETS, MAX_PRIVATE_DATA } from './wire.ts';

export type { Negotiated, RtrKind } from '../llp/startup.ts';

/** CRC policy; see {@link ConnectionPolicy.crc}. */
export type CrcPolicy = 'required' | 'preferred' | 'off';
/** All CRC policies. */
export const CRC_POLICIES: readonly CrcPolicy[] = ['required', 'preferred', 'off'];

/** Per-connection policy. Every field has a default in {@link DEFAULT_POLICY}. */
export interface ConnectionPolicy {
  /**
   * Initiator: the revision of the Request; 2 sends the enhanced format. Responder: the highest revision
   * accepted. 0 turns on the permissive RDMA Consortium mode of RFC 5044 appendix C: a Rev 0 peer gets a Rev
   * 0 Reply, with markers, CRC and DDP/RDMAP version 0. Default 2.
   */
  readonly mpaRevision: 0 | 1 | 2;
  /**
   * Ask the peer for markers (our M bit). Markers the peer asks for are always granted (MPA-060). Default
   * false.
   */
  readonly markers: boolean;
  /**
   * `required` and `preferred` both send C=1, which turns CRC on in both directions (MPA-054). `off` sends
   * C=0 and still obeys a peer's C=1. `preferred` differs from `required` only for a caller that tries again
   * after a peer has rejected C=1: only `preferred` lets it try without CRC. Default `preferred`.
   */
  readonly crc: CrcPolicy;
  /**
   * Initiator: ask for the peer-to-peer model (A=1): an RTR message then lets the responder send at once.
   * Default true.
   */
  readonly peerToPeer: boolean;
  /** RTR kinds that the initiator offers, in order of preference. Default `write`, `read`. */
  readonly rtrOffered: readonly RtrKind[];
  /**
   * RTR kinds that the responder accepts, in order of preference. Exactly one is set in the Reply (ENH-037).
   * Default `read`, `write`, `send`.
   */
  readonly rtrAccepted: readonly RtrKind[];
  /** Inbound read depth: Read and Atomic Requests that we serve at a time. Default 128. */
  readonly ird: number;
  /**
   * Outbound read depth: Read and Atomic Requests that we may have outstanding. `auto`: what the peer
   * serves, up to 128, and 16 where it does not say. Beyond 16 only while all that are outstanding ask for
   * no more than 512 KiB together, so that large answers stay in a processor's cache; without that bound if
   * the first eight answers all took longer than 2 ms. With a number only the number counts. Default `auto`.
   */
  readonly ord: number | 'auto';
  /**
   * Limit up to which IRD may be raised because the peer asks for more. A depth that the program or the
   * queue pair sets is not raised. Default 128.
   */
  readonly maxIrd: number;
  /**
   * False sends 0x3FFF for both depths, which means that they are agreed on elsewhere (ENH-024..027).
   * Default true.
   */
  readonly negotiateDepths: boolean;
  /**
   * On revision 1 put IRD and ORD, each a u32, before the private data, in both directions, as SMB Direct
   * does (MS-SMBD). The peer's header then bounds our depths. A peer that sends no such header is accepted
   * too. A header has no zero in it: 0 is said as 1. Default false.
   */
  readonly legacyDepths: boolean;
  /**
   * Responder: reject a Request whose IRD is below this, and name the number in the Reply (ENH-019). 0:
   * accept any. Default 0.
   */
  readonly requiredOrd: number;
  /**
   * Most bytes of private data in a start-up frame of ours, the header of revision 2 included: 512 by RFC
   * 5044. Some peers take no more than 256; `connect`, `accept` and `reject` then refuse more. Default 512.
   */
  readonly maxPrivateData: number;
  /**
   * TCP segment payload that one FPDU must fit (EMSS). `auto`: the payload that the interface's MTU allows,
   * or one of 1500 bytes if the system reports none; nearly 64 KiB over loopback. Default `auto`.
   */
  readonly emss: number | 'auto';
  /**
   * `strict`: as responder, send nothing before an FPDU has been received (MPA-028). `relaxed`: send at
   * once, as some stock tools expect. Default `strict`.
   */
  readonly responder: 'strict' | 'relaxed';
  /**
   * Relaxed responder: how long to hold the first FPDU after the Reply, ms. Linux siw treats bytes that
   * arrive together with the Reply as a protocol error. Default 50.
   */
  readonly responderDelay: number;
  /** Initiator: how long to wait for the whole Reply, ms (MPA-008). Default 10,000. */
  readonly replyTimeout: number;
  /** Responder: how long to wait for the whole Request, ms (MPA-007, MPA-008). Default 5,000. */
  readonly requestTimeout: number;
  /**
   * How long the close of a connection may make no progress before it is reset, ms (VERBS-045). While posted
   * work or responses are left, each write that the system has taken whole (256 KiB at most) is progress,
   * and so is what arrives for our own Reads: a close waits for work that goes on (DDP-059). In all, the
   * close may take this time once, and once more for each Read or Atomic of either side and each 64 KiB that
   * were left when it began, so that a peer which only trickles does not hold the connection for ever.
   * Bytes that are left in the system's own buffers after the last write have this time once. Default
   * 5,000.
   */
  readonly closeTimeout: number;
  /**
   * How long the close of a connection may take in all, ms, from its beginning to the end of the TCP
   * connection: a connection that is still there is reset. Default 60,000, the time that the adapters'
   * drivers allow. Raise it for programs that close while they have more to send than a slow path carries in
   * a minute.
   */
  readonly closeLimit: number;
  /**
   * Initiator: if no byte has arrived this many ms after our first FPDU, send one zero-length RDMA Write.
   * It wakes a Linux siw responder that missed the first FPDUs. 0: never. Default 200.
   */
  readonly silentPeerNudge: number;
  /**
   * With the wire `qpip`: how messages lie in the byte stream. `none`: not at all, a receive completes with
   * the bytes that have come. `length`: a big-endian u32 in front of each. `segment`: one write is one
   * message, as far as the systems keep them apart. Default `none`.
   */
  readonly framing: 'none' | 'length' | 'segment';
  /**
   * Let an untagged message be sent between two segments of a long Read Response. With false each message is
   * sent whole. Default true.
   */
  readonly interleave: boolean;
}

/**
 * RTR kinds in the order of a responder that makes many connections: a Read has to be answered, which is a
 * write, and a turn of each side, for every new one.
 */
export const UNANSWERED_RTR_FIRST: readonly RtrKind[] = ['write', 'read', 'send'];

/** Defaults, with which Linux siw and hardware can be reached without further settings. */
export const DEFAULT_POLICY: ConnectionPolicy = {
  mpaRevision: 2,
  markers: false,
  crc: 'preferred',
  peerToPeer: true,
  rtrOffered: ['write', 'read'],
  // Read first: it is the kind that Chelsio offers alone, and irdma prefers.
  rtrAccepted: ['read', 'write', 'send'],
  // What siw and the larger adapters serve; a read in waiting costs us under 200 octets.
  ird: 128,
  ord: 'auto',
  maxIrd: 128,
  maxPrivateData: MAX_PRIVATE_DATA,
  negotiateDepths: true,
  legacyDepths: false,
  requiredOrd: 0,
  emss: 'auto',
  responder: 'strict',
  responderDelay: 50,
  replyTimeout: 10_000,
  requestTimeout: 5_000,
  closeTimeout: 5_000,
  closeLimit: 60_000,
  silentPeerNudge: 200,
  framing: 'none',
  interleave: true,
};

/**
 * Smallest and largest EMSS that a policy may name. Below the first, MULPDU is 128 all the same (MPA-080).
 */
const EMSS_MIN = 64;
const EMSS_MAX = 65_535;
const TIMEOUT_MAX = 3_600_000;
/** Longest `closeLimit`, ms: nearly 25 days. */
export const MAX_CLOSE_LIMIT = 0x7fff_ffff;

/**
 * Check a partial policy and fill in the rest. Unknown names and wrong values throw ERR_INVALID_ARGUMENT,
 * with `called` as the name of the policy.
 *
 * @example
 * const policy = resolvePolicy({ crc: 'required', ord: 4 });
 */
export function resolvePolicy(
  partial: Partial<ConnectionPolicy> = {},
  base: ConnectionPolicy = DEFAULT_POLICY,
  called: string = 'policy',
): ConnectionPolicy {
  checkObject(called, partial);
  // One of ours: every layer that a program can call checks its policy.
  if (resolved.has(partial)) return partial as ConnectionPolicy;
  const policy = { ...base } as Record<string, unknown>;
  for (const [name, value] of Object.entries(partial)) {
    if (!Object.hasOwn(CHECKS, name))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `${called}.${name} is not a known option`);
    if (value === undefined) continue;
    CHECKS[name as keyof ConnectionPolicy](`${called}.${name}`, value as never);
    // A list is the caller's, and the policy outlives the call.
    policy[name] = Array.isArray(value) ? [...(value as unknown[])] : value;
  }
  const made = Object.freeze(policy) as unknown as ConnectionPolicy;
  resolved.add(made);
  return made;
}

/** Policies that {@link resolvePolicy} has made. They are frozen. */
const resolved = new WeakSet<Partial<ConnectionPolicy>>();

type Check = (name: string, value: never) => unknown;
const isFlag: Check = (name, value) => checkBoolean(name, value);
const isOneOf =
  (allowed: readonly (string | number)[]): Check =>
  (name, value) =>
    checkOneOf(name, value, allowed);
const isInteger =
  (min: number, max: number): Check =>
  (name, value) =>
    checkInteger(name, value, min, max);
const isAutoOr =
  (check: Check): Check =>
  (name, value) =>
    value === 'auto' ? value : check(name, value);
const isDepth = isInteger(0, DEPTH_NOT_NEGOTIATED - 1);

/** What each value has to be. */
const CHECKS: Readonly<Record<keyof ConnectionPolicy, Check>> = {
  mpaRevision: isOneOf([0, 1, 2]),
  markers: isFlag,
  crc: isOneOf(CRC_POLICIES),
  peerToPeer: isFlag,
  rtrOffered: checkRtr,
  rtrAccepted: checkRtr,
  ird: isDepth,
  ord: isAutoOr(isDepth),
  maxIrd: isDepth,
  negotiateDepths: isFlag,
  legacyDepths: isFlag,
  requiredOrd: isDepth,
  maxPrivateData: isInteger(0, MAX_PRIVATE_DATA),
  emss: isAutoOr(isInteger(EMSS_MIN, EMSS_MAX)),
  responder: isOneOf(['strict', 'relaxed']),
  responderDelay: isInteger(0, TIMEOUT_MAX),
  replyTimeout: isInteger(1, TIMEOUT_MAX),
  requestTimeout: isInteger(1, TIMEOUT_MAX),
  closeTimeout: isInteger(1, TIMEOUT_MAX),
  closeLimit: isInteger(1, MAX_CLOSE_LIMIT),
  silentPeerNudge: isInteger(0, TIMEOUT_MAX),
  framing: isOneOf(['none', 'length', 'segment']),
  interleave: isFlag,
};

/**
 * Revision of the Request for this policy. If the policy wants nothing that only the enhanced format has, the
 * Request is a plain one (ENH-007).
 */
export function requestRevision(policy: ConnectionPolicy): 0 | 1 | 2 {
  const plain = !policy.peerToPeer && !policy.negotiateDepths;
  return policy.mpaRevision === 2 && plain ? 1 : policy.mpaRevision;
}

/** Bytes of private data that a start-up frame of this revision has room for (MPA-018, ENH-004). */
export function privateDataRoom(policy: ConnectionPolicy, revision: number): number {
  const { maxPrivateData } = policy;
  if (revision === 2) return Math.max(0, maxPrivateData - ENHANCED_OCTETS);
  return Math.max(0, maxPrivateData - (revision === 1 && policy.legacyDepths ? LEGACY_DEPTHS_OCTETS : 0));
}

function checkRtr(name: string, kinds: unknown): void {
  // ENH-033: a peer that supports the enhancement supports at least one kind.
  if (!Array.isArray(kinds) || kinds.length === 0) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must be a non-empty array of RTR kinds, got ${show(kinds)}`,
    );
  }
  for (const kind of kinds) checkOneOf(name, kind as string, RTR_KINDS);
}
