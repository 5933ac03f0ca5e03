/**
 * Couples a sans-I/O stream with a port and a scheduler: feeds inputs, drains outputs, keeps one timer.
 */
import type { CancelTimer, Scheduler } from '../../base/clock.ts';
import type { Port, PortHandler, WriteDone } from '../../transport/port.ts';
import type { DrivenStream, StreamHost } from '../../stream/driven.ts';
import type { StreamEvent } from '../../stream/types.ts';

/** Where events of a stream go. */
interface StreamListener {
  event(event: StreamEvent): void;
}

/**
 * Reads and atomics that leave at once when as many have been posted within a turn. Each batch is a
 * write call, some 6 us; 8 did no better (`bulk/4096/Read, CRC` of bench/micro/datapath.ts).
 */
const READ_BATCH = 16;

export class StreamDriver implements PortHandler, StreamHost {
  readonly #scheduler: Scheduler;
  /** Null until there is a port. */
  #stream: DrivenStream | null = null;
  #port: Port | null = null;
  /** Set before `begin`. */
  listener: StreamListener | null = null;
  #draining = false;
  #flushScheduled = false;
  /** Reads and atomics posted in this turn and not yet written. */
  #requests = 0;
  #closed = false;
  /** Null while no timer is set: an Infinity would be a separate number object. */
  #timerAt: number | null = null;
  #cancelTimer: CancelTimer | null = null;
  /** Bound, which is half the memory of a closure with its context. */
  readonly #done: WriteDone = this.#transmitted.bind(this);
  /** Made for the first post: many a connection only serves its peer. */
  #flush: (() => void) | null = null;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  /** Sets the stream and the port to drive, before the stream is started. */
  drive(stream: DrivenStream, port: Port): void {
    this.#stream = stream;
    this.#port = port;
  }

  /** Only after `drive`. */
  get stream(): DrivenStream {
    return this.#stream!;
  }

  get port(): Port | null {
    return this.#port;
  }

  now(): number {
    return this.#scheduler.now();
  }

  /** Start delivery, after the stream has been started. */
  begin(): void {
    this.#port!.attach(this);
    this.drain();
  }

  /**
   * Work was posted: drain once after the present turn, so that a burst of posts becomes few writes. Reads
   * and atomics, `requests` of them, do not wait that long when there are many: while a program deals with
   * answers and asks again for each, its peer shall not run dry and fall asleep.
   */
  kick(requests: number): void {
    if (this.#closed || this.#stream === null) return;
    this.#requests += requests;
    if (this.#requests >= READ_BATCH) this.#sendBatch();
    if (this.#flushScheduled) return;
    this.#flushScheduled = true;
    this.#scheduler.defer((this.#flush ??= () => this.#flushNow()));
  }

  // A StreamHost to the stream.
  wake(): void {
    this.kick(0);
  }

  retarget(): void {
    if (!this.#closed) this.#port?.retarget?.();
  }

  /**
   * Write the output that is ready. Events that follow wait for the end of the turn: the caller is in the
   * middle of posting.
   */
  #sendBatch(): void {
    if (this.#draining) return;
    this.#requests = 0;
    this.stream.kick(this.now());
    this.#draining = true;
    try {
      this.#transmit();
    } finally {
      this.#draining = false;
    }
  }

  #flushNow(): void {
    this.#flushScheduled = false;
    this.#requests = 0;
    if (this.#closed) return;
    this.stream.kick(this.now());
    this.drain();
  }

  onData(bytes: Uint8Array, start: number, end: number): void {
    this.stream.handleBytes(bytes, start, end, this.now());
    this.drain();
  }

  readTarget(): Uint8Array | undefined {
    return this.stream.readTarget();
  }

  onEnd(): void {
    this.stream.handleEnd(this.now());
    this.drain();
  }

  onClose(error?: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelTimer?.();
    this.stream.handleClose(error, this.now());
    this.drain();
  }

  #transmitted(ok: boolean): void {
    if (this.#closed) return;
    this.stream.handleTransmitted(ok, this.now());
    this.drain();
  }

  /** Drain every output until quiet. Inputs that arrive meanwhile are drained by the loop that is running. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    try {
      while (this.#drainOnce());
    } finally {
      this.#draining = false;
    }
    this.#armTimer();
  }

  #drainOnce(): boolean {
    let busy = false;
    const { stream } = this;
    if (!this.#closed) {
      const port = this.#port!;
      busy = this.#transmit();
      const action = stream.pollClose();
      if (action !== 'none') {
        port[action]();
        busy = true;
      }
    }
    for (let event = stream.pollEvent(); event !== null; event = stream.pollEvent()) {
      this.listener!.event(event);
      busy = true;
    }
    return busy;
  }

  /** False if there was nothing to write. */
  #transmit(): boolean {
    const { stream } = this;
    const port = this.#port!;
    let busy = false;
    for (let t = stream.pollTransmit(); t !== null; t = stream.pollTransmit()) {
      if (port.write(t.chunks, t.count, this.#done)) stream.handleTaken();
      busy = true;
    }
    return busy;
  }

  #armTimer(): void {
    if (this.#closed) return;
    const wanted = this.stream.pollTimeout();
    const at = wanted === Number.POSITIVE_INFINITY ? null : wanted;
    if (at === this.#timerAt) return;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#timerAt = at;
    if (at === null) return;
    this.#cancelTimer = this.#scheduler.at(at, this.#expired.bind(this));
  }

  #expired(): void {
    this.#timerAt = null;
    // The function that cancels a timer holds its parts, and an idle connection would hold them for good.
    this.#cancelTimer = null;
    if (this.#closed) return;
    this.stream.handleTimeout(this.now());
    this.drain();
  }
}
