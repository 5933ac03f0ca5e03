/**
 * The rows of "Supporting RDMA capable network compatibility and features for regular network adapters"
 * (OSU-CISRC-6/05-TR37, 2005), which compared a user-level and a kernel-level iWARP with TCP.
 */
import type { Gather } from '../../src/sockets/index.ts';
import { messages, switched } from '../extended.ts';
import { LOSSES, RECEIVERS, REORDERINGS, runLab } from '../trp/figure.ts';
import type { Group, Paper, Part, Subject } from './paper.ts';
import { OSU_CITE } from './names.ts';
import type { PairSpec } from './queue-pairs.ts';
import { KIB, MIB, sizeText as size } from './sizes.ts';
import { bulk, lazily, pairs, pingPong, socketWindow, TRIP_MS } from './subjects.ts';

/** Round trips beside those of `node:net`. */
const pingPongs = (octets: number, subjects: readonly Subject[]): Group => ({
  panel: 'ping-pong',
  at: size(octets),
  unit: 'us a round trip',
  base: 'net',
  subjects: [pingPong('net', { wire: 'net', size: octets }), ...subjects],
});

/** The ways of the stack that the figures compare. */
const WAYS: readonly (readonly [name: string, spec: Omit<PairSpec, 'size'>])[] = [
  ['Send, thread', {}],
  ['Send, thread, CRC', { crc: true }],
  ['Send, thread, CRC, markers', { crc: true, markers: true }],
  ['Send, worker by the ring', { engine: 'worker' }],
  ['Send, worker by the ring, CRC', { engine: 'worker', crc: true }],
];

const figure6a: Part = {
  id: 'osu-6a',
  row: 'fig. 6a',
  why:
    'The stack adds its header, its checks and a completion to each message, in JavaScript, ' +
    'and its event loop stays awake for 50 us, which bare sockets here do not; a worker adds ' +
    'two hand-overs between threads each way.',
  lacks: [
    'There is no kernel-level variant: the stack is JavaScript in a process.',
    'A worker that is asked by messages instead of the ring has no switch any longer: `iwarp ' +
      'bench --only handover` has both ways of asking.',
  ],
  title: 'ping-pong of Sends',
  there: 'user-level RDDP adds 100 us to TCP, kernel-level 5 us',
  *groups() {
    for (const octets of [1, KIB, 4 * KIB])
      yield pingPongs(
        octets,
        WAYS.map(([name, spec]) =>
          pairs(name, 'send-echo', { ...spec, size: octets }, (client) => client.pingPong(TRIP_MS)),
        ),
      );
  },
  conclude(results) {
    const added = results.map(({ rows }) => {
      const at = (name: string): number => rows.find((row) => row.name === name)?.figure.median ?? Number.NaN;
      return (at('Send, thread') - at('net')).toFixed(1);
    });
    return `the stack in the thread adds ${added.join(', ')} us without CRC`;
  },
};

const figure6b: Part = {
  id: 'osu-6b',
  row: 'fig. 6b',
  why:
    'Sends posted in one turn share a write call, as Nagle would join them, which gains where ' +
    'messages are small; large ones are copied once more than with sockets, and the checksum ' +
    'reads each byte.',
  headline: ['Send, thread', 'Send, thread, CRC', 'net, Nagle'],
  title: 'windows of 64 messages, then one answer',
  there: 'both about 550 Mb/s of 1 Gb/s; small and medium messages below TCP (no Nagle), large below (CRC)',
  *groups() {
    for (const octets of [64, KIB, 16 * KIB, 64 * KIB, MIB])
      yield {
        panel: 'windows of 64',
        at: size(octets),
        unit: 'MB/s',
        base: 'net, NODELAY',
        subjects: [
          socketWindow('net, NODELAY', { wire: 'net', size: octets }),
          socketWindow('net, Nagle', { wire: 'net', size: octets, delay: true }),
          ...WAYS.slice(0, 3).map(([name, spec]) =>
            pairs(name, 'window', { ...spec, size: octets }, (client) => client.window(TRIP_MS)),
          ),
        ],
      };
  },
};

