/**
 * One connection whose stream is in an engine, as its queue pair and its connection here see it: hands
 * posted requests on to the engine, as fast as the ring takes it, and applies the completions that come back
 * to the same queues.
 */
import type { IwarpError } from '../../base/errors.ts';
import type { LinkHandler, StreamLink } from '../engine.ts';
import type { DepthRequest } from '../../mpa/negotiate.ts';
import { noCounters } from '../../rdmap/counters.ts';
import type { StreamCounters } from '../../stream/types.ts';
import type { ReceiveWqe } from '../../queues/work.ts';
import type { PortAddress } from '../../transport/port.ts';
import type { TlsInfo } from '../../transport/tls-options.ts';
import { unpackError, type Command, type EngineEvent, type LinkPath } from '../channel/messages.ts';
import type { EngineProxy } from './worker-engine.ts';
import { WC_STATUSES } from '../../queues/completion.ts';
import { putReceive, putSend, RECEIVED, TO_ENGINE } from '../channel/records.ts';
import type { StreamEndpoint } from '../../queues/endpoint.ts';

/** One connection whose stream is in an engine. */
export class ProxyLink implements StreamLink {
  readonly id: number;
  readonly offloaded = true;
  handler: LinkHandler | null;
  readonly #engine: EngineProxy;
  #endpoint: StreamEndpoint | null = null;
  #state: 'connecting' | 'open' | 'gone' = 'connecting';
  /** The link holds the process: the program wants that, or requests are under way. */
  held = true;
  /** The program wants the link to hold the process. */
  #wanted = true;
  #established = false;
  #local: PortAddress | undefined;
  #remote: PortAddress | undefined;
  #mtu: number | undefined;
  #tls: TlsInfo | undefined;
  #deciding = false;
  #ord = 0;
  #counters: StreamCounters | null = null;
  /** The receive of a shared queue that a message is filling. */
  #filling: ReceiveWqe | null = null;
  /** After a close nothing that is posted goes out. */
  #limit = Number.POSITIVE_INFINITY;
  /** Commands that wait behind requests which found no room. */
  readonly #behind: Command[] = [];
  #sendDepth = 0;
  #receiveDepth = 0;

  constructor(engine: EngineProxy, id: number, handler: LinkHandler | null) {
    this.#engine = engine;
    this.id = id;
    this.handler = handler;
  }

  get opened(): boolean {
    return this.#local !== undefined;
  }

  get localAddress(): PortAddress | undefined {
    return this.#local;
  }

  get remoteAddress(): PortAddress | undefined {
    return this.#remote;
  }

  get mtu(): number | undefined {
    return this.#mtu;
  }

  get tls(): TlsInfo | undefined {
    return this.#tls;
  }

  get deciding(): boolean {
    return this.#deciding;
  }

  get ord(): number {
    return this.#ord;
  }

  open({ local, remote, mtu, tls }: LinkPath): void {
    this.#state = 'open';
    this.#local = local;
    this.#remote = remote;
    this.#mtu = mtu;
    this.#tls = tls;
  }

  // --------------------------------------------------------------------------------------------------- calls

