/**
 * Captures read by the suite's own code: what the stack's dissector sees in them, whatever TCP has done to
 * the order of the packets.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CaptureDissector } from '../../src/inspect/decode/capture.ts';
import { fpdusOf } from './captured.ts';
import type { CapturedFpdu } from './captured.ts';

const FOLDER = new URL('../reports/captures/', import.meta.url);
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith('.pcap'));
/** Its Reply is none, so nothing settles how to read what follows; the dissector tries all the same. */
const UNSETTLED = 'mpa.response.bad-key-without-terminate.responder.pcap';
const FILE_HEADER_OCTETS = 24;
const RECORD_HEADER_OCTETS = 16;

const read = (name: string): Buffer => readFileSync(new URL(name, FOLDER));

/** The fields that both readers report of an FPDU. */
interface Seen {
  readonly connection: number;
  readonly from: string;
  readonly start: number;
  readonly crc: number;
  readonly crcGood: boolean;
  readonly octets: string;
}

const ours = (capture: Uint8Array): Seen[] =>
  Array.from(fpdusOf(capture), ({ connection, from, start, crc, crcGood, raw }: CapturedFpdu) => ({
    connection,
    from,
    start,
    crc,
    crcGood,
    octets: Buffer.from(raw).toString('hex'),
  }));

function dissected(capture: Uint8Array): Seen[] {
  const seen: Seen[] = [];
  const dissector = new CaptureDissector({
    event: ({ number }, event) => {
      if (event.kind !== 'fpdu') return;
      const { direction, position, crc, raw } = event;
      // With CRC off the dissector calls every field good.
      const crcGood = crc.field === crc.computed;
      seen.push({
        connection: number,
        from: direction === 0 ? 'client' : 'server',
        start: position,
        crc: crc.field,
        crcGood,
        octets: Buffer.from(raw).toString('hex'),
      });
    },
    remark: () => undefined,
  });
  dissector.push(capture);
  dissector.end();
  return seen;
}

/** The file's header, and its records. */
function recordsOf(capture: Buffer): [Buffer, Buffer[]] {
  const little = capture[0] !== 0xa1;
  const records: Buffer[] = [];
  for (let at = FILE_HEADER_OCTETS; at < capture.length; ) {
    const end =
      at + RECORD_HEADER_OCTETS + (little ? capture.readUInt32LE(at + 8) : capture.readUInt32BE(at + 8));
    records.push(capture.subarray(at, end));
    at = end;
  }
  return [capture.subarray(0, FILE_HEADER_OCTETS), records];
}

const sideOf = (seen: readonly Seen[], side: string): Seen[] => seen.filter(({ from }) => from === side);

describe('FPDUs of a capture', () => {
  it.each(FILES.filter((name) => name !== UNSETTLED))('are those that the dissector sees in %s', (name) => {
    const capture = read(name);
    expect(ours(capture)).toEqual(dissected(capture));
  });

  it('are not guessed at after a frame that is no Reply', () => {
    expect(ours(read(UNSETTLED))).toEqual([]);
  });

  it('are found in most captures', () => {
    expect(FILES.filter((name) => ours(read(name)).length > 0).length).toBeGreaterThan(15);
  });

  it('are the same where packets come twice and in another order', () => {
    const capture = read('interop.rping-65535.crc-of-payload-twice.pcap');
    const [header, records] = recordsOf(capture);
    // The start stays as it is: the side that speaks first is the client. After it each packet comes after
    // the one that follows it, and again later.
    const [first, rest] = [records.slice(0, 6), records.slice(6)];
    const mixed = rest
      .flatMap((_, i) => (i % 2 === 0 ? [rest[i + 1], rest[i]] : [rest[i - 1]]))
      .filter((record) => record !== undefined);
    const shuffled = ours(Buffer.concat([header, ...first, ...mixed]));
    for (const side of ['client', 'server'])
      expect(sideOf(shuffled, side)).toEqual(sideOf(ours(capture), side));
    expect(shuffled.length).toBeGreaterThan(50);
  });

  it('of a second connection between the same ends are counted apart', () => {
    const capture = read('interop.rping-65535.crc-of-payload-twice.pcap');
    const once = ours(capture);
    expect(ours(Buffer.concat([capture, capture.subarray(FILE_HEADER_OCTETS)]))).toEqual([
      ...once,
      ...once.map((seen) => ({ ...seen, connection: 2 })),
    ]);
  });

  it('are not made up: a file that is no capture, or lacks octets, is refused', () => {
    const capture = read('interop.rping-65535.crc-of-payload-twice.pcap');
    expect(() => ours(Buffer.from('this is some text, and no capture at all'))).toThrow('no pcap file');
    expect(() => ours(capture.subarray(0, capture.length - 1))).toThrow('lacks octets');
    expect(() => ours(capture.subarray(0, 10))).toThrow(RangeError);
    expect(() => ours(capture.with(20, 113) as Buffer)).toThrow('link type');
  });
});
