/** The messages of perftest's control connection, octet for octet. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  chooseMtu,
  decodeDestination,
  decodeFigures,
  decodeU32,
  decodeVersion,
  destinationOctets,
  encodeCredit,
  encodeDestination,
  encodeFigures,
  encodeMtu,
  encodeU32,
  encodeVersion,
  LONG_DESTINATION,
  SHORT_DESTINATION,
  type Destination,
} from '../../cli/perftest/wire.ts';

/** Hexadecimal octets, field by field. */
const octets = (...fields: readonly string[]): string => fields.join('');

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const DESTINATION: Destination = {
  lid: 0x01020304,
  outReads: 0x80,
  qpn: 0x0a0b0c,
  psn: 0xabcdef,
  rkey: 0xdeadbeef,
  vaddr: 0x1122_3344_5566_7788n,
  gid: Uint8Array.from({ length: 16 }, (_, i) => 0xf0 + i),
  srqn: 7,
  gidIndex: -1,
};

const HEAD = octets(
  '01020304',
  '00000080',
  '000a0b0c',
  '00abcdef',
  'deadbeef',
  '00000000',
  '1122334455667788',
);
const TAIL = octets('f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff', '00000007', 'ffffffff');

describe('perftest messages', () => {
  it('a destination of 56 octets', () => {
    expect(hex(encodeDestination(DESTINATION, SHORT_DESTINATION))).toBe(HEAD + TAIL);
    expect(decodeDestination(Buffer.from(HEAD + TAIL, 'hex'))).toEqual(DESTINATION);
  });

  it('a destination of 64 octets has a second address between', () => {
    expect(hex(encodeDestination(DESTINATION, LONG_DESTINATION))).toBe(`${HEAD}0000000000000000${TAIL}`);
    expect(decodeDestination(Buffer.from(`${HEAD}ffffffffffffffff${TAIL}`, 'hex'))).toEqual(DESTINATION);
  });

  it('a destination of any other length is refused', () => {
    for (const octets of [0, 55, 57, 63, 65, 256])
      expect(() => decodeDestination(new Uint8Array(octets))).toThrow('neither 56 nor 64');
  });

  it('destinations survive both forms', () => {
    const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
    const destination = fc.record({
      lid: u32,
      outReads: u32,
      qpn: u32,
      psn: u32,
      rkey: u32,
      vaddr: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
      gid: fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => Uint8Array.from(bytes)),
      srqn: u32,
      gidIndex: fc.integer({ min: -1, max: 64 }),
    });
    fc.assert(
      fc.property(destination, fc.constantFrom(SHORT_DESTINATION, LONG_DESTINATION), (value, octets) => {
        expect(decodeDestination(encodeDestination(value, octets))).toEqual(value);
      }),
    );
  });

  it('a version is ASCII, padded to 16', () => {
    expect(hex(encodeVersion('6.06'))).toBe(`362e3036${'00'.repeat(12)}`);
    expect(decodeVersion(encodeVersion('6.29'))).toBe('6.29');
    for (const old of ['5.69', '', 'x'])
      expect(() => decodeVersion(encodeVersion(old))).toThrow('versions older than 5.70');
  });

  it('the form of the destination follows the peer’s version', () => {
    expect(['5.70', '6.06', '6.28', '6.29', '7.0'].map(destinationOctets)).toEqual([56, 56, 56, 64, 64]);
  });

  it('numbers are big-endian', () => {
    expect(hex(encodeU32(4096))).toBe('00001000');
    expect(decodeU32(Uint8Array.of(0, 0, 0, 64))).toBe(64);
    expect(() => decodeU32(new Uint8Array(3))).toThrow('3 bytes instead of 4');
  });

  it('an MTU is a digit and NUL, and the smaller one counts', () => {
    expect([256, 512, 1024, 2048, 4096].map((mtu) => hex(encodeMtu(mtu)))).toEqual([
      '3100',
      '3200',
      '3300',
      '3400',
      '3500',
    ]);
    expect(chooseMtu(1024, Buffer.from('5\0'))).toBe(1024);
    expect(chooseMtu(4096, Buffer.from('2\0'))).toBe(512);
    expect(chooseMtu(1024, Buffer.from('x\0'))).toBe(1024);
  });

  it('five figures travel as two u64 and three doubles', () => {
    const figures = { size: 65_536, iterations: 5000, peak: 1.5, average: 1, messageRate: -0.25 };
    const messages = encodeFigures(figures);
    expect(messages.map(hex)).toEqual([
      '0000000000010000',
      '0000000000001388',
      '3ff8000000000000',
      '3ff0000000000000',
      'bfd0000000000000',
    ]);
    expect(decodeFigures(messages)).toEqual(figures);
  });

  it('a credit is a little-endian u32', () => {
    expect(hex(encodeCredit(0x01020304))).toBe('04030201');
  });
});
