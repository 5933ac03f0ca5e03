// TLS over byte streams: no byte is lost, whichever side ends first.
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, connectSecure, createSecureServer, type RdmaServer } from '../../src/sockets/index.ts';

let key: Buffer;
let cert: Buffer;
let server: RdmaServer;
let port: number;

beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-tls-'));
  const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  execFileSync(
    'openssl',
    ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', keyFile, '-out', certFile, ...subject],
    { stdio: 'ignore' },
  );
  [key, cert] = [readFileSync(keyFile), readFileSync(certFile)];
  rmSync(folder, { recursive: true });
  server = createSecureServer({ key, cert }, (socket) => socket.on('error', () => undefined).pipe(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as { port: number });
});
afterAll(async () => await server[Symbol.asyncDispose]());

describe('createSecureServer', () => {
  it.each([1, 2, 3])('echoes 30 MB to a client that ends first, round %i', async () => {
    const data = randomBytes(30_000_000);
    const socket = connectSecure({ host: '127.0.0.1', port }, { ca: cert });
    socket.end(data);
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const piece of socket) {
      bytes += (piece as Buffer).length;
      hash.update(piece as Buffer);
    }
    expect(bytes).toBe(data.length);
    expect(hash.digest('hex')).toBe(createHash('sha256').update(data).digest('hex'));
    expect(socket.authorized).toBe(true);
  });

  it('emits tlsClientError for a client that speaks no TLS, and goes on', async () => {
    const failed = once(server, 'tlsClientError');
    const plain = connect(port, '127.0.0.1').on('error', () => undefined);
    plain.write('GET / HTTP/1.0\r\n\r\n');
    expect((await failed)[0]).toMatchObject({ code: 'ERR_SSL_HTTP_REQUEST' });
    plain.destroy();
    const next = connectSecure({ host: '127.0.0.1', port }, { ca: cert });
    next.end('still here');
    expect(String((await once(next, 'data'))[0])).toBe('still here');
  });
});
