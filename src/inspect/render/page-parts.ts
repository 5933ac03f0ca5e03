/**
 * Style and script of the page that page.ts writes. The script runs in a browser: plain JavaScript, no
 * resources, no network.
 */

export const PAGE_STYLE = `
:root {
  color-scheme: light dark; --line: #8a94a3; --bg: #fff; --fg: #1b2330; --soft: #eef1f5;
  --hit: #fff0a8; --bad: #c62828; --pick: #d7e8ff; --left: 76px; --right: 54px;
}
@media (prefers-color-scheme: dark) {
  :root {
    --line: #6b7686; --bg: #14181f; --fg: #dde3ec; --soft: #1f2530;
    --hit: #5b4c00; --bad: #ff6b6b; --pick: #1d3a5f;
  }
  .row .label b { filter: brightness(1.7); }
  .row .arrow { filter: brightness(1.4); }
}
* { box-sizing: border-box; }
body {
  margin: 0; height: 100vh; display: flex; flex-direction: column;
  font: 13px/1.4 system-ui, sans-serif; color: var(--fg); background: var(--bg);
}
header {
  display: flex; gap: 12px; align-items: center; flex-wrap: wrap; padding: 6px 12px;
  border-bottom: 1px solid var(--line);
}
h1 { font-size: 14px; margin: 0; }
header label { display: flex; gap: 5px; align-items: center; }
header select { max-width: 26em; }
header button { padding: 0 6px; }
main { flex: 1; display: flex; min-height: 0; }
#ladder { flex: 1; overflow: auto; position: relative; min-width: 520px; outline: none; }
#ends {
  position: sticky; top: 0; height: 26px; z-index: 2; background: var(--bg);
  border-bottom: 1px solid var(--line); font-weight: 600;
}
#ends span { position: absolute; top: 4px; white-space: nowrap; }
#ends span:first-child { left: 6px; }
#ends span:last-child { right: 6px; }
#space { position: relative; }
#space::before, #space::after {
  content: ''; position: absolute; top: 0; bottom: 0; width: 2px; background: var(--line);
}
#space::before { left: var(--left); } #space::after { right: var(--right); }
.row { position: absolute; left: 0; right: 0; cursor: pointer; }
.row:hover { background: var(--soft); }
.row.hit { background: var(--hit); }
.row.pick { background: var(--pick); }
.row time { position: absolute; left: 6px; bottom: 0; font: 11px ui-monospace, monospace; opacity: .75; }
.row .label {
  position: absolute; left: calc(var(--left) + 8px); right: calc(var(--right) + 8px); bottom: 5px;
  text-align: center; white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
}
.row .label b { color: var(--tone); }
.row .bytes, .row .last { opacity: .7; margin-left: .8em; }
.row .last { font-weight: 600; }
.row .number { position: absolute; right: 6px; bottom: 0; font: 11px ui-monospace, monospace; opacity: .6; }
.row .arrow {
  position: absolute; left: var(--left); right: var(--right); bottom: 3px; height: 2px;
  background: var(--tone);
}
.row .arrow::after { content: ''; position: absolute; top: -4px; border: 5px solid transparent; }
.row.d0 .arrow::after { right: 0; border-left-color: var(--tone); border-right: 0; }
.row.d1 .arrow::after { left: 0; border-right-color: var(--tone); border-left: 0; }
.row.note .arrow { background: repeating-linear-gradient(90deg, var(--line) 0 4px, transparent 4px 8px); }
.row.note .arrow::after { display: none; }
.row.note .label { font-style: italic; opacity: .85; }
.row.bad .arrow { height: 3px; } .row.bad time, .row.bad .label, .bad { color: var(--bad); }
.row.bad .label b { color: var(--bad); }
.small time, .small .label, .small .number { display: none; }
.small .arrow::after { display: none; }
/* Too small for heads: a line grows darker towards where it goes. */
.small .row.d0:not(.note) .arrow { background: linear-gradient(90deg, transparent, var(--tone) 85%); }
.small .row.d1:not(.note) .arrow { background: linear-gradient(270deg, transparent, var(--tone) 85%); }
#detail {
  flex: 0 1 590px; overflow: auto; border-left: 1px solid var(--line); padding: 8px 12px; min-width: 320px;
}
#detail h2 { font-size: 13px; margin: 0 0 2px; }
#detail p { margin: 4px 0; }
#detail .where { opacity: .75; margin-bottom: 8px; }
#detail pre, #detail table { font: 12px/1.5 ui-monospace, monospace; }
#detail table { border-collapse: collapse; width: 100%; }
#detail td { vertical-align: top; padding: 0 8px 0 0; } #detail tr.on td { background: var(--pick); }
#detail tr[data-at] { cursor: default; }
#dump i { font-style: normal; }
#dump i.on { background: var(--pick); }
#detail #dump { margin: 10px 0; white-space: pre; font: 12px/1.5 ui-monospace, monospace; }
#summary { white-space: pre-wrap; opacity: .85; }
@media (max-width: 700px) {
  main { flex-direction: column; }
  #ladder { min-width: 0; min-height: 45%; }
  #detail { flex: 1; border-left: 0; border-top: 1px solid var(--line); min-width: 0; }
  #detail td { overflow-wrap: anywhere; }
  header { gap: 6px 10px; }
  header label, header select { max-width: 100%; }
  header label input[type='search'] { width: 12em; }
  :root { --right: 34px; }
}
`;

