/**
 * The datagrams of golden.json, which come from the page and not from our code: our decoder reads each good
 * one, our stack sends it, and neither takes a bad one.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CaptureDissector, type InspectEvent } from '../../src/inspect/index.ts';
import { acquirePacket } from '../../src/trp/packet.ts';
import { cutPacket, PieceStore } from '../../src/trp/pieces.ts';
import {
  createTrpHeader,
  decodeTrpHeader,
  decodeTrpSetup,
  encodeTrpHeader,
  encodeTrpSetup,
  TRP_HEADER_OCTETS,
  TRP_OPCODE,
  TRP_PIECE_OCTETS,
} from '../../src/trp/wire.ts';
import type { SendWorkRequest } from '../../src/verbs/index.ts';
import { pcapOf } from '../inspect/support.ts';
import { pattern } from '../verbs/support.ts';
import { udpPacket } from './capture.ts';
import { DATA, World } from './support.ts';

interface Fields {
  readonly opcode: 'request' | 'accept' | 'reject' | 'ack' | 'sack' | 'fin' | 'data' | 'piece';
  readonly psn: number;
  readonly ackPsn: number;
  readonly ird?: number;
  readonly ord?: number;
  readonly privateData?: string;
  readonly body?: string;
  readonly piece?: { readonly of: string; readonly count: number; readonly index: number };
}
interface Vector {
  readonly name: string;
  readonly hex: string;
}
interface GoodVector extends Vector {
  readonly fields: Fields;
}

const { good, bad } = JSON.parse(readFileSync(new URL('golden.json', import.meta.url), 'utf8')) as {
  readonly good: readonly GoodVector[];
  readonly bad: readonly Vector[];
};
const named = <T extends Vector>(vectors: readonly T[]): (readonly [string, T])[] =>
  vectors.map((one) => [one.name, one] as const);
const octets = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const { REQUEST, ACCEPT, REJECT, FIN, SACK, PIECE } = TRP_OPCODE;
const OPCODES = {
  request: REQUEST,
  accept: ACCEPT,
  reject: REJECT,
  fin: FIN,
  sack: SACK,
  piece: PIECE,
  ack: DATA,
  data: DATA,
};
const header = createTrpHeader();

/** Reads that are posted before a golden request: each is one datagram, and one message of its queue. */
const readsBefore = (world: World, count: number): SendWorkRequest[] =>
  Array.from({ length: count }, (_, i) => ({
    wrId: i,
    opcode: 'rdma-read',
    sges: [{ mr: world.client.memory, length: 1 }],
    remoteAddr: 0n,
    rkey: world.server.memory.rkey,
  }));

type Post = (world: World) => SendWorkRequest;
const send =
  (inline: string, more: { readonly solicited?: true; readonly invalidate?: number } = {}): Post =>
  () => ({ wrId: 9, opcode: 'send', inline: Buffer.from(inline), ...more });
const atomic =
  (request: object): Post =>
  ({ client }) =>
    ({
      wrId: 9,
      sges: [{ mr: client.memory, length: 8 }],
      remoteAddr: 8n,
      ...request,
    }) as unknown as SendWorkRequest;
const swap = { opcode: 'atomic-cmp-swap', rkey: 0xcafe_0001, compare: 1n, swap: 2n };

