// Memory regions: registration of every kind, rights, bounds, fast registration. Verbs draft 7.2 to 7.9; RFC
// 5042 6.
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { Device, type MemoryRegion } from '../../src/verbs/index.ts';
import { connectedPair, type Pair } from '../support/pair.ts';
import {
  codeOf,
  LOCAL_WRITE,
  MW_BIND,
  outcomes,
  pattern,
  REMOTE_ATOMIC,
  REMOTE_READ,
  REMOTE_WRITE,
  serverTerminate,
  terminateOf,
} from './support.ts';

const write = (pair: Pair, rkey: number, remoteAddr: bigint | number, octets = 8): void => {
  pair.client.qp.postSend({ wrId: 1, opcode: 'rdma-write', inline: pattern(octets), rkey, remoteAddr });
};

const read = (pair: Pair, rkey: number, remoteAddr: bigint | number, octets = 8): MemoryRegion => {
  const mr = pair.client.register(new Uint8Array(Math.max(octets, 1)));
  pair.client.qp.postSend({ wrId: 2, opcode: 'rdma-read', sges: [{ mr, length: octets }], rkey, remoteAddr });
  return mr;
};

describe('STags', () => {
  it('index from the device, key from the caller; any wrong bit is an error (VERBS-138)', async () => {
    const device = new Device();
    const pd = device.allocatePd();
    expect(pd.registerMemory(new Uint8Array(1), 0, { key: 0xa5 }).rkey & 0xff).toBe(0xa5);
    for (const bit of [0, 7, 8, 31]) {
      const code = await serverTerminate((pair) =>
        write(pair, (pair.server.register(8).rkey ^ (1 << bit)) >>> 0, 0),
      );
      expect(code, `bit ${bit}`).toBe('1/1/00');
    }
    expect(
      await serverTerminate(
        (pair) => void read(pair, (pair.server.register(8, LOCAL_WRITE | REMOTE_READ).rkey ^ 1) >>> 0, 0),
      ),
    ).toBe('0/1/00');
  });

  it('index 0 is never given out, and STag 0 is never usable (VERBS-139)', async () => {
    // A generator that keeps offering index 0.
    const draws = [0, 0, 0x0100_0000, 5, 77];
    const pd = new Device({ random: () => draws.shift() ?? 1 }).allocatePd();
    expect(pd.registerMemory(new Uint8Array(1), 0).rkey >>> 8).not.toBe(0);
    expect(await serverTerminate((pair) => write(pair, 0, 0))).toBe('1/1/00');
    expect(await serverTerminate((pair) => void read(pair, 0, 0))).toBe('0/1/00');
  });

  it('values are spread over the range and follow no rule (SEC-009, SEC-010)', () => {
    const pd = new Device().allocatePd();
    const memory = new Uint8Array(1);
    const stags = Array.from({ length: 1000 }, () => pd.registerMemory(memory, 0).rkey);
    const steps = new Set(stags.slice(1).map((stag, i) => (stag - stags[i]! + 2 ** 32) % 2 ** 32));
    expect(steps.size).toBeGreaterThan(990);
    for (let bit = 0; bit < 32; bit++) {
      const ones = stags.filter((stag) => ((stag >>> bit) & 1) === 1).length;
      expect(ones, `bit ${bit}`).toBeGreaterThan(400);
      expect(ones, `bit ${bit}`).toBeLessThan(600);
    }
  });

  it('a value does not return before 4096 others are freed, even if drawn again (SEC-010)', () => {
    let draw = 0;
    const pd = new Device({ random: () => ++draw }).allocatePd();
    const memory = new Uint8Array(1);
    const indices = Array.from({ length: 4098 }, () => {
      draw = 0; // the lowest free index is drawn first
      const mr = pd.registerMemory(memory, 0);
      mr.deregister();
      return mr.rkey >>> 8;
    });
    expect(indices).toEqual([...Array.from({ length: 4097 }, (_, i) => i + 1), 1]);
  });
});

