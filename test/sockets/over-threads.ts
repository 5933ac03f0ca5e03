/** Byte streams over the wire `shm`, in the forms in which tests call `connect` and `createServer`. */
import { openRnic } from '../../src/index.ts';
import {
  connect,
  createServer,
  type ConnectOptions,
  type RdmaServer,
  type RdmaSocket,
  type RdmaSocketOptions,
} from '../../src/sockets/index.ts';

const rnic = openRnic({ wire: 'shm' });

type OnConnection = (socket: RdmaSocket) => void;

export const overThreads = {
  connect: (options: ConnectOptions): RdmaSocket => connect({ ...options, rnic }),
  createServer: (first: RdmaSocketOptions | OnConnection, second?: OnConnection): RdmaServer =>
    typeof first === 'function' ? createServer({ rnic }, first) : createServer({ ...first, rnic }, second),
};
