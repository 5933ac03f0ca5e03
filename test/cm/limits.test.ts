// What hostile peers can take of a listener: half-sent Requests, many connections, many addresses (SEC-033).
import { afterEach, describe, expect, it } from 'vitest';
import { ListenerLimits, type ListenLimits } from '../../src/engine/listener-limits.ts';
import type { CmListener, ListenFailure, ListenOptions } from '../../src/cm/index.ts';
import { openRnic, type Rnic } from '../../src/index.ts';
import { dial, End, openWorkers, stop, until } from '../engine/support.ts';
import { rawInitiator, type RawPeer } from '../support/raw-peer.ts';

const NONE: ListenLimits = {
  maxPending: Infinity,
  maxPendingPerAddress: Infinity,
  maxConnections: Infinity,
  maxConnectionsPerAddress: Infinity,
};

/** A count over links that only note the calls on them. */
function counts(limits: Partial<ListenLimits>) {
  const log: string[] = [];
  const counted = new ListenerLimits({ ...NONE, ...limits });
  const come = (name: string, address: string) => {
    const refusal = counted.refusal(address);
    if (refusal !== null) {
      log.push(`${name} ${refusal}`);
      return null;
    }
    return counted.take({
      remoteAddress: { address, port: 1, family: 'IPv4' },
      abort: () => log.push(`${name} aborted`),
      displace: () => log.push(`${name} displaced`),
    });
  };
  return { log, counted, come };
}

describe('ListenerLimits', () => {
  it('takes the place of the oldest from the address that has most, so that it displaces its own', () => {
    const { log, counted, come } = counts({ maxPending: 4 });
    for (const name of ['a1', 'a2', 'a3']) come(name, '10.0.0.1');
    come('b1', '10.0.0.2');
    come('c1', '10.0.0.3');
    come('a4', '10.0.0.1');
    expect(log).toEqual(['a1 displaced', 'a2 displaced']);
    expect([counted.pending, counted.connections]).toEqual([4, 4]);
  });

  it('displaces none that has sent its Request', () => {
    const { log, counted, come } = counts({ maxPending: 2 });
    const first = come('a1', '10.0.0.1')!;
    const second = come('a2', '10.0.0.1')!;
    counted.requested(first);
    come('a3', '10.0.0.1');
    counted.requested(second); // news of one that has been displaced
    expect([log, second.state]).toEqual([['a2 displaced'], 'free']);
    const [late] = [come('a4', '10.0.0.1')!];
    counted.requested(late);
    come('b1', '10.0.0.2');
    expect(log).toEqual(['a2 displaced', 'a3 displaced', 'b1 too-many-pending']);
    counted.answered(first);
    expect([come('b2', '10.0.0.2')?.state, counted.pending]).toEqual(['starting', 2]);
  });

  it('limits one address while there is room for others', () => {
    const { log, counted, come } = counts({ maxPending: 10, maxPendingPerAddress: 2 });
    const first = come('a1', '10.0.0.1')!;
    counted.requested(first);
    come('a2', '10.0.0.1');
    come('a3', '10.0.0.1');
    come('b1', '10.0.0.2');
    expect([log, counted.pending]).toEqual([['a2 displaced'], 3]);
  });

  it('counts an IPv6 address by its /64, and a mapped IPv4 address as what it is', () => {
    const { log, come } = counts({ maxPendingPerAddress: 1 });
    come('a1', '2001:db8::1');
    come('a2', '2001:db8::ffff:2');
    come('b1', '2001:db8:0:1::1');
    come('c1', '10.0.0.1');
    come('c2', '::ffff:10.0.0.1');
    expect(log).toEqual(['a1 displaced', 'c1 displaced']);
  });

  it('limits connections in all and of one address until their end', () => {
    const { log, counted, come } = counts({ maxConnections: 3, maxConnectionsPerAddress: 2 });
    const slots = [come('a1', '10.0.0.1')!, come('a2', '10.0.0.1')!];
    for (const slot of slots) counted.requested(slot);
    for (const slot of slots) counted.answered(slot);
    come('a3', '10.0.0.1');
    come('b1', '10.0.0.2');
    come('c1', '10.0.0.3'); // one in start-up makes room here too
    expect(log).toEqual(['a3 too-many-connections', 'b1 displaced']);
    expect([counted.pending, counted.connections]).toEqual([1, 3]);
    counted.gone(slots[0]!);
    counted.gone(slots[0]!);
    expect(counted.connections).toBe(2);
    expect(come('a4', '10.0.0.1')).not.toBe(null);
  });

  it('bounds those that are leaving by maxPending, and counts nothing twice', () => {
    const { log, counted, come } = counts({ maxPending: 1 });
    const first = come('a1', '10.0.0.1')!;
    counted.leave(first);
    counted.leave(first);
    const second = come('a2', '10.0.0.1')!;
    counted.leave(second);
    expect([log, counted.pending, counted.connections]).toEqual([['a2 aborted'], 0, 1]);
    counted.gone(first);
    counted.gone(second);
    expect([counted.pending, counted.connections]).toEqual([0, 0]);
  });

  it('keeps its counts through any order of events, in steps that do not grow with past connections', () => {
    let seed = 7;
    const draw = (below: number): number => {
      seed = (seed * 1_103_515_245 + 12_345) & 0x7fff_ffff;
      return seed % below;
    };
    const { counted, come } = counts({ maxPending: 20, maxConnections: 40, maxPendingPerAddress: 8 });
    const slots: NonNullable<ReturnType<typeof come>>[] = [];
    for (let i = 0; i < 20_000; i++) {
      const slot = come('x', `10.0.0.${draw(6)}`);
      if (slot !== null) slots.push(slot);
      const one = slots[draw(slots.length)]!;
      const what = draw(5);
      if (what === 0 && one.state === 'starting') counted.requested(one);
      else if (what === 1 && one.state === 'waiting') counted.accepted(one);
      else if (what === 4 && (one.state === 'waiting' || one.state === 'accepted')) counted.answered(one);
      else if (what === 2) counted.leave(one);
      else counted.gone(one);
      if (slots.length > 200) slots.splice(0, 100).forEach((old) => counted.gone(old));
      const live = slots.filter(({ state }) => state !== 'free');
      expect(counted.connections).toBe(live.length);
      expect(counted.pending).toBe(
        live.filter(({ state }) => ['starting', 'waiting', 'accepted'].includes(state)).length,
      );
      expect(counted.pending).toBeLessThanOrEqual(20);
    }
    for (const slot of slots) counted.gone(slot);
    expect([counted.pending, counted.connections]).toEqual([0, 0]);
  });
});

