/**
 * The goals of the finished stack: which figure of a run answers each, whether it is met, and what limits it.
 * Every figure is a ratio taken inside a round, so a run on another day and machine can be held against the
 * same goals. A ratio to 'data' sockets, ws or grpc-js is a figure and has no goal: how fast those are
 * depends on the memory allocator and on their versions, and says nothing of this stack.
 */
import type { Better, CaseResult, ExperimentResult, GoalResult, ProbeResult, Spread } from './types.ts';

/** Where the figure is: the ratio of a case to a base, a ratio of a probe, or the worst of some cases. */
type Source =
  | { readonly of: string; readonly to: string }
  | { readonly ratio: string }
  | { readonly worst: readonly string[]; readonly to: string };

interface Goal {
  readonly id: string;
  readonly group: string;
  readonly what: string;
  /** Null for a figure that is shown beside the goals. */
  readonly goal: number | null;
  readonly better: Better;
  /** The name of the goal where its number alone would mislead. */
  readonly shown?: string;
  readonly from: Source;
  /** The cost that keeps the figure from being better, from a profile or by measurement. */
  readonly limit: string;
}

const KIB = 1024;
const MIB = 1 << 20;
const ONREAD = 'TCP, onread';
const DATA = "TCP, 'data'";

const bulk = (series: string, base: string): Source => ({
  of: `bulk/${MIB}/${series}`,
  to: `bulk/${MIB}/${base}`,
});
const at = (part: string, size: number, series: string, base: string): Source => ({
  of: `${part}/${size}/${series}`,
  to: `${part}/${size}/${base}`,
});

const CRC_LIMIT =
  'WebAssembly has no carry-less multiplication: four loads, three XORs and a store for each 16 octets ' +
  'instead';
const WRITEV_LIMIT =
  'the write calls, three quarters of the sender’s time: waking the peer and the kernel’s copies, ' +
  'which bare TCP pays too';
const SENDER_LIMIT =
  'the sender’s thread: write calls half of its time, checksum a fifth, copy a tenth; the receiver has ' +
  'a third of its work';
const READ_LIMIT =
  'the responder: write calls two thirds of its time; with CRC its answers are copied, as Writes are';
const READ_ON_LIMIT = 'the responder does what the sender of Writes does, and the requests come on top';
const SEND_LIMIT =
  'as Writes: the write calls; the receiver, receives and all, has a quarter of the sender’s work';
const MARKER_LIMIT = 'one more pass over the octets at either end, 7 % of the sender’s time with CRC';
const MARKER_OFF_LIMIT =
  'one more pass over the octets at either end, and no sending straight from user memory';
const SMALL_LIMIT =
  'the sender: write calls half of its time, posting and making segments a quarter, copies 7 %; bare ' +
  'TCP with 64 messages a writev shows the rest';

