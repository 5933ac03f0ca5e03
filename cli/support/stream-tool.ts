/**
 * Parts that the tools on byte streams share: sockets with the tool's policy and patience, exact reads,
 * waited-for writes.
 */
import type { Duplex } from 'node:stream';
import { connect as tcpConnect, createServer as tcpServer } from 'node:net';
import { IwarpError, ownError } from '../../src/base/errors.ts';
import {
  connect,
  createServer,
  RdmaServer,
  RdmaSocket,
  type RdmaSocketOptions,
} from '../../src/sockets/index.ts';
import type { Tool } from './tool.ts';

/** Octets that a socket reads at a time: they stay in the cache until they are used. */
const PLACE_OCTETS = 65_536;

/**
 * The memory that a byte stream reads into: a piece stays until the next one is asked for.
 */
class Place {
  readonly #memory = Buffer.allocUnsafeSlow(PLACE_OCTETS);
  readonly #socket: RdmaSocket;
  #piece: Buffer = this.#memory.subarray(0, 0);

  constructor(socket: RdmaSocket, arrived: () => void) {
    this.#socket = socket;
    const callback = (octets: number): boolean => {
      this.#piece = this.#memory.subarray(0, octets);
      arrived();
      return false;
    };
    socket.readInto({ buffer: this.#memory, callback });
  }

  /** Up to `octets` of those that have come; null, and the socket reads on, if there are none. */
  take(octets: number): Buffer | null {
    if (this.#piece.length === 0) {
      this.#socket.resume();
      return null;
    }
    const taken = this.#piece.subarray(0, octets);
    this.#piece = this.#piece.subarray(taken.length);
    return taken;
  }
}

/** A stream read and written in exact pieces. */
export class Pieces {
  readonly stream: Duplex;
  readonly #place: Place | null;
  #failure: Error | null = null;
  #ended = false;
  #wake: (() => void) | null = null;

  /** A socket of node:net makes memory for each piece that it reads, one of ours does not. */
  constructor(stream: Duplex) {
    this.stream = stream;
    this.#place = stream instanceof RdmaSocket ? new Place(stream, () => this.#wake?.()) : null;
    if (this.#place === null) stream.on('readable', () => this.#wake?.());
    stream.on('error', (error) => {
      this.#failure ??= streamError(error);
      this.#wake?.();
    });
    stream.on('close', () => {
      this.#ended = true;
      this.#wake?.();
    });
    stream.on('end', () => {
      this.#ended = true;
      this.#wake?.();
    });
    stream.on('drain', () => this.#wake?.());
  }

  async #wait(): Promise<void> {
    await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#wake = null;
  }

  #check(): void {
    if (this.#failure !== null) throw ownError(this.#failure, 'ERR_CONNECTION_RESET', this.#failure.message);
  }

  /** Up to `octets` as they come, until more is asked for; null at the end. */
  async some(octets: number): Promise<Buffer | null> {
    for (;;) {
      const data = this.#take(octets);
      if (data !== null) return data;
      this.#check();
      if (this.#ended) return null;
      await this.#wait();
    }
  }

  #take(octets: number): Buffer | null {
    if (this.#place !== null) return this.#place.take(octets);
    return this.stream.read(Math.min(octets, Math.max(1, this.stream.readableLength))) as Buffer | null;
  }

  /**
   * Exactly these octets, each piece to `into` as it comes, or all together. @throws IwarpError
   * ERR_CONNECTION_CLOSED when the stream ends before
   */
  async exactly(octets: number, into?: (piece: Buffer) => void): Promise<Buffer> {
    const whole = Buffer.allocUnsafe(into === undefined ? octets : 0);
    let left = octets;
    while (left > 0) {
      const piece = await this.some(left);
      if (piece === null)
        throw new IwarpError(
          'ERR_CONNECTION_CLOSED',
          `the peer ended the connection with ${left} bytes to come`,
        );
      if (into === undefined) whole.set(piece, octets - left);
      else into(piece);
      left -= piece.length;
    }
    return whole;
  }

  /** Write, and wait while the stream is full. The memory must stay as it is until it has been taken. */
  async write(data: Uint8Array): Promise<void> {
    this.#check();
    if (this.stream.destroyed || this.stream.writableEnded)
      throw new IwarpError('ERR_CONNECTION_CLOSED', 'the connection is closed');
    if (this.stream.write(data)) return;
    while (this.stream.writableNeedDrain) {
      this.#check();
      if (this.stream.destroyed)
        throw new IwarpError('ERR_CONNECTION_CLOSED', 'the peer ended the connection');
      await this.#wait();
    }
  }

  /** End both directions after the written bytes, and wait until the connection is gone. */
  async close(): Promise<void> {
    const { stream } = this;
    if (stream.closed) return;
    const closed = new Promise<void>((resolve) => stream.once('close', resolve));
    (stream as Duplex & { destroySoon(): void }).destroySoon();
    await closed;
  }
}

/** How a stream tool makes its connections. */
export interface StreamOptions extends Omit<RdmaSocketOptions, 'rnic' | 'signal'> {
  /** Plain TCP instead of RDMA. */
  readonly tcp?: boolean;
  readonly patience: number;
}

/** Give a silent peer up, and end with the tool. */
function tend(stream: RdmaSocket | Duplex, tool: Tool, options: StreamOptions): void {
  const socket = stream as RdmaSocket;
  if (options.patience > 0) {
    socket.setTimeout(options.patience, () => {
      socket.destroy(new IwarpError('ERR_TIMEOUT', `nothing has crossed for ${options.patience / 1000} s`));
    });
  }
  tool.failed.catch((error: Error) => socket.destroy(error));
}

/** Connect; rejects with the reason if that fails. */
export async function openStream(
  tool: Tool,
  where: { readonly host: string; readonly port: number; readonly source?: string | undefined },
  options: StreamOptions,
): Promise<Pieces> {
  tool.check();
  const target = tool.target(where);
  const stream =
    options.tcp === true
      ? tcpConnect({ ...target, noDelay: true })
      : connect({ ...options, ...target, rnic: tool.rnic, policy: tool.policy });
  tend(stream, tool, options);
  await new Promise<void>((resolve, reject) => {
    stream.once('connect', () => resolve());
    stream.once('error', (error: Error) => {
      reject(ownError(streamError(error), 'ERR_CONNECT', error.message));
    });
  });
  return new Pieces(stream);
}

/** Connections of a listening tool, one after the other. */
export class StreamListener {
  readonly #tool: Tool;
  readonly #server: RdmaServer | ReturnType<typeof tcpServer>;
  readonly #arrived: Pieces[] = [];
  readonly #waiting: ((stream: Pieces) => void)[] = [];

  private constructor(tool: Tool, options: StreamOptions) {
    this.#tool = tool;
    const take = (stream: RdmaSocket | Duplex): void => {
      tend(stream, tool, options);
      const pieces = new Pieces(stream);
      const waiter = this.#waiting.shift();
      if (waiter === undefined) this.#arrived.push(pieces);
      else waiter(pieces);
    };
    this.#server =
      options.tcp === true
        ? tcpServer({ noDelay: true }, take)
        : createServer({ ...options, rnic: tool.rnic, policy: tool.policy }, take);
  }

  /** Bind and listen. */
  static async open(
    tool: Tool,
    where: { readonly host?: string | undefined; readonly port: number },
    options: StreamOptions,
  ): Promise<StreamListener> {
    tool.check();
    const listener = new StreamListener(tool, options);
    const server = listener.#server;
    const target = tool.target(where);
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error: Error) =>
        reject(ownError(streamError(error), 'ERR_CONNECT', error.message)),
      );
      const ready = (): void => resolve();
      if (server instanceof RdmaServer) server.listen(target, ready);
      else server.listen(target, ready);
    });
    const address = server.address()!;
    tool.listens(where.port, typeof address === 'string' ? 0 : address.port);
    return listener;
  }

  async next(): Promise<Pieces> {
    const stream = this.#arrived.shift();
    if (stream !== undefined) return stream;
    return await Promise.race([
      new Promise<Pieces>((resolve) => this.#waiting.push(resolve)),
      this.#tool.failed,
    ]);
  }

  close(): void {
    this.#server.close();
  }
}

/** An error of a byte stream has the system's code; its cause, one of ours, says more. */
export function streamError(error: Error): Error {
  return error.cause instanceof IwarpError ? error.cause : error;
}
