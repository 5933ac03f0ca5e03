/**
 * One connection between two threads of a process as a port: a ring of shared memory in each direction, and a
 * MessagePort for bells and resets.
 *
 * **The other thread is not trusted.** It may write anything into either ring at any time. So the octets of a
 * record are copied out before anything looks at them, each number is read once and checked, and what cannot
 * be ends the connection. What a hostile thread can change all the same stands in docs/security.md.
 *
 * **The end.** FIN is a record behind the octets. A reset is a message, which overtakes them. A thread that
 * ends closes its MessagePort, however it ends; without both FINs that is the loss of the connection.
 */
// Held here, as in `transport/busy-poll.ts`.
import { nextTick } from 'node:process';
import { setImmediate } from 'node:timers';
import { NO_BYTES, putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import {
  createRing,
  GuardedReader,
  NO_RECORD,
  ringOctets,
  RingWriter,
  type RecordMemory,
} from '../engine/channel/ring.ts';
import type { BusyPoll, PolledSource } from '../transport/busy-poll.ts';
import type { Port, PortAddress, PortHandler, WriteDone } from '../transport/port.ts';
import { type Hearsay, PolledPorts, PROCESS_HEARSAY } from './polling.ts';
import { reads, SHM_TABLE, writes, type ShmState } from './states.ts';

/** Types of records. Data have their octets in the second word, and the octets behind it. */
const RECORD = { DATA: 1, FIN: 2 } as const;
const DATA_WORDS = 2;
const WORD = Int32Array.BYTES_PER_ELEMENT;

/** Up to here a loop by words is the fastest copy. */
const SHORT = 256;

/** 512 KiB each way: two writes of the stack, each as long as a write gets. */
const RING_WORDS = 131_072;
/** Most octets in a record: a quarter of the ring, less its head. */
const RECORD_OCTETS = (RING_WORDS / 4 - DATA_WORDS) * WORD;
/** Octets read before the event loop gets a turn. */
const OCTETS_A_TURN = 4 * 1024 * 1024;
/** Writes that may end before the event loop gets a turn, as of a TCP connection. */
const WRITES_A_TURN = 16;

/** Octets that a call of the program reads, each record counted as some more: a millisecond at most. */
const OCTETS_A_CALL = 512 * 1024;
const RECORD_COST = 256;
/** Calls before the port asks after messages, and whether the other thread is there. */
const CALLS_A_QUESTION = 2048;
/** Messages that it then takes. */
const MESSAGES_A_QUESTION = 64;
/** Where the writer of a ring leaves the number of its thread, beside the first counter. */
const WRITER_THREAD = 8;

/** Messages of a port to the other end; anything else goes to {@link ShmPort.foreign}. */
const MESSAGE = { BELL: 0, RESET: 1 } as const;

/** A new pair of rings: for the side that connects, and for the side that accepts. */
export function ringPair(): readonly [SharedArrayBuffer, SharedArrayBuffer] {
  const make = (): SharedArrayBuffer => createRing(RING_WORDS).buffer as SharedArrayBuffer;
  return [make(), make()];
}

/** Whether a value of another thread is memory for a ring. */
export function isRing(value: unknown): value is SharedArrayBuffer {
  return (
    Object.prototype.toString.call(value) === '[object SharedArrayBuffer]' &&
    (value as SharedArrayBuffer).byteLength === ringOctets(RING_WORDS)
  );
}

function ringOf(memory: SharedArrayBuffer): Int32Array {
  return new Int32Array(memory, 0, ringOctets(RING_WORDS) / WORD);
}

/** When a port goes on by itself; replaced by a test whose time stands still. */
interface ShmTurns {
  /** Run the task in a later turn of the event loop. */
  readonly turn: (task: () => void) => void;
  /** Run the task in a later tick of this turn. */
  readonly tick: (task: () => void) => void;
}

/** The event loop's. */
const LOOP_TURNS: ShmTurns = {
  turn: (task) => void setImmediate(task),
  tick: (task) => nextTick(task),
};

/** What all ports of a transport share. */
export interface ShmSharing {
  readonly poll: BusyPoll;
  /** Where records are copied to. */
  readonly memory: RecordMemory;
  readonly turns: ShmTurns;
  readonly polled: PolledPorts;
  readonly hearsay: Hearsay;
}

/** For the ports of a transport over the event loop. */
export function sharingOf(poll: BusyPoll): ShmSharing {
  return {
    ...{ poll, memory: recordMemory(), turns: LOOP_TURNS },
    ...{ polled: new PolledPorts(), hearsay: PROCESS_HEARSAY },
  };
}

/** The part of a MessagePort that a connection uses. */
export interface ShmChannel {
  postMessage(message: unknown): void;
  on(event: 'message', heard: (message: unknown) => void): unknown;
  on(event: 'close', closed: () => void): unknown;
  ref(): void;
  unref(): void;
  close(): void;
}

/** Memory for {@link ShmSharing.memory}. */
export function recordMemory(): RecordMemory {
  const bytes = new Uint8Array(RECORD_OCTETS);
  return { bytes, words: new Int32Array(bytes.buffer) };
}

/** Both ends' addresses, and what they share. */
export interface ShmEnds {
  readonly incoming: SharedArrayBuffer;
  readonly outgoing: SharedArrayBuffer;
  readonly channel: ShmChannel;
  readonly local: PortAddress;
  readonly remote: PortAddress;
}

/** A write, or the rest of one. */
interface Pending {
  readonly chunks: readonly Uint8Array[];
  /** Octets of the first chunk that are in the ring. */
  taken: number;
  /** The first chunk that is not all in the ring. */
  at: number;
  readonly done: WriteDone;
}

export class ShmPort implements Port, PolledSource {
  readonly localAddress: PortAddress;
  readonly remoteAddress: PortAddress;
  readonly #sharing: ShmSharing;
  readonly #channel: ShmChannel;
  readonly #reader: GuardedReader;
  readonly #writer: RingWriter;
  /** Tasks of the next turn. */
  #later: (() => void)[] = [];
  #laterDue = false;
  /** Calls of a program that polls since messages have been asked for. */
  #calls = 0;
  #handler: PortHandler | null = null;
  #state: ShmState = SHM_TABLE.initial;
  #paused = false;
  /** Octets of a record that have been copied out and not been delivered: `#record[#from..#to)`. */
  #record: Uint8Array = NO_BYTES;
  #from = 0;
  #to = 0;
  /** The other thread has left: all that it has written is in the ring. */
  #alone = false;
  #error: Error | undefined;
  /** `onClose` is due, or over. */
  #close: 'none' | 'due' | 'reported' = 'none';
  readonly #writes: Pending[] = [];
  #finWaits = false;
  /** Results of writes that are to be reported, in order. */
  readonly #dones: { readonly done: WriteDone; readonly ok: boolean }[] = [];
  #tellingDones = false;
  #burst = 0;
  #turnDue = false;
  /** Reading now: whatever the handler does, it does not begin anew. */
  #reading = false;
  /** Messages of the other end that are none of the port's. */
  foreign: ((message: unknown) => boolean) | null = null;
  /** Called once, when the other end has read and dealt with everything. */
  drained: (() => void) | null = null;
  /** Called when the other thread has ended, or closed the connection, before this side has. */
  left: (() => void) | null = null;

  constructor({ incoming, outgoing, channel, local, remote }: ShmEnds, sharing: ShmSharing) {
    this.localAddress = local;
    this.remoteAddress = remote;
    this.#sharing = sharing;
    this.#channel = channel;
    this.#reader = new GuardedReader(ringOf(incoming));
    this.#writer = new RingWriter(ringOf(outgoing));
    Atomics.store(this.#writer.words, WRITER_THREAD, sharing.hearsay.thread());
    channel.on('message', (message: unknown) => this.#message(message));
    channel.on('close', () => this.#lost());
  }

  // --------------------------------------------------------------------------------------------- of the user

  attach(handler: PortHandler): void {
    if (this.#handler !== null) throw new IwarpError('ERR_INVALID_STATE', 'the port has a handler already');
    this.#handler = handler;
    if (this.#close === 'none') this.#sharing.poll.watch(this);
    this.#sharing.polled.add(this);
    this.#turnSoon();
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#state === 'closed') {
      this.#tell(done, false);
      return false;
    }
    if (this.#finWaits || !writes(this.#state)) throw new IwarpError('ERR_INVALID_STATE', 'write after end');
    if (this.#writes.length === 0 && !this.#alone && this.#putWhole(chunks, count)) {
      this.#tell(done, true);
      return true;
    }
    this.#writes.push({ chunks: chunks.slice(0, count), taken: 0, at: 0, done });
    this.#pump();
    return this.#writes.length === 0;
  }

  end(): void {
    if (this.#finWaits || !writes(this.#state)) return;
    this.#finWaits = true;
    this.#pump();
  }

  reset(): void {
    this.#fail(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side'));
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#turnSoon();
  }

  setRef(on: boolean): void {
    if (on) this.#channel.ref();
    else this.#channel.unref();
  }

  /** A thread that is there is heard of when it ends, whatever it does: nothing has to be asked of it. */
  setKeepAlive(): boolean {
    return true;
  }

  // ------------------------------------------------------------------------------------- of direct placement

  /** Have `drained` called when the other end has read everything; false if it has by now. */
  awaitRead(): boolean {
    if (this.#writes.length > 0) return true;
    this.#writer.waitForRoom(RING_WORDS / 2);
    return !this.#writer.isRead(this.#writer.written);
  }

  /** A message to the other end's `foreign`. */
  post(message: object): void {
    if (this.#state !== 'closed') this.#channel.postMessage(message);
  }

  /** Run the task in a later turn of the event loop, or in a later call of a program that polls. */
  later(task: () => void): void {
    this.#later.push(task);
    if (this.#laterDue) return;
    this.#laterDue = true;
    this.#sharing.turns.turn(() => {
      this.#laterDue = false;
      this.#runLater();
    });
  }

  #runLater(): void {
    if (this.#later.length === 0) return;
    const tasks = this.#later;
    this.#later = [];
    for (const task of tasks) task();
  }

  /** The other end has broken the rules. */
  broken(what: string): void {
    this.#fail(new IwarpError('ERR_CONNECTION_RESET', `the other thread has broken the connection: ${what}`));
  }

  // ------------------------------------------------------------------------------------------------- reading

  look(): boolean {
    if (this.#writes.length > 0 || this.#finWaits) this.#pump();
    this.#reportDrained();
    return this.#read();
  }

  rest(): void {
    this.#turn();
  }

  /**
   * A program polls, and may give the event loop no turn: what a turn would do is done here, but for the
   * sleep. A sleeper has to be woken; one that has not said that it sleeps, or has been rung since, reads
   * before it does.
   */
  drive(): void {
    if (++this.#calls >= CALLS_A_QUESTION) this.#askAfterOther();
    if (this.#isQuiet()) return;
    this.#tellSomeDones();
    if (this.#writes.length > 0 || this.#finWaits) this.#pump();
    this.#reportDrained();
    this.#runLater();
    if (!this.#read(OCTETS_A_CALL) && this.#alone && this.#flows()) this.#cutOff();
    this.#tellSomeDones();
    this.#tellClose();
  }

  /** Nothing has come, and nothing of this side waits: so it is for most calls. */
  #isQuiet(): boolean {
    return (
      this.#reader.isEmpty &&
      this.#from === this.#to &&
      this.#dones.length === 0 &&
      this.#writes.length === 0 &&
      this.drained === null &&
      this.#later.length === 0 &&
      this.#close === 'none' &&
      !this.#finWaits &&
      !this.#alone
    );
  }

  /** Reads the messages that the event loop would have delivered, and looks for the other thread. */
  #askAfterOther(): void {
    this.#calls = 0;
    const { hearsay } = this.#sharing;
    for (let left = MESSAGES_A_QUESTION; left > 0 && this.#state !== 'closed'; left--) {
      const next = hearsay.nextMessage(this.#channel);
      if (next === undefined) break;
      // The loop owes the look for which it was rung; a program that polls has looked.
      if (next.message === MESSAGE.BELL) this.#turnSoon();
      else this.#message(next.message);
    }
    if (this.#state === 'closed' || this.#alone) return;
    // All that an ended thread has written is in the ring by now.
    if (hearsay.hasEnded(Atomics.load(this.#reader.words, WRITER_THREAD))) this.#lost();
  }

  #message(message: unknown): void {
    if (message === MESSAGE.BELL) {
      this.#pump();
      this.#reportDrained();
      this.#turn();
    } else if (message === MESSAGE.RESET) {
      this.#drop(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset by the peer'));
    } else if (this.foreign?.(message) !== true) {
      this.broken('an unknown message');
    }
  }

  #reportDrained(): void {
    if (this.drained === null || this.awaitRead()) return;
    const { drained } = this;
    this.drained = null;
    drained();
  }

  #turnSoon(): void {
    if (this.#turnDue) return;
    this.#turnDue = true;
    this.#sharing.turns.turn(() => {
      this.#turnDue = false;
      this.#turn();
    });
  }

  /** Read what there is; then have the next record announced, unless this thread looks by itself. */
  #turn(): void {
    for (;;) {
      const took = this.#read();
      if (!this.#flows()) break;
      if (took && this.#sharing.poll.arrived()) break;
      if (this.#sharing.poll.awake || this.#turnDue || this.#reader.sleep()) break;
    }
    this.#tellClose();
  }

  #flows(): boolean {
    return this.#handler !== null && !this.#paused && reads(this.#state);
  }

  /** Deliver the records of the ring, up to a limit; false if there was nothing. */
  #read(limit = OCTETS_A_TURN): boolean {
    const { polled } = this.#sharing;
    if (this.#reading) return false;
    this.#reading = polled.reading = true;
    let octets = 0;
    let cost = 0;
    let took = false;
    try {
      while (this.#flows()) {
        if (this.#from === this.#to && !this.#takeRecord()) break;
        took = true;
        if (cost >= limit) {
          this.#turnSoon();
          break;
        }
        octets += this.#to - this.#from;
        cost += RECORD_COST + this.#to - this.#from;
        this.#deliver();
        // Not before: to the writer a record that is read has been dealt with.
        if (this.#from === this.#to) this.#dropRecord();
      }
    } finally {
      this.#reading = polled.reading = false;
    }
    if (octets > 0) this.#sharing.poll.arrived(octets);
    if (this.#alone && this.#flows() && !this.#turnDue) this.#cutOff();
    this.#tellClose();
    return took;
  }

  /** Copies the octets of the next record out; false if there is none, or none with octets. */
  #takeRecord(): boolean {
    const reader = this.#reader;
    const at = reader.take();
    if (at === NO_RECORD.NONE) return false;
    if (at === NO_RECORD.BROKEN) {
      this.broken('a record that cannot be');
      return false;
    }
    const { type, length } = reader;
    if (type === RECORD.FIN && length === 1) {
      this.#dropRecord();
      this.#state = nextState(SHM_TABLE, this.#state, 'peer-fin', this);
      this.#handler!.onEnd();
      this.#endWhenBoth();
      return false;
    }
    const octets = length < DATA_WORDS ? 0 : reader.words[at + 1]!;
    if (
      type !== RECORD.DATA ||
      octets < 1 ||
      octets > (length - DATA_WORDS) * WORD ||
      octets > RECORD_OCTETS
    ) {
      this.broken('a record of no type or of a wrong length');
      return false;
    }
    const start = (at + DATA_WORDS) * WORD;
    // Another port may be read while the handler of this one has it paused in the middle of a record.
    const { memory } = this.#sharing;
    this.#record = memory.bytes;
    if (octets <= SHORT) {
      const { words } = memory;
      for (let i = 0; i * WORD < octets; i++) words[i] = reader.words[at + DATA_WORDS + i]!;
    } else {
      putBytes(reader.bytes.subarray(start, start + octets), memory.bytes, 0);
    }
    this.#from = 0;
    this.#to = octets;
    return true;
  }

  #dropRecord(): void {
    this.#reader.drop();
    if (this.#reader.release()) this.#bell();
  }

  /** Gives the handler the record, in pieces where it names memory for them. */
  #deliver(): void {
    const handler = this.#handler!;
    while (this.#from < this.#to && this.#flows()) {
      const from = this.#from;
      // Places are for large records: a short one is copied once more at less than it costs to ask.
      const target = this.#to - from > SHORT ? handler.readTarget?.() : undefined;
      if (target === undefined) {
        this.#from = this.#to;
        handler.onData(this.#record, from, this.#to);
        break;
      }
      const octets = Math.min(target.length, this.#to - from);
      putBytes(this.#record.subarray(from, from + octets), target, 0);
      this.#from += octets;
      handler.onData(target, 0, octets);
    }
    // The memory is the next port's: what the handler has left is kept apart.
    if (this.#from < this.#to) {
      this.#record = this.#record.slice(this.#from, this.#to);
      this.#to -= this.#from;
      this.#from = 0;
    }
  }

  // ------------------------------------------------------------------------------------------------- writing

  #bell(): void {
    this.#channel.postMessage(MESSAGE.BELL);
  }

  /** Put the writes into the ring while there is room, then the FIN. */
  #pump(): void {
    if (this.#state === 'closed') return;
    if (this.#alone && this.#writes.length > 0) {
      this.#cutOff();
      return;
    }
    let octets = 0;
    for (;;) {
      const [write] = this.#writes;
      if (write === undefined) break;
      const put = this.#putRecord(write);
      octets += Math.max(put, 0);
      if (put < 0) break;
      if (write.at < write.chunks.length) continue;
      this.#writes.shift();
      this.#tell(write.done, true);
    }
    if (this.#writes.length === 0 && this.#finWaits && this.#putFin()) {
      this.#finWaits = false;
      this.#state = nextState(SHM_TABLE, this.#state, 'fin', this);
    }
    if (this.#writer.publish()) this.#bell();
    if (octets > 0) this.#sharing.poll.sent(octets);
    this.#endWhenBoth();
  }

  /** A write as one record, where there is room for it: as most are, and nothing has to be kept of it. */
  #putWhole(chunks: readonly Uint8Array[], count: number): boolean {
    let octets = 0;
    for (let i = 0; i < count; i++) octets += chunks[i]!.length;
    if (octets === 0 || octets > RECORD_OCTETS) return false;
    const writer = this.#writer;
    const at = writer.begin(RECORD.DATA, DATA_WORDS + Math.ceil(octets / WORD));
    if (at < 0) return false;
    writer.words[at + 1] = octets;
    let to = (at + DATA_WORDS) * WORD;
    for (let i = 0; i < count; i++) {
      putBytes(chunks[i]!, writer.bytes, to);
      to += chunks[i]!.length;
    }
    if (writer.publish()) this.#bell();
    this.#sharing.poll.sent(octets);
    return true;
  }

  #putFin(): boolean {
    return this.#writer.begin(RECORD.FIN, 1) >= 0 || (!this.#writer.waitForRoom(1) && this.#putFin());
  }

  /** One record of a write; -1 if there is no room for it. */
  #putRecord(write: Pending): number {
    let octets = -write.taken;
    for (let i = write.at; i < write.chunks.length && octets < RECORD_OCTETS; i++)
      octets += write.chunks[i]!.length;
    octets = Math.min(octets, RECORD_OCTETS);
    if (octets === 0) {
      write.at = write.chunks.length;
      return 0;
    }
    const writer = this.#writer;
    const words = DATA_WORDS + Math.ceil(octets / WORD);
    let at = writer.begin(RECORD.DATA, words);
    if (at < 0 && !writer.waitForRoom(words)) at = writer.begin(RECORD.DATA, words);
    if (at < 0) return -1;
    writer.words[at + 1] = octets;
    let to = (at + DATA_WORDS) * WORD;
    for (let left = octets; left > 0; ) {
      const chunk = write.chunks[write.at]!;
      const take = Math.min(chunk.length - write.taken, left);
      const whole = take === chunk.length;
      putBytes(whole ? chunk : chunk.subarray(write.taken, write.taken + take), writer.bytes, to);
      to += take;
      left -= take;
      write.taken += take;
      if (write.taken < chunk.length) break;
      write.taken = 0;
      write.at++;
    }
    return octets;
  }

  /** `done` in a later tick; after some in a row in a later turn, so that something can be read. */
  #tell(done: WriteDone, ok: boolean): void {
    this.#dones.push({ done, ok });
    if (this.#tellingDones) return;
    this.#tellingDones = true;
    this.#sharing.turns.tick(() => this.#tellDones());
  }

  #tellDones(): void {
    while (this.#dones.length > 0) {
      if (++this.#burst > WRITES_A_TURN) {
        this.#sharing.turns.turn(() => {
          this.#burst = 0;
          this.#tellDones();
        });
        return;
      }
      this.#tellOne();
    }
    this.#tellingDones = false;
    this.#tellClose();
  }

  #tellOne(): void {
    const { done, ok } = this.#dones.shift()!;
    done(ok);
  }

  /** Before their tick. */
  #tellSomeDones(): void {
    for (let left = WRITES_A_TURN; left > 0 && this.#dones.length > 0; left--) this.#tellOne();
  }

  // ------------------------------------------------------------------------------------------------- the end

  /** Both have ended their direction. */
  #endWhenBoth(): void {
    if (this.#state === 'both-ended') this.#over(undefined);
  }

  /** The other thread's MessagePort is closed: nothing comes after the records in the ring. */
  #lost(): void {
    this.#alone = true;
    if (this.#state === 'closed') return;
    this.left?.();
    if (this.#writes.length > 0) this.#cutOff();
    else this.#turnSoon();
  }

  /** Everything has been read, and the other thread is gone. */
  #cutOff(): void {
    if (this.#state === 'closed' || this.#close !== 'none') return;
    this.#drop(
      new IwarpError('ERR_CONNECTION_RESET', 'the other thread has ended, or closed the connection'),
    );
  }

  /** End the connection from this side. */
  #fail(error: IwarpError): void {
    if (this.#state === 'closed') return;
    if (!this.#alone) this.#channel.postMessage(MESSAGE.RESET);
    this.#drop(error);
  }

  #drop(error: IwarpError): void {
    if (this.#state !== 'closed') this.#over(error);
  }

  #over(error: IwarpError | undefined): void {
    this.#state = nextState(SHM_TABLE, this.#state, 'over', this);
    this.#error = error;
    this.#close = 'due';
    this.#from = this.#to = 0;
    this.#record = NO_BYTES;
    this.#sharing.poll.unwatch(this);
    for (const { done } of this.#writes.splice(0)) this.#tell(done, false);
    this.#channel.close();
    this.#sharing.turns.tick(() => this.#tellClose());
  }

  #tellClose(): void {
    if (this.#close !== 'due' || this.#handler === null || this.#dones.length > 0 || this.#reading) return;
    this.#close = 'reported';
    this.#sharing.polled.delete(this);
    this.drained = this.foreign = null;
    this.#handler.onClose(this.#error);
  }
}
