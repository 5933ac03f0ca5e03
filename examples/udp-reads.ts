/**
 * RDMA Reads over a network that loses datagrams. With `reads: 'ordered'`, as over TCP, a Read waits for
 * everything that the peer has sent before its response. With `reads: 'placed'` each Read has its own STag
 * for its sink, so that its response names it: it completes when its own bytes are there.
 *
 *   npx tsx examples/udp-reads.ts [LOSS [SEED]]       percent (10), and where the draws begin (2)
 */
import assert from 'node:assert/strict';
import { ACCESS, openRnic, type Rnic } from 'iwarp';
import { MemoryDatagrams, VirtualTime } from 'iwarp/testing';
import type { WorkCompletion } from 'iwarp/verbs';

const [loss = '10', seed = '2'] = process.argv.slice(2);
const READS = 16;
const READ_BYTES = 1000;
const LONGEST_MS = 10_000;

/** When each Read has completed, in the order in which they did. */
interface Done {
  readonly read: number;
  readonly at: number;
}

async function run(reads: 'ordered' | 'placed'): Promise<readonly Done[]> {
  const time = new VirtualTime();
  const datagrams = new MemoryDatagrams(time, {
    seed: Number(seed),
    latency: 2,
    loss: Number(loss) / 100,
  });
  const open = (): Rnic => openRnic({ wire: 'trp', datagrams, scheduler: time, trp: { reads, firstPsn: 0 } });
  const [client, server] = [open(), open()];
  const source = server.device.allocatePd();
  const shared = source.registerMemory(new Uint8Array(READS * READ_BYTES), ACCESS.REMOTE_READ);
  for (let i = 0; i < shared.length; i++) shared.bytes[i] = i % 251;
  const serverCq = server.device.createCq(16);
  const depth = { responderResources: READS, initiatorDepth: READS };
  const listening = server.cm.listen({ port: 7174, host: '127.0.0.1' }, (request) =>
    request.accept(source.createQp({ sendCq: serverCq, recvCq: serverCq }), depth),
  );
  time.advance(0);
  const listener = await listening;

  const pd = client.device.allocatePd();
  const cq = client.device.createCq(READS);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const sink = pd.registerMemory(new Uint8Array(READS * READ_BYTES), ACCESS.LOCAL_WRITE);
  const connection = client.cm.connect(qp, { port: 7174, host: '127.0.0.1', ...depth });
  while (qp.state !== 'rts') time.step();

  const began = time.now();
  qp.postSend(
    Array.from({ length: READS }, (_, i) => ({
      wrId: i + 1,
      opcode: 'rdma-read' as const,
      sges: [{ mr: sink, offset: i * READ_BYTES, length: READ_BYTES }],
      remoteAddr: shared.addr + BigInt(i * READ_BYTES),
      rkey: shared.rkey,
    })),
  );
  const done: Done[] = [];
  const completions: WorkCompletion[] = [];
  while (done.length < READS && time.now() - began < LONGEST_MS) {
    time.step();
    const count = cq.poll(completions, READS);
    for (const { wrId, status } of completions.slice(0, count)) {
      assert(status === 'success');
      done.push({ read: Number(wrId), at: time.now() - began });
    }
  }
  assert(Buffer.compare(sink.bytes, shared.bytes) === 0, 'every byte is where it belongs');
  connection.disconnect();
  listener.close();
  time.advance(LONGEST_MS);
  return done;
}

console.log(
  `${loss} % of all datagrams are lost, a round trip takes 4 ms; ${READS} Reads are posted at once`,
);
for (const reads of ['ordered', 'placed'] as const) {
  const done = await run(reads);
  const mean = done.reduce((sum, { at }) => sum + at, 0) / done.length;
  console.log(`\n${reads}: Reads in the order of their completion, with milliseconds`);
  console.log(done.map(({ read, at }) => `${read} (${at.toFixed(0)})`).join(' '));
  console.log(`${reads}: ${mean.toFixed(1)} ms on average, ${done.at(-1)!.at.toFixed(1)} ms for the last`);
}
