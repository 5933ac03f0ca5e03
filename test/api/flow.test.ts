/**
 * Order and flow: operations arrive in the order of their start, and no message is lost, however small queues
 * and credits are.
 */
import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { RemoteBuffer, type Connection } from '../../src/index.ts';
import { pair, pattern, registered, WORLDS, type World } from './support.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Take `count` numbered messages, now and then holding some for a while. */
async function take(at: Connection, count: number, random: () => number, hold: number): Promise<number[]> {
  const seen: number[] = [];
  const held: (() => void)[] = [];
  for (let i = 0; i < count; i++) {
    const message = (await at.receive())!;
    seen.push(
      message.immediate === undefined
        ? new DataView(message.data.buffer, message.data.byteOffset).getUint32(0, true)
        : Number(message.immediate),
    );
    held.push(() => message.release());
    while (held.length > hold || (held.length > 0 && random() % 3 === 0)) held.shift()!();
    if (random() % 16 === 0) await turn();
  }
  for (const release of held) release();
  return seen;
}

describe.each(WORLDS)('numbered messages over %s', (world: World) => {
  it.each([
    [1, 1],
    [2, 1],
    [3, 2],
    [5, 7],
    [64, 256],
  ])('both ways at once with receives %i and sends %i', async (receives, sends) => {
    const seed = receives * 1000 + sends;
    const random = seededRandom(seed);
    const COUNT = 300;
    const options = { receives, sends, maxMessage: 16 };
    const { client, server } = await pair(world, options, options);
    const push = async (from: Connection): Promise<void> => {
      // All at once: the line keeps the order, whatever queue and credit allow.
      await Promise.all(
        Array.from({ length: COUNT }, (_, i) =>
          i % 5 === 4 ? from.sendImmediate(BigInt(i)) : from.send(Uint32Array.of(i, 7)),
        ),
      );
    };
    const hold = receives - 1;
    const [, , there, here] = await Promise.all([
      push(client),
      push(server),
      take(server, COUNT, random, hold),
      take(client, COUNT, random, hold),
    ]);
    const all = Array.from({ length: COUNT }, (_, i) => i);
    expect({ seed, there, here }).toEqual({ seed, there: all, here: all });
    expect([client.pending, server.pending]).toEqual([0, 0]);
  });

  it('Writes, Reads and messages keep the order of the calls while credit is short', async () => {
    const { client, server } = await pair(world, { sends: 3 }, { receives: 1 });
    const region = server.allocate(4);
    const remote = server.share(region);
    const seen: number[] = [];
    const reading = (async () => {
      for (let i = 0; i < 100; i++) {
        const message = (await server.receive())!;
        seen.push(new DataView(region.bytes.buffer, region.bytes.byteOffset).getUint32(0, true));
        message.release();
      }
    })();
    // The Write in front of each message is in place when it comes; the next one is not there before it has
    // been released.
    const calls = Array.from({ length: 100 }, (_, i) => [
      client.write(Uint32Array.of(i), remote),
      client.send('written'),
    ]).flat();
    await Promise.all(calls);
    await reading;
    for (const [i, value] of seen.entries()) expect(value).toBeGreaterThanOrEqual(i);
    expect(seen.at(-1)).toBe(99);
  });
});

