/**
 * DDP on the sending side: begins segments in a transmit buffer. RFC 5041 4.1 to 4.3 (headers), 5.1.2 (MSNs).
 * The ULP decides which messages are sent, and how much in one segment.
 */
import type { TransmitBuffer, UlpduWriter } from '../llp/lower-layer.ts';
import {
  DDP_CONTROL,
  FIRST_MSN,
  putTaggedHeader,
  putUntaggedHeader,
  QN,
  TAGGED_HEADER_OCTETS,
  UNTAGGED_HEADER_OCTETS,
} from './wire.ts';

/** The MSN after this one: from 0xFFFFFFFF to 0 (DDP-015). */
function following(msn: number): number {
  return (msn + 1) >>> 0;
}

export class Segmenter {
  readonly #writer: UlpduWriter;
  readonly #version: 0 | 1;
  // The next MSN of each queue that may see more than one message: a list would be two objects more for each
  // idle connection.
  #sendMsn: number;
  #requestMsn: number;
  #responseMsn: number;

  constructor(writer: UlpduWriter, version: 0 | 1, firstMsn: number) {
    this.#writer = writer;
    this.#version = version;
    this.#sendMsn = this.#requestMsn = this.#responseMsn = firstMsn;
  }

  /** The MSN of the next message of a queue, which it takes. Queue 2 has one message. */
  nextMsn(qn: number): number {
    switch (qn) {
      case QN.SEND: {
        const msn = this.#sendMsn;
        this.#sendMsn = following(msn);
        return msn;
      }
      case QN.READ_REQUEST: {
        const msn = this.#requestMsn;
        this.#requestMsn = following(msn);
        return msn;
      }
      case QN.ATOMIC_RESPONSE: {
        const msn = this.#responseMsn;
        this.#responseMsn = following(msn);
        return msn;
      }
      default:
        return FIRST_MSN;
    }
  }

  /**
   * Begin a tagged segment; `rsvdUlp` is the byte that DDP keeps for the ULP. Returns where the payload
   * goes.
   */
  beginTagged(
    buffer: TransmitBuffer,
    rsvdUlp: number,
    last: boolean,
    stag: number,
    toHi: number,
    toLo: number,
    payload: number,
  ): number {
    const writer = this.#writer;
    writer.begin(buffer, TAGGED_HEADER_OCTETS + payload);
    putTaggedHeader(writer.target.view, writer.at, this.#control(last), rsvdUlp, stag, toHi, toLo);
    return writer.at + TAGGED_HEADER_OCTETS;
  }

  /**
   * Begin an untagged segment; `rsvdUlp` and `word` are the five bytes that DDP keeps for the ULP. Returns
   * where the payload goes.
   */
  beginUntagged(
    buffer: TransmitBuffer,
    rsvdUlp: number,
    last: boolean,
    word: number,
    qn: number,
    msn: number,
    mo: number,
    payload: number,
  ): number {
    const writer = this.#writer;
    writer.begin(buffer, UNTAGGED_HEADER_OCTETS + payload);
    putUntaggedHeader(writer.target.view, writer.at, this.#control(last), rsvdUlp, word, qn, msn, mo);
    return writer.at + UNTAGGED_HEADER_OCTETS;
  }

  /** The DDP control octet: T is the header's business. */
  #control(last: boolean): number {
    return (last ? DDP_CONTROL.LAST : 0) | this.#version;
  }
}
