/**
 * The control socket: lets `iwarp stat` and `iwarp devinfo` look into a running process. The process serves a
 * local socket in a folder that only its user can enter. A client that connects gets the state as one JSON
 * text; it cannot ask for or change anything else. Off unless the program calls {@link serveControl} or its
 * environment has `IWARP_CONTROL=1` when its first device is opened. A failure here never harms the program.
 */
import { Buffer } from 'node:buffer';
import { clearTimeout, setTimeout } from 'node:timers';
import { environmentVariable } from '../base/environment.ts';
import { chmodSync, lstatSync, mkdirSync, readdirSync, unlinkSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { threadId } from 'node:worker_threads';
import { IwarpError } from '../base/errors.ts';
import { isSnapshot, snapshot, type ProcessSnapshot } from './snapshot.ts';

/** Environment variable that turns the control socket on. */
export const CONTROL_VARIABLE = 'IWARP_CONTROL';

/** A peer that does not read is not kept. */
const PATIENCE_MS = 2_000;
/** Nor is one that answers byte by octet: the largest state takes some seconds of a busy machine. */
const LONGEST_MS = 20_000;
/**
 * The state of a device with tens of thousands of objects is some megabytes; a longer answer is given up. The
 * text and the objects parsed from it take several times as much, and every process is asked at once.
 */
const MAX_ANSWER_OCTETS = 32 * 1024 * 1024;
/** Processes of one number that share a folder: containers. More of them than this is a mistake. */
const MAX_NAMESAKES = 16;
/**
 * What the address of a local socket holds besides its end; of a longer one Node 20 takes a part, which names
 * another place.
 */
const MAX_PATH_OCTETS = process.platform === 'linux' ? 107 : 103;

/** An open control socket. */
export interface ControlServer {
  /** Path of the socket: in a folder of the user, named after the process id. */
  readonly path: string;
  /** Stop serving and remove the socket. */
  close(): Promise<void>;
}

let serving: Promise<ControlServer> | null = null;

/**
 * Serve the control socket of this process. It does not keep the process alive. Another call returns the same
 * one.
 *
 * Rejects with ERR_NOT_SUPPORTED where the system has no sockets that only one user can open, ERR_ACCESS if
 * the folder cannot be made, belongs to another user, or is open to others, ERR_CONNECT if the socket cannot
 * be bound.
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

/** Decided once, when the first device is opened. */
let environmentRead = false;

/**
 * @internal With `IWARP_CONTROL=1` serve the control socket. A failure is a warning of type `IwarpWarning`
 * with the error's code.
 */
export function controlFromEnvironment(): void {
  if (environmentRead) return;
  environmentRead = true;
  if (environmentVariable(CONTROL_VARIABLE) !== '1') return;
  serveControl().catch((error: IwarpError) => {
    process.emitWarning(`${CONTROL_VARIABLE}=1 has no effect: ${error.message}`, {
      type: 'IwarpWarning',
      code: error.code,
    });
  });
}

async function open(): Promise<ControlServer> {
  const folder = controlFolder();
  const server = createServer(answer);
  const path = await bind(server, folder);
  // Later failures (no descriptor left to accept with) concern the process that asks, not this program.
  server.on('error', () => undefined);
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

/** Tell the state and hang up. */
function answer(socket: Socket): void {
  socket.unref();
  socket.on('error', () => socket.destroy());
  socket.setTimeout(PATIENCE_MS, () => socket.destroy());
  socket.resume();
  try {
    socket.end(`${JSON.stringify(snapshot())}\n`);
  } catch {
    socket.destroy(); // being looked at must not end the program that is looked at
  }
}

/**
 * The number of the process names the socket; a name that a dead process left is taken over, one that is
 * served is not.
 */
async function bind(server: Server, folder: string): Promise<string> {
  const name = threadId === 0 ? `${process.pid}` : `${process.pid}.${threadId}`;
  for (let namesake = 0; namesake < MAX_NAMESAKES; namesake++) {
    const path = join(folder, namesake === 0 ? `${name}.sock` : `${name}-${namesake}.sock`);
    const octets = Buffer.byteLength(path);
    if (octets > MAX_PATH_OCTETS)
      throw new IwarpError(
        'ERR_CONNECT',
        `${path} has ${octets} bytes, more than the path of a local socket may have`,
      );
    let error = await listen(server, path);
    if (error?.code === 'EADDRINUSE' && (await ask(path)) === null) error = await listen(server, path);
    if (error === null) return path;
    if (error.code !== 'EADDRINUSE')
      throw new IwarpError('ERR_CONNECT', `cannot serve ${path}: ${error.message}`, { cause: error });
  }
  throw new IwarpError(
    'ERR_CONNECT',
    `${folder} has ${MAX_NAMESAKES} sockets of processes with the number ${process.pid}`,
  );
}

function listen(server: Server, path: string): Promise<NodeJS.ErrnoException | null> {
  return new Promise((resolve) => {
    const failed = (error: Error): void => {
      server.off('listening', bound); // the next name's must not be taken for this one's
      resolve(error);
    };
    const bound = (): void => {
      server.off('error', failed);
      try {
        chmodSync(path, 0o600); // the folder guards it already
        resolve(null);
      } catch (error) {
        server.close();
        resolve(error as Error);
      }
    };
    server.once('error', failed);
    server.listen(path, bound);
  });
}

/**
 * Why a process that serves a control socket is not shown: it has not answered in time, has answered
 * with more than {@link MAX_ANSWER_OCTETS}, or with something that is no state as this version knows it.
 */
export type Unshown = 'silent' | 'oversized' | 'strange';

/**
 * Ask every process of this user that serves a control socket. `unshown` receives the numbers of those that
 * cannot be shown.
 */
export async function askAll(
  unshown: (pid: number, why: Unshown) => void = () => undefined,
): Promise<ProcessSnapshot[]> {
  const folder = controlFolder();
  const names = readdirSync(folder).filter((name) => /^[\d.-]+\.sock$/.test(name));
  const answers = await Promise.all(
    names.map((name) => ask(join(folder, name), (why) => unshown(Number.parseInt(name), why))),
  );
  return answers.filter((one) => one !== null).sort((a, b) => a.pid - b.pid);
}

/**
 * One process's state; null if nobody serves the socket, which is then cleared away, or if it is `unshown`.
 */
function ask(
  path: string,
  unshown: (why: Unshown) => void = () => undefined,
): Promise<ProcessSnapshot | null> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let octets = 0;
    const socket = connect(path);
    const giveUp = (): void => {
      unshown('silent');
      socket.destroy();
    };
    socket.setTimeout(PATIENCE_MS, giveUp);
    const longest = setTimeout(giveUp, LONGEST_MS);
    socket.on('data', (part) => {
      octets += part.length;
      if (octets <= MAX_ANSWER_OCTETS) {
        parts.push(part);
        return;
      }
      parts.length = 0;
      if (!socket.destroyed) unshown('oversized');
      socket.destroy();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') remove(path);
    });
    socket.on('close', () => {
      clearTimeout(longest);
      const state = parse(Buffer.concat(parts).toString('utf8'));
      const known = isSnapshot(state);
      if (!known && state !== undefined) unshown('strange');
      resolve(known ? state : null);
    });
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined; // cut off: the process has gone
  }
}

/**
 * The folder of the sockets: in XDG_RUNTIME_DIR, else in the folder for temporary files. Made if need be, and
 * never one that others could have put there or can enter: not a link, owned by this user, mode 0700.
 */
export function controlFolder(): string {
  const uid = process.geteuid?.();
  if (uid === undefined)
    throw new IwarpError('ERR_NOT_SUPPORTED', 'this system has no local sockets that only one user can open');
  const runtime = environmentVariable('XDG_RUNTIME_DIR');
  const folder =
    runtime === undefined || runtime === '' ? join(tmpdir(), `iwarp-${uid}`) : join(runtime, 'iwarp');
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
      throw new IwarpError('ERR_ACCESS', `cannot make ${folder}: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }
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
