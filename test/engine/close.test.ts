// A device that is closed, and calls that end something: the same in the caller's thread and in a worker.
import { describe, expect, it } from 'vitest';
import type { CmConnection } from '../../src/cm/index.ts';
import { openRnic, type EngineKind } from '../../src/index.ts';
import { End, enginesOf, join, memory, openWorkers, stop, until } from './support.ts';

const KINDS: readonly EngineKind[] = ['thread', 'worker'];

describe.each(KINDS)('a device that is closed while something is still open on it: %s', (engine) => {
  it('each connection and peer learns of the end, the listener closes, its thread ends', async () => {
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
    expect([
      a.event('disconnected')!.cause,
      b.event('disconnected')!.cause,
      rnic.cm.connections.size,
    ]).toEqual(['reset', 'reset', 0]);
    await new Promise<void>((resolve) => listener.close(resolve));
    await Promise.all(ended);
    const next = await peer.cm.listen({ host: '127.0.0.1', port: listener.address.port }, () => undefined);
    next.close();
  });

  it('nothing can listen on it afterwards', () => {
    const { device, cm } = openRnic({ engine });
    device.close();
    expect(() => cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined)).toThrow(
      expect.objectContaining({ code: 'ERR_DESTROYED' }),
    );
  });

  it('a listener that was asked for before still comes, and closes', async () => {
    const { device, cm } = openRnic({ engine });
    const listening = cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined);
    device.close();
    const listener = await listening;
    await new Promise<void>((resolve) => listener.close(resolve));
  });
});

it('an engine whose thread has been stopped because nothing was open refuses later calls', async () => {
  const rnic = openWorkers();
  const [engine] = enginesOf(rnic);
  engine!.host.retire();
  await expect(rnic.cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined)).rejects.toMatchObject({
    code: 'ERR_DESTROYED',
  });
  const end = new End(rnic);
  end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port: 1 }));
  await until(() => end.event('connect-error') !== undefined);
  expect([end.event('connect-error')!.error, end.qp.state]).toEqual([
    expect.objectContaining({ code: 'ERR_DESTROYED' }),
    'idle',
  ]);
  await stop(rnic);
});

describe.each(KINDS)('a call that asks for another state: %s', (engine) => {
  async function pair(): Promise<{ a: End; b: End; codeOf: (call: () => unknown) => unknown }> {
    const [a, b] = [new End(openRnic({ engine })), new End(openRnic({ engine: 'thread' }))];
    await join(a, b);
    return {
      a,
      b,
      codeOf: (call) => {
        try {
          return call();
        } catch (error) {
          return (error as { code: string }).code;
        }
      },
    };
  }

  const close = async (...ends: readonly End[]): Promise<void> => {
    await until(() => ends.every((end) => end.event('disconnected') !== undefined));
    for (const { qp, cq, pd, rnic } of ends) {
      qp.destroy();
      cq.destroy();
      pd.deallocate();
      rnic.device.close();
    }
  };

  it.each<[string, (end: End) => unknown]>([
    ['modify', ({ qp }) => qp.modify({ state: 'closing' })],
    ['disconnect', ({ connection }) => connection!.disconnect()],
  ])(
    'it is Closing when %s returns, and every further change is refused (VERBS-023)',
    async (_name, call) => {
      const { a, b, codeOf } = await pair();
      a.qp.postRecv({ wrId: 1 });
      call(a);
      expect(a.qp.state).toBe('closing');
      expect([
        codeOf(() => a.qp.modify({ state: 'closing' })),
        codeOf(() => a.qp.modify({ ord: 1 })),
      ]).toEqual(['ERR_INVALID_STATE', 'ERR_INVALID_STATE']);
      a.connection!.disconnect(); // once more does no harm
      a.qp.postSend({ wrId: 2, opcode: 'send' });
      a.qp.postRecv({ wrId: 3 });
      await until(() => a.event('disconnected') !== undefined);
      // Two queues: their completions have no order between them.
      const flushed = (await a.completed(3)).map(({ wrId, status }) => [Number(wrId), status] as const);
      expect(flushed.sort(([x], [y]) => x - y)).toEqual([
        [1, 'flushed'],
        [2, 'flushed'],
        [3, 'flushed'],
      ]);
      expect([a.qp.state, a.events.map(({ type }) => type), b.event('disconnected')?.cause]).toEqual([
        'idle',
        ['established', 'closing', 'disconnected'],
        'graceful',
      ]);
      expect(a.asyncEvents.map(({ type }) => type)).toEqual(['llp-closing', 'llp-close-complete']);
      await close(a, b);
    },
  );

  it('it is Terminate when the call returns (VERBS-023)', async () => {
    const { a, b, codeOf } = await pair();
    a.qp.modify({ state: 'terminate' });
    expect([a.qp.state, codeOf(() => a.qp.modify({ ord: 1 }))]).toEqual(['terminate', 'ERR_INVALID_STATE']);
    await until(() => a.event('disconnected') !== undefined);
    expect([a.qp.state, a.qp.query().terminate?.origin, a.asyncEvents.map(({ type }) => type)]).toEqual([
      'error',
      'local',
      ['terminate-sent'],
    ]);
    await close(a, b);
  });
});

