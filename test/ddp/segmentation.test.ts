/**
 * Segmentation to a given MULPDU, and messages up to 2^32 - 1 octets, at the sender and the receiver on their
 * own: RFC 5041 5.2.
 */
import { describe, expect, it } from 'vitest';
import { loadVectors } from '../../conformance/vectors/index.ts';
import { FINE, TERM } from '../../src/base/terminate-codes.ts';
import { OrderedReceiver, type DdpUlp } from '../../src/ddp/receiver.ts';
import { ACCESS, type StagEntry } from '../../src/ddp/stag-table.ts';
import { createTransmitBuffer, type TransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import type { Sender } from '../../src/rdmap/sender.ts';
import { WORK, type SendQueue } from '../../src/queues/work.ts';
import { bareSender } from '../support/bare-sender.ts';

const MAX = 0xffff_ffff;

interface Cut {
  readonly mo: number;
  readonly to: bigint;
  readonly payloadLength: number;
  readonly last: boolean;
}

/** Every segment the sender makes from here, as its header says; `see` gets each. */
function drain(sender: Sender, see: (cut: Cut) => void): void {
  const buffer: TransmitBuffer = createTransmitBuffer(new Uint8Array(65_536));
  for (let fills = 0; ; fills++) {
    expect(fills).toBeLessThan(100_000);
    buffer.clear();
    sender.fill(buffer);
    if (buffer.end === 0) return;
    buffer.seal();
    const octets = buffer.count === 1 ? buffer.bytes : Buffer.concat(buffer.chunks);
    const view = new DataView(octets.buffer, octets.byteOffset, octets.byteLength);
    for (let at = 0; at < buffer.octets; ) {
      const length = view.getUint16(at);
      const tagged = (view.getUint8(at + 2) & 0x80) !== 0;
      const last = (view.getUint8(at + 2) & 0x40) !== 0;
      const mo = tagged ? -1 : view.getUint32(at + 16);
      const to = tagged ? view.getBigUint64(at + 8) : -1n;
      see({ mo, to, payloadLength: length - (tagged ? 14 : 18), last });
      at += ((2 + length + 3) & ~3) + 4;
    }
  }
}

function post(sq: SendQueue, tagged: boolean, to: bigint, pieces: readonly [Uint8Array, number][]): void {
  const wqe = sq.peekFree()!;
  wqe.kind = tagged ? WORK.WRITE : WORK.SEND;
  wqe.opcode = tagged ? 'rdma-write' : 'send';
  wqe.wireOpcode = tagged ? 0 : 3;
  wqe.toHi = Number(to >> 32n);
  wqe.toLo = Number(to & 0xffff_ffffn);
  for (const [bytes, length] of pieces) wqe.sges.add(null, bytes, 0, length);
  sq.push();
}

describe('segmentation vectors', () => {
  for (const { name, fields } of loadVectors('segmentation')) {
    it(`${name} (DDP-017, DDP-018, DDP-021, DDP-025)`, () => {
      const { sender, sq } = bareSender(fields.mulpdu);
      post(sq, fields.tagged, BigInt(fields.to ?? 0), [
        [new Uint8Array(fields.messageLength), fields.messageLength],
      ]);
      const cuts: Cut[] = [];
      drain(sender, (cut) => cuts.push(cut));
      expect(cuts.length).toBe(fields.segments.length);
      fields.segments.forEach((segment, i) => {
        const { mo, to, payloadLength, last } = cuts[i]!;
        expect({ payloadLength, last }).toEqual({ payloadLength: segment.payloadLength, last: segment.last });
        if (segment.mo !== undefined) expect(mo).toBe(segment.mo);
        if (segment.to !== undefined) expect(to).toBe(BigInt(segment.to));
      });
    });
  }
});

describe('the largest message', () => {
  const piece = new Uint8Array(1 << 26);
  const pieces: [Uint8Array, number][] = Array.from({ length: 64 }, (_, i) => [
    piece,
    i < 63 ? 1 << 26 : (1 << 26) - 1,
  ]);

  it.each([
    ['Send', false],
    ['Write', true],
  ] as const)(
    'a %s of 2^32 - 1 octets is cut without a slip, TO carrying into the upper half (DDP-017/018/022/023)',
    (_, tagged) => {
      const { sender, sq, completed } = bareSender(64_768);
      const start = 0xffff_ffff_8000_0000n - 0x1_0000_0000n;
      post(sq, tagged, start, pieces);
      let octets = 0;
      let lasts = 0;
      let slips = 0;
      drain(sender, (cut) => {
        if (tagged ? cut.to !== start + BigInt(octets) : cut.mo !== octets) slips++;
        octets += cut.payloadLength;
        if (cut.last) lasts++;
      });
      expect({ octets, lasts, slips }).toEqual({ octets: MAX, lasts: 1, slips: 0 });
      sender.handedOut();
      sender.transmissionDone();
      expect(completed.length).toBe(1);
    },
  );

  it('a response of 2^32 - 1 octets ends with the right TO, past 2^31 and 2^32 (RDMAP-031/029)', () => {
    const { sender, stags, requests } = bareSender(64_768);
    const entry: StagEntry = stags.allocate('region', 1);
    entry.access = ACCESS.REMOTE_READ;
    // The last 200 000 octets of a region that pretends to begin 2^32 - 1 octets before its end.
    entry.bytes = new Uint8Array(200_000);
    entry.baseHi = 0;
    entry.baseLo = MAX - 200_000;
    const request = requests.blank;
    Object.assign(request, {
      kind: 'read',
      sinkStag: 7,
      sinkHi: 3,
      sinkLo: 0xffff_0000,
      sourceStag: entry.stag,
      sourceHi: 0,
      sourceLo: 0,
      size: MAX,
      sent: MAX - 200_000,
    });
    requests.pushInbound();
    const start = 0x3_ffff_0000n;
    let at = MAX - 200_000;
    drain(sender, (cut) => {
      expect(cut.to).toBe(start + BigInt(at));
      at += cut.payloadLength;
      expect(cut.last).toBe(at === MAX);
    });
    expect(at).toBe(MAX);
    expect(sender.fault).toBeNull();
  });

  it('the receiver counts a message up to 2^32 - 1 octets, and not one octet further (DDP-035/042)', () => {
    for (const beyond of [false, true]) {
      let delivered = -1;
      const { stags } = bareSender(128);
      const ulp: DdpUlp = {
        scope: { stags, pdHandle: 1, number: 1, rights: { write: false } },
        classify: () => FINE,
        kind: { qn: 0, solicited: false, fixed: null, delivered: true },
        sink: { entry: null, offset: 0 },
        openMessage: () => FINE,
        buffer: {
          total: MAX,
          count: 0,
          at: () => ({ entry: null, offset: 0, length: 0 }),
          usable: () => true,
        },
        bufferUnusable: () => TERM.LOCAL_CATASTROPHIC,
        deliver: (_, length) => {
          delivered = length;
          return FINE;
        },
      };
      const ddp = new OrderedReceiver(ulp, 1, 1);
      const bytes = new Uint8Array(18 + 65_517);
      const view = new DataView(bytes.buffer);
      view.setUint32(10, 1);
      let mo = 0;
      let code: number = FINE;
      while (mo < MAX && code === FINE) {
        const left = MAX - mo;
        const last = left <= 65_517;
        const payload = last ? left + (beyond ? 1 : 0) : 65_517;
        bytes[0] = last ? 0x41 : 0x01;
        view.setUint32(14, mo);
        code = ddp.handleUlpdu(bytes, 0, 18 + payload);
        mo += payload;
      }
      expect([code, delivered]).toEqual(beyond ? [TERM.DDP_TOO_LONG, -1] : [FINE, MAX]);
    }
  });
});
