// The programs and commands of docs/shared.md do what the page says. Needs `npm run build`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const page = readFileSync(join(ROOT, 'docs/shared.md'), 'utf8');
const blocks = (language: string): string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map((match) => match[1]!);
const folder = mkdtempSync(join(tmpdir(), 'iwarp-shared-docs-'));
mkdirSync(join(folder, 'node_modules'));
symlinkSync(ROOT, join(folder, 'node_modules/iwarp'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Run a program; resolves with what it printed. `ready` is called once it has said anything. */
async function said(args: readonly string[], ready?: (stop: () => void) => void): Promise<string> {
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (data: Buffer) => {
    if (text === '') ready?.(() => child.kill('SIGTERM'));
    text += data.toString();
  });
  const [status] = (await once(child, 'close')) as [number | null];
  expect(status, text).toBe(0);
  return text;
}

it('two machines share memory in ten lines each', async () => {
  const [listener, connector] = blocks('ts');
  expect(listener!.trim().split('\n').length).toBeLessThanOrEqual(10);
  expect(connector!.trim().split('\n').length).toBeLessThanOrEqual(10);
  // The page has no line that reports readiness; the test's copy has.
  const program = listener!.replace(/^(const listener .*)$/m, "$1\nconsole.log('ready');");
  expect(program).not.toBe(listener);
  writeFileSync(join(folder, 'one.mjs'), program);
  writeFileSync(join(folder, 'two.mjs'), connector!);
  let second: Promise<string> | undefined;
  const first = await said(['one.mjs'], () => (second = said(['two.mjs'])));
  expect(first).toBe('ready\nhello there\n');
  expect(await second).toBe('');
});

it('the commands print what the page says', async () => {
  const [listen, ...connects] = blocks('sh')[0]!.trim().split('\n');
  const words = (line: string): string[] =>
    [...line.matchAll(/'([^']*)'|((?:[^\s']|'[^']*')+)/g)].map((match) => match[0].replaceAll("'", ''));
  const command = (line: string): string[] => [join(ROOT, 'bin/iwarp.js'), ...words(line).slice(1)];
  const { stop, served } = await new Promise<{ stop: () => void; served: Promise<string> }>((resolve) => {
    const end: Promise<string> = said(command(listen!.replace(/ &$/, '')), (kill) =>
      setImmediate(() => resolve({ stop: kill, served: end })),
    );
  });
  expect(await said(command(connects[0]!))).toBe('hello, world\n');
  expect(await said(command(connects[1]!))).toBe('world\n');
  stop();
  expect(await served).toMatch(/^listening at 127\.0\.0\.1:7472, 65536 bytes\n/);
});
