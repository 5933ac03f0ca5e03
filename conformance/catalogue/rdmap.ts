// Requirements RDMAP-001..RDMAP-100: RDMAP, RFC 5040.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const rdmap: readonly Requirement[] = [
  ...topic('Header and opcodes', [
    rule('RDMAP-001', 'MUST', 'RFC 5040 4.1', 'wire', 'tx', {
      text: 'The RDMAP control octet is RsvdULP octet 0 of every DDP segment: RV 01, reserved 00, opcode.',
      observation: 'Capture: high nibble is 4.',
    }),
    rule('RDMAP-002', 'MUST', 'RFC 5040 4.1', 'wire', 'tx', {
      text: 'Reserved bits 0x30 are 0.',
      observation: 'Capture.',
    }),
    rule('RDMAP-003', 'MUST', 'RFC 5040 4.1', 'wire', 'rx', {
      text: 'Reserved bits 0x30 are ignored.',
      observation: 'Send with control octet 0x73: accepted.',
      expected: 'none',
    }),
    rule('RDMAP-004', 'MUST', 'RFC 5040 4.1, 7.2 (3)', 'wire', 'rx', {
      text: 'RV must be valid for the negotiated protocol (01).',
      observation: 'Send and Write with RV 00, 10, 11.',
      expected: 'Term 0/2/05',
    }),
    rule('RDMAP-005', 'MUST', 'RFC 5040 7.2 (2)', 'wire', 'rx', {
      text: 'The opcode must be valid.',
      observation: 'Untagged opcodes C, D, E, F (8 to B too without RFC 7306).',
      expected: 'Term 0/2/06',
    }),
    rule('RDMAP-006', 'MUST', 'RFC 5040 4.1 fig. 4', 'wire', 'tx', {
      text: 'T flag per opcode: 1 for Write and Read Response, 0 for all others.',
      observation: 'Capture.',
    }),
    rule('RDMAP-007', 'MUST', 'RFC 5040 4.1, 7.2', 'wire', 'rx', {
      text: 'An opcode with the wrong T flag is an error.',
      observation: 'Opcode 0 with T=0, opcode 3 with T=1.',
      expected: 'Term 0/2/06',
      derived: true,
    }),
    rule('RDMAP-008', 'MUST', 'RFC 5040 4.1 fig. 4', 'wire', 'tx', {
      text: 'QN per opcode: Send kinds 0, Read Request 1, Terminate 2.',
      observation: 'Capture.',
    }),
    rule('RDMAP-009', 'MUST', 'RFC 5040 4.1, RFC 5041 7.1', 'wire', 'rx', {
      text: 'A known opcode on the wrong queue is an error.',
      observation: 'Send on QN 1, Read Request on QN 0 (a Terminate elsewhere: RDMAP-081).',
      expected: 'Term 1/2/01',
      derived: true,
    }),
    rule('RDMAP-010', 'MUST', 'RFC 5040 4.1', 'wire', 'tx', {
      text: 'Invalidate STag field is 0 for Send, Send SE, Read Request, Terminate.',
      observation: 'Capture.',
    }),
    rule('RDMAP-011', 'MUST', 'RFC 5040 4.1', 'wire', 'rx', {
      text: 'Invalidate STag field is ignored for those messages.',
      observation: 'Send with a valid STag in the field: STag stays usable.',
      expected: 'none',
    }),
    rule('RDMAP-012', 'MUST', 'RFC 5040 4.1, 4.7', 'wire', 'tx', {
      text: 'Send with Invalidate and Send with SE and Invalidate carry the STag there.',
      observation: 'Capture.',
    }),
    rule('RDMAP-013', 'MUST', 'RFC 5040 4.2', 'wire', 'tx', {
      text:
        'Write, Read Response and the Sends carry no RDMAP header; Read Request carries 28 octets, ' +
        'Terminate its own.',
      observation: 'Capture.',
    }),
    rule('RDMAP-014', 'MUST', 'RFC 5040 4.2 fig. 5', 'wire', 'tx', {
      text: 'Read Request and Terminate carry no ULP payload.',
      observation: 'ULPDU_Length 46 and 22..70.',
    }),
    rule('RDMAP-015', 'MUST', 'RFC 5040 4.4; verbs draft 8.3.3, 9.5.3', 'wire', 'rx', {
      text:
        'A Read Request that is not exactly 28 octets after the DDP header, has L=0 or MO not 0 is an ' +
        'error.',
      observation: 'Read Request with 27 and 29 octets, with L=0, with MO 4.',
      expected: 'Term 0/2/07, 1/2/04 or 1/2/05 (siw 2/0/03 when short, close without Terminate when long)',
      derived: true,
    }),
    rule('RDMAP-016', 'MUST', 'RFC 5040 6.1', 'wire', 'tx', {
      text: 'After the switch only RDMA messages are sent until teardown.',
      observation: 'Capture parses completely.',
    }),
  ]),
  ...topic('RDMA Write', [
    rule('RDMAP-017', 'MUST', 'RFC 5040 5.1', 'wire', 'src', {
      text: 'A Write is tagged and addresses one remote buffer only.',
      observation: 'Capture.',
    }),
    rule('RDMAP-018', 'MUST NOT', 'RFC 5040 5.1', 'api', 'snk', {
      text: "A valid Write is not delivered to the sink's ULP.",
      observation: 'No completion on the sink.',
    }),
    rule('RDMAP-019', 'MUST', 'RFC 5040 5.1, 7.1', 'wire', 'snk', {
      text: 'An invalid Write surfaces an error.',
      observation: 'Write with bad STag.',
      expected: 'Term 1/1/xx',
    }),
    rule('RDMAP-020', 'MAY', 'RFC 5040 5.1', 'wire', 'src', {
      text: 'A Write may be of zero length.',
      observation: 'Post it: 20-octet FPDU.',
    }),
    rule('RDMAP-021', 'MUST', 'RFC 5041 5.2', 'wire', 'snk', {
      text: 'A zero-length Write is accepted without STag checks.',
      observation: 'Any STag and TO.',
      expected: 'none',
    }),
    rule('RDMAP-022', 'MUST', 'RFC 5040 5.1', 'wire', 'src', {
      text: 'Writes go out in submission order.',
      observation: 'Numbered data.',
    }),
    rule('RDMAP-023', 'MAY', 'RFC 5040 5.1', 'wire', 'src', {
      text: 'A Write may target any part of the advertised buffer at any TO, and may gather local buffers.',
      observation: 'Unaligned Writes.',
      expected: 'none',
    }),
    rule('RDMAP-024', 'MUST NOT', 'RFC 5040 5.5 (14)', 'api', 'src', {
      text: 'A Write is not locally complete before DDP has completed it.',
      observation: 'Stalled TCP window: completion comes late.',
    }),
  ]),
  ...topic('RDMA Read', [
    rule('RDMAP-025', 'MUST', 'RFC 5040 5.2', 'wire', 'snk', {
      text: 'A Read consists of one Read Request and one Read Response.',
      observation: 'Capture.',
    }),
    rule('RDMAP-026', 'MUST', 'RFC 5040 5.2.1', 'wire', 'snk', {
      text: 'The Read Request is untagged, QN 1, and uses one untagged buffer of the responder.',
      observation: 'Capture.',
    }),
    rule('RDMAP-027', 'MUST', 'RFC 5040 5.2.1', 'wire', 'snk', {
      text: 'Read Requests are sent in submission order.',
      observation: 'MSN 1,2,3.',
    }),
    rule('RDMAP-028', 'MUST', 'RFC 5040 5.2.1', 'wire', 'src', {
      text: 'Read Requests are processed in the order sent and never delivered to the ULP.',
      observation: 'Three reads: responses in order.',
    }),
    rule('RDMAP-029', 'MUST', 'RFC 5040 5.2.1', 'wire', 'src', {
      text: 'A valid Read Request is answered by a valid Read Response.',
      observation: 'Read of 1, MULPDU-14, MULPDU-13, 1 MiB octets.',
    }),
    rule('RDMAP-030', 'MUST', 'RFC 5040 4.4', 'wire', 'src', {
      text: 'Sink STag is copied uninterpreted and Sink TO is copied as the start TO of the response.',
      observation: 'Sink STag 0xFFFFFFFF, TO 0x0123456789ABCDEF come back.',
    }),
    rule('RDMAP-031', 'MUST', 'RFC 5040 4.4, 5.2.2', 'wire', 'src', {
      text: 'The response carries exactly RDMARDSZ octets, L=1 on the last segment only.',
      observation: 'Capture.',
    }),
    rule('RDMAP-032', 'MUST NOT', 'RFC 5040 5.2.1', 'wire', 'src', {
      text: 'RDMARDSZ 0: source STag and TO are not validated.',
      observation: 'Zero-length Read with unknown source STag.',
      expected: 'none',
    }),
    rule('RDMAP-033', 'MUST', 'RFC 5040 5.2.1', 'wire', 'src', {
      text: 'RDMARDSZ 0: a zero-length Read Response is returned (echoing Sink STag and TO).',
      observation: '20-octet FPDU, C1 42.',
    }),
    rule('RDMAP-034', 'MUST', 'RFC 5040 5.2.1, 7.2', 'wire', 'src', {
      text: 'RDMARDSZ above 0: source STag and TO are validated.',
      observation: 'Faulty reads below.',
      expected: 'Term 0/1/xx',
    }),
    rule('RDMAP-035', 'MUST', 'RFC 5040 7.2 (4a)', 'wire', 'src', {
      text: 'The source STag must be valid.',
      observation: 'Read from unknown STag or wrong key.',
      expected: 'Term 0/1/00',
    }),
    rule('RDMAP-036', 'MUST', 'RFC 5040 7.2 (4b)', 'wire', 'src', {
      text: 'The source STag must be associated with the stream.',
      observation: 'Read from an STag of another PD.',
      expected: 'Term 0/1/03',
    }),
    rule('RDMAP-037', 'MUST', 'RFC 5040 7.2 (4c)', 'wire', 'src', {
      text: 'The source TO must be in range.',
      observation: 'Read at base - 1.',
      expected: 'Term 0/1/01',
    }),
    rule('RDMAP-038', 'MUST', 'RFC 5040 7.2 (4d)', 'wire', 'src', {
      text: 'Source TO + size must be in range.',
      observation: 'Read one octet beyond the end.',
      expected: 'Term 0/1/01',
    }),
    rule('RDMAP-039', 'MUST', 'RFC 5040 7.2 (4e)', 'wire', 'src', {
      text: 'Source TO + size must not wrap.',
      observation: 'TO 0xFFFFFFFFFFFFFFFC, size 8.',
      expected: 'Term 0/1/04 (0/1/01 seen)',
    }),
    rule('RDMAP-040', 'MUST', 'RFC 5040 4.8 fig. 9, RFC 5042 6.3.5, verbs draft 7.4.2', 'wire', 'src', {
      text: 'The source buffer must grant remote read.',
      observation: 'Read from a write-only region (siw does not check this).',
      expected: 'Term 0/1/02',
    }),
    rule('RDMAP-041', 'MUST', 'RFC 5040 5.5 (12,17)', 'wire', 'src', {
      text:
        'Processing starts only after DDP delivered the Read Request, so all earlier messages of that ' +
        'stream are placed.',
      observation: 'Write then Read of the same octets: new data returned.',
    }),
    rule('RDMAP-042', 'MUST', 'RFC 5040 5.5 (12)', 'wire', 'src', {
      text: 'This ordering also holds for zero-length Read Requests.',
      observation: 'Write, zero-length Read: response only after placement.',
    }),
    rule('RDMAP-043', 'MUST', 'RFC 5040 5.2.2, 5.5 (20)', 'wire', 'src', {
      text:
        'Read Responses are handed to DDP in the order of the requests; buffer contents may be read in ' +
        'any order.',
      observation: 'Three reads of different size.',
    }),
    rule('RDMAP-044', 'MAY', 'RFC 5040 5.5 (12,18)', 'wire', 'src', {
      text: 'The response may be generated after later Writes or Sends have been placed.',
      observation: 'Read then Write to the same octets: old or new data.',
    }),
    rule('RDMAP-045', 'MUST', 'RFC 5040 5.5 (19)', 'api', 'snk', {
      text: 'The Read is complete only when DDP delivers the response.',
      observation: 'Hold the last segment back: no completion.',
    }),
    rule('RDMAP-046', 'MUST', 'RFC 5040 5.2.2, 5.5 (11)', 'api', 'snk', {
      text: 'The response is delivered to the ULP, in the order delivered by DDP.',
      observation: 'Completion order of reads.',
    }),
    rule('RDMAP-047', 'MUST', 'RFC 5040 5.2.2', 'wire', 'snk', {
      text: 'An invalid Read Response surfaces an error.',
      observation: 'Response to unknown STag.',
      expected: 'Term 1/1/00',
    }),
    rule('RDMAP-048', 'MAY', 'RFC 5040 5.2.2', 'wire', 'snk', {
      text: 'STag, TO and length of the response may be compared with the request.',
      observation: 'Response with other STag, TO, length: error or placed.',
      expected: 'Term 1/1/00 or 1/1/01',
    }),
    rule('RDMAP-049', 'MUST', 'RFC 5040 5.2, 7.2', 'wire', 'snk', {
      text: 'A Read Response without outstanding read is an error and is never placed blindly.',
      observation: 'Unsolicited response to a valid read-only STag.',
      expected: 'Term 0/2/06 (siw 1/0/00)',
      derived: true,
    }),
    rule('RDMAP-050', 'MUST', 'RFC 5040 5.2.2', 'wire', 'src', {
      text: 'Enough queue-1 buffers exist for the negotiated number of Read Requests.',
      observation: 'IRD outstanding reads succeed.',
    }),
    rule('RDMAP-051', 'MUST NOT', 'RFC 5040 6.1', 'wire', 'snk', {
      text: 'No more Read Requests are outstanding than negotiated (ORD).',
      observation: 'ORD 2, post 10 reads, delay responses: 2 requests on the wire.',
    }),
    rule('RDMAP-052', 'MUST NOT', 'RFC 5040 6.1, RFC 5042 6.4.3.3', 'wire', 'src', {
      text: 'No more inbound Read Requests are accepted than negotiated (IRD).',
      observation: 'Send IRD + 1 requests while the tested side cannot transmit.',
      expected: 'Term 1/2/03, 1/2/02 or 0/2/07',
    }),
    rule('RDMAP-053', 'MUST', 'RFC 5040 6.1', 'wire', 'RDMAP', {
      text: 'The number of reads is limited per stream and direction.',
      observation: 'Both directions independent.',
    }),
    rule('RDMAP-054', 'MUST', 'RFC 5040 5.2.1', 'api', 'snk', {
      text: 'Several remote buffers need several Read Requests.',
      observation: 'API accepts one remote address per read.',
    }),
    rule('RDMAP-055', 'MAY', 'RFC 5040 4.4', 'wire', 'snk', {
      text: 'Sink TO and source TO may be arbitrary.',
      observation: 'Unaligned reads.',
      expected: 'none',
    }),
  ]),
  ...topic('Send kinds', [
    rule('RDMAP-056', 'MUST', 'RFC 5040 5.3', 'wire', 'src', {
      text: 'Sends are untagged with QN 0 and go out in submission order.',
      observation: 'Capture.',
    }),
    rule('RDMAP-057', 'MUST', 'RFC 5040 5.3', 'api', 'snk', {
      text: 'Each Send uses exactly one receive buffer.',
      observation: 'n Sends, n completions.',
    }),
    rule('RDMAP-058', 'MUST', 'RFC 5040 5.3', 'api', 'snk', {
      text: 'A zero-length Send uses a receive buffer.',
      observation: 'Completion with length 0.',
    }),
    rule('RDMAP-059', 'MUST', 'RFC 5040 5.3, RFC 5041 7.1', 'wire', 'snk', {
      text: 'A zero-length Send without a posted buffer is an error.',
      observation: 'No receive posted.',
      expected: 'Term 1/2/02',
      derived: true,
    }),
    rule('RDMAP-060', 'MAY', 'RFC 5040 5.3', 'api', 'snk', {
      text: 'The message may be shorter than the buffer; the length is reported.',
      observation: 'Byte count.',
    }),
    rule('RDMAP-061', 'MUST', 'RFC 5040 5.3', 'wire', 'snk', {
      text: 'A message longer than the buffer is an error.',
      observation: '101 into 100, also across two segments.',
      expected: 'Term 1/2/05 (1/2/02, 0/0 seen)',
    }),
    rule('RDMAP-062', 'MUST', 'RFC 5040 5.3, 5.5 (10,16)', 'api', 'snk', {
      text: 'Sends are delivered to the ULP in the order sent and only after DDP delivered them.',
      observation: 'Numbered Sends.',
    }),
    rule('RDMAP-063', 'MUST', 'RFC 5040 5.5 (10)', 'api', 'snk', {
      text: 'When a Send is delivered, all earlier Writes of that stream are placed.',
      observation: 'Write 1 MiB then Send: data present at the completion.',
    }),
    rule('RDMAP-064', 'MAY', 'RFC 5040 5.3', 'api', 'snk', {
      text: 'Send SE and Send SE Inv may cause an event if the sink is configured so.',
      observation: 'Solicited notification armed.',
    }),
    rule('RDMAP-065', 'MUST', 'RFC 5040 2.4 (Solicited Event), verbs draft 8.2.5', 'api', 'snk', {
      text: 'Without solicited event the solicited-only notification is not caused by a plain Send.',
      observation: 'Armed solicited: plain Send gives no event.',
    }),
    rule('RDMAP-066', 'MUST', 'RFC 5040 5.3, 7.2 (4,5)', 'wire', 'snk', {
      text:
        'Send with Invalidate: on delivery it is verified that the STag is valid and associated with this ' +
        'stream.',
      observation: 'Unknown STag; STag of another PD.',
      expected: 'Unknown: Term 0/1/00, 0/1/09 or 0/2/09; other PD: Term 0/1/09 or 0/1/03',
    }),
    rule('RDMAP-067', 'MUST', 'RFC 5040 5.3, 3.2', 'wire', 'snk', {
      text: 'Send with Invalidate: the STag is invalidated and reported in the completion.',
      observation: 'Later Write to it.',
      expected: 'Term 1/1/00 for the later Write',
    }),
    rule('RDMAP-068', 'MUST', 'RFC 5040 5.3, 4.8, 8.1.1 (7)', 'wire', 'snk', {
      text:
        'An STag that is not associated with the stream, or that is shared between streams, is not ' +
        'invalidated; a Terminate with code 09 is sent.',
      observation: 'STag of another PD; STag shared between streams. Both stay usable elsewhere.',
      expected: 'Term 0/1/09 or 0/2/09 (0/1/03 seen)',
    }),
    rule('RDMAP-069', 'MAY', 'RFC 5040 5.5 (18)', 'api', 'snk', {
      text: 'Sends may complete before earlier Read Requests have been answered.',
      observation: 'Read 1 GiB then Send.',
    }),
    rule('RDMAP-070', 'MUST NOT', 'RFC 5040 5.5 (9,14)', 'api', 'src', {
      text:
        'A Send is not locally complete before DDP has completed it; completion says nothing about the ' +
        'peer.',
      observation: '-',
    }),
  ]),
  ...topic('Terminate', [
    rule('RDMAP-071', 'SHOULD', 'RFC 5040 6.2.1', 'wire', 'RDMAP', {
      text: 'A Terminate is sent when an RDMAP error occurs or the LLP reports one.',
      observation: 'All faults above.',
      expected: 'Term',
    }),
    rule('RDMAP-072', 'MUST', 'RFC 5040 7.1 (1)', 'api', 'RDMAP', {
      text: 'A Terminate is sent for errors found while creating a message; without DDP and RDMAP headers.',
      observation: 'Local protection error in a Send.',
      expected: 'Term 0/0/xx, M=D=R=0',
    }),
    rule('RDMAP-073', 'MUST', 'RFC 5040 7.1 (2)', 'wire', 'RDMAP', {
      text:
        'A Terminate is sent, as early as possible, for errors on incoming Write, Send kinds and Read ' +
        'Response; with segment length and DDP header.',
      observation: 'Bad Write while the tested side sends: Terminate soon, at an FPDU boundary.',
      expected: 'Term with M, D',
    }),
    rule('RDMAP-074', 'MUST', 'RFC 5040 7.1 (3), 4.8 fig. 10', 'wire', 'RDMAP', {
      text:
        'A Terminate for a Read Request found bad after its delivery also has the RDMAP header; for ' +
        'errors that DDP finds it has not.',
      observation: 'Bad Read Request: R=1, 28 octets equal to the sent ones.',
      expected: 'Term with M, D, R (M, D alone for EType 2 seen)',
    }),
    rule('RDMAP-075', 'MUST', 'RFC 5040 7.1 (4)', 'wire', 'RDMAP', {
      text: 'Of several errors the first message in error is reported.',
      observation: 'Two bad Writes in one TCP write: header of the first.',
      expected: 'Term',
    }),
    rule('RDMAP-076', 'MUST', 'RFC 5040 5.4', 'wire', 'tx', {
      text: 'Terminate: untagged, QN 2, MSN 1, MO 0, L=1, one per stream.',
      observation: 'Capture.',
    }),
    rule('RDMAP-077', 'MUST NOT', 'RFC 5040 5.4', 'wire', 'tx', {
      text: 'Nothing is sent on the stream after the Terminate.',
      observation: 'No FPDU follows.',
    }),
    rule('RDMAP-078', 'MAY', 'RFC 5040 5.4', 'local', 'rx', {
      text: 'After receiving a Terminate the peer may stop sending.',
      observation: '-',
    }),
    rule('RDMAP-079', 'MUST', 'RFC 5040 5.4, verbs draft 6.2.2.3', 'wire', 'rx', {
      text: 'A received Terminate is delivered to the ULP (never answered by a Terminate).',
      observation: 'API event with layer, type, code; no Terminate comes back.',
      expected: 'close',
    }),
    rule('RDMAP-080', 'MUST', 'RFC 5040 5.4', 'wire', 'rx', {
      text: 'One untagged buffer for a Terminate is always available.',
      observation: 'Terminate works with no receives posted.',
    }),
    rule('RDMAP-081', 'MUST', 'RFC 5040 5.4', 'wire', 'rx', {
      text: 'A malformed Terminate (short, wrong QN, MSN, MO, T) ends the stream without reply.',
      observation: '3-octet Terminate.',
      expected: 'close',
      derived: true,
    }),
    rule('RDMAP-082', 'MUST', 'RFC 5040 4.8', 'wire', 'tx', {
      text:
        'M, D, R, layer, type and code stand where RFC 5040 figure 8 has them and name what happened; ' +
        'reserved 13 bits 0.',
      observation: 'Capture.',
    }),
    rule('RDMAP-083', 'MUST', 'RFC 5040 4.8', 'wire', 'rx', {
      text: 'Reserved bits of the Terminate are ignored.',
      observation: 'Terminate with 0x1FFF set: event as usual.',
    }),
    rule('RDMAP-084', 'MUST', 'RFC 5040 4.8', 'wire', 'tx', {
      text: 'DDP Segment Length is present if D is set and valid if M is set.',
      observation: 'Capture.',
    }),
    rule('RDMAP-085', 'MUST NOT', 'RFC 5040 4.8, 7.1 (1); for LLP errors fig. 10 (SHOULD)', 'wire', 'tx', {
      text: 'No header is included for local catastrophic errors and LLP errors.',
      observation: 'ULPDU_Length 22.',
    }),
    rule('RDMAP-086', 'MUST', 'RFC 5040 4.8', 'wire', 'tx', {
      text:
        'For a partly answered Read Request the returned header is advanced (TOs plus, size minus octets ' +
        'sent).',
      observation: 'Invalidate the source region while a long read is answered.',
      expected: 'Term 0/1/00 with advanced values',
    }),
    rule('RDMAP-087', 'MUST', 'RFC 5040 5.4', 'api', 'RDMAP', {
      text: 'Operations not yet given to DDP are completed in error.',
      observation: 'Flushed completions.',
    }),
    rule('RDMAP-088', 'SHOULD', 'RFC 5040 6.2.1', 'api', 'ULP', {
      text: 'All outstanding operations count as failed after a Terminate.',
      observation: 'Flushed completions.',
    }),
    rule('RDMAP-089', 'MAY', 'RFC 5040 6.2.1', 'wire', 'RDMAP', {
      text: 'The LLP stream may be torn down at once after sending or receiving a Terminate.',
      observation: 'FIN or RST.',
      expected: 'close',
    }),
    rule('RDMAP-090', 'SHOULD', 'RFC 5040 6.2.1', 'wire', 'RDMAP', {
      text: 'The teardown is graceful so that the Terminate is delivered.',
      observation: 'Terminate is received completely, then FIN; no RST destroying it.',
      expected: 'FIN',
    }),
    rule('RDMAP-091', 'MUST', 'RFC 5040 7', 'wire', 'RDMAP', {
      text:
        'No further data transfer on an erroneous stream; when all streams of a connection are done the ' +
        'connection is closed.',
      observation: 'FIN follows.',
      expected: 'close',
    }),
    rule('RDMAP-092', 'MUST', 'RFC 5040 7.1', 'api', 'RDMAP', {
      text: 'A local error is reported to the local ULP as far as possible.',
      observation: 'API event on the faulting side.',
    }),
  ]),
  ...topic('Ordering and completion', [
    rule('RDMAP-093', 'MUST', 'RFC 5040 5.5 (13)', 'wire', 'RDMAP', {
      text: 'Messages are handed to DDP in the order the ULP submitted the operations.',
      observation: 'Mixed Writes, Sends, Reads: wire order is post order.',
    }),
    rule('RDMAP-094', 'MUST', 'RFC 5040 5.5 (15)', 'api', 'RDMAP', {
      text:
        'Operations complete at the local peer in submission order (a Send after a Read completes after ' +
        'it).',
      observation: 'Read, Send; delay the Read Response: Send completion waits.',
    }),
    rule('RDMAP-095', 'MAY', 'RFC 5040 5.5 (12,18)', 'wire', 'RDMAP', {
      text: 'A later Send or Write may be transmitted before an earlier Read Response arrived.',
      observation: 'Wire: Read Request, Send.',
    }),
    rule('RDMAP-096', 'MUST', 'RFC 5040 6.1, verbs draft 6.2.1.2', 'api', 'RDMAP', {
      text: 'Initial state of RDMAP, DDP and MPA is restored when a QP is reused.',
      observation: 'MSN 1 again on the second connection.',
      derived: true,
    }),
    rule('RDMAP-097', 'MAY', 'RFC 5040 5.5 (4,5,6)', 'local', 'snk', {
      text: 'Buffer contents before delivery are indeterminate.',
      observation: '-',
    }),
    rule('RDMAP-098', 'MAY', 'RFC 5040 5.5 (1,2)', 'local', 'RDMAP', {
      text: 'There is no ordering between streams nor between the two directions of one stream.',
      observation: '-',
    }),
    rule('RDMAP-099', 'MUST', 'RFC 5040 3.2', 'api', 'RDMAP', {
      text: 'RDMAP provides Send, Send SE, Send Inv, Send SE Inv, Write and Read.',
      observation: 'API.',
    }),
    rule('RDMAP-100', 'MUST', 'RFC 5040 3.2', 'api', 'RDMAP', {
      text: 'STags are offered with TO range, access rights (read, write, both) and stream association.',
      observation: 'API.',
    }),
  ]),
];
