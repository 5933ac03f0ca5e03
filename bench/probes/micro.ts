/** The inner loops (micro/guard.ts), in a separate process: nothing else has shaped its compiled code. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { atExit } from '../leftovers.ts';
import type { Method } from '../method.ts';
import { guardRatios, type GuardAnswer, type GuardResult } from '../micro/guard.ts';
import { median } from '../stats.ts';
import type { ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

const PROGRAM = new URL(
  import.meta.url.endsWith('.ts') ? '../micro/guard.ts' : '../micro/guard.js',
  import.meta.url,
);
const TIMEOUT_MS = 60_000;
/** A round takes less than half of it. */
const ROUND_MS = 1000;
/** Short slices: twice as many rounds cost little. */
const ROUNDS_FACTOR = 2;

async function results({ rounds, nativeCrc }: Method): Promise<GuardAnswer> {
  const child = fork(
    PROGRAM,
    [String(rounds * ROUNDS_FACTOR), ...(nativeCrc === undefined ? [] : [nativeCrc])],
    { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
  );
  const end = atExit(() => child.kill('SIGKILL'));
  const timer = setTimeout(end, TIMEOUT_MS + rounds * ROUND_MS);
  try {
    const ended = once(child, 'exit').then(([status, signal]) => {
      throw new Error(
        'the process of the inner loops ended with ' +
          `${(signal as string | null) ?? `status ${String(status)}`}`,
      );
    });
    const [answer] = (await Promise.race([once(child, 'message'), ended])) as [GuardAnswer];
    ended.catch(() => undefined);
    return answer;
  } finally {
    clearTimeout(timer);
    end();
  }
}

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  progress('inner loops');
  const stolen = watchSteal();
  const { results: all, missing } = await results(method);
  const ratios = all.flatMap((one) => {
    const list = guardRatios(one, all);
    return list.length === 0
      ? []
      : [ratioOf(`micro/${one.id} : ${one.base}`, one.as === 'speed' ? 'more' : 'less', list)];
  });
  const text = (one: GuardResult): string => {
    const ratio = median(guardRatios(one, all));
    if (!Number.isFinite(ratio)) return '';
    return one.as === 'speed'
      ? `${ratio.toFixed(2)} times as fast as ${one.base}`
      : `${ratio.toFixed(2)} times as dear as ${one.base}`;
  };
  const crc = all.filter((one) => one.as === 'speed');
  return {
    id: 'micro',
    title: 'The inner loops',
    about: `Without sockets: the checksum by each engine, header codec, framer, deframer (also where a stream
is cut in the worst way), work queues. Each is set against a base run beside it: those ratios are what the
comparison with the baseline watches.`,
    columns: ['cost', 'unit', 'against its base'],
    rows: all.map((one) => ({ label: one.label, cells: [cell(median(one.costs), 3), one.unit, text(one)] })),
    charts: [
      {
        caption: 'CRC32c: how many times as fast as the package crc-32 (or the add-on named)',
        unit: 'times',
        log: false,
        see:
          'The longest bar is the engine that is taken where it can be: SIMD instructions in ' +
          'WebAssembly. The longer the message, the more it gains.',
        bars: crc
          .map((one) => ({
            label: one.label,
            value: cell(median(guardRatios(one, all))),
            ours: one.id.startsWith('simd'),
          }))
          .filter(({ value }) => value !== null),
      },
    ],
    ratios,
    missing,
    disturbed: stolen(),
  };
}

export const micro: Probe = {
  id: 'micro',
  title: 'The inner loops',
  seconds: ({ rounds }) => 2 + rounds * 0.4,
  run,
};
