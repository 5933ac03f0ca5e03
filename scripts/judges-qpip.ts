/**
 * Judges of queue pairs over plain TCP and UDP, none of them ours: `npx tsx scripts/judges-qpip.ts` after
 * `npm run build`. socat, nc, Python, redis-server and libnbd are at the other end, with both engines; a
 * relay records what crosses, which may be nothing but payload. Installs missing tools from Debian. With
 * `--smoke` the echo and redis-server, with the engine in the thread.
 */
import { execFile, type ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { aptInstall, background, report, SMOKE, stop, sums } from './judge.ts';
import { freePort } from './ports.ts';

const COMMAND = fileURLToPath(new URL('../bin/iwarp.js', import.meta.url));
const EXAMPLE = fileURLToPath(new URL('../examples/qp-redis.ts', import.meta.url));
const PACKAGES: Readonly<Record<string, string>> = {
  socat: 'socat',
  // There are two programs named nc.
  'nc.openbsd': 'netcat-openbsd',
  'redis-server': 'redis-server',
  python3: 'python3',
  ...(SMOKE ? {} : { nbdcopy: 'libnbd-bin', nbdkit: 'nbdkit' }),
};
const folder = mkdtempSync(join(tmpdir(), 'iwarp-judges-'));
const path = (name: string): string => join(folder, name);
/** With every octet in it, and no length that a buffer has. */
const BIG = Buffer.from(Array.from({ length: 3_000_017 }, (_, i) => (i * 7 + (i >> 8)) & 0xff));

/** The output of a shell command, or its error. The other side may be in this process. */
async function output(command: string): Promise<Buffer> {
  try {
    const options = { encoding: 'buffer', timeout: 60_000, maxBuffer: 1 << 26, cwd: folder } as const;
    const { stdout } = await promisify(execFile)('sh', ['-c', command], options);
    return stdout;
  } catch (error) {
    return Buffer.from(`${command}: ${String(error)}`);
  }
}

async function prints(name: string, command: string, expected: Buffer | string): Promise<void> {
  const said = await output(command);
  const wanted = Buffer.from(expected as string);
  report(
    name,
    said.equals(wanted),
    `${said.length} bytes where ${wanted.length} were due: ${said.subarray(0, 300).toString()}`,
  );
}

/** A program in the folder of the files. */
const inFolder = (program: string, args: readonly string[], ready: RegExp): Promise<ChildProcess> =>
  background([program, args], ready, folder);

const PYTHON_TCP = `
import socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
data = open('big', 'rb').read()
import threading
def feed():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=feed).start()
got = b''
while True:
    part = s.recv(70000)
    if not part: break
    got += part
print('same' if got == data else 'different: %d' % len(got))
`;
const PYTHON_UDP = `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
for length in (0, 1, 1400, 9000, 65507):
    s.sendto(bytes([length & 255]) * length, ('127.0.0.1', int(sys.argv[1])))
    data, peer = s.recvfrom(70000)
    assert data == bytes([length & 255]) * length, (length, len(data))
    assert peer[1] == int(sys.argv[1])
print('same')
`;
/** Datagrams from addresses that nobody has, and one from here, which is answered. */
const PYTHON_SPOOFED = `
import socket, struct, sys
port = int(sys.argv[1])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for i in range(2000):
    payload = b'spoofed' * (i % 100)
    source = socket.inet_aton('198.51.100.%d' % (i % 256))
    target = socket.inet_aton('127.0.0.1')
    udp = struct.pack('>HHHH', i % 3 * 7, port, 8 + len(payload), 0) + payload
    ip = bytes([0x45, 0]) + struct.pack('>HHH', 20 + len(udp), i, 0) + bytes([64, 17, 0, 0])
    raw.sendto(ip + source + target + udp, ('127.0.0.1', 0))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
for i in range(20):
    s.sendto(b'here', ('127.0.0.1', port))
    try:
        if s.recvfrom(100)[0] == b'here': break
    except TimeoutError: pass
else: raise SystemExit('no answer')
print('same')
`;
const PYTHON_LENGTH = `
import socket, struct, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
for text in (b'one', b'', b'x' * 60000):
    s.sendall(struct.pack('>I', len(text)) + text)
    want = struct.pack('>I', len(text)) + text
    got = b''
    while len(got) < len(want): got += s.recv(len(want) - len(got))
    assert got == want
print('same')
`;

async function echo(engine: string): Promise<void> {
  const [tcp, udp] = [await freePort(), await freePort()];
  const args = [COMMAND, 'qpip', 'echo', '--tcp', `${tcp}`, '--udp', `${udp}`, '--engine', engine];
  const server = await inFolder(process.execPath, args, /echo on udp/);
  const name = (what: string): string => `${engine}: ${what}`;
  await prints(name('nc, one line'), `echo hello | nc.openbsd -N 127.0.0.1 ${tcp}`, 'hello\n');
  await prints(name('nc, 3 MB'), `nc.openbsd -N 127.0.0.1 ${tcp} < big`, BIG);
  await prints(name('socat, 3 MB'), `socat -t 20 - TCP:127.0.0.1:${tcp} < big`, BIG);
  await prints(name('socat, a datagram'), `echo hello | socat -t 1 - UDP:127.0.0.1:${udp}`, 'hello\n');
  await prints(name('Python, TCP'), `python3 tcp.py ${tcp}`, 'same\n');
  await prints(name('Python, UDP of 0 to 65507 bytes'), `python3 udp.py ${udp}`, 'same\n');
  if (process.getuid?.() === 0)
    await prints(
      name('2000 datagrams of false senders, then a true one'),
      `python3 spoofed.py ${udp}`,
      'same\n',
    );
  await stop(server);
  const framed = [COMMAND, 'qpip', 'echo', '--tcp', `${tcp}`, '--framing', 'length', '--engine', engine];
  const lengths = await inFolder(process.execPath, framed, /echo on tcp/);
  await prints(name('Python, framing length'), `python3 length.py ${tcp}`, 'same\n');
  await stop(lengths);
}

async function send(engine: string): Promise<void> {
  const port = await freePort();
  const iwarp = `${process.execPath} ${COMMAND} qpip send 127.0.0.1 ${port} --engine ${engine}`;
  const tcp = await inFolder(
    'socat',
    ['-d', '-d', `TCP-LISTEN:${port},reuseaddr,fork`, 'EXEC:cat'],
    /listening/,
  );
  await prints(`${engine}: qpip send to socat, 3 MB`, `${iwarp} --tcp < big`, BIG);
  await stop(tcp);
  const udp = createSocket('udp4').on('message', (data, from) => udp.send(data, from.port, from.address));
  udp.bind(port, '127.0.0.1');
  await once(udp, 'listening');
  await prints(`${engine}: qpip send of a datagram`, `echo hello | ${iwarp} --udp`, 'hello\n');
  udp.close();
}

async function redis(): Promise<void> {
  const port = await freePort();
  const words = ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--daemonize', 'no'];
  const server = await inFolder('redis-server', words, /Ready to accept connections/);
  const tsx = fileURLToPath(new URL('../node_modules/.bin/tsx', import.meta.url));
  const said = String(await output(`${tsx} ${EXAMPLE} 127.0.0.1 ${port}`));
  report(
    'redis-server answers a queue pair',
    /PONG[^]*: OK[^]*GET wire: qpip[^]*\(nil\)[^]*graceful/.test(said),
    said,
  );
  await prints('redis-cli reads what it has set', `redis-cli -p ${port} get wire`, 'qpip\n');
  await stop(server);
}

/** Both directions of a connection through a relay of ours hold the payload and nothing else. */
async function capture(engine: string): Promise<void> {
  const port = await freePort();
  const args = [COMMAND, 'qpip', 'echo', '--tcp', `${port}`, '--engine', engine];
  const server = await inFolder(process.execPath, args, /echo on tcp/);
  const seen: [Buffer[], Buffer[]] = [[], []];
  const relay = createServer({ allowHalfOpen: true }, (inner) => {
    const outer = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    inner.on('data', (data) => seen[0].push(data)).pipe(outer);
    outer.on('data', (data) => seen[1].push(data)).pipe(inner);
  }).listen(0, '127.0.0.1');
  await once(relay, 'listening');
  const through = (relay.address() as AddressInfo).port;
  const iwarp = `${process.execPath} ${COMMAND} qpip send 127.0.0.1 ${through} --tcp --engine ${engine}`;
  await prints(`${engine}: two queue pairs, 3 MB`, `${iwarp} < big`, BIG);
  for (const [i, way] of ['there', 'back'].entries())
    report(`${engine}: no byte but the payload crosses ${way}`, Buffer.concat(seen[i as 0 | 1]).equals(BIG));
  relay.close();
  await stop(server);
}

async function nbd(engine: string): Promise<void> {
  const port = await freePort();
  const serve = [
    'nbd',
    'serve',
    '--memory',
    '16M',
    '--rdma',
    `127.0.0.1:${port}`,
    '--wire',
    'qpip',
    '--engine',
    engine,
  ];
  const server = await inFolder(process.execPath, [COMMAND, ...serve], /serving rdma/);
  const uri = `nbd://127.0.0.1:${port}`;
  await prints(`${engine}: nbdinfo of queue pairs`, `nbdinfo --size ${uri}`, `${16 << 20}\n`);
  await prints(
    `${engine}: nbdcopy to queue pairs and back`,
    `nbdcopy disk ${uri} && nbdcopy ${uri} back && cmp disk back`,
    '',
  );
  await stop(server);
  const kit = await inFolder(
    'nbdkit',
    ['-f', '-v', '-i', '127.0.0.1', '-p', `${port}`, 'memory', '16M'],
    /bound to/,
  );
  const copy = `${process.execPath} ${COMMAND} nbd copy --quiet --wire qpip --engine ${engine}`;
  const rdma = `rdma://127.0.0.1:${port}`;
  const there = `${copy} disk ${rdma} && ${copy} ${rdma} back2 && cmp disk back2`;
  await prints(`${engine}: nbdkit at the end of a queue pair`, there, '');
  await stop(kit);
}

aptInstall(PACKAGES);
writeFileSync(path('big'), BIG);
writeFileSync(path('disk'), Buffer.concat([BIG, Buffer.alloc((16 << 20) - BIG.length, 9)]));
for (const [name, text] of Object.entries({
  tcp: PYTHON_TCP,
  udp: PYTHON_UDP,
  length: PYTHON_LENGTH,
  spoofed: PYTHON_SPOOFED,
}))
  writeFileSync(path(`${name}.py`), text);
try {
  for (const engine of SMOKE ? ['thread'] : ['thread', 'worker'])
    for (const judge of SMOKE ? [echo] : [echo, send, capture, nbd]) await judge(engine);
  await redis();
} finally {
  rmSync(folder, { recursive: true });
}
process.exitCode = sums();
