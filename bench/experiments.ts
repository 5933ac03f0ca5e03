/**
 * The measurements between two processes: the short run's goals, the full run's sweeps, and one experiment
 * put together on the command line.
 */
import { isStream, type Layer } from './cases.ts';
import type { Case, CaseSpec, EngineKind, Experiment, Group, PeerKind, TestKind, Verb } from './types.ts';

const KIB = 1024;
const MIB = 1 << 20;

/** Octets under way at most, where the messages are large. */
const WINDOW_OCTETS = 16 * MIB;
const MAX_IN_FLIGHT = 512;
/** Messages that plain TCP joins into one writev. */
const BATCH = 64;

/** Messages under way where nothing else is said: 512, less for large messages, never below 2. */
function defaultInFlight(size: number): number {
  return Math.min(MAX_IN_FLIGHT, Math.max(2, Math.floor(WINDOW_OCTETS / size)));
}

/** The peers that write until the stream says stop, unless the command line sets a limit. */
const TOLD_TO_STOP: ReadonlySet<PeerKind> = new Set([
  'tcp-onread',
  'tcp-data',
  'stream-onread',
  'stream-data',
  'grpc',
  'c',
]);

/** A specification from what differs from the defaults. */
export function spec(peer: PeerKind, test: TestKind, size: number, more: Partial<CaseSpec> = {}): CaseSpec {
  const inFlight =
    test === 'lat' ? 1 : TOLD_TO_STOP.has(peer) ? 0 : Math.max(defaultInFlight(size), more.connections ?? 1);
  return {
    peer,
    test,
    size,
    inFlight,
    verb: 'send',
    connections: 1,
    clients: 1,
    crc: 'auto',
    markers: false,
    fpdu: 0,
    cqMod: 0,
    single: false,
    gather: 'none',
    batch: BATCH,
    engine: 'thread',
    engines: 1,
    queue: 0,
    busyPoll: null,
    once: false,
    ...more,
  };
}

/** Names of series: what a reader sees in a legend. */
const ONREAD = 'TCP, onread';
const DATA = "TCP, 'data'";
const NAMES: Readonly<Record<PeerKind, string>> = {
  'tcp-onread': ONREAD,
  'tcp-data': DATA,
  ws: 'ws',
  grpc: 'grpc-js',
  c: 'C program',
  verbs: 'Verbs',
  promises: 'Promises',
  'stream-onread': 'Byte stream, onread',
  'stream-data': "Byte stream, 'data'",
};

const titled = (verb: Verb): string => `${verb[0]!.toUpperCase()}${verb.slice(1)}`;
/** Nothing in the promise layer reports a peer's Write, so Writes have no latency there. */
export const isMeasured = (layer: Layer, test: TestKind, verb: Verb): boolean =>
  layer !== 'promises' || test === 'bw' || verb !== 'write';

type Line = readonly [series: string, peer: PeerKind, more?: Partial<CaseSpec>];

const plain = (peer: PeerKind): Line => [NAMES[peer], peer];
const WRITE: Line = ['Write, CRC', 'verbs', { verb: 'write' }];
const WRITE_OFF: Line = ['Write, no CRC', 'verbs', { verb: 'write', crc: 'off' }];
const READ: Line = ['Read, CRC', 'verbs', { verb: 'read' }];
const READ_OFF: Line = ['Read, no CRC', 'verbs', { verb: 'read', crc: 'off' }];
const SEND: Line = ['Send, CRC', 'verbs', { verb: 'send' }];
const SEND_OFF: Line = ['Send, no CRC', 'verbs', { verb: 'send', crc: 'off' }];
/** The engine in a worker thread on both sides. */
const worker = ([series, peer, more]: Line): Line => [
  `${series}, worker`,
  peer,
  { ...more, engine: 'worker' },
];
const TWO_WORKERS: Line = ['Write, CRC, 2 workers', 'verbs', { verb: 'write', engine: 'worker', engines: 2 }];
const BASES = [ONREAD, DATA];
/** A line that measures the stack without its polling. */
const asleep = ([series, peer, more]: Line): Line => [
  `${series}, never polling`,
  peer,
  { ...more, busyPoll: 0 },
];
const POLLING_US = 50;
const AWAKE: Line = [`${ONREAD}, polling`, 'tcp-onread', { busyPoll: POLLING_US }];
/** Operations under way in the experiments with many. */
const UNDER_WAY = 500;
const MANY_CONNECTIONS = [4, 16, 64];
/** Messages of 4 KiB that a write of ours holds at most. */
const FULL_WRITE = 31;
/** The smallest messages, as many under way as make the rate level off. */
const deep = ([series, peer, more]: Line): Line => [series, peer, { ...more, inFlight: 2048, cqMod: 256 }];
/**
 * The rate of plain TCP that joins its messages: no fair base for single messages, but the measure of what
 * batching is worth.
 */
