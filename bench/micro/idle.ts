/**
 * What an idle connection costs: resident memory of a server process for each of many connections, after each has received some octets and
 * fallen silent; bare sockets with 'data' events, and with one read buffer for all, beside the stack, each in a process of its own.
 *
 * Two figures each, from a process each, a full collection before every look: right after the last octet, and with seconds of silence before
 * both looks. V8 lets its young generation grow
 * while much survives, as when a thousand connections come at once, and gives the room back only in a collection that finds little allocated
 * in the last seconds. A third one is the JavaScript heap alone.
 *
 * Run compiled, with plain node: `node --expose-gc dist/bench/micro/idle.js [connections] [rounds]`.
 */
import { fork } from 'node:child_process';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openRnic } from '../../src/api/environment.ts';
import { adopt } from '../../src/transport/adopt.ts';
import { ACCESS, type QueuePair } from '../../src/verbs/index.ts';
import { median } from '../stats.ts';

const OCTETS = 70_000;
/** V8 looks at the allocations of the last five seconds. */
const SILENCE_MS = 7000;
const KINDS = ['data', 'bare, shared read buffer', 'stack, shared receive queue', 'stack, own receive queue'] as const;
type Kind = (typeof KINDS)[number];

const collect = (globalThis as unknown as { gc?: () => void }).gc;

type Moment = 'after' | 'silent';

interface Memory {
  readonly resident: number;
  /** JavaScript heap in use. */
  readonly heap: number;
}

function resident(): number {
  collect?.();
  collect?.();
  return process.memoryUsage().rss;
}

/** What `run` leaves behind, by the connection; for `silent` the process has been silent before both looks. */
async function grown(count: number, moment: Moment, run: () => Promise<unknown>): Promise<Memory> {
  const silence = moment === 'silent' ? SILENCE_MS : 0;
  await sleep(silence);
  const before = resident();
  const { heapUsed } = process.memoryUsage();
  const held = await run();
  await sleep(silence);
  const after = resident();
  if (held === undefined) throw new Error('nothing is held');
  return { resident: (after - before) / count, heap: (process.memoryUsage().heapUsed - heapUsed) / count };
}

/** Bare sockets: `OCTETS` from each client, read by 'data' events or into one buffer. */
async function bare(count: number, kind: Kind, moment: Moment): Promise<Memory> {
  let got = 0;
  let all = (): void => undefined;
  const held: Socket[] = [];
  const buffer = new Uint8Array(65_536);
  const take = (octets: number): boolean => {
    got += octets;
    if (got === count * OCTETS) all();
    return true;
  };
  const shared = kind !== 'data';
  const server = createServer({ noDelay: true, pauseOnConnect: shared }, (accepted) => {
    const socket = shared ? adopt(accepted, { buffer: () => buffer, callback: take }).socket : accepted;
    held.push(socket);
    if (shared) socket.resume();
    else socket.on('data', (chunk: Uint8Array) => take(chunk.length));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return grown(count, moment, async () => {
    const done = new Promise<void>((resolve) => (all = resolve));
    ask('data', count, (server.address() as { port: number }).port, 0);
    await done;
    return held;
  });
}

/** The stack: one Write of `OCTETS` from each client into memory that all share. */
async function stack(count: number, shared: boolean, moment: Moment): Promise<Memory> {
  const rnic = openRnic();
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(4096);
  const srq = shared ? pd.createSrq({ maxWr: 64 }) : undefined;
  const memory = pd.registerMemory(new Uint8Array(OCTETS), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
  const qps: QueuePair[] = [];
  const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0, backlog: 4096, maxPending: count } as never, (request) => {
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 8, maxRecvWr: 8, ...(srq === undefined ? {} : { srq }) });
    qps.push(qp);
    request.setHandler(() => undefined);
    request.accept(qp);
  });
  return grown(count, moment, async () => {
    ask('stack, own receive queue', count, listener.address.port, memory.rkey);
    // They come one by one: asking all of them each time would be garbage by the megabyte.
    let arrived = 0;
    while (arrived < count) {
      if ((qps[arrived]?.counters()?.payloadIn ?? 0) === OCTETS) arrived++;
      else await sleep(10);
    }
    return qps;
  });
}