/** What a program posts so that its stack sends the datagram; how many Reads stand before that. */
const POSTED: Readonly<Record<string, readonly [reads: number, post: Post]>> = {
  send: [0, send('ping')],
  'send with solicited event': [0, send('hi\r\n', { solicited: true })],
  'send with invalidate': [0, send('bye', { invalidate: 0x77ca_fe01 })],
  'send with solicited event and invalidate': [0, send('*', { solicited: true, invalidate: 0x1122_3344 })],
  'immediate data': [0, () => ({ wrId: 9, opcode: 'immediate', immediate: 0xa1b2_c3d4_e5f6_0718n })],
  'immediate data with solicited event': [
    0,
    () => ({ wrId: 9, opcode: 'immediate', immediate: 9n, solicited: true }),
  ],
  write: [
    0,
    () => ({
      wrId: 9,
      opcode: 'rdma-write',
      inline: Buffer.from('data'),
      rkey: 0x1122_3344,
      remoteAddr: 0x5566_7788_99aa_bbccn,
    }),
  ],
  'read request': [
    0,
    ({ client }) => ({
      wrId: 9,
      opcode: 'rdma-read',
      sges: [{ mr: client.memory, offset: 16, length: 4096 }],
      rkey: 0xa0b0_c0d0,
      remoteAddr: 32n,
    }),
  ],
  'fetch and add': [1, atomic({ opcode: 'atomic-fetch-add', rkey: 0xcafe_0001, add: 5n })],
  'compare and swap': [2, atomic(swap)],
  'compare and swap of urdma': [2, atomic(swap)],
};

const ZEROS = '00'.repeat(8);
const hex32 = (value: number): string => value.toString(16).padStart(8, '0');
/** The header of the first message of queue 1. */
const request = (control: string): string => `${control}00000000${'00000001'.repeat(2)}00000000`;

/** What a peer says so that our stack answers with the datagram; the server's memory begins with `has`. */
const ANSWERED: Readonly<
  Record<string, (world: World) => { readonly asked: string; readonly has?: string }>
> = {
  'read response': ({ server }) => ({
    // 4 octets of its memory at 0, to the alias 01000001 at 10.
    asked: `${request('4141')}01000001000000000000001000000004${hex32(server.memory.rkey)}${ZEROS}`,
    has: hex(Buffer.from('read')),
  }),
  'atomic response': ({ server }) => ({
    asked: `${request('414a')}0000000000000077${hex32(server.memory.rkey)}${ZEROS.repeat(5)}`,
    has: '6300000000000000',
  }),
  terminate: () => ({ asked: 'c140112233440000000000000000ffffffff' }),
  'terminate of urdma': () => ({ asked: 'c140112233440000000000000000ffffffff' }),
};

/** Segments shorter than any MTU makes them. */
const CUT_SHORT = ['first segment of a send', 'last segment of a send', 'segment of a write at the wrap'];
/** The identifier of an atomic is its sender's choice. */
const IDENTIFIER = TRP_HEADER_OCTETS + 18 + 4;

const isUrdma = ({ name }: Vector): boolean => name.endsWith('of urdma');

/** Connected, with the numbers of the vector to be the next ones. */
function worldFor({ fields, name }: GoodVector, from: 'client' | 'server', before: number): World {
  const network = { latency: 1 };
  if (isUrdma({ name, hex: '' })) {
    const trp = { profile: 'urdma' } as const;
    return World.connected({ network, client: trp, server: trp });
  }
  const [own, other] = [{ firstPsn: fields.psn - before }, { firstPsn: fields.ackPsn }];
  // The alias that stands for the sink in the golden Read Request is that of Reads that are placed.
  const reads = { reads: 'placed' } as const;
  const [client, server] = from === 'client' ? [own, other] : [other, own];
  return World.connected({ network, client: { ...client, ...reads }, server: { ...server, ...reads } });
}

/** The datagrams with a segment that have left after the first `from`. */
const segments = (world: World, from: number): Uint8Array[] =>
  world.network.passed
    .slice(from)
    .filter(({ opcode, bytes }) => opcode === DATA && bytes.length > TRP_HEADER_OCTETS)
    .map(({ bytes }) => bytes);

function posted(vector: GoodVector): Uint8Array {
  const [reads, post] = POSTED[vector.name]!;
  const world = worldFor(vector, 'client', reads);
  world.run(50);
  const from = world.network.passed.length;
  world.client.qp.postSend([...readsBefore(world, reads), post(world)]);
  world.run(0.5);
  const sent = segments(world, from);
  expect(sent).toHaveLength(reads + 1);
  return sent.at(-1)!;
}

