/**
 * One TCP connection of `node:net` as a port: its reads, writes and ends, and what keeps one connection from
 * starving the others.
 *
 * Read first: `port.ts` (the contract). Sending: several chunks become one writev through cork and uncork;
 * one chunk is one write.
 */
import { performance } from 'node:perf_hooks';
import { nextTick } from 'node:process';
import type { OnReadOpts, Socket } from 'node:net';
// Held here, as in `busy-poll.ts`.
import { setImmediate } from 'node:timers';
import { NO_BYTES } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { Interned } from '../base/interned.ts';
import { readInto } from './adopt.ts';
import type { BusyPoll } from './busy-poll.ts';
import { interfaceMtu } from './interface-mtu.ts';
import type { Port, PortAddress, PortHandler, WriteDone } from './port.ts';
import { warmHeap } from './warm-heap.ts';

/**
 * Writes that may end, one after the other, before the event loop gets a turn. While the peer reads, the
 * system takes every write at once and Node calls back without leaving the tick queue; a program that writes
 * from the callback would never let anything be read again.
 */
const WRITES_A_TURN = 16;

/**
 * Microseconds that full reads of one socket may take before the event loop gets a turn. libuv reads a socket
 * that keeps up to 32 times in a row; where the peer fills those reads with the smallest messages there are,
 * that is tens of milliseconds in which other connections wait.
 */
const READING_US = 500;

function addressOf(address: string | undefined, port: number | undefined): PortAddress | undefined {
  if (address === undefined || port === undefined) return undefined;
  return { address, port, family: address.includes(':') ? 'IPv6' : 'IPv4' };
}

/** State that the ports of a transport share for their reads. */
interface Reading {
  readonly poll: BusyPoll;
  /** Where bytes go that a handler has no place for. */
  readonly memory: Uint8Array;
}

/** Connections of one listener in a row mostly have the same address here. */
const lastLocal = new Interned<PortAddress>();

/**
 * The port that was read last, and the memory for its next read. What the program throws in the tick behind a
 * read, where its listeners run, makes Node lose the memory that `onread` has named: the system would write
 * into the one before, of which Node and this module have no record left. A program that has a listener for
 * 'uncaughtException' goes on after that, and so must its connections.
 */
let reader: TcpPort | null = null;
let readerMemory: Uint8Array = NO_BYTES;
let watching = false;

function readsNext(port: TcpPort, memory: Uint8Array): Uint8Array {
  reader = port;
  return (readerMemory = memory);
}

function watchThrows(): void {
  if (watching) return;
  watching = true;
  // This monitor only listens: a throw is treated as without it.
  process.on('uncaughtExceptionMonitor', () => {
    const last = reader;
    reader = null;
    last?.readNext(readerMemory);
  });
}

/** The port of a socket, for the listeners of its events: they are the same functions for all sockets. */
const PORT = Symbol('port');
type PortSocket = Socket & { [PORT]: TcpPort };

/**
 * One connection. The port is made before its socket, which needs to know at once where bytes go; `open`
 * brings them together. What stands here stands in every idle connection: no closure where a function of the
 * module will do, and nothing that the socket knows itself.
 */
export class TcpPort implements Port {
  readonly #reading: Reading;
  #socket!: Socket;
  /** Our end. A closed socket no longer has it. */
  #local!: PortAddress;
  #handler: PortHandler | undefined;
  #state: 'open' | 'ended' | 'resetting' | 'closed' = 'open';
  /** Whether the user has paused the port; the socket itself is also paused before `attach`. */
  #paused = false;
  /** The peer's FIN: not seen, checked against a reset, waiting for the handler, reported to it. */
  #peerEnd: 'none' | 'probed' | 'held' | 'reported' = 'none';
  /** The socket closed in order while the peer's FIN was held back. */
  #closeHeld = false;
  #error: Error | undefined;
  /**
   * Callbacks of writes under way, the oldest two, which are all that a stream has; and those after them,
   * from `#firstDone` on.
   */
  #done: WriteDone | null = null;
  #nextDone: WriteDone | null = null;
  #dones: WriteDone[] | null = null;
  #firstDone = 0;
  /** Writes that have ended in this turn, and those of them whose callback waits for the next one. */
  #burst = 0;
  #late = 0;
  /**
   * Microseconds, whole ones, spent on full reads since the event loop had its turn: a fraction would be a
   * separate number object.
   */
  #spent = 0;
  /** Node has asked for a read buffer. */
  asked = false;
  /** The system reads into this, although Node thinks otherwise. */
  #instead: Uint8Array | null = null;

