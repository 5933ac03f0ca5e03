// Requirements EXT-001..EXT-052: RDMAP extensions (Immediate Data, Atomics), RFC 7306.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const ext: readonly Requirement[] = [
  ...topic('General', [
    rule('EXT-001', 'MUST', 'RFC 7306 1.1, RFC 5040 7.2', 'wire', 'rx', {
      text: 'A peer without the extension reports the opcodes as unexpected.',
      observation: 'Opcodes 8, 9, A, B.',
      expected: 'Term 0/2/06',
      derived: true,
    }),
    rule('EXT-002', 'SHOULD', 'RFC 7306 1.1', 'local', 'ULP', {
      text: 'Use of the extensions is negotiated by the application.',
      observation: '-',
    }),
    rule('EXT-003', 'MUST', 'RFC 7306 4.1', 'wire', 'tx', {
      text: 'RV 01, Invalidate STag field 0.',
      observation: 'Capture.',
    }),
    rule('EXT-004', 'MUST', 'RFC 7306 4.1', 'wire', 'rx', {
      text: 'Invalidate STag field is ignored.',
      observation: 'Non-zero field: accepted, STag stays valid.',
      expected: 'none',
    }),
    rule('EXT-005', 'MUST', 'RFC 7306 8.2', 'wire', 'rx', {
      text: 'DDP fields, opcode and RDMAP version are validated.',
      observation: 'Faults as for RFC 5040.',
      expected: 'Term 1/2/xx, 0/2/05, 0/2/06',
    }),
    rule('EXT-006', 'MUST', 'RFC 7306 8.1 (1)', 'api', 'RDMAP', {
      text: 'For errors while creating such a message a Terminate without headers is sent.',
      observation: 'Forced local error.',
      expected: 'Term 0/0/xx',
    }),
    rule('EXT-007', 'MUST', 'RFC 7306 8.1 (2)', 'wire', 'RDMAP', {
      text: 'For errors on incoming ones a Terminate with DDP header and without RDMAP header is sent.',
      observation: 'Misaligned atomic: D=1, R=0 (M not judged).',
      expected: 'Term',
    }),
  ]),
  ...topic('Immediate Data', [
    rule('EXT-008', 'MUST', 'RFC 7306 6.3, 4.1', 'wire', 'src', {
      text: 'Immediate Data is untagged, QN 0, opcode 8 or 9.',
      observation: 'Capture.',
    }),
    rule('EXT-009', 'MUST', 'RFC 7306 6.3', 'wire', 'src', {
      text: 'Exactly 8 octets are transmitted, one segment.',
      observation: 'ULPDU_Length 26.',
    }),
    rule('EXT-010', 'MUST', 'RFC 7306 6.3', 'wire', 'snk', {
      text: 'The length is checked to be exactly 8.',
      observation: '7 and 9 octets.',
      expected: 'Term 0/2/07 or 1/2/05',
    }),
    rule('EXT-011', 'MUST', 'RFC 7306 6.3', 'wire', 'snk', {
      text: 'One untagged buffer (receive work request) is used.',
      observation: 'No buffer posted: error.',
      expected: 'Term 1/2/02',
    }),
    rule('EXT-012', 'MUST', 'RFC 7306 6.1', 'api', 'snk', {
      text: 'The 8 octets are delivered to the ULP.',
      observation: 'Completion shows them.',
    }),
    rule('EXT-013', 'MUST', 'RFC 7306 6.3, 6.4', 'wire', 'snk', {
      text: 'Delivery is in order sent, together with Sends (one MSN sequence).',
      observation: 'Send, Imm, Send: MSN 1,2,3, completions in order.',
    }),
    rule('EXT-014', 'MUST', 'RFC 7306 6.3', 'wire', 'src', {
      text: 'They are issued in submission order.',
      observation: 'Capture.',
    }),
    rule('EXT-015', 'MUST', 'RFC 7306 6.4, 7', 'api', 'snk', {
      text: 'Earlier Writes of the stream are placed when it is delivered.',
      observation: 'Write then Imm: data present.',
    }),
    rule('EXT-016', 'MAY', 'RFC 7306 6.1', 'api', 'snk', {
      text: 'The SE form causes an event if configured.',
      observation: 'Solicited notification.',
    }),
    rule('EXT-017', 'MUST', 'RFC 7306 6.1', 'wire', 'snk', {
      text: 'On error the sink reports to its ULP and sends a Terminate.',
      observation: '-',
      expected: 'Term',
    }),
    rule('EXT-018', 'MAY', 'RFC 7306 7', 'local', 'snk', {
      text: 'It may be placed before an earlier Read or Atomic has been answered.',
      observation: '-',
    }),
    rule('EXT-019', 'MUST', 'RFC 7306 7', 'api', 'src', {
      text: 'A later Read or Atomic is not answered before the Immediate Data has completed at the peer.',
      observation: 'Imm, Read: receive completion no later than the response.',
    }),
  ]),
  ...topic('Atomics: format and execution', [
    rule('EXT-020', 'MUST', 'RFC 7306 5, 1.1', 'wire', 'RDMAP', {
      text: 'If any atomic is supported, FetchAdd and CmpSwap are both supported.',
      observation: 'Try both.',
    }),
    rule('EXT-021', 'MUST', 'RFC 7306 5.2, 5.2.1', 'wire', 'requester', {
      text: 'Atomic Request: untagged, QN 1, 52-octet header, one segment.',
      observation: 'Capture: ULPDU_Length 70.',
    }),
    rule('EXT-022', 'MUST', 'RFC 7306 5, 5.2.2', 'wire', 'responder', {
      text: 'Atomic Response: untagged, QN 3, 12-octet header, own MSN sequence from 1.',
      observation: 'Capture: ULPDU_Length 30.',
    }),
    rule('EXT-023', 'MUST', 'RFC 7306 5.2.1', 'wire', 'requester', {
      text: 'Reserved 28 bits are 0 (ignored by the receiver).',
      observation: 'Capture.',
    }),
    rule('EXT-024', 'MUST', 'RFC 7306 5.2.1', 'wire', 'requester', {
      text: 'FetchAdd: Compare Data 0, Compare Mask all ones when sent.',
      observation: 'Capture.',
    }),
    rule('EXT-025', 'MUST', 'RFC 7306 5.2.1', 'wire', 'responder', {
      text: 'FetchAdd: Compare Data and Mask are ignored.',
      observation: 'Other values: same result.',
      expected: 'none',
    }),
    rule('EXT-026', 'MUST', 'RFC 7306 5.1.1', 'wire', 'responder', {
      text: 'FetchAdd with mask 0 adds modulo 2^64 and returns the original.',
      observation: '0xFFFFFFFFFFFFFFFF + 1 = 0.',
    }),
    rule('EXT-027', 'MUST', 'RFC 7306 5.1.1', 'wire', 'responder', {
      text: 'FetchAdd drops carries out of positions set in Add Mask.',
      observation: 'Mask 0x8000000080000000, original 0x00000000FFFFFFFF, add 1: result 0.',
    }),
    rule('EXT-028', 'MUST', 'RFC 7306 5.1.2', 'wire', 'responder', {
      text: 'CmpSwap compares under Compare Mask and swaps under Swap Mask; always returns the original.',
      observation: 'Match and mismatch, partial masks.',
    }),
    rule('EXT-029', 'MUST', 'RFC 7306 5.1.2', 'wire', 'responder', {
      text: 'After a mismatch the memory is unchanged.',
      observation: 'Read back.',
    }),
    rule('EXT-030', 'MUST', 'RFC 7306 5.2.2', 'wire', 'responder', {
      text: 'The response repeats the Request Identifier.',
      observation: 'Identifier 0xDEADBEEF comes back.',
    }),
    rule('EXT-031', 'MUST', 'RFC 7306 5.1.1, 5.1.2', 'wire', 'responder', {
      text: 'Values travel big-endian; the operation uses the byte order of the target memory.',
      observation: 'Read memory with an RDMA Read before and after.',
    }),
    rule('EXT-032', 'MUST', 'RFC 7306 5.1, 5.2.1', 'api', 'requester', {
      text: 'The target is a 64-bit aligned buffer address.',
      observation: 'API refuses or remote error.',
    }),
    rule('EXT-033', 'MUST', 'RFC 7306 5.1, 8.2', 'wire', 'responder', {
      text: 'A misaligned target is not modified, is surfaced as error, and a Terminate is sent.',
      observation: 'TO with low 3 bits 1, 4, 7.',
      expected: 'Term 0/2/07',
    }),
    rule('EXT-034', 'MUST', 'RFC 7306 5.2.1 (4)', 'wire', 'responder', {
      text: 'An unsupported AOpCode surfaces an error.',
      observation: 'AOpCode 1, 3, 15.',
      expected: 'Term 0/2/06',
    }),
    rule('EXT-035', 'MUST', 'RFC 7306 5, 9', 'wire', 'responder', {
      text:
        'STag validity, association, access (remote read and write) and bounds are checked as for reads ' +
        'and writes.',
      observation: 'Faulty STag, PD, bounds.',
      expected: 'Term 0/1/00, 0/1/03, 0/1/02, 0/1/01',
      derived: true,
    }),
    rule('EXT-036', 'MUST', 'RFC 7306 5, 5.3, 5.4 (2)', 'wire', 'responder', {
      text: 'Atomicity holds among all atomics of all streams of the same device.',
      observation: 'Two connections add 1 100000 times each: sum exact.',
    }),
    rule('EXT-037', 'MAY', 'RFC 7306 5, 5.4 (2)', 'local', 'responder', {
      text: 'Atomicity against other accesses (local CPU, Read, Write) is optional.',
      observation: '-',
    }),
  ]),
  ...topic('Atomics: ordering and resources', [
    rule('EXT-038', 'MUST', 'RFC 7306 5.2.1 (6)', 'wire', 'requester', {
      text: 'Requests are handed to DDP in submission order.',
      observation: 'MSN order.',
    }),
    rule('EXT-039', 'MUST', 'RFC 7306 5.2.1 (3,7)', 'wire', 'responder', {
      text: 'Requests are processed in the order sent and never delivered to the ULP.',
      observation: 'Two adds to one word: originals in order.',
    }),
    rule('EXT-040', 'MUST', 'RFC 7306 5.2.1 (8)', 'wire', 'responder', {
      text: 'Each valid request gets a valid response.',
      observation: 'Capture.',
    }),
    rule('EXT-041', 'MUST', 'RFC 7306 5.2.2 (8), 5.4 (8)', 'wire', 'responder', {
      text: 'Responses are in the order of the requests.',
      observation: 'Identifiers in order.',
    }),
    rule('EXT-042', 'MUST', 'RFC 7306 5.4 (3,5), 7', 'wire', 'responder', {
      text:
        'Processing starts only after DDP delivered the request; the response is not generated before an ' +
        'earlier Send has completed.',
      observation:
        'Write then atomic on that word: sees the Write. Send, atomic: receive completion no later than ' +
        'the response.',
    }),
    rule('EXT-043', 'MUST', 'RFC 7306 7', 'wire', 'responder', {
      text: 'Reads and atomics on one stream are answered in arrival order of the requests.',
      observation: 'Read, Atomic, Read.',
    }),
    rule('EXT-044', 'MUST', 'RFC 7306 5.4 (7)', 'api', 'requester', {
      text: 'An atomic completes only on delivery of its response.',
      observation: 'Delay the response.',
    }),
    rule('EXT-045', 'MUST NOT', 'RFC 7306 5.4 (1)', 'local', 'requester', {
      text: 'The remote buffer does not count as modified before the response.',
      observation: '-',
    }),
    rule('EXT-046', 'MUST', 'RFC 7306 5.2.2 (4)', 'wire', 'responder', {
      text: 'Queue 1 has room for the negotiated atomics in addition to reads.',
      observation: 'Fill ORD with a mixture.',
    }),
    rule('EXT-047', 'MUST', 'RFC 7306 5.2.2 (5)', 'wire', 'requester', {
      text: 'Queue 3 has room for the responses of all outstanding atomics.',
      observation: 'Fill ORD with atomics.',
    }),
    rule('EXT-048', 'MUST', 'RFC 7306 5.2', 'wire', 'requester', {
      text: 'Atomics and reads together do not exceed ORD.',
      observation: 'ORD 2: two requests outstanding.',
      derived: true,
    }),
    rule('EXT-049', 'MUST', 'RFC 7306 5.2.2 (7)', 'wire', 'requester', {
      text: 'An invalid response surfaces an error.',
      observation: 'Response without request, wrong MSN, wrong length.',
      expected: 'No request or MSN: Term 1/2/03 or 1/2/02; length: Term 0/2/07 or 1/2/05',
    }),
    rule('EXT-050', 'MAY', 'RFC 7306 5.4 (4,6)', 'local', 'responder', {
      text: 'Sends and Writes after an atomic may complete before its response.',
      observation: '-',
    }),
    rule('EXT-051', 'MAY', 'RFC 7306 1.1', 'wire', 'ULP', {
      text: 'FetchAdd of 0 may be used to find out whether atomics are supported.',
      observation: 'Probe.',
      expected: 'Term 0/2/06 or another 0/2/xx if not',
    }),
    rule('EXT-052', 'SHOULD NOT', 'RFC 7306 5', 'local', 'ULP', {
      text: 'Words used for atomics should not be targets of other operations.',
      observation: '-',
    }),
  ]),
];
