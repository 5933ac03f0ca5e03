/**
 * Rows of the papers on SDP and extended sockets, beside bare `node:net` in the same rounds:
 * `npx tsx bench/sdp.ts [ROUNDS] [PART]...`, three rounds by default. A part is a figure (`6a`, `osu-6a`), a
 * paper (`az-sdp`, `osu`), `goals`, or `streams` for the table of docs/streams.md; `--list` prints them,
 * `--json FILE` keeps the figures. All of it takes some minutes.
 */
import { writeFileSync } from 'node:fs';
import { ROWS, runPapers } from './papers/index.ts';

const given = process.argv.slice(2);
const at = given.indexOf('--json');
const file = at < 0 ? undefined : given.splice(at, 2)[1];
if (given.includes('--list')) {
  for (const { id, title, parts } of ROWS)
    console.log(`${id} (${title}): ${parts.map((part) => part.id).join(', ')}`);
} else {
  const [rounds = '3', ...parts] = given;
  const known = ROWS.flatMap((paper) => [paper.id, ...paper.parts.map(({ id }) => id)]);
  const wrong = parts.find((part) => !known.includes(part));
  if (wrong !== undefined || !(Number(rounds) >= 1))
    throw new Error(`bench/sdp.ts [ROUNDS] [${known.join('|')}]...`);
  const began = performance.now();
  const results = await runPapers({ rounds: Number(rounds), parts, print: (line) => console.log(line) });
  console.log(`${((performance.now() - began) / 1000).toFixed(0)} s`);
  if (file !== undefined) writeFileSync(file, JSON.stringify(results, null, 2));
  process.exit(0);
}
