/** Servers and clients of extended sockets: those of `node:net`, whose sockets can be switched to RDMA. */
import { Server, Socket, type ServerOpts, type TcpNetConnectOpts } from 'node:net';
import { checkFunction, checkObject, checkOptions } from '../../base/errors.ts';
import { OWN } from '../../transport/own.ts';
import { checkRdmaMode, RDMA_MODE_NAMES, type RdmaModeOptions } from './options.ts';
import { ExtendedSocket, type ExtendedSocketOptions } from './socket.ts';

/** Options of {@link createExtendedServer}: those of `net.createServer`, and `rdma`. */
export interface ExtendedServerOptions extends ServerOpts {
  /** How its sockets do RDMA after the switch. */
  readonly rdma?: RdmaModeOptions | undefined;
}

/** A `net.Server` whose connections are extended sockets, responders of the switch. */
export class ExtendedServer extends Server {
  readonly #rdma: RdmaModeOptions;

  /**
   * A server that does not listen yet; `onConnection` is called with each socket.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  constructor(options: ExtendedServerOptions = {}, onConnection?: (socket: ExtendedSocket) => void) {
    checkObject('options', options);
    if (onConnection !== undefined) checkFunction('onConnection', onConnection);
    const { rdma = {}, ...rest } = options;
    checkOptions('options.rdma', rdma, RDMA_MODE_NAMES);
    checkRdmaMode(rdma);
    super(rest);
    Object.assign(this, { [OWN]: true });
    this.#rdma = rdma;
    if (onConnection !== undefined) this.on('connection', onConnection as (socket: Socket) => void);
  }

  /** The socket of a `connection` event is an extended one. */
  override emit(event: string | symbol, ...values: unknown[]): boolean {
    if (event === 'connection' && values[0] instanceof Socket)
      ExtendedSocket.extend(values[0], 'responder', this.#rdma);
    return super.emit(event, ...values);
  }
}

/**
 * Create a server whose sockets are plain TCP until they are switched to RDMA.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * createExtendedServer({}, (socket) => {
 *   socket.once('data', () => {
 *     socket.write('ok\n');
 *     void socket.setOption('DDPMODE', true);
 *   });
 * }).listen(7471);
 */
export function createExtendedServer(
  options: ExtendedServerOptions = {},
  onConnection?: (socket: ExtendedSocket) => void,
): ExtendedServer {
  return new ExtendedServer(options, onConnection);
}

/**
 * Connect a socket that is plain TCP until it is switched to RDMA. The options are those of `net.connect`.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const socket = connectExtended({ host: '127.0.0.1', port: 7471 }, () => socket.write('RDMA, please\n'));
 */
export function connectExtended(
  options: TcpNetConnectOpts & ExtendedSocketOptions,
  onConnect?: () => void,
): ExtendedSocket {
  checkObject('options', options);
  if (onConnect !== undefined) checkFunction('onConnect', onConnect);
  const socket = new ExtendedSocket(options);
  return socket.connect({ ...options, ...{ [OWN]: true } }, onConnect);
}
