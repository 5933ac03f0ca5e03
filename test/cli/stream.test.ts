// `iwarp stream` as processes: bytes of standard input reach the other side, in every protocol and mode.
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { connect as connectTcp } from 'node:net';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { identity } from '../support/certificates.ts';
import { depth } from '../support/depth.ts';
import { plain } from '../support/plain.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill();
});

interface Running {
  readonly child: ChildProcess;
  readonly out: Promise<Buffer>;
  readonly err: () => string;
  readonly status: Promise<number | null>;
}

/** From the sources, so that the test needs no build of the package. */
function stream(...args: string[]): Running {
  const code = `import(${JSON.stringify(plain('cli/main.ts'))})
    .then(({ main }) => main(${JSON.stringify(['stream', ...args])}))
    .then((status) => (process.exitCode = status))`;
  return run(code);
}

function run(code: string): Running {
  const child = spawn(process.execPath, ['-e', code], { cwd: ROOT, stdio: 'pipe' });
  children.push(child);
  const pieces: Buffer[] = [];
  let text = '';
  child.stdout!.on('data', (piece: Buffer) => pieces.push(piece));
  child.stderr!.on('data', (piece: Buffer) => (text += piece.toString()));
  const status = new Promise<number | null>((resolve) => child.on('close', resolve));
  return { child, out: status.then(() => Buffer.concat(pieces)), err: () => text, status };
}

async function portOf(running: Running): Promise<string> {
  await expect.poll(() => /port (\d+)/.exec(running.err())?.[1], { timeout: 50_000 }).toBeDefined();
  return /port (\d+)/.exec(running.err())![1]!;
}

const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

describe('iwarp stream', () => {
  it.each([
    ['rsocket'],
    ['tcp'],
    ['sdp'],
    ['sdp', '--placement', 'streaming', '--engine', 'worker', '--mode', 'source', '--max-adverts', '64'],
    ...depth(
      [],
      [
        ['sdp', '--mode', 'source', '--max-adverts', '1'],
        ['sdp', '--mode', 'auto'],
        ['sdp', '--mode', 'sink', '--engine', 'worker'],
        ['rsocket', '--engine', 'worker'],
        ['sdp', '--placement', 'private-data'],
        ['sdp', '--placement', 'streaming'],
      ],
    ),
  ])(
    'carries both directions: --protocol %s %s %s %s %s',
    async (...protocol) => {
      const options = ['--protocol', ...protocol.filter(Boolean)];
      const listener = stream('listen', '0', ...options);
      const dialler = stream('connect', '127.0.0.1', await portOf(listener), ...options);
      const [a, b] = [randomBytes(3_000_000), randomBytes(500_000)];
      dialler.child.stdin!.end(a);
      listener.child.stdin!.end(b);
      expect(await Promise.all([dialler.status, listener.status])).toEqual([0, 0]);
      expect([digest(await listener.out), digest(await dialler.out)]).toEqual([digest(a), digest(b)]);
    },
    60_000,
  );

  it('sends back with --echo, for one peer after the other', async () => {
    const listener = stream('listen', '0', '--echo', '--protocol', 'sdp');
    const port = await portOf(listener);
    for (const text of ['first', 'second']) {
      const dialler = stream('connect', '127.0.0.1', port, '--protocol', 'sdp');
      dialler.child.stdin!.end(text);
      expect(String(await dialler.out)).toBe(text);
      expect(await dialler.status).toBe(0);
    }
  }, 60_000);

  it('over tcp is what any program speaks', async () => {
    const listener = stream('listen', '0', '--echo', '--protocol', 'tcp');
    const socket = connectTcp(Number(await portOf(listener)), '127.0.0.1');
    socket.end('plain');
    const [piece] = (await once(socket, 'data')) as [Buffer];
    expect(String(piece)).toBe('plain');
  }, 60_000);

  it.each([
    [['listen'], 2, 'give PORT'],
    [['connect', '127.0.0.1', '1', '--protocol', 'sdp'], 1, 'ECONNREFUSED'],
  ] as const)(
    '%j ends with status %i',
    async (args, status, words) => {
      const running = stream(...args);
      running.child.stdin!.end();
      expect(await running.status).toBe(status);
      expect(running.err()).toContain(words);
    },
    30_000,
  );

  it('says what is wrong with its arguments', async () => {
    const wrong = [
      [['connect', 'h'], 2, 'give HOST and PORT'],
      [['listen', '70000'], 2, 'PORT must be an integer from 0 to 65535'],
      [['listen', '0', '--mode', 'source'], 2, 'need --protocol sdp'],
      [['listen', '0', '--placement', 'streaming'], 2, 'need --protocol sdp'],
      [['listen', '0', '--protocol', 'sdp', '--placement', 'nowhere'], 2, '--placement must be one of'],
      [['listen', '0', '--protocol', 'sdp', '--max-adverts', '65'], 2, '--max-adverts must be an integer'],
      [['listen', '0', '--protocol', 'sdp', '--mode', 'fast'], 2, '--mode must be one of'],
      [['listen', '0', '--engine', 'fast'], 2, '--engine must be one of'],
      [['listen', '0', '--protocol', 'udp'], 2, '--protocol must be one of'],
      [['listen', '0', '--tls'], 2, 'listen --tls needs --cert and --key'],
      [['listen', '0', '--cert', 'a.pem'], 2, '--cert needs --tls'],
      [['listen', '0', '--tls', '--cert', 'no.pem', '--key', 'no.pem'], 2, '--cert no.pem: ENOENT'],
      [['connect', 'h', '1', '--tls', '--cert', 'package.json'], 2, 'give --cert and --key together'],
    ] as const;
    // One process for all, since a process takes longer than the rest.
    const code = `import(${JSON.stringify(plain('cli/main.ts'))}).then(async ({ main }) => {
      const write = process.stderr.write.bind(process.stderr);
      for (const args of ${JSON.stringify(wrong.map(([args]) => args))}) {
        let text = '';
        process.stderr.write = (part) => ((text += part), true);
        const status = await main(['stream', ...args]);
        write(JSON.stringify([status, text]) + '\\n');
      }
    })`;
    const running = run(code);
    running.child.stdin!.end();
    expect(await running.status).toBe(0);
    const said = running.err().trim().split('\n');
    expect(said.map((line) => JSON.parse(line) as unknown)).toEqual(
      wrong.map(([, status, words]) => [status, expect.stringContaining(words)]),
    );
  }, 30_000);
});

