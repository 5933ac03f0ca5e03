/**
 * The way out of an SDP connection: messages and their credits, Reads, Writes and compare-and-swaps, and the
 * memory that they use. The two halves know it as `SdpLink`; channel.ts hands it the completions.
 */
import type { Rnic } from '../api/environment.ts';
import { registrarFor, type TransientRegistrar } from '../api/transient-registrar.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { isShared, putBytes } from '../base/copy.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import type { CompletionQueue } from '../verbs/cq.ts';
import type { MemoryRegion, ProtectionDomain, Sge } from '../verbs/memory.ts';
import type { SendWorkRequest } from '../verbs/post.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { FIRST_BUFFERS, PrivateBuffers, type RegionSlot } from './buffers.ts';
import { Credits } from './credits.ts';
import type { Exposure, LocalUse, SdpLink, SendSlot } from './link.ts';
import type { SdpSettings } from './options.ts';
import {
  BSDH_OCTETS,
  LOCK_OCTETS,
  MESSAGE_TABLE,
  MID,
  modeChangeWord,
  putAdvertised,
  putBsdh,
  putLockTable,
  putUpdatedSource,
  type Advertised,
  type Hello,
  type HelloAck,
  type LockTable,
  type SdpMode,
  type UpdatedSource,
} from './wire.ts';

const SENDS = 128;
/** Room in the send queue for control messages and Reads beside payload. */
const SEND_RESERVE = 16;
const CONTROL_OCTETS = 64;
const NOTHING = (): void => undefined;

/** Puts the extended header of a message behind its header. */
type PutExtension = (view: DataView, at: number) => void;

/** A message that waits for a credit. */
interface Control {
  readonly mid: number;
  readonly put: PutExtension | undefined;
  readonly sent: ((mseq: number) => void) | undefined;
  readonly done: (() => void) | undefined;
  /** STag of the peer that the message invalidates. */
  readonly invalidate?: number | undefined;
}

/** The connection whose messages leave here. */
export interface TransmitterOwner {
  /** Messages may leave: the peer may be spoken to, and the end is not near. */
  readonly talks: boolean;
  readonly closed: boolean;
  /** Both sides have sent their last data: neither needs credits. */
  readonly bothEnded: boolean;
  /** Flags of the next message. */
  readonly flags: number;
  fail(reason: string): void;
  lost(): void;
  /** A request could not be posted. */
  broken(cause: unknown): void;
}

/** Local memory, with the element that a request names it by. */
interface SgeUse extends LocalUse {
  readonly sge: Sge;
}

export class Transmitter implements SdpLink {
  readonly #owner: TransmitterOwner;
  readonly #scheduler: Scheduler;
  readonly #settings: SdpSettings;
  readonly #pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly buffers: PrivateBuffers;
  readonly #scratch = new Uint8Array(CONTROL_OCTETS);
  readonly #scratchView = new DataView(this.#scratch.buffer);
  #registrar: TransientRegistrar | null = null;
  #locks: MemoryRegion | null = null;
  credits: Credits = new Credits(FIRST_BUFFERS, 0);
  readonly #controls: Control[] = [];
  readonly #pending = new Map<number, (ok: boolean) => void>();
  #dataLost = false;
  #updateWanted = false;
  /** The memory that requests use is the program's again, or its stack's no longer. */
  #over = false;
  #nextId = 1;
  sendSize = 0;
  leastPlace: SdpLink['leastPlace'] = { ours: 0, peers: 0 };
  peerMaxAdverts = 1;
  copyOnWrite = false;
  /** The peer's DisConn has arrived: its payload is over. */
  answersOnly = false;
  /** The peer takes a Send with Invalidate. */
  #peerInvalidates = false;
  /** Size of the peer's private buffers. */
  peerSize = 0;

