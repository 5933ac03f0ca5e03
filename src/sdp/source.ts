/**
 * The sending half of an SDP connection: Data from private buffers, SrcAvail for the peer's Reads, RDMA
 * Writes into memory that the peer has advertised. A block is memory that stays the program's until it has
 * been moved.
 */
import { lengthNow, putBytes } from '../base/copy.ts';
import { nextState } from '../base/fsm.ts';
import type { Pieces } from '../sockets/pieces.ts';
import { ahead } from './credits.ts';
import type { Exposure, SdpLink } from './link.ts';
import { lockPlace, lockWord, OWNER, type LockPlace } from './locks.ts';
import { MODE_TABLE } from './states.ts';
import { LOCK_OCTETS, MID, type Advertised, type LockTable, type SdpMode } from './wire.ts';

/** How long a peer may leave a SrcAvail without a Read that completes. */
const ADVERT_MS = 1000;
const NO_BYTES = new Uint8Array(0);

/** Where a block is on its way; `written` waits for the end of its last Write. */
type BlockState = 'queued' | 'advertised' | 'copying' | 'written' | 'done';

/** What a SrcAvail has advertised of a block: its first byte, its lock, and what a touch has done. */
interface Advert extends LockPlace {
  readonly from: number;
  /** `tried`: a compare-and-swap is under way, or the peer reads. */
  lock: 'free' | 'tried';
}

/** Memory that is sent from where it lies. */
export interface Block {
  bytes: Uint8Array;
  /** Bytes that there were when it was given: a buffer that is detached has none. */
  readonly octets: number;
  /** Bytes that the peer has, or that are in messages on their way. */
  sent: number;
  state: BlockState;
  exposure: Exposure | null;
  advert: Advert | null;
  /** Writes under way out of `bytes`. */
  writes: number;
  /** Calls that wait until the memory may be changed: true once a copy stands in its place. */
  readonly touched: ((copied: boolean) => void)[];
  /** The peer has it, or the connection has ended. */
  readonly done: (moved: boolean) => void;
}

/** An advertisement of the peer that has not been used up. */
interface SinkAdvert extends Advertised {
  filled: number;
}

export function blockOf(bytes: Uint8Array, done: (moved: boolean) => void): Block {
  const { length: octets } = bytes;
  return {
    bytes,
    octets,
    sent: 0,
    state: 'queued',
    exposure: null,
    advert: null,
    writes: 0,
    touched: [],
    done,
  };
}

export class Source {
  readonly #link: SdpLink;
  readonly #blocks: Block[] = [];
  readonly #adverts: SinkAdvert[] = [];
  #mode: SdpMode = MODE_TABLE.initial;
  /** Messages with payload that discarded no advertisement, which the peer's NonDiscards has to equal. */
  #count = 0;
  #lastPayload = 0;
  /** SrcAvails sent so far, those that were issued again included. */
  #ordinal = 0;
  /** The peer's lock words, once it has sent its LockTable. */
  #locks: LockTable | null = null;
  /** When the half last went back to combined: the number of the message, and the count as it stood. */
  #changed: { readonly mseq: number; count: number } | null = null;
  /** The peer asks for pipelined mode. */
  #asked = false;
  /** Our SrcAvailCancel: its number once it has left, and whether a SendSm has answered. */
  #cancel: { mseq: number | null; answered: boolean } | null = null;
  #spareSendSm = false;
  #stopTimer: (() => void) | null = null;
  #ended = false;

  constructor(link: SdpLink) {
    this.#link = link;
  }

  get mode(): SdpMode {
    return this.#mode;
  }

  /** Nothing waits and nothing is unanswered. */
  get idle(): boolean {
    return this.#blocks.length === 0 && this.#cancel === null;
  }

  /** Blocks that have not come to their end. */
  get depth(): number {
    return this.#blocks.length;
  }

  get #unanswered(): number {
    let count = 0;
    for (const { state } of this.#blocks) if (state === 'advertised') count++;
    return count;
  }

