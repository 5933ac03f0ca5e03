/**
 * The memory of a receiver while one RDMA Write arrives over a network that loses and reorders datagrams.
 * Each line is a millisecond, each column a segment: `#` is in its place. A placing receiver puts each
 * segment where it belongs when it arrives; an ordered one keeps those above a hole until the hole is closed.
 * The Send behind the Write completes at the same time in both: nothing may be missing below it.
 *
 *   npx tsx examples/udp-holes.ts [LOSS [SEED]]       percent (10), and where the draws begin (3)
 */
import { ACCESS, openRnic, type Rnic } from 'iwarp';
import { MemoryDatagrams, VirtualTime } from 'iwarp/testing';

const [loss = '10', seed = '3'] = process.argv.slice(2);
const SEGMENTS = 60;
/** The smallest MTU, less the headers of IP, UDP, TRP and DDP. */
const MTU = 576;
const SEGMENT_BYTES = MTU - 28 - 10 - 14;
const BYTES = SEGMENTS * SEGMENT_BYTES;
const RIGHTS = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE;
const LONGEST_MS = 10_000;

function side(rnic: Rnic) {
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(16);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  return { rnic, cq, qp, memory: pd.registerMemory(new Uint8Array(BYTES), RIGHTS) };
}

/** A column for each segment. */
const picture = (bytes: Uint8Array): string =>
  Array.from({ length: SEGMENTS }, (_, i) => (bytes[i * SEGMENT_BYTES] === 0 ? '.' : '#')).join('');

async function show(receiver: 'placing' | 'ordered'): Promise<void> {
  const time = new VirtualTime();
  const datagrams = new MemoryDatagrams(time, {
    seed: Number(seed),
    latency: 2,
    bandwidth: 2_000, // bytes a millisecond
    reordering: 0.05,
    disorder: 3,
    loss: Number(loss) / 100,
  });
  const open = (): Rnic =>
    openRnic({ wire: 'trp', datagrams, scheduler: time, trp: { receiver, mtu: MTU, firstPsn: 0 } });
  const [client, server] = [side(open()), side(open())];
  client.memory.bytes.fill(1);
  server.qp.postRecv({ sges: [] });

  const listening = server.rnic.cm.listen({ port: 7174, host: '127.0.0.1' }, (request) => {
    request.accept(server.qp);
  });
  time.advance(0);
  const listener = await listening;
  const connection = client.rnic.cm.connect(client.qp, { port: 7174, host: '127.0.0.1' });
  while (client.qp.state !== 'rts' || server.qp.state !== 'rts') time.step();

  const { addr, rkey } = server.memory;
  const sges = [{ mr: client.memory }];
  client.qp.postSend([
    { opcode: 'rdma-write', sges, remoteAddr: addr, rkey },
    { opcode: 'send', sges: [] },
  ]);
  console.log(`\n${receiver}`);
  const began = time.now();
  let held = 0;
  let last = '';
  while (server.cq.length === 0 && time.now() - began < LONGEST_MS) {
    time.advance(1);
    const now = picture(server.memory.bytes);
    if (now !== last) console.log(`${(time.now() - began).toFixed(0).padStart(5)} ms  ${now}`);
    last = now;
    // Segments in their place to the right of a hole.
    held = Math.max(held, now.slice(now.indexOf('.')).replaceAll('.', '').length * Number(now.includes('.')));
  }
  const { lost, reordered } = datagrams.counters();
  console.log(`the Send has arrived after ${(time.now() - began).toFixed(0)} ms`);
  console.log(`${receiver}: up to ${held} segments in their place above a hole`);
  console.log(`the network has lost ${lost} datagrams and reordered ${reordered}`);
  connection.disconnect();
  listener.close();
  time.advance(LONGEST_MS);
}

console.log(`${loss} % of all datagrams are lost; each column is a segment of one Write`);
await show('placing');
await show('ordered');
