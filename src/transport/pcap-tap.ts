/**
 * A tap that writes capture files, with made-up TCP/IP headers around the bytes that really passed, so that
 * ordinary dissectors can read sent and received bytes, in memory as over a network.
 *
 * Read first: RFC 9293 sections 3.1 (header) and 3.4 (sequence numbers), RFC 791 section 3.1, RFC 8200
 * sections 3 and 8.1 (pseudo-header), RFC 1071 (checksum). The file is classic pcap with nanosecond times and
 * link type RAW: packets begin with the IP header, so no link layer has to be invented, and every common
 * reader knows it.
 */

import { closeSync, openSync, writeSync } from 'node:fs';
import { IwarpError, checkFunction, checkInteger, checkOptions, type Names } from '../base/errors.ts';
import { mappedIpv6, ipOctets } from './ip-address.ts';
import type { PortMiddleware } from './middleware.ts';
import type { PortAddress } from './port.ts';
import { realScheduler } from './scheduler.ts';
import type { DatagramTarget } from './datagram.ts';
import { tap, type TapDirection, type TapInfo, type TapSink } from './tap.ts';

const MAGIC_NANOSECONDS = 0xa1b2_3c4d;
const LINKTYPE_RAW = 101;
/** Above every IP packet. */
const SNAPLEN = 262_144;
const FILE_HEADER_OCTETS = 24;
const RECORD_HEADER_OCTETS = 16;
const IPV4_HEADER_OCTETS = 20;
const IPV6_HEADER_OCTETS = 40;
const TCP_HEADER_OCTETS = 20;
/** Maximum segment size and window scale, padded to words. */
const SYN_OPTION_OCTETS = 8;
/** The largest segment that fits into an IPv4 packet of 65535 bytes. */
const MAX_SEGMENT = 65_535 - IPV4_HEADER_OCTETS - TCP_HEADER_OCTETS;
const PROTOCOL_TCP = 6;
const PROTOCOL_UDP = 17;
const UDP_HEADER_OCTETS = 8;
/**
 * The largest scale of RFC 7323, so that no dissector ever sees a full window: we do not know the true ones.
 */
const WINDOW_SCALE = 14;
const FIN = 0x01;
const SYN = 0x02;
const RST = 0x04;
const PSH = 0x08;
const ACK = 0x10;

/** Options of {@link pcapTap}. */
export interface PcapTapOptions {
  /** Longest TCP payload. Default and maximum 65495; longer pieces are split. */
  readonly mss?: number | undefined;
  /**
   * Milliseconds since 1970 at the scheduler's time 0. Default 0: the times of a virtual clock are written
   * unchanged.
   */
  readonly epoch?: number | undefined;
  /** First sequence numbers of the connecting and of the accepting end. Default 0x10000000 and 0x20000000. */
  readonly firstSequence?: readonly [active: number, passive: number] | undefined;
  /**
   * Where the segment that starts at `start` ends, `end` at most. Default: at `end`. For dissectors that need
   * one protocol data unit in each segment, where several were written at once.
   */
  readonly cut?:
    | ((direction: TapDirection, bytes: Uint8Array, start: number, end: number) => number)
    | undefined;
}

const OPTIONS: Names<PcapTapOptions> = { mss: true, epoch: true, firstSequence: true, cut: true };

/**
 * Make tap sinks that all write to one capture; its header is written at once. Put the tap on one end of a
 * connection only: with both ends every packet is written twice.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const file = openPcapFile('run.pcap');
 * const tapped = wrapTransport(network, tap(time, pcapTap(file.output)));
 * // … and at the end
 * file.close();
 */
export function pcapTap(
  output: (bytes: Uint8Array) => void,
  options: PcapTapOptions = {},
): (info: TapInfo) => TapSink {
  checkFunction('output', output);
  checkOptions('options', options, OPTIONS);
  const mss = checkInteger('options.mss', options.mss ?? MAX_SEGMENT, 1, MAX_SEGMENT);
  output(fileHeader());
  return (info) => new PcapSink(output, info, mss, options);
}

/** An open capture file. */
export interface PcapFile {
  /** Append bytes. Does nothing after `close()`. */
  output(bytes: Uint8Array): void;
  /** Close the file. */
  close(): void;
}

