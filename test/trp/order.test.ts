/** The account of arrivals alone, against a model that keeps a set. */
import { expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { ARRIVAL, ReceiveOrder } from '../../src/trp/order.ts';

it('says of each datagram what a set of all arrivals says, across the wrap', () => {
  for (let seed = 1; seed <= 8; seed++) {
    const draw = seededRandom(seed);
    const first = 0xffff_ff80;
    const order = new ReceiveOrder(first, 64);
    const arrived = new Set<number>();
    for (let i = 0; i < 800; i++) {
      const sequence = Math.max(0, order.expected - 5 + (draw() % 60));
      const wire = (first + sequence) >>> 0;
      expect(order.sequence(wire)).toBe(sequence);
      const judged = order.judge(sequence);
      const known = arrived.has(sequence) || sequence < order.expected;
      expect(judged === ARRIVAL.REPEAT).toBe(known);
      if (known) continue;
      arrived.add(sequence);
      if (judged === ARRIVAL.NEXT) order.advance();
      else order.insert(sequence);
      let expected = 0;
      while (arrived.has(expected)) expected++;
      expect(order.expected).toBe(expected);
      const above = [...arrived].filter((one) => one > expected).toSorted((a, b) => a - b);
      const ranges = order.starts.flatMap((start, at) =>
        Array.from({ length: order.ends[at]! - start }, (_, k) => start + k),
      );
      expect(ranges).toEqual(above);
      for (let at = 1; at < order.starts.length; at++)
        expect(order.starts[at]!).toBeGreaterThan(order.ends[at - 1]!);
    }
  }
});

it('keeps a bounded number of ranges, reports the lowest and the newest, and reaches 4096 ahead', () => {
  const order = new ReceiveOrder(0, 64);
  let taken = 0;
  for (let sequence = 1; sequence < 4096; sequence += 2)
    if (order.judge(sequence) === ARRIVAL.ABOVE) {
      order.insert(sequence);
      taken++;
    }
  expect(taken).toBe(64);
  expect(order.reported(4)).toEqual([0, 1, 2, 63]);
  // One more that joins two of them is taken all the same.
  expect(order.judge(2)).toBe(ARRIVAL.ABOVE);
  expect(order.judge(4095)).toBe(ARRIVAL.OUTSIDE);
  expect(order.judge(4096)).toBe(ARRIVAL.OUTSIDE);
});
