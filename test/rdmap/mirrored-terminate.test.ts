/**
 * Terminates of the Linux siw driver, whose header is mirrored by bit fields on little-endian machines,
 * beside lawful ones.
 */
import { describe, expect, it } from 'vitest';
import { parseTerminate } from '../../src/rdmap/terminate.ts';

const parse = (hex: string): ReturnType<typeof parseTerminate> => {
  const bytes = Uint8Array.from(Buffer.from(hex.replaceAll(' ', ''), 'hex'));
  return parseTerminate(bytes, 0, bytes.length);
};

describe('a Terminate header mirrored by bit fields', () => {
  it('without headers is read by the code that makes sense', () => {
    expect(parse('02 02 00 00')).toMatchObject({ layer: 2, type: 0, code: 2 });
    expect(parse('20 02 00 00')).toMatchObject({ layer: 2, type: 0, code: 2 });
  });

  it('with headers is read by the mirrored M, D and R', () => {
    const write = 'c1 40 11 22 33 44 00 00 00 00 00 00 10 00';
    expect(parse(`11 00 03 00 00 08 ${write}`)).toMatchObject({
      layer: 1,
      type: 1,
      code: 0,
      segmentLength: 8,
      ddpHeader: { length: 14 },
    });
    const read = '41 41 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 00';
    expect(parse(`10 00 07 00 00 00 ${read} ${'ab'.repeat(28)}`)).toMatchObject({
      layer: 0,
      type: 1,
      code: 0,
      ddpHeader: { length: 18 },
      rdmapHeader: { length: 28 },
    });
  });

  it('reserved bits alone never make a Terminate look mirrored (RDMAP-083)', () => {
    expect(parse('11 00 1f ff')).toMatchObject({
      layer: 1,
      type: 1,
      code: 0,
      segmentLength: undefined,
      ddpHeader: undefined,
    });
    expect(parse('02 05 1f ff')).toMatchObject({ layer: 0, type: 2, code: 5 });
    expect(parse('02 05 00 00')).toMatchObject({ layer: 0, type: 2, code: 5 });
  });
});
