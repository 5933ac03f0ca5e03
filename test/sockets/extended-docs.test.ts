// The program of docs/extended-sockets.md does what the page says.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT, runTs } from '../examples/support.ts';
import { plain } from '../support/plain.ts';

const page = readFileSync(join(ROOT, 'docs/extended-sockets.md'), 'utf8');

it('docs/extended-sockets.md: one connection is plain, and then RDMA', async () => {
  const [program] = [...page.matchAll(/^```ts\n([^]*?)^```/gm)].map((match) => match[1]!);
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  const source = (path: string): string => `'${plain(path)}'`;
  const code = program!
    .replaceAll("'iwarp/sockets'", source('src/sockets/index.ts'))
    .replaceAll("'iwarp'", source('src/index.ts'))
    .replaceAll('7471', String(port));
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-extended-'));
  try {
    const file = join(folder, 'both.mts');
    writeFileSync(file, `${code}\nsocket.once('close', () => setTimeout(() => process.exit(), 50));\n`);
    expect(await runTs(file)).toEqual({ status: 0, stdout: '7 7\n', stderr: '' });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('names calls that exist', async () => {
  const { ExtendedSocket } = await import('../../src/sockets/index.ts');
  const table = page.slice(page.indexOf('## The calls'), page.indexOf('## The switch'));
  const names = [...table.matchAll(/`(?:await )?([a-z]\w+)\(/gi)].map((match) => match[1]!);
  expect(names.length).toBeGreaterThan(10);
  for (const name of names)
    expect(Object.getOwnPropertyNames(ExtendedSocket.prototype), name).toContain(name);
});
