/**
 * A byte stream over a network of datagrams in memory, as TCP gives it: octets are handed on in order. What
 * repairs losses is the very window that the wire `trp` has, so that a comparison shows nothing but the
 * order. Both ends are made at once; there is no start and no end of a connection on the network.
 */
import type { Scheduler } from '../../src/base/clock.ts';
import { copyOf } from '../../src/base/copy.ts';
import type { DatagramNetwork, DatagramPort } from '../../src/transport/datagram.ts';
import type { Port, PortAddress, PortHandler, Transport, WriteDone } from '../../src/transport/port.ts';
import { Channel } from '../../src/trp/channel.ts';
import { ARRIVAL } from '../../src/trp/order.ts';
import { acquirePacket } from '../../src/trp/packet.ts';
import { PROFILES } from '../../src/trp/profile.ts';
import {
  createTrpHeader,
  decodeTrpHeader,
  TRP_HEADER_OCTETS,
  TRP_OPCODE,
  TRP_OPCODE_OFFSET,
} from '../../src/trp/wire.ts';

/** Octets of a segment: an MTU of 1500 less the headers, those of TRP included. */
const SEGMENT = 1448;
const header = createTrpHeader();

/** Totals over the segments of a direction. */
interface OrderCounters {
  segments: number;
  heldOctets: number;
  mostHeld: number;
  /** Milliseconds from the arrival of each segment until its octets are handed on. */
  delay: number;
}

interface Write {
  readonly bytes: Uint8Array;
  at: number;
  readonly done: WriteDone;
}

class StreamPort implements Port {
  readonly localAddress: PortAddress;
  remoteAddress: PortAddress;
  readonly mtu = 1500;
  readonly counters: OrderCounters = { segments: 0, heldOctets: 0, mostHeld: 0, delay: 0 };
  readonly #time: Scheduler;
  readonly #socket: DatagramPort;
  readonly #channel: Channel;
  readonly #kept = new Map<number, { readonly bytes: Uint8Array; readonly at: number }>();
  readonly #writes: Write[] = [];
  #handler: PortHandler | null = null;
  #turn = 0;
  #timerAt = Number.POSITIVE_INFINITY;

  constructor(time: Scheduler, socket: DatagramPort, remote: PortAddress, window: number) {
    this.#time = time;
    this.#socket = socket;
    this.localAddress = socket.address;
    this.remoteAddress = remote;
    this.#channel = new Channel(PROFILES.fixed, 0, 0, { window, octets: Infinity, narrow: Infinity });
  }

  attach(handler: PortHandler): void {
    this.#handler = handler;
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    this.#writes.push({ bytes: new Uint8Array(Buffer.concat(chunks.slice(0, count))), at: 0, done });
    this.#pump();
    return true;
  }

