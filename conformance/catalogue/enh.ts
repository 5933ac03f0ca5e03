// Requirements ENH-001..ENH-049: Enhanced MPA connection set-up, RFC 6581.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const enh: readonly Requirement[] = [
  ...topic('Format', [
    rule('ENH-001', 'MUST', 'RFC 6581 6', 'wire', 'tx', {
      text: 'Any enhanced feature requires Rev 2 or higher.',
      observation: 'Capture: S=1 implies Rev 2.',
    }),
    rule('ENH-002', 'MUST', 'RFC 6581 6', 'wire', 'tx', {
      text: 'S=1 exactly when private data begins with the 4 enhanced octets.',
      observation: 'Capture.',
    }),
    rule('ENH-003', 'MUST', 'RFC 6581 9', 'wire', 'tx', {
      text: 'The 4 octets are big-endian with 14-bit IRD and ORD.',
      observation: 'Capture: 80 10 40 08.',
    }),
    rule('ENH-004', 'MUST', 'RFC 6581 6, 9', 'wire', 'tx', {
      text: 'PD_Length includes the 4 octets; ULP data at most 508.',
      observation: 'ULP data 508: PD_Length 512; 509: local error.',
    }),
    rule('ENH-005', 'MUST', 'RFC 6581 6, 9', 'wire', 'rx', {
      text: 'S=1 with PD_Length below 4 is malformed.',
      observation: 'Request S=1 with PD_Length 0..3.',
      expected: 'close or Reply R=1',
      derived: true,
    }),
    rule('ENH-006', 'MUST', 'RFC 6581 9', 'api', 'rx', {
      text: 'Only ULP data after the 4 octets is given to the ULP.',
      observation: 'ULP sees its own octets.',
      derived: true,
    }),
    rule('ENH-007', 'MUST NOT', 'RFC 6581 10, 6', 'wire', 'I', {
      text: 'The enhanced format is not used when no enhanced feature is wanted.',
      observation:
        'Configuration without IRD/ORD and RTR: S=0, Rev 1 (section 6 lets Rev be 1 there, it does not ' +
        'demand it).',
    }),
    rule('ENH-008', 'MUST', 'RFC 6581 6, 10', 'wire', 'R', {
      text: 'Rev 1 Requests continue to be accepted.',
      observation: 'Rev 1 Request.',
      expected: 'Reply Rev 1',
    }),
    rule('ENH-009', 'MUST', 'RFC 6581 10', 'wire', 'R', {
      text: 'An enhanced Request gets an enhanced Reply (Rev 2, S=1, 4 octets).',
      observation: 'Capture.',
    }),
    rule('ENH-010', 'MUST', 'RFC 6581 10', 'wire', 'R', {
      text: 'An unenhanced Request (S=0) gets an unenhanced Reply.',
      observation: 'Rev 1 S=0; Rev 2 S=0.',
      expected: 'Reply S=0',
    }),
    rule('ENH-011', 'MUST', 'RFC 6581 10', 'wire', 'R without support', {
      text: 'A responder that does not know the enhancement closes TCP on it.',
      observation: 'Configuration Rev 1 only: Request Rev 2 with S=1.',
      expected: 'close',
    }),
    rule('ENH-012', 'MAY', 'RFC 6581 10', 'wire', 'I', {
      text: 'After such a close the initiator may retry with Rev 1.',
      observation: 'Peer closes on Rev 2: second connection with Rev 1.',
    }),
    rule('ENH-013', 'MUST', 'RFC 6581 10', 'wire', 'I rx', {
      text:
        'A Reply without S=1 (or with Rev 1) to an enhanced Request is handled cleanly: failure, or ' +
        'operation as Rev 1.',
      observation: 'Reply Rev 1.',
      expected: 'close or Rev 1 operation',
      derived: true,
    }),
    rule('ENH-014', 'SHOULD', 'RFC 6581 12', 'wire', 'rx', {
      text: 'IRD, ORD and control bits are sanity checked.',
      observation: 'IRD 0x3FFE.',
      expected: 'clipped or refused',
    }),
  ]),
  ...topic('IRD and ORD', [
    rule('ENH-015', 'MUST', 'RFC 6581 9.1', 'wire', 'R', {
      text: "Local ORD is set to at most the initiator's IRD.",
      observation: 'IRDi 1: responder never has 2 reads outstanding.',
    }),
    rule('ENH-016', 'SHOULD', 'RFC 6581 9.1', 'wire', 'R', {
      text: 'ORDr of an accepting Reply is at most IRDi (a rejecting one: ENH-019).',
      observation: 'Capture.',
    }),
    rule('ENH-017', 'SHOULD', 'RFC 6581 9.1', 'wire', 'R', {
      text:
        'IRDr is at least ORDi; a responder that cannot do this may answer with less, and the initiator ' +
        'lowers its ORD.',
      observation: 'ORDi 8: IRDr 8 or more.',
      derived: true,
    }),
    rule('ENH-018', 'MAY', 'RFC 6581 9.1', 'wire', 'R', {
      text: 'IRDr may be raised (0 to 1) to allow a Read RTR.',
      observation: 'ORDi 0, D=1: IRDr 1 or more and D chosen, or another RTR.',
    }),
    rule('ENH-019', 'MAY', 'RFC 6581 9.1', 'wire', 'R', {
      text:
        'The request may be rejected if IRDi is too small, with the needed ORD in the rejecting Reply; no ' +
        'Terminate goes with it, R=1 has ended MPA.',
      observation: 'Require ORD 4, IRDi 1: R=1, ORDr 4.',
      expected: 'Reply R=1',
    }),
    rule('ENH-020', 'MUST', 'RFC 6581 9.1', 'wire', 'I', {
      text: 'After acceptance local ORD is at most IRDr.',
      observation: 'IRDr 1: one read outstanding.',
    }),
    rule('ENH-021', 'MUST', 'RFC 6581 9.1', 'wire', 'I', {
      text: 'After acceptance local IRD is at least ORDr.',
      observation: 'ORDr 4: four reads accepted.',
    }),
    rule('ENH-022', 'MUST', 'RFC 6581 9.1, 8', 'wire', 'I', {
      text: 'If local IRD cannot be raised to ORDr a Terminate is sent and the connection ended.',
      observation: 'ORDr 0x3FFE.',
      expected: 'Term 2/0/06',
    }),
    rule('ENH-023', 'MUST', 'RFC 6581 9.1', 'api', 'I, R', {
      text: "The peer's IRD and ORD are given to the ULP, for accept and for reject.",
      observation: 'API.',
    }),
    rule('ENH-024', 'MUST', 'RFC 6581 9.1', 'wire', 'R', {
      text: 'ORDi 0x3FFF: local IRD unchanged and IRDr is 0x3FFF.',
      observation: 'Capture.',
    }),
    rule('ENH-025', 'MUST', 'RFC 6581 9.1', 'wire', 'R', {
      text: 'IRDi 0x3FFF: local ORD unchanged and ORDr is 0x3FFF.',
      observation: 'Capture.',
    }),
    rule('ENH-026', 'MUST', 'RFC 6581 9.1', 'wire', 'I', {
      text: 'IRDr 0x3FFF leaves local ORD unchanged.',
      observation: 'Reads limited by the configured ORD.',
    }),
    rule('ENH-027', 'MUST', 'RFC 6581 9.1', 'wire', 'I', {
      text: 'ORDr 0x3FFF leaves local IRD unchanged.',
      observation: '-',
    }),
  ]),
  ...topic('RTR', [
    rule('ENH-028', 'MUST', 'RFC 6581 9.2', 'wire', 'I', {
      text: 'A=1 in the Request for the peer-to-peer model, with B, C, D set for every supported kind.',
      observation: 'Capture.',
    }),
    rule('ENH-029', 'MUST', 'RFC 6581 9.2', 'wire', 'I', {
      text: 'A=0 for the client-server model.',
      observation: 'Capture.',
    }),
    rule('ENH-030', 'MUST', 'RFC 6581 9.2', 'wire', 'tx', {
      text: 'A=0 implies B=C=D=0.',
      observation: 'Capture.',
    }),
    rule('ENH-031', 'MUST', 'RFC 6581 9.2', 'wire', 'rx', {
      text: 'With A=0 the bits B, C, D are ignored.',
      observation: 'Request A=0, C=D=1: Reply A=0 and no wait for RTR.',
      expected: 'none',
    }),
    rule('ENH-032', 'MUST', 'RFC 6581 9.2', 'wire', 'R', {
      text: 'The Reply repeats A.',
      observation: 'A=1 gives A=1, A=0 gives A=0.',
    }),
    rule('ENH-033', 'MUST', 'RFC 6581 9.2', 'wire', 'R', {
      text: 'At least one RTR kind is supported if the enhancement is supported.',
      observation: 'A=1 Reply has at least one of B, C, D.',
    }),
    rule('ENH-034', 'SHOULD', 'RFC 6581 9.2', 'wire', 'R', {
      text: 'For each requested and supported kind the bit is set in the Reply.',
      observation: 'Request C=D=1.',
    }),
    rule('ENH-035', 'MAY', 'RFC 6581 9.2', 'wire', 'R', {
      text: 'Not all supported kinds need be set; unrequested supported kinds may be set.',
      observation: 'Capture.',
    }),
    rule('ENH-036', 'MUST', 'RFC 6581 9.2', 'wire', 'R', {
      text: 'If none of the requested kinds is supported, a supported one is set.',
      observation: 'Request B only.',
    }),
    rule('ENH-037', 'SHOULD', 'RFC 6581 9.2; observed peers', 'wire', 'R', {
      text:
        'For interoperability exactly one requested bit is set in the Reply (cxgb4 compares for ' +
        'equality).',
      observation: 'Capture.',
      derived: true,
    }),
    rule('ENH-038', 'MUST', 'RFC 6581 9.2', 'wire', 'I', {
      text: 'After an accepting Reply with A=1 one of the negotiated RTR messages is sent.',
      observation: 'First FPDU is that zero-length message.',
    }),
    rule('ENH-039', 'MUST NOT', 'RFC 6581 5', 'wire', 'I', {
      text: 'No later FPDU is sent before the RTR message.',
      observation: 'Post Sends before establishment: RTR is first.',
    }),
    rule('ENH-040', 'MUST', 'RFC 6581 9.2, 8', 'wire', 'I', {
      text:
        'If none of the kinds in the Reply can be generated, a Terminate is sent and the connection ' +
        'ended.',
      observation: 'Reply A=1 with only an unrequested kind.',
      expected: 'Term 2/0/07',
    }),
    rule('ENH-041', 'MUST', 'RFC 6581 4.4.2, 5', 'api', 'R', {
      text: 'The RTR message is consumed below the ULP: no completion, no receive buffer for Write and Read.',
      observation: 'No completion at the responder ULP.',
      derived: true,
    }),
    rule('ENH-042', 'MUST', 'RFC 5040 5.2.1', 'wire', 'R', {
      text: 'A Read RTR is answered by a zero-length Read Response.',
      observation: 'Capture.',
      derived: true,
    }),
    rule('ENH-043', 'MUST', 'RFC 6581 4.4.2', 'api', 'I', {
      text:
        'The response to a Read RTR gives no completion to the ULP and does not occupy a send queue entry ' +
        'of the ULP.',
      observation: 'API.',
      derived: true,
    }),
    rule('ENH-044', 'MUST', 'RFC 5041 4.3', 'wire', 'I', {
      text: 'A Read RTR counts as outstanding read and uses MSN 1 of queue 1.',
      observation: 'Next Read Request has MSN 2.',
      derived: true,
    }),
    rule('ENH-045', 'MUST', 'RFC 6581 3, RFC 5044 7.1.2 (4)', 'wire', 'R', {
      text: 'The responder may transmit once the RTR message has arrived.',
      observation: 'Responder-first Send appears after the RTR.',
      derived: true,
    }),
    rule('ENH-046', 'MUST', 'RFC 6581 9.3', 'api', 'I, R', {
      text:
        'Any other local error during this setup is reported by a Terminate before the reset; a responder ' +
        'that has not yet received an FPDU cannot do it without breaking MPA-028.',
      observation: 'Force resource failure.',
      expected: 'Term 2/0/05; responder before the first FPDU: close or Reply R=1 too',
    }),
    rule('ENH-047', 'MUST', 'RFC 6581 10', 'api', 'I, R', {
      text: 'Reply lost to RST or FIN before arrival fails the connection at both ULPs.',
      observation: 'RST after Request.',
      expected: 'close',
      derived: true,
    }),
    rule('ENH-048', 'MUST', 'RFC 6581 5', 'api', 'I, R', {
      text: 'All setup frames are exchanged over TCP and not reported through work completions.',
      observation: 'API.',
    }),
    rule('ENH-049', 'SHOULD', 'RFC 6581 5', 'api', 'API', {
      text: 'The ULP can ask for an RTR per connection or application.',
      observation: 'API.',
      derived: true,
    }),
  ]),
];
