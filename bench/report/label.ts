/** What a line of a report is called beside the others of its experiment. */
import type { CaseResult, CaseSpec, ExperimentResult } from '../types.ts';

const connections = ({ connections: n, inFlight }: CaseSpec): string => `${n} connection${n === 1 ? '' : 's'}, ${inFlight} under way`;

/** Its series; where several lines of an experiment have the same one, how many connections it has, which is what tells them apart. */
export function labelOf({ cases }: ExperimentResult, one: CaseResult): string {
  return cases.some((other) => other !== one && other.series === one.series) ? connections(one.spec) : one.series;
}
