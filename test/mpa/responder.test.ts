/** MPA set-up as responder against a scripted initiator: RFC 5044 7.1. */
import { describe, expect, it } from 'vitest';
import type { PassiveConnection } from '../../src/cm/index.ts';
import type { StartupFailure } from '../../src/mpa/startup.ts';
import {
  encodeStartup,
  taggedUlpdu,
  untaggedUlpdu,
  type NaiveStartupInput,
} from '../support/naive/encoder.ts';
import {
  PEER_ENHANCED,
  rawInitiator,
  rawInitiatorUp,
  type RawBench,
  type RawPeer,
} from '../support/raw-peer.ts';
import { count } from '../support/framing.ts';

const WRITE_0 = taggedUlpdu({ opcode: 0, stag: 1, to: 0n });
const send = (msn: number, payload: Uint8Array = new Uint8Array(0)): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn }, payload);

/** A second peer gets its Reply: the server goes on serving others. */
function servesOthers(bench: RawBench): void {
  const other = bench.dial();
  const before = bench.incoming.length;
  other.request({ revision: 1 });
  bench.settle();
  expect(bench.incoming.length).toBe(before + 1);
  if (bench.options.onRequest !== undefined) bench.incoming.at(-1)!.connection.accept(bench.side.createQp());
  bench.settle();
  expect(other.startup().frame).toMatchObject({ kind: 'reply', reject: false });
  expect(other.ending).toBe('open');
}

/** The connection ended without a Reply, the listener says why, and goes on. */
function refused(bench: RawBench, peer: RawPeer, reason: StartupFailure): void {
  expect(peer.received.length).toBe(0);
  expect(bench.failures).toMatchObject([{ reason, remoteAddress: { address: '10.0.0.1' } }]);
  expect(bench.listener!.failed).toBe(1);
  expect(['fin', 'closed', 'reset']).toContain(peer.ending);
  expect(bench.incoming).toEqual([]);
  servesOthers(bench);
}

describe('the Reply', () => {
  it('to a plain Request (MPA-003/010/014/017/030/040/052/061)', async () => {
    const { peer } = await rawInitiatorUp({ param: { privateData: count(7, 1) } });
    const { frame, octets, problems } = peer.startup();
    expect(problems).toEqual([]);
    expect(frame).toMatchObject({
      kind: 'reply',
      reject: false,
      revision: 1,
      markers: false,
      crc: true,
      enhancedData: false,
      reserved: 0,
      pdLength: 7,
      privateData: count(7, 1),
    });
    expect(octets).toBe(27);
    expect(peer.received.length).toBe(27);
    expect(peer.received[16]! & 0x1f).toBe(0);
    expect(String.fromCharCode(...peer.received.slice(0, 16))).toBe('MPA ID Rep Frame');
    expect(peer.deliveries.length).toBe(1); // in one write (protocol-notes 3.1)
  });

  it('reserved bits and R of a Request are not looked at (MPA-011, MPA-013)', async () => {
    const { bench, peer } = await rawInitiatorUp({}, { reserved: 0x0f, reject: true, enhancedData: true });
    expect(peer.startup().frame).toMatchObject({
      kind: 'reply',
      reject: false,
      enhancedData: false,
      reserved: 0,
    });
    expect(bench.side.event('established')).toBeDefined();
  });

  it('private data of 0 to 512 octets arrives; FPDUs follow at once (MPA-020/022/041/047)', async () => {
    for (const length of [0, 1, 2, 3, 255, 256, 511, 512]) {
      const data = count(length, 0xf0);
      const { bench, peer } = await rawInitiator();
      bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: bench.side.register(64), length: 64 }] });
      peer.request({ revision: 1, privateData: data });
      bench.settle();
      expect(bench.incoming[0]!.connection.parameters).toMatchObject({ privateData: data, revision: 1 });
      peer.sendFpdus([send(1, count(11))]);
      bench.settle();
      expect(bench.side.received()).toMatchObject([{ status: 'success', byteLength: 11 }]);
    }
  });

  it('512 octets of any content go out; 513, or an unknown option, throw (MPA-017/018/047)', async () => {
    const data = count(512, 3);
    const { peer } = await rawInitiatorUp({ param: { privateData: data } });
    expect(peer.startup().frame).toMatchObject({ pdLength: 512, privateData: data });

    const codes: unknown[] = [];
    const attempt = (connection: PassiveConnection, bench: RawBench): void => {
      for (const act of [
        (): void => connection.accept(bench.side.qp, { privateData: count(513) }),
        (): void => connection.reject(count(513)),
        (): void => connection.accept(bench.side.qp, { ird: 4 } as never),
      ]) {
        try {
          act();
        } catch (error) {
          codes.push((error as { code: unknown }).code);
        }
      }
    };
    const other = await rawInitiatorUp({ onRequest: attempt });
    expect(codes).toEqual(['ERR_TOO_LARGE', 'ERR_TOO_LARGE', 'ERR_INVALID_ARGUMENT']);
    expect(other.peer.received.length).toBe(0);
    other.bench.incoming[0]!.connection.accept(other.bench.side.qp); // the request still stands
    other.bench.settle();
    expect(other.peer.startup().frame.reject).toBe(false);
  });

  it('the revision of the Request is reported to the program (MPA-016)', async () => {
    const plain = await rawInitiatorUp();
    expect(plain.bench.incoming[0]!.connection.parameters!.revision).toBe(1);
    const enhanced = await rawInitiatorUp({}, { enhanced: PEER_ENHANCED });
    expect(enhanced.bench.incoming[0]!.connection.parameters!.revision).toBe(2);
  });

  it('C=0 is sent only on explicit wish (MPA-052)', async () => {
    expect((await rawInitiatorUp({ policy: { crc: 'preferred' } })).peer.startup().frame.crc).toBe(true);
    expect((await rawInitiatorUp({ policy: { crc: 'required' } })).peer.startup().frame.crc).toBe(true);
    expect((await rawInitiatorUp({ policy: { crc: 'off' } }, { crc: false })).peer.startup().frame.crc).toBe(
      false,
    );
    expect((await rawInitiatorUp({ policy: { crc: 'off' } }, { crc: true })).peer.startup().frame.crc).toBe(
      true,
    );
  });
});

