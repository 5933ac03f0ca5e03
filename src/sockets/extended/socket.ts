/**
 * Extended sockets, after the paper "Supporting RDMA capable network compatibility and features for regular
 * network adapters" (Ohio State University, 2005): a socket that is plain TCP, as any other, until an option
 * switches the same connection to RDMA. The peer is another extended socket, or any program that speaks
 * iWARP.
 *
 * Before the switch an extended socket is a `net.Socket` with a name more: no call of it is wrapped. The
 * switch moves the connection to a port of the stack (`transport/adopt.ts`), and this object stays as its
 * handle: its stream carries no more bytes, its `end`, `destroy` and events are those of the RDMA connection.
 */
import { Socket, type SocketConstructorOpts } from 'node:net';
import { movedPort } from '../../api/environment.ts';
import type { PeerAccess } from '../../api/local-memory.ts';
import type { RemoteBuffer } from '../../api/remote-buffer.ts';
import { withTimeLimit } from '../../base/abort.ts';
import { checkBytes, checkInteger, checkOptions, IwarpError, show } from '../../base/errors.ts';
import { Machine } from '../../base/fsm.ts';
import { HeadPort } from '../../transport/head-port.ts';
import type { ExtendedCompletion } from './completions.ts';
import { extend, extensionOf, type Extension } from './extension.ts';
import {
  checkRdmaMode,
  checkStartRdma,
  planRdmaMode,
  RDMA_MODE_NAMES,
  type RdmaModeOptions,
  type StartRdmaOptions,
} from './options.ts';
import { checkId, checkViews, RdmaSide } from './rdma-side.ts';
import { ended, standOnRdma } from './stand.ts';
import { EXTENDED_TABLE, type ExtendedState } from './states.ts';
import { begin, flushed, headOf } from './switch.ts';

/** The options of {@link ExtendedSocket.startRdma} that concern the socket, and not the switch. */
const MODE_NAMES = Object.keys(RDMA_MODE_NAMES) as (keyof RdmaModeOptions)[];

/** Options of {@link ExtendedSocket}: those of `net.Socket`, and `rdma` for the time after the switch. */
export interface ExtendedSocketOptions extends SocketConstructorOpts {
  /** How it does RDMA. May be given with the switch as well. */
  readonly rdma?: RdmaModeOptions | undefined;
}

/**
 * A TCP socket that an option switches to RDMA. Until then it is a `net.Socket` in all that it does.
 *
 * @example
 * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
 * const local = new Uint8Array(1024).fill(7);
 * await socket.setOption('DDPMODE', true);
 * await socket.put(local, remote); // an RDMA Write on the same connection
 * socket.end();
 */
export class ExtendedSocket extends Socket {
  /**
   * A socket that is not connected yet; see {@link connectExtended}.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  constructor(options: ExtendedSocketOptions = {}) {
    const { rdma = {}, ...rest } = options;
    checkOptions('options.rdma', rdma, RDMA_MODE_NAMES);
    checkRdmaMode(rdma);
    super(rest);
    extend(this, 'initiator', rdma);
  }

  /**
   * Turn a connected `net.Socket` into an extended socket: the same object, with more methods. `role` is its
   * part in the switch.
   *
   * @throws ERR_INVALID_ARGUMENT for anything but a `net.Socket`
   *
   * @example
   * net.createServer((accepted) => ExtendedSocket.extend(accepted, 'responder').postRecv(place, 1));
   */
  static extend(socket: Socket, role: 'initiator' | 'responder', rdma: RdmaModeOptions = {}): ExtendedSocket {
    if (!(socket instanceof Socket) || 'encrypted' in socket)
      throw new IwarpError('ERR_INVALID_ARGUMENT', `socket must be a plain net.Socket, got ${show(socket)}`);
    if (socket instanceof ExtendedSocket) return socket;
    checkOptions('rdma', rdma, RDMA_MODE_NAMES);
    checkRdmaMode(rdma);
    const extended = Object.setPrototypeOf(socket, ExtendedSocket.prototype) as ExtendedSocket;
    extend(extended, role, rdma);
    return extended;
  }

