/** `iwarp doctor` against servers that are well, and against each that is not. */
import { createServer as createHttp } from 'node:http';
import net from 'node:net';
import { createServer as createTls } from 'node:tls';
import { expect, it, onTestFinished, vi } from 'vitest';
import { run } from '../../cli/doctor.ts';
import { createServer, RejectedError, type ServerOptions } from '../../src/index.ts';
import { identity } from '../support/certificates.ts';

/** The MTU that interfaces have; null for their own. */
const mtu = vi.hoisted(() => ({ pretended: null as number | undefined | null }));
vi.mock('../../src/transport/interface-mtu.ts', async (original) => {
  const real = await original<typeof import('../../src/transport/interface-mtu.ts')>();
  const interfaceMtu = (address: string): number | undefined =>
    mtu.pretended === null ? real.interfaceMtu(address) : mtu.pretended;
  return { ...real, interfaceMtu };
});

interface Finding {
  readonly step: string;
  readonly state: string;
  readonly text: string;
  readonly hint?: string;
}

interface Diagnosis {
  readonly status: number;
  readonly findings: readonly Finding[];
  /** The last one of each step. */
  readonly by: Record<string, Finding>;
  /** The words about wrong usage. */
  readonly err: string;
}

const doctor = (...args: string[]): Promise<Diagnosis> => doctorThat(() => undefined, ...args);

/** As `doctor`, and `see` is called with each finding before the next step is taken. */
async function doctorThat(see: (finding: Finding) => void, ...args: string[]): Promise<Diagnosis> {
  const findings: Finding[] = [];
  let err = '';
  const out = (text: string): void => {
    const finding = JSON.parse(text) as Finding;
    findings.push(finding);
    see(finding);
  };
  const status = await run([...args, '--json'], { out, err: (text: string) => void (err += text) });
  // Whatever fails comes with a hint.
  for (const { state, hint, text } of findings) if (state === 'bad') expect(hint, text).toMatch(/\w/);
  return { status, findings, by: Object.fromEntries(findings.map((one) => [one.step, one])), err };
}

/** A TCP path to `port` that can fall silent. */
async function pathTo(port: string): Promise<{ readonly port: string; cut(): void }> {
  let silent = false;
  const sockets: net.Socket[] = [];
  onTestFinished(() => sockets.forEach((socket) => socket.destroy()));
  const near = await tcp((socket) => {
    const far = net.connect(Number(port), '127.0.0.1');
    sockets.push(socket, far);
    far.on('error', () => undefined); // 'close' follows
    socket.on('data', (data) => silent || far.write(data)).on('close', () => silent || far.destroy());
    far.on('data', (data) => silent || socket.write(data)).on('close', () => silent || socket.destroy());
  });
  return { port: near, cut: () => (silent = true) };
}

async function listening(options: ServerOptions = {}): Promise<string> {
  const server = await createServer(options).listen({ host: '127.0.0.1', port: 0 });
  onTestFinished(() => server.close({ timeout: 500 }));
  return String(server.address().port);
}

