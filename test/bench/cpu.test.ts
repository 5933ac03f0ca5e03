/** The processor time of a row's turn, where threads and processes end in the middle of it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, it } from 'vitest';
import { cpuSeconds } from '../../bench/papers/cpu.ts';

const BURNT_MS = 100;
/** What a busy machine leaves of it, and ticks of a hundredth of a second do not count. */
const SEEN_S = 0.05;
const BURN = `
  const before = process.cpuUsage();
  const spent = () => { const { user, system } = process.cpuUsage(before); return user + system; };
  while (spent() < ${BURNT_MS * 1000});
`;
/** A program that waits for a line at its end. */
const WAIT = `process.stdin.once('data', () => process.exit(0)); process.stdout.write('burnt');`;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

function child(program: string) {
  const started = spawn(process.execPath, ['-e', program], { stdio: ['pipe', 'pipe', 'ignore'] });
  ends.push(() => started.kill('SIGKILL'));
  return started;
}

describe.runIf(existsSync(`/proc/self/task/${process.pid}/children`))('processor time', () => {
  it('does not fall when a thread ends', async () => {
    const worker = new Worker(
      `${BURN} require('worker_threads').parentPort.postMessage('burnt');
      setInterval(() => undefined, 1000);`,
      { eval: true },
    );
    ends.push(() => worker.terminate());
    const before = cpuSeconds();
    await once(worker, 'message');
    const burnt = cpuSeconds();
    expect(burnt - before).toBeGreaterThan(SEEN_S);
    await worker.terminate();
    expect(cpuSeconds()).toBeGreaterThanOrEqual(burnt);
  });

  it('does not fall when a process ends', async () => {
    const before = cpuSeconds();
    const started = child(BURN + WAIT);
    await once(started.stdout, 'data');
    const burnt = cpuSeconds();
    expect(burnt - before).toBeGreaterThan(SEEN_S);
    started.stdin.end('end\n');
    await once(started, 'exit');
    expect(cpuSeconds()).toBeGreaterThanOrEqual(burnt);
  });

  it('does not fall when a thread of another process ends', async () => {
    const started = child(`
      const { Worker } = require('worker_threads');
      const worker = new Worker(${JSON.stringify(`${BURN} setInterval(() => undefined, 1000);
        require('worker_threads').parentPort.postMessage('burnt');`)}, { eval: true });
      worker.on('message', () => process.stdout.write('burnt'));
      worker.on('exit', () => process.stdout.write('ended'));
      process.stdin.once('data', () => worker.terminate());
    `);
    await once(started.stdout, 'data');
    const burnt = cpuSeconds();
    started.stdin.write('end\n');
    await once(started.stdout, 'data');
    expect(cpuSeconds()).toBeGreaterThanOrEqual(burnt);
  });

  it('has what came and went between two readings', async () => {
    const before = cpuSeconds();
    const worker = new Worker(BURN, { eval: true });
    await once(worker, 'exit');
    const between = cpuSeconds();
    expect(between - before).toBeGreaterThan(SEEN_S);
    await once(child(BURN), 'exit');
    expect(cpuSeconds() - between).toBeGreaterThan(SEEN_S);
  });
});
