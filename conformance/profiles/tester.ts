// The probe's side of the tester protocol: one object a case, with typed calls. See protocol.ts.

import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type {
  AnswerLine,
  CompletionInfo,
  EndpointOptions,
  EventInfo,
  OperationName,
  Operations,
  PostOptions,
  RegionOptions,
  TesterPort,
} from './protocol.ts';
import { reasonOf } from '../support/system-errors.ts';
import { fromHex } from './protocol.ts';

/** A region of the target, as its STag and tagged offset name it. */
export interface Region {
  readonly stag: number;
  readonly to: bigint;
  readonly length: number;
  /** The tester's handle; -1 where the wire announced the region. */
  readonly handle: number;
}

/** More completions than there can be: a request for as many waits to the end of the time. */
const MORE_THAN_EVER = 0x7fff_ffff;

const FULL_ACCESS = ['local-write', 'remote-read', 'remote-write', 'remote-atomic'] as const;

/** The operations of one case on the tested side. */
export class Tester {
  readonly port: TesterPort;
  /** The endpoint of the case's main connection. */
  endpoint = 0;
  readonly #wait: number;

  /** @param wait milliseconds to wait for completions and events */
  constructor(port: TesterPort, wait: number) {
    this.port = port;
    this.#wait = wait;
  }

  async listen(host: string, options: EndpointOptions): Promise<{ endpoint: number; port: number }> {
    return this.port.call('listen', { host, options });
  }

  async connect(host: string, port: number, options: EndpointOptions): Promise<number> {
    return (await this.port.call('connect', { host, port, options })).endpoint;
  }

  /** Memory that the peer may use; all rights and protection domain `a` by default. */
  async region(options: Partial<RegionOptions> = {}): Promise<Region> {
    const length = options.length ?? 4096;
    const answer = await this.port.call('region', { access: FULL_ACCESS, ...options, length });
    return { stag: answer.stag, to: BigInt(answer.to), length, handle: answer.region };
  }

  async peek(region: Region, offset = 0, length: number = region.length - offset): Promise<Uint8Array> {
    return fromHex((await this.port.call('peek', { region: region.handle, offset, length })).data);
  }

  async deregister(region: Region): Promise<void> {
    await this.port.call('deregister', { region: region.handle });
  }

  async receive(count: number, size: number): Promise<void> {
    await this.port.call('receive', { endpoint: this.endpoint, count, size });
  }

  async post(options: PostOptions): Promise<void> {
    await this.port.call('post', { endpoint: this.endpoint, ...options });
  }

  /** Completions since the last call: at least `min`, unless they do not come in time. */
  async completions(min: number, ms: number = this.#wait): Promise<CompletionInfo[]> {
    return (await this.port.call('completions', { endpoint: this.endpoint, min, ms })).completions;
  }

  /** Receive completions that are not flushed, since the last call. */
  async received(min: number, ms: number = this.#wait): Promise<CompletionInfo[]> {
    return (await this.completions(min, ms)).filter(
      (wc) => wc.queue === 'receive' && wc.status === 'success',
    );
  }

  /**
   * The messages that are delivered within this time. It is waited for to its end: one that must not come may
   * come late, and completions of flushed receives say nothing of it.
   */
  deliveredWithin(ms: number): Promise<CompletionInfo[]> {
    return this.received(MORE_THAN_EVER, ms);
  }

  /** All events so far, once one of this type is among them or the time is over. */
  async events(type: string): Promise<EventInfo[]> {
    return (await this.port.call('events', { endpoint: this.endpoint, type, ms: this.#wait })).events;
  }

  async close(how: 'graceful' | 'abort' | 'terminate'): Promise<void> {
    await this.port.call('close', { endpoint: this.endpoint, how });
  }
}

/**
 * The tester can be asked nothing more: its connection is gone, it did not answer in time, or it speaks
 * another protocol.
 */
export class TesterLost extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'TesterLost';
  }
}

interface Waiting {
  readonly resolve: (answer: never) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout;
}

/** A tester behind a TCP connection. */
export class RemoteTester implements TesterPort {
  readonly #socket: Socket;
  readonly #limit: number;
  readonly #waiting = new Map<number, Waiting>();
  #next = 1;
  #text = '';
  #lost: TesterLost | null = null;

  private constructor(socket: Socket, limit: number) {
    this.#socket = socket;
    this.#limit = limit;
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => this.#data(text));
    socket.on('error', (error) => this.#lose(`the control connection is gone: ${reasonOf(error)}`));
    socket.on('close', () => this.#lose('the control connection is gone'));
  }

  /** @param limit milliseconds for connecting and for an answer, beyond what a call itself waits */
  static open(host: string, port: number, limit: number): Promise<RemoteTester> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, noDelay: true });
      const timer = setTimeout(
        () => socket.destroy(new Error(`no connection within ${limit / 1000} s`)),
        limit,
      );
      const failed = (error: Error): void => {
        clearTimeout(timer);
        reject(new TesterLost(reasonOf(error)));
      };
      socket.once('error', failed);
      socket.once('connect', () => {
        clearTimeout(timer);
        socket.off('error', failed);
        resolve(new RemoteTester(socket, limit));
      });
    });
  }

  /** Why nothing more can be asked; null while all is well. */
  get lost(): string | null {
    return this.#lost?.message ?? null;
  }

  call<Op extends OperationName>(op: Op, args: Operations[Op]['request']): Promise<Operations[Op]['answer']> {
    if (this.#lost !== null) return Promise.reject(this.#lost);
    const id = this.#next++;
    const limit = this.#limit + ('ms' in args ? args.ms : 0);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#lose(`the tester has not answered '${op}' within ${limit / 1000} s`),
        limit,
      );
      this.#waiting.set(id, { resolve: resolve as Waiting['resolve'], reject, timer });
      this.#socket.write(`${JSON.stringify({ id, op, args })}\n`);
    });
  }

  close(): void {
    this.#lose('closed');
  }

  /** Only the first reason counts: the others follow from it. */
  #lose(reason: string): void {
    this.#lost ??= new TesterLost(reason);
    this.#socket.destroy();
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(this.#lost);
    }
    this.#waiting.clear();
  }

  #data(text: string): void {
    this.#text += text;
    const lines = this.#text.split('\n');
    this.#text = lines.pop() ?? '';
    for (const line of lines) {
      const answer = answerOf(line);
      if (answer === null)
        return this.#lose(`what answers is no tester: ${JSON.stringify(line.slice(0, MAX_SHOWN))}`);
      const waiting = this.#waiting.get(answer.id);
      if (waiting === undefined) continue;
      this.#waiting.delete(answer.id);
      clearTimeout(waiting.timer);
      if (answer.ok) waiting.resolve(answer.answer as never);
      else waiting.reject(new Error(answer.error ?? 'the tester refused'));
    }
  }
}

/** Characters of a strange answer that are shown. */
const MAX_SHOWN = 60;

/** A line as the protocol has it, or null. An echo of our request has no `ok`. */
function answerOf(line: string): AnswerLine | null {
  try {
    const answer = JSON.parse(line) as Partial<AnswerLine> | null;
    return typeof answer?.id === 'number' && typeof answer.ok === 'boolean' ? (answer as AnswerLine) : null;
  } catch {
    return null;
  }
}
