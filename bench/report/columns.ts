/**
 * Columns that the table on the terminal and that of the report share: ratios to what stands beside, and
 * costs.
 */
import { isOurs } from '../cases.ts';
import type { CaseResult, ExperimentResult, Spread } from '../types.ts';

/** The base that a case is set against in a column, and the ratio to it. */
export interface RatioColumn {
  readonly head: string;
  readonly of: (one: CaseResult) => Spread | undefined;
}

const SHORT: Readonly<Record<string, string>> = { 'TCP, onread': 'TCP' };

/**
 * The ratios of an experiment: to each of those beside ours that was measured at the same place, and where a
 * line is set against its own first or last place, to that.
 */
export function ratioColumns({ cases }: ExperimentResult): RatioColumn[] {
  const byId = new Map(cases.map((one) => [one.id, one]));
  const columns = new Map<string, RatioColumn>();
  for (const base of cases) {
    const beside =
      !isOurs(base.spec) && cases.some((one) => one.x === base.x && one.ratios[base.id] !== undefined);
    const own = cases.some(
      (one) => one.x !== base.x && one.series === base.series && one.ratios[base.id] !== undefined,
    );
    const add = (head: string, isBase: (to: CaseResult, one: CaseResult) => boolean): void => {
      const of = (one: CaseResult): Spread | undefined =>
        Object.entries(one.ratios).find(([id]) => byId.has(id) && isBase(byId.get(id)!, one))?.[1];
      columns.set(head, { head, of });
    };
    if (beside)
      add(
        `of ${SHORT[base.series] ?? base.series}`,
        (to, one) => to.series === base.series && to.x === one.x,
      );
    if (own) add(`of itself at ${base.x}`, (to, one) => to.series === one.series && to.x === base.x);
  }
  return [...columns.values()];
}

/** A cost with the digits that it is shown with. */
interface CostColumn {
  readonly head: string;
  readonly digits: number;
  readonly of: (one: CaseResult) => number;
}

/**
 * The main thread is the client's; an event loop's delay is the worst of a slice, memory is resident. Both
 * are medians over the slices.
 */
export const COSTS: readonly CostColumn[] = [
  { head: 'CPU ns/octet, client', digits: 2, of: ({ cost }) => cost.clientPerByte },
  { head: 'CPU ns/octet, server', digits: 2, of: ({ cost }) => cost.serverPerByte },
  { head: 'us/message in the posting call', digits: 2, of: ({ cost }) => cost.postPerMessage },
  { head: 'us/message of the main thread', digits: 2, of: ({ cost }) => cost.mainPerMessage },
  { head: 'GC, % of the time', digits: 1, of: ({ cost }) => asPercent(cost.gcShare) },
  { head: 'worst loop delay, ms, client', digits: 1, of: ({ cost }) => cost.clientLoopP99 },
  { head: 'worst loop delay, ms, server', digits: 1, of: ({ cost }) => cost.serverLoopP99 },
  { head: 'MiB, client', digits: 0, of: ({ cost }) => cost.clientRss },
  { head: 'MiB, server', digits: 0, of: ({ cost }) => cost.serverRss },
];

/** NaN has become null in a file, and would become zero here. */
const asPercent = (share: number | null): number => (share === null ? Number.NaN : share * 100);
