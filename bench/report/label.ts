/** Names of the lines and places of a report, and words for the state of the machine. */
import type { Apart, CaseResult, CaseSpec, ExperimentResult } from '../types.ts';

const connections = ({ connections: n, inFlight }: CaseSpec): string =>
  `${n} connection${n === 1 ? '' : 's'}, ${inFlight} under way`;

/**
 * Its series; where several lines of an experiment have the same one, how many connections it has, which
 * distinguishes them.
 */
export function labelOf({ cases }: ExperimentResult, one: CaseResult): string {
  return cases.some((other) => other !== one && other.series === one.series)
    ? connections(one.spec)
    : one.series;
}

/** 65536 as 64 KiB. */
export function octets(value: number): string {
  if (value >= 1 << 20 && value % (1 << 20) === 0) return `${value >> 20} MiB`;
  return value >= 1024 && value % 1024 === 0 ? `${value >> 10} KiB` : String(value);
}

/** How far apart the processors were; nothing where nobody looked. */
export function apartText(apart: Apart | null | undefined): string {
  if (apart === null || apart === undefined) return '';
  const {
    ns: { median, low, high },
    turns,
    away,
  } = apart;
  const distance =
    `One processor sees what the other has written after ${median.toFixed(0)} ns (quartiles ` +
    `${low.toFixed(0)} to ${high.toFixed(0)})`;
  return turns === 0
    ? distance
    : `${distance}; ${away} of ${turns} turns saw another distance and were left out`;
}
