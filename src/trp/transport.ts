/**
 * Connections over a datagram network, as ports for the engine: each has its own socket. The server
 * answers from a new one (port migration, as in TFTP), so the client learns the peer's port from the source
 * of the accept, and from then on takes datagrams of that address and port only (protocol-notes 4.1).
 *
 * A port carries whole datagrams: each chunk of a write is one, and each `onData` brings one.
 */
import type { Scheduler } from '../base/clock.ts';
import { copyOf } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import type {
  DatagramHost,
  DatagramNetwork,
  DatagramPort,
  DatagramRoute,
  DatagramTarget,
} from '../transport/datagram.ts';
import { isIP } from '../transport/ip-address.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  PortHandler,
  Transport,
  WriteDone,
} from '../transport/port.ts';
import { TrpListener, type ListenerSide, type ServedPort } from './listener.ts';
import { isAny, ListenSockets } from './listen-sockets.ts';
import { RECEIVE_BUFFER } from './profile.ts';
import { createTrpHeader, decodeTrpHeader, decodeTrpSetup, TRP_OPCODE, TRP_OPCODE_OFFSET } from './wire.ts';

const ANY = { IPv4: '0.0.0.0', IPv6: '::' } as const;
const noop = (): void => undefined;
/** A datagram that means nothing, for its place behind those that wait. */
const NOTHING = new Uint8Array(0);
const header = createTrpHeader();

/** {@link Transport} over datagrams, for streams that are reliable themselves. */
export class TrpTransport implements Transport {
  readonly #network: DatagramNetwork;
  readonly #time: Scheduler;
  readonly #host: DatagramHost | null;

  constructor(network: DatagramNetwork, time: Scheduler, host: DatagramHost | null = null) {
    this.#network = network;
    this.#time = time;
    this.#host = host;
  }

  connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
    let state: 'pending' | 'cancelled' | 'done' = 'pending';
    const finish = (port: Port | undefined, error?: Error): void => {
      if (state === 'pending') {
        state = 'done';
        done(port, error);
      } else {
        port?.reset();
      }
    };
    this.#resolve(target, (error, address) => {
      if (state === 'cancelled') return;
      if (error !== null) finish(undefined, error);
      else this.#open(target, { address, port: target.port }, finish);
    });
    return () => {
      if (state === 'pending') state = 'cancelled';
    };
  }

  #resolve(target: ConnectTarget, done: (error: Error | null, address: string) => void): void {
    const { host } = target;
    const family: 0 | 4 | 6 = target.family ?? 0;
    if (isIP(host) !== 0) this.#time.defer(() => done(null, host));
    else if (this.#host !== null)
      this.#host.resolve(host, family, (cause, address) => {
        const why = `cannot connect to ${host}: the name is not known`;
        done(cause === null ? null : new IwarpError('ERR_CONNECT', why, { cause }), address);
      });
    else this.#time.defer(() => done(new IwarpError('ERR_CONNECT', `${host} is no IP address`), ''));
  }

  #open(target: ConnectTarget, peer: DatagramTarget, done: (port?: Port, error?: Error) => void): void {
    const family = isIP(peer.address) === 6 ? 'IPv6' : 'IPv4';
    const { localAddress, localPort = 0 } = target;
    this.#route(peer, (route) => {
      const remote = { address: route?.peer ?? peer.address, port: peer.port, family } as const;
      const port = new TrpPort(this.#time, remote, 'client');
      const binding = { host: localAddress ?? ANY[family], port: localPort, receiveBuffer: RECEIVE_BUFFER };
      this.#network.bind(binding, port, (bound, error) => {
        if (bound === undefined) {
          done(undefined, error);
          return;
        }
        port.bound(bound, localAddress ?? route?.local ?? ANY[family], this.#mtu(route));
        done(port);
      });
    });
  }

  #route(peer: DatagramTarget, done: (route: DatagramRoute | null) => void): void {
    if (this.#host === null) done(null);
    else this.#host.route(peer, done);
  }

  #mtu(route: DatagramRoute | null): number | undefined {
    return route === null ? undefined : this.#host?.mtu(route.local);
  }

  listen(target: ListenTarget, accept: (port: Port) => void, ready: ListenReady): void {
    const { host = '::', port = 0, ipv6Only = false, reusePort = false } = target;
    if (reusePort) {
      const why = 'reusePort: a listener over UDP has its port for itself';
      this.#time.defer(() => ready(undefined, new IwarpError('ERR_NOT_SUPPORTED', why)));
      return;
    }
    if (isIP(host) === 0 && this.#host !== null) {
      this.#host.resolve(host, 0, (error, address) => {
        if (error === null) this.listen({ ...target, host: address }, accept, ready);
        else ready(undefined, new IwarpError('ERR_CONNECT', `cannot listen at ${host}`, { cause: error }));
      });
      return;
    }
    const listener = new TrpListener(this.#time, accept, (peer, side) => {
      const made = new TrpPort(this.#time, peer, 'server', side);
      // Known before the program accepts: the stream takes its sizes from it.
      made.mtu = this.#host?.mtu(side.localAddress.address);
      made.binder = () => this.#bindServer(made, peer, side.localAddress.address, ipv6Only);
      return made;
    });
    const where = { host, port, ipv6Only };
    const addresses = this.#host === null ? null : () => this.#host!.addresses();
    listener.open(new ListenSockets(this.#network, this.#time, where, addresses), ready);
  }

  /** The socket of a connection that is accepted: at the address that the client knows. */
  #bindServer(made: TrpPort, peer: PortAddress, host: string, ipv6Only: boolean): void {
    this.#route(peer, (route) =>
      this.#network.bind({ host, ipv6Only, receiveBuffer: RECEIVE_BUFFER }, made, (bound) => {
        if (bound === undefined) made.fail();
        else made.bound(bound, isAny(host) ? (route?.local ?? host) : host, this.#mtu(route));
      }),
    );
  }
}

