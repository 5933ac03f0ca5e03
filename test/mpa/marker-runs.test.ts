/**
 * Markers moved by each engine at once against markers moved octet by octet: the same octets, whatever the
 * lengths and the phase.
 */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { FINE, TERM } from '../../src/base/terminate-codes.ts';
import {
  availableCrc32cEngines,
  createCrc32cEngine,
  type Crc32cEngine,
  type Crc32cEngineName,
} from '../../src/crc32c/engine.ts';
import { RUN_OCTETS, RUN_SPACING, type RunKernel } from '../../src/crc32c/runs.ts';
import { createDeframer, reassemblyPool } from '../../src/mpa/deframer.ts';
import { createFramer, type Framer } from '../../src/mpa/framer.ts';
import { createTransmitBuffer, type TransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { MARKER_RUN, MARKER_SPACING } from '../../src/mpa/wire.ts';

const engines = availableCrc32cEngines().map((name) => createCrc32cEngine(name));

/** Octet by octet, as the definition of a run says: what the engines are compared with. */
const PLAIN: RunKernel = {
  spreadScratch: () => new Uint8Array(70_000),
  collectScratch: () => new Uint8Array(70_000),
  insertMarkers(source, from, target, to, runs, pointer) {
    for (let i = 0; i < runs; i++) {
      const at = to + i * MARKER_SPACING;
      new DataView(target.buffer, target.byteOffset).setUint32(at, pointer + i * MARKER_SPACING);
      for (let k = 0; k < MARKER_RUN; k++) target[at + 4 + k] = source[from + i * MARKER_RUN + k]!;
    }
  },
  removeMarkers(source, from, target, to, runs) {
    for (let i = 0; i < runs * MARKER_RUN; i++)
      target[to + i] = source[from + 4 * (1 + Math.floor(i / MARKER_RUN)) + i]!;
  },
};

/**
 * Takes that much memory from a separate engine that its next buffer lies in another WebAssembly memory than
 * its scratch areas.
 */
function crowded(name: Crc32cEngineName): Crc32cEngine {
  const engine = createCrc32cEngine(name);
  const { buffer } = engine.runs.spreadScratch();
  engine.runs.collectScratch();
  while (engine.allocate(70_000).buffer === buffer);
  return engine;
}

function put(framer: Framer, buffer: TransmitBuffer, ulpdu: Uint8Array): Uint8Array {
  buffer.clear();
  framer.begin(buffer, ulpdu.length);
  framer.target.bytes.set(ulpdu, framer.at);
  framer.finish(buffer, ulpdu.length);
  return buffer.bytes.slice(0, buffer.end);
}

function lengths(seed: number): number[] {
  const random = seededRandom(seed);
  const some = Array.from({ length: 60 }, () => random() % 64_000);
  return [...some, 14, 490, 498, 502, 506, 508, 510, 1010, 1014, 1018, 1022, 2030, 64_000, 64_002, 64_004];
}

function ulpduOf(octets: number, seed: number): Uint8Array {
  const random = seededRandom(seed);
  return Uint8Array.from({ length: octets }, () => random());
}

describe.each(engines.map((engine) => [engine.name, engine] as const))(
  'runs of %s',
  (_name, engine: Crc32cEngine) => {
    it('counts as MPA does', () => {
      expect([RUN_OCTETS, RUN_SPACING]).toEqual([MARKER_RUN, MARKER_SPACING]);
    });

    it('puts the same markers as octet by octet (MPA-094, MPA-096, MPA-098)', () => {
      const fast = createFramer(engine.runs, engine);
      const slow = createFramer(PLAIN, engine);
      const buffers = [
        createTransmitBuffer(engine.allocate(66_000)),
        createTransmitBuffer(new Uint8Array(66_000)),
      ] as const;
      for (const [i, octets] of lengths(1).entries()) {
        const ulpdu = ulpduOf(octets, i);
        expect(
          Buffer.compare(put(fast, buffers[0], ulpdu), put(slow, buffers[1], ulpdu)),
          `${octets} octets`,
        ).toBe(0);
      }
      expect(fast.position).toBe(slow.position);
    });

    it('takes them out again, from its own memory and from any other (MPA-101, MPA-104)', () => {
      for (const own of [true, false]) {
        const framer = createFramer(PLAIN, engine);
        const buffer = createTransmitBuffer(own ? engine.allocate(66_000) : new Uint8Array(66_000));
        let got: Uint8Array | null = null;
        const sink = {
          handleUlpdu: (bytes: Uint8Array, start: number, length: number): number => (
            (got = bytes.slice(start, start + length)), FINE
          ),
        };
        const deframer = createDeframer(engine.runs, engine, sink, reassemblyPool(engine));
        for (const [i, octets] of lengths(2).entries()) {
          const ulpdu = ulpduOf(octets, i);
          put(framer, buffer, ulpdu);
          expect(deframer.handleBytes(buffer.bytes, 0, buffer.end)).toBe(FINE);
          expect(Buffer.compare(got!, ulpdu), `${octets} octets`).toBe(0);
        }
      }
    });

    it.each([
      ['ordinary memory', (_: Crc32cEngine, octets: number) => new Uint8Array(octets)],
      ['shared memory', (_: Crc32cEngine, octets: number) => new Uint8Array(new SharedArrayBuffer(octets))],
      [
        'memory of its own beside that of its scratch areas',
        (full: Crc32cEngine, octets: number) => full.allocate(octets),
      ],
    ])('moves all runs of an FPDU by one call, from and to %s (MPA-094, MPA-101)', (_memory, take) => {
      const full = crowded(engine.name);
      const { runs } = full;
      const calls = { spread: 0, collect: 0 };
      const counted: RunKernel = {
        spreadScratch: () => runs.spreadScratch(),
        collectScratch: () => runs.collectScratch(),
        insertMarkers: (...all) => (calls.spread++, runs.insertMarkers(...all)),
        removeMarkers: (...all) => (calls.collect++, runs.removeMarkers(...all)),
      };
      const fast = createFramer(counted, full);
      const slow = createFramer(PLAIN, full);
      const buffer = createTransmitBuffer(take(full, 70_000));
      const check = createTransmitBuffer(new Uint8Array(70_000));
      const got: Uint8Array[] = [];
      const sink = {
        handleUlpdu: (bytes: Uint8Array, start: number, length: number): number => (
          got.push(bytes.slice(start, start + length)), FINE
        ),
      };
      const deframer = createDeframer(counted, full, sink, reassemblyPool(engine));
      for (const [i, octets] of [64_000, 1018, 2030, 30_000, 64_004].entries()) {
        const ulpdu = ulpduOf(octets, i);
        expect(Buffer.compare(put(fast, buffer, ulpdu), put(slow, check, ulpdu)), `${octets} octets`).toBe(0);
        expect(deframer.handleBytes(buffer.bytes, 0, buffer.end)).toBe(FINE);
        expect(Buffer.compare(got[i]!, ulpdu), `${octets} octets`).toBe(0);
        expect(calls.spread).toBeLessThanOrEqual(i + 1);
        expect(calls.collect).toBeLessThanOrEqual(i + 1);
      }
      expect(Math.min(calls.spread, calls.collect)).toBeGreaterThanOrEqual(3);
    });

    it('finds every single wrong marker (MPA-104)', () => {
      for (let wrong = 0; wrong < 8; wrong++) {
        const framer = createFramer(engine.runs, null);
        const buffer = createTransmitBuffer(engine.allocate(66_000));
        put(framer, buffer, ulpduOf(4000, 3));
        buffer.bytes[wrong * MARKER_SPACING + 3]! ^= 4;
        let told = 0;
        const deframer = createDeframer(
          engine.runs,
          null,
          { handleUlpdu: () => (told++, FINE) },
          reassemblyPool(engine),
        );
        expect(deframer.handleBytes(buffer.bytes, 0, buffer.end), `marker ${wrong}`).toBe(TERM.MPA_MARKER);
        expect(told).toBe(0);
      }
    });

    it('refuses a range that is not inside the memory', () => {
      const mine = engine.allocate(2048);
      expect(() => engine.runs.insertMarkers(mine, 0, mine, 1600, 1, 0)).toThrow(/outside|out of bounds/);
    });
  },
);

describe('a read that lands after the beginning of its FPDU', () => {
  it('is used where it lies, in any pieces, and octets from elsewhere go on being copied (MPA-090)', () => {
    const engine = createCrc32cEngine('js');
    const framer = createFramer(null, engine);
    const buffer = createTransmitBuffer(new Uint8Array(66_000));
    const ulpdu = ulpduOf(60_000, 4);
    const wire = put(framer, buffer, ulpdu);
    for (const pieces of [[wire.length], [2, 40_000, wire.length], [1000, 1001, 50_000, wire.length]]) {
      let got: Uint8Array | null = null;
      const sink = {
        handleUlpdu: (bytes: Uint8Array, start: number, length: number): number => (
          (got = bytes.slice(start, start + length)), FINE
        ),
      };
      const deframer = createDeframer(null, engine, sink, reassemblyPool(engine));
      let at = 0;
      for (const [i, to] of pieces.entries()) {
        const target = deframer.readTarget();
        if (target !== null && i % 2 === 1) {
          expect(target.length).toBe(wire.length - at);
          target.set(wire.subarray(at, to));
          const half = (to - at) >> 1;
          expect(deframer.handleBytes(target, 0, half)).toBe(FINE);
          expect(deframer.handleBytes(target, half, to - at)).toBe(FINE);
        } else {
          expect(deframer.handleBytes(wire, at, to)).toBe(FINE);
        }
        at = to;
      }
      expect(Buffer.compare(got!, ulpdu)).toBe(0);
      expect([deframer.held, deframer.readTarget()]).toEqual([0, null]);
    }
  });
});
