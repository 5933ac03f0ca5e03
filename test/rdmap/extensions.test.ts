/**
 * RFC 7306: Immediate Data and Atomics. Their layout is proved in messages.test.ts, their faults in
 * faults.test.ts.
 */
import { endianness } from 'node:os';
import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { atomicResult } from '../../src/rdmap/atomics.ts';
import { ACCESS } from '../../src/verbs/index.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { encodeAtomicRequest, untaggedUlpdu } from '../support/naive/encoder.ts';
import { octetsOf } from '../support/naive/octets.ts';
import { plainPair } from './capture.ts';
import {
  expectTerminate,
  OP,
  pattern,
  readRequest,
  readResponse,
  scripted,
  send,
  write,
  type Script,
} from './scripted.ts';

const ONES = 0xffff_ffff_ffff_ffffn;

interface AtomicFields {
  readonly swap?: boolean;
  readonly id?: number;
  readonly stag: number;
  readonly to?: bigint;
  readonly data: bigint;
  readonly mask?: bigint;
  readonly compare?: bigint;
  readonly compareMask?: bigint;
  readonly reserved?: number;
}

function atomic(msn: number, f: AtomicFields): Uint8Array {
  return untaggedUlpdu(
    { opcode: OP.atomicRequest, qn: 1, msn },
    encodeAtomicRequest({
      reserved: f.reserved ?? 0,
      aopcode: f.swap === true ? 2 : 0,
      requestId: f.id ?? msn,
      remoteStag: f.stag,
      remoteTo: f.to ?? 0n,
      addOrSwap: f.data,
      addOrSwapMask: f.mask ?? 0n,
      compare: f.compare ?? 0n,
      compareMask: f.compareMask ?? ONES,
    }),
  );
}

function atomicResponse(msn: number, id: number, original: bigint): Uint8Array {
  return untaggedUlpdu(
    { opcode: OP.atomicResponse, qn: 3, msn },
    Uint8Array.from([...octetsOf(id, 4), ...octetsOf(original, 8)]),
  );
}

/** A 64-bit word in guarded memory, 8-octet aligned, in this machine's order. */
function word(script: Script, value: bigint): { rkey: number; get: () => bigint } {
  const { mr } = script.region(8);
  const view = new BigUint64Array(mr.bytes.buffer as ArrayBuffer, mr.bytes.byteOffset, 1);
  view[0] = value;
  return { rkey: mr.rkey, get: () => view[0]! };
}

const originals = (script: Script): bigint[] =>
  script.segments().flatMap((segment) => segment.atomicResponse?.original ?? []);

describe('Immediate Data', () => {
  it('the 8 octets come with the completion, in order with Sends (EXT-012, EXT-013)', async () => {
    const script = await scripted();
    const inbox = script.receives(3, 8);
    const before = inbox.memory.slice();
    const octets = Uint8Array.of(0xf0, 1, 2, 3, 4, 5, 6, 7);
    script.send(send(1), send(2, octets, { opcode: OP.imm }), send(3, undefined)).settle();
    expect(script.received().map((wc) => [wc.wrId, wc.opcode, wc.byteLength, wc.immediate])).toEqual([
      [1000, 'receive', 0, undefined],
      [1001, 'receive-immediate', 8, 0xf001_0203_0405_0607n],
      [1002, 'receive', 0, undefined],
    ]);
    expect(inbox.memory).toEqual(before); // they go into the completion, not into the buffer
  });

  it('a receive without any buffer is enough (EXT-011, EXT-012)', async () => {
    const script = await scripted();
    script.side.qp.postRecv({ wrId: 5 });
    script.send(send(1, pattern(8), { opcode: OP.immSe })).settle();
    expect(script.received()).toMatchObject([{ wrId: 5, status: 'success', solicited: true }]);
  });

  it('a Read or Atomic after a Send or Immediate Data is answered after it (EXT-019/042)', async () => {
    const script = await scripted();
    script.receives(2, 8);
    const { rkey } = word(script, 1n);
    script.send(
      send(1, pattern(8), { opcode: OP.imm }),
      readRequest(1, { size: 8, sourceStag: rkey }),
      send(2, pattern(3)),
      atomic(2, { stag: rkey, data: 1n }),
    );
    for (let responses = 0; responses < 2; ) {
      expect(script.time.step()).toBe(true);
      responses = script.peer.behind().length === 0 ? 0 : script.segments().length;
      if (responses > 0) expect(script.side.recvCq.length).toBe(2);
    }
  });
});

