/** An orderly close has a bound, whatever the peer does, and farewells that come again cost nothing. */
import { describe, expect, it } from 'vitest';
import { Waiters } from '../../src/base/waiters.ts';
import type { CmConnection } from '../../src/cm/connection.ts';
import { CloseHandshake } from '../../src/api/close-handshake.ts';
import { FAREWELL_VALUE } from '../../src/api/credits.ts';
import type { Operations } from '../../src/api/operations.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import { pair, WORLDS } from './support.ts';

/** A handshake over a connection that only counts, with `bytes` from the peer every three seconds. */
function handshakeOf(bytes: number, idle: boolean) {
  const time = new VirtualTime();
  const calls: string[] = [];
  let waits = 0;
  let octetsIn = 0;
  const trickle = (): void => {
    octetsIn += bytes;
    time.at(time.now() + 3000, trickle);
  };
  trickle();
  const cm = {
    counters: () => ({ octetsIn, octetsOut: 0 }),
    disconnect: () => void calls.push(`disconnect at ${time.now()}`),
    abort: () => void calls.push(`abort at ${time.now()}`),
  };
  const operations = {
    whenIdle: () => {
      waits++;
      return idle ? Promise.resolve() : new Promise<void>(() => undefined);
    },
    sayFarewell: () => undefined,
    stop: () => undefined,
  };
  const ending = new CloseHandshake(
    cm as unknown as CmConnection,
    operations as unknown as Operations,
    time,
    { silence: 5000, inAll: 60_000 },
  );
  return { time, ending, calls, waits: () => waits };
}

describe('the close handshake', () => {
  it('does not wait for a peer that trickles after our farewell', async () => {
    const { time, ending, calls } = handshakeOf(24, true);
    await ending.close(true);
    time.advance(20_000);
    expect(calls).toEqual(['disconnect at 5000']);
  });

  it('waits for a peer at work, and drops it at the limit of the whole close', async () => {
    const { time, ending, calls } = handshakeOf(100_000, true);
    await ending.close(true);
    time.advance(59_000);
    expect(calls).toEqual([]);
    time.advance(2000);
    expect(calls).toEqual(['abort at 60000']);
    expect(ending.expired).toBe(true);
  });

  it('ends at the limit while an operation of ours stays unanswered', async () => {
    const { time, ending, calls } = handshakeOf(24, false);
    void ending.close(true);
    time.advance(61_000);
    expect(calls).toEqual(['abort at 60000']);
  });

  it('waits once, however many farewells the peer sends', () => {
    const { ending, waits } = handshakeOf(0, false);
    for (let i = 0; i < 10_000; i++) void ending.peerLeaves();
    expect([waits(), ending.state]).toEqual([1, 'following']);
  });
});

it('a waiter is found in constant time, however many there are', async () => {
  const waiters = new Waiters<number>();
  const COUNT = 200_000;
  const all = Array.from({ length: COUNT }, () => waiters.wait(undefined));
  const began = performance.now();
  for (let i = 0; i < COUNT; i++) waiters.next(i);
  expect(performance.now() - began).toBeLessThan(20_000); // by a Set it took minutes
  expect(waiters.next(0)).toBe(false);
  expect((await Promise.all(all)).every((value, i) => value === i)).toBe(true);
});

describe.each(WORLDS)('a peer that sends farewell after farewell, %s', (world) => {
  it('is followed once', async () => {
    const { client, server } = await pair(world);
    const { queuePair } = client;
    for (let i = 0; i < 4; i++)
      queuePair.postSend({ opcode: 'immediate', immediate: FAREWELL_VALUE, wrId: 0 });
    // Over UDP each comes by itself, the last ones perhaps after the end that the first has brought about.
    const lawful = world === 'trp' ? ['graceful', 'bad-close'] : ['graceful'];
    expect(lawful).toContain((await server.closed).cause);
    expect(server.state).toBe('closed');
  });
});
