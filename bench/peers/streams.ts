/** Byte streams over RDMA (`iwarp/sockets`), used as sockets of `node:net` are: written until they say stop. */
import { once } from 'node:events';
import { connect as connectTo, createServer, type ConnectOptions, type RdmaSocket } from '../../src/sockets/index.ts';
import type { CaseSpec } from '../types.ts';
import { HOST, PingPong, steps, type Place, type Side, type Tally } from './peer.ts';
import { open, policy } from './stack.ts';

const quiet = (): void => undefined;

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const sockets: RdmaSocket[] = [];
  const answer = Buffer.alloc(spec.size, 1);
  const server = createServer({ rnic: open(spec, null), policy: policy(spec) }, (socket) => {
    sockets.push(socket);
    socket.on('error', quiet);
    let got = 0;
    socket.on('data', (chunk: Uint8Array) => {
      tally.add(chunk.length);
      if (spec.test === 'bw') return;
      got += chunk.length;
      for (; got >= spec.size; got -= spec.size) socket.write(answer);
    });
  });
  server.listen({ host: HOST, port: 0 });
  await once(server, 'listening');
  const close = (): void => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return { place: { port: server.address()!.port }, side: { start: quiet, stop: quiet, close } };
}

async function connectOne(spec: CaseSpec, options: ConnectOptions): Promise<RdmaSocket> {
  const socket = connectTo(options);
  await once(socket, 'connect');
  socket.on('error', quiet);
  if (spec.test === 'bw') socket.resume();
  return socket;
}

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const options = { host: HOST, port: place.port, rnic: open(spec, null), policy: policy(spec) };
  const sockets = await Promise.all(Array.from({ length: spec.connections }, () => connectOne(spec, options)));
  const close = (): void => sockets.forEach((socket) => socket.destroy());
  const message = Buffer.alloc(spec.size, 7);
  if (spec.test === 'lat') {
    const [socket] = sockets;
    const pingPong = new PingPong(() => void socket!.write(message));
    let got = 0;
    socket!.on('data', (chunk: Uint8Array) => {
      got += chunk.length;
      if (got < spec.size) return;
      got -= spec.size;
      pingPong.answered();
    });
    return { start: () => pingPong.start(), stop: () => pingPong.stop(), takeLatency: () => pingPong.take(), close };
  }
  let running = false;
  const pumps = sockets.map((socket) => steps(() => {
    const before = tally.posts;
    for (; running && !socket.writableNeedDrain; tally.posts++) socket.write(message);
    return tally.posts - before;
  }));
  for (const [i, socket] of sockets.entries()) socket.on('drain', pumps[i]!);
  return {
    start: () => {
      running = true;
      for (const pump of pumps) pump();
    },
    stop: () => (running = false),
    close,
  };
}
