// CRC32c for the suite, by the textbook: one table, one octet at a time. RFC 5044 4.4 takes the polynomial
// and the order of the bits from RFC 3720 12.1. The stack under test has other engines and the package
// crc-32; none of them is here, so that a mistake in one place cannot hide a mistake in the other.

/** x^32 and what follows of each polynomial, the lowest power in the highest bit. */
const CASTAGNOLI: Uint32Array = tableOf(0x82f6_3b78);
const IEEE: Uint32Array = tableOf(0xedb8_8320);

/** CRC32c (Castagnoli) of these octets, one run after the other, as the usual reflected 32-bit number. */
export function castagnoli(...runs: readonly Uint8Array[]): number {
  return crcOf(CASTAGNOLI, runs);
}

/** CRC-32 (IEEE 802.3): the polynomial an implementer takes by mistake. */
export function ieee(bytes: Uint8Array): number {
  return crcOf(IEEE, [bytes]);
}

function crcOf(table: Uint32Array, runs: readonly Uint8Array[]): number {
  let register = ~0;
  for (const run of runs)
    for (let i = 0; i < run.length; i++) register = table[(register ^ run[i]!) & 0xff]! ^ (register >>> 8);
  return ~register >>> 0;
}

/** The remainder of each octet: eight steps of division, least significant bit first. */
function tableOf(polynomial: number): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, octet) => {
    let remainder = octet;
    for (let bit = 0; bit < 8; bit++)
      remainder = (remainder & 1) === 0 ? remainder >>> 1 : (remainder >>> 1) ^ polynomial;
    return remainder;
  });
}
