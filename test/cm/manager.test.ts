/**
 * What the connection manager hands to its engine, and what it refuses before that: options, private data,
 * depths, queue pairs (rdma_connect, rdma_bind_addr, rdma_listen).
 */
import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { ConnectionManager, type ConnectOptions, type ListenOptions } from '../../src/cm/index.ts';
import { checkTarget } from '../../src/cm/target.ts';
import type { QueuePair } from '../../src/verbs/index.ts';
import { NEGOTIATED, NotedManager, said, watched } from '../support/noted-engine.ts';

/** `code argument` of what `call` throws; 'nothing' if it does not throw. */
function refusal(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (error instanceof IwarpError) return `${error.code} ${error.message.split(/[ :]/)[0]}`;
    throw error;
  }
  return 'nothing';
}

const TARGET = { host: '10.0.0.2', port: 2 } as const;

describe('a connection manager', () => {
  it('needs an engine, and takes nothing else', () => {
    const { device, engine } = new NotedManager();
    const make = (...args: unknown[]): string =>
      refusal(() => new (ConnectionManager as new (...args: unknown[]) => unknown)(device, ...args));
    for (const wrong of [null, undefined, 5, {}, { connect: true }])
      expect(make(wrong)).toBe('ERR_INVALID_ARGUMENT engine');
    expect(make(engine, {})).toBe('ERR_INVALID_ARGUMENT engine');
    expect(make(engine)).toBe('nothing');
  });

  it('has the connections of its engine and counts them', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.connect();
    expect([...noted.cm.connections]).toEqual([]);
    expect(noted.cm.counters()).toMatchObject({ established: 0, fpdusIn: 0 });
    link.open();
    link.handler.opened();
    expect([...noted.cm.connections]).toEqual([connection]);
    expect(noted.cm.counters()).toMatchObject({ established: 0, fpdusIn: 7 });
    link.handler.event(said.established());
    link.handler.event(said.closing);
    link.handler.event(said.closed('graceful'));
    expect([...noted.cm.connections]).toEqual([]);
    expect(noted.cm.counters()).toMatchObject({ established: 1, closed: 1, broken: 0, fpdusIn: 7 });
  });
});

