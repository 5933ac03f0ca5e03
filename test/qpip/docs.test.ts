/** The commands and programs of docs/qpip.md do what the page says. Needs `npm run build`. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const COMMAND = join(ROOT, 'bin/iwarp.js');
const page = readFileSync(join(ROOT, 'docs/qpip.md'), 'utf8');
const blocks = (language: string): string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map((match) => match[1]!);

const [serve = '', send = ''] = blocks('sh');
const server = spawn(process.execPath, [COMMAND, ...serve.replace('&', '').trim().split(' ').slice(1)]);
let said = '';
beforeAll(async () => {
  server.stdout.on('data', (data) => (said += String(data)));
  while (!said.includes('udp')) await once(server.stdout, 'data');
});
afterAll(async () => {
  const ended = once(server, 'exit');
  server.kill('SIGTERM');
  await ended;
});

it('the echo server says where it listens', () => {
  expect(said).toBe('echo on tcp 127.0.0.1:7007\necho on udp 127.0.0.1:7007\n');
});

it.each(send.trim().split('\n'))('%s', (line) => {
  const script = line.replace('iwarp', `${process.execPath} ${COMMAND}`);
  expect(execFileSync('sh', ['-c', script], { encoding: 'utf8', timeout: 50_000 })).toBe('hello\n');
});

it.each(blocks('ts').map((text, i) => [i, text] as const))('program %i', (_i, text) => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-qpip-docs-'));
  try {
    mkdirSync(join(folder, 'node_modules'));
    symlinkSync(ROOT, join(folder, 'node_modules/iwarp'));
    writeFileSync(join(folder, 'program.mts'), text);
    const out = execFileSync(join(ROOT, 'node_modules/.bin/tsx'), [join(folder, 'program.mts')], {
      encoding: 'utf8',
      timeout: 50_000,
    });
    expect(out).toMatch(/has 5 bytes: hello|9 bytes from 127\.0\.0\.1, dropped so far: 0/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
