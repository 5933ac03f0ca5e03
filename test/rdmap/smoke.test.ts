import { describe, expect, it } from 'vitest';
import { connectedPair } from '../support/pair.ts';

const pattern = (n: number): Uint8Array => Uint8Array.from({ length: n }, (_, i) => (i * 7 + 3) & 0xff);

describe('two queue pairs over the in-memory network', () => {
  for (const markers of [false, true]) {
    for (const crc of ['preferred', 'off'] as const) {
      it(`Send, Write, Read move octets (markers ${markers}, crc ${crc})`, async () => {
        const policy = { markers, crc };
        const pair = await connectedPair({ client: { policy }, server: { policy } });
        const { client, server } = pair;
        expect(client.event('established')).toBeDefined();
        expect(server.event('established')).toBeDefined();
        const source = client.register(pattern(100_000));
        const target = server.register(100_000);
        const back = client.register(100_000);
        server.qp.postRecv({ wrId: 7, sges: [{ mr: target, length: 5000 }] });
        client.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr: source, length: 5000 }] });
        pair.run();
        expect(client.sent()).toMatchObject([{ wrId: 1, status: 'success', opcode: 'send' }]);
        expect(server.received()).toMatchObject([
          { wrId: 7, status: 'success', opcode: 'receive', byteLength: 5000 },
        ]);
        expect(target.bytes.subarray(0, 5000)).toEqual(pattern(5000));
        client.qp.postSend([
          { wrId: 2, opcode: 'rdma-write', sges: [{ mr: source }], rkey: target.rkey, remoteAddr: 0 },
          { wrId: 3, opcode: 'rdma-read', sges: [{ mr: back }], rkey: target.rkey, remoteAddr: 0 },
        ]);
        pair.run();
        expect(client.sent().map((wc) => [wc.wrId, wc.status])).toEqual([
          [2, 'success'],
          [3, 'success'],
        ]);
        expect(back.bytes).toEqual(pattern(100_000));
        client.connection!.disconnect();
        pair.run();
        expect(client.event('disconnected')).toMatchObject({ cause: 'graceful' });
        expect(server.event('disconnected')).toMatchObject({ cause: 'graceful' });
        expect([client.qp.state, server.qp.state]).toEqual(['idle', 'idle']);
      });
    }
  }
});
