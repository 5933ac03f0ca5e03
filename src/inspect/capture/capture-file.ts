/**
 * A capture file of either kind, as packets: looks at the first bytes and hands over to pcap.ts or
 * pcapng.ts. Fed with the file's bytes at any cut.
 */
import { IwarpError } from '../../base/errors.ts';
import { OctetQueue } from './octet-queue.ts';
import { PcapParser, isPcapMagic } from './pcap.ts';
import { PcapngParser, isPcapngMagic } from './pcapng.ts';

/** One captured packet. `bytes[start..end)` is borrowed for the call. */
export interface CapturePacket {
  /** Since 1970, and nanoseconds within the second. */
  readonly seconds: number;
  readonly nanos: number;
  /** LINKTYPE number of the interface. */
  readonly linkType: number;
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
  /** Bytes on the link; more than `end - start` if the capture cut it. */
  readonly originalLength: number;
  /** Where the record stands in the file. */
  readonly offset: number;
}

export interface CaptureSink {
  packet(packet: CapturePacket): void;
  /** Something in the file that is not understood, with its offset. */
  remark(offset: number, message: string): void;
}

/**
 * A parser takes whole records at the queue's head: bytes consumed, 0 if it needs more, -1 if nothing
 * further can be read.
 */
export interface CaptureParser {
  take(queue: OctetQueue, offset: number): number;
}

/** Files that are likely to be given instead, by their first bytes, and what to do. */
const OTHER_FILES: readonly { readonly magic: readonly number[]; readonly name: string }[] = [
  { magic: [0x1f, 0x8b], name: 'gzip: try gunzip -c FILE | iwarp dissect -' },
  { magic: [0x28, 0xb5, 0x2f, 0xfd], name: 'zstd: try zstd -dc FILE | iwarp dissect -' },
  { magic: [0xfd, 0x37, 0x7a, 0x58], name: 'xz: try xz -dc FILE | iwarp dissect -' },
  { magic: [0x42, 0x5a, 0x68], name: 'bzip2: try bzip2 -dc FILE | iwarp dissect -' },
  { magic: [0x73, 0x6e, 0x6f, 0x6f], name: 'snoop: try editcap -F pcap FILE OUT' },
  { magic: [0x47, 0x4d, 0x42, 0x55], name: 'Network Monitor: try editcap -F pcap FILE OUT' },
];
/** Bytes that decide what the file is. */
const MAGIC_OCTETS = 4;

/** Reads a capture file pushed in pieces. */
export class CaptureFile {
  private readonly queue = new OctetQueue();
  private readonly sink: CaptureSink;
  private parser: CaptureParser | undefined;
  private offset = 0;
  private stopped = false;

  constructor(sink: CaptureSink) {
    this.sink = sink;
  }

  /** The next bytes of the file. Throws ERR_INVALID_ARGUMENT if they show that it is no capture file. */
  push(bytes: Uint8Array): void {
    if (this.stopped) return;
    this.queue.append(bytes, 0, bytes.length);
    this.parser ??= this.choose(false);
    if (this.parser === undefined) return;
    for (;;) {
      const taken = this.parser.take(this.queue, this.offset);
      if (taken < 0) {
        this.stopped = true;
        this.queue.release();
        return;
      }
      if (taken === 0) return;
      this.queue.drop(taken);
      this.offset += taken;
    }
  }

  /** The file is over. Throws ERR_INVALID_ARGUMENT if it was no capture file. */
  end(): void {
    this.parser ??= this.choose(true);
    if (!this.stopped && this.queue.length > 0) {
      this.sink.remark(this.offset, `the file ends inside a record, ${this.queue.length} bytes are left`);
    }
    this.queue.release();
    this.stopped = true;
  }

  private choose(final: boolean): CaptureParser | undefined {
    const { bytes, head, length } = this.queue;
    if (length < MAGIC_OCTETS) {
      if (final) throw new IwarpError('ERR_INVALID_ARGUMENT', `not a capture file: it has ${length} bytes`);
      return undefined;
    }
    if (isPcapMagic(bytes, head)) return new PcapParser(this.sink);
    if (isPcapngMagic(bytes, head)) return new PcapngParser(this.sink);
    const other = OTHER_FILES.find((kind) => kind.magic.every((octet, i) => octet === bytes[head + i]));
    if (other !== undefined)
      throw new IwarpError('ERR_INVALID_ARGUMENT', `not a capture file but ${other.name}`);
    const magic = Array.from(bytes.subarray(head, head + MAGIC_OCTETS), (octet) =>
      octet.toString(16).padStart(2, '0'),
    ).join(' ');
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `not a capture file: it begins with ${magic}, neither pcap nor pcapng`,
    );
  }
}
