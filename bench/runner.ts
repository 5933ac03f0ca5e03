/**
 * Measures groups: all pairs of processes of a group live at once, idle; round by round each has its slice of
 * time, one after the other. A slice is a moment to come up to speed and some windows; windows in which the
 * host stole time are dropped.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isRead } from './cases.ts';
import { DistanceWatch } from './distance.ts';
import { foreignShare, readTicks, type Ticks } from './machine.ts';
import { SETTLE_MS, type Method } from './method.ts';
import { nativeSlice } from './native.ts';
import { PeerProcess } from './peer-process.ts';
import type { Place } from './peers/peer.ts';
import { apart, distancesOf, isDisturbed, summarize, type Distances, type Slices } from './summary.ts';
import type {
  Case,
  CaseResult,
  CaseSpec,
  Experiment,
  ExperimentResult,
  Group,
  Health,
  LatencySlice,
  Mark,
  PeerKind,
  Window,
} from './types.ts';

/** The results of one slice. */
export interface Slice extends Taken {
  /** Nanoseconds between the processors before and after it (see distance.ts), as far as they are known. */
  readonly apart: readonly number[];
}

/** The measurements that the processes of a slice report. */
export interface Taken {
  readonly windows: readonly Window[];
  readonly latency: LatencySlice | null;
  readonly steal: number;
  readonly server: Health | null;
  readonly client: Health | null;
}

/** Client processes that start at once: more would wait for a processor. */
const START_BATCH = 4;
/** How much care is taken with a group. */
interface Care {
  /** Pairs of processes that are set up at once. */
  readonly openers: number;
  /**
   * Warm-up of JIT compilers before the first round: a number of runs of some milliseconds each, since
   * stopping and starting compile code too.
   */
  readonly runs: number;
  readonly runMs: number;
  /** Before each slice. */
  readonly settleMs: number;
  /**
   * How often a slice is taken at most, if the machine has been taken away in all of it, or its processors
   * were as far apart as they are not else.
   */
  readonly attempts: number;
  /** Whether their distance is measured. */
  readonly watched: boolean;
}

const QUICKLY: Care = { openers: 2, runs: 1, runMs: 400, settleMs: SETTLE_MS, attempts: 1, watched: false };
/**
 * Where a goal is judged, and each pair has the machine for itself: large messages are few, and take two
 * seconds to come to the rate that they keep; and a program that has rested for the seconds of a round takes
 * up to 200 ms to come back to it, for V8 has made its young generation small meanwhile.
 */
const CAREFULLY: Care = { openers: 1, runs: 10, runMs: 250, settleMs: 250, attempts: 3, watched: true };
const careFor = ({ careful }: Experiment): Care => (careful === true ? CAREFULLY : QUICKLY);
/**
 * Seconds to set up a pair and ask it for a slice, beside the measured time; used only to estimate the time
 * left.
 */
const OPEN_SECONDS = 0.25;
const ASK_SECONDS = 0.03;

/**
 * Peers that work off accepted messages for up to seconds after the order to stop: no other pair is measured
 * meanwhile.
 */
const REST_LATE: ReadonlySet<PeerKind> = new Set(['ws', 'grpc']);
const REST_MS = 40;
const REST_LIMIT_MS = 3000;
/** Processor time of a pair that rests, as a share of the time: being asked takes some. */
const RESTING = 0.1;

/** All processes of a pair at one moment, the server first. */
interface Marks {
  readonly marks: readonly Mark[];
  readonly ticks: Ticks;
}

/** A case's processes. */
class Pair {
  readonly spec: CaseSpec;
  readonly #build: string | undefined;
  readonly #server: PeerProcess;
  readonly #clients: PeerProcess[] = [];

  constructor({ spec, build }: Case) {
    this.spec = spec;
    this.#build = build;
    this.#server = new PeerProcess([], build);
  }

