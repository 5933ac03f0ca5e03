/** Events that wait to be taken from a stream. */
import type { StreamEvent } from './types.ts';

export class EventList {
  readonly #events: StreamEvent[] = [];

  add(event: StreamEvent): void {
    this.#events.push(event);
  }

  /** The oldest event, once; null if there is none. */
  take(): StreamEvent | null {
    return this.#events.shift() ?? null;
  }
}
