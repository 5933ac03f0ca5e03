/**
 * The rows of "Asynchronous Zero-copy Communication for Synchronous Sockets in SDP over InfiniBand" (IPDPS
 * 2006), for SDP over iWARP. ZSDP is one advertisement and a program that waits for each; asynchronous
 * is many advertisements and memory that is lent.
 */
import { createCheck, detach, register, copyOfBytes } from './steps.ts';
import { ratioIn, type Group, type Paper, type Part, type Subject } from './paper.ts';
import { AZ_SDP_CITE } from './names.ts';
import { PaperPeer } from './peer.ts';
import { KIB, MIB, sizeText as size } from './sizes.ts';
import { StreamClient, type SendPlan, type StreamSpec } from './stream-ends.ts';
import { bulk, fitting, lazily, peer, pingPong, SLICE_MS, TRIP_MS } from './subjects.ts';

/** Leases that an asynchronous program has out. */
const DEPTH = 32;
const NET: Omit<StreamSpec, 'size'> = { wire: 'net' };
const BUFFERED: Omit<StreamSpec, 'size'> = { wire: 'sdp', mode: 'buffered' };
const ZSDP: Omit<StreamSpec, 'size'> = { wire: 'sdp', mode: 'source', maxAdverts: 1 };
const SINK: Omit<StreamSpec, 'size'> = { wire: 'sdp', mode: 'sink', read: 'places' };
const AZ: Omit<StreamSpec, 'size'> = { wire: 'sdp', mode: 'source', maxAdverts: 16 };
const SYNCHRONOUS: Omit<SendPlan, 'count'> = { how: 'callback', depth: 1 };
const ASYNCHRONOUS: Omit<SendPlan, 'count'> = { how: 'lend', depth: DEPTH };
const UNTIL_FULL: Omit<SendPlan, 'count'> = { how: 'drain' };

const table1: Part = {
  id: 'table-1',
  row: 'table 1',
  why:
    'Detaching a buffer costs no page table and no fault, and does not grow with the buffer, ' +
    'as a copy of it does; registration is an entry of a table, since nothing is pinned.',
  lacks: [
    'A page fault on write has no counterpart: memory that is lent is detached, so that a ' +
      'program cannot touch it by mistake, and mprotect is out of reach of JavaScript.',
  ],
  title: 'start of a zero-copy write, by step',
  there:
    'registration check 1.4, mprotect 1.4, copy 0.3, malloc 0.1 (hooked 4.8), post 1.6, other 1.1 us; ' +
    'page fault about 6 us',
  *groups() {
    for (const octets of [64 * KIB, MIB])
      yield {
        panel: 'steps',
        at: size(octets),
        unit: 'us',
        base: 'transfer of ownership',
        subjects: [createCheck(octets), copyOfBytes(octets), register(octets), detach(octets)],
      };
  },
};

const figure6a: Part = {
  id: '6a',
  row: 'fig. 6a',
  why:
    'The advertisement and the answer to it are two more messages each way, which cost more ' +
    'than the copy of a small message and less than that of a large one; loopback copies ' +
    'either way, so that zero copy saves one of several copies.',
  headline: ['source, ZSDP', 'sink', 'source, asynchronous'],
  title: 'ping-pong',
  there: 'both zero-copy modes beat buffered copies for large messages; ZSDP and AZ-SDP are the same',
  *groups() {
    for (const octets of [1, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB])
      yield {
        panel: 'ping-pong',
        at: size(octets),
        unit: 'us a round trip',
        base: 'buffered',
        subjects: [
          pingPong('buffered', { ...BUFFERED, size: octets }),
          pingPong('source, ZSDP', { ...ZSDP, size: octets }),
          pingPong('sink', { ...SINK, size: octets }),
          pingPong('source, asynchronous', { ...AZ, size: octets }),
          pingPong('net', { ...NET, size: octets }),
        ],
      };
  },
};

