/** A client's connection over a byte stream. */
import { Buffer } from 'node:buffer';
import { clearTimeout, setTimeout } from 'node:timers';
import { nextTick } from 'node:process';
import type { Duplex } from 'node:stream';
import { putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { Machine } from '../base/fsm.ts';
import { ByteReader } from './byte-reader.ts';
import { ClientHandshake } from './client-handshake.ts';
import { errorOfReply, protocolError } from './errors.ts';
import type { ExportInfo, LinkRequest, NbdLink } from './link.ts';
import { CLIENT_NEGOTIATION_TABLE, type ClientInput, type ClientState } from './negotiation.ts';
import { PendingTable, type Pending } from './pending.ts';
import {
  CHUNK,
  CHUNK_ERROR_BIT,
  CHUNK_FLAG_DONE,
  CHUNK_HEADER_LENGTH,
  COMMAND,
  decodeChunkError,
  decodeChunkHeader,
  decodeExtents,
  encodeRequest,
  REQUEST_LENGTH,
  SIMPLE_REPLY_LENGTH,
  SIMPLE_REPLY_MAGIC,
  STRUCTURED_REPLY_MAGIC,
  viewOf,
  type ExtentDescriptor,
} from './wire.ts';

/** Milliseconds that a server has for closing after DISC. */
const CLOSE_MS = 5_000;
/** Longest chunk that is not data: an error or 2^17 descriptors. */
const MAX_CHUNK = 1024 * 1024;
/** What the first bytes of either kind of reply tell. */
const REPLY_HEAD = SIMPLE_REPLY_LENGTH;

/** Options of a client's end of a byte stream. */
interface StreamLinkOptions {
  readonly name: string;
  readonly depth: number;
  readonly handshakeTimeout: number;
}

/** Handshake on an open stream. Rejects with what {@link ClientHandshake.run} rejects with. */
export async function openStreamLink(stream: Duplex, options: StreamLinkOptions): Promise<StreamLink> {
  const machine = new Machine<ClientState, ClientInput>(CLIENT_NEGOTIATION_TABLE);
  stream.on('error', () => undefined);
  const reader = new ByteReader(stream);
  const handshake = new ClientHandshake(stream, reader, machine, options.handshakeTimeout);
  const info = await handshake.run(options.name);
  return new StreamLink(stream, reader, machine, info, handshake.context, options.depth);
}

/** Names of the exports that the server at the other end of an open stream lists. */
export async function listExportsOn(stream: Duplex, handshakeTimeout: number): Promise<string[]> {
  const machine = new Machine<ClientState, ClientInput>(CLIENT_NEGOTIATION_TABLE);
  stream.on('error', () => undefined);
  const names = await new ClientHandshake(stream, new ByteReader(stream), machine, handshakeTimeout).list();
  stream.end();
  return names;
}

class StreamLink implements NbdLink {
  readonly info: ExportInfo;
  readonly transport = 'stream';
  readonly closed: Promise<Error | undefined>;
  readonly #stream: Duplex;
  readonly #reader: ByteReader;
  readonly #machine: Machine<ClientState, ClientInput>;
  readonly #context: number | null;
  readonly #pending: PendingTable;
  #resolveClosed!: (error: Error | undefined) => void;
  #cause: Error | undefined;
  #corked = false;

  constructor(
    stream: Duplex,
    reader: ByteReader,
    machine: Machine<ClientState, ClientInput>,
    info: ExportInfo,
    context: number | null,
    depth: number,
  ) {
    this.#stream = stream;
    this.#reader = reader;
    this.#machine = machine;
    this.info = info;
    this.#context = context;
    this.#pending = new PendingTable(depth);
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    void this.#run();
  }

  get isOpen(): boolean {
    return this.#machine.state === 'transmission';
  }

  get inFlight(): number {
    return this.#pending.inFlight;
  }

  async request(request: LinkRequest, signal?: AbortSignal): Promise<readonly ExtentDescriptor[]> {
    if (!this.isOpen) throw this.#endError();
    return await this.#pending.submit(request, signal, (pending) => this.#send(pending));
  }

  async close(): Promise<void> {
    if (!this.isOpen) return void (await this.closed);
    this.#machine.step('close');
    const bytes = Buffer.alloc(REQUEST_LENGTH);
    encodeRequest(viewOf(bytes), 0, {
      command: COMMAND.DISC,
      flags: 0,
      cookieHi: 0,
      cookieLo: 0,
      offset: 0n,
      length: 0,
    });
    this.#stream.write(bytes);
    const timer = setTimeout(() => this.#reader.cancel(), CLOSE_MS);
    await this.closed;
    clearTimeout(timer);
  }

  destroy(error: Error): void {
    this.#cause ??= error;
    this.#stream.destroy();
    this.#reader.cancel();
  }

  #endError(): Error {
    return this.#cause ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the NBD connection has been closed');
  }

  #send({ slot, use, request }: Pending): void {
    const { command, flags, offset, length, data } = request;
    const bytes = Buffer.allocUnsafe(REQUEST_LENGTH);
    encodeRequest(viewOf(bytes), 0, { command, flags, cookieHi: use, cookieLo: slot, offset, length });
    if (!this.#corked) {
      this.#corked = true;
      this.#stream.cork();
      nextTick(() => {
        this.#corked = false;
        this.#stream.uncork();
      });
    }
    this.#stream.write(bytes);
    if (command === COMMAND.WRITE && length > 0) this.#stream.write(data);
  }

  async #run(): Promise<void> {
    let error: Error | undefined;
    try {
      while (await this.#reply());
      const isDone = this.#machine.state === 'draining' && this.#pending.inFlight === 0;
      if (!isDone)
        error = this.#cause ?? new IwarpError('ERR_CONNECTION_RESET', 'the NBD connection was lost');
      this.#machine.step('end');
    } catch (thrown) {
      error = thrown as Error;
      this.#machine.step('bad-frame');
    }
    this.#cause ??= error;
    this.#stream.destroy();
    this.#pending.end(error);
    this.#resolveClosed(error);
  }

  /** One reply; false at the end of the stream. Throws ERR_PROTOCOL. */
  async #reply(): Promise<boolean> {
    const head = this.#reader.take(REPLY_HEAD) ?? (await this.#reader.exactly(REPLY_HEAD));
    if (head === null) return false;
    const view = viewOf(head);
    const magic = view.getUint32(0);
    if (magic === SIMPLE_REPLY_MAGIC)
      return await this.#simple(view.getUint32(4), this.#find(view.getUint32(8), view.getUint32(12)));
    if (magic !== STRUCTURED_REPLY_MAGIC || !this.info.structured)
      throw protocolError('the server has sent something else than a reply');
    const rest = await this.#reader.exactly(CHUNK_HEADER_LENGTH - REPLY_HEAD);
    if (rest === null) return false;
    const whole = Buffer.concat([head, rest]);
    return await this.#chunk(viewOf(whole));
  }

  #find(cookieHi: number, cookieLo: number): Pending {
    const pending = this.#pending.find(cookieHi, cookieLo);
    if (pending === null) throw protocolError('the server has answered a request that is not under way');
    return pending;
  }

  async #simple(error: number, pending: Pending): Promise<boolean> {
    const { command, data, length } = pending.request;
    const needsChunks = command === COMMAND.READ || command === COMMAND.BLOCK_STATUS;
    if (needsChunks && this.info.structured)
      throw protocolError('the server has sent a simple reply where it agreed on a structured one');
    if (error === 0 && command === COMMAND.READ && !(await this.#data(pending, data.subarray(0, length))))
      return false;
    this.#pending.settle(pending, error === 0 ? null : errorOfReply(error, describe(pending)));
    return true;
  }

  /** The memory of a caller that has given up is its own again. */
  async #data(pending: Pending, into: Uint8Array): Promise<boolean> {
    if (pending.isAbandoned) return await this.#reader.skip(into.length);
    const held = this.#reader.take(into.length);
    if (held === null) {
      // The caller may give up while bytes arrive, so that they go through memory of ours if it can.
      if (pending.stop === null) return await this.#reader.fill(into);
      const bytes = await this.#reader.exactly(into.length);
      if (bytes === null) return false;
      if (!pending.isAbandoned) putBytes(bytes, into, 0);
      return true;
    }
    putBytes(held, into, 0);
    return true;
  }

  async #chunk(view: DataView): Promise<boolean> {
    const { flags, type, cookieHi, cookieLo, length } = decodeChunkHeader(view);
    const pending = this.#find(cookieHi, cookieLo);
    const isDone = (flags & CHUNK_FLAG_DONE) !== 0;
    if ((flags & ~CHUNK_FLAG_DONE) !== 0) throw protocolError(`a chunk has unknown flags ${flags}`);
    if (type === CHUNK.OFFSET_DATA) {
      if (!(await this.#offsetData(pending, length))) return false;
    } else {
      if (length > MAX_CHUNK) throw protocolError(`a chunk of type ${type} has ${length} bytes`);
      const data = length === 0 ? new Uint8Array(0) : await this.#reader.exactly(length);
      if (data === null) return false;
      this.#plainChunk(pending, type, data, isDone);
    }
    if (isDone) this.#finish(pending);
    return true;
  }

  async #offsetData(pending: Pending, length: number): Promise<boolean> {
    if (pending.request.command !== COMMAND.READ || length <= 8)
      throw protocolError('the server has sent data that was not asked for');
    const head = await this.#reader.exactly(8);
    if (head === null) return false;
    return await this.#data(pending, this.#part(pending, viewOf(head).getBigUint64(0), length - 8));
  }

  /** The part of the caller's memory that a chunk is for. */
  #part(pending: Pending, offset: bigint, length: number): Uint8Array {
    const { request } = pending;
    const at = offset - request.offset;
    if (at < 0n || at + BigInt(length) > BigInt(request.length) || pending.filled + length > request.length)
      throw protocolError('the server has sent data outside the range that was asked for');
    pending.filled += length;
    return request.data.subarray(Number(at), Number(at) + length);
  }

  #plainChunk(pending: Pending, type: number, data: Uint8Array, isDone: boolean): void {
    const { command } = pending.request;
    if ((type & CHUNK_ERROR_BIT) !== 0) {
      const error = decodeChunkError(data, type);
      if (error === null) throw protocolError('the server has sent a malformed error');
      pending.error ||= error;
    } else if (type === CHUNK.NONE) {
      if (!isDone || data.length > 0) throw protocolError('the server has sent a malformed last chunk');
    } else if (type === CHUNK.OFFSET_HOLE && command === COMMAND.READ && data.length === 12) {
      const view = viewOf(data);
      const part = this.#part(pending, view.getBigUint64(0), view.getUint32(8));
      if (!pending.isAbandoned) part.fill(0);
    } else if (type === CHUNK.BLOCK_STATUS && command === COMMAND.BLOCK_STATUS) {
      const status = decodeExtents(data);
      if (status === null || status.context !== this.#context || pending.extents.length > 0)
        throw protocolError('the server has sent a malformed block status');
      pending.extents.push(...status.extents);
    } else {
      throw protocolError(`the server has sent a chunk of type ${type} for command ${command}`);
    }
  }

  #finish(pending: Pending): void {
    const { command, length } = pending.request;
    const missing =
      (command === COMMAND.READ && pending.filled !== length) ||
      (command === COMMAND.BLOCK_STATUS && pending.extents.length === 0);
    if (pending.error === 0 && missing) throw protocolError('a reply has ended before all of it was sent');
    this.#pending.settle(
      pending,
      pending.error === 0 ? null : errorOfReply(pending.error, describe(pending)),
    );
  }
}

/** A request as error messages name it. */
export function describe({ request: { command, offset, length } }: Pending): string {
  const name = Object.entries(COMMAND).find(([, value]) => value === command)?.[0] ?? String(command);
  return `${name} of ${length} bytes at ${offset}`;
}
