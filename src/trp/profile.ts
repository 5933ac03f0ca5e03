/**
 * The two ways in which a connection over UDP works. `fixed` is our own, between endpoints of this package:
 * the header and the opcodes are the old ones, the rules behind them are those that TCP and QUIC have come
 * to. `urdma` does what the old code does on the wire, without its defects, for peers that know no other
 * (protocol-notes 4.2).
 */

import { checkInteger, checkOneOf, checkOptions, IwarpError, type Names } from '../base/errors.ts';

/** The names of the profiles. */
const TRP_PROFILES = ['fixed', 'urdma'] as const satisfies readonly TrpProfileName[];
/** Name of a profile of iWARP over UDP. */
export type TrpProfileName = 'fixed' | 'urdma';
/** Where a segment above a hole waits: in its place, or in memory of the stack. */
const TRP_RECEIVERS = ['placing', 'ordered'] as const satisfies readonly TrpReceiverName[];
/** When the receiving side places segments. */
export type TrpReceiverName = 'placing' | 'ordered';
/** When a Read is answered and completes. */
const TRP_READS = ['ordered', 'placed'] as const satisfies readonly TrpReadsName[];
/** How Reads are answered. */
export type TrpReadsName = 'ordered' | 'placed';

/** Options of the wire `trp`. */
export interface TrpOptions {
  /**
   * `fixed`: selective acknowledgement, measured time-outs, congestion control, random first sequence
   * number. `urdma`: as the code of the paper behaves on the wire. Both ends have the same one. Default
   * `fixed`.
   */
  readonly profile?: TrpProfileName | undefined;
  /**
   * `placing`: a segment that arrives above a hole is placed at once, and its message completes when nothing
   * is missing below. `ordered`: it waits in memory of the stack. Default `placing`.
   */
  readonly receiver?: TrpReceiverName | undefined;
  /**
   * `ordered`: Reads are answered in the order of everything the peer sends, and complete so. `placed`: a
   * Read is answered when its request arrives, and is done when its own response is whole, whatever else is
   * missing; each has its own STag for that. A Read then need not see an RDMA Write posted before it
   * that has not completed. An end with `receiver: 'ordered'` neither answers a request nor takes a response
   * before its turn; the other end does all the same. Both ends have the same `reads`. Default `ordered`.
   */
  readonly reads?: TrpReadsName | undefined;
  /**
   * Datagrams that may be unacknowledged, 4 to 4096. Default: 256, and no more than fit the receive buffer
   * that both ends ask their systems for: 256 of 64 bytes, 171 of 1,472, 12 of 32,320.
   */
  readonly window?: number | undefined;
  /**
   * MTU of the path, bytes, 576 to 65,535. Default: that of the interface, at most 32,348. In `fixed` a
   * connection whose long datagrams do not arrive, while short ones do, goes on with 1200.
   */
  readonly mtu?: number | undefined;
  /**
   * Milliseconds without any progress after which a peer counts as dead. Default: 15,000 in `fixed`; in
   * `urdma` six transmissions of a datagram, 60 ms, and with this option as many more as the time needs.
   */
  readonly deadPeer?: number | undefined;
  /** First sequence number of this end, u32, for tests near the wrap. Default: random; 0 in `urdma`. */
  readonly firstPsn?: number | undefined;
}

const OPTIONS: Names<TrpOptions> = {
  profile: true,
  receiver: true,
  reads: true,
  window: true,
  mtu: true,
  deadPeer: true,
  firstPsn: true,
};

/** Throws ERR_INVALID_ARGUMENT for wrong options, or where there may be none. */
export function checkTrpOptions(name: string, options: TrpOptions | undefined, allowed: boolean): void {
  if (options === undefined) return;
  if (!allowed) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} are for wire: 'trp'`);
  checkOptions(name, options, OPTIONS);
  const { profile, receiver, reads, window, mtu, deadPeer, firstPsn } = options;
  if (profile !== undefined) checkOneOf(`${name}.profile`, profile, TRP_PROFILES);
  if (receiver !== undefined) checkOneOf(`${name}.receiver`, receiver, TRP_RECEIVERS);
  if (reads !== undefined) checkOneOf(`${name}.reads`, reads, TRP_READS);
  if (window !== undefined) checkInteger(`${name}.window`, window, 4, 4096);
  if (mtu !== undefined) checkInteger(`${name}.mtu`, mtu, 576, 65_535);
  if (deadPeer !== undefined) checkInteger(`${name}.deadPeer`, deadPeer, 1, 3_600_000);
  if (firstPsn !== undefined) checkInteger(`${name}.firstPsn`, firstPsn, 0, 0xffff_ffff);
  if (profile === 'urdma' && (reads === 'placed' || (firstPsn ?? 0) !== 0)) {
    const why = 'has Reads in order and first sequence number 0';
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}: the profile urdma ${why}`);
  }
}

/** Milliseconds without any progress after which a peer counts as dead, where nothing else is said. */
export const DEAD_PEER = 15_000;

