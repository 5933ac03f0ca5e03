// One self-contained HTML page: totals, a matrix of all requirements by document and section, every failure
// with its decoded octets and the clause in words, and the list of cases.

import { GROUPS, requirements } from '../catalogue/index.ts';
import type { Requirement } from '../catalogue/index.ts';
import { unobservable } from '../unobservable.ts';
import type { Report, ReportEvent, ReportResult } from './model.ts';

type Cell = 'pass' | 'fail' | 'waived' | 'skip' | 'none';

const WORDS: Readonly<Record<Cell, string>> = {
  pass: 'passed',
  fail: 'failed',
  waived: 'failed, waived',
  skip: 'left out',
  none: 'no case in this run',
};

const STYLE = `
:root{color-scheme:light dark;--pass:#2e7d32;--fail:#c62828;--waived:#ef8f00;--skip:#78909c;
  --none:#b0bec5;--line:#8884}
body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:70rem;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin-top:2rem}h3{font-size:1rem;margin:.8rem 0 .2rem}
.totals{display:flex;gap:.6rem;flex-wrap:wrap;margin:1rem 0}
.totals div{border:1px solid var(--line);border-radius:.5rem;padding:.4rem .9rem}
.totals b{display:block;font-size:1.3rem}
.bar{display:flex;height:.7rem;border-radius:.4rem;overflow:hidden}.bar span{display:block}
.sect{display:grid;grid-template-columns:11rem 1fr;gap:.15rem .6rem;align-items:center;margin:.1rem 0}
.sect>span{font-size:.85rem;opacity:.8}.cells{display:flex;flex-wrap:wrap;gap:2px}
.cell{font:11px/1.9 ui-monospace,monospace;width:2.6rem;text-align:center;border-radius:3px;color:#fff;
  cursor:default}
.pass{background:var(--pass)}.fail{background:var(--fail)}.waived{background:var(--waived)}
.skip{background:var(--skip)}.none{background:var(--none);color:#222}
details{border:1px solid var(--line);border-radius:.5rem;margin:.4rem 0;padding:.3rem .8rem}
summary{cursor:pointer}dl{display:grid;grid-template-columns:6rem 1fr;gap:.15rem .6rem;margin:.5rem 0}
dt{opacity:.7}dd{margin:0}
pre{font:12.5px/1.4 ui-monospace,monospace;overflow-x:auto;margin:.2rem 0 .6rem 1.2rem}
code{font:12.5px ui-monospace,monospace}.probe{color:#1565c0}.peer{color:#ad1457}
table{border-collapse:collapse;width:100%;font-size:.88rem}
td,th{border-bottom:1px solid var(--line);padding:.15rem .4rem;text-align:left;vertical-align:top}
td .cell{display:inline-block;width:5.2rem}
input{font:inherit;padding:.2rem .5rem;width:22rem;max-width:100%}
@media (prefers-color-scheme:dark){.probe{color:#82b1ff}.peer{color:#f48fb1}}`;

const SCRIPT = `
const q=document.getElementById('q');q.addEventListener('input',()=>{const t=q.value.toLowerCase();
for(const r of document.querySelectorAll('#cases tbody tr'))
r.hidden=!r.textContent.toLowerCase().includes(t)});`;

