/** Listeners and the side that is connected to, over an engine that only notes: `support/noted-engine.ts`. */
import { describe, expect, it } from 'vitest';
import type { CmEvent } from '../../src/cm/index.ts';
import { NotedManager, said, watched } from '../support/noted-engine.ts';

const types = (events: readonly CmEvent[]): string[] => events.map(({ type }) => type);
const INVALID_STATE = expect.objectContaining({ code: 'ERR_INVALID_STATE' }) as Error;
const INVALID_ARGUMENT = expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }) as Error;
const NEWCOMER = { address: '10.0.0.9', port: 9, family: 'IPv4' } as const;

async function requested(options: object = {}, request: object = {}) {
  const noted = new NotedManager();
  const listening = await noted.listen(options);
  const made = listening.come();
  made.link.deciding = true;
  made.link.handler.event(said.request(request));
  noted.run();
  return { noted, ...listening, ...made, events: watched(made.connection), qp: noted.qp() };
}

describe('a request', () => {
  it('reaches the program after the present call, once', async () => {
    const noted = new NotedManager();
    const { come, requests, listener } = await noted.listen();
    const { connection, link } = come();
    expect([connection.role, connection.state, listener.pending]).toEqual(['passive', 'starting', 1]);
    link.handler.event(said.request({ peerIrd: 3, peerOrd: 4, privateData: Uint8Array.of(1) }));
    expect([requests, connection.state]).toEqual([[], 'requested']);
    noted.run();
    expect(requests).toEqual([connection]);
    expect([connection.qp, connection.parameters]).toEqual([
      null,
      { privateData: Uint8Array.of(1), responderResources: 4, initiatorDepth: 3, revision: 1 },
    ]);
  });

  it.each(['abort', 'close', 'disconnect'] as const)('after a %s of ours does not', async (call) => {
    const noted = new NotedManager();
    const { come, requests, failures, listener } = await noted.listen();
    const { connection, link } = come();
    const events = watched(connection);
    link.offloaded = true;
    connection[call]();
    expect([connection.state, link.look(), listener.pending]).toEqual([
      ...['leaving', [[call === 'abort' ? 'abort' : 'close']], 0],
    ]);
    link.handler.event(said.request());
    link.handler.event(said.failed);
    link.handler.event(said.closed('timeout'));
    noted.run();
    expect([requests, failures, connection.state, listener.failed]).toEqual([[], [], 'ended', 0]);
    expect(types(events)).toEqual(['disconnected']);
  });

  it('of a connection whose place is gone does not, either', async () => {
    const noted = new NotedManager();
    const { come, requests, listener } = await noted.listen({ maxPending: 1 });
    come().connection.close();
    const second = come();
    second.connection.close();
    // One may wait for its peer to close; the next is reset at once, and no longer counts.
    expect(second.link.look()).toEqual([['close'], ['abort']]);
    second.link.handler.event(said.request());
    noted.run();
    expect([requests, second.connection.state, listener.pending]).toEqual([[], 'leaving', 0]);
  });

  it('that fails before it is there is reported by the listener alone', async () => {
    const noted = new NotedManager();
    const { come, failures, listener, requests } = await noted.listen();
    const { connection, link } = come();
    link.handler.event(said.failed);
    expect([failures, listener.failed, listener.pending]).toEqual([[], 1, 0]);
    noted.run();
    expect([failures, requests, connection.state]).toEqual([
      [{ reason: 'timeout', remoteAddress: NEWCOMER, connection }],
      [],
      'leaving',
    ]);
    link.handler.event(said.failed);
    link.handler.event(said.closed('timeout'));
    noted.run();
    expect([failures.length, listener.failed, connection.state]).toEqual([1, 1, 'ended']);
    const silent = await noted.listen({ onFailure: undefined });
    silent.come().link.handler.event(said.failed);
    noted.run();
    expect(silent.listener.failed).toBe(1);
  });

  it('that fails later is reported by the connection alone, once', async () => {
    const { noted, connection, link, events, failures, listener } = await requested();
    link.handler.event(said.failed);
    link.handler.event(said.failed);
    expect(connection.state).toBe('lapsed');
    link.handler.event(said.closed('timeout'));
    noted.run();
    expect([types(events), failures, listener.failed, listener.pending]).toEqual([
      ...[['connect-error', 'disconnected'], [], 0, 0],
    ]);
  });
});

