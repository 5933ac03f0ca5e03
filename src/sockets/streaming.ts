/**
 * Sockets Direct with Hello and HelloAck in front of the MPA frames (`placement: 'streaming'`): the two ends
 * agree over the plain byte stream, and RDMA begins on the same connection behind that.
 */
import { networkOf, type Rnic } from '../api/environment.ts';
import { IwarpError, ownError } from '../base/errors.ts';
import type { CmListener, PassiveConnection } from '../cm/index.ts';
import { SetupPort, type Setup } from '../sdp/placement.ts';
import { MID, VERSION, decodeHello, decodeHelloAck, type Hello, type HelloAck } from '../sdp/wire.ts';
import { refusalOf } from '../transport/refusal.ts';
import type { ConnectTarget, ListenTarget, Port, PortAddress, PortListener } from '../transport/port.ts';

/** Connections whose first message has not come; the next one is reset. */
const MOST_SETUPS = 256;
const NOTHING = (): void => undefined;
const REFUSED = { onData: NOTHING, onEnd: NOTHING, onClose: NOTHING };

/** The part of a listener that a server of sockets uses. */
export interface SocketListener {
  readonly address: PortAddress;
  ref(): void;
  unref(): void;
  close(done?: () => void): void;
  take(port: Port): PassiveConnection | null;
}

/** The result of an agreement. */
interface Agreed {
  readonly port: Port;
  readonly ack: HelloAck;
}

/**
 * Connect, send `hello` and wait for the answer. `done` is called once, in a later turn, unless the function
 * that is returned has given up before.
 */
export function agree(
  rnic: Rnic,
  target: ConnectTarget,
  hello: Uint8Array,
  done: (result: Agreed | IwarpError) => void,
): () => void {
  let setup: SetupPort | null = null;
  const network = networkOf(rnic);
  const refusal = refusalOf(network, target);
  if (refusal !== null) {
    let state: 'pending' | 'cancelled' = 'pending';
    rnic.scheduler.defer(() => {
      if (state === 'pending') done(refusal);
    });
    return () => {
      state = 'cancelled';
    };
  }
  const cancel = network.connect(target, (port, error) => {
    if (port === undefined) {
      done(ownError(error, 'ERR_CONNECT', error?.message ?? 'the transport gives no reason'));
      return;
    }
    const made = new SetupPort(port, MID.HELLO_ACK, rnic.scheduler, (answer) => {
      const ack = ackIn(answer, target);
      if (ack instanceof IwarpError) done(ack);
      else done({ port: made, ack });
    });
    setup = made;
    made.send(hello);
  });
  return () => {
    if (setup === null) cancel();
    else setup.drop();
  };
}

function ackIn(answer: Setup, { tls, path }: ConnectTarget): HelloAck | IwarpError {
  const refused = (why: string): IwarpError =>
    new IwarpError('ERR_STARTUP', `the peer has not answered Hello in front of MPA: ${why}`);
  if (answer.type === 'fault') {
    const mayWantTls = answer.silent === true && tls === undefined && path === undefined;
    return refused(mayWantTls ? `${answer.why} (does the port want TLS?)` : answer.why);
  }
  if (answer.type === 'mpa') return refused('an MPA frame');
  const ack = decodeHelloAck(answer.bytes, VERSION >> 4);
  return typeof ack === 'string' ? refused(ack) : ack;
}

/** An answer to Hello, and what to do when it has left. */
export interface Greeting {
  readonly ack: Uint8Array;
  /** The MPA frames follow on the port. */
  begins(): void;
}

/** The arrivals at a listener. */
interface GreetingHandler {
  /** A Hello has come; null refuses the connection without a HelloAck. */
  greeted(hello: Hello, port: Port): Greeting | null;
  /** An MPA Request comes first: Hello has its place in the private data. */
  mpa(port: Port): void;
}

/** Listens for connections that begin with Hello, or with an MPA Request. */
export function listenForHello(
  rnic: Rnic,
  target: ListenTarget,
  home: CmListener,
  handler: GreetingHandler,
): Promise<SocketListener> {
  const setups = new Set<SetupPort>();
  const accept = (port: Port): void => {
    if (setups.size >= MOST_SETUPS) {
      port.attach(REFUSED);
      port.reset();
      return;
    }
    const setup: SetupPort = new SetupPort(port, MID.HELLO, rnic.scheduler, (first) => {
      setups.delete(setup);
      if (first.type === 'fault') return; // the port is reset
      if (first.type === 'mpa') {
        handler.mpa(setup);
        return;
      }
      const hello = decodeHello(first.bytes);
      const greeting = typeof hello === 'string' ? null : handler.greeted(hello, setup);
      if (greeting === null) {
        setup.drop();
        return;
      }
      setup.send(greeting.ack);
      greeting.begins();
    });
    setups.add(setup);
  };
  return new Promise((resolve, reject) => {
    const network = networkOf(rnic);
    const refusal = refusalOf(network, target);
    if (refusal !== null) {
      home.close();
      reject(refusal);
      return;
    }
    network.listen(target, accept, (bound, error) => {
      if (bound !== undefined) {
        resolve(new GreetingListener(bound, home, setups));
        return;
      }
      home.close();
      reject(error ?? new IwarpError('ERR_CONNECT', 'cannot listen, and the transport gives no reason'));
    });
  });
}

class GreetingListener implements SocketListener {
  readonly #bound: PortListener;
  readonly #home: CmListener;
  readonly #setups: Set<SetupPort>;

  constructor(bound: PortListener, home: CmListener, setups: Set<SetupPort>) {
    this.#bound = bound;
    this.#home = home;
    this.#setups = setups;
  }

  get address(): PortAddress {
    return this.#bound.address;
  }

  ref(): void {
    this.#bound.setRef?.(true);
  }

  unref(): void {
    this.#bound.setRef?.(false);
  }

  close(done?: () => void): void {
    for (const setup of this.#setups) setup.drop();
    this.#setups.clear();
    this.#home.close();
    this.#bound.close(done);
  }

  take(port: Port): PassiveConnection | null {
    return this.#home.take(port);
  }
}
