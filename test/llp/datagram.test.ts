/**
 * DDP and RDMAP over a lower layer that is not MPA: whole ULPDUs as datagrams, in order. The same queues,
 * regions and ends as over TCP, without a frame, a CRC or a byte stream. RFC 5041 3.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OPCODE } from '../../src/rdmap/wire.ts';
import { WORK } from '../../src/queues/work.ts';
import { DatagramPair, type DatagramEnd, type DatagramOptions } from '../support/datagram-llp.ts';
import { count } from '../support/framing.ts';

const GUARD = 0xe7;

/** Memory with guards on either side, and a region over what lies between them. */
function guarded(end: DatagramEnd, octets: number, content?: Uint8Array) {
  const memory = new Uint8Array(octets + 64).fill(GUARD);
  const inner = memory.subarray(32, 32 + octets).fill(0);
  if (content !== undefined) inner.set(content);
  const entry = end.region(inner);
  const intact = (): boolean =>
    memory.subarray(0, 32).every((octet) => octet === GUARD) &&
    memory.subarray(32 + octets).every((octet) => octet === GUARD);
  return { entry, inner, intact };
}
type Guarded = ReturnType<typeof guarded>;

function postReceive(end: DatagramEnd, wrId: number, { entry, inner }: Guarded): void {
  const wqe = end.rq.peekFree()!;
  wqe.wrId = wrId;
  wqe.sges.add(entry, inner, 0, inner.length, entry.stag);
  end.rq.push();
}

function postSend(end: DatagramEnd, wrId: number, { entry, inner }: Guarded): void {
  end.post(wrId, (wqe) => {
    wqe.kind = WORK.SEND;
    wqe.wireOpcode = OPCODE.SEND;
    wqe.sges.add(entry, inner, 0, inner.length, entry.stag);
  });
}

function postTo(end: DatagramEnd, wrId: number, kind: number, local: Guarded, remote: Guarded): void {
  end.post(wrId, (wqe) => {
    wqe.kind = kind;
    wqe.wireOpcode = OPCODE.RDMA_WRITE;
    wqe.stag = remote.entry.stag;
    wqe.sges.add(local.entry, local.inner, 0, local.inner.length, local.entry.stag);
  });
}

/** A connected pair after a session of every operation, with its regions. */
function session(options: DatagramOptions) {
  const pair = new DatagramPair(options);
  const { initiator, responder } = pair;
  const out = guarded(initiator, 9000, count(9000, 3));
  const target = guarded(responder, 9000);
  const source = guarded(responder, 7000, count(7000, 9));
  const sink = guarded(initiator, 7000);
  const inbox = guarded(responder, 9000);
  const word = guarded(responder, 8, new Uint8Array(8));
  const original = guarded(initiator, 8);
  postReceive(responder, 100, inbox);
  postTo(initiator, 1, WORK.WRITE, out, target);
  postSend(initiator, 2, out);
  postTo(initiator, 3, WORK.READ, sink, source);
  initiator.post(4, (wqe) => {
    wqe.kind = WORK.ATOMIC;
    wqe.opcode = 'atomic-fetch-add';
    wqe.stag = word.entry.stag;
    wqe.operands.dataLo = 5;
    wqe.sges.add(original.entry, original.inner, 0, 8, original.entry.stag);
  });
  pair.connect();
  return { pair, regions: { out, target, source, sink, inbox, word, original } };
}

const types = (end: DatagramEnd): string[] => end.events.map((event) => event.type);

