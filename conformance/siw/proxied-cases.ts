/**
 * Programs for which we have no counterpart, stock at both ends in the guest, with `iwarp proxy` between: it
 * passes their octets on, decodes all of them, and must find nothing broken and every Message that their
 * figures speak of.
 */
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { check, within, type Bench, type InteropCase, type PeerProcess, type ToolProcess } from './bench.ts';
import { controlRelay, PINGPONG_NOTICE, QPERF_NOTICE, type PortNotice } from './control-relay.ts';
import { kernelOf } from './kernels.ts';

/** Where a stock server is reached, and where the RDMA connection is whose port it picks itself. */
const SERVER_PORT = 4000;
const PICKED_PORT = 4001;
const PICKED = '/tmp/picked-port';

// ---------------------------------------------------------------------------------------- what the proxy saw

interface SeenDirection {
  readonly fpdus: number;
  readonly payload: number;
  readonly skipped: number;
  readonly missing: number;
  readonly opcodes: Readonly<Record<string, number>>;
}

/** What `iwarp proxy --json --summary` prints of a connection, as far as the cases look at it. */
interface Seen {
  readonly iwarp: boolean;
  readonly directions: readonly [SeenDirection, SeenDirection];
  readonly problems: Readonly<Record<string, number>>;
  readonly terminates: readonly { readonly description: string }[];
}

interface Proxy {
  readonly port: number;
  /**
   * Its summary, once the connection is over; fails unless all of it was iWARP and in order. A program that
   * stops by the clock leaves an FPDU unfinished: at most `unfinished` octets of either direction. One rule
   * may be `broken` once, by the programs and not by what stands between them.
   */
  seen(unfinished?: number, broken?: string): Promise<Seen>;
}

async function proxyTo(bench: Bench, port: number): Promise<Proxy> {
  const { host, port: reached } = bench.peer.reach(port);
  const tool: ToolProcess = bench.start([
    'proxy',
    `${bench.peer.bindAddress}:0`,
    `${host}:${reached}`,
    '--once',
    '--json',
    '--summary',
    '--pcap',
    bench.capture,
  ]);
  const listening = await tool.shows(/listening on \S+ port (\d+)/);
  return {
    port: Number(listening[1]),
    seen: async (unfinished = 0, broken = '') => {
      const { status, stdout, stderr } = await within(
        tool.ended,
        bench.patience,
        () => `our proxy goes on: ${tool.stderr}`,
      );
      check(status === 0, `our proxy: status ${status}: ${stderr}`);
      const seen = JSON.parse(stdout) as Seen;
      const { iwarp, problems, terminates, directions } = seen;
      check(iwarp, `our proxy saw no iWARP: ${stdout}`);
      const known = problems[broken] === 1 ? 1 : 0;
      check(
        Object.keys(problems).length === known,
        `our proxy saw what is broken: ${JSON.stringify(problems)}`,
      );
      check(terminates.length === 0, `a Terminate crossed: ${JSON.stringify(terminates)}`);
      for (const { skipped, missing } of directions)
        check(skipped <= unfinished && missing === 0, `our proxy did not decode all: ${stdout}`);
      return seen;
    },
  };
}

/** The number of FPDUs of each opcode in one direction, and their octets of payload. */
function told(seen: Seen, direction: 0 | 1): string {
  const { opcodes, payload } = seen.directions[direction];
  const kinds = Object.entries(opcodes).map(([name, count]) => `${count} ${name}`);
  return `${kinds.join(', ')} with ${payload} octets`;
}

// ------------------------------------------------------------------------------------- a port that is picked

interface Between extends Proxy {
  /** The port of this machine to which the client's first connection goes. */
  readonly control: number;
}

/**
 * The proxy in front of a server that picks a port and names it in its answer. The relay in the guest, which
 * leads a forwarded port to the one picked, is started before: some clients wait five seconds for an answer.
 */
async function proxyToPicked(bench: Bench, notice: PortNotice): Promise<Between> {
  // Between the server and the relay beside it are 65,536 octets of MTU, for which siw makes FPDUs that
  // RFC 5044 forbids (MPA-076): as on Ethernet, then.
  const { output } = await bench.stock('ip link set lo mtu 1500 && cat /sys/class/net/lo/mtu');
  check(output.trim() === '1500', `the MTU of the guest's loopback is not 1500: ${output}`);
  const proxy = await proxyTo(bench, PICKED_PORT);
  await bench.listening(
    `rm -f ${PICKED}; nc -ll -p ${PICKED_PORT} -e sh -c 'exec nc ${bench.peer.address} $(cat ${PICKED})'`,
    PICKED_PORT,
  );
  const relay = controlRelay(bench.peer.reach(SERVER_PORT), notice, async (port) => {
    await bench.stock(`echo ${port} > ${PICKED}`);
    return { host: bench.peer.hostAddress, port: proxy.port };
  });
  return { ...proxy, control: await bench.serve(relay) };
}

