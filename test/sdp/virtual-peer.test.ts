// A peer of SDP that the test plays, in virtual time: what waits for credits, what keeps a connection alive,
// and what the protocol tolerates of a peer, where it connects and where it is connected to.
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { ScriptedPeer, type Message } from '../support/sdp-peer.ts';
import { VirtualNetwork } from '../sockets/virtual.ts';

const HOST = '127.0.0.1';
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

interface Peered {
  readonly network: VirtualNetwork;
  readonly peer: ScriptedPeer;
  readonly socket: RdmaSocket;
}

function networkOf(probes: boolean): VirtualNetwork {
  const network = new VirtualNetwork();
  if (probes) network.probes = [];
  cleanup.push(() => network.close());
  return network;
}

/** A scripted peer that has connected to a socket of ours; `probes`: the transport has a keep-alive. */
async function connectingPeer(options: RdmaSocketOptions = {}, probes = false): Promise<Peered> {
  const network = networkOf(probes);
  const { socketRnic: rnic, peerRnic } = network;
  const server = createServer({ protocol: 'sdp', allowHalfOpen: true, rnic, ...options }).listen(0, HOST);
  cleanup.push(() => network.running(server[Symbol.asyncDispose]()));
  await network.running(once(server, 'listening'));
  const taken = once(server, 'connection').then(([socket]) => socket as RdmaSocket);
  const peer = new ScriptedPeer(peerRnic);
  cleanup.push(() => network.running(peer.close()));
  await network.running(peer.connect((server.address() as { port: number }).port));
  peer.send({ mid: 0xffn });
  return { network, peer, socket: await network.running(taken) };
}

/** A scripted peer that a socket of ours has connected to. */
async function listeningPeer(options: RdmaSocketOptions = {}, probes = false): Promise<Peered> {
  const network = networkOf(probes);
  const peer = new ScriptedPeer(network.peerRnic);
  cleanup.push(() => network.running(peer.close()));
  const { port, connected } = await network.running(peer.listen());
  const rnic = network.socketRnic;
  const socket = connect({ protocol: 'sdp', allowHalfOpen: true, rnic, ...options, host: HOST, port });
  cleanup.push(() => socket.destroy());
  await network.running(Promise.all([connected, once(socket, 'connect')]));
  return { network, peer, socket };
}

const advert = (peer: ScriptedPeer, size: number): Message => ({
  mid: 0xfen,
  size: BigInt(size),
  stag: BigInt(peer.memory.rkey),
  to: peer.memory.addr,
});

const after = ({ time }: VirtualNetwork, ms: number): Promise<void> =>
  new Promise((resolve) => void time.at(time.now() + ms, () => resolve()));

/** The peer takes back every credit that is not in use, and the socket has noticed. */
async function withoutCredit({ network, peer, socket }: Peered): Promise<void> {
  peer.send({ mid: 0xffn, bufs: 0n }, Buffer.alloc(1));
  await network.running(once(socket, 'data'));
}

it('a server of ours takes a Write as RTR, which needs no answer', async () => {
  const { peer } = await connectingPeer();
  expect(peer.rtr).toBe('write');
});