  /** Bytes of `pieces` that were taken. Blocks that were given before go before. */
  write(pieces: Pieces): number {
    const before = pieces.left;
    if (!this.idle || this.#ended) return 0;
    if (this.#wantsPipeline(pieces.left)) this.#pipeline();
    while (pieces.left > 0 && this.#link.ready(true)) {
      const slot = this.#link.takeSlot();
      if (slot === null) break;
      const advert = this.#adverts[0];
      const room = advert === undefined ? this.#link.sendSize : advert.length - advert.filled;
      const octets = Math.min(room, slot.bytes.length, pieces.left, this.#link.sendSize);
      pieces.take(octets, slot.bytes, 0);
      if (advert === undefined) this.#sendData(slot, octets);
      else {
        this.#link.writeSlot(slot, octets, advert.stag, advert.to + BigInt(advert.filled));
        this.#filled(advert, octets, pieces.left === 0);
      }
    }
    this.#settle();
    return before - pieces.left;
  }

  #sendData(slot: NonNullable<ReturnType<SdpLink['takeSlot']>>, octets: number): void {
    this.#link.sendData(slot, octets);
    this.#lastPayload = this.#link.sent;
    if (this.#adverts.shift() === undefined) this.#count = (this.#count + 1) >>> 0;
  }

  /** Give a block; `done` of it follows. */
  give(block: Block): void {
    this.#blocks.push(block);
    this.pump();
  }

  /** Send what can be sent now. */
  pump(): void {
    while (this.#cancel === null && !this.#ended) {
      const block = this.#blocks.find(({ state }) => state === 'queued' || state === 'copying');
      if (block === undefined) break;
      if (lengthNow(block.bytes) !== block.octets) return this.#link.lost();
      if (block.state === 'copying') {
        if (!this.#copy(block)) break;
      } else if (!this.#start(block)) break;
    }
    this.#settle();
  }

  /** True if something was done, so that there may be more to do. */
  #start(block: Block): boolean {
    const advert = this.#adverts[0];
    if (advert !== undefined) return this.#writeInto(advert, block);
    if (this.#wantsPipeline(block.bytes.length) && this.#pipeline()) return true;
    const { mode, zeroCopyFrom, peerMaxAdverts } = this.#link;
    const left = block.bytes.length - block.sent;
    const advertise = (mode === 'source' || mode === 'auto') && left >= zeroCopyFrom && left > 1;
    const out = this.#unanswered;
    if (!advertise || this.#mode === 'buffered') {
      if (out > 0) return false; // A28: payload would overtake advertised data
      block.state = 'copying';
      return true;
    }
    const most = this.#mode === 'pipelined' ? peerMaxAdverts : 1;
    if (out >= most || !this.#link.ready(true)) return false;
    this.#advertise(block);
    return true;
  }

  #wantsPipeline(octets: number): boolean {
    if (this.#mode !== 'combined' || this.#link.peerMaxAdverts === 1 || this.#link.maxAdverts === 1)
      return false;
    if (this.#asked) return true;
    return this.#link.mode !== 'buffered' && octets >= this.#link.zeroCopyFrom && this.#blocks.length > 1;
  }

  /** False while that has to wait. */
  #pipeline(): boolean {
    if (this.#unanswered > 0 || !this.#link.ready(false)) return false;
    this.changeMode('pipelined');
    return true;
  }

  /** Change the mode of this half. Nothing may be advertised that has not been answered. */
  changeMode(mode: SdpMode): void {
    this.#mode = nextState(MODE_TABLE, this.#mode, `to-${mode}`, this);
    this.#asked = false;
    if (mode === 'combined') {
      const count = this.#count;
      this.#adverts.length = 0;
      this.#link.changeMode('receive', mode);
      this.#changed = { mseq: this.#link.sent, count };
    } else this.#link.changeMode('receive', mode);
  }

  #advertise(block: Block): void {
    const bytes = block.bytes.subarray(block.sent);
    const inline = this.#mode === 'combined' ? bytes.slice(0, 1) : NO_BYTES;
    block.exposure = this.#link.expose(bytes, 'read');
    block.state = 'advertised';
    const place = lockPlace(this.#ordinal++, this.#link.peerMaxAdverts);
    block.advert = { ...place, from: block.sent, lock: 'free' };
    const { stag, to } = block.exposure;
    this.#link.sendAdvert(MID.SRC_AVAIL, { length: bytes.length, stag, to }, inline);
    if (inline.length > 0) {
      block.sent += inline.length;
      this.#count = (this.#count + 1) >>> 0;
      this.#lastPayload = this.#link.sent;
    }
    this.#watch();
  }

  #copy(block: Block): boolean {
    if (!this.#link.ready(true)) return false;
    const slot = this.#link.takeSlot();
    if (slot === null) return false;
    const octets = Math.min(slot.bytes.length, this.#link.sendSize, block.bytes.length - block.sent);
    putBytes(block.bytes.subarray(block.sent, block.sent + octets), slot.bytes, 0);
    this.#sendData(slot, octets);
    block.sent += octets;
    if (block.sent === block.bytes.length) this.#finish(block, true);
    return true;
  }

  #writeInto(advert: SinkAdvert, block: Block): boolean {
    if (!this.#link.ready(false)) return false;
    const octets = Math.min(advert.length - advert.filled, block.bytes.length - block.sent);
    const local = this.#link.borrow(block.bytes.subarray(block.sent, block.sent + octets), 'source');
    block.sent += octets;
    const last = block.sent === block.bytes.length;
    if (last) block.state = 'written';
    const target = { ...advert, to: advert.to + BigInt(advert.filled) };
    block.writes++;
    this.#link.postWrite(local, target, octets, () => {
      block.writes--;
      if (last) this.#finish(block, true);
      else this.#touch(block);
    });
    const more = this.#blocks.some(({ state }) => state === 'queued');
    this.#filled(advert, octets, !more);
    return true;
  }

  /** Bytes have been written to an advertisement, which completes if it is full or nothing more follows. */
  #filled(advert: SinkAdvert, octets: number, last: boolean): void {
    advert.filled += octets;
    if (last || advert.length - advert.filled < this.#link.leastPlace.peers) this.#complete();
  }

  #complete(): void {
    const advert = this.#adverts.shift()!;
    this.#link.control(MID.RDMA_WR_COMPL, advert.filled);
  }

  /** An advertisement that has been begun is completed when nothing more is to be sent now. */
  #settle(): void {
    if ((this.#adverts[0]?.filled ?? 0) > 0) this.#complete();
  }

  #finish(block: Block, moved: boolean): void {
    const at = this.#blocks.indexOf(block);
    if (at < 0) return;
    this.#blocks.splice(at, 1);
    block.state = 'done';
    this.#conceal(block);
    block.done(moved);
    for (const answer of block.touched.splice(0)) answer(false);
  }

  #conceal(block: Block): void {
    block.exposure?.end();
    block.exposure = null;
    block.advert = null;
  }

  // ------------------------------------------------------------------------------------------ copy-on-write

  /**
   * Put a copy in the place of a block's memory, unless the peer reads it: `done(true)` when that has been
   * done, `done(false)` when the peer has the block.
   */
  copy(block: Block, done: (copied: boolean) => void): void {
    if (block.state === 'done') return done(false);
    block.touched.push(done);
    this.#touch(block);
  }

  /** A call waits, perhaps, and the state of the block is a new one. */
  #touch(block: Block): void {
    if (block.touched.length === 0 || block.writes > 0) return;
    const { advert } = block;
    const idle = block.state === 'queued' || block.state === 'copying';
    if (idle || block.exposure?.copied === true) this.#replace(block);
    else if (advert?.lock === 'free' && this.#locks !== null) {
      advert.lock = 'tried';
      const { stag, to } = this.#locks;
      const word = { stag, to: to + BigInt(advert.slot * LOCK_OCTETS) };
      const free = lockWord(advert.generation, OWNER.FREE);
      this.#link.compareSwap(word, free, lockWord(advert.generation, OWNER.SENDER), (old) => {
        // Else the block has been answered or taken back meanwhile, or the peer reads and will say so.
        if (old === free && block.advert === advert) this.#update(block, advert);
      });
    }
  }

  /** The peer waits for UpdatedSrcAvail, and gives the lock back itself. */
  #update(block: Block, { slot, generation, from }: Advert): void {
    block.exposure!.end();
    const whole = this.#replace(block);
    if (whole === null) return;
    const bytes = whole.subarray(from);
    block.exposure = this.#link.expose(bytes, 'read');
    const { stag, to } = block.exposure;
    this.#link.updateSource({ length: bytes.length, stag, to, slot, generation });
  }

