/** Values that prove themselves: key, round, and octets that follow from both. */

export const KEYS = 40;

/** The value of a key in a round: 8 to 3008 octets. */
export function valueOf(key: number, round: number): Uint8Array {
  const bytes = new Uint8Array(8 + ((key * 977 + round * 131) % 3000)).fill(key * 31 + round);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, key);
  view.setUint32(4, round);
  return bytes;
}

/** The round of a key's value; throws if the octets are not those of one round of this key. */
export function roundOf(key: number, bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [owner, round] = bytes.length < 8 ? [-1, 0] : [view.getUint32(0), view.getUint32(4)];
  if (owner !== key) throw new Error(`key ${key} has the value of key ${owner}`);
  if (bytes.length !== 8 + ((key * 977 + round * 131) % 3000))
    throw new Error(`key ${key} of round ${round} has ${bytes.length} octets`);
  const fill = (key * 31 + round) & 255;
  for (let i = 8; i < bytes.length; i++)
    if (bytes[i] !== fill) throw new Error(`key ${key} of round ${round} is torn at octet ${i}`);
  return round;
}
