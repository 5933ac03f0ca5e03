/**
 * The ports of a transport, for a program that polls a completion queue in a loop and gives the event loop no
 * turn: each call drives some of them. What the loop would have reported to a port, its thread looks up.
 */
import { existsSync, readlinkSync } from 'node:fs';
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';

/** Ports that one call drives; the next call goes on behind them. */
const PORTS_A_CALL = 16;

/** A port, as a call of the program drives it. */
interface DrivenPort {
  drive(): void;
}

export class PolledPorts {
  readonly #ports: DrivenPort[] = [];
  #next = 0;
  /**
   * A port hands octets on, in memory that all ports share. A program that is called then, and polls, as
   * listeners of traces may not, finds nothing.
   */
  reading = false;

  add(port: DrivenPort): void {
    this.#ports.push(port);
  }

  delete(port: DrivenPort): void {
    const at = this.#ports.indexOf(port);
    if (at >= 0) this.#ports.splice(at, 1);
  }

  /** Drive the ports in turn. One that leaves meanwhile lets another wait for the next call. */
  look(): void {
    if (this.reading) return;
    for (let left = Math.min(PORTS_A_CALL, this.#ports.length); left > 0; left--) {
      if (this.#next >= this.#ports.length) this.#next = 0;
      this.#ports[this.#next++]?.drive();
    }
  }
}

/** How a port hears of the other thread without the event loop; replaced by a test. */
export interface Hearsay {
  /** The number of the calling thread, for `hasEnded` in another one; 0 where the system has none. */
  readonly thread: () => number;
  readonly hasEnded: (thread: number) => boolean;
  /** The next message that has come, in an object; undefined if there is none. */
  readonly nextMessage: (channel: object) => { readonly message: unknown } | undefined;
}

/** The system's number of this thread, where Linux has one. */
function ownThread(): number {
  try {
    return Number(/\d+$/.exec(readlinkSync('/proc/thread-self'))?.[0] ?? 0);
  } catch {
    return 0;
  }
}

let own: number | null = null;
const pathOf = (thread: number): string => `/proc/self/task/${thread}`;

/** The process's. */
export const PROCESS_HEARSAY: Hearsay = {
  thread: () => (own ??= ownThread()),
  // A thread that does not find itself there cannot tell whether another one has ended.
  hasEnded: (thread) =>
    thread > 0 && !existsSync(pathOf(thread)) && existsSync(pathOf(PROCESS_HEARSAY.thread())),
  nextMessage: (channel) =>
    receiveMessageOnPort(channel as MessagePort) as { readonly message: unknown } | undefined,
};
