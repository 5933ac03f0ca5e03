/**
 * A hostile peer: the cost of its octets for the receiving process, the memory its connections hold, and the
 * remaining rate of a good connection beside it. The server is this package; so is the good client.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { spec } from '../experiments.ts';
import { foreignShare, readTicks } from '../machine.ts';
import { SETTLE_MS, type Method } from '../method.ts';
import { PeerProcess } from '../peer-process.ts';
import { READS, type AttackKind } from '../peers/hostile.ts';
import { median } from '../stats.ts';
import type { CaseSpec, Mark, ProbeRatio, ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

interface Attack {
  readonly kind: AttackKind;
  readonly label: string;
  readonly connections: number;
}

/** Attacks that send without end; the first is the measure. */
const FLOODS: readonly Attack[] = [
  { kind: 'polite', label: 'for comparison: an honest client, Writes of 60 KB', connections: 1 },
  { kind: 'one-octet', label: 'large Writes, each octet in one segment', connections: 1 },
  { kind: 'tiny', label: 'Writes of one octet, 64 KiB at a time', connections: 1 },
  { kind: 'empty-writes', label: 'Writes of no octets, 64 KiB at a time', connections: 1 },
  { kind: 'empty-sends', label: 'Sends of no octets, 64 KiB at a time', connections: 1 },
  { kind: 'tiny-reads', label: `Reads of one octet, ${READS} under way`, connections: 1 },
  { kind: 'empty-reads', label: `Reads of no octets, ${READS} under way`, connections: 1 },
];

/** Attacks that send a little and stay. */
const HOLDS: readonly Attack[] = [
  { kind: 'begun', label: 'three octets of an FPDU, then silence', connections: 2000 },
  { kind: 'half', label: '40,000 octets of a 60,000-octet FPDU, then silence', connections: 2000 },
  { kind: 'unread', label: `${READS} Reads of 1 MiB, and the answers never read`, connections: 200 },
];

const KIB_PER_MIB = 1024;
const GOOD_OCTETS = 4096;
const GOOD_IN_FLIGHT = 256;
/** The server's region: every attack stays inside. */
const REGION_OCTETS = 1 << 20;
/** Messages on the way when an attacker stops have to arrive before the next window. */
const DRAIN_MS = 40;
const HOLD_SETTLE_MS = 500;
const MAX_FOREIGN = 0.5;

/** Three processes; the attacker may be missing. */
interface Stage {
  readonly server: PeerProcess;
  readonly good: PeerProcess;
  readonly bad: PeerProcess;
}

/** One window: what the server used, how far the good client got, what the attacker had taken from it. */
interface Look {
  readonly goodRate: number;
  readonly serverCpu: number;
  readonly badCpu: number;
  readonly badOctets: number;
  readonly ns: number;
  readonly foreign: number;
}

function specs(kind: AttackKind): { readonly server: CaseSpec; readonly good: CaseSpec } {
  const verb = kind === 'empty-sends' ? 'send' : 'write';
  const good = spec('verbs', 'bw', GOOD_OCTETS, { verb, inFlight: GOOD_IN_FLIGHT });
  return { good, server: { ...good, size: REGION_OCTETS } };
}

async function open({ kind, connections }: Attack): Promise<Stage> {
  const { server: served, good: client } = specs(kind);
  const [server, good, bad] = [new PeerProcess(['--expose-gc']), new PeerProcess(), new PeerProcess()];
  try {
    const { place } = await server.ask<'ready'>({ do: 'serve', spec: served });
    await good.ask<'ready'>({ do: 'connect', spec: client, place: place! });
    await bad.ask<'ready'>({ do: 'attack', attack: kind, connections, place: place! });
    return { server, good, bad };
  } catch (error) {
    close({ server, good, bad });
    throw error;
  }
}

function close(stage: Stage): void {
  for (const peer of Object.values(stage) as PeerProcess[]) peer.end();
}

const markOf = async (peer: PeerProcess): Promise<Mark> => (await peer.ask<'mark'>({ do: 'mark' })).mark;
const marks = async ({ server, good, bad }: Stage): Promise<Mark[]> =>
  await Promise.all([server, good, bad].map(markOf));

