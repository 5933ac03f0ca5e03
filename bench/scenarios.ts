/**
 * The experiments of the papers this project grew from, as scenarios: our measurement for each, the result of
 * the paper, and a sentence on our result. "There" are other machines and years, from gigabit Ethernet to
 * userspace drivers: shapes compare, figures do not. Where a paper is named, the line has its finding; where
 * none is, the line is general knowledge.
 */
import { goals, sweeps } from './experiments.ts';
import {
  AZ_SDP_CITE as AZ_SDP,
  OSU_CITE as OSU,
  QPIP_CITE as QPIP,
  SROCE_CITE as SOFTWARE_RDMA,
  USIW_CITE as USIW,
} from './papers/names.ts';
import { PROBES } from './probes/index.ts';
import type { CaseResult, Experiment, ExperimentResult, ProbeResult, ScenarioResult } from './types.ts';

/** The results that a scenario may look at. */
interface Found {
  readonly at: (id: string) => CaseResult | undefined;
  /** A cell of a probe's table: the row that begins so, and the column. */
  readonly cell: (probe: string, row: string, column: number) => number;
}

interface Scenario {
  readonly name: string;
  readonly question: string;
  /** The experiments and probes it needs. */
  readonly needs: readonly string[];
  readonly source: string;
  readonly there: string;
  readonly here: (found: Found) => string;
}

const KB = 1024;
const MB = 1 << 20;
const fixed = (value: number | null | undefined, digits = 2): string =>
  typeof value !== 'number' || !Number.isFinite(value) ? 'not measured' : value.toFixed(digits);

/** KiB that a connection holds for half an FPDU: two columns of the probe's row. */
const heldByHalfFpdu = (cell: Found['cell']): number =>
  cell('hostile', '2000 connections: 40,000', 7) - cell('hostile', '2000 connections: 40,000', 6);

