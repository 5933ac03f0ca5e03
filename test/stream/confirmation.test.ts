/**
 * When entries of the send queue complete: with the confirmation of the write that holds their last octet, in
 * posting order, and not before. Verbs draft 8.2.2, RFC 5040 5.5.
 */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { StagTable } from '../../src/ddp/stag-table.ts';
import { createTransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { WORK, type SendWqe } from '../../src/queues/work.ts';
import { bareSender } from '../support/bare-sender.ts';

const octets = new Uint8Array(1000);

function bench() {
  const { sender, sq, requests, completed } = bareSender(400);
  const done: number[] = [];
  const post = (wrId: number, kind: number, fill: (wqe: SendWqe) => void): void => {
    const wqe = sq.peekFree()!;
    Object.assign(wqe, { wrId, kind });
    fill(wqe);
    sq.push();
  };
  return {
    sender,
    requests,
    completed,
    done,
    write: (wrId: number) => post(wrId, WORK.WRITE, (wqe) => wqe.sges.add(null, octets, 0, octets.length)),
    read: (wrId: number) => post(wrId, WORK.READ, () => undefined),
    local: (wrId: number, fence: boolean) =>
      post(wrId, WORK.LOCAL, (wqe) => {
        wqe.fence = fence;
        const entry = new StagTable(seededRandom(1), 10).allocate('region', 1);
        wqe.local = {
          run: () => (done.push(wrId), 'success'),
          operation: { type: 'invalidate', entry, stag: 0, qp: 1 },
          memory: null,
        };
      }),
    /** One write of at most this number of octets goes to the port. */
    out(room: number): void {
      const buffer = createTransmitBuffer(new Uint8Array(room));
      sender.fill(buffer);
      expect(buffer.end).toBeGreaterThan(0);
      sender.handedOut();
    },
  };
}

describe('an entry completes', () => {
  it('with the confirmation of the write that its last octet is in, of two that are on their way', () => {
    const { sender, write, out, completed } = bench();
    for (const wrId of [1, 2, 3]) write(wrId);
    out(1500); // all of 1, and the beginning of 2
    out(10_000);
    sender.sweep();
    expect(completed).toEqual([]);
    sender.transmissionDone();
    expect(completed).toEqual([1]);
    sender.transmissionDone();
    expect(completed).toEqual([1, 2, 3]);
  });

  it('and no local work after it is done or completes sooner, with a fence and without', () => {
    const { sender, write, local, out, completed, done } = bench();
    write(1);
    local(2, false);
    local(3, true);
    write(4);
    out(10_000);
    expect({ done, completed }).toEqual({ done: [2], completed: [] });
    sender.transmissionDone();
    expect(completed).toEqual([1, 2]);
    out(10_000); // the fence is open now
    expect({ done, completed }).toEqual({ done: [2, 3], completed: [1, 2, 3] });
    sender.transmissionDone();
    expect(completed).toEqual([1, 2, 3, 4]);
  });

  it('with the write in front of it, if it is local work, whatever the port got after it', () => {
    const { sender, write, local, out, completed } = bench();
    write(1);
    out(10_000);
    local(2, false);
    write(3);
    out(10_000);
    write(4);
    sender.transmissionDone();
    expect(completed).toEqual([1, 2]);
    sender.transmissionDone();
    expect(completed).toEqual([1, 2, 3]);
  });

  it('at once if it is local work and nothing is on its way', () => {
    const { sender, local, write, out, completed } = bench();
    local(1, true);
    local(2, false);
    sender.fill(createTransmitBuffer(new Uint8Array(1000)));
    sender.sweep();
    expect(completed).toEqual([1, 2]);
    write(3);
    out(10_000);
    sender.transmissionDone();
    local(4, true);
    sender.fill(createTransmitBuffer(new Uint8Array(1000)));
    sender.sweep();
    expect(completed).toEqual([1, 2, 3, 4]);
  });

  it('after a Read only with its answer, even if its write was confirmed long ago (RDMAP-094)', () => {
    const { sender, requests, write, read, out, completed } = bench();
    write(1);
    read(2);
    write(3);
    out(10_000);
    sender.transmissionDone();
    expect(completed).toEqual([1]);
    const { firstOutstanding } = requests;
    requests.shiftOutstanding();
    firstOutstanding!.responded = true;
    sender.sweep();
    expect(completed).toEqual([1, 2, 3]);
  });

  it('with an answer before the confirmation: its request has arrived, what follows may not have', () => {
    const { sender, requests, read, write, out, completed } = bench();
    read(1);
    write(2);
    out(10_000);
    requests.firstOutstanding!.responded = true;
    requests.shiftOutstanding();
    sender.sweep();
    expect(completed).toEqual([1]);
    sender.transmissionDone();
    expect(completed).toEqual([1, 2]);
  });
});
