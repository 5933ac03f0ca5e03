/**
 * The arithmetic under every CRC32c engine: polynomials over GF(2) modulo the Castagnoli polynomial, and the
 * tables made from it. Read RFC 5044 section 4.4 and RFC 3720 section 12.1 first.
 *
 * The arithmetic of a CRC. Take the message as a polynomial over GF(2), first byte highest, and inside a
 * byte the least significant bit highest (the "reflected" order). The CRC is the remainder modulo
 *
 *     P(x) = x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11 + x^10
 * + x^9 + x^8 + x^6 + 1
 *
 * which is 0x1EDC6F41 without its top term. A remainder is held in 32 bits in the same reflected order: bit
 * 31 is the coefficient of x^0, bit 0 that of x^31. In that order P is 0x82F63B78, multiplying by x is a
 * shift to the right, and a message byte enters at the low end, so a little-endian 32-bit load of four
 * bytes has exactly the layout of a remainder.
 *
 * The register. Let R be the register and m one byte. Feeding it gives R' = (R + m·x^24)·x^8 mod P: add the
 * byte to the eight highest coefficients, shift the whole by eight. Unrolled over a message M of n bytes
 * that is R' = R·x^(8n) + M·x^32 mod P. Two consequences carry everything in this folder:
 *
 *   (1) Linearity: a starting register R gives the same result as starting from 0 with R added to (xored
 * into) the first
 *       four bytes of the message. Hence the SIMD engine starts with the register xored into its first load.
 *   (2) Any change to the message that adds a multiple of P leaves the result alone. Hence bytes may be
 * replaced by zero if
 *       suitable bytes further back are changed: see simd.ts.
 *
 * The standard's finished value is the complement of the register and the standard's start is all ones, that
 * is, the complement of the finished value 0. So a finished value of everything so far continues by
 * complementing it, running, and complementing again.
 */

/** P(x) in reflected order, without its x^32 term (0x1EDC6F41 with its 32 bits turned round). */
const POLYNOMIAL = 0x82f63b78;

/** a·b mod P, operands and result in reflected order. */
export function multiply(a: number, b: number): number {
  let product = 0;
  let power = b;
  for (let coefficient = 31; coefficient >= 0; coefficient--) {
    // Bit 31 is x^0: walk a's coefficients upwards while `power` runs through b, b·x, b·x^2, ...
    if ((a >>> coefficient) & 1) product ^= power;
    power = power & 1 ? (power >>> 1) ^ POLYNOMIAL : power >>> 1;
  }
  return product >>> 0;
}

/** x^(8·bytes) mod P: what `octets` bytes of zero do to a register. */
export function powerOfOctets(octets: number): number {
  let result = 0x80000000;
  let square = 0x00800000;
  for (let left = octets; left > 0; left = Math.floor(left / 2)) {
    if (left % 2 === 1) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

/**
 * Slicing tables, 16 of 256 words one after the other. Entry [k][v] is the register after byte v and then k
 * bytes of zero, started from 0: v·x^(32+8k) mod P.
 *
 * Sixteen bytes m0..m15 with register R then cost sixteen independent look-ups: by (1) R goes into m0..m3,
 * and by linearity the result is T[15][m0] ^ T[14][m1] ^ ... ^ T[0][m15].
 */
export function slicingTables(): Int32Array {
  const tables = new Int32Array(16 * 256);
  for (let value = 0; value < 256; value++) {
    let register = value;
    for (let bit = 0; bit < 8; bit++)
      register = register & 1 ? (register >>> 1) ^ POLYNOMIAL : register >>> 1;
    tables[value] = register;
  }
  for (let index = 256; index < tables.length; index++) {
    const shorter = tables[index - 256] as number;
    tables[index] = (shorter >>> 8) ^ (tables[shorter & 255] as number);
  }
  return tables;
}
