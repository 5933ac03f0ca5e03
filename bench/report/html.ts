/** The report: one HTML file with everything in it, for a reader new to the code. */
import { figureText, goalCounts, spreadText } from '../goals.ts';
import type { CaseResult, ExperimentResult, GoalResult, ProbeResult, RunResult } from '../types.ts';
import { glanceFigure, plots, probePlots, type Figure } from './charts.ts';
import { COSTS, ratioColumns, type RatioColumn } from './columns.ts';
import { apartText, labelOf, octets } from './label.ts';

const STYLE = `
:root{color-scheme:light dark;--ink:#222;--soft:#555;--line:#ccc;--faint:#e6e6e6;--paper:#fff;
  --note:#fff6d8;--here:#eef6fb;--link:#0645ad;--good:#d9efdc;--near:#fff0c2;--bad:#f8d7d3}
@media(prefers-color-scheme:dark){:root{--ink:#e4e4e4;--soft:#b0b0b0;--line:#555;--faint:#3a3a3a;
  --paper:#181a1b;--note:#4a3f16;--here:#1d3040;--link:#8ab4f8;--good:#1f4a2a;--near:#54460f;
  --bad:#5c241d}}
body{font:16px/1.5 sans-serif;max-width:940px;margin:2em auto;padding:0 1em;color:var(--ink);
  background:var(--paper)}
a{color:var(--link)}h1{margin-bottom:.2em}h2{margin-top:2.2em;border-bottom:1px solid var(--line)}
figure{margin:1.6em 0 2em;overflow-x:auto}
figure svg{display:block;background:#fff;width:100%;min-width:740px;height:auto}
@media(prefers-color-scheme:dark){figure svg{filter:invert(.9) hue-rotate(180deg)}}
figcaption{margin-bottom:.4em;position:sticky;left:0}figcaption b{display:block}
figcaption span{color:var(--soft);font-size:14px}table{border-collapse:collapse;font-size:13px;width:100%}
td,th{padding:2px 8px;text-align:right;border-bottom:1px solid var(--faint);vertical-align:bottom}
td:first-child,th:first-child{text-align:left}details td,.glance td:nth-child(2){white-space:nowrap}
details,.wide{overflow-x:auto}summary{cursor:pointer}.note{background:var(--note);padding:.5em 1em}
.here{background:var(--here);padding:.2em .8em}dt{font-weight:bold;margin-top:1em}dd{margin-left:1.2em}
.source{color:var(--soft);font-size:14px}nav{columns:2;font-size:14px}nav a{display:block}
.glance td{font-size:15px;padding:4px 8px}
.goals td,.goals th{vertical-align:top;text-align:left;padding:4px 8px}
.goals td:first-child{min-width:11em}.goals .n{text-align:right;white-space:nowrap}
.goals .group td{font-weight:bold;padding-top:1em;border-bottom:1px solid var(--line)}
.goals .met{background:var(--good)}.goals .near{background:var(--near)}
.goals .missed{background:var(--bad)}.goals .limit{color:var(--soft);min-width:15em}
@media(max-width:600px){nav{columns:1}}`;

const escape = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
/** NaN becomes null in JSON. */
const show = (value: number | null | undefined, digits = 2): string =>
  typeof value === 'number' && Number.isFinite(value) ? value.toFixed(digits) : '–';
