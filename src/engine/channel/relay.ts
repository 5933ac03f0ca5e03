/**
 * A byte stream of the program's thread as a port in an engine's thread, which Node's sockets cannot pass to.
 * The program's thread hands bytes on in both directions and does nothing else with them; all of the protocol
 * is the engine's. Each piece is copied once, into a message that moves to the other thread.
 */
import { nextTick } from 'node:process';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { IwarpError } from '../../base/errors.ts';
import type { Port, PortAddress, PortHandler, WriteDone } from '../../transport/port.ts';
import type { TlsInfo } from '../../transport/tls-options.ts';
import { packError, unpackError, type ErrorState, type RelayState } from './messages.ts';

/** Bytes that the engine may leave unread before the stream is paused; it goes on at half of them. */
const MOST_UNREAD = 1 << 20;

type ToEngine =
  | Uint8Array
  | { readonly type: 'end' }
  | { readonly type: 'closed'; readonly error: ErrorState | undefined }
  | { readonly type: 'written'; readonly ok: boolean };
type FromEngine =
  | Uint8Array
  | { readonly type: 'end' | 'reset' }
  | { readonly type: 'taken'; readonly octets: number }
  | { readonly type: 'keep-alive'; readonly on: boolean; readonly delay: number };

/** Begin to relay; the end that is returned is for the engine. */
export function relay(port: Port): RelayState {
  const { port1, port2 } = new MessageChannel();
  const { localAddress: local, remoteAddress: remote, mtu, tls } = port;
  port.attach(new Relay(port, port1));
  return { local, remote, mtu, tls, channel: port2 };
}

/** The program's end. */
class Relay implements PortHandler {
  readonly #port: Port;
  readonly #channel: MessagePort;
  #unread = 0;
  #state: 'flowing' | 'paused' | 'closed' = 'flowing';

  constructor(port: Port, channel: MessagePort) {
    this.#port = port;
    this.#channel = channel;
    channel.on('message', (message: FromEngine) => this.#obey(message));
    channel.on('close', () => this.#abandoned());
    // The engine's link holds the process, as long as the program wants that.
    channel.unref();
    port.setRef?.(false);
  }

  onData(bytes: Uint8Array, start: number, end: number): void {
    const piece = new Uint8Array(bytes.subarray(start, end));
    this.#unread += piece.length;
    this.#tell(piece, [piece.buffer]);
    if (this.#unread <= MOST_UNREAD || this.#state !== 'flowing') return;
    this.#state = 'paused';
    this.#port.pause();
  }

  onEnd(): void {
    this.#tell({ type: 'end' });
  }

  onClose(error?: Error): void {
    this.#state = 'closed';
    this.#tell({ type: 'closed', error: error === undefined ? undefined : packError(error) });
  }

  #tell(message: ToEngine, transfer: ArrayBuffer[] = []): void {
    this.#channel.postMessage(message, transfer);
  }

  #obey(message: FromEngine): void {
    if (this.#state === 'closed') return;
    if (message instanceof Uint8Array) {
      this.#port.write([message], 1, (ok) => this.#tell({ type: 'written', ok }));
      return;
    }
    switch (message.type) {
      case 'end':
      case 'reset':
        this.#port[message.type]();
        break;
      case 'keep-alive':
        this.#port.setKeepAlive?.(message.on, message.delay);
        break;
      case 'taken':
        this.#unread -= message.octets;
        if (this.#state !== 'paused' || this.#unread > MOST_UNREAD / 2) break;
        this.#state = 'flowing';
        this.#port.resume();
        break;
      default:
    }
  }

  /** The engine's thread has closed its end, or is gone. */
  #abandoned(): void {
    if (this.#state !== 'closed') this.#port.reset();
  }
}

/** The engine's end, as a port. */
export class RelayedPort implements Port {
  readonly localAddress: PortAddress;
  readonly remoteAddress: PortAddress;
  readonly mtu: number | undefined;
  readonly tls: TlsInfo | undefined;
  /** Each write is copied into a message all the same. */
  readonly copies = true;
  readonly #channel: MessagePort;
  readonly #dones: WriteDone[] = [];
  /** Arrivals while delivery is paused. */
  readonly #held: ToEngine[] = [];
  #handler: PortHandler | null = null;
  #paused = false;
  #state: 'open' | 'ended' | 'resetting' | 'closed' = 'open';

  constructor({ local, remote, mtu, tls, channel }: RelayState) {
    this.localAddress = local;
    this.remoteAddress = remote;
    this.mtu = mtu;
    this.tls = tls;
    this.#channel = channel;
  }

  attach(handler: PortHandler): void {
    if (this.#handler !== null) throw new IwarpError('ERR_INVALID_STATE', 'the port has a handler already');
    this.#handler = handler;
    this.#channel.on('message', (message: ToEngine) => this.#arrived(message));
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#state === 'ended') throw new IwarpError('ERR_INVALID_STATE', 'write after end');
    if (this.#state === 'closed') {
      nextTick(done, false);
      return false;
    }
    let octets = 0;
    for (let i = 0; i < count; i++) octets += chunks[i]!.length;
    const piece = new Uint8Array(octets);
    let at = 0;
    for (let i = 0; i < count; i++) {
      piece.set(chunks[i]!, at);
      at += chunks[i]!.length;
    }
    this.#dones.push(done);
    this.#tell(piece, [piece.buffer]);
    return true;
  }

  end(): void {
    if (this.#state !== 'open') return;
    this.#state = 'ended';
    this.#tell({ type: 'end' });
  }

  reset(): void {
    if (this.#state === 'resetting' || this.#state === 'closed') return;
    this.#state = 'resetting';
    this.#tell({ type: 'reset' });
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    nextTick(() => this.#deliverHeld());
  }

  setKeepAlive(on: boolean, delay: number): boolean {
    this.#tell({ type: 'keep-alive', on, delay });
    return true;
  }

  #tell(message: FromEngine, transfer: ArrayBuffer[] = []): void {
    this.#channel.postMessage(message, transfer);
  }

  #arrived(message: ToEngine): void {
    if (!(message instanceof Uint8Array) && message.type === 'written') {
      if (this.#state !== 'closed') this.#dones.shift()?.(message.ok);
      return;
    }
    // A reset overtakes bytes that wait; an orderly close does not.
    const lost = !(message instanceof Uint8Array) && message.type === 'closed' && message.error !== undefined;
    if (!lost && (this.#paused || this.#held.length > 0)) this.#held.push(message);
    else this.#deliver(message);
  }

  #deliverHeld(): void {
    while (this.#held.length > 0 && !this.#paused) this.#deliver(this.#held.shift()!);
  }

  #deliver(message: ToEngine): void {
    const handler = this.#handler!;
    if (message instanceof Uint8Array) {
      if (this.#state === 'open' || this.#state === 'ended') handler.onData(message, 0, message.length);
      this.#tell({ type: 'taken', octets: message.length });
      return;
    }
    if (message.type === 'end') {
      if (this.#state === 'open' || this.#state === 'ended') handler.onEnd();
      return;
    }
    if (message.type !== 'closed' || this.#state === 'closed') return;
    this.#state = 'closed';
    this.#held.length = 0;
    for (const done of this.#dones.splice(0)) done(false);
    handler.onClose(message.error === undefined ? undefined : unpackError(message.error));
    this.#channel.close();
  }
}
