// The commands and the program of docs/kv.md do what the page says. Needs `npm run build`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const page = readFileSync(join(ROOT, 'docs/kv.md'), 'utf8');
const blocks = (language: string): string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map((match) => match[1]!);
const folder = mkdtempSync(join(tmpdir(), 'iwarp-kv-docs-'));
mkdirSync(join(folder, 'node_modules'));
symlinkSync(ROOT, join(folder, 'node_modules/iwarp'));
afterAll(() => rmSync(folder, { recursive: true }));

async function said(args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (data: Buffer) => (text += data.toString()));
  const [status] = (await once(child, 'close')) as [number | null];
  expect(status, text).toBe(0);
  return text;
}

it('the program prints what it stored', async () => {
  writeFileSync(join(folder, 'program.mjs'), blocks('ts')[0]!);
  expect(await said(['program.mjs'])).toBe('blue\n1n\ntrue\n');
});

it('the program of the paper’s protocol reads and writes in place', async () => {
  writeFileSync(join(folder, 'urdma.mjs'), blocks('ts')[1]!);
  expect(await said(['urdma.mjs'])).toBe('bbb\n{ reads: 1, writes: 1, messages: 2 }\n');
});

it('the programs of the README print what they stored and shared', async () => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const [, section] = readme.split('\n## A key-value store, and shared memory\n');
  const programs = [...section!.split('\n## ')[0]!.matchAll(/^```ts\n([^]*?)^```/gm)].map(
    ([, text]) => text!,
  );
  expect(programs).toHaveLength(2);
  const outputs: string[] = [];
  for (const [i, text] of programs.entries()) {
    writeFileSync(join(folder, `readme${i}.mjs`), text);
    outputs.push(await said([`readme${i}.mjs`]));
  }
  expect(outputs).toEqual(['blue\n1n\n', 'hello\n']);
});

it('the commands print what a reader expects', async () => {
  const [serve, ...rest] = blocks('sh')[0]!.trim().split('\n');
  const command = (line: string): string[] => [join(ROOT, 'bin/iwarp.js'), ...line.split(' ').slice(1)];
  const owner = spawn(process.execPath, command(serve!.replace(/ &$/, '')), {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    await new Promise<void>((resolve) => {
      owner.stdout.on('data', (data: Buffer) => {
        if (data.toString().includes('memcached at')) resolve();
      });
    });
    const outputs: string[] = [];
    for (const line of rest) outputs.push(await said(command(line)));
    expect(outputs.slice(0, 4)).toEqual(['OK\n', 'blue\n', '5\n', '1\n']);
    expect(outputs[4]).toMatch(/keys .*\n +1 +0 +0 /);
  } finally {
    owner.kill();
    await once(owner, 'exit');
  }
});
