// The program itself, as npm ci has built it: what it has said is out before it ends, however slowly it is
// read, and its status is the command's.
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { connect } from '../../src/index.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

interface Ended {
  readonly status: number | null;
  readonly out: string;
  readonly err: string;
}

/** Run `iwarp args`; its output is left in the pipe until it has grown full, or the process has ended. */
function iwarp(...args: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [join(ROOT, 'bin/iwarp.js'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  child.stderr.on('data', (text: Buffer) => (err += text.toString()));
  child.stdout.once('readable', () =>
    setImmediate(() => child.stdout.on('data', (text: Buffer) => (out += text.toString()))),
  );
  return new Promise((resolve, reject) =>
    child.on('error', reject).on('close', (status) => resolve({ status, out, err })),
  );
}

function statusOf(child: ReturnType<typeof spawn>): Promise<number | null> {
  return new Promise((resolve, reject) => child.on('error', reject).on('close', resolve));
}

it('a long listing arrives whole', async () => {
  const { status, out } = await iwarp('conformance', 'list');
  expect(status).toBe(0);
  expect(out.length).toBeGreaterThan(65_536); // more than a pipe holds
  expect(out.split('\n').length).toBeGreaterThan(700);
  expect(out.endsWith('\n')).toBe(true);
});

it('--version prints the name and the version', async () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  for (const flag of ['--version', '-V'])
    expect(await iwarp(flag)).toEqual({ status: 0, out: `iwarp ${version}\n`, err: '' });
  expect((await iwarp('--help')).out).toContain('"iwarp --version"');
});

it('the status is that of the command', async () => {
  expect(await iwarp('rping')).toMatchObject({
    status: 22,
    err: expect.stringContaining('exactly one of -s and -c') as string,
  });
  expect(await iwarp('no-such-command')).toMatchObject({ status: 2 });
  expect(await iwarp('dissect', join(ROOT, 'README.md'))).toMatchObject({ status: 1, out: '' });
});

/** Run `iwarp args` with these for its standard output and its standard error. */
function spawned(
  args: readonly string[],
  out: 'pipe' | number,
  err: 'pipe' | number,
): ReturnType<typeof spawn> {
  return spawn(process.execPath, [join(ROOT, 'bin/iwarp.js'), ...args], { stdio: ['ignore', out, err] });
}

it('a reader that has seen enough ends it without a word', async () => {
  const child = spawned(['conformance', 'list'], 'pipe', 'pipe');
  let err = '';
  child.stderr!.on('data', (text: Buffer) => (err += text.toString()));
  child.stdout!.once('data', () => child.stdout!.destroy());
  expect([await statusOf(child), err]).toEqual([0, '']);
});

it('a command that works goes on with its work when nobody reads what it says', async () => {
  const server = spawned(['rping', '-s', '-a', '127.0.0.1', '-p', '0', '-v'], 'pipe', 'pipe');
  const statuses = [statusOf(server)];
  let out = '';
  server.stdout!.on('data', (text: Buffer) => (out += text.toString()));
  server.stderr!.on('data', (text: Buffer) => {
    const port = /port (\d+)/.exec(text.toString())?.[1];
    if (port === undefined) return;
    const client = spawned(['rping', '-c', '-a', '127.0.0.1', '-p', port, '-v', '-C', '300'], 'pipe', 'pipe');
    statuses.push(statusOf(client));
    client.stdout!.once('data', () => client.stdout!.destroy());
  });
  expect(await statuses[0]).toBe(0);
  expect(await statuses[1]).toBe(0);
  expect(out.match(/server ping data/g)?.length).toBe(300);
});

it.each(['thread', 'worker'])(
  'a capture that the disk takes no more of ends, is named, and the command goes on with its work: %s',
  async (engine) => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-full-'));
    const children: ReturnType<typeof spawn>[] = [];
    // A limit of the shell on the size of a file stands for the full disk.
    const listening = async (
      args: readonly string[],
    ): Promise<{ readonly port: string; readonly ended: Promise<readonly [number | null, string]> }> => {
      const child = spawn(
        'bash',
        [
          '-c',
          'ulimit -f 8; exec "$@"',
          'bash',
          process.execPath,
          join(ROOT, 'bin/iwarp.js'),
          ...args,
          '--pcap',
          join(folder, `${args[0]}-full.pcap`),
        ],
        {
          stdio: ['ignore', 'ignore', 'pipe'],
          env: { ...process.env, IWARP_ENGINE: engine },
        },
      );
      children.push(child);
      let err = '';
      const port = new Promise<string>((resolve) =>
        child.stderr!.on('data', (text: Buffer) => {
          err += text.toString();
          const found = /listening on .*port (\d+)/.exec(err)?.[1];
          if (found !== undefined) resolve(found);
        }),
      );
      return { ended: statusOf(child).then((status) => [status, err] as const), port: await port };
    };
    const server = await listening(['rping', '-s', '-a', '127.0.0.1', '-p', '0']);
    const proxy = await listening(['proxy', '0', server.port, '--once', '--quiet']);
    expect(await iwarp('rping', '-c', '-a', '127.0.0.1', '-p', proxy.port, '-V', '-C', '200')).toMatchObject({
      status: 0,
    });
    for (const { ended } of [server, proxy]) {
      const [status, err] = await ended;
      expect(err.match(/full\.pcap: the capture ends here: .*/g)).toHaveLength(1);
      expect(status).toBe(0);
    }
    for (const child of children) child.kill('SIGKILL');
    rmSync(folder, { recursive: true });
  },
);

