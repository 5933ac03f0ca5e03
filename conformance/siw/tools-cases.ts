/**
 * The other tools against stock ones, both ways: ucmatose, rdma_client, the six perftest programs, rstream,
 * riostream, rcopy; and programs under librspreload against our streams.
 *
 * CRC is off in long runs. siw 6.1 reports a CRC error when PAD and CRC of an FPDU reach it in two pieces
 * (split-trailer.ts). User-mode networking cuts the stream anywhere, so this happens every few thousand
 * FPDUs.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { captureTo } from '../../src/index.ts';
import { check, within, type Bench, type InteropCase } from './bench.ts';
import { pairCases, ROLES, type Pair, type Role } from './pairs.ts';

// ------------------------------------------------------------------------------------- ucmatose and its kind

export const CM_PORT = 7471;

const CM_PAIRS: readonly Pair[] = [
  ...['-C 10 -S 100', '-C 0', '-c 10', '-C 200 -S 20000 -c 2'].map(
    (flags): Pair => ({
      tool: 'ucmatose',
      topic: 'connections',
      name: flags,
      port: CM_PORT,
      says: /return status 0/,
      ours: {
        server: (port) => ['ucmatose', '-p', String(port), ...flags.split(' ')],
        client: (host, port) => ['ucmatose', '-s', host, '-p', String(port), ...flags.split(' ')],
      },
      stock: {
        server: (port) => `ucmatose -p ${port} ${flags}`,
        client: (host, port) => `ucmatose -s ${host} -p ${port} ${flags}`,
      },
    }),
  ),
  {
    tool: 'rdma_client, rdma_server',
    topic: 'connections',
    name: '16 octets each way',
    port: CM_PORT,
    says: /end 0/,
    ours: {
      server: (port) => ['rdma_server', '-p', String(port)],
      client: (host, port) => ['rdma_client', '-s', host, '-p', String(port)],
    },
    stock: {
      server: (port) => `rdma_server -p ${port}`,
      client: (host, port) => `rdma_client -s ${host} -p ${port}`,
    },
  },
];

/**
 * rdma_xclient sends 16 octets and leaves; rdma_xserver takes them and leaves. Nothing answers, so each is
 * the other end of the tool of ours that speaks first or listens.
 */
const ONE_WAY_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    tool: 'rdma_xclient',
    name: '16 octets one way, to our rdma_server',
    ours: 'server',
    topic: 'connections',
    run: async (bench) => {
      const port = await bench.freePort();
      const tool = await bench.startListening(
        ['rdma_server', '-p', String(port), '--pcap', bench.capture],
        port,
      );
      const client = await bench.stock(`rdma_xclient -c r -s ${bench.peer.hostAddress} -p ${port}`);
      check(client.status === 0, `stock client: status ${client.status}: ${client.output}`);
      check(/^rdma_xclient: end 0$/m.test(client.output), `stock client: ${client.output}`);
      const result = await within(tool.ended, bench.patience, () => 'our server goes on');
      // As the stock rdma_server: it has had its 16 octets, and its answer is nobody's business.
      check(
        result.status === 0 && /^rdma_server: end 0$/m.test(result.stdout),
        `our server: status ${result.status}: ${result.stdout}${result.stderr}`,
      );
      return 'both end 0, as stock rdma_server does with it';
    },
  },
  {
    driver: 'stock',
    tool: 'rdma_xserver',
    name: '16 octets one way, from our rdma_client',
    ours: 'client',
    topic: 'connections',
    run: async (bench) => {
      const server = await bench.listening(`rdma_xserver -c r -p ${CM_PORT}`, CM_PORT);
      const { host, port } = bench.peer.reach(CM_PORT);
      const result = await bench.iwarp(
        'rdma_client',
        '-s',
        host,
        '-p',
        String(port),
        '--pcap',
        bench.capture,
      );
      const { status, output } = await within(
        server.ended,
        bench.patience,
        () => `the stock server goes on: ${server.output}`,
      );
      check(status === 0 && /^rdma_xserver: end 0$/m.test(output), `stock server: ${status} ${output}`);
      // As the stock client, which never looks at how its receive has completed.
      check(
        result.status === 0 && /^rdma_client: end 0$/m.test(result.stdout),
        `our client: status ${result.status}: ${result.stdout}${result.stderr}`,
      );
      return 'both end 0, as stock rdma_client does with it';
    },
  },
];

// ---------------------------------------------------------------------------------------------------- cmtime

