// A peer that breaks the rules of SDP, by hand-made messages of the naive codec over our verbs: the socket
// ends in a typed error, at either end, and never holds more than its buffers.
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { seededRandom } from '../../src/base/random.ts';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { AZ01, HELLO, HELLO_ACK, ScriptedPeer, type Message } from '../support/sdp-peer.ts';

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

async function serverOf(
  options: RdmaSocketOptions = {},
): Promise<{ port: number; taken: Promise<RdmaSocket> }> {
  const server = createServer({ protocol: 'sdp', allowHalfOpen: true, ...options }).listen(0, '127.0.0.1');
  cleanup.push(() => server[Symbol.asyncDispose]());
  await once(server, 'listening');
  const taken = once(server, 'connection').then(([socket]) => socket as RdmaSocket);
  return { port: (server.address() as { port: number }).port, taken };
}

type Peered = [ScriptedPeer, RdmaSocket, Promise<Error>];

/** A scripted peer that has connected to a socket of ours. */
async function peerOf(options: RdmaSocketOptions = {}, behind?: Uint8Array): Promise<Peered> {
  const { port, taken } = await serverOf(options);
  const peer = new ScriptedPeer();
  cleanup.push(() => peer.close());
  await peer.connect(port, HELLO, behind);
  peer.send({ mid: 0xffn });
  const socket = await taken;
  const failed = new Promise<Error>((resolve) => socket.on('error', resolve));
  return [peer, socket, failed];
}

/** A scripted peer that a socket of ours has connected to. */
async function listeningPeerOf(options: RdmaSocketOptions = {}, behind?: Uint8Array): Promise<Peered> {
  const peer = new ScriptedPeer();
  cleanup.push(() => peer.close());
  const { port, connected } = await peer.listen(behind);
  const socket = connect({ protocol: 'sdp', allowHalfOpen: true, ...options, host: '127.0.0.1', port });
  cleanup.push(() => socket.destroy());
  const failed = new Promise<Error>((resolve) => socket.on('error', resolve));
  await Promise.all([connected, once(socket, 'connect')]);
  return [peer, socket, failed];
}

/** Our side is connected to, or connects. */
const ROLES = [
  ['listens', peerOf],
  ['connects', listeningPeerOf],
] as const;

const advert = (peer: ScriptedPeer, size: number): Message => ({
  mid: 0xfen,
  size: BigInt(size),
  stag: BigInt(peer.memory.rkey),
  to: peer.memory.addr,
});

/** Name of the fault, and how a peer commits it. */
type Fault = readonly [string, (peer: ScriptedPeer, socket: RdmaSocket) => unknown];

/** Our half that receives has been made pipelined, and has advertised a place. */
async function sinkAdvert(peer: ScriptedPeer, socket: RdmaSocket): Promise<Message> {
  socket.receiveInto(new Uint8Array(50_000)).catch(() => undefined);
  await expect.poll(() => peer.seen.some(({ message }) => message['flags'] === 4n)).toBe(true);
  peer.send({ mid: 7n, half: 0n, mode: 2n });
  return peer.wait(0xfd);
}

/** Our half that sends has become pipelined, behind one message of Data. */
async function pipelined(peer: ScriptedPeer, socket: RdmaSocket): Promise<void> {
  peer.send({ mid: 0xffn, flags: 4n }, Buffer.alloc(1));
  await once(socket, 'data');
  socket.write('x');
  await peer.wait(7);
  await expect.poll(() => peer.seen.some(({ bytes }) => bytes.length === 17)).toBe(true);
}
const sink = (peer: ScriptedPeer, size: number, nonDiscards: number): Message => ({
  ...advert(peer, size),
  mid: 0xfdn,
  nonDiscards: BigInt(nonDiscards),
});