const toTcp = (found: Found, experiment: string, size: number, series: string): string =>
  fixed(found.at(`${experiment}/${size}/${series}`)?.ratios[`${experiment}/${size}/TCP, onread`]?.median);

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'rddp-bandwidth',
    needs: ['bandwidth', 'rddp-bandwidth'],
    question: 'Bandwidth of user-level RDDP against TCP over size, with CRC and markers on and off',
    source: OSU,
    there:
      'user-level and kernel-level RDDP both reach about 550 Mb/s of 1 Gb/s: below TCP with small and ' +
      'medium messages, which go without the joining of Nagle, and with large ones, for the CRC',
    here: (found) => {
      const all = (size: number): string =>
        ['Write, no CRC', 'Write, CRC', 'Write, no CRC, markers', 'Write, CRC, markers']
          .map((series) => toTcp(found, 'rddp-bandwidth', size, series))
          .join(', ');
      return (
        `of TCP's throughput without CRC, with CRC, with markers, with both: ${all(4 * KB)} at 4 KiB ` +
        `(posts share writes), ${all(64 * KB)} at 64 KiB, ${all(MB)} at 1 MiB`
      );
    },
  },
  {
    name: 'rddp-latency',
    needs: ['rddp-latency'],
    question: 'Latency of user-level RDDP against TCP over size, with CRC and markers on and off',
    source: OSU,
    there: 'user-level RDDP adds 100 us to the latency of TCP, kernel-level RDDP 5 us',
    here: (found) => {
      const all = (size: number): string =>
        ['Send, no CRC', 'Send, CRC', 'Send, no CRC, markers', 'Send, CRC, markers']
          .map((series) => toTcp(found, 'rddp-latency', size, series))
          .join(', ');
      return (
        `of TCP's latency without CRC, with CRC, with markers, with both: ${all(64)} at 64 octets, ` +
        `${all(16 * KB)} at 16 KiB, ${all(MB)} at 1 MiB`
      );
    },
  },
  {
    name: 'software-rdma',
    needs: ['latency-size'],
    question: 'From which size on software RDMA is ahead of sockets',
    source: USIW,
    there: 'the latency of Sends, Writes and Reads is less than half of that of the driver in the kernel',
    here: (found) => {
      const ratio = (size: number): string => toTcp(found, 'latency-size', size, 'Write, CRC');
      return (
        `a Write's latency, of TCP's: ${ratio(64)} at 64 octets, ${ratio(64 * KB)} at 64 KiB, ` +
        `${ratio(MB)} at 1 MiB: no hardware places anything here, each octet is copied once more than ` +
        'with TCP'
      );
    },
  },
  {
    name: 'crc-markers',
    needs: ['crc'],
    question: 'Which CRC and whether markers',
    source: '',
    there:
      'a checksum over every octet in software is the dearest part of iWARP; markers force the sender ' +
      'to interleave and cost less',
    here: (found) => {
      const of = (series: string, base: string): string =>
        fixed(found.at(`crc/${MB}/${series}`)?.ratios[`crc/${MB}/${base}`]?.median);
      return (
        `of the throughput without CRC: ${of('CRC by simd', 'no CRC')} by SIMD, ` +
        `${of('CRC by wasm', 'no CRC')} by WebAssembly, ${of('CRC by js', 'no CRC')} by JavaScript, ` +
        `${of('CRC by crc-32', 'no CRC')} by the package crc-32; markers leave ` +
        `${of('markers, no CRC', 'no CRC')} without and ${of('markers, CRC by simd', 'CRC by simd')} ` +
        'with CRC'
      );
    },
  },
  {
    name: 'gather',
    needs: ['gather'],
    question: 'Gather by copy, writev or cork',
    source: '',
    there:
      'a copy is cheaper than a second buffer for small payloads and dearer for large ones; two system ' +
      'calls for a message never pay',
    here: (found) => {
      const of = (size: number, series: string): string =>
        fixed(found.at(`gather/${size}/${series}`)?.ratios[`gather/${size}/copy into one buffer`]?.median);
      const each = (size: number): string =>
        `${of(size, 'writev, one message')}, ${of(size, 'cork, 16 messages a writev')}, ` +
        `${of(size, 'two writes')}`;
      return (
        `against the copy, writev, cork and two writes: ${each(256)} at 256 octets, ${each(4 * KB)} at ` +
        `4 KiB, ${each(64 * KB)} at 64 KiB, ${each(MB)} at 1 MiB`
      );
    },
  },
  {
    name: 'posting',
    needs: ['posting'],
    question:
      'Cost of posting against a socket write: main-thread microseconds a request, in-thread and with ' +
      'the worker',
    source: QPIP,
    there: 'the host pays 2.5 us for a message of 1 byte by queue pairs, 29.9 us by sockets',
    here: (found) => {
      const cost = (series: string): string => {
        const one = found.at(`posting/${4 * KB}/${series}`)?.cost;
        return `${fixed(one?.postPerMessage)} in the call and ${fixed(one?.mainPerMessage)} in all`;
      };
      return (
        `microseconds for 4 KiB: socket write ${cost('TCP, onread')}; Write posted singly ` +
        `${cost('Write, CRC, one a call')}, in lists ${cost('Write, CRC')}; with the worker singly ` +
        `${cost('Write, CRC, worker, one a call')}, in lists ${cost('Write, CRC, worker')}`
      );
    },
  },
  {
    name: 'writes-500',
    needs: ['writes-500'],
    question: 'Writes at 500 in flight over size',
    source: USIW,
    there:
      'that stack let one Write wait for the acknowledgement of the one before, which kept its Write ' +
      'throughput low however many were posted',
    here: (found) => {
      const at = (size: number): string =>
        `${fixed(found.at(`writes-500/${size}/Write, CRC`)?.value.median)} GB/s at ` +
        `${size < KB ? `${size} octets` : `${size / KB} KiB`}`;
      return `${at(64)}, ${at(KB)}, ${at(16 * KB)}, ${at(256 * KB)}: no Write waits for another`;
    },
  },
  {
    name: 'in-flight',
    needs: ['depth'],
    question: '4 KiB over 1 to 512 in flight',
    source: SOFTWARE_RDMA,
    there: 'above 4 in flight more than 20 Gb/s, where hardware has about 10; latency rises with the depth',
    here: (found) => {
      const at = (n: number): string => fixed(found.at(`depth/${n}/Write, CRC`)?.value.median);
      return `Writes: ${at(1)} GB/s at 1, ${at(8)} at 8, ${at(64)} at 64, ${at(512)} at 512`;
    },
  },
  {
    name: 'connections',
    needs: ['connections'],
    question: '4 KiB over 1 to 64 connections, 500 in flight',
    source: SOFTWARE_RDMA,
    there: 'throughput falls from 1 to 64 connections: 20,185 to 1,085 Mb/s on two processors',
    here: (found) => {
      const at = (n: number, series: string): string =>
        fixed(found.at(`connections/${n}/${series}`)?.ratios[`connections/1/${series}`]?.median);
      return (
        `against one connection: ${at(4, 'Write, CRC')} at 4, ${at(16, 'Write, CRC')} at 16, ` +
        `${at(64, 'Write, CRC')} at 64 (TCP ${at(64, 'TCP, onread')}): a level line, no collapse, ` +
        'is best'
      );
    },
  },
  {
    name: 'perftest',
    needs: ['latency-size', 'bandwidth'],
    question: 'perftest to 8 MiB: latency, throughput and jitter (99th percentile over median)',
    source: USIW,
    there:
      'compared with softiwarp in the kernel by the standard microbenchmarks; a thread that polls ' +
      'spends a core for its latency',
    here: (found) => {
      const send = (size: number): CaseResult | undefined => found.at(`latency-size/${size}/Send, CRC`);
      const jitter = (size: number, series = 'Send, CRC'): string => {
        const latency = found.at(`latency-size/${size}/${series}`)?.latency;
        return fixed((latency?.p99 ?? Number.NaN) / (latency?.typical ?? Number.NaN), 1);
      };
      const speed = fixed(found.at(`bandwidth/${8 * MB}/Write, CRC`)?.value.median);
      return (
        `Send ${fixed(send(64)?.value.median)} us at 64 octets, ${fixed(send(8 * MB)?.value.median, 0)} ` +
        `us and Writes of ${speed} GB/s at 8 MiB; jitter ${jitter(64)} at 64 octets (TCP ` +
        `${jitter(64, 'TCP, onread')}), ${jitter(64 * KB)} at 64 KiB, ${jitter(8 * MB)} at 8 MiB; the ` +
        'stack’s event loop stays awake for 50 us after octets have come, that of bare TCP sleeps'
      );
    },
  },
  {
    name: 'fpdu',
    needs: ['fpdu'],
    question: '10 MB in Sends of 16 KiB over FPDU sizes',
    source: QPIP,
    there: '10 MB in writes of 16 KB: 75.6 MB/s with an MTU of 16 KB, 70.1 with 9000, 35.4 with 1500 bytes',
    here: (found) => {
      const ms = (n: number): string =>
        fixed(10 / (found.at(`fpdu/${n}/Send, CRC`)?.value.median ?? Number.NaN), 1);
      return (
        `10 MB at the measured rate take ${ms(576)} ms in FPDUs of 576, ${ms(1448)} of 1448, ${ms(8192)} ` +
        `of 8192, ${ms(65_483)} of 65483`
      );
    },
  },
  {
    name: 'hot-spot',
    needs: ['hotspot'],
    question: 'Hot spot: one server, 1 to 64 clients',
    source: AZ_SDP,
    there: 'its asynchronous zero copy gained up to a factor of two where many connections were served',
    here: (found) => {
      const at = (n: number, series: string): string =>
        fixed(found.at(`hotspot/${n}/${series}`)?.ratios[`hotspot/1/${series}`]?.median);
      return (
        `in all, against one client: ${at(4, 'Write, CRC')} with 4, ${at(16, 'Write, CRC')} with 16, ` +
        `${at(64, 'Write, CRC')} with 64 (TCP ${at(64, 'TCP, onread')}); clients and server share the ` +
        'processors here'
      );
    },
  },
  {
    name: 'busy',
    needs: ['busy'],
    question: 'One-sided Reads of a process whose main thread computes',
    source: '',
    there: 'an adapter serves Reads without asking the host; no other transport for Node does',
    here: ({ cell }) =>
      'worst Read of a round: ' +
      `${fixed(cell('busy', 'engine in the main thread, main thread busy', 3) / 1000, 0)} ms with the ` +
      'engine in the main thread, ' +
      `${fixed(cell('busy', 'engine in a worker thread, main thread busy', 3) / 1000, 1)} ms in a ` +
      'worker; 99th percentile in the worker ' +
      `${fixed(cell('busy', 'engine in a worker thread, main thread busy', 2), 0)} us, ` +
      `${fixed(cell('busy', 'engine in a worker thread, main thread idle', 2), 0)} us when the main ` +
      'thread rests',
  },
  {
    name: 'hostile',
    needs: ['hostile'],
    question: 'A hostile peer',
    source: '',
    there: 'no paper asks; a stack that the network can slow down out of proportion is no stack',
    here: ({ cell }) =>
      'beside one-octet segments a good connection keeps ' +
      `${fixed(cell('hostile', 'large Writes, each octet', 4))} of its rate, beside tiny Writes ` +
      `${fixed(cell('hostile', 'Writes of one octet', 4))}, beside a flood of Reads ` +
      `${fixed(cell('hostile', 'Reads of one octet', 4))} (an honest second client leaves ` +
      `${fixed(cell('hostile', 'for comparison', 4))}); half an FPDU holds ` +
      `${fixed(heldByHalfFpdu(cell), 0)} KiB of memory`,
  },
  {
    name: 'placement',
    needs: ['placement'],
    question: 'Direct placement where segments are lost and overtake each other',
    source: OSU,
    there: 'promised as the next experiment, and not published',
    here: ({ cell }) =>
      'at 1 % loss a placing receiver has each segment in its place after ' +
      `${fixed(cell('placement', 'loss 1 %, placing', 0), 3)} ms and holds ` +
      `${fixed(cell('placement', 'loss 1 %, placing', 3), 1)} KB, one that keeps the order takes ` +
      `${fixed(cell('placement', 'loss 1 %, ordered', 0), 3)} ms and holds ` +
      `${fixed(cell('placement', 'loss 1 %, ordered', 3), 1)} KB, iWARP over a byte stream ` +
      `${fixed(cell('placement', 'loss 1 %, byte stream', 0), 3)} ms and ` +
      `${fixed(cell('placement', 'loss 1 %, byte stream', 3), 1)} KB; with ` +
      `${fixed(cell('placement', 'loss 1 %, placing', 2))}, ` +
      `${fixed(cell('placement', 'loss 1 %, ordered', 2))} and ` +
      `${fixed(cell('placement', 'loss 1 %, byte stream', 2))} MB/s nobody is faster for it`,
  },
  {
    name: 'idle',
    needs: ['idle'],
    question: 'Memory of a thousand idle connections after traffic',
    source: '',
    there: 'reading into buffers of each connection costs a server memory for silence',
    here: ({ cell }) =>
      `right after it ${fixed(cell('idle', 'iWARP, 16', 1), 1)} KiB a connection, raw sockets with ` +
      `'data' events ${fixed(cell('idle', "TCP, 'data'", 1), 1)} KiB; after seven silent seconds ` +
      `${fixed(cell('idle', 'iWARP, 16', 3), 1)} and ${fixed(cell('idle', "TCP, 'data'", 3), 1)} KiB`,
  },
  {
    name: 'connection-cost',
    needs: ['cost'],
    question: 'The cost of a connection: memory, idle and after churn, and connections a second',
    source: '',
    there:
      'an adapter has room for a fixed number of connections; in software each costs memory of the process',
    here: ({ cell }) => {
      const of = (row: string): string =>
        `${fixed(cell('cost', row, 0), 0)} KiB resident and ${fixed(cell('cost', row, 3), 0)} a second`;
      const left = (row: string): string => `${fixed(cell('cost', row, 5), 0)} MiB`;
      const rows = [
        'node:net',
        'promise layer, thread',
        'connection manager, thread',
        'byte streams, thread',
      ];
      return (
        `bare sockets, promises, verbs, byte streams: ${rows.map(of).join(', ')}; after the churn ` +
        `${rows.map(left).join(', ')} more than at first`
      );
    },
  },
];

