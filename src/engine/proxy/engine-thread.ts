/**
 * The application's side of one engine: the worker thread, the rings, and what both threads have to agree on.
 *
 * Order. Everything goes to the engine in the order of the calls, and comes back in the order in which it
 * happened, whether record or object. A published record is never taken back, and the application's thread
 * waits for the engine only in `fence` and `counters`: calls that must not return before the engine has come
 * that far. An engine that does not answer in time counts as failed.
 */
// Held here, as in `transport/busy-poll.ts`.
import { setImmediate } from 'node:timers';
import {
  MessageChannel,
  receiveMessageOnPort,
  type MessagePort,
  type Worker,
  type WorkerOptions,
} from 'node:worker_threads';
import { IwarpError, ownError } from '../../base/errors.ts';
import type { StreamCounters } from '../../stream/types.ts';
import {
  COUNTER_COUNT,
  REPLY,
  REPLY_COUNT,
  takeCounters,
  transferOf,
  unpackError,
  type Command,
  type EngineEvent,
  type EngineOptions,
  type EnginePlace,
  type EngineStart,
  type LastWords,
} from '../channel/messages.ts';
import type { BusyPoll, PolledSource } from '../../transport/busy-poll.ts';
import { Outbox } from '../channel/outbox.ts';
import { FROM_ENGINE, TO_ENGINE } from '../channel/records.ts';
import { createRing, RingReader, RingWriter } from '../channel/ring.ts';
import { nextState } from '../../base/fsm.ts';
import { spawnWorker } from './spawn.ts';
import { ENGINE_TABLE, type EngineThreadState } from './states.ts';

/**
 * 256 KiB each way: some thousand requests, more than there are in flight at the speeds one thread reaches.
 */
const RING_WORDS = 65_536;
/** Records taken before the event loop gets its turn. */
const BATCH = 4096;
/** A turn of the engine takes milliseconds at most. One that takes this long is not coming back. */
const PATIENCE_MS = 5_000;
/**
 * This patience is counted in waits of this length: after a stop of the whole process, in which the engine
 * had no turn either, one of them is over and not all.
 */
const WAIT_MS = 500;
/** While the ring is full no bell announces room to a waiting thread: look this often. */
const ROOM_MS = 1;

/** Receives the records and events of the engine. */
export interface EngineUser {
  sent(link: number, status: number, count: number): void;
  taken(link: number): void;
  /** The send this number of places behind the oldest one completes before it. */
  advanced(link: number, places: number): void;
  received(
    link: number,
    flags: number,
    octets: number,
    invalidated: number,
    immediateHi: number,
    immediateLo: number,
  ): void;
  event(event: EngineEvent): void;
  /** Bytes have come and have been dealt with. */
  arrived(): void;
  /** There is room in the ring again. */
  room(): void;
  /** The engine is gone; nothing follows. */
  failed(error: IwarpError): void;
}

/** One engine, as the application's thread sees it. */
export class EngineThread implements PolledSource {
  readonly outbox: Outbox;
  readonly worker: Worker;
  readonly #user: EngineUser;
  readonly #poll: BusyPoll;
  readonly #reader: RingReader;
  readonly #replies: Int32Array;
  readonly #counters: Float64Array;
  readonly #objects: MessagePort;
  readonly #doorbell: MessagePort;
  /** Settles when the thread has ended, and everything that it had open is closed. */
  readonly gone: Promise<void>;
  #fence = 0;
  /** The word LENT, as it was read last. */
  #lent = 0;
  #open = 0;
  /** The number of open objects that keep the process alive. */
  #held = 0;
  #retired = false;
  /** Reading has made room that the engine waits for. */
  #roomMade = false;
  /** A record is being dealt with: those after it have to wait. */
  #reading = false;
  #state: EngineThreadState = ENGINE_TABLE.initial;

