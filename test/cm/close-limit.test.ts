// A close has a bound in all, however a peer trickles and whatever work is left (VERBS-045).
import { describe, expect, it } from 'vitest';
import { pattern, readResponse, scripted } from '../rdmap/scripted.ts';

const MIB = 1 << 20;

describe('closeLimit', () => {
  it.each([
    [undefined, 60_000],
    [20_000, 20_000],
  ])('of %s ms ends a close while a peer trickles its Read Response', async (closeLimit, inAll) => {
    const policy = closeLimit === undefined ? {} : { closeLimit };
    const script = await scripted({ role: 'responder', policy });
    const { mr } = script.region(64 * MIB); // shares for more than an hour
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle();
    const from = script.time.now();
    script.side.connection!.disconnect();
    for (let at = 0n; script.peer.ending === 'open' && at < 100n; at++)
      script.send(readResponse(mr.rkey, at * 10n, pattern(10), { last: false })).settle(3000);
    const took = script.peer.endedAt! - from;
    expect(script.peer.ending).toBe('reset');
    expect(took).toBeGreaterThanOrEqual(inAll);
    expect(took).toBeLessThan(inAll + 100);
    script.finish();
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'timeout' });
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
  });

  it('ends a close whose writes a peer takes a little at a time', async () => {
    const script = await scripted({ network: { buffer: 2000 }, policy: { closeLimit: 30_000 } });
    const { mr } = script.region(16 * MIB);
    for (let wrId = 1; wrId <= 8; wrId++) script.side.qp.postSend({ wrId, opcode: 'send', sges: [{ mr }] });
    script.peer.pause();
    script.settle();
    const from = script.time.now();
    script.side.connection!.disconnect();
    for (let i = 0; script.side.event('disconnected') === undefined && i < 100; i++) {
      script.peer.resume();
      script.settle(2);
      script.peer.pause();
      script.settle(2000);
    }
    script.peer.resume();
    script.settle(10);
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'timeout' });
    expect(script.time.now() - from).toBeLessThan(34_000);
    expect(script.side.sent().map(({ status }) => status)).toEqual(new Array(8).fill('flushed'));
  });
});
