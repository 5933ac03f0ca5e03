/**
 * A listener over UDP: requests become connections, each with its own socket, and a request that comes again
 * gets the same answer again (protocol-notes 4.1).
 */
import type { Scheduler } from '../base/clock.ts';
import { copyOf } from '../base/copy.ts';
import type { ListenReady, Port, PortAddress, PortListener } from '../transport/port.ts';
import type { ListenSockets, RequestTaker } from './listen-sockets.ts';
import { decodeTrpSetup, TRP_OPCODE } from './wire.ts';

/** Rejects that a listener repeats, and requests that are over, which it knows again: this many. */
const REMEMBERED = 1024;
/** For so long, ms: a client gives up after half of it. */
const REMEMBER_MS = 10_000;
/** Ends of connections with first sequence number 0 are remembered only so long: the next one looks alike. */
const REMEMBER_ZERO_MS = 1_000;
/** Bytes sent for each byte received (RFC 9000 8). */
const AMPLIFICATION = 3;

const noop = (): void => undefined;

/** Counts of a listener's datagrams that began nothing. */
interface TrpListenerCounters {
  /** Not a request. */
  dropped: number;
  /** Of connections that exist, were rejected or are over. */
  repeated: number;
}

/** What a listener does for a connection. */
export interface ListenerSide {
  /** The address and port that the client has asked. */
  readonly localAddress: PortAddress;
  /** Refuse the request, from the listening port. */
  reject(datagram: Uint8Array): void;
  /** The connection is over. */
  closed(): void;
}

/** A port that a listener has made. */
export interface ServedPort extends Port {
  /** A datagram of its client. */
  deliver(bytes: Uint8Array, start: number, end: number): void;
}

/** A request that has been answered for good. */
interface Answer {
  /** The reject; null if its connection is over. */
  readonly reject: Uint8Array | null;
  readonly psn: number;
  until: number;
}

/** The port that requests go to. */
export class TrpListener implements RequestTaker {
  readonly counters: TrpListenerCounters = { dropped: 0, repeated: 0 };
  readonly #time: Scheduler;
  readonly #accept: (port: Port) => void;
  readonly #make: (peer: PortAddress, side: ListenerSide) => ServedPort;
  #sockets: ListenSockets | null = null;
  #state: 'open' | 'closed' = 'open';
  /** Connections by the client's address and port; and clients that have had their answer. */
  readonly #connections = new Map<string, ServedPort>();
  readonly #answers = new Map<string, Answer>();

  constructor(
    time: Scheduler,
    accept: (port: Port) => void,
    make: (peer: PortAddress, side: ListenerSide) => ServedPort,
  ) {
    this.#time = time;
    this.#accept = accept;
    this.#make = make;
  }

  open(sockets: ListenSockets, ready: ListenReady): void {
    this.#sockets = sockets;
    sockets.open(this, (address, error) => {
      if (address === undefined) ready(undefined, error);
      else ready(this.#listening(sockets, address));
    });
  }

  #listening(sockets: ListenSockets, address: PortAddress): PortListener {
    return {
      address,
      close: (done = noop) => {
        this.#state = 'closed';
        // Rejects still leave from here while a program decides.
        if (this.#connections.size === 0) sockets.close();
        else sockets.stay();
        this.#time.defer(done);
      },
      setRef: (on) => sockets.setRef(on),
    };
  }

  /** A datagram that has come to the address `own`. */
  onDatagram(bytes: Uint8Array, start: number, end: number, from: PortAddress, own: PortAddress): void {
    const setup = decodeTrpSetup(bytes, start, end);
    if (setup === null || setup.opcode !== TRP_OPCODE.REQUEST || from.port === 0) {
      this.counters.dropped++;
      return;
    }
    const key = `${from.address} ${from.port}`;
    const known = this.#connections.get(key);
    if (known !== undefined) {
      this.counters.repeated++;
      known.deliver(bytes, start, end);
      return;
    }
    if (this.#state === 'closed' || this.#answered(key, setup.psn, end - start, from, own)) return;
    this.#begin(key, setup.psn, copyOf(bytes, start, end), from, own);
  }

  /** True if this request has had its answer, which is given again. */
  #answered(key: string, psn: number, length: number, from: PortAddress, own: PortAddress): boolean {
    const answer = this.#answers.get(key);
    if (answer === undefined) return false;
    if (answer.until <= this.#time.now() || answer.psn !== psn) {
      this.#answers.delete(key);
      return false;
    }
    this.counters.repeated++;
    const { reject } = answer;
    if (reject !== null && reject.length <= AMPLIFICATION * length) this.#sockets!.send(reject, own, from);
    return true;
  }

  #begin(key: string, psn: number, request: Uint8Array, from: PortAddress, own: PortAddress): void {
    const port = this.#make(from, {
      localAddress: own,
      reject: (datagram) => {
        this.#sockets!.send(datagram, own, from);
        this.#remember(key, { reject: datagram, psn, until: this.#time.now() + REMEMBER_MS });
      },
      closed: () => {
        this.#connections.delete(key);
        if (this.#state === 'closed' && this.#connections.size === 0) this.#sockets!.close();
        const until = this.#time.now() + (psn === 0 ? REMEMBER_ZERO_MS : REMEMBER_MS);
        if (!this.#answers.has(key)) this.#remember(key, { reject: null, psn, until });
      },
    });
    this.#connections.set(key, port);
    this.#accept(port);
    port.deliver(request, 0, request.length);
  }

  #remember(key: string, answer: Answer): void {
    this.#answers.delete(key);
    this.#answers.set(key, answer);
    if (this.#answers.size > REMEMBERED) this.#answers.delete(this.#answers.keys().next().value!);
  }
}
