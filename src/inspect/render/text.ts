/**
 * One line for each event, for people: time, direction, opcode and the fields that matter for it, in columns;
 * broken rules stand in brackets with their requirement ids.
 */
import { DEPTH_NOT_NEGOTIATED, type EnhancedData, type StartupFrame } from '../../mpa/wire.ts';
import { quoted } from '../../base/printable.ts';
import { errorName } from '../decode/nbd.ts';
import { opcodeName } from '../decode/ulpdu.ts';
import { hex32, hex64, type Problem } from '../decode/problems.ts';
import type {
  DecodedDatagram,
  DecodedFpdu,
  DecodedStartup,
  DecodedUlpdu,
  Direction,
  InspectEvent,
  NbdFields,
  SdpFields,
  SdpSetupFields,
  NbdSetupFields,
  StreamNote,
} from '../decode/types.ts';

const ARROWS: readonly [string, string] = ['→', '←'];
/** Width of the opcode column: the longest short name. */
const OPCODE_WIDTH = 10;
const FIELDS_WIDTH = 58;
const SIZE_WIDTH = 13;

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
  'TRP Request': 'TRP Req',
  'TRP Accept': 'TRP Acc',
  'TRP Reject': 'TRP Rej',
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
 * → 0.000123  Send       MSN 1 MO 0 L                              16 bytes  CRC ok
 */
export function renderLine(event: InspectEvent): string {
  const front = `${arrow(event.direction)} ${seconds(event.time)}  `;
  return (
    front +
    bodyLine(event) +
    renderProblems(event.problems, event.kind === 'note' ? event.message : undefined)
  );
}

function bodyLine(event: InspectEvent): string {
  switch (event.kind) {
    case 'fpdu':
      return fpduLine(event);
    case 'startup':
      return startupLine(event);
    case 'trp':
      return datagramLine(event);
    case 'note':
      return noteLine(event);
  }
}

/** The fields of a datagram that its line shows, sequence numbers apart. */
export function datagramFields(event: DecodedDatagram): string {
  if (event.setup !== undefined) return `IRD ${event.setup.ird} ORD ${event.setup.ord}`;
  return event.rdmap === undefined ? '' : ulpduFields(event);
}

/** `PSN 7 ack 42`, `PSN 5..8` for a range, or `ack 42` where the sequence number means nothing. */
export function sequenceText({ opcode, psn, ack }: DecodedDatagram): string {
  if (opcode === 'TRP SACK') return `PSN ${psn}..${(ack - 1) >>> 0}`;
  return opcode === 'TRP Ack' ? `ack ${ack}` : `PSN ${psn} ack ${ack}`;
}

function datagramLine(event: DecodedDatagram): string {
  const name = shortName(event.opcode).padEnd(OPCODE_WIDTH);
  const size = `${event.payloadLength} bytes`.padStart(SIZE_WIDTH);
  const remark = event.remark === undefined ? '' : `  ${event.remark}`;
  return `${name} ${datagramFields(event).padEnd(FIELDS_WIDTH)} ${size}  ${sequenceText(event)}${remark}`;
}

/** Seconds with microseconds, at least eight characters. */
export function seconds(time: number): string {
  return time.toFixed(6).padStart(8);
}

/** ` [MPA-067 RFC 5044 4.1: …]` for each problem; a message that was said already is not repeated. */
function renderProblems(problems: readonly Problem[], said?: string): string {
  return problems
    .map(({ id, clause, message }) => `  [${id} ${clause}${message === said ? '' : `: ${message}`}]`)
    .join('');
}

function fpduLine(event: DecodedFpdu): string {
  const markers =
    event.markers.length === 0
      ? ''
      : `  ${event.markers.length} marker${event.markers.length === 1 ? '' : 's'}`;
  const fields = ulpduFields(event).padEnd(FIELDS_WIDTH);
  const size = `${event.payloadLength} bytes`.padStart(SIZE_WIDTH);
  const cut = event.captured === undefined ? '' : `  ${event.captured} of ${event.octets} captured`;
  const name = shortName(event.opcode).padEnd(OPCODE_WIDTH);
  return `${name} ${fields} ${size}  ${crcText(event)}${markers}${cut}`;
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
  return (
    front +
    bodyFields(ulpdu, `${ddp.mo === 0 && last !== '' ? '' : ` MO ${ddp.mo}`}${last}`, ddp.invalidateStag)
  );
}