const CM_CONNECTIONS = 20;
const CM_STEPS = ['create qp', 'connect', 'disconnect'];

/** The times of connecting in a table of cmtime; fails if the table does not show that all went well. */
function checkTimes(output: string): string {
  check(!/event:|fail/i.test(output), `not all went well: ${output.slice(-400)}`);
  const lines = CM_STEPS.map((step) => {
    const line = new RegExp(`^${step} *: +[\\d.]+ +([\\d.]+) +([\\d.]+) +[\\d.]+$`, 'm').exec(output);
    check(line !== null, `no times of "${step}": ${output.slice(-400)}`);
    // Without a connection that was timed, the stock table has 999999999 here.
    const [, longest, shortest] = line!.map(Number);
    check(shortest! > 0 && shortest! <= longest! * 1000 + 10, `no times of "${step}": ${line![0]}`);
    return line![0].replaceAll(/\s+/g, ' ');
  });
  return lines[1]!;
}

const CMTIME_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    tool: 'cmtime',
    name: `-c ${CM_CONNECTIONS}`,
    ours: 'client',
    topic: 'connections',
    run: async (bench) => {
      const server = await bench.listening(`cmtime -p ${CM_PORT}`, CM_PORT);
      const opened = "awk '/^Tcp: [0-9]/ { print $7 }' /proc/net/snmp";
      const before = Number((await bench.stock(opened)).output);
      const { host, port } = bench.peer.reach(CM_PORT);
      const flags = ['-c', String(CM_CONNECTIONS), '-p', String(port), '--pcap', bench.capture];
      const result = await bench.iwarp('cmtime', '-s', host, ...flags);
      check(result.status === 0, `our client: status ${result.status}: ${result.stderr}`);
      const times = checkTimes(result.stdout);
      // The stock server prints nothing; its kernel has taken the connections, and nothing is left of them.
      const after = Number((await bench.stock(opened)).output);
      check(after - before >= CM_CONNECTIONS, `the peer took ${after - before} connections`);
      const until = Date.now() + bench.patience;
      let left: string;
      do {
        left = (await bench.stock('rdma resource show qp')).output;
      } while (/comm cmtime/.test(left) && Date.now() < until);
      check(!/comm cmtime/.test(left), `the stock server keeps queue pairs: ${left.slice(0, 300)}`);
      check(!/fail/.test(server.output), `stock server: ${server.output}`);
      return times;
    },
  },
  {
    driver: 'stock',
    tool: 'cmtime',
    name: `-c ${CM_CONNECTIONS}`,
    ours: 'server',
    topic: 'connections',
    run: async (bench) => {
      const port = await bench.freePort();
      const flags = ['-p', String(port), '--pcap', bench.capture];
      const server = await bench.startListening(['cmtime', ...flags], port);
      const command = `cmtime -c ${CM_CONNECTIONS} -s ${bench.peer.hostAddress} -p ${port}`;
      const client = await bench.stock(command);
      check(client.status === 0, `stock client: status ${client.status}: ${client.output.slice(-400)}`);
      const times = checkTimes(client.output);
      check(
        server.child.exitCode === null && server.stderr === '',
        `our server does not go on: ${server.stderr}`,
      );
      return times;
    },
  },
];

// -------------------------------------------------------------------------------------------------- perftest

const PERFTEST_PORT = 18_515;
const FEW = '-n 200';
const BANDWIDTH: readonly string[] = [
  FEW,
  '-a -n 5',
  '-q 4 -n 100',
  '-b -n 100',
  '-D 2',
  '-s 4096 -t 16 -Q 4 -n 400 -F --report_gbits',
];
const LATENCY: readonly string[] = [FEW, '-a -n 5', '-D 2'];
const PERFTEST: Readonly<Record<string, readonly string[]>> = {
  write_bw: [...BANDWIDTH, '-I 64 -s 64 -n 200', '-q 2 -n 100 --mr_per_qp --perform_warm_up'],
  read_bw: [...BANDWIDTH, '-D 2 --cpu_util'],
  send_bw: [
    ...BANDWIDTH,
    '-n 2000 -s 1024',
    '-n 200 -s 1024 --use-srq',
    // Each third of the queue gives a credit, and is a multiple of a list: stock receivers never run dry.
    '-n 198 -s 1024 --recv_post_list 3',
  ],
  write_lat: [...LATENCY, '-I 64 -s 64 -n 200'],
  read_lat: LATENCY,
  send_lat: [...LATENCY, '-n 20 --use-srq --latency_gap 100 --wait_destroy 1'],
};

