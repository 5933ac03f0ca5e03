/**
 * What every tool that sits opposite a stock one has around it: output, a device, connections that are watched, and one way to fail.
 * Stock tools wait for a silent peer for ever; here a peer that says nothing for a while is given up, and told.
 */
import { defaultEngine, openHookedWorker, openRnic, retire, type Rnic } from '../../api/environment.ts';
import { IwarpError } from '../../base/errors.ts';
import type { CmListener, PassiveConnection } from '../../cm/manager.ts';
import { defaultCrc32cEngine } from '../../crc32c/engine.ts';
import { readMemory } from '../../crc32c/memory.ts';
import type { ConnectionPolicy } from '../../mpa/policy.ts';
import { arrivals } from '../../transport/arrival.ts';
import { wrapTransport } from '../../transport/middleware.ts';
import { openDayCapture, pcapLayer, type CaptureFile } from '../../transport/pcap-tap.ts';
import type { Transport } from '../../transport/port.ts';
import { TcpTransport } from '../../transport/tcp.ts';
import { patience, textOption, type ParsedOptions } from './options.ts';
import { policyFromFlags } from './policy-flags.ts';
import { Session, type SessionOptions } from './session.ts';
import { reasonOf, withFile } from './system-errors.ts';

/** Where a tool's words go, and how its surroundings take part. */
export interface ToolIo {
  out(text: string): void;
  err(text: string): void;
  /** Told the port as soon as the tool listens. */
  listening?(port: number): void;
  /** Ends the tool's connections, as if its process had been killed. */
  readonly signal?: AbortSignal;
}

export const PROCESS_IO: ToolIo = {
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
};

const WATCH_MS = 250;
/** An initiator sends its RTR message at once; who has not by then never will. */
const RTR_WAIT_MS = 2_000;

/** Where to listen. */
interface ListenWhere {
  readonly host?: string | undefined;
  readonly port: number;
}

/** Sessions whose octets count together, and what is done when none have crossed for the time that a peer is given. */
interface Watched {
  readonly sessions: Set<Session>;
  octets: number;
  quietSince: number;
  readonly giveUp: (error: IwarpError) => void;
}

/** Requests as they come, one at a time. */
export class RequestQueue {
  readonly #listener: CmListener;
  readonly #requests: PassiveConnection[];
  readonly #waiting: { resolve: (request: PassiveConnection) => void; reject: (error: Error) => void }[];

  constructor(listener: CmListener, requests: PassiveConnection[], waiting: RequestQueue['waiting']) {
    this.#listener = listener;
    this.#requests = requests;
    this.#waiting = waiting;
  }

  /** @internal */
  get waiting(): { resolve: (request: PassiveConnection) => void; reject: (error: Error) => void }[] {
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
  readonly #capture: CaptureFile | null;
  readonly #sessions = new Set<Session>();
  readonly #listeners = new Set<RequestQueue>();
  readonly #timeout: number;
  readonly #arrived = new Set<() => void>();
  #watch: NodeJS.Timeout | null = null;
  readonly #together: Watched = { sessions: new Set(), octets: -1, quietSince: 0, giveUp: (error) => this.fail(error) };
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
    const policy = policyFromFlags(options.policy);
    // What the command line says wins over what the tool needs.
    this.policy = options.policy['relaxed'] === undefined ? { ...policy, ...defaults } : { ...policy, ...defaults, responder: policy.responder };
    const file = textOption(options, 'pcap');
    const worker = defaultEngine() === 'worker';
    const capture = file === undefined ? null : withFile(file, () => openDayCapture(file, (error) => this.complain(`${file}: the capture ends here: ${reasonOf(error)}`)));
    // An engine in a worker opens the file itself.
    if (worker) capture?.close();
    this.#capture = worker ? null : capture;
    const arrived = (): void => this.#tellArrived();
    this.rnic = worker ? openHookedWorker({ capture: file, arrived }) : openRnic({ transport: this.#transport(arrived) });
    if (io.signal?.aborted) this.#onAbort();
    io.signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  #transport(arrived: () => void): Transport {
    const tcp = new TcpTransport({ allocate: (octets) => readMemory(defaultCrc32cEngine(), octets) });
    return wrapTransport(tcp, ...(this.#capture === null ? [] : [pcapLayer(this.#capture)]), arrivals(arrived));
  }

  say(line: string): void {
    this.io.out(`${line}\n`);
  }

  complain(line: string): void {
    this.io.err(`${line}\n`);
  }

  /** Call `task` whenever octets have come, until the returned function is called. */
  onArrival(task: () => void): () => void {
    this.#arrived.add(task);
    return () => void this.#arrived.delete(task);
  }

  /**
   * A queue pair that is watched until its connection ends. Those of one test are watched together: while octets cross one of them, the
   * others may rest. `alone` is for a server of many clients, where a silent one is given up and the tool goes on.
   */
  session(options: SessionOptions = {}, watch: 'together' | 'alone' = 'together'): Session {
    const session = new Session(this.rnic, options);
    this.#sessions.add(session);
    const watched = watch === 'together' ? this.#together : { sessions: new Set<Session>(), octets: -1, quietSince: performance.now(), giveUp: (error: IwarpError) => session.fail(error) };
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

  /**
   * As responder, wait for the initiator's RTR message where one was agreed on (RFC 6581 9.2). A close that overtakes it leaves the
   * initiator's zero-length Read without an answer, which is an error there.
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

  /** Bind and listen. */
  async listen(where: ListenWhere): Promise<RequestQueue> {
    this.check();
    const requests: PassiveConnection[] = [];
    const waiting: RequestQueue['waiting'] = [];
    const listener = await this.rnic.cm.listen(
      { port: where.port, policy: this.policy, ...(where.host === undefined ? {} : { host: where.host }) },
      (request) => {
        const first = waiting.shift();
        if (first === undefined) requests.push(request);
        else first.resolve(request);
      },
    );
    const queue = new RequestQueue(listener, requests, waiting);
    this.#listeners.add(queue);
    if (where.port === 0) this.complain(`listening on port ${queue.port}`);
    this.io.listening?.(queue.port);
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
    for (const session of this.#sessions) session.fail(new IwarpError('ERR_CONNECTION_CLOSED', 'the tool has ended'));
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

  /** Octets in either direction are progress; so is there being nobody to wait for. */
  #lookForProgress(): void {
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
