/** `iwarp bench`: refusals before anything is measured, how a run goes on, and how it ends early. */
import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { processor } from '../../bench/machine.ts';
import { clock } from '../../bench/main.ts';
import { partNames } from '../../bench/options.ts';
import { PROBES } from '../../bench/probes/index.ts';
import type { RunResult } from '../../bench/types.ts';
import { bench } from './run-bench.ts';
import { plain } from '../support/plain.ts';

const folder = mkdtempSync(join(tmpdir(), 'iwarp-main-'));
afterAll(() => rmSync(folder, { recursive: true }));

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const file = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

describe('before anything is measured', () => {
  const nowhere = join(folder, 'no-such-folder', 'file');
  const noJson = file('words.txt', 'words');
  const noRun = file('other.json', '{"schema":"other"}');

  it.each([
    [
      'results that cannot be written',
      ['--only', 'micro', '--json', nowhere],
      `${nowhere}: no such file or directory`,
    ],
    [
      'a report that cannot be written',
      ['--only', 'micro', '--html', folder],
      `${folder}: illegal operation on a directory`,
    ],
    [
      'a baseline that cannot be written',
      ['--only', 'micro', '--save-baseline', '--baseline', nowhere],
      `${nowhere}: no such file or directory`,
    ],
    [
      'a baseline that is not there',
      ['--only', 'micro', '--compare', '--baseline', nowhere],
      `there is no baseline at ${nowhere}`,
    ],
    [
      'a baseline that is none',
      ['--only', 'micro', '--compare', '--baseline', noRun],
      `${noRun} holds no baseline of this program`,
    ],
    [
      'an add-on that is not there',
      ['--only', 'micro', '--native-crc', nowhere],
      `--native-crc: ${nowhere} holds no module of Node`,
    ],
    ['an earlier run that is not there', ['--from', nowhere], `${nowhere}: no such file or directory`],
    ['an earlier run that is no JSON', ['--from', noJson], `${noJson} holds no results of this program`],
    [
      'a run to go on with that is none',
      ['--only', 'micro', '--json', noRun, '--continue'],
      `${noRun} holds no results of this program`,
    ],
  ])('%s: is said', async (_what, args, reason) => {
    expect(await bench(...args)).toEqual({
      status: 1,
      said: expect.stringMatching(/^bench: .*\n$/) as string,
    });
    expect((await bench(...args)).said).toContain(reason);
  });

  it('a file that is there is as it was', async () => {
    const path = file('kept.json', '{}');
    await bench('--only', 'micro', '--json', path, '--native-crc', nowhere);
    expect(readFileSync(path, 'utf8')).toBe('{}');
    expect(readdirSync(folder).filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  it('an option that is none is an error of two lines', async () => {
    const { status, said } = await bench('--nonsense');
    expect(status).toBe(2);
    expect(said).toMatch(/^bench: .*--nonsense.*\n"iwarp bench --help" lists the options\.\n$/);
  });
});

describe('going on with a run', () => {
  const probes = new Set(PROBES.map(({ id }) => id));

  /** Every part, each with something in it. */
  function complete(CPU: string): string {
    const path = join(folder, 'run.json');
    const empty = { title: '', about: '', missing: [] };
    const run = {
      schema: 'iwarp-bench/2',
      mode: 'quick',
      started: '2026-01-01T00:00:00.000Z',
      seconds: 1,
      machine: { CPU },
      method: { rounds: 7, windows: 2, windowMs: 60, latencyMs: 120 },
      durations: {},
      experiments: partNames()
        .filter((id) => !probes.has(id))
        .map((id) => ({
          ...empty,
          id,
          test: 'bw',
          axis: 'case',
          unit: 'GB/s',
          cases: [{ id: `${id}/x`, ratios: {} }],
        })),
      probes: PROBES.map(({ id }) => ({
        ...empty,
        id,
        columns: [],
        rows: [{ label: 'x', cells: [] }],
        charts: [],
        ratios: [],
        disturbed: false,
      })),
    };
    writeFileSync(path, JSON.stringify(run));
    return path;
  }

  it('that has all of it says so; what a full run has gone on with is one', async () => {
    const path = complete(processor());
    const { status, said } = await bench('--full', '--json', path, '--continue');
    expect(status).toBe(0);
    expect(said).toContain(`${path} has all of it already: nothing was measured`);
    expect((JSON.parse(readFileSync(path, 'utf8')) as RunResult).mode).toBe('full');
  });

  it('of another processor is refused', async () => {
    const path = complete('3 x Another (x64)');
    expect(await bench('--full', '--json', path, '--continue')).toMatchObject({
      status: 1,
      said: expect.stringContaining('is of another processor, 3 x Another (x64)') as string,
    });
  });
});

/** Children of a process, where the system lists them. */
function childrenOf(pid: number): number[] {
  const path = `/proc/${pid}/task/${pid}/children`;
  return existsSync(path) ? readFileSync(path, 'utf8').trim().split(' ').filter(Boolean).map(Number) : [];
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

describe('a run that is interrupted', () => {
  it('says what it has kept, and leaves no process and no folder', async () => {
    const temporary = join(folder, 'tmp');
    mkdirSync(temporary);
    const code =
      `import(${JSON.stringify(plain('bench/main.ts'))}).then(({ run }) => ` +
      "run(['--test', 'bw', '--size', '64', '--rounds', '1000']))";
    const child = spawn(process.execPath, ['-e', code], {
      cwd: ROOT,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, TMPDIR: temporary },
    });
    let said = '';
    child.stderr.on('data', (text: Buffer) => (said += text.toString()));
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
    while (!said.includes('] custom') || (existsSync('/proc/self/stat') && childrenOf(child.pid!).length < 2))
      await new Promise((resolve) => setTimeout(resolve, 20));
    const children = childrenOf(child.pid!);
    child.kill('SIGINT');
    expect(await ended).toBe(130);
    expect(said).toMatch(/bench: interrupted; nothing has been written\n$/);
    while (children.some(lives)) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(readdirSync(temporary).filter((name) => name.startsWith('iwarp-'))).toEqual([]);
  });
});

it('times are minutes and seconds', () => {
  expect([0, 59.4, 59.6, 119.7, 3600].map(clock)).toEqual(['0:00', '0:59', '1:00', '2:00', '60:00']);
});
