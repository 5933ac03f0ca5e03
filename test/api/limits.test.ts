/** Limits of promise servers and byte-stream servers for their connections, in all and of one address. */
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { connect, createServer, openRnic, type ServerFailure, type ServerOptions } from '../../src/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { connect as connectStream, createServer as createStreamServer } from '../../src/sockets/index.ts';

const HOST = '127.0.0.1';
const closing: { close(): unknown }[] = [];
afterEach(async () => {
  vi.useRealTimers();
  for (const each of closing.splice(0).toReversed()) await each.close();
});

describe.each(['thread', 'worker'] as const)('a promise server, engine %s', (engine) => {
  it.each([{ maxConnections: 2 }, { maxConnectionsPerAddress: 2 }] satisfies ServerOptions[])(
    'has no more connections than %o, and reports the others',
    async (limits) => {
      const rnic = openRnic({ engine });
      const failures: ServerFailure[] = [];
      const onFailure = (failure: ServerFailure): void => void failures.push(failure);
      const server = await createServer({ rnic, ...limits, onFailure }).listen({ host: HOST, port: 0 });
      closing.push(server);
      const to = { rnic, host: HOST, port: server.address().port };
      const first = await connect(to);
      await connect(to);
      await expect.poll(() => server.connections.size).toBe(2);
      await expect(connect(to)).rejects.toThrow();
      expect(failures).toMatchObject([
        { kind: 'refused', error: { code: 'ERR_LIMIT' }, remoteAddress: { address: HOST } },
      ]);
      expect(failures[0]!.error.message).toContain('maxConnections');
      await first.close();
      await expect.poll(() => server.connections.size).toBe(1);
      const next = await connect(to);
      expect(next.state).toBe('open');
    },
  );
});

describe('a promise server whose program takes no connections', () => {
  it('keeps no more than 256 of those that have ended', async () => {
    const transport = new MemoryTransport(realScheduler);
    const rnic = openRnic({ transport });
    const server = await createServer({ rnic, receiveDepth: 1 }).listen({ host: HOST, port: 0 });
    const to = { rnic, host: HOST, port: server.address().port, receiveDepth: 1 };
    for (let i = 0; i < 300; i++) (await connect(to)).destroy();
    await expect.poll(() => server.connections.size).toBe(0);
    const last = await connect(to);
    await expect.poll(() => server.connections.size).toBe(1);
    let taken = 0;
    for (let next = await server.accept(); next?.state === 'closed'; next = await server.accept()) taken++;
    expect(taken).toBeLessThanOrEqual(256);
    last.destroy();
    await server.close();
  });
});

describe('a byte-stream server', () => {
  it('has no more connections of one address than maxConnectionsPerAddress, and emits drop', async () => {
    const server = createStreamServer({ maxConnectionsPerAddress: 1 }, (socket) => void socket.resume());
    server.listen(0, HOST);
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const first = connectStream({ port, host: HOST });
    await once(first, 'connect');
    const dropped = once(server, 'drop') as Promise<[net.DropArgument]>;
    const second = connectStream({ port, host: HOST });
    second.on('error', () => undefined);
    expect((await dropped)[0]).toMatchObject({ localPort: port, remoteAddress: HOST });
    await expect.poll(() => second.closed).toBe(true);
    first.destroy();
    server.close();
    await once(server, 'close');
  });
});

describe('messages that are not released', () => {
  it.each([true, false])('make one warning that names the cure, with credits %s', async (credits) => {
    vi.resetModules(); // the warning is given once for a process
    const fresh = await import('../../src/index.ts');
    const rnic = fresh.openRnic({ engine: 'thread' });
    const warnings: (Error & { code?: string })[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    const server = await fresh
      .createServer({ rnic, receiveDepth: 3, credits })
      .listen({ host: HOST, port: 0 });
    closing.push(server);
    const client = await fresh.connect({ rnic, host: HOST, port: server.address().port });
    const there = (await server.accept())!;
    const held = [];
    const timers: { at: number; ring: () => void }[] = [];
    const at = rnic.scheduler.at.bind(rnic.scheduler);
    (rnic.scheduler as { at: typeof at }).at = (time, ring) => {
      timers.push({ at: time, ring });
      return at(time, ring);
    };
    for (let i = 0; i < 3; i++) {
      await client.send('kept');
      held.push((await there.receive())!);
    }
    (rnic.scheduler as { at: typeof at }).at = at;
    for (const { ring } of timers) ring();
    await pause(20);
    process.off('warning', onWarning);
    const ours = warnings.filter(({ code }) => code === 'IWARP_UNRELEASED');
    expect(ours).toHaveLength(1);
    expect(ours[0]!.message).toMatch(/3 receive buffers .* message\.release\(\).* receiveDepth/);
    for (const message of held) message.release();
    await client.close();
  });
});
