/**
 * A stream over RDMA that speaks the rsocket protocol: a `node:stream` Duplex in the shape of `net.Socket`,
 * so that stream code runs over it unchanged. The peer is another socket of this kind, or any program on
 * librdmacm's rsockets (rstream, rcopy, programs under librspreload).
 */
import { nextTick } from 'node:process';
import { Buffer } from 'node:buffer';
import { addAbortSignal, Duplex } from 'node:stream';
import type { Rnic } from '../api/environment.ts';
import { lengthNow } from '../base/copy.ts';
import { inThisContext, withCallbackHere } from '../base/async-context.ts';
import { abortError, signalOf, whenAborted, type WaitOptions } from '../base/abort.ts';
import { Alarm } from '../base/alarm.ts';
import { checkBytes, checkFunction, IwarpError } from '../base/errors.ts';
import { checkU64 } from '../base/u64.ts';
import { Waiters } from '../base/waiters.ts';
import type { PassiveConnection } from '../cm/index.ts';
import type { PortAddress } from '../transport/port.ts';
import type { TlsInfo } from '../transport/tls-options.ts';
import { warmHeap } from '../transport/warm-heap.ts';
import type { ByteChannel, ChannelHandler, MappedMemory } from './byte-channel.ts';
import {
  connectArguments,
  planConnect,
  type ConnectArguments,
  type ConnectOptions,
  type ConnectPlan,
  type LookupAddress,
  type PathOptions,
} from './connect.ts';
import { placeOf, PostedPlaces, type OnReadOptions } from './onread.ts';
import { checkSocketOptions, checkTime, type RdmaSocketOptions } from './options.ts';
import { goneError, Pieces } from './pieces.ts';
import { systemError } from './system-error.ts';
import { IdleTimer, KeepAliveTimer } from './timers.ts';
import { Dialing } from './dialing.ts';
import { UnconnectedChannel } from './unconnected.ts';
import { Leases } from './leases.ts';
import { takeOver, type Lease, type LendOptions } from './owned.ts';
import { answering, protocolOf, type ConnectedChannel, type StreamPeer } from './protocols.ts';
import type { Hello } from '../sdp/wire.ts';

/**
 * How long 'close' waits for the peer's end after `destroy`. Then the connection goes on alone, with bytes
 * that have not reached a slow or busy peer yet, as the system does for a socket of node:net. It keeps the
 * process alive as long as that takes if the stream was ended before: a peer that finds no process when it
 * offers the window for bytes it has read would lose the rest.
 */
export const CLOSE_MS = 2000;
/** Largest piece given to the reader at once. */
const READ_OCTETS = 65_536;

/** State of a socket, as `net.Socket.readyState`. */
export type ReadyState = 'opening' | 'open' | 'readOnly' | 'writeOnly' | 'closed';

/** Events of {@link RdmaSocket}, with the arguments of their listeners. */
export interface SocketEvents {
  /** Bytes have been read; a string after `setEncoding`. */
  data: [data: Buffer];
  /** The peer sends no more. */
  end: [];
  /** The buffer for writes is empty again. */
  drain: [];
  /** `end()` was called and all bytes have been handed to the network. */
  finish: [];
  /** The connection failed: `code` is the system's, `cause` an IwarpError. */
  error: [error: Error];
  /** `options.lookup` has answered. */
  lookup: [error: Error | null, address: string, family: string | number, host: string];
  /** The connection is established. */
  connect: [];
  /** Right after `connect`. */
  ready: [];
  /** No bytes in either direction for the time that {@link RdmaSocket.setTimeout} was given. */
  timeout: [];
  /** The socket has ended; `hadError` is true if an `error` event came first. */
  close: [hadError: boolean];
}

