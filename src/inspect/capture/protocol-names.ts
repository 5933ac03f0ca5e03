/**
 * Names of protocols that the packet reader does not look into, so that a summary can name the traffic left
 * out and the reason: a tunnel or a tag may hide the iWARP that a reader misses. Numbers of the IANA and IEEE
 * registries.
 */

const ETHER_TYPES: ReadonlyMap<number, string> = new Map([
  [0x0806, 'ARP'],
  [0x6558, 'Ethernet over GRE'],
  [0x8847, 'MPLS'],
  [0x8848, 'MPLS multicast'],
  [0x8863, 'PPPoE discovery'],
  [0x8864, 'PPPoE'],
  [0x88cc, 'LLDP'],
  [0x88e5, 'MACsec'],
  [0x88e7, 'provider backbone bridge'],
  [0x8915, 'RoCE'],
]);

const PROTOCOLS: ReadonlyMap<number, string> = new Map([
  [1, 'ICMP'],
  [4, 'IPv4 in IP'],
  [17, 'UDP'],
  [41, 'IPv6 in IP'],
  [47, 'GRE'],
  [50, 'IPsec ESP'],
  [58, 'ICMPv6'],
  [115, 'L2TP'],
  [132, 'SCTP'],
]);

const UDP = 17;
/** UDP ports that carry whole packets. */
const UDP_TUNNELS: ReadonlyMap<number, string> = new Map([
  [2152, 'GTP-U'],
  [4500, 'IPsec in UDP'],
  [4789, 'VXLAN'],
  [4791, 'RoCEv2'],
  [6081, 'Geneve'],
  [8472, 'VXLAN'],
  [51_820, 'WireGuard'],
]);

/** `EtherType 0x8847 (MPLS)`. */
export function etherTypeName(type: number): string {
  return named(`EtherType 0x${type.toString(16).padStart(4, '0')}`, ETHER_TYPES.get(type));
}

/** `IP protocol 47 (GRE)`; of UDP, whose header is at `at`, the port if a tunnel uses it. */
export function protocolName(protocol: number, bytes: Uint8Array, at: number, end: number): string {
  if (protocol === UDP && at + 4 <= end) {
    const port = (bytes[at + 2]! << 8) | bytes[at + 3]!;
    const tunnel = UDP_TUNNELS.get(port);
    if (tunnel !== undefined) return `UDP port ${port} (${tunnel})`;
  }
  return named(`IP protocol ${protocol}`, PROTOCOLS.get(protocol));
}

function named(number: string, name: string | undefined): string {
  return name === undefined ? number : `${number} (${name})`;
}
