// Copy-on-write: after touch('copy') lent memory may be changed, and the peer still gets the bytes that were
// lent.
import { once } from 'node:events';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { seededRandom } from '../../src/base/random.ts';
import {
  connect,
  createServer,
  type Lease,
  type RdmaSocket,
  type RdmaSocketOptions,
} from '../../src/sockets/index.ts';
import { AZ01, HELLO, ScriptedPeer, type Message } from '../support/sdp-peer.ts';
import { depth } from '../support/depth.ts';

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

type EngineName = 'thread' | 'worker';
const rnics = new Map<EngineName, ReturnType<typeof openRnic>>();
const rnicOf = (engine: EngineName): ReturnType<typeof openRnic> => {
  if (!rnics.has(engine)) rnics.set(engine, openRnic({ engine }));
  return rnics.get(engine)!;
};

async function serverOf(options: RdmaSocketOptions): Promise<{ port: number; taken: Promise<RdmaSocket> }> {
  const server = createServer({ protocol: 'sdp', allowHalfOpen: true, ...options }).listen(0, '127.0.0.1');
  cleanup.push(() => server[Symbol.asyncDispose]());
  await once(server, 'listening');
  const taken = once(server, 'connection').then(([socket]) => {
    cleanup.push(() => (socket as RdmaSocket).on('error', () => undefined).destroy());
    return socket as RdmaSocket;
  });
  return { port: (server.address() as { port: number }).port, taken };
}

async function pairOf(
  engine: EngineName,
  options: RdmaSocketOptions = {},
): Promise<[RdmaSocket, RdmaSocket]> {
  const all = {
    protocol: 'sdp',
    allowHalfOpen: true,
    mode: 'source',
    rnic: rnicOf(engine),
    ...options,
  } as const;
  const { port, taken } = await serverOf(all);
  const socket = connect({ ...all, host: '127.0.0.1', port });
  cleanup.push(() => socket.on('error', () => undefined).destroy());
  const peer = await taken;
  if (socket.connecting) await once(socket, 'connect');
  return [socket, peer];
}

/** Memory that an engine in a worker sees too, so that nothing but a touch copies it. */
const shared = (octets: number, value: number): Uint8Array =>
  new Uint8Array(new SharedArrayBuffer(octets)).fill(value);

async function readAll(socket: RdmaSocket, octets: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (let at = 0; at < octets; at += parts.at(-1)!.length) {
    const part = socket.read() as Buffer | null;
    if (part !== null) parts.push(part);
    else await Promise.race([once(socket, 'readable'), sleep(50)]);
    if (part === null) parts.push(Buffer.alloc(0));
  }
  return Buffer.concat(parts);
}

/** What the peer reads ahead of its program, so that a later advertisement waits. */
const FILLER = (1 << 20) + 1;

/** The first of several memories that are lent behind what fills the peer. */
async function waiting(a: RdmaSocket, sizes: readonly number[]): Promise<[Uint8Array[], Lease[]]> {
  const filler = a.lend(shared(FILLER, 9));
  const memories = sizes.map((octets) => shared(octets, 1));
  const leases = memories.map((memory) => a.lend(memory, { guard: true, touch: 'copy' }));
  await filler.done;
  await expect.poll(() => leases[0]!.state).toBe('advertised');
  return [memories, leases];
}

