/**
 * `iwarp shared`: one region of memory at each end of a connection, for people: `listen` offers a region and
 * shows what lies in it at the end, `connect` reads and writes the listener's.
 */
import { parseArgs } from 'node:util';
import { checkEngine, type EngineKind } from '../src/api/environment.ts';
import { checkInteger, IwarpError } from '../src/base/errors.ts';
import { connect, listen, type SharedConnection } from '../src/shared/index.ts';
import { printable } from './support/printable.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';

const USAGE = `usage: iwarp shared listen PORT [--host ADDRESS] [--size SIZE] [--show OFFSET:LENGTH]...
                                 [--once]
           [--engine thread|worker]
       iwarp shared connect HOST PORT [--size SIZE] [--write OFFSET=TEXT]... [--read OFFSET:LENGTH]...
           [--hex] [--engine thread|worker]

  --size SIZE            bytes of this side's region, such as 4096, 64K or 16M (16M)
  --host ADDRESS         the address to listen at (127.0.0.1); 0.0.0.0 and :: are every address
  --show OFFSET:LENGTH   print these bytes of this side's region when a connection has ended
  --once                 end after the first connection
  --write OFFSET=TEXT    write TEXT to the listener's region
  --read OFFSET:LENGTH   read bytes of the listener's region and print them, a line each
  --hex                  print bytes as hexadecimal digits

Reads and writes happen in the order of the command line. Every connection to one listener shares its region.
`;

const OPTIONS = {
  host: { type: 'string' },
  size: { type: 'string' },
  show: { type: 'string', multiple: true },
  once: { type: 'boolean' },
  write: { type: 'string', multiple: true },
  read: { type: 'string', multiple: true },
  hex: { type: 'boolean' },
  engine: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const;

/** Options of each subcommand beside --help. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  listen: ['host', 'size', 'show', 'once', 'hex', 'engine'],
  connect: ['size', 'write', 'read', 'hex', 'engine'],
};

/** Bytes of a read or a show. */
interface Span {
  readonly offset: number;
  readonly length: number;
}

/** A step of `connect`, as the command line gives it. */
type Step =
  | { readonly kind: 'write'; readonly offset: number; readonly bytes: Uint8Array }
  | ({ readonly kind: 'read' } & Span);

interface Request {
  readonly words: readonly string[];
  readonly host: string;
  readonly size: number;
  readonly shows: readonly Span[];
  readonly once: boolean;
  readonly hex: boolean;
  readonly engine: EngineKind | undefined;
  readonly steps: readonly Step[];
}

const MOST = 0xffff_ffff;

/** Entry point; the result is the exit status. */
export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const [command = '', ...rest] = args;
  try {
    if (command === '--help' || command === '-h' || rest.includes('--help') || rest.includes('-h')) {
      io.out(USAGE);
      return 0;
    }
    if (command !== 'listen' && command !== 'connect') throw usage('give listen or connect');
    const request = parse(command, rest);
    await (command === 'listen' ? serve(request, io) : use(request, io));
    return 0;
  } catch (error) {
    const isUsage =
      error instanceof TypeError || (error instanceof IwarpError && error.code === 'ERR_INVALID_ARGUMENT');
    if (!isUsage && !(error instanceof IwarpError) && !(error instanceof RangeError)) throw error;
    io.err(`shared: ${printable((error as Error).message)}\n${isUsage ? USAGE : ''}`);
    return isUsage ? 2 : 1;
  }
}

function usage(message: string): IwarpError {
  return new IwarpError('ERR_INVALID_ARGUMENT', message);
}

function parse(command: string, args: string[]): Request {
  const parsed = parseArgs({ args, allowPositionals: true, options: OPTIONS, tokens: true });
  const { values, positionals: words, tokens } = parsed;
  for (const name of Object.keys(values))
    if (!ALLOWED[command]!.includes(name)) throw usage(`--${name} is not an option of ${command}`);
  const steps = tokens.flatMap((token): Step[] => {
    if (token.kind !== 'option' || token.value === undefined) return [];
    if (token.name === 'write') return [parseWrite(token.value)];
    return token.name === 'read' ? [{ kind: 'read', ...parseSpan('--read', token.value) }] : [];
  });
  return {
    words,
    steps,
    host: values.host ?? '127.0.0.1',
    size: values.size === undefined ? 16 * 2 ** 20 : parseSize(values.size),
    shows: (values.show ?? []).map((text) => parseSpan('--show', text)),
    once: values.once === true,
    hex: values.hex === true,
    engine: values.engine === undefined ? undefined : checkEngine('--engine', values.engine),
  };
}