/** The key of a Request without its end. */
const HALF = new TextEncoder().encode('MPA ID Req');

describe('half a Request', () => {
  it('from one address, 256 times, shuts no newcomer out, nor one that was there before', async () => {
    const { bench, peer } = await rawInitiator({ listen: { maxPending: 256 } });
    const hostile: RawPeer[] = [];
    for (let i = 0; i < 300; i++) {
      const one = bench.dial('10.0.0.66');
      one.sendRaw(HALF);
      hostile.push(one);
    }
    bench.settle();
    const good = bench.dial('10.0.0.77');
    good.request({ revision: 1 });
    peer.request({ revision: 1 });
    bench.settle();
    expect([good, peer].map((one) => one.startup().frame)).toMatchObject([
      { kind: 'reply', reject: false },
      { kind: 'reply', reject: false },
    ]);
    const left = hostile.filter(({ ending }) => ending === 'open');
    expect(left).toEqual(hostile.slice(-left.length)); // the oldest have made room
    expect(bench.failures.every(({ reason }) => reason === 'displaced')).toBe(true);
    expect(bench.listener!.pending).toBe(left.length);
    bench.run();
    expect([bench.listener!.pending, bench.listener!.limits.connections]).toEqual([0, 0]);
  });

  it('whose place is gone does nothing when its rest comes', async () => {
    const { bench, peer } = await rawInitiator({ listen: { maxPending: 1 } });
    peer.sendRaw(HALF);
    bench.settle();
    bench.network.connect({ host: '10.0.0.2', port: 4711 }, () => undefined);
    peer.sendRaw(HALF);
    bench.run();
    expect([peer.ending, bench.incoming.length]).toEqual(['reset', 0]);
    expect(bench.failures.map(({ reason }) => reason)).toEqual(['displaced', 'timeout']);
  });
});

