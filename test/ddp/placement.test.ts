/** Placement and delivery at the sink: RFC 5041 4, 5.3, 5.4, 7.1, 8; RFC 5040 5.1, 5.3, 5.5. What is refused: test/rdmap/faults.test.ts. */
import { describe, expect, it } from 'vitest';
import { ACCESS, type SendWorkRequest } from '../../src/verbs/index.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { captured, plainPair } from '../rdmap/capture.ts';
import { expectTerminate, OP, pattern, readRequest, scripted, send, write } from '../rdmap/scripted.ts';

describe('headers at the receiver', () => {
  it('DDP-005 RDMAP-003: reserved bits of both control octets are not looked at', async () => {
    const script = await scripted();
    script.receives(1, 16);
    const { mr } = script.region(8);
    script.send(send(1, pattern(5), { ddpReserved: 15, rdmapReserved: 3 }), write(mr.rkey, 0n, pattern(8), { ddpReserved: 15, rdmapReserved: 3 })).settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 5 }]);
    expect(mr.bytes).toEqual(pattern(8));
  });

  it('RDMAP-011 EXT-004: the Invalidate STag field of messages that invalidate nothing is ignored', async () => {
    const script = await scripted();
    script.receives(3, 16);
    const { mr } = script.region(8);
    const invalidateStag = mr.rkey;
    script.send(send(1, pattern(5), { invalidateStag }), send(2, pattern(5), { opcode: OP.sendSe, invalidateStag }));
    script.send(send(3, pattern(8), { opcode: OP.imm, invalidateStag }), readRequest(1, { size: 8, sourceStag: mr.rkey }, { invalidateStag })).settle();
    expect(script.received().map((wc) => wc.invalidatedStag)).toEqual([undefined, undefined, undefined]);
    expect(script.sent(OP.readResponse).length).toBe(1);
    script.send(write(mr.rkey, 0n, pattern(8))).settle();
    expect(mr.bytes).toEqual(pattern(8));
  });

  it('DDP-010 RDMAP-064: what RsvdULP says reaches the ULP: opcode, solicited event, invalidated STag', async () => {
    const script = await scripted();
    script.receives(4, 16);
    const [a, b] = [script.region(8), script.region(8)];
    script.send(
      send(1), send(2, pattern(0), { opcode: OP.sendSe }),
      send(3, pattern(1), { opcode: OP.sendInv, invalidateStag: a.mr.rkey }), send(4, pattern(1), { opcode: OP.sendSeInv, invalidateStag: b.mr.rkey }),
    ).settle();
    expect(script.received().map((wc) => [wc.solicited, wc.invalidatedStag])).toEqual([[false, undefined], [true, undefined], [false, a.mr.rkey], [true, b.mr.rkey]]);
  });

  it('DDP-011: segments of one message with different Invalidate STags are taken; that of the last one counts here', async () => {
    const script = await scripted();
    script.receives(1, 16);
    const [a, b] = [script.region(8), script.region(8)];
    const inv = (stag: number, extra: object): Uint8Array => send(1, pattern(4), { opcode: OP.sendInv, invalidateStag: stag, ...extra });
    script.send(inv(a.mr.rkey, { last: false }), inv(b.mr.rkey, { mo: 4 })).settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 8, invalidatedStag: b.mr.rkey }]);
    expect([a.mr.valid, b.mr.valid]).toEqual([true, false]);
  });
});

