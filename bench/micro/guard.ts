/**
 * The inner loops one by one, for the regression guard: CRC, wire codec, framer, deframer (also cut in the
 * worst way), work queues. Every figure is set against a base that was run in the same round of the same
 * process, so that the ratios carry over from day to day.
 *
 * A child process of probes/micro.ts; alone it prints: `node dist/bench/micro/guard.js [rounds] [native]`,
 * where `native` is a module with
 * `calculate(bytes)`, a CRC32c add-on to be compared with.
 */
import { createRequire } from 'node:module';
import { basename, resolve } from 'node:path';
import { copyBytes } from '../../src/base/copy.ts';
import { createCrc32cEngine, availableCrc32cEngines } from '../../src/crc32c/engine.ts';
import {
  createSegment,
  DDP_CONTROL,
  decodeSegment,
  putTaggedHeader,
  TAGGED_HEADER_OCTETS,
} from '../../src/ddp/wire.ts';
import { ReceiveQueue, SendQueue } from '../../src/queues/work.ts';
import { NATIVE_OCTETS } from '../method.ts';
import { reasonOf } from '../reason.ts';
import { median } from '../stats.ts';
import { deframerOf, frame, framerOf, READ_OCTETS, receive, streamOf, type Setting } from './framing.ts';

/**
 * The figure that a case is compared by: how many times as fast as its base it is, or how many times as dear.
 */
export interface GuardResult {
  readonly id: string;
  readonly label: string;
  readonly unit: 'ns' | 'ns/octet';
  readonly base: string | null;
  readonly as: 'speed' | 'cost';
  /** One figure a round. */
  readonly costs: readonly number[];
}

interface GuardCase extends Omit<GuardResult, 'costs'> {
  /** Work to be timed; returns how many octets or operations it was. */
  readonly run: () => number;
}

const SLICE_MS = 4;
const OPERATIONS = 20_000;
const STREAM_OCTETS = 1 << 20;
/** A stream that is cut small needs fewer octets. */
const CUT_STREAM_OCTETS = 128 << 10;
const CRC: Setting = { crc: true, markers: false, fast: true };
const MARKED: Setting = { crc: true, markers: true, fast: true };

let sink = 0;
const memory = new Uint8Array(1 << 20).fill(7);
const target = new Uint8Array(1 << 20);

function crcCases(): GuardCase[] {
  const engines = availableCrc32cEngines().toSorted((a) => (a === 'crc-32' ? -1 : 0));
  return [1460, 16_384, 65_536].flatMap((size) =>
    engines.map((name): GuardCase => {
      const engine = createCrc32cEngine(name);
      const bytes = engine.allocate(size + 20).fill(7);
      const run = (): number => {
        sink ^= engine.update(0, bytes, 20, 20 + size);
        return size;
      };
      const base = name === 'crc-32' ? null : `crc-32 ${size}`;
      return {
        id: `${name} ${size}`,
        label: `CRC32c by ${name}, ${size} octets`,
        unit: 'ns/octet',
        base,
        as: 'speed',
        run,
      };
    }),
  );
}

type Calculate = (bytes: Uint8Array) => number;
const CHECK = 0xe3069283;

/** A native add-on, and our engine against it. */
function nativeCases(path: string): GuardCase[] {
  const { calculate } = createRequire(import.meta.url)(resolve(path)) as { readonly calculate: Calculate };
  if (calculate(Buffer.from('123456789')) >>> 0 !== CHECK)
    throw new Error(`${basename(path)} does not compute CRC32c`);
  const bytes = Buffer.alloc(NATIVE_OCTETS, 7);
  const engine = createCrc32cEngine('simd');
  const own = engine.allocate(NATIVE_OCTETS + 20).fill(7);
  return [
    {
      id: `native ${NATIVE_OCTETS}`,
      label: `CRC32c by ${basename(path)}, ${NATIVE_OCTETS} octets`,
      unit: 'ns/octet',
      base: null,
      as: 'speed',
      run: () => {
        sink ^= calculate(bytes);
        return NATIVE_OCTETS;
      },
    },
    {
      id: `simd ${NATIVE_OCTETS}`,
      label: `CRC32c by simd, ${NATIVE_OCTETS} octets, beside it`,
      unit: 'ns/octet',
      base: `native ${NATIVE_OCTETS}`,
      as: 'speed',
      run: () => {
        sink ^= engine.update(0, own, 20, 20 + NATIVE_OCTETS);
        return NATIVE_OCTETS;
      },
    },
  ];
}