describe('Atomics at the responder', () => {
  it('FetchAdd with mask 0 adds modulo 2^64, in order, giving the original (EXT-020/026/039)', async () => {
    const script = await scripted();
    const { rkey, get } = word(script, ONES);
    script.send(atomic(1, { stag: rkey, data: 1n }), atomic(2, { stag: rkey, data: 5n })).settle();
    expect(originals(script)).toEqual([ONES, 0n]);
    expect(get()).toBe(5n);
    expect([script.received(), script.side.sent()]).toEqual([[], []]);
    script.guardsIntact();
  });

  it('FetchAdd drops the carry out of every position set in Add Mask (EXT-027)', async () => {
    const script = await scripted();
    const { rkey, get } = word(script, 0x0000_0000_ffff_ffffn);
    script.send(atomic(1, { stag: rkey, data: 1n, mask: 0x8000_0000_8000_0000n })).settle();
    expect(originals(script)).toEqual([0xffff_ffffn]);
    expect(get()).toBe(0n);
  });

  it('FetchAdd equals an addition done bit by bit, for any operands and mask (EXT-027)', () => {
    const bitByBit = (a: bigint, b: bigint, mask: bigint): bigint => {
      let [carry, sum] = [0n, 0n];
      for (let bit = 0n; bit < 64n; bit++) {
        const total = ((a >> bit) & 1n) + ((b >> bit) & 1n) + carry;
        sum |= (total & 1n) << bit;
        carry = ((mask >> bit) & 1n) === 1n ? 0n : total >> 1n;
      }
      return sum;
    };
    const u64 = fc.bigInt(0n, ONES);
    fc.assert(
      fc.property(u64, u64, u64, (a, b, mask) => {
        expect(atomicResult(a, { add: true, data: b, mask, compare: 0n, compareMask: 0n })).toBe(
          bitByBit(a, b, mask),
        );
      }),
      { numRuns: 300 },
    );
  });

  it('CmpSwap works under its masks, and changes nothing after a mismatch (EXT-028/029/020)', async () => {
    const cases = [
      { original: 5n, compare: 5n, swap: 7n, mask: ONES, compareMask: ONES, result: 7n },
      { original: 6n, compare: 5n, swap: 7n, mask: ONES, compareMask: ONES, result: 6n },
      {
        original: 0x1234n,
        compare: 0xff34n,
        swap: 0xaaaan,
        mask: 0xf0f0n,
        compareMask: 0xffn,
        result: 0xa2a4n,
      },
      {
        original: 0x1234n,
        compare: 0xff35n,
        swap: 0xaaaan,
        mask: 0xf0f0n,
        compareMask: 0xffn,
        result: 0x1234n,
      },
      { original: 0x1234n, compare: 0n, swap: 0x9n, mask: 0n, compareMask: 0n, result: 0x1234n },
    ];
    for (const { original, compare, swap, mask, compareMask, result } of cases) {
      const script = await scripted();
      const { rkey, get } = word(script, original);
      script.send(atomic(1, { swap: true, stag: rkey, data: swap, mask, compare, compareMask })).settle();
      expect(originals(script)).toEqual([original]);
      expect(get()).toBe(result);
      script.guardsIntact();
    }
  });

  it('FetchAdd does not look at the compare fields, nor at the reserved bits (EXT-025/023)', async () => {
    const script = await scripted();
    const { rkey, get } = word(script, 40n);
    script
      .send(atomic(1, { stag: rkey, data: 2n, compare: 99n, compareMask: 0x1234n, reserved: 0xfff_ffff }))
      .settle();
    expect(originals(script)).toEqual([40n]);
    expect(get()).toBe(42n);
  });

  it('identifiers come back; Reads and Atomics are answered in order (EXT-030/041/043)', async () => {
    const script = await scripted();
    const { rkey } = word(script, 0n);
    const read = (msn: number): Uint8Array => readRequest(msn, { size: 8, sourceStag: rkey });
    script
      .send(
        read(1),
        atomic(2, { id: 0xdead_beef, stag: rkey, data: 1n }),
        read(3),
        atomic(4, { id: 0, stag: rkey, data: 1n }),
      )
      .settle();
    const segments = script.segments();
    expect(segments.map((segment) => segment.opcode)).toEqual([
      OP.readResponse,
      OP.atomicResponse,
      OP.readResponse,
      OP.atomicResponse,
    ]);
    expect(segments.flatMap((segment) => segment.atomicResponse ?? [])).toEqual([
      { requestId: 0xdead_beef, original: 0n },
      { requestId: 0, original: 1n },
    ]);
  });

  it('responses have separate numbers, whatever this side has asked for (EXT-022)', async () => {
    const script = await scripted({ role: 'responder' });
    const { rkey } = word(script, 0n);
    const { mr } = script.region(24);
    for (const i of [0, 1])
      script.side.qp.postSend({
        opcode: 'rdma-read',
        sges: [{ mr, offset: 8 * i, length: 8 }],
        rkey: 1,
        remoteAddr: 0,
      });
    script.settle();
    script.send(atomic(1, { stag: rkey, data: 1n })).settle();
    script.side.qp.postSend({
      opcode: 'rdma-read',
      sges: [{ mr, offset: 16, length: 8 }],
      rkey: 1,
      remoteAddr: 0,
    });
    script.send(atomic(2, { stag: rkey, data: 1n })).settle();
    const msns = (opcode: number): unknown =>
      script.sent(opcode).map((segment) => (segment.tagged ? [] : [segment.qn, segment.msn]));
    expect(msns(OP.atomicResponse)).toEqual([
      [3, 1],
      [3, 2],
    ]);
    expect(msns(OP.readRequest)).toEqual([
      [1, 1],
      [1, 2],
      [1, 3],
    ]);
  });

  it('values are big-endian on the wire and in the order of this machine in memory (EXT-031)', async () => {
    const script = await scripted();
    const { mr } = script.region(8);
    script
      .send(
        atomic(1, { stag: mr.rkey, data: 0x0102_0304_0506_0708n }),
        readRequest(2, { size: 8, sourceStag: mr.rkey }),
      )
      .settle();
    const expected = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
    if (endianness() === 'LE') expected.reverse();
    expect(script.sent(OP.readResponse)[0]!.payload).toEqual(expected);
  });

  it('of a misaligned target no octet changes (EXT-033)', async () => {
    const script = await scripted();
    const { mr } = script.region(16);
    const blamed = atomic(1, { stag: mr.rkey, to: 4n, data: 1n });
    script.send(blamed).settle();
    expectTerminate(script, { layer: 0, etype: 2, code: 7, blamed });
    script.memoryUntouched();
  });

  it('what counts is where the word lies in memory, not its TO (EXT-032, EXT-033)', async () => {
    for (const odd of [1, 3]) {
      const memory = new Uint8Array(new ArrayBuffer(32), odd, 24);
      for (const [to, taken] of [
        [0, false],
        [8, false],
        [8 - odd, true],
      ] as const) {
        const script = await scripted();
        const mr = script.side.register(memory.fill(0));
        const blamed = atomic(1, { stag: mr.rkey, to: BigInt(to), data: 1n });
        script.send(blamed).settle();
        if (taken) expect(originals(script)).toEqual([0n]);
        else expectTerminate(script, { layer: 0, etype: 2, code: 7, blamed });
        expect(memory.some((octet) => octet !== 0)).toBe(taken);
      }
    }
  });

  const badAtomics: readonly (readonly [string, string, boolean, (stag: number) => AtomicFields])[] = [
    ['to an STag nobody knows', '0/1/00', true, (stag) => ({ stag: (stag ^ 0x100) >>> 0, data: 1n })],
    ['to a misaligned word', '0/2/07', true, (stag) => ({ stag, to: 4n, data: 1n })],
    ['on a queue pair that lets nobody write', '0/1/02', false, (stag) => ({ stag, data: 1n })],
  ];
  it.each(badAtomics)(
    'the Terminate for an Atomic %s (%s) waits for the Read in front (EXT-043, RDMAP-074, VERBS-069)',
    async (_, code, inboundWrite, fields) => {
      const script = await scripted({ side: { qp: { inboundWrite } }, open: false });
      const { mr } = script.region(50_000);
      const blamed = atomic(2, fields(mr.rkey));
      script.send(readRequest(1, { size: 50_000, sourceStag: mr.rkey }), blamed).settle();
      const [layer, etype, number] = code.split('/').map(Number);
      expectTerminate(script, { layer: layer!, etype: etype!, code: number!, blamed });
      expect(script.sent(OP.readResponse).at(-1)).toMatchObject({ last: true });
    },
  );

  it('a Write in front of an Atomic is seen by it (EXT-042)', async () => {
    const script = await scripted();
    const { mr } = script.region(8);
    script
      .send(write(mr.rkey, 0n, new Uint8Array(8).fill(9)), atomic(1, { stag: mr.rkey, data: 0n }))
      .settle();
    expect(originals(script)).toEqual([0x0909_0909_0909_0909n]);
  });

  it('additions of two streams to one word all count, over shared memory too (EXT-036)', async () => {
    for (const memory of [new Uint8Array(8), new Uint8Array(new SharedArrayBuffer(8))]) {
      const script = await scripted();
      const mr = script.side.register(memory, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_ATOMIC);
      const other = script.bench.dial();
      other.request();
      script.settle();
      for (let msn = 1; msn <= 200; msn++) {
        script.send(atomic(msn, { stag: mr.rkey, data: 1n }));
        other.sendFpdus([atomic(msn, { stag: mr.rkey, data: 0x1_0000_0000n })]);
        if (msn % 8 === 0) script.settle(10);
      }
      script.settle();
      expect(new BigUint64Array(memory.buffer)[0]).toBe(200n * 0x1_0000_0001n);
    }
  });

  it('queue 1 takes IRD requests of both kinds together (EXT-046)', async () => {
    const script = await scripted({ policy: { ird: 4 } });
    const { rkey } = word(script, 0n);
    const read = (msn: number): Uint8Array => readRequest(msn, { size: 8, sourceStag: rkey });
    script
      .send(read(1), atomic(2, { stag: rkey, data: 1n }), atomic(3, { stag: rkey, data: 1n }), read(4))
      .settle();
    expect(script.segments().length).toBe(4);
    const five = [5, 6, 7, 8, 9].map((msn) => atomic(msn, { stag: rkey, data: 1n }));
    script.send(...five).settle();
    expectTerminate(script, { layer: 1, etype: 2, code: 3, blamed: five[4]! });
  });

  it('a queue pair that lets nobody write lets nobody use atomics (EXT-035)', async () => {
    const script = await scripted({ side: { qp: { inboundWrite: false } } });
    const { rkey, get } = word(script, 3n);
    const blamed = atomic(1, { stag: rkey, data: 1n });
    script.send(blamed).settle();
    expectTerminate(script, { layer: 0, etype: 1, code: 2, blamed });
    expect(get()).toBe(3n);
  });
});

