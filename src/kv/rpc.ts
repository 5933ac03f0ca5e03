/** Requests and answers over one connection: many may be under way, answers are matched by number. */
import { Buffer } from 'node:buffer';
import type { Connection } from '../api/connection.ts';
import { IwarpError } from '../base/errors.ts';
import { BINARY_HEADER, encodeFrame, REQUEST_MAGIC, RESPONSE_MAGIC, STATUS } from './memcached-binary.ts';

/** What a request carries. */
interface Call {
  readonly opcode: number;
  readonly version?: number;
  readonly extras?: Uint8Array;
  readonly key?: Uint8Array;
  readonly value?: Uint8Array;
}

/** What an answer says. */
interface Answer {
  readonly status: number;
  readonly version: number;
  readonly extras: Buffer;
  readonly value: Buffer;
}

interface Waiter {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

export class Rpc {
  readonly #connection: Connection;
  readonly #waiting = new Map<number, Waiter>();
  #next = 1;

  constructor(connection: Connection) {
    this.#connection = connection;
    void this.#listen();
  }

  /** Send a request and wait for its answer; rejects with the connection's error. */
  async call({ opcode, ...body }: Call): Promise<Answer> {
    const opaque = this.#next;
    this.#next = (this.#next + 1) >>> 0 || 1;
    const answer = new Promise<Answer>((resolve, reject) => this.#waiting.set(opaque, { resolve, reject }));
    answer.catch(() => undefined); // `send` may fail first
    await this.#connection.send(encodeFrame(REQUEST_MAGIC, opcode, opaque, { status: 0, ...body }));
    return await answer;
  }

  async #listen(): Promise<void> {
    let cause: unknown;
    try {
      for await (const message of this.#connection.messages()) {
        const frame = Buffer.from(message.data);
        message.release();
        if (!this.#answered(frame))
          throw new IwarpError('ERR_PROTOCOL', 'a message of the store is no answer');
      }
    } catch (error) {
      cause = error;
    }
    this.#connection.destroy();
    const { error } = await this.#connection.closed;
    const reason =
      cause ?? error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the store has closed the connection');
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }

  #answered(frame: Buffer): boolean {
    if (frame.length < BINARY_HEADER || frame[0] !== RESPONSE_MAGIC) return false;
    const start = BINARY_HEADER + frame.readUInt8(4) + frame.readUInt16BE(2);
    const opaque = frame.readUInt32BE(12);
    const waiter = this.#waiting.get(opaque);
    if (
      start > frame.length ||
      frame.length !== BINARY_HEADER + frame.readUInt32BE(8) ||
      waiter === undefined
    )
      return false;
    this.#waiting.delete(opaque);
    waiter.resolve({
      status: frame.readUInt16BE(6),
      version: Number(frame.readBigUInt64BE(16)),
      extras: frame.subarray(BINARY_HEADER, BINARY_HEADER + frame.readUInt8(4)),
      value: frame.subarray(start),
    });
    return true;
  }
}

/** An answer that is no success as an error; those that are results are named in `allowed`. */
export function checkAnswer(answer: Answer, allowed: readonly number[] = []): Answer {
  const { status } = answer;
  if (status === STATUS.OK || allowed.includes(status)) return answer;
  const text = answer.value.toString();
  if (status === STATUS.TOO_LARGE)
    throw new IwarpError('ERR_TOO_LARGE', 'the store does not take keys or values of this length');
  if (status === STATUS.NO_MEMORY) throw new IwarpError('ERR_LIMIT', 'the store is full');
  if (status === STATUS.NOT_A_NUMBER)
    throw new IwarpError('ERR_INVALID_STATE', 'the key holds no number, or the sum is none of 64 bits');
  throw new IwarpError('ERR_PROTOCOL', `the store has refused the request: ${text || status}`);
}
