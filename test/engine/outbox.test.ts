// One direction between two threads: which side is rung when records have waited for room. Ring and ports are
// the test's own.
import type { MessagePort } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Outbox } from '../../src/engine/channel/outbox.ts';
import { createRing, RingReader, RingWriter } from '../../src/engine/channel/ring.ts';

const LOUD = 1;
const QUIET = 2;

function setUp(words: number) {
  const ring = createRing(words);
  let bells = 0;
  const objects: unknown[] = [];
  const writer = new RingWriter(ring);
  const outbox = new Outbox(
    writer,
    { postMessage: () => bells++ } as unknown as MessagePort,
    { postMessage: (object: unknown) => objects.push(object) } as unknown as MessagePort,
  );
  const reader = new RingReader(ring);
  return {
    outbox,
    writer,
    reader,
    objects,
    bells: () => bells,
    /** Fill the ring with what wakes nobody. */
    fill: () => {
      while (writer.begin(QUIET, 8) >= 0);
      outbox.publishQuietly();
    },
    /** Read all that there is, give the room back, and sleep. */
    drain: () => {
      const types: number[] = [];
      for (let at = reader.peek(); at >= 0; at = reader.peek()) {
        types.push(reader.typeOf(at));
        reader.next(at);
      }
      reader.release();
      reader.sleep();
      return types;
    },
  };
}

describe('records that have waited for room', () => {
  it('ring when they go out, also together with quietly published records', () => {
    const { outbox, writer, fill, drain, bells } = setUp(64);
    fill();
    outbox.send(LOUD, { type: 'listen' });
    outbox.publish();
    expect([outbox.open, drain()]).toEqual([false, Array.from({ length: 8 }, () => QUIET)]);
    const before = bells();
    expect(outbox.flush()).toBe(true);
    expect(writer.begin(QUIET, 8)).toBeGreaterThan(0);
    outbox.publishQuietly();
    outbox.publish();
    expect([bells() - before, drain()]).toEqual([1, [LOUD, QUIET]]);
  });

  it('owe one ring and no more: a later quiet record wakes no thread', () => {
    const { outbox, writer, fill, drain, bells } = setUp(64);
    fill();
    outbox.put(LOUD, 0);
    drain();
    outbox.flush();
    outbox.publish();
    drain();
    const before = bells();
    writer.begin(QUIET, 8);
    outbox.publishQuietly();
    expect(bells()).toBe(before);
  });
});

it('an object that cannot be copied throws, and leaves no mark behind', () => {
  const ring = createRing(64);
  const port = { postMessage: (object: unknown) => structuredClone(object) } as unknown as MessagePort;
  const outbox = new Outbox(new RingWriter(ring), port, port);
  expect(() => outbox.send(LOUD, () => undefined)).toThrow('could not be cloned');
  outbox.publish();
  expect(new RingReader(ring).peek()).toBe(-1);
});
