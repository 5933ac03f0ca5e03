/**
 * Byte streams read by 'data' events, both ends in this process; prints how many page faults a piece of 64
 * KiB cost (a page has 4 KiB), once the heap is warm, on standard output.
 *
 *     node --import tsx warm-heap.child.ts
 */
import { once } from 'node:events';
import { connect, createServer } from '../../src/sockets/index.ts';
import { warmHeap } from '../../src/transport/warm-heap.ts';

const PIECE = 65_536;
const WARM = 6000;
const COUNTED = 12_000;

// As if much had come: on a busy machine less might come than makes the heap warm.
for (let n = 0; n < 2048; n++) warmHeap.given(PIECE);

let octets = 0;
let faults = 0;
const server = createServer((socket) => {
  socket.on('data', (data: Uint8Array) => {
    octets += data.length;
    if (faults === 0 && octets >= WARM * PIECE) faults = process.resourceUsage().minorPageFault;
  });
  socket.once('end', () => socket.end());
});
server.listen({ host: '127.0.0.1', port: 0 });
await once(server, 'listening');
const client = connect({ host: '127.0.0.1', port: (server.address() as { port: number }).port });
await once(client, 'connect');
const piece = Buffer.alloc(PIECE, 7);
for (let n = 0; n < WARM + COUNTED; n++) if (!client.write(piece)) await once(client, 'drain');
client.resume().end();
await once(client, 'close');
server.close();
process.stdout.write(
  JSON.stringify((process.resourceUsage().minorPageFault - faults) / (octets / PIECE - WARM)),
);
