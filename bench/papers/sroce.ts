/**
 * The rows of "Software RDMA over Commodity Ethernet" (UT Austin): RDMA Writes over their size, the number
 * under way, and connections. They are experiments of `iwarp bench`, each line in separate processes.
 */
import { spec } from '../experiments.ts';
import { SETTLE_MS, type Method } from '../method.ts';
import { runExperiment } from '../runner.ts';
import { spread } from '../stats.ts';
import type { Case, CaseResult, CaseSpec, Experiment, PeerKind, Spread } from '../types.ts';
import type { GroupResult, Paper, Part, RowResult } from './paper.ts';
import { SROCE_CITE } from './names.ts';
import { KIB, sizeText } from './sizes.ts';

/** Windows as `iwarp bench` has them. */
const WINDOWS = { windows: 2, windowMs: 1.5 * SETTLE_MS, latencyMs: 3 * SETTLE_MS };
const UNDER_WAY = 500;
const MESSAGE = 4 * KIB;

/** A line of a figure. */
interface Line {
  readonly series: string;
  readonly peer: PeerKind;
  readonly more?: Partial<CaseSpec>;
}

const TCP: Line = { series: 'net', peer: 'tcp-onread' };
const WRITE: Line = { series: 'Write', peer: 'verbs', more: { verb: 'write', crc: 'off' } };
const WRITE_CRC: Line = { series: 'Write, CRC', peer: 'verbs', more: { verb: 'write' } };
const WORKER: Line = {
  series: 'Write, 1 worker',
  peer: 'verbs',
  more: { verb: 'write', crc: 'off', engine: 'worker' },
};
const WORKERS: Line = {
  series: 'Write, 2 workers',
  peer: 'verbs',
  more: { verb: 'write', crc: 'off', engine: 'worker', engines: 2 },
};

const caseOf = (
  id: string,
  { series, peer, more }: Line,
  x: number,
  size: number,
  inFlight: number,
): Case => ({
  id: `${id}/${x}/${series}`,
  series,
  x,
  spec: spec(peer, 'bw', size, { ...more, inFlight }),
});

function experiment(id: string, axis: Experiment['axis'], groups: readonly (readonly Case[])[]): Experiment {
  return {
    ...{ id, title: id, test: 'bw', axis, unit: 'GB/s', about: '' },
    groups: groups.map((cases) => ({ cases, bases: [cases[0]!.id] })),
  };
}

/** A spread of figures that are `scale` over those of `rate`: quartiles change places. */
const over = (scale: number, { median, low, high, best, rounds }: Spread): Spread => ({
  ...{ median: scale / median, low: scale / high, high: scale / low, best: scale / best, rounds },
});

/** Throughput in MB/s and latency in microseconds of one line at one place. */
function rowsOf(one: CaseResult, base: string): { throughput: RowResult; latency: RowResult } {
  const { size, inFlight } = one.spec;
  const mbs = (value: number): number => value * 1000;
  const { median, low, high, best, rounds } = one.value;
  const figure = { median: mbs(median), low: mbs(low), high: mbs(high), best: mbs(best), rounds };
  const us = (one.cost.serverPerByte + one.cost.clientPerByte) * 1000;
  const cpu = Number.isFinite(us) ? spread([us]) : null;
  const ratio = one.id === base ? spread([1]) : (one.ratios[base] ?? spread([]));
  const name = one.series;
  return {
    throughput: { name, figure, ratio, cpu },
    // Little's law: each of the messages under way takes this long from its post to its completion.
    latency: { name, figure: over(inFlight * size, figure), ratio: null, cpu: null },
  };
}

/** The groups of one experiment: places along its axis, throughput and latency. */
async function* measured(
  one: Experiment,
  rounds: number,
  base: string,
  place: (x: number) => string,
): AsyncGenerator<GroupResult> {
  const method: Method = { rounds, ...WINDOWS };
  const result = await runExperiment(one, method, () => undefined);
  const bases = new Map(one.groups.flatMap(({ cases, bases: [id] }) => cases.map((each) => [each.id, id!])));
  const missing = result.missing.map(({ id, reason }) => `${id}: ${reason}`);
  for (const panel of ['throughput', 'latency'] as const)
    for (const x of [...new Set(result.cases.map((each) => each.x))].toSorted((a, b) => a - b)) {
      const cases = result.cases.filter((each) => each.x === x);
      yield {
        ...{ panel, at: place(x), unit: panel === 'throughput' ? 'MB/s' : 'us from post to completion' },
        base: panel === 'throughput' ? base : null,
        rows: cases.map((each) => rowsOf(each, bases.get(each.id)!)[panel]),
        goals: [],
        missing: panel === 'throughput' ? missing : [],
      };
    }
}

const SIZES = [16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB];
const figure4: Part = {
  id: 'sroce-4',
  row: 'fig. 4',
  title: 'Writes over size, 500 under way on one connection',
  there: 'above the hardware for small Writes',
  why:
    'Writes posted together share a write call, where sockets make one each, which decides until the bytes ' +
    'themselves do, since each is copied once more than with sockets.',
  groups: (rounds) => {
    const groups = SIZES.map((size) =>
      [TCP, WRITE, WRITE_CRC].map((line) => caseOf('sroce-4', line, size, size, UNDER_WAY)),
    );
    return measured(experiment('sroce-4', 'size', groups), rounds, 'net', sizeText);
  },
};

const DEPTHS = [1, 2, 4, 8, 16, 64, 256, 512];
const figure5: Part = {
  id: 'sroce-5',
  row: 'fig. 5',
  title: 'Writes of 4096 bytes over the number under way',
  there: 'above 4 under way more than 20 Gb/s, where the hardware has about 10; latency rises',
  why:
    'One Write under way waits for its completion; a few fill a write call, after which throughput ' +
    'is level and ' +
    'latency grows with the number under way, as it has to.',
  groups: (rounds) => {
    const groups = [TCP, WRITE].map((line) =>
      DEPTHS.map((inFlight) => caseOf('sroce-5', line, inFlight, MESSAGE, inFlight)),
    );
    const place = (x: number): string => `${x}`;
    return measured(experiment('sroce-5', 'in flight', groups), rounds, 'itself with 1', place);
  },
};

const CONNECTIONS = [1, 4, 16, 64];
const figure6: Part = {
  id: 'sroce-6',
  row: 'fig. 6, table 2',
  title: 'Writes of 4096 bytes over connections, 500 under way in all',
  there: 'falls: on two cores from 20,185 Mb/s on one connection to 1,085 Mb/s on 64',
  why:
    'With 500 under way in all, each of 64 connections has seven, so that a write call carries fewer ' +
    'messages ' +
    'than on one connection; with a second worker there are more threads than processors.',
  groups: (rounds) => {
    const groups = [TCP, WRITE, WORKER, WORKERS].map((line) =>
      CONNECTIONS.map((connections) =>
        caseOf('sroce-6', { ...line, more: { ...line.more, connections } }, connections, MESSAGE, UNDER_WAY),
      ),
    );
    const place = (x: number): string => `${x}`;
    return measured(experiment('sroce-6', 'connections', groups), rounds, 'itself with 1', place);
  },
};

const HARDWARE =
  "The paper's other side is an adapter, which this benchmark has not: the ratios are to bare " +
  'sockets or to ' +
  'the line itself.';

/** The paper's parts. */
export const SROCE: Paper = {
  id: 'sroce',
  title: 'SRoCE',
  cite: SROCE_CITE,
  parts: [figure4, figure5, figure6].map((part) => ({ ...part, lacks: [HARDWARE] })),
};
