/**
 * Bytes of a stream in the pieces that a protocol needs. One reader waits at a time. Bytes not asked for
 * stay in the stream: at most HELD bytes wait here.
 */
import type { Duplex } from 'node:stream';
import { putBytes } from '../base/copy.ts';

/** Enough for a burst of requests; a stream that has more is paused. */
const HELD = 1024 * 1024;

export class ByteReader {
  readonly #stream: Duplex;
  readonly #chunks: Uint8Array[] = [];
  #held = 0;
  #ended = false;
  #paused = false;
  /** Where arriving bytes go at once; null while nothing is being filled. */
  #target: Uint8Array | null = null;
  #filled = 0;
  /** Bytes without which the waiting call cannot go on; 0 if none waits. */
  #wanted = 0;
  #wake: (() => void) | null = null;

  constructor(stream: Duplex) {
    this.#stream = stream;
    stream.on('data', (chunk: Uint8Array) => this.#arrived(chunk));
    const end = (): void => this.#end();
    stream.once('end', end).once('close', end).once('error', end);
    if (stream.destroyed || stream.readableEnded) this.#ended = true;
  }

  /** No byte will come. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Exactly `length` bytes if they are here, else null. They stay valid. */
  take(length: number): Uint8Array | null {
    if (length > this.#held) return null;
    const first = this.#chunks[0];
    if (first !== undefined && first.length >= length) {
      if (first.length === length) this.#chunks.shift();
      else this.#chunks[0] = first.subarray(length);
      this.#release(length);
      return first.length === length ? first : first.subarray(0, length);
    }
    const bytes = new Uint8Array(length);
    this.#drain(bytes);
    return bytes;
  }

  /** Exactly `length` bytes; null if the stream ends before. */
  async exactly(length: number): Promise<Uint8Array | null> {
    for (;;) {
      const bytes = this.take(length);
      if (bytes !== null || this.#ended) return bytes;
      await this.#until(length);
    }
  }

  /** Fill `target`; false if the stream ends before. */
  async fill(target: Uint8Array): Promise<boolean> {
    const at = this.#drain(target);
    if (at === target.length) return true;
    if (this.#ended) return false;
    this.#target = target;
    this.#filled = at;
    await this.#until(Infinity);
    this.#target = null;
    return this.#filled === target.length;
  }

  /** Drop `length` bytes; false if the stream ends before. */
  async skip(length: number): Promise<boolean> {
    for (let left = length; left > 0; ) {
      const now = Math.min(left, this.#held);
      if (now === 0 && this.#ended) return false;
      if (now === 0) await this.#until(1);
      else if (this.take(now) !== null) left -= now;
    }
    return true;
  }

  /** Give up: a waiting call goes on as at the end of the stream. */
  cancel(): void {
    this.#end();
  }

  /** Copy held bytes into `target`; returns how many. */
  #drain(target: Uint8Array): number {
    let at = 0;
    while (at < target.length && this.#chunks.length > 0) {
      const first = this.#chunks[0]!;
      const take = Math.min(first.length, target.length - at);
      putBytes(take === first.length ? first : first.subarray(0, take), target, at);
      if (take === first.length) this.#chunks.shift();
      else this.#chunks[0] = first.subarray(take);
      at += take;
    }
    this.#release(at);
    return at;
  }

  #release(length: number): void {
    this.#held -= length;
    if (this.#paused && this.#held < HELD / 2) this.#resume();
  }

  #resume(): void {
    this.#paused = false;
    this.#stream.resume();
  }

  #arrived(chunk: Uint8Array): void {
    let rest = chunk;
    const target = this.#target;
    if (target !== null) {
      const take = Math.min(rest.length, target.length - this.#filled);
      putBytes(take === rest.length ? rest : rest.subarray(0, take), target, this.#filled);
      this.#filled += take;
      rest = rest.subarray(take);
      if (this.#filled === target.length) {
        this.#target = null;
        this.#notify();
      }
    }
    if (rest.length > 0) {
      this.#chunks.push(rest);
      this.#held += rest.length;
    }
    if (this.#wanted > 0 && this.#held >= this.#wanted) this.#notify();
    if (this.#held > HELD && this.#held > this.#wanted && !this.#paused) {
      this.#paused = true;
      this.#stream.pause();
    }
  }

  #until(length: number): Promise<void> {
    this.#wanted = length;
    if (this.#paused) this.#resume();
    return new Promise((resolve) => (this.#wake = resolve));
  }

  #notify(): void {
    this.#wanted = 0;
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }

  #end(): void {
    this.#ended = true;
    this.#notify();
  }
}
