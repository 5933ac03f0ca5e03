// The tables of the connection manager, state by input; and what the calls of a program do in late states.
import { describe, expect, it, vi } from 'vitest';
import type { ActiveConnection, PassiveConnection } from '../../src/cm/index.ts';
import {
  ACTIVE_INPUTS,
  ACTIVE_STATES,
  ACTIVE_TABLE,
  LISTENER_INPUTS,
  LISTENER_STATES,
  LISTENER_TABLE,
  PASSIVE_INPUTS,
  PASSIVE_STATES,
  PASSIVE_TABLE,
} from '../../src/cm/states.ts';
import { SLOT_INPUTS, SLOT_STATES, SLOT_TABLE } from '../../src/engine/listener-limits.ts';
import { trace, type Transition } from '../../src/base/fsm.ts';
import { startupError, startupStatus } from '../../src/cm/connect-failure.ts';
import { STARTUP_FAILURES } from '../../src/llp/startup.ts';
import { rawInitiator, rawInitiatorUp, rawResponder } from '../support/raw-peer.ts';
import { tableSteps } from '../support/table-steps.ts';

describe('state tables of the connection manager, state by input', () => {
  it('the active side', () => {
    // opened, response, confirm, establish, reject, startup-failed, close, cancel, ended, heard
    expect(tableSteps(ACTIVE_TABLE, ACTIVE_STATES, ACTIVE_INPUTS)).toEqual({
      connecting: 'requesting · · · · leaving · ended · ·',
      requesting: '· deciding · established leaving leaving · · ended ·',
      deciding: '· · confirming · · lapsed · · expired ·',
      confirming: '· · · established · leaving · · ended ·',
      established: '· · · · · · closing · ended ·',
      closing: '· · · · · · closing · ended ·',
      leaving: '· · · · · leaving · · ended ·',
      lapsed: '· · leaving · · · · · expired leaving',
      expired: '· · ended · · · · · · ended',
      ended: '· · · · · · · · · ·',
    });
  });

  it('the passive side: request, accept, reject, establish, startup-failed, leave, close, ended', () => {
    expect(tableSteps(PASSIVE_TABLE, PASSIVE_STATES, PASSIVE_INPUTS)).toEqual({
      starting: 'requested · · · leaving leaving · ended',
      requested: '· accepting leaving · lapsed lapsed · expired',
      accepting: '· · · established leaving accepting · ended',
      established: '· · · · · established closing ended',
      closing: '· · · · · closing closing ended',
      leaving: 'leaving · · · leaving leaving · ended',
      lapsed: '· leaving leaving · lapsed lapsed · expired',
      expired: '· ended ended · · expired · ·',
      ended: '· · · · · ended · ·',
    });
  });

  it('the listener: bound, bind-failed, close, released', () => {
    expect(tableSteps(LISTENER_TABLE, LISTENER_STATES, LISTENER_INPUTS)).toEqual({
      binding: 'listening closed · ·',
      listening: '· · closing ·',
      closing: '· · closing closed',
      closed: '· · closed ·',
    });
  });

  it('a slot of the listener: request, accept, answer, leave, gone', () => {
    expect(tableSteps(SLOT_TABLE, SLOT_STATES, SLOT_INPUTS)).toEqual({
      starting: 'waiting · · leaving free',
      waiting: '· accepted answered leaving free',
      accepted: '· · answered accepted free',
      answered: '· · · answered free',
      leaving: 'leaving leaving leaving leaving free',
      free: 'free free free free free',
    });
  });
});

describe('the steps of a connection', () => {
  /** The states that machines of this table go through during `run`. */
  function statesDuring(table: string, run: () => void): string[] {
    const states: string[] = [];
    trace.transition = (step: Transition) => {
      if (step.table === table) states.push(step.to);
    };
    try {
      run();
    } finally {
      trace.transition = null;
    }
    return states;
  }

  it('that confirms, works and closes: every state has its input', () => {
    const states = statesDuring('active connection', () => {
      const { bench, peer, connection } = rawResponder({ connect: { confirm: true } });
      peer.reply({ revision: 1 });
      bench.settle();
      (connection as ActiveConnection).establish();
      connection.disconnect();
      bench.settle();
      peer.end();
      bench.run();
    });
    expect(states).toEqual(['requesting', 'deciding', 'confirming', 'established', 'closing', 'ended']);
  });

  it('whose peer leaves before the confirmation: it is too late, and no mistake; the second one is', () => {
    const { bench, peer, connection } = rawResponder({ connect: { confirm: true } });
    const active = connection as ActiveConnection;
    peer.reply({ revision: 1 });
    bench.settle();
    const deferred: (() => void)[] = [];
    vi.spyOn(bench.side.device, 'defer').mockImplementation((task) => void deferred.push(task));
    peer.reset();
    bench.run();
    expect([active.state, active.finished, deferred.length]).toEqual(['expired', true, 2]);
    active.establish();
    expect(() => active.establish()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
  });

  it('answered late: an accept is too late, and no mistake; the second one is', async () => {
    const { bench, peer } = await rawInitiator({ onRequest: () => undefined });
    peer.request({ revision: 1 });
    bench.settle();
    const connection = bench.incoming[0]!.connection as PassiveConnection;
    peer.reset();
    bench.run();
    expect([connection.state, connection.finished]).toEqual(['expired', true]);
    connection.accept(bench.side.qp);
    expect(bench.side.qp.state).toBe('idle');
    expect(() => connection.accept(bench.side.qp)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_STATE' }),
    );
  });

  it('given up by the program before its answer: the answer changes nothing, no frame leaves', async () => {
    const { bench, peer } = await rawInitiator({ onRequest: () => undefined });
    peer.request({ revision: 1 });
    bench.settle();
    const connection = bench.incoming[0]!.connection as PassiveConnection;
    connection.abort();
    connection.accept(bench.side.qp);
    bench.run();
    expect([connection.state, bench.side.qp.state, peer.received.length]).toEqual(['ended', 'idle', 0]);
  });

  it('closed in every way ends in `ended` (VERBS-045)', async () => {
    for (const leave of ['disconnect', 'abort'] as const) {
      const { bench, peer } = await rawInitiatorUp();
      const { connection } = bench.incoming[0]!;
      connection[leave]();
      bench.settle();
      peer.end();
      bench.run();
      expect([connection.state, connection.finished]).toEqual(['ended', true]);
    }
  });
});

it('each failure of a start-up has a status of the system, and words', () => {
  const words = STARTUP_FAILURES.map((reason) => startupError(reason, 'passive').message);
  expect(new Set(words).size).toBe(STARTUP_FAILURES.length);
  expect(STARTUP_FAILURES.map(startupStatus)).toEqual(
    STARTUP_FAILURES.map((reason) =>
      reason === 'timeout'
        ? 'ETIMEDOUT'
        : ['truncated', 'reset', 'displaced'].includes(reason)
          ? 'ECONNRESET'
          : 'EPROTO',
    ),
  );
});

it('a second close of a listener is over when the address is free, too', async () => {
  const { bench } = await rawInitiator();
  const log: string[] = [];
  bench.listener!.close(() => log.push('first'));
  bench.listener!.close(() => log.push('second'));
  expect(log).toEqual([]);
  bench.run();
  expect(log).toEqual(['first', 'second']);
  bench.listener!.close(() => log.push('third'));
  expect(log).toEqual(['first', 'second', 'third']);
});
