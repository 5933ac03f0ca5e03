// Our decoder against tshark, field by field: `npx tsx scripts/tshark-compare.ts [FILE …]`. Without files it
// compares captures made here: every golden vector, with and without markers, FPDUs over several segments.
// Needs tshark; docs/tshark.md explains what differs. Exit status 1 if something differs that docs/tshark.md
// does not know.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { hexToOctets, loadVectors } from '../conformance/vectors/index.ts';
import { CaptureDissector } from '../src/inspect/decode/capture.ts';
import { readCaptureFile } from '../src/inspect/read-file.ts';
import type { DecodedFpdu } from '../src/inspect/decode/types.ts';
import { encodeFpdus, encodeStartup } from '../test/support/naive/encoder.ts';
import { Wire, conversation, pcapOf, wireOf } from '../test/inspect/support.ts';

/** tshark's field, and ours as the same number. */
const FIELDS: readonly (readonly [string, (fpdu: DecodedFpdu) => readonly (number | bigint)[]])[] = [
  ['iwarp_mpa.ulpdulength', (fpdu) => [fpdu.ulpduLength]],
  ['iwarp_rdma.opcode', ({ rdmap }) => (rdmap === undefined ? [] : [rdmap.opcode])],
  ['iwarp_ddp.last_flag', ({ ddp }) => (ddp === undefined ? [] : [ddp.last ? 1 : 0])],
  ['iwarp_ddp.stag', ({ ddp }) => (ddp?.tagged === true ? [ddp.stag] : [])],
  ['iwarp_ddp.tagged_offset', ({ ddp }) => (ddp?.tagged === true ? [ddp.to] : [])],
  ['iwarp_ddp.qn', ({ ddp }) => (ddp?.tagged === false ? [ddp.qn] : [])],
  ['iwarp_ddp.msn', ({ ddp }) => (ddp?.tagged === false ? [ddp.msn] : [])],
  ['iwarp_ddp.mo', ({ ddp }) => (ddp?.tagged === false ? [ddp.mo] : [])],
  ['iwarp_rdma.sinkstag', ({ readRequest }) => (readRequest === undefined ? [] : [readRequest.sinkStag])],
  ['iwarp_rdma.sinkto', ({ readRequest }) => (readRequest === undefined ? [] : [readRequest.sinkTo])],
  ['iwarp_rdma.rdmardsz', ({ readRequest }) => (readRequest === undefined ? [] : [readRequest.size])],
  ['iwarp_rdma.srcstag', ({ readRequest }) => (readRequest === undefined ? [] : [readRequest.sourceStag])],
  ['iwarp_rdma.srcto', ({ readRequest }) => (readRequest === undefined ? [] : [readRequest.sourceTo])],
  ['iwarp_rdma.term_layer', ({ terminate }) => (terminate === undefined ? [] : [terminate.layer])],
  [
    'iwarp_rdma.term_ddp_seg_len',
    ({ terminate }) => (terminate?.segmentLength === undefined ? [] : [terminate.segmentLength]),
  ],
];

/** Sequences of values, one for each field, of every direction `source port`. */
type Table = Map<string, string[][]>;

function ours(file: string): { table: Table; problems: number } {
  const table: Table = new Map();
  let problems = 0;
  const dissector = new CaptureDissector({
    event: (connection, event) => {
      problems += event.problems.length;
      if (event.kind !== 'fpdu') return;
      const port = connection.ends[event.direction].replace(/.*:/, '');
      const columns = columnsOf(table, port);
      FIELDS.forEach(([, take], i) => columns[i]!.push(...take(event).map(String)));
    },
    remark: (offset, message) => console.log(`  at file offset ${offset}: ${message}`),
  });
  readCaptureFile(file, dissector);
  return { table, problems };
}

function columnsOf(table: Table, key: string): string[][] {
  let columns = table.get(key);
  if (columns === undefined) table.set(key, (columns = FIELDS.map(() => [])));
  return columns;
}

