/**
 * iWARP over UDP between two network namespaces, over a link that loses, repeats, delays and reorders:
 * `npx tsx scripts/netem-trp.ts`, or with a part of "NETWORK, ENGINE" for those alone. The link is a veth
 * pair with `tc netem`, or where the kernel has no netem two TUN devices with lossy-link.py between them.
 * Real sockets and the system's own IP; every message, Write and Read is checked, with both engines, to each
 * address of a server that listens at all of them.
 *
 * It needs root. Where namespaces cannot be had it says so, and ends with status 77.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { openRnic, type EngineKind, type Rnic } from '../src/api/environment.ts';
import { connect, createServer, RemoteBuffer } from '../src/index.ts';
import { seededRandom } from '../src/base/random.ts';
import type { TrpOptions } from '../src/trp/profile.ts';
import { notRun, report, sums } from './judge.ts';

const SELF = fileURLToPath(import.meta.url);
const LINK = fileURLToPath(new URL('lossy-link.py', import.meta.url));
const SPACES = [`iwarp-a-${process.pid}`, `iwarp-b-${process.pid}`] as const;
const DEVICES = ['iw0', 'iw1'] as const;
const OWN = [
  ['10.77.0.1/24', 'fd77::1/64'],
  ['10.77.0.2/24', '10.77.0.3/24', 'fd77::2/64', 'fd77::3/64'],
] as const;
/** The server's addresses: routing prefers the first of each kind. */
const SERVER_ADDRESSES = OWN[1].map((one) => one.split('/')[0]!);
const RUN_MS = 90_000;
const SENDS = 60;
const LONGEST_SEND = 3_000;

interface Network {
  readonly name: string;
  /** Percent. */
  readonly loss?: number;
  readonly duplicate?: number;
  readonly reorder?: number;
  /** Milliseconds. */
  readonly delay?: number;
  /** Bytes of the region that is written and read. */
  readonly octets: number;
  readonly options?: TrpOptions;
}

const MIB = 1 << 20;
const ORDERED = { receiver: 'ordered' } as const;
const NETWORKS: readonly Network[] = [
  { name: 'no fault', octets: MIB },
  { name: '0.1 % loss', loss: 0.1, delay: 1, octets: MIB },
  { name: '1 % loss', loss: 1, delay: 1, octets: MIB },
  { name: '1 % loss, profile urdma', loss: 1, octets: 65_536, options: { profile: 'urdma' } },
  { name: '5 % loss, Reads placed', loss: 5, delay: 2, octets: 262_144, options: { reads: 'placed' } },
  { name: '30 % loss', loss: 30, delay: 1, octets: 32_768 },
  { name: '5 % twice', duplicate: 5, delay: 1, octets: MIB },
  { name: '25 % reordered', reorder: 25, delay: 3, octets: MIB },
  { name: 'ordered receiver', loss: 2, reorder: 5, delay: 2, octets: MIB, options: ORDERED },
  { name: 'all of it', loss: 5, duplicate: 5, reorder: 10, delay: 5, octets: 262_144 },
];

// ------------------------------------------------------------------------------------ the two programs

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

/** Answers each message with its hash, and the empty message with the hash of the region. */
async function serve(rnic: Rnic, octets: number, connections: number): Promise<void> {
  let left = connections;
  let over = (): void => undefined;
  const finished = new Promise<void>((resolve) => (over = resolve));
  const server = await createServer({ rnic }, async (connection) => {
    const region = connection.allocate(octets, 'read-write');
    await connection.send(connection.share(region).toBytes());
    for await (const message of connection)
      await connection.send(sha256(message.data.length === 0 ? region.bytes : message.data));
    if (--left === 0) over();
  }).listen({ port: 0 });
  console.log(server.address().port);
  await finished;
  await server.close();
}

