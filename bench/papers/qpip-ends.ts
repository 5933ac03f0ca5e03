/**
 * Both ends of the rows of the paper "Queue-Pair IP": queue pairs of the wire `qpip`, and bare sockets. The
 * peer is a separate process with bare sockets, the same for both, so that a ratio shows our side alone, but
 * in the rows with queue pairs at both ends.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type OnReadOpts, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { openRnic, type EngineKind } from '../../src/api/environment.ts';
import { adopt } from '../../src/transport/adopt.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import { ACCESS, type WorkCompletion } from '../../src/verbs/index.ts';
import { handleAll } from '../completions.ts';
import { atExit } from '../leftovers.ts';

const ROUND_TRIPS = 5_000;
const POSTS = 20_000;
/** Queues are no longer than a row needs: each entry is made when it is first used. */
const MOST_UNDER_WAY = 64;
const PIECE_64K = 65_536;
/** How long an event loop stays awake after something has come: the default of the stack. */
const AWAKE_US = 50;

interface Ports {
  readonly echo: number;
  readonly sink: number;
  readonly discard: number;
  readonly udp: number;
  /** Echo of a bare socket whose event loop stays awake, and of queue pairs in a thread, and of a worker. */
  readonly awake: number;
  readonly thread: number;
  readonly worker: number;
}

// ------------------------------------------------------------------------------------------------------ peer

/** Echo and sink over TCP, echo over UDP, with nothing around the sockets. */
async function servePeer(): Promise<void> {
  const listen = async (handle: (socket: Socket) => void): Promise<number> => {
    const server = createServer({ noDelay: true }, (socket) => handle(socket.on('error', () => undefined)));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const echo = await listen((socket) => socket.on('data', (data) => socket.write(data)));
  // Eight octets of length, then that number of octets, then one octet back.
  const sink = await listen((socket) => {
    let left = -1;
    socket.on('data', (data) => {
      left = left < 0 ? Number(data.readBigUInt64BE()) - data.length + 8 : left - data.length;
      if (left > 0) return;
      left = -1;
      socket.write('.');
    });
  });
  const discard = await listen((socket) => socket.resume());
  const udp = createSocket('udp4').on('message', (data, from) => udp.send(data, from.port, from.address));
  udp.bind(0, '127.0.0.1');
  await once(udp, 'listening');
  const awake = await listenAwake();
  const [thread, worker] = [await listenQueuePairs('thread'), await listenQueuePairs('worker')];
  const ports: Ports = { echo, sink, discard, udp: udp.address().port, awake, thread, worker };
  process.send!(ports);
}

/** An `onread` that notes each arrival for a busy poll. */
function onreadAwake(heard: (octets: number) => void): OnReadOpts {
  const poll = new BusyPoll(AWAKE_US);
  return {
    buffer: Buffer.alloc(65_536),
    callback: (octets) => {
      poll.arrived(octets);
      heard(octets);
      return true;
    },
  };
}

/** Echo of one byte by `onread`, which stays awake. */
async function listenAwake(): Promise<number> {
  const octet = Buffer.alloc(1);
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (accepted) => {
    const { buffer, callback } = onreadAwake(() => void socket.write(octet));
    let asked = false;
    const counted = (): Uint8Array => {
      asked = true;
      return buffer as Uint8Array;
    };
    const { socket, userBuffer } = adopt(accepted, { buffer: counted, callback }, () => asked);
    if (!userBuffer) throw new Error('accepted sockets cannot read into a buffer on this version of Node');
    socket.on('error', () => undefined).setNoDelay(true);
    socket.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Echo of one byte by queue pairs. */
async function listenQueuePairs(engine: EngineKind): Promise<number> {
  const { device, cm } = openRnic({ wire: 'qpip', engine, busyPoll: AWAKE_US });
  const pd = device.allocatePd();
  const mr = pd.registerMemory(device.allocateMemory(256), ACCESS.LOCAL_WRITE);
  const listener = await cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
    const cq = device.createCq(64);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: 4, maxSendWr: 16 });
    const receive = (): void => {
      qp.postRecv({ sges: [{ mr, length: 64 }] });
    };
    for (let i = 0; i < 4; i++) receive();
    handleAll(cq, ({ status }) => {
      if (status !== 'success') return;
      receive();
      qp.postSend({ opcode: 'send', sges: [{ mr, length: 1 }], signaled: false });
    });
    request.setHandler(({ type }) => {
      if (type !== 'disconnected') return;
      qp.destroy();
      cq.destroy();
    });
    request.accept(qp);
  });
  return listener.address.port;
}

