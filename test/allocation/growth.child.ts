/**
 * Runs Writes over loopback TCP inside one process and tells, as JSON on standard output, what the heap did: octets kept by a stretch
 * behind a full collection, in the second best of four stretches, and octets of garbage for each FPDU. Needs --expose-gc and a young
 * generation large enough for one stretch.
 */
import { openRnic } from '../../src/api/environment.ts';
import { ACCESS, createWorkCompletion, type QueuePair } from '../../src/verbs/index.ts';

const collect = (globalThis as unknown as { gc: () => void }).gc;
const [size, stretch, markers] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4] === 'markers'];
const DEPTH = 16;

const rnic = openRnic();
const pd = rnic.device.allocatePd();
const cq = rnic.device.createCq(1024);
const make = (): QueuePair => pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 64 });
const [client, server] = [make(), make()];
const memory = pd.registerMemory(new Uint8Array(1 << 20), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
const request = { opcode: 'rdma-write', sges: [{ mr: memory, length: size }], rkey: memory.rkey, remoteAddr: 0 } as const;
const out = Array.from({ length: 64 }, createWorkCompletion);
let left = 0;
let pending = 0;
let finished: () => void = () => undefined;

cq.setHandler(() => {
  for (let n = cq.poll(out); n > 0; n = cq.poll(out)) {
    for (let i = 0; i < n; i++) {
      if (out[i]!.status !== 'success') throw new Error(out[i]!.status);
      pending--;
      if (left > 0) post();
    }
  }
  cq.requestNotify();
  if (left === 0 && pending === 0) finished();
});
cq.requestNotify();

function post(): void {
  left--;
  pending++;
  client.postSend(request);
}

function run(count: number): Promise<void> {
  left = count;
  return new Promise((resolve) => {
    finished = resolve;
    for (let i = 0; i < DEPTH; i++) post();
  });
}

function heap(): number {
  return process.memoryUsage().heapUsed;
}

function settledHeap(): number {
  collect();
  collect();
  return heap();
}

const policy = { markers };
const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0, policy }, (connection) => connection.accept(server));
const connection = rnic.cm.connect(client, { host: '127.0.0.1', port: listener.address.port, policy });
await new Promise<void>((resolve) => connection.setHandler((event) => event.type === 'established' && resolve()));
for (let i = 0; i < 6; i++) await run(stretch);

const fpdusBefore = client.counters()!.fpdusOut;
// The compiler keeps and drops things now and then; a leak is in every stretch.
const kept: number[] = [];
for (let i = 0, before = settledHeap(); i < 4; i++) {
  await run(stretch);
  const after = settledHeap();
  kept.push(after - before);
  before = after;
}
const fpdus = client.counters()!.fpdusOut - fpdusBefore;
const garbage: number[] = [];
for (let i = 0; i < 5; i++) {
  settledHeap();
  const from = heap();
  await run(stretch);
  garbage.push((heap() - from) / (fpdus / 4));
}
kept.sort((a, b) => a - b);
garbage.sort((a, b) => a - b);
console.log(JSON.stringify({ fpdus, kept: kept[1], garbage: garbage[2] }));
process.exit(0);
