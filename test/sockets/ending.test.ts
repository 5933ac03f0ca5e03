/**
 * How a socket ends, under virtual time: it waits for its peer's end, not for ever, and not where there is
 * nothing to wait for.
 */
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LINGER_MS } from '../../src/rsocket/channel.ts';
import { DEFAULT_POLICY } from '../../src/mpa/policy.ts';
import { connect, createServer, type RdmaServer, type RdmaSocket } from '../../src/sockets/index.ts';
import { CLOSE_MS } from '../../src/sockets/socket.ts';
import { CONTROL, encodeSge, OP } from '../../src/rsocket/wire.ts';
import type { VirtualTime } from '../../src/testing.ts';
import type { Scripted } from './scripted.ts';
import { VirtualNetwork } from './virtual.ts';

const DISCONNECT = ((OP.CONTROL << 29) | CONTROL.DISCONNECT) >>> 0;
const SHUTDOWN = ((OP.CONTROL << 29) | CONTROL.SHUTDOWN) >>> 0;
/** Milliseconds within which ends that wait for nothing must come: the network takes one each way. */
const AT_ONCE = 20;

let time: VirtualTime;
let network: VirtualNetwork;
const running = <T>(promise: Promise<T>): Promise<T> => network.running(promise);
const scripted = (): Promise<Scripted> => network.scripted();

beforeEach(() => {
  network = new VirtualNetwork();
  ({ time } = network);
});
afterEach(() => network.close());

const closed = (socket: RdmaSocket): Promise<unknown> =>
  socket.closed ? Promise.resolve() : once(socket, 'close');

/** Two of a kind: `near`, which the server has accepted, ends first. */
async function pair(): Promise<{ server: RdmaServer; near: RdmaSocket; far: RdmaSocket }> {
  const server = createServer({ rnic: network.socketRnic }).listen(0, '127.0.0.1');
  await running(once(server, 'listening'));
  const accepted = once(server, 'connection') as Promise<RdmaSocket[]>;
  const far = connect({
    host: '127.0.0.1',
    port: (server.address() as { port: number }).port,
    rnic: network.peerRnic,
  });
  await running(once(far, 'connect'));
  const [near] = await running(accepted);
  return { server, near: near!, far };
}

/** What the peer says when half of its buffer is free again. */
function offerWindow({ session, peer, buffer, send }: Scripted): Promise<unknown> {
  const half = encodeSge({ addr: buffer.addr + 2048n, key: buffer.rkey, length: 2048 }, true);
  const write = session.execute({
    opcode: 'rdma-write',
    inline: half,
    rkey: peer.targetSgl.key,
    remoteAddr: peer.targetSgl.addr + 16n,
  });
  return Promise.all([write, send(OP.SGL, 64)]);
}

describe('a socket that has said DISCONNECT', () => {
  /** Its last words have been read; the clock stands where the wait begins. */
  async function said(): Promise<Scripted> {
    const s = await scripted();
    expect((await running(s.next())) >>> 29).toBe(OP.SGL);
    s.socket.write('last');
    s.socket.destroySoon();
    expect(await running(s.next())).toBe(4);
    expect(await running(s.next())).toBe(DISCONNECT);
    return s;
  }

  it('takes windows, credits and data of a slow peer, and closes when that has ended', async () => {
    const s = await said();
    let gone = false;
    s.socket.once('close', () => (gone = true));
    await running(offerWindow(s));
    await running(
      s.session.execute({
        opcode: 'rdma-write',
        inline: Buffer.from('late'),
        rkey: s.peer.dataBuffer.key,
        remoteAddr: s.peer.dataBuffer.addr,
      }),
    );
    await running(s.send(OP.DATA, 4));
    time.advance(CLOSE_MS / 2);
    await running(s.send(OP.CONTROL, CONTROL.KEEPALIVE));
    expect(gone).toBe(false);
    const from = time.now();
    await running(s.send(OP.CONTROL, CONTROL.DISCONNECT));
    expect((await running(s.session.closed)).cause).toBe('graceful');
    await running(closed(s.socket));
    expect([time.now() - from < AT_ONCE, s.socket.errored]).toEqual([true, null]);
  });

  it('closes when the peer ends its TCP without a word', async () => {
    const s = await said();
    const from = time.now();
    void s.session.close();
    await running(closed(s.socket));
    expect([time.now() - from < AT_ONCE, s.socket.errored]).toEqual([true, null]);
  });

  it('does not wait for ever, even for a peer that goes on talking', async () => {
    const s = await said();
    const from = time.now();
    const chatter = (async () => {
      for (;;) {
        await s.send(OP.SGL, 64);
        await new Promise<void>((resolve) => void time.at(time.now() + 10, resolve));
      }
    })().catch((error: Error) => error);
    await running(closed(s.socket));
    expect(time.now() - from).toBeGreaterThanOrEqual(CLOSE_MS - AT_ONCE);
    expect(time.now() - from).toBeLessThan(CLOSE_MS + AT_ONCE);
    expect(s.socket.errored).toBeNull();
    expect(await running(chatter)).toBeInstanceOf(Error);
    expect(time.now() - from).toBeGreaterThanOrEqual(LINGER_MS - AT_ONCE);
    expect(time.now() - from).toBeLessThan(LINGER_MS + AT_ONCE);
  });

  it('is closed without an error by a reset', async () => {
    const s = await said();
    s.session.connection.abort();
    await running(closed(s.socket));
    expect(s.socket.errored).toBeNull();
  });

  it('can still be reset from this side', async () => {
    const s = await said();
    const from = time.now();
    s.socket.resetAndDestroy();
    expect((await running(s.session.closed)).cause).toBe('reset');
    expect(time.now() - from).toBeLessThan(AT_ONCE);
  });
});

