/**
 * `iwarp stream`: netcat for RDMA. Standard input to the peer, its bytes to standard output; the end of the
 * input ends our direction, and the command ends with the peer's.
 */
import { once, type EventEmitter } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, createServer as createTcpServer, isIP } from 'node:net';
import type { AddressInfo, Server as TcpServer } from 'node:net';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import type { ConnectionOptions, TlsOptions as ServerTlsOptions } from 'node:tls';
import { parseArgs } from 'node:util';
import { openRnic, type EngineKind } from '../src/api/environment.ts';
import { checkInteger, checkOneOf, IwarpError } from '../src/base/errors.ts';
import {
  connect,
  createServer,
  type HelloPlacement,
  type RdmaServer,
  type RdmaSocketOptions,
  type SdpStreamMode,
} from '../src/sockets/index.ts';
import type { TlsOptions } from '../src/transport/tls-options.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';

const USAGE = `usage: iwarp stream listen PORT [options]
       iwarp stream connect HOST PORT [options]
       iwarp stream listen|connect --unix PATH [options]

  standard input to the peer, its bytes to standard output; the end of the input ends our direction
  listen takes one connection, and ends with it; port 0 picks a free one and prints it to standard error

  --host ADDR      listen: IP address; default 127.0.0.1
  --unix PATH      a Unix socket in place of a host and a port
  --echo           send back what comes, in place of standard input and output; listen: to every peer
  --protocol NAME  rsocket (default), sdp or tcp: the same at both ends
  --mode MODE      sdp: how large writes move: buffered (default), source, sink, auto
  --max-adverts N  sdp: advertisements outstanding in each direction, 1 to 64; default 16
  --placement NAME sdp: where Hello goes: private-data (default), or streaming, in front of the MPA frames
  --engine NAME    rsocket, sdp: thread (default) or worker
  --tls            speak TLS below the protocol: the same at both ends
  --cert FILE      --tls: certificate chain in PEM; listen needs it, with --key
  --key FILE       --tls: its private key in PEM
  --ca FILE        --tls: authorities to trust in place of the system's; listen: ask for a certificate
  --servername NAME  connect --tls: the name that the certificate has to have; default: HOST
  --insecure       connect --tls: take any certificate
`;

const OPTIONS = {
  host: { type: 'string', default: '127.0.0.1' },
  unix: { type: 'string' },
  echo: { type: 'boolean', default: false },
  protocol: { type: 'string', default: 'rsocket' },
  mode: { type: 'string' },
  'max-adverts': { type: 'string' },
  placement: { type: 'string' },
  engine: { type: 'string', default: 'thread' },
  tls: { type: 'boolean', default: false },
  cert: { type: 'string' },
  key: { type: 'string' },
  ca: { type: 'string' },
  servername: { type: 'string' },
  insecure: { type: 'boolean' },
} as const;
const TLS_OPTIONS = ['cert', 'key', 'ca', 'servername', 'insecure'] as const;

/** Where to listen, or to connect to. */
type Place = { readonly host: string; readonly port: number } | { readonly path: string };

/** The part of a server that all protocols have. */
type AnyServer = EventEmitter &
  Pick<TcpServer | RdmaServer, 'close' | 'address'> & {
    listen(where: Place): unknown;
  };

/** The settings from the command line. */
interface StreamPlan {
  readonly protocol: 'rsocket' | 'sdp' | 'tcp';
  readonly place: Place;
  readonly echo: boolean;
  readonly socket: RdmaSocketOptions;
  readonly tls: TlsOptions | null;
}

/** Entry point; the result is the exit status. */
export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const [command = '', ...rest] = args;
  try {
    if (command === '--help' || command === '-h' || rest.includes('--help')) io.out(USAGE);
    else if (command === 'listen') await listen(planOf(rest, ['PORT']), io);
    else if (command === 'connect') await dial(planOf(rest, ['HOST', 'PORT']), io);
    else throw usage('give listen or connect');
    return 0;
  } catch (error) {
    const isUsage =
      error instanceof TypeError || (error instanceof IwarpError && error.code === 'ERR_INVALID_ARGUMENT');
    io.err(`stream: ${(error as Error).message}\n${isUsage ? USAGE : ''}`);
    return isUsage ? 2 : 1;
  }
}

function usage(message: string): IwarpError {
  return new IwarpError('ERR_INVALID_ARGUMENT', message);
}

function planOf(args: string[], words: readonly string[]): StreamPlan {
  const { values, positionals } = parseArgs({ args, allowPositionals: true, options: OPTIONS });
  const { unix } = values;
  if (positionals.length !== (unix === undefined ? words.length : 0))
    throw usage(`give ${words.join(' and ')}, or --unix PATH`);
  const protocol = checkOneOf('--protocol', values.protocol as 'sdp', ['rsocket', 'sdp', 'tcp']);
  const engine = checkOneOf('--engine', values.engine as EngineKind, ['thread', 'worker']);
  const role = words.length === 1 ? 'listen' : 'connect';
  const tls = values.tls ? tlsOf(role, values) : null;
  for (const name of TLS_OPTIONS)
    if (!values.tls && values[name] !== undefined) throw usage(`--${name} needs --tls`);
  const { mode, placement } = values;
  const maxAdverts = values['max-adverts'];
  if (protocol !== 'sdp' && (mode !== undefined || maxAdverts !== undefined || placement !== undefined))
    throw usage('--mode, --max-adverts and --placement need --protocol sdp');
  return {
    protocol,
    place:
      unix !== undefined
        ? { path: unix }
        : {
            host: role === 'listen' ? values.host : positionals[0]!,
            port: numberOf('PORT', positionals.at(-1)!, role === 'listen' ? 0 : 1, 65_535),
          },
    echo: values.echo,
    tls,
    socket: {
      ...(protocol !== 'tcp' && { protocol, rnic: openRnic({ engine }) }),
      ...(mode !== undefined && {
        mode: checkOneOf<SdpStreamMode>('--mode', mode as SdpStreamMode, [
          'buffered',
          'source',
          'sink',
          'auto',
        ]),
      }),
      ...(maxAdverts !== undefined && { maxAdverts: numberOf('--max-adverts', maxAdverts, 1, 64) }),
      ...(placement !== undefined && {
        placement: checkOneOf<HelloPlacement>('--placement', placement as HelloPlacement, [
          'private-data',
          'streaming',
        ]),
      }),
      allowHalfOpen: true,
    },
  };
}

