/**
 * A client that keeps connections to one server: it connects again when they end, spreads requests over them,
 * and repeats what the program says may be done twice.
 */
import { AbortController, performance } from '../base/host.ts';
import { clearInterval, setInterval } from 'node:timers';
import { abortError, MAX_TIME_LIMIT, signalOf, withTimeLimit } from '../base/abort.ts';
import { Alarm } from '../base/alarm.ts';
import {
  checkBoolean,
  checkFunction,
  checkInteger,
  checkOptions,
  endsConnection,
  IwarpError,
  type Names,
} from '../base/errors.ts';
import { Machine } from '../base/fsm.ts';
import { handled } from '../base/promised.ts';
import { Waiters } from '../base/waiters.ts';
import { CONNECT_NAMES, connect, type ConnectOptions } from '../api/connect.ts';
import type { Connection } from '../api/connection.ts';
import { defaultRnic } from '../api/environment.ts';
import type { OperationOptions } from '../api/operations.ts';
import { checkBackoff, waitAfter, type Backoff, type ReconnectOptions } from './backoff.ts';
import { MEMBER_TABLE, type MemberState } from './states.ts';

/** Options of {@link createClient}. */
export interface ClientOptions extends Omit<ConnectOptions, 'signal'> {
  /** As {@link ConnectOptions.connectTimeout}; here 10,000 by default. */
  readonly connectTimeout?: number | undefined;
  /** Connections that are kept, 1 to 1024. Default 1. */
  readonly connections?: number | undefined;
  /** The waits between attempts. */
  readonly reconnect?: ReconnectOptions | undefined;
  /**
   * Called with each new connection before it is used, for the first and after each loss: exchange tickets
   * and log in here. If it throws or rejects, the connection is dropped, and the next attempt follows.
   */
  readonly onConnect?: ((connection: Connection) => void | Promise<void>) | undefined;
  /** Let the process end while the client has nothing under way. Default false. */
  readonly unrefIdle?: boolean | undefined;
}

/** Options of {@link Client.request} and {@link Client.use}. */
export interface UseOptions extends OperationOptions {
  /**
   * The call may be done twice: when its connection is lost before the end, it is done again on the next one,
   * until it succeeds, fails for another reason, or its time is over. Default false. A request that the
   * server has not begun, because it was closing, is repeated in any case.
   */
  readonly repeat?: boolean | undefined;
}

/** A change that {@link Client.status} reports. */
export interface ClientStatus {
  /**
   * `connected`: a connection is ready, its `onConnect` included. `lost`: a connection has ended; `error` is
   * undefined if that was in order. `failed`: an attempt has failed, the next comes in `wait` ms. `closed`:
   * the client has ended; nothing follows.
   */
  readonly type: 'connected' | 'lost' | 'failed' | 'closed';
  /** Number of the connection, from 0. */
  readonly index: number;
  /** The error behind `lost`, `failed` or `closed`. */
  readonly error: Error | undefined;
  /** Milliseconds until the next attempt; undefined where there is none. */
  readonly wait: number | undefined;
  /** Attempts in a row that have failed. */
  readonly failures: number;
}

const OPTIONS: Names<ClientOptions> = {
  ...CONNECT_NAMES,
  connections: true,
  reconnect: true,
  onConnect: true,
  unrefIdle: true,
};
const USE: Names<UseOptions> = { signal: true, timeout: true, repeat: true };
const MAX_CONNECTIONS = 1024;
const CONNECT_TIMEOUT = 10_000;
const nothing = (): void => undefined;
/** Reports that are kept for a reader of `status` that does not come for them. */
const MAX_REPORTS = 256;

/** Errors that another attempt cannot cure: they lie in this program. */
const LASTING: ReadonlySet<string> = new Set([
  'ERR_INVALID_ARGUMENT',
  'ERR_OUT_OF_RANGE',
  'ERR_NOT_SUPPORTED',
  'ERR_TOO_LARGE',
  'ERR_INVALID_STATE',
  'ERR_WRONG_PD',
  'ERR_DESTROYED',
]);

