/** The devices against a model: plain memory that gets the same calls. */
// cspell:ignore sise
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import {
  fileDevice,
  memoryDevice,
  overlayDevice,
  sliceDevice,
  type BlockDevice,
} from '../../src/nbd/index.ts';
import { NEVER } from '../../src/nbd/device.ts';
import { pattern } from './support.ts';

const SIZE = 300_000;
const folder = await mkdtemp(join(tmpdir(), 'iwarp-nbd-'));
afterAll(() => rm(folder, { recursive: true }));

type Step = { readonly kind: 'write' | 'zero' | 'read'; readonly at: number; readonly length: number };
const steps = fc.array(
  fc
    .record({
      kind: fc.constantFrom('write', 'zero', 'read' as const),
      at: fc.integer({ min: 0, max: SIZE - 1 }),
      length: fc.integer({ min: 1, max: 140_000 }),
    })
    .map(({ length, at, kind }) => ({ kind, at, length: Math.min(length, SIZE - at) }) as Step),
  { maxLength: 12 },
);

async function agrees(device: BlockDevice, model: Uint8Array, list: readonly Step[]): Promise<void> {
  for (const [i, { kind, at, length }] of list.entries()) {
    const offset = BigInt(at);
    if (kind === 'write') {
      const data = pattern(length, i + 7);
      await device.write(data, offset, { fua: i % 2 === 0 }, NEVER);
      model.set(data, at);
    } else if (kind === 'zero') {
      await device.zero!(offset, length, { fast: false, noHole: false });
      model.fill(0, at, at + length);
    } else {
      const data = new Uint8Array(length);
      await device.read(data, offset, NEVER);
      expect(Buffer.compare(data, model.subarray(at, at + length))).toBe(0);
    }
  }
  const all = new Uint8Array(SIZE);
  await device.read(all, 0n, NEVER);
  expect(Buffer.compare(all, model)).toBe(0);
}

const makers: Record<string, () => Promise<BlockDevice>> = {
  memory: async () => memoryDevice({ memory: pattern(SIZE) }),
  file: async () => {
    await writeFile(join(folder, 'disk'), pattern(SIZE));
    return await fileDevice(join(folder, 'disk'));
  },
  overlay: async () => overlayDevice(memoryDevice({ memory: pattern(SIZE), readOnly: true })),
  slice: async () => {
    const memory = new Uint8Array(SIZE + 1000);
    memory.set(pattern(SIZE), 500);
    return sliceDevice(memoryDevice({ memory }), 500n, BigInt(SIZE));
  },
};

describe.each(Object.keys(makers))('the %s device', (name) => {
  it('does what plain memory does, for random writes, zeros and reads', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (list) => {
        const device = await makers[name]!();
        await agrees(device, pattern(SIZE), list);
        await device.close?.();
      }),
      { numRuns: 40 },
    );
  });

  it('refuses a range that is not inside it', async () => {
    const device = await makers[name]!();
    const outside = expect.objectContaining({ code: 'ERR_OUT_OF_RANGE' });
    await expect(device.read(new Uint8Array(2), BigInt(SIZE) - 1n, NEVER)).rejects.toEqual(outside);
    await expect(device.write(new Uint8Array(2), -1n, { fua: false }, NEVER)).rejects.toEqual(outside);
    await device.close?.();
  });
});

it('an overlay never changes its base, and writers of one cluster do not lose each other', async () => {
  const memory = pattern(SIZE);
  const device = overlayDevice(memoryDevice({ memory, readOnly: true }));
  await Promise.all(
    Array.from({ length: 64 }, (_, i) =>
      device.write(Uint8Array.of(i), BigInt(i * 100), { fua: false }, NEVER),
    ),
  );
  const read = new Uint8Array(6400);
  await device.read(read, 0n, NEVER);
  for (let i = 0; i < 64; i++) expect(read[i * 100]).toBe(i);
  expect(Buffer.compare(memory, pattern(SIZE))).toBe(0);
});

it('an overlay reports zeroed clusters as holes', async () => {
  const device = overlayDevice(memoryDevice({ size: 262_144 }));
  await device.zero!(65_536n, 131_072, { fast: false, noHole: false });
  const found = [];
  for await (const extent of device.extents!(0n, 262_144)) found.push(extent);
  expect(found.map(({ hole, zero, length }) => [length, hole, zero])).toEqual([
    [65_536, false, false],
    [65_536, true, true],
    [65_536, true, true],
    [65_536, false, false],
  ]);
});

it('a file device stores in its file, is made with a size, and says why it cannot be opened', async () => {
  const path = join(folder, 'new');
  const device = await fileDevice(path, { size: 1000 });
  await device.write(Buffer.from('hello'), 995n, { fua: true }, NEVER);
  await device.flush!();
  await device.close!();
  expect((await readFile(path)).subarray(990).toString('latin1')).toBe('\0\0\0\0\0hello');
  await expect(fileDevice(join(folder, 'none'))).rejects.toMatchObject({ code: 'ERR_ACCESS' });
  await expect(fileDevice(folder, { readOnly: true })).rejects.toMatchObject({ code: 'ERR_ACCESS' });
});

it('wrong arguments throw at once with the name of the argument', () => {
  const wrong = (name: string): unknown =>
    expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT', message: expect.stringContaining(name) });
  expect(() => memoryDevice({ size: -1 })).toThrow(wrong('options.size'));
  expect(() => memoryDevice({ sise: 1 } as never)).toThrow(wrong('options.sise'));
  expect(() => overlayDevice(memoryDevice({ size: 1 }), { cluster: 5000 })).toThrow(wrong('options.cluster'));
  expect(() => sliceDevice({} as never, 0n, 0n)).toThrow(wrong('device.size'));
});
