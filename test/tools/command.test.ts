// The program itself, as npm ci has built it: what it has said is out before it ends, however slowly it is read, and its status is the command's.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

interface Ended {
  readonly status: number | null;
  readonly out: string;
  readonly err: string;
}

/** Run `iwarp args`; its output is left in the pipe until it has grown full, or the process has ended. */
function iwarp(...args: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [join(ROOT, 'bin/iwarp.js'), ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, err] = ['', ''];
  child.stderr.on('data', (text: Buffer) => (err += text.toString()));
  child.stdout.once('readable', () => setImmediate(() => child.stdout.on('data', (text: Buffer) => (out += text.toString()))));
  return new Promise((resolve, reject) => child.on('error', reject).on('close', (status) => resolve({ status, out, err })));
}

it('a long listing arrives whole', async () => {
  const { status, out } = await iwarp('conformance', 'list');
  expect(status).toBe(0);
  expect(out.length).toBeGreaterThan(65_536); // more than a pipe holds
  expect(out.split('\n').length).toBeGreaterThan(700);
  expect(out.endsWith('\n')).toBe(true);
});

it('--version tells the name and the version', async () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  for (const flag of ['--version', '-V']) expect(await iwarp(flag)).toEqual({ status: 0, out: `iwarp ${version}\n`, err: '' });
  expect((await iwarp('--help')).out).toContain('"iwarp --version"');
});

it('the status is that of the command', async () => {
  expect(await iwarp('rping')).toMatchObject({ status: 22, err: expect.stringContaining('exactly one of -s and -c') as string });
  expect(await iwarp('no-such-command')).toMatchObject({ status: 2 });
  expect(await iwarp('dissect', join(ROOT, 'README.md'))).toMatchObject({ status: 1, out: '' });
});