/** One of the connections of a client. */
class Member {
  readonly life = new Machine(MEMBER_TABLE);
  readonly index: number;
  readonly alarm: Alarm;
  connection: Connection | null = null;
  failures = 0;
  /** Calls that use it. */
  uses = 0;

  constructor(index: number, alarm: Alarm) {
    this.index = index;
    this.alarm = alarm;
  }

  get state(): MemberState {
    return this.life.state;
  }
}

/**
 * A client of one server. {@link createClient} makes it.
 *
 * @example
 * const heartbeat = { interval: 5000, timeout: 5000 };
 * await using client = createClient({ host: 'db.example', port: 4711, heartbeat });
 * const reply = await client.request('hello', { timeout: 1000, repeat: true });
 */
export class Client {
  readonly #options: ConnectOptions;
  readonly #backoff: Backoff;
  readonly #onConnect: ClientOptions['onConnect'];
  readonly #unrefIdle: boolean;
  readonly #members: Member[];
  readonly #waiting = new Waiters<void>();
  readonly #idle = new Waiters<void>();
  readonly #readers = new Set<{ readonly reports: ClientStatus[]; readonly waiting: Waiters<void> }>();
  readonly #stop = new AbortController();
  #error: IwarpError | null = null;
  #uses = 0;
  /** Keeps the process alive where no connection does: timers of the stack do not. */
  #awake: ReturnType<typeof setInterval> | null = null;

  /** @internal Use {@link createClient}. */
  constructor(options: ClientOptions) {
    checkOptions('options', options, OPTIONS);
    const { connections = 1, reconnect, onConnect, unrefIdle = false, ...rest } = options;
    checkInteger('options.connections', connections, 1, MAX_CONNECTIONS);
    if (onConnect !== undefined) checkFunction('options.onConnect', onConnect);
    this.#backoff = checkBackoff(reconnect);
    this.#onConnect = onConnect;
    this.#unrefIdle = checkBoolean('options.unrefIdle', unrefIdle);
    this.#options = { ...rest, connectTimeout: rest.connectTimeout ?? CONNECT_TIMEOUT };
    const { scheduler } = rest.rnic ?? defaultRnic(rest.engine);
    this.#members = Array.from(
      { length: connections },
      (_, index) => new Member(index, new Alarm(scheduler)),
    );
    for (const member of this.#members) void this.#open(member);
    this.#stayAwake();
  }

  /** While calls are under way, and without `unrefIdle` always. */
  #stayAwake(): void {
    const wanted = this.#error === null && (!this.#unrefIdle || this.#uses > 0);
    if (wanted) this.#awake ??= setInterval(nothing, MAX_TIME_LIMIT);
    else if (this.#awake !== null) {
      clearInterval(this.#awake);
      this.#awake = null;
    }
  }

  /** `closed` once the client has been closed or has given up. */
  get state(): 'open' | 'closed' {
    return this.#error === null ? 'open' : 'closed';
  }

  /** Connections that are ready for calls. */
  get connections(): readonly Connection[] {
    return this.#members.flatMap(({ connection }) => (connection === null ? [] : [connection]));
  }

  // ---------------------------------------------------------------------------------------------- connecting

  async #open(member: Member): Promise<void> {
    let connection: Connection | null = null;
    try {
      connection = await connect({ ...this.#options, signal: this.#stop.signal });
      await this.#onConnect?.(connection);
      if (this.#error === null && connection.state === 'open') {
        this.#ready(member, connection);
        return;
      }
      throw (await connection.closed).error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'it has been closed');
    } catch (error) {
      connection?.destroy();
      this.#failed(member, error as Error);
    }
  }

