/** What the two halves of an SDP connection ask of the connection itself. */
import type { Advertised, LockTable, SdpMode, UpdatedSource } from './wire.ts';

/** Memory that one work request, or the peer, uses. */
export interface Exposure {
  readonly stag: number;
  readonly to: bigint;
  /** The peer Reads a copy: the device works in another thread, which does not see the memory itself. */
  readonly copied: boolean;
  /** Bytes from the start that the peer has written; null where the device works in another thread. */
  readonly written: number | null;
  /** End the use; bytes that the peer has written are in the program's memory afterwards. */
  end(): void;
}

/** Memory of ours as a Read or Write uses it. */
export interface LocalUse {
  /** Bytes of it. */
  readonly length: number;
  /** End the use; `true` if it succeeded, so that the data read is copied to its place. */
  end(ok: boolean): void;
}

/** A place in the send buffer, with room for one message. */
export interface SendSlot {
  readonly index: number;
  /** Where payload goes. */
  readonly bytes: Uint8Array;
}

export interface SdpLink {
  /** Payload bytes of one message to the peer. */
  readonly sendSize: number;
  /** Smallest SinkAvail that the peer may send, and that we send. */
  readonly leastPlace: { readonly ours: number; readonly peers: number };
  readonly maxAdverts: number;
  readonly peerMaxAdverts: number;
  readonly mode: 'buffered' | 'source' | 'sink' | 'auto';
  readonly zeroCopyFrom: number;
  /** Bytes that are read from the peer ahead of the program. */
  readonly readAhead: number;
  /** Number of our latest message, and the latest that the peer has acted on. */
  readonly sent: number;
  readonly acked: number;
  /** Private buffers that are posted: data can come. */
  readonly posted: number;
  /** True if a message of this class can be sent now, in front of which nothing waits. */
  ready(payload: boolean): boolean;
  /** Queue a message without payload; `sent` gets its number when it leaves. */
  control(mid: number, word?: number, sent?: (mseq: number) => void): void;
  /**
   * RdmaRdCompl. `last` is the STag of an advertisement that has been read to its end. The message
   * invalidates that STag if the peer has announced that it takes a Send with Invalidate.
   */
  readCompleted(octets: number, last: number | undefined): void;
  /** The send queue takes another Read. */
  readonly canRead: boolean;
  /** A free place for payload, or null. */
  takeSlot(): SendSlot | null;
  /** Data of `octets` bytes from a slot. */
  sendData(slot: SendSlot, octets: number): void;
  /** RDMA Write of `octets` bytes from a slot. */
  writeSlot(slot: SendSlot, octets: number, stag: number, to: bigint): void;
  /** SrcAvail or SinkAvail; `tail` is inline data or NonDiscards. */
  sendAdvert(mid: number, advert: Advertised, tail: Uint8Array): void;
  /** Both sides have copy-on-write. */
  readonly copyOnWrite: boolean;
  /** Lock words that the peer may compare and swap, zero at first; LockTable is sent. */
  openLocks(slots: number): Uint8Array;
  /** Compare and swap a lock word of the peer; `done` gets its old value, null at the end. */
  compareSwap(
    at: Pick<LockTable, 'stag' | 'to'>,
    compare: bigint,
    swap: bigint,
    done: (old: bigint | null) => void,
  ): void;
  /** UpdatedSrcAvail. */
  updateSource(updated: UpdatedSource): void;
  expose(bytes: Uint8Array, access: 'read' | 'write'): Exposure;
  borrow(bytes: Uint8Array, access: 'source' | 'sink'): LocalUse;
  postRead(local: LocalUse, from: Advertised, octets: number, done: () => void): void;
  postWrite(local: LocalUse, to: Advertised, octets: number, done: () => void): void;
  changeMode(half: 'send' | 'receive', mode: SdpMode): void;
  /** MSeqAck stays below this message until it has been answered; null releases it. */
  hold(mseq: number | null): void;
  /** Our SrcAvailCancel is out. */
  lenient(on: boolean): void;
  /** An empty Data message, if nothing else says the same first. */
  update(): void;
  after(ms: number, task: () => void): () => void;
  fail(reason: string): void;
  /** The program has detached memory that bytes were to leave or to come to: the stream cannot go on. */
  lost(): void;
}
