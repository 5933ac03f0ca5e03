/**
 * `iwarp demo`: two processes over 127.0.0.1 show what RDMA is. They register memory, Send, Write, Read back
 * and verify every octet; each FPDU of the first exchange is shown decoded, then some seconds of throughput.
 * The exit status is not zero if an octet differs.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { Connection } from '../src/api/connection.ts';
import { connect } from '../src/api/connect.ts';
import { createServer } from '../src/api/server.ts';
import { openRnic, type Rnic } from '../src/api/environment.ts';
import { RemoteBuffer } from '../src/api/remote-buffer.ts';
import { checkOneOf, IwarpError } from '../src/base/errors.ts';
import { seededRandom } from '../src/base/random.ts';
import type { MemoryRegion } from '../src/verbs/memory.ts';
import { wrapTransport } from '../src/transport/middleware.ts';
import { TcpTransport } from '../src/transport/tcp.ts';
import { wantsColour } from './support/colour.ts';
import { numberFlag } from './support/policy-flags.ts';
import { printFpdus } from './support/print-fpdus.ts';

const USAGE = `usage: iwarp demo [--seconds N] [--wire WIRE] [--unix PATH]
  --seconds N   how long each throughput run takes (2)
  --wire WIRE   iwarp (default), or trp: iWARP over UDP
  --unix PATH   a Unix socket in place of a TCP port`;

/** Octets of the server's memory: enough for many Writes to be under way, small enough to hash in a blink. */
const REGION_OCTETS = 16 * 1024 * 1024;
const EXCHANGE_OCTETS = 3000;
/** Small FPDUs in the first exchange, so that a message of several segments can be seen. */
const EXCHANGE_EMSS = 1448;
const IN_FLIGHT = 16;

const say = (line = ''): void => void process.stdout.write(`${line}\n`);