/**
 * Open a capture file for {@link pcapTap}. Writes are synchronous, so that what happened before a crash is in
 * the file. Throws the system's error if it cannot be opened.
 */
export function openPcapFile(path: string): PcapFile {
  const file = openSync(path, 'w');
  let state: 'open' | 'closed' = 'open';
  return {
    output(bytes: Uint8Array): void {
      if (state === 'closed') return;
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
    },
    close(): void {
      if (state === 'closed') return;
      state = 'closed';
      closeSync(file);
    },
  };
}

/**
 * @internal A capture that is being written: `sink` makes a sink for each connection, and `close` ends it.
 */
export interface CaptureFile {
  readonly sink: (info: TapInfo) => TapSink;
  /** Write one datagram; `time` is the scheduler's. */
  datagram(from: DatagramTarget, to: DatagramTarget, bytes: Uint8Array, time: number): void;
  close(): void;
}

/**
 * @internal A capture that must not disturb the traffic it records: where the file can no longer be written
 *   (the disk is full), it is closed, `ended` is called once, and the traffic goes on without it. Throws the
 *   system's error if the file cannot be opened, or not even its header can be written.
 */
export function openCapture(
  path: string,
  ended: (error: Error) => void,
  options?: PcapTapOptions,
): CaptureFile {
  const file = openPcapFile(path);
  const output = (bytes: Uint8Array): void => {
    try {
      file.output(bytes);
    } catch (error) {
      file.close();
      if (begun) ended(error as Error);
      else throw error;
    }
  };
  let begun = false;
  const sink = pcapTap(output, options);
  begun = true;
  const { epoch = 0 } = options ?? {};
  return {
    sink,
    datagram: (from, to, bytes, time) => output(record(udpPacket(from, to, bytes), epoch + time)),
    close: file.close,
  };
}

/** @internal The same at the times of the day, for {@link pcapLayer}. */
export function openDayCapture(path: string, ended: (error: Error) => void): CaptureFile {
  return openCapture(path, ended, { epoch: Date.now() - realScheduler.now() });
}

/** @internal A layer that writes all that passes it. */
export function pcapLayer(capture: CaptureFile): PortMiddleware {
  return tap(realScheduler, capture.sink);
}

/** @internal Report the end of a capture by a warning of type `IwarpWarning`. */
export function warnCaptureEnded(path: string, error: Error): void {
  process.emitWarning(`${path}: the capture ends here: ${error.message}`, {
    type: 'IwarpWarning',
    code: 'ERR_ACCESS',
  });
}

function fileHeader(): Uint8Array {
  const view = new DataView(new ArrayBuffer(FILE_HEADER_OCTETS));
  view.setUint32(0, MAGIC_NANOSECONDS, true);
  view.setUint16(4, 2, true);
  view.setUint16(6, 4, true);
  view.setUint32(16, SNAPLEN, true);
  view.setUint32(20, LINKTYPE_RAW, true);
  return new Uint8Array(view.buffer);
}

/** One direction as its packets show it. */
interface Flow {
  readonly source: Uint8Array;
  readonly destination: Uint8Array;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** The next sequence number. */
  sequence: number;
  /** IPv4 identification. */
  identification: number;
}

class PcapSink implements TapSink {
  readonly #output: (bytes: Uint8Array) => void;
  readonly #mss: number;
  readonly #epoch: number;
  readonly #cut: PcapTapOptions['cut'];
  readonly #out: Flow;
  readonly #in: Flow;
  /** Directions that have ended; after a reset nothing follows. */
  readonly #ended = new Set<TapDirection>();

  constructor(output: (bytes: Uint8Array) => void, info: TapInfo, mss: number, options: PcapTapOptions) {
    this.#output = output;
    this.#mss = mss;
    this.#epoch = options.epoch ?? 0;
    this.#cut = options.cut;
    const [active, passive] = options.firstSequence ?? [0x1000_0000, 0x2000_0000];
    const [local, remote] = wireEnds(info);
    const first = info.role === 'active' ? [active, passive] : [passive, active];
    this.#out = flow(local, remote, first[0] ?? 0);
    this.#in = flow(remote, local, first[1] ?? 0);
  }

