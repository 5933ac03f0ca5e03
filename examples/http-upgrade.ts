/**
 * An HTTP server whose clients can ask for RDMA on the same port, behind the server's own authentication. The
 * client moves 16 MiB into the server's memory by RDMA Writes, and the port serves pages all the while.
 *
 *   npx tsx examples/http-upgrade.ts
 */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { RemoteBuffer } from 'iwarp';
import { acceptUpgrade, connectHttp, isUpgrade, refuseUpgrade } from 'iwarp/http';

const TOKEN = 'Bearer open sesame';
const allowed = (request: IncomingMessage): boolean => request.headers.authorization === TOKEN;

const memory = new Uint8Array(16 << 20);
const server = createServer((_request, response) => response.end('a page'));
server.on('upgrade', async (request, socket, head) => {
  if (!isUpgrade(request) || !allowed(request)) {
    refuseUpgrade(socket, 403);
    return;
  }
  const connection = await acceptUpgrade(request, socket, head);
  const region = connection.register(memory, 'write');
  await connection.send(connection.share(region).toBytes());
  // A message that was sent after the Write arrives when the Write is in place.
  (await connection.receive())?.release();
  await connection.send(`${memory.reduce((sum, byte) => sum + (byte === 7 ? 1 : 0), 0)} bytes are 7`);
});
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/memory`;

const refused = await connectHttp(url).catch((error: unknown) => error as Error);
console.log(`without the token: ${(refused as Error).message}`);

const connection = await connectHttp(url, { headers: { authorization: TOKEN } });
const ticket = (await connection.receive())!;
await connection.write(new Uint8Array(memory.length).fill(7), RemoteBuffer.fromBytes(ticket.data));
await connection.send('written');
console.log(`with it: ${(await connection.receive())!.text()}`);
console.log(`and the port still serves ${await (await fetch(url)).text()}`);
await connection.close();
server.close();
