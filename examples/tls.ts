/**
 * RDMA under TLS with certificates on both sides: the server asks for the client's certificate and greets its
 * owner by name. The certificates are made for the occasion by the system's openssl.
 *
 *   npx tsx examples/tls.ts
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer } from 'iwarp';

function identity(name: string): { key: string; cert: string } {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-tls-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const names = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1'];
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'];
  execFileSync('openssl', ['req', '-x509', ...made, '-keyout', key, '-out', cert, ...names], {
    stdio: 'pipe',
  });
  const pems = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  rmSync(folder, { recursive: true });
  return pems;
}

const [ours, alice, mallory] = ['the server', 'alice', 'mallory'].map(identity) as [
  ReturnType<typeof identity>,
  ReturnType<typeof identity>,
  ReturnType<typeof identity>,
];
const server = await createServer(
  { tls: { ...ours, ca: alice.cert, requestCert: true } },
  async (connection) => {
    await connection.send(`hello ${connection.tls!.peerName}, by ${connection.tls!.protocol}`);
    await connection.closed;
  },
).listen(0, '127.0.0.1');
const { port } = server.address();

const connection = await connect(port, '127.0.0.1', { tls: { ca: ours.cert, ...alice } });
console.log((await connection.receive())!.text());
await connection.close();

const unknown = await connect(port, '127.0.0.1', { tls: { ca: ours.cert, ...mallory } }).then(
  () => 'was let in',
  () => 'was refused',
);
console.log(`a client with another certificate ${unknown}`);
await server.close();
