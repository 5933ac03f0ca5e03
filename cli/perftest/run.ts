/**
 * One run of a perftest program, from the control connection to the last line. Read linux-rdma/perftest's
 * order of steps in control.ts.
 */
import { IwarpError } from '../../src/base/errors.ts';
import type { OutputFile } from '../support/output-file.ts';
import type { Session } from '../support/session.ts';
import { withFile } from '../support/system-errors.ts';
import type { RequestQueue, Tool } from '../support/tool.ts';
import { BandwidthRun } from './bandwidth.ts';
import { callAt } from './clock.ts';
import { Control, type SystemData } from './control.ts';
import { DataConnections } from './data.ts';
import { LatencyRun, type LatencyResult } from './latency.ts';
import {
  addressLines,
  bandwidthJson,
  bandwidthLine,
  banner,
  cpuJson,
  heading,
  inOurUnit,
  latencyByTimeJson,
  latencyByTimeLine,
  jsonText,
  latencyJson,
  latencyLine,
  LINE,
  type JsonRow,
} from './report.ts';
import { takesReceives, type Settings } from './settings.ts';
import type { BandwidthFigures, Destination } from './wire.ts';

const CONTROL_DEPTH = 2;
/**
 * How long to wait with the disconnect after the last word: a siw peer that hears of the disconnect before it
 * has taken the completion of its last Send, or our answer to it, reports a failure.
 */
const LAST_WORD_MS = 50;
/**
 * write_lat by time ends on each side by its own clock, without a word: a peer that is behind must still find
 * us there.
 */
const OTHER_CLOCK_MS = 1_000;

export class PerftestRun {
  readonly #tool: Tool;
  readonly #s: Settings;
  readonly #json: OutputFile | null;
  readonly #rows: JsonRow[] = [];
  #control!: Control;
  #system!: SystemData;
  #data!: DataConnections;
  #remote: Destination[] = [];
  #limitsMet = true;

  constructor(tool: Tool, s: Settings, json: OutputFile | null) {
    this.#tool = tool;
    this.#s = s;
    this.#json = json;
  }

