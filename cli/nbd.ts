/**
 * `iwarp nbd`: block devices over the network. `serve` offers memory and files, `attach` makes a remote
 * export a local NBD server, `copy` copies between files and exports, `info` shows an export.
 */
// cspell:ignore kmgt
import { unlinkSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { openRnic, type EngineKind, type Rnic } from '../src/api/environment.ts';
import { checkOneOf, IwarpError } from '../src/base/errors.ts';
import {
  connect,
  copyDevice,
  createServer,
  fileDevice,
  listExports,
  memoryDevice,
  parseUri,
  type BlockDevice,
  type NbdServer,
  type NbdTarget,
  type RemoteDevice,
} from '../src/nbd/index.ts';
import { CRC_POLICIES, type ConnectionPolicy } from '../src/mpa/policy.ts';
import { printableLines, quoted } from './support/printable.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';

const USAGE = `usage: iwarp nbd serve --memory SIZE | --file PATH [--export NAME=SOURCE]... [--read-only]
           [--nbd HOST:PORT] [--nbd-unix PATH] [--rdma HOST:PORT] [--wire iwarp|qpip]
           [--crc KIND] [--engine thread|worker]
       iwarp nbd attach rdma://HOST:PORT[/NAME] [--mode message|direct] --unix PATH | --nbd HOST:PORT
           [--wire iwarp|qpip] [--connections N] [--depth N] [--retry]
           [--crc KIND] [--engine thread|worker]
       iwarp nbd copy A B [--request SIZE] [--depth N] [--connections N] [--mode message|direct] [--quiet]
           [--wire iwarp|qpip] [--crc KIND] [--engine thread|worker]
       iwarp nbd info URI [--mode message|direct] [--wire iwarp|qpip] [--crc KIND]

  --memory SIZE            an export of zeros in memory, such as 64M
  --file PATH              an export of a file; of that size, with --size SIZE, if it is to be made
  --export NAME=SOURCE     a further export: a file's path, or memory:SIZE; several are allowed
  --read-only              clients may not write
  --nbd, --nbd-unix        where NBD clients connect: TCP port, Unix socket
  --rdma HOST:PORT         where queue pairs connect
  --wire iwarp|qpip        how queue pairs travel; qpip is plain TCP, to any NBD program
  --crc required|preferred|off  a CRC in each frame of queue pairs; none if both sides say off (required)
  --retry                  connect again when the connection is lost, and repeat requests
  A, B                     files, nbd://HOST[:PORT]/NAME, nbd+unix:///NAME?socket=PATH,
                           rdma://HOST[:PORT]/NAME
`;

const OPTIONS = {
  memory: { type: 'string' },
  file: { type: 'string' },
  size: { type: 'string' },
  export: { type: 'string', multiple: true },
  'read-only': { type: 'boolean' },
  nbd: { type: 'string' },
  'nbd-unix': { type: 'string' },
  unix: { type: 'string' },
  rdma: { type: 'string' },
  wire: { type: 'string' },
  crc: { type: 'string' },
  engine: { type: 'string' },
  mode: { type: 'string' },
  connections: { type: 'string' },
  depth: { type: 'string' },
  request: { type: 'string' },
  retry: { type: 'boolean' },
  quiet: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

/** Options of each subcommand beside --help. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  serve: [
    'memory',
    'file',
    'size',
    'export',
    'read-only',
    'nbd',
    'nbd-unix',
    'rdma',
    'wire',
    'crc',
    'engine',
  ],
  attach: ['mode', 'unix', 'nbd', 'connections', 'depth', 'retry', 'wire', 'crc', 'engine'],
  copy: ['request', 'depth', 'connections', 'mode', 'quiet', 'retry', 'wire', 'crc', 'engine'],
  info: ['mode', 'wire', 'crc', 'engine'],
};

type Values = { readonly [K in keyof typeof OPTIONS]?: string | boolean | string[] };

class Arguments {
  readonly values: Values;
  readonly words: readonly string[];

  constructor(values: Values, words: readonly string[]) {
    this.values = values;
    this.words = words;
  }

  text(name: keyof typeof OPTIONS): string | undefined {
    const value = this.values[name];
    return typeof value === 'string' ? value : undefined;
  }

  flag(name: keyof typeof OPTIONS): boolean {
    return this.values[name] === true;
  }

  number(name: keyof typeof OPTIONS, fallback: number): number {
    const text = this.text(name);
    return text === undefined ? fallback : parseSize(`--${name}`, text);
  }

  mode(): 'message' | 'direct' {
    return checkOneOf('--mode', (this.text('mode') ?? 'direct') as 'direct', ['message', 'direct']);
  }

  /** Differences of queue pairs from the default policy. */
  policy(): { readonly policy?: Pick<ConnectionPolicy, 'crc'> } {
    const crc = this.text('crc');
    return crc === undefined ? {} : { policy: { crc: checkOneOf('--crc', crc as 'off', CRC_POLICIES) } };
  }

  /** The device for queue pairs; made when one is needed. */
  rnic(): Rnic {
    const wire = checkOneOf('--wire', (this.text('wire') ?? 'iwarp') as 'iwarp', ['iwarp', 'qpip']);
    const engine = this.text('engine');
    return openRnic({ wire, ...(engine !== undefined && { engine: engine as EngineKind }) });
  }
}

/** Bytes: a number, with K, M, G or T for powers of 1024. */
function parseSize(name: string, text: string): number {
  const match = /^(\d{1,15})([KMGT]?)$/i.exec(text);
  const power = match === null ? -1 : ' KMGT'.indexOf((match[2] || ' ').toUpperCase());
  const size = match === null ? Number.NaN : Number(match[1]) * 1024 ** power;
  if (Number.isSafeInteger(size)) return size;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a size such as 65536 or 64M, got '${text}'`);
}

/** `HOST:PORT`, `[ADDRESS]:PORT` or `PORT`. */
function parseAddress(name: string, text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:(?:\[([^\]]+)\]|([^:]*)):)?(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be HOST:PORT, got '${text}'`);
  return { host: match[1] ?? (match[2] || '127.0.0.1'), port };
}

