// Every SDP message before tshark's dissector: encoded by src/sdp, wrapped in RoCEv2 frames (CM REQ and REP,
// then RC Send Only), each field of the header compared. `npx tsx scripts/tshark-sdp.ts`; needs tshark
// (Debian). What tshark does not split, the extended headers, it names; its three flag bits read the wrong
// width, so the flags are compared as a whole.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeHello, encodeHelloAck, MESSAGE_TABLE, MID, putBsdh } from '../src/sdp/wire.ts';

const QPN = [0x111, 0x222] as const;
const address = Uint8Array.from({ length: 16 }, (_, at) => (at < 12 ? 0 : at));
const HELLO = {
  version: 0x22,
  family: 4 as const,
  invalidates: true,
  maxAdverts: 16,
  desiredSize: 65_552,
  localSize: 16_384,
  port: 7471,
  source: address,
  destination: address,
  bufs: 4,
  copyOnWrite: true,
};

/** Ethernet, IPv4, UDP 4791 and a base transport header, with room for the invariant CRC behind. */
function frame(from: number, opcode: number, qpn: number, psn: number, body: Uint8Array): Buffer {
  const bth = Buffer.alloc(12);
  bth.writeUInt8(opcode, 0);
  bth.writeUInt8(((4 - (body.length % 4)) % 4) << 4, 1);
  bth.writeUInt16BE(0xffff, 2);
  bth.writeUInt32BE(qpn, 4);
  bth.writeUInt32BE(psn, 8);
  const payload = Buffer.concat([bth, body, Buffer.alloc((4 - (body.length % 4)) % 4), Buffer.alloc(4)]);
  const head = Buffer.alloc(42);
  head.writeUInt16BE(0x0800, 12);
  head.writeUInt8(0x45, 14);
  head.writeUInt16BE(28 + payload.length, 16);
  head.writeUInt8(64, 22);
  head.writeUInt8(17, 23);
  head.set([10, 0, 0, 1 + from], 26);
  head.set([10, 0, 0, 2 - from], 30);
  head.writeUInt16BE(49_152, 34);
  head.writeUInt16BE(4791, 36);
  head.writeUInt16BE(8 + payload.length, 38);
  return Buffer.concat([head, payload]);
}

/** A datagram of the connection manager with private data. */
function management(from: number, attribute: number, fill: (data: Buffer) => void): Buffer {
  const deth = Buffer.alloc(8);
  deth.writeUInt32BE(0x8001_0000, 0);
  deth.writeUInt32BE(1, 4);
  const mad = Buffer.alloc(256);
  mad.set([1, 7, 2, 3]);
  mad.writeUInt32BE(0x77, 12); // transaction
  mad.writeUInt16BE(attribute, 16);
  fill(mad.subarray(24));
  return frame(from, 0x64, 1, 1, Buffer.concat([deth, mad]));
}

const request = management(0, 0x10, (data) => {
  data.writeUInt32BE(0x1001, 0);
  data.writeUInt32BE(0x0001_0000 | HELLO.port, 12); // service id of SDP
  data.writeUInt32BE(QPN[0] << 8, 32);
  data.writeUInt32BE(0xffff_ffff, 52); // no LIDs: the ends are IPv4 addresses
  data.set([0xff, 0xff, 10, 0, 0, 1], 66);
  data.set([0xff, 0xff, 10, 0, 0, 2], 82);
  data.set(encodeHello(HELLO), 140);
});
const reply = management(1, 0x13, (data) => {
  data.writeUInt32BE(0x1002, 0);
  data.writeUInt32BE(0x1001, 4);
  data.writeUInt32BE(QPN[1] << 8, 12);
  data.set(encodeHelloAck(HELLO), 36);
});

const messages = [...MESSAGE_TABLE].map(([mid, form], at) => {
  if (mid === MID.HELLO) return encodeHello(HELLO);
  if (mid === MID.HELLO_ACK) return encodeHelloAck(HELLO);
  const payload = form.payload ? 5 : 0;
  const bytes = new Uint8Array(16 + form.extension + payload).fill(at + 1);
  const bsdh = {
    mid,
    flags: 4,
    bufs: 40 + at,
    length: bytes.length,
    mseq: 1000 + at,
    mseqAck: 0xffff_fff0 + (at % 8),
  };
  putBsdh(new DataView(bytes.buffer), 0, bsdh);
  return bytes;
});
const frames = [request, reply, ...messages.map((bytes, at) => frame(0, 0x04, QPN[1], 10 + at, bytes))];

