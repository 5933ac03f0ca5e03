/**
 * Judges of the key-value store, none of them ours: `npx tsx scripts/judges-kv.ts` after `npm run build`.
 * memccapable, redis-cli beside a stock redis-server, redis-benchmark, and the npm packages ioredis, redis
 * and memjs use our edges. Installs missing tools from Debian and npm. With `--smoke` redis-cli and
 * memccapable alone.
 */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { aptInstall, report, SMOKE, sums } from './judge.ts';
import { freePort } from './ports.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SESSION = join(ROOT, 'test/kv/redis-session.txt');
const PACKAGES = {
  'redis-server': 'redis-server',
  'redis-cli': 'redis-tools',
  'redis-benchmark': 'redis-tools',
  memccapable: 'libmemcached-tools',
} as const;
const NPM = ['ioredis@6.0.0', 'redis@6.3.1', 'memjs@1.3.2'] as const;

const running: ChildProcess[] = [];
const folder = mkdtempSync(join(tmpdir(), 'iwarp-judges-kv-'));

/** Start our store; resolves with the ports of its edges. */
async function startStore(): Promise<Readonly<Record<string, number>>> {
  const at = '127.0.0.1:0';
  const args = ['kv', 'serve', '--memory', '64M', '--rdma', at, '--resp', at, '--memcached', at];
  const child = spawn(process.execPath, [join(ROOT, 'bin/iwarp.js'), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  running.push(child);
  const ports: Record<string, number> = {};
  for await (const line of createInterface({ input: child.stdout })) {
    const [, edge, port] = /^(\w+) at .*:(\d+)$/.exec(line) ?? [];
    if (edge !== undefined) ports[edge] = Number(port);
    if (Object.keys(ports).length === 3) return ports;
  }
  throw new Error('the store has not started');
}

async function startRedis(): Promise<number> {
  const port = await freePort();
  const args = [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--databases',
    '1',
    '--dir',
    folder,
  ];
  running.push(spawn('redis-server', args, { stdio: 'ignore' }));
  for (let i = 0; i < 100; i++) {
    const isUp = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(socket.destroy() !== undefined));
      socket.once('error', () => resolve(false));
    });
    if (isUp) return port;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('redis-server has not started');
}

/** The answers of redis-cli, a block for each command: an ECHO stands between them. */
function answers(port: number, version: 2 | 3, commands: readonly string[]): string[] {
  const lines = commands.flatMap((command, i) => [
    command,
    ...(isQueuing(commands, i) ? [] : [`ECHO <<${i}>>`]),
  ]);
  const flags = ['-p', String(port), `-${version}`, '--no-raw'];
  const text = execFileSync('redis-cli', flags, {
    input: `${lines.join('\n')}\n`,
    encoding: 'utf8',
    timeout: 60_000,
  });
  return text.split(/^"<<\d+>>"\n/m);
}

/** Inside of a transaction an ECHO would be queued too. */
function isQueuing(commands: readonly string[], until: number): boolean {
  let inside = false;
  for (const command of commands.slice(0, until + 1)) {
    if (command === 'MULTI') inside = true;
    if (command === 'EXEC' || command === 'DISCARD') inside = false;
  }
  return inside;
}

function compareSessions(ours: number, theirs: number): void {
  const commands = readFileSync(SESSION, 'utf8').trim().split('\n');
  for (const version of [2, 3] as const) {
    const [a, b] = [answers(ours, version, commands), answers(theirs, version, commands)];
    report(`redis-cli -${version}: as many answers as the stock server gives`, a.length === b.length);
    const shown = commands.filter((_, i) => !isQueuing(commands, i));
    for (const [i, command] of shown.entries())
      report(`redis-cli -${version}: ${command}`, a[i] === b[i], `  ours:   ${a[i]}\n  theirs: ${b[i]}`);
  }
}

function benchmark(port: number): void {
  const args = ['-p', String(port), '-q', '-n', '20000', '-c', '20', '-P', '16', '-t', 'set,get,incr,mset'];
  const { status, stdout, stderr } = spawnSync('redis-benchmark', args, {
    encoding: 'utf8',
    timeout: 120_000,
  });
  const rates = [...stdout.matchAll(/^\s*(\w[^:\r]*): ([\d.]+) requests per second/gm)];
  for (const [, name, rate] of rates) console.log(`       ${name}: ${rate} a second`);
  report(
    'redis-benchmark -t set,get,incr,mset -P 16',
    status === 0 && new Set(rates.map(([, name]) => name)).size >= 4,
    stdout + stderr,
  );
}

