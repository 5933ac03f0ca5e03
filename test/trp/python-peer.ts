/** A peer in Python (peer.py, or another program) as a child process: commands in, events out, JSON lines. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const PEER: string = fileURLToPath(new URL('peer.py', import.meta.url));

/**
 * The interpreter itself. What PATH has may be a script that looks for one, and with the packages of the
 * system (`-S`) it takes three times as long to begin.
 */
const ASK = ['-S', '-c', 'import sys; print(sys.executable)'];
let interpreter = '';
export const python = (): string =>
  (interpreter ||= execFileSync('python3', ASK, { encoding: 'utf8' }).trim());

/** An event of the peer; which fields there are depends on `event`. */
export interface PeerEvent {
  readonly event: string;
  readonly [field: string]: unknown;
}

export class PythonPeer {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(args: readonly string[], program: string = PEER) {
    this.#child = spawn(python(), ['-S', program, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  tell(command: object): void {
    this.#child.stdin!.write(`${JSON.stringify(command)}\n`);
  }

  /** The next event with this name; the ones before it must not be an end. */
  async next(name: string): Promise<PeerEvent> {
    for (;;) {
      const line = await this.#lines.next();
      if (line.done === true) throw new Error(`the peer ended before ${name}`);
      const event = JSON.parse(line.value) as PeerEvent;
      if (event.event === name) return event;
      if (event.event === 'closed' || event.event === 'fault')
        throw new Error(`the peer closed before ${name}: ${String(event['why'] ?? event['what'])}`);
    }
  }

  async ask(command: object, name: string): Promise<PeerEvent> {
    this.tell(command);
    return await this.next(name);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill();
    await once(this.#child, 'exit');
  }
}
