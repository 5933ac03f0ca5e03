/**
 * Judges of HTTP upgrade and of TLS, none of them ours: `npx tsx scripts/judges-upgrade.ts` after
 * `npm run build`. curl sees the 101, OpenSSL is the client and the server of TLS, and a relay records what
 * crosses a TLS connection. Installs missing tools from Debian. With `--smoke` with the engine in the thread.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import {
  connect as connectTcp,
  createServer as createTcp,
  type AddressInfo,
  type Server as TcpServer,
} from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { acceptUpgrade, connectHttp, isUpgrade } from 'iwarp/http';
import { connect, createServer, RemoteBuffer, type Connection } from 'iwarp';
import { aptInstall, report, SMOKE, sums } from './judge.ts';

const PACKAGES: Readonly<Record<string, string>> = { curl: 'curl', openssl: 'openssl' };
const MIB_64 = 64 << 20;
const REQUEST_KEY = 'MPA ID Req Frame';
const REPLY_KEY = 'MPA ID Rep Frame';
/** A Reply of revision 1 with CRC and no private data (RFC 5044 7.1.1). */
const REPLY = Buffer.concat([Buffer.from(REPLY_KEY, 'latin1'), Buffer.from([0x40, 1, 0, 0])]);
/** A Request of the same kind. */
const REQUEST = Buffer.concat([Buffer.from(REQUEST_KEY, 'latin1'), Buffer.from([0x40, 1, 0, 0])]);
const HERE = { host: '127.0.0.1' } as const;

const folder = mkdtempSync(join(tmpdir(), 'iwarp-judges-'));
const path = (name: string): string => join(folder, name);

function makeCertificate(): { readonly key: Buffer; readonly cert: Buffer } {
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
      ...['-keyout', path('key.pem'), '-out', path('cert.pem'), '-subj', '/CN=localhost'],
      ...['-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
    ],
    { stdio: 'ignore' },
  );
  return { key: readFileSync(path('key.pem')), cert: readFileSync(path('cert.pem')) };
}

async function listening(server: TcpServer | http.Server | https.Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Run a program with this on its standard input, which is closed `patience` ms later. */
async function run(
  program: string,
  args: readonly string[],
  input: Uint8Array,
  patience: number,
): Promise<{ out: Buffer; err: string; status: number | null }> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  const [out, err]: [Buffer[], Buffer[]] = [[], []];
  child.stdout.on('data', (part: Buffer) => out.push(part));
  child.stderr.on('data', (part: Buffer) => err.push(part));
  child.stdin.on('error', () => undefined);
  child.stdin.write(input);
  const timer = setTimeout(() => child.stdin.end(), patience);
  const last = setTimeout(() => child.kill('SIGKILL'), 20_000);
  const [status] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  clearTimeout(last);
  return { out: Buffer.concat(out), err: Buffer.concat(err).toString(), status };
}

/** Serve a region of 64 MiB on each connection, and say by a message when it is full. */
async function serveRegion(connection: Connection): Promise<void> {
  const memory = new Uint8Array(MIB_64);
  await connection.send(connection.share(connection.register(memory, 'write')).toBytes());
  (await connection.receive())?.release();
  let wrong = 0;
  for (let i = 0; i < MIB_64; i += 997) if (memory[i] !== (i & 0xff)) wrong++;
  await connection.send(wrong === 0 ? 'full' : `${wrong} wrong`);
}

async function writeRegion(connection: Connection): Promise<string> {
  const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
  const data = new Uint8Array(MIB_64);
  for (let i = 0; i < MIB_64; i++) data[i] = i & 0xff;
  await connection.write(data, remote);
  await connection.send('done');
  const answer = (await connection.receive())!.text();
  await connection.close();
  return answer;
}

