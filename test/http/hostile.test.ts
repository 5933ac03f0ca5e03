/** Servers and clients of HTTP's Upgrade that break its order: bytes too early, ends too early, twice. */
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { acceptUpgrade, connectHttp } from '../../src/http/index.ts';
import type { Connection } from '../../src/index.ts';

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).toReversed()) await each();
});

async function listen(server: http.Server | net.Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanup.push(() => {
    server.close();
    (server as http.Server).closeAllConnections?.();
  });
  return (server.address() as AddressInfo).port;
}

/** A server that answers each connection with these bytes, in pieces. */
const answering = (...pieces: string[]): Promise<number> =>
  listen(
    net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      socket
        .on('error', () => undefined)
        .once('data', async () => {
          for (const piece of pieces) {
            socket.write(piece, 'latin1');
            await new Promise((resolve) => setTimeout(resolve, 10));
          }
          if (pieces.at(-1) === '') socket.end();
        });
    }),
  );

const SWITCHING = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: iwarp\r\n\r\n';
const ASK = 'GET /rdma HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: iwarp\r\n';
const MPA_REPLY = 'MPA ID Rep Frame\x40\x01\x00\x00';

const refused = async (port: number): Promise<{ code: string }> => {
  const attempt = connectHttp(`http://127.0.0.1:${port}/`, { timeout: 2000 });
  return await attempt.then(
    () => ({ code: 'none' }),
    (error: unknown) => error as { code: string },
  );
};

describe('a hostile server', () => {
  it.each([
    ['bytes before the 101', ['garbage\r\n', SWITCHING]],
    ['an MPA Reply before the 101', [MPA_REPLY, SWITCHING]],
    ['half of a 101, then the end', [SWITCHING.slice(0, 40), '']],
    ['the end right behind the 101', [SWITCHING, '']],
    ['the 101 twice', [SWITCHING + SWITCHING]],
    ['the 101 twice, in two pieces', [SWITCHING, SWITCHING]],
    ['an MPA Request where the Reply has to be', [SWITCHING, 'MPA ID Req Frame\x40\x01\x00\x00']],
    ['half of an MPA Reply, then the end', [SWITCHING, MPA_REPLY.slice(0, 9), '']],
    ['an MPA Reply whose private data is too long', [SWITCHING, 'MPA ID Rep Frame\x40\x01\xff\xff']],
  ])('that sends %s gets no connection', async (_name, pieces) => {
    expect((await refused(await answering(...pieces))).code).toMatch(
      /^ERR_(STARTUP|CONNECT|CONNECTION_RESET)$/,
    );
  });

  it('that sends its MPA Reply together with the 101 has sent it before the Request', async () => {
    // RFC 5044 7.1.2: the Reply answers the Request, which cannot have come yet.
    expect((await refused(await answering(SWITCHING + MPA_REPLY))).code).toBe('ERR_STARTUP');
  });
});

describe('a hostile client', () => {
  interface Served {
    readonly port: number;
    readonly taken: Connection[];
    readonly errors: string[];
  }

  async function serving(
    before: () => Promise<unknown> = () => Promise.resolve(),
    times = 1,
  ): Promise<Served> {
    const [taken, errors]: [Connection[], string[]] = [[], []];
    const take = async (request: http.IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
      // Node's server listens no more, and this program thinks first.
      socket.on('error', () => undefined);
      await before();
      for (let i = 0; i < times; i++)
        await acceptUpgrade(request, socket, head).then(
          (connection) => taken.push(connection),
          (error: unknown) => errors.push((error as { code: string }).code),
        );
    };
    const server = http
      .createServer()
      .on('upgrade', (request, socket, head) => void take(request, socket, head));
    return { port: await listen(server), taken, errors };
  }

  it.each([
    ['ends its half right behind the request', `${ASK}\r\n`, 0],
    ['ends its half while the program still thinks', `${ASK}\r\n`, 30],
  ])('that %s gets no connection', async (_name, text, pause) => {
    const { port, errors, taken } = await serving(() => new Promise((resolve) => setTimeout(resolve, pause)));
    const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
    socket.end(text);
    await expect.poll(() => errors.length).toBe(1);
    expect([errors[0]!.startsWith('ERR_'), taken.length]).toEqual([true, 0]);
    socket.destroy();
  });

  it('that resets while the program still thinks gets a typed error', async () => {
    const { port, errors } = await serving(() => new Promise((resolve) => setTimeout(resolve, 50)));
    const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
    socket.write(`${ASK}\r\n`);
    await new Promise((resolve) => setTimeout(resolve, 10));
    socket.resetAndDestroy();
    await expect.poll(() => errors.length).toBe(1);
    expect(errors[0]).toMatch(/^ERR_/);
  });

  it('sends half of its MPA Request with the first bytes behind the 101: taken with the rest', async () => {
    const { port, taken, errors } = await serving();
    const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
    socket.write(`${ASK}\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    socket.write('MPA ID Req');
    await new Promise((resolve) => setTimeout(resolve, 20));
    socket.write(' Frame\x40\x01\x00\x00', 'latin1');
    await expect.poll(() => taken.length).toBe(1);
    expect(errors).toEqual([]);
    taken[0]!.destroy();
    socket.destroy();
  });

  it('is upgraded once: a second call for the same socket is refused, the first goes on', async () => {
    const { port, taken, errors } = await serving(undefined, 2);
    const connection = await connectHttp(`http://127.0.0.1:${port}/`).catch(
      (error: unknown) => error as Error,
    );
    await expect.poll(() => errors.length).toBe(1);
    expect([taken.length, errors[0]]).toEqual([1, 'ERR_INVALID_STATE']);
    if (!(connection instanceof Error)) connection.destroy();
    taken[0]!.destroy();
  });
});
