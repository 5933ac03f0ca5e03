/**
 * One rsocket connection on a queue pair: messages, control, mapped buffers, the end. Windows and credits are
 * counted in receive-window.ts and send-window.ts; the stream that users see is in socket.ts.
 *
 * A free half of the receive buffer is Written as an entry into the peer's list and announced by a message.
 */
import { inThisContext, type AsyncContext } from '../base/async-context.ts';
import { engineOf, type Rnic } from '../api/environment.ts';
import { attemptError, closeError } from '../api/errors.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { IwarpError } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import { createWorkCompletion, type WorkCompletion } from '../verbs/cq.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { ReceiveSlots } from '../verbs/receive-slots.ts';
import type {
  ByteChannel,
  ChannelHandler,
  ChannelOptions,
  ChannelState,
  MappedMemory,
} from '../sockets/byte-channel.ts';
import type { Pieces } from '../sockets/pieces.ts';
import type { PortAddress } from '../transport/port.ts';
import { Mappings } from './iomap.ts';
import { ID, MAX_CONTROLS, Posting } from './posting.ts';
import { ReceiveWindow } from './receive-window.ts';
import { ChannelResources, viewOf } from './resources.ts';
import { MAX_TRANSFERS, SendWindow } from './send-window.ts';
import { TargetList } from './target-list.ts';
import { CHANNEL_TABLE, DIRECTION_TABLE, type ChannelInput, type DirectionState } from './states.ts';
import {
  CONTROL,
  decodeConnectionData,
  encodeConnectionData,
  memoryWraps,
  IOMAP_OCTETS,
  MESSAGE_OCTETS,
  messageOp,
  messageValue,
  OP,
  SGE_OCTETS,
  SGL_ENTRIES,
  type ConnectionData,
} from './wire.ts';

/** Longest delay of TCP's probes, ms. */
const MAX_PROBE_DELAY = 0x7fff_ffff;

/**
 * Every connection begins with the receive buffer of librdmacm: a thousand that are idle reserve 128 MiB of
 * address space, where it was 2 GiB, and 5 GiB with a worker.
 */
const FIRST_RECEIVE = 131_072;
/**
 * With halves of 64 KiB a fast sender waits a round trip for each, and reached a quarter of this one's rate
 * (`stream write` of bench/micro/layers.ts). So a connection whose peer has sent half of the first buffer
 * gets this one.
 */
const DEFAULT_BUFFER = 1_048_576;
/** A window passes from thread to thread six times until it is offered again. */
const DEFAULT_WORKER_RECEIVE = 4_194_304;
const DEFAULT_CREDITS = 384;
/** Receives beyond the credits: control messages use receives too, and are not counted. */
const SPARE_RECEIVES = 64;
/**
 * How long the connection outlives our DISCONNECT, if the peer does not end it: a minute, as Linux waits for
 * the FIN of a peer (tcp_fin_timeout). Until then our last data may be on its way through a slow link, or to
 * a program that is busy. If our FIN came in between, a window that such a peer offers for octets it has read
 * would find the queue pair in Closing, which is a reset (VERBS-043), and with siw librdmacm's program would
 * wait for ever: siw loses the Send behind a Write then. A peer that reads ends by itself.
 */
export const LINGER_MS = 60_000;

/** The rsocket protocol as a channel of byte streams. */
export class Channel implements ByteChannel, MappedMemory {
  readonly #resources: ChannelResources;
  readonly #handler: ChannelHandler;
  readonly #scheduler: Scheduler;
  readonly #wc = [createWorkCompletion()];
  readonly #onNotify = (): void => this.#poll();
  #connection: CmConnection | null = null;
  #state: ChannelState = CHANNEL_TABLE.initial;
  #failure: IwarpError | null = null;
  /** The connection has refused a request. */
  #broken: IwarpError | null = null;
  /**
   * At the end of the connection: the peer had ended its direction, and of ours at most our own end had still
   * to go. A peer may leave without that: nothing is lost, and it is no error, as in node:net.
   */
  #quiet = false;
  /** This side has dropped the connection, whose end is still to come. */
  #aborted = false;
  /** `onClosed` has been called and has returned. */
  #over = false;

