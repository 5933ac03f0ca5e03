/** Signs of life, round trips and time limits of promise connections, in both engines. */
import net from 'node:net';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, createServer, openRnic, type Connection, type EndpointOptions } from '../../src/index.ts';
import { Liveness } from '../../src/api/liveness.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { noCounters } from '../../src/rdmap/counters.ts';
import { MemoryDatagrams } from '../../src/simnet/datagrams.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';
import type { DatagramHandler, DatagramNetwork } from '../../src/transport/datagram.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { pair, rnicOf, WORLDS } from './support.ts';
import { tcpPath } from '../support/tcp-path.ts';

const HOST = '127.0.0.1';

/** A TCP path to `port` that can fall silent in both directions without closing. */
async function path(port: number): Promise<{ readonly port: number; cut(): void }> {
  let silent = false;
  const through = await tcpPath(port, (near, far) => {
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('data', (data) => (silent ? undefined : to.write(data)));
      from.on('end', () => from.end());
      from.on('close', () => (silent ? undefined : to.destroy()));
    }
  });
  return { port: through, cut: () => (silent = true) };
}

/** A UDP path that can fall silent. */
function datagramPath(): { readonly datagrams: DatagramNetwork; cut(): void } {
  const memory = new MemoryDatagrams(realScheduler);
  let silent = false;
  const datagrams: DatagramNetwork = {
    bind: (binding, handler, ready) => {
      const onDatagram: DatagramHandler['onDatagram'] = (...datagram) =>
        silent ? undefined : handler.onDatagram(...datagram);
      memory.bind(binding, { onDatagram, onClose: (error) => handler.onClose(error) }, ready);
    },
  };
  return { datagrams, cut: () => void (silent = true) };
}

/** A client and its server behind a path that can be cut. */
async function behindPath(
  world: (typeof WORLDS)[number],
  options: EndpointOptions,
): Promise<{ readonly client: Connection; readonly server: Connection; cut(): void }> {
  const udp = world === 'trp' ? datagramPath() : null;
  const rnic = udp === null ? rnicOf(world) : openRnic({ wire: 'trp', datagrams: udp.datagrams });
  const listening = await createServer({ rnic, ...options }).listen({ host: HOST, port: 0 });
  const { port } = listening.address();
  const way = udp === null ? await path(port) : { port, cut: udp.cut };
  const accepted = listening.accept();
  const client = await connect({ rnic, host: HOST, port: way.port, ...options });
  const server = (await accepted)!;
  onTestFinished(async () => {
    client.destroy();
    server.destroy();
    await listening.close();
  });
  return { client, server, cut: way.cut };
}

const NETWORK_WORLDS = WORLDS.filter((world) => world !== 'memory' && world !== 'shm');
/** A Read as the ready-to-receive message would leave one. */
const WITHOUT_READS: EndpointOptions = { ord: 0, policy: { rtrOffered: ['write'] } };
const heartbeat = { interval: 50, timeout: 150 };
/** A machine that stands still for two seconds keeps it. */
const SLACK_MS = 4_000;
/** Fails if a wait that has begun at `began` has taken longer than the stated time. */
function expectWithin(stated: number, began: number): void {
  expect(performance.now() - began).toBeLessThan(stated + SLACK_MS);
}

