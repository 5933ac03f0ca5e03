/** A receive queue that several streams share, as the streams see it: RFC 5040 5.3, verbs draft 6.3. */
import { describe, expect, it } from 'vitest';
import type { SharedReceiveQueue } from '../../src/verbs/index.ts';
import { OP, pattern, scripted, send, type Script } from './scripted.ts';

async function shared(
  entries: number,
): Promise<{ script: Script; srq: SharedReceiveQueue; memory: Uint8Array }> {
  let srq: SharedReceiveQueue | undefined;
  const script = await scripted({
    onRequest: (connection, { side }) => {
      srq ??= side.pd.createSrq({ maxWr: 16 });
      connection.accept(side.createQp({ srq }));
    },
  });
  const memory = new Uint8Array(entries * 8);
  const mr = script.side.register(memory);
  for (let i = 0; i < entries; i++) srq!.postRecv({ wrId: i, sges: [{ mr, offset: 8 * i, length: 8 }] });
  return { script, srq: srq!, memory };
}

describe('two streams on one shared receive queue', () => {
  it('a message takes the next receive, each stream counts its own MSNs (RDMAP-057, DDP-043)', async () => {
    const { script } = await shared(4);
    const other = script.bench.dial();
    other.request();
    script.settle();
    script.send(send(1, Uint8Array.of(1))).settle();
    other.sendFpdus([send(1, Uint8Array.of(2))]);
    script.settle();
    script.send(send(2, Uint8Array.of(3))).settle();
    const completions = script.received();
    expect(completions.map((wc) => [wc.wrId, wc.status])).toEqual([
      [0, 'success'],
      [1, 'success'],
      [2, 'success'],
    ]);
    expect(new Set(completions.map((wc) => wc.qpNumber)).size).toBe(2);
  });

  it('a stream that ends flushes only the receive it was filling (DDP-040, RDMAP-087)', async () => {
    const { script, srq } = await shared(3);
    const other = script.bench.dial();
    other.request();
    script.settle();
    script.send(send(1, pattern(4), { last: false })).settle();
    script.peer.reset();
    script.settle();
    expect(script.received().map((wc) => [wc.wrId, wc.status])).toEqual([[0, 'flushed']]);
    expect(srq.posted).toBe(2);
    other.sendFpdus([send(1, pattern(4)), send(2, pattern(4), { opcode: OP.sendSe }), send(3, pattern(4))]);
    script.settle();
    expect(script.received().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'success'],
      [2, 'success'],
    ]);
    expect(other.terminates()).toEqual(['1/2/02']);
  });
});
