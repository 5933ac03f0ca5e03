/** The commands and programs of docs/qpip.md do what the page says. Needs `npm run build`. */
import { execFileSync, spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const COMMAND = join(ROOT, 'bin/iwarp.js');
const page = readFileSync(join(ROOT, 'docs/qpip.md'), 'utf8');
const blocks = (language: string): string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map((match) => match[1]!);

const [serve = '', send = ''] = blocks('sh');
let server: ChildProcessByStdio<null, Readable, null>;
let said = '';
beforeAll(async () => {
  const words = serve.replace('&', '').trim().split(' ').slice(1);
  server = spawn(process.execPath, [COMMAND, ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
  server.stdout.on('data', (data) => (said += String(data)));
  const early = once(server, 'exit').then(([status]) => {
    throw new Error(`the echo server has ended with ${status}: ${said}`);
  });
  early.catch(() => undefined); // at its end, it is not early
  while (!said.includes('udp')) await Promise.race([once(server.stdout, 'data'), early]);
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