  constructor(reading: Reading) {
    this.#reading = reading;
  }

  /**
   * False if the socket has lost its peer already. Our own end is not asked for where it is `known`: a socket
   * that was asked keeps its answer.
   */
  open(socket: Socket, known: PortAddress | null): boolean {
    const local = known ?? addressOf(socket.localAddress, socket.localPort);
    if (local === undefined || socket.remoteAddress === undefined || socket.remotePort === undefined)
      return false;
    this.begin(socket, known ?? lastLocal.of(local));
    return true;
  }

  /** The socket, and our end of it. */
  protected begin(socket: Socket, local: PortAddress): void {
    this.#socket = socket;
    this.#local = local;
  }

  get localAddress(): PortAddress {
    return this.#local;
  }

  /** This one the socket keeps when it is closed: it has been asked once, in `open`. */
  get remoteAddress(): PortAddress {
    return addressOf(this.#socket.remoteAddress, this.#socket.remotePort)!;
  }

  get mtu(): number | undefined {
    return interfaceMtu(this.localAddress.address);
  }

  /** Start listening to the socket's events. */
  watch(dataEvents: boolean): void {
    const socket = this.#socket;
    (socket as PortSocket)[PORT] = this;
    if (dataEvents) socket.on('data', onData);
    socket.on('end', onEnd);
    socket.on('error', onError);
    socket.on('close', onClose);
  }

  /** How the socket reads. Bound, as `#written` is. Node asks for the memory before every read. */
  get onread(): OnReadOpts {
    watchThrows();
    return { buffer: this.#memory.bind(this), callback: this.received.bind(this) };
  }

  #memory(): Uint8Array {
    this.asked = true;
    this.#instead = null;
    return readsNext(this, this.#handler?.readTarget?.() ?? this.#reading.memory);
  }

  /** The memory for the next read is this, whatever has become of what `onread` said. */
  readNext(memory: Uint8Array): void {
    // There is no socket yet where the memory was asked for at its birth.
    if ((this.#socket as Socket | undefined)?.destroyed === false) readInto(this.#socket, memory);
  }

  /**
   * The system cannot be left without memory, and the handler's is not to be used: the next read goes to the
   * memory that it names now.
   */
  retarget(): void {
    if (!this.asked || this.#socket.destroyed) return;
    const memory = this.#handler?.readTarget?.() ?? this.#reading.memory;
    if (!readInto(this.#socket, memory)) return;
    this.#instead = memory;
    if (reader === this) readerMemory = memory;
  }

  /** False if the socket shall not be read again in this turn. */
  received(octets: number, given: Uint8Array): boolean {
    const bytes = this.#instead ?? given;
    this.#burst = 0;
    this.#reading.poll.arrived(octets);
    if (this.#state !== 'open' && this.#state !== 'ended') return true;
    if (octets < bytes.length) {
      // After a read that was not full libuv goes on to the next socket by itself.
      this.#handler?.onData(bytes, 0, octets);
      return true;
    }
    const began = performance.now();
    this.#handler?.onData(bytes, 0, octets);
    this.#spent += Math.round((performance.now() - began) * 1000);
    if (this.#spent < READING_US) return true;
    setImmediate(readOn, this);
    return false;
  }

  readOn(): void {
    this.#spent = 0;
    if (!this.#paused && !this.#socket.destroyed) this.#socket.resume();
  }

  attach(handler: PortHandler): void {
    if (this.#handler !== undefined)
      throw new IwarpError('ERR_INVALID_STATE', 'the port has a handler already');
    this.#handler = handler;
    if (this.#state === 'closed') nextTick(() => handler.onClose(this.#closeError()));
    else if (!this.#paused) this.#start();
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#state === 'ended') throw new IwarpError('ERR_INVALID_STATE', 'write after end');
    if (this.#state === 'closed') {
      nextTick(done, false);
      return false;
    }
    if (this.#done === null) this.#done = done;
    else if (this.#nextDone === null) this.#nextDone = done;
    else (this.#dones ??= []).push(done);
    const socket = this.#socket;
    // A destroyed socket answers all that is left from its 'close' event, in order.
    if (socket.destroyed) return false;
    const last = chunks[count - 1] ?? NO_BYTES;
    let octets = last.byteLength;
    if (count <= 1) {
      socket.write(last, this.#written);
    } else {
      socket.cork();
      for (let i = 0; i < count - 1; i++) {
        const chunk = chunks[i] ?? NO_BYTES;
        octets += chunk.byteLength;
        socket.write(chunk);
      }
      socket.write(last, this.#written);
      socket.uncork();
    }
    this.#reading.poll.sent(octets);
    // The system has taken all there was, though Node calls back a tick later; or it has failed, and nothing
    // reads the bytes.
    return socket.writableLength === 0;
  }

  end(): void {
    if (this.#state !== 'open') return;
    this.#state = 'ended';
    this.#socket.end();
  }

  reset(): void {
    if (this.#state === 'resetting' || this.#state === 'closed') return;
    this.#state = 'resetting';
    const socket = this.#socket;
    if (this.#closeHeld) nextTick(() => this.closed());
    this.#error ??= new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side');
    // libuv refuses to reset a handle while a shutdown is under way, and Node would then leave the handle
    // open for ever.
    const shuttingDown = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
    if (shuttingDown || socket.destroyed) socket.destroy();
    else this.drop(socket);
  }

  /** End the connection so that the peer can tell it from an orderly end. */
  protected drop(socket: Socket): void {
    socket.resetAndDestroy();
  }

  pause(): void {
    this.#paused = true;
    // A resume that is undone in the same turn still starts a read one tick later; this takes it back.
    if (this.#socket.listenerCount('resume', onResume) === 0) this.#socket.on('resume', onResume);
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (this.#handler === undefined) return;
    this.#start();
  }

  #start(): void {
    if (this.#peerEnd === 'held') nextTick(() => this.#tellEnd());
    this.#socket.resume();
  }

  setRef(on: boolean): void {
    if (on) this.#socket.ref();
    else this.#socket.unref();
  }

  setKeepAlive(on: boolean, delay: number): boolean {
    this.#socket.setKeepAlive(on, delay);
    return true;
  }

  /**
   * Node calls back in the order of the writes; one function for all of them saves a closure per write.
   * Bound, which is half the memory of a closure with its context.
   */
  readonly #written: (error?: Error | null) => void = this.#settleWritten.bind(this);

  #settleWritten(error?: Error | null): void {
    // After a destroy Node reports success for writes that were cancelled: leave those to `#closed`.
    if (this.#socket.destroyed || error) return;
    if (this.#burst < WRITES_A_TURN) {
      this.#burst++;
      this.#settle(true);
      return;
    }
    if (this.#late++ === 0) setImmediate(nextTurn, this);
  }

  nextTurn(): void {
    this.#burst = 0;
    for (; this.#late > 0; this.#late--) this.#settle(true);
  }

  #settle(ok: boolean): void {
    const done = this.#done;
    if (done === null) return;
    this.#done = this.#nextDone;
    this.#nextDone = this.#dones === null ? null : this.#takeDone(this.#dones);
    done(ok);
  }

  #takeDone(dones: WriteDone[]): WriteDone {
    const done = dones[this.#firstDone++]!;
    if (this.#firstDone === dones.length) {
      this.#dones = null;
      this.#firstDone = 0;
    } else if (this.#firstDone === 1024) {
      dones.splice(0, 1024);
      this.#firstDone = 0;
    }
    return done;
  }

  /**
   * The socket says that the peer has finished. libuv says so too when a reset finds data that has not been
   * read yet: it delivers the data and then an end of stream. A write of no bytes shows which it is, for
   * the system answers it with the error it has kept. Where the probe cannot be made it is not needed as
   * much: writes under way meet the error themselves, and after our own FIN there is nothing left to lose.
   */
  ended(): void {
    if (this.#peerEnd !== 'none') return;
    const socket = this.#socket;
    if (this.#state !== 'open' || socket.writableLength > 0) {
      this.#peerEnd = 'held';
      this.#tellEnd();
      return;
    }
    this.#peerEnd = 'probed';
    socket.write(NO_BYTES, (error) => {
      if (error || this.#peerEnd !== 'probed') return;
      this.#peerEnd = 'held';
      this.#tellEnd();
    });
  }

  /**
   * Reports the peer's FIN to the handler, and of a close that waited behind it, unless delivery is paused.
   */
  #tellEnd(): void {
    if (this.#peerEnd !== 'held' || this.#paused || this.#handler === undefined) return;
    if (this.#state !== 'open' && this.#state !== 'ended') return;
    this.#peerEnd = 'reported';
    this.#handler.onEnd();
    if (this.#closeHeld) this.closed();
  }

  failed(error: Error): void {
    this.#error ??= error;
  }

  resumed(): void {
    if (this.#paused) this.#socket.pause();
  }

  closed(): void {
    if (
      this.#state === 'ended' &&
      this.#error === undefined &&
      (this.#peerEnd === 'held' || this.#peerEnd === 'probed')
    ) {
      this.#peerEnd = 'held';
      this.#closeHeld = true;
      this.#tellEnd();
      return;
    }
    const orderly = this.#state === 'ended' && this.#peerEnd === 'reported';
    if (!orderly) this.#error ??= new IwarpError('ERR_CONNECTION_CLOSED', 'the connection was closed');
    this.#state = 'closed';
    if (reader === this) reader = null;
    this.nextTurn();
    while (this.#done !== null) this.#settle(false);
    this.#handler?.onClose(this.#closeError());
  }

  #closeError(): Error | undefined {
    return this.#error === undefined ? undefined : streamError(this.#error);
  }
}

// Node calls listeners with the socket as `this`, as it documents.
function onData(this: Socket, chunk: Uint8Array): void {
  // A pause without a word to `onResume`: the port goes on by itself.
  if (!(this as PortSocket)[PORT].received(chunk.length, chunk)) this.pause();
  warmHeap.given(chunk.length);
}

function onEnd(this: Socket): void {
  (this as PortSocket)[PORT].ended();
}

function onError(this: Socket, error: Error): void {
  (this as PortSocket)[PORT].failed(error);
}

function onClose(this: Socket): void {
  (this as PortSocket)[PORT].closed();
}

function onResume(this: Socket): void {
  (this as PortSocket)[PORT].resumed();
}

function readOn(port: TcpPort): void {
  port.readOn();
}

function nextTurn(port: TcpPort): void {
  port.nextTurn();
}

function streamError(cause: Error): IwarpError {
  if (cause instanceof IwarpError) return cause;
  if (codeOf(cause) === 'ETIMEDOUT')
    return new IwarpError('ERR_TIMEOUT', 'the peer stopped answering', { cause });
  return new IwarpError('ERR_CONNECTION_RESET', `the connection was lost (${codeOf(cause)})`, { cause });
}

/**
 * The system's name for an error; an attempt at several addresses fails with a list of which the first says
 * why.
 */
export function codeOf(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  return code ?? error.message;
}
