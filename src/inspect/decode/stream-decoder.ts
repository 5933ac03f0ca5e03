/**
 * One direction of one connection into events: start-up frame, FPDUs, and notes about bytes that are
 * neither. Takes the bytes of the TCP stream at any cut, and gaps. RFC 5044 4 and 7.1. Never throws
 * on any input; keeps at most {@link SEARCH_LIMIT} bytes and one chunk.
 */
import { DDP_CONTROL, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../../ddp/wire.ts';
import {
  CRC_OCTETS,
  MARKER_OCTETS,
  MARKER_SPACING,
  STARTUP_HEADER_OCTETS,
  ULPDU_LENGTH_OCTETS,
} from '../../mpa/wire.ts';
import { decodeUlpdu, type ExpectedVersions } from './ulpdu.ts';
import { crcOf, measureFpdu, takeFpdu, type FpduSpan, type Framing } from './fpdu.ts';
import { OctetQueue, type OctetBudget } from '../capture/octet-queue.ts';
import { Arrivals } from './arrivals.ts';
import { FRONT_OCTETS, frontEvidence } from './plausible.ts';
import { problem, type Problem } from './problems.ts';
import { AlignmentSearch, SEARCH_LIMIT, SEARCH_WINDOW } from './search.ts';
import { beginsSetup, MOST_FRONT_OCTETS, setupInFront } from './sdp.ts';
import { KEY_OCTETS, decodeStartup, matchKey, startupOctets } from './startup.ts';
import type { CrcSeen, DecodedFpdu, Direction, InspectEvent } from './types.ts';

/**
 * Bytes looked through without finding anything of iWARP, after which a direction is no longer looked at.
 */
const GIVE_UP_OCTETS: number = 4 * 1024 * 1024;
/** Bytes taken in at once; a longer chunk is cut. */
const CHUNK_OCTETS = 64 * 1024;
/** Fronts that make no sense in a row, CRC off, before the length fields are no longer believed. */
const DOUBTFUL_FRONTS = 2;

/** How an FPDU was found again. */
const FOUND_BY = {
  crc: 'a good CRC',
  run: 'headers that follow one another',
  length: 'a length that leads to the next segment',
} as const;

const NO_OCTETS = new Uint8Array(0);
const VERSION_ONE: ExpectedVersions = { ddp: 1, rdmap: 1 };

interface StreamDecoderOptions {
  readonly direction: Direction;
  /** Takes each event, and the packet that completed it: the number given with its bytes. */
  readonly emit: (event: InspectEvent, packet: number) => void;
  /** Where the bytes begin: with a start-up frame, after one, or anywhere. */
  readonly begin: 'startup' | 'fpdu' | 'unknown';
  /** Needed with `begin: 'fpdu'`: what the start-up frames agreed. */
  readonly framing?: Framing;
  /** Distance of the first byte from the byte after the start-up frame, with `begin: 'fpdu'`. */
  readonly position?: number;
  readonly budget?: OctetBudget;
}

/**
 * - startup: the first bytes decide;
 * - held: start-up frame seen, how FPDUs are framed is not known before the other side's frame;
 * - aligned: the queue's head is the first byte of an FPDU;
 * - searching: it is not known where the next FPDU begins;
 * - ignored: nothing here is ours.
 */
type State = 'startup' | 'held' | 'aligned' | 'searching' | 'ignored';

export class StreamDecoder {
  direction: Direction;
  private state: State;
  private readonly give: (event: InspectEvent, packet: number) => void;
  private readonly queue: OctetQueue;
  private readonly search: AlignmentSearch;
  private framing: Framing | undefined;
  private versions: ExpectedVersions = VERSION_ONE;
  /** Stream position of the queue's head. */
  private position: number;
  private readonly arrivals = new Arrivals();
  private time = 0;
  private packet = 0;
  private skipped = 0;
  /** The first bytes of the stream, as long as all have been passed over and may be Hello, before MPA. */
  private front: Uint8Array = NO_OCTETS;
  private examined = 0;
  private doubtful = 0;
  private foundAnything = false;
  /** Bytes still to come of an FPDU that the capture does not have whole. */
  private passing = 0;
  /**
   * Where FPDUs were found without a marker, nothing else telling whether there are any; undefined where that
   * is known.
   */
  private unmarkedFrom: number | undefined;
  private reason = '';

  constructor(options: StreamDecoderOptions) {
    this.direction = options.direction;
    this.give = options.emit;
    this.queue = new OctetQueue(options.budget);
    this.search = new AlignmentSearch(this.queue);
    this.position = options.position ?? 0;
    this.framing = options.framing;
    this.state =
      options.begin === 'startup'
        ? 'startup'
        : options.begin === 'fpdu' && options.framing !== undefined
          ? 'aligned'
          : 'searching';
    this.reason = 'the capture begins inside the stream';
    if (options.framing !== undefined) this.setSearchFraming(options.framing, true);
  }

  /** Bytes that wait for more, or for the other side's start-up frame. */
  get waiting(): number {
    return this.queue.length;
  }

  /** True once a start-up frame or an FPDU was seen. */
  get found(): boolean {
    return this.foundAnything;
  }

  private emit(event: InspectEvent): void {
    this.give(event, this.packet);
  }

  /** The next event was complete with the first `octets` that wait. */
  private completedBy(octets: number): void {
    const mark = this.arrivals.at(this.arrivals.received - this.queue.length + octets);
    if (mark === undefined) return;
    this.time = mark.time;
    this.packet = mark.packet;
  }

  /**
   * The next bytes of the stream. `time` in seconds, and `packet`, a packet's number, belong to the FPDUs
   * that they complete.
   */
  push(bytes: Uint8Array, start: number, end: number, time: number, packet = 0): void {
    this.time = time;
    this.packet = packet;
    for (let from = start; from < end; from += CHUNK_OCTETS)
      this.take(bytes, from, Math.min(end, from + CHUNK_OCTETS), time, packet);
  }

  private take(bytes: Uint8Array, first: number, end: number, time: number, packet: number): void {
    const start = first + Math.min(this.passing, end - first);
    this.passing -= start - first;
    this.position += start - first;
    const octets = end - start;
    if (this.state === 'ignored') {
      this.position += octets;
      return;
    }
    this.arrivals.note(octets, time, packet);
    if (!this.queue.append(bytes, start, end)) {
      this.lose('too many bytes wait in all streams together');
      this.skip(this.queue.length + octets);
      return;
    }
    this.search.pay(octets);
    this.advance(false);
  }

  /**
   * `octets` of the stream were not captured. Where they lie within one FPDU its length still shows where the
   * next one begins. True if the place of the next FPDU is unknown.
   */
  gap(octets: number, time: number): boolean {
    this.time = time;
    const within = Math.min(octets, this.passing);
    this.passing -= within;
    this.position += within;
    if (within === octets && octets > 0) return false;
    if (this.state === 'searching') this.alignCut(octets - within);
    this.advance(true);
    const rest =
      this.state === 'aligned' && this.queue.length > 0 ? this.takeCut(octets - within) : octets - within;
    if (rest === 0) return false;
    const cut = this.queue.length;
    this.flushSkipped();
    const cutShort = cut > 0 && this.state === 'aligned' ? `, an FPDU is cut after ${cut} bytes` : '';
    const message = `${rest} bytes were not captured${cutShort}`;
    this.emit({
      kind: 'note',
      direction: this.direction,
      time,
      position: this.position,
      octets: cut,
      missing: rest,
      message,
      problems: [],
    });
    this.queue.drop(cut);
    this.position += cut + rest;
    if (this.state !== 'ignored') this.lose('bytes were not captured');
    return true;
  }

  /**
   * The FPDU at the queue's head lacks the `missing` bytes after what waits, or some of them: returns how
   * many lie after it.
   */
  private takeCut(missing: number): number {
    const { bytes, head, length } = this.queue;
    const framing = this.framing!;
    const span = measureFpdu(bytes, head, length, this.position, framing);
    if (span === undefined || length < span.lead + FRONT_OCTETS) return missing;
    const tagged = (bytes[head + span.lead + ULPDU_LENGTH_OCTETS]! & DDP_CONTROL.TAGGED) !== 0;
    const header = tagged ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
    // One marker may stand among the headers.
    const front = span.lead + ULPDU_LENGTH_OCTETS + header + (framing.markers ? MARKER_OCTETS : 0);
    if (length < front || span.ulpduLength < header) return missing;
    if (frontEvidence(bytes, head + span.lead, length - span.lead, this.versions) === 0) return missing;
    const raw = new Uint8Array(span.total);
    this.completedBy(length);
    raw.set(bytes.subarray(head, head + length));
    const event = this.decode(
      raw,
      span,
      framing,
      { use: 'unknown', field: 0, computed: 0, ok: false },
      length,
    );
    this.queue.drop(length);
    this.position += length;
    this.foundAnything = true;
    this.emit(event);
    const here = Math.min(missing, span.total - length);
    this.position += here;
    this.passing = span.total - length - here;
    return missing - here;
  }

  /**
   * Behind a gap, in a capture with a short snap length, no CRC can be computed and no front follows another
   * within the captured bytes. An FPDU that begins here and whose length leads exactly to the end of the
   * `missing` bytes, or whose untagged header fits as a whole, is believed.
   */
  private alignCut(missing: number): void {
    const cut = this.search.cutFpdu(this.position, missing);
    if (cut !== undefined) this.align(cut.offset, cut.framing, 'length');
  }

  /**
   * `octets` were sent again with other values; the first stands `back` bytes before the next one of the
   * stream.
   */
  differs(octets: number, back: number, time: number): void {
    const position = this.position + this.queue.length - back;
    const what =
      octets === 1
        ? 'a byte was sent again with another value'
        : `${octets} bytes from here on were sent again with other values`;
    const message = `${what}; decoded is what the capture has first`;
    this.emit({
      kind: 'note',
      direction: this.direction,
      time,
      position,
      octets: 0,
      message,
      problems: [problem('TCP-OVERLAP', message)],
    });
  }

  /** No more octets: `how` says whether the stream ended or only the capture. */
  end(how: 'fin' | 'rst' | 'capture', time: number): void {
    this.time = time;
    if (this.state === 'held') this.lose("the other side's start-up frame was not captured");
    // Each turn takes at least one octet, so the loop is bounded by what waits.
    for (let before = -1; this.queue.length > 0 && this.queue.length !== before; ) {
      before = this.queue.length;
      this.advance(true);
      if (this.state !== 'aligned' || this.queue.length === 0) continue;
      const { bytes, head, length } = this.queue;
      if (measuredFront(bytes, head, length, this.position, this.framing!, this.versions))
        this.endInside(how);
      else this.lose('headers make no sense');
    }
    this.skip(this.queue.length);
    this.flushSkipped();
    if (!this.foundAnything && this.examined > 0) {
      this.note(0, `no MPA start-up frame and no FPDU in ${this.examined} bytes`);
    }
    this.queue.release();
    this.state = 'ignored';
  }

  private endInside(how: 'fin' | 'rst' | 'capture'): void {
    const { bytes, head, length } = this.queue;
    const span = measureFpdu(bytes, head, length, this.position, this.framing!);
    const wanted = span === undefined ? '' : ` of ${span.total}`;
    const what =
      how === 'capture' ? 'the capture ends' : how === 'fin' ? 'the stream ends' : 'the connection was reset';
    const message = `${what} after ${length}${wanted} bytes of an FPDU`;
    this.note(length, message, how === 'fin' ? [problem('MPA-087', message)] : []);
    this.position += length;
    this.queue.drop(length);
  }

  /** How FPDUs of this direction are framed is known now (both start-up frames were seen). */
  setFraming(framing: Framing, versions: ExpectedVersions = VERSION_ONE): void {
    this.framing = framing;
    this.versions = versions;
    this.search.versions = versions;
    this.unmarkedFrom = undefined;
    this.setSearchFraming(framing, true);
    if (this.state !== 'held') return;
    this.state = 'aligned';
    this.advance(false);
  }

  /** The other side's start-up frame will not come: look for FPDUs without it. */
  giveUpWaiting(): void {
    if (this.state !== 'held') return;
    this.search.stepFour = true;
    this.lose("the other side's start-up frame was not captured");
    this.advance(false);
  }

  /**
   * Nothing that follows is MPA: the Reply rejected the connection, or the stream is known to be something
   * else.
   */
  ignore(): void {
    this.state = 'ignored';
    this.position += this.queue.length;
    this.queue.release();
  }

  private setSearchFraming(framing: Framing, startKnown: boolean): void {
    this.search.known = framing;
    this.search.stepFour = startKnown;
  }

  private advance(final: boolean): void {
    for (let go = true; go && this.queue.length > 0; ) {
      switch (this.state) {
        case 'startup':
          go = this.takeStartup(final);
          break;
        case 'held':
          go = this.hold();
          break;
        case 'aligned':
          go = this.takeOne(final);
          break;
        case 'searching':
          go = this.lookAround(final);
          break;
        case 'ignored':
          this.skipSilently();
          go = false;
          break;
      }
    }
  }

  private skipSilently(): void {
    this.position += this.queue.length;
    this.queue.release();
  }

  // ------------------------------------------------------------------------------------------------ start-up

  private takeStartup(final: boolean): boolean {
    const { bytes, head, length } = this.queue;
    const match = matchKey(bytes, head, length);
    if (match === undefined) {
      this.lose('the stream does not begin with an MPA start-up frame');
      return true;
    }
    if (length < KEY_OCTETS && !final) return false;
    return this.takeStartupFrame(match.kind, final);
  }

  private takeStartupFrame(kind: 'request' | 'reply', final: boolean): boolean {
    const { bytes, head, length } = this.queue;
    const octets = length < STARTUP_HEADER_OCTETS ? STARTUP_HEADER_OCTETS : startupOctets(bytes, head);
    if (length < octets && !final) return false;
    const raw = bytes.slice(head, head + Math.min(octets, length));
    this.completedBy(raw.length);
    this.foundAnything = true;
    this.flushSkipped();
    this.queue.drop(raw.length);
    this.position = 0;
    this.framing = undefined;
    this.state = 'held';
    const event = decodeStartup(raw, kind, this.direction, this.time);
    // MPA-018: octets after a frame with an impossible length cannot be separated from its private data.
    if (event.pdLength + STARTUP_HEADER_OCTETS > raw.length && !final)
      this.lose('PD_Length of the start-up frame is impossible');
    this.emit(event);
    return true;
  }

  /** Bytes of an unknown framing wait for the other side's frame, in bounded number. */
  private hold(): boolean {
    if (this.queue.length <= SEARCH_WINDOW) return false;
    this.lose("the other side's start-up frame was not captured");
    return true;
  }

  // --------------------------------------------------------------------------------------------------- FPDUs

  private takeOne(final: boolean): boolean {
    const { bytes, head, length } = this.queue;
    const framing = this.framing!;
    const span = measureFpdu(bytes, head, length, this.position, framing);
    if (span === undefined || length < span.total) return false;
    const raw = bytes.slice(head, head + span.total);
    this.completedBy(span.total);
    const crc = this.crcSeen(raw, framing);
    const sensible = frontEvidence(raw, span.lead, raw.length - span.lead, this.versions) > 0;
    const rest = length - span.total;
    const nextSensible =
      rest < FRONT_OCTETS + 4 ||
      measuredFront(bytes, head + span.total, rest, this.position + span.total, framing, this.versions);
    if (this.unmarkedFrom !== undefined) {
      // Two markers have 508 octets between them: more octets without one show that there are none.
      if (crc.ok && this.position + span.total - this.unmarkedFrom > MARKER_SPACING)
        this.unmarkedFrom = undefined;
      else if (!crc.ok && (crc.use === 'on' || !sensible || !nextSensible)) {
        const verdict = this.search.judgeMarkers(this.position, crc.use, final);
        if (typeof verdict === 'object') this.adoptMarkers(verdict.framing);
        if (verdict !== 'no') return typeof verdict === 'object';
      }
    }
    const event = this.decode(raw, span, framing, crc);
    const reason = this.doubt(span, crc, sensible, nextSensible);
    const consumed = reason === '' ? span.total : span.lead + FRONT_OCTETS;
    this.queue.drop(Math.min(consumed, length));
    this.position += consumed;
    this.foundAnything = true;
    this.emit(event);
    if (reason !== '') this.lose(reason);
    return true;
  }

  /** The first marker was seen in a stream that was taken for one without. */
  private adoptMarkers(framing: Framing): void {
    this.unmarkedFrom = undefined;
    this.framing = framing;
    this.setSearchFraming(framing, false);
    this.note(0, 'the first marker: markers are on');
  }

  private crcSeen(raw: Uint8Array, framing: Framing): CrcSeen {
    const { field, computed } = crcOf(raw, 0, raw.length);
    return { use: framing.crc, field, computed, ok: field === computed };
  }

  /** Why the length of this FPDU should not be believed; empty if it should. */
  private doubt(span: FpduSpan, crc: CrcSeen, sensible: boolean, nextSensible: boolean): string {
    if (crc.ok) {
      this.doubtful = 0;
      return '';
    }
    if (crc.use === 'on') {
      if (!sensible) return 'neither CRC nor header of the last FPDU makes sense';
      return nextSensible
        ? ''
        : 'the CRC of the last FPDU is wrong, and no FPDU follows where its length says';
    }
    this.doubtful = sensible ? 0 : this.doubtful + 1;
    return this.doubtful >= DOUBTFUL_FRONTS || (!sensible && span.ulpduLength < FRONT_OCTETS)
      ? 'headers make no sense'
      : '';
  }

  private decode(
    raw: Uint8Array,
    span: FpduSpan,
    framing: Framing,
    crc: CrcSeen,
    captured: number = raw.length,
  ): DecodedFpdu {
    const taken = takeFpdu(raw, span, this.position, framing, captured);
    const whole = captured >= raw.length - CRC_OCTETS - taken.padLength;
    const body = decodeUlpdu(
      taken.ulpdu,
      0,
      taken.ulpdu.length,
      this.versions,
      whole ? taken.ulpdu.length : 0,
    );
    const problems: Problem[] = [...taken.problems, ...body.problems];
    if (crc.use === 'on' && !crc.ok) {
      problems.unshift(problem('MPA-069', `CRC field ${hex(crc.field)}, computed ${hex(crc.computed)}`));
    }
    return {
      kind: 'fpdu',
      direction: this.direction,
      time: this.time,
      position: this.position + span.lead,
      octets: span.total,
      ulpduLength: span.ulpduLength,
      padLength: taken.padLength,
      markers: taken.markers,
      crc,
      raw,
      ulpdu: taken.ulpdu,
      ...(captured < raw.length ? { captured } : {}),
      ...body,
      problems,
    };
  }

  // -------------------------------------------------------------------------------------------------- search

  private lose(reason: string): void {
    this.reason = reason;
    this.passing = 0;
    this.state = 'searching';
    this.doubtful = 0;
    this.search.restart();
  }

  private lookAround(final: boolean): boolean {
    const key = this.findKey();
    if (key !== undefined && key.offset === 0) return this.takeStartupFrame(key.kind, final);
    const result = this.search.scan(this.position, final);
    if (typeof result === 'object') {
      this.align(result.offset, result.framing, result.how);
      return true;
    }
    if (key !== undefined) {
      this.skip(key.offset);
      this.search.restart();
      return true;
    }
    // The last octets may be the beginning of a key; a candidate that fills the window is given up.
    const { length } = this.queue;
    const spare = final ? 0 : KEY_OCTETS - 1;
    const over = length > SEARCH_LIMIT ? length - SEARCH_WINDOW : 0;
    const drop = Math.min(length, Math.max(Math.min(result, length - spare), over, final ? FRONT_OCTETS : 0));
    if (drop <= 0) return false;
    this.skip(drop);
    this.search.dropped(drop);
    return final;
  }

  /**
   * A start-up frame in a stream whose own was not seen: after streaming mode data (MPA-043), or the stream
   * is used anew.
   */
  private findKey(): { offset: number; kind: 'request' | 'reply' } | undefined {
    if (this.framing !== undefined) return undefined;
    const { bytes, head, tail } = this.queue;
    for (
      let at = bytes.indexOf(0x4d, head);
      at >= 0 && at + KEY_OCTETS <= tail;
      at = bytes.indexOf(0x4d, at + 1)
    ) {
      const match = matchKey(bytes, at, tail - at);
      if (match?.exact === true) return { offset: at - head, kind: match.kind };
    }
    return undefined;
  }

  private align(offset: number, framing: Framing, how: 'crc' | 'run' | 'length'): void {
    this.skip(offset);
    const { reason } = this;
    // A guess that saw no marker may be wrong about them: the search stays open until one has been seen.
    const learnt = this.search.known === undefined;
    if (learnt) {
      this.framing = framing;
      if (framing.markers) this.setSearchFraming(framing, false);
      this.unmarkedFrom = framing.markers ? undefined : this.position;
    }
    this.state = 'aligned';
    this.foundAnything = true;
    this.flushSkipped();
    const means = FOUND_BY[how];
    this.completedBy(0);
    const crc = framing.crc === 'on' ? 'on' : 'taken as off';
    const guessed = `; CRC ${crc}, markers ${framing.markers ? 'on' : 'none yet'}`;
    this.note(0, `${reason}: found an FPDU by ${means}${learnt ? guessed : ''}`);
  }

  private skip(octets: number): void {
    this.keepFront(octets);
    this.queue.drop(Math.min(octets, this.queue.length));
    this.position += octets;
    this.skipped += octets;
    this.examined += octets;
    if (!this.foundAnything && this.examined > GIVE_UP_OCTETS) this.ignore();
  }

  /** `octets` are about to be passed over. */
  private keepFront(octets: number): void {
    const { front } = this;
    if (this.foundAnything || this.position !== front.length || this.skipped !== front.length) return;
    const { bytes, head, length } = this.queue;
    if (front.length === 0 && !beginsSetup(bytes[head])) return;
    const count = Math.min(octets, length, MOST_FRONT_OCTETS - front.length);
    this.front = new Uint8Array(front.length + count);
    this.front.set(front);
    this.front.set(bytes.subarray(head, head + count), front.length);
  }

  private flushSkipped(): void {
    if (this.skipped === 0) return;
    const octets = this.skipped;
    this.skipped = 0;
    const sdp = this.front.length === octets ? setupInFront(this.front) : undefined;
    this.front = NO_OCTETS;
    const message =
      sdp === undefined
        ? `${octets} bytes passed over: ${this.reason}`
        : `${octets} bytes in front of the MPA frame`;
    const position = this.position - octets;
    this.emit({
      kind: 'note',
      direction: this.direction,
      time: this.time,
      position,
      octets,
      message,
      ...(sdp === undefined ? {} : { sdp }),
      problems: [],
    });
  }

  private note(octets: number, message: string, problems: Problem[] = []): void {
    this.emit({
      kind: 'note',
      direction: this.direction,
      time: this.time,
      position: this.position,
      octets,
      message,
      problems,
    });
  }
}

function measuredFront(
  bytes: Uint8Array,
  at: number,
  available: number,
  position: number,
  framing: Framing,
  versions: ExpectedVersions,
): boolean {
  const span = measureFpdu(bytes, at, available, position, framing);
  if (span === undefined || available < span.lead + FRONT_OCTETS) return true;
  return frontEvidence(bytes, at + span.lead, available - span.lead, versions) > 0;
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, '0')}`;
}
