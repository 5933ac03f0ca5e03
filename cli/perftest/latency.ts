/**
 * The test phase of the latency programs. write_lat: both sides watch the last octet of their receive area,
 * each Write's last octet is the low part of its number, and the server writes first. send_lat: ping-pong of
 * Sends, the client's first; of Writes with Immediate Data, the server's first. read_lat, atomic_lat: the
 * client reads, one at a time. Stock programs spin on memory; here each arrival of octets is a look.
 */
import type { WorkCompletion } from '../../src/verbs/cq.ts';
import type { CloseInfo } from '../../src/api/errors.ts';
import { OWN_WORK } from '../support/session.ts';
import type { Tool } from '../support/tool.ts';
import { callAt, TestClock } from './clock.ts';
import type { DataConnections } from './data.ts';
import { latencyFigures, type LatencyByTime, type LatencyFigures } from './report.ts';
import { operation } from './operation.ts';
import { firstReceives, takesReceives, type Settings } from './settings.ts';
import type { Destination } from './wire.ts';

const OPERATION = OWN_WORK;
const RECEIVE = OWN_WORK + 1;

interface LatencyOptions {
  readonly tool: Tool;
  readonly s: Settings;
  readonly data: DataConnections;
  readonly remote: Destination;
  readonly size: number;
}

export type LatencyResult =
  | { readonly by: 'count'; readonly figures: LatencyFigures; readonly samples: readonly number[] }
  | { readonly by: 'time'; readonly figures: LatencyByTime; readonly utilization: number };

export class LatencyRun {
  readonly #o: LatencyOptions;
  readonly #server: boolean;
  readonly #times: number[] = [];
  readonly #clock: TestClock | null;
  readonly #limit: number;
  #sent = 0;
  #completed = 0;
  #received = 0;
  #receivesPosted = 0;
  #sampled = 0;
  #over = false;
  #stopGap: (() => void) | null = null;
  #resolve: (() => void) | null = null;

  constructor(options: LatencyOptions) {
    const { s } = options;
    this.#o = options;
    this.#server = s.machine === 'server';
    this.#clock = s.duration === null ? null : new TestClock(s, () => this.#finish());
    this.#limit = s.duration === null ? s.iterations : Number.POSITIVE_INFINITY;
  }

  /** Post receives: to be done before the peer may send. */
  prepare(): void {
    const { data, s } = this.#o;
    data.onCompletion = (_qp, wc) => this.#completion(wc);
    data.endsTest = (info) => this.#endedByPeer(info);
    if (takesReceives(s)) for (let n = 0; n < firstReceives(s); n++) this.#postReceive();
  }

  async run(): Promise<LatencyResult> {
    const { tool, s } = this.#o;
    const finished = new Promise<void>((resolve) => (this.#resolve = resolve));
    const stop = tool.onArrival(() => this.#look());
    // The server of send_lat starts its clock with the first message.
    if (!(this.#server && s.program.verb === 'send')) this.#clock?.start();
    if (this.#begins()) this.#post();
    else this.#look();
    try {
      await Promise.race([finished, tool.failed]);
    } finally {
      this.#clock?.stop();
      this.#stopGap?.();
      this.#over = true;
      stop();
    }
    return this.#result();
  }

  #begins(): boolean {
    const { verb } = this.#o.s.program;
    return verb === 'write' ? this.#server : !this.#server;
  }

  /** One operation, after the gap that is asked for. */
  #post(): void {
    const { latencyGap } = this.#o.s;
    if (latencyGap === 0) this.#postNow();
    else this.#stopGap = callAt(performance.now() + latencyGap / 1000, () => this.#postNow());
  }

  #postNow(): void {
    const { data, s, size, remote } = this.#o;
    const { qp } = data.sessions[0]!;
    if (this.#over || this.#sent >= this.#limit || qp.state !== 'rts') return;
    if (this.#clock === null) this.#times.push(performance.now());
    this.#sent++;
    if (s.program.verb === 'write') data.memory(0).bytes[size - 1] = this.#sent & 0xff;
    const place = { qp: 0, remote, size, step: 0 };
    qp.postSend(operation(s, data, place, { wrId: OPERATION, signaled: true }));
  }

  /** Has the peer's next Write come? */
  #look(): void {
    const { data, s, size } = this.#o;
    if (this.#over || s.program.verb !== 'write' || s.immediate || this.#received >= this.#limit) return;
    // Nothing of ours is outstanding but what the peer has answered, so one look finds at most one.
    if (data.memory(0).bytes[data.receiveOffset(0) + size - 1] !== ((this.#received + 1) & 0xff)) return;
    this.#received++;
    this.#post();
    this.#checkFinished();
  }

  #completion(wc: WorkCompletion): void {
    if (wc.status !== 'success' || this.#over) return;
    if (wc.wrId === RECEIVE) this.#messageReceived();
    else this.#operationCompleted();
    this.#checkFinished();
  }

  #operationCompleted(): void {
    const { verb } = this.#o.s.program;
    this.#completed++;
    if (verb !== 'send') this.#sample();
    if (verb === 'read' || verb === 'atomic') {
      this.#received++;
      this.#post();
    }
  }

  #messageReceived(): void {
    const { s } = this.#o;
    const sends = s.program.verb === 'send';
    if (sends && this.#received === 0 && this.#server) this.#clock?.start();
    this.#received++;
    if (sends) this.#sample();
    if (s.duration !== null || this.#receivesPosted < s.iterations) this.#postReceive();
    this.#post();
  }

  #sample(): void {
    if (this.#clock?.phase === 'sample') this.#sampled++;
  }

  #postReceive(): void {
    const { data, size, s } = this.#o;
    const sges = [{ mr: data.memory(0), offset: data.receiveOffset(0), length: size }];
    data.postReceives(0, [s.immediate ? { wrId: RECEIVE } : { wrId: RECEIVE, sges }]);
    this.#receivesPosted++;
  }

  #checkFinished(): void {
    if (this.#completed >= this.#limit && this.#received >= this.#limit) this.#finish();
  }

  /**
   * write_lat by time has no last word: each side disconnects by its own clock, and the one that is behind
   * watches its memory until its own is over, with a result. So the peer may leave in the second half; before
   * that it is reported as lost.
   */
  #endedByPeer({ terminate }: CloseInfo): boolean {
    return (
      this.#o.s.program.verb === 'write' &&
      this.#clock !== null &&
      terminate === undefined &&
      this.#clock.cut()
    );
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    // write_lat ends without a word: from here on the peer may leave.
    if (this.#o.s.program.verb === 'write' && !this.#o.s.all) this.#o.data.finished = true;
    this.#resolve?.();
  }

  #result(): LatencyResult {
    const { s, size } = this.#o;
    const trips = s.program.verb === 'read' || s.program.verb === 'atomic' ? 1 : 2;
    if (this.#clock !== null) {
      const microseconds = (this.#clock.sampleEnded - this.#clock.sampleBegan) * 1000;
      const average = this.#sampled === 0 ? 0 : microseconds / this.#sampled / trips;
      return {
        by: 'time',
        figures: {
          size,
          iterations: this.#sampled,
          average,
          perSecond: this.#sampled / (microseconds / 1e6),
        },
        utilization: this.#clock.utilization,
      };
    }
    const unit = (1000 * (s.cycles ?? 1)) / trips;
    const samples = this.#times.slice(1).map((time, i) => (time - this.#times[i]!) * unit);
    return { by: 'count', figures: latencyFigures(size, s.iterations, samples), samples };
  }
}
