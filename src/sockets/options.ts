/** Options of byte streams, checked before anything is made: a wrong option throws at once, with its name. */
import type { ChannelOptions } from './byte-channel.ts';
import { sdpSettings, type SdpOptions } from '../sdp/options.ts';
import { checkRnic, defaultRnic, type Rnic } from '../api/environment.ts';
import { checkSignal } from '../base/abort.ts';
import { checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';

/** Name of a protocol of byte streams. */
export type StreamProtocolName = 'rsocket' | 'sdp';
const PROTOCOL_NAMES: readonly StreamProtocolName[] = ['rsocket', 'sdp'];

/** Options of both sides. */
export interface RdmaSocketOptions extends ChannelOptions, SdpOptions {
  /**
   * Protocol of the stream, the same at both ends: `rsocket` (default), which librdmacm's programs speak, or
   * `sdp`, the Sockets Direct Protocol.
   */
  readonly protocol?: StreamProtocolName | undefined;
  /**
   * Keep our direction open when the peer ends its own. Default false. Flags are taken by their truth, as in
   * `node:net`.
   */
  readonly allowHalfOpen?: boolean | undefined;
  /** Probe an idle connection; see {@link RdmaSocket.setKeepAlive}. Default false. */
  readonly keepAlive?: boolean | undefined;
  /** Milliseconds without bytes before the first probe. Default 0: as the system is set, mostly two hours. */
  readonly keepAliveInitialDelay?: number | undefined;
  /** Milliseconds without bytes until `timeout`; see {@link RdmaSocket.setTimeout}. Default 0, never. */
  readonly timeout?: number | undefined;
  /** High-water mark of both directions, in bytes, as in `node:stream`. Default: Node's. */
  readonly highWaterMark?: number | undefined;
  /** Destroys the socket with an AbortError when it is aborted. */
  readonly signal?: AbortSignal | undefined;
  /** Device, transport and clock, from `openRnic` of `iwarp`. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
}

/**
 * As librdmacm's rs_mem and its 16-bit credits allow; a buffer below a page makes no window worth a message.
 */
export const SOCKET_RANGES: Readonly<
  Record<
    'receiveBuffer' | 'sendBuffer' | 'credits' | 'iomapSize' | 'highWaterMark',
    readonly [min: number, max: number]
  >
> = {
  receiveBuffer: [4096, 2 ** 30],
  sendBuffer: [4096, 2 ** 30],
  credits: [16, 0x7fff],
  iomapSize: [0, 127 * 256],
  highWaterMark: [0, Number.MAX_SAFE_INTEGER],
};

/**
 * Checks milliseconds as `node:net` takes them: fractions too, and any length. `http` hands its times on as
 * they were given, from places where no caller could catch an error.
 *
 * @throws ERR_INVALID_ARGUMENT
 */
export function checkTime(name: string, value: unknown): void {
  if (typeof value === 'number' && value >= 0 && Number.isFinite(value)) return;
  throw new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `${name} must be a number of milliseconds from 0 on, got ${show(value)}`,
  );
}

/**
 * A TCP port as `node:net` takes it: a number, or digits as environment variables have them. Anything else is
 * left to the check that names the argument.
 */
export function portOf(port: unknown): number | undefined {
  return (typeof port === 'string' && /^[0-9]+$/.test(port) ? Number(port) : (port ?? undefined)) as
    | number
    | undefined;
}

/** Options that a server has checked for all of its sockets. */
const checked = new WeakSet<RdmaSocketOptions>();

/** @internal Checked options for sockets with this device, which no program can change. */
export function checkedOptions(options: RdmaSocketOptions, rnic: Rnic): RdmaSocketOptions {
  const own = Object.freeze({ ...options, rnic });
  checked.add(own);
  return own;
}

const RANGE_NAMES = Object.keys(SOCKET_RANGES) as readonly (keyof typeof SOCKET_RANGES)[];

/** Throws ERR_INVALID_ARGUMENT unless all is as {@link RdmaSocketOptions} says; returns the device to use. */
export function checkSocketOptions(options: RdmaSocketOptions): Rnic {
  if (checked.has(options)) return options.rnic!;
  checkObject('options', options);
  for (const name of RANGE_NAMES) {
    const value = options[name];
    if (value !== undefined) checkInteger(`options.${name}`, value, ...SOCKET_RANGES[name]);
  }
  if (options.protocol !== undefined) checkOneOf('options.protocol', options.protocol, PROTOCOL_NAMES);
  sdpSettings(options);
  if (options.timeout !== undefined) checkTime('options.timeout', options.timeout);
  checkSignal(options.signal);
  return options.rnic === undefined ? defaultRnic() : checkRnic('options.rnic', options.rnic);
}
