/**
 * One ULPDU into fields: RFC 5041 4 (DDP headers), RFC 5040 4 (RDMAP), RFC 7306 5 and 6. Decodes what can be
 * decoded and lists what a lawful sender would not do; never throws. Rules that need more than one FPDU are
 * in order.ts.
 */
import { describeTerminateCode } from '../../base/terminate-codes.ts';
import {
  DDP_CONTROL,
  RSVDULP_OFFSET,
  TAGGED_HEADER_OCTETS,
  TAGGED_STAG_OFFSET,
  TAGGED_TO_OFFSET,
  UNTAGGED_HEADER_OCTETS,
  UNTAGGED_MO_OFFSET,
  UNTAGGED_MSN_OFFSET,
  UNTAGGED_QN_OFFSET,
  UNTAGGED_ULP_WORD_OFFSET,
  FIRST_MSN,
  getU32,
} from '../../ddp/wire.ts';
import { isMirrored, mirrorControl, parseTerminate, swapNibbles } from '../../rdmap/terminate.ts';
import {
  ATOMIC_OPCODE,
  ATOMIC_OPCODE_MASK,
  ATOMIC_REQUEST,
  ATOMIC_REQUEST_OCTETS,
  ATOMIC_RESPONSE,
  ATOMIC_RESPONSE_OCTETS,
  IMMEDIATE_OCTETS,
  OPCODE,
  OPCODE_TABLE,
  RDMAP_CONTROL,
  RDMAP_VERSION_SHIFT,
  READ_REQUEST,
  READ_REQUEST_OCTETS,
  TERMINATE_CONTROL,
  TERMINATE_CONTROL_OFFSET,
  TERMINATE_FIXED_OCTETS,
} from '../../rdmap/wire.ts';
import { hex32, hex8, problem, type Problem, type ProblemId } from './problems.ts';
import type {
  AtomicRequestFields,
  DdpFields,
  DecodedUlpdu,
  RdmapFields,
  ReadRequestFields,
  TerminateFields,
  UntaggedFields,
} from './types.ts';

/**
 * Version numbers a stream must carry: both 1, or both 0 after a start-up with revision 0 (RFC 5044 appendix
 * C).
 */
export interface ExpectedVersions {
  /** DDP version. */
  readonly ddp: number;
  /** RDMAP version. */
  readonly rdmap: number;
}

const VERSION_ONE: ExpectedVersions = { ddp: 1, rdmap: 1 };
const ALL_ONES = 0xffff_ffff_ffff_ffffn;
/** Two reserved bytes of the Terminate header control, the three flags cut out. */
const TERMINATE_RESERVED = 0x1fff;

/** Full name of an opcode. */
export function opcodeName(opcode: number): string {
  return OPCODE_TABLE[opcode]?.name ?? `Opcode 0x${opcode.toString(16)}`;
}

/**
 * Decode `bytes[start..start+length)`, one ULPDU without markers, of which the first `captured` bytes are
 * there.
 */
export function decodeUlpdu(
  bytes: Uint8Array,
  start: number,
  length: number,
  expected: ExpectedVersions = VERSION_ONE,
  captured: number = length,
): DecodedUlpdu {
  const problems: Problem[] = [];
  const ddp = decodeDdp(bytes, start, length);
  if (ddp === undefined) {
    const id: ProblemId = length < TAGGED_HEADER_OCTETS ? 'MPA-090' : 'DDP-020';
    problems.push(problem(id, `ULPDU of ${length} bytes is shorter than its DDP header`));
    return { opcode: 'Malformed', payloadLength: 0, problems };
  }
  const rdmap = decodeRdmapControl(bytes[start + RSVDULP_OFFSET]!);
  judgeControl(ddp, rdmap, expected, problems);
  const header = ddp.tagged ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
  const body = { opcode: opcodeName(rdmap.opcode), ddp, rdmap, payloadLength: length - header, problems };
  // Structures after the DDP header are short: each was captured as a whole, or is not decoded.
  if (ddp.tagged || captured < length) return body;
  return { ...body, ...decodeBody(bytes, start + header, length - header, rdmap.opcode, ddp, problems) };
}