  open(info: TapInfo): void {
    const [caller, callee]: TapDirection[] = info.role === 'active' ? ['out', 'in'] : ['in', 'out'];
    if (caller === undefined || callee === undefined) return;
    this.#packet(caller, SYN, info.time);
    this.#packet(callee, SYN | ACK, info.time);
    this.#packet(caller, ACK, info.time);
  }

  data(direction: TapDirection, bytes: Uint8Array, start: number, end: number, time: number): void {
    if (start === end) return;
    for (let at = start; at < end; ) {
      const cut = this.#cut?.(direction, bytes, at, end) ?? end;
      const pieceEnd = cut > at && cut < end ? cut : end;
      while (at < pieceEnd) {
        const stop = Math.min(pieceEnd, at + this.#mss);
        this.#packet(direction, PSH | ACK, time, bytes, at, stop);
        at = stop;
      }
    }
    this.#packet(other(direction), ACK, time);
  }

  end(direction: TapDirection, time: number): void {
    if (this.#ended.has(direction)) return;
    this.#ended.add(direction);
    this.#packet(direction, FIN | ACK, time);
    this.#packet(other(direction), ACK, time);
  }

  close(error: Error | undefined, time: number, direction: TapDirection): void {
    if (error !== undefined) this.#packet(direction, RST | ACK, time);
  }

  #packet(
    direction: TapDirection,
    flags: number,
    time: number,
    bytes?: Uint8Array,
    start = 0,
    end = 0,
  ): void {
    const [flow, back] = direction === 'out' ? [this.#out, this.#in] : [this.#in, this.#out];
    const acknowledged = (flags & ACK) === 0 ? 0 : back.sequence;
    const segment = tcpSegment(flow, flags, acknowledged, bytes?.subarray(start, end));
    const packet = flow.source.length === 4 ? ipv4Packet(flow, segment) : ipv6Packet(flow, segment);
    const spent = end - start + ((flags & (SYN | FIN)) === 0 ? 0 : 1);
    flow.sequence = (flow.sequence + spent) >>> 0;
    flow.identification = (flow.identification + 1) & 0xffff;
    this.#output(record(packet, this.#epoch + time));
  }
}

function other(direction: TapDirection): TapDirection {
  return direction === 'out' ? 'in' : 'out';
}

/** Numbers for the connections over Unix sockets in captures. */
let unixConnections = 0;

/**
 * The ends as packets can name them. A Unix socket has no address of IP: the end with the path becomes port
 * 1 of loopback, and the other one a port for each connection.
 */
function wireEnds({ localAddress, remoteAddress, role }: TapInfo): [PortAddress, PortAddress] {
  if (localAddress.family !== 'Unix') return [localAddress, remoteAddress];
  const loopback = { address: '127.0.0.1', family: 'IPv4' } as const;
  const listening = { ...loopback, port: 1 };
  const calling = { ...loopback, port: 1024 + (unixConnections++ % 64_512) };
  return role === 'active' ? [calling, listening] : [listening, calling];
}

function flow(from: PortAddress, to: PortAddress, sequence: number): Flow {
  const [source, destination] = wireAddresses(from.address, to.address);
  return {
    source,
    destination,
    sourcePort: from.port,
    destinationPort: to.port,
    sequence: sequence >>> 0,
    identification: 1,
  };
}

/** Both addresses in one family: mapped IPv4 is IPv4 on the wire. */
function wireAddresses(from: string, to: string): [Uint8Array, Uint8Array] {
  const a = ipOctets(from);
  const b = ipOctets(to);
  if (a === undefined || b === undefined) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `a capture needs IP addresses, got ${from} and ${to}`);
  }
  if (a.length === b.length) return [a, b];
  return [mappedIpv6(a), mappedIpv6(b)];
}

function record(packet: Uint8Array, milliseconds: number): Uint8Array {
  const bytes = new Uint8Array(RECORD_HEADER_OCTETS + packet.length);
  const view = new DataView(bytes.buffer);
  // Whole seconds first: nanoseconds since 1970 do not fit a double.
  const seconds = Math.floor(milliseconds / 1000);
  const nanoseconds = Math.min(999_999_999, Math.round((milliseconds - seconds * 1000) * 1e6));
  view.setUint32(0, seconds >>> 0, true);
  view.setUint32(4, nanoseconds, true);
  view.setUint32(8, packet.length, true);
  view.setUint32(12, packet.length, true);
  bytes.set(packet, RECORD_HEADER_OCTETS);
  return bytes;
}

