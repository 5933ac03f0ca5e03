/** The output of perftest programs: banner, addresses, columns; and the same as JSON. */
import { takesReceives, type Settings } from './settings.ts';
import type { BandwidthFigures, Destination } from './wire.ts';

export const LINE: string = '-'.repeat(87);

const TITLES = { write: 'RDMA_Write', read: 'RDMA_Read', send: 'Send', atomic: 'Atomic' } as const;

/** The name of the test, as its banner has it. */
function title(s: Settings): string {
  const { verb, kind } = s.program;
  const what =
    verb === 'atomic' ? `${TITLES[verb]} ${s.atomic}` : s.immediate ? `${TITLES[verb]}_imm` : TITLES[verb];
  if (kind === 'lat') return `${what} Latency Test`;
  const ways = s.bidirectional ? 'Bidirectional ' : '';
  return `${what} ${ways}${s.postList > 1 ? 'Post List ' : ''}BW Test`;
}

/** The facts of a test, for the banner and for JSON. */
function facts(s: Settings, mtu: number): (readonly [string, string | number])[] {
  const { verb, kind } = s.program;
  const sends = s.machine === 'client' || s.bidirectional;
  const reads = verb === 'read' || verb === 'atomic';
  const list: (readonly [string, string | number, boolean])[] = [
    ['TX depth', s.txDepth, sends],
    ['Post List', s.postList, s.postList > 1],
    ['Recv Post List', s.recvPostList, s.recvPostList > 1],
    ['RX depth', s.rxDepth, takesReceives(s) && (s.machine === 'server' || s.bidirectional)],
    ['CQ Moderation', s.cqMod, kind === 'bw'],
    ['Mtu', `${mtu}[B]`, true],
    ['Link type', 'Ethernet', true],
    ['GID index', 0, true],
    ['Max inline data', `${s.inline}[B]`, !reads],
    ['Outstand reads', s.outstandingReads, reads],
  ];
  return list.filter(([, , when]) => when).map(([name, value]) => [name, value] as const);
}

/** The lines of the banner. */
export function banner(s: Settings, mtu: number): string[] {
  const row = (name: string, value: string | number): string => ` ${name.padEnd(16)}: ${value}`;
  return [
    LINE,
    `                    ${title(s)}`,
    ...(s.vector === null ? [] : [` Test with events. Using ${s.device}_comp${s.vector}`]),
    ` Dual-port       : OFF\t\tDevice         : ${s.device}`,
    ` Number of qps   : ${s.qps}\t\tTransport type : IW`,
    ' Connection type : RC\t\tUsing SRQ      : ' + (s.srq ? 'ON' : 'OFF'),
    ' PCIe relax order: OFF',
    ' ibv_wr* API     : OFF',
    ...facts(s, mtu).map(([name, value]) => row(name, value)),
    ' rdma_cm QPs\t : ON',
    ` Data ex. method : rdma_cm${s.tos === null ? '' : ` \tTOS    : ${s.tos}`}`,
    ...(s.machine === 'server'
      ? [
          LINE,
          ' Waiting for client rdma_cm QP to connect',
          ' Please run the same command with the IB/RoCE interface IP',
        ]
      : []),
    LINE,
  ];
}

/** As printf's %#0nx: no prefix for zero. */
function hex(value: number | bigint, digits: number): string {
  const number = BigInt(value);
  return number === 0n ? '0'.repeat(digits + 2) : `0x${number.toString(16).padStart(digits, '0')}`;
}

/** The two lines that describe one end of a queue pair. */
export function addressLines(s: Settings, side: 'local' | 'remote', d: Destination): string[] {
  const { verb } = s.program;
  const reads = verb === 'read' ? ` OUT ${hex(d.outReads, 2)}` : '';
  const memory =
    verb === 'send' || verb === 'atomic' || s.immediate
      ? ''
      : ` RKey ${hex(d.rkey, 6)} VAddr ${hex(d.vaddr, 14)}`;
  const octets = [...d.gid].map((octet) => octet.toString().padStart(2, '0')).join(':');
  return [
    ` ${side} address: LID ${hex(d.lid, 2)} QPN ${hex(d.qpn, 4)} PSN ${hex(d.psn, 6)}${reads}${memory}`,
    ` GID: ${octets}`,
  ];
}

/** The line above the figures. */
export function heading(s: Settings): string {
  return columns(s) + (s.cpuUtil ? '    CPU_Util[%]' : '');
}

function columns(s: Settings): string {
  if (s.program.kind === 'bw') {
    const unit = s.gbits ? 'Gb/sec' : 'MB/sec';
    return ` #bytes     #iterations    BW peak[${unit}]    BW average[${unit}]   MsgRate[Mpps]`;
  }
  if (s.duration !== null) return ' #bytes        #iterations       t_avg[usec]    tps average';
  return (
    ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]' +
    '   99% percentile[usec]   99.9% percentile[usec] '
  );
}

/** Octets a second in the unit of a bandwidth: Gb/s, or MiB/s, which the columns call MB/sec. */
export function unitOctets(s: Pick<Settings, 'gbits'>): number {
  return s.gbits ? 125_000_000 : 1_048_576;
}

/** Largest ratio of one bandwidth computed in two ways: the two units are 119 times apart. */
const SAME = 2;

/**
 * The other side's figures in our unit. No message names its unit; the average, the messages a second and
 * their size show it.
 */
export function inOurUnit(s: Pick<Settings, 'gbits'>, theirs: BandwidthFigures): BandwidthFigures {
  const other = unitOctets({ gbits: !s.gbits });
  const fit = (theirs.average * other) / (theirs.messageRate * 1e6 * theirs.size);
  if (!(fit < SAME && fit > 1 / SAME)) return theirs;
  const factor = other / unitOctets(s);
  return { ...theirs, peak: theirs.peak * factor, average: theirs.average * factor };
}

