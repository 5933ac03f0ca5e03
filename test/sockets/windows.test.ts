/** The two halves of a channel without a queue pair: what may be written where, what is told to the peer, and when. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Pieces } from '../../src/sockets/pieces.ts';
import { ReceiveWindow } from '../../src/sockets/receive-window.ts';
import { SendWindow } from '../../src/sockets/send-window.ts';

describe('ReceiveWindow', () => {
  it('offers its second half at once, and each half again when it has been read and half of the other is used', () => {
    const window = new ReceiveWindow(new Uint8Array(8), 16);
    expect(window.takeGrant()).toEqual({ limit: 16, offset: 4 });
    expect(window.takeGrant()).toBeNull();
    expect(window.arrived(4)).toBe(true);
    window.read(3);
    expect(window.takeGrant()).toBeNull();
    window.read(1);
    expect(window.takeGrant()).toBeNull();
    // The peer has used half of its other window: now it needs one.
    expect(window.arrived(1)).toBe(true);
    expect(window.takeGrant()).toBeNull();
    expect(window.arrived(1)).toBe(true);
    expect(window.takeGrant()).toEqual({ limit: 17, offset: 0 });
  });

  it.each([4, 100, 65_536])('never leaves a peer without room while nothing waits to be read (%i octets at a time)', (most) => {
    const window = new ReceiveWindow(new Uint8Array(1000), 16);
    window.takeGrant();
    for (let total = 0; total < 20_000;) {
      const octets = Math.min(most, window.granted);
      expect(octets).toBeGreaterThan(0);
      expect(window.arrived(octets)).toBe(true);
      total += window.read(octets)!.length;
      window.takeGrant();
    }
  });

  it('tells credits alone when half of them are used and no half is free', () => {
    const window = new ReceiveWindow(new Uint8Array(100), 16);
    window.takeGrant();
    for (let i = 0; i < 8; i++) {
      window.arrived(1);
      window.read(1);
      expect(window.takeGrant()).toEqual(i < 7 ? null : { limit: 24, offset: null });
    }
    for (let i = 0; i < 8; i++) window.countEmpty();
    expect(window.takeGrant()).toEqual({ limit: 32, offset: null });
  });

  it('refuses octets that were not offered', () => {
    const window = new ReceiveWindow(new Uint8Array(8), 16);
    expect(window.arrived(5)).toBe(false);
    expect([window.granted, window.pending, window.read(10)]).toEqual([4, 0, null]);
  });

  it('a limit goes around at 65536', () => {
    const window = new ReceiveWindow(new Uint8Array(8), 0x7fff);
    for (let i = 0; i < 0x8002; i++) window.countEmpty();
    expect(window.takeGrant()!.limit).toBe(1);
  });
});

describe('SendWindow', () => {
  const open = (buffer: number, credits: number, length: number): SendWindow => {
    const window = new SendWindow(new Uint8Array(buffer));
    window.open(credits, { addr: 1000n, key: 7, length });
    return window;
  };

  it('makes transfers of up to 64 KiB, and never crosses the end of a window; addresses pass 2^53', () => {
    const window = open(1 << 20, 384, 10_000);
    const high = 2n ** 53n;
    window.addWindow({ addr: high - 100_000n, key: 8, length: 99_999 });
    window.addWindow({ addr: high - 10n, key: 9, length: 70_000 });
    const pieces = new Pieces([new Uint8Array(200_000)]);
    const seen: (readonly [number, bigint | number, number])[] = [];
    for (let transfer = window.take(pieces); transfer !== null; transfer = window.take(pieces)) {
      seen.push([transfer.octets, transfer.addr, transfer.key]);
    }
    expect(seen.map(([octets, addr, key]) => [octets, BigInt(addr), key])).toEqual([
      [10_000, 1000n, 7], [65_536, high - 100_000n, 8], [34_463, high - 34_464n, 8], [65_536, high - 10n, 9], [4464, high + 65_526n, 9],
    ]);
  });

  it('leaves some credits to control messages, and goes on with a new limit', () => {
    const window = open(1 << 20, 16, 1 << 20);
    const one = (): Pieces => new Pieces([Uint8Array.of(1)]);
    let sent = 0;
    while (window.take(one()) !== null) sent++;
    expect(sent).toBe(12); // a quarter of 16 is left
    window.setLimit(20);
    while (window.take(one()) !== null) sent++;
    expect(sent).toBe(16);
  });

  it('waits for completions when its buffer is full, and direct transfers use no credit', () => {
    const window = open(100, 16, 1000);
    expect(window.take(new Pieces([new Uint8Array(90)]))!.octets).toBe(90);
    expect(window.takeDirect(new Uint8Array(90), { addr: 5n, key: 9, left: 90 })).toEqual({ octets: 10, from: 90, addr: 5n, key: 9 });
    expect(window.take(new Pieces([new Uint8Array(1)]))).toBeNull();
    window.complete();
    expect(window.take(new Pieces([new Uint8Array(50)]))).toMatchObject({ octets: 50, from: 0, addr: 1090 });
  });
});

describe('both together', () => {
  it('every octet arrives in order, whatever the sizes', () => {
    fc.assert(fc.property(
      fc.integer({ min: 2, max: 200 }), fc.integer({ min: 1, max: 200 }), fc.integer({ min: 16, max: 40 }),
      fc.array(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }), { minLength: 1, maxLength: 20 }), fc.integer({ min: 1, max: 64 }),
      (half, sendBuffer, credits, writes, readSize) => {
        const memory = new Uint8Array(2 * half);
        const inbound = new ReceiveWindow(memory, credits);
        const source = new Uint8Array(sendBuffer);
        const outbound = new SendWindow(source);
        outbound.open(credits, { addr: 0n, key: 1, length: inbound.half });
        const received: number[] = [];
        const receive = (): void => {
          for (let data = inbound.read(readSize); data !== null; data = inbound.read(readSize)) received.push(...data);
          for (let grant = inbound.takeGrant(); grant !== null; grant = inbound.takeGrant()) {
            outbound.setLimit(grant.limit);
            if (grant.offset !== null) outbound.addWindow({ addr: BigInt(grant.offset), key: 1, length: inbound.half });
          }
        };
        for (const list of writes) {
          const pieces = new Pieces(list);
          for (let idle = 0; pieces.left > 0;) {
            const transfer = outbound.take(pieces);
            if (transfer === null) {
              receive();
              expect(++idle).toBeLessThan(3); // it never hangs
              continue;
            }
            idle = 0;
            memory.set(source.subarray(transfer.from, transfer.from + transfer.octets), Number(transfer.addr));
            outbound.complete();
            expect(inbound.arrived(transfer.octets)).toBe(true);
          }
        }
        receive();
        expect(received).toEqual(writes.flat().flatMap((chunk) => [...chunk]));
      },
    ));
  });
});
