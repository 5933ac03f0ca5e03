// RFC 7306 through verbs: Immediate Data, Write with immediate, atomics with masks, peers without them.
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { encodeAtomicRequest, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import { connectedPair, type Pair } from '../support/pair.ts';
import { rawInitiatorUp, rawResponderUp } from '../support/raw-peer.ts';
import {
  codeOf,
  LOCAL_WRITE,
  outcomes,
  pattern,
  REMOTE_ATOMIC,
  REMOTE_READ,
  REMOTE_WRITE,
  secondConnection,
  serverTerminate,
  terminateOf,
} from './support.ts';

const ONES = 2n ** 64n - 1n;
const LITTLE = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

function word(bytes: Uint8Array, at = 0): bigint {
  return new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(at, LITTLE);
}

function setWord(bytes: Uint8Array, value: bigint, at = 0): void {
  new DataView(bytes.buffer, bytes.byteOffset).setBigUint64(at, value, LITTLE);
}

/** Run one atomic on a word that holds `original`; returns the response and the value afterwards. */
function atomic(original: bigint, request: object, pair: Pair): [bigint, bigint] {
  const { client, server } = pair;
  const target = server.register(8);
  setWord(target.bytes, original);
  const mr = client.register(8);
  client.qp.postSend({
    opcode: 'atomic-fetch-add',
    sges: [{ mr }],
    rkey: target.rkey,
    remoteAddr: 0,
    ...request,
  } as never);
  pair.run();
  return [word(mr.bytes), word(target.bytes)];
}

describe('Immediate Data', () => {
  it('untagged on queue 0, 8 octets in one segment, in posting order (EXT-008/009/003/014)', () => {
    const { bench, peer } = rawResponderUp();
    bench.side.qp.postSend([
      { opcode: 'immediate', immediate: 0x0102_0304_0506_0708n },
      { opcode: 'immediate', immediate: 9, solicited: true },
      { opcode: 'send' },
    ]);
    bench.settle();
    const segments = peer.segments();
    expect(
      segments.map((s) => (s.tagged ? [] : [s.opcode, s.qn, s.msn, s.mo, s.invalidateStag, s.last])),
    ).toEqual([
      [8, 0, 1, 0, 0, true],
      [9, 0, 2, 0, 0, true],
      [3, 0, 3, 0, 0, true],
    ]);
    expect(segments[0]!.immediate).toEqual(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8));
    expect(peer.problems()).toEqual([]);
  });

  it('each uses a receive, shows its octets, and is in line with Sends (EXT-011/012/013)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(8);
    server.qp.postRecv([1, 2, 3].map((wrId) => ({ wrId, sges: [{ mr, length: 4 }] })));
    client.qp.postSend([
      { opcode: 'send', inline: pattern(3) },
      { wrId: 5, opcode: 'immediate', immediate: ONES },
      { opcode: 'send' },
    ]);
    pair.run();
    expect(server.received()).toMatchObject([
      { wrId: 1, opcode: 'receive', byteLength: 3, immediate: undefined },
      { wrId: 2, opcode: 'receive-immediate', byteLength: 8, immediate: ONES },
      { wrId: 3, opcode: 'receive', byteLength: 0, immediate: undefined },
    ]);
    expect(mr.bytes.subarray(0, 4)).toEqual(Uint8Array.of(...pattern(3), 0));
    client.qp.postSend({ opcode: 'immediate', immediate: 1 });
    pair.run();
    expect(terminateOf(server.qp)).toBe('1/2/02');
  });

  it('a length other than 8 is an error, reported to both sides (EXT-010, EXT-017)', async () => {
    for (const octets of [0, 7, 9, 16]) {
      const { bench, peer } = await rawInitiatorUp();
      bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: bench.side.register(64) }] });
      peer.sendFpdus([untaggedUlpdu({ opcode: 8, qn: 0, msn: 1 }, new Uint8Array(octets))]);
      bench.run();
      expect(peer.terminates(), `${octets} octets`).toEqual(['0/2/07']);
      expect(bench.side.asyncEvents.some((event) => event.type === 'terminate-sent')).toBe(true);
      expect(bench.side.received()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
    }
  });

  it('the Invalidate STag field of an extension message is ignored (EXT-004)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const mr = bench.side.register(8);
    bench.side.qp.postRecv({});
    peer.sendFpdus([untaggedUlpdu({ opcode: 8, qn: 0, msn: 1, invalidateStag: mr.rkey }, new Uint8Array(8))]);
    bench.settle();
    expect(bench.side.received()).toMatchObject([{ status: 'success', invalidatedStag: undefined }]);
    expect(mr.valid).toBe(true);
  });

  it('a Read after it is answered no earlier than its receive completes (EXT-019)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    server.qp.postRecv({});
    let received = -1;
    client.sendCq.setHandler(() => (received = server.recvCq.length));
    client.sendCq.requestNotify();
    client.qp.postSend([
      { opcode: 'immediate', immediate: 1, signaled: false },
      { opcode: 'rdma-read', rkey: 0, remoteAddr: 0 },
    ]);
    pair.run();
    expect(received).toBe(1);
  });

  it('Write with immediate is one request and completion; the Write is in place (EXT-015)', async () => {
    const pair = await connectedPair({ client: { qp: { maxSendWr: 1 } } });
    const { client, server } = pair;
    const target = server.register(10_000);
    const mr = client.register(pattern(10_000));
    server.qp.postRecv([{ wrId: 7 }, { wrId: 8 }]);
    let whole = false;
    server.recvCq.setHandler(() => (whole = Buffer.compare(target.bytes, mr.bytes) === 0));
    server.recvCq.requestNotify('solicited');
    client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-write',
      sges: [{ mr }],
      rkey: target.rkey,
      remoteAddr: 0,
      immediate: 77n,
      solicited: true,
    });
    pair.run();
    expect(client.sent()).toMatchObject([
      { wrId: 1, status: 'success', opcode: 'rdma-write', byteLength: 10_000 },
    ]);
    expect(server.received()).toMatchObject([
      { wrId: 7, opcode: 'receive-immediate', immediate: 77n, solicited: true },
    ]);
    expect(whole).toBe(true);
    client.qp.postSend({
      wrId: 2,
      opcode: 'rdma-write',
      inline: pattern(4),
      rkey: target.rkey,
      remoteAddr: 4,
      immediate: 0,
    });
    pair.run();
    expect(outcomes(client.sent())).toEqual(['2 success']);
    expect(server.received()).toMatchObject([{ wrId: 8, immediate: 0n, solicited: false }]);
    expect(
      codeOf(() => client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0, solicited: true })),
    ).toBe('ERR_INVALID_ARGUMENT');
  });

  it('the Immediate Data after a Write names no STag to invalidate (EXT-003, EXT-015)', () => {
    const { bench, peer } = rawResponderUp();
    const mr = bench.side.register(pattern(5000));
    bench.side.qp.postSend({
      opcode: 'rdma-write',
      sges: [{ mr }],
      rkey: 0x0102_0304,
      remoteAddr: 0,
      immediate: 5n,
    });
    bench.side.qp.postSend({
      opcode: 'rdma-write',
      inline: pattern(4),
      rkey: 0x0506_0708,
      remoteAddr: 0,
      immediate: 6n,
      solicited: true,
    });
    bench.settle();
    expect(
      peer
        .segments()
        .flatMap((s) => (s.tagged ? [] : [[s.opcode, s.qn, s.msn, s.mo, s.invalidateStag, s.last]])),
    ).toEqual([
      [8, 0, 1, 0, 0, true],
      [9, 0, 2, 0, 0, true],
    ]);
    expect(peer.problems()).toEqual([]);
  });

  it('a Write with immediate that fails gives one completion as well', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const mr = client.register(500_000);
    client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-write',
      sges: [{ mr }],
      rkey: 5,
      remoteAddr: 0,
      immediate: 1,
    });
    mr.deregister();
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 local-protection-error']);
  });
});

