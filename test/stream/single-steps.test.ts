/**
 * What a stream makes of each input in each state, between the steps of an engine: calls that come too early
 * or too late, ends in every order, deadlines to the millisecond. RFC 5044 7.1, RFC 5040 6, verbs draft 6.2.
 */
import { describe, expect, it } from 'vitest';
import { NO_BYTES } from '../../src/base/copy.ts';
import { trace } from '../../src/base/fsm.ts';
import { TERM } from '../../src/base/terminate-codes.ts';
import type { Role } from '../../src/llp/startup.ts';
import type { RdmaStream } from '../../src/stream/stream.ts';
import { OP, pattern, readRequest, send, write } from '../rdmap/scripted.ts';
import { LoneStream } from '../support/lone-stream.ts';
import { decodeStartup } from '../support/naive/decoder.ts';
import { encodeTerminate, untaggedUlpdu } from '../support/naive/encoder.ts';

const ROLES: readonly Role[] = ['initiator', 'responder'];
const NEVER = Number.POSITIVE_INFINITY;
const CLOSE = 5000;

const codes = (octets: Uint8Array | null): string[] =>
  LoneStream.segments(octets).map(({ opcode, terminate }) =>
    terminate === undefined ? String(opcode) : `${terminate.layer}/${terminate.etype}/${terminate.code}`,
  );

describe('a stream before full operation', () => {
  it('has plain zeros to show, no depth, and the time of its last input', () => {
    const lone = new LoneStream({ role: 'initiator' });
    const { stream } = lone;
    const zeros = (): void => {
      const { payloadIn, payloadOut, fpdusIn, fpdusOut, crcErrors, nudges } = stream.counters();
      for (const count of [payloadIn, payloadOut, fpdusIn, fpdusOut, crcErrors, nudges])
        expect(count).toBe(0); // and not -0
    };
    zeros();
    expect(stream.counters().octetsIn).toBe(0);
    stream.ord = 3;
    expect([stream.ord, stream.now]).toEqual([0, 0]);
    stream.kick(7);
    expect(stream.now).toBe(7);
    lone.operational();
    zeros();
    stream.ord = 3;
    expect(stream.ord).toBe(3);
  });

  it.each(ROLES)('%s: an answer in the wrong state changes nothing', (role) => {
    const calls: ((stream: RdmaStream, lone: LoneStream) => void)[] = [
      (stream, lone) => stream.accept(1, lone.qp, NO_BYTES, {}),
      (stream) => stream.reject(1, NO_BYTES),
      (stream) => stream.confirm(1),
    ];
    for (const call of calls) {
      for (const state of ['idle', 'startup', 'operational', 'closed'] as const) {
        const lone = new LoneStream({ role });
        const { stream } = lone;
        if (state === 'startup') lone.started();
        if (state === 'operational' || state === 'closed') lone.operational();
        if (state === 'closed') stream.handleClose(undefined, 0);
        lone.events();
        const due = stream.pollTimeout();
        call(stream, lone);
        expect([stream.state, lone.write(), lone.events(), stream.pollTimeout()]).toEqual([
          ...[state, null, [], due],
        ]);
      }
    }
  });

  it('that is closed before its start ends in order; one whose port goes has failed', () => {
    const lone = new LoneStream({ role: 'initiator' });
    lone.stream.close(3);
    expect(lone.stream.pollClose()).toBe('reset');
    lone.stream.handleClose(undefined, 4);
    expect(lone.events()).toEqual([{ type: 'closed', cause: 'graceful', error: undefined }]);
    const error = new Error('gone');
    for (const [failure, reason] of [
      [undefined, 'truncated'],
      [error, 'reset'],
    ] as const) {
      const { stream } = new LoneStream({ role: 'initiator' });
      stream.handleClose(failure, 4);
      expect([stream.pollEvent(), stream.pollEvent(), stream.pollEvent()]).toEqual([
        { type: 'startup-failed', reason },
        { type: 'closed', cause: 'startup-failed', error: failure },
        null,
      ]);
    }
  });

  it.each(ROLES)('%s: a port that goes is a failure, and the end of the machine of MPA', (role) => {
    for (const [failure, reason] of [
      [undefined, 'truncated'],
      [new Error('gone'), 'reset'],
    ] as const) {
      const lone = new LoneStream({ role }).started();
      const steps: string[] = [];
      trace.transition = ({ table, input }) => void steps.push(`${table}: ${input}`);
      try {
        lone.stream.handleClose(failure, 4);
      } finally {
        trace.transition = null;
      }
      expect(steps).toEqual(['RDMA stream: end-of-port', `MPA ${role}: lost`]);
      expect(lone.events()).toEqual([
        { type: 'startup-failed', reason },
        { type: 'closed', cause: 'startup-failed', error: failure },
      ]);
      expect(lone.stream.pollTimeout()).toBe(NEVER);
    }
  });

  it('that the program has closed ends in order, even if the port fails then', () => {
    const lone = new LoneStream({ role: 'initiator' }).started();
    const error = new Error('gone');
    lone.stream.close(10);
    expect([lone.stream.state, lone.stream.pollClose(), lone.stream.pollTimeout()]).toEqual([
      ...['leaving', 'end', 10 + CLOSE],
    ]);
    lone.stream.handleClose(error, 11);
    expect(lone.events()).toEqual([{ type: 'closed', cause: 'graceful', error }]);
  });

  it('is displaced while its Request is not there, and never later (SEC-033)', () => {
    const lone = new LoneStream({ role: 'responder' }).started();
    lone.stream.displace(2);
    expect([lone.stream.pollTimeout(), lone.stream.pollClose()]).toEqual([NEVER, 'reset']);
    lone.stream.handleClose(undefined, 3);
    expect(lone.events()).toEqual([
      { type: 'startup-failed', reason: 'displaced' },
      { type: 'closed', cause: 'startup-failed', error: undefined },
    ]);
    for (const late of [
      new LoneStream({ role: 'responder' }).answered(),
      new LoneStream({ role: 'responder' }).operational(),
    ]) {
      late.events();
      const { state } = late.stream;
      late.stream.displace(2);
      expect([late.stream.state, late.events(), late.stream.pollClose()]).toEqual([state, [], 'none']);
    }
  });

  it.each(ROLES)('%s: Modify to Terminate waits for a connection: nothing is said', (role) => {
    for (const lone of [new LoneStream({ role }), new LoneStream({ role }).started()]) {
      const { state } = lone.stream;
      lone.stream.terminate(2, TERM.LOCAL_CATASTROPHIC);
      expect([lone.stream.state, lone.write(), lone.events()]).toEqual([state, null, []]);
      expect(lone.stream.pollClose()).toBe('none');
    }
  });
});

