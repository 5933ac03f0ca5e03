/** The C program of baseline/: built once a run when there is a compiler, then run for each slice. */
import { execFile, execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { temporaryFolder } from './leftovers.ts';
import { foreignShare, readTicks, type Ticks } from './machine.ts';
import type { Method } from './method.ts';
import type { Taken } from './runner.ts';
import { latencySlice } from './stats.ts';
import type { CaseSpec, Window } from './types.ts';

const run = promisify(execFile);
const MAX_OUTPUT = 1 << 24;
/** The longest time that the program takes to start, on a machine that is otherwise busy. */
const START_MS = 20_000;
let program: string | undefined;

/** The source stands in bench/, also when this file has been compiled into dist/bench/. */
function source(): string | undefined {
  const places = ['./baseline/cwin.c', '../../bench/baseline/cwin.c'].map((place) =>
    fileURLToPath(new URL(place, import.meta.url)),
  );
  return places.find((place) => existsSync(place));
}

/** Build; the compiler's name, or undefined without one. */
export function buildNative(): string | undefined {
  const from = source();
  if (from === undefined) return undefined;
  const to = join(temporaryFolder('iwarp-bench-').path, 'cwin');
  try {
    execFileSync('cc', ['-O2', '-o', to, from], { stdio: 'ignore' });
    program = to;
    return execFileSync('cc', ['--version'], { encoding: 'utf8' }).split('\n', 1)[0]!.trim();
  } catch {
    return undefined;
  }
}

export async function nativeSlice(spec: CaseSpec, method: Method): Promise<Taken> {
  if (program === undefined) throw new Error('no C compiler here');
  const before = readTicks();
  const began = performance.now();
  const length = spec.test === 'bw' ? [method.windows, method.windowMs] : [method.latencyMs];
  const timeout = START_MS + 2 * method.latencyMs;
  const { stdout } = await run(program, [spec.test, spec.size, ...length].map(String), {
    maxBuffer: MAX_OUTPUT,
    timeout,
  });
  const after = readTicks();
  const steal = after.steal - before.steal;
  if (spec.test === 'lat') {
    const samples = Float64Array.from(stdout.trim().split(/\s+/), (ns) => Number(ns) / 1000);
    return { windows: [], latency: latencySlice(samples), steal, server: null, client: null };
  }
  return {
    windows: nativeWindows(stdout, before, after, (performance.now() - began) * 1e6),
    latency: null,
    steal,
    server: null,
    client: null,
  };
}

/**
 * Parses the windows that the program printed, one a line, having run for `ns` nanoseconds. The program works
 * before the first window as it does in them.
 */
export function nativeWindows(stdout: string, before: Ticks, after: Ticks, ns: number): Window[] {
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => line.split(' ').map(Number));
  const sum = (column: number): number => lines.reduce((total, line) => total + (line[column] ?? 0), 0);
  const foreign = foreignShare(before, after, ((sum(2) + sum(3)) / sum(1)) * ns, ns);
  return lines.map(
    ([bytes = 0, time = 1, serverCpu = 0, clientCpu = 0]): Window => ({
      bytes,
      ns: time,
      steal: after.steal - before.steal,
      foreign,
      serverCpu,
      clientCpu,
      gc: Number.NaN,
      posts: 0,
      postMs: 0,
      clientActive: Number.NaN,
    }),
  );
}
