/**
 * The Sockets Direct Protocol above RDMAP: Hello and HelloAck in the private data of the start-up or in front
 * of it, and the message that begins in each Send. The headers stand in the first segment of a message, so
 * that nothing has to be put together. Keeps nothing; never throws on input.
 */
import { UNTAGGED_HEADER_OCTETS } from '../../ddp/wire.ts';
import { OPCODE } from '../../rdmap/wire.ts';
import {
  BSDH_OCTETS,
  decodeHello,
  decodeHelloAck,
  decodeModeChange,
  getAdvertised,
  getBsdh,
  getLockTable,
  getUpdatedSource,
  MESSAGE_TABLE,
  MID,
} from '../../sdp/wire.ts';
import type { DecodedFpdu, DecodedStartup, SdpFields, SdpSetupFields, StreamNote } from './types.ts';

const SENDS: ReadonlySet<number> = new Set([
  OPCODE.SEND,
  OPCODE.SEND_SE,
  OPCODE.SEND_INVALIDATE,
  OPCODE.SEND_SE_INVALIDATE,
]);

/** Longest Hello and HelloAck in front of MPA: as long as private data may be. */
export const MOST_FRONT_OCTETS = 512;

/** Whether bytes in front of MPA may be Hello or HelloAck. */
export function beginsSetup(first: number | undefined): boolean {
  return first === MID.HELLO || first === MID.HELLO_ACK;
}

/** Hello or HelloAck, if the bytes in front of an MPA frame are one of them and nothing else. */
export function setupInFront(bytes: Uint8Array): SdpSetupFields | undefined {
  if (bytes.length <= BSDH_OCTETS || !beginsSetup(bytes[0])) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (getBsdh(view, 0).length !== bytes.length) return undefined;
  const kind = bytes[0] === MID.HELLO ? 'Hello' : 'HelloAck';
  const setup = kind === 'Hello' ? decodeHello(bytes) : decodeHelloAck(bytes, bytes[BSDH_OCTETS]! >> 4);
  if (typeof setup === 'string') return undefined;
  return { kind, bufs: setup.bufs, size: setup.localSize, maxAdverts: setup.maxAdverts };
}

/** Follows SDP on one connection; does nothing on others. */
export class SdpTracker {
  /** Major version of the Hello. */
  private major: number | undefined;
  /** There was a Hello in front of MPA. */
  private inFront = false;

  /** Bytes have been passed over. */
  note({ sdp }: StreamNote): void {
    if (sdp?.kind === 'Hello') this.inFront = true;
  }

  /** Decodes the private data of a start-up frame, if the Request's is a Hello. */
  startup({ frame }: DecodedStartup): SdpSetupFields | undefined {
    if (frame.kind === 'request') {
      const hello = decodeHello(frame.privateData);
      if (typeof hello === 'string') return undefined;
      this.major = hello.version >> 4;
      return { kind: 'Hello', bufs: hello.bufs, size: hello.localSize, maxAdverts: hello.maxAdverts };
    }
    if (this.major === undefined || frame.reject) return undefined;
    const ack = decodeHelloAck(frame.privateData, this.major);
    if (typeof ack === 'string') return undefined;
    return { kind: 'HelloAck', bufs: ack.bufs, size: ack.localSize, maxAdverts: ack.maxAdverts };
  }

  /** The message that begins in this FPDU. */
  fpdu({ ddp, rdmap, crc, ulpdu, captured }: DecodedFpdu): SdpFields | undefined {
    if (this.major === undefined && !this.inFront) return undefined;
    if (ddp === undefined || ddp.tagged || ddp.mo !== 0) return undefined;
    if (rdmap === undefined || !SENDS.has(rdmap.opcode) || (crc.use === 'on' && !crc.ok)) return undefined;
    const bytes = ulpdu.subarray(UNTAGGED_HEADER_OCTETS);
    if (captured !== undefined || bytes.length < BSDH_OCTETS) return undefined;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const { mid, flags, bufs, length, mseq, mseqAck } = getBsdh(view, 0);
    const form = MESSAGE_TABLE.get(mid);
    const name = form?.name ?? `message 0x${mid.toString(16)}`;
    const header = { name, flags, bufs, length, mseq, mseqAck };
    const extension = form?.extension ?? 0;
    const octets = BSDH_OCTETS + extension;
    const payload = Math.max(0, length - octets);
    if (bytes.length < octets || extension === 0) return { ...header, payload };
    if (mid === MID.LOCK_TABLE) return { ...header, payload, locks: getLockTable(view, BSDH_OCTETS) };
    if (mid === MID.UPDATED_SRC_AVAIL) {
      const { slot, generation, ...memory } = getUpdatedSource(view, BSDH_OCTETS);
      return { ...header, payload, memory, lock: { slot, generation } };
    }
    if (extension >= 16) {
      const memory = getAdvertised(view, BSDH_OCTETS);
      const nonDiscards = mid === MID.SINK_AVAIL ? { nonDiscards: view.getUint32(octets - 4) } : {};
      return { ...header, payload, memory, ...nonDiscards };
    }
    const value = view.getUint32(BSDH_OCTETS);
    if (mid !== MID.MODE_CHANGE) return { ...header, payload, value };
    const change = decodeModeChange(value);
    return { ...header, payload, mode: change === null ? 'no mode' : `${change.mode}, ${change.half} half` };
  }
}
