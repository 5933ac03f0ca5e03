/**
 * One end of a connection in memory: see `memory.ts`.
 *
 * A direction is a pipe of bounded size. A write is copied at once (so nothing that the writer does later can
 * be seen, as with a system call), enters the pipe as space allows, and is done when its last byte is in.
 * Bytes leave the pipe when the handler has taken them, and the news of it needs the link's latency like
 * everything else.
 */

import type { Scheduler } from '../base/clock.ts';
import { IwarpError } from '../base/errors.ts';
import type { Port, PortAddress, PortHandler, WriteDone } from '../transport/port.ts';

/** The value that delivered memory is overwritten with. */
export const POISON = 0xdb;

/** Delivery starts at a different offset each time, so that no reader can rely on alignment or on zero. */
const OFFSETS = 16;

/** How the connections of a network behave. */
export interface LinkOptions {
  /** Milliseconds from one end to the other. Default 0; even then delivery is a separate task. */
  readonly latency?: number | undefined;
  /** Bytes per millisecond in each direction of each connection. Default: no limit. */
  readonly bandwidth?: number | undefined;
  /**
   * Bytes that a direction can hold between the writer and the reading handler; further writes wait. Default
   * 256 KiB.
   */
  readonly buffer?: number | undefined;
  /** Largest number of bytes in one `onData`. Default 64 KiB, as in a socket's read buffer. */
  readonly readOctets?: number | undefined;
  /**
   * Throw from the scheduler's task if a writer has changed its memory before `done`. Compares every byte.
   */
  readonly verifyWrites?: boolean | undefined;
}

/** The state that all connections of a network share. */
export class Link {
  readonly time: Scheduler;
  readonly latency: number;
  /** Bytes per millisecond. */
  readonly bandwidth: number;
  readonly capacity: number;
  readonly readOctets: number;
  readonly verifyWrites: boolean;
  /** One read buffer for all connections, as the TCP transport has. */
  readonly buffer: Uint8Array;
  #turn = 0;

  constructor(time: Scheduler, options: LinkOptions) {
    this.time = time;
    this.latency = positive('latency', options.latency ?? 0, 0);
    this.bandwidth = positive('bandwidth', options.bandwidth ?? Number.POSITIVE_INFINITY, Number.MIN_VALUE);
    this.capacity = positive('buffer', options.buffer ?? 262_144, 1);
    this.readOctets = positive('readOctets', options.readOctets ?? 65_536, 1);
    this.verifyWrites = options.verifyWrites ?? false;
    this.buffer = new Uint8Array(this.readOctets + 2 * OFFSETS).fill(POISON);
  }

  /** Where in the buffer the next delivery starts. */
  nextOffset(): number {
    this.#turn = (this.#turn + 7) % OFFSETS;
    return this.#turn;
  }

  /** Runs `task` when news sent now reaches the other end. */
  later(task: () => void): void {
    this.time.at(this.time.now() + this.latency, task);
  }
}