const FAULTS: readonly Fault[] = [
  ['a message of 8 bytes', (peer) => peer.raw(Buffer.alloc(8))],
  ['a length unlike the message', (peer) => peer.send({ mid: 0xffn, length: 99n }, Buffer.alloc(4))],
  ['a second Hello', (peer) => peer.send(HELLO)],
  ['an unknown message', (peer) => peer.raw(Buffer.from('50000004000000100000000200000000', 'hex'))],
  ['a sequence number too many', (peer) => peer.send({ mid: 0xffn, mseq: 3n })],
  ['an acknowledgement of what was not sent', (peer) => peer.send({ mid: 0xffn, mseqAck: 99n })],
  ['RdmaRdCompl with nothing advertised', (peer) => peer.send({ mid: 6n, count: 5n })],
  ['RdmaWrCompl with nothing advertised', (peer) => peer.send({ mid: 5n, count: 5n })],
  ['SendSm with nothing advertised', (peer) => peer.send({ mid: 4n })],
  ['SinkCancelAck without a cancel', (peer) => peer.send({ mid: 10n })],
  ['SinkAvail in combined mode', (peer) => peer.send({ ...advert(peer, 100_000), mid: 0xfdn })],
  ['SrcAvail of 0 bytes', (peer) => peer.send(advert(peer, 0), Buffer.alloc(1))],
  ['SrcAvail without inline data in combined mode', (peer) => peer.send(advert(peer, 100))],
  ['SrcAvail that is inline as a whole', (peer) => peer.send(advert(peer, 4), Buffer.alloc(4))],
  ['a change to the mode that there is', (peer) => peer.send({ mid: 7n, half: 0n, mode: 1n })],
  ['a change of our sending half from combined', (peer) => peer.send({ mid: 7n, half: 1n, mode: 0n })],
  [
    'SrcAvail in buffered mode',
    (peer) => {
      peer.send({ mid: 7n, half: 0n, mode: 0n });
      peer.send(advert(peer, 100), Buffer.alloc(1));
    },
  ],
  [
    'more SrcAvails than we take',
    (peer) => {
      peer.send({ mid: 7n, half: 0n, mode: 2n });
      peer.send(advert(peer, 1 << 20));
      // In time for the credits of the others.
      setTimeout(() => {
        for (let i = 0; i < 3; i++) peer.send(advert(peer, 1 << 20));
      }, 50);
    },
  ],
  [
    'Data behind DisConn',
    (peer) => {
      peer.send({ mid: 2n });
      peer.send({ mid: 0xffn }, Buffer.alloc(1));
    },
  ],
  [
    'a SrcAvail behind DisConn',
    (peer) => {
      peer.send({ mid: 2n });
      peer.send(advert(peer, 1000), Buffer.alloc(1));
    },
  ],
  [
    'a second DisConn',
    (peer) => {
      peer.send({ mid: 2n });
      peer.send({ mid: 2n });
    },
  ],
  [
    'DisConn while its SrcAvail is unanswered',
    (peer) => {
      peer.send(advert(peer, 100_000), Buffer.alloc(1));
      peer.send({ mid: 2n });
    },
  ],
  [
    'a change to buffered mode while its SrcAvail is unanswered',
    (peer) => {
      peer.send(advert(peer, 100_000), Buffer.alloc(1));
      peer.send({ mid: 7n, half: 0n, mode: 0n });
    },
  ],
  [
    'a change back to combined mode while its SrcAvail is unanswered',
    (peer) => {
      peer.send({ mid: 7n, half: 0n, mode: 2n });
      peer.send(advert(peer, 100_000));
      peer.send({ mid: 7n, half: 0n, mode: 1n });
    },
  ],
  [
    'ChRcvBuf before ChRcvBufAck',
    (peer) => {
      peer.send({ mid: 11n, count: 60_000n });
      peer.send({ mid: 11n, count: 65_000n });
    },
  ],
  ['ChRcvBufAck without ChRcvBuf', (peer) => peer.send({ mid: 12n, count: 2000n })],
  ['SuspComm', (peer) => peer.send({ mid: 13n })],
  ['urgent data without payload', (peer) => peer.send({ mid: 0xffn, flags: 1n })],
  [
    'RdmaRdCompl above what is advertised',
    async (peer, socket) => {
      socket.write(Buffer.alloc(70_000));
      await peer.wait(0xfe);
      peer.send({ mid: 6n, count: 70_000n }); // one byte was inline
    },
  ],
  [
    'RdmaRdCompl of 0 bytes',
    async (peer, socket) => {
      socket.write(Buffer.alloc(70_000));
      await peer.wait(0xfe);
      peer.send({ mid: 6n, count: 0n });
    },
  ],
  [
    'Data that invalidates what we advertise',
    async (peer, socket) => {
      socket.write(Buffer.alloc(70_000));
      const { stag } = await peer.wait(0xfe);
      peer.send({ mid: 0xffn }, Buffer.alloc(1), stag);
    },
  ],
  [
    'a partial RdmaRdCompl that invalidates what it is part of',
    async (peer, socket) => {
      socket.write(Buffer.alloc(70_000));
      const { stag } = await peer.wait(0xfe);
      peer.send({ mid: 6n, count: 69_998n }, undefined, stag); // one byte was inline, and one is left
    },
  ],
  [
    'RdmaRdCompl that invalidates another SrcAvail',
    async (peer, socket) => {
      await pipelined(peer, socket);
      for (let i = 0; i < 2; i++) socket.lend(Buffer.alloc(70_000)).done.catch(() => undefined);
      const first = await peer.wait(0xfe);
      const others = peer.seen.findIndex(({ message }) => message === first) + 1;
      const { stag } = await peer.wait(0xfe, others);
      peer.send({ mid: 6n, count: 70_000n }, undefined, stag);
    },
  ],
  [
    'RdmaWrCompl that invalidates the place',
    async (peer, socket) => {
      const { stag } = await sinkAdvert(peer, socket);
      peer.send({ mid: 5n, count: 50_000n }, undefined, stag);
    },
  ],
  [
    'RdmaWrCompl above what is advertised',
    async (peer, socket) => {
      await sinkAdvert(peer, socket);
      peer.send({ mid: 5n, count: 50_001n });
    },
  ],
  [
    'SrcAvail where it knows of a SinkAvail',
    async (peer, socket) => {
      await sinkAdvert(peer, socket);
      peer.send(advert(peer, 1000));
    },
  ],
  [
    'a SinkAvail below the size of a message',
    async (peer, socket) => {
      await pipelined(peer, socket);
      peer.send(sink(peer, 1007, 1));
    },
  ],
  [
    'more SinkAvails than we take',
    async (peer, socket) => {
      await pipelined(peer, socket);
      for (let i = 0; i < 3; i++) peer.send(sink(peer, 10_000, 1));
    },
  ],
  [
    'NonDiscards that cannot be',
    async (peer, socket) => {
      await pipelined(peer, socket);
      peer.send(sink(peer, 10_000, 7));
    },
  ],
  [
    'credits that are taken back',
    async (peer, socket) => {
      const before = peer.acked;
      socket.write('x');
      await expect.poll(() => peer.seen.some(({ bytes }) => bytes.length === 17)).toBe(true);
      peer.send({ mid: 0xffn, bufs: 0n, mseqAck: before });
    },
  ],
  ['a LockTable that was not announced', (peer) => peer.send({ mid: 0x40n, slots: 2n })],
  ['an UpdatedSrcAvail that was not announced', (peer) => peer.send({ mid: 0x41n })],
  ['unknown flags', (peer) => peer.send({ mid: 0xffn, flags: 0x80n })],
];

