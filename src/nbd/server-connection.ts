/**
 * One connection of a server over a byte stream: handshake, then requests until DISC or the end. Requests are
 * read in order and answered as the device finishes them.
 */
import { AbortController } from '../base/host.ts';
import { clearTimeout, setTimeout } from 'node:timers';
import { Buffer } from 'node:buffer';
import { nextTick } from 'node:process';
import type { Duplex } from 'node:stream';
import { Machine } from '../base/fsm.ts';
import { ByteReader } from './byte-reader.ts';
import { numberOf, protocolError } from './errors.ts';
import type { ExportTable } from './exports.ts';
import { SERVER_NEGOTIATION_TABLE, type ServerInput, type ServerState } from './negotiation.ts';
import { blocksOf, checkRequest, extentsOf, memoryOf, perform, type Agreement } from './requests.ts';
import { ALLOCATION_ID, ServerHandshake, type HandshakeResult } from './server-handshake.ts';
import { reportClose, reportOpen, reportRequest, type NbdStats, type Reporter } from './stats.ts';
import {
  CHUNK,
  CHUNK_FLAG_DONE,
  CHUNK_HEADER_LENGTH,
  COMMAND,
  decodeRequest,
  encodeChunkError,
  encodeChunkHeader,
  encodeExtents,
  encodeSimpleReply,
  REQUEST_LENGTH,
  SIMPLE_REPLY_LENGTH,
  viewOf,
  type RequestHeader,
} from './wire.ts';

/** Times and bounds of a connection. */
interface ConnectionLimits {
  /** Milliseconds for each frame of a handshake. */
  readonly handshakeTimeout: number;
  /** Milliseconds that a device has for a request. */
  readonly requestTimeout: number;
}

/** Requests that a device works on at a time; further ones wait in the stream. */
const MAX_IN_FLIGHT = 128;
/** Bytes of requests that a device works on at a time: one of the longest always fits. */
const MAX_BYTES = 64 * 1024 * 1024;
/** Bytes of replies that wait for a slow client before its requests do. */
const MAX_UNSENT = 32 * 1024 * 1024;

const EMPTY = new Uint8Array(0);

export class ServerConnection {
  readonly #stream: Duplex;
  readonly #reader: ByteReader;
  readonly #machine: Machine<ServerState, ServerInput> = new Machine(SERVER_NEGOTIATION_TABLE);
  readonly #exports: ExportTable;
  readonly #limits: ConnectionLimits;
  readonly #reporter: Reporter;
  readonly #abort = new AbortController();
  #agreed: Agreement = { structured: false, blockStatus: false, maximum: 0 };
  #requests = 0;
  #bytes = 0;
  /** Wakes the loop that waits until less is under way. */
  #wake: (() => void) | null = null;
  #corked = false;

