/**
 * Payloads that go to the port without a copy, where CRC is off: the same octets in the same order, the same
 * completions, and nobody's memory touched or let go before the port has taken its last octet. RFC 5044 4.1,
 * verbs draft 8.2.2.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { seededRandom } from '../../src/base/random.ts';
import { createFramer } from '../../src/mpa/framer.ts';
import { createTransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { ZERO_COPY_WRITE_OCTETS, TRANSMIT_BUFFER_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { ZERO_COPY_FROM } from '../../src/rdmap/message-writer.ts';
import { WORK, type SendQueue } from '../../src/queues/work.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import type { Fault } from '../../src/simnet/fault.ts';
import { faulty } from '../../src/simnet/fault.ts';
import { segmenting } from '../../src/simnet/segmenting.ts';
import { createWorkCompletion, ACCESS, type QueuePair, type SendWorkRequest } from '../../src/verbs/index.ts';
import { bareSender } from '../support/bare-sender.ts';
import { decodeFpdus } from '../support/naive/decoder.ts';
import { Pair } from '../support/pair.ts';
import { captured } from './capture.ts';

const OFF = { markers: false, crc: false } as const;
const policy = { crc: 'off', silentPeerNudge: 0 } as const;

/** Octets that repeat nowhere near. */
function noise(octets: number, seed: number): Uint8Array {
  const random = seededRandom(seed);
  const words = new Uint32Array(Math.ceil(octets / 4)).map(() => random());
  return new Uint8Array(words.buffer).subarray(0, octets);
}

describe('a write with lent payloads', () => {
  const make = (
    mulpdu: number,
    crc: boolean,
    markers = false,
  ): { sq: SendQueue; fill: () => ReturnType<typeof createTransmitBuffer> } => {
    const engine = defaultCrc32cEngine();
    const { sender, sq } = bareSender(
      mulpdu,
      createFramer(markers ? engine.runs : null, crc ? engine : null),
    );
    const fill = (): ReturnType<typeof createTransmitBuffer> => {
      const buffer = createTransmitBuffer(new Uint8Array(TRANSMIT_BUFFER_OCTETS).fill(0xa5));
      sender.fill(buffer);
      buffer.seal();
      return buffer;
    };
    return { sq, fill };
  };
  const post = (sq: SendQueue, ...pieces: readonly Uint8Array[]): void => {
    const wqe = sq.peekFree()!;
    wqe.kind = WORK.WRITE;
    for (const piece of pieces) wqe.sges.add(null, piece, 0, piece.length);
    sq.push();
  };

  it('holds the very memory, between new headers', () => {
    const { sq, fill } = make(64_768, false);
    const memory = noise(ZERO_COPY_FROM, 1);
    post(sq, memory);
    const { chunks, count } = fill();
    expect(chunks.slice(0, count).map((chunk) => chunk.length)).toEqual([
      16,
      ZERO_COPY_FROM,
      8 - ((ZERO_COPY_FROM + 16) % 4 === 0 ? 4 : 0),
    ]);
    expect([chunks[1]!.buffer, chunks[1]!.byteOffset]).toEqual([memory.buffer, memory.byteOffset]);
  });

  it('holds the memory of every piece, where these are large on average', () => {
    const { sq, fill } = make(64_768, false);
    const pieces = [ZERO_COPY_FROM + 1, 0, 5, 3 * ZERO_COPY_FROM].map((length, i) => noise(length, i));
    post(sq, ...pieces);
    const { chunks, count } = fill();
    expect(count).toBe(5);
    const lent = [pieces[0]!, pieces[2]!, pieces[3]!];
    expect(chunks.slice(1, 4).map(({ buffer, byteOffset, length }) => [buffer, byteOffset, length])).toEqual(
      lent.map(({ buffer, byteOffset, length }) => [buffer, byteOffset, length]),
    );
    const [fpdu] = decodeFpdus(Buffer.concat(chunks.slice(0, count)), OFF);
    expect(fpdu!.problems).toEqual([]);
  });

  it('lends what a segment takes of pieces that are longer than it', () => {
    const { sq, fill } = make(32_768, false);
    const pieces = [noise(40_000, 1), noise(40_000, 2)];
    post(sq, ...pieces);
    const octets = Buffer.concat(
      Array.from({ length: 2 }, fill).flatMap(({ chunks, count }) => chunks.slice(0, count)),
    );
    const fpdus = decodeFpdus(octets, OFF);
    expect(fpdus.flatMap((fpdu) => fpdu.problems)).toEqual([]);
  });

  it('has zero PAD and zero for the CRC, in a buffer that held other octets (MPA-055/057/066)', () => {
    for (let more = 0; more < 4; more++) {
      const { sq, fill } = make(64_768, false);
      const memory = noise(ZERO_COPY_FROM + more, 2);
      post(sq, memory);
      post(sq, memory);
      const buffer = fill();
      const fpdus = decodeFpdus(Buffer.concat(buffer.chunks), OFF);
      expect(fpdus.flatMap((fpdu) => fpdu.problems)).toEqual([]);
      expect(fpdus.map((fpdu) => fpdu.padLength)).toEqual([(4 - more) % 4, (4 - more) % 4]);
    }
  });

  it.each([
    ['shorter than the threshold', [ZERO_COPY_FROM - 1], false, false],
    ['in pieces that are below it on average', [ZERO_COPY_FROM, ZERO_COPY_FROM - 1], false, false],
    ['in many small pieces', new Array<number>(8).fill(ZERO_COPY_FROM / 2), false, false],
    ['under CRC', [ZERO_COPY_FROM], true, false],
    ['with markers', [ZERO_COPY_FROM], false, true],
  ])('is not made for a payload %s (MPA-069, MPA-094)', (_, lengths, crc, markers) => {
    const { sq, fill } = make(64_768, crc, markers);
    post(sq, ...lengths.map((length) => noise(length, length)));
    expect(fill().count).toBe(1);
  });

  it('is bounded, and made longer only by a single FPDU', () => {
    const { sq, fill } = make(64_768, false);
    post(sq, noise(ZERO_COPY_WRITE_OCTETS * 2, 3));
    const sizes = Array.from({ length: 4 }, () => fill().octets);
    for (const octets of sizes) expect(octets).toBeLessThanOrEqual(ZERO_COPY_WRITE_OCTETS);
    expect(sizes.filter((octets) => octets > ZERO_COPY_WRITE_OCTETS / 2).length).toBeGreaterThanOrEqual(2);
    expect(ZERO_COPY_WRITE_OCTETS).toBeGreaterThan(65_536 + 64);
  });
});

