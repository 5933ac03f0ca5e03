/**
 * `iwarp rstream`: the stream test of librdmacm's rstream over rsockets, both sides. Before each test 16
 * octets go each way; then the client sends `-C` transfers of `-S` octets and takes as many back, `-I` times.
 * Without those flags a run over sizes, for latency on one connection and for bandwidth on a second.
 */
// cspell:ignore sabfnrv
import { IwarpError } from '../src/base/errors.ts';
import { SOCKET_RANGES } from '../src/sockets/options.ts';
import {
  addressOption,
  atoi,
  hostOption,
  patience,
  portOption,
  textOption,
  UsageError,
  type ParsedOptions,
} from './support/options.ts';
import { checkAddressFormat } from './support/address-format.ts';
import { runTool } from './support/run-tool.ts';
import {
  bandwidthTest,
  latencyTest,
  Pattern,
  sayColumns,
  sayFigures,
  testSizes,
  type StreamTest,
} from './support/stream-test.ts';
import { openStream, StreamListener, type Pieces, type StreamOptions } from './support/stream-tool.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

const USAGE = `usage: rstream
\t[-s server_address]
\t[-b bind_address]
\t[-f address_format]
\t    name, ip, ipv6, or gid
\t[-B buffer_size]
\t[-i inline_size]
\t[-I iterations]
\t[-C transfer_count]
\t[-S transfer_size or all]
\t[-p port_number]
\t[-k keepalive_time]
\t[-T test_option]
\t    s|sockets - use standard tcp/ip sockets
\t    a|async - asynchronous operation (use poll)
\t    b|blocking - use blocking calls
\t    f|fork - fork server processing
\t    n|nonblocking - use nonblocking calls
\t    r|resolve - use rdma cm to resolve address
\t    v|verify - verify data
`;

const SYNC_OCTETS = 16;
const DEFAULT_BUFFER = 1 << 19;
const [MIN_BUFFER, MAX_BUFFER] = SOCKET_RANGES.receiveBuffer;
const MAX_SIZE = 1 << 30;
const MAX_COUNT = 0x7fff_ffff;

/**
 * How long a server waits with its farewell after its last transfer: a stock client that polls (`-T a`) and
 * finds both at once takes the farewell for a failure, and ends with 16, which is POLLHUP.
 */
const LAST_TRANSFER_MS = 50;

/** The settings of both stream tests. */
export interface StreamSettings {
  readonly server: string | undefined;
  readonly bind: string | undefined;
  readonly port: number;
  /** The one test asked for; null for the run over sizes. */
  readonly custom: StreamTest | null;
  readonly all: boolean;
  readonly verify: boolean;
  readonly stream: StreamOptions;
}

function number(options: ParsedOptions, flag: string, fallback: number, max: number, min = 0): number {
  const text = textOption(options, flag);
  const value = text === undefined ? fallback : atoi(text);
  if (value < min || value > max)
    throw new UsageError(`-${flag} must be from ${min} to ${max}, got ${value}`);
  return value;
}

/** 0 stands for the usual size. */
function bufferSize(options: ParsedOptions): number {
  const value = number(options, 'B', 0, MAX_BUFFER);
  if (value > 0 && value < MIN_BUFFER)
    throw new UsageError(
      `-B must be from ${MIN_BUFFER} to ${MAX_BUFFER}, or 0 for ${DEFAULT_BUFFER}, got ${value}`,
    );
  return value || DEFAULT_BUFFER;
}

/** The flags of rstream and riostream. */
function readStreamSettings(options: ParsedOptions, testOptions: string): StreamSettings {
  const { flags } = options;
  const size = textOption(options, 'S');
  const all = size !== undefined && /^all/i.test(size);
  const tests = new Set(
    (textOption(options, 'T') ?? '')
      .toLowerCase()
      .split(',')
      .filter(Boolean)
      .map((word) => word[0]!),
  );
  for (const test of tests)
    if (!testOptions.includes(test)) throw new UsageError(`invalid test option '${test}'`);
  const custom = flags.has('I') || flags.has('C') || (size !== undefined && !all);
  const buffer = bufferSize(options);
  const keepAlive = number(options, 'k', 0, 1_000_000);
  return {
    server: hostOption(options, 's'),
    bind: flags.has('s') ? addressOption(options, 'b') : hostOption(options, 'b'),
    port: portOption(options, 7471, flags.has('s') ? 'connect' : 'listen'),
    custom: custom
      ? {
          name: 'custom',
          size: all ? 1000 : number(options, 'S', 1000, MAX_SIZE),
          count: number(options, 'C', 1000, MAX_COUNT, 1),
          iterations: number(options, 'I', 1, MAX_COUNT, 1),
        }
      : null,
    all,
    verify: tests.has('v'),
    stream: {
      patience: patience(options),
      tcp: tests.has('s') || tests.has('f'),
      receiveBuffer: buffer,
      sendBuffer: buffer,
      ...(keepAlive === 0 ? {} : { keepAlive: true, keepAliveInitialDelay: keepAlive * 1000 }),
    },
  };
}

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  return runStreamTool(
    'rstream',
    USAGE,
    's:b:f:B:i:I:C:S:p:k:T:',
    'sabfnrv',
    args,
    io,
    (settings, pieces, tool) => new Exchange(settings, pieces, tool),
  );
}

