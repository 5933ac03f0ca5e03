/** Measures the cost of counting messages and octets (micro/counters.ts). */
import { temporaryFolder } from '../leftovers.ts';
import type { Method } from '../method.ts';
import type { CounterResult } from '../micro/counters.ts';
import { median, spread } from '../stats.ts';
import type { ProbeResult } from '../types.ts';
import { cell, runMicro, watchSteal, type Probe, type Progress } from './probe.ts';

const TITLE = 'What the counters cost';
/** A process with this build and a copy of it. */
const PAIR_SECONDS = 3.5;

/**
 * The copies are made in a folder of this process: the other one, if it is ended, has no time to remove it.
 */
async function measured(rounds: number): Promise<CounterResult[]> {
  const folder = temporaryFolder('iwarp-bare-');
  try {
    return JSON.parse(
      await runMicro(
        'counters',
        [],
        ['json', rounds, folder.path],
        60_000 + 3 * rounds * PAIR_SECONDS * 1000,
      ),
    ) as CounterResult[];
  } finally {
    folder.remove();
  }
}

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  progress(`${method.rounds} processes`);
  if (!import.meta.url.endsWith('.js')) throw new Error('it compares compiled builds: npm run build');
  const stolen = watchSteal();
  const results = await measured(method.rounds);
  const label = ({ kind, beside }: CounterResult): string =>
    `${kind === 'send' ? 'Sends' : 'Writes'} of 64 octets, ` +
    `${beside === 'control' ? 'beside an equal build' : 'beside a build without counters'}`;
  return {
    id: 'counters',
    title: TITLE,
    about: `How much more a message costs for being counted: this build beside a copy from which the lines
that count have been taken out, over a network in memory, where a message costs least. Two equal builds, which
differ by nothing but how the compiler lays them out, tell what such a figure is worth.`,
    columns: ['percent more, median', 'lower quartile', 'upper quartile'],
    rows: results.map((one) => ({
      label: label(one),
      cells: [
        cell(median(one.percent), 1),
        cell(spread(one.percent).low, 1),
        cell(spread(one.percent).high, 1),
      ],
    })),
    charts: [],
    ratios: [],
    missing: [],
    disturbed: stolen(),
  };
}

export const counters: Probe = {
  id: 'counters',
  title: TITLE,
  seconds: ({ rounds }) => rounds * PAIR_SECONDS,
  run,
};
