/**
 * A shared receive queue whose streams are in an engine: posted receives are handed on, as fast as the ring
 * takes them.
 */
import type { QueueForwarder, ReceiveQueue } from '../../queues/work.ts';
import type { EngineProxy } from './worker-engine.ts';
import { putReceive, TO_ENGINE } from '../channel/records.ts';

/** A shared receive queue on its engine. */
export class SharedQueue implements QueueForwarder {
  readonly number: number;
  readonly #engine: EngineProxy;
  readonly #queue: ReceiveQueue;
  #depth: number;

  constructor(engine: EngineProxy, number: number, queue: ReceiveQueue) {
    this.#engine = engine;
    this.number = number;
    this.#queue = queue;
    this.#depth = queue.depth;
    engine.host.command({ type: 'shared-queue', srq: number, depth: queue.depth });
    queue.forwarder = this;
    this.forward();
  }

  posted(): void {
    this.forward();
  }

  destroyed(): void {
    this.#queue.forwarder = null;
    this.#engine.forgetShared(this, this.#queue);
    this.#engine.host.command({ type: 'drop-shared', srq: this.number });
  }

  forward(): boolean {
    const { host } = this.#engine;
    if (host.state !== 'running') return true;
    if (this.#queue.failed) host.command({ type: 'fail-shared', srq: this.number });
    if (this.#queue.depth > this.#depth) {
      this.#depth = this.#queue.depth;
      host.command({ type: 'resize-shared', srq: this.number, depth: this.#depth });
    }
    for (let wqe = this.#queue.forwardNext(); wqe !== null; wqe = this.#queue.forwardNext()) {
      if (host.outbox.open && putReceive(host.outbox, TO_ENGINE.SHARED_RECEIVE, this.number, wqe)) continue;
      this.#queue.unforward(false);
      host.outbox.publish();
      this.#engine.stall(this);
      return false;
    }
    this.#engine.publishReceives();
    return true;
  }
}