/** Datagrams that wait for the socket, or for the handler: a peer cannot make more of them wait. */
const WAITING = 8;

/** One connection's port. */
class TrpPort implements Port, ServedPort {
  localAddress: PortAddress;
  remoteAddress: PortAddress;
  mtu: number | undefined;
  readonly #time: Scheduler;
  readonly #listener: ListenerSide | null;
  /** Server: binds the socket, once the program has accepted. */
  binder: () => void = noop;
  #role: 'client' | 'server';
  #socket: DatagramPort | null = null;
  #state: 'binding' | 'unbound' | 'open' | 'closed' = 'unbound';
  /** The client waits for an accept, from whatever port of the peer. */
  #peerPort: 'asked' | 'known' = 'known';
  /** PSN of the request, which its accept acknowledges. */
  #requestPsn = 0;
  #handler: PortHandler | null = null;
  #early: Uint8Array[] = [];
  #waiting: { readonly chunks: readonly Uint8Array[]; readonly done: WriteDone }[] = [];
  #lastFrom: PortAddress | null = null;
  #ref = true;

  constructor(
    time: Scheduler,
    peer: PortAddress,
    role: 'client' | 'server',
    listener: ListenerSide | null = null,
  ) {
    this.#time = time;
    this.remoteAddress = peer;
    this.#role = role;
    this.#listener = listener;
    this.localAddress = listener?.localAddress ?? {
      ...peer,
      address: peer.family === 'IPv6' ? ANY.IPv6 : ANY.IPv4,
      port: 0,
    };
    if (role === 'client') this.#peerPort = 'asked';
  }

