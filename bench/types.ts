/**
 * The parts of a benchmark: a case (one transport with its settings), a group (cases that are measured in
 * turns, so that their ratios mean something), an experiment (groups along one axis), and their results.
 */

/** The sender of the octets: our stack by its verbs, by promises or by byte streams, or others. */
export type PeerKind =
  | 'verbs'
  | 'promises'
  | 'stream-onread'
  | 'stream-data'
  | 'tcp-onread'
  | 'tcp-data'
  | 'ws'
  | 'grpc'
  | 'c';
/** Where the stack runs: in the program's own thread, or in a worker. */
export type EngineKind = 'thread' | 'worker';
export type Verb = 'write' | 'read' | 'send';
/** Bandwidth (and message rate), or latency of one message at a time. */
export type TestKind = 'bw' | 'lat';

/**
 * How a plain TCP sender puts a header and a payload on the stream: copied into one buffer, as one writev,
 * sixteen messages as one writev, or as two writes. `batch` has no headers and joins as many messages as
 * `batch` says.
 */
type Gather = 'none' | 'copy' | 'writev' | 'cork' | 'two' | 'batch';

/** One thing that is measured. */
export interface CaseSpec {
  readonly peer: PeerKind;
  readonly test: TestKind;
  readonly verb: Verb;
  /** Octets of a message. */
  readonly size: number;
  /** Messages under way, all connections together. 0 lets a sender on a stream write until that says stop. */
  readonly inFlight: number;
  readonly connections: number;
  /** Client processes; each has `connections` connections and `inFlight` messages under way. */
  readonly clients: number;
  /** A CRC32c engine by name, `auto`, or `off`. */
  readonly crc: string;
  /** Both sides ask for markers. */
  readonly markers: boolean;
  /** TCP payload that one FPDU has to fit, 0 for the stack's own choice. */
  readonly fpdu: number;
  /** Each request is posted by one call; otherwise the requests up to a completion are one list. */
  readonly single: boolean;
  /** Every how many requests one asks for a completion; 0 chooses by `inFlight`. */
  readonly cqMod: number;
  readonly gather: Gather;
  /** Messages that plain TCP joins into one writev where `gather` is `batch`. */
  readonly batch: number;
  readonly engine: EngineKind;
  /** Worker threads of each process, where the engine is in workers. */
  readonly engines: number;
  /** Depth of the send queue; 0 for as many as are under way. */
  readonly queue: number;
  /**
   * Microseconds that the event loop stays awake after octets have come; null for the default: the stack's,
   * with TCP never.
   */
  readonly busyPoll: number | null;
  /** Each connection sends what it may have under way once, and no more. */
  readonly once: boolean;
}

/** A case with its place in an experiment. */
export interface Case {
  /** Unique in the run, the same from run to run: ratios are compared by it. */
  readonly id: string;
  /** The line it belongs to in a plot. */
  readonly series: string;
  /** Where on the x axis. */
  readonly x: number;
  readonly spec: CaseSpec;
  /** The folder `dist` of another build whose processes play both sides; without, this one's do. */
  readonly build?: string;
}

/** Cases measured round-robin; ratios are taken to each of `bases`. */
export interface Group {
  readonly cases: readonly Case[];
  /** Ids of cases of this group. */
  readonly bases: readonly string[];
}

/** Several groups that make one picture. */
export interface Experiment {
  readonly id: string;
  readonly title: string;
  readonly test: TestKind;
  /** The quantity on the x axis; `case` for bars. */
  readonly axis: 'size' | 'in flight' | 'connections' | 'clients' | 'FPDU size' | 'case';
  /** The unit of the y axis. */
  readonly unit: 'GB/s' | 'M messages/s' | 'us' | 'us of main thread';
  /** A text that a reader should know before looking. */
  readonly about: string;
  /** Rounds, where it needs fewer than the run's method has: no goal is judged by it. */
  readonly maxRounds?: number;
  /**
   * Warmed up longer, and slices that were disturbed are taken again: where a goal is judged by it, or layers
   * above the verbs are measured.
   */
  readonly careful?: boolean;
  readonly groups: readonly Group[];
}

