/**
 * DDP on the sending side: begins segments in a stage. RFC 5041 4.1 to 4.3 (headers), 5.1.2 (MSNs). What is sent, and how much of it in one
 * segment, the ULP decides. This is its base and no object beside it, for each idle connection has one.
 */
import type { Framer } from '../mpa/framer.ts';
import type { Stage } from '../mpa/stage.ts';
import { DDP_CONTROL, FIRST_MSN, putTaggedHeader, putUntaggedHeader, QN, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from './wire.ts';

export abstract class Segmenter {
  protected readonly framer: Framer;
  readonly #version: 0 | 1;
  // The next MSN of each queue that may see more than one message: a list would be two objects more for each idle connection.
  #sendMsn: number = FIRST_MSN;
  #requestMsn: number = FIRST_MSN;
  #responseMsn: number = FIRST_MSN;

  constructor(framer: Framer, version: 0 | 1) {
    this.framer = framer;
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

  /** Has the stage room for a segment of so many octets? */
  protected fits(stage: Stage, ulpduLength: number): boolean {
    return stage.end + this.framer.room(ulpduLength) <= stage.bytes.length;
  }

  /** Begin a tagged segment; `rsvdUlp` is the octet that DDP keeps for the ULP. Returns where the payload goes. */
  protected beginTagged(stage: Stage, rsvdUlp: number, last: boolean, stag: number, toHi: number, toLo: number, payload: number): number {
    const { framer } = this;
    framer.begin(stage, TAGGED_HEADER_OCTETS + payload);
    putTaggedHeader(framer.view, framer.ulpdu, this.#control(last), rsvdUlp, stag, toHi, toLo);
    return framer.ulpdu + TAGGED_HEADER_OCTETS;
  }

  /** Begin an untagged segment; `rsvdUlp` and `word` are the five octets that DDP keeps for the ULP. Returns where the payload goes. */
  protected beginUntagged(stage: Stage, rsvdUlp: number, last: boolean, word: number, qn: number, msn: number, mo: number, payload: number): number {
    const { framer } = this;
    framer.begin(stage, UNTAGGED_HEADER_OCTETS + payload);
    putUntaggedHeader(framer.view, framer.ulpdu, this.#control(last), rsvdUlp, word, qn, msn, mo);
    return framer.ulpdu + UNTAGGED_HEADER_OCTETS;
  }

  /** The DDP control octet: T is the header's business. */
  #control(last: boolean): number {
    return (last ? DDP_CONTROL.LAST : 0) | this.#version;
  }
}
