/**
 * FPDU deframing at any cut of the stream: RFC 5044 6 (receive), 4.2 to 4.4 (markers, CRC), 8 (errors 2 and
 * 3).
 *
 * An FPDU that lies whole in the bytes given is read in place; one that straddles is completed in a
 * reassembly buffer borrowed from a pool, which goes back as soon as nothing is held, so idle connections
 * hold none. Nothing is believed before its CRC has been checked (MPA-071).
 */
import { copyBytes } from '../base/copy.ts';
import { Pool } from '../base/pool.ts';
import { FINE, TERM } from '../base/terminate-codes.ts';
import type { Crc32cEngine } from '../crc32c/engine.ts';
import { POOL_OCTETS, type MemorySource } from '../crc32c/memory.ts';
import type { RunKernel } from '../crc32c/runs.ts';
import type { LowerLayerUser } from '../llp/lower-layer.ts';
import {
  CRC_OCTETS,
  FPDUPTR_MASK,
  fpduBodyOctets,
  MARKER_OCTETS,
  markerPhase,
  MARKER_RUN,
  MARKER_SPACING,
  markersWithin,
  MAX_ULPDU_FIELD,
  maxFpduOctetsWithMarkers,
  ULPDU_LENGTH_OCTETS,
} from './wire.ts';

/** Room for the largest FPDU there can be: ULPDU_Length 65535 with markers (MPA-091). */
export const REASSEMBLY_OCTETS: number = maxFpduOctetsWithMarkers(MAX_ULPDU_FIELD);

/**
 * From this many missing bytes on it is worth reading the rest of a held FPDU straight to its place. After a
 * shorter read than that it is not offered again: a peer that sends single bytes is not worth a view object
 * each.
 */
const READ_INTO_FROM = 16_384;

/** Lends reassembly buffers of at least {@link REASSEMBLY_OCTETS}. */
export interface ReassemblyPool {
  acquire(): Uint8Array;
  release(buffer: Uint8Array): void;
}

/** A pool that keeps up to `keep` free reassembly buffers, and gives the memory of others back. */
export function reassemblyPool(
  memory: MemorySource,
  keep: number = Math.floor(POOL_OCTETS / REASSEMBLY_OCTETS),
): Pool<Uint8Array> {
  return new Pool({
    keep,
    make: () => memory.allocate(REASSEMBLY_OCTETS),
    drop: (buffer) => memory.release(buffer),
  });
}

/** The receiver of ULPDUs. */
export type UlpduSink = Pick<LowerLayerUser, 'handleUlpdu'>;

export abstract class Deframer {
  protected readonly crc: Crc32cEngine | null;
  protected readonly sink: UlpduSink;
  readonly #pool: ReassemblyPool;
  #reassembly: Uint8Array | null = null;
  #held = 0;
  #need = 0;
  /** The missing part of the held FPDU, offered for the next read. */
  #offered: Uint8Array | null = null;
  /** Where among the markers the stream stands after the FPDUs consumed, see {@link markerPhase}. */
  phase = 0;

  constructor(crc: Crc32cEngine | null, sink: UlpduSink, pool: ReassemblyPool) {
    this.crc = crc;
    this.sink = sink;
    this.#pool = pool;
  }

  /** True if the stream stands between FPDUs. */
  get atBoundary(): boolean {
    return this.#held === 0;
  }

  /** Bytes of an FPDU held back until the rest arrives. */
  get held(): number {
    return this.#held;
  }

  /** Bytes needed before the length of the FPDU that comes next is known. */
  protected abstract headOctets(): number;
  /** Bytes of the whole FPDU whose head stands at `at`. */
  protected abstract totalOctets(bytes: Uint8Array, at: number): number;
  /** Check one whole FPDU and pass its ULPDU on. */
  protected abstract process(bytes: Uint8Array, at: number, total: number): number;

