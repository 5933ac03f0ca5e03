/** What the tests of the block device share: pairs of streams, servers, and data. */
import { connect as connectNet, type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { expect } from 'vitest';
import { createServer, memoryDevice, type NbdServer, type NbdServerOptions } from '../../src/nbd/index.ts';
import { encodeClientFlags, encodeGo, encodeOption, encodeRequest, viewOf } from '../../src/nbd/wire.ts';

/** Two ends of a byte stream in memory. `chunk` cuts the output, for tests of fragments. */
export function duplexPair(chunk: number = Infinity): [Duplex, Duplex] {
  const ends: Duplex[] = [];
  const make = (peer: number): Duplex =>
    new Duplex({
      read() {},
      write(data: Buffer, _encoding, done) {
        // Each end has separate memory, as with a network.
        for (let at = 0; at < data.length; at += chunk)
          ends[peer]!.push(Buffer.from(data.subarray(at, at + chunk)));
        setImmediate(done);
      },
      final(done) {
        ends[peer]!.push(null);
        done();
      },
      destroy(error, done) {
        setImmediate(() => ends[peer]!.destroy());
        done(error);
      },
    });
  ends.push(make(1), make(0));
  return ends as [Duplex, Duplex];
}

/** Bytes that differ by place. */
export function pattern(length: number, seed = 1): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = seed >>> 0 || 1;
  for (let i = 0; i < length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[i] = state;
  }
  return bytes;
}

/** A server on loopback with one memory export, and its URI. */
export async function memoryServer(
  size: number,
  options: Partial<NbdServerOptions> = {},
): Promise<{ server: NbdServer; uri: string; memory: Uint8Array }> {
  const disk = memoryDevice({ size, shared: true });
  const server = createServer({ exports: { disk }, ...options });
  const { port } = (await server.listen({ port: 0, host: '127.0.0.1' })) as AddressInfo;
  return { server, uri: `nbd://127.0.0.1:${port}/disk`, memory: disk.memory };
}

/** A client of bytes. */
export class Raw {
  readonly socket: Socket;
  readonly closed: Promise<void>;
  #bytes = Buffer.alloc(0);

  constructor(uri: string) {
    const { port } = new URL(uri.replace('nbd:', 'http:'));
    this.socket = connectNet({ port: Number(port), host: '127.0.0.1' });
    this.socket.on('error', () => undefined);
    this.socket.on('data', (data: Buffer) => (this.#bytes = Buffer.concat([this.#bytes, data])));
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  async take(length: number): Promise<Buffer> {
    await expect.poll(() => this.#bytes.length >= length, { interval: 2 }).toBe(true);
    const bytes = this.#bytes.subarray(0, length);
    this.#bytes = this.#bytes.subarray(length);
    return bytes;
  }

  async handshake(): Promise<this> {
    this.socket.write(Buffer.concat([encodeClientFlags(3), encodeOption(7, encodeGo('disk', []))]));
    await this.take(18 + 32 + 20);
    return this;
  }

  /** Error number of the simple reply to a request. */
  async ask(command: number, offset: bigint, length: number, flags = 0, data = 0): Promise<number> {
    this.send(command, offset, length, flags, data);
    const view = viewOf(await this.take(16));
    expect([view.getUint32(0), view.getUint32(12)]).toEqual([0x67446698, 5]);
    return view.getUint32(4);
  }

  send(command: number, offset: bigint, length: number, flags = 0, data = 0): void {
    const bytes = Buffer.alloc(28 + data);
    encodeRequest(viewOf(bytes), 0, { flags, command, cookieHi: 0, cookieLo: 5, offset, length });
    this.socket.write(bytes);
  }
}