describe('registration', () => {
  it('zero-based and addressed offsets of 64 bits both work (VERBS-140)', async () => {
    const pair = await connectedPair();
    const zero = pair.server.pd.registerMemory(new Uint8Array(32), LOCAL_WRITE | REMOTE_WRITE);
    const high = pair.server.register(32, LOCAL_WRITE | REMOTE_WRITE, 0xffff_ffff_ffff_ffe0n);
    expect([zero.addr, zero.query().zeroBased]).toEqual([0n, true]);
    expect([high.addr, high.query().zeroBased]).toEqual([0xffff_ffff_ffff_ffe0n, false]);
    write(pair, zero.rkey, 24);
    write(pair, high.rkey, 0xffff_ffff_ffff_fff8n);
    pair.run();
    expect([zero.bytes.subarray(24), high.bytes.subarray(24)]).toEqual([pattern(8), pattern(8)]);
  });

  it('rights that give a peer writing without local writing are refused (VERBS-141, SEC-006)', () => {
    const pd = new Device().allocatePd();
    // Local read is always there, as in libibverbs, so a combination always has a local right and remote read
    // its local read.
    for (let bits = 0; bits < 16; bits++) {
      const access =
        (bits & 1 ? LOCAL_WRITE : 0) |
        (bits & 2 ? REMOTE_WRITE : 0) |
        (bits & 4 ? REMOTE_READ : 0) |
        (bits & 8 ? REMOTE_ATOMIC : 0);
      const legal = (bits & 1) !== 0 || (bits & 10) === 0;
      expect(
        codeOf(() => pd.registerMemory(new Uint8Array(1), access)),
        `rights ${access}`,
      ).toBe(legal ? 'nothing' : 'ERR_INVALID_ARGUMENT');
    }
  });

  it('bounds hold to the octet; a segment half outside does nothing (VERBS-143, SEC-004/038)', async () => {
    for (const [at, octets] of [
      [7, 1],
      [24, 1],
      [7, 2],
      [23, 2],
      [0, 64],
    ] as const) {
      let region: Uint8Array = new Uint8Array(0);
      const code = await serverTerminate((pair) => {
        region = new Uint8Array(32);
        const mr = pair.server.pd.registerMemory(region.subarray(8, 24), LOCAL_WRITE | REMOTE_WRITE, {
          iova: 8,
        });
        pair.client.qp.postSend({
          opcode: 'rdma-write',
          inline: pattern(octets),
          rkey: mr.rkey,
          remoteAddr: at,
        });
      });
      expect(code, `${octets} octets at ${at}`).toBe('1/1/01');
      expect(region.every((octet) => octet === 0)).toBe(true);
    }
    const pair = await connectedPair();
    const mr = pair.server.pd.registerMemory(new Uint8Array(16), LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ, {
      iova: 8,
    });
    write(pair, mr.rkey, 8, 16);
    const back = read(pair, mr.rkey, 23, 1);
    pair.run();
    expect(mr.bytes).toEqual(pattern(16));
    expect(back.bytes[0]).toBe(pattern(16)[15]);
    expect(await serverTerminate((p) => void read(p, p.server.register(16).rkey, 15, 2))).toBe('0/1/01');
  });

  it('octets a buffer grows by are not registered; no region grows (VERBS-143, SEC-004)', async () => {
    type Growing = new (
      octets: number,
      options: { readonly maxByteLength: number },
    ) => ArrayBuffer & { resize(octets: number): void; grow(octets: number): void };
    const growing = [
      [new (ArrayBuffer as unknown as Growing)(64, { maxByteLength: 128 }), 'resize'],
      [new (SharedArrayBuffer as unknown as Growing)(64, { maxByteLength: 128 }), 'grow'],
    ] as const;
    const RIGHTS = LOCAL_WRITE | REMOTE_WRITE;
    for (const [buffer, grow] of growing) {
      const memory = new Uint8Array(buffer, 8);
      const ways: ((pair: Pair) => MemoryRegion)[] = [
        ({ server }) => server.pd.registerMemory(memory, RIGHTS),
        ({ server }) => {
          const mr = server.pd.registerMemory(new Uint8Array(1), RIGHTS);
          mr.reregister({ memory });
          return mr;
        },
        (pair) => {
          const mr = pair.server.pd.allocateFastRegion(56);
          pair.server.qp.postSend({ opcode: 'reg-mr', mr, memory, access: RIGHTS });
          pair.run();
          return mr;
        },
      ];
      const registered = await Promise.all(
        ways.map(async (register) => {
          const pair = await connectedPair();
          return { pair, mr: register(pair) };
        }),
      );
      buffer[grow](128);
      expect(memory.length).toBe(120);
      for (const { pair, mr } of registered) {
        expect([mr.length, mr.query().length]).toEqual([56, 56]);
        write(pair, mr.rkey, 48, 8);
        write(pair, mr.rkey, 49, 8);
        pair.run();
        expect(terminateOf(pair.server.qp)).toBe('1/1/01');
      }
      expect([...memory.subarray(48, 64)]).toEqual([...pattern(8), ...new Uint8Array(8)]);
    }
  });

  it('rights of the region and of the queue pair are both needed (VERBS-143/142, SEC-006/016)', async () => {
    expect(
      await serverTerminate((p) => write(p, p.server.register(8, LOCAL_WRITE | REMOTE_READ).rkey, 0)),
    ).toBe('1/1/02');
    expect(
      await serverTerminate((p) => void read(p, p.server.register(8, LOCAL_WRITE | REMOTE_WRITE).rkey, 0)),
    ).toBe('0/1/02');
    const closed = (qp: { inboundWrite?: boolean; inboundRead?: boolean }) => ({ server: { qp } });
    expect(
      await serverTerminate((p) => write(p, p.server.register(8).rkey, 0), closed({ inboundWrite: false })),
    ).toBe('1/1/02');
    expect(
      await serverTerminate(
        (p) => void read(p, p.server.register(8).rkey, 0),
        closed({ inboundRead: false }),
      ),
    ).toBe('1/2/01');
  });

  it('a zero-length access is not checked at all (VERBS-144, SEC-017)', async () => {
    const pair = await connectedPair();
    const gone = pair.server.register(8);
    gone.deregister();
    const writeOnly = pair.server.register(8, LOCAL_WRITE | REMOTE_WRITE);
    for (const [rkey, to] of [
      [0, 0n],
      [gone.rkey, 0n],
      [writeOnly.rkey, 2n ** 64n - 1n],
    ] as const) {
      write(pair, rkey, to, 0);
      read(pair, rkey, to, 0);
    }
    pair.run();
    expect(outcomes(pair.client.sent()).map((text) => text.slice(2))).toEqual(
      Array.from({ length: 6 }, () => 'success'),
    );
    expect(pair.server.qp.state).toBe('rts');
  });

  it('overlapping regions have own STags; the end of one leaves the other (VERBS-145/158)', async () => {
    const pair = await connectedPair();
    const memory = new Uint8Array(32);
    const [a, b] = [pair.server.register(memory), pair.server.register(memory.subarray(8))] as const;
    expect(a.rkey).not.toBe(b.rkey);
    pair.server.qp.postRecv({});
    pair.client.qp.postSend({ opcode: 'send', invalidate: a.rkey });
    write(pair, b.rkey, 0);
    pair.run();
    expect([a.valid, b.valid]).toEqual([false, true]);
    expect(memory.subarray(8, 16)).toEqual(pattern(8));
  });

  it('after deregistration nothing moves (VERBS-146/151, SEC-005/007)', async () => {
    expect(
      await serverTerminate((p) => {
        const mr = p.server.register(8);
        mr.deregister();
        write(p, mr.rkey, 0);
      }),
    ).toBe('1/1/00');
  });

  it('memory whose buffer was transferred to another thread is no longer usable (VERBS-151)', async () => {
    const gone = (mr: MemoryRegion): MemoryRegion => {
      structuredClone(null, { transfer: [mr.bytes.buffer as ArrayBuffer] });
      return mr;
    };
    for (const octets of [8, 100, 1000]) {
      expect(
        await serverTerminate((pair) =>
          write(pair, gone(pair.server.register(new Uint8Array(octets))).rkey, 0, 8),
        ),
      ).toBe('1/1/01');
      expect(
        await serverTerminate(
          (pair) =>
            void read(
              pair,
              gone(pair.server.register(new Uint8Array(octets), LOCAL_WRITE | REMOTE_READ)).rkey,
              0,
              octets,
            ),
        ),
      ).toBe('0/1/01');

      const sending = await connectedPair();
      const target = sending.server.register(new Uint8Array(octets));
      const source = sending.client.register(new Uint8Array(octets));
      sending.client.qp.postSend({
        wrId: 1,
        opcode: 'rdma-write',
        sges: [{ mr: source }],
        rkey: target.rkey,
        remoteAddr: 0,
      });
      gone(source);
      sending.run();
      expect(outcomes(sending.client.sent())).toEqual(['1 local-protection-error']);

      const reading = await connectedPair();
      const sink = read(
        reading,
        reading.server.register(new Uint8Array(octets), LOCAL_WRITE | REMOTE_READ).rkey,
        0,
        octets,
      );
      gone(sink);
      reading.run();
      expect(outcomes(reading.client.sent())).toEqual(['2 local-protection-error']);

      const receiving = await connectedPair();
      const buffer = receiving.server.register(new Uint8Array(octets));
      receiving.server.qp.postRecv({ wrId: 3, sges: [{ mr: buffer }] });
      receiving.client.qp.postSend({ wrId: 1, opcode: 'send', inline: pattern(8) });
      gone(buffer);
      receiving.run();
      expect(outcomes(receiving.server.received())).toEqual(['3 local-protection-error']);
    }
  });

  it('a query reports key, state, type, rights, domain, range (VERBS-152)', () => {
    const pd = new Device().allocatePd();
    const mr = pd.registerMemory(new Uint8Array(10), LOCAL_WRITE | REMOTE_READ, { iova: 4096, key: 9 });
    expect(mr.query()).toEqual({
      stag: mr.rkey,
      key: 9,
      state: 'valid',
      type: 'non-shared',
      access: LOCAL_WRITE | REMOTE_READ,
      remote: true,
      pd: pd.handle,
      zeroBased: false,
      addr: 4096n,
      length: 10,
      maxLength: 10,
      windows: 0,
      queuePair: undefined,
    });
    mr.deregister();
    expect(codeOf(() => mr.query())).toBe('ERR_INVALID_REGION');
    expect(codeOf(() => mr.deregister())).toBe('ERR_INVALID_REGION');
  });
});

