/** The send window alone: the estimate of the round trip, back-off, congestion window, pacing, losses. */
import { describe, expect, it } from 'vitest';
import { acquirePacket } from '../../src/trp/packet.ts';
import { PROFILES } from '../../src/trp/profile.ts';
import { SendWindow } from '../../src/trp/window.ts';

const DEAD = 15_000;
const make = (limit = 256): SendWindow => new SendWindow(PROFILES.fixed, 0xffff_fff0, limit);

function add(window: SendWindow, count: number): void {
  for (let i = 0; i < count; i++) window.add(acquirePacket(100));
}

/** Send all that may be sent; their sequence numbers. */
function drain(window: SendWindow, now: number): number[] {
  const sent: number[] = [];
  for (let next = window.poll(now); next >= 0; next = window.poll(now)) {
    window.sent(next, now);
    sent.push(next);
  }
  return sent;
}

describe.each(['fixed', 'urdma'] as const)('a clock that comes late, profile %s', (profile) => {
  const stalled = (): { window: SendWindow; late: number } => {
    const window = new SendWindow(PROFILES[profile], 0, 256);
    add(window, 3);
    drain(window, 0);
    return { window, late: window.timeout + 20_000 };
  };

  it('finds no losses before what has come in the meantime has been heard', () => {
    const { window, late } = stalled();
    window.expire(late, DEAD);
    expect(drain(window, late)).toEqual([]);
    window.acknowledge(3, late);
    window.expire(late + 1, DEAD);
    expect(window.exhausted).toBe(false);
    expect(window.counters).toMatchObject({ resent: 0, timeouts: 0 });
  });

  it('waits for that once, and then does what was due', () => {
    const { window, late } = stalled();
    window.expire(late, DEAD);
    expect(window.timeout).toBeLessThanOrEqual(late + 1);
    window.expire(window.timeout + 500, DEAD);
    expect(window.exhausted || drain(window, late + 501).length > 0).toBe(true);
  });
});

describe('the time-out (RFC 6298)', () => {
  it('follows the smoothed round trip and its variation', () => {
    const window = make();
    expect(window.rto).toBe(250);
    add(window, 3);
    drain(window, 0);
    window.acknowledge(1, 100);
    // 2.2: SRTT is R, RTTVAR half of it; and the peer may hold an acknowledgement back for a millisecond.
    expect(window.srtt).toBe(100);
    expect(window.rto).toBe(100 + 4 * 50 + 1);
    window.acknowledge(2, 140);
    // 2.3: alpha 1/8, beta 1/4.
    expect(window.srtt).toBeCloseTo(105);
    expect(window.rto).toBeCloseTo(105 + 4 * (0.75 * 50 + 0.25 * 40) + 1);
  });

  it('is doubled each time, to two seconds, and a peer is dead after its time', () => {
    const window = make();
    add(window, 1);
    drain(window, 0);
    const sent: number[] = [];
    for (let now = 0; now <= DEAD + 3000 && !window.exhausted; now = window.timeout) {
      window.expire(now, DEAD);
      if (drain(window, now).length > 0) sent.push(now);
    }
    const gaps = sent.slice(1).map((now, i) => now - sent[i]!);
    expect(sent[0]).toBe(250);
    expect(gaps.slice(0, 4)).toEqual([500, 1000, 2000, 2000]);
    expect(window.exhausted).toBe(true);
    expect(sent.at(-1)).toBeLessThan(DEAD);
  });

  it('a round trip is not measured on a datagram that was sent twice (Karn)', () => {
    const window = make();
    add(window, 1);
    drain(window, 0);
    window.expire(250, DEAD);
    drain(window, 250);
    window.acknowledge(1, 251);
    expect(window.srtt).toBe(0);
  });

  it('comes after a probe: the last datagram is sent again before others count as lost (RFC 8985 7)', () => {
    const window = make();
    add(window, 1);
    drain(window, 0);
    window.acknowledge(1, 10);
    add(window, 5);
    drain(window, 20);
    const at = window.timeout;
    expect(at).toBeGreaterThanOrEqual(20 + 2 * 10);
    expect(at).toBeLessThan(20 + window.rto);
    window.expire(at, DEAD);
    expect(drain(window, at)).toEqual([5]);
    expect(window.counters.timeouts).toBe(0);
  });
});

