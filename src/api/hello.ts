/**
 * The announcement that two of our own endpoints make in private data, in front of the user's: how many messages of what size the side
 * is ready to receive. A peer without it is a foreign one: no credits then, and nothing of ours on the wire.
 *
 * Layout, 16 octets, big-endian: "IWRP", version u8 = 1, flags u8 (bit 0: RFC 7306 opcodes accepted), zero u16, receives u32, largest
 * message u32.
 */

export const HELLO_OCTETS = 16;
const MAGIC = 0x49_57_52_50;
const VERSION = 1;
const FLAG_EXTENSIONS = 1;

export interface Hello {
  /** Messages the side can take before it grants more. */
  readonly credits: number;
  readonly maxMessage: number;
  readonly extensions: boolean;
}

/** The announcement followed by the user's private data. */
export function encodeHello(hello: Hello, privateData: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HELLO_OCTETS + privateData.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, MAGIC);
  view.setUint8(4, VERSION);
  view.setUint8(5, hello.extensions ? FLAG_EXTENSIONS : 0);
  view.setUint32(8, hello.credits);
  view.setUint32(12, hello.maxMessage);
  bytes.set(privateData, HELLO_OCTETS);
  return bytes;
}

/** The peer's announcement, or null from a foreign peer; and the user's part. */
export function decodeHello(data: Uint8Array): { hello: Hello | null; privateData: Uint8Array } {
  if (data.length < HELLO_OCTETS) return { hello: null, privateData: data };
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  if (view.getUint32(0) !== MAGIC || view.getUint8(4) !== VERSION) return { hello: null, privateData: data };
  const hello = {
    credits: view.getUint32(8),
    maxMessage: view.getUint32(12),
    extensions: (view.getUint8(5) & FLAG_EXTENSIONS) !== 0,
  };
  return { hello, privateData: data.subarray(HELLO_OCTETS) };
}