/** A place that the peer has written 100 bytes to, without RdmaWrCompl. */
async function begun(peer: ScriptedPeer, socket: RdmaSocket): Promise<void> {
  peer.write(await sinkAdvert(peer, socket), 100);
}

/** What a device in this thread counts. */
const WRITE_FAULTS: readonly Fault[] = [
  [
    'Data over a place that it has begun to write to',
    async (peer, socket) => {
      await begun(peer, socket);
      peer.send({ mid: 0xffn }, Buffer.alloc(1));
    },
  ],
  [
    'RdmaWrCompl of more than it has written',
    async (peer, socket) => {
      await begun(peer, socket);
      peer.send({ mid: 5n, count: 101n });
    },
  ],
  [
    'RdmaWrCompl of less than it has written',
    async (peer, socket) => {
      await begun(peer, socket);
      peer.send({ mid: 5n, count: 99n });
    },
  ],
  [
    'a change of mode over a place that it has begun to write to',
    async (peer, socket) => {
      await begun(peer, socket);
      peer.send({ mid: 7n, half: 0n, mode: 1n });
    },
  ],
  [
    'DisConn over a place that it has begun to write to',
    async (peer, socket) => {
      await begun(peer, socket);
      peer.send({ mid: 2n });
    },
  ],
  [
    'SinkCancelAck for a place that it has begun to write to',
    async (peer, socket) => {
      const stop = new AbortController();
      socket.receiveInto(new Uint8Array(50_000), { signal: stop.signal }).catch(() => undefined);
      await expect.poll(() => peer.seen.some(({ message }) => message['flags'] === 4n)).toBe(true);
      peer.send({ mid: 7n, half: 0n, mode: 2n });
      const place = await peer.wait(0xfd);
      stop.abort();
      await peer.wait(9);
      peer.write(place, 100);
      peer.send({ mid: 10n });
    },
  ],
];

