/** MPA set-up as initiator against a scripted responder: RFC 5044 7.1. */
import { describe, expect, it } from 'vitest';
import type { ActiveConnection, CmEvent } from '../../src/cm/index.ts';
import { TERM } from '../../src/base/terminate-codes.ts';
import {
  encodeFpdus,
  encodeStartup,
  encodeTerminate,
  taggedUlpdu,
  untaggedUlpdu,
  type NaiveStartupInput,
} from '../support/naive/encoder.ts';
import {
  PEER_ENHANCED,
  rawInitiatorUp,
  rawResponder,
  rawResponderUp,
  type RawBench,
  type RawOptions,
  type RawPeer,
} from '../support/raw-peer.ts';
import { count } from '../support/framing.ts';

const PLAIN: RawOptions = { policy: { mpaRevision: 1 } };
const send = (msn: number, payload: Uint8Array = new Uint8Array(0)): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn }, payload);

/** Failures that are not the event `connect-error` in the kernel's rdma_cm either. */
const FAILURES: Readonly<Record<string, object>> = {
  timeout: { type: 'unreachable', reason: 'timeout', status: 'ETIMEDOUT' },
  reset: { type: 'rejected', reason: 'reset', status: 'ECONNRESET' },
  truncated: { type: 'rejected', reason: 'truncated', status: 'ECONNRESET' },
};

/**
 * Our stack closed without sending anything after the Request, said why, and the queue pair can be used
 * again.
 */
function failed(bench: RawBench, peer: RawPeer, reason: string): void {
  expect(peer.behind().length).toBe(0);
  expect(['fin', 'closed', 'reset']).toContain(peer.ending);
  expect(bench.side.events[0]).toMatchObject(FAILURES[reason] ?? { type: 'connect-error', reason });
  expect(bench.side.event('established')).toBeUndefined();
  peer.end();
  bench.run();
  expect(bench.side.events.at(-1)).toMatchObject({ type: 'disconnected' });
  expect(bench.side.qp.state).toBe('idle');
}

describe('the Request', () => {
  it('a plain one (MPA-001, MPA-002, MPA-010, MPA-012, MPA-014, MPA-017, MPA-040, MPA-052, MPA-061)', () => {
    const { peer } = rawResponder({ ...PLAIN, param: { privateData: count(5, 1) } });
    const { frame, octets, problems } = peer.startup();
    expect(problems).toEqual([]);
    expect(frame).toMatchObject({
      kind: 'request',
      reject: false,
      revision: 1,
      markers: false,
      crc: true,
      enhancedData: false,
      reserved: 0,
      pdLength: 5,
      privateData: count(5, 1),
    });
    expect(octets).toBe(25);
    expect(peer.received.length).toBe(25);
    expect(peer.received[16]! & 0x1f).toBe(0);
    expect(String.fromCharCode(...peer.received.slice(0, 16))).toBe('MPA ID Req Frame');
    expect(peer.deliveries.length).toBe(1);
  });

  it('512 octets of private data go out; 513 are refused and no connection is made (MPA-017/018)', () => {
    expect(rawResponder({ ...PLAIN, param: { privateData: count(512) } }).peer.startup().frame).toMatchObject(
      { pdLength: 512, privateData: count(512) },
    );
    expect(() => rawResponder({ ...PLAIN, param: { privateData: count(513) } })).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
    );
  });

  it('C=0 only on explicit wish (MPA-052)', () => {
    expect(rawResponder().peer.startup().frame.crc).toBe(true);
    expect(rawResponder({ policy: { crc: 'required' } }).peer.startup().frame.crc).toBe(true);
    expect(rawResponder({ policy: { crc: 'off' } }).peer.startup().frame.crc).toBe(false);
  });

  it('nothing follows the Request before a whole accepting Reply (MPA-024/025/033)', () => {
    const { bench, peer } = rawResponder({ ...PLAIN, policy: { mpaRevision: 1, markers: true } });
    const mr = bench.side.register(count(50));
    bench.side.qp.postRecv({ wrId: 9, sges: [] });
    const frame = encodeStartup({ kind: 'reply', markers: true, privateData: count(30) });
    peer.claim(frame);
    expect(() =>
      bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr, length: 50 }] }),
    ).not.toThrow();
    bench.settle(3000);
    peer.sendRaw(frame.slice(0, 49));
    bench.settle(3000);
    expect(peer.received.length).toBe(20);
    peer.sendRaw(frame.slice(49));
    bench.settle();
    expect(peer.segments()).toMatchObject([{ opcode: 3, msn: 1, payload: count(50) }]);
    expect(peer.problems()).toEqual([]);
  });
});

