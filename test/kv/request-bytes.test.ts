// What a client sent is what the parser sees, however it was cut, and a long value costs about its length.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { RequestBytes } from '../../src/kv/request-bytes.ts';

it('gives the octets of all pushes in order, and overwrites none that the socket owns', () => {
  const step = fc.oneof(
    fc.record({ push: fc.uint8Array({ maxLength: 40 }) }),
    fc.record({ take: fc.nat({ max: 60 }) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const bytes = new RequestBytes();
      let model: number[] = [];
      const pushed: [Buffer, string][] = [];
      for (const one of steps) {
        if ('push' in one) {
          const piece = Buffer.from(one.push);
          pushed.push([piece, piece.toString('hex')]);
          bytes.push(piece);
          model.push(...piece);
        } else {
          expect([...bytes.take(one.take)]).toEqual(model.slice(0, one.take));
          model = model.slice(one.take);
        }
        expect([...bytes.view]).toEqual(model);
        expect(bytes.length).toBe(model.length);
        expect(bytes.held).toBeGreaterThanOrEqual(model.length);
        for (const octet of [0, 10, 255]) expect(bytes.indexOf(octet)).toBe(model.indexOf(octet));
        for (const index of [0, 1, model.length]) expect(bytes.at(index)).toBe(model[index]);
      }
      for (const [piece, hex] of pushed) expect(piece.toString('hex')).toBe(hex);
    }),
    { numRuns: 500, seed: 41 },
  );
});

it('copies a value of a thousand pieces about once, and keeps nothing when it has gone', () => {
  const bytes = new RequestBytes();
  const buffers = new Set<ArrayBufferLike>();
  for (let i = 0; i < 1000; i++) {
    bytes.push(Buffer.alloc(1000, i));
    if (i > 0) buffers.add(bytes.view.buffer);
  }
  expect([...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0)).toBeLessThan(4_100_000);
  expect(bytes.held).toBeLessThanOrEqual(2_050_000);
  bytes.take(1_000_000);
  expect(bytes.held).toBe(0);
});
