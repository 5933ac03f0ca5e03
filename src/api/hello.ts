/**
 * The announcement that two endpoints of this package make in private data, in front of the user's: how many
 * messages of what size the side is ready to receive. A peer without it is a foreign one: then there are no
 * credits, and nothing of this layer's protocol on the wire.
 *
 * Layout, 16 bytes, big-endian: "IWRP", version u8 = 1, flags u8 (bit 0: RFC 7306 opcodes accepted, bit 2:
 * frames of `rpc/wire.ts` too), requests taken at a time u16, receives u32, largest message u32.
 */

export const HELLO_OCTETS = 16;
const MAGIC = 0x49_57_52_50;
const VERSION = 1;
const FLAG_EXTENSIONS = 1;
const FLAG_FRAMES = 4;

export interface Hello {
  /** Messages the side can take before it grants more. */
  readonly credits: number;
  readonly maxMessageSize: number;
  readonly extensions: boolean;
  /** The side takes frames: requests, streams, large messages. */
  readonly frames: boolean;
  /** Requests that the side takes at a time. */
  readonly requests: number;
}

/** The announcement followed by the user's private data. */
export function encodeHello(hello: Hello, privateData: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HELLO_OCTETS + privateData.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, MAGIC);
  view.setUint8(4, VERSION);
  view.setUint8(5, (hello.extensions ? FLAG_EXTENSIONS : 0) | (hello.frames ? FLAG_FRAMES : 0));
  view.setUint16(6, hello.frames ? hello.requests : 0);
  view.setUint32(8, hello.credits);
  view.setUint32(12, hello.maxMessageSize);
  bytes.set(privateData, HELLO_OCTETS);
  return bytes;
}

/** The peer's announcement, or null from a foreign peer; and the user's part. */
export function decodeHello(data: Uint8Array): { hello: Hello | null; privateData: Uint8Array } {
  if (data.length < HELLO_OCTETS) return { hello: null, privateData: data };
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  if (view.getUint32(0) !== MAGIC || view.getUint8(4) !== VERSION) return { hello: null, privateData: data };
  const flags = view.getUint8(5);
  const hello = {
    credits: view.getUint32(8),
    maxMessageSize: view.getUint32(12),
    extensions: (flags & FLAG_EXTENSIONS) !== 0,
    frames: (flags & FLAG_FRAMES) !== 0,
    requests: view.getUint16(6),
  };
  return { hello, privateData: data.subarray(HELLO_OCTETS) };
}
