/** RDMA Reads: RFC 5040 4.4, 5.2, 5.5, 6.1; depths, order, fairness, fence, and responses that do not fit. */
import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { TRANSMIT_BUFFER_OCTETS, ZERO_COPY_WRITE_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { encodeReadRequest } from '../support/naive/encoder.ts';
import { reassemble } from '../support/naive/messages.ts';
import { captured, plainPair } from './capture.ts';
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

const BASE = 0x1000n;
/** An unlawful peer that lets little through: 2000 octets are under way at most. */
const NARROW = { buffer: 2000 } as const;
/** A message that does not fit into the writes that may be under way. */
const LONG = 3 * TRANSMIT_BUFFER_OCTETS;

/** Post a Read of `length` octets into guarded memory at `iova`. */
function postRead(script: Script, wrId: number, length: number, iova: bigint = BASE): number {
  const sink = script.region(length, undefined, iova);
  script.side.qp.postSend({
    wrId,
    opcode: 'rdma-read',
    sges: length === 0 ? [] : [{ mr: sink.mr }],
    rkey: 0x1234_5678,
    remoteAddr: 0,
  });
  return sink.mr.rkey;
}

describe('the side that is read from', () => {
  it('sink STag and TO come back as they were, without a look at them (RDMAP-030)', async () => {
    const script = await scripted();
    const { mr } = script.region(10, undefined, BASE, 0x55);
    script
      .send(
        readRequest(1, {
          sinkStag: 0xffff_ffff,
          sinkTo: 0x0123_4567_89ab_cdefn,
          size: 10,
          sourceStag: mr.rkey,
          sourceTo: BASE,
        }),
      )
      .settle();
    expect(script.sent(OP.readResponse)).toMatchObject([
      { stag: 0xffff_ffff, to: 0x0123_4567_89ab_cdefn, last: true, payload: new Uint8Array(10).fill(0x55) },
    ]);
  });

  it('the response carries the octets asked for, L on the last segment only (RDMAP-029/031)', async () => {
    const script = await scripted({ policy: { emss: 640 } });
    const { mr } = script.region(20_000, undefined, BASE);
    mr.bytes.set(pattern(20_000));
    const sizes = [1, 620, 621, 1240, 1241, 20_000];
    sizes.forEach((size, i) =>
      script.send(readRequest(i + 1, { size, sourceStag: mr.rkey, sourceTo: BASE })).settle(),
    );
    const { messages, problems } = reassemble(script.fpdus());
    expect(problems).toEqual([]);
    expect(messages.map((m) => m.payload)).toEqual(sizes.map((size) => pattern(20_000).slice(0, size)));
    expect(messages.map((m) => m.segments)).toEqual([1, 1, 2, 2, 3, 33]);
  });

  it('for zero octets no source is validated; the response echoes the sink (RDMAP-032/033)', async () => {
    const script = await scripted();
    script
      .send(
        readRequest(1, {
          sinkStag: 5,
          sinkTo: 6n,
          size: 0,
          sourceStag: 0xdead_be00,
          sourceTo: 0xffff_ffff_ffff_ffffn,
        }),
      )
      .settle();
    expect(script.sent(OP.readResponse)).toMatchObject([
      { stag: 5, to: 6n, last: true, payload: new Uint8Array(0) },
    ]);
    expect(script.side.qp.state).toBe('rts');
  });

  it('three Reads of different size are answered in order, unseen by the ULP (RDMAP-028/043)', async () => {
    const script = await scripted();
    const { mr } = script.region(9000, undefined, BASE);
    const ask = (msn: number, size: number): Uint8Array =>
      readRequest(msn, { sinkStag: msn, size, sourceStag: mr.rkey, sourceTo: BASE });
    script.send(ask(1, 9000), ask(2, 1), ask(3, 5000)).settle();
    const { messages } = reassemble(script.fpdus());
    expect(messages.map(({ first, payload }) => [first.tagged && first.stag, payload.length])).toEqual([
      [1, 9000],
      [2, 1],
      [3, 5000],
    ]);
    expect(script.received()).toEqual([]);
    expect(script.side.sent()).toEqual([]);
  });

  it('a Write in front of a Read is placed before its response, even empty (RDMAP-041/042)', async () => {
    const script = await scripted();
    const { mr } = script.region(8, undefined, BASE);
    script
      .send(
        write(mr.rkey, BASE, pattern(8)),
        readRequest(1, { size: 8, sourceStag: mr.rkey, sourceTo: BASE }),
      )
      .settle();
    expect(script.sent(OP.readResponse)[0]!.payload).toEqual(pattern(8));
    script.send(write(mr.rkey, BASE, pattern(8, 77)), readRequest(2, { size: 0, sourceStag: 0 }));
    while (script.sent(OP.readResponse).length < 2) expect(script.time.step()).toBe(true);
    expect(mr.bytes).toEqual(pattern(8, 77));
  });

  it('a Write after a Read of the same octets gives all old or all new ones (RDMAP-044)', async () => {
    const script = await scripted();
    const { mr } = script.region(8, undefined, BASE, 1);
    script
      .send(
        readRequest(1, { size: 8, sourceStag: mr.rkey, sourceTo: BASE }),
        write(mr.rkey, BASE, new Uint8Array(8).fill(2)),
      )
      .settle();
    const got = script.sent(OP.readResponse)[0]!.payload;
    expect([1, 2].map((octet) => new Uint8Array(8).fill(octet))).toContainEqual(got);
    expect(mr.bytes).toEqual(new Uint8Array(8).fill(2));
  });

  it('as many Reads as IRD says may wait at once (RDMAP-050)', async () => {
    const script = await scripted({ policy: { ird: 4 } });
    const { mr } = script.region(64, undefined, BASE);
    script
      .send(...[1, 2, 3, 4].map((msn) => readRequest(msn, { size: 64, sourceStag: mr.rkey, sourceTo: BASE })))
      .settle();
    expect(script.sent(OP.readResponse).length).toBe(4);
    expect(script.side.qp.state).toBe('rts');
  });

  it('one Read above IRD, with nothing answered, gets Terminate 1/2/03 (RDMAP-052, DDP-043)', async () => {
    const script = await scripted({ policy: { ird: 3 }, network: NARROW });
    const { mr } = script.region(LONG, undefined, BASE);
    script.peer.pause();
    const ask = (msn: number): Uint8Array =>
      readRequest(msn, { size: LONG, sourceStag: mr.rkey, sourceTo: BASE });
    for (let msn = 1; msn <= 3; msn++) script.send(ask(msn)).settle();
    expect(script.side.qp.state).toBe('rts');
    script.send(ask(4)).settle();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 1, etype: 2, code: 3, blamed: ask(4) });
  });

  it('inbound Reads are counted apart from outbound ones (RDMAP-053)', async () => {
    const script = await scripted({ role: 'responder', policy: { ird: 1, ord: 2 } });
    for (let i = 0; i < 4; i++) postRead(script, i, 10);
    script.settle();
    expect(script.sent(OP.readRequest).length).toBe(2); // ORD
    const { mr } = script.region(16, undefined, BASE);
    script.send(readRequest(1, { size: 16, sourceStag: mr.rkey, sourceTo: BASE })).settle();
    script.send(readRequest(2, { size: 16, sourceStag: mr.rkey, sourceTo: BASE })).settle();
    expect(script.sent(OP.readResponse).length).toBe(2); // one at a time, with two of ours outstanding
    const two = [3, 4].map((msn) => readRequest(msn, { size: 16, sourceStag: mr.rkey, sourceTo: BASE }));
    script.send(...two).settle();
    expectTerminate(script, { layer: 1, etype: 2, code: 3, blamed: two[1]! });
  });

  it('a Send after a Read completes at the sink before the Read is answered (RDMAP-069/095)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(50_000, undefined, BASE);
    script.receives(1, 16);
    script.peer.pause();
    script
      .send(readRequest(1, { size: 50_000, sourceStag: mr.rkey, sourceTo: BASE }), send(1, pattern(5)))
      .settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 5 }]);
    script.peer.resume();
    script.settle(1000);
    expect(reassemble(script.fpdus()).messages.at(-1)!.payload.length).toBe(50_000);
  });

  it('a region lost during a response ends it with an advanced header (RDMAP-086/074)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(LONG, undefined, BASE);
    mr.bytes.set(pattern(LONG));
    const fields = { sinkStag: 9, sinkTo: 0xffff_ff00n, size: LONG, sourceStag: mr.rkey, sourceTo: BASE };
    const blamed = readRequest(1, fields);
    script.peer.pause();
    script.send(blamed).settle();
    const kept = pattern(LONG);
    mr.deregister();
    // the memory is the application's again; no octet of it may go out after this (SEC-007)
    mr.bytes.fill(0);
    script.peer.resume();
    script.settle(1000);
    const responses = script.sent(OP.readResponse);
    const sent = responses.reduce((sum, segment) => sum + segment.payload.length, 0);
    expect(sent).toBeGreaterThan(0);
    expect(Buffer.concat(responses.map((segment) => segment.payload)).equals(kept.subarray(0, sent))).toBe(
      true,
    );
    const moved = BigInt(sent);
    const readHeader = encodeReadRequest({
      ...fields,
      sinkTo: fields.sinkTo + moved,
      size: LONG - sent,
      sourceTo: BASE + moved,
    });
    expectTerminate(script, { layer: 0, etype: 1, code: 0, blamed, readHeader });
  });

  it('a bad Read waits for a good one, and both for a Write under way (RDMAP-074, DDP-036)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(LONG, undefined, BASE);
    script.peer.pause();
    script.side.qp.postSend({ opcode: 'rdma-write', sges: [{ mr, length: LONG }], rkey: 1, remoteAddr: 0 });
    script.settle();
    const bad = readRequest(2, { size: 1, sourceStag: 0x4444_4400 });
    script.send(readRequest(1, { size: LONG, sourceStag: mr.rkey, sourceTo: BASE }), bad).settle();
    script.peer.resume();
    script.settle(1000);
    const { messages, problems } = reassemble(script.fpdus());
    expect(problems).toEqual([]);
    expect(messages.map((m) => [m.opcode, m.payload.length])).toEqual([
      [OP.write, LONG],
      [OP.readResponse, LONG],
      [OP.terminate, 0],
    ]);
    expectTerminate(script, { layer: 0, etype: 1, code: 0, blamed: bad, readHeader: true });
  });

  it('a response that fails in front of a waiting Terminate does not delay it (RDMAP-075)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(LONG, undefined, BASE);
    script.peer.pause();
    const bad = readRequest(2, { size: 1, sourceStag: 0x4444_4400 });
    script.send(readRequest(1, { size: LONG, sourceStag: mr.rkey, sourceTo: BASE }), bad).settle();
    mr.deregister();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 0, etype: 1, code: 0, blamed: bad, readHeader: true });
  });
});