/** Running totals of a peer process, at one moment. */
export interface Mark {
  /** Octets of payload that have arrived here. */
  readonly bytes: number;
  /** Nanoseconds, monotonic, the machine's. */
  readonly now: number;
  /** User and system time of the process, microseconds. */
  readonly cpu: number;
  /** Garbage collection so far, milliseconds. */
  readonly gc: number;
  /** Requests posted (messages written) so far, and milliseconds spent in the calls. */
  readonly posts: number;
  readonly postMs: number;
  /** Milliseconds in which the event loop of the main thread had something to do. */
  readonly active: number;
}

/** How a peer process is after a slice. */
export interface Health {
  /** MiB. */
  readonly rss: number;
  /**
   * How late the event loop was since the last slice, milliseconds: the 99th percentile of a look each 10 ms,
   * in a slice of a few dozen the worst.
   */
  readonly loopP99: number;
}

/** Latencies of one slice, microseconds of a round trip, and a histogram to merge. */
export interface LatencySlice {
  readonly count: number;
  readonly p50: number;
  readonly sum: number;
  readonly sumSquares: number;
  readonly min: number;
  readonly max: number;
  /** Pairs of bucket and count (see stats.ts). */
  readonly buckets: readonly number[];
}

/** One window of a bandwidth slice. */
export interface Window {
  readonly bytes: number;
  readonly ns: number;
  /** Clock ticks that the host stole while it lasted. */
  readonly steal: number;
  /** CPU time of processes that are not ours, as a share of one core. */
  readonly foreign: number;
  readonly serverCpu: number;
  readonly clientCpu: number;
  readonly gc: number;
  readonly posts: number;
  readonly postMs: number;
  /** Milliseconds that the clients' main threads were not idle. */
  readonly clientActive: number;
}

/** Median, quartiles and extremes over rounds. */
export interface Spread {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  readonly best: number;
  readonly rounds: number;
}

/** The result of a case. */
export interface CaseResult {
  readonly id: string;
  readonly series: string;
  readonly x: number;
  readonly spec: CaseSpec;
  /**
   * GB/s (10^9 octets), or microseconds of latency: half a round trip, a whole one for Reads, as perftest
   * counts.
   */
  readonly value: Spread;
  /** By round; null where the machine was disturbed. */
  readonly byRound: readonly (number | null)[];
  /** Ratio to each base of the group, taken inside a round. */
  readonly ratios: Readonly<Record<string, Spread>>;
  /** Windows that were clean, and all of them. */
  readonly clean: number;
  readonly windows: number;
  /** True if too few windows were clean, and the disturbed ones had to be used. */
  readonly disturbed: boolean;
  readonly messageRate: number;
  /** Highest single window. */
  readonly peak: number;
  readonly latency: LatencySummary | null;
  readonly cost: Cost;
}

/** Latency in microseconds over all slices. */
export interface LatencySummary {
  readonly count: number;
  readonly min: number;
  readonly max: number;
  readonly typical: number;
  readonly average: number;
  readonly stdev: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
}

/** The cost of a case to its processes. NaN (null in JSON) where it cannot be known. */
export interface Cost {
  /** Nanoseconds of CPU for an octet. */
  readonly serverPerByte: number;
  readonly clientPerByte: number;
  /** Microseconds of the client's CPU for a message, and of its posting calls alone. */
  readonly clientPerMessage: number;
  readonly postPerMessage: number;
  /** Microseconds for a message in which the client's main thread could do nothing else. */
  readonly mainPerMessage: number;
  /** Share of the time of a process spent in garbage collection, the mean over all of them. */
  readonly gcShare: number;
  /** MiB. */
  readonly serverRss: number;
  readonly clientRss: number;
  /** Milliseconds, median over the slices. */
  readonly serverLoopP99: number;
  readonly clientLoopP99: number;
}

