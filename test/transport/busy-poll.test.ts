// Staying awake after octets have come: the window, the sources it looks at, when it rests because it finds
// nothing, and which setting decides.
import { availableParallelism } from 'node:os';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { BusyPoll, resolveBusyPoll, type PolledSource } from '../../src/transport/busy-poll.ts';

afterEach(() => void vi.unstubAllEnvs());

/** An event loop whose turns and clock the test has in hand. A turn takes a microsecond. */
class Loop {
  /** Microseconds. */
  time = 1000;
  turns = 0;
  #tasks: (() => void)[] = [];

  readonly clock = {
    now: (): number => this.time / 1000,
    soon: (task: () => void): void => void this.#tasks.push(task),
  };

  /** One turn; false if nothing keeps the loop awake. */
  turn(): boolean {
    const tasks = this.#tasks.splice(0);
    this.time++;
    if (tasks.length > 0) this.turns++;
    for (const task of tasks) task();
    return this.#tasks.length > 0;
  }

  /** Turns until the loop would sleep; how many it were. */
  untilAsleep(most = 10_000): number {
    const before = this.turns;
    while (this.turn()) if (this.turns - before > most) throw new Error('it never sleeps');
    return this.turns - before;
  }
}

const pollOf = (microseconds: number): { loop: Loop; poll: BusyPoll } => {
  const loop = new Loop();
  return { loop, poll: new BusyPoll(microseconds, loop.clock) };
};

/**
 * Arrivals, each followed by silence, until one does not keep the loop awake; the number of those that did.
 */
function missUntilRest({ loop, poll }: { loop: Loop; poll: BusyPoll }): number {
  for (let n = 0; n < 1000; n++) {
    if (!poll.arrived()) return n;
    loop.untilAsleep();
  }
  throw new Error('it never rests');
}

/** Arrivals that pass until one keeps the loop awake again. */
function passUntilTrial({ poll }: { poll: BusyPoll }): number {
  for (let n = 0; n < 20_000; n++) if (poll.arrived()) return n;
  throw new Error('it never tries again');
}

describe('a loop kept awake', () => {
  it('goes round for the window after an arrival, and sleeps then', () => {
    const { loop, poll } = pollOf(50);
    expect(poll.awake).toBe(false);
    expect(loop.turn()).toBe(false);
    expect(poll.arrived()).toBe(true);
    expect(poll.awake).toBe(true);
    expect(loop.untilAsleep()).toBeGreaterThanOrEqual(50);
    expect(loop.turns).toBeLessThan(55);
    expect(poll.awake).toBe(false);
  });

  it('begins the window anew with each arrival, for as long as they come', () => {
    const { loop, poll } = pollOf(50);
    for (let n = 0; n < 100; n++) {
      expect(poll.arrived()).toBe(true);
      for (let turn = 0; turn < 40; turn++) expect(loop.turn()).toBe(true);
    }
    expect(loop.untilAsleep()).toBeLessThan(60);
  });

  it('counts the window from the first turn: what an arrival causes may take long', () => {
    const { loop, poll } = pollOf(50);
    poll.arrived();
    loop.time += 5000; // its handler computes
    expect(loop.turn()).toBe(true);
    expect(loop.untilAsleep()).toBeGreaterThanOrEqual(50);
  });

  it('asks for one turn at a time, however much comes in it', () => {
    const { loop, poll } = pollOf(50);
    for (let n = 0; n < 64; n++) poll.arrived();
    loop.turn();
    expect(loop.turns).toBe(1);
    const during: number[] = [];
    for (let turn = 0; turn < 10; turn++) {
      for (let n = 0; n < 64; n++) poll.arrived();
      const before = loop.turns;
      loop.turn();
      during.push(loop.turns - before);
    }
    expect(during).toEqual(Array(10).fill(1));
  });

  it('never is with a window of nothing', () => {
    const { loop, poll } = pollOf(0);
    for (let n = 0; n < 100; n++) expect(poll.arrived()).toBe(false);
    expect(poll.awake).toBe(false);
    expect(loop.turn()).toBe(false);
    expect(loop.turns).toBe(0);
  });
});

