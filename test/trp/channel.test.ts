/** The policy of acknowledgements, without a network. */
import { describe, expect, it } from 'vitest';
import { Channel } from '../../src/trp/channel.ts';
import { ARRIVAL } from '../../src/trp/order.ts';
import { PROFILES } from '../../src/trp/profile.ts';

const DEAD = 15_000;
const make = (): Channel =>
  new Channel(PROFILES.fixed, 0, 0, { window: 256, octets: 393_216, narrow: Infinity });

/** One datagram has come, and the acknowledgement, if it leaves at once. */
function arrive(channel: Channel, now: number): boolean {
  channel.order.advance();
  channel.took(ARRIVAL.NEXT, false, 82, now);
  return channel.poll(now) !== null;
}

describe('acknowledgements', () => {
  it('hardly ever keep a peer waiting that sends one datagram at a time', () => {
    const channel = make();
    let [now, waited] = [0, 0];
    for (let i = 0; i < 5000; i++) {
      now += 0.02; // the peer's next one, as soon as it has had the answer
      if (arrive(channel, now)) continue;
      waited++;
      now += 1;
      channel.expire(now, DEAD);
      expect(channel.poll(now)).not.toBeNull();
    }
    expect(waited).toBeLessThan(20);
  });

  it.each([3, 10, 20, 48, 100])('hardly ever keep a peer waiting that has %i in flight', (most) => {
    const channel = make();
    let [now, waited, inFlight] = [0, 0, 0];
    for (let i = 0; i < 50_000; i++) {
      now += 0.005;
      inFlight++;
      if (arrive(channel, now)) inFlight = 0;
      if (inFlight < most) continue;
      waited++;
      now += 1;
      channel.expire(now, DEAD);
      expect(channel.poll(now)).not.toBeNull();
      inFlight = 0;
    }
    expect(waited).toBeLessThan(30);
  });

  it('become fewer in a burst, also after such a peer', () => {
    const channel = make();
    let [now, answers] = [0, 0];
    for (let i = 0; i < 2000; i++) {
      now += 0.02;
      if (arrive(channel, now)) continue;
      now += 1;
      channel.expire(now, DEAD);
      channel.poll(now);
    }
    for (let i = 0; i < 10_000; i++) if (arrive(channel, (now += 0.005))) answers++;
    expect(answers).toBeLessThan(2000);
  });
});
