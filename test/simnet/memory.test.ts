/**
 * What the network in memory adds to the contract: time, bandwidth, bounded buffers, and its strictness about
 * borrowed memory.
 */

import { describe, expect, it } from 'vitest';
import { MemoryTransport, POISON, VirtualTime } from '../../src/simnet/memory.ts';
import { memoryWorld } from '../transport/harness.ts';

describe('VirtualTime', () => {
  it('runs tasks in the order of their times, then of their scheduling', () => {
    const time = new VirtualTime(100);
    const log: string[] = [];
    const note = (name: string) => (): void => {
      log.push(`${name}@${time.now()}`);
    };
    time.at(130, note('c'));
    time.at(110, note('a'));
    time.at(110, note('b'));
    time.defer(note('first'));
    time.at(5, note('past'));
    time.defer(() => time.defer(note('nested')));
    expect(time.pending).toBe(6);
    expect(time.next).toBe(100);
    expect(time.run()).toBe(7);
    expect(log).toEqual(['first@100', 'past@100', 'nested@100', 'a@110', 'b@110', 'c@130']);
    expect(time.next).toBeUndefined();
    expect(time.step()).toBe(false);
  });

  it('moves to the time asked for, running due calls on the way', () => {
    const time = new VirtualTime();
    let ran = 0;
    time.at(10, () => ran++);
    time.at(10.5, () => ran++);
    expect(time.runUntil(10)).toBe(1);
    expect(time.now()).toBe(10);
    expect(time.advance(0.25)).toBe(0);
    expect(time.now()).toBe(10.25);
    expect(time.advance(1)).toBe(1);
    expect(ran).toBe(2);
  });

  it('forgets cancelled timers, and cancelling late or twice changes nothing', () => {
    const time = new VirtualTime();
    let ran = 0;
    const cancel = time.at(1, () => ran++);
    const other = time.at(2, () => ran++);
    cancel();
    cancel();
    expect(time.pending).toBe(1);
    time.run();
    other();
    expect(time.pending).toBe(0);
    expect(ran).toBe(1);
    expect(time.now()).toBe(2);
  });

  it('gives up on a program that never comes to rest', () => {
    const time = new VirtualTime();
    const again = (): void => time.defer(again);
    again();
    expect(() => time.run(1000)).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
  });

  it('keeps its order with many timers', () => {
    const time = new VirtualTime();
    const seen: number[] = [];
    for (let i = 0; i < 1000; i++) time.at((i * 7919) % 1009, () => seen.push(time.now()));
    time.run();
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect(seen.length).toBe(1000);
  });
});

