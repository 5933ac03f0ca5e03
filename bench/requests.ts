/**
 * Requests and replies beside ws and grpc-js, in one run:
 *
 *   npx tsx bench/requests.ts [--rounds N] [--ms N] [--cases 1x64,16x64,…] [--engine thread|worker]
 *       [--peers iwarp,ws,grpc-js] [--big] [--prof DIR]
 *
 * A case is a number of connections and the bytes of a request, whose reply has as many; 64 are under way.
 * Each peer has a process for its server and one for its client: neither the garbage nor the code of one
 * slows another. They take turns of `--ms` in each round, and begin with another one in each. Printed are
 * medians of requests a second with the least and the most, the ratio to iwarp of the same round as a median,
 * and processor time for a request, which other programs hardly change. The first round of each case is not
 * counted. `--big` measures a message of 64 MiB beside an RDMA Write and Read of the same bytes, and
 * nothing else. `--prof` writes CPU profiles of both sides.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpus, loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { connect, createServer } from '../src/index.ts';
import { median, ratios } from './stats.ts';
import { PEERS, type Order, type Peer, type Ran } from './request-sides.ts';

const HOST = '127.0.0.1';
const BIG = 64 << 20;
const UNDER = 64;
/** The first round is longer by this factor: code is compiled in it. */
const WARM_UP = 4;
const SIDES = fileURLToPath(new URL('request-sides.ts', import.meta.url));

interface Settings {
  readonly rounds: number;
  readonly ms: number;
  readonly engine: string;
  readonly prof: string | undefined;
}

/** The processes of one peer. */
class Pair {
  readonly peer: Peer;
  readonly #server: ChildProcess;
  readonly #client: ChildProcess;
  #port = 0;

