// Memory windows, and invalidation of regions and windows from both sides. Verbs draft 7.8, 7.10.
import { describe, expect, it } from 'vitest';
import type { MemoryRegion, MemoryWindow, QueuePair, WorkCompletion } from '../../src/verbs/index.ts';
import { connectedPair, type Pair, type PairOptions } from '../support/pair.ts';
import {
  codeOf,
  LOCAL_WRITE,
  MW_BIND,
  outcomes,
  pattern,
  REMOTE_ATOMIC,
  REMOTE_READ,
  REMOTE_WRITE,
  secondConnection,
  terminateOf,
} from './support.ts';

interface Bench {
  readonly pair: Pair;
  readonly mr: MemoryRegion;
  readonly mw: MemoryWindow;
}

/**
 * A connected pair whose server has an addressed region of 64 octets and a window, not bound. Both sides may
 * send.
 */
async function bench(access: number = LOCAL_WRITE | MW_BIND, options: PairOptions = {}): Promise<Bench> {
  const pair = await connectedPair(options);
  pair.client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
  pair.run();
  pair.client.sent();
  return { pair, mr: pair.server.register(64, access, 0x1000), mw: pair.server.pd.allocateMw() };
}

/** Bind on the server and run; returns the completions. */
function bind(
  { pair, mr, mw }: Bench,
  change: object = {},
  qp: QueuePair = pair.server.qp,
): WorkCompletion[] {
  qp.postSend({
    wrId: 1,
    opcode: 'bind-mw',
    mw,
    mr,
    offset: 16,
    length: 32,
    access: REMOTE_READ | REMOTE_WRITE,
    ...change,
  });
  pair.run();
  return pair.server.sent();
}

function write(
  pair: Pair,
  rkey: number,
  remoteAddr: bigint | number,
  octets = 8,
  qp: QueuePair = pair.client.qp,
): void {
  qp.postSend({ wrId: 2, opcode: 'rdma-write', inline: pattern(octets), rkey, remoteAddr });
  pair.run();
}

