/**
 * One process of the data-path bench: a bare TCP end or an end of the finished stack, sending or receiving, told over the process
 * channel when to run. Started by datapath.ts, which see.
 */
import { connect, createServer } from 'node:net';
import type { OnReadOpts, Socket } from 'node:net';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import type { PassiveConnection } from '../../src/cm/index.ts';
import type { ConnectionPolicy } from '../../src/mpa/policy.ts';
import { adopt } from '../../src/transport/adopt.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import { ACCESS, createWorkCompletion, type CompletionQueue, type QueuePair, type SendWorkRequest } from '../../src/verbs/index.ts';

/** What a pair of processes does. */
export interface Case {
  readonly kind: 'raw-onread' | 'raw-data' | 'write' | 'read' | 'send';
  readonly size: number;
  /** Requests in flight, or for bare TCP writes joined into one. */
  readonly depth?: number;
  /** Requests posted by one call, and chained to one signaled completion. */
  readonly batch?: number;
  readonly crc?: 'off' | 'required';
  readonly markers?: boolean;
  readonly emss?: number;
  /** One message each way at a time; the sender measures round trips. */
  readonly pingPong?: boolean;
  /** Bare TCP: how many writes become one writev. */
  readonly cork?: number;
  /** Bare TCP by `onread`: stay awake for so many microseconds after what has come, as the stack does. */
  readonly busyPoll?: number;
}

/** What a process says when it is asked. */
export interface Mark {
  readonly octets: number;
  readonly now: bigint;
  readonly cpu: number;
  /** Round trips since the last mark, microseconds. */
  readonly trips: number[];
}

export type Order =
  | { readonly t: 'serve'; readonly c: Case }
  | { readonly t: 'connect'; readonly c: Case; readonly port: number }
  | { readonly t: 'go' | 'stop' | 'mark' | 'exit' };

let octets = 0;
let trips: number[] = [];
let running = false;
let start: () => void = () => undefined;
let count: () => void = () => undefined;

function say(what: unknown): void {
  process.send!(what);
}

// ------------------------------------------------------------------------------------------------------------ bare TCP

const READ_OCTETS = 65_536;
const WRITES_A_TURN = 1024;

/** Every octet read goes to `take`; with `onread` into one buffer. */
function receiveBare(socket: Socket, c: Case, take: (socket: Socket, n: number) => void): void {
  if (c.kind === 'raw-data') {
    socket.setNoDelay(true).on('error', () => undefined).on('data', (chunk: Uint8Array) => take(socket, chunk.length));
    socket.resume();
    return;
  }
  const poll = new BusyPoll(c.busyPoll ?? 0);
  const onread: OnReadOpts = { buffer: new Uint8Array(READ_OCTETS), callback: (n) => (poll.arrived(n), take(own, n), true) };
  const { socket: own } = adopt(socket, onread);
  own.setNoDelay(true).on('error', () => undefined);
  own.resume();
}

function serveBare(c: Case): void {
  const payload = new Uint8Array(c.size);
  const take = (socket: Socket, n: number): void => {
    octets += n;
    if (c.pingPong === true) socket.write(payload);
  };
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) => receiveBare(socket, c, take));
  server.listen(0, '127.0.0.1', () => say({ port: (server.address() as { port: number }).port }));
}

function connectBare(c: Case, port: number): void {
  const payload = new Uint8Array(c.size).fill(7);
  let began = 0n;
  let back = 0;
  const got = (n: number): void => {
    back += n;
    if (c.pingPong !== true || back < c.size) return;
    back = 0;
    const now = process.hrtime.bigint();
    trips.push(Number(now - began) / 1000);
    began = now;
    if (running) socket.write(payload);
  };
  const onread: OnReadOpts = { buffer: new Uint8Array(READ_OCTETS), callback: (n) => (got(n), true) };
  const socket = connect({
    host: '127.0.0.1', port, noDelay: true, writableHighWaterMark: 1 << 20, ...(c.kind === 'raw-onread' ? { onread } : {}),
  } as never);
  if (c.kind === 'raw-data') socket.on('data', (chunk: Uint8Array) => got(chunk.length));
  const { cork = 1 } = c;
  const one = (): boolean => {
    if (cork === 1) return socket.write(payload);
    socket.cork();
    let more = true;
    for (let i = 0; i < cork; i++) more = socket.write(payload);
    socket.uncork();
    return more;
  };
  const pump = (): void => {
    // Small writes are taken at once as long as the peer reads: without a bound the loop would never hear an order again.
    for (let i = 0; i < WRITES_A_TURN; i++) if (!running || !one()) return;
    setImmediate(pump);
  };
  start = (): void => {
    began = process.hrtime.bigint();
    if (c.pingPong === true) socket.write(payload);
    else pump();
  };
  if (c.pingPong !== true) socket.on('drain', pump);
  socket.on('error', () => undefined).on('connect', () => say({ up: true }));
}

// ----------------------------------------------------------------------------------------------------------- the stack

const ALL: number = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE;
const MEMORY_OCTETS = 2 << 20;

function policyOf(c: Case): Partial<ConnectionPolicy> {
  return {
    crc: c.crc ?? 'required',
    markers: c.markers ?? false,
    ...(c.emss === undefined ? {} : { emss: c.emss }),
  };
}

