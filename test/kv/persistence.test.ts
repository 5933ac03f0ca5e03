// The log of changes: acknowledged changes are there again, after kill -9 and after a cut in the file.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, rmSync, truncateSync, statSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { createStore } from '../../src/kv/index.ts';
import { depth } from '../support/depth.ts';

const ROUNDS = depth(4, 20);

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'iwarp-kv-log-'));
afterAll(() => rmSync(folder, { recursive: true }));

const shown = (value: Uint8Array | null): string | null =>
  value === null ? null : Buffer.from(value).toString();

async function owner(path: string): Promise<{ child: ChildProcess; port: number }> {
  const child = spawn(
    process.execPath,
    [
      join(ROOT, 'bin/iwarp.js'),
      'kv',
      'serve',
      '--resp',
      '127.0.0.1:0',
      '--persist',
      path,
      '--memory',
      '8M',
      '--engine',
      'thread',
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const port = /:(\d+)$/.exec(line)?.[1];
    if (port !== undefined) return { child, port: Number(port) };
  }
  throw new Error('the store has not started');
}

/** Lines as they come; the end of the connection, however it comes, is the end of the lines. */
async function* linesOf(socket: Socket): AsyncGenerator<string, undefined> {
  let text = '';
  try {
    for await (const bytes of socket) {
      text += (bytes as Buffer).toString('latin1');
      for (let end = text.indexOf('\r\n'); end >= 0; end = text.indexOf('\r\n')) {
        yield text.slice(0, end);
        text = text.slice(end + 2);
      }
    }
  } catch {
    // The process has been killed.
  }
  return undefined;
}

it(`a killed store loses no acknowledged change, ${ROUNDS} times`, async () => {
  const path = join(folder, 'killed');
  const model = new Map<string, string>();
  for (let round = 0; round < ROUNDS; round++) {
    const { child, port } = await owner(path);
    const socket = connectTcp(port, '127.0.0.1');
    socket.on('error', () => undefined);
    const lines = linesOf(socket);
    // What the last round has acknowledged is there.
    const keys = [...model.keys()];
    if (keys.length > 0) {
      socket.write(`MGET ${keys.join(' ')}\r\n`);
      expect((await lines.next()).value).toBe(`*${keys.length}`);
      for (const key of keys) {
        const head = (await lines.next()).value as string;
        const found = head === '$-1' ? null : ((await lines.next()).value as string);
        expect(`${key} ${found}`).toBe(`${key} ${model.get(key)}`);
      }
    }
    // Changes one after the other, until the process dies in the midst of those behind the thirtieth.
    const dies = once(child, 'exit');
    for (let i = 0; ; i++) {
      if (i === 30) setTimeout(() => child.kill('SIGKILL'), round * 3);
      const [key, value] = [`key${i % 50}`, `${round}-${i}`];
      socket.write(`SET ${key} ${value}\r\n`);
      // One that is not answered may or may not have happened: the key is not looked at.
      model.delete(key);
      const answer = await Promise.race([lines.next(), dies.then(() => ({ done: true, value: undefined }))]);
      if (answer.done === true || answer.value !== '+OK') break;
      model.set(key, value);
    }
    await dies;
    socket.destroy();
  }
  expect(model.size).toBeGreaterThan(20);
}, 120_000);

it('a log that breaks off is read to there; kinds, flags, times and counters come back', async () => {
  const path = join(folder, 'cut');
  let store = createStore({ octets: 8 * 2 ** 20, engine: 'thread', persist: path });
  store.set('a', '1');
  store.set('b', '2', { ttl: 60_000 });
  store.set('c', '3');
  store.delete('c');
  await store.close();
  const file = join(path, 'iwarp-kv.log');
  appendFileSync(file, Buffer.from('a record that is none'));
  store = createStore({ octets: 8 * 2 ** 20, engine: 'thread', persist: path });
  expect(['a', 'b', 'c'].map((key) => shown(store.get(key)))).toEqual(['1', '2', null]);
  store.set('last', 'x'.repeat(100));
  // Not closed: as after a kill, with the last record cut short.
  truncateSync(file, statSync(file).size - 1);
  const again = createStore({ octets: 8 * 2 ** 20, engine: 'thread', persist: path });
  expect(['a', 'b', 'last'].map((key) => shown(again.get(key)))).toEqual(['1', '2', null]);
  await again.close();
  await store.close();
});

it('a folder that cannot be used is said', () => {
  expect(() => createStore({ engine: 'thread', persist: '/dev/null/here' })).toThrow(
    expect.objectContaining({ code: 'ERR_ACCESS' }),
  );
});