async function exchange(rnic: Rnic, host: string, port: number, octets: number): Promise<void> {
  const draw = seededRandom(port);
  const connection = await connect({ rnic, host, port });
  const next = async (): Promise<Buffer> => {
    const message = await connection.receive();
    if (message === null) throw new Error('the server has ended early');
    const bytes = Buffer.from(message.data);
    message.release();
    return bytes;
  };
  const check = (what: string, got: Uint8Array, wanted: Uint8Array): void => {
    if (Buffer.compare(got, wanted) !== 0) throw new Error(`${host}: ${what} has arrived otherwise`);
  };
  const ticket = RemoteBuffer.fromBytes(await next());
  const messages = Array.from({ length: SENDS }, () =>
    Uint8Array.from({ length: 1 + (draw() % LONGEST_SEND) }, () => draw()),
  );
  const sent = Promise.all(messages.map((message) => connection.send(message)));
  for (const [i, message] of messages.entries()) check(`message ${i}`, await next(), sha256(message));
  await sent;
  const source = connection.allocate(octets, 'none');
  for (let i = 0; i < octets; i++) source.bytes[i] = draw();
  await connection.write(source, ticket);
  await connection.send(new Uint8Array(0));
  check('the Write', await next(), sha256(source.bytes));
  const back = connection.allocate(octets, 'none');
  await connection.read(ticket, back);
  check('the Read', back.bytes, source.bytes);
  await connection.close();
}

async function program(role: string, text: string): Promise<void> {
  const { engine, options, octets, hosts, port } = JSON.parse(text) as {
    readonly engine: EngineKind;
    readonly options: TrpOptions;
    readonly octets: number;
    readonly hosts: readonly string[];
    readonly port: number;
  };
  const rnic = openRnic({ wire: 'trp', engine, trp: options });
  if (role === 'server') await serve(rnic, octets, hosts.length);
  else for (const host of hosts) await exchange(rnic, host, port, octets);
}

// -------------------------------------------------------------------------------------- the namespaces

