/**
 * Work requests on their way through a ring: the result at the other end, and its cost in memory.
 */
import type { MessagePort } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { NO_BYTES } from '../../src/base/copy.ts';
import { StagEntry } from '../../src/ddp/stag-table.ts';
import type { Command } from '../../src/engine/channel/messages.ts';
import { Outbox } from '../../src/engine/channel/outbox.ts';
import {
  putReceive,
  putSend,
  readReceive,
  readSend,
  TO_ENGINE,
  type Elements,
} from '../../src/engine/channel/records.ts';
import { createRing, RingReader, RingWriter } from '../../src/engine/channel/ring.ts';
import { StagReplica } from '../../src/engine/worker/stag-replica.ts';
import { ReceiveQueue, SendQueue } from '../../src/queues/work.ts';

it('inline octets go from one entry to the other, again and again through the same memory', () => {
  const ring = createRing(256);
  const reader = new RingReader(ring);
  const port = { postMessage: () => undefined } as unknown as MessagePort;
  const outbox = new Outbox(new RingWriter(ring), port, port);
  const [near, far] = [new SendQueue(1), new SendQueue(1)];
  const elements = new StagReplica(4, () => undefined);
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

it('elements beyond 4 GiB of their memory arrive as they are, as do those of the next request', () => {
  const ring = createRing(256);
  const reader = new RingReader(ring);
  const objects: Command[] = [];
  const port = { postMessage: (object: Command) => objects.push(object) } as unknown as MessagePort;
  const outbox = new Outbox(new RingWriter(ring), port, port);
  const far = [
    [1, 4_294_967_295, 5],
    [2, 4_294_967_296, 6],
    [0xffff_ffff, 12_345_678_901, 0xffff_ffff],
    [3, 9_000_000_000, 0],
  ] as const;
  const near = [[4, 4_294_967_295, 7]] as const;
  const seen: (readonly [number, number, number])[] = [];
  const elements: Elements = { add: (_sges, stag, offset, length) => seen.push([stag, offset, length]) };
  for (const list of [far, near]) {
    const [send, receive] = [new SendQueue(1).peekFree()!, new ReceiveQueue(1).peekFree()!];
    for (const [stag, offset, length] of list)
      for (const { sges } of [send, receive]) sges.add(null, NO_BYTES, offset, length, stag);
    // An element without an entry is inline data.
    send.sges.first.entry = receive.sges.first.entry = new StagEntry(1, 'region', 1);
    expect([putSend(outbox, 5, send), putReceive(outbox, TO_ENGINE.RECEIVE, 5, receive)]).toEqual([
      true,
      true,
    ]);
    outbox.publish();
    for (const read of [readSend, readReceive]) {
      const at = reader.peek();
      const object = objects.shift();
      if (object?.type === 'record')
        read(
          { ...object, bytes: NO_BYTES },
          0,
          object.words.length,
          new (read === readSend ? SendQueue : ReceiveQueue)(1) as never,
          elements,
        );
      else
        read(
          reader,
          at,
          reader.endOf(at),
          new (read === readSend ? SendQueue : ReceiveQueue)(1) as never,
          elements,
        );
      reader.next(at);
    }
    const expected = list.map(([stag, offset, length]) => [stag, length === 0 ? 0 : offset, length]);
    expect(seen.splice(0)).toEqual([...expected, ...expected]);
  }
});