describe('a socket does not wait', () => {
  it('when the peer has said DISCONNECT before: what it sent can still be read', async () => {
    const s = await scripted();
    await running(
      s.session.execute({
        opcode: 'rdma-write',
        inline: Buffer.from('last words'),
        rkey: s.peer.dataBuffer.key,
        remoteAddr: s.peer.dataBuffer.addr,
      }),
    );
    await running(s.send(OP.DATA, 10));
    const from = time.now();
    await running(s.send(OP.CONTROL, CONTROL.DISCONNECT));
    // Nobody has read yet: the peer's end is answered all the same.
    expect((await running(s.session.closed)).cause).toBe('graceful');
    expect(String(s.socket.read())).toBe('last words');
    s.socket.resume();
    await running(closed(s.socket));
    expect(time.now() - from).toBeLessThan(AT_ONCE);
  });

  it('when it is destroyed with an error', async () => {
    const s = await scripted();
    s.socket.on('error', () => undefined);
    const from = time.now();
    const gone = new Promise<void>((resolve) => s.socket.once('close', () => resolve()));
    s.socket.write('before');
    s.socket.destroy(new Error('enough'));
    await running(gone);
    expect(time.now() - from).toBeLessThan(AT_ONCE);
    // The error is the program's own: earlier writes arrive, and the end in order, as with node:net.
    await running(s.next());
    expect([await running(s.next()), await running(s.next())]).toEqual([6, DISCONNECT]);
    expect((await running(s.session.closed)).cause).toBe('graceful');
  });

  it('for ever on a network that takes nothing', async () => {
    const s = await scripted();
    await running(s.next());
    const gone = closed(s.socket);
    network.stuck = true;
    s.socket.write('never leaves');
    s.socket.destroy();
    const from = time.now();
    await running(gone);
    expect(time.now() - from).toBeLessThan(CLOSE_MS + AT_ONCE);
    expect(time.now() - from).toBeGreaterThanOrEqual(CLOSE_MS);
    // The rest of it ends too, and the process does not wait for that.
    expect(network.held).toBe(false);
    const { qp } = network.socketRnic.device.objects;
    expect(qp.size).toBe(1);
    time.advance(LINGER_MS + DEFAULT_POLICY.closeTimeout);
    expect(qp.size).toBe(0);
  });

  it.each([300_000, 900_000])(
    'for a peer behind a slow link: its last %d octets arrive all the same',
    async (octets) => {
      const { server, near, far } = await pair();
      near.resume();
      let arrived = 0;
      const ended = once(far, 'end');
      far.on('data', (data: Buffer) => (arrived += data.length));
      network.pieceTakes = 3000;
      near.end(Buffer.alloc(octets, 1));
      near.destroySoon();
      await running(closed(near));
      expect(arrived).toBeLessThan(octets);
      expect(network.held).toBe(true);
      await running(ended);
      await running(closed(far));
      expect([arrived, far.errored, near.errored]).toEqual([octets, null, null]);
      server.close();
    },
  );

  it('after crossed half closes: it says DISCONNECT, as the peer may not have read all', async () => {
    const s = await scripted();
    await running(s.next());
    s.socket.resume();
    s.socket.end();
    expect(await running(s.next())).toBe(SHUTDOWN);
    await running(s.send(OP.CONTROL, CONTROL.SHUTDOWN));
    expect(await running(s.next())).toBe(DISCONNECT);
    await running(offerWindow(s));
    const from = time.now();
    await running(s.send(OP.CONTROL, CONTROL.DISCONNECT));
    expect((await running(s.session.closed)).cause).toBe('graceful');
    expect(time.now() - from).toBeLessThan(AT_ONCE);
  });

  it.each<readonly [string, (near: RdmaSocket, far: RdmaSocket) => void]>([
    [
      'one ends both ways',
      (near, far) => {
        far.resume();
        near.destroySoon();
      },
    ],
    [
      'one ends both ways, and the other does not read',
      (near) => {
        near.write('unread');
        near.destroySoon();
      },
    ],
    [
      'both end both ways',
      (near, far) => {
        near.destroySoon();
        far.destroySoon();
      },
    ],
    [
      'one half closes',
      (near, far) => {
        near.resume().end();
        far.resume();
      },
    ],
    [
      'half closes cross',
      (near, far) => {
        near.resume().end();
        far.resume().end();
      },
    ],
    [
      'one is destroyed',
      (near, far) => {
        far.resume();
        near.destroy();
      },
    ],
  ])('for another of its kind: %s', async (what, act) => {
    const { server, near, far } = await pair();
    const from = time.now();
    server.close();
    const over = once(server, 'close');
    act(near, far);
    await running(over);
    expect(time.now() - from).toBeLessThan(AT_ONCE);
    if (what.endsWith('does not read')) expect(String(far.read())).toBe('unread');
    far.resume();
    await running(closed(far));
    expect([time.now() - from < AT_ONCE, far.errored, near.errored]).toEqual([true, null, null]);
  });
});
