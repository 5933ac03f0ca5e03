/** A TCP path to a server, until the end of the test: what goes through, and what ends, is the test's. */
import { once } from 'node:events';
import net from 'node:net';
import { onTestFinished } from 'vitest';

const HOST = '127.0.0.1';

/** The two sockets of a connection through the path: the client's, and the one to the server. */
type Between = (near: net.Socket, far: net.Socket) => void;

/** The port of a path to `port` of this machine. */
export async function tcpPath(port: number, between: Between): Promise<number> {
  const sockets: net.Socket[] = [];
  const relay = net.createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
    const far = net.connect({ port, host: HOST, allowHalfOpen: true, noDelay: true });
    sockets.push(near, far);
    for (const socket of [near, far]) socket.on('error', () => undefined); // 'close' follows
    between(near, far);
  });
  await once(relay.listen(0, HOST), 'listening');
  onTestFinished(() => {
    relay.close();
    for (const socket of sockets) socket.destroy();
  });
  return (relay.address() as net.AddressInfo).port;
}

/** Where one of the two has ended, the other does as well. */
export function endTogether(near: net.Socket, far: net.Socket): void {
  near.on('close', () => far.destroy());
  far.on('close', () => near.destroy());
}
