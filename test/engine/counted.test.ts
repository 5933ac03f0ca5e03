// A peer that ends its connections at every moment: whatever a program posts in whichever handler completes
// exactly once, in both engines.
import net from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { createWorkCompletion, type QueuePair } from '../../src/verbs/index.ts';
import { seededRandom } from '../../src/base/random.ts';
import { stop, until } from './support.ts';

/** An MPA Request of revision 1 without markers, CRC or private data (RFC 5044 7.1.1). */
const REQUEST = Buffer.concat([Buffer.from('MPA ID Req Frame'), Buffer.from([0, 1, 0, 0])]);
const CONNECTIONS = 120;

interface Tally {
  readonly posted: Map<number, number>;
  readonly completed: Map<number, number>;
}

/** How the peer ends: in order, by a reset, with rubbish, at once or a little later. */
function end(socket: net.Socket, draw: () => number): void {
  const act = (): void => {
    switch (draw() % 4) {
      case 0:
        socket.end();
        break;
      case 1:
        socket.resetAndDestroy();
        break;
      case 2:
        socket.end(Buffer.from([0, 30, ...Array<number>(34).fill(draw() & 0xff)]));
        break;
      default:
        socket.destroy();
    }
    socket.resume();
  };
  const later = draw() % 4;
  if (later === 0) setTimeout(act, draw() % 3);
  else act();
}

describe.each(['thread', 'worker'] as const)('with the engine %s', (engine) => {
  const rnic = openRnic({ engine });
  afterAll(() => (engine === 'worker' ? stop(rnic) : undefined));

  it('each request completes once, whichever handler posted it and however the peer ended', async () => {
    const { device, cm } = rnic;
    const draw = seededRandom(7);
    const pd = device.allocatePd();
    const cq = device.createCq(4096);
    const tally: Tally = { posted: new Map(), completed: new Map() };
    const wcs = Array.from({ length: 64 }, createWorkCompletion);
    const poll = (): void => {
      for (let n = cq.poll(wcs); n > 0; n = cq.poll(wcs))
        for (const { wrId } of wcs.slice(0, n))
          tally.completed.set(Number(wrId), (tally.completed.get(Number(wrId)) ?? 0) + 1);
    };
    let next = 1;
    const post = (qp: QueuePair): void => {
      for (const send of [true, false]) {
        const wrId = next++;
        if (send) qp.postSend({ wrId, opcode: 'send', inline: new Uint8Array(5) });
        else qp.postRecv({ wrId });
        tally.posted.set(wrId, 1);
      }
    };
    const qps: QueuePair[] = [];
    let over = 0;
    const listener = await cm.listen({ host: '127.0.0.1', port: 0, policy: { crc: 'off' } }, (request) => {
      const qp = pd.createQp({ sendCq: cq, recvCq: cq });
      qps.push(qp);
      request.setHandler((event) => {
        if (event.type === 'established' || event.type === 'closing' || event.type === 'terminate') post(qp);
        if (event.type === 'disconnected') over++;
      });
      request.accept(qp);
    });
    for (let i = 0; i < CONNECTIONS; i++) {
      await new Promise<void>((resolve) => {
        const socket = net.connect({ port: listener.address.port, host: '127.0.0.1', allowHalfOpen: true });
        socket.on('error', () => undefined);
        socket.on('close', () => resolve());
        socket.on('connect', () => socket.write(REQUEST));
        socket.once('data', () => end(socket, draw));
      });
    }
    await until(() => over === qps.length && qps.every(({ state }) => state !== 'closing'));
    poll();
    expect(qps).toHaveLength(CONNECTIONS);
    expect(tally.posted.size).toBeGreaterThan(CONNECTIONS);
    expect(tally.completed).toEqual(tally.posted);
    for (const qp of qps) qp.destroy();
    await new Promise<void>((resolve) => listener.close(resolve));
  }, 60_000);
});
