/** A child process and the answers it owes, in their order: what a bench of two processes talks to. */
import { fork, type ChildProcess } from 'node:child_process';

/** `Order` is the message it takes. */
export class Child<Order> {
  readonly #process: ChildProcess;
  readonly #answers: unknown[] = [];
  readonly #waiting: ((answer: unknown) => void)[] = [];
  #lost = false;

  constructor(file: string, args: readonly string[] = []) {
    this.#process = fork(file, args, { serialization: 'advanced' });
    this.#process.on('message', (answer) => {
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.#answers.push(answer);
      else waiting(answer);
    });
    this.#process.on('exit', () => {
      this.#lost = true;
      for (const waiting of this.#waiting.splice(0)) waiting(undefined);
    });
  }

  tell(order: Order): void {
    if (!this.#lost) this.#process.send(order as object);
  }

  /** Its next answer; rejects if it has gone. */
  async answer<T>(): Promise<T> {
    const answer =
      this.#answers.shift() ??
      (this.#lost ? undefined : await new Promise((resolve) => this.#waiting.push(resolve)));
    if (answer === undefined) throw new Error('a child process has gone');
    return answer as T;
  }

  end(): void {
    this.#process.kill();
  }
}