describe('octets of either direction', () => {
  /** Microseconds from the arrival's turn until the loop sleeps. */
  const waits = ({ loop, poll }: ReturnType<typeof pollOf>, came: number, went = 0): number => {
    expect(poll.arrived(came)).toBe(true);
    poll.sent(went);
    return loop.untilAsleep() - 1;
  };

  it.each([
    [0, 0, 50],
    [64, 0, 50],
    [10_000, 0, 60],
    [65_536, 0, 116],
    [0, 65_536, 116],
    [65_536, 65_536, 181],
    [250_000, 0, 300],
    [2 ** 20, 2 ** 30, 300],
  ])('%d that came and %d that went: the peer is waited for %d microseconds', (came, went, microseconds) => {
    expect(Math.abs(waits(pollOf(50), came, went) - microseconds)).toBeLessThanOrEqual(1);
  });

  it('lengthen a window in proportion to the request', () => {
    expect(Math.abs(waits(pollOf(10), 65_536) - 60)).toBeLessThanOrEqual(1);
    expect(pollOf(0).poll.arrived(65_536)).toBe(false);
  });

  it('count though they come in pieces, and though this end works long on them', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    poll.arrived(30_000);
    loop.turn();
    loop.time += 400;
    poll.arrived(30_000);
    poll.sent(40_000);
    loop.time += 400;
    expect(loop.turn()).toBe(true);
    expect(Math.abs(waits(both, 100) - 150)).toBeLessThanOrEqual(1);
  });

  it.each([
    [31, 86],
    [90, 50],
  ])(
    'only as far as the peer has not had its time yet: after %d microseconds of waiting, %d',
    (waited, microseconds) => {
      const both = pollOf(50);
      const { loop, poll } = both;
      poll.arrived(65_536);
      for (let turn = 0; turn < waited; turn++) expect(loop.turn()).toBe(true);
      expect(Math.abs(waits(both, 64) - microseconds)).toBeLessThanOrEqual(1);
    },
  );

  it('of an earlier time, or of a rest, do not', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    poll.sent(1_000_000);
    expect(Math.abs(waits(both, 0) - 50)).toBeLessThanOrEqual(1);
    poll.arrived(200_000);
    loop.untilAsleep();
    for (let n = 0; n < 8; n++) poll.arrived(100);
    poll.sent(1_000_000);
    expect(Math.abs(waits(both, 0) - 50)).toBeLessThanOrEqual(1);
  });
});

describe('polling that does not pay', () => {
  it('rests after two misses, twice as long each time, and for 16,384 arrivals at most', () => {
    const both = pollOf(50);
    expect(missUntilRest(both)).toBe(2);
    const passed = [1 + passUntilTrial(both)];
    both.loop.untilAsleep();
    for (let n = 0; n < 12; n++) {
      passed.push(passUntilTrial(both));
      both.loop.untilAsleep();
    }
    expect(passed).toEqual([8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 16_384]);
  });

  it('does not rest for long while octets come by the thousand', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    missUntilRest(both);
    for (let n = 0; n < 13; n++) {
      passUntilTrial(both);
      loop.untilAsleep();
    }
    let passed = 0;
    while (!poll.arrived(65_536)) passed++;
    expect(passed).toBe(Math.ceil(16_384 / 65));
  });

  it('tries again, and is what it was after some hits', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    missUntilRest(both);
    passUntilTrial(both);
    for (let n = 0; n < 20; n++) {
      loop.turn();
      loop.turn();
      expect(poll.arrived()).toBe(true);
    }
    loop.untilAsleep();
    expect(missUntilRest(both)).toBe(1); // the one that made it sleep was the first of two
    expect(1 + passUntilTrial(both)).toBe(8);
  });

  it('costs a silent process with an arrival now and then less than a microsecond an arrival', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    for (let n = 0; n < 40_000; n++) if (poll.arrived()) loop.untilAsleep();
    const before = loop.turns;
    for (let n = 0; n < 100_000; n++) if (poll.arrived()) loop.untilAsleep();
    expect((loop.turns - before) / 100_000).toBeLessThan(1);
    expect(loop.turns).toBeGreaterThan(before);
  });

  it('tries for longer after a long rest, so that a sender here gets another processor', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    missUntilRest(both);
    const trials: number[] = [];
    for (let n = 0; n < 6; n++) {
      passUntilTrial(both);
      trials.push(Math.round(loop.untilAsleep() / 50));
    }
    expect(trials).toEqual([1, 1, 1, 40, 40, 40]); // after 8, 16, 32, 64, 128 and 256 arrivals
    passUntilTrial(both);
    for (let turn = 0; turn < 1500; turn++) expect(loop.turn()).toBe(true);
    poll.arrived(); // it was moved, and is heard
    expect(loop.untilAsleep()).toBeLessThan(60);
  });

  it('rests where one arrival in two is a hit, and goes on where it is nine in ten', () => {
    for (const [every, rests] of [
      [2, true],
      [10, false],
    ] as const) {
      const { loop, poll } = pollOf(50);
      let slept = 0;
      for (let n = 1; n <= 4000; n++) {
        if (!poll.arrived()) slept++;
        else if (n % every === 0) loop.untilAsleep();
        else loop.turn();
      }
      expect(slept > 2000).toBe(rests);
      expect(slept === 0).toBe(!rests);
    }
  });

  it('one lucky arrival between misses does not make it pay', () => {
    const both = pollOf(50);
    const { loop, poll } = both;
    let awake = 0;
    for (let n = 0; n < 3000; n++) {
      if (!poll.arrived()) continue;
      awake++;
      loop.turn();
      if (n % 8 === 0) poll.arrived();
      loop.untilAsleep();
    }
    expect(awake).toBeLessThan(300);
  });
});

