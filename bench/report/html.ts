/** The report: one HTML file with everything in it, for someone who has not read the code. */
import type { CaseResult, ExperimentResult, RunResult } from '../types.ts';
import { octets, plots } from './charts.ts';

const STYLE = `body{font:16px/1.5 sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}h1{margin-bottom:.2em}
h2{margin-top:2em;border-bottom:1px solid #ccc}svg{max-width:100%;height:auto}figure{margin:1em 0}figcaption{color:#555;font-size:14px}
table{border-collapse:collapse;font-size:13px;width:100%}td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}.note{background:#fff6d8;padding:.5em 1em}dt{font-weight:bold;margin-top:.7em}`;

const escape = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
/** NaN is null behind JSON. */
const show = (value: number | null | undefined, digits = 2): string => (typeof value === 'number' && Number.isFinite(value) ? value.toFixed(digits) : '–');

function row(experiment: ExperimentResult, one: CaseResult): string {
  const place = experiment.axis === 'case' && experiment.id !== 'spread' ? one.series : `${one.series}, ${octets(one.x)}`;
  const { cost, latency } = one;
  const tcp = Object.entries(one.ratios).find(([id]) => id.endsWith('TCP, onread'))?.[1];
  const ratio = tcp === undefined ? '–' : `${show(tcp.median)} (${show(tcp.low)}–${show(tcp.high)})`;
  const figures = latency === null
    ? [`${show(one.value.median)} (${show(one.value.low)}–${show(one.value.high)})`, show(one.messageRate, 3)]
    : [`${show(one.value.median)} (${show(one.value.low)}–${show(one.value.high)})`, show(latency.p99), show(latency.p999)];
  const costs = [show(cost.clientPerByte), show(cost.serverPerByte), show(cost.gcShare * 100, 1), show(cost.serverLoopP99, 1), show(cost.serverRss, 0)];
  return `<tr><td>${escape(place)}${one.disturbed ? ' *' : ''}</td>${[...figures, ratio, ...costs].map((text) => `<td>${text}</td>`).join('')}</tr>`;
}

function section(experiment: ExperimentResult): string {
  const figures = plots(experiment).map(({ caption, svg }) => `<figure>${svg}<figcaption>${escape(caption)}</figcaption></figure>`);
  const heads = experiment.test === 'lat' ? ['median us (quartiles)', '99 %', '99.9 %'] : ['GB/s (quartiles)', 'M msg/s'];
  const head = ['', ...heads, 'ratio to TCP', 'client CPU ns/octet', 'server CPU ns/octet', 'GC %', 'loop delay 99 % ms', 'server MiB'];
  return [
    `<h2 id="${experiment.id}">${escape(experiment.title)}</h2><p>${escape(experiment.about)}</p>`, ...figures,
    `<details><summary>Figures</summary><table><tr>${head.map((text) => `<th>${text}</th>`).join('')}</tr>`,
    ...experiment.cases.map((one) => row(experiment, one)), '</table></details>',
    ...experiment.missing.map(({ id, reason }) => `<p class="note">Not measured: ${escape(id)} (${escape(reason)})</p>`),
  ].join('\n');
}

function introduction(run: RunResult): string {
  const { method } = run;
  const all = run.experiments.flatMap((experiment) => experiment.cases);
  const disturbed = all.filter((one) => one.disturbed).length;
  const machine = Object.entries(run.machine).map(([name, value]) => `<tr><td>${escape(name)}</td><td>${escape(value)}</td></tr>`).join('');
  return `<p>RDMA lets one program read and write the memory of another across a network. This package does it in TypeScript, on an ordinary
TCP connection. The question of this page is what that costs: the same octets are sent by this package, by bare TCP sockets of Node
(read into one buffer, <i>onread</i>, or as <i>'data'</i> events), by the packages ws and grpc-js, and by a small C program, each between two
processes of one machine. <b>Write</b> and <b>Read</b> move memory without the other program's doing, <b>Send</b> delivers a message.
<b>CRC</b> is the checksum that iWARP puts on each piece; it can be agreed off.</p>
<p>Believe the <b>ratios</b>, not the GB/s: the machine's speed changes from second to second. So all that a picture compares
was running at the same time, idle, and measured in turns of ${method.windows} x ${method.windowMs} ms, ${method.rounds} rounds; times in which the host took the processor away
were dropped; a ratio is taken inside a round, and what is shown is the median. In brackets stand the quartiles. A star marks results to be taken with care (${disturbed} of ${all.length}):
too little undisturbed time was left, or other programs used more than half a core meanwhile. Not measured: an engine in a worker thread, which does not exist yet.</p>
<p>Run of ${escape(run.started)}, mode ${escape(run.mode)}, ${run.seconds} s.</p><table>${machine}</table>`;
}

/** The report of a run. */
export function report(run: RunResult): string {
  const said = run.scenarios.map(({ question, there, here }) => `<dt>${escape(question)}</dt><dd>Seen there: ${escape(there)}.<br>Seen here: ${escape(here)}.</dd>`);
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>iwarp: how fast</title>
<style>${STYLE}</style><h1>How fast is iwarp?</h1>${introduction(run)}
${run.experiments.map(section).join('\n')}
${said.length === 0 ? '' : `<h2>The experiments of the papers</h2><p>What others saw, on other machines and in other years, and what is seen here. Shapes compare, figures do not.</p><dl>${said.join('')}</dl>`}
</html>
`;
}