describe('the Reply', () => {
  it('cut at any octet, with an FPDU close after (MPA-023, MPA-036, MPA-041)', () => {
    for (const length of [0, 1, 2, 3]) {
      for (let cut = 0; cut <= 20 + length; cut++) {
        const { bench, peer } = rawResponder(PLAIN);
        bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: bench.side.register(16), length: 16 }] });
        const frame = encodeStartup({ kind: 'reply', privateData: count(length) });
        peer.claim(frame);
        peer.sendRaw(frame.slice(0, cut));
        bench.settle();
        peer.sendRaw(frame.slice(cut));
        peer.sendFpdus([send(1, count(9))]);
        bench.settle();
        expect(bench.side.received()).toMatchObject([{ status: 'success', byteLength: 9 }]);
      }
    }
  });

  it('octets that come together with the Reply are the beginning of FPDUs (MPA-037)', () => {
    const { bench, peer } = rawResponder(PLAIN);
    bench.side.qp.postRecv({ wrId: 1, sges: [] });
    const frame = encodeStartup({ kind: 'reply' });
    peer.claim(frame);
    peer.sendRaw([...frame, ...peer.encode([send(1)])]);
    bench.settle();
    expect(bench.side.received()).toMatchObject([{ wrId: 1, status: 'success' }]);
  });

  it('private data of 0 to 512 octets of any content, reserved bits set (MPA-011/020/022/047)', () => {
    for (const length of [0, 1, 255, 256, 512]) {
      const { bench } = rawResponderUp(PLAIN, {
        privateData: count(length, 7),
        reserved: 0x0f,
        enhancedData: true,
      });
      expect(bench.side.event('established')!.parameters.privateData).toEqual(count(length, 7));
    }
  });

  it('the endpoint is bound on entry to full operation, without a completion (MPA-042, ENH-048)', () => {
    const { bench, connection } = rawResponderUp(PLAIN);
    expect(bench.side.qp.state).toBe('rts');
    expect(connection.qp).toBe(bench.side.qp);
    expect([...bench.side.sent(), ...bench.side.received()]).toEqual([]);
  });

  it('the revision of the Reply is reported (MPA-016)', () => {
    expect(rawResponderUp({}, { revision: 1 }).bench.side.event('established')!.parameters.revision).toBe(1);
    expect(
      rawResponderUp({}, { enhanced: PEER_ENHANCED }).bench.side.event('established')!.parameters.revision,
    ).toBe(2);
    expect(
      rawResponderUp({}, { revision: 1, reject: true }).bench.side.event('rejected')!.parameters.revision,
    ).toBe(1);
  });

  it('a rejection gives its private data to the program; not one FPDU is sent (MPA-033)', () => {
    const { bench, peer } = rawResponder(PLAIN);
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    peer.reply({ reject: true, privateData: count(200) });
    peer.sendRaw(count(40));
    bench.settle();
    expect(peer.behind().length).toBe(0);
    expect(peer.ending).toBe('fin');
    expect(bench.side.event('rejected')).toMatchObject({
      parameters: { privateData: count(200), revision: 1 },
      markersAsked: false,
    });
    peer.end();
    bench.run();
    expect(bench.side.events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'rejected' });
    expect(bench.side.event('established')).toBeUndefined();
  });

  it('a rejection after we asked for markers says so, since Linux siw rejects for that reason', () => {
    const { bench } = rawResponderUp({ policy: { markers: true } }, { reject: true });
    expect(bench.side.event('rejected')).toMatchObject({ markersAsked: true });
  });

  it('a program that refuses the private data leaves first; no FPDU is sent (MPA-035)', () => {
    const { bench, peer, connection } = rawResponderUp(
      { connect: { confirm: true } },
      { enhanced: PEER_ENHANCED, privateData: count(4) },
    );
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.settle(1000);
    expect(bench.side.event('connect-response')).toMatchObject({
      parameters: { privateData: count(4), revision: 2 },
    });
    expect(peer.behind().length).toBe(0);
    connection.disconnect();
    bench.settle();
    expect(peer.behind().length).toBe(0);
    expect(peer.ending).toBe('fin');
    peer.end();
    bench.run();
    expect(bench.side.events.map((event) => event.type)).toEqual(['connect-response', 'disconnected']);
  });

  it('a program that likes it goes on, and nothing that came meanwhile is lost (MPA-035, MPA-036)', () => {
    const { bench, peer, connection } = rawResponderUp({ connect: { confirm: true } });
    bench.side.qp.postRecv({ wrId: 1, sges: [] });
    peer.sendFpdus([send(1)]);
    bench.settle();
    expect(bench.side.received()).toEqual([]);
    (connection as ActiveConnection).establish();
    bench.settle();
    expect(bench.side.received()).toMatchObject([{ wrId: 1, status: 'success' }]);
    expect(() => (connection as ActiveConnection).establish()).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_STATE' }),
    );
  });

  it('a local error during set-up sends a Terminate as the first FPDU, then closes (ENH-046)', () => {
    const { bench, peer, connection } = rawResponderUp(
      { connect: { confirm: true } },
      { enhanced: PEER_ENHANCED },
    );
    connection.terminate(TERM.MPA_LOCAL_CATASTROPHIC);
    bench.settle();
    expect(peer.terminates()).toEqual(['2/0/05']);
    expect(peer.fpdus().length).toBe(1);
    expect(peer.problems()).toEqual([]);
    expect(peer.ending).toBe('fin');
    peer.end();
    bench.run();
    expect(bench.side.events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'terminated' });
  });
});

