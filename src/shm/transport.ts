/**
 * Connections between the threads of a process as a transport: no octet of them leaves the process.
 *
 * A listener has a name: a path, which is no file here, or a port number, of which the host is only a label.
 * So a program that connects by host and port runs unchanged. Names are the whole process's: see `names.ts`.
 */
import { MessageChannel, threadId, type MessagePort } from 'node:worker_threads';
import { checkInteger, IwarpError } from '../base/errors.ts';
import type { BusyPoll } from '../transport/busy-poll.ts';
import { isIP } from '../transport/ip-address.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  PortListener,
  Transport,
} from '../transport/port.ts';
import { realScheduler } from '../transport/scheduler.ts';
import {
  claim,
  giveBack,
  helloFor,
  hold,
  isHello,
  isTaken,
  send,
  sendOver,
  take,
  type Hello,
  type HelloTaker,
} from './names.ts';
import { isRing, ringPair, sharingOf, ShmPort, type ShmSharing } from './port.ts';

/** Where the ports that are handed out begin, and how many there are: each thread has every 64th. */
const FIRST_PORT = 49_152;
const PORTS = 16_384;
const SHARES = 64;

/** What the side that listens says first: it has the connection. */
const ACCEPTED = 'accepted';

export class ShmTransport implements Transport {
  readonly #sharing: ShmSharing;
  #ports = 0;

  constructor(poll: BusyPoll) {
    this.#sharing = sharingOf(poll);
  }

  /** A name that is no port number. */
  get paths(): boolean {
    return true;
  }

  look(): void {
    this.#sharing.polled.look();
  }

  connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
    const { path, messagePort, host, localAddress = '', localPort = 0 } = target;
    const remote = path === undefined ? addressOf(host, checkInteger('port', target.port, 1, 65_535)) : null;
    const where = path ?? `${host}:${target.port}`;
    let state: 'pending' | 'settled' = 'pending';
    const { port1: channel, port2 } = new MessageChannel();
    const settle = (port: Port | undefined, error?: Error): void => {
      if (state === 'settled') return;
      state = 'settled';
      if (port === undefined) channel.close();
      done(port, error);
    };
    const fail = (code: string): void => settle(undefined, connectError('connect', where, code));
    if (remote === undefined) {
      realScheduler.defer(() => fail('ENOTFOUND'));
    } else {
      const local =
        remote === null ? unnamed() : localEnd(remote, localAddress, localPort || this.#freePort());
      const [incoming, outgoing] = ringPair();
      const ends = { incoming, outgoing, channel, local, remote: remote ?? nameOf(path!) };
      this.#await(channel, () => settle(new ShmPort(ends, this.#sharing)), fail);
      const { address, port } = local;
      const name = remote === null ? path! : portName(remote.port);
      const rings = { incoming: outgoing, outgoing: incoming };
      const hello = helloFor({ name, host: remote?.address ?? '', address, port, ...rings, channel: port2 });
      if (messagePort === undefined) send(hello, fail);
      else sendOver(messagePort, hello);
    }
    return () => {
      if (state === 'settled') return;
      state = 'settled';
      channel.close();
    };
  }

