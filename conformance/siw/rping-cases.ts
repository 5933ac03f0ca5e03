/**
 * rping against rping: our client with the stock server, the stock client with our server; sizes, CRC,
 * peer-to-peer, set-up variants.
 */
import {
  check,
  pause,
  within,
  type Bench,
  type DriverName,
  type InteropCase,
  type ToolProcess,
} from './bench.ts';

const SIZES = [23, 64, 4096, 65_535];
const COUNT = 100;
const MANY = 1000;
/**
 * The stock server's port on the peer; each case uses its own server, so that none inherits another's state.
 */
const STOCK_PORT = 7174;
const RELAY_PORT = 7175;

interface ClientVariant {
  readonly name: string;
  readonly flags: readonly string[];
  /** The text that the client's `-d` line must have. */
  readonly says: RegExp;
}

const CLIENT_VARIANTS: readonly ClientVariant[] = [
  { name: 'crc on', flags: ['--crc', 'required'], says: /crc on .* rtr write/ },
  { name: 'crc off', flags: ['--crc', 'off'], says: /crc off .* rtr write/ },
  {
    name: 'crc on, no peer-to-peer',
    flags: ['--crc', 'required', '--no-peer-to-peer'],
    says: /crc on .* rtr none/,
  },
  {
    name: 'crc off, no peer-to-peer',
    flags: ['--crc', 'off', '--no-peer-to-peer'],
    says: /crc off .* rtr none/,
  },
];

interface Pings {
  readonly size: number;
  readonly count?: number;
  readonly flags: readonly string[];
  /** The text that our side must print about the connection. */
  readonly says: RegExp;
}

/** Our client, stock server, which our side reaches at `where`. */
async function ourClient(
  bench: Bench,
  { size, count = COUNT, flags, says }: Pings,
  address = '',
  where = bench.peer.reach(STOCK_PORT),
): Promise<string> {
  const server = await bench.listening(
    `rping -s -v -S ${size} -C ${count} -p ${STOCK_PORT} ${address}`,
    STOCK_PORT,
  );
  const { host, port } = where;
  const begin = performance.now();
  const result = await bench.iwarp(
    'rping',
    '-c',
    '-d',
    '-v',
    '-V',
    '-C',
    String(count),
    '-S',
    String(size),
    '-a',
    host,
    '-p',
    String(port),
    '--pcap',
    bench.capture,
    ...flags,
  );
  check(result.status === 0, `exit status ${result.status}: ${result.stderr}`);
  check(says.test(result.stderr), `expected ${says}: ${result.stderr.split('\n')[0]}`);
  const pings = result.stdout.split('\n').filter((line) => line.startsWith('ping data: rdma-ping-')).length;
  check(pings === count, `${pings} pings of ${count}`);
  const took = performance.now() - begin;
  const { output } = await within(
    server.ended,
    bench.patience,
    () => `the stock server goes on: ${server.output.slice(-300)}`,
  );
  const seen = output.split('\n').filter((line) => line.startsWith('server ping data: rdma-ping-')).length;
  check(seen === count, `the server saw ${seen} pings of ${count}: ${output.slice(-300)}`);
  return `${count} pings verified in ${(took / 1000).toFixed(1)} s`;
}