const ADVERTS = [1, 2, 8, 64];
const figure6b: Part = {
  id: '6b',
  row: 'fig. 6b',
  why:
    'Small messages pay for an advertisement each, and one at a time waits a round trip for ' +
    'each; several keep the peer Reading.',
  headline: ['source, 1 advert (ZSDP)', 'source, 64 adverts', 'net'],
  title: 'one stream, one way (ttcp)',
  there: 'small messages: buffered is best; medium: AZ-SDP 35 % above ZSDP; large: both above buffered',
  *groups() {
    for (const octets of [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]) {
      const many = ADVERTS.slice(1).map((maxAdverts) =>
        bulk(`source, ${maxAdverts} adverts`, { ...AZ, maxAdverts, size: octets }, ASYNCHRONOUS),
      );
      yield {
        panel: 'one stream',
        at: size(octets),
        unit: 'MB/s',
        base: 'buffered',
        subjects: [
          bulk('buffered', { ...BUFFERED, size: octets }, UNTIL_FULL),
          bulk('source, 1 advert (ZSDP)', { ...ZSDP, size: octets }, SYNCHRONOUS),
          ...many,
          bulk('net', { ...NET, size: octets }, UNTIL_FULL),
        ],
      };
    }
  },
  conclude(results) {
    const crossing = results.find((group) => ratioIn(group, 'source, 64 adverts') >= 1);
    return crossing === undefined
      ? 'buffered is the fastest at every size'
      : `many advertisements are as fast as buffered from ${crossing.at} upward`;
  },
};

async function* computing(): AsyncGenerator<Group> {
  for (const octets of [64 * KIB, MIB])
    for (const compute of [0, 50, 100, 200, 400]) {
      const subjects: Subject[] = [];
      for (const engine of ['thread', 'worker'] as const)
        subjects.push(
          bulk(`ZSDP, ${engine}`, { ...ZSDP, size: octets, engine }, { ...SYNCHRONOUS, compute }),
          bulk(`asynchronous, ${engine}`, { ...AZ, size: octets, engine }, { ...ASYNCHRONOUS, compute }),
        );
      yield {
        panel: size(octets),
        at: `computing ${compute} us`,
        unit: 'MB/s',
        base: 'ZSDP, thread',
        subjects,
      };
    }
}

const figure7: Part = {
  id: '7',
  row: 'fig. 7',
  why:
    'With the engine in the thread that computes, nothing moves meanwhile; in a worker ' +
    'transfers go on, as an adapter would have them, as long as there is a processor for them.',
  headline: ['asynchronous, thread', 'asynchronous, worker'],
  title: 'computing between sends',
  there: 'AZ-SDP up to twice as fast at 64 KB; at 1 MB nothing is lost up to 200 us',
  groups: computing,
  conclude(results) {
    const rate = (at: string): number =>
      results
        .find((group) => group.panel === '1 MiB' && group.at === at)
        ?.rows.find((row) => row.name === 'asynchronous, worker')?.figure.median ?? Number.NaN;
    const kept = rate('computing 200 us') / rate('computing 0 us');
    return `at 1 MiB and 200 us the worker keeps ${kept.toFixed(2)} of its rate without computing`;
  },
};

const figure8: Part = {
  id: '8',
  row: 'fig. 8',
  why:
    'A touch waits for the Reads of all that is lent (block) or copies the unread rest ' +
    '(copy), so that at W = 1 nothing overlaps and the advertisement is all that is left.',
  headline: ['ZSDP', 'asynchronous, block', 'asynchronous, copy'],
  title: 'the buffer is changed after each W sends',
  there: 'AZ-SDP is below ZSDP at small W, where each send ends in a page fault, and above at large W',
  *groups() {
    for (const touchEvery of [1, 2, 4, 8, 16, 32, 64])
      yield {
        panel: '64 KiB',
        at: `W = ${touchEvery}`,
        unit: 'MB/s',
        base: 'buffered',
        subjects: [
          bulk('buffered', { ...BUFFERED, size: 64 * KIB }, { how: 'callback', touchEvery }),
          bulk('ZSDP', { ...ZSDP, size: 64 * KIB }, SYNCHRONOUS),
          bulk('asynchronous, block', { ...AZ, size: 64 * KIB }, { how: 'lend', touchEvery, touch: 'block' }),
          bulk('asynchronous, copy', { ...AZ, size: 64 * KIB }, { how: 'lend', touchEvery, touch: 'copy' }),
        ],
      };
  },
};

/** Processes that play clients; two, as this machine has processors. */
let players: PaperPeer[] = [];
function clientProcesses(count: number): PaperPeer[] {
  while (players.length < count) players.push(new PaperPeer());
  return players.slice(0, count);
}
export function endClients(): void {
  for (const player of players.splice(0)) player.end();
}

/** `count` clients in two processes, or one. */
async function openClients(role: 'echo' | 'sink', spec: StreamSpec, count: number): Promise<PaperPeer[]> {
  const port = await peer().ask({ do: 'streams', role, spec });
  const processes = clientProcesses(Math.min(2, count));
  await Promise.all(
    processes.map((one) => one.ask({ do: 'clients', spec, port, count: count / processes.length })),
  );
  return processes;
}