export const GOALS: readonly Goal[] = [
  {
    id: 'crc-1460',
    group: 'CRC32c',
    what: '1460 octets, against the package crc-32',
    goal: 3,
    better: 'more',
    from: { ratio: 'micro/simd 1460 : crc-32 1460' },
    limit:
      'the tail of each call goes through folds and tables that are slower than the long loop; at this ' +
      'size it is a large part',
  },
  {
    id: 'crc-16k',
    group: 'CRC32c',
    what: '16 KiB, against the package crc-32',
    goal: 5.3,
    better: 'more',
    from: { ratio: 'micro/simd 16384 : crc-32 16384' },
    limit: CRC_LIMIT,
  },
  {
    id: 'crc-64k',
    group: 'CRC32c',
    what: '64 KiB, against the package crc-32',
    goal: 8,
    better: 'more',
    from: { ratio: 'micro/simd 65536 : crc-32 65536' },
    limit: CRC_LIMIT,
  },
  {
    id: 'crc-native',
    group: 'CRC32c',
    what: '64 KiB, against the native add-on fast-crc32c',
    goal: 1.8,
    better: 'more',
    from: { ratio: 'micro/simd 65536 : native 65536' },
    limit: CRC_LIMIT,
  },

  {
    id: 'write-off',
    group: 'Writes of 1 MiB',
    what: 'no CRC, against bare onread',
    goal: 0.9,
    better: 'more',
    from: bulk('Write, no CRC', ONREAD),
    limit: WRITEV_LIMIT,
  },
  {
    id: 'write-off-data',
    group: 'Writes of 1 MiB',
    what: "no CRC, against bare 'data'",
    goal: null,
    better: 'more',
    from: bulk('Write, no CRC', DATA),
    limit: WRITEV_LIMIT,
  },
  {
    id: 'write-on',
    group: 'Writes of 1 MiB',
    what: 'CRC, against bare onread',
    goal: 0.42,
    better: 'more',
    from: bulk('Write, CRC', ONREAD),
    limit: SENDER_LIMIT,
  },
  {
    id: 'write-on-data',
    group: 'Writes of 1 MiB',
    what: "CRC, against bare 'data'",
    goal: null,
    better: 'more',
    from: bulk('Write, CRC', DATA),
    limit: SENDER_LIMIT,
  },
  {
    id: 'ws',
    group: 'Writes of 1 MiB',
    what: 'CRC, against ws',
    goal: null,
    better: 'more',
    from: bulk('Write, CRC', 'ws'),
    limit: SENDER_LIMIT,
  },
  {
    id: 'grpc',
    group: 'Writes of 1 MiB',
    what: 'CRC, against grpc-js',
    goal: null,
    better: 'more',
    from: bulk('Write, CRC', 'grpc-js'),
    limit: SENDER_LIMIT,
  },

  {
    id: 'read-off',
    group: 'Other transfers of 1 MiB',
    what: 'Reads against Writes, no CRC',
    goal: 0.9,
    better: 'more',
    from: bulk('Read, no CRC', 'Write, no CRC'),
    limit: READ_LIMIT,
  },
  {
    id: 'read-on',
    group: 'Other transfers of 1 MiB',
    what: 'Reads against Writes, CRC',
    goal: 0.9,
    better: 'more',
    from: bulk('Read, CRC', 'Write, CRC'),
    limit: READ_ON_LIMIT,
  },
  {
    id: 'send-off',
    group: 'Other transfers of 1 MiB',
    what: 'Sends against Writes, no CRC',
    goal: 0.9,
    better: 'more',
    from: bulk('Send, no CRC', 'Write, no CRC'),
    limit: SEND_LIMIT,
  },
  {
    id: 'send-on',
    group: 'Other transfers of 1 MiB',
    what: 'Sends against Writes, CRC',
    goal: 0.9,
    better: 'more',
    from: bulk('Send, CRC', 'Write, CRC'),
    limit: SEND_LIMIT,
  },
  {
    id: 'markers-off',
    group: 'Other transfers of 1 MiB',
    what: 'Writes with markers in both directions against without, no CRC',
    goal: 0.9,
    better: 'more',
    from: bulk('Write, no CRC, markers', 'Write, no CRC'),
    limit: MARKER_OFF_LIMIT,
  },
  {
    id: 'markers-on',
    group: 'Other transfers of 1 MiB',
    what: 'Writes with markers in both directions against without, CRC',
    goal: 0.9,
    better: 'more',
    from: bulk('Write, CRC, markers', 'Write, CRC'),
    limit: MARKER_LIMIT,
  },

  {
    id: 'small-off',
    group: 'Small messages',
    what: 'Writes of 4 KiB posted in lists, no CRC, against one bare write each',
    goal: 7,
    better: 'more',
    from: at('small', 4 * KIB, 'Write, no CRC', ONREAD),
    limit: SMALL_LIMIT,
  },
  {
    id: 'small-on',
    group: 'Small messages',
    what: 'Writes of 4 KiB posted in lists, CRC, against one bare write each',
    goal: 3,
    better: 'more',
    from: at('small', 4 * KIB, 'Write, CRC', ONREAD),
    limit: SMALL_LIMIT,
  },
  {
    id: 'rate',
    group: 'Small messages',
    what: 'Writes of 64 octets, CRC, against one bare write each',
    goal: 12,
    better: 'more',
    from: at('rate', 64, 'Write, CRC', ONREAD),
    limit:
      'the sender: write calls a fifth of its time, filling queue entries a fifth, segments a seventh, ' +
      'CRC and copies a tenth each',
  },

  {
    id: 'latency',
    group: 'Round trip of 64 octets',
    what: 'Sends, CRC, against bare onread',
    goal: 1.1,
    better: 'less',
    from: at('latency', 64, 'Send, CRC', ONREAD),
    limit:
      'bare TCP sleeps and has to be woken, the stack stays awake; the rest is a write and a read ' +
      'call at either end, and a turn of the event loop',
  },
  {
    id: 'latency-data',
    group: 'Round trip of 64 octets',
    what: "Sends, CRC, against bare 'data'",
    goal: null,
    better: 'less',
    from: at('latency', 64, 'Send, CRC', DATA),
    limit: 'as above',
  },

  {
    id: 'ring',
    group: 'Engine in a worker',
    what: 'requests through the ring, 256 under way, against a message each',
    goal: 30,
    better: 'more',
    from: { ratio: 'handover/ring, 256 under way : a message each' },
    limit: 'writing and reading the records; the doorbell rings once for many',
  },
  {
    id: 'busy',
    group: 'Engine in a worker',
    what: '99th percentile of a Read while the server’s main thread computes, against idle',
    goal: 2,
    better: 'less',
    from: { ratio: 'busy/worker p99 : idle' },
    limit: 'two processors: client and worker share them with the thread that computes',
  },

  {
    id: 'connections',
    group: 'Many connections',
    what: '4 KiB Writes, 500 under way on each: 4, 16 or 64 connections against one, the worst',
    goal: 0.9,
    better: 'more',
    from: { worst: [4, 16, 64].map((n) => `spread-each/${n}/Write, CRC`), to: 'spread/1/Write, CRC' },
    limit:
      'memory: all connections together have more under way than stays in a cache. Bare TCP with as ' +
      'much under way and as many messages a writev keeps 0.8 to 0.95 of its one connection in windows ' +
      'as short as these; in runs of seconds 0.4 with 16 or more, the stack 0.85 to 0.95',
  },
  {
    id: 'connections-all',
    group: 'Many connections',
    what: 'the same with 500 under way in all',
    goal: 0.9,
    better: 'more',
    from: { worst: [4, 16, 64].map((n) => `spread/${n}/Write, CRC`), to: 'spread/1/Write, CRC' },
    limit:
      'a write call costs some 6 us however short: 64 connections have seven messages each, and one ' +
      'write cannot carry more, where with 16 or fewer it carries 31. Bare TCP loses as much between ' +
      '31 and 7 messages a writev',
  },
  {
    id: 'idle',
    group: 'Many connections',
    what: "memory of an idle connection right after 70 KB of traffic, against a bare 'data' socket",
    goal: null,
    better: 'less',
    from: { ratio: "idle/iwarp : TCP, 'data'" },
    limit:
      'V8’s young generation, which has grown while a thousand connections came, and shrinks with silence',
  },
  {
    id: 'idle-silent',
    group: 'Many connections',
    what: 'the same after seven seconds of silence',
    goal: null,
    better: 'less',
    from: { ratio: "idle/iwarp : TCP, 'data', silent" },
    limit: 'the queue pair with its entries, the stream and the connection beside the socket itself',
  },

  {
    id: 'kept',
    group: 'Garbage',
    what: 'octets of heap kept for each FPDU, Writes of 64 octets',
    goal: 1,
    better: 'less',
    shown: '0 (under one octet)',
    from: { ratio: 'allocation/64 : kept' },
    limit: 'nothing is kept',
  },
  {
    id: 'garbage',
    group: 'Garbage',
    what: 'octets of garbage for each FPDU beyond those of bare sockets, Writes of 64 octets',
    goal: 0,
    better: 'less',
    from: { ratio: 'allocation/64 : beyond bare' },
    limit:
      'Node’s objects for each read and write call, which several messages share, and a view for each ' +
      'copy above 128 octets',
  },
];

