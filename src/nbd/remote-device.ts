/**
 * A remote export as a block device: requests are split, spread over connections, and repeated after a
 * reconnection if the caller wants that.
 */
import { setImmediate, setTimeout } from 'node:timers';
import { IwarpError } from '../base/errors.ts';
import {
  checkRange,
  NEVER,
  type BlockDevice,
  type Extent,
  type WriteOptions,
  type ZeroOptions,
} from './device.ts';
import { NbdError, numberOf, protocolError } from './errors.ts';
import type { ExportInfo, LinkRequest, NbdLink } from './link.ts';
import { noStats, reportClose, reportOpen, reportRequest, type NbdStats, type Reporter } from './stats.ts';
import {
  COMMAND,
  COMMAND_FLAG,
  DEFAULT_MAXIMUM,
  EXTENT,
  TRANSMISSION_FLAG,
  type ExtentDescriptor,
} from './wire.ts';

/** What happens when a connection is lost. */
export interface ReconnectOptions {
  /** Attempts before the device fails for good. Default 10. */
  readonly attempts?: number | undefined;
  /** Milliseconds between attempts. Default 500. */
  readonly delay?: number | undefined;
  /**
   * What becomes of requests that were under way: `repeat` sends them again, `fail` rejects them with
   * ERR_CONNECTION_RESET. Default `repeat`.
   */
  readonly requests?: 'repeat' | 'fail' | undefined;
}

export interface ReconnectPolicy {
  readonly attempts: number;
  readonly delay: number;
  readonly requests: 'repeat' | 'fail';
}

/** One of the connections: open, being made again, or failed for good. */
type Place =
  | { readonly state: 'open'; readonly link: NbdLink }
  | { readonly state: 'connecting'; readonly link: Promise<NbdLink> }
  | { readonly state: 'failed'; readonly error: Error };

const EMPTY = new Uint8Array(0);

/** End the connection of a place; one that never came about has nothing to end. */
async function closeLink(place: Exclude<Place, { readonly state: 'failed' }>): Promise<void> {
  const link = place.state === 'open' ? place.link : await place.link.catch(() => null);
  await link?.close();
}

/**
 * A remote export. Methods reject with {@link NbdError} for what the server answers, with ERR_PROTOCOL,
 * ERR_CONNECTION_RESET or ERR_CONNECTION_CLOSED when the connection ends.
 */
export class RemoteDevice implements BlockDevice {
  readonly size: bigint;
  readonly blocks: BlockDevice['blocks'];
  readonly readOnly: boolean;
  readonly flush?: () => Promise<void>;
  readonly trim?: (offset: bigint, length: number) => Promise<void>;
  readonly zero?: (offset: bigint, length: number, options: ZeroOptions) => Promise<void>;
  readonly extents?: (offset: bigint, length: number) => AsyncIterable<Extent>;
  /** What the server has said of the export. */
  readonly info: ExportInfo;
  /** Resolves when the device is closed or has failed for good, with the error. */
  readonly closed: Promise<Error | undefined>;
  readonly #places: Place[];
  readonly #open: () => Promise<NbdLink>;
  readonly #reconnect: ReconnectPolicy | null;
  readonly #reporter: Reporter;
  #resolveClosed!: (error: Error | undefined) => void;
  #isClosed = false;

  /** @internal Use {@link connect}. */
  constructor(links: readonly NbdLink[], open: () => Promise<NbdLink>, reconnect: ReconnectPolicy | null) {
    const [{ info, transport }] = links as [NbdLink];
    this.info = info;
    this.size = info.size;
    this.blocks = { ...info.blocks, maximum: Math.max(info.blocks.maximum, DEFAULT_MAXIMUM) };
    this.readOnly = this.#has('READ_ONLY');
    if (this.#has('SEND_FLUSH')) this.flush = () => this.#simple(COMMAND.FLUSH, 0, 0n, 0);
    if (this.#has('SEND_TRIM')) this.trim = (offset, length) => this.#ranged(COMMAND.TRIM, 0, offset, length);
    if (this.#has('SEND_WRITE_ZEROES'))
      this.zero = (offset, length, options) => this.#zero(offset, length, options);
    if (info.blockStatus) this.extents = (offset, length) => this.#extents(offset, length);
    this.#open = open;
    this.#reconnect = reconnect;
    this.#reporter = { stats: noStats(), role: 'client', transport, exportName: info.name };
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    this.#places = links.map((link) => ({ state: 'open', link }));
    links.forEach((link, i) => this.#watch(i, link));
  }

  /** Counters since the device was opened. */
  stats(): Readonly<NbdStats> {
    return { ...this.#reporter.stats };
  }

  async read(into: Uint8Array, offset: bigint, signal: AbortSignal = NEVER): Promise<void> {
    checkRange(this, offset, into.length);
    await this.#parts(into, (data, at) => this.#move(COMMAND.READ, 0, offset + at, data, signal));
  }

  async write(
    from: Uint8Array,
    offset: bigint,
    { fua }: WriteOptions = { fua: false },
    signal: AbortSignal = NEVER,
  ): Promise<void> {
    checkRange(this, offset, from.length);
    const has = this.#has('SEND_FUA');
    const flags = fua && has ? COMMAND_FLAG.FUA : 0;
    await this.#parts(from, (data, at) => this.#move(COMMAND.WRITE, flags, offset + at, data, signal));
    if (fua && !has) await this.flush?.();
  }

  /** Ends all connections in order; requests under way are answered first. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(
      this.#places.map((place) => (place.state === 'failed' ? Promise.resolve() : closeLink(place))),
    );
    this.#resolveClosed(undefined);
  }

  #has(flag: keyof typeof TRANSMISSION_FLAG): boolean {
    return (this.info.flags & TRANSMISSION_FLAG[flag]) !== 0;
  }

  /** All of `data` in requests that the server takes, under way together. */
  async #parts(data: Uint8Array, move: (part: Uint8Array, at: bigint) => Promise<void>): Promise<void> {
    const { minimum, maximum } = this.info.blocks;
    if (data.length <= maximum) return data.length === 0 ? undefined : await move(data, 0n);
    const most = maximum - (maximum % minimum);
    const parts: Promise<void>[] = [];
    for (let at = 0; at < data.length; at += most)
      parts.push(move(data.subarray(at, Math.min(data.length, at + most)), BigInt(at)));
    const results = await Promise.allSettled(parts);
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason as Error;
  }

  async #move(
    command: number,
    flags: number,
    offset: bigint,
    data: Uint8Array,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#request({ command, flags, offset, length: data.length, data }, signal);
  }

  async #simple(command: number, flags: number, offset: bigint, length: number): Promise<void> {
    await this.#request({ command, flags, offset, length, data: EMPTY }, NEVER);
  }

  async #ranged(command: number, flags: number, offset: bigint, length: number): Promise<void> {
    checkRange(this, offset, length);
    if (length > 0) await this.#simple(command, flags, offset, length);
  }

  async #zero(offset: bigint, length: number, { fast, noHole }: ZeroOptions): Promise<void> {
    if (fast && !this.#has('SEND_FAST_ZERO'))
      throw new NbdError('ENOTSUP', 'the server does not say whether zeroing is fast');
    const flags = (fast ? COMMAND_FLAG.FAST_ZERO : 0) | (noHole ? COMMAND_FLAG.NO_HOLE : 0);
    await this.#ranged(COMMAND.WRITE_ZEROES, flags, offset, length);
  }

  async *#extents(offset: bigint, length: number): AsyncGenerator<Extent> {
    checkRange(this, offset, length);
    for (let at = 0; at < length; ) {
      const request = {
        command: COMMAND.BLOCK_STATUS,
        flags: 0,
        offset: offset + BigInt(at),
        length: length - at,
        data: EMPTY,
      };
      for (const extent of await this.#request(request, NEVER)) {
        const { flags } = extent;
        yield {
          length: extent.length,
          hole: (flags & EXTENT.HOLE) !== 0,
          zero: (flags & EXTENT.ZERO) !== 0,
        };
        at += extent.length;
      }
    }
  }

