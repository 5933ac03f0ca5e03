/**
 * The receiving half of an SDP connection: Data in private buffers, Reads of what the peer advertises, and
 * places that the program has posted, which the peer may write into.
 */
import { Buffer } from '../base/host.ts';
import { lengthNow, putBytes } from '../base/copy.ts';
import { nextState } from '../base/fsm.ts';
import { ahead } from './credits.ts';
import type { Exposure, LocalUse, SdpLink } from './link.ts';
import { lockPlace, Locks, type LockPlace } from './locks.ts';
import { MODE_TABLE } from './states.ts';
import { MID, type Advertised, type SdpMode, type UpdatedSource } from './wire.ts';

/** How long the program may read nothing until an advertisement is asked for as Data. */
const PATIENCE_MS = 500;

/** The private buffer that bytes lie in. */
export interface HeldBuffer {
  /** Its memory becomes the program's, and it gets other memory; null where that cannot be. */
  readonly give: (() => void) | null;
  /** Nothing is left in it. */
  readonly release: () => void;
}

/** Bytes that have arrived: in memory that a Read has filled, or in a private buffer. */
interface Chunk {
  bytes: Uint8Array;
  buffer: HeldBuffer | null;
  /** Some of it has been read. */
  begun: boolean;
}

/** Where a posted place is: with us, advertised, or the target of a Read. */
interface Place {
  readonly bytes: Uint8Array;
  state: 'waiting' | 'advertised' | 'reading';
  exposure: Exposure | null;
  mseq: number;
  withdrawn: boolean;
  readonly done: (octets: number) => void;
}

/** An advertisement of the peer. UpdatedSrcAvail puts other memory in its place. */
interface SourceAdvert extends LockPlace {
  readonly length: number;
  stag: number;
  to: bigint;
  /** Bytes of it that have been asked for, and that have arrived. */
  issued: number;
  arrived: number;
  /** Its lock is ours. */
  locked: boolean;
}

export class Sink {
  readonly #link: SdpLink;
  readonly #onReadable: () => void;
  readonly #chunks: Chunk[] = [];
  readonly #places: Place[] = [];
  readonly #sources: SourceAdvert[] = [];
  #mode: SdpMode = MODE_TABLE.initial;
  #nonDiscards = 0;
  /** SrcAvails that have arrived, those that were dropped included. */
  #ordinal = 0;
  #locks: Locks | null = null;
  /** Bytes of chunks that a Read has brought, and those under way. */
  #ahead = 0;
  #reads = 0;
  /** Bytes that a SendSm has asked for and that have not arrived. */
  #owed = 0;
  #cancelled: number | null = null;
  #withdrawing = false;
  #asked = false;
  #discards = false;
  #stopTimer: (() => void) | null = null;
  #ended = false;

  constructor(link: SdpLink, onReadable: () => void) {
    this.#link = link;
    this.#onReadable = onReadable;
  }

  get mode(): SdpMode {
    return this.#mode;
  }

  get readable(): boolean {
    return this.#chunks.length > 0;
  }

  /** The next message asks for pipelined mode. */
  get asks(): boolean {
    return this.#wants() && this.#mode === 'combined';
  }

