/**
 * The rows of "Queue-Pair IP" (IRB-TR-02-002, 2002), which put the queue pairs of an adapter on plain UDP and
 * TCP. Here the wire `qpip` does, in software.
 */
import type { EngineKind } from '../../src/api/environment.ts';
import { sequential, start, WAYS, type RunningServer, type WayName } from '../nbd.ts';
import { ourRoundTrip as trpRoundTrip } from '../trp/rows.ts';
import type { Figures, Group, Paper, Part, Subject } from './paper.ts';
import { QPIP_CITE } from './names.ts';
import {
  bareDatagramRoundTrip,
  bareOverhead,
  bareRoundTrip,
  bareStream,
  ourDatagramRoundTrip,
  ourOverhead,
  ourRoundTrip,
  ourStream,
  startQpipPeer,
  type QpipPeer,
} from './qpip-ends.ts';
import { STAGE_NAMES, stageShares } from './qpip-stages.ts';
import { KIB, MIB, sizeText } from './sizes.ts';
import { pairs, together, TRIP_MS } from './subjects.ts';
import { trp } from './trp-peer.ts';

let running: Promise<QpipPeer> | null = null;
const peer = (): Promise<QpipPeer> => (running ??= startQpipPeer());
const servers = new Map<WayName, Promise<RunningServer>>();

/** Ends the processes of this paper's rows. */
export async function endQpip(): Promise<void> {
  await running?.then(({ end }) => end());
  running = null;
  for (const server of servers.values())
    await server.then(
      ({ child }) => child.kill('SIGKILL'),
      () => undefined,
    );
  servers.clear();
}

type Ports = QpipPeer['ports'];
const subject = (name: string, run: (ports: Ports) => Promise<number>): Subject => ({
  name,
  measure: async () => await run((await peer()).ports),
});

const ENGINES: readonly EngineKind[] = ['thread', 'worker'];

const figure3: Part = {
  id: 'qpip-3',
  row: 'fig. 3',
  title: 'round trip of 1 byte',
  there: '73 us over UDP, 113 us over TCP queue pairs',
  why:
    'The event loop of the stack stays awake for 50 us after bytes have come, that of a bare socket ' +
    'sleeps in ' +
    'the system; where bare sockets stay awake too, the rest is the work request and the completion.',
  *groups() {
    const unit = 'us a round trip';
    yield {
      ...{ panel: 'over TCP', at: '1 B', unit, base: 'net' },
      subjects: [
        subject('net', ({ echo }) => bareRoundTrip(echo)),
        subject('QPIP TCP', ({ echo }) => ourRoundTrip('thread', echo)),
        subject('QPIP TCP, worker', ({ echo }) => ourRoundTrip('worker', echo)),
        pairs('iWARP', 'send-echo', { size: 1 }, (client) => client.pingPong(TRIP_MS)),
      ],
    };
    yield {
      ...{ panel: 'over UDP', at: '1 B', unit, base: 'dgram' },
      subjects: [
        subject('dgram', bareDatagramRoundTrip),
        subject('QPIP UDP', ourDatagramRoundTrip),
        { name: 'TRP, 64 B', measure: async () => await trpRoundTrip('trp', (await trp()).ports) },
      ],
    };
    yield {
      ...{ panel: 'all awake', at: '1 B', unit, base: 'net, awake' },
      subjects: [
        subject('net, awake', ({ awake }) => bareRoundTrip(awake, true)),
        ...ENGINES.flatMap((engine) => [
          subject(`${engine}, to a bare peer`, ({ awake }) => ourRoundTrip(engine, awake)),
          subject(`${engine}, at both ends`, (ports) => ourRoundTrip(engine, ports[engine])),
        ]),
      ],
      goals: ENGINES.flatMap((engine) =>
        [`${engine}, to a bare peer`, `${engine}, at both ends`].map((of) => ({
          ...{ of, to: 'net, awake', words: 'at most' as const, goal: 1.1 },
        })),
      ),
    };
  },
};

