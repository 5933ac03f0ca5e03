/**
 * One connection that is plain TCP first and RDMA afterwards. The client asks for RDMA in a line of text, and
 * gets a ticket to the server's memory as plain bytes. Then both ends switch the same connection: the client
 * writes 16 MiB with one-sided puts, sends a message gathered from three pieces, and reads the bytes back.
 *
 *   npx tsx examples/extended-socket.ts
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { RemoteBuffer } from 'iwarp';
import {
  connectExtended,
  createExtendedServer,
  type ExtendedCompletion,
  type ExtendedSocket,
} from 'iwarp/sockets';

const OCTETS = 16 << 20;
const PIECES = 16;

/** The server's end of the line protocol: a name, then a ticket, then RDMA. */
async function serve(socket: ExtendedSocket): Promise<void> {
  const [line] = (await once(socket, 'data')) as [Buffer];
  console.log(`server, plain: ${String(line).trim()}`);
  const memory = socket.allocate(OCTETS);
  const words = socket.allocate(64);
  socket.postRecv([words.subarray(0, 8), words.subarray(8)], 1);
  socket.write(socket.register(memory, 'read-write').toBytes());
  await socket.setOption('DDPMODE', true); // the paper's name; startRdma() is the same
  const { length } = await socket.completion(1);
  console.log(`server, RDMA: ${Buffer.from(words.subarray(0, length)).toString()}`);
  console.log(`server: ${memory.reduce((sum, byte) => sum + (byte === 7 ? 1 : 0), 0)} bytes are 7`);
  memory.fill(8, 0, 4096);
  socket.postSend(Buffer.from('go on'), 2);
}

const server = createExtendedServer({}, (socket) => {
  socket.on('error', (error) => console.error(error.message));
  void serve(socket);
}).listen(0, '127.0.0.1');
await once(server, 'listening');

const socket = connectExtended({ host: '127.0.0.1', port: (server.address() as AddressInfo).port });
await once(socket, 'connect');
socket.write('RDMA, please\n');
const [bytes] = (await once(socket, 'data')) as [Buffer];
const remote = RemoteBuffer.fromBytes(bytes);
const answer = socket.allocate(64);
socket.postRecv(answer, 1);
await socket.setOption('DDPMODE', true);

const chunk = socket.allocate(OCTETS / PIECES).fill(7);
for (let i = 0; i < PIECES; i++) socket.postPut(chunk, remote.slice(i * chunk.length), 100 + i);
socket.postSend(
  ['all ', 'is ', 'written'].map((word) => Buffer.from(word)),
  2,
);
await socket.completion(1);
const back = socket.allocate(4096);
await socket.get(remote, back);
console.log(`client: ${back.every((byte) => byte === 8)}, the server's change has been read`);

const completions: ExtendedCompletion[] = [];
const count = socket.poll(completions, 64);
console.log(`client: ${count} posts have completed, the first is number ${completions[0]?.id}`);
socket.end();
await once(socket, 'close');
server.close();
