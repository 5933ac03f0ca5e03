/**
 * Placement and delivery at the sink: RFC 5041 4, 5.3, 5.4, 7.1, 8; RFC 5040 5.1, 5.3, 5.5. Refusals:
 * test/rdmap/faults.test.ts.
 */
import { describe, expect, it } from 'vitest';
import { ACCESS, type SendWorkRequest } from '../../src/verbs/index.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { captured, plainPair } from '../rdmap/capture.ts';
import { expectTerminate, OP, pattern, readRequest, scripted, send, write } from '../rdmap/scripted.ts';

describe('headers at the receiver', () => {
  it('reserved bits of both control octets are not looked at (DDP-005, RDMAP-003)', async () => {
    const script = await scripted();
    script.receives(1, 16);
    const { mr } = script.region(8);
    script
      .send(
        send(1, pattern(5), { ddpReserved: 15, rdmapReserved: 3 }),
        write(mr.rkey, 0n, pattern(8), { ddpReserved: 15, rdmapReserved: 3 }),
      )
      .settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 5 }]);
    expect(mr.bytes).toEqual(pattern(8));
  });

  it('the Invalidate STag of messages that invalidate nothing is ignored (RDMAP-011, EXT-004)', async () => {
    const script = await scripted();
    script.receives(3, 16);
    const { mr } = script.region(8);
    const invalidateStag = mr.rkey;
    script.send(
      send(1, pattern(5), { invalidateStag }),
      send(2, pattern(5), { opcode: OP.sendSe, invalidateStag }),
    );
    script
      .send(
        send(3, pattern(8), { opcode: OP.imm, invalidateStag }),
        readRequest(1, { size: 8, sourceStag: mr.rkey }, { invalidateStag }),
      )
      .settle();
    expect(script.received().map((wc) => wc.invalidatedStag)).toEqual([undefined, undefined, undefined]);
    expect(script.sent(OP.readResponse).length).toBe(1);
    script.send(write(mr.rkey, 0n, pattern(8))).settle();
    expect(mr.bytes).toEqual(pattern(8));
  });

  it('RsvdULP reaches the ULP: opcode, solicited event, invalidated STag (DDP-010, RDMAP-064)', async () => {
    const script = await scripted();
    script.receives(4, 16);
    const [a, b] = [script.region(8), script.region(8)];
    script
      .send(
        send(1),
        send(2, pattern(0), { opcode: OP.sendSe }),
        send(3, pattern(1), { opcode: OP.sendInv, invalidateStag: a.mr.rkey }),
        send(4, pattern(1), { opcode: OP.sendSeInv, invalidateStag: b.mr.rkey }),
      )
      .settle();
    expect(script.received().map((wc) => [wc.solicited, wc.invalidatedStag])).toEqual([
      [false, undefined],
      [true, undefined],
      [false, a.mr.rkey],
      [true, b.mr.rkey],
    ]);
  });

  it('segments of one message may differ in Invalidate STag; the last one counts (DDP-011)', async () => {
    const script = await scripted();
    script.receives(1, 16);
    const [a, b] = [script.region(8), script.region(8)];
    const inv = (stag: number, extra: object): Uint8Array =>
      send(1, pattern(4), { opcode: OP.sendInv, invalidateStag: stag, ...extra });
    script.send(inv(a.mr.rkey, { last: false }), inv(b.mr.rkey, { mo: 4 })).settle();
    expect(script.received()).toMatchObject([
      { status: 'success', byteLength: 8, invalidatedStag: b.mr.rkey },
    ]);
    expect([a.mr.valid, b.mr.valid]).toEqual([true, false]);
  });
});

