/**
 * Credit arithmetic by itself: never more than there is room for, never stuck, also where the counts pass
 * 2^32.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Credits, isGrant, RESERVED_RECEIVES } from '../../src/api/credits.ts';

/** Where counting begins: at the start of a connection, and 2^32 messages later. */
const ORIGINS = [0, 0xffff_fff0, 0x1_0000_0000 - 1, 5 * 0x1_0000_0000 - 3];

/** One sender, one receiver, and the network between them, driven by a list of choices. */
function play(
  receives: number,
  origin: number,
  choices: readonly number[],
): { sent: number; worst: number; unread: number } {
  const sender = new Credits(receives, 1, origin);
  const receiver = new Credits(1, receives, origin);
  const grants: bigint[] = [];
  let [sent, held, worst, unread] = [0, 0, 0, 0];
  const grant = (): void => {
    if (receiver.due) grants.push(receiver.announce());
  };
  const step = [
    () => {
      if (sender.available <= 0) return;
      sender.spend();
      sent++;
      held++;
      receiver.received();
      grant();
    },
    () => {
      if (held === 0) return;
      held--;
      receiver.released();
      grant();
    },
    () => {
      const told = grants.shift();
      if (told !== undefined) sender.granted(told);
    },
  ];
  for (const choice of choices) {
    step[choice]!();
    worst = Math.max(worst, held);
    unread = Math.max(unread, grants.length);
  }
  // Whatever happened: as soon as one buffer is free and every grant read, the sender can send again.
  if (held === receives) step[1]!();
  while (grants.length > 0) step[2]!();
  expect(sender.available).toBeGreaterThan(0);
  return { sent, worst, unread };
}

/**
 * The same with a window that grows and shrinks as `InboundWindow` does it: some choices ask to grow, some
 * release a buffer that is not posted again.
 */
function playElastic(
  first: number,
  most: number,
  choices: readonly number[],
): { worst: number; unread: number; sender: Credits; receiver: Credits } {
  const sender = new Credits(first, 1);
  const receiver = new Credits(1, first);
  const grants: bigint[] = [];
  let [posted, held, worst, unread] = [first, 0, 0, 0];
  const grant = (): void => {
    if (receiver.due) grants.push(receiver.announce());
    unread = Math.max(unread, grants.length);
  };
  const widen = (): void => {
    const count = Math.min(posted + held + RESERVED_RECEIVES, most - posted - held);
    if (count <= 0 || !receiver.caughtUp) return;
    posted += count;
    receiver.widen(count);
    grant();
  };
  const release = (again: boolean): void => {
    if (held === 0) return;
    held--;
    if (again) {
      posted++;
      receiver.released();
    } else receiver.narrow();
    grant();
  };
  const step = [
    () => {
      if (sender.available <= 0) return;
      sender.spend();
      posted--; // below zero: a message without a receive
      held++;
      worst = Math.min(worst, posted);
      receiver.received();
      if (receiver.exhausted) widen();
      grant();
    },
    () => release(true),
    () => release(posted + held <= first),
    widen,
    () => {
      const read = grants.shift();
      if (read !== undefined) sender.granted(read);
    },
  ];
  for (const choice of choices) step[choice]!();
  // Whatever happened: when every message is released and every grant read, the sender can send again.
  while (held > 0) release(true);
  while (grants.length > 0) step[4]!();
  return { worst, unread, sender, receiver };
}

describe('credits of a window that grows and shrinks', () => {
  it('never bring a message without a receive, nor three unread grants, nor a standstill', () => {
    const property = fc.property(
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 1, max: 60 }),
      fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 600 }),
      (first, more, choices) => {
        const { worst, unread, sender } = playElastic(first, first + more, choices);
        expect(worst).toBeGreaterThanOrEqual(0);
        expect(unread).toBeLessThanOrEqual(RESERVED_RECEIVES - 2);
        expect(sender.available).toBeGreaterThan(0);
      },
    );
    fc.assert(property, { numRuns: 1000 });
  });
});

describe('credits', () => {
  it.each(ORIGINS)('hold for any order of sending, releasing and granting, counting from %d', (origin) => {
    const property = fc.property(
      fc.integer({ min: 1, max: 9 }),
      fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 400 }),
      (receives, choices) => {
        const { worst, unread } = play(receives, origin, choices);
        expect(worst).toBeLessThanOrEqual(receives);
        expect(unread).toBeLessThanOrEqual(RESERVED_RECEIVES - 2);
      },
    );
    fc.assert(property, { numRuns: 300 });
  });

  it('a grant is known by its mark, carries the count modulo 2^32, and counts once', () => {
    const receiver = new Credits(1, 4, 0xffff_fffe);
    for (let i = 0; i < 4; i++) receiver.released();
    const grant = receiver.announce();
    expect(isGrant(grant)).toBe(true);
    expect(grant & 0xffff_ffffn).toBe(6n);
    expect(isGrant(6n)).toBe(false);
    const sender = new Credits(4, 1, 0xffff_fffe);
    expect(sender.available).toBe(4);
    expect([sender.granted(grant), sender.granted(grant)]).toEqual([true, false]);
    expect(sender.available).toBe(8);
  });

  it('an older grant that comes late takes nothing back', () => {
    const sender = new Credits(8, 1, 0);
    expect(sender.granted((0x6957_6372n << 32n) | 5n)).toBe(false);
    expect(sender.available).toBe(8);
  });
});
