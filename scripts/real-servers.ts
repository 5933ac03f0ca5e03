/**
 * Stock servers from Debian, as processes of the script that starts them, on 127.0.0.1 and with their data in
 * a folder of the script's.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { aptInstall } from './judge.ts';
import { freePort } from './ports.ts';

/** A server that runs. */
interface RealServer {
  /** Its TCP port on 127.0.0.1. */
  readonly port: number;
  /** End it; resolves when it has ended. */
  stop(): Promise<void>;
}

const POSTGRES = '/usr/lib/postgresql';

/** Wait until the process says that it is ready. */
async function ready(child: ChildProcess, name: string, words: RegExp): Promise<void> {
  let said = '';
  await new Promise<void>((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${name} is not ready after 60 s: ${said}`)), 60_000);
    const hear = (data: Buffer): void => {
      said = (said + data.toString()).slice(-4000);
      if (!words.test(said)) return;
      clearTimeout(late);
      resolve();
    };
    child.stdout!.on('data', hear);
    child.stderr!.on('data', hear);
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`${name} has ended: ${said}`)));
  });
}

function stopper(child: ChildProcess, signal: NodeJS.Signals): () => Promise<void> {
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return async () => {
    child.kill(signal);
    await ended;
  };
}

/** `redis-server`, without persistence. */
export async function startRedis(folder: string): Promise<RealServer> {
  aptInstall({ 'redis-server': 'redis-server' });
  const port = await freePort();
  const data = join(folder, 'redis');
  mkdirSync(data);
  const options = [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--dir',
    data,
    '--save',
    '',
    '--appendonly',
    'no',
  ];
  const child = spawn('redis-server', options, { stdio: ['ignore', 'pipe', 'pipe'] });
  const stop = stopper(child, 'SIGTERM');
  await ready(child, 'redis-server', /ready to accept connections/i);
  return { port, stop };
}

function postgresPrograms(): string | undefined {
  if (!existsSync(POSTGRES)) return undefined;
  const versions = readdirSync(POSTGRES).toSorted((a, b) => Number(b) - Number(a));
  const found = versions.find((version) => existsSync(join(POSTGRES, version, 'bin', 'initdb')));
  return found === undefined ? undefined : join(POSTGRES, found, 'bin');
}

/** PostgreSQL with an empty database, whose user `postgres` needs no password. It refuses to run as root. */
export async function startPostgres(folder: string): Promise<RealServer> {
  if (postgresPrograms() === undefined) aptInstall({ postgres: 'postgresql' });
  const bin = postgresPrograms();
  if (bin === undefined) throw new Error('PostgreSQL could not be installed');
  const port = await freePort();
  const data = join(folder, 'postgres');
  mkdirSync(data);
  const isRoot = process.getuid?.() === 0;
  const number = (flag: string): number =>
    Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  const user = isRoot ? { uid: number('-u'), gid: number('-g') } : {};
  if (user.uid !== undefined) {
    chownSync(data, user.uid, user.gid);
    chmodSync(folder, 0o755);
  }
  execFileSync(join(bin, 'initdb'), ['-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync'], {
    ...user,
    cwd: data,
    stdio: 'ignore',
  });
  const settings = ['listen_addresses=127.0.0.1', `unix_socket_directories=${data}`, 'fsync=off'];
  const options = ['-D', data, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])];
  const child = spawn(join(bin, 'postgres'), options, {
    ...user,
    cwd: data,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const stop = stopper(child, 'SIGINT');
  await ready(child, 'postgres', /ready to accept connections/);
  return { port, stop };
}

/** `key.pem` and `cert.pem` for the host `localhost`, signed by itself. */
export function makeCertificate(folder: string): void {
  aptInstall({ openssl: 'openssl' });
  const key = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'key.pem', '-out', 'cert.pem'];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  execFileSync('openssl', [...key, ...subject], { cwd: folder, stdio: 'ignore' });
}