describe('start-up', () => {
  it('goes on when the rest of a frame is there', () => {
    const lone = new LoneStream({ role: 'responder' }).started();
    const frame = lone.frame();
    lone.give(frame.subarray(0, 7), 1);
    expect([lone.stream.state, lone.events(), lone.stream.pollTimeout()]).toEqual(['startup', [], CLOSE]);
    lone.give(frame.subarray(7), 2);
    expect([lone.stream.state, lone.events().map(({ type }) => type)]).toEqual(['deciding', ['request']]);
    expect(lone.stream.pollTimeout()).toBe(NEVER);
  });

  it('ends with the fault of a frame, after its time, and with the connection', () => {
    const fault = (how: (lone: LoneStream) => void): unknown => {
      const lone = new LoneStream({ role: 'responder' }).started();
      how(lone);
      const action = lone.stream.pollClose();
      const { state } = lone.stream;
      lone.stream.handleClose(undefined, 9000);
      return [state, action, lone.events().map((event) => Object.values(event)[1] as unknown)];
    };
    expect(fault((lone) => lone.give(lone.frame({ key: new Uint8Array(16) }), 1))).toEqual([
      ...['leaving', 'end', ['bad-key', 'startup-failed']],
    ]);
    expect(fault((lone) => lone.give(lone.frame({ revision: 2 }), 1))).toEqual([
      ...['startup', 'reset', ['unusable-revision', 'startup-failed']],
    ]);
    // MPA-048: of an RDMA Consortium peer, which is sent our revision first.
    expect(fault((lone) => lone.give(lone.frame({ revision: 0 }), 1))).toEqual([
      ...['leaving', 'end', ['unusable-revision', 'startup-failed']],
    ]);
    const initiator = new LoneStream({ role: 'initiator' }).answered({ revision: 2 });
    expect([initiator.stream.state, initiator.stream.pollClose()]).toEqual(['leaving', 'end']); // MPA-049
    expect(fault((lone) => lone.stream.handleTimeout(CLOSE - 1))).toEqual([
      ...['startup', 'none', ['truncated', 'startup-failed']],
    ]);
    expect(fault((lone) => lone.stream.handleTimeout(CLOSE))).toEqual([
      ...['leaving', 'end', ['timeout', 'timeout']],
    ]);
    expect(fault((lone) => lone.stream.handleEnd(1))).toEqual(['leaving', 'end', ['truncated', 'lost']]);
  });

  it('that is aborted asks for a reset and nothing later, though its time runs out then', () => {
    const lone = new LoneStream({ role: 'responder' }).started();
    lone.stream.abort(1);
    expect(lone.stream.pollClose()).toBe('reset');
    lone.stream.handleTimeout(CLOSE);
    expect(lone.stream.pollClose()).toBe('none');
  });

  it('waits for the word of a responder: a peer that leaves fails it, and the program may close it', () => {
    const end = (how: (stream: RdmaStream) => void): unknown => {
      const lone = new LoneStream({ role: 'responder' }).answered();
      lone.events();
      how(lone.stream);
      const { state } = lone.stream;
      const write = lone.write();
      const action = lone.stream.pollClose();
      lone.stream.handleClose(undefined, 9000);
      return [state, write, action, lone.events().map((event) => Object.values(event)[1] as unknown)];
    };
    expect(end((stream) => stream.close(1))).toEqual(['leaving', null, 'end', ['graceful']]);
    expect(end((stream) => stream.handleEnd(1))).toEqual(['leaving', null, 'end', ['truncated', 'lost']]);
    expect(end((stream) => stream.handleClose(undefined, 1))).toEqual([
      ...['closed', null, 'none', ['truncated', 'startup-failed']],
    ]);
    expect(end(() => undefined)).toEqual(['deciding', null, 'none', ['truncated', 'startup-failed']]);
  });

  it('is refused with a frame, then FIN (MPA-038)', () => {
    const lone = new LoneStream({ role: 'responder' }).answered();
    lone.events();
    lone.stream.reject(3, Uint8Array.of(7));
    expect([lone.stream.state, lone.stream.now, lone.stream.pollTimeout()]).toEqual([
      ...['leaving', 3, 3 + CLOSE],
    ]);
    expect(decodeStartup(lone.send(4))?.frame).toMatchObject({
      kind: 'reply',
      reject: true,
      privateData: Uint8Array.of(7),
    });
    expect(lone.stream.pollClose()).toBe('end');
    lone.stream.handleClose(undefined, 5);
    expect(lone.events()).toEqual([{ type: 'closed', cause: 'rejected', error: undefined }]);
  });

  it('is refused by a peer', () => {
    const lone = new LoneStream({ role: 'initiator' });
    lone.answered({ reject: true, privateData: Uint8Array.of(5) });
    expect([lone.stream.state, lone.stream.pollClose()]).toEqual(['leaving', 'end']);
    lone.stream.handleClose(undefined, 5);
    expect(lone.events()).toMatchObject([
      { type: 'rejected', privateData: Uint8Array.of(5), markersAsked: false },
      { type: 'closed', cause: 'rejected' },
    ]);
  });

  it('waits for the word of an initiator, if that is asked for (MPA-035)', () => {
    const lone = new LoneStream({ role: 'initiator', confirm: true });
    lone.answered({ privateData: Uint8Array.of(5) });
    expect([lone.stream.state, lone.stream.pollTimeout()]).toEqual(['deciding', NEVER]);
    expect(lone.events()).toMatchObject([{ type: 'response', privateData: Uint8Array.of(5) }]);
    lone.stream.confirm(6);
    expect([lone.stream.state, lone.stream.now]).toEqual(['operational', 6]);
    expect(lone.events()).toMatchObject([{ type: 'established', privateData: Uint8Array.of(5) }]);
    const direct = new LoneStream({ role: 'initiator' }).answered();
    expect(direct.events().map(({ type }) => type)).toEqual(['established']);
  });

  it('keeps the first octets behind a frame for full operation, as many as it has room for (MPA-026)', () => {
    const lone = new LoneStream({ role: 'initiator', confirm: true });
    lone.answered();
    lone.give(lone.fpdus(send(1, pattern(3))), 1);
    const mr = lone.region(3);
    lone.qp.postRecv({ sges: [{ mr }] });
    expect([lone.stream.state, [...mr.bytes]]).toEqual(['deciding', [0, 0, 0]]);
    lone.stream.confirm(2);
    expect([lone.stream.state, [...mr.bytes]]).toEqual(['operational', [...pattern(3)]]);
    const flooded = new LoneStream({ role: 'initiator', confirm: true }).answered();
    flooded.events();
    flooded.give(new Uint8Array(1 << 20), 1);
    expect([flooded.stream.state, flooded.events()]).toEqual([
      ...['leaving', [{ type: 'startup-failed', reason: 'extra-octets' }]],
    ]);
  });

  it('settles an ORD that neither the peer nor the queue pair is made for', () => {
    const ord = (policy: number, qp: number): number =>
      new LoneStream({ role: 'initiator', policy: { ord: policy }, ord: qp }).operational().stream.ord;
    expect([ord(5, 2), ord(2, 5)]).toEqual([2, 2]);
  });
});

