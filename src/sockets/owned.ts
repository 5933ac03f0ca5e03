/** Memory that a program lends to a stream, or gives away, until the peer has it. */
import { structuredClone } from '../base/host.ts';
import { defaultCrc32cEngine } from '../crc32c/engine.ts';
import { isShared, lengthNow } from '../base/copy.ts';
import {
  checkBoolean,
  checkInteger,
  checkOneOf,
  checkOptions,
  IwarpError,
  type Names,
} from '../base/errors.ts';
import type { OwnedMemory, OwnedWrite } from './byte-channel.ts';

/** What a touch of lent memory does: wait until the peer has it, or put a copy in its place. */
export type TouchMode = 'block' | 'copy';
const TOUCH_MODES: readonly TouchMode[] = ['block', 'copy'];

/** Options of {@link RdmaSocket.lend}. */
export interface LendOptions {
  /** Keep a CRC32c of the memory, and reject `done` with ERR_LENT_CHANGED if it changes. Default false. */
  readonly guard?: boolean | undefined;
  /** Mode of {@link Lease.touch} and {@link Lease.touchSync} where they are given none. Default `block`. */
  readonly touch?: TouchMode | undefined;
}

const OPTIONS: Names<LendOptions> = { guard: true, touch: true };
const TOUCH_SYNC_MS = 30_000;
const LONGEST_MS = 0x7fff_ffff;

/** Where lent memory is. */
export type LeaseState = 'queued' | 'advertised' | 'copied' | 'done';

/**
 * Copies in a row after which touches wait for the peer, and for how many leases: a program that changes what
 * it has lent again and again is faster without the locks (the fall-back of the paper).
 */
const COPIES_IN_ROW = 32;
const BLOCKED_LEASES = 32;

/** @internal How often the leases of one stream have been copied. */
export class TouchHistory {
  #copies = 0;
  #blocked = 0;

  /** Touches may copy. */
  get copies(): boolean {
    return this.#blocked === 0;
  }

  /** A lease has come to its end. */
  ended(copied: boolean): void {
    if (copied && ++this.#copies < COPIES_IN_ROW) return;
    this.#blocked = copied ? BLOCKED_LEASES : Math.max(0, this.#blocked - 1);
    this.#copies = 0;
  }
}

/** Memory that has been lent: see {@link RdmaSocket.lend}. */
export class Lease {
  /** Resolves with the number of bytes when the memory is the program's again. */
  readonly done: Promise<number>;
  readonly #octets: number;
  readonly #history: TouchHistory;
  readonly #mode: TouchMode;
  #bytes: Uint8Array;
  #owned: OwnedMemory | null = null;
  #write: OwnedWrite | null = null;
  #copied = false;
  #over = false;
  /** The memory was as it was lent when the program got it back; null until then. */
  #sound: boolean | null = null;
  #resolve!: (octets: number) => void;
  #reject!: (error: Error) => void;
  readonly #check: number | null;

  /** @internal Use {@link RdmaSocket.lend}. */
  constructor(bytes: Uint8Array, options: LendOptions, history: TouchHistory) {
    checkOptions('options', options, OPTIONS);
    const { guard = false, touch = 'block' } = options;
    this.#mode = checkOneOf('options.touch', touch, TOUCH_MODES);
    this.#bytes = bytes;
    this.#octets = bytes.length;
    this.#history = history;
    this.#check = checkBoolean('options.guard', guard) ? crc32c(bytes) : null;
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.done.catch(() => undefined);
  }

