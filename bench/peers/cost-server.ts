/**
 * A server that only holds connections, as a child process: layer and engine are its arguments. It sends its
 * port, and answers `look` with what it holds and `collect` after a full collection.
 */
import { readFileSync } from 'node:fs';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { openRnic } from '../../src/api/environment.ts';
import { createServer } from '../../src/api/server.ts';
import { createServer as createStreamServer } from '../../src/sockets/index.ts';
import { HOST } from './peer.ts';

/** Layers whose servers can be measured. */
export type CostLayer = 'net' | 'promise' | 'cm' | 'stream';

/** Sizes are in MiB. */
export interface CostLook {
  /** Connections that the server has. */
  readonly connections: number;
  readonly resident: number;
  readonly addressSpace: number;
  readonly heap: number;
}

interface Held {
  readonly port: number;
  readonly count: () => number;
}

/** More than a round has, so that no limit is met. */
const ROOM = 8192;
const AT = { host: HOST, port: 0, backlog: 4096 } as const;

async function holdTcp(): Promise<Held> {
  let count = 0;
  const server = createTcpServer((socket) => {
    count++;
    socket.on('close', () => count--).on('error', () => undefined);
    socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(AT, resolve));
  return { port: (server.address() as AddressInfo).port, count: () => count };
}

async function holdPromise(engine: 'thread' | 'worker'): Promise<Held> {
  const server = await createServer({ rnic: openRnic({ engine }), maxPending: ROOM }, async (connection) => {
    for await (const message of connection) message.release();
  }).listen(AT);
  return { port: server.address().port, count: () => server.connections.size };
}

async function holdCm(engine: 'thread' | 'worker'): Promise<Held> {
  const { device, cm } = openRnic({ engine });
  const pd = device.allocatePd();
  const cq = device.createCq(ROOM);
  const listener = await cm.listen({ ...AT, maxPending: ROOM }, (request) => {
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 16, maxRecvWr: 16 });
    request.setHandler(({ type }) => {
      if (type === 'disconnected') qp.destroy();
    });
    request.accept(qp);
  });
  return { port: listener.address.port, count: () => cm.connections.size };
}

async function holdStream(engine: 'thread' | 'worker'): Promise<Held> {
  const server = createStreamServer({ rnic: openRnic({ engine }) }, (socket) => {
    socket.on('error', () => undefined);
    socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(AT, resolve));
  return { port: (server.address() as AddressInfo).port, count: () => server.connections.size };
}

const HOLD: Readonly<Record<CostLayer, (engine: 'thread' | 'worker') => Promise<Held>>> = {
  net: holdTcp,
  promise: holdPromise,
  cm: holdCm,
  stream: holdStream,
};

const MIB = 1 << 20;
const KIB_PER_MIB = 1024;

/** A row of the kernel's account of this process, in MiB. */
function status(row: string): number {
  const text = readFileSync('/proc/self/status', 'utf8');
  return Number(new RegExp(`^${row}:\\s+(\\d+)`, 'm').exec(text)?.[1]) / KIB_PER_MIB;
}

const { port, count } = await HOLD[process.argv[2] as CostLayer](process.argv[3] as 'thread' | 'worker');
process.on('message', (order: 'look' | 'collect') => {
  if (order === 'collect') globalThis.gc!();
  const answer: CostLook = {
    connections: count(),
    resident: status('VmRSS'),
    addressSpace: status('VmSize'),
    heap: process.memoryUsage().heapUsed / MIB,
  };
  process.send!(answer);
});
process.send!(port);
