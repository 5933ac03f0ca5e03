/**
 * The arithmetic of set-up: CRC and markers (RFC 5044 7.1.1), IRD and ORD (RFC 6581 9.1), RTR (RFC 6581 9.2).
 * Pure functions over decoded frames.
 */
import { FINE, TERM } from '../base/terminate-codes.ts';
import type { DepthRequest } from '../llp/startup.ts';
import { requestRevision, type ConnectionPolicy, type Negotiated, type RtrKind } from './policy.ts';
import { DEPTH_NOT_NEGOTIATED, putLegacyDepths, type EnhancedData, type StartupFrame } from './wire.ts';

export type { DepthRequest } from '../llp/startup.ts';

/**
 * An automatic ORD: the most that is asked for, and what every adapter serves, for a peer that does not say.
 */
const AUTO_ORD = 128;
const AUTO_ORD_UNTOLD = 16;

/** The depths that one side goes in with. */
interface Depths {
  readonly ird: number;
  /** How far IRD may rise to meet the peer's ORD. */
  readonly maxIrd: number;
  readonly ord: number;
  /** ORD if the peer says nothing of its IRD. */
  readonly ordUntold: number;
  readonly autoOrd: boolean;
}

function ownDepths(policy: ConnectionPolicy, wishes: DepthRequest): Depths {
  const { maxIrd = Infinity, maxOrd = Infinity } = wishes;
  const ird = Math.min(wishes.ird ?? policy.ird, maxIrd);
  const named = wishes.ord ?? (policy.ord === 'auto' ? undefined : policy.ord);
  return {
    ird,
    // a caller's explicit number stands
    maxIrd: wishes.ird === undefined ? Math.max(ird, Math.min(policy.maxIrd, maxIrd)) : ird,
    ord: Math.min(named ?? AUTO_ORD, maxOrd),
    ordUntold: Math.min(named ?? AUTO_ORD_UNTOLD, maxOrd),
    autoOrd: named === undefined,
  };
}

/**
 * The initiator's depths, as a Request names them. In an enhanced start-up a Read RTR needs one outstanding
 * Read on our side (ENH-044).
 */
export function initiatorDepths(policy: ConnectionPolicy, wishes: DepthRequest): Depths {
  const depths = ownDepths(policy, wishes);
  const reads = requestRevision(policy) === 2 && policy.peerToPeer && policy.rtrOffered.includes('read');
  return reads && depths.ord === 0 ? { ...depths, ord: 1, ordUntold: 1 } : depths;
}

/** The bits B, C, D for these kinds. */
export function rtrBits(kinds: readonly RtrKind[]): Pick<EnhancedData, 'rtrSend' | 'rtrWrite' | 'rtrRead'> {
  return {
    rtrSend: kinds.includes('send'),
    rtrWrite: kinds.includes('write'),
    rtrRead: kinds.includes('read'),
  };
}

function hasRtr(data: EnhancedData, kind: RtrKind): boolean {
  return kind === 'send' ? data.rtrSend : kind === 'write' ? data.rtrWrite : data.rtrRead;
}

/**
 * The initiator's reading of an accepting Reply. `terminate` is FINE, or the code that ends the connection at
 * once.
 */
export function negotiateAsInitiator(
  policy: ConnectionPolicy,
  request: StartupFrame,
  reply: StartupFrame,
  wishes: DepthRequest,
): { negotiated: Negotiated; terminate: number } {
  const rdmac = reply.revision === 0;
  const mine = request.enhanced;
  // ENH-013: a plain Reply to an enhanced Request is worked with as revision 1; the depths then stay our own.
  const theirs = mine === null ? null : reply.enhanced;
  const depths = initiatorDepths(policy, wishes);
  const { maxIrd } = depths;
  let { ird, ordUntold: ord } = depths;
  let rtr: RtrKind | null = null;
  let terminate: number = FINE;
  if (mine !== null && theirs !== null) {
    // ENH-020, ENH-026: our ORD is bounded by the peer's IRD, unless it left that open.
    if (theirs.ird !== DEPTH_NOT_NEGOTIATED) ord = Math.min(depths.ord, theirs.ird);
    // ENH-021, ENH-022, ENH-027: our IRD must cover the peer's ORD.
    if (theirs.ord !== DEPTH_NOT_NEGOTIATED) {
      if (theirs.ord > maxIrd) terminate = TERM.MPA_INSUFFICIENT_IRD;
      else ird = Math.max(ird, theirs.ord);
    }
    if (mine.peerToPeer && theirs.peerToPeer) {
      rtr = policy.rtrOffered.find((kind) => hasRtr(theirs, kind) && (kind !== 'read' || ord > 0)) ?? null;
      if (rtr === null && terminate === FINE) terminate = TERM.MPA_NO_MATCHING_RTR; // ENH-040
    }
  }
  const legacy = reply.legacyDepths;
  if (legacy !== undefined) {
    ord = Math.min(depths.ord, legacy.ird);
    ird = Math.max(ird, Math.min(legacy.ord, maxIrd));
  }
  const negotiated: Negotiated = {
    role: 'initiator',
    revision: reply.revision,
    enhanced: theirs !== null,
    crc: request.crc || reply.crc || rdmac, // MPA-054
    sendMarkers: reply.markers || rdmac, // MPA-059
    receiveMarkers: request.markers || rdmac, // MPA-050: after a Rev 0 Reply in both directions
    ird,
    ord,
    autoOrd: depths.autoOrd,
    peerIrd: (theirs ?? legacy)?.ird,
    peerOrd: (theirs ?? legacy)?.ord,
    rtr,
    ddpVersion: rdmac ? 0 : 1,
  };
  return { negotiated, terminate };
}

