// The decoded octet view: every field of a frame or FPDU with its place, its octets and what it means. Used
// by all reports.

import { FpduReader } from './fpdu.ts';
import {
  packedCode,
  parseAtomicRequest,
  parseReadRequest,
  parseSegment,
  parseTerminate,
} from './messages.ts';
import type { ParsedSegment } from './messages.ts';
import { parseStartup, startupLength } from './startup.ts';
import { describeTerminateCode } from './terminate-codes.ts';
import { OPCODE, OPCODE_RULES } from './wire.ts';

/** One line of the octet view. */
export interface Field {
  readonly offset: number;
  readonly octets: Uint8Array;
  /** How many octets there are, where `octets` has only the first. */
  readonly length?: number;
  readonly name: string;
  readonly value: string;
}

const hex32 = (value: number): string => `0x${(value >>> 0).toString(16).padStart(8, '0')}`;
const hex64 = (value: bigint): string => `0x${value.toString(16).padStart(16, '0')}`;

/** Fields of a start-up frame; a short frame or one with a wrong key still shows. */
export function startupView(raw: Uint8Array): Field[] {
  const fields: Field[] = [];
  const add = (offset: number, length: number, name: string, value: string): void => {
    if (offset < raw.length) fields.push({ offset, octets: raw.slice(offset, offset + length), name, value });
  };
  add(0, 16, 'Key', JSON.stringify(String.fromCharCode(...raw.subarray(0, 16))));
  if (raw.length < 20) return fields;
  const frame = parseStartup(raw);
  const flags = [frame.markers && 'M', frame.crc && 'C', frame.reject && 'R', frame.s && 'S']
    .filter(Boolean)
    .join(' ');
  add(
    16,
    1,
    'Flags',
    `${flags || 'none'}` +
      `${(frame.flags & 0x0f) !== 0 ? ` reserved 0x${(frame.flags & 0x0f).toString(16)}` : ''}`,
  );
  add(17, 1, 'Rev', String(frame.revision));
  add(18, 2, 'PD_Length', String(frame.pdLength));
  if (frame.enhanced !== null) {
    const { a, b, c, d, ird, ord } = frame.enhanced;
    add(20, 2, 'A B IRD', `A=${a ? 1 : 0} B=${b ? 1 : 0} IRD ${ird}`);
    add(22, 2, 'C D ORD', `C=${c ? 1 : 0} D=${d ? 1 : 0} ORD ${ord}`);
  }
  const front = frame.enhanced === null ? 20 : 24;
  if (raw.length > front) add(front, raw.length - front, 'Private data', `${raw.length - front} octets`);
  return fields;
}

/** Fields of one FPDU without markers around it, as far as its octets go. */
export function fpduView(raw: Uint8Array, markers = false): Field[] {
  if (markers) return [{ offset: 0, octets: raw, name: 'FPDU with markers', value: `${raw.length} octets` }];
  const fields: Field[] = [];
  const add = (offset: number, length: number, name: string, value: string): void => {
    if (offset < raw.length) fields.push({ offset, octets: raw.slice(offset, offset + length), name, value });
  };
  if (raw.length < 2) return [{ offset: 0, octets: raw, name: 'octets', value: '' }];
  const length = (raw[0]! << 8) | raw[1]!;
  add(0, 2, 'ULPDU_Length', String(length));
  const segment = parseSegment(raw.subarray(2, 2 + length));
  if (segment === null) {
    add(2, length, 'ULPDU', 'shorter than a DDP header');
  } else {
    fields.push(...segmentView(segment, 2));
  }
  const padLength = -(2 + length) & 3;
  if (padLength > 0) add(2 + length, padLength, 'PAD', '');
  if (raw.length >= 2 + length + padLength + 4) {
    const reader = new FpduReader(false);
    reader.push(raw);
    const fpdu = reader.next();
    add(2 + length + padLength, 4, 'CRC', fpdu === null ? '' : fpdu.crcGood ? 'good' : 'does not match');
  }
  return fields;
}

/** Fields of a DDP segment that starts at `at`. */
function segmentView(segment: ParsedSegment, at: number): Field[] {
  const fields: Field[] = [];
  const { ulpdu } = segment;
  const add = (offset: number, length: number, name: string, value: string): void => {
    if (offset < ulpdu.length)
      fields.push({ offset: at + offset, octets: ulpdu.slice(offset, offset + length), name, value });
  };
  const reserved = segment.ddpReserved === 0 ? '' : ` reserved 0x${segment.ddpReserved.toString(16)}`;
  add(
    0,
    1,
    'DDP control',
    `${segment.tagged ? 'tagged' : 'untagged'}${segment.last ? ' last' : ''} DV ${segment.dv}${reserved}`,
  );
  add(
    1,
    1,
    'RDMAP control',
    `RV ${segment.rv} ${opcodeName(segment.opcode)}${segment.rdmapReserved === 0 ? '' : ' reserved bits'}`,
  );
  if (segment.tagged) {
    add(2, 4, 'STag', hex32(segment.stag));
    add(6, 8, 'TO', hex64(segment.to));
  } else {
    add(2, 4, 'Invalidate STag', hex32(segment.word));
    add(6, 4, 'QN', String(segment.qn));
    add(10, 4, 'MSN', String(segment.msn));
    add(14, 4, 'MO', String(segment.mo));
  }
  const front = segment.header.length;
  const payload = payloadView(segment);
  if (payload !== null)
    for (const [offset, length, name, value] of payload) add(front + offset, length, name, value);
  else if (segment.payload.length > 0)
    add(front, segment.payload.length, 'Payload', `${segment.payload.length} octets`);
  return fields;
}

type Row = readonly [offset: number, length: number, name: string, value: string];

