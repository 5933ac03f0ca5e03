/**
 * One side of each tool is killed in the middle. Ours, as survivor, says so and ends within its time. The
 * stock one ends too, but for those that never look: write_lat and riostream watch memory only, and rstream
 * takes the 0 of rrecv(), the end of the stream, for "try again", since errno still says so from the call
 * before; rdma_server sleeps on a completion of which it never hears. There the peer's queue pair is seen to
 * have left RTS. Whichever side survives, nothing is left of either in the peer's kernel.
 */
import { readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  check,
  pause,
  within,
  type Bench,
  type InteropCase,
  type PeerProcess,
  type ToolProcess,
} from './bench.ts';
import { ROLES, type Role } from './pairs.ts';
import { CM_PORT, NO_CRC } from './tools-cases.ts';

/** Command lines that would run for a minute or more, or wait for ever. */
interface Endless {
  readonly tool: string;
  readonly port: number;
  readonly ours: { server(port: number): string[]; client(host: string, port: number): string[] };
  readonly stock: { server(port: number): string; client(host: string, port: number): string };
  /** Octets of capture that show it under way. */
  readonly underWay?: number;
  /** Roles of the stock side in which it never looks for the end of its connection. */
  readonly blind?: readonly Role[];
  /** A server survives its client, and serves the next. */
  readonly serves?: boolean;
  /** A departure that our server takes for the normal end. */
  readonly content?: boolean;
  /** The stock side is stopped before it is killed, so that it answers nothing. */
  readonly stopped?: string;
  /** The one of the four cases that this is for; all by default. */
  readonly only?: { readonly ours: Role; readonly victim: Victim };
}

type Victim = 'ours' | 'stock';

/**
 * How long a survivor may take on an idle machine: the kernel closes the connection of a killed process at
 * once.
 */
const SURVIVOR_MS = 20_000;
const UNDER_WAY = 50_000;
/** A connection that is there: TCP's set-up, a Request and a Reply. The Request alone. */
const CONNECTED = 400;
const REQUESTED = 250;
const COPY_OCTETS = 400_000_000;

/** A file of this length without octets; the peer's octets go into one beside it. */
const SPARSE = join(tmpdir(), `iwarp-leave-${process.pid}`);

async function withSparse<T>(task: () => Promise<T>): Promise<T> {
  writeFileSync(SPARSE, '');
  truncateSync(SPARSE, COPY_OCTETS);
  try {
    return await task();
  } finally {
    rmSync(SPARSE, { force: true });
    rmSync(`${SPARSE}.in`, { force: true });
  }
}

function perftest(program: string, blind: readonly Role[] = []): Endless {
  const ours = [program, '-R', '-D', '60', ...NO_CRC];
  const stock = `ib_${program} -R -D 60`;
  return {
    tool: program,
    port: 18_515,
    blind,
    ours: {
      server: (port) => [...ours, '-p', String(port)],
      client: (host, port) => [...ours, '-p', String(port), host],
    },
    stock: { server: (port) => `${stock} -p ${port}`, client: (host, port) => `${stock} -p ${port} ${host}` },
  };
}

/** Tools that take `-s HOST -p PORT`. */
function small(tool: string, flags: string, more: Partial<Endless> = {}): Endless {
  const words = flags.split(' ');
  return {
    tool,
    port: CM_PORT,
    ours: {
      server: (port) => [tool, '-p', String(port), ...words, ...NO_CRC],
      client: (host, port) => [tool, '-s', host, '-p', String(port), ...words, ...NO_CRC],
    },
    stock: {
      server: (port) => `${tool} -p ${port} ${flags}`,
      client: (host, port) => `${tool} -s ${host} -p ${port} ${flags}`,
    },
    ...more,
  };
}

