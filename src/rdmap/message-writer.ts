/**
 * What every RDMA message needs on its way into a stage, whichever it is: the RDMAP control octet (RFC 5040 4.1), counting, and room for a
 * payload that is lent. Sender decides what to send and when.
 */
import { WIDE_ZERO } from '../base/wide.ts';
import { Segmenter } from '../ddp/segmenter.ts';
import { TAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { Framer } from '../mpa/framer.ts';
import type { Stage } from '../mpa/stage.ts';
import { countSent } from './counters.ts';
import { LENT_WRITE_OCTETS } from './stages.ts';
import { OPCODE, RDMAP_VERSION_SHIFT } from './wire.ts';

export abstract class MessageWriter extends Segmenter {
  /** The RDMAP control octet without the opcode. */
  protected readonly control: number;
  /** Octets of messages for the peer's memory or its ULP. */
  payloadOctets: number = WIDE_ZERO;
  /** Messages of the stream: counted with their last segment. */
  readonly #messages: number[];

  constructor(framer: Framer, version: 0 | 1, messages: number[]) {
    super(framer, version);
    this.control = version << RDMAP_VERSION_SHIFT;
    this.#messages = messages;
  }

  /** The last segment of a message has been written. */
  protected count(opcode: number): void {
    countSent(this.#messages, opcode);
  }

  /** As `fits`, for a segment whose payload is lent. The first one of a write always fits. */
  protected fitsLent(stage: Stage, header: number, payload: number): boolean {
    const own = this.framer.lentRoom(header);
    if (stage.end + own > stage.bytes.length) return false;
    return stage.octets === 0 || stage.octets + own + payload <= LENT_WRITE_OCTETS;
  }

  /** Begin an untagged message of one segment, which it counts. */
  protected beginMessage(stage: Stage, opcode: number, qn: number, msn: number, payload: number): number {
    this.count(opcode);
    return this.beginUntagged(stage, this.control | opcode, true, 0, qn, msn, 0, payload);
  }

  /** A zero-length RDMA Write: nobody may check its STag or offset (DDP-026). */
  protected putEmptyWrite(stage: Stage): void {
    this.count(OPCODE.RDMA_WRITE);
    this.beginTagged(stage, this.control | OPCODE.RDMA_WRITE, true, 0, 0, 0, 0);
    this.framer.finish(stage, TAGGED_HEADER_OCTETS);
  }
}