  /**
   * Hand the queues over, and then send the command that uses them: nothing can come in before the receives
   * are there.
   */
  attach(endpoint: StreamEndpoint, then: Command): void {
    const srq = endpoint.rqShared ? this.#engine.sharedNumber(endpoint.rq) : 0;
    this.#endpoint = endpoint;
    const { pdHandle: pd, number: qp, rights, extensions, maxOrd, sinkRight, sq, rq } = endpoint;
    this.#sendDepth = sq.depth;
    this.#receiveDepth = rq.depth;
    this.#engine.host.command({
      type: 'endpoint',
      link: this.id,
      endpoint: {
        pd,
        qp,
        sendDepth: sq.depth,
        receiveDepth: rq.depth,
        srq,
        rights,
        extensions,
        maxOrd,
        sinkRight,
      },
    });
    this.#command(then);
  }

  /**
   * The engine may be further than this side knows: it may have opened the link and placed data. So this
   * waits until the engine places nothing more, and reads its records, for receives that it has taken from a
   * shared queue stay taken.
   */
  cancel(): boolean {
    if (this.#tooLate) return false;
    const { host } = this.#engine;
    host.command({ type: 'cancel', link: this.id });
    host.settle();
    if (this.#tooLate) return false; // opened, and reset by now; or it has failed, which is reported
    this.#leave();
    return true;
  }

  get #tooLate(): boolean {
    return this.opened || this.#state === 'gone';
  }

  checkEndpoint(endpoint: StreamEndpoint): void {
    if (endpoint.rqShared) this.#engine.checkShared(endpoint.rq);
  }

  accept(endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthRequest): void {
    this.#deciding = false;
    if (this.#state !== 'gone') this.attach(endpoint, { type: 'accept', link: this.id, privateData, wishes });
  }

  reject(privateData: Uint8Array): void {
    this.#deciding = false;
    this.#command({ type: 'reject', link: this.id, privateData });
  }

  confirm(code?: number): void {
    this.#deciding = false;
    this.#command({ type: 'confirm', link: this.id, code });
  }

  close(): void {
    this.forward();
    this.#limit = Math.min(this.#limit, this.#endpoint?.sq.head ?? 0);
    this.#command({ type: 'close', link: this.id });
  }

  terminate(code: number): void {
    this.#command({ type: 'terminate', link: this.id, code });
  }

  abort(): void {
    if (this.#state !== 'gone') this.#engine.host.command({ type: 'abort', link: this.id });
  }

  /** The engine may be further: of its later events of this link only the end is used. */
  displace(): void {
    this.handler?.event({ type: 'startup-failed', reason: 'displaced' });
    this.abort();
  }

  setRef(on: boolean): void {
    this.#wanted = on;
    this.#hold();
  }

  /**
   * The engine ends with the process, and what it has not sent is lost then: so posted requests hold the
   * process, as the system's own writes do without a worker.
   */
  #hold(): void {
    if (this.#state === 'gone') return;
    const sq = this.#endpoint?.sq;
    const on = this.#wanted || (sq !== undefined && sq.tail < sq.head);
    if (this.held === on) return;
    this.held = on;
    this.#engine.host.setRef(on);
  }

  /** A worker's transport is TCP, which can. */
  setKeepAlive(on: boolean, delay: number): boolean {
    if (this.#state !== 'gone')
      this.#engine.host.command({ type: 'set-keep-alive', link: this.id, on, delay });
    return true;
  }

  setOrd(ord: number): void {
    this.#ord = ord;
    this.#command({ type: 'set-ord', link: this.id, ord });
  }

  counters(): StreamCounters {
    if (this.#state === 'open') this.#counters = this.#engine.host.counters(this.id) ?? this.#counters;
    return this.#counters ?? noCounters();
  }

  #command(command: Command): void {
    if (this.#state === 'gone') return;
    if (this.#behind.length === 0 && this.forward()) this.#engine.host.command(command);
    else this.#behind.push(command);
  }

  kick(): void {
    this.forward();
  }

  /**
   * Hand on the posted requests, receives first: an answer may come at once. False if the ring is full; then
   * it goes on when there is room. Receives alone ring no bell: the engine looks at the ring before it takes
   * anything from the network.
   */
  forward(): boolean {
    const endpoint = this.#endpoint;
    const { host } = this.#engine;
    if (endpoint === null || this.#state === 'gone' || host.state !== 'running') return true;
    if (!this.held) this.#hold();
    const { outbox } = host;
    const { sq, rq, rqShared } = endpoint;
    this.#grow(endpoint);
    if (!rqShared) {
      for (let wqe = rq.forwardNext(); wqe !== null; wqe = rq.forwardNext()) {
        if (outbox.open && putReceive(outbox, TO_ENGINE.RECEIVE, this.id, wqe)) continue;
        rq.unforward(false);
        return this.#stall();
      }
    }
    const first = sq.next;
    for (; sq.next < sq.head && sq.next < this.#limit; sq.next++) {
      if (!outbox.open || !putSend(outbox, this.id, sq.slot(sq.next))) return this.#stall();
    }
    if (sq.next === first) this.#engine.publishReceives();
    else outbox.publish();
    if (this.#behind.length > 0) for (const command of this.#behind.splice(0)) host.command(command);
    return true;
  }

  #stall(): false {
    this.#engine.host.outbox.publish();
    this.#engine.stall(this);
    return false;
  }

  /** The engine's queues are never smaller than ours. */
  #grow({ sq, rq }: StreamEndpoint): void {
    if (sq.depth <= this.#sendDepth && rq.depth <= this.#receiveDepth) return;
    this.#sendDepth = Math.max(sq.depth, this.#sendDepth);
    this.#receiveDepth = Math.max(rq.depth, this.#receiveDepth);
    this.#engine.host.command({
      type: 'resize',
      link: this.id,
      send: this.#sendDepth,
      receive: this.#receiveDepth,
    });
  }

  // ---------------------------------------------------------------------------------- records that come back

  sent(status: number, count: number): void {
    const { sq, owner } = this.#endpoint!;
    for (let i = 0; i < count; i++) {
      const wqe = sq.slot(sq.tail);
      wqe.status = WC_STATUSES[status]!;
      if (wqe.local !== null && status === 0) {
        this.#engine.apply(wqe.local.operation);
        // another engine was found dead: the device has failed, and this has been flushed
        if (this.#state === 'gone') return;
      }
      owner.sendCompleted(wqe);
    }
    if (!this.#wanted) this.#hold();
  }

  /** A Read that is answered overtakes those in front of it (`trp: { reads: 'placed' }`). */
  advanced(places: number): void {
    const { sq } = this.#endpoint!;
    sq.advance(sq.tail + places);
  }

  taken(): void {
    const { rq, owner } = this.#endpoint!;
    this.#filling = rq.take();
    if (this.#filling === null) return;
    this.#filling.taken = true;
    owner.receiveTaken();
  }

  received(
    flags: number,
    octets: number,
    invalidated: number,
    immediateHi: number,
    immediateLo: number,
  ): void {
    const { rq, rqShared, owner } = this.#endpoint!;
    const wqe = rqShared ? this.#filling : rq.take();
    this.#filling = null;
    if (wqe === null) return;
    wqe.status = WC_STATUSES[flags & RECEIVED.STATUS]!;
    wqe.byteLength = octets;
    wqe.solicited = (flags & RECEIVED.SOLICITED) !== 0;
    wqe.invalidated = invalidated;
    wqe.hasImmediate = (flags & RECEIVED.IMMEDIATE) !== 0;
    if (wqe.hasImmediate) wqe.opcode = 'receive-immediate';
    wqe.immediateHi = immediateHi;
    wqe.immediateLo = immediateLo;
    if (!rqShared && (flags & RECEIVED.TAKEN) !== 0) {
      wqe.taken = true;
      owner.receiveTaken();
    }
    owner.receiveCompleted(wqe);
  }

  handle(event: Extract<EngineEvent, { link: number }>): void {
    const handler = this.handler;
    switch (event.type) {
      case 'opened':
        this.open(event);
        handler?.opened();
        break;
      case 'failed':
        this.#leave();
        handler?.failed(unpackError(event.error));
        break;
      case 'stream': {
        this.#ord = event.ord;
        if (event.tls !== undefined) this.#tls = event.tls;
        this.#deciding =
          event.deciding && (event.event.type === 'request' || event.event.type === 'response');
        if (event.event.type === 'established') this.#established = true;
        if (event.event.type === 'closed') {
          this.#counters = event.counters!;
          const { error } = event.event;
          this.#leave();
          handler?.event({ ...event.event, error: error === undefined ? undefined : unpackError(error) });
        } else {
          handler?.event(event.event);
        }
        break;
      }
      default:
    }
  }

  /** The engine has gone. */
  lose(error: IwarpError): void {
    const opened = this.opened;
    this.#counters ??= noCounters();
    this.#leave();
    if (opened) this.handler?.event({ type: 'closed', cause: 'lost', error });
    else this.handler?.failed(error);
  }

  /**
   * The end of the link. What the engine has not completed is in our queues still, and counts as not handed
   * on.
   */
  #leave(): void {
    this.#state = 'gone';
    this.#deciding = false;
    this.#behind.length = 0;
    this.#engine.forget(this);
    if (this.#endpoint === null) return;
    const { sq, rq, rqShared, owner } = this.#endpoint;
    if (!this.#established) sq.next = sq.tail;
    if (!rqShared) {
      rq.unforward(true);
    } else if (this.#filling !== null) {
      this.#filling.status = 'flushed';
      owner.receiveCompleted(this.#filling);
      this.#filling = null;
    }
  }
}
