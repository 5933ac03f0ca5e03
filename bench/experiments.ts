/** What is measured: the short run's goals, the full run's sweeps, and one experiment put together on the command line. */
import type { Case, CaseSpec, Experiment, Group, PeerKind, TestKind, Verb } from './types.ts';

const KIB = 1024;
const MIB = 1 << 20;

/** Octets under way at most, where the messages are large. */
const WINDOW_OCTETS = 16 * MIB;
const MAX_IN_FLIGHT = 512;

/** Messages under way where nothing else is said: 512, less for large messages, never below 2. */
export function defaultInFlight(size: number): number {
  return Math.min(MAX_IN_FLIGHT, Math.max(2, Math.floor(WINDOW_OCTETS / size)));
}

/** A specification from what differs from the defaults. */
export function spec(peer: PeerKind, test: TestKind, size: number, more: Partial<CaseSpec> = {}): CaseSpec {
  const inFlight = test === 'lat' ? 1 : peer === 'tcp-onread' || peer === 'tcp-data' ? 0 : defaultInFlight(size);
  return {
    peer, test, size, inFlight, verb: 'send', connections: 1, clients: 1, crc: 'auto', markers: false, fpdu: 0, cqMod: 0, gather: 'none', ...more,
  };
}

/** Names of series: what a reader sees in a legend. */
const ONREAD = 'TCP, onread';
const DATA = "TCP, 'data'";
const NAMES: Readonly<Record<PeerKind, string>> = {
  'tcp-onread': ONREAD, 'tcp-data': DATA, ws: 'ws', grpc: 'grpc-js', c: 'C program', iwarp: 'iWARP',
};

type Line = readonly [series: string, peer: PeerKind, more?: Partial<CaseSpec>];

const plain = (peer: PeerKind): Line => [NAMES[peer], peer];
const write = (more: Partial<CaseSpec> = {}): Line => ['Write, CRC', 'iwarp', { verb: 'write', ...more }];
const WRITE_OFF: Line = ['Write, no CRC', 'iwarp', { verb: 'write', crc: 'off' }];
const READ: Line = ['Read, CRC', 'iwarp', { verb: 'read' }];
const SEND: Line = ['Send, CRC', 'iwarp', { verb: 'send' }];
const BASES = [ONREAD, DATA];

/** A group of `lines` at one place of the axis. */
function group(prefix: string, test: TestKind, size: number, x: number, lines: readonly Line[], bases: readonly string[] = BASES): Group {
  const id = (series: string): string => `${prefix}/${x}/${series}`;
  const cases: Case[] = lines.map(([series, peer, more]) => ({ id: id(series), series, x, spec: spec(peer, test, size, more) }));
  return { cases, bases: bases.map(id) };
}

const bySize = (prefix: string, test: TestKind, sizes: readonly number[], lines: readonly Line[], bases: readonly string[] = BASES): Group[] =>
  sizes.map((size) => group(prefix, test, size, size, lines, bases));

// ------------------------------------------------------------------------------------------------------------ the goals

const OTHERS: readonly Line[] = [plain('ws'), plain('grpc'), plain('c')];
const MARKERS: Line = ['Write, CRC, markers', 'iwarp', { verb: 'write', markers: true }];

