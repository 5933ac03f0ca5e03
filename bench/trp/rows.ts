/**
 * Rows over loopback: iWARP over UDP beside `node:dgram` and iWARP over TCP, each with a peer in another
 * process. Bare sockets stay awake after an arrival for as long as ours do. Each row alternates, and prints
 * the median of the ratios.
 */
import { createSocket, type Socket } from 'node:dgram';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { BusyPoll } from '../../src/transport/busy-poll.ts';
import { ACCESS, type QueuePair, type WorkCompletion } from '../../src/verbs/index.ts';
import { median, ratios } from '../stats.ts';

const ROUND_TRIPS = 5_000;
const DATAGRAMS = 40_000;
/** Datagrams that the bare sender has out: one octet back for each half of them. */
const BARE_WINDOW = 128;
const SIZE = 64;
type Wire = 'trp' | 'iwarp';
type Role = 'echo' | 'sink';

/** The ports of the other process. */
export interface Ports {
  readonly echo: number;
  readonly sink: number;
  /** Of the figures over sizes. */
  readonly bareSink: number;
  readonly trp: Readonly<Record<Role, number>>;
  readonly iwarp: Readonly<Record<Role, number>>;
}

/**
 * Microseconds for which both ends stay awake, ours and the bare ones: with the stack's 50 a round trip that
 * takes longer once lets either fall asleep, and the row shows how the system wakes processes.
 */
const AWAKE_US = 1000;
const poll = new BusyPoll(AWAKE_US);

/** A bare socket that stays awake after an arrival for as long as ours do. */
export function awake(socket: Socket, heard: (data: Buffer, port: number) => void): Socket {
  return socket.on('message', (data, { port }) => {
    poll.arrived(data.length);
    heard(data, port);
  });
}

/** A socket that looks no address up. */
export const bare = (): Socket =>
  createSocket({ type: 'udp4', lookup: (name, _options, found) => found(null, name, 4) });

// ------------------------------------------------------------------------------------------------------ peer

async function bound(socket: Socket): Promise<number> {
  await new Promise<void>((resolve) => void socket.bind(0, '127.0.0.1', resolve));
  return socket.address().port;
}

/** A queue pair whose completions go to `each`; receives are posted again after each. */
function endpoint(
  rnic: Rnic,
  each: (wc: WorkCompletion, qp: QueuePair) => void,
): { qp: QueuePair; post: Post } {
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(4096);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: 1024, maxSendWr: 1024 });
  const mr = pd.registerMemory(rnic.device.allocateMemory(65_536), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
  const receive = (): void => {
    qp.postRecv({ sges: [{ mr, length: SIZE }] });
  };
  for (let i = 0; i < 1000; i++) receive();
  const out: WorkCompletion[] = [];
  cq.setHandler(() => {
    do {
      for (let n = cq.poll(out, 64); n > 0; n = cq.poll(out, 64)) {
        for (let i = 0; i < n; i++) {
          if (out[i]!.status !== 'success') return;
          if (out[i]!.opcode === 'receive') receive();
          each(out[i]!, qp);
        }
      }
      cq.requestNotify();
    } while (cq.length > 0);
  });
  cq.requestNotify();
  const post: Post = (signaled) => {
    qp.postSend({ opcode: 'send', sges: [{ mr, length: SIZE }], signaled });
  };
  return { qp, post };
}

type Post = (signaled: boolean) => void;

async function serve(wire: Wire, role: Role): Promise<number> {
  const rnic = openRnic({ wire, busyPoll: AWAKE_US });
  const listener = await rnic.cm.listen({ host: '127.0.0.1', policy: { crc: 'off' } }, (request) => {
    const { qp, post } = endpoint(rnic, ({ opcode }) => {
      if (role === 'echo' && opcode === 'receive') post(false);
    });
    request.setHandler((event) => event.type === 'disconnected' && qp.destroy());
    request.accept(qp);
  });
  return listener.address.port;
}

/** In the other process: servers of all rows, and their ports. */
export async function servePorts(): Promise<Omit<Ports, 'bareSink'>> {
  const echo = awake(bare(), (data, port) => echo.send(data, port, '127.0.0.1'));
  let count = 0;
  const octet = Buffer.alloc(1);
  const sink = awake(bare(), (_data, port) => {
    if (++count % (BARE_WINDOW / 2) === 0) sink.send(octet, port, '127.0.0.1');
  });
  const both = async (wire: Wire): Promise<Record<Role, number>> => ({
    echo: await serve(wire, 'echo'),
    sink: await serve(wire, 'sink'),
  });
  return {
    echo: await bound(echo),
    sink: await bound(sink),
    trp: await both('trp'),
    iwarp: await both('iwarp'),
  };
}