function decodeDdp(bytes: Uint8Array, start: number, length: number): DdpFields | undefined {
  if (length < TAGGED_HEADER_OCTETS) return undefined;
  const control = bytes[start]!;
  const common = {
    last: (control & DDP_CONTROL.LAST) !== 0,
    reserved: control & DDP_CONTROL.RESERVED,
    version: control & DDP_CONTROL.VERSION,
  };
  if ((control & DDP_CONTROL.TAGGED) !== 0) {
    return {
      tagged: true,
      ...common,
      stag: getU32(bytes, start + TAGGED_STAG_OFFSET),
      to: getU64(bytes, start + TAGGED_TO_OFFSET),
    };
  }
  if (length < UNTAGGED_HEADER_OCTETS) return undefined;
  return {
    tagged: false,
    ...common,
    invalidateStag: getU32(bytes, start + UNTAGGED_ULP_WORD_OFFSET),
    qn: getU32(bytes, start + UNTAGGED_QN_OFFSET),
    msn: getU32(bytes, start + UNTAGGED_MSN_OFFSET),
    mo: getU32(bytes, start + UNTAGGED_MO_OFFSET),
  };
}

function decodeRdmapControl(octet: number): RdmapFields {
  return {
    version: (octet & RDMAP_CONTROL.VERSION) >>> RDMAP_VERSION_SHIFT,
    reserved: octet & RDMAP_CONTROL.RESERVED,
    opcode: octet & RDMAP_CONTROL.OPCODE,
  };
}

/** Versions, reserved bits, opcode against T bit, queue and Invalidate STag field (RFC 5040 figure 4). */
function judgeControl(
  ddp: DdpFields,
  rdmap: RdmapFields,
  expected: ExpectedVersions,
  problems: Problem[],
): void {
  if (ddp.version !== expected.ddp)
    problems.push(problem('DDP-006', `DDP version ${ddp.version}, not ${expected.ddp}`));
  if (ddp.reserved !== 0)
    problems.push(problem('DDP-004', `reserved DDP control bits ${hex8(ddp.reserved)} are set`));
  if (rdmap.version !== expected.rdmap)
    problems.push(problem('RDMAP-001', `RDMAP version ${rdmap.version}, not ${expected.rdmap}`));
  if (rdmap.reserved !== 0)
    problems.push(problem('RDMAP-002', `reserved RDMAP control bits ${hex8(rdmap.reserved)} are set`));
  const row = OPCODE_TABLE[rdmap.opcode];
  if (row === undefined) {
    problems.push(problem('RDMAP-005', `opcode 0x${rdmap.opcode.toString(16)} is not assigned`));
    if (!ddp.tagged && ddp.qn > 3) problems.push(problem('DDP-039', `queue number ${ddp.qn} does not exist`));
    return;
  }
  if (row.tagged !== ddp.tagged) {
    problems.push(problem('RDMAP-006', `${row.name} in ${ddp.tagged ? 'a tagged' : 'an untagged'} segment`));
    return;
  }
  if (ddp.tagged) return;
  if (ddp.qn !== row.qn) {
    problems.push(problem(queueRule(rdmap.opcode), `${row.name} on queue ${ddp.qn}, not ${row.qn}`));
  }
  const invalidates = rdmap.opcode === OPCODE.SEND_INVALIDATE || rdmap.opcode === OPCODE.SEND_SE_INVALIDATE;
  if (!invalidates && ddp.invalidateStag !== 0) {
    const message = `Invalidate STag field of ${row.name} is ${hex32(ddp.invalidateStag)}, not 0`;
    problems.push(problem(row.extension ? 'EXT-003' : 'RDMAP-010', message));
  }
}

function queueRule(opcode: number): ProblemId {
  if (opcode === OPCODE.ATOMIC_REQUEST) return 'EXT-021';
  if (opcode === OPCODE.ATOMIC_RESPONSE) return 'EXT-022';
  return opcode >= OPCODE.IMMEDIATE ? 'EXT-008' : 'RDMAP-008';
}

type Body = Pick<
  DecodedUlpdu,
  'readRequest' | 'terminate' | 'immediate' | 'atomicRequest' | 'atomicResponse'
>;

