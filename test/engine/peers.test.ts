// Queue pairs of an engine opposite peers made of octets: what only a peer that breaks rules, or a program
// between two events, can bring about.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { ActiveConnection } from '../../src/cm/index.ts';
import type { Rnic } from '../../src/index.ts';
import { PEER_ENHANCED, type RawPeer } from '../support/raw-peer.ts';
import { answer, dial, End, enginesOf, openWorkers, stop, until } from './support.ts';

let rnic: Rnic;
beforeAll(() => {
  rnic = openWorkers();
});
afterAll(() => stop(rnic));

/** A start-up frame of ours is there. */
const spoken = (peer: RawPeer): Promise<void> => until(() => peer.received.length >= 20);

describe('with confirm', () => {
  it.each([
    ['2/0/06', { d: false, ord: 9 }],
    ['2/0/07', { c: false, d: false }],
  ] as const)(
    'a Reply that calls for Terminate %s ends its own connection (ENH-022, ENH-040, MPA-035)',
    async (code, theirs) => {
      const end = new End(rnic);
      end.qp.postSend({ opcode: 'send' });
      const policy = { ird: 8, maxIrd: 8 };
      const peer = await answer((port) =>
        end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port, confirm: true, policy })),
      );
      await spoken(peer);
      peer.reply({ revision: 2, enhanced: { ...PEER_ENHANCED, ...theirs } });
      await until(() => peer.ending === 'fin');
      expect(peer.terminates()).toEqual([code]);
      peer.end();
      expect(await end.statuses(1)).toEqual(['send flushed']);
      await until(() => end.event('disconnected') !== undefined);
      expect(end.events.map(({ type }) => type)).toEqual(['established', 'terminate', 'disconnected']);
      expect([end.qp.state, rnic.device.state]).toEqual(['error', 'open']);
    },
  );

  it.each(['end', 'reset'] as const)(
    '%s by the peer and a confirmation cross: the connection has failed, and nothing else (MPA-021, MPA-035)',
    async (leave) => {
      const end = new End(rnic);
      end.qp.postRecv({});
      const peer = await answer((port) =>
        end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port, confirm: true })),
      );
      await spoken(peer);
      peer.reply({ revision: 1 });
      await until(() => end.event('connect-response') !== undefined);
      const engine = enginesOf(rnic)[0]!;
      const news = engine.event.bind(engine);
      let crossed = false;
      const event = vi.spyOn(engine, 'event').mockImplementation((said) => {
        if (said.type === 'stream' && said.event.type === 'startup-failed') {
          (end.connection as ActiveConnection).establish();
          crossed = true;
        }
        news(said);
      });
      peer[leave]();
      await until(() => end.event('disconnected') !== undefined);
      event.mockRestore();
      expect([crossed, ...end.events.map(({ type }) => type)]).toEqual([
        true,
        'connect-response',
        'rejected',
        'disconnected',
      ]);
      expect([end.qp.state, end.cq.length, rnic.device.state]).toEqual(['idle', 0, 'open']);
    },
  );
});

describe('Modify to Error', () => {
  /** A further connection of the device works. */
  async function servesOthers(): Promise<void> {
    const end = new End(rnic);
    const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) =>
      request.accept(end.qp),
    );
    const peer = await dial(listener.address.port);
    peer.request({ revision: 1 });
    await spoken(peer);
    await until(() => end.qp.state === 'rts');
    peer.reset();
    listener.close();
  }

  /** The connection has been reset, everything is flushed, and the queue pair can be used again. */
  async function ended(end: End, peer: RawPeer): Promise<void> {
    expect((await end.statuses(2)).toSorted()).toEqual(['rdma-read flushed', 'receive flushed']);
    expect(end.qp.state).toBe('error');
    await until(() => end.event('disconnected') !== undefined && ['closed', 'reset'].includes(peer.ending));
    expect(end.events.map(({ type }) => type)).toEqual(['established', 'disconnected']);
    expect(end.qp.query().negotiated).toBeUndefined();
    end.qp.modify({ state: 'idle' });
    expect(end.qp.state).toBe('idle');
  }

  function busy(): End {
    const end = new End(rnic);
    end.qp.postRecv({});
    end.qp.postSend({ opcode: 'rdma-read', rkey: 1, remoteAddr: 0n }); // no peer here answers it
    return end;
  }

  it('between accept and its event flushes, and harms no other connection (VERBS-037/055/056)', async () => {
    const end = busy();
    const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      end.watch(request);
      request.accept(end.qp);
      end.qp.modify({ state: 'error' });
    });
    const peer = await dial(listener.address.port);
    peer.request({ revision: 1 });
    await ended(end, peer);
    listener.close();
    await servesOthers();
  });

  it('before the event of a Reply already received does the same (VERBS-037/055/056)', async () => {
    const end = busy();
    const peer = await answer((port) => end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port })));
    await spoken(peer);
    const engine = enginesOf(rnic)[0]!;
    const news = engine.event.bind(engine);
    const event = vi.spyOn(engine, 'event').mockImplementation((said) => {
      if (said.type === 'stream' && said.event.type === 'established') end.qp.modify({ state: 'error' });
      news(said);
    });
    peer.reply({ revision: 1 });
    await ended(end, peer);
    event.mockRestore();
    await servesOthers();
  });
});

describe('an exception in this thread', () => {
  it('loses the record that it came from, and none after it', async () => {
    const listen = (): Promise<{ close(): void }> =>
      rnic.cm.listen({ host: '127.0.0.1', port: 0 }, () => undefined);
    (await listen()).close(); // the engine is up
    const engine = enginesOf(rnic)[0]!;
    const event = vi.spyOn(engine, 'event').mockImplementationOnce(() => {
      throw new Error('once');
    });
    listen().catch(() => undefined); // never heard of: that is the record
    // The event loop gets no turn: it is this call that reads.
    expect(() => {
      while (!engine.host.look());
    }).toThrow('once');
    event.mockRestore();
    (await listen()).close();
  });
});

describe('places of a listener', () => {
  it('are free after a failed start-up; closing ones are bounded too, in the engine (SEC-033)', async () => {
    const end = new End(rnic);
    const failures: string[] = [];
    const onFailure = ({ reason }: { reason: string }): void => void failures.push(reason);
    const listener = await rnic.cm.listen(
      { host: '127.0.0.1', port: 0, maxPending: 2, onFailure },
      (request) => request.accept(end.qp),
    );
    const others = rnic.cm.connections.size;
    const bad: RawPeer[] = [];
    for (let i = 0; i < 4; i++) {
      const peer = await dial(listener.address.port);
      peer.sendRaw(new Uint8Array(20));
      await until(() => peer.ending !== 'open');
      bad.push(peer);
    }
    await until(() => failures.length === 4 && rnic.cm.connections.size === others + 2);
    expect([listener.pending, new Set(failures)]).toEqual([0, new Set(['bad-key'])]);
    const good = await dial(listener.address.port);
    good.request({ revision: 1 });
    await spoken(good);
    await until(() => end.qp.state === 'rts');
    bad[0]!.end();
    await until(() => rnic.cm.connections.size === others + 2); // the good one and one that is waited for
    listener.close();
    await until(() => rnic.cm.connections.size === others + 1);
    good.reset();
  });
});
