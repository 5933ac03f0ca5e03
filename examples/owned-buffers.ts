/**
 * Buffers that are sent from where they lie: `writeOwned` gives one away until the peer has it, `lend` keeps
 * it readable. Both ends run in this process.
 */
import { once } from 'node:events';
import { connect, createServer, type RdmaSocket } from 'iwarp/sockets';

const OCTETS = 1 << 20;

const server = createServer({ protocol: 'sdp', mode: 'auto' }).listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as { port: number };
const socket = connect({ protocol: 'sdp', mode: 'auto', host: '127.0.0.1', port });
const [peer] = (await once(server, 'connection')) as [RdmaSocket];

// The reader posts its own memory, and gets the bytes there.
async function receive(octets: number): Promise<Uint8Array> {
  const place = new Uint8Array(octets);
  for (let at = 0; at < octets; ) at += await peer.receiveInto(place.subarray(at));
  return place;
}

const given = new Uint8Array(OCTETS).fill(1);
const arriving = receive(OCTETS);
const returning = socket.writeOwned(given);
console.log(`while it is away: ${given.length} bytes`);
const back = new Uint8Array(await returning);
console.log(
  `back again: ${back.length} bytes, the peer has ${(await arriving).every((octet) => octet === 1)}`,
);

const next = receive(OCTETS);
const lease = socket.lend(back, { guard: true });
console.log(`still readable: ${back[0]}`);
await lease.touch(); // before it is changed
back.fill(2);
console.log(`the peer has what was lent: ${(await next).every((octet) => octet === 1)}`);

socket.destroy();
server.close();
