/** The server's end of queue pairs: listening, granting, and one connection. */
import { AbortController } from '../base/host.ts';
import { defaultRnic, type Rnic } from '../api/environment.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import { putBytes } from '../base/copy.ts';
import { checkOptions, type Names } from '../base/errors.ts';
import type { CmListener, PassiveConnection } from '../cm/index.ts';
import { ACCESS, type MemoryRegion, type Sge } from '../verbs/index.ts';
import { numberOf, protocolError } from './errors.ts';
import type { ExportTable, OpenExport } from './exports.ts';
import { QpPort, type QpPortOwner } from './qp-port.ts';
import {
  decodeDirectRequest,
  decodePlainRead,
  decodeSetup,
  DIRECT_REQUEST_LENGTH,
  encodeGrant,
  encodeRefusal,
  grantedMaximum,
  newPlainRead,
  QP_MAX_DEPTH,
  QP_VERSION,
  type QpSetup,
  type RemoteMemory,
} from './qp-wire.ts';
import { blocksOf, checkRequest, flagsOf, memoryOf, perform, type Agreement } from './requests.ts';
import { reportClose, reportOpen, reportRequest, type NbdStats, type Reporter } from './stats.ts';
import {
  COMMAND,
  decodeRequest,
  encodeSimpleReply,
  NBD_ERRORS,
  REQUEST_LENGTH,
  SIMPLE_REPLY_LENGTH,
  viewOf,
  type RequestHeader,
} from './wire.ts';

/** Where to listen for queue pairs. */
export interface RdmaListenOptions {
  /** Default 0: the system picks a free one. */
  readonly port?: number | undefined;
  /** Address to bind to. Default: every address. */
  readonly host?: string | undefined;
  /** Device that carries the connections. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
  /** Differences from the default policy of the connections, such as `{ crc: 'off' }` on both sides. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
}

/** What a server's connections share. */
interface QpServing {
  readonly exports: ExportTable;
  readonly stats: NbdStats;
  readonly requestTimeout: number;
  readonly maxConnections: number;
}

const NAMES: Names<RdmaListenOptions> = { port: true, host: true, rnic: true, policy: true };

/** A listener for queue pairs. */
export interface RdmaNbdListener {
  readonly address: { readonly host: string; readonly port: number };
  close(): Promise<void>;
}

export async function listenRdma(options: RdmaListenOptions, serving: QpServing): Promise<RdmaNbdListener> {
  checkOptions('options', options, NAMES);
  const { port = 0, host, rnic = defaultRnic(), policy } = options;
  const listening: QpListening = { rnic, serving, connections: new Set(), opening: 0, state: 'open' };
  const where = { port, policy, ...(host !== undefined && { host }) };
  const listener: CmListener = await rnic.cm.listen(where, (request) => void answer(request, listening));
  const { address } = listener;
  return {
    address: { host: address.address, port: address.port },
    close: async () => {
      listening.state = 'closed';
      await new Promise<void>((resolve) => listener.close(resolve));
      await Promise.all([...listening.connections].map((connection) => connection.destroy()));
    },
  };
}

/** A listener for queue pairs and its connections. */
interface QpListening {
  readonly rnic: Rnic;
  readonly serving: QpServing;
  readonly connections: Set<QpConnection>;
  /** Requests whose export is being opened. */
  opening: number;
  state: 'open' | 'closed';
}

/** Grant or refuse a request. */
async function answer(request: PassiveConnection, listening: QpListening): Promise<void> {
  const { rnic, serving, connections } = listening;
  const { stats, exports, maxConnections } = serving;
  const refuse = (error: number, why: string): void => {
    stats.failedHandshakes++;
    request.setHandler(() => undefined);
    try {
      request.reject(encodeRefusal(error, why));
    } catch {
      // The listener has closed while the export was being opened, and has dropped the request.
    }
  };
  const setup = decodeSetup(request.parameters!.privateData);
  if (setup === null) return refuse(NBD_ERRORS.EINVAL, 'the private data is no NBD set-up');
  if (setup.version !== QP_VERSION) return refuse(NBD_ERRORS.ENOTSUP, `only version ${QP_VERSION} is known`);
  if (setup.depth < 1 || setup.depth > QP_MAX_DEPTH)
    return refuse(NBD_ERRORS.EINVAL, `the depth must be from 1 to ${QP_MAX_DEPTH}`);
  if (connections.size + listening.opening >= maxConnections)
    return refuse(NBD_ERRORS.ENOMEM, 'there are too many connections');
  listening.opening++;
  const open = await exports.open(setup.name);
  listening.opening--;
  if (open === null) return refuse(NBD_ERRORS.ENOENT, `there is no export ${JSON.stringify(setup.name)}`);
  const giveBack = (): Promise<void> => open.release().catch(() => undefined);
  if (listening.state === 'closed') {
    refuse(NBD_ERRORS.ESHUTDOWN, 'the server is being closed');
    return await giveBack();
  }
  let connection: QpConnection;
  try {
    connection = new QpConnection(rnic, setup, open, serving);
  } catch (error) {
    refuse(NBD_ERRORS.ENOMEM, (error as Error).message);
    return await giveBack();
  }
  connections.add(connection);
  connection.accept(request);
  await connection.closed;
  connections.delete(connection);
  await giveBack();
}

/** A request that is being worked on, and the receive that it came in. */
interface Work {
  readonly index: number;
  readonly request: RequestHeader;
  readonly memory: RemoteMemory;
  /** Data behind the request, in message mode. */
  readonly payload: Uint8Array;
}

const EMPTY = new Uint8Array(0);
/** A reply on its way into a request, which copies it. */
const REPLY = new Uint8Array(SIMPLE_REPLY_LENGTH);
const REPLY_VIEW = viewOf(REPLY);
/** Filled again for each request. */
const PLAIN_READ = newPlainRead();
const NO_REMOTE: RemoteMemory = { stag: 0, to: 0n };

class QpConnection implements QpPortOwner {
  readonly closed: Promise<void>;
  readonly #setup: QpSetup;
  readonly #open: OpenExport;
  readonly #serving: QpServing;
  readonly #agreed: Agreement;
  readonly #reporter: Reporter;
  readonly #port: QpPort;
  readonly #abort = new AbortController();
  /** The device's own memory, where it is memory that this thread's device can reach. */
  readonly #region: MemoryRegion | null;
  readonly #work = new Set<Work>();
  #state: 'granting' | 'transmission' | 'draining' | 'closed' = 'granting';
  #resolveClosed!: () => void;

