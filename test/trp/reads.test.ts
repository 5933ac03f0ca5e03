/** A Read Request that has come above a hole: with `reads: 'placed'` it is answered there and then. */
import { describe, expect, it } from 'vitest';
import { OPCODE, RDMAP_CONTROL } from '../../src/rdmap/wire.ts';
import type { TrpReadsName, TrpReceiverName } from '../../src/trp/profile.ts';
import { pattern } from '../verbs/support.ts';
import { DATA, World } from './support.ts';

const LATENCY = 1;
/** Time for datagrams to arrive and to be answered, and too little for repetitions of those that are lost. */
const THERE_AND_BACK = 4 * LATENCY;
const DATA_OF_SERVER = pattern(5_000);

/** A world in which the datagrams with a sequence number in `lost`, or `lostBack`, do not arrive. */
class Holes {
  readonly world: World;
  /** Of the client, and of the server. */
  lost = new Set<number>();
  lostBack = new Set<number>();

  constructor(reads: TrpReadsName, receiver: TrpReceiverName = 'placing', ofServer = receiver) {
    this.world = World.connected({
      network: { latency: LATENCY },
      client: { reads, receiver, firstPsn: 0 },
      server: { reads, receiver: ofServer, firstPsn: 0 },
    });
    this.world.run(50);
    const { client, server, network } = this.world;
    server.memory.bytes.set(DATA_OF_SERVER);
    server.qp.postRecv({ wrId: 50, sges: [{ mr: server.memory, offset: 100_000, length: 100 }] });
    const { port } = client.connection!.localAddress!;
    network.mayPass = ({ fromPort, opcode, bytes }) =>
      opcode !== DATA ||
      bytes.length === 10 ||
      !(fromPort === port ? this.lost : this.lostBack).has(Buffer.from(bytes).readUInt32BE(0));
  }

  /** A Read of `length` bytes from `at` to the same place of the client. */
  read(wrId: number, at: number, length: number): void {
    const { client, server } = this.world;
    client.qp.postSend({
      wrId,
      opcode: 'rdma-read',
      sges: [{ mr: client.memory, offset: at, length }],
      rkey: server.memory.rkey,
      remoteAddr: BigInt(at),
    });
  }

  /** Read Responses that the server has sent. */
  get responses(): number {
    const { port } = this.world.client.connection!.remoteAddress!;
    return this.world.network.passed.filter(
      ({ fromPort, opcode, bytes }) =>
        fromPort === port &&
        opcode === DATA &&
        bytes.length > 10 &&
        (bytes[11]! & RDMAP_CONTROL.OPCODE) === OPCODE.READ_RESPONSE,
    ).length;
  }

  get completed(): number[] {
    return this.world.client.poll().map(({ wrId, status }) => (status === 'success' ? Number(wrId) : NaN));
  }
}

