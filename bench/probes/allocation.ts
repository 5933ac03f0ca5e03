/**
 * Measures the octets that a message leaves on the heap (micro/growth.ts), both ends in one process, beside
 * bare sockets that send as many of the same size.
 */
import type { Growth } from '../micro/growth.ts';
import type { Method } from '../method.ts';
import { median } from '../stats.ts';
import type { ProbeResult } from '../types.ts';
import { cell, ratioOf, runMicro, watchSteal, type Probe, type Progress } from './probe.ts';

/** A young generation that takes a stretch, so that nothing is collected inside one. */
const NODE = ['--expose-gc', '--max-semi-space-size=128', '--min-semi-space-size=128'];
const SIZES: readonly (readonly [octets: number, messages: number])[] = [
  [64, 4000],
  [4096, 2000],
  [64_000, 2000],
];
/** Two stretches take less. */
const ROUND_MS = 2000;
const TITLE = 'What a message leaves on the heap';
/**
 * Octets are no ratios: less than one that is kept is nothing, and how many messages share a call of the
 * system moves the garbage of each by dozens.
 */
const KEPT_SLACK = 1;
const GARBAGE_SLACK = 64;

// oxlint-disable-next-line max-lines-per-function -- one measurement from its set-up to its figures
async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const measure = async (
    how: 'plain' | 'bare',
    [octets, messages]: (typeof SIZES)[number],
  ): Promise<Growth> => {
    progress(`${octets} octets, ${how}`);
    return JSON.parse(
      await runMicro(
        'growth',
        NODE,
        [octets, messages, how, method.rounds],
        60_000 + method.rounds * ROUND_MS,
      ),
    ) as Growth;
  };
  const results: {
    readonly octets: number;
    readonly kept: number[];
    readonly ours: readonly number[];
    readonly beyond: number[];
    readonly bare: readonly number[];
  }[] = [];
  for (const size of SIZES) {
    const [ours, bare] = [await measure('plain', size), await measure('bare', size)];
    const stretch = ours.fpdus / ours.kept.length;
    results.push({
      octets: size[0],
      kept: ours.kept.map((octets) => octets / stretch),
      ours: ours.garbage,
      bare: bare.garbage,
      beyond: ours.garbage.map((octets, i) => octets - bare.garbage[i]!),
    });
  }
  return {
    id: 'allocation',
    title: TITLE,
    about: `Writes over loopback, sender and receiver in one process, 16 under way, each posted by itself:
what a full collection leaves behind by the FPDU, and what it takes away, Node's sockets included. Bare
sockets that send as many messages of the size, each with a callback, are the measure.`,
    columns: ['octets kept by FPDU', 'octets of garbage by FPDU', 'of bare sockets, by message'],
    rows: results.map(({ octets, kept, ours, bare }) => ({
      label: `Writes of ${octets} octets`,
      cells: [cell(median(kept)), cell(median(ours), 0), cell(median(bare), 0)],
    })),
    charts: [
      {
        caption: 'Octets of garbage for each message',
        unit: 'octets',
        log: false,
        see:
          'Shorter is better. No memory is kept; garbage costs time only when it is collected, ' +
          'which with objects that die young is little.',
        bars: results.flatMap(({ octets, ours, bare }) => [
          { label: `Writes of ${octets} octets`, value: cell(median(ours), 0), ours: true },
          { label: `bare sockets, ${octets} octets`, value: cell(median(bare), 0), ours: false },
        ]),
      },
    ],
    ratios: results.flatMap(({ octets, kept, beyond }) => [
      ratioOf(`allocation/${octets} : kept`, 'less', kept, KEPT_SLACK),
      ratioOf(`allocation/${octets} : beyond bare`, 'less', beyond, GARBAGE_SLACK),
    ]),
    missing: [],
    disturbed: stolen(),
  };
}

export const allocation: Probe = { id: 'allocation', title: TITLE, seconds: () => 12, run };
