/** `connect`: the promise layer's way to a peer. */
import { abortError, signalOf, whenAborted } from '../base/abort.ts';
import { IwarpError, ownError, type Names } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import { checkTarget, TARGET_NAMES, type TargetOptions } from '../cm/target.ts';
import { privateDataRoom, requestRevision } from '../mpa/policy.ts';
import { Connection } from './connection.ts';
import {
  checkEndpoint, createResources, destroyResources, ENDPOINT_NAMES, helloOf, withHello, type EndpointOptions, type Resources,
} from './endpoint.ts';
import { closeError, RejectedError, startupError } from './errors.ts';
import { decodeHello } from './hello.ts';

/** Options of {@link connect}. */
export interface ConnectOptions extends EndpointOptions, TargetOptions {
  /** Host name or address of the peer. Default `localhost`. */
  readonly host?: string | undefined;
  /** Octets for the peer to see with the request. Up to 492 octets, 508 with `credits: false`. */
  readonly privateData?: ArrayBufferView | undefined;
  /** Stops connecting: the promise rejects with ERR_ABORTED. An established connection is not affected. */
  readonly signal?: AbortSignal | undefined;
}

const OPTIONS: Names<ConnectOptions> = { ...ENDPOINT_NAMES, ...TARGET_NAMES, privateData: true, signal: true };

/**
 * Connect to an iWARP peer: a server of this package, Linux siw, or a hardware RNIC.
 *
 * Rejects with ERR_CONNECT (no TCP connection; the `cause` is the system's error, as `net.connect` gives it), ERR_REJECTED (with the peer's
 * `privateData`), ERR_STARTUP, ERR_TIMEOUT, ERR_ABORTED, and
 * ERR_INVALID_ARGUMENT and the like for wrong options.
 *
 * @example
 * const connection = await connect({ host: '127.0.0.1', port: 4711 });
 * await connection.send('hello');
 * await connection.close();
 */
export async function connect(options: ConnectOptions): Promise<Connection> {
  const signal = signalOf(options, OPTIONS);
  const target = checkTarget(options, 'localhost');
  const endpoint = checkEndpoint(options);
  const { policy, ird, ord, rnic } = endpoint;
  const hello = endpoint.credits ? helloOf(endpoint) : null;
  const privateData = withHello('options.privateData', options.privateData, hello, privateDataRoom(policy, requestRevision(policy)));
  if (signal?.aborted === true) throw abortError(signal);
  const resources = createResources(endpoint);
  let cm: CmConnection;
  try {
    cm = rnic.cm.connect(resources.qp, {
      ...target,
      policy,
      privateData,
      ...(ird === undefined ? {} : { responderResources: ird }),
      ...(ord === undefined ? {} : { initiatorDepth: ord }),
    });
  } catch (error) {
    destroyResources(resources);
    throw error;
  }
  return await established(cm, resources, signal);
}

/** Wait for the outcome of start-up. Resources are given back on every way but success. */
function established(cm: CmConnection, resources: Resources, signal: AbortSignal | undefined): Promise<Connection> {
  return new Promise((resolve, reject) => {
    let connection: Connection | null = null;
    let failure: IwarpError | null = null;
    const stop = signal === undefined ? null : whenAborted(signal, () => {
      failure ??= abortError(signal);
      cm.abort();
    });
    const fail = (error: IwarpError): void => {
      stop?.();
      destroyResources(resources);
      reject(failure ?? error);
    };
    cm.setHandler((event) => {
      if (connection !== null) {
        connection.handleEvent(event);
        return;
      }
      switch (event.type) {
        case 'established': {
          if (failure !== null) break; // aborted meanwhile: the end follows
          stop?.();
          const { hello, privateData } = decodeHello(event.parameters.privateData);
          connection = new Connection(cm, resources, resources.endpoint.credits ? hello : null, privateData);
          resolve(connection);
          break;
        }
        case 'rejected':
          failure ??= rejection(event);
          break;
        case 'connect-error':
          failure ??= startupError(event.reason, 'active');
          break;
        case 'unreachable':
          fail(ownError(event.error, 'ERR_CONNECT', `cannot connect: ${event.error.message}`));
          break;
        case 'disconnected':
          fail(closeError(event.cause, event.error, event.terminate));
          break;
        default:
      }
    });
  });
}

function rejection(event: Extract<CmEvent, { type: 'rejected' }>): RejectedError {
  const why = event.markersAsked ? '; markers were asked for, which some peers (Linux siw) refuse' : '';
  return new RejectedError(`the peer rejected the connection${why}`, decodeHello(event.parameters.privateData).privateData);
}
