// The naive reading of one ULPDU: DDP header (RFC 5041 4), RDMAP control and headers (RFC 5040 4), the
// messages of RFC 7306, and a Terminate with whatever it includes. Names every departure from what a lawful
// sender sends.

import { bigAt, numberAt } from './octets.ts';
import type {
  NaiveAtomicRequest,
  NaiveBody,
  NaiveHeader,
  NaiveReadRequest,
  NaiveSegment,
  NaiveTerminate,
} from './types.ts';

/** A segment, or null when the header is incomplete, and its faults. */
interface NaiveSegmentResult {
  readonly segment: NaiveSegment | null;
  readonly problems: readonly string[];
}

/** Opcode to: tagged, queue, octets after the DDP header (null: any number). */
const MESSAGES: readonly { name: string; tagged: boolean; qn: number; size: number | null }[] = [
  { name: 'RDMA Write', tagged: true, qn: -1, size: null },
  { name: 'RDMA Read Request', tagged: false, qn: 1, size: 28 },
  { name: 'RDMA Read Response', tagged: true, qn: -1, size: null },
  { name: 'Send', tagged: false, qn: 0, size: null },
  { name: 'Send with Invalidate', tagged: false, qn: 0, size: null },
  { name: 'Send with Solicited Event', tagged: false, qn: 0, size: null },
  { name: 'Send with Solicited Event and Invalidate', tagged: false, qn: 0, size: null },
  { name: 'Terminate', tagged: false, qn: 2, size: null },
  { name: 'Immediate Data', tagged: false, qn: 0, size: 8 },
  { name: 'Immediate Data with Solicited Event', tagged: false, qn: 0, size: 8 },
  { name: 'Atomic Request', tagged: false, qn: 1, size: 52 },
  { name: 'Atomic Response', tagged: false, qn: 3, size: 12 },
];

/** Decode a ULPDU. */
export function decodeSegment(ulpdu: Uint8Array): NaiveSegmentResult {
  const header = decodeHeader(ulpdu, 0);
  if (header === null) return { segment: null, problems: ['ULPDU too short for its DDP header'] };
  const rest = ulpdu.slice(header.tagged ? 14 : 18);
  const problems = headerProblems(header, rest.length);
  const body = decodeBody(header, rest, problems);
  return { segment: { ...header, ...body }, problems };
}

/** The DDP header at `offset`, 14 octets or 18 by its T bit; null when they are not all there. */
function decodeHeader(octets: Uint8Array, offset: number): NaiveHeader | null {
  if (octets.length < offset + 2) return null;
  const ddp = numberAt(octets, offset, 1);
  const rdmap = numberAt(octets, offset + 1, 1);
  const tagged = ddp >= 0x80;
  if (octets.length < offset + (tagged ? 14 : 18)) return null;
  const common = {
    last: (ddp & 0x40) !== 0,
    dv: ddp & 0x03,
    ddpReserved: (ddp & 0x3c) >>> 2,
    rv: rdmap >>> 6,
    rdmapReserved: (rdmap & 0x30) >>> 4,
    opcode: rdmap & 0x0f,
  };
  if (tagged)
    return { tagged, ...common, stag: numberAt(octets, offset + 2, 4), to: bigAt(octets, offset + 6) };
  return {
    tagged,
    ...common,
    invalidateStag: numberAt(octets, offset + 2, 4),
    qn: numberAt(octets, offset + 6, 4),
    msn: numberAt(octets, offset + 10, 4),
    mo: numberAt(octets, offset + 14, 4),
  };
}

function headerProblems(header: NaiveHeader, size: number): string[] {
  const problems: string[] = [];
  if (header.dv !== 1) problems.push(`DDP version ${header.dv}`);
  if (header.rv !== 1) problems.push(`RDMAP version ${header.rv}`);
  if (header.ddpReserved !== 0) problems.push('reserved DDP control bits are set');
  if (header.rdmapReserved !== 0) problems.push('reserved RDMAP control bits are set');
  const message = MESSAGES[header.opcode];
  if (message === undefined) return [...problems, `opcode ${header.opcode} is not assigned`];
  if (message.tagged !== header.tagged) return [...problems, `${message.name} with the wrong T flag`];
  if (message.size !== null && size !== message.size) problems.push(`${message.name} with ${size} octets`);
  if (header.tagged) return problems;
  if (header.qn !== message.qn) problems.push(`${message.name} on queue ${header.qn}`);
  const invalidates = header.opcode === 4 || header.opcode === 6;
  if (!invalidates && header.invalidateStag !== 0) problems.push(`${message.name} with an Invalidate STag`);
  const single = message.size !== null || header.opcode === 7;
  if (single && (!header.last || header.mo !== 0)) problems.push(`${message.name} in more than one segment`);
  if (header.opcode === 7 && header.msn !== 1) problems.push(`Terminate with MSN ${header.msn}`);
  return problems;
}

