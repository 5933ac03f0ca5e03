/**
 * The wire `shm` beside bare `node:net`, both between the main thread and a worker of one process:
 * `npx tsx bench/shm.ts [ROUNDS]`. Each row alternates ours and bare, and prints the median of the ratios,
 * their quartiles, and the goal if it has one. Bare sockets send from and deliver into as much memory as the
 * Writes do. In the rows of round trips their event loops stay awake, which is the most that they can: bytes
 * of a socket are only seen in a turn. Ours poll the completion queue without a turn, or stay awake
 * too.
 */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type OnReadOpts, type Socket } from 'node:net';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { openRnic, type Rnic } from '../src/api/environment.ts';
import { BusyPoll } from '../src/transport/busy-poll.ts';
import {
  ACCESS,
  createWorkCompletion,
  type CompletionQueue,
  type QueuePair,
  type WorkCompletion,
} from '../src/verbs/index.ts';
import { adopt } from '../src/transport/adopt.ts';
import { handleAll } from './completions.ts';
import { DistanceWatch } from './distance.ts';
import { spread } from './stats.ts';

const PIECE = 1 << 20;
const PIECES = 16;
const OCTETS = 256 * PIECE;
const OUR_OCTETS = 1024 * PIECE;
const ROUND_TRIPS = 10_000;
const SMALL = 64;
/** How long an event loop stays awake after something has come: the default of the stack. */
const AWAKE_US = 50;

// ------------------------------------------------------------------------------------------------ both sides

/** An `onread` into these buffers in turn, which keeps the event loop awake. */
function onreadInto(memory: readonly Buffer[], heard: (octets: number) => void): OnReadOpts {
  const poll = new BusyPoll(AWAKE_US);
  let next = 0;
  return {
    buffer: () => memory[next++ % memory.length]!,
    callback: (octets) => {
      poll.arrived(octets);
      heard(octets);
      return true;
    },
  };
}

const buffers = (): Buffer[] => Array.from({ length: PIECES }, () => Buffer.alloc(PIECE));

interface Side {
  readonly qp: QueuePair;
  readonly cq: CompletionQueue;
  receive(): void;
  send(octets?: number): void;
  /** Write piece `i` to the memory of the other end. */
  write(i: number, rkey: number): void;
  /** Called for each receive. */
  arrived: () => void;
  /** Called for each Write. */
  written: () => void;
}

/** A queue pair with memory: pieces to Write from or to, and a small buffer behind them. */
function side(rnic: Rnic): Side & { readonly stag: number } {
  const { device } = rnic;
  const pd = device.allocatePd();
  const cq = device.createCq(256);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: 64, maxSendWr: 64 });
  const mr = pd.registerMemory(
    device.allocateMemory(PIECES * PIECE + 2 * SMALL),
    ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE,
  );
  const offset = PIECES * PIECE;
  const self: Side & { readonly stag: number } = {
    qp,
    cq,
    stag: mr.rkey,
    receive: () => qp.postRecv({ sges: [{ mr, offset, length: SMALL }] }),
    send: (length = SMALL) =>
      qp.postSend({ opcode: 'send', sges: [{ mr, offset: offset + SMALL, length }], signaled: false }),
    write: (i, rkey) =>
      qp.postSend({
        opcode: 'rdma-write',
        sges: [{ mr, offset: i * PIECE, length: PIECE }],
        rkey,
        remoteAddr: i * PIECE,
      }),
    arrived: () => undefined,
    written: () => undefined,
  };
  for (let i = 0; i < 32; i++) self.receive();
  return self;
}

/** Completions come in turns of the event loop, which stays awake. */
function byTurns(end: Side): void {
  handleAll(end.cq, ({ opcode, status }) => {
    if (status !== 'success') return;
    if (opcode === 'receive') end.arrived();
    else end.written();
  });
}

/**
 * Polls without a turn of the event loop, until `arrived` says so: each message is received, and the next one
 * sent.
 */
function spin(end: Side, arrived: (wc: WorkCompletion) => boolean): void {
  const out = Array.from({ length: 16 }, createWorkCompletion);
  for (let goesOn = true; goesOn; ) {
    const count = end.cq.poll(out);
    for (let i = 0; i < count && goesOn; i++) {
      if (out[i]!.status !== 'success') throw new Error(`a message has ended with ${out[i]!.status}`);
      goesOn = arrived(out[i]!);
      // The answer goes out first: there are receives enough for the next message.
      if (goesOn) end.send();
      end.receive();
    }
  }
}

