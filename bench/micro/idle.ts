/**
 * What an idle connection costs: resident memory of a server process for each of many connections, after each has received some octets and
 * fallen silent; bare sockets with 'data' events beside the stack, each in a process of its own.
 *
 * Run compiled, with plain node: `node --expose-gc dist/bench/micro/idle.js [connections] [rounds]`.
 */
import { fork } from 'node:child_process';
import { connect, createServer, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { openRnic } from '../../src/api/environment.ts';
import { ACCESS, type QueuePair } from '../../src/verbs/index.ts';
import { median } from '../stats.ts';

const OCTETS = 70_000;
const KINDS = ['data', 'stack, shared receive queue', 'stack, own receive queue'] as const;
type Kind = (typeof KINDS)[number];

const collect = (globalThis as unknown as { gc?: () => void }).gc;

function resident(): number {
  collect?.();
  collect?.();
  return process.memoryUsage().rss;
}

/** Bare sockets: `OCTETS` from each client, read by 'data' events. */
async function bare(count: number): Promise<number> {
  let got = 0;
  let all = (): void => undefined;
  const held: Socket[] = [];
  const server = createServer({ noDelay: true }, (socket) => {
    held.push(socket);
    socket.on('data', (chunk: Uint8Array) => {
      got += chunk.length;
      if (got === count * OCTETS) all();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const before = resident();
  const done = new Promise<void>((resolve) => (all = resolve));
  ask('data', count, (server.address() as { port: number }).port, 0);
  await done;
  return (resident() - before) / held.length;
}

/** The stack: one Write of `OCTETS` from each client into memory that all share. */
async function stack(count: number, shared: boolean): Promise<number> {
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
  const before = resident();
  ask('stack, own receive queue', count, listener.address.port, memory.rkey);
  const arrived = (): boolean => qps.length === count && qps.every((qp) => (qp.counters()?.payloadIn ?? 0) === OCTETS);
  while (!arrived()) await new Promise((resolve) => setTimeout(resolve, 50));
  return (resident() - before) / count;
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

function measureApart(kind: Kind, count: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(import.meta.url), ['measure', kind, String(count)], { execArgv: ['--expose-gc'] });
    child.once('message', (octets) => resolve(octets as number));
    child.once('exit', () => reject(new Error(`the process for '${kind}' has gone`)));
  });
}

const [role, kind, ...numbers] = process.argv.slice(2);
if (role === 'client') {
  await client(kind as Kind, Number(numbers[0]), Number(numbers[1]), Number(numbers[2]));
  process.on('disconnect', () => process.exit(0));
} else if (role === 'measure') {
  const count = Number(numbers[0]);
  process.send!(kind === 'data' ? await bare(count) : await stack(count, kind === KINDS[1]));
  process.exit(0);
} else {
  const count = Number(role ?? 1000);
  const rounds = Number(kind ?? 3);
  const found = new Map<Kind, number[]>(KINDS.map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) for (const name of KINDS) found.get(name)!.push(await measureApart(name, count));
  const base = median(found.get('data')!);
  console.log(`resident octets a connection, ${count} connections, ${OCTETS} octets received by each, median of ${rounds}`);
  for (const [name, values] of found) console.log(name.padEnd(30) + `${(median(values) / 1024).toFixed(1)} KiB`.padStart(12) + (median(values) / base).toFixed(2).padStart(8));
  process.exit(0);
}
