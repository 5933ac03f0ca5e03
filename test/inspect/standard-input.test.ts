// A capture on standard input, as the systems end it.
import { expect, it, vi } from 'vitest';
import { readCaptureFile } from '../../src/inspect/read-file.ts';

const HEADER = Uint8Array.from([
  0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0,
]);
/** What a read does, one after the other. */
const reads: ((piece: Uint8Array) => number)[] = [];

vi.mock('node:fs', async (original) => ({
  ...(await original<typeof import('node:fs')>()),
  readSync: (_descriptor: number, piece: Uint8Array) => reads.shift()!(piece),
}));

const all = (piece: Uint8Array): number => {
  piece.set(HEADER);
  return HEADER.length;
};
const failing = (code: string) => (): never => {
  throw Object.assign(new Error(code), { code, syscall: 'read' });
};

it.each<[string, (piece: Uint8Array) => number]>([
  ['a read of no octets', () => 0],
  ['on Windows the error EOF', failing('EOF')],
])('ends with %s', (_how, end) => {
  const reader = { push: vi.fn(), end: vi.fn() };
  reads.push(failing('EAGAIN'), all, end);
  readCaptureFile('-', reader);
  expect(reads).toEqual([]);
  expect(reader.push).toHaveBeenCalledExactlyOnceWith(HEADER);
  expect(reader.end).toHaveBeenCalledOnce();
});

it('any other error is passed on', () => {
  reads.push(all, failing('EIO'));
  expect(() => readCaptureFile('-', { push: vi.fn(), end: vi.fn() })).toThrow('EIO');
});