/** The connection of an upgrade carries 64 MiB by RDMA Write. */
async function judgeWrites(url: string, own: ReturnType<typeof makeCertificate>): Promise<void> {
  const connection = await connectHttp(url, {
    headers: { authorization: 'Bearer secret' },
    request: { ca: own.cert } as https.RequestOptions,
  });
  const told = await writeRegion(connection);
  report(`${url.slice(0, 5)}: 64 MiB by RDMA Write on the upgraded connection`, told === 'full', told);
}

async function judgeUpgrade(
  scheme: 'http' | 'https',
  own: ReturnType<typeof makeCertificate>,
): Promise<void> {
  const rdma = createServer({ engine: 'thread' }, serveRegion);
  const server = scheme === 'http' ? http.createServer() : https.createServer(own);
  server.on('request', (_request: http.IncomingMessage, response: http.ServerResponse) =>
    response.end('plain\n'),
  );
  server.on('upgrade', (request: http.IncomingMessage, socket, head) => {
    if (!isUpgrade(request) || request.headers.authorization !== 'Bearer secret') {
      socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
      return;
    }
    acceptUpgrade(request, socket, head, { server: rdma }).catch(() => undefined);
  });
  const port = await listening(server);
  const url = `${scheme}://localhost:${port}/rdma`;
  const asked = [
    '-sS',
    '-i',
    '--http1.1',
    '--max-time',
    '2',
    '--cacert',
    path('cert.pem'),
    '--resolve',
    `localhost:${port}:127.0.0.1`,
  ];
  const upgrading = ['-H', 'Connection: Upgrade', '-H', 'Upgrade: iwarp'];
  const secret = ['-H', 'Authorization: Bearer secret'];
  const none = Buffer.alloc(0);
  const switched = await run('curl', [...asked, ...upgrading, ...secret, url], none, 1);
  const answer = switched.out.toString('latin1');
  report(
    `${scheme}: curl sees 101`,
    /^HTTP\/1\.1 101 Switching Protocols\r\nUpgrade: iwarp\r\n/m.test(answer),
    answer + switched.err,
  );
  const refused = await run('curl', [...asked, ...upgrading, url], none, 1);
  report(
    `${scheme}: curl without the token sees 401`,
    refused.out.toString('latin1').startsWith('HTTP/1.1 401 '),
    refused.err,
  );
  const plain = await run('curl', [...asked, url], none, 1);
  report(
    `${scheme}: curl still gets pages from the port`,
    plain.out.toString().endsWith('plain\n'),
    plain.err,
  );
  await judgeWrites(`${scheme}://127.0.0.1:${port}/rdma`, own);
  await rdma.close();
  server.close();
  server.closeAllConnections();
}

async function judgeServer(
  engine: 'thread' | 'worker',
  own: ReturnType<typeof makeCertificate>,
): Promise<void> {
  const server = await createServer({ engine, tls: own }, () => undefined).listen(HERE);
  const { port } = server.address();
  const to = [
    's_client',
    '-connect',
    `127.0.0.1:${port}`,
    '-CAfile',
    path('cert.pem'),
    '-verify_return_error',
    '-servername',
    'localhost',
  ];
  for (const version of ['-tls1_2', '-tls1_3']) {
    const { out, err } = await run('openssl', [...to, version, '-alpn', 'iwarp'], Buffer.alloc(0), 500);
    const text = out.toString('latin1');
    report(
      `${engine}: openssl s_client ${version}: verified, ALPN iwarp`,
      text.includes('Verify return code: 0 (ok)') && text.includes('ALPN protocol: iwarp'),
      text + err,
    );
  }
  const answered = await run('openssl', [...to, '-quiet', '-alpn', 'iwarp'], REQUEST, 700);
  report(
    `${engine}: an MPA Request through openssl s_client gets its MPA Reply`,
    answered.out.subarray(0, 16).toString('latin1') === REPLY_KEY && (answered.out[16]! & 0x20) === 0,
    answered.out.toString('hex') + answered.err,
  );
  const other = await run('openssl', [...to, '-alpn', 'h2'], Buffer.alloc(0), 500);
  report(
    `${engine}: openssl s_client that offers h2 only is refused`,
    /no application protocol/.test(other.err + other.out.toString()),
    other.err,
  );
  await server.close();
}

