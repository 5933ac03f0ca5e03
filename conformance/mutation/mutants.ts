// Ways to break the stack, one at a time: what the line does, the text it replaces in one file of src, and
// what it becomes. Used by mutate.ts. A text must occur exactly once.

export interface Mutant {
  readonly id: string;
  readonly file: string;
  readonly find: string;
  readonly put: string;
  /** Why a peer could not see it, for mutants that are kept to show the limit. */
  readonly unseen?: string;
}

const m = (id: string, file: string, find: string, put: string, unseen?: string): Mutant => ({
  id,
  file,
  find,
  put,
  ...(unseen === undefined ? {} : { unseen }),
});

const STARTUP = 'mpa/startup.ts';
const NEGOTIATE = 'mpa/negotiate.ts';
const FRAMER = 'mpa/framer.ts';
const DEFRAMER = 'mpa/deframer.ts';
const DDP = 'ddp/receiver.ts';
const PLACEMENT = 'ddp/placement.ts';
const LOWER_LAYER = 'mpa/lower-layer.ts';
const STAG = 'ddp/stag-table.ts';
const RECEIVER = 'rdmap/receiver.ts';
const SENDER = 'rdmap/sender.ts';
const WORK_SEGMENTS = 'rdmap/work-segments.ts';
const RESPONSES = 'rdmap/response-segments.ts';
const SEGMENTS = 'ddp/segmenter.ts';
const BODIES = 'rdmap/bodies.ts';
const TERMINATE = 'rdmap/terminate.ts';
const READS = 'rdmap/reads.ts';
const ATOMICS = 'rdmap/atomics.ts';
const STREAM = 'stream/stream.ts';
const OPERATION = 'stream/operation.ts';
const FAULTS = 'rdmap/faults.ts';
const POLICY = 'mpa/policy.ts';
const MPA_WIRE = 'mpa/wire.ts';
const DDP_WIRE = 'ddp/wire.ts';
const RDMAP_WIRE = 'rdmap/wire.ts';
const CODES = 'base/terminate-codes.ts';