describe('while confirm waits for the program', () => {
  const up = (): { bench: RawBench; peer: RawPeer; connection: ActiveConnection } => {
    const { bench, peer, connection } = rawResponderUp(
      { connect: { confirm: true } },
      { enhanced: PEER_ENHANCED, privateData: count(4) },
    );
    bench.side.qp.postRecv({ wrId: 1, sges: [] });
    bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [] });
    expect(bench.side.events.map((event) => event.type)).toEqual(['connect-response']);
    return { bench, peer, connection: connection as ActiveConnection };
  };

  /**
   * Nothing was sent, nothing completed, and the queue pair waits for another connection with its posted
   * work.
   */
  function unused(
    bench: RawBench,
    peer: RawPeer,
    connection: ActiveConnection,
    event: CmEvent['type'] = 'rejected',
  ): void {
    expect(() => connection.establish()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
    bench.run();
    expect(peer.behind().length).toBe(0);
    expect(bench.side.events.map((event) => event.type)).toEqual(['connect-response', event, 'disconnected']);
    expect([bench.side.qp.state, ...bench.side.sent(), ...bench.side.received()]).toEqual(['idle']);
    expect(bench.time.pending).toBe(0);
    const { time, side } = bench;
    const again = side.cm.connect(side.qp, { host: '10.0.0.2', port: 4711 });
    time.advance(1);
    again.abort();
    time.run();
  }

  it.each([
    ['end', 'truncated'],
    ['reset', 'reset'],
  ] as const)('%s by the peer fails the connection (MPA-021, MPA-035, ENH-047)', (leave, reason) => {
    const { bench, peer, connection } = up();
    peer[leave]();
    bench.settle();
    expect(bench.side.event('rejected')).toMatchObject({ reason });
    unused(bench, peer, connection);
  });

  it('a FIN takes along the octets in front of it (MPA-021, MPA-035)', () => {
    const { bench, peer, connection } = up();
    peer.sendFpdus([send(1)]);
    peer.end();
    bench.settle();
    unused(bench, peer, connection);
  });

  it('64 KiB are kept, one octet more ends the connection (MPA-037, SEC-033)', () => {
    const { bench, peer, connection } = up();
    for (let i = 0; i < 16; i++) peer.sendRaw(new Uint8Array(4096));
    bench.settle();
    expect(peer.ending).toBe('open');
    peer.sendRaw([1]);
    bench.settle();
    expect([bench.side.event('connect-error')!.reason, peer.ending]).toEqual(['extra-octets', 'fin']);
    unused(bench, peer, connection, 'connect-error');
  });

  it('no time-out runs, for the Reply is there (MPA-008, MPA-035)', () => {
    const { bench, connection } = up();
    bench.settle(100_000);
    connection.establish();
    bench.settle();
    expect(bench.side.event('established')).toBeDefined();
    expect(bench.side.sent()).toMatchObject([{ wrId: 2, status: 'success' }]);
  });

  const garbage: readonly (readonly [string, Uint8Array, string])[] = [
    ['octets that are no FPDU', Uint8Array.from([0, 16, ...count(22)]), '2/0/02'],
    ['a whole ULPDU that is too short', encodeFpdus([count(3)], { markers: false, crc: true }), '1/0/00'],
    [
      'an unknown opcode',
      encodeFpdus([untaggedUlpdu({ opcode: 13, qn: 0, msn: 1 })], { markers: false, crc: true }),
      '0/2/06',
    ],
  ];
  it.each(garbage)(
    '%s, in the delivery of the Reply or alone, count only when the program has confirmed (MPA-037, MPA-036)',
    (_name, octets, code) => {
      for (const together of [true, false]) {
        for (const confirms of [true, false]) {
          const { bench, peer, connection } = rawResponder({ connect: { confirm: true } });
          const reply = encodeStartup({ kind: 'reply', revision: 2, enhanced: PEER_ENHANCED });
          peer.claim(reply);
          if (together) peer.sendRaw([...reply, ...octets]);
          else for (const piece of [reply, octets.slice(0, 1), octets.slice(1)]) peer.sendRaw(piece);
          bench.settle(1000);
          expect(bench.side.events.map((event) => event.type)).toEqual(['connect-response']);
          expect(peer.behind().length).toBe(0);
          if (confirms) (connection as ActiveConnection).establish();
          else connection.disconnect();
          bench.settle();
          expect(peer.terminates()).toEqual(confirms ? [code] : []);
          expect([peer.problems(), peer.ending]).toEqual([[], 'fin']);
          peer.end();
          bench.run();
          expect(bench.side.events.at(-1)).toMatchObject({
            type: 'disconnected',
            cause: confirms ? 'terminated' : 'graceful',
          });
          expect(bench.side.qp.state).toBe(confirms ? 'error' : 'idle');
        }
      }
    },
  );

  it('a Terminate that came meanwhile is reported after confirm, not answered (RDMAP-079, MPA-036)', () => {
    const { bench, peer, connection } = up();
    peer.sendFpdus([
      untaggedUlpdu(
        { opcode: 7, qn: 2, msn: 1 },
        encodeTerminate({ layer: 2, etype: 0, code: 5, m: false, d: false, r: false, reserved: 0 }),
      ),
    ]);
    bench.settle();
    expect(bench.side.event('terminate')).toBeUndefined();
    connection.establish();
    bench.settle();
    expect(bench.side.event('terminate')!.terminate).toMatchObject({
      origin: 'remote',
      layer: 2,
      type: 0,
      code: 5,
    });
    expect([peer.terminates(), peer.ending]).toEqual([[], 'fin']);
    peer.end();
    bench.run();
    expect([bench.side.events.at(-1)!.type, bench.side.qp.state]).toEqual(['disconnected', 'error']);
  });

  it('Modify to Error resets and flushes posted work (VERBS-037, VERBS-056)', () => {
    const { bench, peer, connection } = up();
    bench.side.qp.modify({ state: 'error' });
    bench.settle();
    expect(peer.ending).toBe('reset');
    expect(() => connection.establish()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
    bench.run();
    expect([...bench.side.sent(), ...bench.side.received()].map((wc) => [wc.wrId, wc.status])).toEqual([
      [2, 'flushed'],
      [1, 'flushed'],
    ]);
    expect(bench.side.events.map((event) => event.type)).toEqual(['connect-response', 'disconnected']);
  });

  it('a bad or refusing Reply is reported as without confirm; nothing is held (MPA-008/019/033)', () => {
    const rows = [
      [
        'timeout',
        (peer: RawPeer) =>
          peer.sendRaw(encodeStartup({ kind: 'reply', privateData: count(10) }).slice(0, 25)),
      ],
      ['private-data-too-long', (peer: RawPeer) => peer.reply({ pdLength: 513 })],
      ['rejected', (peer: RawPeer) => peer.reply({ reject: true, privateData: count(9) })],
    ] as const;
    for (const [reason, speak] of rows) {
      const { bench, peer, connection } = rawResponder({ ...PLAIN, connect: { confirm: true } });
      speak(peer);
      bench.settle(11_000);
      expect(() => (connection as ActiveConnection).establish()).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_STATE' }),
      );
      if (reason === 'rejected')
        expect(bench.side.event('rejected')!.parameters.privateData).toEqual(count(9));
      else expect(bench.side.events[0]).toMatchObject(FAILURES[reason] ?? { type: 'connect-error', reason });
      bench.run();
      expect(bench.side.events.length).toBe(2);
      expect([bench.side.event('disconnected') !== undefined, bench.side.qp.state]).toEqual([true, 'idle']);
    }
  });
});