function decodeBody(
  bytes: Uint8Array,
  at: number,
  length: number,
  opcode: number,
  ddp: UntaggedFields,
  problems: Problem[],
): Body {
  switch (opcode) {
    case OPCODE.READ_REQUEST:
      judgeFixed(ddp, length, READ_REQUEST_OCTETS, 'RDMAP-015', 'Read Request', problems);
      return length < READ_REQUEST_OCTETS ? {} : { readRequest: decodeReadRequest(bytes, at) };
    case OPCODE.TERMINATE:
      return decodeTerminate(bytes, at, length, ddp, problems);
    case OPCODE.IMMEDIATE:
    case OPCODE.IMMEDIATE_SE:
      judgeFixed(ddp, length, IMMEDIATE_OCTETS, 'EXT-009', 'Immediate Data', problems);
      return length < IMMEDIATE_OCTETS ? {} : { immediate: getU64(bytes, at) };
    case OPCODE.ATOMIC_REQUEST:
      judgeFixed(ddp, length, ATOMIC_REQUEST_OCTETS, 'EXT-021', 'Atomic Request', problems);
      return length < ATOMIC_REQUEST_OCTETS
        ? {}
        : { atomicRequest: decodeAtomicRequest(bytes, at, problems) };
    case OPCODE.ATOMIC_RESPONSE:
      judgeFixed(ddp, length, ATOMIC_RESPONSE_OCTETS, 'EXT-022', 'Atomic Response', problems);
      return length < ATOMIC_RESPONSE_OCTETS
        ? {}
        : {
            atomicResponse: {
              requestId: getU32(bytes, at + ATOMIC_RESPONSE.ID),
              original: getU64(bytes, at + ATOMIC_RESPONSE.ORIGINAL),
            },
          };
    default:
      return {};
  }
}

/** Messages that are one segment of one size: length, L and MO. */
function judgeFixed(
  ddp: UntaggedFields,
  length: number,
  octets: number,
  id: ProblemId,
  name: string,
  problems: Problem[],
): void {
  if (length !== octets)
    problems.push(problem(id, `${name} of ${length} bytes after the DDP header, not ${octets}`));
  if (!ddp.last) problems.push(problem(id, `${name} without L: it is always one segment`));
  if (ddp.mo !== 0) problems.push(problem(id, `${name} at MO ${ddp.mo}, not 0`));
}

function decodeReadRequest(bytes: Uint8Array, at: number): ReadRequestFields {
  return {
    sinkStag: getU32(bytes, at + READ_REQUEST.SINK_STAG),
    sinkTo: getU64(bytes, at + READ_REQUEST.SINK_TO),
    size: getU32(bytes, at + READ_REQUEST.SIZE),
    sourceStag: getU32(bytes, at + READ_REQUEST.SOURCE_STAG),
    sourceTo: getU64(bytes, at + READ_REQUEST.SOURCE_TO),
  };
}

function decodeAtomicRequest(bytes: Uint8Array, at: number, problems: Problem[]): AtomicRequestFields {
  const word = getU32(bytes, at + ATOMIC_REQUEST.OPCODE);
  const aopcode = word & ATOMIC_OPCODE_MASK;
  const known =
    aopcode === ATOMIC_OPCODE.FETCH_ADD
      ? 'FetchAdd'
      : aopcode === ATOMIC_OPCODE.CMP_SWAP
        ? 'CmpSwap'
        : undefined;
  const fields: AtomicRequestFields = {
    reserved: word >>> 4,
    aopcode,
    aopcodeName: known ?? `AOpCode ${aopcode}`,
    requestId: getU32(bytes, at + ATOMIC_REQUEST.ID),
    stag: getU32(bytes, at + ATOMIC_REQUEST.STAG),
    to: getU64(bytes, at + ATOMIC_REQUEST.TO),
    data: getU64(bytes, at + ATOMIC_REQUEST.DATA),
    mask: getU64(bytes, at + ATOMIC_REQUEST.MASK),
    compare: getU64(bytes, at + ATOMIC_REQUEST.COMPARE),
    compareMask: getU64(bytes, at + ATOMIC_REQUEST.COMPARE_MASK),
  };
  if (fields.reserved !== 0)
    problems.push(
      problem('EXT-023', `reserved bits of the Atomic Request are 0x${fields.reserved.toString(16)}`),
    );
  if (known === undefined) problems.push(problem('EXT-034', `AOpCode ${aopcode} is not assigned`));
  if (aopcode === ATOMIC_OPCODE.FETCH_ADD && (fields.compare !== 0n || fields.compareMask !== ALL_ONES)) {
    problems.push(
      problem('EXT-024', 'FetchAdd whose Compare Data is not 0 or whose Compare Mask is not all ones'),
    );
  }
  // EXT-032 speaks of the buffer address, which a zero-based TO only implies; a region begins aligned with
  // every known peer.
  if ((fields.to & 7n) !== 0n)
    problems.push(problem('EXT-032', `Remote TO 0x${fields.to.toString(16)} is not 64-bit aligned`));
  return fields;
}

