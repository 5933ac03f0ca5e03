/**
 * From a captured packet to its TCP segment or UDP datagram: link header (Ethernet with VLAN tags, BSD
 * loopback, raw IP, Linux cooked 1 and 2), IPv4 and IPv6 with extension headers, TCP, UDP. Fragments are
 * counted, not joined: TCP finds a size that needs none. A TCP checksum that an offloading sender leaves to
 * its card is not held against a segment. RFC 791, RFC 8200, RFC 9293, RFC 768.
 */
import { LINK_TYPE } from './pcap.ts';
import { etherTypeName, protocolName } from './protocol-names.ts';

const ETHERTYPE = { IPV4: 0x0800, IPV6: 0x86dd, VLAN: 0x8100, QINQ: 0x88a8, QINQ_OLD: 0x9100 } as const;
/** The prefix of an IPv4 address in an IPv6 one, RFC 4291 2.5.5.2. */
const MAPPED: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const PROTOCOL_TCP = 6;
const PROTOCOL_UDP = 17;
const UDP_HEADER_OCTETS = 8;
const TCP_HEADER_OCTETS = 20;
const TCP_OPTION = { END: 0, NOP: 1, WINDOW_SCALE: 3 } as const;
/** IPv6 extension headers that have a length byte; the fragment header has none. */
const IPV6_EXTENSIONS: ReadonlySet<number> = new Set([0, 43, 60, 135, 139, 140]);
const IPV6_FRAGMENT = 44;
const IPV6_AUTHENTICATION = 51;
/** Chains of tags or headers longer than this are not followed. */
const MAX_CHAIN = 16;

export const TCP_FLAG = { FIN: 0x01, SYN: 0x02, RST: 0x04, ACK: 0x10 } as const;

/** A TCP segment inside a captured packet; bytes are borrowed. */
export interface TcpSegment {
  readonly kind: 'tcp';
  readonly source: string;
  readonly destination: string;
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly seq: number;
  readonly ack: number;
  readonly flags: number;
  /** The window field, and the shift that a SYN announces for it (RFC 7323 2.2). */
  readonly window: number;
  readonly windowShift: number | undefined;
  readonly checksum: Checksum;
  /** Payload that was captured, and its length on the wire. */
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
  readonly length: number;
}

/**
 * - good: the checksum fits;
 * - wrong: it fits neither the segment nor what an offloading sender leaves in its place;
 * - unknown: left to the card, or the capture lacks a part of the segment.
 */
type Checksum = 'good' | 'wrong' | 'unknown';

/** A UDP datagram inside a captured packet; bytes are borrowed. */
export interface UdpDatagram {
  readonly kind: 'udp';
  readonly source: string;
  readonly destination: string;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** Payload that was captured, and its length on the wire. */
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
  readonly length: number;
  /** The name of such a packet if it is not of iWARP. */
  readonly name: string;
}

/** Why a packet holds no segment for us. */
interface NoSegment {
  readonly kind: 'fragment' | 'other' | 'malformed' | 'link-type';
  readonly message: string;
}

/** Find the TCP segment in `bytes[start..end)`, a packet that had `original` bytes on the link. */
export function parsePacket(
  bytes: Uint8Array,
  start: number,
  end: number,
  linkType: number,
  original: number = end - start,
): TcpSegment | UdpDatagram | NoSegment {
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
    case LINK_TYPE.ETHERNET:
      return behindEthertype(bytes, start + 12, end);
    case LINK_TYPE.NULL:
    case LINK_TYPE.LOOP:
      return start + 4;
    case LINK_TYPE.RAW_BSD:
    case LINK_TYPE.RAW:
    case LINK_TYPE.IPV4:
    case LINK_TYPE.IPV6:
      return start;
    case LINK_TYPE.LINUX_SLL:
      return behindEthertype(bytes, start + 14, end);
    case LINK_TYPE.LINUX_SLL2:
      return ethertypeThen(bytes, start, end, start + 20);
    default:
      return { kind: 'link-type', message: `link type ${linkType} is not decoded` };
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
      return { kind: 'other', message: etherTypeName(type) };
    }
    // A tag: two octets of control, then the next EtherType.
    at = next + 2;
    next = at + 2;
  }
  return { kind: 'malformed', message: 'the packet ends inside its link header' };
}

