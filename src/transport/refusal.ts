/** What a transport has to be able to do, so that what a target asks for is not passed over in silence. */
import { IwarpError } from '../base/errors.ts';
import type { ConnectTarget, ListenTarget, Transport } from './port.ts';

/**
 * Why the transport cannot take this target, or null: without TLS everything would go in the clear, and
 * without paths to some port.
 */
export function refusalOf(
  { tls, paths }: Transport,
  target: ConnectTarget | ListenTarget,
): IwarpError | null {
  if (target.path !== undefined && paths !== true)
    return new IwarpError(
      'ERR_NOT_SUPPORTED',
      'options.path: the transport of this device has no Unix sockets',
    );
  if (target.tls === undefined || tls === true) return null;
  return new IwarpError('ERR_NOT_SUPPORTED', 'options.tls: the transport of this device does not speak TLS');
}
