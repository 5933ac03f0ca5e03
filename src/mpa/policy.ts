/**
 * What one connection asks for and grants during start-up, and what start-up negotiated.
 * Read RFC 5044 7.1 and RFC 6581 4.4, 9 first. The reason of each default is what real peers need (protocol-notes 3).
 */
import { checkBoolean, checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { DEPTH_NOT_NEGOTIATED, ENHANCED_OCTETS, LEGACY_DEPTHS_OCTETS, MAX_PRIVATE_DATA } from './wire.ts';

/** The three kinds of ready-to-receive message (RFC 6581 9.2), each of zero length. */
export type RtrKind = 'write' | 'read' | 'send';
const RTR_KINDS: readonly RtrKind[] = ['write', 'read', 'send'];

/** CRC policy; see {@link ConnectionPolicy.crc}. */
export type CrcPolicy = 'required' | 'preferred' | 'off';
/** @internal All of them. */
export const CRC_POLICIES: readonly CrcPolicy[] = ['required', 'preferred', 'off'];

/** Per-connection policy. Every field has a default in {@link DEFAULT_POLICY}. */
export interface ConnectionPolicy {
  /**
   * Initiator: the revision of the Request; 2 sends the enhanced format. Responder: the highest revision accepted. 0 turns on the
   * permissive RDMA Consortium mode of RFC 5044 appendix C: a Rev 0 peer gets a Rev 0 Reply, with markers, CRC and DDP/RDMAP version 0.
   */
  readonly mpaRevision: 0 | 1 | 2;
  /** Ask the peer for markers (our M bit). Markers the peer asks for are always granted (MPA-060). */
  readonly markers: boolean;
  /**
   * `required` and `preferred` both send C=1, which turns CRC on in both directions (MPA-054). `off` sends C=0 and still obeys a peer's
   * C=1. `preferred` differs from `required` only for a caller that tries again after a peer has rejected C=1: only `preferred` lets it try without CRC.
   */
  readonly crc: CrcPolicy;
  /** Initiator: ask for the peer-to-peer model (A=1): an RTR message then lets the responder send at once. */
  readonly peerToPeer: boolean;
  /** RTR kinds that the initiator offers, in order of preference. */
  readonly rtrOffered: readonly RtrKind[];
  /** RTR kinds that the responder accepts, in order of preference. Exactly one is set in the Reply (ENH-037). */
  readonly rtrAccepted: readonly RtrKind[];
  /** Inbound read depth: Read and Atomic Requests that we serve at a time. */
  readonly ird: number;
  /**
   * Outbound read depth: Read and Atomic Requests that we may have outstanding. `auto`: what the peer serves, up to 128, and 16 where it does not
   * say. Beyond 16 only while all that are outstanding ask for no more than 512 KiB together, so that large answers stay in a processor's cache;
   * without that bound if the first eight answers all took longer than 2 ms. With a number only the number counts.
   */
  readonly ord: number | 'auto';
  /** Limit up to which IRD may be raised because the peer asks for more. A depth that the program or the queue pair sets is not raised. */
  readonly maxIrd: number;
  /** False sends 0x3FFF for both depths, which means that they are agreed on elsewhere (ENH-024..027). */
  readonly negotiateDepths: boolean;
  /**
   * On revision 1 put IRD and ORD, each a u32, before the private data, in both directions, as SMB Direct does (MS-SMBD). The peer's header
   * then bounds our depths. A peer that sends no such header is accepted too. A header has no zero in it: 0 is said as 1.
   */
  readonly legacyDepths: boolean;
  /** Responder: reject a Request whose IRD is below this, and name the number in the Reply (ENH-019). 0: accept any. */
  readonly requiredOrd: number;
  /** TCP segment payload that one FPDU must fit (EMSS), or `auto`: what the interface's MTU leaves if the
   * system tells it, else what 1500 octets leave; nearly 64 KiB over loopback.
   */
  readonly emss: number | 'auto';
  /** `strict`: as responder, send nothing before an FPDU has been received (MPA-028). `relaxed`: send at once, as some stock tools expect. */
  readonly responder: 'strict' | 'relaxed';
  /**
   * Relaxed responder: how long to hold the first FPDU after the Reply, ms. Linux siw treats octets that arrive together with the
   * Reply as a protocol error.
   */
  readonly responderDelay: number;
  /** Initiator: how long to wait for the whole Reply, ms (MPA-008). */
  readonly replyTimeout: number;
  /** Responder: how long to wait for the whole Request, ms (MPA-007, MPA-008). */
  readonly requestTimeout: number;
  /**
   * How long the close of a connection may make no progress before it is reset, ms (VERBS-045). While posted work or responses are left, each write that
   * the system has taken whole (256 KiB at most) is progress, and so is what arrives for our own Reads: a close waits for work that goes on
   * (DDP-059). In all, the close may take this time once, and once more for each Read or Atomic of either side and each 64 KiB that were left when it
   * began, so that a peer which only trickles does not hold the connection for ever. Octets that are left in the system's own buffers after the last
   * write have this time once.
   */
  readonly closeTimeout: number;
  /**
   * Initiator: if no octet has arrived this many ms after our first FPDU, send one zero-length RDMA Write. It wakes a Linux siw
   * responder that missed the first FPDUs. 0: never.
   */
  readonly silentPeerNudge: number;
  /** Let an untagged message be sent between two segments of a long Read Response. With false each message is sent whole. */
  readonly interleave: boolean;
}

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
  negotiateDepths: true,
  legacyDepths: false,
  requiredOrd: 0,
  emss: 'auto',
  responder: 'strict',
  responderDelay: 50,
  replyTimeout: 10_000,
  requestTimeout: 5_000,
  closeTimeout: 5_000,
  silentPeerNudge: 200,
  interleave: true,
};