/** One window with the named clients running. */
async function look(stage: Stage, clients: readonly ('good' | 'bad')[], ms: number): Promise<Look> {
  for (const name of clients) await stage[name].ask({ do: 'start' });
  await sleep(SETTLE_MS);
  const ticks = readTicks();
  const before = await marks(stage);
  await sleep(ms);
  const after = await marks(stage);
  const to = readTicks();
  for (const name of clients) await stage[name].ask({ do: 'stop' });
  await sleep(DRAIN_MS);
  const grown = (at: number, name: keyof Mark): number => after[at]![name] - before[at]![name];
  const ns = grown(0, 'now');
  const own = grown(0, 'cpu') + grown(1, 'cpu') + grown(2, 'cpu');
  return {
    goodRate: (grown(1, 'posts') * GOOD_OCTETS) / ns,
    serverCpu: grown(0, 'cpu'),
    badCpu: grown(2, 'cpu'),
    badOctets: grown(2, 'bytes'),
    ns,
    foreign: foreignShare(ticks, to, own, ns),
  };
}

interface FloodResult {
  readonly label: string;
  readonly kind: AttackKind;
  /** Server CPU for an octet of the attacker's, nanoseconds. */
  readonly perOctet: number[];
  readonly attackerPerOctet: number[];
  readonly rate: number[];
  readonly kept: number[];
  readonly foreign: number[];
  readonly rss: number;
}

async function flood(attack: Attack, method: Method): Promise<FloodResult> {
  const stage = await open(attack);
  const result: FloodResult = {
    label: attack.label,
    kind: attack.kind,
    perOctet: [],
    attackerPerOctet: [],
    rate: [],
    kept: [],
    foreign: [],
    rss: 0,
  };
  try {
    await look(stage, ['good'], method.windowMs);
    for (let round = 0; round < method.rounds; round++) {
      const alone = await look(stage, ['good'], method.windowMs);
      const bad = await look(stage, ['bad'], method.windowMs);
      const both = await look(stage, ['good', 'bad'], method.windowMs);
      result.perOctet.push((bad.serverCpu * 1000) / bad.badOctets);
      result.attackerPerOctet.push((bad.badCpu * 1000) / bad.badOctets);
      result.rate.push((bad.badOctets * 1000) / bad.ns);
      result.kept.push(both.goodRate / alone.goodRate);
      result.foreign.push(alone.foreign, bad.foreign, both.foreign);
    }
    const { health } = await stage.server.ask<'memory'>({ do: 'memory' });
    return { ...result, rss: health.rss };
  } finally {
    close(stage);
  }
}

interface HoldResult {
  readonly label: string;
  readonly kind: AttackKind;
  readonly connections: number;
  /** KiB of the server's resident memory for each connection: held, and merely open. */
  readonly open: number;
  readonly held: number;
  readonly kept: number[];
}

async function hold(attack: Attack, method: Method): Promise<HoldResult> {
  const { server: served, good: client } = specs(attack.kind);
  const [server, good, bad] = [new PeerProcess(['--expose-gc']), new PeerProcess(), new PeerProcess()];
  const stage = { server, good, bad };
  const memory = async (): Promise<number> => (await server.ask<'memory'>({ do: 'memory' })).health.rss;
  try {
    const { place } = await server.ask<'ready'>({ do: 'serve', spec: served });
    await good.ask<'ready'>({ do: 'connect', spec: client, place: place! });
    await look(stage, ['good'], method.windowMs);
    const empty = await memory();
    await bad.ask<'ready'>({
      do: 'attack',
      attack: attack.kind,
      connections: attack.connections,
      place: place!,
    });
    const opened = await memory();
    const alone: number[] = [];
    for (let round = 0; round < method.rounds; round++)
      alone.push((await look(stage, ['good'], method.windowMs)).goodRate);
    await bad.ask({ do: 'start' });
    await sleep(HOLD_SETTLE_MS);
    const held = await memory();
    const kept: number[] = [];
    for (let round = 0; round < method.rounds; round++)
      kept.push((await look(stage, ['good'], method.windowMs)).goodRate / median(alone));
    const each = (mib: number): number => ((mib - empty) * KIB_PER_MIB) / attack.connections;
    return {
      label: attack.label,
      kind: attack.kind,
      connections: attack.connections,
      open: each(opened),
      held: each(held),
      kept,
    };
  } finally {
    close(stage);
  }
}

