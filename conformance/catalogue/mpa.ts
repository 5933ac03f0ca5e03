// Requirements MPA-001..MPA-114: MPA framing over TCP, RFC 5044.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const mpa: readonly Requirement[] = [
  ...topic('Startup frames', [
    rule('MPA-001', 'MUST', 'RFC 5044 7.1.2 (1)', 'wire', 'I', {
      text: 'The first octets sent in MPA mode are one Request frame: 20-octet header plus private data.',
      observation: 'Capture: first 16 octets equal the Request key.',
    }),
    rule('MPA-002', 'MUST', 'RFC 5044 7.1.1', 'wire', 'I tx', {
      text: 'Request key is exactly 4D 50 41 20 49 44 20 52 65 71 20 46 72 61 6D 65.',
      observation: 'Capture.',
      expected: 'peer closes',
    }),
    rule('MPA-003', 'MUST', 'RFC 5044 7.1.1', 'wire', 'R tx', {
      text: 'Reply key is exactly 4D 50 41 20 49 44 20 52 65 70 20 46 72 61 6D 65.',
      observation: 'Capture.',
      expected: 'peer closes',
    }),
    rule('MPA-004', 'MUST', 'RFC 5044 7.1.1, 7.1.2 (2,5), 8', 'wire', 'R rx', {
      text:
        'Every octet of the Request key is compared; on any difference the TCP connection is closed and ' +
        'an error reported locally.',
      observation: 'Send 16 Requests each with one key octet flipped: no Reply octet, FIN or RST.',
      expected: 'close (code 4)',
    }),
    rule('MPA-005', 'MUST', 'RFC 5044 7.1.1, 7.1.2 (3,5), 8', 'wire', 'I rx', {
      text:
        'Every octet of the Reply key is compared; on any difference the TCP connection is closed and an ' +
        'error reported locally.',
      observation: 'Answer with a flipped key octet: FIN or RST, no FPDU except possibly Terminate 2/0/04.',
      expected: 'close (code 4)',
    }),
    rule('MPA-006', 'MUST', 'RFC 5044 7.1.2 (8)', 'wire', 'I rx', {
      text:
        'A Request frame arriving where a Reply is expected (both sides initiator) is detected by its key ' +
        'and ends the connection with an error.',
      observation: 'Answer a Request with a Request.',
      expected: 'close',
    }),
    rule('MPA-007', 'SHOULD', 'RFC 5044 7.1.2 (8)', 'wire', 'R', {
      text: 'A timeout guards the wait for the Request (detects responder/responder).',
      observation: 'Connect and stay silent: connection is closed after a bounded time (Rec 5 s).',
      expected: 'close',
    }),
    rule('MPA-008', 'SHOULD', 'RFC 5044 7.1.2 (10)', 'wire', 'I, R', {
      text: 'A timeout guards the reception of the complete set of startup frames, partial frames included.',
      observation:
        'Send the Request one octet per second, or 19 octets and stop: closed after a bounded time (Rec ' +
        '5 s responder, 10 s initiator).',
      expected: 'close',
    }),
    rule('MPA-009', 'SHOULD', 'RFC 5044 7.1.2 (10)', 'local', 'ULP', {
      text: 'The ULP puts timeouts on FPDUs, ULPDUs and its own messages.',
      observation: 'Not observable at the MPA layer.',
    }),
    rule('MPA-010', 'MUST', 'RFC 5044 7.1.1', 'wire', 'tx', {
      text: 'Reserved flag bits are 0 in transmitted frames.',
      observation: 'Capture: flags and 0x1F is 0 in Rev 1 frames, flags and 0x0F is 0 in S=1 frames.',
    }),
    rule('MPA-011', 'MUST', 'RFC 5044 7.1.1', 'wire', 'rx', {
      text: 'Reserved flag bits are not checked.',
      observation: 'Request with flags 0x0F set in addition: normal Reply.',
      expected: 'none',
    }),
    rule('MPA-012', 'MUST', 'RFC 5044 7.1.1', 'wire', 'I tx', {
      text: 'R is 0 in a Request.',
      observation: 'Capture.',
    }),
    rule('MPA-013', 'MUST', 'RFC 5044 7.1.1', 'wire', 'R rx', {
      text: 'R is not checked in a Request.',
      observation: 'Request with R=1: normal Reply.',
      expected: 'none',
    }),
    rule('MPA-014', 'MUST', 'RFC 5044 7.1.1', 'wire', 'tx', {
      text: 'Rev is 1 for the unenhanced protocol.',
      observation: 'Capture.',
    }),
    rule('MPA-015', 'MUST', 'RFC 5044 7.1.1', 'wire', 'rx', {
      text:
        'Rev is checked; with a revision that cannot be worked with the connection is closed and an error ' +
        'reported locally.',
      observation: 'Request with Rev 3 or 255: no accepting Reply, close.',
      expected: 'close (code 4)',
    }),
    rule('MPA-016', 'SHOULD', 'RFC 5044 7.1.1 (lower case there)', 'api', 'rx', {
      text: 'The received Rev is reported to the ULP.',
      observation: 'API.',
    }),
    rule('MPA-017', 'MUST', 'RFC 5044 7.1.1', 'wire', 'tx', {
      text: 'PD_Length is the exact number of private data octets, 0 if there are none.',
      observation: 'Capture: frame length is 20 + PD_Length.',
      expected: 'peer closes',
    }),
    rule('MPA-018', 'MUST', 'RFC 5044 7.1.1', 'api', 'tx', {
      text: 'Private data is at most 512 octets.',
      observation: 'Ask the API for 513: local error, nothing sent.',
      expected: 'local error',
    }),
    rule('MPA-019', 'MUST', 'RFC 5044 7.1.1, 7.1.2 (9)', 'wire', 'rx', {
      text: 'PD_Length above 512 closes the connection with a local error.',
      observation: 'Request with PD_Length 513 or 65535: close, no Reply.',
      expected: 'close (code 4)',
    }),
    rule('MPA-020', 'MUST', 'RFC 5044 7.1.1', 'wire', 'rx', {
      text: 'PD_Length of 0 to 512 is accepted in both frames.',
      observation: 'Request with PD_Length 512: Reply.',
      expected: 'none',
    }),
    rule('MPA-021', 'MUST', 'RFC 5044 7.1.1, 7.1.2 (9)', 'wire', 'rx', {
      text: 'A stream that ends before PD_Length octets have arrived makes the frame improperly formatted.',
      observation: 'Send 20 octets with PD_Length 10, 4 octets, FIN: no accepting Reply, close.',
      expected: 'close (code 4)',
    }),
    rule('MPA-022', 'MUST', 'RFC 5044 7.1.2 (9)', 'api', 'rx', {
      text:
        'Never more than PD_Length octets, nor more than the receiving buffer holds, are taken as private ' +
        'data.',
      observation: 'Private data delivered to the ULP has exactly the sent octets.',
    }),
    rule('MPA-023', 'MUST', 'RFC 5044 5, A.4 (TCP is a stream)', 'wire', 'rx', {
      text: 'A startup frame may arrive cut at any octet; it is reassembled.',
      observation: 'Send the Request octet by octet within the timeout: normal Reply.',
      expected: 'none',
      derived: true,
    }),
    rule('MPA-024', 'MUST', 'RFC 5044 7.1.2 (2 note, 3)', 'wire', 'I', {
      text: 'No FPDU and no marker is sent before a valid accepting Reply has been received.',
      observation: 'Delay the Reply: nothing follows the Request.',
      derived: true,
    }),
    rule('MPA-025', 'MUST', 'RFC 5044 7.1, 7.1.5', 'wire', 'I', {
      text: 'No other octet is sent between the Request and the reception of the Reply.',
      observation: 'Capture.',
      expected: 'peers close',
      derived: true,
    }),
    rule('MPA-026', 'MAY', 'RFC 5044 7.1.5 (advisory)', 'wire', 'R rx', {
      text:
        'Octets found after the Request before the Reply has been sent may be treated as malformed ' +
        'startup.',
      observation:
        'Append one octet to the Request: close, or normal operation with that octet taken as FPDU start.',
      expected: 'close',
    }),
    rule('MPA-027', 'MUST', 'RFC 5044 7.1.2 (2 note, 4)', 'wire', 'R', {
      text:
        'No Reply, FPDU or marker is sent before a complete Request has been received and validated (only ' +
        'streaming mode data of MPA-043 and MPA-045 may precede it).',
      observation: 'Immediate startup: connect silently or with half a Request: nothing received.',
    }),
    rule('MPA-028', 'MUST', 'RFC 5044 7.1.2 (4)', 'wire', 'R', {
      text: 'No FPDU and no marker is sent before at least one FPDU has been received and validated.',
      observation:
        'Post sends on the responder at once, send nothing after the Reply: no octet follows the Reply; ' +
        'then send one FPDU: output starts.',
    }),
    rule('MPA-029', 'MUST', 'RFC 5044 7.1.2 (4)', 'wire', 'R', {
      text:
        "The first received FPDU that opens the responder's transmission may be of any kind, a " +
        'zero-length tagged message included.',
      observation: 'Open with a zero-length Write: output starts.',
      expected: 'none',
      derived: true,
    }),
    rule('MPA-030', 'SHOULD', 'RFC 5044 7.1.2 (2)', 'wire', 'R', {
      text: 'Acceptance is signalled by a Reply with R=0, optionally with private data.',
      observation: 'Capture.',
    }),
    rule('MPA-031', 'SHOULD', 'RFC 5044 7.1.2 (2,6)', 'wire', 'R', {
      text:
        'If only the private data is unacceptable to the ULP a Reply with R=1 is returned, optionally ' +
        'with private data.',
      observation: 'Let the ULP reject: flags and 0x20 set, data intact.',
      expected: 'Reply R=1',
    }),
    rule('MPA-032', 'MUST', 'RFC 5044 7.1.2 (2)', 'wire', 'R', {
      text: 'After a rejecting Reply MPA is left and TCP stays open for the ULP to close or use.',
      observation:
        'After R=1 no FPDU is interpreted; FIN only from the ULP, or from the stack once the Reply is ' +
        'out, as known peers do.',
    }),
    rule('MPA-033', 'MUST', 'RFC 5044 7.1.2 (3)', 'wire', 'I rx', {
      text:
        'On a Reply with R=1 MPA is left without entering full operation; private data is given to the ' +
        'ULP.',
      observation: 'Reply R=1: no FPDU is ever sent.',
    }),
    rule('MPA-034', 'MUST', 'RFC 5044 7.1.2 (3)', 'wire', 'I rx', {
      text: 'An improperly formatted Reply closes TCP and leaves MPA.',
      observation: 'Reply with PD_Length 600.',
      expected: 'close (code 4)',
    }),
    rule('MPA-035', 'MUST', 'RFC 5044 7.1.2 (3,6)', 'api', 'I rx', {
      text: 'If the ULP dislikes the private data of an accepting Reply MPA is left; the ULP may close.',
      observation: 'Let the ULP refuse: no FPDU is sent.',
      expected: 'close by ULP',
    }),
    rule('MPA-036', 'SHOULD', 'RFC 5044 7.1.2 (3)', 'wire', 'I', {
      text: 'After a good accepting Reply full operation starts: received data is interpreted as FPDUs.',
      observation: 'FPDU directly after the exchange is processed.',
    }),
    rule('MPA-037', 'SHOULD', 'RFC 5044 7.1.2 (4); observed peers', 'wire', 'I rx', {
      text:
        'Octets directly after an accepting Reply are kept as the beginning of FPDUs (some responders ' +
        'transmit too early).',
      observation: 'Reply and a Send in one TCP segment: processed, or clean close.',
      expected: 'none or close',
      derived: true,
    }),
    rule('MPA-038', 'SHOULD', 'RFC 5044 7.1.2 (2)', 'wire', 'R', {
      text: 'A rejecting Reply is delivered before the connection is closed (no RST that destroys it).',
      observation: 'Tester reads the whole Reply, then FIN.',
      expected: 'Reply R=1, FIN',
      derived: true,
    }),
    rule('MPA-039', 'SHOULD', 'RFC 5044 7.1.2 (2)', 'wire', 'R', {
      text: 'After its accepting Reply the responder interprets received data as FPDUs.',
      observation: 'FPDU sent right after the Reply is processed.',
    }),
    rule('MPA-040', 'MUST', 'RFC 5044 7.1', 'wire', 'tx', {
      text: 'Startup frames carry no CRC, no marker and no padding.',
      observation: 'Capture with odd private data length: first FPDU octet follows directly.',
    }),
    rule('MPA-041', 'MUST', 'RFC 5044 7.1', 'wire', 'tx, rx', {
      text:
        'MPA mode begins at the same stream position at both ends: the octet after the last octet of the ' +
        'startup frame in that direction.',
      observation: 'Private data of 1, 2, 3 octets: FPDUs still parse.',
    }),
    rule('MPA-042', 'MUST', 'RFC 5044 7.1', 'api', 'I, R', {
      text: 'A DDP endpoint is bound to the connection on entry to full operation.',
      observation: 'API.',
    }),
    rule('MPA-043', 'MAY', 'RFC 5044 7.1, 7.1.3', 'api', 'ULP', {
      text: 'Streaming mode data may precede the Request, in either direction.',
      observation: 'Exchange text lines, then start MPA on the same connection.',
      expected: 'none',
    }),
    rule('MPA-044', 'SHOULD', 'RFC 5044 7.1.5 (1)', 'local', 'ULP', {
      text: 'MPA mode is switched on only when streaming mode data is no longer expected.',
      observation: 'Not observable.',
    }),
    rule('MPA-045', 'MAY', 'RFC 5044 7.1.5 (2)', 'api', 'R', {
      text: 'A last streaming mode message may be sent as part of switching to responder mode.',
      observation: 'API.',
    }),
    rule('MPA-046', 'MUST', 'RFC 5044 7.1.5', 'local', 'I, R', {
      text: "TCP's own rules (retransmission, ordering) hold across the switch.",
      observation: 'Lossy link.',
    }),
    rule('MPA-047', 'MUST', 'RFC 5044 7.1, 7.1.1', 'api', 'I, R', {
      text: 'Private data is not interpreted by MPA (except the enhanced octets of RFC 6581).',
      observation: 'Arbitrary octets survive both ways.',
      derived: true,
    }),
    rule('MPA-048', 'SHOULD', 'RFC 5044 app. C.2.1 (informative)', 'wire', 'R', {
      text:
        'A Request with Rev 0 from an RDMA Consortium peer is answered by a Reply with Rev 1 and a ' +
        'graceful close, unless Rev 0 is supported.',
      observation: 'Request Rev 0, flags C0.',
      expected: 'Reply Rev 1 then FIN, or close',
      derived: true,
    }),
    rule('MPA-049', 'SHOULD', 'RFC 5044 app. C.2.2 (informative)', 'wire', 'I', {
      text: 'A Reply with Rev 0 leads to a graceful close, unless Rev 0 is supported.',
      observation: 'Reply Rev 0, flags C0.',
      expected: 'close',
      derived: true,
    }),
    rule('MPA-050', 'MAY', 'RFC 5044 app. C.2.3 to C.2.5 (informative)', 'wire', 'I, R', {
      text:
        'A permissive implementation answers Rev 0 with Rev 0, M=1, C=1 and then uses DDP and RDMAP ' +
        'version 0 in both directions; as initiator it turns markers and CRC on in both directions after ' +
        'a Rev 0 Reply, even if its own Request had M=0.',
      observation: 'Request Rev 0.',
    }),
  ]),
  ...topic('CRC and marker negotiation', [
    rule('MPA-051', 'MUST', 'RFC 5044 4.4', 'wire', 'I, R', {
      text: 'CRC generation and checking is implemented.',
      observation: 'C=1 works.',
    }),
    rule('MPA-052', 'MUST', 'RFC 5044 4.4 (2a)', 'wire', 'I, R', {
      text: 'By default C=1 is sent; C=0 only on explicit request of the administrator.',
      observation: 'Capture of a default connection: flags and 0x40.',
    }),
    rule('MPA-053', 'SHOULD NOT', 'RFC 5044 4.4', 'local', 'admin', {
      text: 'CRC is not switched off unless the path has end-to-end integrity at least as strong as CRC32c.',
      observation: 'Configuration.',
    }),
    rule('MPA-054', 'MUST', 'RFC 5044 7.1.1, 4.4', 'wire', 'I, R', {
      text:
        'If C=1 in the Request or in the Reply both ends generate and check CRCs for the life of the ' +
        'connection.',
      observation:
        'Request C=1, Reply C=0 (and the reverse): FPDUs have good CRCs; an FPDU with bad CRC is refused.',
      expected: 'Term 2/0/02',
    }),
    rule('MPA-055', 'MUST', 'RFC 5044 7.1.1, 4.1, 4.4', 'wire', 'I, R', {
      text: 'If C=0 in both frames received CRC fields are not checked.',
      observation: 'C=0 both, FPDUs with CRC field 00000000 and DEADBEEF are accepted.',
      expected: 'none',
    }),
    rule('MPA-056', 'MAY', 'RFC 5044 4.4', 'wire', 'tx', {
      text: 'With CRC off the sender may still put CRCs.',
      observation: 'Capture.',
    }),
    rule('MPA-057', 'MUST', 'RFC 5044 4.1, 4.4', 'wire', 'tx', {
      text: 'The CRC field is present in every FPDU whether or not CRC is in use.',
      observation: 'C=0 both: FPDU length still includes 4 octets.',
    }),
    rule('MPA-058', 'MUST', 'RFC 5044 4.4', 'api', 'I, R', {
      text: 'CRC negotiation is invisible to the ULP.',
      observation: 'API.',
    }),
    rule('MPA-059', 'MUST', 'RFC 5044 7.1.1, 4.3', 'wire', 'tx', {
      text: 'Markers are inserted if and only if the frame received from the peer had M=1.',
      observation: "All four M combinations: each direction follows the peer's bit.",
    }),
    rule('MPA-060', 'MUST', 'RFC 5044 4.3', 'wire', 'tx', {
      text: 'Every sender is able to generate markers.',
      observation: 'Peer sends M=1: accepted, FPDUs carry markers.',
    }),
    rule('MPA-061', 'MAY', 'RFC 5044 4.3', 'wire', 'rx', {
      text: 'A receiver may ask for no markers (M=0).',
      observation: 'Capture.',
    }),
    rule('MPA-062', 'MUST', 'RFC 5044 4.3, 5.2', 'wire', 'rx', {
      text: 'A receiver that sent M=1 removes markers even when it does not use them.',
      observation: 'Own M=1 (if configurable): data intact.',
      derived: true,
    }),
  ]),
  ...topic('FPDU', [
    rule('MPA-063', 'MUST', 'RFC 5044 4.1', 'wire', 'tx', {
      text: 'Every FPDU has the layout length, ULPDU, PAD, CRC.',
      observation: 'Capture against the worked examples.',
    }),
    rule('MPA-064', 'MUST', 'RFC 5044 3', 'wire', 'tx', {
      text: 'Exactly one ULPDU per FPDU.',
      observation: 'Capture.',
    }),
    rule('MPA-065', 'MUST', 'RFC 5044 4.1', 'wire', 'tx', {
      text: 'ULPDU_Length counts the ULPDU octets only (no header, pad, CRC, markers).',
      observation: 'Capture of payloads of 0..8 octets.',
    }),
    rule('MPA-066', 'MUST', 'RFC 5044 4.1', 'wire', 'tx', {
      text: 'PAD brings the FPDU to a multiple of 4 octets: 2,1,0,3 octets for L mod 4 = 0,1,2,3.',
      observation: 'Capture.',
    }),
    rule('MPA-067', 'MUST', 'RFC 5044 4.1', 'wire', 'tx', {
      text: 'PAD octets are 0.',
      observation: 'Capture.',
    }),
    rule('MPA-068', 'MUST', 'RFC 5044 4.1', 'wire', 'rx', {
      text: 'PAD content is ignored except for the CRC.',
      observation: 'PAD octets FF with matching CRC: accepted.',
      expected: 'none',
    }),
    rule('MPA-069', 'MUST', 'RFC 5044 4.4, RFC 3720 12.1', 'wire', 'tx', {
      text: 'With CRC in use the field holds the CRC32c, least significant octet first.',
      observation: 'Worked examples.',
      expected: 'Term 2/0/02 by peer',
    }),
    rule('MPA-070', 'MUST', 'RFC 5044 4.4', 'wire', 'tx, rx', {
      text:
        'The CRC covers ULPDU_Length through the last PAD octet, with every marker inside, a marker ' +
        'directly before ULPDU_Length and a marker directly before the CRC field.',
      observation: 'Examples M1 to M4.',
      expected: 'Term 2/0/02',
    }),
    rule('MPA-071', 'MUST', 'RFC 5044 4.4, 6', 'wire', 'rx', {
      text: 'The CRC is verified before the ULPDU is passed to DDP.',
      observation:
        'Write with bad CRC: target memory unchanged at completion of the test (siw does place first).',
      expected: 'Term 2/0/02',
    }),
    rule('MPA-072', 'MUST', 'RFC 5044 4.4, 8', 'wire', 'rx', {
      text:
        'An FPDU with wrong CRC is invalid and is detected as error code 2 (handing the code upward is ' +
        'SHOULD).',
      observation:
        'Flip one bit in each of header, payload, PAD, CRC; in the length only from 1 to 0, since a ' +
        'longer length makes the receiver wait for more octets.',
      expected: 'Term 2/0/02',
    }),
    rule('MPA-073', 'MUST', 'RFC 5044 8', 'wire', 'rx', {
      text: 'After any error no further FPDU is passed or delivered on that half connection.',
      observation: 'Bad FPDU followed by a good Send: no receive completion for it.',
      expected: 'Term, then close',
    }),
    rule('MPA-074', 'MUST NOT', 'RFC 5044 8', 'wire', 'rx', {
      text:
        'For codes 2 and 3 MPA itself does not close TCP; that is left to the layer above, after a ' +
        'possible last message.',
      observation: 'Bad CRC: a Terminate arrives before FIN.',
      expected: 'Term 2/0/02 then FIN',
    }),
    rule('MPA-075', 'MAY', 'RFC 5044 8', 'local', 'rx', {
      text:
        'An optimized implementation may drop the TCP segment silently ' +
        'instead of reporting codes 2 or 3.',
      observation: 'Not applicable above a sockets API.',
    }),
    rule('MPA-076', 'MUST', 'RFC 5044 3', 'wire', 'tx', {
      text: 'No ULPDU above 64768 octets is sent.',
      observation: 'Large MTU configuration: capture.',
    }),
    rule('MPA-077', 'MUST', 'RFC 5044 3, 4.5', 'wire', 'MPA', {
      text: 'MULPDU offered to DDP is between 128 and 64768.',
      observation: 'Capture of the largest ULPDU_Length.',
    }),
    rule('MPA-078', 'MUST', 'RFC 5044 4.5', 'wire', 'MPA', {
      text: 'MULPDU without markers is EMSS - (6 + EMSS mod 4).',
      observation: 'Configure EMSS 1448: largest ULPDU_Length 1442.',
    }),
    rule('MPA-079', 'MUST', 'RFC 5044 4.5', 'wire', 'MPA', {
      text: 'MULPDU with markers is EMSS - (6 + 4*ceil(EMSS/512) + EMSS mod 4).',
      observation: 'EMSS 1448, peer M=1: largest 1430.',
    }),
    rule('MPA-080', 'MUST NOT', 'RFC 5044 4.5', 'wire', 'MPA', {
      text: 'MULPDU is not shrunk below 128 even if EMSS is smaller.',
      observation: 'EMSS 100: FPDUs up to ULPDU_Length 128.',
    }),
    rule('MPA-081', 'SHOULD', 'RFC 5044 5.1', 'wire', 'tx', {
      text: 'Where EMSS is unknown a likely FPDU size is derived from the MTU.',
      observation: 'Capture.',
    }),
    rule('MPA-082', 'SHOULD', 'RFC 5044 3, 4.5', 'wire', 'DDP tx', {
      text: 'Segments are as large as possible up to MULPDU.',
      observation: 'A message of 10 x MULPDU: only the last segment is shorter.',
    }),
    rule('MPA-083', 'MAY', 'RFC 5044 4.5', 'wire', 'MPA', {
      text: 'MULPDU may change during the connection.',
      observation: 'Capture.',
    }),
    rule('MPA-084', 'SHOULD', 'RFC 5044 5.1', 'wire', 'tx', {
      text: 'TCP segments start with an FPDU where the stack allows (for example no Nagle).',
      observation: 'Capture of small messages.',
    }),
    rule('MPA-085', 'MAY', 'RFC 5044 5.1', 'wire', 'tx', {
      text: 'Several FPDUs may be packed into one TCP segment.',
      observation: 'Capture.',
    }),
    rule('MPA-086', 'MUST', 'RFC 5044 5.1, 5.2, 6, A.4', 'wire', 'rx', {
      text: 'FPDU boundaries are found by ULPDU_Length, independent of TCP segmentation.',
      observation: 'Send FPDUs cut at every octet and also many FPDUs in one write: same result.',
      expected: 'none',
    }),
    rule('MPA-087', 'MUST', 'RFC 5044 6', 'wire', 'rx', {
      text: 'A ULPDU is forwarded only when the whole FPDU is present.',
      observation: 'Hold back the last CRC octet of a Send: no completion.',
    }),
    rule('MPA-088', 'MUST', 'RFC 5044 3, 4.3', 'wire', 'rx', {
      text: 'ULPDU boundaries are preserved; only ULPDU data and its length go to DDP.',
      observation: 'Two Sends in one TCP write give two completions of the right length.',
    }),
    rule('MPA-089', 'MAY', 'RFC 5044 5.2', 'local', 'rx', {
      text: 'Markers may be used to check boundaries but need not be.',
      observation: '-',
    }),
    rule('MPA-090', 'MUST', 'RFC 5041 4.4; verbs draft 8.3.3 (0x1000)', 'wire', 'rx', {
      text: 'A ULPDU_Length of 0 or too small for a DDP header is an error, never a read beyond the ULPDU.',
      observation: 'Lengths 0, 1, 2, 13 with good CRC.',
      expected: 'Term 1/0/00, 2/0/03 or close',
      derived: true,
    }),
    rule('MPA-091', 'MUST', 'RFC 5044 3, 4.1', 'wire', 'rx', {
      text: 'ULPDU_Length up to 65535 is handled (siw sends 65474 on loopback).',
      observation: 'Send with ULPDU_Length 65535 into a big buffer: accepted, or a clean Terminate.',
      expected: 'none',
      derived: true,
    }),
    rule('MPA-092', 'MUST', 'RFC 5044 3', 'wire', 'MPA', {
      text: 'The negotiated MPA version is passed to DDP.',
      observation: 'DV is 1 for Rev 1 and 2.',
    }),
    rule('MPA-093', 'MAY', 'RFC 5044 1.2, 3', 'local', 'rx', {
      text: 'ULPDUs may be handed to DDP out of order, with ordering information.',
      observation: 'Not applicable above a sockets API.',
    }),
  ]),
  ...topic('Markers', [
    rule('MPA-094', 'MUST', 'RFC 5044 4.3, 7.1.2 (7)', 'wire', 'tx', {
      text: 'When markers are on, the first marker directly precedes the first FPDU and has FPDUPTR 0.',
      observation: 'First 4 octets of full operation are 00000000.',
    }),
    rule('MPA-095', 'MUST', 'RFC 5044 4.3', 'wire', 'tx', {
      text:
        'A marker starts at every stream position whose distance from the first marker is a multiple of ' +
        '512, markers included.',
      observation: 'Examples M1 to M4; positions after sequence number wrap.',
      expected: 'Term 2/0/03 by peer',
    }),
    rule('MPA-096', 'MUST', 'RFC 5044 4.2, 4.3', 'wire', 'tx', {
      text:
        'FPDUPTR is the distance from the first octet of ULPDU_Length to the first octet of the marker, ' +
        'prior markers included.',
      observation: 'M4: 0x01fc, 0x03fc.',
      expected: 'Term 2/0/03 by peer',
    }),
    rule('MPA-097', 'MUST', 'RFC 5044 4.3, 4.4', 'wire', 'tx', {
      text: 'A marker exactly between FPDUs has FPDUPTR 0 and belongs to the CRC of the following FPDU.',
      observation: 'M2.',
      expected: 'Term 2/0/02 by peer',
    }),
    rule('MPA-098', 'MUST', 'RFC 5044 4.3', 'wire', 'tx', {
      text: 'All markers within one FPDU point to the same ULPDU_Length.',
      observation: 'M4.',
    }),
    rule('MPA-099', 'MUST', 'RFC 5044 4.4', 'wire', 'tx', {
      text: 'A marker between PAD and CRC is covered by the CRC of the FPDU that ends there.',
      observation: 'M3.',
      expected: 'Term 2/0/02 by peer',
    }),
    rule('MPA-100', 'MUST', 'RFC 5044 4.2', 'wire', 'tx', {
      text: 'Reserved half of the marker and the two low FPDUPTR bits are 0.',
      observation: 'Capture.',
    }),
    rule('MPA-101', 'MUST', 'RFC 5044 4.2, 4.3, erratum 1427', 'wire', 'rx', {
      text: 'The two low FPDUPTR bits are taken as 0 in calculations, but as received in the CRC.',
      observation: 'Marker pointer with low bits 1, CRC over the octets as sent: accepted.',
      expected: 'none',
    }),
    rule('MPA-102', 'MUST', 'RFC 5044 4.2', 'wire', 'rx', {
      text: 'The reserved half of a marker is ignored except for the CRC.',
      observation: 'Reserved half 0xFFFF with matching CRC: accepted.',
      expected: 'none',
    }),
    rule('MPA-103', 'MUST', 'RFC 5044 4.3', 'wire', 'rx', {
      text: 'Pointer arithmetic allows for TCP sequence number wrap.',
      observation: 'Long transfer over 4 GiB or a chosen initial sequence number.',
    }),
    rule('MPA-104', 'SHOULD', 'RFC 5044 8, 7.1.1 (C)', 'wire', 'rx', {
      text:
        'A marker that contradicts ULPDU_Length in an FPDU with good CRC (with CRC off: in any FPDU) is ' +
        'reported as error code 3.',
      observation: 'Marker with pointer + 4, CRC recomputed.',
      expected: 'Term 2/0/03',
    }),
    rule('MPA-105', 'MAY', 'RFC 5044 8', 'local', 'rx', {
      text: 'In order, or with several markers in one FPDU, not every marker needs to be checked.',
      observation: '-',
    }),
    rule('MPA-106', 'MUST', 'RFC 5044 4.3', 'wire', 'rx', {
      text: 'The receiver does not wait for a marker that falls after the last sent FPDU.',
      observation: 'FPDU ending exactly at a marker position: its message completes at once.',
      expected: 'none',
      derived: true,
    }),
  ]),
  ...topic('Errors and close', [
    rule('MPA-107', 'MUST', 'RFC 5044 8', 'wire', 'MPA', {
      text: 'Loss of TCP (FIN, RST, timeout) is detected as code 1 (reporting it upward is SHOULD).',
      observation:
        'FIN or RST in the middle of an FPDU: work requests flushed, no data delivered from the partial ' +
        'FPDU.',
      expected: 'close',
    }),
    rule('MPA-108', 'SHOULD', 'RFC 5044 3, 7.2', 'api', 'MPA', {
      text: 'Reception of a graceful close (FIN) is made known to DDP.',
      observation: 'API event on FIN.',
    }),
    rule('MPA-109', 'MUST', 'RFC 5044 7.2', 'wire', 'MPA', {
      text: 'Each half connection of MPA ends when DDP closes the corresponding TCP half.',
      observation: 'FIN after the last FPDU; FPDUs from the other side may still arrive.',
    }),
    rule('MPA-110', 'MUST', 'RFC 5044 8', 'wire', 'MPA', {
      text: 'Codes 1 to 4 are all detectable.',
      observation: 'Tests above.',
      expected: '2/0/01..04',
    }),
    rule('MPA-111', 'MUST', 'RFC 5044 8', 'wire', 'MPA', {
      text: 'An invalid startup frame (code 4) closes TCP immediately.',
      observation: 'Time from bad frame to FIN or RST.',
      expected: 'close',
    }),
    rule('MPA-112', 'SHOULD', 'RFC 5044 7.1.2, 8', 'wire', 'MPA', {
      text: 'No Terminate is sent during startup for code 4, because no FPDU may be sent yet.',
      observation: 'Capture.',
      expected: 'close',
      derived: true,
    }),
    rule('MPA-113', 'MUST', 'RFC 5044 9.3, 9.4; RFC 7146', 'local', 'MPA', {
      text:
        'IPsec is available as RFC 3723 profiles it (RFC 7146 updates the profile); using it is up to the ' +
        'ULP and the administrator.',
      observation: 'Operating system matter; not testable in a user-space stack.',
    }),
    rule('MPA-114', 'MUST NOT', 'RFC 5044 9.4 (SHOULD NOT in RFC 7146 3, IKEv2 included)', 'local', 'MPA', {
      text: 'Deletion of an IPsec phase 2 association does not tear the stream down.',
      observation: 'Operating system matter.',
    }),
  ]),
];
