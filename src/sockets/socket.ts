/**
 * A stream over RDMA that speaks the rsocket protocol: a `node:stream` Duplex in the shape of `net.Socket`, so that stream code runs over it
 * unchanged. The peer is another socket of this kind, or any program on librdmacm's rsockets (rstream, rcopy, programs under librspreload).
 */
import { addAbortSignal, Duplex } from 'node:stream';
import type { Rnic } from '../api/environment.ts';
import { abortError, signalOf, type WaitOptions } from '../base/abort.ts';
import { Alarm } from '../base/alarm.ts';
import { checkBoolean, checkBytes, checkFunction, IwarpError } from '../base/errors.ts';
import { checkU64 } from '../base/u64.ts';
import { Waiters } from '../base/waiters.ts';
import type { ActiveConnection, PassiveConnection } from '../cm/manager.ts';
import type { PortAddress } from '../transport/port.ts';
import { warmHeap } from '../transport/warm-heap.ts';
import { Channel } from './channel.ts';
import { placeOf, type OnReadOptions } from './onread.ts';
import { checkTime, type RdmaSocketOptions } from './options.ts';
import { goneError, Pieces } from './pieces.ts';
import { IdleTimer, KeepAliveTimer } from './timers.ts';
import type { ConnectionData } from './wire.ts';

/**
 * How long 'close' waits for the peer's end after `destroy`. Then the connection goes on alone, with octets that have not reached a slow or busy peer yet,
 * as the system does for a socket of node:net. It keeps the process alive as long as that takes if the stream was ended before: a peer that finds nobody
 * when it offers the window for what it has read would lose the rest.
 */
export const CLOSE_MS = 2000;
/** Largest piece given to the reader at once. */
const READ_OCTETS = 65_536;

/** State of a socket, as `net.Socket.readyState`. */
export type ReadyState = 'opening' | 'open' | 'readOnly' | 'writeOnly' | 'closed';

/** Events of {@link RdmaSocket} beyond those of a Duplex, with the arguments of their listeners. */
export interface SocketEvents {
  /** The connection is established. */
  connect: [];
  /** Right after `connect`. */
  ready: [];
  /** No octets in either direction for the time that {@link RdmaSocket.setTimeout} was given. */
  timeout: [];
  /** The socket has ended; `hadError` is true if an `error` event came first. */
  close: [hadError: boolean];
}

