/** What the perftest programs report of processors: their use (`--cpu_util`) and their clock (`-C`). */
import { cpus } from 'node:os';
import { UsageError } from '../support/options.ts';

/** The facts of one processor that count here, as in {@link cpus}: megahertz and milliseconds. */
interface Processor {
  readonly speed: number;
  readonly times: { readonly user: number; readonly idle: number };
}

/** Time that all processors together have spent in programs, and in nothing. */
export interface CpuTimes {
  readonly user: number;
  readonly idle: number;
}

export function cpuTimes(all: readonly Processor[] = cpus()): CpuTimes {
  let [user, idle] = [0, 0];
  for (const { times } of all) {
    user += times.user;
    idle += times.idle;
  }
  return { user, idle };
}

/** User time in percent of user and idle time, which is what the stock programs call utilization. */
export function utilization(from: CpuTimes, to: CpuTimes): number {
  const user = to.user - from.user;
  const sum = user + to.idle - from.idle;
  return sum > 0 ? (100 * user) / sum : 0;
}

/** Cycles in a microsecond. @throws UsageError where the system does not say */
export function cyclesPerMicrosecond(all: readonly Processor[] = cpus()): number {
  const speed = all[0]?.speed ?? 0;
  if (speed > 0) return speed;
  throw new UsageError("Can't produce a report in cycles: the system does not say how fast its processor is");
}
