// The naive reassembly: joins decoded segments into messages and checks what holds across segments: MSNs
// begin at 1 on every queue, MO and TO advance by the payload, RsvdULP and STag stay the same, messages of
// one kind do not interleave, nothing follows a Terminate (RFC 5041 4.3, 5.2, 5.3; RFC 5040 5.4). Judges a
// lawful sender; a receiver may be laxer.

import type { NaiveFpdu, NaiveSegment } from './types.ts';

export interface NaiveMessage {
  readonly opcode: number;
  /** Header fields and structures of the first segment. */
  readonly first: NaiveSegment;
  readonly payload: Uint8Array;
  readonly segments: number;
}

interface NaiveMessages {
  readonly messages: readonly NaiveMessage[];
  readonly problems: readonly string[];
}

interface Open {
  first: NaiveSegment;
  payload: number[];
  segments: number;
}

/**
 * Join the segments of one whole direction. `firstMsn` gives the expected first MSN of every queue, 1 by
 * default.
 */
export function reassemble(fpdus: readonly NaiveFpdu[], firstMsn = 1): NaiveMessages {
  const messages: NaiveMessage[] = [];
  const problems: string[] = [];
  const nextMsn = new Map<number, number>();
  const open: Record<'tagged' | 'untagged', Open | null> = { tagged: null, untagged: null };
  let terminated = false;
  for (const fpdu of fpdus) {
    const segment = fpdu.segment;
    if (segment === null) {
      problems.push(`no segment at ${fpdu.offset}`);
      continue;
    }
    if (terminated) problems.push(`an FPDU at ${fpdu.offset} follows the Terminate`);
    if (segment.opcode === 7) terminated = true;
    const slot = segment.tagged ? 'tagged' : 'untagged';
    const current = open[slot] ?? begin(segment, nextMsn, firstMsn, problems);
    if (open[slot] !== null) problems.push(...continuationProblems(current, segment, fpdu.offset));
    current.payload.push(...segment.payload);
    current.segments++;
    open[slot] = segment.last ? null : current;
    if (!segment.last) continue;
    const { first, payload, segments } = current;
    messages.push({ opcode: first.opcode, first, payload: Uint8Array.from(payload), segments });
  }
  if (open.tagged !== null || open.untagged !== null) problems.push('the stream ends inside a message');
  return { messages, problems };
}

function begin(
  segment: NaiveSegment,
  nextMsn: Map<number, number>,
  firstMsn: number,
  problems: string[],
): Open {
  if (!segment.tagged) {
    const wanted = nextMsn.get(segment.qn) ?? firstMsn;
    if (segment.msn !== wanted) problems.push(`MSN ${segment.msn} on queue ${segment.qn}, not ${wanted}`);
    if (segment.mo !== 0) problems.push(`message on queue ${segment.qn} begins at MO ${segment.mo}`);
    nextMsn.set(segment.qn, (segment.msn + 1) % 0x1_0000_0000);
  }
  return { first: segment, payload: [], segments: 0 };
}

function continuationProblems(current: Open, segment: NaiveSegment, offset: number): string[] {
  const { first } = current;
  const problems: string[] = [];
  if (first.opcode !== segment.opcode) problems.push(`opcode changes at ${offset}`);
  if (first.tagged && segment.tagged) {
    if (first.stag !== segment.stag) problems.push(`STag changes at ${offset}`);
    if (segment.to !== BigInt.asUintN(64, first.to + BigInt(current.payload.length)))
      problems.push(`TO jumps at ${offset}`);
  }
  if (!first.tagged && !segment.tagged) {
    if (first.qn !== segment.qn || first.msn !== segment.msn)
      problems.push(`queue or MSN changes at ${offset}`);
    if (first.invalidateStag !== segment.invalidateStag)
      problems.push(`Invalidate STag changes at ${offset}`);
    if (segment.mo !== current.payload.length)
      problems.push(`MO ${segment.mo} at ${offset}, not ${current.payload.length}`);
  }
  return problems;
}