it('the status is that of the command although nobody reads what it says', async () => {
  const child = spawned(['rping'], 'pipe', 'pipe');
  child.stdout!.destroy();
  child.stderr!.destroy();
  expect(await statusOf(child)).toBe(22);
});

it('output that cannot be written is reported in one line', async () => {
  const readOnly = openSync(join(ROOT, 'package.json'), 'r');
  const child = spawned(['conformance', 'list'], readOnly, 'pipe');
  let err = '';
  child.stderr!.on('data', (text: Buffer) => (err += text.toString()));
  expect(await statusOf(child)).toBe(1);
  expect(err).toBe('iwarp: standard output: EBADF: bad file descriptor, write\n');
  closeSync(readOnly);
});

/** The server process of a demo, without its client; and how it ended, with what it said. */
function demoServer(): {
  readonly child: ReturnType<typeof fork>;
  readonly ended: Promise<readonly [number | null, string]>;
} {
  const child = fork(join(ROOT, 'bin/iwarp.js'), ['demo', '--server'], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let err = '';
  child.stderr!.on('data', (text: Buffer) => (err += text.toString()));
  const ended = Promise.all([once(child, 'exit'), once(child.stderr!, 'close')]);
  return { child, ended: ended.then(() => [child.exitCode, err] as const) };
}

it('the server of a demo outlives a client that breaks off, and ends silently with the demo', async () => {
  const { child, ended } = demoServer();
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  for (let round = 0; round < 2; round++) {
    const connection = await connect({ host: '127.0.0.1', port });
    (await connection.receive())!.release();
    connection.destroy();
  }
  child.disconnect();
  expect(await ended).toEqual([0, '']);
});

it('a demo whose server cannot start says why', async () => {
  const child = spawn(process.execPath, [join(ROOT, 'bin/iwarp.js'), 'demo'], {
    env: { ...process.env, IWARP_ENGINE: 'none' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let err = '';
  child.stderr.on('data', (text: Buffer) => (err += text.toString()));
  expect(await statusOf(child)).toBe(1);
  expect(err).toContain('IWARP_ENGINE must be one of thread, worker, got "none"\n');
  expect(err).toMatch(/demo: the server process ended with status 2\n$/);
});

it('the server of a demo that is gone before there is a port ends without a word', async () => {
  const { child, ended } = demoServer();
  child.disconnect();
  expect(await ended).toEqual([0, '']);
});
