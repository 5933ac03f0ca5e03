// Memory that is kept while the program gets many octets in new memory: when it is taken, when the system has it back, and what it saves.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { VirtualTime } from '../../src/transport/virtual-time.ts';
import { WarmHeap } from '../../src/transport/warm-heap.ts';

const PIECE = 1 << 16;
const BUSY = 32 << 20;
const SECOND = 1000;

function heapOf(take: () => unknown = () => ({})): { time: VirtualTime; heap: WarmHeap; give: (octets: number) => void } {
  const time = new VirtualTime();
  const heap = new WarmHeap(time, take);
  const give = (octets: number): void => {
    for (let given = 0; given < octets; given += PIECE) heap.given(PIECE);
  };
  return { time, heap, give };
}

describe('a heap kept warm', () => {
  it('is so once 32 MiB have come within a second of the 32 MiB before', () => {
    const { time, heap, give } = heapOf();
    give(BUSY);
    expect(heap.warm).toBe(false);
    time.runUntil(SECOND);
    give(BUSY - PIECE);
    expect(heap.warm).toBe(false);
    give(PIECE);
    expect(heap.warm).toBe(true);
  });

  it('is not for less than that in a second, however long it goes on', () => {
    const { time, heap, give } = heapOf();
    for (let second = 0; second < 100; second++) {
      give(BUSY - PIECE);
      time.runUntil((second + 1) * SECOND);
    }
    expect(heap.warm).toBe(false);
    expect(time.pending).toBe(0);
  });

  it('is not for pieces that are no part of the heap', () => {
    const { heap } = heapOf();
    for (let n = 0; n < 1000; n++) heap.given(1 << 20);
    expect(heap.warm).toBe(false);
  });

  it('stays so while much comes in one second of four, and after five seconds with less it is not', () => {
    const { time, heap, give } = heapOf();
    give(2 * BUSY);
    for (let second = 1; second <= 40; second++) {
      time.runUntil(second * SECOND);
      give(second % 4 === 0 ? BUSY : PIECE);
      expect(heap.warm, `after ${second} s`).toBe(true);
    }
    time.runUntil(45 * SECOND);
    expect(heap.warm).toBe(true);
    time.runUntil(46 * SECOND);
    expect(heap.warm).toBe(false);
    expect(time.pending).toBe(0);
    give(2 * BUSY);
    expect(heap.warm).toBe(true);
  });

  it('does without where there is no memory for it', () => {
    let asked = 0;
    const { heap, give } = heapOf(() => {
      asked++;
      throw new RangeError('Array buffer allocation failed');
    });
    give(10 * BUSY);
    expect(heap.warm).toBe(false);
    expect(asked).toBe(9);
  });
});

it('byte streams read by data events take no new pages from the system in the long run', async () => {
  const child = fileURLToPath(new URL('warm-heap.child.ts', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', child], { timeout: 50_000 });
  // Sixteen pages hold a piece. Without the room it is 3 to 11 faults, with it at most 0.03.
  expect(JSON.parse(stdout)).toBeLessThan(1);
});
