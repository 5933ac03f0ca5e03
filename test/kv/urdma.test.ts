// The profile urdma: golden bytes, a peer in another language in both roles, our client, both engines.
// cspell:ignore rgba
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { connect as connectRdma } from '../../src/api/connect.ts';
import type { Connection } from '../../src/api/connection.ts';
import { openRnic, type EngineKind } from '../../src/api/environment.ts';
import { RemoteBuffer } from '../../src/api/remote-buffer.ts';
import { connect, connectUrdma, createStore } from '../../src/kv/index.ts';
import { decodeUrdma, encodeUrdma } from '../../src/kv/urdma-wire.ts';
import { python } from '../trp/python-peer.ts';

const PEER = fileURLToPath(new URL('urdma-peer.py', import.meta.url));
const text = (value: Uint8Array | null): string | null =>
  value === null ? null : Buffer.from(value).toString();
const hex = (...parts: string[]): Buffer => Buffer.from(parts.join('').replaceAll(' ', ''), 'hex');

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

class PythonPeer {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(args: readonly string[]) {
    this.child = spawn(python(), ['-S', PEER, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.child.stdout! })[Symbol.asyncIterator]();
    ends.push(() => this.child.kill());
  }

  async line(): Promise<string> {
    return (await this.#lines.next()).value as string;
  }

  async ask(command: string): Promise<string> {
    this.child.stdin!.write(`${command}\n`);
    return await this.line();
  }
}

async function owner(engine: EngineKind, octets = 8 * 2 ** 20) {
  const store = createStore({ octets, engine, profile: 'urdma' });
  ends.push(() => store.close());
  const { rdma, resp } = await store.listen({ rdma: 0, resp: 0 });
  const rnic = openRnic({ engine });
  ends.push(() => rnic.device.close());
  return { store, port: rdma!, resp: resp!, rnic };
}

/** SET of key `k` to `abc`, flags 7, no time; opaque 01020304. */
const GOLDEN_SET = hex(
  '80 01 0001 08 00 0000 0000000c 01020304 0000000000000000',
  '00000000 00000000 0000000000000000',
  '00000007 00000000 6b 616263',
);
/** GET of `k`, with 64 octets of memory at STag 0a0b0c0d and offset 1122334455667788. */
const GOLDEN_GET = hex(
  '80 00 0001 00 00 0000 00000001 01020305 0000000000000000',
  '0a0b0c0d 00000040 1122334455667788',
  '6b',
);

it('golden bytes of requests and replies, both ways', () => {
  const k = Buffer.from('k');
  const set = {
    opcode: 1,
    opaque: 0x0102_0304,
    extras: hex('00000007 00000000'),
    key: k,
    value: Buffer.from('abc'),
  };
  expect(encodeUrdma('request', set)).toEqual(GOLDEN_SET);
  const place = new RemoteBuffer(0x0a0b_0c0d, 0x1122_3344_5566_7788n, 64);
  expect(encodeUrdma('request', { opcode: 0, opaque: 0x0102_0305, place, key: k })).toEqual(GOLDEN_GET);
  const reply = hex(
    '81 00 0000 08 00 0000 00000008 01020305 0000000000000009',
    '0a0b0c0d 00000040 1122334455667788',
    '00000007 00000003',
  );
  const extras = hex('00000007 00000003');
  const got = { opcode: 0, opaque: 0x0102_0305, version: 9n, place, extras };
  expect(encodeUrdma('reply', got)).toEqual(reply);
  expect(decodeUrdma('reply', reply)).toMatchObject({ ...got, status: 0, key: Buffer.alloc(0) });
  expect(decodeUrdma('request', GOLDEN_SET)).toMatchObject({ ...set, place: { rkey: 0, length: 0 } });
  const failed = hex('81 01 0000 00 00 0005 00000000 01020304 0000000000000000', '00'.repeat(16));
  expect(encodeUrdma('reply', { opcode: 1, opaque: 0x0102_0304, status: 5 })).toEqual(failed);
  expect(decodeUrdma('request', reply)).toBeNull();
  for (let cut = 0; cut < reply.length; cut++)
    expect(decodeUrdma('reply', reply.subarray(0, cut))).toBeNull();
});

async function raw(port: number, rnic: ReturnType<typeof openRnic>): Promise<Connection> {
  const connection = await connectRdma({
    host: '127.0.0.1',
    port,
    rnic,
    credits: false,
    maxMessageSize: 25_000,
  });
  ends.push(async () => {
    connection.destroy();
    await connection.closed;
  });
  return connection;
}

async function answer(connection: Connection, request: Uint8Array): Promise<string> {
  await connection.send(request);
  return Buffer.from((await connection.receive())!.data).toString('hex');
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  it('the owner answers with golden bytes, and Writes the value before its reply', async () => {
    const { port, rnic } = await owner(engine);
    const connection = await raw(port, rnic);
    expect(connection.privateData).toHaveLength(0);
    const stored = await answer(connection, GOLDEN_SET);
    const place = stored.slice(48);
    expect(stored).toBe(
      hex('81 01 0000 00 00 0000 00000000 01020304 0000000000000001').toString('hex') + place,
    );
    expect(place.slice(8, 16)).toBe('00000003');
    const sink = connection.allocate(64, 'write');
    const ticket = connection.share(sink);
    const get = Buffer.from(GOLDEN_GET);
    get.writeUInt32BE(ticket.rkey, 24);
    get.writeBigUInt64BE(ticket.address, 32);
    expect(await answer(connection, get)).toBe(
      hex('81 00 0000 08 00 0000 00000008 01020305 0000000000000001', place, '00000007 00000003').toString(
        'hex',
      ),
    );
    expect(Buffer.from(sink.bytes.subarray(0, 4))).toEqual(Buffer.from('abc\0'));
    // A sink of two octets gets two; the reply says how long the value is.
    sink.bytes.fill(0);
    get.writeUInt32BE(2, 28);
    expect((await answer(connection, get)).slice(-8)).toBe('00000003');
    expect(Buffer.from(sink.bytes.subarray(0, 4))).toEqual(Buffer.from('ab\0\0'));
  });

  it.each([
    ['a key of 41 octets', 1, 41, 0, 4],
    ['no key', 1, 0, 0, 4],
    ['an opcode that is unknown', 5, 1, 0, 0x81],
    ['a value above the limit', 1, 1, 20_481, 3],
    ['REPLACE of a key that is not there', 3, 1, 1, 5],
    ['GET of a key that is not there', 0, 1, 0, 1],
    ['DELETE of a key that is not there', 4, 1, 0, 1],
  ])('%s is answered with its status', async (_name, opcode, keyLength, valueLength, status) => {
    const { port, rnic } = await owner(engine);
    const connection = await raw(port, rnic);
    const request = encodeUrdma('request', {
      opcode,
      opaque: 5,
      extras: new Uint8Array([1, 2, 3].includes(opcode) ? 8 : 0),
      key: Buffer.alloc(keyLength, 'q'),
      value: new Uint8Array(valueLength),
    });
    const reply = decodeUrdma('reply', Buffer.from(await answer(connection, request), 'hex'));
    expect(reply).toMatchObject({ opcode, status, opaque: 5, place: { rkey: 0, length: 0, address: 0n } });
  });

  it('messages that are no requests end their connection, and no other', async () => {
    const { port, rnic } = await owner(engine);
    const kv = await connectUrdma({ port, rnic });
    const short = encodeUrdma('request', { opcode: 1, opaque: 1, key: Buffer.from('k') });
    const long = Buffer.concat([short, Buffer.alloc(1)]);
    const wrong = Buffer.from(short);
    wrong.writeUInt16BE(2, 2);
    for (const message of [
      short.subarray(0, 39),
      short.subarray(0, 40),
      long,
      wrong,
      encodeUrdma('reply', { opcode: 0, opaque: 0 }),
    ]) {
      const connection = await raw(port, rnic);
      await connection.send(message);
      await connection.closed;
    }
    // A client that names memory which is not its own loses its connection by its own Terminate.
    await kv.set('k', 'abc');
    const foreign = await raw(port, rnic);
    await foreign.send(GOLDEN_GET);
    await foreign.closed;
    expect(text(await kv.get('k', { fresh: true }))).toBe('abc');
    await kv.close();
  });

  it('our client learns places, then values go by Read and Write; other edges see them', async () => {
    const { store, port, rnic } = await owner(engine);
    const kv = await connectUrdma({ port, rnic });
    expect(await kv.get('none')).toBeNull();
    const long = (letter: string): string => letter.repeat(3000);
    expect(await kv.set('a', long('a'))).toBe(true);
    expect(kv.stats()).toEqual({ reads: 0, writes: 0, messages: 2 });
    expect(text(await kv.get('a'))).toBe(long('a'));
    expect(kv.stats()).toEqual({ reads: 1, writes: 0, messages: 2 });
    expect(await kv.set('a', long('b'))).toBe(true);
    expect(kv.stats()).toEqual({ reads: 1, writes: 1, messages: 3 });
    expect(text(store.get('a'))).toBe(long('b'));
    // Another length, and a short value, go by message.
    expect(await kv.set('a', 'short')).toBe(true);
    expect(await kv.set('a', 'later')).toBe(true);
    expect(kv.stats()).toEqual({ reads: 1, writes: 1, messages: 5 });
    // A change by another edge is seen in place.
    store.set('a', 'other');
    expect(text(await kv.get('a'))).toBe('other');
    expect(await kv.set('a', '1', { when: 'add' })).toBe(false);
    expect(await kv.set('b', '1', { when: 'replace' })).toBe(false);
    expect(await kv.set('b', '1', { when: 'add', flags: 9, ttl: 1000 })).toBe(true);
    expect(await kv.delete('b')).toBe(true);
    expect(await kv.delete('b')).toBe(false);
    expect(await kv.set('empty', '')).toBe(true);
    expect(text(await kv.get('empty'))).toBe('');
    const largest = new Uint8Array(20_480).fill(120);
    expect(await kv.set('largest', largest)).toBe(true);
    expect(Buffer.compare((await kv.get('largest', { fresh: true }))!, largest)).toBe(0);
    await expect(kv.set('l', new Uint8Array(20_481))).rejects.toMatchObject({ code: 'ERR_TOO_LARGE' });
    await expect(kv.set('k'.repeat(41), '')).rejects.toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    await kv.close();
  });

  it('a place that has gone: the Send is refused, and the value goes by message', async () => {
    const { store, port, rnic } = await owner(engine);
    const kv = await connectUrdma({ port, rnic });
    await kv.set('a', 'a'.repeat(2000));
    store.delete('a');
    expect(await kv.set('a', 'b'.repeat(2000))).toBe(true);
    expect(kv.stats()).toMatchObject({ writes: 1, messages: 3 });
    expect(text(store.get('a'))).toBe('b'.repeat(2000));
    await kv.close();
  });

  it('hundreds of calls at once, and more keys than there is room for', async () => {
    const { store, port, rnic } = await owner(engine, 2 * 2 ** 20);
    const kv = await connectUrdma({ port, rnic, locations: 10 });
    const value = (i: number): string => String(i).padEnd(100 + ((i * 977) % 15_000), '.');
    await Promise.all(Array.from({ length: 600 }, (_, i) => kv.set(`key ${i}`, value(i))));
    const found = await Promise.all(
      Array.from({ length: 600 }, (_, i) => kv.get(`key ${i}`, { fresh: true }).then(text)),
    );
    let [there, gone] = [0, 0];
    for (const [i, got] of found.entries()) {
      if (got === null) gone++;
      else expect(got).toBe(value(i));
      if (got !== null) there++;
    }
    expect(there).toBeGreaterThan(20);
    expect(gone).toBe(store.stats().evicted);
    await kv.close();
  });

  it('a client in Python: SET and GET by message, then Read and Write in place', async () => {
    const { store, port } = await owner(engine);
    const peer = new PythonPeer(['connect', '127.0.0.1', String(port)]);
    expect(await peer.line()).toBe('up');
    expect(await peer.ask('get colour')).toBe('status 1');
    expect(await peer.ask('set colour blue')).toBe('status 0');
    expect(await peer.ask('get colour')).toBe('blue');
    expect(await peer.ask('read colour')).toBe('blue');
    expect(text(store.get('colour'))).toBe('blue');
    // As urdma's own client: a Write, and nothing that says so. Asking by message takes it into the table.
    expect(await peer.ask('write colour pink')).toBe('written');
    expect(await peer.ask('read colour')).toBe('pink');
    expect(await peer.ask('get colour')).toBe('pink');
    expect(text(store.get('colour'))).toBe('pink');
    store.set('colour', 'cyan');
    expect(await peer.ask('read colour')).toBe('cyan');
    const long = 'l'.repeat(20_000);
    expect(await peer.ask(`set long ${long}`)).toBe('status 0');
    expect(await peer.ask('get long')).toBe(long);
    expect(await peer.ask('read long')).toBe(long);
    expect(await peer.ask(`raw ${GOLDEN_SET.toString('hex')}`)).toMatch(/^81010000000000000000000001020304/);
    expect(await peer.ask('raw 00')).toBe('ended');
  });

  it('a server in Python: our client speaks to it, with Writes that nothing publishes', async () => {
    const rnic = openRnic({ engine });
    ends.push(() => rnic.device.close());
    const peer = new PythonPeer(['listen']);
    const kv = await connectUrdma({ port: Number(await peer.line()), rnic, publish: false });
    expect(await kv.get('k')).toBeNull();
    expect(await kv.set('k', 'v'.repeat(2000))).toBe(true);
    expect(text(await kv.get('k', { fresh: true }))).toBe('v'.repeat(2000));
    expect(text(await kv.get('k'))).toBe('v'.repeat(2000));
    expect(await kv.set('k', 'w'.repeat(2000))).toBe(true);
    expect(kv.stats()).toEqual({ reads: 1, writes: 1, messages: 3 });
    expect(text(await kv.get('k', { fresh: true }))).toBe('w'.repeat(2000));
    await expect(kv.delete('k')).rejects.toMatchObject({ code: 'ERR_PROTOCOL' });
    await kv.close();
    if (peer.child.exitCode === null) await once(peer.child, 'exit');
    expect(peer.child.exitCode).toBe(0);
  });
});

it('a client of the other profile is turned away', async () => {
  const { port, rnic } = await owner('thread');
  await expect(connect({ port, rnic })).rejects.toMatchObject({ name: 'IwarpError' });
  expect(() => createStore({ profile: 'other' as 'urdma' })).toThrow(/options\.profile must be one of/);
  expect(() => createStore({ profile: 'urdma', octets: 2 ** 20 })).toThrow(/options\.octets/);
});
