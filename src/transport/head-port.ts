/** A port of which some bytes have been read already. */
import { nextTick } from 'node:process';
import { PassingPort } from './middleware.ts';
import type { Port, PortHandler } from './port.ts';

/** Delivers bytes that were read before in front of all that the port reads. */
export class HeadPort extends PassingPort {
  #head: Uint8Array | null;
  #paused = false;

  /** `head` is kept, not copied. */
  constructor(inner: Port, head: Uint8Array) {
    super(inner);
    this.#head = head;
  }

  override attach(handler: PortHandler): void {
    this.inner.pause();
    super.attach(handler);
    nextTick(() => this.#deliver());
  }

  override pause(): void {
    this.#paused = true;
    super.pause();
  }

  override resume(): void {
    this.#paused = false;
    if (this.#head === null) super.resume();
    else nextTick(() => this.#deliver());
  }

  readTarget(): Uint8Array | undefined {
    return this.handler?.readTarget?.();
  }

  #deliver(): void {
    const head = this.#head;
    if (head === null || this.#paused) return;
    this.#head = null;
    super.onData(head, 0, head.length);
    if (!this.#paused) super.resume();
  }

  override onClose(error?: Error): void {
    this.#head = null;
    super.onClose(error);
  }
}