describe('the side that reads', () => {
  it('with ORD 2 two requests are on the wire, and the next follows an answer (RDMAP-051)', async () => {
    const script = await scripted({ role: 'responder', policy: { ord: 2 } });
    const stags = Array.from({ length: 10 }, (_, i) => postRead(script, i, 4));
    for (let answered = 0; answered < 10; answered++) {
      script.settle();
      expect(script.sent(OP.readRequest).length).toBe(Math.min(answered + 2, 10));
      script.send(readResponse(stags[answered]!, BASE, pattern(4)));
    }
    script.settle();
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual(stags.map((_, i) => [i, 'success']));
  });

  it('a Read completes with the last segment of its response, Reads in order (RDMAP-045/046)', async () => {
    const script = await scripted({ role: 'responder' });
    const [first, second] = [postRead(script, 1, 30), postRead(script, 2, 0)];
    expect(second).toBeGreaterThan(0);
    script.settle();
    script
      .send(
        readResponse(first, BASE, pattern(10), { last: false }),
        readResponse(first, BASE + 10n, pattern(10), { last: false }),
      )
      .settle();
    expect(script.side.sent()).toEqual([]);
    script.send(readResponse(first, BASE + 20n, pattern(10))).settle();
    expect(script.side.sent().map((wc) => wc.wrId)).toEqual([1]);
    script.send(readResponse(0, 0n)).settle();
    expect(script.side.sent()).toMatchObject([{ wrId: 2, status: 'success', byteLength: 0 }]);
    expect(script.guarded[0]!.mr.bytes).toEqual(
      Uint8Array.from([...pattern(10), ...pattern(10), ...pattern(10)]),
    );
    script.guardsIntact();
  });

  it('a Send after a Read goes out at once and completes after it (RDMAP-094, RDMAP-095)', async () => {
    const script = await scripted({ role: 'responder' });
    const stag = postRead(script, 1, 4);
    script.side.qp.postSend({ wrId: 2, opcode: 'send', inline: pattern(3) });
    script.settle();
    expect(script.segments().map((segment) => segment.opcode)).toEqual([OP.readRequest, OP.send]);
    expect(script.side.sent()).toEqual([]);
    script.send(readResponse(stag, BASE, pattern(4))).settle();
    expect(script.side.sent().map((wc) => wc.wrId)).toEqual([1, 2]);
  });

  it('a fenced Send, and all behind it, waits for Reads (verbs draft 8.2.2) (RDMAP-094)', async () => {
    const script = await scripted({ role: 'responder' });
    const stag = postRead(script, 1, 4);
    script.side.qp.postSend([
      { wrId: 2, opcode: 'send', inline: pattern(3), fence: true },
      { wrId: 3, opcode: 'send', inline: pattern(2) },
    ]);
    script.settle();
    expect(script.segments().map((segment) => segment.opcode)).toEqual([OP.readRequest]);
    script.send(readResponse(stag, BASE, pattern(4))).settle();
    expect(script.segments().map((segment) => segment.opcode)).toEqual([OP.readRequest, OP.send, OP.send]);
    expect(script.side.sent().map((wc) => wc.wrId)).toEqual([1, 2, 3]);
  });

  it('one Read names one remote buffer and one local element (RDMAP-054)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(64);
    const post = (): number =>
      script.side.qp.postSend({
        opcode: 'rdma-read',
        sges: [
          { mr, length: 4 },
          { mr, offset: 8, length: 4 },
        ],
        rkey: 1,
        remoteAddr: 0,
      });
    expect(post).toThrow(IwarpError);
    script.settle();
    expect(script.segments()).toEqual([]);
  });

  it('Reads move octets between any offsets (RDMAP-055)', async () => {
    const pair = await plainPair();
    const { client, server } = pair;
    const source = server.register(pattern(5000), undefined, 0xffff_ffff_0000_0003n);
    const sink = client.register(5000, undefined, 7);
    for (const [from, to, length] of [
      [1, 4, 1],
      [4091, 3, 909],
      [17, 1023, 1999],
    ] as const) {
      client.qp.postSend({
        opcode: 'rdma-read',
        sges: [{ mr: sink, offset: to, length }],
        rkey: source.rkey,
        remoteAddr: 0xffff_ffff_0000_0003n + BigInt(from),
      });
      pair.run();
      expect(client.sent()).toMatchObject([{ status: 'success' }]);
      expect(sink.bytes.slice(to, to + length)).toEqual(source.bytes.slice(from, from + length));
    }
  });

  const misfits: readonly [string, string, (stag: number) => Uint8Array[], string?][] = [
    [
      'another, unknown STag (RDMAP-047, RDMAP-048)',
      '1/1/00',
      () => [readResponse(0x7777_7700, BASE, pattern(20))],
    ],
    ['TO one too high (RDMAP-048)', '1/1/01', (stag) => [readResponse(stag, BASE + 1n, pattern(19))]],
    [
      'TO of the second segment too low (RDMAP-048)',
      '1/1/01',
      (stag) => [
        readResponse(stag, BASE, pattern(10), { last: false }),
        readResponse(stag, BASE, pattern(10)),
      ],
    ],
    ['an octet too many (RDMAP-048)', '1/1/01', (stag) => [readResponse(stag, BASE, pattern(21))]],
    ['an octet too few (RDMAP-048)', '1/1/01', (stag) => [readResponse(stag, BASE, pattern(19))]],
    [
      'octets after all that were asked for (RDMAP-048)',
      '1/1/01',
      (stag) => [
        readResponse(stag, BASE, pattern(20), { last: false }),
        readResponse(stag, BASE + 20n, pattern(1)),
      ],
    ],
  ];
  for (const [title, code, responses] of misfits) {
    it(`${title} in a Read Response gets Terminate ${code}; the Read fails, others flush`, async () => {
      const script = await scripted({ role: 'responder' });
      const stag = postRead(script, 1, 20);
      postRead(script, 2, 20);
      script.settle();
      const all = responses(stag);
      script.send(...all).settle();
      const [layer, etype, number] = code.split('/').map(Number);
      expectTerminate(script, { layer: layer!, etype: etype!, code: number!, blamed: all.at(-1)! });
      script.guardsIntact();
      script.end().finish();
      expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
        [1, 'bad-response'],
        [2, 'flushed'],
      ]);
      expect(script.guarded[1]!.memory).toEqual(script.guarded[1]!.before);
    });
  }

  it('an empty last segment after the last octet ends a response too (RDMAP-048)', async () => {
    const script = await scripted({ role: 'responder' });
    const stag = postRead(script, 1, 20);
    script.settle();
    script.send(readResponse(stag, BASE, pattern(20), { last: false })).settle();
    expect(script.side.sent()).toEqual([]);
    script.send(readResponse(stag, BASE + 20n)).settle();
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'success' }]);
  });

  it('a response into deregistered memory is refused and nothing is written (RDMAP-047)', async () => {
    const script = await scripted({ role: 'responder' });
    const stag = postRead(script, 1, 20);
    script.settle();
    script.guarded[0]!.mr.deregister();
    const blamed = readResponse(stag, BASE, pattern(20));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    script.memoryUntouched();
    script.end().finish();
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'local-protection-error' }]);
  });
});

