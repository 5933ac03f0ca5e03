/**
 * Frames of one turn become one message, which makes many small requests cheap. While batches are under way
 * the next one fills.
 */
import type { Batch, Carrier } from './carrier.ts';
import {
  FRAME,
  HEADER_OCTETS,
  KIND,
  MARK_OCTETS,
  MOST_BATCHES,
  PARTED,
  writeMark,
  type Kind,
} from './wire.ts';

/** Batches under way beside which a batch that is not full waits. */
const UNDER_WAY = 2;

const EMPTY = new Uint8Array(0);
/** A part is not worth its header where less room than this is left in a batch. */
const LEAST_PART = 1024;

export class BatchWriter {
  readonly #carrier: Carrier;
  readonly #capacity: number;
  #batch: Batch | null = null;
  #length = 0;
  /** Bytes of answers in each batch under way, the oldest first. */
  readonly #underWay: number[] = [];
  /** Bytes of answers in the batch that fills. */
  #answers = 0;
  /** Bytes of answers to the peer's frames that have not left: as many as it takes. */
  unsent = 0;
  #deferred = false;

  constructor(carrier: Carrier) {
    this.#carrier = carrier;
    this.#capacity = carrier.batchOctets;
  }

  /** Largest payload of a frame. */
  get largest(): number {
    return this.#capacity - MARK_OCTETS - HEADER_OCTETS;
  }

  /** Largest body that {@link writeParts} takes. */
  get largestInParts(): number {
    return MOST_BATCHES * this.largest;
  }

  /** Write a frame; its payload is copied. */
  write(type: number, id: number, payload: Uint8Array = EMPTY, number: number = 0, flags: number = 0): void {
    const { length } = payload;
    if (this.#length + HEADER_OCTETS + length > this.#capacity) this.flush();
    const { bytes, view } = (this.#batch ??= this.#begin());
    const at = this.#length;
    bytes[at] = type;
    bytes[at + 1] = flags;
    view.setUint16(at + 2, 0);
    view.setUint32(at + 4, id);
    view.setUint32(at + 8, length);
    view.setUint32(at + 12, number);
    if (length > 0) bytes.set(payload, at + HEADER_OCTETS);
    this.#length = at + HEADER_OCTETS + length;
    if (this.#deferred) return;
    this.#deferred = true;
    this.#carrier.defer(this.#turnOver);
  }

  /** Write a frame that the peer has caused. */
  answer(type: number, id: number, payload: Uint8Array = EMPTY, number: number = 0, flags: number = 0): void {
    this.write(type, id, payload, number, flags);
    this.#answers += HEADER_OCTETS + payload.length;
    this.unsent += HEADER_OCTETS + payload.length;
  }

  #begin(): Batch {
    const batch = this.#carrier.takeBatch();
    writeMark(batch.view);
    this.#length = MARK_OCTETS;
    return batch;
  }

  /** Write a frame whose body is larger than one, as parts and the frame itself; the body is copied. */
  writeParts(kind: Kind, type: number, id: number, body: Uint8Array, number: number = 0): void {
    const { largest } = this;
    let at = 0;
    while (body.length - at > largest) {
      const room = this.#batch === null ? largest : this.#capacity - this.#length - HEADER_OCTETS;
      const piece = room < LEAST_PART ? largest : room;
      const part = body.subarray(at, at + piece);
      if (kind === KIND.REPLY) this.answer(FRAME.PART, id, part, body.length, kind);
      else this.write(FRAME.PART, id, part, body.length, kind);
      at += piece;
    }
    const rest = body.subarray(at);
    if (kind === KIND.REPLY) this.answer(type, id, rest, number, PARTED);
    else this.write(type, id, rest, number, PARTED);
  }

  readonly #turnOver = (): void => {
    this.#deferred = false;
    if (this.#underWay.length < UNDER_WAY) this.flush();
    this.onTurn();
  };

  /** Called when a turn is over in which frames were written. */
  onTurn = (): void => undefined;

  /** Send the frames written so far, without waiting for more. */
  flush(): void {
    const batch = this.#batch;
    if (batch === null) return;
    this.#batch = null;
    const length = this.#length;
    this.#length = 0;
    this.#underWay.push(this.#answers);
    this.#answers = 0;
    this.#carrier.sendBatch(batch, length, this.#sent);
  }

  readonly #sent = (): void => {
    this.unsent -= this.#underWay.shift()!;
    if (this.#underWay.length < UNDER_WAY && !this.#deferred) this.flush();
  };
}