describe('Atomics at the requester', () => {
  it('they complete with responses; with Reads at most ORD are outstanding (EXT-044/047/048)', async () => {
    const script = await scripted({ role: 'responder', policy: { ord: 2 } });
    const { mr } = script.region(64);
    const remote = { rkey: 1, remoteAddr: 0 };
    script.side.qp.postSend([
      { wrId: 1, opcode: 'atomic-fetch-add', sges: [{ mr, length: 8 }], ...remote, add: 1 },
      { wrId: 2, opcode: 'rdma-read', sges: [{ mr, offset: 8, length: 8 }], ...remote },
      {
        wrId: 3,
        opcode: 'atomic-cmp-swap',
        sges: [{ mr, offset: 16, length: 8 }],
        ...remote,
        compare: 1,
        swap: 2,
      },
    ]);
    script.settle();
    expect(script.segments().length).toBe(2);
    expect(script.side.sent()).toEqual([]);
    script.send(atomicResponse(1, 1, 0x1122n)).settle();
    expect(script.side.sent().map((wc) => wc.wrId)).toEqual([1]);
    expect(script.segments().length).toBe(3);
    script
      .send(
        readResponse(mr.rkey, 8n, pattern(8)),
        atomicResponse(2, script.segments()[2]!.atomicRequest!.requestId, 7n),
      )
      .settle();
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [2, 'success'],
      [3, 'success'],
    ]);
    const view = new BigUint64Array(mr.bytes.buffer as ArrayBuffer, mr.bytes.byteOffset, 3);
    expect([view[0], view[2]]).toEqual([0x1122n, 7n]);
    script.guardsIntact();
  });

  it('ORD atomics alone may be outstanding (EXT-047)', async () => {
    const script = await scripted({ role: 'responder', policy: { ord: 5 } });
    const { mr } = script.region(64);
    for (let i = 0; i < 5; i++)
      script.side.qp.postSend({
        wrId: i,
        opcode: 'atomic-fetch-add',
        sges: [{ mr, offset: 8 * i, length: 8 }],
        rkey: 1,
        remoteAddr: 0,
        add: 1,
      });
    script.settle();
    script
      .send(
        ...script
          .segments()
          .map((segment, i) => atomicResponse(i + 1, segment.atomicRequest!.requestId, BigInt(i))),
      )
      .settle();
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual(
      [0, 1, 2, 3, 4].map((i) => [i, 'success']),
    );
  });

  const misfits: readonly [string, string, string, (id: number, stag: number) => Uint8Array][] = [
    ['with MSN 2 in place of 1', '1/2/03', 'flushed', (id) => atomicResponse(2, id, 1n)],
    ['with another identifier', '1/2/03', 'bad-response', (id) => atomicResponse(1, id + 1, 1n)],
    ['of 11 octets', '0/2/07', 'flushed', (id) => atomicResponse(1, id, 1n).slice(0, 29)],
    ['of 13 octets', '0/2/07', 'flushed', (id) => Uint8Array.from([...atomicResponse(1, id, 1n), 0])],
    ['that is a Read Response', '0/2/06', 'flushed', (_, stag) => readResponse(stag, 0n, pattern(8))],
  ];
  for (const [title, code, status, response] of misfits) {
    it(`a response ${title} gets Terminate ${code} and writes nothing (EXT-049)`, async () => {
      const script = await scripted({ role: 'responder' });
      const { mr } = script.region(8);
      script.side.qp.postSend({
        wrId: 1,
        opcode: 'atomic-fetch-add',
        sges: [{ mr }],
        rkey: 1,
        remoteAddr: 0,
        add: 1,
      });
      script.settle();
      const blamed = response(script.segments()[0]!.atomicRequest!.requestId, mr.rkey);
      script.send(blamed).settle();
      const [layer, etype, number] = code.split('/').map(Number);
      expectTerminate(script, { layer: layer!, etype: etype!, code: number!, blamed });
      script.memoryUntouched();
      script.end().finish();
      expect(script.side.sent()).toMatchObject([{ wrId: 1, status }]);
    });
  }

  it('a local element not of 8 octets is refused, a misaligned target by the peer (EXT-032)', async () => {
    const pair = await plainPair();
    const { client, server } = pair;
    const local = client.register(16);
    const target = server.register(16);
    const post = (length: number, remoteAddr: number): number =>
      client.qp.postSend({
        opcode: 'atomic-fetch-add',
        sges: [{ mr: local, length }],
        rkey: target.rkey,
        remoteAddr,
        add: 1,
      });
    expect(() => post(7, 0)).toThrow(IwarpError);
    post(8, 4);
    pair.run();
    expect(client.event('terminate')?.terminate).toMatchObject({
      origin: 'remote',
      layer: 0,
      type: 2,
      code: 7,
    });
    expect(client.sent()).toMatchObject([{ status: 'remote-operation-error' }]);
    expect(target.bytes).toEqual(new Uint8Array(16));
  });

  it('a FetchAdd of 0 finds out that a peer has no atomics (EXT-051)', async () => {
    const pair = await plainPair({ server: { qp: { extensions: false } } });
    const local = pair.client.register(8);
    const target = pair.server.register(8);
    pair.client.qp.postSend({
      opcode: 'atomic-fetch-add',
      sges: [{ mr: local }],
      rkey: target.rkey,
      remoteAddr: 0,
      add: 0,
    });
    pair.run();
    expect(pair.client.event('terminate')?.terminate).toMatchObject({
      origin: 'remote',
      layer: 0,
      type: 2,
      code: 6,
    });
    expect(pair.client.sent()).toMatchObject([{ status: 'remote-operation-error' }]);
  });
});
