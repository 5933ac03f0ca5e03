/**
 * Segments of the messages that a send queue asks for: Sends, Immediates and Writes in as many as they need,
 * Reads and Atomics in one. DDP-017, DDP-018, MPA-082: as large as possible.
 *
 * Functions and no object: the rest of a message stands in the sender, which has it anyway.
 */
import { addHi, addLo } from '../base/u64.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import { QN, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import { PLACE, type DirectPlacement, type TransmitBuffer } from '../llp/lower-layer.ts';
import { gather, octetsBefore, piecesAt, pieceWith } from '../queues/gather.ts';
import { IMMEDIATE, WORK, type SendWqe } from '../queues/work.ts';
import { putAtomicRequest, putReadRequest } from './bodies.ts';
import { ZERO_COPY_FROM, type MessageWriter } from './message-writer.ts';
import { aliasOf } from './placed-reads.ts';
import { ATOMIC_REQUEST_OCTETS, IMMEDIATE_OCTETS, OPCODE, READ_REQUEST_OCTETS } from './wire.ts';

/** Results that are no number of octets: the buffer is full; memory of the entry may not be used. */
export const SEGMENT = { NO_ROOM: -1, UNUSABLE: -2 } as const;

/** Bytes of the message that an entry is being sent as. */
export function messageOctets(wqe: SendWqe): number {
  return wqe.immediate === IMMEDIATE.NOW ? IMMEDIATE_OCTETS : wqe.total;
}

/**
 * The segment of a Send, Immediate or Write after `sent` bytes of it, the first one unless the message has
 * `begun`. Returns the bytes of payload, or why there is no segment.
 */
// oxlint-disable-next-line max-lines-per-function -- the hot path, measured by bench/micro/datapath.ts
export function writeSegment(
  out: MessageWriter,
  buffer: TransmitBuffer,
  wqe: SendWqe,
  sent: number,
  begun: boolean,
): number {
  const { writer, segments } = out;
  const tagged = wqe.kind === WORK.WRITE;
  const header = tagged ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
  const immediate = wqe.immediate === IMMEDIATE.NOW;
  const left = messageOctets(wqe) - sent;
  if (tagged && out.direct !== null) {
    const placed = placeDirectly(out, out.direct, wqe, sent, left, buffer.octets === 0);
    if (placed !== PLACE.SEGMENTS) return placed;
  }
  const payload = Math.min(left, tagged ? out.taggedPayload : out.untaggedPayload);
  const large = payload >= ZERO_COPY_FROM && !immediate && writer.zeroCopy;
  const piece = large ? pieceWith(wqe.sges, sent, payload) : -1;
  const gathered = large && piece < 0 && piecesAt(wqe.sges, sent, payload) * ZERO_COPY_FROM <= payload;
  const lent = piece >= 0 || gathered;
  if (!(lent ? writer.fitsZeroCopy(buffer, header, payload) : writer.fits(buffer, header + payload)))
    return SEGMENT.NO_ROOM;
  if (!begun && !tagged) wqe.msn = segments.nextMsn(QN.SEND);
  // VERBS-063: the Terminate takes the place of this segment
  if (!immediate && !wqe.sges.usable(0)) return SEGMENT.UNUSABLE;
  const last = payload === left;
  const control = out.control(wqe.wireOpcode);
  let at: number;
  if (tagged) {
    const toHi = sent === 0 ? wqe.toHi : addHi(wqe.toHi, wqe.toLo, sent);
    const toLo = sent === 0 ? wqe.toLo : addLo(wqe.toLo, sent);
    at = segments.beginTagged(buffer, control, last, wqe.stag, toHi, toLo, payload);
  } else {
    at = segments.beginUntagged(buffer, control, last, wqe.stag, QN.SEND, wqe.msn, sent, payload);
  }
  if (piece >= 0) {
    const element = wqe.sges.at(piece);
    if (element.entry !== null) buffer.pin(element.entry);
    const from = element.offset + sent - octetsBefore(wqe.sges, piece);
    writer.finishZeroCopy(buffer, header, element.bytes, from, payload);
  } else if (gathered) {
    writer.finishGathered(buffer, header, pinPieces(buffer, wqe, sent, payload));
  } else {
    if (immediate) {
      writer.target.view.setUint32(at, wqe.operands.dataHi);
      writer.target.view.setUint32(at + 4, wqe.operands.dataLo);
    } else {
      gather(wqe.sges, sent, writer.target, at, payload);
    }
    writer.finish(buffer, header + payload);
  }
  out.payloadOctets += payload;
  if (last) out.count(wqe.wireOpcode);
  return payload;
}

