/**
 * Finding FPDUs again: in a capture that starts mid-stream, after a gap, after an FPDU whose length is wrong.
 * A place counts as found if a plausible front (plausible.ts) has a good CRC after it, or, where CRC may be
 * off, if enough fronts follow one another. RFC 5044 4.3 makes markers point at ULPDU_Length, which finds
 * their phase where the start-up frame was not captured.
 */
import { CRC_OCTETS, MARKER_OCTETS, MARKER_SPACING } from '../../mpa/wire.ts';
import type { ExpectedVersions } from './ulpdu.ts';
import { MAX_FPDU_OCTETS, crcOf, measureFpdu, type Framing } from './fpdu.ts';
import type { OctetQueue } from '../capture/octet-queue.ts';
import { ENOUGH, FRONT_OCTETS, frontEvidence } from './plausible.ts';

/** Bytes kept while searching: two whole FPDUs of any size and the front of a third. */
export const SEARCH_WINDOW: number = 2 * MAX_FPDU_OCTETS + 1024;
/** Past this much the front of the window is dropped. */
export const SEARCH_LIMIT: number = SEARCH_WINDOW + (SEARCH_WINDOW >>> 3);
/**
 * How many bytes of CRC and comparing one received byte pays for; keeps the search linear whatever the
 * bytes are.
 */
const CREDIT_PER_OCTET = 8;
const FIRST_CREDIT = 1 << 20;
const CANDIDATE_COST = 64;
/** Bytes that must arrive before the same window is looked at again, unless a candidate became complete. */
const RESCAN_OCTETS = 1024;

interface Found {
  /** Bytes in front of the place. */
  readonly offset: number;
  readonly framing: Framing;
  readonly how: 'crc' | 'run';
}

/** A found place, that there is none, or the queue length at which the question can be decided. */
type Verdict = Found | 'no' | number;

export class AlignmentSearch {
  private credit = FIRST_CREDIT;
  private rescanAt = 0;
  private readonly queue: OctetQueue;
  /** The framing that was agreed on; undefined where no start-up frame was seen. */
  known: Framing | undefined = undefined;
  /** True if the stream's start is known, so that FPDUs stand on multiples of four (RFC 5044 4.3). */
  stepFour = false;
  versions: ExpectedVersions = { ddp: 1, rdmap: 1 };

  constructor(queue: OctetQueue) {
    this.queue = queue;
  }

  /** Start over at the queue's present head. */
  restart(): void {
    this.rescanAt = 0;
  }

  /** The front of the queue was dropped. */
  dropped(octets: number): void {
    this.rescanAt -= octets;
  }

  /** Bytes have arrived. */
  pay(octets: number): void {
    this.credit = Math.min(this.credit + octets * CREDIT_PER_OCTET, FIRST_CREDIT * 8);
  }

  /**
   * Look for a place. `position` is the stream position of the queue's head; `final` says that no more bytes
   * come. Returns the place, or how many bytes at the front cannot be one.
   */
  scan(position: number, final: boolean): Found | number {
    const { length } = this.queue;
    if (!final && length < this.rescanAt) return 0;
    let keep = -1;
    let need = Number.POSITIVE_INFINITY;
    const step = this.stepFour ? 4 : 1;
    const first = this.stepFour ? -position & 3 : 0;
    let offset = first;
    for (; offset + FRONT_OCTETS <= length; offset += step) {
      const verdict = this.judge(offset, position + offset, final);
      if (typeof verdict === 'object') return verdict;
      if (verdict === 'no') continue;
      if (keep < 0) keep = offset;
      need = Math.min(need, verdict);
    }
    const drop = keep < 0 ? Math.min(offset, length) : keep;
    // Looking again costs the whole window: a sixteenth of it must be new, so that no octet is looked at more
    // than some 20 times.
    const soon = Math.min(need, length + Math.max(RESCAN_OCTETS, length >>> 3));
    this.rescanAt = Math.max(soon, length + (length >>> 4));
    return drop;
  }

  /**
   * The FPDU among the waiting bytes that the `missing` bytes after them cut short: its length leads to the
   * end of those, or lies within them behind an untagged header that fits. Only a few places can hold one.
   */
  cutFpdu(position: number, missing: number): { offset: number; framing: Framing } | undefined {
    const { bytes, head, length } = this.queue;
    const framing = this.known ?? { markers: false, markerPhase: 0, crc: 'unknown' };
    const step = this.stepFour ? 4 : 1;
    const first = this.stepFour ? -position & 3 : 0;
    for (let offset = first; offset + FRONT_OCTETS <= length; offset += step) {
      const span = measureFpdu(bytes, head + offset, length - offset, position + offset, framing);
      if (span === undefined || offset + span.lead + FRONT_OCTETS > length) return undefined;
      const after = offset + span.total - length;
      if (after < 0 || after > missing) continue;
      const available = length - offset - span.lead;
      const evidence = frontEvidence(bytes, head + offset + span.lead, available, this.versions);
      if (evidence >= ENOUGH || (evidence > 0 && after === missing)) return { offset, framing };
    }
    return undefined;
  }

