/**
 * A CRC32c that shares nothing with src/crc32c: bit by bit as the definition reads (RFC 3720 section 12.1),
 * and the seven published vectors. Slow on purpose.
 */

export function bitSerialCrc32c(
  crc: number,
  bytes: Uint8Array,
  start: number = 0,
  end: number = bytes.length,
): number {
  let register = crc ^ 0xffffffff;
  for (const octet of bytes.subarray(start, end)) {
    register ^= octet;
    for (let bit = 0; bit < 8; bit++) {
      const out = register & 1;
      register >>>= 1;
      if (out === 1) register ^= 0x82f63b78;
    }
  }
  return (register ^ 0xffffffff) >>> 0;
}

interface Vector {
  readonly title: string;
  readonly data: Uint8Array;
  readonly crc: number;
  /** The CRC field as the RFC prints it. */
  readonly wire: string;
}

function hex(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text.replaceAll(' ', ''), 'hex'));
}

const zeros = (octets: number): string => '00'.repeat(octets);
const counting = Uint8Array.from({ length: 32 }, (_, index) => index);

/** RFC 3720 appendix B.4 and RFC 5044 section 4.4, figures 5 and 6. */
export const VECTORS: readonly Vector[] = [
  { title: 'RFC 3720 B.4: 32 octets 00', data: new Uint8Array(32), crc: 0x8a9136aa, wire: 'aa36918a' },
  {
    title: 'RFC 3720 B.4: 32 octets ff',
    data: new Uint8Array(32).fill(255),
    crc: 0x62a8ab43,
    wire: '43aba862',
  },
  { title: 'RFC 3720 B.4: 00 to 1f', data: counting, crc: 0x46dd794e, wire: '4e79dd46' },
  { title: 'RFC 3720 B.4: 1f to 00', data: counting.toReversed(), crc: 0x113fdb5c, wire: '5cdb3f11' },
  {
    title: 'RFC 3720 B.4: an iSCSI Read command',
    data: hex(
      `01c00000 ${zeros(12)} 14000000 00000400 00000014 00000018 28000000 ${zeros(4)} 02000000 ${zeros(4)}`,
    ),
    crc: 0xd9963a56,
    wire: '563a96d9',
  },
  {
    title: 'RFC 5044 figure 5: marker and FPDU',
    data: hex(`00000000 002a 4143 00000000 00000000 00000001 00000000 ${zeros(24)}`),
    crc: 0x83992352,
    wire: '52239983',
  },
  {
    title: 'RFC 5044 figure 6: FPDU with a marker inside',
    data: hex(`002a 4143 00000000 00000000 00000002 00000000 00000014 ${zeros(24)}`),
    crc: 0x98589284,
    wire: '84925898',
  },
];

/** Reproducible octets that look random: xorshift32. */
export function noise(octets: number, seed: number = 1): Uint8Array {
  const bytes = new Uint8Array(octets);
  for (let i = 0, x = seed; i < octets; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    bytes[i] = x;
  }
  return bytes;
}
