/**
 * The figure that the OSU report promised: what becomes of a segment that arrives above a hole. Three
 * receivers on one simulated link, under virtual time: placement before a segment's turn, datagrams that wait
 * for their turn in memory of the stack, and iWARP over a byte stream, where octets wait below MPA. All have
 * the same window and repair losses alike.
 */
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { MemoryDatagrams, type MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import type { TrpStream } from '../../src/trp/stream.ts';
import { ACCESS, type QueuePair, type WorkCompletion } from '../../src/verbs/index.ts';
import { StreamTransport } from './byte-stream.ts';

/** 100 Mb/s, a millisecond each way, a buffer for as much as is under way. */
const LINK: MemoryDatagramOptions = { latency: 1, bandwidth: 12_500, queue: 256_000 };
const WINDOW = 128;
const MESSAGE = 65_536;
const MESSAGES = 96;
const RIGHTS = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE;
const LIMIT_MS = 600_000;

/** The three receivers. */
export const RECEIVERS = ['placing', 'ordered', 'byte stream'] as const;
type ReceiverName = (typeof RECEIVERS)[number];

/** One run. */
export interface LabResult {
  readonly receiver: ReceiverName;
  /** Percent. */
  readonly loss: number;
  readonly reordering: number;
  /** Mean milliseconds of a segment from its arrival to its place, and to its turn. */
  readonly placement: number;
  readonly turn: number;
  /** MB/s of payload. */
  readonly goodput: number;
  /** Bytes of segments that waited in the stack's memory, at most. */
  readonly held: number;
}

interface Side {
  readonly rnic: Rnic;
  readonly qp: QueuePair;
  readonly poll: () => WorkCompletion[];
}

function side(rnic: Rnic): Side {
  const pd = rnic.device.allocatePd();
  const cq = rnic.device.createCq(4096);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 2 * MESSAGES });
  const poll = (): WorkCompletion[] => {
    const out: WorkCompletion[] = [];
    cq.poll(out, 1024);
    return out;
  };
  return { rnic, qp, poll };
}

/** Two connected sides on one link, and counters of the side that receives. */
interface Lab {
  readonly time: VirtualTime;
  readonly client: Side;
  readonly server: Side;
  readonly waits: () => Pick<LabResult, 'placement' | 'turn' | 'held'>;
}

function runUntil(time: VirtualTime, done: () => boolean): void {
  while (!done() && time.now() < LIMIT_MS && time.step());
}

function openLab(receiver: ReceiverName, options: MemoryDatagramOptions): Lab {
  const time = new VirtualTime();
  const network = new MemoryDatagrams(time, { ...LINK, ...options, disorder: 2 });
  const transport = new StreamTransport(time, network, WINDOW);
  const open = (): Rnic =>
    receiver === 'byte stream'
      ? openRnic({ transport, scheduler: time })
      : openRnic({
          wire: 'trp',
          datagrams: network,
          scheduler: time,
          trp: { receiver, window: WINDOW, mtu: 1500 },
        });
  const [client, server] = [side(open()), side(open())];
  let trp: TrpStream | null = null;
  const policy = { crc: 'off' as const };
  void server.rnic.cm.listen({ port: 7000, host: '127.0.0.1', policy }, (request) => {
    request.accept(server.qp);
    if (receiver !== 'byte stream') trp = (request as unknown as { link: { stream: TrpStream } }).link.stream;
  });
  time.advance(0);
  client.rnic.cm.connect(client.qp, { host: '127.0.0.1', port: 7000, policy });
  runUntil(time, () => client.qp.state === 'rts' && server.qp.state === 'rts');
  const waits: Lab['waits'] = () => {
    if (receiver === 'byte stream') {
      const { segments, delay, mostHeld } = transport.accepted[0]!.counters;
      return { placement: delay / segments, turn: delay / segments, held: mostHeld };
    }
    const { received, placementDelay, turnDelay, mostHeld } = trp!.trp;
    return { placement: placementDelay / received, turn: turnDelay / received, held: mostHeld };
  };
  return { time, client, server, waits };
}

/** 6 MiB of RDMA Writes, and a Send behind them that says so. */
export function runLab(receiver: ReceiverName, loss: number, reordering: number, seed: number): LabResult {
  const options = { seed, loss: loss / 100, reordering: reordering / 100 };
  const { time, client, server, waits } = openLab(receiver, options);
  const target = server.qp.pd.registerMemory(new Uint8Array(MESSAGE), RIGHTS);
  const source = client.qp.pd.registerMemory(new Uint8Array(MESSAGE), RIGHTS);
  server.qp.postRecv({ wrId: 1, sges: [{ mr: target, length: 1 }] });
  const began = time.now();
  for (let i = 0; i < MESSAGES; i++) {
    const sges = [{ mr: source, length: MESSAGE }];
    const { addr: remoteAddr, rkey } = target;
    client.qp.postSend({ opcode: 'rdma-write', sges, remoteAddr, rkey, signaled: false });
  }
  client.qp.postSend({ opcode: 'send', sges: [{ mr: source, length: 1 }] });
  runUntil(time, () => server.poll().length > 0);
  const goodput = (MESSAGES * MESSAGE) / (time.now() - began) / 1000;
  return { receiver, loss, reordering, goodput, ...waits() };
}

/** Points of the two sweeps, percent. */
export const LOSSES = [0, 0.1, 0.5, 1, 2, 5] as const;
export const REORDERINGS = [0, 1, 2, 5, 10] as const;

/** Both sweeps, each point the mean of several seeds. */
export function figure(seeds: number): { loss: LabResult[]; reordering: LabResult[] } {
  const point = (receiver: ReceiverName, loss: number, reordering: number): LabResult => {
    const runs = Array.from({ length: seeds }, (_, i) => runLab(receiver, loss, reordering, i + 1));
    const mean = (of: (run: LabResult) => number): number =>
      runs.reduce((sum, run) => sum + of(run), 0) / runs.length;
    return {
      receiver,
      loss,
      reordering,
      placement: mean((run) => run.placement),
      turn: mean((run) => run.turn),
      goodput: mean((run) => run.goodput),
      held: mean((run) => run.held),
    };
  };
  return {
    loss: RECEIVERS.flatMap((receiver) => LOSSES.map((loss) => point(receiver, loss, 0))),
    reordering: RECEIVERS.flatMap((receiver) => REORDERINGS.map((share) => point(receiver, 0, share))),
  };
}