const batched = (batch: number): Line => [
  `TCP, ${batch} messages a writev`,
  'tcp-onread',
  { gather: 'batch', batch, inFlight: 0 },
];
const BATCHED: Line = batched(BATCH);

/** A group of `lines` at one place of the axis. */
function group(
  prefix: string,
  test: TestKind,
  size: number,
  x: number,
  lines: readonly Line[],
  bases: readonly string[] = BASES,
): Group {
  const id = (series: string): string => `${prefix}/${x}/${series}`;
  const cases: Case[] = lines.map(([series, peer, more]) => ({
    id: id(series),
    series,
    x,
    spec: spec(peer, test, size, more),
  }));
  return { cases, bases: bases.map(id) };
}

const bySize = (
  prefix: string,
  test: TestKind,
  sizes: readonly number[],
  lines: readonly Line[],
  bases: readonly string[] = BASES,
): Group[] => sizes.map((size) => group(prefix, test, size, size, lines, bases));

/** Others than ourselves and TCP at every second size: enough for a line, and half the time. */
const besideOthers = (
  prefix: string,
  test: TestKind,
  sizes: readonly number[],
  lines: readonly Line[],
): Group[] =>
  sizes.map((size) =>
    group(prefix, test, size, size, OTHER_SIZES.includes(size) ? [...lines, ...OTHERS] : lines),
  );

// ------------------------------------------------------------------------------------------------- the goals

const OTHERS: readonly Line[] = [plain('ws'), plain('grpc'), plain('c')];
const MARKERS: Line = ['Write, CRC, markers', 'verbs', { verb: 'write', markers: true }];
const MARKERS_OFF: Line = ['Write, no CRC, markers', 'verbs', { verb: 'write', crc: 'off', markers: true }];

/** Experiments that the short run measures, and --compare watches. */
// oxlint-disable-next-line max-lines-per-function -- a table of experiments
export function goals(): Experiment[] {
  const goal = (
    id: string,
    title: string,
    test: TestKind,
    unit: Experiment['unit'],
    about: string,
    groups: Group[],
  ): Experiment => ({ id, title, test, axis: 'case', unit, about, groups, careful: true });
  return [
    goal('bulk', 'Large messages: 1 MiB', 'bw', 'GB/s', 'One connection, 16 messages of 1 MiB under way.', [
      group(
        'bulk',
        'bw',
        MIB,
        MIB,
        [
          plain('tcp-onread'),
          plain('tcp-data'),
          WRITE,
          WRITE_OFF,
          READ,
          READ_OFF,
          SEND,
          SEND_OFF,
          MARKERS,
          MARKERS_OFF,
          worker(WRITE),
          asleep(WRITE),
          asleep(WRITE_OFF),
          AWAKE,
          ...OTHERS,
        ],
        [...BASES, 'Write, CRC', 'Write, no CRC', 'ws', 'grpc-js'],
      ),
    ]),
    goal(
      'small',
      'Small messages: 4 KiB',
      'bw',
      'GB/s',
      'TCP writes each message by itself; ours may share a write, as requests posted together do.',
      [
        group('small', 'bw', 4 * KIB, 4 * KIB, [
          plain('tcp-onread'),
          plain('tcp-data'),
          BATCHED,
          WRITE,
          WRITE_OFF,
        ]),
      ],
    ),
    goal(
      'rate',
      'Message rate: 64 octets',
      'bw',
      'M messages/s',
      'How many messages of 64 octets go through in a second, with a work request for each; 2,048 are ' +
        'under way, posted in lists of 256.',
      [
        group('rate', 'bw', 64, 64, [
          plain('tcp-onread'),
          plain('tcp-data'),
          BATCHED,
          ...[WRITE, WRITE_OFF, SEND, worker(WRITE)].map(deep),
        ]),
      ],
    ),
    goal(
      'latency',
      'Latency: 64 octets',
      'lat',
      'us',
      'One message at a time. Half a round trip, for Reads a whole one, as perftest counts.',
      [
        group(
          'latency',
          'lat',
          64,
          64,
          [
            plain('tcp-onread'),
            plain('tcp-data'),
            SEND,
            SEND_OFF,
            WRITE,
            READ,
            worker(SEND),
            asleep(SEND),
            AWAKE,
            ...OTHERS,
          ],
          [...BASES, AWAKE[0]],
        ),
      ],
    ),
    goal(
      'spread',
      'One connection against many',
      'bw',
      'GB/s',
      `Writes of 4 KiB over 1, 4, 16 and 64 connections of one process, 500 under way on each, as perftest
counts, or in all. In the latter case 64 connections have seven each, and no write call can carry more: TCP is
shown with as many in each writev, and with 500 under way on each of as many connections.`,
      spreadGroups(),
    ),
  ];
}

