/**
 * The other tools against stock ones, both ways: ucmatose, rdma_client, the six perftest programs, rstream, riostream, rcopy; programs under
 * librspreload against our streams; and peers that are killed in the middle.
 *
 * Stock perftest over siw fails now and then against itself too (about one bandwidth run in five under emulation gives no figure). So
 * these cases are tried up to three times, and what failed is told in the result.
 *
 * CRC is off in long runs. siw 6.1 reports a CRC error when PAD and CRC of an FPDU reach it in two pieces: siw_get_trailer() puts each piece
 * at the start of the trailer. User-mode networking cuts the stream anywhere, so this happens every few thousand FPDUs.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, PATIENCE, within, type Bench, type InteropCase } from './bench.ts';

const TRIES = 3;
const PERFTEST_PORT = 18_515;
const CM_PORT = 7471;
const COPY_PORT = 7427;

type Side = 'ours' | 'stock';
/** Which side serves and which connects. */
interface Sides {
  readonly server: Side;
  readonly name: string;
}
const BOTH: readonly Sides[] = [{ server: 'stock', name: 'our client, stock server' }, { server: 'ours', name: 'stock client, our server' }];

/** A pair of command lines that must both end with status 0. */
interface Pair {
  readonly group: string;
  readonly name: string;
  /** Port on which a stock server listens. */
  readonly port: number;
  /** Our arguments and the stock command, as server on a port and as client of a host and port. */
  readonly ours: { server(port: number): string[]; client(host: string, port: number): string[] };
  readonly stock: { server(port: number): string; client(host: string, port: number): string };
  /** What both sides must show, or the client alone if the server shows something else. */
  readonly says: RegExp;
  readonly serverSays?: RegExp;
  readonly tries?: number;
}

interface Outputs {
  readonly ours: string;
  readonly stock: string;
}

async function runPair(bench: Bench, pair: Pair, { server }: Sides): Promise<Outputs> {
  if (server === 'stock') {
    const peer = await bench.listening(pair.stock.server(pair.port), pair.port);
    const { host, port } = bench.peer.reach(pair.port);
    const result = await bench.iwarp(...pair.ours.client(host, port), '--pcap', bench.capture);
    const ours = `${result.stdout}${result.stderr}`;
    check(result.status === 0, `our client: status ${result.status}: ${ours.slice(-400)}`);
    const { status, output } = await within(peer.ended, PATIENCE, () => `the stock server goes on: ${peer.output.slice(-300)}`);
    check(status === 0, `stock server: status ${status}: ${output.slice(-400)}`);
    return { ours, stock: output };
  }
  const port = await bench.freePort();
  const tool = await bench.startListening([...pair.ours.server(port), '--pcap', bench.capture], port);
  const { status, output } = await bench.stock(pair.stock.client(bench.peer.hostAddress, port));
  check(status === 0, `stock client: status ${status}: ${output.slice(-400)}; our server: ${tool.stdout.slice(-200)}${tool.stderr}`);
  const result = await within(tool.ended, PATIENCE, () => `our server goes on: ${tool.stdout.slice(-300)}${tool.stderr}`);
  const ours = `${result.stdout}${result.stderr}`;
  check(result.status === 0, `our server: status ${result.status}: ${ours.slice(-400)}`);
  return { ours, stock: output };
}

function pairCases(pair: Pair): InteropCase[] {
  return BOTH.map((sides) => ({
    driver: 'stock',
    group: pair.group,
    name: `${pair.name}: ${sides.name}`,
    run: async (bench) => {
      const failures: string[] = [];
      for (;;) {
        try {
          const { ours, stock } = await runPair(bench, pair, sides);
          const serverSays = pair.serverSays ?? pair.says;
          const [oursSays, stockSays] = sides.server === 'ours' ? [serverSays, pair.says] : [pair.says, serverSays];
          check(oursSays.test(ours), `our side does not show ${oursSays}: ${ours.slice(-300)}`);
          check(stockSays.test(stock), `the stock side does not show ${stockSays}: ${stock.slice(-300)}`);
          const client = sides.server === 'ours' ? stock : ours;
          const line = client.split('\n').filter((each) => pair.says.test(each)).at(-1) ?? '';
          const again = failures.length === 0 ? '' : ` (after ${failures.length} failed: ${failures.map((each) => each.trim().split('\n').at(-1)).join('; ')})`;
          return `${line.trim().replaceAll(/\s+/g, ' ')}${again}`;
        } catch (error) {
          failures.push((error as Error).message);
          if (failures.length >= (pair.tries ?? 1)) throw error;
          await bench.finish(true);
        }
      }
    },
  }));
}

