/**
 * Byte streams over RDMA (`iwarp/sockets`), used as sockets of `node:net` are: written until they say stop,
 * read by 'data' events or into memory of the program.
 */
import { once } from 'node:events';
import {
  connect as connectTo,
  createServer,
  type ConnectOptions,
  type RdmaSocket,
} from '../../src/sockets/index.ts';
import type { CaseSpec } from '../types.ts';
import {
  counter,
  HOST,
  PingPong,
  readInto,
  together,
  untilStopped,
  type Place,
  type Side,
  type Tally,
} from './peer.ts';
import { open, policy } from './stack.ts';

const quiet = (): void => undefined;

const isOnread = (spec: CaseSpec): boolean => spec.peer === 'stream-onread';

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const sockets: RdmaSocket[] = [];
  const answer = Buffer.alloc(spec.size, 1);
  const arrivedAt = (socket: RdmaSocket): ((octets: number) => void) => {
    const count = spec.test === 'bw' ? quiet : counter(spec.size, () => socket.write(answer));
    return (octets) => {
      tally.add(octets);
      count(octets);
    };
  };
  const reading = isOnread(spec)
    ? { onread: (socket: RdmaSocket) => readInto(spec.size, arrivedAt(socket)) }
    : {};
  const server = createServer({ rnic: open(spec, null), policy: policy(spec), ...reading }, (socket) => {
    sockets.push(socket);
    socket.on('error', quiet);
    if (isOnread(spec)) return;
    const arrived = arrivedAt(socket);
    socket.on('data', (chunk: Uint8Array) => arrived(chunk.length));
  });
  server.listen({ host: HOST, port: 0 });
  await once(server, 'listening');
  const close = (): void => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return {
    place: { port: (server.address() as { port: number }).port },
    side: { start: quiet, stop: quiet, close },
  };
}

async function connectOne(spec: CaseSpec, options: ConnectOptions): Promise<RdmaSocket> {
  const socket = connectTo(options);
  await once(socket, 'connect');
  socket.on('error', quiet);
  if (spec.test === 'bw') socket.resume();
  return socket;
}

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const pingPong = new PingPong(() => void sockets[0]!.write(message));
  const arrived = counter(spec.size, () => pingPong.answered());
  const options = {
    host: HOST,
    port: place.port,
    rnic: open(spec, null),
    policy: policy(spec),
    ...(isOnread(spec) && { onread: readInto(spec.size, arrived) }),
  };
  const sockets = await Promise.all(
    Array.from({ length: spec.connections }, () => connectOne(spec, options)),
  );
  const close = (): void => sockets.forEach((socket) => socket.destroy());
  const message = Buffer.alloc(spec.size, 7);
  if (spec.test === 'lat') {
    if (!isOnread(spec)) sockets[0]!.on('data', (chunk: Uint8Array) => arrived(chunk.length));
    return {
      start: () => pingPong.start(),
      stop: () => pingPong.stop(),
      takeLatency: () => pingPong.take(),
      close,
    };
  }
  return { ...together(sockets.map((socket) => untilStopped(socket, tally, message))), close };
}