async function ended(bench: Bench, process: PeerProcess, what: string): Promise<string> {
  const { status, output } = await within(
    process.ended,
    bench.patience,
    () => `${what} goes on: ${process.output.slice(-300)}`,
  );
  check(status === 0, `${what}: status ${status}: ${output.slice(-400)}`);
  return output;
}

// ----------------------------------------------------------------------------------------------- fi_pingpong

const ROUNDS = 20;

/** A line of figures of fi_pingpong: size, rounds, acknowledged rounds, and the rate. */
const FIGURES = /^(\S+) +(\d+) +=(\d+) +\S+ +[\d.]+s +[\d.]+ +[\d.]+ +[\d.]+$/m;

async function pingpong(bench: Bench, size: number, shown: string): Promise<string> {
  const flags = `-p verbs -e msg -c -I ${ROUNDS} -S ${size}`;
  const server = await bench.listening(`fi_pingpong ${flags} -B ${SERVER_PORT}`, SERVER_PORT);
  const between = await proxyToPicked(bench, PINGPONG_NOTICE);
  const client = await bench.stock(`fi_pingpong ${flags} -P ${between.control} ${bench.peer.hostAddress}`);
  check(
    client.status === 0,
    `stock client: status ${client.status}: ${client.output.slice(-400)}; ` +
      `server: ${server.output.slice(-400)}`,
  );
  const served = await ended(bench, server, 'the stock server');
  for (const output of [client.output, served]) {
    const [, size = '', sent, acknowledged] = FIGURES.exec(output) ?? [];
    check(
      size === shown && Number(sent) === ROUNDS && Number(acknowledged) === ROUNDS,
      `no figures of ${ROUNDS} rounds with ${shown}: ${output.slice(-400)}`,
    );
  }
  const seen = await between.seen();
  for (const direction of [0, 1] as const) {
    const { opcodes, payload } = seen.directions[direction];
    check(
      (opcodes['Send'] ?? 0) >= ROUNDS && payload >= ROUNDS * size,
      `less than ${ROUNDS} Sends of ${size} octets: ${told(seen, direction)}`,
    );
  }
  return `${FIGURES.exec(client.output)![0].replaceAll(/\s+/g, ' ')}; there ${told(seen, 0)}`;
}

// ------------------------------------------------------------------------------------------------------- fio

const BLOCK = 65_536;
const BLOCKS = 64;

/** Bring fio into the guest, where no earlier case has: its libraries are too many for every boot. */
async function fetchFio(bench: Bench): Promise<void> {
  const { status } = await bench.stock('test -x /usr/bin/fio');
  if (status === 0) return;
  const archive = join(kernelOf(process.env).cache, 'fio.tar.gz');
  const port = await bench.serve(
    createServer((_request, response) => void createReadStream(archive).pipe(response)),
  );
  const fetched = await bench.stock(
    `wget -q -O - http://${bench.peer.hostAddress}:${port}/ | tar xzf - -C / && fio --version`,
  );
  check(/^fio-/m.test(fetched.output), `fio did not come: ${fetched.output.slice(-300)}`);
}

interface FioResult {
  readonly jobs: readonly {
    readonly error: number;
    readonly write: { readonly io_bytes: number; readonly total_ios: number; readonly bw: number };
  }[];
}