/** Listeners by the name of the event: those of `net.Socket` have their arguments inferred. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export interface RdmaSocket {
  /** Add a listener. */
  on<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** Add a listener for another event. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  on(event: string | symbol, listener: (...values: any[]) => void): this;
  /** Add a one-time listener. */
  once<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** Add a one-time listener for another event. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  once(event: string | symbol, listener: (...values: any[]) => void): this;
  /** The same as `on`. */
  addListener<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** The same as `on`, for another event. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  addListener(event: string | symbol, listener: (...values: any[]) => void): this;
  /** Add a listener before the others. */
  prependListener<E extends keyof SocketEvents>(
    event: E,
    listener: (...values: SocketEvents[E]) => void,
  ): this;
  /** Add a listener before the others, for another event. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  prependListener(event: string | symbol, listener: (...values: any[]) => void): this;
  /** Add a one-time listener before the others. */
  prependOnceListener<E extends keyof SocketEvents>(
    event: E,
    listener: (...values: SocketEvents[E]) => void,
  ): this;
  /** Add a one-time listener before the others, for another event. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  prependOnceListener(event: string | symbol, listener: (...values: any[]) => void): this;
}

/**
 * A connection. It has the events of a Duplex, and `connect`, `ready` and `timeout` of `net.Socket`.
 *
 * @example
 * const socket = connect({ host: '10.0.0.2', port: 7471 });
 * socket.write('hello');
 * for await (const chunk of socket) console.log(chunk);
 */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export class RdmaSocket extends Duplex {
  #channel: ByteChannel;
  readonly #options: RdmaSocketOptions;
  readonly #rnic: Rnic;
  /** `connect` has been called, or a server's listener has taken the connection. */
  #begun = false;
  #dialing: Dialing | null = null;
  /** The channel whose HelloAck has left in front of MPA. */
  #answered: ConnectedChannel | null = null;
  #wanted = false;
  #onread: OnReadOptions | null = null;
  /** With `onread`, where the protocol takes places. */
  #posted: PostedPlaces | null = null;
  /** With `onread`: the socket has not been paused. */
  #reading = true;
  /** The reader is being given a piece; no other piece is given during that call. */
  #giving = false;
  /** The chunks being written. */
  #pieces: Pieces | null = null;
  #callback: ((error?: Error | null) => void) | null = null;
  /** Chunks that were written before the connection was there. */
  #early: readonly Uint8Array[] | null = null;
  /** Made for the first write that stays where it lies. */
  #leases: Leases | null = null;
  #final: (() => void) | null = null;
  #onGone: (() => void) | null = null;
  readonly #mappedWaiters = new Waiters<void>();
  #endGiven = false;
  /** The program wants the connection to hold the process. */
  #held = true;
  /**
   * Our end will close both directions, and says so at once: a peer that first learns of a half close goes on
   * sending credits.
   */
  #endsBoth = false;
  readonly #idle: IdleTimer;
  readonly #keepAlive: KeepAliveTimer;
  /** The wait for the peer's end. */
  readonly #wait: Alarm;
  #hadError = false;
  /** Milliseconds before the first probe of an idle connection; null for none. */
  #keepAliveMs: number | null;
  #addresses: { readonly local: PortAddress; readonly remote: PortAddress } | null = null;
  /** Bytes given to the reader so far. */
  bytesRead = 0;
  /** Bytes put on their way so far. */
  #sent = 0;

  /**
   * A socket that is not connected yet; see {@link RdmaSocket.connect}.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  constructor(options: RdmaSocketOptions = {}) {
    const rnic = checkSocketOptions(options);
    super({
      allowHalfOpen: Boolean(options.allowHalfOpen),
      autoDestroy: true,
      emitClose: true,
      decodeStrings: true,
      highWaterMark: options.highWaterMark,
    });
    this.#options = options;
    this.#rnic = rnic;
    this.#idle = new IdleTimer(rnic.scheduler, () => this.emit('timeout'));
    this.#keepAlive = new KeepAliveTimer(rnic.scheduler, () => this.#channel.keepAlive());
    this.#keepAliveMs = options.keepAlive ? probeDelay(options.keepAliveInitialDelay) : null;
    this.#wait = new Alarm(rnic.scheduler);
    this.#channel = new UnconnectedChannel(this.#handler());
    // As with net.connect, it also runs while the connection is being made.
    if (options.timeout !== undefined) this.setTimeout(options.timeout);
    if (options.signal !== undefined) addAbortSignal(options.signal, this);
  }

  #handler(): ChannelHandler {
    return {
      onOpen: () => this.#opened(),
      onReadable: () => this.#fill(),
      onWritable: () => this.#pump(),
      onEnd: () => this.#fill(),
      onClosed: (error) => this.#closed(error),
    };
  }

  /** @internal Received bytes go there, and not to the stream. */
  readInto(onread: OnReadOptions): void {
    this.#onread = onread;
  }

  /**
   * Connect, with the arguments of {@link connect}. If connecting fails, an `error` event follows. A socket
   * connects once.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE if it was connected or destroyed before,
   *   ERR_LIMIT
   */
  connect(options: ConnectOptions | PathOptions, listener?: () => void): this;
  /** Connect to a port of a host, as `net.Socket.connect` does. */
  connect(port: number | string, host?: string | null, listener?: () => void): this;
  /** Connect to a port of this machine, or to the Unix socket at a path. */
  connect(portOrPath: number | string, listener?: () => void): this;
  connect(...given: ConnectArguments): this {
    const { options, listener } = connectArguments(given);
    return this.#follow(planConnect(options), listener);
  }

  /** @internal A socket that goes where the plan of its options says. */
  static to(options: RdmaSocketOptions, plan: ConnectPlan, listener: (() => void) | undefined): RdmaSocket {
    const socket = new RdmaSocket(options);
    return socket.destroyed ? socket : socket.#follow(plan, listener); // its signal may be aborted already
  }

  #follow(plan: ConnectPlan, listener: (() => void) | undefined): this {
    if (this.#begun || this.destroyed)
      throw new IwarpError('ERR_INVALID_STATE', 'the socket has been connected or destroyed: make a new one');
    if (plan.onread !== null) this.readInto(plan.onread);
    if (listener !== undefined) this.once('connect', listener);
    this.#dialing = this.#dial(plan);
    try {
      this.#dialing.begin();
    } catch (error) {
      this.destroy(); // a limit of the device, or the program's own function
      throw error;
    }
    this.#begun = true;
    return this;
  }

  #dial(plan: ConnectPlan): Dialing {
    const dialer = {
      rnic: this.#rnic,
      options: this.#options,
      handler: this.#handler(),
      isGone: () => this.destroyed,
      take: (channel: ConnectedChannel) => (this.#channel = channel),
      found: (error: Error | null, host: string, answer?: LookupAddress) =>
        void this.emit('lookup', error, answer?.address, answer?.family, host),
      failed: (error: Error) => void this.destroy(error),
    };
    return new Dialing(dialer, plan);
  }

  /** @internal The side that is connected to, by a peer whose Hello has come in front of MPA: HelloAck. */
  answer(hello: Hello): Uint8Array {
    const { channel, ack } = answering(this.#rnic, this.#options, this.#handler(), hello);
    this.#channel = this.#answered = channel;
    this.#begun = true;
    return ack;
  }

  /** @internal Stand on a channel of another protocol, in either role. */
  standOn(make: (handler: ChannelHandler) => ByteChannel): this {
    this.#channel = make(this.#handler());
    this.#begun = true;
    return this;
  }

  /** @internal The side that is connected to. ERR_LIMIT or ERR_DESTROYED if the device has no room. */
  accept(request: PassiveConnection, peer: StreamPeer): void {
    const answered = this.#answered;
    const channel = answered ?? protocolOf(this.#options).make(this.#rnic, this.#options, this.#handler());
    this.#channel = channel;
    this.#begun = true;
    channel.use(request, peer);
    // ORD and IRD as librdmacm asks for: at least one read, for the RTR message.
    request.accept(channel.qp, answered === null ? { privateData: channel.connectionData } : {});
  }

  // ---------------------------------------------------------------------------------------------- net.Socket

  /** True from `connect()` to the `connect` event, or until the socket has ended. */
  get connecting(): boolean {
    return this.#begun && this.#channel.state === 'opening' && !this.destroyed;
  }

  /** True until the `connect` event, and after the socket has been destroyed. */
  get pending(): boolean {
    return this.#channel.state === 'opening' || this.destroyed;
  }

  /** State of the socket, as with `net.Socket`. */
  get readyState(): ReadyState {
    if (this.connecting) return 'opening';
    const reads = this.readable && !this.readableEnded;
    const writes = this.writable;
    if (reads && writes) return 'open';
    return reads ? 'readOnly' : writes ? 'writeOnly' : 'closed';
  }

  /**
   * The peer's address; undefined until `connect` and over a Unix socket, like the five properties that
   * follow.
   */
  get remoteAddress(): string | undefined {
    return this.#inet('remote')?.address;
  }

  /** The peer's TCP port. */
  get remotePort(): number | undefined {
    return this.#inet('remote')?.port;
  }

  /** `IPv4` or `IPv6`. */
  get remoteFamily(): string | undefined {
    return this.#inet('remote')?.family;
  }

  /** Our address. */
  get localAddress(): string | undefined {
    return this.#inet('local')?.address;
  }

  /** Our TCP port. */
  get localPort(): number | undefined {
    return this.#inet('local')?.port;
  }

  /** `IPv4` or `IPv6`. */
  get localFamily(): string | undefined {
    return this.#inet('local')?.family;
  }

  /**
   * With the option `tls`: the results of the handshake, once the socket is connected. Undefined without TLS.
   */
  get tls(): TlsInfo | undefined {
    return this.#channel.tls;
  }

  /** Bytes written so far, including those that wait to be sent, as with `net.Socket`. */
  get bytesWritten(): number {
    // The chunk that is being written counts as waiting until all of it has been taken.
    return this.#sent + this.writableLength - (this.#pieces?.taken ?? 0);
  }

  /**
   * The addresses that have been tried, each with its port, of those that `options.lookup` gave. Empty where
   * the host is an address, or the system resolves its name.
   */
  get autoSelectFamilyAttemptedAddresses(): string[] {
    return this.#dialing?.tried ?? [];
  }

  /**
   * The same as `writableLength`, as with `net.Socket`.
   *
   * @deprecated Use `writableLength`.
   */
  get bufferSize(): number {
    return this.writableLength;
  }

  /** Our address, port and family; an empty object until `connect`, and over a Unix socket. */
  address(): PortAddress | Record<string, never> {
    return this.#inet('local') ?? {};
  }

  /** As in `node:net`, sockets over a path have no addresses. */
  #inet(end: 'local' | 'remote'): PortAddress | undefined {
    const address = this.#addresses?.[end];
    return address?.family === 'Unix' ? undefined : address;
  }

  /**
   * Emit `timeout` after this many ms without bytes in either direction; 0: never. The socket stays open.
   */
  setTimeout(ms: number, callback?: () => void): this {
    checkTime('ms', ms);
    if (callback !== undefined) checkFunction('callback', callback);
    this.#idle.set(ms);
    if (callback !== undefined) {
      if (ms > 0) this.once('timeout', callback);
      else this.off('timeout', callback);
    }
    return this;
  }

  /** The value that {@link RdmaSocket.setTimeout} was given last; undefined before the first call. */
  get timeout(): number | undefined {
    return this.#idle.given;
  }

  /**
   * Probe an idle connection after `delay` ms (0: as the system is set), so that the socket ends with
   * ETIMEDOUT when the path to the peer is dead: TCP's keep-alive. Over a transport without one, a
   * zero-length Write every `delay` ms has to do. As with `node:net`, `enable` is taken by its truth, and may
   * be set before the socket is connected.
   */
  setKeepAlive(enable?: boolean, delay?: number): this {
    this.#keepAliveMs = enable ? probeDelay(delay) : null;
    if (this.#addresses !== null) this.#setProbes();
    return this;
  }

  #setProbes(): void {
    const delay = this.#keepAliveMs;
    this.#keepAlive.stop();
    if (this.destroyed) return;
    if (!this.#channel.probe(delay !== null, delay ?? 0) && delay !== null) this.#keepAlive.start(delay);
  }

  /** Does nothing, because nothing is delayed here. For code that calls it. */
  setNoDelay(_noDelay?: boolean): this {
    return this;
  }

  /**
   * Keep the process alive while the connection is open, as it does unless {@link RdmaSocket.unref} has been
   * called.
   */
  ref(): this {
    this.#held = true;
    this.#hold();
    return this;
  }

  /**
   * Let the process end although the connection is open. A connection that is being made still keeps it
   * alive, and so do bytes that wait to be sent.
   */
  unref(): this {
    this.#held = false;
    this.#hold();
    return this;
  }

  /** Not before the connection is there: what makes it, and each further attempt, holds the process. */
  #hold(): void {
    if (this.#channel.state !== 'opening') this.#channel.setRef(this.#held || this.writableLength > 0);
  }

  /**
   * End both directions, and destroy the socket when everything has been written. Bytes that have not reached
   * a slow or busy peer then go on to it: the connection and the process wait a minute for the peer's end,
   * `close` 2 s.
   */
  destroySoon(): void {
    this.#endsBoth = true;
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  /** Drop the connection with a reset. */
  resetAndDestroy(): this {
    this.#channel.abort(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side'));
    return this.destroy();
  }

  // ------------------------------------------------------------------------------------------ mapped buffers

  /**
   * Let the peer write directly into `memory` (riomap). The peer addresses its bytes by offsets that begin
   * at `offset`. The peer must have room for the mapping (`iomapSize`), which it announces when it connects.
   * Data written after this call arrives after the mapping. With the engine in a worker the memory has to be
   * over a SharedArrayBuffer.
   *
   * @throws ERR_NOT_SHARED, ERR_INVALID_STATE before `connect`, ERR_LIMIT if the peer has no room
   */
  mapMemory(memory: ArrayBufferView, offset: bigint | number): void {
    const bytes = checkBytes('memory', memory);
    const from = BigInt(checkU64('offset', offset));
    this.#mapped().map(bytes, from);
  }

  /**
   * End a mapping of {@link RdmaSocket.mapMemory}. The peer must have stopped writing there. The end of the
   * connection ends the mapping too: after it this call does nothing.
   *
   * @throws ERR_INVALID_REGION if `memory` is not mapped
   */
  unmapMemory(memory: ArrayBufferView): void {
    const bytes = checkBytes('memory', memory);
    if (this.#channel.mapped !== undefined) this.#channel.mapped.unmap(bytes);
    else throw new IwarpError('ERR_INVALID_REGION', 'this memory is not mapped');
  }

  /**
   * Write into memory that the peer has mapped (riowrite). Resolves when all bytes have been taken. The peer
   * gets no notice. When `signal` is aborted, the wait for room ends: bytes that were taken are written, the
   * others are not, and the stream goes on.
   *
   * @throws ERR_OUT_OF_RANGE if the peer has mapped nothing there, ERR_INVALID_STATE before `connect`,
   *   ERR_INVALID_REGION if the memory was transferred away while it waited, ERR_CONNECTION_CLOSED,
   *   ERR_ABORTED
   */
  async writeMapped(
    data: ArrayBufferView,
    offset: bigint | number,
    options: WaitOptions = {},
  ): Promise<void> {
    const bytes = checkBytes('data', data);
    const { length } = bytes;
    const from = BigInt(checkU64('offset', offset));
    const signal = signalOf(options);
    if (signal?.aborted === true) throw abortError(signal);
    const mapped = this.#mapped();
    let at = 0;
    while (at < length) {
      if (lengthNow(bytes) !== length) throw goneError('data');
      if (this.destroyed || this.#channel.state !== 'open')
        throw new IwarpError('ERR_CONNECTION_CLOSED', 'the connection is closed');
      const taken = mapped.writeMapped(bytes.subarray(at), from + BigInt(at));
      at += taken;
      this.#sent += taken;
      if (taken === 0) await this.#mappedWaiters.wait(signal);
    }
    this.#idle.active();
  }

  #mapped(): MappedMemory {
    const { mapped, state } = this.#channel;
    if (mapped === undefined || (state === 'opening' && !this.destroyed))
      throw new IwarpError('ERR_INVALID_STATE', 'the socket is not connected yet');
    return mapped;
  }

  // -------------------------------------------------------------------------------------------------- Duplex

  /** @internal */
  override _read(): void {
    this.#wanted = true;
    // With `onread`, pieces are given when they arrive, and after `resume` and `read`; never inside a call.
    if (this.#onread === null) this.#fill();
  }

  /** Read, as with `net.Socket`: with `onread`, a call restarts reading that was paused. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  override read(octets?: number): any {
    if (this.#onread !== null && !this.#reading) {
      this.#reading = true;
      nextTick(() => this.#fill());
    }
    return super.read(octets) as unknown;
  }

  /** Stop reading, as with `net.Socket`. */
  override pause(): this {
    this.#reading = false;
    return super.pause();
  }

  /** Go on reading. */
  override resume(): this {
    this.#reading = true;
    super.resume();
    // As in node:net, not from inside the call; and after the stream has had its turn, in which it calls
    // `read`.
    if (this.#onread !== null) nextTick(() => this.#fill());
    return this;
  }

  #fill(): void {
    if (this.#onread === null) this.#fillStream();
    else this.#fillPlaces(this.#onread);
    // With `onread`, a paused reader learns of the end only when it reads on.
    if (this.#onread !== null && (this.#giving || !this.#reading)) return;
    if (this.#channel.drained && !this.#endGiven && !this.destroyed) {
      this.#endGiven = true;
      this.push(null);
      // As in node:net, the stream ends even without a listener for its end.
      if (this.readableLength === 0) this.read(0);
    }
  }

  #fillStream(): void {
    while (this.#wanted && !this.destroyed) {
      const data = this.#channel.read(READ_OCTETS);
      if (data === null) break;
      this.bytesRead += data.length;
      warmHeap.given(data.length);
      this.#idle.active();
      this.#wanted = this.push(data);
    }
  }

  #fillPlaces(onread: OnReadOptions): void {
    if (this.#giving) return;
    this.#giving = true;
    try {
      for (let next = this.#nextPiece(onread); next !== undefined; next = this.#nextPiece(onread)) {
        this.bytesRead += next.octets;
        this.#idle.active();
        if (onread.callback(next.octets, next.place) === false) this.#reading = false;
      }
    } finally {
      this.#giving = false;
    }
  }

  #nextPiece(onread: OnReadOptions): { readonly place: Uint8Array; readonly octets: number } | undefined {
    const { owned } = this.#channel;
    if (!this.#reading || this.destroyed) return undefined;
    if (owned?.takesPlaces === true) {
      this.#posted ??= new PostedPlaces(owned, onread, () => this.#placeOf(onread));
      if (!this.#channel.drained) this.#posted.post();
      return this.#posted.take();
    }
    const place = this.#channel.readable ? this.#placeOf(onread) : null;
    return place === null ? undefined : { place, octets: this.#channel.readInto(place) };
  }

  #placeOf(onread: OnReadOptions): Uint8Array | null {
    try {
      return placeOf(onread);
    } catch (error) {
      this.destroy(error as Error);
      return null;
    }
  }

  /** @internal */
  override _write(
    chunk: Uint8Array,
    _encoding: BufferEncoding,
    callback: (error?: Error | null) => void,
  ): void {
    if (!this.#held) this.#hold();
    this.#begin([chunk], callback);
  }

  /**
   * @internal Bytes written in many pieces while the socket was corked or had no room leave in few transfers.
   */
  override _writev(chunks: { chunk: Uint8Array }[], callback: (error?: Error | null) => void): void {
    if (!this.#held) this.#hold();
    this.#begin(
      chunks.map(({ chunk }) => chunk),
      callback,
    );
  }

  /** Write, as with `net.Socket`. The callback runs in the asynchronous context of this call. */
  override write(chunk: unknown, callback?: (error: Error | null | undefined) => void): boolean;
  /** Write text in an encoding. */
  override write(
    chunk: unknown,
    encoding: BufferEncoding,
    callback?: (error: Error | null | undefined) => void,
  ): boolean;
  override write(...args: unknown[]): boolean {
    const waits = this.writableLength > 0 || this.writableCorked > 0;
    return super.write(...((waits ? withCallbackHere(args) : args) as Parameters<Duplex['write']>));
  }

  /** End our direction, as with `net.Socket`. The callback runs in the asynchronous context of this call. */
  override end(callback?: () => void): this;
  /** Write a last chunk first. */
  override end(chunk: unknown, callback?: () => void): this;
  /** Write a last chunk of text first. */
  override end(chunk: unknown, encoding: BufferEncoding, callback?: () => void): this;
  override end(...args: unknown[]): this {
    return super.end(...(withCallbackHere(args) as Parameters<Duplex['end']>));
  }

  #begin(list: readonly Uint8Array[], callback: (error?: Error | null) => void): void {
    if (!this.#begun) {
      callback(Object.assign(new Error('Socket is closed'), { code: 'ERR_SOCKET_CLOSED' })); // as node:net
      return;
    }
    if (this.#channel.state === 'opening' && this.#options.protocol === 'sdp') {
      // Whether it stays where it lies can be said once the peer is known.
      this.#callback = inThisContext(callback);
      this.#early = list;
      return;
    }
    const { owned } = this.#channel;
    if (
      owned !== undefined &&
      (this.#leases?.waiting === true || list.some(({ length }) => length >= owned.threshold))
    ) {
      this.#lending().giveAll(owned, list, inThisContext(callback));
      return;
    }
    this.#pieces = new Pieces(list);
    this.#callback = callback;
    this.#pump();
    // It waits for room, of which the connection hears in its context.
    if (this.#callback === callback) this.#callback = inThisContext(callback);
  }

  /**
   * Give `data` away: it is detached at once, leaves from where it lies, and the promise returns its buffer,
   * attached again, when the peer has it. Memory that cannot be detached (a view of a part of its buffer, a
   * pooled Buffer, shared or WebAssembly memory) is copied, and its own buffer is returned. Only over streams
   * with `protocol: 'sdp'`.
   *
   * @throws ERR_NOT_SUPPORTED over another protocol, ERR_CONNECTION_CLOSED
   *
   * @example
   * let buffer: ArrayBufferLike = new ArrayBuffer(1 << 20);
   * buffer = await socket.writeOwned(buffer);
   */
  async writeOwned(data: ArrayBufferLike | Uint8Array): Promise<ArrayBufferLike> {
    this.#checkOwned();
    const { bytes, back } = takeOver(data);
    await this.#lending().lend(bytes).done;
    return back;
  }

  /**
   * Lend `data`, which stays readable: it must not be changed before `done` of the lease, or `touch` of it.
   * With `guard` a change is found, and `done` rejects with ERR_LENT_CHANGED. Only over streams with
   * `protocol: 'sdp'`.
   *
   * @throws ERR_NOT_SUPPORTED over another protocol, ERR_INVALID_ARGUMENT
   *
   * @example
   * const lease = socket.lend(frame);
   * await lease.touch('block');
   * frame.fill(0);
   */
  lend(data: Uint8Array, options: LendOptions = {}): Lease {
    this.#checkOwned();
    return this.#lending().lend(checkBytes('data', data), options);
  }

  #lending(): Leases {
    return (this.#leases ??= new Leases({
      write: (chunk, callback) => this.write(chunk, callback),
      moved: (octets) => (this.#sent += octets),
      failed: (error) => this.destroy(error),
      settled: () => {
        if (!this.#held) this.#hold();
      },
    }));
  }

  #checkOwned(): void {
    if ((this.#options.protocol ?? 'rsocket') !== 'sdp')
      throw new IwarpError('ERR_NOT_SUPPORTED', "memory is lent over streams with protocol: 'sdp' only");
  }

  /**
   * Post memory for the bytes that come next, in place of the stream's readable side: use either. Resolves
   * with their number, 0 at the end of the stream. Several places may be posted. With the modes `sink` and
   * `auto` they are advertised, and the peer writes straight into them. Only over streams with `protocol:
   * 'sdp'`.
   *
   * @throws ERR_NOT_SUPPORTED over another protocol, ERR_INVALID_STATE before `connect`, ERR_ABORTED
   *
   * @example
   * const place = new Uint8Array(1 << 20);
   * const count = await socket.receiveInto(place);
   */
  async receiveInto(memory: Uint8Array, options: WaitOptions = {}): Promise<number> {
    this.#checkOwned();
    const place = checkBytes('memory', memory);
    if (place.length === 0) throw new IwarpError('ERR_INVALID_ARGUMENT', 'memory must not be empty');
    const signal = signalOf(options);
    if (signal?.aborted === true) throw abortError(signal);
    const { owned } = this.#channel;
    if (owned === undefined || this.connecting)
      throw new IwarpError('ERR_INVALID_STATE', 'the socket is not connected yet');
    // Also behind the end of the connection there may be bytes that have not been read.
    if (this.#channel.drained) return this.#endOfPlaces();
    return new Promise<number>((resolve, reject) => {
      let stop = (): void => undefined;
      const withdraw = owned.post(place, (octets) => {
        stop();
        this.bytesRead += octets;
        this.#idle.active();
        if (octets === 0 && signal?.aborted === true) reject(abortError(signal));
        else resolve(octets === 0 ? this.#endOfPlaces() : octets);
      });
      if (signal !== undefined) stop = whenAborted(signal, withdraw);
    });
  }

  /** The end of the stream, which the readable side reports as well. */
  #endOfPlaces(): number {
    nextTick(() => {
      this.#fill();
      if (this.#endGiven && !this.destroyed) this.resume();
    });
    return 0;
  }

  #pump(): void {
    this.#wakeMapped();
    const pieces = this.#pieces;
    if (pieces !== null) {
      if (this.#channel.refused) {
        const closed = new IwarpError('ERR_CONNECTION_CLOSED', 'the peer has closed the connection');
        this.#settleWrite(systemError(closed, 'write'));
        return;
      }
      const taken = this.#take(pieces);
      if (taken < 0) return;
      this.#sent += taken;
      if (taken > 0) this.#idle.active();
      if (pieces.left === 0 && this.#channel.state !== 'opening') this.#settleWrite(null);
    }
    if (
      this.#final !== null &&
      this.#pieces === null &&
      this.#early === null &&
      this.#channel.state !== 'opening'
    ) {
      const final = this.#final;
      this.#final = null;
      final();
    }
  }

  /**
   * Sends the bytes that there is room for; returns -1 if the write has ended because its memory is gone.
   */
  #take(pieces: Pieces): number {
    try {
      return this.#channel.write(pieces);
    } catch (error) {
      this.#settleWrite(error as Error);
      return -1;
    }
  }

  /** Lets each call that waits for a mapped buffer look again, once. */
  #wakeMapped(): void {
    for (let { size } = this.#mappedWaiters; size > 0; size--) this.#mappedWaiters.next(undefined);
  }

  #settleWrite(error: Error | null): void {
    const callback = this.#callback;
    this.#pieces = null;
    this.#callback = null;
    callback?.(error);
    if (!this.#held) this.#hold();
  }

  /** @internal */
  override _final(callback: (error?: Error | null) => void): void {
    const done = inThisContext(() => callback());
    this.#final = () =>
      this.#channel.finish(this.#endsBoth || this.#endGiven ? 'disconnect' : 'shutdown', done);
    this.#pump();
  }

  /** @internal */
  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#hadError = error !== null;
    this.#idle.end();
    this.#keepAlive.stop();
    this.#wanted = false;
    const channel = this.#channel;
    if (this.#callback !== null)
      this.#settleWrite(error ?? new IwarpError('ERR_DESTROYED', 'the socket was destroyed'));
    this.#wakeMapped();
    if (channel.state === 'closed') {
      callback(error);
      return;
    }
    // Also with an error, which is the program's: bytes written before it arrive, as with node:net.
    this.#dialing?.stop();
    if (channel.state === 'opening') channel.abort();
    else channel.close();
    if (error !== null)
      callback(error); // a peer that does not answer delays no caller
    else this.#onGone = () => callback(null);
    this.#wait.set(CLOSE_MS, () => {
      if (!this.writableFinished) this.#channel.setRef(false);
      this.#tellGone();
    });
  }

  /** False if no call waits for the end of the connection. */
  #tellGone(): boolean {
    const gone = this.#onGone;
    this.#onGone = null;
    gone?.();
    return gone !== null;
  }

  /**
   * `close` says, as with `net.Socket`, whether there was an error. A write that was cut short by `destroy()`
   * has one, the socket has not.
   */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event !== 'close' || values.length > 0) return super.emit(event, ...values);
    const emit = (): boolean => super.emit(event, this.#hadError);
    // The call that ends a connection may belong to another part of the program than the connection.
    return this.#channel.asyncContext?.runInAsyncScope(emit, undefined) ?? emit();
  }

  // ------------------------------------------------------------------------------------------------- channel

  #opened(): void {
    const { localAddress, remoteAddress } = this.#channel;
    this.#addresses = { local: localAddress!, remote: remoteAddress! };
    if (this.#keepAliveMs !== null) this.#setProbes();
    this.#idle.active();
    this.emit('connect');
    this.emit('ready');
    if (this.#onread !== null) this.#fill();
    const early = this.#early;
    const callback = this.#callback;
    this.#early = null;
    if (early !== null && callback !== null) {
      this.#callback = null;
      this.#begin(early, callback);
    }
    this.#pump();
    if (!this.#held) this.#hold();
  }

  #closed(error: IwarpError | undefined): void {
    this.#wait.stop();
    if (this.#tellGone()) return;
    if (error !== undefined) {
      if (this.#addresses !== null) this.destroy(systemError(error, 'read'));
      else if (this.#dialing?.next() !== true)
        this.destroy(systemError(error, 'connect', this.#dialing?.place ?? {}));
    } else {
      this.#fill();
      this.#pump();
    }
  }
}

/** Milliseconds as `node:net` takes them here: anything that is no positive number is 0. */
function probeDelay(delay: unknown): number {
  const ms = Number(delay);
  return ms > 0 && Number.isFinite(ms) ? ms : 0;
}

/**
 * Connect: `connect(options, listener)`, or `connect(port, host, listener)` as in `node:net`. If connecting
 * fails (no TCP connection, a rejection, a peer that speaks another protocol), an `error` event follows.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const socket = connect({ host: '10.0.0.2', port: 7471 });
 * socket.write('hello');
 * for await (const chunk of socket) console.log(String(chunk));
 */
export function connect(options: ConnectOptions | PathOptions, listener?: () => void): RdmaSocket;
/** Connect to a port of a host, as `net.connect` does. */
export function connect(port: number | string, host?: string | null, listener?: () => void): RdmaSocket;
/** Connect to a port of this machine, or to the Unix socket at a path. */
export function connect(portOrPath: number | string, listener?: () => void): RdmaSocket;
export function connect(...given: ConnectArguments): RdmaSocket {
  const { options, listener } = connectArguments(given);
  // A mistake throws before anything is made.
  return RdmaSocket.to(options, planConnect(options), listener);
}
