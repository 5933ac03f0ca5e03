/**
 * Writes docs/interop.md from docs/interop.json, which holds the results of two interop runs, one after the
 * other:
 *
 *     npm run interop -- --json first.json; npm run interop -- --json second.json
 *     npx tsx scripts/docs-interop.ts --first first.json --second second.json
 *
 * Each kernel beside the first has a file and a page with its line in the name: `SIW_KERNEL=6.12` in the
 * environment of all three commands. The table of peers in README.md has a row for each.
 *
 * A run in parts (`--shard`, `--topic`) has one file a part: repeat `--first` and `--second`. Without
 * arguments the pages are made anew; `--note` adds a remark, on a part that was run again, say; with
 * `--check` nothing is written, and the status is 1 if they are out of date.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { SIDES, TOPICS } from '../conformance/siw/bench.ts';
import { KERNELS, kernelOf } from '../conformance/siw/kernels.ts';
import { resultText, type InteropRecord, type RecordedCase } from '../conformance/siw/report.ts';
import { between, cell } from './marked.ts';

const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
const README = path('README.md');
const MARKS = ['<!-- peers: made by scripts/docs-interop.ts -->', '<!-- end of peers -->'] as const;

/** The results of two runs with a kernel, and their page. */
interface Results {
  readonly line: string;
  readonly name: string;
  readonly file: string;
  readonly page: string;
}

/** Those of each kernel. */
export const RESULTS: readonly Results[] = KERNELS.map(({ line }, i) => {
  const name = i === 0 ? 'interop' : `interop-${line}`;
  return { line, name, file: path(`docs/${name}.json`), page: path(`docs/${name}.md`) };
});

/** Runs one after the other, two as a rule: the sums of each, the cases of the last. */
export interface InteropPair {
  readonly runs: readonly RunSummary[];
  readonly peer: string;
  readonly ours: InteropRecord['ours'];
  readonly cases: readonly RecordedCase[];
  /** A remark on the runs: parts that were run again, and why. */
  readonly note?: string;
}

interface RunSummary {
  readonly began: string;
  readonly seconds: number;
  readonly passed: number;
  readonly failed: number;
  /** Cases of those that passed which had failed first. */
  readonly again: number;
}

/** One run from its parts. */
function join(parts: readonly InteropRecord[]): InteropRecord {
  const [first] = [...parts].sort((a, b) => a.began.localeCompare(b.began));
  const { began, peer, ours } = first!;
  return {
    began,
    seconds: parts.reduce((sum, part) => sum + part.seconds, 0),
    peer,
    ours,
    cases: parts.flatMap((part) => part.cases),
  };
}

function summary({ began, seconds, cases }: InteropRecord): RunSummary {
  const good = cases.filter(({ ok }) => ok);
  return {
    began,
    seconds,
    passed: good.length,
    failed: cases.length - good.length,
    again: good.filter(({ before }) => before !== undefined).length,
  };
}

/** The contents of docs/interop.json after these two runs. */
export function pairOf(first: readonly InteropRecord[], second: readonly InteropRecord[]): InteropPair {
  const last = join(second);
  // The kernel and the link, not how long this boot took.
  return {
    runs: [...(first.length === 0 ? [] : [summary(join(first))]), summary(last)],
    peer: last.peer.replace(/^.*?: /, ''),
    ours: last.ours,
    cases: last.cases,
  };
}

const DRIVER_WORDS: Readonly<Record<RecordedCase['driver'], string>> = {
  stock: '',
  'crc-required': 'siw requires CRC',
  'peer-to-peer': 'siw with peer-to-peer',
  'revision-1': 'siw with MPA revision 1',
};

const said = ({ began, seconds, passed, failed, again }: RunSummary): string =>
  `${began.slice(0, 16).replace('T', ' ')} UTC, ${passed} ` +
  `passed${again === 0 ? '' : ` (${again} in a second try)`} and ${failed} failed, ` +
  `${Math.round(seconds / 60)} minutes`;

/** The page of a kernel. */
export function renderInteropPage(
  { runs, peer, ours, cases, note }: InteropPair,
  { line, name }: Pick<Results, 'line' | 'name'>,
): string {
  const count =
    runs.length === 1
      ? 'A complete run'
      : `${runs.length === 2 ? 'Two' : runs.length} complete runs, one after the other,`;
  const lines = [
    `# Interop with stock tools on siw of Linux ${line}`,
    '',
    `<!-- Made by scripts/docs-interop.ts from docs/${name}.json; change that, not this. -->`,
    '',
    `${count} of \`${line === KERNELS[0]!.line ? '' : `SIW_KERNEL=${line} `}npm run interop\`: ` +
      `${runs.map(said).join('; then ')}. ` +
      `${note === undefined ? '' : `${note} `}The tables show the last run. ` +
      `The peer is the kernel ${line} of Debian 12 with its siw driver, emulated (\`${peer}\`), ` +
      `with the stock tools of Debian 12. Our side: engine ${ours.engine}, CRC32c ${ours.crc32c}, receive ` +
      `${ours.receive}${ours.busyPoll === undefined ? '' : `, polling ${ours.busyPoll} us`} ` +
      '([engines.md](engines.md)). ' +
      'The checklist says [which case shows which item](../conformance/siw/README.md#what-shows-what).',
    '',
    renderSums(cases),
  ];
  for (const [topic, title] of Object.entries(TOPICS)) {
    const rows = cases.filter((each) => each.topic === topic);
    if (rows.length === 0) continue;
    lines.push('', `## ${title}`);
    if (topic === 'lacking') {
      lines.push('', ...renderLacks(rows));
      continue;
    }
    for (const tool of new Set(rows.map((each) => each.tool))) {
      lines.push('', `### ${tool}`, '', '| case | sides | result | s |', '|---|---|---|---|');
      for (const each of rows.filter((row) => row.tool === tool)) {
        const driver = DRIVER_WORDS[each.driver];
        const name = topic === 'killed' ? each.name.replace(/^and /, '') : each.name;
        lines.push(
          `| ${cell(name)}${driver === '' ? '' : ` (${driver})`} | ${SIDES[each.ours]} | ` +
            `${each.ok ? cell(resultText(each)) : 'FAILED'} | ${each.seconds} |`,
        );
      }
    }
  }
  return `${lines.join('\n')}\n`;
}

