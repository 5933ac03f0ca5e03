/**
 * Every state × input of the start-up and stream tables: a listed input leads to its state, another one is an
 * error and changes nothing.
 */
import { describe, expect, it } from 'vitest';
import { Machine, type MachineTable } from '../../src/base/fsm.ts';
import { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy, type RtrKind } from '../../src/mpa/policy.ts';
import {
  INITIATOR_TABLE,
  MpaInitiator,
  MpaResponder,
  RESPONDER_TABLE,
  type InitiatorInput,
  type InitiatorState,
  type ResponderInput,
  type ResponderState,
} from '../../src/mpa/startup.ts';
import { STREAM_INPUTS, STREAM_TABLE, type StreamInput, type StreamState } from '../../src/stream/states.ts';
import { encodeStartup } from '../support/naive/encoder.ts';

/** State, input, next, as in docs/state-machines.md. Everything else is an error. */
const INITIATOR: readonly (readonly [InitiatorState, InitiatorInput, InitiatorState])[] = [
  ['idle', 'start', 'wait-reply'],
  ['idle', 'lost', 'failed'],
  ['wait-reply', 'accepting-reply', 'operational'],
  ['wait-reply', 'rejecting-reply', 'rejected'],
  ['wait-reply', 'bad-frame', 'failed'],
  ['wait-reply', 'timeout', 'failed'],
  ['wait-reply', 'lost', 'failed'],
];
const RESPONDER: readonly (readonly [ResponderState, ResponderInput, ResponderState])[] = [
  ['wait-request', 'request', 'deciding'],
  ['wait-request', 'bad-frame', 'failed'],
  ['wait-request', 'timeout', 'failed'],
  ['wait-request', 'lost', 'failed'],
  ['deciding', 'accept', 'operational'],
  ['deciding', 'reject', 'rejected'],
  ['deciding', 'lost', 'failed'],
  ['deciding', 'bad-frame', 'failed'],
];
const STREAM: readonly (readonly [StreamState, StreamInput, StreamState])[] = [
  ['idle', 'start', 'startup'],
  ['idle', 'end-of-port', 'closed'],
  ['startup', 'request', 'deciding'],
  ['startup', 'establish', 'operational'],
  ['startup', 'leave', 'leaving'],
  ['startup', 'end-of-port', 'closed'],
  ['deciding', 'establish', 'operational'],
  ['deciding', 'leave', 'leaving'],
  ['deciding', 'end-of-port', 'closed'],
  ['operational', 'close', 'draining'],
  ['operational', 'finish', 'closing'],
  ['operational', 'terminate', 'terminating'],
  ['operational', 'end-of-port', 'closed'],
  ['draining', 'finish', 'closing'],
  ['draining', 'terminate', 'terminating'],
  ['draining', 'end-of-port', 'closed'],
  ['closing', 'end-of-port', 'closed'],
  ['terminating', 'end-of-port', 'closed'],
  ['leaving', 'end-of-port', 'closed'],
];

const INITIATOR_INPUTS: readonly InitiatorInput[] = [
  'start',
  'accepting-reply',
  'rejecting-reply',
  'bad-frame',
  'timeout',
  'lost',
];
const RESPONDER_INPUTS: readonly ResponderInput[] = [
  'request',
  'accept',
  'reject',
  'bad-frame',
  'timeout',
  'lost',
];

/** A machine brought into `state` by the shortest way that the table lists. */
function inState<S extends string, I extends string>(table: MachineTable<S, I>, state: S): Machine<S, I> {
  const ways = new Map<S, readonly I[]>([[table.initial, []]]);
  for (const [from, way] of ways) {
    for (const [input, to] of Object.entries(table.transitions[from]) as [I, S][])
      if (!ways.has(to)) ways.set(to, [...way, input]);
  }
  const machine = new Machine(table);
  const way = ways.get(state);
  if (way === undefined) throw new Error(`${table.name}: no way leads to ${state}`);
  for (const input of way) machine.step(input);
  return machine;
}

function holds<S extends string, I extends string>(
  table: MachineTable<S, I>,
  inputs: readonly I[],
  listed: readonly (readonly [S, I, S])[],
): void {
  const states = Object.keys(table.transitions) as S[];
  for (const state of states) {
    for (const input of inputs) {
      const machine = inState(table, state);
      expect(machine.state).toBe(state);
      const next = listed.find(([from, by]) => from === state && by === input)?.[2];
      const what = `${state} × ${input}`;
      expect(machine.accepts(input), what).toBe(next !== undefined);
      if (next === undefined) {
        expect(() => machine.step(input), what).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
        expect(machine.state, what).toBe(state);
      } else {
        expect(machine.step(input), what).toBe(next);
        expect(machine.state, what).toBe(next);
      }
    }
  }
}

describe('tables', () => {
  it('initiator, every state × input (MPA-027, MPA-033, MPA-036)', () =>
    holds(INITIATOR_TABLE, INITIATOR_INPUTS, INITIATOR));
  it('responder, every state × input (MPA-027, MPA-032, MPA-039)', () =>
    holds(RESPONDER_TABLE, RESPONDER_INPUTS, RESPONDER));
  it('stream, every state × input (MPA-107, MPA-109)', () => holds(STREAM_TABLE, STREAM_INPUTS, STREAM));
});

const policy = (partial: Partial<ConnectionPolicy> = {}): ConnectionPolicy => resolvePolicy(partial);
const NONE = new Uint8Array(0);
const WISHES = { ird: 4, ord: 4 };

function push(machine: MpaInitiator | MpaResponder, bytes: Uint8Array): number {
  return machine.handleBytes(bytes, 0, bytes.length);
}

