// SO_REUSEPORT: several listeners on one port, and with several engines one in each of them. What Node cannot
// do is refused, so this file asks for the right answer of every Node.
import { describe, expect, it } from 'vitest';
import { connect, createServer, openRnic, type Connection, type Rnic, type Server } from '../../src/index.ts';
import * as sockets from '../../src/sockets/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { reusesPorts } from '../../src/transport/tcp.ts';
import { enginesOf, openWorkers, stop, until } from './support.ts';

const HERE = { host: '127.0.0.1', reusePort: true } as const;

describe('which Nodes know it', () => {
  it.each([
    ['20.20.2', false],
    ['22.11.0', false],
    ['22.12.0', true],
    ['22.23.3', true],
    ['23.0.0', false],
    ['23.1.0', true],
    ['24.0.0', true],
    ['26.10.0', true],
  ])('%s: %s', (version, known) => {
    expect(reusesPorts(version)).toBe(known);
  });
});

it('listeners in memory have a port for themselves', async () => {
  const rnic = openRnic({ engine: 'thread', transport: new MemoryTransport(realScheduler) });
  await expect(createServer({ rnic }).listen(HERE)).rejects.toThrow(
    expect.objectContaining({ code: 'ERR_NOT_SUPPORTED' }),
  );
});

if (reusesPorts(process.versions.node)) {
  describe('one port for several', () => {
    /** A number at which all connections reach one of two listeners by chance in 2 of 2^32 runs. */
    const CLIENTS = 32;

    async function clients(port: number, count: number, of: Rnic): Promise<Connection[]> {
      return Promise.all(Array.from({ length: count }, () => connect({ rnic: of, host: '127.0.0.1', port })));
    }

    it('incoming connections spread over the engines and work; close frees the port', async () => {
      const rnic = openWorkers({ engines: 2 });
      const peer = openRnic({ engine: 'thread' });
      const there: Connection[] = [];
      const server = await createServer({ rnic }, (connection) => void there.push(connection)).listen(HERE);
      const { port } = server.address();
      const here = await clients(port, CLIENTS, peer);
      await until(() => there.length === CLIENTS);
      const loads = enginesOf(rnic).map(({ load }) => load);
      expect(loads[0]! + loads[1]!).toBe(CLIENTS);
      expect(Math.min(...loads)).toBeGreaterThan(0);
      for (const connection of there) void connection.send(new Uint8Array([42]));
      for (const connection of here) expect((await connection.receive())?.data[0]).toBe(42);
      await Promise.all(here.map((connection) => connection.close()));
      await server.close();
      // Both engines have let go of it: without sharing it can be had.
      const next = await createServer({ rnic: peer }).listen({ host: '127.0.0.1', port });
      expect(next.address().port).toBe(port);
      await next.close();
      await stop(rnic);
    });

    it('the limit of unanswered connections holds over all engines (SEC-033)', async () => {
      const rnic = openWorkers({ engines: 2 });
      const peer = openRnic({ engine: 'thread' });
      const pending: unknown[] = [];
      const refused: string[] = [];
      const LIMIT = 4;
      const listener = await rnic.cm.listen(
        { ...HERE, maxPending: LIMIT, onFailure: ({ reason }) => refused.push(reason) },
        (request) => pending.push(request),
      );
      const attempts = await Promise.allSettled(
        Array.from({ length: CLIENTS }, () =>
          connect({
            rnic: peer,
            host: '127.0.0.1',
            port: listener.address.port,
            signal: AbortSignal.timeout(1500),
          }),
        ),
      );
      expect(attempts.every(({ status }) => status === 'rejected')).toBe(true); // nobody was answered
      expect(pending.length).toBe(LIMIT);
      // A newcomer takes the place of one whose Request is not there yet, and is refused where none is left.
      expect(refused.filter((reason) => !['too-many-pending', 'displaced'].includes(reason))).toEqual([]);
      expect(refused.length).toBe(CLIENTS - LIMIT);
      await new Promise<void>((resolve) => listener.close(resolve));
      await stop(rnic);
    });

    it('two servers that say so share a port, one that does not is refused it', async () => {
      const rnic = openRnic({ engine: 'thread' });
      const counts = [0, 0];
      const first = await createServer({ rnic }, () => void counts[0]!++).listen(HERE);
      const { port } = first.address();
      const second = await createServer({ rnic }, () => void counts[1]!++).listen({ ...HERE, port });
      await expect(createServer({ rnic }).listen({ host: '127.0.0.1', port })).rejects.toThrow(/EADDRINUSE/);
      const here = await clients(port, CLIENTS, rnic);
      await until(() => CLIENTS === counts[0]! + counts[1]!);
      expect(Math.min(...counts)).toBeGreaterThan(0);
      await Promise.all(here.map((connection) => connection.close()));
      await Promise.all([first.close(), second.close()]);
    });

    it('a port that another program holds is ERR_CONNECT; no engine keeps a share of it', async () => {
      const rnic = openWorkers({ engines: 2 });
      const holder = await createServer({ rnic: openRnic({ engine: 'thread' }) }).listen({
        host: '127.0.0.1',
      });
      const { port } = holder.address();
      await expect(createServer({ rnic }).listen({ ...HERE, port })).rejects.toThrow(
        expect.objectContaining({ code: 'ERR_CONNECT' }),
      );
      await holder.close();
      await (await createServer({ rnic }).listen({ ...HERE, port })).close();
      await stop(rnic);
    });

    it('an engine that dies ends the shared listener with the device', async () => {
      const rnic = openWorkers({ engines: 2 });
      const listener = await rnic.cm.listen(HERE, () => undefined);
      await enginesOf(rnic)[1]!.host.worker.terminate();
      await until(() => rnic.device.state !== 'open');
      await new Promise<void>((resolve) => listener.close(resolve));
      const next = await createServer({ rnic: openRnic({ engine: 'thread' }) }).listen({
        host: '127.0.0.1',
        port: listener.address.port,
      });
      await next.close();
    });

    it('byte streams take it too', async () => {
      const server = sockets.createServer();
      await new Promise<void>((resolve) => server.listen(HERE, resolve));
      await new Promise<void>((resolve) => server.close(() => resolve()));
    });
  });
} else {
  describe('a Node without it', () => {
    const refusal = expect.objectContaining({
      code: 'ERR_NOT_SUPPORTED',
      message: expect.stringContaining(process.versions.node) as string,
    }) as Error;

    it('refuses it in this thread', async () => {
      await expect(createServer({ rnic: openRnic({ engine: 'thread' }) }).listen(HERE)).rejects.toThrow(
        refusal,
      );
      const rnic = openRnic({ engine: 'thread' });
      await expect(rnic.cm.listen(HERE, () => undefined)).rejects.toThrow(refusal);
    });

    it('refuses it with one engine and with several, which stay', async () => {
      for (const engines of [1, 2]) {
        const rnic = openWorkers({ engines });
        const server: Server = createServer({ rnic });
        await expect(server.listen(HERE)).rejects.toThrow(refusal);
        await server.listen({ host: '127.0.0.1' });
        await server.close();
        await stop(rnic);
      }
    });

    it('byte streams say so with an error event', async () => {
      const server = sockets.createServer();
      const failed = new Promise<Error>((resolve) => server.on('error', resolve));
      server.listen(HERE);
      expect(await failed).toEqual(refusal);
    });
  });
}