describe.each(['thread', 'worker', 'two workers'] as const)(
  'a listener over TCP with engine %s',
  (engine) => {
    const opened: Rnic[] = [];
    afterEach(async () => {
      const rnics = opened.splice(0);
      if (engine !== 'thread') await stop(...rnics);
    });

    /** The reset may come before or after the connection is seen to be made. */
    async function refused(port: number, from: string): Promise<void> {
      try {
        const peer = await dial(port, from);
        await until(() => peer.ending === 'reset');
      } catch (error) {
        expect(error).toMatchObject({ cause: { code: 'ECONNRESET' } });
      }
    }

    async function listening(options: ListenOptions) {
      const rnic =
        engine === 'thread'
          ? openRnic({ engine: 'thread' })
          : openWorkers(engine === 'worker' ? {} : { engines: 2 });
      opened.push(rnic);
      const failures: ListenFailure[] = [];
      const ends: End[] = [];
      const listener: CmListener = await rnic.cm.listen(
        { host: '127.0.0.1', onFailure: (failure) => failures.push(failure), ...options },
        (request) => {
          const end = new End(rnic);
          ends.push(end);
          end.watch(request);
          request.accept(end.qp);
        },
      );
      return { rnic, listener, failures, ends, port: listener.address.port };
    }

    it('lets a newcomer in while half-sent Requests fill it', async () => {
      const { listener, failures, ends, port } = await listening({ maxPending: 16 });
      const hostile: RawPeer[] = [];
      for (let i = 0; i < 40; i++) {
        const peer = await dial(port, '127.0.0.2');
        peer.sendRaw(HALF);
        hostile.push(peer);
      }
      const good = await dial(port, '127.0.0.3');
      good.request({ revision: 1 });
      await until(() => ends.length === 1 && ends[0]!.event('established') !== undefined);
      await until(() => hostile.filter(({ ending }) => ending === 'reset').length === 25);
      await until(() => failures.length === 25);
      expect(new Set(failures.map(({ reason }) => reason))).toEqual(new Set(['displaced']));
      expect(failures[0]!.remoteAddress?.address).toBe('127.0.0.2');
      expect([listener.failed, listener.refused]).toEqual([25, 0]);
      listener.close();
      for (const peer of [...hostile, good]) peer.reset();
      await until(() => ends[0]!.event('disconnected') !== undefined);
    });

    it('refuses more connections than maxConnections, and takes one when one has ended', async () => {
      const { listener, failures, ends, port } = await listening({ maxConnections: 2 });
      const established = async (count: number): Promise<void> =>
        until(() => ends.filter((end) => end.event('established') !== undefined).length === count);
      const peers = [await dial(port), await dial(port)];
      for (const peer of peers) peer.request({ revision: 1 });
      await established(2);
      await refused(port, '127.0.0.1');
      await until(() => failures.length === 1);
      expect(failures).toMatchObject([{ reason: 'too-many-connections' }]);
      expect([listener.refused, listener.pending]).toEqual([1, 0]);
      peers[0]!.reset();
      await until(() => ends[0]!.event('disconnected') !== undefined);
      const next = await dial(port);
      next.request({ revision: 1 });
      await established(3);
      for (const peer of [peers[1]!, next]) peer.reset();
      await until(() => ends.every((end) => end.event('disconnected') !== undefined));
      listener.close();
    });

    it('limits the connections of one address, and no other', async () => {
      const { listener, failures, ends, port } = await listening({ maxConnectionsPerAddress: 1 });
      const first = await dial(port, '127.0.0.2');
      first.request({ revision: 1 });
      await until(() => ends[0]?.event('established') !== undefined);
      await refused(port, '127.0.0.2');
      await until(() => failures.length === 1);
      const other = await dial(port, '127.0.0.3');
      other.request({ revision: 1 });
      await until(() => ends[1]?.event('established') !== undefined);
      expect(failures).toMatchObject([
        { reason: 'too-many-connections', remoteAddress: { address: '127.0.0.2' } },
      ]);
      for (const peer of [first, other]) peer.reset();
      await until(() => ends.every((end) => end.event('disconnected') !== undefined));
      listener.close();
    });
  },
);

it.each(['maxPending', 'maxPendingPerAddress', 'maxConnections', 'maxConnectionsPerAddress'] as const)(
  '%s takes a whole number of 1 or more',
  (name) => {
    const rnic = openRnic({ engine: 'thread' });
    for (const value of [0, -1, 1.5, NaN, '8', null, 1_000_001]) {
      expect(() => rnic.cm.listen({ [name]: value as number }, () => undefined)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT', message: expect.stringContaining(name) }),
      );
    }
    rnic.device.close();
  },
);