describe.each([
  ['listens', connectingPeer],
  ['connects', listeningPeer],
] as const)('where our side %s', (_role, pair) => {
  it('DisConn waits for a credit (A19)', async () => {
    const pairing = await pair();
    const { network, peer, socket } = pairing;
    await withoutCredit(pairing);
    socket.end();
    network.time.advance(60_000);
    expect(peer.seen.some(({ message }) => message['mid'] === 2n)).toBe(false);
    peer.send({ mid: 0xffn });
    await network.running(peer.wait(2));
  });

  it('a DisConn that acknowledges ours ends the connection at once, without an update (A48)', async () => {
    const { network, peer, socket } = await pair();
    await network.running(after(network, 100));
    socket.resume().end();
    await network.running(peer.wait(2));
    const before = { seen: peer.seen.length, written: network.written, time: network.time.now() };
    peer.send({ mid: 2n });
    await network.running(Promise.all([once(socket, 'close'), peer.ended]));
    expect(peer.seen.length).toBe(before.seen);
    expect(network.written).toBe(before.written);
    expect(network.time.now() - before.time).toBeLessThan(100);
    expect(socket.errored).toBeNull();
  });

  it('a DisConn that has crossed ours gets an update, and an update ends the connection (A48)', async () => {
    const { network, peer, socket } = await pair();
    await network.running(after(network, 100));
    const before = peer.seen.length;
    const start = network.time.now();
    let isClosed = false;
    const closed = once(socket, 'close').then(() => (isClosed = true));
    socket.resume().end();
    const { mseq } = await network.running(peer.wait(2));
    peer.send({ mid: 2n, mseqAck: mseq! - 1n });
    const update = await network.running(peer.wait(0xff, before));
    expect(update).toMatchObject({ length: 16n, mseqAck: peer.sent });
    expect(peer.seen.slice(before).map(({ message }) => message['mid'])).toEqual([2n, 0xffn]);
    await network.running(after(network, 100));
    expect(isClosed).toBe(false);
    peer.send({ mid: 0xffn });
    await network.running(Promise.all([closed, peer.ended]));
    expect(network.time.now() - start).toBeLessThan(1000);
    expect(socket.errored).toBeNull();
  });

  it('AbortConn waits for a credit (A19)', async () => {
    const pairing = await pair();
    const { network, peer, socket } = pairing;
    await withoutCredit(pairing);
    const start = network.time.now();
    const before = network.written;
    socket.resetAndDestroy();
    network.time.advance(900);
    expect(network.written).toBe(before);
    peer.send({ mid: 0xffn, bufs: 1n });
    expect((await network.running(peer.ended)).terminate).toBeUndefined();
    // The reset behind it, which no longer waits, takes it away from this network's peer.
    expect([network.written - before, network.time.now() - start < 1000]).toEqual([40, true]);
  });

  it('a reset without AbortConn and Terminate follows after a second without credit (A19)', async () => {
    const pairing = await pair();
    const { network, peer, socket } = pairing;
    await withoutCredit(pairing);
    const start = network.time.now();
    const before = network.written;
    socket.resetAndDestroy();
    expect((await network.running(peer.ended)).terminate).toBeUndefined();
    const took = network.time.now() - start;
    expect([took >= 1000, took < 2000], `${took} ms`).toEqual([true, true]);
    expect(network.written).toBe(before);
  });

  it('a change to pipelined mode while a SrcAvail is unanswered is tolerated (A22)', async () => {
    const { network, peer, socket } = await pair();
    peer.send(advert(peer, 60_000), peer.memory.bytes.slice(0, 1));
    peer.send({ mid: 7n, half: 0n, mode: 2n });
    peer.send(advert(peer, 70_000)); // without inline bytes, as in pipelined mode
    const seen: Buffer[] = [];
    let octets = 0;
    socket.on('data', (data: Buffer) => (seen.push(data), (octets += data.length)));
    const answers = (): bigint[] =>
      peer.seen.flatMap(({ message }) => (message['mid'] === 6n ? [message['count']!] : []));
    while (octets < 130_000 || answers().reduce((sum, each) => sum + each, 0n) < 129_999n)
      await network.running(after(network, 1));
    const memory = Buffer.from(peer.memory.bytes);
    const wanted = Buffer.concat([memory.subarray(0, 60_000), memory.subarray(0, 70_000)]);
    expect(Buffer.concat(seen).equals(wanted)).toBe(true);
    // No RdmaRdCompl is over both.
    let first = 0n;
    for (const each of answers()) if (first < 59_999n) first += each;
    expect(first).toBe(59_999n);
  });

  it('no update goes to a peer that has ended while it has credits for its answers', async () => {
    const { network, peer, socket } = await pair();
    await network.running(after(network, 100));
    socket.write('x'); // all credits go with it
    await network.running(after(network, 100));
    const before = peer.seen.length;
    peer.send({ mid: 0xffn }, Buffer.alloc(1));
    peer.send({ mid: 2n });
    await network.running(once(socket.resume(), 'end'));
    network.time.advance(1000);
    expect(peer.seen.length).toBe(before);
    peer.send({ mid: 0xffn });
    await network.running(peer.wait(0xff, before));
    socket.end();
    await network.running(peer.wait(2));
  });

  describe('a cancel of ours', () => {
    const data = Buffer.from(Array.from({ length: 5000 }, (_, at) => at % 251));

    /** All of `data` but its first byte is advertised, and the advertisement is `ms` old. */
    async function advertised(ms: number): Promise<Peered & { readonly written: Promise<unknown> }> {
      const pairing = await pair({ mode: 'source', zeroCopyFrom: 1000 });
      const { network, peer, socket } = pairing;
      const written = new Promise((resolve) => socket.write(data, resolve));
      await network.running(peer.wait(0xfe));
      await network.running(after(network, ms - 1)); // it was a millisecond on its way
      return { ...pairing, written };
    }
    /** All has been written, and is there. */
    async function arrived({ network, written }: Awaited<ReturnType<typeof advertised>>): Promise<void> {
      expect(await network.running(written)).not.toBeInstanceOf(Error);
      await network.running(after(network, 10));
    }
    const cancels = (peer: ScriptedPeer): number =>
      peer.seen.filter(({ message }) => message['mid'] === 8n).length;

    it('behind a partial RdmaRdCompl takes back what is left, a second after that', async () => {
      const pairing = await advertised(900);
      const { network, peer } = pairing;
      peer.send({ mid: 6n, count: 999n });
      await network.running(after(network, 1000)); // of those the RdmaRdCompl was one on its way
      expect(cancels(peer)).toBe(0);
      await network.running(after(network, 3));
      expect(cancels(peer)).toBe(1);
      expect(peer.dataBehind().length).toBe(0);
      peer.send({ mid: 4n });
      await arrived(pairing);
      expect(peer.dataBehind().equals(data.subarray(1000))).toBe(true);
    });

    it.each([
      ['an empty Data', [{ mid: 0xffn }]],
      ['a second SendSm', [{ mid: 4n }]],
      ['an empty Data and a second SendSm', [{ mid: 0xffn }, { mid: 4n }]],
    ])('that a SendSm crosses ends with %s, and the bytes go once', async (_name, answers: Message[]) => {
      const pairing = await advertised(1000);
      const { network, peer, socket } = pairing;
      peer.send({ mid: 4n });
      const before = peer.sent;
      const cancel = await network.running(peer.wait(8));
      expect(cancel['mseqAck']).toBeLessThan(before);
      await network.running(after(network, 500)); // the cancel is not acknowledged
      expect(peer.dataBehind().length).toBe(0);
      for (const answer of answers) peer.send(answer);
      await arrived(pairing);
      expect(peer.dataBehind().equals(data.subarray(1))).toBe(true);
      // The next advertisement is like the first.
      const from = peer.seen.length;
      socket.write(data);
      expect((await network.running(peer.wait(0xfe, from)))['size']).toBe(5000n);
    });

    it('that the last RdmaRdCompl crosses leaves nothing: an empty Data ends it', async () => {
      const { network, peer, socket, written } = await advertised(1000);
      peer.send({ mid: 6n, count: 4999n });
      await network.running(peer.wait(8));
      expect(await network.running(written)).not.toBeInstanceOf(Error);
      socket.write('x');
      await network.running(after(network, 500));
      expect(peer.dataBehind().length).toBe(0); // the answer may still be a SendSm
      peer.send({ mid: 0xffn });
      await network.running(after(network, 500));
      expect(peer.dataBehind()).toEqual(Buffer.from('x'));
      expect(cancels(peer)).toBe(1);
    });
  });

  describe("a cancel of the peer's", () => {
    /** What the socket says behind `from` messages: ids, and whether they acknowledge message `cancel`. */
    const said = (peer: ScriptedPeer, from: number, cancel: bigint): [bigint, boolean][] =>
      peer.seen.slice(from).map(({ message }) => [message['mid']!, message['mseqAck']! >= cancel]);

    async function read(network: VirtualNetwork, socket: RdmaSocket, octets: number): Promise<Buffer> {
      const parts: Buffer[] = [];
      socket.on('data', (part: Buffer) => parts.push(part));
      const count = (): number => parts.reduce((sum, { length }) => sum + length, 0);
      while (count() < octets) await network.running(once(socket, 'data'));
      return Buffer.concat(parts);
    }

    it('with nothing left is answered by an empty Data', async () => {
      const { network, peer, socket } = await pair();
      peer.send(advert(peer, 5000), peer.memory.bytes.slice(0, 1));
      expect((await network.running(peer.wait(6)))['count']).toBe(4999n);
      await network.running(after(network, 10));
      const from = peer.seen.length;
      peer.send({ mid: 8n });
      await network.running(after(network, 10));
      expect(said(peer, from, peer.sent)).toEqual([[0xffn, true]]);
      expect(peer.seen.at(-1)!.bytes.length).toBe(16);
      expect((await read(network, socket, 5000)).equals(peer.memory.bytes.subarray(0, 5000))).toBe(true);
    });

    it('while our Read of all is out waits for that, and nothing is left', async () => {
      const { network, peer, socket } = await pair();
      const from = peer.seen.length;
      peer.send(advert(peer, 60_000), peer.memory.bytes.slice(0, 1));
      peer.send({ mid: 8n });
      await network.running(after(network, 100));
      expect(said(peer, from, peer.sent)).toEqual([
        [6n, false],
        [0xffn, true],
      ]);
      expect(peer.seen[from]!.message['count']).toBe(59_999n);
      expect(peer.seen.at(-1)!.bytes.length).toBe(16);
      expect((await read(network, socket, 60_000)).equals(peer.memory.bytes.subarray(0, 60_000))).toBe(true);
    });

    it('while our Read of a part is out asks for the rest as Data, behind what has been read', async () => {
      // So little is read ahead of the program.
      const { network, peer, socket } = await pair({ privateBuffers: { count: 4, size: 16_384 } });
      const from = peer.seen.length;
      peer.send(advert(peer, 70_000), peer.memory.bytes.slice(0, 1));
      peer.send({ mid: 8n });
      await network.running(after(network, 100));
      expect(said(peer, from, peer.sent)).toEqual([
        [6n, false],
        [4n, true],
      ]);
      expect(peer.seen[from]!.message['count']).toBe(65_536n);
      peer.send({ mid: 0xffn }, peer.memory.bytes.slice(65_537, 70_000));
      expect((await read(network, socket, 70_000)).equals(peer.memory.bytes.subarray(0, 70_000))).toBe(true);
      // And no Read of the rest followed.
      expect(peer.seen.slice(from).filter(({ message }) => message['mid'] === 6n)).toHaveLength(1);
    });
  });

  describe('a peer that advertises 4 GiB and answers no Read', () => {
    /** The Read is out, and nothing more comes. */
    async function holding(): Promise<Peered> {
      const pairing = await pair();
      const { network, peer, socket } = pairing;
      await network.running(after(network, 100));
      const reads = (): number => peer.qp.counters()!.messagesIn.reads;
      const before = reads();
      socket.on('error', () => undefined).resume();
      peer.send({ mid: 7n, half: 0n, mode: 2n });
      peer.send(advert(peer, 0xffff_ffff));
      network.time.advance(0);
      network.silent = true;
      await network.running(after(network, 100));
      expect(reads() - before).toBe(1);
      return pairing;
    }

    it('holds the stream as one that sends nothing: the program may end it, no keep-alive does', async () => {
      const { network, socket } = await holding();
      socket.setKeepAlive(true, 60_000);
      let silences = 0;
      socket.setTimeout(30_000).on('timeout', () => silences++);
      network.time.advance(600_000);
      await network.running(after(network, 1));
      expect([socket.destroyed, socket.bytesRead, silences]).toEqual([false, 0, 1]);
    });

    it.each<[string, (socket: RdmaSocket) => void, number]>([
      ['destroy()', (socket) => socket.destroy(), 75_000],
      ['resetAndDestroy()', (socket) => socket.resetAndDestroy(), 2000],
    ])('is gone after %s, and its memory with it', async (_name, leave, ms) => {
      const { network, socket } = await holding();
      const { device } = network.socketRnic;
      expect(device.query().inUse.qp).toBe(1);
      leave(socket);
      await network.running(once(socket, 'close'));
      network.time.advance(ms);
      await network.running(after(network, 1));
      expect(device.query().inUse).toMatchObject({ qp: 0, mr: 0, pd: 0 });
    });
  });

  it('a keep-alive is a Write of no bytes at each interval, which is no message', async () => {
    const { network, peer, socket } = await pair();
    await network.running(after(network, 100));
    const before = peer.qp.counters()!.fpdusIn;
    const messages = peer.seen.length;
    socket.setKeepAlive(true, 5000);
    network.time.advance(3 * 5000 + 100);
    expect(peer.qp.counters()!.fpdusIn - before).toBe(3);
    socket.setKeepAlive(false);
    network.time.advance(60_000);
    expect(peer.qp.counters()!.fpdusIn - before).toBe(3);
    expect(peer.seen.length).toBe(messages); // no number, no credit
    socket.write('and data');
    const data = await network.running(peer.wait(0xff, messages));
    expect(data['length']).toBe(24n);
  });

  it('the keep-alive of a transport that has one is used instead', async () => {
    const { network, socket } = await pair({}, true);
    const { probes } = network;
    socket.setKeepAlive(true, 5000);
    socket.setKeepAlive(false);
    expect(probes).toEqual([
      [true, 5000],
      [false, 0],
    ]);
  });
});