describe('accept', () => {
  it('hands over queue pair, private data and depths, once', async () => {
    const { noted, connection, link, listener, qp, events } = await requested();
    const privateData = Uint8Array.of(1, 2);
    connection.accept(qp, { privateData, responderResources: 3 });
    const depths = { ird: 3, ord: undefined, maxIrd: 1024, maxOrd: 1024 };
    expect(link.look()).toEqual([['accept', qp, [1, 2], depths]]);
    expect([connection.qp, connection.state, listener.pending]).toEqual([qp, 'accepting', 1]);
    expect(() => connection.accept(noted.qp())).toThrow(INVALID_STATE);
    expect(() => connection.reject()).toThrow(INVALID_STATE);
    link.handler.event(said.established());
    expect([qp.state, listener.pending]).toEqual(['rts', 0]);
    noted.run();
    expect([types(events), link.look()]).toEqual([['established'], []]);
  });

  it('refuses what is wrong, and the request still waits', async () => {
    const { noted, connection, link, qp } = await requested();
    const codes = [
      [{}, {}, 'ERR_INVALID_ARGUMENT'],
      [new NotedManager().qp(), {}, 'ERR_WRONG_PD'],
      [qp, { nosuch: 1 }, 'ERR_INVALID_ARGUMENT'],
      [qp, null, 'ERR_INVALID_ARGUMENT'],
      [qp, { privateData: new Uint8Array(513) }, 'ERR_TOO_LARGE'],
      [qp, { initiatorDepth: 1025 }, 'ERR_INVALID_ARGUMENT'],
    ] as const;
    for (const [given, options, code] of codes)
      expect(() => connection.accept(given as never, options as never)).toThrow(
        expect.objectContaining({ code }) as Error,
      );
    const used = noted.established().qp;
    expect(() => connection.accept(used)).toThrow(INVALID_STATE);
    link.refusal = new Error('another engine');
    expect(() => connection.accept(qp)).toThrow(link.refusal);
    expect([connection.state, connection.qp, link.look()]).toEqual(['requested', null, []]);
    link.refusal = null;
    connection.accept(qp);
    expect(connection.state).toBe('accepting');
  });

  it('for a peer that has left does nothing, and the queue pair stays free', async () => {
    const { noted, connection, link, qp } = await requested();
    link.deciding = false;
    connection.accept(qp);
    expect([connection.state, connection.qp, link.look()]).toEqual(['accepting', null, []]);
    noted.connect({}, qp);
    const lapsed = await requested();
    lapsed.link.handler.event(said.failed);
    lapsed.connection.accept(lapsed.qp);
    expect([lapsed.connection.state, lapsed.link.look()]).toEqual(['leaving', []]);
    expect(() => lapsed.connection.accept(lapsed.qp)).toThrow(INVALID_STATE);
  });

  it('before the Request is there is a mistake', async () => {
    const noted = new NotedManager();
    const { connection } = (await noted.listen()).come();
    expect(() => connection.accept(noted.qp())).toThrow(INVALID_STATE);
    expect(() => connection.reject()).toThrow(INVALID_STATE);
    expect(connection.state).toBe('starting');
  });
});

describe('reject', () => {
  it.each([
    [1, 512],
    [2, 508],
  ])('on revision %i has room for %i octets (MPA-031, ENH-004)', async (revision, room) => {
    const { connection, link, listener } = await requested({}, { revision });
    expect(() => connection.reject(new Uint8Array(room + 1))).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }) as Error,
    );
    expect(() => connection.reject('no' as never)).toThrow(INVALID_ARGUMENT);
    expect([connection.state, link.look(), listener.pending]).toEqual(['requested', [], 1]);
    connection.reject(new Uint8Array(room).fill(7));
    expect([connection.state, link.look(), listener.pending]).toEqual([
      ...['leaving', [['reject', new Array(room).fill(7)]], 0],
    ]);
    expect(() => connection.reject()).toThrow(INVALID_STATE);
  });

  it('is counted when the connection has ended', async () => {
    const { noted, connection, link, events } = await requested();
    connection.reject();
    expect(noted.cm.counters().rejected).toBe(0);
    link.handler.event(said.closed('rejected'));
    noted.run();
    expect([noted.cm.counters().rejected, types(events)]).toEqual([1, ['disconnected']]);
  });
});

