/**
 * `net` of this process, so that its connections and listeners run over RDMA where a rule says so.
 *
 * Connecting: a socket that falls under a rule tries RDMA first, and TCP where nobody answers an MPA Request.
 * Listening: the port stays that of the program's own `net.Server`, and the first bytes of each connection
 * decide: an MPA Request makes it a stream over RDMA, anything else stays what it is. So programs with and
 * without this module can meet at one port.
 */
import { clearTimeout, setTimeout } from 'node:timers';
import diagnostics from 'node:diagnostics_channel';
import { lookup } from 'node:dns';
import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
// The default exports are the objects that programs share: all of them see a change.
import net, { type NetConnectOpts, type Server, type Socket } from 'node:net';
import tls, { type TLSSocket } from 'node:tls';
import { REQUEST_KEY } from '../mpa/wire.ts';
import { defaultRnic } from '../api/environment.ts';
import { connect as connectRdma, RdmaServer, type RdmaSocket } from '../sockets/index.ts';
import { OWN } from '../transport/own.ts';
import { DuplexPort, endsOf } from '../transport/duplex-port.ts';
import { override, release, standAlone, standOn } from './facade.ts';
import { ruleFor, type Rule } from './rules.ts';

/** What a connection of the program runs over; on the channel `iwarp:preload`. */
export interface PreloadEvent {
  /** The side of the program. */
  readonly side: 'connect' | 'listen';
  /** Peer's host or address. */
  readonly host: string;
  /** Peer's port where the program connects, its own where it listens. */
  readonly port: number;
  /** What it runs over. */
  readonly protocol: string;
  /** Why it runs over TCP although a rule names another protocol. */
  readonly reason: string | undefined;
}

const events = diagnostics.channel('iwarp:preload');
/** Milliseconds for which a peer that refused MPA gets TCP at once. */
const REMEMBER_MS = 30_000;
/** Milliseconds for the first bytes of a connection. After that the server may be the one to begin. */
const DEFAULT_PEEK_MS = 200;

/** What {@link install} goes by. */
export interface PreloadOptions {
  /** The first that matches a connection counts. */
  readonly rules: readonly Rule[];
  /** Say on stderr what each connection runs over. */
  readonly log: boolean;
  /** Milliseconds that a listener waits for the first bytes of a connection. Default 200. */
  readonly peek?: number;
}

/** Change `net` of this process. Returns what changes it back. */
export function install({ rules, log, peek = DEFAULT_PEEK_MS }: PreloadOptions): () => void {
  const report = (event: PreloadEvent): void => {
    if (events.hasSubscribers) events.publish(event);
    if (!log) return;
    const why = event.reason === undefined ? '' : ` (${event.reason})`;
    process.stderr.write(
      `iwarp/preload: ${event.side} ${event.host}:${event.port} over ${event.protocol}${why}\n`,
    );
  };
  const undo = [patchConnect(rules, report), patchServer(rules, report, peek), patchCallers()];
  syncBuiltinESMExports();
  return () => {
    for (const restore of undo) restore();
    syncBuiltinESMExports();
  };
}

type Report = (event: PreloadEvent) => void;

// ---------------------------------------------------------------------------------------------- connecting

/** Peers that do not speak MPA, until when. */
const refused = new Map<string, number>();

function patchConnect(rules: readonly Rule[], report: Report): () => void {
  const prototype = net.Socket.prototype;
  const plain = prototype.connect as (this: Socket, ...args: unknown[]) => Socket;
  prototype.connect = function (this: Socket, ...args: unknown[]): Socket {
    const target = targetOf(args);
    // A TLS socket needs its connection's handle; `tls.connect` is changed to make two of it.
    if (target === null || this instanceof tls.TLSSocket || (this as { _handle?: unknown })._handle)
      return plain.apply(this, args);
    const { host, port } = target;
    const first = ruleFor(rules, 'connect', host, port);
    const byAddress = net.isIP(host) === 0 && host !== 'localhost' && rules.some((rule) => rule.byAddress);
    if (first === null && !byAddress) return plain.apply(this, args);
    const attempt = new Attempt(this, target, () => plain.apply(this, args), report);
    if (first !== null) attempt.begin(first);
    else attempt.byAddress(rules);
    return this;
  } as typeof prototype.connect;
  return () => {
    prototype.connect = plain as typeof prototype.connect;
  };
}