describe.each(['thread', 'worker'] as const)('copy-on-write with the engine in a %s', (engine) => {
  it('takes the lock of an advertisement that waits, and the peer gets what was lent', async () => {
    const [a, b] = await pairOf(engine);
    const [memories, leases] = await waiting(a, [300_000, 200_000]);
    expect(await Promise.all(leases.map((lease) => lease.touch()))).toEqual(['copied', 'copied']);
    for (const memory of memories) memory.fill(2);
    const all = await readAll(b, FILLER + 500_000);
    expect(all.subarray(FILLER).every((octet) => octet === 1)).toBe(true);
    expect(await Promise.all(leases.map(({ done }) => done))).toEqual([300_000, 200_000]);
  });

  it('takes the lock between two Reads of one advertisement', async () => {
    const [a, b] = await pairOf(engine, { maxAdverts: 1 });
    const memory = shared(3 << 20, 1);
    const lease = a.lend(memory, { guard: true });
    await expect.poll(() => a.bytesWritten).toBe(3 << 20); // it has begun
    await sleep(100);
    expect(await lease.touch('copy')).toBe('copied');
    memory.fill(2);
    expect((await readAll(b, 3 << 20)).every((octet) => octet === 1)).toBe(true);
    expect(await lease.done).toBe(3 << 20);
  });

  it('gives the right bytes whenever a touch finds the reader: before, in and behind a cancel', async () => {
    const [a, b] = await pairOf(engine);
    const sizes = Array.from({ length: 12 }, () => 100_000);
    const [memories, leases] = await waiting(a, sizes);
    let touched = 0;
    for (const [at, lease] of leases.entries()) {
      const done = lease.touch().then(() => (memories[at]!.fill(2), touched++));
      await Promise.race([done, sleep(120)]); // past SendSm after 500 ms, and the cancel after 1 s
    }
    const all = await readAll(b, FILLER + 1_200_000);
    expect(all.subarray(FILLER).every((octet) => octet === 1)).toBe(true);
    await Promise.all(leases.map(({ done }) => done));
    await expect.poll(() => touched).toBe(12);
  });

  it('ends every touch when the connection does', async () => {
    const [a, b] = await pairOf(engine);
    for (const each of [a, b]) each.on('error', () => undefined);
    const [, leases] = await waiting(a, [100_000, 100_000, 100_000]);
    const touches = leases.map((lease) => lease.touch().catch((error: { code: string }) => error.code));
    b.resetAndDestroy();
    for (const outcome of await Promise.all(touches))
      expect(['copied', 'ERR_CONNECTION_CLOSED']).toContain(outcome);
    for (const lease of leases)
      await expect(lease.done).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
  });

  it('waits after 32 copies in a row, and copies again after 32 leases that waited', async () => {
    const [a, b] = await pairOf(engine);
    b.resume();
    const touch = async (): Promise<string> => {
      const lease = a.lend(shared(70_000, 1), { touch: 'copy' });
      const touched = await lease.touch();
      await lease.done;
      return touched;
    };
    /** A lease that is still in the queue of the stream is copied at once. */
    const copied = async (): Promise<string> => {
      const first = a.lend(shared(70_000, 1));
      const outcome = await touch();
      await first.done;
      return outcome;
    };
    const copies: string[] = [];
    for (let i = 0; i < 4; i++) copies.push(await copied());
    expect(copies).toEqual(['copied', 'copied', 'copied', 'copied']);
    // All of a row: copied without one between that was not.
    const row = Array.from({ length: 33 }, () => a.lend(shared(70_000, 1), { touch: 'copy' }));
    const outcomes = await Promise.all(row.slice(1).map((lease) => lease.touch()));
    expect(outcomes.every((outcome) => outcome === 'copied')).toBe(true);
    await Promise.all(row.map(({ done }) => done));
    expect(await copied()).toBe('done');
    for (let i = 0; i < 40; i++) await a.lend(shared(70_000, 1)).done;
    expect(await copied()).toBe('copied');
  });

  // A hand-shake between threads costs more than all the rest: IWARP_TOUCHES=100000 does as many there too.
  const touches = Number(
    process.env['IWARP_TOUCHES'] ?? (engine === 'thread' ? depth(20_000, 100_000) : depth(3000, 10_000)),
  );
  it(`under ${touches} random touches against a slow reader never delivers a changed byte`, {
    timeout: 240_000 + touches * 8,
  }, async () => {
    const [a, b] = await pairOf(engine, { zeroCopyFrom: 64 });
    const random = seededRandom(37);
    const pool = Array.from({ length: 24 }, () => shared(512, 0));
    const outcomes = { done: 0, copied: 0 };
    const expected: [octets: number, value: number][] = [];
    let sent = 0;
    /** One buffer: lent, touched at any time, changed at once, and lent again. */
    const lend = async (memory: Uint8Array): Promise<void> => {
      while (sent < touches) {
        const value = sent++ & 0x7f;
        const part = memory.subarray(0, 64 + (random() % 448));
        part.fill(value);
        expected.push([part.length, value]);
        const lease = a.lend(part);
        for (let turns = random() % 4; turns > 0; turns--) await turn();
        const mode = random() % 4 === 0 ? 'block' : 'copy';
        outcomes[await lease.touch(mode)]++;
        memory.fill(0xee);
      }
    };
    const same = Array.from({ length: 128 }, (_, value) => Buffer.alloc(512, value));
    let wrong = 0;
    let read = 0;
    const reading = (async () => {
      let [octets, value] = [0, 0];
      for (;;) {
        if (octets === 0) {
          if (expected.length === 0 && read >= touches) return;
          if (expected.length === 0) {
            await turn();
            continue;
          }
          [octets, value] = expected.shift()!;
        }
        const part = b.read(Math.min(octets, b.readableLength)) as Buffer | null;
        if (part === null) {
          b.read(0);
          await turn();
          continue;
        }
        if (!part.equals(same[value]!.subarray(0, part.length))) wrong++;
        octets -= part.length;
        if (octets > 0) continue;
        read++;
        // Slow: now and then the sender finds the reader full.
        if (random() % 2000 === 0) await sleep(20);
      }
    })();
    await Promise.all([...pool.map(lend), reading]);
    expect([wrong, read]).toEqual([0, touches]);
    expect(Math.min(outcomes.done, outcomes.copied)).toBeGreaterThan(touches / 100);
  });
});

