/**
 * The program of both sides' processes. The benchmark forks it, says which side it plays (`serve`, `connect`,
 * `attack`), then `start`,
 * `mark`, `stop` and so on; each is answered.
 */
import { monitorEventLoopDelay, performance, PerformanceObserver } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '../reason.ts';
import type { AttackKind } from './hostile.ts';
import type { CaseSpec, Health, LatencySlice, Mark } from '../types.ts';
import { Tally, type Place, type Side, type Transport } from './peer.ts';

export type Command =
  | { readonly do: 'serve'; readonly spec: CaseSpec }
  | { readonly do: 'connect'; readonly spec: CaseSpec; readonly place: Place }
  | {
      readonly do: 'attack';
      readonly attack: AttackKind;
      readonly connections: number;
      readonly place: Place;
    }
  | { readonly do: 'occupy'; readonly ms: number }
  | { readonly do: 'start' | 'mark' | 'stop' | 'fresh' | 'memory' };

export type Answer =
  | { readonly type: 'ready'; readonly place: Place | null }
  | { readonly type: 'mark'; readonly mark: Mark }
  | { readonly type: 'stopped'; readonly health: Health; readonly latency: LatencySlice | null }
  | { readonly type: 'memory'; readonly health: Health }
  | { readonly type: 'failed'; readonly reason: string };

/** Milliseconds that the loop-delay histogram counts as delay although they are its own timer. */
const RESOLUTION_MS = 10;
const MIB = 1 << 20;
/** Memory goes back to the system some time after it has been collected. */
const GC_TURNS = 3;
const GC_PAUSE_MS = 60;

const tally = new Tally();
let side: Side | undefined;
let gcMs = 0;
const loop = monitorEventLoopDelay({ resolution: RESOLUTION_MS });

async function load(spec: CaseSpec): Promise<Transport> {
  switch (spec.peer) {
    case 'verbs':
      return await import('./verbs.ts');
    case 'promises':
      return await import('./promises.ts');
    case 'stream-onread':
    case 'stream-data':
      return await import('./streams.ts');
    case 'ws':
      return await import('./ws.ts');
    case 'grpc':
      return await import('./grpc.ts');
    default:
      return await import('./tcp.ts');
  }
}

const answer = (message: Answer): void => void process.send?.(message);

function mark(): Mark {
  const { user, system } = process.cpuUsage();
  return {
    bytes: tally.bytes(),
    now: Number(process.hrtime.bigint()),
    cpu: user + system,
    gc: gcMs,
    posts: tally.posts,
    postMs: tally.postMs,
    active: performance.eventLoopUtilization().active,
  };
}

function health(): Health {
  const result = {
    rss: process.memoryUsage.rss() / MIB,
    loopP99: Math.max(0, loop.percentile(99) / 1e6 - RESOLUTION_MS),
  };
  loop.reset();
  return result;
}

/** Without what a collection would take; the process has to be started with --expose-gc. */
async function settledHealth(): Promise<Health> {
  for (let i = 0; i < GC_TURNS; i++) {
    globalThis.gc?.();
    await sleep(GC_PAUSE_MS);
  }
  return health();
}

/** Compute and do nothing else. */
function occupy(ms: number): void {
  const until = performance.now() + ms;
  let x = 1;
  while (performance.now() < until) for (let i = 0; i < 10_000; i++) x = Math.imul(x, 0x9e3779b1) + i;
  if (x === 0) process.stderr.write('');
}

async function obey(command: Command): Promise<void> {
  switch (command.do) {
    case 'serve': {
      const served = await (await load(command.spec)).serve(command.spec, tally);
      side = served.side;
      return answer({ type: 'ready', place: served.place });
    }
    case 'connect':
      side = await (await load(command.spec)).connect(command.spec, command.place, tally);
      return answer({ type: 'ready', place: null });
    case 'attack':
      side = await (await import('./hostile.ts')).attack(
        command.attack,
        command.connections,
        command.place,
        tally,
      );
      return answer({ type: 'ready', place: null });
    case 'occupy':
      // After the answer: from the next turn on this thread hears nothing.
      setImmediate(occupy, command.ms);
      return answer({ type: 'mark', mark: mark() });
    case 'memory':
      return answer({ type: 'memory', health: await settledHealth() });
    case 'start':
      loop.enable();
      side?.start();
      return answer({ type: 'mark', mark: mark() });
    case 'mark':
      loop.enable();
      return answer({ type: 'mark', mark: mark() });
    case 'stop':
      side?.stop();
      // Its timer would go on a hundred times a second, in dozens of processes that rest while others are
      // measured.
      loop.disable();
      return answer({ type: 'stopped', health: health(), latency: side?.takeLatency?.() ?? null });
    case 'fresh':
      side?.takeLatency?.();
      return answer({ type: 'mark', mark: mark() });
  }
}

new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) gcMs += entry.duration;
}).observe({ entryTypes: ['gc'] });
process.on('message', (command: Command) => {
  obey(command).catch((error: unknown) => answer({ type: 'failed', reason: reasonOf(error) }));
});
// A benchmark that has died must not leave its peers behind.
process.on('disconnect', () => process.exit(1));