const figure4: Part = {
  id: 'qpip-4',
  row: 'fig. 4',
  title: 'one stream in writes of 16 KiB (ttcp)',
  there: '75.6 MB/s with an MTU of 16 KB, 70.1 with 9000 and 35.4 with 1500 bytes, under 1 % of the CPU',
  why:
    'QPIP puts no header on the stream, so that it costs the same as sockets but for requests and ' +
    'completions; ' +
    'iWARP cuts each message into FPDUs, and the smaller they are, the more headers are made and checked.',
  headline: ['QPIP', 'QPIP, worker', 'iWARP, FPDU 1460', 'iWARP, FPDU 64 K'],
  lacks: ['No adapter takes the work from the processors: the CPU time beside each rate is of both ends.'],
  *groups() {
    for (const [mb, total] of [
      [10, 10 * MIB],
      [100, 100 * MIB],
    ] as const)
      yield {
        ...{ panel: 'writes of 16 KiB', at: `${mb} MiB`, unit: 'MB/s', base: 'net' },
        subjects: [
          subject('net', (ports) => bareStream(ports, total, 16 * KIB)),
          subject('QPIP', (ports) => ourStream('thread', ports, total, 16 * KIB)),
          subject('QPIP, worker', (ports) => ourStream('worker', ports, total, 16 * KIB)),
          ...[
            ['1460', 1460],
            ['8960', 8960],
            ['16 K', 16_384],
            ['64 K', 65_483],
          ].map(([name, fpdu]) =>
            pairs(`iWARP, FPDU ${name}`, 'writes', { size: 16 * KIB, fpdu: Number(fpdu) }, async (client) => {
              const count = total / (16 * KIB);
              return total / 1000 / (await client.writes(count));
            }),
          ),
        ],
      };
    yield {
      ...{ panel: 'writes of 64 KiB', at: '400 MiB', unit: 'MB/s', base: 'net', mostRounds: 3 },
      subjects: [
        subject('net', (ports) => bareStream(ports, 400 * MIB, 64 * KIB)),
        subject('QPIP', (ports) => ourStream('thread', ports, 400 * MIB, 64 * KIB)),
        subject('QPIP, worker', (ports) => ourStream('worker', ports, 400 * MIB, 64 * KIB)),
      ],
      goals: ['QPIP', 'QPIP, worker'].map((of) => ({ of, to: 'net', words: 'at least', goal: 0.95 })),
    };
  },
};

const table1: Part = {
  id: 'qpip-table-1',
  row: 'table 1',
  title: "the program's thread for a message of 1 byte",
  there: '29.9 us by sockets, 2.5 us by QPIP',
  why:
    'A post is a check and an entry of a queue, and posts of one turn share a write; a socket write ' +
    'is a call ' +
    'of the system for each, and with a worker nothing else is left to the thread.',
  *groups() {
    yield {
      ...{ panel: 'one message', at: '1 B', unit: 'us', base: 'socket.write' },
      subjects: [
        subject('socket.write', bareOverhead),
        subject('post, thread', (ports) => ourOverhead('thread', ports)),
        subject('post, worker', (ports) => ourOverhead('worker', ports)),
      ],
    };
  },
};

