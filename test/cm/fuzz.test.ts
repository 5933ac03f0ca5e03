// Numbers from a peer (private data, depths, credits, grants, lengths, offsets, STags), at every place where
// they reach our own calls: none may throw at the program, end the process or harm another connection.
import { afterAll, describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { connect, createServer, openRnic } from '../../src/index.ts';
import { answer, dial, End, openWorkers, stop, until } from '../engine/support.ts';
import { rawInitiator, type RawPeer } from '../support/raw-peer.ts';

const random = seededRandom(20_261_125);
const below = (limit: number): number => random() % limit;
const oneOf = <T>(values: readonly T[]): T => values[below(values.length)]!;
/** A u32 that tends to be at an edge. */
const u32 = (): number =>
  oneOf([0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff, random(), random() & 0xff]);

function bytesOf(...parts: readonly (number | Uint8Array)[]): Uint8Array {
  return Uint8Array.from(
    parts.flatMap((part) =>
      typeof part === 'number'
        ? [part >>> 24, (part >>> 16) & 255, (part >>> 8) & 255, part & 255]
        : [...part],
    ),
  );
}

const noise = (most: number): Uint8Array =>
  Uint8Array.from({ length: below(most + 1) }, () => random() & 255);

/** What the promise layer announces in private data, with any numbers; or noise. */
const hello = (): Uint8Array =>
  below(4) === 0
    ? noise(500)
    : bytesOf(0x49_57_52_50, Uint8Array.of(1, random() & 255, 0, 0), u32(), u32(), noise(40));

const depth = (): number => oneOf([0, 1, 4, 0x3ffe, 0x3fff, random() & 0x3fff]);

function ulpdu(): Uint8Array {
  const opcode = below(16);
  if (below(3) === 0)
    return bytesOf(Uint8Array.of(0x81 | (below(2) << 6), 0x40 | opcode), u32(), u32(), u32(), noise(64));
  const qn = oneOf([0, 0, 0, 1, 2, 3, u32()]);
  const msn = oneOf([1, 1, 1, 2, 3, u32()]);
  // Grants and farewells of the promise layer among the Immediate Data.
  const body =
    below(3) === 0
      ? bytesOf(oneOf([0x69_57_63_72, 0x69_57_63_62]), u32())
      : bytesOf(u32(), u32(), u32(), u32(), u32(), u32(), u32(), noise(24));
  return bytesOf(
    Uint8Array.of(0x01 | (oneOf([0, 1, 1, 1]) << 6), 0x40 | opcode),
    u32(),
    qn,
    msn,
    oneOf([0, 0, 0, u32()]),
    body,
  );
}

function request(peer: RawPeer): void {
  const enhanced = { a: below(2) === 0, b: below(2) === 0, c: below(2) === 0, d: below(2) === 0 };
  peer.request({
    revision: oneOf([1, 2]),
    crc: below(2) === 0,
    ...(below(3) > 0 ? { enhanced: { ...enhanced, ird: depth(), ord: depth() } } : {}),
    privateData: hello(),
  });
}

/** The start-up frame of the stack is there, whole; false if the connection has ended without one. */
function answered(peer: RawPeer): boolean {
  return peer.received.length >= 20;
}

function attack(peer: RawPeer): void {
  try {
    peer.startup();
  } catch {
    return; // its Reply is cut off by the end of the connection
  }
  for (let n = below(6); n >= 0; n--) {
    const bytes = ulpdu();
    // A length that no multiple of four follows tests the padding, too.
    peer.sendFpdus([bytes]);
  }
}

it('the connection manager takes any depths and private data; accept takes them mirrored', async () => {
  const { bench } = await rawInitiator({
    listen: { maxPending: 1000 },
    onRequest: (connection, { side }) => {
      const { responderResources, initiatorDepth, privateData } = connection.parameters!;
      expect(privateData.length).toBeLessThanOrEqual(512);
      if (below(8) === 0) connection.reject(privateData.subarray(0, 200));
      else connection.accept(side.createQp(), { responderResources, initiatorDepth });
    },
  });
  const peers: RawPeer[] = [];
  for (let i = 0; i < 400; i++) {
    const peer = bench.dial();
    request(peer);
    bench.settle(5);
    if (answered(peer)) attack(peer);
    bench.settle(5);
    if (below(2) === 0) peer[oneOf(['end', 'reset'] as const)]();
    peers.push(peer);
  }
  bench.run();
  expect(bench.incoming.length).toBeGreaterThan(300);
  for (const peer of peers) if (peer.ending === 'open') peer.reset();
  bench.run();
  expect(bench.side.cm.connections.size).toBe(0);
  expect(bench.side.device.state).toBe('open');
});

describe.each(['thread', 'worker'] as const)('with engine %s', (engine) => {
  const rnic = engine === 'thread' ? openRnic({ engine: 'thread' }) : openWorkers();
  afterAll(() => (engine === 'worker' ? stop(rnic) : undefined));

  it('a promise server serves on, whatever numbers its peers send', async () => {
    const thrown: unknown[] = [];
    const watch = (error: unknown): void => void thrown.push(error);
    process.on('uncaughtExceptionMonitor', watch);
    const server = await createServer(
      { rnic, onFailure: () => undefined, onError: () => undefined },
      async (connection) => {
        for await (const message of connection) {
          const { data } = message;
          if (data !== undefined && data.length > 0) connection.send(data.slice(0, 8)).catch(() => undefined);
          message.release();
        }
      },
    ).listen({ host: '127.0.0.1', port: 0 });
    const { port } = server.address();
    for (let round = 0; round < 25; round++) {
      const peers = await Promise.all(Array.from({ length: 4 }, () => dial(port)));
      for (const peer of peers) request(peer);
      await until(() => peers.every((peer) => answered(peer) || peer.ending !== 'open'));
      for (const peer of peers) {
        if (peer.ending === 'open') attack(peer);
        if (below(2) === 0) peer.end();
        else peer.reset();
      }
    }
    const client = await connect({ rnic, host: '127.0.0.1', port });
    await client.send(Uint8Array.of(1, 2, 3));
    const message = await client.receive();
    expect([...message!.data]).toEqual([1, 2, 3]);
    message!.release();
    await client.close();
    await server.close();
    expect([thrown, rnic.device.state]).toEqual([[], 'open']);
    process.off('uncaughtExceptionMonitor', watch);
  }, 60_000);

  it('a connecting queue pair takes any Reply and any segments', async () => {
    for (let round = 0; round < 40; round++) {
      const end = new End(rnic, { maxSendWr: 8, maxRecvWr: 8 });
      end.qp.postRecv({});
      const peer = await answer((port) =>
        end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port, confirm: false })),
      );
      await until(() => answered(peer));
      peer.reply({
        revision: oneOf([1, 2]),
        crc: below(2) === 0,
        reject: below(8) === 0,
        ...(below(2) === 0
          ? { enhanced: { a: true, b: false, c: true, d: below(2) === 0, ird: depth(), ord: depth() } }
          : {}),
        privateData: hello(),
      });
      attack(peer);
      await new Promise((resolve) => setTimeout(resolve, 2));
      peer.reset();
      await until(() => end.event('disconnected') !== undefined);
      expect(end.events.filter(({ type }) => type === 'disconnected')).toHaveLength(1);
      // A queue pair that was never connected keeps its receives for the next connection.
      if (end.event('established') !== undefined) expect(await end.statuses(1)).toHaveLength(1);
    }
    expect(rnic.device.state).toBe('open');
  }, 60_000);
});
