/**
 * Handing requests to another thread and getting answers (micro/ring.ts): by a ring in shared memory, as the
 * worker engine does, and by a message each.
 */
import type { Method } from '../method.ts';
import { ANSWER_WORDS, measureRing, REQUEST_WORDS } from '../micro/ring.ts';
import { median, ratios } from '../stats.ts';
import type { ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const results = await measureRing(method.rounds, progress);
  const label = (depth: number): string => `${depth} under way`;
  return {
    id: 'handover',
    title: 'Handing requests to another thread',
    about: `How many requests a second reach a worker thread and are answered: by records of ${REQUEST_WORDS}
words in a ring of shared memory with a doorbell when the other side sleeps (answers of ${ANSWER_WORDS} words
come the same way), and by a message for each.`,
    columns: ['ring, million/s', 'a message each, million/s', 'ratio'],
    rows: results.map(({ depth, ring, messages }) => ({
      label: label(depth),
      cells: [cell(median(ring), 3), cell(median(messages), 3), cell(median(ratios(ring, messages)), 1)],
    })),
    charts: [
      {
        caption: 'How many times as many requests the ring hands over',
        unit: 'times',
        log: false,
        see:
          'With one request at a time both wait for the other thread to wake up; the more are under way, ' +
          'the more share one doorbell.',
        bars: results.map(({ depth, ring, messages }) => ({
          label: label(depth),
          value: cell(median(ratios(ring, messages)), 1),
          ours: true,
        })),
      },
    ],
    ratios: results.map(({ depth, ring, messages }) =>
      ratioOf(`handover/ring, ${label(depth)} : a message each`, 'more', ratios(ring, messages)),
    ),
    missing: [],
    disturbed: stolen(),
  };
}

export const handover: Probe = {
  id: 'handover',
  title: 'Handing requests to another thread',
  seconds: () => 6,
  run,
};