describe('silence where it is due', () => {
  it('nothing is sent before the whole Request is there (MPA-027)', async () => {
    const { bench, peer } = await rawInitiator();
    bench.settle(500);
    expect(peer.received.length).toBe(0);
    const request = encodeStartup({ kind: 'request', privateData: count(40) });
    peer.claim(request);
    peer.sendRaw(request.slice(0, 59));
    bench.settle(500);
    expect(peer.received.length).toBe(0);
    expect(bench.incoming).toEqual([]);
    peer.sendRaw(request.slice(59));
    bench.settle();
    expect(peer.startup().frame.kind).toBe('reply');
  });

  it('no octet after the Reply before an FPDU comes, whatever is posted (MPA-028/039)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const { qp } = bench.side;
    const mr = bench.side.register(count(100));
    for (let wrId = 1; wrId <= 5; wrId++) qp.postSend({ wrId, opcode: 'send', sges: [{ mr, length: 100 }] });
    bench.settle(3000);
    expect(peer.behind().length).toBe(0);
    // A broken FPDU does not open the direction either: not even a Terminate goes out.
    const broken = await rawInitiatorUp();
    broken.bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    broken.peer.sendFpdus([{ ulpdu: WRITE_0, crcFlip: 1 }]);
    broken.bench.settle();
    expect(broken.peer.behind().length).toBe(0);
    expect(broken.peer.ending).toBe('fin');
    expect(broken.bench.side.event('terminate')!.terminate).toMatchObject({ layer: 2, type: 0, code: 2 });
    // Half an FPDU does not, a whole one does.
    const octets = peer.encode([WRITE_0]);
    peer.sendRaw(octets.slice(0, -1));
    bench.settle();
    expect(peer.behind().length).toBe(0);
    peer.sendRaw(octets.slice(-1));
    bench.settle();
    expect(peer.segments()).toMatchObject(
      [1, 2, 3, 4, 5].map((msn) => ({ opcode: 3, qn: 0, msn, payload: count(100) })),
    );
    expect(peer.problems()).toEqual([]);
    expect(bench.side.sent().map((wc) => wc.status)).toEqual([
      'success',
      'success',
      'success',
      'success',
      'success',
    ]);
  });

  it.each([
    ['a zero-length Write', WRITE_0],
    ['a Send', send(1)],
    ['a zero-length Read', untaggedUlpdu({ opcode: 1, qn: 1, msn: 1 }, new Uint8Array(28))],
  ])('%s opens the direction (MPA-029)', async (_, ulpdu) => {
    const { bench, peer } = await rawInitiatorUp();
    bench.side.qp.postRecv({ wrId: 1, sges: [] });
    bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [] });
    bench.settle();
    expect(peer.behind().length).toBe(0);
    peer.sendFpdus([ulpdu]);
    bench.settle();
    expect(peer.segments().filter((segment) => segment.opcode === 3)).toMatchObject([{ msn: 1 }]);
  });

  it('a relaxed responder sends unasked, but lets the Reply arrive on its own', async () => {
    const { bench, peer } = await rawInitiator({ policy: { responder: 'relaxed', responderDelay: 50 } });
    peer.request();
    bench.settle(5);
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.settle(40);
    expect(peer.behind().length).toBe(0);
    bench.settle(20);
    expect(peer.segments()).toMatchObject([{ opcode: 3 }]);
    const [reply, fpdu] = peer.deliveries;
    expect(fpdu!.at - reply!.at).toBeGreaterThanOrEqual(50);
  });
});

