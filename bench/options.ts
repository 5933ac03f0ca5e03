/** The command line of `iwarp bench`. */
import { parseArgs } from 'node:util';
import { IwarpError } from '../src/base/errors.ts';
import { availableCrc32cEngines } from '../src/crc32c/engine.ts';
import { numberFlag } from '../cli/support/policy-flags.ts';
import { LAYERS } from './cases.ts';
import { isMeasured, spec, type Wish } from './experiments.ts';
import type { Method } from './method.ts';
import { PAPER_NAMES, type PaperName } from './papers/names.ts';
import { everything, neededBy, SCENARIOS } from './scenarios.ts';
import type { CaseSpec, EngineKind, PeerKind, TestKind, Verb } from './types.ts';

export const USAGE = `usage: iwarp bench [MODE] [options]
  MODE is one of --quick, --full, --only PARTS, --scenario NAMES, --paper NAME, --test bw|lat, --wire trp
  --quick                 the goals and the inner loops, about five minutes (default)
  --full                  everything, about 25 minutes; 27 and 28 in the kept runs, with --rounds 11
  --only PARTS            these parts of the full run, see --list
  --scenario NAMES        the parts for experiments of the papers, see --list; 'all' for every one
  --paper NAME            the rows of a paper, each beside its base in the same rounds: osu, az-sdp, qpip,
                          sroce, usiw, several of them, or all; three rounds and some two minutes each
  --page FILE             write the rows of --paper as a page, with its plots in a folder beside it
  --wire trp              iWARP over UDP beside iWARP over TCP and node:dgram, about four minutes
  --list                  list parts and scenarios
A single experiment:
  --test bw|lat           bandwidth (and message rate), or latency
  --verb LIST             write, read, send (write)
  --layer LIST            verbs, promises, stream-onread, stream-data (verbs): the interface to measure
  --size LIST             bytes of a message, 2 to 8388608 (65536, or 64 for latency)
  --in-flight N           messages under way, 1 to 512, on all connections together (512, less for large
                          messages; bare TCP: until the socket asks to pause)
  --connections N         1 to 64 (1), also for the programs it is compared with
  --crc ENGINE            simd, wasm, js, crc-32, auto or off (auto)
  --markers               markers in both directions
  --engine LIST           thread, worker (thread): where the stack runs
  --engines N             worker threads of each process, 1 to 64 (1)
  --fpdu BYTES            TCP payload that one FPDU fits, 64 to 65535
  --busy-poll US          how long the stack's event loop stays awake after bytes have come, 0 to 10000
                          (the stack's default)
  --cq-mod N              one completion for this many requests (a list of up to 64)
  --against LIST          tcp-onread, tcp-data, ws, grpc, c (tcp-onread)
Method and output:
  --rounds N              turns that each case gets, 1 to 1000 (7; at most 5 in the sweeps); the result is
                          the median over them
  --windows N             windows of a turn, 1 to 1000 (2); for latency one as long as all of them
  --window MS             milliseconds of a window, 1 to 10000 (60)
  --native-crc FOLDER     a native CRC32c add-on to compare with, for example node_modules/fast-crc32c
  --json FILE             write the results, after each part
  --html FILE             write the report
  --continue              keep what --json FILE has: measure what it lacks, or again what --only or --paper
                          names
  --from FILE             results of an earlier run instead of measuring
  --compare               say which ratios have moved; status 1 if one is worse or gone
  --save-baseline         make these ratios the baseline
  --baseline FILE         the baseline for --compare and --save-baseline (that of this processor)
`;

export interface BenchOptions {
  readonly mode: 'quick' | 'full' | 'only' | 'scenario' | 'papers' | 'custom' | 'trp' | 'list' | 'help';
  /** Of the full run, by name; for `only` and `scenario`. */
  readonly parts: readonly string[];
  readonly wish: Wish | null;
  /** The papers whose rows are measured, in the order of the page. */
  readonly papers: readonly PaperName[];
  readonly page: string | undefined;
  readonly method: Method;
  readonly json: string | undefined;
  readonly html: string | undefined;
  readonly from: string | undefined;
  readonly continue: boolean;
  readonly compare: boolean;
  readonly baseline: string | undefined;
  readonly saveBaseline: boolean;
}