const fixed = (value: number, digits: number): string => value.toFixed(digits).padEnd(7);

/** The last column of a test by time that reports the use of processors, in percent. */
const cpuColumn = (s: Settings, utilization: number): string =>
  s.cpuUtil ? `\t    ${utilization.toFixed(2)}` : '';

export function bandwidthLine(s: Settings, f: BandwidthFigures, utilization: number): string {
  if (s.output === 'bandwidth') return f.average.toFixed(6);
  if (s.output === 'message_rate') return f.messageRate.toFixed(6);
  const size = f.size.toString().padEnd(7);
  const gap = ' '.repeat(12);
  const rate = fixed(f.messageRate, 6);
  const small = s.gbits && f.average < 0.1;
  const [peak, average] = [f.peak, f.average].map((value) => fixed(value, small ? 6 : 2));
  const cpu = cpuColumn(s, utilization);
  if (small) return ` ${size}    ${f.iterations}           ${peak}${gap}${average}${gap}${rate}${cpu}`;
  const iterations = f.iterations.toString().padEnd(10);
  return ` ${size}    ${iterations}       ${peak}${gap}${average}\t\t   ${rate}${cpu}`;
}

/** Latency of a number of iterations, microseconds. */
export interface LatencyFigures {
  readonly size: number;
  readonly iterations: number;
  readonly min: number;
  readonly max: number;
  readonly typical: number;
  readonly average: number;
  readonly stdev: number;
  readonly p99: number;
  readonly p999: number;
}

/** Figures of latencies in microseconds; typical is the median. */
export function latencyFigures(size: number, iterations: number, samples: readonly number[]): LatencyFigures {
  const sorted = Float64Array.from(samples).sort();
  const n = sorted.length;
  const at = (share: number): number => sorted[Math.min(n - 1, Math.ceil(n * share) - 1)] ?? 0;
  const average = sorted.reduce((sum, value) => sum + value, 0) / n;
  const variance = sorted.reduce((sum, value) => sum + (value - average) ** 2, 0) / n;
  const middle = n >> 1;
  const typical = n % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
  return {
    size,
    iterations,
    min: sorted[0]!,
    max: sorted[n - 1]!,
    typical,
    average,
    stdev: Math.sqrt(variance),
    p99: at(0.99),
    p999: at(0.999),
  };
}

export function latencyLine(s: Settings, f: LatencyFigures): string {
  if (s.output === 'latency') return f.average.toFixed(6);
  const [min, max, typical, average, stdev, p99, p999] = [
    f.min,
    f.max,
    f.typical,
    f.average,
    f.stdev,
    f.p99,
    f.p999,
  ].map((value) => fixed(value, 2));
  return (
    ` ${f.size.toString().padEnd(7)} ${f.iterations}          ${min}        ${max}      ${typical}  \t` +
    `       ${average}     \t${stdev}\t\t${p99} \t\t${p999}`
  );
}

/** Latency of a test by time. */
export interface LatencyByTime {
  readonly size: number;
  readonly iterations: number;
  readonly average: number;
  readonly perSecond: number;
}

export function latencyByTimeLine(s: Settings, f: LatencyByTime, utilization: number): string {
  if (s.output === 'latency') return f.average.toFixed(6);
  const front = ` ${f.size.toString().padEnd(7)}       ${f.iterations}`;
  const cpu = cpuColumn(s, utilization);
  return `${front}            ${fixed(f.average, 2)}        ${fixed(f.perSecond, 2)}${cpu}`;
}

/** One row of results under the keys of the stock programs' JSON. */
export type JsonRow = Readonly<Record<string, number>>;

export const bandwidthJson = (f: BandwidthFigures): JsonRow => ({
  MsgSize: f.size,
  n_iterations: f.iterations,
  BW_peak: f.peak,
  BW_average: f.average,
  MsgRate: f.messageRate,
});

export const latencyJson = (f: LatencyFigures): JsonRow => ({
  MsgSize: f.size,
  n_iterations: f.iterations,
  t_min: f.min,
  t_max: f.max,
  t_typical: f.typical,
  t_avg: f.average,
  t_stdev: f.stdev,
  percentile_99: f.p99,
  'percentile_99.9': f.p999,
});

export const latencyByTimeJson = (f: LatencyByTime): JsonRow => ({
  MsgSize: f.size,
  n_iterations: f.iterations,
  t_avg: f.average,
  tps_average: f.perSecond,
});

/** The use of processors, in the results of a test that reports it. */
export const cpuJson = (s: Settings, utilization: number): JsonRow =>
  s.cpuUtil ? { CPU_util: utilization } : {};

/** The report as valid JSON, which that of 6.06 is not. */
export function jsonText(s: Settings, mtu: number, rows: readonly JsonRow[]): string {
  const info = {
    test: title(s).replaceAll(' ', '_'),
    Device: s.device,
    Number_of_qps: s.qps,
    Transport_type: 'IW',
    Connection_type: 'RC',
    Using_SRQ: s.srq ? 'ON' : 'OFF',
    ...(s.vector === null ? {} : { 'Test with events': `Using_${s.device}_comp${s.vector}` }),
    ...(s.tos === null ? {} : { TOS: s.tos }),
    ...Object.fromEntries(facts(s, mtu).map(([name, value]) => [name.replaceAll(' ', '_'), value])),
  };
  return `${JSON.stringify({ test_info: info, results: rows }, null, 2)}\n`;
}