const clock = (seconds: number): string =>
  seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} minutes`;
const figure = ({ caption, see, svg }: Figure): string =>
  `<figure><figcaption><b>${escape(caption)}</b><span>${escape(see)}</span></figcaption>` +
  `${svg.replace('<svg ', `<svg aria-label="${escape(caption).replaceAll('"', '&quot;')}" `)}</figure>`;
const missing = (list: ExperimentResult['missing']): string[] =>
  list.map(({ id, reason }) => `<p class="note">Not measured: ${escape(id)} (${escape(reason)})</p>`);

function row(experiment: ExperimentResult, ratios: readonly RatioColumn[], one: CaseResult): string {
  const place = experiment.axis === 'case' ? labelOf(experiment, one) : `${one.series}, ${octets(one.x)}`;
  const { latency } = one;
  const spread = (of: CaseResult['value'] | undefined): string =>
    of === undefined ? '–' : `${show(of.median)} (${show(of.low)}–${show(of.high)})`;
  const figures =
    latency === null
      ? [spread(one.value), show(one.messageRate, 3)]
      : [spread(one.value), show(latency.p99), show(latency.p999)];
  const cells = [
    ...figures,
    ...ratios.map(({ of }) => spread(of(one))),
    ...COSTS.map(({ of, digits }) => show(of(one), digits)),
  ];
  return (
    `<tr><td>${escape(place)}${one.disturbed ? ' *' : ''}</td>` +
    `${cells.map((text) => `<td>${text}</td>`).join('')}</tr>`
  );
}

/** The texts of this part's scenarios, beside its pictures. */
function said(run: RunResult, needs: (name: string) => boolean): string[] {
  return run.scenarios
    .filter(({ name }) => needs(name))
    .map(({ here }) => `<p class="here">${escape(here[0]!.toUpperCase() + here.slice(1))}.</p>`);
}

function section(run: RunResult, experiment: ExperimentResult): string {
  const heads =
    experiment.test === 'lat' ? ['median us (quartiles)', '99 %', '99.9 %'] : ['GB/s (quartiles)', 'M msg/s'];
  const ratios = ratioColumns(experiment);
  const far = apartText(experiment.apart);
  const head = ['', ...heads, ...ratios.map((column) => column.head), ...COSTS.map((column) => column.head)];
  return [
    `<h2 id="${experiment.id}">${escape(experiment.title)}</h2><p>${escape(experiment.about)}</p>`,
    ...said(run, (name) => name === experiment.id || ALSO[name] === experiment.id),
    ...plots(experiment).map(figure),
    '<details><summary>All figures, with processor time, event loop and ' +
      `memory</summary><table><tr>${head.map((text) => `<th>${escape(text)}</th>`).join('')}</tr>`,
    ...experiment.cases.map((one) => row(experiment, ratios, one)),
    '</table>',
    ...(far === '' ? [] : [`<p>${escape(far)}.</p>`]),
    '</details>',
    ...missing(experiment.missing),
  ].join('\n');
}

/** Scenarios whose name is not that of the part where they are shown. */
const ALSO: Readonly<Record<string, string>> = {
  'in-flight': 'depth',
  'hot-spot': 'hotspot',
  'crc-markers': 'crc',
  perftest: 'latency-size',
};

function probeSection(run: RunResult, probe: ProbeResult): string {
  const heads = ['', ...probe.columns].map((text) => `<th>${escape(text)}</th>`).join('');
  const rows = probe.rows.map(
    ({ label, cells }) =>
      `<tr><td>${escape(label)}</td>` +
      `${cells.map((value) => `<td>${value === null ? '–' : escape(String(value))}</td>`).join('')}` +
      '</tr>',
  );
  const long = probe.rows.length > 12;
  const table = `<table><tr>${heads}</tr>${rows.join('\n')}</table>`;
  return [
    `<h2 id="${probe.id}">${escape(probe.title)}${probe.disturbed ? ' *' : ''}</h2><p>` +
      `${escape(probe.about)}</p>`,
    ...said(run, (name) => name === probe.id),
    ...probePlots(probe.charts).map(figure),
    ...(probe.picture === undefined ? [] : [figure(probe.picture)]),
    long ? `<details><summary>All figures</summary>${table}</details>` : `<div class="wide">${table}</div>`,
    ...missing(probe.missing),
  ].join('\n');
}

const LOOKS: Readonly<Record<GoalResult['verdict'], string>> = {
  met: 'met',
  'in the spread': 'near',
  missed: 'missed',
  'not measured': '',
  'no goal': '',
};

/** Every goal with its figure. */
function goalsSection({ goals }: RunResult): string {
  const measured = goals.filter(({ figure: found }) => found !== null);
  if (measured.length === 0) return '';
  const { all, figures, of: count } = goalCounts(goals);
  let group = '';
  const rows = goals.map((goal) => {
    const head =
      goal.group === group ? '' : `<tr class="group"><td colspan="6">${escape(goal.group)}</td></tr>`;
    ({ group } = goal);
    const star = goal.disturbed ? ' *' : '';
    return (
      `${head}<tr><td>${escape(goal.what)}</td><td class="n">${escape(goal.goal)}</td>` +
      `<td class="n"><b>${figureText(goal.figure)}</b></td>` +
      `<td class="${LOOKS[goal.verdict]}">${goal.verdict}${star}</td>` +
      `<td class="n">${spreadText(goal.figure).replace(', ', '<br>')}</td>` +
      `<td class="limit">${escape(goal.limit)}</td></tr>`
    );
  });
  return `<h2 id="goals">The goals, and how this run meets them</h2>
