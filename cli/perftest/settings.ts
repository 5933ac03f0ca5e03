/**
 * The settings of a perftest program: what its flags (flags.ts) say, their limits and defaults, in the manner
 * of linux-rdma/perftest 6.06 and 6.29.
 */
// cspell:ignore dont
import { addressOption, textOption, UsageError, type ParsedOptions } from '../support/options.ts';
import { cyclesPerMicrosecond } from './cpu.ts';
import { checkFit, MAX_INT, ranged, readLimit, readSize } from './flags.ts';
import { readPayload } from './payload.ts';
import type { Kind, Program } from './program.ts';
import { readRate, type Rate } from './rate.ts';

const ATOMIC_TYPES = ['FETCH_AND_ADD', 'CMP_AND_SWAP'] as const;
type AtomicType = (typeof ATOMIC_TYPES)[number];

export interface Settings {
  readonly program: Program;
  /** The server to connect to; a server has none. */
  readonly host: string | undefined;
  /** The side that sends is the client: with `--reversed` the one that others connect to. */
  readonly machine: 'client' | 'server';
  readonly port: number;
  readonly device: string;
  readonly sourceAddress: string | undefined;
  readonly size: number;
  /** All sizes from 2 to 2^23. */
  readonly all: boolean;
  readonly iterations: number;
  /** Seconds; null runs a number of iterations. */
  readonly duration: number | null;
  readonly margin: number;
  readonly infinitely: boolean;
  readonly qps: number;
  readonly txDepth: number;
  readonly rxDepth: number;
  readonly cqMod: number;
  readonly postList: number;
  readonly inline: number;
  readonly outstandingReads: number;
  readonly bidirectional: boolean;
  readonly atomic: AtomicType;
  /** Each Write brings eight bytes of Immediate Data, which take a receive. */
  readonly immediate: boolean;
  /** Number of the completion vector of a test with events; null for the others. */
  readonly vector: number | null;
  readonly recvPostList: number;
  readonly srq: boolean;
  readonly mrPerQp: boolean;
  readonly warmUp: boolean;
  /** Microseconds before each operation of a latency test. */
  readonly latencyGap: number;
  readonly rate: Rate | null;
  /** What the buffers hold; null for zeros. */
  readonly payload: Uint8Array | null;
  readonly tos: number | null;
  readonly cpuUtil: boolean;
  /** Cycles in a microsecond, of a report in cycles. */
  readonly cycles: number | null;
  /** Seconds between the report and the end of the connections. */
  readonly waitDestroy: number;
  readonly peak: boolean;
  readonly mtu: number;
  readonly gbits: boolean;
  readonly reportBoth: boolean;
  readonly unsorted: boolean;
  readonly histogram: boolean;
  readonly exchangeVersions: boolean;
  readonly output: 'full' | 'bandwidth' | 'message_rate' | 'latency';
  readonly jsonFile: string | null;
  readonly minBandwidth: number | null;
  readonly minMessageRate: number | null;
  /** Words to print before the test, as the stock programs do when they change a setting. */
  readonly notes: readonly string[];
}

/** The largest size, and the size of the buffers, of a test over all sizes. */
const MAX_SIZE = 8_388_608;
const MTUS = [256, 512, 1024, 2048, 4096];
/** Above this size every operation gives a completion, or the figures would be coarse. */
const CQ_MOD_SIZE = 8192;
const PEAK_LIMIT = 20_000;
/** The number of Reads that siw offers; this stack could take more. */
export const DEFAULT_READS = 128;
const ATOMIC_SIZE = 8;
/** Entries of a shared receive queue. */
const MAX_SRQ = 65_536;
/**
 * Receives of a test with immediate data, which has no credits: more than there can be messages in what TCP
 * brings at once.
 */
const IMMEDIATE_RECEIVES = 16_384;

/** Received Sends after which a receiver of `rxDepth` receives Writes its count to the sender. */
export function creditsEvery(rxDepth: number): number {
  return Math.max(1, Math.floor(rxDepth / 3));
}

