/** The verbs objects and the memory of one rsocket connection, made together and given back together. */
import type { Rnic } from '../api/environment.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import type { CompletionQueue } from '../verbs/cq.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { ProtectionDomain } from '../verbs/pd.ts';
import type { QueuePair } from '../verbs/qp.ts';

/** How much of each there is: requests, and octets of memory. */
interface ResourceSizes {
  readonly receives: number;
  readonly sends: number;
  /** Of the receive buffer that the connection begins with. */
  readonly receiveBuffer: number;
  readonly sendBuffer: number;
  readonly list: number;
  readonly words: number;
}

/** The peer's Writes go there. */
const TARGET = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE;

export class ChannelResources {
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  /** A place for each message. */
  readonly words: MemoryRegion;
  /** The list of windows, and after it the map, both written by the peer. */
  readonly list: MemoryRegion;
  readonly #sendBuffer: number;
  #receive: MemoryRegion;
  #send: MemoryRegion | null = null;
  readonly #regions: MemoryRegion[] = [];

  constructor(rnic: Rnic, { receives, sends, receiveBuffer, sendBuffer, list, words }: ResourceSizes) {
    this.#sendBuffer = sendBuffer;
    this.pd = rnic.device.allocatePd();
    try {
      this.cq = rnic.device.createCq(receives + sends);
      this.qp = this.pd.createQp({
        sendCq: this.cq,
        recvCq: this.cq,
        maxSendWr: sends,
        maxRecvWr: receives,
      });
      this.qp.carries = 'rsocket';
      this.#receive = this.#register(receiveBuffer, TARGET);
      this.words = this.#register(words, ACCESS.LOCAL_WRITE);
      this.list = this.#register(list, TARGET);
    } catch (error) {
      this.#destroyQueues();
      this.#giveBackMemory(() => false, true);
      throw error;
    }
  }

  /** The receive buffer in which windows are offered. */
  get receive(): MemoryRegion {
    return this.#receive;
  }

  /**
   * Go on with a receive buffer of this size; the former one stays until the end, as octets in it may be
   * unread.
   *
   * @throws ERR_LIMIT, with nothing changed
   */
  growReceive(octets: number): MemoryRegion {
    this.#receive = this.#register(octets, TARGET);
    return this.#receive;
  }

  /**
   * Octets that the program has written wait here for their Write. Made for the first ones.
   *
   * @throws ERR_LIMIT
   */
  get send(): MemoryRegion {
    return (this.#send ??= this.#register(this.#sendBuffer, 0));
  }

  #register(octets: number, access: number): MemoryRegion {
    // A peer may claim to have written octets that it has not, and our answers must not show it the octets of
    // another peer.
    const clear = (access & ACCESS.REMOTE_WRITE) !== 0;
    const { connectionMemory } = this.pd.device;
    const bytes = connectionMemory.take(octets, clear);
    let region: MemoryRegion;
    try {
      region = this.pd.registerMemory(bytes, access);
    } catch (error) {
      connectionMemory.give(bytes, clear);
      throw error;
    }
    this.#regions.push(region);
    return region;
  }

  /**
   * The end of the connection. Memory in which octets are `unread` can still be read; memory that is
   * `untouched` need not be cleared for the next connection, which would make it resident. Mappings end in
   * between.
   */
  giveBack(unread: (bytes: Uint8Array) => boolean, untouched: boolean, endMappings: () => void): void {
    this.#destroyQueues();
    endMappings();
    this.#giveBackMemory(unread, untouched);
  }

  /** Where a limit of the device was in the way, not all has been made. */
  #destroyQueues(): void {
    (this.qp as QueuePair | undefined)?.destroy();
    (this.cq as CompletionQueue | undefined)?.destroy();
  }

  #giveBackMemory(unread: (bytes: Uint8Array) => boolean, untouched: boolean): void {
    const { connectionMemory } = this.pd.device;
    for (const region of this.#regions) {
      const { bytes } = region;
      region.deregister();
      if (unread(bytes)) connectionMemory.lose(bytes);
      else connectionMemory.give(bytes, untouched);
    }
    this.pd.deallocate();
  }
}

/** A view of all of a region. */
export function viewOf(region: MemoryRegion): DataView {
  const { bytes } = region;
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}
