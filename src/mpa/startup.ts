/**
 * MPA connection set-up in both roles, without I/O: RFC 5044 7.1 and RFC 6581. Read RFC 5044 7.1.2 and RFC
 * 6581 9 first; the state tables are drawn in docs/state-machines.md.
 *
 * Feed bytes with `handleBytes`, which stops after the frame: what follows is the beginning of full
 * operation (MPA-041).
 */
import { NO_BYTES } from '../base/copy.ts';
import { Machine, type MachineTable } from '../base/fsm.ts';
import type { StartupFailure } from '../llp/startup.ts';
import {
  initiatorDepths,
  negotiateAsInitiator,
  negotiateAsResponder,
  rtrBits,
  type DepthRequest,
} from './negotiate.ts';
import { requestRevision, type ConnectionPolicy, type Negotiated } from './policy.ts';
import {
  decodeEnhanced,
  DEPTH_NOT_NEGOTIATED,
  encodeStartupFrame,
  ENHANCED_OCTETS,
  MAX_PRIVATE_DATA,
  MAX_STARTUP_FRAME,
  putLegacyDepths,
  REPLY_KEY,
  REQUEST_KEY,
  STARTUP_FLAG,
  STARTUP_FLAGS_OFFSET,
  STARTUP_HEADER_OCTETS,
  STARTUP_REVISION_OFFSET,
  startupPdLength,
  takeLegacyDepths,
  type EnhancedData,
  type StartupFrame,
} from './wire.ts';

export type { StartupFailure } from '../llp/startup.ts';

/** The highest revision this stack knows. */
const HIGHEST_REVISION = 2;

/** The frame that is being read: a reader is asked to its end before another one is, so all share it. */
const frameBytes = new Uint8Array(MAX_STARTUP_FRAME);

/**
 * Whether this is the first byte of a TLS alert or handshake (RFC 8446 5.1). No key begins so, and a
 * program that has `tls` on one side only shall get to know.
 */
function isTlsRecord(octet: number): boolean {
  return octet === 0x15 || octet === 0x16;
}

/** Collects one start-up frame out of a stream cut anywhere (MPA-023). */
export class StartupFrameReader {
  readonly #key: Uint8Array;
  /** The bytes so far, while the frame is not whole; nearly every frame comes in one piece. */
  #kept: Uint8Array = NO_BYTES;
  #have = 0;
  #need: number = STARTUP_HEADER_OCTETS;
  failure: StartupFailure | null = null;
  frame: StartupFrame | null = null;

  constructor(kind: 'request' | 'reply') {
    this.#key = kind === 'request' ? REQUEST_KEY : REPLY_KEY;
  }