/** True for tests whose messages take a receive. */
export function takesReceives(s: Pick<Settings, 'program' | 'immediate'>): boolean {
  return s.program.verb === 'send' || s.immediate;
}

/** The receives that one queue pair is given at the beginning: in lists, a list more than are asked for. */
export function firstReceives(s: Settings): number {
  const { rxDepth, recvPostList: list } = s;
  if (s.immediate) return Math.max(rxDepth, Math.min(IMMEDIATE_RECEIVES, s.iterations));
  return list === 1 ? rxDepth : (Math.ceil(rxDepth / list) + 1) * list;
}

/** Complete and check the settings. @throws UsageError */
// oxlint-disable-next-line max-lines-per-function -- one flag after the other
export function readSettings(program: Program, options: ParsedOptions): Settings {
  const { verb, kind } = program;
  const { flags } = options;
  checkFit(options, program);
  if (options.rest.length > 1) throw new UsageError('Invalid Command line. Please check command rerun');
  const [host] = options.rest;
  if (host === '') throw new UsageError('The host must not be empty');
  const bandwidth = kind === 'bw';
  const notes: string[] = [];
  const all = flags.has('a');
  const size = all ? MAX_SIZE : readSize(options, verb === 'atomic' ? ATOMIC_SIZE : bandwidth ? 65_536 : 2);
  if (verb === 'atomic' && size !== ATOMIC_SIZE)
    throw new UsageError('Message size cannot be changed for Atomic tests');
  const immediate = flags.has('write_with_imm');
  const receives = takesReceives({ program, immediate });
  const bidirectional = flags.has('b');
  const timed = flags.has('D');
  const infinitely = flags.has('run_infinitely');
  if (timed && all) throw new UsageError("Duration mode currently doesn't support running on all sizes.");
  if (timed && flags.has('e')) throw new UsageError("Duration mode doesn't work with events.");
  if (infinitely) checkInfinite(options, kind, receives && bidirectional);
  const duration = ranged(options, 'D', 'Duration period', 5, 1, 100_000_000);
  const margin = ranged(options, 'f', 'Margin', timed ? Math.floor(duration / 4) : 0, 0, 100_000_000);
  if (duration <= 2 * margin) throw new UsageError('please check that DURATION > 2*MARGIN');
  const iterations = ranged(
    options,
    'n',
    'Iteration num',
    verb === 'write' && bandwidth ? 5000 : 1000,
    5,
    100_000_000,
  );
  let txDepth = ranged(options, 't', 'Tx depth', bandwidth ? 128 : 1, 1, 15_000);
  let rxDepth = ranged(options, 'r', ' Rx depth', receives ? 512 : 1, 1, 16_384);
  if (!receives && rxDepth > 1) throw new UsageError('On RDMA verbs rx depth can be only 1');
  if (!timed && !infinitely) {
    txDepth = Math.min(txDepth, iterations);
    if (receives) rxDepth = Math.min(rxDepth, iterations);
  }
  if (receives && rxDepth % 2 === 1 && !all && !infinitely) rxDepth += 1;
  const postList = ranged(options, 'l', 'Send Post List size', 1, 1, 15_000);
  const cqMod = completionEvery(
    options,
    { size, all, txDepth, postList, timed, iterations, bandwidth },
    notes,
  );
  if (
    verb === 'send' &&
    bandwidth &&
    runsDry({ rxDepth, postList, iterations: timed || infinitely ? Number.POSITIVE_INFINITY : iterations })
  ) {
    throw new UsageError(
      `Rx depth ${rxDepth} is too small for a post list of ${postList}: ` +
        'the sender would wait for credits for ever',
    );
  }
  const recvPostList = ranged(options, 'recv_post_list', 'Receive Post List size', 1, 1, 15_000);
  if (recvPostList > 1) {
    if (!bandwidth) throw new UsageError('Receive post list is supported in BW tests only');
    if (!timed && iterations % recvPostList !== 0)
      throw new UsageError('Number of iterations must be a multiple of receive post list size');
  }
  const qps = ranged(options, 'q', 'num of Qps', 1, 1, 16_384);
  const srq = flags.has('use-srq');
  if (srq && qps > rxDepth) throw new UsageError('Using SRQ depth should be greater than number of QPs.');
  if (srq && qps * 2 * (rxDepth + 2 * recvPostList) > MAX_SRQ) {
    throw new UsageError(
      `A shared receive queue has ${MAX_SRQ} entries: too few for ${qps} QPs with Rx depth ${rxDepth}`,
    );
  }
  const rate = readRate(options, { program, size, txDepth, bidirectional, infinitely }, notes);
  const tos = flags.has('T') ? ranged(options, 'T', 'TOS', 0, 0, 255) : null;
  if (tos !== null) notes.push('Warning: TOS changes nothing: sockets of Node have no such option');
  const cpuUtil = flags.has('cpu_util');
  if (cpuUtil && !timed) notes.push(' CPU Utilization works only with Duration mode.');
  const atomic = textOption(options, 'A') ?? 'FETCH_AND_ADD';
  if (!ATOMIC_TYPES.includes(atomic as AtomicType))
    throw new UsageError('Invalid Atomic type! please choose from {CMP_AND_SWAP,FETCH_AND_ADD}');
  const payloadFile = textOption(options, 'payload_file_path');
  const mtu = ranged(options, 'm', 'MTU', 1024, 256, 4096);
  if (!MTUS.includes(mtu)) throw new UsageError('Invalid MTU : 256,512,1024,2048 and 4096 are valid');
  const output = textOption(options, 'output') ?? 'full';
  checkOutput(output, kind);
  return {
    program,
    host,
    machine: (host === undefined) === flags.has('reversed') ? 'client' : 'server',
    // A server may have the system pick one.
    port: ranged(options, 'p', 'Port', 18_515, host === undefined ? 0 : 1, 65_535),
    device: textOption(options, 'd') ?? 'iwarp0',
    sourceAddress: sourceAddress(options, host),
    size,
    all,
    iterations,
    duration: timed ? duration : null,
    margin,
    infinitely,
    qps,
    txDepth,
    rxDepth,
    cqMod,
    postList,
    inline:
      verb === 'read' || verb === 'atomic'
        ? 0
        : ranged(options, 'I', 'Max inline', bandwidth ? 0 : verb === 'write' ? 220 : 236, 0, 912),
    outstandingReads:
      verb === 'read' || verb === 'atomic'
        ? ranged(options, 'o', 'Outstanding Reads', DEFAULT_READS, 1, DEFAULT_READS)
        : 0,
    bidirectional,
    atomic: atomic as AtomicType,
    immediate,
    vector: flags.has('e') ? ranged(options, 'X', 'EQN', 0, 0, 2048) : null,
    recvPostList,
    srq,
    mrPerQp: flags.has('mr_per_qp'),
    warmUp: flags.has('perform_warm_up'),
    latencyGap: ranged(options, 'latency_gap', 'Latency gap time', 0, 0, MAX_INT),
    rate,
    payload: payloadFile === undefined ? null : readPayload(payloadFile, size),
    tos,
    cpuUtil: cpuUtil && timed,
    cycles: flags.has('C') ? cyclesPerMicrosecond() : null,
    waitDestroy: ranged(options, 'wait_destroy', 'wait_destroy', 0, 0, MAX_INT),
    peak: !flags.has('N') && !timed && !infinitely && iterations <= PEAK_LIMIT,
    mtu,
    gbits: flags.has('report_gbits'),
    reportBoth: flags.has('report-both'),
    unsorted: flags.has('U'),
    histogram: flags.has('H'),
    exchangeVersions: !flags.has('dont_xchg_versions'),
    output: output as Settings['output'],
    jsonFile:
      flags.has('out_json') || flags.has('out_json_file')
        ? (textOption(options, 'out_json_file') ?? 'perftest_out.json')
        : null,
    minBandwidth: readLimit(options, 'w', 'Minimum BW'),
    minMessageRate: readLimit(options, 'y', 'Minimum msgRate'),
    notes,
  };
}

