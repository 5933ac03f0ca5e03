/** Certificates for TLS tests, made by the `openssl` of the system: none lies in the repository. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A key and its certificate, in PEM. */
export interface Identity {
  readonly key: string;
  readonly cert: string;
}

/** A self-signed certificate. `days` may be negative: it has expired then. */
export function identity(name: string, options: { days?: number } = {}): Identity {
  const { days = 30 } = options;
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-cert-'));
  try {
    const [key, cert, request] = ['key.pem', 'cert.pem', 'request.pem'].map((file) => join(folder, file));
    const openssl = (...given: string[]): void => void execFileSync('openssl', given, { stdio: 'pipe' });
    openssl(
      ...['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
      ...['-keyout', key!, '-out', request!, '-subj', `/CN=${name}`],
      ...['-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
    );
    openssl(
      ...['x509', '-req', '-in', request!, '-signkey', key!, '-out', cert!, '-copy_extensions', 'copy'],
      ...['-days', String(days)],
    );
    return { key: readFileSync(key!, 'utf8'), cert: readFileSync(cert!, 'utf8') };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