// ------------------------------------------------------------------------- a reader written from the page

/** Offset of the lock words in the memory of a scripted peer. */
const LOCKS = 1 << 19;

interface Reading {
  readonly peer: ScriptedPeer;
  readonly socket: RdmaSocket;
  readonly words: BigUint64Array;
  readonly table: Message;
}

async function reading(announce = true): Promise<Reading> {
  // An engine in a worker has copied ordinary memory when it is lent.
  const { port, taken } = await serverOf({ mode: 'source', rnic: rnicOf('thread') });
  const peer = new ScriptedPeer();
  cleanup.push(() => peer.close());
  await peer.connect(port, HELLO, announce ? AZ01 : undefined);
  const words = new BigUint64Array(peer.memory.bytes.buffer, LOCKS, 16).fill(0n);
  const table = {
    mid: 0x40n,
    stag: BigInt(peer.memory.rkey),
    to: peer.memory.addr + BigInt(LOCKS),
    slots: 16n,
  };
  peer.send({ mid: 0xffn });
  return { peer, socket: await taken, words, table };
}

const bytesOf = (peer: ScriptedPeer): Buffer =>
  Buffer.concat(
    peer.seen.filter(({ message }) => message['mid'] === 0xffn).map(({ bytes }) => bytes.subarray(16)),
  );

async function dataOf(peer: ScriptedPeer, octets: number): Promise<Buffer> {
  while (bytesOf(peer).length < octets) {
    peer.send({ mid: 0xffn });
    await sleep(1);
  }
  return bytesOf(peer);
}

