// Octet-at-a-time helpers of the naive codec. Nothing here, nor in its neighbours, is shared with src: the
// naive codec judges the real one. CRC32c is computed bit by bit, straight from RFC 3720 12.1 and RFC 5044
// 4.4.

/** CRC32c of `octets`, one bit at a time, as an unsigned number. */
export function naiveCrc(octets: Iterable<number>): number {
  let register = 0xffffffff;
  for (const octet of octets) {
    for (let bit = 0; bit < 8; bit++) {
      const out = (register ^ (octet >>> bit)) & 1;
      register = register >>> 1;
      if (out === 1) register = (register ^ 0x82f63b78) >>> 0;
    }
  }
  return (register ^ 0xffffffff) >>> 0;
}

/** The four octets of a CRC field: least significant octet first. */
export function crcOctets(value: number): number[] {
  return [value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, (value >>> 24) & 0xff];
}

/** Unsigned big-endian number of `size` octets at `offset`, size at most 6. */
export function numberAt(octets: Uint8Array, offset: number, size: number): number {
  let value = 0;
  for (let i = 0; i < size; i++) {
    const octet = octets[offset + i];
    if (octet === undefined) throw new RangeError(`no octet ${offset + i} in ${octets.length}`);
    value = value * 256 + octet;
  }
  return value;
}

/** Unsigned big-endian 64-bit value at `offset`. */
export function bigAt(octets: Uint8Array, offset: number): bigint {
  return BigInt(numberAt(octets, offset, 4)) * 0x1_0000_0000n + BigInt(numberAt(octets, offset + 4, 4));
}

/** `value` as `size` octets, most significant first. */
export function octetsOf(value: number | bigint, size: number): number[] {
  const octets: number[] = [];
  let rest = BigInt.asUintN(size * 8, BigInt(value));
  for (let i = 0; i < size; i++) {
    octets.unshift(Number(rest % 256n));
    rest = rest / 256n;
  }
  return octets;
}
