/** The side that connects, over an engine whose links only note the calls: see `support/noted-engine.ts`. */
import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { TERM } from '../../src/base/terminate-codes.ts';
import type { CmEvent } from '../../src/cm/index.ts';
import { NotedManager, said } from '../support/noted-engine.ts';

const types = (events: readonly CmEvent[]): string[] => events.map(({ type }) => type);
const INVALID_STATE = expect.objectContaining({ code: 'ERR_INVALID_STATE' }) as Error;
const INVALID_ARGUMENT = expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }) as Error;

describe('a connection without its TCP connection', () => {
  it('has no addresses, counters or port, and passes on nothing but work', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.connect();
    link.localAddress = { address: '10.0.0.1', port: 1, family: 'IPv4' };
    expect([connection.role, connection.queryPort(), connection.counters().fpdusIn]).toEqual([
      ...['active', undefined, 0],
    ]);
    expect(connection.setKeepAlive(true, 1)).toBe(false);
    connection.terminate(TERM.LOCAL_CATASTROPHIC);
    connection.unref();
    connection.ref();
    connection.kick(3);
    expect(link.look()).toEqual([['kick', 3]]);
    link.open();
    link.handler.opened();
    expect(link.look()).toEqual([]);
  });

  it.each(['disconnect', 'abort', 'close'] as const)('%s gives it up, once', (call) => {
    const noted = new NotedManager();
    const { connection, link, qp, events } = noted.connect();
    connection[call]();
    expect([link.look(), connection.state, connection.finished]).toEqual([[['cancel']], 'ended', true]);
    link.handler.failed(new Error('on its way'));
    noted.run();
    expect(events).toEqual([
      { type: 'disconnected', cause: 'reset', error: undefined, terminate: undefined },
    ]);
    expect(noted.cm.counters()).toMatchObject({ failed: 0, broken: 0, closed: 0 });
    noted.connect({}, qp); // the queue pair is free
  });

  it('that opens at that very moment is not given up', () => {
    const noted = new NotedManager();
    const { connection, link, qp, events } = noted.connect();
    link.answer = false;
    connection.disconnect();
    noted.run();
    expect([link.look(), connection.state, events]).toEqual([[['cancel']], 'connecting', []]);
    expect(() => noted.connect({}, qp)).toThrow(INVALID_STATE);
  });

  it('and never gets one: the events say why, and the queue pair is free', () => {
    const noted = new NotedManager();
    const { connection, link, qp, events } = noted.connect();
    const error = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
    link.handler.failed(error);
    expect([connection.state, connection.finished, events]).toEqual(['ended', true, []]);
    noted.run();
    expect(events).toEqual([
      {
        type: 'rejected',
        parameters: {
          privateData: new Uint8Array(0),
          ...{ responderResources: undefined, initiatorDepth: undefined, revision: 0 },
        },
        markersAsked: false,
        reason: 'connect',
        status: 'ECONNREFUSED',
        error,
      },
      { type: 'disconnected', cause: 'startup-failed', error, terminate: undefined },
    ]);
    expect(noted.cm.counters().failed).toBe(1);
    noted.connect({}, qp);
  });
});