/** The parts of a run that the goals look at. */
type Measured = {
  readonly experiments: readonly ExperimentResult[];
  readonly probes: readonly ProbeResult[];
};

interface Found {
  readonly figure: Spread;
  readonly disturbed: boolean;
}

function look(
  goal: Goal,
  cases: ReadonlyMap<string, CaseResult>,
  probes: readonly ProbeResult[],
): Found | null {
  const { from } = goal;
  if ('ratio' in from) {
    for (const probe of probes) {
      const found = probe.ratios.find(({ id }) => id === from.ratio);
      if (found !== undefined && isNumber(found.spread.median))
        return { figure: found.spread, disturbed: probe.disturbed };
    }
    return null;
  }
  const ids = 'of' in from ? [from.of] : from.worst;
  const found = ids.flatMap((id): Found[] => {
    const figure = cases.get(id)?.ratios[from.to];
    if (figure === undefined || !isNumber(figure.median)) return [];
    return [{ figure, disturbed: cases.get(id)!.disturbed || (cases.get(from.to)?.disturbed ?? false) }];
  });
  if (found.length < ids.length) return null;
  return found.toSorted(
    (a, b) => (a.figure.median - b.figure.median) * (goal.better === 'more' ? 1 : -1),
  )[0]!;
}

/** NaN becomes null in JSON. */
const isNumber = (value: number | null): boolean => typeof value === 'number' && Number.isFinite(value);