describe('a responder that has heard no FPDU', () => {
  const silent = (responder: 'strict' | 'relaxed'): LoneStream =>
    new LoneStream({ role: 'responder', policy: { responder, silentPeerNudge: 200 } }).operational();

  it('says not even a Terminate if it is strict; a relaxed one does (MPA-028)', () => {
    const strict = silent('strict');
    expect(strict.stream.pollTimeout()).toBe(NEVER);
    strict.stream.terminate(1, TERM.LOCAL_CATASTROPHIC);
    expect([strict.write(), strict.stream.pollClose()]).toEqual([null, 'end']);
    const relaxed = silent('relaxed');
    relaxed.stream.terminate(1, TERM.LOCAL_CATASTROPHIC);
    expect([codes(relaxed.write()), relaxed.stream.pollClose()]).toEqual([['0/0/0'], 'end']);
  });

  it('if relaxed sends after its delay, and nudges none: the initiator has to speak first', () => {
    const lone = silent('relaxed');
    lone.qp.postSend({ opcode: 'send', inline: pattern(3) });
    expect([lone.write(), lone.stream.pollTimeout()]).toEqual([null, 50]);
    lone.stream.handleTimeout(49);
    expect(lone.write()).toBe(null);
    lone.stream.handleTimeout(50);
    expect(codes(lone.write())).toEqual([String(OP.send)]);
    lone.stream.handleTransmitted(true, 60);
    expect(lone.stream.pollTimeout()).toBe(NEVER);
  });
});