  /** A copy takes the place of the memory; null if the program has detached it. */
  #replace(block: Block): Uint8Array | null {
    if (lengthNow(block.bytes) !== block.octets) {
      this.#link.lost();
      return null;
    }
    const copy = new Uint8Array(block.bytes); // `slice` of a Buffer would copy nothing
    block.bytes = copy;
    for (const answer of block.touched.splice(0)) answer(true);
    return copy;
  }

  /** LockTable has arrived. */
  lockTable(table: LockTable): void {
    const { slots, to } = table;
    if (this.#locks !== null) return this.#link.fail('a second LockTable');
    if (to % BigInt(LOCK_OCTETS) !== 0n || to + BigInt(slots * LOCK_OCTETS) > 1n << 64n)
      return this.#link.fail(`a LockTable at ${to}`);
    if (slots !== this.#link.peerMaxAdverts)
      return this.#link.fail(`a LockTable of ${slots} slots for ${this.#link.peerMaxAdverts} advertisements`);
    this.#locks = table;
    for (const block of this.#blocks) this.#touch(block);
  }

  // ------------------------------------------------------------------------------- messages of the peer

  /** REQ_PIPE stands in a message: it holds until the mode changes. */
  askPipeline(): void {
    if (this.#mode === 'combined') this.#asked = true;
  }

  /** RdmaRdCompl has arrived, and has invalidated this STag, or none. */
  readCompleted(octets: number, invalidated: number | undefined): void {
    const block = this.#blocks.find(({ state }) => state === 'advertised');
    if (block === undefined) return this.#link.fail('RdmaRdCompl without a SrcAvail');
    const left = block.bytes.length - block.sent;
    if (octets === 0 || octets > left)
      return this.#link.fail(`RdmaRdCompl of ${octets} bytes where ${left} are advertised`);
    if (invalidated !== undefined && (octets < left || invalidated !== block.exposure!.stag))
      return this.#link.fail(`RdmaRdCompl of ${octets} of ${left} bytes that invalidates an STag`);
    block.sent += octets;
    if (octets === left) this.#finish(block, true);
    else if (block.advert !== null) {
      block.advert.lock = 'free'; // between its Reads the peer does without
      this.#touch(block);
    }
    this.#watch();
  }

  sendSmall(): void {
    if (this.#cancel !== null && !this.#cancel.answered) {
      this.#cancel.answered = true;
      this.acknowledged();
      return;
    }
    const block = this.#blocks.find(({ state }) => state === 'advertised');
    if (this.#spareSendSm) {
      this.#spareSendSm = false;
      if (block === undefined) return;
    }
    if (block === undefined) return this.#link.fail('SendSm without a SrcAvail');
    this.#toCopy(block);
    this.#watch();
  }

  #toCopy(block: Block): void {
    this.#conceal(block);
    block.state = 'copying';
    this.#touch(block);
  }

  sinkAvailable(advert: Advertised, nonDiscards: number, mseqAck: number): void {
    if (this.#ended) return;
    if (this.#mode !== 'pipelined') return this.#crossed(nonDiscards, mseqAck);
    if (advert.length < this.#link.leastPlace.peers)
      return this.#link.fail(`SinkAvail of ${advert.length} bytes, less than a message`);
    if (this.#adverts.length >= this.#link.maxAdverts) return this.#link.fail('one SinkAvail too many');
    if (nonDiscards !== this.#count) {
      if (ahead(mseqAck, this.#lastPayload) >= 0)
        return this.#link.fail(`NonDiscards of ${nonDiscards} where ${this.#count} is right`);
      this.#count = (this.#count - 1) >>> 0;
      return;
    }
    for (const block of this.#blocks) {
      if (block.state !== 'advertised') continue;
      this.#conceal(block);
      block.state = 'queued';
      this.#touch(block);
    }
    this.#watch();
    this.#adverts.push({ ...advert, filled: 0 });
  }

  /** A SinkAvail that crossed our change to combined is dropped at both ends. */
  #crossed(nonDiscards: number, mseqAck: number): void {
    const changed = this.#changed;
    if (changed === null || ahead(mseqAck, changed.mseq) >= 0)
      return this.#link.fail(`SinkAvail in ${this.#mode} mode`);
    if (nonDiscards === changed.count) return;
    changed.count = (changed.count - 1) >>> 0;
    this.#count = (this.#count - 1) >>> 0;
  }

  sinkCancelled(): void {
    this.#settle();
    this.#adverts.length = 0;
    this.#link.control(MID.SINK_CANCEL_ACK);
  }

  /** The peer changes our mode: lawful from buffered to combined only. */
  changedByPeer(mode: SdpMode): void {
    if (this.#mode !== 'buffered' || mode !== 'combined')
      return this.#link.fail(`a change of our sending half from ${this.#mode} to ${mode}`);
    this.#mode = nextState(MODE_TABLE, this.#mode, 'to-combined', this);
    this.#asked = false;
  }

  // --------------------------------------------------------------------------------------------- cancelling

  /** The timer starts anew with each part that the peer has read. */
  #watch(): void {
    this.#stopTimer?.();
    this.#stopTimer = null;
    if (this.#unanswered > 0 && this.#cancel === null)
      this.#stopTimer = this.#link.after(ADVERT_MS, () => this.cancel());
  }

  /** Take back advertised data: it is sent from private buffers then. */
  cancel(): void {
    if (this.#cancel !== null || this.#unanswered === 0) return;
    const cancel = { mseq: null as number | null, answered: false };
    this.#cancel = cancel;
    this.#stopTimer?.();
    this.#stopTimer = null;
    this.#link.lenient(true);
    this.#link.control(MID.SRC_AVAIL_CANCEL, undefined, (mseq) => (cancel.mseq = mseq));
  }

  /** A message has arrived, whose MSeqAck may end our cancel. */
  acknowledged(): void {
    const cancel = this.#cancel;
    if (cancel?.mseq == null || ahead(this.#link.acked, cancel.mseq) < 0) return;
    if (!cancel.answered && this.#unanswered > 0) return;
    this.#cancel = null;
    this.#link.lenient(false);
    this.#spareSendSm = true;
    for (const block of this.#blocks) if (block.state === 'advertised') this.#toCopy(block);
  }

  /** DisConn has been sent, or the connection has gone: `all` blocks end unsent. */
  end(all: boolean): void {
    this.#ended = true;
    this.#stopTimer?.();
    this.#stopTimer = null;
    if (all) for (const block of [...this.#blocks]) this.#finish(block, false);
  }
}
