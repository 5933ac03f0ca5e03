/** The ratios of byte streams that the project has set itself, each measured inside its rounds. */
import http from 'node:http';
import { connect as connectNet } from 'node:net';
import { connect } from '../../src/sockets/index.ts';
import { ASYNCHRONOUS, AZ, SYNCHRONOUS, ZSDP } from './az-sdp.ts';
import type { Group, Paper, Part, Subject } from './paper.ts';
import { PaperPeer } from './peer.ts';
import { KIB, MIB } from './sizes.ts';
import { NO_CRC, POSTED, rnicOf, type StreamSpec } from './stream-ends.ts';
import { bulk, bulkApart, fitting, lazily, pairs, peer } from './subjects.ts';

const HOST = '127.0.0.1';
/** Judged rows have more time. */
const LONG_MS = 400;
const STREAMS = 1000;
const WARM_REQUESTS = 4000;
const MEGABYTE = 1e6;

function verbsWrites(size: number): Subject {
  let count = 64;
  return pairs('verbs Write', 'writes', { size, places: POSTED }, async (client) => {
    const took = await client.writes(count);
    const rate = (count * size) / MEGABYTE / (took / 1000);
    count = fitting(count, took, LONG_MS);
    return rate;
  });
}

const posted: Part = {
  id: 'onread',
  row: 'onread',
  why: '',
  title: 'a reader with its own memory, against verbs',
  there: 'rsocket 0.71 and 0.83 of a verbs Write before SDP was here',
  *groups() {
    const sdp: StreamSpec = { wire: 'sdp', mode: 'auto', size: MIB, read: 'places' };
    yield {
      panel: 'one stream',
      at: '1 MiB',
      unit: 'MB/s',
      base: 'verbs Write',
      subjects: [
        verbsWrites(MIB),
        bulk('SDP into posted places', sdp, { how: 'callback', depth: 8 }, LONG_MS),
        bulk('SDP onread', { ...sdp, mode: 'buffered', read: 'onread' }, { how: 'drain' }, LONG_MS),
        bulk('rsocket onread', { wire: 'rsocket', size: MIB, read: 'onread' }, { how: 'drain' }, LONG_MS),
      ],
      goals: [{ of: 'SDP into posted places', to: 'verbs Write', words: 'at least', goal: 0.9 }],
    };
  },
};

const data: Part = {
  id: 'data',
  row: 'data',
  why: '',
  title: "'data' events",
  there: 'rsocket before SDP was here: see performance.md',
  *groups() {
    const one = (name: string, wire: StreamSpec['wire']): Subject =>
      bulkApart(name, { wire, size: 64 * KIB }, { how: 'drain' }, LONG_MS);
    yield {
      panel: "one stream, 'data', each receiver in a separate process",
      at: '64 KiB',
      unit: 'MB/s',
      base: 'net',
      subjects: [one('net', 'net'), one('SDP', 'sdp'), one('rsocket', 'rsocket')],
      goals: [{ of: 'SDP', to: 'net', words: 'at least', goal: 0.9 }],
    };
  },
};

const asynchronous: Part = {
  id: 'async',
  row: 'async',
  why: '',
  title: '16 advertisements against ZSDP',
  there: 'AZ-SDP 35 % above ZSDP for medium messages',
  *groups() {
    yield {
      panel: 'one stream',
      at: '64 KiB',
      unit: 'MB/s',
      base: 'ZSDP',
      subjects: [
        bulk('ZSDP', { ...ZSDP, size: 64 * KIB }, SYNCHRONOUS, LONG_MS),
        bulk('16 adverts', { ...AZ, size: 64 * KIB }, ASYNCHRONOUS, LONG_MS),
      ],
      goals: [{ of: '16 adverts', to: 'ZSDP', words: 'at least', goal: 1.2 }],
    };
  },
};

const overlap: Part = {
  id: 'overlap',
  row: 'overlap',
  why: '',
  title: 'computing takes as long as the transfer, engine in a worker',
  there: 'AZ-SDP up to twice ZSDP at 64 KB',
  async *groups() {
    for (const size of [64 * KIB, MIB]) {
      const spec: StreamSpec = { ...ZSDP, size, engine: 'worker' };
      const probe = bulk('probe', spec, SYNCHRONOUS, LONG_MS);
      await probe.measure();
      await probe.measure();
      const compute = size / Number(await probe.measure());
      await probe.close?.();
      yield {
        panel: `${size / KIB} KiB`,
        at: `computing ${compute.toFixed(0)} us`,
        unit: 'MB/s',
        base: 'ZSDP',
        subjects: [
          bulk('ZSDP', spec, { ...SYNCHRONOUS, compute }, LONG_MS),
          bulk('asynchronous', { ...AZ, size, engine: 'worker' }, { ...ASYNCHRONOUS, compute }, LONG_MS),
        ],
        goals: [{ of: 'asynchronous', to: 'ZSDP', words: 'at least', goal: 1.5 }],
      };
    }
  },
};