/** Stock client, our server. */
async function ourServer(
  bench: Bench,
  { size, count = COUNT, flags, says }: Pings,
  address?: { bind: string; reach: string },
): Promise<string> {
  const server = bench.start([
    'rping',
    '-s',
    '-d',
    '-v',
    '-a',
    address?.bind ?? bench.peer.bindAddress,
    '-p',
    '0',
    '--pcap',
    bench.capture,
    ...flags,
  ]);
  const port = (await server.shows(/listening on port (\d+)/))[1]!;
  const begin = performance.now();
  const client = await bench.stock(
    `rping -c -v -V -C ${count} -S ${size} -a ${address?.reach ?? bench.peer.hostAddress} -p ${port}`,
  );
  check(client.status === 0, `stock client: exit status ${client.status}: ${client.output.slice(-300)}`);
  const pings = client.output.split('\n').filter((line) => line.startsWith('ping data: rdma-ping-')).length;
  check(pings === count, `${pings} pings of ${count}`);
  const took = performance.now() - begin;
  const result = await within(
    server.ended,
    bench.patience,
    () => `our server goes on: ${server.stdout.slice(-300)}${server.stderr.slice(-300)}`,
  );
  check(result.status === 0, `our server: exit status ${result.status}: ${result.stderr.slice(-300)}`);
  check(says.test(result.stderr), `expected ${says}: ${result.stderr.split('\n').slice(0, 3).join(' | ')}`);
  return `${count} pings verified in ${(took / 1000).toFixed(1)} s`;
}

function clientCases(driver: DriverName): InteropCase[] {
  return SIZES.flatMap((size) =>
    CLIENT_VARIANTS.map((variant) => ({
      driver,
      tool: 'rping',
      ours: 'client',
      topic: 'rping',
      name: `${size} octets, ${variant.name}`,
      run: (bench: Bench) => ourClient(bench, { size, flags: variant.flags, says: variant.says }),
    })),
  );
}

function serverCases(driver: DriverName, rtr: string): InteropCase[] {
  return SIZES.flatMap((size) =>
    (
      [
        ['crc on', 'required', 'on'],
        ['crc off', 'off', 'off'],
      ] as const
    ).map(([name, flag, word]) => ({
      driver,
      tool: 'rping',
      ours: 'server',
      topic: 'rping',
      name: `${size} octets, ${name}`,
      // A driver built to require CRC asks for it itself.
      run: (bench: Bench) =>
        ourServer(bench, {
          size,
          flags: ['--crc', flag],
          says: new RegExp(`crc ${driver === 'crc-required' ? 'on' : word} .* rtr ${rtr}`),
        }),
    })),
  );
}

const MARKER_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'client',
    topic: 'set-up',
    name: 'with markers, which siw rejects, and we say so',
    run: async (bench) => {
      await bench.listening(`rping -s -P -p ${STOCK_PORT}`, STOCK_PORT);
      const { host, port } = bench.peer.reach(STOCK_PORT);
      const result = await bench.iwarp(
        'rping',
        '-c',
        '-C',
        '1',
        '--markers',
        '-a',
        host,
        '-p',
        String(port),
        '--pcap',
        bench.capture,
      );
      check(result.status === 1, `exit status ${result.status}`);
      check(/rejected the connection.*markers/.test(result.stderr), result.stderr);
      // The server goes on serving others.
      const again = await bench.iwarp('rping', '-c', '-V', '-C', '3', '-a', host, '-p', String(port));
      check(again.status === 0, `a plain client afterwards: ${again.stderr}`);
      return 'rejected and reported; the next client is served';
    },
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'server',
    topic: 'set-up',
    name: 'with markers: siw refuses the Reply, and we say so',
    run: async (bench) => {
      const server = bench.start([
        'rping',
        '-s',
        '-d',
        '-a',
        bench.peer.bindAddress,
        '-p',
        '0',
        '--markers',
        '--pcap',
        bench.capture,
      ]);
      const port = (await server.shows(/listening on port (\d+)/))[1]!;
      const client = await bench.stock(`rping -c -C 1 -a ${bench.peer.hostAddress} -p ${port}`);
      check(client.status !== 0, 'the stock client went through');
      const result = await server.ended;
      check(
        result.status === 1 || /DISCONNECT/.test(result.stderr),
        `our server: ${result.status} ${result.stderr}`,
      );
      return `stock client: ${lastLine(client.output)}`;
    },
  },
];