/** What the short run measures, and --compare watches. */
export function goals(): Experiment[] {
  const goal = (id: string, title: string, test: TestKind, unit: Experiment['unit'], about: string, groups: Group[]): Experiment =>
    ({ id, title, test, axis: 'case', unit, about, groups });
  return [
    goal('bulk', 'Large messages: 1 MiB', 'bw', 'GB/s', 'One connection, 16 messages of 1 MiB under way. Longer is better.',
      [group('bulk', 'bw', MIB, MIB, [plain('tcp-onread'), plain('tcp-data'), write(), WRITE_OFF, READ, SEND, MARKERS, ...OTHERS], [...BASES, 'Write, CRC', 'ws', 'grpc-js'])]),
    goal('small', 'Small messages: 4 KiB', 'bw', 'GB/s', 'TCP writes each message by itself; ours may share a write, as requests posted together do.',
      [group('small', 'bw', 4 * KIB, 4 * KIB, [plain('tcp-onread'), plain('tcp-data'), write(), WRITE_OFF])]),
    goal('rate', 'Message rate: 64 octets', 'bw', 'M messages/s', 'How many messages of 64 octets go through in a second, with a work request for each.',
      [group('rate', 'bw', 64, 64, [plain('tcp-onread'), plain('tcp-data'), write(), SEND])]),
    goal('latency', 'Latency: 64 octets', 'lat', 'us', 'One message at a time. Half a round trip, for Reads a whole one, as perftest counts. Shorter is better.',
      [group('latency', 'lat', 64, 64, [plain('tcp-onread'), plain('tcp-data'), SEND, write(), READ, ...OTHERS])]),
    goal('spread', 'One connection against many', 'bw', 'GB/s', 'Writes of 4 KiB, 500 under way in all, over 1, 8 and 64 connections of one process.',
      [{ cases: [1, 8, 64].map((connections) => connectionCase('spread', write(), connections)), bases: ['spread/1/Write, CRC'] }]),
  ];
}

function connectionCase(prefix: string, [series, peer, more]: Line, connections: number): Case {
  const inFlight = Math.max(500, connections);
  return { id: `${prefix}/${connections}/${series}`, series, x: connections, spec: spec(peer, 'bw', 4 * KIB, { ...more, connections, inFlight }) };
}

// ----------------------------------------------------------------------------------------------------------- the sweeps

const BANDWIDTH_SIZES = [2, 16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB];
const LATENCY_SIZES = [2, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB];
const IN_FLIGHT = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const CONNECTIONS = [1, 2, 4, 8, 16, 32, 64];
const FPDU_SIZES = [576, 1448, 2960, 8192, 16_384, 32_768, 65_483];
const FIRST_LINES: readonly Line[] = [plain('tcp-onread'), plain('tcp-data'), write(), WRITE_OFF, READ, SEND];

function inFlightGroups(): Group[] {
  return IN_FLIGHT.map((inFlight) => group('depth', 'bw', 4 * KIB, inFlight,
    [plain('tcp-onread'), write(), READ, SEND].map(([series, peer, more]): Line => [series, peer, { ...more, inFlight }]), [ONREAD]));
}

function gatherGroups(): Group[] {
  const line = (series: string, gather: CaseSpec['gather']): Line => [series, 'tcp-onread', { gather, inFlight: 64 }];
  return bySize('gather', 'bw', [256, 4 * KIB, 64 * KIB, MIB],
    [line('copy into one buffer', 'copy'), line('cork (writev)', 'cork'), line('two writes', 'two'),
      ['iWARP, no CRC', 'iwarp', { verb: 'write', crc: 'off', inFlight: 64 }]], ['copy into one buffer']);
}

function fpduGroups(): Group[] {
  const at = (fpdu: number, [series, peer, more]: Line): Case =>
    ({ id: `fpdu/${fpdu}/${series}`, series, x: fpdu, spec: spec(peer, 'bw', 16 * KIB, { ...more, fpdu }) });
  const off: Line = ['Send, no CRC', 'iwarp', { verb: 'send', crc: 'off' }];
  return [SEND, off].map((line) => ({ cases: FPDU_SIZES.map((fpdu) => at(fpdu, line)), bases: [`fpdu/${FPDU_SIZES.at(-1)}/${line[0]}`] }));
}

function engineGroup(): Group {
  const engines = ['simd', 'wasm', 'js', 'crc-32'].map((crc): Line => [`CRC by ${crc}`, 'iwarp', { verb: 'write', crc }]);
  const marked = (series: string, crc: string): Line => [series, 'iwarp', { verb: 'write', crc, markers: true }];
  return group('crc', 'bw', MIB, MIB,
    [plain('tcp-onread'), ['no CRC', 'iwarp', { verb: 'write', crc: 'off' }], ...engines, marked('markers, no CRC', 'off'), marked('markers, CRC by simd', 'simd')],
    [ONREAD, 'no CRC', 'CRC by simd']);
}

