/** UDP through `node:dgram`. */
import { nextTick } from 'node:process';
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { setImmediate } from 'node:timers';
import type { BusyPoll } from './busy-poll.ts';
import { IwarpError } from '../base/errors.ts';
import type {
  DatagramBinding,
  DatagramDone,
  DatagramHandler,
  DatagramNetwork,
  DatagramPort,
  DatagramTarget,
} from './datagram.ts';
import { isIP } from './ip-address.ts';
import type { PortAddress } from './port.ts';
import { codeOf } from './tcp-port.ts';

/** {@link DatagramNetwork} over the operating system's UDP. */
export class UdpNetwork implements DatagramNetwork {
  readonly #poll: BusyPoll | null;

  /** With a `poll`, which keeps the event loop awake for the next datagram. */
  constructor(poll: BusyPoll | null = null) {
    this.#poll = poll;
  }

  bind(
    binding: DatagramBinding,
    handler: DatagramHandler,
    ready: (port: DatagramPort | undefined, error?: Error) => void,
  ): void {
    const { host = '::', port = 0, ipv6Only = false, receiveBuffer = 0 } = binding;
    const version = isIP(host);
    if (version === 0) {
      const why = new IwarpError('ERR_CONNECT', `cannot bind to ${host}: it is no IP address`);
      nextTick(ready, undefined, why);
      return;
    }
    const socket = createSocket({
      type: version === 6 ? 'udp6' : 'udp4',
      ipv6Only: version === 6 && ipv6Only, // refused for IPv4
      // Addresses only: Node would look even them up, and answer a tick later.
      lookup: (address, _options, found) => found(null, address, isIP(address)),
    });
    const failed = (cause: Error): void => {
      socket.close();
      ready(
        undefined,
        new IwarpError('ERR_CONNECT', `cannot bind to ${host}:${port} (${codeOf(cause)})`, { cause }),
      );
    };
    socket.once('error', failed);
    socket.bind({ address: host, port, exclusive: true }, () => {
      socket.off('error', failed);
      enlarge(socket, receiveBuffer);
      ready(new UdpPort(socket, handler, this.#poll));
    });
  }
}

/** A system that refuses, as some do beyond their limit, leaves what there is: more datagrams are lost. */
function enlarge(socket: Socket, octets: number): void {
  try {
    if (socket.getRecvBufferSize() < octets) socket.setRecvBufferSize(octets);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SOCKET_BUFFER_SIZE') throw error;
  }
}

/** Longer ones are handed on at once: to read others first takes them out of the processor's cache. */
const MOST_GATHERED = 2048;
/** One of this number of datagrams finds out how many come in its turn of the event loop. */
const SAMPLE = 16;
/** This number in one turn is a burst, which ends after more than `MOST_LONELY` turns with one each. */
const BURST = 3;
const MOST_LONELY = 4;

/**
 * Datagrams of one turn of the event loop. Node runs the program's ticks after each, so that a program is
 * notified of every single one. In a burst they are handed on together at the end of the turn: then what
 * follows of them, such as completions that are reported and answers that are sent, is done once. Where one
 * comes in a turn, as in a conversation, it is handed on at once.
 */
class Gathered {
  readonly #deliver: (bytes: Uint8Array, from: PortAddress) => void;
  #mode: 'one' | 'burst' = 'one';
  #waiting: { readonly bytes: Uint8Array; readonly from: PortAddress }[] = [];
  /** Datagrams until the next sample, and those of the turn that is looked at. */
  #untilSample = SAMPLE;
  #inTurn = 0;
  #lonely = 0;

  constructor(deliver: (bytes: Uint8Array, from: PortAddress) => void) {
    this.#deliver = deliver;
  }

  /** The memory is this datagram's own. */
  take(bytes: Uint8Array, from: PortAddress): void {
    if (this.#mode === 'one' || bytes.length > MOST_GATHERED) {
      this.#handOn();
      this.#inTurn++;
      if (--this.#untilSample === 0) {
        this.#inTurn = 0;
        setImmediate(endSample, this);
      }
      this.#deliver(bytes, from);
      return;
    }
    if (this.#waiting.push({ bytes, from }) === 1) setImmediate(endTurn, this);
  }

  /**
   * One leaves: the next one of the same turn can be its answer, for libuv reads on as long as something
   * comes. That is no burst.
   */
  sent(): void {
    this.#inTurn = 0;
  }

  endSample(): void {
    this.#untilSample = SAMPLE;
    if (this.#inTurn < BURST) return;
    this.#mode = 'burst';
    this.#lonely = 0;
  }

  endTurn(): void {
    this.#lonely = this.#waiting.length > 1 ? 0 : this.#lonely + 1;
    if (this.#lonely > MOST_LONELY) this.#mode = 'one';
    this.#handOn();
  }

  #handOn(): void {
    if (this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { bytes, from } of waiting) this.#deliver(bytes, from);
  }
}

function endSample(gathered: Gathered): void {
  gathered.endSample();
}

function endTurn(gathered: Gathered): void {
  gathered.endTurn();
}

class UdpPort implements DatagramPort {
  readonly address: PortAddress;
  readonly #socket: Socket;
  readonly #gathered: Gathered;
  /** Where the last datagram came from, in whose place the next one gets the same object. */
  #sender: PortAddress | null = null;
  #state: 'open' | 'closed' = 'open';
  /** Whether all datagrams go to one peer. */
  #peer: 'any' | 'one' = 'any';

  constructor(socket: Socket, handler: DatagramHandler, poll: BusyPoll | null) {
    const { address, port, family } = socket.address();
    this.address = { address, port, family: family === 'IPv6' ? 'IPv6' : 'IPv4' };
    this.#socket = socket;
    const gathered = new Gathered((bytes, from) => {
      if (this.#state === 'open') handler.onDatagram(bytes, 0, bytes.length, from);
    });
    this.#gathered = gathered;
    socket.on('message', (bytes: Uint8Array, from: RemoteInfo) => {
      poll?.arrived(bytes.length);
      if (this.#state === 'open') gathered.take(bytes, this.#senderOf(from));
    });
    socket.on('error', (error) => {
      if (this.#state === 'closed') return;
      // The peer's system says that nothing is bound there: anyone can say so, and the peer may come back.
      if ((error as NodeJS.ErrnoException).code === 'ECONNREFUSED') return;
      this.close();
      handler.onClose(error);
    });
  }

  #senderOf({ address, port, family }: RemoteInfo): PortAddress {
    const last = this.#sender;
    if (last !== null && last.port === port && last.address === address) return last;
    return (this.#sender = Object.freeze({ address, port, family }));
  }

  send(chunks: readonly Uint8Array[], count: number, to: DatagramTarget, done: DatagramDone): void {
    const told: DatagramDone = (error) => {
      if (this.#state === 'open') done(error);
    };
    // Node keeps the list.
    if (this.#peer === 'one') this.#socket.send(chunks.slice(0, count), told);
    else this.#socket.send(chunks.slice(0, count), to.port, to.address, told);
  }

  sendNow(bytes: Uint8Array, to: DatagramTarget): boolean {
    const socket = this.#socket;
    this.#gathered.sent();
    if (this.#peer === 'one') socket.send(bytes);
    else socket.send(bytes, to.port, to.address);
    return socket.getSendQueueCount() === 0;
  }

  connect({ address, port }: DatagramTarget): void {
    const socket = this.#socket;
    const connected = (): void => {
      this.#peer = 'one';
    };
    socket.connect(port, address);
    try {
      socket.remoteAddress(); // an address needs no look-up, so it is connected at once
      connected();
    } catch {
      socket.once('connect', connected);
    }
  }

  close(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#socket.close();
  }

  setRef(on: boolean): void {
    if (on) this.#socket.ref();
    else this.#socket.unref();
  }
}
