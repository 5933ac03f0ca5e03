/**
 * What one connection asks for and grants during start-up, and what start-up settled.
 * Read RFC 5044 7.1 and RFC 6581 4.4, 9 first; what real peers need (protocol-notes 3) is the reason of each default.
 */
import { checkBoolean, checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { DEPTH_NOT_NEGOTIATED, ENHANCED_OCTETS, LEGACY_DEPTHS_OCTETS, MAX_PRIVATE_DATA } from './wire.ts';

/** The three kinds of ready-to-receive message (RFC 6581 9.2), each of zero length. */
export type RtrKind = 'write' | 'read' | 'send';
const RTR_KINDS: readonly RtrKind[] = ['write', 'read', 'send'];

/** CRC policy; see {@link ConnectionPolicy.crc}. */
export type CrcPolicy = 'required' | 'preferred' | 'off';

/** Per-connection policy. Every field has a default in {@link DEFAULT_POLICY}. */
export interface ConnectionPolicy {
  /**
   * Initiator: the revision of the Request; 2 sends the enhanced format. Responder: the highest revision accepted. 0 turns on the
   * permissive RDMA Consortium mode of RFC 5044 appendix C: a Rev 0 peer is answered in kind, with markers, CRC and DDP/RDMAP version 0.
   */
  readonly mpaRevision: 0 | 1 | 2;
  /** Ask the peer for markers (our M bit). Markers the peer asks for are always granted (MPA-060). */
  readonly markers: boolean;
  /**
   * `required` and `preferred` both send C=1, which by MPA-054 turns CRC on in both directions. `off` sends C=0 and still obeys a peer's
   * C=1. They part where a peer rejects C=1: only `preferred` lets a caller's fall-back try again without.
   */
  readonly crc: CrcPolicy;
  /** Initiator: ask for the peer-to-peer model (A=1), so that an RTR message opens the responder's direction at once. */
  readonly peerToPeer: boolean;
  /** RTR kinds the initiator offers, first choice first. */
  readonly rtrOffered: readonly RtrKind[];
  /** RTR kinds the responder grants, first choice first; exactly one is put in the Reply (ENH-037). */
  readonly rtrAccepted: readonly RtrKind[];
  /** Inbound read depth: Read and Atomic Requests we serve at once. */
  readonly ird: number;
  /** Outbound read depth: Read and Atomic Requests we keep outstanding. */
  readonly ord: number;
  /** Up to where IRD may be raised because the peer asks for more. A depth that a program gives, or a queue pair was made for, is not raised. */
  readonly maxIrd: number;
  /** False sends 0x3FFF in both depths: they are then settled elsewhere (ENH-024..027). */
  readonly negotiateDepths: boolean;
  /**
   * On revision 1 put IRD and ORD as two u32 in front of the private data, both ways, as SMB Direct does (MS-SMBD); what the peer's header
   * says then bounds ours. Reading one is no obligation: a peer that has sent none is worked with all the same.
   */
  readonly legacyDepths: boolean;
  /** Responder: refuse a Request whose IRD is below this, naming the number in the Reply (ENH-019). 0 asks for nothing. */
  readonly requiredOrd: number;
  /** TCP segment payload that one FPDU must fit (EMSS), or `auto`: what the interface's MTU leaves where the
   * system tells it, else what 1500 octets leave; nearly 64 KiB over loopback.
   */
  readonly emss: number | 'auto';
  /** `strict`: as responder send nothing before an FPDU has been received (MPA-028). `relaxed`: send at once, as some stock tools expect. */
  readonly responder: 'strict' | 'relaxed';
  /**
   * Relaxed responder: how long to hold the first FPDU after the Reply, ms. Linux siw takes octets that arrive together with the
   * Reply for a protocol error.
   */
  readonly responderDelay: number;
  /** Initiator: how long to wait for the whole Reply, ms (MPA-008). */
  readonly replyTimeout: number;
  /** Responder: how long to wait for the whole Request, ms (MPA-007, MPA-008). */
  readonly requestTimeout: number;
  /**
   * How long the end of a connection may stand still before it is reset, ms (VERBS-045). While posted work or responses are left, it begins
   * anew with each write that the system has taken whole (256 KiB at the most), and with what comes in for our own Reads: a close waits for
   * work that goes on (DDP-059). In all the end may take this time once, and once more for each Read or Atomic of either side and each 64 KiB
   * that were left when it began, so that a peer which only trickles does not hold the connection for ever. What the system's own
   * buffers hold after the last write has this time once.
   */
  readonly closeTimeout: number;
  /**
   * Initiator: after this many ms without any octet after our first FPDU send one zero-length RDMA Write, which wakes a Linux siw
   * responder that missed the first FPDUs. 0 never does.
   */
  readonly silentPeerNudge: number;
  /** Let an untagged message go between segments of a long Read Response. Off keeps messages whole, one after the other. */
  readonly interleave: boolean;
}

/** Defaults that connect to Linux siw and to hardware unaided. */
export const DEFAULT_POLICY: ConnectionPolicy = {
  mpaRevision: 2,
  markers: false,
  crc: 'preferred',
  peerToPeer: true,
  rtrOffered: ['write', 'read'],
  // Read first: it is the kind that Chelsio offers alone, and irdma prefers.
  rtrAccepted: ['read', 'write', 'send'],
  ird: 16,
  ord: 16,
  // What siw and the larger adapters serve; a read in waiting costs us under 200 octets.
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
 * Complete and check a partial policy. Unknown names and wrong values throw ERR_INVALID_ARGUMENT, with what the policy is `called`.
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
    if (!(name in base)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${called}.${name} is not a known option`);
    if (value !== undefined) policy[name] = value;
  }
  const p = policy as unknown as ConnectionPolicy;
  checkOneOf(`${called}.mpaRevision`, p.mpaRevision, [0, 1, 2]);
  checkOneOf(`${called}.crc`, p.crc, ['required', 'preferred', 'off']);
  checkOneOf(`${called}.responder`, p.responder, ['strict', 'relaxed']);
  for (const name of ['markers', 'peerToPeer', 'negotiateDepths', 'legacyDepths', 'interleave'] as const) checkBoolean(`${called}.${name}`, p[name]);
  for (const name of ['ird', 'ord', 'maxIrd', 'requiredOrd'] as const) {
    checkInteger(`${called}.${name}`, p[name], 0, DEPTH_NOT_NEGOTIATED - 1);
  }
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

/** Revision of the Request that this policy makes. ENH-007: where nothing of the enhancement is wanted, the Request is a plain one. */
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

/** What start-up settled; fixed for the life of the connection, but for ORD, which a user may lower. */
export interface Negotiated {
  /** Which side of the start-up we were; the initiator speaks first. */
  readonly role: 'initiator' | 'responder';
  /** MPA revision in force: that of the responder's Reply. */
  readonly revision: number;
  /** Both frames had the enhanced format (RFC 6581). */
  readonly enhanced: boolean;
  /** CRC is generated and checked, in both directions (MPA-054). */
  readonly crc: boolean;
  /** We put markers into what we send, because the peer asked. */
  readonly sendMarkers: boolean;
  /** We asked for markers and the peer puts them. */
  readonly receiveMarkers: boolean;
  /** Reads and atomics of the peer that we serve at a time. */
  readonly ird: number;
  /** Reads and atomics that we keep outstanding at the peer. */
  readonly ord: number;
  /** The peer's own numbers as they stood in its frame (ENH-023); undefined without the enhanced format. */
  readonly peerIrd: number | undefined;
  /** The peer's outbound read depth, from its frame. */
  readonly peerOrd: number | undefined;
  /** The RTR message that opens the responder's direction; null in the client-server model. */
  readonly rtr: RtrKind | null;
  /** DDP and RDMAP version on this connection (MPA-092): 0 only in the RDMA Consortium mode. */
  readonly ddpVersion: 0 | 1;
}
