/** HTTP's Upgrade to RDMA, both sides, and what a hostile client or server may do. */
import http from 'node:http';
import https from 'node:https';
import net, { type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import {
  acceptUpgrade,
  connectHttp,
  HttpUpgradeError,
  isUpgrade,
  refuseUpgrade,
} from '../../src/http/index.ts';
import { createServer, type Connection } from '../../src/index.ts';
import { identity } from '../support/certificates.ts';

const open: (http.Server | https.Server | net.Server)[] = [];
afterEach(() => {
  for (const server of open.splice(0)) {
    server.close();
    (server as http.Server).closeAllConnections?.();
  }
});

async function listen(server: http.Server | https.Server | net.Server): Promise<number> {
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

type Take = (request: http.IncomingMessage, socket: Duplex, head: Buffer) => unknown;

async function serving(take: Take): Promise<number> {
  return await listen(http.createServer((_request, response) => response.end('plain')).on('upgrade', take));
}

/** What a raw client gets for its bytes, until the server closes or 300 ms have passed. */
async function raw(port: number, text: string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1');
  const parts: Buffer[] = [];
  socket.on('data', (part: Buffer) => parts.push(part)).on('error', () => undefined);
  socket.write(text, 'latin1');
  await new Promise((resolve) => {
    socket.once('close', resolve);
    setTimeout(resolve, 300);
  });
  socket.destroy();
  return Buffer.concat(parts).toString('latin1');
}

const ASK = 'GET /rdma HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: iwarp\r\n';

describe('HTTP upgrade', () => {
  it('moves to RDMA behind the authentication of the program', async () => {
    const taken: Connection[] = [];
    const port = await serving(async (request, socket, head) => {
      if (!isUpgrade(request) || request.headers.authorization !== 'Bearer ok')
        return refuseUpgrade(socket, 403);
      const connection = await acceptUpgrade(request, socket, head, { headers: { 'X-Made': 'yes' } });
      taken.push(connection);
      await connection.send('hello');
    });
    const url = `http://127.0.0.1:${port}/rdma`;
    await expect(connectHttp(url)).rejects.toMatchObject({ code: 'ERR_REJECTED', status: 403 });
    const connection = await connectHttp(url, { headers: { authorization: 'Bearer ok' } });
    expect((await connection.receive())!.text()).toBe('hello');
    // The port still speaks HTTP.
    expect(await (await fetch(url)).text()).toBe('plain');
    await connection.close();
    await taken[0]!.closed;
  });

  it('works over HTTPS, and with a server of connections', async () => {
    const ours = identity('localhost');
    const names: (string | undefined)[] = [];
    const server = createServer(
      { engine: 'thread' },
      (connection) => void names.push(connection.tls?.protocol),
    );
    const secure = https.createServer(ours).on('upgrade', (request, socket, head) => {
      void acceptUpgrade(request, socket, head, { server });
    });
    const port = await listen(secure);
    const connection = await connectHttp(`https://127.0.0.1:${port}/`, {
      request: { ca: ours.cert } as https.RequestOptions,
    });
    expect(connection.tls).toMatchObject({ authorized: true, peerName: 'localhost' });
    expect(names).toEqual(['TLSv1.3']);
    await connection.close();
    await server.close();
  });

  it('gives the answer of a server that does not upgrade', async () => {
    const port = await listen(
      http.createServer((_request, response) =>
        response.writeHead(404, { 'X-Why': 'no' }).end('x'.repeat(10_000)),
      ),
    );
    const error = await connectHttp(`http://127.0.0.1:${port}/`).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(HttpUpgradeError);
    const { status, headers, body } = error as HttpUpgradeError;
    expect([status, headers['x-why'], body.length]).toEqual([404, 'no', 4096]);
  });

  it('refuses another protocol, bytes behind the 101, silence, and a port where nobody listens', async () => {
    const answer = (text: string): Promise<number> =>
      listen(
        net.createServer((socket) =>
          socket.on('error', () => undefined).once('data', () => socket.write(text)),
        ),
      );
    const head = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ';
    const ask = (port: number, options = {}): Promise<Connection> =>
      connectHttp(`http://127.0.0.1:${port}/`, options);
    await expect(ask(await answer(`${head}websocket\r\n\r\n`))).rejects.toMatchObject({
      code: 'ERR_STARTUP',
    });
    await expect(
      ask(await answer(`${head}iwarp\r\n\r\nMPA ID Rep Frame garbage and more`)),
    ).rejects.toMatchObject({
      code: 'ERR_STARTUP',
    });
    await expect(ask(await answer(''), { timeout: 100 })).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    await expect(ask(await answer(''), { signal: AbortSignal.timeout(50) })).rejects.toMatchObject({
      code: 'ERR_ABORTED',
    });
    await expect(ask(1)).rejects.toMatchObject({ code: 'ERR_CONNECT' });
    await expect(connectHttp('ftp://x/')).rejects.toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
  });
});

describe('a hostile client', () => {
  it('that sends its MPA Request, or anything, before the 101 gets 400', async () => {
    const errors: unknown[] = [];
    const port = await serving((request, socket, head) => {
      acceptUpgrade(request, socket, head).catch((error: unknown) =>
        errors.push((error as { code: string }).code),
      );
    });
    expect(await raw(port, `${ASK}\r\nMPA ID Req Frame`)).toMatch(/^HTTP\/1.1 400 /);
    expect(await raw(port, `${ASK}\r\n\0`)).toMatch(/^HTTP\/1.1 400 /);
    expect(errors).toEqual(['ERR_STARTUP', 'ERR_STARTUP']);
  });

  it('that asks for another protocol, or twice, gets no second connection', async () => {
    const errors: string[] = [];
    const port = await serving((request, socket, head) => {
      acceptUpgrade(request, socket, head).catch((error: unknown) =>
        errors.push((error as { code: string }).code),
      );
    });
    expect(await raw(port, ASK.replace('iwarp', 'websocket') + '\r\n')).toMatch(/^HTTP\/1.1 400 /);
    const answer = await raw(port, `${ASK}\r\n`);
    expect(answer).toBe('HTTP/1.1 101 Switching Protocols\r\nUpgrade: iwarp\r\nConnection: Upgrade\r\n\r\n');
    // A second request where the MPA Request has to be is no MPA Request.
    const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
    socket.write(`${ASK}\r\n`);
    await new Promise((resolve) => socket.once('data', resolve));
    socket.write(`${ASK}\r\n`);
    await new Promise((resolve) => socket.once('close', resolve).resume());
    await expect.poll(() => errors).toEqual(['ERR_STARTUP', 'ERR_STARTUP', 'ERR_STARTUP']);
  });

  it('cannot put header fields into the answer', async () => {
    const port = await serving((request, socket, head) => {
      acceptUpgrade(request, socket, head, { headers: { 'X-A': 'a\r\nX-B: b' } }).catch(() =>
        refuseUpgrade(socket),
      );
    });
    expect(await raw(port, `${ASK}\r\n`)).toMatch(/^HTTP\/1.1 400 /);
  });
});
