// isIP without node:net says what node:net says.
import fc from 'fast-check';
import { isIP as reference } from 'node:net';
import { describe, expect, it } from 'vitest';
import { isIP } from '../../src/transport/ip-address.ts';

describe('isIP', () => {
  it.each([
    ...[
      '0.0.0.0',
      '255.255.255.255',
      '256.1.1.1',
      '1.2.3',
      '1.2.3.4.',
      '1.2.3.4.5',
      '01.2.3.4',
      '',
      ':',
      '::',
    ],
    ...[
      '::1',
      '1::',
      'fe80::1%eth0',
      'fe80::1%',
      '::ffff:1.2.3.4',
      '::1.2.3.4:5',
      '1:2:3:4:5:6:7:8',
      '1:2:3',
    ],
    ...[
      '1:2:3:4:5:6:7::',
      '::2:3:4:5:6:7:8',
      '1::2::3',
      '12345::',
      'g::',
      '1:2:3:4:5:6:1.2.3.4',
      'localhost',
    ],
    ...[
      ':::',
      '1:2:3:4:5:6:7:8:9',
      '1:2:3:4:5:6:7:1.2.3.4',
      '::1%eth 0',
      ':1',
      '1:',
      '1.2.3.4%eth0',
      '::256.1.1.1',
    ],
  ])('says of %j what node:net says', (text) => {
    expect(isIP(text)).toBe(reference(text));
  });

  it('says of any text what node:net says', () => {
    const part = fc.constantFrom('::', ':', '.', '1', '12', 'ffff', '1.2.3.4', '255', '%', 'e0', '0', 'g');
    fc.assert(
      fc.property(fc.array(part, { maxLength: 16 }), (parts) => {
        expect(isIP(parts.join(''))).toBe(reference(parts.join('')));
      }),
      { numRuns: 5000 },
    );
  });
});