/** The fixed properties of a profile. */
export interface TrpProfile {
  readonly name: TrpProfileName;
  /** Most bytes of private data in a request, an accept or a reject. */
  readonly maxPrivateData: number;
  /** The first PSN is drawn at random and stands in the set-up datagrams; else it is 0 and must be. */
  readonly randomFirst: boolean;
  /** Accepts and rejects have at most three times the bytes of the requests, until the address is known. */
  readonly validates: boolean;
  /** Ranges that a receiver keeps above a hole. */
  readonly maxRanges: number;
  /** Ranges in one acknowledgement. */
  readonly reportedRanges: number;
  /** Round trips are measured, and losses found by them; else each datagram has `fixedTimeout`. */
  readonly adaptive: boolean;
  /** Milliseconds after which an unacknowledged datagram is sent again, without measuring. */
  readonly fixedTimeout: number;
  /** Transmissions of one datagram at least, without measuring, before the peer counts as dead. */
  readonly maxTransmissions: number;
  /** Milliseconds without progress, at least, before the peer counts as dead. */
  readonly deadPeer: number;
  /** A FIN is sent again until the peer's comes. */
  readonly repeatsFin: boolean;
}

/** The profiles by name. */
export const PROFILES: Readonly<Record<TrpProfileName, TrpProfile>> = {
  fixed: {
    name: 'fixed',
    maxPrivateData: 512,
    randomFirst: true,
    validates: true,
    maxRanges: 64,
    reportedRanges: 4,
    adaptive: true,
    fixedTimeout: 0,
    maxTransmissions: Number.POSITIVE_INFINITY,
    deadPeer: DEAD_PEER,
    repeatsFin: true,
  },
  urdma: {
    name: 'urdma',
    maxPrivateData: 255,
    randomFirst: false,
    validates: false,
    maxRanges: 1,
    reportedRanges: 1,
    adaptive: false,
    fixedTimeout: 10,
    maxTransmissions: 6,
    deadPeer: 0,
    repeatsFin: false,
  },
};

/** MTU of Ethernet, where none is known. */
const DEFAULT_MTU = 1500;
/** Jumbo frames, as the old code knows them. */
const JUMBO_MTU = 9000;
/**
 * For interfaces without frames, such as loopback with its 65,536. A datagram of that length takes 32 KiB of
 * a receive buffer, the system's bookkeeping included. Longer ones made nothing faster, and of them too few
 * can be out.
 */
const MAX_AUTO_MTU = 32_348;
const IP_AND_UDP = { IPv4: 28, IPv6: 48 } as const;
/** Bytes of the header between UDP and DDP. */
const TRP_HEADER = 10;
/**
 * Bytes of receive buffer that a connection asks its system for. Linux gives as much unless it is set
 * to give less, for it counts twice what a program may ask for (208 KiB).
 */
export const RECEIVE_BUFFER = 425_984;
/** The default window: datagrams, and bytes of the peer's receive buffer. */
const WINDOW = 256;
const WINDOW_OCTETS = 393_216;
/** An old peer has asked for no buffer. */
const OLD_WINDOW_OCTETS = 196_608;

/** An MTU that every path is taken to carry, bytes (RFC 8899 5.1.2). */
const BASE_MTU = 1200;

/** The sizes of one connection. */
export interface TrpSizes {
  /** Bytes of the longest ULPDU. */
  readonly mulpdu: number;
  /** Bytes of payload in one segment, where the profile limits them and not the ULPDU. */
  readonly payloadLimit: number;
  /** Datagrams that may be unacknowledged. */
  readonly window: number;
  /** Bytes that those may take in the peer's socket. */
  readonly octets: number;
  /** Bytes of the longest ULPDU once the path has been found to carry less; Infinity: it never is. */
  readonly narrow: number;
}

/** The sizes for a path with this MTU. `urdma`: 8192 bytes of payload at an MTU of 9000, else 1024. */
export function sizesFor(
  profile: TrpProfile,
  options: TrpOptions,
  mtu: number | undefined,
  family: 'IPv4' | 'IPv6',
): TrpSizes {
  const { adaptive } = profile;
  const { window = WINDOW } = options;
  const path = options.mtu ?? Math.min(mtu ?? DEFAULT_MTU, adaptive ? MAX_AUTO_MTU : JUMBO_MTU);
  const payloadLimit = adaptive ? Number.POSITIVE_INFINITY : path === JUMBO_MTU ? 8192 : 1024;
  const mulpdu = adaptive ? path - IP_AND_UDP[family] - TRP_HEADER : payloadLimit + 18;
  const narrow = BASE_MTU - IP_AND_UDP[family] - TRP_HEADER;
  const most = adaptive ? WINDOW_OCTETS : OLD_WINDOW_OCTETS;
  return {
    mulpdu,
    payloadLimit,
    window,
    octets: options.window === undefined ? most : Number.POSITIVE_INFINITY,
    narrow: adaptive && narrow < mulpdu ? narrow : Number.POSITIVE_INFINITY,
  };
}
