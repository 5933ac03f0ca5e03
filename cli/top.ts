/**
 * `iwarp top`: what the running processes of this user do, once a second: messages and bytes of each device,
 * or of each connection, as `top` shows processors. See `stat.ts` for the processes that are shown.
 */
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { peerName } from '../src/api/errors.ts';
import { checkInteger, IwarpError } from '../src/base/errors.ts';
import type { StreamCounters } from '../src/stream/types.ts';
import type { PortAddress } from '../src/transport/port.ts';
import { askAll, type Unshown } from '../src/observe/control-socket.ts';
import type { ProcessSnapshot } from '../src/observe/snapshot.ts';
import { printable } from './support/printable.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';
import { tellUnshown } from './support/unshown-processes.ts';

const USAGE = `usage: iwarp top [-c] [-j] [-n COUNT] [-i SECONDS] [--pid PID]
  -c, --connections      a line for each connection, the busiest first, instead of each device
  -n, --count COUNT      end after this number of views (until it is interrupted)
  -i, --interval SECONDS seconds between views, also parts of one such as 0.5 (1)
  -j, --json             a line of JSON for each view
  --pid PID              only this process

Processes show themselves when started with IWARP_CONTROL=1, or by serveControl().
`;

/** Lines of a terminal whose size is not known. */
const LINES = 24;
/** Clears a terminal, and puts the cursor at its top. */
const CLEAR = '\x1b[H\x1b[2J';

/** A line of a view: what it is about, and what happened in a second. */
interface Row {
  /** What the line is found by in the next view. */
  readonly key: string;
  readonly pid: number;
  readonly command: string;
  readonly device: string;
  /** `local > remote` of a connection. */
  readonly path: string | undefined;
  readonly connections: number;
  readonly counters: StreamCounters;
  /** Connections that failed in start-up or ended with an error. */
  readonly failed: number;
}

/** A row with the rates since the last view. */
interface Shown {
  readonly row: Row;
  readonly messagesIn: number;
  readonly messagesOut: number;
  readonly octetsIn: number;
  readonly octetsOut: number;
}

interface Wanted {
  readonly connections: boolean;
  readonly json: boolean;
  readonly count: number;
  readonly interval: number;
  readonly pid: number | null;
}

export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  let wanted: Wanted | null;
  try {
    wanted = parse(args);
  } catch (error) {
    io.err(`top: ${(error as Error).message}\n${USAGE}`);
    return 2;
  }
  if (wanted === null) {
    io.out(USAGE);
    return 0;
  }
  try {
    return await watch(wanted, io);
  } catch (error) {
    if (!(error instanceof IwarpError)) throw error;
    io.err(`top: ${error.message}\n`);
    return 1;
  }
}

function parse(args: string[]): Wanted | null {
  const { values } = parseArgs({
    args,
    options: {
      connections: { type: 'boolean', short: 'c', default: false },
      json: { type: 'boolean', short: 'j', default: false },
      count: { type: 'string', short: 'n' },
      interval: { type: 'string', short: 'i', default: '1' },
      pid: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  });
  if (values.help === true) return null;
  const seconds = /^\d{1,6}(\.\d{1,3})?$/.test(values.interval) ? Number(values.interval) : 0;
  if (seconds < 0.05 || seconds > 86_400)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `--interval must be from 0.05 to 86400 seconds, got '${values.interval}'`,
    );
  const whole = (name: 'count' | 'pid', most: number): number | null =>
    values[name] === undefined ? null : checkInteger(`--${name}`, Number(values[name]), 1, most);
  return {
    connections: values.connections,
    json: values.json,
    count: whole('count', 1e9) ?? Number.POSITIVE_INFINITY,
    interval: seconds * 1000,
    pid: whole('pid', 2 ** 31),
  };
}

/** Views until the count is reached or the program is interrupted. */
async function watch(wanted: Wanted, io: ToolIo): Promise<number> {
  const stop = new AbortController();
  const end = (): void => stop.abort();
  process.once('SIGINT', end).once('SIGTERM', end);
  if (io.signal !== undefined) void once(io.signal, 'abort').then(end);
  const said = new Set<number>();
  let before = await look(wanted, said);
  if (before.processes === 0) {
    io.err('top: no process shows itself (start one with IWARP_CONTROL=1)\n');
    return 1;
  }
  for (let shown = 0; shown < wanted.count; shown++) {
    await pause(wanted.interval, undefined, { signal: stop.signal }).catch(() => undefined);
    if (stop.signal.aborted) break;
    const now = await look(wanted, said);
    io.out(wanted.json ? jsonOf(before, now) : viewOf(before, now, wanted));
    before = now;
  }
  process.off('SIGINT', end).off('SIGTERM', end);
  return 0;
}

/** All rows at one time. */
interface Look {
  readonly at: number;
  readonly processes: number;
  readonly rows: readonly Row[];
}

