/**
 * `iwarp rcopy`: copies a file over rsockets, as librdmacm's rcopy. Messages have a header of 16 octets in
 * little-endian order: version 0, command, length of the message with its header, data, file id. OPEN with
 * mode and path; WRITE with the size, then the octets of the file; CLOSE. Each is answered with the command
 * and bit 7, data 0 or an error number.
 */
import { constants } from 'node:fs';
import { open, realpath, stat, type FileHandle } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { IwarpError } from '../src/base/errors.ts';
import { patience, portOption, textOption, UsageError } from './support/options.ts';
import { runTool } from './support/run-tool.ts';
import { quoted } from './support/printable.ts';
import { openStream, StreamListener, type Pieces, type StreamOptions } from './support/stream-tool.ts';
import { isSystemError, reasonOf } from './support/system-errors.ts';
import { PROCESS_IO, type Tool, type ToolIo } from './support/tool.ts';

const USAGE = `usage 1: rcopy [options]
\t     starts the server application
\t[-p  port_number]
usage 2: rcopy source server[:destination] [options]
\t     source - file name and path
\t     server - name or address
\t     destination - file name and path
\t[-p  port_number]
`;

const OUR_USAGE = `  --dir DIR                the server writes below DIR alone (default: where it
                           was started); / allows every path
`;

const HEADER_OCTETS = 16;
const COMMAND = { OPEN: 1, CLOSE: 2, WRITE: 3 } as const;
const RESPONSE = 0x80;
const CHUNK_OCTETS = 1 << 20;
const MAX_PATH = 4096;
/** Error numbers of Linux, as they go over the wire. */
const ERRNO: Readonly<Record<string, number>> = {
  EPERM: 1,
  ENOENT: 2,
  EIO: 5,
  ENXIO: 6,
  EBADF: 9,
  EACCES: 13,
  EBUSY: 16,
  ENODEV: 19,
  ENOTDIR: 20,
  EISDIR: 21,
  EINVAL: 22,
  ENFILE: 23,
  EMFILE: 24,
  ETXTBSY: 26,
  EFBIG: 27,
  ENOSPC: 28,
  EROFS: 30,
  EPIPE: 32,
  ENAMETOOLONG: 36,
  ELOOP: 40,
  EDQUOT: 122,
};
const EIO = 5;
const EBUSY = 16;
const EINVAL = 22;

/** Header of a message. `length` counts the header too. */
interface Header {
  readonly command: number;
  readonly length: number;
  readonly data: number;
  readonly id: bigint;
}

export function encodeHeader({ command, length, data, id }: Header): Buffer {
  const bytes = Buffer.alloc(HEADER_OCTETS);
  bytes.writeUInt8(command, 1);
  bytes.writeUInt16LE(length, 2);
  bytes.writeUInt32LE(data, 4);
  bytes.writeBigUInt64LE(id, 8);
  return bytes;
}

/** @throws IwarpError ERR_INVALID_STATE */
export function decodeHeader(bytes: Buffer): Header {
  const version = bytes.readUInt8(0);
  const length = bytes.readUInt16LE(2);
  if (version !== 0 || length < HEADER_OCTETS)
    throw new IwarpError('ERR_INVALID_STATE', `invalid version ${version} or length ${length}`);
  return { command: bytes.readUInt8(1), length, data: bytes.readUInt32LE(4), id: bytes.readBigUInt64LE(8) };
}

/** The OPEN message: the path is padded with at least one NUL to a multiple of 8 octets. */
export function encodeOpen(path: string, mode: number): Buffer {
  const name = Buffer.from(path);
  const padded = Buffer.alloc((name.length + 8) & ~7);
  name.copy(padded);
  return Buffer.concat([
    encodeHeader({ command: COMMAND.OPEN, length: HEADER_OCTETS + padded.length, data: mode, id: 0n }),
    padded,
  ]);
}