/** Bytes of the ping-pong and of a write of the stream. */
const TRIP_SIZES = [1, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB];
const STREAM_SIZES = [64, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];

const figure5: Part = {
  id: 'osu-5',
  row: 'fig. 5',
  title: 'programs on sockets, unmodified, over the layer',
  there: 'no visible overhead',
  why:
    'An extended socket is a socket of Node until an option switches it: none of its calls is wrapped, so ' +
    'that the difference is the noise of the machine.',
  *groups() {
    for (const octets of TRIP_SIZES)
      yield pingPongs(octets, [pingPong('extended', { wire: 'extended', size: octets })]);
    for (const octets of STREAM_SIZES)
      yield {
        ...{ panel: 'stream', at: size(octets), unit: 'MB/s', base: 'net' },
        subjects: (['net', 'extended'] as const).map((wire) =>
          bulk(wire, { wire, size: octets }, { how: 'drain' }),
        ),
      };
  },
};

/** Bytes that a turn of the gather row moves, and messages at most. */
const GATHER_OCTETS = 16 * MIB;

const gathering: Part = {
  id: 'osu-gather',
  row: 'gather',
  title: 'one message in 2, 4 or 8 pieces',
  there: 'copy, writev and cork are described as the ways to gather, without figures',
  why:
    'A copy costs by the byte and an element of a writev by the piece: small pieces are best copied, and ' +
    'large ones lent.',
  *groups() {
    for (const octets of [64, KIB, 8 * KIB, 64 * KIB])
      for (const pieces of [2, 4, 8]) {
        const subject = (name: string, way: Gather, length: number, count: number): Subject =>
          lazily(
            name,
            () => switched(way),
            (ends) => messages(ends, length, count, GATHER_OCTETS),
            (ends) => ends.close(),
          );
        yield {
          ...{ panel: `pieces of ${size(octets)}`, at: `${pieces} pieces`, unit: 'MB/s', base: 'one piece' },
          subjects: [
            subject('one piece', 'lend', octets * pieces, 1),
            ...(['copy', 'lend', 'cork'] as const).map((way) => subject(way, way, octets, pieces)),
          ],
        };
      }
  },
};

const placement: Part = {
  id: 'osu-4.2',
  row: 'section 4.2',
  title: 'placement where segments are lost and overtake each other',
  there: 'promised as the next experiment, and not published',
  why:
    'A placing receiver has a segment in its place when it arrives, whatever is missing before it; all ' +
    'three complete at the same time, since the same hole keeps them back.',
  headline: ['placing', 'byte stream'],
  *groups() {
    // Virtual time: a round is another seed, and figures do not depend on the machine.
    for (const [panel, points] of [
      ['loss', LOSSES],
      ['reordering', REORDERINGS],
    ] as const)
      for (const point of points)
        yield {
          ...{ panel, at: `${point} %`, unit: 'ms', base: 'ordered', cold: true, cpu: false },
          quantities: [
            { key: 'placement', panel: `${panel}, time to place`, unit: 'ms' },
            { key: 'turn', panel: `${panel}, time to complete`, unit: 'ms' },
          ],
          subjects: RECEIVERS.map((receiver): Subject => {
            let seed = 0;
            return {
              name: receiver,
              measure: () => {
                const [loss, reordering] = panel === 'loss' ? [point, 0] : [0, point];
                const { placement: placed, turn } = runLab(receiver, loss, reordering, ++seed);
                return Promise.resolve({ placement: placed, turn });
              },
            };
          }),
        };
  },
};

/** The paper's parts. */
export const OSU: Paper = {
  id: 'osu',
  title: 'OSU',
  cite: OSU_CITE,
  parts: [figure5, figure6a, figure6b, gathering, placement],
};
