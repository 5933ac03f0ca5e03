/**
 * The settings of a perftest program: its flags, their limits and defaults, in the manner of
 * linux-rdma/perftest 6.06.
 */
// cspell:ignore histogrm dont nvchu
import {
  addressOption,
  atoi,
  strtol,
  textOption,
  UsageError,
  type LongOption,
  type ParsedOptions,
} from '../support/options.ts';

export type Verb = 'write' | 'read' | 'send';
export type Kind = 'bw' | 'lat';

/** One of the six programs. */
export interface Program {
  readonly name: string;
  readonly verb: Verb;
  readonly kind: Kind;
}

export interface Settings {
  readonly program: Program;
  /** The server to connect to; a server has none. */
  readonly host: string | undefined;
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

export const SHORT_OPTIONS = 'w:y:p:d:i:m:s:n:t:u:S:x:c:q:I:o:r:Q:l:D:f:T:L:X:aFezRhbNVCHU';

export const LONG_OPTIONS: Readonly<Record<string, LongOption>> = {
  port: { short: 'p', value: true },
  'ib-dev': { short: 'd', value: true },
  'ib-port': { short: 'i', value: true },
  mtu: { short: 'm', value: true },
  size: { short: 's', value: true },
  iters: { short: 'n', value: true },
  'tx-depth': { short: 't', value: true },
  'rx-depth': { short: 'r', value: true },
  'qp-timeout': { short: 'u', value: true },
  sl: { short: 'S', value: true },
  'gid-index': { short: 'x', value: true },
  all: { short: 'a' },
  'CPU-freq': { short: 'F' },
  connection: { short: 'c', value: true },
  qp: { short: 'q', value: true },
  events: { short: 'e' },
  vector: { short: 'X', value: true },
  inline_size: { short: 'I', value: true },
  outs: { short: 'o', value: true },
  comm_rdma_cm: { short: 'z' },
  rdma_cm: { short: 'R' },
  tos: { short: 'T', value: true },
  hop_limit: { short: 'L', value: true },
  help: { short: 'h' },
  bidirectional: { short: 'b' },
  'cq-mod': { short: 'Q', value: true },
  noPeak: { short: 'N' },
  version: { short: 'V' },
  'report-cycles': { short: 'C' },
  'report-histogram': { short: 'H' },
  // The stock programs spell the long option so, and their help as above.
  'report-histogrm': { short: 'H' },
  'report-unsorted': { short: 'U' },
  post_list: { short: 'l', value: true },
  duration: { short: 'D', value: true },
  margin: { short: 'f', value: true },
  limit_bw: { short: 'w', value: true },
  limit_msgrate: { short: 'y', value: true },
  run_infinitely: {},
  report_gbits: {},
  'report-both': {},
  output: { value: true },
  out_json: {},
  out_json_file: { value: true },
  dont_xchg_versions: {},
  source_ip: { value: true },
  retry_count: { value: true },
  use_old_post_send: {},
  disable_pcie_relaxed: {},
};

/** The largest size, and the size of the buffers, of a test over all sizes. */
const MAX_SIZE = 8_388_608;
const MAX_SIZE_ASKED = 0x7fff_ffff;
const MTUS = [256, 512, 1024, 2048, 4096];
/** Above this size every operation gives a completion, or the figures would be coarse. */
const CQ_MOD_SIZE = 8192;
const PEAK_LIMIT = 20_000;
/** The number of Reads that siw offers; this stack could take more. */
const DEFAULT_READS = 128;

/** Received Sends after which a receiver of `rxDepth` receives Writes its count to the sender. */
export function creditsEvery(rxDepth: number): number {
  return Math.max(1, Math.floor(rxDepth / 3));
}

/** The flags that make sense for one program only, with the stock programs' words. */
function checkFit(options: ParsedOptions, { verb, kind }: Program): void {
  const { flags } = options;
  const refuse = (flag: string, when: boolean, words: string): void => {
    if (flags.has(flag) && when) throw new UsageError(words);
  };
  refuse('q', kind !== 'bw', 'Multiple QPs only available on bw tests');
  refuse('I', verb === 'read', 'Inline feature not available on READ/Atomic verbs');
  refuse('o', verb !== 'read', 'Setting Outstanding reads only available on READ verb');
  refuse('e', verb === 'write', 'Events feature not available on WRITE verb');
  refuse('b', kind === 'lat', 'Bidirectional is only available in BW test');
  refuse('N', kind === 'lat', 'NoPeak only valid for BW tests');
  refuse('H', kind === 'bw', 'Available only on Latency tests');
  refuse('U', kind === 'bw', 'is Available only on Latency tests');
  refuse('C', kind === 'bw', 'Available only on Latency tests');
  const connection = textOption(options, 'c');
  if (connection !== undefined && connection !== 'RC')
    throw new UsageError('Invalid Connection type. Please choose from {RC}');
}

function ranged(
  options: ParsedOptions,
  flag: string,
  name: string,
  fallback: number,
  min: number,
  max: number,
): number {
  const text = textOption(options, flag);
  if (text === undefined) return fallback;
  if (!/^-?\d+$/.test(text))
    throw new UsageError(`Invalid ${name} value. Please check command line and run again.`);
  const value = atoi(text);
  if (value < min || value > max) throw new UsageError(`${name} should be between ${min} and ${max}`);
  return value;
}

function readSize(options: ParsedOptions, fallback: number): number {
  const text = textOption(options, 's');
  if (text === undefined) return fallback;
  if (!/^-?(\d+|0x[\da-f]+)[KM]?$/i.test(text))
    throw new UsageError('Invalid Message Size value. Please check command line and run again.');
  const factor = /k$/i.test(text) ? 1024 : /m$/i.test(text) ? 1024 * 1024 : 1;
  const size = strtol(text) * factor;
  if (size < 1 || size > MAX_SIZE_ASKED)
    throw new UsageError(`Message Size should be between 1 and ${MAX_SIZE_ASKED}`);
  return size;
}

/** A limit that figures are compared with. A text that is no number would never be missed. */
function readLimit(options: ParsedOptions, flag: string, name: string): number | null {
  const text = textOption(options, flag);
  if (text === undefined) return null;
  if (!/^\d+(\.\d+)?$/.test(text)) throw new UsageError(`Invalid ${name} Limit`);
  return Number(text);
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
  const size = all ? MAX_SIZE : readSize(options, bandwidth ? 65_536 : 2);
  const timed = flags.has('D');
  const infinitely = flags.has('run_infinitely');
  if (timed && all) throw new UsageError("Duration mode currently doesn't support running on all sizes.");
  if (timed && flags.has('e')) throw new UsageError("Duration mode doesn't work with events.");
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
  let rxDepth = ranged(options, 'r', ' Rx depth', verb === 'send' ? 512 : 1, 1, 16_384);
  if (verb !== 'send' && rxDepth > 1) throw new UsageError('On RDMA verbs rx depth can be only 1');
  if (!timed && !infinitely) {
    txDepth = Math.min(txDepth, iterations);
    if (verb === 'send') rxDepth = Math.min(rxDepth, iterations);
  }
  if (verb === 'send' && rxDepth % 2 === 1 && !all && !infinitely) rxDepth += 1;
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
  const mtu = ranged(options, 'm', 'MTU', 1024, 256, 4096);
  if (!MTUS.includes(mtu)) throw new UsageError('Invalid MTU : 256,512,1024,2048 and 4096 are valid');
  const output = textOption(options, 'output') ?? 'full';
  checkOutput(output, kind);
  return {
    program,
    host,
    // A server may have the system pick one.
    port: ranged(options, 'p', 'Port', 18_515, host === undefined ? 0 : 1, 65_535),
    device: textOption(options, 'd') ?? 'iwarp0',
    sourceAddress:
      host === undefined ? textOption(options, 'source_ip') : addressOption(options, 'source_ip'),
    size,
    all,
    iterations,
    duration: timed ? duration : null,
    margin,
    infinitely,
    qps: ranged(options, 'q', 'num of Qps', 1, 1, 16_384),
    txDepth,
    rxDepth,
    cqMod,
    postList,
    inline:
      verb === 'read'
        ? 0
        : ranged(options, 'I', 'Max inline', bandwidth ? 0 : verb === 'write' ? 220 : 236, 0, 912),
    outstandingReads:
      verb === 'read' ? ranged(options, 'o', 'Outstanding Reads', DEFAULT_READS, 1, DEFAULT_READS) : 0,
    bidirectional: flags.has('b'),
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
const OUTPUTS: Readonly<Record<Kind, readonly string[]>> = {
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

/** The usage text of a program. */
export function usage({ name, verb, kind }: Program, more: string): string {
  const iterations = verb === 'write' && kind === 'bw' ? 5000 : 1000;
  const lines: (readonly [boolean, string])[] = [
    [
      true,
      [
        `Usage:\n  ${name}            start a server and wait for connection`,
        `  ${name} <host>     connect to server at <host>\n\nOptions:`,
      ].join('\n'),
    ],
    [true, '  -a, --all  Run sizes from 2 till 2^23'],
    [kind === 'bw', '  -b, --bidirectional  Measure bidirectional bandwidth (default unidirectional)'],
    [true, '  -c, --connection=<RC>  Connection type (default RC)'],
    [true, '  -d, --ib-dev=<dev>  Name of the device in the report (default iwarp0)'],
    [true, '  -D, --duration  Run test for a customized period of seconds'],
    [verb !== 'write', '  -e, --events  Accepted; completions are events here'],
    [true, '  -f, --margin  Measure results within margins (default a quarter of the duration)'],
    [true, '  -F, --CPU-freq  Accepted'],
    [true, '  -h, --help  Show this help screen'],
    [kind === 'lat', '  -H, --report-histogram  Print out all results (default print summary only)'],
    [verb !== 'read', '  -I, --inline_size=<size>  Max size of message to be sent in inline'],
    [
      kind === 'bw',
      '  -l, --post_list=<list size>  Post list of send WQEs of <list size> size (instead of single post)',
    ],
    [true, '  -m, --mtu=<mtu>  MTU size to tell the peer: 256 - 4096 (default 1024)'],
    [true, `  -n, --iters=<iters>  Number of exchanges (at least 5, default ${iterations})`],
    [kind === 'bw', '  -N, --noPeak  Cancel peak-bw calculation (default with peak up to iters=20000)'],
    [verb === 'read', `  -o, --outs=<num>  num of outstanding reads (default ${DEFAULT_READS})`],
    [true, '  -p, --port=<port>  Listen on/connect to port <port> (default 18515)'],
    [kind === 'bw', "  -q, --qp=<num of qp's>  Num of qp's (default 1)"],
    [kind === 'bw', '  -Q, --cq-mod  Generate Cqe only after <--cq-mod> completion'],
    [verb === 'send', '  -r, --rx-depth=<dep>  Rx queue size (default 512)'],
    [true, '  -R, --rdma_cm  Connect QPs with rdma_cm; there is no other way here'],
    [true, `  -s, --size=<size>  Size of message to exchange (default ${kind === 'bw' ? 65_536 : 2})`],
    [kind === 'bw', '  -t, --tx-depth=<dep>  Size of tx queue (default 128)'],
    [kind === 'lat', '  -U, --report-unsorted  print out unsorted results'],
    [true, '  -V, --version  Display version number'],
    [kind === 'bw', '  -w, --limit_bw=<value>  Set verifier limit for bandwidth'],
    [kind === 'bw', '  -y, --limit_msgrate=<value>  Set verifier limit for Msg Rate'],
    [true, ''],
    [true, '      --out_json  Save the report in a json file'],
    [true, '      --out_json_file=<file>  Name of the report json file (default perftest_out.json)'],
    [true, '      --dont_xchg_versions  Do not exchange versions and MTU with other side'],
    [true, `      --output=<units>  Print one figure: ${OUTPUTS[kind].join(', ')}`],
    [kind === 'bw', '      --report-both  Report RX & TX results separately on Bidirectional BW tests'],
    [kind === 'bw', '      --report_gbits  Report Max/Average BW of test in Gbit/sec (instead of MiB/sec)'],
    [true, '      --run_infinitely  Run test forever, print results every <duration> seconds'],
    [true, '      --source_ip  Source IP of the interface used for connection establishment'],
  ];
  return `${lines
    .filter(([when]) => when)
    .map(([, line]) => line)
    .join('\n')}\n${more}`;
}
