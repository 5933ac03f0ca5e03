/**
 * Terminate messages and what ends a stream: RFC 5040 4.8, 5.4, 6.2, 7.1; RFC 5041 6.2, 7.1. Which fault gets
 * which code: faults.test.ts.
 */
import { describe, expect, it } from 'vitest';
import { TERM } from '../../src/base/terminate-codes.ts';
import { createSegment, decodeSegment } from '../../src/ddp/wire.ts';
import { TRANSMIT_BUFFER_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { terminateForSegment } from '../../src/rdmap/terminate.ts';
import { encodeTerminate, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import type { NaiveTerminate } from '../support/naive/types.ts';
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

const NARROW = { buffer: 2000 } as const;
/** A message that does not fit into the writes that may be under way. */
const LONG = 3 * TRANSMIT_BUFFER_OCTETS;
const REMOTE_ERROR: NaiveTerminate = {
  layer: 1,
  etype: 1,
  code: 0,
  m: false,
  d: false,
  r: false,
  reserved: 0,
};

function terminate(
  body: Uint8Array = encodeTerminate(REMOTE_ERROR),
  fields: Partial<{ qn: number; msn: number; mo: number; last: boolean; dv: number }> = {},
): Uint8Array {
  return untaggedUlpdu({ opcode: OP.terminate, qn: 2, msn: 1, ...fields }, body);
}

/** Nothing but the Reply has come from the tested side, then FIN; it is in Error in the end. */
function endsSilently(script: Script): void {
  expect(script.segments()).toEqual([]);
  expect(script.peer.ending).toBe('fin');
  script.end().finish();
  expect(script.peer.ending).toBe('closed');
  expect(script.side.qp.state).toBe('error');
}

describe('a Terminate that is sent', () => {
  it('is one segment on queue 2, MSN 1, MO 0, with its header (RDMAP-076/082/084, DDP-053/055)', async () => {
    const script = await scripted();
    const blamed = write(0x1122_3344, 0x1000n, pattern(8));
    script.send(blamed).settle();
    const [only, ...more] = script.segments();
    expect(more).toEqual([]);
    expect(only).toMatchObject({
      tagged: false,
      last: true,
      opcode: OP.terminate,
      qn: 2,
      msn: 1,
      mo: 0,
      invalidateStag: 0,
    });
    expect(only!.terminate).toMatchObject({
      layer: 1,
      etype: 1,
      code: 0,
      m: true,
      d: true,
      r: false,
      reserved: 0,
      segmentLength: 22,
    });
    expect(only!.terminate!.ddpHeader).toMatchObject({
      tagged: true,
      opcode: OP.write,
      stag: 0x1122_3344,
      to: 0x1000n,
    });
  });

  it('the headers are those of the segment in error, though its Buffer is reused (RDMAP-073/074)', () => {
    for (const [name, blamed] of [
      ['Write', write(0x1122_3344, 0x1000n, pattern(8))],
      ['Read Request', readRequest(1, { sourceStag: 7, size: 64 })],
    ] as const) {
      const read = Buffer.from([0xaa, ...blamed]);
      const segment = createSegment();
      expect(decodeSegment(segment, read, 1, blamed.length)).toBe(true);
      const info = terminateForSegment(TERM.DDP_INVALID_STAG, segment, true);
      read.fill(0xee);
      const octets = name === 'Write' ? 14 : 18;
      expect([...info.ddpHeader!], name).toEqual([...blamed.subarray(0, octets)]);
      expect(info.rdmapHeader === undefined ? [] : [...info.rdmapHeader], name).toEqual(
        name === 'Write' ? [] : [...blamed.subarray(octets)],
      );
    }
  });

  it('comes whole before the FIN; no reset destroys it (RDMAP-071/089/090/091, DDP-058/066)', async () => {
    const script = await scripted();
    const blamed = write(7, 0n, pattern(8));
    script.send(blamed);
    while (script.peer.behind().length === 0) expect(script.time.step()).toBe(true);
    expect(script.peer.ending).toBe('open');
    script.settle();
    expect(script.peer.ending).toBe('fin');
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    // What the peer had under way meanwhile is read and dropped, so that the kernel has no reason to reset.
    script.send(send(1, pattern(9))).settle();
    expect(script.peer.ending).toBe('fin');
    script.end().finish();
    expect(script.peer.ending).toBe('closed');
  });

  it('for our own fault it has no headers; the status is set (RDMAP-072/085/092, EXT-006)', async () => {
    for (const opcode of ['send', 'rdma-write', 'rdma-read', 'atomic-fetch-add'] as const) {
      const script = await scripted();
      const { mr } = script.region(8);
      const sges = [{ mr }];
      const remote = { rkey: 1, remoteAddr: 0 };
      if (opcode === 'send') script.side.qp.postSend({ wrId: 1, opcode, sges });
      else if (opcode === 'atomic-fetch-add')
        script.side.qp.postSend({ wrId: 1, opcode, sges, ...remote, add: 1 });
      else script.side.qp.postSend({ wrId: 1, opcode, sges, ...remote });
      script.side.qp.postSend({ wrId: 2, opcode: 'send', inline: pattern(4) });
      mr.deregister(); // before anything of it has been sent
      script.settle();
      expectTerminate(script, { layer: 0, etype: 0, code: 0 });
      expect(script.fpdus().map((fpdu) => fpdu.ulpduLength)).toEqual([22]);
      script.end().finish();
      expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
        [1, 'local-protection-error'],
        [2, 'flushed'],
      ]);
      expect(script.side.asyncEvents.some((event) => event.type === 'terminate-sent')).toBe(true);
    }
  });

  it("nor where a receive has lost its memory, though the peer's segment showed it (RDMAP-085)", async () => {
    const script = await scripted();
    script.receives(1, 16).mr.deregister();
    script.send(send(1, pattern(8))).settle();
    expectTerminate(script, { layer: 0, etype: 0, code: 0 });
    expect(script.fpdus().map((fpdu) => fpdu.ulpduLength)).toEqual([22]);
    script.memoryUntouched();
    script.end().finish();
    expect(script.received()).toMatchObject([{ wrId: 1000, status: 'local-protection-error' }]);
  });

  it('a region lost during a Send: the Terminate replaces the next segment (RDMAP-072)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(LONG);
    script.peer.pause();
    script.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr }] });
    script.settle();
    mr.deregister();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 0, etype: 0, code: 0 });
    expect(script.sent(OP.send).some((segment) => segment.last)).toBe(false);
  });

  it('goes out at the next FPDU boundary, in the middle of a long message (RDMAP-073)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(2 * LONG);
    script.peer.pause();
    script.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr }] });
    script.settle();
    const blamed = write(7, 0n, pattern(8));
    script.send(blamed).settle();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
    const sent = script.sent(OP.send);
    expect(sent.length).toBeGreaterThan(0);
    // what had been in segments already
    expect(sent.reduce((sum, segment) => sum + segment.payload.length, 0)).toBeLessThan(
      3 * TRANSMIT_BUFFER_OCTETS,
    );
    script.end().finish();
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
  });

  it('for a bad Send and a bad Read Response the header is theirs (RDMAP-073, DDP-053)', async () => {
    for (const blamed of [send(1, pattern(70)), readResponse(5, 6n, pattern(3))]) {
      const script = await scripted();
      script.send(blamed).settle();
      const { terminate: t } = script.segments().at(-1)!;
      expect(t).toMatchObject({ m: true, d: true, r: false, segmentLength: blamed.length });
      expect(t!.ddpHeader!.tagged).toBe(blamed[0]! >= 0x80);
    }
  });

  it('of two bad segments the first is reported; nothing after it counts (RDMAP-075, DDP-054)', async () => {
    const script = await scripted();
    const { mr } = script.region(16);
    script.receives(1, 16);
    const first = write(1, 1n, pattern(4));
    script
      .send(first, write(2, 2n, pattern(4)), write(mr.rkey, 0n, pattern(16)), send(1, pattern(16)))
      .settle();
    script.send(write(3, 3n, pattern(4)), write(mr.rkey, 0n, pattern(16))).settle();
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed: first });
    script.memoryUntouched();
  });

  it('nothing follows it; all posted work flushes once, in order (RDMAP-077/087/088, DDP-065)', async () => {
    const script = await scripted();
    script.receives(3, 16);
    script.send(write(1, 1n, pattern(4)));
    script.settle();
    for (let i = 0; i < 5; i++) script.side.qp.postSend({ wrId: i, opcode: 'send', inline: pattern(5) });
    script.settle();
    expect(script.segments().map((segment) => segment.opcode)).toEqual([OP.terminate]);
    script.end().finish();
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual(
      [0, 1, 2, 3, 4].map((i) => [i, 'flushed']),
    );
    expect(script.received().map((wc) => [wc.wrId, wc.status])).toEqual(
      [1000, 1001, 1002].map((i) => [i, 'flushed']),
    );
  });

  it('for a CRC error it is 2/0/02 without headers, and no more (RDMAP-085, DDP-057/064)', async () => {
    const script = await scripted();
    const { mr } = script.region(16);
    script
      .send({ ulpdu: write(mr.rkey, 0n, pattern(16)), crcFlip: 0x100 }, write(mr.rkey, 0n, pattern(16)))
      .settle();
    expectTerminate(script, { layer: 2, etype: 0, code: 2 });
    expect(script.fpdus().map((fpdu) => fpdu.ulpduLength)).toEqual([22]);
    script.memoryUntouched();
  });

  it('is sent after pending octets, also when the peer has sent FIN meanwhile (RDMAP-090)', async () => {
    const script = await scripted({ network: NARROW });
    const { mr } = script.region(2 * LONG);
    script.peer.pause();
    script.side.qp.postSend({ opcode: 'send', sges: [{ mr }] });
    script.settle();
    const blamed = write(7, 0n, pattern(8));
    script.send(blamed).end().settle();
    script.peer.resume();
    script.settle(1000);
    expectTerminate(script, { layer: 1, etype: 1, code: 0, blamed });
  });

  it('a peer that never closes is reset after the close time-out (RDMAP-091)', async () => {
    const script = await scripted({ policy: { closeTimeout: 700 } });
    script.send(write(7, 0n, pattern(8))).settle(650);
    expect(script.peer.ending).toBe('fin');
    script.finish();
    expect(script.peer.ending).toBe('reset');
    expect(script.side.event('disconnected')).toMatchObject({ cause: 'terminated' });
  });

  it.each(['Read', 'Atomic'] as const)(
    'for a bad %s it follows even a response longer than the close time-out (RDMAP-071/074/090, VERBS-069)',
    async (kind) => {
      const script = await scripted({
        policy: { closeTimeout: 300 },
        network: { bandwidth: 500, buffer: 20_000 },
      });
      const { mr } = script.region(2 << 20);
      const body = new Uint8Array(52);
      const bad =
        kind === 'Read'
          ? readRequest(2, { size: 4, sourceStag: 7 })
          : untaggedUlpdu({ opcode: OP.atomicRequest, qn: 1, msn: 2 }, body);
      script.send(readRequest(1, { size: 2 << 20, sourceStag: mr.rkey }), bad);
      while (script.peer.ending === 'open') script.settle(50);
      const answer = script.sent(OP.readResponse);
      expect(answer.at(-1)).toMatchObject({ last: true });
      expect(answer.reduce((all, { payload }) => all + payload.length, 0)).toBe(2 << 20);
      expectTerminate(script, {
        layer: 0,
        etype: 1,
        code: 0,
        blamed: bad,
        ...(kind === 'Read' ? { readHeader: true } : {}),
      });
      expect(script.peer.endedAt).toBeGreaterThan(4000);
    },
  );

  it('a peer that stops reading its responses is reset a close time-out later (RDMAP-091)', async () => {
    const script = await scripted({
      policy: { closeTimeout: 300 },
      network: { bandwidth: 500, buffer: 20_000 },
    });
    const { mr } = script.region(2 << 20);
    script
      .send(
        readRequest(1, { size: 2 << 20, sourceStag: mr.rkey }),
        readRequest(2, { size: 4, sourceStag: 7 }),
      )
      .settle(2000);
    expect(script.peer.ending).toBe('open');
    script.peer.pause();
    const from = script.time.now();
    script.finish();
    expect(script.peer.ending).toBe('reset');
    expect(script.peer.endedAt! - from).toBeLessThan(600);
  });

  it('a peer that does not even read is reset after the close time-out (RDMAP-091)', async () => {
    const script = await scripted({ policy: { closeTimeout: 700 }, network: NARROW });
    const { mr } = script.region(2 * LONG);
    script.peer.pause();
    script.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr }] });
    script.settle();
    script.send(write(7, 0n, pattern(8))).finish();
    expect(script.peer.ending).toBe('reset');
    expect(script.side.sent()).toMatchObject([{ wrId: 1, status: 'flushed' }]);
  });
});

