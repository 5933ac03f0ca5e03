/** The side that connects to a shared region. */
import { checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { planRegion, REGION_NAMES, type RegionOptions } from './options.ts';
import { READ_DEPTH, SharedSocket } from './socket.ts';
import { decodeTicket } from './ticket.ts';

/** Where a listener is. */
export interface SharedTarget {
  /** Host name or address. Default `127.0.0.1`. */
  readonly host?: string | undefined;
  /** TCP port. */
  readonly port: number;
}

/** A connection and this side's region. */
export interface SharedConnection {
  /** Reads, writes and completions. */
  readonly socket: SharedSocket;
  /** This side's region: the same object as `socket.region`. */
  readonly region: Uint8Array;
}

const TARGET: Names<SharedTarget> = { host: true, port: true };

/**
 * Connect to a listener: each side gets a region that both may read and write.
 *
 * Rejects with ERR_CONNECT, ERR_REJECTED, ERR_PROTOCOL if the peer's ticket is wrong, ERR_LIMIT.
 *
 * @throws ERR_INVALID_ARGUMENT, ERR_NOT_SHARED
 *
 * @example
 * const { socket, region } = await connect({ host: '192.0.2.7', port: 7471 }, { octets: 4096 });
 * await socket.settled(socket.read(16, 0, 0)); // the first 16 bytes of the peer's region are in ours
 */
export async function connect(target: SharedTarget, options: RegionOptions = {}): Promise<SharedConnection> {
  checkOptions('target', target, TARGET);
  checkOptions('options', options, REGION_NAMES);
  const { allocateMemory, ...plan } = planRegion(options);
  const socket = new SharedSocket({ ...plan, memory: allocateMemory() });
  let connection;
  try {
    connection = plan.rnic.cm.connect(socket.qp, {
      host: target.host ?? '127.0.0.1',
      port: target.port,
      privateData: socket.ticket,
      responderResources: READ_DEPTH,
      initiatorDepth: READ_DEPTH,
      confirm: true,
    });
  } catch (error) {
    socket.discard();
    throw error;
  }
  const active = connection;
  return await new Promise((resolve, reject) => {
    socket.attach(active, (failure) => {
      if (failure === undefined) resolve({ socket, region: socket.region });
      else reject(failure);
    });
    socket.onResponse = (privateData) => {
      const ticket = decodeTicket(privateData);
      if (ticket === null)
        return socket.fail(
          new IwarpError('ERR_PROTOCOL', "the listener's private data is no ticket of a region"),
        );
      socket.peer = ticket;
      active.establish();
    };
  });
}
