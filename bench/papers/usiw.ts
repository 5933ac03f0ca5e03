/**
 * The rows of "Userspace software iWARP using DPDK" (RZ 3894, 2016): the figures of perftest, over UDP and
 * over TCP, and its key-value store.
 */
import { bareLatency, bareRate, latency, rate, SIZES, WIRES } from '../trp/sizes.ts';
import type { Group, Paper, Part, Subject } from './paper.ts';
import { USIW_CITE } from './names.ts';
import { KV_VERBS, kvSubjects, type KvLoad } from './kv-ends.ts';
import { sizeText } from './sizes.ts';
import { bulk, pingPong } from './subjects.ts';
import { trp } from './trp-peer.ts';

const NAMES = { trp: 'TRP', iwarp: 'iWARP' } as const;
/** Longest message of one datagram. */
const DATAGRAM = 65_000;

const SIW =
  "Linux's siw runs in a guest with an emulated processor (`npm run interop`), whose latency is that " +
  'of the ' +
  'emulation: a ratio to it would say nothing.';

/** Half a round trip of bare sockets, as perftest counts. */
function half(subject: Subject): Subject {
  return { ...subject, measure: async () => ({ typical: Number(await subject.measure()) / 2 }) };
}

function latencies(verb: 'send' | 'write' | 'read', size: number): Group {
  const wires = WIRES.map(
    (wire): Subject => ({
      name: NAMES[wire],
      measure: async () => {
        const { typical, p99 } = await latency((await trp()).peer, verb, wire, size);
        return { typical, jitter: p99 / typical };
      },
    }),
  );
  const dgram: Subject = {
    name: 'dgram',
    measure: async () => ({ typical: await bareLatency((await trp()).ports.echo, size) }),
  };
  // Bare sockets have nothing like a Read.
  const bare = verb === 'read' ? [] : [half(pingPong('net', { wire: 'net', size }))];
  return {
    ...{ panel: verb, at: sizeText(size), unit: 'us', base: verb === 'read' ? 'iWARP' : 'net', cpu: false },
    quantities: [
      { key: 'typical', panel: `${verb}, median latency`, unit: 'us' },
      { key: 'jitter', panel: `${verb}, 99th percentile to median`, unit: 'times the median' },
    ],
    subjects: [...bare, ...wires, ...(verb !== 'read' && size < DATAGRAM ? [dgram] : [])],
    mostRounds: 5,
  };
}

const figure6: Part = {
  id: 'usiw-6',
  row: 'fig. 6',
  title: 'latency of Sends, Writes and Reads by perftest, 2 bytes to 8 MiB',
  there: 'less than half the latency of softiwarp in the kernel, and stable',
  why:
    'Here no driver polls an adapter: both wires pay the calls of the system, TRP cuts a message ' +
    'into datagrams ' +
    'and acknowledges them in JavaScript, and the event loop stays awake for 50 us where bare sockets sleep.',
  headline: ['TRP', 'iWARP'],
  lacks: [SIW, 'Iterations fall with the size, to 20 at 8 MiB, where the paper has 10,000.'],
  *groups() {
    for (const verb of ['send', 'write', 'read'] as const)
      for (const size of SIZES) yield latencies(verb, size);
  },
};

const figure7: Part = {
  id: 'usiw-7',
  row: 'fig. 7',
  title: 'throughput of Writes with 1 and with 128 in flight, 2 bytes to 8 MiB',
  there: 'siw is ahead; one Write in flight keeps the throughput of Writes low',
  why:
    'A Write completes when its bytes are with the transport and does not wait for the peer, so that ' +
    'one in ' +
    'flight costs a turn of the event loop each and no round trip over TCP; small Writes ' +
    'share calls only in lists.',
  headline: ['TRP, 128', 'iWARP, 128', 'iWARP, 1'],
  lacks: [SIW],
  *groups() {
    for (const size of SIZES)
      yield {
        ...{ panel: 'Writes', at: sizeText(size), unit: 'MB/s', base: 'TRP, 1', cpu: false, mostRounds: 3 },
        subjects: [
          ...WIRES.flatMap((wire) =>
            [1, 128].map((depth) => ({
              name: `${NAMES[wire]}, ${depth}`,
              measure: async () => await rate((await trp()).peer, wire, size, depth),
            })),
          ),
          bulk('net', { wire: 'net', size }, { how: 'drain' }),
          {
            name: 'dgram, 8 KiB at most',
            measure: async () => await bareRate((await trp()).ports.bareSink, size),
          },
        ],
      };
  },
};

const LOADS: readonly KvLoad[] = [1, 8, 64].flatMap((clients) =>
  [64, 4096].map((size) => ({ clients, size })),
);

const store: Part = {
  id: 'usiw-kv',
  row: 'key-value store',
  title: 'GETs and PUTs, one at a time for each client',
  there: 'an application of the stack, without figures',
  why:
    'A repeated GET is one Read, which a worker of the owner answers and its program never sees, so ' +
    'that it costs ' +
    'a round trip of iWARP in JavaScript beside a server in C.',
  headline: ['iwarp kv'],
  *groups() {
    for (const verb of KV_VERBS)
      for (const load of LOADS) {
        const subjects = kvSubjects(verb, load);
        yield {
          ...{ panel: verb, at: `${load.clients} x ${sizeText(load.size)}`, unit: 'us', cpu: false },
          base: 'redis-server',
          quantities: [
            { key: 'rate', panel: `${verb}, rate`, unit: 'a second' },
            { key: 'typical', panel: `${verb}, median latency`, unit: 'us' },
          ],
          subjects,
        };
      }
  },
};

/** The paper's parts. */
export const USIW: Paper = { id: 'usiw', title: 'USIW', cite: USIW_CITE, parts: [figure6, figure7, store] };
