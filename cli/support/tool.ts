/**
 * The surroundings of every tool that runs opposite a stock one: output, a device, connections that are
 * watched, and one way to fail. Stock tools wait for a silent peer for ever; here a peer that says nothing
 * for a while is given up, with a message.
 */
import { defaultEngine, openHookedWorker, openRnic, retire, type Rnic } from '../../src/api/environment.ts';
import { IwarpError } from '../../src/base/errors.ts';
import type { CmListener, PassiveConnection } from '../../src/cm/index.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { readMemory } from '../../src/crc32c/memory.ts';
import type { ConnectionPolicy } from '../../src/mpa/policy.ts';
import { arrivals } from '../../src/transport/arrival.ts';
import { wrapTransport } from '../../src/transport/middleware.ts';
import { openDayCapture, pcapLayer, type CaptureFile } from '../../src/transport/pcap-tap.ts';
import type { Transport } from '../../src/transport/port.ts';
import { BusyPoll, resolveBusyPoll } from '../../src/transport/busy-poll.ts';
import { capturedDatagrams } from '../../src/transport/captured-datagrams.ts';
import { systemHost } from '../../src/transport/host.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import { UdpNetwork } from '../../src/transport/udp.ts';
import { TrpTransport } from '../../src/trp/transport.ts';
import { patience, textOption, wireOption, type ParsedOptions } from './options.ts';
import { policyFromFlags } from './policy-flags.ts';
import { printableLines } from './printable.ts';
import { Session, type SessionOptions } from './session.ts';
import { reasonOf, withFile } from './system-errors.ts';

/** Where a tool's words go, and how its surroundings take part. */
export interface ToolIo {
  out(text: string): void;
  err(text: string): void;
  /** Called with the port as soon as the tool listens. */
  listening?(port: number): void;
  /** Ends the tool's connections, as if its process had been killed. */
  readonly signal?: AbortSignal;
  /** Whether events of the decoder are coloured. */
  readonly colour?: boolean;
}

export const PROCESS_IO: ToolIo = {
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
};

const WATCH_MS = 250;
/** An initiator sends its RTR message at once: after this time it is not waited for. */
const RTR_WAIT_MS = 2_000;

/** Where to listen, or to connect to. */
interface Where {
  readonly host?: string | undefined;
  readonly port: number;
  /** Our own address. */
  readonly source?: string | undefined;
}

/** The same as an option of whatever connects or listens. */
type Target =
  | { readonly path: string }
  | { readonly host?: string; readonly port: number; readonly localAddress?: string };

/**
 * Sessions whose octets count together; `giveUp` runs when none have crossed for the time that a peer is
 * given.
 */
interface Watched {
  readonly sessions: Set<Session>;
  octets: number;
  quietSince: number;
  readonly giveUp: (error: IwarpError) => void;
}

/** A call that waits for the next request. */
interface WaitingCall {
  readonly resolve: (request: PassiveConnection) => void;
  readonly reject: (error: Error) => void;
}

/** Requests as they come, one at a time. */
export class RequestQueue {
  readonly #listener: CmListener;
  readonly #requests: PassiveConnection[];
  readonly #waiting: WaitingCall[];

  constructor(listener: CmListener, requests: PassiveConnection[], waiting: WaitingCall[]) {
    this.#listener = listener;
    this.#requests = requests;
    this.#waiting = waiting;
  }

  /** @internal */
  get waiting(): WaitingCall[] {
    return this.#waiting;
  }

  get port(): number {
    return this.#listener.address.port;
  }