describe.each(KINDS)('a queue pair that is destroyed while messages come in: %s', (engine) => {
  it('once the call returns, nothing is placed in the memory of its receives (VERBS-027)', async () => {
    const [OCTETS, DEPTH, ROUNDS] = [4096, 4096, 8];
    const [here, far] = [openRnic({ engine }), openWorkers()];
    for (let round = 0; round < ROUNDS; round++) {
      const [a, b] = [
        new End(here, { maxRecvWr: DEPTH }),
        new End(far, { maxSendWr: DEPTH, signalAll: false }),
      ];
      await join(a, b);
      const [sink, source] = [memory(a, OCTETS), memory(b, OCTETS)];
      source.bytes.fill(7);
      a.qp.postRecv(Array.from({ length: DEPTH }, () => ({ sges: [{ mr: sink }] })));
      b.qp.postSend(
        Array.from({ length: DEPTH }, () => ({ opcode: 'send' as const, sges: [{ mr: source }] })),
      );
      // In a worker they come in while this thread does nothing else.
      while (a.connection!.counters().messagesIn.sends < DEPTH / 16)
        if (engine === 'thread') await new Promise((resolve) => setImmediate(resolve));
      a.qp.destroy();
      sink.bytes.fill(0);
      const start = performance.now();
      while (performance.now() - start < 5);
      expect(sink.bytes.every((octet) => octet === 0)).toBe(true);
    }
    await stop(far, ...(engine === 'worker' ? [here] : []));
  });
});

describe.each(KINDS)('calls on a connection that has ended: %s', (engine) => {
  it.each<[string, (connection: CmConnection) => unknown]>([
    ['disconnect', (connection) => connection.disconnect()],
    ['terminate', (connection) => connection.terminate(0)],
    ['abort', (connection) => connection.abort()],
  ])('%s does nothing, above all not to the next connection of the queue pair', async (_name, call) => {
    const [a, b] = [new End(openRnic({ engine })), new End(openRnic({ engine: 'thread' }))];
    await join(a, b);
    const old = a.connection!;
    old.disconnect();
    await until(() => a.event('disconnected') !== undefined && b.event('disconnected') !== undefined);
    a.events.length = b.events.length = 0;
    await join(a, b);
    call(old);
    expect(a.qp.state).toBe('rts');
    b.qp.postRecv({ wrId: 1 });
    a.qp.postSend({ opcode: 'send' });
    expect((await b.completed(1))[0]).toMatchObject({ wrId: 1, status: 'success' });
    if (engine === 'worker') await stop(a.rnic);
  });
});