/** Where a program connects to. */
interface Target {
  readonly host: string;
  readonly port: number;
  /** The options that the program gave. */
  readonly options: Readonly<Record<string, unknown>>;
  readonly listener: (() => void) | undefined;
}

/** The arguments of `connect` in any of their forms; null for anything but TCP. */
function targetOf(args: readonly unknown[]): Target | null {
  // `net.connect` hands its arguments on as one array that it has looked at already.
  const given = Array.isArray(args[0]) ? (args[0] as unknown[]) : args;
  const [first, second] = given;
  const last = given.at(-1);
  const listener = typeof last === 'function' ? (last as () => void) : undefined;
  const named = typeof first === 'object' && first !== null;
  const options = (named ? first : { port: first, host: second }) as Record<string, unknown>;
  const port = Number(options['port']);
  if (
    (options as { [OWN]?: unknown })[OWN] === true ||
    options['path'] != null ||
    !Number.isInteger(port) ||
    port < 1 ||
    port > 65_535
  )
    return null;
  const { host = 'localhost' } = options;
  if (typeof host !== 'string') return null;
  return { host: host === '' ? 'localhost' : host, port, options, listener };
}

/** A socket of the program on its way to a peer. */
class Attempt {
  readonly #socket: Socket;
  readonly #target: Target;
  readonly #plain: () => void;
  readonly #report: Report;

  constructor(socket: Socket, target: Target, plain: () => void, report: Report) {
    this.#socket = socket;
    this.#target = target;
    this.#plain = plain;
    this.#report = report;
    Object.assign(socket, { connecting: true });
  }

  /** A name may stand for an address that a rule names. */
  byAddress(rules: readonly Rule[]): void {
    const { host, port } = this.#target;
    lookup(host, (error, address) => {
      if (this.#socket.destroyed) return;
      const rule = error === null ? ruleFor(rules, 'connect', address, port) : null;
      if (rule === null) this.#plain();
      else this.begin(rule);
    });
  }

  begin(rule: Rule): void {
    const { host, port, options, listener } = this.#target;
    const where = `${host}:${port}`;
    const until = refused.get(where) ?? 0;
    if (rule.protocol === 'tcp' || (!rule.only && until > Date.now())) {
      this.#overTcp(rule.protocol === 'tcp' ? undefined : 'it did not speak MPA before');
      return;
    }
    const socket = this.#socket;
    const inner: RdmaSocket = connectRdma({
      host,
      port,
      protocol: rule.protocol,
      allowHalfOpen: true,
      ...(options['family'] === 4 || options['family'] === 6 ? { family: options['family'] } : {}),
      ...(typeof options['localAddress'] === 'string' ? { localAddress: options['localAddress'] } : {}),
    });
    if (listener !== undefined) socket.once('connect', listener);
    const failed = (error: Error): void => {
      if (rule.only || socket.destroyed) {
        socket.destroy(error);
        return;
      }
      // Where nothing listens there is nothing to fall back to; the same error comes from TCP itself.
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') this.#remember(where);
      if (listener !== undefined) socket.off('connect', listener);
      standAlone(socket);
      this.#overTcp(error.message);
    };
    inner.once('error', failed);
    inner.once('connect', () => {
      inner.off('error', failed);
      standOn(socket, inner);
      Object.assign(socket, { connecting: false });
      this.#report({ side: 'connect', host, port, protocol: rule.protocol, reason: undefined });
      socket.emit('connect');
      socket.emit('ready');
      if (!socket.isPaused()) socket.read(0);
    });
    wait(socket, inner);
  }

  #remember(where: string): void {
    refused.set(where, Date.now() + REMEMBER_MS);
    if (refused.size > 1000) refused.delete(refused.keys().next().value!);
  }

