/** Work requests on their way through a ring: what comes out at the other end, and what it costs in memory. */
import { expect, it } from 'vitest';
import { readSend, TO_ENGINE, writeSend } from '../../src/engine/records.ts';
import { createRing, RingReader, RingWriter } from '../../src/engine/ring.ts';
import { StagReplica } from '../../src/engine/stag-replica.ts';
import { SendQueue } from '../../src/rdmap/work.ts';

it('inline octets go from one entry to the other, again and again through the same memory', () => {
  const ring = createRing(256);
  const [writer, reader] = [new RingWriter(ring), new RingReader(ring)];
  const [near, far] = [new SendQueue(1), new SendQueue(1)];
  const elements = new StagReplica(4);
  const memories = new Set<ArrayBufferLike>();
  // The longest first: no later one needs more. At 128 octets copies change their way, and 33 fills no word.
  for (const [i, octets] of [200, 1, 33, 128, 129, 200, 64].entries()) {
    const payload = Uint8Array.from({ length: octets }, (_, k) => 7 * i + k);
    const given = near.peekFree()!;
    given.inlineMemory(256).set(payload);
    given.sges.add(null, given.inlineMemory(256), 0, octets);
    near.push();
    expect(writeSend(writer, 5, given)).toBe(true);
    writer.publish();
    const at = reader.peek();
    expect([reader.typeOf(at), reader.words[at + 1]]).toEqual([TO_ENGINE.SEND, 5]);
    const { sges } = readSend(reader, at, far, elements);
    reader.next(at);
    reader.release();
    const { bytes, offset, length } = sges.first;
    expect([sges.count, bytes.slice(offset, offset + length)]).toEqual([1, payload]);
    memories.add(bytes.buffer);
    for (const queue of [near, far]) queue.complete(true);
  }
  expect(memories.size).toBe(1);
});