  constructor(rnic: Rnic, setup: QpSetup, open: OpenExport, serving: QpServing) {
    const { mode, depth } = setup;
    const { device, name } = open;
    this.#setup = setup;
    this.#open = open;
    this.#serving = serving;
    this.#reporter = { stats: serving.stats, role: 'server', transport: mode, exportName: name };
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    // A request has at most one Write or Read and one Send; completions may lag behind replies.
    this.#port = new QpPort(rnic, { receives: depth + 1, sends: 4 * depth + 4 }, this, ACCESS.LOCAL_WRITE);
    const { memory } = device;
    this.#region = memory === undefined ? null : this.#port.register(memory, ACCESS.LOCAL_WRITE);
    const most = blocksOf(device).maximum;
    const maximum = Math.max(device.blocks.minimum, grantedMaximum(mode, depth, most, this.#region !== null));
    this.#agreed = { structured: false, blockStatus: false, maximum };
    // DISC has no reply: it takes the receive beyond the depth.
    const length = mode === 'direct' ? DIRECT_REQUEST_LENGTH : REQUEST_LENGTH + maximum;
    this.#port.postReceives(depth + 1, length);
  }

  accept(request: PassiveConnection): void {
    const { device } = this.#open;
    const { maximum } = this.#agreed;
    const blocks = { ...blocksOf(device, maximum), maximum };
    this.#port.attach(request, ({ type }) => {
      if (type !== 'established') return;
      this.#state = 'transmission';
      reportOpen(this.#reporter);
    });
    const privateData = encodeGrant({ size: device.size, flags: flagsOf(device, false), blocks });
    try {
      request.accept(this.#port.qp, { privateData });
    } catch (error) {
      // The device cannot carry the connection: it ends before it begins.
      this.#port.end(error as Error);
    }
  }

  async destroy(): Promise<void> {
    this.#port.abort(protocolError('the server is being closed'));
    await this.closed;
  }

  // ------------------------------------------------------------------------------------------- QpPortOwner

  received(index: number, bytes: Uint8Array, view: DataView): void {
    if (this.#readsMemory(index, bytes, view)) return;
    const work = this.#decode(index, bytes, view);
    if (work === null) return this.#violated('a message that is no request');
    if (this.#state === 'draining') return this.#violated('a request after DISC');
    if (work.request.command === COMMAND.DISC) {
      this.#state = 'draining';
      return this.#drained();
    }
    if (this.#work.size >= this.#setup.depth) return this.#violated('more requests than the depth');
    const { cookieHi, cookieLo } = work.request;
    for (const { request } of this.#work)
      if (request.cookieLo === cookieLo && request.cookieHi === cookieHi)
        return this.#violated('a cookie that is under way');
    this.#work.add(work);
    this.#handle(work);
  }

  ended(error: Error | undefined): void {
    const wasOpen = this.#state !== 'granting';
    this.#state = 'closed';
    // A device may answer later: to nobody, for the port's memory and domain are gone.
    this.#work.clear();
    this.#abort.abort();
    if (wasOpen) reportClose(this.#reporter, error);
    else this.#serving.stats.failedHandshakes++;
    this.#resolveClosed();
  }

  // ---------------------------------------------------------------------------------------------- requests

  /**
   * Answer a READ of memory in direct mode, the most frequent request, from its bytes as they lie. False, and
   * nothing done, for every other request, and for one that {@link checkRequest} refuses. No object is made
   * on the way: not for the request, its offset, the work or the element (`read 4` of bench/nbd.ts).
   */
  #readsMemory(index: number, bytes: Uint8Array, view: DataView): boolean {
    const region = this.#region;
    if (region === null || bytes.length !== DIRECT_REQUEST_LENGTH || this.#setup.mode !== 'direct')
      return false;
    // Nothing under way, so that no cookie can be.
    if (this.#state !== 'transmission' || this.#work.size > 0 || !decodePlainRead(view, PLAIN_READ))
      return false;
    const { size, blocks, memory: all } = this.#open.device;
    const { minimum } = blocks;
    const { at, length, memory } = PLAIN_READ;
    const end = at + length;
    const fits = length <= this.#agreed.maximum && end <= size && end <= all!.length;
    if (!fits || (length | (at % minimum)) % minimum !== 0) return false;
    this.#port.repost(index);
    reportRequest(this.#reporter, COMMAND.READ, at, length, 0);
    encodeSimpleReply(REPLY_VIEW, 0, 0, PLAIN_READ.cookieHi, PLAIN_READ.cookieLo);
    this.#port.writeAndSend(region, at, length, memory, REPLY);
    return true;
  }

  #violated(what: string): void {
    this.#port.abort(protocolError(`the client has sent ${what}`));
  }

  /** The message has to have exactly the length of its form. */
  #decode(index: number, bytes: Uint8Array, view: DataView): Work | null {
    if (this.#setup.mode === 'direct') {
      const decoded = decodeDirectRequest(bytes, view);
      return decoded === null ? null : { index, ...decoded, payload: EMPTY };
    }
    const request = bytes.length < REQUEST_LENGTH ? null : decodeRequest(view);
    if (request === null) return null;
    const length = request.command === COMMAND.WRITE ? request.length : 0;
    if (bytes.length !== REQUEST_LENGTH + length) return null;
    return { index, request, memory: NO_REMOTE, payload: bytes.subarray(REQUEST_LENGTH) };
  }

  #handle(work: Work): void {
    const { device } = this.#open;
    const { request } = work;
    const error = checkRequest(device, request, this.#agreed);
    if (error !== 0) return this.#reply(work, error);
    const { command, offset, length } = request;
    const isDirect = this.#setup.mode === 'direct';
    const target = memoryOf(device, offset, length);
    if (command === COMMAND.READ && target !== null && this.#region !== null)
      return this.#sendFrom(work, { mr: this.#region, offset: Number(offset), length }, null);
    if (command === COMMAND.WRITE && target !== null) {
      if (isDirect) return this.#fetchInto(work, target);
      putBytes(work.payload, target, 0);
      return this.#reply(work, 0);
    }
    if (command === COMMAND.READ) void this.#read(work);
    else if (command === COMMAND.WRITE && isDirect) this.#fetch(work);
    else void this.#perform(work, work.payload);
  }

  async #perform(work: Work, data: Uint8Array): Promise<boolean> {
    const { device } = this.#open;
    try {
      await perform(device, work.request, data, this.#abort.signal, this.#serving.requestTimeout);
    } catch (error) {
      this.#reply(work, numberOf(error));
      return false;
    }
    if (work.request.command !== COMMAND.READ) this.#reply(work, 0);
    return true;
  }

  /** READ of a device that is no memory, by way of a copy. */
  async #read(work: Work): Promise<void> {
    const { length } = work.request;
    const region = this.#port.pool.take(length);
    // Of a device that answers too late nobody knows when it is done with the memory: it is not used again.
    if (!(await this.#perform(work, region.bytes.subarray(0, length)))) return;
    this.#sendFrom(work, { mr: region, length }, () => this.#port.pool.give(region));
  }

  /** Data and reply leave together; the client sees the reply when the data is in place. */
  #sendFrom(work: Work, sge: Sge, done: (() => void) | null): void {
    if (this.#setup.mode === 'message') return this.#finish(work, 0, [sge], done);
    this.#port.write(sge, work.memory, done);
    this.#reply(work, 0);
  }

  /** WRITE in direct mode, into the device's own memory if the peer's data can be placed there. */
  #fetchInto(work: Work, target: Uint8Array): void {
    if (this.#region === null) return this.#fetch(work);
    const { offset } = work.request;
    this.#fetchTo(work, { mr: this.#region, offset: Number(offset), length: target.length }, () =>
      this.#reply(work, 0),
    );
  }

  #fetch(work: Work): void {
    const { length } = work.request;
    const region = this.#port.pool.take(length);
    this.#fetchTo(work, { mr: region, length }, () => {
      void this.#perform(work, region.bytes.subarray(0, length)).then((done) => {
        if (done) this.#port.pool.give(region);
      });
    });
  }

  #fetchTo(work: Work, sge: Sge, done: () => void): void {
    // A Read that fails has ended the connection.
    this.#port.read(sge, work.memory, (succeeded) => {
      if (succeeded) done();
    });
  }

  #reply(work: Work, error: number): void {
    this.#finish(work, error, [], null);
  }

  #finish(work: Work, error: number, data: readonly Sge[], done: (() => void) | null): void {
    if (!this.#work.delete(work)) return;
    const { cookieHi, cookieLo, command, offset, length } = work.request;
    reportRequest(this.#reporter, command, offset, length, error);
    this.#port.repost(work.index);
    if (data.length === 0) {
      encodeSimpleReply(REPLY_VIEW, 0, error, cookieHi, cookieLo);
      this.#port.sendCopy(REPLY);
    } else {
      const head = this.#port.pool.take(SIMPLE_REPLY_LENGTH);
      encodeSimpleReply(viewOf(head.bytes), 0, error, cookieHi, cookieLo);
      const sges = [{ mr: head, length: SIMPLE_REPLY_LENGTH }, ...data];
      this.#port.send(sges, () => {
        this.#port.pool.give(head);
        done?.();
      });
    }
    this.#drained();
  }

  /** After DISC the connection ends with the last reply. */
  #drained(): void {
    if (this.#state === 'draining' && this.#work.size === 0) this.#port.disconnect();
  }
}
