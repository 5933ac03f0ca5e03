/** Datagrams that wait for their acknowledgement, and the pools that their memory comes from. */
import type { Octets } from '../base/copy.ts';
import { FreeList } from '../base/pool.ts';

/** The life of a datagram of the send window. */
export const PACKET = {
  /** Never sent. */
  WAITING: 0,
  /** Sent, and nothing heard of it. */
  FLIGHT: 1,
  /** Thought lost: it is sent again. */
  LOST: 2,
  /** The peer has it, and not all below. */
  SACKED: 3,
  /** Acknowledged. */
  ACKED: 4,
} as const;

/** One datagram: header and DDP segment in separate memory, out of which it is also sent again. */
export class Packet implements Octets {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  length = 0;
  state: number = PACKET.WAITING;
  /** When it was sent last; how often it was sent; its place among all transmissions. */
  sentAt = 0;
  sends = 0;
  order = 0;
  /** Writes of the port that may still read it. */
  lent = 0;
  /** The view of the last transmission: datagrams of one length share it. */
  #datagram: Uint8Array;

  constructor(octets: number) {
    this.bytes = this.#datagram = new Uint8Array(octets);
    this.view = new DataView(this.bytes.buffer);
  }

  get datagram(): Uint8Array {
    if (this.#datagram.length !== this.length) this.#datagram = this.bytes.subarray(0, this.length);
    return this.#datagram;
  }
}

/** Linux's bookkeeping in front of a datagram and behind it, bytes. */
const BUFFER_HEAD = 256;
const BUFFER_TAIL = 448;

/**
 * Bytes that a datagram takes of a socket's receive buffer, as Linux counts: its memory is a power of two.
 * 64 bytes count as 768, 1,472 as 2,304, 8,972 as 16,640, and 32,320 as 33,024.
 */
export function bufferOctets(length: number): number {
  return BUFFER_HEAD + (1 << (32 - Math.clz32(length + BUFFER_TAIL - 1)));
}

/** Sizes of packets that are kept, octets: most DDP segments are short, or as long as the MTU allows. */
const CLASSES = [256, 1536, 9216, 32_768, 65_536] as const;
/** Bytes that each class keeps. */
const KEEP_OCTETS = 2_097_152;

const pools = CLASSES.map((octets) => new FreeList<Packet>(Math.floor(KEEP_OCTETS / octets)));

function classOf(octets: number): number {
  let size = 0;
  while (octets > CLASSES[size]!) size++;
  return size;
}

/** A packet with room for a datagram of this length. */
export function acquirePacket(octets: number): Packet {
  const size = classOf(octets);
  const packet = pools[size]!.take() ?? new Packet(CLASSES[size]!);
  packet.length = octets;
  packet.state = PACKET.WAITING;
  packet.sends = packet.lent = 0;
  return packet;
}

export function releasePacket(packet: Packet): void {
  pools[classOf(packet.bytes.length)]!.put(packet);
}