describe('memory windows', () => {
  it('a new window is invalid, belongs to a domain, and is no region (VERBS-160, VERBS-088)', async () => {
    const b = await bench();
    expect(b.mw.query()).toMatchObject({
      state: 'invalid',
      pd: b.pair.server.pd.handle,
      region: undefined,
      queuePair: undefined,
      length: 0,
    });
    expect(codeOf(() => b.pair.server.qp.postSend({ opcode: 'send', sges: [{ mr: b.mw as never }] }))).toBe(
      'ERR_INVALID_ARGUMENT',
    );
    write(b.pair, b.mw.rkey, 0);
    expect(terminateOf(b.pair.server.qp)).toBe('1/1/00');
  });

  it('bound it opens its part, whatever the region grants remotely (VERBS-161/163/164)', async () => {
    const b = await bench();
    const { pair, mr, mw } = b;
    expect(outcomes(bind(b))).toEqual(['1 success']);
    expect(mw.query()).toMatchObject({
      state: 'valid',
      region: mr.rkey,
      queuePair: pair.server.qp.number,
      addr: 0x1010n,
      length: 32,
      access: REMOTE_READ | REMOTE_WRITE,
    });
    expect([mr.query().windows, pair.server.qp.query().boundWindows]).toEqual([1, 1]);
    write(pair, mw.rkey, 0x1010);
    const sink = pair.client.register(8);
    pair.client.qp.postSend({
      wrId: 3,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: mw.rkey,
      remoteAddr: 0x1010n,
    });
    pair.run();
    expect([mr.bytes.subarray(16, 24), sink.bytes]).toEqual([pattern(8), pattern(8)]);
    write(pair, mw.rkey, 0x100f, 1);
    expect(terminateOf(pair.server.qp)).toBe('1/1/01');
  });

  it('its own rights and bounds count; zero octets are not checked (VERBS-164/165/140)', async () => {
    const b = await bench(LOCAL_WRITE | MW_BIND | REMOTE_READ | REMOTE_WRITE);
    bind(b, { access: REMOTE_READ, iova: 0 });
    const { pair, mw, mr } = b;
    mr.bytes.set(pattern(64));
    const sink = pair.client.register(32);
    pair.client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: sink }], rkey: mw.rkey, remoteAddr: 0 });
    pair.run();
    expect(sink.bytes).toEqual(pattern(64).subarray(16, 48));
    write(pair, mw.rkey, 9999, 0);
    expect(pair.server.qp.state).toBe('rts');
    write(pair, mw.rkey, 0, 1);
    expect(terminateOf(pair.server.qp)).toBe('1/1/02');
  });

  it('another queue pair cannot use it, nor can its own once its enable is off (VERBS-163)', async () => {
    const b = await bench();
    const first = b.pair.client.qp;
    bind(b);
    const other = secondConnection(b.pair);
    const sink = b.pair.client.register(8);
    other.client.postSend({
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: b.mw.rkey,
      remoteAddr: 0x1010n,
    });
    b.pair.run();
    expect(terminateOf(other.server)).toBe('0/1/03');
    const third = secondConnection(b.pair);
    write(b.pair, b.mw.rkey, 0x1010n, 8, third.client);
    expect(terminateOf(third.server)).toBe('1/1/02');
    write(b.pair, b.mw.rkey, 0x1010n, 8, first);
    expect(b.mr.bytes.subarray(16, 24)).toEqual(pattern(8));
  });

  it('what can never be right throws at once (VERBS-161, VERBS-162)', async () => {
    const b = await bench();
    const { pair, mr, mw } = b;
    const { server } = pair;
    const plain = { opcode: 'bind-mw', mw, mr, access: REMOTE_READ } as const;
    const post = (change: object): unknown => server.qp.postSend({ ...plain, ...change });
    const far = server.device.allocatePd();
    expect(codeOf(() => post({ mr: far.registerMemory(new Uint8Array(8), MW_BIND, { iova: 0 }) }))).toBe(
      'ERR_WRONG_PD',
    );
    expect(codeOf(() => post({ mw: far.allocateMw() }))).toBe('ERR_WRONG_PD');
    expect(codeOf(() => post({ mr: server.register(8, LOCAL_WRITE) }))).toBe('ERR_ACCESS');
    expect(codeOf(() => post({ mr: server.pd.registerMemory(new Uint8Array(8), MW_BIND) }))).toBe(
      'ERR_INVALID_STATE',
    );
    expect(codeOf(() => post({ offset: 60, length: 5 }))).toBe('ERR_OUT_OF_RANGE');
    expect(codeOf(() => post({ offset: 65 }))).toBe('ERR_OUT_OF_RANGE');
    expect(codeOf(() => post({ access: LOCAL_WRITE }))).toBe('ERR_INVALID_ARGUMENT');
    const readOnly = server.register(8, MW_BIND);
    for (const access of [REMOTE_WRITE, REMOTE_ATOMIC])
      expect(codeOf(() => post({ mr: readOnly, access }))).toBe('ERR_ACCESS');
    expect(codeOf(() => post({ mr: readOnly, access: REMOTE_READ }))).toBe('nothing');
    const gone = server.pd.allocateMw();
    gone.deallocate();
    expect(codeOf(() => post({ mw: gone }))).toBe('ERR_INVALID_REGION');
    const locked = await connectedPair({ client: { qp: { allowBind: false } } });
    const c = locked.client;
    expect(
      codeOf(() => c.qp.postSend({ opcode: 'bind-mw', mw: c.pd.allocateMw(), mr: c.register(8), access: 0 })),
    ).toBe('ERR_NOT_SUPPORTED');
  });

  const late: readonly (readonly [string, (b: Bench) => void])[] = [
    [
      'a window that is bound already',
      (b) => b.pair.server.qp.postSend({ opcode: 'bind-mw', mw: b.mw, mr: b.mr, access: REMOTE_READ }),
    ],
    ['a region that the peer has invalidated', (b) => b.pair.server.device.stags.invalidate(b.mr.entry)],
    ['a region that has another STag by now', (b) => b.mr.reregister({})],
    ['a window that has been deallocated meanwhile', (b) => b.mw.deallocate()],
  ];
  for (const [what, happen] of late) {
    it(`${what} fails the bind and ends the stream with 0/0/00 (VERBS-161/111/169)`, async () => {
      const b = await bench();
      const { server } = b.pair;
      server.qp.postSend({ wrId: 1, opcode: 'bind-mw', mw: b.mw, mr: b.mr, access: REMOTE_READ });
      happen(b);
      b.pair.run();
      expect(server.sent().some((wc) => wc.status === 'mw-bind-error')).toBe(true);
      expect([terminateOf(server.qp), terminateOf(b.pair.client.qp)]).toEqual(['0/0/00', '0/0/00']);
    });
  }

  it('rebound after invalidation it has another key, and only that is accepted (VERBS-168/166)', async () => {
    const b = await bench();
    const { pair, mw } = b;
    bind(b);
    const old = mw.rkey;
    pair.server.qp.postSend([
      { wrId: 4, opcode: 'local-invalidate', target: mw },
      { wrId: 5, opcode: 'bind-mw', mw, mr: b.mr, offset: 0, length: 8, access: REMOTE_WRITE, key: 0x42 },
    ]);
    pair.run();
    expect(outcomes(pair.server.sent())).toEqual(['4 success', '5 success']);
    expect([mw.rkey & 0xff, mw.rkey >>> 8, pair.server.qp.query().boundWindows]).toEqual([
      0x42,
      old >>> 8,
      1,
    ]);
    write(pair, mw.rkey, 0x1000);
    expect(b.mr.bytes.subarray(0, 8)).toEqual(pattern(8));
    write(pair, old, 0x1010);
    expect(terminateOf(pair.server.qp)).toBe('1/1/00');
  });

  it('a valid window is invalidated through its queue pair, an invalid one by any (VERBS-166)', async () => {
    const b = await bench();
    bind(b);
    const { pair, mw } = b;
    const other = secondConnection(pair);
    other.client.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    pair.run();
    other.server.postSend({ wrId: 8, opcode: 'local-invalidate', target: mw });
    pair.run();
    expect(outcomes(pair.server.sent())).toEqual(['8 local-invalidate-error']);
    expect([mw.valid, terminateOf(other.client)]).toEqual([true, '0/0/00']);
    const third = secondConnection(pair);
    third.server.postRecv({});
    third.client.postSend({ opcode: 'send', invalidate: mw.rkey });
    pair.run();
    expect([mw.valid, terminateOf(third.server)]).toEqual([true, '0/1/09']);
  });

  it('an invalid window may be invalidated again by any queue pair of its domain (VERBS-166)', async () => {
    const b = await bench();
    const { pair, mw } = b;
    bind(b);
    pair.server.qp.postSend({ wrId: 4, opcode: 'local-invalidate', target: mw });
    pair.run();
    const other = secondConnection(pair);
    other.server.postRecv({ wrId: 6 });
    other.client.postSend({ wrId: 5, opcode: 'send', invalidate: mw.rkey });
    pair.run();
    other.server.postSend({ wrId: 7, opcode: 'local-invalidate', target: mw });
    pair.run();
    expect(outcomes(pair.server.sent())).toEqual(['4 success', '7 success']);
    expect(pair.server.received()).toMatchObject([{ wrId: 6, status: 'success', invalidatedStag: mw.rkey }]);
    expect(mw.query()).toMatchObject({ state: 'invalid', queuePair: undefined, region: undefined });
    expect(b.mr.query().windows).toBe(0);
  });

  it('a region with windows is neither invalidated nor deregistered (VERBS-003/151)', async () => {
    const b = await bench(LOCAL_WRITE | MW_BIND | REMOTE_READ);
    bind(b);
    const { pair, mr } = b;
    expect(codeOf(() => mr.deregister())).toBe('ERR_IN_USE');
    pair.server.qp.postRecv({});
    pair.client.qp.postSend({ opcode: 'send', invalidate: mr.rkey });
    pair.run();
    expect([mr.valid, terminateOf(pair.server.qp)]).toEqual([true, '0/1/09']); // VERBS-170
  });

  it('atomics work through a window that grants them', async () => {
    const b = await bench();
    bind(b, { access: REMOTE_ATOMIC });
    const { client } = b.pair;
    const mr = client.register(8);
    client.qp.postSend({
      wrId: 3,
      opcode: 'atomic-fetch-add',
      sges: [{ mr }],
      rkey: b.mw.rkey,
      remoteAddr: 0x1018,
      add: 5,
    });
    b.pair.run();
    expect(outcomes(client.sent())).toEqual(['3 success']);
    expect(new DataView(b.mr.bytes.buffer).getBigUint64(24, true)).toBe(5n);
  });
});

