/**
 * The engine: what runs in the worker thread. It has the streams with their queues, timers and sockets, and a
 * copy of the STag table; it reads work requests and commands from one ring and writes completions and events
 * into the other. The inline engine drives the streams, as it does in the program's own thread.
 *
 * **Before anything that comes in from the network: read the ring until it is empty.** A request posted or
 * memory registered before a peer could know of it is in place when the peer uses it, as in-thread. What
 * waits there is bounded by the queues, since requests complete only later. Nothing in here waits for the
 * application's thread.
 *
 * **Nothing that a peer does may throw out of here: it would end the device.** A link can end at any time,
 * and commands that the application sends for it before it learns of the end are dropped: each command finds
 * its link in `#links` or is ignored.
 */
import type { Socket } from 'node:net';
import { setImmediate } from 'node:timers';
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { IwarpError } from '../../base/errors.ts';
import { createCrc32cEngine } from '../../crc32c/engine.ts';
import { readMemory } from '../../crc32c/memory.ts';
import { InlineEngine } from '../inline/inline-engine.ts';
import type { ConnectRequest, ListenHandler } from '../engine.ts';
import { ListenerLimits } from '../listener-limits.ts';
import { streamMaker } from '../wires.ts';
import { resourcesOf } from '../../mpa/resources.ts';
import { ReceiveQueue, type ReceiveWqe } from '../../queues/work.ts';
import type { BusyPoll, PolledSource } from '../../transport/busy-poll.ts';
import { arrivals } from '../../transport/arrival.ts';
import { capturedDatagrams } from '../../transport/captured-datagrams.ts';
import {
  PassingPort,
  wrapPort,
  wrapTransport,
  type PortMiddleware,
  type PortRole,
} from '../../transport/middleware.ts';
import { openDayCapture, pcapLayer, warnCaptureEnded } from '../../transport/pcap-tap.ts';
import type { Port, PortListener } from '../../transport/port.ts';
import { realScheduler } from '../../transport/scheduler.ts';
import { TcpTransport } from '../../transport/tcp.ts';
import { systemHost } from '../../transport/host.ts';
import { UdpNetwork } from '../../transport/udp.ts';
import { TrpTransport } from '../../trp/transport.ts';
import { WorkerLink } from './worker-link.ts';
import {
  packError,
  putCounters,
  REPLY,
  type Command,
  type EngineEvent,
  type EnginePlace,
  type EngineStart,
  type LastWords,
  type OperationState,
  type RelayState,
} from '../channel/messages.ts';
import { Outbox } from '../channel/outbox.ts';
import {
  ADVANCED_WORDS,
  FROM_ENGINE,
  readReceive,
  RECEIVED_WORDS,
  SENT_WORDS,
  TAKEN_WORDS,
  TO_ENGINE,
} from '../channel/records.ts';
import { RingReader, RingWriter, type RecordMemory } from '../channel/ring.ts';
import { RelayedPort } from '../channel/relay.ts';
import { leastLoaded, TakingListener } from './handover.ts';
import { MemoryRelease } from './memory-release.ts';
import { StagReplica } from './stag-replica.ts';
import { UnreadNews } from './unread-news.ts';

/**
 * The first news of a turn of the event loop rings at once. The application's thread that has dealt with it
 * and sleeps again before the turn is over is rung at its end, or after this many reads, a fraction of a
 * millisecond: each time costs both threads as much as several messages (bench/micro/ring.ts).
 */
const READS_PER_BELL = 16;

/**
 * Inbound connections that the application's thread may leave unheard of before further ones are reset here
 * without a report.
 */
const MOST_UNREAD = 5000;

/** Start the engine on the data that the worker was given. */
export function runEngine(start: EngineStart): void {
  sayTheEnd(start);
  const engine = new EngineWorker(start);
  start.doorbell.on('message', () => engine.turn());
  Atomics.store(start.replies, REPLY.READY, 1);
  engine.turn();
}

/**
 * The application's thread hears of the end of this one from its event loop, which has no turn while it waits
 * for an answer: the words below report it instead.
 */
function sayTheEnd({ replies, objects }: EngineStart): void {
  let error: LastWords['error'] = null;
  process.on('uncaughtExceptionMonitor', (thrown) => (error = packError(thrown)));
  process.on('exit', () => {
    objects.postMessage({ type: 'ended', error } satisfies LastWords);
    Atomics.store(replies, REPLY.ENDED, 1);
    Atomics.sub(replies, REPLY.FENCE, 1); // a thread that is about to wait for this word to change need not
    Atomics.notify(replies, REPLY.FENCE);
  });
}

