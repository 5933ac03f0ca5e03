/**
 * `iwarp proxy --wire trp`: stands between two peers of iWARP over UDP. Each client has a socket towards the
 * target; when the target answers from a separate port, the proxy answers the client from one too, so that
 * both find the proxy where they look for their peer.
 */
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { lookup } from 'node:dns/promises';
import { parseArgs } from 'node:util';
import { IwarpError } from '../../src/base/errors.ts';
import { DatagramConnection } from '../../src/inspect/decode/datagrams.ts';
import type { Direction, InspectEvent } from '../../src/inspect/decode/types.ts';
import type { EventFilter } from '../../src/inspect/render/filter.ts';
import {
  renderEvent,
  renderSummary,
  renderSummaryJson,
  type EventStyle,
} from '../../src/inspect/render/views.ts';
import { painted } from '../support/colour.ts';
import { numberFlag } from '../support/policy-flags.ts';
import type { ToolIo } from '../support/tool.ts';
import { filterOf, styleOf, VIEW_OPTIONS } from '../support/view-options.ts';
import {
  DATAGRAM_FAULT_USAGE,
  DatagramScript,
  parseDatagramFault,
  type DatagramFault,
} from './datagram-faults.ts';
import { parseEndpoint } from './settings.ts';

export const DATAGRAM_USAGE: string = `usage: iwarp proxy LISTEN TARGET --wire trp [options]
  LISTEN, TARGET           [HOST:]PORT, HOST in brackets if it is IPv6 (127.0.0.1); LISTEN may have port 0
  --json, -V, -x, --summary, -q, --opcode NAME, --stag HEX, --connection N, --errors
                           what is shown, as without --wire trp
  --sent                   show what the peers send, before faults; by default what they receive
  --fault FAULT            inject a fault (may be repeated)
  --seed N                 seed of random choices (by default one is chosen and printed)
  --once, --connections N  end after one connection, or after N
  --timeout SECONDS        forget a connection that is silent for this long (60)
  -h, --help               print this help
${DATAGRAM_FAULT_USAGE}`;

const MAX_SEED = 0xffff_ffff;
/** Connections at a time; requests beyond are dropped. */
const MAX_SESSIONS = 1024;
/** A connection is over this long after a FIN of each side, so that repeats of them still pass. */
const LINGER_MS = 300;

interface Settings {
  readonly listen: { readonly host: string; readonly port: number };
  readonly target: { readonly host: string; readonly port: number };
  readonly style: EventStyle;
  readonly show: 'events' | 'summary' | 'nothing';
  readonly filter: EventFilter;
  readonly sent: boolean;
  readonly faults: readonly DatagramFault[];
  readonly seed: number;
  readonly connections: number;
  readonly quietMs: number;
}

/** Parse `args`; null if help was asked for. Throws an error that names the mistake. */
export function parseDatagramSettings(args: string[]): Settings | null {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      ...VIEW_OPTIONS,
      wire: { type: 'string' },
      quiet: { type: 'boolean', short: 'q', default: false },
      sent: { type: 'boolean', default: false },
      fault: { type: 'string', multiple: true, default: [] },
      seed: { type: 'string' },
      once: { type: 'boolean', default: false },
      connections: { type: 'string' },
      timeout: { type: 'string', default: '60' },
    },
  } as const);
  if (values.help) return null;
  const [listen, target] = positionals;
  if (listen === undefined || target === undefined || positionals.length > 2)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'LISTEN and TARGET are needed');
  const { once: one, connections, seed } = values;
  return {
    listen: parseEndpoint(listen, 0),
    target: parseEndpoint(target, 1),
    style: styleOf(values),
    show: values.quiet ? 'nothing' : values.summary ? 'summary' : 'events',
    filter: filterOf(values),
    sent: values.sent,
    faults: values.fault.map(parseDatagramFault),
    seed: seed === undefined ? 1 + (Date.now() % MAX_SEED) : numberFlag('--seed', seed, 0, MAX_SEED),
    connections: one
      ? 1
      : connections === undefined
        ? Number.POSITIVE_INFINITY
        : numberFlag('--connections', connections, 1, MAX_SEED),
    quietMs: 1000 * numberFlag('--timeout', values.timeout, 1, 86_400),
  };
}

