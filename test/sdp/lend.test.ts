// Memory that is lent: touch waits, copies, or is caught by guard.
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';

/** The part of WebAssembly that is used: the types of Node have no more. */
type MemoryConstructor = new (size: { initial: number }) => { readonly buffer: ArrayBuffer };

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

async function pairOf(options: RdmaSocketOptions): Promise<[RdmaSocket, RdmaSocket]> {
  const all = { protocol: 'sdp', allowHalfOpen: true, ...options } as const;
  const server = createServer(all).listen(0, '127.0.0.1');
  cleanup.push(() => server[Symbol.asyncDispose]());
  await once(server, 'listening');
  const socket = connect({ ...all, host: '127.0.0.1', port: (server.address() as { port: number }).port });
  cleanup.push(() => socket.on('error', () => undefined).destroy());
  const [peer] = (await once(server, 'connection')) as [RdmaSocket];
  if (socket.connecting) await once(socket, 'connect');
  return [socket, peer];
}

async function read(socket: RdmaSocket, octets: number): Promise<Buffer> {
  const place = new Uint8Array(octets);
  for (let at = 0; at < octets; ) {
    const count = await socket.receiveInto(place.subarray(at));
    if (count === 0) break;
    at += count;
  }
  return Buffer.from(place);
}

describe('lent memory', () => {
  it('may be changed after touch, which waits for the peer', async () => {
    const [a, b] = await pairOf({ mode: 'source' });
    const memory = new Uint8Array(300_000).fill(1);
    const reading = read(b, memory.length);
    const lease = a.lend(memory, { guard: true });
    expect(await lease.touch('block')).toBe('done');
    memory.fill(2);
    expect((await reading).every((octet) => octet === 1)).toBe(true);
    expect([await lease.done, lease.state]).toEqual([300_000, 'done']);
  });

  it('that waits behind an advertisement is copied by touch', async () => {
    const [a, b] = await pairOf({ mode: 'source', maxAdverts: 1 });
    a.lend(new Uint8Array(3_000_000).fill(7));
    const memory = new Uint8Array(200_000).fill(1);
    const lease = a.lend(memory, { guard: true });
    expect(await lease.touch('copy')).toBe('copied');
    memory.fill(2);
    const all = await read(b, 3_200_000);
    expect(all.subarray(3_000_000).every((octet) => octet === 1)).toBe(true);
    expect(await lease.done).toBe(200_000);
  });

  it('that is changed without touch is caught by guard', async () => {
    const [a, b] = await pairOf({ mode: 'source', maxAdverts: 1 });
    const reading = read(b, 3_200_000);
    a.lend(new Uint8Array(3_000_000));
    const memory = new Uint8Array(200_000);
    const lease = a.lend(memory, { guard: true });
    memory[5] = 1;
    await expect(lease.done).rejects.toMatchObject({ code: 'ERR_LENT_CHANGED' });
    await reading;
  });

  it('that is changed while it is advertised is caught by guard, with and without a copy', async () => {
    const [a, b] = await pairOf({ mode: 'source' });
    const filler = a.lend(new Uint8Array((1 << 20) + 1)); // what the peer reads ahead
    const memories = [new Uint8Array(200_000), new Uint8Array(200_000), new Uint8Array(200_000)];
    const leases = memories.map((memory) => a.lend(memory, { guard: true }));
    await filler.done;
    await expect.poll(() => leases[2]!.state).toBe('advertised');
    memories[0]![199_999] = 1;
    memories[1]![0] = 1;
    expect(await leases[1]!.touch('copy')).toBe('copied');
    expect(await leases[2]!.touch('copy')).toBe('copied');
    memories[2]!.fill(1);
    await read(b, (1 << 20) + 1 + 600_000);
    for (const lease of leases.slice(0, 2))
      await expect(lease.done).rejects.toMatchObject({ code: 'ERR_LENT_CHANGED' });
    expect(await leases[2]!.done).toBe(200_000);
  });

  it.each(['in the queue of the stream', 'behind an advertisement'])(
    'that is detached %s ends the stream with an error, and nothing leaves in its place',
    async (where) => {
      const [a, b] = await pairOf({ mode: 'source', maxAdverts: 1 });
      for (const each of [a, b]) each.on('error', () => undefined);
      const failed = once(a, 'error') as Promise<[{ code: string; cause?: { code: string } }]>;
      a.lend(new Uint8Array(3_000_000));
      const memory = new Uint8Array(200_000);
      const lease = a.lend(memory);
      if (where !== 'in the queue of the stream') await new Promise(setImmediate);
      structuredClone(memory.buffer, { transfer: [memory.buffer] });
      read(b, 3_200_000).catch(() => undefined);
      await expect(lease.done).rejects.toMatchObject({ code: 'ERR_INVALID_REGION' });
      const [{ code, cause }] = await failed;
      expect([code, cause?.code]).toContain('ERR_INVALID_REGION');
    },
  );

  const { Memory } = (globalThis as unknown as { WebAssembly: { Memory: MemoryConstructor } }).WebAssembly;
  /** Memory that a program cannot be without, with the view of it that is given away. */
  const KEPT: readonly (readonly [string, () => Uint8Array])[] = [
    ['a view of a part of its buffer', () => new Uint8Array(200_000).subarray(100_000)],
    ['a view of the beginning of its buffer', () => new Uint8Array(200_000).subarray(0, 100_000)],
    ['a pooled Buffer', () => Buffer.from('x'.repeat(1000))],
    ['a view of the whole pool of Buffers', () => new Uint8Array(Buffer.from('x'.repeat(1000)).buffer)],
    ['shared memory', () => new Uint8Array(new SharedArrayBuffer(100_000))],
    ['memory of WebAssembly', () => new Uint8Array(new Memory({ initial: 2 }).buffer)],
  ];
  it.each(KEPT)('is copied where it cannot be detached: %s', async (_name, make) => {
    const [a, b] = await pairOf({ mode: 'source', zeroCopyFrom: 500 });
    const view = make();
    view.fill(3);
    const { length } = view;
    const back = a.writeOwned(view);
    expect(view.length).toBe(length);
    view.fill(4);
    expect((await read(b, length)).every((octet) => octet === 3)).toBe(true);
    expect(await back).toBe(view.buffer);
  });

  it('is not copied where it can: the same memory leaves and comes back', async () => {
    const [a, b] = await pairOf({ mode: 'source' });
    const view = new Uint8Array(100_000).fill(3);
    const back = a.writeOwned(view);
    expect([view.length, view.buffer.byteLength]).toEqual([0, 0]);
    expect((await read(b, 100_000)).every((octet) => octet === 3)).toBe(true);
    expect(new Uint8Array(await back)).toEqual(new Uint8Array(100_000).fill(3));
  });

  it('comes to its end when the connection does', async () => {
    const [a, b] = await pairOf({ mode: 'source' });
    for (const each of [a, b]) each.on('error', () => undefined);
    const lease = a.lend(new Uint8Array(3_000_000));
    b.resetAndDestroy();
    await expect(lease.done).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
  });

  it('is refused over rsocket', async () => {
    const socket = connect({ port: 1, host: '127.0.0.1' }).on('error', () => undefined);
    expect(() => socket.lend(new Uint8Array(1))).toThrow('sdp');
    await expect(socket.writeOwned(new ArrayBuffer(1))).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
  });
});
