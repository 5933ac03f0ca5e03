// Every SDP message: golden bytes from the page, a naive second codec, and what a decoder refuses.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Credits } from '../../src/sdp/credits.ts';
import { lockPlace, Locks, lockWord, OWNER } from '../../src/sdp/locks.ts';
import { MODE_TABLE, SDP_TABLE } from '../../src/sdp/states.ts';
import {
  decodeHello,
  decodeHelloAck,
  decodeMessage,
  decodeModeChange,
  encodeHello,
  encodeHelloAck,
  getAdvertised,
  getLockTable,
  getUpdatedSource,
  MESSAGE_TABLE,
  MID,
  modeChangeWord,
  putAdvertised,
  putBsdh,
  putLockTable,
  putUpdatedSource,
  type Hello,
} from '../../src/sdp/wire.ts';
import { decodeNaive, encodeNaive } from '../support/naive/sdp.ts';

const HELLO: Hello = {
  version: 0x22,
  family: 4,
  invalidates: true,
  maxAdverts: 300,
  desiredSize: 65_552,
  localSize: 16_384,
  port: 7471,
  source: Uint8Array.from({ length: 16 }, (_, at) => (at < 12 ? 0 : at)),
  destination: Uint8Array.from({ length: 16 }, (_, at) => (at < 12 ? 0 : at + 16)),
  bufs: 4,
  copyOnWrite: false,
};
const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

describe('set-up messages', () => {
  it('Hello has the bytes of the page', () => {
    expect(hex(encodeHello(HELLO))).toBe(
      '00000004000000440000000000000000' + // BSDH: id, flags, bufs 4, length 68
        '224300ff' + // version, IPv4 and both capabilities, reserved, MaxAdverts
        '0001001000004000' + // desired, local size
        '1d2f0000' + // port
        '0000000000000000000000000c0d0e0f' +
        '0000000000000000000000001c1d1e1f' +
        '0000012c', // ExtMaxAdverts
    );
    expect(decodeHello(encodeHello(HELLO))).toEqual(HELLO);
  });

  it('HelloAck has the bytes of the page', () => {
    const ack = {
      version: 0x22,
      family: 4,
      invalidates: false,
      maxAdverts: 16,
      localSize: 16_384,
      bufs: 4,
      copyOnWrite: false,
    } as const;
    expect(hex(encodeHelloAck(ack))).toBe('0100000400000018' + '00'.repeat(8) + '2240001000004000');
    expect(decodeHelloAck(encodeHelloAck(ack), 2)).toEqual(ack);
    expect(decodeHelloAck(encodeHelloAck(ack), 1)).toBe('version 2');
  });

  it('announce copy-on-write by AZ01 and its version behind their length, and nothing else', () => {
    const hello = encodeHello({ ...HELLO, copyOnWrite: true });
    expect(hex(hello)).toBe(`${hex(encodeHello(HELLO))}415a303100000001`);
    expect(decodeHello(hello)).toEqual({ ...HELLO, copyOnWrite: true });
    const ack = encodeHelloAck({ ...HELLO, copyOnWrite: true });
    expect(hex(ack)).toMatch(/^0100000400000018.*415a303100000001$/);
    expect(decodeHelloAck(ack, 2)).toMatchObject({ copyOnWrite: true });
    for (const behind of ['415a3031', '415a303100000000', '415a303200000001', '415a30310000000100']) {
      const bytes = Buffer.concat([encodeHello(HELLO), Buffer.from(behind, 'hex')]);
      expect(decodeHello(bytes)).toMatchObject({ copyOnWrite: false, maxAdverts: HELLO.maxAdverts });
    }
  });

  it('takes 64 bytes, and 92 and 196 padded with zeros', () => {
    const short = encodeHello({ ...HELLO, maxAdverts: 7 }).slice(0, 64);
    viewOf(short).setUint32(4, 64);
    expect(decodeHello(short)).toMatchObject({ maxAdverts: 7 });
    const padded = new Uint8Array(92);
    padded.set(encodeHello(HELLO));
    viewOf(padded).setUint32(4, 92);
    expect(decodeHello(padded)).toEqual(HELLO);
    const ack = new Uint8Array(196);
    ack.set(encodeHelloAck({ ...HELLO, maxAdverts: 1 }));
    expect(decodeHelloAck(ack, 2)).toMatchObject({ maxAdverts: 1 });
  });

  it.each([
    ['63 bytes', (bytes: Uint8Array) => bytes.subarray(0, 63)],
    ['another message id', (bytes: Uint8Array) => (bytes.fill(1, 0, 1), bytes)],
    ['a length beyond its end', (bytes: Uint8Array) => (viewOf(bytes).setUint32(4, 69), bytes)],
    ['a sequence number', (bytes: Uint8Array) => (viewOf(bytes).setUint32(8, 1), bytes)],
    ['two buffers', (bytes: Uint8Array) => (viewOf(bytes).setUint16(2, 2), bytes)],
    ['version 3', (bytes: Uint8Array) => (bytes.fill(0x33, 16, 17), bytes)],
    ['an address of version 5', (bytes: Uint8Array) => (bytes.fill(0x50, 17, 18), bytes)],
    ['no advertisements', (bytes: Uint8Array) => (viewOf(bytes).setUint16(66, 0), bytes)],
    ['buffers of 63 bytes', (bytes: Uint8Array) => (viewOf(bytes).setUint32(24, 63), bytes)],
  ])('refuses a Hello with %s', (_name, spoil) => {
    expect(decodeHello(spoil(encodeHello(HELLO)))).toEqual(expect.any(String));
  });
});

