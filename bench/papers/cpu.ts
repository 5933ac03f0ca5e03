/** Processor time of this process and all that it has started, those that have ended included. */
import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks of `/proc/PID/stat`: a hundred a second on every Linux. */
const TICK_NS = 1e7;

/** What one process had when it was last looked at. None of the sums falls. */
interface Seen {
  /** The tick in which the process began: another one may have its number later. */
  readonly began: string;
  /** Nanoseconds of each thread that was there. */
  threads: ReadonlyMap<string, number>;
  children: readonly number[];
  /** Nanoseconds of threads that have ended. */
  endedThreads: number;
  /** Nanoseconds of all processes below this one that have ended. */
  endedChildren: number;
  /** With everything below. */
  total: number;
}

/** What the system says of a whole process, its ended threads included, in nanoseconds to the tick. */
function statOf(pid: number) {
  // Behind the name, which may hold anything.
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1)!.split(' ');
  const ticks = (at: number): number => (Number(fields[at]) + Number(fields[at + 1])) * TICK_NS;
  return { parent: Number(fields[1]), began: fields[19]!, own: ticks(11), children: ticks(13) };
}

/** A thread or process may end after it has been listed. */
const hasEnded = (error: unknown): boolean =>
  ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '');

/** The threads of a process with their nanoseconds, and its children. */
function tasksOf(pid: number): { threads: Map<string, number>; children: number[] } {
  const threads = new Map<string, number>();
  const children: number[] = [];
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    const folder = `/proc/${pid}/task/${task}`;
    try {
      threads.set(task, Number(readFileSync(`${folder}/schedstat`, 'latin1').split(' ', 1)[0]));
      children.push(...readFileSync(`${folder}/children`, 'latin1').split(' ').filter(Boolean).map(Number));
    } catch (error) {
      // The first thread is there as long as the process.
      if (!hasEnded(error) || task === String(pid)) throw error;
    }
  }
  return { threads, children };
}

const seenBefore = new Map<number, Seen>();

/**
 * Looks at a process and all below it. The system has exact times of threads that live; for ended threads and
 * processes it has a sum in ticks. That sum, and what had been seen of them, are both at most what they had:
 * the greater one counts.
 */
function look(pid: number, parent: number | null): Seen | null {
  try {
    const stat = statOf(pid);
    if (parent !== null && stat.parent !== parent) return null;
    const { threads, children } = tasksOf(pid);
    const before = seenBefore.get(pid);
    const seen: Seen =
      before?.began === stat.began
        ? before
        : {
            ...{ began: stat.began, threads, children: [], total: 0 },
            ...{ endedThreads: 0, endedChildren: stat.children },
          };
    for (const [task, had] of seen.threads)
      if ((threads.get(task) ?? Number.NEGATIVE_INFINITY) < had) seen.endedThreads += had;
    seen.threads = threads;
    const living = [...threads.values()].reduce((sum, each) => sum + each, 0);
    seen.endedThreads = Math.max(seen.endedThreads, stat.own - living);
    let below = 0;
    const there: number[] = [];
    // The system may leave out children while others come and go.
    for (const child of new Set([...seen.children, ...children])) {
      const earlier = seenBefore.get(child);
      const now = look(child, pid);
      if (now !== earlier) seen.endedChildren += earlier?.total ?? 0;
      if (now === null) seenBefore.delete(child);
      else {
        below += now.total;
        there.push(child);
      }
    }
    seen.children = there;
    seen.endedChildren = Math.max(seen.endedChildren, stat.children);
    seen.total = living + seen.endedThreads + below + seen.endedChildren;
    seenBefore.set(pid, seen);
    return seen;
  } catch (error) {
    if (parent === null || !hasEnded(error)) throw error;
    return null;
  }
}

/** Seconds, which never fall from one reading to the next; NaN where the system does not say. */
export function cpuSeconds(): number {
  try {
    return look(process.pid, null)!.total / 1e9;
  } catch {
    return Number.NaN;
  }
}