function decodeTerminate(
  bytes: Uint8Array,
  at: number,
  length: number,
  ddp: UntaggedFields,
  problems: Problem[],
): Body {
  if (ddp.msn !== FIRST_MSN || ddp.mo !== 0 || !ddp.last) {
    problems.push(
      problem(
        'RDMAP-076',
        `Terminate with MSN ${ddp.msn}, MO ${ddp.mo}, L ${ddp.last ? 1 : 0}: must be 1, 0, 1`,
      ),
    );
  }
  if (length < TERMINATE_FIXED_OCTETS) {
    problems.push(problem('RDMAP-081', `Terminate of ${length} bytes names no error`));
    return {};
  }
  const mirrored = isMirrored(bytes, at, length);
  if (mirrored)
    problems.push(
      problem(
        'RDMAP-082',
        'layer, type and M, D, R are mirrored, as Linux siw sends them; shown as they were meant',
      ),
    );
  const control = bytes[at + TERMINATE_CONTROL_OFFSET]!;
  const flags =
    ((mirrored ? mirrorControl(control) : control) << 8) | bytes[at + TERMINATE_CONTROL_OFFSET + 1]!;
  const packed = ((mirrored ? swapNibbles(bytes[at]!) : bytes[at]!) << 8) | bytes[at + 1]!;
  const info = parseTerminate(bytes, at, length);
  const head = {
    layer: packed >>> 12,
    type: (packed >>> 8) & 0xf,
    code: packed & 0xff,
    description: describeTerminateCode(packed),
    m: (flags & (TERMINATE_CONTROL.SEGMENT_LENGTH << 8)) !== 0,
    d: (flags & (TERMINATE_CONTROL.DDP_HEADER << 8)) !== 0,
    r: (flags & (TERMINATE_CONTROL.RDMAP_HEADER << 8)) !== 0,
    reserved: flags & TERMINATE_RESERVED,
  };
  const terminate: TerminateFields =
    info === null
      ? head
      : {
          ...head,
          ...(info.segmentLength === undefined ? {} : { segmentLength: info.segmentLength }),
          ...decodeTerminated(info.ddpHeader),
          ...(info.rdmapHeader === undefined ? {} : { readRequest: decodeReadRequest(info.rdmapHeader, 0) }),
        };
  judgeTerminate(terminate, info === null, problems);
  return { terminate };
}

function decodeTerminated(header: Uint8Array | undefined): Pick<TerminateFields, 'ddp' | 'rdmap'> {
  const ddp = header === undefined ? undefined : decodeDdp(header, 0, header.length);
  return ddp === undefined ? {} : { ddp, rdmap: decodeRdmapControl(header![RSVDULP_OFFSET]!) };
}

function judgeTerminate(fields: TerminateFields, short: boolean, problems: Problem[]): void {
  if (fields.reserved !== 0)
    problems.push(
      problem('RDMAP-082', `reserved bits of the Terminate are 0x${fields.reserved.toString(16)}`),
    );
  if (short || (fields.d && fields.ddp === undefined)) {
    problems.push(
      problem('RDMAP-084', 'the Terminate ends before the headers that its M and D bits announce'),
    );
  }
  if (fields.r && fields.readRequest === undefined) {
    problems.push(problem('RDMAP-082', 'R is set, but no whole Read Request header follows'));
  }
  const headerless = fields.layer === 2 || (fields.layer === 0 && fields.type === 0);
  if (headerless && (fields.m || fields.d || fields.r)) {
    problems.push(problem('RDMAP-085', `a Terminate for ${fields.description} includes headers`));
  }
}

/** A big-endian u64. */
function getU64(bytes: Uint8Array, at: number): bigint {
  return (BigInt(getU32(bytes, at)) << 32n) | BigInt(getU32(bytes, at + 4));
}
