/**
 * One direction of one connection under its faults: takes the octets as they come, gives out what shall be
 * done with them. Faults at a place of the stream need octets only; faults of FPDUs need the deframed view
 * (RFC 5044 4), which is held only while one is pending.
 *
 * Where markers are in use and an FPDU was left out, repeated or moved, the FPDUs after it are framed anew,
 * with markers where the shifted stream needs them (MPA-095): the receiver then meets the missing FPDU, not a
 * wrong marker.
 */
import { copyOf } from '../../src/base/copy.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import type { CapturedConnection } from '../../src/inspect/decode/capture.ts';
import { decodeUlpdu, type ExpectedVersions } from '../../src/inspect/decode/ulpdu.ts';
import { crcOf, measureFpdu, takeFpdu, type FpduSpan, type Framing } from '../../src/inspect/decode/fpdu.ts';
import { OctetQueue } from '../../src/inspect/capture/octet-queue.ts';
import { decodeStartup, matchKey, startupOctets } from '../../src/inspect/decode/startup.ts';
import { shortName } from '../../src/inspect/render/text.ts';
import type { DecodedFpdu, Direction } from '../../src/inspect/decode/types.ts';
import { createFramer } from '../../src/mpa/framer.ts';
import { createTransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import {
  CRC_OCTETS,
  MARKER_OCTETS,
  MARKER_SPACING,
  MAX_MULPDU,
  STARTUP_HEADER_OCTETS,
  maxFpduOctetsWithMarkers,
  type StartupFrame,
} from '../../src/mpa/wire.ts';
import type { Fault, FaultKind } from './fault-spec.ts';

/** The next step of the relay, which then owns `bytes`. */
export type Operation =
  | { readonly do: 'pass'; readonly bytes: Uint8Array }
  /** A fault has struck, or cannot. The position counts octets given out before. */
  | { readonly do: 'say'; readonly text: string; readonly position: number }
  | { readonly do: 'delay'; readonly ms: number }
  | { readonly do: 'cut' | 'stall' | 'reset' };

/** The agreement of both start-up frames of a connection; shared by its two scripts. */
export class Agreement {
  readonly #frames: [StartupFrame | undefined, StartupFrame | undefined] = [undefined, undefined];

  tell(direction: Direction, frame: StartupFrame): void {
    this.#frames[direction] ??= frame;
  }

  /** How FPDUs of this direction are framed; undefined while a frame is missing or if the Reply rejected. */
  framing(direction: Direction): { framing: Framing; versions: ExpectedVersions } | undefined {
    const [zero, one] = this.#frames;
    if (zero === undefined || one === undefined || zero.reject || one.reject) return undefined;
    // MPA-050: with revision 0 both ends use markers and CRC, and version 0 of DDP and RDMAP.
    const old = zero.revision === 0 && one.revision === 0;
    const receiver = direction === 0 ? one : zero;
    const crc = old || zero.crc || one.crc ? 'on' : 'off';
    return {
      framing: { markers: receiver.markers || old, markerPhase: 0, crc },
      versions: old ? { ddp: 0, rdmap: 0 } : { ddp: 1, rdmap: 1 },
    };
  }
}

/** Octets of a unit, and how many of them are a marker in front. */
interface Framed {
  readonly raw: Uint8Array;
  readonly lead: number;
}

/** A start-up frame or an FPDU on its way. */
interface Unit extends Framed {
  readonly name: string;
  /** Absent for a start-up frame. */
  readonly fpdu: DecodedFpdu | undefined;
  readonly crcOn: boolean;
  readonly flips: readonly Fault[];
}

/** A fault of FPDUs that is still to come. */
interface Pending {
  readonly fault: Fault;
  /** FPDUs that its filter has accepted. */
  seen: number;
}

interface Held {
  readonly unit: Unit;
  /** FPDUs that still pass before it. */
  left: number;
  readonly ms: number;
}

/** Faults that keep octets from passing, for a time or for ever. */
const BREAKS: ReadonlySet<FaultKind> = new Set(['delay', 'stall', 'cut', 'reset']);

/** Any connection: faults choose theirs when they are planned. */
const ANY = { number: 1 } as CapturedConnection;

export class FaultScript {
  readonly #direction: Direction;
  readonly #agreement: Agreement;
  readonly #queue = new OctetQueue();
  #operations: Operation[] = [];
  /** Start-up frame to come, FPDUs, or octets that are passed as they are. */
  #state: 'startup' | 'fpdus' | 'plain';
  readonly #pending: Pending[];
  readonly #octetFaults: Fault[];
  #held: Held[] = [];
  #count = 0;
  /** Stream positions after the start-up frame: of the next FPDU as it comes, and as it goes. */
  #positionIn = 0;
  #positionOut = 0;
  /** Octets given out. */
  #passed = 0;

  /** `watch` says whether the other direction needs to know this one's start-up frame. */
  constructor(direction: Direction, faults: readonly Fault[], agreement: Agreement, watch: boolean) {
    this.#direction = direction;
    this.#agreement = agreement;
    this.#pending = faults.filter(({ place }) => place.unit === 'fpdu').map((fault) => ({ fault, seen: 0 }));
    // Flips of an octet come before what keeps it from passing; otherwise the order given decides.
    this.#octetFaults = faults
      .filter(({ place }) => place.unit === 'octet')
      .toSorted((a, b) => octetOf(a) - octetOf(b) || Number(b.kind === 'flip') - Number(a.kind === 'flip'));
    this.#state = this.#pending.length > 0 || watch ? 'startup' : 'plain';
  }

  /** How long an FPDU that waits for others may wait at most; undefined if none waits. */
  get patience(): number | undefined {
    return this.#held.length === 0 ? undefined : Math.min(...this.#held.map(({ ms }) => ms));
  }

  /** The faults that have not struck. */
  get unstruck(): readonly Fault[] {
    return [...this.#pending.map(({ fault }) => fault), ...this.#octetFaults];
  }

  /** `bytes[start..end)` came; borrowed. */
  push(bytes: Uint8Array, start: number, end: number): Operation[] {
    if (this.#state === 'plain') this.#pass(copyOf(bytes, start, end));
    else {
      this.#queue.append(bytes, start, end);
      this.#advance();
    }
    return this.#taken();
  }

  /** No more octets come: gives out the FPDUs that are held back. */
  end(): Operation[] {
    this.#goPlain();
    return this.#taken();
  }

  /** FPDUs that wait for others have waited long enough. */
  release(): Operation[] {
    this.#letGo();
    this.#advance();
    return this.#taken();
  }

  #taken(): Operation[] {
    const operations = this.#operations;
    this.#operations = [];
    return operations;
  }

  #say(text: string, position: number = this.#passed): void {
    this.#operations.push({ do: 'say', text, position });
  }

  #advance(): void {
    for (let go = true; go && this.#queue.length > 0 && this.#state !== 'plain'; ) {
      go = this.#state === 'startup' ? this.#takeStartup() : this.#takeFpdu();
    }
  }

  #goPlain(why?: string): void {
    if (this.#state === 'plain') return;
    this.#state = 'plain';
    if (why !== undefined && this.#pending.length > 0)
      this.#say(`no further fault of FPDUs can strike: ${why}`);
    this.#letGo();
    const { bytes, head, tail } = this.#queue;
    if (tail > head) this.#pass(bytes.slice(head, tail));
    this.#queue.release();
  }

  #takeStartup(): boolean {
    const { bytes, head, length } = this.#queue;
    const match = matchKey(bytes, head, length);
    if (match === undefined) {
      this.#goPlain('the stream does not begin with an MPA start-up frame');
      return false;
    }
    if (length < STARTUP_HEADER_OCTETS) return false;
    const octets = startupOctets(bytes, head);
    if (length < octets) return false;
    const raw = bytes.slice(head, head + octets);
    this.#queue.drop(octets);
    const event = decodeStartup(raw, match.kind, this.#direction, 0);
    this.#agreement.tell(this.#direction, event.frame);
    this.#state = 'fpdus';
    this.#strike({ raw, lead: 0, name: shortName(event.opcode), fpdu: undefined, crcOn: false, flips: [] });
    this.#restIfDone();
    return true;
  }

  #takeFpdu(): boolean {
    const agreed = this.#agreement.framing(this.#direction);
    if (agreed === undefined) {
      this.#goPlain('bytes that are no FPDUs of an established connection');
      return false;
    }
    const { framing, versions } = agreed;
    const { bytes, head, length } = this.#queue;
    const span = measureFpdu(bytes, head, length, this.#positionIn, framing);
    if (span === undefined || length < span.total) return false;
    const raw = bytes.slice(head, head + span.total);
    const { field, computed } = crcOf(raw, 0, raw.length);
    if (framing.crc === 'on' && field !== computed) {
      this.#goPlain('an FPDU came with a wrong CRC');
      return false;
    }
    this.#queue.drop(span.total);
    this.#count++;
    const fpdu = this.#decode(raw, span, framing, versions, { field, computed });
    this.#positionIn += span.total;
    this.#strike({
      raw,
      lead: span.lead,
      name: `${shortName(fpdu.opcode)}, FPDU ${this.#count}`,
      fpdu,
      crcOn: framing.crc === 'on',
      flips: [],
    });
    this.#restIfDone();
    return true;
  }

  #decode(
    raw: Uint8Array,
    span: FpduSpan,
    framing: Framing,
    versions: ExpectedVersions,
    crc: { field: number; computed: number },
  ): DecodedFpdu {
    const taken = takeFpdu(raw, span, this.#positionIn, framing);
    return {
      kind: 'fpdu',
      direction: this.#direction,
      time: 0,
      position: this.#positionIn + span.lead,
      octets: span.total,
      ulpduLength: span.ulpduLength,
      padLength: taken.padLength,
      markers: taken.markers,
      crc: { use: framing.crc, ...crc, ok: crc.field === crc.computed },
      raw,
      ulpdu: taken.ulpdu,
      ...decodeUlpdu(taken.ulpdu, 0, taken.ulpdu.length, versions),
    };
  }

  /** Nothing of FPDUs is left to do: the octets need not be held back until an FPDU is whole. */
  #restIfDone(): void {
    if (this.#pending.length > 0 || this.#held.length > 0) return;
    if (
      this.#positionIn !== this.#positionOut &&
      this.#agreement.framing(this.#direction)?.framing.markers === true
    )
      return;
    this.#goPlain();
  }

  /** The faults that strike this unit; they are then used up. */
  #hits(unit: Unit): Fault[] {
    const hits: Fault[] = [];
    for (let i = 0; i < this.#pending.length; ) {
      const pending = this.#pending[i]!;
      const { place } = pending.fault;
      if (place.unit !== 'fpdu') break;
      const counts = unit.fpdu !== undefined && (place.filter === undefined || place.filter(ANY, unit.fpdu));
      if (counts) pending.seen++;
      if (unit.fpdu === undefined ? place.nth === 0 : counts && pending.seen === place.nth) {
        hits.push(pending.fault);
        this.#pending.splice(i, 1);
      } else i++;
    }
    return hits;
  }

  #strike(unit: Unit): void {
    const hits = this.#hits(unit);
    for (const hit of hits) this.#say(`fault ${hit.text} strikes ${unit.name}`);
    const struck = { ...unit, flips: hits.filter(({ kind }) => kind === 'flip') };
    const breaks = hits.filter(({ kind }) => BREAKS.has(kind));
    const moved = hits.find(({ kind }) => kind === 'reorder');
    const waiting = this.#held;
    if (moved !== undefined) this.#held = [...waiting, { unit: struck, left: moved.by, ms: moved.ms }];
    else if (!hits.some(({ kind }) => kind === 'drop')) {
      this.#give(struck, breaks);
      if (hits.some(({ kind }) => kind === 'duplicate')) this.#give(struck, []);
    }
    for (const held of waiting) if (--held.left === 0) this.#give(held.unit, []);
    this.#held = this.#held.filter(({ left }) => left > 0);
  }

  #letGo(): void {
    const held = this.#held;
    this.#held = [];
    for (const { unit } of held) this.#give(unit, []);
  }

  /** Give a unit out, broken where faults say. */
  #give(unit: Unit, breaks: readonly Fault[]): void {
    const framed = this.#framed(unit);
    const { raw } = framed;
    flip(framed, unit.crcOn, unit.flips);
    if (unit.fpdu !== undefined) this.#positionOut += raw.length;
    let from = 0;
    const places = breaks
      .map((fault) => ({ fault, at: octetIn(framed, fault) }))
      .toSorted((a, b) => a.at - b.at);
    for (const { fault, at } of places) {
      this.#pass(raw.subarray(from, at));
      from = at;
      this.#operations.push(operationOf(fault));
    }
    this.#pass(raw.subarray(from));
  }

  /**
   * A copy of the unit's octets, as they are where it goes: with other markers if its position has changed.
   */
  #framed(unit: Unit): Framed {
    const agreed = this.#agreement.framing(this.#direction);
    const { fpdu } = unit;
    const moved =
      fpdu !== undefined &&
      agreed?.framing.markers === true &&
      fpdu.position - unit.lead !== this.#positionOut;
    if (!moved || fpdu.ulpduLength > MAX_MULPDU) return { raw: unit.raw.slice(), lead: unit.lead };
    const engine = defaultCrc32cEngine();
    const framer = createFramer(engine.runs, unit.crcOn ? engine : null);
    framer.position = this.#positionOut;
    const buffer = createTransmitBuffer(new Uint8Array(maxFpduOctetsWithMarkers(fpdu.ulpduLength)));
    framer.begin(buffer, fpdu.ulpduLength);
    framer.target.bytes.set(fpdu.ulpdu, framer.at);
    framer.finish(buffer, fpdu.ulpduLength);
    return {
      raw: buffer.bytes.subarray(0, buffer.end),
      lead: this.#positionOut % MARKER_SPACING === 0 ? MARKER_OCTETS : 0,
    };
  }

  /** Octets go out, under the faults at octets. */
  #pass(bytes: Uint8Array): void {
    let from = 0;
    for (;;) {
      const fault = this.#octetFaults[0];
      const at = fault === undefined ? Number.POSITIVE_INFINITY : octetOf(fault) - this.#passed;
      if (fault === undefined || at >= bytes.length) break;
      this.#octetFaults.shift();
      this.#say(`fault ${fault.text} strikes`, this.#passed + at);
      if (fault.kind === 'flip') {
        bytes[at] = bytes[at]! ^ (1 << fault.bit);
        continue;
      }
      if (at > from) this.#operations.push({ do: 'pass', bytes: bytes.subarray(from, at) });
      from = at;
      this.#operations.push(operationOf(fault));
    }
    if (from < bytes.length) this.#operations.push({ do: 'pass', bytes: bytes.subarray(from) });
    this.#passed += bytes.length;
  }
}