/** A datagram that waits for later ones, or for its time. */
interface Held {
  left: number;
  readonly go: () => void;
  readonly timer: NodeJS.Timeout;
}

interface Session {
  readonly connection: DatagramConnection;
  readonly client: RemoteInfo;
  readonly up: Socket;
  /** Answers the client once the target answers from a separate port. */
  down: Socket | undefined;
  targetPort: number;
  readonly held: readonly [Set<Held>, Set<Held>];
  readonly fins: [boolean, boolean];
  quiet: NodeJS.Timeout;
}

/** One run of the proxy; `run` settles with the exit status. */
export class DatagramProxy {
  readonly #settings: Settings;
  readonly #io: ToolIo;
  readonly #script: DatagramScript;
  readonly #sessions = new Map<string, Session>();
  readonly #began = performance.now();
  #address = '';
  #listener!: Socket;
  #count = 0;
  #finish!: () => void;
  readonly #finished = new Promise<void>((resolve) => (this.#finish = resolve));

  constructor(settings: Settings, io: ToolIo) {
    this.#settings = settings;
    this.#io = io;
    this.#script = new DatagramScript(settings.faults, settings.seed);
  }

  async run(): Promise<number> {
    const { listen, target, faults, seed } = this.#settings;
    this.#address = (await lookup(target.host)).address;
    this.#listener = await this.#bind(listen.host, listen.port, (raw, from) => this.#fromClient(raw, from));
    const { address, port } = this.#listener.address();
    this.#io.err(`iwarp proxy: listening on ${address} UDP port ${port}, to ${target.host}:${target.port}\n`);
    if (faults.length > 0) this.#io.err(`iwarp proxy: seed ${seed}\n`);
    const stop = (): void => this.#finish();
    this.#io.signal?.addEventListener('abort', stop, { once: true });
    if (this.#io.signal?.aborted === true) stop();
    this.#io.listening?.(port);
    await this.#finished;
    for (const session of this.#sessions.values()) this.#end(session);
    this.#listener.close();
    for (const { text, struck } of this.#script.counts)
      this.#io.err(`iwarp proxy: fault ${text} struck ${struck} time${struck === 1 ? '' : 's'}\n`);
    return 0;
  }

  async #bind(host: string, port: number, take: (raw: Buffer, from: RemoteInfo) => void): Promise<Socket> {
    const socket = createSocket({ type: host.includes(':') ? 'udp6' : 'udp4', recvBufferSize: 1 << 20 });
    try {
      socket.bind(port, host);
      await once(socket, 'listening');
    } catch (error) {
      socket.close();
      throw error;
    }
    socket.on('message', take);
    socket.on('error', () => undefined);
    return socket;
  }

  /** A datagram at the port that listens, or at a session's own. */
  #fromClient(raw: Buffer, from: RemoteInfo): void {
    const key = `${from.address} ${from.port}`;
    const session = this.#sessions.get(key);
    if (session !== undefined) {
      this.#pass(session, 0, raw);
      return;
    }
    if (this.#sessions.size >= MAX_SESSIONS || this.#count >= this.#settings.connections) return;
    const { address: here } = this.#listener.address();
    const { port } = this.#settings.target;
    const ends = [endText(from.address, from.port), endText(this.#address, port)] as const;
    const type = this.#address.includes(':') ? 'udp6' : 'udp4';
    const up = createSocket({ type, recvBufferSize: 1 << 20 });
    up.on('error', () => undefined);
    const made: Session = {
      connection: new DatagramConnection(++this.#count, ends, true),
      client: from,
      up,
      down: undefined,
      targetPort: port,
      held: [new Set(), new Set()],
      fins: [false, false],
      quiet: setTimeout(() => this.#end(made), this.#settings.quietMs),
    };
    this.#sessions.set(key, made);
    up.on('message', (answer, source) => this.#fromTarget(made, here, answer, source));
    this.#pass(made, 0, raw);
  }

  #fromTarget(session: Session, here: string, raw: Buffer, source: RemoteInfo): void {
    const { port } = this.#settings.target;
    if (source.port === port || session.down !== undefined) {
      if (source.port === port || source.port === session.targetPort) this.#pass(session, 1, raw);
      return;
    }
    session.targetPort = source.port;
    session.connection.ends = [session.connection.ends[0], endText(source.address, source.port)];
    const down = createSocket({ type: here.includes(':') ? 'udp6' : 'udp4', recvBufferSize: 1 << 20 });
    session.down = down;
    down.on('error', () => undefined);
    down.on('message', (data, from) => {
      if (from.port === session.client.port && from.address === session.client.address)
        this.#pass(session, 0, data);
    });
    // Sends that come before it is bound wait in it.
    down.bind(0, here);
    this.#pass(session, 1, raw);
  }

  #pass(session: Session, direction: Direction, raw: Buffer): void {
    session.quiet.refresh();
    const time = (performance.now() - this.#began) / 1000;
    const seen = session.connection;
    const event = seen.take(raw, 0, raw.length, direction, time);
    const { copies, ms, behind, struck } = this.#script.decide(event);
    const { sent } = this.#settings;
    if (sent) this.#show(session, event);
    for (const { text } of struck) this.#say(session, event, `fault ${text} strikes ${nameOf(event)}`);
    const waiting = [...session.held[direction]];
    const go = (): void => {
      if (!sent) this.#show(session, event);
      this.#put(session, direction, raw);
    };
    for (let copy = 0; copy < copies; copy++) {
      if (ms > 0) this.#hold(session, direction, ms, behind, go);
      else go();
    }
    for (const held of waiting) {
      if (held.left > 0 && --held.left === 0) {
        clearTimeout(held.timer);
        session.held[direction].delete(held);
        held.go();
      }
    }
    if (event.kind === 'trp' && event.opcode === 'TRP FIN') this.#fin(session, direction);
    if (event.kind === 'trp' && event.opcode === 'TRP Reject') this.#fin(session, 0, true);
  }

  #hold(session: Session, direction: Direction, ms: number, behind: number, go: () => void): void {
    const held: Held = {
      left: behind,
      go,
      timer: setTimeout(() => {
        session.held[direction].delete(held);
        go();
      }, ms),
    };
    session.held[direction].add(held);
  }

  #put(session: Session, direction: Direction, raw: Buffer): void {
    const { client, up, down, targetPort } = session;
    if (direction === 0) up.send(raw, targetPort, this.#address);
    else (down ?? this.#listener).send(raw, client.port, client.address);
  }

  /** Both sides have ended: no more than repeats will come. */
  #fin(session: Session, direction: Direction, both = false): void {
    session.fins[direction] = true;
    if (both || (session.fins[0] && session.fins[1])) setTimeout(() => this.#end(session), LINGER_MS);
  }

  #end(session: Session): void {
    const key = `${session.client.address} ${session.client.port}`;
    if (this.#sessions.get(key) !== session) return;
    this.#sessions.delete(key);
    clearTimeout(session.quiet);
    for (const side of session.held) for (const { timer } of side) clearTimeout(timer);
    session.up.close();
    session.down?.close();
    const { show, style } = this.#settings;
    const json = style === 'json';
    if (show === 'summary' || (show === 'events' && !json)) {
      const { connection } = session;
      this.#io.out(json ? `${renderSummaryJson(connection)}\n` : `\n${renderSummary(connection)}\n\n`);
    }
    if (this.#sessions.size === 0 && this.#count >= this.#settings.connections) this.#finish();
  }

  #say(session: Session, { direction, time }: InspectEvent, message: string): void {
    this.#show(session, { kind: 'note', direction, time, position: 0, octets: 0, message, problems: [] });
  }

  #show({ connection }: Session, event: InspectEvent): void {
    const { filter, show, style } = this.#settings;
    if (show !== 'events' || !filter(connection, event)) return;
    const text = renderEvent(style, connection, event);
    this.#io.out(`${this.#io.colour === true && style !== 'json' ? painted(text, event) : text}\n`);
  }
}

function nameOf(event: InspectEvent): string {
  return event.kind === 'trp' ? `${event.opcode}, PSN ${event.psn}` : 'a datagram';
}

function endText(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}
