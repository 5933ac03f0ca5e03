/**
 * The server's half of the fixed newstyle handshake. It reads options, answers them, and ends with an export
 * to serve or with a reason to close.
 */
import { clearTimeout, setTimeout } from 'node:timers';
import { Buffer } from 'node:buffer';
import type { Duplex } from 'node:stream';
import type { Machine } from '../base/fsm.ts';
import type { ByteReader } from './byte-reader.ts';
import type { ExportTable, OpenExport } from './exports.ts';
import type { ServerInput, ServerState } from './negotiation.ts';
import { blocksOf, flagsOf } from './requests.ts';
import {
  ALLOCATION_CONTEXT,
  CLIENT_FLAG,
  CLIENT_FLAGS_LENGTH,
  decodeGo,
  decodeMetaQueries,
  decodeOptionHeader,
  decodeText,
  encodeGreeting,
  encodeInfoBlockSize,
  encodeInfoExport,
  encodeInfoText,
  encodeMetaContext,
  encodeOptionReply,
  encodeServerName,
  EXPORT_NAME_ZEROES,
  HANDSHAKE_FLAG,
  INFO,
  MAX_NAME_LENGTH,
  MAX_OPTION_LENGTH,
  MAX_OPTIONS,
  OPTION,
  OPTION_HEADER_LENGTH,
  REPLY,
  viewOf,
} from './wire.ts';

/** What a handshake has led to. */
export interface HandshakeResult {
  readonly export: OpenExport;
  readonly structured: boolean;
  readonly blockStatus: boolean;
}

/** Identifier of base:allocation on every connection. */
export const ALLOCATION_ID = 1;

export class ServerHandshake {
  readonly #stream: Duplex;
  readonly #reader: ByteReader;
  readonly #exports: ExportTable;
  readonly #machine: Machine<ServerState, ServerInput>;
  readonly #patience: number;
  #noZeroes = false;
  #structured = false;
  /** Export for which base:allocation was chosen; null if it was not. */
  #contextOf: string | null = null;
  #silent = false;

  constructor(
    stream: Duplex,
    reader: ByteReader,
    exports: ExportTable,
    machine: Machine<ServerState, ServerInput>,
    patience: number,
  ) {
    this.#stream = stream;
    this.#reader = reader;
    this.#exports = exports;
    this.#machine = machine;
    this.#patience = patience;
  }

  /** Null once the machine is closed. */
  async run(): Promise<HandshakeResult | null> {
    const { FIXED_NEWSTYLE, NO_ZEROES } = HANDSHAKE_FLAG;
    this.#stream.write(encodeGreeting(FIXED_NEWSTYLE | NO_ZEROES));
    const bytes = await this.#read(CLIENT_FLAGS_LENGTH);
    if (bytes === null) return null;
    const flags = viewOf(bytes).getUint32(0);
    if ((flags & ~(CLIENT_FLAG.FIXED_NEWSTYLE | CLIENT_FLAG.NO_ZEROES)) !== 0)
      return this.#close('bad-frame');
    this.#noZeroes = (flags & CLIENT_FLAG.NO_ZEROES) !== 0;
    this.#machine.step('client-flags');
    for (let options = 0; options < MAX_OPTIONS; options++) {
      const result = await this.#option();
      if (result !== null || this.#machine.state === 'closed') return result;
    }
    return this.#close('bad-frame');
  }

  /** Bytes within the time that a handshake has for each frame; null closes the machine. */
  async #read(length: number): Promise<Uint8Array | null> {
    const timer = setTimeout(() => {
      this.#silent = true;
      this.#reader.cancel();
    }, this.#patience);
    const bytes = await this.#reader.exactly(length);
    clearTimeout(timer);
    return bytes ?? this.#close(this.#silent ? 'silence' : 'end');
  }

  #close(input: ServerInput): null {
    this.#machine.step(input);
    return null;
  }

