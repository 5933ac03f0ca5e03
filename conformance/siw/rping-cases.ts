/**
 * rping against rping: our client with the stock server, the stock client with our server; sizes, CRC, peer-to-peer, set-up variants.
 */
import { check, type Bench, type DriverName, type InteropCase } from './bench.ts';

const SIZES = [23, 64, 4096, 65_535];
const COUNT = 100;
/** The stock server's port on the peer; each case uses its own server, so that none inherits another's state. */
export const STOCK_PORT = 7174;

interface ClientVariant {
  readonly name: string;
  readonly flags: readonly string[];
  /** What the client's `-d` line must say. */
  readonly says: RegExp;
}

const CLIENT_VARIANTS: readonly ClientVariant[] = [
  { name: 'crc on', flags: ['--crc', 'required'], says: /crc on .* rtr write/ },
  { name: 'crc off', flags: ['--crc', 'off'], says: /crc off .* rtr write/ },
  { name: 'crc on, no peer-to-peer', flags: ['--crc', 'required', '--no-peer-to-peer'], says: /crc on .* rtr none/ },
  { name: 'crc off, no peer-to-peer', flags: ['--crc', 'off', '--no-peer-to-peer'], says: /crc off .* rtr none/ },
];

/** Our client, stock server. */
async function ourClient(bench: Bench, size: number, flags: readonly string[], says: RegExp): Promise<string> {
  const server = await bench.listening(`rping -s -v -S ${size} -C ${COUNT} -p ${STOCK_PORT}`, STOCK_PORT);
  const { host, port } = bench.peer.reach(STOCK_PORT);
  const begin = performance.now();
  const result = await bench.iwarp(
    'rping', '-c', '-d', '-v', '-V', '-C', String(COUNT), '-S', String(size), '-a', host, '-p', String(port), '--pcap', bench.capture, ...flags,
  );
  check(result.status === 0, `exit status ${result.status}: ${result.stderr}`);
  check(says.test(result.stderr), `expected ${says}: ${result.stderr.split('\n')[0]}`);
  const pings = result.stdout.split('\n').filter((line) => line.startsWith('ping data: rdma-ping-')).length;
  check(pings === COUNT, `${pings} pings of ${COUNT}`);
  const took = performance.now() - begin;
  const { output } = await server.ended;
  const seen = output.split('\n').filter((line) => line.startsWith('server ping data: rdma-ping-')).length;
  check(seen === COUNT, `the server saw ${seen} pings of ${COUNT}: ${output.slice(-300)}`);
  return `${COUNT} pings verified in ${(took / 1000).toFixed(1)} s`;
}

/** Stock client, our server. */
async function ourServer(bench: Bench, size: number, flags: readonly string[], says: RegExp, address?: { bind: string; reach: string }): Promise<string> {
  const server = bench.start([
    'rping', '-s', '-d', '-v', '-a', address?.bind ?? bench.peer.bindAddress, '-p', '0', '--pcap', bench.capture, ...flags,
  ]);
  const port = (await server.shows(/listening on port (\d+)/))[1]!;
  const begin = performance.now();
  const client = await bench.stock(`rping -c -v -V -C ${COUNT} -S ${size} -a ${address?.reach ?? bench.peer.hostAddress} -p ${port}`);
  check(client.status === 0, `stock client: exit status ${client.status}: ${client.output.slice(-300)}`);
  const pings = client.output.split('\n').filter((line) => line.startsWith('ping data: rdma-ping-')).length;
  check(pings === COUNT, `${pings} pings of ${COUNT}`);
  const took = performance.now() - begin;
  const result = await server.ended;
  check(result.status === 0, `our server: exit status ${result.status}: ${result.stderr.slice(-300)}`);
  check(says.test(result.stderr), `expected ${says}: ${result.stderr.split('\n').slice(0, 3).join(' | ')}`);
  return `${COUNT} pings verified in ${(took / 1000).toFixed(1)} s`;
}

function clientCases(driver: DriverName): InteropCase[] {
  return SIZES.flatMap((size) =>
    CLIENT_VARIANTS.map((variant) => ({
      driver,
      group: 'our rping -c, stock rping -s',
      name: `${size} octets, ${variant.name}`,
      run: (bench: Bench) => ourClient(bench, size, variant.flags, variant.says),
    })),
  );
}

