/** The side that waits for connections to a shared region. */
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import type { CmListener, PassiveConnection } from '../cm/index.ts';
import type { SharedConnection } from './connect.ts';
import { planRegion, REGION_NAMES, type RegionOptions, type RegionPlan } from './options.ts';
import { SharedSocket } from './socket.ts';
import { decodeTicket } from './ticket.ts';

/** Where to listen, and the region of each connection. */
export interface SharedListenOptions extends RegionOptions {
  /** Address to bind to. Default: every address of the machine. */
  readonly host?: string | undefined;
  /** TCP port. Default 0: the system picks a free one. */
  readonly port?: number | undefined;
}

const LISTEN: Names<SharedListenOptions> = { ...REGION_NAMES, host: true, port: true };
const DEFAULT_BACKLOG = 128;

interface Waiting {
  readonly resolve: (connection: SharedConnection) => void;
  readonly reject: (error: Error) => void;
}

/** Waits for connections; made by {@link listen}. */
export class SharedListener {
  /** Requests that were refused: their private data was no ticket, or `backlog` connections waited. */
  refused = 0;
  readonly #plan: RegionPlan;
  readonly #backlog: number;
  #listener: CmListener | null = null;
  /** Connections that are established, or will be, and that no `accept` has taken. */
  readonly #ready: SharedConnection[] = [];
  readonly #starting = new Set<SharedSocket>();
  readonly #waiting: Waiting[] = [];
  #isClosed = false;

  /** @internal */
  constructor(plan: RegionPlan, backlog: number) {
    this.#plan = plan;
    this.#backlog = backlog;
  }

  /** @internal */
  async bind(where: { readonly host?: string; readonly port: number }): Promise<void> {
    const options = { ...where, maxPending: this.#backlog };
    this.#listener = await this.#plan.rnic.cm.listen(options, (request) => this.#answer(request));
  }

  /** Where it listens. */
  get address(): { readonly address: string; readonly port: number } {
    return this.#listener!.address;
  }

  /**
   * The next connection, with this side's region. Connections that end before they are accepted are not
   * handed out.
   *
   * Rejects with ERR_DESTROYED once the listener has been closed.
   */
  accept(): Promise<SharedConnection> {
    for (let next = this.#ready.shift(); next !== undefined; next = this.#ready.shift())
      if (next.socket.state === 'open') return Promise.resolve(next);
    if (this.#isClosed) return Promise.reject(closedError());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Connections one by one, until the listener is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<SharedConnection, void, undefined> {
    for (;;) {
      const next = await this.accept().catch((error: Error) => {
        if (this.#isClosed) return null;
        throw error;
      });
      if (next === null) return;
      yield next;
    }
  }

  /** Stop listening. Connections that nobody has accepted are dropped; the others go on. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(closedError());
    for (const { socket } of this.#ready.splice(0)) socket.destroy();
    for (const socket of this.#starting) socket.destroy();
    await new Promise<void>((resolve) => this.#listener!.close(resolve));
  }

  #answer(request: PassiveConnection): void {
    const ticket = decodeTicket(request.parameters!.privateData);
    const isFull = this.#ready.length + this.#starting.size >= this.#backlog;
    if (ticket === null || isFull || this.#isClosed) return this.#refuse(request);
    let socket: SharedSocket;
    try {
      const { allocateMemory, ...plan } = this.#plan;
      socket = new SharedSocket({ ...plan, memory: allocateMemory() });
    } catch {
      // A limit of the device or of memory: the peer can do nothing about it, and the others go on.
      return this.#refuse(request);
    }
    socket.peer = ticket;
    this.#starting.add(socket);
    socket.attach(request, (failure) => {
      if (!this.#starting.delete(socket) || failure !== undefined) return;
      const connection = { socket, region: socket.region };
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.#ready.push(connection);
      else waiting.resolve(connection);
    });
    request.accept(socket.qp, { privateData: socket.ticket });
  }

  #refuse(request: PassiveConnection): void {
    this.refused++;
    request.setHandler(() => undefined);
    request.reject();
  }
}

function closedError(): IwarpError {
  return new IwarpError('ERR_DESTROYED', 'the listener has been closed');
}

/**
 * Listen for connections to a shared region.
 *
 * Rejects with ERR_CONNECT if the address cannot be bound.
 *
 * @param options where, and the region that each connection gets; with `memory`, all get the same
 * @param backlog connections that may wait for `accept`, 1 to 65535; default 128
 * @throws ERR_INVALID_ARGUMENT, ERR_NOT_SHARED
 *
 * @example
 * const listener = await listen({ port: 7471 });
 * const { socket, region } = await listener.accept();
 * console.log(region.subarray(0, 5)); // whatever the peer has written there
 */
export async function listen(
  options: SharedListenOptions = {},
  backlog: number = DEFAULT_BACKLOG,
): Promise<SharedListener> {
  checkOptions('options', options, LISTEN);
  const { host, port = 0, ...region } = options;
  checkInteger('options.port', port, 0, 65_535);
  const listener = new SharedListener(planRegion(region), checkInteger('backlog', backlog, 1, 65_535));
  await listener.bind(host === undefined ? { port } : { host, port });
  return listener;
}