describe('fairness of Sends and Read Responses', () => {
  /** Octets of responses between one Send and the next, from the moment the Sends were posted. */
  async function gaps(interleave: boolean): Promise<number[]> {
    const script = await scripted({
      crc: false,
      network: { buffer: 20_000 },
      policy: { interleave, emss: 9000, ird: 16 },
    });
    const { mr } = script.region(LONG, undefined, BASE);
    script.peer.pause();
    script
      .send(
        ...Array.from({ length: 16 }, (_, i) =>
          readRequest(i + 1, { size: LONG, sourceStag: mr.rkey, sourceTo: BASE }),
        ),
      )
      .settle();
    const already = script.peer.behind().length;
    for (let i = 0; i < 10; i++) script.side.qp.postSend({ wrId: i, opcode: 'send', inline: pattern(9) });
    script.peer.resume();
    script.settle(2000);
    expect(already).toBeLessThan(LONG);
    const { problems, messages } = reassemble(script.fpdus());
    expect(problems).toEqual([]);
    expect(messages.length).toBe(26); // neither kind has starved the other
    const found: number[] = [];
    let octets = 0;
    for (const segment of script.segments()) {
      if (segment.opcode === OP.readResponse) octets += segment.payload.length;
      else {
        found.push(octets);
        octets = 0;
      }
    }
    return found;
  }

  it('a flood of Reads delays a Send by 64 KiB at most, if alternating (DDP-037, RDMAP-093)', async () => {
    const [first, ...rest] = await gaps(true);
    // In front of the first one stand the segments made before it was posted: two writes.
    expect(first).toBeLessThan(2 * ZERO_COPY_WRITE_OCTETS + 65_536);
    expect(rest.length).toBe(9);
    for (const gap of rest) expect(gap).toBeLessThan(65_536 + 9000);
  });

  it('local work in front of a Send does not hold it behind a long response (RDMAP-093)', async () => {
    const script = await scripted({ crc: false, network: { buffer: 20_000 }, policy: { emss: 9000 } });
    const { mr } = script.region(1_000_000, undefined, BASE);
    const gone = script.region(8);
    script.peer.pause();
    script.send(readRequest(1, { size: 1_000_000, sourceStag: mr.rkey, sourceTo: BASE })).settle();
    script.side.qp.postSend([
      { wrId: 1, opcode: 'local-invalidate', target: gone.mr },
      { wrId: 2, opcode: 'send', inline: pattern(9) },
    ]);
    script.peer.resume();
    script.settle(2000);
    const segments = script.segments();
    const at = segments.findIndex((segment) => segment.opcode === OP.send);
    expect(segments.slice(0, at).reduce((sum, segment) => sum + segment.payload.length, 0)).toBeLessThan(
      4 * TRANSMIT_BUFFER_OCTETS,
    );
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'success'],
      [2, 'success'],
    ]);
  });

  it('with messages kept whole it is delayed by one response at most (DDP-036)', async () => {
    const [first, ...rest] = await gaps(false);
    // In front of the first one stand the two writes that were full before it was posted.
    expect(first).toBeLessThanOrEqual(LONG + 2 * ZERO_COPY_WRITE_OCTETS);
    for (const gap of rest) expect(gap).toBeLessThanOrEqual(LONG);
  });

  it('a Write under way and an arriving Read do not mix their tagged segments (DDP-036)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(LONG, undefined, BASE);
    script.peer.pause();
    script.side.qp.postSend({ opcode: 'rdma-write', sges: [{ mr, length: LONG }], rkey: 1, remoteAddr: 0 });
    script.side.qp.postSend({ opcode: 'rdma-write', sges: [{ mr, length: 20_000 }], rkey: 2, remoteAddr: 0 });
    script.settle();
    script.send(readRequest(1, { size: 20_000, sourceStag: mr.rkey, sourceTo: BASE })).settle();
    script.peer.resume();
    script.settle(1000);
    const { messages, problems } = reassemble(script.fpdus());
    expect(problems).toEqual([]);
    expect(messages.map((m) => m.opcode)).toEqual([OP.write, OP.readResponse, OP.write]);
  });

  it('a Write posted during a response of several quanta, unlike a Send, waits (DDP-036)', async () => {
    const script = await scripted({ crc: false, network: { buffer: 20_000 }, policy: { emss: 9000 } });
    const { mr } = script.region(1_000_000, undefined, BASE);
    script.peer.pause();
    script.send(readRequest(1, { size: 1_000_000, sourceStag: mr.rkey, sourceTo: BASE })).settle();
    script.side.qp.postSend([
      { opcode: 'send', inline: pattern(9) },
      { opcode: 'rdma-write', sges: [{ mr, length: 20_000 }], rkey: 2, remoteAddr: 0 },
    ]);
    script.peer.resume();
    script.settle(2000);
    const { messages, problems } = reassemble(script.fpdus());
    expect(problems).toEqual([]);
    expect(messages.map((m) => m.opcode).sort()).toEqual([OP.write, OP.readResponse, OP.send]);
    const segments = script.segments();
    expect(segments.findIndex(({ opcode }) => opcode === OP.send)).toBeLessThan(
      segments.findLastIndex(({ opcode }) => opcode === OP.readResponse),
    );
  });

  it('a flood of Sends does not hold up a response: they take turns (RDMAP-029)', async () => {
    const pair = await plainPair({ emss: 1460 });
    const { client, server } = pair;
    const inbox = server.register(64);
    const source = client.register(pattern(4000));
    const sink = server.register(4000);
    for (let i = 0; i < 200; i++) server.qp.postRecv({ sges: [{ mr: inbox }] });
    server.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: sink }], rkey: source.rkey, remoteAddr: 0 });
    pair.advance(1);
    for (let i = 0; i < 200; i++) client.qp.postSend({ opcode: 'send', inline: pattern(60) });
    pair.run();
    const { client: out } = captured(pair);
    const at = out.messages.findIndex((message) => message.opcode === OP.readResponse);
    expect(at).toBeGreaterThanOrEqual(0);
    expect(server.sent()).toMatchObject([{ status: 'success' }]);
    expect(out.messages.length).toBe(201);
  });
});
