/**
 * What waits to be told by a stream, or has been told and not yet been confirmed: its events, and the writes that the port has. The base of
 * `RdmaStream` and no object beside it, for each idle connection has one.
 */
import { WIDE_ZERO } from '../base/wide.ts';
import { Stage } from '../mpa/stage.ts';
import type { StagePool } from './stages.ts';
import type { StreamEvent, Transmission } from './stream-types.ts';

/** Stands for a write whose memory the port has given back and which it has not confirmed. */
const TAKEN: Transmission = { chunks: [], count: 0 };

export abstract class StreamOutputs {
  /** Null while there are none: a list that was ever used keeps room for seventeen. */
  #events: StreamEvent[] | null = null;
  // Writes handed to the port and not yet confirmed: two keep the port busy while one is being filled.
  #firstWrite: Transmission | null = null;
  #secondWrite: Transmission | null = null;
  /** Octets handed to the port since the stream began. */
  protected octetsOut: number = WIDE_ZERO;

  /** The next event, once. */
  pollEvent(): StreamEvent | null {
    const events = this.#events;
    if (events === null) return null;
    const event = events.shift()!;
    if (events.length === 0) this.#events = null;
    return event;
  }

  protected raise(event: StreamEvent): void {
    if (this.#events === null) this.#events = [event];
    else this.#events.push(event);
  }

  /** No further write may be handed out before one has been confirmed: that is the back-pressure. */
  protected get writing(): boolean {
    return this.#secondWrite !== null;
  }

  protected handOut(write: Transmission, octets: number): Transmission {
    if (this.#firstWrite === null) this.#firstWrite = write;
    else this.#secondWrite = write;
    this.octetsOut += octets;
    return write;
  }

  /** The write just handed out will be confirmed, but its memory is free. */
  protected freeLastWrite(stages: StagePool): void {
    const write = this.#secondWrite ?? this.#firstWrite;
    if (!(write instanceof Stage)) return;
    if (this.#secondWrite === null) this.#firstWrite = TAKEN;
    else this.#secondWrite = TAKEN;
    stages.release(write);
  }

  /** The oldest write has been confirmed: true if it was the sender's, and no start-up frame. */
  protected confirmWrite(stages: StagePool): boolean {
    const write = this.#firstWrite;
    this.#firstWrite = this.#secondWrite;
    this.#secondWrite = null;
    if (!(write instanceof Stage)) return write === TAKEN;
    stages.release(write);
    return true;
  }

  /** The port is gone, and no write will be confirmed any more. */
  protected giveUpWrites(stages: StagePool): void {
    while (this.#firstWrite !== null) this.confirmWrite(stages);
  }
}