/** A pair with CRC off whose memory is compared with the written octets until the write is done. */
async function pairWith(
  emss: number,
  buffer: number,
  cut: number,
  faults: readonly Fault[] = [],
): Promise<Pair> {
  return new Pair({
    network: { verifyWrites: true, buffer },
    client: { policy: { ...policy, emss }, qp: { maxSendSge: 8 } },
    server: { policy: { ...policy, emss } },
    middleware: (time) => [
      (port, role) =>
        role === 'active'
          ? faulty(time, faults)(port, role)
          : segmenting(time, { kind: 'random', seed: cut, max: 70_000 })(port, role),
    ],
  }).connect();
}

describe('lent payloads end to end', () => {
  const length = fc.oneof(
    fc.integer({ min: 0, max: 300 }),
    fc.integer({ min: ZERO_COPY_FROM - 3, max: ZERO_COPY_FROM + 3 }),
    fc.integer({ min: 10_000, max: 90_000 }),
  );
  const message = fc.record({
    lengths: fc.array(length, { minLength: 1, maxLength: 4 }),
    tagged: fc.boolean(),
  });

  it('any lists, EMSS, cuts: sinks and completions are right (DDP-017/018/023, RDMAP-094)', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { minLength: 1, maxLength: 6 }),
        fc.constantFrom(1460, 9000, 32_768, 65_483),
        fc.integer({ min: 3000, max: 400_000 }),
        fc.nat(1000),
        async (messages, emss, buffer, cut) => {
          const pair = await pairWith(emss, buffer, cut);
          const { client, server } = pair;
          const memory = noise(400_000, cut);
          const source = client.register(memory);
          const sinks = messages.map(() => server.register(400_000));
          const expected = messages.map(({ lengths, tagged }, i) => {
            let offset = i;
            const sges = lengths.map((octets) => {
              offset += octets;
              return { mr: source, offset: offset - octets, length: octets };
            });
            if (!tagged) server.qp.postRecv({ wrId: i, sges: [{ mr: sinks[i]! }] });
            client.qp.postSend({
              wrId: i,
              sges,
              ...(tagged
                ? { opcode: 'rdma-write', rkey: sinks[i]!.rkey, remoteAddr: 0 }
                : { opcode: 'send' }),
            });
            return memory.slice(i, offset);
          });
          pair.run();
          expect(client.sent().map((wc) => [wc.wrId, wc.status])).toEqual(
            messages.map((_, i) => [i, 'success']),
          );
          expected.forEach((octets, i) =>
            expect(Buffer.compare(sinks[i]!.bytes.subarray(0, octets.length), octets)).toBe(0),
          );
          expected.forEach((octets, i) =>
            expect(sinks[i]!.bytes.subarray(octets.length).every((octet) => octet === 0)).toBe(true),
          );
          // the RTR message leads
          expect(captured(pair, OFF).client.messages.length).toBe(messages.length + 1);
        },
      ),
      { numRuns: 40 },
    );
  });

  it('a reset anywhere ends each request once, in success only if all went (VERBS-056/057)', async () => {
    for (let at = 0; at < 460_000; at += 23_111) {
      const pair = await pairWith(65_483, 50_000, 5, [{ direction: 'out', kind: 'reset', at: 1000 + at }]);
      const { client, server } = pair;
      const source = client.register(noise(100_000, 9));
      const sink = server.register(500_000);
      for (let i = 0; i < 4; i++) {
        client.qp.postSend({
          opcode: 'rdma-write',
          wrId: i,
          sges: [{ mr: source }],
          rkey: sink.rkey,
          remoteAddr: i * 100_000,
        });
      }
      pair.run();
      const completions = client.sent();
      expect(completions.map((wc) => wc.wrId)).toEqual([0, 1, 2, 3]);
      const good = completions.filter((wc) => wc.status === 'success').length;
      expect(completions.slice(good).every((wc) => wc.status === 'flushed')).toBe(true);
      expect(good * 100_000).toBeLessThanOrEqual(1000 + at);
    }
  });
});

