/** Completion channels: one place for the notifications of several completion queues (ibv_comp_channel). */
import { signalOf, type WaitOptions } from '../base/abort.ts';
import { captureContext, type AsyncContext } from '../base/async-context.ts';
import { IwarpError, show } from '../base/errors.ts';
import { Waiters } from '../base/waiters.ts';
import type { CompletionQueue } from './cq.ts';
import type { Device } from './device.ts';

/**
 * The notifications of several completion queues, in order. A queue that has been notified and not taken yet
 * stands here once, so that the channel holds no more entries than it has queues.
 *
 * @example
 * const channel = device.createCompletionChannel();
 * const cq = device.createCq(256, { channel });
 * cq.requestNotify();
 * const ready = await channel.nextEvent(); // ibv_get_cq_event
 */
export class CompletionChannel {
  /** The device whose completion queues report here. */
  readonly device: Device;
  readonly #ready = new Set<CompletionQueue>();
  readonly #waiters = new Waiters<void>();
  #handler: ((cq: CompletionQueue) => void) | null = null;
  /** That of the call that set the handler. */
  #asyncContext: AsyncContext | null = null;
  #destroyed = false;
  /** @internal Completion queues that report here. */
  users = 0;

  /** @internal Use {@link Device.createCompletionChannel}. */
  constructor(device: Device) {
    this.device = device;
  }

  /** True after {@link CompletionChannel.destroy}. It stays true. */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  /** The queue that was notified first and not taken, or null (ibv_get_cq_event without blocking). */
  getEvent(): CompletionQueue | null {
    for (const cq of this.#ready) {
      this.#ready.delete(cq);
      return cq;
    }
    return null;
  }

  /** Resolves with the next queue that is notified. When `signal` is aborted it rejects with ERR_ABORTED. */
  async nextEvent(options: WaitOptions = {}): Promise<CompletionQueue> {
    const signal = signalOf(options);
    for (;;) {
      if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the completion channel has been destroyed');
      const cq = signal?.aborted === true ? null : this.getEvent();
      if (cq !== null) return cq;
      await this.#waiters.wait(signal);
    }
  }

  /**
   * Set the one handler, which is called with each queue that is notified, those of before included. It runs
   * in the asynchronous context of this call.
   */
  setHandler(handler: ((cq: CompletionQueue) => void) | null): void {
    if (handler !== null && typeof handler !== 'function')
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `handler must be a function or null, got ${show(handler)}`,
      );
    this.#handler = handler;
    this.#asyncContext = handler === null ? null : captureContext('IWARP_CHANNEL');
    this.#deliver();
  }

  /** Destroy the channel. ERR_IN_USE while completion queues report here. */
  destroy(): void {
    if (this.users > 0)
      throw new IwarpError('ERR_IN_USE', `${this.users} completion queues report to the channel`);
    this.#destroyed = true;
    this.#ready.clear();
    while (this.#waiters.next());
  }

  /** @internal A completion queue gives its notification. */
  notify(cq: CompletionQueue): void {
    this.#ready.add(cq);
    this.#deliver();
    this.#waiters.next();
  }

  /** @internal The queue has been destroyed. */
  forget(cq: CompletionQueue): void {
    this.users--;
    this.#ready.delete(cq);
  }

  #deliver(): void {
    const handler = this.#handler;
    const context = this.#asyncContext;
    if (handler === null || context === null) return;
    for (let cq = this.getEvent(); cq !== null; cq = this.getEvent()) {
      const ready = cq;
      this.device.defer(() => context.runInAsyncScope(handler, undefined, ready));
    }
  }
}
