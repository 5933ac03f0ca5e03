/**
 * Full operation of one stream: the parts of the data path in both directions, made together when start-up has settled how they work, each from
 * its initial state (RDMAP-096); and what their errors call for.
 */
import { TERM } from '../base/terminate-codes.ts';
import { DdpReceiver } from '../ddp/receiver.ts';
import { getU32, QN, UNTAGGED_HEADER_OCTETS, UNTAGGED_MSN_OFFSET, UNTAGGED_QN_OFFSET } from '../ddp/wire.ts';
import { createDeframer, type Deframer, type UlpduSink } from '../mpa/deframer.ts';
import { createFramer, type Framer } from '../mpa/framer.ts';
import type { Negotiated } from '../mpa/policy.ts';
import { mulpduFor } from '../mpa/wire.ts';
import { noMessages } from './counters.ts';
import type { InputClock } from './read-bound.ts';
import { Requests } from './reads.ts';
import { DELIVERED, Receiver, SILENT, type Requester } from './receiver.ts';
import { Sender } from './sender.ts';
import type { StreamConfig, StreamEndpoint } from './stream-types.ts';
import { terminateForSegment, type TerminateInfo } from './terminate.ts';
import { OPCODE, RDMAP_CONTROL } from './wire.ts';

/** The packed Terminate code in what a check returns, without the flags around it. */
const CODE_MASK = 0x1_ffff;

export class StreamOperation {
  readonly deframer: Deframer;
  readonly ddp: DdpReceiver;
  readonly receiver: Receiver;
  readonly sender: Sender;
  readonly framer: Framer;

  constructor(config: StreamConfig, negotiated: Negotiated, endpoint: StreamEndpoint, stream: UlpduSink & Requester & InputClock) {
    const { policy, resources, emss } = config;
    const crc = negotiated.crc ? resources.crc : null;
    const version = negotiated.ddpVersion;
    this.framer = createFramer(negotiated.sendMarkers ? resources.crc.runs : null, crc);
    const parts = {
      framer: this.framer,
      mulpdu: mulpduFor(emss, negotiated.sendMarkers),
      version,
      ord: Math.min(negotiated.ord, endpoint.maxOrd),
      interleave: policy.interleave,
      endpoint,
      requests: new Requests(negotiated.ird, negotiated.autoOrd ? stream : null),
      requester: stream,
      messages: noMessages(),
    };
    this.sender = new Sender(parts);
    this.receiver = new Receiver(parts);
    this.ddp = new DdpReceiver(this.receiver, version);
    this.deframer = createDeframer(negotiated.receiveMarkers ? resources.crc.runs : null, crc, stream, resources.slabs);
    if (negotiated.role === 'initiator') {
      this.sender.mayTransmit = true;
      this.sender.rtr = negotiated.rtr;
    } else {
      this.receiver.expectedRtr = negotiated.rtr;
    }
  }

  /** The Terminate for an error on the segment handled last; null if the stream ends without an answer. */
  terminateFor(code: number): TerminateInfo | null {
    const { segment } = this.ddp;
    // RDMAP-081: a segment that calls itself a Terminate and is malformed is never answered.
    const isTerminate = (segment.ulpControl & RDMAP_CONTROL.OPCODE) === OPCODE.TERMINATE;
    if ((code & SILENT) !== 0 || (isTerminate && (code & 0xffff) !== TERM.RDMAP_VERSION)) return null;
    this.receiver.failOpenReceive(code & CODE_MASK);
    return terminateForSegment(code & CODE_MASK, segment, (code & DELIVERED) !== 0);
  }

  /** VERBS-112: the Read or Atomic that a Terminate of the peer names completes with its reason. */
  blame(terminate: TerminateInfo): void {
    const header = terminate.ddpHeader;
    if (header === undefined || header.length < UNTAGGED_HEADER_OCTETS) return;
    if (getU32(header, UNTAGGED_QN_OFFSET) !== QN.READ_REQUEST) return;
    const wqe = this.sender.requestWithMsn(getU32(header, UNTAGGED_MSN_OFFSET));
    if (wqe !== null) wqe.status = terminate.layer === 0 && terminate.type === 1 ? 'remote-access-error' : 'remote-operation-error';
  }

  /** Preset the next MSN of a queue in both directions: a test hook for the wrap (DDP-015). */
  presetMsn(qn: number, msn: number): void {
    this.sender.presetMsn(qn, msn);
    this.ddp.presetMsn(qn, msn);
  }
}
