// Requirements SEC-001..SEC-038: Security, RFC 5042 and the security sections of RFC 5040 and 5041.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const sec: readonly Requirement[] = [
  ...topic('Security', [
    rule('SEC-001', 'MUST', 'RFC 5042 6.1.1; RFC 5040 8.1.1 (1)', 'wire', 'RNIC', {
      text: 'A stream of one PD cannot use an STag of another PD (Write, Read, Invalidate, Atomic).',
      observation: 'Four operations with a foreign STag.',
      expected: 'Term 1/1/02, 0/1/03, 0/1/09',
    }),
    rule('SEC-002', 'MUST', 'RFC 5042 6.1.1; RFC 5040 8.1.1 (2)', 'wire', 'RNIC', {
      text: 'An STag limited to one stream cannot be used on another stream, even in the same PD.',
      observation: 'Two connections in one PD.',
      expected: 'Term 1/1/02, 0/1/03',
    }),
    rule('SEC-003', 'MUST', 'RFC 5042 6.1.1', 'local', 'ULP', {
      text: 'Streams that do not share STags are in separate PDs or use stream-limited STags.',
      observation: 'Configuration.',
    }),
    rule('SEC-004', 'MUST', 'RFC 5042 6.2.1; RFC 5040 8.1.1 (3)', 'wire', 'RNIC', {
      text: 'No remote access outside the registered octet range.',
      observation: 'One octet before and after the range; memory around it unchanged.',
      expected: 'Term 1/1/01, 0/1/01',
    }),
    rule('SEC-005', 'MUST', 'RFC 5040 8.1.1 (4)', 'api', 'RNIC', {
      text: 'ULP can establish and revoke the binding of buffer to STag and TO range.',
      observation: 'API.',
    }),
    rule('SEC-006', 'MUST', 'RFC 5040 8.1.1 (5)', 'api', 'RNIC', {
      text: 'ULP can set read, write or both rights.',
      observation: 'API.',
    }),
    rule('SEC-007', 'MUST', 'RFC 5042 6.2.2; RFC 5040 8.1.1 (6)', 'api', 'RNIC', {
      text: 'After revocation no packet modifies the buffer, data in flight included.',
      observation: 'Revoke during a long Write: no octet changes after the call returns.',
      expected: 'Term 1/1/00',
    }),
    rule('SEC-008', 'MUST', 'RFC 5040 8.1.1 (7)', 'wire', 'RNIC', {
      text: 'An STag shared between streams cannot be invalidated remotely.',
      observation: 'Send with Invalidate on a shared STag.',
      expected: 'Term 0/1/09 or 0/2/09',
    }),
    rule('SEC-009', 'MUST', 'RFC 5042 6.1.1; RFC 5040 8.1.1 (8)', 'api', 'RNIC', {
      text: 'STag values are hard to predict.',
      observation: 'Allocate 1000: no arithmetic progression, index bits look random.',
    }),
    rule('SEC-010', 'SHOULD', 'RFC 5042 6.1.1; RFC 5040 8.1.1 (8)', 'api', 'RNIC', {
      text: 'STags are spread over the whole range and reused as slowly as possible.',
      observation: 'Allocate, free, allocate: value does not come back soon.',
    }),
    rule('SEC-011', 'MUST NOT', 'RFC 5042 7.1; RFC 5040 8.1.1 (9)', 'local', 'RNIC', {
      text: 'No CQ is shared between ULPs without mutual trust.',
      observation: 'API structure.',
    }),
    rule('SEC-012', 'MUST', 'RFC 5042 6.4.6; RFC 5040 8.1.1 (10)', 'api', 'RNIC', {
      text: 'A CQ overflow leaves streams that do not use that CQ unaffected.',
      observation: 'Overflow CQ A; connection on CQ B goes on.',
      expected: 'Term 0/2/07 on A only',
    }),
    rule('SEC-013', 'SHOULD', 'RFC 5042 6.4.3.3; RFC 5040 8.1.1 (11)', 'api', 'RNIC', {
      text: 'The number of outstanding Read Requests can be capped.',
      observation: 'ORD setting.',
    }),
    rule('SEC-014', 'MUST', 'RFC 5042 6.4.3.3', 'wire', 'RNIC', {
      text: 'Excess Read Requests end at most the offending stream.',
      observation: 'IRD + 1 requests on A; B goes on.',
      expected: 'Term 1/2/03 etc.',
      derived: true,
    }),
    rule('SEC-015', 'MUST NOT', 'RFC 5040 8.1.1 (12)', 'local', 'RNIC', {
      text: 'No firmware from unauthenticated peers.',
      observation: 'Not applicable.',
    }),
    rule('SEC-016', 'MUST', 'RFC 5042 6.3.5', 'wire', 'ULP', {
      text: 'A buffer meant for remote write only has remote write rights only.',
      observation: 'Read from it fails, zero-length Read succeeds.',
      expected: 'Term 0/1/02',
    }),
    rule('SEC-017', 'MUST', 'RFC 5042 6.3.5; RFC 5040 5.2.1', 'wire', 'RNIC', {
      text: 'Zero-length Reads are allowed whatever the rights of the STag.',
      observation: 'As above.',
      expected: 'none',
    }),
    rule('SEC-018', 'MUST NOT', 'RFC 5042 6.3.6', 'local', 'ULP', {
      text: 'Write access to one buffer is not granted through several STags to peers without mutual trust.',
      observation: 'Configuration.',
    }),
    rule('SEC-019', 'SHOULD', 'RFC 5042 6.2.2, app. A', 'local', 'ULP', {
      text:
        'Remote access is revoked, or remote invalidation checked, before a buffer is used after the peer ' +
        'said it is ready (MUST for servers).',
      observation: 'Application design.',
    }),
    rule('SEC-020', 'SHOULD', 'RFC 5042 6.3.2, app. A', 'local', 'ULP', {
      text: 'No stale data is in a buffer before remote read is granted (MUST for servers).',
      observation: 'Freshly registered memory reads as zeros.',
    }),
    rule('SEC-021', 'SHOULD', 'RFC 5042 6.3.3', 'local', 'ULP', {
      text: 'Remote read rights last only as long as needed.',
      observation: 'Application design.',
    }),
    rule('SEC-022', 'SHOULD', 'RFC 5042 6.3.4', 'local', 'ULP', {
      text: 'Base and bounds expose only the data to be retrieved.',
      observation: 'Application design.',
    }),
    rule('SEC-023', 'MUST NOT', 'RFC 5042 6.4.5', 'local', 'ULP', {
      text: 'Streams without mutual trust do not get an STag that is valid on several streams.',
      observation: 'Configuration.',
    }),
    rule('SEC-024', 'MUST', 'RFC 5042 6.4.1, 6.4.3.2, 7.2; RFC 5040 8.1.2 (2,5)', 'local', 'PRM', {
      text:
        'Scarce resources (STags, QPs, CQ entries, read queue entries) are allocated by a privileged ' +
        'resource manager.',
      observation: 'Limits per user exist.',
    }),
    rule('SEC-025', 'SHOULD', 'RFC 5042 7.2; RFC 5040 8.1.2 (6)', 'local', 'PRM', {
      text: 'No local user gets more than a fair share.',
      observation: 'Limits.',
    }),
    rule('SEC-026', 'MUST', 'RFC 5042 6.4.3.3; RFC 5040 8.1.2 (7)', 'wire', 'PRM', {
      text: 'Read request queue entries are not shared between streams without mutual trust.',
      observation: 'IRD per connection.',
    }),
    rule('SEC-027', 'MUST', 'RFC 5042 6.4.3.1; RFC 5040 8.1.2 (8)', 'api', 'PRM', {
      text: 'With shared receive queues an unfair peer can be detected (low-water event, per-stream counts).',
      observation: 'SRQ limit event fires; count per QP available.',
    }),
    rule('SEC-028', 'MUST', 'RFC 5042 7.3; RFC 5040 8.1.2 (4)', 'api', 'PRM', {
      text: 'Unprivileged ULPs may only register memory they may access themselves.',
      observation: "API only registers caller's buffers.",
    }),
    rule('SEC-029', 'MUST NOT', 'RFC 5042 3; RFC 5040 8.1.2 (3)', 'local', 'PRM', {
      text: 'Mutual trust between ULPs or streams is not assumed without a mechanism.',
      observation: 'Design.',
    }),
    rule('SEC-030', 'MUST', 'RFC 5042 3; RFC 5040 8.1.2 (1)', 'local', 'PRM', {
      text:
        'Interactions of unprivileged ULPs that could affect other ULPs go through the privileged ' +
        'resource manager.',
      observation: 'Design.',
    }),
    rule('SEC-031', 'MUST', 'RFC 5042 6.4.3.2', 'api', 'ULP', {
      text:
        'A CQ shared by untrusted streams cannot overflow; the way given is to size it for the sum of all ' +
        'RQ, SRQ and SQ entries (the largest number ever posted, if the ULP is trusted to keep to it).',
      observation: 'Flood of completions never overflows.',
    }),
    rule('SEC-032', 'SHOULD', 'RFC 5042 6.4.4, 6.4.3.2 (recommended, lower case there)', 'wire', 'RNIC', {
      text:
        'A flood of errors or of zero-length messages does not exhaust resources of other streams; abuse ' +
        'of a slow path that does not end the stream can be seen and the stream ended by the ' +
        'administrator.',
      observation: 'Load test.',
      derived: true,
    }),
    rule('SEC-033', 'SHOULD', 'RFC 5042 6.4.2; RFC 5044 7.1.2 (10)', 'wire', 'RNIC', {
      text: 'Idle or half-open connections are bounded in number and time.',
      observation: '1000 silent connections: new ones still served.',
      expected: 'close',
      derived: true,
    }),
    rule('SEC-034', 'MUST', 'RFC 5042 6.1.1 (lower case there); RFC 5041 7.1', 'wire', 'RNIC', {
      text: 'An invalid STag tears the stream down (no retry on the same stream).',
      observation: 'Guess STags: each guess costs a connection.',
      expected: 'Term, close',
    }),
    rule('SEC-035', 'SHOULD NOT', 'RFC 5042 5.4.2', 'local', 'ULP', {
      text: 'TLS is not layered on top of RDMAP or DDP.',
      observation:
        'Design; TLS between TCP and MPA is called inappropriate too, because data can then only be ' +
        'placed in stream order, but without a normative word.',
    }),
    rule('SEC-036', 'MUST', 'RFC 5042 5.4.5; RFC 7146', 'local', 'RNIC', {
      text: 'IPsec per RFC 3723 2.3 and 5, as updated by RFC 7146, is available (operating system).',
      observation: 'Not testable in user space.',
    }),
    rule('SEC-037', 'MUST NOT', 'RFC 5042 5.4.5 (SHOULD NOT in RFC 7146 3)', 'local', 'RNIC', {
      text: 'IKE phase 2 delete does not tear down a stream.',
      observation: 'Not testable in user space.',
    }),
    rule('SEC-038', 'MUST', 'RFC 5042 6.2.1; RFC 5041 7.1, 8.1', 'wire', 'RNIC', {
      text: 'Bounds and access are checked before any octet of a segment is placed.',
      observation:
        'Write half inside, half outside: inside part unchanged too (siw may place a part of a segment ' +
        'that arrives in pieces).',
      expected: 'Term 1/1/01',
    }),
  ]),
];