/** Listening to them. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export interface RdmaSocket {
  /** Add a listener. */
  on<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** Add a listener for another event of a Duplex. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  on(event: string | symbol, listener: (...values: any[]) => void): this;
  /** Add a one-time listener. */
  once<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** Add a one-time listener for another event of a Duplex. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  once(event: string | symbol, listener: (...values: any[]) => void): this;
  /** The same as `on`. */
  addListener<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** The same as `on`, for another event of a Duplex. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  addListener(event: string | symbol, listener: (...values: any[]) => void): this;
  /** Add a listener before the others. */
  prependListener<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** Add a listener before the others, for another event of a Duplex. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  prependListener(event: string | symbol, listener: (...values: any[]) => void): this;
  /** Add a one-time listener before the others. */
  prependOnceListener<E extends keyof SocketEvents>(event: E, listener: (...values: SocketEvents[E]) => void): this;
  /** Add a one-time listener before the others, for another event of a Duplex. */
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
  #channel: Channel;
  #wanted = false;
  #onread: OnReadOptions | null = null;
  /** With `onread`: the socket has not been paused. */
  #reading = true;
  /** A piece is being given, from inside of which nothing else may be. */
  #giving = false;
  /** What is being written. */
  #pieces: Pieces | null = null;
  #callback: ((error?: Error | null) => void) | null = null;
  #final: (() => void) | null = null;
  #onGone: (() => void) | null = null;
  readonly #mappedWaiters = new Waiters<void>();
  #endGiven = false;
  /** Our end will be that of both directions, and is told so at once: a peer that hears of a half close first goes on sending credits. */
  #endsBoth = false;
  readonly #idle: IdleTimer;
  readonly #keepAlive: KeepAliveTimer;
  /** The wait for the peer's end. */
  readonly #wait: Alarm;
  #hadError = false;
  #addresses: { readonly local: PortAddress; readonly remote: PortAddress } | null = null;
  /** Octets given to the reader so far. */
  bytesRead = 0;
  /** Octets put on their way so far. */
  #sent = 0;

  /** @internal Use {@link connect} or a server. */
  constructor(options: RdmaSocketOptions, rnic: Rnic) {
    const { highWaterMark } = options;
    super({
      allowHalfOpen: options.allowHalfOpen ?? false, autoDestroy: true, emitClose: true, decodeStrings: true, ...(highWaterMark === undefined ? {} : { highWaterMark }),
    });
    this.#idle = new IdleTimer(rnic.scheduler, () => this.emit('timeout'));
    this.#keepAlive = new KeepAliveTimer(rnic.scheduler, () => this.#channel.keepAlive());
    this.#wait = new Alarm(rnic.scheduler);
    this.#channel = new Channel(rnic, options, {
      onOpen: () => this.#opened(options),
      onReadable: () => this.#fill(),
      onWritable: () => this.#pump(),
      onEnd: () => this.#fill(),
      onClosed: (error) => this.#closed(error),
    });
    // From now on, as with net.connect: it also runs while the connection is being made.
    if (options.timeout !== undefined) this.setTimeout(options.timeout);
    if (options.signal !== undefined) addAbortSignal(options.signal, this);
  }

  /** @internal Octets go there from now on. */
  readInto(onread: OnReadOptions): void {
    this.#onread = onread;
  }

  /** @internal The side that connects. */
  start(make: (channel: Channel) => ActiveConnection): void {
    this.#channel.use(make(this.#channel), null);
  }

  /** @internal The side that is connected to. */
  accept(request: PassiveConnection, peer: ConnectionData): void {
    this.#channel.use(request, peer);
    // ORD and IRD as librdmacm asks for: at least one read, for the RTR message.
    request.accept(this.#channel.qp, { privateData: this.#channel.connectionData });
  }

  // ----------------------------------------------------------------------------------------------------- net.Socket

  /** True until `connect`, or until the socket has ended. */
  get connecting(): boolean {
    return this.#channel.state === 'opening' && !this.destroyed;
  }

  /** The same as `connecting`. */
  get pending(): boolean {
    return this.connecting;
  }

  /** State of the socket, as with `net.Socket`. */
  get readyState(): ReadyState {
    if (this.connecting) return 'opening';
    const reads = this.readable && !this.readableEnded;
    const writes = this.writable;
    if (reads && writes) return 'open';
    return reads ? 'readOnly' : writes ? 'writeOnly' : 'closed';
  }

  /** The peer's address; undefined until `connect`, like the five properties that follow. */
  get remoteAddress(): string | undefined {
    return this.#addresses?.remote.address;
  }

  /** The peer's TCP port. */
  get remotePort(): number | undefined {
    return this.#addresses?.remote.port;
  }

  /** `IPv4` or `IPv6`. */
  get remoteFamily(): string | undefined {
    return this.#addresses?.remote.family;
  }

  /** Our address. */
  get localAddress(): string | undefined {
    return this.#addresses?.local.address;
  }

  /** Our TCP port. */
  get localPort(): number | undefined {
    return this.#addresses?.local.port;
  }

  /** `IPv4` or `IPv6`. */
  get localFamily(): string | undefined {
    return this.#addresses?.local.family;
  }

  /** Octets written so far, including those that wait to be sent, as with `net.Socket`. */
  get bytesWritten(): number {
    // What is being written counts as waiting until all of it has been taken.
    return this.#sent + this.writableLength - (this.#pieces?.taken ?? 0);
  }

  /** Our address, port and family; an empty object until `connect`. */
  address(): PortAddress | Record<string, never> {
    return this.#addresses?.local ?? {};
  }

  /** Emit `timeout` after this many ms without octets in either direction; 0: never. The socket stays open. */
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

  /** The value that {@link RdmaSocket.setTimeout} was given; undefined when it is off. */
  get timeout(): number | undefined {
    return this.#idle.ms === 0 ? undefined : this.#idle.ms;
  }

  /** Send a zero-length Write every `delay` ms (0: every two hours), so that TCP notices when the peer is gone. */
  setKeepAlive(enable = false, delay = 0): this {
    checkBoolean('enable', enable);
    checkTime('delay', delay);
    if (enable && !this.destroyed) this.#keepAlive.start(delay);
    else this.#keepAlive.stop();
    return this;
  }

  /** Does nothing, because nothing is delayed here. For code that calls it. */
  setNoDelay(_noDelay?: boolean): this {
    return this;
  }

  /** Keep the process alive while the connection is open, as it does unless {@link RdmaSocket.unref} has been called. */
  ref(): this {
    this.#channel.connection?.ref();
    return this;
  }

  /** Let the process end although the connection is open. A connection that is being made still keeps it alive. */
  unref(): this {
    this.#channel.connection?.unref();
    return this;
  }

  /**
   * End both directions, and destroy the socket when everything has been written. What has not reached a slow or busy peer then goes on to it: the
   * connection and the process wait a minute for the peer's end, `close` 2 s.
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

  // ------------------------------------------------------------------------------------------------- mapped buffers

  /**
   * Let the peer write directly into `memory` (riomap). The peer addresses its octets by offsets that begin at `offset`. The peer must have room for the
   * mapping (`iomapSize`), which it announces when it connects. Data written after this call arrives after the mapping. With the engine in a worker the
   * memory has to be over a SharedArrayBuffer.
   *
   * @throws ERR_NOT_SHARED, ERR_INVALID_STATE before `connect`, ERR_LIMIT if the peer has no room
   */
  mapMemory(memory: ArrayBufferView, offset: bigint | number): void {
    const bytes = checkBytes('memory', memory);
    const from = BigInt(checkU64('offset', offset));
    this.#checkConnected();
    this.#channel.map(bytes, from);
  }

  /**
   * End a mapping of {@link RdmaSocket.mapMemory}. The peer must have stopped writing there. The end of the connection ends the mapping too: after it
   * this call does nothing.
   *
   * @throws ERR_INVALID_REGION if `memory` is not mapped
   */
  unmapMemory(memory: ArrayBufferView): void {
    this.#channel.unmap(checkBytes('memory', memory));
  }

  /**
   * Write into memory that the peer has mapped (riowrite). Resolves when all octets have been taken. The peer gets no notice. When `signal` is aborted,
   * the wait for room ends: octets that were taken are written, the others are not, and the stream goes on.
   *
   * @throws ERR_OUT_OF_RANGE if the peer has mapped nothing there, ERR_INVALID_STATE before `connect`, ERR_INVALID_REGION if the memory was transferred
   * away while it waited, ERR_CONNECTION_CLOSED, ERR_ABORTED
   */
  async writeMapped(data: ArrayBufferView, offset: bigint | number, options: WaitOptions = {}): Promise<void> {
    const bytes = checkBytes('data', data);
    const { length } = bytes;
    const from = BigInt(checkU64('offset', offset));
    const signal = signalOf(options);
    if (signal?.aborted === true) throw abortError(signal);
    this.#checkConnected();
    let at = 0;
    while (at < length) {
      if (bytes.length !== length) throw goneError('data');
      if (this.destroyed || this.#channel.state !== 'open') throw new IwarpError('ERR_CONNECTION_CLOSED', 'the connection is closed');
      const taken = this.#channel.writeMapped(bytes.subarray(at), from + BigInt(at));
      at += taken;
      this.#sent += taken;
      if (taken === 0) await this.#mappedWaiters.wait(signal);
    }
    this.#idle.active();
  }

  #checkConnected(): void {
    if (this.connecting) throw new IwarpError('ERR_INVALID_STATE', 'the socket is not connected yet');
  }

  // ---------------------------------------------------------------------------------------------------------- Duplex

  /** @internal */
  override _read(): void {
    this.#wanted = true;
    this.#fill();
  }

  /** Stop reading, as with `net.Socket`. */
  override pause(): this {
    this.#reading = false;
    return super.pause();
  }

  /** Go on reading. */
  override resume(): this {
    this.#reading = true;
    // As in node:net, not from inside the call.
    if (this.#onread !== null) process.nextTick(() => this.#fill());
    return super.resume();
  }

  #fill(): void {
    if (this.#onread === null) this.#fillStream();
    else this.#fillPlaces(this.#onread);
    // With `onread` the end too is heard of by those who read.
    if (this.#onread !== null && (this.#giving || !this.#reading)) return;
    if (this.#channel.drained && !this.#endGiven && !this.destroyed) {
      this.#endGiven = true;
      this.push(null);
      // As in node:net: an end that nobody listens for is still an end.
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
      while (this.#reading && this.#channel.readable && !this.destroyed) {
        const place = this.#placeOf(onread);
        if (place === null) return;
        const octets = this.#channel.readInto(place);
        this.bytesRead += octets;
        this.#idle.active();
        if (onread.callback(octets, place) === false) this.#reading = false;
      }
    } finally {
      this.#giving = false;
    }
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
  override _write(chunk: Uint8Array, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#begin([chunk], callback);
  }

  /** @internal What was written in many pieces while the socket was corked or had no room leaves in few transfers. */
  override _writev(chunks: { chunk: Uint8Array }[], callback: (error?: Error | null) => void): void {
    this.#begin(chunks.map(({ chunk }) => chunk), callback);
  }

  #begin(list: readonly Uint8Array[], callback: (error?: Error | null) => void): void {
    this.#pieces = new Pieces(list);
    this.#callback = callback;
    this.#pump();
  }

  #pump(): void {
    this.#wakeMapped();
    const pieces = this.#pieces;
    if (pieces !== null) {
      if (this.#channel.refused) {
        this.#settleWrite(new IwarpError('ERR_CONNECTION_CLOSED', 'the peer has closed the connection and takes no more'));
        return;
      }
      const taken = this.#take(pieces);
      if (taken < 0) return;
      this.#sent += taken;
      if (taken > 0) this.#idle.active();
      if (pieces.left === 0 && this.#channel.state !== 'opening') this.#settleWrite(null);
    }
    if (this.#final !== null && this.#pieces === null && this.#channel.state !== 'opening') {
      const final = this.#final;
      this.#final = null;
      final();
    }
  }

  /** What there is room for; -1 if the write has ended because its memory is not there any more. */
  #take(pieces: Pieces): number {
    try {
      return this.#channel.write(pieces);
    } catch (error) {
      this.#settleWrite(error as Error);
      return -1;
    }
  }

  /** Those who wait look again, each once. */
  #wakeMapped(): void {
    for (let { size } = this.#mappedWaiters; size > 0; size--) this.#mappedWaiters.next(undefined);
  }

  #settleWrite(error: Error | null): void {
    const callback = this.#callback;
    this.#pieces = null;
    this.#callback = null;
    callback?.(error);
  }

  /** @internal */
  override _final(callback: (error?: Error | null) => void): void {
    this.#final = () => this.#channel.finish(this.#endsBoth || this.#endGiven ? 'disconnect' : 'shutdown', () => callback());
    this.#pump();
  }

  /** @internal */
  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#hadError = error !== null;
    this.#idle.end();
    this.#keepAlive.stop();
    this.#wanted = false;
    const channel = this.#channel;
    if (this.#callback !== null) this.#settleWrite(error ?? new IwarpError('ERR_DESTROYED', 'the socket was destroyed'));
    this.#wakeMapped();
    if (channel.state === 'closed') {
      callback(error);
      return;
    }
    // Also with an error, which is the program's: what was written before it arrives, as with node:net.
    if (channel.state === 'opening') channel.abort();
    else channel.close();
    if (error !== null) callback(error); // a peer that answers nothing keeps nobody waiting for it
    else this.#onGone = () => callback(null);
    this.#wait.set(CLOSE_MS, () => {
      if (!this.writableFinished) this.#channel.connection?.unref();
      this.#tellGone();
    });
  }

  /** False if nobody waits to hear that the connection is gone. */
  #tellGone(): boolean {
    const gone = this.#onGone;
    this.#onGone = null;
    gone?.();
    return gone !== null;
  }

  /** `close` says, as with `net.Socket`, whether there was an error. A write that was cut short by `destroy()` has one, the socket has not. */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    return event === 'close' && values.length === 0 ? super.emit(event, this.#hadError) : super.emit(event, ...values);
  }

  // --------------------------------------------------------------------------------------------------------- channel

  #opened(options: RdmaSocketOptions): void {
    const { localAddress, remoteAddress } = this.#channel.connection!;
    this.#addresses = { local: localAddress!, remote: remoteAddress! };
    if (options.keepAlive === true) this.setKeepAlive(true, options.keepAliveInitialDelay ?? 0);
    this.#idle.active();
    this.emit('connect');
    this.emit('ready');
    this.#pump();
  }

  #closed(error: IwarpError | undefined): void {
    this.#wait.stop();
    if (this.#tellGone()) return;
    if (error !== undefined) {
      this.destroy(error);
    } else {
      this.#fill();
      this.#pump();
    }
  }
}