describe.each(NETWORK_WORLDS)('a heartbeat, %s', (world) => {
  it('ends every waiting operation within its time when the path falls silent, at both ends', async () => {
    const { client, server, cut } = await behindPath(world, { heartbeat });
    const memory = server.allocate(64, 'read');
    await pause(200); // heartbeats that are answered leave the connection open
    expect([client.state, server.state]).toEqual(['open', 'open']);
    cut();
    const began = performance.now();
    const waiting = [client.read(server.share(memory)), client.receive(), client.rtt(), server.receive()];
    const ends = await Promise.allSettled(waiting);
    expectWithin(heartbeat.interval + heartbeat.timeout, began);
    for (const end of ends) expect(end).toMatchObject({ reason: { code: 'ERR_TIMEOUT' } });
    for (const { closed } of [client, server])
      expect(await closed).toMatchObject({ cause: 'timeout', error: { code: 'ERR_TIMEOUT' } });
    expect((await client.closed).error!.message).toMatch(/did not answer a heartbeat within 150 ms/);
  });

  it('takes a thread that stood still for longer than its time for no silence of the peer', async () => {
    const { client, server } = await behindPath(world, { heartbeat });
    for (let times = 0; times < 3; times++) {
      const { reads } = client.counters().messagesOut;
      // Until the peer is asked.
      while (client.state === 'open' && client.counters().messagesOut.reads === reads) await turn();
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    }
    await pause(100);
    expect([client.state, server.state]).toEqual(['open', 'open']);
  });

  it('limits single operations, and leaves the connection as it is', async () => {
    const { client, server, cut } = await behindPath(world, { operationTimeout: 60 });
    const memory = server.allocate(64, 'read');
    const ticket = server.share(memory);
    expect((await client.read(ticket, undefined, { timeout: 30_000 })).length).toBe(64);
    cut();
    const began = performance.now();
    await expect(client.read(ticket)).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    await expect(client.read(ticket, undefined, { timeout: 20 })).rejects.toThrow(/limit of 20 ms/);
    await expect(client.receive({ timeout: 30 })).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    expectWithin(60 + 20 + 30, began);
    expect(client.state).toBe('open');
  });
});

describe.each(NETWORK_WORLDS)('a large message, %s', (world) => {
  it('that is announced and does not come ends the connection in time, without a heartbeat', async () => {
    const { client, server, cut } = await behindPath(world, { largeMessageTimeout: 150 });
    // More than a fast machine moves before the path is cut, and a program that takes all of it.
    const bytes = new Uint8Array(16 << 20);
    const ends = Promise.allSettled(Array.from({ length: 32 }, () => client.send(bytes)));
    (await server.receive())!.release();
    const rest = (async () => {
      for await (const message of server) message.release();
    })();
    const ended = Promise.allSettled([rest]);
    const began = performance.now();
    cut();
    expect(await server.closed).toMatchObject({ cause: 'timeout', error: { code: 'ERR_TIMEOUT' } });
    expectWithin(150, began);
    expect((await server.closed).error!.message).toMatch(
      /announced a large message, and no byte came for 150 ms/,
    );
    client.destroy();
    await Promise.all([ends, ended]);
  });
});

