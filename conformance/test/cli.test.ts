// The command line, the tester protocol over TCP, and the profiles that know less of their peer.

// cspell:ignore
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { run as rping } from '../../cli/rping.ts';
import { run } from '../cli.ts';
import { tagged, untagged } from '../probe/messages.ts';
import { OPCODE } from '../probe/wire.ts';
import { established } from '../cases/define.ts';
import { openSelf } from '../profiles/self.ts';
import { openCommand } from '../profiles/command.ts';
import { SelfTarget, serveTester } from '../profiles/self-target.ts';
import { caseNamed, faults, fastCases, listening, runAgainstSelf, smallPeer } from './support.ts';

interface Outcome {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** Run a command line and keep what it prints. */
async function command(...args: string[]): Promise<Outcome> {
  let out = '';
  let err = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += String(text);
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    err += String(text);
    return true;
  });
  const status = await run(args);
  vi.restoreAllMocks();
  return { status, out, err };
}

afterEach(() => {
  vi.restoreAllMocks();
});

/** Answers of a tester pass for a while. */
function relay(socket: Socket, port: number, leaves: boolean): void {
  const LINES = 40;
  const tester = connect({ host: '127.0.0.1', port });
  tester.on('error', () => undefined);
  socket.on('close', () => tester.destroy());
  socket.pipe(tester);
  let lines = 0;
  tester.on('data', (chunk: Buffer) => {
    lines += chunk.toString().split('\n').length - 1;
    if (lines < LINES) socket.write(chunk);
    else if (leaves) socket.destroy();
  });
}