function decodeBody(header: NaiveHeader, rest: Uint8Array, problems: string[]): NaiveBody {
  const none = new Uint8Array(0);
  const message = MESSAGES[header.opcode];
  if (header.tagged || message === undefined) return { payload: rest };
  if (message.size !== null && message.size !== rest.length) return { payload: rest };
  switch (header.opcode) {
    case 1:
      return { payload: none, readRequest: decodeReadRequest(rest, 0) };
    case 7:
      return decodeTerminate(rest, problems);
    case 8:
    case 9:
      return { payload: none, immediate: rest };
    case 10:
      return { payload: none, atomicRequest: decodeAtomicRequest(rest, problems) };
    case 11:
      return { payload: none, atomicResponse: { requestId: numberAt(rest, 0, 4), original: bigAt(rest, 4) } };
    default:
      return { payload: rest };
  }
}

function decodeReadRequest(octets: Uint8Array, offset: number): NaiveReadRequest {
  return {
    sinkStag: numberAt(octets, offset, 4),
    sinkTo: bigAt(octets, offset + 4),
    size: numberAt(octets, offset + 12, 4),
    sourceStag: numberAt(octets, offset + 16, 4),
    sourceTo: bigAt(octets, offset + 20),
  };
}

function decodeAtomicRequest(octets: Uint8Array, problems: string[]): NaiveAtomicRequest {
  const word = numberAt(octets, 0, 4);
  const request = {
    reserved: Math.floor(word / 16),
    aopcode: word % 16,
    requestId: numberAt(octets, 4, 4),
    remoteStag: numberAt(octets, 8, 4),
    remoteTo: bigAt(octets, 12),
    addOrSwap: bigAt(octets, 20),
    addOrSwapMask: bigAt(octets, 28),
    compare: bigAt(octets, 36),
    compareMask: bigAt(octets, 44),
  };
  if (request.reserved !== 0) problems.push('reserved bits of an Atomic Request are set');
  if (request.aopcode !== 0 && request.aopcode !== 2)
    problems.push(`AOpCode ${request.aopcode} is not assigned`);
  if (request.aopcode === 0 && (request.compare !== 0n || request.compareMask !== 0xffff_ffff_ffff_ffffn)) {
    problems.push('FetchAdd with other compare fields than zero and all ones');
  }
  return request;
}

/** The Terminate structure: read by its flags and the T bit of the header it includes, never by its codes. */
function decodeTerminate(rest: Uint8Array, problems: string[]): NaiveBody {
  if (rest.length < 4) {
    problems.push('Terminate shorter than its control word');
    return { payload: rest };
  }
  const first = numberAt(rest, 0, 1);
  const flags = numberAt(rest, 2, 2);
  const control = {
    layer: first >>> 4,
    etype: first & 0x0f,
    code: numberAt(rest, 1, 1),
    m: (flags & 0x8000) !== 0,
    d: (flags & 0x4000) !== 0,
    r: (flags & 0x2000) !== 0,
    reserved: flags & 0x1fff,
  };
  let at = 4;
  let included: Pick<NaiveTerminate, 'segmentLength' | 'ddpHeader' | 'readRequest'> = {};
  if ((control.m || control.d) && rest.length >= at + 2) {
    included = { segmentLength: numberAt(rest, at, 2) };
    at += 2;
  }
  const ddpHeader = control.d ? decodeHeader(rest, at) : null;
  if (ddpHeader !== null) {
    included = { ...included, ddpHeader };
    at += ddpHeader.tagged ? 14 : 18;
  }
  if (control.r && rest.length >= at + 28) {
    included = { ...included, readRequest: decodeReadRequest(rest, at) };
    at += 28;
  }
  const terminate: NaiveTerminate = { ...control, ...included };
  if (control.reserved !== 0) problems.push('reserved bits of a Terminate are set');
  if ((control.m || control.d) !== (included.segmentLength !== undefined))
    problems.push('Terminate without its segment length');
  if (control.d !== (included.ddpHeader !== undefined)) problems.push('Terminate without its DDP header');
  if (control.r !== (included.readRequest !== undefined)) problems.push('Terminate without its RDMAP header');
  if (rest.length > at) problems.push('octets after a Terminate');
  return { payload: rest.slice(at), terminate };
}
