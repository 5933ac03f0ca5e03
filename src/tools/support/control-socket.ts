/**
 * The control socket: lets `iwarp stat` and `iwarp devinfo` look into a running process. A process that wants to be looked into serves a
 * local socket in a folder that nobody but its user can enter; whoever connects is told the state as one JSON text, and nothing else can be
 * asked for or changed. Off unless the program calls {@link serveControl} or its environment has `IWARP_CONTROL=1`.
 */
import { chmodSync, lstatSync, mkdirSync, readdirSync, unlinkSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onRnicOpened } from '../../api/environment.ts';
import { IwarpError } from '../../base/errors.ts';
import { snapshot, type ProcessSnapshot } from './snapshot.ts';

/** Environment variable that turns the control socket on. */
export const CONTROL_VARIABLE = 'IWARP_CONTROL';

/** A peer that does not read is not kept. */
const PATIENCE_MS = 2_000;
/** The state of a device with tens of thousands of objects is some megabytes; a runaway answer is cut off here. */
const MAX_ANSWER_OCTETS = 256 * 1024 * 1024;

/** A control socket that is open. */
export interface ControlServer {
  readonly path: string;
  close(): Promise<void>;
}

let serving: Promise<ControlServer> | null = null;

/**
 * Serve the control socket of this process; it does not keep the process alive. Calling again gives the same one.
 *
 * Rejects with ERR_NOT_SUPPORTED where the system has no sockets that only one user can open, ERR_ACCESS if the folder for it belongs to
 * or is open to others.
 *
 * @example
 * const control = await serveControl(); // now `npx iwarp stat` shows this process
 */
export function serveControl(): Promise<ControlServer> {
  if (serving !== null) return serving;
  const opening = open();
  serving = opening;
  opening.catch(() => (serving = null));
  return opening;
}

async function open(): Promise<ControlServer> {
  const path = join(controlFolder(), `${process.pid}.sock`);
  remove(path); // left by a process of the same number
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.setTimeout(PATIENCE_MS, () => socket.destroy());
    socket.end(`${JSON.stringify(snapshot())}\n`);
    socket.resume();
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(new IwarpError('ERR_CONNECT', `cannot serve ${path}: ${error.message}`, { cause: error })));
    server.listen(path, resolve);
  });
  chmodSync(path, 0o600);
  server.unref();
  const atExit = (): void => remove(path);
  process.on('exit', atExit);
  const close = async (): Promise<void> => {
    serving = null;
    process.off('exit', atExit);
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { path, close };
}

/** With `IWARP_CONTROL=1` serve the control socket as soon as there is a device to tell about. */
export function controlFromEnvironment(): void {
  if (process.env[CONTROL_VARIABLE] !== '1') return;
  onRnicOpened(() => {
    serveControl().catch((error: Error) => process.emitWarning(`${CONTROL_VARIABLE}: ${error.message}`));
  });
}

/** Ask every process of this user that serves a control socket. */
export async function askAll(): Promise<ProcessSnapshot[]> {
  const folder = controlFolder();
  const names = readdirSync(folder).filter((name) => /^\d+\.sock$/.test(name));
  const answers = await Promise.all(names.map((name) => ask(join(folder, name))));
  return answers.filter((answer) => answer !== null).sort((a, b) => a.pid - b.pid);
}

/** One process's state; null if nobody serves the socket, which is then cleared away. */
function ask(path: string): Promise<ProcessSnapshot | null> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let octets = 0;
    const socket = connect(path);
    socket.setTimeout(PATIENCE_MS, () => socket.destroy());
    socket.on('data', (part) => {
      parts.push(part);
      octets += part.length;
      if (octets > MAX_ANSWER_OCTETS) socket.destroy();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') remove(path);
    });
    socket.on('close', () => resolve(parse(Buffer.concat(parts).toString('utf8'))));
  });
}

function parse(text: string): ProcessSnapshot | null {
  try {
    return JSON.parse(text) as ProcessSnapshot;
  } catch {
    return null; // cut off: the process has gone
  }
}

/** The folder of the sockets: made if need be, and never one that others could have put there or can enter. */
export function controlFolder(): string {
  const uid = process.getuid?.();
  if (uid === undefined) throw new IwarpError('ERR_NOT_SUPPORTED', 'this system has no local sockets that only one user can open');
  const runtime = process.env['XDG_RUNTIME_DIR'];
  const folder = runtime === undefined || runtime === '' ? join(tmpdir(), `iwarp-${uid}`) : join(runtime, 'iwarp');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const found = lstatSync(folder);
  if (!found.isDirectory() || found.uid !== uid || (found.mode & 0o077) !== 0) {
    throw new IwarpError('ERR_ACCESS', `${folder} is not a folder that only user ${uid} can enter`);
  }
  return folder;
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // not there
  }
}