  #overTcp(reason: string | undefined): void {
    const { host, port } = this.#target;
    Object.assign(this.#socket, { connecting: false });
    this.#report({ side: 'connect', host, port, protocol: 'tcp', reason });
    this.#plain();
  }
}

/** Until it is known which stream carries the socket, its calls wait; given up, it ends the attempt. */
function wait(socket: Socket, inner: RdmaSocket): void {
  const define = (name: string, value: unknown): void => override(socket, name, value);
  // Which of the two it will be, the socket has to find out anew.
  const then = (name: '_read' | '_write' | '_writev' | '_final', args: unknown[]): void => {
    socket.once('connect', () => (socket[name] as (...given: unknown[]) => void)(...args));
  };
  define('_read', (...args: unknown[]) => then('_read', args));
  define('_write', (...args: unknown[]) => then('_write', args));
  define('_writev', (...args: unknown[]) => then('_writev', args));
  define('_final', (...args: unknown[]) => then('_final', args));
  define('_destroy', (error: Error | null, done: (error?: Error | null) => void) => {
    inner.on('error', () => undefined).destroy();
    release(socket, error, done);
  });
  define('ref', () => {
    inner.ref();
    return socket;
  });
  define('unref', () => {
    inner.unref();
    return socket;
  });
}

// ----------------------------------------------------------------------------------------------- listening

function patchServer(rules: readonly Rule[], report: Report, peek: number): () => void {
  const prototype = net.Server.prototype;
  const emit = prototype.emit as (this: Server, event: string, ...args: unknown[]) => boolean;
  const servers = new WeakMap<Server, RdmaServers>();
  prototype.emit = function (this: Server, event: string, ...args: unknown[]): boolean {
    const [socket] = args;
    const isOwn = (this as { [OWN]?: unknown })[OWN] === true;
    if (isOwn || event !== 'connection' || !(socket instanceof net.Socket) || seen.has(socket))
      return emit.call(this, event, ...args);
    const port = socket.localPort ?? 0;
    const rule = ruleFor(rules, 'listen', socket.localAddress ?? '', port);
    if (rule === null || rule.protocol === 'tcp') return emit.call(this, event, ...args);
    let over = servers.get(this);
    if (over === undefined) servers.set(this, (over = new RdmaServers(this)));
    seen.add(socket);
    look(socket, peek, (isMpa) => {
      const protocol = isMpa ? rule.protocol : 'tcp';
      const reason = isMpa ? undefined : 'its first bytes are no MPA Request';
      report({ side: 'listen', host: socket.remoteAddress ?? '', port, protocol, reason });
      if (isMpa) over.take(socket, rule.protocol as 'rsocket' | 'sdp');
      else if (rule.only) socket.destroy();
      else emit.call(this, event, socket);
    });
    return true;
  } as typeof prototype.emit;
  return () => {
    prototype.emit = emit as typeof prototype.emit;
  };
}

/** Sockets whose first bytes have been looked at, or that stand on RDMA. */
const seen = new WeakSet<Socket>();

/** See whether the first bytes are those of an MPA Request; they stay in the socket. */
function look(socket: Socket, peek: number, done: (isMpa: boolean) => void): void {
  const ignore = (): void => undefined;
  const settle = (isMpa: boolean): void => {
    clearTimeout(timer);
    socket.off('readable', onReadable);
    socket.off('close', onClose);
    socket.off('error', ignore);
    done(isMpa);
  };
  const timer = setTimeout(() => settle(false), peek);
  const onClose = (): void => clearTimeout(timer);
  const onReadable = (): void => {
    const bytes = socket.read() as Buffer | null;
    if (bytes === null) {
      if (socket.readableEnded) settle(false);
      return;
    }
    socket.unshift(bytes);
    const length = Math.min(bytes.length, REQUEST_KEY.length);
    const isKey = bytes.subarray(0, length).every((octet, i) => octet === REQUEST_KEY[i]);
    // A key that has not come whole is waited for.
    if (!isKey) settle(false);
    else if (length === REQUEST_KEY.length) settle(true);
  };
  socket.on('error', ignore).on('close', onClose).on('readable', onReadable);
}