/** What two stock tools say where siw lacks what they need; a case that failed is one that went through. */
function renderLacks(rows: readonly RecordedCase[]): string[] {
  const lines = rows.map(
    (each) => `| \`${each.tool} ${each.name}\` | ${each.ok ? cell(resultText(each)) : 'FAILED'} |`,
  );
  return ['| stock client and server | the client says |', '|---|---|', ...lines];
}

/** How many cases of each tool passed. */
function renderSums(all: readonly RecordedCase[]): string {
  const cases = all.filter(({ topic }) => topic !== 'lacking');
  const proxied = cases.some(({ ours }) => ours === 'proxy');
  const lines = [
    '| Tried, with the stock program at the other end | as client | as server |' +
      `${proxied ? ' with our proxy between two |' : ''} killed in the middle |`,
    `|---|---|---|---|${proxied ? '---|' : ''}`,
  ];
  const tools = [...new Set(cases.filter(({ topic }) => topic !== 'killed').map(({ tool }) => tool))];
  const count = (list: readonly RecordedCase[]): string =>
    list.length === 0 ? '' : `${list.filter(({ ok }) => ok).length} of ${list.length}`;
  for (const tool of mergeSmall(tools)) {
    const mine = cases.filter((each) => tool.split(', ').includes(each.tool) || each.tool === tool);
    const [killed, alive] = [
      mine.filter(({ topic }) => topic === 'killed'),
      mine.filter(({ topic }) => topic !== 'killed'),
    ];
    const role = (ours: RecordedCase['ours']): string => count(alive.filter((each) => each.ours === ours));
    lines.push(
      `| ${
        tool === 'librspreload'
          ? '`nc.traditional`, `iperf` under librspreload'
          : tool
              .split(', ')
              .map((name) => `\`${name}\``)
              .join(', ')
      } | ${role('client')} | ${role('server')} |${proxied ? ` ${role('proxy')} |` : ''} ${count(killed)} |`,
    );
  }
  return lines.join('\n');
}

/** rdma_client and rdma_server are one row. */
function mergeSmall(tools: readonly string[]): string[] {
  const both = 'rdma_client, rdma_server';
  return [...new Set(tools.map((tool) => (both.split(', ').includes(tool) ? both : tool)))];
}

/** The table of peers: kernels with their versions, when they were tried, and how that went. */
function renderPeers(tried: readonly (readonly [Results, InteropPair])[]): string {
  const rows = tried.map(([{ line, name }, { peer, runs, note }]) => {
    const last = runs.at(-1)!;
    const report = `conformance/reports/linux-siw-${line}.md`;
    const remark = note === undefined ? '' : ', with a note on a part that was run again';
    return (
      `| siw of Linux ${line} | ${/\S+$/.exec(peer)![0]}, Debian 12 | ${last.began.slice(0, 10)} | ` +
      `${runs.map(({ passed, failed }) => `${passed} of ${passed + failed}`).join(', then ')} ` +
      `([cases](docs/${name}.md)${remark}) | [report](${report}) |`
    );
  });
  return ['| Peer | Version | Tried | Interop | Conformance |', '|---|---|---|---|---|', ...rows].join('\n');
}

/** Each page with what it should hold. */
export function pages(): { readonly name: string; readonly is: string; readonly shouldBe: string }[] {
  const tried = RESULTS.filter(({ file }) => existsSync(file)).map(
    (results) => [results, JSON.parse(readFileSync(results.file, 'utf8')) as InteropPair] as const,
  );
  const readme = readFileSync(README, 'utf8');
  return [
    { name: README, is: readme, shouldBe: between(readme, 'README.md', MARKS, renderPeers(tried)) },
    ...tried.map(([results, pair]) => ({
      name: results.page,
      is: existsSync(results.page) ? readFileSync(results.page, 'utf8') : '',
      shouldBe: renderInteropPage(pair, results),
    })),
  ];
}

function main(): number {
  const { values } = parseArgs({
    options: {
      first: { type: 'string', multiple: true },
      second: { type: 'string', multiple: true },
      note: { type: 'string' },
      check: { type: 'boolean' },
    },
  });
  if (values.second !== undefined) {
    const note = values.note === undefined ? {} : { note: values.note };
    const read = (names: readonly string[] | undefined): InteropRecord[] =>
      (names ?? []).map((name) => JSON.parse(readFileSync(name, 'utf8')) as InteropRecord);
    const { line } = kernelOf(process.env);
    writeFileSync(
      RESULTS.find((results) => results.line === line)!.file,
      `${JSON.stringify({ ...pairOf(read(values.first), read(values.second)), ...note }, null, 1)}\n`,
    );
  }
  const stale = pages().filter(({ is, shouldBe }) => is !== shouldBe);
  if (values.check !== true) for (const { name, shouldBe } of stale) writeFileSync(name, shouldBe);
  else
    for (const { name } of stale)
      process.stderr.write(`${name} is out of date: npx tsx scripts/docs-interop.ts\n`);
  return values.check === true && stale.length > 0 ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main();
