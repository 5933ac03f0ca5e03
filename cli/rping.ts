/**
 * `iwarp rping`: the RDMA ping-pong of librdmacm's rping, both sides, on the wire and on the screen.
 * Exchange, data pattern and flags: each ping the client advertises a buffer by a 16-octet Send, the server
 * Reads it, says go ahead, the client advertises another, the server Writes the data there, says go ahead.
 */
// cspell:ignore vdqh
import { RemoteBuffer } from '../src/api/remote-buffer.ts';
import { IwarpError } from '../src/base/errors.ts';
import type { PassiveConnection } from '../src/cm/index.ts';
import type { MemoryRegion } from '../src/verbs/memory.ts';
import {
  addressOption,
  atoi,
  hostOption,
  portOption,
  textOption,
  UsageError,
  type ParsedOptions,
} from './support/options.ts';
import { runTool, ValueError } from './support/run-tool.ts';
import { printable } from './support/printable.ts';
import type { Session } from './support/session.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

const DEFAULT_PORT = 7174;
const DEFAULT_SIZE = 64;
/** The stock tool's limits: room for the longest `rping-data-<n>: ` in front, 64 KiB less one after. */
const MIN_SIZE = 23;
const MAX_SIZE = 65_535;
const MESSAGE_OCTETS = 16;
/** The number that the stock tool prints for its state after a disconnect. */
const STATE_DISCONNECTED = 10;
const EINVAL = 22;

const USAGE = `rping -s [-vVd] [-S size] [-C count] [-a addr] [-p port]
rping -c [-vVd] [-S size] [-C count] [-I addr] -a addr [-p port]
\t-c\t\tclient side
\t-I\t\tSource address to bind to for client.
\t-s\t\tserver side.  To bind to any address with IPv6 use -a ::0
\t-v\t\tdisplay ping data to stdout
\t-V\t\tvalidate ping data
\t-d\t\tdebug printfs
\t-S size \tping data size
\t-C count\tping count times
\t-a addr\t\taddress
\t-p port\t\tport
\t-P\t\tpersistent server mode allowing multiple connections
\t-q\t\tuse self-created, self-modified QP
`;

interface Settings {
  readonly server: boolean;
  readonly address: string | undefined;
  readonly source: string | undefined;
  readonly port: number;
  readonly size: number;
  /** Size of the server's buffer, where -S gives one. */
  readonly serverSize: number | null;
  readonly count: number;
  readonly verbose: boolean;
  readonly validate: boolean;
  readonly debug: boolean;
  readonly persistent: boolean;
}

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  return runTool(
    {
      name: 'rping',
      usage: USAGE,
      shorts: 'a:I:Pp:C:S:t:scvVdqh',
      longs: { help: { short: 'h' } },
      wrongOptions: EINVAL,
      settings: readSettings,
      run: (tool, settings) => (settings.server ? serve(tool, settings) : runClient(tool, settings)),
    },
    args,
    io,
  );
}

function readSettings(options: ParsedOptions): Settings {
  const { flags } = options;
  const number = (
    flag: string,
    fallback: number,
    min: number,
    max: number,
    what: (value: number) => string,
  ): number => {
    const text = textOption(options, flag);
    const value = text === undefined ? fallback : atoi(text);
    if (value < min || value > max) throw new ValueError(what(value));
    return value;
  };
  if (flags.has('s') === flags.has('c')) throw new UsageError('give exactly one of -s and -c');
  if (flags.has('c') && !flags.has('a') && !flags.has('unix'))
    throw new UsageError('the client needs -a ADDR');
  const size = number(
    'S',
    DEFAULT_SIZE,
    MIN_SIZE,
    MAX_SIZE,
    (value) => `Invalid size ${value} (valid range is ${MIN_SIZE} to ${MAX_SIZE})`,
  );
  return {
    server: flags.has('s'),
    address: hostOption(options, 'a'),
    source: flags.has('c') ? addressOption(options, 'I') : undefined,
    port: portOption(options, DEFAULT_PORT, flags.has('c') ? 'connect' : 'listen'),
    size,
    serverSize: flags.has('S') ? size : null,
    count: number('C', 0, 0, 0x7fff_ffff, (value) => `Invalid count ${value}`),
    verbose: flags.has('v'),
    validate: flags.has('V'),
    debug: flags.has('d'),
    persistent: flags.has('P'),
  };
}