describe('the congestion window', () => {
  it('begins with ten (RFC 6928), and doubles in a round trip (RFC 5681 3.1)', () => {
    const window = make();
    add(window, 200);
    expect(drain(window, 0)).toHaveLength(10);
    window.acknowledge(10, 1);
    expect(window.congestionWindow).toBe(20);
    expect(drain(window, 1)).toHaveLength(20);
    window.acknowledge(30, 2);
    expect(window.congestionWindow).toBe(40);
  });

  it('is halved for a loss, once for all losses of a window, and grows by one in a round trip after', () => {
    const window = make();
    add(window, 400);
    let now = 0;
    drain(window, now);
    // Slow enough that the measured rate allows no more than half of it.
    for (const acknowledged of [10, 30]) {
      window.acknowledge(acknowledged, (now += 1));
      drain(window, now);
    }
    const before = window.congestionWindow;
    const { una } = window;
    window.acknowledgeRange(una + 1, una + 3, (now += 60));
    window.acknowledgeRange(una + 4, una + 9, now);
    const after = window.congestionWindow;
    expect(after).toBeLessThan(before);
    expect(after).toBeGreaterThanOrEqual(before / 2);
    const again = drain(window, now);
    // One at once, and one more for each that arrives (RFC 6937).
    window.acknowledgeRange(una + 9, una + 10, now);
    again.push(...drain(window, now));
    expect(again).toEqual([una, una + 3]);
    expect(window.counters.resent).toBe(2);
    // Recovery ends with all that was out; a window's worth then adds one.
    window.acknowledge(window.next, (now += 1));
    const level = window.congestionWindow;
    drain(window, now);
    window.acknowledge(window.next, (now += 1));
    expect(window.congestionWindow - level).toBeLessThanOrEqual(1);
  });

  it('falls to two after a time-out', () => {
    const window = make();
    add(window, 100);
    drain(window, 0);
    let now = window.timeout;
    for (let i = 0; i < 3 && window.counters.timeouts === 0; i++, now = window.timeout) {
      window.expire(now, DEAD);
      drain(window, now);
    }
    expect(window.counters.timeouts).toBe(1);
    expect(window.congestionWindow).toBe(2);
  });

  it('never exceeds what the connection has been given', () => {
    const window = make(16);
    add(window, 32);
    expect(window.room).toBe(0);
    drain(window, 0);
    window.acknowledge(10, 1);
    window.acknowledge(10, 1);
    add(window, 10);
    expect(drain(window, 1).length + window.next - window.una).toBeGreaterThan(0);
    expect(window.next - window.una).toBeLessThanOrEqual(16);
  });
});

describe('pacing', () => {
  it('spreads a window over a round trip that timers can resolve, after a burst', () => {
    const window = make();
    add(window, 500);
    let now = 0;
    drain(window, now);
    for (const acknowledged of [10, 30, 70]) {
      window.acknowledge(acknowledged, (now += 40));
      drain(window, now);
    }
    expect(window.srtt).toBeGreaterThan(20);
    const allowed = window.congestionWindow;
    const { next } = window;
    window.acknowledge(window.next, (now += 40));
    const burst = drain(window, now).length;
    expect(burst).toBeLessThan(allowed);
    const times: number[] = [];
    for (let i = 0; i < 100 && window.next - next < 60; i++) {
      const at = window.timeout;
      window.expire(at, DEAD);
      if (drain(window, at).length > 0) times.push(at);
    }
    expect(times.length).toBeGreaterThan(3);
    for (let i = 1; i < times.length; i++) expect(times[i]! - times[i - 1]!).toBeGreaterThanOrEqual(1);
  });

  it('leaves short round trips alone', () => {
    const window = make();
    add(window, 300);
    let now = 0;
    drain(window, now);
    for (const acknowledged of [10, 30, 70]) {
      window.acknowledge(acknowledged, (now += 0.1));
      drain(window, now);
    }
    expect(window.next - window.una).toBe(window.congestionWindow);
  });
});

describe('losses (RFC 8985)', () => {
  it('a datagram is lost when three that were sent later have arrived', () => {
    const window = make();
    add(window, 10);
    drain(window, 0);
    window.acknowledgeRange(1, 3, 10);
    expect(drain(window, 10)).toEqual([]);
    window.acknowledgeRange(3, 4, 10);
    expect(drain(window, 10)).toEqual([0]);
  });

  it('with reordering seen, only when a reordering window is over too', () => {
    const window = make();
    add(window, 30);
    drain(window, 0);
    // 0 arrives after 1 and 2, so datagrams do overtake each other here.
    window.acknowledgeRange(1, 3, 10);
    window.acknowledge(3, 11);
    drain(window, 11);
    window.acknowledgeRange(4, 10, 12);
    expect(drain(window, 12)).not.toContain(3);
    const again: number[] = [];
    for (let i = 0; i < 5 && again.length === 0; i++) {
      const at = window.timeout;
      window.expire(at, DEAD);
      again.push(...drain(window, at).filter((sequence) => sequence < 10));
      expect(at).toBeLessThan(20);
    }
    expect(again).toEqual([3]);
  });
});

describe('acknowledgements that an honest peer does not send', () => {
  it('change nothing', () => {
    const window = make();
    add(window, 5);
    drain(window, 0);
    expect(window.acknowledge(6, 1)).toBe(false);
    expect(window.acknowledge(-1, 1)).toBe(false);
    expect(window.acknowledgeRange(3, 3, 1)).toBe(false);
    expect(window.acknowledgeRange(4, 2, 1)).toBe(false);
    expect(window.acknowledgeRange(2, 6, 1)).toBe(false);
    expect(window.una).toBe(0);
    expect(window.acknowledge(5, 2)).toBe(true);
    expect(window.acknowledgeRange(1, 3, 2)).toBe(false);
    expect(window.outstanding).toBe(0);
  });
});