  /**
   * `plain` is TCP; `switching` until both ends speak RDMA; `rdma`; `closing` once either end has closed;
   * `closed`.
   */
  get mode(): ExtendedState {
    const { life } = extensionOf(this);
    if (life !== null) return life.state;
    return this.destroyed ? 'closed' : 'plain';
  }

  /** The bytes that the peer gave with the switch; empty before it. */
  get privateData(): Uint8Array {
    return extensionOf(this).peerData;
  }

  /** Posts that have not completed. */
  get pendingPosts(): number {
    return extensionOf(this).side?.pending ?? 0;
  }

  // -------------------------------------------------------------------------------------------------- switch

  /**
   * The paper's name of {@link ExtendedSocket.startRdma}: `setOption('DDPMODE', true)`.
   *
   * Rejects as that does, with ERR_INVALID_ARGUMENT for another option, and with ERR_NOT_SUPPORTED for
   * `false`: a connection does not go back.
   */
  async setOption(name: 'DDPMODE', value: true, options: StartRdmaOptions = {}): Promise<void> {
    if (name !== 'DDPMODE')
      throw new IwarpError('ERR_INVALID_ARGUMENT', `name must be 'DDPMODE', got ${show(name)}`);
    if (value !== true)
      throw new IwarpError('ERR_NOT_SUPPORTED', 'DDPMODE can be switched on, with true, and not off again');
    await this.startRdma(options);
  }

  /** Whether RDMA has begun: `getOption('DDPMODE')`. */
  getOption(name: 'DDPMODE'): boolean {
    if (name !== 'DDPMODE')
      throw new IwarpError('ERR_INVALID_ARGUMENT', `name must be 'DDPMODE', got ${show(name)}`);
    return this.mode === 'rdma';
  }

  /**
   * Switch this connection to RDMA; the other end does the same, or is a program that waits for an MPA frame.
   * Bytes that were written before leave first. Bytes that have come and have not been read belong to RDMA,
   * so the initiator calls this when its peer has agreed, in the protocol that the two have spoken until
   * then, and the responder right behind its last write. Afterwards the stream carries no bytes.
   *
   * Rejects with ERR_INVALID_ARGUMENT, ERR_INVALID_STATE for a socket that is not connected, is closed in
   * either direction, gives text, has been switched or is being switched, and ERR_TIMEOUT and ERR_ABORTED
   * before the last written byte has left: then it is still plain. It rejects with ERR_STARTUP, ERR_REJECTED,
   * ERR_TIMEOUT, ERR_ABORTED and ERR_CONNECTION_RESET if the peer does not follow: then it is destroyed.
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * await socket.startRdma({ progress: 'worker' });
   */
  async startRdma(options: StartRdmaOptions = {}): Promise<void> {
    const extension = extensionOf(this);
    const plan = checkStartRdma(options, extension.role);
    setMode(extension, options);
    checkPlain(this);
    const life = (extension.life ??= new Machine(EXTENDED_TABLE));
    life.step('switch');
    this.pause();
    const signal = withTimeLimit(plan.signal, plan.timeout, 'the switch to RDMA');
    let side: RdmaSide;
    try {
      await flushed(this, signal);
      side = sideOf(this);
    } catch (error) {
      if (this.destroyed) life.step('gone');
      else life.step('refused');
      throw error;
    }
    const head = headOf(this, plan.head);
    const { bytesRead, bytesWritten } = this;
    const port = movedPort(side.plan.rnic, this, side.plan.gather);
    if (port === null) {
      life.step('refused');
      if (head !== null) this.unshift(head);
      throw new IwarpError(
        'ERR_NOT_SUPPORTED',
        'this runtime cannot move the connection of a socket: use upgrade() of iwarp',
      );
    }
    standOnRdma(this, { local: port.localAddress, bytesRead, bytesWritten });
    await begin(this, side, head === null ? port : new HeadPort(port, head), plan, signal);
  }

  // -------------------------------------------------------------------------------------------------- memory

  /**
   * Register memory for the peer's `put` and `get`; the ticket is what the peer needs for that. It may be
   * called before the switch, so that the ticket crosses as plain bytes. Only this connection can use the
   * memory, until `deregister` or its end. With `progress: 'worker'` it has to be shared memory:
   * {@link ExtendedSocket.allocate}.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_NOT_SHARED, ERR_LIMIT, ERR_INVALID_STATE after the end
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * socket.write(socket.register(new Uint8Array(4096), 'write').toBytes());
   */
  register(memory: ArrayBufferView, access: PeerAccess): RemoteBuffer {
    return openSide(this).register(memory, access);
  }

