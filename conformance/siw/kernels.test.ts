/** The table of kernels, the choice of one, and the waivers that a later one has. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { cases } from '../cases/index.ts';
import { kernelOf, KERNELS, LabProblem, parseKernels, runLab, waiversOf } from './kernels.ts';

const BUILD = fileURLToPath(new URL('build-guest.sh', import.meta.url));

describe('the kernels of the guest', () => {
  it('are 6.1, whose cache is where it always was, and 6.12', () => {
    expect(KERNELS.map(({ line }) => line)).toEqual(['6.1', '6.12']);
    expect(kernelOf({}).cache).toMatch(/conformance\/siw\/\.cache$/);
    expect(kernelOf({ SIW_KERNEL: '' })).toBe(KERNELS[0]);
    expect(kernelOf({ SIW_KERNEL: '6.12' }).cache).toMatch(/\.cache\/6\.12$/);
  });

  it('have five columns', () => {
    expect(parseKernels('# a remark\n\n7.0 image source unpacked .cache/7.0\n')).toHaveLength(1);
    expect(() => parseKernels('7.0 image source unpacked\n')).toThrow('lacks columns');
  });

  it('are listed for a line that is none of them, here and by the build', async () => {
    const words = 'there is no guest with a kernel 6.5: set SIW_KERNEL to 6.1 or 6.12';
    expect(() => kernelOf({ SIW_KERNEL: '6.5' })).toThrow(new LabProblem(words));
    const build = spawnSync('bash', [BUILD], {
      env: { ...process.env, SIW_KERNEL: '6.5' },
      encoding: 'utf8',
    });
    expect([build.status, build.stderr]).toEqual([1, `siw-guest: ${words}\n`]);
    await expect(runLab(() => Promise.reject(new LabProblem(words)))).resolves.toBe(2);
    await expect(runLab(() => Promise.reject(new Error('a fault')))).rejects.toThrow('a fault');
  });

  it('have waivers that name cases', () => {
    const ids = cases.map(({ id }) => id);
    for (const kernel of KERNELS) expect(waiversOf(kernel).idle(ids)).toEqual([]);
  });
});
