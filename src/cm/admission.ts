/**
 * How many connections a listener has that the program has no say in, or has not had it yet (SEC-033). One has a place from its first octet until
 * it has been answered, or will not be. A connection that will not be is over at once for the next one in the queue, but not for the system: a peer
 * that does not close its side is waited for (`closeTimeout`). Such connections are bounded too, or a peer could pile up sockets by failing
 * quickly; by the same number, for each costs less than one in start-up. Further ones are dropped at once, and nobody is waited for.
 */
import type { StreamLink } from './link.ts';

/** How a connection counts: it waits, it has failed and is on its way out, or not any more. */
export type Place = 'taken' | 'leaving' | 'none';

/** The places of one listener. */
export class Admission {
  readonly #most: number;
  #taken = 0;
  #leaving = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Places taken: numbers, for a set that is emptied and filled makes its table anew. */
  get taken(): number {
    return this.#taken;
  }

  get full(): boolean {
    return this.#taken >= this.#most;
  }

  /** A connection has come. */
  take(): Place {
    this.#taken++;
    return 'taken';
  }

  /** It has been answered. */
  answered(place: Place): Place {
    return place === 'taken' ? this.gone(place) : place;
  }

  /** It will not be answered; its link is closing. */
  leave(place: Place, link: Pick<StreamLink, 'abort'>): Place {
    if (place !== 'taken') return place;
    this.#taken--;
    if (this.#leaving >= this.#most) {
      link.abort();
      return 'none';
    }
    this.#leaving++;
    return 'leaving';
  }

  /** TCP is gone, or the connection does not count any more for another reason. */
  gone(place: Place): Place {
    if (place === 'taken') this.#taken--;
    else if (place === 'leaving') this.#leaving--;
    return 'none';
  }
}