describe('the command line', () => {
  it('lists cases by name, requirement and section', async () => {
    expect((await command('list', 'ddp.msn')).out).toMatch(/^ddp\.msn\.first-send-0 .*DDP-043/m);
    expect((await command('list', '--by', 'requirement', 'mpa')).out).toContain('MPA-004 (RFC 5044 7.1.1');
    expect((await command('list', '--by', 'section')).out).toMatch(/^RFC 5041 7\.1$/m);
    expect(await command('list', '--by', 'colour')).toMatchObject({ status: 2 });
  });

  it('runs chosen cases and exits with 0, writes reports into files', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-conformance-'));
    const { status, out } = await command(
      'run',
      'ddp.empty-write',
      'mpa.request.revision-0',
      '--strict',
      '--report',
      `json:${folder}/r.json`,
      '--report',
      `html:${folder}/r.html`,
      '--captures',
      join(folder, 'captures'),
    );
    expect(status).toBe(0);
    expect(out).toMatch(/^iwarp, in this process: 13 run: 13 passed/);
    const report = JSON.parse(readFileSync(join(folder, 'r.json'), 'utf8')) as { totals: { run: number } };
    expect(report.totals.run).toBe(13);
    expect(readFileSync(join(folder, 'r.html'), 'utf8')).toContain('<title>iWARP conformance');
    expect(readdirSync(join(folder, 'captures'))).toEqual([]);
    rmSync(folder, { recursive: true });
  });

  it('covers the catalogue and checks the vectors', async () => {
    expect(await command('coverage')).toMatchObject({ status: 0 });
    expect(await command('vectors', '--check')).toMatchObject({ status: 0 });
    expect((await command('vectors', '--print')).out).toContain('ULPDU_Length');
  });

  it.each([
    [['fly'], 'no command "fly"'],
    [['run', 'no.such.case'], 'no case begins with no.such.case'],
    [['run', 'mpa', 'nosuch'], 'no case begins with nosuch'],
    [['list', 'nosuch'], 'no case begins with nosuch'],
    [['vectors', 'nosuch'], 'no vector begins with nosuch'],
    [['vectors', '--print', 'nosuch'], 'no vector begins with nosuch'],
    [['run', '--report', 'pdf'], '--report pdf: text, tap'],
    [['run', '--report', 'json:'], '--report json: names no file'],
    [['run', '--target', 'nowhere'], '--target nowhere: HOST:PORT is needed'],
    [['run', '--profile', 'rping'], 'profile rping needs --target or --listen'],
    [['run', '--profile', 'nosuch'], '--profile nosuch: self, rping, command'],
    [['run', '--quirk', 'x'], '--quirk x: '],
    [['run', '--unknown'], "'--unknown'"],
    [['run', '--repeat', '0'], '--repeat "0": a whole number from 1 to 10000'],
    [['run', '--repeat', '1e9'], '--repeat "1e9"'],
    [['run', '--retries', '1.5'], '--retries "1.5"'],
    [['run', '--slow', '0'], '--slow "0": a number from 0.01 to 1000'],
    [['run', '--seed=-1'], '--seed "-1"'],
    [['run', '--seed', ''], '--seed ""'],
    [
      ['run', '--profile', 'rping', '--target', '1', '--size', '22'],
      '--size "22": a whole number from 23 to 65535',
    ],
    [['run', '--profile', 'rping', '--target', '1', '--size', '65536'], '--size "65536"'],
    [
      ['run', '--profile', 'rping', '--target', '1', '--role', 'responder'],
      'as responder the probe needs --listen',
    ],
    [
      ['run', 'mpa', '--profile', 'self', '--target', '127.0.0.1:1'],
      '--target is for the profile rping or command, not for self',
    ],
    [
      ['run', 'mpa', '--profile', 'self', '--listen', '127.0.0.1:1'],
      '--listen needs --control with the profile self',
    ],
    [['run', 'mpa', '--start', 'true'], '--start is for the profile rping or command, not for self'],
    [['run', 'mpa', '--size', '64'], '--size is for the profile rping, not for self'],
    [['run', 'mpa', '--target', '1', '--size', '64'], '--size is for the profile rping, not for command'],
    [
      ['run', 'mpa', '--target', '1', '--control', '1'],
      '--target is for the profile rping or command, not for self',
    ],
    [
      ['run', 'mpa', '--profile', 'command', '--target', '1', '--control', '1'],
      '--control is for the profile self, not for command',
    ],
  ])('refuses %j with 2, the reason and the usage', async (args, words) => {
    const { status, out, err } = await command(...args);
    expect([status, out]).toEqual([2, '']);
    expect(err.split('\n')[0]).toContain(`conformance: ${words.startsWith("'") ? '' : words}`);
    expect(err).toContain(words);
    expect(err).toContain('Usage: iwarp conformance <command>');
  });

  it.each([
    [['run', 'mpa', '--exclude', 'mpa'], /^nothing to run: --exclude leaves out all \d+ cases$/],
    [
      [
        'run',
        'mpa.request.key',
        '--role',
        'initiator',
        '--profile',
        'command',
        '--target',
        '127.0.0.1:1',
        '--exclude',
        'x',
        '--bail',
        '--waivers',
        '/nonexist',
      ],
      /^\/nonexist: no such file or directory$/,
    ],
    [
      ['run', 'mpa.request.key', '--role', 'responder'],
      /^nothing to run: no such case is for the probe as responder$/,
    ],
    [
      ['run', 'rdmap.read.size', '--profile', 'command', '--target', '127.0.0.1:1'],
      /^nothing to run: profile command has no tester$/,
    ],
    [
      ['run', 'mpa', '--profile', 'command', '--target', '127.0.0.1:1'],
      /^no lawful start-up with the peer, so nothing was run: no connection to 127\.0\.0\.1:1 \(--anyway/,
    ],
    [['run', 'mpa', '--control', '127.0.0.1:1'], /^tester at 127\.0\.0\.1:1: connection refused$/],
    [['run', 'mpa', '--captures', '/etc/hostname/x'], /^--captures \/etc\/hostname\/x: not a directory$/],
    [
      ['run', 'mpa', '--report', 'json:/nonexist/x'],
      /^--report json:\/nonexist\/x: no such file or directory$/,
    ],
  ])('says in one line why %j runs nothing, and exits with 2', async (args, words) => {
    const { status, out, err } = await command(...args);
    expect([status, out]).toEqual([2, '']);
    const lines = err.trimEnd().split('\n');
    expect(lines.at(-1)).toMatch(/^conformance: /);
    expect(lines.at(-1)!.slice('conformance: '.length)).toMatch(words);
    expect(lines.slice(0, -1).every((line) => line === 'conformance: --exclude x leaves nothing out')).toBe(
      true,
    );
  });

  it('says where a waiver file is wrong, and which port is taken', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-conformance-'));
    writeFileSync(join(folder, 'waivers'), '# fine\nno-reason\n');
    expect((await command('run', 'mpa', '--waivers', join(folder, 'waivers'))).err).toBe(
      `conformance: ${folder}/waivers: line 2 is no waiver: a case id and its reason are needed\n`,
    );
    rmSync(folder, { recursive: true });
    const { port, close } = await listening(() => undefined);
    expect(
      await command('run', 'mpa', '--profile', 'command', '--listen', `127.0.0.1:${port}`),
    ).toMatchObject({ status: 2, err: `conformance: 127.0.0.1:${port}: address already in use\n` });
    close();
  });

  it('without a command it prints the usage, and has done nothing', async () => {
    expect(await command()).toMatchObject({
      status: 2,
      out: expect.stringContaining('Usage: iwarp conformance <command>') as string,
      err: '',
    });
  });

  it.each([[], ['run'], ['list'], ['coverage'], ['vectors']])('%s --help is the usage', async (...args) => {
    for (const help of ['--help', '-h']) {
      const { status, out, err } = await command(...args, help);
      expect([status, err]).toEqual([0, '']);
      expect(out).toContain('Usage: iwarp conformance <command>');
    }
  });

  it('warns of an exclusion that leaves nothing out', async () => {
    const { status, err } = await command('run', 'ddp.empty-write', '--exclude', 'mpa');
    expect([status, err]).toEqual([0, 'conformance: --exclude mpa leaves nothing out\n']);
  });

  it('leaves report files as they were when nothing is run', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-conformance-'));
    writeFileSync(join(folder, 'old'), 'old');
    const { status } = await command(
      'run',
      'mpa',
      '--profile',
      'command',
      '--target',
      '127.0.0.1:1',
      '--report',
      `tap:${folder}/old`,
      '--report',
      `json:${folder}/new`,
    );
    expect([status, readFileSync(join(folder, 'old'), 'utf8'), readdirSync(folder)]).toEqual([
      2,
      'old',
      ['old'],
    ]);
    rmSync(folder, { recursive: true });
  });
});

