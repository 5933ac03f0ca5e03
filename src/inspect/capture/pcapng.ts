/**
 * The newer capture file: blocks of type, length, body and length again. Sections of either byte order,
 * several interfaces, each with its resolution of stamps; enhanced, simple and obsolete packet blocks;
 * everything else is passed over. Format: draft-ietf-opsawg-pcapng.
 */
import type { CaptureParser, CaptureSink } from './capture-file.ts';
import { MAX_BLOCK_OCTETS, MAX_INTERFACES } from './limits.ts';
import type { OctetQueue } from './octet-queue.ts';

const BLOCK = {
  INTERFACE: 1,
  OLD_PACKET: 2,
  SIMPLE_PACKET: 3,
  ENHANCED_PACKET: 6,
  SECTION: 0x0a0d0d0a,
} as const;
const BYTE_ORDER_MAGIC = 0x1a2b3c4d;
/** Type and length in front, length after. */
const BLOCK_FRAME_OCTETS = 12;
const BLOCK_FRONT_OCTETS = 8;
const OPTION = { END: 0, TIME_RESOLUTION: 9, TIME_OFFSET: 14 } as const;
const NANOS = 1_000_000_000n;

interface Interface {
  readonly linkType: number;
  readonly snapLength: number;
  /** Ticks of the stamp in a second. */
  readonly ticks: bigint;
  readonly offsetSeconds: bigint;
}

/** True if the bytes at `at` begin a pcapng file. */
export function isPcapngMagic(bytes: Uint8Array, at: number): boolean {
  return new DataView(bytes.buffer, bytes.byteOffset + at).getUint32(0) === BLOCK.SECTION;
}

export class PcapngParser implements CaptureParser {
  private readonly sink: CaptureSink;
  private little = false;
  private interfaces: Interface[] = [];

  constructor(sink: CaptureSink) {
    this.sink = sink;
  }

  take(queue: OctetQueue, offset: number): number {
    const { bytes, head, length } = queue;
    if (length < BLOCK_FRAME_OCTETS) return 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset + head, length);
    if (view.getUint32(0) === BLOCK.SECTION && !this.beginSection(view, offset)) return -1;
    const type = view.getUint32(0, this.little);
    const octets = view.getUint32(4, this.little);
    if (octets < BLOCK_FRAME_OCTETS || octets % 4 !== 0 || octets > MAX_BLOCK_OCTETS) {
      this.sink.remark(
        offset,
        `a block of type ${type} claims ${octets} bytes; the rest of the file cannot be read`,
      );
      return -1;
    }
    if (length < octets) return 0;
    const body = { bytes, view, start: head, end: octets - 4, offset };
    if (type === BLOCK.INTERFACE) this.takeInterface(body);
    else if (type === BLOCK.ENHANCED_PACKET) this.takePacket(body, 4, false);
    else if (type === BLOCK.OLD_PACKET) this.takePacket(body, 2, true);
    else if (type === BLOCK.SIMPLE_PACKET) this.takeSimple(body);
    return octets;
  }

  private beginSection(view: DataView, offset: number): boolean {
    const magic = view.getUint32(8);
    if (magic !== BYTE_ORDER_MAGIC && view.getUint32(8, true) !== BYTE_ORDER_MAGIC) {
      this.sink.remark(offset, 'a section without byte-order magic; the rest of the file cannot be read');
      return false;
    }
    this.little = magic !== BYTE_ORDER_MAGIC;
    this.interfaces = [];
    return true;
  }

  private takeInterface({ view, end, offset }: Body): void {
    if (end < 16) return this.sink.remark(offset, 'an interface block that is too short');
    if (this.interfaces.length >= MAX_INTERFACES) return;
    let ticks = 1_000_000n;
    let offsetSeconds = 0n;
    for (let at = 16; at + 4 <= end; ) {
      const code = view.getUint16(at, this.little);
      const length = view.getUint16(at + 2, this.little);
      if (code === OPTION.END || at + 4 + length > end) break;
      if (code === OPTION.TIME_RESOLUTION && length >= 1) {
        const value = view.getUint8(at + 4);
        // A power of two with the high bit, of ten without; past 63 and 18 no real clock follows.
        ticks =
          (value & 0x80) !== 0
            ? 1n << BigInt(Math.min(value & 0x7f, 63))
            : 10n ** BigInt(Math.min(value, 18));
      }
      if (code === OPTION.TIME_OFFSET && length >= 8) offsetSeconds = view.getBigInt64(at + 4, this.little);
      at += 4 + length + (-length & 3);
    }
    this.interfaces.push({
      linkType: view.getUint16(8, this.little),
      snapLength: view.getUint32(12, this.little),
      ticks,
      offsetSeconds,
    });
  }

  /** Enhanced packet blocks have a 32-bit interface number, the old ones 16 bits and a drop count. */
  private takePacket(body: Body, idOctets: 2 | 4, old: boolean): void {
    const { view, end, offset } = body;
    const fixed = BLOCK_FRONT_OCTETS + 20;
    if (end < fixed) return this.sink.remark(offset, 'a packet block that is too short');
    const id = idOctets === 4 ? view.getUint32(8, this.little) : view.getUint16(8, this.little);
    const from = this.interfaces[id];
    if (from === undefined)
      return this.sink.remark(offset, `a packet of interface ${id}, which is not described`);
    const captured = view.getUint32(20, this.little);
    if (fixed + captured > end) {
      return this.sink.remark(
        offset,
        `a packet of ${captured} bytes in ${old ? 'an old ' : 'a '}packet block ` +
          `that has room for ${end - fixed}`,
      );
    }
    const stamp = (BigInt(view.getUint32(12, this.little)) << 32n) | BigInt(view.getUint32(16, this.little));
    this.give(body, from, stamp, fixed, captured, view.getUint32(24, this.little));
  }

  private takeSimple(body: Body): void {
    const { view, end, offset } = body;
    const [from] = this.interfaces;
    if (from === undefined) return this.sink.remark(offset, 'a simple packet block without an interface');
    const original = view.getUint32(8, this.little);
    const fixed = BLOCK_FRONT_OCTETS + 4;
    const limit = from.snapLength === 0 ? original : Math.min(original, from.snapLength);
    this.give(body, from, 0n, fixed, Math.min(limit, end - fixed), original);
  }

  private give(
    body: Body,
    from: Interface,
    stamp: bigint,
    at: number,
    captured: number,
    original: number,
  ): void {
    const { bytes, start, offset } = body;
    this.sink.packet({
      seconds: Number(stamp / from.ticks + from.offsetSeconds),
      nanos: Number(((stamp % from.ticks) * NANOS) / from.ticks),
      linkType: from.linkType,
      bytes,
      start: start + at,
      end: start + at + captured,
      originalLength: Math.max(original, captured),
      offset,
    });
  }
}

interface Body {
  readonly bytes: Uint8Array;
  /** Over the block, whose first byte is `bytes[start]`. */
  readonly view: DataView;
  readonly start: number;
  /** End of the body within the view. */
  readonly end: number;
  readonly offset: number;
}