it.each([
  ['connects', 'first'],
  ['connects', 'last'],
  ['is connected to', 'first'],
  ['is connected to', 'last'],
] as const)(
  'of two sockets of ours the one that %s and ends %s writes its DisConn alone (A48)',
  async (role, turn) => {
    const network = networkOf(false);
    const { socketRnic, peerRnic } = network;
    const [client, listener] = role === 'connects' ? [socketRnic, peerRnic] : [peerRnic, socketRnic];
    const options = { protocol: 'sdp', allowHalfOpen: true } as const;
    const server = createServer({ ...options, rnic: listener }).listen(0, HOST);
    cleanup.push(() => network.running(server[Symbol.asyncDispose]()));
    await network.running(once(server, 'listening'));
    const taken = once(server, 'connection').then(([socket]) => socket as RdmaSocket);
    const { port } = server.address() as { port: number };
    const active = connect({ ...options, rnic: client, host: HOST, port });
    const passive = await network.running(taken);
    await network.running(after(network, 100));
    const [before, start] = [network.written, network.time.now()];
    const closed = Promise.all([active, passive].map((each) => once(each.resume(), 'close')));
    const [first, last] =
      (role === 'connects') === (turn === 'first') ? [active, passive] : [passive, active];
    first.end();
    await network.running(once(last, 'end'));
    last.end();
    await network.running(closed);
    // Headers of FPDU and segment, the message's 16, and CRC.
    expect(network.written - before).toBe(20 + 16 + 4);
    expect(network.time.now() - start).toBeLessThan(100);
    expect([first.errored, last.errored]).toEqual([null, null]);
  },
);