const FIELDS = ['mid', 'flags', 'bufs', 'len', 'mseq', 'mseqack'] as const;
const HELLO_FIELDS: Readonly<Record<string, number>> = {
  majv: 2,
  minv: 2,
  maxadverts: HELLO.maxAdverts,
  desremrcvsz: HELLO.desiredSize,
  localrcvsz: HELLO.localSize,
  localport: HELLO.port,
  extmaxadverts: HELLO.maxAdverts,
};
/** The name under which tshark shows an extended header. */
const EXTENDED: ReadonlyMap<number, string> = new Map([
  [MID.HELLO_ACK, 'hah'],
  [MID.RDMA_WR_COMPL, 'rwch'],
  [MID.RDMA_RD_COMPL, 'rrch'],
  [MID.MODE_CHANGE, 'mch'],
  [MID.CH_RCV_BUF, 'crbh'],
  [MID.CH_RCV_BUF_ACK, 'crbah'],
  [MID.SUSP_COMM, 'suspch'],
  [MID.SINK_AVAIL, 'sinkah'],
  [MID.SRC_AVAIL, 'srcah'],
]);

const folder = mkdtempSync(join(tmpdir(), 'iwarp-tshark-sdp-'));
const file = join(folder, 'sdp.pcap');
const head = Buffer.alloc(24);
[0xa1b2c3d4, 0x0004_0002, 0, 0, 65_535, 1].forEach((word, at) => head.writeUInt32LE(word, at * 4));
head.writeUInt16LE(2, 4);
head.writeUInt16LE(4, 6);
writeFileSync(
  file,
  Buffer.concat([
    head,
    ...frames.flatMap((bytes, at) => {
      const record = Buffer.alloc(16);
      [at, 0, bytes.length, bytes.length].forEach((word, i) => record.writeUInt32LE(word, i * 4));
      return [record, bytes];
    }),
  ]),
);
const names = [
  ...FIELDS.map((name) => `bsdh.${name}`),
  ...Object.keys(HELLO_FIELDS).map((name) => `hh.${name}`),
  ...EXTENDED.values(),
];
const shown = execFileSync(
  'tshark',
  [
    '-r',
    file,
    '-T',
    'fields',
    '-E',
    'separator=|',
    ...names.flatMap((name) => ['-e', `infiniband_sdp.${name}`]),
  ],
  { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
);
rmSync(folder, { recursive: true });

const failures: string[] = [];
const rows = shown.trimEnd().split('\n').slice(2);
if (rows.length !== messages.length)
  failures.push(`${rows.length} frames where ${messages.length} were sent`);
for (const [at, bytes] of messages.entries()) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const values = (rows[at] ?? '').split('|');
  const ours = [
    bytes[0],
    bytes[1],
    view.getUint16(2),
    view.getUint32(4),
    view.getUint32(8),
    view.getUint32(12),
  ];
  const theirs = values.slice(0, FIELDS.length).map(Number);
  const { name } = MESSAGE_TABLE.get(bytes[0]!)!;
  if (values[0] === '' || String(theirs) !== String(ours))
    failures.push(`${name}: ours ${String(ours)}, tshark ${values.slice(0, FIELDS.length).join()}`);
  const hello = values.slice(FIELDS.length, FIELDS.length + Object.keys(HELLO_FIELDS).length).map(Number);
  if (bytes[0] === MID.HELLO && String(hello) !== String(Object.values(HELLO_FIELDS)))
    failures.push(`Hello: ours ${String(Object.values(HELLO_FIELDS))}, tshark ${String(hello)}`);
  const extended = EXTENDED.get(bytes[0]!);
  if (extended !== undefined && (values[names.indexOf(extended)] ?? '') === '')
    failures.push(`${name}: tshark shows no ${extended}`);
}
for (const failure of failures) console.error(failure);
console.log(`tshark: ${messages.length} SDP messages, ${failures.length} differences`);
process.exitCode = failures.length === 0 ? 0 : 1;
