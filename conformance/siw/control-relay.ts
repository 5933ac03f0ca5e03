/**
 * Some stock servers pick a port for RDMA, and name it to their client over a plain TCP connection
 * (fi_pingpong of libfabric 1.17, `pp_send_name`; qperf 0.4.11, `cm_open_server`). For a proxy to stand
 * between them, that connection goes through a relay which names another place to the client.
 */
import { connect, createServer, type Server } from 'node:net';

interface Place {
  readonly host: string;
  readonly port: number;
}

/** How a server names its port: in the first octets that it sends. */
export interface PortNotice {
  readonly octets: number;
  /** The port in these octets. @throws Error if they are no such notice */
  read(octets: Buffer): number;
  /** The same octets with another place. */
  replaced(octets: Buffer, place: Place): Buffer;
}

/** Length of the name in network order, its format in the host's, and a `sockaddr_in`. */
const NAME = { octets: 24, length: 0, family: 8, port: 10, address: 12, lengthOfName: 16, inet: 2 } as const;

export const PINGPONG_NOTICE: PortNotice = {
  octets: NAME.octets,
  read(octets) {
    const length = octets.readUInt32BE(NAME.length);
    const family = octets.readUInt16LE(NAME.family);
    if (length !== NAME.lengthOfName || family !== NAME.inet)
      throw new Error(`no name of an IPv4 socket: ${octets.toString('hex')}`);
    return octets.readUInt16BE(NAME.port);
  },
  replaced(octets, { host, port }) {
    const changed = Buffer.from(octets);
    changed.writeUInt16BE(port, NAME.port);
    changed.set(host.split('.').map(Number), NAME.address);
    return changed;
  },
};

/** A number of four octets, the lowest first. The client takes the address of its command line. */
export const QPERF_NOTICE: PortNotice = {
  octets: 4,
  read(octets) {
    const port = octets.readUInt32LE(0);
    if (port === 0 || port > 0xffff) throw new Error(`no port: ${octets.toString('hex')}`);
    return port;
  },
  replaced(_octets, { port }) {
    const changed = Buffer.alloc(4);
    changed.writeUInt32LE(port, 0);
    return changed;
  },
};

/**
 * Relay connections to `target`. The notice with which the server begins is held until `place` has made
 * ready for the port in it; the client gets the place that this settles with.
 */
export function controlRelay(
  target: Place,
  notice: PortNotice,
  place: (port: number) => Promise<Place>,
): Server {
  return createServer((near) => {
    const far = connect(target);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const)
      from.on('error', () => to.destroy()).on('close', () => to.end());
    near.pipe(far);
    let head = Buffer.alloc(0);
    far.on('data', function gather(chunk: Buffer) {
      head = Buffer.concat([head, chunk]);
      if (head.length < notice.octets) return;
      far.off('data', gather).pause();
      const said = head.subarray(0, notice.octets);
      const pass = async (): Promise<void> => {
        near.write(notice.replaced(said, await place(notice.read(said))));
        near.write(head.subarray(notice.octets));
        far.pipe(near);
      };
      pass().catch((error: Error) => near.destroy(error));
    });
  });
}
