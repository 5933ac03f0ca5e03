/**
 * WebSocket messages by the package ws: what Node programs use when they want messages on a stream.
 * Compression is off.
 */
import { once } from 'node:events';
import { WebSocket, WebSocketServer } from 'ws';
import type { CaseSpec } from '../types.ts';
import {
  depthOf,
  HOST,
  keepUnderWay,
  PingPong,
  together,
  type Place,
  type Side,
  type Tally,
} from './peer.ts';

const MAX_PAYLOAD = 1 << 27;
const quiet = (): void => undefined;

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const server = new WebSocketServer({
    port: 0,
    host: HOST,
    perMessageDeflate: false,
    maxPayload: MAX_PAYLOAD,
  });
  server.on('connection', (socket) => {
    socket.on('error', quiet);
    socket.on('message', (data: Buffer) => {
      tally.add(data.length);
      if (spec.test === 'lat') socket.send(data, { binary: true });
    });
  });
  await once(server, 'listening');
  return {
    place: { port: (server.address() as { port: number }).port },
    side: { start: quiet, stop: quiet, close: () => server.close() },
  };
}

async function connectOne(place: Place): Promise<WebSocket> {
  const socket = new WebSocket(`ws://${HOST}:${place.port}`, {
    perMessageDeflate: false,
    maxPayload: MAX_PAYLOAD,
  });
  socket.on('error', quiet);
  await once(socket, 'open');
  return socket;
}

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const sockets = await Promise.all(Array.from({ length: spec.connections }, () => connectOne(place)));
  const message = Buffer.alloc(spec.size, 7);
  const close = (): void => sockets.forEach((socket) => socket.terminate());
  if (spec.test === 'lat') {
    const [socket] = sockets as [WebSocket];
    const pingPong = new PingPong(() => socket.send(message, { binary: true }));
    socket.on('message', () => pingPong.answered());
    return {
      start: () => pingPong.start(),
      stop: () => pingPong.stop(),
      takeLatency: () => pingPong.take(),
      close,
    };
  }
  const depth = depthOf(spec);
  const senders = sockets.map((socket) =>
    keepUnderWay(depth, tally, (done) => socket.send(message, { binary: true }, done)),
  );
  return { ...together(senders), close };
}
