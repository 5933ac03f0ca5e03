// Captures of single cases as pcap files: what the probe sent and received, with synthetic IPv4 and TCP
// headers that are consistent, so that any protocol analyser takes them apart. Format: the classic pcap file
// header, link type 101 (raw IP).

import type { Capture, CaptureEntry } from './channel.ts';
import { joinAll } from './connection.ts';

const LINKTYPE_RAW = 101;
const SNAPLEN = 262_144;
/** Payload of one synthetic segment; small enough for the 16-bit IP length. */
const SEGMENT = 32_768;
const FIN = 0x01;
const SYN = 0x02;
const RST = 0x04;
const PSH = 0x08;
const ACK = 0x10;

interface Side {
  readonly address: readonly number[];
  readonly port: number;
  seq: number;
}

/** The octets of a pcap file. `base` is the wall-clock time, in milliseconds, of `at` 0. */
export function pcapOf(capture: Capture, base: number): Uint8Array {
  const parts: Uint8Array[] = [fileHeader()];
  const connections = new Map<number, { probe: Side; peer: Side }>();
  for (const entry of capture) {
    let sides = connections.get(entry.connection);
    if (sides === undefined) {
      sides = {
        probe: { address: [192, 0, 2, 1], port: 40_000 + entry.connection, seq: 1000 },
        peer: { address: [192, 0, 2, 2], port: 7174, seq: 2000 },
      };
      connections.set(entry.connection, sides);
    }
    for (const packet of packetsOf(entry, sides))
      parts.push(recordHeader(base + entry.at, packet.length), packet);
  }
  return joinAll(parts);
}

function packetsOf(entry: CaptureEntry, { probe, peer }: { probe: Side; peer: Side }): Uint8Array[] {
  const [from, to] = entry.from === 'probe' ? [probe, peer] : [peer, probe];
  const none = new Uint8Array(0);
  if (entry.kind === 'open') {
    const syn = packet(from, to, SYN, none, 0);
    from.seq++;
    const synAck = packet(to, from, SYN | ACK, none, from.seq);
    to.seq++;
    return [syn, synAck, packet(from, to, ACK, none, to.seq)];
  }
  if (entry.kind === 'rst') return [packet(from, to, RST | ACK, none, to.seq)];
  if (entry.kind === 'fin') {
    const fin = packet(from, to, FIN | ACK, none, to.seq);
    from.seq++;
    return [fin];
  }
  const packets: Uint8Array[] = [];
  for (let at = 0; at < entry.bytes.length; at += SEGMENT) {
    const payload = entry.bytes.subarray(at, at + SEGMENT);
    packets.push(packet(from, to, PSH | ACK, payload, to.seq));
    from.seq = (from.seq + payload.length) >>> 0;
  }
  return packets;
}

function packet(from: Side, to: Side, flags: number, payload: Uint8Array, ack: number): Uint8Array {
  const bytes = new Uint8Array(40 + payload.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = 0x45;
  view.setUint16(2, bytes.length);
  bytes[8] = 64;
  bytes[9] = 6;
  bytes.set(from.address, 12);
  bytes.set(to.address, 16);
  view.setUint16(10, checksum(bytes.subarray(0, 20), 0));
  view.setUint16(20, from.port);
  view.setUint16(22, to.port);
  view.setUint32(24, from.seq);
  view.setUint32(28, ack);
  bytes[32] = 0x50;
  bytes[33] = flags;
  view.setUint16(34, 0xffff);
  bytes.set(payload, 40);
  const pseudo = new Uint8Array(12);
  pseudo.set(bytes.subarray(12, 20));
  pseudo[9] = 6;
  new DataView(pseudo.buffer).setUint16(10, 20 + payload.length);
  view.setUint16(36, checksum(bytes.subarray(20), sum16(pseudo)));
  return bytes;
}

function sum16(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += (bytes[i]! << 8) | (bytes[i + 1] ?? 0);
  return sum;
}

function checksum(bytes: Uint8Array, start: number): number {
  let sum = start + sum16(bytes);
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x1_0000);
  return ~sum & 0xffff;
}

function fileHeader(): Uint8Array {
  const bytes = new Uint8Array(24);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0xa1b2_c3d4);
  view.setUint16(4, 2);
  view.setUint16(6, 4);
  view.setUint32(16, SNAPLEN);
  view.setUint32(20, LINKTYPE_RAW);
  return bytes;
}

function recordHeader(ms: number, length: number): Uint8Array {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, Math.floor(ms / 1000));
  view.setUint32(4, Math.floor((ms % 1000) * 1000));
  view.setUint32(8, length);
  view.setUint32(12, length);
  return bytes;
}
