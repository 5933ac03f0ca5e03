/**
 * Leaving in order. iWARP has no half-close: what crosses our FIN is an error, and a grant or a message of the peer may just be on its way.
 * So between our own endpoints the one that wants to leave says so, and the other one, which then starts nothing more, closes when its work
 * is done. Towards a foreign peer the connection is closed when our own work is done.
 */
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { IwarpError } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { Operations } from './operations.ts';

export class Farewell {
  readonly #cm: CmConnection;
  readonly #operations: Operations;
  readonly #timeout: number;
  /** The peer has said farewell. */
  #peerLeaves = false;
  /** Set from our own farewell on. */
  readonly #patience: Alarm;

  /** `timeout`: milliseconds of silence after which a peer that owes us the close is not waited for any more. */
  constructor(cm: CmConnection, operations: Operations, scheduler: Scheduler, timeout: number) {
    this.#cm = cm;
    this.#operations = operations;
    this.#patience = new Alarm(scheduler);
    this.#timeout = timeout;
  }

  /** Our work is done. `spoken`: the peer knows farewells. */
  leave(spoken: boolean): void {
    if (!spoken || this.#peerLeaves) {
      this.#cm.disconnect(); // does nothing if it is gone already
      return;
    }
    this.#operations.sayFarewell();
    this.#waitForPeer();
  }

  /** As long as something comes, the peer is at work; silence for the close time-out ends the wait. */
  #waitForPeer(): void {
    const before = this.#cm.counters().octetsIn;
    this.#patience.set(this.#timeout, () => {
      if (this.#cm.counters().octetsIn === before) this.#cm.disconnect();
      else this.#waitForPeer();
    });
  }

  /** The peer's farewell has come. `closing`: a close of our own is under way. */
  async follow(closing: boolean): Promise<void> {
    this.#peerLeaves = true;
    this.#operations.stop(new IwarpError('ERR_CONNECTION_CLOSED', 'the peer is closing the connection'));
    await this.#operations.whenIdle(undefined);
    // If a close of our own is under way and has not come to its farewell, it sees that the peer leaves.
    if (!closing || this.#patience.isSet) this.#cm.disconnect();
  }

  /** The connection is gone. */
  end(): void {
    this.#patience.stop();
  }
}
