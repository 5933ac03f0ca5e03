/**
 * Where Hello and HelloAck go over iWARP: into the private data of the MPA frames (`private-data`), or in
 * front of these frames, as the last bytes of streaming mode (`streaming`; RFC 5044 7.1.3 and its figure 9).
 * Only this module and the sockets that choose know of the second.
 *
 * In front of the frames the length in their header is all that frames the two messages, and the MPA frames
 * carry no private data. A listener distinguishes the placements by the first byte: that of Hello is 0, that
 * of an MPA Request is `M`.
 */
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { checkOneOf } from '../base/errors.ts';
import { PassingPort } from '../transport/middleware.ts';
import type { Port, PortHandler } from '../transport/port.ts';
import { BSDH_OCTETS, MID } from './wire.ts';

/** Where Hello and HelloAck go. */
export type HelloPlacement = 'private-data' | 'streaming';
const PLACEMENTS: readonly HelloPlacement[] = ['private-data', 'streaming'];

/** Throws ERR_INVALID_ARGUMENT unless it names a placement; returns it, or the default. */
export function checkPlacement(name: string, value: HelloPlacement = 'private-data'): HelloPlacement {
  return checkOneOf(name, value, PLACEMENTS);
}

/** Milliseconds that the peer's message may take, as for an MPA frame. */
const SETUP_MS = 10_000;
/** Longest Hello and HelloAck that are taken: as long as private data may be. */
const MOST_OCTETS = 512;
const LEAST_OCTETS = { 0: 64, 1: 24 } as const;
type SetupMessage = typeof MID.HELLO | typeof MID.HELLO_ACK;
/** First byte of an MPA Request. */
const MPA_FIRST = 0x4d;
const LENGTH_AT = 4;

/**
 * The first arrival: the message; an MPA Request in its place; or a fault, with its reason. `silent`: the
 * peer has ended the connection without a byte.
 */
export type Setup =
  | { readonly type: 'message'; readonly bytes: Uint8Array }
  | { readonly type: 'mpa' }
  | { readonly type: 'fault'; readonly why: string; readonly silent?: boolean };

/** What begins with `bytes`; null while that cannot be said. */
export function setupIn(bytes: Uint8Array, expected: SetupMessage): Setup | null {
  const fault = (why: string): Setup => ({ type: 'fault', why });
  const first = bytes[0];
  if (first === undefined) return null;
  if (first === MPA_FIRST && expected === MID.HELLO) return { type: 'mpa' };
  if (first !== expected) return fault(`its first byte is ${first}`);
  if (bytes.length < BSDH_OCTETS) return null;
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(LENGTH_AT);
  if (length < LEAST_OCTETS[expected] || length > MOST_OCTETS) return fault(`a message of ${length} bytes`);
  return bytes.length < length ? null : { type: 'message', bytes: bytes.subarray(0, length) };
}

/**
 * A port that first waits for the peer's Hello or HelloAck, and then is as the one below. Bytes behind the
 * message wait until the port has a user.
 */
export class SetupPort extends PassingPort {
  readonly #expected: SetupMessage;
  readonly #scheduler: Scheduler;
  readonly #alarm: Alarm;
  #done: ((setup: Setup) => void) | null;
  /** Bytes that have come and are not the user's yet. */
  #kept: Uint8Array = new Uint8Array(0);
  #ended = false;
  #closed: { readonly error: Error | undefined } | null = null;
  #state: 'reading' | 'waiting' | 'passing' = 'reading';
  #paused = false;

  /** `done` is called once. */
  constructor(inner: Port, expected: SetupMessage, scheduler: Scheduler, done: (setup: Setup) => void) {
    super(inner);
    this.#expected = expected;
    this.#scheduler = scheduler;
    this.#alarm = new Alarm(scheduler);
    this.#done = done;
    this.#alarm.set(SETUP_MS, () => this.#fault('it did not come in time'));
    inner.attach(this);
  }

  /** Send our message. */
  send(message: Uint8Array): void {
    this.inner.write([message], 1, () => undefined);
  }

  /** Give up: nothing is reported any longer. */
  drop(): void {
    this.#done = null;
    this.#alarm.stop();
    if (this.#closed === null) this.inner.reset();
  }

  override attach(handler: PortHandler): void {
    this.handler = handler;
    this.#scheduler.defer(() => this.#pass());
  }

  #pass(): void {
    if (this.#state === 'passing') return;
    this.#state = 'passing';
    const kept = this.#kept;
    this.#kept = new Uint8Array(0);
    if (kept.length > 0) super.onData(kept, 0, kept.length);
    if (this.#ended) super.onEnd();
    if (this.#closed !== null) super.onClose(this.#closed.error);
    else if (!this.#paused) super.resume();
  }

  override pause(): void {
    this.#paused = true;
    super.pause();
  }

  override resume(): void {
    this.#paused = false;
    if (this.#state === 'passing') super.resume();
  }

  readTarget(): Uint8Array | undefined {
    return this.#state === 'passing' ? this.handler?.readTarget?.() : undefined;
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    if (this.#state === 'passing') {
      super.onData(bytes, start, end);
      return;
    }
    const kept = new Uint8Array(this.#kept.length + end - start);
    kept.set(this.#kept);
    kept.set(bytes.subarray(start, end), this.#kept.length);
    this.#kept = kept;
    if (this.#state === 'waiting') return;
    const setup = setupIn(kept, this.#expected);
    if (setup === null) return;
    if (setup.type === 'fault') {
      this.#fault(setup.why);
      return;
    }
    if (setup.type === 'message') this.#kept = kept.slice(setup.bytes.length);
    this.#settle(setup);
  }

  override onEnd(): void {
    if (this.#state === 'passing') super.onEnd();
    else this.#ended = true;
    if (this.#state === 'reading') this.#fault('the peer has ended the connection', this.#kept.length === 0);
  }

  override onClose(error?: Error): void {
    if (this.#state === 'passing') {
      super.onClose(error);
      return;
    }
    this.#closed = { error };
    if (this.#state === 'reading') this.#fault('the connection was lost', this.#kept.length === 0);
  }

  #fault(why: string, silent = false): void {
    this.#settle({ type: 'fault', why, silent });
    if (this.#closed === null) this.inner.reset();
  }

  #settle(setup: Setup): void {
    if (this.#state !== 'reading') return;
    this.#state = 'waiting';
    this.#alarm.stop();
    const done = this.#done;
    this.#done = null;
    if (setup.type !== 'fault') this.inner.pause();
    done?.(setup);
  }
}
