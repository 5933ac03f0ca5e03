/** The messages that arrive on an SDP connection: what they say, and the half that each of them concerns. */
import type { HeldBuffer, Sink } from './sink.ts';
import type { Source } from './source.ts';
import type { Transmitter } from './transmit.ts';
import {
  BSDH_OCTETS,
  decodeMessage,
  decodeModeChange,
  FLAG,
  getAdvertised,
  getLockTable,
  getUpdatedSource,
  MID,
  type SdpMessage,
} from './wire.ts';

/** Bytes that are dropped after the program has left, until a reset notifies the peer. */
const MOST_DROPPED = 1 << 20;

/** The connection, as its messages concern it. */
interface ArrivalsOwner {
  readonly closed: boolean;
  /** DisConn has arrived. */
  readonly peerEnded: boolean;
  fail(reason: string): void;
  disconnArrived(): void;
  abortArrived(): void;
}

export class Arrivals {
  readonly #owner: ArrivalsOwner;
  readonly #out: Transmitter;
  readonly #source: Source;
  readonly #sink: Sink;
  /** Bytes that our private buffers may grow to. */
  readonly #most: number;
  #dropping = false;
  #dropped = 0;
  /** Larger private buffers have been asked for: by us, and by the peer, where ours are not ready yet. */
  #asked = false;
  #resizing = false;

  constructor(owner: ArrivalsOwner, out: Transmitter, source: Source, sink: Sink, most: number) {
    this.#owner = owner;
    this.#out = out;
    this.#source = source;
    this.#sink = sink;
    this.#most = most;
  }

  /** The program has left: payload is dropped. */
  drop(): void {
    this.#dropping = true;
    this.#sink.discard();
  }

