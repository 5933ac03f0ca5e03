/** Captures of iWARP over UDP, made of what passed through a network in memory, or of datagrams by hand. */
import { concat, ethernet, ipv4, ipv6, pcapOf } from '../inspect/support.ts';
import type { World } from './support.ts';

const UDP = 17;

/** A datagram between two ports of one machine, from the lower address if it is the client's. */
export interface Sent {
  readonly bytes: Uint8Array;
  readonly fromPort: number;
  readonly toPort: number;
  /** 0 from the client's address, 1 from the server's. */
  readonly side: 0 | 1;
}

/** One Ethernet frame with `bytes` in a UDP datagram. */
export function udpPacket({ bytes, fromPort, toPort, side }: Sent, v6 = false): Uint8Array {
  const header = new Uint8Array(8);
  const view = new DataView(header.buffer);
  view.setUint16(0, fromPort);
  view.setUint16(2, toPort);
  view.setUint16(4, 8 + bytes.length);
  const datagram = concat(header, bytes);
  if (v6) return ethernet(ipv6(side, datagram, UDP));
  const packet = ipv4(side, datagram);
  packet[9] = UDP;
  let sum = 0;
  packet[10] = packet[11] = 0;
  for (let i = 0; i < 20; i += 2) sum += (packet[i]! << 8) | packet[i + 1]!;
  sum = (sum & 0xffff) + (sum >>> 16);
  packet[10] = (~sum >>> 8) & 0xff;
  packet[11] = ~sum & 0xff;
  return ethernet(packet);
}

/** A pcap file of all that was sent in `world`, lost datagrams included. */
export function captureOf({ network }: World, v6 = false): Uint8Array {
  const client = network.passed[0]!.fromPort;
  return pcapOf(
    network.passed.map(({ bytes, fromPort, to }) =>
      udpPacket({ bytes, fromPort, toPort: to.port, side: fromPort === client ? 0 : 1 }, v6),
    ),
  );
}
