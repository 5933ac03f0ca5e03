/**
 * Describes this machine, and measures how much of it was taken away: steal by the host, and time of
 * processes that are not ours.
 */
import { readFileSync } from 'node:fs';
import { arch, availableParallelism, cpus, release, totalmem, type } from 'node:os';
import { defaultCrc32cEngine } from '../src/crc32c/engine.ts';

/** Clock ticks since boot. */
export interface Ticks {
  readonly steal: number;
  readonly busy: number;
}

/** USER_HZ of every Linux that Node runs on. */
const TICK_MS = 10;

/** From /proc/stat; zeros where there is none, so that nothing is ever dropped. */
export function readTicks(): Ticks {
  try {
    const [, ...fields] = readFileSync('/proc/stat', 'latin1')
      .split('\n', 1)[0]!
      .trim()
      .split(/\s+/)
      .map(Number);
    const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = fields;
    return { steal, busy: user + nice + system + irq + softirq };
  } catch {
    return { steal: 0, busy: 0 };
  }
}

/** CPU time that others had between two looks, as a share of one core; `ownUs` is what our processes used. */
export function foreignShare(from: Ticks, to: Ticks, ownUs: number, ns: number): number {
  return Math.max(0, ((to.busy - from.busy) * TICK_MS * 1000 - ownUs) / (ns / 1000));
}

/** Ratios belong to a kind of processor: what a baseline is known by. */
export function processor(): string {
  return `${availableParallelism()} x ${cpus()[0]?.model.trim() ?? 'unknown'} (${arch()})${generation()}`;
}

/**
 * A virtual machine names its processors alike from one generation to the next; these numbers of x86 tell
 * them apart.
 */
function generation(): string {
  try {
    const info = readFileSync('/proc/cpuinfo', 'latin1');
    const [family, model] = ['cpu family', 'model'].map(
      (name) => new RegExp(`^${name}\\s*: (\\d+)$`, 'm').exec(info)?.[1],
    );
    return family === undefined || model === undefined ? '' : `, family ${family} model ${model}`;
  } catch {
    return '';
  }
}

/**
 * Whether figures of processor `kept` are of processor `now`. Figures from before the generation was recorded
 * match any processor.
 */
export function isSameProcessor(kept: string | undefined, now: string): boolean {
  return kept !== undefined && (now === kept || now.startsWith(`${kept}, family `));
}

/** For the head of a report. */
export function describeMachine(compiler: string): Record<string, string> {
  return {
    CPU: processor(),
    memory: `${(totalmem() / 2 ** 30).toFixed(0)} GiB`,
    // Without what a distributor has put after the version.
    system: `${type()} ${/^[\d.]+/.exec(release())?.[0] ?? release()}`,
    runtime: `Node ${process.version}, V8 ${process.versions.v8}`,
    'CRC32c engine': defaultCrc32cEngine().name,
    'C compiler': compiler,
    network: 'loopback, 127.0.0.1',
  };
}