/** The WRITE message; the octets follow it. */
export function encodeWrite(size: number): Buffer {
  const bytes = Buffer.alloc(HEADER_OCTETS + 8);
  encodeHeader({ command: COMMAND.WRITE, length: HEADER_OCTETS + 8, data: 0, id: 0n }).copy(bytes);
  bytes.writeBigUInt64LE(BigInt(size), HEADER_OCTETS);
  return bytes;
}

/** Entry point; the result is the exit status. */
export function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  return runTool(
    {
      name: 'rcopy',
      usage: USAGE,
      moreUsage: OUR_USAGE,
      shorts: 'p:',
      longs: { help: { short: 'h' }, dir: { value: true } },
      policy: { responder: 'relaxed' },
      settings: (options) => {
        const { rest } = options;
        if (rest.length === 1 || rest.length > 2)
          throw new UsageError('give a source and a server, or neither');
        const [source, target] = rest;
        if (target !== undefined) checkTarget(target);
        return {
          port: portOption(options, 7427, source === undefined ? 'listen' : 'connect'),
          stream: { patience: patience(options) },
          folder: textOption(options, 'dir') ?? '.',
          source,
          target,
        };
      },
      run: async (tool, { port, stream, folder, source, target }) => {
        if (source === undefined) await serve(tool, port, stream, folder);
        else await copy(tool, source, target!, port, stream);
        return 0;
      },
    },
    args,
    io,
  );
}

// ---------------------------------------------------------------------------------------------------- client

/** An address in brackets may hold colons; otherwise the first one ends the server's name. */
export function splitTarget(target: string): { host: string; path: string | undefined } {
  const match = /^(?:\[([^\]]+)\]|([^:]*))(?::(.*))?$/.exec(target);
  return { host: match?.[1] ?? match?.[2] ?? target, path: match?.[3] === '' ? undefined : match?.[3] };
}

/** An IPv6 address without brackets would be cut at its first colon. @throws UsageError */
function checkTarget(target: string): void {
  const ends = [...target.matchAll(/:|$/g)].map(({ index }) => index);
  const address = target.startsWith('[')
    ? undefined
    : ends.map((end) => target.slice(0, end)).findLast((text) => isIPv6(text));
  if (address !== undefined)
    throw new UsageError(`put the IPv6 address in brackets: [${address}]${target.slice(address.length)}`);
  if (splitTarget(target).host === '') throw new UsageError(`'${target}' names no server`);
}

async function copy(
  tool: Tool,
  source: string,
  target: string,
  port: number,
  options: StreamOptions,
): Promise<void> {
  const { host, path } = splitTarget(target);
  const found = await ofSource(source, stat(source));
  // The server would have truncated the destination before this showed, and opening a pipe waits for its
  // writer.
  if (!found.isFile())
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${source}: ${found.isDirectory() ? 'is a directory' : 'is no regular file'}`,
    );
  const { size, mode } = found;
  const file = await ofSource(source, open(source, 'r'));
  try {
    const pieces = await openStream(tool, { host, port }, options);
    tool.io.out('opening...');
    await pieces.write(encodeOpen(path ?? source, mode));
    await expectResponse(pieces, COMMAND.OPEN);
    tool.io.out('transferring...');
    const began = performance.now();
    await pieces.write(encodeWrite(size));
    await sendFile(pieces, source, file, size);
    await expectResponse(pieces, COMMAND.WRITE);
    const seconds = (performance.now() - began) / 1000;
    tool.io.out('closing...');
    await pieces.write(encodeHeader({ command: COMMAND.CLOSE, length: HEADER_OCTETS, data: 0, id: 0n }));
    await expectResponse(pieces, COMMAND.CLOSE);
    tool.say('done');
    await pieces.close();
    tool.say(
      `${size} bytes in ${seconds.toFixed(2)} seconds = ${((size * 8) / (seconds * 1e9)).toFixed(2)} Gb/sec`,
    );
  } finally {
    await file.close();
  }
}

/**
 * Turns the system's errors about the source into errors for the user. @throws IwarpError
 * ERR_INVALID_ARGUMENT
 */
async function ofSource<T>(source: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${source}: ${reasonOf(error)}`, { cause: error });
  }
}

