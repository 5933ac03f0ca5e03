/**
 * One line for each event, for people: time, direction, opcode and the fields that matter for it, in columns; what is wrong stands in
 * brackets with its requirement id.
 */
import { DEPTH_NOT_NEGOTIATED, type EnhancedData } from '../mpa/wire.ts';
import { opcodeName } from './decode.ts';
import { hex32, hex64, type Problem } from './problems.ts';
import type { DecodedFpdu, DecodedStartup, DecodedUlpdu, Direction, InspectEvent, StreamNote } from './types.ts';

const ARROWS: readonly [string, string] = ['→', '←'];
/** Width of the opcode column: the longest short name. */
const OPCODE_WIDTH = 10;
const FIELDS_WIDTH = 58;
const OCTETS_WIDTH = 13;

/** Names short enough for a column. */
const SHORT_NAMES: Readonly<Record<string, string>> = {
  'RDMA Write': 'Write',
  'RDMA Read Request': 'ReadReq',
  'RDMA Read Response': 'ReadResp',
  'Send with Invalidate': 'SendInv',
  'Send with Solicited Event': 'SendSE',
  'Send with Solicited Event and Invalidate': 'SendSEInv',
  'Immediate Data': 'Imm',
  'Immediate Data with Solicited Event': 'ImmSE',
  'Atomic Request': 'AtomicReq',
  'Atomic Response': 'AtomicResp',
  'MPA Request': 'MPA Req',
  'MPA Reply': 'MPA Rep',
};

/** The column name of an opcode or start-up frame; `Send` and `Terminate` are their own. */
export function shortName(opcode: string): string {
  return SHORT_NAMES[opcode] ?? opcode;
}

/** `→` from the side that opened the connection, `←` towards it. */
export function arrow(direction: Direction): string {
  return ARROWS[direction];
}

/**
 * The line of one event.
 *
 * @example
 * → 0.000123  Send       MSN 1 MO 0 L                              16 octets  CRC ok
 */
export function renderLine(event: InspectEvent): string {
  const front = `${arrow(event.direction)} ${seconds(event.time)}  `;
  const line = event.kind === 'fpdu' ? fpduLine(event) : event.kind === 'startup' ? startupLine(event) : noteLine(event);
  return front + line + renderProblems(event.problems, event.kind === 'note' ? event.message : undefined);
}

/** Seconds with microseconds, at least eight characters. */
export function seconds(time: number): string {
  return time.toFixed(6).padStart(8);
}

/** ` [MPA-067 RFC 5044 4.1: …]` for each problem; a message that was said already is not repeated. */
function renderProblems(problems: readonly Problem[], said?: string): string {
  return problems.map(({ id, clause, message }) => `  [${id} ${clause}${message === said ? '' : `: ${message}`}]`).join('');
}

function fpduLine(event: DecodedFpdu): string {
  const markers = event.markers.length === 0 ? '' : `  ${event.markers.length} marker${event.markers.length === 1 ? '' : 's'}`;
  const fields = ulpduFields(event).padEnd(FIELDS_WIDTH);
  const octets = `${event.payloadLength} octets`.padStart(OCTETS_WIDTH);
  const cut = event.captured === undefined ? '' : `  ${event.captured} of ${event.octets} captured`;
  return `${shortName(event.opcode).padEnd(OPCODE_WIDTH)} ${fields} ${octets}  ${crcText(event)}${markers}${cut}`;
}

function crcText({ crc }: DecodedFpdu): string {
  if (crc.use === 'off') return 'CRC off';
  return crc.ok ? 'CRC ok' : crc.use === 'on' ? 'CRC BAD' : 'CRC ?';
}