describe('placement', () => {
  it('all octets of Sends and Writes of 0 to 3 segments are placed, none beside (DDP-024/023)', async () => {
    const script = await scripted({ crc: false });
    const mulpdu = 1000;
    for (const [msn, octets] of [0, 1, mulpdu - 1, mulpdu, mulpdu + 1, 2 * mulpdu, 3 * mulpdu].entries()) {
      const data = pattern(octets, msn);
      const region = script.region(octets + 1, undefined, 0x10n);
      const inbox = script.receives(1, octets + 1);
      const cuts =
        octets === 0 ? [0] : Array.from({ length: Math.ceil(octets / mulpdu) }, (_, i) => i * mulpdu);
      for (const at of cuts) {
        const part = data.slice(at, at + mulpdu);
        const last = at + part.length === octets;
        script.send(
          write(region.mr.rkey, 0x10n + BigInt(at), part, { last }),
          send(msn + 1, part, { mo: at, last }),
        );
      }
      script.settle();
      expect(script.received()).toMatchObject([{ status: 'success', byteLength: octets }]);
      for (const { mr } of [region, inbox]) expect(mr.bytes).toEqual(Uint8Array.from([...data, 0]));
    }
    script.guardsIntact();
  });

  it('STag and TO of an empty Write are not looked at (DDP-026, RDMAP-021)', async () => {
    const script = await scripted();
    const { mr } = script.region(8, ACCESS.REMOTE_READ);
    const top = 0xffff_ffff_ffff_ffffn;
    script
      .send(
        write(0, 0n),
        write(0x1234_5600, top),
        write(mr.rkey, 9n),
        write(mr.rkey, top, undefined, { last: false }),
      )
      .settle();
    expect(script.segments()).toEqual([]);
    expect(script.side.qp.state).toBe('rts');
    expect(script.side.events.map((event) => event.type)).toEqual(['established']);
  });

  it('a Write whose segments come in reverse order of TO is placed all the same (DDP-030)', async () => {
    const script = await scripted();
    const { mr } = script.region(20);
    const data = pattern(20);
    script
      .send(write(mr.rkey, 10n, data.slice(10), { last: false }), write(mr.rkey, 0n, data.slice(0, 10)))
      .settle();
    expect(mr.bytes).toEqual(data);
    expect(script.side.qp.state).toBe('rts');
  });

  it('a Send whose segments come in reverse order of MO is a clean error (DDP-030)', async () => {
    const script = await scripted();
    script.receives(1, 20);
    const blamed = send(1, pattern(10), { mo: 10 });
    script.send(blamed, send(1, pattern(10), { last: false })).settle();
    expectTerminate(script, { layer: 1, etype: 2, code: 4, blamed });
    script.memoryUntouched();
  });

  it('segments of a Write and of a Send may alternate (DDP-037)', async () => {
    const script = await scripted();
    const { mr } = script.region(20);
    const inbox = script.receives(1, 20);
    const data = pattern(20);
    script
      .send(
        write(mr.rkey, 0n, data.slice(0, 10), { last: false }),
        send(1, data.slice(0, 7), { last: false }),
        write(mr.rkey, 10n, data.slice(10)),
        send(1, data.slice(7), { mo: 7 }),
      )
      .settle();
    expect(script.received()).toMatchObject([{ status: 'success', byteLength: 20 }]);
    expect(mr.bytes).toEqual(data);
    expect(inbox.mr.bytes).toEqual(data);
  });

  it('a Send inside an incomplete Write is delivered at once; the Write goes on (DDP-034/037)', async () => {
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

  it('a Write gathers local buffers into one remote buffer at any TO (RDMAP-023, RDMAP-017)', async () => {
    const pair = await plainPair();
    const { client, server } = pair;
    const target = server.register(4000, undefined, 0xffff_ffff_ff00n);
    const parts = [pattern(1, 1), pattern(1999, 2), pattern(500, 3)].map((bytes) => client.register(bytes));
    client.qp.postSend({
      opcode: 'rdma-write',
      sges: parts.map((mr) => ({ mr })),
      rkey: target.rkey,
      remoteAddr: 0xffff_ffff_ff03n,
    });
    pair.run();
    expect(target.bytes.slice(3, 2503)).toEqual(new Uint8Array(Buffer.concat(parts.map((mr) => mr.bytes))));
    expect(captured(pair).client.messages.length).toBe(1);
  });

  it('of a segment that runs out of bounds not even the octets inside are placed (DDP-052)', async () => {
    const script = await scripted();
    const { mr } = script.region(16);
    script.send(write(mr.rkey, 8n, pattern(9))).settle();
    script.memoryUntouched();
  });
});

describe('delivery', () => {
  it('a Write gives no completion at the sink (RDMAP-018)', async () => {
    const script = await scripted();
    script.receives(1, 16);
    const { mr } = script.region(8);
    script.send(write(mr.rkey, 0n, pattern(8))).settle();
    expect(mr.bytes).toEqual(pattern(8));
    expect([script.received(), script.side.sent()]).toEqual([[], []]);
  });

  it('without its last segment a message is not delivered, nor is a later one (DDP-034)', async () => {
    const script = await scripted();
    script.receives(2, 20);
    script.send(send(1, pattern(10), { last: false })).settle();
    expect(script.received()).toEqual([]);
    script.send(send(1, pattern(10), { mo: 10 }), send(2, pattern(1))).settle();
    expect(script.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([
      [1000, 20],
      [1001, 1],
    ]);
  });

  it('n Sends use n receives and complete once each, in order (DDP-032/033, RDMAP-057/062)', async () => {
    const script = await scripted();
    const inbox = script.receives(20, 4);
    for (let msn = 1; msn <= 20; msn++) script.send(send(msn, Uint8Array.of(msn)));
    script.settle();
    expect(script.received().map((wc) => [wc.wrId, wc.status, wc.byteLength])).toEqual(
      Array.from({ length: 20 }, (_, i) => [1000 + i, 'success', 1]),
    );
    expect([...inbox.mr.bytes].filter((_, i) => i % 4 === 0)).toEqual(
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
  });

  it('an empty Send uses a receive and completes with length 0 (RDMAP-058, DDP-035)', async () => {
    const script = await scripted();
    script.receives(2, 4);
    script.send(send(1), send(2, pattern(3))).settle();
    expect(script.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([
      [1000, 0],
      [1001, 3],
    ]);
  });

  it('a message may be shorter than its buffer; its length is reported (RDMAP-060, DDP-035)', async () => {
    const script = await scripted();
    const inbox = script.receives(1, 100);
    inbox.mr.bytes.fill(0x99);
    script.send(send(1, pattern(30), { last: false }), send(1, pattern(7), { mo: 30 })).settle();
    expect(script.received()).toMatchObject([{ byteLength: 37 }]);
    expect(inbox.mr.bytes.slice(37).every((octet) => octet === 0x99)).toBe(true);
  });

  it('when a Send or Immediate Data completes, earlier Writes are placed (RDMAP-063, EXT-015)', async () => {
    const pair = await plainPair({ crc: false, emss: 9000 });
    const { client, server } = pair;
    const source = client.register(pattern(1 << 20));
    const target = server.register(1 << 20);
    for (const last of [
      { opcode: 'send', inline: pattern(1) },
      { opcode: 'immediate', immediate: 1 },
    ] satisfies SendWorkRequest[]) {
      target.bytes.fill(0);
      server.qp.postRecv({ sges: [{ mr: server.register(8) }] });
      client.qp.postSend([
        { opcode: 'rdma-write', sges: [{ mr: source }], rkey: target.rkey, remoteAddr: 0 },
        last,
      ]);
      while (server.recvCq.length === 0) expect(pair.time.step()).toBe(true);
      expect(Buffer.compare(target.bytes, source.bytes)).toBe(0);
      expect(server.received()).toMatchObject([{ status: 'success' }]);
    }
  });

  it('armed for solicited events, only a Send with SE raises one (RDMAP-065/064, EXT-016)', async () => {
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

  it('the STag a Send names is invalid once it completes: a Write gets 1/1/00 (RDMAP-067)', async () => {
    const script = await scripted();
    script.receives(1, 8);
    const { mr } = script.region(8);
    script
      .send(
        write(mr.rkey, 0n, pattern(8)),
        send(1, pattern(2), { opcode: OP.sendInv, invalidateStag: mr.rkey }),
      )
      .settle();
    expect(script.received()).toMatchObject([{ status: 'success', invalidatedStag: mr.rkey }]);
    const blamed = write(mr.rkey, 0n, pattern(8, 50));
    script.send(blamed).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    expect(mr.bytes).toEqual(pattern(8));
  });

  it('a receive posted in time is used; one posted late ends the stream (DDP-044)', async () => {
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
  it('a Write or Send completes once the network has taken its last octet (RDMAP-024/070)', async () => {
    const script = await scripted({ network: { buffer: 2000 } });
    const { mr } = script.region(10_000);
    script.peer.pause();
    script.side.qp.postSend({ wrId: 1, opcode: 'rdma-write', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr }] });
    script.settle();
    expect(script.side.sent()).toEqual([]);
    script.peer.resume();
    script.settle(1000);
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'success'],
      [2, 'success'],
    ]);
  });
});

describe('what the API offers', () => {
  it('a message of 2^32 octets is refused when posted, one octet less is not (DDP-022)', async () => {
    const script = await scripted({ side: { qp: { maxSendSge: 9 } } });
    const mr = script.side.register(new Uint8Array(1 << 29));
    const eight = Array.from({ length: 8 }, () => ({ mr }));
    const post = (sges: typeof eight): number => script.side.qp.postSend({ opcode: 'send', sges });
    expect(() => post(eight)).toThrow(IwarpError);
    expect(post([...eight.slice(1), { mr, length: (1 << 29) - 1 } as { mr: typeof mr }])).toBe(1);
    script.side.connection!.abort();
    script.finish();
  });

  it('an STag has a TO range, rights, a domain, perhaps one stream (DDP-067/069, RDMAP-100)', async () => {
    const script = await scripted();
    const { side } = script;
    const reader = script.region(16, ACCESS.REMOTE_READ, 0xffff_ffff_ffff_fff0n);
    const writer = script.region(16, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE, 5);
    const mine = side.pd.registerMemory(
      new Uint8Array(16),
      ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ,
      { queuePair: side.qp },
    );
    script
      .send(
        write(writer.mr.rkey, 5n, pattern(16)),
        write(mine.rkey, 0n, pattern(16)),
        readRequest(1, { size: 16, sourceStag: reader.mr.rkey, sourceTo: 0xffff_ffff_ffff_fff0n }),
        readRequest(2, { size: 16, sourceStag: mine.rkey }),
      )
      .settle();
    expect(script.sent(OP.readResponse).map((segment) => segment.payload)).toEqual([
      new Uint8Array(16),
      pattern(16),
    ]);
    expect(writer.mr.bytes).toEqual(pattern(16));
    script.guardsIntact();
  });

  it('an STag works on its own stream and not on another of the domain (DDP-067/068/070)', async () => {
    const script = await scripted();
    const { bench, side } = script;
    const mr = side.pd.registerMemory(new Uint8Array(16), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE, {
      queuePair: side.qp,
    });
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