async function judgeClient(
  engine: 'thread' | 'worker',
  own: ReturnType<typeof makeCertificate>,
): Promise<void> {
  const place = createTcp();
  const port = await listening(place);
  await new Promise((resolve) => place.close(resolve));
  const child = spawn(
    'openssl',
    [
      's_server',
      '-accept',
      `127.0.0.1:${port}`,
      '-key',
      path('key.pem'),
      '-cert',
      path('cert.pem'),
      '-alpn',
      'iwarp',
      '-quiet',
      '-naccept',
      '1',
    ],
    { stdio: ['pipe', 'pipe', 'pipe'] },
  );
  const got: Buffer[] = [];
  let asked = '';
  child.stdin.on('error', () => undefined);
  child.stdout.on('data', (part: Buffer) => {
    got.push(part);
    asked = Buffer.concat(got).subarray(0, 16).toString('latin1');
    if (asked === REQUEST_KEY) child.stdin.write(REPLY);
  });
  await new Promise((resolve) => setTimeout(resolve, 700));
  let told = '';
  try {
    const connection = await connect({ engine, ...HERE, port, tls: { ca: own.cert }, credits: false });
    told = `${connection.tls!.protocol} ${connection.tls!.authorized} ${connection.negotiated.revision}`;
    connection.destroy();
  } catch (error) {
    told = String(error);
  }
  report(
    `${engine}: our client through openssl s_server`,
    asked === REQUEST_KEY && /^TLSv1.3 true 1$/.test(told),
    told,
  );
  child.kill('SIGKILL');
  await once(child, 'close');
}

/** Judges the octets on the wire of a TLS connection, as a relay sees them. */
async function judgeCapture(
  engine: 'thread' | 'worker',
  own: ReturnType<typeof makeCertificate>,
): Promise<void> {
  const secret = Buffer.from('a sentence that nobody on the way may read', 'latin1');
  const server = await createServer({ engine, tls: own, onRequest: () => secret }, async (connection) => {
    for await (const message of connection) {
      await connection.send(message.data);
      message.release();
    }
  }).listen(HERE);
  const seen: Buffer[] = [];
  const relay = createTcp((socket) => {
    const onwards = connectTcp(server.address().port, '127.0.0.1');
    for (const [from, to] of [
      [socket, onwards],
      [onwards, socket],
    ] as const)
      from
        .on('data', (part: Buffer) => {
          seen.push(part);
          to.write(part);
        })
        .on('end', () => to.end())
        .on('error', () => to.destroy());
  });
  const port = await listening(relay);
  const connection = await connect({ engine, ...HERE, port, tls: { ca: own.cert }, privateData: secret });
  for (let i = 0; i < 100; i++) {
    await connection.send(secret);
    (await connection.receive())!.release();
  }
  await connection.close();
  await server.close();
  relay.close();
  const all = Buffer.concat(seen);
  const found = [secret.toString('latin1'), REQUEST_KEY, REPLY_KEY].filter((text) =>
    all.includes(text, 0, 'latin1'),
  );
  report(
    `${engine}: ${all.length} octets of a TLS connection show neither keys nor payload`,
    all.length > 10_000 && found.length === 0,
    found.join(),
  );
}

try {
  aptInstall(PACKAGES);
  const own = makeCertificate();
  for (const scheme of ['http', 'https'] as const) await judgeUpgrade(scheme, own);
  for (const engine of SMOKE ? (['thread'] as const) : (['thread', 'worker'] as const)) {
    await judgeServer(engine, own);
    await judgeClient(engine, own);
    await judgeCapture(engine, own);
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(sums());