/**
 * Many connections against one, with as much under way on each as on the one, or in all; and what TCP makes
 * of as many messages a write.
 */
function spreadGroups(): Group[] {
  const one = connectionCase('spread', WRITE, 1);
  const each = MANY_CONNECTIONS.map((n) => connectionCase('spread-each', WRITE, n, UNDER_WAY * n));
  const all = MANY_CONNECTIONS.map((n) => connectionCase('spread', WRITE, n));
  const tcp = [FULL_WRITE, Math.floor(UNDER_WAY / MANY_CONNECTIONS.at(-1)!)].map((batch) =>
    connectionCase('spread', batched(batch), 1),
  );
  const many = MANY_CONNECTIONS.map((n) =>
    connectionCase(
      'spread-each',
      [
        `TCP, ${n} connections, ${FULL_WRITE} messages a writev`,
        'tcp-onread',
        { gather: 'batch', batch: FULL_WRITE },
      ],
      n,
      UNDER_WAY * n,
    ),
  );
  return [{ cases: [one, ...each, ...all, ...tcp, ...many], bases: [one.id, tcp[0]!.id] }];
}

function connectionCase(
  prefix: string,
  [series, peer, more]: Line,
  connections: number,
  inFlight: number = UNDER_WAY,
): Case {
  return {
    id: `${prefix}/${connections}/${series}`,
    series,
    x: connections,
    spec: spec(peer, 'bw', 4 * KIB, { connections, inFlight, ...more }),
  };
}

// ------------------------------------------------------------------------------------------------ the sweeps

const BANDWIDTH_SIZES = [2, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB];
const LATENCY_SIZES = [2, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB, 8 * MIB];
const IN_FLIGHT = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const OTHER_SIZES = [2, 64, 4 * KIB, 64 * KIB, MIB, 8 * MIB];
const CONNECTIONS = [1, 2, 4, 8, 16, 32, 64];
const CLIENTS = [1, 4, 16, 64];
const FPDU_SIZES = [576, 1448, 2960, 8192, 16_384, 32_768, 65_483];
const FIRST_LINES: readonly Line[] = [plain('tcp-onread'), plain('tcp-data'), WRITE, WRITE_OFF, READ, SEND];
/** Rounds where no goal is judged. */
const SWEEP_ROUNDS = 5;

/** CRC and markers, each on and off. */
const FOUR_WAYS: readonly Line[] = [plain('tcp-onread'), WRITE_OFF, WRITE, MARKERS_OFF, MARKERS];
const FOUR_SENDS: readonly Line[] = [
  plain('tcp-onread'),
  SEND_OFF,
  SEND,
  ['Send, no CRC, markers', 'verbs', { verb: 'send', crc: 'off', markers: true }],
  ['Send, CRC, markers', 'verbs', { verb: 'send', markers: true }],
];
const LAYER_SIZES = [64, 4 * KIB, 64 * KIB, MIB];
const LAYER_LATENCY_SIZES = [64, 4 * KIB, 64 * KIB];
const RDDP_SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB];
const RDDP_LATENCY_SIZES = [64, KIB, 16 * KIB, 64 * KIB, MIB];
const WRITE_SIZES = [64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB];

/** Writes, 500 of them under way whatever their size. */
function writesGroups(): Group[] {
  const under = ([series, peer, more]: Line): Line => [series, peer, { ...more, inFlight: UNDER_WAY }];
  return bySize('writes-500', 'bw', WRITE_SIZES, [plain('tcp-onread'), WRITE, WRITE_OFF].map(under), [
    ONREAD,
  ]);
}

/**
 * One request a call against one socket write each, and lists of requests; up to 64 of them share a
 * completion.
 */