  /** Writes into the window, and the window onto the network. */
  #pump(): void {
    const { window } = this.#channel;
    while (window.room > 0 && this.#writes.length > 0) {
      const write = this.#writes[0]!;
      const octets = Math.min(SEGMENT, write.bytes.length - write.at);
      const packet = acquirePacket(TRP_HEADER_OCTETS + octets);
      packet.view.setUint32(0, window.wire(window.tail));
      packet.view.setUint16(TRP_OPCODE_OFFSET, TRP_OPCODE.DATA);
      packet.bytes.set(write.bytes.subarray(write.at, write.at + octets), TRP_HEADER_OCTETS);
      window.add(packet);
      write.at += octets;
      if (write.at < write.bytes.length) continue;
      this.#writes.shift();
      this.#time.defer(() => write.done(true));
    }
    const now = this.#time.now();
    for (let out = this.#channel.poll(now); out !== null; out = this.#channel.poll(now)) {
      const { chunks, count } = out;
      for (let i = 0; i < count; i++) this.#socket.send([chunks[i]!], 1, this.remoteAddress, () => undefined);
      // The network in memory has copied them.
      this.#channel.returned(out);
    }
    this.#arm();
  }

  #arm(): void {
    const at = this.#channel.timeout;
    if (at >= this.#timerAt) return;
    this.#timerAt = at;
    this.#time.at(at, () => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#channel.expire(this.#time.now(), 1e9);
      this.#pump();
    });
  }

  onDatagram(bytes: Uint8Array, start: number, end: number): void {
    if (!decodeTrpHeader(header, bytes, start, end)) return;
    const { opcode, psn, bodyLength } = header;
    const now = this.#time.now();
    const channel = this.#channel;
    if (opcode === TRP_OPCODE.SACK) channel.hearRange(header, now);
    else if (channel.hearAck(header, now) && bodyLength > 0)
      this.#handleSegment(psn, bytes, start + TRP_HEADER_OCTETS, end, now);
    this.#pump();
  }

  #handleSegment(psn: number, bytes: Uint8Array, at: number, end: number, now: number): void {
    const { order } = this.#channel;
    const sequence = order.sequence(psn);
    const arrival = order.judge(sequence);
    const holes = order.starts.length > 0;
    if (arrival === ARRIVAL.ABOVE) {
      order.insert(sequence);
      this.#kept.set(sequence, { bytes: copyOf(bytes, at, end), at: now });
      this.#hold(end - at);
    }
    if (arrival === ARRIVAL.NEXT) order.advance();
    this.#channel.took(arrival, holes, end - at, now);
    if (arrival !== ARRIVAL.NEXT) return;
    this.#deliver(bytes, at, end);
    for (let kept = this.#kept.get(this.#turn); kept !== undefined; kept = this.#kept.get(this.#turn)) {
      this.#kept.delete(this.#turn);
      this.#hold(-kept.bytes.length);
      this.counters.delay += now - kept.at;
      this.#deliver(kept.bytes, 0, kept.bytes.length);
    }
  }

  #hold(octets: number): void {
    const { counters } = this;
    counters.heldOctets += octets;
    counters.mostHeld = Math.max(counters.mostHeld, counters.heldOctets);
  }

  #deliver(bytes: Uint8Array, start: number, end: number): void {
    this.#turn++;
    this.counters.segments++;
    this.#handler!.onData(bytes, start, end);
  }

  end(): void {
    this.#socket.close();
  }

  reset(): void {
    this.#socket.close();
  }

  pause(): void {
    // Nothing here is ever asked to wait.
  }

  resume(): void {
    // See `pause`.
  }
}

/** One listener, and connections to it. */
export class StreamTransport implements Transport {
  readonly #time: Scheduler;
  readonly #network: DatagramNetwork;
  readonly #window: number;
  #accept: ((port: Port) => void) | null = null;
  /** The accepting ends, for their counters. */
  readonly accepted: StreamPort[] = [];

  constructor(time: Scheduler, network: DatagramNetwork, window: number) {
    this.#time = time;
    this.#network = network;
    this.#window = window;
  }

  listen(
    _target: unknown,
    accept: (port: Port) => void,
    ready: (listener: { address: PortAddress; close(): void }) => void,
  ): void {
    this.#accept = accept;
    const address: PortAddress = { address: '127.0.0.1', port: 7000, family: 'IPv4' };
    this.#time.defer(() => ready({ address, close: () => undefined }));
  }

  connect(_target: unknown, done: (port: Port) => void): () => void {
    const ends: StreamPort[] = [];
    const sockets: DatagramPort[] = [];
    for (const i of [0, 1]) {
      this.#network.bind(
        { host: '127.0.0.1' },
        {
          onDatagram: (bytes, start, end) => ends[i]!.onDatagram(bytes, start, end),
          onClose: () => undefined,
        },
        (socket) => {
          sockets[i] = socket!;
          if (i === 0) return;
          const [a, b] = sockets as [DatagramPort, DatagramPort];
          ends.push(new StreamPort(this.#time, a, b.address, this.#window));
          ends.push(new StreamPort(this.#time, b, a.address, this.#window));
          this.accepted.push(ends[1]!);
          this.#accept!(ends[1]!);
          done(ends[0]!);
        },
      );
    }
    return () => undefined;
  }
}