describe('a connection with its TCP connection', () => {
  it('holds the process, or does not, as the program has said before or says now', () => {
    const noted = new NotedManager();
    const early = noted.connect();
    early.connection.unref();
    early.link.open();
    early.link.handler.opened();
    early.connection.ref();
    early.connection.unref();
    expect(early.link.look()).toEqual([]); // it is being made, and holds the process
    early.link.handler.event(said.established());
    expect(early.link.look()).toEqual([['setRef', false]]);
    early.connection.ref();
    early.connection.unref();
    expect(early.link.look()).toEqual([
      ['setRef', true],
      ['setRef', false],
    ]);
    expect(noted.opened().link.look()).toEqual([]);
  });

  it('that fails holds the process no longer, if the program has said so before or says so then', () => {
    const noted = new NotedManager();
    const early = noted.opened();
    early.connection.unref();
    early.link.handler.event(said.failed);
    const late = noted.opened();
    late.link.handler.event(said.failed);
    late.connection.unref();
    for (const { link } of [early, late]) expect(link.look()).toEqual([['setRef', false]]);
  });

  it('whose confirmation the program owes holds the process', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.opened({ confirm: true });
    connection.unref();
    link.handler.event(said.response());
    connection.establish();
    expect(link.look()).toEqual([]);
    link.handler.event(said.established());
    expect(link.look()).toEqual([['setRef', false]]);
  });

  it('is probed if the program asks for that, by option or by call', () => {
    const noted = new NotedManager();
    expect(noted.opened({ keepAlive: true }).link.look()).toEqual([['setKeepAlive', true, 0]]);
    const delayed = noted.opened({ keepAlive: true, keepAliveInitialDelay: 0x7fff_ffff });
    expect(delayed.link.look()).toEqual([['setKeepAlive', true, 0x7fff_ffff]]);
    for (const options of [{ keepAlive: false, keepAliveInitialDelay: 5 }, { keepAliveInitialDelay: 5 }])
      expect(noted.opened(options).link.look()).toEqual([]);
    const { connection, link } = noted.opened();
    expect(connection.setKeepAlive(true, 0x7fff_ffff)).toBe(true);
    link.answer = false;
    expect(connection.setKeepAlive(false, 0)).toBe(false);
    expect(link.look()).toEqual([
      ['setKeepAlive', true, 0x7fff_ffff],
      ['setKeepAlive', false, 0],
    ]);
    for (const wrong of [
      [1, 0],
      [true, -1],
      [true, 0x8000_0000],
      [true, undefined],
    ])
      expect(() => connection.setKeepAlive(...(wrong as [boolean, number]))).toThrow(INVALID_ARGUMENT);
  });

  it('has its addresses, its counters and its port', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.opened();
    expect(connection.tls).toBeUndefined();
    link.tls = { authorized: true } as never;
    expect(connection.tls).toBe(link.tls);
    expect([connection.localAddress?.port, connection.remoteAddress?.port]).toEqual([1, 2]);
    expect(connection.counters().fpdusIn).toBe(7);
    link.mtu = 9000;
    const port = { state: 'active', activeMtu: 9000, emss: 9000 - 20 - 32, maxMessage: 0xffff_ffff };
    expect(connection.queryPort()).toEqual(port);
    link.handler.event(said.failed);
    expect(connection.queryPort()).toEqual(port);
    link.handler.event(said.closed('startup-failed'));
    expect(connection.queryPort()).toEqual({ ...port, state: 'down' });
    link.localAddress = undefined;
    expect(connection.queryPort()).toBeUndefined();
  });

  it('passes on close, abort, Terminate and ORD', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.established();
    connection.disconnect();
    connection.abort();
    connection.terminate(0xffff);
    connection.terminate(TERM.LOCAL_CATASTROPHIC);
    connection.setOrd(3);
    expect(link.look()).toEqual([
      ...[['close'], ['abort'], ['terminate', 0xffff], ['terminate', TERM.LOCAL_CATASTROPHIC]],
      ['setOrd', 3],
    ]);
    for (const code of [-1, 0x1_0001, 1.5, '0']) {
      expect(() => connection.terminate(code as number)).toThrow(INVALID_ARGUMENT);
      expect(() => noted.connect().connection.terminate(code as number)).toThrow(INVALID_ARGUMENT);
    }
    link.ord = 12;
    expect([connection.ord, link.look()]).toEqual([12, []]);
  });
});