/** The fields of a ULPDU that its line shows. */
export function ulpduFields(ulpdu: DecodedUlpdu): string {
  const { ddp } = ulpdu;
  if (ddp === undefined) return `ULPDU too short for its header`;
  const last = ddp.last ? ' L' : '';
  if (ddp.tagged) return `STag ${hex32(ddp.stag)} TO ${hex64(ddp.to)}${last}`;
  const front = `${ulpdu.opcode.startsWith('Opcode') ? `QN ${ddp.qn} ` : ''}MSN ${ddp.msn}`;
  return front + bodyFields(ulpdu, `${ddp.mo === 0 && last !== '' ? '' : ` MO ${ddp.mo}`}${last}`, ddp.invalidateStag);
}

function bodyFields(ulpdu: DecodedUlpdu, order: string, invalidateStag: number): string {
  const { readRequest, terminate, immediate, atomicRequest, atomicResponse } = ulpdu;
  if (readRequest !== undefined) {
    const { sinkStag, sinkTo, sourceStag, sourceTo, size } = readRequest;
    return ` size ${size} from ${hex32(sourceStag)}+${hex64(sourceTo)} to ${hex32(sinkStag)}+${hex64(sinkTo)}`;
  }
  if (terminate !== undefined) {
    const about = terminate.ddp === undefined ? '' : ` about ${terminatedText(terminate)}`;
    return ` ${terminate.description}${about}`;
  }
  if (immediate !== undefined) return `${order} ${hex64(immediate)}`;
  if (atomicRequest !== undefined) {
    const { aopcodeName, requestId, stag, to, data, compare, aopcode } = atomicRequest;
    const values = aopcode === 2 ? `${hex64(compare)}→${hex64(data)}` : hex64(data);
    return ` id ${requestId} ${aopcodeName} ${values} at ${hex32(stag)}+${hex64(to)}`;
  }
  if (atomicResponse !== undefined) return ` id ${atomicResponse.requestId} original ${hex64(atomicResponse.original)}`;
  const invalidate = ulpdu.opcode.endsWith('Invalidate') ? ` inv ${hex32(invalidateStag)}` : '';
  return `${order}${invalidate}`;
}

function terminatedText(terminate: NonNullable<DecodedUlpdu['terminate']>): string {
  const { ddp, rdmap } = terminate;
  if (ddp === undefined) return '';
  const name = rdmap === undefined ? 'opcode ?' : shortName(opcodeName(rdmap.opcode));
  return ddp.tagged ? `${name} STag ${hex32(ddp.stag)} TO ${hex64(ddp.to)}` : `${name} QN ${ddp.qn} MSN ${ddp.msn} MO ${ddp.mo}`;
}

function startupLine(event: DecodedStartup): string {
  const { frame } = event;
  const flags = `${frame.markers ? 'M' : '-'}${frame.crc ? 'C' : '-'}${frame.reject ? 'R' : '-'}${frame.enhanced === null ? '-' : 'S'}`;
  const enhanced = frame.enhanced === null ? '' : ` ${enhancedText(frame.enhanced)}`;
  const verdict = frame.kind === 'reply' && frame.reject ? ' rejected' : '';
  const fields = `rev ${frame.revision} ${flags}${enhanced}${verdict}`.padEnd(FIELDS_WIDTH);
  return `${shortName(event.opcode).padEnd(OPCODE_WIDTH)} ${fields} ${`${frame.privateData.length} octets`.padStart(OCTETS_WIDTH)}  private data`;
}

/** `IRD 16 ORD 8 p2p Write|Read`. */
export function enhancedText(data: EnhancedData): string {
  const kinds = [data.rtrSend ? 'Send' : '', data.rtrWrite ? 'Write' : '', data.rtrRead ? 'Read' : ''].filter((kind) => kind !== '');
  const depth = (value: number): string => (value === DEPTH_NOT_NEGOTIATED ? '-' : String(value));
  return `IRD ${depth(data.ird)} ORD ${depth(data.ord)}${data.peerToPeer ? ` RTR ${kinds.join('|') || 'none'}` : ''}`;
}

function noteLine(event: StreamNote): string {
  return `${'--'.padEnd(OPCODE_WIDTH)} at ${event.position}: ${event.message}`;
}
