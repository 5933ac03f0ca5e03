/** A client's connection over a queue pair, in message or direct mode. */
import { Buffer } from 'node:buffer';
import { clearTimeout, setTimeout } from 'node:timers';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import { defaultRnic, type Rnic } from '../api/environment.ts';
import { attemptError, RejectedError } from '../api/errors.ts';
import { putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import type { CmEvent } from '../cm/index.ts';
import { ACCESS, type MemoryRegion } from '../verbs/index.ts';
import { errorOfReply, protocolError } from './errors.ts';
import type { ExportInfo, LinkRequest, NbdLink } from './link.ts';
import { PendingTable, type Pending } from './pending.ts';
import { QpPort, type QpPortOwner } from './qp-port.ts';
import {
  decodeGrant,
  decodeRefusal,
  decodeSimpleReply,
  DIRECT_REQUEST_LENGTH,
  encodeRemoteMemory,
  encodeSetup,
  MESSAGE_MAXIMUM,
  NO_MEMORY,
  QP_MAX_DEPTH,
  QP_MAX_NAME,
  QP_MAX_READS,
  QP_VERSION,
  type QpMode,
} from './qp-wire.ts';
import { describe } from './stream-link.ts';
import {
  COMMAND,
  encodeRequest,
  REQUEST_LENGTH,
  SIMPLE_REPLY_LENGTH,
  viewOf,
  type ExtentDescriptor,
} from './wire.ts';

/** Milliseconds that a server has for closing after DISC. */
const CLOSE_MS = 5_000;

/** Options of a client's end of a queue pair. */
interface QpLinkOptions {
  readonly host: string;
  readonly port: number;
  readonly name: string;
  readonly mode: QpMode;
  readonly depth: number;
  readonly handshakeTimeout: number;
  readonly rnic: Rnic | undefined;
  readonly policy: Partial<ConnectionPolicy> | undefined;
}

/** Rejects with ERR_CONNECT, ERR_REJECTED, ERR_STARTUP, ERR_TIMEOUT or ERR_PROTOCOL. */
export async function openQpLink(options: QpLinkOptions): Promise<QpLink> {
  const { name, depth } = options;
  if (Buffer.byteLength(name) > QP_MAX_NAME)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.uri: the name of an export has at most ${QP_MAX_NAME} bytes over queue pairs`,
    );
  if (depth > QP_MAX_DEPTH)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.depth must be at most ${QP_MAX_DEPTH}`);
  const link = new QpLink(options);
  await link.opened;
  return link;
}

/** A request on its way into a work request, which copies it. */
const DIRECT_REQUEST = new Uint8Array(DIRECT_REQUEST_LENGTH);
const SHORT_REQUEST = DIRECT_REQUEST.subarray(0, REQUEST_LENGTH);
const REQUEST_VIEW = viewOf(DIRECT_REQUEST);
const CLOSED = 'the queue pair of the export has been closed';

class QpLink implements NbdLink, QpPortOwner {
  readonly transport: QpMode;
  readonly closed: Promise<Error | undefined>;
  readonly opened: Promise<void>;
  readonly #options: QpLinkOptions;
  readonly #port: QpPort;
  readonly #pending: PendingTable;
  /** What a request holds until its reply; by the request's slot. */
  readonly #held: (Held | null)[];
  #info: ExportInfo | null = null;
  #state: 'connecting' | 'open' | 'draining' | 'closed' = 'connecting';
  #cause: Error | undefined;
  #resolveClosed!: (error: Error | undefined) => void;
  #settleOpened!: { readonly resolve: () => void; readonly reject: (error: Error) => void };
  readonly #timer: NodeJS.Timeout;