describe('the machines in motion', () => {
  it('initiator: start once, then one final outcome', () => {
    const initiator = new MpaInitiator(policy(), NONE, WISHES);
    expect(initiator.state).toBe('idle');
    initiator.start();
    expect(initiator.state).toBe('wait-reply');
    expect(() => initiator.start()).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
    push(initiator, encodeStartup({ kind: 'reply' }));
    expect(initiator.state).toBe('operational');
    const { outcome } = initiator;
    expect(outcome).toMatchObject({ kind: 'accepted' });
    initiator.handleTimeout();
    initiator.handleLost();
    expect(initiator.outcome).toBe(outcome);
    expect(initiator.state).toBe('operational');
  });

  it.each([
    [
      'a rejecting Reply',
      (i: MpaInitiator): unknown => push(i, encodeStartup({ kind: 'reply', reject: true })),
      'rejected',
      { kind: 'rejected' },
    ],
    [
      'a bad key',
      (i: MpaInitiator): unknown => push(i, Uint8Array.of(1)),
      'failed',
      { kind: 'failed', reason: 'bad-key' },
    ],
    [
      'a Reply of revision 3',
      (i: MpaInitiator): unknown => push(i, encodeStartup({ kind: 'reply', revision: 3 })),
      'failed',
      { kind: 'failed', reason: 'unusable-revision', revision: 3 },
    ],
    [
      'a time-out',
      (i: MpaInitiator): unknown => i.handleTimeout(),
      'failed',
      { kind: 'failed', reason: 'timeout' },
    ],
    [
      'the loss of TCP',
      (i: MpaInitiator): unknown => i.handleLost(),
      'failed',
      { kind: 'failed', reason: 'truncated' },
    ],
  ] as const)('initiator: wait-reply ends by %s', (_, act, state, outcome) => {
    const initiator = new MpaInitiator(policy(), NONE, WISHES);
    initiator.start();
    act(initiator);
    expect(initiator.state).toBe(state);
    expect(initiator.outcome).toMatchObject(outcome);
  });

  it('responder: an answer before the Request, or a second one, is an error of the caller', () => {
    const early = new MpaResponder(policy());
    expect(() => early.reject(NONE)).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
    const responder = new MpaResponder(policy());
    push(responder, encodeStartup({ kind: 'request' }));
    expect(responder.state).toBe('deciding');
    responder.accept(NONE, WISHES);
    expect(responder.state).toBe('operational');
    expect(() => responder.reject(NONE)).toThrow(expect.objectContaining({ code: 'ERR_INTERNAL' }));
    responder.fail('lost', 'truncated');
    expect(responder.failure).toBeNull();
  });

  it('one frame for any cut and reserved bits; not an octet more is taken (MPA-011/013/023)', () => {
    const frame = encodeStartup({
      kind: 'request',
      reject: true,
      reserved: 0x0f,
      enhancedData: true,
      revision: 1,
      privateData: Uint8Array.of(1, 2, 3),
    });
    const stream = Uint8Array.from([...frame, 9, 9, 9]);
    for (let cut = 0; cut <= frame.length; cut++) {
      const responder = new MpaResponder(policy());
      const first = responder.handleBytes(stream, 0, cut);
      expect(first).toBe(cut);
      if (cut < frame.length) expect(responder.request).toBeNull();
      const rest = cut < frame.length ? responder.handleBytes(stream, cut, stream.length) : first;
      expect(rest).toBe(frame.length);
      // Below revision 2 the S bit is one of the reserved ones (ENH-001).
      expect(responder.request).toMatchObject({
        revision: 1,
        enhanced: null,
        privateData: Uint8Array.of(1, 2, 3),
      });
    }
  });
});

describe('policy', () => {
  it('without any RTR kind a policy is refused (ENH-033)', () => {
    for (const name of ['rtrOffered', 'rtrAccepted'] as const) {
      expect(() => resolvePolicy({ [name]: [] })).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
    }
    expect(DEFAULT_POLICY.rtrAccepted.length).toBeGreaterThan(0);
  });

  it('depths outside the 14 bits, or equal to the code for "not negotiated", are refused (ENH-014)', () => {
    for (const name of ['ird', 'ord', 'maxIrd', 'requiredOrd'] as const) {
      for (const depth of [-1, 1.5, 0x3fff, 0x4000, Number.NaN]) {
        expect(() => resolvePolicy({ [name]: depth }), `${name} ${depth}`).toThrow(
          expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
        );
      }
      expect(resolvePolicy({ [name]: 0x3ffe })[name]).toBe(0x3ffe);
    }
  });

  it('every wrong value and unknown name throws with a code', () => {
    const wrong: Record<string, unknown> = {
      mpaRevision: 3,
      markers: 1,
      crc: 'yes',
      peerToPeer: null,
      rtrOffered: ['push'],
      negotiateDepths: 'no',
      emss: 10,
      responder: 'fast',
      responderDelay: -1,
      replyTimeout: 0,
      requestTimeout: 0,
      closeTimeout: 0,
      silentPeerNudge: -1,
      interleave: 0,
      marker: true,
      toString: 1,
    };
    for (const [name, value] of Object.entries(wrong)) {
      expect(() => resolvePolicy({ [name]: value } as never), name).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
    }
    expect(() => resolvePolicy(null as never)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
    );
  });

  it('a list of kinds is kept as it was given, whatever the caller does with it later (ENH-033)', () => {
    const kinds: RtrKind[] = ['write'];
    const { rtrOffered, rtrAccepted } = resolvePolicy({ rtrOffered: kinds, rtrAccepted: kinds });
    kinds.length = 0;
    expect([rtrOffered, rtrAccepted]).toEqual([['write'], ['write']]);
  });
});