describe('MemoryTransport', () => {
  it('takes the latency for everything, and a round trip to connect', async () => {
    const world = memoryWorld('memory', { latency: 10 });
    const { active, passive } = await world.pair();
    expect(world.time.now()).toBe(20);
    active.attach();
    passive.attach();
    active.write(Uint8Array.of(1));
    world.time.runUntil(29.9);
    expect(passive.received).toEqual([]);
    world.time.runUntil(30);
    expect(passive.received).toEqual([1]);
    active.call(() => active.port.reset());
    world.time.runUntil(39.9);
    expect(passive.closed).toBe(false);
    world.time.runUntil(40);
    expect(passive.closed).toBe(true);
  });

  it('sends no faster than its bandwidth', async () => {
    const world = memoryWorld('memory', { latency: 1, bandwidth: 100, readOctets: 500, buffer: 10_000 });
    const { active, passive } = await world.pair();
    active.attach();
    passive.attach();
    const start = world.time.now();
    active.write(new Uint8Array(1000));
    active.call(() => active.port.end());
    world.time.runUntil(start + 10.9);
    expect(passive.count).toBe(500);
    world.time.runUntil(start + 11);
    expect(passive.count).toBe(1000);
    expect(passive.log).toEqual(['end']);
  });

  it('lets a write wait until the reader has made room, and the news of it has come back', async () => {
    const world = memoryWorld('memory', { latency: 5, buffer: 100 });
    const { active, passive } = await world.pair();
    active.attach();
    passive.attach();
    world.time.run();
    passive.call(() => passive.port.pause());
    active.write(new Uint8Array(60));
    active.write(new Uint8Array(60));
    world.time.run();
    expect(active.dones).toEqual(['0:true']);
    expect(passive.count).toBe(0);
    const resumed = world.time.now();
    passive.call(() => passive.port.resume());
    world.time.runUntil(resumed);
    expect(passive.count).toBe(100);
    world.time.runUntil(resumed + 4);
    expect(active.dones).toEqual(['0:true']);
    world.time.runUntil(resumed + 5);
    expect(active.dones).toEqual(['0:true', '1:true']);
    world.time.run();
    expect(passive.count).toBe(120);
  });

  it('overwrites what it lent as soon as the handler returns', async () => {
    const world = memoryWorld();
    const { active, passive } = await world.pair();
    active.attach();
    let kept: Uint8Array | undefined;
    let inside: number[] = [];
    passive.port.attach({
      onData(bytes, start, end) {
        kept = bytes.subarray(start, end);
        inside = [...kept];
      },
      onEnd: () => undefined,
      onClose: () => undefined,
    });
    active.write(Uint8Array.of(1, 2, 3));
    world.time.run();
    expect(inside).toEqual([1, 2, 3]);
    expect([...(kept ?? [])]).toEqual([POISON, POISON, POISON]);
  });

  it('starts deliveries at changing offsets', async () => {
    const world = memoryWorld();
    const { active, passive } = await world.pair();
    active.attach();
    const starts = new Set<number>();
    passive.port.attach({
      onData: (_bytes, start) => starts.add(start),
      onEnd: () => undefined,
      onClose: () => undefined,
    });
    for (let i = 0; i < 16; i++) {
      active.write(Uint8Array.of(i));
      world.time.run();
    }
    expect(starts.size).toBe(16);
  });

  it('catches a writer that changes its memory before done, and sends what it was at the write', async () => {
    const world = memoryWorld('memory', { verifyWrites: true });
    const { active, passive } = await world.pair();
    active.attach();
    passive.attach();
    const mine = Uint8Array.of(1, 2, 3);
    active.call(() => active.port.write([mine], 1, () => undefined));
    mine[1] = 9;
    expect(() => world.time.run()).toThrow('at byte 1 of 3');
    world.time.run();
    expect(passive.received).toEqual([1, 2, 3]);
  });

  it('loses the octets on the way when either end resets', async () => {
    const world = memoryWorld('memory', { latency: 10 });
    for (const who of ['sender', 'receiver'] as const) {
      const { active, passive } = await world.pair();
      active.attach();
      passive.attach();
      world.time.run();
      active.write(Uint8Array.of(1, 2, 3));
      world.time.advance(5);
      const resetting = who === 'sender' ? active : passive;
      resetting.call(() => resetting.port.reset());
      world.time.run();
      expect(passive.received, who).toEqual([]);
      expect(active.closeError?.code).toBe('ERR_CONNECTION_RESET');
      expect(passive.closeError?.code).toBe('ERR_CONNECTION_RESET');
    }
  });

  it('knows names, wildcards and families', () => {
    const time = new VirtualTime();
    const network = new MemoryTransport(time, { names: { alpha: 'fd00::a', beta: '10.0.0.2' } });
    const log: string[] = [];
    const listen = (name: string, host: string, port: number, ipv6Only?: boolean): void =>
      network.listen(
        { host, port, ...(ipv6Only !== undefined && { ipv6Only }) },
        (accepted) => {
          log.push(`${name} ${accepted.localAddress.address} from ${accepted.remoteAddress.address}`);
        },
        (_listener, error) => error && log.push(error.message),
      );
    const connect = (host: string, port: number, localAddress?: string): void => {
      network.connect(
        { host, port, ...(localAddress !== undefined && { localAddress }) },
        (_port, error) => error && log.push(error.message),
      );
      time.run();
    };
    listen('any', '::', 1);
    listen('any6', '::', 2, true);
    listen('any4', '0.0.0.0', 3);
    listen('beta', 'beta', 1);
    listen('nobody', 'gamma', 1);
    time.run();
    connect('alpha', 1);
    connect('beta', 1, '10.0.0.77');
    connect('10.9.9.9', 1);
    connect('beta', 2);
    connect('beta', 3);
    connect('alpha', 3);
    connect('gamma', 1);
    expect(log).toEqual([
      'cannot listen on gamma:1 (ENOTFOUND)',
      'any fd00::a from fd00::1',
      'beta 10.0.0.2 from 10.0.0.77',
      'any 10.9.9.9 from 10.0.0.1',
      'cannot connect to beta:2 (ECONNREFUSED)',
      'any4 10.0.0.2 from 10.0.0.1',
      'cannot connect to alpha:3 (ECONNREFUSED)',
      'cannot connect to gamma:1 (ENOTFOUND)',
    ]);
  });

  it('gives a local port to one connection towards a peer at a time', async () => {
    const world = memoryWorld();
    const { active, passive, listener } = await world.pair('10.0.0.2', { localPort: 4000 });
    const connect = (): object[] => {
      const results: object[] = [];
      world.transport.connect(
        { host: '10.0.0.2', port: listener.address.port, localPort: 4000 },
        (_port, error) => results.push(error ?? {}),
      );
      world.time.run();
      return results;
    };
    expect(connect()).toMatchObject([{ cause: { code: 'EADDRINUSE' } }]);
    active.attach();
    passive.attach();
    active.port.reset();
    world.time.run();
    expect(connect()).toEqual([{}]);
  });

  it('rejects options that make no sense', () => {
    expect(() => new MemoryTransport(new VirtualTime(), { latency: -1 })).toThrow('latency');
    expect(() => new MemoryTransport(new VirtualTime(), { bandwidth: 0 })).toThrow('bandwidth');
    expect(() => new MemoryTransport(new VirtualTime(), { buffer: Number.NaN })).toThrow('buffer');
  });
});
