/** Options of byte streams, checked before anything is made: what a caller gets wrong is said at once, by its name. */
import { checkRnic, defaultRnic, type Rnic } from '../api/environment.ts';
import { checkSignal } from '../base/abort.ts';
import { checkBoolean, checkInteger, checkObject, IwarpError, show } from '../base/errors.ts';

/** Sizes of a stream. */
export interface ChannelOptions {
  /** Receive buffer, 4096 to 2^30 octets, offered to the peer in halves. Default 1 MiB; 4 MiB with the engine in a worker. */
  readonly receiveBuffer?: number | undefined;
  /** Send buffer, 4096 to 2^30 octets. Default 1 MiB. */
  readonly sendBuffer?: number | undefined;
  /** Data messages that the peer may have outstanding, 16 to 32767. Default 384. */
  readonly credits?: number | undefined;
  /** Buffers that the peer may have mapped here at a time, 0 to 32512; above 128 in steps of 256. Default 0. */
  readonly iomapSize?: number | undefined;
}

/** Options of both sides. */
export interface RdmaSocketOptions extends ChannelOptions {
  /** Keep our direction open when the peer ends its own. Default false, as in `node:net`. */
  readonly allowHalfOpen?: boolean | undefined;
  /** Send keep-alive Writes; see {@link RdmaSocket.setKeepAlive}. Default false. */
  readonly keepAlive?: boolean | undefined;
  /** Milliseconds between two keep-alive Writes. Default two hours. */
  readonly keepAliveInitialDelay?: number | undefined;
  /** Milliseconds without octets until `timeout`; see {@link RdmaSocket.setTimeout}. Default 0, never. */
  readonly timeout?: number | undefined;
  /** High-water mark of both directions, in octets, as in `node:stream`. Default: Node's. */
  readonly highWaterMark?: number | undefined;
  /** Destroys the socket with an AbortError when it is aborted. */
  readonly signal?: AbortSignal | undefined;
  /** Device, transport and clock, from `openRnic` of `iwarp`. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
}

/** As librdmacm's rs_mem and its 16-bit credits allow; a buffer below a page makes no window worth a message. */
export const SOCKET_RANGES: Readonly<Record<'receiveBuffer' | 'sendBuffer' | 'credits' | 'iomapSize' | 'highWaterMark', readonly [min: number, max: number]>> = {
  receiveBuffer: [4096, 2 ** 30], sendBuffer: [4096, 2 ** 30], credits: [16, 0x7fff], iomapSize: [0, 127 * 256], highWaterMark: [0, Number.MAX_SAFE_INTEGER],
};

/**
 * Milliseconds as `node:net` takes them: fractions too, and any length. `http` hands its own times on as they were given, from places where nobody could
 * catch what is thrown.
 *
 * @throws ERR_INVALID_ARGUMENT
 */
export function checkTime(name: string, value: unknown): void {
  if (typeof value === 'number' && value >= 0 && Number.isFinite(value)) return;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a number of milliseconds from 0 on, got ${show(value)}`);
}

/**
 * A TCP port as `node:net` takes it: a number, or digits as environment variables have them. Anything else is left to the check that names the
 * argument.
 */
export function portOf(port: unknown): number | undefined {
  return (typeof port === 'string' && /^[0-9]+$/.test(port) ? Number(port) : port ?? undefined) as number | undefined;
}

/** Throws ERR_INVALID_ARGUMENT unless all is as {@link RdmaSocketOptions} says; returns the device to use. */
export function checkSocketOptions(options: RdmaSocketOptions): Rnic {
  checkObject('options', options);
  for (const [name, [min, max]] of Object.entries(SOCKET_RANGES)) {
    const value = options[name as keyof typeof SOCKET_RANGES];
    if (value !== undefined) checkInteger(`options.${name}`, value, min, max);
  }
  for (const name of ['timeout', 'keepAliveInitialDelay'] as const) {
    if (options[name] !== undefined) checkTime(`options.${name}`, options[name]);
  }
  for (const name of ['allowHalfOpen', 'keepAlive'] as const) {
    if (options[name] !== undefined) checkBoolean(`options.${name}`, options[name]);
  }
  checkSignal(options.signal);
  return options.rnic === undefined ? defaultRnic() : checkRnic('options.rnic', options.rnic);
}
