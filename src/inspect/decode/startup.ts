/**
 * MPA start-up frames in a capture: RFC 5044 7.1.1, RFC 6581 6 and 9. Decodes a frame leniently and lists
 * what its sender should not have done; rules between Request and Reply are judged when both are known.
 */
import {
  DEPTH_NOT_NEGOTIATED,
  ENHANCED_OCTETS,
  MAX_PRIVATE_DATA,
  REPLY_KEY,
  REQUEST_KEY,
  STARTUP_FLAG,
  STARTUP_FLAGS_OFFSET,
  STARTUP_HEADER_OCTETS,
  STARTUP_PD_LENGTH_OFFSET,
  STARTUP_REVISION_OFFSET,
  decodeEnhanced,
  startupPdLength,
  type EnhancedData,
  type StartupFrame,
} from '../../mpa/wire.ts';
import { hex8, problem, type Problem } from './problems.ts';
import type { DecodedStartup, Direction } from './types.ts';

export const KEY_OCTETS: number = REQUEST_KEY.length;
/** A key with this many wrong bytes is still taken for a damaged start-up frame, not for something else. */
const MAX_WRONG_KEY_OCTETS = 3;

/**
 * The start-up frame that the bytes at `at` begin, or could begin if there are fewer than 16; `exact` is
 * false for a damaged key.
 */
export function matchKey(
  bytes: Uint8Array,
  at: number,
  available: number,
): { kind: 'request' | 'reply'; exact: boolean } | undefined {
  const octets = Math.min(available, KEY_OCTETS);
  const request = differences(bytes, at, octets, REQUEST_KEY);
  const reply = differences(bytes, at, octets, REPLY_KEY);
  const least = Math.min(request, reply);
  const allowed = octets === KEY_OCTETS ? MAX_WRONG_KEY_OCTETS : 0;
  if (least > allowed) return undefined;
  return { kind: request <= reply ? 'request' : 'reply', exact: least === 0 };
}

function differences(bytes: Uint8Array, at: number, octets: number, key: Uint8Array): number {
  let count = 0;
  for (let i = 0; i < octets; i++) if (bytes[at + i] !== key[i]) count++;
  return count;
}

/**
 * Bytes of the start-up frame whose header is at `at`. A length above the limit is not believed: the header
 * alone is taken then.
 */
export function startupOctets(bytes: Uint8Array, at: number): number {
  const pdLength = startupPdLength(bytes, at);
  return STARTUP_HEADER_OCTETS + (pdLength > MAX_PRIVATE_DATA ? 0 : pdLength);
}

/** Decode the start-up frame `raw`, cut short where the stream ended. */
export function decodeStartup(
  raw: Uint8Array,
  kind: 'request' | 'reply',
  direction: Direction,
  time: number,
): DecodedStartup {
  const problems: Problem[] = [];
  const flags = raw[STARTUP_FLAGS_OFFSET] ?? 0;
  const revision = raw[STARTUP_REVISION_OFFSET] ?? 0;
  const pdLength = raw.length > STARTUP_PD_LENGTH_OFFSET + 1 ? startupPdLength(raw, 0) : 0;
  const data = raw.subarray(STARTUP_HEADER_OCTETS);
  const key = kind === 'request' ? REQUEST_KEY : REPLY_KEY;
  if (!key.every((octet, i) => raw[i] === octet)) {
    problems.push(
      problem(
        kind === 'request' ? 'MPA-002' : 'MPA-003',
        `the key is damaged (byte ${key.findIndex((o, i) => raw[i] !== o)})`,
      ),
    );
  }
  const isEnhanced = (flags & STARTUP_FLAG.ENHANCED) !== 0;
  const enhanced = isEnhanced && data.length >= ENHANCED_OCTETS ? decodeEnhanced(data, 0) : null;
  const frame: StartupFrame = {
    kind,
    markers: (flags & STARTUP_FLAG.MARKERS) !== 0,
    crc: (flags & STARTUP_FLAG.CRC) !== 0,
    reject: (flags & STARTUP_FLAG.REJECT) !== 0,
    revision,
    enhanced,
    privateData: enhanced === null ? data : data.subarray(ENHANCED_OCTETS),
  };
  judgeFrame(frame, flags, pdLength, raw.length, problems);
  if (enhanced !== null) judgeEnhanced(enhanced, kind === 'reply' && !frame.reject, problems);
  return {
    kind: 'startup',
    opcode: kind === 'request' ? 'MPA Request' : 'MPA Reply',
    direction,
    time,
    octets: raw.length,
    frame,
    flags,
    pdLength,
    raw,
    problems,
  };
}

