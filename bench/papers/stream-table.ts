/** The table of docs/streams.md: every kind of byte stream beside bare `node:net` in the same rounds. */
import type { Group, Paper, Part, Subject } from './paper.ts';
import { KIB, MIB, sizeText } from './sizes.ts';
import type { SendPlan, StreamSpec } from './stream-ends.ts';
import { idleStreams, requests } from './stream-goals.ts';
import { bulkApart, pingPong } from './subjects.ts';

/** Enough for code to be compiled in the round that does not count. */
const SLICE_MS = 400;
const SIZES = [64, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];

/** A kind of stream, and how a program sends over it as fast as it can. */
interface Kind {
  readonly name: string;
  readonly spec: Omit<StreamSpec, 'size'>;
  readonly plan: Omit<SendPlan, 'count'>;
}

const KINDS: readonly Kind[] = [
  { name: 'net', spec: { wire: 'net' }, plan: { how: 'drain' } },
  { name: 'rsocket', spec: { wire: 'rsocket' }, plan: { how: 'drain' } },
  { name: 'sdp buffered', spec: { wire: 'sdp', mode: 'buffered' }, plan: { how: 'drain' } },
  {
    name: 'sdp source',
    spec: { wire: 'sdp', mode: 'source', maxAdverts: 16 },
    plan: { how: 'lend', depth: 32 },
  },
  {
    name: 'sdp sink',
    spec: { wire: 'sdp', mode: 'sink', read: 'places' },
    plan: { how: 'callback', depth: 8 },
  },
  {
    name: 'sdp auto',
    spec: { wire: 'sdp', mode: 'auto', read: 'places' },
    plan: { how: 'callback', depth: 8 },
  },
];

const common = { why: '', there: 'no paper has it' };

function* bySize(
  panel: string,
  unit: string,
  subject: (kind: Kind, size: number) => Subject,
): Generator<Group> {
  for (const size of SIZES)
    yield {
      panel,
      at: sizeText(size),
      unit,
      base: 'net',
      subjects: KINDS.map((kind) => subject(kind, size)),
    };
}

const oneWay: Part = {
  ...common,
  id: 'streams-one-way',
  row: 'one way',
  title: 'messages in one direction',
  groups: () =>
    bySize('one way', 'MB/s', ({ name, spec, plan }, size) =>
      bulkApart(name, { ...spec, size }, plan, SLICE_MS),
    ),
};

const roundTrip: Part = {
  ...common,
  id: 'streams-round-trip',
  row: 'round trip',
  title: 'a message there and one back',
  groups: () =>
    bySize('round trip', 'us a round trip', ({ name, spec }, size) =>
      pingPong(name, { ...spec, size }, SLICE_MS),
    ),
};

const WIRES = ['net', 'rsocket', 'sdp'] as const;

const idle: Part = {
  ...common,
  id: 'streams-idle',
  row: 'idle',
  title: 'a thousand idle streams, each of which has carried 64 bytes both ways',
  *groups() {
    const subjects = WIRES.map((wire) => idleStreams(wire, 'resident'));
    const [panel, at, unit] = ['of the server', 'resident', 'KiB a stream'];
    yield { panel, at, unit, base: 'net', mostRounds: 2, cold: true, subjects };
  },
};

const connections: Part = {
  ...common,
  id: 'streams-new',
  row: 'new streams',
  title: 'new streams a second: an http request for each',
  *groups() {
    const [panel, at, unit] = ['http requests', 'a connection each', 'a second'];
    yield { panel, at, unit, base: 'net', subjects: WIRES.map((wire) => requests(wire)) };
  },
};

export const STREAM_TABLE: Paper = {
  id: 'streams',
  title: 'Byte streams beside node:net',
  cite: 'none',
  parts: [oneWay, roundTrip, idle, connections],
};