  /** The other thread has the connection, or has turned it away. */
  #await(channel: MessagePort, accepted: () => void, fail: (code: string) => void): void {
    const closed = (): void => fail('ECONNREFUSED');
    channel.once('close', closed);
    channel.once('message', (word: unknown) => {
      channel.off('close', closed);
      if (word === ACCEPTED) accepted();
      else fail('ECONNREFUSED');
    });
  }

  listen(target: ListenTarget, accept: (port: Port) => void, ready: ListenReady): void {
    const { path, messagePort, host = '::', reusePort } = target;
    if (messagePort !== undefined) {
      const listener = new ThreadListener(messagePort, (hello) =>
        this.#accept(hello, listener.address, accept),
      );
      realScheduler.defer(() => ready(listener));
      return;
    }
    const asked = checkInteger('port', target.port ?? 0, 0, 65_535);
    const refuse = (error: IwarpError): void => realScheduler.defer(() => ready(undefined, error));
    if (reusePort === true)
      return refuse(new IwarpError('ERR_NOT_SUPPORTED', 'reusePort: threads do not share a name'));
    const where = path ?? `${host}:${asked}`;
    const address = path === undefined ? addressOf(host, asked || this.#freePort()) : nameOf(path);
    if (address === undefined) return refuse(connectError('listen', where, 'ENOTFOUND'));
    const name = path ?? portName(address.port);
    if (isTaken(name)) return refuse(connectError('listen', where, 'EADDRINUSE'));
    const listener = new ShmListener(name, address);
    take(name, (hello) => this.#accept(hello, address, accept));
    const heard = (free: boolean): void => {
      if (free) {
        ready(listener);
        return;
      }
      listener.close();
      ready(undefined, connectError('listen', where, 'EADDRINUSE'));
    };
    // A port that was picked here is no other thread's.
    if (path === undefined && asked === 0) realScheduler.defer(() => heard(true));
    else claim(name, heard);
  }

  #accept(hello: Hello, bound: PortAddress, accept: (port: Port) => void): void {
    const { incoming, outgoing, channel, host, address, port } = hello;
    const local = host === '' ? bound : addressOf(host, bound.port);
    const remote = address === '' ? unnamed() : addressOf(address, port & 0xffff);
    if (!isRing(incoming) || !isRing(outgoing) || local === undefined || remote === undefined) {
      channel.close();
      return;
    }
    const ends = { incoming, outgoing, channel, local, remote };
    const taken = new ShmPort(ends, this.#sharing);
    channel.postMessage(ACCEPTED);
    accept(taken);
  }

  #freePort(): number {
    for (;;) {
      const share = (this.#ports++ * SHARES) % PORTS;
      const port = FIRST_PORT + share + (threadId % SHARES);
      if (!isTaken(portName(port))) return port;
    }
  }
}

function portName(port: number): string {
  return `port ${port}`;
}

function nameOf(path: string): PortAddress {
  return { address: path, port: 0, family: 'Unix' };
}

function unnamed(): PortAddress {
  return nameOf('');
}

function addressOf(host: string, port: number): PortAddress | undefined {
  const address = host === 'localhost' ? '127.0.0.1' : host;
  const version = isIP(address);
  return version === 0 ? undefined : { address, port, family: version === 6 ? 'IPv6' : 'IPv4' };
}

/** Our end of a connection to `remote`. */
function localEnd(remote: PortAddress, address: string, port: number): PortAddress {
  return { ...remote, address: address === '' ? remote.address : address, port };
}

/** As TCP's, with the system's code. */
function connectError(syscall: 'connect' | 'listen', where: string, code: string): IwarpError {
  const cause = Object.assign(new Error(`${syscall} ${code} ${where}`), { code, syscall, address: where });
  const what = syscall === 'connect' ? `cannot connect to ${where}` : `cannot listen on ${where}`;
  return new IwarpError('ERR_CONNECT', `${what} (${code})`, { cause });
}

class ShmListener implements PortListener {
  readonly address: PortAddress;
  readonly #name: string;
  #state: 'held' | 'free' | 'closed' = 'held';

  constructor(name: string, address: PortAddress) {
    this.address = address;
    this.#name = name;
    hold(true);
  }

  close(done?: () => void): void {
    this.setRef(false);
    if (this.#state !== 'closed') giveBack(this.#name);
    this.#state = 'closed';
    if (done !== undefined) realScheduler.defer(done);
  }

  setRef(on: boolean): void {
    if (this.#state === 'closed' || on === (this.#state === 'held')) return;
    this.#state = on ? 'held' : 'free';
    hold(on);
  }
}

/** Takes the connections that come over a MessagePort of the program. */
class ThreadListener implements PortListener {
  readonly address: PortAddress = nameOf('MessagePort');
  readonly #port: MessagePort;
  readonly #heard: (message: unknown) => void;

  constructor(port: MessagePort, taker: HelloTaker) {
    this.#port = port;
    this.#heard = (message) => {
      if (isHello(message)) taker(message);
    };
    port.on('message', this.#heard);
  }

  close(done?: () => void): void {
    this.#port.off('message', this.#heard);
    if (done !== undefined) realScheduler.defer(done);
  }

  setRef(on: boolean): void {
    if (on) this.#port.ref();
    else this.#port.unref();
  }
}