<p>Before the stack was built, prototypes showed what can be had, and goals were set. Each is a ratio:
0.90 against bare onread means nine tenths of the rate of bare sockets.
${count('met')} of ${all} are met; of ${count('in the spread')} the median falls short but the better
quartile does not; ${count('missed')} are missed; ${count('not measured')} were not measured.
${figures} figures beside them have no goal.</p>
<div class="wide"><table class="goals"><tr><th>what</th><th class="n">goal</th><th class="n">median</th>
<th>state</th><th class="n">quartiles</th><th>what limits it now</th></tr>
${rows.join('\n')}</table></div>`;
}

/** Names of the groups of cases that the first picture shows. */
const GLANCE: Readonly<Record<string, string>> = {
  'bulk/1048576': '1 MiB',
  'small/4096': '4 KiB in lists',
  'rate/64': '64 bytes in lists',
  'latency/64': 'latency, 64 bytes',
};

/** The answer in one picture and one table, for a reader with one minute. */
function glance(run: RunResult): string {
  const cases = new Map(
    run.experiments.flatMap((experiment) => experiment.cases).map((one) => [one.id, one]),
  );
  const ratios: { label: string; value: number }[] = [];
  const line = (what: string, id: string, base: string, unit: string, how = ''): string => {
    const one = cases.get(id);
    const prefix = id.slice(0, id.lastIndexOf('/'));
    const ratio = one?.ratios[`${prefix}/${base}`]?.median;
    const value = one === undefined ? undefined : unit === 'M/s' ? one.messageRate : one.value.median;
    if (typeof ratio === 'number' && Number.isFinite(ratio) && !id.endsWith('no CRC'))
      ratios.push({ label: `${GLANCE[prefix] ?? prefix}, against ${base}`, value: ratio });
    return one === undefined
      ? ''
      : `<tr><td>${what}</td><td>${show(value)} ${unit}</td><td>${show(ratio)} times ` +
          `${escape(base)}${how}</td></tr>`;
  };
  const MIB = 1 << 20;
  const rows = [
    line('Large messages (Writes of 1 MiB), no checksum', `bulk/${MIB}/Write, no CRC`, 'TCP, onread', 'GB/s'),
    line('the same with checksum', `bulk/${MIB}/Write, CRC`, 'TCP, onread', 'GB/s'),
    line('the same with checksum', `bulk/${MIB}/Write, CRC`, "TCP, 'data'", 'GB/s'),
    line('the same with checksum', `bulk/${MIB}/Write, CRC`, 'ws', 'GB/s'),
    line('the same with checksum', `bulk/${MIB}/Write, CRC`, 'grpc-js', 'GB/s'),
    line(
      'Writes of 4 KiB posted in lists, with checksum',
      'small/4096/Write, CRC',
      'TCP, onread',
      'GB/s',
      ', one write each',
    ),
    line(
      'Writes of 64 bytes posted in lists, with checksum',
      'rate/64/Write, CRC',
      'TCP, onread',
      'M/s',
      ', one write each',
    ),
    line(
      'Latency of 64 bytes, with checksum (less is better)',
      'latency/64/Send, CRC',
      'TCP, onread',
      'us',
      ', asleep; the stack stays awake for 50 us',
    ),
    line(
      'the same, beside sockets that stay awake too',
      'latency/64/Send, CRC',
      'TCP, onread, polling',
      'us',
    ),
  ].filter((text) => text !== '');
  if (rows.length === 0) return '';
  const picture = ratios.length === 0 ? '' : figure(glanceFigure(ratios));
  return `${picture}<div class="wide"><table class="glance">${rows.join('')}</table></div>`;
}

function introduction(run: RunResult): string {
  const { method } = run;
  const all = [...run.experiments.flatMap((experiment) => experiment.cases), ...run.probes];
  const disturbed = all.filter((one) => one.disturbed).length;
  const machine = Object.entries(run.machine)
    .map(([name, value]) => `<tr><td>${escape(name)}</td><td>${escape(value)}</td></tr>`)
    .join('');
  return `<p>RDMA lets one program read and write the memory of another across a network. This package does it