  constructor(stream: Duplex, exports: ExportTable, stats: NbdStats, limits: ConnectionLimits) {
    this.#stream = stream;
    this.#exports = exports;
    this.#limits = limits;
    this.#reporter = { stats, role: 'server', transport: 'stream', exportName: '' };
    // The stream's end is seen by the reader; a lost client is no error of the server.
    stream.on('error', () => undefined);
    stream.once('close', () => {
      this.#abort.abort();
      this.#wakeUp();
    });
    stream.on('drain', () => this.#wakeUp());
    this.#reader = new ByteReader(stream);
  }

  get state(): ServerState {
    return this.#machine.state;
  }

  /** Serve until the connection has ended. Never rejects for anything that the client or the device does. */
  async run(): Promise<void> {
    const { handshakeTimeout } = this.#limits;
    const handshake = new ServerHandshake(
      this.#stream,
      this.#reader,
      this.#exports,
      this.#machine,
      handshakeTimeout,
    );
    const result = await handshake.run();
    if (result === null) {
      this.#reporter.stats.failedHandshakes++;
      this.#stream.end();
      // A client that has been silent, or sends something other than a handshake, is not waited for.
      this.#destroyIn(100);
      return;
    }
    await this.#serve(result);
  }

  /** End the connection although the client still uses it. */
  destroy(): void {
    this.#stream.destroy();
  }

  async #serve({ export: open, structured, blockStatus }: HandshakeResult): Promise<void> {
    const { device, name, release } = open;
    this.#reporter.exportName = name;
    this.#agreed = { structured, blockStatus, maximum: blocksOf(device).maximum };
    reportOpen(this.#reporter);
    let cause: Error | undefined;
    for (;;) {
      const bytes = this.#reader.take(REQUEST_LENGTH) ?? (await this.#reader.exactly(REQUEST_LENGTH));
      const request = bytes === null ? null : decodeRequest(viewOf(bytes));
      if (bytes !== null && request === null) {
        cause = protocolError('the client has sent something else than a request');
        this.#machine.step('bad-frame');
        break;
      }
      if (request === null || request.command === COMMAND.DISC) {
        this.#machine.step(request === null ? 'end' : 'disconnect');
        break;
      }
      const admitted = this.#admit(request.length);
      if (admitted !== null) await admitted;
      const payload = this.#handle(device, request);
      if (payload !== null) await payload;
    }
    if (this.#machine.state === 'draining') await this.#drain();
    else this.#stream.destroy();
    await release().catch(() => undefined);
    reportClose(this.#reporter, cause);
  }

  /** Answer the requests under way, then close. */
  async #drain(): Promise<void> {
    while (this.#requests > 0 && !this.#stream.destroyed) await this.#sleep();
    this.#machine.step('drained');
    this.#uncork();
    this.#stream.end();
    this.#destroyIn(5_000);
  }

  /** A client that does not close is not waited for. */
  #destroyIn(milliseconds: number): void {
    const timer = setTimeout(() => this.#stream.destroy(), milliseconds).unref();
    this.#stream.once('close', () => clearTimeout(timer));
  }

  /** Null if there is room for another request, else a promise of it. */
  #admit(length: number): Promise<void> | null {
    return this.#isFull(length) ? this.#room(length) : null;
  }

  #isFull(length: number): boolean {
    if (this.#stream.destroyed) return false;
    const isBusy =
      this.#requests >= MAX_IN_FLIGHT || (this.#requests > 0 && this.#bytes + length > MAX_BYTES);
    return isBusy || this.#stream.writableLength > MAX_UNSENT;
  }

  async #room(length: number): Promise<void> {
    while (this.#isFull(length)) await this.#sleep();
  }

  #sleep(): Promise<void> {
    this.#uncork();
    return new Promise((resolve) => (this.#wake = resolve));
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }

  /** Null if the request needs nothing more from the stream, else a promise of that. */
  #handle(device: ExportDevice, request: RequestHeader): Promise<void> | null {
    const error = checkRequest(device, request, this.#agreed);
    const { command, offset, length } = request;
    if (command === COMMAND.WRITE) return this.#write(device, request, error);
    if (error !== 0) {
      this.#answer(request, error, EMPTY);
      return null;
    }
    const memory = command === COMMAND.READ ? memoryOf(device, offset, length) : null;
    if (memory !== null) this.#answer(request, 0, memory);
    else if (command === COMMAND.BLOCK_STATUS) void this.#blockStatus(device, request);
    else void this.#perform(device, request, command === COMMAND.READ ? Buffer.allocUnsafe(length) : EMPTY);
    return null;
  }

  /** The payload is read even if the request is refused: the next request lies behind it. */
  async #write(device: ExportDevice, request: RequestHeader, error: number): Promise<void> {
    const { offset, length } = request;
    if (error !== 0) {
      if (await this.#reader.skip(length)) this.#answer(request, error, EMPTY);
      return;
    }
    const memory = memoryOf(device, offset, length);
    const data = memory ?? Buffer.allocUnsafe(length);
    if (!(await this.#reader.fill(data))) return;
    if (memory !== null) this.#answer(request, 0, EMPTY);
    else void this.#perform(device, request, data);
  }

  async #perform(device: ExportDevice, request: RequestHeader, data: Uint8Array): Promise<void> {
    await this.#during(request, async () => {
      await perform(device, request, data, this.#abort.signal, this.#limits.requestTimeout);
      this.#answer(request, 0, request.command === COMMAND.READ ? data : EMPTY);
    });
  }

  async #blockStatus(device: ExportDevice, request: RequestHeader): Promise<void> {
    await this.#during(request, async () => {
      const data = encodeExtents(
        ALLOCATION_ID,
        await extentsOf(device, request, this.#limits.requestTimeout),
      );
      this.#sendChunk(request, CHUNK.BLOCK_STATUS, data, EMPTY);
      this.#report(request, 0);
    });
  }

  /** Counts a request as under way while `work` lasts; its failure is answered. */
  async #during(request: RequestHeader, work: () => Promise<void>): Promise<void> {
    const length = request.command === COMMAND.READ || request.command === COMMAND.WRITE ? request.length : 0;
    this.#requests++;
    this.#bytes += length;
    try {
      await work();
    } catch (error) {
      this.#answer(request, numberOf(error), EMPTY);
    } finally {
      this.#requests--;
      this.#bytes -= length;
      this.#wakeUp();
    }
  }

  #report({ command, offset, length }: RequestHeader, error: number): void {
    reportRequest(this.#reporter, command, offset, length, error);
  }

  /** Replies of one turn leave in one write. */
  #answer(request: RequestHeader, error: number, data: Uint8Array): void {
    this.#report(request, error);
    const { cookieHi, cookieLo, command } = request;
    const structured =
      this.#agreed.structured && (command === COMMAND.READ || command === COMMAND.BLOCK_STATUS);
    if (structured) {
      if (error === 0) this.#sendChunk(request, CHUNK.OFFSET_DATA, offsetBytes(request.offset), data);
      else this.#sendChunk(request, CHUNK.ERROR, encodeChunkError(error, ''), EMPTY);
      return;
    }
    const bytes = Buffer.allocUnsafe(SIMPLE_REPLY_LENGTH);
    encodeSimpleReply(viewOf(bytes), 0, error, cookieHi, cookieLo);
    this.#send(bytes, error === 0 ? data : EMPTY);
  }

  /** The only chunk of a structured reply: `head` and `data` together are its payload. */
  #sendChunk(request: RequestHeader, type: number, head: Uint8Array, data: Uint8Array): void {
    const bytes = Buffer.allocUnsafe(CHUNK_HEADER_LENGTH + head.length);
    const { cookieHi, cookieLo } = request;
    const length = head.length + data.length;
    encodeChunkHeader(viewOf(bytes), 0, { flags: CHUNK_FLAG_DONE, type, cookieHi, cookieLo, length });
    bytes.set(head, CHUNK_HEADER_LENGTH);
    this.#send(bytes, data);
  }

  #send(head: Uint8Array, data: Uint8Array): void {
    if (this.#stream.destroyed || !this.#stream.writable) return;
    if (!this.#corked) {
      this.#corked = true;
      this.#stream.cork();
      nextTick(() => this.#uncork());
    }
    this.#stream.write(head);
    if (data.length > 0) this.#stream.write(data);
  }

  #uncork(): void {
    if (!this.#corked) return;
    this.#corked = false;
    this.#stream.uncork();
  }
}

type ExportDevice = HandshakeResult['export']['device'];

function offsetBytes(offset: bigint): Uint8Array {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64BE(offset);
  return bytes;
}