/** A test that runs for ever. @throws UsageError */
function checkInfinite({ flags }: ParsedOptions, kind: Kind, receivesBothWays: boolean): void {
  if (flags.has('e')) throw new UsageError('run_infinitely does not support events feature yet.');
  if (kind === 'lat') throw new UsageError('run_infinitely exists only in BW tests for now.');
  if (receivesBothWays) {
    throw new UsageError(
      'run_infinitely mode is not supported in SEND, SEND_IMM or WRITE_IMM Bidirectional BW test',
    );
  }
}

/** Our own address: a name too where we listen. */
function sourceAddress(options: ParsedOptions, host: string | undefined): string | undefined {
  const flag = options.flags.has('bind_source_ip') ? 'bind_source_ip' : 'source_ip';
  return host === undefined ? textOption(options, flag) : addressOption(options, flag);
}

/**
 * Whether a sender of Sends comes to a place where it waits for credits, and the receiver, which has taken
 * all that was sent, for messages. A list needs room for all of it, and fewer than the receives that there
 * are (see bandwidth.ts). Each list begins at another place of the receives, until all have had their turn.
 */
function runsDry({
  rxDepth,
  postList,
  iterations,
}: {
  readonly rxDepth: number;
  readonly postList: number;
  readonly iterations: number;
}): boolean {
  const lists = Math.min(rxDepth, iterations / postList);
  for (let list = 0; list < lists; list++) {
    const sent = list * postList;
    const credit = sent - ((sent % rxDepth) % creditsEvery(rxDepth));
    if (sent + postList - credit >= rxDepth) return true;
  }
  return false;
}

