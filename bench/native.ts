/** The C program of baseline/: built once a run when there is a compiler, then run for each slice. */
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { foreignShare, readTicks } from './machine.ts';
import type { Method } from './method.ts';
import type { Slice } from './runner.ts';
import { latencySlice } from './stats.ts';
import type { CaseSpec, Window } from './types.ts';

const run = promisify(execFile);
const MAX_OUTPUT = 1 << 24;
let program: string | undefined;

/** The source stands in bench/, also when this file has been compiled into dist/bench/. */
function source(): string | undefined {
  const places = ['./baseline/cwin.c', '../../bench/baseline/cwin.c'].map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return places.find((place) => existsSync(place));
}

/** Build; the compiler's name, or undefined without one. */
export function buildNative(): string | undefined {
  const from = source();
  if (from === undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const to = join(folder, 'cwin');
  try {
    execFileSync('cc', ['-O2', '-o', to, from], { stdio: 'ignore' });
    program = to;
    return execFileSync('cc', ['--version'], { encoding: 'utf8' }).split('\n', 1)[0]!.trim();
  } catch {
    return undefined;
  }
}

export async function nativeSlice(spec: CaseSpec, method: Method): Promise<Slice> {
  if (program === undefined) throw new Error('no C compiler here');
  const before = readTicks();
  const length = spec.test === 'bw' ? [method.windows, method.windowMs] : [method.latencyMs];
  const { stdout } = await run(program, [spec.test, spec.size, ...length].map(String), { maxBuffer: MAX_OUTPUT, timeout: 20_000 });
  const after = readTicks();
  const steal = after.steal - before.steal;
  if (spec.test === 'lat') {
    const samples = Float64Array.from(stdout.trim().split(/\s+/), (ns) => Number(ns) / 1000);
    return { windows: [], latency: latencySlice(samples), steal, server: null, client: null };
  }
  const lines = stdout.trim().split('\n');
  const windows = lines.map((line): Window => {
    const [bytes = 0, ns = 1, serverCpu = 0, clientCpu = 0] = line.split(' ').map(Number);
    const foreign = foreignShare(before, after, (serverCpu + clientCpu) * lines.length, ns * lines.length);
    return { bytes, ns, steal, foreign, serverCpu, clientCpu, gc: 0, posts: 0, postMs: 0, clientActive: Number.NaN };
  });
  return { windows, latency: null, steal, server: null, client: null };
}
