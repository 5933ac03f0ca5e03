// Memory that ends while a long message is on its way: on a network on which octets take their time.
import { describe, expect, it } from 'vitest';
import { TRANSMIT_BUFFER_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { connectedPair } from '../support/pair.ts';
import { LOCAL_WRITE, MW_BIND, outcomes, REMOTE_WRITE, terminateOf } from './support.ts';

/** A network on which 200 KB take 200 ms, a little at a time. */
const SLOW = { latency: 1, bandwidth: 1000, buffer: 8192, readOctets: 2048 } as const;
/** More than is on its way at a time. */
const LONG = 6 * TRANSMIT_BUFFER_OCTETS;

describe('memory that ends while a message is on its way', () => {
  it('deregistered under a Write: placed octets stay, no more come (VERBS-146, SEC-005/007)', async () => {
    const pair = await connectedPair({ network: SLOW });
    const target = pair.server.register(200_000);
    const source = pair.client.register(new Uint8Array(200_000).fill(7));
    pair.client.qp.postSend({
      opcode: 'rdma-write',
      sges: [{ mr: source }],
      rkey: target.rkey,
      remoteAddr: 0,
    });
    const memory = target.bytes;
    pair.advance(60);
    const placed = memory.lastIndexOf(7);
    expect(placed).toBeGreaterThan(0);
    expect(placed).toBeLessThan(199_999);
    target.deregister();
    const frozen = memory.slice();
    pair.run();
    expect(memory).toEqual(frozen);
    expect(terminateOf(pair.server.qp)).toBe('1/1/00');
  });

  it('a source deregistered during a Read gets a Terminate instead of data (VERBS-069/151)', async () => {
    const pair = await connectedPair({ network: SLOW });
    const source = pair.server.register(new Uint8Array(LONG).fill(7));
    const sink = pair.client.register(LONG);
    pair.client.qp.postSend({
      wrId: 2,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: source.rkey,
      remoteAddr: 0,
    });
    pair.advance(60);
    source.deregister();
    pair.run();
    expect([terminateOf(pair.server.qp), terminateOf(pair.client.qp)]).toEqual(['0/1/00', '0/1/00']);
    expect(outcomes(pair.client.sent())).toEqual(['2 remote-access-error']);
    const got = sink.bytes.lastIndexOf(7);
    expect(got).toBeGreaterThan(0);
    expect(sink.bytes.subarray(0, got + 1).every((octet) => octet === 7)).toBe(true);
  });

  it('local memory lost under a queued or half-sent request fails only its stream (VERBS-151)', async () => {
    const pair = await connectedPair({ network: SLOW });
    const target = pair.server.register(LONG);
    const source = pair.client.register(new Uint8Array(LONG).fill(7));
    pair.client.qp.postSend([
      { wrId: 1, opcode: 'rdma-write', sges: [{ mr: source }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 2, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 },
    ]);
    pair.advance(60);
    source.deregister();
    pair.run();
    expect(outcomes(pair.client.sent())).toEqual(['1 local-protection-error', '2 flushed']);
    expect([terminateOf(pair.client.qp), terminateOf(pair.server.qp)]).toEqual(['0/0/00', '0/0/00']);
  });

  it('no access succeeds after invalidation or deallocation, even if begun (VERBS-167)', async () => {
    for (const end of ['invalidate', 'deallocate'] as const) {
      const pair = await connectedPair({ network: SLOW });
      const { client, server } = pair;
      client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
      pair.run();
      const mr = server.register(200_000, LOCAL_WRITE | MW_BIND, 0);
      const mw = server.pd.allocateMw();
      server.qp.postSend({ opcode: 'bind-mw', mw, mr, access: REMOTE_WRITE });
      pair.run();
      const source = client.register(new Uint8Array(200_000).fill(7));
      client.qp.postSend({ opcode: 'rdma-write', sges: [{ mr: source }], rkey: mw.rkey, remoteAddr: 0 });
      pair.advance(60);
      expect(mr.bytes[0]).toBe(7);
      if (end === 'deallocate') mw.deallocate();
      else server.qp.postSend({ opcode: 'local-invalidate', target: mw });
      pair.advance(0);
      const frozen = mr.bytes.slice();
      expect(frozen.at(-1)).toBe(0);
      pair.run();
      expect(mr.bytes).toEqual(frozen);
      expect(terminateOf(server.qp)).toBe('1/1/00');
      expect(mr.query().windows).toBe(0);
      mr.deregister();
    }
  });
});
