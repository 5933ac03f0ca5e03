/** Options of extended sockets, checked before anything changes. */
import { checkRnic, defaultRnic, type EngineKind, type Rnic } from '../../api/environment.ts';
import { checkSignal, MAX_TIME_LIMIT } from '../../base/abort.ts';
import {
  checkBytes,
  checkInteger,
  checkOneOf,
  checkOptions,
  IwarpError,
  type Names,
} from '../../base/errors.ts';
import { resolvePolicy, type ConnectionPolicy } from '../../mpa/policy.ts';
import { GATHER_NAMES, type Gather } from '../../transport/gather-port.ts';

/** How one socket does RDMA: given with the socket, or with the switch. */
export interface RdmaModeOptions {
  /**
   * Where the protocol runs after the switch: in the calling thread (default), or in a worker thread, to
   * which the calling thread hands the bytes of the socket. Memory to register is shared memory then.
   */
  readonly progress?: EngineKind | undefined;
  /** Device, from `openRnic` of `iwarp`, in place of `progress`. Default: the process's own. */
  readonly rnic?: Rnic | undefined;
  /** Posts of each kind, sends and receives, that may wait to be seen, 1 to 16384. Default 256. */
  readonly depth?: number | undefined;
  /**
   * How a message in several pieces reaches TCP where CRC and markers are off: `lend` (default), `copy` or
   * `cork`. With CRC or markers, and with `progress: 'worker'`, it is copied.
   */
  readonly gather?: Gather | undefined;
  /** Differences from `DEFAULT_POLICY` of `iwarp`. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
}

/** Options of {@link ExtendedSocket.startRdma}. */
export interface StartRdmaOptions extends RdmaModeOptions {
  /**
   * The initiator sends the MPA Request, the responder answers it. Default: the side that connected is the
   * initiator.
   */
  readonly role?: 'initiator' | 'responder' | undefined;
  /** Bytes that the program has read beyond its own protocol: they belong to what follows. */
  readonly head?: Uint8Array | undefined;
  /** Initiator: bytes for the peer to see with the request; responder: with its answer. */
  readonly privateData?: Uint8Array | undefined;
  /** Ends the switch: it rejects with ERR_ABORTED. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the last written byte has left and the peer has answered. Default 10,000. */
  readonly timeout?: number | undefined;
}

export const RDMA_MODE_NAMES: Names<RdmaModeOptions> = {
  progress: true,
  rnic: true,
  depth: true,
  gather: true,
  policy: true,
};
const START_NAMES: Names<StartRdmaOptions> = {
  ...RDMA_MODE_NAMES,
  role: true,
  head: true,
  privateData: true,
  signal: true,
  timeout: true,
};

const DEFAULT_DEPTH = 256;
const MOST_DEPTH = 16_384;
const DEFAULT_TIMEOUT = 10_000;

/** Options with their defaults. */
export interface RdmaModePlan {
  readonly rnic: Rnic;
  readonly depth: number;
  readonly gather: Gather;
  readonly policy: ConnectionPolicy;
}

/** Throws ERR_INVALID_ARGUMENT unless all is as {@link RdmaModeOptions} says. */
export function checkRdmaMode(options: RdmaModeOptions): void {
  const { progress, rnic, depth, gather, policy } = options;
  if (progress !== undefined) checkOneOf('options.progress', progress, ['thread', 'worker']);
  if (progress !== undefined && rnic !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.progress and options.rnic: give one of them');
  if (rnic !== undefined) checkRnic('options.rnic', rnic);
  if (depth !== undefined) checkInteger('options.depth', depth, 1, MOST_DEPTH);
  if (gather !== undefined) checkOneOf('options.gather', gather, GATHER_NAMES);
  resolvePolicy(policy);
}

/** The device and the sizes of one socket; a device that is made here is the process's own. */
export function planRdmaMode(options: RdmaModeOptions): RdmaModePlan {
  const { progress = 'thread', rnic, depth = DEFAULT_DEPTH, gather = 'lend', policy } = options;
  return { rnic: rnic ?? defaultRnic(progress), depth, gather, policy: resolvePolicy(policy) };
}

/** The part of {@link StartRdmaOptions} that is for the switch alone. */
export interface SwitchPlan {
  readonly role: 'initiator' | 'responder';
  readonly head: Uint8Array | null;
  readonly privateData: Uint8Array | undefined;
  readonly signal: AbortSignal | undefined;
  readonly timeout: number;
}

/** Throws ERR_INVALID_ARGUMENT unless all is as {@link StartRdmaOptions} says. */
export function checkStartRdma(options: StartRdmaOptions, role: SwitchPlan['role']): SwitchPlan {
  checkOptions('options', options, START_NAMES);
  checkRdmaMode(options);
  const { head, privateData, timeout = DEFAULT_TIMEOUT } = options;
  return {
    role: checkOneOf('options.role', options.role ?? role, ['initiator', 'responder']),
    head: head === undefined ? null : checkBytes('options.head', head),
    privateData: privateData === undefined ? undefined : checkBytes('options.privateData', privateData),
    signal: checkSignal(options.signal),
    timeout: checkInteger('options.timeout', timeout, 1, MAX_TIME_LIMIT),
  };
}
