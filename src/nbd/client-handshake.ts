/** The client's half of the handshake: structured replies, base:allocation, GO, or EXPORT_NAME. */
import { Buffer } from 'node:buffer';
import { clearTimeout, setTimeout } from 'node:timers';
import type { Duplex } from 'node:stream';
import { IwarpError } from '../base/errors.ts';
import type { Machine } from '../base/fsm.ts';
import type { ByteReader } from './byte-reader.ts';
import { protocolError } from './errors.ts';
import type { ExportInfo } from './link.ts';
import type { ClientInput, ClientState } from './negotiation.ts';
import {
  ALLOCATION_CONTEXT,
  CLIENT_FLAG,
  decodeGreeting,
  decodeInfo,
  decodeOptionReplyHeader,
  decodeServerName,
  decodeText,
  DEFAULT_MAXIMUM,
  encodeClientFlags,
  encodeGo,
  encodeMetaQueries,
  encodeOption,
  EXPORT_NAME_ZEROES,
  GREETING_LENGTH,
  HANDSHAKE_FLAG,
  INFO,
  isErrorReply,
  OPTION,
  OPTION_REPLY_HEADER_LENGTH,
  REPLY,
  viewOf,
  type BlockSizes,
} from './wire.ts';

/** Longest data of one reply, and most replies to one option. */
const MAX_REPLY_LENGTH = 65_536;
const MAX_REPLIES = 10_000;
/** What holds where a server says nothing of its limits. */
const UNSTATED: BlockSizes = { minimum: 1, preferred: 4096, maximum: DEFAULT_MAXIMUM };

interface OptionReply {
  readonly reply: number;
  readonly data: Uint8Array;
}

export class ClientHandshake {
  readonly #stream: Duplex;
  readonly #reader: ByteReader;
  readonly #machine: Machine<ClientState, ClientInput>;
  readonly #patience: number;
  #noZeroes = false;
  #silent = false;
  /** Identifier of base:allocation; null if it is not agreed on. */
  context: number | null = null;

  constructor(
    stream: Duplex,
    reader: ByteReader,
    machine: Machine<ClientState, ClientInput>,
    patience: number,
  ) {
    this.#stream = stream;
    this.#reader = reader;
    this.#machine = machine;
    this.#patience = patience;
  }

