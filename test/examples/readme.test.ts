// The programs of the README. The first two are run as one and with less memory: what the client writes
// stands in the server's memory.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { plain } from '../support/plain.ts';
import { ROOT, runTs } from './support.ts';
import { freePort } from '../../scripts/ports.ts';

const text = readFileSync(join(ROOT, 'README.md'), 'utf8');
const programs = [...text.matchAll(/^```js\n([^]*?)^```$/gm)].map((match) => match[1]!);

it.each(['thread', 'worker'])(
  'the README moves memory in ten lines of JavaScript, engine %s',
  async (engine) => {
    expect(programs).toHaveLength(2);
    const lines = programs
      .join('')
      .split('\n')
      .filter((line) => line !== '');
    expect(lines.length).toBeLessThanOrEqual(10);
    // Node 20 does not know `await using`, and these are for node without a loader.
    expect(programs.join('')).not.toMatch(/\busing\b|!\.| as /);

    const folder = mkdtempSync(join(tmpdir(), 'iwarp-readme-'));
    try {
      const source = plain('src/index.ts');
      const port = await freePort();
      const code = programs
        .join('\n')
        .replaceAll("'iwarp'", `'${source}'`)
        .replaceAll('4711', String(port))
        .replaceAll('2 ** 30', '2 ** 22');
      expect(code.match(/2 \*\* 22/g)).toHaveLength(2);
      const file = join(folder, 'both.mjs');
      writeFileSync(file, `${code}\nconsole.log(memory.every((octet) => octet === 7));\nprocess.exit();\n`);
      expect(await runTs(file, [], { IWARP_ENGINE: engine })).toEqual({
        status: 0,
        stdout: 'true\n',
        stderr: '',
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);

const streams = [...text.matchAll(/^```ts\n([^]*?)^```$/gm)]
  .map((match) => match[1]!)
  .filter((code) => code.includes("'iwarp/sockets'"));

/** A program of the streams, from the source and at a free port; `behind` is put at its end. */
async function streamed(program: string, port: string, behind: string, engine = 'thread'): Promise<unknown> {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-readme-'));
  try {
    const source = plain('src/sockets/index.ts');
    const code = program
      .replaceAll("'iwarp/sockets'", `'${source}'`)
      .replaceAll(port, String(await freePort()));
    const file = join(folder, 'streams.mts');
    writeFileSync(file, `${code}\n${behind}\n`);
    return await runTs(file, [], { IWARP_ENGINE: engine });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

it("the README's HTTP over RDMA answers", async () => {
  const exit = "process.stdout.on('unpipe', () => process.exit());";
  expect(await streamed(streams[0]!, '7471', exit)).toEqual({
    status: 0,
    stdout: 'you asked for /over/rdma',
    stderr: '',
  });
});

it.each(['thread', 'worker'])("the README's SDP gives its memory back, engine %s", async (engine) => {
  expect(streams).toHaveLength(2);
  expect(await streamed(streams[1]!, '7472', '', engine)).toEqual({
    status: 0,
    stdout: 'all 7, and back are 1048576 bytes\n',
    stderr: '',
  });
});