  #ready(member: Member, connection: Connection): void {
    member.life.step('ready');
    member.failures = 0;
    member.connection = connection;
    if (this.#unrefIdle) connection.unref();
    void connection.closed.then(({ error }) => this.#lost(member, error));
    this.#report(member, 'connected', undefined, undefined);
    this.#waiting.settle();
  }

  #lost(member: Member, error: IwarpError | undefined): void {
    member.connection = null;
    if (this.#error !== null) return;
    member.life.step('lost');
    this.#again(member, 'lost', error, this.#backoff.first * Math.random());
  }

  #failed(member: Member, error: Error): void {
    if (this.#error !== null) return;
    member.failures++;
    const { code } = error as IwarpError;
    member.life.step('failed');
    if (LASTING.has(code) || member.failures >= this.#backoff.attempts) {
      const words = `the client gives up after ${member.failures} failed attempts: ${error.message}`;
      this.#end(new IwarpError(LASTING.has(code) ? code : 'ERR_CONNECT', words, { cause: error }));
      return;
    }
    this.#again(member, 'failed', error, waitAfter(this.#backoff, member.failures, Math.random()));
  }

  #again(member: Member, type: 'lost' | 'failed', error: Error | undefined, wait: number): void {
    this.#report(member, type, error, wait);
    member.alarm.set(wait, () => {
      if (this.#error !== null) return;
      member.life.step('retry');
      void this.#open(member);
    });
  }

  // -------------------------------------------------------------------------------------------------- status

  #report(
    { index, failures }: Member,
    type: ClientStatus['type'],
    error: Error | undefined,
    wait: number | undefined,
  ): void {
    for (const { reports, waiting } of this.#readers) {
      if (reports.length === MAX_REPORTS) reports.shift();
      reports.push({ type, index, error, wait, failures });
      waiting.next();
    }
  }

