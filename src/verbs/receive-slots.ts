/**
 * Receives of one length, side by side in one region, for programs that repost each when its message is
 * read.
 */
import type { MemoryRegion, Sge } from './memory.ts';
import type { ReceiveWorkRequest } from './post.ts';
import type { QueuePair } from './qp.ts';

type Changing<T> = { -readonly [K in keyof T]: T[K] };

/**
 * One request serves for all slots, as its fields are copied when it is posted. A request for each slot would
 * be four objects, kept by an idle connection or left behind by each message.
 *
 * @internal
 */
export class ReceiveSlots {
  readonly #sge: Changing<Sge>;
  readonly #request: Changing<ReceiveWorkRequest>;
  readonly #octets: number;

  constructor(mr: MemoryRegion, octets: number) {
    this.#octets = octets;
    this.#sge = { mr, offset: 0, length: octets };
    this.#request = { wrId: 0, sges: [this.#sge] };
  }

  post(qp: QueuePair, wrId: number, slot: number): void {
    this.#sge.offset = slot * this.#octets;
    this.#request.wrId = wrId;
    qp.postRecv(this.#request);
  }
}