export async function run(args: string[]): Promise<number> {
  let seconds: number;
  let wire: 'iwarp' | 'trp';
  let path: string | undefined;
  try {
    const { values } = parseArgs({
      args,
      options: {
        seconds: { type: 'string' },
        server: { type: 'boolean' },
        wire: { type: 'string' },
        unix: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
    if (values.help === true) {
      say(USAGE);
      return 0;
    }
    wire = checkOneOf('--wire', (values.wire ?? 'iwarp') as 'iwarp', ['iwarp', 'trp']);
    path = values.unix;
    if (values.server === true) return await serve(wire, path);
    seconds = numberFlag('--seconds', values.seconds ?? '2', 1, 3600);
  } catch (error) {
    process.stderr.write(`demo: ${(error as Error).message}\n${USAGE}\n`);
    return 2;
  }
  let child: ChildProcess | undefined;
  try {
    const server = await startServer(wire, path);
    const where = path === undefined ? { host: '127.0.0.1', port: server.port } : { path };
    const place = path ?? `127.0.0.1 port ${server.port}`;
    child = server.child;
    say(`Server: process ${child.pid}, listening on ${place}. Client: process ${process.pid}.`);
    const rnic = wire === 'trp' ? openRnic({ wire }) : undefined;
    await firstExchange(where, rnic);
    await throughput(where, seconds, rnic);
    say('\nEvery byte was verified on both sides.');
    return 0;
  } catch (error) {
    if (!(error instanceof IwarpError) && !(error instanceof Difference)) throw error;
    process.stderr.write(`demo: ${error.message}\n`);
    return 1;
  } finally {
    child?.kill();
  }
}

/** An octet that is not what it should be. */
class Difference extends Error {}

// ---------------------------------------------------------------------------------------------------- server

/**
 * The server process: offers one region to each client and answers "hash" with the SHA-256 of what lies in
 * it.
 */
async function serve(wire: 'iwarp' | 'trp', path: string | undefined): Promise<number> {
  const options = wire === 'trp' ? { rnic: openRnic({ wire }) } : {};
  const where = path === undefined ? { host: '127.0.0.1' } : { path };
  const server = await createServer(options, attend).listen(where);
  await new Promise<void>((resolve) => {
    process.once('disconnect', resolve);
    // The client may be gone already, and then there is nothing more to hear of it.
    process.send?.({ port: server.address().port }, (error: Error | null) => {
      if (error !== null) resolve();
    });
  });
  await server.close();
  return 0;
}

async function attend(connection: Connection): Promise<void> {
  const region = connection.allocate(REGION_OCTETS, 'read-write');
  await connection.send(connection.share(region).toBytes());
  for await (const message of connection) {
    const [word, length] = Buffer.from(message.data).toString().split(' ');
    message.release();
    if (word === 'hash') await connection.send(hash(region.bytes.subarray(0, Number(length))));
  }
}

function startServer(wire: string, path: string | undefined): Promise<{ child: ChildProcess; port: number }> {
  const program = process.argv[1] ?? fileURLToPath(import.meta.url);
  const unix = path === undefined ? [] : ['--unix', path];
  const child = fork(program, ['demo', '--server', '--wire', wire, ...unix], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  return new Promise((resolve, reject) => {
    child.once('message', (message) => resolve({ child, port: (message as { port: number }).port }));
    child.once('exit', (code) =>
      reject(new IwarpError('ERR_CONNECT', `the server process ended with status ${code}`)),
    );
    child.once('error', reject);
  });
}

// ---------------------------------------------------------------------------------------------------- client

function hash(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function fillRandom(bytes: Uint8Array, seed: number): void {
  const random = seededRandom(seed);
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  for (let i = 0; i < words.length; i++) words[i] = random();
  for (let i = words.length << 2; i < bytes.length; i++) bytes[i] = random();
}

/** The server's place. */
type Where = { readonly host: string; readonly port: number } | { readonly path: string };

async function openConnection(
  where: Where,
  rnic: Rnic | undefined,
  emss: number | 'auto',
  crc: 'preferred' | 'off',
): Promise<Connection> {
  return await connect({
    ...where,
    policy: { emss, crc },
    ...(rnic === undefined ? {} : { rnic }),
  });
}

/** The ticket that the server sends first. */
async function takeTicket(connection: Connection): Promise<RemoteBuffer> {
  const message = await connection.receive();
  if (message === null) throw new IwarpError('ERR_CONNECTION_CLOSED', 'the server left without a word');
  const ticket = RemoteBuffer.fromBytes(message.data);
  message.release();
  return ticket;
}

async function expectHash(connection: Connection, expected: Uint8Array, where: string): Promise<void> {
  await connection.send(`hash ${expected.length}`);
  const answer = await connection.receive();
  const text = answer === null ? '' : Buffer.from(answer.data).toString();
  answer?.release();
  if (text !== hash(expected))
    throw new Difference(`${where}: the server's memory differs from what was written`);
}

/** A device whose FPDUs are shown. */
function shownRnic(): Rnic {
  say('\nFirst exchange, one line an FPDU (→ from the client, ← from the server):\n');
  const printer = printFpdus(say, wantsColour(process.stdout, process.env));
  return openRnic({ transport: wrapTransport(new TcpTransport(), printer) });
}

async function firstExchange(where: Where, rnic: Rnic = shownRnic()): Promise<void> {
  const connection = await openConnection(where, rnic, EXCHANGE_EMSS, 'preferred');
  const ticket = await takeTicket(connection);
  const source = connection.allocate(EXCHANGE_OCTETS, 'none');
  const back = connection.allocate(EXCHANGE_OCTETS, 'none');
  fillRandom(source.bytes, 1);
  await connection.write(source, ticket);
  await connection.read(ticket.slice(0, EXCHANGE_OCTETS), back);
  if (Buffer.compare(source.bytes, back.bytes) !== 0)
    throw new Difference('first exchange: what was read back differs from what was written');
  await expectHash(connection, source.bytes, 'first exchange');
  const { negotiated } = connection;
  await connection.close();
  say(
    `\nMPA revision ${negotiated.revision}, CRC ${negotiated.crc ? 'on' : 'off'}, ` +
      `RTR ${negotiated.rtr ?? 'none'}, IRD ${negotiated.ird}, ORD ${negotiated.ord}.`,
  );
  say(
    `The server offered ${REGION_OCTETS >> 20} MiB (STag 0x${ticket.rkey.toString(16)}). ` +
      `${EXCHANGE_OCTETS} bytes went there by RDMA Write and came`,
  );
  say("back by RDMA Read, without a word from the server's program; both ends hold the same bytes.");
}

// ------------------------------------------------------------------------------------------------ throughput

type Step = (
  connection: Connection,
  ticket: RemoteBuffer,
  memory: MemoryRegion,
  offset: number,
  length: number,
) => Promise<unknown>;

const write: Step = (c, ticket, mr, offset, length) =>
  c.write({ mr, offset, length }, ticket.slice(offset, length));
const read: Step = (c, ticket, mr, offset, length) =>
  c.read(ticket.slice(offset, length), { mr, offset, length });

const RUNS: readonly (readonly [string, Step, number, 'preferred' | 'off'])[] = [
  ['RDMA Write, 1 MiB, CRC on', write, 1 << 20, 'preferred'],
  ['RDMA Read,  1 MiB, CRC on', read, 1 << 20, 'preferred'],
  ['RDMA Write, 1 MiB, CRC off', write, 1 << 20, 'off'],
  ['RDMA Write, 4 KiB, CRC on', write, 4096, 'preferred'],
];

async function throughput(where: Where, seconds: number, rnic: Rnic | undefined): Promise<void> {
  say(`\nThroughput, ${IN_FLIGHT} operations under way, ${seconds} s each:\n`);
  for (const [i, [name, step, length, crc]] of RUNS.entries())
    await measure(where, rnic, name, step, length, crc, seconds, i + 2);
}

async function measure(
  where: Where,
  rnic: Rnic | undefined,
  name: string,
  step: Step,
  length: number,
  crc: 'preferred' | 'off',
  seconds: number,
  seed: number,
): Promise<void> {
  const connection = await openConnection(where, rnic, 'auto', crc);
  const ticket = await takeTicket(connection);
  const memory = connection.allocate(REGION_OCTETS, 'none');
  fillRandom(memory.bytes, seed);
  const expected = memory.bytes.slice();
  // A Read finds there what a Write has put there before; a Write starts from zeros.
  if (step === read) {
    await connection.write(memory, ticket);
    memory.bytes.fill(0);
  }
  await pump(connection, ticket, memory, step, length, seconds, name);
  if (step === read) {
    if (Buffer.compare(memory.bytes, expected) !== 0) throw new Difference(`${name}: what was read differs`);
  }
  await expectHash(connection, expected, name);
  await connection.close();
}

/** Keep IN_FLIGHT operations going for `seconds`, and until the whole region has been covered. */
async function pump(
  connection: Connection,
  ticket: RemoteBuffer,
  memory: MemoryRegion,
  step: Step,
  length: number,
  seconds: number,
  name: string,
): Promise<void> {
  const slots = REGION_OCTETS / length;
  const begin = performance.now();
  const until = begin + seconds * 1000;
  let started = 0;
  let finished = 0;
  const progress = setInterval(() => report(name, finished, length, begin, false), 250);
  const worker = async (): Promise<void> => {
    while (performance.now() < until || started < slots) {
      const offset = (started++ % slots) * length;
      await step(connection, ticket, memory, offset, length);
      finished++;
    }
  };
  try {
    await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
  } finally {
    clearInterval(progress);
  }
  report(name, finished, length, begin, true);
}

function report(name: string, operations: number, length: number, begin: number, last: boolean): void {
  const elapsed = (performance.now() - begin) / 1000;
  const rate = (operations * length) / elapsed / 1e9;
  const line =
    `  ${name.padEnd(27)} ${elapsed.toFixed(1).padStart(5)} s  ` +
    `${operations.toString().padStart(8)} operations  ${rate.toFixed(2).padStart(6)} GB/s`;
  if (last) process.stdout.write(`${process.stdout.isTTY ? '\r' : ''}${line}\n`);
  else if (process.stdout.isTTY) process.stdout.write(`\r${line}`);
}