function codecCases(): GuardCase[] {
  const view = new DataView(new ArrayBuffer(64));
  const bytes = new Uint8Array(view.buffer);
  const segment = createSegment();
  const times = (one: (i: number) => void) => (): number => {
    for (let i = 0; i < OPERATIONS; i++) one(i);
    return OPERATIONS;
  };
  return [
    {
      id: 'words',
      label: 'base: four words through a DataView',
      unit: 'ns',
      base: null,
      as: 'cost',
      run: times((i) => {
        view.setUint32(0, i);
        view.setUint32(4, i);
        view.setUint32(8, i);
        view.setUint32(12, i);
      }),
    },
    {
      id: 'encode',
      label: 'write a tagged header',
      unit: 'ns',
      base: 'words',
      as: 'cost',
      run: times((i) => putTaggedHeader(view, 0, DDP_CONTROL.LAST | 1, 0x40, i, 0, i)),
    },
    {
      id: 'decode',
      label: 'read a tagged header',
      unit: 'ns',
      base: 'words',
      as: 'cost',
      run: times(() => void (sink ^= decodeSegment(segment, bytes, 0, TAGGED_HEADER_OCTETS) ? 1 : 2)),
    },
  ];
}

function framerCases(): GuardCase[] {
  const copy = (size: number): GuardCase => ({
    id: `copy ${size}`,
    label: `base: a copy of ${size} octets`,
    unit: 'ns/octet',
    base: null,
    as: 'cost',
    run: () => {
      copyBytes(memory, 0, target, 3, size);
      return size;
    },
  });
  const send = (name: string, setting: Setting, size: number): GuardCase => {
    const framer = framerOf(setting);
    const run = (): number => {
      frame(framer, size);
      return size;
    };
    return {
      id: `frame ${name} ${size}`,
      label: `framer, ${name}, ULPDU of ${size}`,
      unit: 'ns/octet',
      base: `copy ${size}`,
      as: 'cost',
      run,
    };
  };
  return [64, 1446, 60_000].flatMap((size) => [
    copy(size),
    send('CRC', CRC, size),
    send('CRC and markers', MARKED, size),
  ]);
}

function deframerCases(): GuardCase[] {
  const take = (
    name: string,
    setting: Setting,
    size: number,
    cut: number,
    base: string | null,
  ): GuardCase => {
    const stream = streamOf(setting, size, cut < READ_OCTETS ? CUT_STREAM_OCTETS : STREAM_OCTETS);
    const run = (): number => {
      receive(deframerOf(setting), stream, cut, true);
      return stream.length;
    };
    return { id: `deframe ${name}`, label: `deframer, ${name}`, unit: 'ns/octet', base, as: 'cost', run };
  };
  const easy = 'deframe CRC, ULPDUs of 60000';
  return [
    take('CRC, ULPDUs of 60000', CRC, 60_000, READ_OCTETS, 'copy 60000'),
    take('CRC, ULPDUs of 1446', CRC, 1446, READ_OCTETS, 'copy 1446'),
    take('CRC, ULPDUs of 64', CRC, 64, READ_OCTETS, 'copy 64'),
    take('CRC and markers, ULPDUs of 60000', MARKED, 60_000, READ_OCTETS, easy),
    take('worst cuts: one octet, ULPDUs of 60000', CRC, 60_000, 1, easy),
    take('worst cuts: one octet, ULPDUs of 14', CRC, 14, 1, easy),
    take('worst cuts: seven octets, ULPDUs of 1446', CRC, 1446, 7, easy),
    take('worst cuts: one octet, markers, ULPDUs of 1446', MARKED, 1446, 1, easy),
    take('empty Writes in 64 KiB reads', CRC, 14, READ_OCTETS, easy),
  ];
}