// ------------------------------------------------------------------------------------------------------ bare

function onreadAsleep(heard: (octets: number) => void): OnReadOpts {
  return {
    buffer: Buffer.alloc(65_536),
    callback: (octets) => {
      heard(octets);
      return true;
    },
  };
}

/** Bare sockets read into one buffer, and hand on how much came. */
async function dial(
  port: number,
  heard: (octets: number) => void,
  onread: OnReadOpts = onreadAsleep(heard),
): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true, onread });
  await once(socket, 'connect');
  return socket;
}

export async function bareRoundTrip(port: number, isAwake = false): Promise<number> {
  const octet = Buffer.alloc(1);
  let count = 0;
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const heard = (): void => (++count < ROUND_TRIPS ? void socket.write(octet) : done());
  const socket = await dial(port, heard, isAwake ? onreadAwake(heard) : onreadAsleep(heard));
  const began = performance.now();
  socket.write(octet);
  await finished;
  const taken = performance.now() - began;
  socket.destroy();
  return (taken * 1000) / ROUND_TRIPS;
}

export async function bareDatagramRoundTrip({ udp }: Ports): Promise<number> {
  const socket = createSocket({ type: 'udp4', lookup: (name, _options, found) => found(null, name, 4) });
  const octet = Buffer.alloc(1);
  let count = 0;
  const send = (): void => socket.send(octet, udp, '127.0.0.1');
  const began = performance.now();
  send();
  await new Promise<void>((resolve) => {
    socket.on('message', () => (++count < ROUND_TRIPS ? send() : resolve()));
  });
  const taken = performance.now() - began;
  socket.close();
  return (taken * 1000) / ROUND_TRIPS;
}

/** MB/s of `total` octets in writes of `piece`, until the peer has all of them. */
export async function bareStream({ sink }: Ports, total: number, piece: number): Promise<number> {
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const socket = await dial(sink, () => done());
  const bytes = Buffer.alloc(piece);
  bytes.writeBigUInt64BE(BigInt(total));
  const began = performance.now();
  for (let sent = 0; sent < total; sent += piece) if (!socket.write(bytes)) await once(socket, 'drain');
  socket.write(Buffer.alloc(8));
  await finished;
  const taken = performance.now() - began;
  socket.destroy();
  return total / 1000 / taken;
}

/** Microseconds of this thread for one write of an octet. */
export async function bareOverhead({ discard }: Ports): Promise<number> {
  const socket = await dial(discard, () => undefined);
  const octet = Buffer.alloc(1);
  const began = performance.now();
  for (let i = 0; i < POSTS; i++) socket.write(octet);
  const taken = performance.now() - began;
  socket.destroy();
  return (taken * 1000) / POSTS;
}

// ------------------------------------------------------------------------------------------------------ ours