const VERBS: readonly Verb[] = ['write', 'read', 'send'];
const ENGINES: readonly EngineKind[] = ['thread', 'worker'];
const PEERS: readonly PeerKind[] = ['tcp-onread', 'tcp-data', 'ws', 'grpc', 'c'];
const MAX_SIZE = 8 << 20;

const wrong = (text: string): IwarpError => new IwarpError('ERR_INVALID_ARGUMENT', text);

/** A name given twice is measured once. */
const unique = <T>(list: readonly T[]): T[] => [...new Set(list)];

function listOf<T extends string>(flag: string, text: string, known: readonly T[]): T[] {
  return unique(
    text.split(',').map((word) => {
      const found = known.find((name) => name === word);
      if (found === undefined) throw wrong(`${flag}: ${JSON.stringify(word)} is none of ${known.join(', ')}`);
      return found;
    }),
  );
}

function oneOf<T extends string>(flag: string, text: string, known: readonly T[]): T {
  const [first, ...more] = listOf(flag, text, known);
  if (more.length > 0) throw wrong(`${flag} takes one of ${known.join(', ')}, not several`);
  return first!;
}

const FLAGS = {
  quick: { type: 'boolean' },
  full: { type: 'boolean' },
  only: { type: 'string' },
  scenario: { type: 'string' },
  paper: { type: 'string', multiple: true },
  page: { type: 'string' },
  wire: { type: 'string' },
  list: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
  test: { type: 'string' },
  verb: { type: 'string' },
  layer: { type: 'string' },
  size: { type: 'string' },
  'in-flight': { type: 'string' },
  connections: { type: 'string' },
  crc: { type: 'string' },
  markers: { type: 'boolean' },
  fpdu: { type: 'string' },
  'cq-mod': { type: 'string' },
  engine: { type: 'string' },
  engines: { type: 'string' },
  'busy-poll': { type: 'string' },
  against: { type: 'string' },
  rounds: { type: 'string' },
  windows: { type: 'string' },
  window: { type: 'string' },
  'native-crc': { type: 'string' },
  json: { type: 'string' },
  html: { type: 'string' },
  from: { type: 'string' },
  continue: { type: 'boolean' },
  compare: { type: 'boolean' },
  baseline: { type: 'string' },
  'save-baseline': { type: 'boolean' },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof FLAGS }>>['values'];

/** @throws ERR_INVALID_ARGUMENT, or what parseArgs throws */
export function parseBench(args: string[]): BenchOptions {
  const { values } = parseArgs({ args, options: FLAGS });
  const parts =
    values.only !== undefined
      ? listOf('--only', values.only, partNames())
      : values.scenario === undefined
        ? []
        : scenarioParts(values.scenario);
  const wish = wishOf(values);
  // --full --only is --only.
  const asked = [
    values.quick === true,
    values.full === true && values.only === undefined,
    values.only !== undefined,
    values.scenario !== undefined,
    wish !== null,
    values.wire !== undefined,
    values.paper !== undefined,
  ];
  if (asked.filter(Boolean).length > 1)
    throw wrong('--quick, --full, --only, --scenario, --paper, --test and --wire exclude each other');
  const papers = papersOf(values);
  if (values.wire !== undefined) refuseWithWire(values, values.wire);
  if (values.continue === true && values.json === undefined)
    throw wrong('--continue needs --json: the file to go on with');
  if (values.continue === true && wish !== null)
    throw wrong('--continue goes on with parts of the full run: --test is none of them');
  if (values.baseline !== undefined && values.compare !== true && values['save-baseline'] !== true)
    throw wrong('--baseline needs --compare or --save-baseline');
  if (papers.length === 0) refuseWithFrom(values);
  const mode = modeOf(values, wish);
  const number = (flag: 'rounds' | 'windows' | 'window', fallback: number, max: number): number =>
    numberFlag(`--${flag}`, values[flag] ?? String(fallback), 1, max);
  const windowMs = number('window', 60, 10_000);
  const windows = number('windows', 2, 1000);
  return {
    mode,
    parts,
    ...{ wish, papers, page: values.page },
    method: {
      rounds: number('rounds', papers.length > 0 ? PAPER_ROUNDS : 7, 1000),
      windows,
      windowMs,
      latencyMs: windowMs * windows,
      ...(values['native-crc'] !== undefined && { nativeCrc: values['native-crc'] }),
    },
    json: values.json,
    html: values.html,
    from: values.from,
    continue: values.continue === true,
    compare: values.compare === true,
    baseline: values.baseline,
    saveBaseline: values['save-baseline'] === true,
  };
}

