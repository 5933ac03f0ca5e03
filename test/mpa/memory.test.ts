/**
 * The memory of an MPA connection: reassembly buffers for incomplete FPDUs, the place of the next read,
 * transmit buffers and their owners. SEC-033.
 */
import { describe, expect, it } from 'vitest';
import { FINE } from '../../src/base/terminate-codes.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { POOL_OCTETS } from '../../src/crc32c/memory.ts';
import type { Negotiated } from '../../src/llp/startup.ts';
import { createDeframer, reassemblyPool, REASSEMBLY_OCTETS, type Deframer } from '../../src/mpa/deframer.ts';
import { MpaLowerLayer } from '../../src/mpa/lower-layer.ts';
import { resolvePolicy } from '../../src/mpa/policy.ts';
import { createTransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { TRANSMIT_BUFFER_OCTETS, transmitBufferPool } from '../../src/mpa/transmit-buffer-pool.ts';
import { encodeFpdus } from '../support/naive/encoder.ts';
import { count, sameUlpdus } from '../support/framing.ts';

const engine = defaultCrc32cEngine();

/** Plain memory, and how many pieces of it were taken and given back. */
class Source {
  taken = 0;
  given = 0;
  allocate(octets: number): Uint8Array {
    this.taken++;
    return new Uint8Array(octets);
  }
  release(): void {
    this.given++;
  }
}

describe('a pool', () => {
  it('of reassembly buffers keeps 16 MiB, counts those that are lent, and gives the others back', () => {
    const source = new Source();
    const pool = reassemblyPool(source);
    const most = Math.floor(POOL_OCTETS / REASSEMBLY_OCTETS);
    const pieces = Array.from({ length: most + 3 }, () => pool.acquire());
    expect(pieces.every((piece) => piece.length === REASSEMBLY_OCTETS)).toBe(true);
    expect([pool.lent, source.taken]).toEqual([most + 3, most + 3]);
    for (const piece of pieces) pool.release(piece);
    expect([pool.lent, source.given]).toEqual([0, 3]);
    for (let i = 0; i < most; i++) pool.acquire();
    expect([pool.lent, source.taken]).toEqual([most, most + 3]);
  });

  it('of transmit buffers keeps 16 MiB of them, empty, and lends the last one first', () => {
    const source = new Source();
    const pool = transmitBufferPool(source);
    const most = Math.floor(POOL_OCTETS / TRANSMIT_BUFFER_OCTETS);
    const buffers = Array.from({ length: most + 2 }, () => pool.acquire());
    const [first, second] = buffers;
    first!.end = 5;
    first!.addView(count(9), 2, 7);
    pool.release(first!);
    expect([first!.octets, first!.count]).toEqual([0, 0]);
    expect(pool.acquire()).toBe(first);
    for (const buffer of buffers) pool.release(buffer);
    expect([source.taken, source.given]).toEqual([most + 2, 2]);
    expect(pool.acquire()).toBe(buffers[most - 1]);
    expect(second!.bytes.length).toBe(TRANSMIT_BUFFER_OCTETS);
  });
});

describe('a transmit buffer', () => {
  const memory = count(64);
  it('becomes chunks of its own octets and of the views between them, none of them empty', () => {
    const buffer = createTransmitBuffer(memory);
    buffer.end = 4;
    buffer.addView(count(10, 50), 1, 3);
    buffer.addView(count(10, 90), 0, 2);
    buffer.end = 9;
    buffer.seal();
    buffer.seal();
    const chunks = (): number[][] => buffer.chunks.slice(0, buffer.count).map((chunk) => [...chunk]);
    expect(chunks()).toEqual([
      [0, 1, 2, 3],
      [51, 52, 53],
      [90, 91],
      [4, 5, 6, 7, 8],
    ]);
    expect(buffer.octets).toBe(14);
  });

  it('shares the view of writes of one length, and keeps no memory of the program when it is free', () => {
    const buffer = createTransmitBuffer(memory);
    const write = (octets: number): Uint8Array => {
      buffer.clear();
      buffer.end = octets;
      buffer.seal();
      return buffer.chunks[0]!;
    };
    const one = write(12);
    expect([one.length, one.byteOffset]).toEqual([12, memory.byteOffset]);
    expect(write(12)).toBe(one);
    expect(write(13)).not.toBe(one);
    expect(write(64)).toEqual(memory);
    buffer.clear();
    buffer.end = 4;
    buffer.addView(count(1000), 0, 1000);
    buffer.seal();
    buffer.clear();
    expect(buffer.chunks.map((chunk) => chunk.buffer === memory.buffer)).toEqual([true, true]);
    expect([buffer.octets, buffer.count]).toEqual([0, 0]);
  });
});

const LARGE = count(60_000);
const [LARGE_FPDU, TAIL] = [LARGE, count(40, 7)].map((ulpdu) =>
  encodeFpdus([ulpdu], { markers: false, crc: true }),
) as [Uint8Array, Uint8Array];
/** From this many missing octets on a read is worth its own place. */
const WORTH = 16_384;

interface Held {
  readonly deframer: Deframer;
  readonly pool: ReturnType<typeof reassemblyPool>;
  readonly ulpdus: Uint8Array[];
  give(bytes: Uint8Array, start?: number, end?: number): void;
}

function held(): Held {
  const pool = reassemblyPool(engine);
  const ulpdus: Uint8Array[] = [];
  const handleUlpdu = (bytes: Uint8Array, start: number, length: number): number => {
    ulpdus.push(bytes.slice(start, start + length));
    return FINE;
  };
  const deframer = createDeframer(null, engine, { handleUlpdu }, pool);
  const give: Held['give'] = (bytes, start = 0, end = bytes.length) =>
    expect(deframer.handleBytes(bytes, start, end)).toBe(FINE);
  return { deframer, pool, ulpdus, give };
}

describe('the place of the next read', () => {
  it('is offered where at least 16 KiB of a held FPDU are missing', () => {
    const { deframer, give, pool } = held();
    expect(deframer.readTarget()).toBeNull();
    give(LARGE_FPDU, 0, 1);
    expect([deframer.readTarget(), deframer.held, deframer.atBoundary]).toEqual([null, 1, false]);
    give(LARGE_FPDU, 1, LARGE_FPDU.length - WORTH);
    const target = deframer.readTarget()!;
    expect(target.length).toBe(WORTH);
    target.set(LARGE_FPDU.subarray(-WORTH));
    const { deframer: other, give: giveOther } = held();
    giveOther(LARGE_FPDU, 0, LARGE_FPDU.length - WORTH + 1);
    expect(other.readTarget()).toBeNull();
    give(target);
    expect([deframer.held, deframer.atBoundary, pool.lent, deframer.readTarget()]).toEqual([
      0,
      true,
      0,
      null,
    ]);
  });

  it('is none after a read that brought less than 16 KiB, and is offered again after one that did', () => {
    for (const [brought, again] of [
      [WORTH - 1, false],
      [WORTH, true],
    ] as const) {
      const { deframer, give } = held();
      give(LARGE_FPDU, 0, 100);
      const target = deframer.readTarget()!;
      expect(target.length).toBe(LARGE_FPDU.length - 100);
      target.set(LARGE_FPDU.subarray(100, 100 + brought));
      give(target, 0, brought);
      expect(deframer.readTarget() !== null, `${brought} octets`).toBe(again);
      expect(deframer.held).toBe(100 + brought);
    }
  });

  it('takes octets without a copy, those in place and those that lie elsewhere in it alike', () => {
    for (const shift of [0, 1, 500]) {
      const { deframer, give, ulpdus } = held();
      give(LARGE_FPDU, 0, 100);
      const target = deframer.readTarget()!;
      const rest = LARGE_FPDU.subarray(100, 30_000);
      target.set(rest, shift);
      give(target, shift, shift + rest.length);
      give(Uint8Array.from([...LARGE_FPDU.subarray(30_000), ...TAIL]));
      expect(sameUlpdus(ulpdus, [LARGE, count(40, 7)]), `${shift}`).toBe(true);
    }
  });

  it('may be followed by octets of the same memory that belong behind', () => {
    const { deframer, give, ulpdus } = held();
    give(LARGE_FPDU, 0, 100);
    const target = deframer.readTarget()!;
    target.set(LARGE_FPDU.subarray(100, 20_100));
    give(target, 0, 20_000);
    // Offered again behind the octets that have come; the memory offered before holds it further in.
    const next = deframer.readTarget()!;
    expect(next.byteOffset - target.byteOffset).toBe(20_000);
    next.set(LARGE_FPDU.subarray(20_100));
    give(next);
    expect(sameUlpdus(ulpdus, [LARGE])).toBe(true);
  });
});

describe('a deframer', () => {
  it('gives its reassembly buffer back when it is disposed of, once', () => {
    const { deframer, give, pool } = held();
    give(LARGE_FPDU, 0, 100);
    expect(pool.lent).toBe(1);
    deframer.dispose();
    deframer.dispose();
    expect([pool.lent, deframer.held, deframer.atBoundary, deframer.readTarget()]).toEqual([
      0,
      0,
      true,
      null,
    ]);
    const { deframer: empty, pool: untouched } = held();
    empty.dispose();
    expect(untouched.lent).toBe(0);
  });

  it('stops inside a held FPDU and behind one where the layer above says so (MPA-073)', () => {
    const calls: number[] = [];
    const handleUlpdu = (_: Uint8Array, __: number, length: number): number => {
      calls.push(length);
      return 7;
    };
    const deframer = createDeframer(null, engine, { handleUlpdu }, reassemblyPool(engine));
    const stream = Uint8Array.from([...TAIL, ...TAIL]);
    expect(deframer.handleBytes(stream, 0, 5)).toBe(FINE);
    expect(deframer.handleBytes(stream, 5, stream.length)).toBe(7);
    expect(calls).toEqual([40]);
  });

  it('takes every length of FPDU with markers, whole or in two parts, from any place between two', () => {
    const pool = reassemblyPool(engine);
    for (const phase of [0, 4, 256, 508]) {
      for (let length = 950; length < 2100; length += 1) {
        const ulpdu = count(length);
        const fpdu = encodeFpdus([ulpdu], { markers: true, crc: true, streamOffset: 512 + phase });
        // Behind it stands what would be a wrong marker.
        const bytes = new Uint8Array(fpdu.length + 600).fill(0xff);
        bytes.set(fpdu);
        let seen = -1;
        const handleUlpdu = (from: Uint8Array, start: number, octets: number): number => {
          seen =
            octets === length && Buffer.compare(from.subarray(start, start + octets), ulpdu) === 0 ? 1 : 0;
          return FINE;
        };
        const deframer = createDeframer(engine.runs, engine, { handleUlpdu }, pool);
        deframer.phase = phase;
        const code = deframer.handleBytes(bytes, 0, fpdu.length);
        if (code !== FINE || seen !== 1) expect.unreachable(`${length} octets at ${phase}: ${code}, ${seen}`);
      }
    }
  });
});

describe('an MPA connection', () => {
  const policy = resolvePolicy({ crc: 'required' });
  const negotiated: Negotiated = {
    role: 'initiator',
    revision: 1,
    enhanced: false,
    crc: false,
    sendMarkers: false,
    receiveMarkers: false,
    ird: 1,
    ord: 1,
    autoOrd: false,
    peerIrd: undefined,
    peerOrd: undefined,
    rtr: null,
    ddpVersion: 1,
  };

  function connection(role: 'initiator' | 'responder'): {
    layer: MpaLowerLayer;
    lent: Set<unknown>;
    done: () => number;
  } {
    const lent = new Set<unknown>();
    const pool = transmitBufferPool(new Source());
    const transmitBuffers: typeof pool = Object.assign(Object.create(pool) as typeof pool, {
      acquire() {
        const buffer = pool.acquire();
        lent.add(buffer);
        return buffer;
      },
      release(buffer: ReturnType<typeof pool.acquire>) {
        expect(lent.delete(buffer)).toBe(true);
        pool.release(buffer);
      },
    });
    const layer = new MpaLowerLayer({
      role,
      policy,
      emss: 1460,
      resources: { crc: engine, reassembly: reassemblyPool(engine), transmitBuffers },
    });
    let done = 0;
    layer.start(new Uint8Array(10), {});
    const user = { handleUlpdu: () => FINE, transmissionDone: () => void done++ };
    layer.establish(negotiated);
    layer.deliverTo(user);
    return { layer, lent, done: () => done };
  }

  const write = (layer: MpaLowerLayer, octets: number): void => {
    const buffer = layer.acquire();
    layer.writer.begin(buffer, octets);
    layer.writer.finish(buffer, octets);
    layer.handOut(buffer);
  };

  it('is busy with two writes, and counts the octets of frames and FPDUs', () => {
    const { layer, lent, done } = connection('initiator');
    expect([layer.busy, layer.octetsOut, layer.frameWaits]).toEqual([false, 0, true]);
    const frame = layer.pollFrame()!.chunks[0]!.length;
    expect([layer.busy, layer.octetsOut, layer.frameWaits, layer.pollFrame()]).toEqual([
      false,
      frame,
      false,
      null,
    ]);
    write(layer, 20);
    expect([layer.busy, layer.octetsOut, lent.size]).toEqual([true, frame + 28, 1]);
    layer.handleTransmitted(true);
    expect([layer.busy, done()]).toEqual([false, 0]);
    write(layer, 16);
    expect([layer.busy, layer.octetsOut, lent.size]).toEqual([true, frame + 28 + 24, 2]);
    layer.handleTransmitted(true);
    layer.handleTransmitted(false);
    expect([layer.busy, done(), lent.size]).toEqual([false, 1, 0]);
  });

  it('gives a buffer back as soon as the port has copied it, and completes its work later', () => {
    const { layer, lent, done } = connection('responder');
    layer.handleTaken();
    write(layer, 20);
    layer.handleTaken();
    layer.handleTaken();
    expect([lent.size, layer.busy]).toEqual([0, false]);
    write(layer, 20);
    expect([lent.size, layer.busy]).toEqual([1, true]);
    layer.handleTaken();
    expect(lent.size).toBe(0);
    layer.handleTransmitted(true);
    layer.handleTransmitted(true);
    expect([done(), layer.busy]).toEqual([2, false]);
  });

  it('gives everything back when it is disposed of', () => {
    const { layer, lent } = connection('responder');
    write(layer, 20);
    write(layer, 20);
    layer.dispose();
    expect([lent.size, layer.busy]).toEqual([0, false]);
    layer.lose();
  });

  it('that has waited too long, or was lost, has failed', () => {
    for (const [end, reason] of [
      ['expire', 'timeout'],
      ['lose', 'truncated'],
    ] as const) {
      for (const role of ['initiator', 'responder'] as const) {
        const layer = new MpaLowerLayer({
          role,
          policy: resolvePolicy({ mpaRevision: 1 }),
          emss: 1460,
          resources: {
            crc: engine,
            reassembly: reassemblyPool(engine),
            transmitBuffers: transmitBufferPool(engine),
          },
        });
        layer.start(new Uint8Array(0), {});
        expect(layer.verdict).toBeNull();
        layer[end]();
        layer.handleStartup(new Uint8Array(0), 0, 0);
        expect(layer.verdict, `${role}, ${end}`).toEqual({
          kind: 'failed',
          reason,
        });
        layer.abandon();
        layer.lose();
      }
    }
  });
});
