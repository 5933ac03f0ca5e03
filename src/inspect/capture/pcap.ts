/**
 * The classic capture file: 24 bytes of file header, then records of 16 bytes and a packet. Both byte
 * orders, micro- and nanosecond stamps, and the variant with 8 more bytes a record. Format:
 * draft-ietf-opsawg-pcap.
 */
import type { CaptureParser, CaptureSink } from './capture-file.ts';
import { MAX_BLOCK_OCTETS } from './limits.ts';
import type { OctetQueue } from './octet-queue.ts';

const FILE_HEADER_OCTETS = 24;
const RECORD_HEADER_OCTETS = 16;
/**
 * The variant of old patched tcpdumps has an interface index, protocol and packet type after the usual
 * header.
 */
const PATCHED_EXTRA_OCTETS = 8;
const MAGIC = { MICRO: 0xa1b2c3d4, NANO: 0xa1b23c4d, PATCHED: 0xa1b2cd34 } as const;
const LINK_TYPE_MASK = 0xffff;

/** Link types that this room decodes (LINKTYPE numbers). */
export const LINK_TYPE = {
  NULL: 0,
  ETHERNET: 1,
  RAW_BSD: 12,
  RAW: 101,
  LOOP: 108,
  LINUX_SLL: 113,
  IPV4: 228,
  IPV6: 229,
  LINUX_SLL2: 276,
} as const;

/** True if the bytes at `at` begin a pcap file of either byte order. */
export function isPcapMagic(bytes: Uint8Array, at: number): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset + at);
  return known(view.getUint32(0)) || known(view.getUint32(0, true));
}

function known(magic: number): boolean {
  return magic === MAGIC.MICRO || magic === MAGIC.NANO || magic === MAGIC.PATCHED;
}

export class PcapParser implements CaptureParser {
  private readonly sink: CaptureSink;
  private little: boolean | undefined;
  private perTick = 1000;
  private extra = 0;
  private linkType = 0;

  constructor(sink: CaptureSink) {
    this.sink = sink;
  }

  take(queue: OctetQueue, offset: number): number {
    return this.little === undefined ? this.takeHeader(queue) : this.takeRecord(queue, offset, this.little);
  }

  private takeHeader({ bytes, head, length }: OctetQueue): number {
    if (length < FILE_HEADER_OCTETS) return 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset + head);
    const little = !known(view.getUint32(0));
    const magic = view.getUint32(0, little);
    this.little = little;
    this.perTick = magic === MAGIC.NANO ? 1 : 1000;
    this.extra = magic === MAGIC.PATCHED ? PATCHED_EXTRA_OCTETS : 0;
    this.linkType = view.getUint32(20, little) & LINK_TYPE_MASK;
    return FILE_HEADER_OCTETS;
  }

  private takeRecord({ bytes, head, length }: OctetQueue, offset: number, little: boolean): number {
    const front = RECORD_HEADER_OCTETS + this.extra;
    if (length < front) return 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset + head);
    const captured = view.getUint32(8, little);
    if (captured > MAX_BLOCK_OCTETS) {
      this.sink.remark(
        offset,
        `a packet record claims ${captured} bytes; the rest of the file cannot be read`,
      );
      return -1;
    }
    if (length < front + captured) return 0;
    const originalLength = Math.max(captured, view.getUint32(12, little));
    this.sink.packet({
      seconds: view.getUint32(0, little),
      nanos: view.getUint32(4, little) * this.perTick,
      linkType: this.linkType,
      bytes,
      start: head + front,
      end: head + front + captured,
      originalLength,
      offset,
    });
    return front + captured;
  }
}
