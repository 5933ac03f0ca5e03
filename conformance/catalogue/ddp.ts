// Requirements DDP-001..DDP-071: Direct data placement, RFC 5041.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const ddp: readonly Requirement[] = [
  ...topic('Header fields', [
    rule('DDP-001', 'MUST', 'RFC 5041 4.1', 'wire', 'tx', {
      text: 'T is 1 for tagged and 0 for untagged messages.',
      observation: 'Capture against the opcode table.',
    }),
    rule('DDP-002', 'MUST', 'RFC 5041 4.1', 'wire', 'tx', {
      text: 'L is 1 on the last segment of each message and on no other.',
      observation: 'Multi-segment message capture.',
    }),
    rule('DDP-003', 'MUST', 'RFC 5041 4.1', 'wire', 'tx', {
      text:
        'The L=1 segment is handed to the LLP after all other segments of the message; untagged, it has ' +
        'the highest MO.',
      observation: 'Capture.',
    }),
    rule('DDP-004', 'MUST', 'RFC 5041 4.1', 'wire', 'tx', {
      text: 'Reserved control bits (0x3C) are 0.',
      observation: 'Capture.',
    }),
    rule('DDP-005', 'MUST', 'RFC 5041 4.1', 'wire', 'rx', {
      text: 'Reserved control bits are not checked.',
      observation: 'Send with 0x3C set: accepted.',
      expected: 'none',
    }),
    rule('DDP-006', 'MUST', 'RFC 5041 4.1', 'wire', 'tx', {
      text: 'DV is 1 in every segment.',
      observation: 'Capture.',
    }),
    rule('DDP-007', 'MUST', 'RFC 5041 4.1, 7.2', 'wire', 'tx, rx', {
      text: 'DV is the same in all segments of a stream; another version is an error.',
      observation: 'Write with DV 0, 2, 3.',
      expected: 'Term 1/1/04',
    }),
    rule('DDP-008', 'MUST', 'RFC 5041 4.1, 7.2', 'wire', 'rx', {
      text: 'Wrong DV on an untagged segment is reported with the untagged code.',
      observation: 'Send with DV 0, 2, 3.',
      expected: 'Term 1/2/06',
    }),
    rule('DDP-009', 'MUST', 'RFC 5041 4.2, 4.3', 'wire', 'tx', {
      text: 'RsvdULP (1 octet tagged, 5 octets untagged) is identical in all segments of a message.',
      observation: 'Multi-segment Send with Invalidate: STag in every segment.',
    }),
    rule('DDP-010', 'MUST', 'RFC 5041 4.2, 4.3, 5.4', 'wire', 'rx', {
      text: 'RsvdULP of a delivered message is given to the layer above, unmodified.',
      observation: 'Opcode-dependent behaviour works.',
    }),
    rule('DDP-011', 'MAY', 'RFC 5041 4.3', 'wire', 'rx', {
      text: 'RsvdULP need not be compared between segments; the value of any segment may be used.',
      observation: 'Segments with differing Invalidate STag: no required reaction.',
      expected: 'none',
    }),
    rule('DDP-012', 'MUST', 'RFC 5041 4.2', 'wire', 'tx', {
      text: 'STag is identical in all segments of a tagged message and is the value the ULP gave.',
      observation: 'Capture.',
    }),
    rule('DDP-013', 'MUST', 'RFC 5041 4.3', 'wire', 'tx', {
      text: 'QN and MSN are identical in all segments of an untagged message.',
      observation: 'Capture.',
    }),
    rule('DDP-014', 'MUST', 'RFC 5041 4.3', 'wire', 'tx', {
      text: 'MSN starts at 1 on each queue of each stream and direction.',
      observation: 'First Send, first Read Request and Terminate all have MSN 1.',
    }),
    rule('DDP-015', 'MUST', 'RFC 5041 4.3', 'api', 'tx', {
      text: 'MSN grows by 1 modulo 2^32 with each message to that queue and wraps from 0xFFFFFFFF to 0.',
      observation: 'Counter preset (test hook) near the wrap.',
    }),
    rule('DDP-016', 'MUST', 'RFC 5041 4.3', 'wire', 'tx', {
      text: 'MSN sequences of different queues are independent.',
      observation: 'Interleave Sends and Reads: both count 1,2,3.',
    }),
    rule('DDP-017', 'MUST', 'RFC 5041 4.3, 5.2', 'wire', 'tx', {
      text:
        'MO of the first octet of a message is 0 and MO of a segment is the offset of its first payload ' +
        'octet.',
      observation: 'Multi-segment Send.',
    }),
    rule('DDP-018', 'MUST', 'RFC 5041 5.2', 'wire', 'tx', {
      text: "TO of a segment is the message's TO plus the offset of its first payload octet.",
      observation: 'Multi-segment Write.',
    }),
    rule('DDP-019', 'MAY', 'RFC 5041 4.2', 'wire', 'tx', {
      text: 'A tagged message may start at any TO.',
      observation: 'Write at TO 1, 3, 4097.',
      expected: 'none',
    }),
    rule('DDP-020', 'MUST', 'RFC 5041 4.4', 'wire', 'tx', {
      text: 'Every segment has a complete DDP header.',
      observation: 'Capture.',
    }),
  ]),
  ...topic('Segmentation and ordering', [
    rule('DDP-021', 'MUST', 'RFC 5041 5.2', 'wire', 'tx', {
      text: 'No segment is larger than the MULPDU known when it is made.',
      observation: 'Capture.',
    }),
    rule('DDP-022', 'MUST', 'RFC 5041 5.2', 'api', 'tx', {
      text: 'Messages have fewer than 2^32 octets.',
      observation: 'Ask the API for 2^32: local error.',
      expected: 'local error',
    }),
    rule('DDP-023', 'MUST', 'RFC 5041 5.2', 'wire', 'tx', {
      text: 'All data of the message is sent.',
      observation: 'Data compare.',
    }),
    rule('DDP-024', 'MUST', 'RFC 5041 5.2', 'wire', 'rx', {
      text: 'Payload of all valid segments is placed in the ULP buffer.',
      observation: 'Data compare, sizes 0..3*MULPDU.',
    }),
    rule('DDP-025', 'MUST', 'RFC 5041 5.2', 'wire', 'tx', {
      text: 'A zero-length message is exactly one segment.',
      observation: 'Zero-length Send and Write captures.',
    }),
    rule('DDP-026', 'MUST NOT', 'RFC 5041 5.2', 'wire', 'rx', {
      text: 'STag and TO of a zero-length tagged message are not checked.',
      observation: 'Zero-length Write with STag 0, unknown STag, TO 0xFFFFFFFFFFFFFFFF: accepted.',
      expected: 'none',
    }),
    rule('DDP-027', 'MAY', 'RFC 5041 5.2', 'wire', 'rx', {
      text: 'A receiver need not verify that a whole message has been received.',
      observation: 'Untagged gap (MO skip) may pass at DDP; stricter receivers report 1/2/04.',
      expected: '- or Term 1/2/04',
    }),
    rule('DDP-028', 'MUST', 'RFC 5041 5.3', 'wire', 'tx', {
      text: 'Messages are transmitted in submission order.',
      observation: 'Numbered Sends.',
    }),
    rule('DDP-029', 'SHOULD', 'RFC 5041 5.3', 'wire', 'tx', {
      text: 'Segments of a message go out in increasing MO or TO.',
      observation: 'Capture.',
    }),
    rule('DDP-030', 'MUST', 'RFC 5041 5.3 (SHOULD of the sender)', 'wire', 'rx', {
      text:
        'Segments of one message in another order than increasing offset are placed correctly where the ' +
        'receiver accepts them; otherwise a clean error.',
      observation:
        'Write in two segments sent in reverse TO order, L on the last sent (siw refuses: 1/1/01).',
      expected: 'none or Term',
      derived: true,
    }),
    rule('DDP-031', 'MAY', 'RFC 5041 5.3', 'local', 'rx', {
      text: 'Placement may be out of order and repeated.',
      observation: '-',
    }),
    rule('DDP-032', 'MUST', 'RFC 5041 5.3', 'api', 'rx', {
      text: 'A message is delivered at most once.',
      observation: 'One completion per Send.',
    }),
    rule('DDP-033', 'MUST', 'RFC 5041 5.3', 'api', 'rx', {
      text: 'Messages are delivered in the order sent.',
      observation: 'Numbered Sends complete in order.',
    }),
    rule('DDP-034', 'MUST', 'RFC 5041 4.1, 5.4', 'api', 'rx', {
      text:
        'Delivery happens only if the L=1 segment came, all its segments are placed, and all prior ' +
        'messages are placed and delivered.',
      observation: 'Hold back the L segment: no completion.',
    }),
    rule('DDP-035', 'MUST', 'RFC 5041 5.4', 'api', 'rx', {
      text:
        'The length of an untagged message (MO + payload length of the L=1 segment) is given to the layer ' +
        'above.',
      observation: 'Byte count in the receive completion.',
    }),
    rule('DDP-036', 'MUST', 'RFC 5041 5.3; observed peers', 'wire', 'tx', {
      text:
        'Segments of two tagged messages (Write, Read Response) are not interleaved, nor those of two ' +
        'untagged ones.',
      observation: 'Long Write while a Read Request arrives: capture.',
      expected: 'siw: close without Terminate',
      derived: true,
    }),
    rule('DDP-037', 'MUST', 'RFC 5041 5.3', 'wire', 'rx', {
      text: 'Segments of a tagged message and of an untagged message may alternate on the wire.',
      observation:
        'Write segment 1, Send, Write segment 2 (L): both complete. Transmission in order makes this ' +
        'unusual; ' +
        'siw accepts it.',
      expected: 'none',
      derived: true,
    }),
    rule('DDP-038', 'MAY', 'RFC 5041 5.4', 'local', 'tx', {
      text: 'Completion at the source does not mean that the sink has received the data.',
      observation: '-',
    }),
  ]),
  ...topic('Checks on received segments', [
    rule('DDP-039', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'Non-zero-length untagged: QN must be valid for the stream.',
      observation: 'Send with QN 4, 0xFFFFFFFF.',
      expected: 'Term 1/2/01',
    }),
    rule('DDP-040', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'Non-zero-length untagged: QN and MSN must have a buffer.',
      observation: 'Send without posted receive.',
      expected: 'Term 1/2/02',
    }),
    rule('DDP-041', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'Non-zero-length untagged: MO must lie in the buffer.',
      observation: 'Second segment with MO beyond the buffer (a gap or overlap inside the buffer: DDP-027).',
      expected: 'Term 1/2/04',
    }),
    rule('DDP-042', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'Non-zero-length untagged: MO + length must lie in the buffer.',
      observation: 'Send of 101 octets into 100.',
      expected: 'Term 1/2/05',
    }),
    rule('DDP-043', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text:
        'Non-zero-length untagged: MSN must lie between the MSN of the first and the last available ' +
        'buffer of the queue.',
      observation: 'Send with MSN 0, a repeated MSN, MSN 1000.',
      expected: 'Term 1/2/03',
    }),
    rule('DDP-044', 'SHOULD NOT', 'RFC 5041 7.1 note', 'wire', 'rx', {
      text:
        'Lack of a buffer should not happen repeatedly; an implementation may recover by LLP means or ' +
        'disable reception.',
      observation: 'Post the receive late: either Terminate or delayed delivery.',
      expected: 'Term 1/2/02 or delay',
    }),
    rule('DDP-045', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'Non-zero-length tagged: STag must be valid for this stream.',
      observation: 'Write to unknown STag, to a good index with wrong key octet, to an invalidated STag.',
      expected: 'Term 1/1/00',
    }),
    rule('DDP-046', 'MUST', 'RFC 5041 7.1, 8.2', 'wire', 'rx', {
      text: 'Non-zero-length tagged: STag must be associated with the stream.',
      observation: 'Write to an STag of another PD or bound to another stream.',
      expected: 'Term 1/1/02',
    }),
    rule('DDP-047', 'MUST', 'RFC 5041 7.1 (2)', 'wire', 'rx', {
      text: "Non-zero-length tagged: the STag's buffer must allow placement (remote write).",
      observation: 'Write to a read-only region.',
      expected: 'Term 1/1/02 (1/1/00, 0/1/02 seen)',
    }),
    rule('DDP-048', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'Non-zero-length tagged: TO must be in the registered range.',
      observation: 'Write at base - 1, at base + length.',
      expected: 'Term 1/1/01',
    }),
    rule('DDP-049', 'MUST', 'RFC 5041 7.1, 8.1', 'wire', 'rx', {
      text: 'Non-zero-length tagged: TO + length must be in the registered range (octet granularity).',
      observation: 'Write of n+1 octets to a region of n; last octet only outside.',
      expected: 'Term 1/1/01',
    }),
    rule('DDP-050', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'TO + length as 64-bit sum must not wrap.',
      observation: 'Write at TO 0xFFFFFFFFFFFFFFFC, 8 octets.',
      expected: 'Term 1/1/03 or 1/1/01 (TO alone is out of range too)',
    }),
    rule('DDP-051', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'The checks apply to every segment, not only the first of a message.',
      observation:
        'Two-segment Write whose second segment runs out of bounds, or changes STag to an unknown one.',
      expected: 'Term 1/1/01 or 1/1/00',
    }),
    rule('DDP-052', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'On an error placement of the rest of the segment stops and the error is reported upward.',
      observation: 'Memory beyond the bound is untouched.',
      expected: 'Term',
    }),
    rule('DDP-053', 'SHOULD', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'The report includes error type, DDP header and segment length.',
      observation: 'Terminate with M and D, header octets equal the sent ones, length equals ULPDU_Length.',
      expected: 'Term',
    }),
    rule('DDP-054', 'MUST', 'RFC 5041 7.1', 'wire', 'rx', {
      text: 'All later segments of the stream are silently dropped after an error.',
      observation: 'Bad Write, then good Write to other memory: second not placed.',
    }),
    rule('DDP-055', 'SHOULD', 'RFC 5041 7.1, 6.2.2', 'wire', 'DDP', {
      text: 'After an error the ULP may send one more DDP message (the Terminate).',
      observation: 'Terminate follows.',
      expected: 'Term',
    }),
    rule('DDP-056', 'MUST', 'RFC 5041 7.2', 'wire', 'DDP', {
      text: 'Error numbers of section 7.2 are used.',
      observation: 'Tests above.',
    }),
    rule('DDP-057', 'SHOULD', 'RFC 5041 7', 'wire', 'DDP', {
      text: 'LLP errors are passed up to the ULP.',
      observation: 'Terminate 2/0/02 after CRC error.',
      expected: 'Term 2/0/xx',
    }),
  ]),
  ...topic('Stream management and association', [
    rule('DDP-058', 'MUST NOT', 'RFC 5041 6.2', 'wire', 'DDP', {
      text: 'DDP does not start a teardown on its own.',
      observation: 'Terminate before FIN.',
    }),
    rule('DDP-059', 'SHOULD', 'RFC 5041 6.2.1', 'api', 'DDP', {
      text:
        'On local graceful teardown all pending data is transferred first; later requests fail (the ' +
        'latter is a MUST).',
      observation: 'Close after posting 100 Sends: all arrive; later posts fail.',
    }),
    rule('DDP-060', 'MUST', 'RFC 5041 6.2.1', 'local', 'DDP', {
      text:
        'Data that arrives after a graceful teardown request from the LLP tears the stream down ' +
        'abortively.',
      observation: 'Not reachable over one TCP half connection after FIN.',
    }),
    rule('DDP-061', 'SHOULD', 'RFC 5041 6.2.1', 'wire', 'DDP', {
      text:
        'On FIN from the peer, with half-close supported, the half-closed state is shown to the ULP and ' +
        'outbound transfers go on.',
      observation: 'Send Read Request, then FIN: is the Read Response still delivered?',
    }),
    rule('DDP-062', 'MUST', 'RFC 5041 6.2.1', 'wire', 'DDP', {
      text: 'When the ULP then closes, the other half is closed gracefully.',
      observation: 'FIN from the tested side follows.',
    }),
    rule('DDP-063', 'SHOULD', 'RFC 5041 6.2.1', 'wire', 'DDP', {
      text: 'On a half-close by the local ULP reception stays enabled.',
      observation: 'Data sent after the local FIN is processed.',
    }),
    rule('DDP-064', 'MUST', 'RFC 5041 6.2.2', 'api', 'DDP', {
      text: 'LLP loss, LLP fatal error and invalid header fields are indicated to the ULP as fatal.',
      observation: 'API event.',
    }),
    rule('DDP-065', 'SHOULD', 'RFC 5041 6.2.2', 'api', 'DDP', {
      text: 'Outstanding requests are completed in error after a fatal error.',
      observation: 'Flushed completions.',
    }),
    rule('DDP-066', 'MUST NOT', 'RFC 5041 6.2.2', 'wire', 'DDP', {
      text: 'The stream is not terminated before the ULP says so.',
      observation: 'Terminate precedes close.',
    }),
    rule('DDP-067', 'MUST', 'RFC 5041 8.2', 'wire', 'DDP', {
      text: 'PD association and stream association of STags are both supported.',
      observation: 'STag in other PD; STag limited to other connection of the same PD.',
      expected: 'Term 1/1/02',
    }),
    rule('DDP-068', 'MUST', 'RFC 5041 8.2', 'wire', 'DDP', {
      text: 'A segment for an STag of another PD or stream is not placed and the error is surfaced.',
      observation: 'Memory unchanged.',
      expected: 'Term 1/1/02',
    }),
    rule('DDP-069', 'SHOULD', 'RFC 5041 8.2', 'api', 'ULP', {
      text: 'An STag is associated with at least one stream.',
      observation: 'API.',
    }),
    rule('DDP-070', 'MUST', 'RFC 5041 8.3', 'wire', 'DDP', {
      text: 'The ULP can establish and revoke TO range, validity and association of an STag.',
      observation: 'Invalidate or deregister, then Write.',
      expected: 'Term 1/1/00',
    }),
    rule('DDP-071', 'MAY', 'RFC 5041 1.2, 2.3', 'local', 'DDP', {
      text: 'DDP has no ordering between streams.',
      observation: 'Not testable.',
    }),
  ]),
];
