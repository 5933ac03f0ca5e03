/**
 * The engine: what runs in the worker thread. It has the streams with their queues, timers and sockets, and a copy of the STag table; it
 * reads work requests and commands from one ring and writes completions and events into the other. What it does with them is the same code
 * that runs in-thread: `ThreadProgress` of `cm/`.
 *
 * **Before anything that comes in from the network: read the ring until it is empty.** What was posted or registered before a peer could know
 * of it is in place when the peer uses it, as in-thread. What waits there is bounded by the queues, since requests complete only later. Nothing in
 * here waits for the application's thread.
 *
 * **Nothing that a peer does may throw out of here: it would end the device.** A link can go at any time, and what the application says for it until it
 * hears of that is passed over: whatever names a link finds it in `#links` or is dropped.
 */
import { setImmediate } from 'node:timers';
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { IwarpError } from '../base/errors.ts';
import { createCrc32cEngine } from '../crc32c/engine.ts';
import { readMemory } from '../crc32c/memory.ts';
import { Admission } from '../cm/admission.ts';
import { ThreadProgress } from '../cm/link.ts';
import { resourcesOf } from '../rdmap/resources.ts';
import { ReceiveQueue, type ReceiveWqe } from '../rdmap/work.ts';
import type { BusyPoll, PolledSource } from '../transport/busy-poll.ts';
import { arrivals } from '../transport/arrival.ts';
import { PassingPort, wrapTransport, type PortMiddleware } from '../transport/middleware.ts';
import { openDayCapture, pcapLayer, warnCaptureEnded } from '../transport/pcap-tap.ts';
import type { Port, PortListener } from '../transport/port.ts';
import { realScheduler } from '../transport/scheduler.ts';
import { TcpTransport } from '../transport/tcp.ts';
import { CoreLink } from './core-link.ts';
import { packError, putCounters, REPLY, type Command, type EngineEvent, type EngineStart, type LastWords, type OperationState } from './messages.ts';
import { Outbox } from './outbox.ts';
import { FROM_ENGINE, readReceive, RECEIVED_WORDS, SENT_WORDS, TAKEN_WORDS, TO_ENGINE } from './records.ts';
import { RingReader, RingWriter, type RecordMemory } from './ring.ts';
import { StagReplica } from './stag-replica.ts';

/**
 * The first news of a turn of the event loop rings at once. The application's thread that has dealt with it and sleeps again before the turn is over is
 * rung at its end, or after so many reads, a fraction of a millisecond: each time costs both threads as much as several messages.
 */
const READS_PER_BELL = 16;

/** Start the engine on what the worker was given. */
export function runEngine(start: EngineStart): void {
  sayTheEnd(start);
  const engine = new EngineCore(start);
  start.doorbell.on('message', () => engine.turn());
  Atomics.store(start.replies, REPLY.READY, 1);
  engine.turn();
}

/** The application's thread hears of the end of this one from its event loop, which has no turn while it waits for an answer: that is told here. */
function sayTheEnd({ replies, objects }: EngineStart): void {
  let error: LastWords['error'] = null;
  process.on('uncaughtExceptionMonitor', (thrown) => (error = packError(thrown)));
  process.on('exit', () => {
    objects.postMessage({ type: 'ended', error } satisfies LastWords);
    Atomics.store(replies, REPLY.ENDED, 1);
    Atomics.sub(replies, REPLY.FENCE, 1); // whoever is just about to wait for this word to change need not
    Atomics.notify(replies, REPLY.FENCE);
  });
}

/** Everything a connection and its events need of the engine. */
export class EngineCore implements PolledSource {
  readonly replica: StagReplica;
  readonly outbox: Outbox;
  readonly #start: EngineStart;
  readonly #reader: RingReader;
  readonly #objects: MessagePort;
  readonly #progress: ThreadProgress;
  /** Keeps this thread awake for sockets and ring. */
  readonly #poll: BusyPoll;
  readonly #links = new Map<number, CoreLink>();
  readonly #listeners = new Map<number, PortListener>();
  readonly #shared = new Map<number, ReceiveQueue>();
  #nextLink = 1;
  #flushing = false;
  /** Flushes of this turn of the event loop. */
  #flushes = 0;
  #arrived = false;
  /** Success of several requests of one connection, one after the other, is one record. */
  #run: CoreLink | null = null;
  #runLength = 0;