  /** One request, on whichever connection has the least to do. */
  async #request(request: LinkRequest, signal: AbortSignal): Promise<readonly ExtentDescriptor[]> {
    const { command, offset, length } = request;
    try {
      for (;;) {
        const link = await this.#link();
        try {
          const extents = await link.request(request, signal === NEVER ? undefined : signal);
          reportRequest(this.#reporter, command, offset, length, 0);
          return extents;
        } catch (error) {
          if (!this.#repeats(error, link)) throw error;
          this.#reporter.stats.repeats++;
        }
      }
    } catch (error) {
      reportRequest(this.#reporter, command, offset, length, numberOf(error));
      throw error;
    }
  }

  /** Every request means the same when it is sent twice, so that it may be. */
  #repeats(error: unknown, link: NbdLink): boolean {
    if (link.isOpen || this.#isClosed || this.#reconnect?.requests !== 'repeat') return false;
    return error instanceof IwarpError && error.code !== 'ERR_NBD' && error.code !== 'ERR_ABORTED';
  }

  async #link(): Promise<NbdLink> {
    if (this.#isClosed) throw new IwarpError('ERR_DESTROYED', 'the device has been closed');
    let best: NbdLink | null = null;
    for (const place of this.#places) {
      if (place.state !== 'open' || !place.link.isOpen) continue;
      if (best === null || place.link.inFlight < best.inFlight) best = place.link;
    }
    if (best !== null) return best;
    const waiting = this.#places.filter((place) => place.state === 'connecting');
    if (waiting.length > 0)
      return await Promise.any(waiting.map(({ link }) => link)).catch(() => this.#link());
    const failed = this.#places.find((place) => place.state === 'failed');
    if (failed !== undefined) throw failed.error;
    // The end of a connection has been seen by it and not yet by us.
    await new Promise((resolve) => setImmediate(resolve));
    return await this.#link();
  }

  #watch(index: number, link: NbdLink): void {
    reportOpen(this.#reporter);
    void link.closed.then((error) => {
      reportClose(this.#reporter, error);
      if (this.#isClosed) return;
      const lost = error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the server has closed the connection');
      if (this.#reconnect === null) this.#fail(index, lost);
      else this.#places[index] = { state: 'connecting', link: this.#again(index, this.#reconnect, lost) };
    });
  }

  #fail(index: number, error: Error): void {
    this.#places[index] = { state: 'failed', error };
    if (this.#places.every(({ state }) => state === 'failed')) this.#resolveClosed(error);
  }

  /** Connects again; the export has to be the same one. */
  async #again(index: number, { attempts, delay }: ReconnectPolicy, lost: Error): Promise<NbdLink> {
    let last = lost;
    for (let attempt = 0; attempt < attempts && !this.#isClosed; attempt++) {
      await new Promise((resolve) => setTimeout(resolve, attempt === 0 ? 0 : delay));
      try {
        const link = await this.#open();
        const { size, flags } = link.info;
        if (size !== this.size || flags !== this.info.flags) {
          link.destroy(lost);
          last = protocolError('the export has another size or other features after the reconnection');
          break;
        }
        this.#reporter.stats.reconnects++;
        this.#places[index] = { state: 'open', link };
        this.#watch(index, link);
        return link;
      } catch (error) {
        last = error as Error;
      }
    }
    this.#fail(index, last);
    throw last;
  }
}
