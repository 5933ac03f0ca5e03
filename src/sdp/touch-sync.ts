/**
 * Waiting for the peer without the event loop: the thread polls the completions of one connection until the
 * program may change memory that it has lent, as the page fault of the paper does.
 */
import { performance } from '../base/host.ts';
import { IwarpError } from '../base/errors.ts';
import type { Source, Block } from './source.ts';
import type { Transmitter } from './transmit.ts';

/** Longest wait between two looks at the time. */
const SLICE_MS = 50;
/** As for the timer of a SrcAvail, which cannot fire meanwhile. */
const ADVERT_MS = 1000;

/** Calls of the program, which wait in their order while it waits for the peer. */
export class Calls {
  readonly #held: (() => void)[] = [];
  #waiting = false;

  call(task: () => void): void {
    if (this.#waiting || this.#held.length > 0) this.#held.push(task);
    else task();
  }

  /** Run `wait`, and hold all calls back until it has returned and {@link run} is called. */
  without(wait: () => boolean): boolean {
    const outer = this.#waiting;
    this.#waiting = true;
    try {
      return wait();
    } finally {
      this.#waiting = outer;
    }
  }

  /** The calls that were held back. One that throws has been made. */
  run(): void {
    while (!this.#waiting && this.#held.length > 0) this.#held.shift()!();
  }
}

/** The connection that the completions belong to. */
interface PolledConnection {
  isEnded(): boolean;
  poll(): void;
}

/** True if a copy stands in the place of the block's memory, false if the peer has the block. */
export function waitForPeer(
  out: Transmitter,
  source: Source,
  block: Block,
  copy: boolean,
  ms: number,
  connection: PolledConnection,
): boolean {
  let result: 'waits' | 'copied' | 'done' = 'waits';
  if (copy) source.copy(block, (copied) => (result = copied ? 'copied' : 'done'));
  const open = (): boolean => result === 'waits' && block.state !== 'done';
  const begun = performance.now();
  let [since, sent] = [begun, block.sent];
  while (open()) {
    const now = performance.now();
    if (connection.isEnded())
      throw new IwarpError('ERR_CONNECTION_CLOSED', 'the connection was closed before the peer had all');
    if (now - begun >= ms)
      throw new IwarpError('ERR_TIMEOUT', `the peer has not taken the lent memory within ${ms} ms`);
    if (block.sent !== sent) [since, sent] = [now, block.sent];
    else if (now - since >= ADVERT_MS) {
      since = now;
      source.cancel();
    }
    out.cq.wait(Math.ceil(Math.min(SLICE_MS, ms)));
    connection.poll();
  }
  return (result as string) === 'copied';
}
