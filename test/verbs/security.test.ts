// RFC 5042 as seen by verbs: what one stream cannot do to another, and what each resource is bounded by.
import { describe, expect, it } from 'vitest';
import { Device, type MemoryRegion, type SendWorkRequest } from '../../src/verbs/index.ts';
import { connectedPair, type Pair } from '../support/pair.ts';
import {
  codeOf,
  LOCAL_WRITE,
  outcomes,
  pattern,
  REMOTE_READ,
  secondConnection,
  serverTerminate,
  terminateOf,
} from './support.ts';

/** The four ways to use an STag from afar. */
function uses(pair: Pair, rkey: number): readonly (readonly [string, SendWorkRequest])[] {
  const mr = pair.client.register(8);
  return [
    ['Write', { opcode: 'rdma-write', inline: pattern(8), rkey, remoteAddr: 0 }],
    ['Read', { opcode: 'rdma-read', sges: [{ mr }], rkey, remoteAddr: 0 }],
    ['Atomic', { opcode: 'atomic-fetch-add', sges: [{ mr }], rkey, remoteAddr: 0, add: 1 }],
    ['Invalidate', { opcode: 'send', invalidate: rkey }],
  ];
}

const CODES: Readonly<Record<string, string>> = {
  Write: '1/1/02',
  Read: '0/1/03',
  Atomic: '0/1/03',
  Invalidate: '0/1/09',
};

async function eachUse(
  register: (pair: Pair) => MemoryRegion,
  codes: Readonly<Record<string, string>>,
): Promise<void> {
  for (const name of Object.keys(codes)) {
    let mr: MemoryRegion | undefined;
    const code = await serverTerminate((pair) => {
      mr = register(pair);
      pair.server.qp.postRecv({});
      pair.client.qp.postSend(uses(pair, mr.rkey).find(([use]) => use === name)![1]);
    });
    expect(code, name).toBe(codes[name]);
    expect([mr!.valid, mr!.bytes.every((octet) => octet === 0)]).toEqual([true, true]);
  }
}

describe('isolation of streams', () => {
  it('an STag of another domain is of no use, in any of the four ways (SEC-001)', async () => {
    await eachUse((pair) => pair.server.device.allocatePd().registerMemory(new Uint8Array(8), 31), CODES);
  });

  it('nor is one that is limited to another stream of the same domain (SEC-002)', async () => {
    await eachUse(
      (pair) => pair.server.pd.registerMemory(new Uint8Array(8), 31, { queuePair: pair.server.createQp() }),
      CODES,
    );
    const pair = await connectedPair();
    const own = pair.server.pd.registerMemory(new Uint8Array(8), 31, { queuePair: pair.server.qp });
    pair.client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-write',
      inline: pattern(8),
      rkey: own.rkey,
      remoteAddr: 0,
    });
    pair.run();
    expect([own.bytes, pair.server.qp.state]).toEqual([pattern(8), 'rts']);
    expect(own.query().queuePair).toBe(pair.server.qp.number);
  });

  it('an STag that several streams share serves them all and is taken away by none (SEC-008)', async () => {
    await eachUse((pair) => pair.server.pd.registerMemory(new Uint8Array(8), 31, { shared: true }), {
      Invalidate: '0/1/09',
    });
    const pair = await connectedPair();
    const first = pair.client.qp;
    const second = secondConnection(pair);
    const mr = pair.server.pd.registerMemory(new Uint8Array(16), 31, { shared: true });
    first.postSend({ opcode: 'rdma-write', inline: pattern(8), rkey: mr.rkey, remoteAddr: 0 });
    second.client.postSend({ opcode: 'rdma-write', inline: pattern(8), rkey: mr.rkey, remoteAddr: 8 });
    pair.run();
    expect(mr.bytes).toEqual(Uint8Array.of(...pattern(8), ...pattern(8)));
  });

  it('a fault of one stream ends that stream, and others of its device go on (SEC-014)', async () => {
    const pair = await connectedPair();
    const first = { client: pair.client.qp, server: pair.server.qp };
    const second = secondConnection(pair);
    const mr = pair.client.register(8);
    first.client.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    pair.run();
    second.server.postRecv({ wrId: 4 });
    second.client.postSend({ opcode: 'send' });
    pair.run();
    expect([first.server.state, second.server.state, outcomes(pair.server.received())]).toEqual([
      'error',
      'rts',
      ['4 success'],
    ]);
  });
});

describe('memory', () => {
  it('only memory that the caller shows is registered: the view and no more of it (SEC-028)', async () => {
    const pd = new Device().allocatePd();
    for (const memory of [4096, 0x7fff_0000n, 'x', null, undefined, {}, new ArrayBuffer(8), [1, 2]]) {
      expect(codeOf(() => pd.registerMemory(memory as never, 0))).toBe('ERR_INVALID_ARGUMENT');
    }
    const buffer = new Uint8Array(32).fill(9);
    const pair = await connectedPair();
    const mr = pair.server.register(buffer.subarray(8, 16), LOCAL_WRITE | REMOTE_READ);
    const sink = pair.client.register(8);
    pair.client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: mr.rkey,
      remoteAddr: 0,
    });
    pair.client.qp.postSend({
      wrId: 2,
      opcode: 'rdma-read',
      sges: [{ mr: sink, length: 1 }],
      rkey: mr.rkey,
      remoteAddr: 8,
    });
    pair.run();
    expect(outcomes(pair.client.sent())).toEqual(['1 success', '2 remote-access-error']);
    expect(terminateOf(pair.server.qp)).toBe('0/1/01');
  });

  it('a binding lasts from its call to the return of the call that ends it (SEC-005/007)', async () => {
    for (const end of [
      (mr: MemoryRegion) => mr.deregister(),
      (mr: MemoryRegion) => mr.reregister({ access: LOCAL_WRITE }),
    ]) {
      const pair = await connectedPair();
      const mr = pair.server.register(8);
      const { bytes } = mr;
      pair.client.qp.postSend({ opcode: 'rdma-write', inline: pattern(8), rkey: mr.rkey, remoteAddr: 0 });
      pair.advance(0); // sent, and on its way
      end(mr);
      pair.run();
      expect([bytes.every((octet) => octet === 0), terminateOf(pair.server.qp)]).toEqual([true, '1/1/00']);
    }
  });
});
