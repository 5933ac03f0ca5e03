/**
 * The bodies of Read Requests, Atomic Requests and Atomic Responses: RFC 5040 4.4, RFC
 * 7306 5.2. Offsets are in wire.ts.
 */
import { addHi, addLo } from '../base/u64.ts';
import type { InboundRequest } from './reads.ts';
import { ATOMIC_OPCODE, ATOMIC_REQUEST, ATOMIC_RESPONSE, READ_REQUEST } from './wire.ts';
import type { SendWqe } from '../queues/work.ts';

/** `alias` stands in the place of the sink's STag; 0 for none. */
export function putReadRequest(view: DataView, at: number, wqe: SendWqe, alias = 0): void {
  // The sink's own STag and tagged offset come back in the response. A zero-length Read has no sink and names
  // none.
  const entry = wqe.sges.count > 0 ? wqe.sges.first.entry : null;
  const sinkOffset = wqe.sges.count > 0 ? wqe.sges.first.offset : 0;
  view.setUint32(at + READ_REQUEST.SINK_STAG, alias !== 0 ? alias : entry === null ? 0 : entry.stag);
  view.setUint32(
    at + READ_REQUEST.SINK_TO,
    entry === null ? 0 : addHi(entry.baseHi, entry.baseLo, sinkOffset),
  );
  view.setUint32(at + READ_REQUEST.SINK_TO + 4, entry === null ? 0 : addLo(entry.baseLo, sinkOffset));
  view.setUint32(at + READ_REQUEST.SIZE, wqe.total);
  view.setUint32(at + READ_REQUEST.SOURCE_STAG, wqe.stag);
  view.setUint32(at + READ_REQUEST.SOURCE_TO, wqe.toHi);
  view.setUint32(at + READ_REQUEST.SOURCE_TO + 4, wqe.toLo);
}

export function putAtomicRequest(view: DataView, at: number, wqe: SendWqe): void {
  const { operands } = wqe;
  const add = wqe.opcode === 'atomic-fetch-add';
  view.setUint32(at + ATOMIC_REQUEST.OPCODE, add ? ATOMIC_OPCODE.FETCH_ADD : ATOMIC_OPCODE.CMP_SWAP);
  // The MSN serves as request identifier: unique among the outstanding ones.
  view.setUint32(at + ATOMIC_REQUEST.ID, wqe.msn);
  view.setUint32(at + ATOMIC_REQUEST.STAG, wqe.stag);
  view.setUint32(at + ATOMIC_REQUEST.TO, wqe.toHi);
  view.setUint32(at + ATOMIC_REQUEST.TO + 4, wqe.toLo);
  view.setUint32(at + ATOMIC_REQUEST.DATA, operands.dataHi);
  view.setUint32(at + ATOMIC_REQUEST.DATA + 4, operands.dataLo);
  view.setUint32(at + ATOMIC_REQUEST.MASK, operands.maskHi);
  view.setUint32(at + ATOMIC_REQUEST.MASK + 4, operands.maskLo);
  view.setUint32(at + ATOMIC_REQUEST.COMPARE, add ? 0 : operands.compareHi);
  view.setUint32(at + ATOMIC_REQUEST.COMPARE + 4, add ? 0 : operands.compareLo);
  view.setUint32(at + ATOMIC_REQUEST.COMPARE_MASK, add ? 0xffff_ffff : operands.compareMaskHi); // EXT-024
  view.setUint32(at + ATOMIC_REQUEST.COMPARE_MASK + 4, add ? 0xffff_ffff : operands.compareMaskLo);
}

export function putAtomicResponse(view: DataView, at: number, request: InboundRequest): void {
  view.setUint32(at + ATOMIC_RESPONSE.ID, request.requestId);
  view.setUint32(at + ATOMIC_RESPONSE.ORIGINAL, request.originalHi);
  view.setUint32(at + ATOMIC_RESPONSE.ORIGINAL + 4, request.originalLo);
}