function theirs(file: string): Table {
  const fields = ['tcp.srcport', ...FIELDS.map(([name]) => name)].flatMap((name) => ['-e', name]);
  const text = execFileSync(
    'tshark',
    [
      '-r',
      file,
      '-Y',
      'iwarp_mpa.fpdu',
      '-T',
      'fields',
      '-E',
      'occurrence=a',
      '-E',
      'separator=/t',
      ...fields,
    ],
    {
      encoding: 'utf8',
      maxBuffer: 1 << 30,
      stdio: ['ignore', 'pipe', 'ignore'],
    },
  );
  const table: Table = new Map();
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const [port, ...values] = line.split('\t');
    const columns = columnsOf(table, port!);
    values.forEach((value, i) =>
      columns[i]!.push(
        ...value
          .split(',')
          .filter((one) => one !== '')
          .map((one) => numberText(FIELDS[i]![0], one)),
      ),
    );
  }
  return table;
}

/** Fields that tshark takes for octets are printed as bare hexadecimal digits, everything else as numbers. */
function numberText(name: string, value: string): string {
  return String(BigInt(name === 'iwarp_rdma.term_ddp_seg_len' ? `0x${value}` : value));
}

/** Print the comparison of one file; returns the number of fields that differ. */
function compare(file: string): number {
  const us = ours(file);
  const them = theirs(file);
  let different = 0;
  let values = 0;
  for (const port of new Set([...us.table.keys(), ...them.keys()])) {
    const left = us.table.get(port) ?? FIELDS.map(() => []);
    const right = them.get(port) ?? FIELDS.map(() => []);
    FIELDS.forEach(([name], i) => {
      const [a, b] = [left[i]!, right[i]!];
      values += a.length;
      const at = a.findIndex((value, k) => value !== b[k]);
      if (at < 0 && a.length === b.length) return;
      different++;
      const where = at < 0 ? a.length : at;
      console.log(
        `  port ${port} ${name}: ours ${a.length} values, tshark ${b.length}; first difference at ` +
          `${where}: ${a[where] ?? 'none'} against ${b[where] ?? 'none'}`,
      );
    });
  }
  console.log(
    `${basename(file)}: ${values} values, ${different} fields differ, ${us.problems} problems named by us`,
  );
  return different;
}

/** Captures made here, with the known differences in each. */
function ownCaptures(folder: string): { file: string; known: number }[] {
  const make = (name: string, packets: readonly Uint8Array[], known = 0): { file: string; known: number } => {
    const file = join(folder, name);
    writeFileSync(file, pcapOf(packets));
    return { file, known };
  };
  const vector = (name: string): Uint8Array =>
    hexToOctets(loadVectors('fpdu').find((one) => one.name === name)!.hex);
  const alone = (name: string): { file: string; known: number } =>
    make(
      `${name}.pcap`,
      wireOf({ ...conversation(), fromInitiator: vector(name), fromResponder: new Uint8Array(0) }).packets,
    );
  const marked = hexToOctets(loadVectors('markers').find((one) => one.name === 'markers.m4')!.hex);
  const ulpdu = new Uint8Array(18 + 4000);
  ulpdu.set([0x41, 0x43]);
  ulpdu[13] = 1;
  const long = {
    request: encodeStartup({ kind: 'request' }),
    reply: encodeStartup({ kind: 'reply' }),
    fromInitiator: encodeFpdus([ulpdu, ulpdu], { markers: false, crc: true }),
    fromResponder: new Uint8Array(0),
  };
  return [
    make('conversation.pcap', wireOf(conversation()).packets),
    make('several-segments.pcap', wireOf(long, new Wire(), 1448).packets),
    make('markers.pcap', wireOf(conversation({ markers: [true, true] })).packets, KNOWN_MARKERS),
    make(
      'one-fpdu-with-markers.pcap',
      wireOf({
        ...conversation({ markers: [true, false] }),
        fromInitiator: marked,
        fromResponder: new Uint8Array(0),
      }).packets,
    ),
    ...loadVectors('fpdu')
      .filter((one) => one.crc)
      .map((one) => alone(one.name)),
  ];
}

/**
 * With markers and several FPDUs in a segment tshark finds no FPDU: every field of both directions differs
 * (docs/tshark.md).
 */
const KNOWN_MARKERS = 21;

const given = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'iwarp-tshark-'));
try {
  let unknown = 0;
  for (const { file, known } of given.length > 0
    ? given.map((file) => ({ file, known: 0 }))
    : ownCaptures(folder)) {
    const different = compare(file);
    if (different !== known) unknown++;
  }
  process.exitCode = unknown > 0 ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true });
}