/** The experiments and probes that the named scenarios need, each name once. */
export function neededBy(names: readonly string[]): ReadonlySet<string> {
  return new Set(SCENARIOS.filter(({ name }) => names.includes(name)).flatMap(({ needs }) => needs));
}

/** Everything that a full run has, by name: the goals first, then the sweeps, then the probes. */
export function everything(): {
  readonly experiments: readonly Experiment[];
  readonly probes: readonly (typeof PROBES)[number][];
} {
  return { experiments: [...goals(), ...sweeps()], probes: PROBES };
}

/** The part of a full run that each case belongs to. */
export function partsOfCases(): ReadonlyMap<string, string> {
  return new Map(
    everything().experiments.flatMap(({ id, groups }) =>
      groups.flatMap(({ cases }) => cases.map((one) => [one.id, id] as const)),
    ),
  );
}

/** The sentences of every scenario of which something was run. */
export function answers(
  experiments: readonly ExperimentResult[],
  probes: readonly ProbeResult[],
): ScenarioResult[] {
  const cases = new Map(experiments.flatMap((experiment) => experiment.cases).map((one) => [one.id, one]));
  const ran = new Set([...experiments, ...probes].map(({ id }) => id));
  const found: Found = {
    at: (id) => cases.get(id),
    cell: (probe, row, column) => {
      const value = probes.find(({ id }) => id === probe)?.rows.find(({ label }) => label.startsWith(row))
        ?.cells[column];
      return typeof value === 'number' ? value : Number.NaN;
    },
  };
  return SCENARIOS.filter(({ needs }) => needs.some((name) => ran.has(name))).map(
    ({ name, question, source, there, here }) => ({ name, question, source, there, here: here(found) }),
  );
}
