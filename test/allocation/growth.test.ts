/**
 * What an FPDU costs the heap in steady state. The octets stand for sender and receiver together, Node's
 * sockets included.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { Growth } from '../../bench/micro/growth.ts';
import { depth } from '../support/depth.ts';
import { plain } from '../support/plain.ts';

const CHILD = plain('bench/micro/growth.ts');

async function measure(...args: readonly string[]): Promise<Growth> {
  const node = ['--expose-gc', '--max-semi-space-size=128', '--min-semi-space-size=128', CHILD];
  const { stdout } = await promisify(execFile)(process.execPath, [...node, ...args], { timeout: 50_000 });
  return JSON.parse(stdout) as Growth;
}

const ascending = (values: readonly number[]): number[] => values.toSorted((a, b) => a - b);

describe('heap growth over loopback TCP', () => {
  // A stretch has 2000 FPDUs or more: one object of the smallest size kept for each would be twice this.
  const LEAK = 16_384;
  const STRETCHES = depth(5, 9);
  it.each([
    ['64-octet Writes', 64, 4000, 'plain', 2000],
    ['4 KiB Writes', 4096, 2000, 'plain', 3000],
    ['64 KiB Writes', 64_000, 2000, 'plain', 8000],
    ['64 KiB Writes with markers', 60_000, 2000, 'markers', 8000],
  ])('%s keep nothing, and little garbage', async (_name, size, stretch, markers, garbage) => {
    const growth = await measure(String(size), String(stretch), markers, String(STRETCHES));
    expect(growth.fpdus).toBeGreaterThanOrEqual(STRETCHES * stretch);
    // On a busy machine the compiler is late, and keeps and drops things for a while; a leak is in every
    // stretch.
    expect(ascending(growth.kept)[1]).toBeLessThan(LEAK);
    expect(ascending(growth.garbage)[growth.garbage.length >> 1]).toBeLessThan(garbage);
  });
});