  constructor(options: QpLinkOptions) {
    const { mode, depth, host, port, name, handshakeTimeout } = options;
    this.#options = options;
    this.transport = mode;
    this.#pending = new PendingTable(depth);
    this.#held = new Array<Held | null>(depth).fill(null);
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    this.opened = new Promise((resolve, reject) => (this.#settleOpened = { resolve, reject }));
    const rnic = options.rnic ?? defaultRnic();
    const access =
      mode === 'direct' ? ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE : ACCESS.LOCAL_WRITE;
    this.#port = new QpPort(rnic, { receives: depth, sends: 2 * depth + 2 }, this, access);
    this.#timer = setTimeout(
      () => this.destroy(new IwarpError('ERR_TIMEOUT', 'the server has not answered the set-up in time')),
      handshakeTimeout,
    );
    const connection = rnic.cm.connect(this.#port.qp, {
      host,
      port,
      policy: options.policy,
      privateData: encodeSetup({ version: QP_VERSION, mode, depth, name }),
      // The server Reads the data to be written.
      responderResources: mode === 'direct' ? Math.min(depth, QP_MAX_READS) : 1,
    });
    this.#port.attach(connection, (event) => this.#heard(event));
  }

  get info(): ExportInfo {
    return this.#info!;
  }

  get isOpen(): boolean {
    return this.#state === 'open';
  }

  get inFlight(): number {
    return this.#pending.inFlight;
  }

  async request(request: LinkRequest, signal?: AbortSignal): Promise<readonly ExtentDescriptor[]> {
    if (!this.isOpen) throw this.#cause ?? new IwarpError('ERR_CONNECTION_CLOSED', CLOSED);
    return await this.#pending.submit(request, signal, (pending) => this.#send(pending));
  }

  async close(): Promise<void> {
    if (this.#state === 'open') {
      this.#state = 'draining';
      const bytes = new Uint8Array(this.transport === 'direct' ? DIRECT_REQUEST_LENGTH : REQUEST_LENGTH);
      const header = { command: COMMAND.DISC, flags: 0, cookieHi: 0, cookieLo: 0, offset: 0n, length: 0 };
      encodeRequest(viewOf(bytes), 0, header);
      this.#port.sendCopy(bytes);
    }
    const timer = setTimeout(() => this.#port.disconnect(), CLOSE_MS);
    await this.closed;
    clearTimeout(timer);
  }

  destroy(error: Error): void {
    this.#cause ??= error;
    this.#port.abort(error);
  }

  // ------------------------------------------------------------------------------------------- QpPortOwner

  received(index: number, bytes: Uint8Array, view: DataView): void {
    const reply = decodeSimpleReply(bytes, view);
    const pending = reply === null ? null : this.#pending.find(reply.cookieHi, reply.cookieLo);
    if (pending === null) return this.destroy(protocolError('the server has sent no reply to a request'));
    const { command, length } = pending.request;
    const { error } = reply!;
    const carries = this.transport === 'message' && command === COMMAND.READ && error === 0;
    if (bytes.length !== SIMPLE_REPLY_LENGTH + (carries ? length : 0))
      return this.destroy(protocolError(`the server has sent a reply of ${bytes.length} bytes`));
    const held = this.#held[pending.slot] ?? null;
    this.#held[pending.slot] = null;
    if (error === 0 && command === COMMAND.READ && !pending.isAbandoned) {
      if (carries) putBytes(bytes.subarray(SIMPLE_REPLY_LENGTH), pending.request.data, 0);
      else if (held?.isCopy === true)
        putBytes(held.region.bytes.subarray(0, length), pending.request.data, 0);
    }
    this.#release(held);
    this.#port.repost(index);
    this.#pending.settle(pending, error === 0 ? null : errorOfReply(error, describe(pending)));
  }

  ended(error: Error | undefined): void {
    clearTimeout(this.#timer);
    const inOrder = this.#state === 'draining' && this.#pending.inFlight === 0;
    const cause =
      this.#cause ?? error ?? (inOrder ? undefined : new IwarpError('ERR_CONNECTION_CLOSED', CLOSED));
    this.#state = 'closed';
    this.#cause = cause;
    this.#settleOpened.reject(cause ?? new IwarpError('ERR_CONNECTION_CLOSED', CLOSED));
    this.#pending.end(cause);
    this.#resolveClosed(cause);
  }

  // ------------------------------------------------------------------------------------------------ set-up

  #heard(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#established(event.parameters.privateData);
        break;
      case 'rejected':
      case 'unreachable':
      case 'address-error':
      case 'connect-error':
        this.#cause ??=
          event.type === 'rejected' && event.error === undefined
            ? this.#refusal(event.parameters.privateData)
            : attemptError(event);
        // A set-up that failed has no other end.
        this.#port.end(this.#cause);
        break;
      default:
    }
  }

