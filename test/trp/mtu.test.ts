/** Segments as long as the interface carries, from either end, seen by a relay between them. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { retire } from '../../src/api/environment.ts';
import { connect, createServer, openRnic, type EngineKind, type Rnic } from '../../src/index.ts';

const HOST = '127.0.0.1';
/** What the interface carries, and the most that is taken of it; where no system says it, Ethernet's. */
const MTU =
  process.platform === 'linux'
    ? Math.min(Number(readFileSync('/sys/class/net/lo/mtu', 'latin1')), 32_348)
    : 1500;

async function bound(): Promise<Socket> {
  const socket = createSocket('udp4');
  onTestFinished(() => void socket.close());
  socket.bind(0, HOST);
  await once(socket, 'listening');
  return socket;
}

/** Stands for the server to one client, and notes the longest datagram of each. */
async function relay(server: number): Promise<{ port: number; longest: { client: number; server: number } }> {
  const [front, back] = [await bound(), await bound()];
  const longest = { client: 0, server: 0 };
  let [client, peer] = [0, server];
  front.on('message', (bytes, from) => {
    client = from.port;
    longest.client = Math.max(longest.client, bytes.length);
    back.send(bytes, peer, HOST);
  });
  back.on('message', (bytes, from) => {
    peer = from.port;
    longest.server = Math.max(longest.server, bytes.length);
    front.send(bytes, client, HOST);
  });
  return { port: front.address().port, longest };
}

it.each<EngineKind>(['thread', 'worker'])(
  'both ends fill the MTU of their interface, engine %s',
  async (engine) => {
    const open = (): Rnic => {
      const rnic = openRnic({ wire: 'trp', engine });
      onTestFinished(() => retire(rnic));
      return rnic;
    };
    const server = createServer({ rnic: open() }, async (connection) => {
      for await (const message of connection) await connection.send(message.data);
    });
    await server.listen({ host: HOST, port: 0 });
    const { port, longest } = await relay(server.address().port);
    const connection = await connect({ rnic: open(), host: HOST, port });
    await connection.send(new Uint8Array(60_000));
    using message = await connection.receive();
    expect(message!.data.length).toBe(60_000);
    await connection.close();
    await server.close();
    expect(longest).toEqual({ client: MTU - 28, server: MTU - 28 });
  },
);
