/** The file of `--payload_file_path`: words of 32 bits in hexadecimal, `0xaaaaaaaa,0xbbbbbbbb,…`. */
import { readFileSync } from 'node:fs';
import { UsageError } from '../support/options.ts';
import { reasonOf } from '../support/system-errors.ts';

/**
 * The bytes of the file, each word in little-endian order, `size` at most. @throws UsageError in the stock
 * programs' words
 */
export function readPayload(path: string, size: number): Uint8Array {
  let text: string;
  try {
    text = readFileSync(path, 'latin1');
  } catch (error) {
    throw new UsageError(`Failed to open '${path}': ${reasonOf(error)}`);
  }
  const words = text.split(/[,\n]+/).filter((word) => word !== '');
  if (words.length === 0) throw new UsageError('Payload size should be greater than 0');
  const used = words.slice(0, Math.ceil(size / 4));
  const bytes = new Uint8Array(4 * used.length);
  for (const [i, word] of used.entries()) {
    if (word.length !== 10) throw new UsageError(`Failed to parse DWORD number: ${i}`);
    if (!/^0x[\da-f]{8}$/i.test(word)) throw new UsageError(`Invalid hex char in DWORD number: ${i}`);
    new DataView(bytes.buffer).setUint32(4 * i, Number(word), true);
  }
  return bytes.subarray(0, Math.min(bytes.length, size));
}

/** Fill `bytes` with the payload, over and over. */
export function fillWith(bytes: Uint8Array, payload: Uint8Array): void {
  for (let at = 0; at < bytes.length; at += payload.length)
    bytes.set(payload.subarray(0, Math.min(payload.length, bytes.length - at)), at);
}