async function look({ pid, connections }: Wanted, said: Set<number>): Promise<Look> {
  const unshown = new Map<number, Unshown>();
  const all = await askAll((one, why) => {
    if ((pid ?? one) === one && !said.has(one)) unshown.set(one, why);
    said.add(one);
  });
  tellUnshown('top', unshown);
  const processes = all.filter((one) => (pid ?? one.pid) === one.pid);
  const rows = processes.flatMap((one) => (connections ? connectionRows(one) : deviceRows(one)));
  return { at: performance.now(), processes: processes.length, rows };
}

function deviceRows({ pid, comm: command, devices }: ProcessSnapshot): Row[] {
  return devices.map(({ attributes, counters, connections }, index) => ({
    key: `${pid}/${index}`,
    pid,
    command,
    device: attributes.name,
    path: undefined,
    connections: connections.filter(({ established }) => established).length,
    counters,
    failed: counters.failed + counters.broken,
  }));
}

function connectionRows({ pid, comm: command, devices }: ProcessSnapshot): Row[] {
  return devices.flatMap(({ attributes, connections }, index) =>
    connections
      .filter(({ established }) => established)
      .map(({ lqpn, local, remote, role, counters }) => ({
        key: `${pid}/${index}/${lqpn}`,
        pid,
        command,
        device: attributes.name,
        path: `${place(local)} ${role === 'active' ? '>' : '<'} ${place(remote)}`,
        connections: 1,
        counters,
        failed: 0,
      })),
  );
}

const place = (at: PortAddress | null): string => (at === null ? '?' : peerName(at));

const messages = ({
  sends,
  writes,
  reads,
  readResponses,
  atomics,
  immediates,
}: StreamCounters['messagesIn']): number => sends + writes + reads + readResponses + atomics + immediates;

/** Each row with its rates between two looks, the busiest first. */
function shownOf(before: Look, now: Look): Shown[] {
  const earlier = new Map(before.rows.map((row) => [row.key, row]));
  const seconds = (now.at - before.at) / 1000;
  const shown = now.rows.map((row) => {
    const old = earlier.get(row.key)?.counters;
    const rate = (of: (counters: StreamCounters) => number): number =>
      old === undefined ? 0 : Math.max(0, of(row.counters) - of(old)) / seconds;
    return {
      row,
      messagesIn: rate((one) => messages(one.messagesIn)),
      messagesOut: rate((one) => messages(one.messagesOut)),
      octetsIn: rate((one) => one.octetsIn),
      octetsOut: rate((one) => one.octetsOut),
    };
  });
  return shown.toSorted((a, b) => b.octetsIn + b.octetsOut - a.octetsIn - a.octetsOut);
}

/** A number in at most six places. */
function short(value: number): string {
  const units = ['', 'k', 'M', 'G', 'T'];
  let at = 0;
  for (; value >= 9999.5 && at < units.length - 1; at++) value /= 1000;
  return `${value < 10 && at > 0 ? value.toFixed(1) : Math.round(value)}${units[at]}`;
}

const HEAD = ['PID', 'COMMAND', 'DEVICE', 'CONNS', 'MSG/S IN', 'OUT', 'BYTES/S IN', 'OUT', 'FAILED', 'CRC'];
const LEFT = new Set([1, 2, HEAD.length]);

function viewOf(before: Look, now: Look, { connections }: Wanted): string {
  const isTerminal = process.stdout.isTTY;
  const shown = shownOf(before, now).slice(0, isTerminal ? (process.stdout.rows ?? LINES) - 3 : undefined);
  const cells = shown.map(({ row, messagesIn, messagesOut, octetsIn, octetsOut }) => [
    String(row.pid),
    printable(row.command),
    printable(row.device),
    short(row.connections),
    short(messagesIn),
    short(messagesOut),
    short(octetsIn),
    short(octetsOut),
    short(row.failed),
    short(row.counters.crcErrors),
    ...(row.path === undefined ? [] : [printable(row.path)]),
  ]);
  const lines = [connections ? [...HEAD, 'CONNECTION'] : HEAD, ...cells];
  const widths = lines[0]!.map((_, i) => Math.max(...lines.map((line) => (line[i] ?? '').length)));
  const text = lines.map((line) =>
    line
      .map((word, i) => (LEFT.has(i) ? word.padEnd(widths[i]!) : word.padStart(widths[i]!)))
      .join(' ')
      .trimEnd(),
  );
  const time = new Date().toISOString().slice(11, 19);
  const some = `${now.processes} ${now.processes === 1 ? 'process' : 'processes'}`;
  return `${isTerminal ? CLEAR : ''}iwarp top, ${time}, ${some}\n${text.join('\n')}\n`;
}

function jsonOf(before: Look, now: Look): string {
  const rows = shownOf(before, now).map(({ row, ...rates }) => {
    const { pid, command, device, path, connections, failed, counters } = row;
    const { crcErrors } = counters;
    return { pid, command, device, path, connections, ...rates, failed, crcErrors };
  });
  return `${JSON.stringify({ time: new Date().toISOString(), rows })}\n`;
}