  constructor(peer: Peer, { engine, prof }: Settings) {
    this.peer = peer;
    const execArgv = [
      '--import',
      'tsx',
      ...(prof === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${prof}`]),
    ];
    const side = (name: string): ChildProcess => fork(SIDES, [name, peer, engine], { execArgv });
    this.#server = side('serve');
    this.#client = side('ask');
  }

  async start(): Promise<this> {
    const [[port]] = await Promise.all([once(this.#server, 'message'), once(this.#client, 'message')]);
    this.#port = port as number;
    return this;
  }

  async #order(child: ChildProcess, order: Order): Promise<unknown> {
    const answered = once(child, 'message');
    child.send(order);
    return (await answered)[0] as unknown;
  }

  connect(clients: number, size: number): Promise<unknown> {
    return this.#order(this.#client, { do: 'connect', port: this.#port, clients, size });
  }

  disconnect(): Promise<unknown> {
    return this.#order(this.#client, { do: 'disconnect' });
  }

  #cpu(): Promise<number[]> {
    const cpu = (child: ChildProcess): Promise<unknown> => this.#order(child, { do: 'cpu' });
    return Promise.all([cpu(this.#client), cpu(this.#server)]) as Promise<number[]>;
  }

  /** Requests a second, and microseconds of processor time of client and server for each. */
  async run(ms: number): Promise<{ readonly rate: number; readonly cpu: readonly number[] }> {
    const before = await this.#cpu();
    const { count, took } = (await this.#order(this.#client, { do: 'run', ms, under: UNDER })) as Ran;
    const after = await this.#cpu();
    return { rate: (count * 1000) / took, cpu: after.map((all, i) => ((all - before[i]!) * 1000) / count) };
  }

  close(): void {
    this.#client.disconnect();
    this.#server.disconnect();
  }
}

/** The median, the least and the most. */
const spread = (values: readonly number[], digits: number): string => {
  const [middle, least, most] = [median(values), Math.min(...values), Math.max(...values)];
  return `${middle.toFixed(digits)} (${least.toFixed(digits)} to ${most.toFixed(digits)})`;
};

/** Measure one case; returns its rows of the table. */
async function compare(
  pairs: readonly Pair[],
  { rounds, ms }: Settings,
  clients: number,
  size: number,
): Promise<string[]> {
  await Promise.all(pairs.map((pair) => pair.connect(clients, size)));
  const seen = pairs.map(() => ({ rates: [] as number[], cpu: [[], []] as [number[], number[]] }));
  for (let round = 0; round <= rounds; round++) {
    for (let turn = 0; turn < pairs.length; turn++) {
      const at = (round + turn) % pairs.length;
      const { rate, cpu } = await pairs[at]!.run(round === 0 ? WARM_UP * ms : ms);
      if (round === 0) continue;
      seen[at]!.rates.push(rate);
      seen[at]!.cpu.forEach((all, side) => all.push(cpu[side]!));
    }
  }
  await Promise.all(pairs.map((pair) => pair.disconnect()));
  const ours = seen[pairs.findIndex(({ peer }) => peer === 'iwarp')];
  return pairs.map(({ peer }, i) => {
    const { rates, cpu } = seen[i]!;
    const toTheirs = ours === undefined ? [] : ratios(ours.rates, rates);
    const cells = [
      `${clients} x ${size} B`,
      peer,
      spread(rates, 0),
      ...cpu.map((all) => median(all).toFixed(1)),
    ];
    return `| ${[...cells, ours === undefined ? '–' : spread(toTheirs, 2)].join(' | ')} |`;
  });
}

/** Messages and operations of one turn. */
const TURN = 4;
const MEBI = 1 << 20;

async function big({ rounds, engine }: Settings): Promise<void> {
  const child = fork(fileURLToPath(import.meta.url), ['serve', engine], { execArgv: ['--import', 'tsx'] });
  const [port] = (await once(child, 'message')) as [number];
  const connection = await connect({ host: HOST, port, engine: engine as 'thread' });
  const ticket = await connection.lookup('big');
  const { bytes } = connection.allocate(BIG, 'none');
  const ways: Record<string, () => Promise<unknown>> = {
    message: () => connection.send(bytes),
    Write: () => connection.write(bytes, ticket),
    Read: () => connection.read(ticket, bytes),
    'Read into new memory': () => connection.read(ticket, connection.allocate(BIG, 'none').bytes),
  };
  const cpu = async (): Promise<number[]> => {
    const { user, system } = process.cpuUsage();
    return [user + system, Number(String(await connection.request('')))];
  };
  const seen = Object.entries(ways).map(([name, work]) => ({
    name,
    work,
    rates: [] as number[],
    cpu: [[], []] as [number[], number[]],
  }));
  for (let round = -1; round < rounds; round++) {
    for (const { work, rates, cpu: all } of seen) {
      // Not counted: the memory of messages is given back after some seconds without one.
      await work();
      const before = await cpu();
      const began = performance.now();
      for (let i = 0; i < TURN; i++) await work();
      await connection.rtt();
      const rate = (TURN * BIG) / MEBI / ((performance.now() - began) / 1000);
      const after = await cpu();
      if (round < 0) continue;
      rates.push(rate);
      all.forEach((side, i) => side.push((after[i]! - before[i]!) / 1000 / TURN));
    }
  }
  const { rates: writes } = seen.find(({ name }) => name === 'Write')!;
  process.stdout.write('| 64 MiB | MiB/s | to a Write | client ms | server ms |\n|---|---|---|---|---|\n');
  for (const { name, rates, cpu: all } of seen) {
    const cells = [
      name,
      spread(rates, 0),
      spread(ratios(rates, writes), 2),
      ...all.map((side) => spread(side, 1)),
    ];
    process.stdout.write(`| ${cells.join(' | ')} |\n`);
  }
  child.disconnect();
}

/** The other end of {@link big}: it replies to requests with its processor time. */
async function serveBig(engine: string): Promise<void> {
  const server = await createServer({ engine: engine as 'thread' }, async (connection) => {
    connection.publish('big', connection.allocate(BIG, 'all'));
    const used = (): Uint8Array => {
      const { user, system } = process.cpuUsage();
      return Buffer.from(String(user + system));
    };
    connection.serve(used).catch(() => undefined); // the connection has ended
    for await (const message of connection) message.release();
  }).listen({ host: HOST, port: 0 });
  process.on('disconnect', () => process.exit());
  process.send!(server.address().port);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '5' },
      ms: { type: 'string', default: '700' },
      cases: { type: 'string', default: '1x64,4x64,16x64,64x64,1x65536,16x65536,64x65536' },
      engine: { type: 'string', default: 'thread' },
      peers: { type: 'string', default: PEERS.join() },
      big: { type: 'boolean', default: false },
      prof: { type: 'string' },
    },
  });
  const { engine, prof } = values;
  const settings = { rounds: Number(values.rounds), ms: Number(values.ms), engine, prof };
  const load = loadavg()[0]!.toFixed(1);
  process.stdout.write(
    `${cpus().length} processors (${cpus()[0]!.model}), load ${load}, Node ${process.version}\n`,
  );
  if (values.big) {
    await big(settings);
    return;
  }
  const wanted = PEERS.filter((peer) => values.peers.split(',').includes(peer));
  const pairs = await Promise.all(wanted.map((peer) => new Pair(peer, settings).start()));
  process.stdout.write(
    '| case | peer | requests/s | client us | server us | iwarp is |\n|---|---|---|---|---|---|\n',
  );
  for (const one of values.cases.split(',')) {
    const [clients, size] = one.split('x').map(Number) as [number, number];
    process.stdout.write(`${(await compare(pairs, settings, clients, size)).join('\n')}\n`);
  }
  for (const pair of pairs) pair.close();
}

if (process.argv[2] === 'serve') await serveBig(process.argv[3]!);
else {
  await main();
  process.exit(0);
}
