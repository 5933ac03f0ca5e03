/**
 * The two processes of each peer of `bench/requests.ts`: a server that answers each request with its bytes,
 * and a client that keeps a number of them under way. Only that program runs it, as
 * `request-sides.ts SIDE PEER ENGINE`.
 */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import * as grpc from '@grpc/grpc-js';
import { WebSocket, WebSocketServer } from 'ws';
import { connect, createServer, type EngineKind } from '../src/index.ts';

export const PEERS = ['iwarp', 'ws', 'grpc-js'] as const;
export type Peer = (typeof PEERS)[number];

/** What the program asks of a side, and the answers. */
export type Order =
  | { readonly do: 'connect'; readonly port: number; readonly clients: number; readonly size: number }
  | { readonly do: 'run'; readonly ms: number; readonly under: number }
  | { readonly do: 'disconnect' }
  | { readonly do: 'cpu' };
export interface Ran {
  /** Calls answered, and milliseconds. */
  readonly count: number;
  readonly took: number;
}

const HOST = '127.0.0.1';
const MAX_PAYLOAD = 1 << 27;
const PATH = '/bench/Unary';
const same = (octets: Buffer): Buffer => octets;
const METHOD = {
  path: PATH,
  requestStream: false,
  responseStream: false,
  requestSerialize: same,
  requestDeserialize: same,
  responseSerialize: same,
  responseDeserialize: same,
} as const;

/** Starts a server; resolves with its port. */
const SERVERS: Readonly<Record<Peer, (engine: EngineKind) => Promise<number>>> = {
  iwarp: async (engine) => {
    const server = await createServer({ engine }, (connection) => {
      void connection.serve((request) => request.data).catch(() => undefined);
    }).listen({ host: HOST, port: 0 });
    return server.address().port;
  },
  ws: async () => {
    const server = new WebSocketServer({
      port: 0,
      host: HOST,
      perMessageDeflate: false,
      maxPayload: MAX_PAYLOAD,
    });
    server.on('connection', (socket) => socket.on('message', (data: Buffer) => socket.send(data)));
    await once(server, 'listening');
    return (server.address() as { port: number }).port;
  },
  'grpc-js': async () => {
    const server = new grpc.Server();
    const Unary = (call: grpc.ServerUnaryCall<Buffer, Buffer>, done: grpc.sendUnaryData<Buffer>): void =>
      done(null, call.request);
    server.addService({ Unary: METHOD }, { Unary });
    return await new Promise<number>((resolve, reject) => {
      server.bindAsync(`${HOST}:0`, grpc.ServerCredentials.createInsecure(), (error, bound) =>
        error === null ? resolve(bound) : reject(error),
      );
    });
  },
};

/** One connection. */
interface Caller {
  call(data: Buffer): Promise<unknown>;
  close(): unknown;
}

const CLIENTS: Readonly<Record<Peer, (port: number, engine: EngineKind) => Promise<Caller>>> = {
  iwarp: async (port, engine) => {
    const connection = await connect({ host: HOST, port, engine });
    return { call: (data) => connection.request(data), close: () => connection.close() };
  },
  /** The answers have no numbers: they come in the order of the questions. */
  ws: async (port) => {
    const socket = new WebSocket(`ws://${HOST}:${port}`, {
      perMessageDeflate: false,
      maxPayload: MAX_PAYLOAD,
    });
    await once(socket, 'open');
    const waiting: ((data: Buffer) => void)[] = [];
    socket.on('message', (data: Buffer) => waiting.shift()!(data));
    const call = (data: Buffer): Promise<unknown> =>
      new Promise((resolve) => {
        waiting.push(resolve);
        socket.send(data);
      });
    return { call, close: () => socket.terminate() };
  },
  'grpc-js': async (port) => {
    const client = new grpc.Client(`${HOST}:${port}`, grpc.credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
    });
    await new Promise<void>((resolve, reject) =>
      client.waitForReady(Date.now() + 30_000, (error) => (error ? reject(error) : resolve())),
    );
    const call = (data: Buffer): Promise<unknown> =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(PATH, same, same, data, (error, reply) =>
          error ? reject(error) : resolve(reply),
        );
      });
    return { call, close: () => client.close() };
  },
};

/** Keep `under` calls under way for `ms` milliseconds. */
async function run(callers: readonly Caller[], data: Buffer, under: number, ms: number): Promise<Ran> {
  const began = performance.now();
  let count = 0;
  const loop = async (caller: Caller): Promise<void> => {
    for (; performance.now() - began < ms; count++) await caller.call(data);
  };
  await Promise.all(Array.from({ length: under }, (_, i) => loop(callers[i % callers.length]!)));
  return { count, took: performance.now() - began };
}

function answer(orders: (order: Order) => Promise<unknown>): void {
  process.on('message', (order: Order) => void orders(order).then((said) => process.send!(said ?? null)));
}

/** Milliseconds of processor time that this process has used. */
function cpu(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function ask(peer: Peer, engine: EngineKind): void {
  let callers: Caller[] = [];
  let data = Buffer.alloc(0);
  answer(async (order) => {
    if (order.do === 'cpu') return cpu();
    if (order.do === 'run') return await run(callers, data, order.under, order.ms);
    if (order.do === 'disconnect') return void (await Promise.all(callers.map((caller) => caller.close())));
    data = Buffer.alloc(order.size, 7);
    const one = (): Promise<Caller> => CLIENTS[peer](order.port, engine);
    callers = await Promise.all(Array.from({ length: order.clients }, one));
  });
  process.send!(0);
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  const [side, peer, engine] = process.argv.slice(2) as ['serve' | 'ask', Peer, EngineKind];
  process.on('disconnect', () => process.exit());
  if (side === 'ask') ask(peer, engine);
  else {
    process.send(await SERVERS[peer](engine));
    answer(async () => cpu());
  }
}
