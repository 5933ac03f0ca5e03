/**
 * Segments of responses: Read Responses (RDMAP-030, RDMAP-031) in as many as they need, Atomic Responses in
 * one. How far a response is stands in its entry of the inbound request queue.
 */
import { copyOctets } from '../base/copy.ts';
import { addHi, addLo } from '../base/u64.ts';
import { ACCESS, FAULT, type StagEntry, type StagTable } from '../ddp/stag-table.ts';
import { QN, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { TransmitBuffer } from '../llp/lower-layer.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import { putAtomicResponse } from './bodies.ts';
import { READ_FAULT_CODES } from './faults.ts';
import { ZERO_COPY_FROM, type MessageWriter } from './message-writer.ts';
import type { InboundRequest } from './reads.ts';
import { terminateForRead, type TerminateInfo } from './terminate.ts';
import { ATOMIC_RESPONSE_OCTETS, OPCODE } from './wire.ts';

/** Bytes of payload in the next segment. */
function nextPayload(out: MessageWriter, { size, sent }: InboundRequest): number {
  return Math.min(size - sent, out.taggedPayload);
}

/** The payload stays where it is. */
function inPlace({ writer }: MessageWriter, payload: number): boolean {
  return payload >= ZERO_COPY_FROM && writer.zeroCopy;
}

/** There is room for the next segment of a Read Response. */
export function responseFits(out: MessageWriter, buffer: TransmitBuffer, request: InboundRequest): boolean {
  const payload = nextPayload(out, request);
  return inPlace(out, payload)
    ? out.writer.fitsZeroCopy(buffer, TAGGED_HEADER_OCTETS, payload)
    : out.writer.fits(buffer, TAGGED_HEADER_OCTETS + payload);
}

/**
 * Check the source of the next segment, again for every one: the region may have gone since (SEC-007,
 * RDMAP-086). Null if it may be read, and the STag table has the place; else the stream's Terminate.
 */
export function sourceFault(
  out: MessageWriter,
  { stags, pdHandle, number }: Pick<StreamEndpoint, 'stags' | 'pdHandle' | 'number'>,
  request: InboundRequest,
): TerminateInfo | null {
  const payload = nextPayload(out, request);
  if (payload === 0) return null;
  const toHi = addHi(request.sourceHi, request.sourceLo, request.sent);
  const toLo = addLo(request.sourceLo, request.sent);
  const right = ACCESS.REMOTE_READ;
  const fault = stags.check(request.sourceStag, toHi, toLo, payload, right, pdHandle, number);
  if (fault === FAULT.NONE) return null;
  return terminateForRead(
    READ_FAULT_CODES[fault]!,
    request.segmentLength,
    request.ddpHeader(),
    request.advancedHeader(),
  );
}

/** Write the segment that fits and whose source has been checked. Returns its bytes of payload. */
export function writeResponse(
  out: MessageWriter,
  buffer: TransmitBuffer,
  request: InboundRequest,
  stags: StagTable,
): number {
  const { writer } = out;
  const payload = nextPayload(out, request);
  const last = request.sent + payload === request.size;
  const sinkHi = addHi(request.sinkHi, request.sinkLo, request.sent);
  const sinkLo = addLo(request.sinkLo, request.sent);
  const control = out.control(OPCODE.READ_RESPONSE);
  const at = out.segments.beginTagged(buffer, control, last, request.sinkStag, sinkHi, sinkLo, payload);
  if (inPlace(out, payload)) {
    const entry = stags.entry!;
    pinSource(buffer, entry);
    writer.finishZeroCopy(buffer, TAGGED_HEADER_OCTETS, entry.bytes, stags.offset, payload);
  } else {
    if (payload > 0) copyOctets(stags.entry!, stags.offset, writer.target, at, payload);
    writer.finish(buffer, TAGGED_HEADER_OCTETS + payload);
  }
  if (last && payload > 0) stags.answered();
  request.sent += payload;
  out.payloadOctets += payload;
  if (last) out.count(OPCODE.READ_RESPONSE);
  return payload;
}

/** An Atomic Response, a message of one segment; false if there is no room for it. */
export function writeAtomicResponse(
  out: MessageWriter,
  buffer: TransmitBuffer,
  request: InboundRequest,
): boolean {
  const { writer } = out;
  if (!writer.fits(buffer, UNTAGGED_HEADER_OCTETS + ATOMIC_RESPONSE_OCTETS)) return false;
  const at = out.beginMessage(buffer, OPCODE.ATOMIC_RESPONSE, QN.ATOMIC_RESPONSE, ATOMIC_RESPONSE_OCTETS);
  putAtomicResponse(writer.target.view, at, request);
  writer.finish(buffer, UNTAGGED_HEADER_OCTETS + ATOMIC_RESPONSE_OCTETS);
  return true;
}

/** Pin the source of a response; a window's memory is that of its region, which the window may leave. */
function pinSource(buffer: TransmitBuffer, entry: StagEntry): void {
  buffer.pin(entry);
  if (entry.region !== null) buffer.pin(entry.region);
}