/** The job "verb=write" Writes into the receiver's memory, "verb=read" Reads from there. */
async function fio(bench: Bench, verb: 'write' | 'read'): Promise<string> {
  await fetchFio(bench);
  const job = `--ioengine=rdma --bs=${BLOCK} --size=${BLOCK * BLOCKS}`;
  const server = await bench.listening(
    `cd /tmp && fio --name=receiver ${job} --port=${SERVER_PORT} --rw=read --iodepth=8`,
    SERVER_PORT,
  );
  const proxy = await proxyTo(bench, SERVER_PORT);
  const client = await bench.stock(
    `cd /tmp && fio --name=sender ${job} --hostname=${bench.peer.hostAddress} --port=${proxy.port} ` +
      `--verb=${verb} --rw=write --iodepth=4 --iodepth_batch_complete=1 --output-format=json`,
  );
  check(
    client.status === 0,
    `stock sender: status ${client.status}: ${client.output.slice(-400)}; ` +
      `receiver: ${server.output.slice(-400)}`,
  );
  const received = await ended(bench, server, 'the stock receiver');
  check(/receiver: .*err= 0/.test(received), `the receiver: ${received.slice(-400)}`);
  const result = JSON.parse(client.output.slice(client.output.indexOf('{'))) as FioResult;
  const { error, write } = result.jobs[0]!;
  check(
    error === 0 && write.total_ios === BLOCKS && write.io_bytes === BLOCK * BLOCKS,
    `not ${BLOCKS} blocks of ${BLOCK} octets: ${JSON.stringify(write)}`,
  );
  const seen = await proxy.seen();
  const [there, back] = seen.directions;
  const carried = verb === 'write' ? there : back;
  const asked = verb === 'write' ? 'RDMA Write' : 'RDMA Read Request';
  check(
    (there.opcodes[asked] ?? 0) >= BLOCKS && carried.payload >= BLOCK * BLOCKS,
    `less than ${BLOCKS} of ${asked}: ${told(seen, 0)}; back ${told(seen, 1)}`,
  );
  return `${write.total_ios} blocks, ${write.bw} KiB/s; there ${told(seen, 0)}, back ${told(seen, 1)}`;
}

// ----------------------------------------------------------------------------------------------------- qperf

const QPERF_SECONDS = 2;
const FPDU_OCTETS = 1500;

interface QperfTest {
  readonly name: string;
  readonly figure: RegExp;
  /** The least number of Sends that cross in either direction. */
  readonly sends: number;
  /** A rule that the two may break where they happen to begin so. */
  readonly broken?: string;
}

const QPERF_TESTS: readonly QperfTest[] = [
  { name: 'rc_lat', figure: /latency += +([\d.]+) (ns|us|ms)/, sends: 10 },
  // Both ends begin at once, and siw holds no server back that has not heard its client yet.
  { name: 'rc_bi_bw', figure: /bw += +([\d.]+) ([KMG]?B)\/sec/, sends: 10, broken: 'MPA-028' },
];

async function qperf(bench: Bench, { name, figure, sends, broken }: QperfTest): Promise<string> {
  await bench.listening(`qperf -lp ${SERVER_PORT}`, SERVER_PORT);
  const between = await proxyToPicked(bench, QPERF_NOTICE);
  const client = await bench.stock(
    `qperf -lp ${between.control} -cm 1 -t ${QPERF_SECONDS} ${bench.peer.hostAddress} ${name}`,
  );
  check(client.status === 0, `stock client: status ${client.status}: ${client.output.slice(-400)}`);
  const [shown, value] = figure.exec(client.output) ?? [];
  check(Number(value) > 0, `no figure: ${client.output.slice(-400)}`);
  const seen = await between.seen(FPDU_OCTETS, broken);
  for (const direction of [0, 1] as const)
    check(
      (seen.directions[direction].opcodes['Send'] ?? 0) >= sends,
      `less than ${sends} Sends: ${told(seen, direction)}`,
    );
  return `${shown!.replaceAll(/\s+/g, ' ')}; there ${told(seen, 0)}, back ${told(seen, 1)}`;
}

// ----------------------------------------------------------------------------------------------------- cases

function proxied(tool: string, name: string, run: (bench: Bench) => Promise<string>): InteropCase {
  return { driver: 'stock', tool, name, ours: 'proxy', topic: 'proxied', guestOnly: true, run };
}

/** All of these, in the order of the table. */
export const PROXIED_CASES: readonly InteropCase[] = [
  ...(
    [
      [64, '64'],
      [4096, '4k'],
      [65_536, '64k'],
    ] as const
  ).map(([size, shown]) =>
    proxied('fi_pingpong', `-p verbs -e msg -S ${size}`, (bench) => pingpong(bench, size, shown)),
  ),
  ...(['write', 'read'] as const).map((verb) =>
    proxied('fio', `ioengine=rdma verb=${verb}`, (bench) => fio(bench, verb)),
  ),
  ...QPERF_TESTS.map((test) => proxied('qperf', `-cm 1 ${test.name}`, (bench) => qperf(bench, test))),
];