async function tcp(serve: (socket: net.Socket) => void): Promise<string> {
  const server = net.createServer((socket) => serve(socket.on('error', () => undefined)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return String((server.address() as net.AddressInfo).port);
}

it('a server that is well: every step says what it found', async () => {
  const { status, by } = await doctor('127.0.0.1', await listening());
  expect(status).toBe(0);
  expect(Object.values(by).map(({ step, state }) => `${step} ${state}`)).toEqual(
    ['name', 'port', 'start-up', 'peer', 'latency', 'mtu', 'close'].map((step) => `${step} good`),
  );
  expect(by['start-up']!.text).toMatch(/^MPA revision 2, enhanced; CRC on, markers off; \d+ Reads of ours/);
  expect(by['peer']!.text).toMatch(/messages of up to 16384 bytes by one Send, credits, with Immediate Data/);
  expect(by['latency']!.text).toMatch(/there and back: \d+\.\d{3} ms/);
  expect(by['mtu']!.text).toMatch(/127\.0\.0\.1 has an MTU of \d+ bytes/);
});

it('the words for people have the hint below the step', async () => {
  let out = '';
  const io = { out: (text: string) => void (out += text), err: () => undefined };
  const silent = await tcp(() => undefined);
  expect(await run(['127.0.0.1', silent, '--timeout', '100'], io)).toBe(1);
  expect(out).toMatch(/^ok {5}name {5}127\.0\.0\.1 is 127\.0\.0\.1$/m);
  expect(out).toMatch(/^FAILED start-up connect to [\d.:]+ took longer .*\n {16}hint: the port takes the/m);
});

it('a name that is not known, and a port where nothing listens', async () => {
  const unknown = await doctor('no-such-name.invalid');
  expect([unknown.status, unknown.by['name']!.hint]).toEqual([
    1,
    expect.stringContaining('check its spelling'),
  ]);
  const closed = await doctor('127.0.0.1', '1');
  expect([closed.status, closed.by['port']!.hint]).toEqual([1, expect.stringContaining('start the server')]);
  expect(closed.by['start-up']).toBeUndefined();
});

it('a port that speaks another protocol, or none', async () => {
  const http = createHttp();
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void http.close());
  const web = await doctor('127.0.0.1', String((http.address() as net.AddressInfo).port));
  expect([web.status, web.by['start-up']!.hint]).toEqual([1, expect.stringContaining('"HTTP/1.1 400')]);
  const shut = await doctor('127.0.0.1', await tcp((socket) => socket.once('data', () => socket.end())));
  expect(shut.by['start-up']!.hint).toContain('the port closes the connection');
  const hostile = await tcp((socket) => socket.once('data', () => socket.end('\x1b[31m"')));
  const { by } = await doctor('127.0.0.1', hostile);
  expect(by['start-up']!.hint).toContain(String.raw`"\x1b[31m\"`);
});

it('a program that refuses, a peer without Reads, and one without credits', async () => {
  const refused = await doctor(
    '127.0.0.1',
    await listening({
      onRequest: () => {
        throw new RejectedError('no', Buffer.alloc(0));
      },
    }),
  );
  expect([refused.status, refused.by['start-up']!.hint]).toEqual([1, expect.stringContaining('onRequest')]);
  const noReads = await doctor('127.0.0.1', await listening({ ird: 0, policy: { rtrAccepted: ['write'] } }));
  expect([noReads.status, noReads.by['start-up']!.state, noReads.by['latency']!.state]).toEqual([
    0,
    'odd',
    'odd',
  ]);
  expect(noReads.by['start-up']!.hint).toContain('IRD above 0');
  const foreign = await doctor('127.0.0.1', await listening({ credits: false }));
  expect([foreign.status, foreign.by['peer']!.state]).toEqual([0, 'odd']);
  expect(foreign.by['peer']!.text).toContain('another implementation');
});

it('a peer of revision 1: start-up works in another way, and the hint says which', async () => {
  const { status, findings } = await doctor('127.0.0.1', await listening({ policy: { mpaRevision: 1 } }));
  expect(status).toBe(0);
  const [failed, agreed] = findings.filter(({ step }) => step === 'start-up');
  expect([failed!.state, failed!.hint]).toEqual([
    'odd',
    'it works with MPA revision 1: set policy: { mpaRevision: 1 }',
  ]);
  expect([agreed!.state, agreed!.hint]).toEqual(['good', undefined]);
  expect(agreed!.text).toMatch(/^MPA revision 1; CRC on/);
});

it('a port that speaks TLS, and one of ours that does or does not', async () => {
  const own = identity('localhost');
  const server = createTls(own).on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { status, by } = await doctor('127.0.0.1', String((server.address() as net.AddressInfo).port));
  const hint = 'the port speaks TLS: try --tls, and `tls` in the client';
  expect([status, by['start-up']!.hint]).toEqual([1, hint]);
  const ours = await doctor('127.0.0.1', await listening({ tls: own }), '--tls');
  expect([ours.status, ours.by['start-up']!.hint]).toEqual([
    1,
    expect.stringMatching(/^the port speaks TLS: its certificate is not trusted here/),
  ]);
  const plain = await doctor('127.0.0.1', await listening(), '--tls', '--timeout', '500');
  expect([plain.status, plain.by['start-up']!.hint]).toEqual([
    1,
    'the port does not speak TLS: try without --tls',
  ]);
});

it.each([
  [9000, 'good', undefined, /MTU of 9000 bytes$/],
  [1500, 'good', undefined, /MTU of 1500 bytes$/],
  [1499, 'odd', expect.stringMatching(/^below that of Ethernet: .*look at tunnels/), /MTU of 1499 bytes$/],
  [undefined, 'odd', undefined, /is not known here$/],
] as const)('an interface with an MTU of %s is %s', async (value, state, hint, text) => {
  mtu.pretended = value;
  onTestFinished(() => void (mtu.pretended = null));
  const { status, by } = await doctor('127.0.0.1', await listening());
  expect([status, by['mtu']!.state]).toEqual([0, state]);
  expect(by['mtu']!.hint).toEqual(hint);
  expect(by['mtu']!.text).toMatch(text);
});

it('a path that falls silent before the round trip, or before the close', async () => {
  const first = await pathTo(await listening());
  const cutAfter =
    (path: { cut(): void }, step: string) =>
    (finding: Finding): void => {
      if (finding.step === step) path.cut();
    };
  const silent = await doctorThat(cutAfter(first, 'peer'), '127.0.0.1', first.port, '--timeout', '300');
  expect([silent.status, silent.by['latency']!.state]).toEqual([1, 'bad']);
  expect(silent.by['latency']!.hint).toMatch(/^start-up works and a Read has no answer: the server hangs/);
  const second = await pathTo(await listening());
  const late = await doctorThat(cutAfter(second, 'mtu'), '127.0.0.1', second.port, '--timeout', '300');
  expect([late.status, late.by['latency']!.state, late.by['close']!.state]).toEqual([0, 'good', 'odd']);
  expect(late.by['close']!.text).toMatch(/^the close ended with \w+/);
  expect(late.by['close']!.hint).toMatch(/^the server does not answer a close in time/);
});

it('wrong usage is refused', async () => {
  for (const args of [[], ['a', 'b', 'c'], ['a', '0'], ['a', '--timeout', 'x'], ['a', '--nonsense']])
    expect(await doctor(...args)).toMatchObject({
      status: 2,
      err: expect.stringContaining('usage:') as string,
    });
});