/** The servers of streams over RDMA behind one of the program's own, one for each protocol. */
class RdmaServers {
  readonly #server: Server;
  readonly #behind = new Map<string, RdmaServer>();

  constructor(server: Server) {
    this.#server = server;
  }

  take(socket: Socket, protocol: 'rsocket' | 'sdp'): void {
    let server = this.#behind.get(protocol);
    if (server === undefined) {
      // An accepted socket cannot pass to a worker.
      server = new RdmaServer({ rnic: defaultRnic('thread'), allowHalfOpen: true, protocol });
      server.on('connection', (inner) => this.#connected(inner));
      this.#behind.set(protocol, server);
    }
    socket.pause();
    socket.allowHalfOpen = true;
    const port = new DuplexPort(socket, endsOf(socket));
    port.open(socket);
    server.take(port);
  }

  #connected(inner: RdmaSocket): void {
    const { allowHalfOpen } = this.#server as unknown as { allowHalfOpen?: boolean };
    const { pauseOnConnect } = this.#server as unknown as { pauseOnConnect?: boolean };
    const socket = new net.Socket({ allowHalfOpen: allowHalfOpen === true });
    standOn(socket, inner);
    seen.add(socket);
    // The program's server counts it like its own connections.
    const server = this.#server as Server & { _connections: number };
    server._connections++;
    Object.assign(socket, { server, _server: server });
    server.emit('connection', socket);
    if (server instanceof tls.Server) stayHalfOpen(socket);
    if (pauseOnConnect !== true) socket.read(0);
  }
}

// ------------------------------------------------------------------------------------------------- callers

/**
 * What TLS has still to write would be lost when a socket below it ends with its peer. The TLS socket has
 * taken over what the program wants, and ends with its peer itself.
 */
function stayHalfOpen(below: Socket): void {
  below.allowHalfOpen = true;
}

/** `tls.connect(port, host, options, listener)`, of which all but the port may be missing, in one form. */
function tlsArguments(args: readonly unknown[]): readonly unknown[] {
  const [port, host] = args;
  if (typeof port === 'object') return args;
  const options = args.slice(1, 3).find((arg) => typeof arg === 'object' && arg !== null);
  return [{ port, host: typeof host === 'string' ? host : undefined, ...options }, args.at(-1)];
}

/** Functions of Node that hold the unchanged `net`, or that need their own connection. */
function patchCallers(): () => void {
  const agent = http.Agent.prototype as unknown as { createConnection: typeof net.createConnection };
  const created = agent.createConnection;
  agent.createConnection = ((...args: Parameters<typeof net.createConnection>) =>
    net.createConnection(...args)) as typeof net.createConnection;
  const secure = tls.connect;
  const connectTls = (...args: unknown[]): TLSSocket => {
    const target = targetOf(tlsArguments(args));
    const socket = (target?.options as { socket?: unknown } | undefined)?.socket;
    if (target === null || socket !== undefined) return (secure as (...all: unknown[]) => TLSSocket)(...args);
    const { host, port, options, listener } = target;
    const below = net.connect(options as unknown as NetConnectOpts);
    const above = secure({ ...options, host, port, socket: below }, listener);
    stayHalfOpen(below);
    return above;
  };
  tls.connect = connectTls as typeof tls.connect;
  return () => {
    agent.createConnection = created;
    tls.connect = secure;
  };
}
