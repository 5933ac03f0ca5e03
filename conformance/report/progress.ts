// How far a run is: one line on a terminal, the unexpected results elsewhere.

import type { Result } from '../runner/runner.ts';

/** One line that is written over on a terminal; elsewhere only unexpected results show. */
export class Progress {
  readonly #terminal = process.stderr.isTTY === true;
  #unexpected = 0;

  show(result: Result, done: number, all: number): void {
    if (result.unexpected) this.#unexpected++;
    if (this.#terminal) {
      const line = `${done}/${all}  ${this.#unexpected} unexpected  ${result.case.id} [${result.role}]`;
      process.stderr.write(`\r\x1b[2K${line.slice(0, (process.stderr.columns ?? 80) - 1)}`);
    } else if (result.unexpected) {
      process.stderr.write(
        `${done}/${all} ${result.verdict} ${result.case.id} [${result.role}]: expected ` +
          `${result.expected}; got ${result.actual || result.reason.split('\n')[0]}\n`,
      );
    }
  }

  end(): void {
    if (this.#terminal) process.stderr.write('\r\x1b[2K');
  }
}