function postingGroups(): Group[] {
  const single = ([series, peer, more]: Line): Line => [
    `${series}, one a call`,
    peer,
    { ...more, single: true },
  ];
  return bySize(
    'posting',
    'bw',
    [64, 4 * KIB, 64 * KIB],
    [
      plain('tcp-onread'),
      single(WRITE),
      WRITE,
      single(SEND),
      single(worker(WRITE)),
      worker(WRITE),
      single(worker(SEND)),
    ],
    [ONREAD],
  );
}

/** A program that awaits its calls does not have thousands of them under way. */
const AWAITED = 64;

/** The same octets by verbs, by the promise layer and by byte streams. */
function layerLines(test: TestKind, size: number): Line[] {
  const few = test === 'lat' ? {} : { inFlight: Math.min(AWAITED, defaultInFlight(size)) };
  const by = (peer: PeerKind, verb: Verb): Line => [
    `${NAMES[peer]}, ${titled(verb)}`,
    peer,
    { verb, ...few },
  ];
  const awaited = (['write', 'send', 'read'] as const)
    .filter((verb) => isMeasured('promises', test, verb))
    .map((verb) => by('promises', verb));
  return [
    plain('tcp-onread'),
    plain('tcp-data'),
    ['ws', 'ws', few],
    by('verbs', test === 'lat' ? 'send' : 'write'),
    by('verbs', 'read'),
    ...awaited,
    plain('stream-onread'),
    plain('stream-data'),
  ];
}

const layerGroups = (prefix: string, test: TestKind, sizes: readonly number[]): Group[] =>
  sizes.map((size) =>
    group(prefix, test, size, size, layerLines(test, size), [
      ...BASES,
      'ws',
      `Verbs, ${test === 'lat' ? 'Send' : 'Write'}`,
    ]),
  );

function inFlightGroups(): Group[] {
  return IN_FLIGHT.map((inFlight) =>
    group(
      'depth',
      'bw',
      4 * KIB,
      inFlight,
      [plain('tcp-onread'), WRITE, READ, SEND].map(
        ([series, peer, more]): Line => [series, peer, { ...more, inFlight }],
      ),
      [ONREAD],
    ),
  );
}

function gatherGroups(): Group[] {
  const line = (series: string, gather: CaseSpec['gather']): Line => [
    series,
    'tcp-onread',
    { gather, inFlight: 64 },
  ];
  return bySize(
    'gather',
    'bw',
    [256, 4 * KIB, 64 * KIB, MIB],
    [
      line('copy into one buffer', 'copy'),
      line('writev, one message', 'writev'),
      line('cork, 16 messages a writev', 'cork'),
      line('two writes', 'two'),
      ['iWARP, no CRC', 'verbs', { verb: 'write', crc: 'off', inFlight: 64 }],
    ],
    ['copy into one buffer'],
  );
}

function fpduGroups(): Group[] {
  const at = (fpdu: number, [series, peer, more]: Line): Case => ({
    id: `fpdu/${fpdu}/${series}`,
    series,
    x: fpdu,
    spec: spec(peer, 'bw', 16 * KIB, { ...more, fpdu }),
  });
  return [SEND, SEND_OFF].map((line) => ({
    cases: FPDU_SIZES.map((fpdu) => at(fpdu, line)),
    bases: [`fpdu/${FPDU_SIZES.at(-1)}/${line[0]}`],
  }));
}

function crcGroup(): Group {
  const engines = ['simd', 'wasm', 'js', 'crc-32'].map(
    (crc): Line => [`CRC by ${crc}`, 'verbs', { verb: 'write', crc }],
  );
  const marked = (series: string, crc: string): Line => [
    series,
    'verbs',
    { verb: 'write', crc, markers: true },
  ];
  return group(
    'crc',
    'bw',
    MIB,
    MIB,
    [
      plain('tcp-onread'),
      ['no CRC', 'verbs', { verb: 'write', crc: 'off' }],
      ...engines,
      marked('markers, no CRC', 'off'),
      marked('markers, CRC by simd', 'simd'),
    ],
    [ONREAD, 'no CRC', 'CRC by simd'],
  );
}

/** Clients, each in a separate process, with 16 messages of 4 KiB under way, at one server. */
function hotSpotGroups(): Group[] {
  const at = (clients: number, [series, peer, more]: Line): Case => ({
    id: `hotspot/${clients}/${series}`,
    series,
    x: clients,
    spec: spec(peer, 'bw', 4 * KIB, { ...more, clients, inFlight: 16 }),
  });
  return [WRITE, plain('tcp-onread')].map((line) => ({
    cases: CLIENTS.map((n) => at(n, line)),
    bases: [`hotspot/1/${line[0]}`],
  }));
}