/** The data of ping `n`: a heading, successive characters from `A` to `z`, and a NUL in the last octet. */
export function pingData(n: number, size: number): Uint8Array {
  const FIRST = 65;
  const SPAN = 58;
  const data = new Uint8Array(size);
  const heading = `rdma-ping-${n}: `;
  for (let i = 0; i < heading.length; i++) data[i] = heading.charCodeAt(i);
  for (let i = heading.length, c = n % SPAN; i < size - 1; i++, c = (c + 1) % SPAN) data[i] = FIRST + c;
  return data;
}

function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return Buffer.from(bytes.buffer, bytes.byteOffset, end < 0 ? bytes.length : end).toString('latin1');
}

// ---------------------------------------------------------------------------------------------------- client

async function runClient(tool: Tool, s: Settings): Promise<number> {
  tool.check();
  const session = tool.session();
  const receive = session.register(MESSAGE_OCTETS);
  const send = session.register(MESSAGE_OCTETS);
  const source = session.register(s.size);
  const sink = session.register(s.size);
  session.postRecv({ mr: receive });
  session.use(
    tool.rnic.cm.connect(session.qp, {
      ...tool.target({ host: s.address, port: s.port, source: s.source }),
      policy: tool.policy,
      responderResources: 1,
      initiatorDepth: 1,
    }),
  );
  await session.established;
  if (s.debug) tool.complain(`connected ${describe(session)}`);
  let status = 0;
  try {
    for (let n = 0; s.count === 0 || n < s.count; n++) {
      source.bytes.set(pingData(n, s.size));
      await advertise(tool, session, { buffer: source, send, receive, what: 'RDMA read' }, s);
      sink.bytes.fill(0);
      await advertise(tool, session, { buffer: sink, send, receive, what: 'RDMA write' }, s);
      if (s.validate && Buffer.compare(source.bytes, sink.bytes) !== 0) {
        tool.complain('data mismatch!');
        status = 1;
        break;
      }
      if (s.verbose) tool.say(`ping data: ${printable(text(sink.bytes))}`);
    }
  } catch (error) {
    tool.complain(`rping client failed: ${(error as Error).message}`);
    status = 1;
  }
  await session.close();
  tool.complain('client DISCONNECT EVENT...');
  return status;
}

interface Advertisement {
  readonly buffer: MemoryRegion;
  readonly send: MemoryRegion;
  readonly receive: MemoryRegion;
  readonly what: string;
}

/** Tell the server a buffer and wait for its go-ahead. */
async function advertise(
  tool: Tool,
  session: Session,
  { buffer, send, receive, what }: Advertisement,
  s: Settings,
): Promise<void> {
  send.bytes.set(new RemoteBuffer(buffer.rkey, buffer.addr, s.size).toBytes());
  if (s.debug)
    tool.complain(`${what} addr ${buffer.addr.toString(16)} rkey ${buffer.rkey.toString(16)} len ${s.size}`);
  const answer = session.receive();
  answer.catch(() => undefined);
  await session.execute({ opcode: 'send', sges: [{ mr: send }] });
  const { byteLength } = await answer;
  if (byteLength !== MESSAGE_OCTETS)
    throw new IwarpError('ERR_INVALID_STATE', `received bogus data, ${byteLength} bytes`);
  session.postRecv({ mr: receive });
}

// ---------------------------------------------------------------------------------------------------- server

async function serve(tool: Tool, s: Settings): Promise<number> {
  const requests = await tool.listen({ port: s.port, host: s.address });
  if (s.debug && s.port !== 0) tool.complain(`listening on port ${requests.port}`);
  if (!s.persistent) return await serveOne(tool, await requests.next(), s);
  // For ever: the wait for the next client ends when the tool does.
  for (;;) {
    const request = await requests.next();
    void serveOne(tool, request, s);
  }
}

async function serveOne(tool: Tool, request: PassiveConnection, s: Settings): Promise<number> {
  const session = tool.session({}, s.persistent ? 'alone' : 'together');
  const memory = new ServerMemory(session, s.serverSize);
  session.postRecv({ mr: memory.receive });
  session.use(request);
  request.accept(session.qp, { responderResources: 1, initiatorDepth: 1 });
  let status = 0;
  try {
    await session.established;
    if (s.debug) tool.complain(`server connected ${describe(session)}`);
    // The client ends it, whatever -C says here, as with the stock server: a stock client whose peer leaves
    // first can hang. The loop ends when a wait is refused.
    for (;;) await servePing(tool, session, memory, s);
  } catch (error) {
    status = await endOfService(tool, session, error as Error);
  }
  session.release();
  tool.complain('server DISCONNECT EVENT...');
  if (status === 0) tool.complain(`wait for RDMA_READ_ADV state ${STATE_DISCONNECTED}`);
  return status;
}