function answered(vector: GoodVector): Uint8Array {
  const { psn, ackPsn } = vector.fields;
  const world = worldFor({ ...vector, fields: { ...vector.fields, ackPsn: ackPsn - 1 } }, 'server', 0);
  world.run(50);
  const from = world.network.passed.length;
  const { asked, has = '' } = ANSWERED[vector.name]!(world);
  world.server.memory.bytes.set(octets(has));
  const first = isUrdma(vector) ? { psn: 0, ack: 0 } : { psn: ackPsn - 1, ack: psn };
  const { localAddress, remoteAddress } = world.client.connection!;
  world.memory.carry(
    new Uint8Array(Buffer.concat([encodeTrpHeader(first.psn, first.ack, DATA), octets(asked)])),
    { address: '127.0.0.1', port: localAddress!.port, family: 'IPv4' },
    remoteAddress!,
    () => undefined,
  );
  world.run(1.5);
  const sent = segments(world, from);
  expect(sent).toHaveLength(1);
  return sent[0]!;
}

/** The datagram as our code makes it. */
function made(vector: GoodVector): Uint8Array {
  const { name, fields } = vector;
  const { psn, ackPsn: ack, piece, ird, ord } = fields;
  if (name in POSTED) return posted(vector);
  if (name in ANSWERED) return answered(vector);
  const opcode = OPCODES[fields.opcode];
  if (piece !== undefined) {
    const segment = octets(piece.of);
    const packet = acquirePacket(TRP_HEADER_OCTETS + segment.length);
    packet.bytes.set(encodeTrpHeader(psn, ack, DATA));
    packet.bytes.set(segment, TRP_HEADER_OCTETS);
    const most = Math.ceil(segment.length / piece.count) + TRP_PIECE_OCTETS;
    return cutPacket(packet, most)[piece.index]!;
  }
  if (fields.privateData === undefined) return encodeTrpHeader(psn, ack, opcode);
  const privateData = octets(fields.privateData);
  return encodeTrpSetup({ opcode, psn, ack, ird: ird!, ord: ord!, privateData });
}

describe('good datagrams', () => {
  it.each(named(good))('are read: %s', (_name, { hex: text, fields }) => {
    const bytes = octets(text);
    expect(decodeTrpHeader(header, bytes, 0, bytes.length)).toBe(true);
    expect(header).toEqual({
      psn: fields.psn,
      ack: fields.ackPsn,
      opcode: OPCODES[fields.opcode],
      bodyLength: bytes.length - TRP_HEADER_OCTETS,
    });
    expect(hex(bytes.subarray(TRP_HEADER_OCTETS)).endsWith(fields.body ?? '')).toBe(true);
    if (fields.privateData !== undefined) {
      const { ird, ord, privateData } = decodeTrpSetup(bytes, 0, bytes.length)!;
      expect([ird, ord, hex(privateData)]).toEqual([fields.ird, fields.ord, fields.privateData]);
    }
  });

  it('pieces become their segment, in any order', () => {
    const pieces = good
      .filter(({ fields }) => fields.opcode === 'piece')
      .map(({ hex: text }) => octets(text));
    for (const order of [
      [0, 1, 2],
      [2, 0, 1],
      [1, 2, 0],
    ]) {
      const store = new PieceStore();
      const got = order.map((i) => store.take(2, pieces[i]!, TRP_HEADER_OCTETS, pieces[i]!.length));
      expect(got.slice(0, 2)).toEqual([null, null]);
      expect(hex(got[2]!)).toBe(good.find(({ name }) => name.endsWith('pieces of a send'))!.fields.piece!.of);
    }
  });

  const makable = good.filter(({ name }) => !CUT_SHORT.includes(name));
  it.each(named(makable))('are made: %s', (name, vector) => {
    const bytes = made(vector).slice();
    const wanted = octets(vector.hex);
    if (/fetch and add|compare and swap/.test(name))
      bytes.set(wanted.subarray(IDENTIFIER, IDENTIFIER + 4), IDENTIFIER);
    // The old profile's numbers begin at 0.
    const from = isUrdma(vector) ? TRP_HEADER_OCTETS - 2 : 0;
    expect(hex(bytes.subarray(from))).toBe(hex(wanted.subarray(from)));
  });
});

