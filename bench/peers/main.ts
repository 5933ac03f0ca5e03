/**
 * The program of both sides' processes. The benchmark forks it, sends one `role` message, then `start`, `mark`, `stop` and `end`; each
 * but the last is answered.
 */
import { monitorEventLoopDelay, PerformanceObserver } from 'node:perf_hooks';
import type { CaseSpec, Health, LatencySlice, Mark } from '../types.ts';
import { Tally, type Place, type Side, type Transport } from './peer.ts';

export type Command =
  | { readonly do: 'serve'; readonly spec: CaseSpec }
  | { readonly do: 'connect'; readonly spec: CaseSpec; readonly place: Place }
  | { readonly do: 'start' | 'mark' | 'stop' | 'end' };

export type Answer =
  | { readonly type: 'ready'; readonly place: Place | null }
  | { readonly type: 'mark'; readonly mark: Mark }
  | { readonly type: 'stopped'; readonly health: Health; readonly latency: LatencySlice | null }
  | { readonly type: 'failed'; readonly reason: string };

/** What the loop-delay histogram counts as delay although it is its own timer. */
const RESOLUTION_MS = 10;
const MIB = 1 << 20;

const tally = new Tally();
let side: Side | undefined;
let gcMs = 0;
const loop = monitorEventLoopDelay({ resolution: RESOLUTION_MS });

async function load(spec: CaseSpec): Promise<Transport> {
  switch (spec.peer) {
    case 'iwarp':
      return await import('./iwarp.ts');
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
  return { bytes: tally.bytes(), now: Number(process.hrtime.bigint()), cpu: user + system, gc: gcMs, posts: tally.posts, postMs: tally.postMs };
}

function health(): Health {
  const { rss, heapUsed, external } = process.memoryUsage();
  const late = (ns: number): number => Math.max(0, ns / 1e6 - RESOLUTION_MS);
  const result = { rss: rss / MIB, heap: heapUsed / MIB, external: external / MIB, loopP99: late(loop.percentile(99)), loopMax: late(loop.max) };
  loop.reset();
  return result;
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
    case 'start':
      side?.start();
      return answer({ type: 'mark', mark: mark() });
    case 'mark':
      return answer({ type: 'mark', mark: mark() });
    case 'stop':
      side?.stop();
      return answer({ type: 'stopped', health: health(), latency: side?.takeLatency?.() ?? null });
    case 'end':
      side?.close();
      process.exit(0);
  }
}

new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) gcMs += entry.duration;
}).observe({ entryTypes: ['gc'] });
loop.enable();
process.on('message', (command: Command) => {
  obey(command).catch((error: unknown) => answer({ type: 'failed', reason: (error as Error).message }));
});
// A benchmark that has died must not leave its peers behind.
process.on('disconnect', () => process.exit(1));