  async open(): Promise<void> {
    for (let left = this.spec.clients, place: Place | null = null; left > 0; left -= START_BATCH) {
      const clients = Array.from(
        { length: Math.min(left, START_BATCH) },
        () => new PeerProcess([], this.#build),
      );
      this.#clients.push(...clients);
      // The first clients start while the server does.
      place ??= (await this.#server.ask<'ready'>({ do: 'serve', spec: this.spec })).place!;
      await Promise.all(
        clients.map((client) => client.ask<'ready'>({ do: 'connect', spec: this.spec, place: place! })),
      );
    }
  }

  close(): void {
    for (const peer of [this.#server, ...this.#clients]) peer.end();
  }

  async slice(method: Method, settleMs: number): Promise<Taken> {
    await Promise.all(this.#clients.map((client) => client.ask({ do: 'start' })));
    await sleep(settleMs);
    const before = readTicks();
    const windows = this.spec.test === 'bw' ? await this.#windows(method) : await this.#latency(method);
    const { steal } = readTicks();
    const stopped = await Promise.all(this.#clients.map((client) => client.ask<'stopped'>({ do: 'stop' })));
    const server = await this.#server.ask<'stopped'>({ do: 'stop' });
    if (REST_LATE.has(this.spec.peer)) await this.#rest();
    return {
      windows,
      latency: stopped[0]!.latency,
      steal: steal - before.steal,
      server: server.health,
      client: stopped[0]!.health,
    };
  }

  async #rest(): Promise<void> {
    // No mark: that would start the monitors of the event loops again.
    const cpu = async (): Promise<number> => {
      const answers = await Promise.all(
        [this.#server, ...this.#clients].map((peer) => peer.ask<'mark'>({ do: 'fresh' })),
      );
      return answers.reduce((sum, { mark }) => sum + mark.cpu, 0);
    };
    for (let waited = 0, before = await cpu(); waited < REST_LIMIT_MS; waited += REST_MS) {
      await sleep(REST_MS);
      const now = await cpu();
      if (now - before < REST_MS * 1000 * RESTING) return;
      before = now;
    }
  }

  async #marks(): Promise<Marks> {
    const answers = await Promise.all(
      [this.#server, ...this.#clients].map((peer) => peer.ask<'mark'>({ do: 'mark' })),
    );
    return { marks: answers.map((answer) => answer.mark), ticks: readTicks() };
  }

  async #windows(method: Method): Promise<Window[]> {
    const windows: Window[] = [];
    let from = await this.#marks();
    for (let i = 0; i < method.windows; i++) {
      await sleep(method.windowMs);
      const to = await this.#marks();
      windows.push(this.#window(from, to));
      from = to;
    }
    return windows;
  }

  /** Costs of a latency slice: one window as long as the slice. */
  async #latency(method: Method): Promise<Window[]> {
    // Round trips of the time that was given for coming up to speed do not count.
    await Promise.all(this.#clients.map((client) => client.ask({ do: 'fresh' })));
    const from = await this.#marks();
    await sleep(method.latencyMs);
    return [this.#window(from, await this.#marks())];
  }

  #window(from: Marks, to: Marks): Window {
    // Reads bring their payload to the client.
    const sink = isRead(this.spec) ? 1 : 0;
    const grown = (at: number, name: keyof Mark): number => to.marks[at]![name] - from.marks[at]![name];
    const clients = (name: keyof Mark): number =>
      this.#clients.reduce((sum, _client, i) => sum + grown(i + 1, name), 0);
    const ns = grown(sink, 'now');
    const serverCpu = grown(0, 'cpu');
    const clientCpu = clients('cpu');
    return {
      bytes: grown(sink, 'bytes'),
      ns,
      steal: to.ticks.steal - from.ticks.steal,
      foreign: foreignShare(from.ticks, to.ticks, serverCpu + clientCpu, ns),
      serverCpu,
      clientCpu,
      gc: grown(0, 'gc') + clients('gc'),
      posts: clients('posts'),
      postMs: clients('postMs'),
      clientActive: clients('active'),
    };
  }
}

type Progress = (text: string) => void;

/** Measures one group: sets its pairs up, then gives each its slices. */
class GroupRun {
  readonly #group: Group;
  readonly #method: Method;
  readonly #care: Care;
  readonly #missing: { id: string; reason: string }[];
  readonly #pairs = new Map<Case, Pair>();
  readonly #slices = new Map<Case, Slice[]>();
  #watch: DistanceWatch | null = null;

  constructor(group: Group, method: Method, care: Care, missing: { id: string; reason: string }[]) {
    this.#group = group;
    this.#method = method;
    this.#care = care;
    this.#missing = missing;
  }

  async run(progress: Progress): Promise<Slices> {
    try {
      progress('starting processes');
      await this.#open();
      this.#watch = this.#care.watched ? await DistanceWatch.open() : null;
      for (let round = 0; round < this.#method.rounds; round++) {
        for (const one of this.#group.cases) {
          const list = this.#slices.get(one);
          if (list === undefined) continue;
          progress(`round ${round + 1}/${this.#method.rounds}  ${one.id}`);
          await this.#slice(one).then(
            (slice) => list.push(slice),
            (error: unknown) => this.#drop(one, error),
          );
        }
      }
    } finally {
      for (const pair of this.#pairs.values()) pair.close();
      this.#watch?.close();
    }
    return this.#slices;
  }

  /** A few pairs at a time, and what the compilers need. */
  async #open(): Promise<void> {
    const waiting = [...this.#group.cases];
    for (const one of waiting) this.#slices.set(one, []);
    const opener = async (): Promise<void> => {
      for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) {
        const next = one;
        if (next.spec.peer === 'c') continue;
        const pair = new Pair(next);
        this.#pairs.set(next, pair);
        await this.#warm(pair).catch((error: unknown) => this.#drop(next, error));
      }
    };
    await Promise.all(Array.from({ length: this.#care.openers }, opener));
  }

  async #warm(pair: Pair): Promise<void> {
    await pair.open();
    const { runs, runMs } = this.#care;
    for (let run = 0; run < runs; run++)
      await pair.slice({ ...this.#method, windows: 0, latencyMs: 0 }, runMs);
  }

  async #slice(one: Case): Promise<Slice> {
    for (let attempt = 1; ; attempt++) {
      const began = performance.now();
      const slice = await this.#take(one);
      if (attempt >= this.#care.attempts) return slice;
      if (!isDisturbed(slice) && this.#watch?.isSpoilt(slice.apart, performance.now() - began) !== true)
        return slice;
    }
  }

  async #take(one: Case): Promise<Slice> {
    const before = (await this.#watch?.settle()) ?? [];
    const taken =
      one.spec.peer === 'c'
        ? await nativeSlice(one.spec, this.#method)
        : await this.#pairs.get(one)!.slice(this.#method, this.#care.settleMs);
    return { ...taken, apart: [...before, ...(this.#watch?.look() ?? [])] };
  }

  #drop(one: Case, error: unknown): void {
    this.#missing.push({ id: one.id, reason: (error as Error).message });
    this.#pairs.get(one)?.close();
    this.#slices.delete(one);
  }
}

const roundsOf = (experiment: Experiment, method: Method): number =>
  Math.min(experiment.maxRounds ?? method.rounds, method.rounds);

/** How long an experiment takes on a machine that does nothing else. */
export function expectedSeconds(experiment: Experiment, method: Method): number {
  const { runs, runMs, settleMs } = careFor(experiment);
  const slice = (settleMs + method.windows * method.windowMs) / 1000 + ASK_SECONDS;
  const open = OPEN_SECONDS + runs * (runMs / 1000 + ASK_SECONDS);
  const each = experiment.groups
    .flatMap(({ cases }) => cases)
    .map(({ spec }) => open * Math.sqrt(spec.clients) + roundsOf(experiment, method) * slice);
  return each.reduce((sum, seconds) => sum + seconds, 0);
}

/** Measure one experiment. */
export async function runExperiment(
  experiment: Experiment,
  method: Method,
  progress: Progress,
): Promise<ExperimentResult> {
  const { id, title, test, axis, unit, about } = experiment;
  const cases: CaseResult[] = [];
  const missing: { id: string; reason: string }[] = [];
  const distances: Distances[] = [];
  // Where slices are not watched, a look beside each group says at what distance its figures were taken.
  const beside = careFor(experiment).watched ? null : await DistanceWatch.open();
  for (const [i, group] of experiment.groups.entries()) {
    const report = (text: string): void =>
      progress(experiment.groups.length === 1 ? text : `${i + 1}/${experiment.groups.length}  ${text}`);
    // A group that fails as a whole leaves the others.
    await new GroupRun(
      group,
      { ...method, rounds: roundsOf(experiment, method) },
      careFor(experiment),
      missing,
    )
      .run(report)
      .then(
        (slices) => {
          const seen = distancesOf(slices);
          cases.push(...summarize(group, slices, seen));
          distances.push(beside === null ? seen : { ...seen, seen: beside.look(), turns: 0 });
        },
        (error: unknown) => missing.push({ id: `${id}, group ${i + 1}`, reason: (error as Error).message }),
      );
  }
  beside?.close();
  return { id, title, test, axis, unit, about, cases, missing, apart: apart(distances) };
}
