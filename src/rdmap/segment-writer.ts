/**
 * Puts segments into a stage: what every message needs, whichever it is. RFC 5041 4.2 and 4.3 (headers), RFC 5040 4.1 (control field), RFC
 * 5041 5.1 (MSNs). Sender decides what to send and when; this knows how a segment is begun and whether it still fits.
 */
import { FIRST_MSN, DDP_CONTROL, putTaggedHeader, putUntaggedHeader, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { Framer } from '../mpa/framer.ts';
import type { Stage } from '../mpa/stage.ts';
import { noMessages } from './counters.ts';
import { LENT_WRITE_OCTETS } from './stages.ts';
import { OPCODE, RDMAP_VERSION_SHIFT } from './wire.ts';

export class SegmentWriter {
  readonly framer: Framer;
  readonly #version: 0 | 1;
  readonly #control: number;
  readonly #msn: number[] = [FIRST_MSN, FIRST_MSN, FIRST_MSN, FIRST_MSN];
  /** Octets of messages for the peer's memory or its ULP. */
  payloadOctets = 0;
  /** Messages sent, by opcode: counted with their last segment. */
  readonly messages: number[] = noMessages();

  constructor(framer: Framer, version: 0 | 1) {
    this.framer = framer;
    this.#version = version;
    this.#control = version << RDMAP_VERSION_SHIFT;
  }

  /** Preset the next MSN of a queue: for tests near the wrap (DDP-015). */
  presetMsn(qn: number, msn: number): void {
    this.#msn[qn] = msn;
  }

  nextMsn(qn: number): number {
    const msn = this.#msn[qn]!;
    this.#msn[qn] = (msn + 1) >>> 0; // from 0xFFFFFFFF to 0 (DDP-015)
    return msn;
  }

  fits(stage: Stage, ulpduLength: number): boolean {
    return stage.end + this.framer.room(ulpduLength) <= stage.bytes.length;
  }

  /** The same for an FPDU whose payload is lent. The first one of a write always fits. */
  fitsLent(stage: Stage, header: number, payload: number): boolean {
    const own = this.framer.lentRoom(header);
    if (stage.end + own > stage.bytes.length) return false;
    return stage.octets === 0 || stage.octets + own + payload <= LENT_WRITE_OCTETS;
  }

  /** Begin a tagged segment; returns where its payload goes. */
  beginTagged(stage: Stage, opcode: number, last: boolean, stag: number, toHi: number, toLo: number, payload: number): number {
    const { framer } = this;
    framer.begin(stage, TAGGED_HEADER_OCTETS + payload);
    putTaggedHeader(framer.view, framer.ulpdu, this.#ddpControl(last), this.#control | opcode, stag, toHi, toLo);
    return framer.ulpdu + TAGGED_HEADER_OCTETS;
  }

  /** Begin an untagged segment; `word` is the ULP's own. Returns where its payload goes. */
  beginUntagged(stage: Stage, opcode: number, last: boolean, word: number, qn: number, msn: number, mo: number, payload: number): number {
    const { framer } = this;
    framer.begin(stage, UNTAGGED_HEADER_OCTETS + payload);
    putUntaggedHeader(framer.view, framer.ulpdu, this.#ddpControl(last), this.#control | opcode, word, qn, msn, mo);
    return framer.ulpdu + UNTAGGED_HEADER_OCTETS;
  }

  /** Begin an untagged message of one segment, which it counts. */
  beginMessage(stage: Stage, opcode: number, qn: number, msn: number, payload: number): number {
    this.messages[opcode]!++;
    return this.beginUntagged(stage, opcode, true, 0, qn, msn, 0, payload);
  }

  /** A zero-length RDMA Write: nobody may check its STag or offset (DDP-026). */
  putEmptyWrite(stage: Stage): void {
    this.messages[OPCODE.RDMA_WRITE]!++;
    this.beginTagged(stage, OPCODE.RDMA_WRITE, true, 0, 0, 0, 0);
    this.framer.finish(stage, TAGGED_HEADER_OCTETS);
  }

  #ddpControl(last: boolean): number {
    return (last ? DDP_CONTROL.LAST : 0) | this.#version;
  }
}
