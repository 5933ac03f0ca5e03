/**
 * The two halves of a channel without a queue pair: which places may be written, and when the peer is
 * notified of which credits.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Pieces } from '../../src/sockets/pieces.ts';
import { ReceiveWindow } from '../../src/rsocket/receive-window.ts';
import { SendWindow } from '../../src/rsocket/send-window.ts';

describe('ReceiveWindow', () => {
  it('offers its second half at once, each half again when read and the other half used', () => {
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

  it.each([4, 100, 65_536])(
    'never leaves a peer without room while nothing waits to be read (%i octets at a time)',
    (most) => {
      const window = new ReceiveWindow(new Uint8Array(1000), 16);
      window.takeGrant();
      for (let total = 0; total < 20_000; ) {
        const octets = Math.min(most, window.granted);
        expect(octets).toBeGreaterThan(0);
        expect(window.arrived(octets)).toBe(true);
        total += window.read(octets)!.length;
        window.takeGrant();
      }
    },
  );

  it('sends credits alone when half of them are used and no half is free', () => {
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

  it('refuses messages without a credit, and gives credits for empty ones', () => {
    const window = new ReceiveWindow(new Uint8Array(8), 16);
    for (let i = 0; i < 16; i++) expect(window.useCredit() && window.arrived(0)).toBe(true);
    expect(window.useCredit()).toBe(false);
    expect(window.takeGrant()).toEqual({ limit: 32, offset: 4 });
    expect(window.useCredit()).toBe(true);
  });

  it('reads 3,000,000 messages of one byte in constant work for each', () => {
    const CREDITS = 30_000;
    const window = new ReceiveWindow(new Uint8Array(2 * CREDITS), CREDITS);
    const place = new Uint8Array(3);
    const start = performance.now();
    window.takeGrant();
    for (let round = 0; round < 100; round++) {
      while (window.useCredit()) if (!window.arrived(1)) break;
      while (window.readInto(place) > 0);
      window.takeGrant();
    }
    expect(performance.now() - start).toBeLessThan(5000); // with a list that is shifted: minutes
  });

  it('goes on in a larger buffer when the first window is full, and reads the former to its end', () => {
    const larger = new Uint8Array(16);
    let made = 0;
    const small = new Uint8Array(4);
    const window = new ReceiveWindow(small, 16, () => (made++, larger));
    window.takeGrant();
    small.set([1, 2, 3]);
    expect(window.arrived(1)).toBe(true);
    expect([window.outgrown, window.takeGrant(), made]).toEqual([false, null, 0]);
    expect(window.arrived(2)).toBe(true);
    expect([window.outgrown, window.takeGrant(), made]).toEqual([true, { limit: 16, offset: 0 }, 1]);
    expect([window.half, window.granted, window.outgrown]).toEqual([8, 9, false]);
    // The peer fills the window that it has first, and then the new one.
    small.set([4], 3);
    larger.set([5, 6, 7, 8, 9]);
    expect([window.arrived(1), window.arrived(5)]).toEqual([true, true]);
    expect([window.holds(small), window.holds(larger)]).toEqual([true, true]);
    expect([...window.read(10)!, ...window.read(10)!]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(window.holds(larger)).toBe(false);
    expect([window.takeGrant(), made]).toEqual([{ limit: 20, offset: 8 }, 1]);
    expect(window.arrived(1) && !window.holds(small) && window.holds(larger)).toBe(true);
  });

  it('goes on with the buffer it has where there is no larger one', () => {
    let asked = 0;
    const window = new ReceiveWindow(new Uint8Array(8), 16, () => (asked++, null));
    window.takeGrant();
    expect(window.arrived(4)).toBe(true);
    expect(window.takeGrant()).toBeNull();
    window.read(4);
    expect(window.arrived(2)).toBe(true);
    expect([window.takeGrant(), asked, window.outgrown]).toEqual([{ limit: 17, offset: 0 }, 1, false]);
  });

  it('a limit goes around at 65536', () => {
    const window = new ReceiveWindow(new Uint8Array(8), 0x7fff);
    for (let i = 0; i < 0x8002; i++) window.countEmpty();
    expect(window.takeGrant()!.limit).toBe(1);
  });
});

describe('SendWindow', () => {
  const open = (buffer: number, credits: number, length: number): SendWindow => {
    const window = new SendWindow(buffer, () => new Uint8Array(buffer));
    window.open(credits, { addr: 1000n, key: 7, length });
    return window;
  };

  it('makes transfers of up to 64 KiB, and never crosses the end of a window; addresses pass 2^53', () => {
    const window = open(1 << 20, 384, 10_000);
    const high = 2n ** 53n;
    window.addWindow({ addr: high - 100_000n, key: 8, length: 99_999 });
    const third = { addr: high - 10n, key: 9, length: 70_000 };
    expect(window.addWindow(third)).toBe(false); // the protocol knows two
    const pieces = new Pieces([new Uint8Array(200_000)]);
    const seen: (readonly [number, bigint | number, number])[] = [];
    for (let transfer = window.take(pieces); transfer !== null; transfer = window.take(pieces)) {
      seen.push([transfer.octets, transfer.addr, transfer.key]);
      if (seen.length === 1) expect(window.addWindow(third)).toBe(true);
    }
    expect(seen.map(([octets, addr, key]) => [octets, BigInt(addr), key])).toEqual([
      [10_000, 1000n, 7],
      [65_536, high - 100_000n, 8],
      [34_463, high - 34_464n, 8],
      [65_536, high - 10n, 9],
      [4464, high + 65_526n, 9],
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
    expect(window.takeDirect(new Uint8Array(90), { addr: 5n, key: 9, left: 90 })).toEqual({
      octets: 10,
      from: 90,
      addr: 5n,
      key: 9,
    });
    expect(window.take(new Pieces([new Uint8Array(1)]))).toBeNull();
    window.complete();
    expect(window.take(new Pieces([new Uint8Array(50)]))).toMatchObject({ octets: 50, from: 0, addr: 1090 });
  });

  it('makes its buffer for the first octets', () => {
    let made = 0;
    const window = new SendWindow(8, () => (made++, new Uint8Array(8)));
    window.open(16, { addr: 0n, key: 1, length: 8 });
    expect([window.take(new Pieces([])), made]).toEqual([null, 0]);
    for (let i = 0; i < 2; i++) expect(window.take(new Pieces([new Uint8Array(3)]))!.octets).toBe(3);
    expect(made).toBe(1);
  });
});

describe('both together', () => {
  it('every octet arrives in order, whatever the sizes', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 200 }),
        fc.integer({ min: 1, max: 200 }),
        fc.integer({ min: 16, max: 40 }),
        fc.array(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }), {
          minLength: 1,
          maxLength: 20,
        }),
        fc.integer({ min: 1, max: 64 }),
        fc.option(fc.integer({ min: 1, max: 400 }), { nil: null }),
        (half, sendBuffer, credits, writes, readSize, growth) => {
          // Windows name their memory by a key, as on the wire.
          const memory: [Uint8Array, Uint8Array?] = [new Uint8Array(2 * half)];
          const larger = (): Uint8Array => (memory[1] = new Uint8Array(2 * (half + growth!)));
          const inbound = new ReceiveWindow(memory[0], credits, growth === null ? null : larger);
          const source = new Uint8Array(sendBuffer);
          const outbound = new SendWindow(sendBuffer, () => source);
          outbound.open(credits, { addr: 0n, key: 0, length: inbound.half });
          const received: number[] = [];
          const receive = (): void => {
            for (let data = inbound.read(readSize); data !== null; data = inbound.read(readSize))
              received.push(...data);
            for (let grant = inbound.takeGrant(); grant !== null; grant = inbound.takeGrant()) {
              outbound.setLimit(grant.limit);
              if (grant.offset === null) continue;
              const key = memory.length - 1;
              expect(outbound.addWindow({ addr: BigInt(grant.offset), key, length: inbound.half })).toBe(
                true,
              );
            }
          };
          for (const list of writes) {
            const pieces = new Pieces(list);
            for (let idle = 0; pieces.left > 0; ) {
              const transfer = outbound.take(pieces);
              if (transfer === null) {
                receive();
                expect(++idle).toBeLessThan(3); // it never hangs
                continue;
              }
              idle = 0;
              memory[transfer.key]!.set(
                source.subarray(transfer.from, transfer.from + transfer.octets),
                Number(transfer.addr),
              );
              outbound.complete();
              expect(inbound.arrived(transfer.octets)).toBe(true);
            }
          }
          receive();
          expect(received).toEqual(writes.flat().flatMap((chunk) => [...chunk]));
        },
      ),
    );
  });
});