/** Rounds of the papers' rows: all five in a quarter of an hour. */
const PAPER_ROUNDS = 3;

/** The papers of the command line, in the order of the page. */
function papersOf(values: Values): PaperName[] {
  const { paper = [], page, from } = values;
  if (paper.length === 0) {
    if (page !== undefined) throw wrong('--page is the page of --paper');
    return [];
  }
  const asked = listOf('--paper', paper.join(','), [...PAPER_NAMES, 'all']);
  const stray = (['html', 'compare', 'save-baseline', 'native-crc', 'windows', 'window'] as const).find(
    (name) => values[name] !== undefined,
  );
  if (stray !== undefined) throw wrong(`--paper has its own rounds: --${stray} has no place beside it`);
  if (
    from !== undefined &&
    (page === undefined || values.rounds !== undefined || values.json !== undefined || values.continue)
  )
    throw wrong('--paper with --from makes the page of an earlier run: it needs --page and takes no more');
  return PAPER_NAMES.filter((name) => asked.includes(name) || asked.includes('all'));
}

/** Its figures are printed and not kept. */
function refuseWithWire(values: Values, wire: string): void {
  oneOf('--wire', wire, ['trp']);
  const keeping = [
    'json',
    'html',
    'from',
    'compare',
    'save-baseline',
    'native-crc',
    'windows',
    'window',
  ] as const;
  const stray = keeping.find((name) => values[name] !== undefined);
  if (stray !== undefined) throw wrong(`--wire trp prints its figures: --${stray} has no place beside it`);
}

/** An earlier run is not measured again. */
function refuseWithFrom(values: Values): void {
  if (values.from === undefined) return;
  const measuring = [
    'quick',
    'full',
    'only',
    'scenario',
    'test',
    'continue',
    'native-crc',
    'rounds',
    'windows',
    'window',
  ] as const;
  const stray = measuring.find((name) => values[name] !== undefined);
  if (stray !== undefined) throw wrong(`--from takes earlier results: --${stray} has no place beside it`);
}

function modeOf(values: Values, wish: Wish | null): BenchOptions['mode'] {
  if (values.help) return 'help';
  if (values.list) return 'list';
  if (values.wire !== undefined) return 'trp';
  if (values.paper !== undefined) return 'papers';
  if (values.only !== undefined) return 'only';
  if (values.full) return 'full';
  if (wish !== null) return 'custom';
  return values.scenario === undefined ? 'quick' : 'scenario';
}

/** Of the full run, in its order. */
export function partNames(): string[] {
  const { experiments, probes } = everything();
  return [...experiments, ...probes].map(({ id }) => id);
}

function scenarioParts(text: string): string[] {
  const names = SCENARIOS.map(({ name }) => name);
  const needed = neededBy(text === 'all' ? names : listOf('--scenario', text, names));
  return partNames().filter((name) => needed.has(name));
}

