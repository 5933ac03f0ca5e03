/**
 * The model test's world: two devices, four connections in two domains a side, shared completion queues, a
 * shared receive queue, and rounds of random requests on all connections at once. After each round the
 * network runs until quiet and everything is compared.
 */
import { IwarpError } from '../../src/base/errors.ts';
import type { MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import {
  PostError,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type SharedReceiveQueue,
  type WorkCompletion,
} from '../../src/verbs/index.ts';
import { Pair, pairWire, type Side } from '../support/pair.ts';
import { Draw } from './draw.ts';
import { Endpoint, ReceivePool } from './endpoint.ts';
import { Round, type Step } from './requests.ts';

const LINKS = 4;
const SEND_DEPTH = 12;
const RECEIVE_DEPTH = 16;
const SHARED_DEPTH = 64;
const CQ_ENTRIES = 512;

/** Networks that cut and delay differently; each seed has one. */
const NETWORKS = [
  { latency: 1 },
  { latency: 0, readOctets: 137 },
  { latency: 2, bandwidth: 300, buffer: 600, readOctets: 1000 },
  { latency: 3, buffer: 64, readOctets: 31 },
] as const;

/**
 * Datagrams that come by themselves, from below a wrap on; each seed has one. Where some are lost, a placing
 * receiver may place a Write before an earlier one to the same place, of which the model knows nothing.
 */
const DATAGRAMS: readonly { readonly datagrams: MemoryDatagramOptions; readonly trp: TrpOptions }[] = [
  { datagrams: { latency: 1 }, trp: {} },
  { datagrams: { loss: 0.03, reordering: 0.05, latency: 1 }, trp: { receiver: 'ordered' } },
  { datagrams: { repetition: 0.1, bandwidth: 100, latency: 2 }, trp: {} },
  { datagrams: { loss: 0.1, repetition: 0.1, reordering: 0.1 }, trp: { receiver: 'ordered' } },
];
const NEAR_WRAP = 0xffff_fff0;

/** Other threads that hear late, and poll for shorter or longer; each seed has one. */
const THREADS = [
  { latency: 1 },
  { latency: 0 },
  { latency: 1, busyPoll: 50 },
  { latency: 3, busyPoll: 5000 },
] as const;

interface Link {
  readonly a: Endpoint;
  readonly b: Endpoint;
}

interface Half {
  readonly side: Side;
  readonly pds: readonly ProtectionDomain[];
  readonly srq: SharedReceiveQueue;
  readonly shared: ReceivePool;
  /** One region in each domain that no connection of that domain uses. */
  readonly bystanders: readonly MemoryRegion[];
}

export class World {
  readonly #draw: Draw;
  readonly #pair: Pair;
  readonly #links: Link[] = [];
  readonly #halves: Half[];
  /** Calls made so far: posts, polls, registrations and the like. */
  operations = 0;
  /** Connections that ended, by how. */
  readonly ends: Record<'local' | 'remote' | 'closed' | 'reset', number> = {
    local: 0,
    remote: 0,
    closed: 0,
    reset: 0,
  };

  /** Most Writes of a connection that its writer has placed itself. */
  placed = 0;

  private constructor(seed: number) {
    this.#draw = new Draw(seed);
    const network = NETWORKS[seed % NETWORKS.length]!;
    const shm = THREADS[seed % THREADS.length]!;
    const sides = { client: { cqSize: CQ_ENTRIES }, server: { cqSize: CQ_ENTRIES } };
    const { datagrams, trp } = DATAGRAMS[seed % DATAGRAMS.length]!;
    this.#pair = new Pair({
      seed,
      network,
      shm,
      datagrams: { ...datagrams, seed },
      trp: { ...trp, firstPsn: NEAR_WRAP },
      ...sides,
    });
    this.#halves = [this.#pair.client, this.#pair.server].map((side) => this.#half(side));
  }

  static async create(seed: number): Promise<World> {
    const world = new World(seed);
    await world.#pair.listen();
    for (let i = 0; i < LINKS; i++) {
      const [a, b] = world.#halves.map((half) => world.#endpoint(half, i)) as [Endpoint, Endpoint];
      world.#links.push({ a, b });
      world.#connect({ a, b });
    }
    return world;
  }

  #half(side: Side): Half {
    const pds = [side.device.allocatePd(), side.device.allocatePd()];
    const srq = pds[1]!.createSrq({ maxWr: SHARED_DEPTH });
    const shared = new ReceivePool(pds[1]!, SHARED_DEPTH, true, (pool, wrId, offset) =>
      srq.postRecv({ wrId, sges: [{ mr: pool.inbox, offset, length: 64 }] }),
    );
    const bystanders = pds.map((pd) => pd.registerMemory(new Uint8Array(256), 31));
    return { side, pds, srq, shared, bystanders };
  }

  /**
   * Links 0 and 1 lie in the first domain, 2 and 3 in the second; link 3 uses the shared receive queue on
   * both sides, link 2 on one, but over UDP, where there is none.
   */
  #endpoint(half: Half, index: number): Endpoint {
    const pd = half.pds[index < 2 ? 0 : 1]!;
    const useShared = pairWire() !== 'trp' && (index === 3 || (index === 2 && half.side.name === 'server'));
    const qp = this.#createQp(half, pd, useShared);
    const pool = useShared ? half.shared : this.#ownPool(pd, () => endpoint.qp);
    const endpoint: Endpoint = new Endpoint(half.side, pd, this.#draw, qp, pool);
    return endpoint;
  }

  #createQp(half: Half, pd: ProtectionDomain, useShared: boolean): QueuePair {
    const { sendCq, recvCq } = half.side;
    return pd.createQp({
      sendCq,
      recvCq,
      maxSendWr: SEND_DEPTH,
      maxRecvWr: RECEIVE_DEPTH,
      ...(useShared ? { srq: half.srq } : {}),
    });
  }

  #ownPool(pd: ProtectionDomain, qp: () => QueuePair): ReceivePool {
    return new ReceivePool(pd, RECEIVE_DEPTH, false, (pool, wrId, offset) =>
      qp().postRecv({ wrId, sges: [{ mr: pool.inbox, offset, length: 64 }] }),
    );
  }

  #connect({ a, b }: Link): void {
    const pair = this.#pair;
    pair.client.qp = a.qp;
    pair.server.qp = b.qp;
    pair.connectClient();
    pair.run();
    if (a.qp.state !== 'rts' || b.qp.state !== 'rts')
      throw new Error(`a connection could not be made: ${a.qp.state}, ${b.qp.state}`);
    pair.client.events.length = pair.server.events.length = 0;
    pair.client.asyncEvents.length = pair.server.asyncEvents.length = 0;
  }

  // ------------------------------------------------------------------------------------------------- a round

  /** Requests on every connection, then quiet, then the comparison. */
  round(): void {
    const draw = this.#draw;
    const rounds = this.#links.map((link) => {
      const [from, to] = draw.oneIn(2) ? [link.a, link.b] : [link.b, link.a];
      this.#topUp(from);
      this.#topUp(to);
      const round = new Round(from, to, () => this.#foreign(to), pairWire() === 'shm');
      return { link, from, to, round };
    });
    for (let turn = 0; turn < 3; turn++) {
      for (const { from, round } of rounds) this.#post(from, round);
      if (draw.oneIn(3)) this.#pair.advance(1);
    }
    this.#pair.run();
    this.#pair.client.events.length = this.#pair.server.events.length = 0;
    const completions = this.#poll();
    for (const { link, from, to, round } of rounds) {
      const ended = round.doom !== null;
      for (const endpoint of [from, to]) this.#compare(endpoint, completions, ended);
      to.verify();
      if (ended) this.#afterDoom(link, from, to, round);
      else {
        from.verify();
        this.#countPlaced(from, to);
      }
    }
    this.#between();
  }

  #countPlaced(from: Endpoint, to: Endpoint): void {
    const sent = from.qp.counters()?.messagesOut.writes ?? 0;
    const received = to.qp.counters()?.messagesIn.writes ?? 0;
    this.placed = Math.max(this.placed, sent - received);
  }

  #topUp(endpoint: Endpoint): void {
    const { pool } = endpoint;
    const wanted = pool.shared || !this.#draw.oneIn(40) ? pool.depth : this.#draw.below(3);
    while (pool.posted.length < wanted) {
      pool.postOne();
      this.operations++;
    }
  }

  /** STags of the same device in the other domain; nobody changes them, so that nothing races. */
  #foreign(endpoint: Endpoint): number[] {
    const half = this.#halves.find(({ side }) => side === endpoint.side)!;
    return half.bystanders.filter((mr) => mr.pd !== endpoint.pd).map((mr) => mr.rkey);
  }

  /** A few requests, one by one or as a list; each mistake must be found, and nothing else. */
  #post(from: Endpoint, round: Round): void {
    const draw = this.#draw;
    const count = draw.below(4);
    if (draw.oneIn(2)) {
      for (let i = 0; i < count; i++) this.#postList(from, [round.next()]);
      return;
    }
    const list: Step[] = [];
    while (list.length < count) {
      const step = round.next();
      list.push(step);
      if (step.code !== undefined) break;
    }
    if (list.length > 0) this.#postList(from, list);
  }

  #postList(from: Endpoint, list: readonly Step[]): void {
    this.operations += list.length;
    const wrong = list.findIndex((step) => step.code !== undefined);
    const expected = wrong < 0 ? 'nothing' : `${list[wrong]!.code} at ${wrong}`;
    let got = 'nothing';
    try {
      from.qp.postSend(list.map((step) => step.request));
    } catch (error) {
      if (!(error instanceof PostError)) throw error;
      got = `${error.code} at ${error.posted}`;
      if (got !== expected)
        throw new Error(`posting threw ${got} (${error.message}), expected ${expected}`, { cause: error });
    }
    if (got !== expected) throw new Error(`posting threw ${got}, expected ${expected}`);
  }

  /** Poll every queue empty, in pieces; completions by side, kind and queue pair. */
  #poll(): Map<string, WorkCompletion[]> {
    const found = new Map<string, WorkCompletion[]>();
    for (const { side } of this.#halves) {
      for (const [kind, cq] of [
        ['send', side.sendCq],
        ['receive', side.recvCq],
      ] as const)
        this.#pollOne(`${side.name} ${kind}`, cq, found);
    }
    return found;
  }

  #pollOne(name: string, cq: CompletionQueue, found: Map<string, WorkCompletion[]>): void {
    const draw = this.#draw;
    if (draw.oneIn(20)) cq.resize(cq.length + CQ_ENTRIES + draw.below(100));
    while (cq.length > 0) {
      const out: WorkCompletion[] = [];
      const n = cq.poll(out, 1 + draw.below(9));
      this.operations++;
      for (let i = 0; i < n; i++) {
        const key = `${name} ${out[i]!.qpNumber}`;
        const list = found.get(key);
        if (list === undefined) found.set(key, [out[i]!]);
        else list.push(out[i]!);
      }
    }
  }

  #compare(endpoint: Endpoint, completions: Map<string, WorkCompletion[]>, ended: boolean): void {
    const key = (kind: string): string => `${endpoint.side.name} ${kind} ${endpoint.qp.number}`;
    try {
      endpoint.verifySends(completions.get(key('send')) ?? []);
      endpoint.verifyReceives(completions.get(key('receive')) ?? [], ended);
    } catch (error) {
      const { state, terminate } = endpoint.qp.query();
      throw new Error(
        `${endpoint.side.name}: ${(error as Error).message}; state ${state}, ` +
          `${terminate?.origin ?? 'no'} Terminate ${terminate?.description ?? ''}`,
        { cause: error },
      );
    }
  }

  // ---------------------------------------------------------------------------------------------------- ends

  #afterDoom(link: Link, from: Endpoint, to: Endpoint, round: Round): void {
    const doom = round.doom!;
    this.ends[doom.by]++;
    const guilty = doom.by === 'local' ? from : to;
    const innocent = doom.by === 'local' ? to : from;
    if (from.qp.state !== 'error' || to.qp.state !== 'error')
      throw new Error(`states ${from.qp.state}, ${to.qp.state} after an error`);
    const told = [guilty, innocent].map(({ qp }) => {
      const t = qp.query().terminate;
      return t === undefined
        ? 'none'
        : `${t.origin} ${t.layer}/${t.type}/${t.code.toString(16).padStart(2, '0')}`;
    });
    const wanted = [`local ${doom.terminate}`, `remote ${doom.terminate}`];
    if (told.join() !== wanted.join()) throw new Error(`Terminates ${told.join()}, not ${wanted.join()}`);
    from.clear();
    to.clear();
    this.#revive(link);
  }

  #revive(link: Link): void {
    for (const [i, endpoint] of [link.a, link.b].entries()) {
      const half = this.#halves[i]!;
      const bound = endpoint.windows.find((window) => window.valid);
      if (bound !== undefined) throwUnlessInUse(() => endpoint.qp.destroy(), bound.stag);
      if (bound === undefined && this.#draw.oneIn(2)) {
        endpoint.qp.destroy();
        endpoint.qp = this.#createQp(half, endpoint.pd, endpoint.pool.shared);
      } else if (endpoint.qp.state === 'error') {
        endpoint.qp.modify({ state: 'idle' });
      }
      this.operations++;
    }
    for (const { side } of this.#halves) {
      if (side.sendCq.length + side.recvCq.length > 0) throw new Error('completions came after the end');
    }
    this.#connect(link);
  }

  /** Between rounds: churn of regions, an orderly close, a reset. */
  #between(): void {
    const draw = this.#draw;
    const link = draw.pick(this.#links);
    this.operations += draw.pick([link.a, link.b]).churn();
    if (!draw.oneIn(pairWire() === 'trp' ? 10 : 60)) return;
    const kind = draw.oneIn(2) ? 'closed' : 'reset';
    this.ends[kind]++;
    const first = draw.pick([link.a, link.b]);
    const other = first === link.a ? link.b : link.a;
    first.qp.modify({ state: kind === 'closed' ? 'closing' : 'error' });
    this.#pair.run();
    // There is no reset over UDP: a peer that misses nothing sees an orderly end. An idle one does not learn
    // of it if the network loses all three FINs.
    const untold = pairWire() === 'trp' && kind === 'reset';
    const missed = untold && other.qp.state === 'rts';
    if (missed) other.qp.modify({ state: 'error' });
    this.#pair.run();
    const completions = this.#poll();
    for (const endpoint of [link.a, link.b]) {
      this.#compare(endpoint, completions, true);
      const orderly = kind === 'closed' || (untold && endpoint === other && !missed);
      const state = orderly ? 'idle' : 'error';
      if (endpoint.qp.state !== state)
        throw new Error(`state ${endpoint.qp.state}, not ${state}, after ${kind}`);
      endpoint.verify();
    }
    this.#revive(link);
  }
}

function throwUnlessInUse(call: () => void, stag: number): void {
  try {
    call();
  } catch (error) {
    if (error instanceof IwarpError && error.code === 'ERR_IN_USE') return;
    throw error;
  }
  throw new Error(`a queue pair was destroyed with window ${stag.toString(16)} bound through it`);
}
