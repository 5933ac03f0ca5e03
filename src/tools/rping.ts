/**
 * `iwarp rping`: the RDMA ping-pong of librdmacm's rping, both sides, on the wire and on the screen. Exchange, data pattern and flags:
 * each ping the client advertises a buffer by a 16-octet Send, the server Reads it, says go ahead, the client advertises another, the
 * server Writes the data there, says go ahead.
 */
import { parseArgs } from 'node:util';
import { openRnic, type Rnic } from '../api/environment.ts';
import { RemoteBuffer } from '../api/remote-buffer.ts';
import { IwarpError } from '../base/errors.ts';
import type { PassiveConnection } from '../cm/manager.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import { numberFlag, POLICY_OPTIONS, POLICY_USAGE, policyFromFlags } from './support/policy-flags.ts';
import { captureTransport, type Capture } from './support/capture.ts';
import { Session } from './support/session.ts';

const DEFAULT_PORT = 7174;
const DEFAULT_SIZE = 64;
/** The stock tool's limits: room for the longest `rping-data-<n>: ` in front, 64 KiB less one behind. */
const MIN_SIZE = 23;
const MAX_SIZE = 65_535;
const MESSAGE_OCTETS = 16;
/** The number that the stock tool prints for its state after a disconnect. */
const STATE_DISCONNECTED = 10;
const EINVAL = 22;

const USAGE = `usage: iwarp rping -s [-vVdP] [-S size] [-C count] [-a addr] [-p port]
       iwarp rping -c [-vVd] [-S size] [-C count] [-I addr] -a addr [-p port]
  -c                       client
  -s                       server
  -a ADDR                  address to connect to, or to bind
  -I ADDR                  source address of the client
  -p PORT                  port (${DEFAULT_PORT})
  -S SIZE                  octets of a ping, ${MIN_SIZE} to ${MAX_SIZE} (${DEFAULT_SIZE})
  -C COUNT                 pings, 0 for ever (0)
  -v                       show the data
  -V                       compare the data
  -d                       tell each step
  -P                       server: go on, and serve many connections
  -q                       make the queue pair by hand (no difference here)
  --pcap FILE              write a capture of what crosses
${POLICY_USAGE}`;

interface Settings {
  readonly server: boolean;
  readonly address: string | undefined;
  readonly source: string | undefined;
  readonly port: number;
  readonly size: number;
  readonly count: number;
  readonly verbose: boolean;
  readonly validate: boolean;
  readonly debug: boolean;
  readonly persistent: boolean;
  readonly policy: ConnectionPolicy;
  readonly pcap: string | undefined;
}

const out = (line: string): void => void process.stdout.write(`${line}\n`);
const err = (line: string): void => void process.stderr.write(`${line}\n`);

/** Entry point; the result is the exit status. */
export async function run(args: string[]): Promise<number> {
  let settings: Settings | null;
  try {
    settings = parse(args);
  } catch (error) {
    err(`rping: ${(error as Error).message}`);
    err(USAGE);
    return EINVAL;
  }
  if (settings === null) {
    out(USAGE);
    return 0;
  }
  const capture = settings.pcap === undefined ? null : captureTransport(settings.pcap);
  const rnic = openRnic(capture === null ? {} : { transport: capture.transport });
  try {
    return settings.server ? await serve(rnic, settings) : await runClient(rnic, settings);
  } catch (error) {
    if (!(error instanceof IwarpError)) throw error;
    err(`rping: ${error.message}`);
    return 1;
  } finally {
    await finishCapture(capture);
  }
}

async function finishCapture(capture: Capture | null): Promise<void> {
  if (capture !== null) await capture.close();
}

