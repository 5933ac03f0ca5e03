/**
 * Peers that keep to the wire and yet take all they can get: one that answers signs of life and nothing else,
 * one that connects again and again, one that asks and does not take the answers.
 */
import type net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, createServer, openRnic, type ServerFailure } from '../../src/index.ts';
import { depth } from '../support/depth.ts';
import { endTogether, tcpPath } from '../support/tcp-path.ts';

const HOST = '127.0.0.1';
const MEBI = 1 << 20;
/** Rounds whose memory is counted. */
const ROUNDS = depth(6, 15);
/** Connections of a storm. */
const STORM = depth(400, 1000);
const MARK = Buffer.from('IWRPfrms');
const [REQUEST, ANNOUNCE] = [1, 6] as const;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** MiB that are in use, without what only waits to be collected. */
const heap = async (): Promise<number> => {
  for (let i = 0; i < 3; i++) {
    collect();
    await pause(5);
  }
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / MEBI;
};

/** A batch of `count` frames of one type, without a body, or with this one. */
function batch(count: number, type: number, body: Uint8Array = new Uint8Array(0)): Buffer {
  const frame = Buffer.alloc(16 + body.length);
  frame[0] = type;
  frame.writeUInt32BE(body.length, 8);
  frame.set(body, 16);
  return Buffer.concat([MARK, ...Array.from({ length: count }, () => frame)]);
}

