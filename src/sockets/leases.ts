/** Writes of a stream that stay where they lie until the peer has them, and the leases of lent memory. */
import { Buffer } from 'node:buffer';
import { nextTick } from 'node:process';
import { IwarpError } from '../base/errors.ts';
import type { OwnedMemory } from './byte-channel.ts';
import { Lease, TouchHistory, type LendOptions } from './owned.ts';
import { goneError } from './pieces.ts';
import { systemError } from './system-error.ts';

/** The stream, for what its leases do to it. */
interface LendingStream {
  /** Put a chunk in the queue of the stream. */
  write(chunk: Uint8Array, callback: (error: Error | null | undefined) => void): unknown;
  /** The peer has these bytes. */
  moved(octets: number): void;
  /** The memory of a chunk is gone. */
  failed(error: IwarpError): void;
  /** The last chunk of a write has been settled. */
  settled(): void;
}

export class Leases {
  readonly #stream: LendingStream;
  /** Leases of chunks that are in the queue of the stream. */
  readonly #queued = new Map<Uint8Array, Lease>();
  readonly #touches = new TouchHistory();

  constructor(stream: LendingStream) {
    this.#stream = stream;
  }

  /** Lend `bytes`, behind everything that was written before. */
  lend(bytes: Uint8Array, options: LendOptions = {}): Lease {
    // A Buffer made here names the write in the queue of the stream, which would wrap a plain Uint8Array.
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const lease = new Lease(view, options, this.#touches);
    this.#queued.set(view, lease);
    this.#stream.write(view, (error) => {
      if (error != null) lease.settle(false);
    });
    return lease;
  }

  /** A chunk that is lent is in the queue of the stream: it and its neighbours are for `giveAll`. */
  get waiting(): boolean {
    return this.#queued.size > 0;
  }

  /** Each chunk stays where it lies until the peer has it. */
  giveAll(owned: OwnedMemory, list: readonly Uint8Array[], callback: (error?: Error | null) => void): void {
    let left = list.length;
    let failed = false;
    const settle = (moved: boolean): void => {
      failed ||= !moved;
      if (--left > 0) return;
      // Why the connection has ended is said first.
      if (failed) nextTick(callback, systemError(closedError(), 'write'));
      else callback(null);
      this.#stream.settled();
    };
    for (const chunk of list) this.#give(owned, chunk, settle);
  }

  #give(owned: OwnedMemory, chunk: Uint8Array, settle: (moved: boolean) => void): void {
    const { length } = chunk;
    const lease = this.#queued.get(chunk);
    this.#queued.delete(chunk);
    if (lease === undefined) {
      owned.give(chunk, (moved) => {
        if (moved) this.#stream.moved(length);
        settle(moved);
      });
      return;
    }
    if (lease.gone) {
      lease.settle(false);
      this.#stream.failed(goneError('data'));
      return;
    }
    // The lease waits for the peer; the stream goes on, unless much is under way.
    let waits = false;
    const write = owned.give(lease.bytes, (moved) => {
      if (moved) this.#stream.moved(length);
      lease.settle(moved);
      if (waits) settle(true);
    });
    lease.begin(owned, write);
    waits = owned.crowded && write.state !== 'done';
    if (!waits) nextTick(settle, true);
  }
}

function closedError(): IwarpError {
  return new IwarpError('ERR_CONNECTION_CLOSED', 'the connection is closed');
}
