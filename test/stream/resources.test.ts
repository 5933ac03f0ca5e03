/**
 * What streams share and where it comes from: memory of the CRC engine is not lost, however many devices and
 * connections come and go.
 */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { createCrc32cEngine, defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { POOL_OCTETS, readMemory } from '../../src/crc32c/memory.ts';
import { connect, createServer, RemoteBuffer } from '../../src/index.ts';
import { REASSEMBLY_OCTETS } from '../../src/mpa/deframer.ts';
import { resourcesOf } from '../../src/mpa/resources.ts';
import { transmitBufferPool, TRANSMIT_BUFFER_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { Pair } from '../support/pair.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** A Write of a MiB over a separate device at either end. */
async function exchange(): Promise<void> {
  const memory = new Uint8Array(1 << 20);
  const server = createServer({ rnic: openRnic({ engine: 'thread' }) }, async (connection) => {
    await connection.send(connection.share(connection.register(memory)).toBytes());
  });
  await server.listen({ host: '127.0.0.1', port: 0 });
  const connection = await connect({
    host: '127.0.0.1',
    port: server.address().port,
    rnic: openRnic({ engine: 'thread' }),
  });
  const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
  await connection.write(new Uint8Array(memory.length).fill(7), remote);
  await connection.read(remote.slice(0, 1));
  expect(memory.every((octet) => octet === 7)).toBe(true);
  await connection.close();
  await server.close();
}

/** Several transmit buffers. */
const OCTETS = 400_000;

describe('what streams share', () => {
  it('devices with one CRC engine share buffers of both directions and what sockets read into', async () => {
    await exchange();
    const allocate = vi.spyOn(defaultCrc32cEngine(), 'allocate');
    for (let i = 0; i < 20; i++) await exchange();
    expect(allocate.mock.calls).toEqual([]);
  });

  it('another engine has its own', () => {
    const engine = createCrc32cEngine('js');
    const own = resourcesOf(engine);
    expect(own).toBe(resourcesOf(engine));
    expect(own.crc).toBe(engine);
    expect(own.transmitBuffers).not.toBe(resourcesOf(defaultCrc32cEngine()).transmitBuffers);
    expect(readMemory(engine, 1000)).toBe(readMemory(engine, 1000));
    expect(readMemory(engine, 1000)).not.toBe(readMemory(defaultCrc32cEngine(), 1000));
    expect(readMemory(engine, 2000)).toHaveLength(2000);
  });

  it('what a pool does not keep goes back to where it came from', () => {
    const back: Uint8Array[] = [];
    const pool = transmitBufferPool(
      { allocate: (octets) => new Uint8Array(octets), release: (memory) => void back.push(memory) },
      2,
    );
    const buffers = [pool.acquire(), pool.acquire(), pool.acquire()];
    for (const buffer of buffers) pool.release(buffer);
    expect(back).toEqual([buffers[2]!.bytes]);
    expect(new Set([pool.acquire(), pool.acquire()])).toEqual(new Set(buffers.slice(0, 2)));
  });

  it('storms of connections take no memory away from the engine', () => {
    const engine = createCrc32cEngine();
    const pool = transmitBufferPool(engine, 4);
    // As many as its arenas hold, and more: those after them are in ordinary memory, where a CRC costs a
    // copy.
    const storm = (): number => {
      const buffers = Array.from({ length: 2200 }, () => pool.acquire());
      for (const buffer of buffers) pool.release(buffer);
      return buffers.filter(({ bytes }) => bytes.buffer.byteLength > TRANSMIT_BUFFER_OCTETS).length;
    };
    const first = storm();
    expect(first).toBeGreaterThan(1900);
    expect(storm()).toBe(first);
  });

  it.each([
    [false, 1],
    [true, 2],
  ])(
    'a buffer serves the next write as soon as the port has taken its octets (port holds on to them: %s)',
    async (verifyWrites, most) => {
      const pair = await new Pair({ network: { verifyWrites, buffer: 50_000 } }).connect();
      const { client, server } = pair;
      const { transmitBuffers: buffers } = resourcesOf(defaultCrc32cEngine());
      const acquire = buffers.acquire.bind(buffers);
      const release = buffers.release.bind(buffers);
      let lent = 0;
      let peak = 0;
      vi.spyOn(buffers, 'acquire').mockImplementation(() => {
        peak = Math.max(peak, ++lent);
        return acquire();
      });
      vi.spyOn(buffers, 'release').mockImplementation((buffer) => {
        lent--;
        release(buffer);
      });
      const source = client.register(new Uint8Array(OCTETS).map((_, i) => i * 7));
      const sink = server.register(OCTETS);
      for (let wrId = 0; wrId < 3; wrId++)
        client.qp.postSend({
          wrId,
          opcode: 'rdma-write',
          sges: [{ mr: source }],
          rkey: sink.rkey,
          remoteAddr: 0,
        });
      pair.run();
      expect(client.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
        [0, 'success'],
        [1, 'success'],
        [2, 'success'],
      ]);
      expect(Buffer.compare(sink.bytes, source.bytes)).toBe(0);
      expect([peak, lent]).toEqual([most, 0]);
    },
  );

  it('a pool keeps what 64 connections need that have two writes out each', () => {
    expect(Math.floor(POOL_OCTETS / TRANSMIT_BUFFER_OCTETS)).toBe(128);
    expect(Math.floor(POOL_OCTETS / REASSEMBLY_OCTETS)).toBeGreaterThanOrEqual(128);
  });
});