describe('sources', () => {
  class Source implements PolledSource {
    waiting = 0;
    looks = 0;
    rests = 0;

    look(): boolean {
      this.looks++;
      if (this.waiting === 0) return false;
      this.waiting = 0;
      return true;
    }

    rest(): void {
      this.rests++;
    }
  }

  it('are looked at in each turn, keep the loop awake, and are notified when the looks end', () => {
    const { loop, poll } = pollOf(50);
    const source = new Source();
    poll.watch(source);
    poll.arrived();
    for (let n = 0; n < 500; n++) {
      if (n % 30 === 0) source.waiting = 1;
      expect(loop.turn()).toBe(true);
    }
    expect(source.looks).toBe(500);
    expect(source.rests).toBe(0);
    loop.untilAsleep();
    expect(source.rests).toBe(1);
    expect(poll.awake).toBe(false);
  });

  it('may find something while they are notified, and keep the loop awake then', () => {
    const { loop, poll } = pollOf(50);
    let found = 0;
    poll.watch({ look: () => false, rest: () => void (found++ === 0 && expect(poll.arrived()).toBe(true)) });
    poll.arrived();
    expect(loop.untilAsleep()).toBeGreaterThan(100);
    expect(found).toBe(2);
  });

  it('may throw: that turn is over, and the octets are found in the next one', () => {
    const { loop, poll } = pollOf(50);
    const source = new Source();
    let throws = true;
    poll.watch({
      look: () => {
        if (throws) throw new Error('of the program');
        return false;
      },
      rest: () => undefined,
    });
    poll.watch(source);
    poll.arrived();
    source.waiting = 1;
    expect(() => loop.turn()).toThrow('of the program');
    throws = false;
    expect(loop.untilAsleep()).toBeGreaterThanOrEqual(50);
    expect([source.waiting, source.rests, poll.awake]).toEqual([0, 1, false]);
  });

  it('are left alone after unwatch', () => {
    const { loop, poll } = pollOf(50);
    const source = new Source();
    poll.watch(source);
    poll.unwatch(source);
    poll.arrived();
    loop.untilAsleep();
    expect([source.looks, source.rests]).toEqual([0, 0]);
  });
});

describe('how long', () => {
  it('is the option, else IWARP_BUSY_POLL, else 50 microseconds on several processors', () => {
    vi.stubEnv('IWARP_BUSY_POLL', '');
    expect(resolveBusyPoll()).toBe(availableParallelism() > 1 ? 50 : 0);
    vi.stubEnv('IWARP_BUSY_POLL', '120');
    expect(resolveBusyPoll()).toBe(120);
    expect(resolveBusyPoll(0)).toBe(0);
    expect(resolveBusyPoll(10_000)).toBe(10_000);
  });

  it.each(['-1', '10001', '1.5', '0x10', ' 5', 'off', '1e3', '99999999999'])('is refused as %j', (word) => {
    vi.stubEnv('IWARP_BUSY_POLL', word);
    expect(() => resolveBusyPoll()).toThrow(
      expect.objectContaining({
        code: 'ERR_INVALID_ARGUMENT',
        message: expect.stringContaining('IWARP_BUSY_POLL'),
      }),
    );
  });

  it.each([-1, 10_001, 1.5, Number.NaN])('is refused as the option %j', (value) => {
    expect(() => resolveBusyPoll(value)).toThrow(
      expect.objectContaining({
        code: 'ERR_INVALID_ARGUMENT',
        message: expect.stringContaining('options.busyPoll'),
      }),
    );
  });
});

describe('with the real event loop', () => {
  it('another immediate runs between the turns, and the process may end after the window', async () => {
    const poll = new BusyPoll(2000);
    poll.arrived();
    let between = 0;
    while (poll.awake) {
      await new Promise((resolve) => setImmediate(resolve));
      between++;
      expect(between).toBeLessThan(10_000_000);
    }
    expect(between).toBeGreaterThan(0);
  });
});