/** Everything a connection and its events need of the engine. */
export class EngineWorker implements PolledSource {
  readonly replica: StagReplica;
  readonly outbox: Outbox;
  readonly #start: EngineStart;
  readonly #reader: RingReader;
  readonly #objects: MessagePort;
  readonly #engine: InlineEngine;
  /** For sockets that another engine has accepted. */
  readonly #tcp: TcpTransport;
  readonly #place: EnginePlace;
  /** The next link is for a connection that was counted when its socket was posted. */
  #counted = false;
  /** Around every port. */
  readonly #layers: readonly PortMiddleware[];
  /** Keeps this thread awake for sockets and ring. */
  readonly #poll: BusyPoll;
  readonly #links = new Map<number, WorkerLink>();
  readonly #listeners = new Map<number, PortListener>();
  readonly #shared = new Map<number, ReceiveQueue>();
  readonly #release = new MemoryRelease();
  readonly #news: UnreadNews;
  #nextLink = 1;
  #flushing = false;
  /** Flushes of this turn of the event loop. */
  #flushes = 0;
  #arrived = false;
  /** Success of several requests of one connection, one after the other, is one record. */
  #run: WorkerLink | null = null;
  #runLength = 0;

  constructor(start: EngineStart) {
    this.#start = start;
    this.#reader = new RingReader(start.submissions);
    this.#objects = start.objects;
    this.outbox = new Outbox(new RingWriter(start.completions), start.doorbell, start.objects);
    this.#news = new UnreadNews(this.outbox.ring, MOST_UNREAD);
    this.replica = new StagReplica(start.stagLimit, (stag) => this.tell({ type: 'used', stag }));
    const crc = createCrc32cEngine(start.crc32c);
    const resources = resourcesOf(crc);
    const before = (): void => {
      if (this.#reader.peek() >= 0) this.turn();
    };
    const layers: PortMiddleware[] = [(port) => new HeedingPort(port, before)];
    // Never closed: writes are synchronous, and the thread may end at any time.
    const { capture } = start;
    const file =
      capture === undefined ? null : openDayCapture(capture, (error) => warnCaptureEnded(capture, error));
    if (file !== null && start.wire !== 'trp') layers.unshift(pcapLayer(file));
    if (start.arrivals === true) layers.push(arrivals(this.#noteArrival));
    const tcp = new TcpTransport({
      allocate: (octets) => readMemory(crc, octets),
      receive: start.receive,
      busyPoll: start.busyPoll,
    });
    this.#tcp = tcp;
    this.#place = { number: start.number, loads: start.loads };
    this.#poll = tcp.poll;
    this.#poll.watch(this);
    const udp = new UdpNetwork(this.#poll);
    const below =
      start.wire === 'trp'
        ? new TrpTransport(file === null ? udp : capturedDatagrams(udp, file), realScheduler, systemHost)
        : tcp;
    this.#layers = layers;
    const transport = wrapTransport(below, ...layers);
    this.#engine = new InlineEngine(
      transport,
      realScheduler,
      { resources },
      { make: streamMaker(start.wire, start.trp, resources) },
    );
    this.tell({
      type: 'up',
      settings: { crc32c: crc.name, receive: tcp.receive, busyPoll: this.#poll.microseconds },
    });
  }

  // ------------------------------------------------------------------------------------------------- reading

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

  /** The thread that waits for this answer finds all earlier events in the ring. */
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
        this.replica[command.type](command.stag);
        break;
      case 'drop':
        this.#drop(command.stag);
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
        if (link !== undefined) link.link = this.#engine.connect(this.#connectRequest(command, link), link);
        break;
      }
      case 'take':
        this.#take(command);
        break;
      case 'record': {
        const { words, operation } = command;
        this.#post({ words, bytes: new Uint8Array(words.buffer) }, 0, words.length, words[0]!, operation);
        break;
      }
      default:
        this.#links.get(command.link)?.obey(command);
    }
  }

  /** The application finds in the word LENT that the memory is still read, and waits for the event. */
  #drop(stag: number): void {
    this.#release.ended(this.replica.bytesOf(stag));
    const lent = this.replica.drop(stag);
    if (lent === null) return;
    Atomics.add(this.#start.replies, REPLY.LENT, 1);
    lent.whenUnpinned(() => this.tell({ type: 'returned', stag }));
  }

  #connectRequest(command: Extract<Command, { type: 'connect' }>, link: WorkerLink): ConnectRequest {
    const request = { ...command, endpoint: link.endpoint! };
    const { relay, target } = command;
    return relay === undefined
      ? request
      : { ...request, target: { ...target, over: this.#relayed(relay, 'active') } };
  }

  /** A byte stream that has come to the application's thread, which has counted it. */
  #take({ link: id, policy, relay }: Extract<Command, { type: 'take' }>): void {
    const made = this.#newLink(id);
    this.#engine.take(this.#relayed(relay, 'passive'), policy, {
      refusal: () => null,
      turnedAway: () => undefined,
      acceptFailed: () => undefined,
      incoming: (link) => {
        made.link = link;
        return made;
      },
    });
  }

  #relayed(relay: RelayState, role: PortRole): Port {
    return wrapPort(new RelayedPort(relay), role, this.#layers);
  }

  #newLink(id: number): WorkerLink {
    const link = new WorkerLink(this, id);
    this.#links.set(id, link);
    if (this.#counted) this.#counted = false;
    else Atomics.add(this.#place.loads, this.#place.number, 1);
    return link;
  }

  // ----------------------------------------------------------------------------------------------- listeners

  #listen(command: Extract<Command, { type: 'listen' }>): void {
    const { listener: id, policy, limits, hands = [], takes } = command;
    const handler = this.#listenHandler(id, new ListenerLimits(limits));
    if (takes !== undefined) {
      const { address, port } = takes;
      const made = this.#tcp.taker(address, command.target.tls);
      const take = (socket: Socket): boolean => {
        const taken = made(socket);
        if (taken === null) return false;
        this.#counted = true;
        this.#engine.take(wrapPort(taken, 'passive', this.#layers), policy, handler);
        const passedOn = !this.#counted;
        this.#counted = false;
        return passedOn;
      };
      this.#listens(id, new TakingListener(address, port, this.#place, take));
      return;
    }
    const elsewhere = hands.length === 0 ? undefined : () => leastLoaded(this.#place, hands);
    const request = { target: { ...command.target, elsewhere }, policy, limits };
    this.#engine.listen(request, handler, (listener, error) => {
      if (listener !== undefined) {
        this.#listens(id, listener);
        return;
      }
      for (const { port } of hands) port.close();
      const why =
        error ?? new IwarpError('ERR_CONNECT', 'the transport does not listen, and gives no reason');
      this.tell({ type: 'listen-failed', listener: id, error: packError(why) });
    });
  }

  #listens(id: number, listener: PortListener): void {
    this.#listeners.set(id, listener);
    this.tell({ type: 'listening', listener: id, address: listener.address });
  }

  #listenHandler(id: number, limits: ListenerLimits): ListenHandler {
    return {
      // While records wait for room in the ring, nobody knows when those of connections are read.
      refusal: (remote) =>
        this.#news.isFull || !this.outbox.open ? 'closed' : limits.refusal(remote.address),
      turnedAway: (reason, remote) => {
        if (reason === 'closed') return;
        this.tell({ type: 'turned-away', listener: id, reason, remote });
        this.#news.add();
      },
      acceptFailed: (error) => this.tell({ type: 'accept-failed', listener: id, error: packError(error) }),
      incoming: (link) => {
        const made = this.#newLink(this.#nextLink);
        this.#nextLink += 2;
        made.link = link;
        made.admit(limits);
        this.tell({
          type: 'incoming',
          listener: id,
          link: made.id,
          local: link.localAddress!,
          remote: link.remoteAddress!,
          mtu: link.mtu,
        });
        this.#news.add();
        return made;
      },
    };
  }

  #unlisten(id: number): void {
    const listener = this.#listeners.get(id);
    this.#listeners.delete(id);
    listener?.close(() => this.tell({ type: 'unlistened', listener: id }));
  }

  // ------------------------------------------------------------------------------------------------- writing

  forget(link: WorkerLink): void {
    if (this.#links.delete(link.id)) Atomics.sub(this.#place.loads, this.#place.number, 1);
  }

  tell(event: EngineEvent): void {
    this.endRun();
    this.outbox.send(FROM_ENGINE.EVENT, event);
    this.#flushSoon();
  }

  sent(link: WorkerLink, status: number): void {
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

  /** A send completes before those in front of it. */
  advanced(link: number, places: number): void {
    this.endRun();
    this.outbox.put(FROM_ENGINE.ADVANCED, ADVANCED_WORDS, link, places);
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
    this.outbox.put(
      FROM_ENGINE.RECEIVED,
      RECEIVED_WORDS,
      link,
      flags,
      wqe.byteLength,
      wqe.invalidated,
      wqe.immediateHi,
      wqe.immediateLo,
    );
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

/** A port that lets the engine read the application's ring before it delivers anything from the network. */
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
