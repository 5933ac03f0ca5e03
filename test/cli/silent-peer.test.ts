/**
 * Every tool opposite a peer that makes the connection and then says nothing, or leaves at once: reported
 * within its time-out, status not 0.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { connect, createServer } from '../../src/sockets/index.ts';
import { perftest } from '../../cli/perftest.ts';
import { run as rcopy } from '../../cli/rcopy.ts';
import { run as rdmaClient } from '../../cli/rdma-client.ts';
import { run as rdmaServer } from '../../cli/rdma-server.ts';
import { run as riostream } from '../../cli/riostream.ts';
import { run as rping } from '../../cli/rping.ts';
import { run as rstream } from '../../cli/rstream.ts';
import { run as ucmatose } from '../../cli/ucmatose.ts';
import { Session } from '../../cli/support/session.ts';
import { Side, type ToolRun } from './pair.ts';

interface Row {
  readonly name: string;
  /** What the peer speaks below the tool's own protocol. */
  readonly over: 'verbs' | 'sockets';
  readonly client?: (port: string) => readonly [ToolRun, string[]];
  readonly server?: readonly [ToolRun, string[]];
}

const folder = mkdtempSync(join(tmpdir(), 'silent-'));
const file = join(folder, 'file');
writeFileSync(file, 'data');
afterAll(() => rmSync(folder, { recursive: true }));

/**
 * The peers' device. A server counts the seconds of silence before its client comes, too: the client must not
 * have to start a thread.
 */
const rnic = openRnic();
beforeAll(async () => {
  const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => request.reject());
  await new Promise<void>((resolve) => listener.close(resolve));
});
/** A busy machine takes a second now and then for what takes none. */
const PATIENCE_S = '2';

const small = (name: string, over: Row['over'], run: ToolRun, flags: string[] = []): Row => ({
  name,
  over,
  client: (port) => [run, ['-s', '127.0.0.1', '-p', port, ...flags]],
  server: [run, ['-p', '0', ...flags]],
});

const ROWS: readonly Row[] = [
  {
    name: 'rping',
    over: 'verbs',
    client: (port) => [rping, ['-c', '-a', '127.0.0.1', '-p', port]],
    server: [rping, ['-s', '-p', '0']],
  },
  small('ucmatose', 'verbs', ucmatose, ['-C', '3']),
  { name: 'rdma_client', over: 'verbs', client: (port) => [rdmaClient, ['-p', port]] },
  { name: 'rdma_server', over: 'verbs', server: [rdmaServer, ['-p', '0']] },
  ...(['write', 'read', 'send'] as const).flatMap((verb) =>
    (['bw', 'lat'] as const).map(
      (kind): Row => ({
        name: `${verb}_${kind}`,
        over: 'verbs',
        client: (port) => [perftest(verb, kind), ['-p', port, '127.0.0.1']],
        server: [perftest(verb, kind), ['-p', '0']],
      }),
    ),
  ),
  small('rstream', 'sockets', rstream, ['-S', '64', '-C', '1', '-I', '10']),
  small('riostream', 'sockets', riostream, ['-S', '64', '-C', '1', '-I', '10']),
  // The server of rcopy goes on for the next client: streams.test.ts has it.
  { name: 'rcopy', over: 'sockets', client: (port) => [rcopy, [file, '127.0.0.1:/nowhere', '-p', port]] },
];

type Manner = 'says nothing' | 'leaves';
type CleanUp = (() => Promise<void> | void)[];

/** A server that makes connections, and its port. */
async function peerServer(over: Row['over'], manner: Manner, cleanUp: CleanUp): Promise<string> {
  if (over === 'sockets') {
    const server = createServer({ iomapSize: 1 }, (socket) => {
      socket.on('error', () => undefined).resume();
      if (manner === 'leaves') socket.destroy();
    });
    cleanUp.push(() => server[Symbol.asyncDispose]());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return String((server.address() as { port: number }).port);
  }
  const listener = await rnic.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
    const session = receiver();
    session.use(request);
    request.accept(session.qp);
    void session.established.then(
      () => (manner === 'leaves' ? session.close() : undefined),
      () => undefined,
    );
  });
  cleanUp.push(() => new Promise<void>((resolve) => listener.close(resolve)));
  return String(listener.address.port);
}

/** A queue pair with receives for whatever a tool sends first. */
function receiver(): Session {
  const session = new Session(rnic);
  const memory = session.register(256);
  for (let i = 0; i < 8; i++) session.postRecv({ mr: memory });
  return session;
}

/** A client that makes one connection. */
async function peerClient(over: Row['over'], manner: Manner, port: number, cleanUp: CleanUp): Promise<void> {
  if (over === 'sockets') {
    const socket = connect({ host: '127.0.0.1', port, iomapSize: 1 });
    socket.on('error', () => undefined).resume();
    cleanUp.push(() => void socket.destroy());
    await new Promise<void>((resolve) => socket.once('connect', resolve));
    if (manner === 'leaves') socket.destroy();
    return;
  }
  const session = receiver();
  session.use(
    rnic.cm.connect(session.qp, {
      host: '127.0.0.1',
      port,
      policy: {},
      responderResources: 1,
      initiatorDepth: 1,
    }),
  );
  await session.established;
  if (manner === 'leaves') await session.close();
}

// Side by side: each waits for its seconds.
describe.concurrent.each(['says nothing', 'leaves'] as const)('a peer that %s', (manner) => {
  const words = manner === 'leaves' ? /./ : /nothing has crossed for 2 s/;

  const withPeer = async (body: (cleanUp: CleanUp) => Promise<void>): Promise<void> => {
    const cleanUp: CleanUp = [];
    try {
      await body(cleanUp);
    } finally {
      for (const task of cleanUp) await task();
    }
  };

  it.each(ROWS.filter((row) => row.client !== undefined))(
    'is told by the client of $name',
    async ({ over, client }) => {
      await withPeer(async (cleanUp) => {
        const [run, args] = client!(await peerServer(over, manner, cleanUp));
        const side = new Side(run, [...args, '--timeout', PATIENCE_S]);
        expect(await side.status).not.toBe(0);
        expect(side.err).toMatch(words);
      });
    },
  );

  it.each(ROWS.filter((row) => row.server !== undefined))(
    'is told by the server of $name',
    async ({ over, server }) => {
      await withPeer(async (cleanUp) => {
        const [run, args] = server!;
        const side = new Side(run, [...args, '--timeout', PATIENCE_S]);
        await peerClient(over, manner, await side.port, cleanUp);
        const status = await side.status;
        // A client that leaves at once is how a stock rping ends, too: its server reports the disconnect and
        // exits with 0.
        const content = run === rping && manner === 'leaves';
        expect(status === 0).toBe(content);
        expect(side.err).toMatch(content ? /server DISCONNECT EVENT/ : words);
      });
    },
  );
});