/** A connection over TCP on one device, and a promise for each request. */
async function loopback(engine: 'thread' | 'worker'): Promise<{
  readonly client: QueuePair;
  readonly run: (request: SendWorkRequest) => Promise<void>;
  readonly close: () => void;
}> {
  const rnic = openRnic({ engine });
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(64);
  const [client, server] = [pd.createQp({ sendCq: cq, recvCq: cq }), pd.createQp({ sendCq: cq, recvCq: cq })];
  const waiting: (() => void)[] = [];
  const out = [createWorkCompletion()];
  cq.setHandler(() => {
    while (cq.poll(out) > 0) {
      expect(out[0]!.status).toBe('success');
      waiting.shift()!();
    }
    cq.requestNotify();
  });
  cq.requestNotify();
  const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0, policy }, (request) =>
    request.accept(server),
  );
  const connection = rnic.cm.connect(client, { host: '127.0.0.1', port: listener.address.port, policy });
  await new Promise<void>((resolve) =>
    connection.setHandler((event) => event.type === 'established' && resolve()),
  );
  const run = (request: SendWorkRequest): Promise<void> => {
    const done = new Promise<void>((resolve) => waiting.push(resolve));
    client.postSend(request);
    return done;
  };
  const close = (): void => {
    cq.setHandler(() => undefined);
    connection.disconnect();
    void listener.close();
  };
  return { client, run, close };
}

describe('over TCP', () => {
  it.each([
    ['ArrayBuffer', 'thread', ArrayBuffer],
    ['SharedArrayBuffer', 'thread', SharedArrayBuffer],
    ['SharedArrayBuffer', 'worker', SharedArrayBuffer],
  ] as const)(
    'memory in an %s, the engine in a %s, may be overwritten once its request completed (VERBS-085)',
    async (_, engine, Kind) => {
      const { client, run, close } = await loopback(engine);
      const SLOT = 1 << 20;
      const memory = new Uint8Array(new Kind(8 * SLOT));
      const source = client.pd.registerMemory(memory, ACCESS.LOCAL_WRITE);
      const sink = client.pd.registerMemory(
        client.pd.device.allocateMemory(8 * SLOT),
        ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ,
      );
      const content = noise(8 * SLOT, 4);
      memory.set(content);
      const writes = Array.from({ length: 8 }, async (_unused, i) => {
        const [offset, length] = [i * SLOT, SLOT];
        await run({
          opcode: 'rdma-write',
          sges: [{ mr: source, offset, length }],
          rkey: sink.rkey,
          remoteAddr: offset,
        });
        memory.fill(0xee, offset, offset + length);
      });
      await Promise.all(writes);
      // A Read goes after the Writes: when it is back, they have been placed.
      await run({ opcode: 'rdma-read', sges: [{ mr: source, length: 8 }], rkey: sink.rkey, remoteAddr: 0 });
      expect(Buffer.compare(sink.bytes, content)).toBe(0);
      close();
    },
  );
});