  /** Where the memory is now. */
  get state(): LeaseState {
    if (this.#over) return 'done';
    if (this.#copied) return 'copied';
    return this.#write === null || this.#write.state === 'queued' ? 'queued' : 'advertised';
  }

  /**
   * Call before you change the memory. `block` waits until the peer has it. `copy` puts a copy in its place
   * unless the peer reads it at that time, and waits then: between our own endpoints the peer's lock of the
   * advertisement decides, by a remote compare-and-swap. After 32 copies in a row the next 32 leases of the
   * stream wait in either mode. Default: the mode that the memory was lent with.
   *
   * @throws ERR_INVALID_ARGUMENT, and as `done` where it waits
   *
   * @example
   * const lease = socket.lend(frame, { touch: 'copy' });
   * await lease.touch(); // `copied`, or `done` if the peer was faster
   * frame.fill(0);
   */
  async touch(mode: TouchMode = this.#mode): Promise<'done' | 'copied'> {
    checkOneOf('mode', mode, TOUCH_MODES);
    if (!this.#over && !this.#copied && mode === 'copy' && this.#history.copies) {
      const [owned, write] = [this.#owned, this.#write];
      if (owned === null || write === null) this.#copyNow();
      else this.#copied = await new Promise<boolean>((resolve) => owned.copy(write, resolve));
    }
    if (this.#copied && mode === 'copy') return 'copied';
    await this.done;
    return 'done';
  }

  /**
   * The same without the event loop: the thread stands still, as long as the peer needs and `ms` milliseconds
   * at most. Needs an engine in a worker. No listener runs meanwhile. Memory that waits in the queue of the
   * stream, which the event loop empties, is copied in either mode.
   *
   * @throws ERR_NOT_SUPPORTED with the engine in this thread, ERR_TIMEOUT, ERR_CONNECTION_CLOSED,
   *   ERR_INVALID_ARGUMENT
   *
   * @example
   * const frame = new Uint8Array(1 << 20);
   * const lease = socket.lend(frame, { touch: 'copy' });
   * lease.touchSync('block');
   * frame.fill(0);
   */
  touchSync(mode: TouchMode = this.#mode, ms: number = TOUCH_SYNC_MS): 'done' | 'copied' {
    checkOneOf('mode', mode, TOUCH_MODES);
    checkInteger('ms', ms, 1, LONGEST_MS);
    if (this.#over) return 'done';
    if (this.#copied) return 'copied';
    const [owned, write] = [this.#owned, this.#write];
    if (owned === null || write === null) this.#copyNow();
    else if (write.state === 'done') return 'done';
    else this.#copied = owned.touchSync(write, mode === 'copy' && this.#history.copies, ms);
    // The program may change the memory after this call; `settle` follows in the event loop.
    if (!this.#copied) this.#sound ??= this.#isSound(this.bytes);
    return this.#copied ? 'copied' : 'done';
  }

  /** Wait until the memory is the program's again. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.done;
  }

  #copyNow(): void {
    this.#bytes = new Uint8Array(this.#bytes); // `slice` of a Buffer would copy nothing
    this.#copied = true;
  }

  /** @internal The bytes to send: a copy after `touch('copy')`. */
  get bytes(): Uint8Array {
    return this.#write?.bytes ?? this.#bytes;
  }

  /** @internal The program has detached the memory: nothing can be sent in its place. */
  get gone(): boolean {
    return lengthNow(this.bytes) !== this.#octets;
  }

  /** @internal The stream has begun to send these bytes. */
  begin(owned: OwnedMemory, write: OwnedWrite): void {
    this.#owned = owned;
    this.#write = write;
  }

  /** @internal The peer has it, or the connection has ended. */
  settle(moved: boolean): void {
    if (this.#over) return;
    const { bytes } = this;
    this.#over = true;
    this.#history.ended(this.#copied);
    const error = this.#errorOf(bytes, moved);
    if (error === null) this.#resolve(this.#octets);
    else this.#reject(error);
  }

  #isSound(bytes: Uint8Array): boolean {
    return this.#check === null || crc32c(bytes) === this.#check;
  }

  /** A copy that was made of memory that had been changed differs as well. */
  #errorOf(bytes: Uint8Array, moved: boolean): IwarpError | null {
    if (lengthNow(bytes) !== this.#octets)
      return new IwarpError(
        'ERR_INVALID_REGION',
        'the memory was transferred away or resized while it was lent',
      );
    if (!(this.#sound ?? this.#isSound(bytes)))
      return new IwarpError('ERR_LENT_CHANGED', 'the memory was changed while it was lent');
    if (moved) return null;
    return new IwarpError('ERR_CONNECTION_CLOSED', 'the connection was closed before the peer had all');
  }
}

function crc32c(bytes: Uint8Array): number {
  return defaultCrc32cEngine().update(0, bytes, 0, bytes.length);
}

/**
 * The bytes of `data` in memory that the program no longer has, and the buffer to return afterwards: the same
 * memory, or if it could not be taken that of the program.
 */
export function takeOver(data: ArrayBufferLike | Uint8Array): { bytes: Uint8Array; back: ArrayBufferLike } {
  // A view or a buffer of another realm is no instance of the classes of this one.
  const whole = ArrayBuffer.isView(data) ? data : new Uint8Array(data);
  const { buffer, byteOffset, byteLength: length } = whole;
  if (!isShared(whole) && byteOffset === 0 && length === buffer.byteLength && length > 0) {
    try {
      const taken = structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });
      // A pool of Node's says nothing and is copied: then the program still has its memory.
      if (buffer.byteLength === 0) return { bytes: new Uint8Array(taken), back: taken };
      return { bytes: new Uint8Array(taken), back: buffer };
    } catch {
      // Memory of WebAssembly cannot be detached.
    }
  }
  return { bytes: new Uint8Array(buffer, byteOffset, length).slice(), back: buffer };
}
