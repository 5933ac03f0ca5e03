/**
 * Every field of a start-up frame or FPDU with its name, value and place, for the full view, the byte view
 * and the page. Layouts: RFC 5044 4.1 and 7.1.1, RFC 6581 9, RFC 5041 4, RFC 5040 4, RFC 7306 5 and 6.
 */
import { quoted } from '../../base/printable.ts';
import { TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../../ddp/wire.ts';
import {
  CRC_OCTETS,
  ENHANCED_OCTETS,
  MARKER_OCTETS,
  STARTUP_HEADER_OCTETS,
  ULPDU_LENGTH_OCTETS,
} from '../../mpa/wire.ts';
import { OPCODE } from '../../rdmap/wire.ts';
import { TRP_HEADER_OCTETS } from '../../trp/wire.ts';
import { opcodeName } from '../decode/ulpdu.ts';
import { hex32, hex64, hex8 } from '../decode/problems.ts';
import { enhancedText, nbdSetupText, sdpSetupText } from './text.ts';
import type {
  DdpFields,
  DecodedDatagram,
  DecodedFpdu,
  DecodedStartup,
  DecodedUlpdu,
  NbdFields,
  SdpFields,
  RdmapFields,
  ReadRequestFields,
  TerminateFields,
  UntaggedFields,
} from '../decode/types.ts';

/** One field. `octets` is 0 for a heading. */
interface Field {
  readonly depth: number;
  readonly name: string;
  readonly value: string;
  /** Offset within the bytes shown by {@link fieldOctets}. */
  readonly at: number;
  readonly octets: number;
}

/** Builds the list: headings open a level, fields follow one another. */
class Builder {
  readonly fields: Field[] = [];
  private depth = 0;
  private at = 0;

  heading(name: string, value = ''): void {
    this.depth = 0;
    this.push(name, value, 0);
    this.depth = 1;
  }

  sub(name: string): void {
    this.depth = 1;
    this.push(name, '', 0);
    this.depth = 2;
  }

  push(name: string, value: string, octets: number): void {
    this.fields.push({ depth: this.depth, name, value, at: this.at, octets });
    this.at += octets;
  }

  /** A field inside the bytes of the one before. */
  part(name: string, value: string): void {
    this.fields.push({ depth: this.depth + 1, name, value, at: this.at, octets: 0 });
  }
}

/**
 * The bytes that field offsets refer to: the frame, an FPDU without its markers, as far as it was captured.
 */
export function fieldOctets(event: DecodedFpdu | DecodedStartup | DecodedDatagram): Uint8Array {
  if (event.kind !== 'fpdu') return event.raw;
  const octets = new Uint8Array(ULPDU_LENGTH_OCTETS + event.ulpduLength + event.padLength + CRC_OCTETS);
  octets[0] = event.ulpduLength >>> 8;
  octets[1] = event.ulpduLength;
  octets.set(event.ulpdu, ULPDU_LENGTH_OCTETS);
  if (event.captured !== undefined)
    return octets.subarray(0, event.captured - MARKER_OCTETS * event.markers.length);
  // PAD directly precedes the CRC field unless a marker stands between: it shares its unit of four with the
  // ULPDU.
  const tail = event.markers.some(
    ({ position }) => position === event.position - lead(event) + event.octets - CRC_OCTETS - MARKER_OCTETS,
  )
    ? MARKER_OCTETS
    : 0;
  const padEnd = event.raw.length - CRC_OCTETS - tail;
  octets.set(event.raw.subarray(padEnd - event.padLength, padEnd), ULPDU_LENGTH_OCTETS + event.ulpduLength);
  octets.set(event.raw.subarray(event.raw.length - CRC_OCTETS), octets.length - CRC_OCTETS);
  return octets;
}

function lead(event: DecodedFpdu): number {
  return event.markers.some(({ position }) => position < event.position) ? MARKER_OCTETS : 0;
}

/** All fields of an event. */
export function fieldsOf(event: DecodedFpdu | DecodedStartup | DecodedDatagram): Field[] {
  const builder = new Builder();
  if (event.kind === 'startup') addStartup(builder, event);
  else if (event.kind === 'trp') addDatagram(builder, event);
  else addFpdu(builder, event);
  return builder.fields;
}

function addStartup(builder: Builder, event: DecodedStartup): void {
  const { frame, flags } = event;
  builder.heading('MPA', `${frame.kind === 'request' ? 'Request' : 'Reply'} frame`);
  builder.push('Key', quoted(String.fromCharCode(...event.raw.subarray(0, 16))), 16);
  builder.push('Flags', hex8(flags), 1);
  builder.part('M (markers wanted)', bit(frame.markers));
  builder.part('C (CRC wanted)', bit(frame.crc));
  builder.part('R (rejected)', bit(frame.reject));
  builder.part('S (enhanced)', bit((flags & 0x10) !== 0));
  builder.push('Revision', String(frame.revision), 1);
  builder.push('PD_Length', String(event.pdLength), 2);
  if (frame.enhanced !== null) builder.push('Enhanced data', enhancedText(frame.enhanced), ENHANCED_OCTETS);
  const rest = Math.max(
    0,
    event.raw.length - STARTUP_HEADER_OCTETS - (frame.enhanced === null ? 0 : ENHANCED_OCTETS),
  );
  if (rest > 0) builder.push('Private data', `${rest} bytes`, rest);
  if (event.nbd !== undefined) builder.part('NBD', nbdSetupText(event.nbd));
  if (event.sdp !== undefined) builder.part('SDP', sdpSetupText(event.sdp));
}

function addDatagram(builder: Builder, event: DecodedDatagram): void {
  const { ddp, opcode, psn, ack, rdmap, raw, setup } = event;
  builder.heading(
    'TRP',
    `${rdmap === undefined ? opcode.replace('TRP ', '') : 'data'}, ${event.octets} bytes`,
  );
  const range = opcode === 'TRP SACK';
  builder.push(range ? 'First PSN received' : 'PSN', String(psn), 4);
  builder.push(range ? 'PSN after the last' : 'Acknowledged PSN', String(ack), 4);
  builder.push('Opcode', `0x${((raw[8]! << 8) | raw[9]!).toString(16).padStart(4, '0')}`, 2);
  if (event.remark !== undefined) builder.part('Remark', event.remark);
  if (setup !== undefined) {
    const { ird, ord, privateData } = setup;
    builder.push('Private data length', String(privateData.length), 2);
    builder.push('IRD', String(ird), 2);
    builder.push('ORD', String(ord), 2);
    if (privateData.length > 0)
      builder.push('Private data', `${privateData.length} bytes`, privateData.length);
    return;
  }
  if (ddp === undefined || rdmap === undefined) return;
  const header = addHeaders(builder, ddp, rdmap);
  const left = raw.length - TRP_HEADER_OCTETS - header - addBody(builder, event);
  if (left > 0) builder.push('Payload', `${left} bytes`, left);
}

function addFpdu(builder: Builder, event: DecodedFpdu): void {
  builder.heading('MPA', `FPDU at stream position ${event.position}, ${event.octets} bytes`);
  builder.push('ULPDU_Length', String(event.ulpduLength), ULPDU_LENGTH_OCTETS);
  const { ddp, rdmap } = event;
  const header = ddp === undefined || rdmap === undefined ? 0 : addHeaders(builder, ddp, rdmap);
  const used = header + addBody(builder, event);
  if (event.ulpduLength > used)
    builder.push('Payload', `${event.ulpduLength - used} bytes`, event.ulpduLength - used);
  builder.heading('MPA trailer');
  if (event.padLength > 0) builder.push('PAD', `${event.padLength} bytes`, event.padLength);
  const { crc } = event;
  if (event.captured !== undefined) {
    builder.push('CRC32c', 'not captured', CRC_OCTETS);
    return;
  }
  const verdict = crc.ok ? 'right' : crc.use === 'off' ? 'not in use' : `computed ${hex32(crc.computed)}`;
  builder.push('CRC32c', `${hex32(crc.field)}, ${verdict}`, CRC_OCTETS);
  for (const { position, pointer } of event.markers)
    builder.push(`Marker at stream position ${position}`, `FPDUPTR ${pointer}`, 0);
}

function addHeaders(builder: Builder, ddp: DdpFields, rdmap: RdmapFields): number {
  builder.heading('DDP', ddp.tagged ? 'tagged' : 'untagged');
  addDdpControl(builder, ddp);
  addRdmapControl(builder, rdmap);
  if (ddp.tagged) {
    addTagged(builder, ddp);
    return TAGGED_HEADER_OCTETS;
  }
  addUntagged(builder, ddp);
  return UNTAGGED_HEADER_OCTETS;
}

function addDdpControl(builder: Builder, ddp: DdpFields): void {
  builder.push(
    'DDP control',
    hex8((ddp.tagged ? 0x80 : 0) | (ddp.last ? 0x40 : 0) | ddp.reserved | ddp.version),
    1,
  );
  builder.part('T (tagged)', bit(ddp.tagged));
  builder.part('L (last)', bit(ddp.last));
  if (ddp.reserved !== 0) builder.part('Reserved', hex8(ddp.reserved));
  builder.part('Version', String(ddp.version));
}

function addRdmapControl(builder: Builder, rdmap: RdmapFields): void {
  builder.push('RDMAP control', hex8((rdmap.version << 6) | rdmap.reserved | rdmap.opcode), 1);
  builder.part('Version', String(rdmap.version));
  if (rdmap.reserved !== 0) builder.part('Reserved', hex8(rdmap.reserved));
  builder.part('Opcode', `${rdmap.opcode} (${opcodeName(rdmap.opcode)})`);
}

function addTagged(builder: Builder, ddp: Extract<DdpFields, { tagged: true }>): void {
  builder.push('STag', hex32(ddp.stag), 4);
  builder.push('TO', hex64(ddp.to), 8);
}

function addUntagged(builder: Builder, ddp: UntaggedFields): void {
  builder.push('Invalidate STag', hex32(ddp.invalidateStag), 4);
  builder.push('QN', String(ddp.qn), 4);
  builder.push('MSN', String(ddp.msn), 4);
  builder.push('MO', String(ddp.mo), 4);
}

/** The header of an NBD request or reply; returns its bytes. */
function addNbd(builder: Builder, nbd: NbdFields): number {
  const { kind, command = 'not captured', cookie, memory } = nbd;
  builder.heading('NBD', kind);
  builder.push('Magic', kind === 'request' ? '0x25609513' : '0x67446698', 4);
  if (kind === 'reply') {
    builder.push('Error', nbd.error ?? '0', 4);
    builder.push('Cookie', hex64(cookie), 8);
    builder.part('Answers', nbd.unmatched === true ? 'no request' : command);
    if (nbd.elapsed !== undefined) builder.part('After', `${nbd.elapsed.toFixed(6)} s`);
    return 16;
  }
  builder.push('Command flags', nbd.flags ?? '0', 2);
  builder.push('Command', command, 2);
  builder.push('Cookie', hex64(cookie), 8);
  builder.push('Offset', hex64(nbd.offset!), 8);
  builder.push('Length', String(nbd.length), 4);
  if (memory === undefined) return 28;
  builder.push('STag', hex32(memory.stag), 4);
  builder.push('Reserved', '0', 4);
  builder.push('TO', hex64(memory.to), 8);
  return 44;
}

/** The headers of a message of SDP; returns their bytes. */
function addSdp(builder: Builder, sdp: SdpFields): number {
  const { name, flags, bufs, length, mseq, mseqAck, memory, nonDiscards, lock, locks, value, mode } = sdp;
  builder.heading('SDP', name);
  builder.push('MID', name, 1);
  builder.push('Flags', String(flags), 1);
  builder.push('Bufs', String(bufs), 2);
  builder.push('Len', String(length), 4);
  builder.push('MSeq', String(mseq), 4);
  builder.push('MSeqAck', String(mseqAck), 4);
  if (mode !== undefined || value !== undefined) {
    builder.push(mode === undefined ? 'Value' : 'Mode', mode ?? String(value), 4);
    return 20;
  }
  if (locks !== undefined) {
    builder.push('STag', hex32(locks.stag), 4);
    builder.push('TO', hex64(locks.to), 8);
    builder.push('Slots', String(locks.slots), 4);
    builder.push('Reserved', '', 4);
    return 36;
  }
  if (memory === undefined) return 16;
  builder.push('Length', String(memory.length), 4);
  builder.push('STag', hex32(memory.stag), 4);
  builder.push('TO', hex64(memory.to), 8);
  if (lock !== undefined) {
    builder.push('Slot', String(lock.slot), 4);
    builder.push('Generation', String(lock.generation), 4);
    return 40;
  }
  if (nonDiscards === undefined) return 32;
  builder.push('NonDiscards', String(nonDiscards), 4);
  return 36;
}

/** The structure after the DDP header; returns its bytes. */
function addBody(builder: Builder, event: DecodedUlpdu): number {
  const { readRequest, terminate, immediate, atomicRequest, atomicResponse, nbd } = event;
  if (nbd !== undefined) return addNbd(builder, nbd);
  if (event.sdp !== undefined) return addSdp(builder, event.sdp);
  if (readRequest !== undefined) return addReadRequest(builder, readRequest, 'RDMAP');
  if (terminate !== undefined) return addTerminate(builder, terminate);
  if (immediate !== undefined) {
    builder.heading('RDMAP', event.opcode);
    builder.push('Immediate Data', hex64(immediate), 8);
    return 8;
  }
  if (atomicRequest !== undefined) {
    builder.heading('RDMAP', `Atomic Request, ${atomicRequest.aopcodeName}`);
    builder.push('Reserved and AOpCode', `${atomicRequest.aopcode} (${atomicRequest.aopcodeName})`, 4);
    builder.push('Request Identifier', hex32(atomicRequest.requestId), 4);
    builder.push('Remote STag', hex32(atomicRequest.stag), 4);
    builder.push('Remote TO', hex64(atomicRequest.to), 8);
    const verb = atomicRequest.aopcode === 0 ? 'Add' : 'Swap';
    builder.push(`${verb} Data`, hex64(atomicRequest.data), 8);
    builder.push(`${verb} Mask`, hex64(atomicRequest.mask), 8);
    builder.push('Compare Data', hex64(atomicRequest.compare), 8);
    builder.push('Compare Mask', hex64(atomicRequest.compareMask), 8);
    return 52;
  }
  if (atomicResponse !== undefined) {
    builder.heading('RDMAP', 'Atomic Response');
    builder.push('Original Request Identifier', hex32(atomicResponse.requestId), 4);
    builder.push('Original Remote Data Value', hex64(atomicResponse.original), 8);
    return 12;
  }
  return 0;
}

function addReadRequest(builder: Builder, request: ReadRequestFields, heading: string): number {
  if (heading !== '') builder.heading(heading, opcodeName(OPCODE.READ_REQUEST));
  builder.push('Data Sink STag', hex32(request.sinkStag), 4);
  builder.push('Data Sink TO', hex64(request.sinkTo), 8);
  builder.push('RDMA Read Message Size', String(request.size), 4);
  builder.push('Data Source STag', hex32(request.sourceStag), 4);
  builder.push('Data Source TO', hex64(request.sourceTo), 8);
  return 28;
}

function addTerminate(builder: Builder, terminate: TerminateFields): number {
  builder.heading('RDMAP', `Terminate ${terminate.description}`);
  builder.push('Layer and EType', `${terminate.layer}, ${terminate.type}`, 1);
  builder.push('Error Code', hex8(terminate.code), 1);
  builder.push('Header control', `M ${bit(terminate.m)}, D ${bit(terminate.d)}, R ${bit(terminate.r)}`, 2);
  let octets = 4;
  if (terminate.segmentLength !== undefined || terminate.ddp !== undefined) {
    const length = terminate.segmentLength;
    builder.push('DDP Segment Length', length === undefined ? 'not valid' : String(length), 2);
    octets += 2;
  }
  if (terminate.ddp !== undefined && terminate.rdmap !== undefined) {
    builder.sub('Terminated DDP header');
    addDdpControl(builder, terminate.ddp);
    addRdmapControl(builder, terminate.rdmap);
    if (terminate.ddp.tagged) addTagged(builder, terminate.ddp);
    else addUntagged(builder, terminate.ddp);
    octets += terminate.ddp.tagged ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
  }
  if (terminate.readRequest !== undefined) {
    builder.sub('Terminated Read Request header');
    octets += addReadRequest(builder, terminate.readRequest, '');
  }
  return octets;
}

function bit(value: boolean): string {
  return value ? '1' : '0';
}
