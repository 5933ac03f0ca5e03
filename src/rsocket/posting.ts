/**
 * Requests that an rsocket connection posts: transfers, control messages, and entries for the peer's list and
 * map.
 */
import type { MemoryRegion } from '../verbs/memory.ts';
import type { SendWorkRequest } from '../verbs/post.ts';
import type { QueuePair } from '../verbs/qp.ts';
import {
  encodeIomap,
  encodeSge,
  IOMAP_OCTETS,
  MESSAGE_OCTETS,
  OP,
  putMessage,
  SGE_OCTETS,
  type ConnectionData,
  type RemoteMemory,
} from './wire.ts';

/** Control messages under way at most. */
export const MAX_CONTROLS = 4;

/** Receives number from `RECEIVE` on, each with the place of its message. */
export const ID = { DATA: 1, CONTROL: 2, LAST_CONTROL: 3, DIRECT: 4, IOMAP: 5, RECEIVE: 6 } as const;

/** Octets of the send buffer, and their place at the peer. */
interface Transfer {
  readonly octets: number;
  readonly from: number;
  readonly addr: bigint | number;
  readonly key: number;
}

export class Posting {
  readonly #qp: QueuePair;
  readonly #send: () => MemoryRegion;
  readonly #failed: (cause: unknown) => void;
  readonly #messageBytes = new Uint8Array(MESSAGE_OCTETS);
  readonly #messageView = new DataView(this.#messageBytes.buffer);
  #remoteNext = 1;
  #controls = 0;
  /** Known once the connection is there. */
  peer: ConnectionData | null = null;

  /** `send` is the region of the send buffer, once octets are in it; `failed` ends the connection. */
  constructor(qp: QueuePair, send: () => MemoryRegion, failed: (cause: unknown) => void) {
    this.#qp = qp;
    this.#send = send;
    this.#failed = failed;
  }

  /** Another control message has to wait. */
  get isFull(): boolean {
    return this.#controls >= MAX_CONTROLS;
  }

  /** Every reader takes messages as they are: we write for the peer. */
  get little(): boolean {
    return !this.peer!.bigEndian;
  }

  /** A control message has completed. */
  controlDone(): void {
    this.#controls--;
  }

  /** Write octets of the send buffer into a window of the peer, and send the message that announces them. */
  data({ octets, from, addr, key }: Transfer): void {
    this.#post([
      {
        opcode: 'rdma-write',
        sges: [{ mr: this.#send(), offset: from, length: octets }],
        signaled: false,
        rkey: key,
        remoteAddr: addr,
      },
      { opcode: 'send', wrId: ID.DATA, inline: this.#message(OP.DATA, octets) },
    ]);
  }

  /** Write octets of the send buffer into a mapped buffer of the peer, without a message. */
  direct({ octets, from, addr, key }: Transfer): void {
    this.#post({
      opcode: 'rdma-write',
      wrId: ID.DIRECT,
      sges: [{ mr: this.#send(), offset: from, length: octets }],
      rkey: key,
      remoteAddr: addr,
    });
  }

  control(op: number, value: number, wrId: number): void {
    this.#controls++;
    this.#post({ opcode: 'send', wrId, inline: this.#message(op, value) });
  }

  /** Post a zero-length Write: the peer's program notices nothing, and its TCP answers. */
  keepAlive(): void {
    this.#controls++;
    this.#post({ opcode: 'rdma-write', wrId: ID.CONTROL, rkey: 0, remoteAddr: 0 });
  }

  /** Enter a receive buffer of ours into the peer's list; a message has to follow. */
  offer(window: RemoteMemory): void {
    const { targetSgl } = this.peer!;
    this.#post({
      opcode: 'rdma-write',
      inline: encodeSge(window, this.little),
      signaled: false,
      rkey: targetSgl.key,
      remoteAddr: targetSgl.addr + BigInt(this.#remoteNext * SGE_OCTETS),
    });
    this.#remoteNext = (this.#remoteNext + 1) % targetSgl.length;
  }

  /** Enter a mapped buffer of ours into the peer's map, and say so. */
  map(index: number, offset: bigint, mr: MemoryRegion): void {
    const { targetSgl } = this.peer!;
    const at = targetSgl.addr + BigInt(targetSgl.length * SGE_OCTETS + index * IOMAP_OCTETS);
    const memory = { addr: mr.addr, key: mr.rkey, length: mr.length };
    const entry = encodeIomap({ offset, memory }, this.little);
    this.#controls++;
    this.#post([
      { opcode: 'rdma-write', inline: entry, signaled: false, rkey: targetSgl.key, remoteAddr: at },
      { opcode: 'send', wrId: ID.IOMAP, inline: this.#message(OP.IOMAP, index) },
    ]);
  }

  /** A message, in the same four octets each time: inline data is copied when it is posted. */
  #message(op: number, value: number): Uint8Array {
    putMessage(this.#messageView, op, value, this.little);
    return this.#messageBytes;
  }

  /**
   * Post, where nothing but an error of this file or a number of the peer can be wrong: such an exception
   * ends this connection, and is never one of the event loop.
   */
  #post(work: SendWorkRequest | readonly SendWorkRequest[]): void {
    try {
      this.#qp.postSend(work as SendWorkRequest);
    } catch (error) {
      this.#failed(error);
    }
  }
}
