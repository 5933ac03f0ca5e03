/**
 * The test phase of the bandwidth programs: post operations as far as the queue, and for Sends the peer's
 * credits, allow; receive and give credits; measure. One object runs one size, in either direction or both.
 *
 * Credits of send_bw on iWARP: a receiver has `rxDepth` receives posted and Writes its count of received
 * messages into the sender's credit word every third of that; a sender stays below `rxDepth` messages that it
 * does not know yet. Immediate Data has no credits, in the stock programs neither.
 */
import type { SendWorkRequest } from '../../src/verbs/post.ts';
import type { WorkCompletion } from '../../src/verbs/cq.ts';
import { OWN_WORK } from '../support/session.ts';
import type { Tool } from '../support/tool.ts';
import { callAt, LapTimer, TestClock } from './clock.ts';
import type { SystemData } from './control.ts';
import type { DataConnections } from './data.ts';
import { operation } from './operation.ts';
import { peakRate } from './peak.ts';
import { RateLimiter } from './rate.ts';
import { unitOctets } from './report.ts';
import { creditsEvery, firstReceives, type Settings } from './settings.ts';
import { encodeCredit, type BandwidthFigures, type Destination } from './wire.ts';

const OPERATION = OWN_WORK;
const CREDIT = OWN_WORK + 1;
const RECEIVE = OWN_WORK + 2;
const WARM_UP = OWN_WORK + 3;

interface QpState {
  posted: number;
  completed: number;
  received: number;
  receivesPosted: number;
  /** Receives that messages have taken since the last list of receives was posted. */
  receivesUsed: number;
  /** A credit that found no room in the send queue. */
  owed: boolean;
}

interface RunOptions {
  readonly tool: Tool;
  readonly s: Settings;
  readonly system: SystemData;
  readonly data: DataConnections;
  readonly remote: readonly Destination[];
  readonly size: number;
  readonly sends: boolean;
  readonly receives: boolean;
  /** Begin sending only after something has been received: the server of a bidirectional send test. */
  readonly waits: boolean;
}

export class BandwidthRun {
  readonly #o: RunOptions;
  readonly #qps: QpState[];
  readonly #total: number;
  readonly #posted: Float64Array;
  readonly #done: Float64Array;
  readonly #clock: TestClock | null;
  /**
   * Operations per completion: every one in a test by time, so that its end can wait for all that is still
   * out.
   */
  readonly #every: number;
  #draining = false;
  #sending: boolean;
  #allPosted = 0;
  #allCompleted = 0;
  #allReceived = 0;
  #sampled = 0;
  #began = 0;
  #ended = 0;
  #over = false;
  #posting = false;
  #limiter: RateLimiter | null = null;
  #stopWait: (() => void) | null = null;
  #warming = 0;
  #warm: (() => void) | null = null;
  #resolve: (() => void) | null = null;

