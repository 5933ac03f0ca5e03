/**
 * One self-contained page: the ladder of messages between the two ends of each connection, with zoom, search
 * and the decoded bytes of the message that is clicked. Nothing is loaded from anywhere. The page's own
 * script and style are in page-parts.ts.
 */
import type { CapturedConnection } from '../decode/capture.ts';
import { fieldOctets, fieldsOf } from './fields.ts';
import { PAGE_SCRIPT, PAGE_STYLE } from './page-parts.ts';
import { renderSummary, shortName } from './views.ts';
import {
  datagramFields,
  enhancedText,
  flagsText,
  nbdSetupText,
  noteText,
  sdpSetupText,
  sequenceText,
  ulpduFields,
} from './text.ts';
import type { InspectEvent } from '../decode/types.ts';

/** Events a page holds; a browser still scrolls and searches this many at once. */
const MAX_PAGE_EVENTS = 50_000;
/** Bytes of each event that the byte view shows. */
const MAX_PAGE_OCTETS = 512;

/**
 * The page's content policy: it may load its own style and script, and the events of a live page's server.
 */
const POLICY = [
  "default-src 'none'",
  "style-src 'unsafe-inline'",
  "script-src 'unsafe-inline'",
  "connect-src 'self'",
].join('; ');

/**
 * The record that the page's script gets for each event; its names are short because there are many events.
 */
export interface PageEvent {
  /** Connection, direction, seconds. */
  readonly c: number;
  readonly d: number;
  readonly t: number;
  /** Kind, opcode column, fields, payload bytes. */
  readonly k: string;
  readonly o: string;
  readonly f: string;
  readonly n: number;
  /** Problems: the rule, and what breaks it. */
  readonly p: readonly (readonly [string, string])[];
  /** Number of the packet in the capture file. */
  readonly r?: number;
  /** Bytes in hexadecimal and how many there are. */
  readonly x?: string;
  readonly l?: number;
  /** Fields: depth, name, value, offset, bytes. */
  readonly v?: readonly (readonly [number, string, string, number, number])[];
}

/** An event as the page's script wants it; also for pages that are updated live. */
export function pageEvent(
  { number, packet }: Pick<CapturedConnection, 'number' | 'packet'>,
  event: InspectEvent,
): PageEvent {
  const p = event.problems.map(({ id, clause, message }) => [`${id} (${clause})`, message] as const);
  const base = {
    c: number,
    d: event.direction,
    t: Number(event.time.toFixed(9)),
    k: event.kind,
    p,
    ...(packet === undefined ? {} : { r: packet }),
  };
  if (event.kind === 'note') return { ...base, o: 'note', f: noteText(event), n: event.octets };
  const octets = fieldOctets(event);
  const v = fieldsOf(event).map(
    ({ depth, name, value, at, octets: count }) => [depth, name, value, at, count] as const,
  );
  const x = Array.from(octets.subarray(0, MAX_PAGE_OCTETS), (octet) =>
    octet.toString(16).padStart(2, '0'),
  ).join('');
  const missing = event.kind === 'fpdu' && event.captured !== undefined ? event.octets - event.captured : 0;
  const shown = { o: shortName(event.opcode), x, l: octets.length + missing, v };
  if (event.kind === 'trp') {
    const f = `${sequenceText(event)} ${datagramFields(event)}`.trim();
    return { ...base, ...shown, f, n: event.payloadLength };
  }
  if (event.kind === 'fpdu') return { ...base, ...shown, f: ulpduFields(event), n: event.payloadLength };
  const { frame } = event;
  const enhanced = frame.enhanced === null ? '' : ` ${enhancedText(frame.enhanced)}`;
  const f = `rev ${frame.revision} ${flagsText(frame)}${enhanced}`;
  const nbd = event.nbd === undefined ? '' : ` ${nbdSetupText(event.nbd)}`;
  const sdp = event.sdp === undefined ? '' : ` ${sdpSetupText(event.sdp)}`;
  return { ...base, ...shown, f: f + nbd + sdp, n: frame.privateData.length };
}

/** Gathers events and writes the page. */
export class PageBuilder {
  private readonly title: string;
  private readonly events: PageEvent[] = [];
  private left = 0;

  /** An empty page with this title. */
  constructor(title: string) {
    this.title = title;
  }

  /** Add an event. Past 50,000 events are counted and not shown. */
  add(connection: CapturedConnection, event: InspectEvent): void {
    if (this.events.length < MAX_PAGE_EVENTS) this.events.push(pageEvent(connection, event));
    else this.left++;
  }

  /** The page. */
  finish(connections: readonly CapturedConnection[]): string {
    const ends = connections
      .filter((connection) => connection.iwarp)
      .map((connection) => ({
        n: connection.number,
        ends: connection.ends,
        summary: renderSummary(connection),
      }));
    return renderPage({ title: this.title, connections: ends, events: this.events, left: this.left });
  }
}

export interface PageData {
  readonly title: string;
  readonly connections: readonly {
    readonly n: number;
    readonly ends: readonly [string, string];
    readonly summary: string;
  }[];
  readonly events: readonly PageEvent[];
  /** Events that found no room. */
  readonly left: number;
}

/** The whole page as text. */
export function renderPage(data: PageData): string {
  // Inside a script element only a closing tag could end the data: no `<` is left in it.
  const json = JSON.stringify(data).replaceAll('<', '\\u003c');
  const title = data.title.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width">
<title>${title} - iWARP ladder</title>
<style>${PAGE_STYLE}</style>
</head>
<body>
<header>
<h1>${title}</h1>
<label>Connection <select id="connection"></select></label>
<label>Search <input id="search" type="search" placeholder="Send, 0x1122, MPA-067 …" size="26"></label>
<button id="previous" type="button" title="previous hit">▲</button>
<button id="next" type="button" title="next hit">▼</button>
<span id="hits"></span>
<label>Zoom <input id="zoom" type="range" min="3" max="44" value="26"></label>
<label><input id="errors" type="checkbox"> <span id="problems">only problems</span></label>
</header>
<main>
<section id="ladder" tabindex="0"><div id="ends"></div><div id="space"><div id="rows"></div></div></section>
<aside id="detail"><p>Click a message to see its fields and bytes.</p></aside>
</main>
<script type="application/json" id="data">${json}</script>
<script>${PAGE_SCRIPT}</script>
</body>
</html>
`;
}
