/**
 * One rsocket connection on a queue pair: messages, control, mapped buffers, the end. Windows and credits are counted in receive-window.ts and
 * send-window.ts; what is a stream to its user is in socket.ts.
 *
 * A half of the receive buffer that is free is Written as an entry into the peer's list and announced by a message.
 */
import { engineOf, type Rnic } from '../api/environment.ts';
import { closeError, startupError } from '../api/errors.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { IwarpError, ownError } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import { createWorkCompletion, type CompletionQueue, type WorkCompletion } from '../verbs/cq.ts';
import type { MemoryRegion, ProtectionDomain } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { ReceiveSlots } from '../verbs/receive-slots.ts';
import type { ChannelOptions } from './options.ts';
import { findMapped, Mappings } from './iomap.ts';
import type { Pieces } from './pieces.ts';
import { ReceiveWindow } from './receive-window.ts';
import { MAX_TRANSFERS, SendWindow } from './send-window.ts';
import {
  CONTROL, decodeConnectionData, decodeSge, encodeConnectionData, encodeIomap, encodeSge, IOMAP_OCTETS, MESSAGE_OCTETS,
  messageOp, messageValue, OP, putMessage, SGE_OCTETS, SGL_ENTRIES, type ConnectionData,
} from './wire.ts';

/** What a channel tells its user. Each may be called from inside a completion, never from inside a call of the user. */
interface ChannelHandler {
  onOpen(): void;
  onReadable(): void;
  onWritable(): void;
  /** The peer sends no more; what has come can still be read. */
  onEnd(): void;
  /** The connection is gone; with an error unless it was closed in order. */
  onClosed(error: IwarpError | undefined): void;
}

/** librdmacm has 128 KiB; with halves of 64 KiB a fast sender waits a round trip for each, and reached a quarter of this one's rate. */
const DEFAULT_BUFFER = 1_048_576;
/** A window passes from thread to thread six times until it is offered again. */
const DEFAULT_WORKER_RECEIVE = 4_194_304;
const DEFAULT_CREDITS = 384;
/** Receives beyond the credits: control messages use receives too, and are not counted. */
const SPARE_RECEIVES = 64;
const MAX_CONTROLS = 4;
/**
 * How long the connection outlives our DISCONNECT, if the peer does not end it: a minute, as Linux waits for the FIN of a peer (tcp_fin_timeout). Until
 * then our last data may be on its way through a slow link, or to a program that is busy. If our FIN came in between, a window that such a peer offers
 * for what it has read would find the queue pair in Closing, which is a reset (VERBS-043), and with siw librdmacm's program would wait for ever: siw
 * loses the Send behind a Write then. A peer that reads ends by itself.
 */
export const LINGER_MS = 60_000;

/** Receives number from `RECEIVE` on, each with the place of its message. */
const ID = { DATA: 1, CONTROL: 2, LAST_CONTROL: 3, DIRECT: 4, IOMAP: 5, RECEIVE: 6 } as const;

type State = 'opening' | 'open' | 'closing' | 'closed';

export class Channel {
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly #handler: ChannelHandler;
  readonly #scheduler: Scheduler;
  readonly #wc = [createWorkCompletion()];
  readonly #regions: MemoryRegion[] = [];
  #connection: CmConnection | null = null;
  #state: State = 'opening';
  #failure: IwarpError | null = null;
  /** Dropped from this side; the connection's end is still to come. */
  #aborted = false;
  /** The handler has heard of the end, and whatever it told the program has been told. */
  #over = false;

  // Receiving.
  readonly #receive: MemoryRegion;
  readonly #inbound: ReceiveWindow;
  readonly #words: MemoryRegion;
  readonly #wordView: DataView;
  /** A place for each message, posted again when it has been read. */
  readonly #places: ReceiveSlots;
  /** Messages that wait: for our event handler to hear that the connection is there, or for the program to have what came in front. Slot and octets. */
  readonly #early: (readonly [number, number])[] = [];
  readonly #credits: number;
  #ended: 'no' | 'shutdown' | 'disconnect' = 'no';
  /** The connection is there, of which the handler has not heard yet. */
  #opened = false;
  /** The same of octets that have come. */
  #news = false;
  /** The program has thrown out of a listener: what was to follow is still to be done. */
  #interrupted = false;

