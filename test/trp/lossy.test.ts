/**
 * The requests of property.test.ts over sockets of the system, with each engine, through the proxy that
 * loses, repeats and reorders datagrams: each ends exactly once, and completions and memory are those of a
 * network that does nothing to them.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { proxy } from '../../cli/proxy.ts';
import { openRnic, retire, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { OPERATIONS, outcomeOf, play, prepare, script, withoutOrder, type Outcome } from './script.ts';
import { End } from './support.ts';

const LIMIT_MS = 20_000;
const opened: Rnic[] = [];
afterEach(() => {
  for (const rnic of opened.splice(0)) retire(rnic);
});

function openEnd(engine: EngineKind, trp: TrpOptions): End {
  const rnic = openRnic({ wire: 'trp', engine, trp });
  opened.push(rnic);
  return new End(rnic, { maxSendWr: 256 });
}

async function until(what: string, done: () => boolean): Promise<void> {
  const end = performance.now() + LIMIT_MS;
  while (!done()) {
    if (performance.now() > end) throw new Error(`in vain: ${what}`);
    await delay(2);
  }
}

/** A proxy with faults; `close` returns what it says about them. */
async function openProxy(target: number, seed: number, faults: readonly string[]) {
  const abort = new AbortController();
  const words = faults.flatMap((fault) => ['--fault', fault]);
  let said = '';
  let status: Promise<number> | undefined;
  const port = await new Promise<number>((listening) => {
    status = proxy(['0', String(target), '--wire', 'trp', '-q', '--seed', String(seed), ...words], {
      out: () => undefined,
      err: (text) => void (said += text),
      listening,
      signal: abort.signal,
    });
  });
  const close = async (): Promise<string> => {
    abort.abort();
    await status;
    return said;
  };
  return { port, close };
}

interface Run {
  readonly client: Outcome;
  readonly server: Outcome;
  /** How often each fault has struck, as the proxy says. */
  readonly struck: readonly number[];
}

async function playOver(
  engine: EngineKind,
  trp: TrpOptions,
  seed: number,
  faults: readonly string[],
): Promise<Run> {
  const [client, server] = [openEnd(engine, trp), openEnd(engine, trp)];
  const listener = await server.rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
    server.watch(request);
    request.accept(server.qp);
  });
  const between = await openProxy(listener.address.port, seed, faults);
  client.watch(client.rnic.cm.connect(client.qp, { host: '127.0.0.1', port: between.port }));
  await until('a connection', () =>
    [client, server].every(({ eventTypes }) => eventTypes.includes('established')),
  );
  prepare(client, seed);
  prepare(server, seed + 1);
  const plain = trp.profile === 'urdma';
  const scripts = [
    { end: client, requests: script(seed + 2, client, server, plain) },
    { end: server, requests: script(seed + 3, server, client, plain) },
  ];
  for (let i = 0; i < OPERATIONS; i += 15) {
    for (const { end, requests } of scripts) end.qp.postSend(requests.slice(i, i + 15));
    await delay(3);
  }
  await until('all completions', () =>
    scripts.every(({ end }) => end.poll().filter(({ wrId }) => wrId < 1000).length >= OPERATIONS),
  );
  await delay(100); // for those that should not come
  const outcomes = { client: outcomeOf(client, OPERATIONS), server: outcomeOf(server, OPERATIONS) };
  client.connection!.disconnect();
  await until('the end', () =>
    [client, server].every(({ eventTypes }) => eventTypes.includes('disconnected')),
  );
  for (const { events } of [client, server])
    expect(events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'graceful' });
  await new Promise<void>((resolve) => listener.close(resolve));
  const said = await between.close();
  const struck = [...said.matchAll(/struck (\d+) time/g)].map(([, times]) => Number(times));
  return { ...outcomes, struck };
}

const MODES: readonly [string, TrpOptions][] = [
  ['placing', {}],
  ['Reads placed', { reads: 'placed' }],
  ['ordered receiver', { receiver: 'ordered' }],
  ['ordered receiver, Reads placed', { receiver: 'ordered', reads: 'placed' }],
  ['urdma', { profile: 'urdma', deadPeer: 10_000 }],
];
/**
 * `urdma` has six transmissions, 10 ms apart, and keeps one range above a hole, so it does not survive much
 * loss with a full window: its faults strike once each.
 */
const FAULTS = {
  fixed: ['drop,rate=8', 'duplicate,rate=8', 'reorder,rate=8,by=3,ms=5'],
  urdma: [
    'drop,opcode=Send,nth=3',
    'drop,opcode=ReadResp,nth=2',
    'drop,opcode=Write,nth=7',
    'duplicate,opcode=ReadReq,nth=2',
    'reorder,opcode=Send,nth=9,by=2,ms=2',
  ],
} as const;

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  it.each(MODES)(
    '%s: every request ends once, as if nothing had happened',
    { timeout: 60_000 },
    async (_, trp) => {
      for (let seed = 1; seed <= 2; seed++) {
        const [ours, theirs] = play(seed, { latency: 1 }, trp);
        const faults = FAULTS[trp.profile ?? 'fixed'];
        const { client, server, struck } = await playOver(engine, trp, seed, faults);
        const seen = trp.reads === 'placed' ? withoutOrder : (outcome: Outcome): Outcome => outcome;
        expect(seen(client)).toEqual(seen(ours));
        expect(seen(server)).toEqual(seen(theirs));
        expect(client.sends.every((one) => one.includes(' success '))).toBe(true);
        expect(struck).toHaveLength(faults.length);
        for (const times of struck) expect(times).toBeGreaterThan(0);
      }
    },
  );
});