describe('shared regions', () => {
  it('own STag, rights, domain, base over the same memory; both stay valid (VERBS-150)', async () => {
    const pair = await connectedPair();
    const { server, client } = pair;
    const source = server.register(32, LOCAL_WRITE | REMOTE_READ);
    const other = server.device.allocatePd();
    const twin = source.registerShared(LOCAL_WRITE | REMOTE_WRITE, { iova: 1000, pd: other });
    const third = twin.registerShared(LOCAL_WRITE | REMOTE_WRITE, { pd: server.pd });
    expect(twin.query()).toMatchObject({
      type: 'shared',
      state: 'valid',
      access: LOCAL_WRITE | REMOTE_WRITE,
      pd: other.handle,
      addr: 1000n,
    });
    expect(source.query()).toMatchObject({ type: 'shared', access: LOCAL_WRITE | REMOTE_READ });
    expect(new Set([source.rkey, twin.rkey, third.rkey]).size).toBe(3);
    write(pair, third.rkey, 0);
    const back = read(pair, source.rkey, 0);
    pair.run();
    expect(back.bytes).toEqual(pattern(8));
    expect(codeOf(() => server.qp.postSend({ opcode: 'local-invalidate', target: source }))).toBe(
      'ERR_INVALID_STATE',
    );
    expect(
      codeOf(() =>
        server.qp.postSend({ opcode: 'reg-mr', mr: source, memory: new Uint8Array(1), access: 0 }),
      ),
    ).toBe('ERR_INVALID_STATE');
    server.qp.postRecv({});
    client.qp.postSend({ opcode: 'send', invalidate: third.rkey });
    pair.run();
    expect(terminateOf(server.qp)).toBe('0/1/09');
    expect(third.valid).toBe(true);
    const gone = server.register(1);
    gone.deregister();
    expect(codeOf(() => gone.registerShared(0))).toBe('ERR_INVALID_REGION');
  });
});