  // Sending.
  readonly #send: MemoryRegion;
  readonly #outbound: SendWindow;
  readonly #list: MemoryRegion;
  readonly #listView: DataView;
  readonly #iomapSize: number;
  readonly #messageBytes = new Uint8Array(MESSAGE_OCTETS);
  readonly #messageView = new DataView(this.#messageBytes.buffer);
  #listNext = 1;
  #peer: ConnectionData | null = null;
  #remoteNext = 1;
  #controls = 0;
  #said: 'nothing' | 'shutdown' | 'disconnect' = 'nothing';
  #onLastControl: (() => void) | null = null;
  readonly #lingering: Alarm;

  // Mapped buffers.
  readonly #maps = new Mappings();

  constructor(rnic: Rnic, options: ChannelOptions, handler: ChannelHandler) {
    this.#handler = handler;
    this.#scheduler = rnic.scheduler;
    this.#lingering = new Alarm(rnic.scheduler);
    const usual = engineOf(rnic) === 'worker' ? DEFAULT_WORKER_RECEIVE : DEFAULT_BUFFER;
    const size = (options.receiveBuffer ?? usual) & ~1;
    this.#credits = options.credits ?? DEFAULT_CREDITS;
    this.#iomapSize = options.iomapSize ?? 0;
    const receives = this.#credits + SPARE_RECEIVES;
    const sends = 2 * MAX_TRANSFERS + 4 * MAX_CONTROLS;
    this.#pd = rnic.device.allocatePd();
    try {
      this.#cq = rnic.device.createCq(receives + sends);
      this.qp = this.#pd.createQp({ sendCq: this.#cq, recvCq: this.#cq, maxSendWr: sends, maxRecvWr: receives });
      const write = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE;
      this.#receive = this.#register(size, write);
      this.#words = this.#register(receives * MESSAGE_OCTETS, ACCESS.LOCAL_WRITE);
      this.#list = this.#register(SGL_ENTRIES * SGE_OCTETS + this.#iomapSize * IOMAP_OCTETS, write);
      this.#send = this.#register(options.sendBuffer ?? DEFAULT_BUFFER, 0);
    } catch (error) {
      this.#giveBack();
      throw error;
    }
    this.#inbound = new ReceiveWindow(this.#receive.bytes, this.#credits);
    this.#wordView = viewOf(this.#words);
    this.#listView = viewOf(this.#list);
    this.#outbound = new SendWindow(this.#send.bytes);
    this.#places = new ReceiveSlots(this.#words, MESSAGE_OCTETS);
    for (let place = 0; place < receives; place++) this.#postReceive(place);
    this.#cq.setHandler(() => this.#poll());
    this.#cq.requestNotify();
  }