  /** One option. A result ends the handshake; null with an open machine means: go on. */
  async #option(): Promise<HandshakeResult | null> {
    const head = await this.#read(OPTION_HEADER_LENGTH);
    if (head === null) return null;
    const header = decodeOptionHeader(head);
    if (header === null) return this.#close('bad-frame');
    const { option, length } = header;
    if (length > MAX_OPTION_LENGTH) return await this.#tooLong(option, length);
    const data = length === 0 ? new Uint8Array(0) : await this.#read(length);
    if (data === null) return null;
    switch (option) {
      case OPTION.EXPORT_NAME:
        return await this.#exportName(data);
      case OPTION.ABORT:
        this.#reply(option, REPLY.ACK);
        return this.#close('abort');
      case OPTION.GO:
      case OPTION.INFO:
        return await this.#go(option, data);
      case OPTION.LIST:
        this.#list(data);
        break;
      case OPTION.STRUCTURED_REPLY:
        this.#structured ||= data.length === 0;
        this.#reply(option, data.length === 0 ? REPLY.ACK : REPLY.ERR_INVALID);
        break;
      case OPTION.LIST_META_CONTEXT:
      case OPTION.SET_META_CONTEXT:
        await this.#metaContext(option, data);
        break;
      default:
        this.#reply(option, REPLY.ERR_UNSUP);
    }
    this.#machine.step('option');
    return null;
  }

  /** Data that no option of ours needs is skipped up to a bound, so that the client hears why. */
  async #tooLong(option: number, length: number): Promise<null> {
    if (option === OPTION.EXPORT_NAME || length > 16 * MAX_OPTION_LENGTH) return this.#close('bad-frame');
    if ((await this.#read(length)) === null) return null;
    this.#reply(option, REPLY.ERR_TOO_BIG);
    this.#machine.step('option');
    return null;
  }

  /** EXPORT_NAME has no form for an error: the connection ends. */
  async #exportName(data: Uint8Array): Promise<HandshakeResult | null> {
    const name = data.length > MAX_NAME_LENGTH ? null : decodeText(data);
    const found = name === null ? null : await this.#exports.open(name);
    if (found === null) return this.#close('bad-frame');
    const reply = Buffer.alloc(10 + (this.#noZeroes ? 0 : EXPORT_NAME_ZEROES));
    reply.writeBigUInt64BE(found.device.size, 0);
    reply.writeUInt16BE(flagsOf(found.device, this.#structured), 8);
    this.#stream.write(reply);
    return this.#finish(found, name!);
  }

  async #go(option: number, data: Uint8Array): Promise<HandshakeResult | null> {
    const request = decodeGo(data);
    if (request === null || Buffer.byteLength(request.name) > MAX_NAME_LENGTH) {
      this.#reply(option, request === null ? REPLY.ERR_INVALID : REPLY.ERR_TOO_BIG);
      this.#machine.step('option');
      return null;
    }
    const found = await this.#exports.open(request.name);
    if (found === null) {
      this.#reply(option, REPLY.ERR_UNKNOWN, `there is no export ${JSON.stringify(request.name)}`);
      this.#machine.step('option');
      return null;
    }
    const { device, name } = found;
    this.#reply(option, REPLY.INFO, encodeInfoExport(device.size, flagsOf(device, this.#structured)));
    if (request.infos.includes(INFO.NAME)) this.#reply(option, REPLY.INFO, encodeInfoText(INFO.NAME, name));
    if (request.infos.includes(INFO.BLOCK_SIZE))
      this.#reply(option, REPLY.INFO, encodeInfoBlockSize(blocksOf(device)));
    this.#reply(option, REPLY.ACK);
    if (option === OPTION.GO) return this.#finish(found, request.name);
    await found.release().catch(() => undefined);
    this.#machine.step('option');
    return null;
  }

  #finish(found: OpenExport, asked: string): HandshakeResult {
    this.#machine.step('go');
    // A context counts for the export that it was chosen for, by the name that the client gave.
    return { export: found, structured: this.#structured, blockStatus: this.#contextOf === asked };
  }

  #list(data: Uint8Array): void {
    if (data.length > 0) return this.#reply(OPTION.LIST, REPLY.ERR_INVALID);
    for (const name of this.#exports.names) this.#reply(OPTION.LIST, REPLY.SERVER, encodeServerName(name));
    this.#reply(OPTION.LIST, REPLY.ACK);
  }

  async #metaContext(option: number, data: Uint8Array): Promise<void> {
    const set = option === OPTION.SET_META_CONTEXT;
    if (set) this.#contextOf = null;
    const request = decodeMetaQueries(data);
    if (request === null || !this.#structured) return this.#reply(option, REPLY.ERR_INVALID);
    const found = await this.#exports.open(request.name);
    if (found === null) return this.#reply(option, REPLY.ERR_UNKNOWN);
    await found.release().catch(() => undefined);
    const { queries, name } = request;
    // A list may ask for everything, or for all of a namespace.
    const asked = set
      ? queries.includes(ALLOCATION_CONTEXT)
      : queries.length === 0 || queries.some((query) => query === ALLOCATION_CONTEXT || query === 'base:');
    if (asked)
      this.#reply(option, REPLY.META_CONTEXT, encodeMetaContext(set ? ALLOCATION_ID : 0, ALLOCATION_CONTEXT));
    if (asked && set) this.#contextOf = name;
    this.#reply(option, REPLY.ACK);
  }

  #reply(option: number, reply: number, data: Uint8Array | string = new Uint8Array(0)): void {
    const bytes = typeof data === 'string' ? Buffer.from(data) : data;
    this.#stream.write(encodeOptionReply(option, reply, bytes));
  }
}
