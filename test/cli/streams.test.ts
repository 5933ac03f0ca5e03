/**
 * rstream, riostream and rcopy against each other: figures, verified data, files, messages octet for octet,
 * wrong flags, peers that leave.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { observedDevices } from '../../src/observe/devices.ts';
import { connect } from '../../src/sockets/index.ts';
import {
  decodeHeader,
  encodeHeader,
  encodeOpen,
  encodeWrite,
  run as rcopy,
  splitTarget,
} from '../../cli/rcopy.ts';
import { run as riostream } from '../../cli/riostream.ts';
import { run as rstream } from '../../cli/rstream.ts';
import {
  bandwidthTest,
  countText,
  latencyTest,
  Pattern,
  sizeText,
  testSizes,
} from '../../cli/support/stream-test.ts';
import { runAlone, runPair, Side, type ToolRun } from './pair.ts';

/** Hexadecimal octets, field by field. */
const octets = (...fields: readonly string[]): string => fields.join('');

const client =
  (flags: readonly string[]) =>
  (port: string): string[] => ['-s', '127.0.0.1', '-p', port, ...flags];

/**
 * Wait until the devices that are new here have two connections that are up: one of them may have a thread to
 * start first.
 */
async function bothEstablished(known: ReadonlySet<unknown>): Promise<void> {
  const up = (): number =>
    observedDevices().reduce((sum, one) => sum + (known.has(one) ? 0 : one.cm.counters().established), 0);
  while (up() < 2) await new Promise((resolve) => setTimeout(resolve, 5));
}

const COLUMNS = 'name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n';

describe.each([
  ['rstream', rstream],
  ['riostream', riostream],
] as const)('%s', (name, run: ToolRun) => {
  it.each([
    ['-S', '1000', '-C', '10', '-I', '5'],
    ['-S', '300000', '-C', '4', '-I', '3'],
    ['-S', '64', '-C', '1', '-I', '600'],
    ['-S', '70000', '-C', '3', '-I', '2', '-B', '16384'],
  ])('moves and verifies with %s %s %s %s %s %s', async (...flags) => {
    const all = [...flags, '-T', 'v'];
    const { server, client: c, statuses } = await runPair(run, all, run, client(all));
    expect([statuses, server.err.replace(/listening.*\n/, ''), c.err]).toEqual([[0, 0], '', '']);
    for (const side of [server, c]) {
      expect(side.out.startsWith(COLUMNS)).toBe(true);
      expect(side.out.slice(COLUMNS.length)).toMatch(
        /^custom {4}\S+ +\d+ +\d+ +\S+ +\d+\.\d\ds +\d+\.\d\d +\d+\.\d\d\n$/,
      );
    }
  });

  it.each([['-T', 'x'], ['-y'], ['-p', '99999'], ['-p', 'abc'], ['-s', '127.0.0.1', '-p', '0'], ['-S']])(
    'answers %s with its usage',
    async (...args) => {
      const side = await runAlone(run, args);
      expect(side.code).toBe(1);
      expect(side.out).toContain(`usage: ${name}\n\t[-s server_address]\n`);
      expect(side.err).toContain(`${name}: `);
    },
  );

  it.each([
    [['-B', '1'], '-B must be from 4096 to 1073741824, or 0 for 524288, got 1'],
    [['-B', '1073741825'], '-B must be from 0 to 1073741824'],
    [['-I', '0'], '-I must be from 1 to 2147483647, got 0'],
    [['-C', '0'], '-C must be from 1 to 2147483647, got 0'],
    [['-f', 'gid'], '-f gid: there are no GIDs over iWARP'],
    [['-f', 'ip', '-s', 'localhost'], "-f ip takes addresses only, got -s 'localhost'"],
    [['--timeout', 'x'], '--timeout must be a whole number from 0 to 1000000, got "x"'],
    [['--pcap', '/nonexist/x'], '/nonexist/x: no such file or directory'],
  ])('refuses %j', async (args, words) => {
    const side = await runAlone(run, args);
    expect(side.code).toBe(1);
    expect(side.err).toContain(`${name}: ${words}`);
  });

  it('warns of an address format it does not know, and goes on', async () => {
    const { client: c, statuses } = await runPair(
      run,
      ['-C', '1', '-f', 'name'],
      run,
      client(['-C', '1', '-f', 'foo']),
    );
    expect([statuses, c.err]).toEqual([[0, 0], 'Warning: unknown address format\n']);
  });

  it('reports that the peer has left', async () => {
    for (const leaver of ['server', 'client'] as const) {
      const flags = ['-S', '1000', '-C', '1', '-I', '1000000'];
      const known = new Set(observedDevices());
      const {
        server,
        client: c,
        statuses,
      } = await runPair(run, flags, run, client(flags), async (s, other) => {
        await Promise.all([s.said('usec/xfer'), other.said('usec/xfer'), bothEstablished(known)]);
        // Some hundred turns of the event loop, so that the exchange is under way.
        for (let turn = 0; turn < 300; turn++) await new Promise((resolve) => setImmediate(resolve));
        (leaver === 'server' ? s : other).kill();
      });
      expect(statuses).toEqual([1, 1]);
      expect((leaver === 'server' ? c : server).err).toMatch(/connection|ended|start-up/);
    }
  });
});