describe('a sender with copy-on-write', () => {
  const OCTETS = 70_000;

  it('compares, swaps, and advertises the copy; the reader gives the lock back', async () => {
    const { peer, socket, words, table } = await reading();
    peer.send(table);
    const memory = new Uint8Array(OCTETS).fill(1);
    const lease = socket.lend(memory, { guard: true });
    const first = await peer.wait(0xfe);
    expect(await lease.touch('copy')).toBe('copied');
    memory.fill(2);
    const second = await peer.wait(0x41);
    expect(second).toMatchObject({ size: BigInt(OCTETS), slot: 0n, generation: 0n });
    expect(words[0]).toBe(2n);
    await expect(peer.read(second, OCTETS)).resolves.toEqual(Buffer.alloc(OCTETS, 1));
    peer.send({ mid: 6n, count: BigInt(OCTETS - 1) });
    expect([await lease.done, lease.state]).toEqual([OCTETS, 'done']);
    expect(second['stag']).not.toBe(first['stag']);
    words[0] = 1n << 2n;
    // The next SrcAvail of the direction has the next lock.
    const next = socket.lend(memory);
    await peer.wait(
      0xfe,
      peer.seen.findIndex(({ message }) => message['mid'] === 0x41n),
    );
    expect(await next.touch('copy')).toBe('copied');
    expect([words[0], words[1]]).toEqual([4n, 2n]);
  });

  it('waits while the reader has the lock', async () => {
    const { peer, socket, words, table } = await reading();
    words[0] = 1n;
    peer.send(table);
    const lease = socket.lend(new Uint8Array(OCTETS).fill(1));
    const advert = await peer.wait(0xfe);
    const touched = lease.touch('copy');
    expect(await peer.read(advert, OCTETS)).toEqual(Buffer.alloc(OCTETS, 1));
    peer.send({ mid: 6n, count: BigInt(OCTETS - 1) });
    expect(await touched).toBe('done');
    expect(words[0]).toBe(1n);
    expect(peer.seen.some(({ message }) => message['mid'] === 0x41n)).toBe(false);
  });

  it('tries again when a part has been read', async () => {
    const { peer, socket, words, table } = await reading();
    words[0] = 1n;
    peer.send(table);
    const memory = new Uint8Array(OCTETS).fill(1);
    const lease = socket.lend(memory);
    const advert = await peer.wait(0xfe);
    const touched = lease.touch('copy');
    await peer.read(advert, 1000);
    words[0] = 0n;
    peer.send({ mid: 6n, count: 999n });
    expect(await touched).toBe('copied');
    memory.fill(2);
    expect(await peer.read(await peer.wait(0x41), OCTETS)).toEqual(Buffer.alloc(OCTETS, 1));
  });

  it.each([
    ['SendSm', async (peer: ScriptedPeer) => Promise.resolve(peer.send({ mid: 4n }))],
    [
      'the cancel, and SendSm',
      async (peer: ScriptedPeer) => {
        await peer.wait(8);
        peer.send({ mid: 4n });
      },
    ],
  ])('copies in answer to %s, and Data has what was lent', async (_name, answer) => {
    const { peer, socket, words, table } = await reading();
    words[0] = 1n;
    peer.send(table);
    const memory = new Uint8Array(OCTETS).fill(1);
    const lease = socket.lend(memory, { guard: true });
    await peer.wait(0xfe);
    const touched = lease.touch('copy');
    await answer(peer);
    expect(await touched).toBe('copied');
    memory.fill(2);
    expect(await dataOf(peer, OCTETS - 1)).toEqual(Buffer.alloc(OCTETS - 1, 1));
    await lease.done;
  });

  it('has no lock before LockTable has come, and uses it then', async () => {
    const { peer, socket, table } = await reading();
    const lease = socket.lend(new Uint8Array(OCTETS).fill(1));
    await peer.wait(0xfe);
    const touched = lease.touch('copy');
    await sleep(20);
    expect(lease.state).toBe('advertised');
    peer.send(table);
    expect(await touched).toBe('copied');
  });

  it('waits for a reader that does not announce it', async () => {
    const { peer, socket } = await reading(false);
    const lease = socket.lend(new Uint8Array(OCTETS).fill(1));
    const advert = await peer.wait(0xfe);
    const touched = lease.touch('copy');
    await peer.read(advert, OCTETS);
    peer.send({ mid: 6n, count: BigInt(OCTETS - 1) });
    expect(await touched).toBe('done');
  });

  it('whose lock was out of date has copied nothing', async () => {
    const { peer, socket, words, table } = await reading();
    words[0] = 3n << 2n; // another generation
    peer.send(table);
    const lease = socket.lend(new Uint8Array(OCTETS).fill(1));
    const advert = await peer.wait(0xfe);
    const touched = lease.touch('copy');
    await peer.read(advert, OCTETS);
    peer.send({ mid: 6n, count: BigInt(OCTETS - 1) });
    expect([await touched, words[0]]).toEqual(['done', 12n]);
  });

  it('takes advertisements back that a SinkAvail has crossed, and copies what waits', async () => {
    const { peer, socket, words, table } = await reading();
    words.fill(1n);
    peer.send(table);
    peer.send({ mid: 0xffn, flags: 4n }, Buffer.alloc(1)); // REQ_PIPE
    await once(socket, 'data');
    const memory = new Uint8Array(OCTETS).fill(1);
    const lease = socket.lend(memory);
    const before = peer.acked;
    await peer.wait(0xfe);
    const touched = lease.touch('copy');
    await peer.wait(7);
    const stag = BigInt(peer.memory.rkey);
    peer.send({ mid: 0xfdn, size: 80_000n, stag, to: peer.memory.addr, nonDiscards: 0n, mseqAck: before });
    const outcome = await Promise.race([touched, peer.wait(5).then(() => touched)]);
    expect(['copied', 'done']).toContain(outcome);
    memory.fill(2);
    await peer.wait(5);
    await lease.done;
    expect(peer.memory.bytes.subarray(0, OCTETS).every((octet) => octet === 1)).toBe(true);
  });
});

