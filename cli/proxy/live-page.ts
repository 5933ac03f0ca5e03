/**
 * The page of `iwarp dissect --html`, fed while connections run: node:http on 127.0.0.1, server-sent events.
 * Each browser has its own place in one list of events, so a slow one costs nothing but its own delay.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { IwarpError } from '../../src/base/errors.ts';
import type { CapturedConnection } from '../../src/inspect/decode/capture.ts';
import { pageEvent, renderPage, type PageData, type PageEvent } from '../../src/inspect/render/page.ts';
import { renderSummary } from '../../src/inspect/render/views.ts';
import type { InspectEvent } from '../../src/inspect/decode/types.ts';

/** Events the page holds: about 50 MB of text when all octet views are full. */
const MAX_EVENTS = 20_000;
/** Connections the page can choose from. */
const MAX_CONNECTIONS = 500;
const MAX_BROWSERS = 16;
/** Events of one message, and how often there is one. */
const BATCH_EVENTS = 500;
const BATCH_MS = 100;

/**
 * The script that a live page has beside that of every page: it listens, follows the end of the ladder, and
 * says whether more may come.
 */
const LIVE_SCRIPT = `
'use strict';
{
  const state = document.createElement('span');
  document.querySelector('h1').after(state);
  const tell = (text) => { state.textContent = text; };
  tell('● live');
  const source = new EventSource('/events?after=' + data.events.length);
  source.onopen = () => tell('● live');
  source.onerror = () => tell('○ the proxy does not answer');
  source.addEventListener('over', () => { tell('○ the proxy has ended'); source.close(); });
  source.onmessage = (message) => {
    const { events, connections, left } = JSON.parse(message.data);
    const follows = ladder.scrollTop + ladder.clientHeight >= ladder.scrollHeight - 60;
    data.left = left;
    window.addEvents(events, connections);
    if (!picked) summary();
    if (follows) ladder.scrollTop = ladder.scrollHeight;
  };
}
`;

interface Browser {
  readonly response: ServerResponse;
  /** Events given to it. */
  sent: number;
  /** State of the connections' list that it has. */
  version: number;
}

export class LivePage {
  readonly #title: string;
  readonly #events: PageEvent[] = [];
  readonly #connections = new Set<CapturedConnection>();
  readonly #browsers = new Set<Browser>();
  #server: Server | undefined;
  #timer: NodeJS.Timeout | undefined;
  #left = 0;
  #version = 0;

  constructor(title: string) {
    this.#title = title;
  }

  /** Serve on 127.0.0.1; the result is the port. Rejects with ERR_CONNECT. */
  listen(port: number): Promise<number> {
    const server = createServer((request, response) => this.#answer(request, response));
    this.#server = server;
    server.requestTimeout = 10_000;
    return new Promise((resolve, reject) => {
      server.once('error', (error) =>
        reject(new IwarpError('ERR_CONNECT', `--page: ${error.message}`, { cause: error })),
      );
      server.listen(port, '127.0.0.1', () => {
        server.on('error', () => undefined);
        this.#timer = setInterval(() => this.#feedAll(), BATCH_MS);
        this.#timer.unref();
        resolve((server.address() as { port: number }).port);
      });
    });
  }

  /** Past a limit events are only counted. */
  add(connection: CapturedConnection, event: InspectEvent): void {
    this.#version++;
    if (this.#connections.size < MAX_CONNECTIONS) this.#connections.add(connection);
    if (this.#events.length < MAX_EVENTS) this.#events.push(pageEvent(connection, event));
    else this.#left++;
  }

  /** A connection's summary has changed without an event. */
  touch(): void {
    this.#version++;
  }

  /** The last events go out, and a message that the proxy has ended. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    const server = this.#server;
    if (server === undefined) return;
    for (const browser of this.#browsers) {
      while (this.#feed(browser));
      browser.response.end('event: over\ndata: {}\n\n');
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => server.closeAllConnections(), 1000);
      server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      server.closeIdleConnections();
    });
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const target = targetOf(request);
    if (typeof target === 'number') return refuse(response, target);
    if (target.path === '/') {
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' });
      response.end(
        renderPage(this.#data()).replace('</body>', () => `<script>${LIVE_SCRIPT}</script>\n</body>`),
      );
    } else if (target.path === '/events') this.#subscribe(request, response, target.after);
    else refuse(response, 404);
  }

  #data(): PageData {
    return {
      title: this.#title,
      connections: this.#connectionData(),
      events: this.#events,
      left: this.#left,
    };
  }

  #connectionData(): PageData['connections'] {
    return Array.from(this.#connections, (connection) => ({
      n: connection.number,
      ends: connection.ends,
      summary: renderSummary(connection),
    }));
  }

  #subscribe(request: IncomingMessage, response: ServerResponse, after: number): void {
    if (this.#browsers.size >= MAX_BROWSERS) {
      refuse(response, 503);
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.write('retry: 1000\n\n');
    const known = Number.isInteger(after) && after >= 0 && after <= this.#events.length;
    const browser: Browser = { response, sent: known ? after : 0, version: -1 };
    this.#browsers.add(browser);
    request.once('close', () => this.#browsers.delete(browser));
    response.once('close', () => this.#browsers.delete(browser));
  }

  #feedAll(): void {
    // A browser that has not taken the last message yet gets the next one later.
    for (const browser of this.#browsers) if (!browser.response.writableNeedDrain) this.#feed(browser);
  }

  /** Send one message if there is news; true if there was. */
  #feed(browser: Browser): boolean {
    if (browser.version === this.#version && browser.sent === this.#events.length) return false;
    const events = this.#events.slice(browser.sent, browser.sent + BATCH_EVENTS);
    browser.sent += events.length;
    browser.version = this.#version;
    const news = JSON.stringify({ events, connections: this.#connectionData(), left: this.#left });
    browser.response.write(`id: ${browser.sent}\ndata: ${news}\n\n`);
    return browser.sent < this.#events.length;
  }
}

interface Target {
  readonly path: string;
  /** Events that the browser has already; not a number if it does not say. */
  readonly after: number;
}

/**
 * The path and query of a request, or the status that refuses it. The request line is a peer's text and need
 * not be a URL: nothing here throws on any of it.
 */
function targetOf({ url = '', headers, method }: IncomingMessage): Target | number {
  // A page of another site must not read this one under its own name, resolved to 127.0.0.1.
  if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(headers.host ?? '')) return 403;
  if (method !== 'GET') return 405;
  if (!/^\/(?!\/)[^\s\\]*$/.test(url)) return 400;
  const query = url.indexOf('?');
  const search = new URLSearchParams(query < 0 ? '' : url.slice(query + 1));
  return {
    path: query < 0 ? url : url.slice(0, query),
    after: Number(headers['last-event-id'] ?? search.get('after') ?? Number.NaN),
  };
}

function refuse(response: ServerResponse, status: number): void {
  response.writeHead(status, { 'content-type': 'text/plain' });
  response.end();
}