const RUNS: Readonly<Record<string, (args: Arguments, io: ToolIo) => Promise<void>>> = {
  serve,
  attach,
  copy,
  info,
};

/** Entry point; the result is the exit status. */
export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const [command = '', ...rest] = args;
  try {
    const { values, positionals } = parseArgs({ args: rest, allowPositionals: true, options: OPTIONS });
    const act = Object.hasOwn(RUNS, command) ? RUNS[command] : undefined;
    if (values.help === true || command === '--help' || command === '-h') {
      io.out(USAGE);
      return 0;
    }
    if (act === undefined) throw new IwarpError('ERR_INVALID_ARGUMENT', 'give serve, attach, copy or info');
    for (const name of Object.keys(values))
      if (!ALLOWED[command]!.includes(name))
        throw new IwarpError('ERR_INVALID_ARGUMENT', `--${name} is not an option of ${command}`);
    await act(new Arguments(values, positionals), io);
    return 0;
  } catch (error) {
    const isUsage =
      error instanceof TypeError || (error instanceof IwarpError && error.code === 'ERR_INVALID_ARGUMENT');
    if (!isUsage && !(error instanceof IwarpError)) throw error;
    io.err(`nbd: ${printableLines((error as Error).message)}\n${isUsage ? USAGE : ''}`);
    return isUsage ? 2 : 1;
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

// ----------------------------------------------------------------------------------------------------- serve

async function serve(args: Arguments, io: ToolIo): Promise<void> {
  const { nbd, 'nbd-unix': unix, rdma } = args.values as Record<string, string | undefined>;
  if (args.words.length > 0)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `'${args.words[0]}' is no option of serve`);
  if (nbd === undefined && unix === undefined && rdma === undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'serve needs --nbd, --nbd-unix or --rdma');
  const rnic = rdma === undefined ? null : args.rnic();
  const exports = await openExports(args);
  const server = createServer({ exports });
  await listen(server, { nbd, unix }, io);
  if (rdma !== undefined) {
    const at = await server.listenRdma({
      ...parseAddress('--rdma', rdma),
      ...args.policy(),
      rnic: rnic!,
    });
    io.out(`serving rdma://${hostPort(at.host, at.port)}\n`);
  }
  await untilStopped(io);
  await server.close();
  for (const device of Object.values(exports)) await device.close?.();
  if (unix !== undefined) removeSocket(unix);
  const { connections, requests, readBytes, writtenBytes, errors } = server.stats();
  io.out(
    `${connections} connections, ${requests} requests, ` +
      `${readBytes} bytes read, ${writtenBytes} written, ${errors} errors\n`,
  );
}

async function openExports(args: Arguments): Promise<Record<string, BlockDevice>> {
  // Names are the user's: none of them may be one that every object has.
  const exports = Object.create(null) as Record<string, BlockDevice>;
  const readOnly = args.flag('read-only');
  const add = (name: string, device: BlockDevice): void => {
    if (name in exports)
      throw new IwarpError('ERR_INVALID_ARGUMENT', `--export: there are two exports named '${name}'`);
    exports[name] = device;
  };
  const memory = (name: string, text: string): BlockDevice =>
    memoryDevice({ size: parseSize(name, text), shared: true, readOnly });
  const size = args.text('size');
  const file = (path: string): Promise<BlockDevice> =>
    fileDevice(path, { readOnly, ...(size !== undefined && { size: parseSize('--size', size) }) });
  const [memorySize, path] = [args.text('memory'), args.text('file')];
  if (memorySize !== undefined && path !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'give --memory or --file, and --export for more');
  if (memorySize !== undefined) add('', memory('--memory', memorySize));
  if (path !== undefined) add('', await file(path));
  for (const text of (args.values.export as string[] | undefined) ?? []) {
    const at = text.indexOf('=');
    if (at < 0) throw new IwarpError('ERR_INVALID_ARGUMENT', `--export must be NAME=SOURCE, got '${text}'`);
    const [name, source] = [text.slice(0, at), text.slice(at + 1)];
    add(name, source.startsWith('memory:') ? memory('--export', source.slice(7)) : await file(source));
  }
  if (Object.keys(exports).length === 0)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'serve needs --memory, --file or --export');
  return exports;
}