const ENDLESS: readonly Endless[] = [
  {
    tool: 'rping',
    port: 7174,
    content: true,
    ours: {
      server: (port) => ['rping', '-s', '-v', '-p', String(port)],
      client: (host, port) => ['rping', '-c', '-v', '-a', host, '-p', String(port)],
    },
    stock: {
      server: (port) => `rping -s -v -p ${port}`,
      client: (host, port) => `rping -c -v -a ${host} -p ${port}`,
    },
  },
  small('ucmatose', '-C 16000 -S 100000'),
  perftest('write_bw'),
  perftest('read_bw'),
  perftest('send_bw'),
  perftest('write_lat', ROLES),
  perftest('read_lat'),
  perftest('send_lat'),
  small('rstream', '-S 64 -C 1 -I 1000000', { blind: ROLES }),
  small('riostream', '-S 64 -C 1 -I 1000000', { blind: ROLES }),
];

/**
 * rdma_client and rdma_server are over at once: the one to be killed is replaced by a tool that waits there,
 * or is stopped.
 */
const SMALLEST: readonly Endless[] = [
  {
    ...small('rdma_client', ''),
    only: { ours: 'client', victim: 'stock' },
    underWay: REQUESTED,
    stopped: 'rdma_server',
    stock: { server: (port) => `rdma_server -p ${port}`, client: () => '' },
    ours: { server: () => [], client: (host, port) => ['rdma_client', '-s', host, '-p', String(port)] },
  },
  {
    ...small('rdma_server', ''),
    only: { ours: 'server', victim: 'stock' },
    underWay: CONNECTED,
    stock: { server: () => '', client: (host, port) => `ucmatose -s ${host} -p ${port} -C 1 -S 16` },
    ours: { server: (port) => ['rdma_server', '-p', String(port)], client: () => [] },
  },
  {
    ...small('rdma_server', ''),
    only: { ours: 'client', victim: 'ours' },
    underWay: CONNECTED,
    blind: ['server'],
    stock: { server: (port) => `rdma_server -p ${port}`, client: () => '' },
    ours: {
      server: () => [],
      client: (host, port) => ['ucmatose', '-s', host, '-p', String(port), '-C', '1', '-S', '16'],
    },
  },
];

/** A copy of a file with nothing in it, from here to nowhere or from there. */
const COPY: Endless = {
  tool: 'rcopy',
  port: 7427,
  serves: true,
  // In the middle of a transfer it now and then goes on for ever, its queue pair in RESET or ERR.
  blind: ['client'],
  ours: {
    server: (port) => ['rcopy', '--dir', '/', '-p', String(port), ...NO_CRC],
    client: (host, port) => ['rcopy', SPARSE, `${host}:/tmp/leave.in`, '-p', String(port), ...NO_CRC],
  },
  stock: {
    server: (port) => `rcopy -p ${port}`,
    client: (host, port) =>
      `truncate -s ${COPY_OCTETS} /tmp/leave.out; exec rcopy /tmp/leave.out ${host}:${SPARSE}.in -p ${port}`,
  },
};

async function leave(bench: Bench, pair: Endless, ours: Role, victim: Victim): Promise<string> {
  const before = await resources(bench);
  const { tool, stock, port } = await start(bench, pair, ours);
  await bench.captured(pair.underWay ?? UNDER_WAY);
  check(tool.child.exitCode === null, `our side ended too early: ${tool.stdout.slice(-300)}${tool.stderr}`);
  const limit = SURVIVOR_MS * bench.peer.slowness;
  const began = performance.now();
  const took = (): string => `${Math.round(performance.now() - began)} ms`;
  let seen: string;
  if (victim === 'ours') {
    tool.child.kill('SIGKILL');
    seen = await stockSurvives(bench, pair, ours, stock, limit);
  } else {
    await stock.kill();
    if (pair.serves === true && ours === 'server') return await serveNext(bench, tool, port);
    const { status, stdout, stderr } = await within(
      tool.ended,
      limit,
      () => `our side goes on: ${tool.stdout.slice(-300)}${tool.stderr}`,
    );
    const content = pair.content === true && ours === 'server';
    check(
      (status !== 0 || content) && stderr.trim() !== '',
      `our side: status ${status}: ${stdout.slice(-300)}${stderr}`,
    );
    seen = `ours reports it after ${took()}: ${lastLine(stderr)}`;
  }
  await resourcesBack(bench, before);
  return seen;
}

