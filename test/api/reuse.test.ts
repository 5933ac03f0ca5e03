/**
 * Receive buffers pass from one connection to the next: what a program still holds of the first does not
 * change.
 */
import { describe, expect, it } from 'vitest';
import {
  checkEndpoint,
  createResources,
  destroyResources,
  type FirstReceives,
} from '../../src/api/endpoint.ts';
import { connect, createServer, openRnic, type Connection, type Message } from '../../src/index.ts';
import { pattern, rnicOf, WORLDS } from './support.ts';

const OCTETS = 5000;

/** Where a message lies, as text. */
const slabs: ArrayBufferLike[] = [];
function placeOf({ data }: Message): string {
  if (!slabs.includes(data.buffer)) slabs.push(data.buffer);
  return `${slabs.indexOf(data.buffer)}+${data.byteOffset}`;
}

describe.each(WORLDS)('buffers of a connection that is over: %s', (world) => {
  async function setUp(): Promise<{
    open: () => Promise<Connection>;
    arrived: Connection[];
    end: () => Promise<void>;
  }> {
    const rnic = rnicOf(world);
    const arrived: Connection[] = [];
    const server = await createServer({ rnic }, (connection) => void arrived.push(connection)).listen({
      host: '127.0.0.1',
      port: 0,
    });
    return {
      open: () => connect({ rnic, host: '127.0.0.1', port: server.address().port }),
      arrived,
      end: () => server.close(),
    };
  }

  /** One more connection that has received such a message. */
  async function receive(setting: Awaited<ReturnType<typeof setUp>>, seed: number): Promise<Message> {
    const client = await setting.open();
    await expect.poll(() => setting.arrived.length).toBeGreaterThan(0);
    const there = setting.arrived.pop()!;
    await client.send(pattern(OCTETS, seed));
    const message = (await there.receive())!;
    expect(Buffer.compare(message.data, pattern(OCTETS, seed))).toBe(0);
    await client.close();
    await there.closed;
    return message;
  }

  it('serve the next ones when all messages have been released', async () => {
    const setting = await setUp();
    const used = new Set<string>();
    for (const seed of [1, 2, 3, 4, 5]) {
      const message = await receive(setting, seed);
      used.add(placeOf(message));
      message.release();
      message.release();
    }
    expect(used.size).toBeLessThanOrEqual(4); // the buffers of both ends of the first connection
    await setting.end();
  });

  it('stay with a message that has not been released', async () => {
    const setting = await setUp();
    const kept = await receive(setting, 1);
    for (const seed of [2, 3, 4]) {
      const message = await receive(setting, seed);
      expect(placeOf(message)).not.toBe(placeOf(kept));
      message.release();
    }
    expect(Buffer.compare(kept.data, pattern(OCTETS, 1))).toBe(0);
    kept.release();
    await setting.end();
  });

  it('are lost where a message has not been released, but no others', async () => {
    const setting = await setUp();
    const { connectionMemory } = (await setting.open()).pd.device;
    await expect.poll(() => setting.arrived.length).toBe(1);
    setting.arrived.pop();
    const lose = connectionMemory.lose.bind(connectionMemory);
    const lost: number[] = [];
    connectionMemory.lose = (bytes) => (lost.push(bytes.length), lose(bytes));
    for (const seed of [1, 2, 3]) await receive(setting, seed);
    expect(lost).toEqual([8, 8, 8].map((count) => count * 16_384));
    await setting.end();
  });

  it('stay with messages that nobody has asked for, to be received after the end', async () => {
    const setting = await setUp();
    const client = await setting.open();
    await expect.poll(() => setting.arrived.length).toBe(1);
    const there = setting.arrived.pop()!;
    await Promise.all([1, 2].map((seed) => client.send(pattern(OCTETS, seed))));
    await client.close();
    await there.closed;
    (await receive(setting, 3)).release();
    for (const seed of [1, 2]) {
      const message = (await there.receive())!;
      expect(Buffer.compare(message.data, pattern(OCTETS, seed))).toBe(0);
      message.release();
    }
    expect(await there.receive()).toBeNull();
    await setting.end();
  });
});

describe('buffers of a connection that has not come about', () => {
  it('are all given back, once, however often its end is reported', () => {
    const rnic = openRnic({ engine: 'thread' });
    const { connectionMemory } = rnic.device;
    const given: number[] = [];
    const give = connectionMemory.give.bind(connectionMemory);
    connectionMemory.give = (bytes, clean) => (given.push(bytes.length / 16_384), give(bytes, clean));
    const resources = createResources(checkEndpoint({ rnic }));
    destroyResources(resources);
    destroyResources(resources);
    // 128 receives and 4 that are held in reserve, of 16 KiB each.
    expect(given).toEqual([8, 8, 16, 32, 68]);
  });
});

describe('the pieces in which the buffers of a connection lie', () => {
  const pieces = (
    receiveDepth: number,
    maxMessageSize: number,
    receives: FirstReceives = 'all',
  ): number[] => {
    const rnic = openRnic({ engine: 'thread' });
    const resources = createResources(checkEndpoint({ rnic, receiveDepth, maxMessageSize }), receives);
    const octets = [...rnic.device.objects.mr].filter(({ pd }) => pd === resources.pd).map((mr) => mr.length);
    destroyResources(resources);
    return octets;
  };

  it('are never less than is worth keeping, and together all that was asked for', () => {
    expect(pieces(1, 0)).toEqual([0]);
    expect(pieces(1, 16_384)).toEqual([5 * 16_384]);
    expect(pieces(8, 16_384)).toEqual([12 * 16_384]);
    expect(pieces(12, 16_384)).toEqual([8, 8].map((count) => count * 16_384));
    expect(pieces(1000, 64)).toEqual([1004 * 64]);
    expect(pieces(8000, 64)).toEqual([1028, 1028, 2056, 3892].map((count) => count * 64));
    expect(pieces(60, 1 << 20)).toEqual([8, 8, 16, 32].map((count) => count << 20));
  });

  it.each(['by-credits', 'as-taken'] as const)('are one at first where further ones come %s', (receives) => {
    expect(pieces(128, 16_384, receives)).toEqual([8 * 16_384]);
    expect(pieces(8000, 64, receives)).toEqual([1028 * 64]);
  });

  it('leave nothing behind where a limit is in the way of one of them', () => {
    const rnic = openRnic({ engine: 'thread', limits: { maxMr: 2 } });
    expect(() => createResources(checkEndpoint({ rnic }))).toThrow(
      expect.objectContaining({ code: 'ERR_LIMIT' }),
    );
    expect(rnic.device.query().inUse).toEqual({ pd: 0, cq: 0, qp: 0, datagramQp: 0, srq: 0, mr: 0, mw: 0 });
    expect(rnic.device.connectionMemory.reserved).toBeLessThanOrEqual(16 << 20);
  });
});
