/**
 * Puts segments into a stage: what every message needs, whichever it is. RFC 5041 4.2 and 4.3 (headers), RFC 5040 4.1 (control field), RFC
 * 5041 5.1 (MSNs). Sender decides what to send and when; this knows how a segment is begun and whether it still fits. It is
 * the sender's base and no object beside it, for each idle connection has one.
 */
import { WIDE_ZERO } from '../base/wide.ts';
import { FIRST_MSN, DDP_CONTROL, putTaggedHeader, putUntaggedHeader, QN, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { Framer } from '../mpa/framer.ts';
import type { Stage } from '../mpa/stage.ts';
import { countSent } from './counters.ts';
import { LENT_WRITE_OCTETS } from './stages.ts';
import { OPCODE, RDMAP_VERSION_SHIFT } from './wire.ts';

export abstract class SegmentWriter {
  protected readonly framer: Framer;
  readonly #version: 0 | 1;
  // The next MSN of each queue that may see more than one message: a list would be two objects more for each idle connection.
  #sendMsn: number = FIRST_MSN;
  #requestMsn: number = FIRST_MSN;
  #responseMsn: number = FIRST_MSN;
  /** Octets of messages for the peer's memory or its ULP. */
  payloadOctets: number = WIDE_ZERO;
  /** Messages of the stream: counted with their last segment. */
  readonly #messages: number[];

  constructor(framer: Framer, version: 0 | 1, messages: number[]) {
    this.framer = framer;
    this.#messages = messages;
    this.#version = version;
  }

  /** Set the next MSN of a queue; from outside only for tests near the wrap (DDP-015). Queue 2 has one message. */
  presetMsn(qn: number, msn: number): void {
    if (qn === QN.SEND) this.#sendMsn = msn;
    else if (qn === QN.READ_REQUEST) this.#requestMsn = msn;
    else if (qn === QN.ATOMIC_RESPONSE) this.#responseMsn = msn;
  }

  protected nextMsn(qn: number): number {
    const msn = qn === QN.SEND ? this.#sendMsn : qn === QN.READ_REQUEST ? this.#requestMsn : qn === QN.ATOMIC_RESPONSE ? this.#responseMsn : FIRST_MSN;
    this.presetMsn(qn, (msn + 1) >>> 0); // from 0xFFFFFFFF to 0 (DDP-015)
    return msn;
  }

  /** The last segment of a message has been written. */
  protected count(opcode: number): void {
    countSent(this.#messages, opcode);
  }

  protected fits(stage: Stage, ulpduLength: number): boolean {
    return stage.end + this.framer.room(ulpduLength) <= stage.bytes.length;
  }

  /** The same for an FPDU whose payload is lent. The first one of a write always fits. */
  protected fitsLent(stage: Stage, header: number, payload: number): boolean {
    const own = this.framer.lentRoom(header);
    if (stage.end + own > stage.bytes.length) return false;
    return stage.octets === 0 || stage.octets + own + payload <= LENT_WRITE_OCTETS;
  }

  /** Begin a tagged segment; returns where its payload goes. */
  protected beginTagged(stage: Stage, opcode: number, last: boolean, stag: number, toHi: number, toLo: number, payload: number): number {
    const { framer } = this;
    framer.begin(stage, TAGGED_HEADER_OCTETS + payload);
    putTaggedHeader(framer.view, framer.ulpdu, this.#ddpControl(last), (this.#version << RDMAP_VERSION_SHIFT) | opcode, stag, toHi, toLo);
    return framer.ulpdu + TAGGED_HEADER_OCTETS;
  }

  /** Begin an untagged segment; `word` is the ULP's own. Returns where its payload goes. */
  protected beginUntagged(stage: Stage, opcode: number, last: boolean, word: number, qn: number, msn: number, mo: number, payload: number): number {
    const { framer } = this;
    framer.begin(stage, UNTAGGED_HEADER_OCTETS + payload);
    putUntaggedHeader(framer.view, framer.ulpdu, this.#ddpControl(last), (this.#version << RDMAP_VERSION_SHIFT) | opcode, word, qn, msn, mo);
    return framer.ulpdu + UNTAGGED_HEADER_OCTETS;
  }

  /** Begin an untagged message of one segment, which it counts. */
  protected beginMessage(stage: Stage, opcode: number, qn: number, msn: number, payload: number): number {
    this.count(opcode);
    return this.beginUntagged(stage, opcode, true, 0, qn, msn, 0, payload);
  }

  /** A zero-length RDMA Write: nobody may check its STag or offset (DDP-026). */
  protected putEmptyWrite(stage: Stage): void {
    this.count(OPCODE.RDMA_WRITE);
    this.beginTagged(stage, OPCODE.RDMA_WRITE, true, 0, 0, 0, 0);
    this.framer.finish(stage, TAGGED_HEADER_OCTETS);
  }

  #ddpControl(last: boolean): number {
    return (last ? DDP_CONTROL.LAST : 0) | this.#version;
  }
}