describe('connect', () => {
  it('refuses what is no queue pair of its device, and unknown options, before it does anything', () => {
    const noted = new NotedManager();
    const of = (qp: unknown, options: object): string =>
      refusal(() => noted.cm.connect(qp as QueuePair, options as ConnectOptions));
    const qp = noted.qp();
    for (const wrong of [null, undefined, {}, noted.device])
      expect(of(wrong, TARGET)).toBe('ERR_INVALID_ARGUMENT qp');
    expect(of(new NotedManager().qp(), TARGET)).toBe('ERR_WRONG_PD qp');
    expect(of(qp, { ...TARGET, nosuch: 1 })).toBe('ERR_INVALID_ARGUMENT options.nosuch');
    for (const [name, value] of [
      ['confirm', 1],
      ['confirm', null],
      ['keepAlive', 1],
      ['keepAliveInitialDelay', -1],
      ['keepAliveInitialDelay', 0x8000_0000],
      ['responderResources', -1],
      ['initiatorDepth', 1.5],
      ['privateData', 'text'],
    ] as const)
      expect(of(qp, { ...TARGET, [name]: value })).toBe(`ERR_INVALID_ARGUMENT options.${name}`);
    expect([noted.engine.connects, qp.state]).toEqual([[], 'idle']);
    expect(of(qp, TARGET)).toBe('nothing');
    expect(of(qp, TARGET)).toBe('ERR_INVALID_STATE qp');
  });

  it('hands over the target, the policy, the private data as they were, and the depths', () => {
    const noted = new NotedManager();
    const { engine } = noted;
    const privateData = Uint8Array.of(1, 2, 3);
    const given = { confirm: true, policy: { markers: true }, responderResources: 3, initiatorDepth: 0 };
    const { qp } = noted.connect({ ...given, privateData: privateData.subarray(1) });
    privateData.fill(9);
    expect(engine.connects[0]).toMatchObject({
      target: TARGET,
      policy: { markers: true, closeTimeout: 5000 },
      confirm: true,
      wishes: { ird: 3, ord: 0, maxIrd: 1024, maxOrd: 1024 },
    });
    expect([engine.connects[0]!.endpoint, [...engine.connects[0]!.privateData]]).toEqual([qp, [2, 3]]);
    noted.connect();
    expect(engine.connects[1]).toMatchObject({
      confirm: false,
      privateData: new Uint8Array(0),
      wishes: { ird: undefined, ord: undefined },
    });
  });

  it('asks for the depths that the queue pair was made for, where they are below those of the device', () => {
    const noted = new NotedManager({ limits: { maxQpRdAtom: 8, maxQpInitRdAtom: 6 } });
    noted.connect({}, noted.qp({ ird: 7, ord: 5 }));
    noted.connect({}, noted.qp({ ird: 8, ord: 6 }));
    noted.connect({ responderResources: 8, initiatorDepth: 6 }, noted.qp({ ird: 7, ord: 5 }));
    expect(noted.engine.connects.map(({ wishes }) => wishes)).toEqual([
      { ird: 7, ord: 5, maxIrd: 7, maxOrd: 5 },
      { ird: undefined, ord: undefined, maxIrd: 8, maxOrd: 6 },
      { ird: 8, ord: 6, maxIrd: 7, maxOrd: 5 },
    ]);
    const qp = noted.qp();
    expect(refusal(() => noted.connect({ responderResources: 9 }, qp))).toBe(
      'ERR_INVALID_ARGUMENT options.responderResources',
    );
    expect(refusal(() => noted.connect({ initiatorDepth: 7 }, qp))).toBe(
      'ERR_INVALID_ARGUMENT options.initiatorDepth',
    );
  });

  it('takes no depth that a frame cannot say, whatever the device takes (ENH-023)', () => {
    const noted = new NotedManager({ limits: { maxQpRdAtom: 0x10000, maxQpInitRdAtom: 0x10000 } });
    noted.connect({ responderResources: 0x3ffe, initiatorDepth: 0x3ffe });
    expect(noted.engine.connects[0]!.wishes).toMatchObject({ ird: 0x3ffe, ord: 0x3ffe });
    for (const name of ['responderResources', 'initiatorDepth'])
      expect(refusal(() => noted.connect({ [name]: 0x3fff }))).toBe(`ERR_INVALID_ARGUMENT options.${name}`);
  });

  it('has room for private data by revision, policy and wire (MPA-018, ENH-004)', () => {
    const noted = new NotedManager();
    const octets = (length: number, policy: object = {}): string =>
      refusal(() => noted.connect({ privateData: new Uint8Array(length), policy }));
    expect([octets(508), octets(509)]).toEqual(['nothing', 'ERR_TOO_LARGE options.privateData']);
    expect([octets(512, { mpaRevision: 1 }), octets(513, { mpaRevision: 1 })]).toEqual([
      'nothing',
      'ERR_TOO_LARGE options.privateData',
    ]);
    expect([octets(252, { maxPrivateData: 256 }), octets(253, { maxPrivateData: 256 })]).toEqual([
      'nothing',
      'ERR_TOO_LARGE options.privateData',
    ]);
    noted.device.privateDataRoom = 100;
    expect([octets(100), octets(101)]).toEqual(['nothing', 'ERR_TOO_LARGE options.privateData']);
    expect(() => noted.connect({ privateData: new Uint8Array(101) })).toThrow('100 of this wire');
    expect(() => noted.connect({ privateData: new Uint8Array(20), policy: { maxPrivateData: 20 } })).toThrow(
      '16 (maxPrivateData of the policy)',
    );
  });

  it('of the wire qpip takes a framing and no private data; of another wire no framing', () => {
    const qpip = new NotedManager({ wire: 'qpip' });
    qpip.connect({ framing: 'length', privateData: new Uint8Array(0) });
    qpip.connect({ policy: { closeTimeout: 9 } });
    expect(qpip.engine.connects.map(({ policy }) => [policy.framing, policy.closeTimeout])).toEqual([
      ['length', 5000],
      ['none', 9],
    ]);
    expect(refusal(() => qpip.connect({ privateData: new Uint8Array(1) }))).toBe(
      'ERR_NOT_SUPPORTED options.privateData',
    );
    expect(refusal(() => qpip.connect({ framing: 'words' as 'length' }))).toBe(
      'ERR_INVALID_ARGUMENT options.framing',
    );
    for (const wire of ['iwarp', 'trp'] as const)
      expect(refusal(() => new NotedManager({ wire }).connect({ framing: 'length' }))).toBe(
        'ERR_NOT_SUPPORTED options.framing',
      );
  });

  it('shares one policy and one context among connections that ask for the same', () => {
    const noted = new NotedManager();
    for (const closeTimeout of [7, 7, 8]) noted.connect({ policy: { closeTimeout } });
    const [first, second, third] = noted.engine.connects.map(({ policy }) => policy);
    expect([first === second, second === third]).toEqual([true, false]);
  });

  it('takes port 0 only over a byte stream, which has its port already', () => {
    const over = {} as never;
    expect(refusal(() => checkTarget({ host: 'a', port: 0 }))).toBe('ERR_INVALID_ARGUMENT options.port');
    expect(checkTarget({ host: 'a', port: 0, over })).toEqual({ host: 'a', port: 0, over });
    expect(checkTarget({ host: 'a', port: 1, tls: true })).toMatchObject({ host: 'a', tls: {} });
    expect(checkTarget({ host: 'a', port: 1, tls: false })).toEqual({ host: 'a', port: 1 });
  });
});