  private judge(offset: number, position: number, final: boolean): Verdict {
    const { bytes, head, length } = this.queue;
    const at = head + offset;
    const { known } = this;
    // With markers known the place may begin with one; its front is behind it.
    const lead =
      known?.markers === true && (position - known.markerPhase) % MARKER_SPACING === 0 ? MARKER_OCTETS : 0;
    if (offset + lead + FRONT_OCTETS > length) return final ? 'no' : offset + lead + FRONT_OCTETS;
    if (frontEvidence(bytes, at + lead, length - offset - lead, this.versions) === 0) return 'no';
    if (this.credit < CANDIDATE_COST) return 'no';
    this.credit -= CANDIDATE_COST;
    if (known !== undefined) return this.judgeFraming(offset, position, known, final);
    return this.judgeUnknown(offset, position, final);
  }

  /** Nothing known: without markers first, then with the marker phases that the bytes themselves suggest. */
  private judgeUnknown(offset: number, position: number, final: boolean): Verdict {
    const plain = this.judgeFraming(
      offset,
      position,
      { markers: false, markerPhase: 0, crc: 'unknown' },
      final,
    );
    if (typeof plain === 'object' && plain.how === 'crc') return plain;
    const { bytes, head } = this.queue;
    const phases = this.phasesWithin(offset);
    if (offset >= MARKER_OCTETS && isMarker(bytes, head + offset - MARKER_OCTETS, 0))
      phases.unshift(-MARKER_OCTETS);
    return this.judgePhases(offset, position, phases, 'unknown', plain, final);
  }

  /**
   * The queue's head should begin an FPDU, but makes no sense without markers: does it with some? A place
   * whose framing was guessed from FPDUs that are too short to hold one says nothing about them.
   */
  judgeMarkers(position: number, crc: Framing['crc'], final: boolean): Verdict {
    const { bytes, head, length } = this.queue;
    const phases = length < FRONT_OCTETS ? [] : this.phasesWithin(0);
    if (length >= MARKER_OCTETS && isMarker(bytes, head, 0)) phases.unshift(0);
    return this.judgePhases(0, position, phases, crc, 'no', final);
  }

  /**
   * Distances after `offset`, where ULPDU_Length may be, at which something looks like the marker that
   * belongs there.
   */
  private phasesWithin(offset: number): number[] {
    const { bytes, head, length } = this.queue;
    const at = head + offset;
    const phases: number[] = [];
    const reach = Math.min(
      MARKER_SPACING,
      length - offset - MARKER_OCTETS,
      ((bytes[at]! << 8) | bytes[at + 1]!) + CRC_OCTETS,
    );
    for (let k = MARKER_OCTETS; k <= reach; k += 4) if (isMarker(bytes, at + k, k)) phases.push(k);
    return phases;
  }

  private judgePhases(
    offset: number,
    position: number,
    phases: readonly number[],
    crc: Framing['crc'],
    plain: Verdict,
    final: boolean,
  ): Verdict {
    let best = plain;
    for (const k of phases) {
      const framing: Framing = { markers: true, markerPhase: mod(position + k), crc };
      const back = k < 0 ? MARKER_OCTETS : 0;
      const verdict = this.judgeFraming(offset - back, position - back, framing, final);
      // A good CRC under some phase beats headers that merely look right without markers.
      if (typeof verdict === 'object') {
        if (verdict.how === 'crc') return verdict;
        if (typeof best !== 'object') best = verdict;
      } else if (verdict !== 'no' && (best === 'no' || typeof best === 'object')) best = verdict;
      else if (verdict !== 'no' && typeof best === 'number') best = Math.min(best, verdict);
    }
    return best;
  }

  private judgeFraming(offset: number, position: number, framing: Framing, final: boolean): Verdict {
    const { bytes, head, length } = this.queue;
    let at = offset;
    let evidence = 0;
    for (;;) {
      const span = measureFpdu(bytes, head + at, length - at, position + at - offset, framing);
      if (span === undefined || at + span.lead + FRONT_OCTETS > length) {
        if (!final) return at + MARKER_OCTETS + FRONT_OCTETS;
        // The octets end exactly where an FPDU does.
        return at === length && at > offset && framing.crc !== 'on'
          ? { offset, framing: { ...framing, crc: 'off' }, how: 'run' }
          : 'no';
      }
      const front = frontEvidence(bytes, head + at + span.lead, length - at - span.lead, this.versions);
      if (front === 0) return 'no';
      evidence += front;
      if (at + span.total > length) return final ? 'no' : at + span.total;
      if (at === offset && this.hasGoodCrc(head + at, span.total)) {
        return { offset, framing: { ...framing, crc: framing.crc === 'off' ? 'off' : 'on' }, how: 'crc' };
      }
      if (framing.crc === 'on') return 'no';
      if (evidence >= ENOUGH) return { offset, framing: { ...framing, crc: 'off' }, how: 'run' };
      at += span.total;
    }
  }

  private hasGoodCrc(at: number, total: number): boolean {
    if (this.credit < total) return false;
    this.credit -= total;
    const { field, computed } = crcOf(this.queue.bytes, at, total);
    return field === computed;
  }
}

function isMarker(bytes: Uint8Array, at: number, pointer: number): boolean {
  return (
    bytes[at] === 0 &&
    bytes[at + 1] === 0 &&
    bytes[at + 2] === pointer >>> 8 &&
    bytes[at + 3] === (pointer & 0xff)
  );
}

function mod(position: number): number {
  return ((position % MARKER_SPACING) + MARKER_SPACING) % MARKER_SPACING;
}