function tcpSegment(
  flow: Flow,
  flags: number,
  acknowledged: number,
  payload: Uint8Array | undefined,
): Uint8Array {
  const isSyn = (flags & SYN) !== 0;
  const headerOctets = TCP_HEADER_OCTETS + (isSyn ? SYN_OPTION_OCTETS : 0);
  const bytes = new Uint8Array(headerOctets + (payload?.length ?? 0));
  const view = new DataView(bytes.buffer);
  view.setUint16(0, flow.sourcePort);
  view.setUint16(2, flow.destinationPort);
  view.setUint32(4, flow.sequence);
  view.setUint32(8, acknowledged);
  view.setUint8(12, (headerOctets / 4) << 4);
  view.setUint8(13, flags);
  view.setUint16(14, 0xffff);
  if (isSyn) {
    view.setUint32(20, (2 << 24) | (4 << 16) | MAX_SEGMENT);
    view.setUint32(24, (1 << 24) | (3 << 16) | (3 << 8) | WINDOW_SCALE);
  }
  if (payload !== undefined) bytes.set(payload, headerOctets);
  const pseudo = PROTOCOL_TCP + bytes.length;
  view.setUint16(16, finish(sum(bytes, sum(flow.destination, sum(flow.source, pseudo)))));
  return bytes;
}

/** A datagram as an IP packet. */
function udpPacket(from: DatagramTarget, to: DatagramTarget, payload: Uint8Array): Uint8Array {
  const [source, destination] = wireAddresses(from.address, to.address);
  const bytes = new Uint8Array(UDP_HEADER_OCTETS + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, from.port);
  view.setUint16(2, to.port);
  view.setUint16(4, bytes.length);
  bytes.set(payload, UDP_HEADER_OCTETS);
  const pseudo = PROTOCOL_UDP + bytes.length;
  view.setUint16(6, finish(sum(bytes, sum(destination, sum(source, pseudo)))) || 0xffff);
  const addresses = { source, destination, identification: 0 };
  return source.length === 4
    ? ipv4Packet(addresses, bytes, PROTOCOL_UDP)
    : ipv6Packet(addresses, bytes, PROTOCOL_UDP);
}

type Addresses = Pick<Flow, 'source' | 'destination' | 'identification'>;

function ipv4Packet(flow: Addresses, segment: Uint8Array, protocol = PROTOCOL_TCP): Uint8Array {
  const bytes = new Uint8Array(IPV4_HEADER_OCTETS + segment.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, 0x45);
  view.setUint16(2, bytes.length);
  view.setUint16(4, flow.identification);
  view.setUint16(6, 0x4000);
  view.setUint8(8, 64);
  view.setUint8(9, protocol);
  bytes.set(flow.source, 12);
  bytes.set(flow.destination, 16);
  view.setUint16(10, finish(sum(bytes.subarray(0, IPV4_HEADER_OCTETS), 0)));
  bytes.set(segment, IPV4_HEADER_OCTETS);
  return bytes;
}

function ipv6Packet(flow: Addresses, segment: Uint8Array, protocol = PROTOCOL_TCP): Uint8Array {
  const bytes = new Uint8Array(IPV6_HEADER_OCTETS + segment.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, 0x60);
  view.setUint16(4, segment.length);
  view.setUint8(6, protocol);
  view.setUint8(7, 64);
  bytes.set(flow.source, 8);
  bytes.set(flow.destination, 24);
  bytes.set(segment, IPV6_HEADER_OCTETS);
  return bytes;
}

/** Adds the 16-bit words of `bytes` to `start`. A packet's worth of carries stays far below 2^53. */
function sum(bytes: Uint8Array, start: number): number {
  let total = start;
  const even = bytes.length & ~1;
  for (let i = 0; i < even; i += 2) total += ((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0);
  return even === bytes.length ? total : total + ((bytes[even] ?? 0) << 8);
}

/** The complement of the sum with its carries added back in. */
function finish(total: number): number {
  let folded = total;
  while (folded > 0xffff) folded = (folded % 0x1_0000) + Math.floor(folded / 0x1_0000);
  return ~folded & 0xffff;
}