  /**
   * Take bytes up to the end of the frame; returns the index after the last one taken. Stops at the first
   * byte that is wrong.
   */
  push(bytes: Uint8Array, start: number, end: number): number {
    frameBytes.set(this.#kept);
    let at = start;
    while (at < end && this.frame === null && this.failure === null) {
      const octet = bytes[at++]!;
      // MPA-004, MPA-005, MPA-006: every octet of the key is compared, and a wrong one is final as soon as it
      // is seen.
      if (this.#have < this.#key.length && octet !== this.#key[this.#have]) {
        this.failure = this.#have === 0 && isTlsRecord(octet) ? 'tls-record' : 'bad-key';
        break;
      }
      frameBytes[this.#have++] = octet;
      if (this.#have === STARTUP_HEADER_OCTETS) this.#checkHeader();
      if (this.#have === this.#need && this.failure === null) this.#complete();
    }
    this.#kept = this.frame === null && this.failure === null ? frameBytes.slice(0, this.#have) : NO_BYTES;
    return at;
  }

  #checkHeader(): void {
    const pdLength = startupPdLength(frameBytes, 0);
    // MPA-019: an announced length above 512 is malformed; nothing of it is waited for.
    if (pdLength > MAX_PRIVATE_DATA) this.failure = 'private-data-too-long';
    else this.#need = STARTUP_HEADER_OCTETS + pdLength;
  }

  #complete(): void {
    const flags = frameBytes[STARTUP_FLAGS_OFFSET]!;
    const revision = frameBytes[STARTUP_REVISION_OFFSET]!;
    // S is a reserved bit, and so not looked at, below revision 2 (MPA-011, ENH-001).
    const hasEnhanced = revision >= 2 && (flags & STARTUP_FLAG.ENHANCED) !== 0;
    if (hasEnhanced && this.#have < STARTUP_HEADER_OCTETS + ENHANCED_OCTETS) {
      this.failure = 'enhanced-data-missing'; // ENH-005
      return;
    }
    const ulpStart = STARTUP_HEADER_OCTETS + (hasEnhanced ? ENHANCED_OCTETS : 0);
    this.frame = {
      kind: this.#key === REQUEST_KEY ? 'request' : 'reply',
      markers: (flags & STARTUP_FLAG.MARKERS) !== 0,
      crc: (flags & STARTUP_FLAG.CRC) !== 0,
      reject: (flags & STARTUP_FLAG.REJECT) !== 0,
      revision,
      enhanced: hasEnhanced ? decodeEnhanced(frameBytes, STARTUP_HEADER_OCTETS) : null,
      // MPA-022, ENH-006: exactly the ULP's octets, in new memory.
      privateData: ulpStart === this.#have ? NO_BYTES : frameBytes.slice(ulpStart, this.#have),
    };
  }
}

// ------------------------------------------------------------------------------------------------- initiator

export type InitiatorState = 'idle' | 'wait-reply' | 'operational' | 'rejected' | 'failed';
export type InitiatorInput =
  | 'start'
  | 'accepting-reply'
  | 'rejecting-reply'
  | 'bad-frame'
  | 'timeout'
  | 'lost';

/** RFC 5044 7.1.2, initiator side. */
export const INITIATOR_TABLE: MachineTable<InitiatorState, InitiatorInput> = {
  name: 'MPA initiator',
  initial: 'idle',
  transitions: {
    idle: { start: 'wait-reply', lost: 'failed' },
    'wait-reply': {
      'accepting-reply': 'operational',
      'rejecting-reply': 'rejected',
      'bad-frame': 'failed',
      timeout: 'failed',
      lost: 'failed',
    },
    operational: {},
    rejected: {},
    failed: {},
  },
};

/** How the initiator's set-up ended. */
type InitiatorOutcome =
  | {
      readonly kind: 'accepted';
      readonly negotiated: Negotiated;
      readonly privateData: Uint8Array;
      readonly terminate: number;
    }
  | {
      readonly kind: 'rejected';
      readonly revision: number;
      readonly enhanced: EnhancedData | null;
      readonly privateData: Uint8Array;
    }
  | { readonly kind: 'failed'; readonly reason: StartupFailure; readonly revision?: number };

/** The initiator: sends one Request, waits for the Reply. */
export class MpaInitiator {
  readonly #policy: ConnectionPolicy;
  readonly #reader = new StartupFrameReader('reply');
  readonly #machine = new Machine(INITIATOR_TABLE);
  readonly #wishes: DepthRequest;
  readonly #request: StartupFrame;

  constructor(policy: ConnectionPolicy, privateData: Uint8Array, wishes: DepthRequest) {
    this.#policy = policy;
    this.#wishes = wishes;
    this.#request = buildRequest(policy, privateData, wishes);
  }

  get state(): InitiatorState {
    return this.#machine.state;
  }

  get request(): StartupFrame {
    return this.#request;
  }

  /**
   * The Request, once. It goes out in one write: some adapters want it in one TCP segment
   * (protocol-notes 3.1).
   */
  start(): Uint8Array {
    this.#machine.step('start');
    return encodeStartupFrame(this.#request);
  }

  /** Bytes from the peer; returns how far it read. `outcome` is set when the frame is complete or wrong. */
  handleBytes(bytes: Uint8Array, start: number, end: number): number {
    const at = this.#reader.push(bytes, start, end);
    if (this.#reader.failure !== null) this.#fail('bad-frame', this.#reader.failure);
    else if (this.#reader.frame !== null) this.#handleReply(this.#reader.frame);
    return at;
  }

  outcome: InitiatorOutcome | null = null;

  handleTimeout(): void {
    this.#fail('timeout', 'timeout');
  }

  /** FIN or reset before the Reply was complete (MPA-021, ENH-047). */
  handleLost(): void {
    this.#fail('lost', 'truncated');
  }

  #handleReply(frame: StartupFrame): void {
    const reply = withLegacyDepths(this.#policy, frame);
    // MPA-015, MPA-049: a revision above the one we sent, or Rev 0 without the permissive mode, cannot be
    // worked with.
    if (reply.revision > this.#request.revision || (reply.revision === 0 && this.#policy.mpaRevision !== 0)) {
      this.#fail('bad-frame', 'unusable-revision', reply.revision);
      return;
    }
    if (reply.reject) {
      this.#machine.step('rejecting-reply'); // MPA-033
      this.outcome = {
        kind: 'rejected',
        revision: reply.revision,
        enhanced: reply.enhanced,
        privateData: reply.privateData,
      };
      return;
    }
    this.#machine.step('accepting-reply');
    const { negotiated, terminate } = negotiateAsInitiator(this.#policy, this.#request, reply, this.#wishes);
    this.outcome = { kind: 'accepted', negotiated, privateData: reply.privateData, terminate };
  }

  #fail(input: InitiatorInput, reason: StartupFailure, revision?: number): void {
    if (!this.#machine.accepts(input)) return; // the outcome stands already
    this.#machine.step(input);
    this.outcome = { kind: 'failed', reason, ...(revision === undefined ? {} : { revision }) };
  }
}

/** A revision 1 frame with SMB Direct's header taken off its private data, if the policy looks for one. */
function withLegacyDepths(policy: ConnectionPolicy, frame: StartupFrame): StartupFrame {
  if (!policy.legacyDepths || frame.revision !== 1) return frame;
  const found = takeLegacyDepths(frame.privateData);
  return found === null ? frame : { ...frame, legacyDepths: found.depths, privateData: found.privateData };
}

function buildRequest(policy: ConnectionPolicy, privateData: Uint8Array, wishes: DepthRequest): StartupFrame {
  const revision = requestRevision(policy);
  const rdmac = revision === 0;
  const asked = initiatorDepths(policy, wishes);
  const ird = policy.negotiateDepths ? asked.ird : DEPTH_NOT_NEGOTIATED;
  const ord = policy.negotiateDepths ? asked.ord : DEPTH_NOT_NEGOTIATED;
  return {
    kind: 'request',
    markers: policy.markers || rdmac,
    crc: policy.crc !== 'off' || rdmac, // MPA-052: off is an explicit wish
    reject: false,
    revision,
    enhanced:
      revision < 2
        ? null
        : { peerToPeer: policy.peerToPeer, ...rtrBits(policy.peerToPeer ? policy.rtrOffered : []), ird, ord },
    privateData: revision === 1 && policy.legacyDepths ? putLegacyDepths(asked, privateData) : privateData,
  };
}

// ------------------------------------------------------------------------------------------------- responder

export type ResponderState = 'wait-request' | 'deciding' | 'operational' | 'rejected' | 'failed';
export type ResponderInput = 'request' | 'accept' | 'reject' | 'bad-frame' | 'timeout' | 'lost';

/** RFC 5044 7.1.2, responder side. */
export const RESPONDER_TABLE: MachineTable<ResponderState, ResponderInput> = {
  name: 'MPA responder',
  initial: 'wait-request',
  transitions: {
    'wait-request': { request: 'deciding', 'bad-frame': 'failed', timeout: 'failed', lost: 'failed' },
    deciding: { accept: 'operational', reject: 'rejected', lost: 'failed', 'bad-frame': 'failed' },
    operational: {},
    rejected: {},
    failed: {},
  },
};

/** What accepting produced. */
interface AcceptResult {
  readonly reply: Uint8Array;
  /** Null when the policy turned the acceptance into a rejection (ENH-019). */
  readonly negotiated: Negotiated | null;
}

/** The responder: waits for the Request, lets the ULP decide, answers. */
export class MpaResponder {
  readonly #policy: ConnectionPolicy;
  readonly #reader = new StartupFrameReader('request');
  readonly #machine = new Machine(RESPONDER_TABLE);
  request: StartupFrame | null = null;
  failure: StartupFailure | null = null;
  /** A frame to send before the connection is closed, after a failure that calls for one (MPA-048). */
  farewell: Uint8Array | null = null;

  constructor(policy: ConnectionPolicy) {
    this.#policy = policy;
  }

  get state(): ResponderState {
    return this.#machine.state;
  }

  /** Bytes from the peer; returns how far it read. Then `request` or `failure` may be set. */
  handleBytes(bytes: Uint8Array, start: number, end: number): number {
    const at = this.#reader.push(bytes, start, end);
    if (this.#reader.failure !== null) {
      this.fail('bad-frame', this.#reader.failure);
    } else if (this.#reader.frame !== null) {
      this.#handleRequest(this.#reader.frame);
    }
    return at;
  }

  #handleRequest(frame: StartupFrame): void {
    const request = withLegacyDepths(this.#policy, frame);
    if (request.revision === 0 && this.#policy.mpaRevision !== 0) {
      // MPA-048: report to an RDMA Consortium peer the revision that we speak, then close in order. R=1 keeps
      // it from taking this as acceptance.
      this.farewell = encodeStartupFrame({
        kind: 'reply',
        markers: false,
        crc: true,
        reject: true,
        revision: 1,
        enhanced: null,
        privateData: NO_BYTES,
      });
      this.fail('bad-frame', 'unusable-revision');
      return;
    }
    // The permissive mode of revision 0 comes on top of revisions 1 and 2, not instead of them.
    const highest = this.#policy.mpaRevision === 0 ? HIGHEST_REVISION : this.#policy.mpaRevision;
    if (request.revision > highest) {
      this.fail('bad-frame', 'unusable-revision'); // MPA-015, ENH-011
      return;
    }
    this.#machine.step('request');
    this.request = request;
  }

  /** Accept with these depths (undefined: grant what the peer asks, within the policy). */
  accept(privateData: Uint8Array, wishes: DepthRequest): AcceptResult {
    const request = this.request!;
    const { frame, negotiated } = negotiateAsResponder(this.#policy, request, privateData, wishes);
    this.#machine.step(negotiated === null ? 'reject' : 'accept');
    return { reply: encodeStartupFrame(frame), negotiated };
  }

  /**
   * The rejecting Reply (MPA-031); echoes revision, S and A. It names no depths, but says of one that was
   * left open that it stays so.
   */
  reject(privateData: Uint8Array): Uint8Array {
    this.#machine.step('reject');
    const request = this.request!;
    const { enhanced, legacyDepths } = request;
    const echo = (depth: number): number => (depth === DEPTH_NOT_NEGOTIATED ? DEPTH_NOT_NEGOTIATED : 0);
    return encodeStartupFrame({
      kind: 'reply',
      markers: false,
      crc: this.#policy.crc !== 'off',
      reject: true,
      revision: request.revision,
      enhanced:
        enhanced === null
          ? null
          : {
              peerToPeer: enhanced.peerToPeer,
              ...rtrBits([]),
              ird: echo(enhanced.ord),
              ord: echo(enhanced.ird),
            }, // ENH-024, ENH-025
      // A peer that has sent a header looks for one in the answer too, and would take the first octets of the
      // private data for it.
      privateData:
        legacyDepths === undefined ? privateData : putLegacyDepths({ ird: 0, ord: 0 }, privateData),
    });
  }

  fail(input: ResponderInput, reason: StartupFailure): void {
    if (!this.#machine.accepts(input)) return;
    this.#machine.step(input);
    this.failure = reason;
  }
}