  constructor(start: EngineStart) {
    this.#start = start;
    this.#reader = new RingReader(start.submissions);
    this.#objects = start.objects;
    this.outbox = new Outbox(new RingWriter(start.completions), start.doorbell, start.objects);
    this.replica = new StagReplica(start.stagLimit);
    const crc = createCrc32cEngine(start.crc32c);
    const resources = resourcesOf(crc);
    const before = (): void => {
      if (this.#reader.peek() >= 0) this.turn();
    };
    const layers: PortMiddleware[] = [(port) => new HeedingPort(port, before)];
    // Never closed: writes are synchronous, and the thread may end at any time.
    const { capture } = start;
    if (capture !== undefined) layers.unshift(pcapLayer(openDayCapture(capture, (error) => warnCaptureEnded(capture, error))));
    if (start.arrivals === true) layers.push(arrivals(this.#noteArrival));
    const tcp = new TcpTransport({ allocate: (octets) => readMemory(crc, octets), receive: start.receive, busyPoll: start.busyPoll });
    this.#poll = tcp.poll;
    this.#poll.watch(this);
    const transport = wrapTransport(tcp, ...layers);
    this.#progress = new ThreadProgress(transport, realScheduler, resources);
    this.tell({ type: 'up', settings: { crc32c: crc.name, receive: tcp.receive, busyPoll: this.#poll.microseconds } });
  }

  // ------------------------------------------------------------------------------------------------------- reading

  look(): boolean {
    if (this.#reader.peek() < 0) return false;
    this.turn();
    return true;
  }

  rest(): void {
    this.turn();
  }

  readonly turn = (): void => {
    this.outbox.flush();
    const reader = this.#reader;
    let took = false;
    for (;;) {
      const at = reader.peek();
      if (at < 0) {
        if (reader.release()) this.outbox.ringBell();
        if (took ? this.#poll.arrived() : this.#poll.awake) break;
        if (reader.sleep()) break;
        continue;
      }
      this.#read(at, reader.typeOf(at));
      reader.next(at);
      took = true;
    }
    this.#flushSoon();
  };

  #read(at: number, type: number): void {
    const reader = this.#reader;
    const { words } = reader;
    switch (type) {
      case TO_ENGINE.COMMAND:
        this.#obey(receiveMessageOnPort(this.#objects)!.message as Command);
        break;
      case TO_ENGINE.FENCE:
        this.#reply(words[at + 1]!);
        break;
      case TO_ENGINE.COUNTERS: {
        const link = this.#links.get(words[at + 2]!)?.link;
        if (link?.opened === true) putCounters(this.#start.counters, link.counters());
        else this.#start.counters.fill(0);
        this.#reply(words[at + 1]!);
        break;
      }
      default:
        this.#post(reader, at, reader.endOf(at), type, null);
    }
  }

  /** A work request. */
  #post(memory: RecordMemory, at: number, end: number, type: number, operation: OperationState | null): void {
    const id = memory.words[at + 1]!;
    switch (type) {
      case TO_ENGINE.SEND:
        this.#links.get(id)?.send(memory, at, end, operation);
        break;
      case TO_ENGINE.RECEIVE:
        this.#links.get(id)?.receive(memory, at, end);
        break;
      case TO_ENGINE.SHARED_RECEIVE: {
        const queue = this.#shared.get(id);
        if (queue !== undefined) readReceive(memory, at, end, queue, this.replica);
        break;
      }
      default:
        throw new IwarpError('ERR_INTERNAL', `no record is of type ${type}`);
    }
  }

  /** Whoever waits for it finds what has happened before. */
  #reply(fence: number): void {
    this.endRun();
    this.outbox.publishQuietly();
    Atomics.store(this.#start.replies, REPLY.FENCE, fence);
    Atomics.notify(this.#start.replies, REPLY.FENCE);
  }

  #obey(command: Command): void {
    switch (command.type) {
      case 'entry':
        this.replica.put(command.entry);
        break;
      case 'share':
      case 'invalidate':
      case 'drop':
        this.replica[command.type](command.stag);
        break;
      case 'shared-queue':
        this.#shared.set(command.srq, new ReceiveQueue(command.depth));
        break;
      case 'resize-shared':
        this.#shared.get(command.srq)?.resize(command.depth);
        break;
      case 'fail-shared': {
        const queue = this.#shared.get(command.srq);
        if (queue !== undefined) queue.failed = true;
        break;
      }
      case 'drop-shared':
        this.#shared.delete(command.srq);
        break;
      case 'listen':
        this.#listen(command);
        break;
      case 'unlisten':
        this.#unlisten(command.listener);
        break;
      case 'endpoint':
        // The application's own links begin with this. Of ours it may not have heard yet that one has gone.
        if (command.link % 2 === 0) this.#newLink(command.link);
        this.#links.get(command.link)?.attach(command.endpoint, this.#shared.get(command.endpoint.srq));
        break;
      case 'connect': {
        const link = this.#links.get(command.link);
        if (link !== undefined) link.link = this.#progress.connect({ ...command, endpoint: link.endpoint! }, link);
        break;
      }
      case 'record': {
        const { words, operation } = command;
        this.#post({ words, bytes: new Uint8Array(words.buffer) }, 0, words.length, words[0]!, operation);
        break;
      }
      default:
        this.#links.get(command.link)?.obey(command);
    }
  }

  #newLink(id: number): CoreLink {
    const link = new CoreLink(this, id);
    this.#links.set(id, link);
    return link;
  }

  // ----------------------------------------------------------------------------------------------------- listeners

  #listen(command: Extract<Command, { type: 'listen' }>): void {
    const { listener: id, maxPending } = command;
    const admission = new Admission(maxPending);
    this.#progress.listen(command, {
      full: () => admission.full,
      turnedAway: (remote) => this.tell({ type: 'turned-away', listener: id, remote }),
      acceptFailed: (error) => this.tell({ type: 'accept-failed', listener: id, error: packError(error) }),
      incoming: (link) => {
        const made = this.#newLink(this.#nextLink);
        this.#nextLink += 2;
        made.link = link;
        made.admit(admission);
        this.tell({ type: 'incoming', listener: id, link: made.id, local: link.localAddress!, remote: link.remoteAddress! });
        return made;
      },
    }, (listener, error) => {
      if (listener === undefined) {
        this.tell({ type: 'listen-failed', listener: id, error: packError(error ?? new IwarpError('ERR_CONNECT', 'the transport does not listen, and gives no reason')) });
        return;
      }
      this.#listeners.set(id, listener);
      this.tell({ type: 'listening', listener: id, address: listener.address });
    });
  }

  #unlisten(id: number): void {
    const listener = this.#listeners.get(id);
    this.#listeners.delete(id);
    listener?.close(() => this.tell({ type: 'unlistened', listener: id }));
  }

  // ------------------------------------------------------------------------------------------------------- writing

  forget(link: CoreLink): void {
    this.#links.delete(link.id);
  }

  tell(event: EngineEvent): void {
    this.endRun();
    this.outbox.send(FROM_ENGINE.EVENT, event);
    this.#flushSoon();
  }

  sent(link: CoreLink, status: number): void {
    if (status === 0 && this.#run === link) {
      this.#runLength++;
      return;
    }
    this.endRun();
    if (status === 0) {
      this.#run = link;
      this.#runLength = 1;
    } else {
      this.outbox.put(FROM_ENGINE.SENT, SENT_WORDS, link.id, status, 1);
    }
    this.#flushSoon();
  }

  /** A message has taken a receive of a shared queue. */
  taken(link: number): void {
    this.endRun();
    this.outbox.put(FROM_ENGINE.TAKEN, TAKEN_WORDS, link);
    this.#flushSoon();
  }

  received(link: number, flags: number, wqe: ReceiveWqe): void {
    this.endRun();
    this.outbox.put(FROM_ENGINE.RECEIVED, RECEIVED_WORDS, link, flags, wqe.byteLength, wqe.invalidated, wqe.immediateHi, wqe.immediateLo);
    this.#flushSoon();
  }

  endRun(): void {
    if (this.#run === null) return;
    this.outbox.put(FROM_ENGINE.SENT, SENT_WORDS, this.#run.id, 0, this.#runLength);
    this.#run = null;
  }

  /** All that one read has led to is published together; a reader that is awake sees it at once. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    realScheduler.defer(this.#flush);
  }

  readonly #flush = (): void => {
    this.#flushing = false;
    this.endRun();
    if (this.#arrived) this.outbox.put(FROM_ENGINE.ARRIVED, 0);
    this.#arrived = false;
    this.outbox.publishQuietly();
    if (this.#flushes % READS_PER_BELL === 0) this.outbox.wake();
    if (this.#flushes++ === 0) setImmediate(this.#endTurn);
  };

  readonly #endTurn = (): void => {
    this.#flushes = 0;
    this.outbox.wake();
  };

  readonly #noteArrival = (): void => {
    this.#arrived = true;
    this.#flushSoon();
  };
}

/** A port that first lets the engine hear what the application has said. */
class HeedingPort extends PassingPort {
  readonly #before: () => void;

  constructor(inner: Port, before: () => void) {
    super(inner);
    this.#before = before;
  }

  readTarget(): Uint8Array | undefined {
    return this.handler?.readTarget?.();
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    this.#before();
    super.onData(bytes, start, end);
  }

  override onEnd(): void {
    this.#before();
    super.onEnd();
  }
}
