/**
 * rping against rping: our client with the stock server, the stock client with our server; sizes, CRC,
 * peer-to-peer, set-up variants.
 */
import { check, within, type Bench, type DriverName, type InteropCase } from './bench.ts';

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

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1) ?? '';
}

export const RPING_CASES: readonly InteropCase[] = [
  ...clientCases('stock'),
  ...serverCases('stock', 'none'),
  ...MARKER_CASES,
  ...REJECT_CASES,
  ...SHAPE_CASES,
  ...clientCases('crc-required'),
  ...serverCases('crc-required', 'none'),
  ...serverCases('peer-to-peer', '(read|write)'),
];
