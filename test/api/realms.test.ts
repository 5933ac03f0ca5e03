// Memory of another realm: a context of node:vm, in which test runners run their tests, has separate classes
// that `instanceof` does not know.
import { createContext, runInContext } from 'node:vm';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  type Connection,
  type EngineKind,
  type Rnic,
  type Server,
} from '../../src/index.ts';
import { executeAtomic } from '../../src/rdmap/atomics.ts';
import * as sockets from '../../src/sockets/index.ts';

const other = createContext({});
const there = <T>(code: string): T => runInContext(code, other) as T;

/** A signal of another class, as those of polyfills; its event knows no `once`. */
class OtherSignal {
  aborted = false;
  reason: unknown = undefined;
  readonly listeners = new Set<(event: unknown) => void>();

  addEventListener(_type: string, listener: (event: unknown) => void): void {
    this.listeners.add(listener);
  }

  removeEventListener(_type: string, listener: (event: unknown) => void): void {
    this.listeners.delete(listener);
  }

  abort(): void {
    this.aborted = true;
    this.reason ??= new Error('stop');
    for (const listener of [...this.listeners]) listener({ type: 'abort', target: this });
  }
}

it('the other realm is another one', () => {
  expect(there<Uint8Array>('new Uint8Array(1)')).not.toBeInstanceOf(Uint8Array);
  expect(there<Uint8Array>('new Uint8Array(new SharedArrayBuffer(1))').buffer).not.toBeInstanceOf(
    SharedArrayBuffer,
  );
});

it('an atomic on memory that threads share is one for them, whichever realm it is of', () => {
  const exchange = vi.spyOn(Atomics, 'compareExchange');
  try {
    const five = { add: true, data: 5n, mask: 0n, compare: 0n, compareMask: 0n };
    for (const [memory, calls] of [
      ['new SharedArrayBuffer(8)', 1],
      ['new ArrayBuffer(8)', 0],
    ] as const) {
      exchange.mockClear();
      expect(executeAtomic(there<Uint8Array>(`new Uint8Array(${memory})`), 0, five)).toBe(0n);
      expect(exchange).toHaveBeenCalledTimes(calls);
    }
  } finally {
    exchange.mockRestore();
  }
});

describe.each<EngineKind>(['thread', 'worker'])('with the engine %s', (engine) => {
  let rnic: Rnic;
  let server: Server;
  let connection: Connection;
  let remote: RemoteBuffer;
  beforeAll(async () => {
    rnic = openRnic({ engine });
    server = createServer({ rnic }, async (c) => {
      await c.send(c.share(c.allocate(4096)).toBytes());
      for await (const message of c) {
        await c.send(message.data);
        message.release();
      }
    });
    await server.listen({ host: '127.0.0.1', port: 0 });
    connection = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
    const ticket = await connection.receive();
    remote = RemoteBuffer.fromBytes(ticket!.data);
    ticket!.release();
  });
  afterAll(async () => {
    await connection.close();
    await server.close();
  });

  it.each(['ArrayBuffer', 'SharedArrayBuffer'])('%s: sends, writes and reads', async (kind) => {
    const memory = there<Uint8Array>(`new Uint8Array(new ${kind}(4096)).fill(7)`);
    await connection.send(memory);
    const echo = await connection.receive();
    expect([echo!.data.length, echo!.data[4095]]).toEqual([4096, 7]);
    echo!.release();
    await connection.write(memory, remote);
    const back = there<Uint8Array>(`new Uint8Array(new ${kind}(4096))`);
    await connection.read(remote, back);
    expect(back[4095]).toBe(7);
  });

  it('SharedArrayBuffer: is memory to register', async () => {
    const memory = there<BigUint64Array>('new BigUint64Array(new SharedArrayBuffer(64))');
    const region = connection.register(memory);
    await connection.write(new Uint8Array(64).fill(9), remote);
    await connection.read(remote.slice(0, 64), region);
    expect(memory[7]).toBe(0x0909_0909_0909_0909n);
    region.deregister();
  });

  it('a URL of another class names the peer, and an error of another realm keeps its text', async () => {
    const strict = createServer({ rnic }, (c) =>
      c.serve(() => {
        throw there<Error>("new RangeError('of another realm')");
      }),
    );
    await strict.listen({ host: '127.0.0.1', port: 0 });
    const href = `iwarp://127.0.0.1:${strict.address().port}`;
    const url = { href, protocol: 'iwarp:', toString: () => href } as unknown as URL;
    const asking = await connect(url, { rnic });
    await expect(asking.request('?')).rejects.toMatchObject({
      code: 'ERR_REMOTE',
      message: 'of another realm',
    });
    await asking.close();
    await strict.close();
  });

  it('a signal of another class ends what waits for it, once', async () => {
    const signal = new OtherSignal();
    const waiting = connection.receive({ signal: signal as unknown as AbortSignal });
    expect(signal.listeners.size).toBe(1);
    signal.abort();
    await expect(waiting).rejects.toMatchObject({ code: 'ERR_ABORTED', cause: signal.reason });
    expect(signal.listeners.size).toBe(0); // although this class knows no `once`
    await expect(connection.receive({ signal: { aborted: false } as never })).rejects.toMatchObject({
      code: 'ERR_INVALID_ARGUMENT',
    });
  });

  it('a byte stream and its server take a signal of another class', async () => {
    const closing = new OtherSignal();
    const listener = sockets.createServer({ rnic }, (socket) => socket.on('error', () => undefined));
    const over = new Promise<void>((resolve) => listener.once('close', resolve));
    const where = { port: 0, host: '127.0.0.1', signal: closing as unknown as AbortSignal };
    await new Promise<void>((resolve) => listener.listen(where, resolve));
    const { port } = listener.address() as { port: number };
    const signal = new OtherSignal();
    const to = { rnic, port, host: '127.0.0.1', signal: signal as unknown as AbortSignal };
    const socket = sockets.connect(to);
    await new Promise<void>((resolve) => socket.once('connect', resolve));
    const failed = new Promise<Error>((resolve) => socket.once('error', resolve));
    signal.abort();
    expect(await failed).toMatchObject({ name: 'AbortError', code: 'ABORT_ERR' });
    closing.abort();
    await over;
    expect(listener.listening).toBe(false);
  });

  it.each(['new Uint8Array(100)', '() => new Uint8Array(100)'])(
    'a byte stream reads into %s',
    async (code) => {
      const listener = sockets.createServer({ rnic }, (socket) => void socket.end('of another realm'));
      await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
      let text = '';
      const onread = {
        buffer: there<Uint8Array>(code),
        callback: (octets: number, bytes: Uint8Array): void =>
          void (text += Buffer.from(bytes.buffer, bytes.byteOffset, octets).toString()),
      };
      const socket = sockets.connect({
        rnic,
        port: (listener.address() as { port: number }).port,
        host: '127.0.0.1',
        onread,
      });
      await new Promise((resolve, reject) => socket.on('error', reject).on('close', resolve));
      await new Promise((resolve) => listener.close(resolve));
      expect(text).toBe('of another realm');
    },
  );
});