describe.each(WORLDS)('liveness, %s', (world) => {
  it('a heartbeat waits neither for credits nor for the program of the peer', async () => {
    const { client, server } = await pair(
      world,
      { heartbeat: { interval: 5, timeout: 10_000 } },
      { receiveDepth: 2 },
    );
    const sends = Array.from({ length: 50 }, (_, i) => client.send(String(i)));
    await pause(100);
    expect(client.pending).toBeGreaterThan(0);
    expect(client.counters().messagesOut.reads).toBeGreaterThan(0);
    expect(await client.rtt()).toBeLessThan(10_000);
    for (let i = 0; i < 50; i++) (await server.receive())!.release();
    await Promise.all(sends);
    expect(client.state).toBe('open');
  });

  it('a Write that takes long is no silence', async () => {
    const { client, server } = await pair(world, { heartbeat: { interval: 1, timeout: 20_000 } });
    const region = server.allocate(64 << 20, 'write');
    const source = client.allocate(64 << 20, 'none');
    await Promise.all([client.write(source, server.share(region)), client.rtt()]);
    expect(client.state).toBe('open');
  });

  it('rtt() measures, and says where there are no Reads', async () => {
    const { client, server } = await pair(world);
    expect(await client.rtt()).toBeGreaterThan(0);
    expect(await Promise.all([server.rtt(), server.rtt()])).toHaveLength(2);
    const poor = await pair(world, WITHOUT_READS);
    await expect(poor.client.rtt()).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
  });

  it.each(['read', 'write', 'keep-alive'] as const)('a foreign peer may be asked by %s', async (foreign) => {
    const { client } = await pair(world, {
      credits: false,
      heartbeat: { interval: 5, timeout: 10_000, foreign },
    });
    const before = client.counters().messagesOut;
    await pause(100);
    const asked = (): boolean[] => {
      const { reads, writes } = client.counters().messagesOut;
      return [reads > before.reads, writes > before.writes];
    };
    await expect.poll(asked, { timeout: 3000 }).toEqual([foreign === 'read', foreign === 'write']);
    expect(client.state).toBe('open');
  });

  it('a peer without Reads is left to the probes of TCP', async () => {
    const { client } = await pair(world, { ...WITHOUT_READS, heartbeat: { interval: 5, timeout: 50 } });
    const { reads } = client.counters().messagesOut; // one may have been the ready-to-receive message
    await pause(100);
    expect(client.counters().messagesOut.reads).toBe(reads);
    expect(client.state).toBe('open');
  });

  it('a connection that nobody uses is closed in order, heartbeat or not', async () => {
    const { client, server } = await pair(world, {
      idleTimeout: 1000,
      heartbeat: { interval: 10, timeout: 10_000 },
    });
    const began = performance.now();
    await pause(400);
    await server.send('still here');
    (await client.receive())!.release();
    expect(await client.closed).toMatchObject({ cause: 'graceful' });
    expect(performance.now() - began).toBeGreaterThan(1300);
    expect(await server.closed).toMatchObject({ cause: 'graceful' });
  });
});

describe.each(NETWORK_WORLDS)('connectTimeout, %s', (world) => {
  it('bounds TCP and start-up together', async () => {
    const silent = net.createServer((socket) => socket.on('error', () => undefined));
    await new Promise<void>((resolve) => silent.listen(0, HOST, resolve));
    onTestFinished(() => void silent.close());
    const { port } = silent.address() as net.AddressInfo;
    await expect(
      connect({ rnic: rnicOf(world), host: HOST, port, connectTimeout: 50 }),
    ).rejects.toMatchObject({
      code: 'ERR_TIMEOUT',
      message: `connect to 127.0.0.1:${port} took longer than its limit of 50 ms`,
    });
  });
});

it('wrong limits are refused before anything happens', () => {
  for (const wrong of [
    { heartbeat: { interval: 0, timeout: 1 } },
    { heartbeat: { interval: 1 } },
    { heartbeat: { interval: 1, timeout: 1, foreign: 'guess' } },
    { operationTimeout: 0 },
    { idleTimeout: 1.5 },
    { largeMessageTimeout: 0 },
  ])
    expect(() => createServer(wrong as EndpointOptions)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }) as Error,
    );
});

it('an answer whose bytes are counted before the counters are read is a sign of life', () => {
  const time = new VirtualTime();
  const counters = { ...noCounters(), octetsIn: 100 };
  let answer: (() => void) | null = null;
  let dead = 0;
  const cm = { negotiated: { ord: 1 }, counters: () => ({ ...counters }), setKeepAlive: () => undefined };
  const operations = {
    readsPosted: 1,
    postHeartbeat: (done: () => void) => {
      counters.octetsIn += 20; // the engine is faster than the thread that asks it
      answer = done;
      return true;
    },
  };
  const liveness = new Liveness(cm as never, operations as never, time, {
    heartbeat: { interval: 20, timeout: 100, foreign: 'read' },
    idleTimeout: undefined,
    foreign: false,
    arrived: () => 0,
    dead: () => void dead++,
    idle: () => undefined,
  });
  time.advance(20);
  answer!();
  answer = null;
  time.advance(115);
  expect(dead).toBe(0);
  time.advance(10); // asked again, and there is no answer
  expect(answer).not.toBe(null);
  time.advance(100);
  expect(dead).toBe(1);
  liveness.end(new IwarpError('ERR_TIMEOUT', 'over'));
});