  /**
   * The best place for the next read: after the part that is held of a large FPDU, up to its end, so that it
   * becomes whole without a copy. Null if any memory will do. The memory stays ours until `dispose`.
   */
  readTarget(): Uint8Array | null {
    if (this.#need - this.#held < READ_INTO_FROM || this.#reassembly === null) return null;
    if (this.#offered !== null && this.#held - (this.#need - this.#offered.length) < READ_INTO_FROM)
      return null;
    this.#offered = this.#reassembly.subarray(this.#held, this.#need);
    return this.#offered;
  }

  /** Take `bytes[start..end)`. Stops at the first error; nothing after it is passed on (MPA-073). */
  handleBytes(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    if (this.#held > 0) {
      while (this.#held > 0 && at < end) {
        const take = Math.min(this.#need - this.#held, end - at);
        if (!this.#inPlace(bytes, at)) copyBytes(bytes, at, this.#reassembly!, this.#held, take);
        this.#held += take;
        at += take;
        if (this.#held < this.#need) return FINE;
        const code = this.#completeHeld();
        if (code !== FINE) return code;
      }
    }
    for (;;) {
      const available = end - at;
      if (available === 0) return FINE;
      if (available < this.headOctets()) {
        this.#hold(bytes, at, end, this.headOctets());
        return FINE;
      }
      const total = this.totalOctets(bytes, at);
      if (available < total) {
        this.#hold(bytes, at, end, total);
        return FINE;
      }
      const code = this.process(bytes, at, total);
      if (code !== FINE) return code;
      this.phase = markerPhase(this.phase + total);
      at += total;
    }
  }

  /** Give the reassembly buffer back; nothing may be handled afterwards. */
  dispose(): void {
    if (this.#reassembly !== null) this.#pool.release(this.#reassembly);
    this.#reassembly = null;
    this.#offered = null;
    this.#held = 0;
    this.#need = 0;
  }

  /** True if `bytes[at]` already lies where the next held byte belongs. */
  #inPlace(bytes: Uint8Array, at: number): boolean {
    return bytes === this.#offered && bytes.byteOffset + at === this.#reassembly!.byteOffset + this.#held;
  }

  #hold(bytes: Uint8Array, at: number, end: number, need: number): void {
    this.#reassembly ??= this.#pool.acquire();
    copyBytes(bytes, at, this.#reassembly, 0, end - at);
    this.#held = end - at;
    this.#need = need;
  }

  /** `need` bytes are held: either the head, which has the length, or a whole FPDU. */
  #completeHeld(): number {
    const buffer = this.#reassembly!;
    const total = this.totalOctets(buffer, 0);
    if (this.#held < total) {
      this.#need = total;
      return FINE;
    }
    const code = this.process(buffer, 0, total);
    if (code !== FINE) return code;
    this.phase = markerPhase(this.phase + total);
    this.#held = 0;
    this.#need = 0;
    this.#offered = null;
    this.#reassembly = null;
    this.#pool.release(buffer);
    return FINE;
  }

  /**
   * MPA-070: the CRC field follows `bytes[from..to)`, least significant byte first. With CRC off its content
   * is not looked at (MPA-055).
   */
  protected crcWrong(bytes: Uint8Array, from: number, to: number): boolean {
    if (this.crc === null) return false;
    const field = bytes[to]! | (bytes[to + 1]! << 8) | (bytes[to + 2]! << 16) | (bytes[to + 3]! << 24);
    return this.crc.updateSigned(0, bytes, from, to) !== field;
  }
}

/** Without markers the ULPDU is contiguous and passed on where it lies. */
class PlainDeframer extends Deframer {
  protected override headOctets(): number {
    return ULPDU_LENGTH_OCTETS;
  }

  protected override totalOctets(bytes: Uint8Array, at: number): number {
    return fpduBodyOctets((bytes[at]! << 8) | bytes[at + 1]!) + CRC_OCTETS;
  }

  protected override process(bytes: Uint8Array, at: number, total: number): number {
    if (this.crcWrong(bytes, at, at + total - CRC_OCTETS)) return TERM.MPA_CRC;
    return this.sink.handleUlpdu(bytes, at + ULPDU_LENGTH_OCTETS, (bytes[at]! << 8) | bytes[at + 1]!);
  }
}

/**
 * With markers the ULPDU is gathered from between them, where there are any inside, after CRC and every
 * marker have been checked.
 */
class MarkerDeframer extends Deframer {
  readonly #runs: RunKernel;

  constructor(crc: Crc32cEngine | null, sink: UlpduSink, pool: ReassemblyPool, runs: RunKernel) {
    super(crc, sink, pool);
    this.#runs = runs;
  }

  #leadOctets(): number {
    return this.phase === 0 ? MARKER_OCTETS : 0;
  }

  protected override headOctets(): number {
    return this.#leadOctets() + ULPDU_LENGTH_OCTETS;
  }

  protected override totalOctets(bytes: Uint8Array, at: number): number {
    const length = at + this.#leadOctets();
    const data = fpduBodyOctets((bytes[length]! << 8) | bytes[length + 1]!) + CRC_OCTETS;
    return data + MARKER_OCTETS * markersWithin(this.phase, data);
  }

  protected override process(bytes: Uint8Array, at: number, total: number): number {
    // The markers are inside the covered run, the one in front included (MPA-070, MPA-101, MPA-102: with
    // their octets as received).
    if (this.crcWrong(bytes, at, at + total - CRC_OCTETS)) return TERM.MPA_CRC;
    const lead = this.#leadOctets();
    if (total - lead === fpduBodyOctets((bytes[at + lead]! << 8) | bytes[at + lead + 1]!) + CRC_OCTETS)
      return this.#processWhole(bytes, at, lead);
    const gathered = this.#runs.collectScratch();
    const end = at + total - CRC_OCTETS;
    const lengthField = at + lead;
    let taken = 0;
    let { phase } = this;
    for (let from = at; from < end; ) {
      if (phase === 0) {
        const pointer = ((bytes[from + 2]! << 8) | bytes[from + 3]!) & FPDUPTR_MASK;
        // MPA-104: 0 in front of ULPDU_Length, else the distance back to it. `from - lengthField` is negative
        // only for the former. MPA-091: after a ULPDU near 65535 octets the distance outgrows the field and
        // stands there modulo 2^16.
        if (pointer !== (Math.max(0, from - lengthField) & FPDUPTR_MASK)) return TERM.MPA_MARKER;
        // The run after a marker that stands in front of ULPDU_Length begins with it; only whole runs go
        // together.
        const runs = Math.floor((end - from) / MARKER_SPACING);
        if (runs > 1) {
          this.#runs.removeMarkers(bytes, from, gathered, taken, runs);
          if (markersWrong(bytes, from + MARKER_SPACING, runs - 1, lengthField)) return TERM.MPA_MARKER;
          taken += runs * MARKER_RUN;
          from += runs * MARKER_SPACING;
          continue;
        }
        from += MARKER_OCTETS;
        phase = MARKER_OCTETS;
        continue;
      }
      const run = Math.min(MARKER_SPACING - phase, end - from);
      copyBytes(bytes, from, gathered, taken, run);
      taken += run;
      from += run;
      phase = markerPhase(phase + run);
    }
    return this.sink.handleUlpdu(gathered, ULPDU_LENGTH_OCTETS, (gathered[0]! << 8) | gathered[1]!);
  }

  /** No marker inside, at most one in front: the ULPDU is passed on where it lies. */
  #processWhole(bytes: Uint8Array, at: number, lead: number): number {
    // MPA-104
    if (lead !== 0 && (((bytes[at + 2]! << 8) | bytes[at + 3]!) & FPDUPTR_MASK) !== 0) return TERM.MPA_MARKER;
    const lengthField = at + lead;
    return this.sink.handleUlpdu(
      bytes,
      lengthField + ULPDU_LENGTH_OCTETS,
      (bytes[lengthField]! << 8) | bytes[lengthField + 1]!,
    );
  }
}

/** True if one of the `count` markers that begin at `at` does not point at `lengthField`. */
function markersWrong(bytes: Uint8Array, at: number, count: number, lengthField: number): boolean {
  for (let i = 0, from = at; i < count; i++, from += MARKER_SPACING) {
    const pointer = ((bytes[from + 2]! << 8) | bytes[from + 3]!) & FPDUPTR_MASK;
    if (pointer !== ((from - lengthField) & FPDUPTR_MASK)) return true;
  }
  return false;
}

/**
 * The deframer for a start-up's result: with `runs`, which move bytes around markers, it expects markers.
 */
export function createDeframer(
  runs: RunKernel | null,
  crc: Crc32cEngine | null,
  sink: UlpduSink,
  pool: ReassemblyPool,
): Deframer {
  return runs === null ? new PlainDeframer(crc, sink, pool) : new MarkerDeframer(crc, sink, pool, runs);
}
