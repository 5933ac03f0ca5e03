/**
 * Copies a file by RDMA Write. The receiver offers memory for a window of the file. The sender writes into it
 * piece by piece, several pieces at a time, and sends a message when a window is complete. No octet of the
 * file is in a message.
 *
 *   npx tsx examples/file-copy.ts                                   a file of random octets, both ends in one
 * process
 *   npx tsx examples/file-copy.ts server 127.0.0.1 4711 TARGET      writes the file to TARGET
 *   npx tsx examples/file-copy.ts client 127.0.0.1 4711 SOURCE
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer, RemoteBuffer, type Connection, type Server } from 'iwarp';

/** Octets offered at a time, and octets of one Write. */
const WINDOW = 4 * 1024 * 1024;
const PIECE = 256 * 1024;

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

async function server(host: string, port: number, target: string): Promise<Server> {
  return await createServer({}, (connection) => {
    receiveFile(connection, target).catch((error: Error) => {
      console.log(`the copy failed: ${error.message}`);
      connection.destroy();
    });
  }).listen({ host, port });
}

/**
 * Each message is the number of octets that lie in the window; 0 is the end of the file. The answer is the
 * number of octets that have arrived in all.
 */
async function receiveFile(connection: Connection, target: string): Promise<void> {
  const region = connection.allocate(WINDOW, 'write');
  const window = region.bytes;
  await connection.send(connection.share(region).toBytes());
  const file = await open(target, 'w');
  const hash = createHash('sha256');
  try {
    for await (const message of connection) {
      const octets = Buffer.from(message.data).readUInt32BE(0);
      message.release();
      assert(octets <= WINDOW, 'the sender keeps to the window');
      if (octets === 0) {
        await file.sync();
        await connection.send(hash.digest());
      } else {
        hash.update(window.subarray(0, octets));
        await file.writeFile(window.subarray(0, octets)); // goes on where the last one ended
        await connection.send('next');
      }
    }
  } finally {
    await file.close();
  }
}

async function next(connection: Connection): Promise<Uint8Array> {
  using message = await connection.receive();
  assert(message !== null, 'the receiver is still there');
  return message.data.slice();
}

async function client(host: string, port: number, source: string): Promise<void> {
  await using connection = await connect({ host, port });
  const ticket = RemoteBuffer.fromBytes(await next(connection));
  const buffer = connection.allocate(ticket.length, 0); // nobody but us reads it: no rights for the peer
  const count = Buffer.alloc(4);
  const hash = createHash('sha256');
  const file = await open(source, 'r');
  let total = 0;
  try {
    for (;;) {
      const { bytesRead } = await file.read(buffer.bytes, 0, buffer.length);
      count.writeUInt32BE(bytesRead);
      const writes: Promise<void>[] = [];
      for (let offset = 0; offset < bytesRead; offset += PIECE) {
        const length = Math.min(PIECE, bytesRead - offset);
        writes.push(connection.write({ mr: buffer, offset, length }, ticket.slice(offset, length)));
      }
      // Posted after the Writes, delivered after them: when the receiver sees the count, the octets are in
      // its memory.
      await Promise.all([...writes, connection.send(count)]);
      const answer = await next(connection);
      if (bytesRead === 0) {
        assert.deepEqual(Buffer.from(answer), hash.digest(), 'the receiver holds the same octets');
        break;
      }
      hash.update(buffer.bytes.subarray(0, bytesRead));
      total += bytesRead;
    }
  } finally {
    await file.close();
  }
  console.log(`copied ${total} octets; the receiver's SHA-256 agrees`);
}

/**
 * Both ends here, or `server HOST PORT TARGET` or `client HOST PORT SOURCE`. A check that fails ends the
 * program with status 1.
 */
async function main([mode, host = '127.0.0.1', port = '0', path]: string[]): Promise<void> {
  if (mode !== undefined) {
    assert(
      (mode === 'server' || mode === 'client') && path !== undefined,
      'usage: [server HOST PORT TARGET | client HOST PORT SOURCE]',
    );
    await (mode === 'server' ? server : client)(host, Number(port), path);
    return;
  }
  const folder = await mkdtemp(join(tmpdir(), 'iwarp-copy-'));
  const [source, target] = [join(folder, 'source'), join(folder, 'target')];
  await writeFile(source, randomBytes(2 * WINDOW + 12_345));
  const running = await server(host, 0, target);
  await client(host, running.address().port, source);
  await running.close();
  assert.equal(sha256(await readFile(target)), sha256(await readFile(source)), 'the files are equal');
  console.log('source and target are equal, octet for octet');
  await rm(folder, { recursive: true });
}

await main(process.argv.slice(2));
