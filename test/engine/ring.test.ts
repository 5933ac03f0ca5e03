// The ring alone: order, the end of the ring, a full ring, and which side rings the other.
import { describe, expect, it, vi } from 'vitest';
import { createRing, RingReader, RingWriter } from '../../src/engine/channel/ring.ts';

function ends(words: number): { writer: RingWriter; reader: RingReader } {
  const ring = createRing(words);
  return { writer: new RingWriter(ring), reader: new RingReader(ring) };
}

/** Write a record of `words` words whose body counts up from `value`; false if it does not fit. */
function write(writer: RingWriter, type: number, words: number, value: number): boolean {
  const at = writer.begin(type, words);
  if (at < 0) return false;
  for (let i = 1; i < words; i++) writer.words[at + i] = value + i;
  return true;
}

function read(reader: RingReader): { type: number; first: number | undefined } | null {
  const at = reader.peek();
  if (at < 0) return null;
  const record = { type: reader.typeOf(at), first: reader.words[at + 1] };
  reader.next(at);
  return record;
}

describe('the ring', () => {
  it('shows nothing before it is published, and then all in order', () => {
    const { writer, reader } = ends(64);
    write(writer, 1, 3, 10);
    write(writer, 2, 2, 20);
    expect(read(reader)).toBeNull();
    writer.publish();
    expect([read(reader), read(reader), read(reader)]).toEqual([
      { type: 1, first: 11 },
      { type: 2, first: 21 },
      null,
    ]);
  });

  it('goes round for ever, with records of every length, across the wrap of its counters', () => {
    const { writer, reader } = ends(64);
    let written = 0;
    let seen = 0;
    for (let round = 0; round < 20_000; round++) {
      while (write(writer, 7, 2 + (written % 15), written)) written++;
      writer.publish();
      for (let record = read(reader); record !== null; record = read(reader)) {
        if (record.first !== seen + 1) expect(record.first).toBe(seen + 1);
        seen++;
      }
      reader.release();
    }
    expect(seen).toBe(written);
    expect(seen).toBeGreaterThan(100_000);
  });

  it('says no when it is full, and takes more when room has been given back', () => {
    const { writer, reader } = ends(64);
    for (let i = 0; i < 8; i++) expect(write(writer, 1, 8, 0)).toBe(true);
    expect(write(writer, 1, 2, 0)).toBe(false);
    writer.publish();
    read(reader);
    expect(write(writer, 1, 2, 0)).toBe(false); // read, but not given back
    reader.release();
    expect(write(writer, 1, 8, 0)).toBe(true);
  });

  it('a burst wakes a sleeping reader once, and one that is awake never', () => {
    const { writer, reader } = ends(64);
    const wakes: boolean[] = [];
    const post = (): void => {
      write(writer, 1, 2, 0);
      wakes.push(writer.publish());
    };
    post(); // nobody has said that it sleeps
    expect(reader.sleep()).toBe(false); // there is something
    read(reader);
    expect(reader.sleep()).toBe(true);
    for (let i = 0; i < 5; i++) post();
    expect(wakes).toEqual([false, true, false, false, false, false]);
  });

  it('a quiet publication is there for a reader that wakes by itself; the next one rings', () => {
    const { writer, reader } = ends(64);
    reader.sleep();
    expect(writer.publishQuietly()).toBe(false); // nothing to publish
    write(writer, 1, 2, 0);
    expect([writer.publishQuietly(), writer.publish()]).toEqual([true, false]);
    expect([read(reader), read(reader)]).toEqual([{ type: 1, first: 1 }, null]);
    write(writer, 2, 2, 0);
    expect([writer.publish(), writer.wake()]).toEqual([true, false]);
  });

  it('a reader that has seen all by itself and sleeps again is left alone', () => {
    const { writer, reader } = ends(64);
    write(writer, 1, 2, 0);
    writer.publishQuietly();
    read(reader);
    reader.release();
    expect([reader.sleep(), writer.wake()]).toEqual([true, false]);
    write(writer, 1, 2, 0);
    expect(writer.publish()).toBe(true);
  });

  it('a reader asleep at a ring filled quietly is woken by the writer that waits for space', () => {
    const { writer, reader } = ends(64);
    reader.sleep();
    while (write(writer, 1, 8, 0));
    writer.publishQuietly();
    expect([writer.waitForRoom(8), writer.wake(), writer.wake()]).toEqual([true, true, false]);
  });

  it('publishing nothing rings nobody', () => {
    const { writer, reader } = ends(64);
    reader.sleep();
    expect(writer.publish()).toBe(false);
  });

  it('a writer that waits for room is rung once; one that finds some after all returns at once', () => {
    const { writer, reader } = ends(64);
    expect(writer.waitForRoom(8)).toBe(false);
    while (write(writer, 1, 8, 0));
    writer.publish();
    expect(writer.waitForRoom(8)).toBe(true);
    read(reader);
    read(reader);
    expect([reader.release(), reader.release()]).toEqual([true, false]);
    expect(write(writer, 1, 8, 0)).toBe(true);
  });

  it('a wish for space holds although another writer finds some before the reader looks', () => {
    const { writer, reader } = ends(64);
    while (write(writer, 1, 8, 0));
    writer.publish();
    expect(writer.waitForRoom(8)).toBe(true);
    while (read(reader) !== null);
    const { store } = Atomics;
    const spy = vi.spyOn(Atomics, 'store').mockImplementationOnce((...args) => {
      const stored = store(...args);
      expect(writer.waitForRoom(2)).toBe(false);
      return stored;
    });
    expect(reader.release()).toBe(true);
    spy.mockRestore();
  });

  it('space reported to a writer fits the longest record, wherever the ring stands', () => {
    for (let at = 0; at < 64; at++) {
      for (let unread = 0; unread < 64; unread++) {
        const { writer, reader } = ends(64);
        for (let i = 0; i < at; i++) write(writer, 1, 1, 0);
        writer.publish();
        while (read(reader) !== null);
        reader.release();
        for (let i = 0; i < unread; i++) write(writer, 1, 1, 0);
        const { maxRecord } = writer;
        if (!writer.waitForRoom(maxRecord) && !write(writer, 2, maxRecord, 0))
          expect.fail(`no room at ${at} after ${unread}`);
      }
    }
  });
});