describe('peers that are none', () => {
  it.each<[string, (socket: Socket) => void, string]>([
    [
      'speaks first, and something else',
      (socket) => void socket.write('SSH-2.0-OpenSSH_9.2p1\r\n'),
      'the peer says "SSH-2.0-OpenSSH_9.2p1\\r\\n", which is no MPA Reply',
    ],
    ['says everything back', (socket) => void socket.pipe(socket), 'the peer says "MPA ID Req Frame'],
    ['hangs up', (socket) => void socket.end(), 'expected an MPA Reply; got FIN'],
    ['says nothing', (socket) => void socket.resume(), 'expected an MPA Reply; got silence'],
  ])('one that %s costs one line', async (_what, act, words) => {
    const { port, close } = await listening(act);
    const began = performance.now();
    const { status, err } = await command(
      'run',
      '--profile',
      'command',
      '--target',
      `127.0.0.1:${port}`,
      '--slow',
      '0.05',
    );
    expect(status).toBe(2);
    expect(err).toContain(`conformance: no lawful start-up with the peer, so nothing was run: ${words}`);
    expect(err.trimEnd().split('\n')).toHaveLength(1);
    expect(performance.now() - began).toBeLessThan(5000);
    close();
  });

  it('--anyway runs the cases all the same', async () => {
    const { port, close } = await listening((socket) => void socket.end());
    const { status, out } = await command(
      'run',
      'mpa.request.key',
      '--profile',
      'command',
      '--target',
      `127.0.0.1:${port}`,
      '--slow',
      '0.05',
      '--anyway',
    );
    expect(status).toBeLessThan(2);
    expect(out).toMatch(/^\d+ run: /m);
    expect(out).not.toContain('stopped:');
    close();
  });

  it('a peer that is gone after the first connection ends the run', async () => {
    const { port, close } = await listening(() => undefined);
    close();
    const abort = new AbortController();
    let served!: Promise<number>;
    await new Promise<void>((resolve) => {
      const io = {
        out: () => undefined,
        err: () => undefined,
        signal: abort.signal,
        listening: () => resolve(),
      };
      served = rping(['-s', '-a', '127.0.0.1', '-p', String(port)], io);
    });
    const { status, out } = await command(
      'run',
      'mpa',
      '--profile',
      'rping',
      '--target',
      `127.0.0.1:${port}`,
    );
    expect(status).toBe(1);
    expect(out).toMatch(/^stopped: 5 runs in a row found no connection: \d+ of \d+ runs made$/m);
    abort.abort();
    await served;
  });

  it.each<[string, (socket: Socket) => void, string | RegExp]>([
    [
      'says everything back',
      (socket) => void socket.pipe(socket),
      'what answers is no tester: "{\\"id\\":1,',
    ],
    [
      'speaks something else',
      (socket) => void socket.write('220 mail ESMTP\r\n'),
      'what answers is no tester: "220 mail ESMTP',
    ],
    ['hangs up', (socket) => void socket.end(), 'the control connection is gone'],
  ])('a tester that %s costs one line', async (_what, act, words) => {
    const { port, close } = await listening(act);
    const { status, err } = await command('run', '--control', `127.0.0.1:${port}`);
    expect(status).toBe(2);
    expect(err).toContain(`conformance: tester at 127.0.0.1:${port}: ${words}`);
    expect(err.trimEnd().split('\n')).toHaveLength(1);
    close();
  });

  it('a tester that stops answering, or leaves, ends the run with its reports', async () => {
    const server = await serveTester('127.0.0.1', 0);
    for (const how of ['silent', 'gone']) {
      const { port, close } = await listening((socket) => relay(socket, server.port, how === 'gone'));
      const profile = await openSelf({ control: { host: '127.0.0.1', port }, limit: 300 });
      let stopped = '';
      const results = await runAgainstSelf(
        fastCases.filter((entry) => entry.id.startsWith('ddp.write')),
        ['initiator'],
        { onStopped: (why) => (stopped = why) },
        profile,
      );
      expect(results.at(-1)).toMatchObject({ verdict: 'error', unexpected: true });
      expect(results.length).toBeLessThan(25);
      expect(stopped).toMatch(
        how === 'gone'
          ? /^the control connection is gone.*: \d+ of \d+ runs made$/
          : /^the tester has not answered '[\w-]+' within [\d.]+ s: /,
      );
      await profile.close();
      close();
    }
    server.close();
  });
});

