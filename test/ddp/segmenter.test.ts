/** How segments are begun: their length, their headers and their MSNs. RFC 5041 4, 5.1.2. */
import { describe, expect, it } from 'vitest';
import { Segmenter } from '../../src/ddp/segmenter.ts';
import { QN } from '../../src/ddp/wire.ts';
import type { TransmitBuffer, UlpduWriter } from '../../src/llp/lower-layer.ts';

const bytes = new Uint8Array(64);
const BUFFER: TransmitBuffer = { octets: 0, pin: () => expect.unreachable() };

/** A writer that says how long each ULPDU was announced to be. */
function writer(at: number, begun: number[]): UlpduWriter {
  const never = (): never => expect.unreachable();
  return {
    target: { bytes, view: new DataView(bytes.buffer) },
    at,
    zeroCopy: false,
    fits: never,
    fitsZeroCopy: never,
    begin: (_, octets) => void begun.push(octets),
    finish: never,
    finishZeroCopy: never,
    finishGathered: never,
  };
}

function beginTagged(segmenter: Segmenter, last: boolean, payload: number): number {
  return segmenter.beginTagged(BUFFER, 0x42, last, 0x1122_3344, 0x5566_7788, 0x99aa_bbcc, payload);
}

function beginUntagged(segmenter: Segmenter, last: boolean, payload: number): number {
  return segmenter.beginUntagged(BUFFER, 0x43, last, 0x1122_3344, 2, 0x5566_7788, 0x99aa_bbcc, payload);
}

const hex = (from: number, to: number): string => Buffer.from(bytes.subarray(from, to)).toString('hex');

describe('a segment that is begun', () => {
  it('is announced with header and payload; its header stands in front of the payload (DDP-010)', () => {
    for (const version of [0, 1] as const) {
      const begun: number[] = [];
      const segmenter = new Segmenter(writer(5, begun), version, 1);
      bytes.fill(0);
      expect(beginTagged(segmenter, true, 30)).toBe(19);
      expect(hex(5, 19)).toBe(`${version === 1 ? 'c1' : 'c0'}42112233445566778899aabbcc`);
      bytes.fill(0);
      expect(beginUntagged(segmenter, false, 20)).toBe(23);
      expect(hex(5, 23)).toBe(`${version === 1 ? '01' : '00'}4311223344000000025566778899aabbcc`);
      expect(begun).toEqual([44, 38]);
    }
  });
});

describe('MSNs', () => {
  it('begin at 1 on each queue and count by themselves (DDP-014)', () => {
    const segmenter = new Segmenter(writer(0, []), 1, 1);
    expect(segmenter.nextMsn(QN.TERMINATE)).toBe(1);
    for (const msn of [1, 2, 3]) {
      for (const qn of [QN.SEND, QN.READ_REQUEST, QN.ATOMIC_RESPONSE])
        expect(segmenter.nextMsn(qn)).toBe(msn);
    }
    expect(segmenter.nextMsn(QN.TERMINATE)).toBe(1);
    expect(segmenter.nextMsn(QN.ATOMIC_RESPONSE)).toBe(4);
  });

  it('go from 0xFFFFFFFF to 0 (DDP-015)', () => {
    const segmenter = new Segmenter(writer(0, []), 1, 0xffff_ffff);
    for (const qn of [QN.SEND, QN.READ_REQUEST, QN.ATOMIC_RESPONSE])
      expect([segmenter.nextMsn(qn), segmenter.nextMsn(qn), segmenter.nextMsn(qn)]).toEqual([
        0xffff_ffff, 0, 1,
      ]);
    expect(segmenter.nextMsn(QN.TERMINATE)).toBe(1);
  });
});