/** Smallest and largest EMSS that a policy may name. Below the first, MULPDU is 128 all the same (MPA-080). */
const EMSS_MIN = 64;
const EMSS_MAX = 65_535;
const TIMEOUT_MAX = 3_600_000;

/**
 * Check a partial policy and fill in the rest. Unknown names and wrong values throw ERR_INVALID_ARGUMENT, with `called` as the name of the policy.
 *
 * @example
 * const policy = resolvePolicy({ crc: 'required', ord: 4 });
 */
export function resolvePolicy(
  partial: Partial<ConnectionPolicy> = {}, base: ConnectionPolicy = DEFAULT_POLICY, called: string = 'policy',
): ConnectionPolicy {
  checkObject(called, partial);
  const policy = { ...base } as Record<string, unknown>;
  for (const [name, value] of Object.entries(partial)) {
    if (!Object.hasOwn(base, name)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${called}.${name} is not a known option`);
    // A list is the caller's, and the policy outlives the call.
    if (value !== undefined) policy[name] = Array.isArray(value) ? [...(value as unknown[])] : value;
  }
  const p = policy as unknown as ConnectionPolicy;
  checkOneOf(`${called}.mpaRevision`, p.mpaRevision, [0, 1, 2]);
  checkOneOf(`${called}.crc`, p.crc, CRC_POLICIES);
  checkOneOf(`${called}.responder`, p.responder, ['strict', 'relaxed']);
  for (const name of ['markers', 'peerToPeer', 'negotiateDepths', 'legacyDepths', 'interleave'] as const) checkBoolean(`${called}.${name}`, p[name]);
  for (const name of ['ird', 'maxIrd', 'requiredOrd'] as const) checkInteger(`${called}.${name}`, p[name], 0, DEPTH_NOT_NEGOTIATED - 1);
  if (p.ord !== 'auto') checkInteger(`${called}.ord`, p.ord, 0, DEPTH_NOT_NEGOTIATED - 1);
  for (const name of ['replyTimeout', 'requestTimeout', 'closeTimeout'] as const) {
    checkInteger(`${called}.${name}`, p[name], 1, TIMEOUT_MAX);
  }
  checkInteger(`${called}.responderDelay`, p.responderDelay, 0, TIMEOUT_MAX);
  checkInteger(`${called}.silentPeerNudge`, p.silentPeerNudge, 0, TIMEOUT_MAX);
  if (p.emss !== 'auto') checkInteger(`${called}.emss`, p.emss, EMSS_MIN, EMSS_MAX);
  checkRtr(`${called}.rtrOffered`, p.rtrOffered);
  checkRtr(`${called}.rtrAccepted`, p.rtrAccepted);
  return p;
}

/** Revision of the Request for this policy. If the policy wants nothing that only the enhanced format has, the Request is a plain one (ENH-007). */
export function requestRevision(policy: ConnectionPolicy): 0 | 1 | 2 {
  const plain = !policy.peerToPeer && !policy.negotiateDepths;
  return policy.mpaRevision === 2 && plain ? 1 : policy.mpaRevision;
}

/** Octets of private data that a start-up frame of this revision has room for (MPA-018, ENH-004). */
export function privateDataRoom(policy: ConnectionPolicy, revision: number): number {
  if (revision === 2) return MAX_PRIVATE_DATA - ENHANCED_OCTETS;
  return MAX_PRIVATE_DATA - (revision === 1 && policy.legacyDepths ? LEGACY_DEPTHS_OCTETS : 0);
}

function checkRtr(name: string, kinds: unknown): void {
  // ENH-033: whoever supports the enhancement supports at least one kind.
  if (!Array.isArray(kinds) || kinds.length === 0) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a non-empty array of RTR kinds, got ${show(kinds)}`);
  }
  for (const kind of kinds) checkOneOf(name, kind as string, RTR_KINDS);
}

/** What start-up negotiated. It does not change while the connection lives, except ORD, which a program may lower. */
export interface Negotiated {
  /** Our side of the start-up; the initiator speaks first. */
  readonly role: 'initiator' | 'responder';
  /** MPA revision in force: that of the responder's Reply. */
  readonly revision: number;
  /** Both frames had the enhanced format (RFC 6581). */
  readonly enhanced: boolean;
  /** CRC is generated and checked in both directions (MPA-054). */
  readonly crc: boolean;
  /** We put markers into what we send, because the peer asked for them. */
  readonly sendMarkers: boolean;
  /** The peer puts markers into what it sends, because we asked for them. */
  readonly receiveMarkers: boolean;
  /** Reads and atomics of the peer that we serve at a time (IRD). */
  readonly ird: number;
  /** Reads and atomics that we may have outstanding at the peer (ORD). */
  readonly ord: number;
  /** Nobody has named that number: `auto` in the policy, with its bound on octets for a peer that is near. */
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