/** Long runs go without CRC; see above. */
export const NO_CRC: readonly string[] = ['--crc', 'off'];

function perftestPair(program: string, flags: string): Pair {
  const ours = [program, '-R', ...flags.split(' '), ...(flags === FEW ? [] : NO_CRC)];
  const stock = `ib_${program} -R ${flags}`;
  return {
    tool: program,
    topic: 'perftest',
    name: flags,
    port: PERFTEST_PORT,
    says: /^ \d+ +\d+ +\d/m,
    // The server of a latency test by Reads has no figures.
    ...(program === 'read_lat' ? { serverSays: /RDMA_Read Latency Test/ } : {}),
    ours: {
      server: (port) => [...ours, '-p', String(port)],
      client: (host, port) => [...ours, '-p', String(port), host],
    },
    stock: { server: (port) => `${stock} -p ${port}`, client: (host, port) => `${stock} -p ${port} ${host}` },
  };
}

/** Programs of two verbs: the memory of read_bw is open to Writes, which a Read over iWARP needs too. */
const TWO_VERBS: Pair = {
  ...perftestPair('read_bw', FEW),
  name: `${FEW}, with write_bw as client`,
  ours: {
    server: (port) => ['read_bw', ...FEW.split(' '), '-p', String(port)],
    client: (host, port) => ['write_bw', ...FEW.split(' '), '-p', String(port), host],
  },
  stock: {
    server: (port) => `ib_read_bw -R ${FEW} -p ${port}`,
    client: (host, port) => `ib_write_bw -R ${FEW} -p ${port} ${host}`,
  },
};

const PERFTEST_PAIRS: readonly Pair[] = [
  ...Object.entries(PERFTEST).flatMap(([program, runs]) => runs.map((flags) => perftestPair(program, flags))),
  TWO_VERBS,
];

// --------------------------------------------------------------------------------------------------- streams

/** Ten thousand FPDUs each way: long, as said above. */
const LONG_STREAM = '-S 1000000 -C 5 -I 3 -T v';
const STREAM_PAIRS: readonly Pair[] = ['rstream', 'riostream'].flatMap((program) =>
  [
    '-S 64 -C 1 -I 500 -T v',
    '-S 4096 -C 50 -I 10 -T v',
    LONG_STREAM,
    // Small buffers: sixteen grants for each transfer.
    ...(program === 'rstream' ? ['-S 65536 -C 20 -I 10 -B 4096 -T v'] : []),
  ].map(
    (flags): Pair => ({
      tool: program,
      topic: 'streams',
      name: flags,
      port: CM_PORT,
      says: /^custom .*\d$/m,
      ours: {
        server: (port) => [
          program,
          '-p',
          String(port),
          ...flags.split(' '),
          ...(flags === LONG_STREAM ? NO_CRC : []),
        ],
        client: (host, port) => [
          program,
          '-s',
          host,
          '-p',
          String(port),
          ...flags.split(' '),
          ...(flags === LONG_STREAM ? NO_CRC : []),
        ],
      },
      stock: {
        server: (port) => `${program} -p ${port} ${flags}`,
        client: (host, port) => `${program} -s ${host} -p ${port} ${flags}`,
      },
    }),
  ),
);

const COPY_PORT = 7427;
const COPY_OCTETS = 100_000_000;
const digest = (data: Uint8Array): string => createHash('md5').update(data).digest('hex');