  /** The socket is there. */
  bound(socket: DatagramPort, local: string, mtu: number | undefined): void {
    if (this.#state === 'closed') {
      socket.close();
      return;
    }
    this.#socket = socket;
    this.#state = 'open';
    this.mtu ??= mtu;
    socket.setRef(this.#ref);
    if (this.#role === 'client') this.localAddress = { ...socket.address, address: local };
    if (this.#role === 'server') socket.connect?.(this.remoteAddress);
    for (const { chunks, done } of this.#waiting.splice(0))
      if (this.#send(chunks, chunks.length, done)) this.#time.defer(() => done(true));
  }

  /** There is no socket to be had. */
  fail(): void {
    this.#end(new IwarpError('ERR_CONNECT', 'no socket for the connection can be bound'));
  }

  attach(handler: PortHandler): void {
    this.#handler = handler;
    if (this.#early.length > 0) this.#time.defer(() => this.#deliverEarly());
  }

  #deliverEarly(): void {
    for (const bytes of this.#early.splice(0))
      if (this.#state !== 'closed') this.#handler!.onData(bytes, 0, bytes.length);
  }

  /** A datagram of the peer; of one without a handler a few are kept. */
  deliver(bytes: Uint8Array, start: number, end: number): void {
    if (this.#state === 'closed') return;
    if (this.#handler !== null && this.#early.length === 0) this.#handler.onData(bytes, start, end);
    else if (
      this.#early.length < WAITING &&
      this.#early.push(copyOf(bytes, start, end)) === 1 &&
      this.#handler
    )
      this.#time.defer(() => this.#deliverEarly());
  }

  onDatagram(bytes: Uint8Array, start: number, end: number, from: PortAddress): void {
    if (from !== this.#lastFrom && !this.#isPeer(bytes, start, end, from)) return;
    this.deliver(bytes, start, end);
  }

  /** Only the peer's address counts, and only its port once that is known. */
  #isPeer(bytes: Uint8Array, start: number, end: number, from: PortAddress): boolean {
    const { address, port } = this.remoteAddress;
    if (from.address !== address) return false;
    if (this.#peerPort === 'asked') {
      if (!decodeTrpHeader(header, bytes, start, end)) return false;
      if (header.opcode === TRP_OPCODE.REJECT) return true;
      // Only an accept of this request takes the connection to its port.
      const setup = header.opcode === TRP_OPCODE.ACCEPT ? decodeTrpSetup(bytes, start, end) : null;
      if (setup === null || setup.ack !== this.#requestPsn) return false;
      this.#peerPort = 'known';
      this.remoteAddress = from;
      this.#socket!.connect?.(from);
    } else if (from.port !== port) {
      return false;
    }
    this.#lastFrom = from;
    return true;
  }

  onClose(error: Error): void {
    this.#end(error);
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#peerPort === 'asked' && decodeTrpHeader(header, chunks[0]!, 0, chunks[0]!.length))
      this.#requestPsn = header.psn;
    if (this.#state === 'closed') {
      this.#time.defer(() => done(false));
      return false;
    }
    if (this.#state === 'open') {
      return this.#send(chunks, count, done);
    }
    const first = chunks[0]!;
    if (first[TRP_OPCODE_OFFSET] === TRP_OPCODE.REJECT >> 8) {
      this.#listener!.reject(copyOf(first, 0, first.length));
      this.#time.defer(() => done(true));
      return false;
    }
    if (this.#state === 'unbound') {
      this.#state = 'binding';
      this.binder();
    }
    if (this.#waiting.length < WAITING) this.#waiting.push({ chunks: chunks.slice(0, count), done });
    else this.#time.defer(() => done(true)); // as if it were lost
    return false;
  }

  /** True if the system has copied all of it. */
  #send(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    const socket = this.#socket!;
    const to = this.remoteAddress;
    if (socket.sendNow !== undefined) return this.#sendNow(socket, chunks, count, done);
    // A datagram that the system refuses is as good as lost: it is sent again.
    for (let i = 0; i < count - 1; i++) socket.send([chunks[i]!], 1, to, noop);
    socket.send([chunks[count - 1]!], 1, to, () => done(true));
    return false;
  }

  #sendNow(socket: DatagramPort, chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    const to = this.remoteAddress;
    let i = 0;
    while (i < count && socket.sendNow!(chunks[i]!, to)) i++;
    if (i === count) return true;
    // The system's buffer is full: the rest has to wait for it.
    const last = count - 1;
    for (i++; i < last; i++) socket.send([chunks[i]!], 1, to, noop);
    if (i === last) socket.send([chunks[last]!], 1, to, () => done(true));
    else socket.send([NOTHING], 1, to, () => done(true));
    return false;
  }

  end(): void {
    this.#end(undefined);
  }

  reset(): void {
    this.#end(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side'));
  }

  #end(error: Error | undefined): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#socket?.close();
    this.#listener?.closed();
    this.#time.defer(() => {
      this.#early.length = 0;
      for (const { done } of this.#waiting.splice(0)) done(false);
      this.#handler?.onClose(error);
    });
  }

  pause(): void {
    // Datagrams that are not taken are lost; the stream never asks for it.
  }

  resume(): void {
    // See `pause`.
  }

  setRef(on: boolean): void {
    this.#ref = on;
    this.#socket?.setRef(on);
  }
}
