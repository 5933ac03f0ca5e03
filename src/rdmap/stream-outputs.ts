/**
 * What waits to be told by a stream, or has been told and not yet been confirmed: its events, and the writes that the port has. The base of
 * `RdmaStream` and no object beside it, for each idle connection has one.
 */
import { WIDE_ZERO } from '../base/wide.ts';
import { Stage } from '../mpa/stage.ts';
import type { StagePool } from './stages.ts';
import type { StreamEvent, Transmission } from './stream-types.ts';

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

  /** The oldest write, which has been confirmed; null if there was none. */
  protected confirmWrite(): Transmission | null {
    const write = this.#firstWrite;
    this.#firstWrite = this.#secondWrite;
    this.#secondWrite = null;
    return write;
  }

  /** The port is gone, and no write will be confirmed any more. */
  protected giveUpWrites(stages: StagePool): void {
    for (let write = this.confirmWrite(); write !== null; write = this.confirmWrite()) if (write instanceof Stage) stages.release(write);
  }
}
