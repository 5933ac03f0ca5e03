/**
 * `iwarp proxy` between two ends over 127.0.0.1: octets, ends, resets and back-pressure pass; the display
 *   equals the record; faults end as they should.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { get } from 'node:http';
import {
  connect as tcpConnect,
  createServer as createTcpServer,
  type AddressInfo,
  type Server as TcpServer,
  type Socket,
} from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { connect, createServer, type Connection, type Server } from '../../src/index.ts';
import type { CloseInfo } from '../../src/api/errors.ts';
import { seededRandom } from '../../src/base/random.ts';
import { dissect } from '../../cli/dissect.ts';
import { proxy } from '../../cli/proxy.ts';
import { run as riostream } from '../../cli/riostream.ts';
import { run as rstream } from '../../cli/rstream.ts';
import { Side } from './pair.ts';

const folder = mkdtempSync(join(tmpdir(), 'proxy-'));
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});
afterAll(() => rmSync(folder, { recursive: true }));

function start(target: number, ...args: string[]): Side {
  const side = new Side((words, io) => proxy(words, io!), ['0', String(target), ...args]);
  cleanups.push(() => side.kill());
  return side;
}

function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  return { promise: new Promise((settle) => (resolve = settle)), resolve };
}

// ---------------------------------------------------------------------------------------------------- octets

/** A TCP server and what each of its connections does. */
async function tcpServer(
  onConnection: (socket: Socket) => void,
): Promise<{ server: TcpServer; port: number }> {
  const server = createTcpServer({ allowHalfOpen: true }, (socket) => {
    cleanups.push(() => socket.destroy());
    socket.on('error', () => undefined);
    onConnection(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(() => server.close());
  return { server, port: (server.address() as AddressInfo).port };
}

async function tcpClient(port: number): Promise<Socket> {
  const socket = tcpConnect({ port, host: '127.0.0.1', allowHalfOpen: true });
  cleanups.push(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/**
 * Everything until the FIN. Not by iteration: that would destroy a socket whose other direction is still
 * open.
 */
function readAll(socket: Socket): Promise<Buffer> {
  const parts: Buffer[] = [];
  socket.on('data', (part: Buffer) => parts.push(part)).resume();
  return once(socket, 'end').then(() => Buffer.concat(parts));
}

describe('other protocols than iWARP pass too', () => {
  it('carries octets both ways, each end on its own', async () => {
    const there = randomBytes(3_000_000);
    const back = randomBytes(2_000_000);
    const arrived = deferred<Buffer>();
    const { port } = await tcpServer((socket) => {
      void readAll(socket).then((octets) => {
        // Only after the client's FIN: our direction is still open then.
        socket.end(back);
        arrived.resolve(octets);
      });
    });
    const side = start(port, '--once');
    const client = await tcpClient(await side.port);
    client.end(there);
    const answer = await readAll(client);
    expect((await arrived.promise).equals(there)).toBe(true);
    expect(answer.equals(back)).toBe(true);
    expect(await side.status).toBe(0);
    expect(side.out).toContain('no MPA start-up frame');
  });

  it.each(['client', 'server'])('carries a reset by the %s, after the octets before it', async (who) => {
    const accepted = deferred<Socket>();
    const { port } = await tcpServer((socket) => accepted.resolve(socket));
    const side = start(port, '--once', '-q');
    const client = await tcpClient(await side.port);
    const server = await accepted.promise;
    const [from, to] = who === 'client' ? [client, server] : [server, client];
    const lost = once(to, 'error');
    const data = once(to, 'data');
    from.write('last words');
    expect(String((await data)[0])).toBe('last words');
    from.resetAndDestroy();
    expect((await lost)[0]).toMatchObject({ code: 'ECONNRESET' });
    expect(await side.status).toBe(0);
    expect(side.err).toContain('connection 1: the connection was lost (ECONNRESET)');
  });

  it('lets the sender feel a receiver that does not read, and loses nothing', async () => {
    const accepted = deferred<Socket>();
    const { port } = await tcpServer((socket) => accepted.resolve(socket.pause()));
    const side = start(port, '--once', '-q');
    const client = await tcpClient(await side.port);
    const server = await accepted.promise;
    const octets = randomBytes(32 << 20);
    for (let at = 0; at < octets.length; at += 65_536) client.write(octets.subarray(at, at + 65_536));
    client.end();
    // Buffers of the system and of the proxy fill up; then nothing moves.
    for (let before = -1; before !== client.writableLength; ) {
      before = client.writableLength;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect(client.writableLength).toBeGreaterThan(0);
    expect((await readAll(server)).equals(octets)).toBe(true);
    server.end();
    client.resume();
    expect(await side.status).toBe(0);
  });

  it('resets the client when there is no target, and says so', async () => {
    const { server, port } = await tcpServer(() => undefined);
    await new Promise((resolve) => server.close(resolve));
    const side = start(port, '--once');
    const client = tcpConnect(await side.port, '127.0.0.1');
    expect((await once(client, 'error'))[0]).toMatchObject({ code: 'ECONNRESET' });
    expect(await side.status).toBe(1);
    expect(side.err).toContain('ECONNREFUSED');
  });

  it('ends a connection on which nothing crosses', async () => {
    const { port } = await tcpServer(() => undefined);
    const side = start(port, '--once', '--timeout', '1');
    const client = await tcpClient(await side.port);
    expect((await once(client, 'error'))[0]).toMatchObject({ code: 'ECONNRESET' });
    expect(await side.status).toBe(1);
    expect(side.err).toContain('nothing has crossed for too long');
  });

  it('ends in order when interrupted', async () => {
    const { port } = await tcpServer(() => undefined);
    const side = start(port);
    const client = await tcpClient(await side.port);
    const lost = once(client, 'error');
    side.kill();
    expect((await lost)[0]).toMatchObject({ code: 'ECONNRESET' });
    expect(await side.status).toBe(0);
  });

  it('names the fault of the command line, and a file that cannot be opened', async () => {
    const words: string[] = [];
    const io = {
      out: (text: string): void => void words.push(text),
      err: (text: string): void => void words.push(text),
    };
    expect(await proxy(['1'], io)).toBe(2);
    expect(words.join('')).toContain('usage: iwarp proxy LISTEN TARGET');
    expect(await proxy(['--help'], io)).toBe(0);
    const { port } = await tcpServer(() => undefined);
    expect(await proxy([String(port), '1'], io)).toBe(1);
    expect(words.at(-1)).toContain('EADDRINUSE');
    expect(await proxy(['0', '1', '--pcap', join(folder, 'missing', 'x.pcap')], io)).toBe(1);
    expect(words.at(-1)).toBe(
      `iwarp proxy: ${join(folder, 'missing', 'x.pcap')}: no such file or directory\n`,
    );
    expect(await proxy(['0', '1', '--page', String(port)], io)).toBe(1);
    expect(words.at(-1)).toContain('--page');
  });
});

// ----------------------------------------------------------------------------------------------------- iWARP

interface Ends {
  readonly side: Side;
  readonly server: Server;
  readonly client: Connection;
  readonly peer: Connection;
}

/** Two endpoints of this package, without credits, and a proxy between them. */
async function ends(...args: string[]): Promise<Ends> {
  const accepted = deferred<Connection>();
  const server = createServer({ credits: false }, (connection) => accepted.resolve(connection));
  await server.listen({ host: '127.0.0.1' });
  cleanups.push(() => server.close());
  const side = start(server.address().port, '--once', '--timeout', '10', ...args);
  const client = await connect({ host: '127.0.0.1', port: await side.port, credits: false });
  const peer = await accepted.promise;
  cleanups.push(
    () => peer.destroy(),
    () => client.destroy(),
  );
  return { side, server, client, peer };
}

/** Sends, a Write and a Read from the client; then the client closes. Says how both ends ended. */
async function talk({
  side,
  client,
  peer,
}: Ends): Promise<{ client: CloseInfo; peer: CloseInfo; memory: Uint8Array; status: number }> {
  const target = peer.allocate(4096);
  const memory = target.bytes;
  const remote = peer.share(target);
  const local = client.allocate(4096);
  for (let i = 0; i < 4096; i++) local.bytes[i] = i * 7;
  const work = async (): Promise<void> => {
    await Promise.all([
      client.send('one'),
      client.write(local, remote),
      client.send('two'),
      client.send('three'),
    ]);
    await client.read(remote, client.allocate(4096));
    await client.close();
  };
  await work().catch(() => undefined);
  const [a, b] = await Promise.all([client.closed, peer.closed]);
  return { client: a, peer: b, memory, status: await side.status };
}

/** Lines that are not the faults' own, without the numbers of packets, which only a file has. */
const plain = (text: string): string[] =>
  text
    .replaceAll(/"packet":\d+,|, packet \d+$/gm, '')
    .split('\n')
    .filter((line) => line !== '' && !/fault [a-z]+,from=/.test(line) && !/\d+ packets/.test(line));

describe('between two of our own ends', () => {
  it.each([
    [],
    ['--json'],
    ['-V'],
    ['-x'],
    ['--opcode', 'Send'],
    ['--fault', 'flip,opcode=Send,fpdu=2,byte=20'],
    ['--fault', 'reset,opcode=Write,fpdu=2,byte=40'],
  ])('shows what iwarp dissect shows of the capture: %s %s', async (...flags) => {
    const file = join(folder, 'run.pcap');
    const both = await ends('--pcap', file, ...flags);
    await talk(both);
    let dissected = '';
    const style = flags[0] === '--fault' ? [] : flags;
    expect(
      dissect([file, ...style], { out: (text) => (dissected += text), err: (text) => (dissected += text) }),
    ).toBe(0);
    expect(plain(both.side.out).length).toBeGreaterThan(3);
    expect(plain(both.side.out)).toEqual(plain(dissected));
  });

  it('shows and records the octets sent, before the faults, with --sent', async () => {
    const file = join(folder, 'sent.pcap');
    const both = await ends('--sent', '--json', '--pcap', file, '--fault', 'flip,opcode=Send,fpdu=2,byte=20');
    await talk(both);
    let dissected = '';
    dissect([file, '--json'], { out: (text) => (dissected += text), err: () => undefined });
    expect(plain(both.side.out)).toEqual(plain(dissected));
    expect(dissected).not.toContain('MPA-069');
    expect(dissected).toContain('MPA CRC mismatch');
  });

  it.each([
    ['flip,opcode=Send,fpdu=2,byte=20', '2/0/02'],
    ['flip,opcode=Send,fpdu=2,byte=2,bit=1,crc=fix', '1/2/06'],
    ['flip,opcode=Send,fpdu=2,byte=3,bit=7,crc=fix', '0/2/05'],
    ['flip,opcode=Send,fpdu=2,byte=11,crc=fix', '1/2/01'],
    ['flip,opcode=Send,fpdu=2,byte=15,crc=fix', '1/2/03'],
    ['flip,opcode=Send,fpdu=2,byte=19,crc=fix', '1/2/04'],
    ['flip,opcode=Write,fpdu=2,byte=4,crc=fix', '1/1/00'],
    ['flip,opcode=Write,fpdu=2,byte=8,bit=7,crc=fix', '1/1/01'],
    ['drop,opcode=Send,fpdu=2', '1/2/03'],
    ['duplicate,opcode=Send,fpdu=2', '1/2/03'],
    ['reorder,opcode=Send,fpdu=2', '1/2/03'],
  ])('%s ends with Terminate %s at both ends', async (fault, code) => {
    const both = await ends('--fault', fault);
    const { client, peer, status } = await talk(both);
    expect(peer.terminate).toMatchObject({ origin: 'local' });
    expect(peer.terminate!.description).toContain(code);
    expect(client.terminate).toMatchObject({ origin: 'remote' });
    expect(client.terminate!.description).toContain(code);
    expect(both.side.out).toContain(`fault ${fault.split(',')[0]},from=client`);
    expect(status).toBe(0);
  });

  it('names the place of a fault as that of the FPDU it strikes', async () => {
    const both = await ends('--json', '--fault', 'flip,opcode=Send,fpdu=2,byte=20');
    await talk(both);
    const lines = both.side.out
      .trim()
      .split('\n')
      .map(
        (line) =>
          JSON.parse(line) as { kind: string; position: number; message?: string; crc?: { ok: boolean } },
      );
    const note = lines.find(({ kind, message }) => kind === 'note' && message!.includes('strikes Send'));
    expect(note!.position).toBe(lines.find(({ crc }) => crc?.ok === false)!.position);
  });

  it('places nothing of an FPDU whose CRC a fault broke (MPA-073)', async () => {
    const both = await ends('--fault', 'flip,opcode=Write,fpdu=2,byte=100');
    const { memory } = await talk(both);
    expect(memory.every((octet) => octet === 0)).toBe(true);
  });

  it.each([
    'cut,opcode=Write,fpdu=2,byte=50',
    'reset,opcode=Write,fpdu=2,byte=50',
    'cut,from=server,opcode=ReadResp,byte=30',
    'reset,from=server,opcode=ReadResp',
  ])('%s ends the connection at both ends, without a Terminate of ours that lies', async (fault) => {
    const { client, peer, status } = await talk(await ends('--fault', fault));
    expect(client.error).toBeDefined();
    if (fault.startsWith('reset'))
      expect([client.cause, peer.cause].every((cause) => cause === 'reset' || cause === 'lost')).toBe(true);
    expect(client.terminate).toBeUndefined();
    expect(status).toBe(0);
  });

  it('a delay and an overtaken Write change nothing but time', async () => {
    for (const fault of [
      'delay,opcode=Write,fpdu=2,byte=50,ms=200',
      'delay,from=server,opcode=ReadResp,ms=200',
      'reorder,opcode=Write,fpdu=2,ms=200',
    ]) {
      const { client, peer, memory, status } = await talk(await ends('--fault', fault));
      expect([client.cause, peer.cause, status]).toEqual(['graceful', 'graceful', 0]);
      expect(memory[4095]).toBe((4095 * 7) & 0xff);
    }
  });

  it('says which faults did not strike', async () => {
    const both = await ends(
      '--fault',
      'drop,opcode=Send,fpdu=9',
      '--fault',
      'flip,from=server,at=100000',
      '--fault',
      'delay,at=0,ms=1',
    );
    await talk(both);
    const missed = both.side.err.split('\n').filter((line) => line.includes('did not strike'));
    expect(missed.map((line) => /fault (\w+)/.exec(line)![1])).toEqual(['drop', 'flip']);
  });

  it('a stall ends by the time-out', async () => {
    const both = await ends('--timeout', '1', '--fault', 'stall,opcode=Write');
    const { client, peer, status } = await talk(both);
    expect([client.cause, peer.cause]).toEqual(['reset', 'reset']);
    expect(status).toBe(1);
  });

  it('any fault of any seed ends: nothing hangs, nothing throws', async () => {
    for (let seed = 1; seed <= 12; seed++) {
      const accepted = deferred<Connection>();
      const server = createServer({ credits: false }, (connection) => accepted.resolve(connection));
      await server.listen({ host: '127.0.0.1' });
      const side = start(
        server.address().port,
        '--once',
        '--timeout',
        '1',
        '--seed',
        String(seed),
        '--fault',
        'any,ms=1..300',
        '--fault',
        'any,fpdu=1..4',
      );
      const client = await connect({ host: '127.0.0.1', port: await side.port, credits: false }).catch(
        () => null,
      );
      // The client may be established while its server is not.
      if (client !== null) {
        await Promise.race([
          client.closed,
          client.send('one').then(
            () => client.close(),
            () => undefined,
          ),
        ]);
        client.destroy();
      }
      expect([0, 1]).toContain(await side.status);
      await server.close();
    }
  });

  it('serves many connections, each numbered, with a summary of each', async () => {
    const server = createServer({}, (connection) => void connection.receive().then(() => connection.close()));
    await server.listen({ host: '127.0.0.1' });
    cleanups.push(() => server.close());
    const side = start(server.address().port, '--connections', '3', '--summary', '--json');
    const port = await side.port;
    for (let i = 0; i < 3; i++) {
      const client = await connect({ host: '127.0.0.1', port });
      await client.send('hello');
      await client.closed;
    }
    expect(await side.status).toBe(0);
    const summaries = side.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { kind: string; connection: number; iwarp: boolean });
    expect(summaries.map(({ kind, connection, iwarp }) => [kind, connection, iwarp])).toEqual(
      [1, 2, 3].map((n) => ['summary', n, true]),
    );
  });
});

// ------------------------------------------------------------------------------------------------------ page

function fetchText(
  port: number,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, headers, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => (text += part));
      response.on('end', () => resolve({ status: response.statusCode!, text }));
    }).on('error', reject);
  });
}

