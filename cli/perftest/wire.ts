/**
 * The messages of perftest's control connection, octet for octet as linux-rdma/perftest 6.06 (and 6.29, for
 * the longer form of the destination) sends them.
 */
import { IwarpError } from '../../src/base/errors.ts';
import { hi32, lo32, toBigInt } from '../../src/base/u64.ts';

/**
 * The version that this side announces. From 6.28 on peers exchange device attributes as well, from 6.29 on
 * destinations are longer.
 */
export const OUR_VERSION = '6.06';
const OLDEST_VERSION = 5.7;
const LONG_DESTINATION_VERSION = 6.29;

const VERSION_OCTETS = 16;
export const SHORT_DESTINATION = 56;
export const LONG_DESTINATION = 64;
export type DestinationOctets = typeof SHORT_DESTINATION | typeof LONG_DESTINATION;

/** The message of one side about one of its queue pairs. */
export interface Destination {
  readonly lid: number;
  readonly outReads: number;
  readonly qpn: number;
  readonly psn: number;
  readonly rkey: number;
  readonly vaddr: bigint;
  readonly gid: Uint8Array;
  readonly srqn: number;
  readonly gidIndex: number;
}

/** Sixteen octets of ASCII, padded with NUL. */
export function encodeVersion(version: string): Uint8Array {
  const bytes = new Uint8Array(VERSION_OCTETS);
  bytes.set(Buffer.from(version, 'latin1').subarray(0, VERSION_OCTETS - 1));
  return bytes;
}

/** The peer's version as text. @throws IwarpError ERR_NOT_SUPPORTED when it is too old for this exchange */
export function decodeVersion(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  const version = Buffer.from(bytes.subarray(0, end < 0 ? bytes.length : end)).toString('latin1');
  if (!(Number.parseFloat(version) >= OLDEST_VERSION)) {
    throw new IwarpError(
      'ERR_NOT_SUPPORTED',
      'Current implementation is not compatible with versions older than 5.70',
    );
  }
  return version;
}

/** The form of the destination that a peer of this version uses. */
export function destinationOctets(version: string): DestinationOctets {
  return Number.parseFloat(version) >= LONG_DESTINATION_VERSION ? LONG_DESTINATION : SHORT_DESTINATION;
}

export function encodeU32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

export function decodeU32(bytes: Uint8Array): number {
  return viewOf(bytes, 4).getUint32(0);
}

/** ibv_mtu code, 1 for 256 to 5 for 4096, as a digit and a NUL. */
export function encodeMtu(mtu: number): Uint8Array {
  return Uint8Array.of(0x30 + Math.log2(mtu) - 7, 0);
}

/** The smaller of ours and the peer's, if the peer's can be read. */
export function chooseMtu(ours: number, bytes: Uint8Array): number {
  const code = (bytes[0] ?? 0) - 0x30;
  return code >= 1 && code <= 5 ? Math.min(ours, 128 << code) : ours;
}

const GID_OCTETS = 16;

/** One destination, in the short or long form. */
export function encodeDestination(destination: Destination, octets: DestinationOctets): Uint8Array {
  const bytes = new Uint8Array(octets);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, destination.lid);
  view.setUint32(4, destination.outReads);
  view.setUint32(8, destination.qpn);
  view.setUint32(12, destination.psn);
  view.setUint32(16, destination.rkey);
  view.setUint32(24, hi32(destination.vaddr));
  view.setUint32(28, lo32(destination.vaddr));
  // The long form has one more 64-bit address, for a feature that is not used here.
  const rest = octets === LONG_DESTINATION ? 40 : 32;
  bytes.set(destination.gid.subarray(0, GID_OCTETS), rest);
  view.setUint32(rest + 16, destination.srqn);
  view.setUint32(rest + 20, destination.gidIndex >>> 0);
  return bytes;
}

/** @throws IwarpError ERR_INVALID_STATE for a message of another length */
export function decodeDestination(bytes: Uint8Array): Destination {
  if (bytes.length !== SHORT_DESTINATION && bytes.length !== LONG_DESTINATION) {
    throw new IwarpError(
      'ERR_INVALID_STATE',
      `the peer's destination has ${bytes.length} bytes, ` +
        `neither ${SHORT_DESTINATION} nor ${LONG_DESTINATION}`,
    );
  }
  const view = viewOf(bytes, bytes.length);
  const rest = bytes.length === LONG_DESTINATION ? 40 : 32;
  return {
    lid: view.getUint32(0),
    outReads: view.getUint32(4),
    qpn: view.getUint32(8),
    psn: view.getUint32(12),
    rkey: view.getUint32(16),
    vaddr: toBigInt(view.getUint32(24), view.getUint32(28)),
    gid: Uint8Array.from(bytes.subarray(rest, rest + GID_OCTETS)),
    srqn: view.getUint32(rest + 16),
    gidIndex: view.getInt32(rest + 20),
  };
}

/** A destination that says nothing: what the two sides exchange only to wait for each other. */
export const NO_DESTINATION: Destination = {
  lid: 0,
  outReads: 0,
  qpn: 0,
  psn: 0,
  rkey: 0,
  vaddr: 0n,
  gid: new Uint8Array(GID_OCTETS),
  srqn: 0,
  gidIndex: 0,
};

/** The figures of one bandwidth run; each travels in a separate message. */
export interface BandwidthFigures {
  readonly size: number;
  readonly iterations: number;
  readonly peak: number;
  readonly average: number;
  readonly messageRate: number;
}

/** Five messages of 8 octets, big-endian: two integers and three IEEE doubles. */
export function encodeFigures(figures: BandwidthFigures): Uint8Array[] {
  const u64 = (value: number): Uint8Array => {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(Math.max(0, Math.round(value))));
    return bytes;
  };
  const double = (value: number): Uint8Array => {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setFloat64(0, value);
    return bytes;
  };
  return [
    u64(figures.size),
    u64(figures.iterations),
    double(figures.peak),
    double(figures.average),
    double(figures.messageRate),
  ];
}

export function decodeFigures(messages: readonly Uint8Array[]): BandwidthFigures {
  const views = messages.map((bytes) => viewOf(bytes, 8));
  return {
    size: Number(views[0]!.getBigUint64(0)),
    iterations: Number(views[1]!.getBigUint64(0)),
    peak: views[2]!.getFloat64(0),
    average: views[3]!.getFloat64(0),
    messageRate: views[4]!.getFloat64(0),
  };
}

/**
 * The credit word of send_bw: a count of received messages, in the byte order of the machines that are in
 * use.
 */
export function encodeCredit(count: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, count >>> 0, true);
  return bytes;
}

function viewOf(bytes: Uint8Array, octets: number): DataView {
  if (bytes.length < octets)
    throw new IwarpError(
      'ERR_INVALID_STATE',
      `the peer's message has ${bytes.length} bytes instead of ${octets}`,
    );
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}