function octetOf({ place }: Fault): number {
  return place.unit === 'octet' ? place.at : 0;
}

/**
 * Index of the octet that a fault names, counted from the first of ULPDU_Length or from the end; the last one
 * where there is no such octet. What stops the stream at octet 0 stops it in front of the FPDU's leading
 * marker too.
 */
function octetIn({ raw, lead }: Framed, { place, kind }: Fault): number {
  const octet = place.unit === 'fpdu' ? place.octet : 0;
  const index = octet < 0 ? raw.length + octet : octet === 0 && kind !== 'flip' ? 0 : lead + octet;
  return Math.min(Math.max(0, index), raw.length - 1);
}

function operationOf(fault: Fault): Operation {
  if (fault.kind === 'delay') return { do: 'delay', ms: fault.ms };
  return { do: fault.kind === 'cut' ? 'cut' : fault.kind === 'reset' ? 'reset' : 'stall' };
}

/** Invert bits, and make the CRC right again where a flip asks for it. */
function flip(framed: Framed, crcOn: boolean, flips: readonly Fault[]): void {
  const { raw } = framed;
  for (const fault of flips) {
    const at = octetIn(framed, fault);
    raw[at] = raw[at]! ^ (1 << fault.bit);
  }
  if (!crcOn || !flips.some(({ fixCrc }) => fixCrc)) return;
  const { computed } = crcOf(raw, 0, raw.length);
  new DataView(raw.buffer, raw.byteOffset).setUint32(raw.length - CRC_OCTETS, computed, true);
}
