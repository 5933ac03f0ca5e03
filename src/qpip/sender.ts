/**
 * The sending half of a stream over plain TCP: the send queue into writes. Short Sends are gathered in a
 * stage, the memory of longer ones is lent to the write. A Send completes when the system has taken its last
 * octet: the acknowledgement of TCP is not visible from here.
 */
import { IwarpError } from '../base/errors.ts';
import type { Octets } from '../base/copy.ts';
import type { Transmission } from '../llp/lower-layer.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import type { StagEntry } from '../ddp/stag-table.ts';
import { gather } from '../queues/gather.ts';
import { WORK, type SendWqe } from '../queues/work.ts';
import { PREFIX_OCTETS, putPrefix, type Framing } from './framing.ts';
import { viewOf } from './receiver.ts';

/** A Send's rest up to this size is copied: cheaper than one more piece in a writev, by bench/papers/. */
const COPIED_OCTETS = 4_096;
const STAGE_OCTETS = 65_536;
/** Octets of one write. */
const WRITE_OCTETS = 262_144;
/** Pieces of one write; systems take 1024. */
const WRITE_PIECES = 256;
const SPARE_STAGES = 8;

/** Stages that are not in use, for all streams of a thread. */
const spare: Octets[] = [];

function newStage(): Octets {
  const bytes = new Uint8Array(STAGE_OCTETS);
  return { bytes, view: new DataView(bytes.buffer) };
}

/** A write that the port has not confirmed. */
interface Write {
  /** Entries in front of this counter complete with it. */
  through: number;
  stage: Octets | null;
  /** Regions whose memory is lent to it; null if none is. */
  lent: StagEntry[] | null;
}

export class SendHalf {
  readonly #endpoint: StreamEndpoint;
  readonly #framing: Framing;
  /** Writes under way, at most two, oldest first. */
  readonly #writes: Write[] = [];
  /** Octets of the entry at `next` that have been handed out, and whether its length has. */
  #position = 0;
  #announced = false;
  /** Nothing that is posted later goes out. */
  #limit = Number.POSITIVE_INFINITY;
  // The write that is being put together.
  readonly #chunks: Uint8Array[] = [];
  #count = 0;
  #octets = 0;
  #stage: Octets | null = null;
  #lent: StagEntry[] | null = null;
  #stageAt = 0;
  #runStart = 0;
  /** The first fault, which ends the stream. */
  fault: IwarpError | null = null;
  messages = 0;
  payloadOctets = 0;
  octetsOut = 0;

  constructor(endpoint: StreamEndpoint, framing: Framing) {
    this.#endpoint = endpoint;
    this.#framing = framing;
  }

  /** Something is posted that has not completed. */
  get unfinished(): boolean {
    const { sq } = this.#endpoint;
    return this.#writes.length > 0 || sq.tail < Math.min(sq.head, this.#limit);
  }

  /** A local close: work requests posted after it are flushed. */
  refuseLaterPosts(): void {
    this.#limit = this.#endpoint.sq.head;
  }