describe('the decision', () => {
  it("a rejecting Reply with the program's data, then FIN; FPDUs are ignored (MPA-031/032/038)", async () => {
    const { bench, peer } = await rawInitiatorUp({
      onRequest: (connection) => connection.reject(count(300, 9)),
    });
    expect(peer.startup().frame).toMatchObject({
      kind: 'reply',
      reject: true,
      revision: 1,
      enhancedData: false,
      privateData: count(300, 9),
    });
    expect(peer.startup().problems).toEqual([]);
    expect(peer.ending).toBe('fin');
    peer.sendFpdus([{ ulpdu: send(1), crcFlip: 1 }, send(1)]); // would be a Terminate in full operation
    bench.settle();
    expect(peer.behind().length).toBe(0);
    peer.end();
    bench.settle();
    expect(peer.ending).toBe('closed');
    expect(bench.incoming[0]!.events).toMatchObject([{ type: 'disconnected', cause: 'rejected' }]);
    expect(bench.side.qp.state).toBe('idle');
  });

  it('a rejection answers a depth of 0x3FFF by 0x3FFF and names none itself (ENH-024/025)', async () => {
    for (const [ird, ord] of [
      [4, 0x3fff],
      [0x3fff, 4],
      [0x3fff, 0x3fff],
      [4, 4],
    ] as const) {
      const { peer } = await rawInitiatorUp(
        { onRequest: (connection) => connection.reject() },
        { enhanced: { ...PEER_ENHANCED, ird, ord } },
      );
      const wanted = { ird: ord === 0x3fff ? 0x3fff : 0, ord: ird === 0x3fff ? 0x3fff : 0 };
      expect(peer.startup().frame).toMatchObject({ reject: true, enhanced: wanted });
    }
  });

  it('a rejection of an enhanced Request repeats revision and S (MPA-031, ENH-009)', async () => {
    const { peer } = await rawInitiatorUp(
      { onRequest: (connection) => connection.reject(count(3)) },
      { enhanced: PEER_ENHANCED },
    );
    expect(peer.startup().frame).toMatchObject({
      reject: true,
      revision: 2,
      enhancedData: true,
      enhanced: { a: true },
      privateData: count(3),
    });
  });

  it('the Reply arrives whole though the peer sends; a peer that stays is reset (MPA-038)', async () => {
    const { bench, peer } = await rawInitiator({
      onRequest: (connection) => connection.reject(count(100)),
      network: { latency: 10 },
    });
    peer.request();
    for (let i = 0; i < 20; i++) {
      peer.sendRaw(count(1000));
      bench.settle(2);
    }
    bench.settle(100);
    expect(peer.startup().frame).toMatchObject({ reject: true, pdLength: 100 });
    expect(peer.ending).toBe('fin');
    bench.settle(4000);
    expect(peer.ending).toBe('fin');
    bench.settle(1100);
    expect(peer.ending).toBe('reset');
  });

  it('the endpoint is bound at full operation; set-up makes no completion (MPA-042, ENH-048)', async () => {
    const { bench, peer } = await rawInitiatorUp({}, { enhanced: PEER_ENHANCED });
    expect(bench.side.qp.state).toBe('rts');
    expect(bench.incoming[0]!.connection.qp).toBe(bench.side.qp);
    peer.sendFpdus([untaggedUlpdu({ opcode: 1, qn: 1, msn: 1 }, new Uint8Array(28))]);
    bench.settle();
    expect(bench.side.sent()).toEqual([]);
    expect(bench.side.received()).toEqual([]);
  });

  it('octets glued to the Request begin full operation, kept for the decision (MPA-026)', async () => {
    const { bench, peer } = await rawInitiator({ onRequest: () => undefined });
    bench.side.qp.postRecv([
      { wrId: 1, sges: [] },
      { wrId: 2, sges: [] },
    ]);
    const request = encodeStartup({ kind: 'request' });
    peer.claim(request);
    const fpdu = Uint8Array.from([0, 18, ...send(1)]);
    peer.sendRaw([...request, ...fpdu.slice(0, 5)]);
    bench.settle();
    peer.sendRaw(fpdu.slice(5));
    bench.settle();
    expect(bench.side.received()).toEqual([]);
    const { connection } = bench.incoming[0]!;
    connection.accept(bench.side.qp);
    bench.settle();
    // The CRC of the first FPDU is still missing: it comes now, with another Send after it.
    const whole = peer.encode([send(1), send(2)]);
    peer.sendRaw(whole.slice(fpdu.length));
    bench.settle();
    expect(bench.side.received().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, 'success'],
      [2, 'success'],
    ]);
  });

  it('a flood behind the Request costs bounded memory, ends the connection (MPA-026, SEC-033)', async () => {
    const { bench, peer } = await rawInitiator({ onRequest: () => undefined });
    peer.request();
    bench.settle();
    for (let i = 0; i < 16; i++) peer.sendRaw(new Uint8Array(4096));
    bench.settle();
    expect(peer.ending).toBe('open'); // 64 KiB are kept
    peer.sendRaw([1]);
    bench.settle();
    expect(peer.ending).toBe('fin');
    expect(bench.incoming[0]!.events).toMatchObject([{ type: 'connect-error', reason: 'extra-octets' }]);
    bench.incoming[0]!.connection.accept(bench.side.qp); // too late, and harmless
    bench.run();
    expect(peer.received.length).toBe(0);
    expect(bench.incoming[0]!.events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'startup-failed' });
    servesOthers(bench);
  });

  it('a peer that leaves before the answer, by FIN or RST, is an error (ENH-047, MPA-107)', async () => {
    for (const leave of ['end', 'reset'] as const) {
      const { bench, peer } = await rawInitiator({ onRequest: () => undefined });
      peer.request();
      bench.settle();
      peer[leave]();
      bench.settle();
      const { connection, events } = bench.incoming[0]!;
      expect(events).toMatchObject([
        { type: 'connect-error', reason: leave === 'end' ? 'truncated' : 'reset' },
        { type: 'disconnected', cause: leave === 'end' ? 'lost' : 'startup-failed' },
      ]);
      connection.accept(bench.side.qp);
      bench.run();
      expect(bench.side.qp.state).toBe('idle');
      servesOthers(bench);
    }
  });
});