describe('messages', () => {
  it.each([...MESSAGE_TABLE.keys()].filter((mid) => mid > 1))('id %i is as the naive codec has it', (mid) => {
    const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
    const { extension, payload } = MESSAGE_TABLE.get(mid)!;
    fc.assert(
      fc.property(
        u32,
        u32,
        u32,
        u32,
        fc.bigInt(0n, 2n ** 64n - 1n),
        fc.uint8Array(),
        (mseq, mseqAck, a, b, to, data) => {
          const tail = payload ? data : new Uint8Array();
          const bytes = new Uint8Array(16 + extension + tail.length);
          const view = viewOf(bytes);
          putBsdh(view, 0, { mid, flags: 4, bufs: a & 0xffff, length: bytes.length, mseq, mseqAck });
          if (mid === MID.LOCK_TABLE) putLockTable(view, 16, { stag: b, to, slots: a });
          else if (mid === MID.UPDATED_SRC_AVAIL)
            putUpdatedSource(view, 16, { length: a, stag: b, to, slot: mseq, generation: mseqAck });
          else if (extension >= 16) putAdvertised(view, 16, { length: a, stag: b, to });
          if (mid === MID.SINK_AVAIL) view.setUint32(32, mseq);
          if (mid === MID.MODE_CHANGE)
            view.setUint32(16, modeChangeWord({ half: 'send', mode: 'pipelined' }));
          else if (extension === 4) view.setUint32(16, b);
          bytes.set(tail, 16 + extension);
          const naive = decodeNaive(bytes);
          expect(hex(encodeNaive(naive, tail))).toBe(hex(bytes));
          const message = decodeMessage(view, bytes.length);
          if (typeof message === 'string') throw new Error(message);
          expect(naive).toMatchObject({
            mid: BigInt(mid),
            bufs: BigInt(message.bufs),
            mseq: BigInt(message.mseq),
            mseqAck: BigInt(message.mseqAck),
          });
          if (mid === MID.LOCK_TABLE)
            expect(naive).toMatchObject({ stag: BigInt(b), to, slots: BigInt(getLockTable(view, 16).slots) });
          else if (mid === MID.UPDATED_SRC_AVAIL)
            expect(getUpdatedSource(view, 16)).toEqual({
              length: Number(naive['size']),
              stag: Number(naive['stag']),
              to: naive['to'],
              slot: Number(naive['slot']),
              generation: Number(naive['generation']),
            });
          else if (extension >= 16)
            expect(naive).toMatchObject({
              size: BigInt(getAdvertised(view, 16).length),
              stag: BigInt(getAdvertised(view, 16).stag),
              to: getAdvertised(view, 16).to,
            });
        },
      ),
      { numRuns: 50 },
    );
  });

  it('ModeChange has the six nibbles of the page, and nothing else', () => {
    const lawful: number[] = [];
    for (let octet = 0; octet < 256; octet++)
      if (decodeModeChange((octet << 24) >>> 0) !== null) lawful.push(octet >> 4);
    expect(lawful).toEqual([0, 1, 2, 8, 9, 10]);
    expect(decodeModeChange(0x9000_0001)).toBe(null);
    expect(decodeModeChange(0x9000_0000)).toEqual({ half: 'send', mode: 'combined' });
  });

  it.each([
    ['a header cut short', Buffer.alloc(15)],
    ['a length unlike the message', encodeNaive({ mid: 0xffn, length: 17n })],
    ['an unknown id', Buffer.from('0f000003000000100000000100000000', 'hex')],
    ['a second Hello', Buffer.from(encodeHello(HELLO))],
    ['unknown flags', encodeNaive({ mid: 0xffn, flags: 8n }, Buffer.alloc(1))],
    ['urgent data without payload', encodeNaive({ mid: 0xffn, flags: 1n })],
    ['payload behind DisConn', encodeNaive({ mid: 2n }, Buffer.alloc(1))],
  ])('refuses %s', (_name, bytes) => {
    expect(decodeMessage(viewOf(bytes), bytes.length)).toEqual(expect.any(String));
  });
});