describe('rstream', () => {
  it('runs over plain TCP with -T s', async () => {
    const flags = ['-S', '5000', '-C', '5', '-I', '5', '-T', 's'];
    expect((await runPair(rstream, flags, rstream, client(flags))).statuses).toEqual([0, 0]);
  });

  it('has the stock sizes, counts and names', () => {
    expect(testSizes(false)).toEqual([64, 4096, 65_536, 1_048_576]);
    expect(testSizes(true)).toHaveLength(33);
    expect(testSizes(true).slice(0, 4)).toEqual([64, 128, 192, 256]);
    expect(testSizes(false).map((size) => latencyTest(size))).toMatchObject([
      { name: '64_lat', iterations: 100_000 },
      { name: '4k_lat', iterations: 10_000 },
      { name: '64k_lat', iterations: 1000 },
      { name: '1m_lat', iterations: 100 },
    ]);
    expect(bandwidthTest(65_536)).toEqual({ name: '64k_bw', size: 65_536, count: 1000, iterations: 1 });
    expect([0, 1536, 4096, 10_240, 2 ** 30].map(sizeText)).toEqual(['0', '1.5k', '4k', '10k', '1g']);
    expect([999, 1000, 2e6, 3e9].map(countText)).toEqual(['999', '1k', '2m', '3b']);
  });

  it('a pattern that differs is found at its octet', () => {
    const [sender, receiver] = [new Pattern(), new Pattern()];
    const bytes = new Uint8Array(300);
    sender.put(bytes);
    expect(receiver.check(bytes)).toBe(-1);
    sender.put(bytes);
    bytes[10]!++;
    expect(receiver.check(bytes)).toBe(310);
  });
});

describe('the server of rstream', () => {
  afterEach(() => void vi.useRealTimers());

  it('leaves its last transfer alone for a while, since a stock client that polls fails', async () => {
    const SYNC = 16;
    const SIZE = 64;
    vi.useFakeTimers({ toFake: ['setTimeout'] }); // the tool's; the stack has the real one
    const server = new Side(rstream, ['-p', '0', '-S', String(SIZE), '-C', '1', '-I', '1']);
    const socket = connect({ host: '127.0.0.1', port: await server.port });
    let octets = 0;
    let ended = false;
    socket.on('data', (chunk: Buffer) => {
      octets += chunk.length;
      if (octets === SYNC) socket.write(Buffer.alloc(SIZE));
    });
    const end = once(socket, 'end').then(() => (ended = true));
    socket.write(Buffer.alloc(SYNC));
    while (!ended && (octets < SYNC + SIZE || vi.getTimerCount() === 0))
      await new Promise((resolve) => setImmediate(resolve));
    expect(ended).toBe(false);
    vi.runAllTimers();
    await end;
    socket.end();
    expect(await server.status, server.err).toBe(0);
  });
});