function payloadView(segment: ParsedSegment): Row[] | null {
  const { payload, opcode } = segment;
  if (opcode === OPCODE.READ_REQUEST) {
    const r = parseReadRequest(payload);
    return r === null
      ? null
      : [
          [0, 4, 'Sink STag', hex32(r.sinkStag)],
          [4, 8, 'Sink TO', hex64(r.sinkTo)],
          [12, 4, 'Read size', String(r.size)],
          [16, 4, 'Source STag', hex32(r.sourceStag)],
          [20, 8, 'Source TO', hex64(r.sourceTo)],
        ];
  }
  if (opcode === OPCODE.TERMINATE) return terminateRows(payload);
  if (opcode === OPCODE.ATOMIC_REQUEST) {
    const a = parseAtomicRequest(payload);
    return a === null
      ? null
      : [
          [0, 4, 'AOpCode', String(a.aopcode)],
          [4, 4, 'Request Identifier', hex32(a.id)],
          [8, 4, 'Remote STag', hex32(a.stag)],
          [12, 8, 'Remote TO', hex64(a.to)],
          [20, 8, 'Add or Swap Data', hex64(a.data)],
          [28, 8, 'Add or Swap Mask', hex64(a.mask)],
          [36, 8, 'Compare Data', hex64(a.compare)],
          [44, 8, 'Compare Mask', hex64(a.compareMask)],
        ];
  }
  return null;
}

function terminateRows(payload: Uint8Array): Row[] | null {
  const t = parseTerminate(payload);
  if (t === null) return null;
  const rows: Row[] = [
    [0, 2, 'Layer, type, code', describeTerminateCode(packedCode(t))],
    [
      2,
      2,
      'M D R',
      `M=${t.m ? 1 : 0} D=${t.d ? 1 : 0} ` +
        `R=${t.r ? 1 : 0}${t.reserved === 0 ? '' : ` reserved 0x${t.reserved.toString(16)}`}`,
    ],
  ];
  let at = 4;
  if (t.segmentLength !== null) {
    rows.push([at, 2, 'DDP Segment Length', String(t.segmentLength)]);
    at += 2;
  }
  if (t.ddpHeader !== null) {
    const inner = parseSegment(t.ddpHeader);
    rows.push([
      at,
      t.ddpHeader.length,
      'Terminated DDP header',
      inner === null ? '' : describeSegment(inner),
    ]);
    at += t.ddpHeader.length;
  }
  if (t.rdmapHeader !== null) rows.push([at, 28, 'Terminated Read Request header', '']);
  return rows;
}

function opcodeName(opcode: number): string {
  return OPCODE_RULES[opcode]?.name ?? `opcode 0x${opcode.toString(16)}`;
}

/** A segment in one line. */
export function describeSegment(segment: ParsedSegment): string {
  const name = opcodeName(segment.opcode);
  const tail = `${segment.payload.length} octets${segment.last ? ', last' : ''}`;
  if (segment.opcode === OPCODE.TERMINATE) {
    const t = parseTerminate(segment.payload);
    return t === null ? `malformed Terminate, ${tail}` : `Terminate ${describeTerminateCode(packedCode(t))}`;
  }
  if (segment.opcode === OPCODE.READ_REQUEST) {
    const r = parseReadRequest(segment.payload);
    if (r !== null)
      return (
        `${name} MSN ${segment.msn}: ${r.size} octets from ${hex32(r.sourceStag)}/${hex64(r.sourceTo)} ` +
        `to ${hex32(r.sinkStag)}/${hex64(r.sinkTo)}`
      );
  }
  return segment.tagged
    ? `${name} STag ${hex32(segment.stag)} TO ${hex64(segment.to)}, ${tail}`
    : `${name} QN ${segment.qn} MSN ${segment.msn} MO ${segment.mo}, ${tail}`;
}

/** A start-up frame in one line. */
export function describeStartup(raw: Uint8Array): string {
  if (startupLength(raw) === null) return `${raw.length} octets`;
  const f = parseStartup(raw);
  const kind =
    String.fromCharCode(...f.key) === 'MPA ID Rep Frame'
      ? 'Reply'
      : String.fromCharCode(...f.key) === 'MPA ID Req Frame'
        ? 'Request'
        : 'frame with a strange key';
  const flags = [f.markers && 'M', f.crc && 'C', f.reject && 'R', f.s && 'S'].filter(Boolean).join('');
  const e =
    f.enhanced === null
      ? ''
      : ` IRD ${f.enhanced.ird} ORD ` +
        `${f.enhanced.ord}${f.enhanced.a ? ' A' : ''}${f.enhanced.b ? ' B' : ''}` +
        `${f.enhanced.c ? ' C' : ''}${f.enhanced.d ? ' D' : ''}`;
  return `MPA ${kind} Rev ${f.revision} flags ${flags || '-'} PD_Length ${f.pdLength}${e}`;
}

/** The view as lines of text, octets left and meaning right, 16 octets a line. */
export function viewText(fields: readonly Field[], indent = ''): string[] {
  const lines: string[] = [];
  for (const { offset, octets, length = octets.length, name, value } of fields) {
    const shown = octets.subarray(0, 32);
    for (let i = 0; i < shown.length; i += 16) {
      const hex = Array.from(shown.subarray(i, i + 16), (octet) => octet.toString(16).padStart(2, '0')).join(
        ' ',
      );
      const meaning = i === 0 ? `${name}${value === '' ? '' : `: ${value}`}` : '';
      lines.push(
        `${indent}${(offset + i).toString(16).padStart(4, '0')}  ${hex.padEnd(47)}  ${meaning}`.trimEnd(),
      );
    }
    if (length > shown.length) lines.push(`${indent}      … ${length - shown.length} more octets`);
  }
  return lines;
}