describe('a lower layer of datagrams', () => {
  it.each([
    [128, true],
    [1024, false],
    [1024, true],
    [9018, true],
  ])('carries Sends, Writes, Reads and Atomics: MULPDU %i, zero-copy %s', (mulpdu, zeroCopy) => {
    const { pair, regions } = session({ mulpdu, zeroCopy });
    const { initiator, responder } = pair;
    expect(initiator.sent).toEqual([1, 2, 3, 4].map((wrId) => ({ wrId, status: 'success' })));
    expect(responder.received).toEqual([{ wrId: 100, status: 'success', byteLength: 9000 }]);
    expect(regions.target.inner).toEqual(count(9000, 3));
    expect(regions.inbox.inner).toEqual(count(9000, 3));
    expect(regions.sink.inner).toEqual(count(7000, 9));
    expect(new BigUint64Array(regions.word.inner.slice().buffer)).toEqual(new BigUint64Array([5n]));
    for (const region of Object.values(regions)) expect(region.intact()).toBe(true);
  });

  it('starts up with private data in both directions, and refuses', () => {
    const pair = new DatagramPair().connect();
    expect(pair.initiator.events).toMatchObject([{ type: 'established', privateData: Uint8Array.of(3) }]);
    expect(pair.responder.events).toMatchObject([
      { type: 'request', request: { privateData: Uint8Array.of(1, 2), peerIrd: 16 } },
      { type: 'established', privateData: Uint8Array.of(1, 2) },
    ]);
    const other = new DatagramPair();
    other.initiator.stream.start(0, other.initiator.endpoint, new Uint8Array(0), {});
    other.responder.stream.start(0, null, new Uint8Array(0), {});
    other.settle().responder.stream.reject(0, Uint8Array.of(7));
    other.settle();
    expect(other.initiator.events[0]).toMatchObject({ type: 'rejected', privateData: Uint8Array.of(7) });
    expect(types(other.initiator).at(-1)).toBe('closed');
  });

  it('fails start-up by its deadline', () => {
    const pair = new DatagramPair();
    pair.responder.stream.start(0, null, new Uint8Array(0), {});
    pair.settle().later(1000);
    expect(pair.responder.events[0]).toMatchObject({ type: 'startup-failed', reason: 'timeout' });
  });

  it('closes in order', () => {
    const { pair } = session({});
    pair.initiator.stream.close(pair.now);
    pair.settle();
    for (const end of [pair.initiator, pair.responder])
      expect(end.events.at(-1)).toMatchObject({ type: 'closed', cause: 'graceful' });
  });

  it('carries a Terminate for an access outside a region, and both ends complete their work', () => {
    const { pair, regions } = session({});
    const { initiator, responder } = pair;
    postTo(initiator, 9, WORK.WRITE, regions.out, regions.source); // 2000 octets too many
    initiator.stream.kick(pair.now);
    pair.settle();
    expect(responder.events).toContainEqual(
      expect.objectContaining({
        type: 'terminate',
        terminate: expect.objectContaining({ origin: 'local', layer: 1, type: 1, code: 1 }),
      }),
    );
    expect(initiator.events).toContainEqual(
      expect.objectContaining({
        type: 'terminate',
        terminate: expect.objectContaining({ origin: 'remote', layer: 1, type: 1, code: 1 }),
      }),
    );
    expect([types(initiator).at(-1), types(responder).at(-1)]).toEqual(['closed', 'closed']);
    expect(initiator.sq.outstanding + responder.sq.outstanding).toBe(0);
    for (const region of Object.values(regions)) expect(region.intact()).toBe(true);
  });
});

describe('datagrams that are cut, repeated, overlong or changed', () => {
  const faults = fc.array(
    fc.record({
      at: fc.nat(60),
      kind: fc.constantFrom('cut', 'repeat', 'overlong', 'change', 'drop', 'noise'),
      amount: fc.nat(2000),
      value: fc.nat(255),
    }),
    { minLength: 1, maxLength: 4 },
  );

  it('never throw, place nothing outside a region and lose no completion', () => {
    fc.assert(
      fc.property(faults, fc.constantFrom(128, 700, 9018), (script, mulpdu) => {
        let seen = 0;
        const mangle = (datagram: Uint8Array): Uint8Array[] => {
          const fault = script.find(({ at }) => at === seen);
          seen++;
          if (fault === undefined) return [datagram];
          const { kind, amount, value } = fault;
          if (kind === 'drop') return [];
          if (kind === 'repeat') return [datagram, datagram];
          if (kind === 'cut') return [datagram.subarray(0, amount % (datagram.length + 1))];
          if (kind === 'overlong') return [Uint8Array.of(...datagram, ...count(amount, value))];
          if (kind === 'noise') return [count(amount, value)];
          const changed = datagram.slice();
          changed[amount % datagram.length]! ^= value;
          return [changed];
        };
        const { pair, regions } = session({ mulpdu, mangle });
        // A dropped response leaves a Read open: a close waits for it, and the deadline ends that.
        pair.initiator.stream.close(pair.now);
        pair.responder.stream.close(pair.now);
        pair.settle();
        for (let i = 0; i < 40; i++) pair.later(5000);
        for (const region of Object.values(regions)) expect(region.intact()).toBe(true);
        for (const end of [pair.initiator, pair.responder]) {
          expect(types(end).at(-1)).toBe('closed');
          expect(types(end).filter((type) => type === 'closed')).toHaveLength(1);
        }
        // Work of an end that was never established stays with its queue pair.
        const worked = (end: DatagramEnd): boolean => types(end).includes('established');
        expect(pair.initiator.sent.map(({ wrId }) => wrId)).toEqual(
          worked(pair.initiator) ? [1, 2, 3, 4] : [],
        );
        expect(pair.responder.received.map(({ wrId }) => wrId)).toEqual(worked(pair.responder) ? [100] : []);
      }),
      { numRuns: 400 },
    );
  });

  it('count only as whole headers: a cut one is a DDP error', () => {
    const pair = new DatagramPair().connect();
    const { responder } = pair;
    responder.stream.handleBytes(Uint8Array.of(0x41, 0x43, 0), 0, 3, 0);
    pair.settle();
    expect(responder.events).toContainEqual(
      expect.objectContaining({ terminate: expect.objectContaining({ layer: 1, type: 0, code: 0 }) }),
    );
  });
});
