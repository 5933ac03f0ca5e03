/**
 * Reads whose responses name them: instead of the sink's STag the request carries an alias made of its MSN,
 * as in the paper USIW. So a response finds its Read in whatever order it comes, and a Read is done when its
 * own bytes are all there. An alias means nothing to any other kind of message.
 */
import { addHi, addLo } from '../base/u64.ts';
import type { Segment } from '../ddp/wire.ts';
import { WORK, type SendWqe } from '../queues/work.ts';
import type { Requests } from './reads.ts';

const ALIAS = 0x0100_0000;
const MSN_MASK = 0x00ff_ffff;

/** The alias of the Read that was sent with this MSN. */
export function aliasOf(msn: number): number {
  return (ALIAS | (msn & MSN_MASK)) >>> 0;
}

/**
 * Ranges of one Read at most. A responder sends its bytes in order, so that there are no more than ranges of
 * datagrams; one that sends every second byte would have a list built that is searched for each segment.
 */
const MOST_RANGES = 128;

/** Results of {@link PlacedReads.match}. */
export const MATCH = { NONE: 0, PART: 1, WHOLE: 2 } as const;

/** The Reads of one stream that are being answered. */
export class PlacedReads {
  readonly #requests: Requests;
  /** Of each Read the ranges of its sink that are there, `[start, end)` after one another, lowest first. */
  readonly #ranges = new Map<SendWqe, number[]>();
  /** The Read that was matched last, and where in its sink the segment goes. */
  wqe: SendWqe | null = null;
  offset = 0;

  constructor(requests: Requests) {
    this.#requests = requests;
  }

  /** Find the Read of a response. NONE for an alias that is not out, or bytes that it did not ask for. */
  match(segment: Segment, right: number): number {
    const wqe = this.#requests.findOutstanding(
      (one) => one.kind === WORK.READ && aliasOf(one.msn) === segment.stag,
    );
    this.wqe = wqe;
    if (wqe === null) return MATCH.NONE;
    const length = segment.payloadLength;
    if (wqe.total === 0) return length === 0 ? MATCH.WHOLE : MATCH.NONE;
    const sink = wqe.sges.first;
    const { baseHi, baseLo } = sink.entry!;
    const toLo = addLo(baseLo, sink.offset);
    const offset = segment.toLo - toLo + (segment.toLo < toLo ? 0x1_0000_0000 : 0);
    const inPlace =
      segment.toHi === addHi(baseHi, baseLo, sink.offset + offset) &&
      segment.toLo === addLo(baseLo, sink.offset + offset);
    if (!inPlace || offset + length > wqe.total || !wqe.sges.usable(right)) return MATCH.NONE;
    this.offset = sink.offset + offset;
    if (!this.#insert(wqe, offset, offset + length)) return MATCH.NONE;
    wqe.received += length;
    return wqe.received === wqe.total ? MATCH.WHOLE : MATCH.PART;
  }

  /** False if some of it is there already, or it would be one range too many. */
  #insert(wqe: SendWqe, start: number, end: number): boolean {
    let ranges = this.#ranges.get(wqe);
    if (ranges === undefined) this.#ranges.set(wqe, (ranges = []));
    let at = 0;
    while (at < ranges.length && ranges[at + 1]! < start) at += 2;
    // `at` is the first range that ends at `start` or above.
    if (at === ranges.length || end < ranges[at]!) {
      if (ranges.length >= 2 * MOST_RANGES) return false;
      ranges.splice(at, 0, start, end);
      return true;
    }
    const joinsBelow = ranges[at + 1] === start;
    const next = joinsBelow ? at + 2 : at;
    if (next < ranges.length && ranges[next]! < end) return false;
    if (joinsBelow && ranges[next] === end) ranges.splice(at + 1, 2);
    else if (joinsBelow) ranges[at + 1] = end;
    else if (ranges[at] === end) ranges[at] = start;
    else return false;
    return true;
  }

  /** That Read is over. */
  forget(wqe: SendWqe): void {
    this.#ranges.delete(wqe);
  }
}