describe('listen', () => {
  const listen = (noted: NotedManager, options: object, onRequest: unknown = () => undefined): string =>
    refusal(() => {
      noted.cm.listen(options as ListenOptions, onRequest as () => void).catch(() => undefined);
    });

  it('refuses wrong options, no function for requests, and a device that is closed', () => {
    const noted = new NotedManager();
    for (const [name, value] of [
      ['nosuch', 1],
      ['onFailure', null],
      ['onFailure', 5],
      ['maxPending', 0],
      ['maxPending', 1_000_001],
      ['maxPendingPerAddress', 0],
      ['maxConnections', 1.5],
      ['maxConnectionsPerAddress', '1'],
      ['port', -1],
      ['keepAlive', 'yes'],
    ] as const) {
      const code = `ERR_INVALID_ARGUMENT options.${name}`;
      expect(listen(noted, { [name]: value })).toBe(code);
      if (name !== 'port')
        expect(refusal(() => noted.cm.receive({ [name]: value }, () => undefined))).toBe(code);
    }
    expect(listen(noted, {}, null)).toBe('ERR_INVALID_ARGUMENT onRequest');
    expect(refusal(() => noted.cm.receive({}, null as never))).toBe('ERR_INVALID_ARGUMENT onRequest');
    expect(listen(noted, {})).toBe('nothing');
    noted.device.close();
    expect(listen(noted, {})).toBe('ERR_DESTROYED the');
    expect(refusal(() => noted.cm.receive({}, () => undefined))).toBe('ERR_DESTROYED the');
    expect(noted.engine.listens.length).toBe(1);
  });

  it('hands over the address, the policy and the limits', () => {
    const noted = new NotedManager();
    listen(noted, { host: '10.0.0.1', port: 7, policy: { markers: true } });
    listen(noted, { maxPending: 3, maxConnections: 1_000_000, maxConnectionsPerAddress: 1 });
    listen(noted, { maxPending: 5, maxPendingPerAddress: 2 });
    const [first, second, third] = noted.engine.listens.map(({ request }) => request);
    expect(first).toMatchObject({
      target: { host: '10.0.0.1', port: 7, backlog: 511 },
      policy: { markers: true },
      limits: {
        ...{ maxPending: 256, maxPendingPerAddress: 256 },
        ...{ maxConnections: Infinity, maxConnectionsPerAddress: Infinity },
      },
    });
    expect([second!.limits, third!.limits]).toEqual([
      { maxPending: 3, maxPendingPerAddress: 3, maxConnections: 1_000_000, maxConnectionsPerAddress: 1 },
      {
        ...{ maxPending: 5, maxPendingPerAddress: 2 },
        ...{ maxConnections: Infinity, maxConnectionsPerAddress: Infinity },
      },
    ]);
  });

  it('that cannot be bound rejects with the words of the system, or with our error as it is', async () => {
    const noted = new NotedManager();
    const failed = async (error?: Error): Promise<unknown> => {
      const listening = noted.cm.listen({}, () => undefined);
      noted.engine.listens.at(-1)!.ready(undefined, error);
      return listening.catch((reason: unknown) => reason);
    };
    const system = new Error('address in use');
    expect(await failed(system)).toMatchObject({
      code: 'ERR_CONNECT',
      message: 'cannot listen: address in use',
      cause: system,
    });
    expect(await failed()).toMatchObject({ code: 'ERR_CONNECT', message: 'cannot listen: unknown reason' });
    const own = new IwarpError('ERR_NOT_SUPPORTED', 'no TLS here');
    expect(await failed(own)).toBe(own);
    const { handler } = noted.engine.listens.at(-1)!;
    expect(handler.refusal({ address: '10.0.0.9', port: 1, family: 'IPv4' })).toBe('closed');
    expect(noted.cm.census.listeners.size).toBe(0);
  });

  it('without an address takes byte streams, within its limits', () => {
    const noted = new NotedManager();
    const requests: unknown[] = [];
    const listener = noted.cm.receive({ maxPending: 1 }, (connection) => void requests.push(connection));
    expect(listener.address).toEqual({ address: '0.0.0.0', port: 0, family: 'IPv4' });
    expect([...noted.cm.census.listeners]).toEqual([listener]);
    const port = { remoteAddress: { address: '10.0.0.9', port: 1, family: 'IPv4' } } as never;
    const taken = listener.take(port)!;
    expect([taken.role, taken.remoteAddress?.address, listener.pending]).toEqual([
      ...['passive', '10.0.0.9', 1],
    ]);
    noted.engine.takes = false;
    expect(listener.take(port)).toBe(null);
    noted.engine.links[0]!.handler.event(said.request());
    noted.run();
    expect(requests).toEqual([taken]);
    let closed = 0;
    listener.close(() => closed++);
    expect(closed).toBe(1);
    listener.close();
  });
});

