/**
 * The ticket that each side of a shared region hands to the other in private data: 16 bytes, as big-endian
 * fields in the order of rping's advertisement.
 */

/** Length of a ticket on the wire, in bytes. */
const TICKET_LENGTH = 16;

/** Where a side's region can be reached: the peer's Writes and Reads name these numbers. */
export interface Ticket {
  /** Tagged offset of the first byte, u64. */
  readonly to: bigint;
  /** STag of the region, u32. */
  readonly stag: number;
  /** Length of the region in bytes, 1 to 2^32 - 1. */
  readonly length: number;
}

const MOST_ADDRESSES = 1n << 64n;

/** The 16 octets: TO u64, STag u32, length u32. */
export function encodeTicket({ to, stag, length }: Ticket): Uint8Array {
  const octets = new Uint8Array(TICKET_LENGTH);
  const view = new DataView(octets.buffer);
  view.setBigUint64(0, to);
  view.setUint32(8, stag);
  view.setUint32(12, length);
  return octets;
}

/** A peer's ticket; null unless it has 16 bytes, a length, and an end at or below 2^64. */
export function decodeTicket(octets: Uint8Array): Ticket | null {
  if (octets.length !== TICKET_LENGTH) return null;
  const view = new DataView(octets.buffer, octets.byteOffset, TICKET_LENGTH);
  const ticket = { to: view.getBigUint64(0), stag: view.getUint32(8), length: view.getUint32(12) };
  const isUsable = ticket.length > 0 && ticket.to + BigInt(ticket.length) <= MOST_ADDRESSES;
  return isUsable ? ticket : null;
}