/** The full run, beside the goals. */
// oxlint-disable-next-line max-lines-per-function -- a table of experiments
export function sweeps(): Experiment[] {
  const sweep = (
    id: string,
    title: string,
    test: TestKind,
    axis: Experiment['axis'],
    about: string,
    groups: Group[],
    more: Partial<Experiment> = {},
  ): Experiment => ({
    id,
    title,
    test,
    axis,
    unit: test === 'lat' ? 'us' : 'GB/s',
    about,
    groups,
    maxRounds: SWEEP_ROUNDS,
    ...more,
  });
  return [
    sweep(
      'bandwidth',
      'Throughput over message size',
      'bw',
      'size',
      'One connection, up to 512 messages under way. Below some 16 KiB it is the number of messages ' +
        'that costs, above it the octets.',
      besideOthers('bandwidth', 'bw', BANDWIDTH_SIZES, FIRST_LINES),
    ),
    sweep(
      'latency-size',
      'Latency over message size',
      'lat',
      'size',
      'One message at a time, there and back; shown is half a round trip, for Reads a whole one.',
      besideOthers('latency-size', 'lat', LATENCY_SIZES, [
        plain('tcp-onread'),
        plain('tcp-data'),
        SEND,
        WRITE,
        READ,
      ]),
    ),
    // Layers of JavaScript that run for the first time are slow: warmed up as the goals are.
    sweep(
      'layers',
      'Verbs, promises, byte streams: throughput over size',
      'bw',
      'size',
      `The same octets by verbs, by calls of the promise layer, each awaited by one of up to ${AWAITED} loops,
and by a byte stream in the shape of a socket; all with CRC. Plain TCP and byte streams write until they are
asked to pause.`,
      layerGroups('layers', 'bw', LAYER_SIZES),
      { careful: true },
    ),
    sweep(
      'layers-latency',
      'Verbs, promises, byte streams: latency over size',
      'lat',
      'size',
      'One message at a time, there and back; shown is half a round trip, for Reads a whole one.',
      layerGroups('layers-latency', 'lat', LAYER_LATENCY_SIZES),
      { careful: true },
    ),
    sweep(
      'rddp-bandwidth',
      'CRC and markers: throughput over size',
      'bw',
      'size',
      'Writes with the checksum and the markers of iWARP each on and off, beside TCP.',
      bySize('rddp-bandwidth', 'bw', RDDP_SIZES, FOUR_WAYS),
    ),
    sweep(
      'rddp-latency',
      'CRC and markers: latency over size',
      'lat',
      'size',
      'Sends, one at a time, with the checksum and the markers each on and off, beside TCP.',
      bySize('rddp-latency', 'lat', RDDP_LATENCY_SIZES, FOUR_SENDS),
    ),
    sweep(
      'writes-500',
      'Writes, 500 under way, over size',
      'bw',
      'size',
      'TCP too has 500 writes under way, each with its callback.',
      writesGroups(),
    ),
    sweep(
      'depth',
      'Throughput over messages under way',
      'bw',
      'in flight',
      'Messages of 4 KiB. TCP too has that many writes under way, each with its callback.',
      inFlightGroups(),
    ),
    sweep(
      'connections',
      'Throughput over connections',
      'bw',
      'connections',
      'Messages of 4 KiB from one process, 500 under way in all. A level line is good: no collapse.',
      [plain('tcp-onread'), WRITE, WRITE_OFF, worker(WRITE), TWO_WORKERS].map((line) => ({
        cases: (line[2]?.engine === 'worker' ? [1, ...MANY_CONNECTIONS] : CONNECTIONS).map((n) =>
          connectionCase('connections', line, n),
        ),
        bases: [`connections/1/${line[0]}`],
      })),
    ),
    sweep(
      'crc',
      'What CRC and markers cost',
      'bw',
      'case',
      'Writes of 1 MiB, by CRC32c engine, and with markers in both directions.',
      [crcGroup()],
    ),
    sweep(
      'fpdu',
      'Sends of 16 KiB over FPDU size',
      'bw',
      'FPDU size',
      'TCP payload that one FPDU may fill: 1448 is an Ethernet frame, 65483 a loopback segment.',
      fpduGroups(),
    ),
    sweep(
      'gather',
      'A header before each payload: copy, writev, cork or two writes',
      'bw',
      'size',
      'Plain TCP with 16 octets before each message, 64 under way, beside our own framing without CRC.',
      gatherGroups(),
    ),
    sweep(
      'posting',
      'What posting costs the main thread',
      'bw',
      'size',
      `Microseconds for a message in which the client's main thread could do nothing else: the cost of asking,
of completions, and with the engine in the same thread of all the protocol's work. With the engine in a worker
only the asking is left.`,
      postingGroups(),
      { unit: 'us of main thread' },
    ),
    sweep(
      'hotspot',
      'Hot spot: one server, many clients',
      'bw',
      'clients',
      'Client processes with one connection each, 16 messages of 4 KiB under way in each. Above two ' +
        'they share the processors with the server.',
      hotSpotGroups(),
    ),
  ];
}

