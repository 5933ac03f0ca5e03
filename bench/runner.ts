/**
 * Measures groups: all pairs of processes of a group live at once, idle; round by round each has its slice of time, one after the other.
 * A slice is a moment to come up to speed and some windows; windows in which the host stole time are dropped.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { foreignShare, readTicks, type Ticks } from './machine.ts';
import { nativeSlice } from './native.ts';
import type { Answer, Command } from './peers/main.ts';
import { summarize } from './summary.ts';
import type { Case, CaseResult, CaseSpec, Experiment, ExperimentResult, Group, Health, LatencySlice, Mark, Window } from './types.ts';

/** How long and how often. */
export interface Method {
  readonly rounds: number;
  readonly windows: number;
  readonly windowMs: number;
  readonly latencyMs: number;
}

/** What one slice gave. */
export interface Slice {
  readonly windows: readonly Window[];
  readonly latency: LatencySlice | null;
  readonly steal: number;
  readonly server: Health | null;
  readonly client: Health | null;
}

const SETTLE_MS = 40;
/** What JIT compilers get before the first round. */
const WARM_MS = 150;
const ANSWER_MS = 20_000;
const PROGRAM = new URL(import.meta.url.endsWith('.ts') ? './peers/main.ts' : './peers/main.js', import.meta.url);

/** A peer process and its answers, in order. */
class PeerProcess {
  readonly #child: ChildProcess;
  #waiting: { resolve: (answer: Answer) => void; reject: (error: Error) => void } | null = null;
  #ended = false;

  constructor() {
    this.#child = fork(PROGRAM, [], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.#child.on('message', (answer: Answer) => {
      if (answer.type === 'failed') this.#fail(new Error(answer.reason));
      else this.#waiting?.resolve(answer);
    });
    this.#child.on('exit', (code) => {
      this.#ended = true;
      this.#fail(new Error(`a peer process ended with status ${code}`));
    });
  }

  #fail(error: Error): void {
    this.#waiting?.reject(error);
  }

  async ask<T extends Answer['type']>(command: Command): Promise<Extract<Answer, { type: T }>> {
    if (this.#ended) throw new Error('a peer process has ended');
    const answer = new Promise<Answer>((resolve, reject) => (this.#waiting = { resolve, reject }));
    this.#child.send(command);
    const timer = setTimeout(() => this.#fail(new Error(`no answer to "${command.do}" for ${ANSWER_MS / 1000} s`)), ANSWER_MS);
    try {
      return (await answer) as Extract<Answer, { type: T }>;
    } finally {
      clearTimeout(timer);
      this.#waiting = null;
    }
  }

  end(): void {
    if (!this.#ended) this.#child.kill('SIGKILL');
  }
}

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
    for (let i = 0; i < this.spec.clients; i++) {
      const client = new PeerProcess();
      this.#clients.push(client);
      await client.ask<'ready'>({ do: 'connect', spec: this.spec, place: place! });
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
      serverCpu, clientCpu, gc: grown(0, 'gc') + clients('gc'), posts: clients('posts'), postMs: clients('postMs'),
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
  const { id, title, test, axis, unit, about } = experiment;
  const cases: CaseResult[] = [];
  const missing: { id: string; reason: string }[] = [];
  for (const [i, group] of experiment.groups.entries()) {
    cases.push(...(await runGroup(group, method, (text) => progress(`${id} ${i + 1}/${experiment.groups.length}  ${text}`), missing)));
  }
  return { id, title, test, axis, unit, about, cases, missing };
}