/**
 * The responder's answer to an accepted Request. `negotiated` is null where the policy turns acceptance into
 * rejection (ENH-019).
 */
// oxlint-disable-next-line max-lines-per-function -- the decisions of RFC 6581 in their order
export function negotiateAsResponder(
  policy: ConnectionPolicy,
  request: StartupFrame,
  privateData: Uint8Array,
  wishes: DepthRequest,
): { frame: StartupFrame; negotiated: Negotiated | null } {
  const rdmac = request.revision === 0;
  const theirs = request.enhanced;
  const depths = ownDepths(policy, wishes);
  const { maxIrd } = depths;
  let { ird, ordUntold: ord } = depths;
  let rtr: RtrKind | null = null;
  let enhanced: EnhancedData | null = null;
  let refused = false;
  if (theirs !== null) {
    // ENH-018: a Read RTR may raise our IRD to 1, but not above what the policy and the queue pair allow.
    rtr = chooseRtr(policy, theirs, ird > 0 || Math.min(policy.maxIrd, wishes.maxIrd ?? Infinity) > 0);
    // ENH-017: serve what the peer asks for, as far as we can; a caller's explicit number stands.
    if (theirs.ord !== DEPTH_NOT_NEGOTIATED) ird = Math.max(ird, Math.min(theirs.ord, maxIrd));
    if (rtr === 'read') ird = Math.max(ird, 1);
    // A depth that was left open is above all that a policy may require.
    refused = theirs.ird < policy.requiredOrd;
    if (refused) ord = policy.requiredOrd;
    else if (theirs.ird !== DEPTH_NOT_NEGOTIATED) ord = Math.min(depths.ord, theirs.ird); // ENH-015, ENH-016
    enhanced = {
      peerToPeer: theirs.peerToPeer, // ENH-032
      // Each bit by name: a spread of an object costs more than the frame, for each connection that comes
      // (`connection connects and closes` of bench/micro/layers.ts).
      rtrSend: rtr === 'send' && !refused,
      rtrWrite: rtr === 'write' && !refused,
      rtrRead: rtr === 'read' && !refused,
      ird: theirs.ord === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : ird, // ENH-024
      ord: theirs.ird === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : ord, // ENH-025
    };
  }
  const legacy = request.legacyDepths;
  if (legacy !== undefined) {
    ird = Math.max(ird, Math.min(legacy.ord, maxIrd));
    ord = Math.min(depths.ord, legacy.ird);
  }
  const markers = policy.markers || rdmac;
  // A Request with C=1 settles the matter (MPA-054). Saying so in the Reply costs nothing, and a Linux siw
  // built to require CRC refuses a Reply without it.
  const crc = policy.crc !== 'off' || request.crc || rdmac;
  const frame: StartupFrame = {
    kind: 'reply',
    markers,
    crc,
    reject: refused,
    revision: request.revision,
    enhanced,
    privateData: legacy === undefined ? privateData : putLegacyDepths({ ird, ord }, privateData),
  };
  if (refused) return { frame, negotiated: null };
  const negotiated: Negotiated = {
    role: 'responder',
    revision: request.revision,
    enhanced: theirs !== null,
    crc: request.crc || crc,
    sendMarkers: request.markers || rdmac,
    receiveMarkers: markers,
    ird,
    ord,
    autoOrd: depths.autoOrd,
    peerIrd: (theirs ?? legacy)?.ird,
    peerOrd: (theirs ?? legacy)?.ord,
    rtr,
    ddpVersion: rdmac ? 0 : 1,
  };
  return { frame, negotiated };
}

/**
 * Exactly one kind, a requested one where we support any (ENH-034..037); null in the client-server model
 * (ENH-031).
 */
function chooseRtr(policy: ConnectionPolicy, theirs: EnhancedData, canRead: boolean): RtrKind | null {
  if (!theirs.peerToPeer) return null;
  let usable: RtrKind | null = null;
  for (let i = 0; i < policy.rtrAccepted.length; i++) {
    const kind = policy.rtrAccepted[i]!;
    if (kind === 'read' && !canRead) continue;
    if (hasRtr(theirs, kind)) return kind;
    usable ??= kind;
  }
  // ENH-036: nothing in common, so name one that we do support; the initiator will end the connection with
  // 2/0/07.
  return usable ?? policy.rtrAccepted[0]!;
}