  next(): Promise<PassiveConnection> {
    const request = this.#requests.shift();
    if (request !== undefined) return Promise.resolve(request);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  fail(error: Error): void {
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#listener.close(resolve));
  }
}

/** One run of a tool. */
export class Tool {
  readonly io: ToolIo;
  readonly rnic: Rnic;
  readonly policy: ConnectionPolicy;
  /** A Unix socket in place of any address. */
  readonly #path: string | undefined;
  readonly #capture: CaptureFile | null;
  readonly #sessions = new Set<Session>();
  readonly #listeners = new Set<RequestQueue>();
  readonly #timeout: number;
  readonly #arrived = new Set<() => void>();
  #watch: NodeJS.Timeout | null = null;
  #resting = false;
  readonly #together: Watched = {
    sessions: new Set(),
    octets: -1,
    quietSince: 0,
    giveUp: (error) => this.fail(error),
  };
  readonly #watched = new Set<Watched>([this.#together]);
  #failure: IwarpError | null = null;
  /** Rejects when the tool fails; for waits that no session ends. */
  readonly failed: Promise<never>;
  #rejectFailed!: (error: IwarpError) => void;
  readonly #onAbort = (): void => this.fail(new IwarpError('ERR_ABORTED', 'interrupted'));

  constructor(io: ToolIo, options: ParsedOptions, defaults: Partial<ConnectionPolicy> = {}) {
    this.io = io;
    this.failed = new Promise((_resolve, reject) => (this.#rejectFailed = reject));
    this.failed.catch(() => undefined);
    this.#timeout = patience(options);
    this.#path = textOption(options, 'unix');
    const policy = policyFromFlags(options.policy);
    // Settings of the command line win over those that the tool needs.
    this.policy =
      options.policy['relaxed'] === undefined
        ? { ...policy, ...defaults }
        : { ...policy, ...defaults, responder: policy.responder };
    const file = textOption(options, 'pcap');
    const wire = wireOption(options);
    const worker = defaultEngine() === 'worker';
    const capture =
      file === undefined
        ? null
        : withFile(file, () =>
            openDayCapture(file, (error) =>
              this.complain(`${file}: the capture ends here: ${reasonOf(error)}`),
            ),
          );
    // An engine in a worker opens the file itself.
    if (worker) capture?.close();
    this.#capture = worker ? null : capture;
    const arrived = (): void => this.#tellArrived();
    this.rnic = worker
      ? openHookedWorker({ wire, capture: file, arrived })
      : openRnic({ wire, transport: this.#transport(wire, arrived) });
    if (io.signal?.aborted) this.#onAbort();
    io.signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  #transport(wire: 'iwarp' | 'trp', arrived: () => void): Transport {
    if (wire === 'trp') {
      const udp = new UdpNetwork(new BusyPoll(resolveBusyPoll()));
      const network = this.#capture === null ? udp : capturedDatagrams(udp, this.#capture);
      return wrapTransport(new TrpTransport(network, realScheduler, systemHost), arrivals(arrived));
    }
    const tcp = new TcpTransport({ allocate: (octets) => readMemory(defaultCrc32cEngine(), octets) });
    return wrapTransport(
      tcp,
      ...(this.#capture === null ? [] : [pcapLayer(this.#capture)]),
      arrivals(arrived),
    );
  }

  /** Print a line. What a peer has put into it, an error's message too, is made harmless. */
  say(line: string): void {
    this.io.out(`${printableLines(line)}\n`);
  }

  /** The same on standard error. */
  complain(line: string): void {
    this.io.err(`${printableLines(line)}\n`);
  }

  /** Call `task` whenever octets have come, until the returned function is called. */
  onArrival(task: () => void): () => void {
    this.#arrived.add(task);
    return () => void this.#arrived.delete(task);
  }

  /**
   * A queue pair that is watched until its connection ends. Those of one test are watched together: while
   * octets cross one of them, the others may rest. `alone` is for a server of many clients, where a silent
   * one is given up and the tool goes on.
   */
  session(options: SessionOptions = {}, watch: 'together' | 'alone' = 'together'): Session {
    const session = new Session(this.rnic, options);
    this.#sessions.add(session);
    const watched =
      watch === 'together'
        ? this.#together
        : {
            sessions: new Set<Session>(),
            octets: -1,
            quietSince: performance.now(),
            giveUp: (error: IwarpError) => session.fail(error),
          };
    this.#watched.add(watched);
    watched.sessions.add(session);
    void session.closed.then(() => {
      this.#sessions.delete(session);
      watched.sessions.delete(session);
      if (watched !== this.#together) this.#watched.delete(watched);
    });
    this.#startWatch();
    return session;
  }

  /** No silence counts from now on until the returned function is called: both sides are to rest. */
  rest(): () => void {
    this.#resting = true;
    return () => {
      this.#resting = false;
      for (const watched of this.#watched) watched.quietSince = performance.now();
    };
  }

  /**
   * As responder, wait for the initiator's RTR message where one was agreed on (RFC 6581 9.2). A close that
   * overtakes it leaves the initiator's zero-length Read without an answer, which is an error there.
   */
  async rtrArrived(session: Session): Promise<void> {
    const { negotiated } = session.connection;
    const arrived = (): boolean => session.over || (session.qp.counters()?.fpdusIn ?? 1) > 0;
    if (negotiated?.role !== 'responder' || negotiated.rtr === null || arrived()) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        stop();
        resolve();
      };
      const timer = setTimeout(done, RTR_WAIT_MS);
      const stop = this.onArrival(() => {
        if (arrived()) done();
      });
      void session.closed.then(done);
    });
  }

  /** The place that the command line names. */
  target({ host, port, source }: Where): Target {
    if (this.#path !== undefined) return { path: this.#path };
    const local = source === undefined ? {} : { localAddress: source };
    return { port, ...(host === undefined ? {} : { host }), ...local };
  }

  /** Say where the tool listens if the system has picked the port. */
  listens(asked: number, port: number): void {
    if (asked === 0 && this.#path === undefined) this.complain(`listening on port ${port}`);
    this.io.listening?.(port);
  }

  /** Bind and listen. */
  async listen(where: Where): Promise<RequestQueue> {
    this.check();
    const requests: PassiveConnection[] = [];
    const waiting: WaitingCall[] = [];
    const listener = await this.rnic.cm.listen({ ...this.target(where), policy: this.policy }, (request) => {
      const first = waiting.shift();
      if (first === undefined) requests.push(request);
      else first.resolve(request);
    });
    const queue = new RequestQueue(listener, requests, waiting);
    this.#listeners.add(queue);
    this.listens(where.port, queue.port);
    if (this.#failure !== null) queue.fail(this.#failure);
    return queue;
  }

  /** Throws what the tool has failed with, if it has. */
  check(): void {
    if (this.#failure !== null) throw this.#failure;
  }

  /** End every connection and wait with this error. */
  fail(error: IwarpError): void {
    this.#failure ??= error;
    this.#rejectFailed(this.#failure);
    for (const listener of this.#listeners) listener.fail(error);
    for (const session of this.#sessions) session.fail(error);
  }

  /** Give everything back. */
  async close(): Promise<void> {
    if (this.#watch !== null) clearInterval(this.#watch);
    this.#watch = null;
    this.io.signal?.removeEventListener('abort', this.#onAbort);
    for (const session of this.#sessions)
      session.fail(new IwarpError('ERR_CONNECTION_CLOSED', 'the tool has ended'));
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
    this.#capture?.close();
    retire(this.rnic);
  }

  #tellArrived(): void {
    for (const task of this.#arrived) task();
  }

  #startWatch(): void {
    if (this.#watch !== null || this.#timeout === 0) return;
    this.#together.quietSince = performance.now();
    this.#watch = setInterval(() => this.#lookForProgress(), WATCH_MS);
    this.#watch.unref();
  }

  /** Octets in either direction are progress; so is a state in which no session is open. */
  #lookForProgress(): void {
    if (this.#resting) return;
    const now = performance.now();
    for (const watched of this.#watched) {
      let octets = 0;
      for (const session of watched.sessions) octets += session.octets;
      if (octets !== watched.octets || watched.sessions.size === 0) {
        watched.octets = octets;
        watched.quietSince = now;
      } else if (now - watched.quietSince >= this.#timeout) {
        watched.giveUp(new IwarpError('ERR_TIMEOUT', `nothing has crossed for ${this.#timeout / 1000} s`));
      }
    }
  }
}
