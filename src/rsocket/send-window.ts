/**
 * The sending half of a channel, without its queue pair: room at the peer, credits, and the buffer that
 * octets wait in until their Write has completed.
 *
 * The peer's windows are filled from front to back, no transfer crosses the end of one.
 */
import { asNumberIfSafe, plus } from '../base/u64.ts';
import { Pieces } from '../sockets/pieces.ts';
import { SGL_ENTRIES, type RemoteMemory } from './wire.ts';

/**
 * Credits that we leave unused, so that our control messages find a receive at a peer that has no spare ones.
 */
const SLACK = 8;
/**
 * Octets of one transfer, which is a Write and a message. librdmacm begins each write with 2 KiB and doubles,
 * so that an adapter sends while the program still copies; here everything of one turn leaves behind it, and
 * short transfers would only be more work at either end.
 */
const MAX_TRANSFER = 65_536;
export const MAX_TRANSFERS = 128;

/** One transfer: where its octets wait, and where at the peer they go. */
interface Transfer {
  readonly octets: number;
  readonly from: number;
  readonly addr: bigint | number;
  readonly key: number;
}

/** Memory of the peer that is still to be filled. */
interface Window {
  addr: bigint | number;
  readonly key: number;
  left: number;
}

export class SendWindow {
  readonly #size: number;
  readonly #memory: () => Uint8Array;
  /** Made for the first octets: a connection that sends nothing needs none. */
  #buffer: Uint8Array | null = null;
  readonly #windows: Window[] = [];
  /** Lengths of the transfers on their way, oldest first. */
  readonly #inFlight: number[] = [];
  #at = 0;
  #free: number;
  #sequence = 0;
  #limit = 0;
  #slack = 0;

  /** `memory` makes the buffer, of `size` octets. */
  constructor(size: number, memory: () => Uint8Array) {
    this.#size = size;
    this.#memory = memory;
    this.#free = size;
  }

  /** Applies the peer's private data: how many messages it takes, and its first window. */
  open(credits: number, window: RemoteMemory): void {
    this.#limit = credits;
    this.#slack = Math.min(SLACK, credits >> 2);
    this.addWindow(window);
  }

  /** False if as many windows as the protocol knows are still to be filled: the peer has no further half. */
  addWindow({ addr, key, length }: RemoteMemory): boolean {
    if (length === 0) return true;
    if (this.#windows.length === SGL_ENTRIES) return false;
    this.#windows.push({ addr: asNumberIfSafe(addr), key, left: length });
    return true;
  }

  /** The highest sequence number that the peer takes. */
  setLimit(limit: number): void {
    this.#limit = limit & 0xffff;
  }

  get hasCredit(): boolean {
    return ((this.#limit - this.#sequence) & 0xffff) > this.#slack && this.#inFlight.length < MAX_TRANSFERS;
  }

  /** No transfer is on its way. */
  get isEmpty(): boolean {
    return this.#inFlight.length === 0;
  }

  /** A message that the peer counts. */
  countMessage(): void {
    this.#sequence = (this.#sequence + 1) & 0xffff;
  }

  /** The next transfer of `pieces`, copied into the buffer; null if there is no room or credit now. */
  take(pieces: Pieces): Transfer | null {
    const window = this.#windows[0];
    const octets = Math.min(MAX_TRANSFER, pieces.left, window?.left ?? 0, this.#room());
    if (octets === 0 || !this.hasCredit) return null;
    const { addr, key } = window!;
    const from = this.#put(pieces, octets);
    this.countMessage();
    window!.addr = plus(addr, octets);
    window!.left -= octets;
    if (window!.left === 0) this.#windows.shift();
    return { octets, from, addr, key };
  }

  /** A transfer straight to a mapped buffer: no window, no credit. */
  takeDirect(
    data: Uint8Array,
    target: { readonly addr: bigint; readonly key: number; readonly left: number },
  ): Transfer | null {
    const octets = Math.min(data.length, target.left, MAX_TRANSFER, this.#room());
    if (octets === 0 || this.#inFlight.length >= MAX_TRANSFERS) return null;
    return { octets, from: this.#put(new Pieces([data]), octets), addr: target.addr, key: target.key };
  }

  /** The oldest transfer has completed: its octets of the buffer are free. */
  complete(): void {
    this.#free += this.#inFlight.shift()!;
  }

  #room(): number {
    return Math.min(this.#free, this.#size - this.#at);
  }

  #put(pieces: Pieces, octets: number): number {
    const at = this.#at;
    pieces.take(octets, (this.#buffer ??= this.#memory()), at);
    this.#at = (at + octets) % this.#size;
    this.#free -= octets;
    this.#inFlight.push(octets);
    return at;
  }
}