function parse(args: string[]): Settings | null {
  const { values } = parseArgs({
    args,
    allowNegative: true,
    options: {
      ...POLICY_OPTIONS,
      help: { type: 'boolean', short: 'h' },
      server: { type: 'boolean', short: 's' },
      client: { type: 'boolean', short: 'c' },
      address: { type: 'string', short: 'a' },
      source: { type: 'string', short: 'I' },
      port: { type: 'string', short: 'p' },
      size: { type: 'string', short: 'S' },
      count: { type: 'string', short: 'C' },
      verbose: { type: 'boolean', short: 'v' },
      validate: { type: 'boolean', short: 'V' },
      debug: { type: 'boolean', short: 'd' },
      persistent: { type: 'boolean', short: 'P' },
      'own-qp': { type: 'boolean', short: 'q' },
      pcap: { type: 'string' },
    },
  } as const);
  if (values.help === true) return null;
  if ((values.server === true) === (values.client === true)) throw new IwarpError('ERR_INVALID_ARGUMENT', 'give exactly one of -s and -c');
  if (values.client === true && values.address === undefined) throw new IwarpError('ERR_INVALID_ARGUMENT', 'the client needs -a ADDR');
  return {
    server: values.server === true,
    address: values.address,
    source: values.source,
    port: numberFlag('-p', values.port ?? String(DEFAULT_PORT), 0, 65_535),
    size: numberFlag('-S', values.size ?? String(DEFAULT_SIZE), MIN_SIZE, MAX_SIZE),
    count: numberFlag('-C', values.count ?? '0', 0, 0x7fff_ffff),
    verbose: values.verbose === true,
    validate: values.validate === true,
    debug: values.debug === true,
    persistent: values.persistent === true,
    policy: policyFromFlags(values),
    pcap: values.pcap,
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

// ---------------------------------------------------------------------------------------------------------------- client

async function runClient(rnic: Rnic, s: Settings): Promise<number> {
  const session = new Session(rnic);
  const receive = session.register(MESSAGE_OCTETS);
  const send = session.register(MESSAGE_OCTETS);
  const source = session.register(s.size);
  const sink = session.register(s.size);
  session.postRecv({ mr: receive });
  session.use(rnic.cm.connect(session.qp, {
    host: s.address!,
    port: s.port,
    policy: s.policy,
    responderResources: 1,
    initiatorDepth: 1,
    ...(s.source === undefined ? {} : { localAddress: s.source }),
  }));
  await session.established;
  if (s.debug) err(`connected ${describe(session)}`);
  let status = 0;
  try {
    for (let n = 0; s.count === 0 || n < s.count; n++) {
      source.bytes.set(pingData(n, s.size));
      await advertise(session, source, send, receive, s, 'RDMA read');
      sink.bytes.fill(0);
      await advertise(session, sink, send, receive, s, 'RDMA write');
      if (s.validate && Buffer.compare(source.bytes, sink.bytes) !== 0) {
        err('data mismatch!');
        status = 1;
        break;
      }
      if (s.verbose) out(`ping data: ${text(sink.bytes)}`);
    }
  } catch (error) {
    err(`rping client failed: ${(error as Error).message}`);
    status = 1;
  }
  await session.close();
  err('client DISCONNECT EVENT...');
  return status;
}

/** Tell the server a buffer and wait for its go-ahead. */
async function advertise(
  session: Session, buffer: MemoryRegion, send: MemoryRegion, receive: MemoryRegion, s: Settings, what: string,
): Promise<void> {
  send.bytes.set(new RemoteBuffer(buffer.rkey, buffer.addr, s.size).toBytes());
  if (s.debug) err(`${what} addr ${buffer.addr.toString(16)} rkey ${buffer.rkey.toString(16)} len ${s.size}`);
  const answer = session.receive();
  answer.catch(() => undefined);
  await session.execute({ opcode: 'send', sges: [{ mr: send }] });
  const { byteLength } = await answer;
  if (byteLength !== MESSAGE_OCTETS) throw new IwarpError('ERR_INVALID_STATE', `received bogus data, ${byteLength} octets`);
  session.postRecv({ mr: receive });
}

// ---------------------------------------------------------------------------------------------------------------- server

async function serve(rnic: Rnic, s: Settings): Promise<number> {
  const requests: PassiveConnection[] = [];
  let wake: (() => void) | null = null;
  const listener = await rnic.cm.listen(
    { port: s.port, policy: s.policy, ...(s.address === undefined ? {} : { host: s.address }) },
    (request) => {
      requests.push(request);
      wake?.();
    },
  );
  if (s.debug || s.port === 0) err(`listening on ${listener.address.address} port ${listener.address.port}`);
  for (;;) {
    while (requests.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    const request = requests.shift()!;
    if (s.persistent) {
      void serveOne(rnic, request, s);
      continue;
    }
    const status = await serveOne(rnic, request, s);
    await new Promise<void>((resolve) => listener.close(resolve));
    return status;
  }
}

async function serveOne(rnic: Rnic, request: PassiveConnection, s: Settings): Promise<number> {
  const session = new Session(rnic);
  const receive = session.register(MESSAGE_OCTETS);
  const send = session.register(MESSAGE_OCTETS);
  const data = session.register(MAX_SIZE + 1);
  session.postRecv({ mr: receive });
  session.use(request);
  request.accept(session.qp, { responderResources: 1, initiatorDepth: 1 });
  let status = 0;
  try {
    await session.established;
    if (s.debug) err(`server connected ${describe(session)}`);
    for (let n = 0; s.count === 0 || n < s.count; n++) await servePing(session, receive, send, data, s);
    await session.close();
  } catch (error) {
    status = await endOfService(session, error as Error);
  }
  err('server DISCONNECT EVENT...');
  if (status === 0) err(`wait for RDMA_READ_ADV state ${STATE_DISCONNECTED}`);
  return status;
}

/** The client's orderly departure is the normal end; anything else is told. */
async function endOfService(session: Session, error: Error): Promise<number> {
  if (session.qp.state === 'rts') session.connection.disconnect();
  const info = await session.closed;
  if (info.cause === 'graceful') return 0;
  err(`rping server failed: ${error.message}`);
  return 1;
}

async function servePing(session: Session, receive: MemoryRegion, send: MemoryRegion, data: MemoryRegion, s: Settings): Promise<void> {
  const source = await nextAdvertisement(session, receive, data);
  if (s.debug) err(`RDMA read addr ${source.address.toString(16)} rkey ${source.rkey.toString(16)} len ${source.length}`);
  await session.execute({
    opcode: 'rdma-read', sges: [{ mr: data, length: source.length }], rkey: source.rkey, remoteAddr: source.address,
  });
  if (s.verbose) out(`server ping data: ${text(data.bytes.subarray(0, source.length))}`);
  await session.execute({ opcode: 'send', sges: [{ mr: send }] });
  const sink = await nextAdvertisement(session, receive, data);
  // The stock server writes the string with its NUL; for whole pings that is everything.
  const length = Math.min(sink.length, text(data.bytes.subarray(0, source.length)).length + 1);
  if (s.debug) err(`RDMA write addr ${sink.address.toString(16)} rkey ${sink.rkey.toString(16)} len ${length}`);
  await session.execute({ opcode: 'rdma-write', sges: [{ mr: data, length }], rkey: sink.rkey, remoteAddr: sink.address });
  await session.execute({ opcode: 'send', sges: [{ mr: send }] });
}

async function nextAdvertisement(session: Session, receive: MemoryRegion, data: MemoryRegion): Promise<RemoteBuffer> {
  const { byteLength } = await session.receive();
  if (byteLength !== MESSAGE_OCTETS) throw new IwarpError('ERR_INVALID_STATE', `received bogus data, ${byteLength} octets`);
  const remote = RemoteBuffer.fromBytes(receive.bytes);
  session.postRecv({ mr: receive });
  if (remote.length > data.length) throw new IwarpError('ERR_TOO_LARGE', `the client's buffer has ${remote.length} octets, above ${data.length}`);
  return remote;
}

function describe(session: Session): string {
  const n = session.connection.negotiated!;
  return `revision ${n.revision} crc ${n.crc ? 'on' : 'off'} markers ${n.sendMarkers ? 'out' : '-'}/${n.receiveMarkers ? 'in' : '-'} ird ${n.ird} ord ${n.ord} rtr ${n.rtr ?? 'none'}`;
}
