/** The commands and the program of docs/nbd.md do what the page says. Needs `npm run build`. */
import { execFileSync, spawn } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  mkdirSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const page = readFileSync(join(ROOT, 'docs/nbd.md'), 'utf8');
const blocks = (text: string, language: string): string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map((match) => match[1]!);

/** Runs commands as a shell does; the result is everything they have said. */
async function followed(commands: string): Promise<{ status: unknown; said: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-nbd-docs-'));
  // A program in the background is waited for until it has said that it serves all that it was asked to.
  const script = commands.replaceAll(/^(iwarp .*) &$/gm, (_line, command: string) => {
    const last = command.includes('--rdma') ? 'serving rdma' : 'serving';
    const noted = `while read -r line; do case $line in '${last}'*) touch ready;; esac; done`;
    const waits = 'for i in $(seq 200); do [ -e ready ] && break; sleep 0.1; done; rm ready';
    return `(${command} & echo $! >> pids; wait) | ${noted} &\n${waits}`;
  });
  const program = `#!/bin/sh\nexec ${process.execPath} ${join(ROOT, 'bin/iwarp.js')} "$@"\n`;
  writeFileSync(join(folder, 'iwarp'), program, { mode: 0o755 });
  const env = { ...process.env, PATH: `${folder}:${process.env['PATH']}` };
  const child = spawn('bash', ['-e', '-o', 'pipefail', '-c', `${script}\necho all done`], {
    cwd: folder,
    env,
  });
  let said = '';
  child.stdout.on('data', (data: Buffer) => (said += data.toString()));
  child.stderr.on('data', (data: Buffer) => (said += data.toString()));
  const status = await new Promise((resolve) => child.once('exit', resolve));
  const pids = readFileSync(join(folder, 'pids'), 'utf8').trim().split('\n').map(Number);
  for (const pid of pids) process.kill(pid);
  // The next commands use the same ports.
  await expect.poll(() => pids.some((pid) => existsSync(`/proc/${pid}`)), { timeout: 50_000 }).toBe(false);
  rmSync(folder, { recursive: true });
  return { status, said };
}

it('the commands, one after the other, end with status 0', async () => {
  const { status, said } = await followed(blocks(page, 'sh').join(''));
  expect(said).toContain('all done');
  expect(said).toContain('67108864 bytes');
  expect(status).toBe(0);
});

it('so do the commands of the README', async () => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const commands = blocks(readme, 'sh').filter((block) => block.includes('iwarp nbd'));
  expect(commands).toHaveLength(1);
  const { status, said } = await followed(commands[0]!.replaceAll('npx iwarp', 'iwarp'));
  expect(said).toContain('all done');
  expect(said).toContain('67108864 bytes');
  expect(status).toBe(0);
});

it('the program prints what it wrote', () => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-nbd-docs-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(ROOT, join(folder, 'node_modules/iwarp'));
  const [program] = blocks(page, 'ts');
  writeFileSync(join(folder, 'program.mjs'), program!);
  const said = execFileSync(process.execPath, ['program.mjs'], {
    cwd: folder,
    encoding: 'utf8',
    timeout: 30_000,
  });
  expect(said).toBe('hello 67108864n 1\n');
  rmSync(folder, { recursive: true });
});
