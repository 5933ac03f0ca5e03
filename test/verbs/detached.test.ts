/** A region whose ArrayBuffer the program has transferred: every use of it is an error with a code. */
import { describe, expect, it } from 'vitest';
import { ACCESS, type MemoryRegion } from '../../src/verbs/index.ts';
import { connectedPair, type Side } from '../support/pair.ts';
import { eventTypes } from './support.ts';

const LENGTH = 1000;

/** A region, and what takes its memory away. */
function regionOf(side: Side): { readonly mr: MemoryRegion; readonly detach: () => void } {
  const memory = new Uint8Array(LENGTH).fill(7);
  const mr = side.register(memory, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE);
  return { mr, detach: () => void structuredClone(memory, { transfer: [memory.buffer] }) };
}

const remoteOf = ({ rkey, addr }: MemoryRegion): { rkey: number; remoteAddr: bigint } => ({
  rkey,
  remoteAddr: addr,
});

const refused: unknown = expect.objectContaining({
  code: 'ERR_INVALID_REGION',
  message: expect.stringContaining('its ArrayBuffer has been transferred'),
});

describe('a region whose memory has been transferred', () => {
  it('is refused where work is posted on it', async () => {
    const { client, server } = await connectedPair();
    const { mr, detach } = regionOf(client);
    const remote = remoteOf(server.register(LENGTH));
    detach();
    expect(() => client.qp.postSend({ opcode: 'send', sges: [{ mr }] })).toThrow(refused);
    expect(() => client.qp.postRecv({ sges: [{ mr }] })).toThrow(refused);
    for (const opcode of ['rdma-read', 'rdma-write'] as const)
      expect(() => client.qp.postSend({ opcode, sges: [{ mr }], ...remote })).toThrow(refused);
    // Of an element without a byte nothing is looked at (VERBS-085).
    client.qp.postSend({ opcode: 'send', sges: [{ mr, length: 0 }] });
  });

  it('is out of bounds for the peer, in both directions', async () => {
    for (const opcode of ['rdma-read', 'rdma-write'] as const) {
      const pair = await connectedPair();
      const { client, server } = pair;
      const { mr, detach } = regionOf(server);
      const local = client.register(LENGTH);
      detach();
      client.qp.postSend({ opcode, sges: [{ mr: local }], ...remoteOf(mr) });
      pair.run();
      expect(server.qp.state).toBe('error');
      expect(client.qp.state).toBe('error');
    }
  });

  it('ends the connection where it was posted before: no byte is lost without a word', async () => {
    for (const use of ['receive', 'sink', 'source'] as const) {
      const pair = await connectedPair();
      const { client, server } = pair;
      const { mr, detach } = regionOf(client);
      const other = server.register(LENGTH);
      server.qp.postRecv({ sges: [{ mr: server.register(LENGTH) }] });
      if (use === 'receive') client.qp.postRecv({ sges: [{ mr }] });
      if (use === 'sink') client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], ...remoteOf(other) });
      if (use === 'source') client.qp.postSend({ opcode: 'send', sges: [{ mr }] });
      detach();
      server.qp.postSend({ opcode: 'send', sges: [{ mr: other, length: 500 }] });
      pair.run();
      const ended = [...client.sent(), ...client.received()];
      expect(ended.map(({ status }) => status)).toEqual(['local-protection-error']);
      expect([client.qp.state, eventTypes(client.asyncEvents)]).toEqual(['error', ['terminate-sent']]);
    }
  });

  it('is out of bounds also for code that has seen memory of every kind, and is compiled', async () => {
    const resizable = (type: typeof ArrayBuffer | typeof SharedArrayBuffer): Uint8Array =>
      new Uint8Array(Reflect.construct(type, [LENGTH, { maxByteLength: 2 * LENGTH }]) as ArrayBuffer);
    const kinds = [
      () => new Uint8Array(LENGTH),
      () => resizable(ArrayBuffer),
      () => resizable(SharedArrayBuffer),
      () => Buffer.alloc(LENGTH),
    ];
    const rights = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE;
    const warm = await connectedPair();
    const regions = kinds.map((make) => warm.server.register(make(), rights));
    const place = warm.client.register(LENGTH);
    for (let i = 0; i < 4000; i++) {
      const to = { sges: [{ mr: place }], ...remoteOf(regions[i % regions.length]!) };
      warm.client.qp.postSend({ opcode: i % 8 < 4 ? 'rdma-read' : 'rdma-write', ...to });
      warm.run();
      warm.client.sent();
    }
    for (let i = 0; i < 20; i++) {
      const pair = await connectedPair();
      const { mr, detach } = regionOf(pair.server);
      const local = pair.client.register(LENGTH);
      const opcode = i % 2 === 0 ? 'rdma-read' : 'rdma-write';
      detach();
      pair.client.qp.postSend({ opcode, sges: [{ mr: local }], ...remoteOf(mr) });
      pair.run();
      expect([mr.length, pair.server.qp.state, pair.client.qp.state]).toEqual([0, 'error', 'error']);
    }
  });
});
