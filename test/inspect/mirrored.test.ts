import { describe, expect, it } from 'vitest';
import { decodeUlpdu } from '../../src/inspect/decode/ulpdu.ts';
import { untaggedUlpdu } from '../support/naive/encoder.ts';

describe('a Terminate whose header is mirrored, as Linux siw sends it', () => {
  it('is shown as it was meant, and said to be mirrored', () => {
    const payload = Uint8Array.from(Buffer.from('11000300000ec140112233440000000000001000', 'hex'));
    const ulpdu = untaggedUlpdu({ opcode: 7, qn: 2, msn: 1 }, payload);
    const { terminate, problems } = decodeUlpdu(ulpdu, 0, ulpdu.length);
    expect(terminate).toMatchObject({
      layer: 1,
      type: 1,
      code: 0,
      m: true,
      d: true,
      r: false,
      reserved: 0,
      segmentLength: 14,
    });
    expect(problems.map(({ id, message }) => [id, message.includes('mirrored')])).toEqual([
      ['RDMAP-082', true],
    ]);
  });
});