  get #full(): boolean {
    return this.#s.output === 'full';
  }

  #say(line: string): void {
    if (this.#full) this.#tool.say(line);
  }

  /** The exit status. */
  async run(): Promise<number> {
    const { kind } = this.#s.program;
    const session = this.#tool.session({ maxSendWr: CONTROL_DEPTH, maxRecvWr: CONTROL_DEPTH });
    this.#control = new Control(session, this.#s.host === undefined ? 'server' : 'client');
    await this.#connect(session);
    for (const line of banner(this.#s, this.#system.mtu)) this.#say(line);
    await this.#exchangeDestinations();
    this.#say(LINE);
    // The stock servers of read_lat and atomic_lat, which have no figures, show no line above them either.
    if (!this.#passiveLatency) this.#say(heading(this.#s));
    if (kind === 'bw') await this.#bandwidth();
    else await this.#latency();
    this.#data.finished = true;
    this.#say(LINE);
    const json = this.#json;
    if (json !== null) withFile(json.path, () => json.write(jsonText(this.#s, this.#system.mtu, this.#rows)));
    await this.#waitDestroy();
    if (this.#s.host === undefined) {
      await this.#linger();
      await this.#data.close();
    } else await this.#data.ended();
    await session.close();
    return this.#limitsMet ? 0 : 1;
  }

  /** True for a side of a latency test that only lets the other one work. */
  get #passiveLatency(): boolean {
    const { machine, program } = this.#s;
    return (
      machine === 'server' && program.kind === 'lat' && (program.verb === 'read' || program.verb === 'atomic')
    );
  }

  /** The time of `--wait_destroy`, in which the peer may leave. */
  async #waitDestroy(): Promise<void> {
    const { waitDestroy } = this.#s;
    if (waitDestroy === 0) return;
    this.#tool.say(` Waiting ${waitDestroy} seconds before releasing resources...`);
    const resume = this.#tool.rest();
    let stop = (): void => undefined;
    const over = new Promise<void>((resolve) => {
      stop = callAt(performance.now() + waitDestroy * 1000, resolve);
    });
    try {
      await Promise.race([over, this.#tool.failed]);
    } finally {
      stop();
      resume();
    }
  }

  /** Let the client come to its end before the server disconnects. */
  async #linger(): Promise<void> {
    const { program, duration } = this.#s;
    const silentEnd = program.verb === 'write' && program.kind === 'lat' && duration !== null;
    let timer: NodeJS.Timeout | undefined;
    const pause = new Promise<void>(
      (resolve) => (timer = setTimeout(resolve, silentEnd ? OTHER_CLOCK_MS : LAST_WORD_MS)),
    );
    await Promise.race([pause, ...this.#data.sessions.map((session) => session.closed)]);
    clearTimeout(timer);
  }

  // -------------------------------------------------------------------------------------------------- set-up

  async #connect(session: Session): Promise<void> {
    const s = this.#s;
    let requests: RequestQueue | null = null;
    if (s.host === undefined) {
      this.#say(`\n${'*'.repeat(36)}\n* Waiting for client to connect... *\n${'*'.repeat(36)}`);
      requests = await this.#tool.listen({ host: s.sourceAddress, port: s.port });
      const request = await requests.next();
      session.use(request);
      request.accept(session.qp, { responderResources: 0, initiatorDepth: 0 });
    } else {
      this.#tool.check();
      session.use(
        this.#tool.rnic.cm.connect(session.qp, {
          ...this.#tool.target({ host: s.host, port: s.port, source: s.sourceAddress }),
          policy: this.#tool.policy,
          responderResources: 0,
          initiatorDepth: 0,
        }),
      );
    }
    await session.established;
    void session.closed.then((info) => {
      if ((this.#data as DataConnections | undefined) === undefined) this.#tool.fail(info.error!);
      else this.#data.left(info);
    });
    this.#system = await this.#control.exchangeSystemData({
      mtu: s.mtu,
      exchangeVersions: s.exchangeVersions,
    });
    this.#data = new DataConnections(this.#tool, s, this.#system, session);
    await this.#control.handshake();
    if (requests === null) {
      await this.#data.connect(session, s.host!, s.port);
    } else {
      await this.#data.accept(session, requests);
      await requests.close();
    }
    await this.#control.handshake();
  }

  async #exchangeDestinations(): Promise<void> {
    const { verb, kind } = this.#s.program;
    if (verb === 'send') {
      await this.#eachQp();
      await this.#sync();
      await this.#eachQp();
    } else {
      if (kind === 'lat') await this.#sync();
      await this.#eachQp();
      await this.#eachQp();
      await this.#sync();
    }
    for (let i = 0; i < this.#s.qps; i++)
      for (const line of addressLines(this.#s, 'local', this.#data.destination(i))) this.#say(line);
    for (const theirs of this.#remote)
      for (const line of addressLines(this.#s, 'remote', theirs)) this.#say(line);
  }

  async #eachQp(): Promise<void> {
    const remote: Destination[] = [];
    for (let i = 0; i < this.#s.qps; i++)
      remote.push(await this.#control.handshake(this.#data.destination(i)));
    this.#remote = remote;
  }

  /** A handshake for nothing but to wait for each other. */
  async #sync(): Promise<void> {
    await this.#control.handshake(this.#data.destination(0));
  }

  /** The sizes of the test. */
  #sizes(): number[] {
    return this.#s.all ? Array.from({ length: 23 }, (_, i) => 2 << i) : [this.#s.size];
  }

  // ----------------------------------------------------------------------------------------------- bandwidth

  async #bandwidth(): Promise<void> {
    const s = this.#s;
    const server = s.machine === 'server';
    if (takesReceives(s)) await this.#receivedBandwidth(server);
    else if (server && !s.bidirectional) await this.#passive();
    else await this.#activeBandwidth(server);
  }

  /** The server of a write or read test has nothing to do: it waits for the client's figures. */
  async #passive(): Promise<void> {
    await this.#sync();
    this.#reportBandwidth(await this.#exchangeFigures(EMPTY_FIGURES), null, 0);
    await this.#sync();
  }

  async #activeBandwidth(server: boolean): Promise<void> {
    const { bidirectional, all } = this.#s;
    let figures = EMPTY_FIGURES;
    for (const size of this.#sizes()) {
      const run = this.#bandwidthRun(size, true, false, false);
      run.prepare();
      if (this.#s.warmUp) await run.warmUp();
      if (bidirectional) await this.#sync();
      figures = await run.run();
      if (bidirectional && all) await this.#sync();
      const theirs = bidirectional ? await this.#exchangeFigures(figures) : null;
      this.#reportBandwidth(figures, theirs, run.utilization);
    }
    if (!bidirectional && !server) {
      await this.#sync();
      await this.#exchangeFigures(figures);
    }
    await this.#sync();
  }

  /** Sends, and Writes with Immediate Data: the receiver counts messages. */
  async #receivedBandwidth(server: boolean): Promise<void> {
    const { bidirectional, all, duration, immediate } = this.#s;
    for (const size of this.#sizes()) {
      const run = this.#bandwidthRun(
        size,
        !server || bidirectional,
        server || bidirectional,
        server && bidirectional,
      );
      run.prepare();
      run.clearCredits();
      await this.#sync();
      const figures = await run.run();
      if (all && immediate) await this.#sync();
      const theirs = bidirectional && duration === null ? await this.#exchangeFigures(figures) : null;
      this.#reportBandwidth(figures, theirs, run.utilization);
      if (all && !immediate) await this.#sync();
    }
    await this.#sync();
  }

  #bandwidthRun(size: number, sends: boolean, receives: boolean, waits: boolean): BandwidthRun {
    const run = new BandwidthRun({
      tool: this.#tool,
      s: this.#s,
      system: this.#system,
      data: this.#data,
      remote: this.#remote,
      size,
      sends,
      receives,
      waits,
    });
    run.onLap = (figures) => this.#reportBandwidth(figures, null, 0);
    return run;
  }

  async #exchangeFigures(mine: BandwidthFigures): Promise<BandwidthFigures> {
    return inOurUnit(this.#s, await this.#control.exchangeFigures(mine));
  }

  #reportBandwidth(mine: BandwidthFigures, theirs: BandwidthFigures | null, cpu: number): void {
    const s = this.#s;
    const figures =
      theirs === null
        ? mine
        : {
            size: mine.size,
            iterations: mine.iterations,
            peak: mine.peak + theirs.peak,
            average: mine.average + theirs.average,
            messageRate: mine.messageRate + theirs.messageRate,
          };
    this.#rows.push({ ...bandwidthJson(figures), ...cpuJson(s, cpu) });
    this.#tool.say(bandwidthLine(s, figures, cpu));
    if (s.reportBoth && theirs !== null) {
      for (const [side, each] of [
        ['Local', mine],
        ['Remote', theirs],
      ] as const) {
        for (const line of [LINE, `\n ${side} results: `, LINE, heading(s), bandwidthLine(s, each, cpu)])
          this.#say(line);
      }
    }
    if (s.minBandwidth !== null && figures.average < s.minBandwidth)
      this.#miss('BW result is below bw limit');
    if (s.minMessageRate !== null && figures.messageRate < s.minMessageRate)
      this.#miss('Msg rate  is below msg_rate limit');
  }

  #miss(what: string): void {
    this.#limitsMet = false;
    this.#tool.complain(`Error: ${what}`);
  }

  // ------------------------------------------------------------------------------------------------- latency

  async #latency(): Promise<void> {
    const s = this.#s;
    const { verb } = s.program;
    if (this.#passiveLatency) {
      await this.#sync();
      return;
    }
    const sizes = this.#sizes();
    for (const [i, size] of sizes.entries()) {
      const run = new LatencyRun({
        tool: this.#tool,
        s: { ...s, all: s.all && i < sizes.length - 1 },
        data: this.#data,
        remote: this.#remote[0]!,
        size,
      });
      run.prepare();
      if (takesReceives(s)) await this.#sync();
      this.#reportLatency(await run.run());
    }
    if (verb !== 'write') await this.#sync();
  }

  #reportLatency(result: LatencyResult): void {
    const s = this.#s;
    if (result.by === 'time') {
      this.#rows.push({ ...latencyByTimeJson(result.figures), ...cpuJson(s, result.utilization) });
      this.#tool.say(latencyByTimeLine(s, result.figures, result.utilization));
      return;
    }
    if (s.unsorted) this.#listSamples(result.samples);
    if (s.histogram) this.#listSamples([...result.samples].sort((a, b) => a - b));
    if (s.unsorted || s.histogram) {
      this.#say(LINE);
      this.#say(heading(s));
    }
    this.#rows.push(latencyJson(result.figures));
    this.#tool.say(latencyLine(s, result.figures));
  }

  #listSamples(samples: readonly number[]): void {
    this.#tool.say(`#, ${this.#s.cycles === null ? 'usec' : 'cycles'}`);
    for (const [i, sample] of samples.entries()) this.#tool.say(`${i + 1}, ${Number(sample.toPrecision(6))}`);
  }
}

const EMPTY_FIGURES: BandwidthFigures = { size: 0, iterations: 0, peak: 0, average: 0, messageRate: 0 };

/** The words that the program prints about an error that ended it. */
export function describeFailure(error: IwarpError): string {
  if (error.code === 'ERR_CONNECT' || error.code === 'ERR_REJECTED' || error.code === 'ERR_STARTUP') {
    return ` Unable to init the socket connection: ${error.message}`;
  }
  return ` Failed to exchange data between server and clients: ${error.message}`;
}
