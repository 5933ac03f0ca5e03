/**
 * From a captured packet to its TCP segment: link header (Ethernet with VLAN tags, BSD loopback, raw IP, Linux cooked 1 and 2), IPv4
 * and IPv6 with extension headers, TCP. Fragments are told but not put together: TCP finds a size that needs none. Checksums are not
 * looked at: a capture at the sender has none yet. RFC 791, RFC 8200, RFC 9293.
 */
import { LINK_TYPE } from './pcap.ts';

const ETHERTYPE = { IPV4: 0x0800, IPV6: 0x86dd, VLAN: 0x8100, QINQ: 0x88a8, QINQ_OLD: 0x9100 } as const;
/** What stands before an IPv4 address in an IPv6 one, RFC 4291 2.5.5.2. */
const MAPPED: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const PROTOCOL_TCP = 6;
/** IPv6 extension headers that have a length octet; the fragment header is told apart. */
const IPV6_EXTENSIONS: ReadonlySet<number> = new Set([0, 43, 60, 135, 139, 140]);
const IPV6_FRAGMENT = 44;
const IPV6_AUTHENTICATION = 51;
/** Chains of tags or headers longer than this are not followed. */
const MAX_CHAIN = 16;

export const TCP_FLAG = { FIN: 0x01, SYN: 0x02, RST: 0x04, ACK: 0x10 } as const;

/** A TCP segment inside a captured packet; octets are borrowed. */
export interface TcpSegment {
  readonly kind: 'tcp';
  readonly source: string;
  readonly destination: string;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly seq: number;
  readonly ack: number;
  readonly flags: number;
  /** Payload that was captured, and its length on the wire. */
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
  readonly length: number;
}

/** Why a packet holds no segment for us. */
interface NoSegment {
  readonly kind: 'fragment' | 'other' | 'malformed' | 'link-type';
  readonly message: string;
}

/** Find the TCP segment in `bytes[start..end)`, a packet that had `original` octets on the link. */
export function parsePacket(
  bytes: Uint8Array, start: number, end: number, linkType: number, original: number = end - start,
): TcpSegment | NoSegment {
  const network = networkOf(bytes, start, end, linkType);
  if (typeof network === 'object') return network;
  if (network >= end) return { kind: 'malformed', message: 'the packet ends inside its link header' };
  const version = bytes[network]! >>> 4;
  if (version === 4) return parseIpv4(bytes, network, end, start + original);
  if (version === 6) return parseIpv6(bytes, network, end, start + original);
  return { kind: 'other', message: `IP version ${version}` };
}

/** Offset of the IP header. */
function networkOf(bytes: Uint8Array, start: number, end: number, linkType: number): number | NoSegment {
  switch (linkType) {
    case LINK_TYPE.ETHERNET: return behindEthertype(bytes, start + 12, end);
    case LINK_TYPE.NULL:
    case LINK_TYPE.LOOP: return start + 4;
    case LINK_TYPE.RAW_BSD:
    case LINK_TYPE.RAW:
    case LINK_TYPE.IPV4:
    case LINK_TYPE.IPV6: return start;
    case LINK_TYPE.LINUX_SLL: return behindEthertype(bytes, start + 14, end);
    case LINK_TYPE.LINUX_SLL2: return ethertypeThen(bytes, start, end, start + 20);
    default: return { kind: 'link-type', message: `link type ${linkType} is not decoded` };
  }
}

/** The EtherType at `at` and whatever tags follow it. */
function behindEthertype(bytes: Uint8Array, at: number, end: number): number | NoSegment {
  return ethertypeThen(bytes, at, end, at + 2);
}

function ethertypeThen(bytes: Uint8Array, typeAt: number, end: number, after: number): number | NoSegment {
  let at = typeAt;
  let next = after;
  for (let i = 0; i < MAX_CHAIN && at + 2 <= end; i++) {
    const type = (bytes[at]! << 8) | bytes[at + 1]!;
    if (type === ETHERTYPE.IPV4 || type === ETHERTYPE.IPV6) return next;
    if (type !== ETHERTYPE.VLAN && type !== ETHERTYPE.QINQ && type !== ETHERTYPE.QINQ_OLD) {
      return { kind: 'other', message: `EtherType 0x${type.toString(16).padStart(4, '0')}` };
    }
    // A tag: two octets of control, then the next EtherType.
    at = next + 2;
    next = at + 2;
  }
  return { kind: 'malformed', message: 'the packet ends inside its link header' };
}