  constructor(options: RunOptions) {
    const { s } = options;
    this.#o = options;
    this.#qps = Array.from({ length: s.qps }, () => ({
      posted: 0,
      completed: 0,
      received: 0,
      receivesPosted: 0,
      receivesUsed: 0,
      owed: false,
    }));
    const byTime = s.duration !== null || s.infinitely;
    this.#every = byTime ? 1 : s.cqMod;
    this.#total = byTime ? Number.POSITIVE_INFINITY : s.iterations * s.qps;
    const peak = s.peak && options.sends ? this.#total : 0;
    this.#posted = new Float64Array(peak);
    this.#done = new Float64Array(peak);
    this.#sending = options.sends && !options.waits;
    this.#clock = s.duration === null || s.infinitely ? null : new TestClock(s, () => this.#drain());
  }

  /** Post the receives and clear the credit words: to be done before the peer may send. */
  prepare(): void {
    const { data, s, receives } = this.#o;
    data.onCompletion = (qp, wc) => this.#completion(qp, wc);
    if (!receives) return;
    for (let i = 0; i < s.qps; i++)
      for (let n = 0; n < firstReceives(s); n += s.recvPostList) this.#postReceives(i, n > 0);
  }

  /** Operations that count for nothing, to fill caches: as many as the queues take, or one list. */
  async warmUp(): Promise<void> {
    const { s, data, tool } = this.#o;
    const operations = s.postList === 1 ? s.txDepth : s.postList;
    const done = new Promise<void>((resolve) => (this.#warm = resolve));
    this.#warming = s.qps;
    for (const [i, { qp }] of data.sessions.entries()) {
      for (let n = 1; n <= operations && qp.state === 'rts'; n++)
        qp.postSend(this.#request(i, n - 1, n === operations, WARM_UP));
    }
    await Promise.race([done, tool.failed]);
  }

  /** The peer's credits of this size count from zero. */
  clearCredits(): void {
    this.#o.data.credits.bytes.fill(0);
  }

  /** Run to the end. */
  async run(): Promise<BandwidthFigures> {
    const { tool, receives, sends } = this.#o;
    const stop = tool.onArrival(() => this.#pump());
    const finished = new Promise<void>((resolve) => (this.#resolve = resolve));
    const { rate } = this.#o.s;
    if (this.#sending) {
      this.#began = performance.now();
      if (rate !== null) this.#limiter = new RateLimiter(rate, this.#began);
      this.#clock?.start();
      this.#pump();
    }
    this.#checkFinished();
    const progress = this.#o.s.infinitely ? new LapTimer(this.#lapSeconds(), () => this.#lap()) : undefined;
    try {
      await Promise.race([finished, tool.failed]);
    } finally {
      progress?.stop();
      this.#clock?.stop();
      this.#stopWait?.();
      this.#over = true;
      stop();
    }
    return this.#figures(sends || receives);
  }

  /** Use of the processors in a test by time, in percent. */
  get utilization(): number {
    return this.#clock?.utilization ?? 0;
  }

  /** Called with the figures of each lap of a test that runs for ever. */
  onLap: (figures: BandwidthFigures) => void = () => undefined;

  #lapSeconds(): number {
    const DEFAULT_LAP_S = 5;
    return this.#o.s.duration ?? DEFAULT_LAP_S;
  }

  #lap(): void {
    this.#ended = performance.now();
    this.onLap(this.#figures(true));
    this.#began = this.#ended;
    this.#allCompleted = 0;
    this.#allReceived = 0;
  }

  // ------------------------------------------------------------------------------------------------- sending

  #pump(): void {
    if (!this.#sending || this.#over || this.#posting || this.#draining) return;
    this.#posting = true;
    const { s, data } = this.#o;
    for (let i = 0; i < s.qps; i++) {
      const { qp } = data.sessions[i]!;
      while (this.#mayPost(i) && qp.state === 'rts') {
        if (!this.#isTime()) break;
        qp.postSend(this.#next(i));
        this.#limiter?.take(s.postList);
      }
    }
    this.#posting = false;
  }

  /** Whether the rate limit lets operations go now; if not, it will be asked again when it does. */
  #isTime(): boolean {
    if (this.#limiter === null) return true;
    const now = performance.now();
    const wait = this.#limiter.wait(now);
    if (wait > 0) {
      this.#stopWait ??= callAt(now + wait, () => {
        this.#stopWait = null;
        this.#pump();
      });
    }
    return wait === 0;
  }

  #mayPost(i: number): boolean {
    const { s, data } = this.#o;
    const state = this.#qps[i]!;
    if (s.duration === null && !s.infinitely && state.posted >= s.iterations) return false;
    if (state.posted - state.completed + s.postList > s.txDepth) return false;
    if (s.program.verb !== 'send') return true;
    return (state.posted + s.postList - data.credit(i)) >>> 0 < s.rxDepth;
  }

  /** The next list of operations of queue pair `i`. */
  #next(i: number): SendWorkRequest[] {
    const { s } = this.#o;
    const state = this.#qps[i]!;
    const list: SendWorkRequest[] = [];
    for (let n = 0; n < s.postList; n++) {
      const signaled =
        (state.posted + 1) % this.#every === 0 || (state.posted + 1 === s.iterations && s.duration === null);
      list.push(this.#request(i, state.posted, signaled, OPERATION));
      if (this.#posted.length > 0) this.#posted[this.#allPosted] = performance.now();
      state.posted++;
      this.#allPosted++;
    }
    return list;
  }

  #request(i: number, sequence: number, signaled: boolean, wrId: number): SendWorkRequest {
    const { s, data, size, remote } = this.#o;
    const place = { qp: i, remote: remote[i]!, size, step: this.#stepOf(sequence) };
    return operation(s, data, place, { wrId, signaled });
  }

  /** Small operations walk through one cycle buffer, so that not all of them touch the same lines. */
  #stepOf(sequence: number): number {
    const { size, system } = this.#o;
    if (size > system.cycleBuffer / 2) return 0;
    const step = Math.ceil(size / system.cacheLine) * system.cacheLine;
    return (sequence % Math.floor(system.cycleBuffer / step)) * step;
  }

  // --------------------------------------------------------------------------------------------- completions

  #completion(i: number, wc: WorkCompletion): void {
    if (wc.status !== 'success' || this.#over) return; // a failure comes with the end of its connection
    if (wc.wrId === WARM_UP) {
      if (--this.#warming === 0) this.#warm?.();
      return;
    }
    if (wc.wrId === RECEIVE) this.#received(i);
    else if (wc.wrId === OPERATION) this.#completed(i);
    const state = this.#qps[i]!;
    if (state.owed) this.#giveCredit(i);
    this.#checkFinished();
    this.#pump();
  }

  #completed(i: number): void {
    const { s } = this.#o;
    const state = this.#qps[i]!;
    const byTime = s.duration !== null || s.infinitely;
    const count = byTime ? 1 : Math.min(this.#every, s.iterations - state.completed);
    state.completed += count;
    this.#allCompleted += count;
    const now = performance.now();
    if (this.#done.length > 0) this.#done[this.#allCompleted - 1] = now;
    if (this.#clock?.phase === 'sample') this.#sampled += count;
    this.#ended = now;
  }

  #received(i: number): void {
    const { s, waits } = this.#o;
    const state = this.#qps[i]!;
    if (this.#allReceived === 0 && (waits || !this.#o.sends)) {
      this.#began = performance.now();
      this.#clock?.start();
      this.#sending = this.#o.sends;
    }
    state.received++;
    this.#allReceived++;
    if (this.#clock?.phase === 'sample') this.#sampled++;
    state.receivesUsed++;
    if (state.receivesUsed >= s.recvPostList) this.#postReceives(i, true);
    if (s.program.verb === 'send' && (state.received % s.rxDepth) % creditsEvery(s.rxDepth) === 0)
      this.#giveCredit(i);
    if (!this.#o.sends) this.#ended = performance.now();
  }

  /** Post a list of receives: unless there are enough for all messages that come, if `bounded`. */
  #postReceives(i: number, bounded: boolean): void {
    const { data, s, size } = this.#o;
    const state = this.#qps[i]!;
    const byTime = s.duration !== null || s.infinitely;
    if (bounded && !byTime && state.receivesPosted + s.recvPostList > s.iterations) return;
    const list = Array.from({ length: s.recvPostList }, () => {
      const offset = data.receiveOffset(i) + this.#stepOf(state.receivesPosted++);
      return s.immediate
        ? { wrId: RECEIVE }
        : { wrId: RECEIVE, sges: [{ mr: data.memory(i), offset, length: size }] };
    });
    data.postReceives(i, list);
    state.receivesUsed = Math.max(0, state.receivesUsed - s.recvPostList);
  }

  #giveCredit(i: number): void {
    const { data, remote } = this.#o;
    const state = this.#qps[i]!;
    const { qp } = data.sessions[i]!;
    if (qp.state !== 'rts') return;
    state.owed = qp.query().sendOutstanding >= qp.query().maxSendWr;
    if (state.owed) return;
    const { rkey, vaddr } = remote[i]!;
    qp.postSend({
      opcode: 'rdma-write',
      wrId: CREDIT,
      inline: encodeCredit(state.received),
      rkey,
      remoteAddr: vaddr,
    });
  }

  // ------------------------------------------------------------------------------------------------- the end

  /** Ends the timed run: posts no more, and lets the posted requests leave before the peer disconnects. */
  #drain(): void {
    this.#draining = true;
    this.#checkFinished();
  }

  #checkFinished(): void {
    if (this.#draining) {
      if (this.#qps.every((state) => state.posted === state.completed)) this.#finish();
      return;
    }
    if (this.#o.sends && this.#allCompleted < this.#total) return;
    if (this.#o.receives && this.#allReceived < this.#total) return;
    this.#finish();
  }

  #finish(): void {
    this.#over = true;
    this.#resolve?.();
  }

  #figures(any: boolean): BandwidthFigures {
    const { s, size } = this.#o;
    const clock = this.#clock;
    const seconds =
      clock === null ? (this.#ended - this.#began) / 1000 : (clock.sampleEnded - clock.sampleBegan) / 1000;
    const counted = this.#o.sends ? this.#allCompleted : this.#allReceived;
    const iterations = clock === null ? counted : this.#sampled;
    const unit = unitOctets(s);
    const per = (value: number): number => (any && seconds > 0 ? value / seconds : 0);
    return {
      size,
      iterations,
      peak: (peakRate(this.#posted, this.#done, s.postList) * 1000 * size) / unit,
      average: per(iterations * size) / unit,
      messageRate: per(iterations) / 1e6,
    };
  }
}
