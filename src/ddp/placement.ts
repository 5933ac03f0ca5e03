/**
 * Placement: RFC 5041 5.3 (placement), 7.1 (checks) and 8.2 (protection). The only code that writes payload
 * of the network into memory of the program. How a message is delivered, and to which request it belongs, the
 * layer above says.
 */
import { copyOctets } from '../base/copy.ts';
import { FINE, TERM } from '../base/terminate-codes.ts';
import { ACCESS, FAULT, USE, type StagEntry, type StagTable } from './stag-table.ts';
import { PLACED, type Segment } from './wire.ts';

/** The streams' side of protection: its STags, and its names for the association check (DDP-046). */
export interface ProtectionScope {
  readonly stags: StagTable;
  /** Handle of the protection domain. */
  readonly pdHandle: number;
  /** Number of the queue pair. */
  readonly number: number;
  /** Rights of the peer at this queue pair, beyond those that regions grant (VERBS-142). */
  readonly rights: { readonly write: boolean };
}

/** The buffer of an untagged message: a scatter list. */
export interface UntaggedBuffer {
  /** Bytes of all elements together. */
  readonly total: number;
  readonly count: number;
  at(i: number): { readonly entry: StagEntry | null; readonly offset: number; readonly length: number };
  /** True if every element is still registered, over the same memory, with this right. */
  usable(right: number): boolean;
}

/** The place of a solicited tagged message, named by the layer above: `entry` from `offset`. */
export interface TaggedSink {
  entry: StagEntry | null;
  offset: number;
}

/**
 * The Terminate code of each protection fault on a tagged segment (RFC 5041 7.2). There is no code for
 * missing rights: 1/1/02 (VERBS-174, protocol-notes 1.2).
 */
const FAULT_CODES: Readonly<Record<number, number>> = {
  [FAULT.INVALID_STAG]: TERM.DDP_INVALID_STAG,
  [FAULT.NOT_ASSOCIATED]: TERM.DDP_NOT_ASSOCIATED,
  [FAULT.ACCESS]: TERM.DDP_NOT_ASSOCIATED,
  [FAULT.WRAP]: TERM.DDP_TO_WRAP,
  [FAULT.BOUNDS]: TERM.DDP_BOUNDS,
};

/** A tagged segment into the memory that it names itself, if the peer may write there. */
export function placeTagged(segment: Segment, scope: ProtectionScope): number {
  const { payloadLength: length } = segment;
  const { stags, pdHandle, number } = scope;
  const { stag, toHi, toLo } = segment;
  if (length === 0) {
    // DDP-026: STag and TO of a segment without payload are not looked at, but it can end a message.
    if (segment.last) stags.endWrite(stag, number);
    return FINE;
  }
  const fault = stags.check(stag, toHi, toLo, length, ACCESS.REMOTE_WRITE, pdHandle, number);
  if (fault !== FAULT.NONE) return FAULT_CODES[fault]!;
  if (!scope.rights.write) return TERM.DDP_NOT_ASSOCIATED; // VERBS-142
  const entry = stags.entry!;
  const once = entry.use !== USE.MANY;
  if (once && !stags.mayWrite()) return TERM.DDP_INVALID_STAG;
  if (segment.placed === PLACED.NOT) copyOctets(segment, segment.payload, entry, stags.offset, length);
  const end = stags.offset + length;
  if (end > entry.written) entry.written = end;
  if (once) stags.written(length, segment.last);
  return FINE;
}

/** A tagged segment that was asked for, into the place that the layer above has found for it. */
export function placeSolicited(segment: Segment, sink: TaggedSink): void {
  if (segment.payloadLength > 0 && segment.placed === PLACED.NOT)
    copyOctets(segment, segment.payload, sink.entry!, sink.offset, segment.payloadLength);
}

/** Payload of an untagged segment into the message's buffer, which is usable, at the segment's MO. */
export function placeUntagged(segment: Segment, buffer: UntaggedBuffer): void {
  if (segment.placed !== PLACED.NOT) return;
  let skip = segment.mo;
  let from = segment.payload;
  let left = segment.payloadLength;
  for (let i = 0; i < buffer.count && left > 0; i++) {
    const element = buffer.at(i);
    const { length } = element;
    if (skip >= length) {
      skip -= length;
      continue;
    }
    const take = Math.min(length - skip, left);
    copyOctets(segment, from, element.entry!, element.offset + skip, take);
    from += take;
    left -= take;
    skip = 0;
  }
}