// -------------------------------------------------------------------------------------------- the worker

/** Bare: 64 bytes are answered with as many, and the stream of the bulk row with one byte at its end. */
function answerBare(accepted: Socket, memory: readonly Buffer[]): void {
  const back = Buffer.alloc(SMALL);
  let left = 0;
  let asked = false;
  const { buffer, callback } = onreadInto(memory, (octets) => {
    if (left === 0 && octets === SMALL) return void socket.write(back);
    if (left === 0) left = OCTETS;
    left -= octets;
    if (left === 0) socket.write('.');
  });
  const named = (): Uint8Array => {
    asked = true;
    return (buffer as () => Uint8Array)();
  };
  const { socket, userBuffer } = adopt(accepted, { buffer: named, callback }, () => asked);
  if (!userBuffer) throw new Error('accepted sockets cannot read into a buffer on this version of Node');
  socket.on('error', () => undefined).setNoDelay(true);
  socket.resume();
}

async function serve(): Promise<void> {
  const memory = buffers();
  const rnic = openRnic({ wire: 'shm', busyPoll: AWAKE_US });
  const listen = (path: string, serveOn: (end: Side) => void): Promise<unknown> =>
    rnic.cm.listen({ path }, (request) => {
      const end = side(rnic);
      serveOn(end);
      request.setHandler(() => undefined);
      request.accept(end.qp, { privateData: new Uint8Array(Uint32Array.of(end.stag).buffer) });
    });
  await listen('bench', (end) => {
    end.arrived = () => {
      end.receive();
      end.send();
    };
    byTurns(end);
  });
  // The first message is found by a turn, and what follows it by polling, up to one of another length.
  await listen('bench, polling', (end) => {
    end.cq.setHandler(() => {
      spin(end, ({ byteLength }) => byteLength === SMALL);
      end.cq.requestNotify();
    });
    end.cq.requestNotify();
  });
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) =>
    answerBare(socket, memory),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  parentPort!.postMessage((server.address() as AddressInfo).port);
}

// ------------------------------------------------------------------------------------------------------ bare

async function dial(port: number, heard: (octets: number) => void): Promise<Socket> {
  const socket = connect({
    port,
    host: '127.0.0.1',
    noDelay: true,
    onread: onreadInto([Buffer.alloc(65_536)], heard),
  });
  await once(socket, 'connect');
  return socket;
}

/** Called by what arrives; a promise for the last of `count`. */
function counter(count: number): { one: () => boolean; done: Promise<void> } {
  let left = count;
  let finish = (): void => undefined;
  const done = new Promise<void>((resolve) => (finish = resolve));
  const one = (): boolean => {
    if (--left === 0) finish();
    return left > 0;
  };
  return { one, done };
}

/** MB/s. */
async function bareBulk(port: number): Promise<number> {
  const { one, done } = counter(1);
  const socket = await dial(port, () => void one());
  const memory = buffers();
  const began = performance.now();
  for (let i = 0; i * PIECE < OCTETS; i++)
    if (!socket.write(memory[i % PIECES]!)) await once(socket, 'drain');
  await done;
  const taken = performance.now() - began;
  socket.destroy();
  return OCTETS / 1000 / taken;
}

/** The times of round trips, which are over after some. As in `iwarp bench`, their median counts. */
class Trips {
  readonly #times = new Float64Array(ROUND_TRIPS);
  #count = 0;
  #last = performance.now();

  /** One is over; true while another one is to follow. */
  over(): boolean {
    const now = performance.now();
    this.#times[this.#count++] = now - this.#last;
    this.#last = now;
    return this.#count < ROUND_TRIPS;
  }

  /** Microseconds. */
  median(): number {
    return this.#times.sort()[ROUND_TRIPS / 2]! * 1000;
  }
}

async function bareRoundTrip(port: number): Promise<number> {
  const bytes = Buffer.alloc(SMALL);
  let trips = new Trips();
  let finish = (): void => undefined;
  const done = new Promise<void>((resolve) => (finish = resolve));
  const socket = await dial(port, () => void (trips.over() ? socket.write(bytes) : finish()));
  trips = new Trips();
  socket.write(bytes);
  await done;
  socket.destroy();
  return trips.median();
}

// ------------------------------------------------------------------------------------------------------ ours

interface Ours extends Side {
  /** The memory at the other end. */
  readonly rkey: number;
}

