// Rules that hold for everything a peer sends, whatever a case is about: RFC 5044 4 (FPDUs, markers, CRC),
// RFC 5041 4 and 5 (headers, numbering, segmentation), RFC 5040 4 and 5 (messages). Every FPDU that reaches
// the probe passes through here; a violation fails the case in which it is seen and names its requirements.

import { describeSegment } from './decode.ts';
import type { ReceivedFpdu } from './fpdu.ts';
import type { ParsedSegment, ReadRequestFields } from './messages.ts';
import { parseTerminate } from './messages.ts';
import { MAX_MULPDU, OPCODE, OPCODE_RULES, QN } from './wire.ts';

export interface Violation {
  readonly requirements: readonly string[];
  readonly text: string;
}

/** Sizes a Terminate's payload can have (RFC 5040 4.8). */
const TERMINATE_SIZES: readonly number[] = [4, 6, 20, 24, 48, 52];

/** Judges one peer's stream on one connection. */
export class Watch {
  readonly violations: Violation[] = [];
  /** Read Requests of the probe that call for an answer, oldest first. */
  readonly reads: ReadRequestFields[] = [];
  /** Identifiers of Atomic Requests of the probe, oldest first. */
  readonly atomics: number[] = [];
  /** Whether the CRC field means something. */
  readonly crc: boolean;
  readonly #firstMsn: number;
  readonly #nextMsn = new Map<number, number>();
  #untagged: { qn: number; msn: number; opcode: number; word: number; mo: number } | null = null;
  #tagged: { opcode: number; stag: number; to: bigint } | null = null;
  #answered = 0;
  #terminated = false;

  /** `firstMsn`: with which the peer begins queues 0, 1 and 3. */
  constructor(crc: boolean, firstMsn = 1) {
    this.crc = crc;
    this.#firstMsn = firstMsn;
  }