  /** Zeroed memory that can be registered, whatever `progress` is. */
  allocate(octets: number): Uint8Array {
    checkInteger('octets', octets, 0, 0xffff_ffff);
    return openSide(this).plan.rnic.device.allocateMemory(octets);
  }

  /**
   * End a registration: the peer's next use of the ticket ends the connection.
   *
   * @throws ERR_INVALID_REGION for a ticket that is not of this socket
   */
  deregister(ticket: RemoteBuffer): void {
    openSide(this).deregister(ticket);
  }

  // ----------------------------------------------------------------------------------------------- one-sided

  /**
   * Write `local`, one view or up to 16 that are gathered, to the start of the peer's memory. Resolves when
   * the bytes have been handed to the network; a later `get` or message finds them in place. They must not be
   * changed before.
   *
   * Rejects with ERR_OUT_OF_RANGE, ERR_QUEUE_FULL, ERR_INVALID_STATE before the switch, ERR_WORK_COMPLETION.
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * await socket.put([new Uint8Array(16), new Uint8Array(4096)], remote);
   */
  async put(local: ArrayBufferView | readonly ArrayBufferView[], remote: RemoteBuffer): Promise<void> {
    const views = checkViews('local', local);
    const side = rdmaSide(this);
    await side.promised((settle) => side.put(views, remote, { id: null, settle }), 'put');
  }

  /**
   * Read from the start of the peer's memory as many bytes as `local` has.
   *
   * Rejects as {@link ExtendedSocket.put} does.
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * const local = new Uint8Array(64);
   * await socket.get(remote, local);
   */
  async get(remote: RemoteBuffer, local: ArrayBufferView): Promise<void> {
    const view = checkBytes('local', local);
    const side = rdmaSide(this);
    await side.promised((settle) => side.get(view, remote, { id: null, settle }), 'get');
  }

  // --------------------------------------------------------------------------------------------------- posts

  /**
   * Post a message that is gathered from `views`, and return at once. It takes one posted receive of the
   * peer. The memory must not be changed until the completion with this `id`.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE before the switch and after the end, ERR_TOO_LARGE for
   *   more than 16 pieces, ERR_QUEUE_FULL when `depth` posts wait
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * socket.postSend([new Uint8Array(16), new Uint8Array(1024)], 1);
   * const { status } = await socket.completion(1);
   */
  postSend(views: ArrayBufferView | readonly ArrayBufferView[], id: number): void {
    rdmaSide(this).send(checkViews('views', views), checkId(id));
  }

  /**
   * Post memory for one message of the peer, which is scattered over `views` in their order. It may be called
   * before the switch; a message that finds no receive ends the connection.
   *
   * @throws as {@link ExtendedSocket.postSend}; before the switch it is allowed
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * socket.postRecv([new Uint8Array(16), new Uint8Array(4096)], 2);
   * const { length } = await socket.completion(2);
   */
  postRecv(views: ArrayBufferView | readonly ArrayBufferView[], id: number): void {
    const list = checkViews('views', views);
    openSide(this).receive(list, checkId(id));
  }

  /** Post what {@link ExtendedSocket.put} does; its completion is polled or awaited by `id`. */
  postPut(local: ArrayBufferView | readonly ArrayBufferView[], remote: RemoteBuffer, id: number): void {
    rdmaSide(this).put(checkViews('local', local), remote, { id: checkId(id), settle: null });
  }

  /** Post what {@link ExtendedSocket.get} does; its completion is polled or awaited by `id`. */
  postGet(remote: RemoteBuffer, local: ArrayBufferView, id: number): void {
    rdmaSide(this).get(checkBytes('local', local), remote, { id: checkId(id), settle: null });
  }