const tables23: Part = {
  id: 'qpip-tables-2-3',
  row: 'tables 2 and 3',
  title: 'the stages of a message',
  there:
    'sending: doorbell 1, schedule 2, get WR 5.5, get data 4.5, TCP header 5, IP 1, send 1, update 1.5 us; ' +
    'receiving: parse 7, put 4.5, update 1.5 us',
  why:
    'The stages of a small message are of one size, as on the adapter; with a large one the calls of the ' +
    'system that copy it into the socket and out of it have nearly all of its time.',
  lacks: ['Shares of one thread, by a sampling profiler: a ratio to a base would say nothing.'],
  *groups() {
    for (const wire of ['qpip', 'iwarp'] as const)
      for (const [octets, count] of [
        [1, 60_000],
        [4 * KIB, 40_000],
        [64 * KIB, 8000],
      ] as const)
        yield {
          ...{ panel: `stages, ${wire}`, at: sizeText(octets), unit: '% of the time', base: null },
          ...{ cold: true, cpu: false },
          subjects: together(STAGE_NAMES, () => stageShares(wire, octets, count)),
        };
  },
  conclude(results) {
    const shares = results.map(({ panel, at, rows }) => {
      const most = rows.toSorted((a, b) => b.figure.median - a.figure.median).slice(0, 3);
      const said = most.map(({ name, figure }) => `${name} ${figure.median.toFixed(0)} %`).join(', ');
      return `${panel.replace('stages, ', '')} ${at}: ${said}`;
    });
    return `the three largest shares: ${shares.join('; ')}`;
  },
};

/** Requests of one figure at most: the paper's 409 MB where they are of 64 KiB and more. */
const MOST_REQUESTS = 6242;
/** Bytes of a request, and requests under way; a long run has more of them. */
const NBD_LOADS = [
  [4 * KIB, 1],
  [64 * KIB, 8],
  [MIB, 64],
] as const;
const NBD_MORE = [
  [4 * KIB, 64],
  [MIB, 1],
] as const;
const LONG_RUN = 5;
const NBD_WAYS: readonly WayName[] = ['tcp', 'nbdkit', 'qpip', 'messageBare', 'directBare'];

const figure7: Part = {
  id: 'qpip-7',
  row: 'fig. 7',
  title: 'a network block device, 409 MB in order',
  there: '40 to 137 % more throughput than NBD over sockets, and up to 133 % more MB for a second of CPU',
  why:
    'The paper took TCP off the processor, and here it stays: queue pairs save the copies between ' +
    'request and ' +
    "memory and add the work of a protocol in JavaScript, and nbdkit's is in C.",
  headline: ['nbdkit', 'qpip', 'message, no CRC', 'direct, no CRC'],
  lacks: [
    'ext2 in a guest: the guest has one emulated processor, so that its driver and the server would ' +
      'wait for each other and its figure would be of the emulation.',
    'A figure has at most 6,242 requests, so that one of 4 KiB is for 26 MB; with five ' +
      'rounds and more there are more loads.',
  ],
  *groups(rounds) {
    const quantities = [
      ['rate', 'MB/s'],
      ['perCpu', 'MB for a CPU-second of the server'],
    ] as const;
    for (const kind of ['read', 'write'] as const)
      for (const [request, depth] of rounds < LONG_RUN ? NBD_LOADS : [...NBD_LOADS, ...NBD_MORE])
        yield {
          ...{
            panel: kind,
            at: `${sizeText(request)}, depth ${depth}`,
            unit: 'MB/s',
            cpu: false,
            mostRounds: 5,
          },
          base: WAYS.tcp.label,
          quantities: quantities.map(([key, unit]) => ({ key, panel: `${kind}, ${unit}`, unit })),
          subjects: NBD_WAYS.map((name) => ({
            name: WAYS[name].label,
            measure: async () => await blockDevice(name, kind, request, depth),
          })),
        } satisfies Group;
  },
};

async function blockDevice(
  name: WayName,
  kind: 'read' | 'write',
  request: number,
  depth: number,
): Promise<Figures> {
  let server = servers.get(name);
  if (server === undefined) servers.set(name, (server = start(name)));
  return { ...(await sequential(await server, kind, request, depth, MOST_REQUESTS)) };
}

/** The paper's parts. */
export const QPIP: Paper = {
  id: 'qpip',
  title: 'QPIP',
  cite: QPIP_CITE,
  parts: [figure3, figure4, table1, tables23, figure7],
};
