// A listener over engines, before and after the moment at which the program has it; engines and links are the
// test's own.
import { describe, expect, it } from 'vitest';
import type { LinkHandler, ListenHandler, ListenRequest } from '../../src/engine/engine.ts';
import {
  EngineListener,
  type EngineListenHandler,
  type IncomingLink,
  type ListeningEngine,
} from '../../src/engine/proxy/listener.ts';
import { DEFAULT_POLICY } from '../../src/mpa/policy.ts';
import type { StreamEvent } from '../../src/stream/types.ts';
import type { ListenReady, PortListener } from '../../src/transport/port.ts';

const REMOTE = { address: '127.0.0.1', port: 4711, family: 'IPv4' } as const;
const REQUEST: ListenRequest = {
  target: { port: 0, reusePort: true },
  policy: DEFAULT_POLICY,
  limits: {
    maxPending: 2,
    maxPendingPerAddress: 2,
    maxConnections: Infinity,
    maxConnectionsPerAddress: Infinity,
  },
};
const SAID: StreamEvent = { type: 'closed', cause: 'lost', error: undefined };

/** An engine whose answers the test times. */
class FakeEngine implements ListeningEngine {
  readonly number = 0;
  asked: { port: number | undefined; handler: EngineListenHandler; ready: ListenReady } | undefined;
  closes: (() => void)[] = [];

  listen(_id: number, request: ListenRequest, handler: EngineListenHandler, ready: ListenReady): void {
    this.asked = { port: request.target.port, handler, ready };
  }

  bind(port: number): void {
    const listener: PortListener = { address: { ...REMOTE, port }, close: (done) => this.closes.push(done!) };
    this.asked!.ready(listener);
  }

  fail(message: string): void {
    this.asked!.ready(undefined, new Error(message));
  }

  /** A connection comes to it; its messages go to the handler of the link at that time. */
  incoming(): { aborted: () => boolean; tell: (event: StreamEvent) => void } {
    let aborted = false;
    const link = {
      remoteAddress: REMOTE,
      handler: null as LinkHandler | null,
      abort: () => (aborted = true),
    } as unknown as IncomingLink;
    link.handler = this.asked!.handler.incoming(link);
    return { aborted: () => aborted, tell: (event) => link.handler?.event(event) };
  }
}

function setUp(count: number, limit = 10) {
  const engines = Array.from({ length: count }, () => new FakeEngine());
  const log: string[] = [];
  let taken = 0;
  const handler: ListenHandler = {
    refusal: () => (taken >= limit ? 'too-many-pending' : null),
    turnedAway: (_reason, remote) => log.push(`turned away ${remote?.port}`),
    acceptFailed: (error) => log.push(error.message),
    incoming: () => {
      const name = `#${++taken}`;
      log.push(name);
      return {
        opened: () => undefined,
        failed: () => undefined,
        event: (event) => log.push(`${name} ${event.type}`),
      };
    },
  };
  let bound: PortListener | undefined;
  const listener = new EngineListener(engines, 1, handler, (found, error) => {
    bound = found;
    log.push(found === undefined ? `no: ${error?.message}` : `port ${found.address.port}`);
  });
  listener.bind(REQUEST);
  return { engines, log, bound: () => bound! };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('binding', () => {
  it('goes from engine to engine, with the port that the first has found', () => {
    const {
      engines: [a, b, c],
      log,
    } = setUp(3);
    expect([a!.asked!.port, b!.asked, c!.asked]).toEqual([0, undefined, undefined]);
    a!.bind(7174);
    expect([b!.asked!.port, c!.asked]).toEqual([7174, undefined]);
    b!.bind(7174);
    expect(log).toEqual([]);
    c!.bind(7174);
    expect(log).toEqual(['port 7174']);
  });

  it('close is over when the last engine has let go', () => {
    const {
      engines: [a, b],
      bound,
      log,
    } = setUp(2);
    a!.bind(7174);
    b!.bind(7174);
    bound().close(() => log.push('closed'));
    a!.closes[0]!();
    a!.closes[0]!(); // an engine that fails meanwhile may say it twice
    expect(log).toEqual(['port 7174']);
    b!.closes[0]!();
    expect(log).toEqual(['port 7174', 'closed']);
  });

  it('an engine that cannot join takes the others along: they let go before the program hears of it', () => {
    const {
      engines: [a, b],
      log,
    } = setUp(2);
    a!.bind(7174);
    const early = a!.incoming();
    b!.fail('EADDRINUSE');
    expect([log, early.aborted()]).toEqual([[], true]);
    a!.closes[0]!();
    expect(log).toEqual(['no: EADDRINUSE']);
    a!.fail('the engine has failed'); // all listeners of an engine hear of its end
    expect(log).toEqual(['no: EADDRINUSE']);
    expect(a!.incoming().aborted()).toBe(true);
  });

  it('the first that cannot bind ends it at once', () => {
    const {
      engines: [a, b],
      log,
    } = setUp(2);
    a!.fail('EACCES');
    expect([log, b!.asked]).toEqual([['no: EACCES'], undefined]);
  });
});

describe('connections', () => {
  it('that come before all engines listen wait for the listener, data and order kept', async () => {
    const {
      engines: [a, b],
      log,
    } = setUp(2);
    a!.bind(7174);
    const first = a!.incoming();
    first.tell(SAID);
    b!.bind(7174);
    const second = b!.incoming();
    void Promise.resolve().then(() => log.push('the program goes on'));
    expect(log).toEqual(['port 7174']);
    await turn();
    expect(log).toEqual(['port 7174', 'the program goes on', '#1', '#1 closed', '#2']);
    second.tell(SAID);
    expect(log.at(-1)).toBe('#2 closed');
    a!.incoming();
    expect(log.at(-1)).toBe('#3');
    expect([first.aborted(), second.aborted()]).toEqual([false, false]);
  });

  it('the limit counts those of all engines, also those that were kept back (SEC-033)', async () => {
    const {
      engines: [a, b],
      log,
    } = setUp(2, 2);
    a!.bind(7174);
    const kept = [a!.incoming(), a!.incoming(), a!.incoming()];
    b!.bind(7174);
    await turn();
    const late = b!.incoming();
    late.tell(SAID); // no engine is notified
    expect([...kept, late].map(({ aborted }) => aborted())).toEqual([false, false, true, true]);
    expect(log).toEqual(['port 7174', '#1', '#2', 'turned away 4711', 'turned away 4711']);
  });

  it('an engine that dies while it listens is reported once, however many there are', () => {
    const {
      engines: [a, b],
      log,
    } = setUp(2);
    a!.bind(7174);
    b!.bind(7174);
    for (const engine of [a!, b!]) engine.fail('the engine has failed');
    expect(log).toEqual(['port 7174', 'the engine has failed']);
    expect(a!.incoming().aborted()).toBe(true);
  });

  it('a connection that an engine could not accept is reported at once', () => {
    const {
      engines: [a],
      log,
    } = setUp(1);
    a!.bind(7174);
    a!.asked!.handler.acceptFailed(new Error('EMFILE'));
    expect(log).toEqual(['port 7174', 'EMFILE']);
  });
});