/** Clients in processes of their own, each with 16 Writes of 4 KiB under way, at one server. */
function hotSpotGroup(): Group {
  const at = (clients: number): Case =>
    ({ id: `hotspot/${clients}/Write, CRC`, series: 'Write, CRC', x: clients, spec: spec('iwarp', 'bw', 4 * KIB, { verb: 'write', clients, inFlight: 16 }) });
  return { cases: [1, 2, 4, 8, 16, 32, 64].map(at), bases: ['hotspot/1/Write, CRC'] };
}

/** The full run, beside the goals. */
export function sweeps(): Experiment[] {
  const sweep = (id: string, title: string, test: TestKind, axis: Experiment['axis'], about: string, groups: Group[]): Experiment =>
    ({ id, title, test, axis, unit: test === 'lat' ? 'us' : 'GB/s', about, groups });
  return [
    sweep('bandwidth', 'Throughput over message size', 'bw', 'size',
      'One connection, up to 512 messages under way. Below some 16 KiB it is the number of messages that costs, above it the octets.',
      bySize('bandwidth', 'bw', BANDWIDTH_SIZES, [...FIRST_LINES, ...OTHERS])),
    sweep('latency-size', 'Latency over message size', 'lat', 'size',
      'One message at a time, there and back; shown is half a round trip, for Reads a whole one.',
      bySize('latency-size', 'lat', LATENCY_SIZES, [plain('tcp-onread'), plain('tcp-data'), SEND, write(), READ, ...OTHERS])),
    sweep('depth', 'Throughput over messages under way', 'bw', 'in flight', 'Messages of 4 KiB. TCP too has that many writes under way, each with its callback.', inFlightGroups()),
    sweep('connections', 'Throughput over connections', 'bw', 'connections', 'Messages of 4 KiB from one process, 500 under way in all. A level line is good: no collapse.',
      [write(), WRITE_OFF].map((line) => ({ cases: CONNECTIONS.map((n) => connectionCase('connections', line, n)), bases: [`connections/1/${line[0]}`] }))),
    sweep('crc', 'What CRC and markers cost', 'bw', 'case', 'Writes of 1 MiB, by CRC32c engine, and with markers in both directions.', [engineGroup()]),
    sweep('fpdu', 'Sends of 16 KiB over FPDU size', 'bw', 'FPDU size', 'TCP payload that one FPDU may fill: 1448 is an Ethernet frame, 65483 a loopback segment.', fpduGroups()),
    sweep('gather', 'A header before each payload: copy, cork or two writes', 'bw', 'size', 'Plain TCP with 16 octets before each message, 64 under way, beside our own framing without CRC.', gatherGroups()),
    sweep('hotspot', 'Hot spot: one server, many clients', 'bw', 'clients', 'Client processes with one connection each, 16 Writes of 4 KiB under way in each, on two cores.', [hotSpotGroup()]),
  ];
}

// ------------------------------------------------------------------------------------------------------ on command

/** What the command line may ask for. */
export interface Wish {
  readonly test: TestKind;
  readonly verbs: readonly Verb[];
  readonly against: readonly PeerKind[];
  readonly sizes: readonly number[];
  readonly more: Partial<CaseSpec>;
}

/** One experiment by wish: the verbs, and what they shall be compared with, over the sizes. */
export function custom(wish: Wish): Experiment {
  const lines: Line[] = [
    ...wish.against.map(plain),
    ...wish.verbs.map((verb): Line => [`${verb[0]!.toUpperCase()}${verb.slice(1)}`, 'iwarp', { ...wish.more, verb }]),
  ];
  const bases = wish.against.map((peer) => NAMES[peer]);
  return {
    id: 'custom', title: `${wish.verbs.join(', ')}: ${wish.test === 'bw' ? 'bandwidth' : 'latency'}`, test: wish.test, axis: 'size',
    unit: wish.test === 'bw' ? 'GB/s' : 'us', about: 'As asked for on the command line.', groups: bySize('custom', wish.test, wish.sizes, lines, bases),
  };
}