  /** Judge one FPDU; `segment` is null when it is shorter than its header. */
  see(fpdu: ReceivedFpdu, segment: ParsedSegment | null): void {
    this.#checkFpdu(fpdu);
    if (segment === null) {
      this.#say(['DDP-020'], `ULPDU of ${fpdu.ulpdu.length} octets is shorter than a DDP header`);
      return;
    }
    if (this.#terminated) this.#say(['RDMAP-077'], `${describeSegment(segment)} after a Terminate`);
    this.#checkControl(segment);
    if (segment.tagged) this.#checkTagged(segment);
    else this.#checkUntagged(segment);
    if (segment.opcode === OPCODE.TERMINATE) {
      this.#terminated = true;
      this.#checkTerminate(segment);
    }
  }

  /** The peer has ended; these octets came after its last whole FPDU. */
  seeEnd(rest: Uint8Array): void {
    if (this.#terminated && rest.length > 0)
      this.#say(['RDMAP-077', 'MPA-063'], `${rest.length} octets after a Terminate`);
  }

  #checkFpdu(fpdu: ReceivedFpdu): void {
    if (fpdu.pad.some((octet) => octet !== 0)) this.#say(['MPA-067'], 'PAD octets are not 0');
    if (this.crc && !fpdu.crcGood)
      this.#say(
        ['MPA-069', 'MPA-070'],
        `CRC field 0x${fpdu.crc.toString(16).padStart(8, '0')} does not match`,
      );
    if (fpdu.ulpdu.length > MAX_MULPDU)
      this.#say(['MPA-076'], `ULPDU_Length ${fpdu.ulpdu.length} is above ${MAX_MULPDU}`);
    for (const marker of fpdu.markers) {
      if (marker.pointer !== marker.expected) {
        this.#say(
          ['MPA-096', 'MPA-097', 'MPA-098'],
          `marker at stream position ${marker.position} has FPDUPTR ${marker.pointer}, due is ` +
            `${marker.expected}`,
        );
      }
      if (marker.reserved !== 0)
        this.#say(
          ['MPA-100'],
          `reserved half of the marker at ${marker.position} is 0x${marker.reserved.toString(16)}`,
        );
    }
  }

  #checkControl(segment: ParsedSegment): void {
    if (segment.ddpReserved !== 0) this.#say(['DDP-004'], 'reserved DDP control bits are set');
    if (segment.dv !== 1) this.#say(['DDP-006', 'MPA-092'], `DV is ${segment.dv}`);
    if (segment.rv !== 1) this.#say(['RDMAP-001', 'EXT-003'], `RV is ${segment.rv}`);
    if (segment.rdmapReserved !== 0) this.#say(['RDMAP-002'], 'reserved RDMAP control bits are set');
    const rule = OPCODE_RULES[segment.opcode];
    if (rule === undefined) {
      this.#say(['RDMAP-016'], `opcode 0x${segment.opcode.toString(16)} is not assigned`);
      return;
    }
    if (rule.tagged !== segment.tagged)
      this.#say(['DDP-001', 'RDMAP-006'], `${rule.name} has T=${segment.tagged ? 1 : 0}`);
    else if (!segment.tagged && rule.qn !== segment.qn)
      this.#say(['RDMAP-008', 'EXT-008', 'EXT-021', 'EXT-022'], `${rule.name} on QN ${segment.qn}`);
    const { octets } = rule;
    if (octets !== null && segment.payload.length !== octets) {
      this.#say(
        ['RDMAP-014', 'EXT-009', 'EXT-021', 'EXT-022'],
        `${rule.name} has ${segment.payload.length} octets after the DDP header, not ${octets}`,
      );
    }
    if (octets !== null && !segment.last) this.#say(['DDP-002'], `${rule.name} without L`);
  }

  #checkTagged(segment: ParsedSegment): void {
    const { opcode, stag, to, last, payload } = segment;
    const open = this.#tagged;
    if (open !== null) {
      if (open.opcode !== opcode) this.#say(['DDP-036'], 'segments of two tagged messages are interleaved');
      else if (open.stag !== stag) this.#say(['DDP-012'], 'STag changes within a message');
      else if (open.to !== to)
        this.#say(
          ['DDP-018', 'DDP-029'],
          `TO 0x${to.toString(16)} does not continue at 0x${open.to.toString(16)}`,
        );
    }
    if (payload.length === 0 && (!last || open !== null))
      this.#say(['DDP-025'], 'an empty segment in a message that is not empty');
    this.#tagged = last ? null : { opcode, stag, to: to + BigInt(payload.length) };
    if (opcode === OPCODE.READ_RESPONSE) this.#checkResponse(segment);
  }

  #checkResponse(segment: ParsedSegment): void {
    const request = this.reads[0];
    if (request === undefined) {
      this.#say(['RDMAP-025', 'RDMAP-043'], 'a Read Response that nobody asked for');
      return;
    }
    const due = (request.sinkTo + BigInt(this.#answered)) & 0xffff_ffff_ffff_ffffn;
    if (segment.stag !== request.sinkStag || segment.to !== due) {
      this.#say(
        ['RDMAP-030', 'RDMAP-043'],
        `Read Response to 0x${segment.stag.toString(16)}/0x${segment.to.toString(16)}, due is ` +
          `0x${request.sinkStag.toString(16)}/0x${due.toString(16)}`,
      );
    }
    this.#answered += segment.payload.length;
    const complete = this.#answered === request.size;
    if (this.#answered > request.size)
      this.#say(['RDMAP-031'], `Read Response has more than ${request.size} octets`);
    else if (segment.last !== complete)
      this.#say(
        ['RDMAP-031', 'DDP-002'],
        `L=${segment.last ? 1 : 0} at ${this.#answered} of ${request.size} octets`,
      );
    if (segment.last) {
      this.reads.shift();
      this.#answered = 0;
    }
  }

  #checkUntagged(segment: ParsedSegment): void {
    const { opcode, qn, msn, mo, word, last, payload } = segment;
    const invalidates = opcode === OPCODE.SEND_INVALIDATE || opcode === OPCODE.SEND_SE_INVALIDATE;
    if (!invalidates && word !== 0)
      this.#say(['RDMAP-010', 'EXT-003'], `Invalidate STag field is 0x${word.toString(16)}`);
    const open = this.#untagged;
    if (open === null) {
      const due = this.#nextMsn.get(qn) ?? (qn === QN.TERMINATE ? 1 : this.#firstMsn);
      if (msn !== due) this.#say(['DDP-014', 'DDP-015', 'DDP-016'], `MSN ${msn} on QN ${qn}, due is ${due}`);
      if (mo !== 0) this.#say(['DDP-017'], `the first segment of a message has MO ${mo}`);
      this.#nextMsn.set(qn, (msn + 1) >>> 0);
    } else {
      if (qn !== open.qn || msn !== open.msn)
        this.#say(
          ['DDP-013', 'DDP-036'],
          `QN ${qn} MSN ${msn} within the message QN ${open.qn} MSN ${open.msn}`,
        );
      if (opcode !== open.opcode || word !== open.word)
        this.#say(['DDP-009'], 'RsvdULP changes within a message');
      if (mo !== open.mo) this.#say(['DDP-017', 'DDP-029'], `MO ${mo} does not continue at ${open.mo}`);
      if (payload.length === 0) this.#say(['DDP-025'], 'an empty segment in a message that is not empty');
    }
    this.#untagged = last ? null : { qn, msn, opcode, word, mo: mo + payload.length };
    if (opcode === OPCODE.ATOMIC_RESPONSE && payload.length >= 4) this.#checkAtomicResponse(payload);
  }

  #checkAtomicResponse(payload: Uint8Array): void {
    const id = new DataView(payload.buffer, payload.byteOffset).getUint32(0);
    const due = this.atomics.shift();
    if (id !== due)
      this.#say(['EXT-030', 'EXT-041'], `Atomic Response to request ${id}, due is ${due ?? 'none'}`);
  }

  #checkTerminate(segment: ParsedSegment): void {
    const { qn, msn, mo, last, payload } = segment;
    if (segment.tagged || qn !== QN.TERMINATE || msn !== 1 || mo !== 0 || !last) {
      this.#say(['RDMAP-076'], `Terminate with QN ${qn} MSN ${msn} MO ${mo} L=${last ? 1 : 0}`);
    }
    const parsed = parseTerminate(payload);
    if (parsed === null || (!TERMINATE_SIZES.includes(payload.length) && parsed.trailing !== 0)) {
      this.#say(['RDMAP-014', 'RDMAP-084'], `Terminate with ${payload.length} octets after the DDP header`);
      return;
    }
    if (parsed.reserved !== 0)
      this.#say(['RDMAP-082'], `reserved Terminate bits 0x${parsed.reserved.toString(16)}`);
    // RFC 5040 7.1 (1): nothing is included in what says that the stream itself is at an end.
    const bare = parsed.layer === 2 || (parsed.layer === 0 && parsed.etype === 0);
    if (bare && (parsed.m || parsed.d || parsed.r))
      this.#say(
        ['RDMAP-085'],
        `M=${Number(parsed.m)} D=${Number(parsed.d)} R=${Number(parsed.r)} in a Terminate of layer ` +
          `${parsed.layer} type ${parsed.etype}`,
      );
    if (parsed.layer > 2) this.#say(['RDMAP-082'], `Terminate layer ${parsed.layer}`);
  }

  #say(requirements: readonly string[], text: string): void {
    this.violations.push({ requirements, text });
  }
}
