/**
 * Measures groups: all pairs of processes of a group live at once, idle; round by round each has its slice of time, one after the other.
 * A slice is a moment to come up to speed and some windows; windows in which the host stole time are dropped.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { foreignShare, readTicks, type Ticks } from './machine.ts';
import { SETTLE_MS, type Method } from './method.ts';
import { nativeSlice } from './native.ts';
import { PeerProcess } from './peer-process.ts';
import { summarize } from './summary.ts';
import type { Case, CaseResult, CaseSpec, Experiment, ExperimentResult, Group, Health, LatencySlice, Mark, Window } from './types.ts';

/** What one slice gave. */
export interface Slice {
  readonly windows: readonly Window[];
  readonly latency: LatencySlice | null;
  readonly steal: number;
  readonly server: Health | null;
  readonly client: Health | null;
}

/** Client processes that start at once: more would wait for a processor. */
const START_BATCH = 4;
/** What JIT compilers get before the first round. */
const WARM_MS = 150;

/** All processes of a pair at one moment, the server first. */
interface Marks {
  readonly marks: readonly Mark[];
  readonly ticks: Ticks;
}

/** A case's processes. */
class Pair {
  readonly spec: CaseSpec;
  readonly #server = new PeerProcess();
  readonly #clients: PeerProcess[] = [];

  constructor(spec: CaseSpec) {
    this.spec = spec;
  }

  async open(): Promise<void> {
    const { place } = await this.#server.ask<'ready'>({ do: 'serve', spec: this.spec });
    for (let left = this.spec.clients; left > 0; left -= START_BATCH) {
      const clients = Array.from({ length: Math.min(left, START_BATCH) }, () => new PeerProcess());
      this.#clients.push(...clients);
      await Promise.all(clients.map((client) => client.ask<'ready'>({ do: 'connect', spec: this.spec, place: place! })));
    }
  }

  close(): void {
    for (const peer of [this.#server, ...this.#clients]) peer.end();
  }

  async slice(method: Method, settleMs: number): Promise<Slice> {
    await Promise.all(this.#clients.map((client) => client.ask({ do: 'start' })));
    await sleep(settleMs);
    const before = readTicks();
    const windows = this.spec.test === 'bw' ? await this.#windows(method) : await this.#latency(method);
    const { steal } = readTicks();
    const stopped = await Promise.all(this.#clients.map((client) => client.ask<'stopped'>({ do: 'stop' })));
    const server = await this.#server.ask<'stopped'>({ do: 'stop' });
    return { windows, latency: stopped[0]!.latency, steal: steal - before.steal, server: server.health, client: stopped[0]!.health };
  }

  async #marks(): Promise<Marks> {
    const answers = await Promise.all([this.#server, ...this.#clients].map((peer) => peer.ask<'mark'>({ do: 'mark' })));
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
    const from = await this.#marks();
    await sleep(method.latencyMs);
    return [this.#window(from, await this.#marks())];
  }

  #window(from: Marks, to: Marks): Window {
    // Reads bring their payload to the client.
    const sink = this.spec.peer === 'iwarp' && this.spec.verb === 'read' && this.spec.test === 'bw' ? 1 : 0;
    const grown = (at: number, name: keyof Mark): number => to.marks[at]![name] - from.marks[at]![name];
    const clients = (name: keyof Mark): number => this.#clients.reduce((sum, _client, i) => sum + grown(i + 1, name), 0);
    const ns = grown(sink, 'now');
    const serverCpu = grown(0, 'cpu');
    const clientCpu = clients('cpu');
    return {
      bytes: grown(sink, 'bytes'), ns, steal: to.ticks.steal - from.ticks.steal,
      foreign: foreignShare(from.ticks, to.ticks, serverCpu + clientCpu, ns),
      serverCpu, clientCpu, gc: grown(0, 'gc') + clients('gc'), posts: clients('posts'), postMs: clients('postMs'), clientActive: clients('active'),
    };
  }
}

export type Progress = (text: string) => void;

/** Measure one group. */
async function runGroup(group: Group, method: Method, progress: Progress, missing: { id: string; reason: string }[]): Promise<CaseResult[]> {
  const pairs = new Map<Case, Pair>();
  const slices = new Map<Case, Slice[]>();
  const drop = (one: Case, error: unknown): void => {
    missing.push({ id: one.id, reason: (error as Error).message });
    pairs.get(one)?.close();
    slices.delete(one);
  };
  try {
    for (const one of group.cases) {
      slices.set(one, []);
      if (one.spec.peer === 'c') continue;
      const pair = new Pair(one.spec);
      pairs.set(one, pair);
      await pair.open().then(() => pair.slice({ ...method, windows: 1 }, WARM_MS)).catch((error: unknown) => drop(one, error));
    }
    for (let round = 0; round < method.rounds; round++) {
      for (const one of group.cases) {
        const list = slices.get(one);
        if (list === undefined) continue;
        progress(`round ${round + 1}/${method.rounds}  ${one.id}`);
        const slice = one.spec.peer === 'c' ? nativeSlice(one.spec, method) : pairs.get(one)!.slice(method, SETTLE_MS);
        await slice.then((result) => list.push(result), (error: unknown) => drop(one, error));
      }
    }
  } finally {
    for (const pair of pairs.values()) pair.close();
  }
  return summarize(group, slices);
}

/** Measure one experiment. */
export async function runExperiment(experiment: Experiment, method: Method, progress: Progress): Promise<ExperimentResult> {
  const { id, title, test, axis, unit, about, maxRounds = method.rounds } = experiment;
  const rounds = Math.min(maxRounds, method.rounds);
  const cases: CaseResult[] = [];
  const missing: { id: string; reason: string }[] = [];
  for (const [i, group] of experiment.groups.entries()) {
    const told = (text: string): void => progress(`${i + 1}/${experiment.groups.length}  ${text}`);
    // A group that fails as a whole leaves the others.
    await runGroup(group, { ...method, rounds }, told, missing).then((results) => cases.push(...results), (error: unknown) => missing.push({ id: `${id}, group ${i + 1}`, reason: (error as Error).message }));
  }
  return { id, title, test, axis, unit, about, cases, missing };
}