function hotSpot(name: string, spec: StreamSpec, count: number): Subject {
  // The clients of one subject go when those of the next come.
  return {
    name,
    measure: async () => {
      const processes = await openClients('echo', spec, count);
      const times = await Promise.all(processes.map((one) => one.ask({ do: 'ping', ms: TRIP_MS })));
      return times.reduce((sum, us) => sum + us, 0) / times.length;
    },
  };
}

const figure9: Part = {
  id: '9',
  row: 'fig. 9',
  why:
    "The server's one event loop is the bottleneck, and its work for each message decides, " +
    'which is larger for an advertised one.',
  headline: ['ZSDP', 'asynchronous', 'net'],
  lacks: [
    'The paper has six machines for its clients; here they are sockets in two processes that ' +
      'share two processors with the server.',
  ],
  title: 'hot spot: latency of the clients of one server',
  there: 'six clients: AZ-SDP is best for large messages',
  *groups() {
    for (const clients of [1, 6, 64])
      for (const octets of [1, 64 * KIB])
        yield {
          panel: `clients of one server, ${size(octets)}`,
          at: `${clients} ${clients === 1 ? 'client' : 'clients'}`,
          unit: 'us a round trip',
          base: 'buffered',
          subjects: [
            hotSpot('buffered', { ...BUFFERED, size: octets }, clients),
            hotSpot('ZSDP', { ...ZSDP, size: octets }, clients),
            hotSpot('asynchronous', { ...AZ, size: octets }, clients),
            hotSpot('net', { ...NET, size: octets }, clients),
          ],
        };
  },
};

/** Streams of one pair of processes, all sending at once. */
function streams(name: string, spec: StreamSpec, plan: Omit<SendPlan, 'count'>, count: number): Subject {
  let messages = 20;
  return lazily(
    name,
    async () => {
      const port = await peer().ask({ do: 'streams', role: 'sink', spec });
      return await Promise.all(Array.from({ length: count }, () => StreamClient.connect(spec, port)));
    },
    async (clients) => {
      const began = performance.now();
      await Promise.all(clients.map((client) => client.send({ ...plan, count: messages })));
      const took = performance.now() - began;
      const rate = (count * messages * spec.size) / 1e6 / (took / 1000);
      messages = fitting(messages, took, SLICE_MS);
      return rate;
    },
    (clients) => clients.forEach((client) => client.close()),
  );
}

function manyClients(name: string, spec: StreamSpec, plan: Omit<SendPlan, 'count'>, count: number): Subject {
  let messages = 20;
  return {
    name,
    measure: async () => {
      const processes = await openClients('sink', spec, count);
      const rates = await Promise.all(
        processes.map((one) => one.ask({ do: 'send', plan: { ...plan, count: messages } })),
      );
      const rate = rates.reduce((sum, one) => sum + one, 0);
      messages = fitting(messages, (count * messages * spec.size) / 1e3 / rate, SLICE_MS);
      return rate;
    },
  };
}

function tenth(
  id: string,
  title: string,
  there: string,
  why: string,
  make: typeof streams,
  words: string,
): Part {
  return {
    ...{ id, row: `fig. ${id}`, why, headline: ['ZSDP', 'asynchronous', 'net'] },
    title,
    there,
    *groups() {
      for (const count of [1, 2, 4, 8])
        yield {
          panel: '64 KiB',
          at: `${count} ${words}`,
          unit: 'MB/s together',
          base: 'buffered',
          subjects: [
            make('buffered', { ...BUFFERED, size: 64 * KIB }, UNTIL_FULL, count),
            make('ZSDP', { ...ZSDP, size: 64 * KIB }, SYNCHRONOUS, count),
            make('asynchronous', { ...AZ, size: 64 * KIB }, ASYNCHRONOUS, count),
            make('net', { ...NET, size: 64 * KIB }, UNTIL_FULL, count),
          ],
        };
    },
  };
}

/** The paper's parts. */
export const AZ_SDP: Paper = {
  id: 'az-sdp',
  title: 'AZ-SDP',
  cite: AZ_SDP_CITE,
  parts: [
    table1,
    figure6a,
    figure6b,
    figure7,
    figure8,
    figure9,
    tenth(
      '10a',
      'streams of one pair',
      'ZSDP and AZ-SDP are the same for two streams and more',
      'Streams that wait for their one advertisement fill the gaps of the others, so that ' +
        'several streams have the effect of several advertisements.',
      streams,
      'streams',
    ),
    tenth(
      '10b',
      'clients of one server',
      'AZ-SDP is best',
      'The clients share two processors with the server, so that the work for each byte ' +
        'decides and not the waiting of one client.',
      manyClients,
      'clients',
    ),
  ],
};

export { ASYNCHRONOUS, AZ, SYNCHRONOUS, ZSDP };