describe('malformed Requests', () => {
  it('each octet of the key is compared; the close is immediate and silent (MPA-004/111/112)', async () => {
    const good = encodeStartup({ kind: 'request' });
    for (let octet = 0; octet < 16; octet++) {
      for (const flip of [0x01, 0x20, 0x80]) {
        const { bench, peer } = await rawInitiator();
        const bad = good.slice();
        bad[octet]! ^= flip;
        peer.sendRaw(bad);
        const before = bench.time.now();
        bench.settle();
        expect(peer.endedAt! - before).toBeLessThanOrEqual(2); // there and back
        expect(peer.received.length).toBe(0);
        expect(peer.ending).toBe('fin');
        expect(bench.incoming).toEqual([]);
        expect(bench.failures).toMatchObject([{ reason: 'bad-key' }]);
      }
    }
  });

  const frames: readonly (readonly [
    string,
    Omit<NaiveStartupInput, 'kind'>,
    'fin' | 'reset',
    StartupFailure,
  ])[] = [
    ['revision 3 (MPA-015)', { revision: 3 }, 'reset', 'unusable-revision'],
    ['revision 255 (MPA-015)', { revision: 255 }, 'reset', 'unusable-revision'],
    [
      'revision 3 with S=1 (MPA-015, ENH-011)',
      { revision: 3, enhanced: PEER_ENHANCED },
      'reset',
      'unusable-revision',
    ],
    ['PD_Length 513 (MPA-019)', { pdLength: 513 }, 'fin', 'private-data-too-long'],
    ['PD_Length 65535 (MPA-019)', { pdLength: 65_535 }, 'fin', 'private-data-too-long'],
    ['S=1, PD_Length 0 (ENH-005)', { revision: 2, enhancedData: true }, 'fin', 'enhanced-data-missing'],
    [
      'S=1, PD_Length 1 (ENH-005)',
      { revision: 2, enhancedData: true, privateData: count(1) },
      'fin',
      'enhanced-data-missing',
    ],
    [
      'S=1, PD_Length 3 (ENH-005)',
      { revision: 2, enhancedData: true, privateData: count(3) },
      'fin',
      'enhanced-data-missing',
    ],
  ];
  it.each(frames)('%s closes without a Reply', async (_, input, ending, reason) => {
    const { bench, peer } = await rawInitiator();
    peer.request(input);
    bench.settle();
    expect(peer.ending).toBe(ending);
    refused(bench, peer, reason);
  });

  it('two responders: a Reply where a Request belongs is refused by its key (MPA-006)', async () => {
    const { bench, peer } = await rawInitiator();
    peer.reply();
    bench.settle();
    refused(bench, peer, 'bad-key');
  });

  it('a FIN inside the private data makes the frame malformed (MPA-021)', async () => {
    for (const octets of [0, 1, 16, 19, 20, 24, 29]) {
      const { bench, peer } = await rawInitiator();
      peer.sendRaw(encodeStartup({ kind: 'request', privateData: count(10) }).slice(0, octets));
      peer.end();
      bench.settle();
      expect(peer.ending).toBe('closed');
      refused(bench, peer, 'truncated');
    }
  });

  it('not one octet of a frame announced too long is waited for (MPA-110, MPA-111)', async () => {
    const { bench, peer } = await rawInitiator();
    peer.sendRaw(encodeStartup({ kind: 'request', pdLength: 600 }).slice(0, 20));
    bench.settle();
    refused(bench, peer, 'private-data-too-long');
  });
});