/** An experiment with its results. */
export interface ExperimentResult {
  readonly id: string;
  readonly title: string;
  readonly test: TestKind;
  readonly axis: Experiment['axis'];
  readonly unit: Experiment['unit'];
  readonly about: string;
  readonly cases: readonly CaseResult[];
  /** Cases that could not be measured, with the reason. */
  readonly missing: readonly { readonly id: string; readonly reason: string }[];
  /** How far apart the processors were; null or missing where nobody looked. */
  readonly apart?: Apart | null;
}

/** How far apart two processors were while an experiment was measured (see distance.ts). */
export interface Apart {
  /** Nanoseconds until one sees what the other has written, over all looks. */
  readonly ns: Spread;
  /** Turns that were kept, and those of them that were left out for another distance than the usual one. */
  readonly turns: number;
  readonly away: number;
}

/** How good a figure is: a larger ratio, or a smaller one. */
export type Better = 'more' | 'less';

/** A ratio that the baseline keeps. */
export interface ProbeRatio {
  readonly id: string;
  readonly better: Better;
  readonly spread: Spread;
  /** How far it may drift whatever its size, where it is about zero. */
  readonly slack?: number;
}

/** One picture of a probe: horizontal bars. */
export interface ProbeChart {
  readonly caption: string;
  /** The point that a reader should look for. */
  readonly see: string;
  readonly unit: string;
  readonly log: boolean;
  readonly bars: readonly { readonly label: string; readonly value: number | null; readonly ours: boolean }[];
}

/** A measurement that is not a transfer between two processes: a table, with the ratios worth guarding. */
export interface ProbeResult {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  /** Heads of the columns after the first, which says what the row is. */
  readonly columns: readonly string[];
  readonly rows: readonly { readonly label: string; readonly cells: readonly (string | number | null)[] }[];
  readonly charts: readonly ProbeChart[];
  /** A picture that is none of bars: one SVG. */
  readonly picture?: { readonly caption: string; readonly see: string; readonly svg: string };
  readonly ratios: readonly ProbeRatio[];
  readonly missing: readonly { readonly id: string; readonly reason: string }[];
  /** Other programs had more than half a core, or the host took time. */
  readonly disturbed: boolean;
}

/** A line "seen there, seen here". */
export interface ScenarioResult {
  readonly name: string;
  readonly question: string;
  /** Where "there" is; empty where the observation is common knowledge and no one paper's. */
  readonly source: string;
  readonly there: string;
  readonly here: string;
}

/** A goal of the stack with what a run says of it. */
export interface GoalResult {
  readonly id: string;
  readonly group: string;
  readonly what: string;
  /** In words: at least, at most; a dash where there is none. */
  readonly goal: string;
  readonly better: Better;
  /** A ratio inside a round; null if the run did not measure it. */
  readonly figure: Spread | null;
  /** `in the spread`: the median falls short, the better quartile does not. */
  readonly verdict: 'met' | 'in the spread' | 'missed' | 'not measured' | 'no goal';
  readonly disturbed: boolean;
  readonly limit: string;
}

/** A whole run. */
export interface RunResult {
  readonly schema: 'iwarp-bench/2';
  readonly mode: string;
  readonly started: string;
  readonly seconds: number;
  readonly machine: Readonly<Record<string, string>>;
  readonly method: {
    readonly rounds: number;
    readonly windows: number;
    readonly windowMs: number;
    readonly latencyMs: number;
  };
  readonly experiments: readonly ExperimentResult[];
  readonly probes: readonly ProbeResult[];
  /** Seconds that each part took. */
  readonly durations: Readonly<Record<string, number>>;
  readonly scenarios: readonly ScenarioResult[];
  readonly goals: readonly GoalResult[];
}