describe('re-registration', () => {
  it('another STag with the changes made; absent fields stay (VERBS-149)', async () => {
    const pair = await connectedPair();
    const mr = pair.server.register(pattern(16), LOCAL_WRITE | REMOTE_READ, 100);
    const old = mr.rkey;
    mr.reregister({ access: LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE });
    expect(mr.rkey).not.toBe(old);
    expect(mr.query()).toMatchObject({
      addr: 100n,
      length: 16,
      access: LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE,
    });
    const before = mr.rkey;
    const memory = new Uint8Array(8);
    mr.reregister({ memory, iova: 0 });
    write(pair, mr.rkey, 0);
    pair.run();
    expect(memory).toEqual(pattern(8));
    write(pair, before, 100);
    pair.run();
    expect(terminateOf(pair.server.qp)).toBe('1/1/00');
  });

  it('to another domain; then the queue pairs of the old one cannot use it (VERBS-149)', async () => {
    const pair = await connectedPair();
    const { server } = pair;
    const pd = server.device.allocatePd();
    const mr = server.register(8);
    const [from, to] = [server.pd.users, pd.users];
    mr.reregister({ pd });
    expect([mr.pd, mr.query().pd, server.pd.users, pd.users]).toEqual([pd, pd.handle, from - 1, to + 1]);
    write(pair, mr.rkey, 0);
    pair.run();
    expect(terminateOf(server.qp)).toBe('1/1/02');
    expect(codeOf(() => server.qp.postRecv({ sges: [{ mr }] }))).toBe('ERR_WRONG_PD');
  });

  it('a bad STag, bound windows, wrong arguments change nothing; later faults do (VERBS-149)', async () => {
    const pair = await connectedPair();
    const { server } = pair;
    const gone = server.register(8);
    gone.deregister();
    expect(codeOf(() => gone.reregister({}))).toBe('ERR_INVALID_REGION');
    const mr = server.register(8);
    const mw = server.pd.allocateMw();
    server.qp.postSend({ opcode: 'bind-mw', mw, mr, access: REMOTE_READ });
    pair.client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    pair.run();
    const before = mr.query();
    expect(codeOf(() => mr.reregister({ access: 0 }))).toBe('ERR_IN_USE');
    expect(codeOf(() => mr.deregister())).toBe('ERR_IN_USE');
    expect(mr.query()).toEqual(before);
    mw.deallocate();
    expect(codeOf(() => mr.reregister({ access: 99 }))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => mr.reregister({ pd: new Device().allocatePd() }))).toBe('ERR_WRONG_PD');
    expect(mr.query()).toEqual({ ...before, windows: 0 });
    const dead = server.device.allocatePd();
    dead.deallocate();
    const users = server.pd.users;
    expect(codeOf(() => mr.reregister({ pd: dead }))).toBe('ERR_DESTROYED');
    expect([mr.deregistered, mr.valid, server.pd.users]).toEqual([true, false, users - 1]);
  });

  it('a region registered without remote rights gets them by re-registration only (VERBS-147)', async () => {
    const pair = await connectedPair();
    const { server } = pair;
    const mr = server.register(8, LOCAL_WRITE);
    const post = (): unknown =>
      server.qp.postSend({ opcode: 'reg-mr', mr, memory: new Uint8Array(8), access: REMOTE_READ });
    expect(codeOf(post)).toBe('ERR_ACCESS');
    mr.reregister({ access: LOCAL_WRITE | REMOTE_READ });
    expect(mr.query().remote).toBe(true);
    expect(codeOf(post)).toBe('nothing');
    const localOnly = server.pd.allocateFastRegion(8, { remote: false });
    expect(
      codeOf(() =>
        server.qp.postSend({
          opcode: 'reg-mr',
          mr: localOnly,
          memory: new Uint8Array(8),
          access: LOCAL_WRITE | REMOTE_WRITE,
        }),
      ),
    ).toBe('ERR_ACCESS');
  });
});