describe('bad Replies', () => {
  it('each octet of the key is compared; FIN at once and no FPDU (MPA-005, MPA-111, MPA-112)', () => {
    const good = encodeStartup({ kind: 'reply' });
    for (let octet = 0; octet < 16; octet++) {
      for (const flip of [0x01, 0x20, 0x80]) {
        const { bench, peer } = rawResponder(PLAIN);
        const bad = good.slice();
        bad[octet]! ^= flip;
        peer.sendRaw(bad);
        const before = bench.time.now();
        bench.settle();
        expect(peer.endedAt! - before).toBeLessThanOrEqual(2);
        failed(bench, peer, 'bad-key');
      }
    }
  });

  it('two initiators: a Request where a Reply belongs is refused by its key (MPA-006)', () => {
    const { bench, peer } = rawResponder(PLAIN);
    peer.request();
    bench.settle();
    failed(bench, peer, 'bad-key');
  });

  const frames: readonly (readonly [string, RawOptions, Omit<NaiveStartupInput, 'kind'>, string])[] = [
    ['PD_Length 513 (MPA-034, MPA-019)', PLAIN, { pdLength: 513 }, 'private-data-too-long'],
    ['PD_Length 600 (MPA-034, MPA-019)', PLAIN, { pdLength: 600 }, 'private-data-too-long'],
    ['PD_Length 65535 (MPA-034, MPA-019)', PLAIN, { pdLength: 65_535 }, 'private-data-too-long'],
    ['revision 3 (MPA-015)', {}, { revision: 3 }, 'unusable-revision'],
    ['revision 255, rejecting (MPA-015)', {}, { revision: 255, reject: true }, 'unusable-revision'],
    ['revision 2 to a Request of revision 1 (MPA-015)', PLAIN, { revision: 2 }, 'unusable-revision'],
    [
      'revision 0 without the permissive mode (MPA-049)',
      PLAIN,
      { revision: 0, markers: true },
      'unusable-revision',
    ],
    ['revision 0 to an enhanced Request (MPA-049)', {}, { revision: 0, markers: true }, 'unusable-revision'],
    [
      'S=1 without the four octets (ENH-005)',
      {},
      { revision: 2, enhancedData: true },
      'enhanced-data-missing',
    ],
    [
      'S=1 with three octets (ENH-005)',
      {},
      { revision: 2, enhancedData: true, privateData: count(3) },
      'enhanced-data-missing',
    ],
  ];
  it.each(frames)('%s closes in order, without an FPDU', (_, options, reply, reason) => {
    const { bench, peer } = rawResponderUp(options, reply);
    expect(peer.ending).toBe('fin');
    failed(bench, peer, reason);
  });

  it('FIN or RST before the Reply is whole fails the connection (MPA-021, ENH-047)', () => {
    for (const octets of [0, 1, 19, 20, 25]) {
      for (const leave of ['end', 'reset'] as const) {
        const { bench, peer } = rawResponder(PLAIN);
        peer.sendRaw(encodeStartup({ kind: 'reply', privateData: count(10) }).slice(0, octets));
        bench.settle();
        peer[leave]();
        bench.settle();
        expect(peer.behind().length).toBe(0);
        expect(bench.side.events[0]).toMatchObject(FAILURES[leave === 'end' ? 'truncated' : 'reset']!);
        expect(bench.side.events.at(-1)).toMatchObject({ type: 'disconnected' });
        expect(bench.side.qp.state).toBe('idle');
      }
    }
  });

  it('no Reply, or a Reply in drops, ends after the time-out (MPA-008)', () => {
    const frame = encodeStartup({ kind: 'reply' });
    for (const drops of [0, 1, 19]) {
      const { bench, peer } = rawResponder(PLAIN);
      for (let i = 0; i < drops; i++) {
        peer.sendRaw([frame[i]!]);
        bench.settle(400);
      }
      bench.settle(9900 - drops * 400);
      expect(peer.ending).toBe('open');
      bench.settle(200);
      expect(peer.ending).toBe('fin');
      failed(bench, peer, 'timeout');
    }
  });

  it('a Reply that comes after the time-out changes nothing', () => {
    const { bench, peer } = rawResponder({ policy: { mpaRevision: 1, replyTimeout: 50 } });
    bench.settle(60);
    peer.reply();
    peer.sendFpdus([send(1)]);
    bench.settle();
    failed(bench, peer, 'timeout');
  });

  it('a peer that holds the connection open after a bad Reply is reset after the close time-out', () => {
    const { bench, peer } = rawResponder(PLAIN);
    peer.sendRaw([0]);
    bench.settle(4900);
    expect(peer.ending).toBe('fin');
    bench.settle(200);
    expect(peer.ending).toBe('reset');
    expect(bench.side.events.map((event) => event.type)).toEqual(['connect-error', 'disconnected']);
  });

  it('a local disconnect or abort during start-up ends it without an error event', () => {
    for (const [leave, ending] of [
      ['disconnect', 'fin'],
      ['abort', 'reset'],
    ] as const) {
      const { bench, peer, connection } = rawResponder(PLAIN);
      connection[leave]();
      bench.settle();
      expect(peer.ending).toBe(ending);
      if (ending === 'fin') peer.end();
      bench.run();
      expect(bench.side.events.map((event) => event.type)).toEqual(['disconnected']);
      expect(bench.side.qp.state).toBe('idle');
    }
  });
});

