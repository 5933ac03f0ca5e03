/**
 * The servers of the probe `unix`, as a child process whose argument is a folder: promises and bare sockets,
 * each over loopback and over a path. It sends where they are, and ends with its parent.
 */
import { createServer as createNetServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { createServer } from '../../src/api/server.ts';
import type { UnixPlace, UnixPlaces } from '../probes/unix.ts';
import { HOST, WRITE_OCTETS } from './peer.ts';

const BACKLOG = 4096;
const quiet = (): void => undefined;

async function promises(where: { host: string } | { path: string }): Promise<number> {
  const server = await createServer({}, async (connection) => {
    const memory = connection.allocate(WRITE_OCTETS, 'write');
    await connection.send(connection.share(memory).toBytes());
    for await (const message of connection) {
      const answer = message.data.slice();
      message.release();
      await connection.send(answer);
    }
  }).listen({ ...where, backlog: BACKLOG });
  return server.address().port;
}

/** The first byte of a connection says what it is for: 1 to have all sent back, 0 to have it taken. */
function serveBare(socket: Socket): void {
  socket.on('error', quiet).setNoDelay(true);
  let echoes: boolean | null = null;
  socket.on('data', (bytes: Buffer) => {
    const rest = echoes === null ? bytes.subarray(1) : bytes;
    echoes ??= bytes[0] === 1;
    if (echoes && rest.length > 0) socket.write(rest);
  });
}

async function bare(where: { host: string; port: number } | { path: string }): Promise<number> {
  const server = createNetServer(serveBare);
  await new Promise<void>((resolve) => server.listen({ ...where, backlog: BACKLOG }, resolve));
  const address = server.address() as AddressInfo | string;
  return typeof address === 'string' ? 0 : address.port;
}

const folder = process.argv[2]!;
const [ours, theirs] = [join(folder, 'iwarp'), join(folder, 'bare')];
const place = (port: number): UnixPlace => ({ host: HOST, port });
const places: UnixPlaces = {
  'iWARP, loopback': place(await promises({ host: HOST })),
  'iWARP, Unix socket': { path: ours },
  'bare, loopback': place(await bare({ host: HOST, port: 0 })),
  'bare, Unix socket': { path: theirs },
};
await promises({ path: ours });
await bare({ path: theirs });
process.once('disconnect', () => process.exit());
process.send!(places);