/**
 * Copy the next part of a Write into the peer's memory, if nothing of it has gone in segments. Returns as
 * `writeSegment`, or that segments are needed.
 */
function placeDirectly(
  out: MessageWriter,
  direct: DirectPlacement,
  wqe: SendWqe,
  sent: number,
  left: number,
  first: boolean,
): number {
  if (sent === 0) out.placed = 0;
  if (sent !== out.placed || left === 0) return PLACE.SEGMENTS;
  if (!wqe.sges.usable(0)) return SEGMENT.UNUSABLE;
  const octets = direct.open(wqe.stag, addHi(wqe.toHi, wqe.toLo, sent), addLo(wqe.toLo, sent), left, first);
  if (octets === PLACE.LATER) return SEGMENT.NO_ROOM;
  if (octets === PLACE.SEGMENTS) return PLACE.SEGMENTS;
  try {
    gather(wqe.sges, sent, direct.target, direct.at, octets);
  } finally {
    direct.close();
  }
  out.placed += octets;
  out.payloadOctets += octets;
  if (octets === left) out.count(wqe.wireOpcode);
  return octets;
}

/** The elements that hold `payload` bytes after `sent`, each pinned for the time of the write. */
function pinPieces(buffer: TransmitBuffer, { sges }: SendWqe, sent: number, payload: number): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  let skip = sent;
  let left = payload;
  for (let i = 0; left > 0; i++) {
    const { entry, bytes, offset, length } = sges.at(i);
    if (skip < length) {
      const take = Math.min(length - skip, left);
      if (entry !== null) buffer.pin(entry);
      pieces.push(bytes.subarray(offset + skip, offset + skip + take));
      left -= take;
    }
    skip = Math.max(skip - length, 0);
  }
  return pieces;
}

/** The Write is all in segments; its Immediate Data follows as the next message (EXT-015). */
export function turnImmediate(out: MessageWriter, wqe: SendWqe): void {
  wqe.immediate = IMMEDIATE.NOW;
  wqe.kind = WORK.SEND;
  wqe.wireOpcode = wqe.solicited ? OPCODE.IMMEDIATE_SE : OPCODE.IMMEDIATE;
  wqe.stag = 0; // EXT-003
  wqe.msn = out.segments.nextMsn(QN.SEND);
}

/** There is room for the request of this Read or Atomic. */
export function requestFits(out: MessageWriter, buffer: TransmitBuffer, wqe: SendWqe): boolean {
  return out.writer.fits(buffer, UNTAGGED_HEADER_OCTETS + requestOctets(wqe));
}

/** The request of a Read or an Atomic: a message of one segment. False if its memory may not be used. */
export function writeRequest(out: MessageWriter, buffer: TransmitBuffer, wqe: SendWqe): boolean {
  if (!wqe.sges.usable(ACCESS.LOCAL_WRITE)) return false;
  const read = wqe.kind === WORK.READ;
  const body = requestOctets(wqe);
  wqe.msn = out.segments.nextMsn(QN.READ_REQUEST);
  const opcode = read ? OPCODE.READ_REQUEST : OPCODE.ATOMIC_REQUEST;
  const at = out.beginMessageWith(buffer, opcode, QN.READ_REQUEST, wqe.msn, body);
  const { writer } = out;
  if (read) putReadRequest(writer.target.view, at, wqe, out.placedReads ? aliasOf(wqe.msn) : 0);
  else putAtomicRequest(writer.target.view, at, wqe);
  writer.finish(buffer, UNTAGGED_HEADER_OCTETS + body);
  return true;
}

function requestOctets({ kind }: SendWqe): number {
  return kind === WORK.READ ? READ_REQUEST_OCTETS : ATOMIC_REQUEST_OCTETS;
}