const passThrough: Part = {
  id: 'pass-through',
  row: 'pass-through',
  why: '',
  title: 'an extended socket in plain mode against a bare one',
  there: 'no visible overhead',
  *groups() {
    const one = (name: string, wire: StreamSpec['wire']): Subject =>
      bulk(name, { wire, size: 64 * KIB }, { how: 'drain' }, LONG_MS);
    yield {
      panel: 'one stream',
      at: '64 KiB',
      unit: 'MB/s',
      base: 'net',
      subjects: [one('net', 'net'), one('extended', 'extended')],
      goals: [{ of: 'extended', to: 'net', words: 'at least', goal: 0.95 }],
    };
  },
};

/** KiB for each of a thousand streams that have carried one message there and back. */
export function idleStreams(
  protocol: 'net' | 'sdp' | 'rsocket',
  what: 'resident' | 'address space',
): Subject {
  return {
    name: protocol,
    measure: async () => {
      const [server, client] = [new PaperPeer(), new PaperPeer()];
      try {
        const port = await server.ask({ do: 'idle', protocol });
        const spec: StreamSpec = { wire: protocol, size: 64 };
        // One stream, so that everything that a process has once is there.
        await client.ask({ do: 'clients', spec, port, count: 1 });
        await client.ask({ do: 'ping', ms: 50 });
        const empty = await server.ask({ do: what });
        await client.ask({ do: 'clients', spec, port, count: STREAMS });
        await client.ask({ do: 'ping', ms: 1 });
        return ((await server.ask({ do: what })) - empty) / STREAMS;
      } finally {
        server.end();
        client.end();
      }
    },
  };
}

const idle: Part = {
  id: 'idle',
  row: 'idle',
  why: '',
  title: 'a thousand idle streams, each of which has carried 64 bytes both ways',
  there: 'rsocket: two buffers of 1 MiB for each',
  *groups() {
    for (const [what, goal] of [
      ['resident', 0.25],
      ['address space', 0.1],
    ] as const)
      yield {
        ...{
          panel: 'of the server',
          at: what,
          unit: 'KiB a stream',
          base: 'rsocket',
          mostRounds: 2,
          cold: true,
        },
        subjects: [idleStreams('rsocket', what), idleStreams('sdp', what)],
        goals: [{ of: 'sdp', to: 'rsocket', words: 'at most', goal }],
      };
  },
};

/**
 * Requests a second, each over a separate connection, four at a time. The first slice, which does not count,
 * has enough of them for the code of both ends to be compiled: a slice alone has too few for that.
 */
export function requests(protocol: 'net' | 'sdp' | 'rsocket'): Subject {
  let least = WARM_REQUESTS;
  return lazily(
    protocol,
    () => peer().ask({ do: 'http', protocol }),
    async (port) => {
      const open = () =>
        protocol === 'net'
          ? connectNet({ port, host: HOST })
          : connect({ protocol, port, host: HOST, rnic: rnicOf(), policy: NO_CRC });
      const began = performance.now();
      let count = 0;
      const loop = async (): Promise<void> => {
        for (; count < least || performance.now() - began < LONG_MS; count++)
          await new Promise<void>((resolve, reject) => {
            const request = http.get({ createConnection: open as never, path: '/' }, (response) => {
              response.resume().once('end', resolve);
            });
            request.once('error', reject);
          });
      };
      await Promise.all([loop(), loop(), loop(), loop()]);
      least = 0;
      return (count * 1000) / (performance.now() - began);
    },
    () => undefined,
  );
}

const connections: Part = {
  id: 'connections',
  row: 'connections',
  why: '',
  title: 'new streams a second: an http request for each',
  there: 'rsocket: a tenth of node:net',
  *groups(): Generator<Group> {
    yield {
      panel: 'http requests',
      at: 'a connection each',
      unit: 'a second',
      base: 'net',
      subjects: [requests('net'), requests('sdp'), requests('rsocket')],
      goals: [{ of: 'sdp', to: 'net', words: 'at least', goal: 0.5 }],
    };
  },
};

/** All of them, in the form of a paper. */
export const STREAM_GOALS: Paper = {
  id: 'goals',
  title: 'Goals of byte streams',
  cite: 'none',
  parts: [posted, data, asynchronous, overlap, passThrough, idle, connections],
};
