/** Subjects of the papers' rows: connections that are made when they are first measured. */
import { WINDOW, PairClient, type PairRole, type PairSpec } from './queue-pairs.ts';
import type { Figures, Subject } from './paper.ts';
import { PaperPeer } from './peer.ts';
import { StreamClient, type SendPlan, type StreamSpec } from './stream-ends.ts';

const MEGABYTE = 1e6;
/** How long one subject has in a round. */
export const SLICE_MS = 110;
const TRIP_MS = 70;
const FIRST_MESSAGES = 20;
const LEAST_MESSAGES = 10;
const MOST_MESSAGES = 30_000;

let shared: PaperPeer | null = null;
/** The process that all rows use unless they need another. */
export function peer(): PaperPeer {
  return (shared ??= new PaperPeer());
}

/** Ends the other process. */
export function endPeer(): void {
  shared?.end();
  shared = null;
}

/** A subject whose connections `open` makes once. */
export function lazily<T>(
  name: string,
  open: () => Promise<T>,
  measure: (opened: T) => Promise<number | Figures>,
  close: (opened: T) => unknown,
): Subject {
  let opened: Promise<T> | null = null;
  return {
    name,
    measure: async () => await measure(await (opened ??= open())),
    close: async () => {
      if (opened !== null) await opened.then(close, () => undefined);
    },
  };
}

async function openStream(
  role: 'echo' | 'sink',
  spec: StreamSpec,
  at: PaperPeer = peer(),
): Promise<StreamClient> {
  // An extended socket in plain mode has a bare socket as its peer.
  const theirs = spec.wire === 'extended' ? { ...spec, wire: 'net' as const } : spec;
  return await StreamClient.connect(spec, await at.ask({ do: 'streams', role, spec: theirs }));
}

/** Microseconds of a round trip. */
export function pingPong(name: string, spec: StreamSpec, ms: number = TRIP_MS): Subject {
  return lazily(
    name,
    () => openStream('echo', spec),
    (client) => client.pingPong(ms),
    (client) => client.close(),
  );
}

/** Messages for a slice of `ms`, after one of `count` that took `took`. */
export function fitting(count: number, took: number, ms: number): number {
  return Math.round(Math.min(MOST_MESSAGES, Math.max(LEAST_MESSAGES, (count * ms) / took)));
}

/** MB/s of one stream; as many messages as a slice holds. */
export function bulk(
  name: string,
  spec: StreamSpec,
  plan: Omit<SendPlan, 'count'>,
  ms: number = SLICE_MS,
  at?: PaperPeer,
): Subject {
  let count = FIRST_MESSAGES;
  return lazily(
    name,
    () => openStream('sink', spec, at),
    async (client) => {
      const took = await client.send({ ...plan, count });
      const rate = (count * spec.size) / MEGABYTE / (took / 1000);
      count = fitting(count, took, ms);
      return rate;
    },
    (client) => client.close(),
  );
}

/**
 * The same with a separate process for the receiver. What a process receives in new memory depends on what
 * its other streams leave on the heap: a bare socket beside one of ours finds memory that is kept for it.
 */
export function bulkApart(...[name, spec, plan, ms]: Parameters<typeof bulk>): Subject {
  const own = new PaperPeer();
  const subject = bulk(name, spec, plan, ms, own);
  return {
    ...subject,
    close: async () => {
      await subject.close?.();
      own.end();
    },
  };
}

/** Subjects that are figures of one measurement, by name: each turn of the first makes it anew. */
export function together(names: readonly string[], run: () => Promise<Figures>): Subject[] {
  let last: Promise<Figures> | null = null;
  const taken = new Set<string>();
  return names.map((name) => ({
    name,
    measure: async () => {
      if (last === null || taken.has(name)) {
        last = run();
        taken.clear();
      }
      taken.add(name);
      return (await last)[name] ?? Number.NaN;
    },
  }));
}

/** A subject over a queue pair. */
export function pairs(
  name: string,
  role: PairRole,
  spec: PairSpec,
  measure: (client: PairClient) => Promise<number>,
): Subject {
  return lazily(
    name,
    async () => await PairClient.connect(spec, await peer().ask({ do: 'pairs', role, spec })),
    measure,
    (client) => client.close(),
  );
}

/** MB/s of windows of 64 messages over bare sockets, each answered by one byte. */
export function socketWindow(name: string, spec: StreamSpec): Subject {
  return lazily(
    name,
    () => openStream('sink', spec),
    async (client) => {
      const began = performance.now();
      let windows = 0;
      for (; performance.now() - began < TRIP_MS; windows++)
        await client.send({ count: WINDOW, how: 'callback', depth: WINDOW });
      return (windows * WINDOW * spec.size) / MEGABYTE / ((performance.now() - began) / 1000);
    },
    (client) => client.close(),
  );
}

export { TRIP_MS };