describe('time-outs and bounds', () => {
  it('silence, and a Request in drops, end after the time-out (MPA-007, MPA-008)', async () => {
    const request = encodeStartup({ kind: 'request' });
    for (const drops of [0, 1, 19]) {
      const { bench, peer } = await rawInitiator();
      for (let i = 0; i < drops; i++) {
        peer.sendRaw([request[i]!]);
        bench.settle(200);
      }
      bench.settle(4900 - drops * 200);
      expect(peer.ending).toBe('open');
      bench.settle(200);
      expect(peer.ending).toBe('fin');
      bench.settle(5100); // a peer that does not close either is reset
      expect(peer.ending).toBe('reset');
      refused(bench, peer, 'timeout');
    }
  });

  it("the time-out is the policy's (MPA-008)", async () => {
    const { bench, peer } = await rawInitiator({ policy: { requestTimeout: 100 } });
    bench.settle(80);
    expect(peer.ending).toBe('open');
    bench.settle(30);
    expect(peer.ending).toBe('fin');
  });

  it('silent connections are bounded in number, and the oldest makes room (SEC-033)', async () => {
    const { bench, peer } = await rawInitiator({ listen: { maxPending: 8 } });
    const silent = [peer];
    while (silent.length < 8) silent.push(bench.dial());
    bench.settle();
    const late = bench.dial();
    bench.settle();
    expect([...silent, late].map((one) => one.ending)).toEqual(['reset', ...new Array(8).fill('open')]);
    expect(bench.failures).toMatchObject([{ reason: 'displaced' }]);
    expect([bench.listener!.refused, bench.listener!.failed, bench.listener!.pending]).toEqual([0, 1, 8]);
    servesOthers(bench);
    bench.settle(11_000);
    servesOthers(bench);
  });

  it('a slot is free when start-up has failed, not when the peer at last is given up (SEC-033)', async () => {
    const { bench, peer } = await rawInitiator({ listen: { maxPending: 2 } });
    const silent = [peer, bench.dial()];
    bench.settle(5100);
    expect(silent.map((one) => one.ending)).toEqual(['fin', 'fin']);
    expect(bench.listener!.pending).toBe(0);
    servesOthers(bench);
    servesOthers(bench);
  });

  it('closing ones are bounded too: as many as may be in start-up; others are reset (SEC-033)', async () => {
    const { bench, peer } = await rawInitiator({ listen: { maxPending: 2 } });
    const bad = (one: RawPeer): RawPeer => {
      one.sendRaw(count(20));
      bench.settle();
      return one;
    };
    const first = bad(peer);
    const more = [bad(bench.dial()), bad(bench.dial()), bad(bench.dial())];
    expect([first, ...more].map((one) => one.ending)).toEqual(['fin', 'fin', 'reset', 'reset']);
    expect(bench.failures.map(({ reason }) => reason)).toEqual(new Array(4).fill('bad-key'));
    expect([bench.listener!.pending, bench.listener!.refused]).toEqual([0, 0]);
    first.end();
    bench.settle();
    expect(bad(bench.dial()).ending).toBe('fin');
    servesOthers(bench);
    const done: string[] = [];
    bench.listener!.close(() => done.push('closed')); // they do not hold up the end of the listener
    bench.settle();
    expect([done, more[0]!.ending]).toEqual([['closed'], 'reset']);
  });

  it('a request that its peer or the program has given up needs no answer (SEC-033)', async () => {
    for (const leave of ['peer', 'disconnect', 'abort'] as const) {
      const { bench, peer } = await rawInitiator({ listen: { maxPending: 1 }, onRequest: () => undefined });
      peer.request({ revision: 1 });
      bench.settle();
      const { connection } = bench.incoming[0]!;
      expect(bench.listener!.pending).toBe(1);
      if (leave === 'peer') peer.end();
      else connection[leave]();
      bench.settle();
      expect(bench.listener!.pending).toBe(0);
      if (leave === 'disconnect') expect(peer.ending).toBe('fin'); // and it is still there
      servesOthers(bench);
      connection.accept(bench.side.createQp()); // too late, and harmless
      expect(bench.listener!.pending).toBe(0);
      bench.run();
      expect(bench.incoming[0]!.events.at(-1)).toMatchObject({ type: 'disconnected' });
      expect([bench.listener!.pending, bench.listener!.refusal(connection.remoteAddress!)]).toEqual([
        0,
        null,
      ]);
    }
  });

  it('an accept that throws leaves the request open and pending until it is answered (SEC-033)', async () => {
    const { bench, peer } = await rawInitiator({ listen: { maxPending: 2 }, onRequest: () => undefined });
    peer.request({ revision: 1 });
    bench.settle();
    const { connection } = bench.incoming[0]!;
    const used = bench.side.createQp();
    used.modify({ state: 'error' });
    expect(() => connection.accept(used)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_STATE', message: 'qp is in state error' }),
    );
    expect(bench.listener!.pending).toBe(1);
    connection.accept(bench.side.createQp());
    expect(bench.listener!.pending).toBe(0);
    bench.settle();
    expect(peer.startup().frame).toMatchObject({ kind: 'reply', reject: false });
    expect(() => connection.reject()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
  });

  it('established connections do not count as pending (SEC-033)', async () => {
    const { bench } = await rawInitiatorUp({ listen: { maxPending: 1 } });
    servesOthers(bench);
    servesOthers(bench);
    expect(bench.listener!.refused).toBe(0);
  });
});