// ------------------------------------------------------------------------------------------- ucmatose and its kind

const CM_PAIRS: readonly Pair[] = [
  ...['-C 10 -S 100', '-C 0', '-c 10', '-C 200 -S 20000 -c 2'].map((flags): Pair => ({
    group: 'ucmatose', name: flags, port: CM_PORT, says: /return status 0/,
    ours: {
      server: (port) => ['ucmatose', '-p', String(port), ...flags.split(' ')],
      client: (host, port) => ['ucmatose', '-s', host, '-p', String(port), ...flags.split(' ')],
    },
    stock: { server: (port) => `ucmatose -p ${port} ${flags}`, client: (host, port) => `ucmatose -s ${host} -p ${port} ${flags}` },
  })),
  {
    group: 'rdma_client, rdma_server', name: '16 octets each way', port: CM_PORT, says: /end 0/,
    ours: { server: (port) => ['rdma_server', '-p', String(port)], client: (host, port) => ['rdma_client', '-s', host, '-p', String(port)] },
    stock: { server: (port) => `rdma_server -p ${port}`, client: (host, port) => `rdma_client -s ${host} -p ${port}` },
  },
];

// -------------------------------------------------------------------------------------------------------- perftest

const FEW = '-n 200';
const PERFTEST: Readonly<Record<string, readonly string[]>> = {
  write_bw: [FEW, '-a -n 5', '-q 4 -n 100', '-b -n 100', '-D 2'],
  read_bw: [FEW, '-a -n 5', '-q 4 -n 100', '-b -n 100', '-D 2'],
  send_bw: [FEW, '-a -n 5', '-q 4 -n 100', '-b -n 100', '-D 2', '-n 2000 -s 1024'],
  write_lat: [FEW, '-a -n 5', '-D 2'],
  read_lat: [FEW, '-a -n 5', '-D 2'],
  send_lat: [FEW, '-a -n 5', '-D 2'],
};

/** Long runs go without CRC; see above. */
const NO_CRC = ['--crc', 'off'];

function perftestPair(program: string, flags: string): Pair {
  const ours = [program, '-R', ...flags.split(' '), ...(flags === FEW ? [] : NO_CRC)];
  const stock = `ib_${program} -R ${flags}`;
  return {
    group: 'perftest', name: `${program} ${flags}`, port: PERFTEST_PORT, tries: TRIES,
    says: /^ \d+ +\d+ +\d/m,
    // The server of a latency test by Reads has no figures.
    ...(program === 'read_lat' ? { serverSays: /RDMA_Read Latency Test/ } : {}),
    ours: { server: (port) => [...ours, '-p', String(port)], client: (host, port) => [...ours, '-p', String(port), host] },
    stock: { server: (port) => `${stock} -p ${port}`, client: (host, port) => `${stock} -p ${port} ${host}` },
  };
}

const PERFTEST_PAIRS: readonly Pair[] = Object.entries(PERFTEST).flatMap(([program, runs]) => runs.map((flags) => perftestPair(program, flags)));

// --------------------------------------------------------------------------------------------------------- streams

const STREAM_PAIRS: readonly Pair[] = ['rstream', 'riostream'].flatMap((program) =>
  ['-S 64 -C 1 -I 500 -T v', '-S 4096 -C 50 -I 10 -T v', '-S 1000000 -C 5 -I 3 -T v'].map((flags): Pair => ({
    group: 'rsockets', name: `${program} ${flags}`, port: CM_PORT, says: /^custom .*\d$/m,
    tries: TRIES,
    ours: {
      server: (port) => [program, '-p', String(port), ...flags.split(' ')],
      client: (host, port) => [program, '-s', host, '-p', String(port), ...flags.split(' ')],
    },
    stock: { server: (port) => `${program} -p ${port} ${flags}`, client: (host, port) => `${program} -s ${host} -p ${port} ${flags}` },
  })),
);