in TypeScript, on an ordinary TCP connection. This page shows the cost: the same bytes are sent by this
package, by bare TCP sockets of Node (read into one buffer, <i>onread</i>, or as <i>'data'</i> events), by the
packages ws and grpc-js, and by a small C program, each between two processes of one machine.</p>
<p><b>Write</b> and <b>Read</b> move memory without an action of the other program, <b>Send</b> delivers a
message. <b>CRC</b> is the checksum that iWARP puts on each piece (FPDU) of the stream, <b>markers</b> are
signposts in it, for adapters; two peers can agree to do without either. With <b>worker</b> the protocol runs
in a separate thread, otherwise in the program's. Messages <b>under way</b> are posted and not yet completed.
A GB is 10<sup>9</sup> bytes, a KiB 1024 bytes; us is a millionth of a second.</p>
<p>Believe the <b>ratios</b>, not the GB/s: the machine's speed changes from second to second. So all programs
that a picture compares at one place live at the same time, idle, and have turns of
${method.windows} x ${method.windowMs} ms, in up to ${method.rounds} rounds (over connections, clients and
FPDU sizes the places of one line take turns). Times in which the host took the processor away were dropped,
and where a goal is judged also turns in which the two processors were nearer to each other or farther than
usual, since the host moves them. A ratio is taken inside a round, and the median is shown. In brackets stand
the quartiles. A star marks results to be taken with care (${disturbed} of ${all.length}): too little
undisturbed time was left, or other programs used more than half a core meanwhile.</p>
<p>Run of ${escape(run.started)}, mode ${escape(run.mode)}, ${clock(run.seconds)}.</p>
<details><summary>The machine</summary><table>${machine}</table></details>`;
}

function papers(run: RunResult): string {
  if (run.scenarios.length === 0) return '';
  const items = run.scenarios.map(
    ({ question, source, there, here }) =>
      `<dt>${escape(question)}</dt><dd>Seen there: ` +
      `${escape(there)}.${source === '' ? '' : ` <span class="source">${escape(source)}.</span>`}` +
      `</dd><dd>Seen here: ${escape(here)}.</dd>`,
  );
  return `<h2 id="papers">The experiments of the papers</h2>
<p>Results of other groups, on other machines and in other years, beside those of this run. Shapes compare,
figures do not. Where a paper is named, the line has its finding; where none is, the line is general
knowledge.</p>
<dl>${items.join('\n')}</dl>`;
}

/** The report of a run: the pictures first, the words about the method last. */
export function report(run: RunResult): string {
  const parts = [...run.experiments, ...run.probes].map(
    ({ id, title }) => `<a href="#${id}">${escape(title)}</a>`,
  );
  return `<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>iwarp: how fast</title>
<style>${STYLE}</style><h1>How fast is iwarp?</h1>
${glance(run)}
<h2>Contents</h2><nav>${parts.join('')}<a href="#papers">The experiments of the papers</a>
<a href="#goals">The goals, and how this run meets them</a>
<a href="#method">What was measured, and how</a></nav>
${run.experiments.map((experiment) => section(run, experiment)).join('\n')}
${run.probes.map((probe) => probeSection(run, probe)).join('\n')}
${papers(run)}
${goalsSection(run)}
<h2 id="method">What was measured, and how</h2>
${introduction(run)}
</html>
`;
}