/** The stock side ends; or, where it never looks, its queue pair does. */
async function stockSurvives(
  bench: Bench,
  pair: Endless,
  ours: Role,
  stock: PeerProcess,
  limit: number,
): Promise<string> {
  const began = performance.now();
  const took = (): string => `${Math.round(performance.now() - began)} ms`;
  const blind =
    pair.blind?.includes(ours === 'client' ? 'server' : 'client') === true ||
    (pair.serves === true && ours === 'client');
  if (!blind) {
    const { status, output } = await within(
      stock.ended,
      limit,
      () => `the stock side goes on: ${stock.output.slice(-300)}`,
    );
    return `stock ends after ${took()} with status ${status}: ${lastLine(output)}`;
  }
  const until = Date.now() + limit;
  for (;;) {
    const { output } = await bench.stock('rdma resource show qp');
    if (!/state RTS/.test(output)) break;
    check(Date.now() < until, `the peer's queue pair stays as it was: ${output}`);
    await pause(200);
  }
  await stock.kill();
  return `the stock queue pair has left RTS after ${took()}`;
}

/** Our server of rcopy takes the next copy. */
async function serveNext(bench: Bench, tool: ToolProcess, port: number): Promise<string> {
  const { status, output } = await bench.stock(
    'rm -f /tmp/leave.out; echo next > /tmp/next; rcopy /tmp/next ' +
      `${bench.peer.hostAddress}:${SPARSE}.in -p ${port}`,
  );
  check(
    status === 0,
    `the next copy: status ${status}: ${output}; our server: ${tool.stdout.slice(-300)}${tool.stderr}`,
  );
  check(readFileSync(`${SPARSE}.in`, 'utf8') === 'next\n', 'the next copy differs from the sent one');
  return `ours reports it, and takes the next copy: ${lastLine(tool.stderr)}`;
}

async function start(
  bench: Bench,
  pair: Endless,
  ours: Role,
): Promise<{ tool: ToolProcess; stock: PeerProcess; port: number }> {
  if (ours === 'client') {
    const stock = await bench.listening(pair.stock.server(pair.port), pair.port);
    if (pair.stopped !== undefined) await bench.stock(`pkill -STOP -x ${pair.stopped}`);
    const { host, port } = bench.peer.reach(pair.port);
    return { stock, tool: bench.start([...pair.ours.client(host, port), '--pcap', bench.capture]), port };
  }
  const port = await bench.freePort();
  const tool = await bench.startListening([...pair.ours.server(port), '--pcap', bench.capture], port);
  return { tool, stock: bench.remote(pair.stock.client(bench.peer.hostAddress, port)), port };
}

/**
 * The objects that the peer's kernel holds: queue pairs, completion queues, domains, regions, connection
 * identifiers.
 */
async function resources(bench: Bench): Promise<string> {
  const { output } = await bench.stock('rdma resource');
  return output.trim();
}

async function resourcesBack(bench: Bench, before: string): Promise<void> {
  const until = Date.now() + SURVIVOR_MS * bench.peer.slowness;
  let now = '';
  while (Date.now() < until) {
    now = await resources(bench);
    if (now === before) return;
    await pause(200);
  }
  throw new Error(`the peer's kernel holds ${now}, before it was ${before}`);
}

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1)!.trim();
}

const CASES: readonly InteropCase[] = [...ENDLESS, ...SMALLEST, COPY].flatMap((pair) =>
  ROLES.flatMap((ours) =>
    (['stock', 'ours'] as const)
      .filter((victim) => pair.only === undefined || (pair.only.ours === ours && pair.only.victim === victim))
      .map(
        (victim): InteropCase => ({
          driver: 'stock',
          tool: pair.tool,
          name: victim === 'stock' ? 'and the stock side is killed' : 'and our side is killed',
          ours,
          topic: 'killed',
          run: (bench) => withSparse(() => leave(bench, pair, ours, victim)),
        }),
      ),
  ),
);

/** All of these, in the order of the table. */
export const LEAVE_CASES: readonly InteropCase[] = CASES;