describe('atomics', () => {
  it('requests on queue 1, 52 octets, lawful fields, in submission order (EXT-021/022/023/024/038)', () => {
    const { bench, peer } = rawResponderUp();
    const mr = bench.side.register(8);
    const remote = { sges: [{ mr }], rkey: 0xaabb_ccdd, remoteAddr: 16n } as const;
    bench.side.qp.postSend([
      { opcode: 'atomic-fetch-add', add: 3n, addMask: 7n, ...remote },
      { opcode: 'atomic-cmp-swap', compare: 1n, swap: 2n, ...remote },
    ]);
    bench.settle();
    const requests = peer.segments();
    expect(requests.map((s) => (s.tagged ? [] : [s.opcode, s.qn, s.msn]))).toEqual([
      [10, 1, 1],
      [10, 1, 2],
    ]);
    expect(requests[0]!.atomicRequest).toMatchObject({
      reserved: 0,
      aopcode: 0,
      remoteStag: 0xaabb_ccdd,
      remoteTo: 16n,
      addOrSwap: 3n,
      addOrSwapMask: 7n,
      compare: 0n,
      compareMask: ONES,
    });
    expect(requests[1]!.atomicRequest).toMatchObject({
      reserved: 0,
      aopcode: 2,
      addOrSwap: 2n,
      addOrSwapMask: ONES,
      compare: 1n,
      compareMask: ONES,
    });
    expect(peer.fpdus().map((fpdu) => fpdu.segment!.opcode)).toEqual([10, 10]);
    expect(peer.problems()).toEqual([]);
  });

  it('both operations work; FetchAdd adds modulo 2^64 and returns the original (EXT-020/026)', async () => {
    const pair = await connectedPair();
    expect(atomic(ONES, { add: 1 }, pair)).toEqual([ONES, 0n]);
    expect(atomic(40n, { add: 2n }, pair)).toEqual([40n, 42n]);
    expect(atomic(5n, { opcode: 'atomic-cmp-swap', compare: 5, swap: 6 }, pair)).toEqual([5n, 6n]);
  });

  it('carries out of masked positions are dropped (EXT-027)', async () => {
    const pair = await connectedPair();
    expect(atomic(0xffff_ffffn, { add: 1, addMask: 0x8000_0000_8000_0000n }, pair)).toEqual([
      0xffff_ffffn,
      0n,
    ]);
    expect(
      atomic(0x00ff_00ff_00ff_00ffn, { add: 0x0001_0001_0001_0001n, addMask: 0x0080_0080_0080_0080n }, pair),
    ).toEqual([0x00ff_00ff_00ff_00ffn, 0n]);
    // Every bit is one field: exclusive or.
    expect(atomic(0b1100n, { add: 0b1010n, addMask: ONES }, pair)).toEqual([0b1100n, 0b0110n]);
  });

  it('agrees with an adder that goes bit by bit (EXT-027)', async () => {
    const pair = await connectedPair();
    const random = seededRandom(5);
    const draw = (): bigint => (BigInt(random()) << 32n) | BigInt(random());
    for (let i = 0; i < 60; i++) {
      const [original, add, addMask] = [draw(), draw(), draw() & draw()];
      let carry = 0n;
      let sum = 0n;
      for (let bit = 0n; bit < 64n; bit++) {
        const s = ((original >> bit) & 1n) + ((add >> bit) & 1n) + carry;
        sum |= (s & 1n) << bit;
        carry = ((addMask >> bit) & 1n) === 1n ? 0n : s >> 1n;
      }
      expect(atomic(original, { add, addMask }, pair)).toEqual([original, sum]);
    }
  });

  it('compares and swaps under the masks; after a mismatch nothing has changed (EXT-028/029)', async () => {
    const pair = await connectedPair();
    const swap = (original: bigint, change: object): [bigint, bigint] =>
      atomic(original, { opcode: 'atomic-cmp-swap', ...change }, pair);
    expect(swap(0x1234n, { compare: 0x9934n, compareMask: 0xffn, swap: 0xabcdn, swapMask: 0xff00n })).toEqual(
      [0x1234n, 0xab34n],
    );
    expect(swap(0x1234n, { compare: 0x1235n, swap: 1n })).toEqual([0x1234n, 0x1234n]);
    expect(swap(0x1234n, { compare: 0, compareMask: 0n, swap: ONES, swapMask: 0n })).toEqual([
      0x1234n,
      0x1234n,
    ]);
  });

  it('unused fields are ignored; identifier, value come back big-endian (EXT-025/030/031/040)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const target = bench.side.register(16);
    setWord(target.bytes, 0x0102_0304_0506_0708n, 8);
    const request = encodeAtomicRequest({
      reserved: 0xfff_ffff,
      aopcode: 0,
      requestId: 0xdead_beef,
      remoteStag: target.rkey,
      remoteTo: 8n,
      addOrSwap: 1n,
      addOrSwapMask: 0n,
      compare: 123n,
      compareMask: 456n,
    });
    peer.sendFpdus([untaggedUlpdu({ opcode: 10, qn: 1, msn: 1 }, request)]);
    bench.settle();
    expect(peer.segments()).toMatchObject([
      {
        opcode: 11,
        qn: 3,
        msn: 1,
        last: true,
        atomicResponse: { requestId: 0xdead_beef, original: 0x0102_0304_0506_0708n },
      },
    ]);
    expect(word(target.bytes, 8)).toBe(0x0102_0304_0506_0709n);
  });

  it('a misaligned target is left alone: 0/2/07, with the DDP header only (EXT-033/007/032)', async () => {
    for (const to of [1n, 4n, 7n]) {
      const { bench, peer } = await rawInitiatorUp();
      const target = bench.side.register(32);
      const request = encodeAtomicRequest({
        reserved: 0,
        aopcode: 0,
        requestId: 1,
        remoteStag: target.rkey,
        remoteTo: to,
        addOrSwap: 1n,
        addOrSwapMask: 0n,
        compare: 0n,
        compareMask: 0n,
      });
      peer.sendFpdus([untaggedUlpdu({ opcode: 10, qn: 1, msn: 1 }, request)]);
      bench.run();
      expect(peer.terminates()).toEqual(['0/2/07']);
      expect(peer.segments().at(-1)!.terminate).toMatchObject({ d: true, r: false });
      expect(target.bytes.every((octet) => octet === 0)).toBe(true);
    }
  });

  it('an operation code that does not exist is 0/2/06 (EXT-034)', async () => {
    for (const aopcode of [1, 3, 15]) {
      const { bench, peer } = await rawInitiatorUp();
      const request = encodeAtomicRequest({
        reserved: 0,
        aopcode,
        requestId: 1,
        remoteStag: bench.side.register(8).rkey,
        remoteTo: 0n,
        addOrSwap: 0n,
        addOrSwapMask: 0n,
        compare: 0n,
        compareMask: 0n,
      });
      peer.sendFpdus([untaggedUlpdu({ opcode: 10, qn: 1, msn: 1 }, request)]);
      bench.run();
      expect(peer.terminates()).toEqual(['0/2/06']);
    }
  });

  it('STag, domain, right, bounds and enables are checked as elsewhere (EXT-035, SEC-001)', async () => {
    const add = (pair: Pair, rkey: number, remoteAddr = 0): void => {
      const mr = pair.client.register(8);
      pair.client.qp.postSend({ opcode: 'atomic-fetch-add', add: 1, sges: [{ mr }], rkey, remoteAddr });
    };
    expect(await serverTerminate((p) => add(p, 0x77))).toBe('0/1/00');
    expect(
      await serverTerminate((p) =>
        add(
          p,
          p.server.device.allocatePd().registerMemory(new Uint8Array(8), LOCAL_WRITE | REMOTE_ATOMIC).rkey,
        ),
      ),
    ).toBe('0/1/03');
    expect(
      await serverTerminate((p) =>
        add(p, p.server.register(8, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE).rkey),
      ),
    ).toBe('0/1/02');
    expect(await serverTerminate((p) => add(p, p.server.register(8).rkey, 8))).toBe('0/1/01');
    expect(
      await serverTerminate((p) => add(p, p.server.register(8).rkey), {
        server: { qp: { inboundWrite: false } },
      }),
    ).toBe('0/1/02');
    expect(
      await serverTerminate((p) => add(p, p.server.register(8).rkey), {
        server: { qp: { inboundRead: false } },
      }),
    ).toBe('1/2/01');
  });

  it('adds of two connections to one word lose nothing, on shared memory neither (EXT-036)', async () => {
    for (const buffer of [new ArrayBuffer(8), new SharedArrayBuffer(8)]) {
      const pair = await connectedPair({ client: { param: { initiatorDepth: 16 } } });
      const links = [{ client: pair.client.qp }, secondConnection(pair)];
      const target = pair.server.register(new Uint8Array(buffer));
      const mr = pair.client.register(8);
      const ROUNDS = 40;
      const BATCH = 100;
      for (let round = 0; round < ROUNDS; round++) {
        for (const { client } of links) {
          client.postSend(
            Array.from(
              { length: BATCH },
              () =>
                ({
                  opcode: 'atomic-fetch-add',
                  sges: [{ mr }],
                  rkey: target.rkey,
                  remoteAddr: 0,
                  add: 1,
                }) as const,
            ),
          );
        }
        pair.run();
        expect(pair.client.sent().every((wc) => wc.status === 'success')).toBe(true);
      }
      expect(word(target.bytes)).toBe(BigInt(2 * ROUNDS * BATCH));
    }
  });

  it('executed and answered in order, complete on the response (EXT-039/041/044/047)', async () => {
    const pair = await connectedPair({ client: { param: { initiatorDepth: 8 } } });
    const { client, server } = pair;
    const target = server.register(8);
    const mr = client.register(160);
    client.qp.postSend(
      Array.from(
        { length: 20 },
        (_, i) =>
          ({
            wrId: i,
            opcode: 'atomic-fetch-add',
            sges: [{ mr, offset: i * 8, length: 8 }],
            rkey: target.rkey,
            remoteAddr: 0,
            add: 1,
          }) as const,
      ),
    );
    pair.advance(0);
    expect(client.sendCq.length).toBe(0);
    pair.run();
    expect(client.sent().map((wc) => wc.wrId)).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect([...new BigUint64Array(mr.bytes.buffer)]).toEqual(Array.from({ length: 20 }, (_, i) => BigInt(i)));
    expect(server.received()).toEqual([]);
  });

  it('an atomic sees the Write, and is answered after the Send, in front of it (EXT-042)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const target = server.register(8);
    const mr = client.register(8);
    server.qp.postRecv({});
    let received = -1;
    client.sendCq.setHandler(() => (received = server.recvCq.length));
    client.sendCq.requestNotify();
    const bytes = new Uint8Array(8);
    setWord(bytes, 99n);
    client.qp.postSend([
      { opcode: 'rdma-write', inline: bytes, rkey: target.rkey, remoteAddr: 0, signaled: false },
      { opcode: 'send', signaled: false },
      { opcode: 'atomic-fetch-add', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0, add: 1 },
    ]);
    pair.run();
    expect([word(mr.bytes), received]).toEqual([99n, 1]);
  });

  it('Reads and atomics together keep within ORD; the peer takes any mixture (EXT-046/048)', () => {
    const { bench, peer } = rawResponderUp({ param: { initiatorDepth: 2 } });
    const mr = bench.side.register(8);
    const remote = { rkey: 1, remoteAddr: 0 } as const;
    bench.side.qp.postSend([
      { opcode: 'atomic-fetch-add', sges: [{ mr }], add: 1, ...remote },
      { opcode: 'rdma-read', ...remote },
      { opcode: 'atomic-fetch-add', sges: [{ mr }], add: 1, ...remote },
    ]);
    bench.settle();
    expect(peer.segments().map((segment) => segment.opcode)).toEqual([10, 1]);
    peer.sendFpdus([
      untaggedUlpdu({ opcode: 11, qn: 3, msn: 1 }, Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5)),
    ]);
    bench.settle();
    expect(peer.segments().map((segment) => segment.opcode)).toEqual([10, 1, 10]);
    expect(word(mr.bytes)).toBe(5n);
  });

  it('a responder takes its whole IRD of any mixture (EXT-046)', async () => {
    const pair = await connectedPair({
      client: { param: { initiatorDepth: 8 } },
      server: { param: { responderResources: 8 } },
    });
    const { client, server } = pair;
    const target = server.register(8);
    const mr = client.register(8);
    client.qp.postSend(
      Array.from({ length: 40 }, (_, i) =>
        i % 3 === 0
          ? ({ opcode: 'rdma-read', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 } as const)
          : ({
              opcode: 'atomic-fetch-add',
              sges: [{ mr }],
              rkey: target.rkey,
              remoteAddr: 0,
              add: 1,
            } as const),
      ),
    );
    pair.run();
    expect(client.sent().every((wc) => wc.status === 'success')).toBe(true);
    expect(word(target.bytes)).toBe(26n);
  });

  const responses: readonly (readonly [string, string, (id: number) => Uint8Array])[] = [
    ['with a wrong MSN', '1/2/03', (id) => response(id, 2)],
    ['with a wrong identifier', '1/2/03', (id) => response(id + 1, 1)],
    ['with a wrong length', '0/2/07', (id) => response(id, 1).slice(0, 18 + 8)],
    ['that is a Read Response', '0/2/06', () => taggedUlpdu({ opcode: 2, stag: 1, to: 0n })],
  ];
  const response = (id: number, msn: number): Uint8Array =>
    untaggedUlpdu(
      { opcode: 11, qn: 3, msn },
      Uint8Array.of(id >>> 24, id >>> 16, id >>> 8, id, 0, 0, 0, 0, 0, 0, 0, 5),
    );
  for (const [what, code, make] of responses) {
    it(`a response ${what} ends the stream with ${code} (EXT-049)`, () => {
      const { bench, peer } = rawResponderUp();
      const mr = bench.side.register(8);
      bench.side.qp.postSend({
        wrId: 1,
        opcode: 'atomic-fetch-add',
        sges: [{ mr }],
        add: 1,
        rkey: 1,
        remoteAddr: 0,
      });
      bench.settle();
      peer.sendFpdus([make(peer.segments()[0]!.atomicRequest!.requestId)]);
      bench.run();
      expect(peer.terminates()).toEqual([code]);
      expect(bench.side.sent()[0]!.status).not.toBe('success');
      expect(word(mr.bytes)).toBe(0n);
    });
  }

  it('a response nobody asked for has no buffer (EXT-049)', () => {
    const { bench, peer } = rawResponderUp();
    peer.sendFpdus([response(1, 1)]);
    bench.run();
    expect(peer.terminates()).toEqual(['1/2/02']);
  });

  it('a local fault while such a message is made gives a Terminate without headers (EXT-006)', () => {
    const { bench, peer } = rawResponderUp();
    const mr = bench.side.register(8);
    bench.side.qp.postSend({
      wrId: 1,
      opcode: 'atomic-fetch-add',
      sges: [{ mr }],
      add: 1,
      rkey: 1,
      remoteAddr: 0,
    });
    mr.deregister();
    bench.run();
    expect(peer.terminates()).toEqual(['0/0/00']);
    expect(peer.segments().at(-1)!.terminate).toMatchObject({ m: false, d: false, r: false });
    expect(outcomes(bench.side.sent())).toEqual(['1 local-protection-error']);
  });
});