/** A peer has filled what we read ahead, so that its second SrcAvail waits with a free lock. */
async function lockOf(peer: ScriptedPeer): Promise<Message> {
  peer.send({ mid: 7n, half: 0n, mode: 2n });
  peer.send(advert(peer, 1 << 20));
  const table = await peer.wait(0x40);
  await peer.wait(6);
  peer.send(advert(peer, 100_000));
  return table;
}
const updated = (peer: ScriptedPeer, change: Message = {}): Message => ({
  ...advert(peer, 100_000),
  mid: 0x41n,
  slot: 1n,
  ...change,
});
const table = (change: Message = {}): Message => ({ mid: 0x40n, slots: 16n, ...change });

const LOCK_FAULTS: readonly Fault[] = [
  ['a second LockTable', (peer) => [table(), table()].forEach((message) => peer.send(message))],
  ['a LockTable that is not aligned', (peer) => peer.send(table({ to: 4n }))],
  ['a LockTable of no slots', (peer) => peer.send(table({ slots: 0n }))],
  ['a LockTable of 70,000 slots', (peer) => peer.send(table({ slots: 70_000n }))],
  ['a LockTable beyond the end of its offsets', (peer) => peer.send(table({ to: 2n ** 64n - 8n }))],
  ['UpdatedSrcAvail before any SrcAvail', (peer) => peer.send(updated(peer, { slot: 0n }))],
  [
    'UpdatedSrcAvail of a slot beyond the table',
    async (peer) => {
      await lockOf(peer);
      peer.send(updated(peer, { slot: 16n }));
    },
  ],
  [
    'UpdatedSrcAvail of a SrcAvail that is still to come',
    async (peer) => {
      await lockOf(peer);
      peer.send(updated(peer, { generation: 1n }));
    },
  ],
  [
    'UpdatedSrcAvail without the lock',
    async (peer) => {
      await lockOf(peer);
      peer.send(updated(peer));
    },
  ],
  [
    'UpdatedSrcAvail of another length',
    async (peer) => {
      expect(await peer.swap(await lockOf(peer), 1, 0n, 2n)).toBe(0n);
      peer.send(updated(peer, { size: 99_999n }));
    },
  ],
  [
    'a lock word that has no meaning',
    async (peer, socket) => {
      expect(await peer.swap(await lockOf(peer), 1, 0n, 77n)).toBe(0n);
      socket.resume();
    },
  ],
];