/** Figures that `--output` can print alone. */
export const OUTPUTS: Readonly<Record<Kind, readonly string[]>> = {
  bw: ['bandwidth', 'message_rate'],
  lat: ['latency'],
};

function checkOutput(output: string, kind: Kind): void {
  if (output === 'full' || OUTPUTS[kind].includes(output)) return;
  throw new UsageError(
    `Output verbosity level for ${kind.toUpperCase()} can be: ${OUTPUTS[kind].join(', ')}`,
  );
}

interface CompletionFacts {
  readonly size: number;
  readonly all: boolean;
  readonly txDepth: number;
  readonly postList: number;
  readonly timed: boolean;
  readonly iterations: number;
  readonly bandwidth: boolean;
}

/** One completion per how many operations. */
function completionEvery(options: ParsedOptions, facts: CompletionFacts, notes: string[]): number {
  const { size, all, txDepth, postList, timed, iterations, bandwidth } = facts;
  const asked = options.flags.has('Q');
  let every = ranged(options, 'Q', 'CQ moderation', 100, 1, 1024);
  if (!asked && size > CQ_MOD_SIZE && !all) every = 1;
  if (asked && every > 1 && size > CQ_MOD_SIZE && !all) {
    notes.push(
      'Warning: Large message requested and CQ moderation enabled',
      'Warning: It can lead to inaccurate results',
    );
  }
  every = Math.min(every, txDepth);
  if (postList === 1) return every;
  if (!bandwidth) throw new UsageError('Post list is supported in BW tests only');
  if (postList > txDepth) throw new UsageError('Post list size must not be above the Tx depth');
  if (!timed && iterations % postList !== 0)
    throw new UsageError('Number of iterations must be a multiple of post list size');
  if (!asked) {
    notes.push('Post List requested - CQ moderation will be the size of the post list');
    return postList;
  }
  if (postList % every !== 0) throw new UsageError('Post list size must be a multiple of CQ moderation');
  return every;
}