interface End {
  readonly rnic: Rnic;
  readonly qp: QueuePair;
  readonly cq: CompletionQueue;
  readonly memory: ReturnType<QueuePair['pd']['registerMemory']>;
}

function openEnd(c: Case): End {
  const rnic = openRnic();
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(65_536);
  const depth = Math.max(64, 4 * (c.depth ?? 16));
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: depth, maxRecvWr: depth, signalAll: false });
  const memory = pd.registerMemory(new Uint8Array(Math.max(MEMORY_OCTETS, c.size)).fill(3), ALL);
  return { rnic, qp, cq, memory };
}

/** Poll until empty at every notification. */
function onCompletions(cq: CompletionQueue, take: (n: number, out: ReturnType<typeof createWorkCompletion>[]) => void): void {
  const out = Array.from({ length: 256 }, createWorkCompletion);
  cq.setHandler(() => {
    for (let n = cq.poll(out); n > 0; n = cq.poll(out)) take(n, out);
    cq.requestNotify();
  });
  cq.requestNotify();
}

async function serveStack(c: Case): Promise<void> {
  const end = openEnd(c);
  const { qp, cq, memory } = end;
  const receive = { sges: [{ mr: memory, offset: 0, length: c.size }] };
  const answer: SendWorkRequest = { opcode: 'send', sges: [{ mr: memory, offset: 0, length: c.size }] };
  if (c.kind === 'send') {
    // The sender keeps `depth` in flight; the receives are as many again, posted anew as they complete.
    for (let i = 0; i < qp.query().maxRecvWr; i++) qp.postRecv(receive);
    onCompletions(cq, (n, out) => {
      for (let i = 0; i < n; i++) {
        if (out[i]!.opcode !== 'receive') continue;
        qp.postRecv(receive);
        if (c.pingPong === true) qp.postSend(answer);
      }
    });
  }
  count = (): void => {
    const counters = qp.counters();
    octets = counters?.payloadIn ?? 0;
  };
  const listener = await end.rnic.cm.listen({ host: '127.0.0.1', port: 0, policy: policyOf(c) }, (request: PassiveConnection) => {
    request.setHandler(() => undefined);
    request.accept(qp, { privateData: new Uint8Array(new Uint32Array([memory.rkey]).buffer) });
  });
  say({ port: listener.address.port });
}

function requestOf(c: Case, end: End, rkey: number, signaled: boolean): SendWorkRequest {
  const sges = [{ mr: end.memory, offset: 0, length: c.size }];
  if (c.kind === 'send') return { opcode: 'send', sges, signaled };
  return { opcode: c.kind === 'read' ? 'rdma-read' : 'rdma-write', sges, rkey, remoteAddr: 0, signaled };
}

function connectStack(c: Case, port: number): void {
  const end = openEnd(c);
  const { qp, cq, memory } = end;
  const batch = c.batch ?? 1;
  let list: SendWorkRequest[] = [];
  const depth = Math.max(batch, c.depth ?? 16);
  let began = 0n;
  if (c.pingPong === true) for (let i = 0; i < 32; i++) qp.postRecv({ sges: [{ mr: memory, length: c.size }] });
  const trip = (): void => {
    const now = process.hrtime.bigint();
    trips.push(Number(now - began) / 1000);
    qp.postRecv({ sges: [{ mr: memory, length: c.size }] });
    began = now;
    if (running) qp.postSend(list);
  };
  onCompletions(cq, (n, out) => {
    for (let i = 0; i < n; i++) {
      if (c.pingPong === true) {
        if (out[i]!.opcode === 'receive') trip();
      } else {
        if (c.kind === 'read') octets += c.size * batch;
        if (running) qp.postSend(list);
      }
    }
  });
  const connection = end.rnic.cm.connect(qp, { host: '127.0.0.1', port, policy: policyOf(c) });
  connection.setHandler((event) => {
    if (event.type === 'disconnected') say({ lost: true });
    if (event.type !== 'established') return;
    const rkey = new Uint32Array(event.parameters.privateData.slice(0, 4).buffer)[0]!;
    list = Array.from({ length: batch }, (_, i) => requestOf(c, end, rkey, i === batch - 1 && c.pingPong !== true));
    say({ up: true });
  });
  start = (): void => {
    began = process.hrtime.bigint();
    for (let posted = 0; posted < (c.pingPong === true ? 1 : depth); posted += batch) qp.postSend(list);
  };
}

// ------------------------------------------------------------------------------------------------------------- orders

function mark(): void {
  count();
  const { user, system } = process.cpuUsage();
  const told: Mark = { octets, now: process.hrtime.bigint(), cpu: user + system, trips };
  trips = [];
  say(told);
}

process.on('message', (order: Order) => {
  switch (order.t) {
    case 'serve':
      if (order.c.kind === 'raw-onread' || order.c.kind === 'raw-data') serveBare(order.c);
      else void serveStack(order.c);
      break;
    case 'connect':
      if (order.c.kind === 'raw-onread' || order.c.kind === 'raw-data') connectBare(order.c, order.port);
      else connectStack(order.c, order.port);
      break;
    case 'go':
      running = true;
      start();
      break;
    case 'stop':
      running = false;
      break;
    case 'mark':
      mark();
      break;
    default:
      process.exit(0);
  }
});
process.on('disconnect', () => process.exit(0));