const REJECT_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'server',
    topic: 'set-up',
    name: 'is rejected in words that the stock client shows',
    run: async (bench) => {
      const { createServer, RejectedError } = await import('../../src/index.ts');
      const server = await createServer({
        credits: false,
        onRequest: () => {
          throw new RejectedError('not today', new TextEncoder().encode('no'));
        },
      }).listen({ host: bench.peer.bindAddress, port: 0 });
      try {
        const client = await bench.stock(
          `rping -c -C 1 -a ${bench.peer.hostAddress} -p ${server.address().port}`,
        );
        check(client.status !== 0, 'the stock client went through');
        check(/REJECTED/.test(client.output), client.output);
        return `stock client: ${client.output
          .split('\n')
          .find((line) => line.includes('REJECTED'))
          ?.trim()}`;
      } finally {
        await server.close();
      }
    },
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'client',
    topic: 'set-up',
    name: 'where nobody listens: we say so within the time-out',
    run: async (bench) => {
      const { host, port } = bench.peer.reach(STOCK_PORT);
      const result = await bench.iwarp('rping', '-c', '-C', '1', '-a', host, '-p', String(port));
      check(result.status === 1, `exit status ${result.status}`);
      check(result.stderr.startsWith('rping: '), result.stderr);
      return result.stderr.trim();
    },
  },
];

const CRC = ['--crc', 'required'];

const SHAPE_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'client',
    topic: 'rping',
    name: '65535 octets in small FPDUs (300 octets)',
    run: (bench) => ourClient(bench, { size: 65_535, flags: [...CRC, '--fpdu', '300'], says: /crc on/ }),
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'client',
    topic: 'rping',
    name: `64 octets, ${MANY} pings`,
    run: (bench) => ourClient(bench, { size: 64, count: MANY, flags: CRC, says: /crc on/ }),
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'server',
    topic: 'rping',
    name: `64 octets, ${MANY} pings`,
    run: (bench) => ourServer(bench, { size: 64, count: MANY, flags: CRC, says: /crc on/ }),
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'server',
    topic: 'rping',
    guestOnly: true,
    name: '4096 octets over IPv6',
    run: (bench) =>
      ourServer(bench, { size: 4096, flags: CRC, says: /crc on/ }, { bind: '::1', reach: 'fec0::2' }),
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'client',
    topic: 'rping',
    guestOnly: true,
    name: '4096 octets over IPv6',
    run: async (bench) => {
      // Nothing forwards IPv6 into the guest: both ends speak it to a relay beside them, and the relays speak
      // IPv4 to each other.
      await bench.listening(`nc -ll -p ${RELAY_PORT} -e nc fec0::15 ${STOCK_PORT}`, RELAY_PORT);
      const relay = await bench.relay6(bench.peer.reach(RELAY_PORT));
      return await ourClient(bench, { size: 4096, flags: CRC, says: /crc on/ }, '-a fec0::15', relay);
    },
  },
];

/** Clients of one server (`-P`) at the same time, and their pings. */
const CLIENTS = 4;
const EACH = 200;
const SHARED_SIZE = 4096;

/** The pings in this output, which are `count` and in order if all is well. */
function pingsIn(output: string, line: RegExp): number[] {
  return output.split('\n').flatMap((each) => {
    const match = line.exec(each);
    return match === null ? [] : [Number(match[1])];
  });
}

const CLIENT_LINE = /^ping data: rdma-ping-(\d+): /;
const SERVER_LINE = /^server ping data: rdma-ping-(\d+): /;
const IN_ORDER = Array.from({ length: EACH }, (_, n) => n).join();

/** Each ping of each client came to the server once. */
function checkServer(output: string): void {
  const seen = pingsIn(output, SERVER_LINE);
  check(seen.length === CLIENTS * EACH, `the server saw ${seen.length} pings of ${CLIENTS * EACH}`);
  for (let n = 0; n < EACH; n++) {
    const times = seen.filter((each) => each === n).length;
    check(times === CLIENTS, `the server saw ping ${n} ${times} times: ${output.slice(-300)}`);
  }
  const left = output.split('server DISCONNECT EVENT...').length - 1;
  check(left === CLIENTS, `the server saw ${left} clients leave: ${output.slice(-300)}`);
}