/** Runs the tests of one connection. */
export interface StreamExchange {
  run(test: StreamTest): Promise<void>;
}

/** Flags, connections and order of tests, for both stream tools. */
export function runStreamTool(
  name: string,
  usage: string,
  shorts: string,
  testOptions: string,
  args: string[],
  io: ToolIo,
  make: (settings: StreamSettings, pieces: Pieces, tool: Tool) => StreamExchange,
  more: Partial<StreamOptions> = {},
): Promise<number> {
  return runTool(
    {
      name,
      usage,
      shorts,
      policy: { responder: 'relaxed' },
      settings: (options) => {
        const settings = readStreamSettings(options, testOptions);
        checkAddressFormat(options, (line) => io.err(`${line}\n`));
        return { ...settings, stream: { ...settings.stream, ...more } };
      },
      run: async (tool, settings) => {
        await runTests(tool, settings, make);
        return 0;
      },
    },
    args,
    io,
  );
}

async function runTests(
  tool: Tool,
  s: StreamSettings,
  make: (settings: StreamSettings, pieces: Pieces, tool: Tool) => StreamExchange,
): Promise<void> {
  const listener =
    s.server === undefined ? await StreamListener.open(tool, { host: s.bind, port: s.port }, s.stream) : null;
  const groups =
    s.custom !== null
      ? [[s.custom]]
      : [testSizes(s.all).map(latencyTest), testSizes(s.all).map(bandwidthTest)];
  try {
    sayColumns(tool);
    for (const tests of groups) {
      const pieces =
        listener === null
          ? await openStream(tool, { host: s.server!, port: s.port, source: s.bind }, s.stream)
          : await listener.next();
      const exchange = make(s, pieces, tool);
      for (const test of tests) await exchange.run(test);
      if (listener !== null) await new Promise((resolve) => setTimeout(resolve, LAST_TRANSFER_MS));
      await pieces.close();
    }
  } finally {
    listener?.close();
  }
  tool.check();
}

class Exchange implements StreamExchange {
  readonly #s: StreamSettings;
  readonly #pieces: Pieces;
  readonly #tool: Tool;
  readonly #sent = new Pattern();
  readonly #received = new Pattern();
  #buffer = new Uint8Array(0);

  constructor(s: StreamSettings, pieces: Pieces, tool: Tool) {
    this.#s = s;
    this.#pieces = pieces;
    this.#tool = tool;
  }

  async run(test: StreamTest): Promise<void> {
    const client = this.#s.server !== undefined;
    this.#buffer = new Uint8Array(Math.max(test.size, SYNC_OCTETS));
    await this.#turn(client, SYNC_OCTETS, 1);
    await this.#turn(!client, SYNC_OCTETS, 1);
    const began = performance.now();
    for (let i = 0; i < test.iterations; i++) {
      await this.#turn(client, test.size, test.count);
      await this.#turn(!client, test.size, test.count);
    }
    sayFigures(this.#tool, test, performance.now() - began);
  }

  async #turn(sends: boolean, size: number, count: number): Promise<void> {
    for (let n = 0; n < count; n++) {
      if (sends) await this.#pieces.write(this.#next(size));
      else await this.#pieces.exactly(size, (piece) => this.#check(piece));
    }
  }

  /**
   * The octets of the next transfer. With verification each is its own memory, since the stream may not have
   * taken the last one yet.
   */
  #next(size: number): Uint8Array {
    if (!this.#s.verify) return this.#buffer.subarray(0, size);
    const data = new Uint8Array(size);
    this.#sent.put(data);
    return data;
  }

  #check(piece: Uint8Array): void {
    if (!this.#s.verify) return;
    const wrong = this.#received.check(piece);
    if (wrong < 0) return;
    this.#tool.say(`data verification failed byte ${wrong}`);
    throw new IwarpError('ERR_INVALID_STATE', `data verification failed byte ${wrong}`);
  }
}