async function sendFile(pieces: Pieces, source: string, file: FileHandle, size: number): Promise<void> {
  for (let at = 0; at < size; ) {
    // A buffer each: the stream keeps what it has not sent yet.
    const buffer = Buffer.allocUnsafe(Math.min(CHUNK_OCTETS, size - at));
    const { bytesRead } = await ofSource(source, file.read(buffer, 0, buffer.length, at));
    if (bytesRead === 0)
      throw new IwarpError('ERR_INVALID_STATE', 'the file has become shorter while it was sent');
    await pieces.write(buffer.subarray(0, bytesRead));
    at += bytesRead;
  }
}

async function expectResponse(pieces: Pieces, command: number): Promise<void> {
  const header = decodeHeader(await pieces.exactly(HEADER_OCTETS));
  if (header.command !== (command | RESPONSE) || header.length !== HEADER_OCTETS) {
    const got = `${header.command.toString(16)}:${(command | RESPONSE).toString(16)}`;
    throw new IwarpError(
      'ERR_INVALID_STATE',
      `invalid length ${header.length} or bad command response ${got}`,
    );
  }
  if (header.data === 0) return;
  const name = Object.keys(ERRNO).find((code) => ERRNO[code] === header.data);
  throw new IwarpError(
    'ERR_REJECTED',
    `the server answered with error ${header.data}${name === undefined ? '' : ` (${name})`}`,
  );
}

// ---------------------------------------------------------------------------------------------------- server

/** Serve one client after the other, until the tool is ended. */
async function serve(tool: Tool, port: number, options: StreamOptions, folder: string): Promise<void> {
  const root = await ofSource(folder, realpath(folder));
  if (!(await stat(root)).isDirectory())
    throw new IwarpError('ERR_INVALID_ARGUMENT', `--dir ${folder}: is no directory`);
  const listener = await StreamListener.open(tool, { port }, options);
  try {
    for (;;) {
      tool.io.out('waiting for connection...');
      const pieces = await listener.next();
      tool.say(`client: ${(pieces.stream as { remoteAddress?: string }).remoteAddress ?? ''}`);
      const service = new Service(tool, pieces, root);
      try {
        await service.run();
      } catch (error) {
        if (!(error instanceof IwarpError)) throw error;
        tool.complain(`rcopy: ${error.message}`);
      }
      await service.end();
      tool.check();
    }
  } finally {
    listener.close();
  }
}

class Service {
  readonly #tool: Tool;
  readonly #pieces: Pieces;
  readonly #root: string;
  #file: FileHandle | null = null;

  /** Writes files below `root`, a path without symbolic links. */
  constructor(tool: Tool, pieces: Pieces, root: string) {
    this.#tool = tool;
    this.#pieces = pieces;
    this.#root = root;
  }

  /** Commands until the client leaves. */
  async run(): Promise<void> {
    for (;;) {
      const first = await this.#pieces.some(1);
      if (first === null) return;
      const begun = Buffer.from(first); // it stays only until more is asked for
      const header = decodeHeader(Buffer.concat([begun, await this.#pieces.exactly(HEADER_OCTETS - 1)]));
      const status = await this.#execute(header);
      const { command, id } = header;
      await this.#pieces.write(
        encodeHeader({ command: command | RESPONSE, length: HEADER_OCTETS, data: status, id }),
      );
      if (command === COMMAND.CLOSE) this.#tool.say('done');
      else if (status !== 0) return;
    }
  }

  async end(): Promise<void> {
    const status = await this.#closeFile();
    if (status !== 0) this.#tool.complain(`rcopy: closing the destination file: error ${status}`);
    await this.#pieces.close();
  }

  async #closeFile(): Promise<number> {
    const file = this.#file;
    this.#file = null;
    return file === null ? 0 : await errnoOf(file.close());
  }

  async #execute(header: Header): Promise<number> {
    switch (header.command) {
      case COMMAND.OPEN:
        return await this.#open(header);
      case COMMAND.WRITE:
        return await this.#write(header);
      case COMMAND.CLOSE:
        this.#tool.io.out('closing...');
        return await this.#closeFile();
      default:
        return EINVAL;
    }
  }