/**
 * The client's orderly departure is the normal end. Any other end is reported, also the reason for which this
 * side ends the connection.
 */
async function endOfService(tool: Tool, session: Session, error: Error): Promise<number> {
  const refused = session.qp.state === 'rts';
  if (refused) session.connection.disconnect();
  const info = await session.closed;
  if (!refused && info.cause === 'graceful' && session.failure?.code !== 'ERR_TIMEOUT') return 0;
  tool.complain(`rping server failed: ${error.message}`);
  return 1;
}

/**
 * Memory that the server registers for one client, with every right: so the buffer has exactly the octets
 * that `-S` gives, as the stock server's, or else those that the client advertises: no peer reads or writes
 * beyond.
 */
class ServerMemory {
  readonly receive: MemoryRegion;
  readonly send: MemoryRegion;
  readonly #session: Session;
  readonly #size: number | null;
  #data: MemoryRegion | null = null;

  constructor(session: Session, size: number | null) {
    this.#session = session;
    this.#size = size;
    this.receive = session.register(MESSAGE_OCTETS);
    this.send = session.register(MESSAGE_OCTETS);
    if (size !== null) this.#data = session.register(size);
  }

  /** The buffer for a ping of `octets`. @throws IwarpError ERR_TOO_LARGE */
  data(octets: number): MemoryRegion {
    const limit = this.#size ?? MAX_SIZE + 1;
    if (octets > limit) {
      throw new IwarpError(
        'ERR_TOO_LARGE',
        `the client's buffer has ${octets} bytes, above ${limit}` +
          (this.#size === null ? '' : ', which -S gives'),
      );
    }
    if (this.#data === null || this.#data.length < octets) {
      this.#data?.deregister();
      this.#data = this.#session.register(Math.max(1, octets));
    }
    return this.#data;
  }
}

async function servePing(tool: Tool, session: Session, memory: ServerMemory, s: Settings): Promise<void> {
  const { receive, send } = memory;
  const source = await nextAdvertisement(session, receive);
  const data = memory.data(source.length);
  if (s.debug)
    tool.complain(
      `RDMA read addr ${source.address.toString(16)} rkey ${source.rkey.toString(16)} len ${source.length}`,
    );
  await session.execute({
    opcode: 'rdma-read',
    sges: [{ mr: data, length: source.length }],
    rkey: source.rkey,
    remoteAddr: source.address,
  });
  const found = text(data.bytes.subarray(0, source.length));
  if (s.verbose) tool.say(`server ping data: ${printable(found)}`);
  await session.execute({ opcode: 'send', sges: [{ mr: send }] });
  const sink = await nextAdvertisement(session, receive);
  // The stock server writes the string with its NUL; for whole pings that is everything.
  const length = Math.min(sink.length, found.length + 1, data.length);
  if (s.debug)
    tool.complain(
      `RDMA write addr ${sink.address.toString(16)} rkey ${sink.rkey.toString(16)} len ${length}`,
    );
  await session.execute({
    opcode: 'rdma-write',
    sges: [{ mr: data, length }],
    rkey: sink.rkey,
    remoteAddr: sink.address,
  });
  await session.execute({ opcode: 'send', sges: [{ mr: send }] });
}

async function nextAdvertisement(session: Session, receive: MemoryRegion): Promise<RemoteBuffer> {
  const { byteLength } = await session.receive();
  if (byteLength !== MESSAGE_OCTETS)
    throw new IwarpError('ERR_INVALID_STATE', `received bogus data, ${byteLength} bytes`);
  const remote = RemoteBuffer.fromBytes(receive.bytes);
  session.postRecv({ mr: receive });
  return remote;
}

function describe(session: Session): string {
  const n = session.connection.negotiated!;
  const markers = `${n.sendMarkers ? 'out' : '-'}/${n.receiveMarkers ? 'in' : '-'}`;
  const framing = `revision ${n.revision} crc ${n.crc ? 'on' : 'off'} markers ${markers}`;
  return `${framing} ird ${n.ird} ord ${n.ord} rtr ${n.rtr ?? 'none'}`;
}
