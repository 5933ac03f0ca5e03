/** Errors of the block device: what a server answers, and what a client's caller meets. */
import { brand } from '../base/brand.ts';
import { IwarpError } from '../base/errors.ts';
import { NBD_ERRORS, type NbdErrorName } from './wire.ts';

/**
 * A block request that failed with an error number of the NBD protocol. A device that you write may throw it
 * to choose the number that its clients get.
 *
 * @example
 * throw new NbdError('ENOSPC', 'the disk is full');
 */
export class NbdError extends IwarpError {
  static {
    brand(this, 'NbdError');
  }

  /** Name of the number. */
  readonly errno: NbdErrorName;

  /** An error of the block device, with the number that the protocol sends. */
  constructor(errno: NbdErrorName, message: string, options?: ErrorOptions) {
    super('ERR_NBD', message, options);
    this.name = 'NbdError';
    this.errno = errno;
  }
}

/** The error for a number of a reply. A number that the document does not list counts as EINVAL. */
export function errorOfReply(number: number, what: string): NbdError {
  const known = Object.entries(NBD_ERRORS).find(([, value]) => value === number);
  const errno = (known?.[0] ?? 'EINVAL') as NbdErrorName;
  return new NbdError(errno, `${what}: the server answered with error ${number} (${errno})`);
}

/** Codes of the system that have their own number in the protocol. */
const SYSTEM: Readonly<Record<string, NbdErrorName>> = {
  EPERM: 'EPERM',
  EACCES: 'EPERM',
  EROFS: 'EPERM',
  ENOMEM: 'ENOMEM',
  ENOSPC: 'ENOSPC',
  EDQUOT: 'ENOSPC',
  EFBIG: 'ENOSPC',
  EOPNOTSUPP: 'ENOTSUP',
  ENOTSUP: 'ENOTSUP',
};

/** The number for whatever a device has thrown: EIO unless the error says more. */
export function numberOf(error: unknown): number {
  if (error instanceof NbdError) return NBD_ERRORS[error.errno];
  const code = error instanceof Error ? (error as { readonly code?: unknown }).code : undefined;
  return NBD_ERRORS[(typeof code === 'string' ? SYSTEM[code] : undefined) ?? 'EIO'];
}

/** The peer has sent bytes that the protocol does not allow. */
export function protocolError(message: string): IwarpError {
  return new IwarpError('ERR_PROTOCOL', message);
}