  async #open({ length, data }: Header): Promise<number> {
    this.#tool.io.out('opening: ');
    const octets = length - HEADER_OCTETS;
    if (octets === 0 || octets > MAX_PATH) return EINVAL;
    const bytes = await this.#pieces.exactly(octets);
    const end = bytes.indexOf(0);
    const path = bytes.subarray(0, end < 0 ? bytes.length : end).toString();
    this.#tool.io.out(`${quoted(path)}, `);
    if (this.#file !== null) {
      this.#tool.say('cannot open another file');
      return EBUSY;
    }
    // The client chooses permissions; set-user-id and its kin are not its to give.
    const opening = openBelow(this.#root, path, data & 0o777);
    const status = await errnoOf(opening.then((file) => void (this.#file = file)));
    if (status !== 0) this.#tool.say('unable to open destination file');
    return status;
  }

  async #write({ length }: Header): Promise<number> {
    this.#tool.io.out('transferring');
    if (length !== HEADER_OCTETS + 8) {
      this.#tool.say(`...invalid message length ${length}`);
      return EINVAL;
    }
    const size = Number((await this.#pieces.exactly(8)).readBigUInt64LE());
    if (this.#file === null) {
      this.#tool.say('...file not opened');
      return EINVAL;
    }
    this.#tool.io.out(`...${size} bytes...`);
    let status = 0;
    for (let left = size; left > 0; ) {
      const piece = await this.#pieces.some(Math.min(left, CHUNK_OCTETS));
      if (piece === null)
        throw new IwarpError('ERR_CONNECTION_CLOSED', `error receiving data: ${left} bytes missing`);
      left -= piece.length;
      // A client looks for the response when it has sent everything: what cannot be written is taken all the
      // same.
      if (status === 0) status = await errnoOf(writeAll(this.#file, piece));
    }
    if (status !== 0) this.#tool.say(`unable to write destination file: error ${status}`);
    return status;
  }
}

/**
 * Open a file for writing at `path`, a client's text, only if it is below `root`: no `..`, absolute path or
 * symbolic link leads out. @throws a system error: EACCES for a place outside, ELOOP for a link at the end.
 */
async function openBelow(root: string, path: string, mode: number): Promise<FileHandle> {
  const { O_RDWR, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  const wanted = resolve(root, path);
  // The folder as the system finds it: links in the middle of the path are followed and must stay below.
  const folder = await realpath(dirname(wanted));
  const name = basename(wanted);
  if (name === '' || !(folder === root || folder.startsWith(root.endsWith(sep) ? root : root + sep)))
    throw Object.assign(new Error(`EACCES: outside of ${root}`), { code: 'EACCES', syscall: 'open' });
  // A pipe is not waited for; neither flag exists on Windows.
  const safe = (O_NOFOLLOW ?? 0) | (O_NONBLOCK ?? 0);
  const file = await open(join(folder, name), O_RDWR | O_CREAT | safe, mode);
  try {
    if ((await file.stat()).isFile()) await file.truncate();
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The system may take less than it is given, and say why only the next time. */
async function writeAll(file: FileHandle, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
}

/**
 * The result of work on a file: 0, or the error number for the client. Mistakes of the program are thrown.
 */
async function errnoOf(work: Promise<void>): Promise<number> {
  try {
    await work;
    return 0;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return ERRNO[error.code] ?? EIO;
  }
}
