/** Processes that serve a control socket and do not answer: their programs compute, and their counters can be seen later. */
export class SilentProcesses {
  readonly #tool: string;
  readonly #meant: (pid: number) => boolean;
  /** Whether one has been told of. */
  some = false;

  /** `meant` are those that the user has asked for. */
  constructor(tool: string, meant: (pid: number) => boolean = () => true) {
    this.#tool = tool;
    this.#meant = meant;
  }

  tell(pid: number): void {
    if (!this.#meant(pid)) return;
    this.some = true;
    process.stderr.write(`${this.#tool}: process ${pid} does not answer: its program may be computing\n`);
  }
}
