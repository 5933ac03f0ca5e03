/**
 * A reader of one SDP stream in a separate process. It prints its port; reads once a line has come on
 * standard input, or at once with `--now`; and prints what it has read as runs of equal bytes.
 */
import { once } from 'node:events';
import { createServer, type RdmaSocket } from '../../src/sockets/index.ts';

const server = createServer({ protocol: 'sdp', mode: 'auto' }).listen(0, '127.0.0.1');
await once(server, 'listening');
console.log((server.address() as { port: number }).port);
const [socket] = (await once(server, 'connection')) as [RdmaSocket];
server.close();
socket.on('error', () => process.exit(1));
if (process.argv.includes('--now')) socket.write('hello');
else await once(process.stdin, 'data');
const runs: [value: number, octets: number][] = [];
for await (const piece of socket as AsyncIterable<Buffer>)
  for (const value of piece) {
    if (runs.at(-1)?.[0] === value) runs.at(-1)![1]++;
    else runs.push([value, 1]);
  }
console.log(JSON.stringify(runs));
process.exit(0);
