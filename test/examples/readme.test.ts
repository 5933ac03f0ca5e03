// The programs of the README. The first two are run as one and with less memory: what the client writes stands in the server's memory.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';
import { ROOT, runTs } from './support.ts';

const text = readFileSync(join(ROOT, 'README.md'), 'utf8');
const programs = [...text.matchAll(/^```js\n([^]*?)^```$/gm)].map((match) => match[1]!);

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

it('the README moves memory in a dozen lines of plain JavaScript', async () => {
  expect(programs).toHaveLength(2);
  const lines = programs.join('').split('\n').filter((line) => line !== '');
  expect(lines.length).toBeLessThanOrEqual(12);
  // Node 20 does not know `await using`, and these are for node without a loader.
  expect(programs.join('')).not.toMatch(/\busing\b|!\.| as /);

  const folder = mkdtempSync(join(tmpdir(), 'iwarp-readme-'));
  try {
    const source = pathToFileURL(join(ROOT, 'src/index.ts')).href;
    const port = await freePort();
    const code = programs.join('\n').replaceAll("'iwarp'", `'${source}'`).replaceAll('4711', String(port)).replaceAll('2 ** 30', '2 ** 22');
    expect(code.match(/2 \*\* 22/g)).toHaveLength(2);
    const file = join(folder, 'both.mjs');
    writeFileSync(file, `${code}\nconsole.log(memory.every((octet) => octet === 7));\nprocess.exit();\n`);
    // It registers ordinary memory, whatever the other tests run on.
    expect(await runTs(file, [], { IWARP_ENGINE: 'thread' })).toEqual({ status: 0, stdout: 'true\n', stderr: '' });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it("the README's HTTP over RDMA answers", async () => {
  const [program] = [...text.matchAll(/^```ts\n([^]*?)^```$/gm)].map((match) => match[1]!).filter((code) => code.includes("'iwarp/sockets'"));
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-readme-'));
  try {
    const source = pathToFileURL(join(ROOT, 'src/sockets/index.ts')).href;
    const code = program!.replaceAll("'iwarp/sockets'", `'${source}'`).replaceAll('7471', String(await freePort()));
    const file = join(folder, 'http.mts');
    writeFileSync(file, `${code}\nprocess.stdout.on('unpipe', () => process.exit());\n`);
    expect(await runTs(file, [])).toEqual({ status: 0, stdout: 'you asked for /over/rdma', stderr: '' });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
