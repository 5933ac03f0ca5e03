// Datagrams of iWARP over UDP, written and read apart from the judged code.

export const OPCODE = {
  DATA: 0x0000,
  REQUEST: 0x1000,
  ACCEPT: 0x2000,
  REJECT: 0x3000,
  FIN: 0x4000,
  SACK: 0x5000,
  PIECE: 0x7000,
} as const;

const HEADER = 10;
const SETUP = 16;

export interface Datagram {
  readonly psn: number;
  readonly ack: number;
  /** The whole field of 16 bits. */
  readonly opcode: number;
  readonly body: Buffer;
  /** Where it came from. */
  readonly port: number;
  readonly raw: Buffer;
  /** Milliseconds. */
  readonly at: number;
}

export interface Setup {
  readonly ird: number;
  readonly ord: number;
  readonly privateData: Buffer;
}

export function datagram(
  opcode: number,
  psn: number,
  ack: number,
  body: Uint8Array = Buffer.alloc(0),
): Buffer {
  const header = Buffer.alloc(HEADER);
  header.writeUInt32BE(psn >>> 0, 0);
  header.writeUInt32BE(ack >>> 0, 4);
  header.writeUInt16BE(opcode, 8);
  return Buffer.concat([header, body]);
}

export function setupDatagram(
  opcode: number,
  psn: number,
  ack: number,
  privateData: Uint8Array = Buffer.alloc(0),
  depth = 16,
): Buffer {
  const body = Buffer.alloc(SETUP - HEADER);
  body.writeUInt16BE(privateData.length, 0);
  body.writeUInt16BE(depth, 2);
  body.writeUInt16BE(depth, 4);
  return datagram(opcode, psn, ack, Buffer.concat([body, privateData]));
}

export function parse(raw: Buffer, port: number, at: number): Datagram | null {
  if (raw.length < HEADER) return null;
  return {
    psn: raw.readUInt32BE(0),
    ack: raw.readUInt32BE(4),
    opcode: raw.readUInt16BE(8),
    body: raw.subarray(HEADER),
    port,
    raw,
    at,
  };
}

/** A segment in `count` datagrams with one PSN. */
export function pieces(psn: number, ack: number, segment: Uint8Array, count: number): Buffer[] {
  const step = Math.ceil(segment.length / count);
  return Array.from({ length: count }, (_, index) => {
    const head = Buffer.alloc(4);
    head.writeUInt16BE(segment.length, 0);
    head.writeUInt8(count, 2);
    head.writeUInt8(index, 3);
    const octets = segment.subarray(index * step, (index + 1) * step);
    return datagram(OPCODE.PIECE, psn, ack, Buffer.concat([head, octets]));
  });
}

/** Parameters of set-up, or null if the length is not exactly what it says. */
export function parseSetup({ raw }: Datagram): Setup | null {
  if (raw.length < SETUP || raw.length !== SETUP + raw.readUInt16BE(HEADER)) return null;
  return { ird: raw.readUInt16BE(12), ord: raw.readUInt16BE(14), privateData: raw.subarray(SETUP) };
}

/** A Send's segment. */
export function sendSegment(msn: number, payload: Uint8Array, mo = 0, last = true): Buffer {
  return untagged(3, 0, msn, payload, mo, last);
}

function untagged(opcode: number, qn: number, msn: number, payload: Uint8Array, mo = 0, last = true): Buffer {
  const header = Buffer.alloc(18);
  header[0] = last ? 0x41 : 0x01;
  header[1] = 0x40 | opcode;
  header.writeUInt32BE(qn, 6);
  header.writeUInt32BE(msn, 10);
  header.writeUInt32BE(mo, 14);
  return Buffer.concat([header, payload]);
}

export function tagged(opcode: number, stag: number, to: bigint, payload: Uint8Array, last = true): Buffer {
  const header = Buffer.alloc(14);
  header[0] = last ? 0xc1 : 0x81;
  header[1] = 0x40 | opcode;
  header.writeUInt32BE(stag, 2);
  header.writeBigUInt64BE(to, 6);
  return Buffer.concat([header, payload]);
}

export function readRequest(msn: number, sink: number, size: number, source: number, to: bigint): Buffer {
  const body = Buffer.alloc(28);
  body.writeUInt32BE(sink, 0);
  body.writeUInt32BE(size, 12);
  body.writeUInt32BE(source, 16);
  body.writeBigUInt64BE(to, 20);
  return untagged(1, 1, msn, body);
}