const COPY_OCTETS = 100_000_000;
const digest = (data: Uint8Array): string => createHash('md5').update(data).digest('hex');

/** A file from here to the peer, or from the peer to here, by rcopy. */
async function copyCase(bench: Bench, from: Side): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'rcopy-'));
  try {
    const local = join(folder, 'file');
    const began = performance.now();
    if (from === 'ours') {
      const data = randomBytes(COPY_OCTETS);
      writeFileSync(local, data);
      await bench.listening(`rcopy -p ${COPY_PORT}`, COPY_PORT);
      const { host, port } = bench.peer.reach(COPY_PORT);
      const result = await bench.iwarp('rcopy', local, `${host}:/tmp/rcopy.in`, '-p', String(port), ...NO_CRC);
      check(result.status === 0, `our rcopy: status ${result.status}: ${result.stdout}${result.stderr}`);
      const { output } = await bench.stock('md5sum /tmp/rcopy.in; rm /tmp/rcopy.in');
      check(output.includes(digest(data)), `the copy differs: ${output}`);
    } else {
      const port = await bench.freePort();
      await bench.startListening(['rcopy', '-p', String(port), ...NO_CRC], port);
      const { status, output } = await bench.stock(
        `head -c ${COPY_OCTETS} /dev/urandom > /tmp/rcopy.out; md5sum /tmp/rcopy.out; rcopy /tmp/rcopy.out ${bench.peer.hostAddress}:${local} -p ${port}; s=$?; rm /tmp/rcopy.out; exit $s`,
      );
      check(status === 0, `stock rcopy: status ${status}: ${output}`);
      check(output.includes(digest(readFileSync(local))), `the copy differs: ${output}`);
    }
    return `${COPY_OCTETS} octets, same digest, ${((performance.now() - began) / 1000).toFixed(1)} s`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const PRELOAD = 'LD_PRELOAD=$(find /usr/lib -name librspreload.so | head -1)';
const PRELOAD_OCTETS = 5_000_000;

/** A program for plain sockets, put on rsockets by its loader, connects to our server; `isOver` says that the kernel saw RDMA. */
async function preloadClient(bench: Bench, command: (host: string, port: number) => string, expected: number | null): Promise<string> {
  const { createServer } = await import('../../src/sockets/index.ts');
  let octets = 0;
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.on('data', (chunk: Buffer) => (octets += chunk.length)).on('error', () => undefined);
  });
  try {
    await new Promise<void>((resolve) => server.listen(0, bench.peer.bindAddress, resolve));
    const { status, output } = await bench.stock(command(bench.peer.hostAddress, server.address()!.port));
    check(status === 0, `status ${status}: ${output.slice(-400)}`);
    // Our server takes nothing but rsockets, so a connection is the proof that the program used them.
    check(connections > 0, `no connection over rsockets: ${output.slice(-300)}`);
    for (const socket of server.connections) if (!socket.closed) await within(new Promise((resolve) => socket.once('close', resolve)), PATIENCE, () => 'our socket stays open');
    check(expected === null ? octets > 0 : octets === expected, `${octets} octets came`);
    return `${octets} octets over ${connections} connection(s)`;
  } finally {
    await server[Symbol.asyncDispose]();
  }
}

/** The same program listens, and our stream connects and writes. */
async function preloadServer(bench: Bench, command: string, port: number, verify: string): Promise<string> {
  const { connect } = await import('../../src/sockets/index.ts');
  const process = await bench.listening(command, port);
  const data = randomBytes(PRELOAD_OCTETS);
  const where = bench.peer.reach(port);
  const socket = connect({ host: where.host, port: where.port });
  socket.resume();
  const closed = new Promise<void>((resolve, reject) => socket.once('error', reject).once('close', resolve));
  socket.end(data);
  await within(closed, PATIENCE, () => `the connection stays open: ${process.output}`);
  const { output } = await bench.stock(verify);
  check(output.includes(digest(data)), `what came there differs: ${output} ${process.output}`);
  return `${PRELOAD_OCTETS} octets, same digest`;
}

