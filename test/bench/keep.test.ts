/** `iwarp bench --save-baseline`: where the ratios of a run are kept. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import type { Baseline } from '../../bench/compare.ts';
import { bench } from './run-bench.ts';

const folder = mkdtempSync(join(tmpdir(), 'iwarp-keep-'));
afterAll(() => rmSync(folder, { recursive: true }));

const BENCH = fileURLToPath(new URL('../../bench', import.meta.url));
const kept = (): string[] =>
  readdirSync(BENCH)
    .filter((name) => name.endsWith('.json'))
    .map((name) => readFileSync(join(BENCH, name), 'utf8'));

/** A run of some processor, as `--json` leaves it. */
function runOf(CPU: string): string {
  const path = join(folder, 'run.json');
  const method = { rounds: 7, windows: 2, windowMs: 60 };
  writeFileSync(
    path,
    JSON.stringify({
      schema: 'iwarp-bench/2',
      mode: 'full',
      started: '2026-01-01T00:00:00.000Z',
      seconds: 1,
      machine: { CPU },
      method,
      experiments: [],
      probes: [],
      durations: {},
    }),
  );
  return path;
}

describe('keeping a run', () => {
  it('never takes the place of another processor’s baseline', async () => {
    const before = kept();
    const { status, said } = await bench('--from', runOf('3 x Another (x64)'), '--save-baseline');
    expect(status).toBe(1);
    expect(said).toContain(
      'no baseline is of this processor, 3 x Another (x64): name a file for it with --baseline',
    );
    expect(kept()).toEqual(before);
  });

  it('goes to the file that is named, and is compared with from there', async () => {
    const file = join(folder, 'own.json');
    const first = await bench('--from', runOf('3 x Another (x64)'), '--save-baseline', '--baseline', file);
    expect(first).toMatchObject({ status: 0 });
    expect((JSON.parse(readFileSync(file, 'utf8')) as Baseline).run?.machine['CPU']).toBe(
      '3 x Another (x64)',
    );
    const second = await bench('--from', runOf('3 x Another (x64)'), '--compare', '--baseline', file);
    expect(second.status).toBe(0);
    expect(second.said).not.toContain('another processor');
  });

  it('says so if what it is compared with is another processor’s', async () => {
    const { said } = await bench('--from', runOf('3 x Another (x64)'), '--compare');
    expect(said).toMatch(/The baseline is of another processor, 2 x AMD EPYC/);
  });
});