function parseIpv4(
  bytes: Uint8Array,
  at: number,
  end: number,
  linkEnd: number,
): TcpSegment | UdpDatagram | NoSegment {
  if (end - at < 20) return { kind: 'malformed', message: 'IPv4 header cut short' };
  const header = (bytes[at]! & 0x0f) * 4;
  if (header < 20 || at + header > end)
    return { kind: 'malformed', message: `IPv4 header of ${header} bytes` };
  const fragment = (bytes[at + 6]! << 8) | bytes[at + 7]!;
  if (bytes[at + 9] === PROTOCOL_UDP && (fragment & 0x3fff) === 0)
    return parseUdp(bytes, at + header, end, { at: at + 12, octets: 4, text: ipv4Text });
  if (bytes[at + 9] !== PROTOCOL_TCP)
    return { kind: 'other', message: protocolName(bytes[at + 9]!, bytes, at + header, end) };
  if ((fragment & 0x3fff) !== 0)
    return { kind: 'fragment', message: 'an IPv4 fragment of a TCP segment: fragments are not put together' };
  // A length of 0 is what a capture in front of segmentation offload shows: everything after it belongs to
  // the segment.
  const total = (bytes[at + 2]! << 8) | bytes[at + 3]!;
  const packetEnd = total === 0 ? linkEnd : at + total;
  const ends = { at: at + 12, octets: 4, text: ipv4Text };
  return parseTcp(bytes, at + header, end, packetEnd, ends);
}

function parseIpv6(
  bytes: Uint8Array,
  at: number,
  end: number,
  linkEnd: number,
): TcpSegment | UdpDatagram | NoSegment {
  if (end - at < 40) return { kind: 'malformed', message: 'IPv6 header cut short' };
  const payload = (bytes[at + 4]! << 8) | bytes[at + 5]!;
  const packetEnd = payload === 0 ? linkEnd : at + 40 + payload;
  let next = bytes[at + 6]!;
  let header = at + 40;
  for (let i = 0; i < MAX_CHAIN && next !== PROTOCOL_TCP && next !== PROTOCOL_UDP; i++) {
    if (next === IPV6_FRAGMENT && header + 8 <= end) {
      const fragment = (bytes[header + 2]! << 8) | bytes[header + 3]!;
      if ((fragment & 0xfff9) !== 0)
        return { kind: 'fragment', message: 'an IPv6 fragment: fragments are not put together' };
      next = bytes[header]!;
      header += 8;
      continue;
    }
    const authenticated = next === IPV6_AUTHENTICATION;
    if ((!authenticated && !IPV6_EXTENSIONS.has(next)) || header + 2 > end)
      return { kind: 'other', message: protocolName(next, bytes, header, end) };
    next = bytes[header]!;
    header += authenticated ? (bytes[header + 1]! + 2) * 4 : (bytes[header + 1]! + 1) * 8;
  }
  if (next === PROTOCOL_UDP) return parseUdp(bytes, header, end, { at: at + 8, octets: 16, text: ipv6Text });
  if (next !== PROTOCOL_TCP) return { kind: 'other', message: protocolName(next, bytes, header, end) };
  return parseTcp(bytes, header, end, packetEnd, { at: at + 8, octets: 16, text: ipv6Text });
}

/** Where an IP header has its two addresses, each of `octets`, and how they are written. */
interface Addresses {
  readonly at: number;
  readonly octets: number;
  readonly text: (bytes: Uint8Array, at: number) => string;
}

function parseTcp(
  bytes: Uint8Array,
  at: number,
  end: number,
  packetEnd: number,
  addresses: Addresses,
): TcpSegment | NoSegment {
  if (end - at < TCP_HEADER_OCTETS) return { kind: 'malformed', message: 'TCP header cut short' };
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, TCP_HEADER_OCTETS);
  const header = (view.getUint8(12) >>> 4) * 4;
  const length = packetEnd - at - header;
  if (header < TCP_HEADER_OCTETS || length < 0)
    return { kind: 'malformed', message: `TCP header of ${header} bytes in ${packetEnd - at}` };
  const start = Math.min(at + header, end);
  const flags = view.getUint8(13);
  return {
    kind: 'tcp',
    source: addresses.text(bytes, addresses.at),
    destination: addresses.text(bytes, addresses.at + addresses.octets),
    sourcePort: view.getUint16(0),
    destinationPort: view.getUint16(2),
    seq: view.getUint32(4),
    ack: view.getUint32(8),
    flags,
    window: view.getUint16(14),
    windowShift:
      (flags & TCP_FLAG.SYN) !== 0 ? windowShiftOf(bytes, at + TCP_HEADER_OCTETS, start) : undefined,
    checksum: packetEnd <= end ? checksumOf(bytes, at, packetEnd, addresses) : 'unknown',
    bytes,
    start,
    end: Math.min(end, start + length),
    length,
  };
}