/** The command in plain JavaScript, where it lies while tests run. */
const PROGRAM = fileURLToPath(new URL('../../.cache/plain/conformance/cli.js', import.meta.url));

describe('an interrupted run', () => {
  it('stops after the case that runs, and writes its reports', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-conformance-'));
    const target = new SelfTarget();
    const { port } = await target.call('listen', { host: '127.0.0.1', options: {} });
    let connections = 0;
    const peer = await listening((socket) => {
      connections++;
      const onward = connect({ host: '127.0.0.1', port, noDelay: true });
      onward.on('error', () => socket.destroy());
      socket.on('close', () => onward.destroy());
      socket.pipe(onward).pipe(socket);
    });
    const child = spawn(
      process.execPath,
      [
        PROGRAM,
        'run',
        'mpa.request.key',
        '--profile',
        'command',
        '--target',
        `127.0.0.1:${peer.port}`,
        '--repeat',
        '1000',
        '--gap',
        '50',
        '--report',
        `json:${folder}/r.json`,
      ],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    const ended = once(child, 'exit') as Promise<[number]>;
    while (connections < 4) await new Promise((resolve) => setTimeout(resolve, 20));
    child.kill('SIGINT');
    const [status] = await ended;
    expect([status, err]).toEqual([
      130,
      'conformance: ending after the case that runs; once more ends at once\n',
    ]);
    const report = JSON.parse(readFileSync(join(folder, 'r.json'), 'utf8')) as {
      stopped: string;
      totals: { run: number; unexpected: number };
    };
    expect(report.stopped).toMatch(/^interrupted by SIGINT: \d+ of \d+ runs made$/);
    expect(report.totals.unexpected).toBe(0);
    expect(report.totals.run).toBeGreaterThan(1);
    rmSync(folder, { recursive: true });
    peer.close();
    target.close();
  }, 60_000);
});

describe('the tester protocol over TCP', () => {
  it('serves every operation that the cases use', async () => {
    const server = await serveTester('127.0.0.1', 0);
    const profile = await openSelf({ control: { host: '127.0.0.1', port: server.port } });
    const chosen = [
      'ddp.write.other-pd',
      'rdmap.send-inv.shared',
      'ext.atomic.two-streams',
      'ddp.msn.wrap-sent',
      'mpa.reply.private-data-3',
      'rdmap.terminate.reported',
      'mpa.close.by-the-peer',
    ].map(caseNamed);
    const results = await runAgainstSelf(chosen, ['initiator', 'responder'], {}, profile);
    expect(faults(results)).toEqual([]);
    await profile.close();
    server.close();
  });
});