/** A TCP path whose server's bytes stop at some time. */
async function path(port: number): Promise<{ readonly port: number; deafen(): void }> {
  const answers: net.Socket[] = [];
  const through = await tcpPath(port, (near, far) => {
    answers.push(far);
    near.pipe(far);
    far.pipe(near);
    endTogether(near, far);
  });
  const deafen = (): void => answers.forEach((far) => void far.unpipe().pause());
  return { port: through, deafen };
}

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  const rnic = openRnic({ engine });

  it('a peer that answers heartbeats and nothing else: calls end by their limits, memory stays', async () => {
    const server = await createServer({ rnic, receiveDepth: 8 }, () => undefined).listen({
      host: HOST,
      port: 0,
    });
    const client = await connect({
      rnic,
      host: HOST,
      port: server.address().port,
      heartbeat: { interval: 20, timeout: 10_000 },
      operationTimeout: 150,
    });
    onTestFinished(async () => {
      client.destroy();
      await server.close({ signal: AbortSignal.timeout(100) }).catch(() => undefined);
    });
    const body = Buffer.alloc(4096);
    const round = async (): Promise<string[]> => {
      const began = performance.now();
      const calls = [
        ...Array.from({ length: 300 }, () => client.request(body)),
        ...Array.from({ length: 100 }, () => client.send(body)),
        client.request(Buffer.alloc(MEBI)),
        client.lookup('nothing'),
        client.receive({ timeout: 150 }),
      ];
      const ends = await Promise.all(
        calls.map((call) =>
          Promise.resolve(call).then(
            () => 'done',
            (error: { code: string }) => error.code,
          ),
        ),
      );
      expect(performance.now() - began).toBeLessThan(20_000);
      return ends;
    };
    const first = await round();
    expect(first.filter((code) => code !== 'done')).toEqual(
      Array.from({ length: first.filter((code) => code !== 'done').length }, () => 'ERR_TIMEOUT'),
    );
    expect(first.slice(0, 300).every((code) => code === 'ERR_TIMEOUT')).toBe(true);
    await round();
    const before = await heap();
    for (let i = 0; i < ROUNDS; i++) expect((await round()).slice(0, 300)).not.toContain('done');
    expect((await heap()) - before).toBeLessThan(10); // of 2.7 MiB a round
    expect(await Promise.race([client.closed, Promise.resolve('open')])).toBe('open');
    expect(await client.rtt({ timeout: 10_000 })).toBeGreaterThan(0);
  });

  it(`a peer that connects ${STORM} times: others are served, and nothing of it is left`, async () => {
    const failures: ServerFailure[] = [];
    const server = await createServer(
      { rnic, maxConnectionsPerAddress: 8, onFailure: (failure) => void failures.push(failure) },
      (connection) => void connection.serve((request) => request.data).catch(() => undefined),
    ).listen({ host: HOST, port: 0 });
    const to = { rnic, host: HOST, port: server.address().port };
    const honest = await connect(to);
    onTestFinished(async () => {
      honest.destroy();
      await server.close();
    });
    const storm = async (count: number): Promise<void> => {
      const one = async (): Promise<void> => {
        while ((count -= 3) > 0) {
          const three = [1, 2, 3].map(() => connect(to).catch(() => null));
          for (const connection of await Promise.all(three)) connection?.destroy();
        }
      };
      await Promise.all(Array.from({ length: 20 }, one));
    };
    await storm(200);
    const before = await heap();
    const objects = rnic.device.query().inUse.qp;
    const over = storm(STORM);
    let running = true;
    void over.then(() => (running = false));
    while (running) {
      expect(String(await honest.request('still there?', { timeout: 20_000 }))).toBe('still there?');
      await pause(1);
    }
    await over;
    await expect.poll(() => server.connections.size, { timeout: 50_000 }).toBe(1);
    await expect.poll(() => rnic.device.query().inUse.qp, { timeout: 50_000 }).toBeLessThanOrEqual(objects);
    // Three pools of 16 MiB keep buffers for the next connections (docs/architecture.md).
    expect((await heap()) - before).toBeLessThan(60);
    const more = await Promise.all(Array.from({ length: 7 }, () => connect(to)));
    failures.length = 0;
    await expect(connect(to)).rejects.toThrow();
    expect(failures).toMatchObject([{ error: { code: 'ERR_LIMIT' } }]);
    for (const connection of more) connection.destroy();
  });

  it.each([
    ['requests', batch(1000, REQUEST)],
    ['announcements of what is too large', batch(400, ANNOUNCE, announcement())],
  ])('a peer that floods %s and takes no answer ends alone, with a typed error', async (_name, flood) => {
    const reply = new Uint8Array(4096);
    const ends: Promise<unknown>[] = [];
    const server = await createServer({ rnic, maxRequests: 4 }, (connection) => {
      ends.push(connection.closed.then(({ error }) => error?.code));
      void connection.serve(() => reply).catch(() => undefined);
    }).listen({ host: HOST, port: 0 });
    const { port } = server.address();
    const honest = await connect({ rnic, host: HOST, port });
    const way = await path(port);
    const hostile = await connect({ rnic, host: HOST, port: way.port });
    onTestFinished(async () => {
      honest.destroy();
      hostile.destroy();
      await server.close();
    });
    await honest.request('warm');
    way.deafen();
    const mr = hostile.allocate(flood.length, 'none');
    mr.bytes.set(flood);
    const before = await heap();
    let over: unknown = null;
    void ends[1]!.then((code) => (over = code));
    // The peer may learn of its end before the program does.
    let gone = false;
    void hostile.closed.then(() => (gone = true));
    let grown = 0;
    for (let i = 0; i < 1000 && over === null && !gone; i++) {
      hostile.queuePair.postSend({ opcode: 'send', solicited: true, sges: [{ mr }] });
      expect((await honest.request('still there?')).length).toBe(reply.length);
      if (i % 20 === 5) grown = Math.max(grown, (await heap()) - before);
    }
    await expect.poll(() => over, { timeout: 50_000 }).toBe('ERR_PROTOCOL');
    expect(grown).toBeLessThan(20);
    expect((await honest.request('and now?')).length).toBe(reply.length);
  });
});

/** A ticket to 4 GiB that nobody wants. */
function announcement(): Buffer {
  const body = Buffer.alloc(20);
  body.writeUInt32BE(1, 8);
  body.writeUInt32BE(0xffff_ffff, 12);
  return body;
}
