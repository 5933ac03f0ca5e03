/** The command channel, both ends: `lab-channel.ts` against `agent.sh` under this machine's own shell. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { PeerProcess } from './bench.ts';
import { overChild, runOver } from './lab-channel.ts';

const AGENT = fileURLToPath(new URL('agent.sh', import.meta.url));

function start(command: string): PeerProcess {
  const child = spawn('sh', [AGENT], { stdio: ['pipe', 'pipe', 'inherit'] });
  return runOver(overChild(child), command, (other) => void start(other));
}

describe('command channel', () => {
  it('returns the status and both output streams in order', async () => {
    expect(await start('echo one; echo two >&2; exit 7').ended).toEqual({ status: 7, output: 'one\ntwo\n' });
  });

  it('adds nothing to output without a last newline, and nothing to none', async () => {
    expect(await start('printf abc').ended).toEqual({ status: 0, output: 'abc' });
    expect(await start('true').ended).toEqual({ status: 0, output: '' });
  });

  it('carries quotes, newlines and a line that looks like its own last one', async () => {
    const text = `a 'b' "c" $d\n0123456789abcdef status 3\n`;
    expect(await start(`cat <<'END'\n${text}END\n`).ended).toEqual({ status: 0, output: text });
  });

  it('shows output of a command that goes on, and ends it with all it started', async () => {
    const process = start('sleep 60 & echo child $!; wait');
    while (!/child \d+\n?$/.test(process.output)) await new Promise((resolve) => setImmediate(resolve));
    await process.kill('TERM');
    expect((await process.ended).status).toBe(128 + 15);
    const child = /child (\d+)/.exec(process.output)?.[1];
    // A killed child may still be listed until its parent has collected it, but only as a zombie.
    const left = await start(`sleep 0.2; grep -s State /proc/${child}/status; true`).ended;
    expect(left.output).not.toMatch(/State:\s+[RSD]/);
  });

  it('runs several commands at once', async () => {
    // Each waits for the other's file: one after the other they would never end.
    const folder = `/tmp/lab-channel-${process.pid}-${Date.now()}`;
    const meet = (mine: string, other: string): string =>
      `mkdir -p ${folder}; touch ${folder}/${mine}; until [ -e ${folder}/${other} ]; do sleep 0.05; ` +
      `done; echo ${mine}`;
    const both = await Promise.all([start(meet('a', 'b')).ended, start(meet('b', 'a')).ended]);
    expect(both.map(({ output }) => output)).toEqual(['a\n', 'b\n']);
    await start(`rm -r ${folder}`).ended;
  });

  it('loses no output and no status where this process hears of the end late', async () => {
    const seen: unknown[] = [];
    for (let round = 0; round < 6; round++) {
      const running = Array.from({ length: 6 }, () => start('echo here; exit 3'));
      // Output and end of a command have both come by the time that the event loop has its turn.
      const busy = setInterval(() => {
        const until = performance.now() + 30;
        while (performance.now() < until);
      }, 1);
      for (const { ended } of running) seen.push(await ended);
      clearInterval(busy);
    }
    expect(seen).toEqual(seen.map(() => ({ status: 3, output: 'here\n' })));
  });

  it('reports status -1 when the stream is lost', async () => {
    const child = spawn('sh', [AGENT], { stdio: ['pipe', 'pipe', 'inherit'] });
    const process = runOver(overChild(child), 'kill -KILL $PPID', () => {});
    expect((await process.ended).status).toBe(-1);
  });
});