describe('events', () => {
  it('wait for a handler, in order, and reach it after the present call', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.connect();
    const cm = noted.cm.connect(noted.qp(), { host: 'b', port: 1 });
    const late = noted.engine.links.at(-1)!.open();
    late.handler.opened();
    late.handler.event(said.established());
    late.handler.event(said.closing);
    noted.run();
    const events: CmEvent[] = [];
    cm.setHandler((event) => void events.push(event));
    expect(events).toEqual([]);
    noted.run();
    expect(types(events)).toEqual(['established', 'closing']);
    cm.setHandler((event) => void events.push(event));
    noted.run();
    expect(events.length).toBe(2);
    expect(() => connection.setHandler(null as never)).toThrow(INVALID_ARGUMENT);
    expect(link.look()).toEqual([]);
  });

  it('of a rejection have its private data, and the queue pair is free after the last', () => {
    const noted = new NotedManager();
    const { connection, link, qp, events } = noted.opened();
    const privateData = Uint8Array.of(5);
    const rejection = { revision: 2, privateData, peerIrd: 3, peerOrd: 4, markersAsked: true };
    link.handler.event({ type: 'rejected', ...rejection });
    expect(connection.state).toBe('leaving');
    expect(() => noted.connect({}, qp)).toThrow(INVALID_STATE);
    link.handler.event(said.closed('rejected'));
    noted.run();
    expect(events).toEqual([
      {
        type: 'rejected',
        parameters: { privateData, responderResources: 4, initiatorDepth: 3, revision: 2 },
        markersAsked: true,
        status: 'ECONNREFUSED',
        error: undefined,
      },
      { type: 'disconnected', cause: 'rejected', error: undefined, terminate: undefined },
    ]);
    noted.connect({}, qp);
  });

  it('of a failed start-up leave the queue pair as it was, though it has had a connection before', () => {
    const noted = new NotedManager();
    const first = noted.established();
    const { qp } = first;
    first.link.handler.event(said.closing);
    first.link.handler.event(said.closed('graceful'));
    const raised: string[] = [];
    noted.device.setAsyncEventHandler((event) => void raised.push(event.type));
    noted.run();
    raised.length = 0;
    expect(qp.state).toBe('idle');
    const { connection, link, events } = noted.opened({}, qp);
    link.handler.event(said.failed);
    link.handler.event(said.closed('timeout'));
    noted.run();
    expect([connection.state, qp.state, raised]).toEqual(['ended', 'idle', []]);
    expect(events).toEqual([
      {
        type: 'unreachable',
        reason: 'timeout',
        status: 'ETIMEDOUT',
        error: expect.objectContaining({ code: 'ERR_TIMEOUT', systemCode: 'ETIMEDOUT' }),
      },
      { type: 'disconnected', cause: 'timeout', error: undefined, terminate: undefined },
    ]);
    noted.connect({}, qp);
  });

  it('of a start-up that Modify to Error has ended are events of the connection alone', () => {
    const noted = new NotedManager();
    const raised: string[] = [];
    noted.device.setAsyncEventHandler((event) => void raised.push(event.type));
    const { link, qp, events } = noted.opened();
    qp.postSend({ opcode: 'send', inline: Uint8Array.of(1) });
    link.look();
    qp.modify({ state: 'error' });
    expect([link.look(), qp.query().sendOutstanding]).toEqual([[['abort']], 1]);
    link.handler.event(said.closed('reset'));
    noted.run();
    expect([qp.state, qp.query().sendOutstanding, raised, types(events)]).toEqual([
      ...['error', 0, [], ['disconnected']],
    ]);
  });

  it('of a loss put the queue pair into Error, with all that was posted flushed', () => {
    const noted = new NotedManager();
    const { link, qp, events } = noted.established();
    qp.postSend({ opcode: 'send', inline: Uint8Array.of(1) });
    link.handler.event(said.closed('lost'));
    noted.run();
    expect([qp.state, qp.query().sendOutstanding, types(events)]).toEqual(['error', 0, ['disconnected']]);
  });

  it('of the end have the Terminate, if there was one', () => {
    const noted = new NotedManager();
    const { link, qp, events } = noted.established();
    const terminate = { origin: 'remote', layer: 0, type: 2, code: 7 } as never;
    link.handler.event({ type: 'terminate', terminate });
    link.handler.event(said.closed('terminated'));
    noted.run();
    expect(events).toEqual([
      { type: 'terminate', terminate },
      { type: 'disconnected', cause: 'terminated', error: undefined, terminate },
    ]);
    expect([qp.state, noted.cm.counters().broken]).toEqual(['error', 1]);
  });
});