  constructor(options: EngineOptions & EnginePlace, user: EngineUser, poll: BusyPoll) {
    this.#user = user;
    this.#poll = poll;
    const doorbell = new MessageChannel();
    const objects = new MessageChannel();
    const submissions = createRing(RING_WORDS);
    const completions = createRing(RING_WORDS);
    this.#replies = new Int32Array(new SharedArrayBuffer(REPLY_COUNT * Int32Array.BYTES_PER_ELEMENT));
    this.#counters = new Float64Array(new SharedArrayBuffer(COUNTER_COUNT * Float64Array.BYTES_PER_ELEMENT));
    this.#doorbell = doorbell.port1;
    this.#objects = objects.port1;
    this.outbox = new Outbox(new RingWriter(submissions), doorbell.port1, objects.port1);
    this.#reader = new RingReader(completions);
    const start: EngineStart = {
      submissions,
      completions,
      replies: this.#replies,
      counters: this.#counters,
      doorbell: doorbell.port2,
      objects: objects.port2,
      ...options,
    };
    this.worker = startThread({
      workerData: start,
      transferList: [doorbell.port2, objects.port2],
      name: 'iwarp engine',
    });
    this.worker.on('error', (error) => this.#end(failure(error)));
    this.gone = new Promise((resolve) => this.worker.once('exit', () => resolve()));
    this.worker.on('exit', (code) =>
      this.#end(new IwarpError('ERR_ENGINE_FAILED', `the engine's thread has ended with exit code ${code}`)),
    );
    this.worker.unref();
    this.#doorbell.on('message', this.#turn);
    this.#doorbell.unref();
    this.#reader.sleep();
    poll.watch(this);
  }

  get state(): EngineThreadState {
    return this.#state;
  }

  /** Something has been opened on the engine; it holds the process, as a socket does. */
  opened(): void {
    this.#open++;
    this.setRef(true);
  }

  /** An open thing is gone; `held` is the last argument of its `setRef`. */
  closed(held: boolean): void {
    if (held) this.setRef(false);
    if (--this.#open === 0 && this.#retired) this.stop();
  }

  /** One open thing holds the process from now, or no longer does. */
  setRef(on: boolean): void {
    const before = this.#held;
    this.#held += on ? 1 : -1;
    if (this.#state !== 'running') return;
    if (before === 0) this.worker.ref();
    else if (this.#held === 0) this.worker.unref();
  }

  /** Stop the thread as soon as nothing is open on it. */
  retire(): void {
    this.#retired = true;
    if (this.#open === 0) this.stop();
  }

  /** Stop the thread; for the user that is an end by plan. */
  stop(): void {
    if (this.#state !== 'running') return;
    this.#state = nextState(ENGINE_TABLE, this.#state, 'stop', this);
    this.#release();
  }

  #release(): void {
    this.#poll.unwatch(this);
    this.#doorbell.close();
    this.#objects.close();
    void this.worker.terminate();
  }

  #end(error: IwarpError): void {
    if (this.#state !== 'running') return;
    try {
      this.#read(Number.POSITIVE_INFINITY); // what it has said before is true
    } finally {
      this.#state = nextState(ENGINE_TABLE, this.#state, 'fail', this);
      this.#release();
      this.#user.failed(error);
    }
  }

  // ------------------------------------------------------------------------------------------------- sending

  /** A rare thing, as an object. */
  command(command: Command): void {
    if (this.#state !== 'running') return;
    this.outbox.send(TO_ENGINE.COMMAND, command, transferOf(command));
    this.outbox.publish();
  }

  /**
   * Wait until the engine has done all earlier commands. Returns at once if it has not come up yet: then no
   * peer can have used any memory.
   */
  fence(): void {
    if (this.#state !== 'running' || Atomics.load(this.#replies, REPLY.READY) === 0) return;
    this.#await(TO_ENGINE.FENCE, 0);
  }

  /**
   * After a `fence`: one of the STags dropped before it has memory that a write on the engine still reads. A
   * `returned` event follows for it.
   */
  takeLent(): boolean {
    const before = this.#lent;
    this.#lent = Atomics.load(this.#replies, REPLY.LENT);
    return this.#lent !== before;
  }

  /**
   * Wait in the same way, then take in all that the engine has said. Only the wait, if this is called while a
   * record is being dealt with.
   */
  settle(): void {
    do {
      this.fence();
      this.#roomMade = false;
      if (this.#state === 'running' && !this.#reading) this.#read(Number.POSITIVE_INFINITY);
    } while (this.#roomMade); // a full ring: the engine has had more to say
  }

  /** The counters of a connection, as of now; null if the engine no longer answers. */
  counters(link: number): StreamCounters | null {
    if (this.#state !== 'running' || Atomics.load(this.#replies, REPLY.READY) === 0) return null;
    return this.#await(TO_ENGINE.COUNTERS, link) ? takeCounters(this.#counters) : null;
  }

  #await(type: number, word: number): boolean {
    const replies = this.#replies;
    const number = (this.#fence = (this.#fence + 1) | 0);
    this.outbox.put(type, 2, number, word);
    for (let left = PATIENCE_MS; ; ) {
      this.outbox.flush();
      this.outbox.publish();
      const passed = Atomics.load(replies, REPLY.FENCE);
      if (passed === number) return true;
      if (Atomics.load(replies, REPLY.ENDED) === 1) {
        this.#end(this.#lastWords());
        return false;
      }
      if (left <= 0) break;
      const wait = this.outbox.open ? WAIT_MS : ROOM_MS;
      if (Atomics.wait(replies, REPLY.FENCE, passed, wait) === 'timed-out') left -= wait;
    }
    this.#end(new IwarpError('ERR_ENGINE_FAILED', `the engine has not answered within ${PATIENCE_MS} ms`));
    return false;
  }

  /** Why it has ended, by its own account. */
  #lastWords(): IwarpError {
    this.#read(Number.POSITIVE_INFINITY);
    for (
      let said = receiveMessageOnPort(this.#objects);
      said !== undefined;
      said = receiveMessageOnPort(this.#objects)
    ) {
      const message = said.message as EngineEvent | LastWords;
      if (message.type === 'ended' && message.error !== null) return failure(unpackError(message.error));
    }
    return new IwarpError('ERR_ENGINE_FAILED', "the engine's thread has ended");
  }

  // ----------------------------------------------------------------------------------------------- receiving

  look(): boolean {
    if (this.#state !== 'running' || this.#reading || this.#reader.peek() < 0) return false;
    this.#turn();
    return true;
  }

  /** Block until the engine has said something, at most this long, and take it in. */
  wait(ms: number): void {
    if (this.#state !== 'running' || this.#reading) return;
    this.outbox.flush();
    this.outbox.publish();
    if (!this.look()) this.#reader.wait(ms);
    this.look();
  }

  rest(): void {
    this.#turn();
  }

  readonly #turn = (): void => {
    if (this.#state !== 'running') return;
    let done = false;
    try {
      done = this.#read(BATCH);
    } finally {
      if (!done) setImmediate(this.#turn); // after an exception too: this side counts as awake
    }
    if (this.#state === 'running' && this.outbox.flush()) this.#user.room();
    this.outbox.publish();
  };

  /** Read at most `most` records; true if there are none left. */
  #read(most: number): boolean {
    const reader = this.#reader;
    for (let left = most; ; left--) {
      const at = reader.peek();
      if (at < 0 || left === 0) {
        if (reader.release()) {
          this.#roomMade = true;
          this.outbox.ringBell();
        }
        if (at >= 0) return false;
        if (left < most ? this.#poll.arrived() : this.#poll.awake) return true;
        if (reader.sleep()) return true;
        continue;
      }
      reader.next(at); // its words stay until `release`
      this.#reading = true;
      try {
        this.#take(reader.words, at, reader.typeOf(at));
      } finally {
        this.#reading = false;
      }
      // another engine of the device was found dead, and this one stopped with it
      if (this.#state !== 'running') return true;
    }
  }

  #take(words: Int32Array, at: number, type: number): void {
    const user = this.#user;
    switch (type) {
      case FROM_ENGINE.SENT:
        user.sent(words[at + 1]!, words[at + 2]!, words[at + 3]!);
        break;
      case FROM_ENGINE.TAKEN:
        user.taken(words[at + 1]!);
        break;
      case FROM_ENGINE.ADVANCED:
        user.advanced(words[at + 1]!, words[at + 2]!);
        break;
      case FROM_ENGINE.RECEIVED:
        user.received(
          words[at + 1]!,
          words[at + 2]!,
          words[at + 3]! >>> 0,
          words[at + 4]! >>> 0,
          words[at + 5]! >>> 0,
          words[at + 6]! >>> 0,
        );
        break;
      case FROM_ENGINE.ARRIVED:
        user.arrived();
        break;
      default:
        user.event(receiveMessageOnPort(this.#objects)!.message as EngineEvent);
    }
  }
}

/** Node may start no thread: out of threads, or not permitted to. */
function startThread(options: WorkerOptions): Worker {
  try {
    return spawnWorker(options);
  } catch (error) {
    throw ownError(
      error,
      'ERR_ENGINE_FAILED',
      `the engine's thread cannot be started: ${(error as Error).message}`,
    );
  }
}

function failure(cause: Error): IwarpError {
  return new IwarpError('ERR_ENGINE_FAILED', `the engine has failed: ${cause.message}`, { cause });
}