describe('fast registration', () => {
  it('through the queue, before a Send that names it, unseen on the wire (VERBS-148/100/104)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.pd.allocateFastRegion(64);
    const memory = pattern(64);
    const old = mr.rkey;
    const before = pair.wire().fromClient.length;
    client.qp.postSend({ wrId: 1, opcode: 'reg-mr', mr, memory, access: REMOTE_READ, iova: 512 });
    expect(mr.rkey).not.toBe(old);
    pair.run();
    expect(pair.wire().fromClient.length).toBe(before);
    expect(outcomes(client.sent())).toEqual(['1 success']);
    expect(mr.query()).toMatchObject({
      state: 'valid',
      access: REMOTE_READ,
      addr: 512n,
      length: 64,
      zeroBased: false,
    });

    // Invalidate, register anew and use, all in one list.
    const second = new Uint8Array(32).fill(9);
    server.qp.postRecv({ sges: [{ mr: server.register(64) }] });
    client.qp.postSend([
      { wrId: 2, opcode: 'local-invalidate', target: mr },
      { wrId: 3, opcode: 'reg-mr', mr, memory: second, access: LOCAL_WRITE | REMOTE_READ },
      { wrId: 4, opcode: 'send', sges: [{ mr }] },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['2 success', '3 success', '4 success']);
    expect(server.received()).toMatchObject([{ byteLength: 32 }]);
    const sink = server.register(32);
    server.qp.postSend({ wrId: 5, opcode: 'rdma-read', sges: [{ mr: sink }], rkey: mr.rkey, remoteAddr: 0 });
    pair.run();
    expect(sink.bytes).toEqual(second);
  });

  it('each STag of its life differs; the old one and its memory are gone (VERBS-148/157)', async () => {
    const pair = await connectedPair();
    const { server } = pair;
    pair.client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    pair.run();
    const mr = server.pd.allocateFastRegion(8);
    const stags: number[] = [];
    const first = new Uint8Array(8);
    for (let i = 0; i < 300; i++) {
      server.qp.postSend([
        {
          opcode: 'reg-mr',
          mr,
          memory: i === 0 ? first : new Uint8Array(8),
          access: LOCAL_WRITE | REMOTE_WRITE,
          signaled: false,
        },
        { opcode: 'local-invalidate', target: mr },
      ]);
      stags.push(mr.rkey);
      pair.run();
      server.sent();
    }
    expect(new Set(stags.slice(0, 256)).size).toBe(256);
    expect(new Set(stags.map((stag) => stag >>> 8)).size).toBe(1);
    server.qp.postSend({
      opcode: 'reg-mr',
      mr,
      memory: new Uint8Array(8),
      access: LOCAL_WRITE | REMOTE_WRITE,
    });
    pair.run();
    write(pair, stags.at(-1)!, 0);
    pair.run();
    expect(terminateOf(server.qp)).toBe('1/1/00');
    expect(first.every((octet) => octet === 0)).toBe(true);
  });

  it('too much memory, a window, a foreign region throw; a valid STag fails (VERBS-148/111)', async () => {
    const pair = await connectedPair({ client: { qp: { allowFastRegister: false } } });
    const { client, server } = pair;
    const mr = server.pd.allocateFastRegion(8);
    const post = (change: object): unknown =>
      server.qp.postSend({ opcode: 'reg-mr', mr, memory: new Uint8Array(8), access: 0, ...change });
    expect(codeOf(() => post({ memory: new Uint8Array(9) }))).toBe('ERR_TOO_LARGE');
    expect(codeOf(() => post({ mr: server.pd.allocateMw() }))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => post({ mr: client.register(8) }))).toBe('ERR_WRONG_PD');
    expect(codeOf(() => post({ key: 256 }))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => post({ access: REMOTE_WRITE }))).toBe('ERR_INVALID_ARGUMENT');
    const forbidden = client.pd.allocateFastRegion(8);
    expect(
      codeOf(() =>
        client.qp.postSend({ opcode: 'reg-mr', mr: forbidden, memory: new Uint8Array(1), access: 0 }),
      ),
    ).toBe('ERR_NOT_SUPPORTED');
    server.qp.postSend([
      { wrId: 1, opcode: 'reg-mr', mr, memory: new Uint8Array(8), access: 0 },
      { wrId: 2, opcode: 'reg-mr', mr, memory: new Uint8Array(8), access: 0 },
      { wrId: 3, opcode: 'send' },
    ]);
    client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    pair.run();
    expect(outcomes(server.sent())).toEqual(['1 success', '2 fast-register-error', '3 flushed']);
    expect(terminateOf(client.qp)).toBe('0/0/00');
  });

  it('a flushed registration never happened: region, posted STag and octets are as before', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const mr = client.pd.allocateFastRegion(8);
    const { rkey } = mr;
    client.qp.modify({ state: 'error' });
    pair.run();
    client.qp.postSend({ wrId: 1, opcode: 'reg-mr', mr, memory: new Uint8Array(8), access: MW_BIND });
    expect(outcomes(client.sent())).toEqual(['1 flushed']);
    expect([mr.rkey, mr.length, mr.valid]).toEqual([rkey, 0, false]);
  });

  it('every kind of region survives a random life with its rights intact', () => {
    const random = seededRandom(11);
    const pd = new Device({ random }).allocatePd();
    const live: MemoryRegion[] = [];
    for (let i = 0; i < 2000; i++) {
      const draw = random() % 4;
      const mr = live[random() % Math.max(1, live.length)];
      if (draw === 0 || mr === undefined)
        live.push(pd.registerMemory(new Uint8Array(4), LOCAL_WRITE, random() % 2 === 0 ? {} : { iova: i }));
      else if (draw === 1) mr.reregister({ access: REMOTE_READ });
      else if (draw === 2) live.push(mr.registerShared(LOCAL_WRITE));
      else live.splice(live.indexOf(mr), 1)[0]!.deregister();
      expect(pd.users).toBe(live.length);
    }
    expect(new Set(live.map((mr) => mr.rkey >>> 8)).size).toBe(live.length);
    expect(live.every((mr) => mr.valid)).toBe(true);
  });
});
