/** Facts of this machine that connections over datagrams need: names, routes, MTUs. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns';
import { networkInterfaces, type NetworkInterfaceInfoIPv6 } from 'node:os';
import type { DatagramHost, DatagramRoute } from './datagram.ts';
import { interfaceMtu } from './interface-mtu.ts';
import { isIP } from './ip-address.ts';

/** The operating system's answers. */
export const systemHost: DatagramHost = {
  resolve(host, family, done) {
    lookup(host, { family }, (error, address) => done(error, address));
  },

  /** A connected socket has the address that the system would send from; nothing is sent for that. */
  route({ address, port }, done) {
    const socket = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4');
    let state: 'open' | 'closed' = 'open';
    const answer = (route: DatagramRoute | null): void => {
      if (state === 'closed') return;
      state = 'closed';
      socket.close();
      done(route);
    };
    socket.once('error', () => answer(null));
    socket.connect(port, address, () =>
      answer({ local: socket.address().address, peer: socket.remoteAddress().address }),
    );
  },

  mtu: interfaceMtu,

  addresses: interfaceAddresses,
};

function interfaceAddresses(): string[] {
  try {
    return Object.entries(networkInterfaces()).flatMap(([name, list = []]) =>
      list.map((one) => (one.family === 'IPv6' && one.scopeid > 0 ? zoned(one, name) : one.address)),
    );
  } catch {
    return []; // a sandbox that hides the interfaces
  }
}

/** Windows names zones by number. */
function zoned({ address, scopeid }: NetworkInterfaceInfoIPv6, name: string): string {
  return `${address}%${process.platform === 'win32' ? scopeid : name}`;
}