describe('a silent responder', () => {
  const speaking = (): LoneStream => {
    const lone = new LoneStream({ role: 'initiator', policy: { silentPeerNudge: 200 } }).operational();
    lone.qp.postSend({ opcode: 'send', inline: pattern(3) });
    lone.write();
    return lone;
  };

  it('is nudged once, from our first FPDU on', () => {
    const lone = speaking();
    expect(lone.stream.pollTimeout()).toBe(NEVER);
    lone.stream.handleTransmitted(true, 10);
    expect(lone.stream.pollTimeout()).toBe(210);
    lone.stream.handleTimeout(209);
    expect(lone.write()).toBe(null);
    lone.stream.handleTimeout(210);
    const [nudge] = LoneStream.segments(lone.send(210));
    expect(nudge).toMatchObject({ opcode: OP.write, stag: 0, payload: new Uint8Array(0) });
    expect([lone.stream.pollTimeout(), lone.stream.counters().nudges]).toEqual([NEVER, 1]);
  });

  it('that has spoken in time needs none, then and later', () => {
    const early = speaking();
    early.give(early.fpdus(write(0, 0n)), 5);
    early.stream.handleTransmitted(true, 10);
    expect(early.stream.pollTimeout()).toBe(NEVER);
    const late = speaking();
    late.stream.handleTransmitted(true, 10);
    late.give(late.fpdus(write(0, 0n)), 15);
    late.qp.postSend({ opcode: 'send', inline: pattern(3) });
    late.send(20);
    expect(late.stream.pollTimeout()).toBe(NEVER);
  });

  it('is nudged while we close, and no longer once a Terminate is under way', () => {
    const closing = speaking();
    closing.stream.close(5);
    closing.stream.handleTransmitted(true, 10);
    expect([closing.stream.state, closing.stream.pollTimeout()]).toEqual(['draining', 210]);
    const ending = speaking();
    ending.stream.terminate(5, TERM.LOCAL_CATASTROPHIC);
    ending.stream.handleTransmitted(true, 10);
    expect(ending.stream.pollTimeout()).toBe(10 + CLOSE);
  });
});