describe('messages of copy-on-write', () => {
  const framed = (mid: number, put: (view: DataView) => void): string => {
    const bytes = new Uint8Array(16 + MESSAGE_TABLE.get(mid)!.extension);
    putBsdh(viewOf(bytes), 0, { mid, flags: 0, bufs: 16, length: bytes.length, mseq: 7, mseqAck: 5 });
    put(viewOf(bytes));
    expect(decodeMessage(viewOf(bytes), bytes.length)).toMatchObject({ mid, payload: bytes.length });
    return hex(bytes);
  };

  it('LockTable has the bytes of the page', () => {
    expect(
      framed(MID.LOCK_TABLE, (view) => putLockTable(view, 16, { stag: 0x1234_5678, to: 0x40n, slots: 16 })),
    ).toBe(
      '40000010000000240000000700000005' + // BSDH: length 36
        '123456780000000000000040' + // STag, TO
        '0000001000000000', // slots, reserved
    );
  });

  it('UpdatedSrcAvail has the bytes of the page', () => {
    const updated = { length: 65_536, stag: 0x0102_0304, to: 1n << 32n, slot: 3, generation: 9 };
    expect(framed(MID.UPDATED_SRC_AVAIL, (view) => putUpdatedSource(view, 16, updated))).toBe(
      '41000010000000280000000700000005' + // BSDH: length 40
        '00010000010203040000000100000000' + // Len, STag, TO
        '0000000300000009', // slot, generation
    );
  });

  it('locks: the words of the page, taken by one side at a time', () => {
    expect(lockPlace(37, 16)).toEqual({ slot: 5, generation: 2 });
    const memory = new Uint8Array(16 * 8);
    const locks = new Locks(memory);
    const words = new BigUint64Array(memory.buffer);
    const place = { slot: 5, generation: 0 };
    expect([locks.take(place), words[5]]).toEqual(['taken', 1n]);
    locks.release(place);
    words[5] = lockWord(0, OWNER.SENDER);
    expect(locks.take(place)).toBe('sender');
    expect([locks.handOver(place), locks.handOver(place), words[5]]).toEqual([true, false, 0n]);
    locks.retire(place);
    expect([words[5], locks.take({ slot: 5, generation: 1 }), words[5]]).toEqual([4n, 'taken', 5n]);
    words[6] = 3n;
    expect(locks.take({ slot: 6, generation: 0 })).toBe('broken');
    locks.retire({ slot: 0, generation: 0xffff_ffff });
    expect(words[0]).toBe(0n);
  });
});

describe('credits', () => {
  const message = (mseq: number, mseqAck: number, bufs: number) => ({ mseq, mseqAck, bufs });

  it('payload needs 3, control 2, and 1 is for what gives credits', () => {
    const credits = new Credits(4, 3);
    expect([credits.allows(true), credits.allows(false)]).toEqual([true, true]);
    credits.next();
    expect([credits.available, credits.allows(true), credits.allows(false)]).toEqual([2, false, true]);
    credits.next();
    expect([credits.available, credits.allows(false)]).toEqual([1, false]);
    expect(credits.accept(message(1, 0, 3))).toBe(null);
    credits.posted++;
    expect(credits.allows(false)).toBe(true);
    credits.next();
    expect([credits.available, credits.allows(false)]).toEqual([0, false]);
  });

  it('refuses wrong numbers', () => {
    expect(new Credits(4, 4).accept(message(2, 0, 4))).toMatch(/message 2/);
    expect(new Credits(4, 4).accept(message(1, 1, 4))).toMatch(/acknowledgement/);
    const used = new Credits(4, 4);
    used.next();
    expect(used.accept(message(1, 0, 0))).toMatch(/credits/);
    const flooded = new Credits(4, 4);
    for (let mseq = 1; mseq <= 4; mseq++) {
      expect(flooded.accept(message(mseq, 0, 4))).toBe(null);
      flooded.posted++;
    }
    expect(flooded.accept(message(5, 0, 4))).toMatch(/without a credit/);
  });

  it('numbers wrap at 2^32', () => {
    const [a, b] = [new Credits(4, 4), new Credits(4, 4)];
    for (let i = 0; i < 1000; i++) {
      expect(b.accept(a.next())).toBe(null);
      b.posted++;
      expect(a.accept(b.next())).toBe(null);
      a.posted++;
    }
    expect(a.available).toBe(3 + 1);
  });

  it('a held acknowledgement does not move, and goes with the last credit', () => {
    const credits = new Credits(4, 2);
    credits.accept(message(1, 0, 2));
    credits.heldFrom = 1;
    expect(credits.next().mseqAck).toBe(0);
    credits.releaseWithLast();
    expect(credits.next().mseqAck).toBe(1);
  });
});

describe('tables', () => {
  it('a half changes its mode over combined only', () => {
    expect(MODE_TABLE.transitions).toEqual({
      buffered: { 'to-combined': 'combined' },
      combined: { 'to-buffered': 'buffered', 'to-pipelined': 'pipelined' },
      pipelined: { 'to-combined': 'combined' },
    });
    expect(SDP_TABLE.transitions.closed).toEqual({});
  });
});