function serverCases(driver: DriverName, rtr: string): InteropCase[] {
  return SIZES.flatMap((size) =>
    ([['crc on', 'required', 'on'], ['crc off', 'off', 'off']] as const).map(([name, flag, word]) => ({
      driver,
      group: 'stock rping -c, our rping -s',
      name: `${size} octets, ${name}`,
      // A driver built to require CRC asks for it itself.
      run: (bench: Bench) => ourServer(bench, size, ['--crc', flag], new RegExp(`crc ${driver === 'crc-required' ? 'on' : word} .* rtr ${rtr}`)),
    })),
  );
}

const MARKER_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    group: 'set-up',
    name: 'our client asks for markers: siw rejects, and we say so',
    run: async (bench) => {
      await bench.listening(`rping -s -P -p ${STOCK_PORT}`, STOCK_PORT);
      const { host, port } = bench.peer.reach(STOCK_PORT);
      const result = await bench.iwarp('rping', '-c', '-C', '1', '--markers', '-a', host, '-p', String(port), '--pcap', bench.capture);
      check(result.status === 1, `exit status ${result.status}`);
      check(/rejected the connection.*markers/.test(result.stderr), result.stderr);
      // The server goes on serving others.
      const again = await bench.iwarp('rping', '-c', '-V', '-C', '3', '-a', host, '-p', String(port));
      check(again.status === 0, `a plain client afterwards: ${again.stderr}`);
      return 'rejected, told in words; the next client is served';
    },
  },
  {
    driver: 'stock',
    group: 'set-up',
    name: 'our server asks for markers: siw refuses the Reply, and we say so',
    run: async (bench) => {
      const server = bench.start(['rping', '-s', '-d', '-a', bench.peer.bindAddress, '-p', '0', '--markers', '--pcap', bench.capture]);
      const port = (await server.shows(/listening on port (\d+)/))[1]!;
      const client = await bench.stock(`rping -c -C 1 -a ${bench.peer.hostAddress} -p ${port}`);
      check(client.status !== 0, 'the stock client went through');
      const result = await server.ended;
      check(result.status === 1 || /DISCONNECT/.test(result.stderr), `our server: ${result.status} ${result.stderr}`);
      return `stock client: ${lastLine(client.output)}`;
    },
  },
];

const REJECT_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    group: 'set-up',
    name: 'our server rejects the stock client',
    run: async (bench) => {
      const { createServer, RejectedError } = await import('../../src/index.ts');
      const server = await createServer({
        credits: false,
        onRequest: () => {
          throw new RejectedError('not today', new TextEncoder().encode('no'));
        },
      }).listen({ host: bench.peer.bindAddress, port: 0 });
      try {
        const client = await bench.stock(`rping -c -C 1 -a ${bench.peer.hostAddress} -p ${server.address.port}`);
        check(client.status !== 0, 'the stock client went through');
        check(/REJECTED/.test(client.output), client.output);
        return `stock client: ${client.output.split('\n').find((line) => line.includes('REJECTED'))?.trim()}`;
      } finally {
        await server.close();
      }
    },
  },
  {
    driver: 'stock',
    group: 'set-up',
    name: 'nobody listens on the peer: we say so within the time-out',
    run: async (bench) => {
      const { host, port } = bench.peer.reach(STOCK_PORT);
      const result = await bench.iwarp('rping', '-c', '-C', '1', '-a', host, '-p', String(port));
      check(result.status === 1, `exit status ${result.status}`);
      check(result.stderr.startsWith('rping: '), result.stderr);
      return result.stderr.trim();
    },
  },
];

const SHAPE_CASES: readonly InteropCase[] = [
  {
    driver: 'stock',
    group: 'set-up',
    name: 'small FPDUs (300 octets), 65535 octets',
    run: (bench) => ourClient(bench, 65_535, ['--crc', 'required', '--fpdu', '300'], /crc on/),
  },
  {
    driver: 'stock',
    group: 'set-up',
    name: 'IPv6, stock rping -c, our rping -s',
    run: (bench) => ourServer(bench, 4096, ['--crc', 'required'], /crc on/, { bind: '::1', reach: 'fec0::2' }),
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