describe('a close of our own', () => {
  /** A Read of 16 octets waits for its answer. */
  const reading = (): LoneStream => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    const mr = lone.region(16);
    lone.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    lone.send(0);
    return lone;
  };

  it('is one close, however often it is asked for', () => {
    const lone = reading();
    const { stream } = lone;
    stream.close(1);
    stream.close(2);
    expect([stream.state, stream.pollClose(), lone.events()]).toEqual([
      ...['draining', 'none', [{ type: 'closing', by: 'local' }]],
    ]);
    const idle = new LoneStream({ role: 'initiator' }).operational();
    idle.stream.close(1);
    expect([idle.stream.pollClose(), idle.stream.state]).toEqual(['end', 'closing']);
    idle.stream.close(2);
    expect([idle.stream.pollClose(), idle.stream.state]).toEqual(['none', 'closing']);
    idle.stream.handleClose(undefined, 3);
    idle.stream.close(4);
    expect(idle.events().map(({ type }) => type)).toEqual(['closing', 'closed']);
  });

  it('waits for an answer as long as octets come, and for nothing else that comes', () => {
    const some = (lone: LoneStream): Uint8Array => lone.fpdus(write(0, 0n));
    const waiting = reading();
    waiting.stream.close(0);
    expect(waiting.stream.pollTimeout()).toBe(CLOSE);
    waiting.stream.handleBytes(NO_BYTES, 0, 0, 50);
    expect(waiting.stream.pollTimeout()).toBe(CLOSE);
    waiting.give(some(waiting), 100);
    expect(waiting.stream.pollTimeout()).toBe(CLOSE + 100);
    const sending = new LoneStream({ role: 'initiator' }).operational();
    sending.qp.postSend({ opcode: 'send', sges: [{ mr: sending.region(400_000) }] });
    sending.write();
    sending.stream.close(0);
    sending.give(some(sending), 100);
    expect(sending.stream.pollTimeout()).toBe(CLOSE);
    sending.stream.handleTransmitted(true, 200);
    expect(sending.stream.pollTimeout()).toBe(CLOSE + 200);
  });

  it('that is over hears no octets in an empty delivery, and a bad close in any other', () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    lone.stream.close(1);
    expect(lone.stream.pollClose()).toBe('end');
    lone.stream.handleBytes(NO_BYTES, 0, 0, 2);
    expect(lone.stream.pollClose()).toBe('none');
    lone.stream.handleBytes(pattern(1), 0, 1, 3);
    expect(lone.stream.pollClose()).toBe('reset');
  });

  it("that meets the peer's is one close, begun by us", () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    lone.stream.close(1);
    lone.stream.handleEnd(1);
    expect([lone.stream.state, lone.stream.pollClose(), lone.events()]).toEqual([
      ...['closing', 'end', [{ type: 'closing', by: 'local' }]],
    ]);
  });

  it('ends with a Terminate if the program then asks for that', () => {
    const lone = reading();
    lone.stream.close(1);
    lone.stream.terminate(2, 0x1203);
    expect([lone.stream.state, codes(lone.write()), lone.stream.pollClose()]).toEqual([
      ...['terminating', ['1/2/3'], 'end'],
    ]);
  });

  it('may be aborted: a reset is all that the port is asked for, and all that is reported', () => {
    for (const lone of [reading(), new LoneStream({ role: 'initiator' }).operational()]) {
      lone.stream.close(1);
      lone.qp.postSend({ opcode: 'send', inline: pattern(3) });
      lone.stream.abort(2);
      expect([lone.write(), lone.stream.pollClose(), lone.stream.pollClose()]).toEqual([
        ...[null, 'reset', 'none'],
      ]);
      lone.stream.handleTimeout(CLOSE + 10);
      lone.stream.pollClose();
      lone.stream.handleClose(undefined, CLOSE + 11);
      expect(lone.events().at(-1)).toEqual({ type: 'closed', cause: 'reset', error: undefined });
    }
  });
});

describe('the end of a port', () => {
  it('that nothing has announced is a loss, and with an error a reset; then nothing is sent', () => {
    for (const [error, cause] of [
      [undefined, 'lost'],
      [new Error('gone'), 'reset'],
    ] as const) {
      const lone = new LoneStream({ role: 'initiator' }).operational();
      lone.stream.handleClose(error, 1);
      expect(lone.events()).toEqual([{ type: 'closed', cause, error }]);
      lone.qp.postSend({ opcode: 'send', inline: pattern(3) });
      expect([lone.write(), lone.stream.pollClose()]).toEqual([null, 'none']);
    }
  });

  it('after an abort sends nothing of what was posted', () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    lone.qp.postSend({ opcode: 'send', inline: pattern(3) });
    lone.stream.abort(1);
    expect([lone.write(), lone.stream.pollClose(), lone.write()]).toEqual([null, 'reset', null]);
  });

  it('after a Terminate has its cause, though an abort comes between', () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    lone.stream.terminate(1, 0x0203);
    lone.stream.abort(2);
    lone.stream.handleClose(undefined, 3);
    expect(lone.events().at(-1)).toMatchObject({ type: 'closed', cause: 'terminated' });
  });

  it('after our FIN that has failed is a reset: the system may not have sent all (VERBS-044)', () => {
    for (const [error, cause] of [
      [undefined, 'graceful'],
      [new Error('gone'), 'reset'],
    ] as const) {
      const lone = new LoneStream({ role: 'initiator' }).operational();
      lone.stream.close(1);
      lone.stream.pollClose();
      lone.stream.handleClose(error, 2);
      expect(lone.events().at(-1)).toEqual({ type: 'closed', cause, error });
    }
  });
});