const STREAM_CASES: readonly InteropCase[] = [
  { driver: 'stock', group: 'rsockets', name: 'rcopy of 100 MB: our client, stock server', run: (bench) => copyCase(bench, 'ours') },
  { driver: 'stock', group: 'rsockets', name: 'rcopy of 100 MB: stock client, our server', run: (bench) => copyCase(bench, 'stock') },
  {
    driver: 'stock', group: 'librspreload', name: 'nc.traditional sends to our stream',
    run: (bench) => preloadClient(bench, (host, port) => `head -c ${PRELOAD_OCTETS} /dev/zero > /tmp/nc.out; ${PRELOAD} nc.traditional -q 1 ${host} ${port} < /tmp/nc.out`, PRELOAD_OCTETS),
  },
  {
    driver: 'stock', group: 'librspreload', name: 'our stream sends to nc.traditional',
    run: (bench) => preloadServer(bench, `${PRELOAD} nc.traditional -l -p ${CM_PORT} > /tmp/nc.in`, CM_PORT, 'md5sum /tmp/nc.in'),
  },
  {
    driver: 'stock', group: 'librspreload', name: 'iperf sends to our stream',
    run: (bench) => preloadClient(bench, (host, port) => `${PRELOAD} iperf -c ${host} -p ${port} -t 3`, null),
  },
];

// ------------------------------------------------------------------------------------------------- peers that leave

/** Programs under way for a minute, one side of which is killed: the other of ours tells so and ends. */
const LEAVING: readonly Pair[] = [
  perftestPair('write_bw', '-D 60'), perftestPair('send_lat', '-D 60'), perftestPair('read_bw', '-D 60'),
  { ...STREAM_PAIRS[0]!, ours: { server: (port) => ['rstream', '-p', String(port), '-S', '64', '-C', '1', '-I', '1000000', ...NO_CRC], client: (host, port) => ['rstream', '-s', host, '-p', String(port), '-S', '64', '-C', '1', '-I', '1000000', ...NO_CRC] }, stock: { server: (port) => `rstream -p ${port} -S 64 -C 1 -I 1000000`, client: (host, port) => `rstream -s ${host} -p ${port} -S 64 -C 1 -I 1000000` }, name: 'rstream' },
];

/** How long a survivor may take: the peer's kernel closes the connection of a killed process at once. */
const SURVIVOR_MS = 20_000;
const UNDER_WAY_MS = 3_000;

async function leaveCase(bench: Bench, pair: Pair, { server }: Sides): Promise<string> {
  const port = server === 'stock' ? pair.port : await bench.freePort();
  const stock = server === 'stock' ? await bench.listening(pair.stock.server(port), port) : null;
  const where = bench.peer.reach(pair.port);
  const tool = server === 'stock' ? bench.start(pair.ours.client(where.host, where.port)) : await bench.startListening(pair.ours.server(port), port);
  const victim = stock ?? bench.remote(pair.stock.client(bench.peer.hostAddress, port));
  await tool.shows(/remote address|usec\/xfer/);
  await new Promise((resolve) => setTimeout(resolve, UNDER_WAY_MS));
  check(tool.child.exitCode === null, `our side ended before the peer was killed: ${tool.stdout}${tool.stderr}`);
  const began = performance.now();
  await victim.kill();
  const { status, stderr } = await within(tool.ended, SURVIVOR_MS, () => `our side goes on: ${tool.stdout}${tool.stderr}`);
  check(status === 1 && stderr.trim() !== '', `status ${status}: ${stderr}`);
  return `told after ${Math.round(performance.now() - began)} ms: ${stderr.trim().split('\n').at(-1)}`;
}

const LEAVE_CASES: readonly InteropCase[] = LEAVING.flatMap((pair) =>
  BOTH.map((sides): InteropCase => ({
    driver: 'stock', group: 'the peer is killed', name: `${pair.name}: ${sides.name}`, run: (bench) => leaveCase(bench, pair, sides),
  })),
);

/** All of these, in the order of the table. */
export const TOOLS_CASES: readonly InteropCase[] = [
  ...CM_PAIRS.flatMap(pairCases), ...PERFTEST_PAIRS.flatMap(pairCases), ...STREAM_PAIRS.flatMap(pairCases), ...STREAM_CASES, ...LEAVE_CASES,
];