// ------------------------------------------------------------------------------------------------------ rows

async function bareRoundTrip({ echo }: Ports): Promise<number> {
  const data = Buffer.alloc(SIZE);
  let count = 0;
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const socket = awake(bare(), () => (++count < ROUND_TRIPS ? send() : done()));
  const send = (): void => socket.send(data, echo, '127.0.0.1');
  const began = performance.now();
  send();
  await finished;
  const taken = performance.now() - began;
  socket.close();
  return (taken * 1000) / ROUND_TRIPS;
}

async function bareRate({ sink }: Ports): Promise<number> {
  const data = Buffer.alloc(SIZE);
  let sent = 0;
  let answered = 0;
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const socket = awake(bare(), () => {
    answered += BARE_WINDOW / 2;
    if (answered >= DATAGRAMS) done();
    else more();
  });
  const more = (): void => {
    for (; sent < Math.min(DATAGRAMS, answered + BARE_WINDOW); sent++) socket.send(data, sink, '127.0.0.1');
  };
  const began = performance.now();
  more();
  await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, 10_000))]);
  const taken = performance.now() - began;
  socket.close();
  return answered / taken;
}

async function connected(
  wire: Wire,
  port: number,
  each: (wc: WorkCompletion) => void,
): Promise<{ post: Post; close: () => void }> {
  const rnic = openRnic({ wire, busyPoll: AWAKE_US });
  const { qp, post } = endpoint(rnic, each);
  const connection = rnic.cm.connect(qp, { host: '127.0.0.1', port, policy: { crc: 'off' } });
  await new Promise<void>((resolve) =>
    connection.setHandler((event) => event.type === 'established' && resolve()),
  );
  return { post, close: () => connection.disconnect() };
}

export async function ourRoundTrip(wire: Wire, ports: Ports): Promise<number> {
  let count = 0;
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const ours = await connected(wire, ports[wire].echo, ({ opcode }) => {
    if (opcode !== 'receive') return;
    if (++count < ROUND_TRIPS) ours.post(false);
    else done();
  });
  const began = performance.now();
  ours.post(false);
  await finished;
  const taken = performance.now() - began;
  ours.close();
  return (taken * 1000) / ROUND_TRIPS;
}

async function ourRate(wire: Wire, ports: Ports): Promise<number> {
  let sent = 0;
  let done = (): void => undefined;
  let completed = 0;
  const finished = new Promise<void>((resolve) => (done = resolve));
  // One completion for 32 Sends, as programs that want rate have it.
  const more = (): void => {
    for (let i = 0; i < 32; i++) ours.post(i === 31);
    sent += 32;
  };
  const ours = await connected(wire, ports[wire].sink, () => {
    completed += 32;
    if (completed >= DATAGRAMS) done();
    else if (sent < DATAGRAMS) more();
  });
  const began = performance.now();
  for (let i = 0; i < 16; i++) more();
  await finished;
  const taken = performance.now() - began;
  ours.close();
  return completed / taken;
}

interface Row {
  readonly label: string;
  readonly unit: string;
  readonly ours: (ports: Ports) => Promise<number>;
  readonly other: (ports: Ports) => Promise<number>;
}

const ROWS: readonly Row[] = [
  {
    label: 'round trip of 64 B, to dgram',
    unit: 'us',
    ours: (p) => ourRoundTrip('trp', p),
    other: bareRoundTrip,
  },
  {
    label: 'round trip of 64 B, to iWARP over TCP',
    unit: 'us',
    ours: (p) => ourRoundTrip('trp', p),
    other: (p) => ourRoundTrip('iwarp', p),
  },
  { label: 'Sends of 64 B, to dgram', unit: 'k/s', ours: (p) => ourRate('trp', p), other: bareRate },
];

/** Print all rows. */
export async function rows(ports: Ports, rounds: number): Promise<void> {
  console.log(`${'row'.padEnd(42)} ${'ours'.padStart(9)} ${'other'.padStart(9)}       ours / other`);
  for (const { label, unit, ours, other } of ROWS) {
    const [a, b]: [number[], number[]] = [[], []];
    for (let round = 0; round <= rounds; round++) {
      const [our, theirs] = [await ours(ports), await other(ports)];
      if (round === 0) continue; // warms both
      a.push(our);
      b.push(theirs);
    }
    const ratio = median(ratios(a, b));
    const cells = [median(a), median(b)].map((value) => value.toFixed(1).padStart(9));
    console.log(`${label.padEnd(42)} ${cells.join(' ')} ${unit.padEnd(5)} ${ratio.toFixed(2)}`);
  }
}