describe('the live page', () => {
  it('is fed while connections run, from where the browser stands, and notified of the end', async () => {
    const accepted = deferred<Connection>();
    const server = createServer({}, (connection) => accepted.resolve(connection));
    await server.listen({ host: '127.0.0.1' });
    cleanups.push(() => server.close());
    const side = start(server.address().port, '--once', '-q', '--page', '0');
    const port = await side.port;
    const page = Number(/http:\/\/127\.0\.0\.1:(\d+)\//.exec(side.err)![1]);
    const first = await fetchText(page, '/');
    expect(first.status).toBe(200);
    expect(first.text).toContain('"events":[]');
    expect(first.text).toContain('new EventSource(');
    const feed = fetchText(page, '/events?after=0');
    const client = await connect({ host: '127.0.0.1', port });
    await client.send('hello');
    await (await accepted.promise).receive();
    const later = await fetchText(page, '/');
    expect(later.text).toContain('"o":"MPA Req"');
    await client.close();
    expect(await side.status).toBe(0);
    const { text } = await feed;
    const news = [...text.matchAll(/^data: (\{"events".*)$/gm)].map(
      ([, json]) => JSON.parse(json!) as { events: { o: string }[]; connections: unknown[] },
    );
    const names = news.flatMap(({ events }) => events.map(({ o }) => o));
    expect(names.slice(0, 2)).toEqual(['MPA Req', 'MPA Rep']);
    expect(names).toContain('Send');
    expect(news.at(-1)!.connections).toHaveLength(1);
    expect(text.trimEnd()).toMatch(/event: over\ndata: \{\}$/);
  });

  it('answers no name but its own, and nothing but its page', async () => {
    const side = start(1, '--page', '0');
    await side.port;
    const page = Number(/http:\/\/127\.0\.0\.1:(\d+)\//.exec(side.err)![1]);
    expect((await fetchText(page, '/', { host: 'evil.example' })).status).toBe(403);
    expect((await fetchText(page, '/other')).status).toBe(404);
    side.kill();
    expect(await side.status).toBe(0);
  });

  /** The status line that answers `request`, or what the connection ended with. */
  const answerTo = async (port: number, request: string): Promise<string> => {
    const socket = tcpConnect({ port, host: '127.0.0.1' });
    socket.on('error', () => undefined);
    let text = '';
    socket.setEncoding('latin1').on('data', (part: string) => {
      text += part;
      socket.destroy();
    });
    socket.end(request, 'latin1');
    await once(socket, 'close');
    return text.split('\r\n', 1)[0]!;
  };

  it('malformed requests are refused and the proxy goes on', async () => {
    const side = start(1, '--page', '0');
    await side.port;
    const port = Number(/http:\/\/127\.0\.0\.1:(\d+)\//.exec(side.err)![1]);
    const host = `127.0.0.1:${port}`;
    const ask = (target: string, name = host, method = 'GET'): Promise<string> =>
      answerTo(port, `${method} ${target} HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`);
    for (const target of ['//', 'http://[', '*', '/\\..\\', 'x', '///x?after=1'])
      expect(await ask(target), target).toBe('HTTP/1.1 400 Bad Request');
    expect(await ask('/', '[::1')).toBe('HTTP/1.1 403 Forbidden');
    expect(await ask('/%')).toBe('HTTP/1.1 404 Not Found');
    const random = seededRandom(7);
    const parts = [
      '/',
      '//',
      '?',
      '#',
      '%',
      '%zz',
      '[',
      ':',
      '\\',
      '@',
      'http://',
      'events',
      'after=',
      '\u00ff',
      '9',
    ];
    for (let i = 0; i < 300; i++) {
      const target = Array.from({ length: 1 + (random() % 6) }, () => parts[random() % parts.length]).join(
        '',
      );
      const method = ['GET', 'CONNECT', 'POST', 'OPTIONS', '\u0000'][random() % 5]!;
      await ask(target, random() % 4 === 0 ? target : host, method);
    }
    expect((await fetchText(port, '/')).status).toBe(200);
    side.kill();
    expect(await side.status).toBe(0);
  }, 60_000);
});

describe('a tool of byte streams beside a broken wire', () => {
  it.each([
    ['rstream', rstream],
    ['riostream', riostream],
  ])('%s says in a line at either end why it has ended', async (name, run) => {
    const flags = ['-S', '4096', '-C', '20', '-I', '10'];
    const server = new Side(run, ['-p', '0', ...flags]);
    const proxy = start(await server.port, '--once', '-q', '--fault', 'flip,opcode=Write,fpdu=9,byte=100');
    const client = new Side(run, ['-s', '127.0.0.1', '-p', String(await proxy.port), ...flags]);
    expect(await Promise.all([server.status, client.status])).toEqual([1, 1]);
    for (const { err } of [server, client])
      expect(err).toMatch(new RegExp(`^(listening .*\\n)?${name}: .+\\n$`));
    expect(server.err + client.err).toContain('CRC');
    await proxy.status;
  });
});
