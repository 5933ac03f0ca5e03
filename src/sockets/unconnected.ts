/** The channel of a socket that has not been connected yet: it takes nothing, and ends at once. */
import { nextTick } from 'node:process';
import type { IwarpError } from '../base/errors.ts';
import type { ByteChannel, ChannelHandler, ChannelState } from './byte-channel.ts';

export class UnconnectedChannel implements ByteChannel {
  readonly #handler: ChannelHandler;
  state: ChannelState = 'opening';
  readonly drained = false;
  readonly readable = false;
  readonly localAddress = undefined;
  readonly remoteAddress = undefined;

  constructor(handler: ChannelHandler) {
    this.#handler = handler;
  }

  get refused(): boolean {
    return this.state === 'closed';
  }

  read(): null {
    return null;
  }

  readInto(): number {
    return 0;
  }

  write(): number {
    return 0;
  }

  finish(_how: 'shutdown' | 'disconnect', done: () => void): void {
    done();
  }

  probe(): boolean {
    return true;
  }

  keepAlive(): void {
    // There is no peer.
  }

  setRef(): void {
    // Nothing here keeps the process alive.
  }

  close(): void {
    this.abort();
  }

  abort(error?: IwarpError): void {
    if (this.state === 'closed') return;
    this.state = 'closed';
    nextTick(() => this.#handler.onClosed(error));
  }
}
