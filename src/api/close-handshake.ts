/**
 * The orderly close. iWARP has no half-close: data that crosses our FIN is an error, and a grant or a message
 * of the peer may just be on its way. So between two endpoints of this package the side that wants to close
 * first sends a farewell, and the other side, which then starts nothing more, closes when its work is done.
 * Towards a foreign peer the connection is closed when our own work is done.
 *
 * Every wait has a bound: the peer has to move {@link LEAST_PROGRESS} in each close time-out after our
 * farewell, and the whole close has a limit.
 */
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { nextState } from '../base/fsm.ts';
import { connectionEnd, IwarpError } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import { CONNECTION_TABLE, type ConnectionInput, type ConnectionState } from './connection-states.ts';
import { failureOf, type ErrorContext } from './errors.ts';
import type { Operations } from './operations.ts';

/** Bytes in both directions that count as progress: a peer that trickles is not waited for. */
const LEAST_PROGRESS = 65_536;

/** @internal Milliseconds: how long a silent peer is waited for, and how long a close may take in all. */
interface CloseLimits {
  readonly silence: number;
  readonly inAll: number;
}

/** @internal The states of one connection, and the handshake that ends it. */
export class CloseHandshake {
  readonly #cm: CmConnection;
  readonly #operations: Operations;
  readonly #limits: CloseLimits;
  readonly #patience: Alarm;
  readonly #limit: Alarm;
  #state: ConnectionState = CONNECTION_TABLE.initial;
  /** The close took longer than its limit, and the connection was dropped. */
  expired = false;
  /** The reason for which this side dropped the connection, if there is one to report. */
  failure: IwarpError | null = null;

  constructor(cm: CmConnection, operations: Operations, scheduler: Scheduler, limits: CloseLimits) {
    this.#cm = cm;
    this.#operations = operations;
    this.#limits = limits;
    this.#patience = new Alarm(scheduler);
    this.#limit = new Alarm(scheduler);
  }

  get state(): ConnectionState {
    return this.#state;
  }

  #step(input: ConnectionInput): ConnectionState {
    const before = this.#state;
    this.#state = nextState(CONNECTION_TABLE, before, input, this.#cm);
    if (before === 'open' && this.#state !== 'closed') {
      this.#limit.set(this.#limits.inAll, () => {
        this.expired = true;
        this.destroy();
      });
    }
    return this.#state;
  }

  /**
   * The program closes. `farewells`: the peer knows them; `settled`: the calls of both sides have come to
   * their end. Settles when our part of the close is done.
   */
  async close(farewells: boolean, settled?: () => Promise<void>): Promise<void> {
    if (this.#state !== 'open') return;
    this.#step('close');
    await settled?.();
    await this.#operations.whenIdle(undefined);
    if (this.state !== 'finishing') return; // the peer leaves too, or the connection is gone
    if (!farewells) {
      this.#disconnect();
      return;
    }
    this.#step('farewell');
    this.#operations.sayFarewell();
    this.#waitForPeer();
  }

  #waitForPeer(): void {
    const before = this.#moved();
    this.#patience.set(this.#limits.silence, () => {
      if (this.#state !== 'parting') return;
      if (this.#moved() - before < LEAST_PROGRESS) this.#disconnect();
      else this.#waitForPeer();
    });
  }

  #moved(): number {
    const { octetsIn, octetsOut } = this.#cm.counters();
    return octetsIn + octetsOut;
  }

  /** The peer's farewell has come: nothing new starts, and the connection closes when our work is done. */
  async peerLeaves(): Promise<void> {
    if (this.#state === 'following' || this.#state === 'leaving') return;
    this.#step('peer-farewell');
    this.#operations.stop(() =>
      connectionEnd(new IwarpError('ERR_CONNECTION_CLOSED', 'the peer is closing the connection')),
    );
    await this.#operations.whenIdle(undefined);
    if (this.state === 'following') this.#disconnect();
  }

  #disconnect(): void {
    this.#step('leave');
    this.#cm.disconnect(); // does nothing if the connection is gone already
  }

  /**
   * The peer's stream has ended, between two frames. Below TLS anyone on the path could have ended it, and a
   * peer that resets over UDP has no other word for it: of a peer that knows farewells only its farewell, or
   * ours, makes that an orderly end.
   */
  cutOff(what: 'TLS' | 'UDP', context: ErrorContext): void {
    if (this.#state !== 'open' && this.#state !== 'finishing') return;
    const words = `the ${what} stream ended without the farewell of the peer: it may have been cut off`;
    this.fail(failureOf('ERR_CONNECTION_RESET', words, context));
  }

  /** The connection manager reports that a close or a Terminate has begun. */
  leave(): void {
    this.#step('leave');
  }

  /** Drop the connection with a reset. */
  destroy(): void {
    this.#step('leave');
    if (this.#state !== 'closed') this.#cm.abort();
  }

  /** Drop the connection, which then ends with `error`. */
  fail(error: IwarpError): void {
    if (this.#state === 'closed') return;
    this.failure ??= error;
    this.destroy();
  }

  /** The connection is gone. */
  end(): void {
    this.#step('ended');
    this.#patience.stop();
    this.#limit.stop();
  }
}