describe('invalidation', () => {
  it('through the queue, unseen by the peer; size and rights stay (VERBS-153/157/104)', async () => {
    const b = await bench(LOCAL_WRITE | REMOTE_WRITE);
    const { pair, mr } = b;
    const before = pair.wire().fromServer.length;
    pair.server.qp.postSend({ wrId: 1, opcode: 'local-invalidate', target: mr });
    expect(codeOf(() => pair.server.qp.postSend({ opcode: 'send', sges: [{ mr }] }))).toBe(
      'ERR_INVALID_REGION',
    );
    pair.run();
    expect(outcomes(pair.server.sent())).toEqual(['1 success']);
    expect(pair.wire().fromServer.length).toBe(before);
    expect(mr.query()).toMatchObject({
      state: 'invalid',
      maxLength: 64,
      pd: pair.server.pd.handle,
      access: LOCAL_WRITE | REMOTE_WRITE,
      remote: true,
    });
    write(pair, mr.rkey, 0x1000);
    expect(terminateOf(pair.server.qp)).toBe('1/1/00');
  });

  it('twice does no harm, from here or from the peer (VERBS-154)', async () => {
    const b = await bench(LOCAL_WRITE | REMOTE_WRITE);
    const { pair, mr } = b;
    pair.server.qp.postRecv([{ wrId: 5 }, { wrId: 6 }]);
    pair.client.qp.postSend([
      { opcode: 'send', invalidate: mr.rkey },
      { opcode: 'send', invalidate: mr.rkey },
    ]);
    pair.run();
    pair.server.qp.postSend({ wrId: 1, opcode: 'local-invalidate', target: mr });
    pair.run();
    expect(outcomes(pair.server.received())).toEqual(['5 success', '6 success']);
    expect(outcomes(pair.server.sent())).toEqual(['1 success']);
  });

  it('a region with a window, or another STag by now, completes in error (VERBS-153/111)', async () => {
    const b = await bench();
    bind(b);
    const { server } = b.pair;
    server.qp.postSend({ wrId: 9, opcode: 'local-invalidate', target: b.mr });
    b.pair.run();
    expect(outcomes(server.sent())).toEqual(['9 local-invalidate-error']);
    expect([b.mr.valid, terminateOf(b.pair.client.qp)]).toEqual([true, '0/0/00']);

    const c = await bench();
    c.pair.server.qp.postSend({ wrId: 9, opcode: 'local-invalidate', target: c.mr });
    c.mr.reregister({});
    c.pair.run();
    expect(outcomes(c.pair.server.sent())).toEqual(['9 local-invalidate-error']);
    expect(c.mr.valid).toBe(true);
  });

  it('the peer needs a remote right on the STag and on the queue pair (VERBS-155, VERBS-170)', async () => {
    const attempt = async (access: number, options: PairOptions): Promise<string | undefined> => {
      const b = await bench(access, options);
      b.pair.server.qp.postRecv({ wrId: 1 });
      b.pair.client.qp.postSend({ opcode: 'send', invalidate: b.mr.rkey });
      b.pair.run();
      if (b.pair.server.qp.state === 'rts') return b.mr.valid ? 'still valid' : 'invalidated';
      expect(outcomes(b.pair.server.received())).toEqual(['1 remote-invalidate-error']);
      expect(b.mr.valid).toBe(true);
      return terminateOf(b.pair.server.qp);
    };
    expect(await attempt(LOCAL_WRITE, {})).toBe('0/1/02');
    expect(await attempt(REMOTE_READ, {})).toBe('invalidated');
    expect(await attempt(REMOTE_READ, { server: { qp: { inboundRead: false } } })).toBe('invalidated');
    expect(await attempt(REMOTE_READ, { server: { qp: { inboundRead: false, inboundWrite: false } } })).toBe(
      '0/1/02',
    );
  });

  it('unknown, freed, foreign, limited, shared STags each end it (VERBS-156/170, SEC-001/008)', async () => {
    const attempt = async (stag: (pair: Pair) => number): Promise<string | undefined> => {
      const { pair } = await bench();
      pair.server.qp.postRecv({ wrId: 1 });
      pair.client.qp.postSend({ opcode: 'send', invalidate: stag(pair) });
      pair.run();
      expect(outcomes(pair.server.received())).toEqual(['1 remote-invalidate-error']);
      return terminateOf(pair.server.qp);
    };
    expect(await attempt(() => 0)).toBe('0/1/00');
    expect(await attempt(() => 0x1234_5678)).toBe('0/1/00');
    expect(await attempt((pair) => (pair.server.register(8).rkey ^ 1) >>> 0)).toBe('0/1/00');
    expect(
      await attempt((pair) => {
        const mr = pair.server.register(8);
        mr.deregister();
        return mr.rkey;
      }),
    ).toBe('0/1/00');
    expect(
      await attempt(
        (pair) => pair.server.device.allocatePd().registerMemory(new Uint8Array(8), REMOTE_READ).rkey,
      ),
    ).toBe('0/1/09');
    expect(
      await attempt((pair) => {
        const queuePair = pair.server.createQp();
        return pair.server.pd.registerMemory(new Uint8Array(8), REMOTE_READ, { queuePair }).rkey;
      }),
    ).toBe('0/1/09');
    expect(
      await attempt(
        (pair) => pair.server.pd.registerMemory(new Uint8Array(8), REMOTE_READ, { shared: true }).rkey,
      ),
    ).toBe('0/1/09');
  });

  it('payload placed, STag taken away, then the receive completes and names it (VERBS-103/159)', async () => {
    const b = await bench(LOCAL_WRITE | REMOTE_WRITE);
    const { pair, mr } = b;
    const sink = pair.server.register(64);
    pair.server.qp.postRecv({ wrId: 3, sges: [{ mr: sink }] });
    pair.client.qp.postSend({ opcode: 'send', inline: pattern(32), invalidate: mr.rkey, solicited: true });
    pair.run();
    expect(pair.server.received()).toMatchObject([
      { wrId: 3, status: 'success', byteLength: 32, invalidatedStag: mr.rkey },
    ]);
    expect(sink.bytes.subarray(0, 32)).toEqual(pattern(32));
    expect(mr.valid).toBe(false);
  });

  it('a Read with local invalidate takes its sink away before it completes (VERBS-102/079)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const source = server.register(pattern(64));
    const sink = client.register(64);
    let validAtCompletion: boolean | undefined;
    client.sendCq.setHandler(() => (validAtCompletion = sink.valid));
    client.sendCq.requestNotify();
    client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: source.rkey,
      remoteAddr: 0,
      localInvalidate: true,
    });
    pair.advance(0);
    expect(sink.entry.valid).toBe(true);
    expect(codeOf(() => client.qp.postSend({ opcode: 'send', sges: [{ mr: sink }] }))).toBe(
      'ERR_INVALID_REGION',
    );
    const memory = sink.bytes;
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 success']);
    expect([validAtCompletion, sink.valid]).toEqual([false, false]);
    expect(memory).toEqual(pattern(64));
    expect(
      codeOf(() =>
        client.qp.postSend({ opcode: 'rdma-read', rkey: 1, remoteAddr: 0, localInvalidate: true }),
      ),
    ).toBe('ERR_INVALID_ARGUMENT');
  });

  it('if the sink cannot be invalidated by then, the Read completes in error (VERBS-102/111)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const source = server.register(pattern(64));
    const sink = client.register(64, LOCAL_WRITE | MW_BIND);
    const mw = client.pd.allocateMw();
    client.qp.postSend([
      { wrId: 1, opcode: 'bind-mw', mw, mr: sink, access: REMOTE_READ },
      {
        wrId: 2,
        opcode: 'rdma-read',
        sges: [{ mr: sink }],
        rkey: source.rkey,
        remoteAddr: 0,
        localInvalidate: true,
      },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 success', '2 local-invalidate-error']);
    expect(terminateOf(server.qp)).toBe('0/0/00');
  });
});
