/** Work requests on their way through a ring: what comes out at the other end, and what it costs in memory. */
import type { MessagePort } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { Outbox } from '../../src/engine/outbox.ts';
import { putSend, readSend, TO_ENGINE } from '../../src/engine/records.ts';
import { createRing, RingReader, RingWriter } from '../../src/engine/ring.ts';
import { StagReplica } from '../../src/engine/stag-replica.ts';
import { SendQueue } from '../../src/rdmap/work.ts';

it('inline octets go from one entry to the other, again and again through the same memory', () => {
  const ring = createRing(256);
  const reader = new RingReader(ring);
  const port = { postMessage: () => undefined } as unknown as MessagePort;
  const outbox = new Outbox(new RingWriter(ring), port, port);
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
    expect(putSend(outbox, 5, given)).toBe(true);
    outbox.publish();
    const at = reader.peek();
    expect([reader.typeOf(at), reader.words[at + 1]]).toEqual([TO_ENGINE.SEND, 5]);
    const { sges } = readSend(reader, at, reader.endOf(at), far, elements);
    reader.next(at);
    reader.release();
    const { bytes, offset, length } = sges.first;
    expect([sges.count, bytes.slice(offset, offset + length)]).toEqual([1, payload]);
    memories.add(bytes.buffer);
    for (const queue of [near, far]) queue.complete(true);
  }
  expect(memories.size).toBe(1);
});