interface Where {
  readonly nbd: string | undefined;
  readonly unix: string | undefined;
}

async function listen(server: NbdServer, { nbd, unix }: Where, io: ToolIo): Promise<void> {
  if (nbd !== undefined) {
    const at = await server.listen(parseAddress('--nbd', nbd));
    if (typeof at === 'string') return;
    io.out(`serving nbd://${hostPort(at.address, at.port)}\n`);
    io.listening?.(at.port);
  }
  if (unix !== undefined) {
    await server.listen({ path: unix });
    io.out(`serving nbd+unix:///?socket=${unix}\n`);
  }
}

const hostPort = (host: string, port: number): string => `${host.includes(':') ? `[${host}]` : host}:${port}`;

function removeSocket(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Node has removed it when the listener closed.
  }
}

// ---------------------------------------------------------------------------------------------------- attach

async function attach(args: Arguments, io: ToolIo): Promise<void> {
  const [uri = '', ...more] = args.words;
  if (more.length > 0 || uri === '') throw new IwarpError('ERR_INVALID_ARGUMENT', 'attach takes one URI');
  const where = { nbd: args.text('nbd'), unix: args.text('unix') };
  if (where.nbd === undefined && where.unix === undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'attach needs --unix or --nbd');
  const device = await openUri(args, uri);
  const server = createServer({ exports: { [parseUri(uri).name]: device } });
  try {
    await listen(server, where, io);
    const lost = await Promise.race([untilStopped(io), device.closed]);
    if (lost !== undefined) throw lost;
  } finally {
    await server.close();
    await device.close();
    if (where.unix !== undefined) removeSocket(where.unix);
  }
}

function openUri(args: Arguments, uri: string): Promise<RemoteDevice> {
  return connect({
    uri,
    mode: args.mode(),
    depth: args.number('depth', 16),
    connections: args.number('connections', 1),
    ...(parseUri(uri).kind === 'rdma' && { rnic: args.rnic(), ...args.policy() }),
    ...(args.flag('retry') && { reconnect: {} }),
  });
}

// ------------------------------------------------------------------------------------------------ copy, info

async function copy(args: Arguments, io: ToolIo): Promise<void> {
  const [source, target, ...more] = args.words;
  if (source === undefined || target === undefined || more.length > 0)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'copy takes a source and a target');
  const from = await openSide(args, source);
  try {
    const to = await openSide(args, target, Number(from.size));
    try {
      await copyWithProgress(args, from, to, io);
    } finally {
      await to.close?.();
    }
  } finally {
    await from.close?.();
  }
}

/** A file or a URI; a target file is made as long as the source. */
async function openSide(args: Arguments, name: string, size?: number): Promise<BlockDevice> {
  if (/^(nbd|nbd\+unix|rdma):\/\//.test(name)) return await openUri(args, name);
  if (size === undefined) return await fileDevice(name, { readOnly: true });
  const found = await stat(name).catch(() => null);
  return await fileDevice(name, found?.isBlockDevice() === true ? {} : { size });
}

async function copyWithProgress(
  args: Arguments,
  from: BlockDevice,
  to: BlockDevice,
  io: ToolIo,
): Promise<void> {
  const began = performance.now();
  let shown = began;
  const line = (done: bigint): string => {
    const seconds = (performance.now() - began) / 1000;
    const percent = from.size === 0n ? 100 : Number((done * 100n) / from.size);
    const rate = Number(done) / 1e6 / Math.max(seconds, 0.001);
    return `${percent} % of ${from.size} bytes, ${rate.toFixed(0)} MB/s`;
  };
  const isShown = !args.flag('quiet');
  await copyDevice(from, to, {
    request: args.number('request', 262_144),
    depth: args.number('depth', 16),
    progress: (done) => {
      const now = performance.now();
      if (!isShown || now - shown < 200) return;
      shown = now;
      io.err(`\r${line(done)}   `);
    },
  });
  if (isShown) io.err(`\r${line(from.size)}   \n`);
}

async function info(args: Arguments, io: ToolIo): Promise<void> {
  const [uri, ...more] = args.words;
  if (uri === undefined || more.length > 0)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'info takes one URI');
  const target: NbdTarget = parseUri(uri);
  const device = await openUri(args, uri);
  const { size, info: found } = device;
  const { minimum, preferred, maximum } = found.blocks;
  const can = { flush: device.flush, trim: device.trim, zero: device.zero, extents: device.extents };
  const names = Object.entries(can).flatMap(([name, method]) => (method === undefined ? [] : [name]));
  io.out(`export ${quoted(target.name)}: ${size} bytes${device.readOnly ? ', read-only' : ''}\n`);
  io.out(`  blocks: minimum ${minimum}, preferred ${preferred}, maximum ${maximum}\n`);
  io.out(`  can: ${['read', ...(device.readOnly ? [] : ['write']), ...names].join(', ')}\n`);
  await device.close();
  if (target.kind !== 'rdma') io.out(`  exports here: ${(await listExports(uri)).map(quoted).join(', ')}\n`);
}
