/** The memcached edge: each connection speaks text or binary, by its first byte. */
import { Buffer } from 'node:buffer';
import { createServer, type Server, type Socket } from 'node:net';
import type { EdgeMemory } from './edge-memory.ts';
import type { MemcachedStore } from './memcached-store.ts';
import {
  BINARY_HEADER,
  decodeRequest,
  executeBinary,
  REQUEST_MAGIC,
  requestLength,
} from './memcached-binary.ts';
import { RequestBytes } from './request-bytes.ts';
import { TextSession } from './memcached-text.ts';

/** Replies that may wait for a client that does not read; then its requests wait too. */
const MOST_UNREAD = 1 << 20;

/** One client's commands, whatever it speaks. */
interface Session {
  readonly ends: boolean;
  /** Bytes of memory that a request which is not whole takes. */
  readonly held: number;
  push(bytes: Buffer): void;
  next(): (Buffer | string)[] | null;
}

class BinarySession implements Session {
  ends = false;
  readonly #store: MemcachedStore;
  readonly #bytes = new RequestBytes();
  /** Bytes of a body that is thrown away. */
  #skip = 0;

  constructor(store: MemcachedStore) {
    this.#store = store;
  }

  get held(): number {
    return this.#bytes.held;
  }

  push(bytes: Buffer): void {
    this.#bytes.push(bytes);
  }

  next(): Buffer[] | null {
    if (this.#skip > 0) {
      this.#skip -= this.#bytes.take(this.#skip).length;
      if (this.#skip > 0) return null;
    }
    const length = requestLength(this.#bytes.view, 0);
    if (length === null) return null;
    if (length < 0) {
      this.ends = true;
      return [];
    }
    const most = BINARY_HEADER + this.#store.keys.table.longestValue + 1024;
    if (length > most) {
      // Answered from the header alone, as a value that is too large; its octets are not kept.
      this.#skip = length - BINARY_HEADER;
      return [tooLarge(this.#bytes.take(BINARY_HEADER))];
    }
    if (this.#bytes.length < length) return null;
    const frame = Buffer.from(this.#bytes.take(length));
    const request = decodeRequest(frame);
    if (request === null) {
      // Nothing says where its key ends.
      this.ends = true;
      return [];
    }
    const { responses, ends } = executeBinary(this.#store, request);
    this.ends = ends;
    return [...responses];
  }
}

function tooLarge(header: Buffer): Buffer {
  const text = Buffer.from('Too large.');
  const response = Buffer.alloc(BINARY_HEADER);
  response.writeUInt8(0x81, 0);
  header.copy(response, 1, 1, 2);
  response.writeUInt16BE(3, 6);
  response.writeUInt32BE(text.length, 8);
  header.copy(response, 12, 12, 16);
  return Buffer.concat([response, text]);
}

function serve(socket: Socket, store: MemcachedStore, memory: EdgeMemory): void {
  let session: Session | null = null;
  socket.setNoDelay(true);
  socket.on('error', () => undefined); // 'close' follows
  const advance = (): void => {
    const replies: (Buffer | string)[] = [];
    let waiting = socket.writableLength;
    for (let done = false; !done && !session!.ends; ) {
      if (waiting > MOST_UNREAD) {
        socket.pause();
        break;
      }
      const next = session!.next();
      done = next === null;
      for (const reply of next ?? []) {
        replies.push(reply);
        waiting += reply.length;
      }
    }
    if (replies.length > 0)
      socket.write(
        Buffer.concat(
          replies.map((reply) => (typeof reply === 'string' ? Buffer.from(reply, 'latin1') : reply)),
        ),
      );
    if (session!.ends) socket.end();
    memory.holds(socket, session!.held + socket.writableLength);
  };
  socket.on('drain', () => {
    socket.resume();
    advance();
  });
  socket.on('data', (bytes: Buffer) => {
    session ??= bytes[0] === REQUEST_MAGIC ? new BinarySession(store) : new TextSession(store);
    if (session.ends) return;
    session.push(bytes);
    if (!socket.isPaused()) advance();
  });
}

/** A server of the edge, not listening yet. */
export function createMemcachedServer(store: MemcachedStore, memory: EdgeMemory): Server {
  const server = createServer((socket) => serve(socket, store, memory));
  memory.watch(server);
  return server;
}