  #postReceive(place: number): void {
    this.#places.post(this.qp, ID.RECEIVE + place, place);
  }

  #register(octets: number, access: number): MemoryRegion {
    // A peer may say that it has written what it has not, and must not get to see by our answers what another one wrote.
    const clear = (access & ACCESS.REMOTE_WRITE) !== 0;
    const region = this.#pd.registerMemory(this.#pd.device.connectionMemory(octets, clear), access);
    this.#regions.push(region);
    return region;
  }

  /** What goes into our private data. */
  get connectionData(): Uint8Array {
    return encodeConnectionData({
      bigEndian: false,
      iomap: true,
      credits: this.#credits,
      iomapSize: this.#iomapSize,
      targetSgl: { addr: this.#list.addr, key: this.#list.rkey, length: SGL_ENTRIES },
      dataBuffer: { addr: this.#receive.addr, key: this.#receive.rkey, length: this.#inbound.half },
    });
  }

  get state(): State {
    return this.#state;
  }

  get connection(): CmConnection | null {
    return this.#connection;
  }

  /** The peer sends no more, and everything it sent has been read. */
  get drained(): boolean {
    return this.#ended !== 'no' && this.#inbound.pending === 0;
  }

  /** The peer takes no more. */
  get refused(): boolean {
    return this.#ended === 'disconnect' || this.#state === 'closed';
  }

  /** Use this connection; `peer` is known on the accepting side. */
  use(connection: CmConnection, peer: ConnectionData | null): void {
    this.#connection = connection;
    this.#peer = peer;
    connection.setHandler((event) => this.#handleEvent(event));
  }

  // ------------------------------------------------------------------------------------------------------- reading

  /** What has arrived, as a copy of at most `max` octets; null if there is nothing. */
  read(max: number): Buffer | null {
    const data = this.#inbound.read(max);
    if (data !== null) this.#giveCredits();
    return data;
  }

  /** Octets have come that have not been read. */
  get readable(): boolean {
    return this.#inbound.pending > 0;
  }

  /** Copy what has arrived to the start of `place`; returns how many octets that were. */
  readInto(place: Uint8Array): number {
    const octets = this.#inbound.readInto(place);
    if (octets > 0) this.#giveCredits();
    return octets;
  }

  /** Offer the next half if it is free, and tell how many messages may come, when either is worth a message. */
  #giveCredits(): void {
    if (this.#state !== 'open' || this.#ended !== 'no' || this.#controls >= MAX_CONTROLS) return;
    const grant = this.#inbound.takeGrant();
    if (grant === null) return;
    if (grant.offset !== null) {
      const { targetSgl } = this.#peer!;
      const entry = { addr: this.#receive.addr + BigInt(grant.offset), key: this.#receive.rkey, length: this.#inbound.half };
      this.qp.postSend({
        opcode: 'rdma-write', inline: encodeSge(entry, this.#little()), signaled: false, rkey: targetSgl.key,
        remoteAddr: targetSgl.addr + BigInt(this.#remoteNext * SGE_OCTETS),
      });
      this.#remoteNext = (this.#remoteNext + 1) % targetSgl.length;
    }
    this.#postControl(OP.SGL, grant.limit, ID.CONTROL);
  }

  // ------------------------------------------------------------------------------------------------------- writing

  /** Every reader takes messages as they are: we write for the peer. */
  #little(): boolean {
    return !this.#peer!.bigEndian;
  }

  /** Send what there is room for now; returns how many octets were taken. */
  write(pieces: Pieces): number {
    if (this.#state !== 'open' || !this.#tellMaps()) return 0;
    const { left } = pieces;
    while (pieces.left > 0) {
      const transfer = this.#outbound.take(pieces);
      if (transfer === null) break;
      const { octets, from, addr, key } = transfer;
      this.qp.postSend([
        { opcode: 'rdma-write', sges: [{ mr: this.#send, offset: from, length: octets }], signaled: false, rkey: key, remoteAddr: addr },
        { opcode: 'send', wrId: ID.DATA, inline: this.#message(OP.DATA, octets) },
      ]);
    }
    return left - pieces.left;
  }

  /**
   * Say that we send no more: `shutdown` while the peer may still send, `disconnect` for the end of both directions. `done` follows when it
   * has been handed to the network.
   */
  finish(how: 'shutdown' | 'disconnect', done: () => void): void {
    if (this.#state !== 'open' || this.#said === 'disconnect' || this.#said === how || this.#ended === 'disconnect') {
      done();
      return;
    }
    this.#said = how;
    const before = this.#onLastControl;
    this.#onLastControl = () => {
      before?.();
      done();
    };
    this.#postControl(OP.CONTROL, how === 'shutdown' ? CONTROL.SHUTDOWN : CONTROL.DISCONNECT, ID.LAST_CONTROL);
  }

  /** A zero-length Write: the peer notices nothing, its TCP answers. */
  keepAlive(): void {
    if (this.#state !== 'open' || this.#controls >= MAX_CONTROLS) return;
    this.#controls++;
    this.qp.postSend({ opcode: 'rdma-write', wrId: ID.CONTROL, rkey: 0, remoteAddr: 0 });
  }

  /** A message, in the same four octets each time: inline data is copied when it is posted. */
  #message(op: number, value: number): Uint8Array {
    putMessage(this.#messageView, op, value, this.#little());
    return this.#messageBytes;
  }

  #postControl(op: number, value: number, wrId: number): void {
    this.#controls++;
    this.qp.postSend({ opcode: 'send', wrId, inline: this.#message(op, value) });
  }

  // ------------------------------------------------------------------------------------------------- mapped buffers

  /** Let the peer write straight into `memory`, which it will know by `offset`. ERR_LIMIT when its map is full. */
  map(memory: Uint8Array, offset: bigint): void {
    const index = this.#maps.place(this.#peer?.iomap === true ? this.#peer.iomapSize : 0);
    this.#maps.add({ index, offset, mr: this.#pd.registerMemory(memory, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE) });
    this.#tellMaps();
  }

  /** End a mapping; the peer must have stopped writing to it. */
  unmap(memory: Uint8Array): void {
    this.#maps.remove(memory);
  }

  /** Write the entries of new mappings into the peer's map, in front of any data; false if that has to wait. */
  #tellMaps(): boolean {
    for (let untold = this.#maps.next; untold !== undefined; untold = this.#maps.next) {
      if (this.#state !== 'open' || !this.#outbound.hasCredit || this.#controls >= MAX_CONTROLS) return false;
      this.#maps.told();
      const { index, offset, mr } = untold;
      const { targetSgl } = this.#peer!;
      const at = targetSgl.addr + BigInt(targetSgl.length * SGE_OCTETS + index * IOMAP_OCTETS);
      const entry = encodeIomap({ offset, memory: { addr: mr.addr, key: mr.rkey, length: mr.length } }, this.#little());
      this.#outbound.countMessage();
      this.#controls++;
      this.qp.postSend([
        { opcode: 'rdma-write', inline: entry, signaled: false, rkey: targetSgl.key, remoteAddr: at },
        { opcode: 'send', wrId: ID.IOMAP, inline: this.#message(OP.IOMAP, index) },
      ]);
    }
    return true;
  }

  /** Write into the peer's mapped buffer; returns how many octets were taken. ERR_OUT_OF_RANGE if no mapping holds `offset`. */
  writeMapped(data: Uint8Array, offset: bigint): number {
    if (this.#state !== 'open') return 0;
    const target = findMapped(this.#listView, SGL_ENTRIES * SGE_OCTETS, this.#iomapSize, offset);
    if (target === null) throw new IwarpError('ERR_OUT_OF_RANGE', `the peer has mapped no buffer at ${offset}`);
    const transfer = this.#tellMaps() ? this.#outbound.takeDirect(data, target) : null;
    if (transfer === null) return 0;
    const { octets, from, addr, key } = transfer;
    this.qp.postSend({ opcode: 'rdma-write', wrId: ID.DIRECT, sges: [{ mr: this.#send, offset: from, length: octets }], rkey: key, remoteAddr: addr });
    return octets;
  }

  // ----------------------------------------------------------------------------------------------------- completions

  /**
   * Tell all there is to tell, and then do `last`. The program may throw out of any of its listeners, also again and again. As with sockets of node:net that
   * is no end of the connection: each time it goes on from there, in a turn of its own, and nothing that has come is passed over.
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
        this.#scheduler.defer(() => this.#poll(last));
      }
    }
  }

  #pollAll(): void {
    if (this.#cq.destroyed) return;
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
      for (let early = this.#early.shift(); early !== undefined; early = this.#early.shift()) this.#arrived(early[0], early[1]);
    }
    for (;;) {
      if (this.#cq.poll(this.#wc, 1) === 0) {
        if (this.#news) {
          this.#tellReadable();
          if (this.#cq.destroyed) return;
          continue;
        }
        this.#cq.requestNotify();
        if (this.#cq.length === 0) return;
        continue;
      }
      this.#complete(this.#wc[0]!);
      if (this.#cq.destroyed) return;
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
    else this.#controls--;
    if (id === ID.LAST_CONTROL) {
      const done = this.#onLastControl;
      this.#onLastControl = null;
      done?.();
    }
    // Somebody who has ended the connection waits for this to leave: it does.
    if (this.#lingering.isSet) this.#linger();
    this.#giveCredits();
    this.#handler.onWritable();
  }

  #arrived(slot: number, octets: number): void {
    if (this.#state === 'opening') {
      this.#early.push([slot, octets]);
      return;
    }
    if (octets !== MESSAGE_OCTETS) {
      this.#violation(`the peer sent a message of ${octets} octets`);
      return;
    }
    const word = this.#wordView.getUint32(slot * MESSAGE_OCTETS, this.#little());
    if (this.#news && messageOp(word) !== OP.DATA) {
      // What came before the end, or before something wrong, is read before. If the program throws there, this is the next to be looked at.
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
        this.#handler.onWritable();
        break;
      case OP.IOMAP:
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
    if (!this.#inbound.arrived(octets)) {
      try {
        this.#tellReadable();
      } finally {
        this.#violation(`the peer says it has written ${octets} octets where ${granted} were offered`);
      }
      return;
    }
    this.#news = true;
  }

  /** Many short transfers that come together are read in one piece. */
  #tellReadable(): void {
    if (!this.#news) return;
    this.#news = false;
    this.#handler.onReadable();
  }

  #controlArrived(value: number): void {
    if (value === CONTROL.KEEPALIVE || this.#ended === 'disconnect') return;
    const first = this.#ended === 'no';
    // Not the end of both directions even after a SHUTDOWN of ours, which the peer has not read then, nor all the data in front of it.
    this.#ended = value === CONTROL.SHUTDOWN ? 'shutdown' : 'disconnect';
    try {
      if (first) this.#handler.onEnd();
      this.#handler.onWritable();
    } finally {
      // It waits for our end, as we do for that of a peer. What it has sent is here and can be read afterwards.
      if (this.#ended === 'disconnect') this.#leave();
    }
  }

  /** Take what the peer has Written into our list. */
  #takeWindows(): void {
    for (;;) {
      const at = this.#listNext * SGE_OCTETS;
      const { addr, key, length } = decodeSge(this.#listView, at);
      if (length === 0) return;
      this.#listView.setUint32(at + 12, 0);
      this.#outbound.addWindow({ addr, key, length });
      this.#listNext = (this.#listNext + 1) % SGL_ENTRIES;
    }
  }

  #violation(what: string): void {
    this.abort(new IwarpError('ERR_CONNECTION_RESET', `the peer breaks the rsocket protocol: ${what}`));
  }

  // ----------------------------------------------------------------------------------------------------- connection

  #handleEvent(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#established(event.parameters.privateData);
        break;
      case 'rejected':
        this.#failure ??= new IwarpError('ERR_REJECTED', 'the peer rejected the connection');
        break;
      case 'connect-error':
        this.#failure ??= startupError(event.reason, this.#connection!.role);
        break;
      case 'unreachable':
        this.#closed(this.#failure ?? ownError(event.error, 'ERR_CONNECT', event.error.message));
        break;
      case 'closing':
        // The peer's TCP has ended, with or without a word of this protocol: it sends and takes no more.
        if (event.by === 'peer') this.#controlArrived(CONTROL.DISCONNECT);
        break;
      case 'disconnected': {
        const orderly = event.cause === 'graceful' || (this.#state === 'closing' && event.terminate === undefined);
        this.#closed(this.#failure ?? (orderly ? undefined : closeError(event.cause, event.error, event.terminate)));
        break;
      }
      default:
    }
  }

  #established(privateData: Uint8Array): void {
    if (this.#state !== 'opening' || this.#aborted) return;
    try {
      this.#peer ??= decodeConnectionData(privateData);
    } catch (error) {
      this.abort(error as IwarpError);
      return;
    }
    if (this.#peer.targetSgl.length === 0) {
      this.#violation('its list has no entries');
      return;
    }
    this.#state = 'open';
    this.#outbound.open(this.#peer.credits, this.#peer.dataBuffer);
    this.#opened = true;
    try {
      this.#poll();
    } finally {
      this.#giveCredits();
    }
  }

  /**
   * End both directions in order, after everything posted: when the peer has ended the connection too, or when the linger time has passed in
   * which nothing left that waited to.
   */
  close(): void {
    if (this.#state === 'closed' || this.#state === 'closing') return;
    this.finish('disconnect', () => this.#allSaid());
    if (this.#state === 'open') this.#linger();
  }

  #allSaid(): void {
    if (this.#state === 'closed' || this.#state === 'closing') return;
    if (this.#said !== 'disconnect' || this.#ended === 'disconnect') {
      this.#leave();
      return;
    }
    this.#state = 'closing';
    this.#linger();
  }

  #linger(): void {
    this.#lingering.set(LINGER_MS, () => this.#leave());
  }

  #leave(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closing';
    this.#lingering.stop();
    if (this.#connection === null) this.#closed(undefined);
    else this.#connection.disconnect();
  }

  /** Drop the connection. */
  abort(error?: IwarpError): void {
    if (this.#state === 'closed') return;
    this.#aborted = true;
    if (error !== undefined) this.#failure ??= error;
    if (this.#connection === null) this.#closed(this.#failure ?? undefined);
    else this.#connection.abort();
  }

  #closed(error: IwarpError | undefined): void {
    this.#poll(() => this.#end(error));
  }

  #end(error: IwarpError | undefined): void {
    if (this.#state !== 'closed') {
      this.#state = 'closed';
      this.#lingering.stop();
      if (this.#ended === 'no') this.#ended = 'disconnect';
      this.#giveBack();
    }
    const done = this.#onLastControl;
    this.#onLastControl = null;
    done?.();
    if (this.#over) return;
    this.#handler.onClosed(error);
    this.#over = true;
  }

  /** All that there is: where a limit of the device was in the way, not all has been made. */
  #giveBack(): void {
    (this.qp as QueuePair | undefined)?.destroy();
    (this.#cq as CompletionQueue | undefined)?.destroy();
    this.#maps.clear();
    // What has come and has not been read can still be read.
    const unread = (this.#inbound as ReceiveWindow | undefined)?.pending ?? 0;
    for (const region of this.#regions) {
      const { bytes } = region;
      region.deregister();
      if (region !== this.#receive || unread === 0) this.#pd.device.spare.give(bytes);
    }
    this.#pd.deallocate();
  }
}

function viewOf(region: MemoryRegion): DataView {
  const { bytes } = region;
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}