  #wants(): boolean {
    const { mode, maxAdverts, peerMaxAdverts } = this.#link;
    return (
      (mode === 'sink' || mode === 'auto') && maxAdverts > 1 && peerMaxAdverts > 1 && this.#places.length > 0
    );
  }

  // ------------------------------------------------------------------------------------------ the program

  read(max: number): Buffer | null {
    const chunk = this.#chunks[0];
    if (chunk === undefined) return null;
    const octets = Math.min(max, chunk.bytes.length);
    const part = chunk.bytes.subarray(0, octets);
    const give = octets === chunk.bytes.length && !chunk.begun ? chunk.buffer?.give : null;
    give?.();
    const whole = chunk.buffer === null || give != null;
    const data = whole ? Buffer.from(part.buffer, part.byteOffset, octets) : Buffer.from(part);
    this.#taken(chunk, octets);
    return data;
  }

  readInto(place: Uint8Array): number {
    const room = lengthNow(place);
    let at = 0;
    for (let chunk = this.#chunks[0]; chunk !== undefined && at < room; chunk = this.#chunks[0]) {
      const octets = Math.min(room - at, chunk.bytes.length);
      putBytes(chunk.bytes.subarray(0, octets), place, at);
      at += octets;
      this.#taken(chunk, octets);
    }
    return at;
  }

  #taken(chunk: Chunk, octets: number): void {
    if (chunk.buffer === null) this.#ahead -= octets;
    chunk.begun = true;
    chunk.bytes = chunk.bytes.subarray(octets);
    if (chunk.bytes.length > 0) return;
    this.#chunks.shift();
    chunk.buffer?.release();
    this.pump();
  }

  /** Post a place for the next bytes; `done` gets the number of bytes, 0 at the end of the stream. */
  post(bytes: Uint8Array, done: (octets: number) => void): () => void {
    const place: Place = { bytes, state: 'waiting', exposure: null, mseq: 0, withdrawn: false, done };
    this.#places.push(place);
    this.#fillPlaces();
    this.pump();
    if (this.asks && !this.#asked) {
      this.#asked = true;
      this.#link.update();
    }
    return () => this.#withdraw(place);
  }

  #withdraw(place: Place): void {
    if (!this.#places.includes(place)) return;
    place.withdrawn = true;
    if (place.state === 'waiting') this.#finish(place, 0);
    else if (place.state === 'advertised' && !this.#withdrawing) {
      this.#withdrawing = true;
      this.#link.control(MID.SINK_AVAIL_CANCEL);
    }
  }

  #finish(place: Place, octets: number): void {
    this.#places.splice(this.#places.indexOf(place), 1);
    this.#end(place);
    place.done(octets);
    this.#onReadable();
  }

  /** A40: a place that the peer has begun to write to is not given up: those bytes would be lost. */
  #drops(place: Place, by: string): boolean {
    const written = place.exposure?.written ?? 0;
    if (written > 0) this.#link.fail(`${by} over a SinkAvail with ${written} bytes written`);
    return written === 0;
  }

  #end(place: Place): void {
    place.exposure?.end();
    place.exposure = null;
    place.state = 'waiting';
  }

  /** Everything that comes is dropped: the program reads no more. */
  discard(): void {
    this.#discards = true;
    for (const chunk of this.#chunks.splice(0)) this.#drop(chunk);
    this.pump();
  }

  #drop(chunk: Chunk): void {
    if (chunk.buffer === null) this.#ahead -= chunk.bytes.length;
    else chunk.buffer.release();
  }

  // ---------------------------------------------------------------------------------- messages of the peer

  /** Payload has arrived in a private buffer; `counts` unless it discards an advertisement. */
  data(bytes: Uint8Array, buffer: HeldBuffer): void {
    this.#owed = Math.max(0, this.#owed - bytes.length);
    const out = this.#places.find(({ state }) => state === 'advertised');
    if (out !== undefined) {
      if (!this.#drops(out, 'Data')) return;
      const room = lengthNow(out.bytes);
      if (room === 0) return this.#link.lost();
      if (room < bytes.length) return this.#link.fail(`Data of ${bytes.length} bytes for a place of ${room}`);
      this.#end(out);
      putBytes(bytes, out.bytes, 0);
      buffer.release();
      this.#finish(out, bytes.length);
      this.pump();
      return;
    }
    this.#nonDiscards = (this.#nonDiscards + 1) >>> 0;
    this.#deliver({ bytes, buffer, begun: false });
    this.pump();
  }

  #deliver(chunk: Chunk): void {
    if (this.#discards) {
      this.#drop(chunk);
      return;
    }
    this.#chunks.push(chunk);
    this.#fillPlaces();
    if (this.#chunks.length > 0) this.#onReadable();
  }

  #fillPlaces(): void {
    for (let place = this.#places[0]; this.#chunks.length > 0; place = this.#places[0]) {
      if (place === undefined || place.state !== 'waiting') return;
      this.#places.shift();
      place.done(this.readInto(place.bytes));
      this.#onReadable();
    }
  }

  sourceAvailable(advert: Advertised, inline: Uint8Array, mseqAck: number, release: () => void): void {
    const { length, to } = advert;
    const pipelined = this.#mode === 'pipelined';
    const most = pipelined ? this.#link.maxAdverts : 1;
    if (this.#mode === 'buffered') return this.#link.fail('SrcAvail in buffered mode');
    if (length === 0 || to + BigInt(length) > 1n << 64n)
      return this.#link.fail(`SrcAvail of ${length} bytes`);
    if (pipelined ? inline.length > 0 : inline.length === 0 || inline.length >= length)
      return this.#link.fail(
        `SrcAvail of ${length} bytes with ${inline.length} inline in ${this.#mode} mode`,
      );
    if (this.#sources.length >= most) return this.#link.fail('one SrcAvail too many');
    if (this.#link.copyOnWrite) this.#locks ??= new Locks(this.#link.openLocks(this.#link.maxAdverts));
    const place = lockPlace(this.#ordinal++, this.#link.maxAdverts);
    const out = this.#places.find(({ state }) => state === 'advertised');
    if (out !== undefined) {
      release();
      this.#locks?.retire(place);
      if (ahead(mseqAck, out.mseq) >= 0) this.#link.fail('SrcAvail where a SinkAvail is known');
      return; // our SinkAvail wins: the peer issues it again
    }
    const issued = inline.length;
    this.#sources.push({ ...advert, ...place, issued, arrived: issued, locked: false });
    if (issued > 0) {
      this.#nonDiscards = (this.#nonDiscards + 1) >>> 0;
      this.#deliver({ bytes: inline, buffer: { give: null, release }, begun: false });
    } else release();
    this.pump();
  }

  /** The peer has locked an advertisement, and put a copy in the place of its memory. */
  sourceUpdated({ length, stag, to, slot, generation }: UpdatedSource): void {
    const locks = this.#locks;
    if (locks === null || slot >= locks.slots) return this.#link.fail(`UpdatedSrcAvail of lock ${slot}`);
    const source = this.#sources.find((each) => each.slot === slot && each.generation === generation);
    if (source === undefined) {
      // Answered or dropped while this was on its way, unless there was no such SrcAvail.
      if (generation * locks.slots + slot < this.#ordinal) return;
      return this.#link.fail('UpdatedSrcAvail without a SrcAvail');
    }
    if (length !== source.length || to + BigInt(length) > 1n << 64n)
      return this.#link.fail(`UpdatedSrcAvail of ${length} bytes where ${source.length} were advertised`);
    if (source.locked || !locks.handOver(source)) return this.#link.fail('UpdatedSrcAvail without the lock');
    source.stag = stag;
    source.to = to;
    this.pump();
  }

  /** True if the memory of an advertisement may be Read: its lock is ours, or there are none. */
  #lock(source: SourceAdvert): boolean {
    if (this.#locks === null || source.locked) return true;
    const result = this.#locks.take(source);
    if (result === 'broken') this.#link.fail('a lock word without meaning');
    source.locked = result === 'taken';
    return source.locked;
  }

  sourceCancelled(mseq: number): void {
    this.#cancelled = mseq;
    this.#link.hold(mseq);
    this.#answerCancel();
  }

  /** When no Read is under way: SendSm if bytes are left, else an acknowledgement. */
  #answerCancel(): void {
    if (this.#cancelled === null || this.#reads > 0) return;
    this.#cancelled = null;
    let left = 0;
    for (const source of this.#sources.splice(0)) {
      left += source.length - source.arrived;
      this.#locks?.retire(source);
    }
    this.#owed += left;
    this.#link.hold(null);
    if (left > 0) this.#link.control(MID.SEND_SM);
    else this.#link.update();
  }

  writeCompleted(octets: number): void {
    const place = this.#places.find(({ state }) => state === 'advertised');
    if (place === undefined) return this.#link.fail('RdmaWrCompl without a SinkAvail');
    if (octets === 0 || octets > lengthNow(place.bytes))
      return this.#link.fail(`RdmaWrCompl of ${octets} bytes where ${lengthNow(place.bytes)} are advertised`);
    const written = place.exposure!.written ?? octets;
    if (octets !== written)
      return this.#link.fail(`RdmaWrCompl of ${octets} bytes where ${written} have been written`);
    this.#finish(place, octets);
    this.pump();
  }

  cancelAcknowledged(): void {
    if (!this.#withdrawing) return this.#link.fail('SinkCancelAck without SinkAvailCancel');
    this.#withdrawing = false;
    for (const place of [...this.#places]) {
      if (place.state === 'advertised') {
        if (!this.#drops(place, 'SinkCancelAck')) return;
        this.#end(place);
      }
      if (place.withdrawn && place.state === 'waiting') this.#finish(place, 0);
    }
    this.pump();
  }

  changedByPeer(mode: SdpMode): void {
    const from = this.#mode;
    if (from === 'buffered' || MODE_TABLE.transitions[from][`to-${mode}`] === undefined)
      return this.#link.fail(`a change of mode from ${from} to ${mode}`);
    if (mode !== 'pipelined' && this.#sources.length > 0)
      return this.#link.fail(`a change to ${mode} while a SrcAvail is unanswered`);
    this.#mode = nextState(MODE_TABLE, from, `to-${mode}`, this);
    this.#asked = false;
    if (mode !== 'pipelined')
      for (const place of this.#places) {
        if (place.state !== 'advertised') continue;
        if (!this.#drops(place, 'ModeChange')) return;
        this.#end(place);
      }
    this.pump();
  }

  /** Ask a buffered peer for combined mode. */
  askCombined(): void {
    this.#mode = nextState(MODE_TABLE, this.#mode, 'to-combined', this);
    this.#link.changeMode('send', 'combined');
  }

  /** Copy the unread bytes out of the private buffers, which are released. */
  keep(): void {
    for (const chunk of this.#chunks) {
      if (chunk.buffer === null) continue;
      chunk.bytes = chunk.bytes.slice();
      chunk.buffer = { give: null, release: () => undefined };
    }
  }

  /** The peer sends no more. */
  end(): void {
    if (this.#sources.length > 0) return this.#link.fail('DisConn while a SrcAvail is unanswered');
    if (this.#places.some((place) => !this.#drops(place, 'DisConn'))) return;
    this.close();
  }

  /** Nothing comes any longer: places end with 0 bytes. */
  close(): void {
    this.#ended = true;
    this.#stopTimer?.();
    this.#stopTimer = null;
    for (const place of [...this.#places]) this.#finish(place, 0);
  }

  // ------------------------------------------------------------------------------------------------ moving

  /** Read the memory that the peer advertises, and advertise posted memory. */
  pump(): void {
    if (this.#ended) return;
    if (this.#cancelled === null && this.#owed === 0) this.#issueReads();
    this.#answerCancel();
    this.#advertisePlaces();
  }

  #issueReads(): void {
    for (const source of [...this.#sources]) {
      while (source.issued < source.length) {
        if (this.#discards) return this.#sendSmall();
        if (!this.#issueRead(source)) {
          this.#stopTimer ??= this.#link.after(PATIENCE_MS, () => {
            this.#stopTimer = null;
            this.#sendSmall();
          });
          return;
        }
        this.#stopTimer?.();
        this.#stopTimer = null;
      }
    }
  }

  #issueRead(source: SourceAdvert): boolean {
    const left = source.length - source.issued;
    const place = this.#places.find(({ state }) => state !== 'reading');
    // Straight to its place, unless bytes wait or are on their way that come before.
    const direct = place?.state === 'waiting' && this.#chunks.length === 0 && this.#ahead === 0;
    const { readAhead } = this.#link;
    const room = direct ? lengthNow(place.bytes) : readAhead - this.#ahead;
    // A reader of small pieces would else make a Read for each of them.
    const least = direct ? 1 : Math.min(left, readAhead >> 1);
    if (room < least || !this.#link.canRead || !this.#lock(source)) return false;
    const octets = Math.min(left, room);
    const bytes = direct
      ? place.bytes.subarray(0, octets)
      : new Uint8Array(Buffer.allocUnsafeSlow(octets).buffer);
    if (direct) place.state = 'reading';
    else this.#ahead += octets;
    const local: LocalUse = this.#link.borrow(bytes, 'sink');
    const from = { ...source, to: source.to + BigInt(source.issued) };
    source.issued += octets;
    this.#reads++;
    this.#link.postRead(local, from, octets, () => this.#readDone(source, bytes, direct ? place : null));
    return true;
  }

  #readDone(source: SourceAdvert, bytes: Uint8Array, place: Place | null): void {
    this.#reads--;
    source.arrived += bytes.length;
    const read = source.arrived === source.length;
    if (read) this.#sources.splice(this.#sources.indexOf(source), 1);
    // Before the peer learns of it: its next compare-and-swap finds the lock as it should be.
    if (read) this.#locks?.retire(source);
    else if (source.arrived === source.issued && source.locked) {
      this.#locks!.release(source);
      source.locked = false;
    }
    this.#link.readCompleted(bytes.length, read ? source.stag : undefined);
    if (place !== null) this.#finish(place, bytes.length);
    else this.#deliver({ bytes, buffer: null, begun: false });
    this.pump();
  }

  /** Ask for the oldest advertisement as Data, if there are buffers that it can come to. */
  #sendSmall(): void {
    const source = this.#sources[0];
    if (source === undefined || this.#reads > 0 || this.#cancelled !== null || this.#link.posted < 3) return;
    this.#sources.shift();
    this.#locks?.retire(source);
    this.#owed += source.length - source.arrived;
    this.#link.control(MID.SEND_SM);
  }

  /** Bytes written in place would overtake data: only when nothing is unread and nothing is unanswered. */
  #advertisePlaces(): void {
    if (this.#mode !== 'pipelined' || !this.#wants() || this.#withdrawing || this.#owed > 0) return;
    if (this.#chunks.length > 0 || this.#sources.length > 0) return;
    let out = 0;
    for (const place of this.#places) {
      if (place.state === 'advertised') out++;
      else if (place.state !== 'waiting' || lengthNow(place.bytes) < this.#link.leastPlace.ours) return;
      else if (out >= this.#link.peerMaxAdverts || out > 250 || !this.#link.ready(false)) return;
      else {
        place.exposure = this.#link.expose(place.bytes, 'write');
        place.state = 'advertised';
        const tail = new Uint8Array(4);
        new DataView(tail.buffer).setUint32(0, this.#nonDiscards);
        const { stag, to } = place.exposure;
        this.#link.sendAdvert(MID.SINK_AVAIL, { length: lengthNow(place.bytes), stag, to }, tail);
        place.mseq = this.#link.sent;
        out++;
      }
    }
  }
}