const ABOUT = `Peers that break no rule and choose what is dearest for us. Shown is what one of their octets
costs the server's processor, what it costs the attacker himself, and how much of its rate a good connection
to the same server keeps (Writes of 4 KiB, or Sends, 256 under way). The server has one thread and two clients
then: what an honest second client leaves is shown for comparison. Connections that only hold memory are
looked at by what the server grows by.`;

// oxlint-disable-next-line max-lines-per-function -- the lines of one report
function resultOf(
  floods: readonly FloodResult[],
  holds: readonly HoldResult[],
  missing: ProbeResult['missing'],
  stolen: boolean,
): ProbeResult {
  const polite = floods.find(({ kind }) => kind === 'polite');
  const rows = [
    ...floods.map((one) => ({
      label: one.label,
      cells: [
        cell(median(one.rate)),
        cell(median(one.perOctet), 3),
        cell(median(one.attackerPerOctet), 3),
        cell(median(one.perOctet) / median(one.attackerPerOctet)),
        cell(median(one.kept)),
        cell(one.rss, 0),
        null,
        null,
      ],
    })),
    ...holds.map((one) => ({
      label: `${one.connections} connections: ${one.label}`,
      cells: [null, null, null, null, cell(median(one.kept)), null, cell(one.open, 1), cell(one.held, 1)],
    })),
  ];
  const ratios: ProbeRatio[] = floods
    .filter((one) => one !== polite)
    .flatMap((one) => [
      ratioOf(
        `hostile/${one.kind} : server's CPU against the attacker's`,
        'less',
        one.perOctet.map((ns, i) => ns / one.attackerPerOctet[i]!),
      ),
      ratioOf(`hostile/${one.kind} : good connection against alone`, 'more', one.kept),
    ]);
  ratios.push(
    ...holds.map((one) => ratioOf(`hostile/${one.kind} : good connection against alone`, 'more', one.kept)),
  );
  const kept = [...floods, ...holds].map((one) => ({
    label: one.label,
    value: cell(median(one.kept)),
    ours: one.kind !== 'polite',
  }));
  const cpu = floods.map((one) => ({
    label: one.label,
    value: cell(median(one.perOctet) / median(one.attackerPerOctet)),
    ours: one.kind !== 'polite',
  }));
  return {
    id: 'hostile',
    title: 'A hostile peer',
    about: ABOUT,
    columns: [
      'attack, million octets/s',
      'server CPU, ns/octet',
      'attacker CPU, ns/octet',
      'server CPU for one of the attacker’s',
      'rate a good connection keeps',
      'server MiB',
      'KiB a connection, open',
      'KiB a connection, held',
    ],
    rows,
    ratios,
    missing,
    charts: [
      {
        caption: 'How much of its rate a good connection keeps beside the attack (1 is all)',
        unit: 'share',
        see:
          'Grey is an honest second client, which takes a share too: an attack may leave less than it ' +
          'does, but not out of proportion.',
        log: false,
        bars: kept,
      },
      {
        caption:
          'Processor time of the server for the same time of the attacker: above 1 the attack is ' +
          'cheaper to make than to bear',
        unit: 'times',
        see:
          'A bar of 1 means that an attacker has to spend as much processor time as he takes from the ' +
          'server.',
        log: false,
        bars: cpu,
      },
    ],
    disturbed: stolen || median(floods.flatMap(({ foreign }) => foreign)) > MAX_FOREIGN,
  };
}

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const missing: { id: string; reason: string }[] = [];
  const each = async <T>(
    attacks: readonly Attack[],
    one: (attack: Attack, method: Method) => Promise<T>,
  ): Promise<T[]> => {
    const results: T[] = [];
    for (const attack of attacks) {
      progress(`${attack.kind}`);
      await one(attack, method).then(
        (result) => results.push(result),
        (error: unknown) => missing.push({ id: attack.kind, reason: (error as Error).message }),
      );
    }
    return results;
  };
  const short = { ...method, windowMs: Math.max(method.windowMs, 100) };
  const floods = await each(FLOODS, flood);
  return resultOf(floods, await each(HOLDS, async (attack) => await hold(attack, short)), missing, stolen());
}

export const hostile: Probe = {
  id: 'hostile',
  title: 'A hostile peer',
  seconds: ({ rounds }) => rounds * 5 + 25,
  run,
};