async function connected(path: string): Promise<Ours> {
  const rnic = openRnic({ wire: 'shm', busyPoll: AWAKE_US });
  const end = side(rnic);
  const connection = rnic.cm.connect(end.qp, { path });
  const rkey = await new Promise<number>((resolve) =>
    connection.setHandler((event) => {
      if (event.type === 'established')
        resolve(new Uint32Array(event.parameters.privateData.slice(0, 4).buffer)[0]!);
    }),
  );
  return Object.assign(end, { rkey });
}

/** MB/s: a Write is over when its bytes are in their place. */
async function ourBulk(ours: Ours): Promise<number> {
  const count = OUR_OCTETS / PIECE;
  const { one, done } = counter(count);
  let posted = 0;
  const post = (): void => {
    if (posted < count) ours.write(posted++ % PIECES, ours.rkey);
  };
  ours.written = () => void (one() && post());
  const began = performance.now();
  for (let i = 0; i < PIECES; i++) post();
  await done;
  return OUR_OCTETS / 1000 / (performance.now() - began);
}

async function ourRoundTrip(ours: Ours): Promise<number> {
  const trips = new Trips();
  await new Promise<void>((resolve) => {
    ours.arrived = () => {
      ours.receive();
      if (trips.over()) ours.send();
      else resolve();
    };
    ours.send();
  });
  return trips.median();
}

async function ourSpin(ours: Ours): Promise<number> {
  const trips = new Trips();
  ours.send();
  spin(ours, () => trips.over());
  ours.send(1);
  return trips.median();
}

// ------------------------------------------------------------------------------------------------------ rows

interface Row {
  readonly label: string;
  readonly unit: string;
  /** Where the other end listens. */
  readonly path: string;
  readonly ours: (ours: Ours) => Promise<number>;
  readonly bare: (port: number) => Promise<number>;
  readonly goal?: { readonly text: string; readonly isMet: (ratio: number) => boolean };
}

const ROWS: readonly Row[] = [
  {
    label: 'Writes of 1 MiB, thread to thread',
    unit: 'MB/s',
    path: 'bench',
    ours: ourBulk,
    bare: bareBulk,
    goal: { text: '>= 4.0', isMet: (ratio) => ratio >= 4 },
  },
  {
    label: 'round trip of 64 bytes, both polling',
    unit: 'us',
    path: 'bench, polling',
    ours: ourSpin,
    bare: bareRoundTrip,
    goal: { text: '<= 0.15', isMet: (ratio) => ratio <= 0.15 },
  },
  {
    label: 'round trip of 64 bytes, both awake',
    unit: 'us',
    path: 'bench',
    ours: ourRoundTrip,
    bare: bareRoundTrip,
  },
];

async function measure(rounds: number): Promise<void> {
  const watch = await DistanceWatch.open();
  // A worker does not inherit the loader of TypeScript in every Node.
  const program = `import('tsx/esm/api')
    .then(({ register }) => register())
    .then(() => import('${import.meta.url}'))`;
  const worker = new Worker(program, { eval: true, execArgv: [] });
  const [port] = (await once(worker, 'message')) as [number];
  const byLoop = await connected('bench');
  byTurns(byLoop);
  const connections = new Map([
    ['bench', byLoop],
    ['bench, polling', await connected('bench, polling')],
  ]);
  for (const { label, unit, path, ours, bare, goal } of ROWS) {
    const connection = connections.get(path)!;
    const [a, b]: [number[], number[]] = [[], []];
    for (let round = 0; round <= rounds; round++) {
      watch?.look();
      const [our, theirs] = [await ours(connection), await bare(port)];
      if (round === 0) continue; // warms both
      a.push(our);
      b.push(theirs);
    }
    const ratios = spread(a.map((value, i) => value / b[i]!));
    const cells = [a, b].map((values) => spread(values).median.toFixed(1).padStart(9)).join(' ');
    const range = `${ratios.median.toFixed(3)}  ${ratios.low.toFixed(3)} to ${ratios.high.toFixed(3)}`;
    const verdict =
      goal === undefined ? '' : `  ${goal.text} ${goal.isMet(ratios.median) ? 'met' : 'missed'}`;
    console.log(`${label.padEnd(40)} ${cells} ${unit.padEnd(5)} ${range}${verdict}`);
  }
  if (watch !== null) console.log(`the processors see each other after ${watch.usual().toFixed(0)} ns`);
  watch?.close();
  await worker.terminate();
  process.exit();
}

if (isMainThread) await measure(Number(process.argv[2] ?? 9));
else await serve();