describe('the line', () => {
  it('is not overtaken by a call that comes while it moves', async () => {
    const { client, server } = await pair('memory', {}, { receives: 1 });
    const order: number[] = [];
    const send = (i: number): Promise<unknown> => client.send(Uint32Array.of(i)).then(() => order.push(i));
    const first = [send(0), send(1), send(2)];
    for (let i = 0; i < 6; i++) {
      const message = (await server.receive())!;
      if (i < 3) first.push(send(3 + i)); // just when the credit comes back
      message.release();
    }
    await Promise.all(first);
    expect(order).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it('lets what follows an aborted operation go on', async () => {
    const { client, server } = await pair('memory', {}, { receives: 1 });
    const remote = server.share(server.allocate(4));
    await client.send('takes the credit');
    const stop = new AbortController();
    const blocked = client.send('waits', { signal: stop.signal });
    const written = client.write(pattern(4), remote);
    const rejected = expect(blocked).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    stop.abort();
    await rejected;
    await written;
    expect(client.pending).toBe(0);
  });

  it('an abort after the posting rejects, and the connection and its memory stay sound', async () => {
    const { client, server } = await pair('memory');
    const region = registered(server, pattern(1 << 16));
    const regions = (): number => [...client.pd.device.objects.mr].filter((mr) => mr.pd === client.pd).length;
    const before = regions();
    const stop = new AbortController();
    const reading = client.read(server.share(region), undefined, { signal: stop.signal });
    stop.abort();
    await expect(reading).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    await client.drain();
    expect(await client.read(server.share(region))).toEqual(Buffer.from(pattern(1 << 16)));
    // One more than there were: the registration that is kept for the next such call.
    expect(regions()).toBe(before + 1);
  });

  it('a signal given to any number of operations has one listener, and none at the end', async () => {
    const { client, server } = await pair('memory', {}, { receives: 1 });
    const { client: other } = await pair('memory');
    const stop = new AbortController();
    const { signal } = stop;
    const listeners = (): number => getEventListeners(signal, 'abort').length;
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    const remote = server.share(server.allocate(4));
    await Promise.all(Array.from({ length: 40 }, () => client.write(pattern(4), remote, { signal })));
    expect(listeners()).toBe(0);
    await client.send('takes the credit');
    const order: number[] = [];
    const note =
      (i: number) =>
      (error: unknown): void => {
        expect(error).toMatchObject({ code: 'ERR_ABORTED', cause: signal.reason as Error });
        order.push(i);
      };
    const waiting = [
      ...Array.from({ length: 40 }, (_, i) => client.send('waits', { signal }).catch(note(i))),
      ...Array.from({ length: 40 }, (_, i) => other.receive({ signal }).catch(note(40 + i))),
    ];
    expect(listeners()).toBe(1);
    stop.abort(new Error('enough'));
    await Promise.all(waiting);
    expect(order).toEqual(Array.from({ length: 80 }, (_, i) => i));
    expect(listeners()).toBe(0);
    expect(client.pending).toBe(0);
    await turn();
    process.off('warning', onWarning);
    expect(warnings).toEqual([]);
  });

  it('close lets everything that was started finish, and refuses later calls', async () => {
    const { client, server } = await pair('memory', { sends: 2 }, { receives: 2 });
    const sends = Array.from({ length: 20 }, (_, i) => client.send(Uint32Array.of(i)));
    const closing = client.close();
    await expect(client.send('late')).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
    const seen: number[] = [];
    for await (const message of server) {
      seen.push(message.data[0]!);
      message.release();
    }
    await Promise.all(sends);
    expect(seen).toHaveLength(20);
    expect((await closing).cause).toBe('graceful');
  });

  it('close with a signal drops a connection whose peer never reads', async () => {
    const { client } = await pair('memory', {}, { receives: 1 });
    await client.send('read');
    const stuck = expect(client.send('never read')).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    const info = await client.close({ signal: AbortSignal.timeout(20) });
    expect(info.cause).toBe('reset');
    await stuck;
  });
});

describe('peers without RFC 7306', () => {
  it('are known before anything is tried, and take messages without credits', async () => {
    const { client, server } = await pair('memory', {}, { extensions: false, maxMessage: 100 });
    expect(client.peer).toEqual({ maxMessageSize: 100, extensions: false });
    expect([client.flowControlled, server.flowControlled]).toEqual([false, false]);
    const remote = new RemoteBuffer(1, 0, 8);
    await expect(client.sendImmediate(1n)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
    await expect(client.writeImmediate(new Uint8Array(1), remote, 1n)).rejects.toMatchObject({
      code: 'ERR_NOT_SUPPORTED',
    });
    await expect(client.fetchAdd(remote, 1n)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
    await expect(client.compareSwap(remote, 1n, 2n)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
    await client.send('plain');
    expect((await server.receive())!.data).toHaveLength(5);
    // The other way round nothing stands against it.
    await server.sendImmediate(77n);
    expect((await client.receive())!.immediate).toBe(77n);
  });

  it('a foreign one is tried, unless the program or the preset says that it has none', async () => {
    const foreign = { credits: false };
    const tried = await pair('memory', foreign, foreign);
    expect([tried.client.peer, tried.client.peerExtensions]).toEqual([undefined, undefined]);
    await tried.client.sendImmediate(5n);
    expect((await tried.server.receive())!.immediate).toBe(5n);

    const remote = new RemoteBuffer(1, 0, 8);
    for (const options of [
      { ...foreign, peerExtensions: false },
      { ...foreign, preset: 'siw' as const },
      { ...foreign, preset: 'intel' as const },
    ]) {
      const { client, server } = await pair('memory', options, foreign);
      expect([client.peer, client.peerExtensions]).toEqual([undefined, false]);
      await expect(client.sendImmediate(1n)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
      await expect(client.writeImmediate(new Uint8Array(1), remote, 1n)).rejects.toMatchObject({
        code: 'ERR_NOT_SUPPORTED',
      });
      await expect(client.fetchAdd(remote, 1n)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
      expect(() => client.queuePair.postSend({ opcode: 'immediate', immediate: 1n })).toThrow(
        expect.objectContaining({ code: 'ERR_NOT_SUPPORTED' }),
      );
      expect(client.queuePair.query().peerExtensions).toBe(false);
      await client.send('plain'); // nothing was sent, and the connection lives
      expect((await server.receive())!.data).toHaveLength(5);
    }
    // The program's word stands above the preset's, the peer's own announcement above both.
    const sure = await pair('memory', { ...foreign, preset: 'siw', peerExtensions: true }, foreign);
    expect(sure.client.peerExtensions).toBe(true);
    const announced = await pair('memory', { preset: 'siw' });
    expect([announced.client.peerExtensions, announced.client.flowControlled]).toEqual([true, true]);
    await announced.client.sendImmediate(6n);
    expect((await announced.server.receive())!.immediate).toBe(6n);
  });

  it('a foreign one without them ends the connection with Terminate unexpected opcode', async () => {
    const { client, server } = await pair(
      'memory',
      { credits: false },
      { credits: false, extensions: false },
    );
    const region = server.allocate(8);
    await expect(client.fetchAdd(server.share(region), 1n)).rejects.toMatchObject({
      code: 'ERR_WORK_COMPLETION',
      terminate: { origin: 'remote', layer: 0, type: 2 },
    });
    expect((await client.closed).cause).toBe('terminated');
    expect(new BigUint64Array(region.bytes.buffer)[0]).toBe(0n);
  });
});