/** The page. */
export function htmlReport(report: Report): string {
  const bad = report.results.filter((r) => r.unexpected);
  const waived = report.results.filter((r) => r.verdict === 'fail' && r.waiver !== null);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>iWARP conformance: ${esc(report.peer)}</title><style>${STYLE}</style></head><body>
<h1>iWARP conformance</h1>
<p>Peer: <b>${esc(report.peer)}</b> · profile ${esc(report.profile)}${report.strict ? ' · strict' : ''}
· seed ${report.seed} · ${esc(report.began)} · ${report.seconds.toFixed(1)} s</p>
${report.stopped == null ? '' : `<p><b>Stopped:</b> ${esc(report.stopped)}</p>`}
${totals(report)}
<h2>Requirements by clause</h2>
<p>One cell a requirement; hover for its words. Green passed, red failed, orange failed with a waiver, grey
left out, pale no case in this run.</p>
${GROUPS.filter((group) => group !== 'VERBS')
  .map((group) => matrix(group, report.results))
  .join('\n')}
<h2>Unexpected (${bad.length})</h2>
${bad.length === 0 ? '<p>None.</p>' : bad.map(failure).join('\n')}
<h2>Waived (${waived.length})</h2>
${waived.length === 0 ? '<p>None.</p>' : waived.map(failure).join('\n')}
<h2>All cases</h2>
<p><input id="q" placeholder="filter by name, requirement or word" aria-label="filter"></p>
<table id="cases"><thead><tr><th>result</th><th>case</th><th>probe is</th><th>what it does</th>
<th>requirements</th></tr></thead><tbody>
${report.results.map(row).join('\n')}
</tbody></table><script>${SCRIPT}</script></body></html>
`;
}

function totals({ totals: t }: Report): string {
  const box = (label: string, value: number): string => `<div><b>${value}</b>${label}</div>`;
  const part = (cell: Cell, value: number): string =>
    value === 0 ? '' : `<span class="${cell}" style="flex:${value}" title="${value} ${WORDS[cell]}"></span>`;
  const boxes = [
    box('run', t.run),
    box('passed', t.passed),
    box('failed', t.failed),
    box('waived', t.waived),
    box('errors', t.errors),
    box('left out', t.skipped),
    box('unexpected', t.unexpected),
  ];
  const parts = [
    part('pass', t.passed),
    part('fail', t.failed + t.errors),
    part('waived', t.waived),
    part('skip', t.skipped),
  ];
  return `<div class="totals">${boxes.join('')}</div>\n<div class="bar">${parts.join('')}</div>`;
}

/** One row a section of the document, one cell a requirement. */
function matrix(group: string, results: readonly ReportResult[]): string {
  const sections = new Map<string, Requirement[]>();
  for (const entry of requirements.filter((r) => r.group === group && r.kind === 'wire')) {
    const section = /^((?:RFC \d+|verbs draft) [\d.A-Za-z]+)/.exec(entry.clause)?.[1] ?? entry.clause;
    sections.set(section, [...(sections.get(section) ?? []), entry]);
  }
  const sorted = [...sections].toSorted(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }));
  const rows = sorted.map(
    ([section, entries]) =>
      `<div class="sect"><span>${esc(section)}</span>` +
      `<div class="cells">${entries.map((entry) => cell(entry, results)).join('')}</div></div>`,
  );
  return `<h3>${group}</h3>${rows.join('')}`;
}

function cell(entry: Requirement, results: readonly ReportResult[]): string {
  const mine = results.filter((r) => r.requirements.includes(entry.id) || r.blamed.includes(entry.id));
  const state = stateOf(mine);
  const count = `${mine.length} runs`;
  const why = state === 'none' ? (unobservable[entry.id] ?? WORDS.none) : `${count}, ${WORDS[state]}`;
  return (
    `<span class="cell ${state}" ` +
    `title="${esc(`${entry.id} (${entry.clause}, ${entry.level}) ${entry.text} — ${why}`)}">` +
    `${entry.id.split('-')[1]}</span>`
  );
}

function stateOf(results: readonly ReportResult[]): Cell {
  if (results.length === 0) return 'none';
  if (results.some((r) => r.verdict === 'error' || (r.verdict === 'fail' && r.waiver === null)))
    return 'fail';
  if (results.some((r) => r.verdict === 'fail')) return 'waived';
  return results.some((r) => r.verdict === 'pass') ? 'pass' : 'skip';
}

function failure(result: ReportResult): string {
  const clauses = [...new Set([...result.requirements, ...result.blamed])].flatMap((id) =>
    requirements.filter((r) => r.id === id),
  );
  const actual =
    result.verdict === 'error'
      ? result.reason
      : result.verdict === 'pass'
        ? 'passed in spite of its waiver'
        : result.actual;
  const style = 'display:inline-block;width:auto;padding:0 .4rem';
  const { pcap } = result;
  return `<details><summary>
<span class="cell ${cellOf(result)}" style="${style}">${esc(result.verdict)}</span>
<code>${esc(result.id)}</code> [${esc(result.role)}] ${esc(result.title)}</summary>
<dl><dt>expected</dt><dd>${esc(result.expected)}</dd><dt>actual</dt><dd>${esc(actual)}</dd>
${result.waiver === null ? '' : `<dt>waiver</dt><dd>${esc(result.waiver)}</dd>`}
${clauses.map((r) => `<dt>${r.id}</dt><dd>${esc(`${r.clause}, ${r.level}: ${r.text}`)}</dd>`).join('')}
<dt>again</dt><dd><code>${esc(result.replay)}</code></dd>
${pcap === null ? '' : `<dt>capture</dt><dd><code>${esc(pcap)}</code></dd>`}</dl>
${result.events.map(event).join('')}</details>`;
}

function event({ from, text, fields }: ReportEvent): string {
  const arrow = from === 'probe' ? '→' : from === 'peer' ? '←' : '·';
  const rows = fields.map((f) => {
    const hex =
      (f.octets.match(/../g) ?? []).slice(0, 24).join(' ') +
      (f.length > 24 ? ` … ${f.length - 24} more` : '');
    return (
      `${f.offset.toString(16).padStart(4, '0')}  ${hex.padEnd(50)}  ` +
      `${f.name}${f.value === '' ? '' : `: ${f.value}`}`
    );
  });
  return (
    `<div class="${from}">${arrow} ` +
    `${esc(text)}</div>${rows.length === 0 ? '' : `<pre>${esc(rows.join('\n'))}</pre>`}`
  );
}

function row(result: ReportResult): string {
  const state = cellOf(result);
  return (
    `<tr><td><span class="cell ${state}">${esc(result.verdict)}</span></td>` +
    `<td><code>${esc(result.id)}</code></td><td>${esc(result.role)}</td>` +
    `<td>${esc(result.title)}</td><td>${result.requirements.map(esc).join(' ')}</td></tr>`
  );
}

function cellOf(result: ReportResult): Cell {
  if (result.verdict === 'skip') return 'skip';
  if (result.verdict === 'pass') return result.unexpected ? 'fail' : 'pass';
  return result.verdict === 'fail' && result.waiver !== null ? 'waived' : 'fail';
}

function esc(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
