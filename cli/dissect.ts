/**
 * `iwarp dissect`: the FPDUs of a capture file, one line each, or with all fields, as JSON lines, or as one
 * page to look at in a browser. Names broken rules, with their clauses.
 */
import { statSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { IwarpError } from '../src/base/errors.ts';
import { CaptureDissector, type CapturedConnection } from '../src/inspect/decode/capture.ts';
import { readCaptureFile } from '../src/inspect/read-file.ts';
import type { EventFilter } from '../src/inspect/render/filter.ts';
import { PageBuilder } from '../src/inspect/render/page.ts';
import {
  renderEvent,
  renderSummary,
  renderSummaryJson,
  type EventStyle,
} from '../src/inspect/render/views.ts';
import { painted, wantsColour } from './support/colour.ts';
import { OutputFile } from './support/output-file.ts';
import { isSystemError, withFile } from './support/system-errors.ts';
import { filterOf, styleOf, VIEW_OPTIONS } from './support/view-options.ts';

const USAGE = `usage: iwarp dissect FILE [options]
  FILE                     pcap or pcapng, - for standard input
  --wire iwarp|trp         only iWARP over TCP, or only over UDP and all that may be it (both, by their looks)
  --json                   one JSON object per line
  -V, --verbose            all fields
  -x, --bytes              all fields with their bytes
  --html OUT               write a page with the ladder of messages to OUT
  --summary                only the summary of each connection
  --connection N           only this connection, counted from 1 (may be repeated)
  --opcode NAME            only FPDUs of this opcode: Send, ReadReq, 'RDMA Write', 3 … (may be repeated)
  --stag HEX               only FPDUs that name this STag
  --errors                 only lines about broken rules, and Terminates
  -h, --help               print this help
exit status: 0, 1 if the file cannot be read or is not a capture, 2 for wrong options
`;

const EXIT = { FINE: 0, FILE: 1, USAGE: 2 } as const;
/** Octets of output gathered before they are written. */
const OUTPUT_OCTETS = 1 << 16;
/** Connections without iWARP that are named. */
const OTHERS_NAMED = 5;
/** Kinds of packets without TCP that are named, the most frequent first. */
const KINDS_NAMED = 8;

interface Settings {
  readonly file: string;
  readonly style: EventStyle;
  readonly html: string | undefined;
  readonly wire: 'iwarp' | 'trp' | undefined;
  readonly summaryOnly: boolean;
  readonly filter: EventFilter;
  /** Whether a connection's summary is wanted. */
  readonly shown: (connection: CapturedConnection) => boolean;
}

/** Where the text goes. */
interface Output {
  out(text: string): void;
  err(text: string): void;
  /** Writes the text gathered so far: the program may be waiting for input, and its reader for the output. */
  flush?(): void;
  /** Whether events are coloured. */
  readonly colour?: boolean;
}

/** Run `iwarp dissect`; the result is the exit status. */
export async function run(args: string[]): Promise<number> {
  let waiting = '';
  const flush = (): void => {
    if (waiting !== '') process.stdout.write(waiting);
    waiting = '';
  };
  const status = dissect(args, {
    out: (text) => {
      waiting += text;
      if (waiting.length > OUTPUT_OCTETS) flush();
    },
    err: (text) => {
      flush();
      process.stderr.write(text);
    },
    flush,
    colour: wantsColour(process.stdout, process.env),
  });
  flush();
  return await Promise.resolve(status);
}

/** The same with the output given. */
export function dissect(args: string[], io: Output): number {
  const settings = readSettings(args, io);
  if (typeof settings === 'number') return settings;
  const { file, html } = settings;
  let output: OutputFile | null = null;
  try {
    if (html !== undefined) output = withFile(html, () => new OutputFile(html));
    const page = output === null ? undefined : new PageBuilder(file);
    const dissector = withCapture(file, () => dissectFile(settings, page, io));
    if (page !== undefined)
      withFile(html!, () => output!.write(page.finish(dissector.connections.filter(settings.shown))));
    printSummaries(settings, dissector, io);
    return EXIT.FINE;
  } catch (error) {
    if (!(error instanceof IwarpError)) throw error;
    io.err(`iwarp dissect: ${error.message}\n`);
    return EXIT.FILE;
  } finally {
    output?.discard();
  }
}

/** Reads the capture; errors about it begin with its name. */
function withCapture<T>(file: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof IwarpError) && !isSystemError(error)) throw error;
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${file}: ${error.message}`, { cause: error });
  }
}

/** True for two names of one file. */
function sameFile(one: string, other: string): boolean {
  const [a, b] = [one, other].map((path) => statSync(path, { bigint: true, throwIfNoEntry: false }));
  return a !== undefined && b !== undefined && a.isFile() && a.dev === b.dev && a.ino === b.ino;
}

function readSettings(args: string[], io: Output): Settings | number {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        ...VIEW_OPTIONS,
        html: { type: 'string' },
        wire: { type: 'string' },
      },
    });
    if (values.help) {
      io.out(USAGE);
      return EXIT.FINE;
    }
    const [file] = positionals;
    if (file === undefined || positionals.length > 1)
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'one file is needed');
    if (values.html !== undefined && file !== '-' && sameFile(file, values.html))
      throw new IwarpError('ERR_INVALID_ARGUMENT', '--html names the capture itself');
    const { wire } = values;
    if (wire !== undefined && wire !== 'iwarp' && wire !== 'trp')
      throw new IwarpError('ERR_INVALID_ARGUMENT', '--wire takes iwarp or trp');
    const shown = ({ number }: CapturedConnection): boolean =>
      values.connection.length === 0 || values.connection.includes(String(number));
    return {
      file,
      style: styleOf(values),
      html: values.html,
      wire,
      summaryOnly: values.summary,
      filter: filterOf(values),
      shown,
    };
  } catch (error) {
    io.err(`iwarp dissect: ${(error as Error).message}\n${USAGE}`);
    return EXIT.USAGE;
  }
}

function dissectFile(
  { file, filter, style, summaryOnly, wire }: Settings,
  page: PageBuilder | undefined,
  io: Output,
): CaptureDissector {
  const dissector = new CaptureDissector(
    {
      event: (connection, event) => {
        // Remarks on connections that are none of ours would drown the others; the summary names those
        // connections.
        if (!connection.iwarp || !filter(connection, event)) return;
        page?.add(connection, event);
        if (summaryOnly || page !== undefined) return;
        const text = renderEvent(style, connection, event);
        io.out(`${io.colour === true && style !== 'json' ? painted(text, event) : text}\n`);
      },
      remark: (offset, message) =>
        style === 'json'
          ? io.out(`${JSON.stringify({ kind: 'remark', offset, message })}\n`)
          : io.err(`iwarp dissect: at file offset ${offset}: ${message}\n`),
    },
    { wire },
  );
  readCaptureFile(file, dissector, () => io.flush?.());
  return dissector;
}

function printSummaries(
  { style, summaryOnly, shown }: Settings,
  dissector: CaptureDissector,
  io: Output,
): void {
  const connections = dissector.connections.filter(shown);
  if (style === 'json') {
    if (summaryOnly) for (const connection of connections) io.out(`${renderSummaryJson(connection)}\n`);
    else if (!connections.some(({ iwarp }) => iwarp))
      io.err(`iwarp dissect: no iWARP seen: ${countsText(dissector)}\n`);
    else if (isIncomplete(dissector)) io.err(`iwarp dissect: not all is decoded: ${countsText(dissector)}\n`);
    return;
  }
  const others: CapturedConnection[] = [];
  for (const connection of connections) {
    if (connection.iwarp) io.out(`\n${renderSummary(connection)}\n`);
    else others.push(connection);
  }
  if (others.length > 0) io.out(`\n${othersText(others)}\n`);
  io.out(`\n${countsText(dissector)}\n`);
}

/** True if packets or connections are missing from the JSON lines: a program should not take them for all. */
function isIncomplete({ counts, connections }: CaptureDissector): boolean {
  const { fragments, malformed, undecodedLinkType, damaged, unassigned, early } = counts;
  return (
    fragments + malformed + undecodedLinkType + damaged + unassigned + early > 0 ||
    connections.length < counts.connections
  );
}

function othersText(others: readonly CapturedConnection[]): string {
  const named = others
    .slice(0, OTHERS_NAMED)
    .map(({ number, ends }) => `${number} (${ends[0]} → ${ends[1]})`)
    .join(', ');
  const more = others.length > OTHERS_NAMED ? `, and ${others.length - OTHERS_NAMED} more` : '';
  return `No iWARP seen in connection${others.length === 1 ? '' : 's'} ${named}${more}`;
}

function countsText({ counts, began, connections }: CaptureDissector): string {
  const parts = [
    `${counts.packets} packets`,
    `${counts.tcp} of TCP`,
    ...(counts.udp > 0 ? [`${counts.udp} of iWARP over UDP`] : []),
    `${counts.connections} connections`,
  ];
  const forgotten = counts.connections - connections.length;
  const more: [number, string][] = [
    [forgotten, 'of them not kept'],
    [counts.fragments, 'fragments'],
    [counts.malformed, 'malformed'],
    [counts.undecodedLinkType, 'of a link type not decoded'],
    [counts.truncated, 'cut short by the capture'],
    [counts.damaged, 'TCP segments with a wrong checksum'],
    [counts.unassigned, 'TCP segments that belong to no connection'],
    [counts.early, 'TCP segments from before the first decoded byte of their stream'],
  ];
  for (const [count, what] of more) if (count > 0) parts.push(`${count} ${what}`);
  const kinds = [...counts.otherKinds].sort(([, a], [, b]) => b - a).slice(0, KINDS_NAMED);
  if (kinds.length > 0) {
    const named = kinds.map(([what, count]) => `${count} of ${what}`).join(', ');
    parts.push(`${counts.other} not decoded: ${named}${counts.otherKinds.size > KINDS_NAMED ? ', …' : ''}`);
  }
  // A stamp may be out of what a Date can mean.
  const first = new Date(began ?? Number.NaN);
  return `${parts.join(', ')}${Number.isNaN(first.getTime()) ? '' : `; the first at ${first.toISOString()}`}`;
}