describe('placement', () => {
  it('DDP-024 DDP-023: all octets of Sends and Writes from 0 to three segments are placed, none beside them', async () => {
    const script = await scripted({ crc: false });
    const mulpdu = 1000;
    for (const [msn, octets] of [0, 1, mulpdu - 1, mulpdu, mulpdu + 1, 2 * mulpdu, 3 * mulpdu].entries()) {
      const data = pattern(octets, msn);
      const region = script.region(octets + 1, undefined, 0x10n);
      const inbox = script.receives(1, octets + 1);
      const cuts = octets === 0 ? [0] : Array.from({ length: Math.ceil(octets / mulpdu) }, (_, i) => i * mulpdu);
      for (const at of cuts) {
        const part = data.slice(at, at + mulpdu);
        const last = at + part.length === octets;
        script.send(write(region.mr.rkey, 0x10n + BigInt(at), part, { last }), send(msn + 1, part, { mo: at, last }));
      }
      script.settle();
      expect(script.received()).toMatchObject([{ status: 'success', byteLength: octets }]);
      for (const { mr } of [region, inbox]) expect(mr.bytes).toEqual(Uint8Array.from([...data, 0]));
    }
    script.guardsIntact();
  });

  it('DDP-026 RDMAP-021: STag and TO of an empty Write are not looked at', async () => {
    const script = await scripted();
    const { mr } = script.region(8, ACCESS.REMOTE_READ);
    const top = 0xffff_ffff_ffff_ffffn;
    script.send(write(0, 0n), write(0x1234_5600, top), write(mr.rkey, 9n), write(mr.rkey, top, undefined, { last: false })).settle();
    expect(script.segments()).toEqual([]);
    expect(script.side.qp.state).toBe('rts');
    expect(script.side.events.map((event) => event.type)).toEqual(['established']);
  });

  it('DDP-030: a Write whose segments come in reverse order of TO is placed all the same', async () => {
    const script = await scripted();
    const { mr } = script.region(20);
    const data = pattern(20);
    script.send(write(mr.rkey, 10n, data.slice(10), { last: false }), write(mr.rkey, 0n, data.slice(0, 10))).settle();
    expect(mr.bytes).toEqual(data);
    expect(script.side.qp.state).toBe('rts');
  });

  it('DDP-030: a Send whose segments come in reverse order of MO is a clean error', async () => {
    const script = await scripted();
    script.receives(1, 20);
    const blamed = send(1, pattern(10), { mo: 10 });
    script.send(blamed, send(1, pattern(10), { last: false })).settle();
    expectTerminate(script, { layer: 1, etype: 2, code: 4, blamed });
    script.memoryUntouched();
  });

  it('DDP-037: segments of a Write and of a Send may alternate', async () => {
    const script = await scripted();
    const { mr } = script.region(20);
    const inbox = script.receives(1, 20);
    const data = pattern(20);
    script.send(
      write(mr.rkey, 0n, data.slice(0, 10), { last: false }), send(1, data.slice(0, 7), { last: false }),
      write(mr.rkey, 10n, data.slice(10)), send(1, data.slice(7), { mo: 7 }),
    ).settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 20 }]);
    expect(mr.bytes).toEqual(data);
    expect(inbox.mr.bytes).toEqual(data);
  });

  it('DDP-034 DDP-037: a Send inside a Write that is not whole yet is delivered at once, and the Write goes on after it', async () => {
    const script = await scripted();
    const { mr } = script.region(20);
    script.receives(1, 20);
    const data = pattern(20);
    script.send(write(mr.rkey, 0n, data.slice(0, 10), { last: false }), send(1, data.slice(0, 7))).settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 7 }]);
    expect(mr.bytes).toEqual(Uint8Array.from([...data.slice(0, 10), ...new Uint8Array(10)]));
    script.send(write(mr.rkey, 10n, data.slice(10))).settle();
    expect(mr.bytes).toEqual(data);
    expect(script.segments()).toEqual([]);
  });

  it('RDMAP-023 RDMAP-017: a Write gathers local buffers into one remote buffer at any TO', async () => {
    const pair = await plainPair();
    const { client, server } = pair;
    const target = server.register(4000, undefined, 0xffff_ffff_ff00n);
    const parts = [pattern(1, 1), pattern(1999, 2), pattern(500, 3)].map((bytes) => client.register(bytes));
    client.qp.postSend({ opcode: 'rdma-write', sges: parts.map((mr) => ({ mr })), rkey: target.rkey, remoteAddr: 0xffff_ffff_ff03n });
    pair.run();
    expect(target.bytes.slice(3, 2503)).toEqual(new Uint8Array(Buffer.concat(parts.map((mr) => mr.bytes))));
    expect(captured(pair).client.messages.length).toBe(1);
  });

  it('DDP-052: of a segment that runs out of bounds not even the octets inside are placed', async () => {
    const script = await scripted();
    const { mr } = script.region(16);
    script.send(write(mr.rkey, 8n, pattern(9))).settle();
    script.memoryUntouched();
  });
});

