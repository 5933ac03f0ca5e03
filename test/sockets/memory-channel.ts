/** A second implementation of ByteChannel: two ends over a bounded queue in memory, without any network. */
import type { IwarpError } from '../../src/base/errors.ts';
import type { ByteChannel, ChannelHandler, ChannelState } from '../../src/sockets/byte-channel.ts';
import type { Pieces } from '../../src/sockets/pieces.ts';
import type { PortAddress } from '../../src/transport/port.ts';

/** Bytes that may be on their way in one direction. */
const ROOM = 10_000;

export class MemoryChannel implements ByteChannel {
  readonly #handler: ChannelHandler;
  readonly localAddress: PortAddress;
  #peer: MemoryChannel | undefined;
  #arrived: Buffer = Buffer.alloc(0);
  #peerEnded = false;
  #saidEnd = false;
  #peerGone = false;
  state: ChannelState = 'opening';
  probes: { enable: boolean; delay: number }[] = [];

  constructor(handler: ChannelHandler, port: number) {
    this.#handler = handler;
    this.localAddress = { address: '127.0.0.1', port, family: 'IPv4' };
  }

  static join(a: MemoryChannel, b: MemoryChannel): void {
    [a.#peer, b.#peer] = [b, a];
    for (const each of [a, b]) {
      each.#later(() => {
        each.state = 'open';
        each.#handler.onOpen();
      });
    }
  }

  #later(call: () => void): void {
    setImmediate(call);
  }

  get remoteAddress(): PortAddress | undefined {
    return this.#peer?.localAddress;
  }

  get readable(): boolean {
    return this.#arrived.length > 0;
  }

  get drained(): boolean {
    return this.#peerEnded && !this.readable;
  }

  get refused(): boolean {
    return this.#peerGone || this.state === 'closed';
  }

  read(max: number): Buffer | null {
    if (!this.readable) return null;
    const data = Buffer.from(this.#arrived.subarray(0, max));
    this.#drop(data.length);
    return data;
  }

  readInto(place: Uint8Array): number {
    const count = this.#arrived.copy(place);
    this.#drop(count);
    return count;
  }

  #drop(count: number): void {
    this.#arrived = this.#arrived.subarray(count);
    this.#later(() => this.#peer!.#handler.onWritable());
  }

  write(pieces: Pieces): number {
    const peer = this.#peer!;
    const count = Math.min(pieces.left, ROOM - peer.#arrived.length);
    if (this.state !== 'open' || count <= 0) return 0;
    const data = Buffer.alloc(count);
    pieces.take(count, data, 0);
    peer.#arrived = Buffer.concat([peer.#arrived, data]);
    this.#later(() => peer.#handler.onReadable());
    return count;
  }

  finish(how: 'shutdown' | 'disconnect', done: () => void): void {
    const peer = this.#peer!;
    this.#saidEnd = true;
    this.#later(() => {
      done();
      const first = !peer.#peerEnded;
      peer.#peerEnded = true;
      if (how === 'disconnect') peer.#peerGone = true;
      if (first) peer.#handler.onEnd();
      peer.#handler.onWritable();
      peer.#checkOver();
      this.#checkOver();
    });
  }

  #checkOver(): void {
    if (this.#saidEnd && this.#peerEnded) this.#gone(undefined);
  }

  probe(enable: boolean, delay: number): boolean {
    this.probes.push({ enable, delay });
    return true;
  }

  keepAlive(): void {
    throw new Error('not called where probe() returns true');
  }

  setRef(): void {
    // Nothing here keeps the process alive.
  }

  close(): void {
    if (this.state === 'closed') return;
    if (this.#saidEnd) this.#checkOver();
    else this.finish('disconnect', () => undefined);
  }

  abort(error?: IwarpError): void {
    this.#gone(error);
    if (this.#peer !== undefined) this.#peer.#lost();
  }

  #lost(): void {
    this.#peerEnded = this.#peerGone = true;
    this.#gone(undefined);
  }

  #gone(error: IwarpError | undefined): void {
    if (this.state === 'closed') return;
    this.state = 'closed';
    this.#later(() => this.#handler.onClosed(error));
  }
}
