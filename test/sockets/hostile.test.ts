/** Sockets opposite a peer that breaks the rsocket protocol with numbers, or floods it with messages. */
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { createServer, connect } from '../../src/sockets/index.ts';
import { Session } from '../../cli/support/session.ts';
import {
  CONTROL,
  encodeConnectionData,
  encodeSge,
  messageValue,
  OP,
  type RemoteMemory,
} from '../../src/rsocket/wire.ts';
import { encodeMessage, script } from './scripted.ts';

const cleanup: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  await Promise.all(cleanup.splice(0).map((each) => each()));
});

const TOP = (1n << 64n) - 1n;
const LIST: RemoteMemory = { addr: 0x1000n, key: 1, length: 2 };
const BUFFER: RemoteMemory = { addr: 0x2000n, key: 2, length: 65_536 };

describe.each(['thread', 'worker'] as const)('a server whose engine is a %s', (engine) => {
  it.each([
    ['a list at 2^64-1', { ...LIST, addr: TOP }, BUFFER, 384],
    ['a list of no entries', { ...LIST, length: 0 }, BUFFER, 384],
    ['a list of 2^32-1 entries', { ...LIST, addr: TOP - 0xffn, length: 0xffff_ffff }, BUFFER, 384],
    ['a buffer at 2^64-8', LIST, { ...BUFFER, addr: TOP - 7n }, 384],
    ['an empty buffer', LIST, { ...BUFFER, length: 0 }, 384],
    ['a buffer of 2^32-1 bytes', LIST, { ...BUFFER, length: 0xffff_ffff }, 384],
    ['no credits', LIST, BUFFER, 0],
  ] as const)('goes on after private data with %s', async (_, targetSgl, dataBuffer, credits) => {
    const rnic = openRnic({ engine });
    const server = createServer({ rnic }, (socket) => socket.on('error', () => undefined).pipe(socket));
    server.listen(0, '127.0.0.1');
    cleanup.push(() => server[Symbol.asyncDispose]());
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const session = new Session(openRnic({ engine: 'thread' }), { maxSendWr: 8, maxRecvWr: 8 });
    cleanup.push(() => session.close());
    const privateData = encodeConnectionData({
      bigEndian: false,
      iomap: true,
      credits,
      iomapSize: 0,
      targetSgl,
      dataBuffer,
    });
    session.use(session.rnic.cm.connect(session.qp, { host: '127.0.0.1', port, privateData }));
    await session.established.catch(() => undefined);
    const socket = connect(port, '127.0.0.1');
    socket.end('still here');
    const seen: Buffer[] = [];
    for await (const data of socket) seen.push(data as Buffer);
    expect(String(Buffer.concat(seen))).toBe('still here');
  });
});

describe('a socket', () => {
  const failure = async (
    act: (scripted: Awaited<ReturnType<typeof script>>) => unknown,
  ): Promise<Error & { code: string }> => {
    const scripted = await script({ cleanup, receiveBuffer: 1_048_576 });
    const failed = once(scripted.socket, 'error') as Promise<(Error & { code: string })[]>;
    scripted.socket.on('data', () => undefined);
    await act(scripted);
    return (await failed)[0]!;
  };

  it('ends with a protocol error when data comes behind the end of its direction', async () => {
    const error = await failure(async ({ session }) => {
      session.qp.postSend([
        { opcode: 'send', inline: encodeMessage(OP.CONTROL, CONTROL.SHUTDOWN, true), signaled: false },
        { opcode: 'send', inline: encodeMessage(OP.DATA, 1, true), signaled: false },
      ]);
      await Promise.resolve();
    });
    expect((error.cause as Error).message).toMatch('data behind the end');
  });

  it('ends with a protocol error when a window lies beyond 2^64', async () => {
    const error = await failure(async ({ session, peer, send }) => {
      await session.execute({
        opcode: 'rdma-write',
        inline: encodeSge({ addr: TOP - 7n, key: 1, length: 64 }, true),
        rkey: peer.targetSgl.key,
        remoteAddr: peer.targetSgl.addr + 16n,
      });
      await send(OP.SGL, 64);
    });
    expect((error.cause as Error).message).toMatch('beyond 2^64');
  });

  it('ends with a protocol error when more windows are offered than the protocol knows', async () => {
    const error = await failure(async ({ session, peer, send, buffer }) => {
      // The socket may end the connection while the last is still under way.
      for (const entry of [1, 0, 1]) {
        const written = session.execute({
          opcode: 'rdma-write',
          inline: encodeSge({ addr: buffer.addr, key: buffer.rkey, length: 64 }, true),
          rkey: peer.targetSgl.key,
          remoteAddr: peer.targetSgl.addr + BigInt(16 * entry),
        });
        await written.then(() => send(OP.SGL, 64)).catch(() => undefined);
      }
    });
    expect((error.cause as Error).message).toMatch('more receive buffers');
  });

  it('ends with a protocol error when a paused reader gets more messages than it gave credits', async () => {
    const scripted = await script({ cleanup, receiveBuffer: 1_048_576 });
    const { session, socket } = scripted;
    socket.pause();
    const failed = once(socket, 'error') as Promise<Error[]>;
    for (let sent = 0; sent < 400 && !socket.destroyed; sent += 16) {
      const list = Array.from({ length: 16 }, () => ({
        opcode: 'send' as const,
        inline: encodeMessage(OP.DATA, 1, true),
        signaled: false,
      }));
      list.pop();
      session.qp.postSend(list);
      await scripted.send(OP.DATA, 1).catch(() => undefined);
    }
    expect(((await failed)[0]!.cause as Error).message).toMatch('no credit');
  });

  it('gives credits for empty messages, which bring no data', async () => {
    const { session, socket, send, next } = await script({ cleanup, receiveBuffer: 1_048_576 });
    socket.on('data', () => undefined);
    expect(messageValue(await next())).toBe(384);
    for (let sent = 0; sent < 384; sent += 16) {
      session.qp.postSend(
        Array.from({ length: 15 }, () => ({
          opcode: 'send' as const,
          inline: encodeMessage(OP.DATA, 0, true),
          signaled: false,
        })),
      );
      await send(OP.DATA, 0);
    }
    expect([messageValue(await next()), messageValue(await next())]).toEqual([576, 768]);
    expect([socket.destroyed, socket.bytesRead]).toEqual([false, 0]);
    socket.destroy();
  });
});