// oxlint-disable-next-line max-lines-per-function -- one option after the other
function wishOf(values: Values): Wish | null {
  const details = [
    'verb',
    'layer',
    'size',
    'in-flight',
    'connections',
    'crc',
    'markers',
    'fpdu',
    'cq-mod',
    'engine',
    'engines',
    'busy-poll',
    'against',
  ] as const;
  if (values.test === undefined) {
    const stray = details.find((name) => values[name] !== undefined);
    if (stray !== undefined) throw wrong(`--${stray} needs --test bw or --test lat`);
    return null;
  }
  const test = oneOf<TestKind>('--test', values.test, ['bw', 'lat']);
  const sizes = unique(
    (values.size ?? (test === 'bw' ? '65536' : '64'))
      .split(',')
      .map((text) => numberFlag('--size', text, 2, MAX_SIZE)),
  );
  const more: { -readonly [K in keyof CaseSpec]?: CaseSpec[K] } = { markers: values.markers === true };
  const number = (
    flag: 'in-flight' | 'connections' | 'fpdu' | 'cq-mod' | 'engines' | 'busy-poll',
    name: 'inFlight' | 'connections' | 'fpdu' | 'cqMod' | 'engines' | 'busyPoll',
    min: number,
    max: number,
  ): void => {
    const text = values[flag];
    if (text !== undefined) more[name] = numberFlag(`--${flag}`, text, min, max);
  };
  number('in-flight', 'inFlight', 1, 512);
  number('connections', 'connections', 1, 64);
  number('fpdu', 'fpdu', 64, 65_535);
  number('cq-mod', 'cqMod', 1, 512);
  number('engines', 'engines', 1, 64);
  number('busy-poll', 'busyPoll', 0, 10_000);
  if (values.crc !== undefined)
    more.crc = oneOf<string>('--crc', values.crc, [...availableCrc32cEngines(), 'auto', 'off']);
  if (test === 'lat' && (more.inFlight ?? 1) !== 1)
    throw wrong('--in-flight is for bandwidth: latency has one message under way');
  if (test === 'lat' && (more.connections ?? 1) !== 1)
    throw wrong('--connections is for bandwidth: latency has one connection');
  const verbs = listOf('--verb', values.verb ?? 'write', VERBS);
  const layers = listOf('--layer', values.layer ?? 'verbs', LAYERS);
  const engines = listOf('--engine', values.engine ?? 'thread', ENGINES);
  const against = values.against === '' ? [] : listOf('--against', values.against ?? 'tcp-onread', PEERS);
  if (more.engines !== undefined && !engines.includes('worker'))
    throw wrong('--engines counts worker threads: it needs --engine worker');
  checkDepth(test, sizes, more);
  if ((more.connections ?? 1) > 1 && against.includes('c'))
    throw wrong('--connections: the C program has one, leave c out of --against');
  const silent = layers.flatMap((layer) =>
    verbs.filter((verb) => !isMeasured(layer, test, verb)).map((verb) => `${layer} ${verb}`),
  );
  if (silent.length > 0)
    throw wrong(
      `--layer: latency of ${silent.join(', ')} cannot be measured, since nothing reports a peer's Write; ` +
        'take send or read',
    );
  if (test === 'lat' && engines.includes('worker') && layers.includes('verbs') && verbs.includes('write')) {
    throw wrong(
      '--engine worker: latency of Writes cannot be measured, for only polling would show that one has ' +
        'come; take --verb send or read',
    );
  }
  return { test, sizes, more, layers, verbs, engines, against };
}

/**
 * Each connection has its share of the messages under way, at least one, and at least as many as ask for one
 * completion.
 */
function checkDepth(test: TestKind, sizes: readonly number[], more: Partial<CaseSpec>): void {
  const { connections = 1, cqMod = 1 } = more;
  for (const size of sizes) {
    const { inFlight } = { ...spec('verbs', test, size), ...more };
    const each = Math.floor(inFlight / connections);
    const what =
      `with messages of ${size} octets, ${inFlight} under ` +
      `way${connections === 1 ? '' : ` on ${connections} connections`}`;
    if (more.inFlight !== undefined && each < 1)
      throw wrong(
        `--in-flight counts all connections together: ${inFlight} are too few for ${connections} of them`,
      );
    if (cqMod > Math.max(1, each))
      throw wrong(`--cq-mod may not exceed the messages under way on a connection: ${what}`);
  }
}
