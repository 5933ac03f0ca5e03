/** The connection as sessions see it. */
import type { IwarpError } from '../base/errors.ts';

/** Memory for one batch, on loan until it has left. */
export interface Batch {
  readonly bytes: Uint8Array;
  readonly view: DataView;
}

/** Memory of this side that the peer may read. */
export interface Offer {
  /** 16 octets. */
  readonly ticket: Uint8Array;
  /** The peer has no access any longer. */
  withdraw(): void;
}

/** Bytes that have been read. */
export interface Pulled {
  readonly bytes: Uint8Array;
  /** Lent bytes may be used for others. */
  release(): void;
}

/** The functions of a connection that its session needs. */
export interface Carrier {
  /** Largest batch that the peer takes. */
  readonly batchOctets: number;
  takeBatch(): Batch;
  /** A copy for the program: a Buffer in Node. */
  copy(bytes: Uint8Array): Uint8Array;
  /** Memory for the program, of the same kind. */
  allocate(length: number): Uint8Array;
  /** Send the first `length` octets; `sent` is called when the batch has left, or cannot any longer. */
  sendBatch(batch: Batch, length: number, sent: () => void): void;
  /** Run `task` when the present turn is over. */
  defer(task: () => void): void;
  offer(memory: Uint8Array): Offer;
  /** Read the memory behind a ticket of the peer, into memory that is lent, or given for good. */
  pull(ticket: Uint8Array, use: 'lent' | 'given'): Promise<Pulled>;
  /** The peer has broken the protocol, as `words` say: the connection ends. */
  violated(words: string): void;
  /** The error of an operation that ends with the connection. */
  ended(operation: string): IwarpError;
  /** Nothing is under way or in line any longer. */
  idle(): void;
}