function verdictOf({ goal, better }: Goal, { median, low, high }: Spread): GoalResult['verdict'] {
  if (goal === null) return 'no goal';
  const reaches = (value: number): boolean => (better === 'more' ? value >= goal : value <= goal);
  if (reaches(median)) return 'met';
  return reaches(better === 'more' ? high : low) ? 'in the spread' : 'missed';
}

/** In the place of a goal. */
const NO_GOAL = '–';

/** The judgement of a kept run without the goals that have been dropped since: they are figures now. */
export function judgedNow(kept: readonly GoalResult[]): GoalResult[] {
  const dropped = new Set(GOALS.filter(({ goal }) => goal === null).map(({ id }) => id));
  return kept.map((one) =>
    dropped.has(one.id)
      ? { ...one, goal: NO_GOAL, verdict: one.figure === null ? 'not measured' : 'no goal' }
      : one,
  );
}

/** How many goals there are, without mere figures, and how many of them have each verdict. */
export function goalCounts(goals: readonly GoalResult[]): {
  readonly all: number;
  readonly figures: number;
  readonly of: (verdict: GoalResult['verdict']) => number;
} {
  const all = goals.filter(({ goal }) => goal !== NO_GOAL);
  const of = (verdict: GoalResult['verdict']): number =>
    all.filter((goal) => goal.verdict === verdict).length;
  return { all: all.length, figures: goals.length - all.length, of };
}

/** Every goal with what the run says of it. */
export function judgeGoals({ experiments, probes }: Measured): GoalResult[] {
  const cases = new Map(experiments.flatMap((experiment) => experiment.cases).map((one) => [one.id, one]));
  return GOALS.map((goal) => {
    const found = look(goal, cases, probes);
    const { id, group, what, better, limit } = goal;
    return {
      id,
      group,
      what,
      better,
      goal:
        goal.goal === null
          ? NO_GOAL
          : (goal.shown ?? `${better === 'more' ? 'at least' : 'at most'} ${goal.goal}`),
      figure: found?.figure ?? null,
      verdict: found === null ? 'not measured' : verdictOf(goal, found.figure),
      disturbed: found?.disturbed ?? false,
      limit,
    };
  });
}

/** Three digits, no more: the machine knows no more. */
export const digits = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);

export const figureText = (figure: Spread | null): string => (figure === null ? '–' : digits(figure.median));
export const spreadText = (figure: Spread | null): string =>
  figure === null ? '–' : `${digits(figure.low)} to ${digits(figure.high)}, ${figure.rounds} rounds`;

/** On the terminal. */
export function goalsTable(goals: readonly GoalResult[]): string {
  const rows = goals.map(
    ({ group, what, goal, figure, verdict, disturbed }) =>
      `  ${`${group}: ${what}`.padEnd(106)} ${goal.padEnd(20)} ${figureText(figure).padStart(8)}  ` +
      `${`(${spreadText(figure)})`.padEnd(28)} ${verdict}${disturbed ? ' (disturbed)' : ''}`,
  );
  return ['Goals: ratio in a round, median and quartiles', ...rows, ''].join('\n');
}

/** As a table of Markdown, for docs/performance.md, with or without what limits each. */
export function goalsMarkdown(goals: readonly GoalResult[], limits = true): string {
  const plain = (text: string): string => text.replaceAll('|', '\\|');
  const rows = goals.map(
    ({ group, what, goal, figure, verdict, disturbed, limit }) =>
      `| ${plain(`${group}: ${what}`)} | ${goal} | ${figureText(figure)} | ${spreadText(figure)} | ` +
      `${verdict === 'met' || verdict === 'no goal' ? verdict : `**${verdict}**`}${disturbed ? ' *' : ''} ` +
      `|${limits ? ` ${plain(limit)} |` : ''}`,
  );
  const head = ['What', 'Goal', 'Figure', 'Quartiles', 'State', ...(limits ? ['What limits it now'] : [])];
  return [`| ${head.join(' | ')} |`, `| ${head.map(() => '---').join(' | ')} |`, ...rows].join('\n');
}