describe('delivery', () => {
  it('RDMAP-018: a Write gives no completion at the sink', async () => {
    const script = await scripted();
    script.receives(1, 16);
    const { mr } = script.region(8);
    script.send(write(mr.rkey, 0n, pattern(8))).settle();
    expect(mr.bytes).toEqual(pattern(8));
    expect([script.received(), script.side.sent()]).toEqual([[], []]);
  });

  it('DDP-034: without its last segment a message is not delivered, nor is one after it in front of it', async () => {
    const script = await scripted();
    script.receives(2, 20);
    script.send(send(1, pattern(10), { last: false })).settle();
    expect(script.received()).toEqual([]);
    script.send(send(1, pattern(10), { mo: 10 }), send(2, pattern(1))).settle();
    expect(script.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([[1000, 20], [1001, 1]]);
  });

  it('DDP-032 DDP-033 RDMAP-057 RDMAP-062: n Sends use n receives and complete once each, in order', async () => {
    const script = await scripted();
    const inbox = script.receives(20, 4);
    for (let msn = 1; msn <= 20; msn++) script.send(send(msn, Uint8Array.of(msn)));
    script.settle();
    expect(script.received().map((wc) => [wc.wrId, wc.status, wc.byteLength])).toEqual(Array.from({ length: 20 }, (_, i) => [1000 + i, 'success', 1]));
    expect([...inbox.mr.bytes].filter((_, i) => i % 4 === 0)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  });

  it('RDMAP-058 DDP-035: an empty Send uses a receive and completes with length 0', async () => {
    const script = await scripted();
    script.receives(2, 4);
    script.send(send(1), send(2, pattern(3))).settle();
    expect(script.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([[1000, 0], [1001, 3]]);
  });

  it('RDMAP-060 DDP-035: a message may be shorter than its buffer; its length is told and the rest is left alone', async () => {
    const script = await scripted();
    const inbox = script.receives(1, 100);
    inbox.mr.bytes.fill(0x99);
    script.send(send(1, pattern(30), { last: false }), send(1, pattern(7), { mo: 30 })).settle();
    expect(script.received()).toMatchObject([{ byteLength: 37 }]);
    expect(inbox.mr.bytes.slice(37).every((octet) => octet === 0x99)).toBe(true);
  });

  it('RDMAP-063 EXT-015: when a Send or Immediate Data completes, all Writes in front of it are placed', async () => {
    const pair = await plainPair({ crc: false, emss: 9000 });
    const { client, server } = pair;
    const source = client.register(pattern(1 << 20));
    const target = server.register(1 << 20);
    for (const last of [{ opcode: 'send', inline: pattern(1) }, { opcode: 'immediate', immediate: 1 }] satisfies SendWorkRequest[]) {
      target.bytes.fill(0);
      server.qp.postRecv({ sges: [{ mr: server.register(8) }] });
      client.qp.postSend([{ opcode: 'rdma-write', sges: [{ mr: source }], rkey: target.rkey, remoteAddr: 0 }, last]);
      while (server.recvCq.length === 0) expect(pair.time.step()).toBe(true);
      expect(Buffer.compare(target.bytes, source.bytes)).toBe(0);
      expect(server.received()).toMatchObject([{ status: 'success' }]);
    }
  });

  it('RDMAP-065 RDMAP-064 EXT-016: armed for solicited events only, a plain Send rings no bell and one with SE does', async () => {
    const script = await scripted();
    script.receives(4, 8);
    const bells: number[] = [];
    script.side.recvCq.setHandler((cq) => bells.push(cq.length));
    for (const [msn, opcode] of [OP.send, OP.sendSe, OP.imm, OP.immSe].entries()) {
      script.side.recvCq.requestNotify('solicited');
      const before = bells.length;
      script.send(send(msn + 1, pattern(8), { opcode })).settle();
      expect(bells.length - before).toBe(opcode === OP.sendSe || opcode === OP.immSe ? 1 : 0);
    }
  });

  it('RDMAP-067: the STag a Send names is invalid from its completion on; a later Write to it gets Terminate 1/1/00', async () => {
    const script = await scripted();
    script.receives(1, 8);
    const { mr } = script.region(8);
    script.send(write(mr.rkey, 0n, pattern(8)), send(1, pattern(2), { opcode: OP.sendInv, invalidateStag: mr.rkey })).settle();
    expect(script.received()).toMatchObject([{ status: 'success', invalidatedStag: mr.rkey }]);
    const blamed = write(mr.rkey, 0n, pattern(8, 50));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    expect(mr.bytes).toEqual(pattern(8));
  });

  it('DDP-044: a receive posted in time is used, one posted too late is not: the lack of a buffer ends the stream at once', async () => {
    const script = await scripted();
    script.receives(1, 8);
    script.send(send(1, pattern(1))).settle();
    script.receives(1, 8);
    script.send(send(2, pattern(1))).settle();
    expect(script.received().length).toBe(2);
    const blamed = send(3, pattern(1));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 1, etype: 2, code: 2, blamed });
  });
});

describe('completion at the source', () => {
  it('RDMAP-024 RDMAP-070: a Write or Send is not complete while the network has not taken its last octet', async () => {
    const script = await scripted({ network: { buffer: 2000 } });
    const { mr } = script.region(10_000);
    script.peer.pause();
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-write', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr }] });
    script.settle();
    expect(script.side.sent()).toEqual([]);
    script.peer.resume();
    script.settle(1000);
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([[1, 'success'], [2, 'success']]);
  });
});

describe('what the API offers', () => {
  it('DDP-022: a message of 2^32 octets is refused when posted, one octet less is not', async () => {
    const script = await scripted({ side: { qp: { maxSendSge: 9 } } });
    const mr = script.side.register(new Uint8Array(1 << 29));
    const eight = Array.from({ length: 8 }, () => ({ mr }));
    const post = (sges: typeof eight): number => script.side.qp.postSend({ opcode: 'send', sges });
    expect(() => post(eight)).toThrow(IwarpError);
    expect(post([...eight.slice(1), { mr, length: (1 << 29) - 1 } as { mr: typeof mr }])).toBe(1);
    script.side.connection!.abort();
    script.finish();
  });

  it('DDP-067 DDP-069 RDMAP-100: an STag has a TO range, rights, a protection domain and, where wished, one stream', async () => {
    const script = await scripted();
    const { side } = script;
    const reader = script.region(16, ACCESS.REMOTE_READ, 0xffff_ffff_ffff_fff0n);
    const writer = script.region(16, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE, 5);
    const mine = side.pd.registerMemory(new Uint8Array(16), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ, { queuePair: side.qp });
    script.send(
      write(writer.mr.rkey, 5n, pattern(16)), write(mine.rkey, 0n, pattern(16)),
      readRequest(1, { size: 16, sourceStag: reader.mr.rkey, sourceTo: 0xffff_ffff_ffff_fff0n }), readRequest(2, { size: 16, sourceStag: mine.rkey }),
    ).settle();
    expect(script.sent(OP.readResponse).map((segment) => segment.payload)).toEqual([new Uint8Array(16), pattern(16)]);
    expect(writer.mr.bytes).toEqual(pattern(16));
    script.guardsIntact();
  });

  it('DDP-067 DDP-068 DDP-070: the same STag works on its own stream and not on another of the same domain', async () => {
    const script = await scripted();
    const { bench, side } = script;
    const mr = side.pd.registerMemory(new Uint8Array(16), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE, { queuePair: side.qp });
    const other = bench.dial();
    other.request();
    bench.settle();
    const blamed = write(mr.rkey, 0n, pattern(16));
    other.sendFpdus([blamed]);
    bench.settle();
    expect(other.terminates()).toEqual(['1/1/02']);
    expect(mr.bytes).toEqual(new Uint8Array(16));
    script.send(blamed).settle();
    expect(mr.bytes).toEqual(pattern(16));
  });
});