function bodyFields(ulpdu: DecodedUlpdu, order: string, invalidateStag: number): string {
  const { readRequest, terminate, immediate, atomicRequest, atomicResponse } = ulpdu;
  if (readRequest !== undefined) {
    const { sinkStag, sinkTo, sourceStag, sourceTo, size } = readRequest;
    const sink = `${hex32(sinkStag)}+${hex64(sinkTo)}`;
    return ` size ${size} from ${hex32(sourceStag)}+${hex64(sourceTo)} to ${sink}`;
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
  if (atomicResponse !== undefined)
    return ` id ${atomicResponse.requestId} original ${hex64(atomicResponse.original)}`;
  const invalidate = ulpdu.opcode.endsWith('Invalidate') ? ` inv ${hex32(invalidateStag)}` : '';
  const nbd = ulpdu.nbd === undefined ? '' : `  ${nbdText(ulpdu.nbd)}`;
  const sdp = ulpdu.sdp === undefined ? '' : `  ${sdpText(ulpdu.sdp)}`;
  return `${order}${invalidate}${nbd}${sdp}`;
}

/** `SDP SrcAvail 65536 at 0x00000100+0x0, 1 byte, seq 7 ack 3 bufs 16`. */
function sdpText({
  name,
  flags,
  bufs,
  mseq,
  mseqAck,
  payload,
  memory,
  value,
  mode,
  ...more
}: SdpFields): string {
  const where = memory === undefined ? '' : ` ${memory.length} at ${hex32(memory.stag)}+${hex64(memory.to)}`;
  const counted = more.nonDiscards === undefined ? '' : ` non-discards ${more.nonDiscards}`;
  const about = `${mode === undefined ? '' : ` ${mode}`}${value === undefined ? '' : ` ${value}`}`;
  const data = payload === 0 ? '' : `, ${payload} ${payload === 1 ? 'byte' : 'bytes'}`;
  const set = flags === 0 ? '' : `, flags ${flags}`;
  return `SDP ${name}${where}${counted}${about}${data}${set}, seq ${mseq} ack ${mseqAck} bufs ${bufs}`;
}

/** Hello or HelloAck in one line. */
export function sdpSetupText({ kind, bufs, size, maxAdverts }: SdpSetupFields): string {
  return `SDP ${kind}, ${bufs} buffers of ${size} bytes, ${maxAdverts} advertisements`;
}

/**
 * `NBD READ 4096 at 0x1000 FUA, cookie 0x7` for a request; for a reply
 * `NBD reply to READ 4096 at 0x1000: EIO, cookie 0x7, 0.000120 s`.
 */
function nbdText({ kind, command, flags, cookie, offset, length, memory, ...more }: NbdFields): string {
  const range = length === 0 && offset === 0n ? '' : ` ${length} at ${hex64(offset ?? 0n)}`;
  const about = command === undefined ? '' : `${command}${range}${flags === undefined ? '' : ` ${flags}`}`;
  const end = `, cookie ${hex64(cookie)}`;
  if (kind === 'request') {
    const where =
      memory === undefined || memory.stag === 0 ? '' : `, memory ${hex32(memory.stag)}+${hex64(memory.to)}`;
    return `NBD ${about}${where}${end}`;
  }
  const { error = 'done', elapsed, unmatched } = more;
  const to = unmatched === true ? ' to no request' : about === '' ? '' : ` to ${about}`;
  return `NBD reply${to}: ${error}${end}${elapsed === undefined ? '' : `, ${elapsed.toFixed(6)} s`}`;
}

/** The text of private data that NBD puts into a start-up frame. */
export function nbdSetupText(nbd: NbdSetupFields): string {
  switch (nbd.kind) {
    case 'setup':
      return `NBD export ${quoted(nbd.name)}, ${nbd.mode} mode, depth ${nbd.depth}, version ${nbd.version}`;
    case 'grant':
      return (
        `NBD ${nbd.size} bytes, flags 0x${nbd.flags.toString(16)}, ` +
        `blocks ${nbd.minimum}/${nbd.preferred}/${nbd.maximum}`
      );
    case 'refusal':
      return `NBD refusal, ${errorName(nbd.error)}: ${quoted(nbd.message)}`;
  }
}

function terminatedText(terminate: NonNullable<DecodedUlpdu['terminate']>): string {
  const { ddp, rdmap } = terminate;
  if (ddp === undefined) return '';
  const name = rdmap === undefined ? 'opcode ?' : shortName(opcodeName(rdmap.opcode));
  return ddp.tagged
    ? `${name} STag ${hex32(ddp.stag)} TO ${hex64(ddp.to)}`
    : `${name} QN ${ddp.qn} MSN ${ddp.msn} MO ${ddp.mo}`;
}

function startupLine(event: DecodedStartup): string {
  const { frame } = event;
  const flags = flagsText(frame);
  const enhanced = frame.enhanced === null ? '' : ` ${enhancedText(frame.enhanced)}`;
  const verdict = frame.kind === 'reply' && frame.reject ? ' rejected' : '';
  const fields = `rev ${frame.revision} ${flags}${enhanced}${verdict}`.padEnd(FIELDS_WIDTH);
  const size = `${frame.privateData.length} bytes`.padStart(SIZE_WIDTH);
  const nbd = event.nbd === undefined ? '' : `  ${nbdSetupText(event.nbd)}`;
  const sdp = event.sdp === undefined ? '' : `  ${sdpSetupText(event.sdp)}`;
  return `${shortName(event.opcode).padEnd(OPCODE_WIDTH)} ${fields} ${size}  private data${nbd}${sdp}`;
}

/** The flags M, C, R and S of a start-up frame, a dash for each that is not set. */
export function flagsText({ markers, crc, reject, enhanced }: StartupFrame): string {
  const set = [markers, crc, reject, enhanced !== null];
  return set.map((on, i) => (on ? 'MCRS'[i] : '-')).join('');
}

/** `IRD 16 ORD 8 p2p Write|Read`. */
export function enhancedText(data: EnhancedData): string {
  const kinds = [data.rtrSend ? 'Send' : '', data.rtrWrite ? 'Write' : '', data.rtrRead ? 'Read' : ''].filter(
    (kind) => kind !== '',
  );
  const depth = (value: number): string => (value === DEPTH_NOT_NEGOTIATED ? '-' : String(value));
  const rtr = data.peerToPeer ? ` RTR ${kinds.join('|') || 'none'}` : '';
  return `IRD ${depth(data.ird)} ORD ${depth(data.ord)}${rtr}`;
}

function noteLine(event: StreamNote): string {
  return `${'--'.padEnd(OPCODE_WIDTH)} ${noteText(event)}`;
}

/** A note with its place, and with what a Hello in front of MPA says. */
export function noteText({ position, message, sdp }: StreamNote): string {
  const more = sdp === undefined ? '' : `: ${sdpSetupText(sdp)}`;
  return `at ${position}: ${message}${more}`;
}