describe('rcopy', () => {
  let folder: string;
  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'rcopy-'))));
  afterEach(() => rmSync(folder, { recursive: true }));

  async function copy(
    source: string,
    target: string,
  ): Promise<{ server: Side; client: Side; status: number }> {
    const server = new Side(rcopy, ['-p', '0', '--dir', '/']);
    const side = new Side(rcopy, [source, target, '-p', String(await server.port)]);
    const status = await side.status;
    server.kill();
    await server.status;
    return { server, client: side, status };
  }

  it.each([0, 1, 3_000_001])('copies a file of %i octets', async (size) => {
    const [source, target] = [join(folder, 'source'), join(folder, 'target')];
    const data = randomBytes(size);
    writeFileSync(source, data, { mode: 0o640 });
    const { client: c, server, status } = await copy(source, `127.0.0.1:${target}`);
    expect([status, c.err]).toEqual([0, '']);
    expect(readFileSync(target).equals(data)).toBe(true);
    expect(statSync(target).mode & 0o777).toBe(0o640);
    expect(c.out).toMatch(
      new RegExp(
        `^opening\\.\\.\\.transferring\\.\\.\\.closing\\.\\.\\.done\\n${size} bytes in \\d+\\.\\d\\d ` +
          'seconds = \\d+\\.\\d\\d Gb/sec\\n$',
      ),
    );
    expect(server.out).toContain(`opening: "${target}", transferring...${size} bytes...closing...done\n`);
  });

  it('reports a missing file, and one that cannot be written', async () => {
    expect((await runAlone(rcopy, [join(folder, 'none'), '127.0.0.1'])).err).toBe(
      `rcopy: ${join(folder, 'none')}: no such file or directory\n`,
    );
    const source = join(folder, 'source');
    writeFileSync(source, 'x');
    const { client: c, status } = await copy(source, `127.0.0.1:${join(folder, 'no', 'such', 'folder')}`);
    expect(status).toBe(1);
    expect(c.err).toContain('the server answered with error 2 (ENOENT)');
  });

  it('a directory is refused before anything is sent, and an IPv6 address without brackets', async () => {
    expect(await runAlone(rcopy, [folder, '127.0.0.1', '-p', '1'])).toMatchObject({
      code: 1,
      err: `rcopy: ${folder}: is a directory\n`,
    });
    expect((await runAlone(rcopy, ['x', '::1', '-p', '1'])).err).toBe(
      'rcopy: put the IPv6 address in brackets: [::1]\n',
    );
    expect((await runAlone(rcopy, ['x', 'fe80::1:/x', '-p', '1'])).err).toBe(
      'rcopy: put the IPv6 address in brackets: [fe80::1]:/x\n',
    );
    expect((await runAlone(rcopy, ['x', ':/x', '-p', '1'])).err).toBe("rcopy: ':/x' names no server\n");
  });

  it.runIf(existsSync('/dev/full'))(
    'the server tells a client that its disk is full, and serves the next',
    async () => {
      const server = new Side(rcopy, ['-p', '0', '--dir', '/']);
      const source = join(folder, 'source');
      writeFileSync(source, Buffer.alloc(3_000_000));
      const to = async (path: string): Promise<Side> => {
        const side = new Side(rcopy, [source, `127.0.0.1:${path}`, '-p', String(await server.port)]);
        await side.status;
        return side;
      };
      const full = await to('/dev/full');
      expect([await full.status, full.err]).toEqual([
        1,
        'rcopy: the server answered with error 28 (ENOSPC)\n',
      ]);
      expect(server.out).toContain('unable to write destination file: error 28\n');
      expect(await (await to(join(folder, 'good'))).status).toBe(0);
      expect(statSync(join(folder, 'good')).size).toBe(3_000_000);
      server.kill();
      await server.status;
    },
  );

  it('the server goes on after a client that has left', async () => {
    const server = new Side(rcopy, ['-p', '0', '--dir', '/']);
    const source = join(folder, 'source');
    writeFileSync(source, Buffer.alloc(50_000_000));
    const first = new Side(rcopy, [
      source,
      `127.0.0.1:${join(folder, 'one')}`,
      '-p',
      String(await server.port),
    ]);
    await server.said('transferring');
    first.kill();
    expect(await first.status).toBe(1);
    writeFileSync(source, 'small');
    const second = new Side(rcopy, [
      source,
      `127.0.0.1:${join(folder, 'two')}`,
      '-p',
      String(await server.port),
    ]);
    expect(await second.status).toBe(0);
    expect(readFileSync(join(folder, 'two'), 'utf8')).toBe('small');
    server.kill();
    expect(await server.status).toBe(1);
  });

  it('a server writes only below its --dir, drops special bits, and quotes names', async () => {
    const inside = join(folder, 'inside');
    mkdirSync(inside);
    mkdirSync(join(inside, 'deeper'));
    writeFileSync(join(folder, 'outside'), 'kept');
    symlinkSync('../outside', join(inside, 'link'));
    symlinkSync('..', join(inside, 'up'));
    const source = join(folder, 'source');
    writeFileSync(source, 'new', { mode: 0o755 });
    chmodSync(source, 0o6755);
    const server = new Side(rcopy, ['-p', '0', '--dir', inside]);
    const port = String(await server.port);
    const to = async (path: string): Promise<string> => {
      const side = new Side(rcopy, [source, `127.0.0.1:${path}`, '-p', port]);
      await side.status;
      return /error \d+ \((\w+)\)/.exec(side.err)?.[1] ?? side.err;
    };
    for (const path of ['../outside', join(folder, 'outside'), 'up/outside', '/etc/passwd', '..', '.'])
      expect(await to(path), path).toBe('EACCES');
    expect(await to('link')).toBe('ELOOP');
    expect(readFileSync(join(folder, 'outside'), 'utf8')).toBe('kept');
    const name = 'a\u001b[31m"b\u202e';
    for (const path of ['plain', 'deeper/plain', join(inside, 'absolute'), name])
      expect(await to(path), path).toBe('');
    expect(readFileSync(join(inside, name), 'utf8')).toBe('new');
    expect(statSync(join(inside, 'plain')).mode & 0o7777 & ~0o022).toBe(0o755);
    expect(server.out).toContain('opening: "a\\x1b[31m\\"b\\u{202e}", ');
    expect(server.out).not.toContain('\u001b');
    server.kill();
    await server.status;
  });

  it('a server takes commands as they come, octet by octet', async () => {
    const server = new Side(rcopy, ['-p', '0', '--dir', '/']);
    const socket = connect({ host: '127.0.0.1', port: await server.port });
    const target = join(folder, 'slow');
    const answers: Buffer[] = [];
    socket.on('data', (data: Buffer) => void answers.push(data));
    await once(socket, 'connect');
    const close = encodeHeader({ command: 2, length: 16, data: 0, id: 7n });
    for (const octet of Buffer.concat([
      encodeOpen(target, 0o100600),
      encodeWrite(5),
      Buffer.from('abcde'),
      close,
    ])) {
      socket.write(Uint8Array.of(octet));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await server.said('done');
    expect(readFileSync(target, 'utf8')).toBe('abcde');
    while (Buffer.concat(answers).length < 48) await once(socket, 'data');
    const headers = [0, 16, 32].map((at) => decodeHeader(Buffer.concat(answers).subarray(at, at + 16)));
    expect(headers.map(({ command, data }) => [command, data])).toEqual([
      [0x81, 0],
      [0x83, 0],
      [0x82, 0],
    ]);
    socket.destroySoon();
    await once(socket, 'close'); // before the server resets what it has
    server.kill();
    await server.status;
  });

  it.each([['x'], ['a', 'b', 'c'], ['-q']])('answers %j with its usage', async (...args) => {
    const side = await runAlone(rcopy, args);
    expect(side.code).toBe(1);
    expect(side.out).toContain('usage 2: rcopy source server[:destination] [options]\n');
  });

  it('messages, octet for octet', () => {
    expect(encodeOpen('/tmp/abc', 0o100644).toString('hex')).toBe(
      octets('00', '01', '2000', 'a4810000', '0000000000000000', '2f746d702f616263', '0000000000000000'),
    );
    expect(encodeOpen('/tmp/ab', 1).toString('hex').slice(32)).toBe('2f746d702f616200');
    expect(encodeWrite(0x0102_0304).toString('hex')).toBe(
      octets('00', '03', '1800', '00000000', '0000000000000000', '0403020100000000'),
    );
    const header = { command: 0x81, length: 16, data: 13, id: 0x0102n };
    expect(encodeHeader(header).toString('hex')).toBe(octets('00811000', '0d000000', '0201000000000000'));
    expect(decodeHeader(encodeHeader(header))).toEqual(header);
    expect(() => decodeHeader(Buffer.alloc(16))).toThrow('invalid version 0 or length 0');
  });

  it('a target is a server, and perhaps a path', () => {
    expect(splitTarget('host')).toEqual({ host: 'host', path: undefined });
    expect(splitTarget('host:/a:b')).toEqual({ host: 'host', path: '/a:b' });
    expect(splitTarget('[::1]:/x')).toEqual({ host: '::1', path: '/x' });
  });
});