async function connected(
  engine: EngineKind,
  port: number,
  each: (wc: WorkCompletion) => void,
  sends = MOST_UNDER_WAY,
): Promise<Ours> {
  const { device, cm } = openRnic({ wire: 'qpip', engine });
  const pd = device.allocatePd();
  const cq = device.createCq(sends + 8);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: 8, maxSendWr: sends });
  const mr = pd.registerMemory(device.allocateMemory(1 << 17), ACCESS.LOCAL_WRITE);
  handleAll(cq, each);
  const receive = (slot: number): void => {
    qp.postRecv({ wrId: slot, sges: [{ mr, offset: PIECE_64K + slot * 64, length: 64 }] });
  };
  for (let slot = 0; slot < 4; slot++) receive(slot);
  const connection = cm.connect(qp, { host: '127.0.0.1', port });
  await new Promise<void>((resolve) =>
    connection.setHandler((event) => event.type === 'established' && resolve()),
  );
  const post = (length: number, signaled: boolean): void => {
    qp.postSend({ opcode: 'send', sges: [{ mr, length }], signaled });
  };
  const close = (): void => {
    qp.destroy();
    cq.destroy();
    mr.deregister();
    pd.deallocate();
    device.close();
  };
  return { receive, post, bytes: Buffer.from(mr.bytes.buffer), close };
}

interface Ours {
  receive(slot: number): void;
  post(length: number, signaled: boolean): void;
  readonly bytes: Buffer;
  close(): void;
}

export async function ourRoundTrip(engine: EngineKind, port: number): Promise<number> {
  let count = 0;
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const ours = await connected(engine, port, ({ opcode, wrId }) => {
    if (opcode !== 'receive') return;
    ours.receive(Number(wrId));
    if (++count < ROUND_TRIPS) ours.post(1, false);
    else done();
  });
  const began = performance.now();
  ours.post(1, false);
  await finished;
  const taken = performance.now() - began;
  ours.close();
  return (taken * 1000) / ROUND_TRIPS;
}

export async function ourDatagramRoundTrip({ udp }: Ports): Promise<number> {
  const { device } = openRnic({ wire: 'qpip', engine: 'thread' });
  const pd = device.allocatePd();
  const cq = device.createCq(64);
  const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq });
  const mr = pd.registerMemory(device.allocateMemory(64), ACCESS.LOCAL_WRITE);
  await dqp.bind({ host: '127.0.0.1' });
  const send = (): void => {
    dqp.postRecv({ sges: [{ mr }] });
    dqp.postSend({ sges: [{ mr, length: 1 }], to: { address: '127.0.0.1', port: udp }, signaled: false });
  };
  let count = 0;
  const began = performance.now();
  await new Promise<void>((resolve) => {
    handleAll(cq, () => (++count < ROUND_TRIPS ? send() : resolve()));
    send();
  });
  const taken = performance.now() - began;
  dqp.destroy();
  return (taken * 1000) / ROUND_TRIPS;
}

export async function ourStream(
  engine: EngineKind,
  { sink }: Ports,
  total: number,
  piece: number,
): Promise<number> {
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  let sent = 0;
  const more = (): void => {
    if (sent < total) ours.post(piece, true);
    else if (sent === total) ours.post(8, false);
    sent += piece;
  };
  const ours = await connected(engine, sink, ({ opcode }) => (opcode === 'receive' ? done() : more()));
  ours.bytes.writeBigUInt64BE(BigInt(total));
  const began = performance.now();
  for (let i = 0; i < MOST_UNDER_WAY / 4; i++) more();
  await finished;
  const taken = performance.now() - began;
  ours.close();
  return total / 1000 / taken;
}

export async function ourOverhead(engine: EngineKind, { discard }: Ports): Promise<number> {
  const ours = await connected(engine, discard, () => undefined, POSTS);
  const began = performance.now();
  for (let i = 0; i < POSTS; i++) ours.post(1, false);
  const taken = performance.now() - began;
  ours.close();
  return (taken * 1000) / POSTS;
}

/** The process of the peer and its ports. */
export interface QpipPeer {
  readonly ports: Ports;
  readonly end: () => void;
}

export async function startQpipPeer(): Promise<QpipPeer> {
  const child: ChildProcess = fork(fileURLToPath(import.meta.url), ['peer']);
  const end = atExit(() => child.kill('SIGKILL'));
  const [ports] = (await once(child, 'message')) as [Ports];
  return { ports, end };
}

if (process.argv[2] === 'peer' && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.on('disconnect', () => process.exit(0));
  await servePeer();
}