describe('profile command', () => {
  it('examines a peer of which nothing is known, and leaves out what needs more', async () => {
    const target = new SelfTarget();
    const { port } = await target.call('listen', { host: '127.0.0.1', options: {} });
    const profile = openCommand({
      target: { host: '127.0.0.1', port },
      listen: { host: '127.0.0.1', port: 0 },
    });
    const chosen = fastCases.filter(
      (entry) => entry.id.startsWith('mpa.request.key') || entry.id === 'ddp.write.other-pd',
    );
    const results = await runAgainstSelf(chosen, ['initiator'], {}, profile);
    expect(results.filter((r) => r.verdict === 'pass')).toHaveLength(18);
    expect(results.filter((r) => r.verdict === 'skip').map((r) => r.reason)).toEqual([
      'profile command has no tester',
    ]);
    target.close();
  });

  it('reads over what a strange program sends: it says nothing about the peer', async () => {
    // As the server on the first page of the README does it: each client gets a message.
    const peer = await smallPeer({
      program: (send) => send(untagged({ opcode: OPCODE.SEND, qn: 0, msn: 1, payload: new Uint8Array(16) })),
    });
    const { status, out } = await command(
      'run',
      'mpa.fpdu.cut',
      'mpa.fpdu.last-octet-late',
      'mpa.fpdu.one-octet',
      'mpa.request.private-data',
      'mpa.request.cut-behind-9',
      'enh.request.rtr-c',
      '--target',
      `127.0.0.1:${peer.port}`,
      '--slow',
      '0.5',
    );
    peer.close();
    expect(out).toMatch(/ 0 failed, 0 waived, 0 errors; .* 0 unexpected/);
    expect(status).toBe(0);
  });

  it('speaks revision 1 with a peer that knows no other, and skips the cases about RFC 6581', async () => {
    const peer = await smallPeer({ revision: 1 });
    const target = ['--target', `127.0.0.1:${peer.port}`, '--slow', '0.5'];
    const { status, out, err } = await command(
      'run',
      'mpa.fpdu.cut',
      'mpa.fpdu.last-octet-late',
      'mpa.request.private-data-3',
      'mpa.reply.reserved-bits',
      'enh.request.plain',
      'enh.request.rtr-c',
      ...target,
    );
    expect(err).toBe(
      'conformance: start-ups of the peer are of revision 1, with the probe as initiator: cases about ' +
        'those of RFC 6581 are left out\n',
    );
    expect(out).toMatch(/ 0 failed, 0 waived, 0 errors; \d\d? left out; 0 unexpected/);
    expect(status).toBe(0);
    const none = await command('run', 'enh.request.rtr-c', ...target);
    peer.close();
    expect([none.status, none.err]).toEqual([
      2,
      `${err}conformance: nothing to run: the peer knows start-ups of revision 1 only\n`,
    ]);
  });

  it.each([
    [
      0,
      'the peer serves no Reads',
      [
        'mpa.fpdu.cut-behind-16',
        'rdmap.read.unknown-stag',
        'rdmap.read.request-of-29-octets',
        'mpa.fpdu.read-request-ulpdu-of-18',
      ],
    ],
    [1, 'the peer serves 1 Read at a time, and the case makes more', ['test.two-reads']],
  ])('leaves out what takes more Reads than a peer with IRD %i offers', async (ird, reason, ids) => {
    const peer = await smallPeer({ ird });
    const profile = openCommand({
      target: { host: '127.0.0.1', port: peer.port },
      listen: { host: '127.0.0.1', port: 0 },
    });
    const read = { sinkStag: 1, sinkTo: 0n, size: 0, sourceStag: 1, sourceTo: 0n };
    const twoReads = established(
      'test.two-reads',
      'Two Reads at once',
      'RDMAP-043',
      'two answers',
      async (_trial, connection) =>
        connection.sendTogether([connection.makeRead(read), connection.makeRead(read)]),
    );
    const chosen = ids.map((id) => (id === 'test.two-reads' ? twoReads : caseNamed(id)));
    const results = await runAgainstSelf(chosen, ['initiator'], { slow: 0.2 }, profile);
    peer.close();
    expect(results.map((r) => [r.case.id, r.verdict, r.reason, r.unexpected])).toEqual(
      ids.map((id) => [id, 'skip', reason, false]),
    );
  });

  it.each(['command', 'rping'])(
    'is not held up by a peer that goes on sending (profile %s)',
    async (profile) => {
      const peer = await smallPeer({
        deaf: true,
        program: (send, socket) => {
          const timer = setInterval(() => send(tagged({ opcode: OPCODE.RDMA_WRITE, stag: 1, to: 0n })), 20);
          socket.on('close', () => clearInterval(timer));
        },
      });
      const began = performance.now();
      const { status, out } = await command(
        'run',
        'ddp.write.stag-0',
        'mpa.close.fin-idle',
        '--profile',
        profile,
        '--target',
        `127.0.0.1:${peer.port}`,
        '--slow',
        '0.05',
      );
      peer.close();
      expect(status).toBe(1);
      expect(out).toMatch(/ 2 failed/);
      if (profile === 'rping')
        expect(out).toContain(
          'RDMA Write STag 0x00000001 TO 0x0000000000000000, 0 octets, last, then more of it',
        );
      expect(performance.now() - began).toBeLessThan(10_000);
    },
  );
});