describe('bad datagrams', () => {
  /** Both first numbers are 0, and the server has datagrams out, which ranges could name. */
  const OUT = 10;
  function busy(): World {
    const trp = { firstPsn: 0 };
    const world = World.connected({ network: { latency: 1 }, client: trp, server: trp });
    world.run(50);
    const { client, server } = world;
    const { port } = client.connection!.remoteAddress!;
    world.network.mayPass = ({ fromPort }) => fromPort !== port;
    for (let i = 0; i < OUT; i++) {
      client.qp.postRecv({ wrId: i, sges: [{ mr: client.memory, offset: i, length: 1 }] });
      server.qp.postSend({ wrId: i, opcode: 'send', inline: Uint8Array.of(i) });
    }
    world.run(5);
    expect(server.trp.sent).toBeGreaterThanOrEqual(OUT);
    return world;
  }

  it.each(named(bad))('are counted and do nothing to a connection: %s', (_name, { hex: text }) => {
    const world = busy();
    const { client, server } = world;
    const { localAddress, remoteAddress } = client.connection!;
    const counts = ({ dropped, badAcks }: typeof server.trp): number => dropped + badAcks;
    const before = counts(server.trp);
    const from = { address: '127.0.0.1', port: localAddress!.port, family: 'IPv4' } as const;
    world.memory.carry(octets(text), from, remoteAddress!, () => undefined);
    world.run(5);
    expect(counts(server.trp)).toBe(before + 1);
    expect(server.trp).toMatchObject({ received: 0, heldOctets: 0 });
    expect(server.poll()).toEqual([]);
    // All of it comes, and the other direction works.
    world.network.mayPass = () => true;
    server.qp.postRecv({ wrId: 77, sges: [{ mr: server.memory, length: 100 }] });
    client.qp.postSend({ wrId: 78, opcode: 'send', inline: pattern(64) });
    world.run(30_000, () => client.poll().some(({ wrId }) => wrId === 78) && server.poll().length > OUT);
    expect(client.completions.map(({ status }) => status)).toEqual(new Array(OUT + 1).fill('success'));
    expect(server.completions.filter(({ status }) => status === 'success')).toHaveLength(OUT + 1);
    expect([...client.memory.bytes.subarray(0, OUT)]).toEqual(Array.from({ length: OUT }, (_, i) => i));
  });

  it.each(named(bad))('are no set-up, and nothing to a listener: %s', (_name, { hex: text }) => {
    const bytes = octets(text);
    expect(decodeTrpSetup(bytes, 0, bytes.length)).toBeNull();
    const world = new World().listen();
    const from = { address: '10.1.2.3', port: 9, family: 'IPv4' } as const;
    world.memory.carry(bytes, from, { address: '127.0.0.1', port: 7000 }, () => undefined);
    world.run(1_000);
    expect(world.requests).toEqual([]);
    expect(world.network.passed).toEqual([]);
  });

  // A piece is looked at by itself in a capture.
  const shown = bad.filter(({ name }) => !name.includes('piece') || name === 'piece without octets');
  it.each(named(shown))('are remarked in a capture: %s', (_name, { hex: text }) => {
    const events: InspectEvent[] = [];
    const dissector = new CaptureDissector(
      { event: (_connection, event) => void events.push(event), remark: () => undefined },
      { wire: 'trp' },
    );
    const packet = (bytes: Uint8Array): Uint8Array =>
      udpPacket({ bytes, fromPort: 40_000, toPort: 7000, side: 0 });
    const request = good.find(({ name }) => name === 'request')!;
    dissector.push(pcapOf([request.hex, text].map((one) => packet(octets(one)))));
    dissector.end();
    const event = events.at(-1)!;
    expect(events).toHaveLength(2);
    expect(event.kind === 'note' || (event.kind === 'trp' && event.remark === 'an empty range')).toBe(true);
  });
});
