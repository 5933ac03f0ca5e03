/**
 * ucmatose, rdma_client and rdma_server against each other: words, exit statuses, wrong flags (those of ports
 * of rcopy too), peers that leave.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { IwarpError, openRnic } from '../../src/index.ts';
import { run as rcopy } from '../../cli/rcopy.ts';
import { run as rdmaClient } from '../../cli/rdma-client.ts';
import { run as rdmaServer } from '../../cli/rdma-server.ts';
import { run as ucmatose } from '../../cli/ucmatose.ts';
import { Session } from '../../cli/support/session.ts';
import { runAlone, runPair } from './pair.ts';

const client =
  (...more: string[]) =>
  (port: string): string[] => ['-s', '127.0.0.1', '-p', port, ...more];

describe('ucmatose', () => {
  it.each([[[]], [['-c', '10']], [['-C', '1', '-S', '70000']], [['-C', '300', '-c', '2']]])(
    'sends and receives with %j',
    async (flags) => {
      const { server, client: c, statuses } = await runPair(ucmatose, flags, ucmatose, client(...flags));
      expect(statuses).toEqual([0, 0]);
      expect(server.out).toBe(
        'cmatose: starting server\ninitiating data transfers\ncompleting sends\nreceiving data ' +
          'transfers\ndata transfers complete\n' +
          'cmatose: disconnecting\ndisconnected\ntest complete\nreturn status 0\n',
      );
      expect(c.out).toBe(
        'cmatose: starting client\ncmatose: connecting\nreceiving data transfers\nsending replies\n' +
          'data transfers complete\ntest complete\nreturn status 0\n',
      );
    },
  );

  it('only connects and disconnects with -C 0', async () => {
    const {
      server,
      client: c,
      statuses,
    } = await runPair(ucmatose, ['-C', '0', '-c', '5'], ucmatose, client('-C', '0', '-c', '5'));
    expect(statuses).toEqual([0, 0]);
    expect(server.out).toBe(
      'cmatose: starting server\ncmatose: disconnecting\ndisconnected\ntest complete\nreturn status 0\n',
    );
    expect(c.out).not.toContain('transfers');
  });

  it.each([
    [
      ['--crc', 'off'],
      ['--crc', 'off'],
    ],
    [['--markers'], []],
    [[], ['--markers', '--crc', 'required']],
    [[], ['--no-peer-to-peer']],
    [[], ['--mpa-revision', '1']],
  ])('the server sends first, whatever the policy: %j %j (MPA-028)', async (serverFlags, clientFlags) => {
    const { statuses } = await runPair(ucmatose, serverFlags, ucmatose, client(...clientFlags));
    expect(statuses).toEqual([0, 0]);
  });

  it('reports a refused connection as librdmacm does', async () => {
    const { port } = await import('node:net').then(async ({ createServer }) => {
      const server = createServer().listen(0, '127.0.0.1');
      await new Promise((resolve) => server.once('listening', resolve));
      const address = server.address() as { port: number };
      await new Promise((resolve) => server.close(resolve));
      return address;
    });
    const side = await runAlone(ucmatose, ['-s', '127.0.0.1', '-p', String(port)]);
    expect(side.out).toContain('cmatose: event: RDMA_CM_EVENT_REJECTED, error: -111\n');
    expect(side.out).toContain('return status -111\n');
    expect(side.code).toBe(145); // -111 as an exit status
  });

  it.each<[string, (socket: Socket) => void, string, number]>([
    ['resets', (socket) => socket.resetAndDestroy(), 'REJECTED', 104],
    ['closes', (socket) => socket.end(), 'REJECTED', 104],
    ['speaks something else', (socket) => socket.end('220 mail\r\n'.repeat(9)), 'CONNECT_ERROR', 71],
  ])('reports a peer that %s in place of a Reply as librdmacm does', async (_what, answer, event, errno) => {
    const peer = createServer((socket) => {
      socket.on('error', () => undefined).once('data', () => answer(socket));
    }).listen(0, '127.0.0.1');
    await once(peer, 'listening');
    const { port } = peer.address() as AddressInfo;
    const side = await runAlone(ucmatose, ['-s', '127.0.0.1', '-p', String(port)]);
    peer.close();
    expect(side.out).toContain(`cmatose: event: RDMA_CM_EVENT_${event}, error: -${errno}\n`);
    expect(side.err).toContain('MPA start-up failed: ');
  });

  it('reports a network without a route as librdmacm does', async () => {
    const side = await runAlone(ucmatose, ['-s', '255.255.255.255']);
    expect(side.out).toMatch(/cmatose: event: RDMA_CM_EVENT_(CONNECT|ADDR)_ERROR, error: -\d+\n/);
  });

  it('reports an address that cannot be listened on, or resolved, without an event', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    const server = await runAlone(ucmatose, ['-b', '127.0.0.1', '-p', String(port)]);
    taken.close();
    expect(server).toMatchObject({
      out: 'cmatose: starting server\ntest complete\nreturn status -1\n',
      code: 255,
    });
    expect(server.err).toBe(`ucmatose: cannot listen on 127.0.0.1:${port} (EADDRINUSE)\n`);
    const client = await runAlone(ucmatose, ['-s', 'no.such.host.invalid']);
    expect(client).toMatchObject({
      out: 'cmatose: starting client\ncmatose: connecting\ntest complete\nreturn status -1\n',
      code: 255,
    });
  });

  it.each([
    [['-Z'], "ucmatose: invalid option -- 'Z'"],
    [['-s'], "option requires an argument -- 's'"],
    [['-c', '-1'], '-c must be'],
    [['--crc', 'maybe'], '--crc must be one of'],
  ])('answers %j with its usage and status 1', async (args, words) => {
    const side = await runAlone(ucmatose, args);
    expect(side.err).toContain(words);
    expect(side.out).toContain('usage: ucmatose\n\t[-s server_address]\n');
    expect(side.code).toBe(1);
  });

  it('reports that the server has left', async () => {
    // The client waits for one message more than the server sends.
    const { client: c, statuses } = await runPair(
      ucmatose,
      ['-C', '2'],
      ucmatose,
      client('-C', '3'),
      async (server) => {
        await server.said('receiving data transfers');
        server.kill();
      },
    );
    expect(statuses[1]).not.toBe(0);
    expect(c.out).toContain('cmatose: event: RDMA_CM_EVENT_DISCONNECTED');
  });

  it('reports that the client has left', async () => {
    const { server, statuses } = await runPair(
      ucmatose,
      ['-C', '3'],
      ucmatose,
      client('-C', '4'),
      async (s, c) => {
        await s.said('receiving data transfers');
        c.kill();
      },
    );
    expect(statuses[0]).not.toBe(0);
    expect(server.out).toContain('cmatose: event: RDMA_CM_EVENT_DISCONNECTED');
  });

  it.each([
    [['-P', 'ib'], '-P ib: there is no such port space'],
    [['-f', 'gid'], '-f gid: there are no GIDs'],
    [['-f', 'ipv6', '-b', 'localhost'], '-f ipv6 takes addresses only'],
  ])('refuses %j, which iWARP does not have', async (args, words) => {
    const side = await runAlone(ucmatose, args);
    expect([side.code, side.err.startsWith(`ucmatose: ${words}`)]).toEqual([1, true]);
  });

  it('warns of a port space and of an address format that it does not know, and goes on', async () => {
    const { client: c, statuses } = await runPair(
      ucmatose,
      ['-P', 'tcp', '-f', 'name'],
      ucmatose,
      client('-P', 'udp', '-f', 'foo'),
    );
    expect([statuses, c.err]).toEqual([
      [0, 0],
      'Warning: unknown address format\nWarning: unknown port space format\n',
    ]);
  });

  it('gives a silent peer up after --timeout', async () => {
    // Each waits for messages that the other does not send.
    const { client: c, statuses } = await runPair(
      ucmatose,
      ['-C', '1'],
      ucmatose,
      client('-C', '2', '--timeout', '1'),
    );
    expect(statuses[1]).toBe(146); // -ETIMEDOUT
    expect(c.err).toContain('nothing has crossed for 1 s');
  });
});

describe('rdma_client and rdma_server', () => {
  afterEach(() => void vi.unstubAllEnvs());

  it('exchange 16 octets', async () => {
    const {
      server,
      client: c,
      statuses,
    } = await runPair(rdmaServer, ['-s', '127.0.0.1'], rdmaClient, client());
    expect(statuses).toEqual([0, 0]);
    expect([server.out, c.out]).toEqual([
      'rdma_server: start\nrdma_server: end 0\n',
      'rdma_client: start\nrdma_client: end 0\n',
    ]);
  });

  /** A server like stock rdma_xserver: takes one message, answers with none, and leaves. */
  const receiver = async (leave: (session: Session) => unknown): Promise<{ port: string; close(): void }> => {
    const session = new Session(openRnic(), { maxSendWr: 1, maxRecvWr: 1 });
    session.postRecv({ mr: session.register(16) });
    const listener = await session.rnic.cm.listen({ host: '127.0.0.1' }, (request) => {
      session.use(request);
      request.accept(session.qp, { privateData: new Uint8Array(4) });
      void session.receive().then(() => leave(session));
    });
    return { port: String(listener.address.port), close: () => listener.close() };
  };

  it.each(['thread', 'worker'] as const)(
    'rdma_client ends with 0 where the server receives and leaves in order: engine %s',
    async (engine) => {
      vi.stubEnv('IWARP_ENGINE', engine);
      const server = await receiver((session) => session.close());
      const { out, err, code } = await runAlone(rdmaClient, ['-p', server.port]);
      expect([out, err, code]).toEqual(['rdma_client: start\nrdma_client: end 0\n', '', 0]);
      server.close();
    },
  );

  it('rdma_client ends with -1 where the server breaks off', async () => {
    const server = await receiver((session) =>
      session.fail(new IwarpError('ERR_CONNECTION_RESET', 'broken off')),
    );
    const { out, err, code } = await runAlone(rdmaClient, ['-p', server.port]);
    expect([out, err, code]).toEqual([
      'rdma_client: start\nrdma_client: end -1\n',
      expect.stringMatching(/^rdma_client: .*reset/) as string,
      255,
    ]);
    server.close();
  });

  it('end with -1 where there is no server', async () => {
    const { out, code } = await runAlone(rdmaClient, ['-p', '1']);
    expect(out).toBe('rdma_client: start\nrdma_client: end -1\n');
    expect(code).toBe(255);
  });

  it.each([
    ['rdma_client', rdmaClient],
    ['rdma_server', rdmaServer],
  ] as const)('%s answers wrong flags with its usage', async (name, run) => {
    const side = await runAlone(run, ['-x']);
    expect(side.out).toBe(`usage: ${name}\n\t[-s server_address]\n\t[-p port_number]\n`);
    expect([side.err, side.code]).toEqual([`${name}: invalid option -- 'x'\n`, 1]);
  });

  it.each([
    [rdmaClient, 1, ['-p', '0']],
    [rdmaServer, 0, ['-p', '']],
    [rcopy, 0, ['-p', '65536']],
    [rcopy, 1, ['-p', '0', 'file', '127.0.0.1:file']],
    [ucmatose, 0, ['-p', 'abc']],
    [ucmatose, 1, ['-s', '127.0.0.1', '-p', '4711x']],
  ] as const)('and rcopy and ucmatose too name the port that is none', async (run, min, args) => {
    const { err } = await runAlone(run, [...args]);
    expect(err).toContain(
      `-p must be a whole number from ${min} to 65535, got '${args[args.indexOf('-p') + 1]}'\n`,
    );
  });
});
