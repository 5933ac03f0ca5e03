/** The interface of the two sides of every transport to the program that measures them. */
import { performance } from 'node:perf_hooks';
import type { Writable } from 'node:stream';
import { latencySlice } from '../stats.ts';
import type { CaseSpec, LatencySlice } from '../types.ts';

/** The data that a client needs of its server, sent as JSON. */
export interface Place {
  readonly port: number;
  readonly rkey?: number;
}

/** Payload that has arrived, requests made, and how long making them took. */
export class Tally {
  posts = 0;
  postMs = 0;
  #own = 0;
  /** Replaced where the transport itself counts. */
  bytes: () => number = () => this.#own;

  add(octets: number): void {
    this.#own += octets;
  }
}

/** A side that has been set up. */
export interface Side {
  /** Begin, or go on after `stop`. A server that only answers has nothing to do. */
  start(): void;
  stop(): void;
  close(): void;
  /** Latencies since the last call. */
  takeLatency?(): LatencySlice;
}

export interface Transport {
  serve(spec: CaseSpec, tally: Tally): Promise<{ readonly place: Place; readonly side: Side }>;
  connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side>;
}

export const HOST = '127.0.0.1';

/** Octets of a large Write, of probes that have one size. */
export const WRITE_OCTETS: number = 1 << 20;

/**
 * Small writes of a process that may follow each other from their callbacks before the event loop gets a
 * turn.
 */
const TURN_WRITES = 512;
let writes = 0;
const waiting = new Set<() => void>();

function nextTurn(): void {
  writes = 0;
  const pumps = [...waiting];
  waiting.clear();
  for (const pump of pumps) pump();
}

/**
 * While the peer keeps up, the system takes small writes at once, and a sender that goes on from the callback
 * never leaves Node's tick queue: it would not even receive the message to stop. `steps(pump)` is a `pump`
 * that lets the loop turn now and then; it returns the number of writes made.
 */
function steps(pump: () => number): () => void {
  const step = (): void => {
    if (waiting.has(step)) return;
    if (writes < TURN_WRITES) writes += pump();
    if (writes < TURN_WRITES) return;
    if (waiting.size === 0) setImmediate(nextTurn);
    waiting.add(step);
  };
  return step;
}

/** How many messages one connection keeps under way. */
export const depthOf = ({ inFlight, connections }: CaseSpec): number =>
  Math.max(1, Math.floor(inFlight / connections));

/** The sender on one connection. */
export type Sender = Pick<Side, 'start' | 'stop'>;

/** The senders of all connections as one. */
export function together(senders: readonly Sender[]): Sender {
  return {
    start: () => senders.forEach((sender) => sender.start()),
    stop: () => senders.forEach((sender) => sender.stop()),
  };
}

/**
 * Whether the time in the sending calls is taken: to look at the clock twice a message is dear for some
 * senders.
 */
type Timing = 'timed' | 'untimed';

/**
 * Sends by `fill`, which writes as many messages as may be written now and returns how many. `more` says that
 * there may be more.
 */
export function filling(
  tally: Tally,
  fill: () => number,
  timing: Timing = 'untimed',
): Sender & { more(): void } {
  let running = false;
  const more = steps(() => {
    if (!running) return 0;
    const began = timing === 'timed' ? performance.now() : 0;
    const posts = fill();
    if (timing === 'timed') tally.postMs += performance.now() - began;
    tally.posts += posts;
    return posts;
  });
  return {
    more,
    start: () => {
      running = true;
      more();
    },
    stop: () => (running = false),
  };
}

/** Keeps `depth` messages under way on one connection; `send` says with its callback when one is done. */
export function keepUnderWay(
  depth: number,
  tally: Tally,
  send: (done: () => void) => void,
  timing: Timing = 'untimed',
): Sender {
  let outstanding = 0;
  const done = (): void => {
    outstanding--;
    sender.more();
  };
  const fill = (): number => {
    let posts = 0;
    for (; outstanding < depth; posts++) {
      outstanding++;
      send(done);
    }
    return posts;
  };
  const sender = filling(tally, fill, timing);
  return sender;
}

/** Writes to a stream until it says stop, and again when it has drained. */
export function untilStopped(stream: Writable, tally: Tally, message: Uint8Array): Sender {
  const sender = filling(tally, () => {
    let posts = 0;
    for (; !stream.writableNeedDrain; posts++) stream.write(message);
    return posts;
  });
  stream.on('drain', sender.more);
  return sender;
}

/** Calls `message` for each `size` octets that have come in a stream. */
export function counter(size: number, message: () => void): (octets: number) => void {
  let got = 0;
  return (octets) => {
    got += octets;
    for (; got >= size; got -= size) message();
  };
}

/** Octets of memory where messages are no longer. */
const READ_OCTETS = 65_536;

/**
 * Options of a socket that reads into memory of the program: as much as the place of a Write of this size
 * has. Longer messages than one buffer fill their memory from front to end, one in the place of the other: a
 * buffer that is read into again and again would stay in the cache, where such a Write does not.
 */
export function readInto(
  size: number,
  arrived: (octets: number) => void,
): { readonly buffer: Uint8Array | (() => Uint8Array); readonly callback: (octets: number) => true } {
  const memory = Buffer.alloc(Math.max(READ_OCTETS, size));
  let at = 0;
  return {
    buffer: size <= READ_OCTETS ? memory : () => memory.subarray(at),
    callback: (octets) => {
      at = (at + octets) % memory.length;
      arrived(octets);
      return true;
    },
  };
}

/** Samples of one slice; more are not kept. A slice of 100 ms has some 15,000 round trips at the most. */
const MAX_SAMPLES = 200_000;

/**
 * The client of a latency test: one message at a time, `send` is called for each and `answered` when it is
 * done.
 */
export class PingPong {
  readonly #send: () => void;
  readonly #samples = new Float64Array(MAX_SAMPLES);
  #count = 0;
  #began = 0;
  #state: 'stopped' | 'running' | 'stopping' = 'stopped';

  constructor(send: () => void) {
    this.#send = send;
  }

  start(): void {
    // A round trip that was under way when the last slice stopped goes on by itself.
    const idle = this.#state === 'stopped';
    this.#state = 'running';
    if (idle) this.#next();
  }

  stop(): void {
    if (this.#state === 'running') this.#state = 'stopping';
  }

  answered(): void {
    if (this.#count < MAX_SAMPLES) this.#samples[this.#count++] = (performance.now() - this.#began) * 1000;
    if (this.#state === 'running') this.#next();
    else this.#state = 'stopped';
  }

  take(): LatencySlice {
    const slice = latencySlice(this.#samples.subarray(0, this.#count));
    this.#count = 0;
    return slice;
  }

  #next(): void {
    this.#began = performance.now();
    this.#send();
  }
}