  /** The next write, or null. */
  pollTransmit(): Transmission | null {
    const { sq } = this.#endpoint;
    if (this.#writes.length === 2 || this.fault !== null) return null;
    this.#count = this.#octets = 0;
    while (sq.next < sq.head && sq.next < this.#limit && this.#fits()) {
      const wqe = sq.slot(sq.next);
      if (wqe.kind === WORK.LOCAL) {
        // In its turn: after everything in front of it.
        if (this.#octets > 0 || this.#writes.length > 0 || !this.#runLocal(wqe)) break;
        continue;
      }
      if (!wqe.usable(0)) {
        this.#fail(wqe, 'local-protection-error', 'the memory of a Send can no longer be used');
        break;
      }
      const before = this.#octets;
      if (!this.#put(wqe)) break;
      if (this.#framing === 'segment' && this.#octets > before) break;
    }
    this.#endRun();
    return this.#octets === 0 ? this.#nothingToWrite() : this.#handOut();
  }

  /** A segment is one write, whatever its length. */
  #fits(): boolean {
    return this.#octets === 0 || (this.#octets < WRITE_OCTETS && this.#count < WRITE_PIECES);
  }

  /** Sends of no octets may still have completed. */
  #nothingToWrite(): null {
    const last = this.#writes.at(-1);
    const { next } = this.#endpoint.sq;
    if (last !== undefined) last.through = next;
    else this.#completeThrough(next);
    return null;
  }

  #handOut(): Transmission {
    this.#writes.push({ through: this.#endpoint.sq.next, stage: this.#stage, lent: this.#lent });
    this.#stage = this.#lent = null;
    this.octetsOut += this.#octets;
    this.#chunks.length = this.#count; // no reference to what an earlier write has lent
    return { chunks: this.#chunks, count: this.#count };
  }

  /** Put as much of an entry into the write as fits; false if something of it is left. */
  #put(wqe: SendWqe): boolean {
    const { sq } = this.#endpoint;
    if (this.#framing === 'length' && !this.#announced && !this.#announce(wqe.total)) return false;
    const left = wqe.total - this.#position;
    if (left > 0) {
      const alone = this.#count === 0 && this.#stage === null && wqe.count === 1 && sq.next + 1 === sq.head;
      const copied = left <= COPIED_OCTETS && !alone;
      const whole = copied || this.#framing === 'segment';
      const octets = whole ? left : Math.min(left, WRITE_OCTETS - this.#octets);
      if (!copied) this.#lend(wqe, octets);
      else if (!this.#copy(wqe, octets)) return false;
      this.#octets += octets;
      this.#position += octets;
      this.payloadOctets += octets;
      if (this.#position < wqe.total) return false;
    }
    this.#position = 0;
    this.#announced = false;
    this.messages++;
    sq.next++;
    return true;
  }

  #announce(length: number): boolean {
    if (!this.#stageHas(PREFIX_OCTETS)) return false;
    putPrefix(this.#stage!.bytes, this.#stageAt, length);
    this.#stageAt += PREFIX_OCTETS;
    this.#octets += PREFIX_OCTETS;
    this.#announced = true;
    return true;
  }

  #copy(wqe: SendWqe, octets: number): boolean {
    if (!this.#stageHas(octets)) return false;
    gather(wqe, this.#position, this.#stage!, this.#stageAt, octets);
    this.#stageAt += octets;
    return true;
  }

  #stageHas(octets: number): boolean {
    if (this.#stage === null) {
      this.#stage = spare.pop() ?? newStage();
      this.#stageAt = this.#runStart = 0;
    }
    return this.#stageAt + octets <= STAGE_OCTETS;
  }

  /** `octets` from the present position, where they lie. */
  #lend(wqe: SendWqe, octets: number): void {
    this.#endRun();
    let skip = this.#position;
    let left = octets;
    for (let i = 0; left > 0; i++) {
      const { entry, bytes, offset, length } = wqe.at(i);
      if (skip >= length) {
        skip -= length;
        continue;
      }
      const take = Math.min(length - skip, left);
      if (entry !== null) {
        entry.pin();
        (this.#lent ??= []).push(entry);
      }
      this.#chunks[this.#count++] = viewOf(bytes, offset + skip, take);
      left -= take;
      skip = 0;
    }
  }

  /** What lies in the stage since the last piece is a piece of the write. */
  #endRun(): void {
    if (this.#stage === null || this.#stageAt === this.#runStart) return;
    this.#chunks[this.#count++] = this.#stage.bytes.subarray(this.#runStart, this.#stageAt);
    this.#runStart = this.#stageAt;
  }

  /** Local work is done at once; false if it has failed, which ends the stream. */
  #runLocal(wqe: SendWqe): boolean {
    const { sq } = this.#endpoint;
    this.#completeThrough(sq.next);
    const status = wqe.local!.run();
    if (status !== 'success') {
      this.#fail(wqe, status, `a local request ended with ${status}`);
      return false;
    }
    sq.next++;
    this.#completeThrough(sq.next);
    return true;
  }

  #fail(wqe: SendWqe, status: SendWqe['status'], why: string): void {
    wqe.status = status;
    this.fault = new IwarpError('ERR_INVALID_REGION', why);
  }

  // ------------------------------------------------------------------------------------------- confirmations

  /** The port has copied the write handed out last. */
  handleTaken(): void {
    const last = this.#writes.at(-1);
    if (last !== undefined) giveBack(last);
  }

  handleTransmitted(ok: boolean): void {
    const write = this.#writes.shift();
    if (write === undefined) return;
    giveBack(write);
    if (ok) this.#completeThrough(write.through);
  }

  #completeThrough(through: number): void {
    const { sq, owner } = this.#endpoint;
    while (sq.tail < through) owner.sendCompleted(sq.slot(sq.tail));
  }

  /** The port is gone: end everything that is left. */
  flush(): void {
    const { sq, owner } = this.#endpoint;
    for (const write of this.#writes.splice(0)) giveBack(write);
    while (sq.tail < sq.head) {
      const wqe = sq.slot(sq.tail);
      if (wqe.status === 'success') wqe.status = 'flushed';
      if (sq.next === sq.tail) sq.next++;
      owner.sendCompleted(wqe);
    }
  }
}

function giveBack(write: Write): void {
  const { stage, lent } = write;
  write.stage = write.lent = null;
  if (lent !== null) for (const entry of lent) entry.unpin();
  if (stage !== null && spare.length < SPARE_STAGES) spare.push(stage);
}
