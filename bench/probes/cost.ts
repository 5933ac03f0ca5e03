/**
 * Measures the cost of a connection to a server that it only connects to: memory, address space and time, by
 * layer.
 */
import type { Method } from '../method.ts';
import { CostServer } from '../peers/cost-client.ts';
import type { CostLayer } from '../peers/cost-server.ts';
import type { ProbeResult } from '../types.ts';
import { cell, watchSteal, type Probe, type Progress } from './probe.ts';

const IDLE = 1000;
const CHURN = 4000;
const ROUNDS = 4;
const KIB_PER_MIB = 1024;
const ENGINES = ['thread', 'worker'] as const;
const LAYERS: readonly [layer: CostLayer, label: string][] = [
  ['promise', 'promise layer'],
  ['cm', 'connection manager'],
  ['stream', 'byte streams'],
];

interface Kind {
  readonly label: string;
  readonly layer: CostLayer;
  readonly engine: 'thread' | 'worker';
}

const KINDS: readonly Kind[] = [
  { label: 'node:net', layer: 'net', engine: 'thread' },
  ...LAYERS.flatMap(([layer, name]) =>
    ENGINES.map((engine) => ({ label: `${name}, ${engine}`, layer, engine })),
  ),
];

/** The cells of one server's row. */
async function measure({ layer, engine }: Kind): Promise<(number | null)[]> {
  const server = new CostServer(layer, engine);
  try {
    await server.ready();
    const empty = await server.look();
    const began = performance.now();
    await server.open(IDLE);
    const seconds = (performance.now() - began) / 1000;
    const idle = await server.look();
    await server.reset();
    let peak = 0;
    for (let round = 0; round < ROUNDS; round++) {
      await server.open(CHURN);
      peak = Math.max(peak, (await server.look()).resident);
      await server.reset();
    }
    const after = await server.look();
    const each = (key: 'resident' | 'heap' | 'addressSpace'): number | null =>
      cell(((idle[key] - empty[key]) * KIB_PER_MIB) / IDLE, 1);
    return [
      each('resident'),
      each('heap'),
      each('addressSpace'),
      cell(IDLE / seconds, 0),
      cell(peak - empty.resident, 0),
      cell(after.resident - empty.resident, 0),
      cell(after.heap - empty.heap, 1),
    ];
  } finally {
    server.end();
  }
}

async function run(_method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const rows: ProbeResult['rows'][number][] = [];
  const missing: { id: string; reason: string }[] = [];
  for (const kind of KINDS) {
    progress(kind.label);
    try {
      rows.push({ label: kind.label, cells: await measure(kind) });
    } catch (error) {
      missing.push({ id: kind.label, reason: (error as Error).message });
    }
  }
  return {
    id: 'cost',
    title: 'The cost of a connection',
    about: `Memory of a server for each of ${IDLE} connections whose peers say nothing after their start-up;
connections a second while one process makes them, ${100} at a time; then ${ROUNDS} rounds of ${CHURN} such
connections, all reset at the end of a round. Each look after full collections. The peers are not ours: bytes
of an MPA Request over bare sockets. Address space is reserved, and not resident until it is used.`,
    columns: [
      'KiB resident each, idle',
      'KiB heap each, idle',
      'KiB address space each, idle',
      'connections a second',
      `MiB more at ${CHURN}`,
      'MiB more after the churn',
      'MiB more heap after the churn',
    ],
    rows,
    charts: [
      {
        caption: 'KiB of resident memory for each idle connection: less is better',
        unit: 'KiB',
        log: false,
        see: 'Grey is what bare sockets hold, blue is ours.',
        bars: rows.map(({ label, cells }) => ({
          label,
          value: cells[0] as number | null,
          ours: label !== 'node:net',
        })),
      },
    ],
    ratios: [],
    missing,
    disturbed: stolen(),
  };
}

export const cost: Probe = {
  id: 'cost',
  title: 'The cost of a connection',
  seconds: () => KINDS.length * 25,
  run,
};