function memccapable(port: number): void {
  const { stdout, stderr } = spawnSync('memccapable', ['-h', '127.0.0.1', '-p', String(port)], {
    encoding: 'utf8',
    timeout: 120_000,
  });
  const lines = (stdout + stderr).split('\n');
  const good = lines.filter((line) => line.endsWith('[pass]')).length;
  report(`memccapable: ${good} of 54`, good === 54, lines.filter((line) => line.includes('FAIL')).join('\n'));
}

/** The npm clients, as a user writes them. */
const CLIENTS = `
import Redis from 'ioredis';
import { createClient } from 'redis';
import memjs from 'memjs';
import assert from 'node:assert/strict';
const [resp, memcached] = process.argv.slice(2).map(Number);
const io = new Redis({ port: resp, host: '127.0.0.1' });
assert.equal(await io.set('io', 'value'), 'OK');
assert.equal(await io.get('io'), 'value');
assert.deepEqual(await io.mget('io', 'none'), ['value', null]);
assert.equal(await io.incrby('io:n', 5), 5);
assert.equal(await io.hset('io:h', { a: 1, b: 2 }), 2);
assert.deepEqual(await io.hgetall('io:h'), { a: '1', b: '2' });
assert.deepEqual(await io.multi().set('io:x', 1).incr('io:x').exec(), [[null, 'OK'], [null, 2]]);
const pipeline = io.pipeline();
for (let i = 0; i < 1000; i++) pipeline.set('p:' + i, i).get('p:' + i);
assert.equal((await pipeline.exec()).at(-1)[1], '999');
let seen = 0;
for await (const keys of io.scanStream({ match: 'p:*', count: 100 })) seen += keys.length;
assert.equal(seen, 1000);
await assert.rejects(io.lpush('io', 1), /unknown command/);
await io.quit();
console.log('ioredis');
const redis = createClient({ socket: { port: resp, host: '127.0.0.1' } });
await redis.connect();
assert.equal(await redis.set('r', 'v', { expiration: { type: 'EX', value: 100 } }), 'OK');
assert.equal(await redis.get('r'), 'v');
assert.equal(await redis.ttl('r'), 100);
await redis.hSet('r:h', 'f', 'v');
assert.deepEqual({ ...(await redis.hGetAll('r:h')) }, { f: 'v' });
assert.deepEqual(await redis.multi().incr('r:n').get('r:n').exec(), [1, '1']);
await redis.close();
console.log('redis');
const mem = memjs.Client.create('127.0.0.1:' + memcached);
await mem.set('m', 'value', { expires: 100 });
assert.equal((await mem.get('m')).value.toString(), 'value');
assert.equal((await mem.increment('m:n', 3, { initial: 4 })).value, 4);
assert.equal((await mem.increment('m:n', 3)).value, 7);
assert.equal(await mem.delete('m'), true);
assert.equal((await mem.get('m')).value, null);
mem.close();
console.log('memjs');
`;

function npmClients(resp: number, memcached: number): void {
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ name: 'judges', private: true, type: 'module' }),
  );
  execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', ...NPM], {
    cwd: folder,
    stdio: 'ignore',
  });
  writeFileSync(join(folder, 'clients.mjs'), CLIENTS);
  const { stdout, stderr } = spawnSync(process.execPath, ['clients.mjs', String(resp), String(memcached)], {
    cwd: folder,
    encoding: 'utf8',
    timeout: 60_000,
  });
  for (const name of ['ioredis', 'redis', 'memjs'])
    report(`npm ${name}`, stdout.split('\n').includes(name), stderr);
}

async function main(): Promise<void> {
  aptInstall(PACKAGES);
  const ports = await startStore();
  const redis = await startRedis();
  compareSessions(ports['resp']!, redis);
  memccapable(ports['memcached']!);
  if (SMOKE) return;
  benchmark(ports['resp']!);
  npmClients(ports['resp']!, ports['memcached']!);
}

try {
  await main();
} finally {
  for (const child of running) child.kill();
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = sums();
