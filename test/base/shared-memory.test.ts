/** Shared memory that nobody uses goes back to the system, in a process that does little else. */
import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { plain } from '../support/plain.ts';

const SOURCE = plain('src/base/shared-memory.ts');

/** The MiB that a process has after it has taken 20 times 64 MiB and let them go; `count` counts them. */
function restOf(count: string): number {
  const program = `
    import { countShared } from ${JSON.stringify(SOURCE)};
    for (let i = 0; i < 20; i++) {
      ${count};
      new Uint8Array(new SharedArrayBuffer(64 << 20)).fill(1);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    console.log(process.memoryUsage.rss() / 2 ** 20);`;
  // Nor does V8 look for garbage by itself, as it does in a process that has been idle for seconds.
  const args = ['--no-memory-reducer', '--input-type=module', '-e', program];
  return Number(execFileSync(process.execPath, args, { encoding: 'utf8' }));
}

it('is looked for where it is counted, and only there', () => {
  expect(restOf('countShared(64 << 20)')).toBeLessThan(700);
  expect(restOf('void countShared')).toBeGreaterThan(1200);
}, 60_000);
