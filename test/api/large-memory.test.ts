/** What waits for the next large message, and how long. */
import { describe, expect, it } from 'vitest';
import { KEEP_MS, LargeMemory } from '../../src/api/large-memory.ts';
import { Device } from '../../src/verbs/device.ts';
import type { ProtectionDomain } from '../../src/verbs/pd.ts';
import { VirtualTime } from '../../src/simnet/memory.ts';

const MEBI = 1 << 20;

function kept(most: number): {
  readonly pd: ProtectionDomain;
  readonly time: VirtualTime;
  readonly memory: LargeMemory;
} {
  const pd = new Device().allocatePd();
  const time = new VirtualTime();
  return { pd, time, memory: new LargeMemory(pd, time, most) };
}

describe('the memory of a released large message', () => {
  it('is that of the next one which fits, and needs at least half of it', () => {
    const { memory } = kept(8 * MEBI);
    const first = memory.take(4 * MEBI);
    memory.give(first);
    for (const length of [4 * MEBI + 1, 2 * MEBI - 1]) {
      const other = memory.take(length);
      expect(other).not.toBe(first);
      expect(other.length).toBe(length);
    }
    expect(memory.take(2 * MEBI)).toBe(first);
    expect(memory.take(4 * MEBI)).not.toBe(first);
  });

  it('is kept up to the limit', () => {
    const { memory } = kept(5 * MEBI);
    const [first, second] = [memory.take(4 * MEBI), memory.take(2 * MEBI)];
    memory.give(first);
    memory.give(second);
    expect([first.valid, second.valid]).toEqual([true, false]);
  });

  it('waits for a time without large messages, and no longer than the connection', () => {
    const { pd, time, memory } = kept(8 * MEBI);
    const { inUse } = pd.device.query();
    const first = memory.take(4 * MEBI);
    memory.give(first);
    time.advance(KEEP_MS - 1);
    expect(memory.take(4 * MEBI)).toBe(first);
    memory.give(first);
    time.advance(KEEP_MS - 1);
    expect(first.valid).toBe(true);
    time.advance(1);
    expect(first.valid).toBe(false);
    const second = memory.take(4 * MEBI);
    memory.give(second);
    const third = memory.take(MEBI);
    memory.close();
    expect(second.valid).toBe(false);
    memory.give(third);
    expect(pd.device.query().inUse).toEqual(inUse);
  });
});