// ------------------------------------------------------------------------------------------------ on command

/** The experiment that the command line may ask for. */
export interface Wish {
  readonly test: TestKind;
  readonly verbs: readonly Verb[];
  readonly layers: readonly Layer[];
  readonly engines: readonly EngineKind[];
  readonly against: readonly PeerKind[];
  readonly sizes: readonly number[];
  readonly more: Partial<CaseSpec>;
}

/** Layers other than verbs say so. */
function wishedLines({ verbs, more }: Wish, layer: Layer, engine: EngineKind): Line[] {
  const tail = engine === 'worker' ? ', worker' : '';
  if (isStream(layer)) return [[`${NAMES[layer]}${tail}`, layer, { ...more, engine }]];
  const prefix = layer === 'verbs' ? '' : `${NAMES[layer]}, `;
  return verbs.map((verb): Line => [`${prefix}${titled(verb)}${tail}`, layer, { ...more, verb, engine }]);
}

/**
 * The settings of the stack hold for the peers beside it, as far as they have them: as many connections, as
 * many messages under way.
 */
function besideOurs(peer: PeerKind, { connections, inFlight }: Partial<CaseSpec>): Line {
  const more = {
    ...(connections !== undefined && { connections }),
    ...(inFlight !== undefined && peer !== 'c' && { inFlight }),
  };
  return [NAMES[peer], peer, more];
}

/** In words, what the command line asked for beyond the names of the lines. */
function wishedSettings({ test, more, layers }: Wish): string {
  const { crc, markers, connections, inFlight, fpdu, cqMod, engines, busyPoll } = more;
  const said = [
    crc === 'off' ? 'no CRC' : crc === undefined || crc === 'auto' ? 'CRC32c' : `CRC32c by ${crc}`,
    markers === true ? 'markers' : 'no markers',
    ...(fpdu === undefined ? [] : [`FPDUs that fit ${fpdu} octets of TCP payload`]),
    ...(test === 'lat'
      ? []
      : [
          connections === undefined || connections === 1 ? 'one connection' : `${connections} connections`,
          inFlight === undefined
            ? 'as many messages under way as usual for their size'
            : `${inFlight} messages under way in all`,
        ]),
    ...(cqMod === undefined ? [] : [`a completion for ${cqMod} requests`]),
    ...(engines === undefined ? [] : [`${engines} worker threads`]),
    ...(busyPoll === undefined || busyPoll === null
      ? []
      : [`the stack awake for ${busyPoll} us after octets have come`]),
  ];
  const streams =
    inFlight !== undefined && layers.some(isStream)
      ? ' Byte streams write until they are asked to pause.'
      : '';
  return `As asked for on the command line: ${said.join(', ')}.${streams}`;
}

/** One experiment by wish: the verbs, and what they shall be compared with, over the sizes. */
export function custom(wish: Wish): Experiment {
  const lines: Line[] = [
    ...wish.against.map((peer) => besideOurs(peer, wish.more)),
    ...wish.engines.flatMap((engine) => wish.layers.flatMap((layer) => wishedLines(wish, layer, engine))),
  ];
  const bases = wish.against.map((peer) => NAMES[peer]);
  const what = wish.layers.every(isStream) ? 'byte streams' : wish.verbs.join(', ');
  return {
    id: 'custom',
    title: `${what}: ${wish.test === 'bw' ? 'bandwidth' : 'latency'}`,
    test: wish.test,
    axis: 'size',
    unit: wish.test === 'bw' ? 'GB/s' : 'us',
    about: wishedSettings(wish),
    groups: bySize('custom', wish.test, wish.sizes, lines, bases),
  };
}
