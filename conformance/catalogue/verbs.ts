// Requirements VERBS-001..VERBS-177: RDMA verbs, draft-hilland-rddp-verbs-00.
// Data only, in id order; types.ts says what the columns mean.

import { rule, topic } from './rule.ts';
import type { Requirement } from './types.ts';

export const verbs: readonly Requirement[] = [
  ...topic('Protection domains and completion queues', [
    rule('VERBS-001', 'MUST', 'verbs draft 5.2', 'api', 'RI', {
      text: 'QP, MR, MW and SRQ each belong to exactly one PD; one PD may have many of each.',
      observation: 'API.',
    }),
    rule('VERBS-002', 'MUST', 'verbs draft 5.2.1', 'api', 'RI', {
      text: 'PD identifiers are unique per device.',
      observation: 'API.',
    }),
    rule('VERBS-003', 'MUST', 'verbs draft 5.2.2', 'api', 'RI', {
      text: 'A PD in use cannot be deallocated.',
      observation: 'Deallocate with a QP, SRQ, MR or MW left.',
      expected: 'IE',
    }),
    rule('VERBS-004', 'MUST', 'verbs draft 5.3, 8.2.4', 'api', 'RI', {
      text: 'Work completions are only obtained by polling the CQ.',
      observation: 'API.',
    }),
    rule('VERBS-005', 'MUST', 'verbs draft 5.3', 'api', 'RI', {
      text: 'A CQ serves send queues, receive queues or both, of any number of QPs, or none.',
      observation: 'API.',
    }),
    rule('VERBS-006', 'MUST', 'verbs draft 5.3.1', 'api', 'RI', {
      text: 'Create CQ takes a size, allocates at least that and returns the real size, or fails.',
      observation: 'Ask above the limit.',
      expected: 'IE',
    }),
    rule('VERBS-007', 'MAY', 'verbs draft 5.3.1', 'api', 'RI', {
      text: 'CQ overflow detection is optional.',
      observation: '-',
      expected: 'AE "CQ overflow"',
    }),
    rule('VERBS-008', 'MUST NOT', 'verbs draft 5.3.1', 'api', 'RI', {
      text: 'Overflow of a CQ does not affect QPs reporting elsewhere nor other CQs.',
      observation: 'Overflow one, use the other.',
    }),
    rule('VERBS-009', 'MUST NOT', 'verbs draft 5.3.1', 'api', 'RI', {
      text: 'A CQ smaller than the sum of its work queues is not refused.',
      observation: 'Create QP with larger queues.',
    }),
    rule('VERBS-010', 'MUST', 'verbs draft 8.3.3', 'api', 'RI', {
      text: 'A CQ overflow hit by a completion of a QP terminates that QP.',
      observation: 'Overflow while the peer watches.',
      expected: 'Term 0/2/07, AE',
    }),
    rule('VERBS-011', 'MUST', 'verbs draft 5.3.2', 'api', 'RI', {
      text: 'CQ size and event handler can be queried.',
      observation: 'API.',
    }),
    rule('VERBS-012', 'MUST', 'verbs draft 5.3.3', 'api', 'RI', {
      text: 'A CQ can be resized with work outstanding, without losing completions; atomically.',
      observation: 'Resize under load.',
    }),
    rule('VERBS-013', 'MUST NOT', 'verbs draft 5.3.3', 'api', 'RI', {
      text: 'A CQ is not shrunk below its current number of entries.',
      observation: 'Shrink.',
      expected: 'IE',
    }),
    rule('VERBS-014', 'MUST NOT', 'verbs draft 5.3.4', 'api', 'RI', {
      text: 'A CQ with associated work queues is not destroyed.',
      observation: 'Destroy.',
      expected: 'IE',
    }),
    rule('VERBS-015', 'MUST NOT', 'verbs draft 5.3.4', 'api', 'RI', {
      text: 'After destruction no completion of that CQ is returned.',
      observation: 'API.',
    }),
  ]),
  ...topic('Queue pair creation, modification, destruction', [
    rule('VERBS-016', 'MUST', 'verbs draft 6.1.1', 'api', 'RI', {
      text:
        'Create QP needs the complete attribute set; each work queue gets exactly one CQ; the QP gets a ' +
        'PD and an unused QP ID.',
      observation: 'API.',
      expected: 'IE if incomplete',
    }),
    rule('VERBS-017', 'MUST', 'verbs draft 6.1.1', 'api', 'RI', {
      text: 'SQ and RQ depth can differ; the allocated numbers (at least the requested) are returned.',
      observation: 'API.',
      expected: 'IE if impossible',
    }),
    rule('VERBS-018', 'MUST', 'verbs draft 6.5, 9.2.5.1', 'api', 'RI', {
      text:
        'IRD and ORD are set at creation; allocated ORD lies between 0 and the request; non-zero request ' +
        'with nothing available fails.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-019', 'MUST NOT', 'verbs draft 6.1.1, 6.2.1', 'api', 'RI', {
      text: 'Create QP does not attach an LLP stream; the QP starts in Idle.',
      observation: 'API.',
    }),
    rule('VERBS-020', 'MUST', 'verbs draft 6.2', 'api', 'RI', {
      text: 'A QP is in exactly one of Idle, RTS, Closing, Terminate, Error.',
      observation: 'API.',
    }),
    rule('VERBS-021', 'MUST', 'verbs draft 6.1.3', 'api', 'RI', {
      text:
        'Modify QP lacking a required attribute, with an invalid attribute or an illegal transition ' +
        'changes nothing and fails.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-022', 'MUST', 'verbs draft 6.1.3, 6.2.1 to 6.2.5', 'api', 'RI', {
      text:
        'Legal Modify transitions: Idle to Idle, RTS, Error; RTS to RTS, Closing, Terminate, Error; Error ' +
        'to Idle.',
      observation: 'API matrix 5 x 5.',
      expected: 'IE otherwise',
    }),
    rule('VERBS-023', 'MUST', 'verbs draft 6.2.3, 6.2.5', 'api', 'RI', {
      text: 'Any Modify QP in Terminate or Closing fails.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-024', 'MUST', 'verbs draft 6.5', 'api', 'RI', {
      text: 'ORD may be reduced in Idle and RTS; other changes of IRD and ORD are optional.',
      observation: 'API.',
      expected: 'IE or effect',
    }),
    rule('VERBS-025', 'MUST', 'verbs draft 6.1.3', 'api', 'RI', {
      text: 'Queue depth cannot be set below the number of outstanding requests.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-026', 'MUST', 'verbs draft 6.1.4', 'api', 'RI', {
      text: 'Destroy QP works in every state, unless memory windows are bound to it.',
      observation: 'API.',
      expected: 'IE with bound MW',
    }),
    rule('VERBS-027', 'MUST', 'verbs draft 6.1.4', 'api', 'RI', {
      text: 'Destroy QP detaches the LLP; afterwards no further completions for it are produced.',
      observation: 'Peer sees FIN or RST.',
      expected: 'close',
    }),
    rule('VERBS-028', 'MAY', 'verbs draft 6.1.4', 'api', 'RI', {
      text: 'Destroying a QP in RTS may reset the LLP.',
      observation: 'Peer sees RST or FIN.',
      expected: 'close',
    }),
    rule('VERBS-029', 'MUST', 'verbs draft 6.1.2, 9.2.5.2', 'api', 'RI', {
      text:
        'Query QP returns the attributes and, in Terminate and Error, the Terminate message sent or ' +
        'received with its origin.',
      observation: 'API.',
    }),
    rule('VERBS-030', 'MUST', 'verbs draft 9.2 to 9.4', 'api', 'RI', {
      text:
        'The verbs of chapter 9 exist: open, query, close device; PD; CQ create, query, modify, destroy; ' +
        'SRQ (if supported) likewise; QP create, query, modify, destroy; STag allocate, register, ' +
        're-register, register shared, query, deallocate; MW allocate, query; post SQ, post RQ, poll, ' +
        'request notification; set completion and asynchronous event handlers.',
      observation: 'API.',
    }),
  ]),
  ...topic('QP states', [
    rule('VERBS-031', 'MAY', 'verbs draft 6.2.1', 'api', 'RI', {
      text: 'Work requests may be posted in Idle; they are not processed and give no completions.',
      observation: 'Post receive and send in Idle: nothing on the wire.',
    }),
    rule('VERBS-032', 'MUST NOT', 'verbs draft 6.2.1', 'api', 'RI', {
      text: 'No LLP stream is attached in Idle.',
      observation: 'API.',
    }),
    rule('VERBS-033', 'MUST', 'verbs draft 6.2.1.2', 'api', 'RI', {
      text: 'Idle to RTS needs an established LLP stream.',
      observation: 'Dead socket.',
      expected: 'IE',
    }),
    rule('VERBS-034', 'MUST', 'verbs draft 6.2.1.2', 'api', 'RI', {
      text: 'Idle to RTS resets MSNs and marker position.',
      observation: 'Reuse the QP: MSN 1, markers from 0.',
    }),
    rule('VERBS-035', 'MUST', 'verbs draft 6.2.1.2', 'api', 'RI', {
      text: 'A stream message buffer given with Idle to RTS is sent in streaming mode first.',
      observation: 'Wire: buffer, then FPDUs.',
    }),
    rule('VERBS-036', 'MUST NOT', 'verbs draft 6.2.1.2', 'wire', 'RI', {
      text: 'No FPDU is lost, however fast the peer sends after the switch.',
      observation: 'FPDU in the same TCP segment as the last startup octets (where the peer permits).',
    }),
    rule('VERBS-037', 'MUST', 'verbs draft 6.2.1.3', 'api', 'RI', {
      text: 'Idle to Error flushes everything posted.',
      observation: 'Flushed completions.',
    }),
    rule('VERBS-038', 'MUST', 'verbs draft 6.2.2', 'api', 'RI', {
      text: 'In RTS posted work is processed in order and incoming messages are processed.',
      observation: '-',
    }),
    rule('VERBS-039', 'MUST', 'verbs draft 6.2.2.2', 'wire', 'RI', {
      text: 'LLP close by the peer with SQ empty and no inbound read in progress: RTS to Closing, AE.',
      observation: 'Peer FIN: tested side FINs, event, QP Idle at the end.',
      expected: 'FIN',
    }),
    rule('VERBS-040', 'MUST', 'verbs draft 6.2.2.2, 8.3.3', 'wire', 'RI', {
      text: 'LLP close by the peer with work left: RTS to Terminate, AE "Bad LLP Close".',
      observation: 'FIN while a Read is being answered: Terminate on the other half.',
      expected: 'Term 0/2/07',
    }),
    rule('VERBS-041', 'MUST', 'verbs draft 6.2.2.2, 6.6.2.1', 'api', 'RI', {
      text: 'Modify to Closing starts an LLP close without AE.',
      observation: 'Peer sees FIN, no Terminate.',
      expected: 'FIN',
    }),
    rule('VERBS-042', 'MUST', 'verbs draft 6.2.5', 'api', 'RI', {
      text:
        'Closing: receive queue is flushed with Flushed status, then LLP close completes, AE "LLP Close ' +
        'Complete", state Idle.',
      observation: 'API.',
      expected: 'FIN',
    }),
    rule('VERBS-043', 'MUST', 'verbs draft 6.2.5', 'api', 'RI', {
      text:
        'Closing: SQ work, a remote read in progress or an incoming segment lead to LLP reset, AE "Bad ' +
        'Close", Error.',
      observation: 'Segment sent after the local FIN.',
      expected: 'RST',
    }),
    rule('VERBS-044', 'MUST', 'verbs draft 6.2.5', 'api', 'RI', {
      text: 'Closing: LLP failure or timeout leads to LLP reset, AE "LLP Connection Lost", Error.',
      observation: 'Peer never answers the FIN.',
      expected: 'RST after a bounded time',
    }),
    rule('VERBS-045', 'MUST', 'verbs draft 6.2.3, 6.2.5', 'wire', 'RI', {
      text: 'The time in Closing and in Terminate is bounded by a timeout.',
      observation: 'Peer that never closes: RST.',
      expected: 'RST',
    }),
    rule('VERBS-046', 'MAY', 'verbs draft 6.2.5', 'api', 'RI', {
      text: 'A Terminate arriving in Closing may be kept for Query QP.',
      observation: 'API.',
    }),
    rule('VERBS-047', 'MUST', 'verbs draft 6.2.2.3, 6.2.3', 'api', 'RI', {
      text:
        'Modify to Terminate sends Terminate 0/0 (local catastrophic, no headers), then LLP close, then ' +
        'Error; no "Error State Entered" AE for the caller\'s own request (the informative 6.6.2.2 says ' +
        'there is one).',
      observation: 'Wire.',
      expected: 'Term 0/0/00, FIN',
    }),
    rule('VERBS-048', 'MUST', 'verbs draft 6.2.2.3', 'wire', 'RI', {
      text: 'Any error that calls for a Terminate moves RTS to Terminate.',
      observation: 'Faults above.',
      expected: 'Term',
    }),
    rule('VERBS-049', 'MUST', 'verbs draft 6.2.2.3, 8.3.2', 'api', 'RI', {
      text: 'The WR that caused the error completes with its error code.',
      observation: 'API.',
      expected: 'CE',
    }),
    rule('VERBS-050', 'MUST', 'verbs draft 6.2.2.3, 8.3.3', 'wire', 'RI', {
      text:
        'A received Terminate moves to Terminate state with AE "Terminate Message Received" and no ' +
        'Terminate is sent back.',
      observation: 'Wire: FIN or RST only.',
      expected: 'close',
    }),
    rule('VERBS-051', 'MUST', 'verbs draft 6.2.3', 'wire', 'RI', {
      text:
        'In Terminate state: stop processing, try to send the Terminate (unless one was received), close ' +
        'the LLP, then Error.',
      observation: 'Term then FIN.',
      expected: 'Term, FIN',
    }),
    rule('VERBS-052', 'MUST', 'verbs draft 6.2.3', 'api', 'RI', {
      text:
        'If the LLP fails while in Terminate state it is reset; AE "Bad Close" where no other report is ' +
        'made.',
      observation: 'RST from the peer during this time.',
      expected: 'RST',
    }),
    rule('VERBS-053', 'MUST', 'verbs draft 6.2.3', 'wire', 'RI', {
      text: 'Incoming segments in Terminate state are ignored.',
      observation: 'Write during that time: not placed.',
    }),
    rule('VERBS-054', 'MUST', 'verbs draft 6.2.2.4, 6.6.2.3, 6.4 fig. 12', 'api', 'RI', {
      text: 'Modify to Error resets the LLP without Terminate.',
      observation: 'Wire: RST, no Terminate.',
      expected: 'RST',
    }),
    rule('VERBS-055', 'MUST', 'verbs draft 6.2.2.4, 8.3.3', 'api', 'RI', {
      text: 'LLP failure in RTS moves to Error with AE ("LLP Connection Lost" or "LLP Connection Reset").',
      observation: 'Peer RST.',
    }),
    rule('VERBS-056', 'MUST', 'verbs draft 6.2.4', 'api', 'RI', {
      text: 'In Error all outstanding work is completed as Flushed, except the one that caused the error.',
      observation: 'API.',
    }),
    rule('VERBS-057', 'MUST NOT', 'verbs draft 6.2.4', 'api', 'RI', {
      text: 'At most one completion of a QP has a status other than Success or Flushed.',
      observation: 'API.',
    }),
    rule('VERBS-058', 'MUST', 'verbs draft 6.2.3 to 6.2.5', 'api', 'RI', {
      text:
        'Posting in Terminate, Error or Closing either enqueues and flushes, or (at some point always) ' +
        'fails.',
      observation: 'API.',
      expected: 'IE or Flushed',
    }),
    rule('VERBS-059', 'MUST', 'verbs draft 6.2.4', 'api', 'RI', {
      text: 'Error to Idle fails while flushing is unfinished, and works afterwards.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-060', 'MUST', 'verbs draft 6.2.3 to 6.2.5', 'api', 'RI', {
      text: 'The LLP is detached on entering Error or Idle.',
      observation: 'Socket closed.',
    }),
    rule('VERBS-061', 'MUST', 'verbs draft 8.2.4', 'api', 'RI', {
      text: 'Completions of QPs in any state can be retrieved.',
      observation: 'Poll after Error.',
    }),
  ]),
  ...topic('Stopping and Terminate rules', [
    rule('VERBS-062', 'MUST', 'verbs draft 6.4 (1)', 'wire', 'RI', {
      text:
        'Transmission stops only at a DDP segment boundary, and the Terminate follows the last complete ' +
        'segment.',
      observation: 'Error during a long Write: FPDU stream stays parseable.',
      expected: 'Term',
    }),
    rule('VERBS-063', 'MUST', 'verbs draft 6.4 (1,4)', 'api', 'RI', {
      text: 'If an error hits a segment not yet begun, the Terminate replaces it.',
      observation: 'Local protection error in the second segment.',
      expected: 'Term 0/0/00',
    }),
    rule('VERBS-064', 'MUST', 'verbs draft 6.4 (1)', 'local', 'RI', {
      text: 'If a segment has already been begun and is corrupted, the LLP is reset.',
      observation: 'Not reachable without fault injection.',
      expected: 'RST',
    }),
    rule('VERBS-065', 'MUST', 'verbs draft 6.4 (2)', 'wire', 'RI', {
      text:
        'Inbound processing stops by the end of the segment in process; later segments are ignored and ' +
        'placed-but-undelivered ones never delivered.',
      observation: 'Bad Write followed by Send.',
    }),
    rule('VERBS-066', 'MUST', 'verbs draft 6.4 (7)', 'wire', 'RI', {
      text:
        'The action for an error is taken when the faulty segment is delivered; the first delivered error ' +
        'counts.',
      observation: 'Two faults in sequence: first reported.',
      expected: 'Term',
    }),
    rule('VERBS-067', 'MUST', 'verbs draft 6.4 (8)', 'wire', 'RI', {
      text: "The Terminate for an incoming segment's error includes that segment's header.",
      observation: 'Wire.',
      expected: 'Term M, D',
    }),
    rule('VERBS-068', 'MUST NOT', 'verbs draft 6.4 fig. 12', 'wire', 'RI', {
      text:
        'No Terminate for LLP errors such as a received reset, for Modify to Error, or in answer to a ' +
        'Terminate.',
      observation: 'Wire.',
    }),
    rule('VERBS-069', 'MUST', 'verbs draft 6.4 (5)', 'wire', 'RI', {
      text: 'Errors while creating Read Responses put the Terminate in place of the faulty response.',
      observation: 'Deregister during a read.',
      expected: 'Term 0/1/xx',
    }),
  ]),
  ...topic('Reads: IRD and ORD', [
    rule('VERBS-070', 'MUST', 'verbs draft 6.5', 'api', 'RI', {
      text: 'At least IRD 1 and ORD 1 are possible for every QP.',
      observation: 'API.',
    }),
    rule('VERBS-071', 'MUST NOT', 'verbs draft 6.5', 'wire', 'RI', {
      text: 'Never more Read Requests outstanding than ORD.',
      observation: 'Wire.',
    }),
    rule('VERBS-072', 'MUST', 'verbs draft 6.5, 8.2.2 (18)', 'api', 'RI', {
      text:
        'More reads than ORD may be posted; the SQ stalls at the excess read until an earlier one ' +
        'completes, and work after it waits too.',
      observation: 'ORD 1: Read, Read, Send: order on the wire kept.',
    }),
    rule('VERBS-073', 'MUST', 'verbs draft 8.2.2 (18), 8.3.2', 'api', 'RI', {
      text: 'A read posted on a QP with ORD 0 completes in error.',
      observation: 'API.',
      expected: 'CE "Zero RDMA Read Resources", Term 0/0/00',
    }),
    rule('VERBS-074', 'MUST', 'verbs draft 6.5, 8.3.3', 'wire', 'RI', {
      text: 'Too many inbound Read Requests terminate the stream.',
      observation: 'Wire.',
      expected: 'Term 1/2/03',
    }),
    rule('VERBS-075', 'MUST', 'verbs draft 8.3.3', 'api', 'RI', {
      text: 'A Read Request on a QP with inbound read disabled is refused.',
      observation: 'Disable.',
      expected: 'Term 1/2/01',
    }),
    rule('VERBS-076', 'MUST', 'verbs draft 6.5', 'api', 'RI', {
      text: 'IRD and ORD changes with reads outstanding do not harm other QPs.',
      observation: 'API.',
    }),
    rule('VERBS-077', 'MAY', 'verbs draft 8.2.2 (15)', 'wire', 'RI', {
      text: 'SQ work after a read may start before the read completes, unless fenced.',
      observation: 'Wire.',
    }),
  ]),
  ...topic('Work requests and scatter/gather', [
    rule('VERBS-078', 'MUST', 'verbs draft 8.1.2.1', 'api', 'RI', {
      text: 'Send kinds only on SQ; only receives on RQ and SRQ.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-079', 'MUST', 'verbs draft 9.3.1.1', 'api', 'RI', {
      text:
        'Send, Send SE, Send Inv, Send SE Inv, Write, Read, Read with local invalidate, Bind, ' +
        'Fast-Register, Invalidate are the SQ operations.',
      observation: 'API.',
    }),
    rule('VERBS-080', 'MUST NOT', 'verbs draft 8.1.2.2', 'wire', 'RI', {
      text: 'Write and Read do not use a receive WR at the peer.',
      observation: 'Peer with no receives posted: works.',
    }),
    rule('VERBS-081', 'MUST', 'verbs draft 8.1.2.1, 8.3.2', 'wire', 'RI', {
      text: 'Receive SGL too small for the message is an error.',
      observation: 'Wire.',
      expected: 'CE; Term 0/0/00 by draft, 1/2/05 by RFC 5041',
    }),
    rule('VERBS-082', 'MUST', 'verbs draft 8.1.2.1', 'api', 'RI', {
      text: 'The received length is in the completion; on errors it is indeterminate.',
      observation: 'API.',
    }),
    rule('VERBS-083', 'MUST', 'verbs draft 8.1.3.2, 8.1.3.3', 'api', 'RI', {
      text:
        'At least 4 SGEs for Send and Receive; 1 for Write suffices; exactly one local and one remote ' +
        'address for Read.',
      observation: 'API.',
      expected: 'IE above limit',
    }),
    rule('VERBS-084', 'MUST', 'verbs draft 8.1.3.2', 'api', 'RI', {
      text: 'SGL total is at most 2^32 - 1 and may be 0.',
      observation: 'API.',
      expected: 'IE or CE',
    }),
    rule('VERBS-085', 'MUST NOT', 'verbs draft 8.1.3.2', 'api', 'RI', {
      text: 'The STag of a zero-length SGE is not validated.',
      observation: 'Garbage STag, length 0: success.',
    }),
    rule('VERBS-086', 'MUST', 'verbs draft 7.4.1, 7.5.1', 'api', 'RI', {
      text:
        'Local read right needed for Send and Write sources, local write for receive sinks; remote rights ' +
        'do not count for SGEs.',
      observation: 'API.',
      expected: 'CE, Term 0/0/00',
    }),
    rule('VERBS-087', 'MUST', 'verbs draft 7.4.2, 7.5.2', 'api', 'RI', {
      text:
        'For Reads the local sink needs remote write right (local rights are not looked at), checked when ' +
        'the response arrives.',
      observation: 'Read into a region without remote write.',
      expected: 'Term 1/1/02 (many stacks only ask for local write)',
    }),
    rule('VERBS-088', 'MUST', 'verbs draft 8.1.3.2', 'api', 'RI', {
      text: 'A memory window STag in an SGE is an error.',
      observation: 'API.',
      expected: 'CE',
    }),
    rule('VERBS-089', 'MUST', 'verbs draft 7.6.3', 'api', 'RI', {
      text: 'The PD of every local STag matches the QP (SRQ receives: the SRQ).',
      observation: 'API.',
      expected: 'CE',
    }),
    rule('VERBS-090', 'MUST', 'verbs draft 8.2.1', 'api', 'RI', {
      text:
        'A list of WRs is posted in order, stops at the first immediate error, and the count posted is ' +
        'returned.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-091', 'MUST', 'verbs draft 8.2.1', 'api', 'RI', {
      text: 'Posting to a full queue fails.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-092', 'MUST', 'verbs draft 8.2.1', 'api', 'RI', {
      text:
        'A queue slot is free again only after its completion was reaped (unsignaled: completed, or a ' +
        'later completion reaped).',
      observation: 'API.',
    }),
    rule('VERBS-093', 'MUST', 'verbs draft 8.2.1', 'api', 'RI', {
      text: 'Posting returns immediately.',
      observation: 'API.',
    }),
    rule('VERBS-094', 'MUST', 'verbs draft 8.2.2 (1,2)', 'api', 'RI', {
      text: 'Work on one SQ is started and sent in posting order, and completed in posting order.',
      observation: 'Wire, API.',
    }),
    rule('VERBS-095', 'MUST', 'verbs draft 8.2.2 (12)', 'api', 'RI', {
      text: 'Receives complete in MSN order and, on an RQ, in posting order.',
      observation: 'API.',
    }),
    rule('VERBS-096', 'MUST', 'verbs draft 8.2.2 (13)', 'api', 'RI', {
      text:
        'On completion of a receive, all earlier Sends and Writes of that stream are complete at this ' +
        'side.',
      observation: 'Data compare.',
    }),
    rule('VERBS-097', 'MUST', 'verbs draft 8.2.2 (16)', 'wire', 'RI', {
      text: "Before a Read Request is served all earlier messages of the peer's SQ are delivered.",
      observation: 'Write, Read.',
    }),
  ]),
  ...topic('Fences and memory operation order', [
    rule('VERBS-098', 'MUST', 'verbs draft 8.2.2.2', 'api', 'RI', {
      text:
        'Read Fence on Send kinds and Write: not started before all prior reads are complete, then SQ ' +
        'goes on.',
      observation: 'Read, fenced Send; delay the response: Send stays back.',
    }),
    rule('VERBS-099', 'MUST', 'verbs draft 8.2.2.2', 'api', 'RI', {
      text: 'Local Fence on Invalidate: waits for all prior SQ work.',
      observation: 'API.',
    }),
    rule('VERBS-100', 'MUST', 'verbs draft 8.2.2.1', 'api', 'RI', {
      text: 'Fast-Register, Bind and Invalidate take effect before any later WR starts.',
      observation: 'Fast-Register, Send advertising it: peer can use it.',
    }),
    rule('VERBS-101', 'MAY', 'verbs draft 8.2.2.1', 'local', 'RI', {
      text: 'They may take effect before earlier WRs complete.',
      observation: '-',
    }),
    rule('VERBS-102', 'MUST', 'verbs draft 8.2.2.1', 'api', 'RI', {
      text:
        'Read with local invalidate: invalidation after the response ' +
        'is placed and before the completion.',
      observation: 'API.',
    }),
    rule('VERBS-103', 'MUST', 'verbs draft 8.2.2.1', 'api', 'RI', {
      text: 'Remote invalidation: after the Send payload is placed and before the receive completes.',
      observation: 'API.',
    }),
    rule('VERBS-104', 'MUST NOT', 'verbs draft 8.1.2.3', 'api', 'RI', {
      text: 'Bind, Fast-Register and Invalidate cause no transmission.',
      observation: 'Wire.',
    }),
    rule('VERBS-105', 'MAY', 'verbs draft 8.2.2.2', 'local', 'ULP', {
      text: 'Write, then zero-length Read, then fenced Write is an end-to-end fence.',
      observation: 'Wire.',
    }),
  ]),
  ...topic('Completions and notification', [
    rule('VERBS-106', 'MUST', 'verbs draft 8.1.3.1, 8.2.4', 'api', 'RI', {
      text:
        'Unsignaled SQ work that succeeds gives no completion; ' +
        'failing work and everything after it does.',
      observation: 'API.',
    }),
    rule('VERBS-107', 'MUST', 'verbs draft 8.1.3.1', 'api', 'RI', {
      text: 'Every receive gives a completion.',
      observation: 'API.',
    }),
    rule('VERBS-108', 'MUST', 'verbs draft 8.2.4', 'api', 'RI', {
      text: 'At most one completion per WR.',
      observation: 'API.',
    }),
    rule('VERBS-109', 'MUST NOT', 'verbs draft 8.2.4', 'api', 'RI', {
      text: 'Buffers of a completed WR are no longer touched.',
      observation: 'Overwrite after completion: peer data intact.',
    }),
    rule('VERBS-110', 'MUST', 'verbs draft 9.3.2.1', 'api', 'RI', {
      text:
        'Completion contents: 64-bit WR id, operation, byte count (receive), status, invalidated STag ' +
        'with indicator, QP ID; the WR id is valid whatever the status.',
      observation: 'API.',
    }),
    rule('VERBS-111', 'MUST', 'verbs draft 9.5.2', 'api', 'RI', {
      text:
        'Completion statuses: Success, Flushed, Invalid WQE, Local QP Catastrophic, Remote Termination, ' +
        'Invalid STag, Base and Bounds, Access, Invalid PD, Wrap, Invalidate STag PD or Access, Zero Read ' +
        'Resources, and the Bind, Fast-Register and length errors of figure 36.',
      observation: 'API.',
    }),
    rule('VERBS-112', 'MUST', 'verbs draft 9.5.2, 6.2.4', 'api', 'RI', {
      text:
        'Work that a received Terminate appears to relate to may complete with Remote Termination; all ' +
        'other outstanding work is Flushed.',
      observation: 'API.',
    }),
    rule('VERBS-113', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text:
        'Notification request is one-shot per CQ, for the next completion or the next solicited ' +
        'completion.',
      observation: 'API.',
    }),
    rule('VERBS-114', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text: 'Existing entries do not trigger it; the next added entry does.',
      observation: 'API.',
    }),
    rule('VERBS-115', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text:
        'Solicited: triggered by a Send SE or Send SE Inv that consumed a receive, and by any completion ' +
        'in error.',
      observation: 'Plain Send: no event; SE: event; flush: event.',
    }),
    rule('VERBS-116', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text: 'Next completion: triggered by any receive completion or signaled SQ completion.',
      observation: 'API.',
    }),
    rule('VERBS-117', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text: 'If both kinds were asked for, the next-completion kind wins; one call only.',
      observation: 'API.',
    }),
    rule('VERBS-118', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text: 'Poll until empty, arm, poll again loses no event.',
      observation: 'Race test.',
    }),
    rule('VERBS-119', 'MUST', 'verbs draft 8.2.5', 'api', 'RI', {
      text: 'The handler gets the CQ handle; the RI does not poll on behalf of the consumer.',
      observation: 'API.',
    }),
    rule('VERBS-120', 'MUST', 'verbs draft 8.3.3, 9.4.2', 'api', 'RI', {
      text:
        'Asynchronous events not tied to a completion are given to the one registered handler; a later ' +
        'registration replaces it; none registered: events are lost.',
      observation: 'API.',
    }),
    rule('VERBS-121', 'MUST', 'verbs draft 9.5.3', 'api', 'RI', {
      text: 'The event identifiers of figure 37 are provided with their resource (QP, CQ, SRQ, device).',
      observation: 'API.',
    }),
    rule('VERBS-122', 'MUST', 'verbs draft 8.3.1', 'api', 'RI', {
      text: 'A failing verb leaves its object unchanged (except re-registration).',
      observation: 'API.',
      expected: 'IE',
    }),
  ]),
  ...topic('Shared receive queues (optional)', [
    rule('VERBS-123', 'MAY', 'verbs draft 6.3', 'api', 'RI', {
      text: 'SRQ support is optional; a query reports it.',
      observation: 'API.',
    }),
    rule('VERBS-124', 'MUST', 'verbs draft 6.3.5', 'api', 'RI', {
      text: "An SRQ has one PD; receive SGEs are checked against the SRQ's PD, not the QP's.",
      observation: 'QP and SRQ in different PDs.',
      expected: 'CE if wrong',
    }),
    rule('VERBS-125', 'MUST', 'verbs draft 6.3.5', 'api', 'RI', {
      text: "Remote invalidation is checked against the QP's PD even with an SRQ.",
      observation: 'As above.',
      expected: 'Term 0/1/09 or 0/1/03',
    }),
    rule('VERBS-126', 'MUST', 'verbs draft 6.3.5', 'api', 'RI', {
      text: 'Posting to the RQ of an SRQ QP fails.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-127', 'MUST', 'verbs draft 6.3.4', 'api', 'RI', {
      text: 'The SRQ is attached at QP creation only; RQ size is then ignored.',
      observation: 'API.',
    }),
    rule('VERBS-128', 'MUST', 'verbs draft 6.3.5', 'api', 'RI', {
      text: "One SRQ entry per MSN; completions of one QP come in MSN order, into the QP's receive CQ.",
      observation: 'API.',
    }),
    rule('VERBS-129', 'MUST', 'verbs draft 6.3.5, 6.3.7', 'api', 'RI', {
      text: 'Every QP of the SRQ can use all its entries.',
      observation: 'API.',
    }),
    rule('VERBS-130', 'MAY', 'verbs draft 6.3.5', 'api', 'RI', {
      text: 'Entries are taken in any order.',
      observation: 'API.',
    }),
    rule('VERBS-131', 'MAY', 'verbs draft 6.3.5, 13.2', 'api', 'RI', {
      text: 'An untagged message with the SRQ empty may terminate the stream.',
      observation: 'Wire.',
      expected: 'Term 1/2/02',
    }),
    rule('VERBS-132', 'MUST NOT', 'verbs draft 6.3.6', 'api', 'RI', {
      text: 'Unused SRQ entries are not flushed when a QP fails; other QPs are unaffected.',
      observation: 'Kill one QP.',
    }),
    rule('VERBS-133', 'MUST', 'verbs draft 6.3.8', 'api', 'RI', {
      text:
        'SRQ limit: armed at creation if non-zero, one event when free entries fall below it, one-shot, ' +
        're-armable.',
      observation: 'API.',
      expected: 'AE',
    }),
    rule('VERBS-134', 'MUST', 'verbs draft 6.3.8', 'api', 'RI', {
      text: 'QP RQ limit: event when messages in progress exceed it, one-shot, re-armable.',
      observation: 'API.',
      expected: 'AE',
    }),
    rule('VERBS-135', 'MUST', 'verbs draft 6.3.8', 'api', 'RI', {
      text: 'A limit above the SRQ size is refused.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-136', 'MUST', 'verbs draft 6.3.3', 'api', 'RI', {
      text: 'SRQ can be destroyed only when no QP uses it, even with entries posted.',
      observation: 'API.',
      expected: 'IE otherwise',
    }),
    rule('VERBS-137', 'MUST', 'verbs draft 6.3.6, 8.3.3', 'api', 'RI', {
      text: 'Catastrophic SRQ failure terminates a QP when it next takes an entry.',
      observation: 'Fault injection.',
      expected: 'Term 0/2/07',
    }),
  ]),
  ...topic('Memory regions and STags', [
    rule('VERBS-138', 'MUST', 'verbs draft 7.2, 7.4', 'wire', 'RI', {
      text:
        'An STag is 32 bit: 24-bit index (high) from the RI and 8-bit key (low) from the consumer; all ' +
        '32 bits are checked on every use.',
      observation: 'Same index, other key: error.',
      expected: 'Term 1/1/00, 0/1/00',
    }),
    rule('VERBS-139', 'MUST NOT', 'verbs draft 7.2.1, 8.1.3.2.1', 'wire', 'RI', {
      text: 'Index 0 is never given out; STag 0 is never usable remotely.',
      observation: 'Write or Read with STag 0 and data.',
      expected: 'Term 1/1/00, 0/1/00',
    }),
    rule('VERBS-140', 'MUST', 'verbs draft 7.3.1.1, 7.6.1', 'api', 'RI', {
      text: 'VA-based and zero-based tagged offsets are both supported; TO is 64 bit.',
      observation: 'Register both.',
    }),
    rule('VERBS-141', 'MUST', 'verbs draft 7.4, fig. 18', 'api', 'RI', {
      text:
        'Rights: local read, local write, remote read, remote write; remote read needs local read, remote ' +
        'write needs local write; at least one local right.',
      observation: 'API matrix of 16.',
      expected: 'IE',
    }),
    rule('VERBS-142', 'MUST', 'verbs draft 8.1.2.2 fig. 21, 8.3.3', 'api', 'RI', {
      text: "Remote access also needs the QP's inbound read or inbound write enable.",
      observation: 'Disable.',
      expected: 'Term 1/2/01 (read), 1/1/02 (write; code not named)',
    }),
    rule('VERBS-143', 'MUST', 'verbs draft 7.6.3', 'wire', 'RI', {
      text: 'Access is checked for rights, PD and bounds with octet granularity.',
      observation: 'Wire.',
      expected: 'Term',
    }),
    rule('VERBS-144', 'MUST NOT', 'verbs draft 7.6.3', 'wire', 'RI', {
      text: 'None of these checks for a zero-length access.',
      observation: 'Wire.',
      expected: 'none',
    }),
    rule('VERBS-145', 'MUST', 'verbs draft 7.4.3', 'api', 'RI', {
      text: 'Overlapping regions get different STags and are independent.',
      observation: 'API.',
    }),
    rule('VERBS-146', 'MUST', 'verbs draft 7.3, 7.8, 7.9', 'wire', 'RI', {
      text: 'A local or remote access to unregistered, invalid or deallocated memory is a protection error.',
      observation: 'Wire.',
      expected: 'Term 1/1/00, 0/1/00',
    }),
    rule('VERBS-147', 'MUST', 'verbs draft 7.3.2, 7.4', 'api', 'RI', {
      text: 'STags without remote access flag can never get remote rights (except by re-registration).',
      observation: 'API.',
      expected: 'IE or CE',
    }),
    rule('VERBS-148', 'MUST', 'verbs draft 7.3.2.5', 'api', 'RI', {
      text: 'Fast-Register: STag Invalid, non-shared, same PD, not a window, not 0, list fits, QP allows it.',
      observation: 'API.',
      expected: 'CE',
    }),
    rule('VERBS-149', 'MUST', 'verbs draft 7.3.2.3', 'api', 'RI', {
      text:
        'Re-register: fails without change for a bad STag or with bound windows, otherwise a failure ' +
        'deallocates the region; success may return another STag.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-150', 'MUST', 'verbs draft 7.3.2.4, 7.2.2', 'api', 'RI', {
      text:
        'Register shared: source valid; result has a new STag and own rights, PD and base; the source ' +
        'becomes shared; shared regions are always Valid.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-151', 'MUST', 'verbs draft 7.9', 'api', 'RI', {
      text:
        'Deallocate revokes all access; fails with bound windows; state and key are not looked at; data ' +
        'in flight fails.',
      observation: 'Wire.',
      expected: 'Term 1/1/00, 0/1/00',
    }),
    rule('VERBS-152', 'MUST', 'verbs draft 7.7, 9.2.6.3', 'api', 'RI', {
      text: 'Query of region returns key (if valid), flags, PD, state, type, rights.',
      observation: 'API.',
    }),
  ]),
  ...topic('Invalidation', [
    rule('VERBS-153', 'MUST', 'verbs draft 7.8', 'wire', 'RI', {
      text:
        "To be invalidated an STag must be non-shared, not 0, in state Valid or Invalid, of the QP's PD " +
        '(region) and without bound windows, with matching key.',
      observation: 'API, wire.',
      expected: 'CE or Term 0/1/00, 0/1/03, 0/1/09',
    }),
    rule('VERBS-154', 'MUST', 'verbs draft 7.8', 'wire', 'RI', {
      text: 'An already invalid STag may be invalidated again without error.',
      observation: 'Invalidate twice.',
      expected: 'none',
    }),
    rule('VERBS-155', 'MUST', 'verbs draft 7.4.2, 7.8', 'wire', 'RI', {
      text: 'Remote invalidation needs one remote right on QP and on STag.',
      observation: 'Send Inv of a local-only STag.',
      expected: 'Term 0/1/02',
    }),
    rule('VERBS-156', 'MUST', 'verbs draft 7.8', 'wire', 'RI', {
      text: 'A failed check is a protection error, for a deallocated STag an operation error.',
      observation: 'Wire.',
      expected: 'Term 0/1/xx or 0/2/09',
    }),
    rule('VERBS-157', 'MUST', 'verbs draft 7.8', 'wire', 'RI', {
      text: 'After invalidation no access through that STag; size, PD and remote flag are kept for reuse.',
      observation: 'Write afterwards.',
      expected: 'Term 1/1/00',
    }),
    rule('VERBS-158', 'MUST NOT', 'verbs draft 7.8', 'api', 'RI', {
      text: 'Invalidation of one STag does not affect other STags of the same memory.',
      observation: 'Alias region stays usable.',
    }),
    rule('VERBS-159', 'MUST', 'verbs draft 8.2.2.1, 9.3.2.1', 'api', 'RI', {
      text: 'The completion of a Send with Invalidate names the invalidated STag.',
      observation: 'API.',
    }),
  ]),
  ...topic('Memory windows', [
    rule('VERBS-160', 'MUST', 'verbs draft 7.10.1', 'api', 'RI', {
      text: 'A new window is Invalid, belongs to a PD and cannot be used as a region.',
      observation: 'API.',
      expected: 'IE',
    }),
    rule('VERBS-161', 'MUST', 'verbs draft 7.10.2, 7.10.6.1', 'api', 'RI', {
      text:
        'Bind: window Invalid, region Valid, not STag 0, same PD for window, region and QP, binding ' +
        'allowed on QP and region, region VA-based, range inside the region, rights compatible with the ' +
        "region's local rights.",
      observation: 'One fault at a time.',
      expected: 'CE, Term 0/0/00',
    }),
    rule('VERBS-162', 'MUST', 'verbs draft 7.10.2 fig. 20', 'api', 'RI', {
      text:
        'Window remote write needs region local write, remote read needs local read; region remote rights ' +
        'do not matter.',
      observation: 'API.',
      expected: 'CE',
    }),
    rule('VERBS-163', 'MUST', 'verbs draft 7.10.2, 7.10.6.2', 'api', 'RI', {
      text: 'A bound window is tied to the QP that bound it.',
      observation: 'Use through another QP of the PD.',
      expected: 'Term 1/1/02, 0/1/03',
    }),
    rule('VERBS-164', 'MUST', 'verbs draft 7.10.6.2', 'api', 'RI', {
      text:
        'Access through a window checks validity, QP, bounds, window rights and QP enables, not the ' +
        "region's rights.",
      observation: 'Wire.',
      expected: 'Term 1/1/xx, 0/1/xx',
    }),
    rule('VERBS-165', 'MUST NOT', 'verbs draft 7.10.6.2', 'api', 'RI', {
      text: 'No checks for zero-length access.',
      observation: 'Wire.',
      expected: 'none',
    }),
    rule('VERBS-166', 'MUST', 'verbs draft 7.10.4, 7.10.6.3', 'api', 'RI', {
      text:
        'Invalidate of a Valid window needs the same QP, of an Invalid one the same PD; afterwards it ' +
        'belongs to the PD again.',
      observation: 'API.',
      expected: 'CE; Term 0/1/09 (0/1/03 by draft)',
    }),
    rule('VERBS-167', 'MUST', 'verbs draft 7.10.4.1', 'api', 'RI', {
      text:
        'Accesses in progress fail once the window is invalidated or deallocated; none succeeds after the ' +
        'call returned.',
      observation: 'Wire.',
      expected: 'Term 1/1/00, 0/1/00',
    }),
    rule('VERBS-168', 'MUST', 'verbs draft 7.10.2', 'api', 'RI', {
      text: 'Only the key of the last bind is accepted.',
      observation: 'Old key.',
      expected: 'Term 1/1/00',
    }),
  ]),
  ...topic('Terminate codes named by the draft', [
    rule('VERBS-169', 'MUST', 'verbs draft 8.3.2', 'api', 'RI', {
      text: 'Local WR errors (SQ or RQ: bad WQE, STag, bounds, rights, PD, wrap): 0x0000.',
      observation: 'Wire.',
      expected: 'Term 0/0/00',
    }),
    rule('VERBS-170', 'MUST', 'verbs draft 8.3.2', 'wire', 'RI', {
      text:
        'Incoming invalidate: STag invalid 0x0100, rights 0x0102, PD or window not bound ' +
        '0x0103 (0x0109 by RFC 5040 5.3), region with bound window 0x0109.',
      observation: 'Wire.',
      expected: 'Term 0/1/xx',
    }),
    rule('VERBS-171', 'MUST', 'verbs draft 8.3.3', 'wire', 'RI', {
      text: 'Segment too small for its header or larger than supported: 0x1000.',
      observation: 'Wire.',
      expected: 'Term 1/0/00',
    }),
    rule('VERBS-172', 'MUST', 'verbs draft 8.3.3', 'wire', 'RI', {
      text: 'Versions and opcode: DDP 0x1206, RDMAP 0x0205, opcode 0x0206.',
      observation: 'Wire.',
      expected: 'Term (1/1/04 for tagged by RFC 5041)',
    }),
    rule('VERBS-173', 'MUST', 'verbs draft 8.3.3', 'wire', 'RI', {
      text: 'Bad queue number or read not enabled: 0x1201; missing L: 0x0207.',
      observation: 'Wire.',
      expected: 'Term',
    }),
    rule('VERBS-174', 'MUST', 'verbs draft 8.3.3', 'wire', 'RI', {
      text: 'Tagged: STag 0x1100, bounds 0x1101, rights and PD 0x1102, wrap 0x1103.',
      observation: 'Wire.',
      expected: 'Term 1/1/xx',
    }),
    rule('VERBS-175', 'MUST', 'verbs draft 8.3.3', 'wire', 'RI', {
      text: 'Receive queue MSN out of range or gap: 0x1202 (RFC 5041: 02 no buffer, 03 range).',
      observation: 'Wire.',
      expected: 'Term 1/2/02 or 1/2/03',
    }),
    rule('VERBS-176', 'MUST', 'verbs draft 8.3.3', 'wire', 'RI', {
      text:
        'Read queue: STag 0x0100, bounds 0x0101, rights 0x0102, PD 0x0103, wrap 0x0104; MSN faults ' +
        '0x1203.',
      observation: 'Wire.',
      expected: 'Term',
    }),
    rule('VERBS-177', 'MUST', 'verbs draft 8.3.3', 'api', 'RI', {
      text: 'CQ, SRQ and QP local failures 0x0207; device failure 0x0208 on all streams.',
      observation: 'Fault injection.',
      expected: 'Term 0/2/07, 0/2/08',
    }),
  ]),
];
