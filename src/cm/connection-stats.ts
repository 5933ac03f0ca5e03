/** Statistics of a connection manager: the connections it has, and counts over all that it had. */
import { addCounters, noCounters } from '../rdmap/counters.ts';
import type { StreamCounters } from '../stream/types.ts';
import type { CmConnection } from './connection.ts';
import type { CmEvent } from './events.ts';
import type { CmListener } from './listener.ts';

/** Counters over all connections since the manager was made, present ones included. */
export interface DeviceCounters extends StreamCounters {
  /** Connections established, by either side. */
  established: number;
  /** Requests that were answered with a rejection. */
  rejected: number;
  /** Connections that were refused because their listener had `maxPending` in start-up. */
  refused: number;
  /** TCP connections that could not be made, or whose start-up failed. */
  failed: number;
  /** Established connections that ended in order. */
  closed: number;
  /** Established connections that ended in another way: Terminate, reset, loss, time-out. */
  broken: number;
}

/** Called with every event of every connection, before the connection's own handler. */
export type CmObserver = (connection: CmConnection, event: CmEvent) => void;

export class ConnectionStats {
  /** Connections with a port: in start-up, established, or closing. */
  readonly live: Set<CmConnection> = new Set();
  /** Listeners that are bound. */
  readonly listeners: Set<CmListener> = new Set();
  /** One observer, null by default. */
  observer: CmObserver | null = null;
  readonly #past = noCounters();
  readonly #events = { established: 0, rejected: 0, refused: 0, failed: 0, closed: 0, broken: 0 };

  begin(connection: CmConnection): void {
    this.live.add(connection);
  }

  /** A connection was turned away before it was one. */
  refuse(): void {
    this.#events.refused++;
  }

  note(connection: CmConnection, event: CmEvent): void {
    const events = this.#events;
    switch (event.type) {
      case 'established':
        events.established++;
        break;
      case 'rejected':
        events[event.error === undefined ? 'rejected' : 'failed']++;
        break;
      case 'unreachable':
      case 'address-error':
      case 'connect-error':
        events.failed++;
        break;
      case 'disconnected':
        if (connection.negotiated !== undefined) events[event.cause === 'graceful' ? 'closed' : 'broken']++;
        else if (event.cause === 'rejected' && connection.role === 'passive') events.rejected++;
        if (this.live.delete(connection)) addCounters(this.#past, connection.counters());
        break;
      default:
    }
    this.observer?.(connection, event);
  }

  counters(): DeviceCounters {
    const sum: DeviceCounters = { ...noCounters(), ...this.#events };
    addCounters(sum, this.#past);
    for (const connection of this.live) addCounters(sum, connection.counters());
    return sum;
  }
}