export const PAGE_SCRIPT = `
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const el = (id) => document.getElementById(id);
const ladder = el('ladder'), rows = el('rows'), space = el('space'), detail = el('detail');
const TONES = {
  'MPA Req': '#546e7a', 'MPA Rep': '#546e7a', Write: '#2f7d32',
  Send: '#1565c0', SendSE: '#1565c0', SendInv: '#1565c0', SendSEInv: '#1565c0',
  ReadReq: '#8e24aa', ReadResp: '#ab47bc', Terminate: '#c62828',
  Imm: '#00838f', ImmSE: '#00838f', AtomicReq: '#ef6c00', AtomicResp: '#fb8c00',
};
const LABEL_HEIGHT = 16, MAX_ELEMENT = 15000000;
let shown = [], hits = [], hitAt = -1, picked = null, height = 26, needle = '';

function text(event) {
  return [event.o, event.f, ...event.p.flat()].join(' ').toLowerCase();
}
function node(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

function fillConnections() {
  const select = el('connection');
  const kept = select.value;
  select.replaceChildren();
  for (const connection of data.connections) {
    const option = node('option', '', '#' + connection.n + '  ' + connection.ends.join('  -  '));
    option.value = connection.n;
    select.append(option);
  }
  if (kept) select.value = kept;
}

function choose() {
  const number = Number(el('connection').value);
  const errors = el('errors').checked;
  shown = data.events.filter((event) => event.c === number && (!errors || event.p.length > 0));
  const connection = data.connections.find((one) => one.n === number);
  el('ends').replaceChildren();
  if (connection) {
    for (const end of connection.ends) el('ends').append(node('span', '', end));
  }
  const bad = data.events.reduce((sum, event) => sum + (event.c === number && event.p.length > 0), 0);
  el('problems').textContent = 'only problems (' + bad + ')';
  search(false);
  layout();
}

function layout() {
  const most = Math.max(3, Math.floor(MAX_ELEMENT / Math.max(1, shown.length)));
  height = Math.min(Number(el('zoom').value), most);
  space.style.height = shown.length * height + 40 + 'px';
  ladder.classList.toggle('small', height < LABEL_HEIGHT);
  draw();
}

function draw() {
  const first = Math.max(0, Math.floor(ladder.scrollTop / height) - 5);
  const last = Math.min(shown.length, first + Math.ceil(ladder.clientHeight / height) + 12);
  const fresh = [];
  for (let i = first; i < last; i++) fresh.push(row(shown[i], i));
  rows.replaceChildren(...fresh);
}

function row(event, i) {
  const made = node('div', 'row d' + event.d + ' ' + event.k);
  if (event.p.length > 0) made.classList.add('bad');
  if (event === picked) made.classList.add('pick');
  if (needle && text(event).includes(needle)) made.classList.add('hit');
  made.style.top = i * height + 'px';
  made.style.height = height + 'px';
  made.style.setProperty('--tone', event.p.length > 0 ? 'var(--bad)' : TONES[event.o] || '#607d8b');
  const label = node('span', 'label');
  // The rules first: the message may be cut where there is no room.
  if (event.p.length > 0) label.append('⚠ ' + event.p.map((one) => one[0]).join(', ') + '  ');
  label.append(node('b', '', event.o), ' ' + event.f);
  if (event.n > 0 && event.k !== 'note') label.append(node('span', 'bytes', event.n + ' bytes'));
  made.append(node('time', '', event.t.toFixed(6)), label, node('span', 'arrow'));
  if (event.r) made.append(node('span', 'number', event.r));
  made.title = event.p.map((one) => one.join(': ')).join('\\n') || event.o + ' ' + event.f;
  made.addEventListener('click', () => pick(event));
  return made;
}

/** Offset, the cells of the bytes in groups of eight, and the same bytes as text; half as wide on a phone. */
function dumpOf(bytes, cells, whole) {
  const dump = node('div');
  dump.id = 'dump';
  const letter = (hex) => {
    const code = parseInt(hex, 16);
    return code > 31 && code < 127 ? String.fromCharCode(code) : '.';
  };
  const width = detail.clientWidth < 540 ? 8 : 16;
  for (let at = 0; at < bytes.length; at += width) {
    dump.append(at.toString(16).padStart(4, '0') + '  ');
    for (let i = at; i < at + width; i++) dump.append(cells[i] || '  ', i % 8 === 7 ? '  ' : ' ');
    dump.append(bytes.slice(at, at + width).map(letter).join('') + '\\n');
  }
  if (whole > bytes.length) dump.append('… ' + (whole - bytes.length) + ' bytes more\\n');
  return dump;
}

function pick(event) {
  picked = event;
  draw();
  const connection = data.connections.find((one) => one.n === event.c);
  detail.replaceChildren(node('h2', '', (event.d === 0 ? '→ ' : '← ') + event.o));
  const ends = connection ? connection.ends[event.d] + ' to ' + connection.ends[1 - event.d] + ', ' : '';
  const place = event.t.toFixed(9) + ' s' + (event.r ? ', packet ' + event.r : '');
  detail.append(node('p', 'where', ends + place));
  for (const problem of event.p) detail.append(node('p', 'bad', '⚠ ' + problem.join(': ')));
  if (!event.v) { detail.append(node('p', '', event.f)); return; }
  const bytes = event.x.match(/../g) || [];
  const cells = bytes.map((hex) => node('i', '', hex));
  const dump = dumpOf(bytes, cells, event.l), table = node('table');
  const mark = (at, count, on) => {
    for (const cell of cells.slice(at, at + count)) cell.classList.toggle('on', on);
  };
  for (const [depth, name, value, at, count] of event.v) {
    const line = node('tr');
    const first = node('td', '', name);
    first.style.paddingLeft = depth * 14 + 'px';
    if (depth === 0) first.style.fontWeight = '600';
    line.append(first, node('td', '', value));
    line.dataset.at = at;
    line.addEventListener('mouseenter', () => { line.classList.add('on'); mark(at, count, true); });
    line.addEventListener('mouseleave', () => { line.classList.remove('on'); mark(at, count, false); });
    table.append(line);
    for (let i = at; i < at + count && i < cells.length; i++) {
      cells[i].title = name + ': ' + value;
      cells[i].addEventListener('mouseenter', () => { line.classList.add('on'); mark(at, count, true); });
      cells[i].addEventListener('mouseleave', () => { line.classList.remove('on'); mark(at, count, false); });
    }
  }
  detail.append(table, dump);
}

function summary() {
  const connection = data.connections.find((one) => one.n === Number(el('connection').value));
  if (!connection) { detail.replaceChildren(node('p', '', 'No iWARP in this capture.')); return; }
  const box = node('div', '', connection.summary);
  box.id = 'summary';
  detail.replaceChildren(node('p', '', 'Click a message to see its fields and bytes.'), box);
  if (data.left > 0)
    detail.append(node('p', 'bad', data.left + ' further events found no room in this page.'));
}

function search(jump) {
  needle = el('search').value.trim().toLowerCase();
  hits = [];
  if (needle) shown.forEach((event, i) => { if (text(event).includes(needle)) hits.push(i); });
  hitAt = -1;
  el('hits').textContent = needle ? hits.length + ' hits' : shown.length + ' rows';
  if (jump && hits.length > 0) step(1); else draw();
}

function step(by) {
  if (hits.length === 0) return;
  hitAt = (hitAt + by + hits.length) % hits.length;
  el('hits').textContent = hitAt + 1 + ' of ' + hits.length + ' hits';
  go(hits[hitAt]);
}

function go(i) {
  ladder.scrollTop = Math.max(0, i * height - ladder.clientHeight / 2);
  pick(shown[i]);
}

let frame = 0;
ladder.addEventListener('scroll', () => {
  frame = frame || requestAnimationFrame(() => { frame = 0; draw(); });
});
addEventListener('resize', draw);
el('zoom').addEventListener('input', () => {
  const middle = (ladder.scrollTop + ladder.clientHeight / 2) / height;
  layout();
  ladder.scrollTop = middle * height - ladder.clientHeight / 2;
});
ladder.addEventListener('wheel', (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  el('zoom').value = Number(el('zoom').value) + (event.deltaY < 0 ? 2 : -2);
  el('zoom').dispatchEvent(new Event('input'));
}, { passive: false });
ladder.addEventListener('keydown', (event) => {
  const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
  if (by === 0 || shown.length === 0) return;
  event.preventDefault();
  go(Math.max(0, Math.min(shown.length - 1, shown.indexOf(picked) + by)));
});
el('search').addEventListener('input', () => search(true));
el('search').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') step(event.shiftKey ? -1 : 1);
});
el('next').addEventListener('click', () => step(1));
el('previous').addEventListener('click', () => step(-1));
el('connection').addEventListener('change', () => { picked = null; choose(); summary(); });
el('errors').addEventListener('change', choose);
/** For pages that are fed while they are open. */
window.addEvents = (events, connections) => {
  data.events.push(...events);
  if (connections) { data.connections = connections; fillConnections(); }
  choose();
};
fillConnections();
choose();
summary();
`;