describe('the silent-peer nudge', () => {
  const writes = (peer: RawPeer): number =>
    peer.segments().filter((segment) => segment.opcode === 0 && segment.payload.length === 0).length;
  const up = (silentPeerNudge?: number): ReturnType<typeof rawResponderUp> =>
    rawResponderUp({
      policy: { mpaRevision: 1, ...(silentPeerNudge === undefined ? {} : { silentPeerNudge }) },
    });

  it('one empty Write follows 200 ms after our first FPDU if nothing came; it is counted once', () => {
    const { bench, peer, connection } = up();
    bench.settle(1000);
    expect(writes(peer)).toBe(0); // armed by our first FPDU only
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.settle(190);
    expect(writes(peer)).toBe(0);
    bench.settle(20);
    expect(writes(peer)).toBe(1);
    expect(connection.counters().nudges).toBe(1);
    bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [] });
    bench.settle(5000);
    expect(writes(peer)).toBe(1);
    expect(connection.counters().nudges).toBe(1);
    expect(peer.problems()).toEqual([]);
    expect(bench.side.sent().map((wc) => wc.wrId)).toEqual([1, 2]); // the nudge completes nothing
  });

  it('a peer that speaks in time is not nudged', () => {
    const { bench, peer, connection } = up();
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.settle(150);
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 1, to: 0n })]);
    bench.settle(1000);
    expect(writes(peer)).toBe(0);
    expect(connection.counters().nudges).toBe(0);
  });

  it('switched off by 0, and never by a responder', async () => {
    const { bench, peer, connection } = up(0);
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.settle(5000);
    expect(writes(peer)).toBe(0);
    expect(connection.counters().nudges).toBe(0);
    const responder = await rawInitiatorUp();
    responder.peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 1, to: 0n })]);
    responder.bench.settle();
    responder.bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    responder.bench.settle(5000);
    expect(responder.peer.fpdus().length).toBe(1);
    expect(writes(responder.peer)).toBe(0);
  });

  it('a connection that ends is no longer nudged', () => {
    const { bench, peer, connection } = up(100);
    bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
    bench.side.connection!.disconnect();
    bench.settle(1000);
    expect(peer.ending).toBe('fin');
    expect(writes(peer)).toBe(0);
    expect(connection.counters().nudges).toBe(0);
  });
});