describe('a fault of our own', () => {
  it('is said in the write that meets it (VERBS-057, VERBS-073)', () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    const mr = lone.region(16);
    lone.stream.ord = 0;
    lone.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    expect(codes(lone.write())).toEqual(['0/0/0']);
    expect([lone.stream.state, lone.stream.pollClose()]).toEqual(['terminating', 'end']);
  });
});

describe('a Terminate of the peer', () => {
  it('is reported as it came, and answered with FIN alone (RDMAP-079)', () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    const said = { layer: 0, etype: 2, code: 7, m: false, d: false, r: false, reserved: 0 };
    lone.give(lone.fpdus(untaggedUlpdu({ opcode: OP.terminate, qn: 2, msn: 1 }, encodeTerminate(said))), 1);
    expect([lone.stream.state, lone.write(), lone.stream.pollClose()]).toEqual(['terminating', null, 'end']);
    expect(lone.events()).toMatchObject([
      { type: 'terminate', terminate: { origin: 'remote', layer: 0, type: 2, code: 7 } },
    ]);
  });

  it('that is malformed ends the stream without a word (RDMAP-081)', () => {
    const lone = new LoneStream({ role: 'initiator' }).operational();
    lone.give(lone.fpdus(untaggedUlpdu({ opcode: OP.terminate, qn: 2, msn: 2 }, new Uint8Array(4))), 1);
    expect([lone.stream.state, lone.write(), lone.stream.pollClose()]).toEqual(['terminating', null, 'end']);
    expect(lone.events()).toEqual([]);
  });
});

describe('a Terminate', () => {
  const asked = (octets: number, ...more: Uint8Array[]): LoneStream => {
    const lone = new LoneStream({ role: 'responder' }).operational();
    const { rkey } = lone.region(octets);
    lone.give(lone.fpdus(readRequest(1, { size: octets, sourceStag: rkey }), ...more), 0);
    return lone;
  };

  it('behind the responses that are owed may take as long as they do (RDMAP-074)', () => {
    const lone = asked(1 << 20, readRequest(2, { size: 4, sourceStag: 1 }));
    expect([lone.stream.state, lone.stream.pollTimeout()]).toEqual(['terminating', CLOSE]);
    lone.write();
    lone.stream.handleTransmitted(true, 4900);
    expect(lone.stream.pollTimeout()).toBe(4900 + CLOSE);
  });

  it('that comes next may take its own time, whatever is owed', () => {
    const lone = asked(1 << 20);
    lone.stream.terminate(0, TERM.LOCAL_CATASTROPHIC);
    expect([codes(lone.write()), lone.stream.pollTimeout()]).toEqual([['0/0/0'], CLOSE]);
    lone.stream.handleTransmitted(true, 4900);
    expect(lone.stream.pollTimeout()).toBe(CLOSE);
  });
});

describe('the memory that the next octets had best be read into', () => {
  it('is the place in a long FPDU where they belong; before full operation and between FPDUs none', () => {
    const lone = new LoneStream({ role: 'responder' });
    expect(lone.stream.readTarget()).toBeUndefined();
    lone.operational();
    expect(lone.stream.readTarget()).toBeUndefined();
    const mr = lone.region(50_000);
    lone.qp.postRecv({ sges: [{ mr }] });
    const payload = pattern(50_000);
    const octets = lone.fpdus(send(1, payload));
    lone.give(octets.subarray(0, 1000), 1);
    const target = lone.stream.readTarget()!;
    expect(target.length).toBe(octets.length - 1000);
    target.set(octets.subarray(1000));
    lone.stream.handleBytes(target, 0, target.length, 2);
    expect(Buffer.compare(mr.bytes, payload)).toBe(0);
    expect(lone.stream.readTarget()).toBeUndefined();
  });
});
