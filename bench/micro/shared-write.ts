/**
 * `write` of the shared region beside an RDMA Write by verbs, between two processes, in interleaved rounds:
 * `npx tsx bench/micro/shared-write.ts [SECONDS] [ENGINE]`. Both keep the same number of operations in
 * flight, look at completions in the same way, and write into a region of the same listener.
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { checkEngine, openRnic, type Rnic } from '../../src/api/environment.ts';
import { connect, listen } from '../../src/shared/index.ts';
import type { SharedEvent } from '../../src/shared/operations.ts';
import { decodeTicket, encodeTicket, type Ticket } from '../../src/shared/ticket.ts';
import { ACCESS, createWorkCompletion, type CompletionQueue } from '../../src/verbs/index.ts';
import { median } from '../stats.ts';

const OCTETS = 1 << 20;
const SIZES = [16, 64, 1024, 4096, 65_536] as const;
const DEPTHS = [1, 500] as const;
const ROUNDS = 8;

/** Posts one Write of `length` octets, or returns false if the queue is full; and counts completions. */
interface Writer {
  post(length: number): boolean;
  collect(): number;
}

async function sharedWriter(rnic: Rnic, port: number): Promise<Writer> {
  const { socket } = await connect({ port }, { rnic, octets: OCTETS, depth: 500 });
  const events: SharedEvent[] = [];
  return { post: (length) => socket.write(length, 0, 0) > 0, collect: () => socket.poll(events, 64) };
}

/** As a program by verbs has it: a queue pair, a completion queue, one scatter/gather element. */
async function verbsWriter(rnic: Rnic, port: number): Promise<Writer> {
  const { device, cm } = rnic;
  const pd = device.allocatePd();
  const cq: CompletionQueue = device.createCq(512);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 501, maxRecvWr: 0, ird: 16, ord: 16 });
  const mr = pd.registerMemory(new Uint8Array(new SharedArrayBuffer(OCTETS)), ACCESS.LOCAL_WRITE);
  const privateData = encodeTicket({ to: BigInt(mr.addr), stag: mr.rkey, length: OCTETS });
  const remote = await new Promise<Ticket>((resolve) => {
    cm.connect(qp, { host: '127.0.0.1', port, privateData, confirm: false }).setHandler((event) => {
      if (event.type === 'established') resolve(decodeTicket(event.parameters.privateData)!);
    });
  });
  const at = Number(remote.to);
  const out = Array.from({ length: 64 }, createWorkCompletion);
  let [posted, done] = [0, 0];
  return {
    post: (length) => {
      if (posted - done >= 500) return false;
      qp.postSend({
        wrId: ++posted,
        opcode: 'rdma-write',
        sges: [{ mr, offset: 0, length }],
        rkey: remote.stag,
        remoteAddr: at,
      });
      return true;
    },
    collect: () => {
      const count = cq.poll(out, 64);
      done += count;
      return count;
    },
  };
}

/** Operations a second. */
async function rate(writer: Writer, length: number, depth: number, milliseconds: number): Promise<number> {
  const begin = performance.now();
  let [inFlight, ended] = [0, 0];
  for (let now = begin; now - begin < milliseconds; now = performance.now()) {
    while (inFlight < depth && writer.post(length)) inFlight++;
    await new Promise(setImmediate);
    for (let n = writer.collect(); n > 0; n = writer.collect()) {
      inFlight -= n;
      ended += n;
    }
  }
  const spent = performance.now() - begin;
  while (inFlight > 0) {
    await new Promise(setImmediate);
    inFlight -= writer.collect();
  }
  return (1000 * ended) / spent;
}

async function main(seconds: number, engine: 'thread' | 'worker'): Promise<void> {
  const child = fork(fileURLToPath(import.meta.url), ['--listen', engine]);
  const port = await new Promise<number>((resolve) =>
    child.once('message', (message) => resolve(Number(message))),
  );
  const rnic = openRnic({ engine });
  const [shared, verbs] = [await sharedWriter(rnic, port), await verbsWriter(rnic, port)];
  console.log('  bytes  in flight  shared/s   verbs/s   ratio (median of rounds)');
  for (const depth of DEPTHS)
    for (const size of SIZES) {
      const [ours, theirs, ratios]: number[][] = [[], [], []];
      await rate(shared, size, depth, 200);
      await rate(verbs, size, depth, 200);
      for (let round = 0; round < ROUNDS; round++) {
        // Each round begins with the other one.
        const order = round % 2 === 0 ? [shared, verbs] : [verbs, shared];
        const rates = new Map<Writer, number>();
        for (const writer of order)
          rates.set(writer, await rate(writer, size, depth, (1000 * seconds) / ROUNDS));
        ours!.push(rates.get(shared)!);
        theirs!.push(rates.get(verbs)!);
        ratios!.push(rates.get(shared)! / rates.get(verbs)!);
      }
      const cells = [median(ours!).toFixed(0), median(theirs!).toFixed(0)].map((cell) => cell.padStart(9));
      const ratio = median(ratios!).toFixed(2);
      console.log(
        `${String(size).padStart(7)} ${String(depth).padStart(10)} ${cells.join(' ')} ${ratio.padStart(7)}`,
      );
    }
  child.kill();
  process.exit();
}

const [first = '1', second = 'thread'] = process.argv.slice(2);
const engine = checkEngine('ENGINE', second);
if (first === '--listen') {
  const listener = await listen({ host: '127.0.0.1', octets: OCTETS, rnic: openRnic({ engine }) });
  process.send!(listener.address.port);
  for await (const { socket } of listener) void socket.closed;
} else await main(Number(first), engine);
