/**
 * A socket opposite a scripted rsocket peer: one that breaks the protocol, one that leaves in its own ways.
 */
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { connect } from '../../src/sockets/index.ts';
import {
  CONTROL,
  decodeConnectionData,
  decodeSge,
  encodeConnectionData,
  encodeSge,
  messageValue,
  OP,
} from '../../src/rsocket/wire.ts';
import { Session } from '../../cli/support/session.ts';
import { encodeMessage, Inbox, script as makeScript, type Scripted } from './scripted.ts';

const cleanup: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  // At once: a socket waits a while for the end of its peer.
  await Promise.all(cleanup.splice(0).map((each) => each()));
});

const script = (bigEndian = false): Promise<Scripted> =>
  makeScript({ cleanup, bigEndian, receiveBuffer: 1_048_576 });

describe('a socket opposite a script', () => {
  it('announces its second half at once, and credits', async () => {
    const { peer, next, list } = await script();
    expect(peer).toMatchObject({
      bigEndian: false,
      iomap: true,
      credits: 384,
      targetSgl: { length: 2 },
      dataBuffer: { length: 524_288 },
    });
    expect(await next()).toBe(((OP.SGL << 29) | 384) >>> 0);
    // The entry is the second of the list: the first came with the private data.
    const half = decodeSge(new DataView(list.bytes.buffer), 16);
    expect(half).toEqual({
      addr: peer.dataBuffer.addr + 524_288n,
      key: peer.dataBuffer.key,
      length: 524_288,
    });
    expect(decodeSge(new DataView(list.bytes.buffer), 0).length).toBe(0);
  });

  it.each(['thread', 'worker'] as const)(
    'begins with a small buffer, and offers a large one when half of that is full: engine %s',
    async (engine) => {
      const rnics = { socket: openRnic({ engine }), peer: openRnic({ engine: 'thread' }) };
      const { device } = rnics.socket;
      const { peer, next, list, session, send, socket } = await makeScript({ cleanup, rnics });
      const windowAt = (entry: number) => decodeSge(new DataView(list.bytes.buffer), 16 * entry);
      const fill = async (addr: bigint, key: number, letter: string): Promise<void> => {
        await session.execute({
          opcode: 'rdma-write',
          inline: Buffer.alloc(200, letter),
          rkey: key,
          remoteAddr: addr,
        });
        await send(OP.DATA, 200);
      };
      expect(peer.dataBuffer.length).toBe(65_536);
      expect(await next()).toBe(((OP.SGL << 29) | 384) >>> 0);
      expect(windowAt(1)).toEqual({ ...peer.dataBuffer, addr: peer.dataBuffer.addr + 65_536n });
      expect(device.connectionMemory.reserved).toBe(131_072);
      // Nothing is read here, and nothing has been written: the announced lengths decide.
      socket.pause();
      await send(OP.DATA, 65_535);
      await send(OP.DATA, 1);
      expect(await next()).toBe(((OP.SGL << 29) | 384) >>> 0);
      const size = engine === 'worker' ? 4_194_304 : 1_048_576;
      const large = windowAt(0);
      expect([large.length, large.key === peer.dataBuffer.key]).toEqual([size / 2, false]);
      expect(device.connectionMemory.reserved).toBe(131_072 + size);
      // The rest of the first buffer comes before the new window, and all of it in order.
      await fill(windowAt(1).addr, peer.dataBuffer.key, 'a');
      await send(OP.DATA, 65_536 - 200);
      await fill(large.addr, large.key, 'b');
      const seen: Buffer[] = [];
      socket.on('data', (data: Buffer) => seen.push(data)).resume();
      while (seen.reduce((sum, { length }) => sum + length, 0) < 131_272) await once(socket, 'data');
      const all = Buffer.concat(seen);
      expect([all.length, all.indexOf('a'), all.lastIndexOf('a'), all.indexOf('b')]).toEqual([
        131_272, 65_536, 65_735, 131_072,
      ]);
      socket.write('an answer');
      expect(messageValue(await next())).toBe(9);
      expect(device.connectionMemory.reserved).toBe(131_072 + size + 1_048_576);
    },
  );

  it('fills the window of the private data first, even if the next comes with the Reply', async () => {
    const rnic = openRnic();
    const session = new Session(rnic, { maxSendWr: 16, maxRecvWr: 16 });
    cleanup.push(() => session.close());
    const buffer = session.register(4096);
    const inbox = new Inbox(session, true);
    const listener = await rnic.cm.listen(
      { host: '127.0.0.1', policy: { responder: 'relaxed', responderDelay: 0 } },
      (request) => {
        const peer = decodeConnectionData(request.parameters!.privateData);
        const list = session.register(32);
        session.use(request);
        // Posted before the connection is accepted, so that all goes out together.
        const half = encodeSge({ addr: buffer.addr + 2048n, key: buffer.rkey, length: 2048 }, true);
        session.qp.postSend([
          {
            opcode: 'rdma-write',
            inline: half,
            signaled: false,
            rkey: peer.targetSgl.key,
            remoteAddr: peer.targetSgl.addr + 16n,
          },
          { opcode: 'send', inline: encodeMessage(OP.SGL, 64, true), signaled: false },
        ]);
        request.accept(session.qp, {
          privateData: encodeConnectionData({
            bigEndian: false,
            iomap: false,
            credits: 64,
            iomapSize: 0,
            targetSgl: { addr: list.addr, key: list.rkey, length: 2 },
            dataBuffer: { addr: buffer.addr, key: buffer.rkey, length: 2048 },
          }),
        });
      },
    );
    cleanup.push(() => new Promise<void>((resolve) => listener.close(resolve)));
    const socket = connect({ host: '127.0.0.1', port: listener.address.port, policy: { peerToPeer: false } });
    socket.write('first');
    let word = await inbox.next();
    while (word >>> 29 !== OP.DATA) word = await inbox.next();
    expect([word, Buffer.from(buffer.bytes.subarray(0, 5)).toString(), buffer.bytes[2048]]).toEqual([
      5,
      'first',
      0,
    ]);
    socket.destroy();
  });

  it.each([
    ['their end', OP.CONTROL, CONTROL.SHUTDOWN, 'end'],
    ['a message of no kind', OP.SGL + 1, 0, 'error'],
    ['more octets than there is room for', OP.DATA, 2_000_000, 'error'],
  ] as const)(
    'reads transfers that come together in one piece, and in front of %s',
    async (_, op, value, after) => {
      const { session, socket, peer } = await script();
      const { key, addr } = peer.dataBuffer;
      const seen: string[] = [];
      socket.on('data', (data: Uint8Array) => void seen.push(Buffer.from(data).toString()));
      socket.on('end', () => void seen.push('end')).on('error', () => void seen.push('error'));
      const transfers = ['one ', 'two ', 'three'].flatMap(
        (text, index) =>
          [
            {
              opcode: 'rdma-write',
              inline: Buffer.from(text),
              signaled: false,
              rkey: key,
              remoteAddr: addr + BigInt(4 * index),
            },
            { opcode: 'send', inline: encodeMessage(OP.DATA, text.length, true), signaled: false },
          ] as const,
      );
      session.qp.postSend([
        ...transfers,
        { opcode: 'send', inline: encodeMessage(op, value, true), signaled: false },
      ]);
      await once(socket, after);
      expect(seen).toEqual(['one two three', after]);
      socket.destroy();
    },
  );

  it.each(['thread', 'worker'] as const)(
    'shows a peer that announces what it has not written nothing of what others wrote: engine %s',
    async (engine) => {
      const rnics = { socket: openRnic({ engine }), peer: openRnic({ engine: 'thread' }) };
      const BUFFER = 1_000_000;
      const SECRET = Buffer.alloc(200, 'secret');
      const first = await makeScript({ cleanup, rnics, receiveBuffer: BUFFER });
      const { key, addr } = first.peer.dataBuffer;
      await first.session.execute({ opcode: 'rdma-write', inline: SECRET, rkey: key, remoteAddr: addr });
      await first.send(OP.DATA, SECRET.length);
      const [given] = (await once(first.socket, 'data')) as [Buffer];
      expect(given.equals(SECRET)).toBe(true);
      const gone = once(first.socket, 'error');
      first.session.connection.abort();
      await gone;
      const { device } = rnics.socket;
      const kept = device.connectionMemory.take(BUFFER, false);
      // else the rest would prove nothing
      expect(Buffer.from(kept.subarray(0, SECRET.length)).equals(SECRET)).toBe(true);
      device.connectionMemory.give(kept);
      const second = await makeScript({ cleanup, rnics, receiveBuffer: BUFFER });
      await second.send(OP.DATA, SECRET.length);
      const [shown] = (await once(second.socket, 'data')) as [Buffer];
      expect(shown.equals(Buffer.alloc(SECRET.length))).toBe(true);
    },
  );

  it('gives unread octets after the end, when the next connection has come', async () => {
    const rnics = { socket: openRnic(), peer: openRnic() };
    const fill = async ({ session, peer, send }: Scripted, letter: string): Promise<void> => {
      await session.execute({
        opcode: 'rdma-write',
        inline: Buffer.alloc(200, letter),
        rkey: peer.dataBuffer.key,
        remoteAddr: peer.dataBuffer.addr,
      });
      await send(OP.DATA, 200);
    };
    const first = await makeScript({ cleanup, rnics });
    await fill(first, 'a');
    await first.send(OP.CONTROL, CONTROL.DISCONNECT);
    await first.session.closed;
    await expect.poll(() => rnics.socket.device.query().inUse.qp).toBe(0);
    const second = await makeScript({ cleanup, rnics });
    await fill(second, 'b');
    for (const [{ socket }, letter] of [
      [second, 'b'],
      [first, 'a'],
    ] as const) {
      const [data] = (await once(socket, 'data')) as [Buffer];
      expect(data.toString()).toBe(letter.repeat(200));
    }
  });

  it('takes data that a message announces, and gives no octet before', async (): Promise<void> => {
    const { session, socket, peer, send } = await script();
    await session.execute({
      opcode: 'rdma-write',
      inline: Buffer.from('hello rsocket'),
      rkey: peer.dataBuffer.key,
      remoteAddr: peer.dataBuffer.addr,
    });
    await send(OP.CONTROL, CONTROL.KEEPALIVE);
    await new Promise<void>((resolve) => void setImmediate(() => resolve()));
    expect(socket.read()).toBeNull();
    const data = once(socket, 'data') as Promise<Buffer[]>;
    await send(OP.DATA, 5);
    expect((await data)[0]!.toString()).toBe('hello');
    const more = once(socket, 'data') as Promise<Buffer[]>;
    await send(OP.DATA, 8);
    expect((await more)[0]!.toString()).toBe(' rsocket');
  });

  it('writes from the front of the window, each in one transfer, no octet past its end', async () => {
    const { socket, next, buffer } = await script();
    expect((await next()) >>> 29).toBe(OP.SGL);
    socket.write(Buffer.alloc(2000, 1));
    expect(await next()).toBe(2000);
    socket.write(Buffer.alloc(3000, 2));
    expect(await next()).toBe(48);
    expect([buffer.bytes[1999], buffer.bytes[2000], buffer.bytes[2047], buffer.bytes[2048]]).toEqual([
      1, 2, 2, 0,
    ]);
    // as in node:net, with what waits for a window
    expect([socket.bytesWritten, socket.writableLength]).toEqual([5000, 3000]);
  });

  it('says half close and close by control messages', async () => {
    const { socket, next, send, session } = await script();
    await next();
    socket.resume();
    socket.end();
    expect(await next()).toBe(((OP.CONTROL << 29) | CONTROL.SHUTDOWN) >>> 0);
    await send(OP.CONTROL, CONTROL.SHUTDOWN);
    expect(await next()).toBe(((OP.CONTROL << 29) | CONTROL.DISCONNECT) >>> 0);
    await send(OP.CONTROL, CONTROL.DISCONNECT);
    expect((await session.closed).cause).toBe('graceful');
  });

  it('writes for a big-endian peer in its order', async () => {
    const { socket, next } = await script(true);
    expect(await next()).toBe(((OP.SGL << 29) | 384) >>> 0);
    socket.write('abc');
    expect(await next()).toBe(3);
  });

  it.each<readonly [string, (s: Scripted) => Promise<void>, string]>([
    ['more data than was offered', (s) => s.send(OP.DATA, 1_048_577), 'where 1048576 were offered'],
    ['a message of unknown kind', (s) => s.send(3, 0), 'unknown kind 3'],
    [
      'a message of another length',
      async (s) => void (await s.session.execute({ opcode: 'send', inline: new Uint8Array(3) })),
      'a message of 3 bytes',
    ],
  ])('ends with an error at %s', async (_what, act, words) => {
    const scripted = await script();
    const error = once(scripted.socket, 'error') as Promise<Error[]>;
    scripted.socket.resume();
    // Both halves must have been offered before their sum can be exceeded.
    await scripted.next();
    await act(scripted);
    expect(((await error)[0]!.cause as Error).message).toContain(words);
    expect((await scripted.session.closed).cause).not.toBe('graceful');
  });

  it('a peer that ends its TCP without a word ends the stream, and writes fail', async () => {
    const { socket, session } = await script();
    socket.resume();
    const end = once(socket, 'end');
    void session.close();
    await end;
    expect(socket.writable).toBe(false);
  });

  it('a peer that says shutdown and then ends its TCP does not leave a writer hanging', async () => {
    const { socket, session, send } = await script();
    socket.allowHalfOpen = true;
    socket.resume();
    const end = once(socket, 'end');
    await send(OP.CONTROL, CONTROL.SHUTDOWN);
    await end;
    const failed = once(socket, 'error') as Promise<Error[]>;
    socket.write(Buffer.alloc(100_000)); // beyond the window: it can only wait
    void session.close();
    expect((await failed)[0]).toMatchObject({ code: 'EPIPE', syscall: 'write' });
  });

  it('a peer that is reset is reported as an error', async () => {
    const { socket, session } = await script();
    socket.resume();
    const failed = once(socket, 'error') as Promise<(Error & { code: string })[]>;
    session.connection.abort();
    expect((await failed)[0]).toMatchObject({
      code: 'ECONNRESET',
      cause: { code: 'ERR_CONNECTION_RESET' },
    });
  });
});
