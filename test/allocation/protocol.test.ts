/**
 * What an FPDU costs the heap in steady state, without sockets: nothing up to 128 octets, above
 * them a view at either end for its copies.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { plain } from '../support/plain.ts';

const CHILD = plain('test/allocation/protocol.child.ts');

async function garbage(...args: readonly (string | number)[]): Promise<number[]> {
  const node = ['--expose-gc', '--max-semi-space-size=128', '--min-semi-space-size=128', CHILD];
  const { stdout } = await promisify(execFile)(process.execPath, [...node, ...args.map(String)], {
    timeout: 50_000,
  });
  return JSON.parse(stdout) as number[];
}

describe('garbage of an FPDU in the stack itself', () => {
  /** The smallest object has 16 octets: less than that is shared by several FPDUs. */
  const NO_OBJECT = 12;
  /** One FPDU in six has a marker inside, and is gathered through views. */
  const SOME_VIEWS = 80;
  const TWO_VIEWS = 300;
  it.each([
    ['write', 64, 100, 'crc', NO_OBJECT],
    ['write', 64, 100, 'off', NO_OBJECT],
    ['write', 64, 100, 'markers', SOME_VIEWS],
    ['write', 0, 100, 'crc', NO_OBJECT],
    ['send', 64, 100, 'crc', NO_OBJECT],
    ['send', 128, 100, 'crc', NO_OBJECT],
    ['send', 64, 100, 'markers', SOME_VIEWS],
    ['write', 4096, 20, 'crc', TWO_VIEWS],
    ['send', 4096, 20, 'crc', TWO_VIEWS],
  ])('%s of %i octets, %i lists, %s', async (kind, octets, lists, how, most) => {
    const found = await garbage(kind, octets, lists, how);
    // On a busy machine the compiler is late; what the code allocates is in every stretch.
    expect(found.toSorted((x, y) => x - y)[found.length >> 1]).toBeLessThan(most);
  });
});