function judgeFrame(
  frame: StartupFrame,
  flags: number,
  pdLength: number,
  octets: number,
  problems: Problem[],
): void {
  const isEnhanced = (flags & STARTUP_FLAG.ENHANCED) !== 0;
  const reserved = flags & 0x0f;
  if (reserved !== 0) problems.push(problem('MPA-010', `reserved flag bits ${hex8(reserved)} are set`));
  if (frame.kind === 'request' && frame.reject) problems.push(problem('MPA-012', 'R is set in a Request'));
  if (frame.revision > 2) problems.push(problem('MPA-014', `revision ${frame.revision} is not defined`));
  if (isEnhanced && frame.revision < 2)
    problems.push(problem('ENH-001', `S is set with revision ${frame.revision}`));
  if (isEnhanced && pdLength < ENHANCED_OCTETS)
    problems.push(problem('ENH-005', `S is set with PD_Length ${pdLength}`));
  if (pdLength > MAX_PRIVATE_DATA)
    problems.push(problem('MPA-018', `PD_Length ${pdLength} is above ${MAX_PRIVATE_DATA}`));
  else if (octets < STARTUP_HEADER_OCTETS + pdLength) {
    problems.push(
      problem('MPA-021', `the stream ends after ${octets} of ${STARTUP_HEADER_OCTETS + pdLength} bytes`),
    );
  }
}

/** A rejecting Reply need name no RTR kind: none will be sent. */
function judgeEnhanced(data: EnhancedData, accepts: boolean, problems: Problem[]): void {
  const anyKind = data.rtrSend || data.rtrWrite || data.rtrRead;
  if (!data.peerToPeer && anyKind) problems.push(problem('ENH-030', 'A is 0, but B, C or D is set'));
  if (accepts && data.peerToPeer && !anyKind) problems.push(problem('ENH-033', 'A is set, but no RTR kind'));
}

/** Rules between a Request and its Reply (RFC 6581 9 and 10); the problems belong to the Reply. */
export function judgeReply(request: StartupFrame, reply: StartupFrame): Problem[] {
  const problems: Problem[] = [];
  if (reply.enhanced !== null && request.enhanced === null)
    problems.push(problem('ENH-010', 'S is set in the Reply to a Request without S'));
  if (request.enhanced === null || reply.enhanced === null) return problems;
  const asked = request.enhanced;
  const given = reply.enhanced;
  // A and the bound on ORD are those of an accepted connection: a rejecting Reply names the ORD that would
  // have been needed (ENH-019).
  if (!reply.reject && asked.peerToPeer !== given.peerToPeer)
    problems.push(problem('ENH-032', 'the Reply does not repeat A'));
  if (asked.ord === DEPTH_NOT_NEGOTIATED && given.ird !== DEPTH_NOT_NEGOTIATED) {
    problems.push(problem('ENH-024', `IRD ${given.ird} answers an ORD that is not negotiated`));
  }
  if (asked.ird === DEPTH_NOT_NEGOTIATED) {
    if (given.ord !== DEPTH_NOT_NEGOTIATED)
      problems.push(problem('ENH-025', `ORD ${given.ord} answers an IRD that is not negotiated`));
  } else if (!reply.reject && given.ord !== DEPTH_NOT_NEGOTIATED && given.ord > asked.ird) {
    problems.push(problem('ENH-016', `ORD ${given.ord} is above the initiator's IRD ${asked.ird}`));
  }
  return problems;
}