describe('the parameters of a peer', () => {
  it('are those of its frame, with depths that can be handed on, and those not named left out', () => {
    const noted = new NotedManager({ limits: { maxQpRdAtom: 8, maxQpInitRdAtom: 6 } });
    const of = (peerIrd: number | undefined, peerOrd: number | undefined): unknown => {
      const { connection, link } = noted.opened({ confirm: true });
      link.handler.event(said.response({ peerIrd, peerOrd, revision: 2 }));
      const { responderResources, initiatorDepth, revision } = connection.parameters!;
      return [responderResources, initiatorDepth, revision];
    };
    expect(of(undefined, undefined)).toEqual([undefined, undefined, 2]);
    expect(of(0x3fff, 0x3fff)).toEqual([undefined, undefined, 2]);
    expect(of(0, 0)).toEqual([0, 0, 2]);
    expect(of(5, 7)).toEqual([7, 5, 2]);
    expect(of(100, 200)).toEqual([8, 6, 2]);
  });

  it('keep the revision of its Request, whatever is in force then', () => {
    const noted = new NotedManager();
    const { connection, link } = noted.opened({ confirm: true });
    expect([connection.parameters, connection.negotiated]).toEqual([undefined, undefined]);
    link.handler.event(said.response({ revision: 2 }));
    expect(connection.negotiated).toBeUndefined();
    connection.establish();
    link.handler.event(said.established({ revision: 1 }));
    expect(connection.parameters?.revision).toBe(2);
    expect(connection.negotiated).toEqual({ ...NEGOTIATED, revision: 1 });
    const direct = noted.opened();
    direct.link.handler.event(said.established({ revision: 1 }));
    expect(direct.connection.parameters?.revision).toBe(1);
  });
});

it('an engine may look at a connection whose link it is still making', () => {
  const noted = new NotedManager();
  let looks = 0;
  noted.engine.duringConnect = (handler) => {
    const connection = handler as ReturnType<ConnectionManager['connect']>;
    const events = watched(connection);
    expect([connection.localAddress, connection.remoteAddress, connection.tls]).toEqual([
      ...[undefined, undefined, undefined],
    ]);
    expect([connection.queryPort(), connection.ord, connection.setKeepAlive(true, 0)]).toEqual([
      ...[undefined, 0, false],
    ]);
    expect(connection.counters().fpdusIn).toBe(0);
    connection.kick(1);
    connection.setOrd(1);
    connection.unref();
    connection.terminate(0);
    connection.disconnect();
    connection.abort();
    noted.run();
    expect([connection.state, events]).toEqual(['connecting', []]);
    looks++;
  };
  noted.connect();
  expect(looks).toBe(1);
});