function sh(...words: readonly string[]): string {
  const [program, ...args] = words;
  return execFileSync(program!, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** The last line of why a command has failed. */
function reasonOf(error: unknown): string {
  const said = (error as { readonly stderr?: string }).stderr ?? String(error);
  return said.trim().split('\n').at(-1)!;
}

/** Null, or why there are no namespaces. */
function openSpaces(): string | null {
  try {
    for (const space of SPACES) {
      sh('ip', 'netns', 'add', space);
      sh('ip', '-n', space, 'link', 'set', 'lo', 'up');
    }
    return null;
  } catch (error) {
    return reasonOf(error);
  }
}

function closeSpaces(): void {
  for (const space of SPACES) {
    try {
      sh('ip', 'netns', 'delete', space);
    } catch {
      // It was never made.
    }
  }
}

function addresses(side: 0 | 1): void {
  for (const address of OWN[side]) {
    const six = address.includes(':') ? ['nodad'] : [];
    sh('ip', '-n', SPACES[side], 'address', 'add', address, 'dev', DEVICES[side], ...six);
  }
  sh('ip', '-n', SPACES[side], 'link', 'set', DEVICES[side], 'up');
}

/** A link with its faults; `close` takes it away and returns the packets that it has lost, repeated, … */
interface Link {
  close(): Promise<string>;
}

function vethLink(): void {
  const [a, b] = DEVICES;
  sh('ip', '-n', SPACES[0], 'link', 'add', a, 'type', 'veth', 'peer', 'name', b, 'netns', SPACES[1]);
}

/** True if this kernel has netem. */
function hasNetem(): boolean {
  vethLink();
  try {
    sh('tc', '-n', SPACES[0], 'qdisc', 'add', 'dev', DEVICES[0], 'root', 'netem', 'loss', '1%');
    return true;
  } catch {
    return false;
  } finally {
    sh('ip', '-n', SPACES[0], 'link', 'delete', DEVICES[0]);
  }
}

function netemLink({ loss = 0, duplicate = 0, reorder = 0, delay = 0 }: Network): Link {
  vethLink();
  const faults = [
    ...(delay > 0 ? ['delay', `${delay}ms`] : []),
    ...(loss > 0 ? ['loss', `${loss}%`] : []),
    ...(duplicate > 0 ? ['duplicate', `${duplicate}%`] : []),
    ...(reorder > 0 ? ['reorder', `${reorder}%`] : []),
  ];
  for (const side of [0, 1] as const) {
    addresses(side);
    const device = ['dev', DEVICES[side], 'root', 'netem', 'limit', '10000'];
    sh('tc', '-n', SPACES[side], 'qdisc', 'add', ...device, ...faults);
  }
  return {
    close: async () => {
      const said = SPACES.map((space, side) =>
        sh('tc', '-n', space, '-s', 'qdisc', 'show', 'dev', DEVICES[side]!),
      );
      sh('ip', '-n', SPACES[0], 'link', 'delete', DEVICES[0]);
      return said.map((text) => /Sent.*/.exec(text)?.[0] ?? '').join(' ');
    },
  };
}

async function tunLink({ loss = 0, duplicate = 0, reorder = 0, delay = 0 }: Network): Promise<Link> {
  const shares = [loss, duplicate, reorder, delay].map(String);
  const link = spawn('python3', [LINK, ...DEVICES, ...shares, '1'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: link.stdout })[Symbol.asyncIterator]();
  await lines.next();
  for (const side of [0, 1] as const) {
    sh('ip', 'link', 'set', DEVICES[side], 'netns', SPACES[side]);
    addresses(side);
  }
  return {
    close: async () => {
      link.stdin.end();
      const { value } = await lines.next();
      return String(value);
    },
  };
}

// ------------------------------------------------------------------------------------------------ the course

function start(space: string, role: string, settings: object): ChildProcess {
  const args = [
    'netns',
    'exec',
    space,
    process.execPath,
    ...process.execArgv,
    SELF,
    role,
    JSON.stringify(settings),
  ];
  return spawn('ip', args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

/** The exit status, and everything that the process has said. */
function heard(child: ChildProcess): {
  readonly said: () => string;
  readonly status: Promise<number | null>;
} {
  let text = '';
  for (const stream of [child.stdout!, child.stderr!])
    stream.on('data', (data: Buffer) => (text += String(data)));
  const status = once(child, 'close').then(([code]) => code as number | null);
  return { said: () => text, status };
}

async function run(network: Network, engine: EngineKind, open: (network: Network) => Link | Promise<Link>) {
  const { name, octets, options = {} } = network;
  const link = await open(network);
  const hosts = network.loss === 30 ? SERVER_ADDRESSES.slice(1, 3) : SERVER_ADDRESSES;
  const settings = { engine, options, octets, hosts };
  const server = start(SPACES[1], 'server', settings);
  const servers = heard(server);
  const [line] = (await Promise.race([once(server.stdout!, 'data'), servers.status.then(() => ['0'])])) as [
    Buffer,
  ];
  const began = performance.now();
  const client = start(SPACES[0], 'client', { ...settings, port: Number(line.toString()) });
  const clients = heard(client);
  const late = setTimeout(() => [client, server].forEach((child) => child.kill('SIGKILL')), RUN_MS);
  const statuses = [await clients.status, await servers.status];
  clearTimeout(late);
  const took = ((performance.now() - began) / 1000).toFixed(1);
  const counts = await link.close();
  const title = `${name}, engine ${engine}: ${hosts.length} connections in ${took} s; ${counts}`;
  const fine = statuses.every((status) => status === 0);
  report(title, fine, `ended with ${statuses.join(' and ')}: ${clients.said()}${servers.said()}`);
}

async function judge(only: string): Promise<number> {
  const refusal = openSpaces();
  try {
    if (refusal !== null) {
      closeSpaces();
      notRun(`network namespaces cannot be made here (${refusal})`);
    }
    const netem = hasNetem();
    console.log(
      netem ? 'the link is a veth pair with tc netem' : 'no netem in this kernel: the link is lossy-link.py',
    );
    const open = netem ? netemLink : tunLink;
    for (const network of NETWORKS)
      for (const engine of ['thread', 'worker'] as const)
        if (`${network.name}, ${engine}`.includes(only)) await run(network, engine, open);
    return sums();
  } finally {
    closeSpaces();
  }
}

const [role, settings] = process.argv.slice(2);
if (role !== undefined && settings !== undefined) await program(role, settings);
else process.exitCode = await judge(role ?? '');