describe('iwarp stream --tls', () => {
  let folder: string;
  const file = (name: string): string => join(folder, name);
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'iwarp-stream-'));
    for (const name of ['server', 'client', 'other']) {
      const { key, cert } = identity(name);
      writeFileSync(file(`${name}.key`), key);
      writeFileSync(file(`${name}.pem`), cert);
    }
  });
  afterAll(() => rmSync(folder, { recursive: true }));
  const own = (name: string): string[] => [
    '--tls',
    '--cert',
    file(`${name}.pem`),
    '--key',
    file(`${name}.key`),
  ];

  it.each([
    ['rsocket'],
    ['sdp', '--mode', 'auto', '--engine', 'worker', '--placement', 'streaming'],
    ['tcp'],
    ...depth([], [['rsocket', '--engine', 'worker'], ['sdp'], ['sdp', '--placement', 'streaming']]),
  ])(
    'carries both directions under TLS: --protocol %s %s %s %s %s',
    async (...protocol) => {
      const options = ['--protocol', ...protocol.filter(Boolean)];
      const listener = stream('listen', '0', ...options, ...own('server'), '--ca', file('client.pem'));
      const trust = ['--ca', file('server.pem'), ...own('client')];
      const dialler = stream('connect', '127.0.0.1', await portOf(listener), ...options, ...trust);
      const [a, b] = [randomBytes(2_000_000), randomBytes(300_000)];
      dialler.child.stdin!.end(a);
      listener.child.stdin!.end(b);
      expect(await Promise.all([dialler.status, listener.status])).toEqual([0, 0]);
      expect([digest(await listener.out), digest(await dialler.out)]).toEqual([digest(a), digest(b)]);
    },
    60_000,
  );

  it.each([['rsocket'], ['sdp'], ['tcp']])(
    'refuses a server whose certificate is not trusted, unless --insecure: --protocol %s',
    async (protocol) => {
      const listener = stream('listen', '0', '--echo', '--protocol', protocol, ...own('server'));
      const port = await portOf(listener);
      const refused = stream('connect', '127.0.0.1', port, '--protocol', protocol, '--tls');
      refused.child.stdin!.end('secret');
      expect(await refused.status).toBe(1);
      expect(refused.err()).toMatch(/CERT|certificate/i);
      const plain = stream('connect', '127.0.0.1', port, '--protocol', protocol, '--tls', '--insecure');
      plain.child.stdin!.end('taken');
      expect(String(await plain.out)).toBe('taken');
    },
    60_000,
  );
});
