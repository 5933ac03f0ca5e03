/**
 * Bare `node:net`, the measure of all things here. Receiving by 'data' events, or by `onread` into memory of
 * the program, which on an accepted socket takes the step outside the documented API that
 * src/transport/adopt.ts takes.
 */
import { connect as netConnect, createServer, type Socket } from 'node:net';
import { once } from 'node:events';
import { adopt } from '../../src/transport/adopt.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import type { CaseSpec } from '../types.ts';
import {
  counter,
  depthOf,
  filling,
  HOST,
  keepUnderWay,
  PingPong,
  readInto,
  together,
  type Place,
  type Sender,
  type Side,
  type Tally,
} from './peer.ts';

/** Enough that a sender of small messages is asked to pause only when the system's buffer is full too. */
const HIGH_WATER = 1 << 20;
const HEADER_OCTETS = 16;
/** Messages that `cork` joins into one writev. */
const CORK = 16;
/** Writes in a row where the socket says stop; then the event loop has its turn. */
const FILL = 512;

const quiet = (): void => undefined;

/** With `busyPoll`, the event loop stays awake as the stack's does. */
function heeding(spec: CaseSpec, arrived: (octets: number) => void): (octets: number) => void {
  if (spec.busyPoll === null || spec.busyPoll === 0) return arrived;
  const poll = new BusyPoll(spec.busyPoll);
  return (octets) => {
    poll.arrived(octets);
    arrived(octets);
  };
}

/** Wire an accepted socket up. */
function receive(spec: CaseSpec, accepted: Socket, arrived: (octets: number) => void): Socket {
  accepted.on('error', quiet);
  if (spec.peer === 'tcp-data') {
    accepted.on('data', (chunk: Buffer) => arrived(chunk.length));
    accepted.resume();
    return accepted;
  }
  let asked = false;
  const { buffer, callback } = readInto(spec.size, arrived);
  const counted = (): Uint8Array => {
    asked = true;
    return typeof buffer === 'function' ? buffer() : buffer;
  };
  const { socket, userBuffer } = adopt(accepted, { buffer: counted, callback }, () => asked);
  if (!userBuffer)
    throw new Error('accepted sockets cannot be made to read into a buffer on this version of Node');
  socket.on('error', quiet);
  socket.setNoDelay(true);
  socket.resume();
  return socket;
}

export async function serve(spec: CaseSpec, tally: Tally): Promise<{ place: Place; side: Side }> {
  const sockets = new Set<Socket>();
  const answer = Buffer.alloc(spec.size, 1);
  // Octets of headers are no payload: after many messages their share is exact.
  const headed = spec.gather !== 'none' && spec.gather !== 'batch';
  const share = headed ? spec.size / (spec.size + HEADER_OCTETS) : 1;
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (accepted) => {
    const count = spec.test === 'bw' ? quiet : counter(spec.size, () => socket.write(answer));
    const socket = receive(
      spec,
      accepted,
      heeding(spec, (octets) => {
        tally.add(octets * share);
        count(octets);
      }),
    );
    sockets.add(socket);
  });
  server.listen(0, HOST);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const close = (): void => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return { place: { port: address.port }, side: { start: quiet, stop: quiet, close } };
}

export async function connect(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  return spec.test === 'lat' ? await connectLatency(spec, place) : await connectBandwidth(spec, place, tally);
}

async function connectLatency(spec: CaseSpec, place: Place): Promise<Side> {
  const message = Buffer.alloc(spec.size, 2);
  const arrived = heeding(
    spec,
    counter(spec.size, () => pingPong.answered()),
  );
  const socket = netConnect({
    host: HOST,
    port: place.port,
    noDelay: true,
    ...(spec.peer === 'tcp-onread' && { onread: readInto(spec.size, arrived) }),
  });
  socket.on('error', quiet);
  if (spec.peer === 'tcp-data') socket.on('data', (chunk: Buffer) => arrived(chunk.length));
  const pingPong = new PingPong(() => void socket.write(message));
  await once(socket, 'connect');
  return {
    start: () => pingPong.start(),
    stop: () => pingPong.stop(),
    takeLatency: () => pingPong.take(),
    close: () => socket.destroy(),
  };
}

/**
 * `count` messages become one writev. The writer never pauses between them: corked messages would not leave.
 */
function joined(
  socket: Socket,
  header: Buffer | null,
  payload: Buffer,
  count: number,
): (done?: () => void) => boolean {
  let corked = 0;
  return (done) => {
    if (corked++ === 0) socket.cork();
    if (header !== null) socket.write(header);
    socket.write(payload, done);
    if (corked < count) return true;
    corked = 0;
    socket.uncork();
    return !socket.writableNeedDrain;
  };
}

/** Put one message on the stream; false when the socket has had enough. */
function writer(spec: CaseSpec, socket: Socket): (done?: () => void) => boolean {
  const payload = Buffer.alloc(spec.size, 7);
  const header = Buffer.alloc(HEADER_OCTETS, 1);
  switch (spec.gather) {
    case 'none':
      return (done) => socket.write(payload, done);
    case 'copy':
      return (done) => {
        const message = Buffer.allocUnsafe(HEADER_OCTETS + spec.size);
        message.set(header, 0);
        message.set(payload, HEADER_OCTETS);
        return socket.write(message, done);
      };
    case 'writev':
      return joined(socket, header, payload, 1);
    case 'cork':
      return joined(socket, header, payload, CORK);
    case 'batch':
      return joined(socket, null, payload, spec.batch);
    case 'two':
      return (done) => {
        socket.write(header);
        return socket.write(payload, done);
      };
  }
}

async function connectBandwidth(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const senders = await Promise.all(
    Array.from({ length: spec.connections }, () => connectSender(spec, place, tally)),
  );
  return { ...together(senders), close: () => senders.forEach((sender) => sender.close()) };
}

async function connectSender(spec: CaseSpec, place: Place, tally: Tally): Promise<Side> {
  const socket = netConnect({
    host: HOST,
    port: place.port,
    noDelay: true,
    ...({ writableHighWaterMark: HIGH_WATER } as object),
  });
  socket.on('error', quiet);
  const write = writer(spec, socket);
  // A message sent once counts as under way for ever.
  const sender =
    spec.inFlight === 0
      ? untilFull(spec, socket, write, tally)
      : keepUnderWay(depthOf(spec), tally, (done) => write(spec.once ? undefined : done), 'timed');
  await once(socket, 'connect');
  return { ...sender, close: () => socket.destroy() };
}

/** Until the socket says stop, which it may never do: not more than the event loop can wait for. */
function untilFull(spec: CaseSpec, socket: Socket, write: () => boolean, tally: Tally): Sender {
  // A batch is whole or not begun.
  const step = spec.gather === 'batch' ? spec.batch : 1;
  const fill = (): number => {
    let posts = 0;
    for (; posts < FILL && !socket.writableNeedDrain; posts += step) for (let i = 0; i < step; i++) write();
    return posts;
  };
  const sender = filling(tally, fill, 'timed');
  socket.on('drain', sender.more);
  return sender;
}
