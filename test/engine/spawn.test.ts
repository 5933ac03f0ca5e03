// How the worker thread is started, in processes of other kinds than this one.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startCompiled } from '../../src/engine/proxy/spawn.ts';
import { ROOT } from '../examples/support.ts';
import { plain } from '../support/plain.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'iwarp-spawn-'));
  writeFileSync(
    join(folder, 'worker.mjs'),
    "import { parentPort, workerData } from 'node:worker_threads'; parentPort.postMessage(workerData + 1);",
  );
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('a compiled worker starts', () => {
  it.each<[string, readonly string[], string]>([
    ['from a program on the command line', ['-e'], ''],
    ['from a module on the command line', ['--input-type=module', '-e'], ''],
    ['from a module, said in two words', ['--input-type', 'module', '-e'], ''],
    ['where the environment says module', ['-e'], '--input-type=module'],
    ['with flags that only a process can have', ['--expose-gc', '--input-type=module', '-e'], ''],
  ])('%s', async (_name, flags, nodeOptions) => {
    const spawn = JSON.stringify(plain('src/engine/proxy/spawn.ts'));
    const worker = JSON.stringify(pathToFileURL(join(folder, 'worker.mjs')).href);
    const code =
      `import(${spawn}).then((spawn) => spawn.${startCompiled.name}(new URL(${worker}), { workerData: ` +
      "41 }).on('message', console.log).on('error', console.log));";
    const env = { ...process.env, NODE_OPTIONS: nodeOptions };
    const output = await new Promise<string>((resolve) => {
      execFile(process.execPath, [...flags, code], { cwd: ROOT, env, timeout: 30_000 }, (_, stdout, stderr) =>
        resolve(stdout + stderr),
      );
    });
    expect(output).toBe('42\n');
  });
});