  // Receiving.
  readonly #inbound: ReceiveWindow;
  readonly #wordView: DataView;
  /** A place for each message, posted again when it has been read. */
  readonly #places: ReceiveSlots;
  /**
   * Slot and length of each message that waits until the event handler has reported the connection, or until
   * the program has the octets that came before it.
   */
  readonly #early: (readonly [number, number])[] = [];
  readonly #credits: number;
  /** How far the peer has ended its direction. */
  #ended: DirectionState = DIRECTION_TABLE.initial;
  /** The connection is there, and the handler has still to be called for it. */
  #opened = false;
  /** Octets have come, and the handler has still to be called for them. */
  #news = false;
  /** The program has thrown out of a listener: the work after that call is still to be done. */
  #interrupted = false;

  // Sending.
  readonly #outbound: SendWindow;
  readonly #posting: Posting;
  readonly #list: TargetList;
  readonly #iomapSize: number;
  /** How far we have ended ours. */
  #said: DirectionState = DIRECTION_TABLE.initial;
  #onLastControl: (() => void) | null = null;
  readonly #lingering: Alarm;

  // Mapped buffers.
  readonly #maps = new Mappings();

  constructor(rnic: Rnic, options: ChannelOptions, handler: ChannelHandler) {
    this.#handler = handler;
    this.#scheduler = rnic.scheduler;
    this.#lingering = new Alarm(rnic.scheduler);
    // A size that is given is there from the start, as a program that gives one has its reason.
    const size = (options.receiveBuffer ?? FIRST_RECEIVE) & ~1;
    const sendBuffer = options.sendBuffer ?? DEFAULT_BUFFER;
    this.#credits = options.credits ?? DEFAULT_CREDITS;
    this.#iomapSize = options.iomapSize ?? 0;
    const receives = this.#credits + SPARE_RECEIVES;
    const sends = 2 * MAX_TRANSFERS + 4 * MAX_CONTROLS;
    const resources = new ChannelResources(rnic, {
      receives,
      sends,
      receiveBuffer: size,
      sendBuffer,
      list: SGL_ENTRIES * SGE_OCTETS + this.#iomapSize * IOMAP_OCTETS,
      words: receives * MESSAGE_OCTETS,
    });
    this.#resources = resources;
    const full = engineOf(rnic) === 'worker' ? DEFAULT_WORKER_RECEIVE : DEFAULT_BUFFER;
    const grow = options.receiveBuffer === undefined ? () => this.#largerBuffer(full) : null;
    this.#inbound = new ReceiveWindow(resources.receive.bytes, this.#credits, grow);
    this.#wordView = viewOf(resources.words);
    this.#list = new TargetList(resources.list, this.#iomapSize);
    this.#outbound = new SendWindow(sendBuffer, () => resources.send.bytes);
    this.#posting = new Posting(
      resources.qp,
      () => resources.send,
      (cause) => {
        this.#broken ??= new IwarpError('ERR_CONNECTION_RESET', 'the connection takes no more work', {
          cause,
        });
        this.abort();
      },
    );
    this.#places = new ReceiveSlots(resources.words, MESSAGE_OCTETS);
    for (let place = 0; place < receives; place++) this.#postReceive(place);
    resources.cq.handleIn(null, this.#onNotify);
    resources.cq.requestNotify();
  }

  /** librdmacm asks for one Read, since a peer-to-peer connection may begin with one. */
  get depth(): number {
    return 1;
  }

  get qp(): QueuePair {
    return this.#resources.qp;
  }

  /** Null where a limit of the device is in the way: the connection goes on with the buffer it has. */
  #largerBuffer(octets: number): Uint8Array | null {
    try {
      return this.#resources.growReceive(octets).bytes;
    } catch (error) {
      if (error instanceof IwarpError && error.code === 'ERR_LIMIT') return null;
      throw error;
    }
  }

  /** There is memory for octets to wait in; without it the connection ends. */
  #canSend(): boolean {
    try {
      return this.#resources.send.length > 0;
    } catch (error) {
      this.abort(
        new IwarpError('ERR_LIMIT', 'no memory for the send buffer of a connection', { cause: error }),
      );
      return false;
    }
  }

  #postReceive(place: number): void {
    this.#places.post(this.qp, ID.RECEIVE + place, place);
  }

  /** The octets for our private data. */
  get connectionData(): Uint8Array {
    const { list, receive } = this.#resources;
    return encodeConnectionData({
      bigEndian: false,
      iomap: true,
      credits: this.#credits,
      iomapSize: this.#iomapSize,
      targetSgl: { addr: list.addr, key: list.rkey, length: SGL_ENTRIES },
      dataBuffer: { addr: receive.addr, key: receive.rkey, length: this.#inbound.half },
    });
  }

  #step(input: ChannelInput): void {
    this.#state = nextState(CHANNEL_TABLE, this.#state, input, this);
  }

  get state(): ChannelState {
    return this.#state;
  }

  get localAddress(): PortAddress | undefined {
    return this.#connection?.localAddress;
  }

  get remoteAddress(): PortAddress | undefined {
    return this.#connection?.remoteAddress;
  }

  get tls(): ByteChannel['tls'] {
    return this.#connection?.tls;
  }

  get asyncContext(): AsyncContext | undefined {
    return this.#connection?.asyncContext;
  }

  get mapped(): MappedMemory {
    return this;
  }

  setRef(on: boolean): void {
    if (on) this.#connection?.ref();
    else this.#connection?.unref();
  }

  probe(enable: boolean, delay: number): boolean {
    return this.#connection?.setKeepAlive(enable, Math.min(Math.floor(delay), MAX_PROBE_DELAY)) === true;
  }

  /** The peer sends no more, and everything it sent has been read. */
  get drained(): boolean {
    return this.#ended !== 'flowing' && this.#inbound.pending === 0;
  }

  /** The peer takes no more. */
  get refused(): boolean {
    return this.#ended === 'disconnected' || this.#state === 'closed';
  }

  /** Use this connection; `peer` is known on the accepting side. */
  use(connection: CmConnection, peer: ConnectionData | null): void {
    this.#connection = connection;
    this.#posting.peer = peer;
    this.#resources.cq.handleIn(connection.asyncContext, this.#onNotify);
    connection.setHandler((event) => this.#handleEvent(event));
  }

  // ------------------------------------------------------------------------------------------------- reading

  /** A copy of at most `max` received octets; null if there is none. */
  read(max: number): Buffer | null {
    const data = this.#inbound.read(max);
    if (data !== null) this.#giveCredits();
    return data;
  }

  /** Octets have come that have not been read. */
  get readable(): boolean {
    return this.#inbound.pending > 0;
  }

  /** Copy received octets to the start of `place`; returns their number. */
  readInto(place: Uint8Array): number {
    const octets = this.#inbound.readInto(place);
    if (octets > 0) this.#giveCredits();
    return octets;
  }

  /**
   * Offer the next half if it is free, and tell how many messages may come, when either is worth a message.
   */
  #giveCredits(): void {
    if (this.#state !== 'open' || this.#ended !== 'flowing' || this.#posting.isFull) return;
    const grant = this.#inbound.takeGrant();
    if (grant === null) return;
    if (grant.offset !== null) {
      const { receive } = this.#resources;
      const addr = receive.addr + BigInt(grant.offset);
      this.#posting.offer({ addr, key: receive.rkey, length: this.#inbound.half });
    }
    this.#posting.control(OP.SGL, grant.limit, ID.CONTROL);
  }

  // ------------------------------------------------------------------------------------------------- writing

  /** Send the octets that there is room for now; returns their number. */
  write(pieces: Pieces): number {
    if (this.#state !== 'open' || this.#aborted || !this.#tellMaps() || !this.#canSend()) return 0;
    const { left } = pieces;
    while (pieces.left > 0) {
      const transfer = this.#outbound.take(pieces);
      if (transfer === null) break;
      this.#posting.data(transfer);
    }
    return left - pieces.left;
  }

  /**
   * Say that we send no more: `shutdown` while the peer may still send, `disconnect` for the end of both
   * directions. `done` follows when it has been handed to the network.
   */
  finish(how: 'shutdown' | 'disconnect', done: () => void): void {
    if (
      this.#state !== 'open' ||
      this.#said === 'disconnected' ||
      (this.#said === 'shut-down' && how === 'shutdown') ||
      this.#ended === 'disconnected'
    ) {
      done();
      return;
    }
    this.#said = nextState(DIRECTION_TABLE, this.#said, how, this);
    const before = this.#onLastControl;
    this.#onLastControl = () => {
      before?.();
      done();
    };
    this.#posting.control(
      OP.CONTROL,
      how === 'shutdown' ? CONTROL.SHUTDOWN : CONTROL.DISCONNECT,
      ID.LAST_CONTROL,
    );
  }

  /** A zero-length Write: the peer notices nothing, its TCP answers. */
  keepAlive(): void {
    if (this.#state === 'open' && !this.#posting.isFull) this.#posting.keepAlive();
  }

  // ------------------------------------------------------------------------------------------ mapped buffers

  /**
   * Let the peer write straight into `memory`, which it will know by `offset`. ERR_LIMIT when its map is
   * full.
   */
  map(memory: Uint8Array, offset: bigint): void {
    const { peer } = this.#posting;
    const index = this.#maps.place(peer?.iomap === true ? peer.iomapSize : 0);
    this.#maps.add({
      index,
      offset,
      mr: this.#resources.pd.registerMemory(memory, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE),
    });
    this.#tellMaps();
  }

  /** End a mapping; the peer must have stopped writing to it. */
  unmap(memory: Uint8Array): void {
    this.#maps.remove(memory);
  }

  /**
   * Write the entries of new mappings into the peer's map, in front of any data; false if that has to wait.
   */
  #tellMaps(): boolean {
    for (let untold = this.#maps.next; untold !== undefined; untold = this.#maps.next) {
      if (this.#state !== 'open' || !this.#outbound.hasCredit || this.#posting.isFull) return false;
      this.#maps.told();
      this.#outbound.countMessage();
      this.#posting.map(untold.index, untold.offset, untold.mr);
    }
    return true;
  }

  /**
   * Write into the peer's mapped buffer; returns how many octets were taken. ERR_OUT_OF_RANGE if no mapping
   * holds `offset`.
   */
  writeMapped(data: Uint8Array, offset: bigint): number {
    if (this.#state !== 'open') return 0;
    const target = this.#list.mapped(offset);
    if (target === null)
      throw new IwarpError('ERR_OUT_OF_RANGE', `the peer has mapped no buffer at ${offset}`);
    const transfer = this.#tellMaps() && this.#canSend() ? this.#outbound.takeDirect(data, target) : null;
    if (transfer === null) return 0;
    this.#posting.direct(transfer);
    return transfer.octets;
  }

  // --------------------------------------------------------------------------------------------- completions

  /**
   * Report all pending events, and then do `last`. The program may throw out of any of its listeners, even
   * repeatedly. As with sockets of node:net, that does not end the connection: each time the poll goes on
   * where it stopped, in a new turn of the event loop, and no received message is skipped.
   */
  #poll(last?: () => void): void {
    let through = false;
    try {
      this.#pollAll();
      last?.();
      through = true;
    } finally {
      if (!through) {
        this.#interrupted = true;
        this.#scheduler.defer(inThisContext(() => this.#poll(last)));
      }
    }
  }

  #pollAll(): void {
    const { cq } = this.#resources;
    if (cq.destroyed) return;
    if (this.#opened) {
      this.#opened = false;
      this.#handler.onOpen();
    }
    if (this.#interrupted) {
      this.#interrupted = false;
      this.#news = true;
      this.#handler.onWritable();
    }
    if (this.#state !== 'opening') {
      for (let early = this.#early.shift(); early !== undefined; early = this.#early.shift())
        this.#arrived(early[0], early[1]);
    }
    for (;;) {
      if (cq.poll(this.#wc, 1) === 0) {
        if (this.#news) {
          this.#tellReadable();
          if (cq.destroyed) return;
          continue;
        }
        cq.requestNotify();
        if (cq.length === 0) return;
        continue;
      }
      this.#complete(this.#wc[0]!);
      if (cq.destroyed) return;
    }
  }

  #complete(wc: WorkCompletion): void {
    if (wc.status !== 'success') return; // the end of the connection says why
    const id = wc.wrId as number;
    if (id >= ID.RECEIVE) {
      this.#arrived(id - ID.RECEIVE, wc.byteLength);
      return;
    }
    if (id === ID.DATA || id === ID.DIRECT) this.#outbound.complete();
    else this.#posting.controlDone();
    if (id === ID.LAST_CONTROL) {
      const done = this.#onLastControl;
      this.#onLastControl = null;
      done?.();
    }
    // While lingering, a completed write is progress: restart the timer.
    if (this.#lingering.isSet) this.#linger();
    this.#giveCredits();
    this.#handler.onWritable();
  }

  #arrived(slot: number, octets: number): void {
    if (this.#aborted) return;
    if (this.#state === 'opening') {
      this.#early.push([slot, octets]);
      return;
    }
    if (octets !== MESSAGE_OCTETS) {
      this.#violation(`the peer sent a message of ${octets} bytes`);
      return;
    }
    const word = this.#wordView.getUint32(slot * MESSAGE_OCTETS, this.#posting.little);
    if (this.#news && messageOp(word) !== OP.DATA) {
      // Octets that came before the end, or before a violation, are delivered first. If the program throws
      // there, this message is handled next.
      this.#early.unshift([slot, octets]);
      this.#tellReadable();
      this.#early.shift();
    }
    if (this.qp.state === 'rts') this.#postReceive(slot);
    const value = messageValue(word);
    switch (messageOp(word)) {
      case OP.DATA:
        this.#dataArrived(value);
        break;
      case OP.SGL:
        this.#outbound.setLimit(value);
        this.#takeWindows();
        if (!this.#aborted) this.#handler.onWritable();
        break;
      case OP.IOMAP:
        if (!this.#inbound.useCredit()) {
          this.#tooMany();
          break;
        }
        this.#inbound.countEmpty(); // it used one of the receives that are counted
        this.#giveCredits();
        this.#handler.onWritable();
        break;
      case OP.CONTROL:
        this.#controlArrived(value);
        break;
      default:
        this.#violation(`the peer sent a message of unknown kind ${messageOp(word)}`);
    }
  }

  #dataArrived(octets: number): void {
    const { granted } = this.#inbound;
    if (this.#ended !== 'flowing') this.#violation('data behind the end of its direction');
    else if (!this.#inbound.useCredit()) this.#tooMany();
    else if (!this.#inbound.arrived(octets))
      this.#badData(`a message announces ${octets} bytes where ${granted} were offered`);
    else {
      if (octets > 0) this.#news = true;
      if (octets === 0 || this.#inbound.outgrown) this.#giveCredits();
    }
  }

  #tooMany(): void {
    this.#badData('a message for which it had no credit');
  }

  /** The data that came before the violation is reported first. */
  #badData(what: string): void {
    try {
      this.#tellReadable();
    } finally {
      this.#violation(what);
    }
  }

  /** Many short transfers that come together are read in one piece. */
  #tellReadable(): void {
    if (!this.#news) return;
    this.#news = false;
    this.#handler.onReadable();
  }

  #controlArrived(value: number): void {
    if (value === CONTROL.KEEPALIVE || this.#ended === 'disconnected') return;
    const first = this.#ended === 'flowing';
    // This does not end both directions even after a SHUTDOWN of ours: the peer has then read neither that
    // nor all data in front of it.
    const input = value === CONTROL.SHUTDOWN ? 'shutdown' : 'disconnect';
    this.#ended = nextState(DIRECTION_TABLE, this.#ended, input, this);
    try {
      if (first) this.#handler.onEnd();
      this.#handler.onWritable();
    } finally {
      // The peer waits for our end, as we do for that of a peer. Its data are here and can be read
      // afterwards.
      if (this.#ended === 'disconnected') this.#leave();
    }
  }

  /** Take the entries that the peer has Written into our list. */
  #takeWindows(): void {
    for (let window = this.#list.take(); window !== null; window = this.#list.take()) {
      if (memoryWraps(window)) {
        this.#violation('a receive buffer beyond 2^64');
        return;
      }
      if (!this.#outbound.addWindow(window)) {
        this.#violation('more receive buffers than it has');
        return;
      }
    }
  }

  #violation(what: string): void {
    this.abort(new IwarpError('ERR_CONNECTION_RESET', `the peer breaks the rsocket protocol: ${what}`));
  }

  // ---------------------------------------------------------------------------------------------- connection

  #handleEvent(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#established(event.parameters.privateData);
        break;
      case 'rejected':
      case 'connect-error':
      case 'unreachable':
      case 'address-error':
        this.#failure ??= attemptError(event);
        break;
      case 'closing':
        // The peer's TCP has ended, with or without a word of this protocol: it sends and takes no more. Its
        // earlier messages are in the completion queue, and are handled first.
        if (event.by === 'peer') this.#poll(() => this.#transportEnded());
        break;
      case 'disconnected': {
        const { cause, error, terminate } = event;
        const leaves = this.#state === 'closing' && this.#broken === null;
        this.#closed(() => {
          const orderly = cause === 'graceful' || ((leaves || this.#quiet) && terminate === undefined);
          return orderly ? undefined : (this.#broken ?? closeError(cause, error, terminate));
        });
        break;
      }
      default:
    }
  }

  #transportEnded(): void {
    // Anyone on the path can end the stream below TLS: only the peer itself makes that an end.
    if (this.#connection?.tls !== undefined && this.#ended === 'flowing' && this.#said !== 'disconnected')
      this.abort(new IwarpError('ERR_CONNECTION_RESET', 'the TLS stream ended without a DISCONNECT'));
    else this.#controlArrived(CONTROL.DISCONNECT);
  }

  #established(privateData: Uint8Array): void {
    if (this.#state !== 'opening' || this.#aborted) return;
    try {
      this.#posting.peer ??= decodeConnectionData(privateData);
    } catch (error) {
      this.abort(error as IwarpError);
      return;
    }
    this.#step('established');
    const { credits, dataBuffer } = this.#posting.peer;
    this.#outbound.open(credits, dataBuffer);
    this.#opened = true;
    try {
      this.#poll();
    } finally {
      this.#giveCredits();
    }
  }

  /**
   * End both directions in order, after everything posted: when the peer has ended the connection too, or
   * when the linger time has passed in which nothing left that waited to.
   */
  close(): void {
    if (this.#state === 'closed' || this.#state === 'closing') return;
    this.finish('disconnect', () => this.#allSaid());
    if (this.#state === 'open') this.#linger();
  }

  #allSaid(): void {
    if (this.#state === 'closed' || this.#state === 'closing') return;
    if (this.#said !== 'disconnected' || this.#ended === 'disconnected') {
      this.#leave();
      return;
    }
    this.#step('all-said');
    this.#linger();
  }

  #linger(): void {
    this.#lingering.set(LINGER_MS, () => this.#leave());
  }

  #leave(): void {
    if (this.#state === 'closed') return;
    this.#step('leave');
    this.#lingering.stop();
    if (this.#connection === null) this.#closed();
    else this.#connection.disconnect();
  }

  /** Drop the connection. */
  abort(error?: IwarpError): void {
    if (this.#state === 'closed') return;
    this.#aborted = true;
    if (error !== undefined) this.#failure ??= error;
    if (this.#connection === null) this.#closed();
    else this.#connection.abort();
  }

  /** `why` is asked after the last completions, where this side has not failed the connection. */
  #closed(why?: () => IwarpError | undefined): void {
    this.#poll(() => this.#end(why));
  }

  #end(why?: () => IwarpError | undefined): void {
    if (this.#state !== 'closed') {
      this.#step('gone');
      this.#lingering.stop();
      this.#quiet = this.#ended !== 'flowing' && this.#outbound.isEmpty;
      if (this.#ended === 'flowing')
        this.#ended = nextState(DIRECTION_TABLE, this.#ended, 'disconnect', this);
      this.#giveBack();
    }
    const done = this.#onLastControl;
    this.#onLastControl = null;
    done?.();
    if (this.#over) return;
    this.#handler.onClosed(this.#failure ?? why?.());
    this.#over = true;
  }

  /** Returns the resources; octets that have come and are unread can still be read. */
  #giveBack(): void {
    const untouched = (this.#connection?.counters().fpdusIn ?? 0) === 0;
    this.#resources.giveBack(
      (bytes) => this.#inbound.holds(bytes),
      untouched,
      () => this.#maps.clear(),
    );
  }
}
