/**
 * Connections that could not be made, whether TCP failed or the start-up after it, distinguished as the
 * kernel's rdma_cm does for an iWARP device: by the system's status.
 */
import { IwarpError } from '../base/errors.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import type { CmEvent } from './events.ts';

/** The event that a failed connect raises. */
type ConnectFailure = Extract<CmEvent, { readonly error: Error | undefined; readonly status: unknown }> & {
  readonly error: Error;
};

const NO_PARAMETERS = {
  privateData: new Uint8Array(0),
  responderResources: undefined,
  initiatorDepth: undefined,
  revision: 0,
} as const;

/** `rdma_bind_addr` and `rdma_resolve_addr` report these, before any packet is sent. */
const ADDRESS_ERRORS: ReadonlySet<string> = new Set([
  'EADDRINUSE',
  'EADDRNOTAVAIL',
  'EAFNOSUPPORT',
  'EAI_AGAIN',
  'EAI_FAIL',
  'EAI_FAMILY',
  'EAI_NODATA',
  'EAI_NONAME',
  'EINVAL',
  'ENODATA',
  'ENOTFOUND',
]);

/**
 * The system's code of an error: its own, or that of its cause or of the first of several attempts. Our codes
 * begin with ERR_. Undefined if the system has said nothing.
 */
function systemStatus(error: unknown): string | undefined {
  for (let at = error; at instanceof Error; ) {
    if (at instanceof IwarpError && at.systemCode !== undefined) return at.systemCode;
    const { code, cause, errors } = at as Error & { code?: unknown; errors?: readonly unknown[] };
    if (typeof code === 'string' && !code.startsWith('ERR_')) return code;
    at = cause ?? errors?.[0];
  }
  return undefined;
}

/**
 * The event for a connection that could not be made: `reason` is `connect` where there was no TCP connection
 * either.
 */
export function connectFailure(error: Error, reason: StartupFailure | 'connect' = 'connect'): ConnectFailure {
  const status = systemStatus(error);
  switch (status) {
    case 'ECONNREFUSED':
    case 'ECONNRESET':
      return { type: 'rejected', parameters: NO_PARAMETERS, markersAsked: false, reason, status, error };
    case 'ETIMEDOUT':
      return { type: 'unreachable', reason, status, error };
    default:
      return status !== undefined && ADDRESS_ERRORS.has(status)
        ? { type: 'address-error', status, error }
        : { type: 'connect-error', reason, status, error };
  }
}

/**
 * The event for a start-up that failed after TCP was connected. The side that is connected to has no event
 * for that in the kernel, and no peer has rejected it.
 */
export function startupFailure(
  reason: StartupFailure,
  role: 'active' | 'passive',
  mayWantTls = false,
): ConnectFailure {
  const error = startupError(reason, role, undefined, mayWantTls);
  return role === 'active'
    ? connectFailure(error, reason)
    : { type: 'connect-error', reason, status: startupStatus(reason), error };
}

/** The status of a start-up that failed after TCP was connected. */
export function startupStatus(reason: StartupFailure): string {
  if (reason === 'timeout') return 'ETIMEDOUT';
  return reason === 'reset' || reason === 'truncated' || reason === 'displaced' ? 'ECONNRESET' : 'EPROTO';
}

/**
 * Words for each failure of start-up; `frame` names the frame that the peer owed, its Request or its Reply.
 */
const STARTUP_WORDS: Readonly<Record<StartupFailure, (frame: string) => string>> = {
  'bad-key': (frame) =>
    frame === 'Reply' ? "the peer's answer is no MPA Reply" : 'what the peer sent is no MPA Request',
  'tls-record': () => 'the peer speaks TLS, and this side does not: set `tls` here, or leave it out there',
  'private-data-too-long': (frame) => `the peer's MPA ${frame} announces more than 512 bytes of private data`,
  'unusable-revision': (frame) => `the peer's MPA ${frame} has a revision that cannot be used here`,
  'enhanced-data-missing': (frame) =>
    `the peer's MPA ${frame} announces enhanced data (RFC 6581) and has none`,
  truncated: (frame) =>
    frame === 'Reply'
      ? 'the peer closed the connection before an MPA Reply'
      : 'the peer closed the connection before it was established',
  reset: (frame) =>
    frame === 'Reply'
      ? 'the connection was reset before an MPA Reply'
      : 'the connection was reset before it was established',
  timeout: (frame) => `no MPA ${frame} came in time`,
  'markers-refused': () => 'the peer asks for markers, which are refused here',
  displaced: () => 'the listener was full, and its oldest connection without a whole Request made room',
  'extra-octets': (frame) => `bytes came after the peer's MPA ${frame} that nothing allows there`,
};

/**
 * Start-up with `peer` failed, for this reason, on the connecting (active) or on the accepting side.
 * `mayWantTls`: the connection had no TLS, and nothing came from the peer.
 */
export function startupError(
  reason: StartupFailure,
  role: 'active' | 'passive',
  peer?: string,
  mayWantTls = false,
): IwarpError {
  const isEnd = reason === 'reset' || reason === 'truncated';
  const hint = mayWantTls && isEnd ? ' (does the port want TLS?)' : '';
  const words = STARTUP_WORDS[reason](role === 'active' ? 'Reply' : 'Request') + hint;
  const code = reason === 'timeout' ? 'ERR_TIMEOUT' : 'ERR_STARTUP';
  const where = peer === undefined ? '' : ` ${role === 'active' ? 'to' : 'from'} ${peer}`;
  const error = new IwarpError(code, `MPA start-up${where} failed: ${words}`);
  return Object.assign(error, { systemCode: startupStatus(reason) });
}