  /**
   * Take up to `most` completions (default: as many as `out` has elements) into `out`, oldest first, and
   * return their number. Never waits. Missing elements are created. After the end it reports the rest.
   *
   * With progress in this thread nothing completes in a loop that does not return to the event loop.
   *
   * @example
   * const socket = connectExtended({ host: '127.0.0.1', port: 7471 });
   * const out: Parameters<typeof socket.poll>[0] = [];
   * const count = socket.poll(out, 64);
   */
  poll(out: ExtendedCompletion[], most: number = out.length): number {
    checkInteger('most', most, 0, Number.MAX_SAFE_INTEGER);
    const { side } = extensionOf(this);
    if (side === null) return 0;
    side.collect();
    return side.completions.report(out, most);
  }

  /**
   * The completion of the oldest post with this `id`, whatever its status, once it is there. `poll` does not
   * report it.
   *
   * Rejects with ERR_INVALID_ARGUMENT if no such post is under way or waits to be reported.
   */
  async completion(id: number): Promise<ExtendedCompletion> {
    checkId(id);
    const { side } = extensionOf(this);
    if (side === null)
      throw new IwarpError('ERR_INVALID_ARGUMENT', `no post with id ${id} is under way: nothing was posted`);
    side.collect();
    return await side.completions.await(id);
  }
}

/** Options that come with the switch are too late for a side that is there, unless they say the same. */
function setMode(extension: Extension, options: StartRdmaOptions): void {
  const given = MODE_NAMES.filter((name) => options[name] !== undefined);
  const { side } = extension;
  if (side !== null)
    for (const name of given)
      if (extension.options[name] !== options[name])
        throw new IwarpError(
          'ERR_INVALID_STATE',
          `options.${name} comes too late, behind a registration or receive: give it with the socket`,
        );
  extension.options = {
    ...extension.options,
    ...Object.fromEntries(given.map((name) => [name, options[name]])),
  };
  if (options.progress !== undefined && extension.options.rnic !== undefined)
    checkRdmaMode(extension.options);
}

/** Throws ERR_INVALID_STATE for a socket that cannot be switched now. */
function checkPlain(socket: ExtendedSocket): void {
  const { mode } = socket;
  const refuse = (why: string): never => {
    throw new IwarpError('ERR_INVALID_STATE', `the socket cannot be switched to RDMA: ${why}`);
  };
  if (mode === 'rdma' || mode === 'closing') refuse('it has been already');
  if (mode === 'switching') refuse('that is under way');
  if (socket.destroyed || mode === 'closed') refuse('it is destroyed');
  if (socket.connecting || socket.pending) refuse("it is not connected: wait for its 'connect' event");
  if (socket.readableEnded) refuse('the peer has ended its direction');
  if (socket.writableEnded) refuse('this direction has been ended');
  if (socket.readableEncoding !== null) refuse('setEncoding was called, and RDMA needs bytes');
}

/** The RDMA half, made if there is none. */
function sideOf(socket: ExtendedSocket): RdmaSide {
  const extension = extensionOf(socket);
  extension.side ??= new RdmaSide(planRdmaMode(extension.options), {
    established: (peerData) => {
      extension.peerData = peerData;
      extension.life!.step('established');
      extension.switched?.(null);
    },
    ended: (error) => ended(socket, error),
  });
  return extension.side;
}

/** The RDMA half for calls that may come before the switch. */
function openSide(socket: ExtendedSocket): RdmaSide {
  const { mode } = socket;
  if (mode === 'closed' || socket.destroyed) throw goneError(socket);
  const isNew = extensionOf(socket).side === null;
  const side = sideOf(socket);
  // A socket that is never switched gives it back at its end.
  if (isNew && mode === 'plain')
    socket.once('close', () => {
      if (side.connection === null) side.release();
    });
  return side;
}

/** The RDMA half of a socket that speaks RDMA. */
function rdmaSide(socket: ExtendedSocket): RdmaSide {
  const { mode } = socket;
  if (mode === 'rdma') return extensionOf(socket).side!;
  if (mode === 'closing' || mode === 'closed' || socket.destroyed) throw goneError(socket);
  throw new IwarpError(
    'ERR_INVALID_STATE',
    "the socket is plain TCP: await setOption('DDPMODE', true) first",
  );
}

function goneError(socket: ExtendedSocket): IwarpError {
  const cause = extensionOf(socket).side?.error;
  return new IwarpError(cause?.code ?? 'ERR_CONNECTION_CLOSED', 'the connection has ended', { cause });
}