describe('a listener', () => {
  it('counts and reports those that it turns away, while it listens', async () => {
    const noted = new NotedManager();
    const { listener, handler, failures } = await noted.listen({ maxPending: 1 });
    expect(handler.refusal(NEWCOMER)).toBe(null);
    handler.turnedAway('closed', NEWCOMER);
    expect([listener.refused, noted.cm.counters().refused]).toEqual([0, 0]);
    handler.turnedAway('too-many-pending', NEWCOMER);
    handler.turnedAway('too-many-connections');
    expect([listener.refused, noted.cm.counters().refused, failures]).toEqual([2, 2, []]);
    const error = new Error('no descriptors');
    handler.acceptFailed(error);
    noted.run();
    expect(failures).toEqual([
      { reason: 'too-many-pending', remoteAddress: NEWCOMER },
      { reason: 'too-many-connections', remoteAddress: undefined },
      { reason: 'accept-error', remoteAddress: undefined, error },
    ]);
    listener.close();
    handler.turnedAway('too-many-pending', NEWCOMER);
    handler.acceptFailed(error);
    noted.run();
    expect([handler.refusal(NEWCOMER), listener.refused, failures.length]).toEqual(['closed', 2, 3]);
  });

  it('at its limit refuses a newcomer that none can make room for', async () => {
    const { handler, link } = await requested({ maxPending: 1 });
    expect(handler.refusal(NEWCOMER)).toBe('too-many-pending');
    link.handler.event(said.closed('reset'));
    expect(handler.refusal(NEWCOMER)).toBe(null);
  });

  it('counts connections that were answered up to their end, where they are limited', async () => {
    const { handler, connection, link, qp } = await requested({ maxConnections: 1 });
    connection.accept(qp);
    link.handler.event(said.established());
    expect(handler.refusal(NEWCOMER)).toBe('too-many-connections');
    link.handler.event(said.closed('reset'));
    expect(handler.refusal(NEWCOMER)).toBe(null);
  });

  it('holds the process as the program says, where the transport can', async () => {
    const noted = new NotedManager();
    const { listener, calls } = await noted.listen();
    expect(listener.address).toEqual({ address: '10.0.0.1', port: 4711, family: 'IPv4' });
    listener.ref();
    listener.unref();
    expect(calls).toEqual([
      ['setRef', true],
      ['setRef', false],
    ]);
    const without = noted.cm.receive({}, () => undefined);
    without.ref();
    without.unref();
    void noted.cm.listen({}, () => undefined).catch(() => undefined);
    const unbound = noted.engine.listens.at(-1)!.handler as typeof without;
    unbound.ref();
    unbound.unref();
  });

  it('that closes drops its own unanswered requests, and no other connection', async () => {
    const { noted, listener, come, connection, link, qp, calls } = await requested({ maxConnections: 9 });
    connection.accept(qp);
    const starting = come();
    const elsewhere = await noted.listen();
    const other = elsewhere.come();
    const active = noted.opened();
    for (const one of [link, starting.link, other.link, active.link]) one.look();
    expect(noted.cm.census.listeners.size).toBe(2);
    listener.close();
    expect([link, starting.link, other.link, active.link].map((one) => one.look())).toEqual([
      ...[[], [['abort']], [], []],
    ]);
    expect([...noted.cm.census.listeners]).toEqual([elsewhere.listener]);
    expect([calls.length, calls[0]![0]]).toEqual([1, 'close']);
    // One that no limit counts once it is answered.
    const uncounted = await requested();
    uncounted.connection.accept(uncounted.qp);
    uncounted.link.look();
    uncounted.listener.close();
    expect(uncounted.link.look()).toEqual([]);
  });

  it('is closed when the address is free; each call that waits is then called, once', async () => {
    const noted = new NotedManager();
    const { listener, calls } = await noted.listen();
    const done: string[] = [];
    expect(() => listener.close(5 as never)).toThrow(INVALID_ARGUMENT);
    expect(calls).toEqual([]);
    listener.close();
    listener.close(() => done.push('a'));
    listener.close();
    listener.close(() => done.push('b'));
    expect([calls.length, done]).toEqual([1, []]);
    (calls[0]![1] as () => void)();
    expect(done).toEqual(['a', 'b']);
    listener.close();
    listener.close(() => done.push('c'));
    expect(done).toEqual(['a', 'b', 'c']);
  });
});

it('an end that the program asks for twice is one end', async () => {
  const { noted, connection, link, events, qp } = await requested();
  connection.accept(qp);
  link.handler.event(said.established());
  connection.abort();
  connection.abort();
  link.handler.event(said.closed('reset'));
  connection.abort();
  noted.run();
  expect([types(events), connection.state]).toEqual([['established', 'disconnected'], 'ended']);
});