type TlsValues = Partial<Record<Exclude<(typeof TLS_OPTIONS)[number], 'insecure'>, string>> & {
  readonly insecure?: boolean | undefined;
};

/** The options of `node:tls` that the command line names. */
function tlsOf(role: 'listen' | 'connect', values: TlsValues): TlsOptions {
  const { servername, insecure } = values;
  const fileOf = (name: 'cert' | 'key' | 'ca'): Record<string, string> =>
    values[name] === undefined ? {} : { [name]: readText(name, values[name]) };
  const pems: TlsOptions = { ...fileOf('cert'), ...fileOf('key'), ...fileOf('ca') };
  if ((pems.cert === undefined) !== (pems.key === undefined)) throw usage('give --cert and --key together');
  if (role === 'connect')
    return {
      ...pems,
      ...(servername !== undefined && { servername }),
      ...(insecure === true && { rejectUnauthorized: false }),
    };
  if (pems.cert === undefined) throw usage('listen --tls needs --cert and --key');
  if (servername !== undefined || insecure !== undefined)
    throw usage('--servername and --insecure are for connect');
  return { ...pems, ...(pems.ca !== undefined && { requestCert: true, rejectUnauthorized: true }) };
}

function readText(name: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw usage(`--${name} ${file}: ${(error as NodeJS.ErrnoException).code ?? 'cannot be read'}`);
  }
}

function numberOf(name: string, text: string, min: number, max: number): number {
  return checkInteger(name, /^\d+$/.test(text) ? Number(text) : Number.NaN, min, max);
}

async function dial(plan: StreamPlan, io: ToolIo): Promise<void> {
  const { protocol, place, echo, socket: options, tls } = plan;
  if (protocol !== 'tcp') {
    const socket = connect({ ...options, ...place, ...(tls !== null && { tls }) });
    await once(socket, 'connect');
    await talk(socket, echo, io);
    return;
  }
  const socket =
    tls === null
      ? connectTcp({ ...place, allowHalfOpen: true })
      : connectTls({ servername: nameIn(place), ...(tls as ConnectionOptions), ...place });
  socket.allowHalfOpen = true;
  await once(socket, tls === null ? 'connect' : 'secureConnect');
  await talk(socket, echo, io);
}

/** The name that a certificate is asked for; an address is none. */
function nameIn(place: Place): string {
  return 'host' in place && isIP(place.host) === 0 ? place.host : '';
}

/** A server of the plan's protocol, and the event that brings its connections. */
function serverOf({ protocol, socket, tls }: StreamPlan): { server: AnyServer; connection: string } {
  if (protocol !== 'tcp') {
    const server = createServer({ ...socket, ...(tls !== null && { tls }) });
    return { server, connection: 'connection' };
  }
  if (tls === null) return { server: createTcpServer({ allowHalfOpen: true }), connection: 'connection' };
  const server = createTlsServer({ ...(tls as ServerTlsOptions), allowHalfOpen: true });
  return { server, connection: 'secureConnection' };
}

async function listen(plan: StreamPlan, io: ToolIo): Promise<void> {
  const { place, echo } = plan;
  const { server, connection } = serverOf(plan);
  server.listen(place);
  await once(server, 'listening');
  const address = server.address() as AddressInfo | string;
  const port = typeof address === 'string' ? 0 : address.port;
  io.err(`listening on ${typeof address === 'string' ? address : `${address.address} port ${port}`}\n`);
  io.listening?.(port);
  if (!echo) {
    const [socket] = (await once(server, connection)) as [Duplex];
    server.close();
    await talk(socket, false, io);
    return;
  }
  const open = new Set<Duplex>();
  server.on(connection, (socket: Duplex) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    talk(socket, true, io).catch((error: Error) => io.err(`stream: ${error.message}\n`));
  });
  await untilStopped(io);
  server.close();
  for (const socket of open) socket.destroy();
}

/** Both directions at once, until both have ended. */
async function talk(socket: Duplex, echo: boolean, io: ToolIo): Promise<void> {
  if (echo) {
    await pipeline(socket, socket);
    return;
  }
  const stop = (): void => void socket.destroy();
  io.signal?.addEventListener('abort', stop, { once: true });
  // A stream of the program's bytes, not text of a peer to show: written as it is.
  socket.pipe(process.stdout, { end: false });
  process.stdin.pipe(socket);
  try {
    await once(socket, 'close');
  } finally {
    process.stdin.unpipe(socket).destroy();
    io.signal?.removeEventListener('abort', stop);
  }
}

/** Runs until the process is asked to end. */
function untilStopped(io: ToolIo): Promise<void> {
  return new Promise((resolve) => {
    const stop = (): void => resolve();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    if (io.signal?.aborted === true) stop();
    io.signal?.addEventListener('abort', stop, { once: true });
  });
}