function parseIpv4(bytes: Uint8Array, at: number, end: number, linkEnd: number): TcpSegment | NoSegment {
  if (end - at < 20) return { kind: 'malformed', message: 'IPv4 header cut short' };
  const header = (bytes[at]! & 0x0f) * 4;
  if (header < 20 || at + header > end) return { kind: 'malformed', message: `IPv4 header of ${header} octets` };
  const fragment = (bytes[at + 6]! << 8) | bytes[at + 7]!;
  if (bytes[at + 9] !== PROTOCOL_TCP) return { kind: 'other', message: `IP protocol ${bytes[at + 9]}` };
  if ((fragment & 0x3fff) !== 0) return { kind: 'fragment', message: 'an IPv4 fragment of a TCP segment: fragments are not put together' };
  // A length of 0 is what a capture in front of segmentation offload shows: everything after it belongs to the segment.
  const total = (bytes[at + 2]! << 8) | bytes[at + 3]!;
  const packetEnd = total === 0 ? linkEnd : at + total;
  return parseTcp(bytes, at + header, end, packetEnd, ipv4Text(bytes, at + 12), ipv4Text(bytes, at + 16));
}

function parseIpv6(bytes: Uint8Array, at: number, end: number, linkEnd: number): TcpSegment | NoSegment {
  if (end - at < 40) return { kind: 'malformed', message: 'IPv6 header cut short' };
  const payload = (bytes[at + 4]! << 8) | bytes[at + 5]!;
  const packetEnd = payload === 0 ? linkEnd : at + 40 + payload;
  let next = bytes[at + 6]!;
  let header = at + 40;
  for (let i = 0; i < MAX_CHAIN && next !== PROTOCOL_TCP; i++) {
    if (next === IPV6_FRAGMENT && header + 8 <= end) {
      const fragment = (bytes[header + 2]! << 8) | bytes[header + 3]!;
      if ((fragment & 0xfff9) !== 0) return { kind: 'fragment', message: 'an IPv6 fragment: fragments are not put together' };
      next = bytes[header]!;
      header += 8;
      continue;
    }
    const authenticated = next === IPV6_AUTHENTICATION;
    if ((!authenticated && !IPV6_EXTENSIONS.has(next)) || header + 2 > end) return { kind: 'other', message: `IP protocol ${next}` };
    next = bytes[header]!;
    header += authenticated ? (bytes[header + 1]! + 2) * 4 : (bytes[header + 1]! + 1) * 8;
  }
  if (next !== PROTOCOL_TCP) return { kind: 'other', message: `IP protocol ${next}` };
  return parseTcp(bytes, header, end, packetEnd, ipv6Text(bytes, at + 8), ipv6Text(bytes, at + 24));
}

function parseTcp(
  bytes: Uint8Array, at: number, end: number, packetEnd: number, source: string, destination: string,
): TcpSegment | NoSegment {
  if (end - at < 20) return { kind: 'malformed', message: 'TCP header cut short' };
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, 20);
  const header = (view.getUint8(12) >>> 4) * 4;
  const length = packetEnd - at - header;
  if (header < 20 || length < 0) return { kind: 'malformed', message: `TCP header of ${header} octets in ${packetEnd - at}` };
  const start = Math.min(at + header, end);
  return {
    kind: 'tcp', source, destination,
    sourcePort: view.getUint16(0), destinationPort: view.getUint16(2), seq: view.getUint32(4), ack: view.getUint32(8),
    flags: view.getUint8(13), bytes, start, end: Math.min(end, start + length), length,
  };
}

function ipv4Text(bytes: Uint8Array, at: number): string {
  return `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`;
}

/**
 * Shortened as RFC 5952 says: the longest run of zero groups becomes `::`. A mapped IPv4 address is written as IPv4: no host sends one,
 * but a capture that a proxy writes has it where one of its two ends speaks IPv6.
 */
function ipv6Text(bytes: Uint8Array, at: number): string {
  if (MAPPED.every((octet, i) => bytes[at + i] === octet)) return ipv4Text(bytes, at + MAPPED.length);
  const groups = Array.from({ length: 8 }, (_, i) => ((bytes[at + 2 * i]! << 8) | bytes[at + 2 * i + 1]!).toString(16));
  const zeros = [...groups.join(',').matchAll(/(?:^|(?<=,))0(?:,0)+(?=,|$)/g)].sort((a, b) => b[0].length - a[0].length)[0];
  if (zeros === undefined) return groups.join(':');
  const text = groups.join(',');
  const front = text.slice(0, zeros.index).replace(/,$/, '').replaceAll(',', ':');
  const back = text.slice(zeros.index + zeros[0].length).replace(/^,/, '').replaceAll(',', ':');
  return `${front}::${back}`;
}