describe.each(ROLES)('where our side %s, a peer of SDP', (_role, pair) => {
  it.each(FAULTS)('is reset for %s', async (_name, fault) => {
    const [peer, socket, failed] = await pair({ mode: 'auto', maxAdverts: 2 });
    await fault(peer, socket);
    expect(await failed).toMatchObject({ code: 'ECONNRESET', cause: { code: 'ERR_CONNECTION_RESET' } });
    await peer.wait(3); // AbortConn
    await peer.ended;
  });

  it.each(WRITE_FAULTS)('is reset for %s', async (_name, fault) => {
    const [peer, socket, failed] = await pair({ mode: 'sink', rnic: openRnic({ engine: 'thread' }) });
    await fault(peer, socket);
    expect(await failed).toMatchObject({ code: 'ECONNRESET', cause: { code: 'ERR_CONNECTION_RESET' } });
    await peer.wait(3); // AbortConn
    await peer.ended;
  });

  it.each(LOCK_FAULTS)('that has copy-on-write is reset for %s', async (_name, fault) => {
    const [peer, socket, failed] = await pair({ mode: 'auto', maxAdverts: 16 }, AZ01);
    await fault(peer, socket);
    expect(await failed).toMatchObject({ code: 'ECONNRESET', cause: { code: 'ERR_CONNECTION_RESET' } });
    await peer.wait(3); // AbortConn
    await peer.ended;
  });

  it('may invalidate an advertisement that it has read to its end, by the last RdmaRdCompl', async () => {
    const [peer, socket] = await pair({ mode: 'source' });
    const written = new Promise((resolve) => socket.write(Buffer.alloc(70_000), resolve));
    const { stag } = await peer.wait(0xfe);
    peer.send({ mid: 6n, count: 9999n });
    peer.send({ mid: 6n, count: 60_000n }, undefined, stag);
    expect(await written).not.toBeInstanceOf(Error);
    await expect(peer.read({ stag: stag!, to: 0n }, 1)).rejects.toThrow('has failed');
  });

  it('that advertises memory it does not have gets a Terminate', async () => {
    const [peer, socket, failed] = await pair();
    peer.send({ ...advert(peer, 100_000), stag: 0x0bad_0b0dn }, Buffer.alloc(1));
    socket.resume();
    expect(await failed).toMatchObject({ code: 'ECONNRESET' });
    expect((await peer.ended).terminate).toBeDefined();
  });

  it('that advertises places it does not have gets a Terminate', async () => {
    const [peer, socket, failed] = await pair({ mode: 'auto' });
    await pipelined(peer, socket);
    peer.send({ ...sink(peer, 100_000, 1), stag: 0x0bad_0b0dn });
    peer.send({ mid: 0xffn }, Buffer.alloc(1));
    await once(socket, 'data');
    socket.write(Buffer.alloc(5000));
    expect(await failed).toMatchObject({ code: 'ECONNRESET' });
    expect((await peer.ended).terminate).toBeDefined();
  });

  it.each([
    ['1 MiB', undefined, 1n << 20n],
    ['1 MiB with buffers of 16 MiB', { count: 16, size: 1 << 20 }, 1n << 20n],
    ['its private buffers, 128 KiB', { count: 8, size: 16_384 }, 1n << 17n],
    ['64 KiB with buffers of 512 bytes', { count: 4, size: 128 }, 1n << 16n],
  ])('that advertises 4 GiB is read no further ahead than %s', async (_name, privateBuffers, most) => {
    const [peer, socket] = await pair({ privateBuffers });
    peer.send({ mid: 7n, half: 0n, mode: 2n });
    peer.send(advert(peer, 0xffff_ffff));
    await peer.wait(6);
    await new Promise((resolve) => setTimeout(resolve, 300));
    let read = 0n;
    for (const { message } of peer.seen) if (message['mid'] === 6n) read += message['count']!;
    expect(read).toBe(most);
    expect(socket.readableLength).toBeLessThanOrEqual(65_536);
  });
});