/** Wait until `output` shows that all clients have left, or patience has run out. */
async function allLeft(bench: Bench, output: () => string): Promise<void> {
  const until = Date.now() + bench.patience;
  while (output().split('server DISCONNECT EVENT...').length <= CLIENTS && Date.now() < until)
    await pause(50);
}

const PERSISTENT_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'server',
    topic: 'rping',
    name: `${SHARED_SIZE} octets, ${CLIENTS} clients of one server at once (-P)`,
    run: async (bench) => {
      const flags = ['-a', bench.peer.bindAddress, '-p', '0', '--pcap', bench.capture];
      const server = bench.start(['rping', '-s', '-P', '-v', ...flags]);
      const port = (await server.shows(/listening on port (\d+)/))[1]!;
      const clients = await Promise.all(
        Array.from({ length: CLIENTS }, () =>
          bench.stock(`rping -c -v -V -C ${EACH} -S ${SHARED_SIZE} -a ${bench.peer.hostAddress} -p ${port}`),
        ),
      );
      for (const { status, output } of clients) {
        check(status === 0, `stock client: exit status ${status}: ${output.slice(-300)}`);
        check(pingsIn(output, CLIENT_LINE).join() === IN_ORDER, `stock client: ${output.slice(-300)}`);
      }
      await allLeft(bench, () => server.stderr);
      checkServer(`${server.stdout}${server.stderr}`);
      check(server.child.exitCode === null, 'our server did not go on');
      return `${CLIENTS} clients, ${CLIENTS * EACH} pings verified`;
    },
  },
  {
    driver: 'stock',
    tool: 'rping',
    ours: 'client',
    topic: 'rping',
    name: `${SHARED_SIZE} octets, ${CLIENTS} clients of one server at once (-P)`,
    run: async (bench) => {
      const server = await bench.listening(`rping -s -P -v -S ${SHARED_SIZE} -p ${STOCK_PORT}`, STOCK_PORT);
      const { host, port } = bench.peer.reach(STOCK_PORT);
      const flags = ['-C', String(EACH), '-S', String(SHARED_SIZE), '-a', host, '-p', String(port)];
      // Each connects after the one before has pinged, and rests until all are there: of stock clients that
      // connect to a stock server in one moment, 2 of 40 failed.
      const running: ToolProcess[] = [];
      for (let i = 0; i < CLIENTS; i++) {
        const capture = i === 0 ? ['--pcap', bench.capture] : [];
        const client = bench.start(['rping', '-c', '-v', '-V', ...flags, ...capture]);
        await client.shows(/^ping data: /m);
        client.child.kill('SIGSTOP');
        running.push(client);
      }
      check(
        running.every(({ child }) => child.exitCode === null),
        'a client was over before all were there',
      );
      for (const { child } of running) child.kill('SIGCONT');
      const clients = await within(
        Promise.all(running.map(({ ended }) => ended)),
        bench.patience,
        () => `a client of ours goes on: ${running.map(({ stderr }) => stderr).join('')}`,
      );
      for (const { status, stdout, stderr } of clients) {
        check(status === 0, `our client: exit status ${status}: ${stderr}`);
        check(pingsIn(stdout, CLIENT_LINE).join() === IN_ORDER, `our client: ${stdout.slice(-300)}`);
      }
      await allLeft(bench, () => server.output);
      checkServer(server.output);
      return `${CLIENTS} clients, ${CLIENTS * EACH} pings verified`;
    },
  },
];

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1) ?? '';
}

export const RPING_CASES: readonly InteropCase[] = [
  ...clientCases('stock'),
  ...serverCases('stock', 'none'),
  ...MARKER_CASES,
  ...REJECT_CASES,
  ...SHAPE_CASES,
  ...PERSISTENT_CASES,
  ...clientCases('crc-required'),
  ...serverCases('crc-required', 'none'),
  ...serverCases('peer-to-peer', '(read|write)'),
];