function parseSize(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,10})([KMG]?)$/i.exec(text) ?? [];
  if (digits === '') throw usage(`--size must be a size such as 4096 or 16M, got '${text}'`);
  return checkInteger('--size', Number(digits) * 1024 ** ' KMG'.indexOf(unit.toUpperCase() || ' '), 1, MOST);
}

function parseSpan(name: string, text: string): Span {
  const [, offset, length] = /^(\d{1,10}):(\d{1,10})$/.exec(text) ?? [];
  if (length === undefined) throw usage(`${name} must be OFFSET:LENGTH, got '${text}'`);
  return { offset: Number(offset), length: Number(length) };
}

function parseWrite(text: string): Step {
  const [, offset, words] = /^(\d{1,10})=([^]*)$/.exec(text) ?? [];
  if (words === undefined) throw usage(`--write must be OFFSET=TEXT, got '${text}'`);
  return { kind: 'write', offset: Number(offset), bytes: new TextEncoder().encode(words) };
}

function parsePort(text: string | undefined): number {
  if (text === undefined || !/^\d{1,5}$/.test(text)) throw usage('give a port from 0 to 65535');
  return checkInteger('the port', Number(text), 0, 65_535);
}

/** Bytes of a region as a line: the text that they are, without trailing zeros, or digits. */
function line(region: Uint8Array, { offset, length }: Span, hex: boolean): string {
  const bytes = Buffer.from(region.slice(offset, offset + length));
  if (hex) return bytes.toString('hex');
  return printable(bytes.toString('utf8').replace(/\0+$/, ''));
}

// ---------------------------------------------------------------------------------------------------- listen

async function serve({ words, host, size, shows, once, hex, engine }: Request, io: ToolIo): Promise<void> {
  if (words.length !== 1) throw usage('listen takes a port');
  for (const { offset, length } of shows)
    if (offset + length > size) throw usage(`--show ${offset}:${length} lies outside the region`);
  const memory = new Uint8Array(new SharedArrayBuffer(size));
  const port = parsePort(words[0]);
  const listener = await listen({ host, port, memory, engine });
  const { address } = listener;
  io.out(`listening at ${hostPort(address)}, ${size} bytes\n`);
  io.listening?.(address.port);
  const stop = (): void => void listener.close();
  process.once('SIGINT', stop).once('SIGTERM', stop);
  if (io.signal?.aborted === true) stop();
  io.signal?.addEventListener('abort', stop, { once: true });
  const open = new Set<SharedConnection>();
  for await (const connection of listener) {
    open.add(connection);
    const watched = watch(connection, io).then(() => {
      open.delete(connection);
      for (const span of shows) io.out(`${line(memory, span, hex)}\n`);
    });
    if (!once) continue;
    await watched;
    await listener.close();
  }
  await Promise.all([...open].map(({ socket }) => socket.close()));
  process.off('SIGINT', stop).off('SIGTERM', stop);
}

async function watch({ socket }: SharedConnection, io: ToolIo): Promise<void> {
  const peer = socket.remoteAddress === undefined ? 'a peer' : hostPort(socket.remoteAddress);
  io.out(`${peer} has connected, ${socket.remoteLength} bytes\n`);
  const error = await socket.closed;
  io.out(`${peer} has left${error === undefined ? '' : `: ${printable(error.message)}`}\n`);
}

function hostPort({ address, port }: { readonly address: string; readonly port: number }): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

// --------------------------------------------------------------------------------------------------- connect

async function use({ words, size, steps, hex, engine }: Request, io: ToolIo): Promise<void> {
  const [host, port, ...more] = words;
  if (host === undefined || more.length > 0) throw usage('connect takes a host and a port');
  const longest = Math.max(
    size,
    ...steps.map((step) => (step.kind === 'read' ? step.length : step.bytes.length)),
  );
  const { socket, region } = await connect({ host, port: parsePort(port) }, { octets: longest, engine });
  try {
    for (const step of steps) {
      const { offset } = step;
      if (step.kind === 'write') {
        region.set(step.bytes);
        await socket.settled(socket.write(step.bytes.length, 0, offset));
      } else {
        await socket.settled(socket.read(step.length, 0, offset));
        io.out(`${line(region, { offset: 0, length: step.length }, hex)}\n`);
      }
    }
  } finally {
    await socket.close();
  }
}