function positive(name: string, value: number, min: number): number {
  if (typeof value === 'number' && value >= min) return value;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a number of at least ${min}, got ${value}`);
}

/** A write that has not entered the pipe with all its bytes. */
interface Pending {
  readonly bytes: Uint8Array;
  taken: number;
  readonly done: WriteDone;
  /** The writer's own memory, to compare with; only when writes are verified. */
  readonly chunks: readonly Uint8Array[] | undefined;
}

/** Bytes that have arrived and wait for the handler. */
interface Arrived {
  readonly bytes: Uint8Array;
  start: number;
  readonly end: number;
}

/** {@link Port} in memory. */
export class MemoryPort implements Port {
  readonly localAddress: PortAddress;
  readonly remoteAddress: PortAddress;
  readonly #link: Link;
  readonly #released: () => void;
  #peer: MemoryPort | undefined;
  #handler: PortHandler | undefined;
  #paused = false;
  #state: 'open' | 'closed' | 'reset' = 'open';
  /** The last call to the handler: not due, due, made. */
  #close: 'none' | 'held' | 'reported' = 'none';
  #closeError: Error | undefined;

  // Our direction.
  readonly #writes: Pending[] = [];
  /** Bytes in the pipe: on the way, arrived, or taken with the news of it on the way back. */
  #inPipe = 0;
  /** When the link has sent what it was given. */
  #linkFree = 0;
  #fin: 'none' | 'wanted' | 'sent' = 'none';

  // The peer's direction.
  readonly #arrived: Arrived[] = [];
  #peerFin: 'none' | 'arrived' | 'reported' = 'none';

  /** `released` is called once when the port is gone. */
  constructor(
    link: Link,
    localAddress: PortAddress,
    remoteAddress: PortAddress,
    released: () => void = () => undefined,
  ) {
    this.#link = link;
    this.localAddress = localAddress;
    this.remoteAddress = remoteAddress;
    this.#released = released;
  }

  /** Makes two ports the ends of one connection. */
  pairWith(peer: MemoryPort): void {
    this.#peer = peer;
    peer.#peer = this;
  }

  attach(handler: PortHandler): void {
    if (this.#handler !== undefined)
      throw new IwarpError('ERR_INVALID_STATE', 'the port has a handler already');
    this.#handler = handler;
    this.#link.time.defer(() => {
      this.#deliver();
      this.#tellClose();
    });
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#close !== 'none') {
      this.#link.time.defer(() => done(false));
      return false;
    }
    if (this.#fin !== 'none' && this.#state !== 'reset')
      throw new IwarpError('ERR_INVALID_STATE', 'write after end');
    const given = chunks.slice(0, count);
    const { verifyWrites } = this.#link;
    this.#writes.push({ bytes: joined(given), taken: 0, done, chunks: verifyWrites ? given : undefined });
    this.#pump();
    // Memory that is to be compared later stays the port's.
    return !verifyWrites;
  }

  end(): void {
    if (this.#state !== 'open' || this.#fin !== 'none') return;
    this.#fin = 'wanted';
    this.#pump();
  }

  reset(): void {
    if (this.#state !== 'open') return;
    this.#drop(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side'));
    const peer = this.#peer;
    this.#link.later(() => {
      if (peer !== undefined && peer.#state === 'open')
        peer.#drop(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset by the peer'));
    });
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#link.time.defer(() => this.#deliver());
  }

  /** Moves bytes from the writes into the pipe while there is space, then the FIN. */
  #pump(): void {
    const link = this.#link;
    while (this.#state === 'open') {
      const write = this.#writes[0];
      if (write === undefined) break;
      const octets = Math.min(
        write.bytes.length - write.taken,
        link.capacity - this.#inPipe,
        link.readOctets,
      );
      if (octets > 0) {
        this.#send({ bytes: write.bytes, start: write.taken, end: write.taken + octets });
        write.taken += octets;
      }
      if (write.taken < write.bytes.length) {
        if (octets === 0) return;
        continue;
      }
      this.#writes.shift();
      link.time.defer(() => {
        verify(write);
        write.done(true);
      });
    }
    if (this.#fin === 'wanted' && this.#state === 'open') this.#sendFin();
  }

  #send(segment: Arrived): void {
    const { time, latency, bandwidth } = this.#link;
    const octets = segment.end - segment.start;
    this.#inPipe += octets;
    this.#linkFree = Math.max(this.#linkFree, time.now()) + octets / bandwidth;
    time.at(this.#linkFree + latency, () => {
      // RST overtakes: data on the way when either end was reset is lost.
      const peer = this.#peer;
      if (peer !== undefined && this.#state !== 'reset') peer.#arrive(segment);
    });
  }

  #sendFin(): void {
    this.#fin = 'sent';
    const { time, latency } = this.#link;
    time.at(Math.max(this.#linkFree, time.now()) + latency, () => {
      const peer = this.#peer;
      if (this.#state === 'reset' || peer === undefined || peer.#state !== 'open') return;
      peer.#peerFin = 'arrived';
      peer.#deliver();
    });
    this.#closeWhenBothEnded();
  }

  #arrive(segment: Arrived): void {
    if (this.#state !== 'open') return;
    this.#arrived.push(segment);
    this.#deliver();
  }

  /** Gives the handler the arrived data, read by read, until it pauses or resets. */
  #deliver(): void {
    const handler = this.#handler;
    if (handler === undefined) return;
    while (this.#flows() && this.#arrived.length > 0) {
      const { buffer } = this.#link;
      const start = this.#link.nextOffset();
      const end = this.#read(buffer, start);
      try {
        handler.onData(buffer, start, end);
      } finally {
        buffer.fill(POISON, start, end);
      }
      const peer = this.#peer;
      if (peer !== undefined) this.#link.later(() => peer.#taken(end - start));
    }
    if (this.#flows() && this.#arrived.length === 0 && this.#peerFin === 'arrived') {
      this.#peerFin = 'reported';
      handler.onEnd();
      this.#closeWhenBothEnded();
    }
  }

  #flows(): boolean {
    return this.#state === 'open' && !this.#paused;
  }

  /** Fills `buffer` from `at` with arrived data, as one read does; returns the end. */
  #read(buffer: Uint8Array, at: number): number {
    const limit = at + this.#link.readOctets;
    let end = at;
    while (end < limit) {
      const first = this.#arrived[0];
      if (first === undefined) break;
      const octets = Math.min(first.end - first.start, limit - end);
      buffer.set(first.bytes.subarray(first.start, first.start + octets), end);
      end += octets;
      first.start += octets;
      if (first.start === first.end) this.#arrived.shift();
    }
    return end;
  }

  #taken(octets: number): void {
    this.#inPipe -= octets;
    this.#pump();
  }

  #closeWhenBothEnded(): void {
    if (this.#state !== 'open' || this.#fin !== 'sent' || this.#peerFin !== 'reported') return;
    this.#state = 'closed';
    this.#link.time.defer(() => this.#gone());
  }

  /** The connection is reset: nothing more arrives or is sent. */
  #drop(error: Error): void {
    this.#state = 'reset';
    this.#closeError = error;
    this.#arrived.length = 0;
    this.#link.time.defer(() => {
      // Whatever was written until now fails, also a write after the reset; writes of these callbacks
      // are answered later.
      this.#close = 'held';
      for (const write of this.#writes.splice(0)) write.done(false);
      this.#gone();
    });
  }

  #gone(): void {
    this.#released();
    this.#close = 'held';
    this.#tellClose();
  }

  #tellClose(): void {
    if (this.#close !== 'held' || this.#handler === undefined) return;
    this.#close = 'reported';
    this.#handler.onClose(this.#closeError);
  }
}

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  let octets = 0;
  for (const chunk of chunks) octets += chunk.length;
  const bytes = new Uint8Array(octets);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

/** Throws if the writer changed its memory while it belonged to the port. */
function verify(write: Pending): void {
  if (write.chunks === undefined) return;
  let at = 0;
  for (const chunk of write.chunks) {
    for (let i = 0; i < chunk.length; i++, at++) {
      if (chunk[i] !== write.bytes[at]) {
        throw new IwarpError(
          'ERR_INTERNAL',
          `the memory of a write changed before its done, at byte ${at} of ${write.bytes.length}`,
        );
      }
    }
  }
}
