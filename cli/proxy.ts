/**
 * `iwarp proxy`: stands between two iWARP peers, passes their octets on, shows and records them, and damages
 * them where a fault asks for it. The decoder is that of `iwarp dissect`; relay and faults are in proxy/.
 */
import { IwarpError } from '../src/base/errors.ts';
import type { CapturedConnection } from '../src/inspect/decode/capture.ts';
import { WAITING_OCTETS } from '../src/inspect/capture/limits.ts';
import { OctetBudget } from '../src/inspect/capture/octet-queue.ts';
import { renderEvent, renderSummary, renderSummaryJson } from '../src/inspect/render/views.ts';
import type { InspectEvent } from '../src/inspect/decode/types.ts';
import { openCapture, type CaptureFile } from '../src/transport/pcap-tap.ts';
import type { Port, PortListener } from '../src/transport/port.ts';
import { realScheduler } from '../src/transport/scheduler.ts';
import { TcpTransport } from '../src/transport/tcp.ts';
import { ProxyClock } from './proxy/clock.ts';
import { DATAGRAM_USAGE, DatagramProxy, parseDatagramSettings } from './proxy/datagram-proxy.ts';
import { planFaults } from './proxy/fault-spec.ts';
import { Agreement, FaultScript } from './proxy/fault-script.ts';
import { LivePage } from './proxy/live-page.ts';
import { Relay } from './proxy/relay.ts';
import { parseSettings, USAGE, type Settings } from './proxy/settings.ts';
import { Watch } from './proxy/watch.ts';
import { painted, wantsColour } from './support/colour.ts';
import { printableLines } from './support/printable.ts';
import { reasonOf, withFile } from './support/system-errors.ts';
import type { ToolIo } from './support/tool.ts';

const EXIT = { FINE: 0, FAILED: 1, USAGE: 2 } as const;
/**
 * Octets of output gathered within one turn, and what may wait for a slow reader before events are left out.
 */
const OUTPUT_OCTETS = 1 << 16;
const OUTPUT_LIMIT = 1 << 24;