  /** Large writes are worth larger private buffers at the peer. */
  askSize(octets: number): void {
    if (this.#asked || octets <= this.#out.sendSize || this.#out.peerSize >= this.#most) return;
    this.#asked = true;
    this.#out.control(MID.CH_RCV_BUF, this.#most);
  }

  /** A message has arrived in a private buffer; its Send has invalidated an STag of ours, or none. */
  message(slot: number, octets: number, invalidated: number | undefined): void {
    const bytes = this.#out.buffers.bytes(slot, octets);
    const message = decodeMessage(new DataView(bytes.buffer, bytes.byteOffset, octets), octets);
    const fault = typeof message === 'string' ? message : this.#out.credits.accept(message);
    if (typeof message === 'string' || fault !== null) {
      this.#owner.fail(String(fault));
      return;
    }
    // A33: no other message says that the peer has finished with memory of ours.
    if (invalidated !== undefined && message.mid !== MID.RDMA_RD_COMPL)
      return this.#owner.fail(`Send with Invalidate of ${message.form.name}`);
    if ((message.flags & FLAG.REQ_PIPE) !== 0) this.#source.askPipeline();
    const { buffers } = this.#out;
    const give = buffers.canGive(slot, octets) ? (): void => buffers.replace(slot) : null;
    this.#handle(message, bytes, { give, release: () => this.#release(slot) }, invalidated);
    this.#source.acknowledged();
  }

  /** Only the credits of a message count: the connection is being aborted. False if they are wrong. */
  numbers(slot: number, octets: number): boolean {
    const bytes = this.#out.buffers.bytes(slot, octets);
    const message = decodeMessage(new DataView(bytes.buffer, bytes.byteOffset, octets), octets);
    return typeof message !== 'string' && this.#out.credits.accept(message) === null;
  }

  #release(slot: number): void {
    if (this.#owner.closed) return;
    const { buffers, credits } = this.#out;
    credits.posted += buffers.release(slot);
    if (this.#resizing && buffers.uniform) {
      this.#resizing = false;
      this.#out.control(MID.CH_RCV_BUF_ACK, buffers.size);
    }
    this.#out.flush();
  }

  #handle(message: SdpMessage, bytes: Uint8Array, buffer: HeldBuffer, invalidated: number | undefined): void {
    const { mid, payload, mseqAck } = message;
    const data = bytes.subarray(payload);
    const { release } = buffer;
    if (mid === MID.DATA) return this.#data(data, buffer);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    if (mid === MID.SRC_AVAIL) {
      if (this.#owner.peerEnded) return this.#owner.fail('SrcAvail behind DisConn');
      // Each advertisement needs a credit: with those of an idle stream two would be out at a time.
      if (this.#sink.mode === 'pipelined') this.#grow();
      this.#sink.sourceAvailable(getAdvertised(view, BSDH_OCTETS), data, mseqAck, release);
      return;
    }
    if (mid === MID.SINK_AVAIL) {
      this.#source.sinkAvailable(getAdvertised(view, BSDH_OCTETS), view.getUint32(BSDH_OCTETS + 16), mseqAck);
      this.#data(data, buffer);
      return;
    }
    if (mid === MID.LOCK_TABLE || mid === MID.UPDATED_SRC_AVAIL) {
      this.#locks(mid, view);
      release();
      return;
    }
    const word = payload > BSDH_OCTETS ? view.getUint32(BSDH_OCTETS) : 0;
    // A cancel holds back the acknowledgement of itself, so before anything is said.
    if (mid === MID.SRC_AVAIL_CANCEL) this.#out.hold(message.mseq);
    // Our DisConn, which mostly follows at once, says the same as an update.
    if (mid === MID.DISCONN) this.#out.answersOnly = true;
    release();
    if (mid === MID.RDMA_RD_COMPL) this.#source.readCompleted(word, invalidated);
    else this.#control(message, word);
  }

  #data(data: Uint8Array, buffer: HeldBuffer): void {
    if (data.length === 0) {
      buffer.release();
      return;
    }
    if (this.#owner.peerEnded) return this.#owner.fail('data behind DisConn');
    if (this.#out.credits.posted < 3) this.#grow();
    if (this.#dropping && (this.#dropped += data.length) > MOST_DROPPED)
      return this.#owner.fail('data for a program that has left');
    this.#sink.data(data, buffer);
  }

  #grow(): void {
    const { buffers, credits } = this.#out;
    credits.posted += buffers.grow();
  }

  #locks(mid: number, view: DataView): void {
    if (!this.#out.copyOnWrite) this.#owner.fail(`message id ${mid}, which both sides have to announce`);
    else if (mid === MID.LOCK_TABLE) this.#source.lockTable(getLockTable(view, BSDH_OCTETS));
    else this.#sink.sourceUpdated(getUpdatedSource(view, BSDH_OCTETS));
  }

  #control({ mid, mseq }: SdpMessage, word: number): void {
    switch (mid) {
      case MID.DISCONN:
        if (this.#owner.peerEnded) return this.#owner.fail('a second DisConn');
        return this.#owner.disconnArrived();
      case MID.ABORT_CONN:
        return this.#owner.abortArrived();
      case MID.SEND_SM:
        return this.#source.sendSmall();
      case MID.RDMA_WR_COMPL:
        return this.#sink.writeCompleted(word);
      case MID.MODE_CHANGE:
        return this.#modeChanged(word);
      case MID.SRC_AVAIL_CANCEL:
        return this.#sink.sourceCancelled(mseq);
      case MID.SINK_AVAIL_CANCEL:
        return this.#source.sinkCancelled();
      case MID.SINK_CANCEL_ACK:
        return this.#sink.cancelAcknowledged();
      case MID.CH_RCV_BUF:
        return this.#enlarge(word);
      case MID.CH_RCV_BUF_ACK:
        if (!this.#asked) return this.#owner.fail('ChRcvBufAck without ChRcvBuf');
        if (word > this.#out.peerSize) this.#out.setPeerSize(word);
        return;
      default:
        // Processes do not hand connections on here.
        return this.#owner.fail(`message id ${mid}`);
    }
  }

  #modeChanged(word: number): void {
    const change = decodeModeChange(word);
    if (change === null) this.#owner.fail(`a change to mode ${word >>> 24}`);
    else if (change.half === 'send') this.#source.changedByPeer(change.mode);
    else this.#sink.changedByPeer(change.mode);
  }

  #enlarge(desired: number): void {
    if (this.#resizing) return this.#owner.fail('ChRcvBuf before ChRcvBufAck');
    const { buffers, credits } = this.#out;
    credits.posted += buffers.enlarge(Math.min(desired, this.#most));
    if (buffers.uniform) this.#out.control(MID.CH_RCV_BUF_ACK, buffers.size);
    else this.#resizing = true;
  }
}
