/** The contract of `port.ts`, held against every transport and every middleware with neutral settings. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import type { PortListener } from '../../src/transport/port.ts';
import { pattern, worlds } from './harness.ts';
import type { End, World } from './harness.ts';

const SEED = 0x5eed_0001;

/** More than socket buffers and the memory network hold together, also after the system has grown them. */
const FLOOD = 48 * 1024 * 1024;
/** For each world the same. */
const LARGE = pattern(6 << 20, seededRandom(SEED));

describe.each(worlds())('port contract: $name', ({ make }) => {
  let world: World;

  beforeEach(() => {
    world = make();
  });

  afterEach(() => world.dispose());

  const attached = async (host?: string): Promise<{ active: End; passive: End; listener: PortListener }> => {
    const pair = await world.pair(host);
    pair.active.attach();
    pair.passive.attach();
    return pair;
  };

  const closed = (...ends: End[]): Promise<void> =>
    world.until(() => ends.every((end) => end.closed), 'closed ends');

  it.each(['127.0.0.1', '::1'])('reports the same addresses at both ends: %s', async (host) => {
    const { active, passive, listener } = await world.pair(host);
    expect(active.port.remoteAddress).toEqual(listener.address);
    expect(active.port.remoteAddress).toEqual({
      address: host,
      port: listener.address.port,
      family: host === '::1' ? 'IPv6' : 'IPv4',
    });
    expect(passive.port.localAddress).toEqual(active.port.remoteAddress);
    expect(passive.port.remoteAddress).toEqual(active.port.localAddress);
    expect(active.port.localAddress.port).toBeGreaterThan(0);
  });

  it('carries octets in order in both directions and calls done in order, later', async () => {
    const random = seededRandom(SEED);
    const { active, passive } = await attached('::1');
    const sent = { active: [] as Uint8Array[], passive: [] as Uint8Array[] };
    for (let i = 0; i < 40; i++) {
      for (const [name, end] of [
        ['active', active],
        ['passive', passive],
      ] as const) {
        const chunks = Array.from({ length: 1 + (random() % 5) }, () => pattern(random() % 3000, random));
        sent[name].push(...chunks);
        end.write(...chunks);
      }
    }
    const wanted = { active: Buffer.concat(sent.passive), passive: Buffer.concat(sent.active) };
    await world.until(
      () =>
        active.count >= wanted.active.length &&
        passive.count >= wanted.passive.length &&
        active.dones.length === 40,
      `all octets (seed ${SEED})`,
    );
    await world.until(() => passive.dones.length === 40, 'all dones');
    expect(Buffer.from(active.bytes).equals(wanted.active), `seed ${SEED}`).toBe(true);
    expect(Buffer.from(passive.bytes).equals(wanted.passive), `seed ${SEED}`).toBe(true);
    expect(active.dones).toEqual(Array.from({ length: 40 }, (_, i) => `${i}:true`));
    expect(passive.dones).toEqual(active.dones);
    expect(active.log).toEqual([]);
    expect(passive.log).toEqual([]);
  });

  it('reads the array of chunks during the call only, and no further than count', async () => {
    const { active, passive } = await attached();
    const chunks = [Uint8Array.of(1), Uint8Array.of(2), Uint8Array.of(3)];
    active.call(() => active.port.write(chunks, 2, () => undefined));
    chunks.fill(Uint8Array.of(9));
    active.write(Uint8Array.of(4));
    await world.until(() => passive.count === 3, 'three octets');
    expect(passive.received).toEqual([1, 2, 4]);
  });

  it('keeps octets until they are taken or done', async () => {
    const { active, passive } = await attached();
    passive.call(() => passive.port.pause());
    const octets = LARGE;
    const given = octets.slice();
    let done = false;
    // More than the systems between two ports hold: at some point the rest has to wait for the peer.
    const taken = active.call(() =>
      active.port.write([given.subarray(0, 1 << 20), given.subarray(1 << 20)], 2, () => {
        done = true;
        given.fill(0);
        world.notify();
      }),
    );
    if (taken) given.fill(0);
    await world.settle();
    passive.call(() => passive.port.resume());
    await world.until(() => done && passive.count === octets.length, 'all octets');
    expect(Buffer.from(passive.bytes).equals(octets)).toBe(true);
  });

  it('finishes writes of no octets in their turn', async () => {
    const { active, passive } = await attached();
    active.write();
    active.write(new Uint8Array(0));
    active.write(Uint8Array.of(5), new Uint8Array(0));
    active.write();
    await world.until(() => active.dones.length === 4 && passive.count === 1, 'four dones');
    expect(active.dones).toEqual(['0:true', '1:true', '2:true', '3:true']);
    expect(passive.log).toEqual([]);
  });

  it('keeps what arrives before attach', async () => {
    const { active, passive } = await world.pair();
    active.attach();
    active.write(Uint8Array.of(1, 2, 3));
    await world.until(() => active.dones.length === 1, 'a done');
    active.call(() => active.port.end());
    await world.settle();
    expect(passive.received).toEqual([]);
    passive.attach();
    await world.until(() => passive.log.length > 0, 'the end');
    expect(passive.received).toEqual([1, 2, 3]);
    expect(passive.log).toEqual(['end']);
  });

  it('delivers FIN after the data, leaves the other direction open, closes when both ended', async () => {
    const { active, passive } = await attached();
    const bytes = pattern(200_000, seededRandom(SEED));
    active.write(bytes);
    active.call(() => active.port.end());
    active.call(() => active.port.end());
    await world.until(() => passive.log.length > 0, 'the end');
    expect(passive.count).toBe(bytes.length);
    expect(active.log).toEqual([]);
    passive.write(Uint8Array.of(7));
    await world.until(() => active.count === 1, 'the answer');
    passive.call(() => passive.port.end());
    await closed(active, passive);
    await world.settle();
    expect(active.log).toEqual(['end', 'close']);
    expect(passive.log).toEqual(['end', 'close']);
    expect([...active.dones, ...passive.dones]).toEqual(['0:true', '0:true']);
  });

  it('refuses a write after end as a mistake of the program', async () => {
    const { active } = await attached();
    active.call(() => active.port.end());
    expect(() => active.write(Uint8Array.of(1))).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_STATE' }),
    );
  });

  it('refuses a second handler', async () => {
    const { active } = await attached();
    expect(() => active.port.attach(active)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
  });

  it('holds writes back while the peer pauses, and lets them through after it', async () => {
    const { active, passive } = await attached();
    passive.call(() => passive.port.pause());
    let arrived = 0;
    let sum = 0;
    const chunk = pattern(1 << 20, seededRandom(SEED));
    const chunkSum = chunk.reduce((a, b) => a + b, 0);
    // Count instead of record: the recorder is not made for this much.
    passive.onData = (bytes, start, end) => {
      arrived += end - start;
      for (let i = start; i < end; i++) sum += bytes[i] ?? 0;
      world.notify();
    };
    const total = world.name.startsWith('TCP') ? FLOOD : 1 << 21;
    const writes = total / chunk.length;
    for (let i = 0; i < writes; i++) active.write(chunk);
    await world.settle();
    expect(arrived).toBe(0);
    expect(active.dones.length).toBeLessThan(writes);
    passive.call(() => passive.port.resume());
    await world.until(() => arrived === total && active.dones.length === writes, 'the flood');
    expect(sum).toBe(chunkSum * writes);
    expect(active.dones).toEqual(Array.from({ length: writes }, (_, i) => `${i}:true`));
  });

  it('stops delivery when paused from onData, and goes on where it stopped', async () => {
    const { active, passive } = await attached();
    const bytes = pattern(3000, seededRandom(SEED));
    let pauses = 0;
    passive.hook = () => {
      pauses++;
      passive.port.pause();
    };
    active.write(bytes);
    active.call(() => active.port.end());
    while (passive.count < bytes.length) {
      const before = passive.count;
      await world.until(() => passive.count > before, 'more octets');
      const stopped = passive.pieces.length;
      if (pauses < 5) {
        await world.settle();
        expect(passive.pieces.length).toBe(stopped);
        expect(passive.log).toEqual([]);
      }
      passive.call(() => passive.port.resume());
    }
    await world.until(() => passive.log.length > 0, 'the end');
    expect(passive.bytes).toEqual(bytes);
    expect(passive.log).toEqual(['end']);
  });

  it('stays silent when paused in the turn of attach or right after resume', async () => {
    const { active, passive } = await world.pair();
    active.attach();
    active.write(Uint8Array.of(1));
    active.call(() => active.port.end());
    passive.attach();
    passive.call(() => passive.port.pause());
    await world.settle();
    passive.call(() => passive.port.resume());
    passive.call(() => passive.port.pause());
    await world.settle();
    expect(passive.received).toEqual([]);
    expect(passive.log).toEqual([]);
    passive.call(() => passive.port.resume());
    await world.until(() => passive.log.length > 0, 'the end');
    expect(passive.received).toEqual([1]);
  });

  it('resets: pending writes fail in order, both ends hear of it once, later writes fail', async () => {
    const { active, passive } = await attached();
    passive.call(() => passive.port.pause());
    const chunk = new Uint8Array(FLOOD / 4);
    const writes = 4;
    for (let i = 0; i < writes; i++) active.write(chunk);
    active.call(() => active.port.reset());
    active.call(() => active.port.reset());
    active.write(chunk);
    passive.call(() => passive.port.resume());
    await closed(active, passive);
    active.write(Uint8Array.of(1));
    await world.until(() => active.dones.length === writes + 2, 'all dones');
    await world.settle();
    expect(active.dones.map((done) => Number.parseInt(done, 10))).toEqual([0, 1, 2, 3, 4, 5]);
    expect(active.dones.slice(3)).toEqual(['3:false', '4:false', '5:false']);
    expect(active.log).toEqual(['close with error']);
    expect(passive.log).toEqual(['close with error']);
    expect(active.closeError?.code).toBe('ERR_CONNECTION_RESET');
    expect(passive.closeError?.code).toBe('ERR_CONNECTION_RESET');
    active.call(() => active.port.end());
    active.call(() => active.port.pause());
    active.call(() => active.port.resume());
  });

  it('fails the writes towards a peer that resets', async () => {
    const { active, passive } = await attached();
    passive.call(() => passive.port.pause());
    for (let i = 0; i < 3; i++) active.write(new Uint8Array(FLOOD / 3));
    await world.settle();
    passive.call(() => passive.port.reset());
    await closed(active, passive);
    await world.until(() => active.dones.length === 3, 'all dones');
    active.write(Uint8Array.of(1));
    await world.until(() => active.dones.length === 4, 'the last done');
    expect(active.dones.slice(2)).toEqual(['2:false', '3:false']);
    expect(active.log).toEqual(['close with error']);
    expect(active.closeError?.code).toBe('ERR_CONNECTION_RESET');
  });

  it.each(['at once', 'a while later'])('resets after end, %s', async (when) => {
    const { active, passive } = await attached();
    active.write(Uint8Array.of(1));
    active.call(() => active.port.end());
    if (when !== 'at once') await world.until(() => passive.log.length > 0, 'the end');
    active.call(() => active.port.reset());
    await closed(active);
    await world.settle();
    expect(active.log).toEqual(['close with error']);
    expect(active.dones.length).toBe(1);
    passive.call(() => passive.port.reset());
    await closed(passive);
  });

  it('reports a reset that came before attach', async () => {
    const { active, passive } = await world.pair();
    active.attach();
    active.call(() => active.port.reset());
    passive.call(() => passive.port.reset());
    await closed(active);
    await world.settle();
    passive.attach();
    expect(passive.log).toEqual([]);
    await closed(passive);
    expect(passive.log).toEqual(['close with error']);
  });

  it('reports a refused connection, with the cause', async () => {
    const listener = await world.listen({ host: '127.0.0.1' }, () => undefined);
    await world.close(listener);
    const results: unknown[] = [];
    let inCall = true;
    world.transport.connect({ host: '127.0.0.1', port: listener.address.port }, (port, error) => {
      results.push(inCall, port, error);
      world.notify();
    });
    inCall = false;
    await world.until(() => results.length > 0, 'a refusal');
    await world.settle();
    expect(results).toEqual([false, undefined, expect.objectContaining({ code: 'ERR_CONNECT' })]);
    expect((results[2] as Error).cause).toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('never calls back a cancelled attempt', async () => {
    const accepted: End[] = [];
    const listener = await world.listen({ host: '127.0.0.1' }, (port) =>
      accepted.push(world.end(port).attach()),
    );
    let called = 0;
    const cancel = world.transport.connect(
      { host: '127.0.0.1', port: listener.address.port },
      () => called++,
    );
    cancel();
    cancel();
    await world.settle();
    expect(called).toBe(0);
    await closed(...accepted);
  });

  it('ignores a cancel that comes after the connection', async () => {
    const listener = await world.listen({ host: '127.0.0.1' }, (port) => world.end(port).attach());
    let active: End | undefined;
    const cancel = world.transport.connect({ host: '127.0.0.1', port: listener.address.port }, (port) => {
      if (port !== undefined) active = world.end(port).attach();
      world.notify();
    });
    await world.until(() => active !== undefined, 'a connection');
    cancel();
    await world.settle();
    expect(active?.log).toEqual([]);
  });

  it('refuses an address in use, and frees it on close while accepted ports live on', async () => {
    const { active, passive, listener } = await attached();
    const { port } = listener.address;
    await expect(world.listen({ host: '127.0.0.1', port }, () => undefined)).rejects.toMatchObject({
      code: 'ERR_CONNECT',
      cause: { code: 'EADDRINUSE' },
    });
    await world.close(listener);
    active.write(Uint8Array.of(1));
    await world.until(() => passive.count === 1, 'an octet');
    expect(active.log).toEqual([]);
    active.call(() => active.port.end());
    passive.call(() => passive.port.end());
    await closed(active, passive);
  });

  it('connects from the address and port asked for', async () => {
    const spare = await world.listen({ host: '127.0.0.1' }, () => undefined);
    await world.close(spare);
    const { active, passive } = await world.pair('127.0.0.1', {
      localAddress: '127.0.0.1',
      localPort: spare.address.port,
    });
    expect(active.port.localAddress).toEqual({
      address: '127.0.0.1',
      port: spare.address.port,
      family: 'IPv4',
    });
    expect(passive.port.remoteAddress).toEqual(active.port.localAddress);
  });

  it('finds hosts by name and holds to the family asked for', async () => {
    const listener = await world.listen({ host: '127.0.0.1' }, () => undefined);
    const results: (number | undefined)[] = [];
    world.transport.connect({ host: 'localhost', port: listener.address.port, family: 4 }, (port) => {
      results.push(port?.remoteAddress.port);
      if (port !== undefined) world.end(port);
      world.notify();
    });
    await world.until(() => results.length > 0, 'a connection');
    expect(results).toEqual([listener.address.port]);
  });

  it('throws for ports that are none', () => {
    expect(() => world.transport.connect({ host: '::1', port: 65_536 }, () => undefined)).toThrow(
      'port must be',
    );
    expect(() =>
      world.transport.listen(
        { port: -1 },
        () => undefined,
        () => undefined,
      ),
    ).toThrow('port must be');
  });
});
