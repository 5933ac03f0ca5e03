/** rping against itself: data, words, exit statuses, wrong flags, peers that leave or fall silent. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { CaptureFile } from '../../src/inspect/capture/capture-file.ts';
import { readCaptureFile } from '../../src/inspect/read-file.ts';
import { pingData, run as rping } from '../../cli/rping.ts';
import { runAlone, runPair, Side } from './pair.ts';

const SERVER = ['-s', '-a', '127.0.0.1'];
const client =
  (...more: string[]) =>
  (port: string): string[] => ['-c', '-a', '127.0.0.1', '-p', port, ...more];
const text = (n: number, size: number): string =>
  Buffer.from(pingData(n, size).subarray(0, size - 1)).toString('latin1');

describe('rping', () => {
  it.each([23, 64, 65_535])('pings with %i octets, and both show the data', async (size) => {
    const {
      server,
      client: c,
      statuses,
    } = await runPair(rping, [...SERVER, '-v'], rping, client('-v', '-V', '-C', '3', '-S', String(size)));
    expect(statuses).toEqual([0, 0]);
    const lines = [0, 1, 2].map((n) => text(n, size));
    expect(c.out).toBe(lines.map((line) => `ping data: ${line}\n`).join(''));
    expect(server.out).toBe(lines.map((line) => `server ping data: ${line}\n`).join(''));
    expect(c.err).toBe('client DISCONNECT EVENT...\n');
    expect(server.err).toMatch(
      /^listening on port \d+\nserver DISCONNECT EVENT\.\.\.\nwait for RDMA_READ_ADV state 10\n$/,
    );
  });

  it('a server takes no ping above the size it was given, and says so', async () => {
    const { server, statuses } = await runPair(
      rping,
      [...SERVER, '-S', '64'],
      rping,
      client('-C', '1', '-S', '65'),
    );
    expect(statuses).toEqual([1, 1]);
    expect(server.err).toContain(
      "rping server failed: the client's buffer has 65 bytes, above 64, which -S gives\n",
    );
  });

  it('-P serves one client after the other, and two at once', async () => {
    const server = new Side(rping, [...SERVER, '-p', '0', '-P']);
    const port = String(await server.port);
    const ping = async (): Promise<number> => await new Side(rping, client('-V', '-C', '5')(port)).status;
    expect([await ping(), ...(await Promise.all([ping(), ping()]))]).toEqual([0, 0, 0]);
    // A client that has ended has said goodbye; the server may still have to hear it.
    await vi.waitFor(() => expect(server.err.match(/server DISCONNECT EVENT/g)).toHaveLength(3), {
      timeout: 50_000,
      interval: 20,
    });
    server.kill();
    expect(await server.status).toBe(1);
    expect(server.err.match(/server DISCONNECT EVENT/g)).toHaveLength(3);
  });

  it.each([
    [['-Z'], "rping: invalid option -- 'Z'"],
    [[], 'give exactly one of -s and -c'],
    [['-s', '-c'], 'give exactly one of -s and -c'],
    [['-c'], 'the client needs -a ADDR'],
    [['-s', '-p'], "option requires an argument -- 'p'"],
    [['-s', '--crc', 'maybe'], '--crc must be one of required, preferred, off, got "maybe"'],
    [['-s', '-p', 'abc'], "-p must be a whole number from 0 to 65535, got 'abc'"],
    [['-c', '-a', '127.0.0.1', '-I', 'localhost'], "-I must be an IP address, got 'localhost'"],
    [['-c', '-a', '127.0.0.1', '-p', '0'], "-p must be a whole number from 1 to 65535, got '0'"],
  ])('answers %j with the stock usage and status 22', async (args, words) => {
    const side = await runAlone(rping, args);
    expect(side.err).toContain(words);
    expect(side.out).toMatch(
      /^rping -s \[-vVd\] \[-S size\] \[-C count\] \[-a addr\] \[-p port\]\nrping -c /,
    );
    expect(side.code).toBe(22);
  });

  it.each([
    [['-s', '-S', '5'], 'Invalid size 5 (valid range is 23 to 65535)\n'],
    [['-s', '-S', '70000'], 'Invalid size 70000 (valid range is 23 to 65535)\n'],
    [['-s', '-C', '-1'], 'Invalid count -1\n'],
  ])('answers %j in the stock words and status 22, without usage', async (args, words) => {
    expect(await runAlone(rping, args)).toMatchObject({ err: words, out: '', code: 22 });
  });

  it.each(['thread', 'worker'])(
    '--pcap writes at the times of the day, with the engine in a %s',
    async (engine) => {
      vi.stubEnv('IWARP_ENGINE', engine);
      const folder = mkdtempSync(join(tmpdir(), 'rping-'));
      onTestFinished(() => {
        vi.unstubAllEnvs();
        rmSync(folder, { recursive: true });
      });
      const file = join(folder, 'run.pcap');
      const began = Date.now();
      expect((await runPair(rping, SERVER, rping, client('-C', '1', '--pcap', file))).statuses).toEqual([
        0, 0,
      ]);
      const times: number[] = [];
      const capture = new CaptureFile({
        packet: ({ seconds, nanos }) => times.push(seconds * 1000 + nanos / 1e6),
        remark: (_offset, message) => expect.unreachable(message),
      });
      readCaptureFile(file, capture);
      expect(times.length).toBeGreaterThan(5);
      // The two clocks may part by some milliseconds.
      expect(Math.min(...times)).toBeGreaterThan(began - 50);
      expect(Math.max(...times)).toBeLessThan(Date.now() + 50);
    },
  );

  it('a server leaves the end to its client, whatever its -C, as the stock server', async () => {
    const { server, statuses } = await runPair(rping, [...SERVER, '-C', '1', '-v'], rping, client('-C', '3'));
    expect(statuses).toEqual([0, 0]);
    expect(server.out.match(/server ping data/g)).toHaveLength(3);
    expect(server.err).toMatch(/server DISCONNECT EVENT\.\.\.\nwait for RDMA_READ_ADV state 10\n$/);
  });

  it('reports that nothing listens', async () => {
    const side = await runAlone(rping, ['-c', '-a', '127.0.0.1', '-p', '1', '-C', '1']);
    expect(side.code).toBe(1);
    expect(side.err).toMatch(/^rping: .*ECONNREFUSED/);
  });

  it.each(['server', 'client'] as const)('reports that the %s has left', async (leaver) => {
    const {
      server,
      client: c,
      statuses,
    } = await runPair(rping, [...SERVER, '-v'], rping, client('-v'), async (s, other) => {
      await Promise.all([s.said('rdma-ping-20:'), other.said('rdma-ping-20:')]);
      (leaver === 'server' ? s : other).kill();
    });
    expect(statuses).toEqual([1, 1]);
    expect((leaver === 'server' ? c : server).err).toMatch(/rping (client|server) failed: /);
  });

  it.each<[string, (socket: Socket) => void, string]>([
    [
      'speaks another protocol',
      (socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
      "the peer's answer is no MPA Reply",
    ],
    [
      'hangs up',
      (socket) => void socket.end(),
      'the peer closed the connection before an MPA Reply (does the port want TLS?)',
    ],
    [
      'resets',
      (socket) => void socket.resetAndDestroy(),
      'the connection was reset before an MPA Reply (does the port want TLS?)',
    ],
  ])('says what a server does that %s', async (_what, act, words) => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => act(socket));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const side = await runAlone(rping, [
      '-c',
      '-a',
      '127.0.0.1',
      '-p',
      String((server.address() as AddressInfo).port),
    ]);
    server.close();
    expect([side.code, side.err]).toEqual([1, `rping: MPA start-up failed: ${words}\n`]);
  });

  it.each([['x'], ['1m'], ['-1'], ['1.5'], ['1000001'], ['']])('refuses --timeout %j', async (seconds) => {
    const side = await runAlone(rping, ['-s', '--timeout', seconds]);
    expect([side.code, side.err]).toEqual([
      22,
      `rping: --timeout must be a whole number from 0 to 1000000, got ${JSON.stringify(seconds)}\n`,
    ]);
  });

  it('says in one line that a capture cannot be written', async () => {
    const side = await runAlone(rping, ['-s', '--pcap', '/nonexist/x']);
    expect([side.code, side.err]).toEqual([22, 'rping: /nonexist/x: no such file or directory\n']);
  });

  it('gives a server up that never answers', async () => {
    const silent = createServer((socket) => void socket.on('error', () => undefined));
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const side = await runAlone(rping, [
      '-c',
      '-a',
      '127.0.0.1',
      '-p',
      String((silent.address() as AddressInfo).port),
      '--timeout',
      '1',
    ]);
    silent.close();
    expect(side.code).toBe(1);
    expect(side.err).toMatch(/nothing has crossed for 1 s|timeout/);
  });

  it('a persistent server gives up one silent client, and goes on', async () => {
    const server = new Side(rping, [...SERVER, '-p', '0', '-P', '--timeout', '1']);
    const port = await server.port;
    const { openRnic } = await import('../../src/api/environment.ts');
    const { Session } = await import('../../cli/support/session.ts');
    const rnic = openRnic();
    const silent = new Session(rnic);
    silent.use(
      rnic.cm.connect(silent.qp, {
        host: '127.0.0.1',
        port,
        policy: {},
        responderResources: 1,
        initiatorDepth: 1,
      }),
    );
    await silent.established;
    await silent.closed;
    await server.said('rping server failed: nothing has crossed for 1 s');
    expect(await new Side(rping, client('-V', '-C', '2')(String(port))).status).toBe(0);
    server.kill();
    await server.status;
  });
});