export const mutants: readonly Mutant[] = [
  // The wire formats: two ends of our stack would agree on any of these
  m(
    'wire.reply-key-with-another-letter',
    MPA_WIRE,
    "KEY_TEXT.replace('Req', 'Rep')",
    "KEY_TEXT.replace('Req', 'Res')",
  ),
  m('wire.s-flag-one-bit-down', MPA_WIRE, 'ENHANCED: 0x10,', 'ENHANCED: 0x08,'),
  m('wire.markers-every-256-octets', MPA_WIRE, 'MARKER_SPACING = 512', 'MARKER_SPACING = 256'),
  m(
    'wire.last-and-reserved-bit-exchanged',
    DDP_WIRE,
    'LAST: 0x40,\n  /** Sent as zero, ignored on receipt. */\n  RESERVED: 0x3c,',
    'LAST: 0x20,\n  /** Sent as zero, not looked at. */\n  RESERVED: 0x5c,',
  ),
  m(
    'wire.msn-and-mo-exchanged',
    DDP_WIRE,
    'UNTAGGED_MSN_OFFSET = 10;\n' +
      '/** Message Offset, u32: where in the message the payload belongs. */\n' +
      'export const UNTAGGED_MO_OFFSET = 14;',
    'UNTAGGED_MSN_OFFSET = 14;\nexport const UNTAGGED_MO_OFFSET = 10;',
  ),
  m('wire.first-msn-0', DDP_WIRE, 'FIRST_MSN = 1;', 'FIRST_MSN = 0;'),
  m('wire.atomic-responses-on-queue-1', DDP_WIRE, 'ATOMIC_RESPONSE: 3,', 'ATOMIC_RESPONSE: 1,'),
  m(
    'wire.opcodes-of-two-sends-exchanged',
    RDMAP_WIRE,
    'SEND_INVALIDATE: 0x4,\n  /** Send with Solicited Event; queue 0. */\n  SEND_SE: 0x5,',
    'SEND_INVALIDATE: 0x5,\n  /** Send with Solicited Event; queue 0. */\n  SEND_SE: 0x4,',
  ),
  m(
    'wire.read-response-on-a-queue',
    RDMAP_WIRE,
    "row('RDMA Read Response', 'readResponses', { tagged: true,",
    "row('RDMA Read Response', 'readResponses', { tagged: false, qn: QN.READ_REQUEST,",
  ),
  m(
    'wire.immediate-data-on-queue-1',
    RDMAP_WIRE,
    "row('Immediate Data', 'immediates', IMMEDIATE),",
    "row('Immediate Data', 'immediates', { ...IMMEDIATE, qn: QN.READ_REQUEST }),",
  ),
  m('wire.read-size-in-front-of-sink', RDMAP_WIRE, 'SINK_STAG: 0,', 'SINK_STAG: 12,'),
  m(
    'wire.code-of-bounds-and-association-exchanged',
    CODES,
    "DDP_BOUNDS: [0x1101, 'base or bounds violation'],\n  /** 1/1/02. */\n  DDP_NOT_ASSOCIATED: [0x1102,",
    "DDP_BOUNDS: [0x1102, 'base or bounds violation'],\n  DDP_NOT_ASSOCIATED: [0x1101,",
  ),
  m(
    'wire.code-of-unexpected-opcode',
    CODES,
    'RDMAP_UNEXPECTED_OPCODE: [0x0206,',
    'RDMAP_UNEXPECTED_OPCODE: [0x0205,',
  ),
  m('wire.code-of-rtr-mismatch', CODES, 'MPA_NO_MATCHING_RTR: [0x2007,', 'MPA_NO_MATCHING_RTR: [0x2006,'),

  // MPA start-up
  m(
    'startup.key-octet-15-not-compared',
    STARTUP,
    'this.#have < this.#key.length && octet',
    'this.#have < this.#key.length - 1 && octet',
  ),
  m(
    'startup.key-octet-0-not-compared',
    STARTUP,
    'this.#have < this.#key.length && octet',
    'this.#have > 0 && this.#have < this.#key.length && octet',
  ),
  m(
    'startup.pd-length-513-taken',
    STARTUP,
    'if (pdLength > MAX_PRIVATE_DATA)',
    'if (pdLength > MAX_PRIVATE_DATA + 1)',
  ),
  m(
    'startup.pd-length-512-refused',
    STARTUP,
    'if (pdLength > MAX_PRIVATE_DATA)',
    'if (pdLength >= MAX_PRIVATE_DATA)',
  ),
  m(
    'startup.private-data-one-octet-short',
    STARTUP,
    'frameBytes.slice(ulpStart, this.#have)',
    'frameBytes.slice(ulpStart, this.#have - 1)',
  ),
  m('startup.enhanced-data-left-in-private-data', STARTUP, '(hasEnhanced ? ENHANCED_OCTETS : 0)', '0'),
  m(
    'startup.short-enhanced-frame-taken',
    STARTUP,
    'if (hasEnhanced && this.#have < STARTUP_HEADER_OCTETS + ENHANCED_OCTETS)',
    'if (hasEnhanced && this.#have < STARTUP_HEADER_OCTETS)',
  ),
  m(
    'startup.revision-3-taken',
    STARTUP,
    'if (request.revision > highest)',
    'if (request.revision > highest + 1)',
  ),
  m('startup.reply-revision-not-checked', STARTUP, 'if (reply.revision > this.#request.revision ||', 'if ('),
  m(
    'startup.rejecting-reply-taken-as-acceptance',
    STARTUP,
    'if (reply.reject) {',
    'if (reply.reject && reply.revision === 0) {',
  ),
  m(
    'startup.reply-says-revision-1',
    NEGOTIATE,
    "kind: 'reply', markers, crc, reject: refused, revision: request.revision, enhanced,",
    "kind: 'reply', markers, crc, reject: refused, revision: 1, enhanced,",
  ),
  m(
    'startup.request-checks-r',
    STARTUP,
    "this.#machine.step('request');",
    "if (request.reject) return this.fail('bad-frame', 'unusable-revision');\n" +
      "    this.#machine.step('request');",
  ),
  m('startup.crc-not-asked-for', POLICY, "crc: 'preferred',", "crc: 'off',"),
  m(
    'startup.rejection-without-private-data',
    STARTUP,
    'legacyDepths === undefined ? privateData : putLegacyDepths({ ird: 0, ord: 0 }',
    'legacyDepths === undefined ? privateData.subarray(0, 0) : putLegacyDepths({ ird: 0, ord: 0 }',
  ),

  m(
    'startup.rejection-names-open-depths',
    STARTUP,
    'ird: echo(enhanced.ord), ord: echo(enhanced.ird) }',
    'ird: 0, ord: 0 }',
  ),

  // Negotiation
  m(
    'negotiate.crc-needs-both',
    NEGOTIATE,
    'crc: request.crc || reply.crc || rdmac, // MPA-054',
    'crc: (request.crc && reply.crc) || rdmac,',
  ),
  m('negotiate.crc-of-request-ignored', NEGOTIATE, 'crc: request.crc || crc,', "crc: policy.crc !== 'off',"),
  m(
    'negotiate.markers-not-granted',
    NEGOTIATE,
    'sendMarkers: request.markers || rdmac,',
    'sendMarkers: rdmac,',
  ),
  m(
    'negotiate.markers-of-reply-not-granted',
    NEGOTIATE,
    'sendMarkers: reply.markers || rdmac,',
    'sendMarkers: rdmac,',
  ),
  m(
    'negotiate.ord-not-limited-as-responder',
    NEGOTIATE,
    'ord = Math.min(depths.ord, theirs.ird); // ENH-015',
    'ord = depths.ord; // ENH-015',
  ),
  m(
    'negotiate.ord-not-limited-as-initiator',
    NEGOTIATE,
    'ord = Math.min(depths.ord, theirs.ird);\n    // ENH-021',
    'ord = depths.ord;\n    // ENH-021',
  ),
  m(
    'negotiate.ird-and-ord-exchanged',
    NEGOTIATE,
    'ird: theirs.ord === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : ird, // ENH-024\n' +
      '      ord: theirs.ird === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : ord, // ENH-025',
    'ird: theirs.ird === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : ord,\n' +
      '      ord: theirs.ord === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : ird,',
  ),
  m(
    'negotiate.insufficient-ird-not-reported',
    NEGOTIATE,
    'terminate = TERM.MPA_INSUFFICIENT_IRD;',
    'ird = policy.maxIrd;',
  ),
  m(
    'negotiate.a-not-repeated',
    NEGOTIATE,
    'peerToPeer: theirs.peerToPeer, // ENH-032',
    'peerToPeer: false, // ENH-032',
  ),
  m(
    'negotiate.all-rtr-kinds-granted',
    NEGOTIATE,
    "rtrSend: rtr === 'send' && !refused,\n" +
      "      rtrWrite: rtr === 'write' && !refused,\n" +
      "      rtrRead: rtr === 'read' && !refused,",
    "...rtrBits(rtr === null || refused ? [] : ['read', 'write', 'send']),",
  ),
  m(
    'negotiate.no-rtr-mismatch',
    NEGOTIATE,
    'if (rtr === null && terminate === FINE) terminate = TERM.MPA_NO_MATCHING_RTR; // ENH-040',
    '',
  ),
  m('negotiate.ird-not-raised', NEGOTIATE, 'else ird = Math.max(ird, theirs.ord);', ''),

  // FPDUs and markers
  m(
    'framer.crc-big-endian',
    FRAMER,
    'buffer.view.setInt32(to, value, true);',
    'buffer.view.setInt32(to, value, false);',
  ),
  m(
    'framer.crc-leaves-length-out',
    FRAMER,
    'this.crc.updateSigned(0, buffer.bytes, from, to)',
    'this.crc.updateSigned(0, buffer.bytes, from + 2, to)',
  ),
  m(
    'framer.length-counts-itself',
    FRAMER,
    'bytes[at + 1] = ulpduLength;',
    'bytes[at + 1] = ulpduLength + 2;',
  ),
  m(
    'framer.pad-not-cleared',
    FRAMER,
    'bytes[i] = 0;\n    return body;',
    'bytes[i] = 0xa5;\n    return body;',
  ),
  m(
    'framer.no-first-marker',
    FRAMER,
    'if (markerPhase(position) === 0) {\n      buffer.view.setUint32(out, 0);',
    'if (position > 0 && markerPhase(position) === 0) {\n      buffer.view.setUint32(out, 0);',
  ),
  m(
    'framer.pointer-plus-4',
    FRAMER,
    'buffer.view.setUint32(out, position - lengthField);\n        out += MARKER_OCTETS;\n        position +=',
    'buffer.view.setUint32(out, position - lengthField + 4);\n' +
      '        out += MARKER_OCTETS;\n' +
      '        position +=',
  ),
  m(
    'framer.pointer-from-leading-marker',
    FRAMER,
    'const lengthField = position;',
    'const lengthField = this.position;',
  ),
  m(
    'framer.no-marker-before-crc',
    FRAMER,
    '// MPA-099: between PAD and CRC a marker is covered by the FPDU that ends here.\n' +
      '    if (markerPhase(position) === 0) {',
    'if (position < 0) {',
  ),
  m(
    'framer.marker-phase-drifts',
    FRAMER,
    'this.seal(buffer, start, out);\n    this.position += buffer.end - start;',
    'this.seal(buffer, start, out);\n' +
      '    this.position += buffer.end - start - (this.position > 2000 ? 4 : 0);',
  ),
  m(
    'deframer.crc-not-checked',
    DEFRAMER,
    'return this.crc.updateSigned(0, bytes, from, to) !== field;',
    'return false;',
  ),
  m(
    'deframer.crc-only-low-half',
    DEFRAMER,
    'return this.crc.updateSigned(0, bytes, from, to) !== field;',
    'return ((this.crc.updateSigned(0, bytes, from, to) ^ field) & 0xffff) !== 0;',
  ),
  m(
    'deframer.crc-of-long-fpdus-not-checked',
    DEFRAMER,
    'return this.crc.updateSigned(0, bytes, from, to) !== field;',
    'return to - from <= 600 && this.crc.updateSigned(0, bytes, from, to) !== field;',
  ),
  m(
    'deframer.crc-of-jumbo-fpdus-not-checked',
    DEFRAMER,
    'return this.crc.updateSigned(0, bytes, from, to) !== field;',
    'return to - from <= 20_000 && this.crc.updateSigned(0, bytes, from, to) !== field;',
  ),
  m(
    'deframer.crc-checked-when-off',
    LOWER_LAYER,
    'receiveMarkers ? engine.runs : null,\n      crc ? engine : null,',
    'receiveMarkers ? engine.runs : null,\n      engine,',
  ),
  m(
    'deframer.marker-low-bits-compared',
    DEFRAMER,
    'const pointer = ((bytes[from + 2]! << 8) | bytes[from + 3]!) & FPDUPTR_MASK;\n        // MPA-104',
    'const pointer = (bytes[from + 2]! << 8) | bytes[from + 3]!;\n        // MPA-104',
  ),
  m(
    'deframer.marker-not-checked',
    DEFRAMER,
    'if (pointer !== (Math.max(0, from - lengthField) & FPDUPTR_MASK)) return TERM.MPA_MARKER;',
    '{ /* ignored */ }',
    'A receiver in order need not check markers (MPA-105), so the suite takes normal operation for ' +
      'lawful; --strict sees it.',
  ),
  m(
    'deframer.straddling-fpdu-lost',
    DEFRAMER,
    'this.#held = end - at;\n    this.#need = need;',
    'this.#held = end - at;\n    this.#need = need + (end - at > 40 ? 4 : 0);',
  ),

  // DDP
  m('ddp.version-not-checked', DDP, 'if (segment.version !== this.#version) {', 'if (segment.version > 3) {'),
  m(
    'ddp.versions-reported-the-wrong-way',
    DDP,
    'segment.tagged ? TERM.DDP_TAGGED_VERSION : TERM.DDP_UNTAGGED_VERSION',
    'segment.tagged ? TERM.DDP_UNTAGGED_VERSION : TERM.DDP_TAGGED_VERSION',
  ),
  m(
    'ddp.queue-not-compared',
    DDP,
    'if (qn !== kind.qn) return TERM.DDP_INVALID_QN;',
    'if (qn > 3) return TERM.DDP_INVALID_QN;',
  ),
  m(
    'ddp.wrong-code-for-queue',
    DDP,
    'return TERM.DDP_INVALID_QN; // DDP-039',
    'return TERM.DDP_NO_BUFFER; // DDP-039',
  ),
  m('ddp.msn-not-checked', DDP, 'if (segment.msn !== queues[qn]) return TERM.DDP_MSN_RANGE;', ''),
  m(
    'ddp.later-msn-taken',
    DDP,
    'if (segment.msn !== queues[qn]) return',
    'if (segment.msn < queues[qn]!) return',
  ),
  m(
    'ddp.msn-low-16-bits-compared',
    DDP,
    'if (segment.msn !== queues[qn]) return',
    'if (((segment.msn ^ queues[qn]!) & 0xffff) !== 0) return',
  ),
  m(
    'ddp.msn-low-24-bits-compared',
    DDP,
    'if (segment.msn !== queues[qn]) return',
    'if (((segment.msn ^ queues[qn]!) & 0xff_ffff) !== 0) return',
  ),
  m(
    'ddp.msn-sign-not-compared',
    DDP,
    'if (segment.msn !== queues[qn]) return',
    'if (((segment.msn ^ queues[qn]!) & 0x7fff_ffff) !== 0) return',
  ),
  m(
    'ddp.msn-of-reads-low-16-bits-compared',
    DDP,
    'if (segment.msn !== queues[qn]) return',
    'if (((segment.msn ^ queues[qn]!) & (qn === 1 ? 0xffff : 0xffff_ffff)) !== 0) return',
  ),
  m(
    'ddp.msn-of-reads-does-not-wrap',
    DDP,
    'queues[qn] = (queues[qn]! + 1) >>> 0;',
    'queues[qn] = qn === 1 ? queues[qn]! + 1 : (queues[qn]! + 1) >>> 0;',
  ),
  m(
    'ddp.mo-not-checked',
    DDP,
    'if (segment.mo !== queues[RECEIVED + qn]) return TERM.DDP_INVALID_MO;',
    '',
    'A gap or an overlap inside the buffer may pass (DDP-027), and beyond the buffer 1/2/05 is lawful ' +
      'too; --strict sees it.',
  ),
  m(
    'ddp.too-long-by-one-taken',
    DDP,
    'if (segment.mo + segment.payloadLength > room)',
    'if (segment.mo + segment.payloadLength > room + 1)',
  ),
  m(
    'ddp.delivered-without-last',
    DDP,
    'if (!segment.last) {',
    'if (!segment.last && segment.payloadLength > 1000) {',
  ),
  m(
    'ddp.length-of-last-segment-only',
    DDP,
    'return ulp.deliver(segment, length); // DDP-034',
    'return ulp.deliver(segment, segment.payloadLength); // DDP-034',
  ),
  m(
    'ddp.short-segment-not-noticed',
    DDP,
    'if (!decodeSegment(current, bytes, start, length)) return TERM.DDP_LOCAL_CATASTROPHIC;',
    'decodeSegment(current, bytes, start, length);',
  ),
  m(
    'stag.freed-values-come-back-at-once',
    STAG,
    'const QUARANTINE = 4096;',
    'const QUARANTINE = 1;',
    'How soon a random value may come back is a matter of chance for a peer; ' +
      'test/verbs/regions.test.ts sees it.',
  ),
  m(
    'stag.key-not-compared',
    STAG,
    'if (entry === undefined || entry.stag !== stag) return null;',
    'if (entry === undefined) return null;',
  ),
  m(
    'stag.key-low-bit-not-compared',
    STAG,
    'if (entry === undefined || entry.stag !== stag) return null;',
    'if (entry === undefined || (entry.stag ^ stag) > 1) return null;',
  ),
  m(
    'stag.validity-not-checked',
    STAG,
    'if (entry === null || !entry.valid) return FAULT.INVALID_STAG;',
    'if (entry === null) return FAULT.INVALID_STAG;',
  ),
  m(
    'stag.pd-not-checked',
    STAG,
    'if (entry.pd !== pd || (entry.qp !== 0 && entry.qp !== qp)) return FAULT.NOT_ASSOCIATED;',
    'if (entry.qp !== 0 && entry.qp !== qp) return FAULT.NOT_ASSOCIATED;',
  ),
  m(
    'stag.stream-not-checked',
    STAG,
    'if (entry.pd !== pd || (entry.qp !== 0 && entry.qp !== qp)) return FAULT.NOT_ASSOCIATED;',
    'if (entry.pd !== pd) return FAULT.NOT_ASSOCIATED;',
  ),
  m('stag.rights-not-checked', STAG, 'if ((entry.access & right) !== right) return FAULT.ACCESS;', ''),
  m(
    'stag.wrap-not-checked',
    STAG,
    'if (addWraps(toHi, toLo, length)) return FAULT.WRAP;',
    '',
    'What wraps is out of bounds as well, and 1/1/01 is lawful there; --strict sees it.',
  ),
  m(
    'stag.end-off-by-one',
    STAG,
    '!reaches(entry.bytes, offset + length)) return FAULT.BOUNDS;',
    '!reaches(entry.bytes, offset + length - 1)) return FAULT.BOUNDS;',
  ),
  m(
    'stag.upper-half-of-to-ignored',
    STAG,
    'const offset = distance(toHi, toLo, entry.baseHi, entry.baseLo);',
    'const offset = distance(entry.baseHi, toLo, entry.baseHi, entry.baseLo);',
  ),
  m('stag.lower-bound-not-checked', STAG, 'if (offset < 0 || !reaches', 'if (!reaches'),
  m(
    'faults.access-reported-as-bounds',
    PLACEMENT,
    '[FAULT.ACCESS]: TERM.DDP_NOT_ASSOCIATED,',
    '[FAULT.ACCESS]: TERM.DDP_BOUNDS,',
  ),
  m(
    'faults.read-association-reported-as-stag',
    FAULTS,
    '[FAULT.NOT_ASSOCIATED]: TERM.RDMAP_NOT_ASSOCIATED,',
    '[FAULT.NOT_ASSOCIATED]: TERM.RDMAP_INVALID_STAG,',
  ),

  // RDMAP receiving
  m(
    'rdmap.version-not-checked',
    RECEIVER,
    'if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return TERM.RDMAP_VERSION;',
    '',
  ),
  m(
    'rdmap.reserved-bits-checked',
    RECEIVER,
    'if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return TERM.RDMAP_VERSION;',
    'if ((segment.ulpControl & 0xf0) !== this.#version) return TERM.RDMAP_VERSION;',
  ),
  m(
    'rdmap.reserved-bits-of-reads-checked',
    RECEIVER,
    'if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return TERM.RDMAP_VERSION;',
    'if ((segment.ulpControl & ((segment.ulpControl & 0xf) === OPCODE.READ_REQUEST ? 0xf0 : 0xc0)) !== ' +
      'this.#version) return TERM.RDMAP_VERSION;',
  ),
  m(
    'rdmap.reserved-bits-of-writes-checked',
    RECEIVER,
    'if ((segment.ulpControl & RDMAP_CONTROL.VERSION) !== this.#version) return TERM.RDMAP_VERSION;',
    'if ((segment.ulpControl & ((segment.ulpControl & 0xf) === OPCODE.RDMA_WRITE ? 0xf0 : 0xc0)) !== ' +
      'this.#version) return TERM.RDMAP_VERSION;',
  ),
  m(
    'rdmap.bounds-of-last-segment-only',
    PLACEMENT,
    'if (fault !== FAULT.NONE) return FAULT_CODES[fault]!;',
    'if (fault === FAULT.BOUNDS && !segment.last) return FINE;\n' +
      '  if (fault !== FAULT.NONE) return FAULT_CODES[fault]!;',
  ),
  m(
    'rdmap.t-bit-not-compared',
    RECEIVER,
    'if (row.tagged !== segment.tagged) return TERM.RDMAP_UNEXPECTED_OPCODE;',
    '',
  ),
  m(
    'rdmap.extensions-always-on',
    RECEIVER,
    '(row.extension && !this.#endpoint.extensions))\n      return TERM.RDMAP_UNEXPECTED_OPCODE;',
    '(row.extension && row.name.length === 0))\n      return TERM.RDMAP_UNEXPECTED_OPCODE;',
  ),
  m('rdmap.empty-write-checked', PLACEMENT, 'if (length === 0) {', 'if (length < 0) {'),
  m(
    'rdmap.empty-read-checked',
    RECEIVER,
    'if (request.size > 0) {\n      const fault',
    'if (request.size >= 0) {\n      const fault',
  ),
  m(
    'rdmap.write-placed-one-off',
    PLACEMENT,
    'copyOctets(segment, segment.payload, entry, stags.offset, length);',
    'copyOctets(segment, segment.payload, entry, Math.max(0, stags.offset - 1), length);',
  ),
  m(
    'rdmap.unasked-response-taken',
    RECEIVER,
    'if (wqe === undefined || (wqe !== null && wqe.kind !== WORK.READ)) return TERM.RDMAP_UNEXPECTED_OPCODE;',
    'if (wqe === undefined || (wqe !== null && wqe.kind !== WORK.READ)) return FINE;',
  ),
  m(
    'rdmap.response-stag-not-compared',
    RECEIVER,
    'if (segment.stag !== sink.lkey) return',
    'if (segment.stag === 0) return',
  ),
  m(
    'rdmap.response-may-be-longer',
    RECEIVER,
    'if (!inPlace || wqe.received + length > wqe.total) return',
    'if (!inPlace) return',
  ),
  m('rdmap.response-to-not-compared', RECEIVER, 'if (!inPlace || wqe.received', 'if (wqe.received'),
  m(
    'rdmap.ird-not-enforced',
    RECEIVER,
    'return this.#requests.full ? TERM.DDP_MSN_RANGE : FINE; // RDMAP-052',
    'return FINE; // RDMAP-052',
  ),
  m('rdmap.read-request-length-not-checked', DDP, '&& payloadLength <= fixed.most;', ';'),
  m('rdmap.read-request-without-l-taken', DDP, 'const fits = last && mo === 0', 'const fits = mo === 0'),
  m(
    'rdmap.invalidate-foreign-pd',
    RECEIVER,
    'else if (entry.pd !== pdHandle || (entry.qp !== 0 && entry.qp !== number)) code = ' +
      'TERM.RDMAP_CANNOT_INVALIDATE;',
    '',
  ),
  m(
    'rdmap.invalidate-shared',
    RECEIVER,
    'else if (entry.shared || entry.windows > 0) code = TERM.RDMAP_CANNOT_INVALIDATE;',
    '',
  ),
  m('rdmap.invalidate-does-nothing', RECEIVER, 'stags.invalidate(entry!); // VERBS-154', '// VERBS-154'),
  m(
    'rdmap.malformed-terminate-answered',
    OPERATION,
    'if (isSilent(verdict) || (isTerminate && codeOf(verdict) !== TERM.RDMAP_VERSION)) return null;',
    'if (isTerminate && verdict < 0) return null;',
  ),
  m(
    'rdmap.terminate-answered',
    STREAM,
    "this.#cause = 'terminated';\n    this.#raise({ type: 'terminate', terminate });",
    "this.#terminateWith(plainTerminate(TERM.RDMAP_STREAM_CATASTROPHIC), 'next');\n    return;",
  ),
  m('rdmap.rtr-send-reaches-the-program', OPERATION, 'this.receiver.expectedRtr = negotiated.rtr;', ''),
  m(
    'rdmap.bad-read-not-in-turn',
    RECEIVER,
    'return READ_FAULT_CODES[fault]! | VERDICT.DELIVERED | VERDICT.IN_TURN;\n      if (!stags',
    'return READ_FAULT_CODES[fault]! | VERDICT.DELIVERED;\n      if (!stags',
  ),
  m(
    'rdmap.bad-atomic-not-in-turn',
    RECEIVER,
    '// EXT-035\n' +
      '    if (fault !== FAULT.NONE) return READ_FAULT_CODES[fault]! | VERDICT.DELIVERED | VERDICT.IN_TURN;',
    '// EXT-035\n    if (fault !== FAULT.NONE) return READ_FAULT_CODES[fault]! | VERDICT.DELIVERED;',
  ),
  m(
    'rdmap.misaligned-atomic-not-in-turn',
    RECEIVER,
    'return TERM.RDMAP_STREAM_CATASTROPHIC | VERDICT.DELIVERED | VERDICT.IN_TURN; // EXT-033',
    'return TERM.RDMAP_STREAM_CATASTROPHIC | VERDICT.DELIVERED; // EXT-033',
  ),
  m(
    'rdmap.bad-stag-ignored',
    OPERATION,
    'if (verdict !== FINE) return verdict',
    'if (verdict !== FINE && verdict !== TERM.DDP_INVALID_STAG) return verdict',
  ),

  // RDMAP sending
  m(
    'sender.msn-starts-at-0',
    SEGMENTS,
    'this.#sendMsn = this.#requestMsn = this.#responseMsn = firstMsn;',
    'this.#sendMsn = this.#requestMsn = this.#responseMsn = firstMsn - 1;',
  ),
  m(
    'sender.one-msn-for-all-queues',
    SEGMENTS,
    'case QN.READ_REQUEST: {\n' +
      '        const msn = this.#requestMsn;\n' +
      '        this.#requestMsn = following(msn);',
    'case QN.READ_REQUEST: {\n        const msn = this.#sendMsn;\n        this.#sendMsn = following(msn);',
  ),
  m(
    'sender.mo-stays-0',
    WORK_SEGMENTS,
    'QN.SEND, wqe.msn, sent, payload);',
    'QN.SEND, wqe.msn, 0, payload);',
  ),
  m(
    'sender.to-stays',
    WORK_SEGMENTS,
    'const toLo = sent === 0 ? wqe.toLo : addLo(wqe.toLo, sent);',
    'const toLo = wqe.toLo;',
  ),
  m(
    'sender.to-without-carry',
    WORK_SEGMENTS,
    'const toHi = sent === 0 ? wqe.toHi : addHi(wqe.toHi, wqe.toLo, sent);',
    'const toHi = wqe.toHi;',
  ),
  m(
    'sender.l-on-every-segment',
    WORK_SEGMENTS,
    'at = segments.beginTagged(buffer, control, last,',
    'at = segments.beginTagged(buffer, control, true,',
  ),
  m(
    'sender.segments-one-octet-short',
    WORK_SEGMENTS,
    'const payload = Math.min(left, tagged ? out.taggedPayload : out.untaggedPayload);',
    'const payload = Math.min(left, (tagged ? out.taggedPayload : out.untaggedPayload) - 1);',
  ),
  m(
    'sender.writes-too-long',
    WORK_SEGMENTS,
    'const payload = Math.min(left, tagged ? out.taggedPayload : out.untaggedPayload);',
    'const payload = Math.min(left, tagged ? out.taggedPayload + 4 : out.untaggedPayload);',
  ),
  m(
    'sender.responses-too-long',
    RESPONSES,
    'return Math.min(size - sent, out.taggedPayload);',
    'return Math.min(size - sent, out.taggedPayload + (out.taggedPayload < 60_000 ? 4 : 0));',
  ),
  m(
    'sender.segments-too-long',
    LOWER_LAYER,
    'return mulpduFor(this.#config.emss, this.#framer!.markers);',
    'return mulpduFor(this.#config.emss, false);',
  ),
  m(
    'sender.invalidate-stag-missing',
    WORK_SEGMENTS,
    'control, last, wqe.stag, QN.SEND',
    'control, last, 0, QN.SEND',
  ),
  m(
    'sender.ord-not-kept',
    SENDER,
    'return this.ord === 0 || requests.mayAsk(wqe.total, this.ord) ? wqe : null;',
    'return wqe;',
  ),
  m(
    'sender.speaks-before-the-first-fpdu',
    OPERATION,
    "if (!llp.responderWaits || negotiated.role === 'initiator') {\n      this.sender.mayTransmit = true;",
    "this.sender.mayTransmit = true;\n    if (!llp.responderWaits || negotiated.role === 'initiator') {",
  ),
  m(
    'sender.write-inside-response',
    SENDER,
    'if (untagged !== null && untagged.kind !== WORK.WRITE)',
    'if (untagged !== null)',
  ),
  m(
    'sender.atomic-response-counts-with-requests',
    RESPONSES,
    'const at = out.beginMessage(buffer, OPCODE.ATOMIC_RESPONSE, QN.ATOMIC_RESPONSE, ' +
      'ATOMIC_RESPONSE_OCTETS);',
    'const msn = out.segments.nextMsn(QN.READ_REQUEST);\n' +
      '  const at = out.beginMessageWith(\n' +
      '    buffer, OPCODE.ATOMIC_RESPONSE, QN.ATOMIC_RESPONSE, msn, ATOMIC_RESPONSE_OCTETS);',
  ),
  m(
    'sender.immediate-behind-a-write-keeps-its-stag',
    WORK_SEGMENTS,
    'wqe.stag = 0; // EXT-003',
    '// EXT-003',
    'Only our own interface has one request for both; test/verbs/extensions.test.ts sees it.',
  ),
  m(
    'sender.rtr-not-first',
    SENDER,
    'if (this.rtr !== null) return this.#sendRtr(buffer);\n    if (this.#sending',
    'if (this.rtr !== null && this.#nextWork() === null && this.#sending === null) return ' +
      'this.#sendRtr(buffer);\n' +
      '    if (this.#sending',
  ),
  m('sender.rtr-forgotten', OPERATION, 'this.sender.rtr = negotiated.rtr;', 'this.sender.rtr = null;'),
  m(
    'sender.read-sink-not-echoed',
    RESPONSES,
    'last, request.sinkStag, sinkHi, sinkLo, payload);',
    'last, request.sourceStag, sinkHi, sinkLo, payload);',
  ),
  m(
    'sender.response-sink-without-carry',
    RESPONSES,
    'const sinkHi = addHi(request.sinkHi, request.sinkLo, request.sent);',
    'const sinkHi = request.sinkHi;',
  ),
  m(
    'sender.response-not-rechecked',
    RESPONSES,
    'if (fault === FAULT.NONE) return null;',
    'if (fault >= 0) return null;',
  ),
  m(
    'sender.atomic-id-not-echoed',
    BODIES,
    'view.setUint32(at + ATOMIC_RESPONSE.ID, request.requestId);',
    'view.setUint32(at + ATOMIC_RESPONSE.ID, 0);',
  ),
  m(
    'sender.compare-mask-zero',
    BODIES,
    'view.setUint32(at + ATOMIC_REQUEST.COMPARE_MASK + 4, add ? 0xffff_ffff',
    'view.setUint32(at + ATOMIC_REQUEST.COMPARE_MASK + 4, add ? 0',
  ),
  m(
    'reads.header-not-advanced',
    READS,
    'view.setUint32(READ_REQUEST.SIZE, this.size - this.sent);',
    'view.setUint32(READ_REQUEST.SIZE, this.size);',
  ),
  m(
    'reads.source-not-advanced',
    READS,
    'view.setUint32(READ_REQUEST.SOURCE_TO + 4, addLo(this.sourceLo, this.sent));',
    '',
  ),

  // Terminate
  m(
    'terminate.layer-and-type-swapped',
    TERMINATE,
    'bytes[at] = (info.layer << 4) | info.type;',
    'bytes[at] = (info.type << 4) | info.layer;',
  ),
  m(
    'terminate.m-missing',
    TERMINATE,
    '(info.segmentLength === undefined ? 0 : TERMINATE_CONTROL.SEGMENT_LENGTH) |',
    '',
  ),
  m(
    'terminate.length-of-payload-only',
    TERMINATE,
    'segmentLength: segment.length,\n    ddpHeader: copyOf(bytes, ',
    'segmentLength: segment.payloadLength,\n    ddpHeader: copyOf(bytes, ',
  ),
  m(
    'terminate.length-one-octet-only',
    TERMINATE,
    'bytes[out] = info.segmentLength >>> 8;',
    'bytes[out] = 0;',
  ),
  m(
    'terminate.headers-for-crc-errors',
    STREAM,
    "this.#terminateWith(plainTerminate(verdict), 'next'); // MPA-074",
    "this.#terminateWith({ ...plainTerminate(verdict), segmentLength: 0 }, 'next'); // MPA-074",
  ),
  m(
    'terminate.no-headers-for-operation-errors',
    TERMINATE,
    'if (head.layer === 2 || (head.layer === 0 && head.type === 0)) return',
    'if (head.layer === 2 || (head.layer === 0 && head.type !== 1)) return',
  ),
  m(
    'terminate.no-headers-for-invalidate',
    TERMINATE,
    'if (head.layer === 2 || (head.layer === 0 && head.type === 0)) return',
    'if (head.layer === 2 || (head.layer === 0 && (head.type === 0 || head.code === 9))) return',
  ),
  m(
    'terminate.rdmap-header-zero-beside-stag-errors',
    TERMINATE,
    'rdmapHeader: withRdmap ? copyOf(bytes,',
    'rdmapHeader: withRdmap && head.code !== 0 ? new Uint8Array(READ_REQUEST_OCTETS) : withRdmap ? ' +
      'copyOf(bytes,',
  ),
  m(
    'terminate.length-in-marker-errors',
    TERMINATE,
    "return { ...base('local', packed), ...EMPTY };",
    "return { ...base('local', packed), ...EMPTY, segmentLength: packed === 0x2003 ? 5 : undefined };",
  ),
  m(
    'terminate.headers-for-local-errors',
    TERMINATE,
    'if (head.layer === 2 || (head.layer === 0 && head.type === 0)) return',
    'if (head.layer === 2) return',
    'The tester protocol cannot take the memory of a posted receive away; test/rdmap/terminate.test.ts ' +
      'sees it.',
  ),
  m(
    'terminate.length-field-only-with-m',
    TERMINATE,
    '(control & TERMINATE_CONTROL.SEGMENT_LENGTH) !== 0 || hasDdp)',
    '(control & TERMINATE_CONTROL.SEGMENT_LENGTH) !== 0)',
    'The fields read from a Terminate stay on our side; test/rdmap/terminate.test.ts sees it.',
  ),
  m(
    'terminate.rdmap-header-missing',
    TERMINATE,
    'rdmapHeader: withRdmap ?',
    'rdmapHeader: withRdmap && octets === 0 ?',
  ),
  m(
    'terminate.rdmap-header-for-ddp-errors',
    TERMINATE,
    'const withRdmap = delivered && isReadRequest',
    'const withRdmap = isReadRequest',
  ),
  m(
    'terminate.octets-behind-it',
    SENDER,
    "writer.finish(buffer, octets);\n    this.#terminateWhen = 'sent';",
    'writer.finish(buffer, octets);\n' +
      '    (buffer as unknown as { end: number }).end += 4;\n' +
      "    this.#terminateWhen = 'sent';",
  ),
  m(
    'terminate.never-sent',
    SENDER,
    'this.#terminate = info;\n    this.#terminateWhen = when;',
    "this.#terminateWhen = 'sent';",
  ),
  m(
    'terminate.connection-stays-open',
    STREAM,
    "else if (this.state === 'terminating' && sender!.terminateSent) this.#endOnce();",
    '',
  ),
  m(
    'terminate.reset-instead-of-fin',
    STREAM,
    "this.#action = 'end';",
    "this.#action = this.state === 'terminating' ? 'reset' : 'end';",
  ),

  // Atomics
  m(
    'atomics.mask-inverted',
    ATOMICS,
    'if (((o.compare ^ original) & o.compareMask) !== 0n) return original;',
    'if (((o.compare ^ original) & ~o.compareMask) !== 0n) return original;',
  ),
  m(
    'atomics.carry-not-dropped',
    ATOMICS,
    'return (low ^ ((a ^ b) & mask)) & MASK_64;',
    'return (a + b) & MASK_64;',
  ),
  m(
    'atomics.swap-mask-ignored',
    ATOMICS,
    'return (original & ~o.mask & MASK_64) | (o.data & o.mask);',
    'return o.data;',
  ),
  m(
    'atomics.alignment-of-the-offset',
    ATOMICS,
    'return (bytes.byteOffset + offset) % 8 === 0;',
    'return offset % 8 === 0;',
    'A peer does not choose where in memory a region begins; test/rdmap/extensions.test.ts sees it.',
  ),
  m(
    'atomics.alignment-not-checked',
    ATOMICS,
    'return (bytes.byteOffset + offset) % 8 === 0;',
    'return offset >= 0;',
  ),
];