/** A file from here to the peer, or from the peer to here, by rcopy. */
async function copyCase(bench: Bench, ours: Role): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'rcopy-'));
  try {
    const local = join(folder, 'file');
    const began = performance.now();
    if (ours === 'client') {
      const data = randomBytes(COPY_OCTETS);
      writeFileSync(local, data);
      await bench.listening(`rcopy -p ${COPY_PORT}`, COPY_PORT);
      const { host, port } = bench.peer.reach(COPY_PORT);
      const result = await bench.iwarp(
        'rcopy',
        local,
        `${host}:/tmp/rcopy.in`,
        '-p',
        String(port),
        ...NO_CRC,
      );
      check(result.status === 0, `our rcopy: status ${result.status}: ${result.stdout}${result.stderr}`);
      const { output } = await bench.stock('md5sum /tmp/rcopy.in; rm /tmp/rcopy.in');
      check(output.includes(digest(data)), `the copy differs: ${output}`);
    } else {
      const port = await bench.freePort();
      await bench.startListening(['rcopy', '--dir', '/', '-p', String(port), ...NO_CRC], port);
      const { status, output } = await bench.stock(
        `head -c ${COPY_OCTETS} /dev/urandom > /tmp/rcopy.out; md5sum /tmp/rcopy.out; rcopy ` +
          `/tmp/rcopy.out ${bench.peer.hostAddress}:${local} -p ${port}; s=$?; rm /tmp/rcopy.out; exit $s`,
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

/** A program for plain sockets, put on rsockets by its loader, connects to our server. */
async function preloadClient(
  bench: Bench,
  command: (host: string, port: number) => string,
  expected: number | null,
): Promise<string> {
  const { createServer } = await import('../../src/sockets/index.ts');
  const capture = captureTo(bench.capture);
  let octets = 0;
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.on('data', (chunk: Buffer) => (octets += chunk.length)).on('error', () => undefined);
  });
  try {
    await new Promise<void>((resolve) => server.listen(0, bench.peer.bindAddress, resolve));
    const { status, output } = await bench.stock(
      command(bench.peer.hostAddress, (server.address() as { port: number }).port),
    );
    check(status === 0, `status ${status}: ${output.slice(-400)}`);
    // Our server takes nothing but rsockets, so a connection is the proof that the program used them.
    check(connections > 0, `no connection over rsockets: ${output.slice(-300)}`);
    for (const socket of server.connections)
      if (!socket.closed)
        await within(
          new Promise((resolve) => socket.once('close', resolve)),
          bench.patience,
          () => 'our socket stays open',
        );
    check(expected === null ? octets > 0 : octets === expected, `${octets} octets came`);
    return `${octets} octets over ${connections} connection(s)`;
  } finally {
    await server[Symbol.asyncDispose]();
    capture.close();
  }
}

/** The same program listens, and our stream connects and writes. */
async function preloadServer(bench: Bench, command: string, port: number, verify: string): Promise<string> {
  const { connect } = await import('../../src/sockets/index.ts');
  const process = await bench.listening(command, port);
  const data = randomBytes(PRELOAD_OCTETS);
  const where = bench.peer.reach(port);
  const capture = captureTo(bench.capture);
  try {
    const socket = connect({ host: where.host, port: where.port });
    socket.resume();
    const closed = new Promise<void>((resolve, reject) =>
      socket.once('error', reject).once('close', resolve),
    );
    socket.end(data);
    await within(closed, bench.patience, () => `the connection stays open: ${process.output}`);
  } finally {
    capture.close();
  }
  const { output } = await bench.stock(verify);
  check(output.includes(digest(data)), `the copy there differs: ${output} ${process.output}`);
  return `${PRELOAD_OCTETS} octets, same digest`;
}

const STREAM_CASES: readonly InteropCase[] = [
  ...ROLES.map(
    (ours): InteropCase => ({
      driver: 'stock',
      tool: 'rcopy',
      name: 'of 100 MB',
      ours,
      topic: 'streams',
      run: (bench) => copyCase(bench, ours),
    }),
  ),
  {
    driver: 'stock',
    tool: 'librspreload',
    name: 'nc.traditional sends to our stream',
    ours: 'server',
    topic: 'streams',
    run: (bench) =>
      preloadClient(
        bench,
        (host, port) =>
          `head -c ${PRELOAD_OCTETS} /dev/zero > /tmp/nc.out; ${PRELOAD} nc.traditional -q 1 ${host} ` +
          `${port} < /tmp/nc.out`,
        PRELOAD_OCTETS,
      ),
  },
  {
    driver: 'stock',
    tool: 'librspreload',
    name: 'our stream sends to nc.traditional',
    ours: 'client',
    topic: 'streams',
    run: (bench) =>
      preloadServer(
        bench,
        `${PRELOAD} nc.traditional -l -p ${CM_PORT} > /tmp/nc.in`,
        CM_PORT,
        'md5sum /tmp/nc.in',
      ),
  },
  {
    driver: 'stock',
    tool: 'librspreload',
    name: 'iperf sends to our stream',
    ours: 'server',
    topic: 'streams',
    run: (bench) => preloadClient(bench, (host, port) => `${PRELOAD} iperf -c ${host} -p ${port} -t 3`, null),
  },
];

/** All of these, in the order of the table. */
export const TOOLS_CASES: readonly InteropCase[] = [
  ...CM_PAIRS.flatMap(pairCases),
  ...ONE_WAY_CASES,
  ...CMTIME_CASES,
  ...PERFTEST_PAIRS.flatMap(pairCases),
  ...STREAM_PAIRS.flatMap(pairCases),
  ...STREAM_CASES,
];
