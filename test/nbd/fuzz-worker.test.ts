/** A bounded run of mutated inputs to NBD servers whose queue pairs are in a worker thread. */
import { connect as connectNet } from 'node:net';
import { expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { connect, createServer, type NbdServer } from '../../src/nbd/index.ts';
import { encodeSetup, type QpMode } from '../../src/nbd/qp-wire.ts';
import { encodeClientFlags } from '../../src/nbd/wire.ts';
import { Chance, inputOf, mutate, OPTIONS, outside, REQUESTS, SETTLED, strict } from './fuzz.ts';

const INPUTS = Number(process.env['FUZZ_RUNS'] ?? 100);
const rnic = openRnic({ engine: 'worker' });
const plain = openRnic({ wire: 'qpip', engine: 'worker' });

/** One connection with mutated requests; it ends by the server or by us. */
async function play(port: number, mode: QpMode, chance: Chance): Promise<void> {
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(64);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 16, maxRecvWr: 16, maxInline: 4096 });
  const setup = encodeSetup({ version: 1, mode, depth: 4, name: 'disk' });
  const privateData = chance.below(4) === 0 ? mutate(chance, setup) : setup;
  const connection = rnic.cm.connect(qp, { host: '127.0.0.1', port, privateData });
  const end = new Promise<void>((resolve) =>
    connection.setHandler(({ type }) => {
      if (type === 'rejected' || type === 'connect-error' || type === 'disconnected') return resolve();
      if (type !== 'established') return;
      for (let i = 1 + chance.below(6); i > 0; i--) {
        const tail = mode === 'direct' && chance.below(4) > 0 ? Buffer.alloc(16, chance.below(256)) : [];
        const inline = mutate(chance, Buffer.from([...chance.pick(REQUESTS), ...tail]));
        qp.postSend({ opcode: 'send', inline, signaled: false });
      }
      setTimeout(() => connection.abort(), chance.below(10));
    }),
  );
  await end;
  qp.destroy();
  cq.destroy();
  pd.deallocate();
}

async function stillServes(server: NbdServer, port: number, wire: typeof rnic): Promise<void> {
  const disk = await connect({ uri: `rdma://127.0.0.1:${port}/disk`, rnic: wire });
  await disk.read(new Uint8Array(512), 0n);
  await disk.close();
  expect(outside).toBeUndefined();
  await expect.poll(() => server.connections).toBe(0);
  await server.close();
}

it.each(['message', 'direct'] as const)(
  `${INPUTS} connections with mutated requests in %s mode, and the next is served`,
  async (mode) => {
    const server = createServer({ exports: { disk: strict() } });
    const { port } = await server.listenRdma({ host: '127.0.0.1', rnic });
    for (let seed = 1; seed <= INPUTS; seed += 10)
      await Promise.all(Array.from({ length: 10 }, (_, i) => play(port, mode, new Chance(seed + i))));
    await stillServes(server, port, rnic);
  },
  60_000,
);

it(`${INPUTS} mutated streams to queue pairs over plain TCP, and the next is served`, async () => {
  const server = createServer({ exports: { disk: strict() } });
  const { port } = await server.listenRdma({ host: '127.0.0.1', rnic: plain });
  for (let seed = 1; seed <= INPUTS; seed++) {
    const chance = new Chance(seed);
    const socket = connectNet(port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    const flags = mutate(chance, encodeClientFlags(3));
    socket.end(
      seed % 2 === 0
        ? Buffer.concat([flags, inputOf(chance, [...OPTIONS, ...REQUESTS], 6)])
        : Buffer.concat([SETTLED, inputOf(chance, REQUESTS, 8)]),
    );
    await new Promise((resolve) => socket.once('close', resolve));
  }
  await stillServes(server, port, plain);
}, 60_000);