describe('peers without the extensions', () => {
  it('a FetchAdd of 0 probes: it succeeds, or ends the connection by 0/2/06 (EXT-001/051)', async () => {
    for (const [extensions, outcome, code] of [
      [true, '1 success', undefined],
      [false, '1 remote-operation-error', '0/2/06'],
    ] as const) {
      const pair = await connectedPair({ server: { qp: { extensions } } });
      const { client, server } = pair;
      const target = server.register(pattern(8));
      const mr = client.register(8);
      client.qp.postSend({
        wrId: 1,
        opcode: 'atomic-fetch-add',
        sges: [{ mr }],
        rkey: target.rkey,
        remoteAddr: 0,
        add: 0,
      });
      pair.run();
      expect(outcomes(client.sent())).toEqual([outcome]);
      expect(terminateOf(client.qp)).toBe(code);
      expect(target.bytes).toEqual(pattern(8));
    }
  });

  it('known traits of the peer are used when posting; otherwise all is tried (EXT-001)', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const mr = client.register(8);
    const remote = { rkey: 1, remoteAddr: 0 } as const;
    expect(client.qp.query()).toMatchObject({ extensions: true, peerExtensions: undefined });
    client.qp.setPeerExtensions(false);
    expect(codeOf(() => client.qp.postSend({ opcode: 'immediate', immediate: 1 }))).toBe('ERR_NOT_SUPPORTED');
    expect(codeOf(() => client.qp.postSend({ opcode: 'rdma-write', immediate: 1, ...remote }))).toBe(
      'ERR_NOT_SUPPORTED',
    );
    expect(
      codeOf(() => client.qp.postSend({ opcode: 'atomic-fetch-add', sges: [{ mr }], add: 1, ...remote })),
    ).toBe('ERR_NOT_SUPPORTED');
    expect(
      codeOf(() =>
        client.qp.postSend({ opcode: 'atomic-cmp-swap', sges: [{ mr }], compare: 1, swap: 1, ...remote }),
      ),
    ).toBe('ERR_NOT_SUPPORTED');
    client.qp.setPeerExtensions(undefined);
    expect(
      codeOf(() => client.qp.postSend({ opcode: 'atomic-fetch-add', sges: [{ mr }], add: 1, ...remote })),
    ).toBe('nothing');
    expect(codeOf(() => client.qp.setPeerExtensions('yes' as never))).toBe('ERR_INVALID_ARGUMENT');
  });
});
