/**
 * The sending half of a channel, without its queue pair: room at the peer, credits, and the buffer that octets wait in until their Write has
 * completed.
 *
 * The peer's windows are filled from front to back, no transfer crosses the end of one.
 */
import { putBytes } from '../base/copy.ts';
import type { RemoteMemory } from './wire.ts';

/** Credits that we leave unused, so that our control messages find a receive at a peer that has no spare ones. */
const SLACK = 8;
/** Transfers start small, so that the first octets arrive early, and double up to the largest. */
const FIRST_TRANSFER = 2048;
const LAST_TRANSFER = 65_536;
export const MAX_TRANSFERS = 128;

/** One transfer: where its octets wait, and where at the peer they go. */
export interface Transfer {
  readonly octets: number;
  readonly from: number;
  readonly addr: bigint;
  readonly key: number;
}

export class SendWindow {
  readonly #buffer: Uint8Array;
  readonly #windows: { addr: bigint; key: number; left: number }[] = [];
  /** Lengths of the transfers on their way, oldest first. */
  readonly #inFlight: number[] = [];
  #at = 0;
  #free: number;
  #transfer = FIRST_TRANSFER;
  #sequence = 0;
  #limit = 0;
  #slack = 0;

  constructor(buffer: Uint8Array) {
    this.#buffer = buffer;
    this.#free = buffer.length;
  }

  /** What the peer's private data says: how many messages it takes, and its first window. */
  open(credits: number, window: RemoteMemory): void {
    this.#limit = credits;
    this.#slack = Math.min(SLACK, credits >> 2);
    this.addWindow(window);
  }

  addWindow({ addr, key, length }: RemoteMemory): void {
    if (length > 0) this.#windows.push({ addr, key, left: length });
  }

  /** The highest sequence number that the peer takes. */
  setLimit(limit: number): void {
    this.#limit = limit & 0xffff;
  }

  get hasCredit(): boolean {
    return ((this.#limit - this.#sequence) & 0xffff) > this.#slack && this.#inFlight.length < MAX_TRANSFERS;
  }

  /** A message that the peer counts. */
  countMessage(): void {
    this.#sequence = (this.#sequence + 1) & 0xffff;
  }

  /** A new write: transfers start small again. */
  begin(): void {
    this.#transfer = FIRST_TRANSFER;
  }

  /** The next transfer from `chunk`, from `offset` on, copied into the buffer; null if there is no room or credit now. */
  take(chunk: Uint8Array, offset: number): Transfer | null {
    const window = this.#windows[0];
    const octets = Math.min(this.#transfer, chunk.length - offset, window?.left ?? 0, this.#room);
    if (octets === 0 || !this.hasCredit) return null;
    const { addr, key } = window!;
    const from = this.#put(chunk.subarray(offset, offset + octets));
    this.countMessage();
    window!.addr += BigInt(octets);
    window!.left -= octets;
    if (window!.left === 0) this.#windows.shift();
    this.#transfer = Math.min(2 * this.#transfer, LAST_TRANSFER);
    return { octets, from, addr, key };
  }

  /** A transfer straight to a mapped buffer: no window, no credit. */
  takeDirect(data: Uint8Array, target: { readonly addr: bigint; readonly key: number; readonly left: number }): Transfer | null {
    const octets = Math.min(data.length, target.left, LAST_TRANSFER, this.#room);
    if (octets === 0 || this.#inFlight.length >= MAX_TRANSFERS) return null;
    return { octets, from: this.#put(data.subarray(0, octets)), addr: target.addr, key: target.key };
  }

  /** The oldest transfer has completed: its octets of the buffer are free. */
  complete(): void {
    this.#free += this.#inFlight.shift()!;
  }

  get #room(): number {
    return Math.min(this.#free, this.#buffer.length - this.#at);
  }

  #put(data: Uint8Array): number {
    const at = this.#at;
    putBytes(data, this.#buffer, at);
    this.#at = (at + data.length) % this.#buffer.length;
    this.#free -= data.length;
    this.#inFlight.push(data.length);
    return at;
  }
}