describe('a peer of SDP', () => {
  it.each([
    ['of version 3', { major: 3n }],
    ['with two buffers', { bufs: 2n }],
    ['with a sequence number', { mseq: 1n }],
    ['with another message', { mid: 1n }],
  ])('is rejected with a Hello %s', async (_name, change) => {
    const { port } = await serverOf();
    await expect(new ScriptedPeer().connect(port, { ...HELLO, ...change } as Message)).rejects.toThrow(
      'rejected',
    );
  });

  it.each([
    ['of version 1, which was not asked for', { major: 1n }],
    ['with two buffers', { bufs: 2n }],
    ['with an acknowledgement', { mseqAck: 1n }],
    ['with another message', { mid: 0n }],
    ['that takes no advertisement', { maxAdverts: 0n }],
    ['with buffers of 63 bytes', { localSize: 63n }],
  ])('is left with an error for a HelloAck %s', async (_name, change) => {
    const peer = new ScriptedPeer();
    cleanup.push(() => peer.close());
    const { port } = await peer.listen(undefined, { ...HELLO_ACK, ...change } as Message);
    const socket = connect({ protocol: 'sdp', host: '127.0.0.1', port });
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    expect(error).toMatchObject({ cause: { code: 'ERR_NOT_SUPPORTED' }, syscall: 'connect' });
    await peer.ended;
  });

  it('that aborts gives a reset', async () => {
    const [peer, , failed] = await peerOf();
    peer.send({ mid: 3n });
    expect(await failed).toMatchObject({ code: 'ECONNRESET' });
  });

  it('has its advertisement Read, and is told so in parts that sum up to it', async () => {
    const [peer, socket] = await peerOf();
    peer.send(advert(peer, 100_000), peer.memory.bytes.slice(0, 1));
    const seen: Buffer[] = [];
    let octets = 0;
    for await (const piece of socket.iterator({ destroyOnReturn: false })) {
      seen.push(piece as Buffer);
      octets += (piece as Buffer).length;
      if (octets === 100_000) break;
    }
    expect(Buffer.concat(seen).equals(Buffer.from(peer.memory.bytes.slice(0, 100_000)))).toBe(true);
    expect((await peer.wait(6))['count']).toBe(99_999n);
  });

  it('that never reads gets a cancel, and the bytes as Data', async () => {
    const [peer, socket] = await peerOf({ mode: 'source' });
    const data = Buffer.alloc(70_000, 7);
    socket.write(data);
    await peer.wait(0xfe);
    await peer.wait(8);
    peer.send({ mid: 4n });
    let octets = 1;
    for (let at = 0; octets < data.length; at++) {
      while (peer.seen.length <= at) {
        peer.send({ mid: 0xffn });
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      const { message, bytes } = peer.seen[at]!;
      if (message['mid'] === 0xffn) octets += bytes.length - 16;
    }
    expect(octets).toBe(data.length);
  });

  it('writes into a posted place', async () => {
    const [peer, socket] = await peerOf({ mode: 'sink' });
    const place = new Uint8Array(50_000);
    const count = socket.receiveInto(place);
    await expect.poll(() => peer.seen.some(({ message }) => message['flags'] === 4n)).toBe(true);
    peer.send({ mid: 7n, half: 0n, mode: 2n });
    const { stag, to, size, nonDiscards } = await peer.wait(0xfd);
    expect([size, nonDiscards]).toEqual([50_000n, 0n]);
    peer.write({ stag: stag!, to: to! }, 40_000);
    peer.send({ mid: 5n, count: 40_000n });
    expect(await count).toBe(40_000);
    expect(
      Buffer.from(place.subarray(0, 40_000)).equals(Buffer.from(peer.memory.bytes.slice(0, 40_000))),
    ).toBe(true);
  });

  it('may send anything: random messages end in an error or go on, and throw nothing', async () => {
    const random = seededRandom(37);
    const ids = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0x40, 0x41, 0xfd, 0xfe, 0xff].map(BigInt);
    for (let run = 0; run < 60; run++) {
      const [peer, socket, failed] = await peerOf({ mode: 'auto' }, run % 2 === 0 ? AZ01 : undefined);
      socket.resume();
      const drawn: bigint[] = [];
      for (let i = 0; i < 8; i++) {
        const mid = ids[random() % ids.length]!;
        drawn.push(mid);
        const u32 = (): bigint => BigInt(random() % 3 === 0 ? random() : random() % 70_000);
        peer.send(
          {
            mid,
            flags: BigInt(random() % 9 === 0 ? random() % 256 : 0),
            count: u32(),
            size: u32(),
            stag: BigInt(random() % 2 === 0 ? peer.memory.rkey : random()),
            to: peer.memory.addr,
            nonDiscards: u32(),
            slots: u32(),
            slot: BigInt(random() % 20),
            generation: BigInt(random() % 3),
            half: BigInt(random() % 2),
            mode: BigInt(random() % 4),
          },
          mid >= 0xfdn ? Buffer.alloc(random() % 3) : Buffer.alloc(0),
        );
      }
      peer.send({ mid: 0xffn, mseq: 0n });
      // A peer may abort the connection once it has ended its direction, and nothing is lost with that.
      const ended = drawn.indexOf(2n);
      if (ended >= 0 && drawn.includes(3n, ended)) await peer.ended;
      else expect(await failed).toMatchObject({ code: 'ECONNRESET' });
      socket.destroy();
    }
  }, 60_000);
});