/** Run `iwarp proxy`; the result is the exit status. An interrupt ends it in order. */
export async function run(args: string[]): Promise<number> {
  const abort = new AbortController();
  const interrupt = (): void => abort.abort();
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  const output = new GatheredOutput();
  try {
    return await proxy(args, {
      out: (text) => output.write(text),
      err: (text) => output.tell(printableLines(text)),
      signal: abort.signal,
      colour: wantsColour(process.stdout, process.env),
    });
  } finally {
    output.flush();
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
}

/** Standard output in few writes. A slow reader loses events; a line on standard error counts them. */
class GatheredOutput {
  #waiting = '';
  #lost = 0;

  write(text: string): void {
    if (process.stdout.writableLength > OUTPUT_LIMIT) {
      this.#lost++;
      return;
    }
    if (this.#waiting === '') setImmediate(() => this.flush());
    this.#waiting += text;
    if (this.#waiting.length > OUTPUT_OCTETS) this.flush();
  }

  /** Standard error, after all earlier output. */
  tell(text: string): void {
    this.flush();
    process.stderr.write(text);
  }

  flush(): void {
    if (this.#waiting === '') return;
    process.stdout.write(this.#waiting);
    this.#waiting = '';
    if (this.#lost > 0)
      process.stderr.write(`iwarp proxy: ${this.#lost} events not shown: the reader is too slow\n`);
    this.#lost = 0;
  }
}

/** The same with the output given. */
export async function proxy(args: string[], io: ToolIo): Promise<number> {
  const wire = wireOf(args);
  if (wire === 'trp') return await datagramProxy(args, io);
  let settings: Settings | null;
  try {
    settings = parseSettings(args);
  } catch (error) {
    io.err(`iwarp proxy: ${(error as Error).message}\n${USAGE}`);
    return EXIT.USAGE;
  }
  if (settings === null) {
    io.out(USAGE);
    return EXIT.FINE;
  }
  try {
    return await new ProxyRun(settings, io).run();
  } catch (error) {
    if (!(error instanceof IwarpError) && typeof (error as NodeJS.ErrnoException).code !== 'string')
      throw error;
    io.err(`iwarp proxy: ${(error as Error).message}\n`);
    return EXIT.FAILED;
  }
}

/** The value of `--wire`, whose proxies have little in common. */
function wireOf(args: readonly string[]): string | undefined {
  const at = args.indexOf('--wire');
  return at >= 0 ? args[at + 1] : args.find((word) => word.startsWith('--wire='))?.slice('--wire='.length);
}

async function datagramProxy(args: string[], io: ToolIo): Promise<number> {
  let settings: ReturnType<typeof parseDatagramSettings>;
  try {
    settings = parseDatagramSettings(args);
  } catch (error) {
    io.err(`iwarp proxy: ${(error as Error).message}\n${DATAGRAM_USAGE}`);
    return EXIT.USAGE;
  }
  if (settings === null) {
    io.out(DATAGRAM_USAGE);
    return EXIT.FINE;
  }
  try {
    return await new DatagramProxy(settings, io).run();
  } catch (error) {
    if (typeof (error as NodeJS.ErrnoException).code !== 'string') throw error;
    io.err(`iwarp proxy: ${(error as Error).message}\n`);
    return EXIT.FAILED;
  }
}

class ProxyRun {
  readonly #settings: Settings;
  readonly #io: ToolIo;
  readonly #transport = new TcpTransport();
  readonly #clock = new ProxyClock();
  readonly #budget = new OctetBudget(WAITING_OCTETS);
  readonly #relays = new Set<Relay>();
  /** Give up the connections whose target has not answered yet. */
  readonly #attempts = new Set<() => void>();
  #state: 'accepting' | 'ending' = 'accepting';
  #page: LivePage | undefined;
  #pcap: CaptureFile | undefined;
  #accepted = 0;
  /** Connections accepted and not over. */
  #open = 0;
  #listener: PortListener | undefined;
  #status: number = EXIT.FINE;
  #finish!: () => void;
  readonly #finished: Promise<void> = new Promise((resolve) => (this.#finish = resolve));

  constructor(settings: Settings, io: ToolIo) {
    this.#settings = settings;
    this.#io = io;
  }

  async run(): Promise<number> {
    const settings = this.#settings;
    const io = this.#io;
    if (settings.pcap !== undefined) this.#openPcap(settings.pcap);
    try {
      const listener = await this.#listen();
      this.#listener = listener;
      if (settings.page !== undefined) await this.#openPage(settings.page);
      const { host, port } = settings.target;
      const to = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
      io.err(
        `iwarp proxy: listening on ${listener.address.address} port ${listener.address.port}, to ${to}\n`,
      );
      if (settings.drawn) io.err(`iwarp proxy: seed ${settings.seed}\n`);
      io.signal?.addEventListener('abort', () => this.#interrupt(), { once: true });
      io.listening?.(listener.address.port);
      if (io.signal?.aborted) this.#interrupt();
      await this.#finished;
      return this.#status;
    } finally {
      this.#stopAccepting();
      await this.#page?.close();
      this.#pcap?.close();
    }
  }

  #openPcap(path: string): void {
    const ended = (error: Error): void =>
      this.#io.err(`iwarp proxy: ${path}: the capture ends here: ${reasonOf(error)}\n`);
    this.#pcap = withFile(path, () => openCapture(path, ended, { epoch: this.#clock.epoch }));
  }

  async #openPage(port: number): Promise<void> {
    const { listen, target } = this.#settings;
    const page = new LivePage(`iwarp proxy ${listen.port} → ${target.host}:${target.port}`);
    const bound = await page.listen(port);
    this.#page = page;
    this.#io.err(`iwarp proxy: the page is at http://127.0.0.1:${bound}/\n`);
  }

  #listen(): Promise<PortListener> {
    return new Promise((resolve, reject) => {
      this.#transport.listen(
        this.#settings.listen,
        (port) => this.#accept(port),
        (listener, error) => (listener === undefined ? reject(error!) : resolve(listener)),
      );
    });
  }

  #stopAccepting(): void {
    if (this.#state === 'ending') return;
    this.#state = 'ending';
    this.#listener?.close();
  }

  #interrupt(): void {
    this.#stopAccepting();
    for (const giveUp of this.#attempts) giveUp();
    for (const relay of this.#relays)
      relay.reset(0, new IwarpError('ERR_ABORTED', 'the proxy was interrupted'));
    this.#endIfIdle();
    // Ends of connections that do not come by themselves are not waited for long.
    setTimeout(() => this.#finish(), 2000).unref();
  }

  #accept(client: Port): void {
    if (this.#state === 'ending') {
      this.#refuse(client);
      return;
    }
    const number = ++this.#accepted;
    this.#open++;
    if (this.#accepted === this.#settings.connections) this.#stopAccepting();
    const failed = (message: string, status: number = EXIT.FAILED): void => {
      cancelTimer();
      this.#attempts.delete(giveUp);
      this.#status = Math.max(this.#status, status);
      this.#io.err(`iwarp proxy: connection ${number}: ${message}\n`);
      this.#refuse(client);
      this.#over();
    };
    const { target, connectMs } = this.#settings;
    const cancelTimer = realScheduler.at(realScheduler.now() + connectMs, () => {
      cancelConnect();
      failed(`the target does not answer within ${connectMs / 1000} s`);
    });
    const cancelConnect = this.#transport.connect(target, (server, error) => {
      if (server === undefined) {
        failed(error!.message);
        return;
      }
      cancelTimer();
      this.#attempts.delete(giveUp);
      this.#relay(number, client, server);
    });
    const giveUp = (): void => {
      cancelConnect();
      failed('interrupted before the target answered', EXIT.FINE);
    };
    this.#attempts.add(giveUp);
  }

  /** The nearest that an accepted connection can come to being refused. */
  #refuse(client: Port): void {
    client.attach({ onData: () => undefined, onEnd: () => undefined, onClose: () => undefined });
    client.reset();
  }

  #relay(number: number, client: Port, server: Port): void {
    const { faults: specs, seed, quietMs, sent } = this.#settings;
    const faults = planFaults(specs, seed, number);
    const agreement = new Agreement();
    const framed = faults.some(({ place }) => place.unit === 'fpdu');
    const script = (direction: 0 | 1, from: string): FaultScript =>
      new FaultScript(
        direction,
        faults.filter((fault) => fault.from === from),
        agreement,
        framed,
      );
    const watcher = new Watch({
      number,
      ends: [client.remoteAddress, server.remoteAddress],
      clock: this.#clock,
      budget: this.#budget,
      sent,
      pcap: this.#pcap?.sink,
      event: (connection, event) => this.#event(connection, event),
      over: (connection, error) => this.#summary(connection, error),
    });
    const scripts = [script(0, 'client'), script(1, 'server')] as const;
    const relay = new Relay(client, server, {
      scripts,
      watcher,
      scheduler: realScheduler,
      quietMs,
      done: (how) => {
        this.#relays.delete(relay);
        for (const { unstruck } of scripts) {
          for (const { text } of unstruck)
            this.#io.err(`iwarp proxy: connection ${number}: fault ${text} did not strike\n`);
        }
        if (how === 'quiet') this.#status = EXIT.FAILED;
        this.#over();
      },
    });
    this.#relays.add(relay);
    relay.start();
  }

  #over(): void {
    this.#open--;
    this.#endIfIdle();
  }

  #endIfIdle(): void {
    if (this.#open === 0 && this.#state === 'ending') this.#finish();
  }

  #event(connection: CapturedConnection, event: InspectEvent): void {
    const { filter, show, style } = this.#settings;
    if (!filter(connection, event)) return;
    this.#page?.add(connection, event);
    if (show !== 'events') return;
    const text = renderEvent(style, connection, event);
    this.#io.out(`${this.#io.colour === true && style !== 'json' ? painted(text, event) : text}\n`);
  }

  #summary(connection: CapturedConnection, error: Error | undefined): void {
    const { show, style } = this.#settings;
    this.#page?.touch();
    if (error !== undefined) this.#io.err(`iwarp proxy: connection ${connection.number}: ${error.message}\n`);
    if (show === 'nothing' || (style === 'json' && show !== 'summary')) return;
    this.#io.out(
      style === 'json' ? `${renderSummaryJson(connection)}\n` : `\n${renderSummary(connection)}\n\n`,
    );
  }
}
