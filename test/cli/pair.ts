/** Runs tools against each other in one process over 127.0.0.1, their output in strings. */
import type { ToolIo } from '../../cli/support/tool.ts';

export type ToolRun = (args: string[], io?: ToolIo) => Promise<number>;

/** One side: its words, its port if it listens, and a way to end it as a kill would. */
export class Side {
  out = '';
  err = '';
  readonly port: Promise<number>;
  readonly status: Promise<number>;
  readonly #abort = new AbortController();
  readonly #watchers: { text: string; resolve: () => void }[] = [];

  constructor(run: ToolRun, args: string[]) {
    let listening!: (port: number) => void;
    this.port = new Promise((resolve) => (listening = resolve));
    this.status = run(args, {
      out: (text) => {
        this.out += text;
        this.#look();
      },
      err: (text) => {
        this.err += text;
        this.#look();
      },
      listening,
      signal: this.#abort.signal,
    });
  }

  #look(): void {
    for (const { text, resolve } of this.#watchers) if (this.#shows(text)) resolve();
  }

  #shows(text: string): boolean {
    return this.out.includes(text) || this.err.includes(text);
  }

  /** Wait until the side has said this, on either stream. */
  async said(text: string): Promise<void> {
    if (this.#shows(text)) return;
    await new Promise<void>((resolve) => this.#watchers.push({ text, resolve }));
  }

  kill(): void {
    this.#abort.abort();
  }
}

export interface PairResult {
  readonly server: Side;
  readonly client: Side;
  /** Exit statuses, server's first. */
  readonly statuses: readonly [number, number];
}

/** Start the server on a free port, then the client, and wait for both. */
export async function runPair(
  server: ToolRun,
  serverArgs: string[],
  client: ToolRun,
  clientArgs: (port: string) => string[],
  during?: (s: Side, c: Side) => Promise<void>,
): Promise<PairResult> {
  const left = new Side(server, ['-p', '0', ...serverArgs]);
  const right = new Side(client, clientArgs(String(await left.port)));
  await during?.(left, right);
  return { server: left, client: right, statuses: [await left.status, await right.status] };
}

/** A tool that is given no peer: only its words count. */
export async function runAlone(run: ToolRun, args: string[]): Promise<Side & { readonly code: number }> {
  const side = new Side(run, args);
  return Object.assign(side, { code: await side.status });
}