// ------------------------------------------------------------------------- a sender written from the page

describe('a reader with copy-on-write', () => {
  const OCTETS = 100_000;
  const advert = (peer: ScriptedPeer, octets: number, to = 0n): Message => ({
    mid: 0xfen,
    size: BigInt(octets),
    stag: BigInt(peer.memory.rkey),
    to: peer.memory.addr + to,
  });

  /** The second of two SrcAvails waits behind the bytes that were read ahead. */
  async function full(): Promise<[ScriptedPeer, RdmaSocket, Message]> {
    const { port, taken } = await serverOf({ mode: 'source' });
    const peer = new ScriptedPeer();
    cleanup.push(() => peer.close());
    peer.memory.bytes.fill(5);
    peer.memory.bytes.fill(7, 500_000, 600_000);
    await peer.connect(port, HELLO, AZ01);
    peer.send({ mid: 0xffn });
    peer.send({ mid: 7n, half: 0n, mode: 2n });
    peer.send(advert(peer, 1 << 20));
    const table = await peer.wait(0x40);
    expect(table).toMatchObject({ slots: 16n });
    await peer.wait(6);
    peer.send(advert(peer, OCTETS));
    return [peer, await taken, table];
  }

  it('Reads the copy that has taken the place of the memory', async () => {
    const [peer, socket, table] = await full();
    expect(await peer.swap(table, 1, 0n, 2n)).toBe(0n);
    const all = readAll(socket, (1 << 20) + OCTETS);
    await sleep(50);
    peer.send({ ...advert(peer, OCTETS, 500_000n), mid: 0x41n, slot: 1n, generation: 0n });
    expect((await all).subarray(1 << 20)).toEqual(Buffer.alloc(OCTETS, 7));
    // Answered: both locks have moved on.
    expect([await peer.swap(table, 0, 4n, 4n), await peer.swap(table, 1, 4n, 4n)]).toEqual([4n, 4n]);
    // A message that is too late changes nothing.
    peer.send({ ...advert(peer, OCTETS), mid: 0x41n, slot: 1n, generation: 0n });
    peer.send({ mid: 0xffn }, Buffer.from('end'));
    expect(await readAll(socket, 3)).toEqual(Buffer.from('end'));
  });

  it('keeps the lock while it Reads: a sender that comes late does not get it', async () => {
    const [peer, socket, table] = await full();
    const all = await readAll(socket, (1 << 20) + OCTETS);
    expect(await peer.swap(table, 1, 0n, 2n)).not.toBe(0n);
    expect(all.subarray(1 << 20)).toEqual(Buffer.alloc(OCTETS, 5));
  });

  it('asks for Data when the sender has the lock and says nothing', async () => {
    const [peer, socket, table] = await full();
    expect(await peer.swap(table, 1, 0n, 2n)).toBe(0n);
    const all = readAll(socket, (1 << 20) + 1000);
    await peer.wait(4);
    expect(await peer.swap(table, 1, 4n, 4n)).toBe(4n);
    peer.send({ mid: 0xffn }, Buffer.alloc(1000, 3));
    expect((await all).subarray(1 << 20)).toEqual(Buffer.alloc(1000, 3));
  });

  it('moves the lock on when the sender cancels', async () => {
    const [peer, , table] = await full();
    expect(await peer.swap(table, 1, 0n, 2n)).toBe(0n);
    peer.send({ mid: 8n });
    await peer.wait(4);
    expect(await peer.swap(table, 1, 4n, 4n)).toBe(4n);
  });
});
