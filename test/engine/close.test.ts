// A device that is closed, and calls that end something: the same in the caller's thread and in a worker.
import { describe, expect, it } from 'vitest';
import { openRnic, type EngineKind } from '../../src/index.ts';
import { End, enginesOf, join, openWorkers, stop, until } from './support.ts';

const KINDS: readonly EngineKind[] = ['thread', 'worker'];

describe.each(KINDS)('a device that is closed while something is still open on it: %s', (engine) => {
  it('every connection is told its end, the peer of a reset, the listener closes, and then its thread ends', async () => {
    const rnic = openRnic({ engine });
    const peer = openRnic({ engine: 'thread' });
    const [a, b] = [new End(rnic), new End(peer)];
    await join(a, b);
    const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined);
    const ended = engine === 'thread' ? [] : enginesOf(rnic).map(({ host }) => host.gone);
    a.qp.destroy();
    a.cq.destroy();
    a.pd.deallocate();
    rnic.device.close();
    await until(() => a.event('disconnected') !== undefined && b.event('disconnected') !== undefined);
    expect([a.event('disconnected')!.cause, b.event('disconnected')!.cause, rnic.cm.connections.size]).toEqual(['reset', 'reset', 0]);
    await new Promise<void>((resolve) => listener.close(resolve));
    await Promise.all(ended);
    const next = await peer.cm.listen({ host: '127.0.0.1', port: listener.address.port }, () => undefined);
    next.close();
  });

  it('nobody can listen on it any more', () => {
    const { device, cm } = openRnic({ engine });
    device.close();
    expect(() => cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined)).toThrow(expect.objectContaining({ code: 'ERR_DESTROYED' }));
  });

  it('a listener that was asked for before still comes, and closes', async () => {
    const { device, cm } = openRnic({ engine });
    const listening = cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined);
    device.close();
    const listener = await listening;
    await new Promise<void>((resolve) => listener.close(resolve));
  });
});

it('an engine whose thread has been stopped because nothing was open refuses what comes later', async () => {
  const rnic = openWorkers();
  const [engine] = enginesOf(rnic);
  engine!.host.retire();
  await expect(rnic.cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined)).rejects.toMatchObject({ cause: { code: 'ERR_DESTROYED' } });
  const end = new End(rnic);
  end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port: 1 }));
  await until(() => end.event('unreachable') !== undefined);
  expect([end.event('unreachable')!.error, end.qp.state]).toEqual([expect.objectContaining({ code: 'ERR_DESTROYED' }), 'idle']);
  await stop(rnic);
});
