// The probe's side of the tester protocol: one object a case, with typed calls. See protocol.ts.

import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type {
  AnswerLine, CompletionInfo, EndpointOptions, EventInfo, OperationName, Operations, PostOptions, RegionOptions, TesterPort,
} from './protocol.ts';
import { fromHex } from './protocol.ts';

/** A region of the target, as its STag and tagged offset name it. */
export interface Region {
  readonly stag: number;
  readonly to: bigint;
  readonly length: number;
  /** The tester's handle; -1 where the wire told of the region. */
  readonly handle: number;
}

const FULL_ACCESS = ['local-write', 'remote-read', 'remote-write', 'remote-atomic'] as const;

/** What one case does with the tested side. */
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

  /** Memory that the peer may use; all rights and protection domain `a` unless told otherwise. */
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

  async receive(count: number, size: number, endpoint: number = this.endpoint): Promise<void> {
    await this.port.call('receive', { endpoint, count, size });
  }

  async post(options: PostOptions, endpoint: number = this.endpoint): Promise<void> {
    await this.port.call('post', { endpoint, ...options });
  }

  /** Completions since the last call: at least `min`, unless they do not come in time. */
  async completions(min: number, ms: number = this.#wait, endpoint: number = this.endpoint): Promise<CompletionInfo[]> {
    return (await this.port.call('completions', { endpoint, min, ms })).completions;
  }

  /** Receive completions that are not flushed, since the last call. */
  async received(min: number, ms: number = this.#wait): Promise<CompletionInfo[]> {
    return (await this.completions(min, ms)).filter((wc) => wc.queue === 'receive' && wc.status === 'success');
  }

  /** All events so far, once one of this type is among them or the time is over. */
  async events(type: string, ms: number = this.#wait, endpoint: number = this.endpoint): Promise<EventInfo[]> {
    return (await this.port.call('events', { endpoint, type, ms })).events;
  }

  async close(how: 'graceful' | 'abort' | 'terminate', endpoint: number = this.endpoint): Promise<void> {
    await this.port.call('close', { endpoint, how });
  }

  async presetMsn(qn: number, msn: number): Promise<void> {
    await this.port.call('preset-msn', { endpoint: this.endpoint, qn, msn });
  }
}

interface Waiting {
  readonly resolve: (answer: never) => void;
  readonly reject: (error: Error) => void;
}

/** A tester behind a TCP connection. */
export class RemoteTester implements TesterPort {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, Waiting>();
  #next = 1;
  #text = '';

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => this.#data(text));
    const gone = (): void => {
      for (const waiting of this.#waiting.values()) waiting.reject(new Error('the tester connection is gone'));
      this.#waiting.clear();
    };
    socket.on('error', gone);
    socket.on('close', gone);
  }

  static open(host: string, port: number): Promise<RemoteTester> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, noDelay: true });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RemoteTester(socket));
      });
    });
  }

  call<Op extends OperationName>(op: Op, args: Operations[Op]['request']): Promise<Operations[Op]['answer']> {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: resolve as Waiting['resolve'], reject });
      this.#socket.write(`${JSON.stringify({ id, op, args })}\n`);
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #data(text: string): void {
    this.#text += text;
    const lines = this.#text.split('\n');
    this.#text = lines.pop() ?? '';
    for (const line of lines) {
      const answer = JSON.parse(line) as AnswerLine;
      const waiting = this.#waiting.get(answer.id);
      this.#waiting.delete(answer.id);
      if (answer.ok) waiting?.resolve(answer.answer as never);
      else waiting?.reject(new Error(answer.error ?? 'the tester refused'));
    }
  }
}
