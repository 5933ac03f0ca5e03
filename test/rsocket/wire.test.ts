/** The rsocket protocol, octet for octet. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeConnectionData,
  decodeIomap,
  decodeSge,
  encodeConnectionData,
  encodeIomap,
  encodeSge,
  messageOp,
  messageValue,
  octetToSize,
  OP,
  sizeToOctet,
} from '../../src/rsocket/wire.ts';
import { encodeMessage } from '../sockets/scripted.ts';

/** Hexadecimal octets, field by field. */
const octets = (...fields: readonly string[]): string => fields.join('');

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/**
 * Memory that another thread writes from its start on: `placed` octets stand in it, and four more after each
 * read.
 */
function arriving(whole: Uint8Array, placed: number): DataView {
  const bytes = new Uint8Array(whole.length);
  const now = new DataView(bytes.buffer);
  let there = placed;
  const place = (): void => bytes.set(whole.subarray(0, there));
  const after = <T>(value: T): T => {
    there += 4;
    place();
    return value;
  };
  place();
  return Object.assign(new DataView(bytes.buffer), {
    getUint32: (at: number, little: boolean) => after(now.getUint32(at, little)),
    getBigUint64: (at: number, little: boolean) => after(now.getBigUint64(at, little)),
  });
}

describe('rsocket messages', () => {
  it('connection data has 40 octets, big-endian', () => {
    const data = {
      bigEndian: false,
      iomap: true,
      credits: 384,
      iomapSize: 3,
      targetSgl: { addr: 0x1020304050607080n, key: 0xa1a2a3a4, length: 2 },
      dataBuffer: { addr: 0x0102030405060708n, key: 0xb1b2b3b4, length: 65_536 },
    };
    const bytes = encodeConnectionData(data);
    expect(hex(bytes)).toBe(
      octets(
        '01',
        '02',
        '0180',
        '000000',
        '03',
        '1020304050607080a1a2a3a400000002',
        '0102030405060708b1b2b3b400010000',
      ),
    );
    expect(decodeConnectionData(bytes)).toEqual(data);
  });

  it('anything but version 1 is refused', () => {
    for (const bytes of [new Uint8Array(39), new Uint8Array(40), Uint8Array.of(2, ...new Uint8Array(39))]) {
      expect(() => decodeConnectionData(bytes)).toThrow('rsocket protocol');
    }
  });

  it('map sizes up to 128 travel as they are, larger ones in units of 256', () => {
    for (const size of [0, 1, 127, 128]) expect(octetToSize(sizeToOctet(size))).toBe(size);
    expect(sizeToOctet(256)).toBe(0x81);
    expect(octetToSize(0x82)).toBe(512);
  });

  it('messages are in the reader’s byte order', () => {
    expect(hex(encodeMessage(OP.DATA, 0x1234, true))).toBe('34120000');
    expect(hex(encodeMessage(OP.SGL, 0x180, true))).toBe('80010080');
    expect(hex(encodeMessage(OP.CONTROL, 2, false))).toBe('e0000002');
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 7 }), fc.integer({ min: 0, max: 0x1fff_ffff }), (op, value) => {
        const word = view(encodeMessage(op, value, true)).getUint32(0, true);
        expect([messageOp(word), messageValue(word)]).toEqual([op, value]);
      }),
    );
  });

  it('list and map entries are in the reader’s byte order', () => {
    const memory = { addr: 0x1122334455667788n, key: 0xaabbccdd, length: 0x10000 };
    expect(hex(encodeSge(memory, true))).toBe(octets('8877665544332211', 'ddccbbaa', '00000100'));
    expect(hex(encodeSge(memory, false))).toBe(octets('1122334455667788', 'aabbccdd', '00010000'));
    expect(decodeSge(view(encodeSge(memory, true)), 0)).toEqual(memory);
    const entry = encodeIomap({ offset: 5n, memory }, true);
    expect(hex(entry)).toBe('0500000000000000' + hex(encodeSge(memory, true)));
    expect(decodeIomap(view(entry), 0)).toEqual({ offset: 5n, memory });
  });

  it('an entry that arrives while it is read is either not there or there in full', () => {
    const entry = encodeIomap(
      { offset: 5n, memory: { addr: 0x1122334455667788n, key: 0xaabbccdd, length: 0x10000 } },
      true,
    );
    for (const [decode, from] of [
      [decodeIomap, 0],
      [decodeSge, 8],
    ] as const) {
      const words = entry.slice(from);
      const whole = decode(view(words), 0);
      for (let before = 0; before <= words.length; before += 4) {
        const seen = decode(arriving(words, before), 0);
        const { length } = 'memory' in seen ? seen.memory : seen;
        if (length !== 0) expect(seen, `${before} octets were there at first`).toEqual(whole);
      }
    }
  });
});