  /**
   * Changes from now on, until the client has ended. A reader that is slow misses the oldest of more than
   * 256.
   *
   * @example
   * for await (const { type, error } of client.status()) console.log(type, error?.message);
   */
  async *status(options: OperationOptions = {}): AsyncGenerator<ClientStatus, void, undefined> {
    const signal = signalOf(options);
    const reader = { reports: [] as ClientStatus[], waiting: new Waiters<void>() };
    this.#readers.add(reader);
    try {
      for (;;) {
        while (reader.reports.length === 0) {
          if (this.#error !== null) return;
          await reader.waiting.wait(signal);
        }
        const report = reader.reports.shift()!;
        yield report;
        if (report.type === 'closed') return;
      }
    } finally {
      this.#readers.delete(reader);
    }
  }

  // --------------------------------------------------------------------------------------------------- calls

  /**
   * Wait until a connection is ready: the one with the fewest calls.
   *
   * @throws ERR_ABORTED, ERR_TIMEOUT, and the error with which the client has ended
   */
  async ready(options: OperationOptions = {}): Promise<Connection> {
    return (await this.#member(signalOf(options))).connection!;
  }

  async #member(signal: AbortSignal | undefined): Promise<Member> {
    for (;;) {
      if (this.#error !== null) throw this.#error;
      if (signal?.aborted === true) throw abortError(signal);
      const best = this.#best();
      if (best !== null) return best;
      await this.#waiting.wait(signal);
    }
  }

  /** The ready connection with the fewest calls. */
  #best(): Member | null {
    let best: Member | null = null;
    for (const member of this.#members) {
      if (member.connection?.state !== 'open') continue;
      if (best === null || member.uses < best.uses) best = member;
    }
    return best;
  }

  /**
   * Call `work` with a ready connection, and resolve with its value. With `repeat` it is called again when
   * its connection is lost.
   *
   * @throws whatever `work` throws, and as {@link Client.ready}
   *
   * @example
   * const work = (connection: Connection) => connection.read(tickets.get(connection)!);
   * const bytes = await client.use(work, { repeat: true });
   */
  async use<T>(work: (connection: Connection) => Promise<T>, options: UseOptions = {}): Promise<T> {
    const signal = signalOf(options, USE);
    const { repeat = false } = options;
    checkBoolean('options.repeat', repeat);
    this.#uses++;
    this.#stayAwake();
    try {
      return await this.#attempt(work, signal, repeat);
    } finally {
      this.#uses--;
      this.#stayAwake();
      if (this.#uses === 0) while (this.#idle.next());
    }
  }

  async #attempt<T>(
    work: (connection: Connection) => Promise<T>,
    signal: AbortSignal | undefined,
    repeat: boolean,
  ): Promise<T> {
    if (signal?.aborted === true) throw abortError(signal);
    for (;;) {
      // Chosen and taken in one step, so that calls of one turn spread.
      const member = this.#best() ?? (await this.#member(signal));
      const connection = member.connection!;
      this.#hold(member, connection);
      try {
        return await work(connection);
      } catch (error) {
        const lost = endsConnection(error) && connection.state !== 'open';
        const notBegun =
          (error as IwarpError | null)?.code === 'ERR_CONNECTION_CLOSED' && !endsConnection(error);
        if (this.#error !== null || !(notBegun || (repeat && lost))) throw error;
        if (notBegun) await connection.closed;
      } finally {
        this.#release(member, connection);
      }
    }
  }

  #hold(member: Member, connection: Connection): void {
    if (++member.uses === 1 && this.#unrefIdle) connection.ref();
  }

  #release(member: Member, connection: Connection): void {
    if (--member.uses === 0 && this.#unrefIdle && connection.state !== 'closed') connection.unref();
  }

  /**
   * {@link Connection.request} on a ready connection. `timeout` bounds it with all its repetitions.
   *
   * @throws as {@link Connection.request} and {@link Client.ready}
   *
   * @example
   * const reply = await client.request('hello', { timeout: 1000, repeat: true });
   */
  request(data: ArrayBufferView | string, options: UseOptions = {}): Promise<Uint8Array> {
    const { repeat, ...rest } = options;
    if (options.timeout === undefined)
      return this.use((connection) => connection.request(data, rest), { ...rest, repeat });
    return this.#bounded(data, options, options.timeout);
  }

  #bounded(data: ArrayBufferView | string, options: UseOptions, timeout: number): Promise<Uint8Array> {
    const ms = checkInteger('options.timeout', timeout, 1, MAX_TIME_LIMIT);
    const { repeat } = options;
    const signal = withTimeLimit(signalOf({ signal: options.signal }), ms, 'the request');
    const end = performance.now() + ms;
    return this.use(
      (connection) =>
        connection.request(data, { signal, timeout: Math.max(1, Math.ceil(end - performance.now())) }),
      { signal, repeat },
    );
  }

  // ------------------------------------------------------------------------------------------------- closing

  /** Resolves when no call is under way. */
  async drain(options: OperationOptions = {}): Promise<void> {
    const signal = signalOf(options);
    while (this.#uses > 0) await this.#idle.wait(signal);
  }

  /**
   * Let the calls under way finish, close every connection in order, and end. When `signal` is aborted, or
   * after `timeout`, the connections that are left are dropped.
   */
  async close(options: OperationOptions = {}): Promise<void> {
    const signal = signalOf(options);
    const rest: OperationOptions = signal === undefined ? {} : { signal };
    if (this.#error === null) await this.drain(rest).catch(() => undefined);
    const open = this.connections;
    this.#end(new IwarpError('ERR_DESTROYED', 'the client has been closed'));
    await Promise.all(open.map((connection) => connection.close(rest)));
  }

  /** Drop every connection with a reset, and end; calls under way reject. */
  destroy(): void {
    const open = this.connections;
    this.#end(new IwarpError('ERR_DESTROYED', 'the client has been destroyed'));
    for (const connection of open) connection.destroy();
  }

  #end(error: IwarpError): void {
    if (this.#error !== null) return;
    this.#error = error;
    this.#stop.abort(error);
    const lasting = error.code === 'ERR_DESTROYED' ? undefined : error;
    for (const member of this.#members) {
      member.alarm.stop();
      member.life.step('end');
    }
    this.#report(this.#members[0]!, 'closed', lasting, undefined);
    this.#waiting.rejectAll(error);
    this.#stayAwake();
    if (lasting !== undefined) for (const connection of this.connections) void handled(connection.close());
  }

  /** The same as `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * Make a client, which begins to connect at once and goes on until it is closed. Calls wait for a connection.
 *
 * @throws ERR_INVALID_ARGUMENT and the like for wrong options
 *
 * @example
 * const client = createClient({ host: '127.0.0.1', port: 4711, connections: 2 });
 * console.log(await client.request('hello', { timeout: 1000 }));
 * await client.close();
 */
export function createClient(options: ClientOptions): Client {
  return new Client(options);
}