  #refusal(privateData: Uint8Array): Error {
    const { error, message } = decodeRefusal(privateData);
    const { name } = this.#options;
    const text = `export ${JSON.stringify(name)}: the server has refused with error ${error}`;
    return new RejectedError(message === '' ? text : `${text}: ${message}`, privateData);
  }

  #established(privateData: Uint8Array): void {
    clearTimeout(this.#timer);
    const grant = decodeGrant(privateData);
    const { name, depth, mode } = this.#options;
    if (grant === null) return this.destroy(protocolError('the server has granted something malformed'));
    const { size, flags } = grant;
    // A message has to fit into a receive, whatever the server would take.
    const most = mode === 'message' ? MESSAGE_MAXIMUM : grant.blocks.maximum;
    const blocks = { ...grant.blocks, maximum: Math.min(grant.blocks.maximum, most) };
    this.#info = { name, size, flags, blocks, structured: false, blockStatus: false };
    this.#port.postReceives(depth, SIMPLE_REPLY_LENGTH + (mode === 'message' ? blocks.maximum : 0));
    this.#state = 'open';
    this.#settleOpened.resolve();
  }

  // ---------------------------------------------------------------------------------------------- requests

  #send(pending: Pending): void {
    if (this.transport === 'direct') this.#sendDirect(pending);
    else this.#sendMessage(pending);
  }

  #sendMessage(pending: Pending): void {
    const { command, length, data } = pending.request;
    const bytes = command === COMMAND.WRITE ? length : 0;
    if (bytes === 0) {
      encodeRequest(REQUEST_VIEW, 0, header(pending));
      return this.#port.sendCopy(SHORT_REQUEST);
    }
    const region = this.#port.pool.take(REQUEST_LENGTH + bytes);
    encodeRequest(viewOf(region.bytes), 0, header(pending));
    putBytes(data, region.bytes, REQUEST_LENGTH);
    const sges = [{ mr: region, length: REQUEST_LENGTH + bytes }];
    this.#port.send(sges, () => this.#port.pool.give(region));
  }

  #sendDirect(pending: Pending): void {
    const { command } = pending.request;
    const moves = command === COMMAND.READ || command === COMMAND.WRITE;
    const held = moves ? this.#hold(pending) : null;
    this.#held[pending.slot] = held;
    encodeRequest(REQUEST_VIEW, 0, header(pending));
    const memory = held === null ? NO_MEMORY : { stag: held.region.rkey, to: held.region.addr };
    encodeRemoteMemory(REQUEST_VIEW, REQUEST_LENGTH, memory);
    this.#port.sendCopy(DIRECT_REQUEST);
  }

  /**
   * The memory that the server moves data from or to: the caller's, or a copy where another thread cannot
   * reach it or where the caller may take it back before the reply.
   */
  #hold(pending: Pending): Held {
    const { command, data, length } = pending.request;
    const isRead = command === COMMAND.READ;
    if (pending.stop === null) {
      const access = isRead ? ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE : ACCESS.REMOTE_READ;
      const region = this.#port.lend(data, access);
      if (region !== null) return { region, isCopy: false };
    }
    const region = this.#port.pool.take(length);
    if (!isRead) putBytes(data, region.bytes, 0);
    return { region, isCopy: true };
  }

  #release(held: Held | null): void {
    if (held === null) return;
    if (held.isCopy) this.#port.pool.give(held.region);
    else this.#port.takeBack(held.region);
  }
}

/** Memory of a request in direct mode. */
interface Held {
  readonly region: MemoryRegion;
  readonly isCopy: boolean;
}

function header({ slot, use, request }: Pending): Parameters<typeof encodeRequest>[2] {
  const { command, flags, offset, length } = request;
  return { command, flags, cookieHi: use, cookieLo: slot, offset, length };
}
