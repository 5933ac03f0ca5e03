/**
 * The fuller views of an event: tree of all fields, bytes with field names, JSON lines, and the summary of a
 * connection.
 */
import type { CapturedConnection } from '../decode/capture.ts';
import { fieldOctets, fieldsOf } from './fields.ts';
import { CLAUSES, hex32, hex64 } from '../decode/problems.ts';
import { arrow, renderLine, seconds, shortName } from './text.ts';
import type { DatagramSummary, NbdSummary } from '../decode/summary.ts';
import type { Direction, InspectEvent } from '../decode/types.ts';

export { renderLine, shortName } from './text.ts';

const INDENT = '    ';
const DUMP_OCTETS = 16;
/** Bytes of a payload that the byte view shows before it abbreviates. */
const MAX_DUMPED = 1024;

/** All fields of an event, one a line, headed by its one-line form. */
export function renderTree(event: InspectEvent): string {
  const lines = [renderLine(event)];
  if (event.kind === 'note') return lines[0]!;
  for (const { depth, name, value } of fieldsOf(event)) {
    lines.push(`${INDENT.repeat(depth + 1)}${name}${value === '' ? '' : `: ${value}`}`);
  }
  for (const { id, clause, message } of event.problems)
    lines.push(`${INDENT}Problem: ${message} (${id}, ${clause})`);
  return lines.join('\n');
}

/** The bytes of an event beside the names of their fields; markers are left out. */
export function renderOctets(event: InspectEvent): string {
  if (event.kind === 'note') return '';
  const octets = fieldOctets(event);
  const lines: string[] = [];
  for (const { at, octets: count, name, value } of fieldsOf(event)) {
    const shown = Math.min(count, MAX_DUMPED);
    for (let i = 0; i < shown; i += DUMP_OCTETS) {
      const line = octets.subarray(at + i, at + Math.min(i + DUMP_OCTETS, shown));
      const text = i === 0 ? `${name}: ${value}` : '';
      const place = (at + i).toString(16).padStart(4, '0');
      lines.push(`${place}  ${hexText(line).padEnd(DUMP_OCTETS * 3)} ${text || asciiText(line)}`.trimEnd());
    }
    if (shown < count) lines.push(`      … ${count - shown} bytes more`);
  }
  return lines.join('\n');
}

function hexText(octets: Uint8Array): string {
  return Array.from(octets, (octet) => octet.toString(16).padStart(2, '0')).join(' ');
}

function asciiText(octets: Uint8Array): string {
  return Array.from(octets, (octet) =>
    octet >= 0x20 && octet < 0x7f ? String.fromCharCode(octet) : '.',
  ).join('');
}

/** How events are shown: a line, all fields, a line and the bytes, JSON. */
export type EventStyle = 'line' | 'tree' | 'octets' | 'json';

/** An event of a connection in one of the styles, its connection's number in front. */
export function renderEvent(style: EventStyle, connection: CapturedConnection, event: InspectEvent): string {
  switch (style) {
    case 'json':
      return renderJson(event, connection);
    case 'line':
      return `#${connection.number} ${renderLine(event)}`;
    case 'octets':
      return `#${connection.number} ${renderLine(event)}\n${renderOctets(event)}`;
    case 'tree': {
      const [first, ...rest] = renderTree(event).split('\n');
      const { ends, number, packet } = connection;
      const counted = packet === undefined ? '' : `, packet ${packet}`;
      const where = `${ends[event.direction]} to ${ends[event.direction ^ 1]!}${counted}`;
      return [`#${number} ${first}`, `${INDENT}${where}`, ...rest].join('\n');
    }
  }
}

const STAG_NAMES: ReadonlySet<string> = new Set(['stag', 'sinkStag', 'sourceStag', 'invalidateStag']);

/**
 * One event as one line of JSON. FPDUs have an `opcode`; STags and 64-bit values are strings of hexadecimal
 * digits after `0x`, so that no reader rounds them; bytes are left out.
 */
export function renderJson(event: InspectEvent, connection?: CapturedConnection): string {
  const { direction } = event;
  const place =
    connection === undefined
      ? {}
      : {
          connection: connection.number,
          packet: connection.packet,
          from: connection.ends[direction],
          to: connection.ends[direction ^ 1],
        };
  // The time has no more digits than a capture can mean.
  const time = Number(event.time.toFixed(9));
  return JSON.stringify({ ...place, ...jsonBody(event), time }, (name, value: unknown) => {
    if (typeof value === 'bigint') return hex64(value);
    return typeof value === 'number' && STAG_NAMES.has(name) ? hex32(value) : value;
  });
}

