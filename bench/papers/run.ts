/** `iwarp bench --paper`: measure the rows of papers, print them, keep them, write the page. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { withFile } from '../../cli/support/system-errors.ts';
import { DistanceWatch } from '../distance.ts';
import { describeMachine, foreignShare, processor, readTicks } from '../machine.ts';
import { readJson } from '../read-json.ts';
import { runPapers } from './index.ts';
import type { PaperName } from './names.ts';
import { writePage, type PapersRun } from './page.ts';

/** What the command line asks for. */
interface PapersWish {
  readonly papers: readonly PaperName[];
  readonly rounds: number;
  readonly json: string | undefined;
  readonly page: string | undefined;
  /** Keep the rows of other papers that the file of `json` has. */
  readonly continue: boolean;
  /** Results of an earlier run, instead of measuring. */
  readonly from: string | undefined;
}

/** Clock ticks of children that have ended, in milliseconds; 0 where the system does not say. */
function endedMs(): number {
  try {
    const fields = readFileSync('/proc/self/stat', 'latin1').split(') ')[1]!.split(' ');
    return (Number(fields[13]) + Number(fields[14])) * 10;
  } catch {
    return 0;
  }
}

/** Microseconds of processor time of this process and its ended children. */
function ownUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system + endedMs() * 1000;
}

async function measure({ papers, rounds }: PapersWish, print: (line: string) => void): Promise<PapersRun> {
  const started = new Date().toISOString();
  const [began, ticks, cpu] = [performance.now(), readTicks(), ownUs()];
  const watch = await DistanceWatch.open();
  try {
    const parts = await runPapers({
      ...{ rounds, parts: papers, print },
      ...(watch !== null && { look: () => watch.look() }),
    });
    // Processes that were ended count when their parent has been notified.
    await sleep(200);
    const ms = performance.now() - began;
    return {
      schema: 'iwarp-papers/1',
      ...{ started, rounds, parts },
      seconds: Math.round(ms / 1000),
      machine: describeMachine('not used'),
      foreign: foreignShare(ticks, readTicks(), ownUs() - cpu, ms * 1e6),
    };
  } finally {
    watch?.close();
  }
}

const read = (path: string): PapersRun => readJson<PapersRun>(path, 'iwarp-papers/1', 'rows of papers');

/** A run with the rows of other papers of an earlier one. */
function joined(earlier: PapersRun, run: PapersRun, papers: readonly PaperName[]): PapersRun {
  const kept = earlier.parts.filter(({ paper }) => !papers.some((name) => name === paper));
  const keptSeconds = kept.reduce((sum, { seconds }) => sum + seconds, 0);
  return {
    ...run,
    parts: [...kept, ...run.parts],
    seconds: Math.round(keptSeconds + run.seconds),
    foreign: Math.max(earlier.foreign, run.foreign),
  };
}

/** The status of the command: 1 if nothing could be measured. */
export async function runPapersCommand(wish: PapersWish, print: (line: string) => void): Promise<number> {
  const { from, json, page } = wish;
  const earlier = wish.continue && json !== undefined && existsSync(json) ? read(json) : null;
  if (earlier !== null && earlier.machine['CPU'] !== processor())
    throw new Error(`${json} is of another processor: its figures and those of this one are not one run`);
  const measured = from === undefined ? await measure(wish, print) : read(from);
  const run = earlier === null ? measured : joined(earlier, measured, wish.papers);
  if (json !== undefined) withFile(json, () => writeFileSync(json, `${JSON.stringify(run, null, 1)}\n`));
  if (page !== undefined) for (const path of writePage(page, run)) print(`written: ${path}`);
  if (from === undefined)
    print(`${run.seconds} s; other programs had ${run.foreign.toFixed(2)} of a processor`);
  return run.parts.some(({ groups }) => groups.some(({ rows }) => rows.length > 0)) ? 0 : 1;
}