describe('a Read Request above a hole', () => {
  it('is answered before the message below has come, and once', () => {
    const holes = new Holes('placed');
    const { world } = holes;
    const { client, server } = world;
    holes.lost.add(0);
    client.qp.postSend({ wrId: 1, opcode: 'send', inline: pattern(60) });
    holes.read(2, 1_000, 64);
    holes.read(3, 2_000, 64);
    world.run(THERE_AND_BACK);
    expect(server.trp.above).toBe(2);
    expect(server.poll()).toEqual([]);
    expect(holes.responses).toBe(2);
    for (const at of [1_000, 2_000])
      expect(client.memory.bytes.subarray(at, at + 64)).toEqual(DATA_OF_SERVER.subarray(at, at + 64));
    // The Send keeps its place in front of them.
    expect(holes.completed).toEqual([]);
    holes.lost.clear();
    world.run(5_000);
    expect(holes.responses).toBe(2);
    expect(holes.completed).toEqual([1, 2, 3]);
    expect(server.completions).toMatchObject([{ wrId: 50, status: 'success', byteLength: 60 }]);
  });

  it('is answered before a Read Request below, and completes before it', () => {
    const holes = new Holes('placed');
    const { world } = holes;
    holes.lost.add(0);
    for (const wrId of [1, 2, 3]) holes.read(wrId, wrId * 1_000, 64);
    world.run(THERE_AND_BACK);
    expect(holes.responses).toBe(2);
    for (const at of [2_000, 3_000])
      expect(world.client.memory.bytes.subarray(at, at + 64)).toEqual(DATA_OF_SERVER.subarray(at, at + 64));
    // No transmission of the first one has arrived.
    expect(holes.completed).toEqual([2, 3]);
    holes.lost.clear();
    world.run(5_000);
    expect([holes.responses, holes.completed]).toEqual([3, [2, 3, 1]]);
    expect(world.client.memory.bytes.subarray(1_000, 1_064)).toEqual(DATA_OF_SERVER.subarray(1_000, 1_064));
  });

  it('completes before it also where a Send behind both has not been acknowledged', () => {
    const holes = new Holes('placed');
    const { world } = holes;
    holes.lost = new Set([0, 2]);
    for (const wrId of [1, 2]) holes.read(wrId, wrId * 1_000, 64);
    world.client.qp.postSend({ wrId: 3, opcode: 'send', inline: pattern(60) });
    for (const wrId of [4, 5]) holes.read(wrId, wrId * 1_000, 64);
    world.run(THERE_AND_BACK);
    // Those behind the Send wait for it.
    expect([holes.responses, holes.completed]).toEqual([3, [2]]);
    holes.lost.clear();
    world.run(5_000);
    expect(holes.responses).toBe(4);
    expect(holes.completed).toEqual([2, 1, 3, 4, 5]);
  });

  it.each([
    ['Reads are ordered', 'ordered', 'placing'],
    ['the receiver is ordered', 'placed', 'ordered'],
  ] as const)('waits for what is below where %s', (_where, reads, receiver) => {
    const holes = new Holes(reads, receiver);
    const { world } = holes;
    holes.lost.add(0);
    world.client.qp.postSend({ wrId: 1, opcode: 'send', inline: pattern(60) });
    holes.read(2, 1_000, 64);
    world.run(THERE_AND_BACK);
    expect(world.server.trp.above).toBe(1);
    expect([holes.responses, holes.completed]).toEqual([0, []]);
    holes.lost.clear();
    world.run(5_000);
    expect([holes.responses, holes.completed]).toEqual([1, [1, 2]]);
  });
});

it.each(['ordered', 'placed'] as const)(
  'a Read in order is done by its response, though the next request is lost (%s)',
  (reads) => {
    const holes = new Holes(reads);
    const { world } = holes;
    holes.lost.add(1);
    for (const wrId of [1, 2]) holes.read(wrId, wrId * 1_000, 64);
    world.run(THERE_AND_BACK);
    expect(holes.completed).toEqual([1]);
    holes.lost.clear();
    world.run(5_000);
    expect(holes.completed).toEqual([1, 2]);
  },
);

describe('an end whose receiver is ordered, with Reads placed', () => {
  const behind = (reader: TrpReceiverName, owner: TrpReceiverName, hole: 'lost' | 'lostBack'): unknown[] => {
    const holes = new Holes('placed', reader, owner);
    const { world } = holes;
    holes[hole].add(0);
    for (const wrId of [1, 2]) holes.read(wrId, wrId * 1_000, 64);
    world.run(THERE_AND_BACK);
    const early = [...holes.completed];
    holes[hole].clear();
    world.run(5_000);
    expect(holes.completed).toEqual(early.length > 0 ? [2, 1] : [1, 2]);
    for (const at of [1_000, 2_000])
      expect(world.client.memory.bytes.subarray(at, at + 64)).toEqual(DATA_OF_SERVER.subarray(at, at + 64));
    return early;
  };

  it('answers no request before its turn, and its peer takes its responses as they come', () => {
    expect(behind('placing', 'ordered', 'lost')).toEqual([]);
    expect(behind('placing', 'ordered', 'lostBack')).toEqual([2]);
  });

  it('takes no response before its turn, and those of requests that were answered early', () => {
    expect(behind('ordered', 'placing', 'lostBack')).toEqual([]);
    expect(behind('ordered', 'placing', 'lost')).toEqual([2]);
  });
});