describe('over a link in another thread', () => {
  it('a close or a Terminate shows in the queue pair at once (VERBS-023), here by its event', () => {
    for (const [call, state] of [
      ['disconnect', 'closing'],
      ['terminate', 'terminate'],
    ] as const) {
      for (const offloaded of [true, false]) {
        const noted = new NotedManager();
        const { connection, link, qp } = noted.established();
        link.offloaded = offloaded;
        connection[call](0);
        expect([qp.state, link.look()[0]![0]]).toEqual([
          offloaded ? state : 'rts',
          call === 'disconnect' ? 'close' : 'terminate',
        ]);
      }
    }
  });

  it('a connection that has ended no longer touches the queue pair, which has another one', () => {
    const noted = new NotedManager();
    const first = noted.established();
    first.link.handler.event(said.closing);
    first.link.handler.event(said.closed('graceful'));
    noted.run();
    const second = noted.established({}, first.qp);
    first.link.offloaded = true;
    first.connection.disconnect();
    first.connection.terminate(0);
    expect([first.qp.state, second.connection.state]).toEqual(['rts', 'established']);
  });
});

describe('a confirmed connection', () => {
  const deciding = (): ReturnType<NotedManager['connect']> & { noted: NotedManager } => {
    const noted = new NotedManager();
    const made = noted.opened({ confirm: true });
    made.link.deciding = true;
    made.link.handler.event(said.response());
    return { ...made, noted };
  };

  it('is confirmed once, after the response', () => {
    const { connection, link, events, noted } = deciding();
    expect(() => noted.opened().connection.establish()).toThrow(INVALID_STATE);
    noted.run();
    expect([types(events), connection.state]).toEqual([['connect-response'], 'deciding']);
    connection.establish();
    expect([link.look(), connection.state]).toEqual([[['confirm']], 'confirming']);
    expect(() => connection.establish()).toThrow(INVALID_STATE);
    link.handler.event(said.established());
    noted.run();
    expect(types(events)).toEqual(['connect-response', 'established']);
  });

  it('whose stream has gone meanwhile takes the word, and does nothing with it', () => {
    const { connection, link } = deciding();
    link.deciding = false;
    connection.establish();
    expect([link.look(), connection.state]).toEqual([[], 'confirming']);
  });

  it('may be refused with a Terminate, which is the first FPDU (ENH-046)', () => {
    const { connection, link } = deciding();
    expect(() => connection.terminate(0x1_0001)).toThrow(INVALID_ARGUMENT);
    connection.terminate(0x1203);
    expect([link.look(), connection.state]).toEqual([[['confirm', 0x1203]], 'confirming']);
    link.deciding = false;
    connection.terminate(0x1203);
    expect(link.look()).toEqual([['terminate', 0x1203]]);
  });

  it('that has failed unheard may still be confirmed: the response alone is no end', () => {
    const { connection, link, events, noted } = deciding();
    link.handler.event(said.failed);
    expect(connection.state).toBe('lapsed');
    const states: string[] = [];
    connection.setHandler((event) => void states.push(`${event.type} ${connection.state}`));
    noted.run();
    expect([states, events]).toEqual([['connect-response lapsed', 'unreachable leaving'], []]);
    expect(() => connection.establish()).toThrow(INVALID_STATE);
    const again = deciding();
    again.link.handler.event(said.failed);
    again.link.handler.event(said.closed('timeout'));
    expect([again.connection.state, again.connection.finished]).toEqual(['expired', true]);
    const heard = deciding();
    heard.link.handler.event(said.failed);
    heard.link.handler.event(said.closed('timeout'));
    heard.noted.run();
    expect(heard.connection.state).toBe('ended');
    expect(() => heard.connection.establish()).toThrow(INVALID_STATE);
    again.connection.establish();
    again.noted.run();
    expect([again.connection.state, types(again.events)]).toEqual([
      'ended',
      ['connect-response', 'unreachable', 'disconnected'],
    ]);
  });
});

it('an input that no table lists is an error of the engine, not of the program', () => {
  const { link } = new NotedManager().established();
  expect(() => link.handler.event(said.response())).toThrow(IwarpError);
});