  constructor(rnic: Rnic, settings: SdpSettings, owner: TransmitterOwner) {
    this.#owner = owner;
    this.#scheduler = rnic.scheduler;
    this.#settings = settings;
    const { count, size } = settings.privateBuffers;
    const receives = 2 * count + FIRST_BUFFERS;
    this.#pd = rnic.device.allocatePd();
    try {
      this.cq = rnic.device.createCq(receives + SENDS);
      this.qp = this.#pd.createQp({
        sendCq: this.cq,
        recvCq: this.cq,
        maxSendWr: SENDS,
        maxRecvWr: receives,
      });
      this.qp.carries = 'sdp';
      this.buffers = new PrivateBuffers(this.#pd, this.qp, count, size);
    } catch (error) {
      this.giveBack(false);
      throw error;
    }
  }

  /** What the peer's Hello or HelloAck has said. */
  begin(peer: Hello | HelloAck, copyOnWrite: boolean): void {
    this.credits = new Credits(FIRST_BUFFERS, peer.bufs);
    this.#registrar = registrarFor(this.#pd);
    this.peerMaxAdverts = peer.maxAdverts;
    this.copyOnWrite = copyOnWrite && peer.copyOnWrite;
    this.#peerInvalidates = peer.invalidates;
    this.setPeerSize(peer.localSize);
    this.leastPlace = { ours: this.buffers.size - BSDH_OCTETS, peers: this.sendSize };
  }

  setPeerSize(peerSize: number): void {
    const size = Math.min(peerSize, this.#settings.privateBuffers.size);
    this.peerSize = peerSize;
    this.buffers.setSendSize(size);
    this.sendSize = size - BSDH_OCTETS;
  }

  // ---------------------------------------------------------------------------------------------- settings

  get maxAdverts(): number {
    return this.#settings.maxAdverts;
  }

  get mode(): SdpSettings['mode'] {
    return this.#settings.mode;
  }

  get zeroCopyFrom(): number {
    return this.#settings.zeroCopyFrom;
  }

  get readAhead(): number {
    return this.#settings.readAhead;
  }

  /** The device works in another thread. */
  get offloaded(): boolean {
    return this.#registrar?.inThread === false;
  }

  after(ms: number, task: () => void): () => void {
    const alarm = new Alarm(this.#scheduler);
    alarm.set(ms, () => {
      if (!this.#owner.closed) task();
      if (!this.#owner.closed) this.flush();
    });
    return () => alarm.stop();
  }

  fail(reason: string): void {
    this.#owner.fail(reason);
  }

  lost(): void {
    this.#owner.lost();
  }

  // ---------------------------------------------------------------------------------------------- messages

  get sent(): number {
    return this.credits.sent;
  }

  get acked(): number {
    return this.credits.acked;
  }

  get posted(): number {
    return this.credits.posted;
  }

  /** Bytes that were copied for their way have not all left. */
  get dataLost(): boolean {
    return this.#dataLost;
  }

  /** There is room for this many requests beside those that every message leaves. */
  hasRoom(requests: number): boolean {
    return this.#pending.size <= SENDS - requests;
  }

  get canRead(): boolean {
    return this.hasRoom(SEND_RESERVE >> 1);
  }

  ready(payload: boolean): boolean {
    return this.#controls.length === 0 && this.#sendable(payload);
  }

  #sendable(payload: boolean): boolean {
    return this.#owner.talks && this.hasRoom(SEND_RESERVE + 1) && this.credits.allows(payload);
  }

  control(mid: number, word?: number, sent?: (mseq: number) => void, done?: () => void): void {
    const put: PutExtension | undefined =
      word === undefined ? undefined : (view, at) => view.setUint32(at, word);
    this.#queue({ mid, put, sent, done });
  }

  readCompleted(octets: number, last: number | undefined): void {
    const put: PutExtension = (view, at) => view.setUint32(at, octets);
    const invalidate = this.#peerInvalidates ? last : undefined;
    this.#queue({ mid: MID.RDMA_RD_COMPL, put, sent: undefined, done: undefined, invalidate });
  }

  #queue(control: Control): void {
    this.#controls.push(control);
    this.flush();
  }

  takeSlot(): SendSlot | null {
    return this.buffers.takeSend();
  }

  #putHeader(view: DataView, at: number, mid: number, length: number): void {
    const { bufs, mseq, mseqAck } = this.credits.next();
    putBsdh(view, at, { mid, flags: this.#owner.flags, bufs, length, mseq, mseqAck });
    this.#updateWanted = false;
  }

  sendData(slot: RegionSlot, octets: number): void {
    const { bytes } = slot;
    const view = new DataView(bytes.buffer, bytes.byteOffset - BSDH_OCTETS, BSDH_OCTETS);
    this.#putHeader(view, 0, MID.DATA, BSDH_OCTETS + octets);
    const sges = [{ mr: slot.region, offset: slot.offset, length: BSDH_OCTETS + octets }];
    this.#post({ opcode: 'send', wrId: this.#beforeFree(slot), sges });
  }

  #beforeFree(slot: RegionSlot): number {
    return this.#before((ok) => {
      if (!ok) this.#dataLost = true;
      this.buffers.freeSend(slot);
    });
  }

  writeSlot(slot: RegionSlot, octets: number, stag: number, to: bigint): void {
    const sges = [{ mr: slot.region, offset: slot.offset + BSDH_OCTETS, length: octets }];
    this.#post({ opcode: 'rdma-write', wrId: this.#beforeFree(slot), sges, rkey: stag, remoteAddr: to });
  }

  sendAdvert(mid: number, advert: Advertised, tail: Uint8Array): void {
    const at = BSDH_OCTETS + 16;
    this.#putHeader(this.#scratchView, 0, mid, at + tail.length);
    putAdvertised(this.#scratchView, BSDH_OCTETS, advert);
    this.#scratch.set(tail, at);
    const inline = this.#scratch.subarray(0, at + tail.length);
    this.#post({ opcode: 'send', wrId: this.#before(NOTHING), inline });
  }

  /** A message without payload, which leaves now. */
  sendHeader(mid: number, put: PutExtension | undefined, done: () => void, invalidate?: number): void {
    const length = BSDH_OCTETS + MESSAGE_TABLE.get(mid)!.extension;
    this.#putHeader(this.#scratchView, 0, mid, length);
    put?.(this.#scratchView, BSDH_OCTETS);
    const inline = this.#scratch.subarray(0, length);
    this.#post({ opcode: 'send', wrId: this.#before(done), inline, invalidate });
  }

  changeMode(half: 'send' | 'receive', mode: SdpMode): void {
    this.control(MID.MODE_CHANGE, modeChangeWord({ half, mode }));
  }

  hold(mseq: number | null): void {
    this.credits.heldFrom = mseq;
  }

  lenient(on: boolean): void {
    this.credits.lenient = on;
  }

  update(): void {
    this.#updateWanted = true;
    this.flush();
  }

  /** Keep-alive: a Write of no bytes. */
  probe(): void {
    if (!this.hasRoom(SEND_RESERVE + 1)) return;
    this.#post({ opcode: 'rdma-write', wrId: this.#before(NOTHING), rkey: 0, remoteAddr: 0 });
  }

  /** Control messages first, in their order; then an update if one is due. */
  flush(): void {
    while (this.#controls.length > 0) {
      this.credits.releaseWithLast();
      if (!this.#sendable(false)) return;
      const { mid, put, sent, done, invalidate } = this.#controls.shift()!;
      this.sendHeader(mid, put, done ?? NOTHING, invalidate);
      sent?.(this.credits.sent);
    }
    if (this.#updateDue && this.#sendable(false)) this.sendHeader(MID.DATA, undefined, NOTHING);
  }

  get #updateDue(): boolean {
    if (this.#updateWanted) return true;
    const optional = this.credits.lenient && this.credits.available <= 3;
    // A peer that has ended needs credits until we have: for its answers, and its updates, which we wait for.
    if (this.#owner.bothEnded || optional) return false;
    return this.credits.updateDue(this.buffers.count, this.answersOnly);
  }

  // ------------------------------------------------------------------------------------------- memory

  expose(bytes: Uint8Array, access: 'read' | 'write'): Exposure {
    const rights = access === 'read' ? ACCESS.REMOTE_READ : ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE;
    if (this.#registrar!.inThread) {
      const local = this.#registrar!.lend(bytes, rights);
      const { mr } = local.sge;
      const shared = isShared(bytes);
      return {
        stag: mr.rkey,
        to: mr.addr,
        copied: false,
        get written() {
          return shared ? null : mr.written;
        },
        end: () => void local.cleanup?.(true),
      };
    }
    // The device works in another thread, which sees shared memory only.
    const shared = isShared(bytes);
    const memory = shared ? bytes : this.#pd.device.allocateMemory(bytes.length);
    if (!shared && access === 'read') putBytes(bytes, memory, 0);
    const region = this.#pd.registerMemory(memory, rights);
    return {
      stag: region.rkey,
      to: region.addr,
      copied: !shared,
      written: null,
      end: () => {
        if (this.#over) return;
        region.deregister();
        if (!shared && access === 'write') putBytes(memory, bytes, 0);
      },
    };
  }

  borrow(bytes: Uint8Array, access: 'source' | 'sink'): SgeUse {
    const local = this.#registrar!.lend(bytes, access === 'sink' ? ACCESS.LOCAL_WRITE : 0);
    return { length: bytes.length, sge: local.sge, end: (ok) => void local.cleanup?.(ok) };
  }

  postRead(local: SgeUse, from: Advertised, octets: number, done: () => void): void {
    const sges = [{ ...local.sge, length: octets }];
    const wrId = this.#before((ok) => {
      local.end(ok);
      if (ok) done();
    });
    this.#post({ opcode: 'rdma-read', wrId, sges, rkey: from.stag, remoteAddr: from.to });
  }

  postWrite(local: SgeUse, to: Advertised, octets: number, done: () => void): void {
    const sges = [{ ...local.sge, length: octets }];
    const wrId = this.#before((ok) => {
      local.end(ok);
      if (ok) done();
    });
    this.#post({ opcode: 'rdma-write', wrId, sges, rkey: to.stag, remoteAddr: to.to });
  }

  // --------------------------------------------------------------------------------------- copy-on-write

  openLocks(slots: number): Uint8Array {
    const memory = this.#pd.device.allocateMemory(slots * LOCK_OCTETS);
    const region = this.#pd.registerMemory(memory, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_ATOMIC);
    this.#locks = region;
    const put: PutExtension = (view, at) =>
      putLockTable(view, at, { stag: region.rkey, to: region.addr, slots });
    this.#queue({ mid: MID.LOCK_TABLE, put, sent: undefined, done: undefined });
    return memory;
  }

  compareSwap(
    { stag, to }: Pick<LockTable, 'stag' | 'to'>,
    compare: bigint,
    swap: bigint,
    done: (old: bigint | null) => void,
  ): void {
    if (!this.hasRoom(2)) {
      done(null); // it waits for the peer then
      return;
    }
    const word = new BigUint64Array(1);
    const local = this.borrow(new Uint8Array(word.buffer), 'sink');
    const sges = [{ ...local.sge, length: LOCK_OCTETS }];
    const wrId = this.#before((ok) => {
      local.end(ok);
      done(ok ? word[0]! : null);
    });
    this.#post({ opcode: 'atomic-cmp-swap', wrId, sges, rkey: stag, remoteAddr: to, compare, swap });
  }

  updateSource(updated: UpdatedSource): void {
    const put: PutExtension = (view, at) => putUpdatedSource(view, at, updated);
    this.#queue({ mid: MID.UPDATED_SRC_AVAIL, put, sent: undefined, done: undefined });
  }

  // ------------------------------------------------------------------------------------------- requests

  /** The number of the next request, at whose end `done` is called. */
  #before(done: (ok: boolean) => void): number {
    const id = this.#nextId;
    this.#nextId = id === 0x7fff_ffff ? 1 : id + 1;
    this.#pending.set(id, done);
    return id;
  }

  /**
   * Post, where nothing but an error of this folder or a number of the peer can be wrong: such an exception
   * ends this connection, and is never one of the event loop.
   */
  #post(work: SendWorkRequest & { readonly wrId: number }): void {
    try {
      this.qp.postSend(work);
    } catch (error) {
      this.#owner.broken(error);
      this.complete(work.wrId, false); // memory that it was to use
    }
  }

  /** A request has completed. */
  complete(id: number, ok: boolean): void {
    const done = this.#pending.get(id);
    this.#pending.delete(id);
    done?.(ok);
  }

  /** The connection is gone: no request comes to its end any longer. */
  end(): void {
    for (const done of this.#pending.values()) done(false);
    this.#pending.clear();
  }

  /**
   * All that there is: where a limit of the device was in the way, not all has been made. `untouched` says
   * that nothing was received.
   */
  giveBack(untouched: boolean): void {
    (this.qp as QueuePair | undefined)?.destroy();
    (this.cq as CompletionQueue | undefined)?.destroy();
    this.#registrar?.close();
    this.#locks?.deregister();
    (this.buffers as PrivateBuffers | undefined)?.close(untouched);
    this.#pd.deallocate();
    this.#over = true;
  }
}