function ringCases(): GuardCase[] {
  const DEPTH = 256;
  const BURST = 64;
  const plain = new Int32Array(DEPTH);
  let head = 0;
  let tail = 0;
  const sends = new SendQueue(DEPTH);
  const receives = new ReceiveQueue(DEPTH);
  const bursts = (one: () => void) => (): number => {
    for (let n = 0; n < OPERATIONS; n += BURST) one();
    return OPERATIONS;
  };
  return [
    {
      id: 'ring',
      label: 'base: a number through a ring of an Int32Array',
      unit: 'ns',
      base: null,
      as: 'cost',
      run: bursts(() => {
        for (let i = 0; i < BURST; i++) plain[head++ % DEPTH] = i;
        while (tail < head) sink ^= plain[tail++ % DEPTH]!;
      }),
    },
    {
      id: 'send queue',
      label: 'send queue: entry taken, posted, completed, given back',
      unit: 'ns',
      base: 'ring',
      as: 'cost',
      run: bursts(() => {
        for (let i = 0; i < BURST; i++) {
          sends.peekFree()!.wrId = i;
          sends.push();
        }
        for (let i = 0; i < BURST; i++) {
          const wqe = sends.slot(sends.tail);
          sends.complete(false);
          sends.release(wqe);
        }
      }),
    },
    {
      id: 'receive queue',
      label: 'receive queue: entry posted, taken, given back',
      unit: 'ns',
      base: 'ring',
      as: 'cost',
      run: bursts(() => {
        for (let i = 0; i < BURST; i++) {
          receives.peekFree()!.wrId = i;
          receives.push();
        }
        for (let i = 0; i < BURST; i++) receives.release(receives.take()!);
      }),
    },
  ];
}

/** Nanoseconds for one octet or operation, over at least a slice. */
function time(run: () => number, ms: number): number {
  const began = performance.now();
  let work = 0;
  let took: number;
  do {
    work += run();
    took = performance.now() - began;
  } while (took < ms);
  return (took * 1e6) / work;
}

/** The answer of the process of the inner loops. */
export interface GuardAnswer {
  readonly results: readonly GuardResult[];
  readonly missing: readonly { readonly id: string; readonly reason: string }[];
}

/** Every case in turn, `rounds` times. An add-on that cannot be used leaves the others. */
function guard(rounds: number, native?: string): GuardAnswer {
  const missing: { id: string; reason: string }[] = [];
  const withNative = (): GuardCase[] => {
    try {
      return native === undefined ? [] : nativeCases(native);
    } catch (error) {
      missing.push({ id: `native ${NATIVE_OCTETS}`, reason: reasonOf(error) });
      return [];
    }
  };
  const cases = [
    ...crcCases(),
    ...withNative(),
    ...codecCases(),
    ...framerCases(),
    ...deframerCases(),
    ...ringCases(),
  ];
  const costs = new Map(cases.map((one) => [one, [] as number[]]));
  for (const one of cases) time(one.run, 10 * SLICE_MS);
  for (let round = 0; round < rounds; round++)
    for (const one of cases) costs.get(one)!.push(time(one.run, SLICE_MS));
  return {
    results: cases.map((one) => ({
      id: one.id,
      label: one.label,
      unit: one.unit,
      base: one.base,
      as: one.as,
      costs: costs.get(one)!,
    })),
    missing,
  };
}

/** Round by round; a base has none. */
export function guardRatios(one: GuardResult, all: readonly GuardResult[]): number[] {
  const base = all.find(({ id }) => id === one.base);
  if (base === undefined) return [];
  return one.costs.map((cost, round) =>
    one.as === 'speed' ? base.costs[round]! / cost : cost / base.costs[round]!,
  );
}

function main(rounds: number, native?: string): void {
  const answer = guard(rounds, native);
  const { results, missing } = answer;
  if (sink === 0x7fff_ffff) process.stderr.write('');
  if (process.send !== undefined) {
    process.send(answer, () => process.disconnect());
    return;
  }
  for (const { id, reason } of missing) console.log(`not measured: ${id}: ${reason}`);
  for (const one of results) {
    const ratio = median(guardRatios(one, results));
    const text = Number.isNaN(ratio)
      ? ''
      : one.as === 'speed'
        ? `${ratio.toFixed(2)} times as fast as ${one.base}`
        : `${ratio.toFixed(2)} times as dear as ${one.base}`;
    console.log(
      `${one.label.padEnd(60)}${median(one.costs).toFixed(3).padStart(9)} ${one.unit.padEnd(10)}${text}`,
    );
  }
}

if (process.argv[1] !== undefined && /guard\.[jt]s$/.test(process.argv[1]))
  main(Math.max(1, Number(process.argv[2] ?? 15)), process.argv[3]);
