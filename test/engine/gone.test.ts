// Links that have gone in the engine before the application has heard of it, or that never came to be:
// whatever is said for them still, the engine passes it over, and everything posted comes back.
import { connect, type Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CmListener, PassiveConnection } from '../../src/cm/index.ts';
import type { Rnic } from '../../src/index.ts';
import { ACCESS } from '../../src/verbs/index.ts';
import { encodeFpdus, encodeStartup, untaggedUlpdu } from '../support/naive/encoder.ts';
import { End, enginesOf, join, memory, openWorkers, stop, until } from './support.ts';

let rnic: Rnic;
let peer: Rnic;
beforeAll(() => {
  rnic = openWorkers();
  peer = openWorkers();
});
afterAll(() => stop(rnic, peer));

/**
 * A peer that has sent its Request and resets: gone for the engine, while nobody here can have heard of it.
 */
async function requestOfGonePeer(): Promise<{ request: PassiveConnection; listener: CmListener }> {
  let socket: Socket;
  const [request, listener] = await new Promise<[PassiveConnection, CmListener]>((resolve) => {
    let bound: Promise<CmListener>;
    const arrived = (connection: PassiveConnection): void =>
      void bound.then((it) => resolve([connection, it]));
    bound = rnic.cm.listen({ host: '127.0.0.1', port: 0 }, arrived);
    void bound.then(({ address }) => {
      socket = connect(address.port, '127.0.0.1', () => socket.write(encodeStartup({ kind: 'request' })));
    });
  });
  expect(request.counters().octetsIn).toBeGreaterThan(0);
  socket!.resetAndDestroy();
  while (request.counters().octetsIn > 0); // the engine counts nothing for a link that it has forgotten
  return { request, listener };
}

describe('a peer that has reset its connection before it is answered', () => {
  it('with accept: the queue pair is free again with its posted work, and the engine lives', async () => {
    const { request, listener } = await requestOfGonePeer();
    const end = new End(rnic);
    const mr = end.pd.registerMemory(rnic.device.allocateMemory(8), ACCESS.LOCAL_WRITE);
    end.watch(request);
    end.qp.postRecv({ wrId: 1, sges: [{ mr }] });
    request.accept(end.qp);
    end.qp.postRecv({ wrId: 2, sges: [{ mr }] });
    end.qp.postSend({ wrId: 3, opcode: 'send', sges: [{ mr }] });
    await until(() => end.event('disconnected') !== undefined);
    expect([rnic.device.state, end.qp.state, listener.pending]).toEqual(['open', 'idle', 0]);
    expect(end.qp.query()).toMatchObject({ recvPosted: 2, sendOutstanding: 1 });
    end.events.length = 0;
    const other = new End(peer);
    other.qp.postRecv({
      sges: [{ mr: other.pd.registerMemory(peer.device.allocateMemory(8), ACCESS.LOCAL_WRITE) }],
    });
    await join(end, other);
    other.qp.postSend({ opcode: 'send', inline: Uint8Array.of(1) });
    expect((await end.completed(2)).map(({ wrId }) => wrId as number).toSorted()).toEqual([1, 3]);
    listener.close();
  });

  it('with accept onto a queue pair that is destroyed at once: every request is over', async () => {
    const { request, listener } = await requestOfGonePeer();
    const end = new End(rnic);
    end.watch(request);
    end.qp.postRecv({ wrId: 1 });
    request.accept(end.qp);
    end.qp.destroy();
    await until(() => end.event('disconnected') !== undefined);
    expect([rnic.device.state, end.qp.query().recvPosted]).toEqual(['open', 0]);
    listener.close();
  });

  it('with reject', async () => {
    const { request, listener } = await requestOfGonePeer();
    request.reject();
    await until(() => request.finished);
    expect(rnic.device.state).toBe('open');
    listener.close();
  });
});

describe('a connection that is given up before the engine knows of it', () => {
  it('because its receives fill the ring: the queue pair is free, and the engine lives', async () => {
    const DEPTH = 16_384; // six words each: more than there is room for
    const end = new End(rnic, { maxRecvWr: DEPTH });
    const mr = end.pd.registerMemory(rnic.device.allocateMemory(8), ACCESS.LOCAL_WRITE);
    end.qp.postRecv(Array.from({ length: DEPTH }, (_, wrId) => ({ wrId, sges: [{ mr }] })));
    end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port: 1 }));
    end.connection!.abort();
    expect(() => rnic.cm.counters()).not.toThrow();
    mr.deregister(); // the engine has answered: it has taken in everything before
    expect([rnic.device.state, end.qp.state, end.qp.query().recvPosted]).toEqual(['open', 'idle', DEPTH]);
    end.qp.destroy();
  });
});

describe('a connection that is given up while the program does not know how far the engine has come', () => {
  /**
   * A peer in a separate thread, that answers a Request with a Reply and a Send of one octet, whatever the
   * main thread does; its port.
   */
  async function eagerPeer(): Promise<{ port: number; peer: Worker }> {
    const send = untaggedUlpdu({ last: true, opcode: 3, qn: 0, msn: 1 }, Uint8Array.of(9));
    const answer = [
      ...encodeStartup({ kind: 'reply' }),
      ...encodeFpdus([send], { markers: false, crc: true }),
    ];
    const peer = new Worker(
      `
      const { parentPort, workerData } = require('node:worker_threads');
      const server = require('node:net').createServer((socket) => {
        socket.on('error', () => undefined).once('data', () => socket.write(Uint8Array.from(workerData)));
      }).listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
    `,
      { eval: true, workerData: answer },
    );
    return { port: await new Promise((resolve) => peer.once('message', resolve)), peer };
  }

  const POLICY = { mpaRevision: 1, peerToPeer: false } as const;

  it('a shared receive that a message has taken is reported by the next message elsewhere', async () => {
    const { port, peer: eager } = await eagerPeer();
    const pd = rnic.device.allocatePd();
    const srq = pd.createSrq({ maxWr: 4 });
    const [end, other, sender] = [new End(rnic, { srq }, pd), new End(rnic, { srq }, pd), new End(peer)];
    const mr = memory(end, 4);
    srq.postRecv([0, 1, 2, 3].map((offset) => ({ wrId: offset, sges: [{ mr, offset, length: 1 }] })));
    await join(other, sender);
    end.watch(rnic.cm.connect(end.qp, { host: '127.0.0.1', port, policy: POLICY }));
    const { id } = end.connection!.link as unknown as { id: number };
    // busy: this thread hears of nothing
    while (enginesOf(rnic)[0]!.host.counters(id)!.messagesIn.sends === 0);
    end.connection!.abort();
    sender.qp.postSend({ opcode: 'send', inline: Uint8Array.of(7) });
    const [wc] = await other.completed(1);
    expect([wc!.status, mr.bytes[wc!.wrId as number], [...mr.bytes]]).toEqual(['success', 7, [9, 7, 0, 0]]);
    await until(() => end.connection!.finished);
    expect([end.qp.state, srq.posted, rnic.device.state]).toEqual(['error', 2, 'open']);
    await eager.terminate();
  });
});
