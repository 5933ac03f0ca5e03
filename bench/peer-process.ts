/** A separate process that plays one side (peers/main.ts), and its answers, in order. */
import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { atExit } from './leftovers.ts';
import type { Answer, Command } from './peers/main.ts';

const ANSWER_MS = 20_000;
const PROGRAM = new URL(
  import.meta.url.endsWith('.ts') ? './peers/main.ts' : './peers/main.js',
  import.meta.url,
);

/** The options of this process are those of its children too. */
const PROFILED = process.execArgv.some((option) => /^--(cpu|heap)-prof/.test(option));

export class PeerProcess {
  readonly #child: ChildProcess;
  #waiting: { resolve: (answer: Answer) => void; reject: (error: Error) => void } | null = null;
  #ended = false;
  readonly #kill: () => void;

  /** `nodeArgs` are for Node itself; `build` is the folder `dist` of another build, whose program it runs. */
  constructor(nodeArgs: readonly string[] = [], build?: string) {
    this.#child = fork(build === undefined ? PROGRAM : join(build, 'bench/peers/main.js'), [], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      execArgv: [...process.execArgv, ...nodeArgs],
    });
    this.#kill = atExit(() => this.#child.kill('SIGKILL'));
    this.#child.on('message', (answer: Answer) => {
      if (answer.type === 'failed') this.#fail(new Error(answer.reason));
      else this.#waiting?.resolve(answer);
    });
    // A message to a process that has just gone is lost; its exit is reported.
    this.#child.on('error', (error) => this.#fail(error));
    this.#child.on('exit', (code, signal) => {
      this.#ended = true;
      this.#kill();
      this.#fail(new Error(`a peer process ended with ${signal ?? `status ${code}`}`));
    });
  }

  #fail(error: Error): void {
    this.#waiting?.reject(error);
  }

  async ask<T extends Answer['type']>(command: Command): Promise<Extract<Answer, { type: T }>> {
    if (this.#ended) throw new Error('a peer process has ended');
    const answer = new Promise<Answer>((resolve, reject) => (this.#waiting = { resolve, reject }));
    this.#child.send(command);
    const timer = setTimeout(
      () => this.#fail(new Error(`no answer to "${command.do}" for ${ANSWER_MS / 1000} s`)),
      ANSWER_MS,
    );
    try {
      return (await answer) as Extract<Answer, { type: T }>;
    } finally {
      clearTimeout(timer);
      this.#waiting = null;
    }
  }

  /**
   * At once. A process that writes a profile at its end is asked to end instead, and ends by itself.
   */
  end(): void {
    if (PROFILED) this.#child.disconnect();
    else this.#kill();
  }
}