  /**
   * Resolves in the transmission phase. Rejects with ERR_PROTOCOL, ERR_REJECTED, ERR_TIMEOUT or
   * ERR_CONNECTION_CLOSED.
   */
  async run(name: string): Promise<ExportInfo> {
    if (!(await this.#greet())) return await this.#exportName(name, false);
    const structured = await this.#askFor(OPTION.STRUCTURED_REPLY);
    this.#machine.step(structured ? 'agreed' : 'unsupported');
    if (structured) {
      this.context = await this.#metaContext(name);
      this.#machine.step(this.context === null ? 'unsupported' : 'agreed');
    }
    return await this.#go(name, structured);
  }

  /** Names of the exports that a server lists. The connection has ended afterwards. */
  async list(): Promise<string[]> {
    if (!(await this.#greet()))
      throw this.#fail(
        'bad-frame',
        new IwarpError('ERR_NOT_SUPPORTED', 'the server cannot list its exports'),
      );
    const names: string[] = [];
    this.#stream.write(encodeOption(OPTION.LIST));
    for await (const { reply, data } of this.#replies(OPTION.LIST)) {
      if (isErrorReply(reply)) throw this.#refused('LIST', data);
      const name = reply === REPLY.SERVER ? decodeServerName(data) : null;
      if (reply === REPLY.SERVER && name === null) throw this.#bad('a malformed reply to LIST');
      if (name !== null) names.push(name);
    }
    this.#stream.write(encodeOption(OPTION.ABORT));
    return names;
  }

  /** False for a server that knows EXPORT_NAME only. */
  async #greet(): Promise<boolean> {
    const flags = decodeGreeting(await this.#read(GREETING_LENGTH));
    if (flags === null) throw this.#bad('a greeting that is not newstyle');
    const fixed = (flags & HANDSHAKE_FLAG.FIXED_NEWSTYLE) !== 0;
    this.#noZeroes = (flags & HANDSHAKE_FLAG.NO_ZEROES) !== 0;
    const ours = (fixed ? CLIENT_FLAG.FIXED_NEWSTYLE : 0) | (this.#noZeroes ? CLIENT_FLAG.NO_ZEROES : 0);
    this.#stream.write(encodeClientFlags(ours));
    this.#machine.step(fixed ? 'fixed-greeting' : 'plain-greeting');
    return fixed;
  }

  async #askFor(option: number): Promise<boolean> {
    this.#stream.write(encodeOption(option));
    for await (const { reply } of this.#replies(option)) return !isErrorReply(reply);
    return true;
  }

  async #metaContext(name: string): Promise<number | null> {
    const option = OPTION.SET_META_CONTEXT;
    this.#stream.write(encodeOption(option, encodeMetaQueries(name, [ALLOCATION_CONTEXT])));
    let context: number | null = null;
    for await (const { reply, data } of this.#replies(option)) {
      if (isErrorReply(reply)) return null;
      if (reply !== REPLY.META_CONTEXT) continue;
      if (data.length < 4 || decodeText(data.subarray(4)) !== ALLOCATION_CONTEXT)
        throw this.#bad('a context that was not asked for');
      context = viewOf(data).getUint32(0);
    }
    return context;
  }

  async #go(name: string, structured: boolean): Promise<ExportInfo> {
    this.#stream.write(encodeOption(OPTION.GO, encodeGo(name, [INFO.BLOCK_SIZE])));
    let found: { readonly size: bigint; readonly flags: number } | null = null;
    let blocks = UNSTATED;
    for await (const { reply, data } of this.#replies(OPTION.GO)) {
      if (reply === REPLY.ERR_UNSUP) {
        this.#machine.step('unsupported');
        return await this.#exportName(name, structured);
      }
      if (isErrorReply(reply)) throw this.#refused(`export ${JSON.stringify(name)}`, data);
      if (reply !== REPLY.INFO) continue;
      const info = decodeInfo(data);
      if (info === null) throw this.#bad('malformed information on the export');
      if (info.kind === 'export') found = info;
      if (info.kind === 'block-size') blocks = info.blocks;
    }
    if (found === null) throw this.#bad('no size of the export');
    return this.#agreed(name, found.size, found.flags, blocks, structured);
  }

  async #exportName(name: string, structured: boolean): Promise<ExportInfo> {
    this.#stream.write(encodeOption(OPTION.EXPORT_NAME, Buffer.from(name)));
    const view = viewOf(await this.#read(10));
    if (!this.#noZeroes) await this.#read(EXPORT_NAME_ZEROES);
    return this.#agreed(name, view.getBigUint64(0), view.getUint16(8), UNSTATED, structured);
  }

  #agreed(name: string, size: bigint, flags: number, blocks: BlockSizes, structured: boolean): ExportInfo {
    if (size >= 1n << 63n) throw this.#bad(`a size of ${size} bytes`);
    this.#machine.step('agreed');
    return { name, size, flags, blocks, structured, blockStatus: this.context !== null };
  }

  /** Replies to an option up to the last one, an error included; ACK is not among them. */
  async *#replies(option: number): AsyncGenerator<OptionReply> {
    for (let count = 0; count < MAX_REPLIES; count++) {
      const header = decodeOptionReplyHeader(await this.#read(OPTION_REPLY_HEADER_LENGTH));
      if (header === null || header.option !== option)
        throw this.#bad('no reply to the option that was sent');
      if (header.length > MAX_REPLY_LENGTH) throw this.#bad(`a reply of ${header.length} bytes`);
      const data = header.length === 0 ? new Uint8Array(0) : await this.#read(header.length);
      if (header.reply === REPLY.ACK) return;
      yield { reply: header.reply, data };
      if (isErrorReply(header.reply)) return;
    }
    throw this.#bad('replies without an end');
  }

  async #read(length: number): Promise<Uint8Array> {
    const timer = setTimeout(() => {
      this.#silent = true;
      this.#reader.cancel();
    }, this.#patience);
    const bytes = await this.#reader.exactly(length);
    clearTimeout(timer);
    if (bytes !== null) return bytes;
    throw this.#silent
      ? this.#fail('silence', new IwarpError('ERR_TIMEOUT', 'the server is silent during the handshake'))
      : this.#fail(
          'end',
          new IwarpError(
            'ERR_CONNECTION_CLOSED',
            'the server has closed the connection during the handshake',
          ),
        );
  }

  #bad(what: string): IwarpError {
    return this.#fail('bad-frame', protocolError(`the server has sent ${what}`));
  }

  #refused(what: string, data: Uint8Array): IwarpError {
    const text = decodeText(data) ?? '';
    const reason = text === '' ? '' : `: ${text}`;
    const error = new IwarpError('ERR_REJECTED', `${what}: the server has refused${reason}`);
    return this.#machine.accepts('refused') ? this.#fail('refused', error) : this.#fail('bad-frame', error);
  }

  #fail(input: ClientInput, error: IwarpError): IwarpError {
    this.#machine.step(input);
    this.#stream.destroy();
    return error;
  }
}