function jsonBody(event: InspectEvent): object {
  if (event.kind === 'fpdu') {
    const { raw: _raw, ulpdu: _ulpdu, ...fields } = event;
    return fields;
  }
  if (event.kind === 'note') return event;
  if (event.kind === 'trp') {
    const { raw: _raw, setup, ...fields } = event;
    if (setup === undefined) return fields;
    const privateData = hexText(setup.privateData).replaceAll(' ', '');
    return { ...fields, setup: { ...setup, privateData } };
  }
  const { raw: _raw, opcode, frame, ...fields } = event;
  const { privateData, ...rest } = frame;
  return {
    ...fields,
    type: opcode,
    ...rest,
    kind: 'startup',
    privateData: hexText(privateData).replaceAll(' ', ''),
  };
}

/** The summary of a connection as one line of JSON. */
export function renderSummaryJson(connection: CapturedConnection): string {
  const { summary, ends, number, fromStart, iwarp } = connection;
  const { repeatedSegments, reorderedSegments, earlySegments } = connection;
  const place = {
    kind: 'summary',
    connection: number,
    from: ends[0],
    to: ends[1],
    fromStart,
    iwarp,
    repeatedSegments,
    reorderedSegments,
    earlySegments,
  };
  return JSON.stringify({ ...place, ...summary }, (_name, value: unknown) =>
    value instanceof Map ? Object.fromEntries(value) : value,
  );
}

/** The summary of a connection, several lines. */
export function renderSummary(connection: CapturedConnection): string {
  const { summary, ends, number } = connection;
  const lines = [
    `Connection ${number}: ${ends[0]} → ${ends[1]}${connection.fromStart ? '' : ' (captured from within)'}`,
  ];
  if (!connection.iwarp) {
    lines.push(`${INDENT}no iWARP seen`);
    return lines.join('\n');
  }
  const duration = summary.first === undefined ? 0 : summary.last - summary.first;
  const markers = ([0, 1] as const)
    .map((direction) => `${arrow(direction)} ${summary.markers[direction] ? 'yes' : 'no'}`)
    .join(' ');
  if (summary.trp !== undefined)
    lines.push(`${INDENT}${seconds(duration).trim()} s, ${datagramText(summary.trp)}`);
  else
    lines.push(
      `${INDENT}${seconds(duration).trim()} s, CRC ${summary.crc}, markers ${markers}, ` +
        `${connection.repeatedSegments} segments repeated, ${connection.reorderedSegments} out of order`,
    );
  const { earlySegments } = connection;
  if (earlySegments > 0) {
    const segments = earlySegments === 1 ? '1 segment' : `${earlySegments} segments`;
    lines.push(`${INDENT}left out: ${segments} from before the first decoded byte`);
  }
  for (const direction of [0, 1] as const) lines.push(INDENT + directionLine(connection, direction));
  if (summary.nbd !== undefined) lines.push(INDENT + nbdLine(summary.nbd));
  for (const { direction, description } of summary.terminates)
    lines.push(`${INDENT}Terminate ${arrow(direction)} ${description}`);
  for (const [id, count] of summary.problems)
    lines.push(`${INDENT}${id} (${CLAUSES[id]}) broken ${count} time${count === 1 ? '' : 's'}`);
  return lines.join('\n');
}

function datagramText({ acknowledgements, ranges, repeated, late }: DatagramSummary): string {
  const both = ([out, back]: readonly [number, number]): string => `${arrow(0)} ${out} ${arrow(1)} ${back}`;
  return (
    `over UDP, repeated ${both(repeated)}, late ${both(late)}, ` +
    `${acknowledgements} acknowledgements, ${ranges} ranges`
  );
}

function nbdLine({ mode, requests, replies, errors, unmatched, waiting }: NbdSummary): string {
  const list = (map: ReadonlyMap<string, number>): string =>
    [...map].map(([name, count]) => `${name} ${count}`).join(', ');
  const faults = errors.size === 0 ? '' : ` (${list(errors)})`;
  const strange = unmatched === 0 ? '' : `, ${unmatched} of them to no request`;
  const asked = requests.size === 0 ? 'no requests' : list(requests);
  return `NBD, ${mode} mode: ${asked}; ${replies} replies${faults}${strange}, ${waiting} requests unanswered`;
}

function directionLine({ summary }: CapturedConnection, direction: Direction): string {
  const { fpdus, octets, payload, skipped, missing, opcodes } = summary.directions[direction];
  const kinds = [...opcodes].map(([name, count]) => `${shortName(name)} ${count}`).join(', ');
  const undecoded = skipped > 0 ? `, ${skipped} bytes not decoded` : '';
  const lost = `${undecoded}${missing > 0 ? `, ${missing} not captured` : ''}`;
  const unit = summary.trp === undefined ? 'FPDUs' : 'segments';
  const counts = `${fpdus} ${unit}, ${octets} bytes, ${payload} after DDP headers`;
  return `${arrow(direction)} ${counts}${lost}${kinds === '' ? '' : `: ${kinds}`}`;
}
