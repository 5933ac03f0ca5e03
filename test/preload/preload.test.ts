/** Unmodified programs under `--import iwarp/preload`: what they see, and what their connections run over. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, vi } from 'vitest';
import { run as stat } from '../../cli/stat.ts';
import { parseRules, ruleFor, rulesOf } from '../../src/preload/rules.ts';
import { identity } from '../support/certificates.ts';
import { FULL } from '../support/depth.ts';
import { plain } from '../support/plain.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const APP = plain('test/preload/app.ts');
const PRELOAD = plain('src/preload/index.ts');

interface Outcome {
  readonly status: number | null;
  readonly result: unknown;
  /** Lines about connections: side and protocol. */
  readonly over: readonly string[];
  readonly stderr: string;
}

function start(args: readonly string[], environment: Record<string, string>): ChildProcess {
  const loads = environment['IWARP_PRELOAD'] === undefined && environment['IWARP_PRELOAD_FILE'] === undefined;
  const imports = loads ? [] : ['--import', PRELOAD];
  return spawn(process.execPath, [...imports, APP, ...args], {
    cwd: ROOT,
    env: { ...process.env, IWARP_PRELOAD_LOG: '1', ...environment },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

async function run(args: readonly string[], environment: Record<string, string>): Promise<Outcome> {
  const child = start(args, environment);
  let [stdout, stderr] = ['', ''];
  child.stdout!.on('data', (part) => (stdout += String(part)));
  child.stderr!.on('data', (part) => (stderr += String(part)));
  const timer = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const [status] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  const over = [...stderr.matchAll(/^iwarp\/preload: (\w+) \S+ over (\w+)/gm)].map(
    ([, side, how]) => `${side} ${how}`,
  );
  const last = stdout.trim().split('\n').at(-1)!;
  return {
    status,
    result: last.startsWith('{') ? (JSON.parse(last) as unknown) : last,
    over: over.toSorted(),
    stderr,
  };
}

/** The first line that a process says. */
async function lineOf(child: ChildProcess): Promise<string> {
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return String(line).trim();
}

/** What `iwarp stat` prints, a connection in a line. */
async function statLines(...args: string[]): Promise<string[]> {
  let text = '';
  const write = vi.spyOn(process.stdout, 'write');
  write.mockImplementation((part) => ((text += String(part)), true));
  try {
    expect(await stat(args)).toBe(0);
  } finally {
    write.mockRestore();
  }
  return text.trimEnd().split('\n');
}

const SAME = { octets: 5_000_000, same: true };

describe.each(['rsocket', 'sdp'])('a program over %s', (protocol) => {
  const rules = { IWARP_PRELOAD: `127.0.0.0/8:* ${protocol}` };
  const both = [`connect ${protocol}`, `listen ${protocol}`];

  it('echoes 5 MB, and its objects stay sockets of node:net', async () => {
    const { result, over, status, stderr } = await run(['echo'], rules);
    expect([status, result, over], stderr).toEqual([0, { ...SAME, isSocket: true, peer: true }, both]);
  });

  it('may write before it is connected', async () => {
    expect(await run(['constructed'], rules)).toMatchObject({
      status: 0,
      result: { text: 'early late' },
      over: both,
    });
  });

  it('serves and asks by http and fetch', async () => {
    const { result, over, status, stderr } = await run(['http'], rules);
    const answers = ['GET 0', 'POST 100000', 'POST 1', 'GET 0'];
    expect([status, result, new Set(over)], stderr).toEqual([0, { answers }, new Set(both)]);
    expect(over.length).toBe(4); // one kept alive for three requests, and that of fetch
  });

  it('serves and asks by https, with the certificates of node:tls', async () => {
    const { key, cert } = identity('localhost');
    const { result, over, status, stderr } = await run(['https'], { ...rules, APP_KEY: key, APP_CERT: cert });
    const answers = ['x 1', 'y 1000000', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'ERR_TLS_CERT_ALTNAME_INVALID'];
    expect([status, result, new Set(over)], stderr).toEqual([0, { answers }, new Set(both)]);
    expect(over.length).toBe(6); // one kept alive for two requests, and those that were refused
  });

  it('calls tls.connect in each of its forms', async () => {
    const { key, cert } = identity('localhost');
    const secure = { APP_KEY: key, APP_CERT: cert };
    const outcome = await run(['tls-connect'], { ...rules, ...secure });
    const plain = await run(['tls-connect'], secure);
    expect([outcome.status, outcome.result], outcome.stderr).toEqual([0, plain.result]);
    expect(plain.result).toMatchObject({ heard: 3 });
    expect(new Set(outcome.over)).toEqual(new Set(both));
    // Three, and one more where `localhost` has two addresses and the first takes its time.
    expect(outcome.over.length).toBeGreaterThanOrEqual(6);
  });

  it('puts TLS on a connection that has spoken another protocol', async () => {
    const { key, cert } = identity('localhost');
    const outcome = await run(['starttls'], { ...rules, APP_KEY: key, APP_CERT: cert });
    expect(outcome, outcome.stderr).toMatchObject({
      status: 0,
      result: { text: 'secure hello' },
      over: both,
    });
  });

  it('takes its rules from a file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-rules-'));
    const file = join(folder, 'rules');
    writeFileSync(file, `# everything here\n127.0.0.0/8:* ${protocol} only\n`);
    try {
      const { result, over, status, stderr } = await run(['echo'], { IWARP_PRELOAD_FILE: file });
      expect([status, result, over], stderr).toEqual([0, { ...SAME, isSocket: true, peer: true }, both]);
    } finally {
      rmSync(folder, { recursive: true });
    }
    const gone = await run(['echo'], { IWARP_PRELOAD_FILE: file });
    expect([gone.status, /cannot read/.test(gone.stderr)]).toEqual([1, true]);
  });

  it('shows in iwarp stat what its connections run over, and falls back to TCP in its log', async () => {
    const runtime = mkdtempSync(join(tmpdir(), 'iwarp-stat-'));
    vi.stubEnv('XDG_RUNTIME_DIR', runtime);
    const environment = { ...rules, IWARP_CONTROL: '1', XDG_RUNTIME_DIR: runtime };
    const servers = [start(['serve'], environment), start(['serve'], {})];
    const ports = await Promise.all(servers.map(lineOf));
    const client = start(['hold', ...ports], environment);
    let log = '';
    client.stderr!.on('data', (part) => (log += String(part)));
    expect(await lineOf(client), log).toBe('held');
    const lines = await statLines('-d', 'resource', 'show', 'cm_id');
    const shown = lines.filter((line) => line.includes(' state CONNECT '));
    const of = (child: ChildProcess): string[] => shown.filter((line) => line.includes(` pid ${child.pid} `));
    expect(of(client)).toEqual([
      expect.stringMatching(` dst-addr 127.0.0.1:${ports[0]} drv_carries ${protocol} ?$`),
    ]);
    expect(of(servers[0]!)).toEqual([
      expect.stringMatching(` src-addr 127.0.0.1:${ports[0]} dst-addr .* drv_carries ${protocol} ?$`),
    ]);
    expect(log).toContain(`connect 127.0.0.1:${ports[0]} over ${protocol}\n`);
    expect(log).toMatch(new RegExp(`connect 127.0.0.1:${ports[1]} over tcp \\(.*\\)\n`));
    const children = [client, ...servers];
    const ended = children.map((child) => once(child, 'close'));
    for (const { stdin } of children) stdin!.end();
    await Promise.all(ended);
    vi.unstubAllEnvs();
    rmSync(runtime, { recursive: true, force: true });
  });

  if (FULL)
    it('leaves a server that keeps silent after the five seconds of a start-up', async () => {
      const began: number[] = [];
      const held: Socket[] = [];
      const server = createServer({ allowHalfOpen: true }, (socket) => {
        began.push(performance.now());
        held.push(socket.on('error', () => undefined));
        // It waits for another line than that of an MPA Request.
        socket.once('data', (first: Buffer) => {
          if (first[0] !== 'a'.charCodeAt(0)) return;
          socket.unshift(first);
          socket.pipe(socket);
        });
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const outcome = await run(['ask', String((server.address() as AddressInfo).port)], rules);
      expect([outcome.status, outcome.result, outcome.over], outcome.stderr).toEqual([
        ...[0, SAME],
        ['connect tcp'],
      ]);
      expect(began).toHaveLength(2);
      expect(Math.round((began[1]! - began[0]!) / 1000)).toBeGreaterThanOrEqual(5);
      expect(outcome.stderr).toMatch(/over tcp \(connect ETIMEDOUT /);
      for (const socket of held) socket.destroy();
      server.close();
    });

  it('has its time-outs', async () => {
    expect(await run(['timeout'], rules)).toMatchObject({ status: 0, result: { inTime: true }, over: both });
  });

  it('whose server speaks first', async () => {
    expect(await run(['server-begins'], rules)).toMatchObject({
      result: { text: '220 ready\r\n' },
      over: both,
    });
  });
});

describe('fall-back to TCP', () => {
  const RULE = { IWARP_PRELOAD: '*:* rsocket' };

  it.each([
    ['a plain client of a server with preload', RULE, {}],
    ['a client with preload of a plain server', {}, RULE],
  ])('%s', async (_name, there, here) => {
    const server = start(['serve'], there as Record<string, string>);
    const [line] = (await once(server.stdout!, 'data')) as [Buffer];
    const outcome = await run(['ask', String(line).trim()], here as Record<string, string>);
    expect([outcome.status, outcome.result], outcome.stderr).toEqual([0, SAME]);
    expect(outcome.over).toEqual('IWARP_PRELOAD' in here ? ['connect tcp'] : []);
    server.stdin!.end();
    await once(server, 'close');
  });

  it('a port where nobody listens gives the error of node:net', async () => {
    expect((await run(['refused'], RULE)).result).toEqual({ code: 'ECONNREFUSED', syscall: 'connect' });
  });

  it('"only" forbids it', async () => {
    const server = start(['serve'], {});
    const [line] = (await once(server.stdout!, 'data')) as [Buffer];
    const outcome = await run(['ask', String(line).trim()], { IWARP_PRELOAD: '*:* rsocket only' });
    expect(outcome.status).not.toBe(0);
    server.stdin!.end();
    await once(server, 'close');
  });

  it('what no rule names stays as it is', async () => {
    const { result, over } = await run(['echo'], { IWARP_PRELOAD: '10.0.0.0/8:* rsocket; *:1-2 rsocket' });
    expect([result, over]).toEqual([{ ...SAME, isSocket: true, peer: true }, []]);
  });
});

describe('rules', () => {
  const of = (
    text: string,
    host: string,
    port: number,
    side: 'connect' | 'listen' = 'connect',
  ): string | null => ruleFor(parseRules(text, 'here'), side, host, port)?.protocol ?? null;

  it.each<[string, string, number, string | null]>([
    ['*:80 rsocket', 'anywhere', 80, 'rsocket'],
    ['*:80 rsocket', 'anywhere', 81, null],
    ['*:* tcp; *:80 rsocket', 'x', 80, 'tcp'],
    ['10.0.0.0/8:7471 sdp; *:8080 rsocket', '10.1.2.3', 7471, 'sdp'],
    ['10.0.0.0/8:7471 sdp; *:8080 rsocket', '11.1.2.3', 7471, null],
    ['10.0.0.1:80-90 sdp', '10.0.0.1', 85, 'sdp'],
    ['10.0.0.1:80-90 sdp', '10.0.0.2', 85, null],
    ['[fd00::]/8:* sdp', 'fd00::1', 1, 'sdp'],
    ['[::1]:* sdp', '::1', 1, 'sdp'],
    ['127.0.0.1:* sdp', 'localhost', 1, 'sdp'],
    ['Store.Example:* sdp # the store\n*:* rsocket', 'store.example', 1, 'sdp'],
    ['listen *:* sdp', 'x', 1, null],
    ['connect *:* sdp', 'x', 1, 'sdp'],
  ])('%s: %s:%i is %s', (text, host, port, protocol) => {
    expect(of(text, host, port)).toBe(protocol);
  });

  it.each([
    '*',
    '*:80',
    '*:80 quic',
    'x:70000 tcp',
    '*:9-8 tcp',
    '10.0.0.0/40:* tcp',
    'name/8:* tcp',
    '*:80 tcp now',
    ':1 tcp',
    '[::1:80 tcp',
  ])('"%s" is no rule', (text) => {
    expect(() => parseRules(text, 'IWARP_PRELOAD')).toThrow(/^IWARP_PRELOAD: /);
  });

  it('come from a file too, behind those of the variable', () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-rules-'));
    const file = join(folder, 'rules');
    writeFileSync(file, '# ours\n*:80 sdp\n\n*:81 sdp\n');
    const rules = rulesOf({ IWARP_PRELOAD: '*:80 rsocket', IWARP_PRELOAD_FILE: file });
    expect([80, 81].map((port) => ruleFor(rules, 'listen', 'x', port)?.protocol)).toEqual(['rsocket', 'sdp']);
    rmSync(folder, { recursive: true });
    expect(() => rulesOf({ IWARP_PRELOAD_FILE: file })).toThrow(/cannot read/);
  });

  it('a rule that cannot be read ends the program at once, with its text', async () => {
    const { status, stderr } = await run(['echo'], { IWARP_PRELOAD: '*:80 quic' });
    expect([status, /quic is no protocol/.test(stderr)]).toEqual([1, true]);
  });

  it('without any there is a warning, and everything is TCP', async () => {
    const { result, stderr, over } = await run(['echo'], { IWARP_PRELOAD: '' });
    expect([result, over, /has no rules/.test(stderr)]).toEqual([
      { ...SAME, isSocket: true, peer: true },
      [],
      true,
    ]);
  });
});