/** A UDP datagram of which the length field and the packet agree; anything else is another packet. */
function parseUdp(bytes: Uint8Array, at: number, end: number, addresses: Addresses): UdpDatagram | NoSegment {
  const name = protocolName(PROTOCOL_UDP, bytes, at, end);
  if (end - at < UDP_HEADER_OCTETS) return { kind: 'other', message: name };
  const view = new DataView(bytes.buffer, bytes.byteOffset + at, UDP_HEADER_OCTETS);
  const length = view.getUint16(4) - UDP_HEADER_OCTETS;
  if (length < 0) return { kind: 'other', message: name };
  const start = at + UDP_HEADER_OCTETS;
  return {
    kind: 'udp',
    source: addresses.text(bytes, addresses.at),
    destination: addresses.text(bytes, addresses.at + addresses.octets),
    sourcePort: view.getUint16(0),
    destinationPort: view.getUint16(2),
    bytes,
    start,
    end: Math.min(end, start + length),
    length,
    name,
  };
}

/** The shift of the window scale option of a SYN; 0 without one (RFC 7323 2.3: at most 14). */
function windowShiftOf(bytes: Uint8Array, start: number, end: number): number {
  for (let at = start; at + 1 < end; ) {
    const kind = bytes[at]!;
    if (kind === TCP_OPTION.END) break;
    if (kind === TCP_OPTION.WINDOW_SCALE && at + 2 < end) return Math.min(bytes[at + 2]!, 14);
    at += kind === TCP_OPTION.NOP ? 1 : Math.max(2, bytes[at + 1]!);
  }
  return 0;
}

/** The checksum of RFC 9293 3.1 over pseudo-header and segment `bytes[at..end)`. */
function checksumOf(bytes: Uint8Array, at: number, end: number, addresses: Addresses): Checksum {
  const field = (bytes[at + 16]! << 8) | bytes[at + 17]!;
  const pseudo = fold(
    sum16(bytes, addresses.at, addresses.at + 2 * addresses.octets) + PROTOCOL_TCP + end - at,
  );
  // Offload leaves 0, or the sum of the pseudo-header for the card to go on from.
  if (field === 0 || field === pseudo) return 'unknown';
  return fold(pseudo + sum16(bytes, at, end)) === 0xffff ? 'good' : 'wrong';
}

/** The sum of the 16-bit words of `bytes[at..end)`: exact, since 65,535 of them have less than 53 bits. */
function sum16(bytes: Uint8Array, at: number, end: number): number {
  let sum = 0;
  let next = at;
  for (; next + 1 < end; next += 2) sum += (bytes[next]! << 8) | bytes[next + 1]!;
  return next < end ? sum + (bytes[next]! << 8) : sum;
}

function fold(sum: number): number {
  let folded = sum;
  while (folded > 0xffff) folded = (folded % 0x1_0000) + Math.floor(folded / 0x1_0000);
  return folded;
}

function ipv4Text(bytes: Uint8Array, at: number): string {
  return `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`;
}

/**
 * Shortened as RFC 5952 says: the longest run of zero groups becomes `::`. A mapped IPv4 address is written
 * as IPv4: no host sends one, but a capture that a proxy writes has it where one of its two ends speaks IPv6.
 */
function ipv6Text(bytes: Uint8Array, at: number): string {
  if (MAPPED.every((octet, i) => bytes[at + i] === octet)) return ipv4Text(bytes, at + MAPPED.length);
  const groups = Array.from({ length: 8 }, (_, i) =>
    ((bytes[at + 2 * i]! << 8) | bytes[at + 2 * i + 1]!).toString(16),
  );
  const zeros = [...groups.join(',').matchAll(/(?:^|(?<=,))0(?:,0)+(?=,|$)/g)].sort(
    (a, b) => b[0].length - a[0].length,
  )[0];
  if (zeros === undefined) return groups.join(':');
  const text = groups.join(',');
  const front = text.slice(0, zeros.index).replace(/,$/, '').replaceAll(',', ':');
  const back = text
    .slice(zeros.index + zeros[0].length)
    .replace(/^,/, '')
    .replaceAll(',', ':');
  return `${front}::${back}`;
}