/** Have another process connect `count` times and send. */
function ask(kind: Kind, count: number, port: number, rkey: number): void {
  fork(fileURLToPath(import.meta.url), ['client', kind, String(count), String(port), String(rkey)]);
}

async function client(kind: Kind, count: number, port: number, rkey: number): Promise<void> {
  const payload = new Uint8Array(OCTETS).fill(5);
  if (kind === 'data') {
    for (let i = 0; i < count; i++) {
      await new Promise<void>((resolve) => {
        const socket: Socket = connect({ host: '127.0.0.1', port }, () => socket.write(payload, () => resolve()));
      });
    }
    return;
  }
  const rnic = openRnic();
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(4096);
  const source = pd.registerMemory(payload, ACCESS.LOCAL_WRITE);
  for (let i = 0; i < count; i++) {
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 8, maxRecvWr: 8, signalAll: false });
    const connection = rnic.cm.connect(qp, { host: '127.0.0.1', port });
    await new Promise<void>((resolve) => connection.setHandler((event) => event.type === 'established' && resolve()));
    qp.postSend({ opcode: 'rdma-write', sges: [{ mr: source }], rkey, remoteAddr: 0, signaled: false });
  }
}

function measureApart(kind: Kind, count: number, moment: Moment): Promise<Memory> {
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(import.meta.url), ['measure', kind, String(count), moment], { execArgv: ['--expose-gc'] });
    child.once('message', (octets) => resolve(octets as Memory));
    child.once('exit', () => reject(new Error(`the process for '${kind}' has gone`)));
  });
}

const [role, kind, ...numbers] = process.argv.slice(2);
if (role === 'client') {
  await client(kind as Kind, Number(numbers[0]), Number(numbers[1]), Number(numbers[2]));
  process.on('disconnect', () => process.exit(0));
} else if (role === 'measure') {
  const count = Number(numbers[0]);
  const moment = numbers[1] as Moment;
  process.send!(kind === KINDS[0] || kind === KINDS[1] ? await bare(count, kind, moment) : await stack(count, kind === KINDS[2], moment));
  process.exit(0);
} else {
  const count = Number(role ?? 1000);
  const rounds = Number(kind ?? 3);
  const found: Record<Moment, Map<Kind, Memory[]>> = { after: new Map(), silent: new Map() };
  for (let round = 0; round < rounds; round++) {
    for (const moment of ['after', 'silent'] as const) {
      for (const name of KINDS) {
        const memories = found[moment].get(name) ?? [];
        memories.push(await measureApart(name, count, moment));
        found[moment].set(name, memories);
      }
    }
  }
  const of = (name: Kind, moment: Moment, field: keyof Memory): number => median(found[moment].get(name)!.map((memory) => memory[field])) / 1024;
  console.log(`KiB a connection, ratio to 'data': ${count} connections, ${OCTETS} octets received by each, median of ${rounds}`);
  console.log(`${''.padEnd(30)}${'resident after it'.padStart(20)}${`resident, ${SILENCE_MS / 1000} s silent`.padStart(24)}${'heap'.padStart(8)}`);
  for (const name of KINDS) {
    const figure = (moment: Moment, width: number): string =>
      `${of(name, moment, 'resident').toFixed(1)} ${(of(name, moment, 'resident') / of('data', moment, 'resident')).toFixed(2).padStart(6)}`.padStart(width);
    console.log(name.padEnd(30) + figure('after', 20) + figure('silent', 24) + of(name, 'silent', 'heap').toFixed(1).padStart(8));
  }
  process.exit(0);
}
