/**
 * Checks of the options of a queue pair: each mistake throws before anything has been made (verbs draft
 * 6.1.1, 9.2.5).
 */
import {
  checkBoolean,
  checkInteger,
  checkOneOf,
  checkOptions,
  IwarpError,
  show,
  type Names,
} from '../base/errors.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import { CompletionQueue } from './cq.ts';
import type { ProtectionDomain } from './pd.ts';
import type { PostLimits } from './post.ts';
import type { QueuePairOptions } from './qp-types.ts';
import { SharedReceiveQueue } from './srq.ts';
import type { InboundRights } from '../queues/endpoint.ts';

const DEFAULT_WR = 128;
const DEFAULT_SGE = 4;
const DEFAULT_INLINE = 256;

/**
 * Options with every default filled in; what requests are checked against later is as {@link PostLimits} has
 * it.
 */
export interface CheckedQpOptions extends PostLimits {
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly srq: SharedReceiveQueue | null;
  readonly sendDepth: number;
  readonly recvDepth: number;
  readonly rights: InboundRights;
  readonly extensions: boolean;
  readonly sinkRight: number;
  readonly ird: number;
  readonly ord: number;
  readonly rqLimit: number;
}

/** Names as errors tell them, here so that they are not put together for each queue pair. */
const INTEGERS = {
  maxSendWr: 'options.maxSendWr',
  maxRecvWr: 'options.maxRecvWr',
  maxSendSge: 'options.maxSendSge',
  maxRecvSge: 'options.maxRecvSge',
  maxInline: 'options.maxInline',
  ird: 'options.ird',
  ord: 'options.ord',
} as const;
const BOOLEANS = {
  signalAll: 'options.signalAll',
  inboundWrite: 'options.inboundWrite',
  inboundRead: 'options.inboundRead',
  extensions: 'options.extensions',
  allowBind: 'options.allowBind',
  allowFastRegister: 'options.allowFastRegister',
} as const;
const OPTIONS: Names<QueuePairOptions> = {
  sendCq: true,
  recvCq: true,
  maxSendWr: true,
  maxRecvWr: true,
  maxSendSge: true,
  maxRecvSge: true,
  maxInline: true,
  srq: true,
  signalAll: true,
  inboundWrite: true,
  inboundRead: true,
  extensions: true,
  ird: true,
  ord: true,
  allowBind: true,
  allowFastRegister: true,
  readSink: true,
  rqLimit: true,
  context: true,
};
const SINKS = ['local-write', 'remote-write'] as const;

export function checkQpOptions(pd: ProtectionDomain, options: QueuePairOptions): CheckedQpOptions {
  checkOptions('options', options, OPTIONS);
  const { limits } = pd.device;
  const sendCq = checkCq('options.sendCq', options.sendCq, pd);
  const recvCq = checkCq('options.recvCq', options.recvCq, pd);
  const srq = options.srq === undefined ? null : checkSrq('options.srq', options.srq, pd);
  if (srq !== null && pd.device.wire === 'trp') {
    // A segment may be placed before its turn, into the receive whose turn it will be: in a shared queue that
    // receive is not known.
    throw new IwarpError('ERR_NOT_SUPPORTED', 'options.srq: the wire trp has no shared receive queues');
  }
  const sendDepth = integer(options, 'maxSendWr', Math.min(DEFAULT_WR, limits.maxQpWr), 1, limits.maxQpWr);
  // With a shared receive queue both are ignored, as in ibv_create_qp(3) (VERBS-127); without one, 0 makes a
  // queue pair that never receives.
  const recvDepth =
    srq === null ? integer(options, 'maxRecvWr', Math.min(DEFAULT_WR, limits.maxQpWr), 0, limits.maxQpWr) : 0;
  return {
    sendCq,
    recvCq,
    srq,
    sendDepth,
    recvDepth,
    maxSge: integer(options, 'maxSendSge', Math.min(DEFAULT_SGE, limits.maxSge), 1, limits.maxSge),
    maxRecvSge:
      srq === null
        ? integer(options, 'maxRecvSge', Math.min(DEFAULT_SGE, limits.maxSge), 0, limits.maxSge)
        : 0,
    maxInline: integer(options, 'maxInline', Math.min(DEFAULT_INLINE, limits.maxInline), 0, limits.maxInline),
    signalAll: boolean(options, 'signalAll'),
    sendsOnly: pd.device.wire === 'qpip',
    allowBind: boolean(options, 'allowBind'),
    allowFastRegister: boolean(options, 'allowFastRegister'),
    rights: rightsOf(boolean(options, 'inboundWrite'), boolean(options, 'inboundRead')),
    extensions: boolean(options, 'extensions'),
    sinkRight: sinkRightOf(options),
    ird: integer(options, 'ird', limits.maxQpRdAtom, 0, limits.maxQpRdAtom),
    ord: integer(options, 'ord', limits.maxQpInitRdAtom, 0, limits.maxQpInitRdAtom),
    rqLimit: checkInteger('options.rqLimit', options.rqLimit ?? 0, 0, srq === null ? recvDepth : srq.maxWr),
  };
}

// Functions of the module: as closures they are 150 bytes of garbage a queue pair.
function integer(
  options: QueuePairOptions,
  name: keyof typeof INTEGERS,
  value: number,
  min: number,
  max: number,
): number {
  return checkInteger(INTEGERS[name], options[name] ?? value, min, max);
}

function boolean(options: QueuePairOptions, name: keyof typeof BOOLEANS): boolean {
  return checkBoolean(BOOLEANS[name], options[name] ?? true);
}

function sinkRightOf({ readSink }: QueuePairOptions): number {
  const sink = checkOneOf('options.readSink', readSink ?? 'local-write', SINKS);
  return sink === 'remote-write' ? ACCESS.REMOTE_WRITE : ACCESS.LOCAL_WRITE;
}

/** Four objects for all queue pairs. */
const RIGHTS: readonly InboundRights[] = [
  { write: false, read: false },
  { write: true, read: false },
  { write: false, read: true },
  { write: true, read: true },
];

function rightsOf(write: boolean, read: boolean): InboundRights {
  return RIGHTS[(write ? 1 : 0) + (read ? 2 : 0)]!;
}

function checkCq(name: string, cq: unknown, pd: ProtectionDomain): CompletionQueue {
  if (!(cq instanceof CompletionQueue))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a CompletionQueue, got ${show(cq)}`);
  if (cq.device !== pd.device) throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another device`);
  if (cq.destroyed) throw new IwarpError('ERR_DESTROYED', `${name} has been destroyed`);
  return cq;
}

function checkSrq(name: string, srq: unknown, pd: ProtectionDomain): SharedReceiveQueue {
  if (!(srq instanceof SharedReceiveQueue))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a SharedReceiveQueue, got ${show(srq)}`);
  if (srq.pd.device !== pd.device) throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another device`);
  if (srq.destroyed) throw new IwarpError('ERR_DESTROYED', `${name} has been destroyed`);
  return srq;
}
