/**
 * `iwarp bench` from its source as a program: its processes are programs too, which a test runner is not. Of
 * each figure it measures the first panel and the last, and of these the first group and the last; in the
 * full run it measures all.
 */
import { run } from '../../bench/main.ts';
import { OSU } from '../../bench/papers/osu.ts';
import type { Group } from '../../bench/papers/paper.ts';
import { FULL } from '../support/depth.ts';

const ends = <T>(all: readonly T[]): T[] => all.filter((_, i) => i === 0 || i === all.length - 1);

function* chosen(groups: Iterable<Group>): Generator<Group> {
  const panels = new Map<string, Group[]>();
  for (const group of groups) panels.set(group.panel, [...(panels.get(group.panel) ?? []), group]);
  for (const panel of ends([...panels.values()])) yield* ends(panel);
}

if (!FULL)
  for (const part of OSU.parts) {
    const all = part.groups.bind(part) as (rounds: number) => Iterable<Group>;
    Object.assign(part, { groups: (rounds: number) => chosen(all(rounds)) });
  }

process.exit(await run(process.argv.slice(2)));