describe('a Terminate that is received', () => {
  it('reaches the ULP with no receive posted; only FIN answers it (RDMAP-079/080)', async () => {
    const script = await scripted();
    const ddpHeader = {
      tagged: true,
      last: true,
      dv: 1,
      ddpReserved: 0,
      rv: 1,
      rdmapReserved: 0,
      opcode: 0,
      stag: 5,
      to: 6n,
    } as const;
    script
      .send(terminate(encodeTerminate({ ...REMOTE_ERROR, m: true, d: true, segmentLength: 22, ddpHeader })))
      .settle();
    const event = script.side.event('terminate')!;
    expect(event.terminate).toMatchObject({
      origin: 'remote',
      layer: 1,
      type: 1,
      code: 0,
      segmentLength: 22,
    });
    expect(event.terminate.ddpHeader).toEqual(taggedUlpdu({ opcode: 0, stag: 5, to: 6n }));
    expect(script.side.asyncEvents.map((e) => e.type)).toEqual(['terminate-received']);
    endsSilently(script);
  });

  it('with D the length field is there without M too, and then means nothing (RDMAP-084)', async () => {
    const script = await scripted();
    const ddpHeader = {
      tagged: true,
      last: true,
      dv: 1,
      ddpReserved: 0,
      rv: 1,
      rdmapReserved: 0,
      opcode: 0,
      stag: 5,
      to: 6n,
    } as const;
    script
      .send(
        terminate(encodeTerminate({ ...REMOTE_ERROR, m: false, d: true, segmentLength: 0xfeed, ddpHeader })),
      )
      .settle();
    const event = script.side.event('terminate')!;
    expect(event.terminate).toMatchObject({ layer: 1, type: 1, code: 0, segmentLength: undefined });
    expect(event.terminate.ddpHeader).toEqual(taggedUlpdu({ opcode: 0, stag: 5, to: 6n }));
    endsSilently(script);
  });

  it('reserved bits change nothing (RDMAP-083)', async () => {
    const script = await scripted();
    script.send(terminate(encodeTerminate({ ...REMOTE_ERROR, reserved: 0x1fff }))).settle();
    expect(script.side.event('terminate')?.terminate).toMatchObject({
      layer: 1,
      type: 1,
      code: 0,
      segmentLength: undefined,
      ddpHeader: undefined,
    });
    endsSilently(script);
  });

  it('an R bit without octets, and octets beyond all announced, are tolerated (RDMAP-079)', async () => {
    for (const body of [
      encodeTerminate({ ...REMOTE_ERROR, r: true }),
      Uint8Array.from([...encodeTerminate(REMOTE_ERROR), ...pattern(90)]),
    ]) {
      const script = await scripted();
      script.send(terminate(body)).settle();
      expect(script.side.event('terminate')?.terminate).toMatchObject({ layer: 1, type: 1, code: 0 });
      endsSilently(script);
    }
  });

  it('everything outstanding counts as failed (RDMAP-088, RDMAP-087)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(16);
    script.receives(2, 16);
    const remote = { rkey: 1, remoteAddr: 0 };
    script.side.qp.postSend([
      { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], ...remote },
      { wrId: 2, opcode: 'send', inline: pattern(3) },
    ]);
    script.settle();
    script.send(terminate()).settle().end().finish();
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'flushed'],
      [2, 'flushed'],
    ]);
    expect(script.received().map((wc) => wc.status)).toEqual(['flushed', 'flushed']);
  });

  it('the Read that it names gets the reason, others flush (verbs draft 9.5.2) (RDMAP-088)', async () => {
    const script = await scripted({ role: 'responder' });
    const { mr } = script.region(16);
    for (const wrId of [1, 2])
      script.side.qp.postSend({ wrId, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    script.settle();
    const { qn, msn } = { qn: 1, msn: 2 };
    const ddpHeader = {
      tagged: false,
      last: true,
      dv: 1,
      ddpReserved: 0,
      rv: 1,
      rdmapReserved: 0,
      opcode: 1,
      invalidateStag: 0,
      qn,
      msn,
      mo: 0,
    } as const;
    const readRequest = { sinkStag: 1, sinkTo: 0n, size: 16, sourceStag: 1, sourceTo: 0n };
    script.send(
      terminate(
        encodeTerminate({
          layer: 0,
          etype: 1,
          code: 2,
          m: true,
          d: true,
          r: true,
          reserved: 0,
          segmentLength: 46,
          ddpHeader,
          readRequest,
        }),
      ),
    );
    script.settle().end().finish();
    expect(script.side.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'flushed'],
      [2, 'remote-access-error'],
    ]);
  });

  const malformed: readonly [string, Uint8Array][] = [
    ['3 octets of payload', terminate(Uint8Array.of(0x11, 0, 0))],
    ['no payload', terminate(new Uint8Array(0))],
    ['a DDP header cut short', terminate().slice(0, 16)],
    ['D without its segment length', terminate(encodeTerminate({ ...REMOTE_ERROR, d: true }))],
    ['queue 0', terminate(undefined, { qn: 0 })],
    ['queue 1', terminate(undefined, { qn: 1 })],
    ['MSN 0', terminate(undefined, { msn: 0 })],
    ['MSN 2', terminate(undefined, { msn: 2 })],
    ['MO 4', terminate(undefined, { mo: 4 })],
    ['L=0', terminate(undefined, { last: false })],
    ['T=1', taggedUlpdu({ opcode: OP.terminate, stag: 0, to: 0n }, pattern(8))],
  ];
  for (const [name, ulpdu] of malformed) {
    it(`one with ${name} ends the stream without a reply (RDMAP-081)`, async () => {
      const script = await scripted();
      script.receives(1, 100);
      script.send(ulpdu, send(1, pattern(4))).settle();
      script.memoryUntouched();
      endsSilently(script);
      expect(script.received().map((wc) => wc.status)).toEqual(['flushed']);
    });
  }

  it('what the peer sends after its Terminate is not looked at (RDMAP-091)', async () => {
    const script = await scripted();
    script.receives(1, 16);
    script.send(terminate(), send(1, pattern(4)), write(99, 0n, pattern(4))).settle();
    expect(script.segments()).toEqual([]);
    script.memoryUntouched();
    endsSilently(script);
  });
});
